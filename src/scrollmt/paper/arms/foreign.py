"""Arms over the forecasters of others: `scrollmt.paper.peers` in the arena.

Each gets the windows, splits and validation part that every arm gets. It trains on the training
part; the validation part stops it and selects among its few settings, and nothing is refitted. The
setting that was selected is recorded as `setting_<task>`, or `setting_chosen` where one model
answers all tasks.

The arms are listed whether or not their packages are installed; `packages_missing` says which are
not. An arm that is asked to train without them raises an ImportError that says what to install.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from importlib import metadata
from typing import Any

import numpy as np

from scrollmt.heads import AbstractHead
from scrollmt.laws import Law, RealLaw
from scrollmt.paper.arms.base import Setting, register
from scrollmt.paper.arms.own import Fold, Forecasts, OwnArm
from scrollmt.paper.peers import joint_peer, peer
from scrollmt.paper.peers.protocol import (
    Classes,
    Question,
    Table,
    Value,
    forecast,
    forecast_jointly,
)

NOT_INSTALLED = "not installed"


@dataclass(frozen=True)
class Foreign:
    """What stands behind an arm.

    - `peers`: the name in `PEERS` for each kind of question, or in `JOINT_PEERS` for all at once.
    - `packages`: the distributions that it needs, whose versions determine its results.
    - `install`: what to install where one of them is missing.
    """

    summary: str
    peers: Mapping[str, str] | str
    packages: tuple[str, ...]
    install: str = "pip install -c constraints.txt scrollmt[peers]"


def _same(name: str) -> dict[str, str]:
    return {"value": name, "classes": name}


FOREIGN: dict[str, Foreign] = {
    "peer-linear": Foreign(
        "ridge regression with one sd, logistic and multinomial regression (scikit-learn)",
        _same("linear"),
        ("scikit-learn",),
    ),
    "peer-vbll": Foreign(
        "variational Bayesian last layers of vbll, one noise for all rows",
        {"value": "vbll-hom", "classes": "vbll"},
        ("vbll", "torch"),
    ),
    "peer-vbll-het": Foreign(
        "variational Bayesian last layers of vbll, noise that depends on the inputs",
        {"value": "vbll-het", "classes": "vbll"},
        ("vbll", "torch"),
    ),
    "peer-laplace": Foreign(
        "networks with laplace-torch's Gaussian posterior over the last layer",
        _same("laplace"),
        ("laplace-torch", "torch"),
    ),
    "peer-lmc": Foreign(
        "a multi-output Gaussian process over all tasks (GPyTorch's LMC), trained by the ELBO",
        "lmc",
        ("gpytorch", "torch"),
    ),
    "peer-hetmogp": Foreign(
        "a multi-output Gaussian process with a likelihood for every kind of task (GPflow)",
        "hetmogp",
        ("gpflow", "tensorflow"),
        "pip install --no-deps gpflow==2.11.2",
    ),
    "peer-ppgpr": Foreign(
        "sparse Gaussian processes, plain or with a deep kernel, trained by PPGPR (GPyTorch)",
        _same("ppgpr"),
        ("gpytorch", "torch"),
    ),
    "peer-ngboost": Foreign(
        "NGBoost: Normal, Bernoulli and categorical laws", _same("ngboost"), ("ngboost",)
    ),
    "peer-catboost": Foreign(
        "CatBoost: mean and variance by RMSEWithUncertainty, and its classifier",
        _same("catboost"),
        ("catboost",),
    ),
    "peer-ensemble": Foreign(
        "deep ensembles: five networks with a mean and an sd for every row, or a softmax",
        _same("ensemble"),
        ("torch",),
    ),
}


def versions(packages: tuple[str, ...]) -> dict[str, str]:
    """The version of each distribution, or "not installed"; nothing is imported."""
    found = {}
    for package in packages:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            found[package] = NOT_INSTALLED
    return found


def packages_missing(arm: str) -> list[str]:
    """The packages that an arm of `FOREIGN` needs and that are not installed."""
    found = versions(FOREIGN[arm].packages)
    return [package for package, version in found.items() if version == NOT_INSTALLED]


def question_of(name: str, head: AbstractHead, y: np.ndarray) -> Question:
    """What a task asks of a peer: classes, or a number with a density."""
    if head.num_classes is not None:
        return Classes(head.num_classes, ordered=head.cut_into is not None)
    lines = np.zeros(len(y) if head.rows == 1 else (len(y), head.rows))
    usual = head.law(lines, lines)
    if not isinstance(usual, RealLaw) or np.any(usual.is_atom(y)):
        raise ValueError(
            f"task {name!r}: peers have laws for classes and for numbers with a density, and "
            f"{head!r} has masses; compare it with an OwnArm of your own, or leave the task out "
            "of the corpus"
        )
    return Value()


def forecast_foreign(arm: str, fold: Fold, setting: Setting) -> Forecasts:
    """The laws of an arm of `FOREIGN` on one fold."""
    behind = FOREIGN[arm]
    if lacking := packages_missing(arm):
        raise ImportError(
            f"arm {arm!r} needs {' and '.join(lacking)}; install with `{behind.install}`"
        )
    train, valid = Table(fold.X_train, fold.Y_train), Table(fold.X_valid, fold.Y_valid)
    asked = {name: question_of(name, head, train.rows(name).y) for name, head in fold.tasks.items()}
    # Laws on both parts come from one call.
    X, first = np.concatenate([fold.X_valid, fold.X_test]), len(fold.X_valid)
    laws: dict[str, Law] = {}
    facts: dict[str, float | str] = {}
    if isinstance(behind.peers, str):
        kind = joint_peer(behind.peers)
        laws, chosen = forecast_jointly(kind, asked, train, valid, X, fold.seed)
        facts["setting_chosen"] = _shown(chosen)
    else:
        for name, question in asked.items():
            answers = peer(behind.peers[question.kind], question.kind)
            assert answers is not None
            rows = train.rows(name), valid.rows(name)
            laws[name], chosen = forecast(answers, question, *rows, X, fold.seed, refit=False)
            facts[f"setting_{name}"] = _shown(chosen)
    return Forecasts(
        {name: law[:first] for name, law in laws.items()},
        {name: law[first:] for name, law in laws.items()},
        facts,
    )


def _shown(setting: Mapping[str, Any]) -> str:
    return json.dumps(dict(setting), sort_keys=True)


for _name, _behind in FOREIGN.items():
    register(
        OwnArm(
            _name,
            _behind.summary,
            partial(forecast_foreign, _name),
            determinants={"revision": 1, **versions(_behind.packages)},
            packages=_behind.packages,
        )
    )
