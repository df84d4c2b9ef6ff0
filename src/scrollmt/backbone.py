r"""The shared feature map from one window's inputs to its features.

$$x \in \mathbb{R}^D \;\mapsto\; \psi(x) \in \mathbb{R}^H$$

A backbone is any Equinox module that maps one point `(D,)` to features `(H,)`; batching
happens outside. `Dense` covers the four variants of the paper (`app:details`, one
bias-free layer, layer norm after the activation) and the deeper biased ones of the
default preset.

Training reads the features of all windows at once as `Columns`, `(H, N)` with the windows
contiguous in memory, and never writes normalised features: with $m_n$ and $v_n$ the mean
and variance of a column $z_n$, and $r_n = (v_n + \epsilon)^{-1/2}$,

$$a^\top\psi_n = r_n (a - \bar a)^\top z_n, \qquad
  d^\top\psi_n^2 = r_n^2\, d^\top (z_n - m_n)^2.$$
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "relu": jax.nn.relu,
    "tanh": jnp.tanh,
    "silu": jax.nn.silu,
    "gelu": jax.nn.gelu,
}

PAPER_BACKBONES = ("relu", "relu+ln", "tanh", "tanh+ln")
PAPER_WIDTH = 50
LAYER_NORM_EPS = 1e-5
# A matrix with fewer rows than this is thin: a product with it costs what reading the other costs.
_THIN = 16
# The best of one to six steps at 50 features, by benchmarks/step.py: more steps of a triangle save
# less than their thinner products cost, and longer sums written out are no faster.
_STEPS = 4
_ROWS_AT_ONCE = 16


def layer_norm(z: Float[Array, "*s H"]) -> Float[Array, "*s H"]:
    r"""Centre and scale the last axis; no gain, no bias, so $\|\psi\|^2 \approx H$."""
    centred = z - jnp.mean(z, axis=-1, keepdims=True)
    var = jnp.mean(centred * centred, axis=-1, keepdims=True)
    return centred * jax.lax.rsqrt(var + LAYER_NORM_EPS)


def _weight_cotangent(rows: Float[Array, "K N"], z: Float[Array, "H N"]) -> Float[Array, "K H"]:
    """`rows @ z.T`; on a CPU the order of the two decides, and up to a factor of three."""
    # Of two thin matrices either order will do, and XLA aborts on some tiny ones with a barrier.
    if z.shape[0] < _THIN:
        return rows @ z.T
    # The barrier keeps XLA from folding the transpose into the product and swapping it back.
    product: Array = jax.lax.optimization_barrier(z @ rows.T)
    return product.T


def _feature_cotangent(
    weight: Float[Array, "K H"], rows: Float[Array, "K N"]
) -> Float[Array, "H N"]:
    columns: Array = jax.lax.optimization_barrier(weight.T)
    return columns @ rows


def constant_row(value: float, like: Float[Array, "*L H"]) -> Float[Array, "1 *L H"]:
    """A row of one value that varies over runs as `like` does, if in name only.

    A product of one matrix with the features of many runs makes XLA copy these into one.
    """
    return (value + 0.0 * jax.lax.stop_gradient(like))[None]


def _squared_norms(spread: Float[Array, "G F N"]) -> Float[Array, "G N"]:
    """The sum of squares of each column: sums of a few rows at a time, again and again.

    Written out they are one pass over the rows; XLA's own reductions are slow on a CPU.
    """
    terms = spread * spread
    while (rows := terms.shape[1]) > 1:
        step = -(-rows // _ROWS_AT_ONCE)
        terms = jnp.pad(terms, ((0, 0), (0, -rows % step), (0, 0)))
        terms = functools.reduce(
            jnp.add, [terms[:, i : i + step] for i in range(0, terms.shape[1], step)]
        )
    return terms[:, 0]


def _stairs(rows: int, width: int, triangular: bool) -> list[tuple[int, int, int]]:
    """Where roots are not zero: from row to row, and from which column on.

    Four steps of a triangle save three eighths of a product.
    """
    if not triangular or width < 8 * _STEPS:
        return [(0, rows, 0)]
    edges = [round(step * width / _STEPS) for step in range(_STEPS + 1)]
    return [(low, high, low) for low, high in itertools.pairwise(edges)]


class _Read(NamedTuple):
    """What comes of a product with the columns; `var` is None where they are not centred."""

    lines: Float[Array, "L N"]
    squares: Float[Array, "S N"]
    spreads: Float[Array, "G N"]
    var: Any


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def _products(
    centred: bool,
    triangular: bool,
    z: Float[Array, "H N"],
    linear: Float[Array, "L H"],
    square: Float[Array, "S H"],
    roots: Float[Array, "G F H"],
) -> _Read:
    """`linear @ z`, `square @ (z - m)**2` and the squared norms of `root @ (z - m)`.

    m is the mean of each column if `centred`, else zero. What is below the diagonal of
    `triangular` roots is never read.
    The derivative is written out because the order of the thin products, and what is kept
    for the way back, decide the time of a training step. A quadratic form would save one
    product, but its value can lose all digits, and its sign, to rounding; a norm cannot.
    """
    return _products_fwd(centred, triangular, z, linear, square, roots)[0]


def _products_fwd(
    centred: bool, triangular: bool, z: Array, linear: Array, square: Array, roots: Array
) -> tuple[_Read, Any]:
    if not centred:
        squared = z * z
        spread, spreads = _spread(triangular, z, roots)
        read = _Read(linear @ z, square @ squared, spreads, None)
        return read, (z, None, squared, None, spread, linear, square, roots)
    count, width = linear.shape
    average = constant_row(1.0 / width, z[:, 0])
    # `square @ z` is needed on the way back only, and is nearly free within the same product.
    lines = jnp.concatenate([linear, square, average]) @ z
    mean = lines[-1]
    squared = (z - mean) ** 2
    squares = jnp.concatenate([square, average]) @ squared
    through = lines[count:-1] - mean * jnp.sum(square, axis=1)[:, None]
    spread, spreads = _spread(triangular, z - mean, roots)
    read = _Read(lines[:count], squares[:-1], spreads, squares[-1])
    return read, (z, mean, squared, through, spread, linear, square, roots)


def _spread(
    triangular: bool, deviation: Float[Array, "H N"], roots: Float[Array, "G F H"]
) -> tuple[list[Array], Float[Array, "G N"]]:
    """The responses of the roots, one array per block of `_stairs`, and their squared norms."""
    groups, size, width = roots.shape
    spreads = jnp.zeros((groups, deviation.shape[1]), deviation.dtype)
    spread: list[Array] = []
    if groups:
        for low, high, first in _stairs(size, width, triangular):
            rows = roots[:, low:high, first:].reshape(-1, width - first)
            spread.append((rows @ deviation[first:]).reshape(groups, high - low, -1))
            spreads = spreads + _squared_norms(spread[-1])
    return spread, spreads


def _spread_cotangents(
    centred: bool,
    triangular: bool,
    deviation: Float[Array, "H N"],
    spread: list[Array],
    roots: Float[Array, "G F H"],
    d_spreads: Float[Array, "G N"],
) -> tuple[Float[Array, "H N"], Float[Array, "G F H"]]:
    """What the squared norms send back to the deviations, before centring, and to the roots."""
    groups, size, width = roots.shape
    d_deviation, d_mean = jnp.zeros_like(deviation), jnp.zeros_like(deviation[0])
    d_roots = []
    for response, (low, high, first) in zip(spread, _stairs(size, width, triangular), strict=True):
        d_response = (2.0 * response * d_spreads[:, None]).reshape(-1, deviation.shape[1])
        rows = roots[:, low:high, first:].reshape(-1, width - first)
        d_rows = _weight_cotangent(d_response, deviation[first:])
        before = ((0, 0), (0, 0), (first, 0))
        d_roots.append(jnp.pad(d_rows.reshape(groups, high - low, width - first), before))
        if centred:  # one more column for the mean of the others, which a deviation does not have
            rows = jnp.concatenate([rows, jnp.sum(rows, axis=1, keepdims=True) / width], axis=1)
        pulled = _feature_cotangent(rows, d_response)
        d_deviation = d_deviation + jnp.pad(pulled[: width - first], ((first, 0), (0, 0)))
        if centred:
            d_mean = d_mean + pulled[-1]
    return d_deviation - d_mean, jnp.concatenate(d_roots, axis=1)


def _products_bwd(
    centred: bool, triangular: bool, kept: Any, cotangents: _Read
) -> tuple[Array, ...]:
    z, mean, squared, through, spread, linear, square, roots = kept
    d_lines, d_squares, d_spreads, d_var = cotangents
    d_linear = _weight_cotangent(d_lines, z)
    d_square = _weight_cotangent(d_squares, squared)
    rows, d_rows, deviation = square, d_squares, z
    if centred:
        average = constant_row(1.0 / z.shape[0], z[:, 0])
        # sum_h (z - m) = 0, so the variance itself sends nothing back through the mean.
        d_mean = -2.0 * jnp.sum(d_squares * through, axis=0)
        linear, d_lines = (
            jnp.concatenate([linear, average]),
            jnp.concatenate([d_lines, d_mean[None]]),
        )
        rows, d_rows = jnp.concatenate([square, average]), jnp.concatenate([d_rows, d_var[None]])
        deviation = z - mean
    d_z = _feature_cotangent(linear, d_lines)
    if rows.shape[0]:
        d_z = d_z + 2.0 * deviation * _feature_cotangent(rows, d_rows)
    d_roots = jnp.zeros_like(roots)
    if spread:
        pulled, d_roots = _spread_cotangents(
            centred, triangular, deviation, spread, roots, d_spreads
        )
        d_z = d_z + pulled
    return d_z, d_linear, d_square, d_roots


_products.defvjp(_products_fwd, _products_bwd)


class Columns(eqx.Module):
    """Features of many windows, windows last, with a final layer norm applied when read."""

    z: Float[Array, "H N"]
    norm: bool = eqx.field(static=True)

    def read(
        self,
        linear: Float[Array, "L H"],
        square: Float[Array, "S H"],
        roots: Float[Array, "G F H"],
        *,
        triangular: bool = False,
    ) -> tuple[Float[Array, "L N"], Float[Array, "S N"], Float[Array, "G N"]]:
        """`linear @ psi`, `square @ psi**2` and the squared norms of `roots @ psi`.

        Roots that are upper `triangular` save a part of their products.
        """
        if not self.norm:
            return _products(False, triangular, self.z, linear, square, roots)[:3]
        # Rows that add to zero do not see the mean of a column.
        linear = linear - jnp.mean(linear, axis=-1, keepdims=True)
        # The variance is read by a row of its own, and a product with that one row alone is
        # slower on a CPU than one with two.
        asked = square if square.shape[0] else jnp.zeros_like(linear[:1])
        lines, squares, spreads, var = _products(True, triangular, self.z, linear, asked, roots)
        squares = squares[: square.shape[0]]
        shrink = jax.lax.rsqrt(var + LAYER_NORM_EPS)
        return shrink * lines, shrink * shrink * squares, shrink * shrink * spreads


def unit_draw(key: PRNGKeyArray, shape: tuple[int, ...], *, uniform: bool) -> Array:
    """Standard normal values, or values uniform between -1 and 1."""
    if uniform:
        return jax.random.uniform(key, shape, minval=-1.0, maxval=1.0)
    return jax.random.normal(key, shape)


class Dense(eqx.Module):
    """Dense layers, each followed by the activation and, where asked, by a layer norm.

    With `skip` the inputs themselves are features too, after those of the last layer: a linear
    model is then inside the family, whatever the penalty on the layers.
    """

    weights: tuple[Float[Array, "..."], ...]
    biases: tuple[Float[Array, "..."], ...] | None
    activation: str = eqx.field(static=True)
    norm: bool = eqx.field(static=True)
    skip: bool = eqx.field(static=True, default=False)
    gpu_kernel: bool = eqx.field(static=True, default=False)

    def __init__(
        self,
        in_size: int,
        widths: Sequence[int],
        *,
        activation: str,
        bias: bool,
        norm: bool,
        key: PRNGKeyArray,
        uniform: bool = False,
        skip: bool = False,
        gpu_kernel: bool = False,
    ):
        if activation not in ACTIVATIONS:
            raise ValueError(f"unknown activation {activation!r}; choose from {list(ACTIVATIONS)}")
        sizes = (in_size, *widths)
        keys = jax.random.split(key, 2 * len(widths))
        self.weights = tuple(
            unit_draw(k, (out, fan_in), uniform=uniform) / jnp.sqrt(fan_in)
            for k, fan_in, out in zip(keys[::2], sizes[:-1], sizes[1:], strict=True)
        )
        # Spread biases put the bends of the units inside the data instead of all at zero.
        self.biases = (
            tuple(
                jax.random.normal(k, (out,)) for k, out in zip(keys[1::2], sizes[1:], strict=True)
            )
            if bias
            else None
        )
        self.activation = activation
        self.norm = norm
        self.skip = skip
        self.gpu_kernel = gpu_kernel

    def __call__(self, x: Float[Array, " D"]) -> Float[Array, " H"]:
        z = x
        for i, weight in enumerate(self.weights):
            z = weight @ z
            if self.biases is not None:
                z = z + self.biases[i]
            z = ACTIVATIONS[self.activation](z)
            if self.norm:
                z = layer_norm(z)
        return jnp.concatenate([z, x]) if self.skip else z

    def read(
        self,
        x: Float[Array, "N D"],
        linear: Float[Array, "L H"],
        square: Float[Array, "S H"],
        roots: Float[Array, "G F H"],
        *,
        triangular: bool = False,
    ) -> tuple[Float[Array, "L N"], Float[Array, "S N"], Float[Array, "G N"]]:
        """What `Columns.read` gives for these windows; on a GPU, where it can, as one kernel."""
        thin = len(self.weights) == 1 and self.biases is None and not self.skip
        if self.gpu_kernel and thin and jax.default_backend() == "gpu":
            # The kernel uses an experimental part of JAX, which is loaded only where asked for.
            from scrollmt._fitting import fused

            if fused.supports(x, linear, square, roots):
                act, eps = ACTIVATIONS[self.activation], LAYER_NORM_EPS if self.norm else None
                none = jnp.zeros((0, x.shape[0]), x.dtype)
                return fused.lines(act, eps, x, self.weights[0], linear), none, none
        return self.columns(x).read(linear, square, roots, triangular=triangular)

    def columns(self, x: Float[Array, "N D"]) -> Columns:
        """The features of many windows; each layer reads the columns of the one before."""
        psi = Columns(x.T, norm=False)
        for i, weight in enumerate(self.weights):
            a, _, _ = psi.read(weight, weight[:0], weight[:0, None])
            if self.biases is not None:
                a = a + self.biases[i][:, None]
            psi = Columns(ACTIVATIONS[self.activation](a), norm=self.norm)
        if not self.skip:
            return psi
        # The inputs are not part of the layer norm, so the normalised layer is written out.
        top = layer_norm(psi.z.T).T if self.norm else psi.z
        return Columns(jnp.concatenate([top, x.T]), norm=False)


def paper_backbone(
    name: str,
    in_size: int,
    key: PRNGKeyArray,
    *,
    uniform: bool = False,
    gpu_kernel: bool = False,
) -> Dense:
    """One of the paper's four: `relu`, `relu+ln`, `tanh`, `tanh+ln`.

    With `gpu_kernel`, features of point heads are read by an experimental kernel on a CUDA device.
    """
    if name not in PAPER_BACKBONES:
        raise ValueError(f"unknown paper backbone {name!r}; choose from {list(PAPER_BACKBONES)}")
    activation, _, norm = name.partition("+")
    return Dense(
        in_size,
        (PAPER_WIDTH,),
        activation=activation,
        bias=False,
        norm=norm == "ln",
        key=key,
        uniform=uniform,
        gpu_kernel=gpu_kernel,
    )
