"""Import paths that version 0.1 documents still lead to the same objects, with a warning."""

import subprocess
import sys

import pytest

MOVED = [
    ("scrollmt.answers", "scrollmt.windows.answers", "Forecast"),
    ("scrollmt.units", "scrollmt.laws.transformed", "TransformedLaw"),
    ("scrollmt.series", "scrollmt.windows", "read_series"),
    ("scrollmt.joint", "scrollmt.laws.joint", "JointLaw"),
    ("scrollmt.quadrature", "scrollmt.heads", "log_expected"),
    ("scrollmt.program", "scrollmt.fit", "Schedule"),
    ("scrollmt.frozen", "scrollmt.laws.frozen", "frozen"),
    ("scrollmt.arms", "scrollmt.paper.arms", "ARMS"),
    ("scrollmt.paper.jobs", "scrollmt.paper.arena.jobs", "make_job"),
    ("scrollmt.paper.records", "scrollmt.paper.arena.records", "Records"),
    ("scrollmt.paper.sources", "scrollmt.paper.arena.sources", "register_corpus"),
    ("scrollmt.paper.by_task", "scrollmt.paper.tables.by_task", "score_table"),
    ("scrollmt.predictive", "scrollmt.laws", "GaussianLaw"),
    ("scrollmt.likelihoods", "scrollmt.heads", "StudentT"),
    ("scrollmt.likelihoods", "scrollmt.laws", "CensoredLaw"),
    ("scrollmt.likelihoods.student", "scrollmt.laws", "StudentTLaw"),
    ("scrollmt.likelihoods.count_law", "scrollmt.laws", "CountLaw"),
    ("scrollmt.arms.base", "scrollmt.paper.arms.base", "map_runs"),
]

# Fresh processes, since an import warns only once.
SCRIPT = """
import warnings
with warnings.catch_warnings(record=True) as said:
    warnings.simplefilter("always")
    from {old} import {name} as before
assert any("has moved to" in str(one.message) for one in said), said
from {new} import {name} as now
assert before is now
import scrollmt
if "{name}" == "frozen":
    from scrollmt import GaussianLaw
    assert scrollmt.frozen(GaussianLaw([1.0], [2.0])).mean() == 1.0
"""


@pytest.mark.slow
@pytest.mark.parametrize(("old", "new", "name"), MOVED)
def test_an_old_path_leads_to_the_same_object(old: str, new: str, name: str) -> None:
    script = SCRIPT.format(old=old, new=new, name=name)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
