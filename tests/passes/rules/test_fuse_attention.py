import math

import numpy as np
import pytest
from pass_models import build, counts, optimized

HEADS, SIZE, WIDTH = 2, 4, 8
FOUR = {n: ["b", HEADS, "s", SIZE] for n in "qkv"}
SIZES = {"b": 2, "s": 5}


def _scores(scaling):
    """Scores `t` of q and k, with their scale in the place that `scaling` names."""
    turn = ("Transpose", "k", "kt", {"perm": [0, 1, 3, 2]})
    return {
        "mul": [turn, ("MatMul", "q kt", "u"), ("Mul", "u c", "t")],
        "div": [turn, ("MatMul", "q kt", "u"), ("Div", "u r", "t")],
        "query": [turn, ("Mul", "q c", "qs"), ("MatMul", "qs kt", "t")],
        "both": [turn, ("Mul", "q h", "qs"), ("Mul", "kt h", "ks"), ("MatMul", "qs ks", "t")],
        "key first": [("Mul", "k c", "ks"), ("Transpose", "ks", "kt", {"perm": [0, 1, 3, 2]}), ("MatMul", "q kt", "t")],
        "none": [turn, ("MatMul", "q kt", "t")],
    }[scaling]


CONSTANTS = {"c": 0.5, "r": 2.0, "h": math.sqrt(0.5), "zero": 0.0, "low": float(np.finfo(np.float32).min), "inf": -np.inf}


def _attention(scaling="mul", masking=(), softmax_axis=-1, tail=(), outputs=("y",), inputs=None, guard=False):
    scores = "masked" if masking else "t"
    after = [("IsNaN", "p0", "n"), ("Where", "n zero p0", "p")] if guard else []
    nodes = [
        *_scores(scaling),
        *masking,
        ("Softmax", scores, "p0" if guard else "p", {"axis": softmax_axis}),
        *after,
        ("MatMul", "p v", "y"),
        *tail,
    ]
    return build(nodes, {**FOUR, **(inputs or {})}, list(outputs), CONSTANTS)


@pytest.mark.parametrize(
    ("scaling", "scale"), [("mul", 0.5), ("div", 0.5), ("query", 0.5), ("both", 0.5), ("key first", 0.5), ("none", 1)]
)
def test_attention_wherever_the_scale_is(scaling, scale):
    (node,) = optimized(_attention(scaling), sizes=SIZES).graph.nodes
    assert node.op_type == "Attention" and node.inputs == ["q", "k", "v"]
    assert node.attributes["scale"] == pytest.approx(scale)


def test_attention_adds_a_bias():
    model = _attention(masking=[("Add", "t bias", "masked")], inputs={"bias": ["b", 1, "s", "s"]})
    (node,) = optimized(model, sizes=SIZES).graph.nodes
    assert node.inputs == ["q", "k", "v", "bias"]


def test_attention_by_boolean_mask_hides_with_infinity():
    keep = np.tril(np.ones((1, 1, 5, 5), bool)) | (np.arange(5) == 2)
    model = _attention(masking=[("Where", "keep t inf", "masked")], inputs={"keep": (bool, ["b", 1, "s", "s"])})
    feeds = {n: np.random.default_rng(1).normal(size=(2, HEADS, 5, SIZE)).astype(np.float32) for n in "qkv"}
    result = optimized(model, feeds={**feeds, "keep": np.repeat(keep, 2, 0)})
    assert [n.op_type for n in result.graph.nodes] == ["Attention"]


def test_attention_with_a_finite_low_value_keeps_rows_that_are_masked_throughout():
    model = _attention(masking=[("Where", "keep t low", "masked")], inputs={"keep": (bool, ["b", 1, "s", "s"])})
    feeds = {n: np.random.default_rng(1).normal(size=(2, HEADS, 5, SIZE)).astype(np.float32) for n in "qkv"}
    keep = np.tril(np.ones((2, 1, 5, 5), bool))
    keep[0, 0, 3] = False
    result = optimized(model, feeds={**feeds, "keep": keep})
    assert counts(result.graph) == {"Where": 1, "Attention": 1}


def test_attention_guarded_against_rows_without_keys():
    model = _attention(masking=[("Where", "keep t inf", "masked")], guard=True, inputs={"keep": (bool, ["b", 1, "s", "s"])})
    feeds = {n: np.random.default_rng(1).normal(size=(2, HEADS, 5, SIZE)).astype(np.float32) for n in "qkv"}
    keep = np.tril(np.ones((2, 1, 5, 5), bool))
    keep[1, 0, 4] = False
    assert [n.op_type for n in optimized(model, feeds={**feeds, "keep": keep}).graph.nodes] == ["Attention"]


@pytest.mark.parametrize(
    "change",
    [
        {"softmax_axis": 2},
        {"outputs": ("y", "p")},
        {"outputs": ("y", "t")},
        {"tail": [("Neg", "p", "z")], "outputs": ("y", "z")},
    ],
)
def test_no_attention_over_other_axes_or_shared_weights(change):
    assert "Attention" not in counts(optimized(_attention(**change), sizes=SIZES).graph)


def _heads(name, x, target="split", perm=(0, 2, 1, 3)):
    return [("Reshape", f"{x} {target}", f"{name}r"), ("Transpose", f"{name}r", name, {"perm": list(perm)})]


def _whole(joined="rows", batch="b"):
    """Attention over [b, s, h*d] operands, with heads split and joined by Reshape and Transpose."""
    nodes = [
        *_heads("q", "qx"),
        *_heads("k", "kx"),
        *_heads("v", "vx"),
        *_scores("mul"),
        ("Softmax", "t", "p"),
        ("MatMul", "p v", "o"),
        ("Transpose", "o", "ot", {"perm": [0, 2, 1, 3]}),
        ("Reshape", f"ot {joined}", "y"),
    ]
    constants = {
        **CONSTANTS,
        "split": np.array([0, 0, HEADS, SIZE]),
        "rows": np.array([0, 0, WIDTH]),
        "flat": np.array([-1, WIDTH]),
    }
    return build(nodes, {n: [batch, "s", WIDTH] for n in ("qx", "kx", "vx")}, ["y"], constants)


def test_attention_without_head_transposes():
    (node,) = optimized(_whole(), sizes=SIZES).graph.nodes
    assert node.op_type == "Attention" and node.inputs == ["qx", "kx", "vx"]
    assert node.attributes["q_num_heads"] == node.attributes["kv_num_heads"] == HEADS


def test_attention_whose_result_is_seen_as_rows():
    assert counts(optimized(_whole("flat"), sizes=SIZES).graph) == {"Attention": 1, "Reshape": 1}


def test_key_transposed_in_one_step():
    nodes = [
        *_heads("q", "qx"),
        *_heads("kt", "kx", perm=(0, 2, 3, 1)),
        *_heads("v", "vx"),
        ("MatMul", "q kt", "u"),
        ("Mul", "u c", "t"),
        ("Softmax", "t", "p"),
        ("MatMul", "p v", "o"),
        ("Transpose", "o", "ot", {"perm": [0, 2, 1, 3]}),
        ("Reshape", "ot rows", "y"),
    ]
    constants = {**CONSTANTS, "split": np.array([0, 0, HEADS, SIZE]), "rows": np.array([0, 0, WIDTH])}
    model = build(nodes, {n: ["b", "s", WIDTH] for n in ("qx", "kx", "vx")}, ["y"], constants)
    (node,) = optimized(model, sizes=SIZES).graph.nodes
    assert node.inputs == ["qx", "kx", "vx"]


def test_heads_that_are_repeated_are_shared():
    def repeat(x, y):
        return [("Unsqueeze", f"{x} two", f"{x}u"), ("Expand", f"{x}u wide", f"{x}e"), ("Reshape", f"{x}e heads", y)]

    nodes = [*repeat("k0", "k"), *repeat("v0", "v"), *_scores("mul"), ("Softmax", "t", "p"), ("MatMul", "p v", "y")]
    constants = {**CONSTANTS, "two": np.array([2]), "wide": np.array([1, 1, 3, 1, 1]), "heads": np.array([2, 6, 5, 4])}
    model = build(nodes, {"q": [2, 6, 5, 4], "k0": [2, 2, 5, 4], "v0": [2, 2, 5, 4]}, ["y"], constants)
    (node,) = optimized(model).graph.nodes
    assert node.op_type == "Attention" and node.inputs == ["q", "k0", "v0"]


@pytest.mark.parametrize("by", ["Gather", "Slice"])
def test_packed_projection_is_unpacked_without_five_axes(by):
    nodes = [("Reshape", "x five", "x5"), ("Transpose", "x5", "t5", {"perm": [2, 0, 3, 1, 4]})]
    for i, n in enumerate("qkv"):
        if by == "Gather":
            nodes.append(("Gather", f"t5 i{i}", n, {"axis": 0}))
        else:
            nodes += [("Slice", f"t5 at{i} at{i + 1} at0", f"{n}5"), ("Squeeze", f"{n}5 at0", n)]
    nodes += [
        *_scores("mul"),
        ("Softmax", "t", "p"),
        ("MatMul", "p v", "o"),
        ("Transpose", "o", "ot", {"perm": [0, 2, 1, 3]}),
        ("Reshape", "ot rows", "y"),
    ]
    constants = {**CONSTANTS, "five": np.array([0, 0, 3, HEADS, SIZE]), "rows": np.array([0, 0, WIDTH])}
    constants |= {f"i{i}": np.array(i) for i in range(3)} | {f"at{i}": np.array([i]) for i in range(4)}
    result = optimized(build(nodes, {"x": ["b", "s", 3 * WIDTH]}, ["y"], constants), sizes=SIZES)
    assert counts(result.graph) == {"Slice": 3, "Attention": 1}


@pytest.mark.parametrize("bounds", [(0, 2), (0, 1, 1)])
def test_parts_that_are_more_than_one_or_of_another_axis_stay(bounds):
    """Slice and Squeeze of what has one element anyway."""
    low, high, *axis = bounds
    nodes = [("Reshape", "x five", "x5"), ("Transpose", "x5", "t5", {"perm": [2, 0, 3, 1, 4]})]
    nodes += [("Slice", "t5 low high axis", "s5"), ("Relu", "s5", "y")]
    if axis:
        nodes[-1] = ("Squeeze", "s5 axis", "y")
    constants = {"five": np.array([0, 0, 3, HEADS, SIZE]), "low": np.array([low]), "high": np.array([high])}
    constants["axis"] = np.array(axis or [0])
    result = optimized(build(nodes, {"x": [1, "s", 3 * WIDTH]}, ["y"], constants), sizes={"s": 5})
    assert counts(result.graph)["Transpose"] == 1


def _causal(mask_nodes, mask, constants, opset=20):
    nodes = [
        *mask_nodes,
        *_scores("mul"),
        ("Where", f"{mask} t low", "masked"),
        ("Softmax", "masked", "p"),
        ("MatMul", "p v", "y"),
    ]
    return build(nodes, FOUR, ["y"], {**CONSTANTS, **constants}, opset=opset)


def test_causal_mask_from_position_ids():
    nodes = [
        ("Shape", "q", "n", {"start": 2, "end": 3}),
        ("Squeeze", "n", "size"),
        ("Range", "i0 size i1", "at"),
        ("Unsqueeze", "at first", "column"),
        ("Unsqueeze", "at last", "row"),
        ("LessOrEqual", "column row", "keep"),
    ]
    constants = {"i0": np.array(0), "i1": np.array(1), "first": np.array([0, 1, 2]), "last": np.array([0, 1, 3])}
    (node,) = optimized(_causal(nodes, "keep", constants), sizes=SIZES).graph.nodes
    assert node.op_type == "Attention" and node.attributes["is_causal"] == 1 and len(node.inputs) == 3


def test_strictly_lower_mask_is_not_causal():
    nodes = [
        ("Shape", "q", "n", {"start": 2, "end": 3}),
        ("Squeeze", "n", "size"),
        ("Range", "i0 size i1", "at"),
        ("Unsqueeze", "at first", "column"),
        ("Unsqueeze", "at last", "row"),
        ("Less", "column row", "keep"),
    ]
    constants = {"i0": np.array(0), "i1": np.array(1), "first": np.array([0, 1, 2]), "last": np.array([0, 1, 3])}
    (attention,) = (
        n for n in optimized(_causal(nodes, "keep", constants), sizes=SIZES).graph.nodes if n.op_type == "Attention"
    )
    assert "is_causal" not in attention.attributes and len(attention.inputs) == 4


def test_causal_mask_cut_from_a_constant_square():
    nodes = [
        ("Shape", "q", "n", {"start": 2, "end": 3}),
        ("Concat", "n n", "nn", {"axis": 0}),
        ("Slice", "tri zeros nn last", "keep"),
    ]
    constants = {"tri": np.tri(8, dtype=bool).reshape(1, 1, 8, 8), "zeros": np.array([0, 0]), "last": np.array([2, 3])}
    (node,) = optimized(_causal(nodes, "keep", constants), sizes=SIZES).graph.nodes
    assert node.attributes["is_causal"] == 1


def _rotary(size=4, repeat=True):
    nodes = [
        ("Cos", "emb", "cos0"),
        ("Sin", "emb", "sin0"),
        ("Unsqueeze", "cos0 one", "cos"),
        ("Unsqueeze", "sin0 one", "sin"),
        ("Slice", "x zero half last", "low"),
        ("Slice", "x half end last", "high"),
        ("Neg", "high", "neg"),
        ("Concat", "neg low", "turned", {"axis": -1}),
        ("Mul", "x cos", "a"),
        ("Mul", "turned sin", "b"),
        ("Add", "a b", "y"),
    ]
    nodes = [("Concat", "f f" if repeat else "f g", "emb", {"axis": -1}), *nodes]
    constants = {
        "one": np.array([1]),
        "zero": np.array([0]),
        "half": np.array([size // 2]),
        "end": np.array([2**62]),
        "last": np.array([3]),
    }
    inputs = {"x": ["b", 3, "s", size], "f": ["b", "s", size // 2]} | ({} if repeat else {"g": ["b", "s", size // 2]})
    return build(nodes, inputs, ["y"], constants)


def test_rotary_embedding():
    found = counts(optimized(_rotary(), sizes=SIZES).graph)
    assert found["RotaryEmbedding"] == 1 and "Neg" not in found


def test_rotary_embedding_needs_equal_halves():
    assert "RotaryEmbedding" not in counts(optimized(_rotary(repeat=False), sizes=SIZES).graph)


def test_rotary_embedding_between_split_and_attention_takes_whole_rows():
    tables = [("Concat", "f f", "emb", {"axis": -1}), ("Cos", "emb", "cos0"), ("Sin", "emb", "sin0")]
    tables += [("Unsqueeze", "cos0 one", "cos"), ("Unsqueeze", "sin0 one", "sin")]

    def turn(x, y):
        halves = [
            ("Slice", f"{x} zero half last", f"{x}l"),
            ("Slice", f"{x} half end last", f"{x}h"),
            ("Neg", f"{x}h", f"{x}n"),
        ]
        halves += [("Concat", f"{x}n {x}l", f"{x}t", {"axis": -1}), ("Mul", f"{x} cos", f"{x}a"), ("Mul", f"{x}t sin", f"{x}b")]
        return [*halves, ("Add", f"{x}a {x}b", y)]

    nodes = [
        *tables,
        *_heads("q0", "qx"),
        *_heads("k0", "kx"),
        *_heads("v", "vx"),
        *turn("q0", "q"),
        *turn("k0", "k"),
        *_scores("mul"),
    ]
    nodes += [
        ("Softmax", "t", "p"),
        ("MatMul", "p v", "o"),
        ("Transpose", "o", "ot", {"perm": [0, 2, 1, 3]}),
        ("Reshape", "ot rows", "y"),
    ]
    constants = {**CONSTANTS, "split": np.array([0, 0, HEADS, SIZE]), "rows": np.array([0, 0, WIDTH]), "one": np.array([1])}
    constants |= {"zero": np.array([0]), "half": np.array([2]), "end": np.array([2**62]), "last": np.array([3])}
    inputs = {n: ["b", "s", WIDTH] for n in ("qx", "kx", "vx")} | {"f": [1, "s", SIZE // 2]}
    found = counts(optimized(build(nodes, inputs, ["y"], constants), sizes=SIZES).graph)
    assert (found["RotaryEmbedding"], found["Attention"], found["Transpose"], found["Expand"]) == (2, 1, 0, 2)


@pytest.mark.parametrize(("low", "fused"), [(-1e4, True), (-1e3, False)])
def test_how_low_a_causal_mask_must_be(low, fused):
    model = build(
        [*_scores("mul"), ("Where", "tri t floor", "masked"), ("Softmax", "masked", "p"), ("MatMul", "p v", "y")],
        {n: ["b", HEADS, 5, SIZE] for n in "qkv"},
        ["y"],
        {**CONSTANTS, "tri": np.tri(5, dtype=bool).reshape(1, 1, 5, 5), "floor": low},
    )
    found = optimized(model, sizes=SIZES).graph
    assert counts(found)["Attention"] == fused
    assert not fused or found.nodes[-1].attributes["is_causal"] == 1


@pytest.mark.parametrize(("value", "inputs"), [(0.0, 3), (-1.0, 4)])
def test_only_a_mask_of_zeros_is_dropped(value, inputs):
    nodes = [("Attention", "q k v mask", "y")]
    constants = {"mask": np.full((1, 1, 5, 5), value, np.float32)}
    model = build(nodes, {n: [2, HEADS, 5, SIZE] for n in "qkv"}, ["y"], constants, opset=23)
    (node,) = optimized(model, sizes=SIZES).graph.nodes
    assert len(node.inputs) == inputs
