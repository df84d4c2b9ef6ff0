"""Whether a training step has become slower against its floor than it was.

    python benchmarks/alarm.py step.json benchmarks/step_reference.json

Compares two files of `benchmarks/step.py --json`, new and reference, and ends with status 1 when
a ratio has grown by more than `--most`. Seconds differ from one machine to the next; the floor is
measured in the same process, and the ratio to it differs far less.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path


def ratios(path: Path) -> dict[str, float]:
    return json.loads(path.read_text(encoding="utf-8"))["times the floor"]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("new", type=Path)
    parser.add_argument("reference", type=Path)
    parser.add_argument("--most", type=float, default=1.3, help="allowed growth (default 1.3)")
    options = parser.parse_args()
    new, reference = ratios(options.new), ratios(options.reference)
    if new.keys() != reference.keys():
        print(f"not comparable: {[*new]} against {[*reference]}", file=sys.stderr)
        return 2
    slower = []
    for name, before in reference.items():
        growth = new[name] / before
        print(f"{name:14s} {new[name]:6.2f} times the floor, was {before:.2f}: {growth:.2f}x")
        if growth > options.most:
            slower.append(name)
    if slower:
        print(f"slower by more than {options.most:g}x: {', '.join(slower)}", file=sys.stderr)
    return 1 if slower else 0


if __name__ == "__main__":
    sys.exit(main())
