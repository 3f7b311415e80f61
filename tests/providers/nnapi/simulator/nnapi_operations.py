"""NNAPI's operations: codes, numbers of inputs, element types by feature level, ranks, scales, as its header says.

`check` is what a model is held against when an operation is added to it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import nnapi_operands as kinds
from nnapi_operands import Operand

_LETTERS = {
    "F": kinds.TENSOR_FLOAT32, "H": kinds.TENSOR_FLOAT16, "A": kinds.TENSOR_QUANT8_ASYMM,
    "S": kinds.TENSOR_QUANT8_ASYMM_SIGNED, "I": kinds.TENSOR_INT32, "B": kinds.TENSOR_BOOL8, "Y": kinds.TENSOR_QUANT8_SYMM,
    "W": kinds.TENSOR_QUANT16_SYMM, "U": kinds.TENSOR_QUANT16_ASYMM, "P": kinds.TENSOR_QUANT8_SYMM_PER_CHANNEL,
}  # fmt: skip
_LEVEL = {1: 27, 2: 28, 3: 29, 4: 30, 5: 31, 6: 1000006, 7: 1000007, 8: 1000008}

# name, code, numbers of inputs, element types with the level from which they are taken, ranks. "3*": any from 3 on.
_TABLE = """
ADD                          0   3             F1 H3 A1 I4 S4        1-4
AVERAGE_POOL_2D              1   7,8,10,11     F1 H3 A1 S4           4
CONCATENATION                2   2*            F1 H3 A1 S4           1-4
CONV_2D                      3   7,8,10,11,13  F1 H3 A1 S4           4
DEPTHWISE_CONV_2D            4   8,9,11,12,14  F1 H3 A1 S4           4
DEPTH_TO_SPACE               5   2,3           F1 H3 A1 S4           4
DEQUANTIZE                   6   1             A1 Y3 P3 S4           1-4
EMBEDDING_LOOKUP             7   2             F1 I1 A1 S4 H4        2-4
FLOOR                        8   1             F1 H3                 1-4
FULLY_CONNECTED              9   4             F1 H3 A1 S4           2-4
HASHTABLE_LOOKUP             10  3             F1 I1 A1              1-4
L2_NORMALIZATION             11  1,2           F1 H3 A3 S4           1-4
L2_POOL_2D                   12  7,8,10,11     F1 H3                 4
LOCAL_RESPONSE_NORMALIZATION 13  5,6           F1 H3                 1-4
LOGISTIC                     14  1             F1 H3 A1 S4           1-4
LSH_PROJECTION               15  4             F1 H3                 2
LSTM                         16  23,27         F1 H3                 2
MAX_POOL_2D                  17  7,8,10,11     F1 H3 A1 S4           4
MUL                          18  3             F1 H3 A1 I4 S4        1-4
RELU                         19  1             F1 H3 A1 S4           1-4
RELU1                        20  1             F1 H3 A1 S4           1-4
RELU6                        21  1             F1 H3 A1 S4           1-4
RESHAPE                      22  2             F1 H3 A1 S4 I6        1-4
RESIZE_BILINEAR              23  3,4,5,6       F1 H3 A3 S4           4
RNN                          24  6             F1 H3                 2
SOFTMAX                      25  2,3           F1 H3 A1 S4           1-4
SPACE_TO_DEPTH               26  2,3           F1 H3 A1 S4           4
SVDF                         27  7             F1 H3                 2
TANH                         28  1             F1 H3 A3 S4           1-4
BATCH_TO_SPACE_ND            29  2,3           F2 H3 A2 S4           4
DIV                          30  3             F2 H3 I4              1-4
MEAN                         31  3             F2 H3 A2 S4           1-4
PAD                          32  2             F2 H3 A2 S4           1-4
SPACE_TO_BATCH_ND            33  3,4           F2 H3 A2 S4           4
SQUEEZE                      34  2             F2 H3 A2 S4           1-4
STRIDED_SLICE                35  7             F2 H3 A2 S4           1-4
SUB                          36  3             F2 H3 A3 I4 S4        1-4
TRANSPOSE                    37  2             F2 H3 A2 S4           1-4
ABS                          38  1             F3 H3 I4              1-
ARGMAX                       39  2             F3 H3 I3 A3 S4        1-
ARGMIN                       40  2             F3 H3 I3 A3 S4        1-
AXIS_ALIGNED_BBOX_TRANSFORM  41  4             F3 H3 U3              2
BIDIRECTIONAL_SEQUENCE_LSTM  42  61            F3 H3                 3
BIDIRECTIONAL_SEQUENCE_RNN   43  15            F3 H3                 3
BOX_WITH_NMS_LIMIT           44  9             F3 H3 A3 S4           2
CAST                         45  1             F3 H3 I3 A3 B4 U4 W4 S4 Y4 1-
CHANNEL_SHUFFLE              46  3             F3 H3 A3 S4           1-4
DETECTION_POSTPROCESSING     47  14            F3 H3                 3
EQUAL                        48  2             F3 H3 I3 B3 A3 S4     1-
EXP                          49  1             F3 H3                 1-
EXPAND_DIMS                  50  2             F3 H3 I3 A3 S4        1-
GATHER                       51  3             F3 H3 I3 A3 S4        1-
GENERATE_PROPOSALS           52  11            F3 H3 A3 S4           4
GREATER                      53  2             F3 H3 I3 B3 A3 S4     1-
GREATER_EQUAL                54  2             F3 H3 I3 B3 A3 S4     1-
GROUPED_CONV_2D              55  9,12          F3 H3 A3 S4           4
HEATMAP_MAX_KEYPOINT         56  3             F3 H3 A3 S4           4
INSTANCE_NORMALIZATION       57  5             F3 H3                 4
LESS                         58  2             F3 H3 I3 B3 A3 S4     1-
LESS_EQUAL                   59  2             F3 H3 I3 B3 A3 S4     1-
LOG                          60  1             F3 H3                 1-
LOGICAL_AND                  61  2             B3                    1-
LOGICAL_NOT                  62  1             B3                    1-
LOGICAL_OR                   63  2             B3                    1-
LOG_SOFTMAX                  64  3             F3 H3                 1-
MAXIMUM                      65  2             F3 H3 I3 A3 S4        1-
MINIMUM                      66  2             F3 H3 I3 A3 S4        1-
NEG                          67  1             F3 H3 I3              1-
NOT_EQUAL                    68  2             F3 H3 I3 B3 A3 S4     1-
PAD_V2                       69  3             F3 H3 A3 S4           1-4
POW                          70  2             F3 H3                 1-
PRELU                        71  2             F3 H3 A3 S4           1-
QUANTIZE                     72  1             F3 H3                 1-4
QUANTIZED_16BIT_LSTM         73  15            A3                    2
REDUCE_ALL                   75  3             B3                    1-4
REDUCE_ANY                   76  3             B3                    1-4
REDUCE_MAX                   77  3             F3 H3 A3 S4           1-4
REDUCE_MIN                   78  3             F3 H3 A3 S4           1-4
REDUCE_PROD                  79  3             F3 H3                 1-4
REDUCE_SUM                   80  3             F3 H3                 1-4
ROI_ALIGN                    81  10            F3 H3 A3 S4           4
ROI_POOLING                  82  8             F3 H3 A3 S4           4
RSQRT                        83  1             F3 H3 A7 S7           1-
SELECT                       84  3             F3 H3 I3 A3 S4        1-
SIN                          85  1             F3 H3                 1-
SLICE                        86  3             F3 H3 I3 A3 S4        1-
SPLIT                        87  3             F3 H3 I3 A3 S4        1-
SQRT                         88  1             F3 H3                 1-
TILE                         89  2             F3 H3 I3 A3 S4        1-
TOPK_V2                      90  2             F3 H3 I3 A3 S4        1-
TRANSPOSE_CONV_2D            91  9,11          F3 H3 A3 S4           4
UNIDIRECTIONAL_SEQUENCE_LSTM 92  24,28         F3 H3                 3
UNIDIRECTIONAL_SEQUENCE_RNN  93  7             F3 H3                 3
RESIZE_NEAREST_NEIGHBOR      94  3,4,5,6       F3 H3 A3 S4           4
QUANTIZED_LSTM               95  32            S4                    2
ELU                          98  2             F4 H4                 1-
HARD_SWISH                   99  1             F4 H4 A4 S4           1-
FILL                         100 2             I4                    1
RANK                         101 1             F4 H4 I4 A4 W4 B4 P4 U4 Y4 S4 1-
BATCH_MATMUL                 102 4             F6 H6 S6 I6           2-4
PACK                         103 2*            F6 H6 A6 S6 I6        1-
MIRROR_PAD                   104 3             F7 H7 A7 S7 I7        1-
REVERSE                      105 2             F7 H7 A7 S7 I7        1-8
"""
_TYPE_INPUT = {"EMBEDDING_LOOKUP": 1, "HASHTABLE_LOOKUP": 2, "SELECT": 1, "PACK": 1, "LSH_PROJECTION": 0}
"""The input (by index) whose element type counts, where it is not the first."""


@dataclass(frozen=True)
class Operation:
    """One operation: how many inputs it may have, and the feature level from which it takes an element type."""

    name: str
    code: int
    counts: tuple[int, ...]
    any_more: bool
    since: dict[int, int]
    ranks: tuple[int, int]

    def takes(self, count: int) -> bool:
        return count >= self.counts[0] if self.any_more else count in self.counts


def _parsed(line: str) -> Operation:
    name, code, counts, *types, ranks = line.split()
    low, dash, high = ranks.partition("-")
    numbers = tuple(int(n) for n in counts.rstrip("*").split(","))
    span = (int(low), int(high or 99) if dash else int(low))
    return Operation(name, int(code), numbers, counts.endswith("*"), {_LETTERS[t[0]]: _LEVEL[int(t[1])] for t in types}, span)


OPERATIONS = {op.code: op for op in map(_parsed, _TABLE.strip().splitlines())}
CODES = {op.name: op.code for op in OPERATIONS.values()}

_SAME_SCALE = frozenset(
    "AVERAGE_POOL_2D MAX_POOL_2D RELU RELU1 RELU6 RESHAPE RESIZE_BILINEAR RESIZE_NEAREST_NEIGHBOR SPACE_TO_DEPTH "
    "DEPTH_TO_SPACE BATCH_TO_SPACE_ND SPACE_TO_BATCH_ND SQUEEZE STRIDED_SLICE TRANSPOSE PAD PAD_V2 CHANNEL_SHUFFLE "
    "EXPAND_DIMS GATHER REDUCE_MAX REDUCE_MIN SLICE SPLIT TILE TOPK_V2 MIRROR_PAD REVERSE ROI_POOLING PACK "
    "EMBEDDING_LOOKUP".split()
)
"""Operations whose quantised result has the scale and zero point of what they read."""
_FIXED_SCALE = {
    "LOGISTIC": (1 / 256, 0, -128), "SOFTMAX": (1 / 256, 0, -128), "TANH": (1 / 128, 128, 0),
    "L2_NORMALIZATION": (1 / 128, 128, 0),
}  # fmt: skip
"""Operation -> scale of a quantised result, its zero point where it is unsigned, and where it is signed."""
_BIASED = frozenset(("CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED", "GROUPED_CONV_2D", "TRANSPOSE_CONV_2D"))
_ONE_TYPE = frozenset("ADD SUB MUL DIV MAXIMUM MINIMUM EQUAL NOT_EQUAL GREATER GREATER_EQUAL LESS LESS_EQUAL POW PRELU".split())
_LONGER = {
    **{(name, count): 29 for name in ("AVERAGE_POOL_2D", "MAX_POOL_2D", "L2_POOL_2D") for count in (8, 11)},
    **{("CONV_2D", count): 29 for count in (8, 11, 13)},
    **{("DEPTHWISE_CONV_2D", count): 29 for count in (9, 12, 14)},
    **{(name, 3): 29 for name in ("DEPTH_TO_SPACE", "SPACE_TO_DEPTH", "BATCH_TO_SPACE_ND", "SOFTMAX")},
    ("SPACE_TO_BATCH_ND", 4): 29,
    ("L2_NORMALIZATION", 2): 29,
    ("LOCAL_RESPONSE_NORMALIZATION", 6): 29,
    ("LSTM", 27): 29,
    ("RESIZE_BILINEAR", 4): 29,
    **{(name, count): 30 for name in ("RESIZE_BILINEAR", "RESIZE_NEAREST_NEIGHBOR") for count in (5, 6)},
}
"""(operation, number of inputs) -> the feature level from which it has that many: layouts, dilations, axes came later."""
_BYTES = frozenset((kinds.TENSOR_QUANT8_ASYMM, kinds.TENSOR_QUANT8_ASYMM_SIGNED))


def since(op: Operation, inputs: Sequence[Operand]) -> int | None:
    """The feature level from which the operation takes these inputs; None: at none."""
    key = inputs[min(_TYPE_INPUT.get(op.name, 0), len(inputs) - 1)]
    found = op.since.get(key.type)
    if found is None:
        return None
    return max(found, _LONGER.get((op.name, len(inputs)), 27))


def check(op: Operation, inputs: Sequence[Operand], outputs: Sequence[Operand], level: int) -> str:
    """What is wrong with an operation of a model for a device of this feature level; "" where nothing is."""
    if not op.takes(len(inputs)):
        return f"{len(inputs)} inputs; it takes {', '.join(map(str, op.counts))}"
    at = since(op, inputs)
    key = inputs[min(_TYPE_INPUT.get(op.name, 0), len(inputs) - 1)]
    if at is None:
        return f"takes no {kinds.NAMES[key.type]}"
    if at > level:
        return f"takes {kinds.NAMES[key.type]} from feature level {at} on; this is {level}"
    for operand in (*inputs, *outputs):
        if kinds.SINCE[operand.type] > level:
            return f"{kinds.NAMES[operand.type]} exists from feature level {kinds.SINCE[operand.type]} on; this is {level}"
    if key.dims and not op.ranks[0] <= len(key.dims) <= op.ranks[1]:
        return f"rank {len(key.dims)}; it takes {op.ranks[0]} to {op.ranks[1]}"
    if op.name in _ONE_TYPE and not inputs[1].scalar and inputs[0].type != inputs[1].type:
        return f"{kinds.NAMES[inputs[0].type]} with {kinds.NAMES[inputs[1].type]}"
    if key.type not in _BYTES or not outputs:
        return ""
    return _check_scales(op, inputs, outputs[0], level)


def _check_scales(op: Operation, inputs: Sequence[Operand], output: Operand, level: int) -> str:
    key = inputs[_TYPE_INPUT.get(op.name, 0)]
    if output.type not in kinds.QUANTIZED:
        return ""
    if op.name in _SAME_SCALE and (key.scale, key.zero_point) != (output.scale, output.zero_point):
        return f"scale {output.scale} and zero point {output.zero_point} of its result, {key.scale} and {key.zero_point} given"
    if op.name == "CONCATENATION" and level < 29:
        for operand in inputs[:-1]:
            if (operand.scale, operand.zero_point) != (output.scale, output.zero_point):
                return "inputs and result differ in scale or zero point before feature level 29"
    if op.name in _FIXED_SCALE:
        scale, unsigned, signed = _FIXED_SCALE[op.name]
        zero = unsigned if output.type == kinds.TENSOR_QUANT8_ASYMM else signed
        if (output.scale, output.zero_point) != (scale, zero):
            return f"its result has scale {scale} and zero point {zero}, given {output.scale} and {output.zero_point}"
    if op.name == "MUL" and not output.scale > inputs[0].scale * inputs[1].scale:
        return "the scale of its result has to be above the product of its inputs' scales"
    if op.name in _BIASED:
        return _check_bias(inputs, output, level)
    return ""


def _check_bias(inputs: Sequence[Operand], output: Operand, level: int) -> str:
    x, weights, bias = inputs[:3]
    if bias.type != kinds.TENSOR_INT32 or bias.zero_point:
        return "its bias has to be TENSOR_INT32 with zero point 0"
    if weights.type == kinds.TENSOR_QUANT8_SYMM_PER_CHANNEL:
        return "the scale of its bias has to be 0, with a scale for each channel" if bias.scale else ""
    product = x.scale * weights.scale
    if abs(bias.scale - product) > 1e-6 * min(bias.scale, product):
        return f"the scale of its bias has to be {product}, the product of the others, given {bias.scale}"
    if level < 29 and not output.scale > product:
        return f"the scale of its result has to be above {product} before feature level 29, given {output.scale}"
    return ""
