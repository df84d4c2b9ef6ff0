"""Recalibration: maps of laws, what they cost and recover, their guarantee, and the Forecaster."""

import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import expit, ndtr
from sklearn.isotonic import IsotonicRegression

from scrollmt import Categorical, Event, Forecaster, Gaussian, Ordinal, load
from scrollmt._data import holdout
from scrollmt._fitting import members, training
from scrollmt._fitting.selection import joined
from scrollmt._scoring import recalibration
from scrollmt._scoring.recalibration import Evidence, learned, statement
from scrollmt.laws import (
    CategoricalLaw,
    CensoredLaw,
    CountLaw,
    EventLaw,
    GaussianLaw,
    GaussianMixtureLaw,
    Law,
    OrderedMap,
    OrdinalLaw,
    PitMap,
    RealLaw,
    RecalibratedLaw,
    UnorderedMap,
    mix,
)
from scrollmt.presets import DEFAULT, Preset

MAP = PitMap((-2.0, -0.5, 0.3, 1.5), (-1.2, -0.4, 0.2, 0.9))
FRESH = 4_000


def evidence_of(law: Any, y: np.ndarray) -> Evidence:
    return Evidence(law.calibrated_by, statement(law, y), y, np.ones(len(y)))


def gaussian(n: int, sd: float, seed: int) -> tuple[GaussianLaw, np.ndarray]:
    """Laws of a value whose true sd is one."""
    rng = np.random.default_rng(seed)
    mean = rng.normal(size=n)
    return GaussianLaw(mean, np.full(n, sd)), mean + rng.normal(size=n)


def event(n: int, slope: float, shift: float, seed: int) -> tuple[EventLaw, np.ndarray]:
    """Laws of an event with log odds s that are said to be slope * s + shift."""
    rng = np.random.default_rng(seed)
    s = 1.5 * rng.normal(size=n) - 1.0
    said = slope * s + shift
    table = np.stack([-np.logaddexp(0.0, said), -np.logaddexp(0.0, -said)], axis=1)
    return EventLaw(table), (rng.random(n) < expit(s)).astype(float)


def gain(law: Any, y: np.ndarray, labels: int) -> float:
    """Nats a label on fresh labels, by a map from the first ones."""
    found = learned(evidence_of(law[:labels], y[:labels]))
    fresh = law[labels:]
    return float(np.mean(found.of(fresh).log_prob(y[labels:]) - fresh.log_prob(y[labels:])))


# The law


INSIDE: dict[str, RealLaw] = {
    "gaussian": GaussianLaw([-1.0, 0.4], [0.7, 2.0]),
    "mixture": GaussianMixtureLaw([[-1.0, 1.0], [0.0, 3.0]], [[0.5, 1.0], [1.0, 0.3]]),
    "censored": CensoredLaw(GaussianLaw([-0.3, 0.4], [0.7, 2.0]), -1.0, 1.0),
    "count": CountLaw([0.1, 1.0], [0.1, 0.3], 0.2),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", INSIDE)
def test_cdf_quantiles_masses_and_moments_are_those_of_one_law(name: str) -> None:
    inside = INSIDE[name]
    law = RecalibratedLaw(inside, MAP)
    for p in (1e-8, 0.03, 0.5, 0.9, 1.0 - 1e-9):
        at = law.quantile(p)
        below, upto = law.cdf_pair(at)
        assert (below <= p * (1 + 1e-7)).all()
        assert (upto >= p * (1 - 1e-7)).all()
        assert np.allclose(law.sf(at), 1.0 - upto, atol=1e-12)
    draws = law.sample(2_000, seed=3)
    assert np.allclose(draws.mean(axis=0), law.mean, atol=5.0 * law.sd.max() / 2_000**0.5)
    assert np.allclose(draws.std(axis=0), law.sd, rtol=0.1)
    moved = law.affine(2.0, 3.0)
    assert np.allclose(moved.quantile(0.3), 2.0 + 3.0 * law.quantile(0.3))
    assert np.allclose(moved.mean, 2.0 + 3.0 * law.mean, rtol=1e-6)
    assert np.isnan(law.log_prob(np.nan)).all()
    assert np.isnan(law.cdf(np.nan)).all()


def test_density_and_moments_agree_with_quadrature() -> None:
    law = RecalibratedLaw(GaussianLaw([0.3], [0.7]), MAP)
    kinks = [0.3 + 0.7 * at for at in MAP.at]

    def integral(of: Any) -> float:
        density = lambda y: of(y) * np.exp(law.log_prob(y)[0])  # noqa: E731
        return float(quad(density, -15.0, 15.0, points=kinks, epsabs=1e-12)[0])

    mean = integral(lambda y: y)
    assert integral(lambda y: 1.0) == pytest.approx(1.0, abs=1e-9)
    assert law.mean[0] == pytest.approx(mean, abs=1e-5)
    assert law.sd[0] ** 2 == pytest.approx(integral(lambda y: (y - mean) ** 2), rel=1e-4)
    upto = quad(lambda y: np.exp(law.log_prob(y)[0]), -15.0, 0.1, points=kinks[:2])[0]
    assert law.cdf(0.1)[0] == pytest.approx(upto, abs=1e-9)


@pytest.mark.slow
def test_masses_of_counts_add_up_and_give_the_moments() -> None:
    mild = PitMap((-1.0, 0.1, 1.2), (-0.9, 0.2, 1.1))
    law, k = RecalibratedLaw(INSIDE["count"], mild), np.arange(400.0)
    for row in (0, 1):
        mass = np.exp(law[[row] * len(k)].log_prob(k))
        assert mass.sum() == pytest.approx(1.0, abs=1e-5)
        mean = k @ mass
        assert law.mean[row] == pytest.approx(mean, rel=5e-3)
        assert law.sd[row] ** 2 == pytest.approx(k**2 @ mass - mean**2, rel=2e-2)


def test_a_halving_map_gives_a_gaussian_law_of_twice_the_sd_in_the_far_tails_too() -> None:
    law = RecalibratedLaw(GaussianLaw([1.0], [0.5]), PitMap((-1.0, 1.0), (-0.5, 0.5)))
    wide = GaussianLaw([1.0], [1.0])
    y = np.array([-15.0, -3.0, 1.0, 9.0, 17.0])
    laws, same = law[[0] * 5], wide[[0] * 5]
    assert np.allclose(laws.log_prob(y), same.log_prob(y), rtol=1e-9)
    assert np.allclose(laws.sf(y), same.sf(y), rtol=1e-7)
    levels = [1e-12, 0.2, 0.999, 1.0 - 1e-11]
    assert np.allclose(law.quantile(levels), wide.quantile(levels), rtol=1e-6)
    assert (law.mean[0], law.sd[0]) == pytest.approx((1.0, 1.0), rel=1e-4)


def test_the_identity_leaves_a_law_as_it_is_and_mixtures_are_exact() -> None:
    law = INSIDE["gaussian"]
    assert PitMap().of(law) is law
    assert np.allclose(RecalibratedLaw(law, PitMap()).log_prob(0.7), law.log_prob(0.7))
    both = mix([law, RecalibratedLaw(law, MAP)])
    assert np.allclose(both.cdf(0.2), 0.5 * (law.cdf(0.2) + RecalibratedLaw(law, MAP).cdf(0.2)))


@pytest.mark.parametrize(
    "bad",
    [
        {"at": (0.0,), "to": (0.0,)},
        {"at": (0.0, 1.0), "to": (1.0, 1.0)},
        {"at": (0.0, np.inf), "to": (0.0, 1.0)},
        {"ranks": (2, 1), "lower": (0.0, 0.0), "upper": (0.0, 0.0)},
    ],
)
def test_maps_that_are_none_are_refused(bad: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="PitMap: need"):
        PitMap(**bad)


# Maps of classes


def test_maps_of_classes_give_masses_that_are_positive_and_sum_to_one() -> None:
    table = np.log(np.random.default_rng(0).dirichlet([0.3, 1.0, 0.1, 2.0], size=300))
    # Cuts whose maps cross each other.
    crossing = OrderedMap(((-1.0, 1.0), (0.0,), (0.0,)), ((-4.0, 0.0), (3.0,), (1.0,)))
    for found in (crossing, UnorderedMap(-0.4, (0.1, 2.0, 0.0, -1.0))):
        after = np.exp(found.log_probs(table))
        assert np.allclose(after.sum(axis=1), 1.0, atol=1e-12)
        assert (after > 0.0).all()


def test_ordered_maps_are_those_of_the_formula() -> None:
    law, _ = event(50, 1.0, 0.0, 0)
    found = OrderedMap(((-2.0, 0.0),), ((-1.0, 0.5),))
    s = np.log(law.prob / (1.0 - law.prob))
    expected = s + np.interp(s, [-2.0, 0.0], [1.0, 0.5])
    assert np.allclose(found.of(law).prob, expit(expected))


def test_blocks_are_those_of_isotonic_regression() -> None:
    law, y = event(400, 2.0, 0.0, 1)
    s = np.log(law.prob / (1.0 - law.prob))
    level = IsotonicRegression().fit_transform(s, y)
    at, _ = recalibration._isotonic(s, y, np.ones(len(y)))
    assert np.allclose(at, [s[level == one].mean() for one in np.unique(level)])


# What it costs, what it recovers


def test_on_calibrated_laws_it_costs_at_most_two_thousandths_of_a_nat() -> None:
    of_values = [gain(*gaussian(2_000 + FRESH, 1.0, seed), 2_000) for seed in range(8)]
    of_events = [gain(*event(2_000 + FRESH, 1.0, 0.0, seed), 2_000) for seed in range(8)]
    assert np.mean(of_values) > -0.002
    assert np.mean(of_events) > -0.002


def test_on_laws_with_half_the_sd_it_recovers_most_of_the_loss() -> None:
    # KL(N(0, 1) || N(0, 1/4)) = log(1/2) + 2 - 1/2
    loss = np.log(0.5) + 1.5
    found = [gain(*gaussian(2_000 + FRESH, 0.5, seed), 2_000) for seed in range(4)]
    assert 0.95 * loss < np.mean(found) < 1.05 * loss


def test_on_events_that_are_too_sure_it_recovers_most_of_the_loss() -> None:
    gained, possible = [], []
    for seed in range(4):
        law, y = event(2_000 + FRESH, 2.0, 0.5, seed)
        true, _ = event(2_000 + FRESH, 1.0, 0.0, seed)
        gained.append(gain(law, y, 2_000))
        fresh = slice(2_000, None)
        possible.append(np.mean((true.log_prob(y) - law.log_prob(y))[fresh]))
    assert 0.8 * np.mean(possible) < np.mean(gained) < np.mean(possible)


@pytest.mark.parametrize("kind", [OrdinalLaw, CategoricalLaw])
def test_several_classes_recover_most_of_the_loss(kind: Any) -> None:
    rng = np.random.default_rng(2)
    n = 2_000 + FRESH
    cdf = expit(2.0 * (np.array([-1.0, 0.0, 1.0]) - rng.normal(size=(n, 1))))
    probs = np.diff(np.pad(cdf, ((0, 0), (1, 1)), constant_values=((0, 0), (0.0, 1.0))), axis=1)
    y = (rng.random((n, 1)) > np.cumsum(probs, axis=1)[:, :-1]).sum(axis=1).astype(float)
    sure = probs**2 / (probs**2).sum(axis=1, keepdims=True)
    possible = np.mean(kind(np.log(probs)).log_prob(y) - kind(np.log(sure)).log_prob(y))
    assert gain(kind(np.log(sure)), y, 2_000) > 0.7 * possible > 0.05


def test_few_labels_leave_the_identity() -> None:
    assert learned(evidence_of(*gaussian(15, 0.2, 0))).identity
    assert learned(evidence_of(*event(40, 3.0, 0.0, 0))).identity


def test_weights_count_and_their_unit_does_not() -> None:
    law, y = gaussian(300, 0.5, 0)
    one = evidence_of(law, y)
    found = recalibration._number_map(one)
    same = recalibration._number_map(replace(one, weight=np.full(300, 7.0)))
    assert np.allclose(same.at, found.at)
    high = recalibration._number_map(replace(one, weight=np.where(y > law.mean, 2.0, 1.0)))
    assert (np.array(high.at) > np.array(found.at)).all()


# Conformal intervals


@pytest.mark.slow
def test_conformal_intervals_cover_what_they_guarantee_whatever_the_law() -> None:
    level, labels = 0.8, 29
    held = []
    for seed in range(150):
        law, y = gaussian(labels + 20, 0.3, seed)
        found: Any = learned(evidence_of(law[:labels], y[:labels]), conformal=True)
        changed = found.of(law[labels:])
        assert isinstance(changed, RecalibratedLaw)
        lower, upper = changed.interval(level)
        inside = (y[labels:] >= lower) & (y[labels:] <= upper)
        assert np.array_equal(inside, changed.covered(y[labels:], level))
        held.append(inside.mean())
    # Exactly 0.8 with 29 labels, three of them below and three above; the law alone holds 0.3.
    assert np.mean(held) == pytest.approx(0.8, abs=4.0 * np.std(held) / 150**0.5)


def test_conformal_ends_are_order_statistics_rounded_outwards() -> None:
    law, y = gaussian(39, 1.0, 0)
    scores = np.sort(statement(law, y)[:, 1])
    found: Any = learned(evidence_of(law, y), conformal=True)
    one = found.of(GaussianLaw([0.0], [1.0]))
    # (39 + 1) * 0.05 = 2 of either side; 0.88 asks for 2.4 and gets 2.
    for level in (0.9, 0.88):
        lower, upper = one.interval(level)
        assert (lower[0], upper[0]) == pytest.approx((scores[1], scores[-2]))


def test_too_few_labels_for_a_level_give_the_support_and_a_warning() -> None:
    law, y = gaussian(12, 1.0, 0)
    found: Any = learned(evidence_of(law, y), conformal=True)
    changed = found.of(law)
    with pytest.warns(UserWarning, match="12 labels guarantee .* up to the level 0.8462"):
        lower, upper = changed.interval(0.9)
    assert np.isneginf(lower).all()
    assert np.isposinf(upper).all()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert np.isfinite(changed.interval(0.8)).all()


def test_conformal_intervals_of_counts_hold_at_least_their_level() -> None:
    rng = np.random.default_rng(4)
    inside = CountLaw(np.zeros(600), np.full(600, 0.2), 0.3)
    y = rng.poisson(2.5, size=600).astype(float)
    found: Any = learned(evidence_of(inside[:300], y[:300]), conformal=True)
    changed = found.of(inside[300:])
    lower, upper = changed.interval(0.8)
    assert np.mean((y[300:] >= lower) & (y[300:] <= upper)) >= 0.75


# The Forecaster


TASKS = {"value": Gaussian(), "event": Event(), "band": Ordinal(3), "kind": Categorical(3)}


def small() -> Preset:
    shape = replace(DEFAULT.candidates[0].architecture, widths=(8,))
    candidates = tuple(replace(c, architecture=shape) for c in DEFAULT.candidates[:1])
    return replace(DEFAULT, candidates=candidates, schedule=replace(DEFAULT.schedule, steps=45))


def rows(count: int = 120) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(count, 2))
    value = X[:, 0] + 0.5 * rng.normal(size=count)
    band = np.digitize(value, [-0.5, 0.5]).astype(float)
    happened = np.where(rng.random(count) < 0.2, np.nan, value > 0.4)
    return X, {"value": 10.0 * value + 3.0, "event": happened, "band": band, "kind": 2.0 - band}


def forecaster(**changes: Any) -> Forecaster:
    belief = {"value": "diag", "event": "diag", "band": "diag", "kind": "none"}
    return Forecaster(TASKS, preset=small(), belief=belief, seed=1, **changes)


@pytest.mark.slow
@pytest.mark.parametrize("validation", [3, 0.4])
def test_evidence_is_what_members_said_of_rows_that_did_not_train_them(validation: Any) -> None:
    X, Y = rows()
    model = forecaster(validation=validation)
    ready = model._ready(X, Y, None)
    chosen = joined(training.trained(model, ready, [1]), [1])
    model._settle(ready, chosen)
    found = recalibration.evidence(ready, chosen, model._mixing())
    seen = ready.judged.weights["event"] > 0
    assert len(found["event"]) == seen.sum() < len(found["value"]) == len(ready.judged.x)
    # The out-of-fold log scores come from another way through the code.
    table = found["band"].said
    picked = np.take_along_axis(table, found["band"].labels.astype(int)[:, None], axis=1)[:, 0]
    if chosen.out_of_fold is not None:
        assert chosen.fold_of is not None
        assert set(chosen.fold_of) == {0, 1, 2}
        assert np.allclose(picked, chosen.out_of_fold["band"], atol=1e-4)
    else:
        laws = _validated(model, ready, chosen)
        assert np.allclose(picked, laws["band"].log_prob(ready.judged.labels["band"]))
        u = laws["value"].cdf(ready.judged.labels["value"])
        assert np.allclose(ndtr(found["value"].said), u[:, None], atol=1e-9)


def _validated(model: Forecaster, ready: holdout.Ready, chosen: Any) -> dict[str, Any]:
    x = model.scales_.inputs(ready.judged.x)
    return members.laws(model.tasks_, chosen.validated, model._mixing(), model.scales_, x)


@pytest.fixture(scope="module")
def conformal() -> Forecaster:
    return forecaster(calibrate="conformal").fit(*rows())


@pytest.mark.slow
def test_a_forecaster_applies_its_maps_and_keeps_them(
    conformal: Forecaster, tmp_path: Path
) -> None:
    X, Y = rows()
    assert set(conformal.calibration_) == set(TASKS)
    assert conformal.calibration_["value"].labels == 120
    plain = members.laws(
        TASKS, conformal.members_, conformal._mixing(), conformal.scales_, conformal._inputs(X)
    )
    laws = conformal.predict(X)
    for name, found in conformal.calibration_.items():
        changed: Any = found
        expected: Law = changed.of(plain[name])
        assert np.array_equal(laws[name].log_prob(Y[name]), expected.log_prob(Y[name]), True)
    value: Any = laws["value"]
    lower, upper = value.interval(0.9)
    assert 0.85 < np.mean((Y["value"] >= lower) & (Y["value"] <= upper)) <= 1.0
    conformal.save(tmp_path / "model")
    again = load(tmp_path / "model")
    assert again.calibration_ == conformal.calibration_
    assert again.calibrate == "conformal"
    same: Any = again.predict(X)["value"]
    assert np.array_equal(same.interval(0.9), (lower, upper))
    assert again.evaluate(X, Y).equals(conformal.evaluate(X, Y))


def test_onnx_refuses_a_recalibrated_model(conformal: Forecaster) -> None:
    pytest.importorskip("onnx")
    from scrollmt.export import to_onnx

    with pytest.raises(ValueError, match="calibrate='conformal' has no ONNX form"):
        to_onnx(conformal)


@pytest.mark.slow
def test_bad_settings_are_refused_and_few_labels_named() -> None:
    X, Y = rows(40)
    with pytest.raises(ValueError, match="calibrate must be one of 'none', 'isotonic', 'conf"):
        forecaster(calibrate="platt").fit(X, Y)
    with pytest.raises(ValueError, match="joint= needs them Gaussian together"):
        forecaster(calibrate="isotonic", joint=["value", "event"]).fit(X, Y)
    value = np.where(np.arange(40) < 15, Y["value"], np.nan)
    with pytest.warns(UserWarning, match="task 'value': 15 labels guarantee .* 0.875 only"):
        forecaster(calibrate="conformal").fit(X, Y | {"value": value})


@pytest.mark.slow
def test_the_default_learns_no_map() -> None:
    model = forecaster().fit(*rows(40))
    assert model.calibration_ == {}
