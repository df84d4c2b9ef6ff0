"""A batch of runs is cut, thinned out and laid out in memory, and no run can tell."""

import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import scrollmt.fit as fit_module
from scrollmt import Event, Gaussian, Ordinal
from scrollmt._fitting import memory, step
from scrollmt._numerics.normal import normal_energy
from scrollmt.backbone import Columns, Dense, layer_norm
from scrollmt.beliefs import BELIEFS
from scrollmt.fit import Fits, Schedule, fit, stack
from scrollmt.model import Model, build
from scrollmt.objective import Data, composed

HEADS = {"event": Event(), "regime": Ordinal(3), "state": Gaussian()}


def data(n: int, seed: int) -> Data:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 3))
    y = x[:, 0] + 0.5 * rng.normal(size=n)
    labels = {"event": (y > 0).astype(np.int32), "regime": np.digitize(y, [-0.5, 0.5])}
    return Data(
        jnp.asarray(x, float),
        {"state": jnp.asarray(y, float), **{k: jnp.asarray(v) for k, v in labels.items()}},
        {name: jnp.ones(n) for name in HEADS},
    )


def start(seed: int, belief: str = "diag", width: int = 5) -> Model:
    net_key, task_key = jax.random.split(jax.random.key(seed))
    net = Dense(3, (width,), activation="tanh", bias=False, norm=True, key=net_key)
    return build(net, HEADS, features=width, belief=belief, key=task_key, cov_floor=1e-4)


def objective(model: Model, data: Data, hyper: Any, data_scale: Any) -> jax.Array:
    return composed(model, data, data_scale=data_scale)


def train(seeds: list[int], rates: list[float], schedule: Schedule, **options: Any) -> Fits:
    return fit(
        stack([start(s) for s in seeds]),
        jax.tree.map(lambda *a: jnp.stack(a), *(data(40, s) for s in seeds)),
        jax.tree.map(lambda *a: jnp.stack(a), *(data(20, 100 + s) for s in seeds)),
        objective=objective,
        hyper={"learning_rate": jnp.asarray(rates)},
        schedule=schedule,
        keys=jax.random.split(jax.random.key(1), len(seeds)),
        **options,
    )


def assert_same(a: Fits, b: Fits, rtol: float = 1e-4) -> None:
    assert a.stop_reason == b.stop_reason
    np.testing.assert_array_equal(a.best_step, b.best_step)
    np.testing.assert_array_equal(a.steps, b.steps)
    np.testing.assert_allclose(a.best_score, b.best_score, rtol=rtol)
    for name in a.history:
        np.testing.assert_allclose(a.history[name], b.history[name], rtol=rtol)
    for x, y in zip(jax.tree.leaves(a.models), jax.tree.leaves(b.models), strict=True):
        np.testing.assert_allclose(x, y, rtol=rtol, atol=rtol)


# The products that make up a step


@pytest.mark.slow
@pytest.mark.parametrize("belief", list(BELIEFS))
@pytest.mark.parametrize("norm", [False, True])
@pytest.mark.parametrize("widths", [(5,), (18, 20)])
def test_columns_give_what_features_give(belief: str, norm: bool, widths: tuple[int, ...]) -> None:
    """Values and gradients of the fused projection against features written out, in float64."""
    with jax.enable_x64(True):
        net_key, task_key = jax.random.split(jax.random.key(3))
        net = Dense(3, widths, activation="silu", bias=True, norm=norm, key=net_key)
        model = build(net, HEADS, features=widths[-1], belief=belief, key=task_key, cov_floor=1e-3)
        x = data(11, 0).x

        def fused(model: Model) -> Any:
            return model.project(x)

        def plain(model: Model) -> Any:
            psi = model.features(x)
            return {name: task.belief.project(psi) for name, task in model.tasks.items()}

        def summary(lines: Any) -> jax.Array:
            return sum(
                (jnp.sum(jnp.sin(m) + jnp.exp(-v)) for m, v in lines.values()), start=jnp.zeros(())
            )

        for name, pair in plain(model).items():
            np.testing.assert_allclose(fused(model)[name], pair, rtol=1e-10, atol=1e-12)
        got = eqx.filter_grad(lambda m: summary(fused(m)))(model)
        want = eqx.filter_grad(lambda m: summary(plain(m)))(model)
        for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-8, atol=1e-10)
        assert any(np.abs(leaf).max() > 1e-3 for leaf in jax.tree.leaves(want))


def test_a_norm_read_from_columns_survives_a_large_common_offset() -> None:
    """float32 with a mean a thousand times the spread: the squares are taken after centring."""
    rng = np.random.default_rng(0)
    z = (1000.0 + rng.normal(size=(16, 7))).astype(np.float32)
    rows = rng.normal(size=(2, 16)).astype(np.float32)
    _, squares, _ = Columns(jnp.asarray(z), norm=True).read(
        jnp.asarray(rows), jnp.asarray(rows**2), jnp.zeros((0, 16, 16))
    )
    with jax.enable_x64(True):
        exact = np.asarray(layer_norm(jnp.asarray(z.astype(np.float64).T)))
    np.testing.assert_allclose(squares, (rows.astype(np.float64) ** 2) @ exact.T**2, rtol=1e-3)


@pytest.mark.slow
def test_gradients_of_the_columns_can_be_differentiated_again() -> None:
    with jax.enable_x64(True):
        model, x = start(0), data(6, 1).x

        def loss(w: jax.Array) -> jax.Array:
            moved = eqx.tree_at(lambda m: m.backbone.weights, model, (w,))
            mean, var = moved.project(x)["state"]
            return jnp.sum(mean**2 + var)

        def slow(w: jax.Array) -> jax.Array:
            moved = eqx.tree_at(lambda m: m.backbone.weights, model, (w,))
            mean, var = moved.tasks["state"].belief.project(moved.features(x))
            return jnp.sum(mean**2 + var)

        assert isinstance(model.backbone, Dense)
        at = model.backbone.weights[0]
        curvature = jax.jacrev(jax.grad(loss))(at)
        np.testing.assert_allclose(curvature, jax.jacrev(jax.grad(slow))(at), rtol=1e-7, atol=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("size", [1, 2, 5, 8])
def test_normal_energy_is_the_normal_density(size: int) -> None:
    """Value and both gradients against explicit inverses, alone and under vmap."""
    rng = np.random.default_rng(size)
    root = rng.normal(size=(3, size, size))
    cov = root @ np.swapaxes(root, 1, 2) + 0.1 * np.eye(size)
    x = rng.normal(size=(3, size))
    inverse = np.linalg.inv(cov)
    pull = np.einsum("bij,bj->bi", inverse, x)
    energy = 0.5 * (np.linalg.slogdet(2 * np.pi * cov)[1] + np.sum(x * pull, axis=1))
    slope = 0.5 * (inverse - pull[:, :, None] * pull[:, None, :])
    with jax.enable_x64(True):
        both = jax.value_and_grad(normal_energy, argnums=(0, 1))
        value, (d_x, d_cov) = jax.jit(jax.vmap(both))(jnp.asarray(x), jnp.asarray(cov))
        alone, _ = both(jnp.asarray(x[0]), jnp.asarray(cov[0]))
    np.testing.assert_allclose(value, energy, rtol=1e-10)
    np.testing.assert_allclose(alone, energy[0], rtol=1e-10)
    np.testing.assert_allclose(d_x, pull, rtol=1e-7, atol=1e-9)
    np.testing.assert_allclose(d_cov, slope, rtol=1e-7, atol=1e-9)


@pytest.mark.slow
def test_a_batch_of_full_beliefs_on_two_threads_does_not_wait_for_itself() -> None:
    """Three factorisations at once over a batch of ten used to lock up a pool of two threads."""
    script = """
import jax, jax.numpy as jnp
from test_batching import data, objective, start
from scrollmt.fit import Schedule, fit, stack
fits = fit(stack([start(s, "full", 50) for s in range(10)]), data(300, 0), data(100, 1),
           objective=objective, hyper={"learning_rate": jnp.full(10, 0.01)},
           schedule=Schedule(steps=40), keys=jax.random.split(jax.random.key(0), 10))
print("ended", set(fits.stop_reason))
"""
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=Path(__file__).parent,
        env={**os.environ, "NPROC": "2"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert "ended {'steps'}" in done.stdout, done.stderr


# Runs that leave


@pytest.mark.slow
def test_runs_that_have_ended_leave_and_nobody_notices(monkeypatch: pytest.MonkeyPatch) -> None:
    """Six runs, four of them hopeless: the batch shrinks to three and to two, results stay."""
    rates = [0.02, 1e30, 0.05, 1e30, 1e30, 1e30]
    schedule = Schedule(steps=100, patience=100)
    monkeypatch.setattr(fit_module, "worth_compiling", lambda saved: False)
    whole = train([*range(6)], rates, schedule)
    sizes = []
    real = step.advance

    def counted(program: Any, runs: Any, *rest: Any) -> Any:
        sizes.append(len(runs.status))
        return real(program, runs, *rest)

    monkeypatch.setattr(fit_module, "worth_compiling", lambda saved: True)
    monkeypatch.setattr(fit_module, "advance", counted)
    seen: list[int] = []
    thinned = train([*range(6)], rates, schedule, progress=lambda *a: seen.append(len(a[2])))
    assert sizes[0] == 6
    assert sizes[-1] == 2
    assert sum(a != b for a, b in zip(sizes[1:], sizes[:-1], strict=True)) == 1
    assert set(seen) == {6}
    assert whole.stop_reason.count("nonfinite") == 4
    assert_same(thinned, whole)
    for run in (0, 2):
        alone = train([run], [rates[run]], schedule)
        np.testing.assert_allclose(alone.best_score[0], thinned.best_score[run], rtol=1e-4)


@pytest.mark.slow
def test_a_batch_shrinks_only_where_that_is_worth_compiling() -> None:
    assert not memory.worth_compiling(1e6)
    assert memory.worth_compiling(1e15)
    tiny = train([0, 1, 2, 3], [0.02, 1e30, 1e30, 1e30], Schedule(steps=50))
    assert tiny.history["validation"].shape == (4, 50)


def test_a_step_is_traced_once_for_the_estimate(monkeypatch: pytest.MonkeyPatch) -> None:
    """However often a batch asks for it: a trace takes longer than a small block."""
    asked: list[float] = []
    traced: list[Any] = []
    real = memory.live_bytes

    def counted(function: Any, *shapes: Any) -> int:
        traced.append(function)
        return real(function, *shapes)

    def never(saved: float) -> bool:
        asked.append(saved)
        return False

    monkeypatch.setattr(fit_module, "live_bytes", counted)
    monkeypatch.setattr(fit_module, "worth_compiling", never)
    train([0, 1, 2, 3], [0.02, 1e30, 1e30, 1e30], Schedule(steps=51))
    assert len(asked) > 10
    assert len(set(traced)) == len(traced) == 2  # the step and the score


# Memory


def test_the_estimate_counts_what_is_alive() -> None:
    shape = jax.ShapeDtypeStruct((1000,), jnp.float32)
    assert memory.live_bytes(lambda a: a + 1.0, shape) == 8000
    # Three values in a row, but never more than two of them at the same time.
    assert memory.live_bytes(lambda a: jnp.sin(jnp.cos(jnp.tan(a))), shape) == 8000
    assert memory.live_bytes(lambda a: jnp.outer(a, a).sum(), shape) >= 4_000_000
    assert memory.live_bytes(jax.jit(lambda a: jnp.outer(a, a).sum()), shape) >= 4_000_000


def test_the_estimate_is_near_what_the_compiler_takes() -> None:
    """Within a factor of three of XLA's own figure, for a step of one run."""
    model, windows = start(0), data(5000, 0)
    params, static = eqx.partition(model, eqx.is_inexact_array)

    def loss(params: Model, data: Data) -> jax.Array:
        return composed(eqx.combine(params, static), data)

    step = jax.value_and_grad(loss)
    analysis = jax.jit(step).lower(params, windows).compile().memory_analysis()
    assert analysis is not None
    taken = analysis.temp_size_in_bytes + analysis.argument_size_in_bytes
    assert taken / 2 < memory.live_bytes(step, params, windows) < 3 * taken


@pytest.mark.slow
def test_a_batch_is_cut_to_the_memory_budget_and_results_stay() -> None:
    seeds, rates, schedule = [*range(5)], [0.01, 0.02, 0.03, 0.04, 0.05], Schedule(steps=60)
    whole = train(seeds, rates, schedule)
    parts: list[int] = []
    cut = train(
        seeds,
        rates,
        schedule,
        memory_budget=35_000,
        progress=lambda step, steps, best: parts.append(len(best)),
    )
    assert 1 <= max(parts) < 5
    assert len(set(parts)) == 1  # equal parts share one compiled program
    assert_same(cut, whole)


@pytest.mark.parametrize(
    ("runs", "room", "sizes"), [(10, 4, [4, 4, 4]), (10, 10, [10]), (3, 0, [1] * 3)]
)
def test_parts_are_equal_and_cover_all_runs(runs: int, room: int, sizes: list[int]) -> None:
    parts = memory.cut(runs, 100.0 * room, 10**9, lambda: 100)
    assert [len(p) for p in parts] == sizes
    np.testing.assert_array_equal(np.concatenate(parts)[:runs], np.arange(runs))
    assert max(np.concatenate(parts)) == runs - 1


def test_a_cpu_is_given_what_its_caches_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "cores", lambda: 2)

    def sizes(run_bytes: float, windows: int = 10**6, runs: int = 60, **how: bool) -> list[int]:
        parts = memory.cut(runs, None, windows, lambda: int(run_bytes), **how)
        return [len(part) for part in parts]

    assert [len(p) for p in memory.cut(60, math.inf, 10**6, lambda: 10**6)] == [60]
    assert sizes(3e6) == [15] * 4  # 16 would fit, and four equal parts are as few
    assert sizes(0.8e6) == [60]
    assert sizes(50e6) == [2] * 30  # a run fills a core, and both have one
    assert sizes(50e6, runs=3) == [3]  # two parts of two would compute a run for nothing
    assert sizes(50e6, windows=5000) == [60]
    assert sizes(50e6, shared=True) == [60]


@pytest.mark.slow
def test_an_interrupt_in_the_first_part_leaves_the_others_at_their_start() -> None:
    def stop(step: int, steps: int, best: np.ndarray) -> None:
        raise KeyboardInterrupt

    fits = train([0, 1], [0.01, 0.01], Schedule(steps=50), memory_budget=1, progress=stop)
    assert fits.stop_reason == ("interrupted", "interrupted")
    assert fits.steps[0] > 0
    assert fits.steps[1] == 0
    assert np.isfinite(fits.best_score).all()
    assert fits.history["validation"].shape[1] == fits.steps[0]
    assert np.isnan(fits.history["validation"][1]).all()


# Compilation


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="mappings are counted on Linux alone")
def test_programs_are_let_go_before_the_process_runs_out_of_mappings(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    schedule = Schedule(steps=10)
    train([0, 1], [0.01, 0.02], Schedule(steps=20))
    first = train([0, 1], [0.01, 0.02], schedule)
    kept = step.advance._cache_size()  # type: ignore[attr-defined]
    assert kept >= 2
    memory.clear_jit_cache()  # there is room
    assert step.advance._cache_size() == kept  # type: ignore[attr-defined]
    allowed = tmp_path / "max_map_count"
    allowed.write_text("100\n")
    monkeypatch.setattr(memory, "_MAPPINGS_ALLOWED", allowed)
    again = train([0, 1], [0.01, 0.02], schedule)
    # The fit that found no room is the only one whose program is there.
    assert step.advance._cache_size() == 1  # type: ignore[attr-defined]
    np.testing.assert_array_equal(first.best_score, again.best_score)


@pytest.mark.slow
def test_programs_are_reused_between_fits_and_kept_on_disk_where_asked(tmp_path: Path) -> None:
    schedule = Schedule(steps=10)
    train([0, 1], [0.01, 0.02], schedule)
    before = step.advance._cache_size()  # type: ignore[attr-defined]
    train([2, 3], [0.03, 0.04], schedule)
    assert step.advance._cache_size() == before  # type: ignore[attr-defined]
    script = (
        "from test_batching import train, Schedule\ntrain([0, 1], [0.01, 0.02], Schedule(steps=10))"
    )
    environment = {
        **os.environ,
        "JAX_COMPILATION_CACHE_DIR": str(tmp_path),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0.1",
    }
    subprocess.run(
        [sys.executable, "-c", script],
        cwd=Path(__file__).parent,
        env=environment,
        check=True,
        timeout=120,
    )
    kept = {p.name.split("-")[0] for p in tmp_path.iterdir() if "cache" in p.name}
    assert any("advance" in name for name in kept), sorted(kept)
