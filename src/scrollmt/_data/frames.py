r"""Tables of other libraries, in and out: columns keep their names, and rows their labels.

    X (sample, feature) ──▶ table (N, D), indexed by the coordinate of sample ──▶ laws ──▶ Dataset

polars, pyarrow and other eager frames become pandas frames. A DataArray has two dimensions,
samples first; a Dataset has one variable a column, all over the one dimension of the samples. A
grid becomes samples by `stack`, and laws a grid by `unstack`. None of these libraries is imported
here: whoever hands over a Dataset has imported xarray already.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sized
from typing import Any

import narwhals as nw
import numpy as np
import pandas as pd


def has_coordinates(value: Any) -> bool:
    """Whether a value is a DataArray or a Dataset."""
    xarray = sys.modules.get("xarray")
    return xarray is not None and isinstance(value, (xarray.DataArray, xarray.Dataset))


def as_table(value: Any, what: str) -> Any:
    """A pandas frame from any library's frame or Dataset, columns by name; else the value itself.

    The coordinate of a Dataset's samples becomes the index. A DataArray with another number of
    dimensions than two becomes a plain array.
    """
    if has_coordinates(value):
        return _from_xarray(value, what)
    if isinstance(value, pd.DataFrame):
        return value
    try:
        frame = nw.from_native(value, pass_through=True)
    except nw.exceptions.DuplicateError as error:
        raise ValueError(f"{what} has two columns of one name ({error}); rename them") from None
    if isinstance(frame, nw.LazyFrame):
        raise ValueError(f"{what} is a lazy frame, which has no rows yet; pass {what}.collect()")
    return _from_frame(frame) if isinstance(frame, nw.DataFrame) else value


def _from_frame(frame: nw.DataFrame[Any]) -> pd.DataFrame:
    try:
        return frame.to_pandas()
    except (ImportError, ModuleNotFoundError):  # polars asks pyarrow for the conversion
        return pd.DataFrame({name: frame[name].to_numpy() for name in frame.columns})


def _from_xarray(value: Any, what: str) -> Any:
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
    index = row_labels(rows)
    if index is None:
        if isinstance(rows, Mapping) and len(rows) > 0:
            rows = next(iter(rows.values()))
        # What converts to an array need not have a length itself.
        count = len(rows) if isinstance(rows, Sized) else len(np.asarray(rows))
        return pd.RangeIndex(count, name=unnamed)
    if isinstance(index, pd.MultiIndex):
        names = [f"{unnamed}_{k}" if n is None else n for k, n in enumerate(index.names)]
        return index.set_names(names)
    return index if index.name is not None else index.rename(unnamed)


def check_aligned(X: Any, others: Mapping[str, Any]) -> None:
    """Refuse labels or weights, by name, whose rows are labelled otherwise than the inputs.

    Rows are matched by position. A plain range 0, 1, 2, ... says no more than the position, and
    agrees with any index that is not a reordering of it.
    """
    known = [("X", row_labels(X))]
    for what, given in others.items():
        by_name = isinstance(given, Mapping) and not has_coordinates(given)
        for name, column in given.items() if by_name else [("", given)]:
            known.append((f"{what}[{name!r}]" if name else what, row_labels(column)))
    labelled = [(name, index) for name, index in known if index is not None]
    # Every pair, since a plain range may stand between two indexes that disagree; equal ones once.
    told: list[tuple[str, pd.Index]] = []
    for name, index in labelled:
        if any(index.equals(other) for _, other in told):
            continue
        for first, other in told:
            _check_pair(first, other, name, index)
        told.append((name, index))


def _check_pair(first: str, here: pd.Index, second: str, there: pd.Index) -> None:
    if len(here) != len(there):
        return  # refused elsewhere, by shapes
    if (_is_plain(here) or _is_plain(there)) and not _same_set(here, there):
        return
    unlike = np.asarray(here, dtype=object) != np.asarray(there, dtype=object)
    if not unlike.any():
        return  # the same labels in another type
    row = int(np.flatnonzero(unlike)[0])
    raise ValueError(
        f"{second} is labelled {there[row]} in row {row}, where {first} has {here[row]}, and rows "
        "are matched by position; bring both into one order (pandas: reindex or join, xarray: "
        "align), or drop the index with reset_index(drop=True)"
    )


def row_labels(rows: Any) -> pd.Index | None:
    """The index or coordinate of an object that has one."""
    if has_coordinates(rows):
        return index_of(rows) if rows.dims and _samples(rows) in rows.indexes else None
    if isinstance(rows, pd.Index):
        return rows
    return rows.index if isinstance(rows, pd.DataFrame | pd.Series) else None


def _is_plain(index: pd.Index) -> bool:
    return pd.api.types.is_integer_dtype(index.dtype) and bool(
        np.array_equal(index, np.arange(len(index)))
    )


def _same_set(first: pd.Index, second: pd.Index) -> bool:
    return first.is_unique and second.is_unique and bool(first.isin(second).all())


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


def as_array(values: Any, what: str) -> np.ndarray:
    """`values` as an array of whatever they are; what a masked array hides becomes None."""
    try:
        if isinstance(values, np.ma.MaskedArray):
            shown = np.ma.getdata(values).astype(object)
            shown[np.ma.getmaskarray(values)] = None
            return shown
        return np.asarray(values)
    except ValueError as error:
        raise ValueError(f"{what} is not a regular array: {error}") from None
