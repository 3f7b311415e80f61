"""Operations whose kernels in OpenVINO compute something else than ONNX says, replaced in a model that it has read.

- The larger or smaller of two numbers is taken by instructions that give the second where one is NaN, and functions are
  computed of clamped arguments: NaN becomes a bound of Clip, Exp of NaN infinite, Gelu of infinity NaN. A Select mends that.
- Greater and GreaterEqual are true of NaN; Less and LessEqual with the operands exchanged are not.
- Integers are compared as float32. Their difference and their maximum are exact.
- LRN centres even windows; slopes of PRelu go along the channels; OneHot of opset 9 knows no negative indices.

`exact_nan` of `OpenVINOOptions` turns off those that cost time. All was seen with openvino 2026.4.1.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

_GELU_IS_IDENTITY = 20.0
"""From here on Gelu(x) = x in float32: erf(x / sqrt(2)) rounds to 1 from 5.9 on, and tanh's approximation to 1 from 5.1 on."""


def repair(model: Any, *, exact_nan: bool) -> None:
    """Replace such operations of an `openvino.Model` in place."""
    tables = (_REPAIRS, _OF_NAN) if exact_nan else (_REPAIRS,)
    for op in model.get_ordered_ops():
        for table in tables:
            write = table.get(op.get_type_name())
            if write is None:
                continue
            readers = list(op.output(0).get_target_inputs())
            made = write(op)
            if made is not None:
                made.set_friendly_name(f"{op.get_friendly_name()}/exact")
                for reader in readers:
                    reader.replace_source_output(made.output(0))


def _of_integers(write: Callable[[Any, Any, Any, Any], Any]) -> Callable[[Any], Any]:
    """A comparison of integers: from (OpenVINO's operators, a, b, 0)."""

    def written(op: Any) -> Any:
        from openvino import opset13

        a, b = op.input_value(0), op.input_value(1)
        kind = a.get_element_type()
        if not kind.is_integral_number() or kind.bitwidth < 32:
            return None
        return write(opset13, a, b, opset13.constant(0, kind))

    return written


def _equal(o: Any, a: Any, b: Any, zero: Any) -> Any:
    return o.equal(o.subtract(a, b), zero)


def _not_equal(o: Any, a: Any, b: Any, zero: Any) -> Any:
    return o.not_equal(o.subtract(a, b), zero)


def _less(o: Any, a: Any, b: Any, zero: Any) -> Any:
    """a < b where max(a, b) is not a."""
    return o.not_equal(o.subtract(o.maximum(a, b), a), zero)


def _less_equal(o: Any, a: Any, b: Any, zero: Any) -> Any:
    """a <= b where max(a, b) is b."""
    return o.equal(o.subtract(o.maximum(a, b), b), zero)


def _exchanged(of_integers: Callable[[Any, Any, Any, Any], Any], name: str) -> Callable[[Any], Any]:
    """a > b as b < a."""

    def written(op: Any) -> Any:
        from openvino import opset13

        made = _of_integers(lambda o, a, b, zero: of_integers(o, b, a, zero))(op)
        return made if made is not None else getattr(opset13, name)(op.input_value(1), op.input_value(0))

    return written


def _lrn(op: Any) -> Any:
    """x / (bias + alpha / size * sum of x^2 over the window)^beta, the window from floor((size - 1) / 2) below to
    ceil((size - 1) / 2) above. None where the rank is unknown, or above what AveragePool takes."""
    from openvino import opset13 as o

    x = op.input_value(0)
    rank = x.get_partial_shape().rank
    if rank.is_dynamic or not 3 <= rank.get_length() <= 4:
        return None
    given, kind, spatial = op.get_attributes(), x.get_element_type(), rank.get_length() - 2
    size = given["size"]
    low = (size - 1) // 2
    rows = o.unsqueeze(o.multiply(x, x), o.constant([1], np.int64))
    ones, zeros = [1] * (spatial + 1), [0] * spatial
    pads = ([low, *zeros], [size - 1 - low, *zeros])
    mean = o.squeeze(o.avg_pool(rows, ones, *pads, [size, *ones[1:]], False), o.constant([1], np.int64))
    scaled = o.add(o.multiply(mean, o.constant(given["alpha"], kind)), o.constant(given["bias"], kind))
    return o.divide(x, o.power(scaled, o.constant(given["beta"], kind)))


def _prelu(op: Any) -> Any:
    """The slope with as many axes as x: it is broadcast from the last axis, as ONNX says."""
    from openvino import opset13

    x, slope = op.input_value(0), op.input_value(1)
    ranks = [v.get_partial_shape().rank for v in (x, slope)]
    if any(r.is_dynamic for r in ranks):
        return None
    missing = ranks[0].get_length() - ranks[1].get_length()
    if missing > 0 and ranks[1].get_length():
        op.input(1).replace_source_output(opset13.unsqueeze(slope, opset13.constant(list(range(missing)), np.int64)).output(0))
    return None


def _one_hot(op: Any) -> Any:
    """Negative indices count from the depth."""
    from openvino import opset13 as o

    if op.get_attributes().get("negative_indices_mode") == "normalize":
        return None
    indices, depth = op.input_value(0), op.input_value(1)
    kind = indices.get_element_type()
    negative = o.less(indices, o.constant(0, kind))
    wrapped = o.select(negative, o.add(indices, o.convert(depth, kind.to_string())), indices)
    op.input(0).replace_source_output(wrapped.output(0))
    return None


def _of_operand(op: Any) -> Any:
    """NaN of the operand is NaN of the result."""
    return _unless_nan(op.input_value(0), op.output(0)) if op.output(0).get_element_type().is_real() else None


def _of_operands(op: Any) -> Any:
    if not op.output(0).get_element_type().is_real():
        return None
    return _unless_nan(op.input_value(0), _unless_nan(op.input_value(1), op.output(0)).output(0))


def _unless_nan(operand: Any, result: Any) -> Any:
    from openvino import opset13

    return opset13.select(opset13.is_nan(operand), operand, result)


def _gelu(op: Any) -> Any:
    """x where it is large."""
    from openvino import opset13

    x = op.input_value(0)
    return opset13.select(opset13.less(opset13.constant(_GELU_IS_IDENTITY, x.get_element_type()), x), x, op.output(0))


def _max_pool(op: Any) -> Any:
    """NaN where a window has one: where the largest of "is it NaN", as a number, is 1."""
    from openvino import opset13
    from openvino.utils.node_factory import NodeFactory

    x = op.input_value(0)
    kind = x.get_element_type()
    if not kind.is_real():
        return None
    zero, one, nan = (opset13.constant(v, kind) for v in (0.0, 1.0, float("nan")))
    marks = opset13.select(opset13.is_nan(x), one, zero)
    marked = NodeFactory(op.get_type_info().version_id).create("MaxPool", [marks.output(0)], op.get_attributes())
    return opset13.select(opset13.less(zero, marked.output(0)), nan, op.output(0))


_REPAIRS: Mapping[str, Callable[[Any], Any]] = {
    "Equal": _of_integers(_equal),
    "Greater": _exchanged(_less, "less"),
    "GreaterEqual": _exchanged(_less_equal, "less_equal"),
    "LRN": _lrn,
    "Less": _of_integers(_less),
    "LessEqual": _of_integers(_less_equal),
    "NotEqual": _of_integers(_not_equal),
    "OneHot": _one_hot,
    "PRelu": _prelu,
}
"""Operation of OpenVINO -> what stands in its place; None where it can stay (its operands may have been replaced)."""

_OF_NAN: Mapping[str, Callable[[Any], Any]] = {
    "Clamp": _of_operand,
    "Exp": _of_operand,
    "Gelu": _gelu,
    "HardSigmoid": _of_operand,
    "MaxPool": _max_pool,
    "Maximum": _of_operands,
    "Minimum": _of_operands,
}
"""As `_REPAIRS`, for NaN and infinities."""
