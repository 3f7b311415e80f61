"""Products with matrices that TopK chose, by kernels of mixtures of experts, are what NumPy computes; others stay."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper

import intarsia
from intarsia.codegen.llvm.target import Target
from intarsia.graph.load import load
from intarsia.graph.model import Graph
from intarsia.ops import registry
from intarsia.ops.framework.infer import infer
from intarsia.providers.cpu.legalize.gather_matmul_to_moe import convert_gather_matmul_to_moe
from intarsia.providers.cpu.legalize.lowering_pass import LegalizeEnv

EXPERTS, DEPTH, COLUMNS = 5, 40, 56
RNG = np.random.default_rng(0)
MATRICES = RNG.standard_normal((EXPERTS, COLUMNS, DEPTH)).astype(np.float32)


def model(
    turned: bool = False, chosen: str = "topk", width: int = EXPERTS, also: bool = False, kind: type = np.float32
) -> ModelProto:
    """x [n, 2, DEPTH], each row times the matrix that logits [n, width] choose for it; `also`: the gathered ones are read."""
    matrices = (MATRICES.transpose(0, 2, 1) if turned else MATRICES).astype(kind)
    element = helper.np_dtype_to_tensor_dtype(np.dtype(kind))
    nodes = [
        helper.make_node("TopK", ["logits", "k"], ["best", "which"], axis=-1),
        helper.make_node("Reshape", ["which" if chosen == "topk" else "given", "flat"], ["index"]),
        helper.make_node("Gather", ["matrices", "index"], ["gathered"], axis=0),
        helper.make_node("Reshape", ["x", "rows"], ["vectors"]),
        helper.make_node("MatMul", ["vectors", "gathered"] if turned else ["gathered", "vectors"], ["product"]),
        helper.make_node("Reshape", ["product", "out"], ["y"]),
    ]
    constants = {"k": [2], "flat": [-1], "rows": [-1, 1, DEPTH] if turned else [-1, DEPTH, 1], "out": [-1, 2, COLUMNS]}
    weights = [numpy_helper.from_array(np.array(v, np.int64), n) for n, v in constants.items()]
    graph = helper.make_graph(
        nodes, "g",
        [helper.make_tensor_value_info("x", element, ["n", 2, DEPTH]),
         helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["n", width]),
         helper.make_tensor_value_info("given", TensorProto.INT64, ["n", 2])],
        [helper.make_tensor_value_info(n, element, None) for n in ("y", *(["gathered"] if also else []))],
        [*weights, numpy_helper.from_array(matrices, "matrices")],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def rewritten(given: ModelProto) -> Graph | None:
    env = LegalizeEnv(registry(), Target.host(), {})
    return convert_gather_matmul_to_moe(infer(load(given.SerializeToString()), registry()), env)


def taken(given: ModelProto) -> bool:
    return rewritten(given) is not None


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("same", [False, True])
def test_rows_and_matrices(turned: bool, same: bool) -> None:
    """In one session, sizes that change; all rows may want the same matrices."""
    made = model(turned)
    assert taken(made)
    options = intarsia.SessionOptions()
    options.intra_op_num_threads = 2
    session = intarsia.InferenceSession(made.SerializeToString(), options)
    for tokens in (1, 3, 150, 0, 1):
        x = RNG.standard_normal((tokens, 2, DEPTH)).astype(np.float32)
        logits = np.zeros((tokens, EXPERTS), np.float32) if same else RNG.standard_normal((tokens, EXPERTS)).astype(np.float32)
        which = np.argsort(-logits, 1, kind="stable")[:, :2]
        expected = np.einsum("nkcd,nkd->nkc", MATRICES.astype(np.float64)[which], x.astype(np.float64))
        (found,) = session.run(None, {"x": x, "logits": logits, "given": which})
        assert found.shape == expected.shape
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=2e-5)


def test_two_products_are_sorted_once() -> None:
    made = model()
    for name in ("Gather", "MatMul"):
        node = next(n for n in made.graph.node if n.op_type == name)
        other = made.graph.node.add()
        other.CopyFrom(node)
        other.input[0] = "gathered2" if name == "MatMul" else "matrices"
        other.output[0] = "product2" if name == "MatMul" else "gathered2"
    made.graph.output.append(helper.make_tensor_value_info("product2", TensorProto.FLOAT, None))
    changed = rewritten(made)
    assert changed is not None
    kinds = [n.op_type for n in changed.nodes]
    assert (kinds.count("ExpertOrder"), kinds.count("ExpertProducts")) == (1, 2)


@pytest.mark.parametrize(
    "made",
    [model(chosen="given"), model(width=EXPERTS + 1), model(also=True), model(kind=np.float64)],
    ids=["indices from outside", "a longer axis", "read by others", "float64"],
)
def test_others_stay(made: ModelProto) -> None:
    assert not taken(made)


def test_an_index_out_of_range_is_refused() -> None:
    session = intarsia.InferenceSession(model(width=EXPERTS + 1).SerializeToString())
    x, given = np.ones((1, 2, DEPTH), np.float32), np.zeros((1, 2), np.int64)
    logits = np.arange(EXPERTS + 1, dtype=np.float32)[None]
    with pytest.raises(intarsia.IntarsiaError, match="index"):
        session.run(None, {"x": x, "logits": logits, "given": given})
