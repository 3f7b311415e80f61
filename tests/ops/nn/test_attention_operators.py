"""Attention and its relatives against torch, float64 NumPy and (com.microsoft) onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

from intarsia.errors import InvalidGraph
from intarsia.graph.dims import symbol
from intarsia.graph.dtypes import DType
from intarsia.graph.model import Node
from intarsia.ops import registry
from intarsia.ops.framework.evaluate import evaluate_node
from intarsia.ops.framework.infer import trace
from intarsia.primitives import lang as k
from intarsia.primitives.interpreter import interpret

RNG = np.random.default_rng(2)
MICROSOFT = "com.microsoft"


def floats(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def evaluate(op: str, inputs: list[Any], outputs: int = 1, domain: str = "", version: int = 0, **attributes: Any) -> list[Any]:
    names = ["" if x is None else f"i{i}" for i, x in enumerate(inputs)]
    node = Node(op, names, [f"o{i}" for i in range(outputs)], attributes, domain, version=version)
    return evaluate_node(node, inputs, registry())


@pytest.mark.parametrize("version", [23, 24, 25])
@pytest.mark.parametrize("causal", [0, 1])
@pytest.mark.parametrize("mask", [None, "bool", "float"])
def test_attention_as_torch(version: int, causal: int, mask: str | None) -> None:
    torch = pytest.importorskip("torch", reason="the reference of attention")
    q, key, value = floats(2, 4, 5, 8), floats(2, 2, 5, 8), floats(2, 2, 5, 6)
    given = None
    bias = np.where(np.tril(np.ones((5, 5), bool)), 0, -np.inf).astype(np.float32) if causal else np.zeros((5, 5), np.float32)
    if mask == "bool":
        given = RNG.random((2, 1, 5, 5)) > 0.3
        given[..., 0] = True
        bias = bias + np.where(given, 0, -np.inf).astype(np.float32)
    elif mask == "float":
        given = floats(4, 5, 5)
        bias = bias + given
    (y,) = evaluate("Attention", [q, key, value, given], version=version, is_causal=causal)
    args = (torch.from_numpy(a) for a in (q, key, value, bias))
    want = torch.nn.functional.scaled_dot_product_attention(*args, enable_gqa=True).numpy()
    np.testing.assert_allclose(y, want, rtol=1e-4, atol=1e-5)


def test_decoding_step_by_step_equals_all_at_once() -> None:
    q, key, value = floats(1, 6, 16), floats(1, 6, 8), floats(1, 6, 8)
    heads = {"q_num_heads": 4, "kv_num_heads": 2, "is_causal": 1}
    (whole,) = evaluate("Attention", [q, key, value], **heads)
    past_key, past_value = np.zeros((1, 2, 0, 4), np.float32), np.zeros((1, 2, 0, 4), np.float32)
    for t in range(6):
        step = [a[:, t : t + 1] for a in (q, key, value)]
        y, past_key, past_value = evaluate("Attention", [*step, None, past_key, past_value], 3, **heads)
        np.testing.assert_allclose(y[:, 0], whole[:, t], rtol=1e-4, atol=1e-5)
    assert past_key.shape == (1, 2, 6, 4)


def test_attention_of_symbolic_lengths() -> None:
    b, s, p = symbol("b"), symbol("s"), symbol("p")
    record = registry().find("", "Attention", 23)
    assert record is not None
    shapes = [(b, 4, s, 8), (b, 2, s, 8), (b, 2, s, 8), (b, 1, s, s + p), (b, 2, p, 8), (b, 2, p, 8)]
    operands = [k.input(i, DType.FLOAT, shape) for i, shape in enumerate(shapes)]
    node = Node("Attention", [f"i{i}" for i in range(6)], ["y", "k", "v"], {"is_causal": 1})
    roots = trace(record, node, operands, {})
    y, present, _ = roots
    assert y is not None
    assert y.shape == (b, 4, s, 8)
    assert present is not None
    assert present.shape == (b, 2, p + s, 8)
    env = {"b": 2, "s": 3, "p": 4}
    arrays = [
        floats(2, 4, 3, 8),
        floats(2, 2, 3, 8),
        floats(2, 2, 3, 8),
        floats(2, 1, 3, 7),
        floats(2, 2, 4, 8),
        floats(2, 2, 4, 8),
    ]
    (found,) = interpret([y], arrays, env)
    np.testing.assert_allclose(found, evaluate("Attention", list(arrays), 3, is_causal=1)[0], rtol=1e-6)


def test_rows_that_may_attend_nothing_are_zero() -> None:
    mask = np.array([[True, False], [False, False]])
    (y,) = evaluate("Attention", [floats(1, 1, 2, 4), floats(1, 1, 2, 4), np.ones((1, 1, 2, 4), np.float32), mask])
    np.testing.assert_array_equal(y[0, 0], [[1] * 4, [0] * 4])


def test_linear_attention_without_gates_is_a_running_sum() -> None:
    q, key, value = floats(2, 5, 8), floats(2, 5, 4), floats(2, 5, 6)
    y, state = evaluate("LinearAttention", [q, key, value], 2, q_num_heads=4, kv_num_heads=2, update_rule="linear", scale=0.5)
    q4, k4, v4 = q.reshape(2, 5, 4, 2), key.reshape(2, 5, 2, 2), value.reshape(2, 5, 2, 3)
    total = np.cumsum(np.einsum("bthd,bthe->bthde", k4, v4), 1)
    want = 0.5 * np.einsum("bthd,bthde->bthe", q4, np.repeat(total, 2, 2))
    np.testing.assert_allclose(y, want.reshape(2, 5, 12), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(state, total[:, -1], rtol=1e-5, atol=1e-6)


def onnxruntime_outputs(op: str, inputs: list[Any], outputs: int, attributes: dict[str, Any]) -> list[np.ndarray]:
    ort = pytest.importorskip("onnxruntime", reason="the reference of com.microsoft operators")
    names = ["" if x is None else f"i{i}" for i, x in enumerate(inputs)]
    node = helper.make_node(op, names, [f"o{i}" for i in range(outputs)], domain=MICROSOFT, **attributes)
    feeds = {n: np.asarray(x) for n, x in zip(names, inputs, strict=True) if n}
    declared = [helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape) for n, a in feeds.items()]
    graph = helper.make_graph([node], "g", declared, [onnx.ValueInfoProto(name=f"o{i}") for i in range(outputs)])
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid(MICROSOFT, 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    options = ort.SessionOptions()
    options.log_severity_level = 4
    return ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"]).run(None, feeds)


def ids(*shape: int, below: int = 2) -> np.ndarray:
    return RNG.integers(0, below, shape).astype(np.int32)


def ones_first(*shape: int) -> np.ndarray:
    """Masks that leave at least one key: a row that masks all is a matter of rounding at -10000."""
    mask = ids(*shape)
    mask[..., 0] = 1
    return mask


CONTRIBUTED: list[tuple[str, list[Any], int, dict[str, Any]]] = [
    (
        "MultiHeadAttention",
        [floats(2, 3, 8), floats(2, 5, 8), floats(2, 5, 8), floats(24), ones_first(2, 5)],
        1,
        {"num_heads": 2},
    ),
    ("MultiHeadAttention", [floats(2, 3, 8), floats(2, 3, 8), floats(2, 3, 8)], 1, {"num_heads": 2, "unidirectional": 1}),
    (
        "MultiHeadAttention",
        [
            floats(2, 1, 8),
            floats(2, 1, 8),
            floats(2, 1, 8),
            None,
            None,
            floats(1, 2, 1, 4),
            floats(2, 2, 3, 4),
            floats(2, 2, 3, 4),
        ],
        3,
        {"num_heads": 2, "scale": 0.3},
    ),
    ("Attention", [floats(2, 3, 6), floats(6, 24), floats(24), np.array([2, 3], np.int32)], 1, {"num_heads": 2}),
    ("Attention", [floats(2, 3, 6), floats(6, 24), floats(24), np.array([3, 3, 1, 0], np.int32)], 1, {"num_heads": 2}),
    (
        "Attention",
        [floats(2, 1, 6), floats(6, 24), floats(24), None, floats(2, 2, 2, 3, 4)],
        2,
        {"num_heads": 2, "unidirectional": 1},
    ),
    ("RotaryEmbedding", [floats(2, 3, 16), np.array([2]), floats(9, 4), floats(9, 4)], 1, {}),
    (
        "RotaryEmbedding",
        [floats(2, 2, 3, 8), ids(2, 3, below=9).astype(np.int64), floats(9, 4), floats(9, 4)],
        1,
        {"interleaved": 1},
    ),
    (
        "GroupQueryAttention",
        [
            floats(2, 4, 64),
            floats(2, 4, 32),
            floats(2, 4, 32),
            np.zeros((2, 2, 0, 16), np.float32),
            np.zeros((2, 2, 0, 16), np.float32),
            np.array([3, 3], np.int32),
            np.array(4, np.int32),
            floats(8, 8),
            floats(8, 8),
        ],
        3,
        {"num_heads": 4, "kv_num_heads": 2, "do_rotary": 1},
    ),
    (
        "GroupQueryAttention",
        [
            floats(1, 1, 128),
            None,
            None,
            floats(1, 2, 5, 16),
            floats(1, 2, 5, 16),
            np.array([5], np.int32),
            np.array(6, np.int32),
            floats(8, 8),
            floats(8, 8),
            None,
            None,
            floats(4),
        ],
        3,
        {"num_heads": 4, "kv_num_heads": 2, "do_rotary": 1, "rotary_interleaved": 1, "local_window_size": 3, "softcap": 2.0},
    ),
    (
        "EmbedLayerNormalization",
        [ids(2, 3, below=9), ids(2, 3), floats(9, 8), floats(5, 8), floats(2, 8), floats(8), floats(8), ids(2, 3)],
        2,
        {},
    ),
    (
        "MatMulNBits",
        [floats(2, 3, 40), ids(5, 3, 8, below=256).astype(np.uint8), floats(5, 3), None, None, floats(5)],
        1,
        {"K": 40, "N": 5, "bits": 4, "block_size": 16},
    ),
    (
        "MatMulNBits",
        [floats(2, 3, 40), ids(5, 3, 8, below=256).astype(np.uint8), floats(5, 3), ids(10, below=256).astype(np.uint8)],
        1,
        {"K": 40, "N": 5, "bits": 4, "block_size": 16},
    ),
    (
        "GatherBlockQuantized",
        [ids(7, 16, below=256).astype(np.uint8), ids(2, 3, below=7), floats(7, 2), ids(7, 1, below=256).astype(np.uint8)],
        1,
        {"bits": 4, "block_size": 16},
    ),
]


@pytest.mark.parametrize("case", CONTRIBUTED, ids=lambda c: c[0])
def test_contributed_operators_as_onnxruntime(case: tuple[str, list[Any], int, dict[str, Any]]) -> None:
    op, inputs, outputs, attributes = case
    wanted = onnxruntime_outputs(op, inputs, outputs, attributes)
    found = evaluate(op, inputs, outputs, MICROSOFT, **attributes)
    for actual, expected in zip(found, wanted, strict=True):
        assert actual.dtype == expected.dtype
        np.testing.assert_allclose(actual, expected, rtol=1e-3, atol=1e-4)


def test_packed_queries_keys_and_values() -> None:
    q, key, value = (floats(2, 3, 8) for _ in range(3))
    (want,) = evaluate("MultiHeadAttention", [q, key, value], domain=MICROSOFT, num_heads=2)
    split = [a.reshape(2, 3, 2, 1, 4) for a in (q, key, value)]
    (y,) = evaluate("MultiHeadAttention", [np.concatenate(split, 3)], domain=MICROSOFT, num_heads=2)
    np.testing.assert_array_equal(y, want)
    (y,) = evaluate("MultiHeadAttention", [q, np.concatenate(split[1:], 3)], domain=MICROSOFT, num_heads=2)
    np.testing.assert_array_equal(y, want)
    heads_first = [a.reshape(2, 3, 2, 4).transpose(0, 2, 1, 3) for a in (key, value)]
    (y,) = evaluate("MultiHeadAttention", [q, *heads_first], domain=MICROSOFT, num_heads=2)
    np.testing.assert_array_equal(y, want)


def test_cache_with_room_keeps_its_capacity() -> None:
    room = np.zeros((2, 1, 8, 16), np.float32)
    q, key, value = floats(2, 1, 32), floats(2, 1, 16), floats(2, 1, 16)
    inputs = [q, key, value, room, room, np.array([3, 5], np.int32), np.array(6, np.int32)]
    y, present, _ = evaluate("GroupQueryAttention", inputs, 3, MICROSOFT, num_heads=2, kv_num_heads=1)
    assert y.shape == (2, 1, 32)
    assert present.shape == room.shape
    np.testing.assert_array_equal(present[0, 0, 3], key[0, 0])
    np.testing.assert_array_equal(present[1, 0, 5], key[1, 0])


BYTES = np.ones((4, 4), np.uint8)


@pytest.mark.parametrize(
    ("op", "domain", "inputs", "attributes", "message"),
    [
        ("Attention", "", [floats(1, 2, 4)] * 3, {}, "3-D inputs needs q_num_heads and kv_num_heads"),
        (
            "Attention",
            "",
            [floats(1, 1, 2, 4)] * 3 + [None, floats(1, 1, 2, 4)],
            {},
            "past_key and past_value are given together",
        ),
        (
            "Attention",
            "",
            [floats(1, 1, 2, 4)] * 3,
            {"qk_matmul_output_mode": 4},
            "qk_matmul_output_mode is 4; expected 0, 1, 2 or 3",
        ),
        ("RotaryEmbedding", "", [floats(1, 2, 4), floats(2, 2), floats(2, 2)], {}, "3-D input needs num_heads"),
        (
            "LinearAttention",
            "",
            [floats(1, 2, 4)] * 3,
            {"q_num_heads": 2, "kv_num_heads": 2},
            "update_rule gated_delta takes decay: True, beta: True",
        ),
        (
            "LinearAttention",
            "",
            [floats(1, 2, 4)] * 3,
            {"q_num_heads": 2, "kv_num_heads": 2, "update_rule": "sum"},
            "update_rule is 'sum'; expected linear",
        ),
        ("MultiHeadAttention", MICROSOFT, [floats(1, 2, 4)], {"num_heads": 2}, "3-D query needs key"),
        ("MultiHeadAttention", MICROSOFT, [floats(1, 2, 4)] * 2, {"num_heads": 2}, "key that is not packed needs value"),
        (
            "MultiHeadAttention",
            MICROSOFT,
            [floats(2, 2, 4)] * 3 + [None, ids(3)],
            {"num_heads": 2},
            r"expected \[batch\], \[2 \* batch\], \[3 \* batch \+ 2\], \[batch, keys\]",
        ),
        (
            "Attention",
            MICROSOFT,
            [floats(1, 2, 4), floats(4, 12)],
            {"num_heads": 2, "do_rotary": 1},
            "do_rotary is 1; expected 0: write MultiHeadAttention after RotaryEmbedding",
        ),
        (
            "GroupQueryAttention",
            MICROSOFT,
            [floats(1, 2, 4)],
            {"num_heads": 2, "kv_num_heads": 1},
            "needs seqlens_k and total_sequence_length",
        ),
        (
            "GroupQueryAttention",
            MICROSOFT,
            [floats(1, 1, 8), None, None, None, None, ids(1), np.array(1, np.int32)],
            {"num_heads": 2, "kv_num_heads": 1, "do_rotary": 1},
            "with do_rotary needs cos_cache and sin_cache",
        ),
        (
            "DecoderMaskedSelfAttention",
            MICROSOFT,
            [floats(1, 1, 4), floats(4, 12), floats(12), None, floats(2, 1, 2, 3, 2), None, None],
            {"num_heads": 2, "past_present_share_buffer": 1},
            "required input 'past_sequence_length' is missing",
        ),
        (
            "QAttention",
            MICROSOFT,
            [BYTES[None], BYTES[:, :1].repeat(12, 1), floats(12), *[np.float32(1)] * 2, *[None] * 3, floats(2, 1, 2, 3, 2)],
            {"num_heads": 2, "past_present_share_buffer": 1},
            "past_present_share_buffer is 1; expected 0: QAttention has no past_sequence_length",
        ),
        ("EmbedLayerNormalization", MICROSOFT, [ids(1, 2)], {}, "needs word_embedding"),
        (
            "MatMulNBits",
            MICROSOFT,
            [floats(2, 16), ids(5, 1, 6).astype(np.uint8), floats(5, 1)],
            {"K": 16, "N": 5, "bits": 3, "block_size": 16},
            "bits is 3; expected 2, 4 or 8",
        ),
        (
            "MatMulNBits",
            MICROSOFT,
            [floats(2, 16), ids(5, 1, 8).astype(np.uint8), floats(5, 1)],
            {"K": 16, "N": 5, "block_size": 16, "weight_prepacked": 1},
            "weight_prepacked is 1",
        ),
        (
            "MatMulNBits",
            MICROSOFT,
            [floats(2, 16), ids(5, 1, 8).astype(np.uint8), floats(5, 1), floats(5, 1), ids(8)],
            {"K": 16, "N": 5, "block_size": 16},
            "g_idx is .*; expected 16 numbers of blocks",
        ),
        (
            "GatherBlockQuantized",
            MICROSOFT,
            [ids(4, 16).astype(np.uint8), ids(1), floats(4, 2)],
            {"quantize_axis": 0},
            "gather_axis and quantize_axis are both 0",
        ),
    ],
)
def test_refusals(op: str, domain: str, inputs: list[Any], attributes: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidGraph, match=message):
        evaluate(op, inputs, 4, domain, **attributes)
