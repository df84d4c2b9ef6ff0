"""Reference numbers of other libraries' last layers, for tests/test_routing_axis.py.

    python benchmarks/last_layers.py            (with the extra `peers`)

writes tests/last_layers.json: features, labels and a belief; the loss and the gradient of
`vbll.Regression` at that belief; covariances, predictive variances and the log marginal likelihood
of `laplace-torch` for a linear last layer; all in double precision.
"""

from __future__ import annotations

import json
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from laplace import Laplace
from torch.utils.data import DataLoader, TensorDataset
from vbll import Regression

OUT = Path(__file__).resolve().parents[1] / "tests" / "last_layers.json"
PEERS = ("torch", "vbll", "laplace-torch")
N, H = 14, 4
ALPHA, SIGMA = 0.7, 0.45


def given() -> dict[str, np.ndarray]:
    """Features with a near-collinear pair, labels, classes, and a belief that is no optimum."""
    rng = np.random.default_rng(21)
    psi = rng.normal(size=(N, H)) + 0.3
    psi[:, 3] = psi[:, 1] + 0.1 * rng.normal(size=N)
    y = psi @ rng.normal(size=H) + SIGMA * rng.normal(size=N)
    factor = np.tril(0.2 * rng.normal(size=(H, H)), -1) + np.diag(rng.uniform(0.1, 0.6, H))
    return {
        "psi": psi,
        "y": y,
        "labels": (y > np.median(y)).astype(int),
        "mu": 0.5 * rng.normal(size=H),
        "factor": factor,
        "new": rng.normal(size=(5, H)),
    }


def variational(data: dict[str, np.ndarray], kind: str) -> dict[str, Any]:
    """Loss and gradients of vbll's layer, without its prior of the noise, times N.

    It leaves the constant -H/2 of the KL out.
    """
    layer = Regression(H, 1, 1.0 / N, parameterization=kind, prior_scale=H / ALPHA)
    layer.dof = layer.wishart_scale = 0.0
    with torch.no_grad():
        layer.W_mean[:] = torch.tensor(data["mu"])
        layer.W_logdiag[:] = torch.tensor(np.log(np.diag(data["factor"])))
        if kind == "dense":
            layer.W_offdiag[:] = torch.tensor(data["factor"])
        layer.noise_logdiag[:] = float(np.log(SIGMA))
    psi, y = torch.tensor(data["psi"]), torch.tensor(data["y"])[:, None]
    loss = N * layer(psi).train_loss_fn(y)
    loss.backward()
    predicted = layer.predictive(torch.tensor(data["new"]))
    return {
        "loss": loss.item(),
        "mu_gradient": layer.W_mean.grad[0].tolist(),
        "log_diagonal_gradient": layer.W_logdiag.grad[0].tolist(),
        "log_sigma_gradient": layer.noise_logdiag.grad.item(),
        "predictive_var": (predicted.scale[:, 0] ** 2).tolist(),
    }


def curved(data: dict[str, np.ndarray], likelihood: str, structure: str) -> dict[str, Any]:
    """laplace-torch on a linear layer without an offset.

    With classes, two logits: the covariance is that of the difference of their weights, and so
    that of one logit under half the prior precision.
    """
    classes = likelihood == "classification"
    layer = torch.nn.Linear(H, 2 if classes else 1, bias=False)
    with torch.no_grad():
        weights = np.stack([-0.5 * data["mu"], 0.5 * data["mu"]]) if classes else data["mu"][None]
        layer.weight[:] = torch.tensor(weights)
    psi = torch.tensor(data["psi"])
    y = torch.tensor(data["labels"]) if classes else torch.tensor(data["y"])[:, None]
    noise = {} if classes else {"sigma_noise": SIGMA}
    model = Laplace(
        layer,
        likelihood,
        subset_of_weights="all",
        hessian_structure=structure,
        prior_precision=ALPHA,
        **noise,
    )
    model.fit(DataLoader(TensorDataset(psi, y), batch_size=N))
    cov = (
        model.posterior_covariance if structure == "full" else torch.diag(model.posterior_variance)
    )
    if classes:
        cov = cov.reshape(2, H, 2, H)
        cov = cov[1, :, 1] + cov[0, :, 0] - cov[0, :, 1] - cov[1, :, 0]
        return {"cov": cov.tolist()}
    _, var = model._glm_predictive_distribution(torch.tensor(data["new"]))
    return {
        "cov": cov.tolist(),
        "latent_var": var.flatten().tolist(),
        "log_marginal_likelihood": model.log_marginal_likelihood().item(),
    }


def main() -> None:
    torch.set_default_dtype(torch.float64)
    data = given()
    # At the posterior mean the marginal likelihood of a Gaussian task is the evidence.
    precision = ALPHA * np.eye(H) + data["psi"].T @ data["psi"] / SIGMA**2
    best = np.linalg.solve(precision, data["psi"].T @ data["y"] / SIGMA**2)
    found = {
        "versions": {name: version(name).split("+")[0] for name in PEERS},
        "alpha": ALPHA,
        "sigma": SIGMA,
        **{name: values.tolist() for name, values in data.items()},
        "vbll": {kind: variational(data, kind) for kind in ("dense", "diagonal")},
        "laplace": {
            "full": curved({**data, "mu": best}, "regression", "full"),
            "diag": curved({**data, "mu": best}, "regression", "diag"),
            "logistic": curved(data, "classification", "full"),
        },
    }
    lines = (f"{json.dumps(name)}: {json.dumps(values)}" for name, values in found.items())
    OUT.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
