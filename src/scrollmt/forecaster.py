"""The estimator: several observables of one system, fitted together, one law for each.

    model = Forecaster({"state": Gaussian(), "event": Event(), "regime": Ordinal(4)})
    model.fit(X, Y)
    law = model.predict(X_new)

Follows scikit-learn: constructor arguments are stored as given, `fit` always starts anew,
what was learned ends in an underscore.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from jaxtyping import Array, Float
from sklearn.base import BaseEstimator
from sklearn.exceptions import NotFittedError

from scrollmt import intake, scores, store
from scrollmt.beliefs import BELIEFS
from scrollmt.heads import AbstractHead
from scrollmt.model import Backbone, Model
from scrollmt.portfolio import train
from scrollmt.predictive import GaussianLaw, Law
from scrollmt.presets import Preset, get_preset

MIN_ROWS_TO_SPLIT = 10
# Inputs are padded to a power of four, so that ten sizes serve every number of windows.
PREDICT_SIZES = tuple(4**k for k in range(9))


class Forecaster(BaseEstimator):
    """Forecast several observables at once, each with a calibrated law.

    Parameters
    ----------
    tasks : mapping of name to head
        What is asked: `Gaussian()` for a value, `Event()` for a yes/no, `Ordinal(R)` for one
        of R ordered bands.
    preset : "default", "paper" or a `Preset`
        How it is fitted. "paper" is the published protocol, for reproduction.
    belief : "diag", "full" or "none"
        The covariance family of each task's last-layer weights.
    backbone : "select", a candidate's name, or an Equinox module from (D,) to (H,)
        "select" tries all of the preset's candidates and keeps the best on validation.
    validation : float or (X, Y) or (X, Y, sample_weight)
        The share of the windows held out at random, or windows of your own. For a time
        series, hold out the newest windows yourself.
    seed : int
        Drives the split and the starting values.
    verbose : bool or None
        A progress line on the terminal; None shows it only when there is one.

    Attributes
    ----------
    model_ : the fitted `Model`, in standardised units
    scales_ : means and standard deviations that lead there
    candidates_ : DataFrame with every candidate's validation NLL
    history_ : DataFrame with the objective and the validation NLL of the chosen run
    validation_nll_ : float, added over tasks, in nats of the user's units
    stop_reason_ : "steps", "patience", "nonfinite" or "interrupted"
    n_features_in_, feature_names_in_ : as in scikit-learn
    """

    def __init__(
        self,
        tasks: Mapping[str, AbstractHead],
        *,
        preset: str | Preset = "default",
        belief: str = "diag",
        backbone: str | Backbone = "select",
        validation: Any = 0.2,
        seed: int = 0,
        verbose: bool | None = None,
    ):
        self.tasks = tasks
        self.preset = preset
        self.belief = belief
        self.backbone = backbone
        self.validation = validation
        self.seed = seed
        self.verbose = verbose

    def fit(self, X: Any, Y: Any, sample_weight: Any = None) -> Forecaster:
        """Fit all tasks in one pass; `Y` is a mapping or DataFrame keyed by task name.

        Labels may be missing: NaN for a Gaussian task; NaN, None or a negative number for
        a discrete one. `sample_weight` is one array, or a mapping with one array a task.
        """
        heads = self._heads()
        preset = get_preset(self.preset)
        if isinstance(self.backbone, str):
            preset, backbone = preset.with_backbone(self.backbone), None
        else:
            backbone = self.backbone
        x, names = intake.read_inputs(X)
        rows = self._rows(x, Y, sample_weight, heads)
        (train_x, train_y, train_w), (valid_x, valid_y, valid_w) = self._parts(rows, x, names)
        intake.check_learnable(train_y, train_w, heads)
        scales = intake.Scales.of(
            train_x, train_y, train_w, heads, scale_targets=preset.scale_targets
        )
        (chosen,) = train(
            preset,
            heads,
            belief=self.belief,
            train=scales.data(train_x, train_y, train_w),
            valid=scales.data(valid_x, valid_y, valid_w),
            keys=[jax.random.key(self.seed)],
            backbone=backbone,
            report=_ProgressLine(self.verbose),
        )
        nats = sum(float(np.log(s)) for s in scales.scale.values())
        self.model_ = chosen.model
        self.scales_ = scales
        self.candidates_ = chosen.table.assign(validation_nll=chosen.table["validation_nll"] + nats)
        self.history_ = chosen.history.assign(validation=chosen.history["validation"] + nats)
        self.validation_nll_ = float(self.candidates_["validation_nll"].min())
        self.stop_reason_ = chosen.stop_reason
        self.n_features_in_ = x.shape[1]
        if names is not None:
            self.feature_names_in_ = np.asarray(names, dtype=object)
        elif hasattr(self, "feature_names_in_"):
            del self.feature_names_in_
        if chosen.interrupted:
            # The best so far is in place and usable; the interrupt still reaches the caller.
            raise KeyboardInterrupt("fit interrupted; the best model so far is kept")
        return self

    def predict(self, X: Any) -> dict[str, Law]:
        """The law of every task at every window, in the user's units."""
        self._check_fitted()
        x = self._inputs(X)
        laws: dict[str, Law] = {}
        for name, (mean, var) in self._project(x).items():
            law = self.model_.tasks[name].head.law(mean, var)
            if isinstance(law, GaussianLaw):
                law = law.affine(self.scales_.offset[name], self.scales_.scale[name])
            laws[name] = law
        return {name: laws[name] for name in self.tasks}

    def evaluate(self, X: Any, Y: Any, sample_weight: Any = None) -> pd.DataFrame:
        """Scores by task: NLL and what else fits the law; a cell is NaN where it does not."""
        labels, weights, laws = self._labelled(X, Y, sample_weight)
        return pd.DataFrame(
            {name: scores.summarise(laws[name], labels[name], weights[name]) for name in laws}
        ).T.rename_axis("task")

    def score(self, X: Any, Y: Any, sample_weight: Any = None) -> float:
        """Mean log score, added over the tasks, in nats; higher is better."""
        labels, weights, laws = self._labelled(X, Y, sample_weight)
        return -sum(
            float(scores.average(scores.log_score(laws[name], labels[name]), weights[name]))
            for name in laws
        )

    def save(self, path: str | os.PathLike) -> None:
        """Write the fitted model to a new folder, as safetensors and JSON."""
        self._check_fitted()
        description, arrays = store.model_to_parts(self.model_)
        preset = get_preset(self.preset)
        backbone = self.backbone if isinstance(self.backbone, str) else None
        names = getattr(self, "feature_names_in_", None)
        store.write_folder(
            path,
            {
                "model": description,
                "estimator": {
                    "task_order": list(self.tasks),
                    "preset": preset.name,
                    "belief": self.belief,
                    "backbone": backbone,
                    "seed": self.seed,
                },
                "scales": {
                    "offset": self.scales_.offset,
                    "scale": self.scales_.scale,
                    "x_mean": self.scales_.x_mean.tolist(),
                    "x_sd": self.scales_.x_sd.tolist(),
                },
                "feature_names": None if names is None else list(names),
                "candidates": self.candidates_.to_dict(orient="records"),
                "history": self.history_.to_dict(orient="list"),
                "validation_nll": self.validation_nll_,
                "stop_reason": self.stop_reason_,
            },
            arrays,
        )

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "model_")

    def _check_fitted(self) -> None:
        if not self.__sklearn_is_fitted__():
            raise NotFittedError("this Forecaster is not fitted yet; call fit(X, Y) first")

    def _heads(self) -> dict[str, AbstractHead]:
        if not isinstance(self.tasks, Mapping) or not self.tasks:
            raise ValueError(
                "tasks must be a non-empty mapping of name to head, "
                "such as {'state': Gaussian(), 'event': Event()}"
            )
        for name, head in self.tasks.items():
            if not isinstance(name, str) or not isinstance(head, AbstractHead):
                raise ValueError(
                    f"task {name!r}: expected a text name and a head such as Gaussian(), "
                    f"got {head!r}"
                )
        if self.belief not in BELIEFS:
            raise ValueError(f"unknown belief {self.belief!r}; choose from {list(BELIEFS)}")
        return dict(self.tasks)

    @staticmethod
    def _rows(
        x: np.ndarray, Y: Any, sample_weight: Any, heads: Mapping[str, AbstractHead]
    ) -> tuple[np.ndarray, dict[str, np.ndarray], dict[str, np.ndarray]]:
        """Inputs, harmless labels, and weights that are zero where a label is missing."""
        labels, seen = intake.read_targets(Y, heads, len(x))
        weights = intake.read_weights(sample_weight, list(heads), len(x))
        return x, labels, {name: weights[name] * seen[name] for name in heads}

    def _parts(self, rows: Any, x: np.ndarray, names: list[str] | None) -> tuple[Any, Any]:
        """The training and the validation rows."""
        if isinstance(self.validation, (tuple, list)):
            if len(self.validation) not in (2, 3):
                raise ValueError("validation must be a share, (X, Y) or (X, Y, sample_weight)")
            values, valid_names = intake.read_inputs(self.validation[0], "validation X")
            values = intake.check_columns(values, valid_names, x.shape[1], names)
            weight = self.validation[2] if len(self.validation) == 3 else None
            return rows, self._rows(values, self.validation[1], weight, self._heads())
        if not isinstance(self.validation, float) or not 0.0 < self.validation < 1.0:
            raise ValueError(
                f"validation must be a share between 0 and 1 or a pair (X, Y), "
                f"got {self.validation!r}"
            )
        if len(x) < MIN_ROWS_TO_SPLIT:
            raise ValueError(
                f"{len(x)} windows are too few to hold some out for validation (at least "
                f"{MIN_ROWS_TO_SPLIT}); pass validation=(X, Y) or more windows"
            )
        held_out = max(1, round(self.validation * len(x)))
        order = np.random.default_rng(self.seed).permutation(len(x))
        parts = np.sort(order[held_out:]), np.sort(order[:held_out])

        def take(index: np.ndarray) -> Any:
            return jax.tree.map(lambda a: a[index], rows)

        return take(parts[0]), take(parts[1])

    def _inputs(self, X: Any) -> np.ndarray:
        values, names = intake.read_inputs(X)
        known = getattr(self, "feature_names_in_", None)
        values = intake.check_columns(
            values, names, self.n_features_in_, None if known is None else list(known)
        )
        return self.scales_.inputs(values)

    def _project(self, x: np.ndarray) -> dict[str, tuple[np.ndarray, np.ndarray]]:
        """`(mean, var)` by task, in padded pieces so that few programs serve every N."""
        dtype = jnp.result_type(float)
        pieces: list[dict[str, tuple[np.ndarray, np.ndarray]]] = []
        for start in range(0, len(x), PREDICT_SIZES[-1]):
            part = x[start : start + PREDICT_SIZES[-1]]
            size = next(s for s in PREDICT_SIZES if s >= len(part))
            padded = np.zeros((size, x.shape[1]), dtype)
            padded[: len(part)] = part
            with jax.default_matmul_precision("highest"):
                out = _project(self.model_, jnp.asarray(padded))
            pieces.append({name: _rows_of(pair, len(part)) for name, pair in out.items()})
        return jax.tree.map(lambda *a: np.concatenate(a), *pieces)

    def _labelled(self, X: Any, Y: Any, sample_weight: Any) -> tuple[Any, Any, dict[str, Law]]:
        laws = self.predict(X)
        rows = len(next(iter(laws.values())))
        labels, seen = intake.read_targets(Y, self._heads(), rows)
        weights = intake.read_weights(sample_weight, list(laws), rows)
        return labels, {n: weights[n] * seen[n] for n in laws}, laws


@eqx.filter_jit
def _project(model: Model, x: Float[Array, "N D"]) -> dict[str, tuple[Array, Array]]:
    return model.project(x)


def _rows_of(pair: tuple[Array, Array], rows: int) -> tuple[np.ndarray, np.ndarray]:
    mean, var = pair
    return np.asarray(mean)[:rows], np.asarray(var)[:rows]


class _ProgressLine:
    """One line on the terminal that is rewritten; silent where there is no terminal."""

    def __init__(self, verbose: bool | None):
        self.on = sys.stderr.isatty() if verbose is None else bool(verbose)

    def __call__(self, label: str, step: int, steps: int, best: float) -> None:
        if self.on:
            line = f"scrollmt  {label}  step {step}/{steps}  best validation NLL {best:.4f}"
            sys.stderr.write("\r" + line.ljust(78) + ("\n" if step >= steps else ""))
            sys.stderr.flush()


def load(path: str | os.PathLike, *, backbone: Backbone | None = None) -> Forecaster:
    """A fitted `Forecaster` from the folder that `save` wrote; predictions are bit-identical.

    `backbone` is needed only for a model that was fitted with a module of your own.
    """
    content, arrays = store.read_folder(path)
    try:
        description, estimator = content["model"], content["estimator"]
        model = store.model_from_parts(description, arrays, backbone=backbone)
        tasks = {n: store.head_from_dict(description["tasks"][n]) for n in estimator["task_order"]}
        given = model.backbone if estimator["backbone"] is None else estimator["backbone"]
        out = Forecaster(
            tasks,
            preset=estimator["preset"],
            belief=estimator["belief"],
            backbone=given,
            seed=estimator["seed"],
        )
        stored = content["scales"]
        out.model_ = model
        out.scales_ = intake.Scales(
            np.asarray(stored["x_mean"]),
            np.asarray(stored["x_sd"]),
            stored["offset"],
            stored["scale"],
        )
        out.candidates_ = pd.DataFrame(content["candidates"])
        out.history_ = pd.DataFrame(content["history"])
        out.validation_nll_ = content["validation_nll"]
        out.stop_reason_ = content["stop_reason"]
        out.n_features_in_ = len(stored["x_mean"])
        if content["feature_names"] is not None:
            out.feature_names_in_ = np.asarray(content["feature_names"], dtype=object)
    except (KeyError, TypeError, AttributeError) as error:
        raise store.ModelFolderError(f"{path} is not a complete model folder: {error}") from error
    return out
