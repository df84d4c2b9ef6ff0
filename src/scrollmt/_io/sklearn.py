"""What scikit-learn asks of an estimator beyond `fit` and `predict`: its kind, and its classes.

A Forecaster of one task is a regressor or a classifier, so that scorers, `cross_val_predict` and
stratified folds work; one of several tasks is neither.
"""

from __future__ import annotations

import abc
from collections.abc import Mapping
from typing import Any

import numpy as np
from jaxtyping import Float, Int
from sklearn.base import BaseEstimator
from sklearn.utils import ClassifierTags, RegressorTags, Tags
from sklearn.utils.metaestimators import available_if

from scrollmt.heads import AbstractHead


def _need_classes(estimator: AbstractEstimator) -> int:
    """How many classes the single task has."""
    classes = estimator._num_classes()
    if classes is None:
        raise AttributeError(
            "predict_proba and classes_ need a single task that is an Event, Ordinal or "
            f"Categorical, and the tasks are {estimator.tasks!r}; predict(X) has the laws of any"
        )
    return classes


# scikit-learn publishes no types.
class AbstractEstimator(BaseEstimator, abc.ABC):  # type: ignore[misc]
    """An estimator of `tasks`, whose `predict` returns laws by task."""

    tasks: Mapping[str, AbstractHead]

    def _only_head(self) -> AbstractHead | None:
        """The head of a single task; None where there are several."""
        # Settings are not checked before the fit.
        heads = list(self.tasks.values()) if isinstance(self.tasks, Mapping) else []
        return heads[0] if len(heads) == 1 else None

    def _num_classes(self) -> int | None:
        head = self._only_head()
        return None if head is None else head.num_classes

    @abc.abstractmethod
    def predict(self, X: Any) -> Any:
        """The law of every task at every window."""

    @available_if(_need_classes)  # type: ignore[untyped-decorator]
    def predict_proba(self, X: Any) -> Float[np.ndarray, "N R"]:
        """Probabilities of the classes of a single `Event`, `Ordinal` or `Categorical` task."""
        (law,) = self.predict(X).values()
        # scikit-learn wants the sum to be one in float64, and a fit in float32 misses it by 1e-7.
        return np.asarray(law.probs / law.probs.sum(axis=1, keepdims=True))

    @property
    def classes_(self) -> Int[np.ndarray, " R"]:
        """The classes 0 to R - 1 of a single task that has classes."""
        return np.arange(_need_classes(self))

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        # A single task takes a plain array; several are told apart by name.
        tags.target_tags.single_output = self._only_head() is not None
        tags.target_tags.multi_output = not tags.target_tags.single_output
        classes = self._num_classes()
        if classes is not None:
            tags.estimator_type = "classifier"
            tags.classifier_tags = ClassifierTags(multi_class=classes > 2)
        elif self._only_head() is not None:
            tags.estimator_type = "regressor"
            tags.regressor_tags = RegressorTags()
        return tags
