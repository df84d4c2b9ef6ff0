"""What a wrong gradient of the gaps between cutpoints did to ordered classes.

    python benchmarks/ordinal_gaps.py --seeds 5

Until version 0.2 the cutpoints of `Ordinal` were a `jnp.cumsum` of their gaps, read once for every
class. In a batch of runs XLA compiles the gradient of that wrongly (jaxlib 0.10.2, CPU): all gaps
get the gradient of the first, and stay equal where they start equal. This fits `scroll-diag` by the
paper's protocol with either head and prints the test NLL of the regime, and the learned gaps.
"""

from __future__ import annotations

import argparse
import warnings

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from scrollmt import Event, Forecaster, Gaussian, Ordinal
from scrollmt._numerics.normal import log_bucket_mass
from scrollmt.corpora import lorenz63, ou
from scrollmt.splits import random_split


class Summed(Ordinal):
    """`Ordinal` as it was."""

    @property
    def cutpoints(self) -> Array:
        steps = jnp.concatenate([jnp.zeros_like(self.log_gaps[:1]), jnp.exp(self.log_gaps)])
        return self.first_cutpoint + jnp.cumsum(steps)

    def log_predictive(self, y: Array, mean: Array, var: Array) -> Array:
        scale = self.probit_scale(var)
        lower = upper = jnp.zeros_like(mean)
        for r in range(self.classes - 1):
            upper = jnp.where(y == r, self.cutpoints[r], upper)
            lower = jnp.where(y == r + 1, self.cutpoints[r], lower)
        lo = jnp.where(y == 0, -jnp.inf, (lower - mean) / scale)
        hi = jnp.where(y == self.classes - 1, jnp.inf, (upper - mean) / scale)
        return log_bucket_mass(lo, hi)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=5)
    seeds = range(parser.parse_args().seeds)
    warnings.simplefilter("ignore")
    for name, corpus in (("OU", ou.draw()), ("Lorenz-63", lorenz63.draw())):
        for head in (Summed, Ordinal):
            scores = []
            for seed in seeds:
                split = random_split(len(corpus), seed)
                train, valid, test = (
                    (corpus.X[rows], {task: np.asarray(y)[rows] for task, y in corpus.Y.items()})
                    for rows in split
                )
                model = Forecaster(
                    {"state": Gaussian(), "event": Event(), "regime": head(4)},
                    preset="paper",
                    backbone="tanh+ln",
                    validation=valid,
                    seed=seed,
                    verbose=False,
                ).fit(*train)
                scores.append(float(model.evaluate(*test).loc["regime", "nll"]))
                gaps = np.exp(np.asarray(model.model_.tasks["regime"].head.log_gaps))
                print(f"  {name} {head.__name__} {seed}: {scores[-1]:.4f}, gaps {gaps.round(3)}")
            error = np.std(scores, ddof=1) / np.sqrt(len(scores))
            print(f"{name} {head.__name__}: regime {np.mean(scores):.4f} (se {error:.4f})")


if __name__ == "__main__":
    main()
