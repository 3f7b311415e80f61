"""What definitions say of operands that do not fit, and of values that only a run gives."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from intarsia.graph.dims import symbol
from intarsia.graph.dtypes import DType
from intarsia.graph.model import Node
from intarsia.ops import registry
from intarsia.ops.framework.infer import trace
from intarsia.primitives import lang as k

F, INT, S = DType.FLOAT, DType.INT64, DType.STRING
N = symbol("n")


def t(*shape: Any, dtype: DType = F) -> tuple[DType, tuple[Any, ...]]:
    return dtype, shape


def attempt(op: str, version: int, operands: list[Any], **attributes: Any) -> None:
    """`operands`: types of tensors, or lists: elements of inputs that the definition receives as integers."""
    record = registry().find("", op, version)
    assert record is not None
    values = {i: np.array(v, object) for i, v in enumerate(operands) if isinstance(v, list)}
    tensors = [k.input(i, INT, (len(v),)) if isinstance(v, list) else k.input(i, *v) for i, v in enumerate(operands)]
    trace(record, Node(op, [f"x{i}" for i in range(len(operands))], ["y"], attributes), tensors, values)


ERRORS: list[tuple[str, int, list[Any], dict[str, Any], str]] = [
    ("SwiGLU", 28, [t(2, 3), t(2, 1)], {}, r"A and B must have the same shape, got \[2, 3\] and \[2, 1\]"),
    ("Gelu", 20, [t(2)], {"approximate": "erf"}, "approximate must be 'none' or 'tanh', got 'erf'"),
    ("BitCast", 26, [t(2, dtype=S)], {"to": 1}, "BitCast does not take strings"),
    ("BitCast", 26, [t(2)], {"to": 7}, "cannot reinterpret float as int64: sizes differ"),
    ("Cast", 24, [t(2)], {"to": 24, "round_mode": "odd"}, "round_mode must be one of 'up', 'down', 'nearest', got 'odd'"),
    ("Cast", 13, [t(2)], {"to": 99}, "99 is not an ONNX element type"),
    ("Cast", 1, [t(2)], {"to": "HALF"}, "'HALF' is not an ONNX element type"),
    ("Einsum", 12, [t(2, 2)], {"equation": "ij->ik"}, "output label 'k' of the equation 'ij->ik' is in no input"),
    ("Einsum", 12, [t(2, 2)], {"equation": "ij,jk"}, "the equation 'ij,jk' has 2 terms for 1 inputs"),
    ("Einsum", 12, [t(2, 2)], {"equation": "ijk->i"},
     "the term 'ijk' of the equation 'ijk->i' does not fit an input of rank 2"),
    ("Einsum", 12, [t(2, 3), t(4, 5)], {"equation": "ij,jk"},
     "label 'j' of the equation 'ij,jk': dimensions 3 and 4 do not broadcast"),
    ("Einsum", 12, [t(1, 3)], {"equation": "ii->i"},
     "label 'i' of the equation 'ii->i', twice in one input: got 3, expected 1"),
    ("Max", 13, [], {}, "Max needs at least one input, got none"),
    ("Add", 14, [t(2, 3), t(4)], {}, r"add: shapes \[2, 3\], \[4\] do not broadcast"),
    ("Add", 6, [t(2, 3), t(2, 3, 4)], {"broadcast": 1, "axis": 1},
     r"operand of shape \[2, 3, 4\] at axis 1 does not fit rank 2"),
    ("BitShift", 11, [t(2, dtype=INT), t(2, dtype=INT)], {"direction": "UP"}, "direction must be 'LEFT' or 'RIGHT', got 'UP'"),
    ("Clip", 13, [t(2), t(3)], {}, r"Clip's min must have one element, got shape \[3\]"),
    ("GatherElements", 13, [t(2, 3), t(2, dtype=INT)], {}, "data and indices must have the same rank, got 2 and 1"),
    ("ScatterND", 18, [t(2), t(1, 1, dtype=INT), t(1)], {"reduction": "sum"},
     "reduction must be one of 'none', 'add', .*, got 'sum'"),
    ("GatherND", 13, [t(2, 3), t(1, 3, dtype=INT)], {}, r"index tuples of shape \[1, 3\] do not fit data of shape \[2, 3\]"),
    ("TensorScatter", 24, [t(2, 3), t(2, 1)], {"mode": "ring"}, "mode must be 'linear' or 'circular', got 'ring'"),
    ("TensorScatter", 24, [t(2, 3), t(2, 1)], {"axis": 0}, "axis must not be 0, the batch axis"),
    ("MatMul", 13, [t(), t(2)], {}, "MatMul does not take scalars"),
    ("MatMul", 13, [t(2, 3), t(4, 5)], {}, r"inner dimensions differ: \[2, 3\] x \[4, 5\]"),
    ("Gemm", 13, [t(2, 3), t(3)], {}, "Gemm's B must be a matrix"),
    ("GroupNormalization", 21, [t(4), t(4), t(4)], {"num_groups": 2},
     r"GroupNormalization needs axes N and C, got shape \[4\]"),
    ("GroupNormalization", 21, [t(1, 4), t(4), t(4)], {"num_groups": 3},
     "4 channels do not fall into num_groups = 3 equal groups"),
    ("LpNormalization", 22, [t(4)], {"p": 3}, "p must be 1 or 2, got 3"),
    ("CumSum", 14, [t(4), [0, 0]], {}, "axis must have one element, got 2"),
    ("MaxPool", 12, [t(1, 1, 4)], {"kernel_shape": [2], "pads": [-1, 0]}, r"pads must not be negative, got \[-1, 0\]"),
    ("MaxPool", 12, [t(1, 1, 4)], {"kernel_shape": [2], "dilations": [-1]}, "dilations must be at least 1 on each"),
    ("DequantizeLinear", 21, [t(2, dtype=DType.UINT8), t(2)], {"block_size": -1}, "block_size must not be negative, got -1"),
    ("ArgMax", 13, [t(2, 0)], {"axis": 1}, r"the maximum along axis 1 of \[2, 0\] has no index: the axis is empty"),
    ("TopK", 11, [t(4), [1, 2]], {}, "K must have one element, got 2"),
    ("TopK", 11, [t(4), [5]], {}, "k must be between 0 and the 4 elements of axis 0, got 5"),
    ("ReduceSum", 13, [t(4, 2), [0, -2]], {}, r"axes \[0, 0\] name an axis twice"),
    ("Softmax", 13, [t(4, 2)], {"axis": 2}, "axis 2 is out of range for rank 2"),
    ("Reshape", 14, [t(4, 2), [-1, -1]], {}, r"the target \[-1, -1\] has more than one -1"),
    ("Reshape", 14, [t(4, 2), [3, -1]], {}, r"cannot reshape \[4, 2\] \(8 elements\) to \[3, 2\] \(6\)"),
    ("Flatten", 13, [t(4, 2)], {"axis": 3}, "axis 3 is out of range for rank 2"),
    ("Squeeze", 13, [t(4, 1), [0]], {}, r"cannot squeeze axis 0 of shape \[4, 1\]: its size is not 1"),
    ("Expand", 13, [t(4), [3]], {}, r"shapes \[4\], \[3\] do not broadcast"),
    ("Tile", 13, [t(4, 1), [2]], {}, r"repeats must have one element per axis of \[4, 1\], got 1"),
    ("Concat", 13, [], {"axis": 0}, "Concat needs at least one input, got none"),
    ("Split", 13, [t(5), [2, 2]], {}, r"split sizes \[2, 2\] do not add up to the 5 of axis 0"),
    ("Split", 13, [t(4), [5, -1]], {}, r"split sizes must not be negative, got \[5, -1\]"),
    ("Split", 2, [t(5)], {"split": [2, 2]}, r"split sizes \[2, 2\] do not add up to the 5 of axis 0"),
    ("DepthToSpace", 13, [t(4, 4)], {"blocksize": 2}, r"the input must have 4 axes \(N, C, H, W\), got shape \[4, 4\]"),
    ("SpaceToDepth", 13, [t(1, 1, 4, 4)], {"blocksize": 0}, "blocksize must be at least 1, got 0"),
    ("DepthToSpace", 13, [t(1, 4, 4, 4)], {"blocksize": 2, "mode": "RCD"}, "mode must be 'DCR' or 'CRD', got 'RCD'"),
    ("ConstantOfShape", 9, [[2]], {"value": np.zeros(2)}, r"value must have one element, got shape \[2\]"),
    ("Constant", 13, [], {"value_int": 1, "value_float": 1.0}, "exactly one value attribute, got value_float, value_int"),
    ("Constant", 13, [], {}, "exactly one value attribute, got none"),
    ("EyeLike", 9, [t(4)], {}, r"EyeLike needs a matrix, got shape \[4\]"),
    ("Trilu", 14, [t(4)], {}, r"Trilu needs at least 2 axes, got shape \[4\]"),
    ("Range", 11, [[0], [4], [0]], {}, "the step of Range must not be 0"),
    ("Slice", 13, [t(4), [0, 0], [1]], {}, "starts, ends, axes and steps must have one length, got 2, 1, 2 and 2"),
    ("Slice", 13, [t(4), [0], [1], [0], [0]], {}, "steps must not be 0"),
    ("Pad", 21, [t(4), [1, 1]], {"mode": "mirror"}, "mode must be one of 'constant', 'reflect', 'edge', 'wrap', got 'mirror'"),
    ("Pad", 13, [t(4), [1]], {}, "pads must have 2 elements for 1 axes, got 1"),
    ("CenterCropPad", 18, [t(4, 4), [1]], {}, r"shape must have one element per axis of \[0, 1\], got 1"),
    ("ReverseSequence", 10, [t(4), t(4, dtype=INT)], {}, r"ReverseSequence needs at least 2 axes, got shape \[4\]"),
    ("ReverseSequence", 10, [t(4, 4), t(4, dtype=INT)], {"batch_axis": 0}, "batch_axis and time_axis must differ, both are 0"),
    ("MaxPool", 12, [t(1, 1, 4)], {"kernel_shape": [9]}, "the kernel spans 9 elements of spatial axis 0, which has 4 with its"),
    ("MaxPool", 12, [t(1, 1, 4)], {"kernel_shape": [0]}, r"kernel_shape must be at least 1 on each axis, got \[0\]"),
    ("ConvTranspose", 11, [t(1, 1, 4), t(1, 1, 3)], {"pads": [-1, 0]}, r"pads must not be negative, got \[-1, 0\]"),
    ("ConvTranspose", 11, [t(1, 1, 4), t(1, 1, 3)], {"auto_pad": "SAME"}, "auto_pad is 'SAME'; expected one of NOTSET"),
    ("ConvTranspose", 11, [t(1, 1, 4), t(1, 1, 3)], {"output_padding": [-1]}, r"output_padding is \[-1\]; expected 1 values"),
    ("ConvTranspose", 11, [t(1, 1, 4), t(1, 1, 3)], {"output_shape": [-5]}, r"output_shape is \[-5\]; expected 1 values"),
    ("MaxUnpool", 11, [t(1, 1, 2), t(1, 1, 2, dtype=INT)], {"kernel_shape": [0]}, r"kernel_shape is \[0\]; expected 1 sizes"),
    ("GroupNormalization", 21, [t(1, N, 4), t(2), t(2)], {"num_groups": -2}, "do not fall into num_groups = -2 equal groups"),
    ("LRN", 13, [t(1, 2, 4)], {"size": -3}, "size is -3; expected at least 1 channel"),
    ("Resize", 19, [t(1, 1, N), [], [1, 1, 1e-9]], {"mode": "linear", "antialias": 1}, "scale 1e-09 takes 2e.09 neighbours"),
    ("Transpose", 13, [t(4, 4)], {"perm": [0, 0]}, r"perm \[0, 0\] is not a permutation of the 2 axes of \[4, 4\]"),
]  # fmt: skip

SYMBOLIC: list[tuple[str, int, list[Any], dict[str, Any], str]] = [
    ("ReduceSum", 13, [t(4), [N, 0]], {}, "axes must be known integers, but one is n"),
    ("Slice", 13, [t(4), [0], [1], [0], [N]], {}, "steps must be known integers, but one is n"),
    ("GatherND", 13, [t(4, 4), t(2, N, dtype=INT)], {}, "the length of an index tuple must be known, but is n"),
    ("Squeeze", 13, [t(4, N)], {}, "Squeeze without axes needs to know which sizes are 1, but one is n"),
    ("Range", 11, [[0], [4], [N]], {}, "the step of Range must be known, but is n"),
    ("Dropout", 13, [t(4), t(), [True]], {}, "Dropout in training mode draws random numbers on the host"),
    ("Constant", 13, [], {"value_string": "a"}, "string constants live on the host"),
]  # fmt: skip


def ids(cases: list[tuple[Any, ...]]) -> list[str]:
    return [f"{case[0]}-{i}" for i, case in enumerate(cases)]


@pytest.mark.parametrize(("op", "version", "operands", "attributes", "message"), ERRORS, ids=ids(ERRORS))
def test_definition_error(op: str, version: int, operands: list[Any], attributes: dict[str, Any], message: str) -> None:
    with pytest.raises(k.DefinitionError, match=message) as caught:
        attempt(op, version, operands, **attributes)
    assert not isinstance(caught.value, k.SymbolicValueError)


@pytest.mark.parametrize(("op", "version", "operands", "attributes", "message"), SYMBOLIC, ids=ids(SYMBOLIC))
def test_values_that_only_a_run_gives(
    op: str, version: int, operands: list[Any], attributes: dict[str, Any], message: str
) -> None:
    with pytest.raises(k.SymbolicValueError, match=message):
        attempt(op, version, operands, **attributes)


def test_an_equal_split_that_leaves_a_rest() -> None:
    record = registry().find("", "Split", 13)
    assert record is not None
    with pytest.raises(k.DefinitionError, match="an axis of 5 elements cannot be split into 2 equal parts"):
        trace(record, Node("Split", ["x"], ["a", "b"]), [k.input(0, F, (5,))], {})
