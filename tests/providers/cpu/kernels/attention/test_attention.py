"""Attention nodes run by the fused kernel, against the definition interpreted in float64."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

pytest.importorskip("llvmlite", reason="the CPU provider compiles with llvmlite")

from intarsia.ep.provider import CompileContext
from intarsia.errors import InvalidArgument
from intarsia.graph.dims import Dim, symbol
from intarsia.graph.dtypes import DType
from intarsia.graph.model import Constant, Graph, Node, TensorType, Value
from intarsia.ops import registry
from intarsia.ops.framework.evaluate import evaluate_node
from intarsia.providers.cpu.program.cpu_program import CpuProgram

Arrays = Sequence[np.ndarray | None]
Shapes = dict[str, tuple[Dim, ...]]


def random(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


def compiled(
    nodes: Sequence[Node], arrays: dict[str, np.ndarray], shapes: Shapes, constants: Sequence[Constant] = ()
) -> CpuProgram:
    types = {n: TensorType(DType.of(x.dtype), shapes.get(n, x.shape)) for n, x in arrays.items()}
    inputs = [Value(n, kind) for n, kind in types.items()]
    outputs = [Value(n) for n in nodes[-1].outputs if n]
    opsets = {"": 24, "com.microsoft": 1}
    graph = Graph("g", inputs, outputs, list(nodes), {c.name: c for c in constants}, types, opsets)
    return CpuProgram.compile(graph, registry(), CompileContext(intra_op_num_threads=2))


def node_of(arrays: Arrays, op: str = "Attention", domain: str = "", outputs: int = 1, **attributes: Any) -> Node:
    names = [f"x{i}" if a is not None else "" for i, a in enumerate(arrays)]
    return Node(op, names, [f"y{i}" for i in range(outputs)], attributes, domain, "attend", 1 if domain else 24)


def fused(made: CpuProgram) -> bool:
    return "[attention_" in made.describe("kernels")


def check(arrays: Arrays, node: Node, shapes: Shapes | None = None, expect_fused: bool = True) -> None:
    """The program's outputs are those of the definition, computed by the fused kernel or not as expected."""
    given = {f"x{i}": a for i, a in enumerate(arrays) if a is not None}
    made = compiled([node], given, shapes or {})
    assert fused(made) == expect_fused, made.describe("kernels")
    wide = [a.astype(np.float64) if a is not None and a.dtype == np.float32 else a for a in arrays]
    for actual, expected in zip(made.run(list(given.values())), evaluate_node(node, wide, registry()), strict=True):
        assert actual.dtype == np.float32
        np.testing.assert_allclose(actual, expected, rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("kv_heads", [1, 2, 6])
@pytest.mark.parametrize("causal", [0, 1])
@pytest.mark.parametrize("rank", [3, 4])
def test_forms_and_grouped_heads(rank: int, causal: int, kv_heads: int) -> None:
    if rank == 4:
        arrays = [random(2, 6, 19, 16), random(2, kv_heads, 33, 16), random(2, kv_heads, 33, 24)]
        check(arrays, node_of(arrays, is_causal=causal))
    else:
        arrays = [random(2, 19, 6 * 16), random(2, 33, kv_heads * 16), random(2, 33, kv_heads * 24)]
        check(arrays, node_of(arrays, is_causal=causal, q_num_heads=6, kv_num_heads=kv_heads, scale=0.2))


@pytest.mark.parametrize("shape", [(21,), (9, 21), (3, 1, 21), (2, 1, 1, 21), (1, 3, 9, 21), (2, 3, 9, 21)])
@pytest.mark.parametrize("boolean", [False, True])
def test_masks(shape: tuple[int, ...], boolean: bool) -> None:
    mask = random(*shape)
    arrays = [random(2, 3, 9, 8), random(2, 3, 21, 8), random(2, 3, 21, 8), mask > -0.5 if boolean else mask]
    check(arrays, node_of(arrays, softcap=3.0))


WINDOWS = [{"left_window_size": 2}, {"left_window_size": 3, "right_window_size": 1}, {"is_causal": 1}]


@pytest.mark.parametrize("attributes", WINDOWS)
@pytest.mark.parametrize("lengths", [None, [21, 9]])
def test_windows_and_numbers_of_keys(attributes: dict[str, int], lengths: list[int] | None) -> None:
    arrays: list[np.ndarray | None] = [random(2, 3, 9, 8), random(2, 3, 21, 8), random(2, 3, 21, 8)]
    if lengths:
        arrays += [None, None, None, np.array(lengths, np.int64)]
    node = node_of(arrays, **attributes)
    node.version = 25
    check(arrays, node)


MANY = 130  # queries, enough to have one in each lane of a vector


@pytest.mark.parametrize("attributes", [{}, *WINDOWS, {"softcap": 2.0}])
@pytest.mark.parametrize("lengths", [None, [150, 9]])
def test_many_queries(attributes: dict[str, Any], lengths: list[int] | None) -> None:
    arrays: list[np.ndarray | None] = [random(2, 4, MANY, 8), random(2, 2, 150, 8), random(2, 2, 150, 20)]
    if lengths:
        arrays += [None, None, None, np.array(lengths, np.int64)]
    node = node_of(arrays, **attributes)
    node.version = 25
    check(arrays, node)
    assert "pack attention" in compiled([node], {f"x{i}": a for i, a in enumerate(arrays) if a is not None}, {}).describe(
        "kernels"
    )


@pytest.mark.parametrize("shape", [(150,), (MANY, 150), (2, 1, 1, 150), (1, 4, MANY, 150)])
@pytest.mark.parametrize("boolean", [False, True])
def test_masks_of_many_queries(shape: tuple[int, ...], boolean: bool) -> None:
    mask = random(*shape)
    if mask.ndim > 1 and not boolean:
        mask[..., ::7, :] = -np.inf
    arrays = [random(2, 4, MANY, 8), random(2, 4, 150, 8), random(2, 4, 150, 8), mask > -0.5 if boolean else mask]
    check(arrays, node_of(arrays))


def test_many_queries_behind_a_past() -> None:
    past = [random(2, 2, 45, 8), random(2, 2, 45, 24)]
    arrays = [random(2, MANY, 6 * 8), random(2, MANY, 2 * 8), random(2, MANY, 2 * 24), random(MANY, 45 + MANY), *past]
    check(arrays, node_of(arrays, outputs=3, is_causal=1, q_num_heads=6, kv_num_heads=2))


def test_symbolic_sizes_bind_to_each_shape() -> None:
    batch, queries, keys = symbol("B"), symbol("S"), symbol("T")
    shapes: Shapes = {"x0": (batch, queries, 32), "x1": (batch, keys, 32), "x2": (batch, keys, 32)}
    shapes["x3"] = (symbol("M"), 1, symbol("N"), keys)
    arrays = [random(1, 4, 32), random(1, 7, 32), random(1, 7, 32), random(1, 1, 4, 7)]
    node = node_of(arrays, q_num_heads=2, kv_num_heads=2)
    made = compiled([node], {f"x{i}": a for i, a in enumerate(arrays)}, shapes)
    assert fused(made)
    for b, s, t, m, n in ((1, 4, 7, 1, 4), (3, 40, 65, 3, 1), (3, 140, 65, 1, 140), (1, 1, 600, 3, 1), (2, 97, 97, 1, 1)):
        arrays = [random(b, s, 32), random(b, t, 32), random(b, t, 32), random(m, 1, n, t)]
        (expected,) = evaluate_node(node, [a.astype(np.float64) for a in arrays], registry())
        np.testing.assert_allclose(made.run(arrays)[0], expected, rtol=2e-5, atol=2e-6)
    with pytest.raises(InvalidArgument, match=r"mask has shape \[3, 1, 4, 7\].* not broadcast to .* \[3, 2, 1, 7\]; give 1 or"):
        made.run([random(3, 1, 32), random(3, 7, 32), random(3, 7, 32), random(3, 1, 4, 7)])


@pytest.mark.parametrize("outputs", [1, 3])
@pytest.mark.parametrize("rank", [3, 4])
@pytest.mark.parametrize(("queries", "before"), [(1, 30), (7, 5), (6, 0)])
def test_past_and_present(queries: int, before: int, rank: int, outputs: int) -> None:
    past = [random(2, 2, before, 8), random(2, 2, before, 24)]
    mask = random(1, 1, queries, before + queries)
    if rank == 3:
        arrays = [random(2, queries, 6 * 8), random(2, queries, 2 * 8), random(2, queries, 2 * 24), mask, *past]
    else:
        arrays = [random(2, 6, queries, 8), random(2, 2, queries, 8), random(2, 2, queries, 24), mask, *past]
    heads = {"q_num_heads": 6, "kv_num_heads": 2} if rank == 3 else {}
    check(arrays, node_of(arrays, outputs=outputs, is_causal=1, **heads))


def test_present_without_past() -> None:
    arrays = [random(2, 7, 48), random(2, 9, 16), random(2, 9, 48)]
    check(arrays, node_of(arrays, outputs=3, q_num_heads=6, kv_num_heads=2))
    check(arrays, node_of(arrays, outputs=2, q_num_heads=6, kv_num_heads=2))


def test_a_cache_that_grows_and_one_that_does_not_fit() -> None:
    batch, past, total = symbol("B"), symbol("P"), symbol("P") + 1
    names = ("x0", "x1", "x2", "x3", "x4", "x5")
    shapes: Shapes = dict.fromkeys(names[:3], (batch, 1, 32))
    shapes |= {"x3": (batch, 1, 1, total), "x4": (batch, 4, past, 8), "x5": (batch, 4, symbol("R"), 8)}
    x, empty = random(2, 1, 32), np.zeros((2, 4, 0, 8), np.float32)
    arrays = [x, x, x, np.ones((2, 1, 1, 1), bool), empty, empty]
    node = node_of(arrays, outputs=3, is_causal=1, q_num_heads=4, kv_num_heads=4)
    made = compiled([node], dict(zip(names, arrays, strict=True)), shapes)
    assert fused(made)
    keys, values = empty, empty
    for rows in range(1, 5):
        arrays = [random(2, 1, 32) for _ in range(3)] + [np.ones((2, 1, 1, rows), bool), keys, values]
        wide = [a.astype(np.float64) if a.dtype == np.float32 else a for a in arrays]
        y, keys, values = made.run(arrays)
        for actual, expected in zip((y, keys, values), evaluate_node(node, wide, registry()), strict=True):
            np.testing.assert_allclose(actual, expected, rtol=2e-5, atol=2e-6)
    with pytest.raises(InvalidArgument, match="attend"):
        made.run([x, x, x, np.ones((2, 1, 1, 5), bool), random(2, 4, 4, 8), random(2, 4, 3, 8)])


@pytest.mark.parametrize("how", ["split", "slice"])
def test_columns_of_one_operand_are_read_in_place(how: str) -> None:
    x = random(2, 11, 3 * 24)
    names = ["q", "k", "v"]
    constants = []
    if how == "split":
        nodes = [Node("Split", ["x"], names, {"axis": -1, "num_outputs": 3}, version=18)]
    else:
        ints = {"from": -24, "to": 1 << 40, "axis": 2, "k0": 24, "k1": 48, "q0": 0, "q1": 24}
        constants = [Constant.of(n, np.array([i])) for n, i in ints.items()]
        parts = zip(names, (("q0", "q1"), ("k0", "k1"), ("from", "to")), strict=True)
        nodes = [Node("Slice", ["x", a, b, "axis"], [n], version=13) for n, (a, b) in parts]
    node = Node("Attention", names, ["y"], {"q_num_heads": 3, "kv_num_heads": 3, "is_causal": 1}, version=23)
    made = compiled([*nodes, node], {"x": x}, {"x": (symbol("B"), symbol("S"), 72)}, constants)
    labels = [line.split()[0:2] for line in made.describe("kernels").splitlines()[1:]]
    assert labels == [["pack", "attention"], ["attention", "3xSxS"], ["attention", "3xSxS"]], "only attention runs"
    (expected,) = evaluate_node(node, np.split(x.astype(np.float64), 3, -1), registry())
    np.testing.assert_allclose(made.run([x])[0], expected, rtol=2e-5, atol=2e-6)


def test_transposed_heads_are_read_in_place() -> None:
    x = random(2, 11, 3, 8)
    nodes = [
        Node("Transpose", ["x"], ["q"], {"perm": [0, 2, 1, 3]}, version=13),
        Node("Attention", ["q", "q", "q"], ["y"], version=23),
    ]
    made = compiled(nodes, {"x": x}, {})
    assert made.describe("kernels").count("[") == 1
    (expected,) = evaluate_node(nodes[1], [x.astype(np.float64).transpose(0, 2, 1, 3)] * 3, registry())
    np.testing.assert_allclose(made.run([x])[0], expected, rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("causal", [0, 1])
@pytest.mark.parametrize("past", [False, True])
def test_multi_head_attention(past: bool, causal: int, bias: bool) -> None:
    arrays: list[np.ndarray | None] = [random(2, 9, 32), random(2, 21, 32), random(2, 21, 48), None, None]
    arrays.append(random(1, 4, 9, 26 if past else 21) if bias else None)
    if past:
        arrays += [random(2, 4, 5, 8), random(2, 4, 5, 12)]
    outputs = 3 if past else 1
    check(arrays, node_of(arrays, "MultiHeadAttention", "com.microsoft", outputs, num_heads=4, unidirectional=causal))


def test_multi_head_attention_with_a_padding_mask_is_computed_by_its_definition() -> None:
    arrays = [random(2, 9, 32), random(2, 9, 32), random(2, 9, 32), None, np.array([3, 9], np.int32)]
    check(arrays, node_of(arrays, "MultiHeadAttention", "com.microsoft", num_heads=4), expect_fused=False)


def test_what_the_kernel_does_not_cover_is_computed_by_the_definition() -> None:
    q, k, v = random(1, 2, 5, 8), random(1, 2, 7, 8), random(1, 2, 7, 8)
    check([q, k, v], node_of([q, k, v], outputs=4), expect_fused=False)
    short = random(5, 4)
    check([q, k, v, short], node_of([q, k, v, short]), expect_fused=False)
    one = random(5, 1)
    check([q, k, v, one], node_of([q, k, v, one]), expect_fused=False)
    double = [x.astype(np.float64) for x in (q, k, v)]
    assert not fused(compiled([node_of(double)], {f"x{i}": a for i, a in enumerate(double)}, {}))
    assert not fused(compiled([node_of([q, k, v], softmax_precision=11)], {"x0": q, "x1": k, "x2": v}, {}))


@pytest.mark.parametrize("heads", [2, 4, 6])
def test_one_query_of_grouped_heads_sits_at_the_end_of_its_keys(heads: int) -> None:
    q, k, v = random(2, heads, 1, 8), random(2, 2, 8, 8), random(2, 2, 8, 8)
    arrays = (q, k, v, None, None, None, np.array([8, 5]))
    check(arrays, node_of(arrays, is_causal=1))
