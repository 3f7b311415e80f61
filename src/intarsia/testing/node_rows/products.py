"""Matrix products, quantisation, attention, recurrence."""

from __future__ import annotations

from intarsia.testing.node_row import Row

_ACTIVATIONS = (None, ["Tanh"], ["Relu"], ["HardSigmoid"], ["Affine"], ["LeakyRelu"])

PRODUCTS: tuple[Row, ...] = (
    Row(
        "MatMul",
        (
            "T[3,4]; T[4,2]",
            "T[4]; T[4]",
            "T[4]; T[4,2]",
            "T[2,3,4]; T[4]",
            "T[2,1,3,4]; T[5,4,2]",
            "T[3,0]; T[0,2]",
            "T[0,3]; T[3,2]",
            "T[2,3,4]; T[4,2]",
        ),
    ),
    Row(
        "Gemm",
        (
            "T[3,4]; T[4,2]; T[2]",
            "T[3,4]; T[4,2]; T[3,1]",
            "T[3,4]; T[4,2]; T[]",
            "T[3,4]; T[4,2]; T[3,2]",
            "T[3,4]; T[4,2]",
            "T[3,0]; T[0,2]; T[2]",
        ),
        {"alpha": (None, 0.5), "beta": (None, 2.0, 0.0), "broadcast": (None, 1)},
    ),
    Row(
        "Gemm",
        ("T[4,3]; T[2,4]; T[1,2]", "T[4,3]; T[2,4]"),
        {"transA": (1,), "transB": (1,), "alpha": (None, 0.5), "beta": (None, 2.0), "broadcast": (None, 1)},
    ),
    Row(
        "MatMulInteger",
        (
            "uint8[3,4]; uint8[4,2]",
            "uint8[3,4]; int8[4,2]; uint8 3",
            "uint8[3,4]; int8[4,2]; uint8 3; int8{1,-2}",
            "int8[3,4]; int8[4,2]; int8{1,2,3}",
        ),
    ),
    Row("Einsum", ("float[3,4]; float[4,2]",), {"equation": ("ij,jk->ik", "ij,jk", "ij,jk->", "ij,jk->kij")}),
    Row("Einsum", ("float[3,4]; float[4]",), {"equation": ("ij,j->i", "ij,j->j", "...j,j->...", "ij,j->ij")}),
    Row("Einsum", ("float[3,3]",), {"equation": ("ii->i", "ii", "ij->ji", "...i->...", "ij->j")}),
    Row("Det", ("float[3,3]", "float[2,2,2]")),
    Row("QLinearMatMul", ("uint8[3,4]; float 0.1; uint8 3; uint8[4,2]; float 0.2; uint8 1; float 0.3; uint8 5",)),
    Row(
        "QuantizeLinear",
        (
            "float[2,3,4]; float 0.1; uint8 3",
            "float[2,3,4]; float 0.5; int8 0",
            "float[2,3,4]; float 0.5",
            "float[2,3,4]; float 0.5; int8 2",
        ),
        {"saturate": (None, 0)},
    ),
    Row(
        "QuantizeLinear",
        ("float[2,3,4]; float{0.1,0.2,0.5}; uint8{0,128,3}", "float[2,3,4]; float{0.1,0.2,0.5}; int8{0,0,0}"),
        {"axis": (None, 1, -2)},
    ),
    Row(
        "DequantizeLinear",
        (
            "uint8[2,3,4]; float 0.1; uint8 3",
            "int8[2,3,4]; float 0.5; int8 -3",
            "int8[2,3,4]; float 0.5",
            "int32[2,3]; float 0.5",
        ),
    ),
    Row(
        "DequantizeLinear",
        ("uint8[2,3,4]; float{0.1,0.2,0.5}; uint8{0,128,3}", "int8[2,3,4]; float{0.1,0.2,0.5}"),
        {"axis": (None, 1, -2)},
    ),
    Row(
        "QLinearConv",
        (
            "uint8[1,2,5,6]; float 0.1; uint8 3; int8[3,2,3,2]; float 0.2; int8 0; float 0.3; uint8 5",
            "uint8[1,2,5,6]; float 0.1; uint8 3; uint8[3,2,3,2]; float{0.2,0.1,0.3}; uint8{1,2,3}; float 1; uint8 5; int32[3]",
        ),
        {"strides": (None, [2, 2]), "pads": (None, [1, 0, 1, 1])},
    ),
    Row(
        "LinearAttention",
        ("float[1,3,8]; float[1,3,8]; float[1,3,8]",),
        {"q_num_heads": (2,), "kv_num_heads": (2,), "update_rule": ("linear",)},
        outputs=2,
    ),
    Row("CausalConvWithState", ("float[1,3,5]; float[3,1,4]; float[3]", "float[2,3,5]; float[3,1,2]"), outputs=2),
    Row("DynamicQuantizeLinear", ("float[2,3]",), outputs=3),
    Row(
        "Attention",
        (
            "T[1,2,3,4]; T[1,2,5,4]; T[1,2,5,4]",
            "T[1,2,3,4]; T[1,2,5,4]; T[1,2,5,4]; float[3,5]",
            "T[2,4,3,4]; T[2,2,5,4]; T[2,2,5,6]",
            "T[1,2,3,4]; T[1,2,5,4]; T[1,2,5,4]; bool[3,5]",
        ),
        {"is_causal": (None, 1), "scale": (None, 0.5), "softcap": (None, 2.0)},
    ),
    Row("Attention", ("T[1,3,8]; T[1,5,8]; T[1,5,8]",), {"q_num_heads": (2,), "kv_num_heads": (2,), "is_causal": (None, 1)}),
    Row(
        "RotaryEmbedding",
        ("float[1,2,3,4]; float[1,3,2]; float[1,3,2]", "float[1,2,3,4]; float[9,2]; float[9,2]; int64{1,0,2}[1,3]"),
        {"interleaved": (None, 1), "rotary_embedding_dim": (None, 0)},
    ),
    Row("RotaryEmbedding", ("float[1,3,8]; float[1,3,2]; float[1,3,2]",), {"interleaved": (None, 1), "num_heads": (2,)}),
)

RECURRENT: tuple[Row, ...] = (
    Row(
        "LSTM",
        (
            "float[3,2,2]; float[1,12,2]; float[1,12,3]",
            "float[3,2,2]; float[1,12,2]; float[1,12,3]; float[1,24]",
            "float[3,2,2]; float[1,12,2]; float[1,12,3]; float[1,24]; int32{2,3}; float[1,2,3]; float[1,2,3]; float[1,9]",
            "float[3,2,2]; float[1,12,2]; float[1,12,3]; -; -; -; -; float[1,9]",
            "float[3,2,2]; float[1,12,2]; float[1,12,3]; float[1,24]; -; float[1,2,3]",
            "float[3,2,2]; float[1,12,2]; float[1,12,3]; float[1,24]; -; -; float[1,2,3]",
        ),
        {
            "hidden_size": (3,),
            "direction": (None, "reverse"),
            "input_forget": (None, 1),
            "clip": (None, 0.3),
            "activations": (
                None,
                ["Sigmoid", "Tanh", "Relu"],
                ["HardSigmoid", "Tanh", "Softsign"],
                ["Tanh", "Sigmoid", "Tanh"],
            ),
        },
        outputs=3,
    ),
    Row(
        "LSTM",
        ("float[3,2,2]; float[2,12,2]; float[2,12,3]; float[2,24]; int32{1,3}",),
        {"hidden_size": (3,), "direction": ("bidirectional",), "layout": (None, 0)},
        outputs=3,
    ),
    Row(
        "GRU",
        (
            "float[3,2,2]; float[1,9,2]; float[1,9,3]",
            "float[3,2,2]; float[1,9,2]; float[1,9,3]; float[1,18]; int32{2,3}; float[1,2,3]",
            "float[3,2,2]; float[1,9,2]; float[1,9,3]; float[1,18]",
        ),
        {
            "hidden_size": (3,),
            "direction": (None, "reverse"),
            "linear_before_reset": (None, 1),
            "clip": (None, 0.3),
            "activations": (None, ["Sigmoid", "Relu"], ["HardSigmoid", "Tanh"], ["Tanh", "Sigmoid"]),
        },
        outputs=2,
    ),
    Row(
        "GRU",
        ("float[3,2,2]; float[2,9,2]; float[2,9,3]; float[2,18]; int32{1,3}",),
        {"hidden_size": (3,), "direction": ("bidirectional",)},
        outputs=2,
    ),
    Row(
        "RNN",
        (
            "float[3,2,2]; float[1,3,2]; float[1,3,3]",
            "float[3,2,2]; float[1,3,2]; float[1,3,3]; float[1,6]; int32{2,3}; float[1,2,3]",
        ),
        {
            "hidden_size": (3,),
            "direction": (None, "reverse"),
            "clip": (None, 0.3),
            "activations": _ACTIVATIONS,
            "activation_alpha": (None, [0.3]),
            "activation_beta": (None, [0.4]),
        },
        outputs=2,
    ),
    Row(
        "RNN",
        ("float[3,2,2]; float[2,3,2]; float[2,3,3]; float[2,6]; int32{1,3}",),
        {"hidden_size": (3,), "direction": ("bidirectional",), "activations": (None, ["Tanh", "Relu"])},
        outputs=2,
    ),
)
