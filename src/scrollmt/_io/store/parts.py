"""A model taken apart into a JSON description of its structure and its arrays by path, and back.

What scrollmt owns (heads, beliefs, `Dense` backbones, presets) is rebuilt by name. A user's own
backbone, head or belief is code, which a file cannot hold: the user gives it again, heads and
beliefs by their classes (`custom`). What it computes at fixed points, stored beside its arrays,
tells whether it is the same one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, cast

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd

from scrollmt._io.store import beliefs
from scrollmt._io.store.claims import check_fields
from scrollmt._io.store.custom import Classes, fields_of, from_fields
from scrollmt._io.store.folder import Arrays, ModelFolderError
from scrollmt.backbone import Dense
from scrollmt.beliefs import Start
from scrollmt.couplings import Coupling, read_groups
from scrollmt.fit import Schedule
from scrollmt.heads import (
    AbstractHead,
    Categorical,
    Censored,
    Count,
    Event,
    Gaussian,
    Mixture,
    Ordinal,
    Poisson,
    Real,
    SinhArcsinh,
    StudentT,
)
from scrollmt.model import Backbone, Model, PrecisionPrior, Task
from scrollmt.presets import Architecture, Candidate, Large, Preset

ENABLE_X64 = "call jax.config.update('jax_enable_x64', True) first"


def table_to_dict(table: pd.DataFrame) -> dict[str, list[Any]]:
    return {
        str(name): [None if isinstance(v, float) and not math.isfinite(v) else v for v in values]
        for name, values in table.to_dict(orient="list").items()
    }


def table_from_dict(stored: Mapping[str, list[Any]]) -> pd.DataFrame:
    def column(values: list[Any]) -> pd.Series:
        # A column of nothing but null says no type of its own: it was numbers that failed.
        return pd.Series(values, dtype=float if all(v is None for v in values) else None)

    return pd.DataFrame({name: column(values) for name, values in stored.items()})


def preset_to_json(preset: str | Preset) -> str | dict[str, Any]:
    """A preset by name where it was given so, else by its fields."""
    if isinstance(preset, str):
        return preset
    if type(preset) is not Preset:
        raise ValueError(
            f"the preset is a {type(preset).__name__}, which could not be rebuilt from a file; "
            "only a plain Preset can be saved"
        )
    return asdict(preset)


def preset_from_json(stored: str | dict[str, Any]) -> str | Preset:
    if isinstance(stored, str):
        return stored
    candidates = []
    for fields in stored["candidates"]:
        shape = fields["architecture"]
        shape = Architecture(**{**shape, "widths": tuple(shape["widths"])})
        candidates.append(Candidate(**{**fields, "architecture": shape}))
    parts = {"candidates": tuple(candidates), "schedule": Schedule(**stored["schedule"])}
    # Folders written before presets said where beliefs start all began narrow.
    if "begin" in stored:
        parts["begin"] = Start(**stored["begin"])
    if stored.get("large") is not None:
        parts["large"] = Large(**stored["large"])
    preset = Preset(**{**stored, **parts})
    check_fields(preset, "preset: ")
    return preset


Heads = Mapping[str, AbstractHead]


def heads_to_parts(heads: Heads) -> tuple[dict[str, Any], Arrays]:
    """Heads by name, and their parameters."""
    return {name: _describe(head) for name, head in heads.items()}, _arrays(dict(heads))


def heads_from_parts(
    described: Mapping[str, Any],
    arrays: Arrays,
    given: Heads | None = None,
    custom: Classes | None = None,
) -> dict[str, AbstractHead]:
    """The heads of `heads_to_parts`; a user's own are `given` again by task, or by `custom`."""
    made = {name: _head(name, stored, given, custom or {}) for name, stored in described.items()}
    filled = _filled(made, arrays)
    # JAX sorts the keys of a mapping; the user's order is that of the description.
    return {name: filled[name] for name in described}


def _describe(head: AbstractHead) -> dict[str, Any]:
    # A subclass may override anything, so only the very classes can be rebuilt by name.
    kind = type(head)
    if kind in (Gaussian, StudentT, Poisson, Count, SinhArcsinh):
        return {"kind": kind.__name__}
    if kind in (Event, Ordinal, Categorical):
        of_classes = cast(Event | Ordinal | Categorical, head)
        size = {} if kind is Event else {"R": of_classes.classes}
        texts = {} if of_classes.labels is None else {"labels": list(of_classes.labels)}
        return {"kind": kind.__name__, **size, **texts, **_asked_of(head)}
    if kind is Real:
        return {"kind": kind.__name__, "variants": [_describe(one) for one in head.variants]}
    if kind is Mixture:
        return {"kind": kind.__name__, "components": cast(Mixture, head).components}
    if kind is Censored:
        limits = cast(Censored, head)
        return {"kind": kind.__name__, "lower": limits.lower, "upper": limits.upper}
    try:
        return {"kind": "given", "type": kind.__name__, "fields": fields_of(head)}
    except TypeError:  # a field holds a function, for one: the head itself has to be given again
        return {"kind": "given", "type": kind.__name__}


def _asked_of(head: AbstractHead) -> dict[str, Any]:
    """The number behind a task's classes; nothing without one."""
    if isinstance(head, Event) and head.comparison is not None and head.source is not None:
        return {"of": head.source.of, "compared": list(head.comparison)}
    if isinstance(head, Ordinal) and head.source is not None:
        return {"of": head.source.of, "edges": list(head.source.cut.edges)}
    return {}


def _head(name: str, stored: dict[str, Any], given: Heads | None, custom: Classes) -> AbstractHead:
    match stored:
        case {"kind": "Gaussian"}:
            return Gaussian()
        case {"kind": "Real", "variants": list(variants)}:
            return Real(*(_head(name, one, given, custom) for one in variants))
        case {"kind": "Event", "of": str(of), "compared": [str(how), float(edge)]}:
            return Event(labels=stored.get("labels"), of=of, **{how: edge})
        case {"kind": "Event"}:
            return Event(labels=stored.get("labels"))
        case {"kind": "Ordinal", "of": str(of), "edges": list(edges)}:
            return Ordinal(stored.get("labels"), of=of, edges=edges)
        case {"kind": "Ordinal" | "Categorical" as kind, "R": int(classes), "labels": list(texts)}:
            if len(texts) != classes:
                raise ModelFolderError(
                    f"task {name!r}: {texts!r:.80} do not name {classes} classes"
                )
            return Ordinal(texts) if kind == "Ordinal" else Categorical(texts)
        case {"kind": "Ordinal", "R": int(classes)}:
            return Ordinal(classes)
        case {"kind": "Categorical", "R": int(classes)}:
            return Categorical(classes)
        case {"kind": "StudentT"}:
            return StudentT()
        case {"kind": "SinhArcsinh"}:
            return SinhArcsinh()
        case {"kind": "Mixture", "components": int(components)}:
            return Mixture(components)
        case {"kind": "Poisson"}:
            return Poisson()
        case {"kind": "Count"}:
            return Count()
        case {"kind": "Censored", "lower": float() | None as low, "upper": float() | None as high}:
            return Censored(low, high)
        case {"kind": "given", "type": str(kind)}:
            head = None if given is None else given.get(name)
            if head is not None and type(head).__name__ == kind:
                return head
            if "fields" in stored and issubclass(custom.get(kind, object), AbstractHead):
                own: AbstractHead = from_fields(custom[kind], stored["fields"], custom)
                return own
            by_class = f"custom=[{kind}]) or load(path, " if "fields" in stored else ""
            raise ModelFolderError(
                f"task {name!r}: the head is a {kind}, which is not part of scrollmt; pass "
                f"load(path, {by_class}heads={{{name!r}: {kind}(...)}}) as in the fit"
            )
    raise ModelFolderError(f"unknown head {stored!r}")


def model_to_parts(model: Model, in_size: int) -> tuple[dict[str, Any], Arrays]:
    """A JSON description of a model's structure, and its arrays by path."""
    heads, _ = heads_to_parts({name: task.head for name, task in model.tasks.items()})
    tasks = {}
    for name, task in model.tasks.items():
        tasks[name] = {"head": heads[name], **beliefs.describe(name, task.belief)}
        # Only where there is one, so that other folders stay readable for every version.
        if task.precision_prior is not None:
            tasks[name]["precision_prior"] = asdict(task.precision_prior)
    features = next(iter(model.tasks.values())).belief.mu.shape[-1]
    arrays = {f"model{path}": array for path, array in _arrays(model).items()}
    backbone: dict[str, Any]
    if type(model.backbone) is Dense:
        net = model.backbone
        backbone = {
            "kind": "Dense",
            "widths": [w.shape[0] for w in net.weights],
            "activation": net.activation,
            "bias": net.biases is not None,
            "norm": net.norm,
            "skip": net.skip,
        }
    else:
        backbone = {"kind": "given", "type": type(model.backbone).__name__}
        arrays["probe"] = _probe(model, in_size)
    given = {n: task.head for n, task in model.tasks.items() if heads[n]["kind"] == "given"}
    arrays |= {f"head/{name}": _head_probe(head) for name, head in given.items()}
    own = {n: t.belief for n, t in model.tasks.items() if not isinstance(tasks[n]["belief"], str)}
    arrays |= {f"belief/{name}": beliefs.probe(belief) for name, belief in own.items()}
    description: dict[str, Any] = {
        "in_size": in_size,
        "features": features,
        "backbone": backbone,
        "tasks": tasks,
    }
    # Only where there are any, so that other folders stay readable for every version.
    if model.couplings:
        description["couplings"] = [list(coupling.names) for coupling in model.couplings]
    return description, arrays


def model_from_parts(
    description: dict[str, Any],
    arrays: Arrays,
    *,
    backbone: Backbone | None = None,
    heads: Heads | None = None,
    custom: Classes | None = None,
) -> Model:
    """The model of `model_to_parts`, bit for bit.

    A backbone that is not one of scrollmt's own has to be given as a module of the same
    structure, and so may such heads, by task; their arrays are replaced by the stored ones.
    Heads and beliefs may also be given by their classes, `custom`.
    """
    stored, in_size = description["backbone"], description["in_size"]
    own = stored["kind"] == "Dense"
    if own and backbone is not None:
        raise ModelFolderError("the backbone is scrollmt's own and stored; leave out backbone=")
    if own:
        # Shapes alone: what a description claims is not allocated before it is compared.
        backbone = eqx.filter_eval_shape(
            Dense,
            in_size,
            stored["widths"],
            activation=stored["activation"],
            bias=stored["bias"],
            norm=stored["norm"],
            skip=stored.get("skip", False),
            key=jax.random.key(0),
        )
    elif backbone is None:
        raise ModelFolderError(
            f"the backbone is a {stored['type']}, which scrollmt cannot rebuild; "
            "pass load(path, backbone=...) with a module of the same structure"
        )
    tasks = {}
    for name, task in description["tasks"].items():
        head = _head(name, task["head"], heads, custom or {})
        belief = beliefs.from_description(
            name, task, description["features"], head.rows, custom or {}
        )
        prior = PrecisionPrior(**task["precision_prior"]) if "precision_prior" in task else None
        if prior is not None:
            check_fields(prior, f"task {name!r:.60}: precision_prior: ")
        tasks[name] = Task(head, belief, jnp.zeros(()), prior)
    paths = {n.removeprefix("model"): a for n, a in arrays.items() if n.startswith("model")}
    groups = read_groups(description.get("couplings"), {n: t.head for n, t in tasks.items()})
    model: Model = _filled(Model(backbone, tasks, tuple(map(Coupling, groups))), paths)
    # Same shapes, another activation: only what a module computes can tell.
    for name, task in model.tasks.items():
        probe = arrays.get(f"head/{name}")
        if probe is not None and not _same(_head_probe(task.head), probe):
            raise ModelFolderError(
                f"task {name!r}: the head given ({type(task.head).__name__}) has the stored arrays "
                "but computes something else than the saved one"
            )
        probe = arrays.get(f"belief/{name}")
        if probe is not None and not _same(beliefs.probe(task.belief), probe):
            raise ModelFolderError(
                f"task {name!r}: the belief given ({type(task.belief).__name__}) has the stored "
                "arrays but computes something else than the saved one"
            )
    if not own and not _same(_probe(model, in_size), arrays["probe"]):
        raise ModelFolderError(
            f"the backbone given ({type(backbone).__name__}) has the stored arrays but computes "
            f"something else than the saved one ({stored['type']})"
        )
    return model


def _probe(model: Model, in_size: int) -> np.ndarray:
    """Features at a few fixed points: a fingerprint of what a backbone computes."""
    dtype = next(iter(model.tasks.values())).belief.mu.dtype
    points = np.sin(np.arange(1.0, 1.0 + 4 * in_size)).reshape(4, in_size)
    with jax.default_matmul_precision("highest"):
        return np.asarray(model.features(jnp.asarray(points, dtype)))


def _head_probe(head: AbstractHead) -> np.ndarray:
    """Log scores of the label that stands for a missing one: a fingerprint of a head."""
    dtype = jnp.result_type(*(leaf for _, leaf in _leaves(head)), jnp.float32)
    labels, _ = head.read_labels("probe", np.full(4, np.nan))
    points = np.sin(np.arange(1.0, 1.0 + 4 * head.rows)).reshape(4, head.rows)
    mean = jnp.asarray(points[:, 0] if head.rows == 1 else points, dtype)
    return np.asarray(head.log_predictive(jnp.asarray(labels), mean, jnp.full_like(mean, 0.3)))


def _same(found: np.ndarray, stored: np.ndarray) -> bool:
    """Equal but for what another machine's rounding may change."""
    return found.shape == stored.shape and bool(
        np.allclose(found, stored, rtol=1e-3, atol=1e-3 * float(np.abs(stored).max()))
    )


def _is_array(leaf: Any) -> bool:
    return eqx.is_array(leaf) or isinstance(leaf, jax.ShapeDtypeStruct)


def _leaves(tree: Any) -> list[tuple[str, Any]]:
    paths, _ = jax.tree_util.tree_flatten_with_path(tree)
    return [(jax.tree_util.keystr(path), leaf) for path, leaf in paths if _is_array(leaf)]


def _arrays(tree: Any) -> Arrays:
    return {path: np.asarray(leaf) for path, leaf in _leaves(tree)}


def _filled(skeleton: Any, arrays: Arrays) -> Any:
    """The skeleton with its arrays replaced by the stored ones, in the stored precision."""
    expected = {path: np.shape(leaf) for path, leaf in _leaves(skeleton)}
    found = {path: a.shape for path, a in arrays.items()}
    if expected != found:
        wrong = min(p for p in {**expected, **found} if expected.get(p) != found.get(p))
        raise ModelFolderError(
            f"the stored arrays do not fit the structure, first at {wrong!r}: "
            f"expected shape {expected.get(wrong)}, found {found.get(wrong)}"
        )
    if any(a.dtype == np.float64 for a in arrays.values()) and (
        jnp.result_type(float) != np.float64
    ):
        raise ModelFolderError(
            f"the model was fitted in float64 and JAX is set to float32; {ENABLE_X64}"
        )
    filled = iter(jnp.asarray(arrays[path]) for path, _ in _leaves(skeleton))
    return jax.tree.map(lambda leaf: next(filled) if _is_array(leaf) else leaf, skeleton)
