r"""What is handed to a fit: which rows train, which judge, and what their labels mean.

With K folds all rows do both: plain rows in random folds, `Windows` in contiguous blocks of time,
with an embargo on both sides of a block. Or a share is held out: of plain rows a random one, of
`Windows` the newest, behind an embargo, so that no history holds target rows of the other part:

    train  t_1 .. t_a    |  embargo: history + lead - 1 rows  |    validation  t_b .. t_N

Quantile edges that are not known yet are learned from the training windows; known ones stay.
Shapes: X (N, D) with named columns; labels and weights (N,) by task.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from numbers import Real
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd

from scrollmt import splits
from scrollmt._data import answers, edges, reading
from scrollmt._data import numbers as numbers_of
from scrollmt._data.answers import Plan
from scrollmt._data.frames import check_aligned, row_labels
from scrollmt._data.numbers import Number
from scrollmt._data.reading import Rows
from scrollmt._data.scaling import Scales
from scrollmt._io.arguments import is_whole, shown
from scrollmt._numerics.compiling import on_device
from scrollmt._scoring import references
from scrollmt._scoring.references import Past, Reference
from scrollmt.couplings import Groups
from scrollmt.heads import AbstractHead, Source
from scrollmt.objective import Data
from scrollmt.presets import HELD_OUT_SHARE
from scrollmt.splits import Folds
from scrollmt.streams import ArrayStream
from scrollmt.windows import Embargo, Recipe, Windows

MIN_ROWS_TO_SPLIT = 10
# Coverage of 90 percent intervals of the default preset on seven simple systems, by
# benchmarks/small_data.py: from 12 rows 0.89 to 0.91 on average over 20 seeds, but 0.50 in the
# worst fit; from 25 rows 0.88 to 0.94, worst 0.76; from 50 rows worst 0.84. With a fifth of the
# rows held out, the default of version 0.1 had 0.67 to 0.81 on average from 12 rows.
FEW_ROWS = 40
# An embargo that takes more than this share of the training windows costs more than folds win.
_EMBARGOED_SHARE = 0.5


class Handed(NamedTuple):
    """What `fit(X, Y, sample_weight)` would be given, and the recipe with its edges."""

    X: Any
    Y: Any
    sample_weight: Any
    validation: Any
    recipe: Recipe | None
    past: Past
    # The numbers behind events and bands, those that are no tasks with their values.
    sources: Mapping[str, Source]
    numbers: Mapping[str, Number]


@dataclass(frozen=True)
class Stored:
    """Standardised rows of a stream, in memory or in a file: `trained` that train, then others."""

    data: Data
    trained: int

    @property
    def train(self) -> ArrayStream:
        return ArrayStream(jax.tree.map(lambda a: a[: self.trained], self.data))

    @property
    def everything(self) -> ArrayStream:
        return ArrayStream(self.data)


@dataclass(frozen=True)
class Ready:
    """A training and a validation part, read and checked, with the scales of the former."""

    plan: Plan
    fitted: Rows
    judged: Rows
    scales: Scales
    names: list[str] | None
    recipe: Recipe | None
    past: Past
    # With folds, both parts are all rows.
    folds: Folds | None = None
    # All rows of a stream, of which `fitted` is a sample then.
    stored: Stored | None = None

    @property
    def sizes(self) -> tuple[int, int]:
        """Rows that train and that validate; with folds, those of one fold."""
        if self.folds is None:
            return len(self.fitted.x), len(self.judged.x)
        return self.folds.train.shape[1], self.folds.valid.shape[1]

    @property
    def heads(self) -> Mapping[str, AbstractHead]:
        """All heads that are trained."""
        return self.plan.heads

    @property
    def train(self) -> Data:
        return self.scales.data(self.fitted, self.heads, names=self.names)

    @property
    def valid(self) -> Data:
        return self.scales.data(self.judged, self.heads, what="validation ", names=self.names)

    @property
    def references(self) -> dict[str, Reference]:
        """What a forecast has to beat, learned from the training part."""
        rows = self.fitted.only(self.plan.answers)
        return references.learned(self.plan.tasks, rows, self.scales, self.past)

    @property
    def everything(self) -> Data:
        """Both parts, on the scales of the former."""
        both = jax.tree.map(lambda a, b: np.concatenate([a, b]), self.fitted, self.judged)
        return self.scales.data(both, self.heads, names=self.names)

    @property
    def nats(self) -> float:
        """What scaled targets take off the NLL, added over tasks: a density loses log s."""
        scales = self.scales.scale.items()
        return sum(math.log(s) for name, s in scales if self.judged.weights[name].any())

    def in_user_units(self, table: pd.DataFrame) -> pd.DataFrame:
        """Validation NLLs as densities of the user's targets, not of the scaled ones."""
        by_task = {}
        for name, weight in self.judged.weights.items():
            # A task without a validation label was not judged at all.
            shift = math.log(self.scales.scale.get(name, 1.0)) if weight.any() else math.nan
            by_task[f"{name}_nll"] = table[f"{name}_nll"] + shift
        return table.assign(validation_nll=table["validation_nll"] + self.nats, **by_task)


def ready(
    given: tuple[Any, Any, Any],
    validation: Any,
    heads: Mapping[str, AbstractHead],
    *,
    joint: Groups = (),
    seed: int,
    scale_targets: bool,
    recipe: Recipe | None,
    columns: list[str] | None = None,
    further_heads: bool = True,
    one_line: bool = False,
    usual: Callable[[int], float] = lambda rows: HELD_OUT_SHARE,
) -> Ready:
    """Read `(X, Y, sample_weight)`, or `(windows, None, sample_weight)`, and part it.

    Inputs with names come in the order of `columns`, where these are given. With folds and
    `further_heads` a task may have several answers, with `one_line` by heads of one latent line
    alone. `usual` takes the place of a validation that is
    None, given the number of rows.
    """
    handed = Handed(*given, validation, recipe, past={}, sources={}, numbers={})
    if isinstance(handed.X, Windows):
        handed = hand_over(*given, usual(len(handed.X)) if validation is None else validation)
    x, names = reading.read_inputs(handed.X)
    x, names = in_order(x, names, columns)
    check_aligned(handed.X, {"Y": handed.Y, "sample_weight": handed.sample_weight})
    rows = reading.read_rows(
        x, handed.Y, handed.sample_weight, heads, joint=joint, where=row_labels(handed.X)
    )
    if handed.validation is None:
        handed = handed._replace(validation=usual(len(x)))
    folds = _folds(handed.validation, len(x), seed)
    plan = answers.first_heads(heads)
    if folds is None:
        fitted, judged = parts(rows, handed.validation, names, heads, joint, seed)
    else:
        _warn_of_rare_classes(folds, rows)
        behind = handed.sources, handed.numbers
        if not isinstance(given[0], Windows):
            targets = reading.read_columns(handed.Y, heads, "Y")
            behind = numbers_of.of_table(targets, heads, len(x))
        coupled = {name for group in joint for name in group}
        if further_heads:
            plan, rows = answers.planned(heads, rows, *behind, coupled, one_line=one_line)
        fitted = judged = rows
    if len(fitted.x) < FEW_ROWS:
        warnings.warn(
            f"{len(fitted.x)} training rows are few: below {FEW_ROWS}, the intervals and "
            "probabilities of a single fit can be far too sure; widen them by judgement, or "
            "collect more rows",
            UserWarning,
            stacklevel=4,
        )
    reading.check_learnable(fitted.labels, fitted.weights, heads)
    for name, head in heads.items():
        count = int((fitted.weights[name] > 0).sum())
        if count < head.fewest_labels:
            warnings.warn(
                f"task {name!r}: {head!r} learns more parameters than {count} training labels "
                f"determine (at least {head.fewest_labels}); use a head with fewer parameters, "
                "such as Gaussian(), or collect more labels",
                UserWarning,
                stacklevel=4,
            )
    reading.check_validation(judged.weights)
    scales = Scales.of(fitted, plan.heads, scale_targets=scale_targets)
    return Ready(plan, fitted, judged, scales, names, handed.recipe, handed.past, folds)


def in_order(
    x: np.ndarray, names: list[str] | None, columns: list[str] | None
) -> tuple[np.ndarray, list[str] | None]:
    """Inputs with names in the order that the backbone needs, where it needs one."""
    if names is None or columns is None:
        return x, names
    if sorted(names) != sorted(columns):
        raise ValueError(
            f"the backbone reads windows with the inputs {columns}, and X has {names}; make "
            "its layout from the recipe of the windows that it is fitted on"
        )
    return x[:, [names.index(name) for name in columns]], columns


def is_folds(validation: Any) -> bool:
    """Whether `validation=` is a number of folds."""
    return is_whole(validation) and validation >= 2


def _folds(validation: Any, rows: int, seed: int) -> Folds | None:
    """The folds of plain rows, or those that windows were cut into; None with a held-out part."""
    if isinstance(validation, Folds) or not is_folds(validation):
        return validation if isinstance(validation, Folds) else None
    _check_enough(rows)
    return splits.k_folds(rows, min(int(validation), rows // 2), seed)


def _check_enough(rows: int) -> None:
    if rows < MIN_ROWS_TO_SPLIT:
        raise ValueError(
            f"n_samples={rows} windows are too few to hold some out for validation (at "
            f"least {MIN_ROWS_TO_SPLIT}); pass validation=(X, Y) or more windows"
        )


def _warn_of_rare_classes(folds: Folds, rows: Rows) -> None:
    """A class that some fold never trains on is held nearly impossible there."""
    for name, labels in rows.labels.items():
        if labels.dtype.kind != "i":
            continue
        seen = rows.weights[name] > 0
        known = set(labels[seen].tolist())
        for part in folds.train:
            missing = known - set(labels[part][seen[part]].tolist())
            if missing:
                rare = min(missing)
                count = int((labels[seen] == rare).sum())
                warnings.warn(
                    f"task {name!r}: class {rare} has {count} labels, all in one of {len(folds)} "
                    "folds, whose runs never saw it; collect more labels of it, merge it with "
                    "another class, or use fewer folds",
                    UserWarning,
                    stacklevel=5,
                )
                break


def parts(
    rows: Rows,
    given: Any,
    names: list[str] | None,
    heads: Mapping[str, AbstractHead],
    joint: Groups,
    seed: int,
) -> tuple[Rows, Rows]:
    """The training and the validation rows."""
    if isinstance(given, Windows):
        given = given.X_frame(), given.Y
    if isinstance(given, (tuple, list)) and len(given) in (2, 3):
        values, found = reading.read_inputs(given[0], "validation X")
        values = reading.check_columns(values, found, rows.x.shape[1], names, "validation X")
        weight = given[2] if len(given) == 3 else None
        check_aligned(given[0], {"validation Y": given[1], "validation sample_weight": weight})
        judged = reading.read_rows(
            values,
            given[1],
            weight,
            heads,
            what="validation ",
            joint=joint,
            where=row_labels(given[0]),
        )
        return rows, judged
    if not isinstance(given, Real) or not 0.0 < float(given) < 1.0:
        raise ValueError(
            "validation must be a number of folds from 2 on, a share between 0 and 1, a pair "
            f"(X, Y), a triple (X, Y, sample_weight) or Windows, got {shown(given)}"
        )
    _check_enough(len(rows.x))
    return reading.hold_out(rows, float(given), seed)


def in_current_precision(tree: Any) -> Any:
    """Heads and modules may be older than the user's choice of precision; the fit is not."""

    def cast(leaf: Any) -> Any:
        if eqx.is_inexact_array(leaf) and jnp.issubdtype(leaf.dtype, jnp.floating):
            return on_device(leaf)
        return leaf

    return jax.tree.map(cast, tree)


def hand_over(windows: Windows, Y: Any, sample_weight: Any, validation: Any) -> Handed:
    """Windows, and how to validate on them, as plain inputs and labels."""
    if Y is not None:
        raise ValueError("Windows hold their labels; call fit(windows) without Y")
    check_aligned(windows.t, {"sample_weight": sample_weight})
    weight = reading.read_weights(sample_weight, windows.tasks, len(windows))
    if is_folds(validation):
        validation = block_folds(windows, int(validation))
    train = held_out = np.arange(len(windows))
    if isinstance(validation, Real):
        train, held_out = newest_held_out(windows, float(validation))
    recipe = edges.with_edges(windows.take(train)).recipe
    if isinstance(validation, Real):
        judges = edges.labelled(windows.take(held_out), recipe)
        judges_weight = {task: values[held_out] for task, values in weight.items()}
        validation = judges.X_frame(), judges.Y, judges_weight
    elif isinstance(validation, Windows):
        judges = edges.labelled(validation, recipe)
        validation = judges.X_frame(), judges.Y
    part = edges.labelled(windows.take(train), recipe)
    weight = {task: values[train] for task, values in weight.items()}
    behind = numbers_of.of_windows(part)
    return Handed(part.X_frame(), part.Y, weight, validation, recipe, part.past_labels, *behind)


def block_folds(windows: Windows, folds: int, embargo: Embargo = "auto") -> Folds | float:
    """Contiguous folds; a share to hold out where the embargo would take most of the windows."""
    _check_enough(len(windows))
    try:
        cut = windows.block_folds(folds, embargo=embargo)
    except ValueError:
        cut = None
    left = 0 if cut is None else cut.train.shape[1]
    if cut is None or left < _EMBARGOED_SHARE * (len(windows) - -(-len(windows) // folds)):
        warnings.warn(
            f"{folds} folds of {len(windows)} windows with an embargo on both sides leave {left} "
            f"to train on; the newest {HELD_OUT_SHARE:.0%} are held out instead",
            UserWarning,
            stacklevel=6,
        )
        return HELD_OUT_SHARE
    return cut


def newest_held_out(windows: Windows, share: float) -> tuple[np.ndarray, np.ndarray]:
    """Rows that train, and the newest ``share`` that judges them, with an embargo between."""
    if not 0.0 < share < 1.0:
        raise ValueError(f"validation must be a share between 0 and 1, got {share}")
    split = windows.chronological_split((1.0 - share, share, 0.0), embargo="auto")
    return split.train, split.valid
