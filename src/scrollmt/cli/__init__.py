"""The command line: parse, call, print. What a verb does lies in a module of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from scrollmt.cli.shell import Guarded, Problem, by_task, emit, say, show

app = typer.Typer(
    cls=Guarded,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
)

ConfigFile = Annotated[
    str, typer.Argument(metavar="CONFIG", help="A TOML file (see `scrollmt init`), or - .")
]
ModelFolder = Annotated[str, typer.Argument(metavar="MODEL", help="A folder that `fit` wrote.")]
DataFile = Annotated[
    str, typer.Argument(metavar="DATA", help="CSV or Parquet; - reads standard input.")
]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
Force = Annotated[bool, typer.Option("--force", help="Replace what is there.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress line.")]
All = Annotated[bool, typer.Option("--all", help="Score also the windows that the fit has seen.")]


def _print_version(wanted: bool) -> bool:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"scrollmt {version('scrollmt')}")
        raise typer.Exit()
    return wanted


@app.callback()
def main(
    version: Annotated[
        bool,
        typer.Option(
            "--version", is_eager=True, callback=_print_version, help="Print the version and exit."
        ),
    ] = False,
) -> None:
    """Forecast several observables of a noisy system at once, each with a calibrated law.

    A config file says what is asked: `scrollmt init data.csv` writes one to start from,
    `scrollmt fit config.toml` makes a model folder of it, and the other verbs use that.
    Exit status 2 means bad input, told in one sentence.
    """


@app.command(rich_help_panel="From data to a model")
def init(
    data: DataFile,
    out: Annotated[
        str, typer.Option("--out", "-o", help="The config to write; - prints it.")
    ] = "config.toml",
    column: Annotated[
        str | None, typer.Option(help="The column to ask about; by default the first number.")
    ] = None,
    separator: Annotated[
        str | None, typer.Option(help="Between the columns of a CSV; by default found in it.")
    ] = None,
    decimal: Annotated[
        str | None, typer.Option(help="The decimal mark of a CSV; by default found in it.")
    ] = None,
    keys: Annotated[
        list[str] | None,
        typer.Option(
            "--data", metavar="KEY=VALUE", help="A key of [data], such as timezone=Europe/Berlin."
        ),
    ] = None,
    force: Force = False,
) -> None:
    """Write a commented config from the columns of a file, ready to edit and fit."""
    from scrollmt.cli import starter

    starter.init(
        data,
        out,
        column=column,
        separator=separator,
        decimal=decimal,
        keys=keys or (),
        force=force,
    )


@app.command(rich_help_panel="From data to a model")
def fit(
    config: ConfigFile,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="The model folder, instead of the config's.")
    ] = None,
    check: Annotated[
        bool, typer.Option("--check", help="Read and cut the data, say what is asked, fit nothing.")
    ] = False,
    force: Force = False,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Fit the questions of a config and write a model folder.

    Ctrl-C stops the training and keeps the best model so far.
    """
    from scrollmt.cli import verbs

    verbs.fit(config, out, force=force, check=check, quiet=quiet, as_json=json)


@app.command(rich_help_panel="Using a model")
def predict(
    model: ModelFolder,
    data: DataFile,
    out: Annotated[
        str, typer.Option("--out", "-o", help="A .csv or .parquet file; - prints CSV.")
    ] = "-",
    quantiles: Annotated[
        str, typer.Option(help="Levels, separated by commas.")
    ] = "0.05,0.25,0.5,0.75,0.95",
    every_row: Annotated[
        bool,
        typer.Option("--every-row", help="Every row, also at hours that the fit had no origin at."),
    ] = False,
    force: Force = False,
    json: Json = False,
) -> None:
    """The law of every task at every window, as one tidy table.

    One row a task and window: mean, sd, quantiles, and the probability of each class.
    """
    from scrollmt.cli import verbs

    verbs.predict(
        model, data, out, quantiles=quantiles, every_row=every_row, force=force, as_json=json
    )


@app.command(rich_help_panel="Using a model")
def forecast(
    model: ModelFolder,
    data: DataFile,
    at: Annotated[str | None, typer.Option(help="Forecast from this time, not the newest.")] = None,
    on_grid: Annotated[
        bool,
        typer.Option("--on-grid", help="Only from hours and weekdays that the fit had origins at."),
    ] = False,
    level: Annotated[
        float, typer.Option(min=0.01, max=0.999, help="The share that an interval holds.")
    ] = 0.9,
    json: Json = False,
) -> None:
    """Answer the questions for the newest window of a series, in words and numbers."""
    from scrollmt.cli import verbs

    verbs.forecast(model, data, at=at, on_grid=on_grid, level=level, as_json=json)


@app.command(rich_help_panel="Using a model")
def update(
    model: ModelFolder,
    data: DataFile,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="A new folder; by default MODEL itself.")
    ] = None,
    force: Force = False,
    json: Json = False,
) -> None:
    """Let a model learn from rows that are newer than its own, in one pass, without a refit.

    Each row is predicted before its answer is used, and the scores of that are shown. Of a
    series, the windows that the model has not learned from yet are taken.
    """
    from scrollmt.cli import updating

    updating.update(model, data, out, force=force, as_json=json)


@app.command(rich_help_panel="How far to trust it")
def evaluate(model: ModelFolder, data: DataFile, all_: All = False, json: Json = False) -> None:
    """Score a model on data with known answers: NLL and what else suits each task.

    Training windows are excluded when they can be identified.
    """
    from scrollmt.cli import verbs

    verbs.evaluate(model, data, every=all_, as_json=json)


@app.command(rich_help_panel="How far to trust it")
def report(
    model: ModelFolder,
    data: DataFile,
    out: Annotated[str, typer.Option("--out", "-o", help="The page to write.")] = "report.html",
    title: Annotated[str | None, typer.Option(help="The heading of the page.")] = None,
    alone: Annotated[
        str | None,
        typer.Option(
            metavar="CONFIG", help="The config of the fit: fit each task alone too, and compare."
        ),
    ] = None,
    all_: All = False,
    force: Force = False,
    json: Json = False,
) -> None:
    """Write one HTML page on a model: a card, scores with uncertainty, and the diagnostics.

    Training windows are excluded when they can be identified.
    """
    from scrollmt.cli import reporting

    reporting.run(model, data, out, title=title, alone=alone, every=all_, force=force, as_json=json)


@app.command(rich_help_panel="How far to trust it")
def backtest(
    config: ConfigFile,
    origins: Annotated[int, typer.Option(min=1, max=1000, help="How many refits over time.")] = 5,
    seeds: Annotated[
        str | None, typer.Option(help="Seeds of each refit, separated by commas.")
    ] = None,
    out: Annotated[
        str | None, typer.Option("--out", "-o", help="All scores, as .csv or .parquet.")
    ] = None,
    records: Annotated[
        Path | None,
        typer.Option(help="Keep finished origins in this folder, and go on from them next time."),
    ] = None,
    jobs: Annotated[int, typer.Option("--jobs", "-j", min=1, max=256, help="Processes.")] = 1,
    force: Force = False,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Refit at rolling origins and score what came next.

    The standard error is between origins. Ctrl-C shows the origins that are done.
    """
    from scrollmt.cli import backtesting

    backtesting.run(
        config,
        origins=origins,
        seeds=seeds,
        out=out,
        records=records,
        jobs=jobs,
        force=force,
        quiet=quiet,
        as_json=json,
    )


@app.command(rich_help_panel="Examples")
def demo(
    out: Annotated[Path, typer.Option(help="Folder for the picture.")] = Path("demo"),
    seed: Annotated[int, typer.Option(help="Drives the split and the starting values.")] = 0,
    windows: Annotated[int, typer.Option(min=100, help="How many windows to draw.")] = 6500,
    json: Json = False,
) -> None:
    """Draw stochastic Lorenz-63, fit the default, compare with the simulator's own law."""
    from scrollmt.cli import demonstration as job

    result = job.run(out, seed=seed, windows=windows)
    if json:
        scores, seconds = by_task(result.table), result.seconds
        emit({"scores": scores, "seconds": seconds, "picture": str(result.picture)})
        return
    show(result.table, f"Lorenz-63, lead 0.5, {result.test_windows:,} test windows (nats)")
    spent = ", ".join(f"{name} {s:.1f} s" for name, s in result.seconds.items())
    say(f"{spent}; picture: {result.picture}")


@app.command(rich_help_panel="The paper")
def studies(json: Json = False) -> None:
    """What can be reproduced: jobs, fits and claims of every study."""
    from scrollmt.cli import reproducing as job

    job.studies(as_json=json)


@app.command(rich_help_panel="The paper")
def reproduce(
    study: Annotated[
        str,
        typer.Argument(
            help="main, ledger, report, all, beyond, or a name from `scrollmt studies`."
        ),
    ],
    of: Annotated[
        str | None, typer.Option("--study", help="Of `beyond`: the study, such as comparators.")
    ] = None,
    corpora: Annotated[
        str | None, typer.Option(help="Of `main` and `beyond`: some corpora only.")
    ] = None,
    arms: Annotated[
        str | None, typer.Option(help="Of `main` and `beyond`: some arms only.")
    ] = None,
    backbones: Annotated[
        str | None, typer.Option(help="Of `main` and `beyond`: some backbones.")
    ] = None,
    seeds: Annotated[
        int | None, typer.Option(min=1, max=1000, help="How many, by default the paper's ten.")
    ] = None,
    engine: Annotated[
        str, typer.Option(help="local, processes, dask, or tcp://scheduler:port.")
    ] = "local",
    workers: Annotated[
        int | None,
        typer.Option(min=1, max=4096, help="Processes; of `local`, threads, which suit a GPU."),
    ] = None,
    out: Annotated[
        Path, typer.Option("--out", "-o", help="Folder of records, tables and pages.")
    ] = Path("reproduction"),
    records: Annotated[
        Path | None, typer.Option(help="The database, by default records.sqlite in the folder.")
    ] = None,
    committed: Annotated[
        Path | None,
        typer.Option("--from", help="Read exported records from this folder and train nothing."),
    ] = None,
    steps: Annotated[
        int | None, typer.Option(min=1, help="Shorter training, to try things out.")
    ] = None,
    windows: Annotated[
        int | None, typer.Option(min=50, help="Smaller corpora, to try things out.")
    ] = None,
    literal_penalty: Annotated[
        bool,
        typer.Option("--literal-penalty", help="The baselines' penalty as the paper writes it."),
    ] = False,
    initial_precision: Annotated[
        float | None, typer.Option(help="Where prior precisions start, by default at one.")
    ] = None,
    initial_noise: Annotated[
        str | None, typer.Option(help="Where the state's noise starts: one, or targets.")
    ] = None,
    quiet: Quiet = False,
) -> None:
    """Run a study of the paper and write its tables, ours beside the paper's.

    Finished jobs are recorded at once: stop it any time, and the same command goes on.
    """
    from scrollmt.cli import beyond, reproducing

    options: dict[str, Any] = {
        "corpora": corpora,
        "arms": arms,
        "backbones": backbones,
        "seeds": seeds,
        "engine": engine,
        "workers": workers,
        "out": out,
        "records": records,
        "committed": committed,
        "steps": steps,
        "windows": windows,
        "quiet": quiet,
    }
    reading: dict[str, Any] = {
        # The paper writes half the squared norm for every objective.
        "penalty_beside_means": 1.0 if literal_penalty else None,
        "initial_precision": initial_precision,
        "initial_noise": initial_noise,
    }
    if study == beyond.NAME:
        if any(value is not None for value in reading.values()):
            raise Problem("`reproduce beyond` has one reading of the protocol; leave others out")
        beyond.reproduce(of, **options)
    else:
        if of is not None:
            raise Problem("--study belongs to `reproduce beyond`; leave it out")
        reproducing.reproduce(study, reading=reading, **options)
