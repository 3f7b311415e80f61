"""Tables of 4 or 2 bits that GatherBlockQuantized reads, as bytes: several numbers in one, as onnxruntime packs them.

No kernel reads elements that are smaller than a byte, but the operator's own packed form is arithmetic on bytes. Signed numbers
become unsigned ones by moving their zero point to the middle of the range.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from intarsia.graph.dtypes import DType
from intarsia.graph.model import Constant, Graph, Node, TensorType
from intarsia.ops.framework.infer import Inference
from intarsia.providers.cpu.legalize.lowering_pass import LegalizeEnv
from intarsia.providers.cpu.value_names import derived_name

_NARROW = frozenset((DType.UINT4, DType.INT4, DType.UINT2, DType.INT2))
OPERATORS = frozenset(("GatherBlockQuantized",))


def unpack_tables(inference: Inference, _: LegalizeEnv) -> Graph | None:
    """The graph with tables of bytes; None if no table is narrower."""
    graph = inference.graph
    chosen = [n for n in graph.nodes if n.domain == "com.microsoft" and n.op_type in OPERATORS and _takes(n, inference)]
    if not chosen:
        return None
    out = graph.clone()
    at = {id(n): i for i, n in enumerate(graph.nodes)}
    for node in chosen:
        out.nodes[at[id(node)]] = _by_bytes(node, out, inference)
    return out


def _takes(node: Node, inference: Inference) -> bool:
    """Whether the table is a constant of few bits, and so are its zero points, or else their shape is known."""
    constants = inference.graph.constants
    data, zeros = constants.get(node.inputs[0]), _zeros(node)
    if data is None or data.dtype not in _NARROW or not data.shape:
        return False
    return (
        constants[zeros].dtype is data.dtype if zeros in constants else not zeros and _scales_shape(node, inference) is not None
    )


def _zeros(node: Node) -> str:
    return node.inputs[3] if len(node.inputs) > 3 else ""


def _scales_shape(node: Node, inference: Inference) -> tuple[int, ...] | None:
    kind = inference.types.get(node.inputs[2])
    shape = kind.shape if isinstance(kind, TensorType) else None
    known = tuple(d for d in shape or () if isinstance(d, int))
    return known if shape and len(known) == len(shape) else None


def _by_bytes(node: Node, graph: Graph, inference: Inference) -> Node:
    data = graph.constants[node.inputs[0]]
    # A row that does not fill its last byte keeps a byte for each number, and so do rows of which numbers are gathered.
    whole = data.shape[-1] * data.dtype.bits % 8 == 0
    split = int(node.attributes.get("gather_axis", 0)) % len(data.shape) == len(data.shape) - 1
    bits = data.dtype.bits if whole and not split else 8
    table, zeros = _bytes_of(data, bits, graph), _zeros(node)
    if zeros:
        zeros = _bytes_of(graph.constants[zeros], bits, graph)
    else:  # packed numbers without zero points count from the middle of their range, others from 0
        shape = _scales_shape(node, inference)
        assert shape is not None
        zeros = derived_name(node.outputs[0], "zeros")
        byte = sum(_lift(data.dtype) << shift for shift in range(0, 8, bits))
        graph.constants[zeros] = Constant.of(zeros, np.full((*shape[:-1], -(-shape[-1] * bits // 8)), byte, np.uint8))
    return node.copy(inputs=[table, *node.inputs[1:3], zeros], attributes={**node.attributes, "bits": bits}, traced=None)


def _lift(dtype: DType) -> int:
    return 1 << (dtype.bits - 1) if dtype.is_signed_integer else 0


def _bytes_of(constant: Constant, bits: int, graph: Graph) -> str:
    name = derived_name(constant.name, f"bytes of {bits} bits")
    if name not in graph.constants:
        width = -(-constant.shape[-1] * bits // 8)
        graph.constants[name] = Constant(name, DType.UINT8, (*constant.shape[:-1], width), partial(_packed, constant, bits))
    return name


def _packed(constant: Constant, bits: int) -> np.ndarray:
    """Unsigned numbers along the last axis, low bits first; a row begins at a byte."""
    numbers = constant.numpy().astype(np.int8)
    numbers = (numbers + np.int8(_lift(constant.dtype))).astype(np.uint8)
    constant.forget()
    each = 8 // bits
    missing = -numbers.shape[-1] % each
    if missing:
        numbers = np.pad(numbers, [(0, 0)] * (numbers.ndim - 1) + [(0, missing)])
    packed = numbers[..., ::each].copy()
    for i in range(1, each):
        packed |= numbers[..., i::each] << np.uint8(i * bits)
    return packed
