"""The evidence behind docs/results/pm25.md.

    python benchmarks/pm25.py counts     windows, parts, event rate and bands of both gap rules
    python benchmarks/pm25.py paper      ten seeds of three beliefs by the paper's protocol
    python benchmarks/pm25.py checks     the same with the validation part scored less often
    python benchmarks/pm25.py default    the preset held-out and what a user would pick instead
    python benchmarks/pm25.py origins    five rolling origins against the weighted sum
    python benchmarks/pm25.py leads      OU at five leads as one joint fit
    python benchmarks/pm25.py report     docs/results/pm25.md from the records of the above

The table is looked for in the folder named by SCROLLMT_DATA, else in the user's cache, else it is
downloaded. Records are JSON under docs/results/pm25/. `default` needs the extra `baselines`. All
but `origins` take a few minutes on two cores. Nothing is chosen on test windows.
"""

from __future__ import annotations

import json
import math
import platform
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import typer

from scrollmt import Backtest, Forecaster, Windowing, at_lead, backtest, scores
from scrollmt._data.holdout import Ready
from scrollmt.backtests import stacked
from scrollmt.corpora import ou, pm25
from scrollmt.fit import fit, stack
from scrollmt.heads import Gaussian
from scrollmt.laws import GaussianLaw, Law
from scrollmt.model import Model, build
from scrollmt.objective import Data, backbone_penalty
from scrollmt.presets import PAPER, Preset
from scrollmt.splits import Split
from scrollmt.windows import Windows

SEEDS = range(5, 15)
EVERY = (1, 5, 8, 10, 20, 25, 50)
LEADS = (0.1, 0.25, 0.5, 1.0, 2.0)
HERE = Path(__file__).resolve().parent
RECORDS = HERE.parent / "docs" / "results" / "pm25"
Out = Annotated[Path, typer.Option(help="Folder of the records.")]
app = typer.Typer(pretty_exceptions_enable=False)


def write(out: Path, name: str, content: dict[str, Any]) -> None:
    environment = {
        "device": str(jax.devices()[0].device_kind),
        "jax": jax.__version__,
        "python": platform.python_version(),
    }
    out.mkdir(parents=True, exist_ok=True)
    text = json.dumps({"environment": environment, **content})
    (out / f"{name}.json").write_text(text + "\n")


def records(table: pd.DataFrame) -> list[dict[str, Any]]:
    """A tidy table without its times, as JSON knows it."""
    return table.drop(columns="tested_from", errors="ignore").to_dict(orient="records")


def show(title: str, table: pd.DataFrame) -> None:
    print(f"\n{title}\n{table.round(4).to_string()}", flush=True)


@app.command()
def counts(out: Out = RECORDS) -> None:
    """The two readings of the gap rule, and the parts of the headline split."""
    found = {}
    for gaps in ("paper", "strict"):
        windows = pm25.load(gaps=gaps)  # type: ignore[arg-type]
        found[gaps] = {
            "windows": len(windows),
            "inputs": windows.X.shape[1],
            "parts": [len(part) for part in windows.split()],
            "event_rate": float(windows.Y["event"].mean()),
            "bands": np.bincount(windows.Y["regime"].astype(int)).tolist(),
            "dropped": len(windows.dropped),
            "filled": windows.filled,
        }
    print(json.dumps(found, indent=1))
    write(out, "counts", {"counts": found})


@app.command()
def paper(out: Out = RECORDS) -> None:
    """Ten seeds of each belief on the headline split, backbone chosen by validation."""
    write(out, "paper", paper_runs(PAPER))


@app.command()
def checks(out: Out = RECORDS) -> None:
    """The same runs with the validation part scored less often: the paper does not say how often.

    Patience stays near 300 steps.
    """
    found = []
    for every in EVERY:
        print(f"\nscored every {every} steps", flush=True)
        schedule = replace(PAPER.schedule, eval_every=every, patience=300 // every)
        runs = paper_runs(replace(PAPER, schedule=schedule))
        found += [{"every": every, **record} for record in runs["records"]]
        write(out, "checks", {"records": found})


def paper_runs(preset: Preset) -> dict[str, Any]:
    windows = pm25.load()
    split = windows.chronological_split()
    tables, chosen = [], []
    for belief in ("none", "diag", "full"):
        began = time.perf_counter()
        model = Forecaster.for_windows(windows, preset=preset, belief=belief, verbose=False)
        runs = backtest(windows, model, [split], seeds=SEEDS)
        seconds = time.perf_counter() - began
        tables.append(runs.table.assign(arm=belief))
        for (_, seed), one in runs.models.items():
            pick = one.candidates_.query("chosen").iloc[0]
            chosen.append(
                {
                    "arm": belief,
                    "seed": seed,
                    "backbone": pick["candidate"],
                    "best_step": int(pick["best_step"]),
                    "steps": int(pick["steps"]),
                }
            )
        show(f"{belief}, {seconds:.0f} s for ten seeds", runs.by_origin())
    return {"records": records(pd.concat(tables)), "chosen": chosen}


@app.command()
def default(out: Out = RECORDS) -> None:
    """The preset held-out, ten seeds, beside the baselines on the same windows."""
    sys.path.insert(0, str(HERE))
    from pm25_baselines import BASELINES

    windows = pm25.load()
    split = windows.chronological_split()
    test = windows.split(split).test
    began = time.perf_counter()
    model = Forecaster.for_windows(windows, preset="held-out", verbose=False)
    runs = backtest(windows, model, [split], seeds=SEEDS)
    seconds = time.perf_counter() - began
    show(f"held-out, {seconds:.0f} s for ten seeds", runs.by_origin())
    laws = {seed: one.predict(test) for (_, seed), one in runs.models.items()}
    by_window = {
        task: np.mean([scores.nll(law[task], test.Y[task]) for law in laws.values()], axis=0)
        for task in test.tasks
    }
    baselines, differences = [], {}
    for name, make in BASELINES.items():
        for task in test.tasks:
            law = make(windows.split(split), task)
            found = scores.summarise(law, test.Y[task])
            baselines += [
                {"model": name, "task": task, "metric": metric, "value": value}
                for metric, value in found.items()
            ]
            lost = by_window[task] - scores.nll(law, test.Y[task])
            differences[f"{name}/{task}"] = lost.tolist()
            print(f"{name} {task} {found['nll']:.4f}", flush=True)
    content = {"seconds": seconds, "baselines": baselines, "differences": differences}
    write(out, "default", {"records": records(runs.table), **content})


def weighted_sum(
    model: Model, data: Data, hyper: dict[str, Any], data_scale: float | jax.Array
) -> jax.Array:
    """MSE + L1 + L2 with both weights one: means over windows, plus the backbone penalty."""
    total = hyper["backbone_l2"] * backbone_penalty(model)
    for name, (mean, var) in model.project(data.x).items():
        total = total + _mean_loss(model, data, name, mean, var)
    return total


def weighted_sum_nll(model: Model, data: Data) -> jax.Array:
    """Validation NLL added over tasks, the state with the sd of its validation errors."""
    total = jnp.zeros(())
    for name, (mean, var) in model.project(data.x).items():
        loss = _mean_loss(model, data, name, mean, var)
        value = isinstance(model.tasks[name].head, Gaussian)
        total = total + (0.5 * jnp.log(2 * math.pi * math.e * loss) if value else loss)
    return total


def _mean_loss(model: Model, data: Data, name: str, mean: jax.Array, var: jax.Array) -> jax.Array:
    head, weight = model.tasks[name].head, data.weight[name]
    if isinstance(head, Gaussian):
        losses = (data.y[name] - mean) ** 2
    else:
        losses = -head.log_predictive(data.y[name], mean, var)
    return jnp.sum(weight * losses) / jnp.sum(weight)


def weighted_sum_backtest(windows: Windows, splits: list[Split]) -> Backtest:
    """The comparator at every origin and seed, its backbone chosen by validation."""
    parts = [windows.split(split) for split in splits]
    template = Forecaster.for_windows(windows, preset="paper", belief="none")
    ready = [
        template.set_params(validation=part.valid)._ready(part.train, None, None) for part in parts
    ]
    train, valid = (
        stacked([getattr(one, which) for one in ready], len(SEEDS)) for which in ("train", "valid")
    )
    runs = [(origin, seed) for origin in range(len(splits)) for seed in SEEDS]
    best: dict[tuple[int, int], tuple[float, Model]] = {}
    for number, candidate in enumerate(PAPER.candidates):
        starts = []
        for _, seed in runs:
            net_key, task_key = jax.random.split(jax.random.fold_in(jax.random.key(seed), number))
            net = candidate.architecture.build(windows.X.shape[1], net_key)
            starts.append(
                build(
                    net,
                    windows.heads,
                    features=candidate.architecture.widths[-1],
                    belief="none",
                    key=task_key,
                    cov_floor=PAPER.cov_floor,
                )
            )
        fits = fit(
            stack(starts),
            train,
            valid,
            objective=weighted_sum,
            score=weighted_sum_nll,
            hyper={
                name: jnp.full(len(runs), getattr(candidate, name))
                for name in ("learning_rate", "backbone_l2")
            },
            schedule=PAPER.schedule,
            keys=jax.random.split(jax.random.key(0), len(runs)),
        )
        print(f"weighted sum {candidate.name}: steps to {fits.steps.max()}", flush=True)
        for number_of_run, run in enumerate(runs):
            score = float(fits.best_score[number_of_run])
            if run not in best or score < best[run][0]:
                best[run] = score, fits.model(number_of_run)
    rows = []
    for (origin, seed), (_, model) in best.items():
        laws = _laws_with_validation_sd(model, ready[origin], parts[origin].test)
        for task, law in laws.items():
            found = scores.summarise(law, parts[origin].test.Y[task])
            key = {"origin": origin, "seed": seed, "task": task}
            rows += [{**key, "metric": metric, "value": value} for metric, value in found.items()]
    return Backtest(pd.DataFrame(rows), splits, {})


def _laws_with_validation_sd(model: Model, ready: Ready, test: Windows) -> dict[str, Law]:
    def latent(x: np.ndarray) -> dict[str, tuple[np.ndarray, np.ndarray]]:
        found = model.project(jnp.asarray(ready.scales.inputs(x), jnp.float32))
        return {name: (np.asarray(m), np.asarray(v)) for name, (m, v) in found.items()}

    on_valid, on_test = latent(ready.judged.x), latent(test.X)
    laws: dict[str, Law] = {}
    for name, (mean, var) in on_test.items():
        head = model.tasks[name].head
        if isinstance(head, Gaussian):
            offset = ready.scales.offset[name]
            errors = ready.judged.labels[name] - offset - on_valid[name][0]
            head = eqx.tree_at(
                lambda h: h.log_sigma_obs, head, jnp.log(np.sqrt(np.mean(errors**2)))
            )
            laws[name] = head.law(mean, var).affine(offset, 1.0)
        else:
            laws[name] = head.law(mean, var)
    return laws


@app.command()
def origins(out: Out = RECORDS) -> None:
    """Five rolling origins, ten seeds each: diag by the paper's protocol, and the weighted sum."""
    windows = pm25.load()
    splits = windows.rolling_origins(5)
    model = Forecaster.for_windows(windows, preset="paper", belief="diag", verbose=False)
    began = time.perf_counter()
    diag = backtest(windows, model, splits, seeds=SEEDS)
    print(f"diag: {time.perf_counter() - began:.0f} s", flush=True)
    began = time.perf_counter()
    summed = weighted_sum_backtest(windows, splits)
    print(f"weighted sum: {time.perf_counter() - began:.0f} s", flush=True)
    for name, one in (("diag", diag), ("weighted sum", summed)):
        show(name, one.summary())
    show("diag minus weighted sum", diag.minus(summed))
    tables = [diag.table.assign(arm="diag"), summed.table.assign(arm="weighted sum")]
    write(
        out,
        "origins",
        {
            "records": records(pd.concat(tables)),
            "tested_from": [str(windows.t[split.test[0]].date()) for split in splits],
        },
    )


@app.command()
def leads(out: Out = RECORDS, n: int = 6500) -> None:
    """OU at five leads: one joint fit of the preset held-out, its sd against the analytic one."""
    steps = [round(lead / ou.STEP) for lead in LEADS]
    paths = ou.paths(n, lead=max(LEADS))
    windowing = Windowing(history=1, leads=steps, stride=max(steps) + 1)
    windows = windowing.cut({"x": paths.ravel()}, {"state": at_lead("x")})
    test = windows.split().test
    rows = []
    for seed in range(3):
        parts = windows.split()
        model = Forecaster.for_windows(
            windows, preset="held-out", seed=seed, validation=parts.valid, verbose=False
        )
        began = time.perf_counter()
        model.fit(parts.train)
        seconds = time.perf_counter() - began
        for lead, (task, law) in zip(LEADS, model.predict(test).items(), strict=True):
            assert isinstance(law, GaussianLaw)
            true = math.sqrt(-math.expm1(-2 * lead))
            sd = float(np.sqrt(np.mean(law.var)))
            truth = GaussianLaw(math.exp(-lead) * test.X[:, 0], np.full(len(test), true))
            empirical = parts.train.values[task] - math.exp(-lead) * parts.train.X[:, 0]
            rows.append(
                {
                    "seed": seed,
                    "lead": lead,
                    "sd": sd,
                    "analytic": true,
                    "error_percent": 100 * (sd / true - 1),
                    # what the training windows themselves say, given the true mean
                    "training_error_percent": 100 * (float(np.std(empirical)) / true - 1),
                    "nll": float(scores.nll(law, test.Y[task]).mean()),
                    "oracle": float(scores.nll(truth, test.Y[task]).mean()),
                    "seconds": seconds,
                }
            )
    show(f"OU, {n} windows", pd.DataFrame(rows))
    write(out, "leads", {"records": rows, "windows": n})


@app.command()
def report(out: Out = RECORDS) -> None:
    """Write the page from the records."""
    sys.path.insert(0, str(HERE))
    from pm25_report import page

    target = out.parent / "pm25.md"
    target.write_text(page(out, HERE / "paper_pm25.csv"))
    print(f"wrote {target}")


if __name__ == "__main__":
    app()
