r"""Mixing weights from out-of-fold log scores, on the simplex.

$$w = \arg\max_{w \in \Delta}\; \sum_n \omega_n \log \sum_m w_m\, p_m(y_n)
   + \kappa \sum_m \log w_m$$

The problem is concave. Expectation-maximisation solves it without a step size: each weight becomes
the share of the labels that its law explains. The second term is a Dirichlet prior around equal
weights, worth `PRIOR_LABELS` labels: laws that score alike stay equally weighted, and a few labels
decide little.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float
from scipy.special import logsumexp

PRIOR_LABELS = 20.0
# A law below this share costs a pass at every prediction, and moves the mixture by less than that.
SMALLEST = 0.02
_TOLERANCE = 1e-6
_ITERATIONS = 2000


def stacked(
    log_scores: Float[np.ndarray, "M N"], weight: Float[np.ndarray, " N"]
) -> Float[np.ndarray, " M"]:
    """The weights of M laws, given their log score at each of N labels; small ones are zero."""
    members = len(log_scores)
    used = np.flatnonzero(weight > 0)
    out = np.full(members, 1.0 / members)
    if len(used) == 0 or members == 1:
        return out
    out = _climbed(log_scores[:, used], weight[used], out)
    kept = out >= SMALLEST
    if not kept.all():
        again = _climbed(log_scores[np.ix_(kept, used)], weight[used], out[kept] / out[kept].sum())
        out = np.zeros(members)
        out[kept] = again
    return out


def _climbed(
    log_scores: Float[np.ndarray, "M N"],
    weight: Float[np.ndarray, " N"],
    start: Float[np.ndarray, " M"],
) -> Float[np.ndarray, " M"]:
    prior = PRIOR_LABELS / len(start)
    total = weight.sum() + PRIOR_LABELS
    shares = start
    for _ in range(_ITERATIONS):
        terms = log_scores + np.log(shares)[:, None]
        explained = np.exp(terms - logsumexp(terms, axis=0))
        before, shares = shares, (explained @ weight + prior) / total
        if np.abs(shares - before).max() < _TOLERANCE:
            break
    return shares
