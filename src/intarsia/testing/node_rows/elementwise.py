"""Element-wise operators."""

from __future__ import annotations

from intarsia.testing.node_row import Row

_UNARY = ("T[48]", "T[]", "T[2,0,3]")
_BINARY = ("T[48]; T[48]", "T[2,3,4]; T[3,1]", "T[]; T[3]", "T[0,3]; T[1,3]", "T[2,1]; T[3]", "T[1,3]; T[2,1,1]")
_OLD_BINARY = (
    "T[2,3,4]; T[4]", "T[2,3,4]; T[3,4]", "T[2,3,4]; T[1]", "T[2,3,4]; T[]", "T[2,3,4]; T[3]", "T[2,3,4]; T[2,3]",
    "T[2,4,4]; T[4]",
)  # fmt: skip

ELEMENTWISE: tuple[Row, ...] = (
    Row(
        "Abs Acos Acosh Asin Asinh Atan Atanh BitwiseNot Ceil Cos Cosh Erf Exp Floor HardSwish Identity IsNaN Log Mish Neg Not "
        "Reciprocal Relu Round Sigmoid Sign Sin Sinh Softplus Softsign Sqrt Tan Tanh",
        _UNARY,
        dense=True,
    ),
    Row("Celu", _UNARY, {"alpha": (None, 0.5, 3.0)}, dense=True),
    Row("Elu", _UNARY, {"alpha": (None, 0.5, -2.0)}, dense=True),
    Row("LeakyRelu", _UNARY, {"alpha": (None, 0.0, 2.0, -0.5)}, dense=True),
    Row("Selu", _UNARY, {"alpha": (None, 0.5), "gamma": (None, 2.0, -1.0)}, dense=True),
    Row("ThresholdedRelu", _UNARY, {"alpha": (None, 0.0, -0.5)}, dense=True),
    Row("HardSigmoid", _UNARY, {"alpha": (None, 0.5, -1.0), "beta": (None, 0.1)}, dense=True),
    Row("Gelu", _UNARY, {"approximate": (None, "none", "tanh")}, dense=True),
    Row("Swish", _UNARY, {"alpha": (None, 0.5, -1.0)}, dense=True),
    Row("SwiGLU", ("T[2,8]; T[2,8]", "T[3,4]; T[4]"), {"alpha": (None, 0.5)}, dense=True),
    Row("Shrink", _UNARY, {"bias": (None, 0.5), "lambd": (None, 0.0, 1.5)}, dense=True),
    Row("IsInf", _UNARY, {"detect_negative": (None, 0), "detect_positive": (None, 0)}, dense=True),
    Row("Clip", _UNARY, {"min": (None, -0.5), "max": (None, 1.5, -1.0)}, dense=True),
    Row(
        "Clip",
        ("T[48]; T 0; T 3", "T[48]; T 1", "T[48]; -; T 2", "T[48]; T 3; T 1", "T[]; T 1; T 2", "T[48]; T[]; T[]"),
        dense=True,
    ),
    Row(
        "Clip",
        ("float[48]; float nan; float 1", "float[48]; float 0; float nan", "float[48]; float -inf; float inf"),
        dense=True,
    ),
    Row(
        "Add BitwiseAnd BitwiseOr BitwiseXor And Or Xor Div Equal Greater GreaterOrEqual Less LessOrEqual Mul Sub",
        _BINARY,
        dense=True,
    ),
    Row(
        "Add And Div Equal Greater Less Mul Or Pow Sub Xor",
        _OLD_BINARY,
        {"broadcast": (1,), "axis": (None, 0, 1, -1)},
        dense=True,
    ),
    # x^0.5 is sqrt(x) here, as it is in NumPy and torch: NaN for -infinity, for which C's pow has infinity.
    Row(
        "Pow",
        (
            *_BINARY,
            "float[48]; float 2",
            "float[48]; float 0.3",
            "float[48]; float -1",
            "float[48]; int64 3",
            "int32[6]; float 2",
        ),
        dense=True,
    ),
    Row("Mod", _BINARY, {"fmod": (None, 1)}, dense=True),
    Row("BitShift", _BINARY, {"direction": ("LEFT", "RIGHT")}, dense=True),
    Row("Max Min Mean Sum", (*_BINARY, "T[48]", "T[3]; T[2,1]; T[]", "T[2,3]; T[2,3]; T[2,3]; T[1,3]"), dense=True),
    Row(
        "PRelu",
        (
            "T[2,3,4,5]; T[3,1,1]",
            "T[1,3,4,3]; T[3]",
            "T[2,3]; T[1]",
            "T[2,3,4]; T[4]",
            "T[2,4,4]; T[4]",
            "T[2,3]; T[]",
            "T[2,3,4]; T[2,1,4]",
            "T[4]; T[4]",
            "T[2,3,4]; T[3,4]",
            "T[3,3]; T[3]",
            "T[2,3,4]; T[3]",
            "T[48]; T[1]",
        ),
        dense=True,
    ),
    Row(
        "Where",
        ("bool[2,3]; T[3]; T[2,1]", "bool[48]; T[48]; T[48]", "bool[]; T[3]; T[]", "bool[2,0]; T[1]; T[2,1]"),
        dense=True,
    ),
    Row("Cast", ("T[48]", "T[]", "T[0]"), {"to": (1, 2, 3, 6, 7, 9, 10, 11, 12, 16), "saturate": (None, 0)}, dense=True),
    Row("CastLike", ("T[48]; float[1]", "T[48]; int32[1]", "float[48]; T[1]", "T[48]; bool[1]"), dense=True),
    Row("Dropout", ("T[2,3]",), {"ratio": (None, 0.3), "is_test": (None, 1)}),
    Row("Dropout", ("T[2,3]; float 0.3", "T[2,3]; -; bool 0", "T[2,3]; float 0.3; bool 0"), outputs=2),
)
