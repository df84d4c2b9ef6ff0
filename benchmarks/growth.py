"""How the time and the memory of a training step grow with N, H, K and the batch of runs.

    python benchmarks/growth.py --out docs/results

One run of tanh+ln with diagonal beliefs and three heads unless said otherwise. Time is the
lowest of a few calls; memory is what the compiled steps take, arguments included. For
minibatches that are read from a memory map, it is what the process holds in arrays of its
own while training. An exponent is the slope of log time over log size in the upper half of
the sizes. Full batches that would take more than half of the free memory are compiled but
not run.
"""

from __future__ import annotations

import argparse
import tempfile
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from problem import INPUTS, TASKS, models, stepper, windows
from timing import in_turns, machine

from scrollmt import Event, Gaussian, Ordinal
from scrollmt.fit import Schedule, fit
from scrollmt.objective import Data, composed_objective
from scrollmt.streams import ArrayStream

STEPS = 3
Point = tuple[int, float, float]


def free_bytes() -> float:
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable"):
            return 1024.0 * float(line.split()[1])
    return np.inf


def measured(size: int, batch: Any, train: Data, valid: Data) -> Point:
    run = stepper(batch, train, valid, STEPS)
    memory = float(run.memory())
    if memory > 0.5 * free_bytes():
        return size, float("nan"), memory
    seconds = in_turns({"step": run}, 4, {"step": STEPS})["step"]
    return size, float(seconds.min()), memory


def over_windows(sizes: list[int]) -> Iterator[Point]:
    for n in sizes:
        yield measured(n, models(1, "tanh+ln", "diag"), windows(1, n, 0), windows(1, 1000, 1))


def over_features(sizes: list[int], belief: str) -> Iterator[Point]:
    for width in sizes:
        batch = models(1, "tanh+ln", belief, width)
        yield measured(width, batch, windows(1, 4000, 0), windows(1, 1000, 1))


def over_tasks(sizes: list[int]) -> Iterator[Point]:
    kinds = {"state": Gaussian(), "event": Event(), "regime": Ordinal(4)}
    for count in sizes:
        names = {f"task{k:02d}": [*kinds][k % 3] for k in range(count)}

        def many(data: Data, names: dict[str, str] = names) -> Data:
            return eqx.tree_at(
                lambda d: (d.y, d.weight),
                data,
                tuple(
                    {k: part[kind] for k, kind in names.items()} for part in (data.y, data.weight)
                ),
            )

        batch = models(1, "tanh+ln", "diag", tasks={k: kinds[kind] for k, kind in names.items()})
        yield measured(count, batch, many(windows(1, 4000, 0)), many(windows(1, 1000, 1)))


def over_runs(sizes: list[int]) -> Iterator[Point]:
    for runs in sizes:
        batch = models(runs, "tanh+ln", "diag")
        yield measured(runs, batch, windows(runs, 1000, 0), windows(runs, 300, 1))


def over_streamed_windows(sizes: list[int]) -> Iterator[Point]:
    """Minibatches of 256 from memory maps on disk."""
    schedule = Schedule(steps=450, batch_size=256, eval_every=15)
    for n in sizes:
        with tempfile.TemporaryDirectory() as folder:
            x = np.lib.format.open_memmap(f"{folder}/x.npy", "w+", np.float32, (n, INPUTS))
            y = {
                name: np.lib.format.open_memmap(f"{folder}/{name}.npy", "w+", kind, (n,))
                for name, kind in (("state", np.float32), ("event", np.int32), ("regime", np.int32))
            }
            one = np.lib.format.open_memmap(f"{folder}/w.npy", "w+", np.float32, (n,))
            rng = np.random.default_rng(0)
            for i in range(0, n, 1_000_000):
                part = rng.normal(size=(min(n, i + 1_000_000) - i, INPUTS))
                x[i : i + 1_000_000] = part
                y["state"][i : i + 1_000_000] = part[:, 0]
                y["event"][i : i + 1_000_000] = part[:, 1] > 0.0
                y["regime"][i : i + 1_000_000] = np.digitize(part[:, 2], [-0.7, 0.0, 0.7])
                one[i : i + 1_000_000] = 1.0
            stream = ArrayStream(Data(x, y, {name: one for name in TASKS}))
            valid = jax.tree.map(lambda a: a[0], windows(1, 1000, 1))

            def train(stream: ArrayStream = stream, valid: Data = valid) -> Any:
                return fit(
                    models(1, "tanh+ln", "diag"),
                    stream,
                    valid,
                    objective=composed_objective,
                    hyper={"learning_rate": jnp.full(1, 1e-3), "backbone_l2": jnp.full(1, 0.01)},
                    schedule=schedule,
                    keys=jax.random.split(jax.random.key(0), 1),
                ).best_score

            seconds = in_turns({"fit": train}, 2, {"fit": schedule.steps})["fit"]
            tracemalloc.start()
            train()
            held = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
            yield n, float(seconds.min()), float(held)


def exponent(points: list[Point], column: int) -> float:
    kept = np.array([p for p in points if np.isfinite(p[1])], float)
    kept = kept[-max(2, len(kept) // 2 + 1) :]
    return float(np.polyfit(np.log(kept[:, 0]), np.log(kept[:, column]), 1)[0])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--smoke", action="store_true", help="two small sizes of everything")
    parser.add_argument("--out", type=Path, help="folder for the table and the plot")
    options = parser.parse_args()
    tens = [10**k for k in range(3, 8)]
    series: dict[str, Any] = {
        "windows N, full batch": over_windows(tens[:2] if options.smoke else tens),
        "windows N, streamed": over_streamed_windows(tens[:2] if options.smoke else tens),
        "features H, diag": over_features(
            [50, 100, 200, 400, 800][: 2 if options.smoke else 5], "diag"
        ),
        "features H, full": over_features(
            [50, 100, 200, 400, 800][: 2 if options.smoke else 5], "full"
        ),
        "tasks K": over_tasks([1, 2, 4, 8, 16, 32][: 2 if options.smoke else 6]),
        "runs in a batch": over_runs([1, 2, 4, 8, 16, 32, 64][: 2 if options.smoke else 7]),
    }
    lines = ["| what grows | size | ms a step | MiB |", "|---|---:|---:|---:|"]
    print(machine(), *lines, sep="\n", flush=True)
    points: dict[str, list[Point]] = {}
    slopes = []
    for name, values in series.items():
        points[name] = []
        for size, seconds, memory in values:
            points[name].append((size, seconds, memory))
            time = "not run" if np.isnan(seconds) else f"{1e3 * seconds:.3g}"
            lines.append(f"| {name} | {size:,d} | {time} | {memory / 2**20:.3g} |")
            print(lines[-1], flush=True)
            jax.clear_caches()
        slopes.append(
            f"| {name} | {exponent(points[name], 1):.2f} | {exponent(points[name], 2):.2f} |"
        )
    table = ["| what grows | exponent of time | exponent of memory |", "|---|---:|---:|", *slopes]
    print("", *table, sep="\n")
    if options.out is not None:
        options.out.mkdir(parents=True, exist_ok=True)
        (options.out / "growth.md").write_text("\n".join([*lines, "", *table, ""]))
        draw(points, options.out / "growth.svg")


def draw(points: dict[str, list[Point]], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 2, figsize=(10, 4))
    for name, values in points.items():
        sizes, seconds, memory = np.array(values, float).T
        axes[0].loglog(sizes, 1e3 * seconds, "o-", label=name)
        axes[1].loglog(sizes, memory / 2**20, "o-", label=name)
    for axis, label in zip(axes, ("ms a step", "MiB"), strict=True):
        axis.set(xlabel="size", ylabel=label)
        axis.grid(alpha=0.3)
    axes[0].legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})


if __name__ == "__main__":
    main()
