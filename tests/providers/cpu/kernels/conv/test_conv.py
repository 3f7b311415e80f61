"""Which kernel a convolution gets, and that it is right for all sizes it meets."""

from __future__ import annotations

import numpy as np
import onnx.parser
import pytest

pytest.importorskip("llvmlite", reason="the CPU provider compiles with llvmlite")

from cpu_models import REFERENCE, Feeds, check, model_of, normal, session_of

import intarsia as ort
from intarsia.codegen.llvm.target import Target
from intarsia.providers.cpu.kernels.conv import few_output_channels_kernel, pointwise_kernel


def reference_of(text: str, constants: Feeds, feeds: Feeds) -> list[np.ndarray]:
    found: list[np.ndarray] = session_of(text, constants, REFERENCE).run(None, feeds)
    return found


def labels(session: ort.InferenceSession) -> list[str]:
    (program,) = session._model.programs
    return [step.label for segment in program.executable.segments() for step in segment.steps]


@pytest.mark.parametrize("shape", ["n, 32, 24, 20", "1, 32, h, w", "n, 32, h, w"])
def test_winograd_for_sizes_that_are_not_known(shape: str) -> None:
    text = f"""g (float[{shape}] x) => (float[n, 32, h, w] y) {{
        c = Conv <pads = [1, 1, 1, 1]> (x, f, b)  r = Relu(c)  y = Add(r, x) }}"""
    constants = {"f": normal(32, 32, 3, 3) / 16, "b": normal(32)}
    session = session_of(text, constants)
    assert [n for n in labels(session) if n.startswith("winograd")]
    for n, h, w in ((1, 24, 20), (3, 24, 20), (1, 5, 31), (0, 24, 20), (1, 24, 20)):
        given = [fixed if known.isdigit() else size for known, fixed, size in zip(
            shape.split(", "), (1, 32, 24, 20), (n, 32, h, w), strict=True
        )]  # fmt: skip
        x = {"x": normal(*given)}
        np.testing.assert_allclose(session.run(None, x)[0], reference_of(text, constants, x)[0], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("shape", ["n, 32, 4, 24, 20", "n, 32, d, h, w"])
def test_winograd_of_planes(shape: str) -> None:
    """Planes are channels; what lies outside is left out where the sums are direct."""
    text = f"""g (float[{shape}] x) => (float[n, 32, d, h, w] y) {{
        c = Conv <pads = [1, 1, 1, 1, 1, 1]> (x, f, b)  r = Relu(c)  y = Add(r, x) }}"""
    constants = {"f": normal(32, 32, 3, 3, 3) / 30, "b": normal(32)}
    options = ort.SessionOptions()
    options.add_session_config_entry("session.disable_winograd", "1")
    model = model_of(text, constants).SerializeToString()
    session, direct = session_of(text, constants), ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    assert [n for n in labels(session) if n.startswith("winograd")]
    assert not [n for n in labels(direct) if n.startswith("winograd")]
    for n, *size in ((1, 4, 24, 20), (2, 4, 24, 20), (3, 1, 5, 31), (0, 4, 24, 20)):
        if "h" not in shape:
            size = [4, 24, 20]
        x = {"x": normal(n, 32, *size)}
        expected = reference_of(text, constants, x)[0]
        for made in (session, direct):
            np.testing.assert_allclose(made.run(None, x)[0], expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("x", "f", "attributes"),
    [
        ((2, 40, 9, 11), (70, 40, 1, 1), ""),
        ((2, 40, 9, 11), (70, 40, 1, 1), "strides = [2, 2]"),
        ((1, 40, 9, 11), (70, 40, 5, 3), "pads = [2, 1, 2, 1]"),
        ((1, 24, 33, 11), (48, 24, 3, 3), "strides = [2, 1], pads = [1, 0, 0, 1]"),
        ((2, 24, 400), (33, 24, 4), "strides = [2], pads = [1, 2]"),
        ((2, 40, 300), (70, 40, 1), ""),
        ((1, 16, 5, 8, 9), (24, 16, 3, 3, 3), "pads = [1, 1, 1, 1, 1, 1]"),
        ((2, 20, 4, 7, 6), (33, 20, 2, 3, 3), "pads = [0, 1, 2, 1, 1, 0], strides = [2, 1, 2], dilations = [1, 2, 1]"),
        ((1, 48, 9, 11), (72, 24, 3, 3), "pads = [1, 1, 1, 1], group = 2"),
        ((2, 36, 7, 12), (48, 12, 3, 3), "pads = [2, 3, 2, 3], dilations = [2, 3], group = 3"),
        ((1, 32, 4, 6, 7), (32, 16, 3, 3, 3), "pads = [1, 1, 1, 1, 1, 1], group = 2"),
    ],
    ids=str,
)
@pytest.mark.parametrize("static", [False, True])
def test_blocked_sums(x: tuple[int, ...], f: tuple[int, ...], attributes: str, static: bool) -> None:
    given = ", ".join(map(str, x)) if static else ", ".join(["n", str(x[1]), *"hwd"[: len(x) - 2]])
    conv = f"Conv <{attributes}>" if attributes else "Conv"
    text = f"g (float[{given}] x) => (float[{', '.join('abcde'[: len(x)])}] y) {{ c = {conv} (x, f, b)  y = Tanh(c) }}"
    constants = {"f": normal(*f) / 20, "b": normal(f[0])}
    for threads in (1, 2):
        session = session_of(text, constants, threads=threads)
        expected = reference_of(text, constants, {"x": normal(*x)})[0]
        np.testing.assert_allclose(session.run(None, {"x": normal(*x)})[0], expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("sizes", ["2, 96, 21, 18", "n, 96, h, w"])
@pytest.mark.parametrize(("filters", "group"), [(96, 4), (144, 3), (96, 2)])
def test_groups_by_minimal_filtering(sizes: str, filters: int, group: int) -> None:
    """Two convolutions in wide groups, whose results are parts of an image, one with a residual."""
    text = f"""g (float[{sizes}] x) => (float[n, c, p, q] y) {{
        a = Conv <pads = [1, 1, 1, 1], group = {group}> (x, f, b)
        d = Conv <pads = [2, 2, 2, 2], dilations = [2, 2], group = {group}> (x, e)
        r = Add(d, a)  h = Relu(r)  y = Concat <axis = 1> (x, a, h) }}"""
    shape = (filters, 96 // group, 3, 3)
    constants = {"f": normal(*shape) / 16, "e": normal(*shape) / 16, "b": normal(filters)}
    for threads in (1, 3):
        session = session_of(text, constants, threads=threads)
        assert sum(label.startswith("winograd") for label in labels(session)) == 2
        for n, h, w in ((2, 21, 18), (2, 21, 18) if "h" not in sizes else (1, 30, 7)):
            x = normal(n, 96, h, w)
            expected = reference_of(text, constants, {"x": x})[0]
            np.testing.assert_allclose(session.run(None, {"x": x})[0], expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("sizes", ["1, 40, 21, 18", "n, 40, h, w"])
def test_pixels_that_strides_meet(sizes: str) -> None:
    """A pointwise convolution with strides, which some CPUs compute from a copy of what it sees, with a residual."""
    text = f"""g (float[{sizes}] x, float[n, 72, p, q] z) => (float[n, 72, p, q] y) {{
        a = Conv <strides = [2, 3]> (x, f, b)  c = Add(a, z)  y = Relu(c) }}"""
    constants = {"f": normal(72, 40, 1, 1) / 6, "b": normal(72)}
    known = (1, 21, 18) if "h" not in sizes else (3, 30, 7)
    feeds = [{"x": normal(n, 40, h, w), "z": normal(n, 72, -(-h // 2), -(-w // 3))} for n, h, w in ((1, 21, 18), known)]
    session = check(text, *feeds, constants=constants, rtol=3e-5)
    picks = [label for label in labels(session) if label == "pick"]
    assert len(picks) == pointwise_kernel.has_long_blocks(Target.host())


def test_residual_behind_a_window_of_one_axis() -> None:
    text = "g (float[2, 32, n] x) => (float[2, 32, n] y) { c = Conv <pads = [1, 1]> (x, f)  y = Add(c, x) }"
    check(text, {"x": normal(2, 32, 250)}, constants={"f": normal(32, 32, 3) / 10}, rtol=1e-4)


def test_a_batch_of_no_volumes() -> None:
    """Three axes with a border and constant weights, where only a run says that there is no image."""
    model = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["" : 17]> g (float[N,1,D,H,W] x) => (float[A,B,C,E,F] y)
        <float[1,1,1,1,1] w = {2}> { y = Conv<kernel_shape=[1,1,1], pads=[0,0,0,1,0,0]>(x, w) }""")
    made = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    for batch in (0, 2):
        (y,) = made.run(None, {"x": np.ones((batch, 1, 1, 1, 1), np.float32)})
        np.testing.assert_array_equal(y, np.broadcast_to(np.float32([2, 0]).reshape(1, 1, 2, 1, 1), (batch, 1, 2, 1, 1)))


# --- few filters: channels of the input across lanes --------------------------------------------------------------------

FEW = {  # filters, channels, kernel, stride, dilation, what follows
    "image": (3, 64, (9, 9), 1, 1, "y = Tanh(a)"),
    "depth": (1, 32, (3, 3), 1, 1, "y = Relu(a)"),
    "strided": (2, 40, (3, 3), 2, 1, "y = Mul(a, gain)"),
    "dilated": (4, 20, (5, 5), 1, 2, "y = Add(a, a)"),
    "wide": (8, 48, (7, 2), 1, 1, "y = Sigmoid(a)"),
    "four": (4, 64, (5, 5), 1, 1, "y = Relu(a)"),
    "one_pixel": (1, 150, (1, 1), 1, 1, "y = Identity(a)"),
    "line": (2, 33, (5,), 1, 1, "y = Relu(a)"),
    "volume": (1, 24, (3, 3, 3), 1, 1, "y = Relu(a)"),
}


@pytest.mark.parametrize("name", FEW)
def test_few_filters(name: str) -> None:
    filters, channels, kernel, stride, dilation, tail = FEW[name]
    rank = len(kernel)
    pads = [n // 2 * dilation for n in kernel] * 2
    sizes, out = ", ".join("dhw"[3 - rank :]), ", ".join("abc"[:rank])
    text = f"""g (float[n, {channels}, {sizes}] x) => (float[n, {filters}, {out}] y) {{
        a = Conv <pads = {pads}, strides = {[stride] * rank}, dilations = {[dilation] * rank}> (x, f, b)  {tail} }}"""
    constants = {"f": normal(filters, channels, *kernel) / 8, "b": normal(filters)}
    if "gain" in tail:
        constants["gain"] = normal(filters, *[1] * rank)
    feeds = [{"x": normal(n, channels, *s)} for n, s in ((2, (11, 9, 29)[3 - rank :]), (1, (7, 12, 18)[3 - rank :]))]
    session = check(text, *feeds, constants=constants, rtol=3e-5)
    wide = few_output_channels_kernel.takes((filters, channels, *kernel), 1, Target.host().vector_bytes // 4)
    assert bool([label for label in labels(session) if label.startswith("few filters")]) == wide


def test_few_filters_of_doubles_and_with_a_residual() -> None:
    text = """g (double[n, 32, h, w] x, double[n, 2, h, w] r) => (double[n, 2, h, w] y) {
        a = Conv <pads = [1, 1, 1, 1]> (x, f)  s = Add(a, r)  y = Relu(s) }"""
    check(
        text, {"x": normal(2, 32, 7, 13).astype(np.float64), "r": normal(2, 2, 7, 13).astype(np.float64)},
        constants={"f": normal(2, 32, 3, 3).astype(np.float64)}, rtol=1e-12,
    )  # fmt: skip


def test_few_filters_of_narrow_images_stay_with_the_product() -> None:
    assert few_output_channels_kernel.takes((3, 64, 3, 3), 1, 16) and few_output_channels_kernel.takes((8, 64, 5, 5), 1, 16)
    assert not few_output_channels_kernel.takes((3, 3, 3, 3), 1, 16)  # an image of three channels
    assert not few_output_channels_kernel.takes((3, 64, 3, 3), 3, 16)  # groups
    assert not few_output_channels_kernel.takes((8, 64, 3, 3), 1, 16)  # Winograd multiplies less
    assert not few_output_channels_kernel.takes((3, 64, 1, 1), 1, 16)  # too few products to pay for adding up lanes


def test_sizes_that_are_guessed_need_not_fit_together() -> None:
    """Which schedule is the fastest is asked with usual sizes for those that are not known: here 112 and 224 would be added."""
    text = """g (float[n, 16, h, w] x, float[n, 16, p, q] z) => (float[n, 16, a, b] y) {
        m = AveragePool <kernel_shape = [2, 2], strides = [2, 2]> (x)  s = Add(m, z)
        y = Conv <pads = [1, 1, 1, 1]> (s, f) }"""
    feeds = {"x": normal(1, 16, 12, 16), "z": normal(1, 16, 6, 8, seed=1)}
    check(text, feeds, constants={"f": normal(16, 16, 3, 3) / 12}, rtol=2e-4)


@pytest.mark.parametrize("mode", ["SAME_UPPER", "SAME_LOWER"])
@pytest.mark.parametrize(
    ("f", "attributes", "kernel"),
    [
        ((24, 16, 3, 3), "strides = [2, 2]", "conv"), ((16, 1, 3, 3), "strides = [2, 2], group = 16", "depthwise"),
        ((24, 16, 1, 1), "", "conv"), ((3, 64, 5, 5), "strides = [2, 1]", "few filters"),
        ((32, 16, 2, 4), "strides = [3, 1], dilations = [2, 1]", "conv"), ((32, 32, 3, 3), "", "winograd"),
    ],
)  # fmt: skip
def test_borders_that_sizes_decide(mode: str, f: tuple[int, ...], attributes: str, kernel: str) -> None:
    """auto_pad where sizes vary: with steps of 2 an even size has another border than an odd one."""
    channels = f[1] if "group" not in attributes else 16
    listed = ", ".join(filter(None, (f'auto_pad = "{mode}"', attributes)))
    text = f"g (float[n, {channels}, h, w] x) => (float[n, {f[0]}, p, q] y) {{ c = Conv <{listed}> (x, f)  y = Relu(c) }}"
    feeds = [{"x": normal(n, channels, h, w)} for n, h, w in (
        (1, 12, 12), (1, 13, 12), (2, 12, 17), (1, 1, 2), (1, 33, 29), (0, 12, 12), (1, 34, 30), (1, 12, 12)
    )]  # fmt: skip
    session = check(text, *feeds, constants={"f": normal(*f) / 8}, rtol=1e-4)
    assert [label for label in labels(session) if label.startswith(kernel)]


@pytest.mark.parametrize("operator", ["MaxPool", "AveragePool"])
def test_borders_of_pools_that_sizes_decide(operator: str) -> None:
    text = f"""g (float[n, 16, h, w] x) => (float[n, 16, p, q] y) {{ c = Conv (x, f)
        y = {operator} <kernel_shape = [3, 3], strides = [2, 2], auto_pad = "SAME_UPPER"> (c) }}"""
    feeds = [{"x": normal(1, 16, h, w)} for h, w in ((12, 12), (13, 12), (5, 8), (13, 13), (2, 1))]
    session = check(text, *feeds, constants={"f": normal(16, 16, 1, 1)}, rtol=1e-4)
    assert [label for label in labels(session) if "pool" in label]


@pytest.mark.parametrize(
    ("operator", "x", "f", "attributes", "kernel"),
    [
        ("Conv", (2, 40, 60, 1), (70, 40, 5, 1), "pads = [2, 0, 1, 0]", "conv 5 "),
        ("Conv", (2, 40, 61, 1), (70, 40, 4, 1), "pads = [2, 0, 1, 0], strides = [2, 3], dilations = [2, 1]", "conv 4 "),
        ("Conv", (1, 36, 260, 1), (48, 12, 3, 1), "pads = [1, 0, 1, 0], group = 3", "conv 3 "),
        ("Conv", (2, 40, 1, 60), (70, 40, 1, 5), "pads = [0, 2, 0, 1]", "conv 5 "),
        ("Conv", (2, 40, 60, 1), (40, 1, 9, 1), "pads = [4, 0, 4, 0], group = 40", "depthwise 9 "),
        ("Conv", (1, 64, 60, 1), (3, 64, 7, 1), "group = 1", "few filters 7 "),
        ("Conv", (1, 32, 20, 1, 30), (32, 32, 3, 1, 3), "pads = [1, 0, 1, 1, 0, 1]", "winograd"),
        ("Conv", (2, 24, 6, 7, 5), (40, 24, 3, 1, 1), "pads = [1, 0, 0, 1, 0, 0], strides = [2, 1, 1]", "conv 3x1 "),
        ("Conv", (2, 24, 6, 7, 5), (40, 24, 3, 1, 1), "pads = [1, 0, 0, 1, 0, 0], strides = [1, 1, 2]", "conv 3x1x1 "),
        ("Conv", (2, 40, 60, 1), (70, 40, 5, 1), 'auto_pad = "SAME_UPPER", strides = [2, 1]', "conv 5 "),
        ("MaxPool", (2, 40, 60, 1), (40, 40, 1, 1), "kernel_shape = [3, 1], strides = [2, 1], pads = [1, 0, 1, 0]", "max pool"),
        ("AveragePool", (2, 40, 60, 1), (40, 40, 1, 1), "kernel_shape = [3, 1], pads = [1, 0, 1, 0]", "average pool"),
        ("Conv", (2, 40, 60, 1), (70, 40, 5, 1), "pads = [2, 1, 1, 0]", "conv 5x1 "),
    ],
    ids=str,
)  # fmt: skip
@pytest.mark.parametrize("is_open", [False, True])
def test_windows_of_one_pixel_along_an_axis(
    operator: str, x: tuple[int, ...], f: tuple[int, ...], attributes: str, kernel: str, is_open: bool
) -> None:
    """Columns are lines; the border, or steps, of such an axis keep it."""
    given = ["n", x[1], *(d if d == 1 else "hwd"[i] for i, d in enumerate(x[2:]))] if is_open else list(x)
    conv = f"Conv <{attributes}> (x, f, b)" if operator == "Conv" else f"Conv (x, f, b)  c = {operator} <{attributes}> (z)"
    text = f"""g (float[{", ".join(map(str, given))}] x) => (float[{", ".join("abcde"[: len(x)])}] y) {{
        {"c" if operator == "Conv" else "z"} = {conv}  y = Tanh(c) }}"""
    feeds = [{"x": normal(*x)}]
    if is_open:
        feeds.append({"x": normal(x[0] + 1, x[1], *(d if d == 1 else d + 3 for d in x[2:]))})
    session = check(text, *feeds, constants={"f": normal(*f) / 20, "b": normal(f[0])}, rtol=1e-4)
    assert [label for label in labels(session) if label.startswith(kernel)], labels(session)


@pytest.mark.parametrize(("operator", "filters"), [("Conv", 4), ("Conv", 8), ("ConvTranspose", 4)])
def test_channels_of_their_own_whose_number_is_not_known(operator: str, filters: int) -> None:
    """The weights tell it: four groups of one channel."""
    rng = np.random.default_rng(8)
    x, w = rng.standard_normal((2, 4, 6)), rng.standard_normal((filters, 1, 1))
    text = f"""<ir_version: 8, opset_import: ["" : 17]> g (float[b, c, l] x, float[{filters}, 1, 1] w) => (float[p, q, r] y)
        {{ y = {operator}<group=4>(x, w) }}"""
    model = onnx.parser.parse_model(text)
    model.graph.input.pop()
    model.graph.initializer.append(onnx.numpy_helper.from_array(w.astype(np.float32), "w"))
    found = ort.InferenceSession(model.SerializeToString()).run(None, {"x": x.astype(np.float32)})[0]
    np.testing.assert_allclose(found, np.repeat(x, filters // 4, 1) * w[:, 0], rtol=1e-5, atol=1e-6)
