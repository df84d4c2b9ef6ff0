"""Config files, tables and model folders changed at random: no traceback, no file lost.

Whatever a command is given, it ends with status 0, or with 2 and one sentence; and every file that
was there before is there afterwards, byte for byte. A case is its number: the same changes come
back wherever it runs. The few here take seconds; for as long as you like, from fresh cases on:

    SCROLLMT_FUZZ_SECONDS=600 SCROLLMT_FUZZ_FROM=100000 pytest -s tests/test_fuzz.py
"""

import io
import json
import os
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from commands import QUICK, done, run, write_series, write_table
from scrollmt._io.store.folder import DESCRIPTION, TENSORS, _digest
from scrollmt.cli.config import parse_config

pytestmark = pytest.mark.slow

SECONDS = float(os.environ.get("SCROLLMT_FUZZ_SECONDS", "0"))
FROM = int(os.environ.get("SCROLLMT_FUZZ_FROM", "0"))
Random = np.random.Generator

TOKENS = (
    *("", "0", "-1", "3", "1e309", "-0.0", "nan", "inf", "true", "9" * 30, '"', '""', '"x"'),
    *("[]", "{}", "[1, 2]", '["x", "y"]', "[[1]]", "\0", "\n", "\r\n", ",", "=", "#", "[", "]"),
    *("2023-01-01", "2023-01-01 05:00", "9999-12-31", "\ufeff", "\u200b", "ü", "\U0001f600"),
    *('"log1p"', '"1h"', '"-"', '"."', '"/"', '"bands"', "0.5", "1979-05-27T07:32:00Z"),
)
CELLS = ("", "x", "nan", "inf", "-inf", "1e308", "-5", "0", "True", "2023-01-01 07:00", '"', "1,5")


def cases(count: int) -> Iterator[int]:
    """Numbers of cases: a few, or as many as fit into the time given for a longer run."""
    if not SECONDS:
        yield from range(FROM, FROM + count)
        return
    number, end = FROM, time.monotonic() + SECONDS / 3
    while time.monotonic() < end:
        yield number
        number += 1
    print(f"{number - FROM} cases")


@pytest.fixture(scope="module")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for a series and one for a table, each with data, config and model."""
    root = tmp_path_factory.mktemp("pristine")
    for name, write in (("series", write_series), ("table", write_table)):
        (root / name).mkdir()
        write(root / name)
        done("fit", root / name / "config.toml")
    return root


class Workplace:
    """A fresh copy of the pristine files for each case, and what must hold after a command."""

    def __init__(self, pristine: Path, folder: Path):
        self.pristine, self.folder = pristine, folder
        self.number = 0

    def lay_out(self, kind: str) -> Path:
        shutil.rmtree(self.folder, ignore_errors=True)
        shutil.copytree(self.pristine / kind, self.folder)
        return self.folder

    def holds(self, *arguments: Any) -> int:
        """Run a command; a failed assertion says how to get the case back."""
        before = self.files()
        result = run(*arguments)
        said = f"case {self.number}, scrollmt {' '.join(map(str, arguments))}\n{result.output}"
        assert result.exit_code in (0, 2), said
        assert "Traceback" not in result.output, said
        if result.exit_code == 2:
            *_, complaint = result.stderr.strip().splitlines()
            assert complaint.startswith("scrollmt: "), said
            assert len(complaint) > len("scrollmt: ") + 5, said
        after = self.files()
        lost = [name for name in before if after.get(name) != before[name]]
        assert not lost, f"changed or lost: {lost}; {said}"
        drafts = [name for name in after if name.split("/")[-1].startswith(".")]
        assert not drafts, f"left behind: {drafts}; {said}"
        return result.exit_code

    def files(self) -> dict[str, bytes]:
        paths = [path for path in self.folder.rglob("*") if path.is_file()]
        return {path.relative_to(self.folder).as_posix(): path.read_bytes() for path in paths}


@pytest.fixture
def place(pristine: Path, tmp_path: Path) -> Workplace:
    return Workplace(pristine, tmp_path / "case")


def pick(random: Random, options: Any) -> Any:
    options = list(options)
    return options[int(random.integers(len(options)))]


def changed_bytes(random: Random, raw: bytes) -> bytes:
    """Damage as disks and editors do it."""
    if not raw:
        return pick(random, TOKENS).encode()
    a, b = sorted(int(one) for one in random.integers(len(raw) + 1, size=2))
    return pick(
        random,
        [
            raw[:a],
            raw[:a] + raw[b:],
            raw[:b] + raw[a:],
            raw[:a] + pick(random, TOKENS).encode() + raw[a:],
            raw[:a] + random.bytes(3) + raw[a + 3 :],
            raw.replace(b"\n", b"\r\n"),
            raw.decode(errors="replace").encode("utf-16"),
            b"",
        ],
    )


def changed_config(random: Random, text: str) -> str:
    """A line gone, doubled, moved, or with another key or value."""
    lines = text.splitlines()
    at = int(random.integers(len(lines)))
    key, equals, value = lines[at].partition("=")
    other = pick(random, lines)
    changes: list[Callable[[], list[str]]] = [
        lambda: lines[:at] + lines[at + 1 :],
        lambda: [*lines[:at], lines[at], *lines[at:]],
        lambda: [*lines[:at], other, *lines[at:]],
        lambda: [*lines[:at], f"{key}={pick(random, TOKENS)}", *lines[at + 1 :]],
        lambda: [*lines[:at], f"{key}={other.partition('=')[2]}", *lines[at + 1 :]],
        lambda: [*lines[:at], f"{key.strip()}x {equals}{value}", *lines[at + 1 :]],
        lambda: [*lines[:at], f"{other.partition('=')[0]}={value}", *lines[at + 1 :]],
    ]
    return "\n".join(pick(random, changes)()) + "\n"


def changed_table(random: Random, text: str) -> str:
    """Cells, rows and columns as exports, spreadsheets and people leave them."""
    frame = pd.read_csv(io.StringIO(text), dtype=str, keep_default_na=False)
    row, column = int(random.integers(len(frame))), pick(random, frame.columns)
    some = random.permutation(len(frame))[: int(random.integers(1, len(frame)))]

    def cell() -> pd.DataFrame:
        return frame.assign(
            **{column: frame[column].where(frame.index != row, pick(random, CELLS))}
        )

    def many_cells() -> pd.DataFrame:
        return frame.assign(
            **{column: frame[column].where(~frame.index.isin(some), pick(random, CELLS))}
        )

    changes: list[Callable[[], pd.DataFrame]] = [
        cell,
        many_cells,
        lambda: frame.drop(columns=column),
        lambda: frame.rename(columns={column: pick(random, [*frame.columns, *TOKENS])}),
        lambda: frame.assign(**{column: pick(random, CELLS)}),
        lambda: frame.iloc[some],
        lambda: frame.iloc[np.sort(some)],
        lambda: frame.iloc[: int(random.integers(12))],
        lambda: pd.concat([frame, frame.iloc[some]]),
        lambda: frame.sample(frac=1, axis=1, random_state=int(random.integers(9))),
        lambda: frame.T,
    ]
    how = {"sep": pick(random, ",,,,;\t"), "header": bool(random.random() < 0.9)}
    return pick(random, changes)().to_csv(index=False, **how)


def odd_parquet(random: Random, text: str) -> bytes:
    """The table as Parquet, with a column of a type that CSV never has."""
    frame = pd.read_csv(io.StringIO(text))
    column = pick(random, frame.columns)
    values = frame[column]
    kinds: list[Callable[[], Any]] = [
        lambda: values,
        lambda: values.astype(str).astype("category"),
        lambda: [[1, 2]] * len(frame),
        lambda: [{"a": 1}] * len(frame),
        lambda: values.isna(),
        lambda: [b"\xff"] * len(frame),
        lambda: pd.date_range("2023-01-01", periods=len(frame), freq="h", tz="Europe/Vienna"),
        lambda: pd.timedelta_range("1h", periods=len(frame)),
        lambda: pd.array([None] * len(frame), dtype="Int64"),
        lambda: pd.Series(np.arange(len(frame)) % 3, dtype="Int8"),
        lambda: pd.Series(np.arange(len(frame)), dtype="uint64") + 2**63,
        lambda: [None] * len(frame),
    ]
    made = frame.assign(**{column: pick(random, kinds)()})
    if random.random() < 0.3:
        made = made.set_index(pick(random, frame.columns))
    buffer = io.BytesIO()
    made.to_parquet(buffer)
    return buffer.getvalue()


def changed_json(random: Random, value: Any) -> Any:
    """A description with one thing in it replaced, renamed, moved or gone."""
    if isinstance(value, dict) and value and random.random() < 0.85:
        key = pick(random, value)
        rest = dict(value)
        change = random.random()
        if change < 0.1:
            del rest[key]
        elif change < 0.15:
            rest[f"{key}x"] = rest.pop(key)
        else:
            rest[key] = changed_json(random, rest[key])
        return rest
    if isinstance(value, list) and value and random.random() < 0.8:
        at = int(random.integers(len(value)))
        if random.random() < 0.3:
            return value[:at] + value[at + 1 :]
        return [*value[:at], changed_json(random, value[at]), *value[at + 1 :]]
    odd = [None, -1, 0, 1, 7, 1.5, -2.0, True, "", "x", "none", [], {}, [1], [None], {"a": 1}]
    return pick(random, odd)


def signed(description: dict[str, Any], tensors: bytes) -> bytes:
    """A description with the digest of a whole folder: as a stranger could have written it."""
    content = {name: one for name, one in description.items() if name != "sha256"}
    content["sha256"] = _digest(content, tensors)
    return json.dumps(content).encode()


def use(random: Random, folder: Path, data: Path) -> list[Any]:
    """Some command on a model and data."""
    verb = pick(random, ["predict", "predict", "evaluate", "forecast"])
    options: list[Any] = [verb, folder / "model", data]
    if verb == "evaluate":
        options += pick(random, [[], ["--all"]])
    elif verb == "predict":
        options += pick(random, [[], ["--every-row"], ["-o", folder / "laws.parquet"]])
    else:
        options += pick(random, [[], ["--on-grid"], ["--at", pick(random, TOKENS)]])
    return [*options, *pick(random, [[], ["--json"]])]


def test_configs(place: Workplace) -> None:
    refused = 0
    for place.number in cases(120):
        random = np.random.default_rng([1, place.number])
        kind = pick(random, ["series", "table"])
        folder = place.lay_out(kind)
        config = folder / "config.toml"
        raw = config.read_bytes()
        for _ in range(int(random.integers(1, 4))):
            if random.random() < 0.7:
                raw = changed_config(random, raw.decode(errors="replace") or "\n").encode()
            else:
                raw = changed_bytes(random, raw)
        config.write_bytes(raw)
        if place.holds("fit", config, "--check", *pick(random, [[], ["--json"]])):
            refused += 1
        elif random.random() < 0.02 and _is_quick(raw, folder):
            place.holds("fit", config, "-o", folder / "another", "--quiet")
        else:
            # There is a model already, or something else that may not be replaced.
            target = pick(random, ["model", "config.toml", ".", "table.csv", "series.csv"])
            place.holds("fit", config, "-o", folder / target)
    assert refused > 20


def _is_quick(raw: bytes, folder: Path) -> bool:
    """Whether the training is still the short one."""
    settings = parse_config(raw, "c", folder).settings
    quick = parse_config(
        b'[data]\nfile="x"\n[table]\ninputs="a"\n[targets.y]\nhead="event"\n' + QUICK.encode(),
        "c",
        folder,
    ).settings
    return settings == quick


def test_tables(place: Workplace) -> None:
    fine = 0
    for place.number in cases(80):
        random = np.random.default_rng([2, place.number])
        kind = pick(random, ["series", "table"])
        folder = place.lay_out(kind)
        data = folder / f"{kind}.csv"
        text = data.read_text()
        style = random.random()
        if style < 0.6:
            for _ in range(int(random.integers(1, 3))):
                try:
                    text = changed_table(random, text)
                except (ValueError, TypeError):  # too little was left of it to change it further
                    break
            data.write_text(text, encoding="utf-8", errors="replace")
        elif style < 0.8:
            data.write_bytes(changed_bytes(random, data.read_bytes()))
        else:
            data.write_bytes(odd_parquet(random, text))
        commands = [
            use(random, folder, data),
            ["fit", folder / "config.toml", "--check"],
            ["init", data, "-o", folder / "new.toml"],
        ]
        command = pick(random, commands)
        status = place.holds(*command)
        fine += status == 0
        if command[0] == "init" and status == 0:
            # Whatever init writes can be fitted.
            assert place.holds("fit", folder / "new.toml", "--check") == 0, place.number
        elif command[0] == "fit" and status == 0 and random.random() < 0.05:
            place.holds("fit", folder / "config.toml", "-o", folder / "another", "--quiet")
        elif SECONDS and random.random() < 0.03:
            place.holds("report", folder / "model", data, "-o", folder / "report.html")
    assert fine > 10


def test_model_folders(place: Workplace) -> None:
    for place.number in cases(80):
        random = np.random.default_rng([3, place.number])
        kind = pick(random, ["series", "table"])
        folder = place.lay_out(kind)
        model, data = folder / "model", folder / f"{kind}.csv"
        style = random.random()
        victim = model / pick(random, [DESCRIPTION, TENSORS, "config.toml", "fit.json"])
        if style < 0.25:
            victim.write_bytes(changed_bytes(random, victim.read_bytes()))
        elif style < 0.35:
            victim.unlink()
            if random.random() < 0.3:
                victim.mkdir()
        elif style < 0.45:
            other = place.pristine / ("table" if kind == "series" else "series") / "model"
            victim.write_bytes((other / victim.name).read_bytes())
        elif style < 0.6:
            facts = json.loads((model / "fit.json").read_text())
            (model / "fit.json").write_text(json.dumps(changed_json(random, facts)))
        else:
            description = json.loads((model / DESCRIPTION).read_text())
            changed = changed_json(random, description)
            if isinstance(changed, dict):
                tensors = (model / TENSORS).read_bytes()
                (model / DESCRIPTION).write_bytes(signed(changed, tensors))
        place.holds(*use(random, folder, data))
