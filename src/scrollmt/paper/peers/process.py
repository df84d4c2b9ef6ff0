"""PPGPR by GPyTorch: a sparse Gaussian process trained by its own predictive log score.

On the inputs themselves, or on features of a network (a deep kernel), as validation chooses.
"""

from __future__ import annotations

import gpytorch
import numpy as np
import torch
from torch import nn

from scrollmt.laws import Law

from .network import Network, mlp

INDUCING, FEATURES = 128, 8


class _Process(gpytorch.models.ApproximateGP):
    def __init__(self, inducing: torch.Tensor):
        distribution = gpytorch.variational.CholeskyVariationalDistribution(len(inducing))
        strategy = gpytorch.variational.VariationalStrategy(
            self, inducing, distribution, learn_inducing_locations=True
        )
        super().__init__(strategy)
        self.mean = gpytorch.means.ConstantMean()
        self.kernel = gpytorch.kernels.ScaleKernel(
            gpytorch.kernels.MaternKernel(nu=2.5, ard_num_dims=inducing.shape[1])
        )
        # In D dimensions, distances of standardised inputs grow with sqrt(D).
        self.kernel.base_kernel.lengthscale = inducing.shape[1] ** 0.5

    def forward(self, x: torch.Tensor) -> gpytorch.distributions.MultivariateNormal:
        return gpytorch.distributions.MultivariateNormal(self.mean(x), self.kernel(x))


class _DeepKernel(nn.Module):
    def __init__(self, X: torch.Tensor, deep: bool):
        super().__init__()
        self.body: nn.Module = nn.Identity()
        if deep:
            self.body = nn.Sequential(*mlp(X.shape[1], 64, 64), nn.Linear(64, FEATURES))
        with torch.no_grad():
            start = self.body(X[torch.randperm(len(X))[:INDUCING]]).clone()
        # Equal rows would make the kernel matrix of the inducing points singular.
        self.process = _Process(start + 1e-3 * torch.randn_like(start))
        self.likelihood = gpytorch.likelihoods.GaussianLikelihood()
        self.likelihood.noise = 0.1

    def forward(self, x: torch.Tensor) -> gpytorch.distributions.MultivariateNormal:
        return self.process(self.body(x))


class PPGPRValue(Network):
    """The predictive log likelihood minus the KL of the inducing values."""

    learning_rate = 1e-2
    settings = ({"deep": False}, {"deep": True})

    def build(self, X: torch.Tensor, outputs: int) -> nn.Module:
        model = _DeepKernel(X, self.setting["deep"])
        self.objective = gpytorch.mlls.PredictiveLogLikelihood(
            model.likelihood, model.process, num_data=len(X)
        )
        return model

    def loss(self, X: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return -self.objective(self.model(X), y)

    @torch.no_grad()
    def law(self, X: np.ndarray) -> Law:
        pieces = [self.model.likelihood(self.model(x)) for x in self.tensor(X).split(2048)]
        mean = torch.cat([piece.mean for piece in pieces])
        var = torch.cat([piece.variance for piece in pieces])
        return self.in_units(mean, torch.sqrt(var))
