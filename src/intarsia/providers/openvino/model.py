"""From a graph to an `openvino.Model`: through ONNX bytes, large weights through a file that OpenVINO maps."""

from __future__ import annotations

import io
import tempfile
from pathlib import Path
from typing import Any

from intarsia.errors import EPFail, IntarsiaError
from intarsia.graph.dims import Expr
from intarsia.graph.dtypes import DType
from intarsia.graph.model import Graph, TensorType, Value
from intarsia.graph.save import save, to_model_bytes
from intarsia.passes import standardize
from intarsia.providers.openvino.frontend_rewrites import rewritten
from intarsia.providers.openvino.repairs import repair
from intarsia.providers.openvino.runtime import core, shortened

_MAPPED_NBYTES = 1 << 24  # weights of more than this in all go through a file
_EXTERNAL_NBYTES = 1 << 12


def node_name(index: int) -> str:
    """OpenVINO's name for node `index` of a part: unique, and the name of no tensor."""
    return f"intarsia/node{index}"


def read(graph: Graph, *, exact_nan: bool = True) -> Any:
    """`graph` as an `openvino.Model` with inputs and outputs in the graph's order, its nodes named by `node_name`.

    What OpenVINO would compute otherwise than ONNX says is replaced (`frontend_rewrites`, `repairs`).

    Raises:
        EPFail: OpenVINO cannot convert it.
    """
    try:
        named = _named(standardize(graph))
    except IntarsiaError as error:
        raise EPFail(f"openvino: {error}") from error
    if sum(c.nbytes for c in named.constants.values()) <= _MAPPED_NBYTES:
        return _repaired(_read(io.BytesIO(to_model_bytes(named))), exact_nan)
    with tempfile.TemporaryDirectory(prefix="intarsia-openvino-", ignore_cleanup_errors=True) as folder:
        path = Path(folder) / "part.onnx"
        save(named, path, _EXTERNAL_NBYTES)
        return _repaired(_read(str(path)), exact_nan)


def _repaired(model: Any, exact_nan: bool) -> Any:
    try:
        repair(model, exact_nan=exact_nan)
    except RuntimeError as error:
        raise EPFail(f"openvino cannot read the part: {shortened(error)}") from error
    return model


def _read(source: Any) -> Any:
    try:
        return core().read_model(source)
    except RuntimeError as error:
        raise EPFail(f"openvino cannot read the part: {shortened(error)}") from error


def _named(graph: Graph) -> Graph:
    """Nodes under names of their own, without types of intermediates: OpenVINO infers them."""
    out = graph.clone()
    out.nodes = [node.copy(name=node_name(i)) for i, node in enumerate(graph.nodes)]
    out.nodes = rewritten(out, graph.opset_imports.get("", 1))
    out.types, out.functions, out.overridable = {}, {}, []
    out.inputs = [Value(v.name, _plain(v.type)) for v in graph.inputs]
    out.outputs = [Value(v.name, _plain(v.type, rank_only=True)) for v in graph.outputs]
    return out


def mismatch(model: Any, graph: Graph) -> str:
    """Where the converted model is another function than `graph`: inputs it lacks, outputs of another type; "" nowhere."""
    found = [port.get_names() for port in model.inputs]
    for name in graph.input_names():
        if not any(name in names for names in found):
            return f"OpenVINO's conversion ignores the input {name!r}"
    for port, value in zip(model.outputs, graph.outputs, strict=True):
        expected = graph.type_of(value.name)
        assert isinstance(expected, TensorType), "nodes with other values are refused"
        given = port.partial_shape
        dtype = port.element_type.to_string()
        if _TYPE_NAMES.get(expected.dtype) != dtype:
            return f"OpenVINO gives {value.name!r} elements of type {dtype}, ONNX {expected.dtype.onnx_name}"
        if expected.shape is None or given.rank.is_dynamic:
            continue
        if len(given) != len(expected.shape) or any(
            isinstance(e, int) and g.is_static and g.get_length() != e for g, e in zip(given, expected.shape, strict=True)
        ):
            return f"OpenVINO gives {value.name!r} the shape {given}, ONNX {list(expected.shape)}"
    return ""


_TYPE_NAMES = {
    DType.FLOAT: "f32", DType.FLOAT16: "f16", DType.BFLOAT16: "bf16", DType.INT32: "i32", DType.INT64: "i64", DType.INT8: "i8",
    DType.UINT8: "u8", DType.BOOL: "boolean",
}  # fmt: skip


def _plain(kind: Any, *, rank_only: bool = False) -> Any:
    """The type with symbols as they are; sizes that are computed from others become unknown (`rank_only`: all that vary)."""
    if not isinstance(kind, TensorType) or kind.shape is None:
        return kind
    dims = []
    for i, dim in enumerate(kind.shape):
        computed = isinstance(dim, Expr) and (rank_only or str(dim) not in dim.symbols)
        dims.append(_unknown(i) if computed else dim)
    return TensorType(kind.dtype, tuple(dims))


def _unknown(axis: int) -> Expr:
    from intarsia.graph.dims import fresh_symbol

    return fresh_symbol(f"d{axis}")
