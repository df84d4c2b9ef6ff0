"""`scrollmt studies` and `scrollmt reproduce`, on a protocol short enough to run here."""

import json
from pathlib import Path

import pandas as pd
import pytest
from typer.testing import CliRunner

from commands import refused
from scrollmt.cli import app
from scrollmt.paper.arena import archive
from scrollmt.paper.data import published

RUN = CliRunner()
SMALL = [
    *("reproduce", "main", "--corpora", "ou", "--arms", "scroll-diag,map-ce"),
    *("--backbones", "tanh", "--seeds", "2", "--steps", "20", "--windows", "200", "--quiet"),
]


@pytest.fixture(scope="module")
def reproduced(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("reproduction")
    result = RUN.invoke(app, [*SMALL, "--out", str(out)])
    assert result.exit_code == 0, result.output
    assert "16 runs computed" in result.output  # two arms at two seeds on four draws
    return out


def test_studies_say_what_they_cost_and_judge() -> None:
    result = RUN.invoke(app, ["studies", "--json"])
    assert result.exit_code == 0, result.output
    rows = {row["study"]: row for row in json.loads(result.output)}
    judged = sum(row["claims"] for name, row in rows.items() if name != "all")
    assert rows["all"]["claims"] == judged == len(published.claims())
    # 16 arms on three corpora and four backbones: ten seeds, five members, 49 settings.
    fits = 10 * (11 + 3 * 5 + 2 * 49) * 3 * 4
    assert rows["main"]["runs"] >= fits
    assert rows["all"]["runs"] >= rows["main"]["runs"]


def test_records_and_tables_are_written(reproduced: Path) -> None:
    frame = archive.load(reproduced / "records")
    assert set(frame["arm"]) == {"scroll-diag", "map-ce"}
    assert sorted(frame["seed"].unique()) == [5, 6]
    assert set(frame["corpus"]) == {"ou", "ou~1", "ou~2", "ou~3"}
    page = (reproduced / "main.md").read_text()
    assert "scroll-diag" in page
    assert "Seeds: 2, OU on 4 draws of it." in page
    cells = pd.read_csv(reproduced / "main" / "cells.csv")
    assert cells["run"].sum() == 2 * 5
    for name in ("body.csv", "body.tex", "body.html", "full.csv", "full.tex", "full.html"):
        assert (reproduced / "main" / name).stat().st_size > 0


def test_a_second_call_trains_nothing(reproduced: Path) -> None:
    result = RUN.invoke(app, [*SMALL, "--out", str(reproduced)])
    assert result.exit_code == 0, result.output
    assert "0 runs computed" in result.output


def test_records_of_a_stranger_are_refused_in_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "records").mkdir()
    (tmp_path / "records" / "SHA256SUMS").write_text(f"{'0' * 64}  ../../secret\n")
    said = refused("reproduce", "main", "--from", tmp_path / "records", "--out", tmp_path / "out")
    assert "SHA256SUMS lists '../../secret', which is no file of an export" in said
    assert not (tmp_path / "out").exists()


def test_exported_records_give_the_same_tables(reproduced: Path, tmp_path: Path) -> None:
    committed = str(reproduced / "records")
    result = RUN.invoke(app, [*SMALL, "--from", committed, "--out", str(tmp_path)])
    assert result.exit_code == 0, result.output
    ours, again = (pd.read_csv(f / "main" / "cells.csv") for f in (reproduced, tmp_path))
    # Records are stored to six digits, which is what a difference of two scores can be off by.
    pd.testing.assert_frame_equal(ours, again, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["reproduce", "nothing"], "unknown study 'nothing'"),
        (["reproduce", "main", "--initial-noise", "small"], "unknown initial_noise 'small'"),
        (["reproduce", "main", "--initial-precision", "0"], "prior_precision must be > 0"),
        (["reproduce", "main", "--corpora", "mars"], "unknown name 'mars'"),
        (["reproduce", "main", "--arms", "scroll-dig"], "unknown arm 'scroll-dig'"),
        (["reproduce", "theory", "--arms", "scroll-diag"], "narrow `reproduce main` only"),
        (["reproduce", "main", "--engine", "moon", "--corpora", "ou"], "engine"),
    ],
)
def test_bad_input_is_one_sentence(options: list[str], words: str, tmp_path: Path) -> None:
    result = RUN.invoke(app, [*options, "--out", str(tmp_path)])
    assert result.exit_code == 2
    assert words in " ".join(result.output.split())
