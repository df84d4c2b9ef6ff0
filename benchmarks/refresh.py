"""The default preset's records computed anew, in the place of those in docs/results/records.

    python benchmarks/refresh.py       then: scrollmt reproduce all --from docs/results/records \
                                             --out docs/results -q

Whenever the default preset changes, its rows beside the paper's arms must be those of the preset
that users get. All other records stay as they are. Some sixty fits, ten minutes on two cores; the
PM2.5 table is looked for as `scrollmt reproduce` does it.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pandas as pd
import typer

from scrollmt.cli.reproducing import main_jobs
from scrollmt.paper.arena import archive
from scrollmt.paper.arena.records import Records
from scrollmt.paper.arena.sweep import compute
from scrollmt.paper.protocol import PROTOCOL
from scrollmt.paper.studies.probes.default import NAME

COMMITTED = Path(__file__).resolve().parents[1] / "docs" / "results" / "records"
DATABASE = Path(tempfile.gettempdir()) / "scrollmt-default.sqlite"


def refresh(database: Path = DATABASE, committed: Path = COMMITTED) -> None:
    """Compute what the database lacks, then replace the committed rows of the default preset."""
    jobs = [job for job in main_jobs(PROTOCOL) if job.arm == NAME]
    with tempfile.TemporaryDirectory() as folder, Records(database) as records:
        print(compute(jobs, records, label=f"main, {NAME} alone"))
        records.export(folder, jobs)
        replace(committed, Path(folder))


def replace(committed: Path, newer: Path) -> None:
    """Rows, arrays, jobs and calls of `newer` in the place of those of the same arms."""
    frame = archive.load(newer)
    arms = set(frame["arm"])
    old = archive.load(committed)
    kept = old[~old["arm"].isin(arms)]
    keys = ["corpus", "arm", "backbone", "seed"]
    both = pd.concat([kept, frame[[c for c in old if c in frame]]])
    both = both.sort_values(keys, kind="stable", ignore_index=True)[list(old)]
    both = both.astype(old.dtypes.to_dict())

    def others(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return [job for job in found if job.get("arm") not in arms]

    arrays = {k: v for k, v in archive.load_arrays(committed).items() if k.arm not in arms}
    jobs = [*others(archive.load_jobs(committed)), *archive.load_jobs(newer)]
    jobs.sort(key=lambda job: tuple(str(job.get(k)) for k in keys[:3]))
    calls = [*archive.load_calls(committed), *archive.load_calls(newer)]
    archive.write(committed, both, arrays, jobs, calls)


if __name__ == "__main__":
    typer.run(refresh)
