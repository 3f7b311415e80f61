"""Channels-last layout and fusion behind convolutions: results stay, and few transposes are left."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("llvmlite", reason="the CPU provider compiles with llvmlite")

from cpu_models import LEVELS, check, kernels, model_of, normal, session_of

from intarsia.graph.model import Graph

NET = """g (float[n, 3, {sizes}] x) => (float[n, c, {sizes_out}] y) {{
    a = Conv <pads = {pads}> (x, w1, b1)
    bn = BatchNormalization (a, scale, bias, mean, var)
    r = Relu(bn)
    c = Conv <pads = {pads}> (r, w2)
    s = Add(c, r)
    {tail} }}"""
SPATIAL = {3: ("h", (9,)), 4: ("h, w", (7, 6)), 5: ("d, h, w", (4, 5, 3))}


def network(rank: int, tail: str, outputs: str = "h, w") -> tuple[str, dict[str, np.ndarray], dict[str, np.ndarray]]:
    names, sizes = SPATIAL[rank]
    spatial = rank - 2
    constants = {
        "w1": normal(4, 3, *[3] * spatial) / 3, "b1": normal(4), "w2": normal(4, 4, *[3] * spatial, seed=1) / 4,
        "scale": normal(4, seed=2), "bias": normal(4, seed=3), "mean": normal(4, seed=4), "var": normal(4, seed=5) ** 2 + 0.5,
        "w3": normal(5, 4, *[1] * spatial), "slope": normal(4, *[1] * spatial), "one": np.ones((1,) * rank, np.float32),
        "pads": np.array([0, 1, *[1] * spatial, 0, 2, *[0] * spatial]), "axes": np.arange(2, rank), "channel": np.array([1]),
        "scales": np.array([1, 1, *[2.0] * spatial], np.float32),
    }  # fmt: skip
    text = NET.format(sizes=names, sizes_out=outputs, pads=[1] * (2 * spatial), tail=tail)
    used = {
        name: array
        for name, array in constants.items()
        if name in text.replace(",", " ").replace(")", " ").replace("(", " ").split()
    }
    return text, used, {"x": normal(2, 3, *sizes)}


TAILS = {
    "residual": "y = Relu(s)",
    "concat": "y = Concat <axis = 1> (s, r, x)",
    "concat_behind": "y = Concat <axis = -1> (s, r)",
    "resize": "y = Resize <mode = \"linear\"> (s, , scales)",
    "pad": "p = Pad(s, pads)  y = Neg(p)",
    "mean_kept": "m = ReduceMean <axes = {axes}, keepdims = 1> (s)  y = Mul(m, s)",
    "sum_over_channels": "m = ReduceSum <keepdims = 1> (s, channel)  y = Sub(s, m)",
    "max_over_channels": "y = ReduceMax <axes = [1], keepdims = 0> (s)",
    "pool": "y = MaxPool <kernel_shape = {twos}, strides = {twos}> (s)",
    "average": "y = AveragePool <kernel_shape = {twos}, auto_pad = \"SAME_UPPER\", count_include_pad = 1> (s)",
    "global_pool_flatten": "p = GlobalAveragePool(s)  y = Flatten(p)",
    "global_max": "y = GlobalMaxPool(s)",
    "mean_flat": "y = ReduceMean <axes = {axes}, keepdims = 0> (s)",
    "next_conv": "t = PRelu(s, slope)  u = Mul(t, one)  y = Conv(u, w3)",
    "softmax_between": "t = Softmax <axis = 1> (s)  y = Conv(t, w3)",
    "transpose": "y = Transpose(s)",
    "shape_only": "t = Shape(s)  e = ConstantOfShape(t)  y = Add(e, s)",
}  # fmt: skip


RESIZED = {  # the nodes behind a convolution, the operator set
    "sizes": (
        'v = Shape(z)  u = Slice(v, two, four)  w = Concat <axis = 0> (nc, u)  y = Resize <mode = "linear"> (c, , , w)',
        13,
    ),
    "scales": ('y = Resize <mode = "nearest"> (c, scales)', 10),
    "upsample": ('y = Upsample <mode = "linear"> (c, scales)', 9),
    "upsample_7": ('y = Upsample <mode = "nearest", scales = [1.0, 1.0, 2.0, 2.0]> (c)', 7),
}


@pytest.mark.parametrize("name", RESIZED)
def test_images_are_resized_channels_last(name: str) -> None:
    """Also by sizes that a run computes, and as older operator sets write it."""
    tail, opset = RESIZED[name]
    header = f'<ir_version: 8, opset_import: ["" : {opset}]>'
    more = ", float[n, a, p, q] z" if name == "sizes" else ""
    text = f"g (float[2, 3, h, w] x{more}) => (float[2, 4, p, q] r) {{ c = Conv(x, f)  {tail}  r = Conv(y, k) }}"
    constants = {"f": normal(4, 3, 1, 1), "k": normal(4, 4, 3, 3), "two": np.array([2]), "four": np.array([4]),
                 "nc": np.array([2, 4]), "scales": np.array([1, 1, 2, 2], np.float32)}  # fmt: skip
    words = tail.replace("(", " ").replace(")", " ").replace(",", " ").split()
    used = {k: v for k, v in constants.items() if k in words or k in "fk"}
    feeds = [{"x": normal(2, 3, *size)} | ({"z": normal(1, 1, 9, 11)} if more else {}) for size in ((5, 7), (8, 6))]
    check(text, *feeds, constants=used, header=header, rtol=2e-5)
    program = session_of(text, used, header=header)._model.programs[0]
    assert [n.op_type for n in program.lowered.graph.nodes].count("Transpose") == 2


@pytest.mark.parametrize("rank", [3, 4, 5])
@pytest.mark.parametrize("tail", sorted(TAILS))
def test_networks(tail: str, rank: int) -> None:
    if tail == "transpose" and rank == 3:
        pytest.skip("the same model as rank 4")
    text = TAILS[tail].replace("{axes}", str(list(range(2, rank)))).replace("{twos}", str([2] * (rank - 2)))
    model, constants, feeds = network(rank, text, "k" if tail in ("global_pool_flatten", "mean_flat") else "h, w")
    header = '<ir_version: 8, opset_import: ["" : 13]>'
    check(model, feeds, constants=constants, header=header, rtol=2e-5)


def lowered_graph(text: str, constants: dict[str, np.ndarray]) -> Graph:
    (program,) = session_of(text, constants)._model.programs
    return program.lowered.graph


def test_a_network_is_transposed_once_at_each_end() -> None:
    text, constants, _ = network(4, "p = MaxPool <kernel_shape = [2, 2]> (s)  q = Pad(p, pads)  y = Concat <axis = 1> (q, q)")
    operators = [n.op_type for n in lowered_graph(text, constants).nodes]
    assert operators.count("Transpose") == 2 + operators.count("BatchNormalization") * 2


def test_pooled_features_are_not_transposed_back() -> None:
    text = """g (float[n, 3, h, w] x) => (float[n, 4] y) {
        c = Conv(x, f)  r = Relu(c)  y = ReduceMean <axes = [2, 3], keepdims = 0> (r) }"""
    assert [n.op_type for n in lowered_graph(text, {"f": normal(4, 3, 1, 1)}).nodes].count("Transpose") == 1


FIXED = "g (float[n, 3, 6, 4] x) => (float[{out}] y) {{ c = Conv <pads = [1, 1, 1, 1]> (x, f)  {tail} }}"
_SHUFFLE = "a = Reshape(c, five)  t = Transpose <perm = [0, 2, 1, 3, 4]> (a)  b = Reshape(t, back)"
_LAST = "t = Transpose <perm = [0, 2, 3, 1]> (c)"
_BACK = f"{_LAST}  s = Softmax <axis = -1> (t)  u = Add(s, t)  v = Transpose <perm = [0, 3, 1, 2]> (u)  w = Add(v, c)"
_THEN = "then_branch = then () => (float[n, 6, 4, 4] p) { p = Neg(t) }"
_ELSE = "else_branch = other () => (float[n, 6, 4, 4] q) { q = Abs(t) }"
MOVES = {  # the output's sizes, the nodes, how many transposes are left
    "split": ("n, 4, 6, 4", "a, b = Split <axis = 1> (c, halves)  t = Concat <axis = 1> (b, a)  y = Conv(t, g)", 2),
    "slice": ("n, 4, 3, 3", "s = Slice(c, low, high, axes)  t = Slice(s, zero, four, one)  y = Conv(t, g)", 2),
    "shuffle": ("n, 4, 6, 4", f"{_SHUFFLE}  y = Conv(b, g)", 3),
    "shuffled_and_used": ("n, 4, 6, 4", f"{_SHUFFLE}  z = Neg(a)  u = Reshape(z, back)  y = Add(u, b)", 3),
    "pixels": ("n, 4, 24", "a = Reshape(c, flat)  b = Relu(a)  y = Softmax <axis = -1> (b)", 2),
    "last": ("n, 6, 4, 4", f"{_LAST}  y = Softmax <axis = -1> (t)", 1),
    "last_is_output": ("n, 6, 4, 4", "y = Transpose <perm = [0, 2, 3, 1]> (c)", 1),
    "there_and_back": ("n, 4, 6, 4", f"{_BACK}  y = Conv(w, g)", 2),
    "captured": ("n, 6, 4, 4", f"{_LAST}  y = If (yes) <{_THEN}, {_ELSE}>", 1),
    "one_pixel": ("n, 4", "p = GlobalMaxPool(c)  y = Reshape(p, pair)", 1),
    "squeezed": (
        "n, 4, 4",
        "m = ReduceMean <axes = [2]> (c)  s = Squeeze(m, axis)  r = Relu(s)  y = Transpose <perm = [0, 2, 1]> (r)",
        1,
    ),
    "squeezed_to_channels": ("n, 4", "p = GlobalMaxPool(c)  y = Squeeze(p, axes)", 1),
    "squeezed_batch": ("4, 6, 4", "h = ReduceMax <axes = [0]> (c)  y = Squeeze(h, zero)", 2),
    "other_channels": ("n, 2, 48", "y = Reshape(c, other)", 2),
}


@pytest.mark.parametrize("name", MOVES)
def test_the_models_own_moves_need_no_transposes(name: str) -> None:
    out, tail, transposes = MOVES[name]
    constants = {
        "f": normal(4, 3, 3, 3), "g": normal(4, 4, 1, 1), "halves": np.array([2, 2]), "low": np.array([1, 0]),
        "high": np.array([4, 3]), "zero": np.array([0]), "four": np.array([4]), "one": np.array([1]),
        "five": np.array([0, 2, 2, 6, 4]), "back": np.array([0, 4, 6, 4]), "flat": np.array([0, 4, 24]),
        "pair": np.array([0, 4]), "other": np.array([0, 2, 48]), "yes": np.array(True), "axes": np.array([2, -1]),
        "axis": np.array([2]),
    }  # fmt: skip
    words = tail.replace("(", " ").replace(")", " ").replace(",", " ").split()
    used = {k: v for k, v in constants.items() if k in words or k == "f"}
    text = FIXED.format(out=out, tail=tail)
    check(text, {"x": normal(2, 3, 6, 4)}, constants=used, rtol=2e-5)
    operators = [n.op_type for n in lowered_graph(text, used).nodes]
    assert operators.count("Transpose") == transposes


_IMAGE = "t = Transpose <perm = [0, 2, 1]> (x)  i = Reshape(t, image)"
_TOKENS = "o = Reshape(d, flat)  y = Transpose <perm = [0, 2, 1]> (o)"
TOKENS = {  # tokens (one row a pixel) as an image: its sizes, the nodes, the output, how many transposes are left
    "fixed": ([0, 4, 3, 5], f"{_IMAGE}  d = Conv <pads = [1, 1, 1, 1]> (i, f)  {_TOKENS}", "n, p, 4", 0),
    "one_size_is_left_open": ([0, 4, -1, 5], f"{_IMAGE}  d = Conv <pads = [1, 1, 1, 1]> (i, f)  {_TOKENS}", "n, p, 4", 0),
    "resized": (
        [0, 4, 3, 5],
        f"{_IMAGE}  r = Resize(i, , scales)  c = Concat <axis = 1> (r, r)  y = Conv(c, g)",
        "n, 4, h, w",
        1,
    ),
    "no_convolution": ([0, 4, 3, 5], f"{_IMAGE}  y = Relu(i)", "n, 4, h, w", 1),
    "other_channels": ([0, 2, 6, 5], f"{_IMAGE}  y = Conv(i, k)", "n, 2, h, w", 3),
}


@pytest.mark.parametrize("name", TOKENS)
def test_tokens_that_become_an_image_are_not_transposed(name: str) -> None:
    image, tail, out, transposes = TOKENS[name]
    constants = {
        "f": normal(4, 4, 3, 3), "g": normal(4, 8, 1, 1), "k": normal(2, 2, 1, 1), "image": np.array(image),
        "flat": np.array([0, 4, -1]), "scales": np.array([1, 1, 2, 2], np.float32),
    }  # fmt: skip
    words = tail.replace("(", " ").replace(")", " ").replace(",", " ").split()
    used = {k: v for k, v in constants.items() if k in words}
    text = f"g (float[n, 15, 4] x) => (float[{out}] y) {{ {tail} }}"
    check(text, {"x": normal(2, 15, 4)}, constants=used, rtol=2e-5)
    operators = [n.op_type for n in lowered_graph(text, used).nodes]
    assert operators.count("Transpose") == transposes


def test_tokens_of_an_image_whose_sizes_only_a_run_knows() -> None:
    text = """g (float[n, 4, h, w] x) => (float[n, p, 4] y) {
        s = Shape(x)  b = Gather(s, zero)  hw = Gather(s, sizes)  flat = Concat <axis = 0> (b, four, rest)
        a = Conv <pads = [1, 1, 1, 1]> (x, f)  o = Reshape(a, flat)  t = Transpose <perm = [0, 2, 1]> (o)  m = MatMul(t, q)
        u = Transpose <perm = [0, 2, 1]> (m)  image = Concat <axis = 0> (b, four, hw)  i = Reshape(u, image)
        c = Conv <pads = [1, 1, 1, 1]> (i, f)  e = Reshape(c, flat)  y = Transpose <perm = [0, 2, 1]> (e) }"""
    constants = {
        "zero": np.array([0]), "sizes": np.array([2, 3]), "four": np.array([4]), "rest": np.array([-1]),
        "f": normal(4, 4, 3, 3), "q": normal(4, 4, seed=1),
    }  # fmt: skip
    check(text, {"x": normal(2, 4, 3, 5)}, {"x": normal(1, 4, 6, 2)}, constants=constants, rtol=2e-5)
    assert [n.op_type for n in lowered_graph(text, constants).nodes].count("Transpose") == 1


_CRD = 'DepthToSpace <blocksize = 2, mode = "CRD">'
BLOCKS = {  # nodes behind a convolution, the output's channels, how many transposes are left
    "columns_first": ("y = DepthToSpace <blocksize = 2> (a)", 4, 2),
    "depth_first": (f"y = {_CRD} (a)", 4, 2),  # the convolution's filters are put in another order
    "depth_first_read_twice": (f"d = {_CRD} (a)  e = {_CRD} (a)  y = Add(d, e)", 4, 2),
    "depth_first_behind_relu": (f"r = Relu(a)  y = {_CRD} (r)", 4, 2),
    "depth_first_and_next": (f"d = {_CRD} (a)  p = PRelu(d, slope)  y = Conv(p, g)", 3, 2),
    "space_to_depth": ("s = SpaceToDepth <blocksize = 2> (a)  y = Relu(s)", 64, 3),
}


@pytest.mark.parametrize("name", BLOCKS)
def test_blocks_of_pixels_stay_channels_last(name: str) -> None:
    tail, channels, transposes = BLOCKS[name]
    constants = {"f": normal(16, 8, 3, 3) / 8, "b": normal(16), "slope": normal(4, 1, 1), "g": normal(3, 4, 1, 1)}
    used = {k: v for k, v in constants.items() if k in ("f", "b") or f"{k})" in tail}
    text = f"g (float[n, 8, 6, 10] x) => (float[n, {channels}, h, w] y) {{ a = Conv <pads = [1, 1, 1, 1]> (x, f, b)  {tail} }}"
    check(text, {"x": normal(2, 8, 6, 10)}, constants=used, rtol=2e-5)
    assert [n.op_type for n in lowered_graph(text, used).nodes].count("Transpose") == transposes


@pytest.mark.parametrize("rank", [3, 4, 5])
@pytest.mark.parametrize(
    "norm", ["InstanceNormalization <epsilon = 0.01>", "GroupNormalization <num_groups = 4, epsilon = 0.01>"]
)
def test_normalization_by_channels_needs_no_transposes(norm: str, rank: int) -> None:
    names, sizes = SPATIAL[rank]
    spatial = rank - 2
    text = f"""g (float[n, 16, {names}] x) => (float[n, 16, {names}] y) {{
        a = Conv <pads = {[1] * 2 * spatial}> (x, f)  b = {norm} (a, scale, bias)  c = Relu(b)
        y = Conv <pads = {[1] * 2 * spatial}> (c, f) }}"""
    constants = {"f": normal(16, 16, *[3] * spatial) / 12, "scale": normal(16), "bias": normal(16, seed=1)}
    header = '<ir_version: 10, opset_import: ["" : 21]>'
    feeds = [{"x": normal(2, 16, *sizes) + 3}, {"x": normal(1, 16, *(n + 2 for n in sizes))}]
    check(text, *feeds, constants=constants, header=header, rtol=2e-4)
    (program,) = session_of(text, constants, header=header)._model.programs
    assert [n.op_type for n in program.lowered.graph.nodes].count("Transpose") == 2


def test_normalization_by_computed_scales() -> None:
    text = """g (float[n, 16, h, w] x, float[16] scale, float[16] bias) => (float[n, 16, h, w] y) {
        a = Conv <pads = [1, 1, 1, 1]> (x, f)  b = InstanceNormalization(a, scale, bias)  y = Conv(b, g) }"""
    constants = {"f": normal(16, 16, 3, 3) / 12, "g": normal(16, 16, 1, 1)}
    check(text, {"x": normal(2, 16, 5, 7), "scale": normal(16), "bias": normal(16, seed=1)}, constants=constants, rtol=2e-4)


@pytest.mark.parametrize("sizes", ["5, 7", "h, w"])
@pytest.mark.parametrize(
    "pool",
    [
        "AveragePool <kernel_shape = [80, 90], strides = [80, 90], ceil_mode = 1>",
        "AveragePool <kernel_shape = [9, 8], strides = [9, 9], ceil_mode = 1, count_include_pad = 1>",
        "MaxPool <kernel_shape = [9, 9], strides = [9, 9], ceil_mode = 1>",
        "AveragePool <kernel_shape = [5, 7]>",
    ],
)
def test_a_window_over_all_pixels(pool: str, sizes: str) -> None:
    """With ceil_mode it may be larger than the image."""
    text = f"g (float[n, 4, {sizes}] x) => (float[n, 4, a, b] y) {{ c = Conv(x, f)  y = {pool} (c) }}"
    header = '<ir_version: 8, opset_import: ["" : 17]>'
    constants, x = {"f": normal(4, 4, 1, 1)}, normal(2, 4, 5, 7)
    session = check(text, {"x": x}, constants=constants, rtol=2e-5, header=header)
    pixels = np.einsum("nchw,dc->ndhw", x, constants["f"][:, :, 0, 0])
    whole = (np.max if pool.startswith("Max") else np.mean)(pixels, (2, 3), keepdims=True)
    np.testing.assert_allclose(session.run(None, {"x": x})[0], whole, rtol=1e-4, atol=1e-5)
    (program,) = session_of(text, constants, level=LEVELS[1], header=header)._model.programs
    assert any(n.op_type.startswith("Global") for n in program.lowered.graph.nodes) == (sizes == "5, 7")


COMPUTED = {  # the filters' sizes, attributes, what follows
    "same": ((5, 6, 3, 3), "pads = [1, 1, 1, 1]", "y = Relu(c)"),
    "strided": ((5, 6, 3, 2), "strides = [2, 1], pads = [1, 0, 0, 1]", "y = Relu(c)"),
    "dilated": ((5, 6, 3, 3), "dilations = [2, 2], pads = [2, 2, 2, 2]", "y = Conv(c, f)"),
    "pointwise": ((5, 6, 1, 1), "group = 1", "y = Conv(c, f)"),
    "padded_to_its_size": ((5, 6, 3, 3), 'auto_pad = "SAME_UPPER"', "y = Relu(c)"),
    "groups": ((6, 2, 3, 3), "group = 3, pads = [1, 1, 1, 1]", "y = Relu(c)"),
}


@pytest.mark.parametrize("bias", ["", ", b"])
@pytest.mark.parametrize("name", COMPUTED)
def test_convolutions_by_computed_filters(name: str, bias: str) -> None:
    filters, attributes, tail = COMPUTED[name]
    text = f"""g (float[n, 6, 12, 11] x, float[{", ".join(map(str, filters))}] w) => (float[n, k, h, q] y) {{
        v = Tanh(w)  c = Conv <{attributes}> (x, v{bias})  {tail} }}"""
    constants = {"f": normal(4, filters[0], 1, 1)} if "f)" in tail else {}
    if bias:
        constants["b"] = normal(filters[0])
    feeds = [{"x": normal(n, 6, 12, 11), "w": normal(*filters)} for n in (2, 1)]
    check(text, *feeds, constants=constants, rtol=2e-5)
    multiplied = "MatMul" in [n.op_type for n in lowered_graph(text, constants).nodes]
    assert multiplied == (name not in ("groups", "padded_to_its_size"))


PACKED = {  # images, filters, attributes
    "few_pixels_are_not": ((24, 3, 5), (20, 24, 3, 3), "pads = [1, 1, 1, 1]"),
    "windows": ((24, 12, 11), (20, 24, 3, 3), "pads = [1, 1, 1, 1]"),
    "windows_of_odd_channels": ((19, 32, 13), (33, 19, 3, 2), "strides = [2, 1], pads = [1, 0, 0, 1]"),
    "dilated": ((8, 12, 11), (5, 8, 3, 3), "dilations = [2, 2], pads = [2, 2, 2, 2]"),
    "pointwise": ((37, 12, 11), (21, 37, 1, 1), "group = 1"),
    "pointwise_of_some_pixels": ((37, 23, 24), (21, 37, 1, 1), "strides = [2, 2]"),
    "one_axis": ((20, 300), (16, 20, 5), "pads = [2, 2]"),
    "three_axes": ((16, 5, 6, 7), (17, 16, 2, 3, 3), "pads = [0, 1, 1, 1, 1, 1]"),
    "groups": ((32, 12, 11), (48, 16, 3, 3), "group = 2, pads = [1, 1, 1, 1]"),
    "depthwise": ((21, 12, 11), (21, 1, 5, 5), "group = 21, pads = [2, 2, 2, 2]"),
    "depthwise_of_crowded_lines": ((64, 9, 16), (64, 1, 7, 7), "group = 64, pads = [3, 3, 3, 3]"),
}


@pytest.mark.parametrize("tail", ["y = Relu(c)", "d = Add(c, b)  y = Relu(d)"])
@pytest.mark.parametrize("name", PACKED)
def test_computed_filters_are_packed_in_the_run(name: str, tail: str) -> None:
    (channels, *sizes), filters, attributes = PACKED[name]
    axes = [chr(ord("p") + i) for i in range(len(sizes))]
    text = f"""g (float[n, {channels}, {", ".join(map(str, sizes))}] x, float[{", ".join(map(str, filters))}] w)
        => (float[n, k, {", ".join(axes)}] y) {{ v = Tanh(w)  c = Conv <{attributes}> (x, v)  {tail} }}"""
    constants = {"b": normal(filters[0], *[1] * len(sizes))} if "b" in tail.split("y")[0] else {}
    feeds = [{"x": normal(n, channels, *sizes), "w": normal(*filters, seed=n)} for n in (2, 1, 40)]
    session = check(text, *feeds, constants=constants, rtol=2e-5)
    (program,) = session._model.programs
    steps = [s for segment in program.executable.segments() for s in segment.steps]
    packs = [s for s in steps if s.label.startswith("pack ")]
    assert len(packs) == (name != "few_pixels_are_not")


# --- what is fused -----------------------------------------------------------------------------------------------------


def test_bias_activation_and_residual_are_one_kernel_with_the_convolution() -> None:
    text = """g (float[n, 4, h, w] x) => (float[n, 4, h, w] y) {
        a = Conv <pads = [1, 1, 1, 1]> (x, f, b)  r = Relu(a)  y = Add(r, x) }"""
    constants = {"f": normal(4, 4, 3, 3), "b": normal(4)}
    session = check(text, {"x": normal(1, 4, 5, 6)}, constants=constants)
    found = kernels(session)
    assert found["Conv_0"] == found["Relu_1"] == found["Add_2"] == "Conv+Relu+Add"


def test_gelu_is_one_kernel_behind_the_value_that_it_uses_twice() -> None:
    text = """g (float[n, 8] x) => (float[n, 6] y) <float half = {0.5}, float one = {1}, float root = {0.70710678}> {
        m = MatMul(x, w)  a = Add(m, b)  s = Mul(a, root)  e = Erf(s)  p = Add(e, one)  h = Mul(a, half)  y = Mul(h, p) }"""
    session = check(text, {"x": normal(3, 8)}, {"x": normal(1, 8)}, constants={"w": normal(8, 6), "b": normal(6)})
    found = kernels(session)
    assert found["MatMul_0"] == found["Add_1"] == "MatMul+Add"  # a is used twice: it is stored once
    assert {found[n] for n in ("Mul_2", "Erf_3", "Add_4", "Mul_5", "Mul_6")} == {"Mul+Erf+Add+Mul+Mul"}


def test_values_with_several_uses_are_computed_once() -> None:
    text = "g (float[n] x) => (float[n] y, float[n] z) { e = Exp(x)  y = Neg(e)  z = Abs(e) }"
    found = kernels(check(text, {"x": normal(5)}))
    assert [found[n] for n in ("Exp_0", "Neg_1", "Abs_2")] == ["Exp", "Neg", "Abs"]


def test_outputs_inside_a_chain_are_stored() -> None:
    text = "g (float[n, 4] x) => (float[n, 4] a, float[n, 4] y) { m = MatMul(x, w)  a = Relu(m)  b = Neg(a)  y = Exp(b) }"
    found = kernels(check(text, {"x": normal(2, 4)}, constants={"w": normal(4, 4)}))
    assert [found[n] for n in ("MatMul_0", "Relu_1", "Neg_2", "Exp_3")] == ["MatMul+Relu", "MatMul+Relu", "Neg+Exp", "Neg+Exp"]


@pytest.mark.parametrize(
    ("operand", "shape"), [("column", (6,)), ("row", (3, 1)), ("full", (3, 6)), ("scalar", (1,)), ("batch", (2, 3, 6))]
)
def test_operands_behind_a_matrix_product(operand: str, shape: tuple[int, ...]) -> None:
    dims = ", ".join(map(str, shape))
    text = f"g (float[3, 8] x, float[{dims}] c) => (float[a, b] y) {{ m = MatMul(x, w)  s = Add(c, m)  y = Tanh(s) }}"
    if len(shape) == 3:
        text = text.replace("[a, b]", "[a, b, c]")
    check(text, {"x": normal(3, 8), "c": normal(*shape)}, constants={"w": normal(8, 6)})


@pytest.mark.parametrize(
    "attributes", ["", "alpha = 0.5, beta = 2.0", "transB = 1", "beta = 0.0", "transA = 1", "alpha = 3.0, transB = 1"]
)
@pytest.mark.parametrize("c", [(), (1,), (6,), (5, 1), (5, 6), (1, 6)])
def test_gemm(attributes: str, c: tuple[int, ...]) -> None:
    a, b = ([8, 5] if "transA" in attributes else [5, 8]), ([6, 8] if "transB" in attributes else [8, 6])
    shape = f"float{list(c)}" if c else "float"
    text = f"g (float{a} a, float{b} b, {shape} c) => (float[5, 6] y) {{ g = Gemm <{attributes}> (a, b, c)  y = Relu(g) }}"
    check(text.replace(" <>", ""), {"a": normal(*a), "b": normal(*b), "c": normal(*c).reshape(c)})


@pytest.mark.parametrize(
    "shapes",
    [
        ((2, 3, 4), (4, 5)),
        ((2, 3, 4), (2, 4, 5)),
        ((2, 1, 3, 4), (7, 4, 5)),
        ((4,), (4, 5)),
        ((3, 4), (4,)),
        ((0, 4), (4, 5)),
        ((3, 0), (0, 5)),
    ],
)
@pytest.mark.parametrize("kind", ["float", "double", "float16", "int32"])
def test_products_of_any_shape_and_type(shapes: tuple[tuple[int, ...], ...], kind: str) -> None:
    a, b = ((normal(*s) * 3).astype({"float": "f4", "double": "f8", "float16": "f2", "int32": "i4"}[kind]) for s in shapes)
    out = ", ".join(f"d{i}" for i in range((a @ b).ndim))
    result = f"{kind}[{out}]" if out else kind
    text = f"g ({kind}{list(a.shape)} a, {kind}{list(b.shape)} b) => ({result} y) {{ m = MatMul(a, b)  y = Add(m, m) }}"
    check(text, {"a": a, "b": b}, rtol=5e-3 if kind == "float16" else 1e-5)


# --- each kernel behind a convolution ------------------------------------------------------------------------------------

WINDOWED = {
    "plain": "Conv <strides = [2, 1], dilations = [1, 2], pads = [1, 0, 2, 1]> (x, f33, b)",
    "valid": 'Conv <auto_pad = "VALID"> (x, f33)',
    "same_upper": 'Conv <auto_pad = "SAME_UPPER", strides = [2, 2]> (x, f33, b)',
    "same_lower": 'Conv <auto_pad = "SAME_LOWER", strides = [2, 2], kernel_shape = [3, 3]> (x, f33)',
    "grouped": "Conv <group = 2, pads = [1, 1, 1, 1]> (x, g33, b)",
    "depthwise": "Conv <group = 4, pads = [1, 1, 1, 1], strides = [2, 2]> (x, d33, b)",
    "pointwise": "Conv (x, f11)",
    "transposed": "ConvTranspose <strides = [2, 2], pads = [1, 1, 0, 0]> (x, t33, b)",
    "transposed_same": 'ConvTranspose <auto_pad = "SAME_UPPER", strides = [2, 2]> (x, t33, b)',
    "transposed_grouped": "ConvTranspose <strides = [3, 1], group = 2, output_padding = [1, 0]> (x, u33)",
    "max_pool": "MaxPool <kernel_shape = [3, 2], strides = [2, 2], pads = [1, 0, 1, 1], ceil_mode = 1> (x)",
    "max_pool_dilated": "MaxPool <kernel_shape = [2, 2], dilations = [2, 3]> (x)",
    "average_pool": "AveragePool <kernel_shape = [3, 3], strides = [2, 2], pads = [1, 1, 1, 1]> (x)",
    "average_same": 'AveragePool <kernel_shape = [3, 3], strides = [2, 2], auto_pad = "SAME_LOWER"> (x)',
}
FILTERS = {
    "f33": (4, 4, 3, 3), "b": (4,), "g33": (4, 2, 3, 3), "d33": (4, 1, 3, 3), "f11": (4, 4, 1, 1), "t33": (4, 4, 3, 3),
    "u33": (4, 3, 3, 3),
}  # fmt: skip


@pytest.mark.parametrize("kind", ["float", "double"])
@pytest.mark.parametrize("sizes", ["h, w", "9, 7"])
@pytest.mark.parametrize("name", sorted(WINDOWED))
def test_windowed_operators_with_something_behind(name: str, sizes: str, kind: str) -> None:
    text = f"""g ({kind}[n, 4, {sizes}] x) => ({kind}[n, c, p, q] y, {kind}[n, c, p, q] z) {{ y = {WINDOWED[name]}
        r = Relu(y)  z = Add(r, y) }}"""
    dtype = np.float32 if kind == "float" else np.float64
    constants = {
        n: normal(*s).astype(dtype) for n, s in FILTERS.items() if n in text.replace(",", " ").replace(")", " ").split()
    }
    check(text, {"x": normal(2, 4, 9, 7).astype(dtype)}, constants=constants)


@pytest.mark.parametrize("mode", ["NOTSET", "SAME_UPPER", "SAME_LOWER"])
def test_transposed_convolutions_of_a_wanted_shape(mode: str) -> None:
    """The border follows from it: an odd one is larger before, or behind (SAME_UPPER)."""
    text = f"""g (float[n, 4, 9, 7] x) => (float[n, 4, 18, 14] y) {{
        c = ConvTranspose <auto_pad = "{mode}", strides = [2, 2], output_shape = [18, 14]> (x, f, b)  y = Relu(c) }}"""
    constants = {"f": normal(4, 4, 3, 3), "b": normal(4)}
    check(text, {"x": normal(2, 4, 9, 7)}, {"x": normal(0, 4, 9, 7)}, constants=constants)
    (program,) = session_of(text, constants, level=LEVELS[1])._model.programs
    assert "Interleave" in [n.op_type for n in program.lowered.graph.nodes]


def test_many_channels_of_known_size() -> None:
    """Large enough for the minimal filtering algorithm; results are rounded a little more."""
    text = """g (float[1, 64, 28, 28] x) => (float[1, 64, 28, 28] y) { c = Conv <pads = [1, 1, 1, 1]> (x, f, b)
        r = Relu(c)  y = Add(r, x) }"""
    check(text, {"x": normal(1, 64, 28, 28)}, constants={"f": normal(64, 64, 3, 3) / 24, "b": normal(64)}, rtol=1e-4)


@pytest.mark.parametrize("dilation", [1, 2])
def test_winograd_can_be_turned_off(dilation: int) -> None:
    import intarsia as ort

    pads = [dilation] * 4
    text = f"""g (float[1, 32, 24, 24] x) => (float[1, 32, 24, 24] y) {{
        y = Conv <pads = {pads}, dilations = [{dilation}, {dilation}]> (x, f) }}"""
    constants, feeds = {"f": normal(32, 32, 3, 3) / 10}, {"x": normal(1, 32, 24, 24)}
    session = check(text, feeds, constants=constants, rtol=5e-5)
    options = ort.SessionOptions()
    options.add_session_config_entry("session.disable_winograd", "1")
    direct = ort.InferenceSession(model_of(text, constants).SerializeToString(), options, providers=["CPUExecutionProvider"])

    def labels(of: ort.InferenceSession) -> str:
        (program,) = of._model.programs
        return " ".join(step.label for segment in program.executable.segments() for step in segment.steps)

    assert "winograd" in labels(session) and "winograd" not in labels(direct)
    np.testing.assert_allclose(direct.run(None, feeds)[0], session.run(None, feeds)[0], atol=1e-4)


@pytest.mark.parametrize("scales", [(), (4,)])
def test_quantisation_between_convolutions(scales: tuple[int, ...]) -> None:
    text = """g (float[n, 4, h, w] x) => (float[n, 4, h, w] y) {
        a = Conv (x, f)  q = QuantizeLinear <axis = 1> (a, s, zero)
        d = DequantizeLinear <axis = 1> (q, s, zero)  y = Conv(d, f) }"""
    constants = {"f": normal(4, 4, 1, 1), "s": np.full(scales, 0.25, np.float32), "zero": np.full(scales, 3, np.int8)}
    check(text, {"x": normal(1, 4, 3, 5)}, constants=constants)
