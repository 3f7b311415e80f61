"""Operators of com.microsoft against onnxruntime's CPU kernels, on both providers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
import onnx.helper as oh
import pytest

import intarsia

onnxruntime = pytest.importorskip("onnxruntime", reason="onnxruntime is the reference of its own operators")

PROVIDERS = ("CPUExecutionProvider", "ReferenceExecutionProvider")
RNG = np.random.default_rng(5)


def normal(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def u8(*shape: int) -> np.ndarray:
    return RNG.integers(0, 256, shape).astype(np.uint8)


def i8(*shape: int) -> np.ndarray:
    return RNG.integers(-128, 128, shape).astype(np.int8)


def i7(*shape: int) -> np.ndarray:
    """Weights with which onnxruntime is right on every CPU: without VNNI its sums of two products saturate at 16 bits."""
    return RNG.integers(-64, 65, shape).astype(np.int8)


def f32(*values: float) -> np.ndarray:
    return np.array(values, np.float32).reshape(() if len(values) == 1 else -1)


def ints(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


@dataclass
class Case:
    """Inputs (None: omitted; those in `constants` by position become initializers), and output element types."""

    op: str
    inputs: list[Any]
    attributes: dict[str, Any] = field(default_factory=dict)
    outputs: Sequence[int] = (1,)
    constants: Sequence[int] = ()
    tolerance: float = 1e-4
    shared: dict[int, int] = field(default_factory=dict)  # output -> the input whose buffer onnxruntime wants it to have
    id: str = ""


def proto(case: Case, own: bool = False) -> tuple[bytes, dict[str, np.ndarray]]:
    """The model and its inputs; `own`: every size of an input has a name of its own."""
    names = [f"x{i}" if x is not None else "" for i, x in enumerate(case.inputs)]
    feeds = {n: x for i, (n, x) in enumerate(zip(names, case.inputs, strict=True)) if n and i not in case.constants}
    node = oh.make_node(
        case.op,
        names,
        [f"y{i}" if kind else "" for i, kind in enumerate(case.outputs)],
        domain="com.microsoft",
        name="n",
        **case.attributes,
    )
    kind = lambda x: onnx.TensorProto.STRING if x.dtype == object else oh.np_dtype_to_tensor_dtype(x.dtype)  # noqa: E731
    sizes = lambda n, x: [f"{n}_{i}" for i in range(x.ndim)] if own else x.shape  # noqa: E731
    graph = oh.make_graph(
        [node], "g", [oh.make_tensor_value_info(n, kind(x), sizes(n, x)) for n, x in feeds.items()],
        [oh.make_tensor_value_info(f"y{i}", t, None) for i, t in enumerate(case.outputs) if t],
        [onnx.numpy_helper.from_array(case.inputs[i], names[i]) for i in case.constants],
    )  # fmt: skip
    imports = [oh.make_opsetid("", 17), oh.make_opsetid("com.microsoft", 1)]
    return oh.make_model(graph, opset_imports=imports, ir_version=8).SerializeToString(), feeds


def expected(model: bytes, feeds: dict[str, np.ndarray], shared: dict[int, int]) -> list[Any]:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    if not shared:
        return list(session.run(None, feeds))
    binding = session.io_binding()
    values = {n: onnxruntime.OrtValue.ortvalue_from_numpy(x.copy()) for n, x in feeds.items()}
    for name, value in values.items():
        binding.bind_ortvalue_input(name, value)
    for i, output in enumerate(session.get_outputs()):
        if i in shared:
            binding.bind_ortvalue_output(output.name, values[f"x{shared[i]}"])
        else:
            binding.bind_output(output.name)
    session.run_with_iobinding(binding)
    return [value.numpy().copy() for value in binding.get_outputs()]


def check(case: Case, own: bool = False) -> None:
    model, feeds = proto(case)
    wanted = expected(model, feeds, case.shared)
    model, feeds = proto(case, own)
    for provider in PROVIDERS:
        session = intarsia.InferenceSession(model, providers=[provider])
        for found, peer in zip(session.run(None, feeds), wanted, strict=True):
            assert found.shape == peer.shape, provider
            assert found.dtype == peer.dtype, provider
            if peer.dtype.kind == "f":
                np.testing.assert_allclose(found, peer, rtol=case.tolerance, atol=case.tolerance, err_msg=provider)
            elif peer.dtype.kind in "iu" and peer.dtype.itemsize == 1:
                assert np.abs(found.astype(int) - peer.astype(int)).max(initial=0) <= 1, (
                    provider
                )  # a tie may round the other way
            else:
                np.testing.assert_array_equal(found, peer, err_msg=provider)


X = normal(2, 3, 4)
IMG = normal(2, 4, 6, 5)
TEXT = np.array(["Hello World", "I love computer science !", ""], object)


def cases() -> list[Case]:
    return [
        Case("TransposeMatMul", [normal(2, 4, 3), normal(2, 5, 4)], {"transA": 1, "transB": 1, "alpha": 0.5}),
        Case("FusedMatMul", [normal(2, 4, 3), normal(2, 5, 4)], {"transA": 1, "transB": 1, "alpha": 0.5}),
        *[
            Case("FusedGemm", [normal(3, 4), normal(4, 5), normal(5)], {"activation": a})
            for a in "Relu Sigmoid Tanh Softplus Softsign".split()
        ],
        *[
            Case(
                "FusedGemm",
                [normal(3, 4), normal(4, 5), normal(5)],
                {"activation": a, "activation_alpha": 0.3, "activation_beta": 0.7, "activation_gamma": 1.3},
            )
            for a in "LeakyRelu Elu HardSigmoid Selu ThresholdedRelu ScaledTanh".split()
        ],
        Case("FusedGemm", [normal(3, 4), normal(4, 5), normal(5)], {"activation": "LeakyRelu", "activation_alpha": 0.3}),
        Case(
            "FusedGemm",
            [normal(3, 4), normal(4, 5), normal(5)],
            {"activation": "HardSigmoid", "activation_alpha": 0.3, "activation_beta": 0.4},
        ),
        *[
            Case(
                "FusedConv", [IMG, normal(6, 4, 3, 3), normal(6)], {"activation": a, **({"activation_params": p} if p else {})}
            )
            for a, p in [
                ("Relu", []),
                ("Tanh", []),
                ("Sigmoid", []),
                ("LeakyRelu", [0.2]),
                ("Clip", [-0.5, 0.5]),
                ("HardSigmoid", [0.2, 0.4]),
            ]
        ],
        Case("FusedConv", [IMG, normal(6, 4, 3, 3), normal(6), normal(2, 6, 4, 3)], {"activation": "Relu"}),
        Case(
            "FusedConv",
            [IMG, normal(6, 2, 3, 3), None, normal(2, 6, 6, 5)],
            {"activation": "Relu", "group": 2, "pads": [1, 1, 1, 1]},
        ),
        Case("NhwcMaxPool", [u8(1, 6, 5, 3)], {"kernel_shape": [2, 2], "strides": [2, 1], "pads": [1, 0, 0, 1]}, [2]),
        Case(
            "MaxpoolWithMask",
            [IMG, RNG.integers(0, 2, (1, 1, 6, 5)).astype(np.int32)],
            {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]},
        ),
        Case(
            "ConvTransposeWithDynamicPads",
            [IMG, normal(4, 3, 3, 3), ints(1, 1, 1, 1), normal(3)],
            {"strides": [2, 2]},
            constants=[2],
        ),
        Case("Trilu", [normal(4, 5), ints(1).reshape(())], {"upper": 0}, constants=[1]),
        Case("Range", [f32(1.0), f32(5.0)], {}, constants=[0, 1]),
        Case("Range", [np.array(3, np.int64), np.array(-5, np.int64), np.array(-2, np.int64)], {}, [7], constants=[0, 1, 2]),
        Case("ExpandDims", [X, np.array(-2, np.int32)], {}, constants=[1]),
        Case("ExpandDims", [X, np.array(1, np.int32)], {}, constants=[1]),
        Case("Pad", [X, ints(0, 1, 2, 1, 0, -1), f32(2.5)], {}, constants=[1]),
        Case("Pad", [X, ints(0, 1, 2, 1, 0, 1).reshape(1, 6)], {"mode": "reflect"}, constants=[1]),
        Case("GatherND", [X, np.array([[0, 1], [1, 2]], np.int64)], {}),
        Case("GridSample", [IMG, RNG.uniform(-1.2, 1.2, (2, 3, 3, 2)).astype(np.float32)], {"padding_mode": "border"}),
        Case("Unique", [f32(2, 1, 1, 3, 4, 3)], {}, [1, 7, 7]),
        Case("SampleOp", [X]),
        Case("UnfoldTensor", [X], {"dim": 1, "size": 2, "step": 1}),
        Case("UnfoldTensor", [X], {"size": 2, "step": 2}),
        Case("CDist", [normal(4, 3), normal(5, 3)], {"metric": "sqeuclidean"}),
        Case("CDist", [normal(4, 3).astype("f8"), normal(5, 3).astype("f8")], {"metric": "euclidean"}, [11]),
        Case("Inverse", [normal(2, 3, 3)]),
        Case("Inverse", [normal(2, 3, 3).astype("f2")], {}, [10], tolerance=5e-2),
        Case(
            "CropAndResize",
            [
                IMG,
                np.array([[0.1, 0.2, 0.8, 0.9], [0, 0, 1, 1], [0.5, 0.5, 1.3, 0.6]], np.float32),
                np.array([0, 1, 0], np.int32),
                np.array([3, 4], np.int32),
            ],
            {},
            constants=[3],
        ),
        Case(
            "CropAndResize",
            [
                IMG,
                np.array([[0.1, 0.2, 0.8, 0.9], [0, 0, 1, 1], [0.5, 0.5, 1.3, 0.6]], np.float32),
                np.array([0, 1, 0], np.int32),
                np.array([1, 4], np.int32),
            ],
            {"mode": "nearest", "extrapolation_value": -7.0},
            constants=[3],
        ),
        *[
            Case("MurmurHash3", [v], {"positive": p, "seed": s}, [12 if p else 6])
            for v in (
                np.array([3, -4, 2**31 - 1], np.int32),
                np.array([3, 2**31 + 5], np.uint32),
                ints(3, -4, 2**40),
                np.array([3, 2**63], np.uint64),
                f32(1.5, -2),
                np.array([1.5, -2.0]),
                np.array(["abc", "hello", "", "abcde"], object),
            )
            for p, s in ((1, 0), (0, 42))
        ],
        Case("DynamicTimeWarping", [np.abs(normal(5, 7))], {}, [6]),
        Case("DynamicTimeWarping", [np.ones((1, 4, 3), np.float32)], {}, [6]),
        Case("Tokenizer", [TEXT], {"mark": 0, "mincharnum": 1, "pad_value": "#", "separators": [" "]}, [8]),
        Case("Tokenizer", [TEXT.reshape(1, 3)], {"mark": 1, "mincharnum": 2, "pad_value": "#", "separators": [" ", "o"]}, [8]),
        Case("Tokenizer", [TEXT], {"mark": 1, "mincharnum": 1, "pad_value": "#", "separators": [""]}, [8]),
        Case("Tokenizer", [TEXT], {"mark": 1, "mincharnum": 1, "pad_value": "#", "tokenexp": "."}, [8]),
        Case("Tokenizer", [TEXT], {"mark": 0, "mincharnum": 1, "pad_value": "#", "tokenexp": "[a-z]+"}, [8]),
        Case("Tokenizer", [TEXT], {"mark": 1, "mincharnum": 3, "pad_value": "#", "tokenexp": "(l|o)[a-z]+"}, [8]),
        Case("Tokenizer", [np.array([" "], object)], {"mark": 1, "mincharnum": 1, "pad_value": "#", "separators": [" "]}, [8]),
        Case(
            "WordConvEmbedding",
            [
                np.array([[3, 1, 2, 0, 0], [1, 2, 3, 4, 2], [1, 0, 0, 0, 0]], np.int32),
                normal(5, 1, 2, 3),
                normal(5),
                normal(6, 3),
            ],
            {},
        ),
        Case(
            "WordConvEmbedding",
            [
                np.array([[3, 1, 2, 0, 0], [1, 2, 3, 4, 2], [1, 0, 0, 0, 0]], np.int32),
                normal(5, 1, 2, 3),
                normal(5),
                normal(6, 3),
            ],
            {},
            constants=[1, 2, 3],
        ),
        Case(
            "WordConvEmbedding",
            [
                np.array([[3, 1, 2, 0, 0], [1, 2, 3, 4, 2], [1, 0, 0, 0, 0]], np.int32),
                normal(5, 1, 3, 3),
                normal(5),
                normal(6, 3),
            ],
            {"char_embedding_size": 3, "conv_window_size": 3, "embedding_size": 5},
        ),
        Case("NGramRepeatBlock", [np.array([[1, 2, 3, 1, 2], [5, 5, 5, 5, 5]], np.int64), normal(2, 8)], {"ngram_size": 3}),
        Case("NGramRepeatBlock", [np.array([[1, 2], [5, 5]], np.int64), normal(2, 8)], {"ngram_size": 3}),
        Case("NGramRepeatBlock", [np.array([[1, 2], [5, 5]], np.int64), normal(2, 8)], {"ngram_size": 1}),
        Case("NGramRepeatBlock", [np.array([[1], [5]], np.int64), normal(2, 8)], {"ngram_size": 4}),
        Case("BifurcationDetector", [ints(1, 5, 3, 4), ints(2), ints(0).reshape(()), ints(1, 5, 3, 4, 2)], {}, [7, 7]),
        Case("BifurcationDetector", [ints(1, 5, 3, 4), ints(2), ints(0).reshape(()), ints(1, 5, 9, 4, 2)], {}, [7, 7]),
        Case("BifurcationDetector", [ints(1, 5, 3, 4), ints(2, 5), ints(0).reshape(())], {}, [7, 7]),
        Case("BifurcationDetector", [ints(1, 5, 3, 5, 3, 8), ints(2, 5, 3), ints(0).reshape(())], {}, [7, 7]),
        Case("BifurcationDetector", [ints(1, 5, 3, 7, 3, 8), ints(2, 5, 3), ints(0).reshape(())], {}, [7, 7]),
        Case(
            "MatMulInteger16",
            [RNG.integers(-300, 300, (3, 4)).astype("i2"), RNG.integers(-300, 300, (4, 2)).astype("i2")],
            {},
            [6],
        ),
        Case(
            "MatMulIntegerToFloat",
            [u8(2, 3, 4), i7(4, 5), f32(0.02), f32(0.03), np.array(120, np.uint8), np.array(3, np.int8), normal(5)],
            {},
        ),
        Case("MatMulIntegerToFloat", [u8(3, 4), i7(4, 5), f32(0.02), np.abs(normal(5)), None, i8(5)], {}),
        Case(
            "DynamicQuantizeMatMul", [normal(2, 3, 4), i7(4, 5), f32(0.02), np.array(3, np.int8), normal(5)], {}, tolerance=1e-3
        ),
        Case("DynamicQuantizeMatMul", [normal(3, 4), u8(4, 5), np.abs(normal(5)), u8(5)], {}, tolerance=1e-3),
        Case(
            "QAttention",
            [u8(2, 3, 8), i7(8, 24), normal(24), f32(0.02), f32(0.03), None, np.array(120, np.uint8), np.array(3, np.int8)],
            {"num_heads": 2},
            [1],
            tolerance=1e-3,
        ),
        Case(
            "QAttention",
            [
                u8(2, 3, 8),
                i7(8, 24),
                normal(24),
                f32(0.02),
                f32(0.03),
                np.array([2, 3], np.int32),
                np.array(120, np.uint8),
                np.array(3, np.int8),
                normal(2, 2, 2, 3, 4),
            ],
            {"num_heads": 2, "unidirectional": 1},
            [1, 1],
            tolerance=1e-3,
        ),
        Case(
            "QLinearConv",
            [
                u8(1, 6, 5, 4),
                f32(0.02),
                np.array(120, np.uint8),
                i7(6, 4, 3, 3),
                f32(0.03),
                np.array(0, np.int8),
                f32(0.1),
                np.array(100, np.uint8),
            ],
            {"channels_last": 1},
            [2],
        ),
        Case(
            "QLinearConv",
            [
                u8(1, 4, 6, 5),
                f32(0.02),
                np.array(120, np.uint8),
                i7(6, 4, 3, 3),
                np.abs(normal(6)),
                np.zeros(6, np.int8),
                f32(5.0),
                np.array(100, np.uint8),
                np.arange(6, dtype=np.int32),
            ],
            {"pads": [1] * 4},
            [2],
        ),
        Case(
            "QEmbedLayerNormalization",
            [
                np.array([[1, 2], [3, 0]], np.int32),
                np.array([[0, 1], [1, 0]], np.int32),
                u8(5, 8),
                u8(4, 8),
                u8(2, 8),
                u8(8),
                u8(8),
                np.array([[1, 0], [1, 1]], np.int32),
                f32(0.1),
                f32(0.2),
                f32(0.3),
                f32(0.1),
                f32(0.2),
            ]
            + [np.array(v, np.uint8) for v in (100, 120, 128, 110, 90)],
            {"epsilon": 1e-5},
            [1, 6],
            tolerance=1e-3,
        ),
        *[
            Case(
                "MatMulBnb4",
                [normal(3, 32), u8(8 * 32 // 2), np.abs(normal(8 * 32 // 16))],
                {"K": 32, "N": 8, "block_size": 16, "quant_type": q},
                constants=[1, 2],
            )
            for q in (0, 1)
        ],
        Case("ScaledSiLU", [X], {"alpha": 1.5}),
        Case("ScaledSiLU", [X, f32(0.3)], {"alpha": 1.5}),
        Case("GatedAdd", [X, normal(2, 3, 4), normal(2, 3, 1)]),
        Case("GatedRMSNorm", [X, normal(2), normal(2, 3, 4)], {}),
        Case("GatedRMSNorm", [X, normal(4), normal(2, 3, 4)], {"activation": "sigmoid"}),
        Case("BranchwiseRMSNorm", [X, normal(3, 4)], {}),
        Case("BranchwiseRMSNorm", [X, normal(12)], {}),
        Case("BranchwiseRMSNorm", [normal(2, 6), normal(2)], {"num_branches": 3}),
        Case("BranchwiseRMSNorm", [normal(2, 6)], {"num_branches": 3}),
        Case(
            "QLinearAdd",
            [
                u8(3, 4),
                f32(0.1),
                np.array(3, np.uint8),
                u8(3, 4),
                f32(0.2),
                np.array(3, np.uint8),
                f32(0.3),
                np.array(9, np.uint8),
            ],
            {},
            [2],
        ),
        Case(
            "QLinearLeakyRelu",
            [u8(3, 4), f32(0.1), np.array(100, np.uint8), f32(0.1), np.array(10, np.uint8)],
            {"alpha": 0.2},
            [2],
        ),
        Case(
            "QLinearGlobalAveragePool",
            [u8(1, 3, 4, 5), f32(0.1), np.array(100, np.uint8), f32(0.1), np.array(90, np.uint8)],
            {},
            [2],
        ),
        Case(
            "QLinearAveragePool",
            [u8(1, 3, 4, 5), f32(0.1), np.array(100, np.uint8), f32(0.1), np.array(90, np.uint8)],
            {"kernel_shape": [2, 2]},
            [2],
        ),
        Case(
            "QLinearConcat",
            [
                f32(0.1),
                np.array(100, np.uint8),
                u8(2, 3),
                f32(0.2),
                np.array(90, np.uint8),
                u8(2, 2),
                f32(0.1),
                np.array(1, np.uint8),
            ],
            {"axis": 1},
            [2],
        ),
        Case(
            "QLinearSoftmax",
            [u8(2, 3), f32(0.1), np.array(100, np.uint8), f32(0.004), np.array(0, np.uint8)],
            {"axis": 1, "opset": 13},
            [2],
        ),
        Case(
            "QLinearWhere",
            [
                np.array([True, False, True]),
                u8(3),
                f32(0.1),
                np.array(1, np.uint8),
                u8(3),
                f32(0.2),
                np.array(3, np.uint8),
                f32(0.2),
                np.array(3, np.uint8),
            ],
            {},
            [2],
        ),
    ]


BATCH, HEADS, SIZE = 2, 2, 4
WIDTH = HEADS * SIZE


def i32(*values: int) -> np.ndarray:
    return np.array(values, np.int32)


ROWS = np.array([[0, 1, 3, 4, 7], [0, 1, 2, 4, 6]], np.int32)
COLUMNS = np.array([[0, 0, 1, 2, 0, 2, 3], [0, 1, 1, 2, 0, 3, -1]], np.int32)


def sparse(S: int, past: int, total: int, rot: int = 0, packed: int = 0, inter: int = 0) -> Case:
    """SparseAttention of S tokens after `past` ones."""
    hs = 16 if rot else 8
    q, keys, values = normal(1, S, 4 * hs), normal(1, S, 2 * hs), normal(1, S, 2 * hs)
    first = [np.concatenate([q, keys, values], 2), None, None] if packed else [q, keys, values]
    a = {"num_heads": 4, "kv_num_heads": 2, "sparse_block_size": 16}
    ins = [*first, normal(1, 2, 64, hs), normal(1, 2, 64, hs), ROWS, COLUMNS, i32(total), i32(past + S)]
    if rot:
        a |= {"do_rotary": 1, "rotary_interleaved": inter}
        ins += [normal(64, hs // 2), normal(64, hs // 2)]
    return Case("SparseAttention", ins, a, [1, 1, 1], tolerance=1e-3, shared={1: 3, 2: 4})


def recurrent(
    rule: str, q: int, kv: int, T: int = 5, dk: int = 4, dv: int = 3, scalar: int = 1, past: int = 1, **more: Any
) -> Case:
    """LinearAttention of T steps."""
    dec = -np.abs(normal(BATCH, T, kv if scalar else kv * dk)) if "gated" in rule else None
    be = 1 / (1 + np.exp(-normal(BATCH, T, kv))) if "delta" in rule else None
    kk = normal(BATCH, T, kv, dk)
    kk /= np.linalg.norm(kk, axis=-1, keepdims=True)
    ps = normal(BATCH, kv, dk, dv) if past else None
    ins = [
        normal(BATCH, T, q * dk),
        kk.reshape(BATCH, T, -1),
        normal(BATCH, T, kv * dv),
        ps,
        dec,
        None if be is None else be.astype("f4"),
    ]
    while ins[-1] is None:
        ins.pop()
    return Case(
        "LinearAttention", ins, {"q_num_heads": q, "kv_num_heads": kv, "update_rule": rule, **more}, [1, 1], tolerance=1e-3
    )


def attention_cases() -> list[Case]:
    return [
        *[
            Case(
                "MRotaryEmbedding",
                [normal(*shape), RNG.integers(0, 9, (3, 2, 5)), normal(10, 4), normal(10, 4)],
                {**more, "mrope_section": [2, 1, 1], "mrope_layout": layout},
            )
            for shape, more in (
                ((2, 5, 16), {"num_heads": 2}),
                ((2, 2, 5, 8), {"interleaved": 1}),
                ((2, 5, 24), {"num_heads": 2, "rotary_embedding_dim": 8}),
            )
            for layout in (0, 1)
        ],
        *[
            Case("RotaryEmbedding", [normal(2, 3, 16), np.arange(6).reshape(2, 3), normal(12, 4), normal(12, 4)], more)
            for more in ({"scale": 2.0}, {"is_packed_batching": 1}, {"scale": 0.5, "num_heads": 2})
        ],
        *[
            Case(
                "MRotaryEmbedding",
                [normal(2, 5, 16), RNG.integers(0, 9, (3, 2, 5)), normal(10, 2), normal(10, 2)],
                {"num_heads": 2, "mrope_section": [1, 1, 0], "rotary_embedding_dim": 4, **more},
            )
            for more in ({"scale": 2.0}, {"is_packed_batching": 1, "scale": 0.25})
        ],
        Case("SkipSimplifiedLayerNormalization", [normal(2, 3, 8), normal(2, 3, 8), normal(8), normal(8)], {}, [1] * 4),
        Case(
            "EngramGate",
            [normal(2, 3, 2, 8), normal(2, 3, 2, 8), normal(2, 3, 8), normal(2, 8), normal(2, 8), normal(2, 8)],
            {},
            [1, 1],
        ),
        Case(
            "EngramGate",
            [normal(2, 3, 2, 8), normal(2, 3, 2, 8), normal(2, 3, 8), normal(2, 8), normal(2, 8)],
            {"epsilon": 0.1},
        ),
        Case("HyperConnectionPreMix", [normal(2, 3, 4, 8), normal(2, 3, 4)], {"reduction_scale": 0.5}),
        Case("HyperConnectionPreMix", [normal(2, 3, 32), normal(2, 3, 32)], {"num_branches": 4}),
        Case("HyperConnectionPreMix", [normal(2, 3, 4, 8), normal(2, 3, 4, 1)]),
        Case("HyperConnectionPostMix", [normal(2, 3, 4, 8), normal(2, 3, 8), normal(2, 3, 4), normal(2, 3, 4, 4)]),
        Case("HyperConnectionPostMix", [normal(2, 3, 32), normal(2, 3, 8), normal(2, 3, 4, 8)], {"num_branches": 4}),
        *[recurrent(r, 4, 2) for r in ("linear", "gated", "delta", "gated_delta")],
        recurrent("gated_delta", 2, 2, scalar=0),
        recurrent("gated_delta", 1, 2),
        recurrent("gated", 2, 2, past=0, scale=0.3),
        Case("LinearAttentionGate", [normal(2, 3, 4), normal(4), -np.abs(normal(4)), normal(2, 3, 4)], {}, [1, 1]),
        Case("LinearAttentionGate", [normal(2, 3, 4), normal(4), -np.abs(normal(4))], {}, [1]),
        Case("CausalConvWithState", [normal(2, 3, 5), normal(3, 1, 4), normal(3), normal(2, 3, 3)], {}, [1, 1]),
        Case("CausalConvWithState", [normal(2, 3, 2), normal(3, 1, 4)], {"activation": "silu"}, [1, 1]),
        Case("CausalConvWithState", [normal(2, 3, 5), normal(3, 1, 3), normal(3), normal(2, 3, 4)], {"dilation": 2}, [1, 1]),
        Case(
            "CausalConvWithState",
            [normal(2, 5, 2, 3), normal(6, 1, 3), normal(6), normal(2, 4, 2, 3)],
            {"dilation": 2, "channels_last": 1},
            [1, 1],
        ),
        Case(
            "DecoderMaskedMultiHeadAttention",
            [
                normal(BATCH, 1, WIDTH),
                normal(BATCH, 1, WIDTH),
                normal(BATCH, 1, WIDTH),
                None,
                None,
                normal(BATCH, HEADS, 8, SIZE),
                normal(BATCH, HEADS, 8, SIZE),
                i32(3),
            ],
            {"num_heads": HEADS, "past_present_share_buffer": 1},
            [1, 1, 1],
        ),
        Case(
            "DecoderMaskedMultiHeadAttention",
            [
                normal(4, 1, WIDTH),
                normal(4, 1, WIDTH),
                normal(4, 1, WIDTH),
                None,
                None,
                normal(4, HEADS, 8, SIZE),
                normal(4, HEADS, 8, SIZE),
                i32(3),
                i32(2),
                RNG.integers(0, 2, (2, 2, 8)).astype("i4"),
            ],
            {"num_heads": HEADS, "past_present_share_buffer": 1},
            [1, 1, 1],
        ),
        Case(
            "DecoderMaskedMultiHeadAttention",
            [normal(BATCH, 1, WIDTH), normal(BATCH, HEADS, 5, SIZE), normal(BATCH, HEADS, 5, SIZE)],
            {"num_heads": HEADS},
            [1],
        ),
        Case(
            "DecoderMaskedMultiHeadAttention",
            [
                normal(BATCH, 1, WIDTH),
                normal(BATCH, HEADS, 5, SIZE),
                normal(BATCH, HEADS, 5, SIZE),
                i32(1, 1, 0, 1, 1, 1, 1, 1, 1, 0).reshape(2, 5),
                None,
                None,
                None,
                None,
                None,
                None,
                normal(3 * WIDTH),
            ],
            {"num_heads": HEADS},
            [1],
        ),
        Case(
            "DecoderMaskedMultiHeadAttention",
            [normal(BATCH, 1, WIDTH), normal(BATCH, HEADS, 5, SIZE), normal(BATCH, HEADS, 5, SIZE)],
            {"num_heads": HEADS, "output_qk": 1},
            [1, 0, 0, 1],
        ),
        Case(
            "DecoderMaskedMultiHeadAttention",
            [
                normal(BATCH, 1, WIDTH),
                normal(BATCH, 1, WIDTH),
                normal(BATCH, 1, WIDTH),
                None,
                None,
                normal(BATCH, HEADS, 8, SIZE),
                normal(BATCH, HEADS, 8, SIZE),
                i32(3),
            ],
            {"num_heads": HEADS, "past_present_share_buffer": 1, "output_qk": 1},
            [1, 1, 1, 1],
        ),
        sparse(64, 0, 64),
        sparse(40, 0, 40),
        sparse(1, 40, 41),
        sparse(1, 40, 41, rot=1),
        sparse(40, 0, 40, rot=1, packed=1),
        sparse(20, 0, 20, rot=1, inter=1),
    ]


@pytest.mark.parametrize("case", [*cases(), *attention_cases()], ids=lambda c: c.id or c.op)
def test_operator(case: Case) -> None:
    check(case)


# Operators whose definitions compare sizes, to know what form an input has or whether parts are equal.
COMPARING = frozenset(
    "BranchwiseRMSNorm CausalConvWithState DecoderMaskedMultiHeadAttention GatedRMSNorm HyperConnectionPostMix "
    "HyperConnectionPreMix MRotaryEmbedding QAttention BiasSoftmax QLinearConcat".split()
)


@pytest.mark.parametrize("case", [c for c in [*cases(), *attention_cases()] if c.op in COMPARING], ids=lambda c: c.id or c.op)
def test_operator_with_sizes_of_their_own(case: Case) -> None:
    check(case, own=True)
