"""The studies of the paper, one file each: the jobs that a study needs, and what it finds.

Importing this package registers all of them, in the order of the claims as far as they do not
build on one another.
"""

from scrollmt.paper.studies import (  # isort: skip
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
from scrollmt.paper.studies.base import STUDIES, Study, get_study

__all__ = [
    "STUDIES",
    "Study",
    "averaged_spread",
    "binding_map_only",
    "ce_bias",
    "corpus_facts",
    "cost",
    "ensembles",
    "equivariance",
    "family_choice",
    "frozen_alpha",
    "get_study",
    "interference",
    "joint_observation_probe",
    "kernel_recovery",
    "lambda_grid_fairness",
    "laplace_paired",
    "layer_norm_interaction",
    "main_comparison",
    "per_state_variance",
    "per_task_precision_probe",
    "rolling_origins",
    "routing_across_backbones",
    "stability",
    "standardised_targets",
    "target_scales",
    "theory",
]
