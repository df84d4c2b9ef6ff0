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
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton
from jaxtyping import Array, Float

Activation = Callable[[Array], Array]

# Windows that a program of one warp holds at a time, forth and back, and in all on the way back:
# the best of the settings tried on an H200 (docs/results/speed.md).
_FORTH, _BACK = 16, 4
_WINDOWS_A_PROGRAM = 64
_ONE_WARP = triton.CompilerParams(num_warps=1)
# Beyond these a program's sums leave the registers.
_MOST_FEATURES, _MOST_ROWS = 64, 12


def pays(x: Array, linear: Array, square: Array, roots: Array) -> bool:
    """Whether the kernel takes these rows, on the one device that is there."""
    return (
        jax.default_backend() == "gpu"
        and jax.local_device_count() == 1
        and square.shape[0] == roots.shape[0] == 0
        and linear.shape[1] <= _MOST_FEATURES
        and x.shape[-1] + linear.shape[0] <= _MOST_ROWS
        and x.dtype == linear.dtype == jnp.float32
    )


def _features(
    act: Activation, eps: float | None, z: Float[Array, "T P"], width: int
) -> tuple[Float[Array, "T P"], Callable[[Array], Array]]:
    """psi of some windows, and the way back to z; columns from `width` on are padding."""
    a, pull = jax.vjp(act, z)
    if eps is None:
        return a, lambda d_psi: pull(d_psi)[0]
    real = jax.lax.broadcasted_iota(jnp.int32, z.shape, 1) < width

    def mean(values: Array) -> Array:
        return (jnp.sum(values, axis=1) / width)[:, None]

    centred = jnp.where(real, a - mean(a), 0.0)
    shrink = jax.lax.rsqrt(mean(centred * centred) + eps)
    psi = centred * shrink

    def back(d_psi: Array) -> Array:
        d_a = shrink * (d_psi - mean(d_psi) - psi * mean(d_psi * psi))
        return pull(jnp.where(real, d_a, 0.0))[0]

    return psi, back


def _columns_of(rows: Any, at: Array) -> list[Float[Array, "T 1"]]:
    """The values of each row at some windows; zero where there is no window."""
    inside = at < rows.shape[1]
    return [
        triton.load(rows.at[row, at], mask=inside, other=0.0)[:, None]
        for row in range(rows.shape[0])
    ]


def _mixed(columns: list[Float[Array, "T 1"]], rows: Any) -> Float[Array, "T P"]:
    """`columns @ rows`, one row after the other: too thin for a matrix product."""
    terms = [column * rows[k, :][None, :] for k, column in enumerate(columns)]
    return functools.reduce(jnp.add, terms)


def _forth_kernel(
    x: Any, weight: Any, linear: Any, lines: Any, *, act: Activation, eps: float | None, width: int
) -> None:
    at = pl.program_id(0) * _FORTH + jnp.arange(_FORTH)
    psi, _ = _features(act, eps, _mixed(_columns_of(x, at), weight), width)
    for row in range(linear.shape[0]):
        value = jnp.sum(psi * linear[row, :][None, :], axis=1)
        triton.store(lines.at[row, at], value, mask=at < x.shape[1])


def _back_kernel(
    x: Any,
    weight: Any,
    linear: Any,
    d_lines: Any,
    sums: Any,
    *,
    act: Activation,
    eps: float | None,
    width: int,
) -> None:
    first = pl.program_id(0) * _WINDOWS_A_PROGRAM

    def some(t: Array, totals: tuple[Array, ...]) -> tuple[Array, ...]:
        at = first + t * _BACK + jnp.arange(_BACK)
        columns, d_columns = _columns_of(x, at), _columns_of(d_lines, at)
        psi, back = _features(act, eps, _mixed(columns, weight), width)
        d_z = back(_mixed(d_columns, linear))
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
    padding = ((0, 0), (0, (1 << (weight.shape[0] - 1).bit_length()) - weight.shape[0]))
    return x.T, jnp.pad(weight.T, padding), jnp.pad(linear, padding)


def _forth(
    act: Activation, eps: float | None, interpret: bool, x: Array, weight: Array, linear: Array
) -> Float[Array, "L N"]:
    return pl.pallas_call(
        functools.partial(_forth_kernel, act=act, eps=eps, width=weight.shape[0]),
        out_shape=jax.ShapeDtypeStruct((linear.shape[0], x.shape[0]), jnp.float32),
        grid=(pl.cdiv(x.shape[0], _FORTH),),
        interpret=interpret,
        compiler_params=_ONE_WARP,
        name="lines_of_features",
    )(*_operands(x, weight, linear))


def _back(
    act: Activation,
    eps: float | None,
    interpret: bool,
    x: Array,
    weight: Array,
    linear: Array,
    d_lines: Array,
) -> tuple[Float[Array, "H D"], Float[Array, "L H"]]:
    operands = _operands(x, weight, linear)
    programs = pl.cdiv(x.shape[0], _WINDOWS_A_PROGRAM)
    shape = (1, x.shape[1] + linear.shape[0], operands[1].shape[1])
    sums = pl.pallas_call(
        functools.partial(_back_kernel, act=act, eps=eps, width=weight.shape[0]),
        out_shape=jax.ShapeDtypeStruct((programs, *shape[1:]), jnp.float32),
        grid=(programs,),
        out_specs=pl.BlockSpec(shape, lambda program: (program, 0, 0)),
        interpret=interpret,
        compiler_params=_ONE_WARP,
        name="lines_of_features_back",
    )(*operands, d_lines)
    total = jnp.sum(sums, axis=0)[:, : weight.shape[0]]
    return total[: x.shape[1]].T, total[x.shape[1] :]


def _plain(
    act: Activation, eps: float | None, x: Array, weight: Array, linear: Array
) -> Float[Array, "L N"]:
    psi, _ = _features(act, eps, x @ weight.T, weight.shape[0])
    return linear @ psi.T


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
) -> tuple[Array, tuple[Array, Array, Array]]:
    given = (x, weight, linear)
    kernel = functools.partial(_forth, act, eps, interpret)
    if interpret:
        return kernel(*given), given
    plain = functools.partial(_plain, act, eps)
    return jax.lax.platform_dependent(*given, cuda=kernel, default=plain), given


def _lines_bwd(
    act: Activation, eps: float | None, interpret: bool, given: Any, d_lines: Array
) -> tuple[Array, Array, Array]:
    plain = functools.partial(_plain, act, eps)
    kernel: Callable[..., Any] = functools.partial(_back, act, eps, interpret)

    def by_formula(x: Array, weight: Array, linear: Array, d_lines: Array) -> Any:
        return jax.vjp(functools.partial(plain, x), weight, linear)[1](d_lines)

    if interpret:
        slopes = kernel(*given, d_lines)
    else:
        slopes = jax.lax.platform_dependent(*given, d_lines, cuda=kernel, default=by_formula)
    # Inputs are data as a rule, and then XLA leaves this out.
    d_x = jax.vjp(lambda x: plain(x, *given[1:]), given[0])[1](d_lines)[0]
    return d_x, *slopes


lines.defvjp(_lines_fwd, _lines_bwd)
