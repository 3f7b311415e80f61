"""NNAPI's operations that lowerings write: their numbers, and from which feature level they take which element types.

From the documentation of NeuralNetworksTypes.h. Ranks are those of the operand whose element type counts (`typed_by`).
"""

from __future__ import annotations

from intarsia.lazy_dataclass import dataclass
from intarsia.providers.nnapi.operands import LEVEL_6, LEVEL_7, Kind, Tensor

_TYPES = {
    "f": Kind.TENSOR_FLOAT32, "h": Kind.TENSOR_FLOAT16, "i": Kind.TENSOR_INT32, "b": Kind.TENSOR_BOOL8,
    "u": Kind.TENSOR_QUANT8_ASYMM, "s": Kind.TENSOR_QUANT8_ASYMM_SIGNED, "c": Kind.TENSOR_QUANT8_SYMM_PER_CHANNEL,
}  # fmt: skip
_LEVELS = {"27": 27, "28": 28, "29": 29, "30": 30, "6": LEVEL_6, "7": LEVEL_7}

_TEXT = """
ADD 0 1-4 f27 u27 h29 i30 s30
AVERAGE_POOL_2D 1 4-4 f27 u27 h29 s30
CONCATENATION 2 1-4 f27 u27 h29 s30
CONV_2D 3 4-4 f27 u27 h29 s30
DEPTHWISE_CONV_2D 4 4-4 f27 u27 h29 s30
DEPTH_TO_SPACE 5 4-4 f27 u27 h29 s30
DEQUANTIZE 6 1-4 u27 c29 s30
FLOOR 8 1-4 f27 h29
FULLY_CONNECTED 9 2-4 f27 u27 h29 s30
L2_POOL_2D 12 4-4 f27 h29
LOCAL_RESPONSE_NORMALIZATION 13 1-4 f27 h29
LOGISTIC 14 1-4 f27 u27 h29 s30
MAX_POOL_2D 17 4-4 f27 u27 h29 s30
MUL 18 1-4 f27 u27 h29 i30 s30
RELU 19 1-4 f27 u27 h29 s30
RELU1 20 1-4 f27 u27 h29 s30
RELU6 21 1-4 f27 u27 h29 s30
RESHAPE 22 1-4 f27 u27 h29 s30 i6
RESIZE_BILINEAR 23 4-4 f27 h29 u29 s30
SOFTMAX 25 1-4 f27 u27 h29 s30
SPACE_TO_DEPTH 26 4-4 f27 u27 h29 s30
TANH 28 1-4 f27 h29 u29 s30
DIV 30 1-4 f28 h29
MEAN 31 1-4 f28 u28 h29 s30
PAD 32 1-4 f28 u28 h29 s30
STRIDED_SLICE 35 1-4 f28 u28 h29 s30
SUB 36 1-4 f28 h29 u29 i30 s30
TRANSPOSE 37 1-4 f28 u28 h29 s30
ABS 38 1-99 f29 h29 i30
ARGMAX 39 1-99 f29 h29 i29 u29 s30
ARGMIN 40 1-99 f29 h29 i29 u29 s30
CAST 45 1-99 f29 h29 i29 u29
EQUAL 48 1-99 f29 h29 i29 b29 u29 s30
EXP 49 1-99 f29 h29
EXPAND_DIMS 50 1-99 f29 h29 i29 u29 s30
GATHER 51 1-99 f29 h29 i29 u29 s30
GREATER 53 1-99 f29 h29 i29 b29 u29 s30
GREATER_EQUAL 54 1-99 f29 h29 i29 b29 u29 s30
GROUPED_CONV_2D 55 4-4 f29 h29 u29 s30
INSTANCE_NORMALIZATION 57 4-4 f29 h29
LESS 58 1-99 f29 h29 i29 b29 u29 s30
LESS_EQUAL 59 1-99 f29 h29 i29 b29 u29 s30
LOG 60 1-99 f29 h29
LOGICAL_AND 61 1-99 b29
LOGICAL_NOT 62 1-99 b29
LOGICAL_OR 63 1-99 b29
LOG_SOFTMAX 64 1-99 f29 h29
MAXIMUM 65 1-99 f29 h29 i29 u29 s30
MINIMUM 66 1-99 f29 h29 i29 u29 s30
NEG 67 1-99 f29 h29 i29
NOT_EQUAL 68 1-99 f29 h29 i29 b29 u29 s30
PAD_V2 69 1-4 f29 h29 u29 s30
POW 70 1-99 f29 h29
PRELU 71 1-4 f29 h29 u29 s30
QUANTIZE 72 1-4 f29 h29
REDUCE_MAX 77 1-4 f29 h29 u29 s30
REDUCE_MIN 78 1-4 f29 h29 u29 s30
REDUCE_PROD 79 1-4 f29 h29
REDUCE_SUM 80 1-4 f29 h29
RSQRT 83 1-99 f29 h29
SELECT 84 1-99 f29 h29 i29 u29 s30
SIN 85 1-99 f29 h29
SLICE 86 1-99 f29 h29 i29 u29 s30
SPLIT 87 1-99 f29 h29 i29 u29 s30
SQRT 88 1-99 f29 h29
TILE 89 1-99 f29 h29 i29 u29 s30
TOPK_V2 90 1-99 f29 h29 i29 u29 s30
TRANSPOSE_CONV_2D 91 4-4 f29 h29 u29 s30
UNIDIRECTIONAL_SEQUENCE_LSTM 92 3-3 f29 h29
UNIDIRECTIONAL_SEQUENCE_RNN 93 3-3 f29 h29
RESIZE_NEAREST_NEIGHBOR 94 4-4 f29 h29 u29 s30
ELU 98 1-4 f30 h30
HARD_SWISH 99 1-4 f30 h30 u30 s30
BATCH_MATMUL 102 2-4 f6 h6 i6 s6
MIRROR_PAD 104 1-99 f7 h7 i7 u7 s7
REVERSE 105 1-8 f7 h7 i7 u7 s7
"""
_TYPED_BY = {"SELECT": 1}

ACTIVATIONS = {"": 0, "RELU": 1, "RELU1": 2, "RELU6": 3}
"""Activations that operations apply to their result, by `FuseCode`."""


@dataclass(frozen=True)
class Operation:
    """One operation: element type -> the feature level from which it takes it, and the ranks that it takes."""

    name: str
    code: int
    since: dict[Kind, int]
    ranks: tuple[int, int]

    def refusal(self, inputs: tuple[Tensor, ...], level: int) -> str:
        """Why a device of this feature level does not take these inputs; "" where it does."""
        operand = inputs[_TYPED_BY.get(self.name, 0)]
        least = self.since.get(operand.kind)
        if least is None:
            return f"NNAPI's {self.name} takes no {operand.kind.name}"
        if least > level:
            return f"NNAPI's {self.name} takes {operand.kind.name} from feature level {least} on, and this is {level}"
        if not self.ranks[0] <= operand.rank <= self.ranks[1]:
            return f"NNAPI's {self.name} takes ranks {self.ranks[0]} to {self.ranks[1]}, and this is {operand.rank}"
        return ""


def _parsed(line: str) -> Operation:
    name, code, ranks, *types = line.split()
    low, high = ranks.split("-")
    return Operation(name, int(code), {_TYPES[t[0]]: _LEVELS[t[1:]] for t in types}, (int(low), int(high)))


OPERATIONS: dict[str, Operation] = {found.name: found for found in map(_parsed, _TEXT.strip().splitlines())}
