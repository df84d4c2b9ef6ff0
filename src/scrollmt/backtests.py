r"""Refit at rolling origins and score what came next: how a forecaster would have done.

Origin j trains on the windows before it, validates on the block that follows and is scored on
the block after that. With folds, which is the default, it trains on both blocks, and each fold of
them validates its own runs. Seeds within an origin share its windows, so that only origins tell
how far a score can be trusted. With $v_{js}$ the score at origin j and seed s,

    v_j = mean_s v_js,      mean = mean_j v_j,      se = sd_j(v_j) / sqrt(J)

Where training is full-batch and a part is held out, all origins and seeds run as one program, the
shorter ones filled up with rows of weight zero, which vanish exactly from the objective. In
minibatches such rows would thin the batches out, so there, and with folds, it is origin after
origin.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from sklearn.base import clone

from scrollmt import online
from scrollmt._data import holdout
from scrollmt._data.holdout import Ready
from scrollmt._fitting import training
from scrollmt._fitting.selection import Selection, joined
from scrollmt.forecaster import Forecaster
from scrollmt.objective import Data
from scrollmt.presets import get_preset
from scrollmt.splits import Split
from scrollmt.windows import Embargo, Parts, Windows

_KEYS = ["task", "metric"]
Update = Literal["refit", "frozen", "online", "refit+online"]


@dataclass(frozen=True, eq=False, repr=False)
class Backtest:
    """Scores of every refit.

    - ``table``: tidy, with columns origin, tested_from (t of the first test window), seed, task,
      metric, value.
    - ``splits``: the windows of each origin; ``models``: the fitted forecasters by (origin, seed).
    """

    table: pd.DataFrame
    splits: list[Split]
    models: dict[tuple[int, int], Forecaster]

    def by_origin(self) -> pd.DataFrame:
        """Mean over the seeds of each origin: index (task, metric), one column per origin."""
        means = self.table.groupby([*_KEYS, "origin"], sort=False)["value"].mean()
        return means.unstack("origin")

    def summary(self) -> pd.DataFrame:
        """Mean and standard error between origins, by task and metric."""
        return _between_origins(self.by_origin())

    def minus(self, other: Backtest) -> pd.DataFrame:
        """This backtest's scores minus another's, paired by origin: mean, se, and se's count.

        ``ratio`` is mean / se: how many standard errors the difference is from none.
        """
        if not _same_windows(self.splits, other.splits):
            raise ValueError("the two backtests differ in their splits, so origins do not pair")
        difference = _between_origins(self.by_origin() - other.by_origin())
        return difference.assign(ratio=difference["mean"] / difference["se"])

    def plot(self, metric: str = "nll", ax: Any = None) -> Any:
        """One line per task over the origins, with the range of its seeds; returns the axes."""
        chosen = self.table[self.table["metric"] == metric]
        if chosen.empty:
            raise ValueError(
                f"no metric {metric!r} in this backtest; there are "
                f"{sorted(self.table['metric'].unique())}"
            )
        if ax is None:
            import matplotlib.pyplot as plt

            ax = plt.gca()
        for task, mine in chosen.groupby("task", sort=False):
            values = mine.groupby("tested_from")["value"]
            (line,) = ax.plot(values.mean(), "o-", label=str(task))
            low, high = values.min(), values.max()
            ax.fill_between(low.index, low, high, color=line.get_color(), alpha=0.2, linewidth=0)
        ax.set_xlabel("tested from")
        ax.set_ylabel(metric)
        ax.legend(frameon=False)
        return ax

    def __repr__(self) -> str:
        seeds = self.table["seed"].nunique()
        head = f"Backtest(origins={len(self.splits)}, seeds={seeds}), mean and se between origins"
        return f"{head}\n{self.summary()[['mean', 'se']].unstack('task').swaplevel(axis=1)}"


def backtest(
    windows: Windows,
    model: Forecaster,
    origins: int | Sequence[Split] = 5,
    *,
    seeds: Sequence[int] | None = None,
    embargo: Embargo = "auto",
    update: Update = "refit",
) -> Backtest:
    """Refit ``model`` (it is not changed) at each origin, once per seed, and score the refits.

    ``origins``: how many rolling origins, or splits of your own. ``seeds``: by default the
    model's own. ``embargo`` as in ``Windows.rolling_origins``, between folds too; 0 is what the
    paper does. Where the model validates by folds, the training and the validation part of an
    origin are cut into folds; else the latter validates, whatever share the model would hold out.
    Quantile edges of bands are learned anew from the training part of each origin.

    ``update`` says how a model comes from one origin to the next: by a "refit"; not at all
    ("frozen", the model of the first origin); by learning "online" from the windows in between; or
    "refit+online". Where it learns online, it does so along the test windows too, each predicted
    before any label that is not known at its origin. Without refits the quantile edges of bands
    stay those of the first origin, so that scores of bands compare with those of refits only where
    edges are given.
    """
    if update not in get_args(Update):
        raise ValueError(f"update={update!r}: choose from {', '.join(get_args(Update))}")
    splits = (
        windows.rolling_origins(int(origins), embargo=embargo)
        if isinstance(origins, int | np.integer)
        else list(origins)
    )
    if model.seeds is not None:
        raise ValueError(
            "the model names the seeds of its members; use Forecaster(ensemble=M) instead, and "
            "backtest(..., seeds=[...]) for refits"
        )
    wanted = [model.seed] if seeds is None else [int(seed) for seed in seeds]
    if not wanted or len(set(wanted)) < len(wanted) or not splits:
        raise ValueError(f"need origins and different seeds, got {len(splits)} and {wanted}")
    validation = training.validation_of(model, len(windows))
    folds = int(validation) if holdout.is_folds(validation) else None
    parts = [origin_parts(windows, split, folds) for split in splits]
    fitted = parts if update.startswith("refit") else parts[:1]
    ready = [_ready(model, part, folds, embargo) for part in fitted]
    refits = {seed: clone(model).set_params(seed=seed)._seeds() for seed in wanted}
    members = [one for seeds_of in refits.values() for one in seeds_of]
    trained = _trained(model, ready, members)
    models: dict[tuple[int, int], Forecaster] = {}
    tables = []
    for origin, part in enumerate(parts):
        for seed, own in refits.items():
            if origin < len(fitted):
                runs = dict(zip(members, trained[origin], strict=True))
                one = clone(model).set_params(seed=seed)
                if folds is None:
                    one.set_params(validation=part.valid)
                one._settle(ready[origin], joined([runs[k] for k in own], own))
            else:
                one = models[origin - 1, seed]
                last, newest = (
                    int(_known(split).max()) for split in splits[origin - 1 : origin + 1]
                )
                if update == "online" and newest > last:
                    one = one.update(windows.take(np.arange(last + 1, newest + 1)))
            models[origin, seed] = one
            along = update.endswith("online")
            scored = online.filter(one, part.test).scores if along else one.evaluate(part.test)
            # Errors within an origin say nothing about those between origins.
            table = scored.drop(columns=["nll_se", "skill_se"], errors="ignore")
            scores = table.rename_axis(columns="metric").stack()
            start = {"origin": origin, "tested_from": part.test.t[0], "seed": seed}
            tables.append(scores.rename("value").reset_index().assign(**start))
    columns = ["origin", "tested_from", "seed", *_KEYS, "value"]
    table = pd.concat(tables, ignore_index=True)[columns].dropna(subset="value")
    return Backtest(table.reset_index(drop=True), splits, models)


def _known(split: Split) -> np.ndarray:
    """The windows that have ended before the test windows of an origin begin."""
    return np.union1d(split.train, split.valid)


def origin_parts(windows: Windows, split: Split, folds: int | None) -> Parts:
    """The labelled parts of an origin; with folds, what would validate trains as well."""
    if folds is not None:
        split = Split(_known(split), split.valid[:0], split.test)
    return windows.split(split)


def _ready(model: Forecaster, part: Parts, folds: int | None, embargo: Embargo) -> Ready:
    judged = part.valid if folds is None else holdout.block_folds(part.train, folds, embargo)
    judging: Forecaster = clone(model).set_params(validation=judged)
    return judging._ready(part.train, None, None)


def _trained(
    model: Forecaster, ready: Sequence[Ready], seeds: Sequence[int]
) -> list[list[Selection]]:
    """For each origin, one selection per seed."""
    in_batches = get_preset(model.preset).schedule.batch_size is not None
    if len(ready) == 1 or in_batches or any(one.folds is not None for one in ready):
        return _one_by_one(model, ready, seeds)
    nats = float(np.mean([one.nats for one in ready]))
    train = stacked([one.train for one in ready], len(seeds))
    valid = stacked([one.valid for one in ready], len(seeds))
    flat = iter(training.held_out(model, ready[0].heads, train, valid, [*seeds] * len(ready), nats))
    return [[next(flat) for _ in seeds] for _ in ready]


def _one_by_one(
    model: Forecaster, ready: Sequence[Ready], seeds: Sequence[int]
) -> list[list[Selection]]:
    chosen = clone(model).set_params(refit=False)
    selections = []
    for one in ready:
        found = training.trained(chosen, one, seeds)
        if any(selection.interrupted for selection in found):
            raise KeyboardInterrupt("backtest interrupted before all origins were done")
        selections.append(found)
    return selections


def stacked(parts: Sequence[Data], times: int = 1) -> Data:
    """Data of several origins along a new first axis, each ``times`` over.

    Filled up to the longest with copies of the last row, of weight zero: a label that is there has
    a finite score under every head.
    """
    longest = max(map(len, parts))

    def filled(part: Data) -> Data:
        rows = jnp.minimum(jnp.arange(longest), len(part) - 1)
        kept = (jnp.arange(longest) < len(part)).astype(part.x.dtype)
        more = part.take(rows)
        return Data(more.x, more.y, {name: kept * w for name, w in more.weight.items()})

    even = [filled(part) for part in parts]
    repeated: Data = jax.tree.map(lambda *a: jnp.repeat(jnp.stack(a), times, axis=0), *even)
    return repeated


def _between_origins(values: pd.DataFrame) -> pd.DataFrame:
    """Mean and standard error over the columns, one per origin."""
    origins = values.count(axis=1)
    se = values.std(axis=1, ddof=1) / np.sqrt(origins)
    return pd.DataFrame({"mean": values.mean(axis=1), "se": se, "origins": origins})


def _same_windows(first: Sequence[Split], second: Sequence[Split]) -> bool:
    pairs = [(a.test, b.test) for a, b in zip(first, second, strict=False)]
    return len(first) == len(second) and all(np.array_equal(a, b) for a, b in pairs)
