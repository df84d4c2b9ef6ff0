"""Pictures show what the law says: positions of marks, bars and bands, not only that they draw."""

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import jax
import matplotlib.dates
import numpy as np
import pandas as pd
import pytest
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from scipy import stats
from scipy.special import ndtr

import small
from scrollmt import Categorical, Event, Forecaster, Gaussian, Windowing, at_lead, plots
from scrollmt._fitting.members import project
from scrollmt.laws import (
    CategoricalLaw,
    CensoredLaw,
    CountLaw,
    EventLaw,
    GaussianLaw,
    OrdinalLaw,
    StudentTLaw,
)
from scrollmt.laws.transformed import TransformedLaw
from scrollmt.plots import canvas
from scrollmt.report import pages
from scrollmt.scores import coverage, nll
from scrollmt.scores import pit as pit_of
from scrollmt.transforms import Transform

EVENT = EventLaw(np.log([[0.5, 0.5]]))


@pytest.fixture
def law() -> GaussianLaw:
    return GaussianLaw(np.array([0.0, 1.0, -2.0]), np.array([1.0, 0.5, 2.0]))


@pytest.fixture
def ax() -> Any:
    return Figure().subplots()


@pytest.fixture(scope="module")
def model() -> Forecaster:
    return small.tiny().fit(*small.windows())


def many(n: int = 4000, seed: int = 0) -> tuple[GaussianLaw, np.ndarray]:
    """A law and labels drawn from it."""
    rng = np.random.default_rng(seed)
    mean, sd = rng.normal(size=n), np.exp(rng.normal(size=n))
    law = GaussianLaw(mean, sd, noise_var=0.5 * sd**2)
    return law, mean + sd * rng.normal(size=n)


def classes(n: int = 4000, seed: int = 0) -> tuple[OrdinalLaw, np.ndarray]:
    rng = np.random.default_rng(seed)
    probs = rng.dirichlet([1.0, 0.6, 0.8], size=n)
    y = (rng.random(n)[:, None] > np.cumsum(probs, axis=1)).sum(axis=1)
    return OrdinalLaw(np.log(probs)), y


def labelled(ax: Any, label: str) -> Any:
    """The artist of that name in the legend."""
    handles, names = ax.get_legend_handles_labels()
    return handles[names.index(label)]


# What came true


def test_forecasts_draws_intervals_means_and_truth(law: GaussianLaw, ax: Any) -> None:
    truth = np.array([0.1, 0.9, -3.0])
    assert plots.forecasts(law, truth, levels=(0.5, 0.9), ax=ax) is ax
    bars: Any = ax.collections
    wide, narrow = (np.array(bar.get_segments())[:, :, 1] for bar in bars)
    np.testing.assert_allclose(wide.T, law.interval(0.9))
    np.testing.assert_allclose(narrow.T, law.interval(0.5))
    mean, came_true = (line.get_ydata() for line in ax.lines)
    np.testing.assert_array_equal(mean, law.mean)
    np.testing.assert_array_equal(came_true, truth)


def test_forecasts_in_original_units_show_the_median(law: GaussianLaw, ax: Any) -> None:
    plots.forecasts(TransformedLaw(law, Transform(("log1p",))), ax=ax)
    np.testing.assert_allclose(labelled(ax, "median").get_ydata(), np.expm1(law.mean))


def test_forecasts_keep_the_clock_of_a_time_zone(law: GaussianLaw, ax: Any) -> None:
    times = pd.date_range("2024-01-01 22:00", periods=3, freq="h", tz="Asia/Tokyo")
    plots.forecasts(law, x=times, ax=ax)
    first = matplotlib.dates.num2date(ax.lines[0].get_xdata(orig=False)[0])
    assert (first.day, first.hour) == (1, 22)


def test_regimes_stack_probabilities_and_put_the_dot_into_the_true_class(ax: Any) -> None:
    probs = np.array([[0.2, 0.5, 0.3], [0.6, 0.3, 0.1]])
    plots.regimes(OrdinalLaw(np.log(probs)), [1, -1], names=["dry", "wet", "flood"], ax=ax)
    for name, low, high in (("dry", 0.0, 0.2), ("wet", 0.2, 0.7), ("flood", 0.7, 1.0)):
        corners = labelled(ax, name).get_paths()[0].vertices
        window = corners[corners[:, 0] == -0.5]
        np.testing.assert_allclose([window[:, 1].min(), window[:, 1].max()], [low, high])
    assert set(corners[:, 0]) == {-0.5, 0.5, 1.5}
    dots = labelled(ax, "came true")
    # The second label is missing, so there is one dot, at its own place and in its class.
    np.testing.assert_allclose(dots.get_xydata(), [[0.0, 0.45]])


def test_regimes_put_the_dot_at_the_time_given(ax: Any) -> None:
    law, y = classes(3)
    times = pd.to_datetime(["2024-01-01 00:00", "2024-01-01 06:00", "2024-01-01 07:00"])
    plots.regimes(law, y, x=times, ax=ax)
    dots = labelled(ax, "came true").get_xdata(orig=False)
    np.testing.assert_allclose(np.sort(dots), matplotlib.dates.date2num(times), rtol=1e-9)
    ends = np.unique(labelled(ax, "0").get_paths()[0].vertices[:, 0])
    wanted = ["2023-12-31 21:00", "2024-01-01 03:00", "2024-01-01 06:30", "2024-01-01 07:30"]
    np.testing.assert_allclose(ends, matplotlib.dates.date2num(pd.to_datetime(wanted)), rtol=1e-9)


def test_events_are_regimes_named_no_and_yes(ax: Any) -> None:
    plots.regimes(EventLaw(np.log([[0.3, 0.7]])), ax=ax)
    assert ax.get_legend_handles_labels()[1] == ["no", "yes"]


def test_confusion_counts_by_true_and_likeliest_class(ax: Any) -> None:
    law, y = classes(200)
    y = np.where(np.arange(200) < 20, -1, y)
    plots.confusion(law, y, ax=ax)
    cells = {(t.get_position()[1], t.get_position()[0]): int(t.get_text()) for t in ax.texts}
    expected = {
        (true, said): int(np.sum((y == true) & (law.mode == said)))
        for true in range(3)
        for said in range(3)
    }
    assert cells == expected
    assert sum(cells.values()) == 180


def test_agreement_marks_the_windows_whose_answers_are_apart(ax: Any) -> None:
    own, read = np.array([0.1, 0.5, 0.9, 0.4]), np.array([0.1, 0.25, 0.95, 0.7])
    plots.agreement(own, read, far=0.2, ax=ax)
    near, apart = labelled(ax, "windows"), labelled(ax, "apart by over 0.2")
    np.testing.assert_array_equal(near.get_xydata(), [[0.1, 0.1], [0.95, 0.9]])
    np.testing.assert_array_equal(apart.get_xydata(), [[0.25, 0.5], [0.7, 0.4]])
    # Thinned, the largest difference stays.
    few = plots.agreement(own, read, points=2)
    np.testing.assert_array_equal(labelled(few, "apart by over 0.2").get_xydata(), [[0.7, 0.4]])


# Over leads


def test_over_leads_draws_lines_and_what_was_promised(ax: Any) -> None:
    lines = {"50% interval": [0.4, np.nan, 0.6], "90% interval": [0.8, 0.9, 0.95]}
    plots.over_leads([1, 6, 24], lines, promised={"90% interval": 0.9}, ax=ax)
    for name, values in lines.items():
        np.testing.assert_array_equal(labelled(ax, name).get_xdata(), [1, 6, 24])
        np.testing.assert_array_equal(labelled(ax, name).get_ydata(), values)
    (level,) = [line for line in ax.lines if line.get_linestyle() == ":"]
    assert set(level.get_ydata()) == {0.9}
    assert level.get_color() == labelled(ax, "90% interval").get_color()


def test_a_fan_opens_over_the_times_that_its_leads_are_for(law: GaussianLaw, ax: Any) -> None:
    t = pd.Timestamp("2024-03-01 12:00", tz="Asia/Tokyo")
    ahead = [t + pd.Timedelta(hours, "h") for hours in (6, 1, 3)]
    past = [t - pd.Timedelta(2, "h"), t - pd.Timedelta(1, "h"), t], [1.0, 2.0, 1.5]
    laws = [law[n] for n in range(3)]
    plots.fan(laws, [0.5, np.nan, -1.0], x=ahead, past=past, ax=ax)
    clock = matplotlib.dates.date2num(
        [np.datetime64(f"2024-03-01T{hour}:00") for hour in (13, 15, 18)]
    )
    median = labelled(ax, "median")
    # In order of time, whatever the order of the leads.
    np.testing.assert_allclose(median.get_xdata(orig=False), clock, rtol=1e-9)
    np.testing.assert_allclose(median.get_ydata(), law.mean[[1, 2, 0]])
    lower, upper = law.interval(0.9)
    corners = labelled(ax, "90% interval").get_paths()[0].vertices
    for place, row in zip(clock, (1, 2, 0), strict=True):
        ends = corners[np.isclose(corners[:, 0], place, rtol=0, atol=1e-6), 1]
        np.testing.assert_allclose([ends.min(), ends.max()], [lower[row], upper[row]])
    np.testing.assert_allclose(
        labelled(ax, "came true").get_ydata(), [0.5, np.nan, -1.0], equal_nan=True
    )
    np.testing.assert_array_equal(labelled(ax, "past").get_ydata(), past[1])
    last = labelled(ax, "past").get_xdata(orig=False)[-1]
    assert last == pytest.approx(clock[0] - 1 / 24, rel=1e-9)


# Calibration


def test_pit_bands_hold_a_calibrated_law_and_not_an_overconfident_one(ax: Any) -> None:
    law, y = many()
    plots.pit(law, y, bins=10, confidence=0.999, ax=ax)
    low, high = stats.binom.interval(0.999, len(law), 0.1)
    corners = ax.collections[0].get_paths()[0].vertices[:, 1]
    np.testing.assert_allclose([corners.min(), corners.max()], np.array([low, high]) / 400)
    heights = ax.patches[0].get_data().values
    counts = np.histogram(pit_of(law, y), bins=10, range=(0, 1))[0]
    np.testing.assert_allclose(heights, counts / 400)
    # Ten bins at 0.999: a calibrated law fails about once in a hundred seeds; this one is fixed.
    assert corners.min() <= heights.min()
    assert heights.max() <= corners.max()
    narrow = plots.pit_histogram(GaussianLaw(law.mean, 0.6 * law.sd), y)
    assert 10 * narrow[[0, -1]].min() > corners.max()


def test_pit_of_classes_is_the_mean_over_its_randomisation() -> None:
    law, y = classes(300)
    exact = plots.pit_histogram(law, y, bins=8)
    keys = jax.random.split(jax.random.key(0), 400)
    drawn = [np.histogram(pit_of(law, y, key=k), bins=8, range=(0, 1))[0] / 300 for k in keys]
    spread = np.std(drawn, axis=0) / np.sqrt(len(keys))
    assert exact.sum() == pytest.approx(1.0)
    assert np.all(np.abs(np.mean(drawn, axis=0) - exact) < 4.5 * spread)


@pytest.mark.parametrize("kind", ["count", "censored", "student"])
def test_pit_of_other_laws_is_flat_for_labels_that_they_drew(kind: str, ax: Any) -> None:
    n = 3000
    mean = np.random.default_rng(0).normal(size=n)
    laws = {
        "count": CountLaw(mean, np.full(n, 0.1)),
        "censored": CensoredLaw(GaussianLaw(mean, np.ones(n)), -0.5, 1.0),
        "student": StudentTLaw(mean, np.full(n, 0.1), scale_obs=1.0, df=4.0),
    }
    law = laws[kind]
    y = np.asarray(law.sample(jax.random.key(1), 1))[0]
    plots.pit(law, y, confidence=0.9999, ax=ax)
    heights = ax.patches[0].get_data().values
    band = ax.collections[0].get_paths()[0].vertices[:, 1]
    # Ten bins at 0.9999: fails once in a thousand keys, and this key is fixed.
    assert band.min() <= heights.min()
    assert heights.max() <= band.max()
    assert plots.forecasts(law, y).get_legend_handles_labels()[1][-1] == "came true"


def test_pit_leaves_missing_labels_out_and_counts_the_rest(law: GaussianLaw, ax: Any) -> None:
    plots.pit(law, [0.0, np.nan, 1.0], bins=2, ax=ax)
    assert "2 labels" in ax.get_legend_handles_labels()[1]
    # F(0) = 1/2 sits on an edge: a bin holds its lower end.
    np.testing.assert_allclose(ax.patches[0].get_data().values, [0.0, 2.0])


def test_coverage_draws_the_share_inside_and_the_band_of_chance(ax: Any) -> None:
    law, y = many()
    plots.coverage(law, y, levels=(0.2, 0.9), ax=ax)
    share = labelled(ax, "4000 labels").get_ydata()
    np.testing.assert_allclose(share, coverage(law, y, [0.2, 0.9]))
    corners = ax.collections[0].get_paths()[0].vertices
    at = corners[np.isclose(corners[:, 0], 0.5), 1]
    np.testing.assert_allclose(
        [at.min(), at.max()], np.asarray(stats.binom.interval(0.95, 4000, 0.5)) / 4000
    )


@pytest.mark.parametrize("at_least", [1, 2])
def test_reliability_bins_probabilities_and_counts_labels(at_least: int, ax: Any) -> None:
    law, y = classes()
    plots.reliability(law, y, at_least=at_least, bins=5, ax=ax)
    p = law.probs[:, at_least:].sum(axis=1)
    said, came = labelled(ax, "came true").get_data()
    bars = np.array(ax.collections[0].get_segments())
    for b in range(5):
        mine = (p >= b / 5) & (p < (b + 1) / 5)
        n = int(mine.sum())
        assert said[b] == pytest.approx(p[mine].mean())
        assert came[b] == pytest.approx((y[mine] >= at_least).mean())
        assert ax.texts[b].get_text() == str(n)
        band = np.asarray(stats.binom.interval(0.95, n, p[mine].mean())) / n
        np.testing.assert_allclose(bars[b, :, 1], band)


def test_spread_error_groups_residuals_by_predicted_sd(ax: Any) -> None:
    law, y = many()
    plots.spread_error(law, y, groups=4, points=100, ax=ax)
    assert len(labelled(ax, "100 of 4000 windows").get_xdata()) == 100
    said, came = labelled(ax, "root mean square").get_data()
    quarter = np.argsort(law.sd)[:1000]
    assert said[0] == pytest.approx(np.sqrt(np.mean(law.var[quarter])))
    assert came[0] == pytest.approx(np.sqrt(np.mean((y - law.mean)[quarter] ** 2)))
    low, high = np.array(ax.collections[0].get_segments())[0, :, 1]
    assert low / said[0] == pytest.approx(np.sqrt(stats.chi2.ppf(0.025, 1000) / 1000))
    # The labels were drawn from the law; a group leaves its band once in twenty.
    assert low < came[0] < high


# Inside the model


def test_variance_split_stacks_noise_and_belief(ax: Any) -> None:
    law = GaussianLaw([0.0, 0.0, 0.0], [2.0, 1.0, 3.0], noise_var=[1.0, 0.5, 2.0])
    plots.variance_split(law, ax=ax)
    tops = {c.get_label(): c.get_paths()[0].vertices[:, 1].max() for c in ax.collections}
    assert tops == {"noise": 2.0, "belief": pytest.approx(9.0)}
    corners = labelled(ax, "belief").get_paths()[0].vertices
    # The windows stand in order of their variance: 1, 4, 9.
    for place, total in enumerate((1.0, 4.0, 9.0)):
        here = corners[np.abs(corners[:, 0] - place) <= 0.5]
        assert total in here[:, 1].round(9)


def test_effective_weights_match_brute_force(model: Forecaster) -> None:
    X, _ = small.windows(20, seed=3)
    weights = plots.effective_weights(model, X)
    law = model.predict(X)["state"]
    assert isinstance(law, GaussianLaw)
    # The paper's preset fits targets in their own units, with one member.
    np.testing.assert_allclose(weights["state"], 0.5 / law.var, rtol=1e-5)
    latent = project(model.members_[0], model._inputs(X))
    for name in ("event", "regime"):
        head: Any = model.members_[0].tasks[name].head
        mean, var = (np.asarray(a, dtype=float)[:20] for a in latent[name])
        cuts = np.concatenate([[-np.inf], np.asarray(head.cutpoints, dtype=float), [np.inf]])

        def probs(m: np.ndarray, cuts: Any = cuts, var: Any = var) -> np.ndarray:
            z = (cuts - m[:, None]) / np.sqrt(1.005**2 + var)[:, None]
            return np.diff(ndtr(z), axis=1)

        slope = (probs(mean + 1e-5) - probs(mean - 1e-5)) / 2e-5
        np.testing.assert_allclose(
            weights[name], 0.5 * np.sum(slope**2 / probs(mean), axis=1), rtol=1e-3
        )


def test_effective_weight_draws_quantiles_of_each_task(model: Forecaster, ax: Any) -> None:
    X, _ = small.windows(20, seed=3)
    plots.effective_weight(model, X, ax=ax)
    found = plots.effective_weights(model, X)
    assert [t.get_text() for t in ax.get_yticklabels()] == list(found)
    np.testing.assert_allclose(
        labelled(ax, "median").get_xdata(), [np.median(w) for w in found.values()]
    )
    wide = np.array(labelled(ax, "90% of windows").get_segments())[:, :, 0]
    np.testing.assert_allclose(
        wide, [np.quantile(w, [0.05, 0.95]) for w in found.values()], rtol=1e-6
    )


def test_precisions_show_every_member_who_speaks(ax: Any) -> None:
    model = small.tiny(ensemble=2).fit(*small.windows())
    plots.precisions(model, ax=ax)
    for line, name in zip(ax.lines, model.tasks_, strict=True):
        expected = [float(m.tasks[name].prior_precision) for m in model.members_]
        np.testing.assert_allclose(line.get_xdata(), expected)


def test_precisions_of_some_tasks(model: Forecaster, ax: Any) -> None:
    plots.precisions(model, tasks=["regime", "state"], ax=ax)
    assert [t.get_text() for t in ax.get_yticklabels()] == ["regime", "state"]
    found = float(model.members_[0].tasks["regime"].prior_precision)
    np.testing.assert_allclose(ax.lines[0].get_xdata(), [found])
    with pytest.raises(ValueError, match=r"no tasks \['x'\] to draw; the model has \['state'"):
        plots.precisions(model, tasks=["x"])


def test_training_marks_the_step_that_was_kept(model: Forecaster, ax: Any) -> None:
    plots.training(model, ax=ax)
    validation = labelled(ax, "validation NLL")
    np.testing.assert_array_equal(validation.get_ydata(), model.history_["validation"])
    best = model.history_.loc[model.history_["validation"].idxmin()]
    mark = labelled(ax, f"kept: {best['step']:.0f}")
    assert mark.get_xydata().tolist() == [[best["step"], best["validation"]]]


# Sharing or not


@pytest.mark.slow
def test_compare_alone_fits_each_task_as_the_joint_model_was_fitted(model: Forecaster) -> None:
    X, Y = small.windows()
    new = small.windows(40, seed=5)
    table = plots.compare_alone(model, (X, Y), new)
    single = small.tiny({"event": Event()}).fit(X, {"event": Y["event"]})
    gap = nll(model.predict(new[0])["event"], new[1]["event"]) - nll(
        single.predict(new[0])["event"], new[1]["event"]
    )
    row = table.loc["event"]
    assert row["difference"] == pytest.approx(gap.mean(), rel=1e-6)
    assert row["se"] == pytest.approx(gap.std(ddof=1) / np.sqrt(40), rel=1e-6)
    assert row["joint"] - row["alone"] == pytest.approx(row["difference"])
    ax = plots.interference(table)
    # One task alone in a model that has only that task: the very same fit.
    same = plots.compare_alone(
        single, (X, {"event": Y["event"]}), (new[0], {"event": Y["event"][:40]})
    )
    assert same.loc["event", "difference"] == 0.0
    assert "sharing helps" in ax.get_xlabel()


@pytest.mark.slow
def test_compare_alone_on_windows_keeps_their_chronological_judges() -> None:
    rng = np.random.default_rng(0)
    frame = {"x": np.cumsum(rng.normal(size=300))}
    questions = {"next": at_lead("x"), "band": at_lead("x").quantile_bands(3)}
    parts = Windowing(history=3, lead=1).cut(frame, questions).split()
    settings = {"preset": small.TINY, "validation": parts.valid}
    model = Forecaster.for_windows(parts.train, **settings).fit(parts.train)
    table = plots.compare_alone(model, parts.train, parts.test)
    alone = Forecaster({"next": Gaussian()}, preset=small.TINY)
    alone.set_params(validation=(parts.valid.X, {"next": parts.valid.Y["next"]}))
    alone.fit(parts.train.X, {"next": parts.train.Y["next"]})
    expected = nll(alone.predict(parts.test.X)["next"], parts.test.Y["next"]).mean()
    assert table.loc["next", "alone"] == pytest.approx(expected, rel=1e-6)
    assert list(table.index) == ["next", "band"]


@pytest.mark.slow
def test_compare_alone_on_windows_keeps_their_folds() -> None:
    frame = {"x": np.random.default_rng(0).normal(size=300)}
    questions = {"next": at_lead("x"), "high": at_lead("x") > 0}
    parts = Windowing(history=3, lead=1).cut(frame, questions).split()
    settings: dict[str, Any] = {"preset": small.TINY, "validation": 3}
    model = Forecaster.for_windows(parts.train, **settings).fit(parts.train)
    table = plots.compare_alone(model, parts.train, parts.test)
    alone = Forecaster({"next": Gaussian()}, preset=small.TINY)
    alone.set_params(validation=parts.train.block_folds(3, embargo="auto"))
    alone.fit(parts.train.X, {"next": parts.train.Y["next"]})
    expected = nll(alone.predict(parts.test.X)["next"], parts.test.Y["next"]).mean()
    assert table.loc["next", "alone"] == pytest.approx(expected, rel=1e-6)


# Beside the truth


def test_variance_tracking_pairs_predicted_with_true(law: GaussianLaw, ax: Any) -> None:
    truth = np.array([1.1, 0.3, 3.5])
    plots.variance_tracking(law, truth, ax=ax)
    points = ax.lines[-1]
    np.testing.assert_array_equal(points.get_xdata(), truth)
    np.testing.assert_array_equal(points.get_ydata(), law.var)
    assert f"{np.corrcoef(truth, law.var)[0, 1]:.2f}" in ax.get_title()


def test_variance_tracking_compares_several_routes(ax: Any) -> None:
    law, _ = many(1000)
    truth = law.var * 1.1
    plots.variance_tracking({"free": law, "flat": np.ones(1000)}, truth, points=50, ax=ax)
    free, flat = ax.lines[1:]
    assert len(free.get_xdata()) == 50
    # Thinned by rank: both ends of the truth are there.
    assert {truth.min(), truth.max()} <= set(free.get_xdata())
    np.testing.assert_allclose(free.get_ydata() * 1.1, free.get_xdata())
    assert set(flat.get_ydata()) == {1.0}
    assert free.get_label() == "free (r = 1.00)"
    assert flat.get_label() == "flat (r undefined: constant)"


def test_variance_tracking_refuses_other_windows(law: GaussianLaw, ax: Any) -> None:
    with pytest.raises(ValueError, match=r"\(2,\).*\(3,\)"):
        plots.variance_tracking(law, np.ones(2), ax=ax)


def test_sd_over_leads_averages_seeds(ax: Any) -> None:
    leads, truth = [0.1, 1.0], [0.4, 0.9]
    seeds = np.array([[0.5, 1.0], [0.3, 0.8], [0.4, 1.2]])
    plots.sd_over_leads(
        leads, seeds, true_sd=truth, sigma_obs=[0.2, 0.3], band=([0.1, 0.5], [0.6, 1.1]), ax=ax
    )
    marks, caps, (bars,) = labelled(ax, "predictive sd")
    np.testing.assert_allclose(marks.get_ydata(), seeds.mean(axis=0))
    ends = np.array(bars.get_segments())[:, :, 1]
    np.testing.assert_allclose(np.ptp(ends, axis=1), 2 * seeds.std(axis=0, ddof=1))
    assert len(caps) == 2
    np.testing.assert_allclose(labelled(ax, "true sd").get_ydata(), truth)
    np.testing.assert_allclose(labelled(ax, "noise sd")[0].get_ydata(), [0.2, 0.3])
    corners = labelled(ax, "true sd over states").get_paths()[0].vertices
    assert (corners[:, 1].min(), corners[:, 1].max()) == (0.1, 1.1)


def test_predictive_sd_is_the_root_of_the_mean_variance(law: GaussianLaw) -> None:
    assert plots.predictive_sd(law) == pytest.approx(np.sqrt((1.0 + 0.25 + 4.0) / 3))


# What holds for all of them


def test_without_ax_a_picture_gets_a_figure_of_its_own(law: GaussianLaw) -> None:
    import matplotlib.pyplot as plt

    before = plt.get_fignums()
    first, second = plots.forecasts(law), plots.forecasts(law)
    assert first.figure is not second.figure
    assert plt.get_fignums() == before


def test_many_named_rows_get_a_higher_picture_each_as_high_as_its_name() -> None:
    tall: Any = plots.effective_weight({f"task {n}": np.ones(3) for n in range(40)})
    few: Any = plots.effective_weight({f"task {n}": np.ones(3) for n in range(3)})
    assert few.figure.get_size_inches()[1] == canvas.FIGURE_SIZE[1]
    tall.figure.canvas.draw()
    boxes = [label.get_window_extent() for label in tall.get_yticklabels()]
    assert all(above.y0 >= below.y1 for above, below in pairwise(boxes))


def luminance(color: str) -> float:
    """Relative luminance of WCAG 2."""
    channels = np.array(to_rgb(color))
    linear = np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)
    return float(linear @ [0.2126, 0.7152, 0.0722])


@pytest.mark.parametrize("color", [*canvas.CYCLE, canvas.GREY])
@pytest.mark.parametrize("page", ["#ffffff", "#16181d"])
def test_colours_stand_out_on_a_light_and_on_a_dark_page(color: str, page: str) -> None:
    light, dark = sorted((luminance(color), luminance(page)), reverse=True)
    assert (light + 0.05) / (dark + 0.05) >= 3.0


# Machado, Oliveira and Fernandes (2009), full severity, on linear RGB.
BLINDNESS = {
    "protanopia": [
        [0.152286, 1.052583, -0.204868],
        [0.114503, 0.786281, 0.099216],
        [-0.003882, -0.048116, 1.051998],
    ],
    "deuteranopia": [
        [0.367322, 0.860646, -0.227968],
        [0.280085, 0.672501, 0.047413],
        [-0.011820, 0.042940, 0.968881],
    ],
    "tritanopia": [
        [1.255528, -0.076749, -0.178779],
        [-0.078411, 0.930809, 0.147602],
        [0.004733, 0.691367, 0.303900],
    ],
}


def as_lab(color: str, matrix: Any) -> np.ndarray:
    """CIELAB (D65) of a colour as a colour-blind reader sees it."""
    channels = np.array(to_rgb(color))
    linear = np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)
    linear = np.clip(np.asarray(matrix) @ linear, 0.0, 1.0)
    to_xyz = [[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]
    x, y, z = np.cbrt((np.array(to_xyz) @ linear) / [0.9505, 1.0, 1.089])
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


@pytest.mark.parametrize("kind", BLINDNESS)
def test_neighbouring_colours_differ_for_colour_blind_readers(kind: str) -> None:
    # 2.3 is just noticeable; the pair that most pictures use is held to much more.
    seen = [as_lab(color, BLINDNESS[kind]) for color in canvas.CYCLE]
    assert np.linalg.norm(seen[0] - seen[1]) > 40
    others = [np.linalg.norm(a - b) for i, a in enumerate(seen) for b in seen[:i]]
    assert min(others) > 12


@pytest.mark.parametrize(
    ("draw", "error", "message"),
    [
        (lambda law, y: plots.pit(law, [np.nan] * 3), ValueError, "all 3 labels are missing"),
        (lambda law, y: plots.coverage(law, [None] * 3), ValueError, "all 3 labels are missing"),
        (lambda law, y: plots.forecasts(law, y, x=[1, 2]), ValueError, r"\(2,\).*3 forecasts"),
        (lambda law, y: plots.variance_split(law), ValueError, "which part of its variance"),
        (lambda law, y: plots.regimes(law), TypeError, "plots.forecasts"),
        (lambda law, y: plots.confusion(law, y), TypeError, "no classes to confuse"),
        (lambda law, y: plots.reliability(law, y), TypeError, "ordered class"),
        (lambda law, y: plots.sd_over_leads([1, 2], [1, 2, 3]), ValueError, r"\(3,\).*2 leads"),
        (lambda law, y: plots.over_leads([1], {"a": [1, 2]}), ValueError, r"\(1,\).*'a': \(2,\)"),
        (lambda law, y: plots.over_leads([1], {}), ValueError, "no lines"),
        (lambda law, y: plots.fan([law]), ValueError, r"one forecast for each lead, got \[3\]"),
        (lambda law, y: plots.fan([law[0]], x=[1, 2]), ValueError, r"\(2,\).*1 leads"),
        (lambda law, y: plots.fan([EVENT]), TypeError, r"EventLaw.*plots\.regimes"),
        (lambda law, y: plots.agreement([0.1], [0.1, 0.2]), ValueError, r"\(1,\).*\(2,\)"),
        (lambda law, y: plots.interference(pd.DataFrame({"se": [1]})), ValueError, "difference"),
    ],
)
def test_what_does_not_fit_is_named(
    draw: Callable[[Any, Any], Any], error: type[Exception], message: str, law: GaussianLaw
) -> None:
    with pytest.raises(error, match=message):
        draw(law, np.zeros(3))


def test_classes_refuse_pictures_of_values() -> None:
    with pytest.raises(TypeError, match=r"plots\.regimes"):
        plots.forecasts(EVENT)
    with pytest.raises(ValueError, match="2 classes"):
        plots.regimes(EVENT, names=["a"])
    with pytest.raises(ValueError, match="between 1 and 1"):
        plots.reliability(EVENT, [0], at_least=2)
    with pytest.raises(TypeError, match="order"):
        plots.pit(CategoricalLaw(np.log([[0.5, 0.5]])), [0])


def test_models_without_weights_or_precisions_say_so() -> None:
    X, Y = small.windows()
    model = small.tiny({"kind": Categorical(3)}, belief="none").fit(X, {"kind": Y["regime"]})
    with pytest.raises(ValueError, match="Gaussian, Event and Ordinal"):
        plots.effective_weight(model, X)
    with pytest.raises(ValueError, match="no prior precision"):
        plots.precisions(model)


def test_a_dollar_sign_in_a_name_starts_no_formula() -> None:
    weights = {"$price_$": np.ones(3), "a_b^$": np.ones(3)}
    ax = plots.effective_weight(weights)
    ax.figure.canvas.draw()
    labels = [t.get_text() for t in ax.get_yticklabels()]
    assert labels == [r"\$price_\$", r"a_b^\$"]


@pytest.mark.parametrize(
    "hours", [1, 5, 23, 47, 59, 61, 71, 73, 24 * 17, 24 * 100, 24 * 400, 24 * 4000]
)
@pytest.mark.parametrize("unit", ["h", "min", "s"])
def test_dates_of_any_span_find_their_ticks(hours: int, unit: str) -> None:
    """matplotlib warns, and warnings are errors here, where no interval of its own suits a span."""
    t = pd.date_range("2023-03-01 05:00", periods=60, freq=pd.Timedelta(hours, unit) / 59)
    ax = plots.forecasts(GaussianLaw(np.zeros(60), np.ones(60)), x=t)
    ax.figure.canvas.draw()
    assert 1 <= len(ax.get_xticks()) <= 9


# Odd but legal: matplotlib warns of much, and warnings are errors here


def test_names_are_one_short_line_that_no_legend_hides(ax: Any) -> None:
    assert canvas.words("a\tb\n c\x00") == "a b c"
    assert len(canvas.words("long " * 30)) <= canvas.LONGEST_NAME
    law = OrdinalLaw(np.log([[0.5, 0.5]]))
    plots.regimes(law, names=["_low", "high " * 20], ax=ax)
    shown = [text.get_text() for text in ax.get_legend().get_texts()]
    assert [name.strip() for name in shown] == ["_low", canvas.words("high " * 20)]


def rendered(ax: Any) -> None:
    """Drawn to the last letter, as a page has it."""
    assert "<svg" in pages.svg(ax, alt="x")


TINY, HUGE = 1e-100, 1e100


@pytest.mark.slow
@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize(
    ("mean", "sd"),
    [(0.0, 1.0), (0.0, TINY), (HUGE, TINY), (HUGE, HUGE), (-TINY, HUGE), (5.0, 1e-12)],
)
def test_constant_tiny_and_huge_laws_are_drawn(mean: float, sd: float, rows: int) -> None:
    law = GaussianLaw(np.full(rows, mean), np.full(rows, sd), noise_var=0.5 * sd**2)
    one = np.where(np.arange(rows) == 0, mean, np.nan)
    for y in (law.mean + HUGE, one):
        for draw in (plots.coverage, plots.pit, plots.spread_error, plots.forecasts):
            rendered(draw(law, y))
    missing = np.full(rows, np.nan)
    rendered(plots.forecasts(law, missing))
    rendered(plots.fan([law[n] for n in range(rows)], missing, past=([], [])))
    rendered(plots.variance_split(law))
    for truth in (law.var, np.zeros(rows)):
        rendered(plots.variance_tracking(law, truth))
    rendered(plots.sd_over_leads(np.arange(1, rows + 1), law.sd, true_sd=law.sd))


@pytest.mark.parametrize("p", [0.0, 1e-300, 0.5, 1.0])
def test_certain_and_impossible_events_are_drawn(p: float) -> None:
    with np.errstate(divide="ignore"):
        law = EventLaw(np.log([[1.0 - p, p]] * 3))
    for y in ([0, 0, 0], [1, 1, 1], [1, np.nan, np.nan]):
        for draw in (plots.reliability, plots.pit, plots.regimes, plots.confusion):
            rendered(draw(law, y))
    rendered(plots.regimes(law, [np.nan] * 3))
    rendered(plots.agreement(law.prob, 1.0 - law.prob))


@pytest.mark.slow
@pytest.mark.parametrize(
    "law",
    [
        CountLaw(np.array([-50.0, 0.0, 12.0]), np.array([0.1, 0.1, 2.0])),
        CensoredLaw(GaussianLaw(np.full(3, -50.0), np.ones(3)), -0.5, 1.0),
        StudentTLaw(np.zeros(3), np.full(3, 0.1), scale_obs=1.0, df=2.01),
    ],
    ids=lambda law: type(law).__name__,
)
def test_laws_with_masses_and_heavy_tails_are_drawn(law: Any) -> None:
    for y in (np.zeros(3), np.array([1.0, np.nan, np.nan]), np.full(3, 1e9)):
        for draw in (plots.coverage, plots.pit, plots.forecasts):
            rendered(draw(law, y))
    rendered(plots.fan([law[n] for n in range(3)]))


def test_forecasts_beyond_all_floats_are_left_out() -> None:
    law = TransformedLaw(GaussianLaw([0.0, 700.0, 5000.0], [1.0, 50.0, 1.0]), Transform(("log",)))
    ax = plots.forecasts(law)
    np.testing.assert_array_equal(
        np.isfinite(labelled(ax, "median").get_ydata()), [True, True, False]
    )
    rendered(ax)
    rendered(plots.fan([law[n] for n in range(3)]))


@pytest.mark.parametrize(
    "x",
    [
        [0.0, 0.0, 0.0],
        [1e300, 1.05e300, 1.1e300],
        [0.0, 1e-9, 2e-9],
        pd.DatetimeIndex(["2024-01-01"] * 3),
        pd.date_range("2024-01-01", periods=3, freq="ns"),
        pd.date_range("1700-01-01", periods=3, freq="3650D"),
        pd.date_range("9000-01-01", periods=3, freq="3650D", unit="s"),
        pd.timedelta_range("1h", periods=3, freq="h"),
    ],
    ids=lambda x: f"{type(x).__name__} from {x[0]}",
)
def test_odd_places_are_drawn(x: Any) -> None:
    law = GaussianLaw(np.zeros(3), np.ones(3), noise_var=0.5)
    for rows in (1, 3):
        some = law[:rows]
        rendered(plots.forecasts(some, x=x[:rows]))
        rendered(plots.variance_split(some, x=x[:rows]))
        rendered(plots.fan([law[n] for n in range(rows)], x=x[:rows]))
        rendered(plots.regimes(EventLaw(np.log(np.full((rows, 2), 0.5))), x=x[:rows]))


ODD_NAMES = ("臭氧 ☃😀", r"$a_b$ \frac{", "_x", "", "word " * 40, "a\nb\t%")


@pytest.mark.parametrize("name", ODD_NAMES)
def test_odd_names_are_drawn(name: str) -> None:
    law = OrdinalLaw(np.log(np.full((4, 3), 1 / 3)))
    for draw in (plots.regimes, plots.confusion):
        rendered(draw(law, [0, 1, 2, np.nan], names=[name] * 3))
    rendered(plots.effective_weight({name: np.ones(3), f"{name} ": np.zeros(3)}))
    rendered(plots.over_leads([1, 2], {name: [1.0, np.nan], f"{name} ": [np.nan, np.nan]}))
    rendered(plots.variance_tracking({name: np.ones(3)}, np.arange(3.0)))
    table = pd.DataFrame({"difference": [0.0, 1.0], "se": [np.nan, 0.0]}, index=[name, "b"])
    rendered(plots.interference(table))


@pytest.mark.parametrize("reach", [1.7, 2.5, 10.0, 1e3, 1e9])
def test_a_logarithmic_axis_of_any_length_has_a_few_ticks(reach: float, ax: Any) -> None:
    ax.plot([0.09, 0.09 * reach], [0.0, 1.0])
    canvas.plain_log(ax, "x")
    low, high = ax.get_xlim()
    shown = [tick for tick in ax.get_xticks() if low <= tick <= high]
    assert 2 <= len(shown) <= 8


def test_weights_of_nothing_are_drawn() -> None:
    ax = plots.effective_weight({"flat": np.zeros(3), "tiny": np.full(3, TINY)})
    assert ax.get_xscale() == "log"
    rendered(ax)
    none = plots.effective_weight({"flat": np.zeros(3)})
    assert none.get_xscale() == "linear"
    rendered(none)
