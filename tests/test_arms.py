"""Every arm of the registry by the same checks, and each family against its own definition."""

import json
import math
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import norm

from helpers import HEADS as CASES
from helpers import LOG_2PI, H, as_data, draw_belief, small_data, small_model
from scrollmt.fit import stack
from scrollmt.heads import AbstractHead, Categorical, Gaussian, Ordinal
from scrollmt.laws import moment_matched
from scrollmt.model import Model, Task
from scrollmt.objective import Data
from scrollmt.paper.arena import scoring, training
from scrollmt.paper.arena.jobs import execute, make_job
from scrollmt.paper.arena.problems import problem
from scrollmt.paper.arms import ARMS, Arm, get_arm, questions, register
from scrollmt.paper.arms.base import STATE, one_run, penalised
from scrollmt.paper.arms.composition import FROZEN_PRECISIONS, start_frozen, without_precisions
from scrollmt.paper.arms.posterior import LAPLACE_PRECISIONS
from scrollmt.paper.arms.weighted import (
    GRID,
    MEANS_L2,
    Spread,
    Tempered,
    learned_weights,
    mean_losses,
    profiled_nll,
    residual_spread,
    summed_nll,
    weighted_sum,
)
from tiny_jobs import (
    FIRST,
    PROTOCOL,
    RUNS,
    SECOND,
    TEST,
    outcome,
    quick_compiler,
    registered,
    shortened,
    tiny_job,
)

PAPER_ARMS = {
    "scroll-none",
    "scroll-diag",
    "scroll-full",
    "map-ce",
    "map-probit",
    "map-ce-grid",
    "map-probit-grid",
    "kendall-ce",
    "kendall-probit",
    "mle-sigma-ce",
    "mle-sigma-probit",
    "laplace-diag-probit",
    "laplace-full-probit",
    "scroll-diag-ens5",
    "map-ce-ens5",
    "map-probit-ens5",
}
# The arms over other libraries are in test_peers.py.
COMPOSED = [name for name, arm in ARMS.items() if isinstance(arm, Arm)]
NLLS = {"state": "reg_nll", "event": "evt_nll", "regime": "ord_nll"}


def same_numbers(found: dict, expected: dict, rel: float) -> None:
    """Two rows agree in all but the time they took."""
    assert found.keys() == expected.keys()
    for name in expected.keys() - {"seconds"}:
        wanted = expected[name]
        close = pytest.approx(wanted, rel=rel, abs=1e-6) if isinstance(wanted, float) else wanted
        assert found[name] == close, name


# Conformance


def test_the_registry_has_every_row_of_the_papers_tables() -> None:
    assert set(ARMS) >= PAPER_ARMS
    probes = {"closed", "binding-map", "frozen-alpha", "alone-state", "alone-event", "alone-regime"}
    assert probes <= set(ARMS)
    assert all(name == arm.name and arm.summary for name, arm in ARMS.items())


@pytest.mark.slow
@pytest.mark.parametrize("name", COMPOSED)
def test_an_arm_trains_and_is_scored_like_every_other(name: str) -> None:
    arm = shortened(ARMS[name])
    seeds = RUNS // (arm.members * len(arm.settings))
    found = outcome(name)
    assert [*found.rows] == [*range(FIRST, FIRST + seeds)]
    for rows in found.rows.values():
        assert [json.loads(row["setting"]) for row in rows] == [*map(dict, arm.settings)]
        for row in rows:
            numbers = {k: v for k, v in row.items() if k not in ("setting", "stop_reason")}
            assert all(math.isfinite(value) for value in numbers.values()), numbers
            assert {NLLS[task] for task in arm.heads()} == numbers.keys() & set(NLLS.values())
            judged = sum(numbers[f"valid_{NLLS[task]}"] for task in arm.heads())
            assert numbers["valid_nats"] == pytest.approx(judged, rel=1e-12)
            assert arm.select in numbers
            # Training has improved on the starting values.
            assert 0 < numbers["best_step"] <= numbers["steps"] <= PROTOCOL.steps
    if STATE in arm.heads() and len(arm.settings) == 1:
        assert {k: len(v) for k, v in found.arrays.items()} == {"var": TEST, "true_var": TEST}
    # A seed's rows do not depend on what it was batched with.
    other = outcome(name, first=SECOND)
    for row, again in zip(found.rows[SECOND], other.rows[SECOND], strict=True):
        same_numbers(row, again, rel=1e-4)


@pytest.mark.slow
def test_a_seed_alone_gives_the_row_that_it_gives_in_a_batch() -> None:
    with quick_compiler():
        alone = execute(make_job("ou", "scroll-diag", "tanh", PROTOCOL, seeds=(SECOND,)))
    assert [*alone.rows] == [SECOND]
    same_numbers(alone.rows[SECOND][0], outcome("scroll-diag").rows[SECOND][0], rel=1e-3)


@pytest.mark.parametrize("name", ARMS)
def test_a_description_is_plain_json_and_the_same_each_time(name: str) -> None:
    described = ARMS[name].describe()
    assert json.loads(json.dumps(described)) == described == ARMS[name].describe()
    assert "0x" not in json.dumps(described)  # an address would make every process a new arm


def other_start(model: Model, train: Data, setting: dict, *, shift: float = 0.0) -> Model:
    return model


def other_finish(models: Model, train: Data, valid: Data) -> Model:
    return models


@pytest.mark.parametrize(
    "change",
    [
        {"heads": lambda: {**questions(), "regime": Ordinal(3)}},
        {"heads": lambda: {STATE: Gaussian()}},
        {"belief": "full"},
        {"objective": summed_nll},
        {"score": profiled_nll},
        {"settings": ({"weight": 1.0},)},
        {"settings": ({}, {})},
        {"start": other_start},
        {"finish": other_finish},
        {"members": 2},
    ],
    ids=lambda change: "+".join(change),
)
def test_a_description_changes_with_what_changes_results(change: dict) -> None:
    arm = ARMS["scroll-diag"]
    assert replace(arm, **change).describe() != arm.describe()


def test_a_partial_function_is_described_with_all_that_it_applies() -> None:
    arm = ARMS["scroll-diag"]
    starts = [
        other_start,
        partial(other_start, shift=1.0),
        partial(other_start, shift=2.0),
        partial(other_start, 1.0),
        partial(other_start, 2.0),
        partial(other_start, shift=other_finish),
    ]
    described = [json.dumps(replace(arm, start=start).describe()) for start in starts]
    assert len({*described}) == len(starts)
    assert not any("0x" in text for text in described)


def test_a_description_does_not_change_with_names_and_with_what_only_selects() -> None:
    arm = ARMS["map-ce-grid"]
    renamed = replace(arm, name="mine", summary="mine", select="valid_mixed", runs_of=arm.name)
    assert renamed.describe() == arm.describe()


# A user's own arm


def absolute_error(model: Model, data: Data, hyper: dict, data_scale: float) -> jax.Array:
    mean, _ = model.project(data.x)[STATE]
    return penalised(model, jnp.mean(jnp.abs(data.y[STATE] - mean)), hyper)


def one_value() -> dict[str, AbstractHead]:
    return {STATE: Gaussian()}


@pytest.fixture
def mine() -> Iterator[Arm]:
    arm = register(
        Arm(
            "median",
            "absolute error, two learning rates, five members each",
            heads=one_value,
            objective=absolute_error,
            finish=residual_spread,
            settings=({"learning_rate": 1e-9}, {"learning_rate": 0.03}),
            members=5,
        )
    )
    yield arm
    del ARMS["median"]


def test_an_arm_of_ones_own_is_known_and_runs(mine: Arm) -> None:
    assert get_arm("median") is mine
    with quick_compiler():
        found = execute(tiny_job("median"))
    still, moved = found.rows[FIRST]
    assert moved["reg_nll"] < still["reg_nll"] - 0.01
    # A setting may take the place of a number of the protocol.
    assert json.loads(still["setting"]) == {"learning_rate": 1e-9}
    # Members that are where they started and were never mixed with those that moved.
    labels = problem("ou", PROTOCOL).part(problem("ou", PROTOCOL).split(FIRST).test, 1.0)
    assert still["residual_var"] == pytest.approx(np.var(labels[1][STATE]), rel=0.2)


def test_a_mistake_in_an_arm_is_named_when_it_is_registered(mine: Arm) -> None:
    with pytest.raises(ValueError, match="'median' is registered already"):
        register(mine)
    with pytest.raises(ValueError, match="runs of 'nowhere', which is not registered"):
        register(Arm("b", "", runs_of="nowhere"))
    with pytest.raises(ValueError, match="the same names"):
        register(Arm("b", "", settings=({"a": 1.0}, {"b": 1.0})))
    with pytest.raises(ValueError, match="pass a function"):
        register(Arm("b", "", objective=eqx.nn.Identity()))
    with pytest.raises(ValueError, match=r"unknown arm 'b'; choose from .*median"):
        get_arm("b")


def test_an_arm_and_a_corpus_that_do_not_go_together_are_named_with_the_job() -> None:
    with (
        registered(Arm("b", "", heads=lambda: {"wind": Gaussian()})),
        pytest.raises(ValueError, match=r"heads for \['wind'\].*\['state', 'event', 'regime'\]"),
    ):
        make_job("ou", "b", "tanh")


# Losses by hand


@pytest.fixture(scope="module")
def labelled() -> tuple[Data, dict[str, np.ndarray]]:
    """Windows of the three tasks, a few labels missing; and who is observed."""
    given = small_data(["gaussian", "event", "ordinal4"])
    names = {"gaussian": "state", "event": "event", "ordinal4": "regime"}
    y = {task: np.array(given.y[name]) for name, task in names.items()}
    rng = np.random.default_rng(3)
    weight = {task: (rng.random(len(given)) < 0.8).astype(float) for task in y}
    return as_data(np.asarray(given.x), y, weight), weight


def point_model(heads: dict[str, AbstractHead], seed: int = 0) -> Model:
    backbone = small_model({}, seed=seed).backbone
    tasks = {}
    for i, (name, head) in enumerate(sorted(heads.items())):
        belief = draw_belief("none", H, seed=seed + i, rows=head.rows).belief
        tasks[name] = Task(head, jax.tree.map(jnp.float32, belief), jnp.zeros(()))
    return Model(backbone, tasks)


def probit_heads() -> dict[str, AbstractHead]:
    return {STATE: Gaussian(), "event": CASES["event"].make(), "regime": CASES["ordinal4"].make()}


def softmax_heads() -> dict[str, AbstractHead]:
    return {STATE: Gaussian(), "event": Categorical(2), "regime": Categorical(4)}


def by_hand(model: Model, data: Data, weight: dict[str, np.ndarray]) -> dict[str, float]:
    """Mean squared error and mean NLLs over the observed labels, in NumPy."""
    psi = np.asarray(model.features(data.x), np.float64)
    cases = {
        "event": CASES["event"] if model.tasks["event"].head.rows == 1 else CASES["categorical4"],
        "regime": CASES["ordinal4" if model.tasks["regime"].head.rows == 1 else "categorical4"],
    }
    out = {}
    for name, seen in weight.items():
        y = np.asarray(data.y[name])[seen > 0]
        a = (psi @ np.asarray(model.tasks[name].belief.mu, np.float64).T)[seen > 0]
        terms = (y - a) ** 2 if name == STATE else -cases[name].log_likelihood(y, a)
        out[name] = float(np.mean(terms))
    return out


def squared_norm(model: Model) -> float:
    weights: Any = model.backbone.weights
    return float(np.sum([np.sum(np.square(w, dtype=float)) for w in weights]))


HYPER = {"event_weight": 0.3, "regime_weight": 10.0, MEANS_L2: 0.02}


@pytest.mark.parametrize("heads", [probit_heads, softmax_heads], ids=["probit", "ce"])
def test_the_weighted_sum_is_the_one_written_by_hand(heads, labelled) -> None:
    data, weight = labelled
    model = point_model(heads())
    loss = by_hand(model, data, weight)
    expected = loss[STATE] + 0.3 * loss["event"] + 10.0 * loss["regime"]
    found = weighted_sum(model, data, HYPER, 1.0)
    assert float(found) == pytest.approx(expected + 0.01 * squared_norm(model), rel=1e-5)
    # What stops a run is the sum of NLLs, the state with the sd that fits its residuals best.
    gaussian = 0.5 * (LOG_2PI + 1.0 + math.log(loss[STATE]))
    nats = gaussian + loss["event"] + loss["regime"]
    assert float(profiled_nll(model, data)) == pytest.approx(nats, rel=1e-5)
    assert {k: float(v) for k, v in mean_losses(model, data).items()} == pytest.approx(
        loss, rel=1e-5
    )


@pytest.mark.parametrize("heads", [probit_heads, softmax_heads], ids=["probit", "ce"])
def test_learned_weights_have_the_papers_form(heads, labelled) -> None:
    data, weight = labelled
    s = {STATE: -0.4, "event": 0.7, "regime": -1.1}
    wrapped = {n: h if n == STATE else Tempered(h) for n, h in heads().items()}
    model = eqx.tree_at(
        lambda m: (
            m.tasks[STATE].head.log_sigma_obs,
            m.tasks["event"].head.log_scale,
            m.tasks["regime"].head.log_scale,
        ),
        point_model(wrapped),
        tuple(jnp.asarray(v) for v in s.values()),
    )
    loss = by_hand(model, data, weight)
    expected = 0.5 * math.exp(0.8) * loss[STATE] - 0.4  # half for the squared error alone
    expected += math.exp(-1.4) * loss["event"] + 0.7
    expected += math.exp(2.2) * loss["regime"] - 1.1
    found = learned_weights(model, data, HYPER, 1.0)
    assert float(found) == pytest.approx(expected + 0.01 * squared_norm(model), rel=1e-5)
    # exp(s) is the sd that is reported; the other scales weigh losses and touch no law.
    law = model.tasks[STATE].head.law(np.zeros(2), np.zeros(2))
    np.testing.assert_allclose(law.sd, math.exp(-0.4), rtol=1e-6)
    inner = model.tasks["regime"].head
    line = np.zeros((3, 4)) if inner.rows == 4 else np.array([-1.0, 0.0, 2.0])
    var = np.zeros_like(line)
    np.testing.assert_array_equal(
        inner.law(line, var).log_probs, inner.head.law(line, var).log_probs
    )


def test_the_sd_head_is_a_gaussian_with_two_lines(labelled) -> None:
    data, weight = labelled
    head = eqx.tree_at(lambda h: h.log_sd_offset, Spread(), jnp.asarray(0.3))
    lines = np.random.default_rng(0).normal(size=(7, 2)).astype(np.float32)
    y = np.linspace(-3.0, 3.0, 7)
    expected = norm.logpdf(y, lines[:, 0], np.exp(lines[:, 1] + 0.3))
    found = head.log_predictive(jnp.asarray(y), jnp.asarray(lines), jnp.zeros((7, 2)))
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    np.testing.assert_allclose(head.law(lines, 0.0 * lines).log_prob(y), expected, rtol=1e-5)
    # The loss of its arms is the plain sum of mean NLLs.
    model = point_model({**probit_heads(), STATE: head})
    psi = np.asarray(model.features(data.x), np.float64)
    mean, log_sd = (psi @ np.asarray(model.tasks[STATE].belief.mu, np.float64).T).T
    terms = -norm.logpdf(np.asarray(data.y[STATE]), mean, np.exp(log_sd + 0.3))
    loss = by_hand(model, data, {n: weight[n] for n in ("event", "regime")})
    nll = float(np.average(terms, weights=weight[STATE])) + sum(loss.values())
    total = summed_nll(model, data, HYPER, 1.0)
    assert float(total) == pytest.approx(nll + 0.01 * squared_norm(model), rel=1e-5)


# What each family promises of its rows


def all_rows(name: str) -> list[dict]:
    return [row for rows in outcome(name).rows.values() for row in rows]


@pytest.mark.parametrize("name", ["map-ce", "map-probit", "map-ce-grid"])
def test_a_map_arm_reports_the_rms_of_its_validation_residuals(name: str) -> None:
    for row in all_rows(name):
        squared = row["valid_mixed"] - row["valid_evt_nll"] - row["valid_ord_nll"]
        assert row["sigma_obs"] == pytest.approx(math.sqrt(squared), rel=1e-5)
        assert row["mean_sd"] == pytest.approx(row["sigma_obs"], rel=1e-6)
        assert row["var_range"] == pytest.approx(1.0, abs=1e-12)
        nats = 0.5 * (LOG_2PI + 1.0 + math.log(squared))
        assert row["valid_reg_nll"] == pytest.approx(nats, rel=1e-5)


def test_residual_spread_counts_observed_labels_alone(labelled) -> None:
    data, weight = labelled
    models = stack([point_model(probit_heads(), seed=s) for s in (0, 1)])
    both = jax.tree.map(lambda a: jnp.stack([a, a]), data)
    found = residual_spread(models, both, both)
    for run in range(2):
        loss = by_hand(one_run(models, run), data, weight)
        sigma = float(one_run(found, run).tasks[STATE].head.sigma_obs)
        assert sigma == pytest.approx(math.sqrt(loss[STATE]), rel=1e-5)


@pytest.mark.parametrize("kind", ["ce", "probit"])
def test_weights_of_one_are_a_cell_of_the_grid_and_both_rules_choose_among_its_runs(
    kind: str,
) -> None:
    ones = {"event_weight": 1.0, "regime_weight": 1.0}
    assert GRID[24] == ones
    assert len(GRID) == 49
    assert ARMS[f"map-{kind}-grid"].settings == GRID
    single, grid = outcome(f"map-{kind}"), outcome(f"map-{kind}-grid")
    for seed, rows in grid.rows.items():
        (cell,) = (row for row in rows if json.loads(row["setting"]) == ones)
        same_numbers(single.rows[seed][0], cell, rel=1e-4)
    fair, mixed = ARMS[f"map-{kind}-grid"], ARMS[f"map-{kind}-grid-mixed"]
    assert mixed.runs_of == fair.name
    assert mixed.describe() == fair.describe()
    assert (fair.select, mixed.select) == ("valid_nats", "valid_mixed")
    for row, again in zip(all_rows(fair.name), all_rows(mixed.name), strict=True):
        same_numbers(row, again, rel=0.0)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["ce", "probit"])
def test_a_learned_scale_is_the_sd_of_the_state(kind: str) -> None:
    for row in all_rows(f"kendall-{kind}"):
        assert row["sigma_obs"] != pytest.approx(1.0, abs=1e-3)  # it has moved
        assert row["mean_sd"] == pytest.approx(row["sigma_obs"], rel=1e-6)
        assert row["belief_share"] == pytest.approx(0.0, abs=1e-6)


@pytest.mark.parametrize("kind", ["ce", "probit"])
def test_the_sd_head_gives_every_window_its_own(kind: str) -> None:
    for row in all_rows(f"mle-sigma-{kind}"):
        assert row["var_range"] > 1.01
        assert "sigma_obs" not in row


def test_frozen_precisions_do_not_move() -> None:
    assert FROZEN_PRECISIONS == (0.01, 0.1, 1.0, 10.0, 100.0, 1000.0, 10000.0)
    for row in all_rows("frozen-alpha"):
        wanted = json.loads(row["setting"])["prior_precision"]
        for task in questions():
            assert row[f"alpha_{task}"] == pytest.approx(wanted, rel=1e-6)
    free = all_rows("scroll-diag")
    assert all(row[f"alpha_{task}"] != 1.0 for row in free for task in questions())
    # All else is trained.
    start = small_model()
    wanted = without_precisions(start_frozen(start, small_data(), {"prior_precision": 5.0}))
    fixed, _ = eqx.partition(start, jax.tree.map(lambda w: not w, wanted))
    assert len(jax.tree.leaves(eqx.filter(fixed, eqx.is_inexact_array))) == len(start.tasks)


@pytest.mark.parametrize("task", ["state", "event", "regime"])
def test_an_arm_alone_has_one_head_and_its_columns(task: str) -> None:
    arm = ARMS[f"alone-{task}"]
    assert list(arm.heads()) == [task]
    assert repr(arm.heads()[task]) == repr(questions()[task])
    row = all_rows(arm.name)[0]
    assert row.keys() & set(NLLS.values()) == {NLLS[task]}
    assert [name for name in row if name.startswith("alpha_")] == [f"alpha_{task}"]


@pytest.mark.slow
@pytest.mark.parametrize("family", ["diag", "full"])
def test_a_curvature_belief_is_added_to_the_fit_of_map_probit(family: str) -> None:
    for found, base in zip(
        all_rows(f"laplace-{family}-probit"), all_rows("map-probit"), strict=True
    ):
        assert found["best_step"] == base["best_step"]
        assert found["sigma_obs"] == pytest.approx(base["sigma_obs"], rel=1e-6)
        # The mean is untouched, the variance is not.
        assert found["residual_var"] == pytest.approx(base["residual_var"], rel=1e-5)
        assert found["mean_var"] > base["mean_var"]
        for task in questions():
            assert min(abs(found[f"alpha_{task}"] / np.array(LAPLACE_PRECISIONS) - 1)) < 1e-5
        # Validation may always choose to add next to nothing.
        for column in NLLS.values():
            assert found[f"valid_{column}"] < base[f"valid_{column}"] + 1e-3
    assert LAPLACE_PRECISIONS[::16] == pytest.approx((1e-4, 1e4))


@pytest.mark.slow
def test_the_two_routes_differ_from_the_free_fit_in_the_state_alone() -> None:
    free, closed, bound = (all_rows(n)[0] for n in ("scroll-diag", "closed", "binding-map"))
    for one, other in ((free, closed), (free, bound), (closed, bound)):
        assert all(abs(one[c] / other[c] - 1.0) > 1e-3 for c in ("reg_nll", "sigma_obs"))
        # Twenty steps of Adam in one direction take the precision nearly as far by any route.
        assert one["alpha_state"] != other["alpha_state"]
    assert ARMS["closed"].describe() != ARMS["binding-map"].describe()
    assert list(ARMS["closed"].heads()) == list(questions())


def test_an_ensemble_is_the_moments_and_the_mean_probabilities_of_its_members(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made_of, scored = {}, []
    columns = scoring.test_columns

    def watched_mix(laws):
        law = moment_matched(laws)
        made_of[law] = laws
        return law

    def watched_columns(laws, y):
        scored.append((laws, y))
        return columns(laws, y)

    monkeypatch.setattr(training, "moment_matched", watched_mix)
    monkeypatch.setattr(scoring, "test_columns", watched_columns)
    with quick_compiler():
        found = execute(tiny_job("scroll-diag-ens5"))
    laws, y = scored[0]
    by_task = {task: (made_of[law], law) for task, law in laws.items()}
    members, law = by_task[STATE]
    assert len(members) == 5
    assert len(law) == TEST
    means, variances = (np.array([getattr(m, k) for m in members]) for k in ("mean", "var"))
    assert np.ptp(means, axis=0).min() > 1e-5  # other starting values, other fits
    np.testing.assert_allclose(law.mean, means.mean(axis=0), rtol=1e-12)
    total = np.mean(variances + means**2, axis=0) - means.mean(axis=0) ** 2
    np.testing.assert_allclose(law.var, total, rtol=1e-9)
    for task in ("event", "regime"):
        members, law = by_task[task]
        expected = np.mean([np.exp(m.log_probs) for m in members], axis=0)
        np.testing.assert_allclose(law.probs, expected, rtol=1e-9)
    row, alone = found.rows[FIRST][0], outcome("scroll-diag").rows[FIRST][0]
    for task, column in NLLS.items():
        members, law = by_task[task]
        assert row[column] == pytest.approx(-np.mean(law.log_prob(y[task])), rel=1e-9)
        # The first member is the arm itself at this seed.
        assert alone[column] == pytest.approx(-np.mean(members[0].log_prob(y[task])), rel=1e-4)
