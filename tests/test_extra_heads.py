"""Heavy tails, counts and detection limits: accuracy far out, and fits that find the truth.

The tests over the registry (tests/test_heads.py) hold for these heads too; here is what is
theirs alone.
"""

import itertools
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate, optimize, stats

from helpers import HEADS, as_data, cast_floats
from scrollmt import (
    Censored,
    Count,
    Forecaster,
    Gaussian,
    Poisson,
    StudentT,
    load,
)
from scrollmt._data.reading import read_rows
from scrollmt._data.scaling import Scales
from scrollmt._fitting.selection import train
from scrollmt._io.store import ModelFolderError
from scrollmt.backtests import stacked
from scrollmt.heads import AbstractHead
from scrollmt.presets import HELD_OUT, PAPER

# Accuracy


def log_t(y: float, df: float) -> Callable[[float], float]:
    """log density of y under a t of unit scale around a, as a function of a."""
    top = float(stats.t.logpdf(0.0, df))
    return lambda a: top - 0.5 * (df + 1.0) * math.log1p((y - a) ** 2 / df)


def log_count(y: float, dispersion: float) -> Callable[[float], float]:
    """log mass of y at log rate a, as a function of a."""
    if dispersion == 0.0:
        ways = -math.lgamma(y + 1.0)
        return lambda a: ways + y * a - math.exp(min(a, 700.0))
    size, shift = 1.0 / dispersion, math.log(dispersion)
    ways = math.lgamma(y + size) - math.lgamma(size) - math.lgamma(y + 1.0)

    def log_mass(a: float) -> float:
        x = a + shift
        softplus = max(x, 0.0) + math.log1p(math.exp(-abs(x)))
        return ways - size * softplus - y * (softplus - x)

    return log_mass


def log_integral(f: Callable[[float], float], mean: float, var: float, modes: list[float]) -> float:
    """log of the integral of exp(f(a)) N(a; mean, var) by QUADPACK, in pieces around the modes."""

    def log_integrand(a: float) -> float:
        return f(a) - 0.5 * (a - mean) ** 2 / var - 0.5 * math.log(2.0 * math.pi * var)

    sd = math.sqrt(var)
    found = []
    for start in (mean, *modes):
        found.append(
            optimize.minimize_scalar(
                lambda a: -log_integrand(a), bracket=(start - 0.3 * sd, start + 0.3 * sd)
            ).x
        )
    top = max(log_integrand(a) for a in found)
    near = {a + k * w for a in found for w in (sd, 1.0, 1e-2) for k in (-9, -3, -1, 0, 1, 3, 9)}
    low, high = min(*near, mean - 40.0 * sd), max(*near, mean + 40.0 * sd)
    edges = sorted({low, high, *near})
    total = sum(
        integrate.quad(lambda a: math.exp(log_integrand(a) - top), a, b, epsabs=0, epsrel=1e-11)[0]
        for a, b in itertools.pairwise(edges)
    )
    return top + math.log(total)


def scores(head: AbstractHead, y: Any, mean: Any, var: Any) -> np.ndarray:
    real = jnp.result_type(float)
    run = eqx.filter_jit(lambda h, *a: h.log_predictive(*a))
    return np.asarray(run(cast_floats(head), *(jnp.asarray(a, real) for a in (y, mean, var))))


@pytest.mark.filterwarnings("ignore::scipy.integrate.IntegrationWarning")
@pytest.mark.parametrize("df", [2.05, 4.0, 30.0, 300.0])
def test_student_scores_agree_with_quadpack(df: float) -> None:
    """From the middle to a million scales out, belief narrow or wide: 1e-6 nats."""
    labels = [0.0, 1.0, 5.0, 40.0, 1000.0, 1e6]
    grid = np.array([(y, v) for y in labels for v in (1e-4, 0.3, 4.0, 100.0)])
    with jax.enable_x64(True):
        got = scores(StudentT(df, 1.0), grid[:, 0], np.zeros(len(grid)), grid[:, 1])
    want = [log_integral(log_t(y, df), 0.0, v, [y]) for y, v in grid]
    np.testing.assert_allclose(got, want, rtol=1e-9, atol=1e-6)


@pytest.mark.filterwarnings("ignore::scipy.integrate.IntegrationWarning")
@pytest.mark.parametrize("dispersion", [0.0, 1e-4, 0.4, 8.0])
def test_count_scores_agree_with_quadpack(dispersion: float) -> None:
    """Counts up to a million, rates that are wrong by e^10: 1e-7 nats, 1e-5 at a variance of 4."""
    grid = np.array(
        [
            (y, m, v)
            for y in (0.0, 1.0, 7.0, 300.0, 1e6)
            for m in (-4.0, 1.0, 13.0)
            for v in (1e-4, 0.1, 1.0, 4.0)
        ]
    )
    with jax.enable_x64(True):
        got = scores(Poisson() if dispersion == 0.0 else Count(dispersion), *grid.T)
    want = np.array(
        [log_integral(log_count(y, dispersion), m, v, [math.log(y + 0.5)]) for y, m, v in grid]
    )
    wide = grid[:, 2] > 1.0
    np.testing.assert_allclose(got[~wide], want[~wide], rtol=1e-9, atol=1e-7)
    np.testing.assert_allclose(got[wide], want[wide], rtol=1e-9, atol=1e-5)


FAR = [
    (StudentT(3.0, 0.5), [0.0, 50.0, -1e6, 1e12], [0.0, 0.3, -5.0, 2.0]),
    (StudentT(200.0, 2.0), [0.0, 50.0, -1e6, 1e12], [0.0, 0.3, -5.0, 2.0]),
    (Poisson(), [0.0, 3.0, 1e6, 0.0], [-60.0, 30.0, -5.0, 40.0]),
    (Count(2.0), [0.0, 3.0, 1e6, 0.0], [-60.0, 30.0, -5.0, 40.0]),
    (Count(1e-6), [0.0, 3.0, 1e6, 0.0], [-60.0, 30.0, -5.0, 40.0]),
]


@pytest.mark.parametrize(("head", "y", "mean"), FAR, ids=lambda v: repr(v)[:12])
def test_scores_and_gradients_hold_far_out_in_float32(
    head: AbstractHead, y: list[float], mean: list[float]
) -> None:
    """Where a naive score overflows: finite, and within a thousandth of float64."""

    @eqx.filter_jit
    def run(head: AbstractHead, *given: Any) -> Any:
        def total(arguments: Any) -> Any:
            model, m, v = arguments
            out = model.log_predictive(given[0], m, v)
            return jnp.sum(out), out

        return eqx.filter_value_and_grad(total, has_aux=True)((head, *given[1:]))

    for var in (0.0, 1e-6, 0.5, 100.0):
        found = []
        for x64 in (True, False):
            with jax.enable_x64(x64):
                real = jnp.result_type(float)
                given = [jnp.asarray(a, real) for a in (y, mean, np.full(4, var))]
                (_, out), slopes = run(cast_floats(head), *given)
                leaves = jax.tree.leaves(eqx.filter((out, slopes), eqx.is_inexact_array))
                found.append([np.asarray(leaf, float) for leaf in leaves])
        for double, single in zip(*found, strict=True):
            assert np.isfinite(double).all()
            assert np.isfinite(single).all()
            if var <= 0.5:  # a wider belief reaches rates that no float32 holds
                np.testing.assert_allclose(single, double, rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize("name", ["student", "poisson", "count"])
def test_the_curvature_of_a_point_estimate_is_that_of_the_likelihood(name: str) -> None:
    """Second derivatives, as a curvature belief takes them."""
    case = HEADS[name]
    y, a = case.near(), case.mean(np.random.default_rng(3))
    with jax.enable_x64(True):
        head = cast_floats(case.make())
        run = jax.grad(jax.grad(lambda m, label: head.log_predictive(label, m, 0.0 * m)))
        found = jax.jit(jax.vmap(run))(jnp.asarray(a), jnp.asarray(y))
    step = 1e-3
    at = [case.log_likelihood(y, a + k * step) for k in (-2, -1, 0, 1, 2)]
    second = (16.0 * (at[3] + at[1]) - (at[4] + at[0]) - 30.0 * at[2]) / (12.0 * step**2)
    np.testing.assert_allclose(found, second, rtol=1e-4, atol=1e-6)


# Labels and units


def test_counts_are_read_as_they_are() -> None:
    y, seen = Count().read_labels("rides", [3, None, 0, float("nan"), 12])
    np.testing.assert_array_equal(seen, [True, False, True, False, True])
    np.testing.assert_array_equal(y[seen], [3.0, 0.0, 12.0])
    for bad in (-1, 0.5, float("inf")):
        with pytest.raises(ValueError, match=r"task 'rides': row 2 is .*counts are 0, 1, 2"):
            Poisson().read_labels("rides", [0, 1, bad])


def test_detection_limits_are_read_as_bounds() -> None:
    inf = math.inf
    y, seen = Censored(0.5, 9.0).read_labels("lead", [0.5, 0.1, 3.0, None, 9.0, inf, -inf])
    np.testing.assert_array_equal(seen, [True, True, True, False, True, True, True])
    want = [[-inf, 0.5], [-inf, 0.5], [3.0, 3.0], [9.0, inf], [9.0, inf], [-inf, 0.5]]
    np.testing.assert_array_equal(y[seen], want)
    # limits of its own for every row
    given = np.array([[-inf, 0.2], [1.0, 1.0], [4.0, inf], [np.nan, 2.0], [-inf, inf], [1.0, 2.0]])
    y, seen = Censored().read_labels("lead", given)
    np.testing.assert_array_equal(seen, [True, True, True, False, False, True])
    np.testing.assert_array_equal(y[seen], given[seen])
    with pytest.raises(ValueError, match=r"task 'lead': row 1 is -inf, but there is no limit"):
        Censored(upper=9.0).read_labels("lead", [1.0, -inf])
    with pytest.raises(ValueError, match=r"task 'lead': the bounds of row 1 are \[2.0, 1.0\]"):
        Censored().read_labels("lead", [[0.0, 1.0], [2.0, 1.0]])


def test_bad_settings_are_refused() -> None:
    for bad in (2.0, 0.0, math.inf, math.nan):
        with pytest.raises(ValueError, match="df must be > 2"):
            StudentT(bad)
    with pytest.raises(ValueError, match="scale_obs must be > 0"):
        StudentT(3.0, 0.0)
    for bad in (0.0, -1.0, math.nan):
        with pytest.raises(ValueError, match="dispersion must be > 0"):
            Count(bad)
    with pytest.raises(ValueError, match=r"lower = 2.0 must be below upper = 1.0"):
        Censored(2.0, 1.0)
    with pytest.raises(ValueError, match="upper = inf is no limit"):
        Censored(upper=math.inf)
    shown = [repr(h) for h in (StudentT(), Count(), Poisson(), Censored(lower=0.5), Censored())]
    assert shown == ["StudentT()", "Count()", "Poisson()", "Censored(lower=0.5)", "Censored()"]


def test_targets_are_scaled_where_that_makes_sense() -> None:
    """Counts stay counts; an outlier does not set the unit of a t; limits go along."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(400, 2))
    value = 50.0 + 4.0 * rng.normal(size=400)
    value[7] = 1e9
    heads = {"t": StudentT(), "n": Count(), "c": Censored(lower=48.0)}
    count = rng.poisson(5.0, size=400)
    rows = read_rows(x, {"t": value, "n": count, "c": np.clip(value, 0, 99)}, None, heads)
    scales = Scales.of(rows, heads, scale_targets=True)
    assert set(scales.offset) == {"t", "c"}
    assert scales.offset["t"] == pytest.approx(50.0, abs=1.0)
    assert scales.scale["t"] == pytest.approx(4.0, rel=0.2)
    data = scales.data(rows, heads)
    np.testing.assert_array_equal(data.y["n"], count)
    beyond = np.asarray(data.y["c"])[np.clip(value, 0, 99) <= 48.0]
    limit = (48.0 - scales.offset["c"]) / scales.scale["c"]
    np.testing.assert_allclose(beyond, np.tile([-math.inf, limit], (len(beyond), 1)), rtol=1e-6)
    # a law in the user's units has the limit that the user gave, to the last bit
    law = heads["c"].rescaled_law(np.zeros(3), np.ones(3), scales.offset["c"], scales.scale["c"])
    assert law.lower == 48.0
    # where most labels are one value, there is no interquartile range to go by
    tied = StudentT().target_scale(np.array([1.0] * 8 + [0.0, 3.0]), np.ones(10))
    assert tied[1] == pytest.approx(np.std([1.0] * 8 + [0.0, 3.0]))


def test_the_base_rate_starts_at_the_mean_count() -> None:
    y, weight = jnp.array([0.0, 10.0, 99.0]), jnp.array([1.0, 3.0, 0.0])
    for head in (Count(), Poisson()):
        assert float(jnp.exp(head.started(y, weight).log_rate)) == pytest.approx(7.5, rel=1e-6)
        assert head.started(jnp.zeros(3), weight) is head
    assert StudentT().started(y, weight).df == StudentT().df


# Fits that find the truth

QUICK = replace(
    HELD_OUT,
    candidates=HELD_OUT.candidates[2:3],
    starts=1,
    committee=1,
    schedule=replace(HELD_OUT.schedule, steps=450, patience=20),
)
LIMIT = 9.5


def world(n: int, key: int) -> tuple[np.ndarray, dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Inputs, labels as they are recorded, and the truth behind them."""
    rng = np.random.default_rng(key)
    x = rng.normal(size=(n, 2))
    line = np.sin(x[:, 0]) + 0.5 * x[:, 1]
    rate = np.exp(1.0 + line)
    value = 10.0 + 2.0 * (line + 0.4 * rng.normal(size=n))
    labels = {
        "tails": 100.0 + 5.0 * (line + 0.3 * rng.standard_t(3.0, size=n)),
        "rides": rng.negative_binomial(1.0 / 0.5, 1.0 / (1.0 + 0.5 * rate)),
        "calls": rng.poisson(rate),
        "lead": np.maximum(value, LIMIT),
    }
    return x, labels, {"line": line, "rate": rate, "value": value}


@pytest.fixture(scope="module")
def fits() -> dict[str, Forecaster]:
    x, labels, _ = world(600, 1)
    heads = {"tails": StudentT(), "rides": Count(), "calls": Poisson(), "lead": Censored(LIMIT)}
    plain = dict.fromkeys(heads, Gaussian())
    return {
        kind: Forecaster(tasks, preset=QUICK, seed=0).fit(x, labels)
        for kind, tasks in (("own", heads), ("gaussian", plain))
    }


@pytest.mark.slow
def test_each_head_scores_better_than_a_gaussian(fits: dict[str, Forecaster]) -> None:
    """Mean log score on 3000 new windows, by more than four standard errors.

    A Gaussian law of counts gets the mass of the whole unit around each; of values below the
    limit, which are known here, both are asked for the density. Keys are fixed; a head that is no
    better would pass in one run of 30 000.
    """
    x, labels, truth = world(3000, 2)
    own, plain = (fits[kind].predict(x) for kind in ("own", "gaussian"))

    def unit_mass(name: str) -> np.ndarray:
        law, y = plain[name], labels[name]
        low, high = (law.standardise(y + half) for half in (-0.5, 0.5))
        return np.log(np.maximum(stats.norm.cdf(high) - stats.norm.cdf(low), 1e-300))

    gains = {
        "tails": own["tails"].log_prob(labels["tails"]) - plain["tails"].log_prob(labels["tails"]),
        "rides": own["rides"].log_prob(labels["rides"]) - unit_mass("rides"),
        "calls": own["calls"].log_prob(labels["calls"]) - unit_mass("calls"),
        "lead": own["lead"].latent.log_prob(truth["value"])
        - plain["lead"].log_prob(truth["value"]),
    }
    for name, gains_of in gains.items():
        gain = np.clip(gains_of, -5.0, 5.0)  # no single outlier decides
        se = gain.std() / math.sqrt(len(gain))
        assert gain.mean() > 4.0 * se, f"{name}: {gain.mean():.4f} +- {se:.4f}"


@pytest.mark.slow
def test_each_head_comes_close_to_the_true_law(fits: dict[str, Forecaster]) -> None:
    """Within 0.06 nats of the truth; parameters, spreads and coverage near those of the world."""
    x, labels, truth = world(3000, 2)
    laws = fits["own"].predict(x)
    line, rate = truth["line"], truth["rate"]
    size = 1.0 / 0.5
    best = {
        "tails": stats.t.logpdf(labels["tails"], 3.0, 100.0 + 5.0 * line, 5.0 * 0.3),
        "rides": stats.nbinom.logpmf(labels["rides"], size, size / (size + rate)),
        "calls": stats.poisson.logpmf(labels["calls"], rate),
    }
    for name, score in best.items():
        assert score.mean() - laws[name].log_prob(labels[name]).mean() < 0.06, name
    latent = laws["lead"].latent
    known = stats.norm.logpdf(truth["value"], 10.0 + 2.0 * line, 0.8)
    assert known.mean() - latent.log_prob(truth["value"]).mean() < 0.1
    heads = {name: task.head for name, task in fits["own"].model_.tasks.items()}
    assert 2.2 < float(heads["tails"].df) < 6.0
    # The belief about the rate spreads counts as well; what shows is the sum of both.
    rides = laws["rides"]
    spread = (1.0 + rides.dispersion) * np.exp(rides.latent_var) - 1.0
    assert 0.35 < float(np.median(spread)) < 0.65
    table = fits["own"].evaluate(x, labels)
    assert (table["coverage_error"] < 0.05).all(), table["coverage_error"]
    assert table.drop(index="lead").notna().all(axis=None)
    assert table.loc["lead"].drop(["rmse", "mae"]).notna().all()


@pytest.mark.slow
def test_a_fit_survives_storage_bit_by_bit(fits: dict[str, Forecaster], tmp_path: Path) -> None:
    x, labels, _ = world(50, 3)
    fits["own"].save(tmp_path / "model")
    again = load(tmp_path / "model")
    assert repr(again.tasks) == repr(fits["own"].tasks)
    for name, law in fits["own"].predict(x).items():
        np.testing.assert_array_equal(
            law.log_prob(labels[name]), again.predict(x)[name].log_prob(labels[name])
        )


class Mine(Gaussian):
    """A head of the user's own, close enough to Gaussian to be mistaken for it."""


class Other(Gaussian):
    """A head of the same structure that computes something else."""

    def log_predictive(self, y: Any, mean: Any, var: Any) -> Any:
        return super().log_predictive(y, mean + 1.0, var)


@pytest.mark.slow
def test_heads_of_ones_own_are_given_again(tmp_path: Path) -> None:
    x, labels, _ = world(60, 4)
    tiny = replace(QUICK, schedule=replace(QUICK.schedule, steps=15))
    model = Forecaster({"y": Mine()}, preset=tiny, belief="none").fit(x, labels["tails"])
    model.save(tmp_path / "model")
    with pytest.raises(ModelFolderError, match=r"'y': the head is a Mine.*heads="):
        load(tmp_path / "model")
    with pytest.raises(ModelFolderError, match=r"'y': the head is a Mine"):
        load(tmp_path / "model", heads={"y": Gaussian()})
    by_class = load(tmp_path / "model", custom=[Mine])
    np.testing.assert_array_equal(by_class.predict(x)["y"].mean, model.predict(x)["y"].mean)
    again = load(tmp_path / "model", heads={"y": Mine()})
    np.testing.assert_array_equal(again.predict(x)["y"].mean, model.predict(x)["y"].mean)
    Other.__name__ = "Mine"
    with pytest.raises(ModelFolderError, match="computes something else"):
        load(tmp_path / "model", heads={"y": Other()})


@pytest.mark.slow
def test_every_origin_starts_from_its_own_labels() -> None:
    """Two training sets in one batch: no base rate starts from the other's counts."""
    x = np.random.default_rng(0).normal(size=(12, 2))
    counts = np.tile([1.0, 3.0], 6), np.tile([150.0, 250.0], 6)
    data = stacked([as_data(x, {"rides": count}) for count in counts])
    still = replace(PAPER.candidates[0], learning_rate=0.0)
    preset = replace(PAPER, candidates=(still,), schedule=replace(PAPER.schedule, steps=1))
    keys = [jax.random.key(seed) for seed in (0, 1)]
    runs = train(preset, {"rides": Poisson()}, belief="none", train=data, valid=data, keys=keys)
    rates = [float(jnp.exp(run.members[0].tasks["rides"].head.log_rate)) for run in runs]
    np.testing.assert_allclose(rates, [2.0, 200.0], rtol=1e-5)
