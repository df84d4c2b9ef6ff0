"""What every verb shares with the terminal: one sentence on bad input, notes, tables, JSON.

    exit status 0    done
                2    bad input: one sentence on standard error, nothing written
                1    a fault of scrollmt itself: one sentence, and how to see where
              130    interrupted from the keyboard; what was found is kept where a verb says so

Results go to standard output, everything else to standard error. Control characters in names and
values that come from files are spelled out and never reach the terminal.
"""

from __future__ import annotations

import json
import math
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import typer
from typer.core import TyperGroup

from scrollmt._io.text import plain, visible, visible_json

# Heavy libraries are imported where they are used: help and completion need none of them.
if TYPE_CHECKING:
    import pandas as pd
    from rich.text import Text

BAD_INPUT, FAULT, INTERRUPTED = 2, 1, 130
SHOW_FAULTS = "SCROLLMT_TRACEBACK"


class Problem(ValueError):
    """Bad input, told in one sentence that names where it is and what to try."""


class KeyProblem(Problem):
    """A problem that a key of [data] solves; ``setting`` is an example of it, `key=value`."""

    def __init__(self, text: str, setting: str):
        super().__init__(text)
        self.setting = setting


@contextmanager
def about(what: str) -> Iterator[None]:
    """Name a file or key in an error that is raised inside."""
    try:
        yield
    except ValueError as error:
        raise Problem(f"{what}: {sentence(error)}") from error


def sentence(error: BaseException) -> str:
    """What an exception says, on one line."""
    if isinstance(error, OSError) and error.strerror:
        named = f"{error.filename}: " if error.filename is not None else ""
        return f"{named}{error.strerror[:1].lower()}{error.strerror[1:]}"
    return " ".join(str(error).split()) or type(error).__name__


class Guarded(TyperGroup):
    """A group of verbs that turns every exception into one sentence and an exit status."""

    def invoke(self, ctx: Any) -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            # What the library warns its users of is for them to read, without the code line.
            warnings.simplefilter("always", UserWarning)
            warnings.showwarning = lambda message, *_: note(" ".join(str(message).split()))
            try:
                return super().invoke(ctx)
            except KeyboardInterrupt as error:
                note(str(error) or "interrupted")
                raise typer.Exit(INTERRUPTED) from None
            except BrokenPipeError:
                raise  # the reader of the output is gone; Typer ends quietly
            except (ValueError, OSError) as error:
                if os.environ.get(SHOW_FAULTS):
                    raise
                note(sentence(error))
                raise typer.Exit(BAD_INPUT) from None
            except Exception as error:
                # Typer's own exceptions, a usage error for one, carry the exit status.
                if hasattr(error, "message"):
                    error.message = visible(error.message)
                if hasattr(error, "exit_code") or os.environ.get(SHOW_FAULTS):
                    raise
                note(
                    f"a fault in scrollmt, not in your input: {type(error).__name__}: "
                    f"{sentence(error)} (set {SHOW_FAULTS}=1 to see where)"
                )
                raise typer.Exit(FAULT) from None


def note(text: str) -> None:
    """A remark on standard error, which leaves results on standard output alone."""
    typer.echo(f"scrollmt: {visible(text)}", err=True)


def say(text: str) -> None:
    """A line of the result: no markup is read in names that users chose, no control obeyed."""
    from rich.console import Console

    Console().print(visible(text), markup=False, highlight=False, soft_wrap=True)


def show(frame: pd.DataFrame, title: str, digits: int = 4) -> None:
    """A table on standard output; missing cells stay empty."""
    import pandas as pd
    from rich import box
    from rich.console import Console
    from rich.table import Table

    say(title)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column(_text(frame.index.name or ""), overflow="fold")
    for name, values in frame.items():
        numbers = pd.api.types.is_numeric_dtype(values.dtype)
        table.add_column(_text(name), justify="right" if numbers else "left", overflow="fold")
    for label, row in zip(frame.index, frame.itertuples(index=False, name=None), strict=True):
        table.add_row(*(_text(_cell(value, digits)) for value in (label, *row)))
    Console().print(table)


def _text(value: Any) -> Text:
    from rich.text import Text

    return Text(visible(str(value)))


def _cell(value: Any, digits: int) -> str:
    import numpy as np
    import pandas as pd

    if value is None or value is pd.NaT or (isinstance(value, float) and math.isnan(value)):
        return ""
    if isinstance(value, float | np.floating):
        return f"{value:.{digits}f}"
    return str(value)


def emit(result: Any) -> None:
    """One JSON document on standard output."""
    text = json.dumps(plain(result), indent=2, allow_nan=False, ensure_ascii=False)
    typer.echo(visible_json(text))


def by_task(frame: pd.DataFrame) -> dict[str, dict[str, Any]]:
    """A table of scores as JSON: task, metric, number; metrics that do not apply left out."""
    import pandas as pd

    return {
        str(task): {str(name): float(v) for name, v in row.items() if not pd.isna(v)}
        for task, row in frame.iterrows()
    }
