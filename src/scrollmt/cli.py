"""The command line: parse, call, print."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import pandas as pd
import typer
from rich.console import Console
from rich.table import Table

app = typer.Typer(
    help="Forecast several observables of a noisy system at once.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


@app.callback()
def main() -> None:
    """Forecast several observables of a noisy system at once, each with a calibrated law."""


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Folder for the picture.")] = Path("demo"),
    seed: Annotated[int, typer.Option(help="Drives the split and the starting values.")] = 0,
    windows: Annotated[int, typer.Option(min=100, help="How many windows to draw.")] = 6500,
) -> None:
    """Draw stochastic Lorenz-63, fit the default, compare with the simulator's own law."""
    # Imported here so that `scrollmt --help` does not wait for JAX.
    from scrollmt import demo as job

    result = job.run(out, seed=seed, windows=windows)
    console = Console()
    console.print(
        _rich(result.table, f"Lorenz-63, lead 0.5, {result.test_windows:,} test windows (nats)")
    )
    spent = ", ".join(f"{name} {s:.1f} s" for name, s in result.seconds.items())
    console.print(f"{spent}; picture: {result.picture}")


def _rich(frame: pd.DataFrame, title: str) -> Table:
    table = Table(title=title)
    table.add_column(frame.index.name or "")
    for name in frame.columns:
        table.add_column(str(name), justify="right", overflow="fold")
    for label, row in frame.iterrows():
        cells = ("" if pd.isna(v) else f"{v:.4f}" for v in row)
        table.add_row(str(label), *cells)
    return table


if __name__ == "__main__":
    app()
