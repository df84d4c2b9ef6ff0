"""A heterogeneous multi-output Gaussian process by GPflow: one model for all questions.

A coregionalised sparse variational process whose outputs have likelihoods of their own
(`SwitchedLikelihood`): Gaussian for a value, Bernoulli for an event, `Ordinal` for ordered classes.
GPflow keeps the edges of `Ordinal` as given and learns a common width; they are given by the shares
of the classes. Classes without an order are events, each class against the rest, and their
probabilities are normalised. The objective is the ELBO, in double precision.

    pip install -c constraints.txt tensorflow tensorflow-probability tf-keras check-shapes \
        deprecated multipledispatch tabulate
    pip install --no-deps gpflow==2.11.2

GPflow declares NumPy below 2, which scrollmt excludes; it runs with NumPy 2 all the same. It is
therefore in no extra.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import gpflow
import numpy as np
import tensorflow as tf
from gpflow.likelihoods.utils import inv_probit
from scipy.stats import norm

from scrollmt.laws import Law

from .protocol import ClassCodes, JointPeer, Rows, Standardised, Table, summed_nll

INDUCING = 40  # for each output
BATCH, CHECK_EVERY, PATIENCE, MOST_STEPS = 256, 50, 10, 4000
LEARNING_RATE = 1e-2
OUTERMOST = 1e6  # edges of the first and the last class; inner ones are near 1

# One thread; TensorFlow refuses this once it has computed something.
tf.config.threading.set_intra_op_parallelism_threads(1)
tf.config.threading.set_inter_op_parallelism_threads(1)

Moments = tuple[np.ndarray, np.ndarray]


class Answer(ABC):
    """The outputs of one question: their likelihoods, their labels, and the law read off them."""

    likelihoods: Sequence[Any]

    @abstractmethod
    def targets(self, y: np.ndarray) -> np.ndarray:
        """Known labels (N,) as the likelihoods want them, (N, outputs)."""

    @abstractmethod
    def law(self, found: Sequence[Moments]) -> Any:
        """The law, given mean and variance (N, 1) of every output."""


class ValueAnswer(Answer):
    def __init__(self, asked: Any, rows: Rows):
        self.asked, self.scale = asked, Standardised(rows)
        self.likelihoods = [gpflow.likelihoods.Gaussian(0.1)]

    def targets(self, y: np.ndarray) -> np.ndarray:
        return self.scale.targets(y)[:, None]

    def law(self, found: Sequence[Moments]) -> Any:
        (mean, var), scale = found[0], self.scale
        var = var + float(self.likelihoods[0].variance.numpy())
        return self.asked.law(
            scale.y_mean + scale.y_sd * mean[:, 0], scale.y_sd * np.sqrt(var[:, 0])
        )


class EventAnswer(Answer):
    """Two classes that were seen."""

    def __init__(self, codes: ClassCodes):
        self.codes = codes
        self.likelihoods = [gpflow.likelihoods.Bernoulli()]

    def targets(self, y: np.ndarray) -> np.ndarray:
        return self.codes.code(y)[:, None]

    def law(self, found: Sequence[Moments]) -> Any:
        probs = _happens(self.likelihoods[0], *found[0])
        return self.codes.law(np.stack([1.0 - probs, probs], axis=1))


class FiniteOrdinal(gpflow.likelihoods.Ordinal):
    """GPflow's `Ordinal`, with outer edges so far out that nothing lies beyond them.

    GPflow has infinite ones, at which erf of TensorFlow 2.21 is NaN in double precision.
    """

    def _scalar_log_prob(self, X: Any, F: Any, Y: Any) -> Any:
        edges = np.concatenate([[-OUTERMOST], self.bin_edges, [OUTERMOST]])
        label = tf.cast(Y, tf.int32)
        upper, lower = ((tf.gather(edges, label + k) - F) / self.sigma for k in (1, 0))
        # 1e-6 is GPflow's.
        return tf.math.log(inv_probit(upper) - inv_probit(lower) + 1e-6)


class OrdinalAnswer(Answer):
    """Ordered classes."""

    def __init__(self, codes: ClassCodes, y: np.ndarray):
        self.codes = codes
        shares = np.cumsum(np.bincount(codes.code(y))) / len(y)
        # A process and a width of variance one each give the classes their shares.
        edges = np.sqrt(2.0) * norm.ppf(shares[:-1])
        self.likelihoods = [FiniteOrdinal(edges)]

    def targets(self, y: np.ndarray) -> np.ndarray:
        return self.codes.code(y)[:, None]

    def law(self, found: Sequence[Moments]) -> Any:
        mean, var = found[0]
        masses = [
            self.likelihoods[0].predict_log_density(mean, mean, var, np.full_like(mean, k))
            for k in range(len(self.codes.seen))
        ]
        return self.codes.law(_normalised(np.exp(np.stack(masses, axis=1))))


class RestAnswer(Answer):
    """Classes without an order, or one class alone: each against the rest."""

    def __init__(self, codes: ClassCodes):
        self.codes = codes
        self.likelihoods = [gpflow.likelihoods.Bernoulli() for _ in codes.seen]

    def targets(self, y: np.ndarray) -> np.ndarray:
        return (self.codes.code(y)[:, None] == np.arange(len(self.codes.seen))).astype(float)

    def law(self, found: Sequence[Moments]) -> Any:
        pairs = zip(self.likelihoods, found, strict=True)
        return self.codes.law(_normalised(np.stack([_happens(k, *f) for k, f in pairs], axis=1)))


def _happens(likelihood: Any, mean: np.ndarray, var: np.ndarray) -> np.ndarray:
    return np.asarray(likelihood.predict_mean_and_var(mean, mean, var)[0])[:, 0]


def _normalised(masses: np.ndarray) -> np.ndarray:
    return masses / masses.sum(1, keepdims=True)


def answer_of(asked: Any, rows: Rows) -> Answer:
    if asked.kind == "value":
        return ValueAnswer(asked, rows)
    codes = ClassCodes(asked, rows.y)
    if len(codes.seen) == 2:
        return EventAnswer(codes)
    ordered = asked.ordered and len(codes.seen) > 2
    return OrdinalAnswer(codes, rows.y) if ordered else RestAnswer(codes)


class HetMOGP(JointPeer):
    """The number of kernels, each with a coregionalisation of its own, is chosen on validation."""

    settings = ({"kernels": 1}, {"kernels": 2})

    def select(self, train: Table, valid: Table) -> None:
        rng = np.random.default_rng(self.seed)
        self.scale = Standardised(Rows(train.X, np.zeros(len(train))))
        self.answers = {name: answer_of(one, train.rows(name)) for name, one in self.asked.items()}
        X: list[np.ndarray] = []
        Y: list[np.ndarray] = []
        likelihoods: list[Any] = []
        for name, answer in self.answers.items():
            rows = train.rows(name)
            for y in np.asarray(answer.targets(rows.y), np.float64).T:
                X.append(self._placed(rows.X, len(Y)))
                Y.append(np.stack([y, np.full_like(y, len(Y))], axis=1))
            likelihoods += answer.likelihoods
        self.outputs = len(Y)
        start = [rows[rng.permutation(len(rows))[:INDUCING]] for rows in X]
        self.model = gpflow.models.SVGP(
            kernel=self._kernel(train.X.shape[1], rng),
            likelihood=gpflow.likelihoods.SwitchedLikelihood(likelihoods),
            inducing_variable=np.concatenate(start),
            mean_function=gpflow.functions.SwitchedFunction(
                [gpflow.functions.Constant(np.zeros(1)) for _ in Y]
            ),
            num_data=sum(map(len, Y)),
        )
        self._descend(np.concatenate(X), np.concatenate(Y), valid, rng)

    def _kernel(self, inputs: int, rng: np.random.Generator) -> Any:
        terms = []
        for _ in range(self.setting["kernels"]):
            kernel = gpflow.kernels.Matern52(
                # In D dimensions, distances of standardised inputs grow with sqrt(D).
                lengthscales=np.full(inputs, inputs**0.5),
                active_dims=list(range(inputs)),
            )
            # The scale of a kernel is in its coregionalisation.
            gpflow.set_trainable(kernel.variance, False)
            shared = gpflow.kernels.Coregion(self.outputs, rank=2, active_dims=[inputs])
            shared.W.assign(0.5 * rng.normal(size=shared.W.shape))
            terms.append(kernel * shared)
        return gpflow.kernels.Sum(terms) if len(terms) > 1 else terms[0]

    def _descend(self, X: np.ndarray, Y: np.ndarray, valid: Table, rng: Any) -> None:
        model, variables = self.model, self.model.trainable_variables
        optimiser = tf.keras.optimizers.Adam(LEARNING_RATE)

        @tf.function(autograph=False)
        def step(x: Any, y: Any) -> None:
            with tf.GradientTape() as tape:
                loss = model.training_loss((x, y))
            gradients = tape.gradient(loss, variables)
            optimiser.apply_gradients(zip(gradients, variables, strict=True))

        best, waited = np.inf, 0
        kept: dict[str, np.ndarray] = {}
        order, at = rng.permutation(len(X)), 0
        for count in range(1, MOST_STEPS + 1):
            if at + BATCH > len(X):
                order, at = rng.permutation(len(X)), 0
            batch = order[at : at + BATCH]
            at += BATCH
            step(tf.constant(X[batch]), tf.constant(Y[batch]))
            if count % CHECK_EVERY:
                continue
            nll = self._nll(valid)
            if nll < best:
                best, waited = nll, 0
                kept = {k: v.numpy() for k, v in gpflow.utilities.parameter_dict(model).items()}
            else:
                waited += 1
                if waited >= PATIENCE:
                    break
        if kept:
            gpflow.utilities.multiple_assign(model, kept)

    def _nll(self, valid: Table) -> float:
        try:
            return summed_nll(self.laws(valid.X), valid.Y)
        except ValueError:
            # Laws refuse numbers that are not finite; training has diverged.
            return np.inf

    def laws(self, X: np.ndarray) -> dict[str, Law]:
        found = []
        for place in range(self.outputs):
            mean, var = self.model.predict_f(self._placed(X, place))
            found.append((mean.numpy(), var.numpy()))
        laws, first = {}, 0
        for name, answer in self.answers.items():
            last = first + len(answer.likelihoods)
            laws[name] = answer.law(found[first:last])
            first = last
        return laws

    def _placed(self, X: np.ndarray, place: int) -> np.ndarray:
        """Standardised inputs with the number of an output as last column."""
        return np.column_stack([self.scale.inputs(X), np.full(len(X), float(place))])
