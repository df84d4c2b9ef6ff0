"""How far a fit has come, on one line of the terminal."""

from __future__ import annotations

import sys


class ProgressLine:
    """One line on the terminal that is rewritten; silent where there is no terminal."""

    def __init__(self, verbose: bool | None, nats: float):
        self.on = sys.stderr.isatty() if verbose is None else bool(verbose)
        self.nats = nats
        self.end = ""

    def __call__(self, label: str, step: int, steps: int, best: float) -> None:
        if self.on:
            score = best + self.nats
            line = f"scrollmt  {label}  step {step}/{steps}  best validation NLL {score:.4f}"
            print("\r" + line.ljust(78), end="", file=sys.stderr, flush=True)
            self.end = "\n"

    def close(self) -> None:
        print(end=self.end, file=sys.stderr, flush=True)
