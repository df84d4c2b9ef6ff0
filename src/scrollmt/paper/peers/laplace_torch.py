"""laplace-torch: a Gaussian posterior over the last layer of a network that is already trained."""

from __future__ import annotations

import numpy as np
import torch
from laplace import Laplace
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

from scrollmt.laws import Law

from .network import BATCH, Network, mlp

WIDTH = 64


class LaplaceValue(Network):
    """A network fitted by squared error, and laplace-torch's last-layer posterior on top of it.

    Prior precision and noise maximise the marginal likelihood of the training rows.
    """

    settings = ({"weight_decay": 0.01}, {"weight_decay": 0.3})
    posterior: Laplace | None = None

    def build(self, X: torch.Tensor, outputs: int) -> nn.Module:
        self.posterior = None
        return nn.Sequential(*mlp(X.shape[1], WIDTH, WIDTH), nn.Linear(WIDTH, 1))

    def loss(self, X: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return functional.mse_loss(self.model(X)[:, 0], y)

    def finished(self, X: torch.Tensor, y: torch.Tensor) -> None:
        with torch.no_grad():
            self.noise_sd = float(torch.sqrt(torch.mean((self.model(X)[:, 0] - y) ** 2)))
        loader = DataLoader(TensorDataset(X, y[:, None]), batch_size=BATCH)
        self.posterior = Laplace(
            self.model, "regression", subset_of_weights="last_layer", hessian_structure="full"
        )
        self.posterior.fit(loader)
        log_prior = torch.zeros(1, requires_grad=True)
        log_noise = torch.full((1,), float(np.log(self.noise_sd)), requires_grad=True)
        optimiser = torch.optim.Adam([log_prior, log_noise], lr=0.1)
        for _ in range(60):
            optimiser.zero_grad()
            loss = -self.posterior.log_marginal_likelihood(log_prior.exp(), log_noise.exp())
            loss.backward()
            optimiser.step()
        self.noise_sd = float(log_noise.exp())

    def law(self, X: np.ndarray) -> Law:
        assert self.posterior is not None
        with torch.no_grad():
            mean, var = self.posterior(self.tensor(X))
        sd = torch.sqrt(var.reshape(len(X)) + self.noise_sd**2)
        return self.in_units(mean.reshape(len(X)), sd)


class LaplaceClasses(Network):
    """A network fitted by cross-entropy, and laplace-torch's posterior with its own likelihood.

    Prior precision maximises the marginal likelihood; probabilities are by its probit link.
    """

    settings = ({"weight_decay": 0.01}, {"weight_decay": 0.3})
    posterior: Laplace | None = None

    def build(self, X: torch.Tensor, outputs: int) -> nn.Module:
        self.posterior, self.outputs = None, outputs
        return nn.Sequential(*mlp(X.shape[1], WIDTH, WIDTH), nn.Linear(WIDTH, outputs))

    def loss(self, X: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return functional.cross_entropy(self.model(X), y)

    def finished(self, X: torch.Tensor, y: torch.Tensor) -> None:
        if self.outputs == 1:
            return
        loader = DataLoader(TensorDataset(X, y), batch_size=BATCH)
        self.posterior = Laplace(
            self.model, "classification", subset_of_weights="last_layer", hessian_structure="full"
        )
        self.posterior.fit(loader)
        log_prior = torch.zeros(1, requires_grad=True)
        optimiser = torch.optim.Adam([log_prior], lr=0.1)
        for _ in range(60):
            optimiser.zero_grad()
            loss = -self.posterior.log_marginal_likelihood(log_prior.exp())
            loss.backward()
            optimiser.step()
        self.posterior.prior_precision = log_prior.exp().detach()

    def law(self, X: np.ndarray) -> Law:
        assert self.codes is not None
        if self.posterior is None:
            return self.codes.law(np.ones((len(X), 1)))
        with torch.no_grad():
            probs = self.posterior(self.tensor(X), link_approx="probit")
        return self.codes.law(probs.double().numpy())
