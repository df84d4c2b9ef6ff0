"""Records of the comparison: one small file a (set, method, split), collected into one table.

    DIR/<set>/<method>/<split>.json    scores by head, seconds, memory, versions
    DIR/<set>/<method>/<split>.npz     the NLL of every test row by head; never committed

A file appears whole or not at all, so a sweep may be killed and called again. The table that is
committed has one line a head, with means over blocks of test rows for paired tests.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from scrollmt._io.atomic import replacing

KEYS = ["set", "method", "split", "head"]
COLUMNS = [*KEYS, "nll", "labels", "blocks", "fit_s", "predict_s", "peak_mb", "device", "setting"]


def file_of(folder: Path, name: str, method: str, split: int) -> Path:
    return folder / name / method / f"{split}.json"


def missing(folder: Path, name: str, method: str, splits: list[int]) -> list[int]:
    """The splits that are not recorded yet."""
    return [split for split in splits if not file_of(folder, name, method, split).is_file()]


def block_means(nll: np.ndarray, blocks: int) -> list[float]:
    """Means over so many stretches of neighbouring rows."""
    if not blocks:
        return []
    return [float(np.mean(one)) for one in np.array_split(nll, blocks)]


def put(folder: Path, record: Mapping[str, Any], nll: Mapping[str, np.ndarray]) -> None:
    """Write one record; the scores of the rows come first, so that no record is without them."""
    file = file_of(folder, record["set"], record["method"], record["split"])
    with replacing(file.with_suffix(".npz")) as draft, draft.open("wb") as out:
        np.savez_compressed(out, **{head: one.astype(np.float32) for head, one in nll.items()})
    with replacing(file) as draft:
        draft.write_text(json.dumps(record, indent=1) + "\n")


def lines_of(record: Mapping[str, Any]) -> list[dict[str, Any]]:
    """A record as lines of the table."""
    shared = {name: record[name] for name in COLUMNS if name in record}
    lines = []
    for head, scored in record["heads"].items():
        blocks = " ".join(f"{one:.5g}" for one in scored["blocks"])
        setting = json.dumps(scored["setting"]) if scored["setting"] else ""
        rest = {"nll": scored["nll"], "labels": scored["labels"]}
        lines.append({**shared, "head": head, **rest, "blocks": blocks, "setting": setting})
    return lines


def collect(folder: Path, table: Path) -> pd.DataFrame:
    """Write the records below ``folder`` into ``table``; lines that it has of others stay."""
    found = [json.loads(file.read_text()) for file in sorted(folder.glob("*/*/*.json"))]
    lines = pd.DataFrame([line for record in found for line in lines_of(record)], columns=COLUMNS)
    if table.is_file():
        lines = pd.concat([read(table), lines]).drop_duplicates(KEYS, keep="last")
    lines = lines.sort_values(KEYS)
    for name, digits in (("nll", 6), ("fit_s", 2), ("predict_s", 2), ("peak_mb", 0)):
        lines[name] = lines[name].astype(float).round(digits)
    with replacing(table) as draft:
        lines.to_csv(draft, index=False, lineterminator="\n")
    versions = [json.dumps(record["versions"], sort_keys=True) for record in found]
    with replacing(table.with_name("versions.json")) as draft:
        kept = [json.loads(one) for one in dict.fromkeys(versions)]
        draft.write_text(json.dumps(kept, indent=1) + "\n")
    return lines


def read(table: Path) -> pd.DataFrame:
    """The table that `collect` wrote; blocks as text."""
    return pd.read_csv(table, dtype={"blocks": str, "setting": str}, keep_default_na=True).fillna(
        {"blocks": "", "setting": ""}
    )


def blocks_of(text: str) -> np.ndarray:
    return np.array([float(one) for one in text.split()])
