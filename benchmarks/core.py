"""The evidence behind docs/results/core.md.

    python benchmarks/core.py paper    ten seeds, three beliefs, four backbones, two corpora
    python benchmarks/core.py redrawn  a few of those cells on other draws of the corpora
    python benchmarks/core.py default  the preset held-out on the same ten splits
    python benchmarks/core.py cost     wall-clock of held-out against the paper preset's sweep
    python benchmarks/core.py redraws  the oracle on other draws of each corpus
    python benchmarks/core.py report   docs/results/core.md from the records of the above

Records are JSON under docs/results/core/. The first command is hours of work on two cores and
minutes on a GPU; it runs wherever JAX runs. Runs are chosen by their validation windows alone.
"""

from __future__ import annotations

import json
import platform
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import typer

from scrollmt import Event, Forecaster, Gaussian, GaussianLaw, Model, Ordinal, scores
from scrollmt._data.reading import read_rows
from scrollmt._data.scaling import Scales
from scrollmt._fitting.selection import train
from scrollmt.backbone import PAPER_BACKBONES
from scrollmt.corpora import lorenz63, ou
from scrollmt.laws import Law
from scrollmt.presets import PAPER
from scrollmt.splits import random_split

CORPORA = {"ou": ou, "lorenz63": lorenz63}
TASKS = {"state": Gaussian(), "event": Event(), "regime": Ordinal(4)}
SEEDS = range(10)
HERE = Path(__file__).resolve().parent
RECORDS = HERE.parent / "docs" / "results" / "core"
Out = Annotated[Path, typer.Option(help="Folder of the records.")]
app = typer.Typer(pretty_exceptions_enable=False)


def part(corpus: Any, rows: np.ndarray) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    return corpus.X[rows], {name: y[rows] for name, y in corpus.Y.items()}


def laws_of(model: Model, scales: Scales, x: np.ndarray) -> dict[str, Law]:
    laws = {}
    for name, (mean, var) in model.project(jnp.asarray(scales.inputs(x), jnp.float32)).items():
        law = model.tasks[name].head.law(np.asarray(mean), np.asarray(var))
        if isinstance(law, GaussianLaw):
            law = law.affine(scales.offset[name], scales.scale[name])
        laws[name] = law
    return laws


def metrics(laws: dict[str, Law], y: dict[str, Any]) -> dict[str, float]:
    """Test metrics through the same scores that users get."""
    out = {f"{name}_nll": scores.summarise(laws[name], y[name])["nll"] for name in laws}
    out["coverage_error"] = scores.coverage_error(laws["state"], y["state"])
    out["event_accuracy"] = 100.0 * scores.summarise(laws["event"], y["event"])["accuracy"]
    return out


def environment() -> dict[str, str]:
    return {
        "device": str(jax.devices()[0].device_kind),
        "jax": jax.__version__,
        "python": platform.python_version(),
    }


def write(out: Path, name: str, content: Any) -> None:
    out.mkdir(parents=True, exist_ok=True)
    (out / f"{name}.json").write_text(json.dumps(content, indent=1) + "\n")


ALL_CELLS = [(b, net) for b in ("none", "diag", "full") for net in PAPER_BACKBONES]


def paper_runs(name: str, corpus: Any, cells: list[tuple[str, str]]) -> Iterator[dict[str, Any]]:
    """Ten seeds of each belief and backbone by the paper's protocol, batched over seeds."""
    splits = [random_split(len(corpus), seed) for seed in SEEDS]
    scales, trains, valids = [], [], []
    for split in splits:
        rows = read_rows(*part(corpus, split.train), None, TASKS)
        scale = Scales.of(rows, TASKS, scale_targets=PAPER.scale_targets)
        scales.append(scale)
        trains.append(scale.data(rows, TASKS))
        valids.append(scale.data(read_rows(*part(corpus, split.valid), None, TASKS), TASKS))
    train_data, valid_data = (
        jax.tree.map(lambda *a: jnp.stack(a), *parts) for parts in (trains, valids)
    )
    for belief, backbone in cells:
        began = time.perf_counter()
        chosen = train(
            PAPER.with_backbone(backbone),
            TASKS,
            belief=belief,
            train=train_data,
            valid=valid_data,
            keys=[jax.random.key(seed) for seed in SEEDS],
        )
        seconds = time.perf_counter() - began
        records = []
        for seed, one in zip(SEEDS, chosen, strict=True):
            x, y = part(corpus, splits[seed].test)
            records.append(
                {
                    "corpus": name,
                    "corpus_seed": corpus.seed,
                    "belief": belief,
                    "backbone": backbone,
                    "seed": seed,
                    "validation_nll": float(one.table["validation_nll"].iloc[0]),
                    "steps": int(one.table["steps"].iloc[0]),
                    "stop_reason": one.stop_reason,
                    **metrics(laws_of(one.members[0], scales[seed], x), y),
                }
            )
        mean = pd.DataFrame(records).mean(numeric_only=True)
        print(
            f"{name} draw {corpus.seed} {belief} {backbone} {seconds:.1f} s  "
            + "  ".join(f"{t} {mean[f'{t}_nll']:.4f}" for t in TASKS),
            flush=True,
        )
        yield from records


@app.command()
def paper(out: Out = RECORDS) -> None:
    """Ten seeds of every belief and backbone on the two frozen corpora."""
    records: list[dict[str, Any]] = []
    for name, module in CORPORA.items():
        for record in paper_runs(name, module.draw(), ALL_CELLS):
            records.append(record)
            write(out, "paper", {"environment": environment(), "records": records})


@app.command()
def redrawn(out: Out = RECORDS, draws: int = 2) -> None:
    """The cells nearest to the edge of their tolerance, on other draws of the corpora."""
    lorenz = [("full", "tanh"), ("full", "tanh+ln"), ("diag", "tanh+ln"), ("none", "tanh")]
    cells = {"lorenz63": lorenz, "ou": [("diag", net) for net in PAPER_BACKBONES]}
    records: list[dict[str, Any]] = []
    for seed in range(1, draws + 1):
        for name, wanted in cells.items():
            for record in paper_runs(name, CORPORA[name].draw(seed=seed), wanted):
                records.append(record)
                write(out, "redrawn", {"environment": environment(), "records": records})


@app.command()
def default(out: Out = RECORDS) -> None:
    """The preset held-out on the same splits, beside the oracle on the same test windows."""
    records = []
    for name, module in CORPORA.items():
        corpus = module.draw()
        oracle = corpus.oracle(corpus.X, corpus.Y)
        for seed in SEEDS:
            split = random_split(len(corpus), seed)
            began = time.perf_counter()
            model = Forecaster(
                TASKS, preset="held-out", validation=part(corpus, split.valid), seed=seed
            )
            model.fit(*part(corpus, split.train))
            seconds = time.perf_counter() - began
            x, y = part(corpus, split.test)
            row = {
                "corpus": name,
                "seed": seed,
                "seconds": seconds,
                "validation_nll": model.validation_nll_,
                "backbone_l2": float(model.candidates_.query("chosen")["backbone_l2"].iloc[0]),
                **metrics(model.predict(x), y),
            }
            truth = oracle.take(split.test)
            row |= {f"{t}_oracle": truth.mean_nll[t] for t in TASKS}
            row |= {f"{t}_oracle_mc_error": truth.mc_error[t] for t in TASKS}
            records.append(row)
            print(
                f"{name} seed {seed} {seconds:.1f} s penalty {row['backbone_l2']:g}  excess "
                + "  ".join(f"{t} {row[f'{t}_nll'] - row[f'{t}_oracle']:.4f}" for t in TASKS)
                + f"  coverage error {row['coverage_error']:.4f}",
                flush=True,
            )
            write(out, "default", {"environment": environment(), "records": records})


@app.command()
def cost(out: Out = RECORDS, repeats: int = 2) -> None:
    """Fits of both presets alternately in this process; the first pair pays for compilation."""
    corpus = lorenz63.draw()
    records = []
    for repeat in range(repeats + 1):
        split = random_split(len(corpus), repeat)
        for preset in ("held-out", "paper"):
            model = Forecaster(TASKS, preset=preset, validation=part(corpus, split.valid))
            began = time.perf_counter()
            model.fit(*part(corpus, split.train))
            seconds = time.perf_counter() - began
            records.append({"preset": preset, "repeat": repeat, "seconds": seconds})
            print(f"{preset} repeat {repeat}: {seconds:.1f} s", flush=True)
    write(out, "cost", {"environment": environment(), "records": records})


@app.command()
def redraws(out: Out = RECORDS) -> None:
    """How much the oracle's own score moves when a corpus is drawn anew."""
    records = []
    for name, count, options in (("ou", 20, {}), ("lorenz63", 8, {"members": 400})):
        for seed in range(count + 1):
            corpus = CORPORA[name].draw(seed=seed)
            nll = corpus.oracle(corpus.X, corpus.Y, **options).mean_nll
            records.append({"corpus": name, "seed": seed, **{t: nll[t] for t in TASKS}})
            print(name, seed, {t: round(nll[t], 4) for t in TASKS}, flush=True)
    write(out, "redraws", {"environment": environment(), "records": records})


@app.command()
def report(out: Out = RECORDS) -> None:
    """Write the page from the records."""
    sys.path.insert(0, str(HERE))
    from core_report import page

    target = out.parent / "core.md"
    target.write_text(page(out, HERE / "paper_core.csv"))
    print(f"wrote {target}")


if __name__ == "__main__":
    app()
