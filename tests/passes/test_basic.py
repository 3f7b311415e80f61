import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from pass_models import BASIC, EXTENDED, build, counts, fired, optimized

import intarsia as ort
from intarsia.errors import InvalidGraph, UnknownOption
from intarsia.graph.load import load
from intarsia.passes import GraphOptimizationLevel, optimize, rule_names

NONE = GraphOptimizationLevel.ORT_DISABLE_ALL


def test_levels_have_onnxruntimes_numbers():
    assert [int(level) for level in GraphOptimizationLevel] == [0, 1, 2, 3, 99]


def test_constants_are_folded():
    model = build([("Add", "a b", "c"), ("Mul", "x c", "y")], {"x": [2]}, ["y"], {"a": 1.0, "b": np.ones(2, np.float32)})
    result = optimized(model, BASIC)
    assert counts(result.graph) == {"Mul": 1}
    assert set(result.graph.constants) == {result.graph.nodes[0].inputs[1]}


def test_large_weights_are_folded_when_they_are_read():
    weight = np.random.default_rng(0).normal(size=(256, 300)).astype(np.float32)
    model = build([("Transpose", "w", "t"), ("MatMul", "x t", "y")], {"x": [2, 300]}, ["y"], {"w": weight})
    result = optimize(load(model), BASIC)
    (constant,) = result.graph.constants.values()
    assert constant._array is None
    np.testing.assert_array_equal(constant.numpy(), weight.T)


def test_what_nobody_reads_does_not_count_as_growth():
    weight = np.random.default_rng(0).normal(size=(300, 1024)).astype(np.float32)
    model = build(
        [("TopK", "w k", "sorted places"), ("Mul", "x sorted", "y")], {"x": [1024]}, ["y"], {"w": weight, "k": [1024]}
    )
    result = optimized(model, BASIC)  # its indices alone are larger than the weights
    assert counts(result.graph) == {"Mul": 1}


def test_what_grows_is_not_folded():
    model = build(
        [("Expand", "c shape", "e"), ("Add", "x e", "y")],
        {"x": [1024, 1024]},
        ["y"],
        {"c": 1.0, "shape": np.array([1024, 1024])},
    )
    assert counts(optimize(load(model), BASIC).graph)["Expand"] == 1


def test_random_and_dequantized_values_stay():
    model = build(
        [("RandomNormal", [], "r", {"shape": [2]}), ("DequantizeLinear", "q s", "w"), ("Add", "r w", "a"), ("Add", "a x", "y")],
        {"x": [2]},
        ["y"],
        {"q": np.array([[1, 2]], np.int8), "s": 0.5},
    )
    assert counts(optimize(load(model)).graph) == {"RandomNormal": 1, "DequantizeLinear": 1, "Add": 2}
    asked = optimize(load(model), enabled=frozenset({"fold_dequantize"}))
    assert counts(asked.graph) == {"RandomNormal": 1, "Add": 2}


def test_quantised_numbers_of_sizes_are_known():
    """ceil(dequantize(quantize((size - 1) / 4)) + 1) of a size that is known, with steps that round it."""
    model = build(
        [
            ("Shape", "x", "s"), ("Gather", "s i", "n"), ("Sub", "n one", "m"), ("Cast", "m", "f", {"to": 1}),
            ("Div", "f four", "d"), ("QuantizeLinear", "d step zero", "q"), ("DequantizeLinear", "q step zero", "b"),
            ("DequantizeLinear", "c step zero", "e"), ("Add", "b e", "a"), ("Ceil", "a", "up"),
            ("Cast", "up", "whole", {"to": 7}), ("Unsqueeze", "whole axes", "w"),
            ("Concat", "none w", "pads", {"axis": 0}), ("Pad", "x pads", "y"),
        ],
        {"x": [7]},
        ["y"],
        {"i": np.int64(0), "one": np.int64(1), "four": 4.0, "step": 0.75, "zero": np.int8(-3), "c": np.int8(-2),
         "axes": np.array([0]), "none": np.array([0])},
    )  # fmt: skip
    result = optimize(load(model))
    assert counts(result.graph) == {"Pad": 1}
    (pads,) = (c.numpy() for name, c in result.graph.constants.items() if name == result.graph.nodes[0].inputs[1])
    assert pads.tolist() == [0, 3]  # 1.5 lies on a step; so 0.75 and 1.5 are 2.25


def test_quantised_numbers_that_the_caller_may_replace_are_not_known():
    model = build(
        [
            ("QuantizeLinear", "a step zero", "q"), ("DequantizeLinear", "q step zero", "d"), ("Ceil", "d", "up"),
            ("Cast", "up", "whole", {"to": 7}), ("Unsqueeze", "whole axes", "w"), ("Concat", "none w", "pads", {"axis": 0}),
            ("Pad", "x pads", "y"),
        ],
        {"x": [3]},
        ["y"],
        {"a": 1.0, "step": 0.5, "zero": np.int8(0), "axes": np.array([0]), "none": np.array([0])},
    )  # fmt: skip
    model.graph.input.append(helper.make_tensor_value_info("a", 1, []))
    session, x = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"]), np.ones(3, np.float32)
    assert session.run(None, {"x": x})[0].shape == (4,)
    assert session.run(None, {"x": x, "a": np.float32(3)})[0].shape == (6,)


def test_initializers_that_the_caller_may_replace_stay():
    model = build([("Add", "a b", "c"), ("Add", "x c", "y")], {"x": [1]}, ["y"], {"a": 1.0, "b": 2.0})
    model.graph.input.append(helper.make_tensor_value_info("a", 1, []))
    result = optimize(load(model))
    assert counts(result.graph) == {"Add": 2}
    assert result.graph.overridable == ["a"] and "a" in result.graph.constants


def test_equal_nodes_are_computed_once_and_unused_ones_never():
    model = build(
        [
            ("Unsqueeze", "x a0", "b"),
            ("Unsqueeze", "x a1", "c"),
            ("Exp", "x", "unused"),
            ("Add", "b c", "y"),
            ("Flatten", "x", "f1", {"axis": 0}),
            ("Flatten", "x", "f2", {"axis": 1}),
            ("Concat", "f1 f1", "z", {"axis": 0}),
        ],
        {"x": [2]},
        ["y", "z", "f2"],
        {"a0": np.array([0]), "a1": np.array([0])},
    )
    result = optimized(model, BASIC)
    assert fired(result)["reuse_equal_nodes"] == 1
    assert "Exp" not in counts(result.graph)


def test_values_of_equal_sizes_are_computed_once():
    """The positions of two tensors of one length, as each layer of an exported model makes its own."""
    nodes = [
        node
        for x in "xz"
        for node in [
            ("Shape", x, f"s{x}"),
            ("Gather", f"s{x} i1", f"n{x}"),
            ("Range", f"i0 n{x} i1", f"r{x}"),
            ("Cast", f"r{x}", f"c{x}", {"to": 1}),
            ("Add", f"{x} c{x}", f"y{x}"),
        ]
    ]
    model = build(nodes, {"x": [1, "n"], "z": [2, "n"]}, ["yx", "yz"], {"i0": np.array(0), "i1": np.array(1)})
    result = optimized(model, BASIC, sizes={"n": 5})
    assert (counts(result.graph)["Range"], counts(result.graph)["Cast"]) == (1, 1)


def test_shape_arithmetic_becomes_a_constant_target():
    model = build(
        [
            ("Shape", "x", "s"),
            ("Gather", "s i0", "b"),
            ("Gather", "s i1", "n"),
            ("Unsqueeze", "b zero", "b1"),
            ("Unsqueeze", "n zero", "n1"),
            ("Concat", "b1 n1 h d", "target", {"axis": 0}),
            ("Reshape", "x target", "y"),
        ],
        {"x": ["b", "n", 12]},
        ["y"],
        {"i0": np.array(0), "i1": np.array(1), "zero": np.array([0]), "h": np.array([3]), "d": np.array([-1])},
    )
    result = optimized(model, BASIC, sizes={"b": 2, "n": 5})
    (node,) = result.graph.nodes
    assert result.graph.constants[node.inputs[1]].numpy().tolist() == [0, 0, 3, 4]


def test_sizes_of_static_shapes_are_constants():
    model = build(
        [("Shape", "x", "s"), ("Gather", "s i", "n"), ("Cast", "n", "f", {"to": 1}), ("Div", "y0 f", "y")],
        {"x": [3, 4], "y0": [2]},
        ["y"],
        {"i": np.array(1)},
    )
    assert counts(optimized(model, BASIC).graph) == {"Div": 1}


NOTHING = {
    "identity": ([("Identity", "x", "t")], {}),
    "dropout": ([("Dropout", "x", "t")], {}),
    "cast": ([("Cast", "x", "t", {"to": 1})], {}),
    "reshape": ([("Reshape", "x shape", "t")], {"shape": np.array([-1, 4])}),
    "expand": ([("Expand", "x shape", "t")], {"shape": np.array([1, 4])}),
    "slice": ([("Slice", "x zero big one", "t")], {"zero": np.array([0]), "big": np.array([2**40]), "one": np.array([1])}),
    "pad": ([("Pad", "x zeros", "t")], {"zeros": np.zeros(4, np.int64)}),
    "transpose": ([("Transpose", "x", "t", {"perm": [0, 1]})], {}),
    "concat": ([("Concat", "x", "t", {"axis": 1})], {}),
    "sum": ([("Sum", "x", "t")], {}),
    "add zero": ([("Add", "zero x", "t")], {"zero": np.zeros(4, np.float32)}),
    "mul one": ([("Mul", "x one", "t")], {"one": 1.0}),
    "div one": ([("Div", "x one", "t")], {"one": 1.0}),
    "sub zero": ([("Sub", "x zero", "t")], {"zero": 0.0}),
    "pow one": ([("Pow", "x one", "t")], {"one": 1.0}),
    "two transposes": ([("Transpose", "x", "u"), ("Transpose", "u", "t")], {}),
    "two casts": ([("Cast", "x", "u", {"to": 11}), ("Cast", "u", "t", {"to": 1})], {}),
    "squeeze of unsqueeze": ([("Unsqueeze", "x one", "u"), ("Squeeze", "u one", "t")], {"one": np.array([1])}),
    "reshape and back": (
        [("Reshape", "x flat", "u"), ("Reshape", "u shape", "t")],
        {"flat": np.array([-1]), "shape": np.array([-1, 4])},
    ),
}


LEVEL = {"expand": EXTENDED, "add zero": EXTENDED}  # of sizes that are not numbers, of more elements than one


@pytest.mark.parametrize("case", LEVEL)
def test_operators_that_onnxruntime_keeps_stay(case):
    nodes, constants = NOTHING[case]
    model = build([("Neg", "x0", "x"), *nodes, ("Abs", "t", "y")], {"x0": ["n", 4]}, ["y"], constants)
    assert counts(optimized(model, BASIC, sizes={"n": 3}).graph)[nodes[-1][0]] == 1


@pytest.mark.parametrize("case", NOTHING)
def test_operators_that_change_nothing_vanish(case):
    nodes, constants = NOTHING[case]
    model = build([("Neg", "x0", "x"), *nodes, ("Abs", "t", "y")], {"x0": ["n", 4]}, ["y"], constants)
    assert counts(optimized(model, LEVEL.get(case, BASIC), sizes={"n": 3}).graph) == {"Neg": 1, "Abs": 1}


@pytest.mark.parametrize("case", NOTHING)
def test_operators_that_change_nothing_keep_the_names_of_graph_outputs(case):
    nodes, constants = NOTHING[case]
    level = LEVEL.get(case, BASIC)
    result = optimized(build(nodes, {"x": ["n", 4]}, ["t"], constants), level, sizes={"n": 3})
    assert counts(result.graph) == {"Identity": 1}
    result = optimized(build([("Neg", "x0", "x"), *nodes], {"x0": ["n", 4]}, ["t"], constants), level, sizes={"n": 3})
    assert counts(result.graph) == {"Neg": 1}
    both = optimized(build([("Neg", "x0", "x"), *nodes], {"x0": ["n", 4]}, ["x", "t"], constants), level, sizes={"n": 3})
    assert counts(both.graph) == {"Neg": 1, "Identity": 1}


SOMETHING = {
    "reversed slice": (
        [("Slice", "x last first zero minus", "t")],
        {"last": np.array([-1]), "first": np.array([-9]), "zero": np.array([0]), "minus": np.array([-1])},
    ),
    "narrowing casts": ([("Cast", "x", "u", {"to": 6}), ("Cast", "u", "t", {"to": 1})], {}),
    "widening add": ([("Add", "x zero", "t")], {"zero": np.zeros((1, 1, 1), np.float32)}),
    "from zero": ([("Sub", "zero x", "t")], {"zero": 0.0}),
    "transpose": ([("Transpose", "x", "t")], {}),
}


@pytest.mark.parametrize("case", SOMETHING)
def test_operators_that_change_something_stay(case):
    nodes, constants = SOMETHING[case]
    model = build([("Neg", "x0", "x"), *nodes, ("Abs", "t", "y")], {"x0": [4, 4]}, ["y"], constants)
    assert sum(counts(optimized(model, BASIC).graph).values()) == len(nodes) + 2


def test_masks_of_ones_vanish_and_whole_grids_are_views():
    nodes = [
        ("Shape", "x", "b", {"start": 0, "end": 1}),
        ("Shape", "x", "n", {"start": 1, "end": 2}),
        ("Squeeze", "b", "bs"),
        ("Squeeze", "n", "ns"),
        ("Range", "i0 bs i1", "rows"),
        ("Range", "i0 ns i1", "columns"),
        ("Unsqueeze", "rows a123", "r"),
        ("Unsqueeze", "columns a012", "c"),
        ("Max", "r c", "grid"),
        ("Shape", "grid", "gs"),
        ("Expand", "r gs", "r2"),
        ("Expand", "c gs", "c2"),
        ("Unsqueeze", "r2 last", "r3"),
        ("Unsqueeze", "c2 last", "c3"),
        ("Concat", "r3 c3", "at", {"axis": -1}),
        ("GatherND", "x at", "m"),
        ("GreaterOrEqual", "c i0", "ge"),
        ("And", "ge m", "y"),
    ]
    constants = {
        "i0": np.array(0),
        "i1": np.array(1),
        "a123": np.array([1, 2, 3]),
        "a012": np.array([0, 1, 2]),
        "last": np.array([-1]),
    }
    result = optimized(build(nodes, {"x": (bool, ["b", "n"])}, ["y"], constants), EXTENDED, sizes={"b": 2, "n": 5})
    assert [n.op_type for n in result.graph.nodes] == ["Reshape"]


def test_if_with_a_known_condition_is_its_branch():
    then = helper.make_graph(
        [helper.make_node("Add", ["x", "k"], ["t"])],
        "then",
        [],
        [helper.make_tensor_value_info("t", 1, [2])],
        [numpy_helper.from_array(np.ones(2, np.float32), "k")],
    )
    other = helper.make_graph([helper.make_node("Neg", ["x"], ["e"])], "else", [], [helper.make_tensor_value_info("e", 1, [2])])
    for condition, wanted in ((True, "Add"), (False, "Neg")):
        model = build(
            [("If", "c", "i", {"then_branch": then, "else_branch": other}), ("Abs", "i", "y")],
            {"x": [2]},
            ["y"],
            {"c": np.array(condition)},
        )
        assert counts(optimized(model, BASIC).graph) == {wanted: 1, "Abs": 1}


def test_bodies_are_optimised_with_the_constants_around_them():
    then = helper.make_graph(
        [helper.make_node("Add", ["k", "k"], ["k2"]), helper.make_node("Add", ["x", "k2"], ["t"])],
        "then",
        [],
        [helper.make_tensor_value_info("t", 1, [2])],
    )
    other = helper.make_graph(
        [helper.make_node("Identity", ["x"], ["e0"]), helper.make_node("Neg", ["e0"], ["e"])],
        "else",
        [],
        [helper.make_tensor_value_info("e", 1, [2])],
    )
    model = build(
        [("If", "c", "y", {"then_branch": then, "else_branch": other})], {"x": [2], "c": (bool, [])}, ["y"], {"k": 1.0}
    )
    (node,) = optimized(model, BASIC).graph.nodes
    assert {key: len(g.nodes) for key, g in node.attributes.items()} == {"then_branch": 1, "else_branch": 1}


def test_model_functions_are_inlined():
    inner = helper.make_function(
        "f",
        "half",
        ["a"],
        ["b"],
        [helper.make_node("Constant", [], ["h"], value_float=0.5), helper.make_node("Mul", ["a", "h"], ["b"])],
        [helper.make_opsetid("", 20)],
    )
    scale = helper.make_node("Gemm", ["m", "m"], ["o"])
    reference = onnx.AttributeProto(name="alpha", ref_attr_name="slope", type=onnx.AttributeProto.FLOAT)
    scale.attribute.append(reference)
    outer = helper.make_function(
        "f",
        "leaky",
        ["p"],
        ["o"],
        [helper.make_node("half", ["p"], ["m"], domain="f"), scale],
        [helper.make_opsetid("", 20), helper.make_opsetid("f", 1)],
        ["slope"],
    )
    model = build(
        [("leaky", "x", "t", {"slope": 0.3, "domain": "f"}), ("leaky", "t", "y", {"slope": 0.1, "domain": "f"})],
        {"x": [2, 2]},
        ["y"],
        functions=[inner, outer],
    )
    del model.opset_import[2:]
    result = optimized(model, BASIC)
    assert [n.op_type for n in result.graph.nodes] == ["Mul", "Gemm"] * 2
    assert [round(n.attributes["alpha"], 3) for n in result.graph.nodes if n.attributes] == [0.3, 0.1]
    assert not result.graph.functions


def test_functions_that_call_themselves_are_refused():
    loop = helper.make_function(
        "f",
        "again",
        ["a"],
        ["b"],
        [helper.make_node("again", ["a"], ["b"], domain="f")],
        [helper.make_opsetid("f", 1), helper.make_opsetid("", 20)],
    )
    model = helper.make_model(
        helper.make_graph(
            [helper.make_node("again", ["x"], ["y"], domain="f")],
            "g",
            [helper.make_tensor_value_info("x", 1, [1])],
            [helper.make_tensor_value_info("y", 1, [1])],
        ),
        functions=[loop],
        opset_imports=[helper.make_opsetid("", 20), helper.make_opsetid("f", 1)],
        ir_version=10,
    )
    with pytest.raises(InvalidGraph, match="functions call each other in a circle"):
        optimize(load(model))


def test_operators_without_a_definition_are_written_out_as_onnx_defines_them():
    from intarsia.ops import registry
    from intarsia.ops.framework.registry import Registry

    fewer = Registry(
        {key: records for key, records in registry().records.items() if key not in (("", "Gelu"), ("", "HardSwish"))}
    )
    model = build([("Gelu", "x", "t"), ("HardSwish", "t", "y")], {"x": [5]}, ["y"])
    result = optimized(model, BASIC, registry=fewer)
    assert not {"Gelu", "HardSwish"} & set(counts(result.graph))


def test_rules_can_be_disabled_and_counted_out():
    model = build([("Identity", "x", "a"), ("Neg", "a", "b"), ("Identity", "b", "c"), ("Abs", "c", "y")], {"x": [2]}, ["y"])
    graph = load(model)
    assert optimize(graph, NONE).graph is graph
    assert counts(optimize(graph, disabled=frozenset({"remove_identity"})).graph)["Identity"] == 2
    assert counts(optimize(graph, limit=1).graph)["Identity"] == 1
    assert counts(graph)["Identity"] == 2
    result = optimize(graph)
    assert str(result) == "4 nodes -> 2 nodes\n  remove_identity     2  Identity_0, Identity_2"


def test_unknown_rules_are_named():
    graph = load(build([("Neg", "x", "y")], {"x": [2]}, ["y"]))
    with pytest.raises(UnknownOption, match="no optimisation rule is called 'fuse_gelo': did you mean 'fuse_gelu'"):
        optimize(graph, disabled=frozenset({"fuse_gelo"}))
    assert len(rule_names()) == len(set(rule_names())) > 40


def test_identities_of_constants_are_constants():
    model = build(
        [("Identity", "c", "d"), ("Identity", "d", "e"), ("Add", "x e", "y")],
        {"x": [2]},
        ["y"],
        {"c": np.array([3, 4], np.float32)},
    )
    assert counts(optimized(model, BASIC).graph) == {"Add": 1}
    alone = build([("Identity", "c", "y")], {"x": [2]}, ["y"], {"c": 3.0})
    assert counts(optimized(alone, BASIC).graph) == {"Identity": 1}


def test_names_inside_a_function_may_be_those_of_a_call():
    """Names of the call and of the function's own values are different ones, in subgraphs of the function too."""
    r, q = (helper.make_tensor_value_info(n, 1, None) for n in "rq")
    nodes = [helper.make_node("Neg", ["p"], ["z"]), helper.make_node("Add", ["z", "m"], ["r"])]
    then = helper.make_graph(nodes, "then", [], [r])
    other = helper.make_graph([helper.make_node("Identity", ["p"], ["q"])], "else", [], [q])
    body = helper.make_function(
        "f",
        "twisted",
        ["p", "c"],
        ["o"],
        [
            helper.make_node("Identity", ["p"], ["k"]),
            helper.make_node("Mul", ["p", "k"], ["m"]),  # the caller's value is called m too
            helper.make_node("Add", ["m", "p"], ["t"]),
            helper.make_node("If", ["c"], ["i"], then_branch=then, else_branch=other),
            helper.make_node("Mul", ["i", "t"], ["o"]),
        ],
        [helper.make_opsetid("", 12)],
    )
    model = helper.make_model(
        helper.make_graph(
            [
                helper.make_node("Relu", ["x"], ["m"]),
                helper.make_node("twisted", ["m", "b"], ["z"], domain="f"),  # a value of the branch is called z too
                helper.make_node("twisted", ["z", "b"], ["y"], domain="f"),
            ],
            "g",
            [helper.make_tensor_value_info("x", 1, [2]), helper.make_tensor_value_info("b", 9, [])],
            [helper.make_tensor_value_info("y", 1, [2])],
        ),
        functions=[body],
        opset_imports=[helper.make_opsetid("", 12), helper.make_opsetid("f", 1)],
        ir_version=8,
    )

    def twisted(p, c):
        return (-p + p * p if c else p) * (p * p + p)

    x = np.float32([1.5, -2])
    for level in (GraphOptimizationLevel.ORT_DISABLE_ALL, BASIC):
        options = ort.SessionOptions()
        options.graph_optimization_level = level
        session = ort.InferenceSession(model.SerializeToString(), options, ["ReferenceExecutionProvider"])
        for c in (True, False):
            expected = twisted(twisted(np.maximum(x, 0), c), c)
            np.testing.assert_allclose(session.run(None, {"x": x, "b": np.array(c)})[0], expected, rtol=1e-6)


@pytest.mark.parametrize("provider", ["CPUExecutionProvider", "ReferenceExecutionProvider"])
@pytest.mark.parametrize("level", [NONE, BASIC])
def test_bodies_are_of_the_models_operator_set(level: GraphOptimizationLevel, provider: str) -> None:
    """Axes that are attributes up to opset 9, in a body and in a body of a body."""

    def body(node: onnx.NodeProto, name: str) -> onnx.GraphProto:
        return helper.make_graph([node], name, [], [helper.make_tensor_value_info(node.output[0], 1, None)])

    squeeze = body(helper.make_node("Squeeze", ["x"], ["t"], axes=[0]), "first")
    total = body(helper.make_node("ReduceSum", ["x"], ["e"], axes=[0], keepdims=0), "second")
    inner = helper.make_node("If", ["inner"], ["i"], then_branch=squeeze, else_branch=total)
    part = body(helper.make_node("Slice", ["x"], ["p"], axes=[1], starts=[1], ends=[3]), "part")
    outer = helper.make_node("If", ["outer"], ["y"], then_branch=part, else_branch=body(inner, "inner"))
    bools = [helper.make_tensor_value_info(n, onnx.TensorProto.BOOL, []) for n in ("inner", "outer")]
    values = [helper.make_tensor_value_info("x", 1, ["rows", 4]), *bools]
    graph = helper.make_graph([outer], "g", values, [helper.make_tensor_value_info("y", 1, None)])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 9)], ir_version=6)
    options = ort.SessionOptions()
    options.graph_optimization_level = level
    session = ort.InferenceSession(model.SerializeToString(), options, [provider])
    x = np.float32([[1, 2, 3, 4]])
    for at, expected in (((0, 1), x[:, 1:3]), ((1, 0), x[0]), ((0, 0), x[0])):
        feeds = {"x": x, "inner": np.array(bool(at[0])), "outer": np.array(bool(at[1]))}
        np.testing.assert_array_equal(session.run(None, feeds)[0], expected)


def scattered(box: list[tuple[int, int]], data: list[object], **attributes: object) -> onnx.ModelProto:
    """`data[box] = rows` as exporters write it; a box has where it begins and how many rows there are, for the first axes."""
    nodes: list[tuple[object, ...]] = []
    constants: dict[str, np.ndarray] = {"last": np.array([-1]), "whole": np.array([count for _, count in box])}
    for i, (begin, count) in enumerate(box):
        constants[f"r{i}"] = np.arange(begin, begin + count).reshape(-1, *[1] * (len(box) - 1 - i))
        nodes += [("Expand", f"r{i} whole", f"e{i}"), ("Unsqueeze", f"e{i} last", f"u{i}")]
    parts = [f"u{i}" for i in range(len(box))]
    nodes += [("Concat", parts, "at", {"axis": -1}), ("ScatterND", "x at rows", "y", attributes)]
    rows = [count for _, count in box] + data[len(box) :]
    return build(nodes, {"x": data, "rows": rows}, ["y"], constants)


def test_positions_of_ones_are_a_range() -> None:
    ones = {"value": helper.make_tensor("one", TensorProto.INT64, [1], [1])}
    nodes = [("Shape", "x", "s", {"start": 0, "end": 1}), ("ConstantOfShape", "s", "o", ones), ("NonZero", "o", "y")]
    result = optimized(build(nodes, {"x": ["n", 3]}, ["y"]), BASIC, sizes={"n": 5})
    assert fired(result)["nonzero_of_ones"] == 1
    assert counts(result.graph)["NonZero"] == 0


@pytest.mark.parametrize(
    ("box", "data", "kinds"),
    [
        ([(0, 3), (0, 4)], [3, 4], {"Identity": 1}),
        ([(0, 3), (0, 4)], [3, 4, "n"], {"Identity": 1}),
        ([(0, 3), (1, 4)], [3, 6, "n"], {"Slice": 2, "Concat": 1}),
        ([(2, 3), (0, 1), (1, 4)], [5, 1, 5], {"Slice": 3, "Concat": 2}),
        ([(1, 3), (2, 1)], [5, 7], {"Slice": 5, "Concat": 2}),
    ],
)
def test_rows_scattered_over_a_box_lie_beside_what_stays(
    box: list[tuple[int, int]], data: list[object], kinds: dict[str, int]
) -> None:
    result = optimized(scattered(box, data), BASIC, sizes={"n": 2})
    assert fired(result)["assign_slice"] == 1
    assert counts(result.graph) == kinds


@pytest.mark.parametrize(
    "model",
    [
        pytest.param(scattered([(0, 3)], [3, 2], reduction="add"), id="sums"),
        pytest.param(
            build(
                [("ScatterND", "x at rows", "y")],
                {"x": [4, 2], "rows": [2, 2]},
                ["y"],
                {"at": np.array([[3], [1]])},
            ),
            id="another order",
        ),
        pytest.param(
            build(
                [("Unsqueeze", "r last", "u"), ("Concat", "u u", "at", {"axis": -1}), ("ScatterND", "x at rows", "y")],
                {"x": [3, 3], "rows": [3]},
                ["y"],
                {"r": np.arange(3), "last": np.array([-1])},
            ),
            id="a diagonal",
        ),
    ],
)
def test_rows_scattered_otherwise_stay(model: onnx.ModelProto) -> None:
    assert counts(optimized(model, BASIC).graph)["ScatterND"] == 1


def test_quantised_normalisations_are_scales_and_shifts():
    """Vectors that no product reads are constants, so that a normalisation follows from them."""
    vectors = {"s": np.array([50, 100], np.int8), "b": np.array([-7, 30000], np.int32)}
    numbers = {"step": 0.01, "zero": np.int8(3), "fine": 1e-4, "none": np.int32(0)}
    model = build(
        [
            ("DequantizeLinear", "s step zero", "scale"), ("DequantizeLinear", "b fine none", "shift"),
            ("BatchNormalization", "x scale shift mean var", "y"),
        ],
        {"x": [1, 2, 3]},
        ["y"],
        {**vectors, **numbers, "mean": np.array([0.5, -1], np.float32), "var": np.array([4, 0.25], np.float32)},
    )  # fmt: skip
    result = optimize(load(model))
    assert counts(result.graph) == {"Mul": 1, "Add": 1}
    x = np.random.default_rng(0).standard_normal((1, 2, 3)).astype(np.float32)
    scale, shift = (np.array([47, 97]) * 0.01)[:, None], (vectors["b"] * 1e-4)[:, None]
    exact = (x - np.array([[0.5], [-1]])) / np.sqrt(np.array([[4], [0.25]]) + 1e-5) * scale + shift
    found = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"]).run(None, {"x": x})[0]
    np.testing.assert_allclose(found, exact, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("same", [True, False])
def test_borders_that_are_rounded_are_the_convolutions(same):
    """conv(round(pad(x))): 0 lies on a step, if what is quantised is dequantised by the same numbers."""
    rng = np.random.default_rng(1)
    w = rng.standard_normal((4, 3, 3, 3)).astype(np.float32)
    model = build(
        [
            ("Pad", "x pads", "p"), ("QuantizeLinear", "p step zero", "q"), ("DequantizeLinear", "q step back", "d"),
            ("Conv", "d w", "y", {"kernel_shape": [3, 3], "strides": [2, 2]}),
        ],
        {"x": [1, 3, 7, 8]},
        ["y"],
        {"pads": np.array([0, 0, 1, 0, 0, 0, 2, 1]), "step": 0.02, "zero": np.int8(5), "back": np.int8(6 - same), "w": w},
    )  # fmt: skip
    result = optimize(load(model))
    assert counts(result.graph).get("Pad", 0) == (0 if same else 1)
    x = rng.standard_normal((1, 3, 7, 8)).astype(np.float32)
    expected = ort.InferenceSession(model.SerializeToString(), providers=["ReferenceExecutionProvider"]).run(None, {"x": x})[0]
    found = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"]).run(None, {"x": x})[0]
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)
