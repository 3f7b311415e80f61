"""Models in and out of files, with the shapes that quantisation needs; and marks in their metadata."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Any

import onnx
from google.protobuf.message import EncodeError
from onnx import TensorProto, external_data_helper, helper

from intarsia.errors import InvalidArgument, NoSuchFile, WrongType
from intarsia.graph.formats.atomic_write import replace_file
from intarsia.graph.formats.protobuf_wire import Message
from intarsia.quantization.description.node_order import subgraphs

_GRAPH, _STORED = 7, 5  # fields of ModelProto and of GraphProto
LARGE = 1 << 31
"""Bytes from which a model cannot be one protobuf message."""
_IN_A_BYTE = {21: 2, 22: 2, 23: 2, 25: 4, 26: 4}
"""Elements in a byte of ONNX's UINT4, INT4, FLOAT4E2M1, UINT2 and INT2, not all of which older packages name."""
_INFERRED = ("onnx.infer", "onnxruntime.quant")
_PREPARED = ("onnx.quant.pre_process", "onnxruntime.quant")


def load_model(source: str | os.PathLike[str] | onnx.ModelProto) -> onnx.ModelProto:
    """The model in memory: read from a file, or a copy of what is given, which stays as it is.

    Raises:
        NoSuchFile: there is no such file.
        WrongType: neither a path nor a model.
    """
    if isinstance(source, onnx.ModelProto):
        found = onnx.ModelProto()
        found.CopyFrom(source)
        return found
    return onnx.load(os.fspath(existing(source)))


def existing(source: str | os.PathLike[str]) -> Path:
    """The path of a file that is there.

    Raises:
        NoSuchFile: there is no such file.
        WrongType: no path.
    """
    if not isinstance(source, (str, os.PathLike)):
        raise WrongType(f"a model: expected a path or an onnx.ModelProto, got {type(source).__name__}")
    path = Path(source)
    if not path.is_file():
        raise NoSuchFile(f"no file {str(path)!r}")
    return path


def with_shapes(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with the types of its inner values, as ONNX infers them. Weights are not copied.

    What ONNX's inference cannot follow (operators of other domains) keeps what the model states.
    """
    bare = onnx.ModelProto()
    bare.CopyFrom(_without_weights(model))
    try:
        inferred = onnx.shape_inference.infer_shapes(bare, check_type=False, strict_mode=False, data_prop=False)
    except Exception as error:  # the library raises several kinds, some of no common base
        raise InvalidArgument(f"the types of the model's values cannot be inferred: {error}") from error
    _take_types(model.graph, inferred.graph)
    mark_inferred(model)
    return model


def _take_types(graph: onnx.GraphProto, inferred: onnx.GraphProto) -> None:
    """Let a graph state of its values what is stated in its inferred twin, in bodies too."""
    for own, found in ((graph.value_info, inferred.value_info), (graph.output, inferred.output)):
        del own[:]
        own.extend(found)
    for node, twin in zip(graph.node, inferred.node, strict=True):
        for body, inner in zip(subgraphs(node), subgraphs(twin), strict=True):
            _take_types(body, inner)


def without_weights(model: onnx.ModelProto) -> onnx.ModelProto:
    """A copy of the model whose large stored tensors have their names, types and sizes, and no elements."""
    found = _without_weights(model)
    there = {t.name for t in found.graph.initializer}
    for tensor in model.graph.initializer:
        if tensor.name not in there:
            found.graph.initializer.append(TensorProto(name=tensor.name, data_type=tensor.data_type, dims=tensor.dims))
    return found


def _without_weights(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with large float weights as inputs of their type: shapes do not depend on their values."""
    found = onnx.ModelProto(ir_version=model.ir_version)
    found.opset_import.extend(model.opset_import)
    found.functions.extend(model.functions)
    graph, own = found.graph, model.graph
    graph.name = own.name or "graph"
    graph.node.extend(own.node)
    graph.input.extend(own.input)
    graph.output.extend(own.output)
    graph.value_info.extend(own.value_info)
    graph.sparse_initializer.extend(own.sparse_initializer)
    inputs = {v.name for v in own.input}
    for tensor in own.initializer:
        if tensor.data_type in _READ_BY_INFERENCE and math.prod(tensor.dims) < _SMALL:
            graph.initializer.append(tensor)
        elif tensor.name not in inputs:
            graph.input.append(onnx.helper.make_tensor_value_info(tensor.name, tensor.data_type, list(tensor.dims)))
    return found


_READ_BY_INFERENCE = (1, 6, 7, 9, 11)  # sizes, axes, scales of Resize: FLOAT, INT32, INT64, BOOL, DOUBLE
_SMALL = 4096


def save_model(model: onnx.ModelProto, path: str | os.PathLike[str], *, external: bool = False) -> None:
    """Write a model; above 2 GB, or where requested, weights go into `PATH.data`.

    Raises:
        NotWritten, InvalidArgument: as of `replace_file`.
    """
    place = Path(path)
    pieces = None if external else _pieces(model)
    if pieces is not None:
        replace_file(place, lambda file: file.writelines(pieces))
        return
    data = place.with_name(f"{place.name}.data")
    data.unlink(missing_ok=True)
    external_data_helper.convert_model_to_external_data(model, location=data.name)
    onnx.save_model(model, os.fspath(place))


def _pieces(model: onnx.ModelProto) -> list[bytes | memoryview] | None:
    """The model as a file has it, in pieces; None where that is too large.

    Stored tensors are written one by one: protobuf writes a message into memory that grows, and is copied, as it does so.
    """
    if sum(_size(tensor) for tensor in model.graph.initializer) >= LARGE:
        return None
    graph, whole = Message(), Message()
    try:
        graph.append(_without(model.graph, "initializer").SerializeToString())
        for tensor in model.graph.initializer:
            graph.raw(_STORED, tensor.SerializeToString())
        whole.append(_without(model, "graph").SerializeToString())
    except (ValueError, EncodeError):  # protobuf's versions differ in what they raise
        return None
    whole.message(_GRAPH, graph)
    return whole.chunks if whole.nbytes < LARGE else None


def _without(message: Any, name: str) -> Any:
    """A copy of a message without one of its fields, which is not copied."""
    found = type(message)()
    for field, value in message.ListFields():
        if field.name == name:
            continue
        target = getattr(found, field.name)
        if hasattr(target, "extend"):
            target.extend(value)
        elif hasattr(target, "CopyFrom"):
            target.CopyFrom(value)
        else:
            setattr(found, field.name, value)
    return found


def _size(tensor: TensorProto) -> int:
    """Bytes of the elements, at least."""
    if external_data_helper.uses_external_data(tensor) or tensor.data_type in (TensorProto.UNDEFINED, TensorProto.STRING):
        return 0
    itemsize: int = helper.tensor_dtype_to_np_dtype(tensor.data_type).itemsize
    return int(math.prod(tensor.dims)) * itemsize // _IN_A_BYTE.get(tensor.data_type, 1)


def has_external_data(model: onnx.ModelProto) -> bool:
    """Whether stored tensors of the graph lie in other files."""
    return any(external_data_helper.uses_external_data(t) for t in model.graph.initializer)


def _set(model: onnx.ModelProto, key: str, value: str) -> None:
    for entry in model.metadata_props:
        if entry.key == key:
            entry.value = value
            return
    model.metadata_props.add(key=key, value=value)


def _has(model: onnx.ModelProto, entry: tuple[str, str]) -> bool:
    return any((e.key, e.value) == entry for e in model.metadata_props)


def mark_inferred(model: onnx.ModelProto) -> None:
    """Note in the model that types of its values were inferred."""
    _set(model, *_INFERRED)


def is_inferred(model: onnx.ModelProto) -> bool:
    """Whether `mark_inferred` was there."""
    return _has(model, _INFERRED)


def mark_prepared(model: onnx.ModelProto) -> None:
    """Note in the model that it was prepared for quantisation."""
    _set(model, *_PREPARED)


def is_prepared(model: onnx.ModelProto) -> bool:
    """Whether `mark_prepared` was there."""
    return _has(model, _PREPARED)


def opset_version(model: Any) -> int:
    """The version of ONNX's operator set that a model imports.

    Raises:
        InvalidArgument: none, or several.
    """
    found = [entry for entry in model.opset_import if entry.domain in ("", "ai.onnx")]
    if len(found) != 1:
        raise InvalidArgument(f"Failed to find proper ai.onnx domain: expected one version of it, got {len(found)}")
    return int(found[0].version)
