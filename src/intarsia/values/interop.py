"""Values of other libraries: what callers give (PyTorch, CuPy, JAX, pandas, Arrow) as NumPy arrays.

Nothing is imported that the caller has not imported: a library's objects are known by the protocols they offer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from intarsia.errors import InvalidArgument, WrongType
from intarsia.graph.model import TensorType, Value


def named_feed(given: Any, values: Sequence[Value]) -> Mapping[str, Any]:
    """The feed by input name: dicts as they are, lists and tuples by position, tables (pandas, Arrow) by column.

    A table's columns become [rows, 1] where the model's input has two dimensions, in the input's element type. A model of
    one input that no column is named after takes the whole table as its matrix.

    Raises:
        InvalidArgument: too many values, or a table without the needed columns.
        WrongType: none of these.
    """
    if isinstance(given, Mapping):
        return given
    if isinstance(given, (list, tuple)):
        if len(given) > len(values):
            raise InvalidArgument(f"input_feed: the model has {len(values)} inputs, got a list of {len(given)} values")
        return {v.name: x for v, x in zip(values, given, strict=False)}
    columns = _columns(given)
    if columns is None:
        raise WrongType(
            "input_feed: expected a dict of input name to value, a list by position or a table by column, "
            f"got {type(given).__name__}"
        )
    names, column = columns
    found = {v.name: _shaped(column(v.name), v) for v in values if v.name in names}
    if found:
        return found
    if len(values) == 1:
        matrix = np.stack([column(name) for name in names], axis=-1) if names else np.empty((0, 0))
        return {values[0].name: _cast(matrix, values[0])}
    wanted = [v.name for v in values]
    raise InvalidArgument(f"input_feed: the table has the columns {names}, the model's inputs are {wanted}")


def _columns(table: Any) -> tuple[list[str], Callable[[str], np.ndarray]] | None:
    """A table's column names, and how to get a column as an array; None for what is no table."""
    if hasattr(table, "column_names") and hasattr(table, "column"):  # pyarrow.Table
        return list(table.column_names), lambda name: _arrow(table.column(name))
    if hasattr(table, "schema") and hasattr(table, "column") and hasattr(table.schema, "names"):  # pyarrow.RecordBatch
        names = list(table.schema.names)
        return names, lambda name: _arrow(table.column(names.index(name)))
    if hasattr(table, "columns") and hasattr(table, "__getitem__") and hasattr(table, "shape"):  # pandas, polars
        return [str(c) for c in table.columns], lambda name: np.asarray(table[name])
    return None


def _arrow(column: Any) -> np.ndarray:
    if column.null_count:
        raise InvalidArgument(f"an Arrow column of {column.type} has {column.null_count} missing values; fill them first")
    if "fixed_shape_tensor" in str(column.type):
        whole = column.combine_chunks() if hasattr(column, "combine_chunks") else column
        tensors: np.ndarray = whole.to_numpy_ndarray()
        return tensors
    try:
        array: np.ndarray = column.to_numpy(zero_copy_only=False)
    except TypeError:  # a ChunkedArray copies by itself
        array = column.to_numpy()
    return array


def column_array(value: Any, expected: Value) -> Any:
    """A single column of a table (pandas, polars, Arrow) as `named_feed` would take it; other values as they are.

    Raises:
        InvalidArgument: a column with missing values, or with numbers that do not fit the input's element type.
    """
    if type(value) is np.ndarray or not hasattr(value, "to_numpy") or hasattr(value, "columns"):
        return value
    return _shaped(_arrow(value) if hasattr(value, "null_count") and hasattr(value, "type") else np.asarray(value), expected)


def _shaped(column: np.ndarray, value: Value) -> np.ndarray:
    kind = value.type
    wide = isinstance(kind, TensorType) and kind.shape is not None and len(kind.shape) == 2 and column.ndim == 1
    return _cast(column.reshape(-1, 1) if wide else column, value)


def _cast(column: np.ndarray, value: Value) -> np.ndarray:
    """A numeric column in the input's element type: tables hold float64 and int64 whatever the model was trained with."""
    kind = value.type
    if not isinstance(kind, TensorType) or column.dtype.kind not in "biuf" or kind.dtype.numpy.kind not in "biuf":
        return column
    wanted = kind.dtype.numpy
    cast = column.astype(wanted)
    exact = column.dtype.kind == "f" and wanted.kind == "f"
    if not exact and column.size and not np.array_equal(cast, column):
        raise InvalidArgument(
            f"input {value.name!r}: the table's {column.dtype.name} column does not fit {kind.onnx_name}; convert it first"
        )
    return cast


def host_array(value: Any, where: str) -> Any:
    """An array on the memory of a foreign tensor where that is the host's, or a copy of one in a device's memory.

    Objects that offer no such protocol are returned as they are.

    Raises:
        InvalidArgument: a tensor that cannot be brought to the host.
    """
    if hasattr(value, "__dlpack__") and not _in_host_memory(value):
        value = _fetched(value, where)
        if isinstance(value, np.ndarray):
            return value
    elif hasattr(value, "__cuda_array_interface__") and not hasattr(value, "__dlpack__"):
        return _fetched(value, where)
    if hasattr(value, "__dlpack__") and not hasattr(value, "__array_interface__"):
        from intarsia.values import dlpack

        try:
            return dlpack.array_of(value, where)
        except (BufferError, RuntimeError, TypeError, ValueError) as error:
            if not hasattr(value, "__array__"):
                raise InvalidArgument(f"{where}: {type(value).__name__} cannot be read by DLPack: {error}") from error
    if hasattr(value, "__array__") or hasattr(value, "__array_interface__"):
        try:
            return np.asarray(value)
        except (NotImplementedError, RuntimeError, TypeError) as error:  # a tensor without elements: PyTorch's "meta" device
            raise InvalidArgument(f"{where}: {type(value).__name__} cannot be read as an array: {error}") from error
    if hasattr(value, "tocoo") and hasattr(value, "toarray"):  # SciPy
        raise InvalidArgument(f"{where}: {type(value).__name__} is sparse; give its dense form, .toarray()")
    return value


def _in_host_memory(value: Any) -> bool:
    if not hasattr(value, "__dlpack_device__"):
        return True
    try:
        return int(value.__dlpack_device__()[0]) in (1, 3, 11)
    except (BufferError, RuntimeError, ValueError, TypeError):  # a type without DLPack device: __array__ decides
        return True


def _fetched(value: Any, where: str) -> Any:
    """A device tensor copied to the host by its own library's method."""
    for method in ("cpu", "get", "asnumpy"):  # PyTorch; CuPy; MXNet
        if callable(getattr(value, method, None)):
            return getattr(value, method)()
    if hasattr(value, "__array__"):  # JAX
        return np.asarray(value)
    device = getattr(value, "device", "a device")
    raise InvalidArgument(
        f"{where}: the {type(value).__name__} is in the memory of {device} and has no method that copies it to the host"
    )
