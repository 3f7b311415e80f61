"""Operators of signals, and onnxruntime's own."""

from __future__ import annotations

from intarsia.testing.node_row import Row

SIGNAL: tuple[Row, ...] = (
    # Not of NaN: which parts of a spectrum they reach depends on how it is computed.
    Row(
        "DFT",
        ("float[1,6,1]", "float[2,5,2]"),
        {"axis": (None, 1), "inverse": (None, 1), "onesided": (None, 1)},
        numbers=("plain",),
    ),
    Row("DFT", ("float[1,6,1]; int64 8; int64 1", "float[2,5,2]; -; int64 -2"), {"inverse": (None, 1)}, numbers=("plain",)),
    Row(
        "STFT",
        ("float[1,12,1]; int64 3; float[4]", "float[1,12,1]; int64 2; -; int64 4"),
        {"onesided": (None, 0)},
        numbers=("plain",),
    ),
    Row(
        "BlackmanWindow HannWindow HammingWindow",
        ("int64 6", "int32 5", "int64 1"),
        {"periodic": (None, 0), "output_datatype": (None, 10)},
    ),
    Row("MelWeightMatrix", ("int64 4; int64 16; int64 8000; float 0; float 4000",)),
)

MICROSOFT: tuple[Row, ...] = (
    Row("FastGelu BiasGelu", ("float[2,4]; float[4]",), dense=True, domain="com.microsoft"),
    Row("FastGelu Gelu QuickGelu", ("float[48]",), dense=True, domain="com.microsoft"),
    Row("QuickGelu", ("float[48]",), {"alpha": (None, 1.0, 0.5)}, dense=True, domain="com.microsoft"),
    Row(
        "SkipLayerNormalization",
        ("float[1,2,4]; float[1,2,4]; float[4]", "float[1,2,4]; float[1,2,4]; float[4]; float[4]; float[4]"),
        {"epsilon": (None, 0.1)},
        domain="com.microsoft",
    ),
    Row(
        "SkipSimplifiedLayerNormalization",
        ("float[1,2,4]; float[1,2,4]; float[4]", "float[1,2,4]; float[1,2,4]; float[4]; float[4]"),
        {"epsilon": (None, 0.1)},
        domain="com.microsoft",
    ),
    Row("FusedMatMul", ("float[2,3,4]; float[2,4,5]",), {"alpha": (None, 0.5)}, domain="com.microsoft"),
    Row(
        "FusedMatMul",
        ("float[4,3]; float[2,4]",),
        {"alpha": (None, 0.5), "transA": (1,), "transB": (1,)},
        domain="com.microsoft",
    ),
    Row(
        "FusedGemm",
        ("float[3,4]; float[4,2]; float[2]",),
        {"activation": ("Relu", "Tanh", "LeakyRelu"), "activation_alpha": (None, 0.2)},
        domain="com.microsoft",
    ),
    Row(
        "FusedConv",
        ("float[1,2,4,4]; float[3,2,2,2]; float[3]",),
        {"activation": ("Relu", "Tanh", "Sigmoid")},
        domain="com.microsoft",
    ),
    Row("DequantizeLinear", ("uint8[2,3]; float 0.1; uint8 3",), domain="com.microsoft"),
    Row("QuantizeLinear", ("float[2,3]; float 0.1; uint8 3",), domain="com.microsoft"),
)
