"""`Forecaster(routing=...)`: every routing under folds and a held-out part, stored, exported."""

from pathlib import Path
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import onnxruntime
import pytest
from sklearn.base import clone

from scrollmt import Categorical, Event, Forecaster, Gaussian, Mixture, Real, load
from scrollmt.beliefs import Diag, LowRank
from scrollmt.export import to_onnx
from scrollmt.report.assessment import gather
from scrollmt.report.card import model_card
from scrollmt.routing import LAPLACE_PRECISIONS, ROUTINGS, Fixed, read_routing
from scrollmt.splits import k_folds
from small import STATE, TASKS, assert_same, numbers, tiny, windows
from test_large import preset as many_rows

# Every fit is a program of its own.
pytestmark = pytest.mark.slow

X, WHOLE = windows()
NEW, LATER = windows(20, seed=1)
# Some labels are missing, others for each task.
Y = {
    name: np.where(np.arange(len(X)) % 7 == k, np.nan, values)
    for k, (name, values) in enumerate(WHOLE.items())
}


@pytest.fixture(scope="module")
def fitted() -> dict[str, Forecaster]:
    return {name: tiny(routing=name, seed=3).fit(X, Y) for name in ROUTINGS}


def information_by_hand(model: Forecaster, rows: np.ndarray, member: int = 0) -> np.ndarray:
    """What the labels of some rows add to the precision of the state's weights."""
    x = jnp.asarray(model.scales_.inputs(X)[rows], jnp.float32)
    psi = np.asarray(model.members_[member].features(x), np.float64)
    psi = psi[~np.isnan(Y["state"][rows])]
    head: Any = model.members_[member].tasks["state"].head
    return np.asarray(psi.T @ psi / float(head.sigma_obs) ** 2)


def information(model: Forecaster, task: str = "state", member: int = 0) -> np.ndarray:
    """The precision of a belief without that of its prior."""
    found = model.members_[member].tasks[task]
    precision = np.linalg.inv(np.asarray(found.belief.cov(), np.float64))
    return np.asarray(precision - float(found.prior_precision) * np.eye(len(precision)))


def same(one: np.ndarray, other: np.ndarray) -> bool:
    """Equal but for single precision, in which beliefs are stored."""
    return bool(np.abs(one - other).max() < 0.01 * np.abs(other).max())


# What each routing leaves behind


def test_each_routing_has_its_kind_of_belief(fitted: dict[str, Forecaster]) -> None:
    kinds = {
        name: [type(task.belief) for task in model.model_.tasks.values()]
        for name, model in fitted.items()
    }
    trained = [Diag, Diag, Diag]
    assert kinds == {
        "free": trained,
        "closed": [Diag, Diag, Fixed],
        "binding-map": [Diag, Diag, Fixed],
        "laplace": [Fixed, Fixed, Fixed],
        "elbo": trained,
        "ppgpr": trained,
    }
    nll = {name: model.validation_nll_ for name, model in fitted.items()}
    assert len(set(nll.values())) == len(nll)
    assert np.isfinite(list(nll.values())).all()


@pytest.mark.parametrize("name", ROUTINGS)
def test_every_routing_is_scored_stored_and_cloned(
    name: str, fitted: dict[str, Forecaster], tmp_path: Path
) -> None:
    model = fitted[name]
    assert np.isfinite(model.evaluate(NEW, LATER)["nll"]).all()
    model.save(tmp_path / "model")
    again = load(tmp_path / "model")
    assert again.routing == name
    assert_same(numbers(again, NEW), numbers(model, NEW))
    assert clone(model).get_params()["routing"] == name
    # The score that chose it is that of the laws that it has in the end.
    assert again.candidates_["validation_nll"].min() == pytest.approx(model.validation_nll_, 1e-3)


def test_the_same_model_is_trained_where_the_routing_is_free(fitted: dict[str, Forecaster]) -> None:
    assert_same(numbers(fitted["free"], NEW), numbers(tiny(seed=3).fit(X, Y), NEW))


@pytest.mark.parametrize("name", ["closed", "laplace"])
def test_computed_beliefs_are_exported(name: str, fitted: dict[str, Forecaster]) -> None:
    session = onnxruntime.InferenceSession(to_onnx(fitted[name]).SerializeToString())
    names = [output.name for output in session.get_outputs()]
    found = dict(zip(names, session.run(None, {"X": NEW}), strict=True))
    laws: Any = fitted[name].predict(NEW)
    np.testing.assert_allclose(found["state_sd"], laws["state"].sd, rtol=1e-4)
    np.testing.assert_allclose(found["event_probs"], laws["event"].probs, rtol=1e-4)


# Which rows a posterior is of


@pytest.mark.parametrize("name", ["closed", "binding-map"])
def test_a_posterior_is_that_of_the_rows_that_train(name: str) -> None:
    model = tiny(STATE, routing=name, refit=True).fit(X, {"state": Y["state"]})
    everything = np.arange(len(X))
    assert same(information(model), information_by_hand(model, everything))
    part = tiny(STATE, routing=name).fit(X, {"state": Y["state"]})
    assert not same(information(part), information_by_hand(part, everything))


@pytest.mark.parametrize("name", ["closed", "laplace"])
def test_with_folds_each_run_has_the_posterior_of_its_own_rows(name: str) -> None:
    model = tiny(STATE, routing=name, belief="full", validation=2).fit(X, {"state": Y["state"]})
    folds = k_folds(len(X), 2, 0)
    found = set()
    for member in range(len(model.members_)):
        own = information(model, member=member)
        by_fold = [information_by_hand(model, rows, member) for rows in folds.train]
        matches = [fold for fold in range(2) if same(own, by_fold[fold])]
        assert len(matches) == 1
        found |= set(matches)
    assert found == {0, 1}


def test_the_precision_of_a_curvature_is_chosen_and_its_shape_is_asked_for() -> None:
    beliefs = {"state": "full", "event": "diag", "regime": Diag}
    model = tiny(routing="laplace", belief=beliefs, seed=3).fit(X, Y)
    for name, task in model.model_.tasks.items():
        known = information(model, name)
        off = known - np.diag(np.diag(known))
        assert (np.abs(off).max() > 0.05 * np.abs(known).max()) == (name == "state")
        nearest = min(abs(np.log(float(task.prior_precision) / p)) for p in LAPLACE_PRECISIONS)
        assert nearest < 1e-4


def test_a_fold_without_labels_of_a_task_leaves_the_choice_to_the_training_rows() -> None:
    few = np.full(len(X), np.nan)
    few[k_folds(len(X), 2, 0).train[0]] = 0.0
    few[k_folds(len(X), 2, 0).train[0][::2]] = 1.0
    with pytest.warns(UserWarning, match="event"):
        model = tiny({**STATE, "event": Event()}, routing="laplace", validation=2).fit(
            X, {"state": Y["state"], "event": few}
        )
    law: Any = model.predict(NEW)["event"]
    assert np.isfinite(law.prob).all()


# Together with the rest of the estimator


def test_laws_are_in_the_units_of_the_user() -> None:
    setting: dict[str, Any] = {"preset": "quick", "steps": 40, "routing": "laplace"}
    laws: list[Any] = [
        Forecaster(STATE, **setting).fit(X, {"state": scale * Y["state"] + 5.0}).predict(NEW)
        for scale in (1.0, 1000.0)
    ]
    one, other = (each["state"] for each in laws)
    np.testing.assert_allclose(other.sd, 1000.0 * one.sd, rtol=1e-2)
    np.testing.assert_allclose(other.mean - 5.0, 1000.0 * (one.mean - 5.0), rtol=1e-2, atol=5.0)


def test_recalibration_and_ensembles_take_any_routing() -> None:
    model = tiny(routing="elbo", ensemble=2, calibrate="isotonic").fit(X, WHOLE)
    assert set(model.calibration_) <= set(TASKS)
    assert len({m for own in model.committee_.values() for m in own}) == 2
    law: Any = model.predict(NEW)["state"]
    low, high = law.interval(0.9)
    assert (low < high).all()


def test_a_value_with_variants_leaves_out_those_of_several_lines() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(260, 2))
    y = {"value": x[:, 0] + 0.3 * rng.normal(size=260)}
    heads = {
        name: set(tiny({"value": Real()}, routing=name, validation=2).fit(x, y).model_.tasks)
        for name in ("elbo", "ppgpr")
    }
    assert heads == {"elbo": {"value"}, "ppgpr": {"value", "value|Mixture"}}


def test_many_rows_train_by_objectives_that_read_some_at_a_time() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(150, 2))
    y = {"state": x[:, 0] + 0.3 * rng.normal(size=150)}
    setting: dict[str, Any] = {"preset": many_rows()}
    model = Forecaster(STATE, routing="elbo", **setting).fit(x, y)
    assert np.isfinite(model.validation_nll_)
    for name in ("closed", "binding-map", "laplace"):
        with pytest.raises(ValueError, match=rf"routing='{name}' needs all training rows at once"):
            Forecaster(STATE, routing=name, **setting).fit(x, y)


@pytest.mark.parametrize(
    ("name", "said", "limits"),
    [
        ("free", None, ["was trained to predict"]),
        ("elbo", "elbo: variational posterior", ["says how well the last layer"]),
        (
            "closed",
            "closed: Gaussian tasks at their posterior",
            ["spread of state says how well", "spread of event, regime was trained"],
        ),
    ],
)
def test_a_report_says_how_beliefs_came_about(
    name: str, said: str | None, limits: list[str], fitted: dict[str, Forecaster]
) -> None:
    card = str(model_card(gather(fitted[name], NEW, LATER)))
    assert ("Routing" in card) == (said is not None)
    assert said is None or said in card
    assert all(text in card.replace("&#x27;", "'").replace("&#39;", "'") for text in limits)


# What has no form


class Noisy(eqx.Module):
    """Features with dropout."""

    layer: eqx.nn.Linear
    dropout: eqx.nn.Dropout

    def __init__(self, key: Any):
        self.layer = eqx.nn.Linear(3, 4, key=key)
        self.dropout = eqx.nn.Dropout(0.2)

    def __call__(self, x: Any, *, key: Any = None) -> Any:
        return self.dropout(self.layer(x), key=key)


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "a name": ({"routing": "best"}, r"unknown routing 'best'; choose from \['free', 'closed'"),
    "elbo, no variance": (
        {"routing": "elbo", "belief": "none"},
        "task 'state': routing='elbo' needs a belief with a variance, and belief='none'",
    ),
    "ppgpr, no variance": (
        {"routing": "ppgpr", "belief": {"state": "full", "event": "none", "regime": "diag"}},
        "task 'event': routing='ppgpr' needs a belief with a variance",
    ),
    "elbo, lines": (
        {"routing": "elbo", "tasks": {"state": Mixture(2)}},
        r"task 'state': routing='elbo' needs a head that reads one latent line, and Mixture\(2\)",
    ),
    "laplace, lines": (
        {"routing": "laplace", "tasks": {"kind": Categorical(3)}},
        r"task 'kind': routing='laplace' needs a head that reads one latent line",
    ),
    "laplace, shape": (
        {"routing": "laplace", "belief": LowRank.of(rank=2)},
        r"computes a diagonal or a full covariance, got LowRank.of\(rank=2\)",
    ),
    "laplace, refit": (
        {"routing": "laplace", "refit": True},
        "chooses prior precisions on the part that is held out, and refit=True trains on it",
    ),
    "closed, no value": (
        {"routing": "closed", "tasks": {"event": Event()}},
        r"sets the beliefs of Gaussian tasks, and none of \['event'\] is one",
    ),
    "closed, dropout": (
        {"routing": "closed", "backbone": Noisy},
        "the backbone Noisy draws random numbers in training",
    ),
    "elbo, coupled": (
        {
            "routing": "elbo",
            "tasks": {"state": Gaussian(), "b": Gaussian()},
            "joint": ["state", "b"],
        },
        r"routing='elbo' takes one task at a time, and joint= couples \['state', 'b'\]",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_combinations_without_a_form_are_refused(case: str) -> None:
    settings, said = REFUSED[case]
    labels = {**WHOLE, "b": WHOLE["state"], "kind": WHOLE["regime"]}
    model = tiny(**settings)
    with pytest.raises(ValueError, match=said):
        model.fit(X, {name: labels[name] for name in model.tasks})


def test_the_names_are_those_of_the_registry() -> None:
    assert list(ROUTINGS) == ["free", "closed", "binding-map", "laplace", "elbo", "ppgpr"]
    assert all(read_routing(name).name == name for name in ROUTINGS)
