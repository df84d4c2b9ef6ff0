"""The GPU kernel's own steps, interpreted, against the formula; and that CUDA gets the kernel."""

import subprocess
import sys
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from scrollmt._fitting import fused
from scrollmt.backbone import ACTIVATIONS, LAYER_NORM_EPS, layer_norm, paper_backbone

WIDTH = 50


def given(windows: int) -> list[jax.Array]:
    """Inputs, weights and rows, none of whose sizes is a power of two."""
    rng = np.random.default_rng(0)
    shapes = [(windows, 3), (WIDTH, 3), (5, WIDTH)]
    return [jnp.asarray(rng.normal(size=shape), jnp.float32) for shape in shapes]


def formula(act: str, norm: bool, x: jax.Array, weight: jax.Array, linear: jax.Array) -> jax.Array:
    psi = ACTIVATIONS[act](x @ weight.T)
    return linear @ (layer_norm(psi) if norm else psi).T


@pytest.mark.parametrize("windows", [1, 150])
@pytest.mark.parametrize("norm", [False, True])
@pytest.mark.parametrize("act", ["relu", "tanh"])
def test_the_kernel_has_the_value_and_the_slope_of_the_formula(
    act: str, norm: bool, windows: int
) -> None:
    operands = given(windows)
    eps = LAYER_NORM_EPS if norm else None
    weight = jnp.asarray(np.random.default_rng(1).normal(size=(5, windows)), jnp.float32)

    def kernel(*operands: jax.Array) -> jax.Array:
        return fused.lines(ACTIVATIONS[act], eps, *operands, interpret=True)

    def plain(*operands: jax.Array) -> jax.Array:
        return formula(act, norm, *operands)

    def both(function: Callable[..., jax.Array]) -> list[jax.Array]:
        def total(*operands: jax.Array) -> jax.Array:
            return jnp.sum(weight * function(*operands))

        @jax.jit  # an interpreted kernel would be compiled operation by operation
        def value_and_slopes(*operands: jax.Array) -> list[jax.Array]:
            return [function(*operands), *jax.grad(total, argnums=(0, 1, 2))(*operands)]

        return value_and_slopes(*operands)

    for got, want in zip(both(kernel), both(plain), strict=True):
        scale = float(jnp.abs(want).max())
        np.testing.assert_allclose(got, want, rtol=2e-5, atol=2e-5 * scale)


def test_features_that_are_nearly_alike_keep_their_digits() -> None:
    """A variance ten thousand times smaller than the square of the mean."""
    x, weight, linear = given(30)
    alike = weight[:1] + 0.01 * weight
    got = fused.lines(jnp.tanh, LAYER_NORM_EPS, x, alike, linear, interpret=True)
    psi = np.tanh(np.asarray(x, np.float64) @ np.asarray(alike, np.float64).T)
    centred = psi - psi.mean(axis=1, keepdims=True)
    centred /= np.sqrt((centred**2).mean(axis=1, keepdims=True) + LAYER_NORM_EPS)
    want = np.asarray(linear, np.float64) @ centred.T
    np.testing.assert_allclose(got, want, atol=1e-4 * np.abs(want).max())


@pytest.mark.slow
def test_runs_of_a_batch_do_not_see_each_other() -> None:
    x, weight, linear = given(70)
    batch = [jnp.stack([a, -0.5 * a]) for a in (x, weight, linear)]

    def kernel(*operands: jax.Array) -> jax.Array:
        return fused.lines(jnp.tanh, LAYER_NORM_EPS, *operands, interpret=True)

    together = jax.vmap(kernel)(*batch)
    for run in range(2):
        alone = kernel(*(a[run] for a in batch))
        np.testing.assert_allclose(together[run], alone, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("act", ACTIVATIONS)
def test_a_cuda_device_gets_two_kernels_and_no_features(act: str) -> None:
    """Forth and back, each one kernel for all runs; a batch of features appears nowhere."""
    windows = 390

    def loss(weight: jax.Array, linear: jax.Array, x: jax.Array) -> jax.Array:
        return jnp.sum(fused.lines(ACTIVATIONS[act], LAYER_NORM_EPS, x, weight, linear) ** 2)

    x, weight, linear = (jnp.stack([a, a]) for a in given(windows))
    slopes = jax.jit(jax.vmap(jax.grad(loss, argnums=(0, 1))))
    traced = slopes.trace(weight, linear, x)
    on_cuda = traced.lower(lowering_platforms=("cuda",)).as_text()
    assert on_cuda.count("lines_of_features") >= 2
    for shape in (f"2x{windows}x{WIDTH}x", f"2x{WIDTH}x{windows}x"):
        assert shape not in on_cuda
    on_cpu = traced.lower(lowering_platforms=("cpu",)).as_text()
    assert "lines_of_features" not in on_cpu


def test_elsewhere_the_same_function_is_the_formula() -> None:
    operands = given(40)
    got = jax.jit(lambda *a: fused.lines(jnp.tanh, None, *a))(*operands)
    np.testing.assert_allclose(got, formula("tanh", False, *operands), rtol=1e-5, atol=1e-5)


def test_it_is_used_where_one_gpu_is_there_and_the_rows_suit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    x, _, linear = given(30)
    nothing, roots = linear[:0], jnp.zeros((0, WIDTH, WIDTH))
    monkeypatch.setattr(jax, "default_backend", lambda: "cpu")
    assert not fused.supports(x, linear, nothing, roots)
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    monkeypatch.setattr(jax, "local_device_count", lambda: 2)
    assert not fused.supports(x, linear, nothing, roots)
    monkeypatch.setattr(jax, "local_device_count", lambda: 1)
    assert fused.supports(x, linear, nothing, roots)
    assert not fused.supports(x, linear, linear, roots)
    assert not fused.supports(x, linear, nothing, jnp.zeros((1, WIDTH, WIDTH)))
    assert not fused.supports(jnp.zeros((30, 36)), linear, nothing, roots)
    assert not fused.supports(x, jnp.zeros((5, 800)), nothing, roots)
    with jax.enable_x64(True):
        wide = x.astype(jnp.float64)
        assert not fused.supports(wide, linear, nothing, roots)
    # A layer whose readings come that way gives what its columns give.
    net = paper_backbone("tanh+ln", 3, jax.random.key(0), gpu_kernel=True)
    want = net.columns(x).read(linear, nothing, roots)
    for got, expected in zip(net.read(x, linear, nothing, roots), want, strict=True):
        assert got.shape == expected.shape
        np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-4)


# The paper's thin layers with point heads are what the kernel takes, on a device said to be CUDA.
PLAIN_FIT = """
import sys

import jax
import numpy as np

from scrollmt import Event, Forecaster, Gaussian

jax.default_backend = lambda: "gpu"
X = np.random.default_rng(0).normal(size=(60, 2))
Y = {"a": X[:, 0], "b": (X[:, 1] > 0).astype(int)}
tasks = {"a": Gaussian(), "b": Event()}
Forecaster(tasks, preset="paper", backbone="tanh", belief="none", steps=2).fit(X, Y)
experimental = ("scrollmt._fitting.fused", "jax.experimental.pallas")
found = [name for name in sys.modules if name.startswith(experimental)]
assert not found, found
"""


@pytest.mark.slow
def test_a_plain_fit_loads_no_kernel() -> None:
    done = subprocess.run([sys.executable, "-c", PLAIN_FIT], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
