r"""The default preset beside its peers: the evidence behind docs/results/default.md.

    python benchmarks/default.py run --sets boston,river --splits 0,1 \
        --methods default,linear --records DIR
    python benchmarks/default.py collect --records DIR
    python benchmarks/default.py write

`collect` puts records into docs/results/default/records.csv, from which `write` makes the page.

`run` goes on where it stopped. Data lie in the folder named by SCROLLMT_DATA. A method is a peer
(see scrollmt.paper.peers), the simulator's own law (`oracle`, on ou and lorenz63) or `default`,
with keywords of Forecaster as in `default:preset=quick+refit=True`. Every set and method has a
process of its own, which makes its peak memory known; the seconds of its first split hold
compilation.
"""

from __future__ import annotations

import ast
import json
import os
import resource
import subprocess
import sys
import time
import warnings
from importlib import metadata
from pathlib import Path
from typing import Annotated, Any

import default_records
import jax
import numpy as np
import typer
from default_page import page
from default_problems import PROBLEMS, SIMULATED, Fold

from scrollmt import Forecaster, scores
from scrollmt.laws import Law
from scrollmt.paper.peers import PEERS, peer
from scrollmt.paper.peers.protocol import forecast

HERE = Path(__file__).resolve().parent
RESULTS = HERE.parent / "docs" / "results"
PACKAGES = [
    "scrollmt",
    "numpy",
    "scipy",
    "scikit-learn",
    "jax",
    "torch",
    "ngboost",
    "catboost",
    "lightgbm",
    "xgboost",
    "xgboostlss",
    "treeffuser",
    "vbll",
    "laplace-torch",
    "gpytorch",
]
ORACLE = "oracle"
app = typer.Typer(pretty_exceptions_enable=False)
Names = Annotated[str, typer.Option(help="Names with commas between them.")]
Folder = Annotated[Path, typer.Option(help="Folder of the records.")]


def options_of(method: str) -> dict[str, Any]:
    """The keywords of `default:a=1+b=text`."""
    _, _, text = method.partition(":")
    pairs = [one.partition("=") for one in text.split("+") if one]
    return {name: _value(value) for name, _, value in pairs}


def _value(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text


def is_ours(method: str) -> bool:
    return method.partition(":")[0] == "default"


def check(sets: list[str], methods: list[str]) -> None:
    unknown = [name for name in sets if name not in PROBLEMS]
    if unknown:
        raise typer.BadParameter(f"there are no sets {unknown}; there are {list(PROBLEMS)}")
    known = [ORACLE, *PEERS]
    unknown = [name for name in methods if not is_ours(name) and name not in known]
    if unknown:
        raise typer.BadParameter(f"there are no methods {unknown}; use default or {known}")
    if ORACLE in methods and not set(sets) <= set(SIMULATED):
        raise typer.BadParameter(f"only {list(SIMULATED)} have a known law; leave out {ORACLE}")


def laws_of(fold: Fold, method: str, seed: int) -> tuple[dict[str, Law], dict[str, Any], float]:
    """The laws on the test rows, the chosen settings by head, and the seconds of predictions."""
    if is_ours(method):
        options = {"seed": seed, "verbose": False, "recipe": fold.recipe, **options_of(method)}
        model = Forecaster(fold.heads, **options).fit(*fold.both)
        began = time.perf_counter()
        laws = dict(model.predict(fold.test))
        return laws, {}, time.perf_counter() - began
    laws, settings = {}, {}
    for head, asked in fold.questions.items():
        kind = peer(method, asked.kind)
        if kind is None:
            continue
        train, valid = (fold.rows(part, head) for part in (fold.split.train, fold.split.valid))
        X_test = fold.X[fold.split.test]
        laws[head], settings[head] = forecast(kind, asked, train, valid, X_test, seed)
    return laws, settings, 0.0


def run_one(folder: Path, name: str, method: str, split: int) -> None:
    fold = PROBLEMS[name].fold(split)
    began = time.perf_counter()
    settings, predicting = {}, 0.0
    if method == ORACLE:
        assert fold.oracle is not None  # `check` has refused other sets
        nll = dict(fold.oracle().nll)
        seconds = time.perf_counter() - began
    else:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            laws, settings, predicting = laws_of(fold, method, split)
        seconds = time.perf_counter() - began
        nll = {
            head: np.asarray(scores.nll(law, fold.Y[head][fold.split.test]))
            for head, law in laws.items()
        }
    record = {
        "set": name,
        "method": method,
        "split": split,
        "fit_s": seconds - predicting,
        "predict_s": predicting,
        # In kilobytes on Linux; of the whole process, so the most that any split took.
        "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "device": str(jax.devices()[0].platform) if is_ours(method) else "cpu",
        "heads": {
            head: {
                "nll": float(np.nanmean(one)),
                "labels": int(np.sum(~np.isnan(one))),
                "blocks": default_records.block_means(one, fold.blocks),
                "setting": dict(settings.get(head, {})),
            }
            for head, one in nll.items()
        },
        "versions": versions(),
    }
    default_records.put(folder, record, nll)
    shown = "  ".join(f"{head} {one['nll']:.4f}" for head, one in record["heads"].items())
    print(f"{name} {split} {method}: {shown}  ({seconds:.1f} s)", flush=True)


def versions() -> dict[str, str]:
    found = {}
    for package in PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return found


def listed(text: str) -> list[str]:
    return [one for one in text.split(",") if one]


def splits_of(name: str, text: str) -> list[int]:
    """`all`, or numbers; those that a set does not have are left out."""
    count = PROBLEMS[name].splits
    return list(range(count)) if text == "all" else [k for k in map(int, listed(text)) if k < count]


@app.command()
def run(
    sets: Names,
    methods: Names,
    records: Folder,
    splits: Annotated[str, typer.Option(help="Numbers with commas, or all.")] = "all",
    here: Annotated[bool, typer.Option(help="In this process; memory is not comparable.")] = False,
) -> None:
    """Compute the records that are missing."""
    check(listed(sets), listed(methods))
    failed = []
    for name in listed(sets):
        for method in listed(methods):
            todo = default_records.missing(records, name, method, splits_of(name, splits))
            if not todo:
                continue
            print(f"{name} {method}: {len(todo)} splits to do", flush=True)
            try:
                if here:
                    worker(name, method, ",".join(map(str, todo)), records)
                else:
                    arguments = [name, method, ",".join(map(str, todo)), str(records)]
                    command = [sys.executable, str(HERE / "default.py"), "worker", *arguments]
                    subprocess.run(command, check=True, env=dict(os.environ))
            except (subprocess.CalledProcessError, ImportError) as error:
                failed.append(f"{name} {method}: {error}")
                print(failed[-1], file=sys.stderr, flush=True)
    if failed:
        raise SystemExit(f"{len(failed)} of the sets and methods failed: {'; '.join(failed)}")


@app.command(hidden=True)
def worker(name: str, method: str, splits: str, records: Path) -> None:
    """One set and method in this process."""
    for split in map(int, listed(splits)):
        run_one(records, name, method, split)


@app.command()
def collect(
    records: Folder, out: Annotated[Path, typer.Option()] = RESULTS / "default" / "records.csv"
) -> None:
    """Put the records of a folder into the table that is committed."""
    table = default_records.collect(records, out)
    print(f"{out} has {len(table)} lines, {out.stat().st_size / 1e6:.2f} MB")


@app.command()
def write(
    records: Annotated[Path, typer.Option()] = RESULTS / "default" / "records.csv",
    out: Annotated[Path, typer.Option()] = RESULTS / "default.md",
) -> None:
    """Write the page from the table."""
    beside = records.with_name("versions.json")
    known = json.loads(beside.read_text()) if beside.is_file() else []
    out.write_text(page(default_records.read(records), HERE / "published_uci.csv", known))
    print(f"wrote {out}")


if __name__ == "__main__":
    app()
