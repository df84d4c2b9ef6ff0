"""What both simulated corpora promise: shapes, frozen draws, clear errors, scores by subset."""

import jax
import numpy as np
import pytest

from scrollmt.corpora import Corpus, lorenz63, ou
from scrollmt.corpora.base import quartile_classes, steps_in

DIM = {"ou": 1, "lorenz63": 3}
MODULES = [pytest.param(module, id=module.__name__.rsplit(".", 1)[1]) for module in (ou, lorenz63)]


@pytest.fixture(scope="module", params=MODULES)
def corpus(request) -> Corpus:
    return request.param.draw(n=130, lead=0.1)


def labels(corpus: Corpus, rows=slice(None)) -> dict:
    return {task: y[rows] for task, y in corpus.Y.items()}


def test_shapes_and_types(corpus):
    assert len(corpus) == 130
    assert corpus.X.shape == (130, DIM[corpus.name])
    assert corpus.X.dtype == np.float32
    assert list(corpus.Y) == ["state", "event", "regime"]
    assert all(y.shape == (130,) for y in corpus.Y.values())
    assert corpus.Y["state"].dtype == np.float32
    assert set(np.unique(corpus.Y["event"])) == {0, 1}
    assert set(np.unique(corpus.Y["regime"])) == {0, 1, 2, 3}
    assert repr(corpus).endswith("(N=130, lead=0.1, seed=0)")


@pytest.mark.parametrize("module", MODULES)
def test_default_draw_is_the_protocols(module):
    corpus = module.draw()
    assert (len(corpus), corpus.lead, corpus.seed) == (6500, 0.5, 0)
    assert np.bincount(corpus.Y["regime"]).tolist() == [1625] * 4


@pytest.mark.parametrize("module", MODULES)
def test_same_seed_same_corpus_in_either_precision(module):
    first, second = module.draw(n=40, lead=0.1), module.draw(n=40, lead=0.1)
    with jax.enable_x64(True):
        wide = module.draw(n=40, lead=0.1)
    other = module.draw(n=40, lead=0.1, seed=1)
    for again in (second, wide):
        np.testing.assert_array_equal(first.X, again.X)
        np.testing.assert_array_equal(first.edges, again.edges)
        for task in first.Y:
            np.testing.assert_array_equal(first.Y[task], again.Y[task])
    assert not np.any(first.X == other.X)


@pytest.mark.parametrize("module", MODULES)
def test_a_longer_draw_begins_with_the_shorter_one(module):
    """Also where the number of windows is no multiple of the number of chains."""
    short, long = module.draw(n=70, lead=0.1), module.draw(n=200, lead=0.1)
    np.testing.assert_array_equal(short.X, long.X[:70])
    np.testing.assert_array_equal(short.Y["state"], long.Y["state"][:70])


def test_quartiles_interpolate_and_an_edge_belongs_to_the_class_above():
    classes, edges = quartile_classes(np.array([1.0, 2.0, 3.0, 4.0, 5.0], np.float32))
    assert edges.tolist() == [2.0, 3.0, 4.0]
    assert classes.tolist() == [0, 1, 2, 3, 3]
    assert quartile_classes(np.array([0.0, 1.0, 2.0, 3.0]))[1].tolist() == [0.75, 1.5, 2.25]


@pytest.mark.parametrize("step", [0.01, 0.005])
def test_every_decimal_multiple_of_the_step_is_a_lead(step):
    assert [steps_in(k * step, step) for k in range(1, 2001)] == list(range(1, 2001))


@pytest.mark.parametrize("module", MODULES)
def test_bad_draws_are_refused(module):
    with pytest.raises(ValueError, match=r"lead=0.503 is not a multiple .* try lead=0.5 or 0.5"):
        module.draw(lead=0.503)
    with pytest.raises(ValueError, match=r"lead=0.001 is not a multiple .* try lead=0.0"):
        module.draw(lead=0.001)
    for lead in (0.0, -0.5, float("nan"), float("inf")):
        with pytest.raises(ValueError, match="positive and finite"):
            module.draw(lead=lead)
    for n in (3, 0, -1):
        with pytest.raises(ValueError, match=f"n={n} is too small; use at least 4"):
            module.draw(n=n)


def test_bad_states_are_refused(corpus):
    dim = DIM[corpus.name]
    wrong = [np.zeros((5, dim + 1)), np.zeros(dim), np.zeros((0, dim)), np.zeros((2, 2, dim))]
    for x in wrong:
        with pytest.raises(ValueError, match=rf"X has shape .*expected \(N, {dim}\)"):
            corpus.true_var(x)
        with pytest.raises(ValueError, match=rf"X has shape .*expected \(N, {dim}\)"):
            corpus.oracle(x, corpus.Y)
    x = corpus.X.copy()
    x[[7, 9], -1] = np.nan
    with pytest.raises(ValueError, match="X has 2 rows that are not finite, the first at 7"):
        corpus.true_var(x)


@pytest.mark.slow
def test_states_in_other_units_are_refused(corpus):
    with pytest.raises(ValueError, match="units of the corpus"):
        corpus.oracle(corpus.X * 1e6, corpus.Y)


def test_bad_labels_are_refused(corpus):
    def with_label(task, value):
        Y = {name: y.astype(np.float64) for name, y in corpus.Y.items()}
        Y[task][3] = value
        return Y

    with pytest.raises(ValueError, match=r"no task 'event'; it holds \['regime', 'state'\]"):
        corpus.oracle(corpus.X, {k: v for k, v in corpus.Y.items() if k != "event"})
    with pytest.raises(ValueError, match=r"Y\['state'\] has shape \(130,\), but X has 9 rows"):
        corpus.oracle(corpus.X[:9], corpus.Y)
    with pytest.raises(ValueError, match=r"Y\['state'\] has 1 missing labels, the first at 3"):
        corpus.oracle(corpus.X, with_label("state", np.nan))
    for task, value in (("event", 2), ("event", -1), ("regime", 4), ("regime", 0.5)):
        with pytest.raises(ValueError, match=rf"Y\['{task}'\] has values .*expected 0 to"):
            corpus.oracle(corpus.X, with_label(task, value))


def test_oracle_by_subset(corpus):
    score = corpus.oracle(corpus.X, corpus.Y)
    assert set(score.nll) == {"state", "state_density", "event", "regime"}
    rows = np.array([5, 2, 100])
    part = score.take(rows)
    for task, nll in score.nll.items():
        assert nll.shape == score.mc_var[task].shape == (130,)
        assert part.mean_nll[task] == nll[rows].mean()
        assert part.mc_error[task] == pytest.approx(
            np.sqrt(score.mc_var[task][rows].sum()) / 3, rel=1e-12
        )
    np.testing.assert_array_equal(part.var, score.var[rows])
    for task, classes in (("event", 2), ("regime", 4)):
        assert score.probs[task].shape == (130, classes)
        np.testing.assert_allclose(score.probs[task].sum(axis=1), 1.0, atol=1e-6)
        np.testing.assert_array_equal(part.probs[task], score.probs[task][rows])
    swapped = score.put(rows, score.take(rows[::-1]))
    np.testing.assert_array_equal(swapped.mean[[5, 2, 100]], score.mean[[100, 2, 5]])
    np.testing.assert_array_equal(swapped.probs["event"][5], score.probs["event"][100])
    untouched = np.setdiff1d(np.arange(130), rows)
    np.testing.assert_array_equal(swapped.nll["state"][untouched], score.nll["state"][untouched])
