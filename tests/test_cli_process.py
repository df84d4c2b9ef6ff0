"""The installed script in processes of its own: exit status, streams, completion, Ctrl-C."""

import json
import os
import pty
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import scrollmt
from commands import QUICK, contents, write_table

SCRIPT = str(Path(sys.executable).with_name("scrollmt"))
CACHE = str(Path(__file__).parents[1] / ".jax_cache")
ENVIRONMENT = {
    **os.environ,
    "JAX_COMPILATION_CACHE_DIR": CACHE,
    "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
}


def call(*arguments: Any, **options: Any) -> subprocess.CompletedProcess[str]:
    options = {"env": ENVIRONMENT, "capture_output": True, "text": True, **options}
    return subprocess.run([SCRIPT, *map(str, arguments)], **options)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = write_table(tmp_path_factory.mktemp("table"))
    fitted = call("fit", folder / "config.toml", "--json")
    assert fitted.returncode == 0, fitted.stderr
    assert json.loads(fitted.stdout)["windows"]["train"] == 36
    return folder


@pytest.mark.slow
def test_bad_input_is_one_sentence_and_status_two(folder: Path) -> None:
    (folder / "bad.toml").write_text("[data]\nfiel = 3\n")
    result = call("fit", "bad.toml", cwd=folder)
    assert result.returncode == 2
    assert result.stdout == ""
    assert result.stderr == (
        "scrollmt: bad.toml: data.file is missing (there is 'fiel': is that it?); it must be text "
        "in quotes, or a list of different texts\n"
    )


@pytest.mark.slow
def test_a_reader_that_has_had_enough_is_no_fault(folder: Path) -> None:
    """`scrollmt predict ... | head -1`, where the pipe closes early."""
    frame = (folder / "table.csv").read_text().splitlines()
    long = "\n".join([frame[0], *frame[1:] * 200]) + "\n"
    (folder / "long.csv").write_text(long)
    command = [SCRIPT, "predict", str(folder / "model"), str(folder / "long.csv")]
    with subprocess.Popen(
        command, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline().startswith(b"task,row,mean")
        process.stdout.close()
        complaint = process.stderr.read()
        process.wait()
    assert b"Traceback" not in complaint
    assert b"fault" not in complaint


def test_verbs_are_completed() -> None:
    asked = {"_SCROLLMT_COMPLETE": "complete_bash", "COMP_WORDS": "scrollmt ev", "COMP_CWORD": "1"}
    result = call(env=ENVIRONMENT | asked)
    assert result.stdout.split() == ["evaluate"]


@pytest.mark.slow
def test_an_interrupt_keeps_the_best_model_so_far(folder: Path, tmp_path: Path) -> None:
    endless = QUICK.replace("steps = 5", "steps = 1000000\neval_every = 200\npatience = 1000000")
    config = (folder / "config.toml").read_text().replace(QUICK, endless)
    (folder / "endless.toml").write_text(config)
    before = contents(folder)
    target = tmp_path / "found"
    command = [SCRIPT, "fit", str(folder / "endless.toml"), "-o", str(target)]
    # The progress line is for terminals, and says when the training is under way.
    terminal, its_end = pty.openpty()
    with subprocess.Popen(
        command, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=its_end, text=True
    ) as process:
        os.close(its_end)
        shown = _read_until(terminal, b"step ", seconds=120)
        process.send_signal(signal.SIGINT)
        assert process.stdout is not None
        printed = process.stdout.read()
        process.wait(timeout=60)
        shown += _read_until(terminal, b"so far is in", seconds=5)
    os.close(terminal)
    assert process.returncode == 130, shown.decode()
    assert b"Traceback" not in shown
    assert b"interrupted; the best model so far is in" in shown
    assert "12 test windows: NLL in nats" in printed
    model = scrollmt.load(target)
    assert model.stop_reason_ == "interrupted"
    assert len(model.history_) > 0
    assert contents(folder) == before


def _read_until(terminal: int, sign: bytes, seconds: float) -> bytes:
    shown = b""
    end = time.monotonic() + seconds
    while sign not in shown and time.monotonic() < end:
        ready, _, _ = select.select([terminal], [], [], 0.2)
        if ready:
            try:
                shown += os.read(terminal, 4096)
            except OSError:  # the other side has closed the terminal
                break
    return shown
