r"""Arrays with coordinates, in and out: where a row of the inputs is, the laws say again.

    X (sample, feature) ──▶ table (N, D), indexed by the coordinate of sample ──▶ laws ──▶ Dataset

A DataArray has two dimensions, samples first; a Dataset has one variable a column, all over the one
dimension of the samples. A grid becomes samples by `stack`, and laws a grid by `unstack`. xarray
is needed only by those who use it: whoever hands over a Dataset has imported it already.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sized
from typing import Any

import numpy as np
import pandas as pd


def has_coordinates(value: Any) -> bool:
    """Whether a value is a DataArray or a Dataset."""
    xarray = sys.modules.get("xarray")
    return xarray is not None and isinstance(value, (xarray.DataArray, xarray.Dataset))


def as_table(value: Any, what: str) -> Any:
    """A DataFrame with the coordinate of the samples as its index; what is not xarray stays.

    A DataArray with another number of dimensions than two becomes a plain array.
    """
    if not has_coordinates(value):
        return value
    if isinstance(value, Mapping):
        dims = {str(name): one.dims for name, one in value.items()}
        if not dims or any(one != (_samples(value),) for one in dims.values()):
            raise ValueError(
                f"{what} is a Dataset whose variables have the dimensions {dims}; expected one "
                f"variable a column, all over the same dimension; {what}.stack(sample=[...]) makes "
                "one dimension of several"
            )
        columns = {str(name): one.to_numpy() for name, one in value.items()}
        return pd.DataFrame(columns, index=index_of(value))
    if value.ndim != 2:
        return value.to_numpy()
    names = value.indexes.get(value.dims[1])
    return pd.DataFrame(value.to_numpy(), index=index_of(value), columns=names)


def index_of(rows: Any, unnamed: str = "row") -> pd.Index:
    """Where each row is: its coordinate or index, else its number; always with a name."""
    if has_coordinates(rows):
        dim = _samples(rows)
        index = rows.indexes.get(dim)
        return pd.RangeIndex(rows.sizes[dim], name=dim) if index is None else index
    index = rows if isinstance(rows, pd.Index) else getattr(rows, "index", None)
    if not isinstance(index, pd.Index):
        # What converts to an array need not have a length itself.
        count = len(rows) if isinstance(rows, Sized) else len(np.asarray(rows))
        return pd.RangeIndex(count, name=unnamed)
    if isinstance(index, pd.MultiIndex):
        names = [f"{unnamed}_{k}" if n is None else n for k, n in enumerate(index.names)]
        return index.set_names(names)
    return index if index.name is not None else index.rename(unnamed)


def check_aligned(X: Any, Y: Any, what: str = "Y") -> None:
    """Refuse labels whose coordinates are not those of the inputs: rows are matched in order."""
    if not has_coordinates(X):
        return
    labels = Y if isinstance(Y, Mapping) else {what: Y}
    here = index_of(X)
    for name, given in labels.items():
        if not has_coordinates(given) or not given.dims:
            continue
        there = index_of(given)
        if len(here) != len(there) or here.equals(there):
            continue  # another length is refused elsewhere, by shapes
        row = int(np.flatnonzero(np.asarray(here != there))[0])
        raise ValueError(
            f"{what}: {name!r} has the coordinate {there[row]} at row {row}, where X has "
            f"{here[row]}; bring both into one order first, as xarray.align does"
        )


def dataset(
    variables: Mapping[str, tuple[tuple[str, ...], np.ndarray]],
    levels: Mapping[str, Any],
    index: pd.Index,
) -> Any:
    """A Dataset of variables whose first dimension is that of the index.

    A variable is its further dimensions and its values; `levels` are coordinates along those.
    """
    try:
        import xarray
    except ImportError as error:
        raise ImportError(
            "to_xarray needs xarray, which is optional: pip install 'scrollmt[xarray]'"
        ) from error
    if isinstance(index, pd.MultiIndex):
        sample = index.name if isinstance(index.name, str) else "sample"
        coords = xarray.Coordinates.from_pandas_multiindex(index, sample)
    else:
        sample = index.name
        coords = xarray.Coordinates({sample: index})
    data = {name: ((sample, *dims), values) for name, (dims, values) in variables.items()}
    return xarray.Dataset(data, coords=coords).assign_coords(dict(levels))


def _samples(value: Any) -> Any:
    """The dimension of the samples: the first of a DataArray, or of a Dataset's first variable."""
    first = next(iter(value.values()), None) if isinstance(value, Mapping) else value
    return next(iter(getattr(first, "dims", ())), None)
