r"""Objectives with the KL to the prior in the place of the overlap.

$$F_\text{ELBO} = \sum_k \Bigl[-\sum_n w_{kn}\, E_{q_k}[\log p(y_n^{(k)} \mid a)]
  + \text{KL}[q_k \,\|\, p_{\alpha_k}]\Bigr], \qquad
  F_\text{PPGPR} = \sum_k \Bigl[-\sum_n w_{kn} \log m_{k,n}(y_n^{(k)})
  + \text{KL}[q_k \,\|\, p_{\alpha_k}]\Bigr]$$

The first is minus the evidence lower bound of a variational last layer: $-F_\text{ELBO}$ is at most
the log evidence, and equal to it where $q_k$ is the posterior. The second has the log score of the
composed objective and the prior term of the first (the parametric predictive objective of Gaussian
processes). Prior precisions and the parameters of heads are trained along with the beliefs. A prior
of the precision adds its term here too.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Float

from scrollmt.model import AbstractModel, Task
from scrollmt.objective import Data, backbone_penalty, data_terms, filled_labels, precision_term


def expected_terms(model: AbstractModel, data: Data) -> dict[str, Float[Array, " N"]]:
    r"""$-w_{kn}\, E_{q_k}[\log p(y_n \mid a)]$ for every task and window, in nats."""
    if model.couplings:
        raise ValueError(
            f"the tasks {model.couplings[0].names} are coupled by their noise, and expected log "
            "likelihoods are those of one task at a time; leave out joint="
        )
    tasks = model.tasks
    terms = {}
    for name, (mean, var) in model.project(data.x).items():
        head = tasks[name].head
        expected = head.expected_log_lik(filled_labels(data, name, head), mean, var)
        terms[name] = -data.weight[name] * expected
    return terms


def kl_term(task: Task) -> Float[Array, ""]:
    """The KL of the belief to its prior, and the prior of the precision if there is one."""
    return task.belief.kl(task.prior_precision) + precision_term(task)


def elbo(
    model: AbstractModel, data: Data, *, data_scale: float | Array = 1.0
) -> dict[str, Float[Array, ""]]:
    """Minus the evidence lower bound of every task by name."""
    return _with_kl(model, expected_terms(model, data), data_scale)


def ppgpr(
    model: AbstractModel, data: Data, *, data_scale: float | Array = 1.0
) -> dict[str, Float[Array, ""]]:
    """Minus the log predictive plus the KL of every task by name."""
    return _with_kl(model, data_terms(model, data), data_scale)


def _with_kl(
    model: AbstractModel, terms: dict[str, Array], data_scale: float | Array
) -> dict[str, Float[Array, ""]]:
    return {
        name: data_scale * jnp.sum(own) + kl_term(model.tasks[name]) for name, own in terms.items()
    }


def elbo_objective(
    model: AbstractModel, data: Data, hyper: dict[str, Any], data_scale: float | Array
) -> Float[Array, ""]:
    """The sum of `elbo` plus the penalty on the backbone, as `fit` takes it."""
    return _penalised(model, elbo(model, data, data_scale=data_scale), hyper)


def ppgpr_objective(
    model: AbstractModel, data: Data, hyper: dict[str, Any], data_scale: float | Array
) -> Float[Array, ""]:
    """The sum of `ppgpr` plus the penalty on the backbone, as `fit` takes it."""
    return _penalised(model, ppgpr(model, data, data_scale=data_scale), hyper)


def _penalised(
    model: AbstractModel, losses: dict[str, Array], hyper: dict[str, Any]
) -> Float[Array, ""]:
    penalty: Array = hyper["backbone_l2"] * backbone_penalty(model)
    return sum(losses.values(), start=jnp.zeros(())) + penalty
