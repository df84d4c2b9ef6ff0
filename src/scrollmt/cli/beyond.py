"""`scrollmt reproduce beyond`: studies that the paper does not have, by its protocol."""

from __future__ import annotations

import sys
from pathlib import Path

import typer

from scrollmt._io import atomic
from scrollmt.backbone import PAPER_BACKBONES
from scrollmt.cli.reproducing import label_of, listed, protocol_of, weight_of
from scrollmt.cli.shell import Problem, say
from scrollmt.paper.arena import archive, compute
from scrollmt.paper.arena.records import Records
from scrollmt.paper.beyond import STUDIES
from scrollmt.paper.beyond.base import lean
from scrollmt.paper.tables.markdown import write_texts

NAME = "beyond"


def reproduce(
    study: str | None,
    *,
    corpora: str | None,
    arms: str | None,
    backbones: str | None,
    seeds: int | None,
    engine: str,
    workers: int | None,
    out: Path,
    records: Path | None,
    committed: Path | None,
    steps: int | None,
    windows: int | None,
    quiet: bool,
) -> None:
    """Compute what the records lack, export them lean, and write the page.

    Exported records go to beyond/STUDY in the folder, and the page to STUDY.md beside it.
    """
    if study not in STUDIES:
        raise Problem(f"--study: unknown name {study!r}; choose from {', '.join(STUDIES)}")
    chosen = STUDIES[study]
    protocol = protocol_of(seeds, steps, windows)
    wanted = (
        listed(corpora, tuple(chosen.corpora), "corpora"),
        listed(arms, tuple(chosen.arms), "arms"),
        listed(backbones, PAPER_BACKBONES, "backbones"),
    )
    _, skipped = chosen.available(wanted[1])
    page, folder = out / f"{study}.md", out / NAME / study
    atomic.check(page)
    if committed is None:
        for arm, why in skipped.items():
            typer.echo(f"arm {arm} is skipped: {why}", err=True)
        jobs = chosen.jobs(protocol, *wanted)
        if not jobs:
            raise Problem(f"--arms: none of {', '.join(skipped)} can run here")
        with Records(records or out / "records.sqlite") as database:
            done = compute(
                jobs,
                database,
                engine=engine,
                workers=workers,
                weight=weight_of,
                progress=not quiet,
                label=label_of(f"{NAME} --study {study}", *wanted, protocol),
            )
            say(str(done))
            # A call that was stopped early leaves records of some jobs, and a page of those.
            database.export(folder, jobs, arrays=lambda key: False, rows=lean)
        committed = folder
    frame = archive.load(committed)
    # Where records have an arm, it ran, whatever is installed here.
    ran = {*frame["arm"]}
    absent = {arm: why for arm, why in skipped.items() if arm not in ran}
    command = "scrollmt " + " ".join(sys.argv[1:])
    text = chosen.page(frame, chosen.arms, absent, command)
    for path in write_texts(out, {page.name: text}):
        say(f"wrote {path}")
