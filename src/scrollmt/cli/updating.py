"""`scrollmt update`: a model folder that goes on learning.

The folder is replaced as a whole, so that a killed update leaves the model as it was, and one that
is called again goes on where the last one ended.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from scrollmt import online
from scrollmt.cli import models, tables
from scrollmt.cli.data import Part
from scrollmt.cli.scores import say_skill, show_scores
from scrollmt.cli.shell import about, by_task, emit, say
from scrollmt.windows import Windows


def update(folder: str, data: str, out: Path | None, *, force: bool, as_json: bool) -> None:
    target = Path(folder) if out is None else out
    stored = models.open_model(folder)
    models.check_folder(target, force=force or out is None)
    part, digests = models.unlearned(stored, data)
    with about(tables.named(data)):
        found = online.filter(stored.model, *part)
    facts = {**stored.facts, **_learned(stored.facts, part, digests)}
    config = None if stored.config is None else stored.config.content
    models.save(found.model, target, config, facts)
    frozen = stored.model.evaluate(*part)
    if as_json:
        scores = {"updated": by_task(found.scores), "before": by_task(frozen)}
        emit({"model": str(target), "windows": part.size, "scores": scores})
        return
    show_scores(found.scores, f"{part.size} new windows, each before it was learned from")
    say_skill(found.scores)
    for task, row in found.scores.iterrows():
        before = frozen.loc[task, "nll"]
        say(f"{task}: NLL {row['nll']:.4f}; by the model as it was {before:.4f}")
    say(f"{part.size} windows learned; {target}")


def _learned(facts: dict[str, Any], part: Part, digests: list[str]) -> dict[str, Any]:
    """What is known to be learned: the origin after the last one, or the files of rows."""
    if isinstance(part.X, Windows):
        return {"new_from": part.X.t[-1] + part.X.recipe.step}
    return {"updated_sha256": [*facts.get("updated_sha256", []), digests]}
