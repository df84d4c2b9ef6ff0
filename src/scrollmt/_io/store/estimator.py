"""What a fitted estimator keeps beside its model: parameters, scales, and how the fit went."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from numbers import Real
from typing import Any

import jax
import numpy as np

from scrollmt._data.answers import Answer
from scrollmt._data.scaling import Scales
from scrollmt._fitting.batches import Factory, made
from scrollmt._io.store import beliefs, claims, parts
from scrollmt._io.store.custom import read_classes
from scrollmt._io.store.folder import Arrays, ModelFolderError, read_folder, write_folder
from scrollmt._scoring.references import Reference
from scrollmt.heads import AbstractHead, Gaussian
from scrollmt.laws import Cut
from scrollmt.laws.remapped import Map, map_from_dict
from scrollmt.model import Backbone, Model
from scrollmt.windows import Recipe

_NOT_STORED = "your own data, which is not stored"


def save_estimator(
    fitted: Any, path: str | os.PathLike[str], online: tuple[dict[str, Any], Arrays]
) -> None:
    """Write a fitted estimator to a new folder; `online` is what it goes on learning from."""
    models: list[dict[str, Any]] = []
    arrays: Arrays = {}
    for number, member in enumerate(fitted.members_):
        model, own = parts.model_to_parts(member, fitted.n_features_in_)
        models.append(model)
        arrays |= {f"{number}/{path}": array for path, array in own.items()}
    tasks, starts = parts.heads_to_parts(fitted.tasks_)
    lead = next((i for i, m in enumerate(fitted.members_) if m is fitted.model_), None)
    if lead is None:
        raise ValueError("model_ is none of the members_; replace both, then save")
    write_folder(
        path,
        {
            "members": models,
            "lead": lead,
            "committee": {name: list(c) for name, c in fitted.committee_.items()},
            "weights": fitted.weights_,
            "moments": fitted.moments_,
            **_answers(fitted.answers_),
            "estimator": {
                "task_order": list(tasks),
                "tasks": tasks,
                "preset": parts.preset_to_json(fitted.preset),
                **({} if fitted.steps is None else {"steps": fitted.steps}),
                **({} if fitted.patience is None else {"patience": fitted.patience}),
                "belief": beliefs.choices_to_json(fitted.belief),
                **({} if fitted.routing == "free" else {"routing": fitted.routing}),
                **({} if fitted.joint is None else {"joint": fitted.joint}),
                "backbone": fitted.backbone if isinstance(fitted.backbone, str) else None,
                # Only where there is one of the user's own, which is code and not stored.
                **({} if isinstance(fitted.optimizer, str) else {"optimizer": None}),
                "validation": _validation(fitted.validation),
                "refit": fitted.refit,
                **({} if fitted.calibrate == "none" else {"calibrate": fitted.calibrate}),
                "seed": fitted.seed,
                "ensemble": fitted.ensemble,
                "seeds": None if fitted.seeds is None else [int(s) for s in fitted.seeds],
                "verbose": fitted.verbose,
            },
            "scales": asdict(fitted.scales_),
            **_calibration(fitted.calibration_),
            "references": {name: one.to_dict() for name, one in fitted.references_.items()},
            "recipe": None if fitted.recipe_ is None else fitted.recipe_.to_dict(),
            "feature_names": getattr(fitted, "feature_names_in_", None),
            "candidates": parts.table_to_dict(fitted.candidates_),
            "history": parts.table_to_dict(fitted.history_),
            "validation_nll": fitted.validation_nll_,
            "stop_reason": fitted.stop_reason_,
            **({"online": online[0]} if online[0] else {}),
        },
        {**arrays, **online[1], **{f"tasks{path}": array for path, array in starts.items()}},
    )


def load_estimator(
    make: Callable[..., Any],
    path: str | os.PathLike[str],
    backbone: Backbone | Factory | None,
    heads: Mapping[str, AbstractHead] | None = None,
    custom: Iterable[Any] = (),
) -> tuple[Any, dict[str, Any] | None, Arrays]:
    """The estimator that `save_estimator` wrote, and its `online`; `make` is its class."""
    classes = read_classes(custom)
    content, arrays = read_folder(path)
    # Weights come from the file, so that any key will do.
    module = None if backbone is None else made(backbone, jax.random.key(0))
    try:
        given = content["estimator"]
        claims.check_sizes(content, arrays)
        claims.check_types(given, claims.SETTINGS, "")
        claims.check_types(content, claims.RESULTS, "")
        members = []
        for number, model in enumerate(content["members"]):
            mark = f"{number}/"
            own = {n.removeprefix(mark): a for n, a in arrays.items() if n.startswith(mark)}
            members.append(
                parts.model_from_parts(model, own, backbone=module, heads=heads, custom=classes)
            )
        starts = {n.removeprefix("tasks"): a for n, a in arrays.items() if n.startswith("tasks")}
        tasks = {name: given["tasks"][name] for name in given["task_order"]}
        out = make(
            parts.heads_from_parts(tasks, starts, heads, classes),
            preset=parts.preset_from_json(given["preset"]),
            steps=given.get("steps"),
            patience=given.get("patience"),
            belief=beliefs.choices_from_json(given["belief"], classes),
            routing=given.get("routing", "free"),
            joint=given.get("joint"),
            backbone=given["backbone"] if backbone is None else backbone,
            optimizer=given.get("optimizer", "adam"),
            validation=_stored_validation(content),
            refit=given.get("refit", False),
            calibrate=given.get("calibrate", "none"),
            seed=given["seed"],
            ensemble=given["ensemble"],
            seeds=given["seeds"],
            verbose=given["verbose"],
        )
        if content["recipe"] is not None:
            out.recipe = Recipe.from_dict(content["recipe"])
            claims.check_recipe(out.recipe, content["members"][0]["in_size"])
            if set(out.recipe.tasks) != set(tasks):
                raise ModelFolderError(f"the recipe has the tasks {list(out.recipe.tasks)!r:.60}")
        out.recipe_ = out.recipe
        out.tasks_ = dict(out.tasks)
        out.members_ = members
        places = range(len(members))
        chosen = [content["lead"], *(k for one in content["committee"].values() for k in one)]
        if any(k not in places for k in chosen):
            raise ModelFolderError(
                f"lead and committee name the members {chosen!r:.60} of {len(members)}"
            )
        out.committee_ = {n: tuple(content["committee"][n]) for n in tasks}
        # Version 0.1 mixed Gaussian laws into one with two moments, and weighed members equally.
        if ("moments" in content) != ("weights" in content):
            raise ModelFolderError("it has only one of weights and moments")
        out.moments_ = content.get("moments", True)
        out.weights_ = _weights(content.get("weights"), out.committee_)
        out.answers_ = _stored_answers(content.get("answers"), out.committee_, members)
        out.model_ = out.members_[content["lead"]]
        out.scales_ = _scales(content["scales"], content["members"][0]["in_size"], out.tasks)
        # Version 0.1 stored no references.
        stored = content.get("references", {})
        out.references_ = {
            n: Reference.from_dict(one, out.tasks_[n].variants[0]) for n, one in stored.items()
        }
        maps = content.get("calibration", {})
        out.calibration_ = {n: map_from_dict(one["kind"], one) for n, one in maps.items()}
        if not out.calibration_.keys() <= out.tasks_.keys():
            raise ModelFolderError(f"calibration has the tasks {list(maps)!r:.60}")
        out.candidates_ = parts.table_from_dict(content["candidates"])
        out.history_ = parts.table_from_dict(content["history"])
        out.validation_nll_ = content["validation_nll"]
        out.stop_reason_ = content["stop_reason"]
        out.n_features_in_ = content["members"][0]["in_size"]
        names = content["feature_names"]
        if names is not None:
            if len(names) != out.n_features_in_:
                raise ModelFolderError(f"{names!r:.60} do not name the inputs")
            out.feature_names_in_ = np.asarray(names, dtype=object)
    except ModelFolderError as error:
        raise ModelFolderError(f"{path}: {error}") from None
    except Exception as error:  # an untrusted file can be wrong in any way
        why = " ".join(str(error).split()) or "it cannot be read"
        raise ModelFolderError(
            f"{path} is not a complete model folder: {type(error).__name__}: {why:.200}"
        ) from error
    return out, content.get("online"), arrays


def _validation(given: Any) -> float | str | None:
    """A share, a number of folds, or None; data of the user's own are not stored."""
    if given is None or isinstance(given, Real):
        return given if given is None or isinstance(given, int) else float(given)
    return _NOT_STORED


def _stored_validation(content: Mapping[str, Any]) -> float | str | None:
    stored: float | str | None = content["estimator"]["validation"]
    # To version 0.1 None were data of the user's own; later it leaves the choice to the preset.
    return _NOT_STORED if stored is None and "moments" not in content else stored


def _calibration(maps: Mapping[str, Map]) -> dict[str, Any]:
    """Maps by task, as numbers; nothing without any."""
    stored = {name: {"kind": one.kind, **one.to_dict()} for name, one in maps.items()}
    return {"calibration": stored} if stored else {}


def _answers(answers: Mapping[str, tuple[Answer, ...]] | None) -> dict[str, Any]:
    """What is read off the members of each task; nothing where it is their own head."""
    if answers is None:
        return {}
    return {
        "answers": {
            name: [
                {"head": one.head, **({} if one.cut is None else {"cut": asdict(one.cut)})}
                for one in own
            ]
            for name, own in answers.items()
        }
    }


def _stored_answers(
    stored: Mapping[str, Any] | None,
    committee: Mapping[str, tuple[int, ...]],
    members: Sequence[Model],
) -> dict[str, tuple[Answer, ...]] | None:
    """One answer a member of each task's committee, by a head that the member has."""
    if stored is None:
        return None
    answers = {
        name: tuple(Answer(one["head"], _cut(one.get("cut"))) for one in stored[name])
        for name in committee
    }
    for name, own in answers.items():
        pairs = list(zip(committee[name], own, strict=False))
        if len(own) != len(committee[name]) or not all(
            one.head in members[number].tasks for number, one in pairs
        ):
            raise ModelFolderError(f"the answers of task {name!r:.60} do not suit its members")
    return answers


def _cut(stored: Mapping[str, Any] | None) -> Cut | None:
    return None if stored is None else Cut(**{**stored, "edges": tuple(stored["edges"])})


def _weights(
    stored: Mapping[str, Any] | None, committee: Mapping[str, tuple[int, ...]]
) -> dict[str, tuple[float, ...]] | None:
    """One positive weight a member of each task's committee."""
    if stored is None:
        return None
    weights = {name: tuple(map(float, stored[name])) for name in committee}
    for name, own in weights.items():
        if len(own) != len(committee[name]) or not all(0.0 < w <= 1.0 for w in own):
            raise ModelFolderError(f"the weights {list(own)!r:.60} do not suit task {name!r}")
    return weights


def _scales(stored: dict[str, Any], in_size: int, tasks: Mapping[str, AbstractHead]) -> Scales:
    """Scales of the right names and sizes: a wrong one is refused here, not in `predict`."""
    mean, sd = (np.asarray(stored[k], dtype=float).reshape(in_size) for k in ("x_mean", "x_sd"))
    names = {name for name, head in tasks.items() if isinstance(head, Gaussian)}
    names |= set(stored["scale"])
    offset, scale = ({n: float(stored[k][n]) for n in names} for k in ("offset", "scale"))
    ends = (stored.get(k) for k in ("x_low", "x_high"))
    low, high = (None if e is None else np.asarray(e, dtype=float).reshape(in_size) for e in ends)
    return Scales(mean, sd, offset, scale, low, high)
