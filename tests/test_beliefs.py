"""Beliefs against explicit matrices, sampled weights and quadrature over the weights."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree
from scipy import stats
from scipy.linalg import block_diag

from helpers import BELIEFS, DrawnBelief, H, central_gradient, draw_belief, flat
from scrollmt.beliefs import BELIEFS as FAMILIES
from scrollmt.beliefs import (
    AbstractBelief,
    Choices,
    Diag,
    Full,
    LowRank,
    Maker,
    Point,
    Start,
    read_beliefs,
)


@eqx.filter_jit
def project(belief: AbstractBelief, psi: jax.Array) -> tuple[jax.Array, jax.Array]:
    return belief.project(psi)


@eqx.filter_jit
def overlap(belief: AbstractBelief, alpha: jax.Array) -> jax.Array:
    return belief.overlap(alpha)


GAUSSIAN = [name for name in BELIEFS if name != "none"]
FLOOR = 0.05


def test_the_registry_holds_every_belief() -> None:
    assert BELIEFS.keys() == FAMILIES.keys()


@pytest.mark.parametrize("name", BELIEFS)
def test_project_agrees_with_explicit_matrices(name: str) -> None:
    psi = np.random.default_rng(5).normal(size=(3, 4, H))
    with jax.enable_x64(True):
        drawn = draw_belief(name, H, floor=FLOOR)
        mean, var = project(drawn.belief, jnp.asarray(psi))
        np.testing.assert_allclose(mean, psi @ drawn.mu, rtol=1e-12)
        np.testing.assert_allclose(
            var, np.einsum("...i,ij,...j->...", psi, drawn.cov, psi), rtol=1e-12
        )
        # One point at a time gives the same as any batch of them.
        one_mean, one_var = project(drawn.belief, jnp.asarray(psi[1, 2]))
        np.testing.assert_allclose(one_mean, mean[1, 2], rtol=1e-14)
        np.testing.assert_allclose(one_var, var[1, 2], rtol=1e-14)


@pytest.mark.parametrize("name", GAUSSIAN)
def test_project_agrees_with_sampled_weights(name: str) -> None:
    """Each of the four bounds fails for 1 seed in a million."""
    draws = 20_000
    with jax.enable_x64(True):
        drawn = draw_belief(name, H, floor=FLOOR)
        psi = np.random.default_rng(6).normal(size=H)
        mean, var = (float(v) for v in project(drawn.belief, jnp.asarray(psi)))
    weights = np.random.default_rng(7).multivariate_normal(drawn.mu, drawn.cov, size=draws)
    line = weights @ psi
    assert abs(line.mean() - mean) < stats.norm.isf(5e-7) * np.sqrt(var / draws)
    low, high = stats.chi2.ppf([5e-7, 1 - 5e-7], draws - 1)
    assert low < line.var() * draws / var < high


@pytest.mark.parametrize("name", BELIEFS)
def test_cov_is_the_explicit_matrix(name: str) -> None:
    with jax.enable_x64(True):
        drawn = draw_belief(name, H, floor=FLOOR)
        np.testing.assert_allclose(drawn.belief.cov(), drawn.cov, rtol=1e-13, atol=1e-16)


@pytest.mark.parametrize("name", GAUSSIAN)
@pytest.mark.parametrize("alpha", [1e-4, 0.3, 1.0, 40.0, 1e6])
def test_overlap_agrees_with_scipy(name: str, alpha: float) -> None:
    with jax.enable_x64(True):
        drawn = draw_belief(name, H, floor=FLOOR)
        got = float(overlap(drawn.belief, jnp.asarray(alpha)))
    total = drawn.cov + np.eye(H) / alpha
    want = -stats.multivariate_normal.logpdf(drawn.mu, np.zeros(H), total)
    assert got == pytest.approx(want, rel=1e-11)


@pytest.mark.parametrize("name", GAUSSIAN)
@pytest.mark.parametrize("size", [1, 2])
def test_overlap_agrees_with_quadrature_over_the_weights(name: str, size: int) -> None:
    alpha = 0.7
    with jax.enable_x64(True):
        drawn = draw_belief(name, size, floor=FLOOR, seed=3)
        got = float(overlap(drawn.belief, jnp.asarray(alpha)))
    axis = np.linspace(-12.0, 12.0, 801)
    grid = np.stack(np.meshgrid(*[axis] * size, indexing="ij"), axis=-1)
    prior = stats.multivariate_normal.pdf(grid, np.zeros(size), np.eye(size) / alpha)
    belief = stats.multivariate_normal.pdf(grid, drawn.mu, drawn.cov)
    integral = (prior * belief).sum() * (axis[1] - axis[0]) ** size
    assert got == pytest.approx(-np.log(integral), rel=1e-9)


@pytest.mark.parametrize("name", GAUSSIAN)
def test_gradients_agree_with_differences(name: str) -> None:
    with jax.enable_x64(True):
        drawn = draw_belief(name, 3, floor=FLOOR, seed=4)
        psi = jnp.asarray(np.random.default_rng(8).normal(size=3))
        arrays, rest = eqx.partition(drawn.belief, eqx.is_inexact_array)
        start, unravel = ravel_pytree((arrays, jnp.asarray(0.4)))

        @jax.jit
        @jax.value_and_grad
        def both(vector: jax.Array) -> jax.Array:
            params, log_alpha = unravel(vector)
            belief: AbstractBelief = eqx.combine(params, rest)
            mean, var = belief.project(psi)
            return belief.overlap(jnp.exp(log_alpha)) + 0.7 * mean + 1.3 * var

        got = np.asarray(both(start)[1])
        want = central_gradient(lambda v: both(jnp.asarray(v))[0], np.asarray(start))
        np.testing.assert_allclose(got, want, rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize("name", GAUSSIAN)
def test_a_batch_of_overlaps_equals_one_at_a_time(name: str) -> None:
    """Runs are batched by vmap, under which the Cholesky factor takes another way."""
    with jax.enable_x64(True):
        beliefs = [draw_belief(name, H, floor=FLOOR, seed=s).belief for s in range(3)]
        alphas = jnp.asarray([0.2, 1.0, 30.0])
        batch = jax.tree.map(lambda *a: jnp.stack(a), *beliefs)
        value_and_slope = jax.value_and_grad(lambda b, alpha: b.overlap(alpha))
        values, slopes = jax.jit(jax.vmap(value_and_slope))(batch, alphas)
        one = jax.jit(value_and_slope)
        for i, belief in enumerate(beliefs):
            value, slope = one(belief, alphas[i])
            assert float(values[i]) == pytest.approx(float(value), rel=1e-13)
            for got, want in zip(jax.tree.leaves(slopes), jax.tree.leaves(slope), strict=True):
                np.testing.assert_allclose(got[i], want, rtol=1e-10, atol=1e-13)


@pytest.mark.parametrize("name", GAUSSIAN)
def test_the_floor_enters_projection_and_overlap(name: str) -> None:
    psi, alpha = np.arange(1.0, H + 1.0), 2.0
    with jax.enable_x64(True):
        bare, floored = (draw_belief(name, H, floor=f) for f in (0.0, FLOOR))
        np.testing.assert_allclose(floored.belief.cov() - bare.belief.cov(), FLOOR * np.eye(H))
        vars_ = [float(project(d.belief, jnp.asarray(psi))[1]) for d in (bare, floored)]
        assert vars_[1] - vars_[0] == pytest.approx(FLOOR * (psi**2).sum(), rel=1e-10)
        # In the overlap the floor is indistinguishable from a wider prior.
        widened = jnp.asarray(1.0 / (1.0 / alpha + FLOOR))
        assert float(overlap(floored.belief, jnp.asarray(alpha))) == pytest.approx(
            float(overlap(bare.belief, widened)), rel=1e-12
        )


@pytest.mark.parametrize("name", BELIEFS)
@pytest.mark.parametrize("scale_floor", [False, True])
def test_scaled_is_the_belief_of_scaled_weights(name: str, scale_floor: bool) -> None:
    c = 3.5
    with jax.enable_x64(True):
        drawn = draw_belief(name, H, floor=FLOOR)
        mapped = drawn.belief.scaled(c, scale_floor=scale_floor)
        assert type(mapped) is type(drawn.belief)
        np.testing.assert_allclose(mapped.mu, c * drawn.mu, rtol=1e-14)
        floor = 0.0 if name == "none" else FLOOR
        kept = 0.0 if scale_floor else floor * (1.0 - c**2)
        want = c**2 * drawn.cov + kept * np.eye(H)
        np.testing.assert_allclose(mapped.cov(), want, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("name", BELIEFS)
def test_starting_values(name: str) -> None:
    """Small weights, sd exp(-2); the bound on their size fails for 1 key in a million."""
    size = 400
    belief = FAMILIES[name].init(size, jax.random.PRNGKey(0), rows=1, cov_floor=FLOOR)
    assert belief.mu.shape == (size,)
    assert belief.mu.dtype == jnp.float32
    z = np.asarray(belief.mu, np.float64) * np.sqrt(size) / 0.1
    low, high = stats.chi2.ppf([5e-7, 1 - 5e-7], size)
    assert low < (z**2).sum() < high
    want = 0.0 if name == "none" else np.exp(-4.0) + FLOOR
    assert_starts_at(np.asarray(belief.cov()), want)


def assert_starts_at(cov: np.ndarray, want: float) -> None:
    """Every variance at its value; covariances at most a tenth of it."""
    np.testing.assert_allclose(np.diagonal(cov), want, rtol=1e-6, atol=1e-12)
    assert np.abs(cov - np.diag(np.diagonal(cov))).max() <= 0.1 * want


@pytest.mark.parametrize("name", BELIEFS)
def test_a_preset_may_start_elsewhere(name: str) -> None:
    """Uniform weights fill their range and no more; the sds are those asked for."""
    size, start = 400, Start(mu=2.0, log_sd=-1.0, uniform=True)
    belief = FAMILIES[name].init(size, jax.random.PRNGKey(0), rows=1, cov_floor=FLOOR, start=start)
    z = np.asarray(belief.mu, np.float64) * np.sqrt(size) / 2.0
    assert stats.kstest(z, stats.uniform(-1.0, 2.0).cdf).pvalue > 1e-6
    want = 0.0 if name == "none" else np.exp(-2.0) + FLOOR
    assert_starts_at(np.asarray(belief.cov()), want)


def test_the_point_estimate_has_no_variance_and_no_prior_term() -> None:
    belief = Point.init(H, jax.random.PRNGKey(0), rows=3, cov_floor=FLOOR)
    assert belief.mu.shape == (3, H)
    psi = jnp.asarray(np.random.default_rng(1).normal(size=(7, H)), jnp.float32)
    mean, var = project(belief, psi)
    np.testing.assert_allclose(mean, np.asarray(psi) @ np.asarray(belief.mu).T, rtol=1e-5)
    assert mean.shape == var.shape == (7, 3)
    assert not np.asarray(var).any()
    value, slope = jax.value_and_grad(lambda b: b.overlap(jnp.asarray(2.0)))(belief)
    assert float(value) == 0.0
    assert not flat(slope).any()


@pytest.mark.parametrize("name", GAUSSIAN)
@pytest.mark.parametrize("log_alpha", [-18.0, 0.0, 18.0])
def test_float32_holds_for_extreme_precisions(name: str, log_alpha: float) -> None:
    alpha = float(np.exp(log_alpha))
    with jax.enable_x64(True):
        exact = float(overlap(draw_belief(name, H, floor=1e-4).belief, jnp.asarray(alpha)))
    belief = jax.tree.map(lambda a: a.astype(np.float32), draw_belief(name, H, floor=1e-4).belief)
    got = overlap(belief, jnp.asarray(alpha, jnp.float32))
    assert got.dtype == jnp.float32
    assert float(got) == pytest.approx(exact, rel=2e-5)


def test_families_are_the_named_classes() -> None:
    expected = [("none", Point), ("diag", Diag), ("full", Full), ("low-rank", LowRank)]
    assert list(FAMILIES.items()) == expected


# Low rank plus diagonal


def low_rank(rank: int, size: int, scale: float = 1.0, seed: int = 0) -> LowRank:
    rng = np.random.default_rng(seed)
    mu, log_sd, factor = rng.normal(size=size), rng.normal(size=size), rng.normal(size=(rank, size))
    return LowRank(jnp.asarray(mu), jnp.asarray(log_sd), jnp.asarray(scale * factor), FLOOR)


@pytest.mark.parametrize("rank", [1, 3, 20])
def test_overlap_of_low_rank_agrees_with_scipy_at_every_rank(rank: int) -> None:
    size, alpha = 20, 0.3
    with jax.enable_x64(True):
        belief = low_rank(rank, size)
        got = float(overlap(belief, jnp.asarray(alpha)))
        factor, sd = np.asarray(belief.factor), np.exp(np.asarray(belief.log_sd))
    total = np.diag(sd**2 + FLOOR + 1.0 / alpha) + factor.T @ factor
    want = -stats.multivariate_normal.logpdf(belief.mu, np.zeros(size), total)
    assert got == pytest.approx(want, rel=1e-11)


def test_overlap_of_low_rank_keeps_its_digits_where_the_woodbury_difference_cancels() -> None:
    """A mean in the span of a large factor: mu'D^-1 mu is ten million times the result."""
    size, alpha = 30, jnp.asarray(1e3)
    with jax.enable_x64(True):
        wide = low_rank(2, size, scale=300.0)
        wide = eqx.tree_at(lambda b: b.mu, wide, wide.factor[0] + wide.factor[1])
        wide = eqx.tree_at(lambda b: b.log_sd, wide, jnp.full(size, -4.0))
        total = np.asarray(wide.cov()) + np.eye(size) / 1e3
        want = -stats.multivariate_normal.logpdf(np.asarray(wide.mu), np.zeros(size), total)
    got = overlap(jax.tree.map(lambda a: a.astype(np.float32), wide), alpha.astype(np.float32))
    assert float(got) == pytest.approx(want, rel=1e-4)


def test_low_rank_never_makes_a_square_of_the_features() -> None:
    size = 64
    belief = jax.tree.map(lambda a: a.astype(np.float32), low_rank(3, size))

    def both(belief: LowRank, psi: jax.Array) -> jax.Array:
        mean, var = belief.project(psi)
        return mean + var + belief.overlap(jnp.float32(2.0))

    made = jax.make_jaxpr(jax.grad(both))(belief, jnp.ones(size, jnp.float32))
    assert f"{size},{size}" not in str(made)
    square = jax.make_jaxpr(lambda b: b.cov())(belief)
    assert f"{size},{size}" in str(square)


@pytest.mark.parametrize("rank", [0, 6, True])
def test_a_rank_that_is_none_is_refused(rank: object) -> None:
    make = LowRank.of(rank=rank)
    with pytest.raises(ValueError, match=r"rank must be a whole number from 1 to .*, 5, got"):
        make(5, jax.random.key(0), rows=1, cov_floor=FLOOR)


# Several latent lines


LINES = 3


def several(name: str, size: int = H) -> tuple[AbstractBelief, list[DrawnBelief]]:
    """A belief over three lines, and each line as a belief of its own."""
    each = [draw_belief(name, size, floor=FLOOR, seed=20 + line) for line in range(LINES)]
    return jax.tree.map(lambda *a: jnp.stack(a), *(one.belief for one in each)), each


@pytest.mark.parametrize("name", BELIEFS)
def test_lines_are_projected_each_by_its_own_matrix(name: str) -> None:
    psi = np.random.default_rng(5).normal(size=(4, 7, H))
    with jax.enable_x64(True):
        belief, each = several(name)
        mean, var = project(belief, jnp.asarray(psi))
        assert mean.shape == var.shape == (4, 7, LINES)
        assert belief.cov().shape == (LINES, H, H)
        for line, drawn in enumerate(each):
            want = np.einsum("...i,ij,...j->...", psi, drawn.cov, psi)
            np.testing.assert_allclose(mean[..., line], psi @ drawn.mu, rtol=1e-12)
            np.testing.assert_allclose(var[..., line], want, rtol=1e-12)
            np.testing.assert_allclose(belief.cov()[line], drawn.cov, rtol=1e-13, atol=1e-16)


@pytest.mark.parametrize("name", GAUSSIAN)
def test_the_prior_term_of_lines_is_that_of_one_block_diagonal_gaussian(name: str) -> None:
    alpha = 0.3
    with jax.enable_x64(True):
        belief, each = several(name)
        got = float(overlap(belief, jnp.asarray(alpha)))
    total = block_diag(*(one.cov for one in each)) + np.eye(LINES * H) / alpha
    mu = np.concatenate([one.mu for one in each])
    want = -stats.multivariate_normal.logpdf(mu, np.zeros(LINES * H), total)
    assert got == pytest.approx(want, rel=1e-11)


@pytest.mark.parametrize("name", GAUSSIAN)
def test_gradients_of_lines_in_a_batch_of_runs_are_those_of_each_line_alone(name: str) -> None:
    """Runs are batched by vmap, and lines within a run by another."""

    def loss(belief: AbstractBelief, alpha: jax.Array) -> jax.Array:
        mean, var = belief.project(jnp.linspace(-1.0, 2.0, H))
        return belief.overlap(alpha) + jnp.sum(0.7 * mean + 1.3 * var)

    with jax.enable_x64(True):
        belief, each = several(name)
        runs = jax.tree.map(lambda a: jnp.stack([a, 0.5 * a]), belief)
        alphas = jnp.asarray([0.3, 40.0])
        slopes, by_alpha = jax.jit(jax.vmap(jax.grad(loss, argnums=(0, 1))))(runs, alphas)
        one = jax.jit(jax.grad(loss, argnums=(0, 1)))
        for run, scale in enumerate((1.0, 0.5)):
            total = 0.0
            for line, drawn in enumerate(each):
                alone = jax.tree.map(lambda a, c=scale: c * a, drawn.belief)
                slope, by_own = one(alone, alphas[run])
                total += float(by_own)
                for got, want in zip(jax.tree.leaves(slopes), jax.tree.leaves(slope), strict=True):
                    np.testing.assert_allclose(got[run, line], want, rtol=1e-9, atol=1e-12)
            assert float(by_alpha[run]) == pytest.approx(total, rel=1e-10)


@pytest.mark.parametrize("name", BELIEFS)
def test_lines_start_apart_with_the_same_sds_and_scale_alike(name: str) -> None:
    belief = FAMILIES[name].init(6, jax.random.key(0), rows=LINES, cov_floor=FLOOR)
    assert belief.mu.shape == (LINES, 6)
    assert len(np.unique(np.asarray(belief.mu))) == LINES * 6
    want = 0.0 if name == "none" else np.exp(-4.0) + FLOOR
    for cov in np.asarray(belief.cov()):
        assert_starts_at(cov, want)
    mapped = belief.scaled(3.0, scale_floor=True)
    np.testing.assert_allclose(mapped.cov(), 9.0 * belief.cov(), rtol=1e-5, atol=1e-8)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"prior_precision": 0.0}, r"Start: prior_precision must be > 0"),
        ({"prior_precision": float("inf")}, "Start: prior_precision must be a number"),
        ({"precision_sd": 0.0}, r"Start: precision_sd must be > 0"),
        ({"precision_sd": -1.0}, "Start: precision_sd must be a number"),
    ],
)
def test_a_start_refuses_a_precision_that_is_none(wrong: dict[str, float], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        Start(**wrong)  # type: ignore[arg-type]


# What `belief=` takes


@pytest.mark.parametrize(
    "given",
    ["low-rank", LowRank, LowRank.of(), LowRank.of(rank=4), {"a": LowRank, "b": "low-rank"}],
    ids=repr,
)
def test_a_belief_is_chosen_by_name_class_options_or_task(given: Choices) -> None:
    makers = read_beliefs(given, ["a", "b"])
    assert list(makers) == ["a", "b"]
    for make in makers.values():
        belief = make(6, jax.random.key(0), rows=1, cov_floor=FLOOR)
        assert type(belief) is LowRank
        assert belief.factor.shape == (4, 6)
        assert belief.cov_floor == FLOOR


def test_options_reach_init_and_read_as_they_were_written() -> None:
    given = LowRank.of(rank=2)
    assert repr(given) == "LowRank.of(rank=2)"
    assert given == LowRank.of(rank=2) != LowRank.of(rank=3)
    belief = given(6, jax.random.key(0), rows=1, cov_floor=0.0)
    assert isinstance(belief, LowRank)
    assert belief.factor.shape == (2, 6)


def test_wrong_choices_are_refused_in_one_sentence() -> None:
    with pytest.raises(ValueError, match=r"LowRank has no option 'rang'; choose from \['rank'\]"):
        LowRank.of(rang=2)
    with pytest.raises(ValueError, match=r"Diag has no option 'rows'; choose from \[\]"):
        Maker(Diag, {"rows": 2})
    wrong = [
        (AbstractBelief, r"unknown belief .*AbstractBelief.*'low-rank'.*LowRank\.of"),
        (dict, "unknown belief"),
        (None, "unknown belief None"),
        ({"a": "diag"}, r"each of the tasks \['a', 'b'\], and 'b' is missing"),
        ({"a": "diag", "b": "full", "c": "none"}, "'c' is not a task"),
        ({"a": "diag", "b": {"a": "diag"}}, "task 'b': unknown belief"),
    ]
    for given, words in wrong:
        with pytest.raises(ValueError, match=words):
            read_beliefs(given, ["a", "b"])  # type: ignore[arg-type]
