"""LoRA adapters: named tensors in a FlatBuffers file of onnxruntime's format, which a run puts in place of a model's inputs.

The schema, read off such a file: root table Adapter (format_version, adapter_version, model_version: int32; parameters: vector
of Parameter), table Parameter (name: string; dims: vector of int64; data_type: int32; raw_data: vector of bytes), file
identifier "TORT".
"""

from __future__ import annotations

import math
import os
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from intarsia.errors import InvalidArgument, NoSuchFile, WrongType
from intarsia.graph.dtypes import DType
from intarsia.graph.formats.atomic_write import replace_file
from intarsia.graph.formats.file_bytes import file_bytes, open_file
from intarsia.graph.formats.flatbuffer import FlatTable
from intarsia.graph.formats.protobuf_wire import Buffer, view
from intarsia.graph.formats.tensor_proto import MAX_RANK
from intarsia.graph.model import Value
from intarsia.values.interop import named_feed
from intarsia.values.ort_value import OrtValue

FORMAT_VERSION = 1
_IDENTIFIER = b"TORT"
_VTABLE = struct.pack("<6H", 12, 20, 4, 8, 12, 16)  # its size, the table's, and where each of four fields is in it
_ALIGNMENT = 16
_MOST_ELEMENTS = 1 << 56  # NumPy counts bytes in 63 bits, for empty arrays too


class AdapterFormat:
    """The contents of an adapter file."""

    def __init__(self) -> None:
        self.adapter_version = 0
        self.model_version = 0
        self.format_version = FORMAT_VERSION
        self._parameters: dict[str, OrtValue] = {}

    @staticmethod
    def read_adapter(file_path: str | os.PathLike[str]) -> AdapterFormat:
        """The contents of a file; the tensors are in memory of their own.

        Raises:
            NoSuchFile: it does not exist.
            InvalidArgument: it is no adapter, or is cut short.
            Fail: it changed while it was read.
        """
        path = Path(file_path)
        try:
            data = file_bytes(open_file(path), str(path))
        except FileNotFoundError as error:
            raise NoSuchFile(f"adapter file {str(path)!r} does not exist") from error
        except (ValueError, OSError) as error:
            raise InvalidArgument(f"{path}: cannot be read as an adapter: {error}") from error
        made = AdapterFormat()
        try:
            made._parameters = _read(data, str(path), made)
        except (IndexError, UnicodeDecodeError) as error:
            raise InvalidArgument(f"{path}: the adapter is cut short or corrupt: {error}") from error
        return made

    def export_adapter(self, file_path: str | os.PathLike[str]) -> None:
        """Write the adapter.

        Raises:
            InvalidArgument: a parameter that the format cannot hold, or there is no such folder.
            NotWritten: the file cannot be written.
        """
        data = _written(self)
        replace_file(file_path, lambda file: file.write(data))

    def set_adapter_version(self, adapter_version: int) -> None:
        """Set the version of the adapter, as its author counts it."""
        self.adapter_version = int(adapter_version)

    def get_adapter_version(self) -> int:
        """The version of the adapter, as its author counts it."""
        return self.adapter_version

    def set_model_version(self, model_version: int) -> None:
        """Set the version of the model that the adapter belongs to."""
        self.model_version = int(model_version)

    def get_model_version(self) -> int:
        """The version of the model that the adapter belongs to."""
        return self.model_version

    def get_format_version(self) -> int:
        """The version of the file format."""
        return self.format_version

    def set_parameters(self, params: Mapping[str, OrtValue]) -> None:
        """The adapter's tensors by name."""
        for name, value in params.items():
            if not isinstance(name, str) or not isinstance(value, OrtValue):
                raise WrongType(f"set_parameters: expected names and OrtValues, got {name!r}: {type(value).__name__}")
        self._parameters = dict(params)

    def get_parameters(self) -> dict[str, OrtValue]:
        """The adapter's tensors, by the names of the model's inputs that they are given to."""
        return dict(self._parameters)


class LoraAdapter:
    """An adapter for `RunOptions.add_active_adapter`."""

    def __init__(self) -> None:
        self._parameters: dict[str, OrtValue] = {}

    def Load(self, file_path: str | os.PathLike[str]) -> None:  # noqa: N802 # onnxruntime's name
        """Read the tensors of an adapter file. Raises as `AdapterFormat.read_adapter`."""
        self._parameters = AdapterFormat.read_adapter(file_path).get_parameters()

    @property
    def parameters(self) -> dict[str, OrtValue]:
        """The adapter's tensors, by the names of the model's inputs that they are given to."""
        return dict(self._parameters)


def with_adapters(feed: Any, inputs: Sequence[Value], adapters: Sequence[LoraAdapter]) -> dict[str, Any]:
    """A feed with the adapters' parameters, where the feed does not give them itself.

    Raises:
        InvalidArgument: two adapters have a parameter of the same name.
    """
    merged: dict[str, Any] = {}
    for adapter in adapters:
        for name, value in adapter.parameters.items():
            if name in merged:
                raise InvalidArgument(f"two active adapters have a parameter {name!r}; expected adapters for different weights")
            merged[name] = value
    return {**merged, **named_feed(feed, inputs)}


def _read(data: Buffer, label: str, target: AdapterFormat) -> dict[str, OrtValue]:
    if len(data) < 8 or data[4:8] != _IDENTIFIER:
        raise InvalidArgument(f"{label}: The buffer does not appear to be a valid lora parameter format")
    root = FlatTable.root(data)
    target.format_version, target.adapter_version, target.model_version = (root.integer(i) for i in range(3))
    if target.format_version != FORMAT_VERSION:
        raise InvalidArgument(f"{label}: format version {target.format_version}, expected {FORMAT_VERSION}")
    return dict(_parameter(table, label) for table in root.tables(3))


def _parameter(table: FlatTable, label: str) -> tuple[str, OrtValue]:
    name, shape = table.text(0), table.numbers(1, "<i8").tolist()
    try:
        dtype = DType(table.integer(2))
    except ValueError as error:
        raise InvalidArgument(f"{label}: parameter {name!r}: {error}") from error
    start, end = table.span(3)
    expected = math.prod(shape) * dtype.numpy.itemsize
    if len(shape) > MAX_RANK or math.prod(d or 1 for d in shape) > _MOST_ELEMENTS:
        raise InvalidArgument(f"{label}: parameter {name!r}: no array has the shape {shape[:MAX_RANK]}")
    if dtype is DType.STRING or dtype.bits < 8 or end - start != expected or any(d < 0 for d in shape):
        raise InvalidArgument(f"{label}: parameter {name!r}: {end - start} bytes do not fit {dtype.onnx_name} {shape}")
    return name, OrtValue(view(table.buffer, start, end - start).view(dtype.numpy.newbyteorder("<")).reshape(shape))


def _written(adapter: AdapterFormat) -> bytes:
    out = bytearray(4) + _IDENTIFIER

    def link(place: int) -> None:
        struct.pack_into("<I", out, place, len(out) - place)

    def pad(alignment: int, ahead: int) -> None:
        out.extend(bytes(-(len(out) + ahead) % alignment))

    def vector(place: int, count: int, content: bytes, alignment: int) -> None:
        pad(alignment, 4)
        link(place)
        out.extend(struct.pack("<I", count) + content)

    def table(content: bytes) -> int:
        pad(4, len(_VTABLE))
        out.extend(_VTABLE)
        start = len(out)
        out.extend(struct.pack("<i", len(_VTABLE)) + content)
        return start

    versions = struct.pack("<4i", adapter.format_version, adapter.adapter_version, adapter.model_version, 0)
    root = table(versions)
    struct.pack_into("<I", out, 0, root)
    parameters = sorted(adapter.get_parameters().items())
    vector(root + 16, len(parameters), bytes(4 * len(parameters)), 4)
    slots = len(out) - 4 * len(parameters)
    for i, (name, value) in enumerate(parameters):
        array = value._array(f"export_adapter, parameter {name!r}")
        dtype = DType(value.element_type())
        if dtype is DType.STRING or dtype.bits < 8:
            raise InvalidArgument(f"export_adapter: parameter {name!r} is {dtype.onnx_name}, which the format cannot hold")
        start = table(struct.pack("<2I i I", 0, 0, int(dtype), 0))
        struct.pack_into("<I", out, slots + 4 * i, start - (slots + 4 * i))
        encoded = name.encode()
        vector(start + 4, len(encoded), encoded + b"\0", 4)
        vector(start + 8, array.ndim, struct.pack(f"<{array.ndim}q", *array.shape), 8)
        little = array.astype(array.dtype.newbyteorder("<"), copy=False)
        vector(start + 16, array.nbytes, little.tobytes(), _ALIGNMENT)
    pad(_ALIGNMENT, 0)
    return bytes(out)
