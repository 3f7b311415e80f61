"""A model whose large weights stay in its file until they are requested: as external data that lie in the model's own file.

A protobuf message is read into memory whole, and beside its bytes: twice the file. Here the message is walked, and the bytes
of a large stored tensor are left where they are.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
from onnx import external_data_helper, numpy_helper

from intarsia.graph.formats.file_bytes import FileBytes
from intarsia.graph.formats.protobuf_wire import BYTES, Buffer, Message, located_fields
from intarsia.quantization.description.node_order import subgraphs

_LEFT_FROM = 1 << 16  # bytes of a tensor that stays in the file
_GRAPH, _STORED, _RAW = 7 << 3 | BYTES, 5 << 3 | BYTES, 9 << 3 | BYTES


def load_without_weights(path: str | os.PathLike[str]) -> onnx.ModelProto:
    """The model of a file; bytes of its large stored tensors, and of those in other files, stay there.

    Read one with `stored_array`, and all that are left with `load_left_weights`.
    """
    place = Path(path)
    data = FileBytes(os.open(place, os.O_RDONLY | getattr(os, "O_BINARY", 0)), str(place), path=str(place))
    if len(data) < _LEFT_FROM:
        return onnx.load(os.fspath(place), load_external_data=False)
    whole = Message()
    stored: list[onnx.TensorProto] = []
    for buffer, tag, first, last in located_fields(data, 0, len(data), "ModelProto"):
        if tag == _GRAPH:
            whole.raw(7, _graph(buffer, first, last, stored, place.name))
        else:
            _copy(whole, buffer, tag, first, last)
    model: onnx.ModelProto = onnx.ModelProto.FromString(whole.join())
    model.graph.initializer.extend(stored)
    return model


def _copy(message: Message, buffer: Buffer, tag: int, first: int, last: int) -> None:
    """Write a field as it is: numbers of a fixed size are in none of the messages that are walked."""
    if tag & 7 == BYTES:
        message.raw(tag >> 3, buffer[first:last])
    else:
        message.integer(tag >> 3, first)


def _graph(buffer: Buffer, first: int, last: int, stored: list[onnx.TensorProto], name: str) -> bytes:
    """A graph's bytes without its stored tensors, which are appended to `stored`."""
    own = Message()
    for part, tag, start, end in located_fields(buffer, first, last, "GraphProto"):
        if tag == _STORED:
            stored.append(_tensor(part, start, end, name))
        else:
            _copy(own, part, tag, start, end)
    return own.join()


def _tensor(buffer: Buffer, first: int, last: int, name: str) -> onnx.TensorProto:
    if last - first < _LEFT_FROM or not isinstance(buffer, FileBytes):
        return onnx.TensorProto.FromString(buffer[first:last])
    own, where = Message(), None
    for part, tag, start, end in located_fields(buffer, first, last, "TensorProto"):
        if tag == _RAW and part is buffer:
            where = start, end - start
        else:
            _copy(own, part, tag, start, end)
    if where is None:
        return onnx.TensorProto.FromString(buffer[first:last])
    tensor: onnx.TensorProto = onnx.TensorProto.FromString(own.join())
    tensor.data_location = onnx.TensorProto.EXTERNAL
    for key, value in (("location", name), ("offset", where[0]), ("length", where[1])):
        tensor.external_data.add(key=key, value=str(value))
    return tensor


def stored_array(tensor: onnx.TensorProto, folder: str) -> np.ndarray:
    """A stored tensor, wherever its bytes are.

    Args:
        folder: of the model's file.
    """
    return np.asarray(numpy_helper.to_array(tensor, folder))


def load_left_weights(model: onnx.ModelProto, folder: str) -> None:
    """Read what is still in files into the model."""
    for tensor in _all_stored(model.graph):
        if external_data_helper.uses_external_data(tensor):
            external_data_helper.load_external_data_for_tensor(tensor, folder)
            tensor.data_location = onnx.TensorProto.DEFAULT
            del tensor.external_data[:]


def _all_stored(graph: onnx.GraphProto) -> Iterator[onnx.TensorProto]:
    yield from graph.initializer
    for node in graph.node:
        for sub in subgraphs(node):
            yield from _all_stored(sub)
