"""Correlated noise: the joint term against integrals, and the joint law from fit to disk."""

import json
import math
import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from scipy import stats
from scipy.special import logsumexp

from helpers import (
    D,
    H,
    as_data,
    assert_same_bits,
    cast_floats,
    central_gradient,
    draw_belief,
    flat,
    losses,
)
from scrollmt import Event, Forecaster, Gaussian, JointLaw, Windowing, at_lead, lags, load, mix
from scrollmt._fitting.selection import train
from scrollmt._io.store import ModelFolderError
from scrollmt.backbone import Dense
from scrollmt.couplings import Coupling, read_groups
from scrollmt.heads import AbstractHead
from scrollmt.laws import EventLaw, GaussianLaw
from scrollmt.laws.joint import Laws
from scrollmt.model import Model, Task, build, rescale_task
from scrollmt.objective import Data, composed, data_terms, validation_nll
from scrollmt.paper.protocol import Protocol
from scrollmt.paper.studies.probes import joint as probe
from scrollmt.scores import nll
from scrollmt.windows.answers import Forecast
from small import SHORT, TINY, numbers

NAMES = ("a", "b", "c")
SIGMA = np.array([0.6, 1.3, 2.0])
BELOW = np.array([[9.0, 9.0, 9.0], [1.4, 9.0, 9.0], [-0.7, 2.1, 9.0]])  # above the diagonal: unused
ROWS = 30
terms_of = eqx.filter_jit(data_terms)


def correlation() -> np.ndarray:
    """The correlation that `BELOW` stands for, again."""
    rows = np.array([[1.0, 0.0, 0.0], [1.4, 1.0, 0.0], [-0.7, 2.1, 1.0]])
    cov = rows @ rows.T
    return cov / np.sqrt(np.outer(np.diag(cov), np.diag(cov)))


def coupling(names: tuple[str, ...] = NAMES, below: np.ndarray = BELOW) -> Coupling:
    size = len(names)
    return eqx.tree_at(lambda c: c.below, Coupling(names), jnp.asarray(below[:size, :size], float))


def coupled_model(names: tuple[str, ...] = NAMES, below: np.ndarray = BELOW) -> Model:
    """Three Gaussian tasks, one of each belief, coupled in the order of `names`; and an event."""
    key = jax.random.PRNGKey(0)
    net = Dense(D, (H,), activation="tanh", bias=True, norm=False, key=key)
    tasks = {"event": Task(Event(0.1), draw_belief("diag", H, seed=9).belief, jnp.zeros(()))}
    for i, (name, belief) in enumerate(zip(NAMES, ("diag", "none", "full"), strict=True)):
        drawn = draw_belief(belief, H, floor=0.0, seed=i)
        tasks[name] = Task(Gaussian(SIGMA[i]), drawn.belief, jnp.asarray(0.2 * i, float))
    return cast_floats(Model(net, tasks, (coupling(names, below),)))


def coupled_data(holes: bool = True) -> Data:
    rng = np.random.default_rng(5)
    x = rng.normal(size=(ROWS, D))
    y: dict[str, Any] = {n: rng.normal(size=ROWS) * s for n, s in zip(NAMES, SIGMA, strict=True)}
    weight = {n: np.ones(ROWS) for n in (*NAMES, "event")}
    if holes:
        # All patterns of missing labels, the empty one among them.
        for pattern in range(8):
            for j, name in enumerate(NAMES):
                weight[name][pattern] = float(pattern >> j & 1)
    y["event"] = (x[:, 0] > 0.0).astype(np.int32)
    return as_data(x, y, weight)


def explicit(model: Model, data: Data) -> tuple[np.ndarray, np.ndarray]:
    """Mean (N, J) and V_n (N, J, J) from explicit matrices."""
    psi = np.asarray(model.features(data.x))
    beliefs = [model.tasks[name].belief for name in NAMES]
    mean = np.stack([psi @ np.asarray(b.mu) for b in beliefs], axis=1)
    var = np.stack([np.einsum("ni,ij,nj->n", psi, np.asarray(b.cov()), psi) for b in beliefs], 1)
    noise = np.outer(SIGMA, SIGMA) * correlation()
    return mean, noise + var[:, :, None] * np.eye(3)


def joint_logpdf(y: np.ndarray, mean: np.ndarray, cov: np.ndarray, seen: np.ndarray) -> np.ndarray:
    """SciPy's density of the observed labels of every row; zero where there are none."""
    out = np.zeros(len(y))
    for n in range(len(y)):
        o = seen[n]
        if o.any():
            out[n] = stats.multivariate_normal.logpdf(y[n, o], mean[n, o], cov[n][np.ix_(o, o)])
    return out


# The joint term


@pytest.mark.parametrize("order", [("a", "b", "c"), ("c", "a", "b")])
def test_the_terms_of_a_row_add_up_to_the_density_of_its_observed_labels(
    order: tuple[str, ...],
) -> None:
    with jax.enable_x64(True):
        model, data = coupled_model(), coupled_data()
        if order != NAMES:
            # The same correlation with its tasks in another order, by its own Cholesky factor.
            places = [NAMES.index(n) for n in order]
            factor = np.linalg.cholesky(correlation()[np.ix_(places, places)])
            model = coupled_model(order, factor / np.diag(factor)[:, None])
        terms = terms_of(model, data)
        mean, cov = explicit(model, data)
        y = np.stack([np.asarray(data.y[n]) for n in NAMES], axis=1)
        seen = np.stack([np.asarray(data.weight[n]) > 0 for n in NAMES], axis=1)
        assert len({tuple(row) for row in seen}) == 8
        want = joint_logpdf(y, mean, cov, seen)
        got = -sum(np.asarray(terms[n]) for n in NAMES)
        np.testing.assert_allclose(got, want, rtol=1e-11, atol=1e-12)
        for j, name in enumerate(NAMES):
            assert not np.asarray(terms[name])[~seen[:, j]].any()
        # The event is no part of it.
        alone = terms_of(Model(model.backbone, model.tasks), data)
        np.testing.assert_array_equal(terms["event"], alone["event"])


def test_the_joint_term_is_the_integral_over_both_latent_lines() -> None:
    """p(y | a) with correlated noise, against a trapezoid rule over a in the plane."""
    with jax.enable_x64(True):
        rho, sigma = 0.85, SIGMA[:2]
        noise = np.outer(sigma, sigma) * np.array([[1.0, rho], [rho, 1.0]])
        two = coupling(("a", "b"), np.array([[0.0, 0.0], [rho / math.sqrt(1 - rho**2), 0.0]]))
        np.testing.assert_allclose(two.correlation(), [[1.0, rho], [rho, 1.0]], rtol=1e-14)
        mean, var = np.array([[0.3, -1.0], [0.0, 2.0]]), np.array([[0.5, 0.9], [2.0, 0.1]])
        y = np.array([[1.0, -2.0], [-4.0, 3.0]])
        names = ("a", "b")
        heads = {n: Gaussian(s) for n, s in zip(names, sigma, strict=True)}
        read: dict[str, tuple[AbstractHead, jax.Array, jax.Array]] = {
            n: (heads[n], jnp.asarray(mean[:, j]), jnp.asarray(var[:, j]))
            for j, n in enumerate(names)
        }
        labels = {n: jnp.asarray(y[:, j]) for j, n in enumerate(names)}
        given = two.in_turn(read, labels, {n: jnp.ones(2) for n in names})
        terms = [h.log_predictive(labels[n], m, v) for n, (h, m, v) in given.items()]
        got = np.sum(terms, axis=0)
        z = np.linspace(-12.0, 12.0, 801)
        for row in range(2):
            a, b = (mean[row, j] + math.sqrt(var[row, j]) * z for j in range(2))
            offsets = np.stack(np.broadcast_arrays(y[row, 0] - a[:, None], y[row, 1] - b), axis=-1)
            inner = stats.multivariate_normal.logpdf(offsets, np.zeros(2), noise)
            outer = stats.norm.logpdf(z)[:, None] + stats.norm.logpdf(z)
            want = logsumexp(inner + outer) + 2.0 * math.log(z[1] - z[0])
            assert got[row] == pytest.approx(want, rel=1e-10)


@pytest.mark.slow
def test_gradients_agree_with_differences() -> None:
    with jax.enable_x64(True):
        model, data = coupled_model(), coupled_data()
        params, static = eqx.partition(model, eqx.is_inexact_array)
        _, unravel = jax.flatten_util.ravel_pytree(params)
        value = eqx.filter_jit(lambda v: composed(eqx.combine(unravel(v), static), data))
        at = flat(model)
        got = flat(losses(model, data).slope)
        want = central_gradient(lambda v: float(value(jnp.asarray(v))), at)
        np.testing.assert_allclose(got, want, rtol=1e-7, atol=1e-7)
        slope = losses(model, data).slope.couplings[0].below
        assert np.abs(np.asarray(slope)[np.tril_indices(3, -1)]).min() > 0.1
        assert not np.triu(np.asarray(slope)).any()


def test_a_coupling_starts_at_the_independent_model() -> None:
    with jax.enable_x64(True):
        model, data = coupled_model(below=np.zeros((3, 3))), coupled_data()
        alone = terms_of(Model(model.backbone, model.tasks), data)
        for name, terms in terms_of(model, data).items():
            np.testing.assert_allclose(terms, alone[name], rtol=1e-14)


@pytest.mark.parametrize("x64", [False, True], ids=["f32", "f64"])
def test_what_lies_under_a_mask_changes_no_bit(x64: bool) -> None:
    with jax.enable_x64(x64):
        model, data = coupled_model(), coupled_data()
        one = losses(model, data)
        other = {n: jnp.where(data.weight[n] > 0, data.y[n], 1e8) for n in NAMES}
        hidden = Data(data.x, {**data.y, **other}, data.weight)
        assert not np.array_equal(hidden.y["a"], data.y["a"])
        assert_same_bits(losses(model, hidden), one)
        assert np.isfinite(flat(one.slope)).all()


def test_a_row_of_weight_two_equals_that_row_twice() -> None:
    with jax.enable_x64(True):
        model, data = coupled_model(), coupled_data()
        row = 6  # two of its labels are there
        doubled = {n: w.at[row].multiply(2.0).at[-1].set(0.0) for n, w in data.weight.items()}
        got = losses(model, Data(data.x, data.y, doubled))
        want = losses(model, data.take(jnp.asarray([*range(ROWS - 1), row])))
        assert float(got.value) == pytest.approx(float(want.value), rel=1e-13)
        np.testing.assert_allclose(flat(got.slope), flat(want.slope), rtol=1e-10, atol=1e-12)


def test_labels_that_all_but_repeat_each_other_stay_finite_in_float32() -> None:
    """1 - rho^2 is below the rounding of the variances whose difference it is."""
    rng = np.random.default_rng(0)
    names = ("a", "b", "c")

    @eqx.filter_jit
    @eqx.filter_value_and_grad
    def total(given: tuple[Coupling, dict[str, Gaussian]], y: dict[str, jax.Array]) -> jax.Array:
        by, heads = given
        zero = jnp.zeros(8)
        read: Any = {n: (head, zero, zero) for n, head in heads.items()}
        seen = {n: zero + 1.0 for n in names}
        turns = by.in_turn(read, y, seen)
        return -jnp.sum(
            jnp.stack([head.log_predictive(y[n], m, v) for n, (head, m, v) in turns.items()])
        )

    lost = 0
    for _ in range(5):
        steep = rng.uniform(5e3, 2e4, size=(3, 3))
        heads = {n: Gaussian(s) for n, s in zip(names, rng.uniform(0.5, 2.0, 3), strict=True)}
        by = coupling(names, steep)
        common = rng.normal(size=8)
        y = {n: jnp.asarray(common * float(heads[n].sigma_obs), jnp.float32) for n in names}
        value, slope = total((by, heads), y)
        assert np.isfinite(value)
        assert np.isfinite(flat(slope)).all()
        # Eliminated without care, in the same precision, the covariance has no such factor.
        rows = np.asarray([float(heads[n].sigma_obs) for n in names], np.float32)[:, None]
        rows = rows * np.asarray(by.factor())
        cov = rows @ rows.T
        left = np.diag(cov)[1:] - (cov[1:, 0] / np.sqrt(cov[0, 0])) ** 2
        lost += int((left <= 0.0).any())
    assert lost > 0


def test_the_scale_map_holds_with_couplings() -> None:
    """A correlation has no units: the composed objective rises by (N + H) log c as before."""
    with jax.enable_x64(True):
        model, data = coupled_model(), coupled_data(holes=False)
        mapped = rescale_task(model, "c", 8.0)
        scaled = Data(data.x, {**data.y, "c": 8.0 * data.y["c"]}, data.weight)
        rise = float(losses(mapped, scaled).value) - float(losses(model, data).value)
        assert rise == pytest.approx((ROWS + H) * math.log(8.0), rel=1e-12)


# Groups


HEADS: dict[str, AbstractHead] = {n: Gaussian() for n in "abcd"} | {"event": Event()}


def test_groups_are_one_list_of_names_or_several() -> None:
    assert read_groups(None, HEADS) == read_groups([], HEADS) == ()
    assert read_groups(["b", "a"], HEADS) == read_groups((("b", "a"),), HEADS) == (("b", "a"),)
    assert read_groups([["a", "b"], ["d", "c"]], HEADS) == (("a", "b"), ("d", "c"))


@pytest.mark.parametrize(
    ("joint", "message"),
    [
        ("ab", r"\['ab'\] is no group of two or more"),
        (["a"], r"\['a'\] is no group"),
        (["a", "a"], "different tasks"),
        (["a", ["b", "c"]], r"joint=\['a', 'b'\]"),
        ([["a", 1]], "is no group"),
        (["a", "x"], r"unknown task 'x'; there are \['a', 'b', 'c', 'd', 'event'\]"),
        (["a", "event"], r"task 'event' is Event\(\), and only Gaussian"),
        ([["a", "b"], ["b", "c"]], "'b' is in two groups"),
    ],
)
def test_groups_that_make_no_sense_are_refused(joint: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read_groups(joint, HEADS)
    with pytest.raises(ValueError, match=message):
        Forecaster(HEADS, joint=joint).fit(np.zeros((20, 1)), {n: np.zeros(20) for n in HEADS})


# The joint law


def drawn_law(seed: int = 0, n: int = 6) -> JointLaw:
    rng = np.random.default_rng(seed)
    root = rng.normal(size=(n, 3, 3))
    return JointLaw(NAMES, rng.normal(size=(n, 3)), root @ root.swapaxes(1, 2) + 0.1 * np.eye(3))


def test_a_joint_law_scores_like_scipy_and_integrates_missing_labels_out() -> None:
    law = drawn_law()
    y = np.random.default_rng(1).normal(size=(6, 3))
    want = joint_logpdf(y, law.mean, law.cov, np.ones((6, 3), bool))
    np.testing.assert_allclose(law.log_prob(y), want, rtol=1e-11)
    np.testing.assert_allclose(nll(law, y), -want, rtol=1e-11)
    np.testing.assert_array_equal(law.nll(y), nll(law, y))
    with pytest.warns(DeprecationWarning, match=r"it is JointLaw\.nll now"):
        np.testing.assert_array_equal(law.log_score(y), law.nll(y))
    y[0, 1] = y[1, 0] = y[1, 2] = np.nan
    y[2] = np.nan
    seen = ~np.isnan(y)
    want = np.where(seen.any(axis=1), joint_logpdf(y, law.mean, law.cov, seen), np.nan)
    np.testing.assert_allclose(law.log_prob(y), want, rtol=1e-11)
    np.testing.assert_array_equal(np.isnan(law.log_conditionals(y)), ~seen)
    # By name, in any order, with more columns than are asked for.
    table = pd.DataFrame(y, columns=list(NAMES))[["c", "a", "b"]].assign(event=1)
    np.testing.assert_array_equal(law.log_prob(table), law.log_prob(y))
    np.testing.assert_array_equal(law.log_prob(dict(table)), law.log_prob(y))
    first = law.marginal("a").log_prob(y[:, 0])
    np.testing.assert_allclose(law.log_conditionals(y)[:, 0], first, rtol=1e-12)


def test_a_joint_law_has_margins_correlations_rows_and_units() -> None:
    law = drawn_law()
    for j, name in enumerate(NAMES):
        margin = law.marginal(name)
        np.testing.assert_array_equal(margin.mean, law.mean[:, j])
        np.testing.assert_allclose(margin.var, law.cov[:, j, j], rtol=1e-14)
    np.testing.assert_allclose(law.corr[2], law.cov[2] / np.outer(law.sd[2], law.sd[2]))
    few = law[np.array([4, 1])]
    assert few.names == NAMES
    np.testing.assert_array_equal(few.cov, law.cov[[4, 1]])
    assert repr(few) == "JointLaw(a, b, c, N=2)"
    offset, scale = np.array([1.0, -2.0, 0.0]), np.array([3.0, 0.5, 10.0])
    moved = law.affine(offset, scale)
    y = np.random.default_rng(1).normal(size=(6, 3))
    density = moved.log_prob(offset + scale * y) + np.log(scale).sum()
    np.testing.assert_allclose(density, law.log_prob(y), rtol=1e-12)
    frame = law.to_frame()
    assert list(frame) == [
        *("mean_a", "sd_a", "mean_b", "sd_b", "mean_c", "sd_c"),
        *("corr_a_b", "corr_a_c", "corr_b_c"),
    ]
    np.testing.assert_array_equal(frame["corr_a_c"], law.corr[:, 0, 2])
    with pytest.raises(ValueError, match="read-only"):
        law.cov[0, 0, 0] = 1.0


def test_samples_have_the_moments_of_the_law() -> None:
    """200,000 draws of two rows; bounds of five standard errors fail once in 10^5 tests."""
    law, n = drawn_law(n=2), 200_000
    draws = law.sample(jax.random.key(0), n)
    assert draws.shape == (n, 2, 3)
    for row in range(2):
        cov, sd = law.cov[row], law.sd[row]
        error = np.abs(draws[:, row].mean(axis=0) - law.mean[row])
        assert (error < 5.0 * sd / math.sqrt(n)).all()
        se = np.sqrt((np.outer(sd, sd) ** 2 + cov**2) / n)
        assert (np.abs(np.cov(draws[:, row].T) - cov) < 5.0 * se).all()
    np.testing.assert_array_equal(draws[:5], law.sample(jax.random.key(0), n)[:5])
    np.testing.assert_array_equal(law.sample(7, seed=4), law.sample(jax.random.key(4), 7))


def test_a_joint_law_keeps_the_index_and_is_no_array() -> None:
    law = drawn_law()._at_index(pd.Index([*"uvwxyz"]))
    ones = np.ones(3)
    for other in (law[2:], law.affine(ones, ones)[2:], law.marginal("b")[2:]):
        assert list(other.to_frame().index) == [*"wxyz"]
    far = drawn_law()._at_inputs(None, np.arange(6.0))
    for other in (far[2:], far.affine(ones, ones)[2:], far.marginal("b")[2:]):
        np.testing.assert_array_equal(other.extrapolation, [2.0, 3.0, 4.0, 5.0])
    with pytest.raises(TypeError, match=r"ask for law\.mean, law\.cov, law\.sample"):
        np.asarray(law)


def test_a_mixture_keeps_mean_and_covariance() -> None:
    """Against E[yy'] - E[y]E[y]' written out; its margins are the mixed margins."""
    laws = [drawn_law(seed) for seed in range(3)]
    mixed = mix(laws)
    mean = np.mean([law.mean for law in laws], axis=0)
    second = np.mean([law.cov + np.einsum("ni,nj->nij", law.mean, law.mean) for law in laws], 0)
    np.testing.assert_allclose(mixed.mean, mean, rtol=1e-14)
    np.testing.assert_allclose(mixed.cov, second - np.einsum("ni,nj->nij", mean, mean), atol=1e-12)
    for name in NAMES:
        margin = mix([law.marginal(name) for law in laws])
        np.testing.assert_allclose(mixed.marginal(name).sd, margin.sd, rtol=1e-13)
    with pytest.raises(ValueError, match="different tasks"):
        mix([laws[0], JointLaw(("c", "b", "a"), laws[0].mean, laws[0].cov)])


def test_a_joint_law_refuses_what_is_none() -> None:
    mean, cov = np.zeros((2, 2)), np.broadcast_to(np.eye(2), (2, 2, 2)).copy()
    with pytest.raises(ValueError, match=r"mean has shape \(2, 2\).*need \(N, 3\)"):
        JointLaw(NAMES, mean, cov)
    for change in (np.inf, np.nan, -1.0, 0.0):
        wrong = cov.copy()
        wrong[1, 0, 0] = change
        with pytest.raises(ValueError, match="row 1"):
            JointLaw("ab", mean, wrong)
    wrong = cov.copy()
    wrong[1, 0, 1] = 0.5
    with pytest.raises(ValueError, match="symmetric"):
        JointLaw("ab", mean, wrong)
    law = JointLaw("ab", mean, np.ones((2, 2, 2)))
    with pytest.raises(ValueError, match=r"\['a', 'b'\] .* without full rank"):
        law.log_prob(mean)
    with pytest.raises(ValueError, match=r"over \['a', 'b'\], not over 'x'"):
        law.marginal("x")
    with pytest.raises(ValueError, match=r"Y has shape \(2,\), need \(2, 2\)"):
        law.log_prob(np.zeros(2))
    with pytest.raises(ValueError, match=r"no column for the tasks \['b'\], only \['a'\]"):
        law.log_prob({"a": np.zeros(2)})


def test_laws_by_task_give_joint_laws_of_any_gaussian_tasks() -> None:
    """Coupled tasks with their covariance, whichever of them and in any order; others without."""
    group = drawn_law()
    margins = {n: group.marginal(n) for n in NAMES}
    other = GaussianLaw(np.arange(6.0), np.full(6, 2.0))
    event = EventLaw(np.log(np.full((6, 2), 0.5)))
    laws = Laws({**margins, "other": other, "event": event}, [group])
    joint = laws.joint(["c", "other", "a"])
    assert joint.names == ("c", "other", "a")
    np.testing.assert_array_equal(
        joint.mean, np.stack([*group.mean.T[[2]], other.mean, group.mean.T[0]], 1)
    )
    np.testing.assert_array_equal(joint.cov[:, 0, 2], group.cov[:, 2, 0])
    np.testing.assert_allclose(joint.cov[:, 0, 0], group.cov[:, 2, 2], rtol=1e-14)
    np.testing.assert_array_equal(joint.cov[:, 1], [[0.0, 4.0, 0.0]] * 6)
    lone = laws.joint("other")
    np.testing.assert_allclose(lone.log_prob(np.ones((6, 1))), other.log_prob(1.0), rtol=1e-13)
    y = {n: np.full(6, 0.3) for n in (*NAMES, "other")} | {"event": np.ones(6)}
    total = sum(laws.log_prob(y).values())
    want = group.log_prob(y) + other.log_prob(0.3) + event.log_prob(1)
    np.testing.assert_allclose(total, want, rtol=1e-12)
    back = pickle.loads(pickle.dumps(laws))
    np.testing.assert_array_equal(back.joint(NAMES).cov, laws.joint(NAMES).cov)
    with pytest.raises(ValueError, match=r"'event' has no place in a joint law: it has a EventLaw"):
        laws.joint(["a", "event"])
    with pytest.raises(ValueError, match=r"no such task; the Gaussian tasks are \['a', 'b', 'c'"):
        laws.joint(["a", "x"])
    with pytest.raises(ValueError, match=r"different tasks, got \['a', 'a'\]"):
        laws.joint(["a", "a"])


# From fit to disk

RHO = 0.9
TASKS: dict[str, AbstractHead] = {"a": Gaussian(), "event": Event(), "b": Gaussian()}


def correlated(n: int = 300, seed: int = 0) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Two values with noise of correlation `RHO` and standard deviations 0.5 and 2."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3))
    noise = rng.multivariate_normal(np.zeros(2), [[1.0, RHO], [RHO, 1.0]], size=n)
    a, b = np.tanh(X[:, 0]) + 0.5 * noise[:, 0], 10.0 - X[:, 1] + 2.0 * noise[:, 1]
    return X, {"a": a, "b": b, "event": (X[:, 2] > 0).astype(int)}


LONG = replace(TINY, schedule=replace(TINY.schedule, steps=300), scale_targets=True)
NEW, NEW_Y = correlated(40, seed=1)


@pytest.fixture(scope="module")
def fitted() -> Forecaster:
    X, Y = correlated()
    Y["a"][:20] = np.nan
    Y["b"][10:40] = np.nan
    return Forecaster(TASKS, joint=["b", "a"], preset=LONG, seed=2).fit(X, Y)


def test_a_fit_learns_the_correlation_of_the_noise(fitted: Forecaster) -> None:
    """About 250 pairs: the standard error of a correlation of 0.9 is near 0.012."""
    (learned,) = fitted.model_.couplings
    assert learned.names == ("b", "a")
    assert float(learned.correlation()[0, 1]) == pytest.approx(RHO, abs=0.05)
    laws = fitted.predict(NEW)
    joint = laws.joint(["a", "b"])
    for name in ("a", "b"):
        law = laws[name]
        assert isinstance(law, GaussianLaw)
        np.testing.assert_array_equal(joint.marginal(name).mean, law.mean)
        np.testing.assert_allclose(joint.marginal(name).sd, law.sd, rtol=1e-14)
    # In the user's units, the covariance is the noise's alone: beliefs are independent.
    scale = fitted.scales_.scale
    heads = {n: fitted.model_.tasks[n].head for n in "ab"}
    sigma = [float(heads[n].sigma_obs) * scale[n] for n in "ab"]  # type: ignore[attr-defined]
    want = float(learned.correlation()[0, 1]) * sigma[0] * sigma[1]
    np.testing.assert_allclose(joint.cov[:, 0, 1], want, rtol=1e-6)
    np.testing.assert_allclose(laws.joint(["b", "a"]).cov[:, 0, 1], want, rtol=1e-6)
    # Knowing one label sharpens the other: the joint score beats the sum of the two.
    marginal = sum(nll(laws[n], NEW_Y[n]).mean() for n in "ab")
    assert joint.nll(NEW_Y).mean() < marginal - 0.3


def test_scores_of_a_fit_are_joint(fitted: Forecaster) -> None:
    laws = fitted.predict(NEW)
    want = (
        laws.joint(["a", "b"]).log_prob(NEW_Y).mean()
        + laws["event"].log_prob(NEW_Y["event"]).mean()
    )
    assert fitted.score(NEW, NEW_Y) == pytest.approx(want, rel=1e-12)
    # `evaluate` speaks of one task at a time.
    table = fitted.evaluate(NEW, NEW_Y)
    assert list(table.index) == list(TASKS)
    for name in ("a", "b"):
        expected = nll(laws[name], NEW_Y[name]).mean()
        assert table.loc[name, "nll"] == pytest.approx(expected, rel=1e-12)
    # What the fit watched is what the laws say, in the user's units.
    best = fitted.candidates_.loc[fitted.candidates_["chosen"], "validation_nll"]
    assert float(best.iloc[0]) == pytest.approx(fitted.validation_nll_, rel=1e-4)


def test_a_saved_model_comes_back_bit_for_bit(fitted: Forecaster, tmp_path: Path) -> None:
    fitted.save(tmp_path / "model")
    back = load(tmp_path / "model")
    assert back.joint == ["b", "a"]
    assert back.model_.couplings[0].names == ("b", "a")
    assert_same_bits(back.model_, fitted.model_)
    one, other = back.predict(NEW).joint(["a", "b"]), fitted.predict(NEW).joint(["a", "b"])
    np.testing.assert_array_equal(one.mean, other.mean)
    np.testing.assert_array_equal(one.cov, other.cov)
    assert back.score(NEW, NEW_Y) == fitted.score(NEW, NEW_Y)
    back.save(tmp_path / "again")
    content = json.loads((tmp_path / "model" / "model.json").read_text())
    assert json.loads((tmp_path / "again" / "model.json").read_text()) == content
    assert content["members"][0]["couplings"] == [["b", "a"]]


@pytest.mark.slow
def test_a_folder_without_couplings_does_not_speak_of_them(tmp_path: Path) -> None:
    """Such folders are as they were before there were any, and still load."""
    X, Y = correlated(60)
    Forecaster(TASKS, preset=TINY).fit(X, Y).save(tmp_path / "model")
    content = json.loads((tmp_path / "model" / "model.json").read_text())
    assert "joint" not in content["estimator"]
    assert "couplings" not in content["members"][0]
    back = load(tmp_path / "model")
    assert back.joint is None
    assert back.model_.couplings == ()
    # Uncoupled tasks have a joint law too, in which they are independent.
    assert not back.predict(NEW).joint(["a", "b"]).cov[:, 0, 1].any()


def test_a_folder_whose_groups_make_no_sense_is_refused(
    fitted: Forecaster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from scrollmt._io.store import parts

    original = parts.model_to_parts

    def twisted(model: Model, in_size: int) -> Any:
        description, arrays = original(model, in_size)
        return {**description, "couplings": [["b", "event"]]}, arrays

    monkeypatch.setattr(parts, "model_to_parts", twisted)
    fitted.save(tmp_path / "model")
    with pytest.raises(ModelFolderError, match="only Gaussian tasks"):
        load(tmp_path / "model")


@pytest.mark.slow
def test_coupled_tasks_are_one_question_to_committees_and_ensembles() -> None:
    """The joint law of an ensemble has the moments of its members, who are the same for both."""
    X, Y = correlated(60)
    model = Forecaster(TASKS, joint=["a", "b"], preset=SHORT, ensemble=2).fit(X, Y)
    assert model.committee_["a"] == model.committee_["b"]
    speakers = model.committee_["a"]
    assert len(speakers) == 4
    table = model.candidates_
    for seed in table["seed"].unique():
        own = table[table["seed"] == seed]
        best = (own["a_nll"] + own["b_nll"]).nsmallest(2).index
        spoken = [i for i in own.index if "a" in own.loc[i, "speaks_for"].split(", ")]
        assert sorted(spoken) == sorted(best)
    x = model.scales_.inputs(NEW)
    scale = np.array([model.scales_.scale[n] for n in "ab"])
    means, covs = [], []
    for number in speakers:
        member = model.members_[number]
        line = member.project(jnp.asarray(x, jnp.float32))
        means.append(np.stack([np.asarray(line[n][0]) for n in "ab"], axis=1))
        var = np.stack([np.asarray(line[n][1]) for n in "ab"], axis=1)
        sigma = np.array([float(member.tasks[n].head.sigma_obs) for n in "ab"])  # type: ignore[attr-defined]
        noise = np.outer(sigma, sigma) * np.asarray(member.couplings[0].correlation())
        covs.append(noise + var[:, :, None] * np.eye(2))
    total = np.mean(
        [c + np.einsum("ni,nj->nij", m, m) for m, c in zip(means, covs, strict=True)], 0
    )
    mean = np.mean(means, axis=0)
    want = np.outer(scale, scale) * (total - np.einsum("ni,nj->nij", mean, mean))
    joint = model.predict(NEW).joint(["a", "b"])
    np.testing.assert_allclose(joint.cov, want, rtol=1e-3, atol=1e-5)
    assert np.ptp(joint.cov[:, 0, 1]) > 0.0


@pytest.mark.slow
def test_a_batch_of_runs_equals_the_runs_alone() -> None:
    X, Y = correlated(40)
    data = as_data(X, {n: Y[n] - Y[n].mean() for n in "ab"})
    heads: dict[str, AbstractHead] = {"a": Gaussian(), "b": Gaussian()}

    def trained(*seeds: int) -> list[Model]:
        found = train(
            TINY,
            heads,
            belief="diag",
            joint=(("a", "b"),),
            train=data,
            valid=data,
            keys=[jax.random.key(s) for s in seeds],
        )
        return [one.members[one.lead] for one in found]

    together = trained(1, 2)
    for model, seed in zip(together, (1, 2), strict=True):
        (alone,) = trained(seed)
        np.testing.assert_allclose(flat(model), flat(alone), rtol=1e-4, atol=1e-5)
        assert float(model.couplings[0].correlation()[0, 1]) > 0.2
    assert not np.allclose(flat(together[0]), flat(together[1]))


def test_labels_that_are_scored_together_have_one_weight() -> None:
    X, Y = correlated(60)
    model = Forecaster(TASKS, joint=["a", "b"], preset=TINY)
    weight = {"a": np.ones(60), "b": np.ones(60), "event": np.full(60, 3.0)}
    weight["b"][7] = 2.0
    message = r"sample_weight of the joint tasks 'a' and 'b' is 1 and 2 at row 7; .* same array"
    with pytest.raises(ValueError, match=message):
        model.fit(X, Y, weight)
    model.set_params(validation=(X, Y, weight))
    with pytest.raises(ValueError, match=f"validation {message}"):
        model.fit(X, Y)
    # Zero is a missing label, and harms nobody.
    weight["b"][7] = 0.0
    model.set_params(validation=0.2).fit(X, Y, weight)
    unseen = {**Y, "b": np.where(np.arange(60) == 7, np.nan, Y["b"])}
    again = Forecaster(TASKS, joint=["a", "b"], preset=TINY).fit(
        X, unseen, {"event": weight["event"]}
    )
    for name, values in numbers(again, NEW).items():
        np.testing.assert_array_equal(values, numbers(model, NEW)[name])
    with pytest.raises(ValueError, match="joint tasks"):
        model.score(NEW, NEW_Y, {"a": np.full(40, 2.0)})


def test_validation_is_the_joint_nll_of_what_was_observed() -> None:
    with jax.enable_x64(True):
        model, data = coupled_model(), coupled_data(holes=False)
        mean, cov = explicit(model, data)
        y = np.stack([np.asarray(data.y[n]) for n in NAMES], axis=1)
        joint = joint_logpdf(y, mean, cov, np.ones((ROWS, 3), bool)).mean()
        event = -np.asarray(terms_of(model, data)["event"]).mean()
        score = float(eqx.filter_jit(validation_nll)(model, data))
        assert score == pytest.approx(-joint - event, rel=1e-12)


def test_a_forecast_of_a_series_has_a_joint_law() -> None:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"u": rng.normal(size=300).cumsum(), "v": rng.normal(size=300)})
    windows = Windowing(history=3, lead=2).cut(
        frame, {"u": at_lead("u"), "v": at_lead("v")}, [lags("u", 3)]
    )
    cov = np.array([[[2.0, 0.9], [0.9, 1.0]]])
    group = JointLaw(("u", "v"), np.array([[1.0, -1.0]]), cov)
    answer = Forecast(
        windows.take(np.array([5])), Laws({n: group.marginal(n) for n in "uv"}, [group])
    )
    joint = answer.joint(["v", "u"])
    np.testing.assert_array_equal(joint.mean, [[-1.0, 1.0]])
    np.testing.assert_allclose(joint.cov, cov[:, ::-1, ::-1], rtol=1e-14)
    model = Forecaster.for_windows(windows, joint=["u", "v"])
    assert (list(model.tasks), model.joint) == (["u", "v"], ["u", "v"])


# The probe of the paper's claims


def test_the_probe_draws_what_it_says() -> None:
    """Two correlations share every draw but the part of the second noise that differs."""
    rho, n = 0.8, 20_000
    none, some = (probe.draw(3, r, n, part=1) for r in (0.0, rho))
    np.testing.assert_array_equal(none.x, some.x)
    np.testing.assert_array_equal(none.y["a"], some.y["a"])
    moved = np.asarray(some.y["b"] - none.y["b"])
    want = probe.SIGMA_OBS**2 * (rho**2 + (math.sqrt(1.0 - rho**2) - 1.0) ** 2)
    assert moved.var() == pytest.approx(want, rel=5.0 * math.sqrt(2.0 / n))
    near = np.linalg.norm(np.asarray(some.x), axis=1) < 0.25
    # Close to the origin neither mean nor spread has any size: what is left is the noise.
    left = np.corrcoef(np.asarray(some.y["a"])[near], np.asarray(some.y["b"])[near])[0, 1]
    assert near.sum() > 500
    assert left == pytest.approx(rho, abs=0.1)
    assert not np.array_equal(probe.draw(3, rho, n, part=2).x, some.x)


@pytest.mark.slow
def test_the_probe_reports_every_cell() -> None:
    protocol = Protocol(steps=40, eval_every=5, patience=100)
    rows = probe.run([0, 1], (0.0, 0.8), protocol=protocol, windows=(200, 100, 150))
    assert [(row["rho"], row["seed"]) for row in rows] == [(0.0, 0), (0.0, 1), (0.8, 0), (0.8, 1)]
    for row in rows:
        margins = row["nll_a_diagonal"] + row["nll_b_diagonal"]
        assert row["joint_nll_diagonal"] == pytest.approx(margins, rel=1e-5)
        assert row["gain"] == row["joint_nll_diagonal"] - row["joint_nll_full"]
        # The effective correlation is below that of the noise.
        most = -0.5 * math.log1p(-(row["correlation"] ** 2))
        assert 0.0 <= row["available"] <= most
        assert 0.0 < row["belief_share"] < 1.0
    assert min(row["correlation"] for row in rows[2:]) > 0.3
    assert min(row["gain"] for row in rows[2:]) > 0.03
    assert max(abs(row["correlation"]) for row in rows[:2]) < 0.3


def test_build_couples_and_rescaling_keeps_couplings() -> None:
    net = Dense(D, (H,), activation="tanh", bias=True, norm=False, key=jax.random.PRNGKey(0))
    settings: dict[str, Any] = {"features": H, "belief": "diag", "cov_floor": 0.0}
    model = build(net, HEADS, key=jax.random.key(0), joint=[["a", "c"], ["b", "d"]], **settings)
    assert [c.names for c in model.couplings] == [("a", "c"), ("b", "d")]
    assert_same_bits(rescale_task(model, "a", 3.0).couplings, model.couplings)
    assert build(net, HEADS, key=jax.random.key(0), **settings).couplings == ()
