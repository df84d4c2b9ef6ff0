"""The five-minute guide does what it says: its commands are run in a shell, in its order."""

import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pandas as pd
import pytest

import scrollmt
from scrollmt.cli.config import parse_config
from test_docs import ROOT, Block, blocks

PAGE = ROOT / "docs" / "guide" / "five-minutes.md"
# A reader trains for half a minute; here a few steps of the smallest candidate must do.
WHOLE, SHORT = 'preset = "default"', 'preset = "paper"\nbackbone = "tanh"'
FEW_STEPS = "\n[training]\nsteps = 20\n"


def page() -> list[Block]:
    return list(blocks(PAGE.read_text(encoding="utf-8")))


# Programs compiled as users compile them; `make test` sets both for the sake of speed.
AS_USERS = {"XLA_FLAGS": "", "JAX_DISABLE_MOST_OPTIMIZATIONS": "0"}


def shell(command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """As a reader would paste it, with the scripts of this environment on the path."""
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "JAX_COMPILATION_CACHE_DIR": str(ROOT / ".jax_cache"),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    }
    if command.startswith("scrollmt fit"):
        environment |= AS_USERS
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", command],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, f"$ {command}\n{done.stdout}\n{done.stderr}"
    return done


@pytest.mark.slow
def test_every_command_of_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    printed = {}
    for block in page():
        if block.language == "python":
            exec(compile(block.code, str(PAGE), "exec"), {})
            pd.read_csv("air.csv").iloc[:700].to_csv("air.csv", index=False)
        elif block.language == "sh":
            printed[block.code] = shell(block.code, tmp_path).stdout
            if block.code == "scrollmt init air.csv":
                config = tmp_path / "config.toml"
                text = config.read_text()
                assert WHOLE in text
                config.write_text(text.replace(WHOLE, SHORT) + FEW_STEPS)
    assert len(printed) == 9
    text = "\n".join(printed.values())
    assert "windows: train" in text
    assert "Forecast from t = 2023-01-30 03:00:00" in text
    piped = next(out for command, out in printed.items() if command.startswith("tail"))
    assert json.loads(piped)["t"] == "2023-01-30T03:00:00"
    assert set(pd.read_parquet("laws.parquet")["task"]) == {"value", "event", "band"}
    assert Path("report.html").read_text().startswith("<!")
    assert "standard error between 3 origins" in text
    assert len(list(Path("backtest").iterdir())) == 3
    assert list(scrollmt.load("model").tasks_) == ["value", "event", "band"]


def test_the_install_block_names_what_there_is() -> None:
    (install,) = [block.code for block in page() if block.language == "bash"]
    assert "pip install -c constraints.txt" in install
    assert (ROOT / "constraints.txt").exists()
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert "parquet" in extras["optional-dependencies"]
    assert ".[parquet]" in install


def test_the_configs_of_the_page_are_configs() -> None:
    question, table, split = [block.code for block in page() if block.language == "toml"]
    frame = '[data]\nfile = "air.csv"\n[windows]\nhistory = 2\nlead = 1\n'
    parse_config((frame + question).encode(), "page", Path())
    parse_config(table.encode(), "page", Path())
    parsed = parse_config(f"{table}\n{split}".encode(), "page", Path())
    assert parsed.split.fractions == pytest.approx((0.6, 0.2, 0.2))


def test_the_page_lists_every_key() -> None:
    """The keys that a config takes, as its own complaints name them."""
    text = PAGE.read_text(encoding="utf-8")
    for file in (ROOT / "src" / "scrollmt" / "cli").glob("*.py"):
        if file.name not in ("config.py", "asking.py"):
            continue
        source = file.read_text()
        for mark in ('.get("', '.need("'):
            for piece in source.split(mark)[1:]:
                key = piece.split('"', 1)[0]
                assert f"`{key}`" in text, f"{key} of {file.name} is not on the page"
