"""vbll: variational Bayesian last layers on a network, for values and for classes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import torch
import vbll
from torch import nn

from scrollmt.laws import Law

from .network import Network, mlp

WIDTH = 64
DRAWS = 20


class _Body(nn.Module):
    """Two dense layers and a layer of vbll on top."""

    def __init__(self, inputs: int, layer: nn.Module):
        super().__init__()
        self.body, self.layer = mlp(inputs, WIDTH, WIDTH), layer

    def forward(self, x: torch.Tensor) -> Any:
        """What vbll returns: the predictive and the losses as functions of the labels."""
        return self.layer(self.body(x))


class VBLLValue(Network):
    """vbll's regression layers: one noise for all rows, or noise that depends on the inputs."""

    settings: ClassVar[tuple[Mapping[str, Any], ...]] = (
        {"layer": "Regression"},
        {"layer": "HetRegression"},
    )

    def build(self, X: torch.Tensor, outputs: int) -> nn.Module:
        options = {"regularization_weight": 1.0 / len(X), "parameterization": "dense"}
        if self.setting["layer"] == "Regression":
            layer = vbll.Regression(WIDTH, 1, prior_scale=1.0, wishart_scale=0.1, **options)
        else:
            layer = vbll.HetRegression(WIDTH, 1, **options)
        return _Body(X.shape[1], layer)

    def loss(self, X: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return self.model(X).train_loss_fn(y[:, None])

    @torch.no_grad()
    def law(self, X: np.ndarray) -> Law:
        features = self.model.body(self.tensor(X))
        if self.setting["layer"] == "Regression":
            found = [self.model.layer.predictive(features)]
        else:
            # Its predictive has one draw of the noise level; draws are mixed.
            with torch.random.fork_rng():
                torch.manual_seed(self.seed)
                found = [self.model.layer.predictive_sample(features, False) for _ in range(DRAWS)]
        mean = torch.stack([one.mean[:, 0] for one in found])
        var = torch.stack([one.variance[:, 0] for one in found])
        return self.in_units(mean, torch.sqrt(var))


class HomoscedasticValue(VBLLValue):
    """One noise for all rows.

    vbll draws the noise that training starts from; here it is that of the targets, which training
    lowers. Small noise would have to grow first, and validation would stop the run before it has.
    """

    settings = ({"layer": "Regression"},)

    def build(self, X: torch.Tensor, outputs: int) -> nn.Module:
        model = super().build(X, outputs)
        nn.init.zeros_(model.layer.noise_logdiag)
        return model


class HeteroscedasticValue(VBLLValue):
    """Noise that depends on the inputs."""

    settings = ({"layer": "HetRegression"},)


class VBLLClasses(Network):
    """vbll's discriminative classification layer."""

    def build(self, X: torch.Tensor, outputs: int) -> nn.Module:
        layer = vbll.DiscClassification(WIDTH, outputs, regularization_weight=1.0 / len(X))
        return _Body(X.shape[1], layer)

    def loss(self, X: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return self.model(X).train_loss_fn(y)

    @torch.no_grad()
    def law(self, X: np.ndarray) -> Law:
        assert self.codes is not None
        features = self.model.body(self.tensor(X))
        with torch.random.fork_rng():
            torch.manual_seed(self.seed)
            logits = self.model.layer.logit_predictive(features).rsample(torch.Size([100]))
        return self.codes.law(torch.softmax(logits.double(), dim=-1).mean(0).numpy())
