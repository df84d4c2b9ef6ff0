"""`scrollmt report`: the model judged on data with known answers, as one page of HTML."""

from __future__ import annotations

import pandas as pd

from scrollmt.cli import models, tables
from scrollmt.cli.config import STANDARD_STREAM, read_config
from scrollmt.cli.data import Part, prepare
from scrollmt.cli.shell import Problem, about, by_task, emit, say
from scrollmt.plots import compare_alone
from scrollmt.report import write_report


def run(
    folder: str,
    data: str,
    out: str,
    *,
    title: str | None,
    alone: str | None,
    every: bool,
    force: bool,
    as_json: bool,
) -> None:
    if out == STANDARD_STREAM:
        raise Problem("a report is a file to open in a browser; name it with -o report.html")
    tables.check_target(out, force=force, inputs=(data, folder, *([alone] if alone else [])))
    stored = models.open_model(folder)
    part = models.labelled(stored, data, every=every)
    comparison = None if alone is None else _alone(stored, alone, part)
    with about(tables.named(data)):
        write_report(
            stored.model, part.X, part.Y, out, title=title, interference=comparison, force=force
        )
        scores = stored.model.evaluate(*part)
    if as_json:
        emit({"report": out, "windows": part.size, "scores": by_task(scores)})
    else:
        say(f"{out} is written, on {part.size} windows; open it in a browser")


def _alone(stored: models.Stored, config: str, test: Part) -> pd.DataFrame:
    """Every task fitted alone, on what the model was fitted on."""
    prepared = prepare(read_config(config))
    if prepared.digests != stored.facts.get("sha256"):
        raise Problem(
            f"--alone {config}: its data is not what {stored.folder} was fitted on, so a "
            "comparison would not be fair; give the config and the data of that fit"
        )
    model = stored.model.set_params(validation=prepared.model.validation)
    train = prepared.train.X if test.Y is None else tuple(prepared.train)
    with about(f"--alone {config}"):
        return compare_alone(model, train, test.X if test.Y is None else tuple(test))
