"""Observables: labels against plain loops, sentences, scales and their inverses, storage."""

import json
import math

import numpy as np
import pytest
from scipy import stats

from scrollmt.corpora import lorenz63, ou
from scrollmt.corpora.base import quartile_classes
from scrollmt.heads import Event, Ordinal, Real
from scrollmt.laws import GaussianLaw
from scrollmt.observables import Bands, at_lead, observable_from_dict, over_window
from scrollmt.transforms import Transform

EVERY = [
    at_lead("x"),
    at_lead("x", units="m").log1p(),
    at_lead("x").log1p().sqrt(),
    over_window("x").mean(),
    over_window("x", include_start=True).sum().log(),
    over_window("x").log1p().mean(),
    over_window("x").sqrt().max(),
    over_window("x").min() < 0.5,
    over_window("x").mean() > 75,
    at_lead("x") >= -1,
    at_lead("x") <= 2.5,
    at_lead("x").bands([35, 75, 150]),
    at_lead("x").quantile_bands(4),
    at_lead("x").quantile_bands([0.1, 0.9], edges_from="corpus"),
    at_lead("x").quantile_bands(3).learn(np.arange(10.0)),
]


@pytest.fixture(scope="module")
def paths() -> np.ndarray:
    x = np.random.default_rng(0).gamma(2.0, size=(40, 7))
    x[3, 2] = x[5, -1] = x[8, 0] = np.nan
    return x


def loop(paths: np.ndarray, answer, start: int) -> np.ndarray:
    """The label of each path by plain Python; NaN as soon as a cell that counts is missing."""
    labels = []
    for path in paths.tolist():
        span = path[start:]
        labels.append(math.nan if any(map(math.isnan, span)) else float(answer(span)))
    return np.array(labels)


def mean(span: list[float]) -> float:
    return math.fsum(span) / len(span)


@pytest.mark.parametrize(
    ("observable", "answer", "start"),
    [
        (at_lead("x"), lambda s: s[-1], -1),
        (at_lead("x").log1p(), lambda s: math.log1p(s[-1]), -1),
        (at_lead("x").sqrt(), lambda s: math.sqrt(s[-1]), -1),
        (at_lead("x") > 2, lambda s: s[-1] > 2, -1),
        (over_window("x").mean(), mean, 1),
        (over_window("x").max(), max, 1),
        (over_window("x").min(), min, 1),
        (over_window("x").sum(), math.fsum, 1),
        (over_window("x", include_start=True).mean(), mean, 0),
        (over_window("x").log().mean(), lambda s: mean([math.log(v) for v in s]), 1),
        (over_window("x").mean().log(), lambda s: math.log(mean(s)), 1),
        (over_window("x").log1p().max(), lambda s: max(math.log1p(v) for v in s), 1),
        (over_window("x").mean() >= 2, lambda s: mean(s) >= 2, 1),
        (over_window("x").min() < 0.3, lambda s: min(s) < 0.3, 1),
        (over_window("x", include_start=True).max() <= 4, lambda s: max(s) <= 4, 0),
        (at_lead("x").bands([1, 2, 4]), lambda s: sum(e <= s[-1] for e in (1, 2, 4)), -1),
    ],
    ids=lambda v: None if callable(v) else str(v),
)
def test_labels_match_a_plain_loop(observable, answer, start: int, paths: np.ndarray) -> None:
    labels = observable.evaluate({"x": paths, "other": paths[:2]})
    np.testing.assert_allclose(labels, loop(paths, answer, start), rtol=1e-12)
    known = labels[~np.isnan(labels)]
    assert len(np.unique(known)) > 1, "the test cannot tell labels apart"


def test_a_missing_cell_is_never_a_no(paths: np.ndarray) -> None:
    event = over_window("x").max() >= 0.0
    assert np.isnan(event.evaluate({"x": paths})[[3, 5]]).all()
    # the start lies outside (t, t + lead]
    assert event.evaluate({"x": paths})[8] == 1.0
    assert np.isnan((over_window("x", include_start=True).max() >= 0).evaluate({"x": paths})[8])


def test_thresholds_and_edges_are_read_exactly() -> None:
    x = {"x": np.array([[0.0, 1.0], [0.0, 2.0], [0.0, 3.0]])}
    for event, expected in [
        (at_lead("x") > 2, [0, 0, 1]),
        (at_lead("x") >= 2, [0, 1, 1]),
        (at_lead("x") < 2, [1, 0, 0]),
        (at_lead("x") <= 2, [1, 1, 0]),
        (2 < at_lead("x"), [0, 0, 1]),  # noqa: SIM300
    ]:
        np.testing.assert_array_equal(event.evaluate(x), expected)
    np.testing.assert_array_equal(at_lead("x").bands([2, 3]).evaluate(x), [0, 1, 2])


def test_integer_paths_are_numbers_too() -> None:
    steps = {"x": np.array([[0, 3, 4], [0, 1, 0]])}
    np.testing.assert_allclose(over_window("x").mean().evaluate(steps), [3.5, 0.5])


@pytest.mark.parametrize(
    ("observable", "sentence"),
    [
        (at_lead("pm2.5").log1p(), "log1p(pm2.5) at t + lead"),
        (
            over_window("pm2.5", units="ug/m3").mean() > 75,
            "whether the mean of pm2.5 over (t, t + lead] is above 75 ug/m3",
        ),
        (
            over_window("x", include_start=True).max() >= 1.5,
            "whether the max of x over [t, t + lead] is at least 1.5",
        ),
        (
            at_lead("pm2.5").bands([35, 75, 150]),
            "the band (of 4) of pm2.5 at t + lead, cut at 35, 75, 150",
        ),
        (over_window("x").log().mean(), "the mean of log(x) over (t, t + lead]"),
        (over_window("x").mean().log(), "log of the mean of x over (t, t + lead]"),
        (at_lead("x") < 0, "whether x at t + lead is below 0"),
        (at_lead("x") <= 0, "whether x at t + lead is at most 0"),
        (
            at_lead("x").quantile_bands(2),
            "the band (of 2) of x at t + lead, cut at its 0.5 quantiles over the training corpus",
        ),
        (
            at_lead("x").quantile_bands(2, edges_from="corpus").learn(np.array([1.0, 2.0])),
            "the band (of 2) of x at t + lead, cut at 1.5 "
            "(its 0.5 quantiles over the whole corpus)",
        ),
    ],
    ids=str,
)
def test_an_observable_prints_as_the_sentence_it_means(observable, sentence: str) -> None:
    assert str(observable) == sentence
    assert observable.sentence("24 h") == sentence.replace("t + lead", "t + 24 h")


def test_each_observable_knows_its_head() -> None:
    assert type(at_lead("x").log().head()) is Real
    assert type((over_window("x").max() > 1).head()) is Event
    for bands, classes in ((at_lead("x").bands([1]), 2), (at_lead("x").quantile_bands(5), 5)):
        head = bands.head()
        assert type(head) is Ordinal
        assert head.classes == classes


def test_units_before_and_after_the_way_back() -> None:
    state = at_lead("pm2.5", units="ug/m3").log1p()
    assert (state.label_units, state.original_units) == ("log1p(ug/m3)", "ug/m3")
    assert at_lead("x").original_units == "x"
    # inside a mean a logarithm stays, around an extreme it can be undone
    assert over_window("x").log().mean().original_units == "log(x)"
    assert over_window("x").log().max().original_units == "x"
    np.testing.assert_allclose(over_window("x").log().max().inverse([0.0]), [1.0])
    assert at_lead("x").bands([35.5, 75]).names == ["below 35.5", "35.5 to 75", "from 75"]


@pytest.mark.parametrize("steps", [(), ("log1p",), ("log",), ("sqrt",), ("log1p", "sqrt")])
def test_a_transform_returns_and_its_slope_is_its_derivative(steps: tuple[str, ...]) -> None:
    transform = Transform(steps)
    x = np.array([0.05, 0.7, 3.0, 400.0])
    np.testing.assert_allclose(transform.inverse(transform.forward(x)), x, rtol=1e-12)
    h = 1e-6 * x
    slope = (transform.forward(x + h) - transform.forward(x - h)) / (2 * h)
    np.testing.assert_allclose(np.exp(transform.log_slope(x)), slope, rtol=1e-7)


def test_inverses_keep_the_order_of_quantiles_outside_the_range() -> None:
    y = np.linspace(-3, 3, 101)
    for step in ("log1p", "log", "sqrt"):
        assert np.all(np.diff(Transform((step,)).inverse(y)) > 0)


def test_a_law_on_a_logarithm_answers_in_original_units() -> None:
    question = at_lead("x").log()
    law = GaussianLaw(mean=[1.2, -0.3], sd=[0.5, 0.9])
    truth = stats.lognorm(s=law.sd, scale=np.exp(law.mean))
    for p in (0.05, 0.5, 0.99):
        np.testing.assert_allclose(question.inverse(law.quantile(p)), truth.ppf(p), rtol=1e-12)
    lower, upper = (question.inverse(end) for end in law.interval(0.9))
    np.testing.assert_allclose(truth.cdf(upper) - truth.cdf(lower), 0.9, rtol=1e-12)
    x = np.array([2.0, 0.4])
    density = law.log_prob(question.after.forward(x)) + question.after.log_slope(x)
    np.testing.assert_allclose(density, truth.logpdf(x), rtol=1e-12)


def test_quantile_edges_are_learned_and_missing_values_left_out() -> None:
    values = np.array([4.0, np.nan, 1.0, 3.0, 2.0, 0.0])
    bands = at_lead("x").quantile_bands(4)
    assert bands.edges is None
    learned = bands.learn(values)
    assert learned.edges == (1.0, 2.0, 3.0)
    np.testing.assert_array_equal(learned.label(values), [3, np.nan, 1, 3, 2, 0])
    with pytest.raises(ValueError, match="not known yet"):
        bands.evaluate({"x": np.ones((3, 2))})
    with pytest.raises(ValueError, match="coincide"):
        bands.learn(np.array([0.0, 0.0, 0.0, 0.0, 5.0]))
    with pytest.raises(ValueError, match="all are missing"):
        bands.learn(np.array([np.nan]))
    with pytest.raises(ValueError, match="nothing to learn"):
        at_lead("x").bands([1.0]).learn(values)


@pytest.mark.parametrize("observable", EVERY, ids=str)
def test_storage_as_json_is_exact(observable) -> None:
    assert observable_from_dict(json.loads(json.dumps(observable.to_dict()))) == observable


def test_observables_are_told_apart() -> None:
    assert len({str(one) for one in EVERY}) == len(EVERY)
    assert all(a != b for i, a in enumerate(EVERY) for b in EVERY[:i])


def test_the_ou_corpus_has_the_labels_of_its_questions() -> None:
    """At a lead of one step the corpus shows its whole path, (start, end)."""
    corpus = ou.draw(n=2001, lead=ou.STEP, seed=5)
    paths = {"x": np.stack([corpus.X[:, 0], corpus.Y["state"]], axis=1)}
    questions = {
        "state": at_lead("x"),
        "event": over_window("x", include_start=True).max() >= ou.BARRIER,
        "regime": over_window("x", include_start=True)
        .mean()
        .quantile_bands(4, edges_from="corpus"),
    }
    for task, question in questions.items():
        np.testing.assert_array_equal(question.evaluate(paths), corpus.Y[task], err_msg=task)
    regime = questions["regime"]
    assert isinstance(regime, Bands)
    np.testing.assert_allclose(regime.learn(regime.values(paths)).edges or (), corpus.edges)


def test_ou_questions_over_many_steps() -> None:
    """Paths from the exact transition; labels by the definitions of the corpus, in loops."""
    rng = np.random.default_rng(1)
    x = rng.standard_normal((500, 51))
    for k in range(50):
        x[:, k + 1] = ou.DECAY * x[:, k] + ou.SIGMA_STEP * x[:, k + 1]
    event = over_window("x", include_start=True).max() >= ou.BARRIER
    np.testing.assert_array_equal(
        event.evaluate({"x": x}), [float(any(v >= 1.5 for v in path)) for path in x.tolist()]
    )
    average = np.array([math.fsum(path) / 51 for path in x.tolist()])
    regime = over_window("x", include_start=True).mean().quantile_bands(4, edges_from="corpus")
    np.testing.assert_array_equal(regime.evaluate({"x": x}), quartile_classes(average)[0])


def test_the_lorenz_corpus_has_the_labels_of_its_questions() -> None:
    corpus = lorenz63.draw(n=200, lead=0.05, seed=2, chains=20)
    paths = {"x": np.stack([corpus.X[:, 0], corpus.Y["state"]], axis=1)}
    np.testing.assert_array_equal(at_lead("x").evaluate(paths), corpus.Y["state"])
    np.testing.assert_array_equal((at_lead("x") > 0).evaluate(paths), corpus.Y["event"])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: at_lead("x") > float("nan"), "must be finite"),
        (lambda: bool(at_lead("x") > 1), "no truth value"),
        (lambda: 1 < at_lead("x") < 2, "use value.bands"),
        (lambda: at_lead("x").bands([]), "at least one number"),
        (lambda: at_lead("x").bands([2, 1]), "increasing"),
        (lambda: at_lead("x").bands([1, 1]), "without ties"),
        (lambda: at_lead("x").bands([1, math.inf]), "must be finite"),
        (lambda: Bands(at_lead("x")), "need edges"),
        (lambda: at_lead("x").quantile_bands(1), "at least 2 bands"),
        (lambda: at_lead("x").quantile_bands([0.0, 0.5]), "strictly between 0 and 1"),
        (lambda: at_lead("x").log().evaluate({"x": np.zeros((2, 3))}), "log needs values > 0"),
        (lambda: at_lead("x").sqrt().evaluate({"x": -np.ones((2, 3))}), "2 are not"),
        (lambda: at_lead("x").evaluate({"y": np.ones((2, 3))}), "No paths for column 'x'"),
        (lambda: at_lead("x").evaluate({"x": np.ones(3)}), r"\(N, steps \+ 1\).*\(3,\)"),
        (lambda: observable_from_dict({"kind": "riddle"}), "riddle"),
        (lambda: Transform(("cube",)), "Unknown transform 'cube'"),
    ],
)
def test_errors_teach(call, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()
