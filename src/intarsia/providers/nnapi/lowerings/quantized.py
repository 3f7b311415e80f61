"""QuantizeLinear, DequantizeLinear, and operators between them, which NNAPI computes of the quantised numbers themselves.

NNAPI rounds a quantised result to the nearest step, halves away from zero, and allows its drivers one step more. A
QuantizeLinear by itself rounds as ONNX does, halves to even.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from intarsia.graph.model import Node
from intarsia.lazy_dataclass import dataclass
from intarsia.providers.nnapi.expressions import binary, cast, concatenated, plus, product, rounded
from intarsia.providers.nnapi.lowerings.elementwise import Lowering, need_real
from intarsia.providers.nnapi.lowerings.movement import axis_of, in_layout
from intarsia.providers.nnapi.lowerings.windows import Filters, Window, convolution, image_dims, pool_window, pooled
from intarsia.providers.nnapi.operands import Kind, OperandType, Tensor
from intarsia.providers.nnapi.operations import ACTIVATIONS
from intarsia.providers.nnapi.quantization import Scale, scale_of
from intarsia.providers.nnapi.writer import NHWC, PLAIN, Writer
from intarsia.providers.vendor.translator import Untranslatable

_FIXED = {
    "Sigmoid": ("LOGISTIC", 1 / 256, 0, -128),
    "Softmax": ("SOFTMAX", 1 / 256, 0, -128),
    "Tanh": ("TANH", 1 / 128, 128, 0),
}
"""Operations whose quantised result has one scale: it, and the zero points of unsigned and of signed bytes."""


def _along(w: Writer, scale: Tensor, axis: int, x: Tensor, layout: str) -> Tensor:
    """Numbers of a scale, of one or of each index of an axis, so that they broadcast with `x`."""
    if scale.type.size == 1:
        return w.reshaped(scale, (1,))
    if scale.rank != 1:
        raise Untranslatable("NNAPI has no scales of blocks")
    place = in_layout(axis % x.rank, layout)
    return w.reshaped(scale, [scale.dims[0] if i == place else 1 for i in range(x.rank)])


def _scale(w: Writer, node: Node, kind: Kind) -> tuple[Tensor, Tensor | None]:
    """The scale of a Quantize- or DequantizeLinear and its zero point (None: 0), as floating-point operands."""
    if node.attributes.get("block_size", 0):
        raise Untranslatable("NNAPI has no scales of blocks")
    array = w.array(node.inputs[1])
    if array is not None and not (np.isfinite(array.astype(np.float32)) & (array > 0)).all():
        raise Untranslatable("NNAPI's scales are positive", "wrong")
    scale = cast(w, w.value(node.inputs[1]), kind) if array is None else w.constant(array.astype(kind.numpy))
    if len(node.inputs) < 3 or not node.inputs[2]:
        return scale, None
    zeros = w.array(node.inputs[2])
    if zeros is not None:
        return scale, w.constant(zeros.astype(kind.numpy)) if zeros.any() else None
    return scale, _plain_bytes(w, w.value(node.inputs[2]), kind)


def _plain_bytes(w: Writer, x: Tensor, kind: Kind) -> Tensor:
    """8-bit integers as floating-point numbers."""
    if not x.kind.byte or (x.type.scale, x.type.zero_point) != (1.0, 0):
        raise Untranslatable(f"NNAPI dequantises 8-bit integers, not {x.type}", "type")
    return w.call("DEQUANTIZE", [x], OperandType(kind, x.dims))


def _dequantize(w: Writer, node: Node) -> None:
    out = node.outputs[0]
    found, array = scale_of(node, w.graph), w.array(node.inputs[0])
    target = w.type_of(out)
    if array is not None and found is not None:
        w.set(out, w.constant(_dequantized(array, found).astype(target.kind.numpy)))
        return
    layout = w.layout(node.inputs[0]) if array is None else PLAIN
    x = w.value(node.inputs[0], layout)
    if x.kind.byte and found is not None and _same(found.pair, x.type):
        w.set(out, w.call("DEQUANTIZE", [x], OperandType(target.kind, x.dims)), layout)
        return
    scale, zero = _scale(w, node, target.kind)
    axis = int(node.attributes.get("axis", 1))
    real = _plain_bytes(w, x, target.kind) if x.kind is not Kind.TENSOR_INT32 else cast(w, x, target.kind)
    if zero is not None:
        real = binary(w, "SUB", real, _along(w, zero, axis, real, layout))
    w.set(out, binary(w, "MUL", real, _along(w, scale, axis, real, layout)), layout)


def _dequantized(array: np.ndarray, scale: Scale) -> np.ndarray:
    shape = [1] * array.ndim
    if scale.scale.size > 1:
        shape[scale.axis] = -1
    real = (array.astype(np.int64) - scale.zero_point.reshape(shape)).astype(np.float32) * scale.scale.reshape(shape)
    return np.asarray(real, np.float32).reshape(array.shape)


def _same(pair: tuple[float, int] | None, kind: OperandType) -> bool:
    return pair is not None and float(np.float32(pair[0])) == kind.scale and pair[1] == kind.zero_point


def defer(w: Writer, node: Node) -> None:
    """Write it when something reads the real numbers."""
    if node.outputs[0] in w.outputs:
        _dequantize(w, node)
        return
    w.deferred[node.outputs[0]] = (node, _dequantize)


def _quantize(w: Writer, node: Node) -> None:
    need_real(w, node)
    out = node.outputs[0]
    if not w.kind(out).byte:
        raise Untranslatable(f"NNAPI quantises to 8-bit integers, not {w.dtype(out)}", "type")
    (x,), layout = w.together(node.inputs[:1])
    found, target = scale_of(node, w.graph), w.type_of(out).of(x.dims)
    if w.target.relaxed and found is not None and _same(found.pair, target):
        w.set(out, w.call("QUANTIZE", [x], target), layout)
        return
    scale, zero = _scale(w, node, x.kind)
    axis = int(node.attributes.get("axis", 1))
    steps = rounded(w, binary(w, "DIV", x, _along(w, scale, axis, x, layout)))
    if zero is not None:
        steps = binary(w, "ADD", steps, _along(w, zero, axis, x, layout))
    if (target.scale, target.zero_point) != (1.0, 0):
        steps = plus(w, steps, -float(target.zero_point)) if target.zero_point else steps
        steps = binary(w, "MUL", steps, w.constant(np.array([target.scale], x.kind.numpy)))
    w.set(out, w.call("QUANTIZE", [steps], target), layout)


# units: Dequantize, operator, activation, Quantize


@dataclass(frozen=True)
class Unit:
    """An operator of dequantised values whose result is quantised.

    Attributes:
        node: the operator.
        bias: the constant that is added to a product, or None.
        activation: RELU, RELU1, RELU6 or "".
        inside: nodes that are written with it.
        result: the quantised value.
    """

    node: Node
    bias: np.ndarray | None
    activation: str
    inside: tuple[Node, ...]
    result: str


@dataclass(frozen=True)
class Quantized:
    """A quantised input: the value of 8-bit integers, and its scale."""

    name: str
    scale: Scale


def quantized_input(w: Writer, name: str) -> Quantized | None:
    """What `name` was dequantised from."""
    node = w.producers.get(name)
    scale = scale_of(node, w.graph) if node is not None and node.op_type == "DequantizeLinear" else None
    return Quantized(node.inputs[0], scale) if node is not None and scale is not None else None


def unit_of(w: Writer, node: Node) -> Unit | None:
    """The unit around an operator, as far as its readers go; None where its result is not quantised alone."""
    if node.domain or node.op_type not in UNITS or any(node.outputs[1:]):
        return None
    inside: list[Node] = []
    bias, activation = None, ""
    reader = w.sole_reader(node.outputs[0])
    if node.op_type == "MatMul" and reader is not None and reader.op_type == "Add" and not reader.domain:
        other = next((n for n in reader.inputs if n != node.outputs[0]), "")
        bias = known_array(w, other)
        if bias is None or bias.ndim > 1:
            return None
        inside.append(reader)
        reader = w.sole_reader(reader.outputs[0])
    if reader is not None and (name := w.activation_of(reader)):
        inside.append(reader)
        activation = name
        reader = w.sole_reader(reader.outputs[0])
    if reader is None or reader.domain or reader.op_type != "QuantizeLinear":
        return None
    scale = scale_of(reader, w.graph)
    if scale is None or not w.kind(reader.outputs[0]).byte:
        return None
    if not _same(scale.pair, w.type_of(reader.outputs[0])):
        return None
    return Unit(node, bias, activation, (*inside, reader), reader.outputs[0])


def known_array(w: Writer, name: str) -> np.ndarray | None:
    """A constant, or what one is dequantised to."""
    array = w.array(name)
    if array is not None:
        return array
    found = quantized_input(w, name)
    stored = w.array(found.name) if found is not None else None
    return _dequantized(stored, found.scale) if found is not None and stored is not None else None


def write_unit(w: Writer, unit: Unit) -> bool:
    """Write a unit of quantised numbers; False where NNAPI has no such form, and the operator is computed of real ones."""
    calls, operands = len(w.model.calls), len(w.model.operands)
    try:
        written = UNITS[unit.node.op_type](w, unit)
    except Untranslatable:
        written = False
    if not written:
        w.forget(calls, operands)
        return False
    w.done.update(id(n) for n in unit.inside)
    return True


def _input(w: Writer, name: str, layout: str = PLAIN) -> Tensor | None:
    """The operand of a quantised input with its own scale; None where it has another."""
    found = quantized_input(w, name)
    if found is None or w.array(found.name) is not None or not _same(found.scale.pair, w.type_of(found.name)):
        return None
    return w.value(found.name, layout)


def _inputs(w: Writer, names: Sequence[str]) -> tuple[list[Tensor], str] | None:
    """Quantised operands in one layout."""
    sources = [quantized_input(w, n) for n in names]
    if any(s is None or w.array(s.name) is not None or not _same(s.scale.pair, w.type_of(s.name)) for s in sources):
        return None
    return w.together([s.name for s in sources if s is not None])


def _weights(found: Quantized, array: np.ndarray, kind: Kind) -> tuple[np.ndarray, OperandType] | None:
    """Weights in the type that goes with inputs of `kind`: unsigned ones, signed ones, or a scale for each channel."""
    scale = found.scale
    signed = array.dtype == np.int8
    per_channel = Kind.TENSOR_QUANT8_SYMM_PER_CHANNEL
    if scale.scale.size > 1:
        if not signed or scale.zero_point.any() or scale.axis != 0:
            return None
        return array, OperandType(per_channel, array.shape, channel_scales=tuple(float(s) for s in scale.scale))
    step, zero = float(scale.scale[0]), int(scale.zero_point[0])
    if signed and kind is Kind.TENSOR_QUANT8_ASYMM:
        array, zero = (array.astype(np.int16) + 128).astype(np.uint8), zero + 128
    elif not signed and kind is Kind.TENSOR_QUANT8_ASYMM_SIGNED:
        array, zero = (array.astype(np.int16) - 128).astype(np.int8), zero - 128
    return array, OperandType(kind, array.shape, step, zero)


def _bias(w: Writer, bias: np.ndarray | None, x: Tensor, weights: OperandType, units: int) -> Tensor | None:
    """The bias in steps of the product of both scales; None where it does not fit into 32 bits."""
    scales = np.array(weights.channel_scales or [weights.scale], np.float64) * x.type.scale
    steps = np.zeros(units) if bias is None else np.rint(bias.astype(np.float64).reshape(-1) / scales)
    if steps.size not in (1, units) or np.abs(steps).max(initial=0) >= 1 << 31:
        return None
    scale = 0.0 if weights.channel_scales else float(np.float32(x.type.scale * weights.scale))
    return w.constant(np.broadcast_to(steps, (units,)).astype(np.int32), OperandType(Kind.TENSOR_INT32, (units,), scale))


def _conv_unit(w: Writer, unit: Unit) -> bool:
    node = unit.node
    source, found = quantized_input(w, node.inputs[0]), quantized_input(w, node.inputs[1])
    array = w.array(found.name) if found is not None else None
    bias = known_array(w, node.inputs[2]) if len(node.inputs) > 2 and node.inputs[2] else None
    if source is None or found is None or array is None or (bias is None) != (len(node.inputs) < 3 or not node.inputs[2]):
        return False
    window = Window.of(node, array.shape[2:])
    layout = PLAIN if w.target.nchw else NHWC
    x = _input(w, node.inputs[0], layout)
    result = w.type_of(unit.result)
    weights = _weights(found, array, x.kind) if x is not None else None
    if x is None or weights is None or result.kind is not x.kind:
        return False
    shift = _bias(w, bias, x, weights[1], array.shape[0])
    if shift is None or w.target.level < 29 and result.scale <= x.type.scale * weights[1].scale:
        return False
    dims = image_dims(w, unit.result, layout)
    groups = int(node.attributes.get("group", 1))
    filters = Filters(x, weights[0], weights[1], shift, window, groups, layout, result.of(dims))
    w.set(unit.result, convolution(w, filters, w.int32(ACTIVATIONS[unit.activation])), layout)
    return True


def _product_unit(w: Writer, unit: Unit) -> bool:
    node = unit.node
    found = quantized_input(w, node.inputs[1])
    array = w.array(found.name) if found is not None else None
    x, result = _input(w, node.inputs[0]), w.type_of(unit.result)
    if found is None or array is None or array.ndim != 2 or x is None or result.kind is not x.kind:
        return False
    if found.scale.pair is None:
        return False
    weights = _weights(found, array.T, x.kind)
    if weights is None or w.target.level < 29 and result.scale <= x.type.scale * weights[1].scale:
        return False
    bias = _bias(w, unit.bias, x, weights[1], array.shape[1])
    if bias is None:
        return False
    made = product(w, x, w.constant(np.ascontiguousarray(weights[0]), weights[1]), bias, w.int32(ACTIVATIONS[unit.activation]),
                   result)  # fmt: skip
    w.set(unit.result, made)
    return True


def _arithmetic_unit(name: str) -> Callable[[Writer, Unit], bool]:
    def write(w: Writer, unit: Unit) -> bool:
        found = _inputs(w, unit.node.inputs)
        result = w.type_of(unit.result)
        if found is None or any(t.kind is not result.kind for t in found[0]):
            return False
        (a, b), layout = found
        if name == "MUL" and result.scale <= a.type.scale * b.type.scale:
            return False
        dims = tuple(np.broadcast_shapes(a.dims, b.dims))
        w.set(unit.result, w.call(name, [a, b, w.int32(ACTIVATIONS[unit.activation])], result.of(dims)), layout)
        return True

    return write


def _concat_unit(w: Writer, unit: Unit) -> bool:
    found, result = _inputs(w, unit.node.inputs), w.type_of(unit.result)
    if found is None or unit.activation or any(t.kind is not result.kind for t in found[0]):
        return False
    tensors, layout = found
    alike = all((t.type.scale, t.type.zero_point) == (result.scale, result.zero_point) for t in tensors)
    if w.target.level < 29 and not alike:
        return False
    axis = in_layout(axis_of(w, unit.node), layout)
    w.set(unit.result, concatenated(w, tensors, axis, result), layout)
    return True


def _pool_unit(w: Writer, unit: Unit) -> bool:
    """NNAPI's average of quantised numbers keeps their scale."""
    node, result = unit.node, w.type_of(unit.result)
    layout = PLAIN if w.target.nchw else NHWC
    x = _input(w, node.inputs[0], layout)
    if x is None or unit.activation or x.rank != 4 or x.type.of(()) != result.of(()):
        return False
    if node.op_type == "GlobalAveragePool":
        shape = w.shape(node.inputs[0])
        window = Window((shape[2], shape[3]), (1, 1), (1, 1), (0, 0, 0, 0))
    else:
        window = pool_window(w, node)
        if node.attributes.get("count_include_pad", 0) and any(window.pads):
            return False
    dims = image_dims(w, unit.result, layout)
    w.set(unit.result, pooled(w, "AVERAGE_POOL_2D", x, window, layout, result.of(dims)), layout)
    return True


def _activation_unit(w: Writer, unit: Unit) -> bool:
    """RELU and its kind keep the scale; LOGISTIC, TANH and SOFTMAX have one of their own."""
    node, result = unit.node, w.type_of(unit.result)
    found = _inputs(w, node.inputs[:1])
    if found is None or unit.activation or found[0][0].kind is not result.kind:
        return False
    (x,), layout = found
    if node.op_type in _FIXED:
        operation, scale, unsigned, signed = _FIXED[node.op_type]
        zero = unsigned if result.kind is Kind.TENSOR_QUANT8_ASYMM else signed
        if (result.scale, result.zero_point) != (scale, zero):
            return False
        given = [x]
        if node.op_type == "Softmax":
            given += [w.scalar(Kind.FLOAT32, 1.0), w.int32(in_layout(axis_of(w, node, default=-1), layout))]
        w.set(unit.result, w.call(operation, given, result.of(x.dims)), layout)
        return True
    name = w.activation_of(node)
    if not name or x.type.of(()) != result.of(()):
        return False
    w.set(unit.result, w.call(name, [x], result.of(x.dims)), layout)
    return True


UNITS: dict[str, Callable[[Writer, Unit], bool]] = {
    "Conv": _conv_unit,
    "MatMul": _product_unit,
    "Add": _arithmetic_unit("ADD"),
    "Sub": _arithmetic_unit("SUB"),
    "Mul": _arithmetic_unit("MUL"),
    "Concat": _concat_unit,
    "AveragePool": _pool_unit,
    "GlobalAveragePool": _pool_unit,
    **dict.fromkeys(("Relu", "Clip", "Sigmoid", "Softmax", "Tanh"), _activation_unit),
}
LOWERINGS: dict[str, Lowering] = {"DequantizeLinear": defer, "QuantizeLinear": _quantize}
