r"""Laws of several tasks at once: the joint law of Gaussian tasks, and laws by task that give it.

    y_n ~ N(m_n, V_n),    V_n = Sigma_obs + diag(psi_n' Sigma_1 psi_n, .., psi_n' Sigma_J psi_n)

over J tasks, so that the law of any one of them is N(m_nj, V_njj). By the chain rule

    log p(y_n) = sum_j log p(y_nj | y_n1 .. y_n,j-1)

A label that is missing is integrated out: a row scores the labels that it has. An ensemble
(``mix``) keeps the first two moments, m = mean_k m_k and V = mean_k V_k + cov_k m_k.

Shapes: ``mean`` (N, J), ``cov`` (N, J, J), in NumPy float64; the columns stand in the order of
``names``.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Self, TypeGuard, final

import jax
import numpy as np
import pandas as pd
from jaxtyping import Float, PRNGKeyArray

from scrollmt._data.frames import dataset, index_of
from scrollmt.laws import (
    DiscreteLaw,
    GaussianLaw,
    Law,
    MemberWeights,
    NumberLaw,
    Numbers,
    RealLaw,
    averaged,
    real_labels,
)
from scrollmt.laws.base import FAR_OUT

QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
# Entries (i, j) and (j, i) that were computed apart differ by rounding, not by more than this.
SYMMETRY_TOLERANCE = 1e-9

Vector = Float[np.ndarray, " N"]
Matrix = Float[np.ndarray, "N J"]
Matrices = Float[np.ndarray, "N J J"]


@final
@dataclass(frozen=True, eq=False, repr=False, init=False)
class JointLaw(Law):
    """y_n ~ N(mean_n, cov_n) over the tasks ``names``."""

    _answers: ClassVar[str] = "law.mean, law.cov"
    names: tuple[str, ...]
    mean: Matrix
    cov: Matrices

    def __init__(self, names: Iterable[str], mean: Numbers, cov: Numbers) -> None:
        tasks = tuple(names)
        m, v = np.array(mean, np.float64), np.array(cov, np.float64)
        size = len(tasks)
        if m.ndim != 2 or m.shape[1] != size or v.shape != (*m.shape, size):
            raise ValueError(
                f"JointLaw of {size} tasks: mean has shape {m.shape}, cov has shape {v.shape}, "
                f"need (N, {size}) and (N, {size}, {size})"
            )
        good = np.isfinite(m).all(axis=1) & np.isfinite(v).all(axis=(1, 2))
        good &= (np.diagonal(v, axis1=1, axis2=2) > 0.0).all(axis=1)
        with np.errstate(invalid="ignore"):  # an infinite entry was found above
            apart = np.abs(v - v.swapaxes(1, 2)).max(axis=(1, 2), initial=0.0)
        good &= apart <= SYMMETRY_TOLERANCE * np.abs(v).max(axis=(1, 2), initial=0.0)
        if not good.all():
            row = int(np.flatnonzero(~good)[0])
            raise ValueError(
                "JointLaw: need finite means and a finite symmetric cov with a positive diagonal, "
                f"row {row} has mean {m[row].tolist()}, cov {v[row].tolist()}"
            )
        for array in (m, v):
            array.setflags(write=False)
        object.__setattr__(self, "names", tasks)
        object.__setattr__(self, "mean", m)
        object.__setattr__(self, "cov", v)

    def __len__(self) -> int:
        return len(self.mean)

    def _rows(self, rows: np.ndarray) -> Self:
        return type(self)(self.names, self.mean[rows], self.cov[rows])

    @classmethod
    def _mix(cls, laws: Sequence[Any], weights: MemberWeights | None) -> Self:
        orders = {law.names for law in laws}
        if len(orders) > 1:
            raise ValueError(f"mix: the joint laws are over different tasks: {sorted(orders)}")
        mean = averaged([law.mean for law in laws], weights)
        apart = [law.mean - mean for law in laws]
        between = averaged([one[:, :, None] * one[:, None, :] for one in apart], weights)
        within = averaged([law.cov for law in laws], weights)
        return cls(laws[0].names, mean, within + between)

    @property
    def sd(self) -> Matrix:
        """Standard deviations of the tasks."""
        return np.asarray(np.sqrt(np.diagonal(self.cov, axis1=1, axis2=2)))

    @property
    def corr(self) -> Matrices:
        """Correlations of the tasks."""
        sd = self.sd
        return np.asarray(self.cov / (sd[:, :, None] * sd[:, None, :]))

    @cached_property
    def _factor(self) -> Matrices:
        """Lower triangular L with L L' = cov."""
        try:
            return np.linalg.cholesky(self.cov)
        except np.linalg.LinAlgError:
            raise ValueError(
                f"the joint law of {list(self.names)} has a covariance without full rank: one "
                "task is a linear function of the others; leave it out"
            ) from None

    def marginal(self, name: str) -> GaussianLaw:
        """The law of one task."""
        j = self._position(name)
        return GaussianLaw(self.mean[:, j], self.sd[:, j])._at_inputs_of(self)

    def affine(self, offset: Numbers, scale: Numbers) -> Self:
        """The law of `offset + scale * y`, for offsets and scales > 0 of shape (J,)."""
        s = np.asarray(scale, np.float64)
        mean, cov = np.asarray(offset) + s * self.mean, np.outer(s, s) * self.cov
        return type(self)(self.names, mean, cov)._at_inputs_of(self)

    def log_conditionals(self, Y: Any) -> Matrix:
        """log p(y_nj | y_n1 .. y_n,j-1) in nats; NaN where y_nj is missing.

        `Y` is a mapping or DataFrame by task, or an (N, J) array. The sum of a row is its joint
        log density, whatever the order of the tasks.
        """
        y = self._labels(Y)
        seen = ~np.isnan(y)
        residual = np.where(seen, y - self.mean, 0.0)[:, :, None]
        factor = self._factor
        if not seen.all():
            # A missing label as one that is known and has to do with nothing.
            both = seen[:, :, None] & seen[:, None, :]
            factor = np.linalg.cholesky(np.where(both, self.cov, np.eye(len(self.names))))
        z = np.linalg.solve(factor, residual)[:, :, 0]
        sd = np.diagonal(factor, axis1=1, axis2=2)
        terms = -0.5 * z**2 - np.log(sd) - 0.5 * math.log(2.0 * math.pi)
        return np.where(seen, terms, np.nan)

    def log_prob(self, Y: Any) -> Vector:
        """Joint log density of each row's labels in nats; NaN where all of them are missing."""
        terms = self.log_conditionals(Y)
        return np.where(np.isnan(terms).all(axis=1), np.nan, np.nansum(terms, axis=1))

    def nll(self, Y: Any) -> Vector:
        """-log p(y_n) of each row in nats, as `scores.nll`; lower is better."""
        return -self.log_prob(Y)

    def log_score(self, Y: Any) -> Vector:
        """Deprecated name of `nll`."""
        warnings.warn(
            "JointLaw.log_score is deprecated and ends with version 0.3; it is JointLaw.nll now",
            DeprecationWarning,
            stacklevel=2,
        )
        return self.nll(Y)

    def _sample(self, key: PRNGKeyArray, n: int) -> Float[np.ndarray, "n N J"]:
        z = np.asarray(jax.random.normal(key, (n, *self.mean.shape)), np.float64)
        return np.asarray(self.mean + np.einsum("nij,snj->sni", self._factor, z))

    def to_frame(self) -> pd.DataFrame:
        """Columns mean_a, sd_a for every task a, and corr_a_b for every pair."""
        sd, corr = self.sd, self.corr
        columns: dict[str, Vector] = {}
        for j, name in enumerate(self.names):
            columns |= {f"mean_{name}": self.mean[:, j], f"sd_{name}": sd[:, j]}
        for j, name in enumerate(self.names):
            for i, earlier in enumerate(self.names[:j]):
                columns[f"corr_{earlier}_{name}"] = corr[:, i, j]
        return self._table(columns)

    def __repr__(self) -> str:
        return f"JointLaw({', '.join(self.names)}, N={len(self)})"

    def _position(self, name: str) -> int:
        if name not in self.names:
            raise ValueError(f"the joint law is over {list(self.names)}, not over {name!r}")
        return self.names.index(name)

    def _labels(self, Y: Any) -> Matrix:
        shape = self.mean.shape
        if isinstance(Y, Mapping | pd.DataFrame):
            missing = [name for name in self.names if name not in Y]
            if missing:
                raise ValueError(f"Y has no column for the tasks {missing}, only {list(Y)}")
            columns = [real_labels(Y[name], len(self), name) for name in self.names]
            return np.stack(columns, axis=1)
        array = np.asarray(Y)
        if array.shape != shape:
            raise ValueError(
                f"Y has shape {array.shape}, need {shape}: one column for each of "
                f"{list(self.names)}, or a mapping or DataFrame by task"
            )
        return real_labels(array.ravel(), array.size, "Y").reshape(shape)


@final
class Laws(dict[str, Law]):
    """Laws by task, and the joint laws of the tasks whose noise is ``coupled``.

    ``index`` says where each forecast is: as the inputs did, or by its number. ``extrapolation`` is
    that of each law: how far the inputs lie outside their training range.
    """

    coupled: tuple[JointLaw, ...]
    index: pd.Index
    extrapolation: Vector | None

    def __init__(
        self,
        laws: Mapping[str, Law],
        coupled: Iterable[JointLaw] = (),
        index: pd.Index | None = None,
        extrapolation: Vector | None = None,
    ) -> None:
        self.index = index_of(next(iter(laws.values()), ()) if index is None else index)
        if extrapolation is None:
            known = (law.extrapolation for law in laws.values())
            extrapolation = next((one for one in known if one is not None), None)
        self.extrapolation = extrapolation
        for name, law in laws.items():
            if len(law) != len(self.index):
                raise ValueError(
                    f"the law of task {name!r} holds {len(law)} forecasts, and the index has "
                    f"{len(self.index)} entries; they must be as many"
                )
        place = self.index, self.extrapolation
        super().__init__({name: law._at_inputs(*place) for name, law in laws.items()})
        self.coupled = tuple(law._at_inputs(*place) for law in coupled)

    def joint(self, names: Sequence[str]) -> JointLaw:
        """The joint law of Gaussian tasks; those that were not coupled are independent."""
        tasks = [names] if isinstance(names, str) else list(names)
        if not tasks or len(set(tasks)) < len(tasks):
            raise ValueError(f"a joint law needs different tasks, got {tasks}")
        margins: list[RealLaw] = []
        for name in tasks:
            law = self.get(name)
            if law is None or not _is_normal(law):
                found = "there is no such task" if law is None else f"it has a {type(law).__name__}"
                raise ValueError(
                    f"task {name!r} has no place in a joint law: {found}; the Gaussian tasks are "
                    f"{[n for n, one in self.items() if _is_normal(one)]}"
                )
            margins.append(law)
        cov = np.zeros((len(margins[0]), len(tasks), len(tasks)))
        for group in self.coupled:
            shared = [name for name in tasks if name in group.names]
            here = np.array([tasks.index(name) for name in shared], dtype=int)
            there = np.array([group.names.index(name) for name in shared], dtype=int)
            cov[:, here[:, None], here] = group.cov[:, there[:, None], there]
        for j, law in enumerate(margins):
            cov[:, j, j] = law.var
        means = np.stack([law.mean for law in margins], axis=1)
        return JointLaw(tasks, means, cov)._at_inputs(self.index, self.extrapolation)

    def log_prob(self, Y: Mapping[str, Numbers]) -> dict[str, Vector]:
        """Log score of each label in nats, NaN where missing; the sum over tasks is the joint one.

        A coupled task is scored given the labels of those coupled before it.
        """
        terms = {name: law.log_prob(Y[name]) for name, law in self.items()}
        for group in self.coupled:
            terms |= dict(zip(group.names, group.log_conditionals(Y).T, strict=True))
        return terms

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        """The forecasts of a single task, (N,): means of a number, likeliest classes.

        For tools such as the scorers of scikit-learn, which compare arrays.
        """
        if len(self) != 1:
            raise TypeError(
                f"laws of the tasks {list(self)} are no array: ask for one of them, such as "
                "laws['name'].mean, or for laws.to_frame()"
            )
        (law,) = self.values()
        return np.array(law._point(), dtype=dtype, copy=True if copy is None else copy)

    @property
    def shape(self) -> tuple[int, ...]:
        """(N,) of a single task, (N, K) of K tasks: what scikit-learn counts samples by."""
        return (len(self.index),) if len(self) == 1 else (len(self.index), len(self))

    def to_frame(
        self, quantiles: Sequence[float] = QUANTILES, *, wide: bool = False
    ) -> pd.DataFrame:
        """One tidy table with a row for each task and forecast: task, index, then numbers.

        ``mean``, ``sd`` and a quantile q0.05 .. for each level, of a number; ``prob_0`` .. for each
        class: of an event, prob_1 is the chance that it happens. Cells that do not suit a task
        are missing. Where any forecast is far outside the training range, the last column is
        ``extrapolation``.

        ``wide=True`` gives one row a forecast instead, with the index of the inputs: columns
        a_mean, a_sd, a_q0.05 .. of a number a, b_prob of an event b, c_prob_0 .. of classes c.
        """
        names = [f"q{p:g}" for p in dict.fromkeys(quantiles)]
        if len(set(names)) < len(names):
            raise ValueError(
                f"two of the quantile levels {list(quantiles)} share the first six digits, and "
                "with them the name of a column; leave one out"
            )
        if wide:
            return self._wide(quantiles)
        where = {str(n): self.index.get_level_values(k) for k, n in enumerate(self.index.names)}
        frames = []
        for task, law in self.items():
            cells = law.columns(quantiles)
            clash = sorted(where.keys() & {"task", *cells, *self._outside})
            if clash:
                raise ValueError(f"the index of the inputs is named {clash}, as a column is here")
            frames.append(pd.DataFrame({"task": task, **where, **cells, **self._outside}))
        table = pd.concat(frames, ignore_index=True)
        classes = sorted((c for c in table if c.startswith("prob_")), key=lambda c: int(c[5:]))
        moments = [c for c in ("mean", "sd") if c in table]
        levels = [c for c in dict.fromkeys(f"q{p:g}" for p in quantiles) if c in table]
        return table[["task", *where, *moments, *levels, *classes, *self._outside]]

    @property
    def _outside(self) -> dict[str, Vector]:
        """The column of a table that says how far outside the training range forecasts are.

        Only where some are far outside: other tables have the columns that users know.
        """
        distance = self.extrapolation
        if distance is None or not (distance > FAR_OUT).any():
            return {}
        return {"extrapolation": distance}

    def _wide(self, quantiles: Sequence[float]) -> pd.DataFrame:
        columns: dict[str, np.ndarray] = {}
        for task, law in self.items():
            cells = law.columns(quantiles, wide=True)
            columns |= {f"{task}_{name}": values for name, values in cells.items()}
        columns |= self._outside
        clash = sorted(columns.keys() & {str(name) for name in self.index.names})
        if clash:
            raise ValueError(f"the index of the inputs is named {clash}, as a column is here")
        return pd.DataFrame(columns, index=self.index)

    def to_xarray(self, quantiles: Sequence[float] = QUANTILES) -> Any:
        """A Dataset over the coordinate of the inputs; of a stacked grid, ``unstack`` is the grid.

        Variables a_mean, a_sd and a_quantile (.., quantile) of a number a; b_prob (.., b_class) of
        classes b; extrapolation, where any forecast is far outside the training range.
        """
        variables: dict[str, tuple[tuple[str, ...], np.ndarray]]
        variables = {name: ((), values) for name, values in self._outside.items()}
        levels: dict[str, Any] = {}
        for task, law in self.items():
            if isinstance(law, DiscreteLaw):
                variables[f"{task}_prob"] = ((f"{task}_class",), law.probs)
                levels[f"{task}_class"] = np.arange(law.num_classes)
                continue
            variables |= {f"{task}_{k}": ((), values) for k, values in law.columns(()).items()}
            if isinstance(law, NumberLaw):
                levels["quantile"] = np.asarray(quantiles, dtype=float)
                variables[f"{task}_quantile"] = (("quantile",), law.quantile(levels["quantile"]))
        return dataset(variables, levels, self.index)


def _is_normal(law: Law) -> TypeGuard[RealLaw]:
    """A normal law, or a mixture of such, whose two moments a joint law keeps."""
    return isinstance(law, RealLaw) and (law.normal or law.normals is not None)
