"""PPGPR by GPyTorch: a sparse Gaussian process trained by its own predictive log score.

On the inputs themselves, or on features of a network (a deep kernel), as validation chooses.
"""

from __future__ import annotations

import gpytorch
import numpy as np
import torch
from torch import nn

from scrollmt.laws import Law

from .multioutput import DRAWS, TRAINING_DRAWS, probit_probs
from .network import Network, mlp

INDUCING, FEATURES = 128, 8


class _Process(gpytorch.models.ApproximateGP):
    """One function, or several that are independent and share their inducing points."""

    def __init__(self, inducing: torch.Tensor, functions: int):
        batch = torch.Size([] if functions == 1 else [functions])
        distribution = gpytorch.variational.CholeskyVariationalDistribution(
            len(inducing), batch_shape=batch
        )
        strategy = gpytorch.variational.VariationalStrategy(
            self, inducing, distribution, learn_inducing_locations=True
        )
        if functions > 1:
            strategy = gpytorch.variational.IndependentMultitaskVariationalStrategy(
                strategy, num_tasks=functions
            )
        super().__init__(strategy)
        self.mean = gpytorch.means.ConstantMean(batch_shape=batch)
        self.kernel = gpytorch.kernels.ScaleKernel(
            gpytorch.kernels.MaternKernel(
                nu=2.5, ard_num_dims=inducing.shape[1], batch_shape=batch
            ),
            batch_shape=batch,
        )
        # In D dimensions, distances of standardised inputs grow with sqrt(D).
        self.kernel.base_kernel.lengthscale = inducing.shape[1] ** 0.5

    def forward(self, x: torch.Tensor) -> gpytorch.distributions.MultivariateNormal:
        return gpytorch.distributions.MultivariateNormal(self.mean(x), self.kernel(x))


class _DeepKernel(nn.Module):
    def __init__(self, X: torch.Tensor, deep: bool, likelihood: nn.Module, functions: int = 1):
        super().__init__()
        self.body: nn.Module = nn.Identity()
        if deep:
            self.body = nn.Sequential(*mlp(X.shape[1], 64, 64), nn.Linear(64, FEATURES))
        with torch.no_grad():
            start = self.body(X[torch.randperm(len(X))[:INDUCING]]).clone()
        # Equal rows would make the kernel matrix of the inducing points singular.
        self.process = _Process(start + 1e-3 * torch.randn_like(start), functions)
        self.likelihood = likelihood

    def forward(self, x: torch.Tensor) -> gpytorch.distributions.MultivariateNormal:
        return self.process(self.body(x))


class _PPGPR(Network):
    """The predictive log likelihood minus the KL of the inducing values."""

    learning_rate = 1e-2
    settings = ({"deep": False}, {"deep": True})

    def built(self, X: torch.Tensor, likelihood: nn.Module, functions: int = 1) -> nn.Module:
        model = _DeepKernel(X, self.setting["deep"], likelihood, functions)
        self.objective = gpytorch.mlls.PredictiveLogLikelihood(
            model.likelihood, model.process, num_data=len(X)
        )
        return model

    def loss(self, X: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return -self.objective(self.model(X), y)


class PPGPRValue(_PPGPR):
    """A Gaussian likelihood."""

    def build(self, X: torch.Tensor, outputs: int) -> nn.Module:
        likelihood = gpytorch.likelihoods.GaussianLikelihood()
        likelihood.noise = 0.1
        return self.built(X, likelihood)

    @torch.no_grad()
    def law(self, X: np.ndarray) -> Law:
        pieces = [self.model.likelihood(self.model(x)) for x in self.tensor(X).split(2048)]
        mean = torch.cat([piece.mean for piece in pieces])
        var = torch.cat([piece.variance for piece in pieces])
        return self.in_units(mean, torch.sqrt(var))


class PPGPRClasses(_PPGPR):
    """A Bernoulli likelihood for two classes; for more, a softmax of independent functions."""

    def build(self, X: torch.Tensor, outputs: int) -> nn.Module:
        self.outputs = outputs
        if outputs == 2:
            return self.built(X, gpytorch.likelihoods.BernoulliLikelihood())
        likelihood = gpytorch.likelihoods.SoftmaxLikelihood(
            num_classes=outputs, mixing_weights=False
        )
        return self.built(X, likelihood, outputs)

    def loss(self, X: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        with gpytorch.settings.num_likelihood_samples(TRAINING_DRAWS):
            return super().loss(X, y if self.outputs > 2 else y.float())

    @torch.no_grad()
    def law(self, X: np.ndarray) -> Law:
        assert self.codes is not None
        if self.outputs == 1:
            return self.codes.law(np.ones((len(X), 1)))
        pieces = [self.model(x) for x in self.tensor(X).split(512)]
        mean = torch.cat([piece.mean for piece in pieces])
        var = torch.cat([piece.variance for piece in pieces])
        if self.outputs == 2:
            return self.codes.law(probit_probs(mean, var))
        with torch.random.fork_rng():
            torch.manual_seed(self.seed)
            draws = mean + torch.sqrt(var) * torch.randn(DRAWS, *mean.shape)
        return self.codes.law(torch.softmax(draws.double(), -1).mean(0).numpy())
