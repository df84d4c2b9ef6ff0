"""Models on disk: a folder with safetensors and JSON, never pickle."""

from scrollmt.store.estimator import load_estimator, save_estimator
from scrollmt.store.folder import ModelFolderError
from scrollmt.store.parts import ENABLE_X64

__all__ = ["ENABLE_X64", "ModelFolderError", "load_estimator", "save_estimator"]
