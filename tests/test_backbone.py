"""Backbones against the same formula in NumPy, and what the layer norm promises."""

import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special, stats

from scrollmt.backbone import (
    ACTIVATIONS,
    LAYER_NORM_EPS,
    PAPER_BACKBONES,
    PAPER_WIDTH,
    Columns,
    Dense,
    layer_norm,
    paper_backbone,
)

REFERENCE: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "relu": lambda z: np.maximum(z, 0.0),
    "tanh": np.tanh,
    "silu": lambda z: z * special.expit(z),
    # The usual approximation of z Phi(z) by a hyperbolic tangent.
    "gelu": lambda z: 0.5 * z * (1.0 + np.tanh(math.sqrt(2.0 / math.pi) * (z + 0.044715 * z**3))),
}


def normed(z: np.ndarray) -> np.ndarray:
    return (z - z.mean()) / np.sqrt(z.var() + 1e-5)


def test_every_activation_has_a_reference() -> None:
    assert REFERENCE.keys() == ACTIVATIONS.keys()


@pytest.mark.parametrize("name", PAPER_BACKBONES)
def test_paper_backbones_follow_the_formula(name: str) -> None:
    with jax.enable_x64(True):
        net = paper_backbone(name, 3, jax.random.PRNGKey(0))
        assert net.biases is None
        assert [w.shape for w in net.weights] == [(PAPER_WIDTH, 3)]
        x = np.array([0.3, -1.2, 2.0])
        act = REFERENCE[name.split("+")[0]]
        want = act(np.asarray(net.weights[0]) @ x)
        if name.endswith("+ln"):
            want = normed(want)  # after the activation
        got = net(jnp.asarray(x))
        assert got.dtype == jnp.float64
        np.testing.assert_allclose(got, want, rtol=1e-12, atol=1e-14)


def test_paper_constants() -> None:
    assert PAPER_BACKBONES == ("relu", "relu+ln", "tanh", "tanh+ln")
    assert PAPER_WIDTH == 50
    assert LAYER_NORM_EPS == 1e-5


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("norm", [False, True])
def test_deep_biased_backbones_follow_the_formula(activation: str, norm: bool) -> None:
    with jax.enable_x64(True):
        net = Dense(
            2, (6, 4), activation=activation, bias=True, norm=norm, key=jax.random.PRNGKey(1)
        )
        assert net.biases is not None
        x = np.array([0.7, -0.4])
        want = x
        for w, b in zip(net.weights, net.biases, strict=True):
            want = REFERENCE[activation](np.asarray(w) @ want + np.asarray(b))
            want = normed(want) if norm else want
        np.testing.assert_allclose(net(jnp.asarray(x)), want, rtol=1e-10, atol=1e-14)


def test_layer_norm_fixes_mean_and_norm_of_every_row() -> None:
    z = np.random.default_rng(2).normal(size=(7, 50)) * 3.0 + 1.0
    psi = np.asarray(layer_norm(jnp.asarray(z, jnp.float32)))
    np.testing.assert_allclose(psi.mean(axis=-1), 0.0, atol=1e-6)
    np.testing.assert_allclose((psi**2).sum(axis=-1), 50.0, rtol=1e-4)
    np.testing.assert_allclose(psi, np.stack([normed(row) for row in z]), rtol=1e-4, atol=1e-5)


def test_layer_norm_of_a_dead_layer_is_zero_with_a_finite_slope() -> None:
    value, slope = jax.value_and_grad(lambda z: layer_norm(z)[0])(jnp.zeros(5))
    assert float(value) == 0.0
    assert np.isfinite(np.asarray(slope)).all()


def test_starting_values_have_the_stated_spread() -> None:
    """W ~ N(0, 1/fan-in), biases ~ N(0, 1); each bound fails for 1 key in a million."""
    net = Dense(4, (200, 300), activation="relu", bias=True, norm=False, key=jax.random.PRNGKey(3))
    assert net.biases is not None
    for leaf, var in ((net.weights[0], 1 / 4), (net.weights[1], 1 / 200), (net.biases[1], 1.0)):
        z = np.asarray(leaf, np.float64).ravel() / math.sqrt(var)
        low, high = stats.chi2.ppf([2.5e-7, 1.0 - 2.5e-7], z.size)
        assert low < (z**2).sum() < high
        assert abs(z.mean()) < stats.norm.isf(2.5e-7) / math.sqrt(z.size)


def test_a_key_gives_the_same_weights_and_another_key_others() -> None:
    def first(seed: int) -> np.ndarray:
        return np.asarray(paper_backbone("tanh", 3, jax.random.PRNGKey(seed)).weights[0])

    np.testing.assert_array_equal(first(0), first(0))
    assert (first(0) != first(1)).mean() > 0.99
    net = Dense(5, (5, 5), activation="tanh", bias=True, norm=True, key=jax.random.PRNGKey(0))
    assert net.biases is not None
    leaves = [np.asarray(w) for w in net.weights] + [np.asarray(b) for b in net.biases]
    assert not np.allclose(leaves[0], leaves[1])  # each layer draws for itself
    assert not np.allclose(leaves[2], leaves[3])


def test_batching_outside_equals_one_point_at_a_time() -> None:
    net = paper_backbone("tanh+ln", 3, jax.random.PRNGKey(0))
    x = jax.random.normal(jax.random.PRNGKey(1), (6, 3))
    batched = jax.vmap(net)(x)
    np.testing.assert_allclose(batched, np.stack([net(row) for row in x]), rtol=1e-5, atol=1e-6)


def test_unknown_names_are_refused_with_the_choices() -> None:
    key = jax.random.PRNGKey(0)
    with pytest.raises(ValueError, match=r"unknown paper backbone 'silu'.*'relu\+ln'"):
        paper_backbone("silu", 3, key)
    with pytest.raises(ValueError, match=r"unknown activation 'swish'.*'silu'"):
        Dense(3, (4,), activation="swish", bias=False, norm=False, key=key)


@pytest.mark.slow
@pytest.mark.parametrize("norm", [False, True])
@pytest.mark.parametrize(("width", "triangular"), [(70, True), (50, False), (9, True)])
def test_what_columns_read_has_the_value_and_the_slope_of_the_formula(
    norm: bool, width: int, triangular: bool
) -> None:
    """All features at once, in the order that is fast, against one feature vector at a time."""
    rng = np.random.default_rng(0)
    roots = rng.normal(size=(2, width, width))
    with jax.enable_x64(True):
        asked = (
            jnp.asarray(rng.normal(size=(width, 40))),
            jnp.asarray(rng.normal(size=(3, width))),
            jnp.asarray(rng.normal(size=(1, width))),
            jnp.asarray(np.triu(roots) if triangular else roots),
        )
        weights = [jnp.asarray(rng.normal(size=(rows, 40))) for rows in (3, 1, 2)]

        def read(z: jax.Array, *rows: jax.Array) -> list[jax.Array]:
            return [*Columns(z, norm=norm).read(*rows, triangular=triangular)]

        def formula(z: jax.Array, *rows: jax.Array) -> list[jax.Array]:
            psi = layer_norm(z.T) if norm else z.T
            spread = jnp.einsum("gfh,nh->gfn", rows[2], psi)
            return [rows[0] @ psi.T, rows[1] @ (psi * psi).T, jnp.sum(spread**2, axis=1)]

        def slopes(function: Callable[..., list[jax.Array]]) -> list[jax.Array]:
            def total(*asked: jax.Array) -> jax.Array:
                parts = zip(weights, function(*asked), strict=True)
                return sum((jnp.sum(w * part) for w, part in parts), jnp.zeros(()))

            *others, d_roots = jax.grad(total, argnums=(0, 1, 2, 3))(*asked)
            # Below the diagonal there is nothing to move.
            return [*others, jnp.triu(d_roots) if triangular else d_roots]

        for got, want in zip(
            [*read(*asked), *slopes(read)], [*formula(*asked), *slopes(formula)], strict=True
        ):
            np.testing.assert_allclose(got, want, rtol=1e-9, atol=1e-9)
