"""Studies with data or training of their own, as jobs: a function of a job and a protocol.

The arm of a probe is named `probe-...`; `arena.jobs.execute` looks it up in `arena.probes`, so
that records, engines and tables treat it like any other arm.
"""
