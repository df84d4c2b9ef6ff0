"""A user's own head or belief taken apart by its fields, and put together again from its class.

    {"scale": {"array": [5]}, "cov_floor": 0.0001, "inner": {"module": "Part", "fields": {...}}}

A file holds no code, and no code is looked up by a stored name: the user gives the classes to
`load(path, custom=[...])`. Like Equinox, this sets fields without calling a constructor.
"""

from __future__ import annotations

import dataclasses
import inspect
import math
from collections.abc import Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from scrollmt._io.store.folder import ModelFolderError

Classes = Mapping[str, type[eqx.Module]]


def read_classes(given: Any) -> Classes:
    """The classes of `custom=` by name."""
    if inspect.isclass(given) or isinstance(given, str | Mapping):
        raise TypeError(f"custom must be a list of classes, such as [MyHead], got {given!r:.60}")
    classes: dict[str, type[eqx.Module]] = {}
    for one in given:
        if not inspect.isclass(one) or not issubclass(one, eqx.Module):
            raise TypeError(f"custom must be a list of Equinox modules' classes, got {one!r:.60}")
        if classes.setdefault(one.__name__, one) is not one:
            raise ValueError(f"custom has two different classes named {one.__name__!r}")
    return classes


def fields_of(module: eqx.Module) -> dict[str, Any]:
    """The fields of a module as JSON, arrays by their shapes; TypeError where one is neither."""
    found = vars(module)
    out = {}
    for field in dataclasses.fields(module):
        if field.name in found:
            try:
                out[field.name] = _stored(found[field.name])
            except TypeError as error:
                raise TypeError(f"{type(module).__name__}.{field.name}: {error}") from None
    return out


def _stored(value: Any) -> Any:
    if eqx.is_array(value):
        return {"array": list(value.shape)}
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float) and math.isfinite(value):
        return value
    if type(value) in (tuple, list):
        return {type(value).__name__: [_stored(one) for one in value]}
    if type(value) is dict and all(isinstance(name, str) for name in value):
        return {"dict": {name: _stored(one) for name, one in value.items()}}
    if isinstance(value, eqx.Module):
        return {"module": type(value).__name__, "fields": fields_of(value)}
    raise TypeError(f"a {type(value).__name__} cannot be written to a file")


def from_fields(kind: type[eqx.Module], stored: Mapping[str, Any], known: Classes) -> Any:
    """A module of a class with stored fields; arrays are shapes alone, to be filled."""
    names = {field.name for field in dataclasses.fields(kind)}
    if not isinstance(stored, Mapping) or set(stored) != names:
        raise ModelFolderError(
            f"the class {kind.__name__} has the fields {sorted(names)}, and the saved one has "
            f"{sorted(stored)!r:.80}; give the class as it was when the model was saved"
        )
    made = object.__new__(kind)
    for name, value in stored.items():
        object.__setattr__(made, name, _restored(value, known))
    return made


def _restored(value: Any, known: Classes) -> Any:
    match value:
        case {"array": list(shape)}:
            return jax.ShapeDtypeStruct(tuple(map(int, shape)), jnp.result_type(float))
        case {"tuple": list(values)}:
            return tuple(_restored(one, known) for one in values)
        case {"list": list(values)}:
            return [_restored(one, known) for one in values]
        case {"dict": dict(values)}:
            return {name: _restored(one, known) for name, one in values.items()}
        case {"module": str(name), "fields": dict(fields)}:
            if name not in known:
                raise ModelFolderError(
                    f"a part is a {name}; pass its class too: load(path, custom=[..., {name}])"
                )
            return from_fields(known[name], fields, known)
        case None | bool() | int() | float() | str():
            return value
    raise ModelFolderError(f"{value!r:.60} is no stored field")
