"""A belief from outside the package: its line, its folder, its ONNX graph, its mistakes."""

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import onnxruntime
import pytest
from jaxtyping import Array
from scipy import stats
from sklearn.base import clone

from scrollmt import Forecaster, load
from scrollmt._io.store import ModelFolderError
from scrollmt.beliefs import AbstractBelief, Full, LowRank, Point, Rows
from scrollmt.export import to_onnx
from small import TASKS, assert_same, numbers, tiny, windows
from test_outside import Blocks

BELIEFS: dict[str, Any] = {"state": Blocks.of(groups=2), "event": LowRank.of(rank=2)}
X, Y = windows()
NEW, _ = windows(13, seed=1)


@pytest.fixture(scope="module")
def fitted() -> Forecaster:
    return tiny(belief={**BELIEFS, "regime": "full"}, ensemble=2, refit=True).fit(X, Y)


@pytest.fixture(scope="module")
def saved(fitted: Forecaster, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("outside") / "model"
    fitted.save(path)
    return path


@pytest.mark.slow
def test_a_strangers_belief_fits_beside_ours_in_one_model(fitted: Forecaster) -> None:
    tasks = fitted.model_.tasks
    kinds = {name: type(task.belief) for name, task in tasks.items()}
    assert kinds == {"state": Blocks, "event": LowRank, "regime": Full}
    # Its line against its own covariance, written out.
    state = tasks["state"]
    belief: Any = state.belief
    assert belief.shifts.shape == (2, 2, 4)
    psi = np.asarray(fitted.model_.features(jnp.asarray(NEW, jnp.float32)), np.float64)
    mean, var = fitted.model_.project(jnp.asarray(NEW, jnp.float32))["state"]
    np.testing.assert_allclose(mean, psi @ np.asarray(belief.mu), rtol=1e-4, atol=1e-5)
    cov = np.asarray(belief.cov(), np.float64)
    np.testing.assert_allclose(var, np.einsum("ni,ij,nj->n", psi, cov, psi), rtol=1e-4)
    # Training has moved it, and its prior term is the one that the contract asks for.
    starts = Blocks.init(4, jax.random.key(0), rows=1, cov_floor=0.0)
    assert float(belief.log_sd) != float(starts.log_sd)
    total = cov + np.eye(4) / float(state.prior_precision)
    want = -stats.multivariate_normal.logpdf(np.asarray(belief.mu), np.zeros(4), total)
    assert float(belief.overlap(state.prior_precision)) == pytest.approx(want, rel=1e-4)


def test_a_mapping_of_beliefs_goes_through_scikit_learn(fitted: Forecaster) -> None:
    copy = clone(fitted)
    assert copy.get_params()["belief"] == fitted.belief
    assert_same(numbers(copy.fit(X, Y), NEW), numbers(fitted, NEW))


def test_a_strangers_belief_is_saved_and_loaded_by_its_class(
    fitted: Forecaster, saved: Path, tmp_path: Path
) -> None:
    back = load(saved, custom=[Blocks])
    assert_same(numbers(back, NEW), numbers(fitted, NEW))
    assert back.belief == fitted.belief
    back.save(tmp_path / "again")
    first, second = (
        json.loads((p / "model.json").read_text()) for p in (saved, tmp_path / "again")
    )
    assert first == second


def test_without_its_class_a_model_is_refused_in_one_sentence(saved: Path) -> None:
    with pytest.raises(ModelFolderError, match=r"task 'state': the belief is a Blocks.*custom=\[B"):
        load(saved)
    with pytest.raises(ModelFolderError, match=r"the belief is a Blocks"):
        load(saved, custom=[LowRank])
    # Of the right name, and no belief.
    with pytest.raises(ModelFolderError, match=r"the belief is a Blocks"):
        load(saved, custom=[type("Blocks", (eqx.Module,), {})])


def test_a_class_that_has_changed_is_refused(saved: Path) -> None:
    def line(self: AbstractBelief, read: Rows) -> tuple[Array, Array]:
        mean, var = AbstractBelief.line(self, read)
        return mean, 2.0 * var

    other = type("Blocks", (Blocks,), {"line": line})
    with pytest.raises(ModelFolderError, match="computes something else than the saved one"):
        load(saved, custom=[other])
    fewer = type("Blocks", (Point,), {})
    with pytest.raises(ModelFolderError, match=r"Blocks has the fields \['mu'\].*'groups'"):
        load(saved, custom=[fewer])
    with pytest.raises(ValueError, match="two different classes named 'Blocks'"):
        load(saved, custom=[Blocks, other])


@pytest.mark.slow
def test_loading_imports_nothing_by_a_stored_name(saved: Path, tmp_path: Path) -> None:
    """A module of the stored class's name lies on the path, and is never executed."""
    trap = "import pathlib; pathlib.Path(__file__).with_name('sprung').touch()\n"
    for name in {
        "Blocks",
        Blocks.__module__,
        json.loads((saved / "model.json").read_text())["format"],
    }:
        (tmp_path / f"{name}.py").write_text(trap)
    script = """
        import sys, scrollmt
        try:
            scrollmt.load(sys.argv[1])
        except scrollmt._io.store.ModelFolderError as error:
            print(error)
    """
    done = subprocess.run(
        [sys.executable, "-c", "import scrollmt._io.store" + textwrap.dedent(script), str(saved)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "the belief is a Blocks" in done.stdout
    assert not (tmp_path / "sprung").exists()


def test_a_strangers_belief_is_exported_from_its_rows(fitted: Forecaster) -> None:
    session = onnxruntime.InferenceSession(to_onnx(fitted).SerializeToString())
    names = [output.name for output in session.get_outputs()]
    found = dict(zip(names, session.run(None, {"X": NEW}), strict=True))
    laws: Any = fitted.predict(NEW)
    np.testing.assert_allclose(found["state_mean"], laws["state"].mean, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(found["state_sd"], laws["state"].sd, rtol=1e-4)
    np.testing.assert_allclose(found["event_probs"], laws["event"].probs, rtol=1e-4)


class Inflated(Blocks):
    """A variance that is more than its rows say."""

    def line(self, read: Rows) -> tuple[Array, Array]:
        mean, var = super().line(read)
        return mean, 1.5 * var


def test_a_variance_that_the_rows_do_not_state_is_not_exported() -> None:
    model = tiny({"state": TASKS["state"]}, belief=Inflated).fit(X, Y["state"])
    with pytest.raises(ValueError, match=r"task 'state': Inflated has a `line` of its own"):
        to_onnx(model)
