"""A deep ensemble: five networks with a mean and an sd for every row; their densities are mixed."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from scrollmt.laws import Law

from .network import Network

MEMBERS, WIDTH = 5, 64


class Members(nn.Module):
    """Independent networks with two hidden layers, computed together: (N, D) to (M, N, outputs)."""

    def __init__(self, inputs: int, outputs: int):
        super().__init__()
        sizes = (inputs, WIDTH, WIDTH, outputs)
        self.weights, self.biases = nn.ParameterList(), nn.ParameterList()
        for a, b in pairwise(sizes):
            bound = 1.0 / math.sqrt(a)
            self.weights.append(torch.empty(MEMBERS, a, b).uniform_(-bound, bound))
            self.biases.append(torch.empty(MEMBERS, 1, b).uniform_(-bound, bound))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = x.expand(MEMBERS, *x.shape)
        for layer, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
            h = torch.baddbmm(bias, functional.relu(h) if layer else h, weight)
        return h


class EnsembleValue(Network):
    """Gaussian members."""

    learning_rate = 3e-3
    settings = ({"weight_decay": 0.01}, {"weight_decay": 0.3})

    def build(self, X: torch.Tensor, outputs: int) -> nn.Module:
        return Members(X.shape[1], 2)

    def _mean_and_sd(self, X: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        out = self.model(X)
        return out[..., 0], functional.softplus(out[..., 1]) + 1e-3

    def loss(self, X: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        mean, sd = self._mean_and_sd(X)
        return (0.5 * ((y - mean) / sd) ** 2 + torch.log(sd)).mean(1).sum()

    @torch.no_grad()
    def law(self, X: np.ndarray) -> Law:
        mean, sd = self._mean_and_sd(self.tensor(X))
        return self.in_units(mean, sd)


class EnsembleClasses(Network):
    """Members with a softmax; their probabilities are averaged."""

    learning_rate = 3e-3
    settings = ({"weight_decay": 0.01}, {"weight_decay": 0.3})

    def build(self, X: torch.Tensor, outputs: int) -> nn.Module:
        return Members(X.shape[1], outputs)

    def loss(self, X: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        log_probs = torch.log_softmax(self.model(X), dim=-1)
        picked = log_probs.gather(2, y.expand(MEMBERS, -1)[..., None])
        return -picked.mean(1).sum()

    @torch.no_grad()
    def law(self, X: np.ndarray) -> Law:
        assert self.codes is not None
        probs = torch.softmax(self.model(self.tensor(X)).double(), dim=-1).mean(0)
        return self.codes.law(probs.numpy())
