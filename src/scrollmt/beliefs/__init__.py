r"""Gaussian beliefs over one task's last-layer weights.

$$q(w) = \mathcal{N}(\mu, \Sigma), \qquad
  w^\top\psi \sim \mathcal{N}(\mu^\top\psi,\; \psi^\top\Sigma\,\psi)$$

A belief turns features into `(mean, var)` of the latent line; a head consumes them and
never sees the belief. The prior term is the overlap with $\mathcal{N}(0, I/\alpha)$
(`eq:fmt`), $-\log \mathcal{N}(\mu;\, 0,\, \Sigma + I/\alpha)$. `cov_floor` times the
identity is part of $\Sigma$ in both places. Features are `(..., H)`.

A head may read L > 1 latent lines. Their weights are then independent Gaussians with one prior
precision: every array of the belief has an axis of L lines first, `(mean, var)` are `(..., L)`,
and the prior term is the sum over the lines.

A belief states its mean and covariance as `Rows`, so that the rows of all tasks go through one
product: with `linear` rows $a$, `square` rows $d$ and `roots` $R$ of shape `(F, H)`,

$$\text{mean} = a^\top\psi, \qquad
  \text{var} = \textstyle\sum_d d^\top\psi^2 + \sum_R \lVert R\,\psi \rVert^2.$$

For L lines the `linear` rows are one per line, and the `square` rows and the roots come in blocks
of L, one per line in each block. Beliefs may differ in `F`: those with equal `F` share a product.
"""

from scrollmt.beliefs.base import NARROW, AbstractBelief, Maker, Rows, Start
from scrollmt.beliefs.choosing import Choice, Choices, read_belief, read_beliefs
from scrollmt.beliefs.families import (
    BELIEFS,
    DEFAULT_RANK,
    PAPER_COV_FLOOR,
    Diag,
    Full,
    LowRank,
    Point,
)

__all__ = [
    "BELIEFS",
    "DEFAULT_RANK",
    "NARROW",
    "PAPER_COV_FLOOR",
    "AbstractBelief",
    "Choice",
    "Choices",
    "Diag",
    "Full",
    "LowRank",
    "Maker",
    "Point",
    "Rows",
    "Start",
    "read_belief",
    "read_beliefs",
]
