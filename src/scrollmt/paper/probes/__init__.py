"""Studies with data or training of their own, as jobs: a function of a job and a protocol.

A probe's arm is named `probe-...`; `jobs.execute` looks it up here, so that records, engines
and tables treat it like any other arm.
"""
