"""The mixture head against integrals over all of its lines at once, in its tails, and fitted."""

import math
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import log_ndtr
from scipy.stats import norm

from helpers import PROBIT_SCALE, SIGMA_FLOOR, cast_floats, flat, unguarded
from scrollmt import Event, Forecaster, Gaussian, Mixture, SinhArcsinh, load
from scrollmt.laws import GaussianMixtureLaw
from scrollmt.presets import QUICK
from scrollmt.report import write_report
from small import SHORT, tiny, windows

CENTRES, SIGMAS, GATE = [-0.8, 0.5, 1.1], [0.7, 1.1, 0.8], [0.4, -0.3]


def head(components: int) -> Mixture:
    """A mixture off its starting values, in the precision that JAX is set to."""
    values = CENTRES[:components], np.log(SIGMAS[:components]), GATE[: components - 1]
    arrays = [jnp.asarray(value, float) for value in values]
    start = Mixture(components)
    return eqx.tree_at(lambda h: [h.offsets, h.log_sigma, h.gate_offsets], start, arrays)


def density(y: float, lines: np.ndarray, components: int) -> np.ndarray:
    """p(y | lines) in plain probabilities; lines are (L, ...)."""
    total, left = np.zeros(lines.shape[1:]), np.ones(lines.shape[1:])
    for j in range(components):
        sd = math.hypot(SIGMAS[j], SIGMA_FLOOR)
        taken = 1.0
        if j < components - 1:
            taken = norm.cdf((lines[components + j] + GATE[j]) / PROBIT_SCALE)
        total = total + left * taken * norm.pdf(y, lines[j] + CENTRES[j], sd)
        left = left * (1.0 - taken)
    return total


@pytest.mark.parametrize(("components", "nodes"), [(2, 60), (3, 15)])
def test_the_predictive_is_the_integral_over_all_lines(components: int, nodes: int) -> None:
    """By a product Gauss-Hermite rule over 3 and 5 lines; nothing is taken apart."""
    lines = 2 * components - 1
    rng = np.random.default_rng(0)
    labels = np.array([-2.0, 0.1, 1.7])
    mean = rng.normal(size=(3, lines))
    var = rng.uniform(0.1, 0.3, size=(3, lines))
    with jax.enable_x64(True):
        got = head(components).log_predictive(*map(jnp.asarray, (labels, mean, var)))
    at, weights = np.polynomial.hermite_e.hermegauss(nodes)
    weights = weights / weights.sum()
    for y, m, v, score in zip(labels, mean, var, got, strict=True):
        axes = [m[i] + math.sqrt(v[i]) * at for i in range(lines)]
        inside = density(y, np.stack(np.meshgrid(*axes, indexing="ij")), components)
        for _ in range(lines):
            inside = inside @ weights
        assert float(score) == pytest.approx(math.log(inside), abs=1e-9)


@pytest.mark.parametrize("x64", [False, True])
def test_scores_hold_far_out(x64: bool) -> None:
    """Labels and gates up to a hundred scales away, where every mass underflows."""
    z = np.array([-120.0, -40.0, 40.0, 120.0])
    y = np.array([1e3, -1e3, 60.0, -2.0])
    mean = np.stack([np.zeros(4), np.zeros(4), z], axis=1)
    with jax.enable_x64(x64):
        arrays = [jnp.asarray(a, float) for a in (y, mean, np.zeros((4, 3)))]
        two = head(2)

        def total(given: tuple[Mixture, Any, Any]) -> tuple[jax.Array, jax.Array]:
            scores = given[0].log_predictive(arrays[0], given[1], given[2])
            return jnp.sum(scores), scores

        take = eqx.filter_jit(eqx.filter_value_and_grad(total, has_aux=True))
        (_, got), slopes = take((two, arrays[1], arrays[2]))
        assert np.isfinite(flat(slopes)).all()
    sds = np.hypot(SIGMAS[:2], SIGMA_FLOOR)
    inside = norm.logpdf(y[:, None], CENTRES[:2], sds)
    gate = (z + GATE[0]) / PROBIT_SCALE
    want = np.logaddexp(log_ndtr(gate) + inside[:, 0], log_ndtr(-gate) + inside[:, 1])
    assert want.min() < -1e4
    np.testing.assert_allclose(got, want, rtol=1e-12 if x64 else 2e-6)


def test_the_law_has_components_by_row() -> None:
    mean = np.array([[0.0, 1.0, 0.5], [2.0, -1.0, -3.0]])
    var = np.array([[0.2, 0.1, 0.4], [0.0, 0.5, 2.0]])
    law = head(2).law(mean, var)
    assert isinstance(law, GaussianMixtureLaw)
    share = norm.cdf((mean[:, 2] + GATE[0]) / np.sqrt(PROBIT_SCALE**2 + var[:, 2]))
    np.testing.assert_allclose(law.weights, np.stack([share, 1.0 - share], axis=1), rtol=1e-6)
    np.testing.assert_allclose(law.means, mean[:, :2] + CENTRES[:2], rtol=1e-6)
    noise = np.square(SIGMAS[:2]) + SIGMA_FLOOR**2
    np.testing.assert_allclose(law.sds, np.sqrt(noise + var[:, :2]), rtol=1e-6)
    other = head(2).rescaled_law(mean, var, 10.0, 4.0)
    assert isinstance(other, GaussianMixtureLaw)
    np.testing.assert_allclose(other.quantile(0.9), 10.0 + 4.0 * law.quantile(0.9), rtol=1e-9)


@pytest.mark.parametrize("components", [2, 3, 5, 9])
def test_it_starts_with_equal_shares_of_a_standard_law(components: int) -> None:
    with jax.enable_x64(True):
        start = cast_floats(Mixture(components))
        assert start.rows == 2 * components - 1
        assert not start.point_only
        law = start.law(np.zeros((1, start.rows)), np.zeros((1, start.rows)))
    np.testing.assert_allclose(law.weights, 1.0 / components, rtol=1e-12)
    np.testing.assert_allclose(law.mean, 0.0, atol=1e-12)
    np.testing.assert_allclose(law.sd, 1.0, rtol=1e-6)
    assert repr(start) == f"Mixture({components})"
    assert f"{components} Gaussian components" in start.description


def test_training_starts_from_the_mixture_of_all_labels() -> None:
    """Two branches of unequal weight; labels of weight zero do not count."""
    rng = np.random.default_rng(0)
    y = np.where(rng.random(4000) < 0.3, -1.5, 0.7) + 0.2 * rng.normal(size=4000)
    weight = np.where(rng.random(4000) < 0.1, 0.0, 1.0)
    y[weight == 0.0] = 50.0
    with jax.enable_x64(True):
        start = cast_floats(Mixture(2)).started(jnp.asarray(y), jnp.asarray(weight))
        law = start.law(np.zeros((1, 3)), np.zeros((1, 3)))
    # The law of the constructor counts as two labels in a hundred.
    np.testing.assert_allclose(law.means, [[-1.5, 0.7]], atol=0.05)
    np.testing.assert_allclose(law.weights, [[0.3, 0.7]], atol=0.03)
    np.testing.assert_allclose(law.sds, 0.2, atol=0.05)
    same = Mixture(2)
    for labels, shares in (([3.0, 3.0], [1.0, 1.0]), ([1.0, 2.0], [0.0, 0.0])):
        assert same.started(jnp.asarray(labels), jnp.asarray(shares)) is same


@pytest.mark.parametrize("bad", [1, 0, -3, 2.5, "5", True])
def test_it_needs_two_components(bad: Any) -> None:
    with pytest.raises(ValueError, match=r"whole number of at least 2 components.*Gaussian"):
        unguarded(Mixture, bad)


@pytest.mark.slow
def test_no_component_shrinks_onto_one_label() -> None:
    """The density is bounded where a label is repeated."""
    y = jnp.asarray([0.0] * 20 + [-1.0, 0.7, 1.4, -0.3])
    fitted, line = Mixture(2).constant(y, jnp.ones(24))
    lines = jnp.broadcast_to(line, (24, 3))
    best = float(jnp.max(fitted.log_predictive(y, lines, jnp.zeros_like(lines))))
    assert best <= -math.log(SIGMA_FLOOR * math.sqrt(2.0 * math.pi)) + 1e-3


@pytest.mark.slow
def test_few_labels_give_a_warning() -> None:
    X, Y = windows()
    labels = {"state": np.where(np.arange(60) < 20, Y["state"], np.nan), "event": Y["event"]}
    with pytest.warns(UserWarning, match=r"task 'state': Mixture\(5\) learns more parameters than"):
        tiny({"state": Mixture(5), "event": Event()}).fit(X, labels)


@pytest.mark.slow
def test_it_fits_beside_an_event_with_folds_and_missing_labels(tmp_path: Path) -> None:
    X, Y = windows(80)
    state = 100.0 + 20.0 * Y["state"].astype(float)
    state[::6] = np.nan
    labels = {"x": state, "e": Y["event"]}
    model = Forecaster({"x": Mixture(3), "e": Event()}, preset=SHORT).fit(X, labels)
    found = model.evaluate(X, labels).loc["x"]
    assert found["labels"] == np.isfinite(state).sum()
    assert np.isfinite(found[["nll", "skill", "crps", "coverage_90"]].astype(float)).all()
    law = model.predict(X)["x"]
    assert isinstance(law, GaussianMixtureLaw)
    assert law.means.shape[1] == 3 * len(model.committee_["x"]) > 3
    lower, upper = law.interval(0.9)
    np.testing.assert_allclose(law.cdf(upper) - law.cdf(lower), 0.9, atol=1e-7)
    model.save(tmp_path / "model")
    again = load(tmp_path / "model").predict(X)["x"]
    np.testing.assert_array_equal(again.log_prob(110.0), law.log_prob(110.0))
    write_report(model, X, labels, tmp_path / "report.html")
    assert "mixture of 3 Gaussian components" in (tmp_path / "report.html").read_text()


def two_branches(n: int, seed: int) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """A value on one of two branches, and one that is skewed: log-gamma noise."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(-2.0, 2.0, size=(n, 2))
    side = np.where(rng.random(n) < norm.cdf(x[:, 1]), 1.0, -1.0)
    return x, {
        "branch": 5.0 + side * (1.5 + x[:, 0]) + 0.3 * rng.normal(size=n),
        "skewed": 3.0 * (x[:, 0] + np.log(rng.gamma(0.5, size=n))),
    }


@pytest.mark.slow
def test_each_head_scores_better_than_a_gaussian() -> None:
    """Mean log score on 3000 new rows, by more than four standard errors.

    Keys are fixed; a head that is no better would pass in one run of 30 000.
    """
    x, labels = two_branches(600, 1)
    new, truth = two_branches(3000, 2)
    heads = {"branch": Mixture(3), "skewed": SinhArcsinh()}
    own, plain = (
        Forecaster(tasks, preset=QUICK, steps=400).fit(x, labels).predict(new)
        for tasks in (heads, dict.fromkeys(heads, Gaussian()))
    )
    for name, y in truth.items():
        gain = np.clip(own[name].log_prob(y) - plain[name].log_prob(y), -5.0, 5.0)
        assert gain.mean() > 4.0 * gain.std() / math.sqrt(len(gain)), name


@pytest.mark.slow
def test_labels_on_a_grid_are_no_chance_to_be_narrow() -> None:
    """Whole numbers: the noise of a component is at least that of rounding, trained or not."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 1))
    y = np.round(2.0 * X[:, 0] + rng.normal(size=400))
    model = Forecaster({"y": Mixture(3)}, steps=300, verbose=False).fit(X, {"y": y})
    law = model.predict(X)["y"]
    normals = law.normals  # type: ignore[attr-defined]
    assert normals.sds.min() > 0.999 / np.sqrt(12.0)
    # A density can gain no more than the narrowest normal on the grid against an even one.
    assert law.log_prob(y).mean() < np.log(np.sqrt(12.0 / (2.0 * np.pi)))
    fine = Mixture(3).started(jnp.asarray(rng.normal(size=400)), jnp.ones(400))
    assert int(fine.floor) == 1_000
