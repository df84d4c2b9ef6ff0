"""Laws among other libraries' objects: scipy.stats, tables, xarray, scoringrules."""

import math
import sys
from typing import Any

import jax
import numpy as np
import pandas as pd
import pytest
import scoringrules
import xarray
from scipy import stats

import scrollmt
from scrollmt import (
    EventLaw,
    Forecaster,
    Gaussian,
    GaussianLaw,
    OrdinalLaw,
    TransformedLaw,
    Windowing,
    at_lead,
    frozen,
    tidy,
)
from scrollmt.laws import CategoricalLaw, CensoredLaw, CountLaw, HeadLaw, StudentTLaw
from scrollmt.laws.joint import Laws
from scrollmt.scores import brier, crps, nll, rps
from scrollmt.transforms import Transform
from small import STATE, TASKS, assert_same, numbers, tables, tiny, windows

N = 5
RNG = np.random.default_rng(0)
MEAN, SD = RNG.normal(size=N), np.exp(0.4 * RNG.normal(size=N))
PROBS = RNG.dirichlet(np.ones(4), size=N)
GAUSSIAN = GaussianLaw(MEAN, SD)
STUDENT = StudentTLaw(MEAN, np.zeros(N), 0.7, 4.5)
COUNT = CountLaw(MEAN, np.zeros(N), 0.3)
CENSORED = CensoredLaw(GAUSSIAN, -0.5, 1.0)
LOGNORMAL = TransformedLaw(GAUSSIAN, Transform(("log",)))
ORDINAL = OrdinalLaw(np.log(PROBS))
EVENT = EventLaw(np.log(np.stack([1.0 - PROBS[:, 0], PROBS[:, 0]], axis=1)))
LEVELS = np.array([0.01, 0.3, 0.5, 0.99])


# scipy.stats


def test_a_gaussian_law_is_scipys_own() -> None:
    law = frozen(GAUSSIAN)
    assert law.dist.name == "norm"
    np.testing.assert_array_equal(law.mean(), MEAN)
    np.testing.assert_allclose(law.logpdf(0.3), GAUSSIAN.log_prob(0.3), rtol=1e-13)
    np.testing.assert_allclose(law.ppf(LEVELS[:, None]).T, GAUSSIAN.quantile(LEVELS), rtol=1e-13)


def negative_binomial(n: int) -> Any:
    """mean e^a and variance e^a + 0.3 e^2a."""
    size = 1.0 / 0.3
    return stats.nbinom(size, size / (size + math.exp(MEAN[n])))


def lognormal(n: int) -> Any:
    return stats.lognorm(SD[n], scale=np.exp(MEAN[n]))


def classes(n: int) -> Any:
    return stats.rv_discrete(values=(range(4), PROBS[n]))


ORACLES = [
    # Its density goes through a quadrature.
    (STUDENT, lambda n: stats.t(4.5, MEAN[n], 0.7), "pdf", np.linspace(-4.0, 4.0, 9), 1e-6),
    (LOGNORMAL, lognormal, "pdf", np.geomspace(0.1, 9.0, 9), 1e-12),
    (COUNT, negative_binomial, "pmf", np.array([-1.0, 0.0, 0.5, 1.0, 2.0, 7.0]), 1e-6),
    (ORDINAL, classes, "pmf", np.arange(-1.0, 5.0, 0.5), 1e-12),
    (EVENT, lambda n: stats.bernoulli(PROBS[n, 0]), "pmf", np.arange(-1.0, 3.0, 0.5), 1e-12),
]


@pytest.mark.parametrize(("law", "oracle", "mass", "x", "tolerance"), ORACLES)
def test_other_laws_behave_like_scipys(
    law: Any, oracle: Any, mass: str, x: np.ndarray, tolerance: float
) -> None:
    ours = frozen(law)
    theirs = [oracle(n) for n in range(N)]

    def agree(found: Any, ask: Any) -> None:
        expected = np.stack([ask(one) for one in theirs], axis=-1)
        np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance)

    agree(getattr(ours, mass)(x[:, None]), lambda one: getattr(one, mass)(x))
    with np.errstate(divide="ignore"):
        agree(getattr(ours, f"log{mass}")(x[:, None]), lambda one: getattr(one, f"log{mass}")(x))
    agree(ours.cdf(x[:, None]), lambda one: one.cdf(x))
    agree(ours.sf(x[:, None]), lambda one: one.sf(x))
    agree(ours.ppf(LEVELS[:, None]), lambda one: one.ppf(LEVELS))
    agree(ours.median(), lambda one: one.median())
    agree(np.stack(ours.interval(0.8)), lambda one: np.stack(one.interval(0.8)))
    if law is LOGNORMAL:
        return  # no mean: the law does not offer one either
    agree(ours.mean(), lambda one: one.mean())
    agree(ours.std(), lambda one: one.std())
    agree(ours.var(), lambda one: one.var())


def test_each_forecast_may_be_asked_something_else() -> None:
    levels = np.array([[0.1, 0.2, 0.5, 0.2, np.nan]])
    found = frozen(STUDENT).ppf(levels)
    assert found.shape == (1, N)
    for n, level in enumerate(levels[0, :4]):
        assert found[0, n] == pytest.approx(STUDENT.quantile(level)[n], rel=1e-12)
    assert np.isnan(found[0, 4])
    assert np.isnan(frozen(ORDINAL).pmf(np.nan)).all()
    assert np.isnan(frozen(ORDINAL).cdf(np.nan)).all()
    with pytest.raises(ValueError, match="broadcast"):
        frozen(STUDENT).cdf(np.zeros(3))


@pytest.mark.parametrize("law", [STUDENT, COUNT, CENSORED, LOGNORMAL, ORDINAL])
def test_draws_have_the_shapes_of_scipy(law: Any) -> None:
    ours = frozen(law)
    assert ours.rvs(random_state=0).shape == (N,)
    draws = ours.rvs((2, 3, N), random_state=0)
    assert draws.shape == (2, 3, N)
    np.testing.assert_array_equal(draws, ours.rvs((2, 3, N), random_state=0))
    assert (draws != ours.rvs((2, 3, N), random_state=1)).any()
    assert frozen(law[0]).rvs(7, random_state=np.random.default_rng(2)).shape == (7,)
    with pytest.raises(ValueError, match=r"size = 7 .* pass \(5,\) or \(n, 5\)"):
        ours.rvs(7)


def test_a_frozen_law_serves_scipys_own_tests() -> None:
    """With a fresh seed this would fail with chance 1e-3."""
    one = frozen(STUDENT[0])
    assert stats.kstest(one.rvs(500, random_state=3), one.cdf).pvalue > 1e-3


def test_a_law_with_limits_has_neither_density_nor_masses() -> None:
    for law in (CENSORED, TransformedLaw(CENSORED, Transform(("log",)))):
        ours: Any = frozen(law)
        assert not hasattr(ours, "pdf")
        assert not hasattr(ours, "pmf")
        np.testing.assert_array_equal(ours.cdf(0.5), law.cdf(0.5))
        np.testing.assert_array_equal(ours.median(), law.quantile(0.5))


def test_a_frozen_law_keeps_the_digits_of_the_right_tail() -> None:
    rare = OrdinalLaw(np.log(np.array([[1.0, 1e-30, 1e-40]])))
    above = frozen(rare).sf([[-1.0], [0.5], [1.0], [2.0]])[:, 0]
    np.testing.assert_allclose(above, [1.0, 1e-30, 1e-40, 0.0], rtol=1e-9)
    np.testing.assert_allclose(frozen(STUDENT).sf(1e9), STUDENT.sf(1e9), rtol=1e-12)
    assert (frozen(STUDENT).sf(1e9) > 0.0).all()
    assert (frozen(LOGNORMAL).sf(1e4) > 0.0).all()


def test_classes_without_an_order_have_no_counterpart() -> None:
    own = HeadLaw(Gaussian(), MEAN, SD)
    for law in (CategoricalLaw(np.log(PROBS)), own):
        with pytest.raises(TypeError, match=f"a {type(law).__name__} has no counterpart"):
            frozen(law)


# Tables


def test_laws_become_one_tidy_table() -> None:
    laws = Laws({"a": GAUSSIAN, "b": ORDINAL, "c": LOGNORMAL})
    table = laws.to_frame([0.1, 0.9])
    classes = ["prob_0", "prob_1", "prob_2", "prob_3"]
    assert list(table) == ["task", "row", "mean", "sd", "q0.1", "q0.9", *classes]
    assert list(table["task"]) == ["a"] * N + ["b"] * N + ["c"] * N
    assert list(table["row"]) == [*range(N)] * 3
    by_task = {task: part.reset_index(drop=True) for task, part in table.groupby("task")}
    np.testing.assert_array_equal(by_task["a"]["sd"], SD)
    np.testing.assert_array_equal(by_task["b"][classes], ORDINAL.probs)
    np.testing.assert_array_equal(by_task["c"]["q0.9"], LOGNORMAL.quantile(0.9))
    assert by_task["c"][["mean", "sd", *classes]].isna().all(axis=None)
    # The law of a head of one's own may know no more than its log score.
    assert list(Laws({"own": HeadLaw(Gaussian(), MEAN, SD)}).to_frame()) == ["task", "row"]


def test_a_table_keeps_the_index_of_the_inputs(fitted: Forecaster) -> None:
    X, _ = tables(6)
    assert list(fitted.predict(X.to_numpy()).to_frame()["row"][:6]) == [*range(6)]
    assert list(fitted.predict(X.set_axis([*"uvwxyz"])).to_frame()["row"][:6]) == [*"uvwxyz"]
    dated = X.set_axis(pd.date_range("2024", periods=6, tz="UTC", name="when"))
    laws = fitted.predict(dated)
    assert laws.index is dated.index
    frame = laws.to_frame()
    assert frame["when"].dtype == dated.index.dtype
    assert list(frame["when"][:6]) == list(dated.index)
    places = pd.MultiIndex.from_product([["in", "out"], [1, 2, 3]], names=["place", None])
    frame = fitted.predict(X.set_axis(places)).to_frame()
    assert list(frame)[:3] == ["task", "place", "row_1"]
    assert list(frame["place"][:6]) == ["in"] * 3 + ["out"] * 3
    with pytest.raises(ValueError, match=r"index of the inputs is named \['mean'\]"):
        fitted.predict(X.rename_axis("mean")).to_frame()
    with pytest.raises(ValueError, match="task 'a' holds 5 forecasts, and the index has 3"):
        Laws({"a": GAUSSIAN}, index=pd.RangeIndex(3))


def test_every_law_knows_the_index_of_the_inputs(fitted: Forecaster) -> None:
    X, _ = tables(6)
    dated = X.set_axis(pd.date_range("2024", periods=6, tz="UTC", name="when"))
    laws = fitted.predict(dated)
    for law in (*laws.values(), laws.joint(["state"])):
        assert law.to_frame().index is dated.index
        assert list(law[4:].to_frame().index) == list(dated.index[4:])
    assert [law.to_frame().index.name for law in fitted.predict(X.to_numpy()).values()] == [
        *["row"] * 3
    ]


def test_a_table_says_how_far_out_forecasts_are_where_any_is_far() -> None:
    laws = {"value": GAUSSIAN, "alarm": EVENT}
    near = Laws(laws, extrapolation=np.array([0.0, 0.0, 1.0, 0.3, 0.0]))
    assert "extrapolation" not in near.to_frame()
    assert "extrapolation" not in near.to_frame(wide=True)
    distance = np.array([0.0, 0.0, 1.1, 0.3, np.inf])
    far = Laws(laws, extrapolation=distance)
    table = far.to_frame()
    assert list(table)[-1] == "extrapolation"
    np.testing.assert_array_equal(table["extrapolation"], [*distance, *distance])
    wide = far.to_frame(wide=True)
    np.testing.assert_array_equal(wide["extrapolation"], distance)
    np.testing.assert_array_equal(far.to_xarray()["extrapolation"], distance)
    # A task's law brings its own, in a law of several tasks too.
    np.testing.assert_array_equal(Laws({"own": GAUSSIAN, **far}).extrapolation, distance)
    np.testing.assert_array_equal(far.joint(["value"]).extrapolation, distance)


def test_laws_become_one_row_a_forecast() -> None:
    where = pd.Index([*"uvwxy"], name="place")
    laws = Laws({"value": GAUSSIAN, "alarm": EVENT, "band": ORDINAL}, index=where)
    table = laws.to_frame([0.05, 0.5], wide=True)
    classes = [f"band_prob_{r}" for r in range(4)]
    assert list(table) == [
        *("value_mean", "value_sd", "value_q0.05", "value_q0.5", "alarm_prob"),
        *classes,
    ]
    assert table.index is where
    np.testing.assert_array_equal(table["value_q0.05"], GAUSSIAN.quantile(0.05))
    np.testing.assert_array_equal(table["alarm_prob"], EVENT.prob)
    np.testing.assert_array_equal(table[classes], ORDINAL.probs)
    with pytest.raises(ValueError, match=r"index of the inputs is named \['alarm_prob'\]"):
        Laws({"alarm": EVENT}, index=where.rename("alarm_prob")).to_frame(wide=True)
    for wide in (False, True):
        with pytest.raises(ValueError, match="share the first six digits"):
            laws.to_frame([0.1234567, 0.1234568], wide=wide)
        assert len(laws.to_frame([0.5, 0.5], wide=wide)) == (N if wide else 3 * N)


def test_the_laws_of_one_task_are_an_array_and_those_of_several_are_none() -> None:
    for law, want in ((GAUSSIAN, MEAN), (ORDINAL, ORDINAL.mode), (STUDENT, STUDENT.mean)):
        laws = Laws({"a": law})
        found = np.asarray(laws)
        np.testing.assert_array_equal(found, want)
        assert found.dtype == want.dtype
        assert laws.shape == found.shape
        found[0] = 9  # a copy: laws stay as they are
        np.testing.assert_array_equal(np.asarray(laws), want)
    assert np.asarray(Laws({"a": ORDINAL}), dtype=float).dtype == float
    with pytest.raises(TypeError, match=r"laws of the tasks \['a', 'b'\] are no array"):
        np.asarray(Laws({"a": GAUSSIAN, "b": EVENT}))
    with pytest.raises(TypeError, match=r"a TransformedLaw holds 5 distributions"):
        np.asarray(Laws({"a": LOGNORMAL}))


@pytest.fixture(scope="module")
def fitted() -> Forecaster:
    return tiny().fit(*tables())


def series(n: int = 90) -> xarray.Dataset:
    time = pd.date_range("2024-01-01", periods=n, freq="h")
    level = 3.0 + np.sin(np.arange(n) / 4.0) + 0.1 * np.random.default_rng(0).normal(size=n)
    return xarray.Dataset({"x": ("time", level)}, coords={"time": time})


@pytest.mark.slow
def test_windows_give_times_units_and_original_scale() -> None:
    asked = {"level": at_lead("x", units="m").log1p(), "high": at_lead("x") > 3.0}
    cut = Windowing(history=3, lead=2).cut(series(), asked)
    model = Forecaster.for_windows(cut, preset=tiny().preset).fit(cut)
    laws = model.predict(cut)
    assert laws.index.name == "time"
    pd.testing.assert_index_equal(laws.index, cut.t)
    table = tidy(laws, cut, [0.5])
    assert list(table) == ["task", "time", "until", "units", "q0.5", "prob_0", "prob_1"]
    assert (table["until"] - table["time"] == pd.Timedelta("2h")).all()
    level = table[table["task"] == "level"]
    assert (level["units"] == "m").all()
    np.testing.assert_allclose(level["q0.5"], np.expm1(laws["level"].quantile(0.5)))  # type: ignore[attr-defined]
    assert table[table["task"] == "high"]["units"].isna().all()


# xarray


def gridded(seed: int = 0) -> tuple[xarray.DataArray, xarray.Dataset]:
    """Inputs on a grid of 15 days by 4 places, and labels on the same grid."""
    X, Y = windows(60, seed)
    coords = {"day": pd.date_range("2024", periods=15), "place": [*"nesw"]}
    inputs = xarray.DataArray(
        X.reshape(15, 4, 3), {**coords, "input": [*"abc"]}, ("day", "place", "input")
    )
    labels = {name: (("day", "place"), y.reshape(15, 4)) for name, y in Y.items()}
    return inputs, xarray.Dataset(labels, coords)


def stacked(grid: Any) -> Any:
    return grid.stack(sample=["day", "place"]).transpose("sample", ...)


def test_a_grid_goes_in_and_a_grid_comes_out(fitted: Forecaster) -> None:
    X, Y = gridded()
    model = tiny().fit(stacked(X), stacked(Y))
    assert list(model.feature_names_in_) == ["a", "b", "c"]
    new = stacked(gridded(seed=1)[0])
    # Coordinates are where the data are from, and nothing else: the same fit, the same laws.
    assert_same(numbers(model, new), numbers(fitted, tables(60, seed=1)[0]))
    assert model.score(stacked(X), stacked(Y)) == fitted.score(*tables())
    laws: Any = model.predict(new)
    grid = laws.to_xarray([0.1, 0.9]).unstack("sample")
    assert dict(grid.sizes) == {
        "day": 15,
        "place": 4,
        "quantile": 2,
        "event_class": 2,
        "regime_class": 3,
    }
    here = grid.sel(day="2024-01-03", place="s")
    assert here["state_mean"].item() == laws["state"].mean[2 * 4 + 2]
    assert here["state_sd"].item() == laws["state"].sd[2 * 4 + 2]
    np.testing.assert_array_equal(here["regime_prob"], laws["regime"].probs[2 * 4 + 2])
    upper = grid["state_quantile"].sel(quantile=0.9).to_numpy()
    np.testing.assert_array_equal(upper.ravel(), laws["state"].quantile(0.9))


def test_a_coordinate_of_samples_comes_back() -> None:
    X, Y = tables()
    when = xarray.Dataset.from_dataframe(X.set_axis(pd.date_range("2024", periods=60, name="when")))
    labels = xarray.DataArray(Y["state"], dims="when", coords={"when": when["when"]})
    model = tiny(STATE).fit(when, labels)
    out = model.predict(when).to_xarray()
    assert list(out.data_vars) == ["state_mean", "state_sd", "state_quantile"]
    assert out["state_quantile"].dims == ("when", "quantile")
    pd.testing.assert_index_equal(out.indexes["when"], when.indexes["when"])
    # Without a coordinate the samples are numbered, and columns without names are as well.
    bare = xarray.DataArray(X.to_numpy(), dims=("cell", "input"))
    table = xarray.DataArray(Y[["state"]].to_numpy(), {"task": ["state"]}, ("cell", "task"))
    out = tiny(STATE).fit(bare, table).predict(bare).to_xarray()
    assert list(out["cell"].to_numpy()) == [*range(60)]
    # Laws of plain arrays count their rows.
    assert "row" in model.predict(X.to_numpy()).to_xarray().coords


def test_coordinates_that_disagree_are_refused(fitted: Forecaster) -> None:
    X, Y = (stacked(one) for one in gridded())
    turned = Y.isel(sample=slice(None, None, -1))
    says = r"is labelled .*2024-01-15.*'w'.* in row 0, where X has .*'n'"
    with pytest.raises(ValueError, match=f"Y {says}"):
        tiny().fit(X, turned)
    with pytest.raises(ValueError, match=f"validation Y {says}"):
        tiny(validation=(X, turned)).fit(X, Y)
    for score in (fitted.score, fitted.evaluate):
        with pytest.raises(ValueError, match=rf"Y\['state'\] {says}"):
            score(X, {name: turned[name] for name in TASKS})
    with pytest.raises(ValueError, match=r"'state' has labels of shape \(59,\), but X has 60 rows"):
        tiny().fit(X, Y.isel(sample=slice(59)))
    with pytest.raises(ValueError, match=r"dimensions \{'a': \('day', 'place'\).*X.stack\(sample="):
        fitted.predict(gridded()[0].to_dataset("input"))
    with pytest.raises(ValueError, match=r"X has shape \(15, 4, 3\), expected \(N, D\)"):
        fitted.predict(gridded()[0])


def test_without_xarray_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "xarray", None)
    laws = Laws({"a": GAUSSIAN})
    assert len(laws.to_frame()) == N
    with pytest.raises(ImportError, match=r"pip install 'scrollmt\[xarray\]'"):
        laws.to_xarray()


# scoringrules


def test_scores_are_those_of_scoringrules() -> None:
    y = np.linspace(-1.0, 1.5, N)
    np.testing.assert_array_equal(crps(GAUSSIAN, y), scoringrules.crps_normal(y, MEAN, SD))
    np.testing.assert_allclose(nll(GAUSSIAN, y), scoringrules.logs_normal(y, MEAN, SD))
    seen = np.array([0, 1, 0, 1, 1])
    np.testing.assert_array_equal(brier(EVENT, seen), scoringrules.brier_score(seen, EVENT.prob))
    ranks = np.array([0, 3, 2, 1, 1])
    onehot = np.eye(4)[ranks]
    expected = scoringrules.rps_score(onehot, PROBS, onehot=True)
    np.testing.assert_allclose(rps(ORDINAL, ranks), expected, rtol=1e-12)


def test_scores_of_further_laws_meet_scoringrules_where_it_has_them() -> None:
    y = np.linspace(-1.0, 1.5, N)
    t = scoringrules.crps_t(y, 4.5, MEAN, 0.7)
    np.testing.assert_allclose(crps(STUDENT, y), t, rtol=1e-6)
    counts = np.array([0, 1, 2, 5, 9])
    size = 1.0 / 0.3
    theirs = scoringrules.crps_negbinom(counts, size, prob=size / (size + np.exp(MEAN)))
    np.testing.assert_allclose(crps(COUNT, counts), theirs, rtol=1e-6)
    theirs = scoringrules.crps_cnormal(np.clip(y, -0.5, 1.0), MEAN, SD, lower=-0.5, upper=1.0)
    np.testing.assert_allclose(crps(CENSORED, y), theirs, rtol=1e-6)


def test_draws_go_to_scoringrules_as_an_ensemble() -> None:
    """Five standard errors of 20000 draws: chance below 1e-5 with a fresh key."""
    y = np.linspace(-1.0, 1.5, N)
    draws = GAUSSIAN.sample(jax.random.key(0), 20000)
    estimate = scoringrules.crps_ensemble(y, draws, m_axis=0)
    spread = np.std(np.abs(draws - y), axis=0) / math.sqrt(20000)
    assert (np.abs(estimate - crps(GAUSSIAN, y)) < 5.0 * spread).all()


def test_the_names_are_public() -> None:
    assert {"frozen", "tidy"} <= set(scrollmt.__all__)
