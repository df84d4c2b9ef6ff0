"""Updates: the recursion against dense oracles, the bank's bound, models that go on learning."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from jaxtyping import Float
from scipy.integrate import quad
from scipy.special import logsumexp, ndtr
from scipy.stats import norm
from sklearn.base import clone

from commands import done, found, refused, series, write_series, write_table
from scrollmt import (
    Event,
    Forecaster,
    Gaussian,
    Mixture,
    Ordinal,
    Poisson,
    Windowing,
    at_lead,
    lags,
    load,
    online,
    over_window,
)
from scrollmt.backtests import backtest
from scrollmt.export import to_onnx
from scrollmt.heads import AbstractHead
from scrollmt.objective import Data
from scrollmt.observables import Observable
from scrollmt.online import Bank, recursion
from scrollmt.online.bank import shared
from scrollmt.online.recursion import Events, Posterior, Prior, Settings
from scrollmt.online.state import Order, Sample, State, start
from scrollmt.windows import Windows

SIZE = 5


@pytest.fixture
def double() -> Iterator[None]:
    with jax.enable_x64(True):
        yield


def one_setting(rate: float = 1.0, step: float = 0.0) -> Settings:
    return Settings(*(jnp.asarray([value], float) for value in (rate, step, 1.0)))


def prior_of(mean: np.ndarray, precision: float = 1.0) -> Prior:
    return Prior(jnp.asarray(mean), jnp.asarray(precision, float), jnp.asarray(0.5, float))


def in_order(psi: np.ndarray, spread: np.ndarray, y: np.ndarray, weight: Any = None) -> Events:
    count = len(psi)
    given = (psi, spread[:, None], y, np.ones(count) if weight is None else weight, np.ones(count))
    turn = jnp.arange(count) % psi.shape[1]
    rows, lines, labels, weights, passed = (jnp.asarray(one) for one in given)
    return Events(rows, lines, labels, weights, passed, turn, jnp.zeros(count))


def drawn(count: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return rng.normal(size=(count, SIZE)), rng.uniform(0.1, 0.5, count), rng.normal(size=count)


def covariance(posterior: Posterior) -> Float[np.ndarray, "H H"]:
    root = np.asarray(posterior.root[0, 0])
    return root @ root.T


def started(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """A mean and the root of a covariance."""
    return rng.normal(size=(1, SIZE)), np.linalg.cholesky(np.cov(rng.normal(size=(SIZE, 40))))[None]


# The recursion


@pytest.mark.usefixtures("double")
def test_a_gaussian_head_is_filtered_as_kalman_does_and_ends_at_the_batch_posterior() -> None:
    head = Gaussian(0.7)
    psi, spread, y = drawn(60)
    mean, root = started(np.random.default_rng(1))
    begun = recursion.begin(mean, root, one_setting())
    end, means, variances = recursion.run(
        head, begun, one_setting(), in_order(psi, spread, y), prior_of(mean)
    )
    m, P = mean[0], root[0] @ root[0].T
    first = np.linalg.inv(P)
    noise = 0.7**2 + spread
    for t in range(len(y)):
        assert means[0, t, 0] == pytest.approx(psi[t] @ m, abs=1e-10)
        assert variances[0, t, 0] == pytest.approx(psi[t] @ P @ psi[t] + spread[t], abs=1e-10)
        gain = P @ psi[t] / (psi[t] @ P @ psi[t] + noise[t])
        m = m + gain * (y[t] - psi[t] @ m)
        P = P - np.outer(gain, psi[t] @ P)
    batch = np.linalg.inv(first + psi.T @ (psi / noise[:, None]))
    centre = batch @ (first @ mean[0] + psi.T @ (y / noise))
    np.testing.assert_allclose(covariance(end), batch, atol=1e-9)
    np.testing.assert_allclose(end.mean[0, 0], centre, atol=1e-9)


@pytest.mark.usefixtures("double")
@pytest.mark.parametrize("label", [0, 1, 3])
@pytest.mark.parametrize("head", [Ordinal(4), Event()], ids=["ordinal", "event"])
def test_classes_match_the_moments_of_the_exact_posterior(head: Any, label: int) -> None:
    label = min(label, head.classes - 1)
    psi, spread, _ = drawn(1, seed=3)
    mean, root = started(np.random.default_rng(4))
    begun = recursion.begin(mean, root, one_setting())
    end, _, _ = recursion.run(
        head, begun, one_setting(), in_order(psi, spread, np.array([label])), prior_of(mean)
    )
    # Along psi the weights' line a is N(centre, v); across psi nothing is learned.
    centre, v = float(psi[0] @ mean[0]), float(np.sum((psi[0] @ root[0]) ** 2))
    cuts = np.concatenate([[-np.inf], np.asarray(head.cutpoints), [np.inf]])
    width = np.sqrt(1.005**2 + spread[0])

    def mass(a: float) -> float:
        return float(ndtr((cuts[label + 1] - a) / width) - ndtr((cuts[label] - a) / width))

    def moment(power: int) -> float:
        def inside(a: float) -> float:
            return a**power * mass(a) * norm.pdf(a, centre, np.sqrt(v))

        wide = 12.0 * np.sqrt(v)
        return quad(inside, centre - wide, centre + wide, epsabs=1e-13, limit=200)[0]

    total, first, second = (moment(power) for power in (0, 1, 2))
    assert float(psi[0] @ end.mean[0, 0]) == pytest.approx(first / total, abs=1e-8)
    left = second / total - (first / total) ** 2
    assert float(psi[0] @ covariance(end) @ psi[0]) == pytest.approx(left, abs=1e-8)


@pytest.mark.usefixtures("double")
def test_what_is_forgotten_is_given_back_to_the_prior() -> None:
    head, rate, alpha = Gaussian(0.6), 0.9, 2.0
    psi, spread, y = drawn(23, seed=5)
    mean, root = started(np.random.default_rng(6))
    settings = one_setting(rate)
    end, _, _ = recursion.run(
        head,
        recursion.begin(mean, root, settings),
        settings,
        in_order(psi, spread, y),
        prior_of(mean, alpha),
    )
    precision = np.linalg.inv(root[0] @ root[0].T)
    vector = precision @ mean[0]
    for t in range(len(y)):
        given = np.zeros((SIZE, SIZE))
        given[t % SIZE, t % SIZE] = (1.0 - rate) * alpha * SIZE
        noise = 0.6**2 + spread[t]
        precision = rate * (precision + np.outer(psi[t], psi[t]) / noise) + given
        vector = rate * (vector + psi[t] * y[t] / noise) + given @ mean[0]
    np.testing.assert_allclose(covariance(end), np.linalg.inv(precision), atol=1e-10)
    np.testing.assert_allclose(end.mean[0, 0], np.linalg.solve(precision, vector), atol=1e-10)


@pytest.mark.usefixtures("double")
@pytest.mark.parametrize("rate", [1.0, 0.9])
def test_labels_of_a_gaussian_head_may_come_late(rate: float) -> None:
    head, settings = Gaussian(0.6), one_setting(rate)
    psi, spread, y = drawn(12, seed=7)
    mean, root = started(np.random.default_rng(8))
    # Without a prior to return to, late and early labels are told apart by their age alone.
    prior = prior_of(mean, 0.0)
    begun = recursion.begin(mean, root, settings)
    whole, _, _ = recursion.run(head, begun, settings, in_order(psi, spread, y), prior)
    late = [2, 7, 3]
    weight = np.ones(12)
    weight[late] = 0.0
    first, _, _ = recursion.run(head, begun, settings, in_order(psi, spread, y, weight), prior)
    rest = in_order(psi[late], spread[late], y[late])
    rest = rest._replace(passed=jnp.zeros(3), age=jnp.asarray([12.0 - t for t in late]))
    then, _, _ = recursion.run(head, first, settings, rest, prior)
    np.testing.assert_allclose(covariance(then), covariance(whole), atol=1e-10)
    np.testing.assert_allclose(then.mean, whole.mean, atol=1e-10)


@pytest.mark.usefixtures("double")
def test_the_scale_takes_a_fisher_step_along_the_score() -> None:
    head, step = Gaussian(0.6), 0.1
    psi, spread, y = drawn(1, seed=9)
    mean, root = started(np.random.default_rng(10))
    settings = one_setting(step=step)
    end, _, var = recursion.run(
        head,
        recursion.begin(mean, root, settings),
        settings,
        in_order(psi, spread, y),
        prior_of(mean),
    )
    noise = 0.6**2 + spread[0]
    total = float(var[0, 0, 0]) + 0.6**2
    residual = y[0] - psi[0] @ mean[0]
    slope = 0.5 * (residual**2 / total - 1.0) * noise / total
    assert float(end.log_scale[0]) == pytest.approx(step * slope / 0.5, abs=1e-12)
    wider = Posterior(end.mean[0], end.root[0], jnp.asarray(1.0))
    _, scaled = recursion.line(
        wider, head.line_noise, jnp.asarray(psi), jnp.asarray(spread[:, None])
    )
    v = float(np.sum((psi[0] @ np.asarray(end.root[0, 0])) ** 2))
    assert float(scaled[0, 0]) == pytest.approx(v + np.e * noise - 0.6**2, abs=1e-12)


def test_single_precision_stays_near_double_and_positive_over_many_rows() -> None:
    head = Gaussian(0.5)
    rng = np.random.default_rng(11)
    # Collinear but for a little, which is what breaks the plain update.
    psi = rng.normal(size=(20_000, 1)) + 1e-3 * rng.normal(size=(20_000, SIZE))
    y, spread = psi @ np.ones(SIZE) + 0.5 * rng.normal(size=len(psi)), np.full(len(psi), 0.1)
    mean, root = np.zeros((1, SIZE)), np.eye(SIZE)[None]
    found = []
    for wide in (False, True):
        with jax.enable_x64(wide):
            settings = one_setting(0.999, 0.001)
            begun = recursion.begin(mean.astype(float if wide else np.float32), root, settings)
            cast = jax.tree.map(jnp.asarray, in_order(psi, spread, y))
            end, means, _ = recursion.run(head, begun, settings, cast, prior_of(mean))
            found.append((np.asarray(means[0, -100:, 0]), covariance(end), end.log_scale[0]))
    (single, P, scale), (double, exact, exact_scale) = found
    np.testing.assert_allclose(single, double, atol=2e-3)
    assert np.linalg.eigvalsh(P.astype(float)).min() > 0.5 * np.linalg.eigvalsh(exact).min()
    assert float(scale) == pytest.approx(float(exact_scale), abs=1e-3)


# The bank


def test_the_bank_loses_to_no_setting_more_than_its_bound() -> None:
    bank = Bank()
    rng = np.random.default_rng(0)
    scores = rng.normal(-1.0, 0.5, size=(len(bank.rows), 400))
    scores[3, 200:] += 0.6
    before, _ = shared(scores, np.log(bank.start), bank)
    np.testing.assert_allclose(logsumexp(before, axis=0), 0.0, atol=1e-12)
    total = logsumexp(before + scores, axis=0).sum()
    for setting, own in enumerate(scores):
        bound = -np.log(bank.start[setting]) - 400 * np.log1p(-bank.switch)
        assert own.sum() - total <= bound
    # One change, from the frozen model to setting 3.
    best = scores[0, :200].sum() + scores[3, 200:].sum()
    bound = -np.log(bank.start[0]) - 399 * np.log1p(-bank.switch)
    bound -= np.log(bank.switch * bank.start[3])
    assert best - total <= bound
    # Without switches the bank is Bayes' rule over its settings.
    plain = Bank(switch=0.0)
    before, after = shared(scores, np.log(plain.start), plain)
    exact = np.log(plain.start) + scores.sum(axis=1)
    np.testing.assert_allclose(after, exact - logsumexp(exact), atol=1e-9)


def test_missing_labels_do_not_move_the_bank() -> None:
    bank = Bank()
    scores = np.full((len(bank.rows), 5), np.nan)
    before, after = shared(scores, np.log(bank.start), bank)
    np.testing.assert_array_equal(before, np.log(bank.start)[:, None].repeat(5, axis=1))
    np.testing.assert_array_equal(after, np.log(bank.start))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"forgetting": ()}, "at least one number"),
        ({"forgetting": (0.0, 1.0)}, "remembers nothing"),
        ({"forgetting": (1.1,)}, "forgetting"),
        ({"frozen": 1.0}, "learns nothing"),
        ({"switch": 2.0}, "switch"),
    ],
)
def test_a_bank_says_what_is_wrong_with_it(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        Bank(**options)


# Models


def system(rows: int, seed: int, level: float = 0.0) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(rows, 3))
    y = X[:, 0] + np.sin(X[:, 1]) + level + 0.4 * rng.normal(size=rows)
    return X, {"value": y, "high": y > 0.5, "band": np.digitize(y, [-1.0, 0.0, 1.0])}


TASKS: dict[str, AbstractHead] = {"value": Gaussian(), "high": Event(), "band": Ordinal(4)}


def fitted(tasks: dict[str, AbstractHead] = TASKS, **options: Any) -> Forecaster:
    X, Y = system(200, 0)
    labels = {name: Y.get(name, Y["value"]) for name in tasks}
    return Forecaster(tasks, preset="quick", steps=150, verbose=False, **options).fit(X, labels)


@pytest.fixture(scope="module")
def model() -> Forecaster:
    return fitted()


def state_of(model: Forecaster) -> State:
    assert model.online_ is not None
    return model.online_


SMALL = Bank(forgetting=(1.0, 0.99), steps=(0.0, 0.02))


@pytest.fixture(scope="module")
def moved(model: Forecaster) -> online.Filtered:
    return online.filter(model, *system(300, 1, level=1.0), bank=SMALL)


def test_after_a_jump_an_update_is_far_better_than_the_frozen_model(
    model: Forecaster, moved: online.Filtered
) -> None:
    later = system(300, 2, level=1.0)
    before, after = model.evaluate(*later), moved.model.evaluate(*later)
    for task in TASKS:
        assert after.loc[task, "nll"] < before.loc[task, "nll"] - 0.2
    assert model.online_ is None
    assert moved.weights["value"].iloc[-1].idxmax() != "frozen"
    assert state_of(moved.model).rows == 300


@pytest.mark.slow
def test_the_pass_predicts_each_row_before_its_label(
    model: Forecaster, moved: online.Filtered
) -> None:
    X, Y = system(300, 1, level=1.0)
    half = model.update(X[:150], {name: y[:150] for name, y in Y.items()}, bank=SMALL)
    for task, law in half.predict(X[150:151]).items():
        here = moved.laws[task][150:151].log_prob(Y[task][150:151])
        np.testing.assert_allclose(law.log_prob(Y[task][150:151]), here, rtol=1e-4)
        np.testing.assert_allclose(moved.log_scores[task].iloc[150], here[0], rtol=1e-4)
    rest = half.update(X[150:], {name: y[150:] for name, y in Y.items()})
    for task, weights in state_of(moved.model).log_weights.items():
        np.testing.assert_allclose(state_of(rest).log_weights[task], weights, atol=2e-3)
    assert state_of(rest).rows == 300


def test_the_frozen_setting_is_the_model_as_it_was_fitted(model: Forecaster) -> None:
    X, Y = system(50, 3)
    only = online.prepare(model, Bank(forgetting=(1.0,), steps=(0.0,), frozen=0.5, switch=0.0))
    weights = {task: np.log([1.0 - 1e-15, 1e-15]) for task in TASKS}
    only.online_ = State(state_of(only).bank, state_of(only).groups, weights)
    for task, law in only.predict(X).items():
        np.testing.assert_allclose(
            law.log_prob(Y[task]), model.predict(X)[task].log_prob(Y[task]), rtol=1e-4, atol=1e-5
        )


@pytest.mark.slow
def test_a_missing_label_teaches_its_task_nothing(model: Forecaster) -> None:
    X, Y = system(40, 4, level=2.0)
    Y["value"] = np.full(40, np.nan)
    updated = model.update(X, Y, bank=SMALL)
    start = online.prepare(model, SMALL)
    for name, same in (("value", True), ("high", False)):
        before, after = (state_of(m).groups[name][0].posterior.mean for m in (start, updated))
        # Forgetting alone returns the mean to where it started, which is where it is.
        assert np.allclose(before, after) == same
    assert state_of(updated).labels == {"value": 0, "high": 40, "band": 40}


@pytest.mark.slow
def test_a_model_is_saved_in_the_middle_of_a_stream(moved: online.Filtered, tmp_path: Path) -> None:
    moved.model.save(tmp_path / "model")
    back = load(tmp_path / "model")
    X, Y = system(60, 5, level=1.0)
    ours, theirs = moved.model.predict(X), back.predict(X)
    for task in TASKS:
        np.testing.assert_array_equal(ours[task].log_prob(Y[task]), theirs[task].log_prob(Y[task]))
    once, again = moved.model.update(X, Y), back.update(X, Y)
    for task in TASKS:
        np.testing.assert_array_equal(
            state_of(once).log_weights[task], state_of(again).log_weights[task]
        )


def test_a_fitted_model_can_be_updated_after_it_was_stored(
    model: Forecaster, tmp_path: Path
) -> None:
    model.save(tmp_path / "model")
    X, Y = system(30, 6)
    one, other = model.update(X, Y, bank=SMALL), load(tmp_path / "model").update(X, Y, bank=SMALL)
    for task in TASKS:
        np.testing.assert_allclose(
            state_of(one).log_weights[task], state_of(other).log_weights[task], atol=1e-6
        )


@pytest.mark.slow
def test_partial_fit_fits_first_and_then_updates() -> None:
    X, Y = system(80, 7)
    model = Forecaster(TASKS, preset="quick", steps=30, verbose=False)
    assert model.partial_fit(X, Y) is model
    assert model.online_ is None
    assert model.partial_fit(X[:20], {name: y[:20] for name, y in Y.items()}) is model
    assert model.online_ is not None
    assert state_of(model).rows == 20
    assert model.fit(X, Y).online_ is None


@pytest.mark.slow
@pytest.mark.parametrize(
    ("head", "label"),
    [(Mixture(2), lambda y: y), (Poisson(), lambda y: np.floor(np.abs(y)))],
    ids=["mixture", "poisson"],
)
def test_other_heads_learn_too(head: AbstractHead, label: Callable[..., np.ndarray]) -> None:
    X, Y = system(200, 0)
    model = Forecaster({"y": head}, preset="quick", steps=100, verbose=False)
    model.fit(X, {"y": label(Y["value"])})
    X, Y = system(300, 1, level=2.0)
    later = {"y": label(Y["value"])}
    updated = model.update(X, later, bank=SMALL)
    assert updated.score(X, later) > model.score(X, later) + 0.1


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda X, Y: (X[:, :2], Y), "expecting 3 features"),
        (lambda X, Y: (X[:5], Y), "rows|shape"),
        (lambda X, Y: (X, None), "update needs labels"),
        (lambda X, Y: (np.where(X > 9, X, np.nan), Y), "NaN|missing|finite"),
    ],
)
def test_bad_rows_are_refused_and_change_nothing(
    model: Forecaster, change: Callable[..., Any], words: str
) -> None:
    with pytest.raises(ValueError, match=words):
        model.update(*change(*system(20, 8)))
    assert model.online_ is None


def test_other_mistakes_are_named(model: Forecaster, moved: online.Filtered) -> None:
    X, Y = system(10, 9)
    posterior = clone(model)
    vars(posterior).update(vars(model), routing="elbo")
    with pytest.raises(ValueError, match="posteriors of the weights"):
        posterior.update(X, Y)
    with pytest.raises(ValueError, match="age is how many rows ago"):
        model.update(X, Y, age=-1)
    with pytest.raises(ValueError, match="goes on with Bank"):
        moved.model.update(X, Y, bank=Bank())
    with pytest.raises(ValueError, match=r"1e\+30 at row 3"):
        model.update(X, {**Y, "value": np.where(np.arange(10) == 3, 1e30, Y["value"])})


# Windows and the command line

LEAD = 4
ASKED: dict[str, Observable] = {
    "level": at_lead("x"),
    "high": over_window("x").max() > 1,
    "band": at_lead("x").quantile_bands(3),
}


def walk(rows: int) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    x = np.zeros(rows)
    for i in range(1, rows):
        x[i] = 0.8 * x[i - 1] + 0.6 * rng.standard_normal()
    return pd.DataFrame({"x": x}, index=pd.date_range("2021-01-01", periods=rows, freq="D"))


def windows_of(frame: pd.DataFrame) -> Windows:
    return Windowing(history=3, lead=LEAD).cut(frame, ASKED, [lags("x")])


@pytest.fixture(scope="module")
def of_windows() -> Forecaster:
    windows = windows_of(walk(200))
    return Forecaster.for_windows(windows, preset="quick", steps=60, verbose=False).fit(windows)


@pytest.mark.slow
def test_a_window_is_predicted_before_any_label_that_ends_after_it_begins(
    of_windows: Forecaster,
) -> None:
    frame = walk(300)
    changed = frame.copy()
    changed.iloc[260:] = changed.iloc[260:] + 3.0
    new = of_windows.recipe_
    assert new is not None
    both = [
        online.filter(of_windows, new.cut(one.iloc[195:]), bank=SMALL) for one in (frame, changed)
    ]
    first, second = (found.laws["level"] for found in both)
    times = first.index
    assert times is not None
    # Inputs and answers up to here are the same, so forecasts from here are too.
    same = np.asarray(times < frame.index[260])
    for task in ASKED:
        one, other = (found.weights[task][same] for found in both)
        pd.testing.assert_frame_equal(one, other)
    y = np.zeros(len(first))
    np.testing.assert_array_equal(first.log_prob(y)[same], second.log_prob(y)[same])
    assert not np.allclose(first.log_prob(y)[~same], second.log_prob(y)[~same])
    # Nothing is learned before the first window has ended.
    start = both[0].weights["level"].iloc[:LEAD]
    assert (start.nunique() == 1).all()


def test_the_order_of_events_has_every_row_and_label_once() -> None:
    order = Order.of(np.array([0, 0, 0, 1, 3]), None)
    shown = [
        f"{'predict' if p else 'learn'} {row} ({age:g})"
        for row, p, age in zip(order.row, order.predicted, order.age, strict=True)
    ]
    assert shown == [
        "predict 0 (0)",
        "predict 1 (0)",
        "predict 2 (0)",
        "learn 0 (3)",
        "predict 3 (0)",
        "learn 1 (3)",
        "learn 2 (2)",
        "predict 4 (0)",
        "learn 3 (2)",
        "learn 4 (1)",
    ]


def test_windows_out_of_order_are_refused(of_windows: Forecaster) -> None:
    windows = windows_of(walk(60))
    with pytest.raises(ValueError, match="in the order of time, and row 1"):
        of_windows.update(windows.take(np.array([5, 3, 8])))


def test_an_updated_model_has_no_onnx_form(moved: online.Filtered) -> None:
    with pytest.raises(ValueError, match="was updated has no ONNX form"):
        to_onnx(moved.model)


@pytest.mark.slow
def test_the_command_line_learns_from_newer_rows_once(tmp_path: Path) -> None:
    write_series(tmp_path, hours=240)
    done("fit", tmp_path / "config.toml", "-q")
    series(hours=300).to_csv(tmp_path / "more.csv", index=False)
    model = tmp_path / "model"
    told = found("update", model, tmp_path / "more.csv")
    assert told["windows"] > 40
    assert set(told["scores"]) == {"updated", "before"}
    state = state_of(load(model))
    assert state.rows == told["windows"]
    assert "nothing that the model has not seen" in refused("update", model, tmp_path / "more.csv")
    # In two steps it ends where one step ends.
    series(hours=330).to_csv(tmp_path / "most.csv", index=False)
    done("update", model, tmp_path / "most.csv")
    done("predict", model, tmp_path / "most.csv", "-o", tmp_path / "out.csv")
    assert state_of(load(model)).rows == state.rows + 30


@pytest.mark.slow
def test_the_command_line_takes_the_rows_of_a_table_once(tmp_path: Path) -> None:
    write_table(tmp_path)
    done("fit", tmp_path / "config.toml", "-q")
    table = pd.read_csv(tmp_path / "table.csv")
    table.iloc[:20].to_csv(tmp_path / "new.csv", index=False)
    model, other = tmp_path / "model", tmp_path / "other"
    done("update", model, tmp_path / "new.csv", "--out", other)
    assert load(model).online_ is None
    assert state_of(load(other)).rows == 20
    assert "has learned from already" in refused("update", other, tmp_path / "new.csv")
    assert "has learned from already" in refused("update", model, tmp_path / "table.csv")


@pytest.mark.slow
def test_backtests_go_on_from_one_origin_to_the_next() -> None:
    frame = walk(300)
    frame.iloc[150:] *= 2.0
    asked: dict[str, Observable] = {"level": at_lead("x"), "high": at_lead("x") > 1}
    windows = Windowing(history=3, lead=2).cut(frame, asked, [lags("x")])
    model = Forecaster.for_windows(windows, preset="quick", steps=60, verbose=False)
    runs = {
        update: backtest(windows, model, 3, update=update)
        for update in ("frozen", "online", "refit+online")
    }
    frozen, learned = runs["frozen"], runs["online"]
    assert frozen.models[2, 0] is frozen.models[0, 0]
    newest = [int(max(split.train.max(), split.valid.max())) for split in learned.splits]
    assert learned.models[0, 0].online_ is None
    seen = [state_of(learned.models[origin, 0]).rows for origin in (1, 2)]
    assert seen == [newest[1] - newest[0], newest[2] - newest[0]]
    nll = {name: run.by_origin().loc[("level", "nll")] for name, run in runs.items()}
    # After the jump, what goes on learning is better.
    assert nll["online"][2] < nll["frozen"][2] - 0.1
    assert nll["refit+online"].notna().all()


@pytest.mark.slow
def test_a_pass_says_how_far_outside_the_training_range_rows_lie(model: Forecaster) -> None:
    X, Y = system(10, 10)
    X[4, 2] = 80.0
    with pytest.warns(UserWarning, match="80"):
        found = online.filter(model, X, Y, bank=SMALL)
    far = found.laws["value"].extrapolation
    assert far is not None
    assert far[4] > 5.0
    assert np.delete(far, 4).max() < 1.0


def test_a_task_without_labels_in_the_sample_does_not_stop_a_save(tmp_path: Path) -> None:
    X, Y = system(200, 0)
    model = Forecaster(TASKS, preset="quick", steps=20, verbose=False).fit(X, Y)
    assert model._sample_ is not None
    weight = {**model._sample_.data.weight, "high": np.zeros(len(model._sample_.data), np.float32)}
    bare = Data(model._sample_.data.x, model._sample_.data.y, weight)
    model._sample_ = Sample(bare, 200)
    model.save(tmp_path / "model")
    assert load(tmp_path / "model").update(X[:5], {t: y[:5] for t, y in Y.items()}).predict(X[:2])


def test_what_is_not_finite_is_no_start(model: Forecaster) -> None:
    assert model._sample_ is not None
    data = model._sample_.data
    y = {**data.y, "value": np.full(len(data), np.inf, np.float32)}
    assert start(model.members_, Sample(Data(data.x, y, data.weight), 200)) is None
