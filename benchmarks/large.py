"""Large data with a known law: seconds, peak memory and scores beside boosted trees.

    python benchmarks/large.py --case three                       # 200,000 rows, three tasks
    python benchmarks/large.py --case one                         # 1,000,000 rows, one task
    python benchmarks/large.py --peers-python ../peers/bin/python # LightGBM and CatBoost from there

Twenty normal inputs, of which 14 matter. A value has a nonlinear mean and an sd that depends on the
inputs, an event and three bands are thresholds of noisy nonlinear lines. The excess is the mean
NLL on 100,000 new rows less that of the law itself. Every arm runs in a process of its own, whose
peak memory includes the data. CPU seconds are those of all cores; on a machine that does other
work they say more than the seconds on the clock. Trees forecast a value by two models, of the mean
and of the log squared residual; CatBoost has a Gaussian loss of its own.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import log_ndtr, ndtr
from scipy.stats import norm

COLUMNS = 20
EDGES = np.array([-0.7, 0.7])
BAND_SD = 0.5
TEST_ROWS = 100_000
CASES = {"three": (200_000, ("value", "event", "band")), "one": (1_000_000, ("value",))}
Labels = dict[str, np.ndarray]
# Forecasts by task: mean and sd of a value, or probabilities of classes.
Forecasts = dict[str, tuple[np.ndarray, np.ndarray] | np.ndarray]


def lines(x: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Mean and sd of the value, and the lines of event and band."""
    mean = np.sin(2 * x[:, 0]) + 0.5 * x[:, 1] * x[:, 2] + np.abs(x[:, 3]) - 0.3 * x[:, 4]
    sd = 0.2 + 0.4 * ndtr(x[:, 5] + x[:, 6] * x[:, 0])
    event = 1.5 * np.tanh(x[:, 7] * x[:, 8]) + np.cos(2 * x[:, 9]) + 0.5 * x[:, 10]
    band = x[:, 11] * np.sin(x[:, 12]) + 0.5 * x[:, 13] ** 2 - 0.5 + 0.3 * mean
    return mean, sd, event, band


def draw(rows: int, seed: int) -> tuple[np.ndarray, Labels]:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(rows, COLUMNS))
    mean, sd, event, band = lines(x)
    return x, {
        "value": mean + sd * rng.normal(size=rows),
        "event": (rng.random(rows) < ndtr(event)).astype(int),
        "band": np.digitize(band + BAND_SD * rng.normal(size=rows), EDGES),
    }


def law_nll(x: np.ndarray, y: Labels) -> dict[str, float]:
    """The mean NLL of the law that the labels were drawn from."""
    mean, sd, event, band = lines(x)
    upper = ndtr((EDGES - band[:, None]) / BAND_SD)
    ends = np.column_stack([np.zeros(len(x)), upper, np.ones(len(x))])
    mass = np.diff(ends, axis=1)[np.arange(len(x)), y["band"]]
    sign = np.where(y["event"] == 1, 1.0, -1.0)
    return {
        "value": float(-norm.logpdf(y["value"], mean, sd).mean()),
        "event": float(-log_ndtr(sign * event).mean()),
        "band": float(-np.log(mass).mean()),
    }


def scored(said: Forecasts, y: Labels) -> dict[str, float]:
    found = {}
    for task, one in said.items():
        if isinstance(one, tuple):
            found[task] = float(-norm.logpdf(y[task], *one).mean())
        else:
            found[task] = float(-np.log(one[np.arange(len(one)), y[task]]).mean())
    return found


def scrollmt_arm(x: Any, y: Labels, test: Any, labels: Labels, **preset: Any) -> Any:
    """Scores of a `Forecaster`; x is inputs, or the path of files that hold the labels too."""
    from dataclasses import replace

    from scrollmt import Event, Forecaster, Gaussian, Ordinal
    from scrollmt.presets import DEFAULT

    heads = {"value": Gaussian(), "event": Event(), "band": Ordinal(3)}
    tasks = {name: heads[name] for name in labels}
    model = Forecaster(tasks, preset=replace(DEFAULT, **preset), verbose=False)
    model.fit(x, y or None)
    return lambda: {n: float(v) for n, v in model.evaluate(test, labels)["nll"].items()}


def in_memory(x: np.ndarray, y: Labels, test: np.ndarray, labels: Labels) -> Any:
    return scrollmt_arm(x, y, test, labels)


def by_folds(x: np.ndarray, y: Labels, test: np.ndarray, labels: Labels) -> Any:
    """Without the rule for large data."""
    return scrollmt_arm(x, y, test, labels, large=None)


def from_files(path: Path, y: Labels, test: np.ndarray, labels: Labels) -> Any:
    """Standardised rows in a temporary file, none of them all at once in memory."""
    from scrollmt.presets import Large

    return scrollmt_arm(path, y, test, labels, large=Large(memory=0))


def two_models(
    x: np.ndarray, y: Labels, test: np.ndarray, value: Callable[[], Any], classes: Callable[[], Any]
) -> Forecasts:
    """Mean and log squared residual of a value, on halves of the rows; probabilities of classes."""
    said: Forecasts = {}
    half = len(x) // 2
    for task, labels in y.items():
        if task == "value":
            first = value().fit(x[:half], labels[:half])
            residual = labels[half:] - first.predict(x[half:])
            second = value().fit(x[half:], np.log(residual**2 + 1e-12))
            # The mean of the log of a chi-squared variable with one degree of freedom.
            sd = np.exp(0.5 * (second.predict(test) + 1.2704))
            said[task] = value().fit(x, labels).predict(test), sd
        else:
            said[task] = np.asarray(classes().fit(x, labels).predict_proba(test))
    return said


def histogram(x: np.ndarray, y: Labels, test: np.ndarray, labels: Labels) -> Any:
    from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor

    given: dict[str, Any] = {"max_iter": 500, "early_stopping": True, "random_state": 0}
    said = two_models(
        x,
        y,
        test,
        lambda: HistGradientBoostingRegressor(**given),
        lambda: HistGradientBoostingClassifier(**given),
    )
    return lambda: scored(said, labels)


def lightgbm(x: np.ndarray, y: Labels, test: np.ndarray, labels: Labels) -> Any:
    from lightgbm import LGBMClassifier, LGBMRegressor

    given: dict[str, Any] = {"n_estimators": 500, "random_state": 0, "verbose": -1}
    said = two_models(x, y, test, lambda: LGBMRegressor(**given), lambda: LGBMClassifier(**given))
    return lambda: scored(said, labels)


def catboost(x: np.ndarray, y: Labels, test: np.ndarray, labels: Labels) -> Any:
    from catboost import CatBoostClassifier, CatBoostRegressor

    given: dict[str, Any] = {"iterations": 1000, "random_seed": 0, "verbose": False}
    given["allow_writing_files"] = False
    said: Forecasts = {}
    for task, own in y.items():
        if task == "value":
            model = CatBoostRegressor(loss_function="RMSEWithUncertainty", **given).fit(x, own)
            mean, var = model.predict(test).T
            said[task] = mean, np.sqrt(var)
        else:
            said[task] = CatBoostClassifier(**given).fit(x, own).predict_proba(test)
    return lambda: scored(said, labels)


ARMS: dict[str, Callable[..., Any]] = {
    "scrollmt": in_memory,
    "scrollmt, from files": from_files,
    "scrollmt, by folds": by_folds,
    "histogram boosting": histogram,
    "LightGBM": lightgbm,
    "CatBoost": catboost,
}
PEERS = ("LightGBM", "CatBoost")


def written(folder: Path, rows: int, tasks: tuple[str, ...]) -> None:
    """The training rows as ten Parquet files."""
    import pandas as pd

    x, y = draw(rows, 0)
    table = pd.DataFrame(x, columns=[f"x{i}" for i in range(COLUMNS)])
    table = table.assign(**{name: y[name] for name in tasks})
    for number, part in enumerate(np.array_split(np.arange(rows), 10)):
        table.iloc[part].to_parquet(folder / f"{number}.parquet", index=False)


def one(arm: str, rows: int, tasks: tuple[str, ...], folder: str | None) -> dict[str, Any]:
    """One arm in this process."""
    test, known = draw(TEST_ROWS, 1)
    labels = {name: known[name] for name in tasks}
    x, y = (None, {}) if folder else draw(rows, 0)
    y = {name: y[name] for name in tasks} if y else {}
    if folder:
        import pandas as pd

        test = pd.DataFrame(test, columns=[f"x{i}" for i in range(COLUMNS)])
    began, used = time.perf_counter(), time.process_time()
    score = ARMS[arm](Path(folder) if folder else x, y, test, labels)
    seconds, cpu = time.perf_counter() - began, time.process_time() - used
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    truth = law_nll(np.asarray(test), known)
    excess = {name: nll - truth[name] for name, nll in score().items()}
    return {"seconds": seconds, "cpu": cpu, "mib": peak, "excess": excess}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--case", choices=CASES, default="three")
    parser.add_argument("--rows", type=int, help="another number of rows")
    parser.add_argument("--arms", nargs="+", choices=ARMS, default=list(ARMS))
    parser.add_argument("--peers-python", default=sys.executable)
    parser.add_argument("--one", choices=ARMS, help=argparse.SUPPRESS)
    parser.add_argument("--folder", help=argparse.SUPPRESS)
    options = parser.parse_args()
    rows, tasks = CASES[options.case]
    rows = options.rows or rows
    if options.one:
        print(json.dumps(one(options.one, rows, tasks, options.folder)))
        return
    print(f"{rows:,d} rows, {COLUMNS} inputs, tasks {', '.join(tasks)}")
    print(f"| arm | seconds | CPU seconds | MiB | {' | '.join(tasks)} | summed excess |")
    print(f"|---|---:|---:|---:|{'---:|' * (len(tasks) + 1)}")
    with tempfile.TemporaryDirectory() as folder:
        if "scrollmt, from files" in options.arms:
            written(Path(folder), rows, tasks)
        for arm in options.arms:
            python = options.peers_python if arm in PEERS else sys.executable
            command = [python, __file__, "--one", arm, "--case", options.case, "--rows", str(rows)]
            if arm == "scrollmt, from files":
                command += ["--folder", folder]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                print(f"| {arm} | not run: {done.stderr.strip().splitlines()[-1]} |", flush=True)
                continue
            found = json.loads(done.stdout.splitlines()[-1])
            excess = [found["excess"][task] for task in tasks]
            cells = [f"{found[key]:.0f}" for key in ("seconds", "cpu", "mib")]
            cells += [f"{value:.4f}" for value in (*excess, sum(excess))]
            print(f"| {arm} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
