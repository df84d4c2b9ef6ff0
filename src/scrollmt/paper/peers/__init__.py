"""Other people's forecasters under one protocol, as arms and for benchmarks/default.py.

    pip install -c constraints.txt -e .[peers]
    pip install -c constraints.txt xgboost pyro-ppl ml-collections scikit-base
    pip install --no-deps treeffuser==0.2.0 xgboostlss==0.6.1

The last two are named apart because they declare older versions of torch, NumPy and pandas than
the others need; they run with the newer ones all the same. laplace-torch brings torchvision, which
it does not need here: beside a torch for CPUs alone, remove it (`pip uninstall torchvision`), since
a torchvision that was built for CUDA breaks imports. `heterogeneous` says how GPflow is added. See
`protocol` for what a peer is.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from .protocol import JointPeer, Peer

# By name and kind of question: the module and the class. A module is imported when it is asked for,
# so that a package that is not installed is only missed where it is used.
PEERS: dict[str, dict[str, str]] = {
    "linear": {"value": "linear.RidgeValue", "classes": "linear.Logistic"},
    "lightgbm": {"value": "boosting.LightGBMValue", "classes": "boosting.LightGBMClasses"},
    "catboost": {"value": "boosting.CatBoostValue", "classes": "boosting.CatBoostClasses"},
    "histogram": {"classes": "boosting.HistogramClasses"},
    "ngboost": {"value": "natural.NGBoostValue", "classes": "natural.NGBoostClasses"},
    "xgboostlss": {"value": "gaussian_lss.XGBoostLSSValue"},
    "treeffuser": {"value": "diffusion.TreeffuserValue"},
    "ensemble": {"value": "ensemble.EnsembleValue", "classes": "ensemble.EnsembleClasses"},
    "vbll": {"value": "variational.VBLLValue", "classes": "variational.VBLLClasses"},
    "vbll-hom": {"value": "variational.HomoscedasticValue"},
    "vbll-het": {"value": "variational.HeteroscedasticValue"},
    "laplace": {"value": "laplace_torch.LaplaceValue", "classes": "laplace_torch.LaplaceClasses"},
    "ppgpr": {"value": "process.PPGPRValue", "classes": "process.PPGPRClasses"},
}
# Those that answer all questions with one model.
JOINT_PEERS = {"lmc": "multioutput.LMC", "hetmogp": "heterogeneous.HetMOGP"}


def peer(name: str, kind: str) -> type[Peer] | None:
    """The class of a peer for "value" or "classes"; None where it answers no such question."""
    where = PEERS[name].get(kind)
    if where is None:
        return None
    return _found(where)


def joint_peer(name: str) -> type[JointPeer]:
    """The class of a peer that answers all questions with one model."""
    return _found(JOINT_PEERS[name])


def _found(where: str) -> Any:
    module, called = where.split(".")
    return getattr(import_module(f".{module}", __name__), called)
