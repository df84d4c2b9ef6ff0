"""The house stays in order: who imports whom, how long a file gets, what an import may touch."""

import ast
import importlib.metadata
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import scrollmt

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "src" / "scrollmt"
SOURCES = sorted(PACKAGE.rglob("*.py"))

# A room is a module or a folder of the package, or a module within a folder that is named here; it
# imports only from rooms above it.
ROOMS = [
    "_io",
    "_io.arguments",
    "_io.moved",
    "_numerics",
    "_numerics.normal",
    "_numerics.compiling",
    "_numerics.graph",
    "_numerics.weighted",
    "_numerics.special",
    "_numerics.quadrature",
    "_data",
    "_data.frames",
    "laws",
    "laws.joint",
    "_data.labels",
    "_fitting",
    "_fitting.fused",
    "backbone",
    "adapters",
    "beliefs",
    "heads",
    "couplings",
    "model",
    "objective",
    "routing",
    "_fitting.vectors",
    "combining",
    "_fitting.step",
    "_fitting.memory",
    "_fitting.outcome",
    "fit",
    "streams",
    "scores",
    "_scoring",
    "_scoring.uncertainty",
    "splits",
    "transforms",
    "observables",
    "laws.transformed",
    "laws.frozen",
    "_data.series",
    "inputs",
    "_data.cutting",
    "windows",
    "windows.answers",
    "agreement",
    "corpora",
    "presets",
    "_data.numbers",
    "_data.reading",
    "_data.scaling",
    "_data.answers",
    "_fitting.batches",
    "_fitting.selection",
    "_fitting.stacking",
    "_fitting.large",
    "_data.sources",
    "_data.outliers",
    "_scoring.references",
    "_scoring.evaluation",
    "_data.edges",
    "_data.holdout",
    "_data.streaming",
    "_io.store",
    "_fitting.members",
    "_fitting.fold_runs",
    "_fitting.weighing",
    "_fitting.crossfit",
    "testing",
    "_io.settings",
    "_io.sklearn",
    "_fitting.progress",
    "_fitting.training",
    "_scoring.recalibration",
    "_scoring.judging",
    "online",
    "forecaster",
    "export",
    "backtests",
    "plots",
    "report.pages",
    "report",
    "paper",
    "paper.data",
    "paper.peers",
    "paper.arms",
    "paper.arena",
    "paper.tables",
    "paper.studies",
    "paper.beyond",
    "cli.demonstration",
    "cli",
    "_moved",
    "__init__",
    "__main__",
]
MAX_LINES = 400


def module_of(path: Path) -> tuple[str, ...]:
    """The dotted name of a source file as parts, `__init__` kept: ("scrollmt", "corpora", "ou")."""
    return ("scrollmt", *path.relative_to(PACKAGE).with_suffix("").parts)


def room_of(module: tuple[str, ...]) -> str:
    if len(module) < 2:
        return "__init__"
    inner = ".".join(module[1:3])
    return inner if inner in ROOMS else module[1]


def imported_rooms(source: str, module: tuple[str, ...]) -> set[str]:
    """Rooms of scrollmt that a source text imports from, inside functions too."""
    rooms = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            targets = [tuple(alias.name.split(".")) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = module[: len(module) - node.level] if node.level else ()
            base += tuple(node.module.split(".")) if node.module else ()
            targets = [base]
            if base[:1] == ("scrollmt",) and len(base) < 3:
                # `from scrollmt import fit` names a room, and so may `from scrollmt.laws import
                # joint`; any other name comes from the package itself.
                inside = [(*base, alias.name) for alias in node.names]
                targets = [one if ".".join(one[1:]) in ROOMS else base for one in inside]
        else:
            continue
        rooms |= {room_of(target) for target in targets if target[0] == "scrollmt"}
    return rooms


def out_of_order(source: str, module: tuple[str, ...]) -> list[str]:
    """What is wrong with a file's imports, in words; empty when nothing is."""
    room = room_of(module)
    imported = imported_rooms(source, module)
    unknown = sorted({room, *imported} - set(ROOMS))
    faults = [f"room {r!r} is not in ROOMS; give it its place there" for r in unknown]
    if room in ROOMS:
        below = ROOMS[ROOMS.index(room) + 1 :]
        faults += [f"{room} imports {r}, which stands below it" for r in below if r in imported]
    return faults


@pytest.mark.parametrize("path", SOURCES, ids=lambda p: ".".join(module_of(p)[1:]))
def test_a_file_imports_only_from_rooms_above_it(path: Path) -> None:
    faults = out_of_order(path.read_text(encoding="utf-8"), module_of(path))
    assert not faults, "; ".join(faults)


@pytest.mark.parametrize(
    ("source", "module", "fault"),
    [
        ("from scrollmt.fit import fit", "scrollmt.heads", "heads imports fit"),
        ("import scrollmt.forecaster as f", "scrollmt.fit", "fit imports forecaster"),
        ("from scrollmt.laws import joint", "scrollmt.laws.base", "laws imports laws.joint"),
        ("from .. import export", "scrollmt.corpora.ou", "corpora imports export"),
        ("from ..plots import draw", "scrollmt.corpora.__init__", "corpora imports plots"),
        ("from .. import cli", "scrollmt._numerics.normal", "_numerics.normal imports cli"),
        ("from scrollmt import Forecaster", "scrollmt.windows", "windows imports __init__"),
        ("import scrollmt", "scrollmt.paper.tables.report", "paper.tables imports __init__"),
        ("def f():\n    from scrollmt import paper", "scrollmt.scores", "scores imports paper"),
        ("from scrollmt.attic import x", "scrollmt.fit", "room 'attic' is not in ROOMS"),
        ("x = 1", "scrollmt.attic", "room 'attic' is not in ROOMS"),
        ("from scrollmt._numerics.normal import x", "scrollmt.heads", None),
        ("from .ou import simulate", "scrollmt.corpora.__init__", None),
        ("from scrollmt.corpora.ou import simulate", "scrollmt.corpora.lorenz63", None),
        ("import jax\nfrom scipy.stats import norm", "scrollmt._numerics.normal", None),
    ],
)
def test_the_import_rule_sees_every_form(source: str, module: str, fault: str | None) -> None:
    faults = out_of_order(source, tuple(module.split(".")))
    if fault is None:
        assert faults == []
    else:
        assert len(faults) == 1
        assert faults[0].startswith(fault)


def test_no_source_file_outgrows_one_idea() -> None:
    lengths = {
        str(p.relative_to(ROOT)): len(p.read_text(encoding="utf-8").splitlines()) for p in SOURCES
    }
    too_long = {name: n for name, n in lengths.items() if n > MAX_LINES}
    assert not too_long, f"past {MAX_LINES} lines, split in two: {too_long}"


IMPORT_PROBE = """
import logging, random, warnings
import jax, matplotlib, numpy
import matplotlib.pyplot

def state():
    return {
        "jax config": dict(jax.config.values),
        "logging handlers": list(logging.root.handlers),
        "logging level": logging.root.level,
        "numpy random state": numpy.random.get_state()[1].tobytes(),
        "numpy error state": numpy.geterr(),
        "python random state": random.getstate(),
        "matplotlib settings": dict(matplotlib.rcParams),
    }

before = state()
import scrollmt
for name in scrollmt.__all__:
    getattr(scrollmt, name)
after = state()
changed = [name for name in before if before[name] != after[name]]
assert not changed, f"import scrollmt changed: {changed}"
assert jax.config.jax_enable_x64 is False
assert jax.config.jax_default_matmul_precision is None
# JAX refuses this once a backend is up; an array made at import time would bring one up, in a
# precision and on a device that the user had no chance to choose.
jax.config.update("jax_num_cpu_devices", 2)
"""


@pytest.mark.slow
def test_importing_scrollmt_changes_nothing_global() -> None:
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("JAX_", "XLA_"))}
    done = subprocess.run(
        [sys.executable, "-c", IMPORT_PROBE], env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


HEAVY = "jax pandas numpy matplotlib sklearn scipy"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("program", "absent"),
    [
        ("import scrollmt", HEAVY),
        ("from scrollmt.cli import app; app(['--help'])", HEAVY),
        ("from scrollmt.cli import app; app(['fit', '--help'])", HEAVY),
        ("from scrollmt.cli import app; app(['--version'])", HEAVY + " rich"),
        ("import scrollmt.cli", HEAVY + " rich"),
        # Completion reads the line so far from the environment.
        ("from scrollmt.cli import app; app(prog_name='scrollmt')", HEAVY + " rich"),
        (
            "import scrollmt; scrollmt.Forecaster",
            "matplotlib dask onnx xarray polars jax.experimental.pallas",
        ),
    ],
)
def test_nothing_heavy_is_imported_before_it_is_used(program: str, absent: str) -> None:
    report = f"[name for name in {absent.split()} if name in sys.modules]"
    completing = {
        "_SCROLLMT_COMPLETE": "complete_bash",
        "COMP_WORDS": "scrollmt fi",
        "COMP_CWORD": "1",
    }
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            f"import atexit, sys; atexit.register(lambda: print('loaded:', {report})); {program}",
        ],
        env={**os.environ, **(completing if "prog_name" in program else {})},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "loaded: []"
    if "prog_name" in program:
        assert done.stdout.splitlines()[0] == "fit"


def test_every_public_name_is_listed_in_all_three_places() -> None:
    """What type checkers read, `__all__`, and what is imported at first use."""
    tree = ast.parse((PACKAGE / "__init__.py").read_text(encoding="utf-8"))
    block = next(node for node in tree.body if isinstance(node, ast.If))
    imports = [node for node in block.body if isinstance(node, ast.ImportFrom)]
    typed = {(node.module, alias.name) for node in imports for alias in node.names}
    lazy = {(f"scrollmt.{module}", name) for name, module in scrollmt._MODULE_OF.items()}
    assert typed == lazy
    assert sorted(name for _, name in typed) == sorted(scrollmt.__all__)
    assert set(scrollmt.__all__) <= set(dir(scrollmt))


def test_names_of_the_package_are_the_objects_of_their_modules() -> None:
    for name, module in scrollmt._MODULE_OF.items():
        assert getattr(scrollmt, name) is getattr(
            importlib.import_module(f"scrollmt.{module}"), name
        )
    assert scrollmt.scores is importlib.import_module("scrollmt.scores")
    assert scrollmt.__version__ == importlib.metadata.version("scrollmt")
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        scrollmt.nonsense  # noqa: B018


def test_a_module_imported_by_its_path_hides_no_function_of_the_package() -> None:
    program = """
import scrollmt.laws.frozen
from scrollmt import GaussianLaw
print(scrollmt.frozen(GaussianLaw([1.0], [2.0])).mean())
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[1.]"


def text_files() -> list[Path]:
    """Files that git tracks or would track; without git, what a source archive holds."""
    listing = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    if listing.returncode == 0:
        paths = [ROOT / name for name in listing.stdout.split("\0") if name]
    else:
        roots = [ROOT / name for name in ("src", "tests", "docs", "benchmarks", ".ci")]
        paths = [p for p in ROOT.iterdir() if p.is_file()]
        paths += [p for root in roots if root.exists() for p in root.rglob("*")]
    return [p for p in paths if p.is_file() and b"\0" not in p.read_bytes()]


# Addresses that differ from one machine to the next have no place in a file that all share.
PRIVATE = re.compile(
    r"""
      pypi\.org | pythonhosted\.org | npmjs\.org | deb\.debian\.org | download\.pytorch\.org
    | (?<![\w.~)}/-])/(?:work|tmp|home|root|Users|opt|mnt|farm)/\w
    | \b[A-Z]:\\\\?Users\\
    """,
    re.VERBOSE,
)


def test_tracked_files_name_no_registry_and_no_machine() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in text_files()
        for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1)
        if PRIVATE.search(line)
    ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    ("line", "private"),
    [
        ("https://pypi" + ".org/simple", True),
        ("path = '/" + "home/ann/data.csv'", True),
        ('open("/' + 'tmp/x")', True),
        ("cd /" + "work/here", True),
        ("#!/usr/bin/env bash", False),
        ("demo/home/work/file", False),
        ("https://www.apache.org/licenses/", False),
    ],
)
def test_the_privacy_rule_sees_what_it_should(line: str, private: bool) -> None:
    assert bool(PRIVATE.search(line)) == private


# A law is asked for what it can do. Whether it is of a number or of classes is a question about an
# abstract kind; its concrete class is nobody's business.
CONCRETE_LAWS = {
    "AffineLaw",
    "CategoricalLaw",
    "CensoredLaw",
    "CountLaw",
    "EventLaw",
    "GaussianLaw",
    "GaussianMixtureLaw",
    "HeadLaw",
    "MixtureLaw",
    "OrdinalLaw",
    "RecalibratedLaw",
    "SinhArcsinhLaw",
    "StudentTLaw",
    "TransformedLaw",
}
# Files in which `hasattr`, and `getattr` with a default, look at what is not ours, or at settings
# by name; what they look for.
PROBES = {
    "_io/lock.py": "the code of an SQLite error, which not every error has",
    "_io/reading.py": "flags of the operating system",
    "paper/arms/base.py": "parts of functions and of functools.partial",
    "_fitting/memory.py": "the operating system, and JAX's own variables",
    "cli/shell.py": "errors of click",
    "_data/frames.py": "arrays of xarray, without importing it",
    "fit.py": "the sharding that only arrays of JAX have",
    "report/pages/drawing.py": "figures and axes of matplotlib",
    "paper/arena/records.py": "the code of an SQLite error",
    "plots/alone.py": "tables by name, of any library",
    "_io/store/parts.py": "the floor of a covariance, which not every belief has",
    # Attributes that scikit-learn wants to be absent before a fit, or without column names.
    "cli/models.py": "feature_names_in_",
    "export.py": "feature_names_in_",
    "forecaster.py": "feature_names_in_ and model_",
    "report/card.py": "feature_names_in_",
    "report/assessment.py": "recipe_",
    "_io/store/estimator.py": "feature_names_in_",
}


def probes(source: str) -> list[str]:
    """Lines that look at the class of a law, or probe an object for an attribute."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            if node.func.id in ("isinstance", "issubclass"):
                names = {n.id for n in ast.walk(node.args[1]) if isinstance(n, ast.Name)}
                names |= {n.attr for n in ast.walk(node.args[1]) if isinstance(n, ast.Attribute)}
                found += [f"line {node.lineno}: {name}" for name in sorted(names & CONCRETE_LAWS)]
            probe = node.func.id == "hasattr" or (node.func.id == "getattr" and len(node.args) > 2)
            found += [f"line {node.lineno}: {node.func.id}"] * probe
        elif isinstance(node, ast.alias) and node.name == "singledispatch":
            found.append("singledispatch")
    return found


@pytest.mark.parametrize("path", SOURCES, ids=lambda p: ".".join(module_of(p)[1:]))
def test_a_law_is_asked_and_never_looked_at(path: Path) -> None:
    found = probes(path.read_text(encoding="utf-8"))
    if path.relative_to(PACKAGE).as_posix() in PROBES:
        found = [one for one in found if not one.endswith(("hasattr", "getattr"))]
    assert not found, "; ".join(found)


@pytest.mark.parametrize(
    ("source", "count"),
    [
        ("isinstance(law, GaussianLaw | RealLaw)", 1),
        ("isinstance(law, (laws.EventLaw, CountLaw))", 2),
        ("hasattr(law, 'mean')", 1),
        ("getattr(law, 'mean', None)", 1),
        ("from functools import singledispatch", 1),
        ("isinstance(law, RealLaw | DiscreteLaw)", 0),
        ("getattr(np, name)", 0),
    ],
)
def test_the_rule_on_laws_sees_every_form(source: str, count: int) -> None:
    assert len(probes(source)) == count
