"""The estimator: several observables of one system, fitted together, one law for each.

    model = Forecaster({"state": Gaussian(), "event": Event(), "regime": Ordinal(4)})
    model.fit(X, Y)
    law = model.predict(X_new)

or, from a series and questions about its future,

    model = Forecaster.for_windows(windows).fit(windows)
    print(model.forecast(frame))

Follows scikit-learn: constructor arguments are stored as given, `fit` always starts anew,
what was learned ends in an underscore.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from sklearn.exceptions import NotFittedError

from scrollmt import agreement
from scrollmt._data import holdout, reading, sources, streaming
from scrollmt._fitting import members, training
from scrollmt._fitting.batches import Factory
from scrollmt._fitting.selection import Selection, joined
from scrollmt._io import settings, store
from scrollmt._scoring import evaluation, judging, recalibration
from scrollmt.adapters import columns_of
from scrollmt.beliefs import Choices
from scrollmt.couplings import read_groups
from scrollmt.heads import AbstractHead
from scrollmt.laws.joint import Laws
from scrollmt.model import Backbone
from scrollmt.online import state, stored
from scrollmt.online.estimator import AbstractLearner
from scrollmt.presets import Preset, get_preset
from scrollmt.routing import read_routing
from scrollmt.windows import Recipe, Windows
from scrollmt.windows.answers import Forecast


class Forecaster(AbstractLearner):
    """Forecast several observables at once, each with a calibrated law.

    Parameters
    ----------
    tasks : mapping of name to head
        What is asked: `Real()` or `Gaussian()` for a value, `Event()` for a yes/no, `Ordinal(R)`
        for one of R ordered bands; `Event(of=...)` and `Ordinal(of=...)` for those of a number.
    preset : "default", "quick", "paper" or a `Preset`
        How it is fitted. "quick" tries less, for first looks; "paper" is the published protocol,
        for reproduction.
    steps, patience : int or None
        How many optimisation steps at most, and after how many evaluations without a better
        validation score training ends; None leaves them to the preset. Given steps are exact,
        those of a preset grow with the number of windows.
    belief : "diag", "low-rank", "full", "none", a belief class, or a mapping of these by task
        The covariance of each task's last-layer weights; `LowRank.of(rank=8)` gives an option.
    routing : "free", "closed", "binding-map", "laplace", "elbo" or "ppgpr"
        How beliefs come about: trained on the log score, or one of the comparators in `ROUTINGS`.
    joint : names of Gaussian tasks, several groups of names, or None
        Tasks whose labels may have correlated noise: the correlation is learned along with
        everything else, and `predict(X).joint(names)` knows of it. Every task keeps its own law.
    backbone : "select", a candidate's name, an Equinox module from (D,) to (H,), or its maker
        "select" tries all of the preset's candidates and keeps the best on validation. A maker is
        a function or class that takes a `key` and returns the module; every start and every member
        of an ensemble then has starting weights of its own. `windowed` reads windows as (T, C).
    optimizer : "adam", an Optax optimiser, or a function from a learning-rate schedule to one
        A function such as `optax.lion` gets the preset's learning rate. See `fit.fit`; not saved.
    validation : int, float, (X, Y), (X, Y, sample_weight), Windows or None
        A number of folds: every row trains, and every row judges the runs that did not train on
        it. Of `Windows` the folds are blocks of time with an embargo; of plain rows they are
        random, so for a time series give `Windows` or data of your own. A share between 0 and 1
        is held out instead, of `Windows` the newest. None leaves it to the preset: five folds,
        above 50,000 rows at most 20,000 held out, and a fifth held out for "paper".
    refit : bool
        After a held-out part has chosen, train the chosen runs again on all rows, for the number of
        steps that was best. `validation_nll_` stays that of the runs without it. With folds every
        row trains already, and it has no effect.
    calibrate : "none", "isotonic" or "conformal"
        Recalibrate the laws by what they said of labels that did not train them: values by a
        monotone map of their distribution function, classes by one of their probabilities.
        "conformal" gives values intervals of guaranteed coverage too.
    seed : int
        Drives the split and the starting values. JAX's precision at the time of `fit` is that
        of the model, then and ever after.
    ensemble : int
        How many independent fits to mix; member k starts at `seed + 1000 k`. All of them
        run as one batch.
    seeds : sequence of int or None
        The members' seeds, where you want to name them yourself; the split stays at `seed`.
    verbose : bool or None
        A progress line on the terminal; None shows it only when there is one.
    recipe : Recipe or None
        How `forecast` reads a series and what it answers; `for_windows` sets it.

    Attributes
    ----------
    tasks_ : mapping of name to head, as they were given to this fit
    members_ : list of Model
        The fitted models, in standardised units; `model_` has the lowest validation NLL.
    committee_ : mapping of name to indices
        Which members are selected for a task; their laws are mixed.
    weights_ : mapping of name to weights, or None
        How the members in `committee_` are weighed; None is equally.
    answers_ : mapping of name to answers, or None
        What is read off the members in `committee_`: the law of a `head`, or that law `cut` into
        classes; None where every task is answered by its own head.
    scales_ : Scales
        Means and standard deviations of the training part, which lead to standardised units.
    candidates_ : DataFrame
        Every run and its validation NLL, in the user's units.
    history_ : DataFrame
        The objective and the validation NLL of the chosen run.
    validation_nll_ : float
        Of the mixed laws, added over tasks, in the user's units; here and in `candidates_` a
        coupled task is scored given the coupled ones before it. With folds, each label is
        scored by the runs that did not train on it. Before recalibration.
    calibration_ : mapping of name to map
        What `calibrate` learned: `labels`, `share` of the map, `gain` in nats; empty for "none".
    stop_reason_ : why the chosen run ended: "steps", "patience", "nonfinite" or "interrupted"
    references_ : mapping of name to Reference, what a forecast has to beat; see `references`
    online_ : State or None, what `update` has learned since the fit
    recipe_ : Recipe or None
        The recipe with the quantile edges of this fit, None without windows.
    n_features_in_ : int, as in scikit-learn, like `feature_names_in_`

    Examples
    --------
    >>> import numpy as np
    >>> from scrollmt import Event, Forecaster, Gaussian, Ordinal
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(60, 3))
    >>> y = X[:, 0] + 0.3 * rng.normal(size=60)
    >>> Y = {"state": y, "event": y > 0.0, "regime": np.digitize(y, [-0.5, 0.5])}
    >>> tasks = {"state": Gaussian(), "event": Event(), "regime": Ordinal(3)}
    >>> law = Forecaster(tasks, seed=0).fit(X, Y).predict(X[:5])
    >>> law["state"].mean.shape, law["regime"].probs.shape
    ((5,), (5, 3))
    >>> lower, upper = law["state"].interval(0.9)
    >>> bool(law["event"].prob[np.argmax(y[:5])] > 0.5)
    True
    """

    def __init__(
        self,
        tasks: Mapping[str, AbstractHead],
        *,
        preset: str | Preset = "default",
        steps: int | None = None,
        patience: int | None = None,
        belief: Choices = "diag",
        routing: str = "free",
        joint: Any = None,
        backbone: str | Backbone | Factory = "select",
        optimizer: Any = "adam",
        validation: Any = None,
        refit: bool = False,
        calibrate: str = "none",
        seed: int = 0,
        ensemble: int = 1,
        seeds: Sequence[int] | None = None,
        verbose: bool | None = None,
        recipe: Recipe | None = None,
    ):
        self.tasks = tasks
        self.preset = preset
        self.steps = steps
        self.patience = patience
        self.belief = belief
        self.routing = routing
        self.joint = joint
        self.backbone = backbone
        self.optimizer = optimizer
        self.validation = validation
        self.refit = refit
        self.calibrate = calibrate
        self.seed = seed
        self.ensemble = ensemble
        self.seeds = seeds
        self.verbose = verbose
        self.recipe = recipe

    @classmethod
    def for_windows(cls, windows: Windows, **params: Any) -> Forecaster:
        """A Forecaster with the heads that the windows' questions call for, not yet fitted."""
        return cls(windows.heads, recipe=windows.recipe, **params)

    def fit(self, X: Any, Y: Any = None, sample_weight: Any = None) -> Forecaster:
        """Fit all tasks in one pass; `Y` is a mapping or DataFrame keyed by task name.

        `fit(windows)` takes inputs and labels from `Windows`, and learns quantile edges that
        are not known yet from the part that it trains on. `fit(stream)` reads a `ParquetStream` or
        `ArrayStream` in bounded memory; so does `fit(path)` a Parquet file or a folder of them, and
        `fit(lazy)` a lazy frame, whose columns named by the tasks are labels, those that
        `sample_weight` names weights, and all others inputs.
        Labels may be missing: NaN or None for a Gaussian task; NaN, None or a negative number
        for a discrete one. `sample_weight` is one array, or a mapping or DataFrame with one
        column a task. An interrupt from the keyboard keeps the best model so far and raises.
        """
        seeds = self._seeds()
        settings.warn_of_shared_start(self.backbone, len(seeds))
        ready = self._ready(X, Y, sample_weight)
        return self._settle(ready, joined(training.trained(self, ready, seeds), seeds))

    def _ready(self, X: Any, Y: Any, sample_weight: Any) -> holdout.Ready:
        """The training and the validation part, read and checked."""
        heads, preset, _ = training.settings_of(self)
        given: dict[str, Any] = {
            "joint": read_groups(self.joint, heads),
            "seed": self.seed,
            "scale_targets": preset.scale_targets,
            "columns": columns_of(self.backbone),
            "further_heads": preset.further_heads,
            "one_line": read_routing(self.routing).one_line,
            "usual": preset.validation_for,
        }
        with sources.opened(X, Y, sample_weight, heads) as source:
            if source is not None:
                return streaming.ready(source, self.validation, heads, preset.large, **given)
        rows = X, Y, sample_weight
        return holdout.ready(rows, self.validation, heads, recipe=self.recipe, **given)

    def _settle(self, ready: holdout.Ready, chosen: Selection) -> Forecaster:
        """Take over what was learned."""
        history = chosen.history.astype({c: float for c in chosen.history if c != "step"})
        self.tasks_ = settings.read_heads(self.tasks, self.belief)
        self.members_ = chosen.members
        self.committee_ = chosen.committee
        self.weights_ = chosen.weights
        self.answers_ = chosen.answers
        self.moments_ = get_preset(self.preset).moments
        self.model_ = chosen.members[chosen.lead]
        self.scales_ = ready.scales
        self.candidates_ = ready.in_user_units(chosen.table)
        self.history_ = history.assign(validation=history["validation"] + ready.nats)
        self.stop_reason_ = chosen.stop_reason
        self.recipe_ = ready.recipe
        self.n_features_in_ = ready.fitted.x.shape[1]
        if ready.names is not None:
            self.feature_names_in_ = np.asarray(ready.names, dtype=object)
        elif hasattr(self, "feature_names_in_"):
            del self.feature_names_in_
        self.references_ = ready.references
        self.online_ = None
        self._start_ = None
        self._sample_ = state.Sample.of(ready, self.seed)
        self.calibration_ = recalibration.fitted(self.calibrate, ready, chosen, self._mixing())
        if chosen.out_of_fold is not None:
            scores = judging.out_of_fold(ready, chosen.out_of_fold)
            self.validation_nll_ = -judging.summed(ready.judged, scores)
        else:
            x = self.scales_.inputs(ready.judged.x)
            laws = members.laws(self.tasks_, chosen.validated, self._mixing(), self.scales_, x)
            self.validation_nll_ = judging.total_nll(ready.judged, laws)
            scores = {name: law.log_prob(ready.judged.labels[name]) for name, law in laws.items()}
        judging.warn_of_outliers(self, ready, scores)
        if chosen.interrupted:
            # The best so far is in place and usable; the interrupt still reaches the caller.
            raise KeyboardInterrupt("fit interrupted; the best model so far is kept")
        return self

    def predict(self, X: Any) -> Laws:
        """The law of every task at every window, in the user's units.

        `predict(X).joint(["a", "b"])` is the joint law of Gaussian tasks. `law.extrapolation` says
        how far outside the training range each window lies; far outside, a warning says so.
        """
        self._check_fitted()
        laws, far_out = self._predicted(X)
        if far_out is not None:
            warnings.warn(far_out, UserWarning, stacklevel=2)
        return laws

    def _predicted(self, X: Any) -> tuple[Laws, str | None]:
        """Laws, and a sentence on inputs far outside the training range."""
        values, names = self._read(X)
        laws = self._laws(self.scales_.inputs(values, names=names))
        extrapolation = self.scales_.extrapolation(values)
        far_out = self.scales_.far_out(values, names)
        return Laws(laws, laws.coupled, judging.where(X), extrapolation), far_out

    def forecast(
        self,
        frame: Any,
        *,
        time: Any = None,
        columns: Any = None,
        at: Any = None,
        on_grid: bool = False,
    ) -> Forecast:
        """The questions answered for the newest window of a series whose inputs are complete.

        `frame`, `time` and `columns` as in `Windowing.cut`. `at` asks for one origin; `on_grid`
        admits only origins at clock times that the fit had origins at. A forecast from another
        one, from inputs far outside the training range, or with answers that contradict each
        other, comes with a warning, which is in `notices` too.
        """
        self._check_fitted()
        if self.recipe_ is None:
            raise ValueError(
                "this Forecaster has no recipe to read a series with; fit it on windows: "
                "Forecaster.for_windows(windows).fit(windows)"
            )
        window = self.recipe_.newest(frame, time=time, columns=columns, at=at, on_grid=on_grid)
        laws, far_out = self._predicted(window)
        found = self.recipe_.off_grid(window.t[0]), far_out, agreement.notice(laws, window)
        notices = tuple(text for text in found if text is not None)
        for text in notices:
            warnings.warn(text, UserWarning, stacklevel=2)
        return Forecast(window, laws, notices)

    def evaluate(self, X: Any, Y: Any = None, sample_weight: Any = None) -> pd.DataFrame:
        """Scores by task, beside those of reference forecasts; NaN where a score does not suit.

        `nll` in nats with its standard error `nll_se` and its number of `labels`; `climatology`,
        `persistence` and `seasonal` are the NLL of `references`, `skill` is what the best of them
        loses against the model, with `skill_se`. Then what suits the law, in original units:
        coverage of intervals, CRPS, errors of mean and median; accuracy, Brier score, RPS.
        """
        self._check_fitted()
        overlap = X.overlap if isinstance(X, Windows) else 1
        return evaluation.evaluate(judging.scored(self, X, Y, sample_weight), overlap)

    def references(self, X: Any) -> dict[str, Laws]:
        """Laws that need no model, to compare with those of `predict`, by kind.

        "climatology" is one law for all rows, that of the training labels. Of `Windows`,
        "persistence" and "seasonal" go by what the same question would have answered one lead
        before, and at the same time of the day (week, year) before.
        """
        self._check_fitted()
        return judging.references(self, X)

    def score(self, X: Any, Y: Any = None, sample_weight: Any = None) -> float:
        """Mean log score, added over the tasks, in nats; higher is better.

        Coupled tasks are scored jointly, so that models with and without couplings compare.
        """
        self._check_fitted()
        rows, laws = judging.labelled(self, X, Y, sample_weight)
        empty = [name for name in laws if not rows.weights[name].any()]
        if empty:
            raise ValueError(f"Y has no label of positive weight to score for the tasks {empty}")
        return -judging.total_nll(rows, laws)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the fitted model to a new folder, as safetensors and JSON."""
        self._check_fitted()
        store.save_estimator(self, path, stored.to_parts(self._start(), self.online_))

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "model_")

    def _check_fitted(self) -> None:
        if not self.__sklearn_is_fitted__():
            raise NotFittedError("this Forecaster is not fitted yet; call fit(X, Y) first")

    def _seeds(self) -> list[int]:
        return settings.read_seeds(self.seed, self.ensemble, self.seeds)

    def _read(self, X: Any) -> tuple[np.ndarray, list[str] | None]:
        """Inputs (N, D) with the columns of the fit, and their names."""
        values, names = reading.read_inputs(X)
        known = list(self.feature_names_in_) if hasattr(self, "feature_names_in_") else None
        return reading.check_columns(values, names, self.n_features_in_, known), known

    def _inputs(self, X: Any) -> np.ndarray:
        values, names = self._read(X)
        return self.scales_.inputs(values, names=names)

    def _mixing(self) -> members.Mixing:
        return members.Mixing(self.committee_, self.weights_, self.moments_, self.answers_)

    def _laws(self, x: np.ndarray) -> Laws:
        if self.online_ is not None:
            laws = state.laws(self, self.online_, x)
        else:
            laws = members.laws(self.tasks_, self.members_, self._mixing(), self.scales_, x)
        return recalibration.applied(laws, self.calibration_)


def load(
    path: str | os.PathLike[str],
    *,
    backbone: Backbone | Factory | None = None,
    heads: Mapping[str, AbstractHead] | None = None,
    custom: Sequence[type] = (),
) -> Forecaster:
    """A fitted `Forecaster` from the folder that `save` wrote; predictions are bit-identical.

    A model with parts of your own needs them again: `custom` takes the classes of your heads and
    beliefs, `backbone` a backbone as for the fit, `heads` (by task) heads that hold functions.
    Validation windows of your own are not stored: set `validation` before you fit it anew.
    """
    model: Forecaster
    model, learned, arrays = store.load_estimator(Forecaster, path, backbone, heads, custom)
    model._sample_ = None
    model._start_, model.online_ = stored.from_parts(model, learned, arrays)
    return model
