"""What stands around the package: dependencies, workflows, citation, marks of tests, alarms."""

import ast
import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from test_docs import ROOT, known_targets

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
GITHUB = ROOT / ".github"

# Distributions whose module has another name.
MODULES = {"laplace-torch": "laplace", "scikit-learn": "sklearn", "pyyaml": "yaml"}
# Declared and imported by nothing here: who calls for them.
NOT_IMPORTED = {
    "pytest-xdist": "Makefile",
    "ruff": "Makefile",
    "mypy": "Makefile",
    "mkdocs-material": "mkdocs.yml",
    "mkdocstrings": "mkdocs.yml",
    "check-jsonschema": "tests/test_project.py",
    "zizmor": "tests/test_project.py",
}
# Imported by peers and declared by no extra, since what they declare themselves excludes the
# versions of the other peers; scrollmt.paper.peers says how they are installed.
UNDECLARED = {"gpflow", "tensorflow", "treeffuser", "xgboost", "xgboostlss"}


# Dependencies


def third_party(*folders: str) -> set[str]:
    """Top-level modules that files below these folders import, without Python's and our own."""
    found = set()
    ours = {"scrollmt"}
    for folder in folders:
        ours |= {path.stem for path in (ROOT / folder).glob("*.py")}
        ours |= {path.parent.name for path in (ROOT / folder).glob("*/__init__.py")}
    for path in (path for folder in folders for path in (ROOT / folder).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                found |= {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and not node.level:
                found.add(str(node.module).split(".")[0])
    return found - ours - sys.stdlib_module_names


def declared(*extras: str) -> set[str]:
    """Modules of the dependencies, and of those of extras, that are imported somewhere."""
    texts = list(PROJECT["project"]["dependencies"])
    for extra in extras:
        texts += PROJECT["project"]["optional-dependencies"][extra]
    names = {re.split(r"[\[<>=! ]", text)[0].lower() for text in texts}
    return {MODULES.get(name, name) for name in names - NOT_IMPORTED.keys() - {"scrollmt"}}


EXTRAS = ("parquet", "xarray", "onnx", "cluster")


def test_the_package_imports_what_it_declares_and_nothing_else() -> None:
    imported = third_party("src/scrollmt")
    assert declared() - imported == set(), "declared and not imported"
    allowed = declared(*EXTRAS, "peers", "baselines") | UNDECLARED
    assert imported - allowed == set(), "imported and not declared"


def test_every_extra_is_used() -> None:
    everywhere = third_party("src/scrollmt", "tests", "benchmarks", "docs")
    unused = declared(*EXTRAS, "baselines", "bench", "peers", "docs", "dev") - everywhere
    assert unused == set()
    for name, where in NOT_IMPORTED.items():
        word = {"pytest-xdist": "-n 2", "mkdocs-material": "name: material"}.get(name, name)
        assert word in (ROOT / where).read_text(encoding="utf-8"), f"{where} has no {word}"


def test_the_tests_import_what_the_extra_dev_declares() -> None:
    assert third_party("tests") - declared("dev", "docs") == set()


def test_the_benchmarks_import_what_their_extras_declare() -> None:
    assert third_party("benchmarks") - declared("bench", "baselines", "peers") == set()


def test_every_declared_version_is_in_the_constraints() -> None:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()[1:]
    pinned = dict(line.split("==") for line in lines)
    names = {name.lower().replace("_", "-") for name in pinned}
    extras = PROJECT["project"]["optional-dependencies"].values()
    texts = PROJECT["project"]["dependencies"] + [text for extra in extras for text in extra]
    wanted = {re.split(r"[\[<>=! ]", text)[0].lower() for text in texts} - {"scrollmt"}
    assert wanted - names == set()
    # Both ways of running ruff format alike.
    hooks = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8"))
    assert hooks["repos"][0]["rev"] == f"v{pinned['ruff']}"


# Workflows and other files that services read


SCHEMAS = {
    "vendor.github-workflows": ".github/workflows/*.yml",
    "custom.github-workflows-require-timeout": ".github/workflows/*.yml",
    "vendor.github-issue-forms": ".github/ISSUE_TEMPLATE/[!c]*.yml",
    "vendor.github-issue-config": ".github/ISSUE_TEMPLATE/config.yml",
    "vendor.dependabot": ".github/dependabot.yml",
    "vendor.citation-file-format": "CITATION.cff",
}


def checked(schema: str, *paths: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "check_jsonschema", "--builtin-schema", schema, *map(str, paths)],
        capture_output=True,
        text=True,
    )


@pytest.mark.parametrize("schema", SCHEMAS)
def test_files_for_services_follow_their_schema(schema: str) -> None:
    paths = sorted(ROOT.glob(SCHEMAS[schema]))
    assert paths
    done = checked(schema, *paths)
    assert done.returncode == 0, done.stdout + done.stderr


def audited(folder: Path) -> subprocess.CompletedProcess[str]:
    program = Path(sys.executable).with_name("zizmor")
    return subprocess.run(
        [str(program), "--offline", "--no-progress", "--persona", "pedantic", str(folder)],
        capture_output=True,
        text=True,
    )


def test_workflows_have_few_permissions_and_pinned_actions() -> None:
    done = audited(ROOT)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_careless_workflow_is_found(tmp_path: Path) -> None:
    folder = tmp_path / ".github" / "workflows"
    folder.mkdir(parents=True)
    text = (GITHUB / "workflows" / "docs.yml").read_text(encoding="utf-8")
    (folder / "docs.yml").write_text(text.replace("contents: read", "contents: write"))
    done = audited(tmp_path)
    assert done.returncode > 1
    assert "excessive-permissions" in done.stdout
    (folder / "docs.yml").write_text(text.replace("runs-on:", "run-on:"))
    assert checked("vendor.github-workflows", folder / "docs.yml").returncode == 1


def workflow(name: str) -> Any:
    text = (GITHUB / "workflows" / f"{name}.yml").read_text(encoding="utf-8")
    return yaml.load(text, yaml.BaseLoader)


def test_the_workflows_call_what_there_is() -> None:
    commands = [
        step["run"]
        for path in (GITHUB / "workflows").glob("*.yml")
        for job in workflow(path.stem)["jobs"].values()
        for step in job["steps"]
        if "run" in step
    ]
    for command in commands:
        called = re.findall(r"^make ([\w-]+)", command, re.MULTILINE)
        assert set(called) <= known_targets()
        for file in re.findall(r"\.ci/\w+|benchmarks/\w+\.\w+", command):
            assert (ROOT / file).is_file(), f"{command}: there is no {file}"
    assert ".ci/run" in commands


def test_every_python_of_the_classifiers_is_tested() -> None:
    matrix = workflow("tests")["jobs"]["tests"]["strategy"]["matrix"]
    classifiers = "\n".join(PROJECT["project"]["classifiers"])
    assert matrix["python"] == re.findall(r"Python :: (3\.\d+)", classifiers)
    assert len(matrix["system"]) == 2


def test_only_the_job_that_publishes_can_be_recognised_by_the_index() -> None:
    jobs = workflow("release")["jobs"]
    assert jobs["publish"]["permissions"] == {"id-token": "write"}
    assert "permissions" not in jobs["build"]
    assert "secrets." not in (GITHUB / "workflows" / "release.yml").read_text(encoding="utf-8")


def test_the_citation_names_this_version_and_the_paper() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert citation["version"] == PROJECT["project"]["version"]
    assert citation["license"] == PROJECT["project"]["license"]
    readme = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())
    assert citation["preferred-citation"]["title"] in readme


# What the tests leave out


BROWSERLESS = """
import pytest

@pytest.mark.browser
def test_page():
    import browser
    browser.find()
"""


@pytest.mark.slow
@pytest.mark.parametrize("required", [False, True])
def test_without_a_browser_its_tests_are_named_or_fail(required: bool, tmp_path: Path) -> None:
    (tmp_path / "test_page.py").write_text(BROWSERLESS)
    kept = {k: v for k, v in os.environ.items() if k not in ("CHROME", "CHROMEDRIVER")}
    kept.pop("SCROLLMT_REQUIRE_BROWSER", None)
    needed = {"SCROLLMT_REQUIRE_BROWSER": "1"} if required else {}
    options = ("-q", "-rs", "-n", "0", "-p", "conftest", "-p", "no:cacheprovider")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, "-c", str(ROOT / "pyproject.toml"), tmp_path],
        env={**kept, **needed, "PATH": str(tmp_path), "PYTHONPATH": str(ROOT / "tests")},
        capture_output=True,
        text=True,
    )
    if required:
        assert "1 failed" in done.stdout
    else:
        assert "1 skipped" in done.stdout
        assert "`make browser` installs one" in done.stdout


def test_only_make_browser_installs_packages_of_the_system() -> None:
    rules = re.findall(r"^([a-z]+):(.*)\n((?:\t.*\n)*)", (ROOT / "Makefile").read_text(), re.M)
    install = {name for name, needs, recipe in rules if "browser.py" in recipe}
    assert install == {"browser"}
    assert not [name for name, needs, _ in rules if "browser" in needs.split()]


# Alarms


def alarm(tmp_path: Path, **changed: float) -> subprocess.CompletedProcess[str]:
    reference = ROOT / "benchmarks" / "step_reference.json"
    found = json.loads(reference.read_text(encoding="utf-8"))
    for name, factor in changed.items():
        found["times the floor"][name.replace("_", " ")] *= factor
    (tmp_path / "new.json").write_text(json.dumps(found))
    program = ROOT / "benchmarks" / "alarm.py"
    return subprocess.run(
        [sys.executable, str(program), str(tmp_path / "new.json"), str(reference)],
        capture_output=True,
        text=True,
    )


def test_a_slower_step_raises_the_alarm(tmp_path: Path) -> None:
    assert alarm(tmp_path, diag_tanh=1.25).returncode == 0
    done = alarm(tmp_path, diag_tanh=1.35, full_tanh=1.1)
    assert done.returncode == 1
    assert done.stderr == "slower by more than 1.3x: diag tanh\n"


def test_the_reference_of_the_alarm_is_the_table_of_the_page() -> None:
    text = (ROOT / "benchmarks" / "step_reference.json").read_text(encoding="utf-8")
    page = (ROOT / "docs" / "results" / "speed.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (none|diag|full) \| (tanh\S*) \| \S+ \| (\S+) \|", page, re.MULTILINE)
    assert json.loads(text)["times the floor"] == {f"{b} {n}": float(x) for b, n, x in rows}
