r"""Units of training: inputs and targets by the training part, and how far from it inputs lie.

$$z_j = (x_j - \text{mean}_j) / \text{sd}_j, \qquad
  d_j = \max(\text{low}_j - x_j,\; x_j - \text{high}_j,\; 0) / (\text{high}_j - \text{low}_j)$$

The distance d is that from the training range, in widths of that range: it does not change with
units, and is zero inside. Shapes: inputs `(N, D)`.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Array, Float

from scrollmt._data.reading import FARTHEST, Rows
from scrollmt._numerics.compiling import on_device
from scrollmt._numerics.weighted import weighted_moments
from scrollmt.heads import AbstractHead
from scrollmt.laws.base import FAR_OUT
from scrollmt.objective import Data

# Without division by the sd, a target this far from unit sd is beyond the fixed learning rate.
UNSCALED_SD = (1e-3, 1e3)
_COLUMNS_SHOWN = 3


@dataclass(frozen=True)
class Scales:
    """Training-set statistics: inputs are standardised, targets shifted and scaled where their
    head has units.

    A constant input column has sd zero and is ignored, then and later: nothing was learned
    about what a change in it means.
    """

    x_mean: np.ndarray
    x_sd: np.ndarray
    offset: dict[str, float]
    scale: dict[str, float]
    # The training range of each input; a model of version 0.1 did not store it.
    x_low: np.ndarray | None = None
    x_high: np.ndarray | None = None

    @classmethod
    def of(cls, rows: Rows, heads: Mapping[str, AbstractHead], *, scale_targets: bool) -> Scales:
        """Weighted, so that a row of weight two counts as that row twice."""
        weight = np.mean([rows.weights[name] for name in heads], axis=0)
        mean, sd = weighted_moments(rows.x, weight)
        counted = rows.x[weight > 0]
        units = {n: h.target_scale(rows.labels[n], rows.weights[n]) for n, h in heads.items()}
        low, high = counted.min(axis=0), counted.max(axis=0)
        return cls.summarised((mean, sd, low, high), units, scale_targets=scale_targets)

    @classmethod
    def summarised(
        cls,
        inputs: tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray],
        units: Mapping[str, tuple[float, float] | None],
        *,
        scale_targets: bool,
    ) -> Scales:
        """From mean, sd, lowest and highest value of the inputs, and the targets' own units."""
        mean, sd, x_low, x_high = inputs
        offset, scale = {}, {}
        for name, given in units.items():
            if given is None:
                continue
            centre, spread = given
            if not 1e-150 < spread < 1e150:
                raise ValueError(
                    f"task {name!r} has sd {spread:g} in the training part, whose square does "
                    "not fit a float; change its units"
                )
            low, high = UNSCALED_SD
            if not scale_targets and not low <= spread <= high:
                warnings.warn(
                    f"task {name!r} has sd {spread:.3g}, and this preset fits targets as they "
                    "are, with steps made for an sd near one: expect a poor fit; use "
                    "preset='default', which divides targets by their sd, or change the units",
                    UserWarning,
                    stacklevel=6,
                )
            offset[name] = centre
            scale[name] = spread if scale_targets else 1.0
        return cls(mean, sd, offset, scale, x_low, x_high)

    def inputs(
        self, x: np.ndarray, *, what: str = "X", names: Sequence[str] | None = None
    ) -> np.ndarray:
        """Standardised inputs, all of them within what the arithmetic can hold."""
        varies = self.x_sd > 0
        with np.errstate(over="ignore"):
            z = np.where(varies, (x - self.x_mean) / np.where(varies, self.x_sd, 1.0), 0.0)
        bad = ~(np.abs(z) <= FARTHEST)
        if bad.any():
            row, col = (int(i) for i in np.argwhere(bad)[0])
            raise ValueError(
                f"{what}: column {repr(names[col]) if names else col} is {x[row, col]:g} at row "
                f"{row}, but had mean {self.x_mean[col]:g} and sd {self.x_sd[col]:g} in the "
                "training part; that far out there is no forecast, check its units"
            )
        return z

    def distance(self, x: np.ndarray) -> np.ndarray:
        """How far each input lies outside the training range, in widths of that range, (N, D).

        Infinite for another value of a column that was constant in training.
        """
        if self.x_low is None or self.x_high is None:
            return np.zeros(x.shape)
        outside = np.maximum(np.maximum(self.x_low - x, x - self.x_high), 0.0)
        # Up to rounding, a constant column is still the constant that it was.
        same = outside <= 1e-9 * np.maximum(np.abs(self.x_low), np.abs(self.x_high))
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(same, 0.0, outside / (self.x_high - self.x_low))

    def extrapolation(self, x: Float[np.ndarray, "N D"]) -> Float[np.ndarray, " N"] | None:
        """How far each row lies outside the training range: the largest distance of its inputs.

        A row inside the range of every input is at 0, even where no training row is near it.
        None where the range is not known.
        """
        return None if self.x_low is None else np.max(self.distance(x), axis=1, initial=0.0)

    def far_out(self, x: np.ndarray, names: Sequence[str] | None = None) -> str | None:
        """A sentence on inputs far outside the training range; None where there are none."""
        far = self.distance(x) > FAR_OUT
        if self.x_low is None or self.x_high is None or not far.any():
            return None
        said = []
        for col in np.flatnonzero(far.any(axis=0)).tolist():
            rows = np.flatnonzero(far[:, col])
            worst = x[rows[np.argmax(np.abs(x[rows, col] - self.x_mean[col]))], col]
            low, high = self.x_low[col], self.x_high[col]
            then = (
                f"was always {low:g} in training and is ignored"
                if self.x_sd[col] == 0
                else f"lay between {low:g} and {high:g} in training"
            )
            name = repr(str(names[col])) if names is not None else str(col)
            said.append(f"column {name} is {worst:g} (row {rows[0]}, {len(rows)} rows) and {then}")
        more = len(said) - _COLUMNS_SHOWN
        shown = "; ".join(said[:_COLUMNS_SHOWN]) + (
            f"; and {more} more columns" if more > 0 else ""
        )
        return f"far outside the training data: {shown}; forecasts there are guesses"

    def data(
        self,
        rows: Rows,
        heads: Mapping[str, AbstractHead],
        *,
        what: str = "",
        names: Sequence[str] | None = None,
    ) -> Data:
        """Standardised arrays in JAX's current precision, as the objective wants them."""
        return Data(
            on_device(self.inputs(rows.x, what=f"{what}X", names=names)),
            self.targets(rows, heads, what=what),
            {name: on_device(w) for name, w in rows.weights.items()},
        )

    def targets(
        self, rows: Rows, heads: Mapping[str, AbstractHead], *, what: str = ""
    ) -> dict[str, Array]:
        """Labels in the units that their heads are fitted in."""
        y = {}
        for name, values in rows.labels.items():
            if name in self.offset:
                kept = (rows.weights[name] > 0).reshape(-1, *(1,) * (values.ndim - 1))
                scaled = (values - self.offset[name]) / self.scale[name]
                # In the head's own units too, what stands for a missing label is the head's choice.
                scaled = np.where(kept, scaled, heads[name].missing_fill)
                # An infinite bound says that there is none on that side.
                bad = np.isfinite(values) & ~(np.abs(scaled) <= FARTHEST)
                if bad.any():
                    at = tuple(np.argwhere(bad)[np.argmax(np.abs(scaled[bad]))])
                    raise ValueError(
                        f"{what}Y: task {name!r} is {values[at]:g} at row {at[0]}, but had mean "
                        f"{self.offset[name]:g} in the training part, where its unit is "
                        f"{self.scale[name]:g}; check its units, or use preset='default', which "
                        "divides targets by their sd"
                    )
                y[name] = on_device(scaled)
            else:
                y[name] = on_device(values, values.dtype)
        return y
