"""Candidates are trained together, and the validation score alone chooses among them."""

import dataclasses
import inspect
from dataclasses import replace
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from helpers import N, as_data, flat, small_data, small_model, unguarded
from scrollmt._fitting.batches import features_of
from scrollmt._fitting.selection import Selection, train
from scrollmt.backbone import PAPER_BACKBONES, Dense
from scrollmt.fit import Schedule
from scrollmt.heads import AbstractHead, Gaussian
from scrollmt.objective import Data, backbone_penalty, composed, composed_objective, mean_nll
from scrollmt.presets import (
    DEFAULT,
    HELD_OUT,
    PAPER,
    QUICK,
    Architecture,
    Candidate,
    Preset,
    get_preset,
)

TANH = Architecture((4,), "tanh", bias=True, norm=True)
RELU = Architecture((3,), "relu", bias=False, norm=False)
PRESET = Preset(
    name="small",
    candidates=(
        Candidate("tanh", TANH, learning_rate=0.03, backbone_l2=0.1),
        Candidate("relu", RELU, learning_rate=0.03, backbone_l2=0.1),
        Candidate("tanh", TANH, learning_rate=1e-4, backbone_l2=0.1),
    ),
    schedule=Schedule(steps=25),
    cov_floor=1e-4,
    scale_targets=False,
)
HEADS: dict[str, AbstractHead] = {"a": Gaussian(), "b": Gaussian()}
KEY = jax.random.key(3)
by_task = eqx.filter_jit(mean_nll)


def windows(seed: int = 0, n: int = N) -> tuple[Data, Data]:
    """Two values of one window, the second of them nonlinear; validation from the same law."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(2 * n, 2))
    y = {"a": x @ [1.0, -1.0], "b": np.abs(x[:, 0])}
    y = {k: v + 0.2 * rng.normal(size=2 * n) for k, v in y.items()}
    data = as_data(x, y)
    return data.take(jnp.arange(n)), data.take(jnp.arange(n, 2 * n))


def trained(
    preset: Preset = PRESET, seeds: tuple[int, ...] = (3,), **options: Any
) -> list[Selection]:
    first, second = windows()
    given: dict[str, Any] = {"belief": "diag", "train": first, "valid": second, **options}
    return train(preset, HEADS, keys=[jax.random.key(s) for s in seeds], **given)


@pytest.mark.slow
def test_the_lowest_validation_nll_is_chosen() -> None:
    (selection,) = trained()
    table = selection.table
    # Candidates of one architecture stand together, since they ran as one batch.
    assert list(table["candidate"]) == ["tanh", "tanh", "relu"]
    assert list(table["learning_rate"]) == [0.03, 1e-4, 0.03]
    assert list(table["stop_reason"]) == ["steps"] * 3
    best = int(table["validation_nll"].idxmin())
    assert table["validation_nll"].nunique() == 3
    assert list(table["chosen"]) == [i == best for i in range(3)]
    # The model handed over is the one whose score stands in that row.
    (model,) = selection.members
    assert selection.lead == 0
    assert selection.committee == {"a": (0,), "b": (0,)}
    nll = {k: float(v) for k, v in by_task(model, windows()[1]).items()}
    assert sum(nll.values()) == pytest.approx(table["validation_nll"][best], rel=1e-5)
    for name in HEADS:
        assert nll[name] == pytest.approx(table[f"{name}_nll"][best], rel=1e-5)
    assert selection.history["validation"].min() == pytest.approx(
        table["validation_nll"][best], rel=1e-6
    )
    assert list(selection.history["step"]) == list(range(1, 26))
    assert selection.stop_reason == "steps"
    assert not selection.interrupted


@pytest.mark.parametrize("useful", [0, 1])
def test_the_choice_is_not_the_order(useful: int) -> None:
    """Whichever architecture has the only rate that gets anywhere is chosen."""
    candidates = [replace(c, learning_rate=1e-6) for c in PRESET.candidates]
    candidates[useful] = PRESET.candidates[useful]
    (selection,) = trained(replace(PRESET, candidates=tuple(candidates)))
    chosen = selection.table[selection.table["chosen"]].iloc[0]
    assert chosen["candidate"] == PRESET.candidates[useful].name
    assert chosen["learning_rate"] == 0.03


def test_keys_are_runs_of_their_own() -> None:
    """Two keys at once, on data of their own, give what each gives alone."""
    pairs = [windows(seed) for seed in (0, 1)]
    both = [jax.tree.map(lambda *a: jnp.stack(a), *(p[i] for p in pairs)) for i in range(2)]
    one_architecture = replace(PRESET, candidates=PRESET.candidates[::2])
    together = trained(one_architecture, (3, 4), train=both[0], valid=both[1])
    for i, seed in enumerate((3, 4)):
        (alone,) = trained(one_architecture, (seed,), train=pairs[i][0], valid=pairs[i][1])
        columns = ["validation_nll", "a_nll", "b_nll"]
        np.testing.assert_allclose(
            together[i].table[columns], alone.table[columns], rtol=2e-4, atol=1e-4
        )
    assert not np.allclose(flat(together[0].members[0]), flat(together[1].members[0]))


def test_a_candidate_starts_alike_whoever_else_is_tried() -> None:
    frozen = replace(
        PRESET, candidates=tuple(replace(c, learning_rate=0.0) for c in PRESET.candidates)
    )
    (everyone,) = trained(frozen)
    (alone,) = trained(frozen.with_backbone("relu"))
    whole = everyone.table.set_index("candidate")
    assert alone.table["validation_nll"][0] == pytest.approx(
        whole.loc["relu", "validation_nll"], rel=1e-6
    )


@pytest.mark.slow
def test_a_committee_speaks_for_its_own_task() -> None:
    (selection,) = trained(replace(PRESET, starts=2, committee=2))
    table = selection.table
    assert len(table) == 6
    assert sorted(table["start"]) == [0, 0, 0, 1, 1, 1]
    assert table["validation_nll"].nunique() == 6
    second = windows()[1]
    for name in HEADS:
        speakers = selection.committee[name]
        assert len(speakers) == 2
        scores = [float(by_task(selection.members[i], second)[name]) for i in speakers]
        wanted = np.sort(table[f"{name}_nll"])[:2]
        np.testing.assert_allclose(sorted(scores), wanted, rtol=1e-5)
    lead = selection.members[selection.lead]
    total = sum(float(v) for v in by_task(lead, second).values())
    assert total == pytest.approx(table["validation_nll"].min(), rel=1e-5)


@pytest.mark.slow
def test_a_label_of_one_task_does_not_stop_another() -> None:
    """One absurd validation label: the other task gets the parameters it would have got."""
    preset = replace(PRESET, committee=1, score_bound=20.0, schedule=Schedule(steps=25, patience=3))
    _, second = windows()
    wild = replace(second, y=second.y | {"a": second.y["a"].at[0].add(100.0)})
    (clean,), (hit,) = trained(preset), trained(preset, valid=wild)

    def nll(selection: Selection, name: str) -> float:
        member = selection.members[selection.committee[name][0]]
        return float(by_task(member, second)[name])

    assert nll(hit, "b") == nll(clean, "b")
    # The task itself is held up by no more than the bound, and keeps on learning.
    assert nll(hit, "a") == pytest.approx(nll(clean, "a"), abs=0.02)
    # Without the bound, and with one criterion for all, both stop early.
    (before,) = trained(replace(preset, committee=None, score_bound=None), valid=wild)
    assert before.table["best_step"][0] < hit.table["best_step"][0]


def test_a_task_without_validation_labels_takes_what_is_best_for_all() -> None:
    _, second = windows()
    blind = replace(second, weight=second.weight | {"b": 0.0 * second.weight["b"]})
    (selection,) = trained(replace(PRESET, committee=1), valid=blind)
    assert selection.committee["b"] == (selection.lead,)


@pytest.mark.slow
def test_chosen_runs_are_trained_again_on_everything() -> None:
    preset = replace(PRESET, starts=2, committee=2)
    first, second = windows()
    (plain,) = trained(preset)
    everything = jax.tree.map(lambda a, b: jnp.concatenate([a, b]), first, second)
    (refit,) = trained(preset, everything=everything)
    assert refit.committee == plain.committee
    for one, other in zip(refit.validated, plain.members, strict=True):
        np.testing.assert_array_equal(flat(one), flat(other))
    for one, other in zip(refit.members, plain.members, strict=True):
        assert not np.array_equal(flat(one), flat(other))
    # On the same rows it ends where it was.
    (same,) = trained(preset, everything=first)
    for one, other in zip(same.members, plain.members, strict=True):
        np.testing.assert_allclose(flat(one), flat(other), rtol=1e-4, atol=1e-6)


def test_a_run_that_breaks_down_on_everything_is_used_as_it_was() -> None:
    first, _ = windows()
    broken = replace(first, y={k: v * 1e30 for k, v in first.y.items()})
    with pytest.warns(UserWarning, match="broke down when they were trained again on all rows"):
        (selection,) = trained(everything=broken)
    for one, other in zip(selection.members, selection.validated, strict=True):
        np.testing.assert_array_equal(flat(one), flat(other))


# Backbones from outside


def test_any_equinox_module_is_a_backbone() -> None:
    net = eqx.nn.MLP(2, 6, 8, 1, key=jax.random.PRNGKey(0))
    one_architecture = replace(PRESET, candidates=PRESET.candidates[::2])
    (selection,) = trained(one_architecture, backbone=net)
    model = selection.members[0]
    assert isinstance(model.backbone, eqx.nn.MLP)
    assert model.tasks["a"].belief.mu.shape == (6,)
    assert (flat(model.backbone) != flat(net)).all()  # trained, and the given one untouched
    score = sum(float(v) for v in by_task(model, windows()[1]).values())
    assert score == pytest.approx(selection.table["validation_nll"].min(), rel=1e-5)
    assert selection.table["validation_nll"].nunique() == 2  # the numbers are still tried


class Wrong(eqx.Module):
    """A module whose output is whatever a test asks for."""

    shape: tuple[int, ...] = eqx.field(static=True)

    def __call__(self, x: jax.Array) -> jax.Array:
        return jnp.zeros(self.shape) * x.sum()


def test_a_maker_of_backbones_gives_every_start_weights_of_its_own() -> None:
    def net(key: Any) -> eqx.Module:
        return eqx.nn.MLP(2, 4, 3, 1, activation=jnp.tanh, key=key)

    still = replace(PRESET, starts=2, schedule=Schedule(steps=1), candidates=PRESET.candidates[:1])

    def weights(given: Any, seeds: tuple[int, ...]) -> list[np.ndarray]:
        runs = trained(replace(still, committee=2), seeds, backbone=given)
        nets: list[Any] = [member.backbone for run in runs for member in run.members]
        return [np.asarray(net.layers[0].weight) for net in nets]

    made = weights(net, (0, 1))
    assert len(made) == 4
    assert min(np.abs(a - b).max() for i, a in enumerate(made) for b in made[:i]) > 0.1
    # A module is what it is: all starts are its own.
    given = weights(net(jax.random.key(0)), (0, 1))
    assert max(np.abs(a - given[0]).max() for a in given) < 0.1


def test_features_of_reads_the_width_without_running_the_backbone() -> None:
    key = jax.random.PRNGKey(0)
    assert features_of(eqx.nn.MLP(3, 6, 8, 1, key=key), 3) == 6
    assert features_of(Dense(3, (5, 4), activation="relu", bias=True, norm=True, key=key), 3) == 4


@pytest.mark.parametrize("shape", [(), (2, 3)])
def test_a_backbone_of_another_output_shape_is_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"maps \(2,\) to .*expected features of shape \(H,\)"):
        trained(backbone=Wrong(shape))


def test_a_backbone_for_other_inputs_is_refused() -> None:
    net = eqx.nn.MLP(5, 6, 8, 1, key=jax.random.PRNGKey(0))
    with pytest.raises(ValueError, match=r"does not accept one point of shape \(2,\).*\(D,\)"):
        trained(backbone=net)


# Trouble


def test_an_interrupt_keeps_what_there_is_and_tries_no_more() -> None:
    seen: list[tuple[str, int, int, float]] = []

    def report(label: str, step: int, steps: int, best: float) -> None:
        seen.append((label, step, steps, best))
        if len(seen) == 5:
            raise KeyboardInterrupt

    (selection,) = trained(report=report)
    assert selection.interrupted
    assert set(selection.table["candidate"]) == {"tanh"}  # the first architecture only
    assert set(selection.table["stop_reason"]) == {"interrupted"}
    assert seen[-1][0] == "tanh"
    assert seen[-1][2] == 25
    assert selection.table["validation_nll"].min() == pytest.approx(seen[-1][3], rel=1e-6)
    assert np.isfinite(flat(selection.members[0])).all()


def test_no_finite_candidate_is_an_error_and_some_is_not() -> None:
    _, second = windows()
    with pytest.raises(ValueError, match="no candidate has a finite validation score"):
        trained(valid=replace(second, y={k: v * 1e30 for k, v in second.y.items()}))
    wild = replace(PRESET.candidates[0], learning_rate=1e30)
    (selection,) = trained(replace(PRESET, candidates=(wild, *PRESET.candidates[1:])))
    table = selection.table.set_index(["candidate", "learning_rate"])
    assert table.loc[("tanh", 1e30), "stop_reason"] == "nonfinite"
    assert not table.loc[("tanh", 1e30), "chosen"]
    assert np.isfinite(flat(selection.members[0])).all()


# Presets


def test_the_objective_of_a_preset_adds_the_backbone_penalty() -> None:
    model, data = small_model({"gaussian": "diag"}), small_data(["gaussian"])
    got = eqx.filter_jit(composed_objective)(model, data, {"backbone_l2": 3.0}, 2.0)
    plain = eqx.filter_jit(composed)(model, data, data_scale=2.0)
    want = plain + 3.0 * backbone_penalty(model)
    assert float(got) == pytest.approx(float(want), rel=1e-6)


def test_the_paper_preset_is_the_protocol() -> None:
    assert [c.name for c in PAPER.candidates] == list(PAPER_BACKBONES)
    assert {(c.learning_rate, c.backbone_l2) for c in PAPER.candidates} == {(0.03, 0.01)}
    assert PAPER.cov_floor == 1e-4
    assert (PAPER.starts, PAPER.committee, PAPER.scale_targets) == (1, None, False)
    schedule = PAPER.schedule
    # Patience counts evaluations: three hundred steps without a better score.
    assert (schedule.steps, schedule.eval_every, schedule.patience) == (5000, 10, 30)
    assert (schedule.batch_size, schedule.final_rate, schedule.average) == (None, 1.0, 0.0)
    assert (schedule.b1, schedule.b2, schedule.eps) == (0.9, 0.999, 1e-8)
    for candidate in PAPER.candidates:
        net = candidate.architecture.build(3, KEY)
        assert [w.shape for w in net.weights] == [(50, 3)]
        assert net.biases is None
        assert net.norm == candidate.name.endswith("+ln")
        assert candidate.name.startswith(net.activation)


def test_large_data_stretch_a_minibatch_schedule() -> None:
    schedule = DEFAULT.schedule
    assert schedule.batch_size is not None
    assert DEFAULT.schedule_for(100) == schedule
    windows_seen = schedule.steps * schedule.batch_size
    many = 3 * windows_seen // DEFAULT.min_passes - 1
    long = DEFAULT.schedule_for(many)
    assert long.steps * schedule.batch_size >= DEFAULT.min_passes * many
    assert long.steps == 3 * schedule.steps
    assert long.steps // long.eval_every == schedule.steps // schedule.eval_every
    assert long.warmup == 3 * schedule.warmup
    assert PAPER.schedule_for(10**9) == PAPER.schedule


def test_presets_and_backbones_go_by_name() -> None:
    assert get_preset("paper") is PAPER
    assert get_preset(PRESET) is PRESET
    assert PAPER.with_backbone("select") == PAPER
    assert [c.name for c in PAPER.with_backbone("tanh+ln").candidates] == ["tanh+ln"]
    with pytest.raises(
        ValueError, match=r"unknown preset 'best'.*'default', 'quick', 'held-out', 'paper'"
    ):
        get_preset("best")
    nothing: Any = None
    with pytest.raises(ValueError, match=r"unknown preset None"):
        inspect.unwrap(get_preset)(nothing)
    with pytest.raises(ValueError, match=r"preset 'paper' has no backbone 'silu'.*'relu\+ln'"):
        PAPER.with_backbone("silu")


def test_steps_and_patience_replace_those_of_a_preset() -> None:
    assert DEFAULT.with_schedule() is DEFAULT
    changed = DEFAULT.with_schedule(steps=7, patience=3)
    assert changed.schedule == replace(DEFAULT.schedule, steps=7, patience=3)
    # Steps that a user asks for are not stretched, however many windows there are.
    assert changed.schedule_for(10**6).steps == 7
    patient = DEFAULT.with_schedule(patience=3)
    assert patient.schedule_for(10**6).steps == DEFAULT.schedule_for(10**6).steps
    assert PAPER.with_schedule(patience=3).schedule.steps == PAPER.schedule.steps


@pytest.mark.parametrize("wrong", [2.5, "long", True, -1, [3]])
@pytest.mark.parametrize("name", ["steps", "patience"])
def test_steps_and_patience_are_whole_numbers(name: str, wrong: Any) -> None:
    with pytest.raises(ValueError, match=rf"{name} must be a whole number >= 1, got"):
        inspect.unwrap(Preset.with_schedule)(DEFAULT, **{name: wrong})


def test_the_quick_preset_tries_less_of_the_same() -> None:
    assert get_preset("quick") is QUICK
    assert set(QUICK.candidates) < set(HELD_OUT.candidates)
    assert QUICK.starts < HELD_OUT.starts
    assert QUICK.schedule.steps < HELD_OUT.schedule.steps
    runs = [len(preset.candidates) * preset.starts for preset in (QUICK, HELD_OUT)]
    assert 3 * runs[0] * QUICK.schedule.steps < runs[1] * HELD_OUT.schedule.steps


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"name": 3}, "Preset: name must be text, got 3"),
        ({"candidates": None}, "Preset 'paper': candidates must be a tuple of Candidate, got None"),
        ({"candidates": ()}, "candidates must hold at least one Candidate"),
        ({"candidates": ("relu",)}, "candidates must be a tuple of Candidate, got 'relu'"),
        ({"schedule": 100}, "schedule must be a Schedule, got 100"),
        ({"schedule": {"steps": 3}}, "schedule must be a Schedule"),
        ({"cov_floor": None}, "cov_floor must be a number >= 0, got None"),
        ({"cov_floor": -1.0}, "cov_floor must be a number >= 0, got -1.0"),
        ({"scale_targets": "yes"}, "scale_targets must be True or False, got 'yes'"),
        ({"min_passes": 0.5}, "min_passes must be a whole number >= 0, got 0.5"),
        ({"starts": 0}, "starts must be a whole number >= 1, got 0"),
        ({"committee": 0}, "committee must be a whole number >= 1, got 0"),
        ({"begin": None}, "begin must be a Start, got None"),
    ],
)
def test_a_preset_refuses_what_it_cannot_use(wrong: dict[str, Any], says: str) -> None:
    fields = {f.name: getattr(PAPER, f.name) for f in dataclasses.fields(PAPER)}
    with pytest.raises(ValueError, match=says):
        unguarded(Preset, **{**fields, **wrong})
    assert unguarded(Preset, **{**fields, "candidates": list(PAPER.candidates)}) == PAPER
