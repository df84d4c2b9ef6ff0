r"""What a model has learned since its fit: posteriors of its members' weights, weights of the bank.

At the start the precision of the weights of a line is that of the prior and of the training rows,

$$P^{-1} = \alpha I + N \bar c\, G, \qquad G = \tfrac1S\sum_s \psi_s\psi_s^\top, \qquad
  \bar c = \tfrac1S\sum_s (\partial \log m_s/\partial\text{mean})^2,$$

from a sample of S of the N training rows. `Start` is this much of them, which is stored with a
model. Features have a constant one after them, whose weight starts at zero: it takes up shifts
of level.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from scrollmt._data.holdout import Ready
from scrollmt._fitting import members
from scrollmt._numerics.compiling import on_device, stacked, taken
from scrollmt._numerics.normal import padded_size
from scrollmt.heads import AbstractHead
from scrollmt.laws import Law, mix
from scrollmt.laws.joint import Laws
from scrollmt.model import Model
from scrollmt.objective import Data
from scrollmt.online import recursion
from scrollmt.online.bank import Bank, shared
from scrollmt.online.recursion import Events, Posterior, Prior
from scrollmt.online.rows import NewRows, asked_by

# Rows of the training part that the start is computed from, and rows of a pass at once.
_SAMPLE = 2000
_AT_ONCE = 1024
# Mean and variance of every line, by member and head: (B, N, L) each.
Lines: TypeAlias = Mapping[tuple[int, str], tuple[np.ndarray, np.ndarray]]


@dataclass(frozen=True)
class Sample:
    """Some training rows in standard units, and how many there were."""

    data: Data
    rows: int

    @classmethod
    def of(cls, ready: Ready, seed: int) -> Sample:
        rows = ready.fitted
        count = len(rows.x)
        if count > _SAMPLE:
            some = np.random.default_rng(seed).choice(count, _SAMPLE, replace=False)
            rows = rows.take(np.sort(some))
        data = ready.scales.data(rows, ready.heads, names=ready.names)
        total = count if ready.stored is None else len(ready.stored.train)
        return cls(jax.tree.map(np.asarray, data), total)


@dataclass(frozen=True)
class Start:
    """G by member; by member and head the information of all training labels about each line, (L,),
    and that of one label about the scale."""

    gram: tuple[Float[np.ndarray, "H H"], ...]
    lines: Mapping[tuple[int, str], Float[np.ndarray, " L"]]
    scale: Mapping[tuple[int, str], float]


class Group(NamedTuple):
    """Members that run as one batch for a head: their numbers, heads and posteriors.

    Arrays have an axis of members first; posteriors then one of the bank's settings.
    """

    numbers: tuple[int, ...]
    heads: AbstractHead
    posterior: Posterior
    prior: Prior
    # The weight that is the prior's next.
    turn: int = 0


@dataclass(frozen=True)
class State:
    """Everything that new labels have changed."""

    bank: Bank
    groups: Mapping[str, tuple[Group, ...]]
    log_weights: Mapping[str, Float[np.ndarray, " B"]]
    rows: int = 0
    labels: Mapping[str, int] = field(default_factory=dict)


def start(models: Sequence[Model], sample: Sample) -> Start | None:
    """What the start of a pass needs of the training rows; None where a score is not finite."""
    gram, of_lines, of_scale = [], {}, {}
    for number, model in enumerate(models):
        psi, lines = _read(model, np.asarray(sample.data.x))
        gram.append(psi.T @ psi / len(psi))
        for name, task in model.tasks.items():
            weight = np.asarray(sample.data.weight[name], np.float64)
            given = (*lines[name], np.asarray(sample.data.y[name]))
            slopes = recursion.squared_slopes(task.head, *map(jnp.asarray, given))
            by_mean, by_scale = (weight @ np.asarray(a, np.float64) for a in slopes)
            of_lines[number, name] = by_mean * sample.rows / len(sample.data)
            # Without labels, or a noise to scale, any number will do: the scale stays where it is.
            of_scale[number, name] = float(by_scale / (weight.sum() or 1.0)) or 1.0
    found = [*gram, *of_lines.values(), *of_scale.values()]
    if not all(np.isfinite(one).all() for one in found):
        return None
    return Start(tuple(gram), of_lines, of_scale)


@eqx.filter_jit
def _features(model: Model, x: Array) -> tuple[Array, dict[str, tuple[Array, Array]]]:
    psi = model.features(x)
    lines = {name: task.belief.project(psi) for name, task in model.tasks.items()}
    one = jnp.ones((len(psi), 1), psi.dtype)
    return jnp.concatenate([psi, one], axis=1), lines


def _read(
    model: Model, x: np.ndarray
) -> tuple[np.ndarray, dict[str, tuple[np.ndarray, np.ndarray]]]:
    """Features with a constant one, and `(mean, var)` of the fit by head."""
    dtype = next(iter(model.tasks.values())).belief.mu.dtype
    pieces = []
    for at in range(0, max(len(x), 1), _AT_ONCE):
        part = x[at : at + _AT_ONCE]
        padded = np.zeros((padded_size(max(len(part), 1)), x.shape[1]), dtype)
        padded[: len(part)] = part
        with jax.default_matmul_precision("highest"):
            found = _features(model, jnp.asarray(padded))
        pieces.append(jax.tree.map(np.asarray, found))
    # Only the last piece is longer than its rows.
    joined = jax.tree.map(lambda *a: np.concatenate(a)[: len(x)], *pieces)
    psi, lines = joined
    return psi, lines


def begun(model: Any, begin: Start, bank: Bank) -> State:
    """The state before the first new label."""
    used = {(n, a.head) for task in model.tasks_ for n, a in model._mixing().places(task)}
    by_head: dict[str, list[int]] = {}
    for number, name in sorted(used):
        by_head.setdefault(name, []).append(number)
    settings = bank.settings()
    groups: dict[str, tuple[Group, ...]] = {}
    for name, numbers in by_head.items():
        alike: dict[Any, list[int]] = {}
        for number in numbers:
            task = model.members_[number].tasks[name]
            leaves, structure = jax.tree.flatten(eqx.filter(task.head, eqx.is_array))
            shapes = tuple((leaf.shape, str(leaf.dtype)) for leaf in leaves)
            alike.setdefault((structure, shapes, task.belief.mu.shape), []).append(number)
        groups[name] = tuple(
            _group(model.members_, own, name, begin, settings) for own in alike.values()
        )
    log_weights = {task: np.log(bank.start) for task in model.tasks_}
    return State(bank, groups, log_weights, 0, dict.fromkeys(model.tasks_, 0))


def _group(
    models: Sequence[Model], numbers: Sequence[int], name: str, begin: Start, settings: Any
) -> Group:
    posteriors, priors = [], []
    for number in numbers:
        task = models[number].tasks[name]
        mu = np.asarray(task.belief.lines_first(task.belief.mu))
        alpha = float(task.prior_precision)
        gram = np.asarray(begin.gram[number], np.float64)
        size = len(gram)
        # On the host in double precision: the matrices are ill-conditioned, and inverted once.
        precision = alpha * np.eye(size) + begin.lines[number, name][:, None, None] * gram
        root = np.swapaxes(np.linalg.inv(np.linalg.cholesky(precision)), -1, -2)
        mean = np.concatenate([mu, np.zeros((len(mu), 1), mu.dtype)], axis=1)
        posteriors.append(recursion.begin(mean, root.astype(mu.dtype), settings))
        numbers_of = (mean, alpha, begin.scale[number, name])
        priors.append(Prior(*(on_device(value, mu.dtype) for value in numbers_of)))
    heads = stacked([models[number].tasks[name].head for number in numbers])
    return Group(tuple(numbers), heads, stacked(posteriors), stacked(priors))


def laws(model: Any, state: State, x: np.ndarray) -> Laws:
    """The laws at standardised inputs as the state has them now."""
    read = {}
    features = {n: _read(model.members_[n], x) for n in _used(state)}
    for name, group in _groups(state):
        for place, number in enumerate(group.numbers):
            psi, lines = features[number]
            head, posterior = taken((group.heads, group.posterior), place)
            spread = jnp.asarray(_spread(lines[name][1]))
            mean, var = _lines(head, posterior, jnp.asarray(psi), spread)
            read[number, name] = np.asarray(mean), np.asarray(var)
    weights = {task: np.tile(w[:, None], (1, len(x))) for task, w in state.log_weights.items()}
    return _mixed(by_setting(model, state, read), weights)


@eqx.filter_jit
def _lines(
    head: AbstractHead, posterior: Posterior, psi: Array, spread: Array
) -> tuple[Float[Array, "B N L"], Float[Array, "B N L"]]:
    noise = head.line_noise
    found: tuple[Array, Array] = jax.vmap(lambda p: recursion.line(p, noise, psi, spread))(
        posterior
    )
    return found


def _spread(var: np.ndarray) -> np.ndarray:
    """The trained variance with an axis of lines last."""
    return var[:, None] if var.ndim == 1 else var


def _used(state: State) -> list[int]:
    return sorted({n for _, group in _groups(state) for n in group.numbers})


def _groups(state: State) -> Iterator[tuple[str, Group]]:
    return ((name, group) for name, own in state.groups.items() for group in own)


def by_setting(model: Any, state: State, lines: Lines) -> dict[str, list[Law]]:
    """The law of each task at every setting of the bank, mixed over its members."""
    mixing, scales = model._mixing(), model.scales_
    found: dict[str, list[Law]] = {task: [] for task in model.tasks_}
    for setting in range(len(state.bank.rows)):
        read: dict[tuple[int, str], Law] = {}
        for (number, name), (mean, var) in lines.items():
            head = model.members_[number].tasks[name].head
            cut = (setting, slice(None), 0) if head.rows == 1 else (setting,)
            read[number, name] = members.law(head, (mean[cut], var[cut]), name, scales)
        for task, own in found.items():
            said = [answer.law(read[n, answer.head]) for n, answer in mixing.places(task)]
            own.append(mixing.mixed(task, said))
    return found


def _mixed(
    laws: Mapping[str, list[Law]], log_weights: Mapping[str, Float[np.ndarray, "B N"]]
) -> Laws:
    """One law a task, its settings weighed as they were at each row."""
    return Laws({task: mix(said, np.exp(log_weights[task])) for task, said in laws.items()})


class Passed(NamedTuple):
    """A pass over new rows: laws before each label, log scores, weights of the bank (B, N)."""

    state: State
    laws: Laws
    log_scores: dict[str, Float[np.ndarray, " N"]]
    log_weights: dict[str, Float[np.ndarray, "B N"]]


def passed(model: Any, state: State, new: NewRows) -> Passed:
    """Every row predicted, then learned from, in their order."""
    settings = state.bank.settings()
    features = {n: _read(model.members_[n], new.x) for n in _used(state)}
    lines: dict[tuple[int, str], tuple[np.ndarray, np.ndarray]] = {}
    groups: dict[str, list[Group]] = {name: [] for name in state.groups}
    for name, group in _groups(state):
        order = Order.of(new.known[asked_by(model, name)], new.age)
        moved, mean, var = _pass(group, settings, new, name, features, order)
        groups[name].append(moved)
        for place, number in enumerate(group.numbers):
            lines[number, name] = mean[place], var[place]
    each = by_setting(model, state, lines)
    before, after, log_scores = {}, {}, {}
    labels = dict(state.labels)
    for task, said in each.items():
        seen = new.tasks.weights[task] > 0
        y = new.tasks.labels[task]
        scores = np.stack([np.where(seen, law.log_prob(y), np.nan) for law in said])
        before[task], after[task] = shared(
            scores, state.log_weights[task], state.bank, new.known[task]
        )
        with np.errstate(invalid="ignore"):
            log_scores[task] = np.logaddexp.reduce(before[task] + scores, axis=0)
        labels[task] = labels.get(task, 0) + int(seen.sum())
    found = _mixed(each, before)
    advanced = State(
        state.bank,
        {name: tuple(own) for name, own in groups.items()},
        after,
        state.rows + (len(new) if new.age is None else 0),
        labels,
    )
    return Passed(advanced, found, log_scores, before)


class Order(NamedTuple):
    """The order of events: the row of each, whether it is predicted then, its label learned, how
    many rows pass with the event, and the age of its label."""

    row: np.ndarray
    predicted: np.ndarray
    learned: np.ndarray
    passed: np.ndarray
    age: np.ndarray

    @classmethod
    def of(cls, known: np.ndarray, age: np.ndarray | None) -> Order:
        """`known[t]` labels come before row t is predicted; rows with an `age` have passed."""
        count = len(known)
        rows, ones, zeros = np.arange(count), np.ones(count), np.zeros(count)
        if age is not None:
            return cls(rows, ones, ones, zeros, age)
        if np.array_equal(known, rows):
            return cls(rows, ones, ones, ones, zeros)
        # The label of row i comes before the first row at which it is known, or after all rows.
        comes = np.searchsorted(known, rows, side="right")
        row = np.concatenate([rows, rows])
        order = np.lexsort((np.concatenate([ones, zeros]), np.concatenate([rows, comes])))
        kinds = np.concatenate([ones, zeros])
        ages = np.concatenate([zeros, comes - rows])
        return cls(row[order], kinds[order], 1.0 - kinds[order], kinds[order], ages[order])


def _pass(
    group: Group, settings: Any, new: NewRows, name: str, features: Mapping[int, Any], order: Order
) -> tuple[Group, np.ndarray, np.ndarray]:
    """One head of a group over all events, some at a time; the lines of rows as predicted."""
    posterior, means, variances = group.posterior, [], []
    first = group.turn
    for at in range(0, len(order.row), _AT_ONCE):
        part = Order(*(field[at : at + _AT_ONCE] for field in order))
        count = len(part.row)
        size = padded_size(count)
        rows = np.zeros(size, int)
        rows[:count] = part.row

        def fill(values: np.ndarray, size: int = size) -> np.ndarray:
            """Padded with events at which nothing happens."""
            out = np.zeros(size, values.dtype)
            out[: len(values)] = values
            return out

        psi = np.stack([features[n][0][rows] for n in group.numbers])
        spread = np.stack([_spread(features[n][1][name][1])[rows] for n in group.numbers])
        dtype = psi.dtype
        passed = fill(part.passed)
        turn = (first + np.cumsum(passed) - passed).astype(int) % psi.shape[-1]
        first += int(passed.sum())
        events = Events(
            on_device(psi, dtype),
            on_device(spread, dtype),
            jnp.asarray(new.y[name][rows]),
            on_device(fill(part.learned * new.weight[name][part.row]), dtype),
            on_device(passed, dtype),
            jnp.asarray(turn),
            on_device(fill(part.age), dtype),
        )
        with jax.default_matmul_precision("highest"):
            posterior, mean, var = _run(group.heads, posterior, settings, events, group.prior)
        shown = np.flatnonzero(part.predicted)
        means.append(np.asarray(mean)[:, :, shown])
        variances.append(np.asarray(var)[:, :, shown])
    moved = group._replace(posterior=posterior, turn=first)
    if not means:
        lines = group.posterior.mean.shape[:3]
        empty = np.zeros((*lines[:2], 0, lines[2]))
        return moved, empty, empty
    return moved, np.concatenate(means, axis=2), np.concatenate(variances, axis=2)


@eqx.filter_jit
def _run(
    heads: AbstractHead, posterior: Posterior, settings: Any, events: Events, prior: Prior
) -> tuple[Posterior, Array, Array]:
    """`recursion.run` for all members of a group."""

    def one(head: Any, posterior: Any, psi: Any, spread: Any, prior: Any) -> Any:
        own = events._replace(psi=psi, spread=spread)
        return recursion.run(head, posterior, settings, own, prior)

    batched = eqx.filter_vmap(one, in_axes=(eqx.if_array(0), 0, 0, 0, 0))
    found: tuple[Posterior, Array, Array] = batched(
        heads, posterior, events.psi, events.spread, prior
    )
    return found
