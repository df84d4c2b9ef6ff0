"""Models on disk: a folder with safetensors and JSON, never pickle."""

from scrollmt._io.store.estimator import load_estimator, save_estimator
from scrollmt._io.store.folder import ModelFolderError
from scrollmt._io.store.parts import ENABLE_X64

__all__ = ["ENABLE_X64", "ModelFolderError", "load_estimator", "save_estimator"]
