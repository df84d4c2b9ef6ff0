r"""Checks that a head has to pass, for heads of your own as for scrollmt's.

    check_head(MyHead(), labels=[0.3, 1.2, 4.0])

A head is given by `log_predictive(y, mean, var)`. At zero variance that is its likelihood, so
everywhere else it must be the integral

$$\int \exp\bigl(\text{log\_predictive}(y, a, 0)\bigr)\,
  \mathcal{N}(a;\, \text{mean}, \text{var})\, da,$$

which is compared with a dense trapezoid rule; no more needs to be known of the head. A head of
several lines is compared line by line: the score under beliefs about the first l lines must be
the integral over line l of the score under beliefs about those before. Each check raises an
`AssertionError` that says what is wrong and where. Everything runs in float64 beside float32,
whatever JAX is set to, and leaves that as it is.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array
from scipy.special import logsumexp

from scrollmt._data.reading import read_rows
from scrollmt._data.scaling import Scales
from scrollmt._io.store.parts import heads_from_parts, heads_to_parts
from scrollmt._scoring.evaluation import Scored, evaluate
from scrollmt._scoring.references import Reference, learned
from scrollmt.beliefs import Diag, Point
from scrollmt.heads import AbstractHead
from scrollmt.laws import mix
from scrollmt.model import Model, Task
from scrollmt.objective import Data, data_terms

_FEATURES = 3


def check_head(head: AbstractHead, labels: Any, *, seed: int = 0, tolerance: float = 1e-6) -> None:
    """Run every check of this module on a head, with labels as a user would give them.

    `labels` are four or more, none missing, best such that some are likely and some are not at
    latent values around zero. `tolerance` is that of the integral over the belief, in nats;
    gradients have a hundred times as much, relative to the largest.
    """
    for check in (
        check_scores,
        check_labels,
        check_integral,
        check_gradients,
        check_precision,
        check_evaluation,
        check_missing_and_weights,
        check_law,
        check_storage,
    ):
        check(_Case(head, labels, seed, tolerance))


class _Case:
    """A head with labels as read, and latent lines for them."""

    def __init__(self, head: AbstractHead, labels: Any, seed: int, tolerance: float) -> None:
        assert isinstance(head, AbstractHead), f"{type(head).__name__} is not an AbstractHead"
        self.name = type(head).__name__
        self.given = np.asarray(labels)
        self.head, self.tolerance = head, tolerance
        assert len(self.given) >= 4, f"{self.name}: give four labels or more"
        self.y, self.seen = head.read_labels("task", self.given)
        rng = np.random.default_rng(seed)
        shape = (len(self.given),) if head.rows == 1 else (len(self.given), head.rows)
        self.mean = rng.normal(size=shape)
        # A head that reads means alone knows no belief, so its variance is always zero.
        self.var = rng.uniform(0.2, 1.5, size=shape) * (not head.point_only)
        self.share = rng.uniform(0.5, 1.5, size=len(self.given))

    def fail(self, what: str) -> str:
        return f"{self.name}: {what}"


def _cast(tree: Any) -> Any:
    real = jnp.result_type(float)
    return jax.tree.map(lambda a: jnp.asarray(a, real) if eqx.is_inexact_array(a) else a, tree)


def _real(y: np.ndarray) -> Array:
    return jnp.asarray(y, jnp.result_type(float)) if y.dtype.kind == "f" else jnp.asarray(y)


@eqx.filter_jit
def _scores(head: AbstractHead, y: Array, mean: Array, var: Array) -> Array:
    return head.log_predictive(y, mean, var)


@eqx.filter_jit
def _likelihoods(head: AbstractHead, y: Array, a: Array) -> Array:
    return head.log_likelihood(y, a)


@eqx.filter_jit
def _slopes(head: AbstractHead, y: Array, mean: Array, var: Array, share: Array) -> Any:
    def total(arguments: Any) -> Array:
        model, m, v = arguments
        return jnp.sum(share * model.log_predictive(y, m, v))

    return eqx.filter_grad(total)((head, mean, var))


def check_labels(case: _Case) -> None:
    """Labels are read in order; a missing one is masked and has a finite score."""
    assert case.seen.shape == case.given.shape[:1], case.fail("one mask entry a label is needed")
    assert case.seen.all(), case.fail(f"row {int(np.argmin(case.seen))} was read as missing")
    assert len(case.y) == len(case.given), case.fail("as many labels as were given are needed")
    holes = case.given.astype(float)
    holes[1] = np.nan
    y, seen = case.head.read_labels("task", holes)
    assert not seen[1], case.fail("read_labels must mask a missing label")
    assert np.delete(seen, 1).all(), case.fail("read_labels masks labels that are there")
    kept = np.delete(np.arange(len(y)), 1)
    assert np.array_equal(y[kept], case.y[kept]), case.fail("a missing label changes the others")
    score = _scores(case.head, *map(_real, (y, case.mean, case.var)))
    assert bool(jnp.isfinite(score[1])), case.fail(
        "a missing label needs a value with a finite score; set `missing_fill` to one"
    )


def check_scores(case: _Case) -> None:
    """One finite log score a label, each from its own row alone, in JAX's own precision."""
    y, mean, var = map(_real, (case.y, case.mean, case.var))
    got = _scores(case.head, y, mean, var)
    assert got.shape == case.seen.shape, case.fail(
        f"log_predictive has shape {got.shape} for {len(case.y)} labels; keep it elementwise"
    )
    assert got.dtype == mean.dtype, case.fail(f"scores are {got.dtype}, not {mean.dtype}")
    assert bool(jnp.isfinite(got).all()), case.fail(f"scores are not finite: {got}")
    back = _scores(case.head, y[::-1], mean[::-1], var[::-1])[::-1]
    assert np.allclose(got, back, rtol=1e-6), case.fail("a row's score depends on other rows")


def check_integral(case: _Case) -> None:
    """The belief is integrated out: scores are the integral of the likelihood over it."""
    if case.head.point_only:
        return
    with jax.enable_x64(True):
        head = _cast(case.head)
        likelihood = _likelihoods(head, *map(_real, (case.y, case.mean)))
        at_zero = _scores(head, *map(_real, (case.y, case.mean, 0.0 * case.var)))
    assert np.allclose(at_zero, likelihood, rtol=1e-9, atol=case.tolerance), case.fail(
        f"log_predictive at var = 0 is {at_zero}, but log_likelihood is {likelihood}"
    )
    for line in range(case.head.rows):
        _check_line(case, line)


def _check_line(case: _Case, line: int) -> None:
    """The score under beliefs about lines 0 to `line`, against the integral over the last."""
    z = np.linspace(-30.0, 30.0, 2001)
    lines = np.arange(case.head.rows) if case.head.rows > 1 else np.zeros((), int)
    own = (lines == line).astype(float)
    a = np.expand_dims(z, tuple(range(1, 1 + case.mean.ndim)))
    a = case.mean + np.sqrt(case.var) * own * a
    before = np.broadcast_to(case.var * (lines < line), a.shape)
    var = case.var * (lines <= line)
    with jax.enable_x64(True):
        head = _cast(case.head)
        y = np.broadcast_to(case.y, (len(z), *case.y.shape))
        terms = (
            _scores(head, *map(_real, (y, a, before)))
            if line
            else _likelihoods(head, *map(_real, (y, a)))
        )
        got = np.asarray(_scores(head, *map(_real, (case.y, case.mean, var))))
    log_normal = -0.5 * z**2 - 0.5 * math.log(2.0 * math.pi) + math.log(z[1] - z[0])
    want = logsumexp(np.asarray(terms) + log_normal[:, None], axis=0)
    gap = np.abs(got - want)
    row = int(np.argmax(gap))
    place = f"row {row}" if case.head.rows == 1 else f"row {row}, line {line}"
    centre, spread = (np.ravel(a[row])[line] for a in (case.mean, case.var))
    assert gap[row] <= case.tolerance * (1.0 + abs(want[row])), case.fail(
        f"{place} (mean {centre:.3g}, var {spread:.3g}): log_predictive is "
        f"{got[row]:.9g}, but the integral over the belief is {want[row]:.9g}"
    )


def check_gradients(case: _Case) -> None:
    """Gradients by parameters, mean and variance agree with differences in float64."""
    with jax.enable_x64(True):
        arrays, rest = eqx.partition(_cast(case.head), eqx.is_inexact_array)
        start, unravel = ravel_pytree((arrays, jnp.asarray(case.mean), jnp.asarray(case.var)))
        y, share = _real(case.y), jnp.asarray(case.share)

        def total(vector: np.ndarray) -> float:
            params, mean, var = unravel(jnp.asarray(vector))
            return float(share @ _scores(eqx.combine(params, rest), y, mean, var))

        mean, var = jnp.asarray(case.mean), jnp.asarray(case.var)
        got = _slopes(eqx.combine(arrays, rest), y, mean, var, share)
        slope = np.asarray(ravel_pytree(eqx.filter(got, eqx.is_inexact_array))[0])
        # By a variance that is always zero nothing is differentiated.
        free = start.size - case.var.size * case.head.point_only
        want = _differences(total, np.asarray(start), free)
    gap = np.abs(slope[:free] - want)
    worst = int(np.argmax(gap))
    parameters = start.size - case.mean.size - case.var.size
    place = "a parameter" if worst < parameters else "the mean or the variance"
    assert gap[worst] <= 100.0 * case.tolerance * (1.0 + np.abs(want).max()), case.fail(
        f"the gradient by {place} is {slope[worst]:.6g}, but differences give {want[worst]:.6g}"
    )


def _differences(f: Callable[[np.ndarray], float], at: np.ndarray, count: int) -> np.ndarray:
    """The first `count` partial derivatives by differences of the fourth order."""
    out = np.zeros(count)
    for i in range(count):
        e = np.zeros(at.size)
        e[i] = 1e-3
        near, far = f(at + e) - f(at - e), f(at + 2.0 * e) - f(at - 2.0 * e)
        out[i] = (8.0 * near - far) / 12e-3
    return out


def check_precision(case: _Case) -> None:
    """float32 gives finite scores and gradients close to those of float64, at zero variance too."""
    for spread in (1.0, 0.0):
        found = []
        for x64 in (True, False):
            with jax.enable_x64(x64):
                arguments = _real(case.y), _real(case.mean), _real(spread * case.var)
                head = _cast(case.head)
                slopes = _slopes(head, *arguments, _real(case.share))
                flat = ravel_pytree(eqx.filter(slopes, eqx.is_inexact_array))[0]
                found.append(np.append(np.asarray(_scores(head, *arguments)), np.asarray(flat)))
        double, single = found
        for name, values in (("float64", double), ("float32", single)):
            assert np.isfinite(values).all(), case.fail(
                f"scores or gradients in {name} are not finite at {spread:g} times the variance"
            )
        assert np.allclose(single, double, rtol=1e-3, atol=1e-3 * np.abs(double).max()), case.fail(
            "float32 and float64 differ by more than a thousandth"
        )


def check_missing_and_weights(case: _Case) -> None:
    """A missing label has no term and no gradient at all; a row of weight two counts twice."""
    count, rng = len(case.y), np.random.default_rng(1)
    mu = rng.normal(size=_FEATURES if case.head.rows == 1 else (case.head.rows, _FEATURES))
    belief = Point(_real(mu)) if case.head.point_only else Diag(_real(mu), _real(0.0 * mu), 0.0)
    model = Model(eqx.nn.Identity(), {"task": Task(_cast(case.head), belief, jnp.zeros(()))})
    x = _real(0.5 * rng.normal(size=(count, _FEATURES)))

    @eqx.filter_jit
    def run(model: Model, y: Array, weight: Array) -> tuple[Array, Model]:
        def loss(model: Model) -> tuple[Array, Array]:
            terms = data_terms(model, Data(x, {"task": y}, {"task": weight}))["task"]
            return jnp.sum(terms), terms

        slope, terms = eqx.filter_grad(loss, has_aux=True)(model)
        return terms, slope

    holes = case.given.astype(float)
    holes[2] = np.nan
    y, seen = case.head.read_labels("task", holes)
    alone = np.where(np.arange(count) == 2, 1.0, 0.0)
    terms, slope = run(model, _real(y), _real(alone * seen))
    leaves = [np.asarray(a) for a in jax.tree.leaves(eqx.filter(slope, eqx.is_inexact_array))]
    assert not np.any(np.asarray(terms)), case.fail("a missing label has a data term")
    assert not any(a.any() for a in leaves), case.fail("a missing label has a gradient")
    once, _ = run(model, _real(case.y), _real(np.ones(count)))
    twice, _ = run(model, _real(case.y), _real(np.full(count, 2.0)))
    assert np.array_equal(2.0 * once, twice), case.fail("twice the weight is not twice the term")


def check_law(case: _Case) -> None:
    """The law scores labels as the head does; it can be cut, and mixed with itself."""
    law = case.head.law(np.asarray(case.mean), np.asarray(case.var))
    want = np.asarray(_scores(case.head, *map(_real, (case.y, case.mean, case.var))), float)
    assert len(law) == len(want), case.fail(f"the law holds {len(law)} of {len(want)} forecasts")
    got = law.log_prob(case.given)
    assert np.allclose(got, want, rtol=1e-4, atol=1e-4), case.fail(
        f"the law's log_prob is {got}, but log_predictive is {want}"
    )
    part = law[1:3].log_prob(case.given[1:3])
    assert np.allclose(part, got[1:3], rtol=1e-5, atol=1e-5), case.fail("law[1:3] scores otherwise")
    both = mix([law, law]).log_prob(case.given)
    assert np.allclose(both, got, rtol=1e-5, atol=1e-5), case.fail("mix([law, law]) is another law")
    holes = case.given.astype(float)
    holes[0] = np.nan
    assert np.isnan(law.log_prob(holes)[0]).all(), case.fail("a missing label scores NaN in a law")
    units = case.head.target_scale(case.y, np.ones(len(case.y)))
    if units is not None:
        offset, scale = units
        assert scale > 0.0, case.fail(f"the labels have units {units}, but a scale is positive")
        scaled = case.head.rescaled_law(case.mean, case.var, offset, scale)
        shifted = _real((case.y - offset) / scale)
        want = np.asarray(_scores(case.head, shifted, _real(case.mean), _real(case.var)), float)
        # A density per unit; where a label has a mass, units do not matter.
        gap = scaled.log_prob(case.given) - want
        good = np.isclose(gap, -math.log(scale), atol=1e-3) | np.isclose(gap, 0.0, atol=1e-3)
        assert good.all(), case.fail("rescaled_law is not the law of offset + scale * y")


def check_evaluation(case: _Case) -> None:
    """With a missing label, labels are scaled, fitted by a constant, mixed and evaluated."""
    count, heads = len(case.given), {"task": case.head}
    holes = case.given.astype(float)
    holes[1] = np.nan
    rows = read_rows(np.arange(float(count))[:, None], {"task": holes}, None, heads)
    scales = Scales.of(rows, heads, scale_targets=True)
    fitted = scales.targets(rows, heads)["task"]
    score = _scores(case.head, fitted, _real(case.mean), _real(case.var))
    assert bool(jnp.isfinite(score).all()), case.fail(
        f"scores of scaled labels are {score}; the fill of a missing label (row 1) must have a "
        "finite score in scaled units too, so set `missing_fill` to such a value"
    )
    units = scales.offset.get("task", 0.0), scales.scale.get("task", 1.0)
    laws = [
        case.head.law(case.mean + shift, case.var)
        if "task" not in scales.offset
        else case.head.rescaled_law(case.mean + shift, case.var, *units)
        for shift in (0.0, 0.1)
    ]
    reference = learned(heads, rows, scales, {})["task"]
    again = Reference.from_dict(json.loads(json.dumps(reference.to_dict())), case.head)
    both, references = mix(laws), again.laws(count, {})
    task = Scored(both, rows.labels["task"], rows.weights["task"], references, None)
    row = evaluate({"task": task}).loc["task"]
    wrong = [
        name for name in ("nll", "skill", *both.metrics) if not np.isfinite(row.get(name, 0.0))
    ]
    assert not wrong, case.fail(f"evaluate gives no finite {wrong}: {row.to_dict()}")
    for name in ("lower", "upper", "mean", "sd"):
        cells = both.to_frame().get(name, np.zeros(1))
        assert np.isfinite(cells).all(), case.fail(f"the column {name!r} of the law is not finite")


def check_storage(case: _Case) -> None:
    """Saved and loaded, the parameters have the same bits, and so have the scores."""
    described, arrays = heads_to_parts({"task": case.head})
    again = heads_from_parts(described, arrays, {"task": case.head})["task"]
    assert type(again) is type(case.head), case.fail("another class comes back from storage")
    arguments = tuple(map(_real, (case.y, case.mean, case.var)))
    same = np.array_equal(_scores(case.head, *arguments), _scores(again, *arguments))
    assert same, case.fail("scores differ after saving and loading")
