r"""Two Gaussian tasks with correlated noise: what a full noise covariance gains (`app:future`).

The paper does not describe the data of this probe, so these are our own. Inputs are standard
normal, $\psi(x) = \tanh(Wx)$ has a few features without a bias, and both tasks are drawn from

$$y_n \sim \mathcal{N}\bigl(M\psi_n,\; \Sigma_\text{obs} + v_n I\bigr), \qquad
  v_n = s^2\,\|\psi_n\|^2,$$

with $\Sigma_\text{obs}$ of correlation rho. The part $v_n$ is independent between the tasks,
depends on the input and vanishes at $x = 0$, which alone tells it from the noise. It has about a
third of the variance, as in the paper: a gain of 0.163 nats at a share of 0.8 means a predictive
correlation near 0.58, where the noise has 0.8. $W$ and $M$ are drawn anew for every seed and are
the same for every rho, as are the draws behind noise and spread.

The fitted family holds this law. A calibrated full arm then gains in expectation exactly what is
available: with predictive correlation $\rho_n$ and one of $r_n$ in the data, a window gains

$$-\tfrac12\log(1-\rho_n^2) + \rho_n(r_n - \rho_n)/(1-\rho_n^2),$$

so that a share below one tells of a correlation that the arm overstates, and one above of a
correlation that it understates.

Both arms, with a diagonal and with a full $\Sigma_\text{obs}$, start at the same values and follow
the paper's protocol on its tanh backbone. All seeds and correlations are one batch of runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from scrollmt.backbone import paper_backbone
from scrollmt.heads import Gaussian
from scrollmt.model import Model, build
from scrollmt.objective import Data, mean_nll, validation_nll
from scrollmt.paper.arena.training import fit_runs, stacked, start_heads
from scrollmt.paper.protocol import PROTOCOL, Protocol

TASKS = ("a", "b")
INPUTS, FEATURES = 2, 4
# Small, so that tanh is far from saturated and the spread varies with the input.
WEIGHT_SD = 0.5
SIGMA_OBS, SPREAD = 0.5, 0.45
TRAIN, VALID, TEST = 2000, 1000, 20_000
_SCORES = ("joint_nll", *(f"nll_{name}" for name in TASKS))


def draw(seed: int, rho: float, windows: int, part: int) -> Data:
    """Windows of one seed's truth; `part` is 0 for training, 1 for validation, 2 for test."""
    truth = np.random.default_rng([seed, 0])
    W = WEIGHT_SD * truth.normal(size=(FEATURES, INPUTS))
    M = truth.normal(size=(len(TASKS), FEATURES))
    rng = np.random.default_rng([seed, 1 + part])
    x = rng.normal(size=(windows, INPUTS))
    psi = np.tanh(x @ W.T)
    noise, spread = rng.normal(size=(2, windows, len(TASKS)))
    noise[:, 1] = rho * noise[:, 0] + np.sqrt(1.0 - rho**2) * noise[:, 1]
    size = np.linalg.norm(psi, axis=1, keepdims=True)
    y = psi @ M.T + SIGMA_OBS * noise + SPREAD * size * spread
    real = jnp.result_type(float)
    return Data(
        jnp.asarray(x, real),
        {name: jnp.asarray(y[:, k], real) for k, name in enumerate(TASKS)},
        {name: jnp.ones(windows, real) for name in TASKS},
    )


def run(
    seeds: Sequence[int],
    rho_values: Sequence[float] = (0.0, 0.8),
    *,
    belief: str = "diag",
    protocol: Protocol = PROTOCOL,
    windows: tuple[int, int, int] = (TRAIN, VALID, TEST),
) -> list[dict[str, float]]:
    """One row a (rho, seed), in nats a window on the test part.

    `correlation` is the fitted one; `joint_nll_diagonal`, `joint_nll_full` and their difference
    `gain` are of both labels together, `nll_a_diagonal` and so on of one; `available` is
    the mean of -0.5 log(1 - rho_n^2) with rho_n the predictive correlation of the full arm;
    `belief_share` is the mean share of the predictive variance that the beliefs have.
    """
    cells = [(float(rho), int(seed)) for rho in rho_values for seed in seeds]
    parts = [
        [draw(seed, rho, size, part) for rho, seed in cells] for part, size in enumerate(windows)
    ]
    train, valid, test = map(stacked, parts)
    found = {}
    for arm, joint in (("diagonal", None), ("full", TASKS)):
        starts = [
            _start(seed, own, belief, joint, protocol)
            for (_, seed), own in zip(cells, parts[0], strict=True)
        ]
        fits = fit_runs(starts, train, valid, protocol)
        found[arm] = {name: np.asarray(v) for name, v in _measured(fits.models, test).items()}
    rows = []
    for i, (rho, seed) in enumerate(cells):
        row: dict[str, float] = {"rho": rho, "seed": seed}
        for arm, values in found.items():
            row |= {f"{score}_{arm}": float(values[score][i]) for score in _SCORES}
        row["gain"] = row["joint_nll_diagonal"] - row["joint_nll_full"]
        full = found["full"]
        row |= {n: float(full[n][i]) for n in ("correlation", "available", "belief_share")}
        rows.append(row)
    return rows


def _start(
    seed: int, train: Data, belief: str, joint: Sequence[str] | None, protocol: Protocol
) -> Model:
    net_key, task_key = jax.random.split(jax.random.key(seed))
    net = paper_backbone("tanh", INPUTS, net_key, uniform=protocol.initial_uniform)
    return build(
        net,
        start_heads({name: Gaussian() for name in TASKS}, train, protocol),
        features=net.weights[-1].shape[0],
        belief=belief,
        key=task_key,
        cov_floor=protocol.cov_floor,
        joint=joint,
        start=protocol.start(),
    )


@eqx.filter_jit
def _measured(models: Model, test: Data) -> dict[str, Array]:
    """What a row says, for every run."""

    def one(model: Model, data: Data) -> dict[str, Array]:
        alone = mean_nll(Model(model.backbone, model.tasks), data)
        out: dict[str, Any] = {f"nll_{name}": nll for name, nll in alone.items()}
        out["joint_nll"] = validation_nll(model, data)
        lines = model.project(data.x)
        heads = [cast(Gaussian, model.tasks[name].head) for name in TASKS]
        noise = jnp.stack([head.sigma_obs**2 for head in heads])
        total = noise[:, None] + jnp.stack([lines[name][1] for name in TASKS])
        rho = model.couplings[0].correlation()[0, 1] if model.couplings else jnp.zeros(())
        rho_n = rho * jnp.sqrt(jnp.prod(noise[:, None] / total, axis=0))
        out["correlation"] = rho
        out["available"] = -0.5 * jnp.mean(jnp.log1p(-(rho_n**2)))
        out["belief_share"] = jnp.mean(1.0 - noise[:, None] / total)
        return out

    out: dict[str, Array] = eqx.filter_vmap(one, in_axes=(eqx.if_array(0), 0))(models, test)
    return out
