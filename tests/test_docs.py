"""The documents keep their word: every Python block runs, every named command exists."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib.pyplot as plt
import pytest
import typer

ROOT = Path(__file__).resolve().parents[1]
DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(ROOT.glob("docs/**/*.md"))]
SHELLS = {"bash", "sh", "shell", "console"}


class Block(NamedTuple):
    language: str
    code: str
    line: int  # of the first line of code, counted from one


def blocks(text: str) -> Iterator[Block]:
    """The fenced blocks of a Markdown text, in order, their common indent removed."""
    lines = text.splitlines()
    start = 0
    while start < len(lines):
        opening = re.match(r"(\s*)(`{3,}|~{3,})\s*([\w+-]*)", lines[start])
        if opening is None:
            start += 1
            continue
        indent, fence, language = opening.groups()
        end = start + 1
        while end < len(lines) and lines[end].strip() != fence:
            end += 1
        if end == len(lines):
            raise ValueError(f"the block opened on line {start + 1} is never closed")
        code = "\n".join(line.removeprefix(indent) for line in lines[start + 1 : end])
        yield Block(language.lower(), code, start + 2)
        start = end + 1


def invocations(script: str) -> Iterator[list[str]]:
    """The simple commands of a shell script as word lists; prompts and comments are dropped."""
    for line in script.replace("\\\n", " ").splitlines():
        lexer = shlex.shlex(line.removeprefix("$ "), posix=True, punctuation_chars="|&;()<>")
        lexer.whitespace_split = True
        command: list[str] = []
        for word in lexer:
            if set(word) <= set("|&;()"):
                yield command
                command = []
            else:
                command.append(word)
        yield command


def make_targets(command: list[str]) -> list[str]:
    if command[:1] != ["make"]:
        return []
    return [word for word in command[1:] if "=" not in word and not word.startswith("-")]


def scrollmt_verbs(command: list[str]) -> list[str] | None:
    """The leading plain words after `scrollmt`, or None where the command is another program."""
    for position, word in enumerate(command):
        if word.rsplit("/")[-1] == "scrollmt" and (position == 0 or command[position - 1] == "-m"):
            rest = command[position + 1 :]
            stop = next((i for i, w in enumerate(rest) if w.startswith("-")), len(rest))
            return rest[:stop]
    return None


def unknown_verb(verbs: list[str]) -> str | None:
    """The first word that the command line does not know, following groups of commands down."""
    from scrollmt.cli import app

    # With a single command and no callback Typer builds no group, and takes no verb at all.
    known: dict[str, Any] | None = getattr(typer.main.get_command(app), "commands", {})
    for verb in verbs:
        if known is None:
            return None  # from here on the words are arguments
        if verb not in known:
            return verb
        known = getattr(known[verb], "commands", None)
    return None


def known_targets() -> set[str]:
    return set(re.findall(r"^([a-z][\w-]*):", (ROOT / "Makefile").read_text(), re.MULTILINE))


@pytest.fixture
def registries() -> Iterator[None]:
    """What a page registers is forgotten after it."""
    from scrollmt.paper.arena.sources import SOURCES
    from scrollmt.paper.arms import ARMS

    before = [(registry, dict(registry)) for registry in (ARMS, SOURCES)]
    yield
    for registry, known in before:
        for name in {*registry} - {*known}:
            del registry[name]


@pytest.mark.usefixtures("registries")
@pytest.mark.slow
@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda p: str(p.relative_to(ROOT)))
def test_document(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, Any] = {"__name__": "__main__"}
    for block in blocks(path.read_text(encoding="utf-8")):
        if block.language.startswith("py"):
            # The blank lines make a traceback point at the line of the document.
            padded = "\n" * (block.line - 1) + block.code
            exec(compile(padded, str(path), "exec"), namespace)
        elif block.language in SHELLS:
            for command in invocations(block.code):
                missing = set(make_targets(command)) - known_targets()
                assert not missing, f"{path.name}: the Makefile has no target {sorted(missing)}"
                verbs = scrollmt_verbs(command)
                unknown = unknown_verb(verbs) if verbs else None
                assert unknown is None, f"{path.name}: scrollmt has no command {unknown!r}"
    plt.close("all")


def test_blocks_are_found_with_their_lines() -> None:
    text = "a\n\n```python title='x'\nx = 1\n```\n\n  ~~~sh\n  make test\n  ~~~\n```\nplain\n```"
    assert list(blocks(text)) == [
        Block("python", "x = 1", 4),
        Block("sh", "make test", 8),
        Block("", "plain", 11),
    ]
    with pytest.raises(ValueError, match="opened on line 1 is never closed"):
        list(blocks("```python\nx = 1\n"))


def test_commands_are_read_from_a_script() -> None:
    script = (
        "$ make PYTHON=python3.12 -s test demo && scrollmt demo --seed 1  # both\n"
        ".venv/bin/scrollmt paper run | tee log"
    )
    commands = list(invocations(script))
    assert [make_targets(c) for c in commands] == [["test", "demo"], [], [], []]
    assert [scrollmt_verbs(c) for c in commands] == [None, ["demo"], ["paper", "run"], None]
    assert scrollmt_verbs(["python", "-m", "scrollmt", "demo"]) == ["demo"]
    assert scrollmt_verbs(["pip", "install", "scrollmt"]) is None
    assert {"demo", "test"} <= known_targets()
    assert "nonsense" not in known_targets()
