"""The OU corpus against the analytic process, and its exact law against brute force.

Bounds of 4.5 standard errors fail on a redraw with chance 7e-6 a comparison; keys are fixed.
"""

import math

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import log_ndtr
from scipy.stats import multivariate_normal, norm

from scrollmt.corpora import ou

SIGMAS = 4.5


@pytest.fixture(scope="module")
def corpus():
    return ou.draw()


def z_score(values, expected):
    return (values.mean() - expected) / (values.std() / np.sqrt(len(values)))


@pytest.mark.parametrize("lead", [0.1, 0.5, 2.0])
def test_transition_is_exact(lead):
    corpus = ou.draw(lead=lead)
    x, y = corpus.X[:, 0].astype(np.float64), corpus.Y["state"].astype(np.float64)
    v = 1 - np.exp(-2 * lead)
    noise = (y - np.exp(-lead) * x) / np.sqrt(v)
    for values in (x, noise):
        assert abs(z_score(values, 0)) < SIGMAS
        assert abs(z_score(values**2, 1)) < SIGMAS
        assert abs(z_score(values**4, 3)) < SIGMAS
    assert abs(z_score(x * noise, 0)) < SIGMAS
    assert abs(z_score(x * noise**2, 0)) < SIGMAS
    np.testing.assert_allclose(corpus.true_var(corpus.X), v, rtol=1e-12)


def test_event_rate(corpus):
    """0.196 +- 0.005 over redraws; four of those either way (failure rate 6e-5)."""
    assert corpus.Y["event"].mean() == pytest.approx(0.196, abs=0.02)


def test_labels_of_a_one_step_window():
    """Two grid points, both known: the labels can be recomputed from input and state."""
    corpus = ou.draw(lead=0.01)
    ends = np.stack([corpus.X[:, 0], corpus.Y["state"]])
    np.testing.assert_array_equal(corpus.Y["event"], ends.max(axis=0) >= 1.5)
    average = ends.astype(np.float64).mean(axis=0)
    edges = np.quantile(average, [0.25, 0.5, 0.75])
    np.testing.assert_allclose(corpus.edges, edges, atol=1e-7)
    clear = np.abs(average[:, None] - edges).min(axis=1) > 1e-6
    expected = (average[:, None] >= edges).sum(axis=1)
    np.testing.assert_array_equal(corpus.Y["regime"][clear], expected[clear])


def test_oracle_reaches_the_entropy_floor(corpus):
    """0.5 log(2 pi e V*), the deviation of one score being 1 / sqrt 2 for any Gaussian."""
    score = corpus.oracle(corpus.X, corpus.Y)
    floor = 0.5 * np.log(2 * np.pi * math.e * (1 - np.exp(-1)))
    assert floor == pytest.approx(1.1896, abs=5e-5)
    assert abs(score.mean_nll["state"] - floor) < SIGMAS / np.sqrt(2 * len(corpus))
    assert set(score.mc_error.values()) == {0.0}


def test_labels_follow_the_oracles_chances(corpus):
    score = corpus.oracle(corpus.X, corpus.Y)
    for task, y in corpus.Y.items():
        if task == "state":
            continue
        probs = score.probs[task]
        for r in range(probs.shape[1]):
            p = probs[:, r]
            assert abs(((y == r) - p).sum()) < SIGMAS * np.sqrt((p * (1 - p)).sum())
        entropy = -np.sum(np.where(probs > 0, probs * np.log(np.maximum(probs, 1e-300)), 0), 1)
        assert abs(z_score(score.nll[task] - entropy, 0)) < SIGMAS


def test_law_against_brute_force(corpus):
    """200,000 paths from each of six starts; all grid points kept in NumPy float64."""
    starts, paths, steps = np.array([-2.0, -0.5, 0.3, 0.9, 1.3, 1.49]), 200_000, 50
    a, s = np.exp(-0.01), np.sqrt(1 - np.exp(-0.02))
    events = np.exp(ou.log_event_chances(starts, steps))
    classes = np.exp(ou.log_average_classes(starts, steps, corpus.edges))
    rng = np.random.default_rng(0)
    for start, event, regime in zip(starts, events, classes, strict=True):
        x = np.full(paths, start)
        highest, total = x.copy(), x.copy()
        for _ in range(steps):
            x = a * x + s * rng.standard_normal(paths)
            np.maximum(highest, x, out=highest)
            total += x
        bands = np.searchsorted(corpus.edges, total / (steps + 1))
        seen = [np.mean(highest < 1.5), np.mean(highest >= 1.5)]
        seen += [np.mean(bands == r) for r in range(4)]
        law = np.concatenate([event, regime])
        error = np.sqrt(law * (1 - law) / paths)
        # A band with no expected hit has no usable normal error: allow ten hits.
        assert np.all(np.abs(seen - law) < SIGMAS * error + 10 / paths)


@pytest.mark.parametrize("steps", [1, 2, 3])
def test_barrier_against_the_multivariate_normal(steps):
    """P(no event) = P(X_1 < b, ..., X_m < b), with cov(X_j, X_k) = a^|j-k| - a^(j+k)."""
    k = np.arange(1, steps + 1)
    cov = np.exp(-0.01 * np.abs(k[:, None] - k)) - np.exp(-0.01 * (k[:, None] + k))
    for x in (0.9, 1.2, 1.45):
        law = multivariate_normal(np.exp(-0.01 * k) * x, cov, abseps=1e-9, releps=1e-9)
        stays = float(law.cdf(np.full(steps, 1.5)))
        chances = np.exp(ou.log_event_chances(np.array([x]), steps)[0])
        np.testing.assert_allclose(chances, [stays, 1 - stays], rtol=0, atol=1e-7)


@pytest.mark.parametrize("x", [-3.0, -1.0, 1.0])
def test_event_chance_is_right_far_in_the_tail(x):
    """Two steps from -3 to the barrier: a chance of about 1e-113."""
    a, s, b = np.exp(-0.01), np.sqrt(-np.expm1(-0.02)), 1.5

    def log_integrand(y):
        return norm.logpdf(y, a * x, s) + log_ndtr((a * y - b) / s)

    grid = np.linspace(x - 2, b, 20001)
    peak = grid[np.argmax(log_integrand(grid))]
    top = log_integrand(peak)
    near = [max(x - 2, peak - 1), min(b, peak + 1)]
    area = quad(lambda y: np.exp(log_integrand(y) - top), *near, points=[peak], epsabs=0)[0]
    expected = np.logaddexp(log_ndtr((a * x - b) / s), top + np.log(area))
    assert ou.log_event_chances(np.array([x]), 2)[0, 1] == pytest.approx(expected, rel=1e-11)


def test_barrier_does_not_depend_on_the_other_windows():
    x = np.linspace(-4, 2, 25)
    together = ou.log_event_chances(x, 50)
    alone = np.concatenate([ou.log_event_chances(x[i : i + 1], 50) for i in range(25)])
    np.testing.assert_allclose(together, alone, rtol=1e-10, atol=1e-12)


def test_barrier_in_blocks_of_rows(monkeypatch):
    x = np.linspace(-2, 1.4, 11)
    whole = ou.log_event_chances(x, 20)
    monkeypatch.setattr(ou, "ROWS_AT_ONCE", 4)
    np.testing.assert_allclose(ou.log_event_chances(x, 20), whole, rtol=1e-12)


def test_a_start_on_the_barrier_is_an_event(corpus):
    Y = {"state": np.zeros(2), "event": np.array([1, 0]), "regime": np.array([0, 0])}
    score = corpus.oracle(np.full((2, 1), 1.5), Y)
    assert score.nll["event"].tolist() == [0.0, np.inf]


def test_rare_regimes_keep_their_log_chance(corpus):
    """From -6 the highest quarter is about 20 deviations off: -log p near 300, and finite."""
    k = np.arange(51)
    noise_weight = np.cumsum(np.exp(-0.01 * k))[:50] / 51
    sd = np.sqrt(1 - np.exp(-0.02)) * np.sqrt((noise_weight**2).sum())
    mean = -6 * np.exp(-0.01 * k).mean()
    expected = log_ndtr((mean - corpus.edges[2]) / sd)
    got = ou.log_average_classes(np.array([-6.0]), 50, corpus.edges)[0, 3]
    assert expected < -50
    assert got == pytest.approx(expected, rel=1e-10)
