r"""Features that are never written: a thin layer and what is read off it as one GPU kernel.

$$x_n \;\mapsto\; \psi_n = \text{act}(W x_n) \;\mapsto\; a^\top\psi_n$$

Fifty features of three inputs, read by a handful of rows: the features of all windows are nearly
all that a training step moves through memory. Here a few windows at a time stay in registers
from their inputs to their lines, and the way back makes their features a second time instead
of fetching them.

`lines` is what `Columns.read` gives for linear rows, with the same derivatives. On any other
device than a CUDA one the same function is plain JAX.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton
from jaxtyping import Array, Float

from scrollmt._numerics.normal import power_of_two

Activation = Callable[[Array], Array]

# Windows that a program of one warp holds at a time, forth and back, and in all on the way back:
# the best of the settings tried on an H200 (docs/results/speed.md).
_FORTH, _BACK = 128, 4
_WINDOWS_A_PROGRAM = 64
_ONE_WARP = triton.CompilerParams(num_warps=1)
# Beyond these a program's sums leave the registers.
_MOST_FEATURES, _MOST_ROWS = 64, 12


def supports(x: Array, linear: Array, square: Array, roots: Array) -> bool:
    """Whether the kernel takes these rows, on the one device that is there."""
    return (
        jax.default_backend() == "gpu"
        and jax.local_device_count() == 1
        and square.shape[0] == roots.shape[0] == 0
        and linear.shape[1] <= _MOST_FEATURES
        and x.shape[-1] + linear.shape[0] <= _MOST_ROWS
        and x.dtype == linear.dtype == jnp.float32
    )


def _columns_of(rows: Any, at: Array) -> list[Float[Array, " T"]]:
    """The values of each row at some windows; zero where there is no window."""
    inside = at < rows.shape[1]
    return [triton.load(rows.at[row, at], mask=inside, other=0.0) for row in range(rows.shape[0])]


def _mixed(columns: Sequence[Array], rows: Sequence[Array]) -> Array:
    """`columns @ rows`, one row after the other: too thin for a matrix product."""
    terms = [column * row for column, row in zip(columns, rows, strict=True)]
    return functools.reduce(jnp.add, terms)


def _forth_kernel(
    x: Any,
    weight: Any,
    linear: Any,
    lines: Any,
    *norms: Any,
    act: Activation,
    eps: float | None,
    width: int,
) -> None:
    """One feature of many windows after the other: nothing is added up across threads."""
    at = pl.program_id(0) * _FORTH + jnp.arange(_FORTH)
    columns, inside = _columns_of(x, at), at < x.shape[1]
    inputs, rows = x.shape[0], linear.shape[0]

    def feature(h: Array | int) -> Array:
        return act(_mixed(columns, [weight[d, h] for d in range(inputs)]))

    # Differences from one of the features lose no digits where all of them are alike.
    base = 0.0 if eps is None else feature(0)

    def add(h: Array, totals: tuple[Array, ...]) -> tuple[Array, ...]:
        a = feature(h) - base
        terms = [a * linear[row, h] for row in range(rows)]
        terms += [] if eps is None else [a, a * a]
        return tuple(total + term for total, term in zip(totals, terms, strict=True))

    nothing = jnp.zeros(_FORTH, jnp.float32)
    sums = jax.lax.fori_loop(0, width, add, (nothing,) * (rows + 2 * (eps is not None)))
    shrink = None
    if eps is not None:
        mean = sums[rows] / width
        var = jnp.maximum(sums[rows + 1] / width - mean * mean, 0.0)
        shrink = jax.lax.rsqrt(var + eps)
        for row, value in enumerate((shrink, shrink * (base + mean))):
            triton.store(norms[0].at[row, at], value, mask=inside)
    for row in range(rows):
        value = sums[row] if shrink is None else shrink * sums[row]
        triton.store(lines.at[row, at], value, mask=inside)


def _back_kernel(
    x: Any,
    weight: Any,
    linear: Any,
    d_lines: Any,
    *norms_and_sums: Any,
    act: Activation,
) -> None:
    """All features of a few windows at a time: what is added up stays in its thread."""
    *norms, sums = norms_and_sums
    first = pl.program_id(0) * _WINDOWS_A_PROGRAM

    def rows_of(table: Any) -> list[Array]:
        return [table[row, :][None, :] for row in range(table.shape[0])]

    def some(t: Array, totals: tuple[Array, ...]) -> tuple[Array, ...]:
        at = first + t * _BACK + jnp.arange(_BACK)
        columns, d_columns = (
            [column[:, None] for column in _columns_of(rows, at)] for rows in (x, d_lines)
        )
        psi, pull = jax.vjp(act, _mixed(columns, rows_of(weight)))
        if norms:
            shrink, shift, along = (column[:, None] for column in _columns_of(norms[0], at))
            psi = shrink * psi - shift
            d_a = _mixed([shrink * d for d in d_columns], rows_of(linear)) - along * psi
        else:
            d_a = _mixed(d_columns, rows_of(linear))
        (d_z,) = pull(d_a)
        terms = [d_z * column for column in columns] + [psi * column for column in d_columns]
        return tuple(total + term for total, term in zip(totals, terms, strict=True))

    # Added up window by window at last: a sum over windows in every turn would cost more.
    nothing = jnp.zeros((_BACK, weight.shape[1]), jnp.float32)
    totals = (nothing,) * (x.shape[0] + linear.shape[0])
    totals = jax.lax.fori_loop(0, _WINDOWS_A_PROGRAM // _BACK, some, totals)
    for row, total in enumerate(totals):
        sums[0, row, :] = jnp.sum(total, axis=0)


def _operands(x: Array, weight: Array, linear: Array) -> tuple[Array, Array, Array]:
    """Windows last, and as many features as a power of two."""
    padding = ((0, 0), (0, power_of_two(weight.shape[0]) - weight.shape[0]))
    return x.T, jnp.pad(weight.T, padding), jnp.pad(linear, padding)


def _forth(
    act: Activation, eps: float | None, interpret: bool, x: Array, weight: Array, linear: Array
) -> tuple[Float[Array, "L N"], Float[Array, "M N"]]:
    """The lines; with a layer norm also by what it shrinks a window, and its mean shrunk."""
    shapes = [(linear.shape[0], x.shape[0])] + [(2, x.shape[0])] * (eps is not None)
    made = pl.pallas_call(
        functools.partial(_forth_kernel, act=act, eps=eps, width=weight.shape[0]),
        out_shape=[jax.ShapeDtypeStruct(shape, jnp.float32) for shape in shapes],
        grid=(pl.cdiv(x.shape[0], _FORTH),),
        interpret=interpret,
        compiler_params=_ONE_WARP,
        name="lines_of_features",
    )(*_operands(x, weight, linear))
    return made[0], made[1] if eps is not None else jnp.zeros((0, x.shape[0]), x.dtype)


def _back(
    act: Activation,
    interpret: bool,
    x: Array,
    weight: Array,
    linear: Array,
    lines: Array,
    norms: Array,
    d_lines: Array,
) -> tuple[Float[Array, "H D"], Float[Array, "L H"]]:
    operands = [*_operands(x, weight, linear), d_lines]
    if norms.shape[0]:
        # How far a window's slope points along its own features, which a norm takes away.
        along = norms[:1] * jnp.sum(d_lines * lines, axis=0) / weight.shape[0]
        operands.append(jnp.concatenate([norms, along]))
    programs = pl.cdiv(x.shape[0], _WINDOWS_A_PROGRAM)
    shape = (1, x.shape[1] + linear.shape[0], operands[1].shape[1])
    sums = pl.pallas_call(
        functools.partial(_back_kernel, act=act),
        out_shape=jax.ShapeDtypeStruct((programs, *shape[1:]), jnp.float32),
        grid=(programs,),
        out_specs=pl.BlockSpec(shape, lambda program: (program, 0, 0)),
        interpret=interpret,
        compiler_params=_ONE_WARP,
        name="lines_of_features_back",
    )(*operands)
    total = jnp.sum(sums, axis=0)[:, : weight.shape[0]]
    return total[: x.shape[1]].T, total[x.shape[1] :]


def _plain(
    act: Activation, eps: float | None, x: Array, weight: Array, linear: Array
) -> tuple[Float[Array, "L N"], Float[Array, "M N"]]:
    a = act(weight @ x.T)
    if eps is None:
        return linear @ a, a[:0]
    mean = jnp.mean(a, axis=0)
    shrink = jax.lax.rsqrt(jnp.mean((a - mean) ** 2, axis=0) + eps)
    return linear @ (shrink * (a - mean)), jnp.stack([shrink, shrink * mean])


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1), nondiff_argnames=("interpret",))
def lines(
    act: Activation,
    eps: float | None,
    x: Float[Array, "N D"],
    weight: Float[Array, "H D"],
    linear: Float[Array, "L H"],
    interpret: bool = False,
) -> Float[Array, "L N"]:
    """`linear @ psi`; `eps` is that of a layer norm, None without one.

    With `interpret` the kernel's own steps run, one at a time, on whatever device there is.
    """
    return _lines_fwd(act, eps, x, weight, linear, interpret)[0]


def _lines_fwd(
    act: Activation, eps: float | None, x: Array, weight: Array, linear: Array, interpret: bool
) -> tuple[Array, tuple[Array, ...]]:
    if eps is not None:
        # Rows that add to zero do not see the mean of a window's features. Normalised features
        # add to zero themselves, so the slope of the rows needs nothing of the kind.
        linear = linear - jnp.mean(linear, axis=-1, keepdims=True)
    given = (x, weight, linear)
    kernel = functools.partial(_forth, act, eps, interpret)
    if interpret:
        made = kernel(*given)
    else:
        plain = functools.partial(_plain, act, eps)
        made = jax.lax.platform_dependent(*given, cuda=kernel, default=plain)
    return made[0], (*given, *made)


def _lines_bwd(
    act: Activation, eps: float | None, interpret: bool, given: Any, d_lines: Array
) -> tuple[Array, Array, Array]:
    def plain(x: Array, weight: Array, linear: Array) -> Array:
        return _plain(act, eps, x, weight, linear)[0]

    def by_formula(
        x: Array, weight: Array, linear: Array, lines: Array, norms: Array, d_lines: Array
    ) -> Any:
        return jax.vjp(functools.partial(plain, x), weight, linear)[1](d_lines)

    kernel: Callable[..., Any] = functools.partial(_back, act, interpret)
    if interpret:
        d_weight, d_linear = kernel(*given, d_lines)
    else:
        d_weight, d_linear = jax.lax.platform_dependent(
            *given, d_lines, cuda=kernel, default=by_formula
        )
    x, weight, linear, *_ = given
    # Inputs are data as a rule, and then XLA leaves this out.
    d_x = jax.vjp(lambda x: plain(x, weight, linear), x)[1](d_lines)[0]
    return d_x, d_weight, d_linear


lines.defvjp(_lines_fwd, _lines_bwd)
