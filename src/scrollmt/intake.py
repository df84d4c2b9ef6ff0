"""The boundary: what users hand over, checked and turned into arrays.

Inputs `X` become a float64 matrix `(N, D)` with column names; targets `Y` become, by task,
labels and a mask of which are observed; weights become, by task, `(N,)`. Whatever does
not fit is a `ValueError` that names the column or task, both shapes and what to try.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np
import pandas as pd

from scrollmt.heads import AbstractHead, AbstractProbit, Categorical, Gaussian
from scrollmt.objective import Data


def read_inputs(X: Any, what: str = "X") -> tuple[np.ndarray, list[str] | None]:
    """`X` as finite float64 `(N, D)`, and its column names where it has them."""
    names = None
    if isinstance(X, pd.DataFrame):
        names = [str(c) for c in X.columns]
        for name, column in zip(names, X.columns, strict=True):
            if not pd.api.types.is_numeric_dtype(X[column].dtype):
                raise ValueError(
                    f"{what}: column {name!r} has dtype {X[column].dtype}, expected numbers; "
                    "encode it (one-hot, ordinal) or leave it out"
                )
        values = X.to_numpy(dtype=np.float64, na_value=np.nan)
    else:
        try:
            values = np.asarray(X, dtype=np.float64)
        except (TypeError, ValueError) as error:
            raise ValueError(f"{what} is not an array of numbers: {error}") from None
    if values.ndim != 2:
        raise ValueError(
            f"{what} has shape {values.shape}, expected (N, D); "
            "reshape(-1, 1) for one feature, reshape(1, -1) for one window"
        )
    if values.shape[0] == 0 or values.shape[1] == 0:
        raise ValueError(f"{what} has shape {values.shape}: no windows or no columns to learn from")
    bad = ~np.isfinite(values)
    if bad.any():
        row, col = (int(i) for i in np.argwhere(bad)[0])
        column = repr(names[col]) if names else str(col)
        raise ValueError(
            f"{what}: column {column} is {values[row, col]} at row {row} ({int(bad.sum())} such "
            "values in all); impute or drop those rows (labels may be missing, inputs may not)"
        )
    return values, names


def check_columns(
    values: np.ndarray, names: list[str] | None, expected: int, expected_names: list[str] | None
) -> np.ndarray:
    """The columns of new inputs in the order of the fit; by name where both have names."""
    if names is not None and expected_names is not None and names != expected_names:
        missing = [n for n in expected_names if n not in names]
        unknown = [n for n in names if n not in expected_names]
        if missing or unknown:
            raise ValueError(
                f"X has other columns than at the fit: missing {missing}, unknown {unknown}"
            )
        values = values[:, [names.index(n) for n in expected_names]]
    if values.shape[1] != expected:
        raise ValueError(
            f"X has shape {values.shape}, but the model was fitted on {expected} columns"
        )
    return values


def read_targets(
    Y: Any, heads: Mapping[str, AbstractHead], rows: int, *, what: str = "Y"
) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Labels by task, harmless where missing, and which of them are observed."""
    if isinstance(Y, pd.DataFrame):
        columns = {str(c): Y[c].to_numpy() for c in Y.columns}
    elif isinstance(Y, Mapping):
        columns = dict(Y)
    elif len(heads) == 1 and np.ndim(Y) == 1:
        columns = {next(iter(heads)): Y}
    else:
        raise ValueError(
            f"{what} is a {type(Y).__name__}; expected a mapping or DataFrame with one entry "
            f"for each of the tasks {list(heads)}"
        )
    missing = [n for n in heads if n not in columns]
    unknown = [n for n in columns if n not in heads]
    if missing or unknown:
        raise ValueError(
            f"{what} does not match the tasks {list(heads)}: missing {missing}, unknown {unknown}; "
            "name each target after its task"
        )
    labels, seen = {}, {}
    for name, head in heads.items():
        values = np.asarray(columns[name])
        if values.shape != (rows,):
            raise ValueError(
                f"task {name!r}: labels have shape {values.shape}, but X has {rows} rows, "
                f"so ({rows},) is expected; one label a window, NaN where it is missing"
            )
        labels[name], seen[name] = head.read_labels(name, values)
    return labels, seen


def read_weights(
    sample_weight: Any, tasks: list[str], rows: int, *, what: str = "sample_weight"
) -> dict[str, np.ndarray]:
    """One weight a window and task: from nothing, one array, or one array a task."""
    if sample_weight is None:
        return {name: np.ones(rows) for name in tasks}
    if isinstance(sample_weight, pd.DataFrame):
        sample_weight = {str(c): sample_weight[c].to_numpy() for c in sample_weight.columns}
    if not isinstance(sample_weight, Mapping):
        sample_weight = dict.fromkeys(tasks, sample_weight)
    unknown = [n for n in sample_weight if n not in tasks]
    if unknown:
        raise ValueError(f"{what} names unknown tasks {unknown}; the tasks are {tasks}")
    weights = {}
    for name in tasks:
        value = np.asarray(sample_weight.get(name, np.ones(rows)), dtype=np.float64)
        if value.shape != (rows,):
            raise ValueError(
                f"{what} of task {name!r} has shape {value.shape}, expected ({rows},); "
                "pass one array for all tasks or a mapping with one array a task"
            )
        if not np.isfinite(value).all() or (value < 0).any():
            raise ValueError(f"{what} of task {name!r} must be finite and not negative")
        weights[name] = value
    return weights


def check_learnable(
    labels: Mapping[str, np.ndarray],
    weights: Mapping[str, np.ndarray],
    heads: Mapping[str, AbstractHead],
) -> None:
    """Every task has something to learn from in the training part."""
    for name, head in heads.items():
        seen = labels[name][weights[name] > 0]
        if seen.size == 0:
            raise ValueError(f"task {name!r} has no observed label in the training part")
        if np.ptp(seen) > 0:
            continue
        if isinstance(head, (AbstractProbit, Categorical)):
            raise ValueError(
                f"task {name!r} shows only class {int(seen[0])} in the training part "
                f"({seen.size} labels): at least two classes are needed to learn a boundary"
            )
        if isinstance(head, Gaussian):
            raise ValueError(
                f"task {name!r} is constant ({seen[0]:g}) in the training part: there is "
                "nothing to forecast, and no scale to learn; leave the task out"
            )


@dataclass(frozen=True)
class Scales:
    """Training-set statistics: inputs are standardised, Gaussian targets shifted and scaled."""

    x_mean: np.ndarray
    x_sd: np.ndarray
    offset: dict[str, float]
    scale: dict[str, float]

    @classmethod
    def of(
        cls,
        x: np.ndarray,
        labels: Mapping[str, np.ndarray],
        weights: Mapping[str, np.ndarray],
        heads: Mapping[str, AbstractHead],
        *,
        scale_targets: bool,
    ) -> Scales:
        """Weighted, so that a row of weight two counts as that row twice."""
        row_weight = np.mean([weights[name] for name in heads], axis=0)
        mean, sd = _moments(x, row_weight)
        offset, scale = {}, {}
        for name, head in heads.items():
            if isinstance(head, Gaussian):
                centre, spread = _moments(labels[name], weights[name])
                offset[name] = float(centre)
                scale[name] = float(spread) if scale_targets else 1.0
        # A constant column carries no information; it becomes zero, not NaN.
        return cls(mean, np.where(sd > 0, sd, 1.0), offset, scale)

    def inputs(self, x: np.ndarray) -> np.ndarray:
        return (x - self.x_mean) / self.x_sd

    def data(
        self,
        x: np.ndarray,
        labels: Mapping[str, np.ndarray],
        weights: Mapping[str, np.ndarray],
    ) -> Data:
        """Standardised arrays in JAX's current precision, as the objective wants them."""
        dtype = jnp.result_type(float)
        y = {}
        for name, values in labels.items():
            if name in self.offset:
                scaled = (values - self.offset[name]) / self.scale[name]
                y[name] = jnp.asarray(np.where(weights[name] > 0, scaled, 0.0), dtype)
            else:
                y[name] = jnp.asarray(values)
        return Data(
            jnp.asarray(self.inputs(x), dtype),
            y,
            {name: jnp.asarray(w, dtype) for name, w in weights.items()},
        )


def _moments(values: np.ndarray, weight: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Weighted mean and sd over the first axis; rows of weight zero do not count."""
    kept = weight > 0
    values, weight = values[kept], weight[kept]
    mean = np.average(values, axis=0, weights=weight)
    return mean, np.sqrt(np.average((values - mean) ** 2, axis=0, weights=weight))
