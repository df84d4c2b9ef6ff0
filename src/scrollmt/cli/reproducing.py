"""`scrollmt studies` and `reproduce`: compute what is missing, then write what it shows."""

from __future__ import annotations

import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pandas as pd

from scrollmt._io import atomic
from scrollmt.backbone import PAPER_BACKBONES
from scrollmt.cli.shell import Problem, emit, say, show
from scrollmt.paper.arena import archive, compute
from scrollmt.paper.arena.jobs import Job, make_job
from scrollmt.paper.arena.probes import ALONE, DEFAULT, ORACLE, PREFIX
from scrollmt.paper.arena.records import Records
from scrollmt.paper.arms import get_arm
from scrollmt.paper.beyond import STUDIES as BEYOND
from scrollmt.paper.data import published
from scrollmt.paper.protocol import PROTOCOL, Protocol, draws_of
from scrollmt.paper.studies import STUDIES, findings, with_first_draws
from scrollmt.paper.studies.base import sweep, unique
from scrollmt.paper.studies.beside import tables_beside
from scrollmt.paper.tables import ledger, main_page, report
from scrollmt.paper.tables.selection import drop_unselected

MAIN = "main"
MAIN_STUDIES = (
    "main-comparison",
    "ce-bias",
    "ensembles",
    "lambda-grid-fairness",
    "laplace-paired",
    "cost",
)
# How many further draws the true law is scored on, for the offset of the draws trained on.
ORACLE_DRAWS = {"ou": 12, "lorenz63": 6}
PAGES = ("ledger", "report")
FITS_A_PROBE = 50


def listed(value: str | None, known: tuple[str, ...] | None, what: str) -> list[str] | None:
    """A comma-separated option; names are checked against those there are."""
    if value is None:
        return None
    names = [name.strip() for name in value.split(",") if name.strip()]
    if not names:
        raise Problem(f"--{what} names nothing; give names separated by commas")
    for name in names:
        if known is not None and name not in known:
            raise Problem(f"--{what}: unknown name {name!r}; choose from {', '.join(known)}")
    return names


def main_jobs(
    protocol: Protocol,
    corpora: list[str] | None = None,
    arms: list[str] | None = None,
    backbones: list[str] | None = None,
) -> list[Job]:
    """The big comparison: all arms on all corpora, the default preset, the true law on draws."""
    chosen = corpora or [*published.CORPORA]
    names = arms or published.arms()
    jobs = sweep(chosen, names, protocol, backbones or PAPER_BACKBONES)
    if arms is None:
        drawn = [d for c in chosen for d in draws_of(c)]
        jobs += [make_job(d, DEFAULT, "portfolio", protocol) for d in drawn]
        for corpus, draws in ORACLE_DRAWS.items():
            if corpus in chosen:
                ids = [corpus, *(f"{corpus}~{k}" for k in range(1, draws + 1))]
                jobs += [make_job(c, ORACLE, "none", protocol) for c in ids]
        for name in MAIN_STUDIES:
            probes = [j for j in STUDIES[name].jobs(protocol) if j.arm.startswith(PREFIX)]
            # Times are taken by `reproduce cost`: they want a machine that does nothing else.
            jobs += [job for job in probes if job.corpus in chosen and job.arm not in ALONE]
    return unique(jobs)


def jobs_of(name: str, protocol: Protocol) -> list[Job]:
    """The jobs behind a study, behind the big comparison, or behind everything."""
    if name == MAIN:
        return main_jobs(protocol)
    if name == "all" or name in PAGES:
        everything = [job for study in STUDIES.values() for job in study.jobs(protocol)]
        return unique([*main_jobs(protocol), *everything])
    if name not in STUDIES:
        known = [MAIN, *PAGES, "all", *STUDIES]
        raise Problem(f"unknown study {name!r}; choose from {', '.join(known)}")
    return unique(STUDIES[name].jobs(protocol))


def studies(*, as_json: bool) -> None:
    """What can be reproduced: runs, and the claims that each study judges."""
    claims = published.claims()["study"].value_counts()
    rows = []
    for name in (MAIN, *STUDIES, "all"):
        jobs = jobs_of(name, PROTOCOL)
        summary = {
            MAIN: "the two big tables: 16 arms on three corpora, ours beside the paper's",
            "all": "every study, the ledger and the report",
        }.get(name) or STUDIES[name].summary
        count = sum(_runs(job) for job in jobs)
        rows.append(
            {
                "study": name,
                "jobs": len(jobs),
                "runs": count,
                "claims": len(published.claims()) if name == "all" else int(claims.get(name, 0)),
                "what": summary,
            }
        )
    for name, study in BEYOND.items():
        jobs = study.jobs(PROTOCOL)
        counts = {"jobs": len(jobs), "runs": sum(map(_runs, jobs)), "claims": 0}
        rows.append({"study": f"beyond --study {name}", **counts, "what": study.summary})
    if as_json:
        emit(rows)
    else:
        show(
            pd.DataFrame(rows).set_index("study"), "What can be reproduced, by the paper's protocol"
        )


def _runs(job: Job) -> int:
    """How many fits a job is: seeds times members times settings."""
    if job.arm.startswith(PREFIX):
        return len(job.seeds)
    arm = get_arm(job.arm)
    return len(job.seeds) * arm.members * len(arm.settings)


def weight_of(job: Job) -> float:
    """About how long a job takes: its fits, of which a probe has many."""
    return _runs(job) * (FITS_A_PROBE if job.arm.startswith(PREFIX) else 1)


def reproduce(
    name: str,
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
    reading: dict[str, Any],
) -> None:
    """Compute what the records lack, then write the pages of what was asked for.

    `reading` has constants of the protocol by name, None for its own.
    """
    protocol = protocol_of(seeds, steps, windows, **reading)
    wanted = (
        listed(corpora, published.CORPORA, "corpora"),
        listed(arms, None, "arms"),
        listed(backbones, PAPER_BACKBONES, "backbones"),
    )
    for arm in wanted[1] or []:
        get_arm(arm)
    if any(part is not None for part in wanted) and name != MAIN:
        raise Problem("--corpora, --arms and --backbones narrow `reproduce main` only")
    jobs = main_jobs(protocol, *wanted) if name == MAIN else jobs_of(name, protocol)
    arrays: report.Arrays = {}
    atomic.check(out / "main.md")
    if committed is not None:
        frame, arrays = archive.load(committed), archive.load_arrays(committed)
        calls = archive.load_calls(committed)
    else:
        path = records or out / "records.sqlite"
        with Records(path) as database:
            if name not in PAGES:
                done = compute(
                    jobs,
                    database,
                    engine=engine,
                    workers=workers,
                    weight=weight_of,
                    progress=not quiet,
                    label=label_of(name, *wanted, protocol),
                )
                say(str(done))
            shown = unique([*jobs, *STUDIES["cost"].jobs(protocol)])
            frame, calls = database.frame(shown), [asdict(call) for call in database.calls()]
            if name not in PAGES:
                database.export(
                    out / "records", shown, arrays=report.is_drawn, rows=drop_unselected
                )
                arrays = archive.load_arrays(out / "records")
    if frame.empty:
        raise Problem(f"no records to write {name!r} from; compute them with `reproduce all` first")
    for path in _write(name, frame, arrays, calls, out, protocol):
        say(f"wrote {path}")


def protocol_of(
    seeds: int | None, steps: int | None, windows: int | None, **reading: Any
) -> Protocol:
    """The paper's protocol with what was given in place of its own constants."""
    given = {"steps": steps, "corpus_windows": windows, **reading}
    changes = {name: value for name, value in given.items() if value is not None}
    if seeds is not None:
        # Seeds beyond the paper's ten go on counting from there.
        changes["seeds"] = tuple(range(PROTOCOL.seeds[0], PROTOCOL.seeds[0] + seeds))
    try:
        return replace(PROTOCOL, **changes)
    except ValueError as error:
        raise Problem(str(error)) from error


def label_of(
    name: str,
    corpora: list[str] | None,
    arms: list[str] | None,
    backbones: list[str] | None,
    protocol: Protocol,
) -> str:
    """What was asked for, in the words of the command."""
    narrowed = {"corpora": corpora, "arms": arms, "backbones": backbones}
    options = [f"--{key} {','.join(names)}" for key, names in narrowed.items() if names]
    usual = PROTOCOL.determinants()
    changed = [f"{k}={v}" for k, v in protocol.determinants().items() if usual.get(k) != v]
    return " ".join([name, *options, f"--seeds {len(protocol.seeds)}", *changed])


def _write(
    name: str,
    frame: pd.DataFrame,
    arrays: report.Arrays,
    calls: list[dict[str, Any]],
    out: Path,
    protocol: Protocol,
) -> list[Path]:
    command = "scrollmt " + " ".join(sys.argv[1:])
    asked = MAIN_STUDIES if name == MAIN else (name,) if name in STUDIES else ()
    found = findings(frame, *asked)
    written: list[Path] = []
    if name in (MAIN, "all"):
        about = [f for f in found if f.study in MAIN_STUDIES]
        written += main_page.write(
            out, frame, about, command=command, calls=calls, protocol=protocol
        )
    if name not in (MAIN, "report"):
        stem = "ledger" if name == "all" else name
        written += ledger.write(
            out,
            found,
            name=stem,
            command=command,
            alone=with_first_draws(frame, found),
            beside=tables_beside(frame),
            protocol=protocol,
        )
    if name in ("all", "report"):
        written.append(report.write(out, frame, found, arrays, command=command))
    return written
