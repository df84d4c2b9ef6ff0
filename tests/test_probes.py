"""The probes' data are what they say, and their jobs run as any other arm's do."""

import json
from dataclasses import replace
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from scipy.special import log_softmax

from scrollmt.backbone import PAPER_WIDTH
from scrollmt.paper.arena.jobs import execute, make_job
from scrollmt.paper.arena.problems import Problem, problem
from scrollmt.paper.arena.runs import frame_of, runs_of
from scrollmt.paper.arena.sources import SOURCES, Asked
from scrollmt.paper.arms import event_bias
from scrollmt.paper.arms.composition import FROZEN_PRECISIONS
from scrollmt.paper.protocol import PROTOCOL, Protocol
from scrollmt.paper.studies import get_study
from scrollmt.paper.studies.probes import corpus, coupling, equivariance, joint, precision

SMALL = replace(PROTOCOL, steps=20, corpus_windows=260, seeds=(5, 6), truth_members=10)


def recorded(
    name: str, arm: str, backbone: str, protocol: Protocol = SMALL, seeds: Any = None
) -> pd.DataFrame:
    """What the records would hold of a job; what cannot be recorded raises here."""
    job = make_job(name, arm, backbone, protocol, seeds)
    return frame_of(runs_of(job, execute(job)))


# Facts of corpora


def test_facts_of_ou() -> None:
    frame = recorded("ou", corpus.NAME, corpus.BACKBONE)
    of = problem("ou", SMALL)
    row = frame.set_index("seed").loc[5]
    assert (row["windows"], row["inputs"]) == (260, 1)
    rate = np.mean(of.Y["event"] == 1)
    assert row["majority_pct"] == pytest.approx(100 * max(rate, 1 - rate))
    agree = (of.X[:, 0] > 0) == of.Y["event"].astype(bool)
    assert row["sign_rule_pct"] == pytest.approx(100 * agree.mean())
    assert row["spread_sd_p10"] == row["spread_sd_p90"] == pytest.approx(np.sqrt(1 - np.exp(-1)))
    assert row["true_var_range"] == 1.0
    assert sum(row[f"regime_share_{r}"] for r in range(4)) == pytest.approx(1.0)
    # Only what depends on the split differs between seeds.
    differ = frame.loc[:, frame.nunique() > 1].columns
    assert set(differ) == {"seed", "train_target_var"}


def test_facts_of_lorenz() -> None:
    row = recorded("lorenz63", corpus.NAME, corpus.BACKBONE).iloc[0]
    assert (row["chains"], row["windows_per_chain"]) == (65, 4.0)
    assert row["event_is_sign_of_state"] == 1.0
    assert row["spread_sd_p10"] ** 2 < row["spread_mean_var"] < row["spread_sd_p90"] ** 2
    assert row["true_var_range"] > 10.0


def test_bands_follow_from_the_state() -> None:
    level = np.array([0.0, 34.9, 35.0, 74.0, 75.0, 149.0, 150.0, 500.0])
    labels = {
        "state": np.log1p(level),
        "event": (level > 75).astype(int),
        "regime": np.array([0, 0, 1, 1, 2, 2, 3, 3]),
    }
    source = SOURCES["pm25"]
    asked = Asked(0.5, 0, 8)
    of = Problem("pm25", np.ones((8, 2)), labels, 1.0, False, None, None, source, asked)
    assert corpus._of_windows(of)["regime_is_band_of_state"] == 1.0
    labels["regime"][0] = 3
    assert corpus._of_windows(of)["regime_is_band_of_state"] == pytest.approx(7 / 8)


# Cross-entropy with a bias


def test_the_bias_shifts_one_class() -> None:
    head = event_bias.BiasedEvent()
    lines = np.random.default_rng(0).normal(size=(6, 2)).astype(np.float32)
    y = np.array([0, 1, 1, 0, 1, 0])
    want = log_softmax(lines + np.array([0.0, 0.7]), axis=-1)

    def scores(bias: jax.Array) -> jax.Array:
        shifted = jax.tree.map(lambda _: bias, head)
        return shifted.log_predictive(jnp.asarray(y), jnp.asarray(lines), jnp.zeros((6, 2)))

    got = scores(jnp.asarray(0.7))
    np.testing.assert_allclose(got, want[np.arange(6), y], rtol=1e-5)
    biased = jax.tree.map(lambda _: jnp.asarray(0.7), head)
    np.testing.assert_allclose(biased.law(lines, 0.0 * lines).log_probs, want, rtol=1e-5)
    slope = jax.grad(lambda b: scores(b).sum())(jnp.asarray(0.7))
    np.testing.assert_allclose(slope, np.sum(y - np.exp(want[:, 1])), rtol=1e-4)


def test_a_bias_repairs_the_event_head() -> None:
    protocol = replace(SMALL, steps=300, corpus_windows=1000, seeds=(5,))
    found = recorded("ou", event_bias.NAME, "tanh", protocol).iloc[0]
    event = problem("ou", protocol).Y["event"]
    assert found["evt_acc_pct"] > 100 * np.mean(event == 0) + 3.0


# Equivariance


@cache
def scaled() -> pd.DataFrame:
    return recorded("ou", equivariance.NAME, "tanh+ln")


def variant(factor: float, name: str) -> pd.DataFrame:
    setting = json.dumps({"factor": factor, "variant": name})
    frame = scaled()
    return frame[frame["setting"] == setting].set_index("seed")


@pytest.mark.slow
def test_the_reference_is_the_arm_of_the_tables() -> None:
    ours, arm = variant(1.0, equivariance.COLD), recorded("ou", "scroll-diag", "tanh+ln")
    arm = arm.set_index("seed")
    for column in ("reg_nll", "evt_nll", "ord_nll", "valid_nats", "alpha_state", "sigma_obs"):
        np.testing.assert_allclose(ours[column], arm[column], rtol=2e-5, err_msg=column)


@pytest.mark.slow
def test_every_variant_is_a_run_of_its_own() -> None:
    frame = scaled()
    assert len(frame) == 8 * len(SMALL.seeds)
    assert not frame.duplicated(["seed", "setting"]).any()
    cold = variant(equivariance.UP, equivariance.COLD)
    for name in (equivariance.MAPPED, equivariance.WARM, equivariance.FLOOR, equivariance.LONG):
        assert (variant(equivariance.UP, name)["reg_nll"] != cold["reg_nll"]).all()
    both = variant(equivariance.UP, equivariance.BOTH)
    assert (both["steps"] > cold["steps"]).all()
    assert both["steps"].max() <= equivariance.LONGER * SMALL.steps
    assert (frame["psi_norm_max"] <= PAPER_WIDTH + 1e-3).all()


def test_a_warm_start_is_at_the_mapped_solution() -> None:
    """The start is scored too, so that the best of a run is never behind it."""
    base = variant(1.0, equivariance.COLD)
    warm = variant(equivariance.UP, equivariance.WARM)
    behind = warm["valid_nats"] - np.log(equivariance.UP) - base["valid_nats"]
    assert (behind < 1e-4).all()


def test_the_findings_read_the_records_of_a_run() -> None:
    frame = pd.concat(scaled().assign(corpus="lorenz63", backbone=b) for b in ("tanh", "tanh+ln"))
    found = get_study("equivariance").findings(frame)
    assert all(f.verdict != "not checkable" and np.isfinite(f.numbers).all() for f in found)


def test_the_floor_alone_is_lifted() -> None:
    train = equivariance._parts(problem("ou", SMALL), 5, 1.0).train
    model = equivariance._start("tanh+ln", train, 5, SMALL)
    before, after = (m.tasks["state"].belief for m in (model, equivariance._lift_floor(model, 8.0)))
    gap = jnp.diagonal(after.cov()) - jnp.diagonal(before.cov())
    np.testing.assert_allclose(gap, 63.0 * SMALL.cov_floor, rtol=1e-3)
    np.testing.assert_allclose(after.mu, before.mu, rtol=1e-6)


# Precisions


def test_the_pair_has_the_precisions_it_says() -> None:
    (data,) = precision.draw(3, [40_000])
    psi = np.asarray(data.x, float)
    w, residual, *_ = np.linalg.lstsq(psi, np.asarray(data.y["state"], float), rcond=None)
    assert PAPER_WIDTH / (w @ w) == pytest.approx(16.0, rel=0.05)
    assert residual.item() / len(psi) == pytest.approx(precision.SIGMA_OBS**2, rel=0.03)
    shares = np.bincount(np.asarray(data.y["regime"]), minlength=4) / len(psi)
    np.testing.assert_allclose(shares, 0.25, atol=0.02)
    again, other = precision.draw(3, [40]), precision.draw(4, [40])
    np.testing.assert_array_equal(precision.draw(3, [40])[0].x, again[0].x)
    assert not np.array_equal(again[0].x, other[0].x)


@pytest.mark.slow
def test_pairs_are_frozen_and_one_run_fits() -> None:
    protocol = replace(SMALL, corpus_windows=650)
    frame = recorded(precision.CORPUS, precision.NAME, precision.BACKBONE, protocol, (0,))
    settings = frame["setting"].map(json.loads)
    fitted = settings.map(lambda s: "fitted" in s)
    assert fitted.sum() == 1
    frozen = pd.DataFrame(settings[~fitted].tolist(), index=settings[~fitted].index)
    assert sorted(set(frozen["alpha_state"])) == sorted(FROZEN_PRECISIONS)
    assert len(frozen.drop_duplicates()) == 49
    for column in ("alpha_state", "alpha_regime"):
        np.testing.assert_allclose(frame.loc[~fitted, column], frozen[column], rtol=1e-5)
        assert frame.loc[fitted, column].item() != 1.0
    assert np.isfinite(frame[["reg_nll", "ord_nll", "valid_nats"]]).all(axis=None)


# The joint observation model


def test_the_joint_probe_is_a_job(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = {}

    def run(seeds: Any, rhos: Any, **options: Any) -> list[dict[str, float]]:
        calls.update(options)
        return [{"rho": r, "seed": float(s), "gain": r + s} for r in rhos for s in seeds]

    monkeypatch.setattr(joint, "run", run)
    frame = recorded(coupling.CORPUS, coupling.NAME, coupling.BACKBONE)
    assert calls["protocol"].steps == SMALL.steps
    assert calls["windows"] == (80, 40, 800)
    strong = frame[frame["setting"] == json.dumps({"rho": 0.8})].set_index("seed")
    assert [*strong["gain"]] == [5.8, 6.8]
    assert "rho" not in frame
