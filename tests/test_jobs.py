"""Jobs: what their keys depend on, what they hand to training, and what comes back."""

import hashlib
import json
import re
from dataclasses import fields, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import norm

from helpers import assert_same_bits, draw_belief
from scrollmt._data.scaling import Scales
from scrollmt._fitting import batches
from scrollmt.backbone import PAPER_BACKBONES
from scrollmt.forecaster import Forecaster
from scrollmt.heads import Gaussian, StudentT
from scrollmt.model import Model, Task
from scrollmt.paper.arena import training
from scrollmt.paper.arena.jobs import Job, Outcome, environment, execute, make_job
from scrollmt.paper.arena.probes import PROBES, probe
from scrollmt.paper.arena.problems import problem
from scrollmt.paper.arms import ARMS, questions
from scrollmt.paper.arms.base import one_run
from scrollmt.paper.arms.weighted import MEANS_L2
from scrollmt.paper.protocol import PROTOCOL as PAPER_PROTOCOL
from scrollmt.paper.protocol import Protocol
from scrollmt.paper.studies.probes import default
from small import TINY
from tiny_jobs import FIRST, PROTOCOL, TEST, TRAIN, VALID, outcome, registered

JOB = make_job("ou", "scroll-diag", "tanh", PROTOCOL, seeds=(5, 6))


# Keys


def test_a_key_is_a_hash_that_no_process_changes() -> None:
    assert re.fullmatch("[0-9a-f]{64}", JOB.key(5))
    assert JOB.key(5) == make_job("ou", "scroll-diag", "tanh", PROTOCOL, seeds=(5, 6)).key(5)
    # Written out, since records of other days and machines are found by it.
    plain = Job("ou", "mine", "tanh", (1,), '{"protocol": {"steps": 20}}')
    text = '["ou","mine","tanh",1,{"protocol":{"steps":20}}]'
    assert plain.key(1) == hashlib.sha256(text.encode()).hexdigest()


def test_a_key_depends_on_one_seed_and_not_on_the_others() -> None:
    assert JOB.key(5) != JOB.key(6)
    for seeds in ((5,), (5, 6, 7), (6, 5)):
        assert make_job("ou", "scroll-diag", "tanh", PROTOCOL, seeds=seeds).key(5) == JOB.key(5)
    many = replace(PROTOCOL, seeds=(1, 2, 3))
    assert make_job("ou", "scroll-diag", "tanh", many).key(5) == JOB.key(5)


@pytest.mark.parametrize(
    "other",
    [("ou~1", "scroll-diag", "tanh"), ("ou", "scroll-full", "tanh"), ("ou", "scroll-diag", "relu")],
)
def test_a_key_depends_on_corpus_arm_and_backbone(other: tuple[str, str, str]) -> None:
    assert make_job(*other, PROTOCOL).key(5) != JOB.key(5)


@pytest.mark.parametrize("name", [f.name for f in fields(Protocol) if f.name != "seeds"])
def test_a_key_depends_on_every_constant_of_the_protocol(name: str) -> None:
    value = getattr(PROTOCOL, name)
    other = not value if isinstance(value, bool) else "targets" if value == "one" else value + 1
    changed = replace(PROTOCOL, **{name: other})
    assert make_job("ou", "scroll-diag", "tanh", changed).key(5) != JOB.key(5)


def test_a_key_depends_on_the_description_of_the_arm() -> None:
    with registered(replace(ARMS["scroll-diag"], members=2)):
        assert make_job("ou", "scroll-diag", "tanh", PROTOCOL).key(5) != JOB.key(5)
    with registered(replace(ARMS["scroll-diag"], summary="in other words")):
        assert make_job("ou", "scroll-diag", "tanh", PROTOCOL).key(5) == JOB.key(5)


def test_a_key_does_not_depend_on_how_its_determinants_are_written() -> None:
    stated = json.loads(JOB.determinants)
    turned = json.dumps(dict(reversed(stated.items())), indent=1)
    assert replace(JOB, determinants=turned).key(5) == JOB.key(5)


def test_a_job_has_the_seeds_of_its_protocol_unless_told_otherwise() -> None:
    assert make_job("ou", "map-ce", "tanh").seeds == PAPER_PROTOCOL.seeds
    assert make_job("ou", "map-ce", "tanh", seeds=[3]).seeds == (3,)


@pytest.mark.parametrize(
    ("names", "fault"),
    [
        (("ou", "scroll-digg", "tanh"), "unknown arm 'scroll-digg'; choose from .*scroll-diag"),
        (("ou", "probe-nothing", "tanh"), "unknown probe 'probe-nothing'; .*probe-default"),
        (("oo", "scroll-diag", "tanh"), "unknown corpus 'oo'"),
        (("ou/3", "scroll-diag", "tanh"), "only pm25"),
        (("ou", "scroll-diag", "tanh-ln"), r"unknown backbone 'tanh-ln'; .*tanh\+ln"),
    ],
)
def test_a_slip_in_a_name_is_found_before_anything_runs(names: tuple, fault: str) -> None:
    with pytest.raises(ValueError, match=fault):
        make_job(*names)


# What training is given


class Stopped(Exception):
    """Raised in the place of training, with what it was given."""


def given_to_fit(monkeypatch: pytest.MonkeyPatch, module: Any, call: Any) -> dict[str, Any]:
    def stopped(models: Any, train: Any, valid: Any, **options: Any) -> None:
        raise Stopped({"models": models, "train": train, "valid": valid} | options)

    monkeypatch.setattr(module, "fit", stopped)
    with pytest.raises(Stopped) as caught:
        call()
    return caught.value.args[0]


def by_path(tree: Any) -> dict[str, Any]:
    return {jax.tree_util.keystr(at): a for at, a in jax.tree_util.tree_leaves_with_path(tree)}


@pytest.mark.parametrize("backbone", PAPER_BACKBONES)
def test_a_job_trains_what_a_forecaster_with_the_papers_preset_trains(
    monkeypatch: pytest.MonkeyPatch, backbone: str
) -> None:
    small = replace(PAPER_PROTOCOL, corpus_windows=200)
    job = make_job("ou", "scroll-diag", backbone, small, seeds=(FIRST,))
    mine = given_to_fit(monkeypatch, training, lambda: execute(job))
    of = problem("ou", small)
    parts = [of.part(rows, 1.0) for rows in of.split(FIRST)]
    model = Forecaster(
        questions(),
        belief="diag",
        preset="paper",
        backbone=backbone,
        validation=parts[1],
        seed=FIRST,
    )
    its = given_to_fit(monkeypatch, batches, lambda: model.fit(*parts[0]))
    # By path: the arena alone asks for the GPU kernel, which is no array.
    assert_same_bits(*(by_path(given["models"]) for given in (mine, its)))
    for part in ("train", "valid"):
        # A forecaster's runs share their windows; those of a job have their own.
        assert_same_bits(jax.tree.map(lambda a: a[0], mine[part]), its[part])
    assert len(mine["train"].x[0]) == TRAIN
    # Only mean losses read this one.
    del mine["hyper"][MEANS_L2]
    assert_same_bits(mine["hyper"], its["hyper"])
    assert_same_bits(jax.random.key_data(mine["keys"]), jax.random.key_data(its["keys"]))
    assert mine["schedule"] == its["schedule"]


def test_members_start_elsewhere_on_the_windows_of_their_seed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given = {}
    for name, seeds in (("map-ce-ens5", (5, 6)), ("map-ce", (5, 1005, 4006))):
        job = make_job("ou", name, "tanh", PROTOCOL, seeds=seeds)
        given[name] = given_to_fit(monkeypatch, training, partial(execute, job))
    members, alone = (given[name]["models"].backbone.weights[0] for name in given)
    # Five runs of seed 5, at 5, 1005, ..., 4005, then five of seed 6.
    for place, single in ((0, 0), (1, 1), (9, 2)):
        np.testing.assert_array_equal(members[place], alone[single])
    assert len({float(w[0, 0]) for w in members}) == 10
    windows = given["map-ce-ens5"]["train"].x
    for place in range(10):
        np.testing.assert_array_equal(windows[place], windows[place // 5 * 5])
    assert not np.array_equal(windows[0], windows[5])


def test_settings_reach_the_objective_run_by_run(monkeypatch: pytest.MonkeyPatch) -> None:
    job = make_job("ou", "map-ce-grid", "tanh", PROTOCOL, seeds=(5, 6))
    given = given_to_fit(monkeypatch, training, lambda: execute(job))
    for seed in range(2):
        for at, setting in enumerate(ARMS["map-ce-grid"].settings):
            for name, value in setting.items():
                assert float(given["hyper"][name][49 * seed + at]) == pytest.approx(value)
    np.testing.assert_array_equal(given["hyper"]["learning_rate"], jnp.full(98, 0.03))
    np.testing.assert_array_equal(given["hyper"]["backbone_l2"], jnp.full(98, 0.01))
    np.testing.assert_array_equal(given["hyper"][MEANS_L2], jnp.full(98, 0.02))
    # All settings of a seed start from the same values.
    weights = given["models"].backbone.weights[0]
    for place in range(98):
        np.testing.assert_array_equal(weights[place], weights[place // 49 * 49])


def test_the_penalty_beside_means_reaches_the_objective(monkeypatch: pytest.MonkeyPatch) -> None:
    literal = replace(PROTOCOL, penalty_beside_means=1.0)
    losses = {}
    for protocol in (PROTOCOL, literal):
        job = make_job("ou", "map-ce", "tanh", protocol, seeds=(FIRST,))
        given = given_to_fit(monkeypatch, training, lambda job=job: execute(job))
        model = one_run(given["models"], 0)
        hyper = {name: values[0] for name, values in given["hyper"].items()}
        windows = one_run(given["train"], 0)
        losses[protocol] = float(given["objective"](model, windows, hyper, 1.0))
    squared = float(sum(jnp.sum(w**2) for w in model.backbone.weights))
    assert losses[PROTOCOL] - losses[literal] == pytest.approx(0.5 * 0.01 * squared, rel=1e-3)


def test_precision_and_noise_start_where_the_protocol_says(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    changed = replace(PROTOCOL, initial_precision=0.01, initial_noise="targets")
    for protocol, precision in ((PROTOCOL, 1.0), (changed, 0.01)):
        job = make_job("ou*8", "scroll-diag", "tanh", protocol, seeds=(FIRST,))
        given = given_to_fit(monkeypatch, training, lambda job=job: execute(job))
        tasks = one_run(given["models"], 0).tasks
        for task in tasks.values():
            assert float(task.prior_precision) == pytest.approx(precision)
        sd = float(np.std(np.asarray(given["train"].y["state"])))
        assert sd > 2.0
        noise = sd if protocol is changed else 1.0
        assert float(tasks["state"].head.sigma_obs) == pytest.approx(noise, rel=1e-5)


def test_the_keys_of_the_first_records_still_hold() -> None:
    # Written by version 0.1: a field that came later is no part of them at its default.
    keys = {
        ("ou", "scroll-diag", "tanh"): "fea9815555788a11",
        ("lorenz63", "map-ce-grid", "relu+ln"): "4a642f57e290edb2",
        ("lorenz63", "probe-equivariance", "relu"): "58f8a62bfd962175",
    }
    for place, key in keys.items():
        assert make_job(*place, PAPER_PROTOCOL).key(5).startswith(key)
        literal = replace(PAPER_PROTOCOL, penalty_beside_means=1.0)
        assert not make_job(*place, literal).key(5).startswith(key)


def test_a_state_target_is_centred_and_scaled_by_its_problem_alone() -> None:
    of = problem("ou*8", PROTOCOL)
    part = training.read_part(of, FIRST, questions())
    split = of.split(FIRST)
    y = 8.0 * of.Y["state"][split.train].astype(np.float64)
    np.testing.assert_allclose(part.train.y["state"], y - y.mean(), atol=1e-5)
    x = of.X[split.train].astype(np.float64)
    np.testing.assert_allclose(part.train.x, (x - x.mean(0)) / x.std(0), rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(part.train.y["regime"], of.Y["regime"][split.train])
    assert (len(part.train), len(part.valid), len(split.test)) == (TRAIN, VALID, TEST)


# What comes back


@pytest.mark.slow
def test_a_job_carries_the_protocol_that_it_runs_under() -> None:
    found = outcome("scroll-diag")
    assert [*found.rows] == [*range(5, 15)]
    assert len(found.arrays["var"]) == TEST  # of 200 windows and not of 6,500
    assert all(row["steps"] == 20.0 for rows in found.rows.values() for row in rows)
    assert found.seconds > 0.0
    share = found.rows[FIRST][0]["seconds"]
    assert share == pytest.approx(found.seconds / 10, rel=1e-9)


def test_arrays_are_the_variances_of_the_first_seed() -> None:
    found = outcome("scroll-diag")
    row, var = found.rows[FIRST][0], np.array(found.arrays["var"])
    assert row["mean_var"] == pytest.approx(var.mean(), rel=1e-12)
    assert row["var_range"] == pytest.approx(var.max() / var.min(), rel=1e-12)
    np.testing.assert_allclose(found.arrays["true_var"], 1.0 - np.exp(-1.0))


def test_an_environment_names_versions_and_device() -> None:
    found = environment()
    assert found.keys() == {"scrollmt", "jax", "numpy", "python", "device"}
    assert found["jax"] == jax.__version__
    assert all(isinstance(value, str) and value for value in found.values())


@pytest.mark.parametrize("kind", [Gaussian, StudentT])
def test_a_centred_law_comes_back_in_the_units_of_its_target(kind: Any) -> None:
    head = kind()
    belief = draw_belief("none", 1).belief
    model = Model(lambda x: x, {"state": Task(head, belief, jnp.zeros(()))})
    line = (np.array([0.5, -1.0]), np.zeros(2))
    scales = Scales(np.zeros(1), np.ones(1), {"state": 3.0}, {"state": 1.0})
    found = training._laws(model, {"state": line}, scales)["state"]
    np.testing.assert_allclose(found.mean, [3.5, 2.0], rtol=1e-6)
    y = np.array([3.0, 4.0])
    np.testing.assert_allclose(found.log_prob(y), head.law(*line).log_prob(y - 3.0), rtol=1e-6)


# Probes


def test_a_probe_is_a_function_that_makes_rows() -> None:
    @probe("probe-sum")
    def total(job: Job, protocol: Protocol) -> dict[int, list[dict]]:
        return {seed: [{"setting": "{}", "n": seed + protocol.steps}] for seed in job.seeds}

    try:
        job = make_job("anything", "probe-sum", "none", PROTOCOL, seeds=(1, 2))
        found = execute(job)
        assert isinstance(found, Outcome)
        assert found.rows == {s: [{"setting": "{}", "n": s + 20}] for s in (1, 2)}
        with pytest.raises(ValueError, match="'probe-sum' is registered already"):
            probe("probe-sum")(total)
    finally:
        del PROBES["probe-sum"]
    with pytest.raises(ValueError, match="begins with 'probe-', got 'sum'"):
        probe("sum")


@pytest.mark.slow
def test_the_default_probe_scores_a_forecaster_on_the_papers_splits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = []

    def watched(heads: Any, **options: Any) -> Forecaster:
        made.append((options, Forecaster(heads, **{**options, "preset": TINY})))
        return made[-1][1]

    monkeypatch.setattr(default, "Forecaster", watched)
    found = execute(make_job("ou*2", default.NAME, "none", PROTOCOL, seeds=(FIRST,)))
    (row,) = found.rows[FIRST]
    ((options, model),) = made
    of = problem("ou*2", PROTOCOL)
    split = of.split(FIRST)
    assert options["seed"] == FIRST
    np.testing.assert_array_equal(options["validation"][0], of.X[split.valid])
    np.testing.assert_array_equal(options["validation"][1]["state"], 2 * of.Y["state"][split.valid])
    law, y = model.predict(of.X[split.test])["state"], 2 * of.Y["state"][split.test]
    assert row["reg_nll"] == pytest.approx(-norm.logpdf(y, law.mean, law.sd).mean(), rel=1e-9)
    assert row["mean_true_var"] == pytest.approx(4.0 * (1.0 - np.exp(-1.0)))
    assert row["target_factor"] == 2.0
    assert {"valid_nats", "evt_nll", "ord_nll", "evt_acc_pct", "seconds"} <= row.keys()


def test_the_default_probe_asks_for_nothing_but_the_default() -> None:
    """Whatever a user gets by `Forecaster(questions)` is what this row reports."""
    assert default.Forecaster is Forecaster
    assert Forecaster(questions()).preset == "default"
