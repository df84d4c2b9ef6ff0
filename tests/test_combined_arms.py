"""Arms that weight losses or combine gradients: their objectives, and what they leave as it was."""

import json
from dataclasses import replace
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from helpers import small_data, small_model
from scrollmt.combining import GradNorm, PCGrad
from scrollmt.model import Model
from scrollmt.objective import Data, composed_objective
from scrollmt.paper.arena import archive
from scrollmt.paper.arena.jobs import make_job
from scrollmt.paper.arms import ARMS, Arm
from scrollmt.paper.arms.combined import RULES, drawn_weights, means_by_task, nats_by_task
from scrollmt.paper.arms.weighted import MEANS_L2, ONE, WEIGHTS, weighted_sum

RECORDS = Path(__file__).parents[1] / "docs" / "results" / "records"
NOW_AT = "scrollmt.paper.arms."
HYPER = {"backbone_l2": jnp.asarray(0.3), MEANS_L2: jnp.asarray(0.6)}
HYPER |= {name: jnp.asarray(value) for name, value in ONE[0].items()}


def small() -> tuple[Model, Data]:
    """The model and windows of the helpers, under the names of the paper's tasks."""
    names = {"state": "gaussian", "event": "event", "regime": "ordinal4"}
    beliefs = dict.fromkeys(names.values(), "diag")
    model, data = small_model(beliefs), small_data(beliefs)
    tasks = {ours: model.tasks[theirs] for ours, theirs in names.items()}
    y, weight = ({o: d[t] for o, t in names.items()} for d in (data.y, data.weight))
    return Model(model.backbone, tasks), Data(data.x, y, weight)


def test_recorded_jobs_are_those_that_would_be_computed_now() -> None:
    """An arm without a rule is described as it was, so that its records keep their keys."""
    recorded = {job["arm"]: job for job in archive.load_jobs(RECORDS) if job["arm"] in ARMS}
    assert len(recorded) > 15
    for arm, job in recorded.items():
        now = json.loads(make_job(job["corpus"], arm, job["backbone"]).determinants)["arm"]
        # The folder of the arms has moved since these records were made.
        before = json.dumps(job["determinants"]["arm"]).replace("scrollmt.arms.", NOW_AT)
        assert now == json.loads(before), arm


def test_a_rule_is_part_of_what_determines_an_arm() -> None:
    arm = ARMS["pcgrad-probit"]
    assert isinstance(arm, Arm)
    described = arm.describe()
    assert described["combine"] == (
        "scrollmt.combining.surgery.PCGrad(shared=scrollmt.combining.base.backbone_of(),"
        "beside=('penalty',))"
    )
    others = [None, GradNorm(), GradNorm(alpha=1.0), PCGrad()]
    texts = [json.dumps(replace(arm, combine=rule).describe()) for rule in others]
    assert len({*texts, json.dumps(described)}) == 5
    assert "combine" not in replace(arm, combine=None).describe()
    assert "scrollmt.combining.surgery" in arm.modules()


def test_every_rule_has_an_arm_on_means_and_one_on_nats() -> None:
    for name, (on_means, on_nats, _) in RULES.items():
        against, composed = ARMS[f"{name}-probit"], ARMS[f"{name}-scroll-diag"]
        assert isinstance(against, Arm)
        assert isinstance(composed, Arm)
        assert (against.belief, composed.belief) == ("none", "diag")
        assert (against.combine, composed.combine) == (on_means, on_nats)


@pytest.mark.slow
def test_the_losses_of_the_arms_are_those_of_the_objectives_that_they_stand_beside() -> None:
    with jax.enable_x64(True):
        model, data = small()
        apart = nats_by_task(model, data, HYPER, 1.0)
        total = composed_objective(model, data, HYPER, 1.0) / len(data)
        assert sorted(apart) == ["event", "penalty", "regime", "state"]
        assert float(sum(apart.values())) == pytest.approx(float(total), rel=1e-12)
        means = means_by_task(model, data, HYPER, 1.0)
        weighted = weighted_sum(model, data, HYPER, 1.0)
        assert float(sum(means.values())) == pytest.approx(float(weighted), rel=1e-12)


def test_a_smaller_search_is_the_beginning_of_the_largest() -> None:
    whole = ARMS["random-49"]
    assert len(whole.settings) == 49
    for count in (7, 1):
        arm = ARMS[f"random-{count}"]
        assert arm.runs_of == "random-49"
        assert arm.settings == whole.settings[:count] == drawn_weights(count)
    logs = np.log([[*setting.values()] for setting in whole.settings])
    low, high = np.log(WEIGHTS[0]), np.log(WEIGHTS[-1])
    assert low <= logs.min() < low + 1.0
    assert high - 1.0 < logs.max() <= high
    # The mean of 98 uniform numbers, within three standard errors.
    assert abs(logs.mean() - (low + high) / 2) < 3 * (high - low) / np.sqrt(12 * 98)
