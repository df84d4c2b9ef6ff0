"""The Lorenz-63 corpus against its equations, and its simulated law against plain frequencies.

Bounds of 4.5 standard errors fail on a redraw with chance 7e-6 a comparison; keys are fixed.
"""

import jax
import numpy as np
import pytest
from scipy.special import log_ndtr

from scrollmt.corpora import lorenz63

pytestmark = pytest.mark.usefixtures("optimised")

DT = 0.005
SIGMAS = 4.5
ROWS = slice(0, 6500, 13)


@pytest.fixture(scope="module")
def corpus():
    return lorenz63.draw()


@pytest.fixture(scope="module")
def score(corpus):
    return corpus.oracle(*windows(corpus, ROWS), members=400)


def windows(corpus, rows):
    return corpus.X[rows], {task: y[rows] for task, y in corpus.Y.items()}


def step_mean(s):
    """One step without noise, float64, states in rows."""
    x, y, z = s.astype(np.float64).T
    return s + DT * np.stack([10 * (y - x), x * (28 - z) - y, x * y - 8 / 3 * z], axis=1)


def test_one_step_is_euler_maruyama():
    """Noise of all three coordinates recovered from 13,000 single steps is standard normal."""
    start, end = lorenz63._chains(jax.random.key(3), 65, 200, 1)
    start, end = (np.asarray(s).transpose(0, 2, 1).reshape(-1, 3) for s in (start, end))
    noise = (end - step_mean(start)) / (2 * np.sqrt(DT))
    bound = SIGMAS / np.sqrt(len(noise))
    assert np.all(np.abs(noise.mean(axis=0)) < bound)
    assert np.all(np.abs((noise**2).mean(axis=0) - 1) < bound * np.sqrt(2))
    assert np.all(np.abs((noise**4).mean(axis=0) - 3) < bound * np.sqrt(96))
    assert np.all(np.abs(np.corrcoef(noise.T)[np.triu_indices(3, 1)]) < bound)


def test_windows_and_gaps_against_a_float64_loop():
    """The same noise in float64: 100 idle steps between windows, and float32 is enough."""
    key, window = jax.random.key(0), 20
    start, end = (np.asarray(s) for s in lorenz63._chains(key, 4, 2, window))
    noise_key = jax.random.split(key, 3)[1]
    steps = np.arange(2000, 2000 + 2 * window + 100)
    noise = jax.vmap(lambda k: jax.random.normal(jax.random.fold_in(noise_key, k), (3, 4)))(steps)
    s, path = start[0].T.astype(np.float64), []
    for xi in np.asarray(noise, np.float64):
        s = step_mean(s) + 2 * np.sqrt(DT) * xi.T
        path.append(s.T)
    np.testing.assert_allclose(end[0], path[window - 1], atol=1e-4)
    np.testing.assert_allclose(start[1], path[window + 99], atol=2e-3)
    np.testing.assert_allclose(end[1], path[2 * window + 99], atol=2e-3)


def test_chains_start_near_the_given_point(monkeypatch):
    monkeypatch.setattr(lorenz63, "BURN_IN", 0)
    # A window length that no other test uses: compiled programs keep the old burn-in.
    start, _ = lorenz63._chains(jax.random.key(0), 2000, 1, 7)
    jitter = (np.asarray(start)[0] - np.array([[1], [1], [25]])) / 0.1
    assert np.all(np.abs(jitter.mean(axis=1)) < SIGMAS / np.sqrt(2000))
    assert np.all(np.abs((jitter**2).mean(axis=1) - 1) < SIGMAS * np.sqrt(2 / 2000))


def test_labels(corpus):
    end = corpus.Y["state"]
    np.testing.assert_array_equal(corpus.Y["event"], end > 0)
    start, ends = (np.asarray(s) for s in lorenz63._chains(jax.random.key(0), 65, 100, 100))
    np.testing.assert_array_equal(corpus.X, start.transpose(0, 2, 1).reshape(-1, 3))
    np.testing.assert_array_equal(end, ends[:, 0].ravel())
    z = ends[:, 2].ravel()
    np.testing.assert_allclose(corpus.edges, np.quantile(z.astype(float), [0.25, 0.5, 0.75]))
    np.testing.assert_array_equal(corpus.Y["regime"], (z[:, None] >= corpus.edges).sum(axis=1))


def test_attractor(corpus):
    """Variance of x 65.5 to 66.6 over four redraws; both lobes by symmetry.

    Both bounds are wider than four deviations of the redraws (failure rate below 1e-4).
    """
    assert 64 < corpus.X[:, 0].var() < 68.5
    assert abs(corpus.Y["event"].mean() - 0.5) < 0.03


def test_true_var_over_the_attractor(corpus):
    """Redraws gave a root mean of 2.6 to 2.8 at lead 0.5 and a range of 273 to 371."""
    v = corpus.true_var(corpus.X[::5])
    assert v.shape == (1300,)
    assert 2.5 < np.sqrt(v.mean()) < 2.9
    assert 230 < v.max() / v.min() < 430


def test_true_var_of_one_and_two_steps():
    """V* = 4 dt after one step, and 4 dt ((1 - 10 dt)^2 + (10 dt)^2 + 1) after two."""
    one, two = lorenz63.draw(n=4, lead=DT), lorenz63.draw(n=4, lead=2 * DT)
    np.testing.assert_allclose(one.true_var(one.X), 4 * DT, rtol=1e-6)
    carried = 4 * DT * ((1 - 10 * DT) ** 2 + (10 * DT) ** 2)
    v = two.true_var(two.X, members=20_000)
    assert np.all(np.abs(v - carried - 4 * DT) < SIGMAS * carried * np.sqrt(2 / 20_000))


def test_true_var_is_unbiased_at_few_members():
    """2,000 estimates from five members each against one from 20,000."""
    corpus = lorenz63.draw(n=4, lead=0.25)
    few = corpus.true_var(np.repeat(corpus.X[:1], 2000, axis=0), members=5)
    many = corpus.true_var(corpus.X[:1], members=20_000, seed=1)[0]
    error = np.hypot(few.std() / np.sqrt(2000), 2 * many * np.sqrt(2 / 20_000))
    assert abs(few.mean() - many) < SIGMAS * error
    # Dividing by the members instead of one fewer would be seen.
    assert 0.2 * many > SIGMAS * error


@pytest.mark.slow
def test_chunks_do_not_alter_the_result(corpus):
    x, y = windows(corpus, slice(0, 10))
    whole = corpus.true_var(x, members=50)
    np.testing.assert_allclose(corpus.true_var(x, members=50, chunk=3), whole, rtol=1e-5)
    a, b = (corpus.oracle(x, y, members=100, chunk=chunk) for chunk in (None, 4))
    for task in a.nll:
        np.testing.assert_allclose(a.nll[task], b.nll[task], rtol=1e-4, atol=1e-5)


def test_truth_is_fresh_noise(corpus):
    """Another seed gives other members, and none repeats the noise of the corpus."""
    x = corpus.X[:65]
    assert np.all(corpus.true_var(x) != corpus.true_var(x, seed=1))
    keys = [*jax.random.split(jax.random.key(0), 3)[:2], *lorenz63._truth_keys(0)]
    assert len({tuple(np.asarray(jax.random.key_data(key))) for key in keys}) == 5


def test_one_step_oracle_is_exact():
    """With no step before the last nothing is sampled, and the law is a normal."""
    corpus = lorenz63.draw(n=65, lead=DT)
    score = corpus.oracle(corpus.X, corpus.Y, members=100)
    ahead, sd = step_mean(corpus.X), 2 * np.sqrt(DT)
    x, z = ahead[:, 0], ahead[:, 2]
    gaussian = 0.5 * np.log(2 * np.pi * sd**2) + 0.5 * ((corpus.Y["state"] - x) / sd) ** 2
    np.testing.assert_allclose(score.nll["state"], gaussian, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(score.nll["state_density"], gaussian, rtol=1e-4, atol=1e-4)
    signs = np.where(corpus.Y["event"] == 1, 1, -1)
    np.testing.assert_allclose(score.nll["event"], -log_ndtr(signs * x / sd), rtol=1e-4, atol=1e-5)
    assert max(score.mc_error.values()) < 1e-6

    # The wrong outer class for every window: far tails, still right in relative terms.
    wrong = np.where(z > corpus.edges[1], 0, 3)
    far = corpus.oracle(corpus.X, {**corpus.Y, "regime": wrong}, members=100).nll["regime"]
    edge = np.where(wrong == 0, corpus.edges[0], corpus.edges[2])
    expected = -log_ndtr(np.where(wrong == 0, 1, -1) * (edge - z) / sd)
    assert expected.max() > 5000
    np.testing.assert_allclose(far, expected, rtol=1e-4)


@pytest.mark.slow
def test_oracle_against_plain_frequencies(corpus):
    """40 windows, 10,000 members sampled to the very end in NumPy, nothing integrated."""
    members, rows = 10_000, np.arange(0, 6500, 163)
    x, y = windows(corpus, rows)
    score = corpus.oracle(x, y, members=4000)
    rng = np.random.default_rng(0)
    s = np.repeat(x.T[:, :, None], members, axis=2)
    for _ in range(100):
        a, b, c = s
        s = s + np.float32(DT) * np.stack([10 * (b - a), a * (28 - c) - b, a * b - c * (8 / 3)])
        s += np.float32(2 * np.sqrt(DT)) * rng.standard_normal(s.shape, dtype=np.float32)
    end, z = s[0].astype(np.float64), s[2]

    share = 1 / members + 1 / 4000
    spread = np.sqrt(score.var * share)
    assert np.all(np.abs(end.mean(axis=1) - score.mean) < SIGMAS * spread)
    kurtosis = ((end - end.mean(axis=1, keepdims=True)) ** 4).mean(axis=1) / end.var(axis=1) ** 2
    assert np.all(
        np.abs(end.var(axis=1) / score.var - 1) < SIGMAS * np.sqrt((kurtosis - 1) * share)
    )
    bands = (z[:, :, None] >= corpus.edges).sum(axis=2)
    for task, classes in (("event", (end > 0).astype(int)), ("regime", bands)):
        for r in range(score.probs[task].shape[1]):
            p = score.probs[task][:, r]
            error = np.sqrt(p * (1 - p) * share)
            # Where fewer than a hit is expected the error is not normal: allow ten hits.
            seen = (classes == r).mean(axis=1)
            assert np.all(np.abs(seen - p) < SIGMAS * error + 10 / members)


def test_state_density_has_area_one(corpus, score):
    """One start with 500 different ends, each with members of its own."""
    row = int(np.argsort(score.var)[250])
    grid, spacing = np.linspace(-6, 6, 500, retstep=True)
    sd = np.sqrt(score.var[row])
    ends = {"state": score.mean[row] + sd * grid, "event": np.zeros(500), "regime": np.zeros(500)}
    law = corpus.oracle(np.repeat(corpus.X[ROWS][[row]], 500, axis=0), ends, members=400)
    # Of the logarithm the bias was removed; the density itself had none.
    relative_var = law.mc_var["state_density"]
    density = sd * np.exp(-law.nll["state_density"] - 0.5 * relative_var)
    error = spacing * np.sqrt((density**2 * relative_var).sum())
    assert error < 0.02
    assert abs(spacing * density.sum() - 1) < SIGMAS * error


def test_labels_follow_the_oracles_chances(corpus, score):
    _, y = windows(corpus, ROWS)
    noise = (y["state"] - score.mean) / np.sqrt(score.var)
    assert abs(noise.mean()) < SIGMAS / np.sqrt(500)
    for task in ("event", "regime"):
        for r in range(score.probs[task].shape[1]):
            p = score.probs[task][:, r]
            assert abs(((y[task] == r) - p).sum()) < SIGMAS * np.sqrt((p * (1 - p)).sum())


def test_oracle_lands_on_the_measured_headroom(score):
    """1.97 / 0.143 / 0.468 on 1,500 other test states of another draw."""
    for task, measured in (("state", 1.97), ("event", 0.143), ("regime", 0.468)):
        deviation = score.nll[task].std() * np.sqrt(1 / 500 + 1 / 1500)
        assert abs(score.mean_nll[task] - measured) < SIGMAS * deviation
        assert score.mc_error[task] < 0.25 * deviation
    # The Gaussian with the right moments is not the right density.
    assert score.mean_nll["state_density"] < score.mean_nll["state"]


@pytest.mark.slow
def test_few_members_agree_with_many(corpus, score):
    few = corpus.oracle(*windows(corpus, ROWS), members=100, seed=1)
    for task in ("state", "event", "regime"):
        error = np.hypot(few.mc_error[task], score.mc_error[task])
        assert abs(few.mean_nll[task] - score.mean_nll[task]) < SIGMAS * error
        assert score.mc_error[task] < 0.8 * few.mc_error[task]


def test_rare_outcomes_are_simulated_anew(corpus, score, monkeypatch):
    """Without that, an end that no member comes near scores a distance and not a density."""
    x, y = windows(corpus, ROWS)
    refined = corpus.oracle(x, y, members=100)
    monkeypatch.setattr(lorenz63, "REFINEMENTS", ())
    plain = corpus.oracle(x, y, members=100)
    rough = np.max(list(plain.mc_var.values()), axis=0) > lorenz63.ROUGH_VAR
    again = refined.nll["state_density"] != plain.nll["state_density"]
    assert 5 <= again.sum() <= 50 + 5
    assert rough[again].all()
    truth = score.nll["state_density"]
    off_refined, off_plain = (np.abs(s.nll["state_density"] - truth) for s in (refined, plain))
    assert off_plain[again].mean() > 3 * off_refined[again].mean()
    assert refined.mc_error["state_density"] < plain.mc_error["state_density"]


def test_error_and_bias_of_a_log_mean():
    """50 exponential members: E[-log mean] = log 50 - digamma(50), true value 0."""
    masses = np.random.default_rng(0).exponential(size=(20_000, 10, 5))
    nll, mc_var = lorenz63._score_log_sums(5, np.log(masses.sum(axis=2)))
    error = nll.std() / np.sqrt(20_000)
    assert abs(nll.mean()) < SIGMAS * error
    assert -np.log(masses.mean(axis=(1, 2))).mean() > 2 * SIGMAS * error
    assert mc_var.mean() == pytest.approx(nll.var(), rel=0.1)


def test_a_window_that_hangs_on_one_member_is_not_overcorrected():
    log_sums = np.array([[0.0] + [-500.0] * 9])
    nll, mc_var = lorenz63._score_log_sums(5, log_sums)
    np.testing.assert_allclose(nll, np.log(50) - 0.5, rtol=1e-12)
    np.testing.assert_allclose(mc_var, 1.0, rtol=1e-12)


def test_error_and_bias_of_a_gaussian_score():
    """50 standard normal members; the last step adds 4 dt to the variance."""
    sample = np.random.default_rng(0).standard_normal((20_000, 10, 5))
    means = sample.mean(axis=2)
    squares = ((sample - means[:, :, None]) ** 2).sum(axis=2)
    y, var = np.full(20_000, 0.5), 1 + 4 * DT
    nll, mc_var = lorenz63._score_moments(5, y, means, squares)
    true = 0.5 * np.log(2 * np.pi * var) + 0.125 / var
    error = nll.std() / np.sqrt(20_000)
    assert abs(nll.mean() - true) < SIGMAS * error
    mean, spread = lorenz63._pooled(5, means, squares)
    plain = 0.5 * np.log(2 * np.pi * spread) + 0.5 * (y - mean) ** 2 / spread
    assert abs(plain.mean() - true) > SIGMAS * error
    assert mc_var.mean() == pytest.approx(nll.var(), rel=0.15)


def test_pooled_groups_are_one_sample():
    sample = np.random.default_rng(0).normal(20, 0.3, (5, 10, 30))
    means = sample.mean(axis=2)
    squares = ((sample - means[:, :, None]) ** 2).sum(axis=2)
    mean, var = lorenz63._pooled(30, means, squares)
    flat = sample.reshape(5, -1)
    np.testing.assert_allclose(mean, flat.mean(axis=1), rtol=1e-12)
    np.testing.assert_allclose(var, flat.var(axis=1, ddof=1) + 4 * DT, rtol=1e-6)


def test_bad_members_are_refused(corpus):
    with pytest.raises(ValueError, match="members=105 is not a multiple of 10; try 100 or 110"):
        corpus.oracle(corpus.X, corpus.Y, members=105)
    with pytest.raises(ValueError, match="members=90 is too small; use at least 100"):
        corpus.oracle(corpus.X, corpus.Y, members=90)
    with pytest.raises(ValueError, match="members=1 is too small; use at least 2"):
        corpus.true_var(corpus.X, members=1)
    with pytest.raises(ValueError, match="chunk=0 is too small; use at least 1"):
        corpus.true_var(corpus.X, chunk=0)
    with pytest.raises(ValueError, match="chains=0 is too small"):
        lorenz63.draw(chains=0)
