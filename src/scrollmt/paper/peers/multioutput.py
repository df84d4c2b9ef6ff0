"""A multi-output Gaussian process by GPyTorch: one model for all questions.

Every output is a linear combination of a few latent processes (a linear model of coregionalisation,
LMC), each a sparse variational process with inducing points of its own. A value reads one output
through a Gaussian likelihood, an event one through a Bernoulli likelihood, R classes read R outputs
through a softmax. GPyTorch has no ordinal likelihood. The objective is the ELBO.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import gpytorch
import numpy as np
import torch
from scipy.special import log_ndtr
from torch import nn

from scrollmt.laws import Law

from .network import descend, most_steps
from .protocol import ClassCodes, JointPeer, Rows, Standardised, Table, summed_nll, threads

INDUCING = 64
# Draws of the latent values for a softmax: in a step of training, and for a law.
TRAINING_DRAWS, DRAWS = 8, 200


class Latents(gpytorch.models.ApproximateGP):
    """Latent processes, whose combinations are the outputs."""

    def __init__(self, X: torch.Tensor, latents: int, outputs: int):
        places = torch.stack([torch.randperm(len(X))[:INDUCING] for _ in range(latents)])
        start = X[places]
        batch = torch.Size([latents])
        # Equal rows would make the kernel matrix of the inducing points singular.
        strategy = gpytorch.variational.VariationalStrategy(
            self,
            start + 1e-3 * torch.randn_like(start),
            gpytorch.variational.CholeskyVariationalDistribution(start.shape[1], batch_shape=batch),
            learn_inducing_locations=True,
        )
        super().__init__(
            gpytorch.variational.LMCVariationalStrategy(
                strategy, num_tasks=outputs, num_latents=latents
            )
        )
        self.mean = gpytorch.means.ZeroMean(batch_shape=batch)
        # The scale of a latent process is in the weights of the outputs.
        self.kernel = gpytorch.kernels.MaternKernel(
            nu=2.5, ard_num_dims=X.shape[1], batch_shape=batch
        )
        # In D dimensions, distances of standardised inputs grow with sqrt(D).
        self.kernel.lengthscale = X.shape[1] ** 0.5
        self.offset = nn.Parameter(torch.zeros(outputs))

    def forward(self, x: torch.Tensor) -> gpytorch.distributions.MultivariateNormal:
        return gpytorch.distributions.MultivariateNormal(self.mean(x), self.kernel(x))


class Outputs:
    """The outputs of some rows: mean and variance (N, T) of each, and joint draws (S, N, T).

    The latent processes are independent, so their marginals at a row are all that is needed.
    """

    def __init__(self, process: Latents, x: torch.Tensor):
        strategy = process.variational_strategy
        latent = strategy.base_variational_strategy(x)
        self.latent_mean, self.latent_var = latent.mean.mT, latent.variance.mT
        self.weights, self.offset = strategy.lmc_coefficients, process.offset

    def moments(self, place: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Mean and variance (N,) of one output."""
        weight = self.weights[:, place]
        return self.latent_mean @ weight + self.offset[place], self.latent_var @ weight**2

    def draws(self, places: slice, count: int) -> torch.Tensor:
        """Joint draws (S, N, T) of some outputs."""
        noise = torch.randn(count, *self.latent_mean.shape)
        latent = self.latent_mean + torch.sqrt(self.latent_var) * noise
        return latent @ self.weights[:, places] + self.offset[places]


class Answer(nn.Module):
    """How one question reads its outputs."""

    outputs = 1

    @abstractmethod
    def targets(self, y: np.ndarray) -> torch.Tensor:
        """Known labels as the likelihood wants them."""

    @abstractmethod
    def expected(self, y: torch.Tensor, found: Outputs, first: int) -> torch.Tensor:
        """The expected log likelihood (N,), with outputs from place `first` on."""

    @abstractmethod
    def law(self, found: Outputs, first: int) -> Any: ...


def _marginals(found: Outputs, first: int) -> torch.distributions.Distribution:
    mean, var = found.moments(first)
    rows = torch.distributions.Normal(mean, torch.sqrt(var))
    return torch.distributions.Independent(rows, 1)


class ValueAnswer(Answer):
    """A Gaussian likelihood on standardised targets."""

    def __init__(self, asked: Any, rows: Rows):
        super().__init__()
        self.asked, self.scale = asked, Standardised(rows)
        self.likelihood = gpytorch.likelihoods.GaussianLikelihood()
        self.likelihood.noise = 0.1

    def targets(self, y: np.ndarray) -> torch.Tensor:
        return torch.as_tensor(self.scale.targets(y), dtype=torch.float32)

    def expected(self, y: torch.Tensor, found: Outputs, first: int) -> torch.Tensor:
        return self.likelihood.expected_log_prob(y, _marginals(found, first))

    def law(self, found: Outputs, first: int) -> Any:
        mean, var = found.moments(first)
        sd = torch.sqrt(var + self.likelihood.noise).double().numpy()
        scale = self.scale
        return self.asked.law(scale.y_mean + scale.y_sd * mean.double().numpy(), scale.y_sd * sd)


class EventAnswer(Answer):
    """A Bernoulli likelihood with a probit link, for two classes that were seen."""

    def __init__(self, codes: ClassCodes):
        super().__init__()
        self.codes = codes
        self.likelihood = gpytorch.likelihoods.BernoulliLikelihood()

    def targets(self, y: np.ndarray) -> torch.Tensor:
        return torch.as_tensor(self.codes.code(y), dtype=torch.float32)

    def expected(self, y: torch.Tensor, found: Outputs, first: int) -> torch.Tensor:
        return self.likelihood.expected_log_prob(y, _marginals(found, first))

    def law(self, found: Outputs, first: int) -> Any:
        return self.codes.law(probit_probs(*found.moments(first)))


class ClassAnswer(Answer):
    """A softmax of one output for each class that was seen."""

    def __init__(self, codes: ClassCodes):
        super().__init__()
        self.codes, self.outputs = codes, len(codes.seen)
        self.likelihood = gpytorch.likelihoods.SoftmaxLikelihood(
            num_classes=self.outputs, mixing_weights=False
        )

    def targets(self, y: np.ndarray) -> torch.Tensor:
        return torch.as_tensor(self.codes.code(y))

    def expected(self, y: torch.Tensor, found: Outputs, first: int) -> torch.Tensor:
        draws = found.draws(slice(first, first + self.outputs), TRAINING_DRAWS)
        return self.likelihood(draws).log_prob(y).mean(0)

    def law(self, found: Outputs, first: int) -> Any:
        draws = found.draws(slice(first, first + self.outputs), DRAWS)
        return self.codes.law(torch.softmax(draws.double(), -1).mean(0).numpy())


def probit_probs(mean: torch.Tensor, var: torch.Tensor) -> np.ndarray:
    """The probabilities (N, 2) of a Bernoulli likelihood with a probit link."""
    line = (mean / torch.sqrt(1.0 + var)).double().numpy()
    return np.exp(log_ndtr(np.stack([-line, line], axis=1)))


def answer_of(asked: Any, rows: Rows) -> Answer:
    if asked.kind == "value":
        return ValueAnswer(asked, rows)
    codes = ClassCodes(asked, rows.y)
    return EventAnswer(codes) if len(codes.seen) == 2 else ClassAnswer(codes)


class LMC(JointPeer):
    """The number of latent processes is chosen on validation."""

    settings = ({"latents": 3}, {"latents": 6})
    learning_rate = 1e-2

    def select(self, train: Table, valid: Table) -> None:
        torch.manual_seed(self.seed)
        torch.set_num_threads(threads(len(train)))
        self.scale = Standardised(Rows(train.X, np.zeros(len(train))))
        X = self._tensor(train.X)
        self.answers = {name: answer_of(one, train.rows(name)) for name, one in self.asked.items()}
        counts = [one.outputs for one in self.answers.values()]
        self.first = dict(zip(self.answers, np.cumsum([0, *counts[:-1]]).tolist(), strict=True))
        self.process = Latents(X, self.setting["latents"], sum(counts))
        known, targets = {}, {}
        for name, answer in self.answers.items():
            y = np.asarray(train.Y[name], np.float64)
            known[name] = torch.as_tensor(~np.isnan(y))
            # Where a label is missing, any known one keeps its place.
            targets[name] = answer.targets(np.where(np.isnan(y), train.rows(name).y[0], y))

        def loss(batch: torch.Tensor) -> torch.Tensor:
            found = Outputs(self.process, X[batch])
            total = -self.process.variational_strategy.kl_divergence().sum() / len(X)
            for name, answer in self.answers.items():
                log_likelihood = answer.expected(targets[name][batch], found, self.first[name])
                total = total + (log_likelihood * known[name][batch]).mean()
            return -total

        def score() -> float:
            try:
                return summed_nll(self.laws(valid.X), valid.Y)
            except ValueError:
                # Laws refuse numbers that are not finite; training has diverged.
                return np.inf

        both = nn.ModuleList([self.process, *self.answers.values()])
        steps = most_steps(len(train))
        descend(both, loss, len(X), steps, rate=self.learning_rate, decay=0.0, score=score)

    @torch.no_grad()
    def laws(self, X: np.ndarray) -> dict[str, Law]:
        with torch.random.fork_rng():
            torch.manual_seed(self.seed)
            found = Outputs(self.process, self._tensor(X))
            return {name: one.law(found, self.first[name]) for name, one in self.answers.items()}

    def _tensor(self, X: np.ndarray) -> torch.Tensor:
        return torch.as_tensor(self.scale.inputs(X), dtype=torch.float32)
