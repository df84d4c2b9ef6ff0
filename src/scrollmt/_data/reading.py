"""The boundary: what users hand over, checked and turned into arrays.

Inputs `X` become a float64 matrix `(N, D)` with column names; targets `Y` become, by task,
labels and a mask of which are observed; weights become, by task, `(N,)`. Whatever does
not fit is a `ValueError` that names the column or task, both shapes and what to try.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import jax
import numpy as np
import pandas as pd
from scipy.sparse import issparse

from scrollmt._data import frames, numbers
from scrollmt._numerics.weighted import is_constant
from scrollmt.couplings import Groups
from scrollmt.heads import AbstractHead
from scrollmt.laws import real_labels
from scrollmt.windows import Windows

# Standardised values and weights up to here: their squares, added up, still fit a float32.
FARTHEST = 1e12


class Rows(NamedTuple):
    """Windows as read: inputs, labels with a fill value where missing, weights zero there.

    `where` are the numbers of the rows as they were given, or their labels in an index.
    """

    x: np.ndarray
    labels: dict[str, np.ndarray]
    weights: dict[str, np.ndarray]
    where: np.ndarray

    def only(self, names: Iterable[str]) -> Rows:
        """The labels and weights of some tasks."""
        kept = list(names)
        labels, weights = ({n: of[n] for n in kept} for of in (self.labels, self.weights))
        return self._replace(labels=labels, weights=weights)

    def take(self, index: np.ndarray) -> Rows:
        taken: Rows = jax.tree.map(lambda a: a[index], self)
        return taken


def _numbers(values: Any, what: str) -> np.ndarray:
    array = frames.as_array(values, what)
    return real_labels(array.ravel(), array.size, what).reshape(array.shape)


def _names(table: pd.DataFrame, what: str) -> list[str]:
    names = [str(c) for c in table.columns]
    repeated = sorted({n for n in names if names.count(n) > 1})
    if repeated:
        raise ValueError(f"{what}: column names {repeated} are used more than once; rename them")
    return names


def _by_name(table: pd.DataFrame, what: str) -> dict[str, pd.Series]:
    return {n: table[c] for n, c in zip(_names(table, what), table.columns, strict=True)}


def _from_columns(columns: Mapping[Any, Any], what: str) -> pd.DataFrame:
    """A table from arrays by name."""
    arrays = {
        name: frames.as_array(values, f"{what}[{name!r}]") for name, values in columns.items()
    }
    shapes = {name: array.shape for name, array in arrays.items()}
    if len(set(shapes.values())) > 1 or any(len(shape) != 1 for shape in shapes.values()):
        raise ValueError(
            f"{what} is a mapping whose columns have the shapes {shapes}; expected one array (N,) "
            "a column, all of one length"
        )
    return pd.DataFrame(arrays)


def read_inputs(X: Any, what: str = "X") -> tuple[np.ndarray, list[str] | None]:
    """`X` as finite float64 `(N, D)`, and its column names where it has them."""
    if isinstance(X, Windows):
        X = X.X_frame()
    if issparse(X):
        raise ValueError(
            f"{what} is a {type(X).__name__}: sparse input is not supported; pass an array (N, D), "
            f"such as {what}.toarray()"
        )
    X = frames.as_table(X, what)
    if isinstance(X, Mapping):
        X = _from_columns(X, what)
    names = None
    if isinstance(X, pd.DataFrame):
        names = _names(X, what)
        for name, dtype in zip(names, X.dtypes, strict=True):
            if not pd.api.types.is_numeric_dtype(dtype) or pd.api.types.is_complex_dtype(dtype):
                raise ValueError(
                    f"{what}: column {name!r} has dtype {dtype}, expected real numbers; "
                    "convert it (astype, one-hot, ordinal) or leave it out"
                )
        values = X.to_numpy(dtype=np.float64, na_value=np.nan)
    else:
        array = frames.as_array(X, what)
        if array.ndim == 0:
            raise ValueError(
                f"{what} is a {type(X).__name__}; expected an array or DataFrame of shape (N, D)"
            )
        if array.dtype.kind == "c":
            raise ValueError(
                f"{what}: Complex data not supported (dtype {array.dtype}); give the real and the "
                "imaginary part a column each"
            )
        values = _numbers(array, what)
    if values.ndim != 2:
        raise ValueError(
            f"{what} has shape {values.shape}, expected (N, D). Reshape your data: "
            "reshape(-1, 1) for one feature, reshape(1, -1) for one window"
        )
    for axis, (none, kind) in enumerate((("windows", "sample"), ("columns", "feature"))):
        if values.shape[axis] == 0:
            raise ValueError(
                f"{what} has no {none}: 0 {kind}(s) (shape={values.shape}) while a minimum of 1 "
                "is required."
            )
    bad = ~np.isfinite(values)
    if bad.any():
        row, col = (int(i) for i in np.argwhere(bad)[0])
        column = repr(names[col]) if names else str(col)
        shown = "NaN" if np.isnan(values[row, col]) else values[row, col]
        raise ValueError(
            f"{what}: column {column} is {shown} at row {row} ({int(bad.sum())} such "
            "values in all); impute or drop those rows (labels may be missing, inputs may not)"
        )
    return values, names


def check_columns(
    values: np.ndarray,
    names: list[str] | None,
    expected: int,
    expected_names: list[str] | None,
    what: str = "X",
) -> np.ndarray:
    """The columns of new inputs in the order of the fit; by name where both have names."""
    if names is not None and expected_names is not None and names != expected_names:
        missing = [n for n in expected_names if n not in names]
        unknown = [n for n in names if n not in expected_names]
        if missing or unknown:
            raise ValueError(
                f"{what} has other columns than at the fit: missing {missing}, unknown {unknown}"
            )
        values = values[:, [names.index(n) for n in expected_names]]
    if values.shape[1] != expected:
        raise ValueError(
            f"{what} has {values.shape[1]} features, but Forecaster is expecting {expected} "
            f"features as input: {what} has shape {values.shape}, and (N, {expected}) is expected"
        )
    return values


def read_targets(
    Y: Any, heads: Mapping[str, AbstractHead], rows: int, *, what: str = "Y"
) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Labels by task, with a fill value where missing, and which of them are observed.

    Labels of a task that is asked of a number come from that number, where it is given.
    """
    columns = numbers.with_labels(read_columns(Y, heads, what), heads, rows, what)
    missing = [n for n in heads if n not in columns]
    known = {*heads, *(head.asked_of.of for head in heads.values() if head.asked_of is not None)}
    unknown = [n for n in columns if n not in known]
    if missing or unknown:
        raise ValueError(
            f"{what} does not match the tasks {list(heads)}: missing {missing}, unknown {unknown}; "
            "name each target after its task"
        )
    labels, seen = {}, {}
    for name, head in heads.items():
        values = frames.as_array(columns[name], f"{what}: task {name!r}")
        if values.shape != (rows,) and not (head.takes_bounds and values.shape == (rows, 2)):
            raise ValueError(
                f"{what}: task {name!r} has labels of shape {values.shape}, but X has {rows} rows, "
                f"so ({rows},) is expected; one label a window, NaN where it is missing"
            )
        try:
            labels[name], seen[name] = head.read_labels(name, values)
        except ValueError as error:
            raise ValueError(f"{what}: {error}") from None
    return labels, seen


def read_columns(Y: Any, heads: Mapping[str, AbstractHead], what: str) -> dict[str, Any]:
    """Targets by name."""
    if Y is None:
        raise ValueError(
            f"Forecaster requires y to be passed, but the target y is None: give {what}, a mapping "
            f"or DataFrame with one entry for each of the tasks {list(heads)}"
        )
    if not isinstance(Y, Mapping):
        Y = frames.as_table(Y, what)
    if isinstance(Y, pd.DataFrame):
        return dict(_by_name(Y, what))
    if isinstance(Y, Mapping):
        return dict(Y)
    if len(heads) == 1 and frames.as_array(Y, what).ndim == 1:
        return {next(iter(heads)): Y}
    raise ValueError(
        f"{what} is a {type(Y).__name__}; expected a mapping or DataFrame with one entry "
        f"for each of the tasks {list(heads)}"
    )


def read_weights(
    sample_weight: Any, tasks: list[str], rows: int, *, what: str = "sample_weight"
) -> dict[str, np.ndarray]:
    """One weight a window and task: from nothing, one array, or one array a task.

    A task that a mapping leaves out has weight one throughout.
    """
    if sample_weight is None:
        return {name: np.ones(rows) for name in tasks}
    sample_weight = frames.as_table(sample_weight, what)
    if isinstance(sample_weight, pd.DataFrame):
        if sample_weight.shape[1] == 0:
            raise ValueError(
                f"{what} is a table without columns (shape {sample_weight.shape}); give it one "
                f"column for each of the tasks {tasks}, or leave it out"
            )
        sample_weight = _by_name(sample_weight, what)
    if not isinstance(sample_weight, Mapping):
        sample_weight = dict.fromkeys(tasks, sample_weight)
    unknown = [n for n in sample_weight if n not in tasks]
    if unknown:
        raise ValueError(f"{what} names unknown tasks {unknown}; the tasks are {tasks}")
    weights = {}
    for name in tasks:
        value = _numbers(sample_weight.get(name, np.ones(rows)), f"{what} of task {name!r}")
        if value.shape != (rows,):
            raise ValueError(
                f"{what} of task {name!r} has shape {value.shape}, expected ({rows},); "
                "pass one array for all tasks or a mapping with one array a task"
            )
        bad = ~((value == 0.0) | ((value >= 1.0 / FARTHEST) & (value <= FARTHEST)))
        if bad.any():
            row = int(np.flatnonzero(bad)[0])
            raise ValueError(
                f"{what} of task {name!r} is {value[row]:g} at row {row}; a weight is zero or "
                f"lies between {1.0 / FARTHEST:g} and {FARTHEST:g}"
            )
        weights[name] = value
    return weights


def read_rows(
    x: np.ndarray,
    Y: Any,
    sample_weight: Any,
    heads: Mapping[str, AbstractHead],
    *,
    what: str = "",
    joint: Groups = (),
    where: pd.Index | None = None,
) -> Rows:
    """Targets and weights that belong to inputs already read."""
    labels, seen = read_targets(Y, heads, len(x), what=f"{what}Y")
    given = read_weights(sample_weight, list(heads), len(x), what=f"{what}sample_weight")
    weights = {name: given[name] * seen[name] for name in heads}
    for first, *others in joint:
        for name in others:
            # A label of weight zero is as good as missing, and may stand beside any other.
            pair = weights[first], weights[name]
            bad = (pair[0] != pair[1]) & (pair[0] > 0) & (pair[1] > 0)
            if bad.any():
                row = int(np.flatnonzero(bad)[0])
                raise ValueError(
                    f"{what}sample_weight of the joint tasks {first!r} and {name!r} is "
                    f"{pair[0][row]:g} and {pair[1][row]:g} at row {row}; labels that are scored "
                    "jointly have one weight a row: give these tasks the same array"
                )
    return Rows(x, labels, weights, np.asarray(range(len(x)) if where is None else where))


def hold_out(rows: Rows, share: float, seed: int) -> tuple[Rows, Rows]:
    """Training and validation rows: a random share of the windows is held out."""
    count = len(rows.x)
    held_out = min(max(1, round(share * count)), count - 1)
    order = np.random.default_rng(seed).permutation(count)
    return rows.take(np.sort(order[held_out:])), rows.take(np.sort(order[:held_out]))


def check_learnable(
    labels: Mapping[str, np.ndarray],
    weights: Mapping[str, np.ndarray],
    heads: Mapping[str, AbstractHead],
) -> None:
    """Every task has something to learn from in the training part."""
    for name, head in heads.items():
        seen = labels[name][weights[name] > 0]
        if seen.size == 0:
            raise ValueError(
                f"task {name!r} has no observed label of positive weight in the training part: "
                f"in all of its {len(labels[name])} windows the label is missing or the weight "
                "zero; leave the task out"
            )
        # Bounds of censored labels come in pairs, which may be infinite.
        if not (is_constant(seen) if seen.ndim == 1 else (seen == seen[0]).all()):
            continue
        if head.num_classes is not None:
            raise ValueError(
                f"task {name!r} shows only class {int(seen[0])} in the training part "
                f"({seen.size} labels): at least two classes are needed to learn a boundary; "
                "leave the task out or fit on windows that show more classes"
            )
        shown = f"{seen[0]:g}" if seen.ndim == 1 else f"all beyond one limit, {seen[0]}"
        raise ValueError(
            f"task {name!r} is constant ({shown}) in the training part "
            f"({len(seen)} labels): there is nothing to forecast, and no scale to learn; "
            "leave the task out"
        )


def check_validation(weights: Mapping[str, np.ndarray]) -> None:
    """Validation has at least one label."""
    unlabelled = [name for name, weight in weights.items() if not (weight > 0).any()]
    if len(unlabelled) == len(weights):
        raise ValueError(
            "the validation part has no observed label of positive weight for any task, so "
            "nothing can say when to stop; pass validation=(X, Y) with labels"
        )
    if unlabelled:
        warnings.warn(
            f"the validation part has no label for the tasks {unlabelled}: early stopping and the "
            "choice of the backbone ignore them",
            UserWarning,
            stacklevel=5,
        )
