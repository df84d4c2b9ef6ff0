"""The studies of the paper, one file each: the jobs that a study needs, and what it finds."""

from __future__ import annotations

from collections.abc import Iterable

import pandas as pd

from scrollmt.paper.data import published
from scrollmt.paper.studies import (
    averaged_spread,
    binding_map_only,
    ce_bias,
    corpus_facts,
    cost,
    ensembles,
    equivariance,
    family_choice,
    frozen_alpha,
    interference,
    joint_observation_probe,
    kernel_recovery,
    lambda_grid_fairness,
    laplace_paired,
    layer_norm_interaction,
    main_comparison,
    per_state_variance,
    per_task_precision_probe,
    rolling_origins,
    routing_across_backbones,
    stability,
    standardised_targets,
    target_scales,
    theory,
)
from scrollmt.paper.studies.base import Study
from scrollmt.paper.studies.evidence import Evidence, judged
from scrollmt.paper.studies.probes import default, oracle
from scrollmt.paper.tables.selection import first_draws
from scrollmt.paper.tables.verdicts import Finding

__all__ = [
    "STUDIES",
    "Study",
    "default",
    "findings",
    "get_study",
    "oracle",
    "with_first_draws",
]

# In the order of the claims.
_MODULES = (
    main_comparison,
    ensembles,
    cost,
    ce_bias,
    lambda_grid_fairness,
    standardised_targets,
    corpus_facts,
    target_scales,
    equivariance,
    kernel_recovery,
    averaged_spread,
    per_state_variance,
    routing_across_backbones,
    binding_map_only,
    layer_norm_interaction,
    family_choice,
    rolling_origins,
    laplace_paired,
    interference,
    frozen_alpha,
    stability,
    per_task_precision_probe,
    joint_observation_probe,
    theory,
)
STUDIES: dict[str, Study] = {module.STUDY.name: module.STUDY for module in _MODULES}


def get_study(name: str) -> Study:
    if name not in STUDIES:
        raise ValueError(f"unknown study {name!r}; choose from {', '.join(STUDIES)}")
    return STUDIES[name]


def with_first_draws(frame: pd.DataFrame, found: Iterable[Finding]) -> list[Finding]:
    """The same findings with every corpus on its first draw alone.

    What was read from one draw stays as it is.
    """
    evidence = Evidence(first_draws(frame))
    return [
        judged(published.claim(f.claim), get_study(f.study).answers[f.claim], evidence)
        if f.sample.draws > 1
        else f
        for f in found
    ]


def findings(frame: pd.DataFrame, *studies: str) -> list[Finding]:
    """What the named studies, or all, find in the records, in the order of the claims."""
    chosen = [get_study(name) for name in studies or STUDIES]
    evidence = Evidence(frame)
    return sorted((f for s in chosen for f in s.judged(evidence)), key=lambda f: f.claim)
