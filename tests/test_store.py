"""Models on disk: what comes back is the model that was saved, or a clear refusal."""

import json
import os
import re
import shutil
import signal
import stat
import struct
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from safetensors.numpy import load_file, save_file
from sklearn.base import clone

from scrollmt import Categorical, Forecaster, Gaussian, Ordinal, load, rescale_task
from scrollmt._io.store import ModelFolderError, folder, parts
from scrollmt._io.store.beliefs import choices_from_json, choices_to_json
from scrollmt._io.store.custom import fields_of, from_fields, read_classes
from scrollmt.backbone import Dense
from scrollmt.beliefs import BELIEFS, Choices, Diag, LowRank, Start
from scrollmt.heads import AbstractHead
from scrollmt.model import Model, Task, build
from scrollmt.presets import DEFAULT, PAPER, Preset
from small import STATE, TASKS, TINY, assert_same, numbers, tables, tiny, windows

NEW, NEW_Y = windows(13, seed=1)


@pytest.fixture(scope="module")
def fitted() -> Forecaster:
    return tiny(seed=3).fit(*tables())


@pytest.fixture(scope="module")
def saved(fitted: Forecaster, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("store") / "model"
    fitted.save(path)
    return path


@pytest.fixture
def copied(saved: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(saved, tmp_path / "model"))


def strict(token: str) -> None:
    raise AssertionError(f"{token} is not JSON")


def read_json(path: Path) -> dict[str, Any]:
    return json.loads((path / "model.json").read_text(), parse_constant=strict)


def resigned(path: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Edit a description and sign it again: what a hostile or confused writer could do."""
    content = read_json(path)
    del content["sha256"]
    change(content)
    content["sha256"] = folder._digest(content, (path / "model.safetensors").read_bytes())
    (path / "model.json").write_text(json.dumps(content))


# There and back


def test_a_loaded_model_is_the_saved_one(fitted: Forecaster, saved: Path) -> None:
    back = load(saved)
    assert_same(numbers(back, NEW), numbers(fitted, NEW))
    assert back.evaluate(NEW, NEW_Y).equals(fitted.evaluate(NEW, NEW_Y))
    assert list(back.tasks) == list(TASKS)
    assert repr(back) == repr(fitted)
    assert back.preset == TINY
    for name in ("belief", "backbone", "validation", "seed", "verbose"):
        assert getattr(back, name) == getattr(fitted, name)
    pd.testing.assert_frame_equal(back.history_, fitted.history_)
    pd.testing.assert_frame_equal(back.candidates_, fitted.candidates_)
    assert back.validation_nll_ == fitted.validation_nll_
    assert back.stop_reason_ == fitted.stop_reason_
    assert back.n_features_in_ == 3
    assert list(back.feature_names_in_) == ["a", "b", "c"]
    learned = {name for name in vars(fitted) if name.endswith("_")}
    assert {name for name in vars(back) if name.endswith("_")} == learned
    # It can be fitted anew, and starts where the saved one started.
    assert_same(numbers(clone(back).fit(*tables()), NEW), numbers(fitted, NEW))


def test_steps_and_patience_are_saved_and_older_folders_have_none(
    saved: Path, tmp_path: Path
) -> None:
    older = load(saved)
    assert {"steps", "patience"}.isdisjoint(read_json(saved)["estimator"])
    assert (older.steps, older.patience) == (None, None)
    older.set_params(preset="quick", steps=np.int64(12), patience=4).save(tmp_path / "new")
    back = load(tmp_path / "new")
    assert (back.preset, back.steps, back.patience) == ("quick", 12, 4)


def test_a_loaded_model_saves_to_the_same_folder(saved: Path, tmp_path: Path) -> None:
    again = tmp_path / "again"
    load(saved).save(again)
    assert read_json(again) == read_json(saved)
    name = "model.safetensors"
    assert (again / name).read_bytes() == (saved / name).read_bytes()


def test_the_folder_holds_strict_json_and_safetensors_and_nothing_else(saved: Path) -> None:
    assert sorted(p.name for p in saved.iterdir()) == ["model.json", "model.safetensors"]
    content = read_json(saved)
    assert content["format"] == "scrollmt model"
    assert content["schema_version"] == 1
    arrays = load_file(saved / "model.safetensors")
    assert all(a.dtype == np.float32 for a in arrays.values())
    umask = os.umask(0)
    os.umask(umask)
    assert stat.S_IMODE(saved.stat().st_mode) == 0o777 & ~umask


@pytest.mark.slow
def test_a_fresh_process_predicts_the_same_bits(
    fitted: Forecaster, saved: Path, tmp_path: Path
) -> None:
    np.save(tmp_path / "x.npy", NEW)
    script = """
        import sys, numpy as np, scrollmt
        from small import numbers
        folder, x, out = sys.argv[1:]
        np.savez(out, **numbers(scrollmt.load(folder), np.load(x)))
    """
    arguments = [str(saved), str(tmp_path / "x.npy"), str(tmp_path / "out.npz")]
    subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script), *arguments],
        cwd=Path(__file__).parent,
        check=True,
    )
    with np.load(tmp_path / "out.npz") as found:
        assert_same(dict(found), numbers(fitted, NEW))


@pytest.mark.parametrize("belief", list(BELIEFS))
def test_every_belief_and_head_survives(belief: str) -> None:
    heads = {"a": Gaussian(0.3), "b": Ordinal(2), "c": Ordinal(5)}
    if belief == "none":
        heads["d"] = Categorical(3)
    net = Dense(2, (5, 4), activation="gelu", bias=True, norm=True, key=jax.random.key(1))
    keys = jax.random.split(jax.random.key(2))
    begin = Start(prior_precision=0.1, precision_sd=2.0)
    start = build(net, heads, features=4, belief=belief, key=keys[0], cov_floor=1e-3, start=begin)
    leaves, tree = jax.tree.flatten(start)
    noise = [jax.random.normal(k, a.shape) for k, a in zip(_keys(leaves), leaves, strict=True)]
    model = jax.tree.unflatten(tree, noise)
    if belief != "none":
        # Floors that differ by task, as a change of units leaves them.
        model = rescale_task(model, "a", 8.0, scale_floor=True)
    description, arrays = parts.model_to_parts(model, 2)
    back = parts.model_from_parts(json.loads(json.dumps(description)), arrays)
    assert eqx.tree_equal(back, model)


class TwoLines(AbstractHead):
    """A value with a noise that depends on the input: the second line is its log sd."""

    @property
    def rows(self) -> int:
        return 2

    @property
    def point_only(self) -> bool:
        return False

    def log_predictive(self, y: jax.Array, mean: jax.Array, var: jax.Array) -> jax.Array:
        sd = jnp.sqrt(var[..., 0] + jnp.exp(2.0 * mean[..., 1] + 2.0 * var[..., 1]))
        return jax.scipy.stats.norm.logpdf(y, mean[..., 0], sd)


@pytest.mark.parametrize("belief", list(BELIEFS))
def test_a_belief_over_several_lines_survives(belief: str) -> None:
    net = Dense(2, (4,), activation="tanh", bias=False, norm=False, key=jax.random.key(1))
    heads = {"a": TwoLines()}
    key = jax.random.key(2)
    model = build(net, heads, features=4, belief=belief, key=key, cov_floor=1e-3)
    assert model.tasks["a"].belief.mu.shape == (2, 4)
    description, arrays = parts.model_to_parts(model, 2)
    stored = json.loads(json.dumps(description))
    back = parts.model_from_parts(stored, arrays, custom={"TwoLines": TwoLines})
    assert eqx.tree_equal(back, model)


def _keys(leaves: list[Any]) -> jax.Array:
    return jax.random.split(jax.random.key(3), len(leaves))


@pytest.mark.parametrize("preset", [PAPER, DEFAULT, TINY, replace(DEFAULT, committee=None)])
def test_presets_survive_by_their_fields(preset: Preset) -> None:
    stored = json.loads(json.dumps(parts.preset_to_json(preset)))
    assert parts.preset_from_json(stored) == preset
    assert parts.preset_from_json(json.loads(json.dumps(parts.preset_to_json("paper")))) == "paper"


def test_only_a_plain_preset_can_be_saved() -> None:
    class Mine(Preset):
        pass

    fields = {name: getattr(TINY, name) for name in TINY.__dataclass_fields__}
    with pytest.raises(ValueError, match="preset is a Mine"):
        parts.preset_to_json(Mine(**fields))


def test_tables_keep_their_types_and_what_is_not_finite_becomes_null() -> None:
    table = pd.DataFrame(
        {
            "name": ["a", "b"],
            "nll": [1.5, np.nan],
            "failed": [np.nan, np.inf],
            "steps": [3, 4],
            "chosen": [True, False],
        }
    )
    stored = parts.table_to_dict(table)
    assert stored["failed"] == [None, None]
    back = parts.table_from_dict(json.loads(json.dumps(stored, allow_nan=False)))
    pd.testing.assert_frame_equal(back, table.replace(np.inf, np.nan))
    empty = table.iloc[:0]
    assert list(parts.table_from_dict(parts.table_to_dict(empty))) == list(table)


def test_numpy_scalars_and_failed_runs_do_not_stand_in_the_way(
    fitted: Forecaster, tmp_path: Path
) -> None:
    model = clone(fitted).set_params(
        seed=np.int64(3), verbose=np.bool_(False), validation=np.float32(0.25)
    )
    vars(model).update({k: v for k, v in vars(fitted).items() if k.endswith("_")})
    model.validation_nll_ = np.float64(fitted.validation_nll_)
    model.candidates_ = fitted.candidates_.assign(validation_nll=np.inf)
    model.save(tmp_path / "model")
    read_json(tmp_path / "model")
    back = load(tmp_path / "model")
    assert (back.seed, back.verbose, back.validation) == (3, False, 0.25)
    assert np.isnan(back.candidates_["validation_nll"]).all()
    assert back.validation_nll_ == fitted.validation_nll_
    assert_same(numbers(back, NEW), numbers(fitted, NEW))


def test_validation_windows_are_not_stored_and_their_lack_is_told(
    fitted: Forecaster, tmp_path: Path
) -> None:
    X, Y = windows(48)
    model = tiny(validation=(NEW[:12], {n: y[:12] for n, y in NEW_Y.items()})).fit(X, Y)
    model.save(tmp_path / "model")
    back = load(tmp_path / "model")
    assert_same(numbers(back, NEW), numbers(model, NEW))
    with pytest.raises(ValueError, match=r"validation must be .* which is not stored"):
        back.fit(X, Y)


# A backbone of the user's own


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> tuple[Forecaster, Path]:
    net = eqx.nn.MLP(3, 4, 5, 1, activation=jnp.tanh, key=jax.random.key(7))
    X, Y = windows()
    model = tiny(STATE, backbone=net).fit(X, Y["state"])
    path = tmp_path_factory.mktemp("own") / "model"
    model.save(path)
    return model, path


def test_a_given_backbone_is_given_again(own: tuple[Forecaster, Path]) -> None:
    model, path = own
    # Other starting weights, same structure: the stored arrays take their place.
    net = eqx.nn.MLP(3, 4, 5, 1, activation=jnp.tanh, key=jax.random.key(99))
    back = load(path, backbone=net)
    assert_same(numbers(back, NEW), numbers(model, NEW))
    assert back.backbone is net


def test_another_backbone_is_refused(own: tuple[Forecaster, Path], saved: Path) -> None:
    _, path = own
    key = jax.random.key(7)
    with pytest.raises(ModelFolderError, match=r"backbone is a MLP.*load\(path, backbone="):
        load(path)
    with pytest.raises(ModelFolderError, match=r"do not fit.*expected shape \(6,\), found \(5,\)"):
        load(path, backbone=eqx.nn.MLP(3, 4, 6, 1, activation=jnp.tanh, key=key))
    with pytest.raises(ModelFolderError, match="computes something else"):
        load(path, backbone=eqx.nn.MLP(3, 4, 5, 1, activation=jax.nn.relu, key=key))
    with pytest.raises(ModelFolderError, match="do not fit"):
        load(path, backbone=eqx.nn.Linear(3, 4, key=key))
    with pytest.raises(ModelFolderError, match="leave out backbone="):
        load(saved, backbone=eqx.nn.Linear(3, 4, key=key))


# Heads and beliefs of the user's own, by their classes


class Wide(Diag):
    """A belief of the user's own, with a field that is code."""

    link: Callable[[float], float] = eqx.field(static=True, default=abs)


def test_custom_takes_a_list_of_classes() -> None:
    assert read_classes([Diag, Gaussian]) == {"Diag": Diag, "Gaussian": Gaussian}
    for wrong in (Diag, "Diag", {"Diag": Diag}):
        with pytest.raises(TypeError, match="custom must be a list of classes"):
            read_classes(wrong)
    for part in (dict, Gaussian(), "Diag"):
        with pytest.raises(TypeError, match="custom must be a list of Equinox modules' classes"):
            read_classes([part])


class Part(eqx.Module):
    scale: jax.Array
    limits: tuple[float | None, ...] = eqx.field(static=True)


class Whole(eqx.Module):
    parts: dict[str, Part]
    tags: list[str]
    count: int
    nothing: None = None


def test_a_module_comes_back_from_its_fields_and_its_class() -> None:
    whole = Whole({"a": Part(jnp.arange(3.0), (0.5, None)), "b": Part(jnp.ones(()), ())}, ["x"], 2)
    stored = json.loads(json.dumps(fields_of(whole)))
    skeleton = from_fields(Whole, stored, {"Part": Part})
    assert eqx.tree_equal(parts._filled(skeleton, parts._arrays(whole)), whole)
    with pytest.raises(ModelFolderError, match=r"a part is a Part; pass its class too"):
        from_fields(Whole, stored, {})
    with pytest.raises(TypeError, match=r"Part.limits: a float cannot be written"):
        fields_of(Part(jnp.ones(()), (np.inf,)))


@pytest.mark.parametrize(
    "given",
    ["full", Diag, LowRank, LowRank.of(rank=3), {"a": LowRank.of(), "b": Wide, "c": "none"}],
    ids=repr,
)
def test_the_choice_of_beliefs_survives(given: Choices) -> None:
    stored = json.loads(json.dumps(choices_to_json(given)))
    assert choices_from_json(stored, {"Wide": Wide}) == given


# What cannot be saved


def test_what_cannot_be_rebuilt_is_refused_before_anything_is_written(
    fitted: Forecaster, tmp_path: Path
) -> None:
    task = fitted.model_.tasks["state"]

    def with_state(task: Task) -> Forecaster:
        model = clone(fitted)
        vars(model).update({k: v for k, v in vars(fitted).items() if k.endswith("_")})
        model.model_ = Model(fitted.model_.backbone, {**fitted.model_.tasks, "state": task})
        model.members_ = [model.model_]
        return model

    assert isinstance(task.belief, Diag)
    belief = Wide(task.belief.mu, task.belief.log_sd, 1e-4)
    with pytest.raises(ValueError, match=r"task 'state'.*cannot be saved: Wide\.link: a builtin"):
        with_state(Task(task.head, belief, task.log_prior_precision)).save(tmp_path / "model")
    replaced = with_state(task)
    replaced.members_ = fitted.members_
    with pytest.raises(ValueError, match="model_ is none of the members_"):
        replaced.save(tmp_path / "model")
    assert list(tmp_path.iterdir()) == []


def test_a_number_that_is_not_finite_is_never_written(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        folder.write_folder(tmp_path / "model", {"scale": float("nan")}, {})
    with pytest.raises(TypeError, match="a set cannot be saved"):
        folder.write_folder(tmp_path / "model", {"scale": {1}}, {})
    assert list(tmp_path.iterdir()) == []


# Saving spares what is there


def test_saving_never_overwrites(fitted: Forecaster, tmp_path: Path) -> None:
    full = tmp_path / "full"
    full.mkdir()
    (full / "notes.txt").write_text("precious")
    with pytest.raises(FileExistsError, match="not an empty folder"):
        fitted.save(full)
    with pytest.raises(FileExistsError, match="not an empty folder"):
        fitted.save(full / "notes.txt")
    assert [p.name for p in tmp_path.rglob("*")] == ["full", "notes.txt"]
    assert (full / "notes.txt").read_text() == "precious"
    empty = tmp_path / "a" / "b"
    fitted.save(empty)
    with pytest.raises(FileExistsError, match="not an empty folder"):
        fitted.save(empty)
    ready = tmp_path / "ready"
    ready.mkdir()
    fitted.save(f"{ready}/")
    for path in (empty, ready):
        assert_same(numbers(load(path), NEW), numbers(fitted, NEW))


@pytest.mark.parametrize("write", ["write_bytes", "write_text", "rename"])
def test_an_interrupted_save_leaves_nothing(
    fitted: Forecaster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, write: str
) -> None:
    def interrupted(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, write, interrupted)
    with pytest.raises(KeyboardInterrupt):
        fitted.save(tmp_path / "model")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_a_killed_save_leaves_no_half_folder(tmp_path: Path) -> None:
    script = """
        import os, signal, sys
        from pathlib import Path
        import numpy as np
        from scrollmt._io.store import folder

        def die(*_, **__):
            os.kill(os.getpid(), signal.SIGKILL)

        Path.write_text = die  # the arrays are on disk by then, the description is not
        folder.write_folder(sys.argv[1], {}, {"a": np.zeros(3)})
    """
    target = tmp_path / "model"
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(script), str(target)])
    assert done.returncode == -9
    assert not target.exists()
    (left,) = tmp_path.iterdir()
    assert left.name.startswith(".model-")
    assert [p.name for p in (left / "model").iterdir()] == ["model.safetensors"]
    with pytest.raises(ModelFolderError, match=r"needs model\.json"):
        load(left / "model")
    with pytest.raises(ModelFolderError, match="is not a folder"):
        load(target)
    folder.write_folder(target, {}, {"a": np.zeros(3)})
    assert [p.name for p in tmp_path.iterdir()] == ["model"]


def test_a_model_is_not_saved_through_a_link(fitted: Forecaster, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "link").symlink_to("elsewhere")
    with pytest.raises(FileExistsError, match="link is a link to elsewhere"):
        fitted.save(tmp_path / "link")
    assert list((tmp_path / "elsewhere").iterdir()) == []


# Folders that are not, or no longer, a model


def truncate(path: Path, name: str, keep: float) -> None:
    data = (path / name).read_bytes()
    (path / name).write_bytes(data[: int(keep * len(data))])


@pytest.mark.parametrize("name", ["model.json", "model.safetensors"])
@pytest.mark.parametrize("keep", [0.0, 0.3, 0.999])
def test_a_truncated_file_is_refused(copied: Path, name: str, keep: float) -> None:
    truncate(copied, name, keep)
    with pytest.raises(ModelFolderError, match=r"damaged|SHA-256"):
        load(copied)


@pytest.mark.parametrize("name", ["model.json", "model.safetensors"])
def test_a_missing_file_is_named(copied: Path, name: str) -> None:
    (copied / name).unlink()
    with pytest.raises(ModelFolderError, match=rf"(?s)not a scrollmt model.*{name}"):
        load(copied)
    (copied / name).mkdir()
    with pytest.raises(ModelFolderError, match=rf"(?s)not a scrollmt model.*{name}"):
        load(copied)


def test_an_edited_value_is_noticed(copied: Path, fitted: Forecaster) -> None:
    text = (copied / "model.json").read_text()
    content = json.loads(text)
    offset = content["scales"]["offset"]["state"]
    (copied / "model.json").write_text(text.replace(repr(offset), repr(offset + 1e-9)))
    with pytest.raises(ModelFolderError, match="SHA-256 does not match"):
        load(copied)
    # Only the layout differs: the same model.
    (copied / "model.json").write_text(json.dumps(content))
    assert_same(numbers(load(copied), NEW), numbers(fitted, NEW))


def test_one_byte_of_a_tensor_is_noticed(copied: Path) -> None:
    data = bytearray((copied / "model.safetensors").read_bytes())
    data[-1] ^= 1
    (copied / "model.safetensors").write_bytes(data)
    with pytest.raises(ModelFolderError, match="SHA-256 does not match"):
        load(copied)


def test_arrays_of_another_model_are_noticed(copied: Path, own: tuple[Forecaster, Path]) -> None:
    shutil.copy(own[1] / "model.safetensors", copied / "model.safetensors")
    with pytest.raises(ModelFolderError, match="SHA-256 does not match"):
        load(copied)


def test_foreign_folders_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelFolderError, match="is not a folder"):
        load(tmp_path / "nowhere")
    with pytest.raises(ModelFolderError, match="not a scrollmt model"):
        load(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"")
    for text, says in [
        ("", "damaged"),
        ("[1, 2]", "does not describe"),
        ("null", "does not describe"),
        ('{"format": "pt"}', "does not describe"),
        ('{"format": "scrollmt model", "schema_version": 99}', "schema version 99"),
        ('{"format": "scrollmt model", "schema_version": 1}', "header too small"),
        ('{"x": NaN}', "NaN is not JSON"),
        ('{"x": ' + "9" * 5000 + "}", "damaged"),
        ("[" * 100_000, "damaged"),
    ]:
        (tmp_path / "model.json").write_text(text)
        with pytest.raises(ModelFolderError, match=says):
            load(tmp_path)
    (tmp_path / "model.json").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ModelFolderError, match="not a scrollmt model"):
        load(tmp_path)
    with pytest.raises(ModelFolderError, match="is not a folder"):
        load(tmp_path / "model.json")
    assert issubclass(ModelFolderError, ValueError)


def test_another_schema_version_says_which(copied: Path) -> None:
    resigned(copied, lambda content: content.update(schema_version=2, scrollmt_version="9.9"))
    with pytest.raises(ModelFolderError, match=r"schema version 2.* reads 1.*9\.9"):
        load(copied)


# What a model of version 0.1 does not say.
SINCE_0_1 = {"refit", "references"}


def test_a_signed_description_that_makes_no_sense_is_refused(copied: Path) -> None:
    original = (copied / "model.json").read_bytes()
    head = {"format", "schema_version", "scrollmt_version", "sha256"}

    def refuse(change: Callable[[dict[str, Any]], Any]) -> None:
        resigned(copied, lambda content: change(content))
        with pytest.raises(ModelFolderError):
            load(copied)
        (copied / "model.json").write_bytes(original)

    def without(*path: Any) -> Callable[[dict[str, Any]], None]:
        def drop(content: Any) -> None:
            for step in path[:-1]:
                content = content[step]
            del content[path[-1]]

        return drop

    def put(name: str, value: Any) -> Callable[[dict[str, Any]], Any]:
        return lambda c: c.update({name: value})

    content = read_json(copied)
    for name in content.keys() - head - SINCE_0_1:
        refuse(without(name))
    for name in ("members", "estimator", "scales", "candidates", "history", "committee"):
        for value in (None, 3, "x", {"x": 1}):
            refuse(put(name, value))
    for name in content["estimator"].keys() - SINCE_0_1:
        refuse(without("estimator", name))
    for name in content["members"][0]:
        refuse(without("members", 0, name))
    refuse(lambda c: c.update(lead=7))
    refuse(lambda c: c["members"][0].update(features=5))
    refuse(lambda c: c["members"][0].update(in_size=5))
    refuse(lambda c: c["members"][0]["backbone"].update(activation="exp"))
    refuse(lambda c: c["members"][0]["backbone"].update(widths=[4, 4]))
    refuse(lambda c: c["members"][0]["tasks"]["state"].update(belief="none"))
    refuse(lambda c: c["members"][0]["tasks"]["state"]["head"].update(kind="Poisson"))
    refuse(lambda c: c["members"][0]["tasks"]["regime"]["head"].update(R=7))
    refuse(lambda c: c["estimator"]["preset"].update(wings=2))
    refuse(lambda c: c["estimator"]["task_order"].append("rain"))
    assert load(copied).stop_reason_ == "steps"


@pytest.mark.parametrize("name", ["model.json", "model.safetensors"])
def test_random_damage_never_passes_for_a_model(
    copied: Path, fitted: Forecaster, name: str
) -> None:
    """Sixty random edits a file: the same model or a refusal, never another error or model."""
    rng = np.random.default_rng(0)
    original = (copied / name).read_bytes()
    expected = numbers(fitted, NEW)
    refused = 0
    for _ in range(60):
        data = bytearray(original)
        start = int(rng.integers(len(data)))
        match rng.integers(4):
            case 0:
                data[start] ^= 1 << int(rng.integers(8))
            case 1:
                data[start] = int(rng.integers(256))
            case 2:
                del data[start:]
            case 3:
                data[start:start] = rng.bytes(int(rng.integers(1, 9)))
        (copied / name).write_bytes(data)
        try:
            back = load(copied)
        except ModelFolderError:
            refused += 1
        else:
            assert_same(numbers(back, NEW), expected)
    assert refused >= 55


# Folders that a stranger made


@contextmanager
def time_limit(seconds: int) -> Iterator[None]:
    def late(*_: Any) -> None:
        raise AssertionError(f"this takes longer than {seconds} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def tensors_of(header: Any, data: bytes = b"") -> bytes:
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


@pytest.mark.parametrize(
    "content",
    [
        struct.pack("<Q", 2**60) + b"{}",
        struct.pack("<Q", 90_000_000) + b"{}",
        tensors_of({"a": {"dtype": "F32", "shape": [10**9], "data_offsets": [0, 4 * 10**9]}}),
        tensors_of({"a": {"dtype": "F32", "shape": [10**9] * 9, "data_offsets": [0, 4]}}, b"0000"),
        tensors_of({"a": {"dtype": "F32", "shape": [-1], "data_offsets": [0, 0]}}),
        tensors_of([[[[]]]]),
    ],
    ids=["long header", "longer than the file", "shape", "product", "negative", "nested"],
)
def test_a_header_that_claims_more_than_there_is_is_refused(copied: Path, content: bytes) -> None:
    (copied / "model.safetensors").write_bytes(content)
    with pytest.raises(
        ModelFolderError, match=r"^[^\n]*safetensors is damaged: [^\n]*header[^\n]*$"
    ):
        load(copied)


@pytest.mark.parametrize(
    ("name", "limit"), [("model.safetensors", 4 * 2**30), ("model.json", 64 * 2**20)]
)
def test_a_file_beyond_its_bound_is_not_read(copied: Path, name: str, limit: int) -> None:
    os.truncate(copied / name, limit + 1)  # takes no room: a hole in a file has none
    with pytest.raises(ModelFolderError, match=rf"{name} has {limit + 1:,} bytes, and at most"):
        load(copied)


def test_a_description_that_could_not_be_read_again_is_not_written(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"model\.json would have [\d,]+ bytes, and at most"):
        folder.write_folder(tmp_path / "model", {"x": "y" * 64 * 2**20}, {})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["model.safetensors", "model.json"])
def test_only_regular_files_are_read(copied: Path, name: str) -> None:
    file, outside = copied / name, copied.parent / "outside"
    file.rename(outside)
    os.mkfifo(file)
    with time_limit(20), pytest.raises(ModelFolderError, match=f"{name} is not a regular file"):
        load(copied)
    file.unlink()
    file.symlink_to("/dev/zero")
    with time_limit(20), pytest.raises(ModelFolderError, match=f"{name} is not a regular file"):
        load(copied)
    file.unlink()
    file.symlink_to(outside)  # as tools that keep large files elsewhere do it
    load(copied)


PEAK = """
import resource, sys
from scrollmt import load
from scrollmt._io.store import ModelFolderError

before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    load(sys.argv[1])
except ModelFolderError as error:
    print(error)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


@pytest.mark.slow
def test_what_a_description_claims_is_not_allocated(copied: Path) -> None:
    """The arrays have one axis of 15,000 numbers; layers of 15,000 by 15,000 would take 900 MB."""

    def wide(content: dict[str, Any]) -> None:
        member = content["members"][0]
        member["backbone"]["widths"] = [15_000, 15_000]
        member["features"] = 15_000

    arrays = load_file(copied / "model.safetensors")
    save_file({**arrays, "long": np.zeros(15_000, np.float32)}, copied / "model.safetensors")
    resigned(copied, wide)
    done = subprocess.run(
        [sys.executable, "-c", PEAK, copied],
        env={**os.environ, "JAX_CPU_ENABLE_ASYNC_DISPATCH": "0"},
        capture_output=True,
        text=True,
        check=True,
    )
    said, kilobytes = done.stdout.splitlines()
    assert re.search(r"expected shape \(15000, .*\), found \(4, 3\)", said), said
    assert int(kilobytes) < 300_000, done.stdout


def recipe_of(content: dict[str, Any]) -> dict[str, Any]:
    return content["recipe"]


@pytest.fixture(scope="module")
def saved_series(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of a series, with questions and inputs of every kind."""
    from commands import done, write_series

    place = write_series(tmp_path_factory.mktemp("series"))
    done("fit", place / "config.toml")
    for extra in ("config.toml", "fit.json"):
        (place / "model" / extra).unlink()
    return place / "model"


HOSTILE: list[tuple[Callable[[Any], Any], str]] = [
    (lambda c: c["members"][0]["backbone"].update(widths=[10**12]), "width of the backbone"),
    (lambda c: c["members"][0]["backbone"].update(widths=[1] * 10**5), "100000 layers"),
    (lambda c: c["members"][0].update(features=10**12), "features is 1000000000000"),
    (lambda c: c["members"][0].update(features=True), "features is True"),
    (lambda c: c["members"][0].update(in_size=10**12), "in_size is 1000000000000"),
    (lambda c: c["estimator"]["tasks"]["band"].update(R=10**9), "R is 1000000000"),
    (lambda c: c["estimator"].update(seed="x"), "seed is 'x', and not int"),
    (lambda c: c["estimator"].update(ensemble=10**30), "ensemble is 1000"),
    (lambda c: c["members"][0]["tasks"]["level"].update(cov_floor="x"), "cov_floor is 'x'"),
    (lambda c: c.update(lead=-1), "lead"),
    (lambda c: c["committee"].update(level=[-1]), "name the members"),
    (lambda c: recipe_of(c)["windowing"].update(history=10**15), "makes 1000000000000"),
    (lambda c: recipe_of(c)["windowing"].update(leads=[[]]), "lead"),
    (lambda c: recipe_of(c).update(step=[1]), "step is"),
    (lambda c: recipe_of(c).update(step="-1h"), "step is"),
    (lambda c: recipe_of(c).update(anchor="x"), "x"),
    (lambda c: recipe_of(c).update(columns=[1]), "columns"),
    (lambda c: recipe_of(c).update(time={"a": 1}), "time is"),
    (lambda c: recipe_of(c)["tasks"]["level"].__setitem__(1, 2.5), "lead is 2.5"),
    (lambda c: recipe_of(c)["tasks"]["level"][0].update(column=5), "column is 5"),
    (lambda c: recipe_of(c)["tasks"]["level"][0].update(units=[]), "units"),
    (lambda c: recipe_of(c)["inputs"][0].update(column=None), "column is None"),
    (lambda c: recipe_of(c)["inputs"].append(recipe_of(c)["inputs"][0]), "the recipe makes"),
]


def mutated(value: Any, rng: np.random.Generator) -> Any:
    """A description with one thing in it replaced by something absurd."""
    if isinstance(value, dict) and value and rng.random() < 0.9:
        key = list(value)[rng.integers(len(value))]
        return {**value, key: mutated(value[key], rng)}
    if isinstance(value, list) and value and rng.random() < 0.8:
        at = int(rng.integers(len(value)))
        return [*value[:at], mutated(value[at], rng), *value[at + 1 :]]
    deep: Any = 1
    for _ in range(400):
        deep = [deep] if rng.random() < 0.5 else {"kind": "value", "value": deep}
    absurd: list[Any] = [
        None,
        True,
        -1,
        0,
        2**31,
        10**12,
        10**40,
        -1e300,
        1e-300,
        "",
        "\x1b[2J",
        "x" * 10**5,
    ]
    absurd += [[], {}, [[]], [10**12] * 3, {"kind": "Ordinal", "R": 10**12}, deep]
    return absurd[rng.integers(len(absurd))]


def load_each(model: Path, changes: Iterator[Callable[[Any], Any]]) -> list[str]:
    """What `load` says of each changed description, nothing where it takes it for a model."""
    original, said = (model / "model.json").read_bytes(), []
    for change in changes:
        (model / "model.json").write_bytes(original)
        resigned(model, change)
        try:
            with time_limit(20):
                load(model)
            said.append("")
        except ModelFolderError as error:
            said.append(str(error))
    return said


def mutation(number: int) -> Callable[[dict[str, Any]], None]:
    def change(content: dict[str, Any]) -> None:
        new = mutated(content, np.random.default_rng(number))
        content.clear()
        content.update(new if isinstance(new, dict) else {"x": new})

    return change


# In a process of its own, as users have it: here, types of arguments are checked by the tests.
STRANGER = """
import json, sys
from pathlib import Path
from test_store import HOSTILE, load_each, mutation

model = Path(sys.argv[1])
known, changed = (change for change, _ in HOSTILE), map(mutation, range(300))
print(json.dumps([load_each(model, known), load_each(model, changed)]))
"""


@pytest.mark.slow
def test_hostile_descriptions_end_in_one_sentence(saved_series: Path, tmp_path: Path) -> None:
    model = Path(shutil.copytree(saved_series, tmp_path / "model"))
    load(model)
    done = subprocess.run(
        [sys.executable, "-c", STRANGER, model],
        cwd=Path(__file__).parent,  # where it finds this file
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    known, changed = json.loads(done.stdout)
    for (_, words), said in zip(HOSTILE, known, strict=True):
        assert words in said, said or f"not refused, and it should say {words!r}"
    for said in filter(None, [*known, *changed]):
        assert said.startswith(str(model)), said
        assert "\n" not in said, said
        assert len(said) < 700, said
    assert sum(map(bool, changed)) > 150


# Precision


def test_a_float64_model_needs_float64(tmp_path: Path) -> None:
    X, Y = windows()
    with jax.enable_x64(True):
        model = tiny(STATE).fit(X, Y["state"])
        model.save(tmp_path / "model")
        assert_same(numbers(load(tmp_path / "model"), NEW), numbers(model, NEW))
        arrays = load_file(tmp_path / "model" / "model.safetensors")
        assert {a.dtype.name for n, a in arrays.items() if n.startswith("0/")} == {"float64"}
    with pytest.raises(ModelFolderError, match=r"float64.*jax_enable_x64"):
        load(tmp_path / "model")


def test_a_float32_model_says_the_same_in_a_float64_session(
    fitted: Forecaster, saved: Path
) -> None:
    expected = numbers(fitted, NEW)
    with jax.enable_x64(True):
        assert_same(numbers(load(saved), NEW), expected)
