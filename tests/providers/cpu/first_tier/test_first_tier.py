"""The first tier: what its kernels give beside the reference's definitions, what it leaves to these, and that sessions start on
it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import onnx.parser
import pytest
from onnx import numpy_helper
from provider_cases import parameters

pytest.importorskip("llvmlite", reason="its kernels are compiled with llvmlite")

import intarsia as ort
from intarsia.codegen.llvm.target import Target
from intarsia.ep.node_program import NodeProgram
from intarsia.graph.model import Constant, Node
from intarsia.providers.cpu.first_tier import kernel_image, kernel_set, kernel_specs, program
from intarsia.providers.cpu.first_tier.kernel_calls import KernelCalls
from intarsia.providers.cpu.first_tier.program import FirstTierProvider
from intarsia.providers.registry import register_execution_provider, unregister_execution_provider
from intarsia.runtime.executor import get_pool
from intarsia.testing.cases import cases, run_case

NAME = "FirstTierAloneExecutionProvider"
SAMPLE = 12  # of ONNX's cases, every so many-th is no nightly one


class FirstTierAlone(FirstTierProvider):
    name = NAME


@pytest.fixture(scope="module", autouse=True)
def alone() -> Iterator[None]:
    if not kernel_image.is_made():
        assert kernel_image.make()
    register_execution_provider(FirstTierAlone)
    yield
    unregister_execution_provider(NAME)


def model_of(text: str, **weights: np.ndarray) -> bytes:
    model = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : 24]> {text}')
    for name, array in weights.items():
        model.graph.initializer.append(numpy_helper.from_array(array, name))
    return model.SerializeToString()


def session_of(model: bytes, provider: str = NAME) -> ort.InferenceSession:
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    return ort.InferenceSession(model, options, providers=[provider])


def drawn(*shape: int, seed: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def compare(model: bytes, left_to_the_reference: set[str] | None = None, **feeds: np.ndarray) -> np.ndarray:
    """The first result, beside the reference's; which operators have no kernel is what is said."""
    with pytest.MonkeyPatch.context() as patch:
        asked = []
        evaluate = program.evaluate
        patch.setattr(program, "evaluate", lambda node, operands: asked.append(node.op_type) or evaluate(node, operands))
        found = session_of(model).run(None, feeds)
    wanted = session_of(model, "ReferenceExecutionProvider").run(None, feeds)
    for a, b in zip(found, wanted, strict=True):
        assert a.dtype == b.dtype
        assert a.flags.c_contiguous
        np.testing.assert_allclose(a, b, rtol=2e-5, atol=2e-5)
    assert set(asked) == (left_to_the_reference or set())
    return np.asarray(found[0])


CONVOLUTIONS = [
    ((2, 3, 9, 11), (8, 3, 3, 3), "pads = [1, 1, 1, 1]"),
    ((1, 16, 7, 7), (40, 16, 1, 1), ""),
    ((1, 5, 12, 10), (33, 5, 3, 5), "strides = [2, 3], pads = [0, 2, 1, 0]"),
    ((1, 4, 12, 10), (6, 4, 3, 3), "dilations = [2, 3], pads = [2, 2, 2, 2]"),
    ((1, 8, 6, 6), (16, 2, 3, 3), "group = 4, pads = [1, 1, 1, 1]"),
    ((2, 24, 9, 9), (24, 1, 3, 3), "group = 24, pads = [1, 1, 1, 1]"),
    ((1, 20, 15, 15), (20, 1, 5, 5), "group = 20, strides = [2, 2], pads = [2, 2, 2, 2]"),
    ((1, 20, 9, 9), (20, 1, 3, 3), "group = 20, dilations = [2, 2]"),
    ((1, 20, 9, 9), (40, 1, 3, 3), "group = 20"),
    ((2, 6, 30), (10, 6, 5), "pads = [2, 2], strides = [2]"),
    ((1, 3, 5, 6, 7), (4, 3, 3, 3, 3), "pads = [1, 1, 1, 1, 1, 1]"),
]  # fmt: skip


@pytest.mark.parametrize(("shape", "filters", "attributes"), CONVOLUTIONS)
@pytest.mark.parametrize("biased", [False, True])
def test_convolutions(shape: tuple[int, ...], filters: tuple[int, ...], attributes: str, biased: bool) -> None:
    sizes = ", ".join(f"d{i}" for i in range(len(shape)))
    bias = {"b": drawn(filters[0], seed=3)} if biased else {}
    operands = "x, w, b" if biased else "x, w"
    text = f"g (float[{sizes}] x) => (float[] y) {{ y = Conv<{attributes}>({operands}) }}".replace("<>", "")
    compare(model_of(text.replace("float[] y", "float y"), w=drawn(*filters, seed=2), **bias), x=drawn(*shape))


def test_images_stay_channels_last_between_nodes() -> None:
    """Neither element-wise nodes nor pools copy what a convolution gave."""
    text = """g (float[n, c, h, w] x) => (float y) {
        a = Conv<pads = [1, 1, 1, 1]>(x, w1)  b = HardSwish(a)  c = Conv<group = 16, pads = [1, 1, 1, 1]>(b, w2)
        d = Add(b, c)  e = Relu(d)  f = MaxPool<kernel_shape = [3, 3], strides = [2, 2], pads = [1, 1, 1, 1]>(e)
        g1 = AveragePool<kernel_shape = [2, 2], strides = [2, 2]>(f)  h1 = Mul(g1, scale)  y = GlobalAveragePool(h1) }"""
    model = model_of(text, w1=drawn(16, 3, 3, 3, seed=2), w2=drawn(16, 1, 3, 3, seed=3), scale=drawn(1, 16, 1, 1, seed=4))
    compare(model, x=drawn(2, 3, 13, 14))
    text = text.replace("(float y)", "(float y, float e)")
    compare(model_of(text, w1=drawn(16, 3, 3, 3), w2=drawn(16, 1, 3, 3), scale=drawn(1, 16, 1, 1)), x=drawn(1, 3, 8, 9))


@pytest.mark.parametrize("kernel", [(2, 2), (3, 3), (5, 5)])
@pytest.mark.parametrize("op", ["MaxPool", "AveragePool", "AveragePool<count_include_pad = 1>"])
def test_pools(kernel: tuple[int, int], op: str) -> None:
    stride, pad = (2 if kernel[0] < 5 else 1), kernel[0] // 2
    attributes = f"kernel_shape = {list(kernel)}, strides = [{stride}, {stride}], pads = [{pad}, {pad}, 0, {pad}]"
    name, _, more = op.partition("<")
    text = f"g (float[n, c, h, w] x) => (float y) {{ y = {name}<{attributes}{', ' + more if more else '>'}(x) }}"
    compare(model_of(text), x=drawn(2, 19, 11, 9))


def test_windows_without_a_kernel_are_the_references() -> None:
    text = "g (float[n, c, h, w] x) => (float y) { y = MaxPool<kernel_shape = [4, 1], ceil_mode = 1>(x) }"
    compare(model_of(text), {"MaxPool"}, x=drawn(1, 3, 9, 9))


@pytest.mark.parametrize(("m", "k", "n"), [(1, 1, 1), (1, 300, 17), (5, 64, 64), (70, 33, 129), (200, 128, 96)])
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("biased", [False, True])
def test_gemm(m: int, k: int, n: int, transposed: bool, biased: bool) -> None:
    b = drawn(n, k, seed=2) if transposed else drawn(k, n, seed=2)
    text = f"g (float[m, k] a) => (float y) {{ y = Gemm<transB = {int(transposed)}>(a, b{', c' if biased else ''}) }}"
    compare(model_of(text, b=b, **({"c": drawn(1, n, seed=3)} if biased else {})), a=drawn(m, k))


def test_matmul_of_constant_matrices() -> None:
    text = "g (float[s, m, k] a) => (float y) { b1 = Transpose<perm = [1, 0, 2]>(a)  y = MatMul(b1, b) }"
    compare(model_of(text, b=drawn(48, 40, seed=2)), a=drawn(3, 21, 48))


@pytest.mark.parametrize("rows", [(7, 5), (2, 3, 33), (1, 4096), (600, 16)])
def test_rows(rows: tuple[int, ...]) -> None:
    sizes, n = ", ".join(f"d{i}" for i in range(len(rows))), rows[-1]
    text = f"""g (float[{sizes}] x) => (float a, float b, float c, float d, float e) {{
        a = LayerNormalization<epsilon = 0.001>(x, scale, bias)  b = RMSNormalization(x, scale)  c = Softmax(x)
        d = LogSoftmax<axis = -1>(x)  e = LayerNormalization(x, scale) }}"""
    compare(model_of(text, scale=drawn(n, seed=2), bias=drawn(n, seed=3)), x=drawn(*rows))


@pytest.mark.parametrize("op", [*kernel_specs.UNARY, "Relu"])
@pytest.mark.parametrize("shape", [(), (1,), (3, 1366), (4, 5, 6, 7)])
def test_unary(op: str, shape: tuple[int, ...]) -> None:
    sizes = f"[{', '.join(f'd{i}' for i in range(len(shape)))}]" if shape else ""
    call = 'Gelu<approximate = "tanh">' if op == "GeluTanh" else op
    x = np.asarray(4 * drawn(*shape), np.float32)
    x.flat[: 3 * (x.size > 3)] = [np.inf, -np.inf, np.nan][: 3 * (x.size > 3)]
    y = compare(model_of(f"g (float{sizes} x) => (float y) {{ y = {call}(x) }}"), x=x)
    assert y.shape == shape


@pytest.mark.parametrize(("a", "b"), [((3, 4), (4,)), ((2, 1, 5), (2, 3, 1)), ((1,), (6, 2)), ((2, 3, 4, 5), (1, 3, 1, 1))])
def test_binary(a: tuple[int, ...], b: tuple[int, ...]) -> None:
    sizes = [", ".join(f"{name}{i}" for i in range(len(shape))) for name, shape in (("p", a), ("q", b))]
    text = f"""g (float[{sizes[0]}] a, float[{sizes[1]}] b) => (float c, float d, float e, float f) {{
        c = Add(a, b)  d = Sub(a, b)  e = Mul(a, b)  f = Div(a, b) }}"""
    compare(model_of(text), a=drawn(*a), b=drawn(*b, seed=2))


def test_clip_has_bounds_or_not() -> None:
    text = """g (float[n] x) => (float a, float b, float c, float d) {
        a = Clip(x, low, high)  b = Clip(x, low)  c = Clip(x, "", high)  d = Clip(x) }""".replace('""', "")
    model = model_of(text, low=np.array(-0.5, np.float32), high=np.array(0.25, np.float32))
    compare(model, x=np.append(drawn(50), np.float32(np.nan)))


@pytest.mark.parametrize(
    ("text", "weights", "shape"),
    [
        ("y = Conv(x, w)", (4, 3, 3, 3), (1, 2, 8, 8)),
        ("y = Conv(x, w)", (4, 3, 3, 3), (1, 3, 2, 8)),
        ("y = MatMul(x, w)", (7, 5), (2, 2, 3, 6)),
        ("y = Add(x, w)", (7, 5), (1, 1, 3, 5)),
        ("y = LayerNormalization(x, w)", (5,), (1, 1, 3, 6)),
    ],
)
def test_sizes_that_do_not_fit_are_told_as_by_the_reference(
    text: str, weights: tuple[int, ...], shape: tuple[int, ...]
) -> None:
    model = model_of(f"g (float[a, b, c, d] x) => (float y) {{ {text} }}", w=drawn(*weights))
    told = []
    for provider in (NAME, "ReferenceExecutionProvider"):
        with pytest.raises(ort.Fail) as raised:
            session_of(model, provider).run(None, {"x": drawn(*shape)})
        told.append((type(raised.value), str(raised.value)))
    assert told[0] == told[1]


def test_operands_without_elements_and_of_other_types() -> None:
    text = "g (float[a, b, c, d] x, double[n] z) => (float y, double v) { y = Conv(x, w)  v = Exp(z) }"
    model = model_of(text, w=drawn(4, 3, 1, 1))
    y = compare(model, {"Conv", "Exp"}, x=drawn(0, 3, 4, 4), z=np.ones(3))
    assert y.shape == (0, 4, 4, 4)


def test_memory_has_its_limit() -> None:
    """A result that is larger than a session may have is an error that names the node, before it is made."""
    text = "g (float[a, b] x, float[c, d] z) => (float y) { y = Add(x, z) }"
    options = ort.SessionOptions()
    options.add_session_config_entry("session.memory_limit_mib", "16")
    session = ort.InferenceSession(model_of(text), options, providers=[NAME])
    with pytest.raises(ort.OutOfMemory, match="Add"):
        session.run(None, {"x": drawn(1, 4000), "z": drawn(4000, 1)})


@pytest.mark.parametrize("name", kernel_specs.UNARY)
def test_arguments_of_unary_kernels(name: str) -> None:
    kernel, told = kernel_set.unary_loop(name, Target.host()), kernel_specs.unary_sizes(name)
    assert (kernel.operands, tuple(map(str, kernel.sizes)), kernel.checked) == (
        told.operands, tuple(map(str, told.sizes)), False,
    )  # fmt: skip


@pytest.mark.parametrize("name", ["layer_norm", "rms_norm"])
def test_arguments_of_normalisations(name: str) -> None:
    kernel, told = kernel_set.normalisation_loop(name, Target.host()), kernel_specs.normalisation_sizes(name)
    assert (kernel.operands, tuple(map(str, kernel.sizes)), kernel.checked) == (
        told.operands, tuple(map(str, told.sizes)), False,
    )  # fmt: skip


def test_without_kernels_the_reference_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel_image, "load", lambda: None)
    x = drawn(3, 4)
    (y,) = session_of(model_of("g (float[m, n] x) => (float y) { y = Exp(x) }")).run(None, {"x": x})
    np.testing.assert_allclose(y, np.exp(x), rtol=1e-6)


def test_sessions_that_are_being_compiled_start_on_it(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Any] = []
    start = NodeProgram.__init__
    monkeypatch.setattr(NodeProgram, "__init__", lambda self, *a, **k: made.append(self) or start(self, *a, **k))
    options = ort.SessionOptions()
    options.add_session_config_entry("session.compile_in_background", "1")
    text = "g (float[n, k] x) => (float y) { h = MatMul(x, w)  y = Sigmoid(h) }"
    session = ort.InferenceSession(model_of(text, w=drawn(8, 8)), options, providers=["CPUExecutionProvider"])
    x = drawn(2, 8, seed=5)
    (y,) = session.run(None, {"x": x})
    np.testing.assert_allclose(y, 1 / (1 + np.exp(-(x @ drawn(8, 8)))), rtol=1e-5)
    assert made
    assert not any(function is program.evaluate for _, function, *_ in made[0]._steps)
    session.wait_until_compiled()


@pytest.mark.parametrize("name", parameters(cases(), SAMPLE))
def test_onnx_cases(name: str) -> None:
    _, wrong = run_case(cases()[name], [NAME])
    assert not wrong


ATTENTIONS = [
    ((2, 7, 24), (2, 9, 24), (2, 9, 40), "q_num_heads = 4, kv_num_heads = 4", None),
    ((1, 33, 64), (1, 17, 32), (1, 17, 48), "q_num_heads = 4, kv_num_heads = 2, scale = 0.3", None),
    ((2, 5, 24), (2, 5, 24), (2, 5, 24), "q_num_heads = 3, kv_num_heads = 3, is_causal = 1", None),
    ((2, 3, 8, 16), (2, 3, 6, 16), (2, 3, 6, 8), "", "float"),
    ((2, 4, 8, 16), (2, 2, 6, 16), (2, 2, 6, 8), "is_causal = 1", "bool"),
    ((1, 1, 1, 1), (1, 1, 1, 1), (1, 1, 1, 1), "", "float"),
    ((1, 5, 4), (1, 6, 4), (1, 6, 2), "q_num_heads = 2, kv_num_heads = 2", None),
    ((1, 2, 5, 1), (1, 2, 1, 1), (1, 2, 1, 3), "", None),
]  # fmt: skip


@pytest.mark.parametrize(("q", "k", "v", "attributes", "mask"), ATTENTIONS)
def test_attention(q: tuple[int, ...], k: tuple[int, ...], v: tuple[int, ...], attributes: str, mask: str | None) -> None:
    sizes = [", ".join(f"{name}{i}" for i in range(len(shape))) for name, shape in (("q", q), ("k", k), ("v", v))]
    inputs = ", ".join(f"float[{size}] {name}" for name, size in zip("qkv", sizes, strict=True))
    feeds = {"q": drawn(*q), "k": drawn(*k, seed=2), "v": drawn(*v, seed=3)}
    call = f"Attention<{attributes}>(q, k, v{', m' if mask else ''})".replace("<>", "")
    if mask:
        inputs += f", {mask}[b, 1, r, c] m"
        seen = np.random.default_rng(4).random((q[0], 1, q[2], k[2])) < 0.6
        seen[0, 0, 0] = False  # a row that sees nothing
        feeds["m"] = seen if mask == "bool" else np.where(seen, drawn(*seen.shape, seed=5), np.float32(-np.inf))
    compare(model_of(f"g ({inputs}) => (float y) {{ y = {call} }}"), **feeds)


def test_attention_with_a_cache_is_the_references() -> None:
    text = """g (float[b, h, s, d] q, float[b, h, s, d] k, float[b, h, s, d] v, float[b, h, p, d] pk, float[b, h, p, d] pv)
        => (float y, float nk, float nv) { y, nk, nv = Attention(q, k, v, , pk, pv) }"""
    one, past = drawn(1, 2, 1, 8), drawn(1, 2, 5, 8, seed=2)
    compare(model_of(text), {"Attention"}, q=one, k=one, v=one, pk=past, pv=past)


@pytest.mark.parametrize("biased", [False, True])
def test_transposed_convolutions_of_windows_side_by_side(biased: bool) -> None:
    text = f"""g (float[n, c, h, w] x) => (float y) {{
        a = Conv(x, w)  y = ConvTranspose<strides = [2, 3]>(a, v{", b" if biased else ""}) }}"""
    bias = {"b": drawn(7, seed=4)} if biased else {}
    compare(model_of(text, w=drawn(5, 3, 1, 1, seed=2), v=drawn(5, 7, 2, 3, seed=3), **bias), x=drawn(2, 3, 4, 5))


def test_other_transposed_convolutions_are_the_references() -> None:
    text = "g (float[n, c, h, w] x) => (float y) { y = ConvTranspose<strides = [2, 2], pads = [1, 1, 1, 1]>(x, v) }"
    compare(model_of(text, v=drawn(3, 4, 3, 3)), {"ConvTranspose"}, x=drawn(1, 3, 4, 5))


def test_parts_are_joined_and_split() -> None:
    text = """g (float[n, c, h, w] x, int64[r, s] i) => (float y, float z, int64 j, float t) {
        a = Conv(x, w)  b, d = Split<axis = 1, num_outputs = 2>(a)  e, f = Split<axis = -1>(d, lengths)
        g1 = Concat<axis = 1>(b, d, b)  y = Relu(g1)  z = Concat<axis = -1>(f, e)
        j = Concat<axis = 0>(i, i)  t = Transpose(e) }"""
    model = model_of(text, w=drawn(6, 3, 1, 1), lengths=np.array([2, 3], np.int64))
    y = compare(model, x=drawn(2, 3, 4, 5), i=np.arange(6).reshape(2, 3))
    assert y.shape == (2, 9, 4, 5)


def test_instance_normalisation() -> None:
    text = "g (float[n, c, l] x) => (float y) { y = InstanceNormalization<epsilon = 0.01>(x, s, b) }"
    compare(model_of(text, s=drawn(5, seed=2), b=drawn(5, seed=3)), x=drawn(2, 5, 77))


def test_wide_pools_are_taken_apart() -> None:
    text = """g (float[n, c, h, w] x) => (float y) {
        a = MaxPool<kernel_shape = [9, 1], pads = [4, 0, 4, 0]>(x)
        y = MaxPool<kernel_shape = [1, 9], pads = [0, 4, 0, 4]>(a) }"""
    compare(model_of(text), x=drawn(1, 20, 12, 13))


def test_a_scale_of_zero_is_zero() -> None:
    text = "g (float[b, h, s, d] q) => (float y) { y = Attention<scale = 0.0>(q, q, q) }"
    q = drawn(1, 2, 5, 8)
    np.testing.assert_allclose(compare(model_of(text), q=q), np.broadcast_to(q.mean(2, keepdims=True), q.shape), rtol=1e-5)


def test_hidden_keys_may_be_anything() -> None:
    """What a mask hides is not added to: infinity and NaN of a key that nobody sees stay unseen."""
    text = """g (float[b, h, s, d] q, float[b, h, t, d] k, float[b, h, t, d] v, bool[s, t] m) => (float y) {
        y = Attention(q, k, v, m) }"""
    k, seen = drawn(1, 2, 4, 8, seed=2), np.ones((3, 4), np.bool_)
    k[:, :, 1], k[:, :, 3], seen[:, [1, 3]] = np.inf, np.nan, False
    y = compare(model_of(text), q=drawn(1, 2, 3, 8), k=k, v=drawn(1, 2, 4, 8, seed=3), m=seen)
    assert np.isfinite(y).all()
    text = """g (float[b, h, s, d] q, float[b, h, s, d] k, float[b, h, s, d] v) => (float y) {
        y = Attention<is_causal = 1>(q, k, v) }"""
    k = drawn(1, 2, 3, 8, seed=2)
    k[:, :, 2] = np.nan
    compare(model_of(text), q=drawn(1, 2, 3, 8), k=k, v=drawn(1, 2, 3, 8, seed=3))


@pytest.mark.parametrize("view", [lambda x: x[::-1], lambda x: np.broadcast_to(x[:1], (6,)), lambda x: x[::2]])
def test_views_of_one_axis(view: Callable[[np.ndarray], np.ndarray]) -> None:
    """As operators of one's own may give them."""
    calls = kernel_calls()
    x = view(drawn(6))
    for op, wanted in (("Exp", np.exp), ("Relu", lambda x: np.maximum(x, 0))):
        node = Node(op, ["x"], ["y"], version=14)
        fast = program.maker(op)(node, {}, calls)
        assert fast is not None
        np.testing.assert_allclose(fast([x])[0], wanted(x), rtol=1e-6)


def kernel_calls() -> KernelCalls:
    addresses = kernel_image.load()
    assert addresses is not None
    return KernelCalls(addresses, get_pool(2), Target.host())


def test_numpys_warnings_are_nobodys() -> None:
    text = "g (float[n, c, l] x) => (float y, float z) { y = InstanceNormalization(x, s, b)  z = Div(x, x) }"
    model = model_of(text, s=np.full(2, 3e38, np.float32), b=np.full(2, 3e38, np.float32))
    session, x = session_of(model), np.zeros((1, 2, 9), np.float32)
    x[0, 0, 0] = 1
    with np.errstate(all="raise"):
        y, z = session.run(None, {"x": x})
    assert np.isinf(y).any()
    assert np.isnan(z).any()


def test_no_second_copy_of_packed_filters_stays_in_memory() -> None:
    text = "g (float[n, c, h, w] x) => (float y, float z, float u) { y = Conv(x, a)  z = Conv(x, b)  u = Add(b, one) }"
    model = model_of(text, a=drawn(4, 3, 1, 1), b=drawn(4, 3, 1, 1, seed=2), one=np.ones(1, np.float32))
    compare(model, x=drawn(1, 3, 5, 5))
    session = session_of(model)
    (made,) = session._engine.model.programs
    assert isinstance(made, NodeProgram)
    assert {name for name, value in made._constants.items() if isinstance(value, Constant)} == {"a"}


def test_errors_name_the_cpus_provider(monkeypatch: pytest.MonkeyPatch) -> None:
    def breaks(node: Node, operands: object) -> None:
        raise ValueError("no such number")

    monkeypatch.setattr(program, "evaluate", breaks)
    options = ort.SessionOptions()
    options.add_session_config_entry("session.first_tier_only", "1")
    session = ort.InferenceSession(model_of("g (float[n] x) => (float[n] y) { y = CumSum(x, a) }", a=np.array(0)), options)
    with pytest.raises(ort.EPFail, match=r"CPUExecutionProvider could not run node 'CumSum_0' .*no such number"):
        session.run(None, {"x": drawn(2)})


def test_values_that_nobody_reads_again_are_overwritten() -> None:
    """And no others: neither inputs, constants, outputs nor what a second node reads."""
    text = """g (float[n, c, h, w] x) => (float y, float z, float p, float q, float u) {
        a = Conv(x, w)  b = Relu(a)  y = Add(b, x)  d = Conv(x, w)  e = Relu(d)  z = Mul(d, e)
        p = Conv(x, w)  q = Relu(p)  i = Conv(x, w)  j = Clip(i, low, high)  k = Add(j, j)
        l = Sub(one, k)  u = Relu(l)  }"""
    weights = {"w": drawn(3, 3, 1, 1), "one": np.ones((1, 3, 1, 1), np.float32)}
    bounds = {"low": np.array(-0.5, np.float32), "high": np.array(0.5, np.float32)}
    x = drawn(2, 3, 5, 6)
    before = x.copy()
    model = model_of(text, **weights, **bounds)
    compare(model, x=x)
    np.testing.assert_array_equal(x, before)
    session = session_of(model)
    first, second = session.run(None, {"x": x}), session.run(None, {"x": x})
    for a, b in zip(first, second, strict=True):
        np.testing.assert_array_equal(a, b)


LAYERS = [
    ("LSTM", "", (5, 1, 6), 8), ("LSTM", "direction = \"reverse\"", (4, 3, 5), 20),
    ("LSTM", "direction = \"bidirectional\", layout = 1, hidden_size = 40", (7, 2, 3), 40),
    ("LSTM", "activations = [\"Sigmoid\", \"Tanh\", \"Tanh\"], clip = 0.0", (3, 17, 33), 17),
    ("LSTM", "direction = \"bidirectional\"", (30, 1, 64), 256),
    ("GRU", "", (5, 1, 6), 8), ("GRU", "direction = \"bidirectional\", linear_before_reset = 1", (4, 3, 5), 20),
    ("GRU", "layout = 1", (6, 2, 9), 33), ("GRU", "linear_before_reset = 1", (30, 1, 64), 200),
]  # fmt: skip


@pytest.mark.parametrize(("cell", "attributes", "shape", "hidden"), LAYERS)
@pytest.mark.parametrize("given", ["", "b", "b, , h0", "b, , h0, c0"])
def test_recurrent_layers(cell: str, attributes: str, shape: tuple[int, ...], hidden: int, given: str) -> None:
    """The sequence first, or the batch; with and without biases and first states."""
    if "c0" in given and cell == "GRU":
        pytest.skip("a GRU has one state")
    directions, gates = 1 + ("bidirectional" in attributes), {"LSTM": 4, "GRU": 3}[cell]
    batch = shape[0] if "layout = 1" in attributes else shape[1]
    state = (batch, directions, hidden) if "layout = 1" in attributes else (directions, batch, hidden)
    rows = gates * hidden
    weights = {"w": drawn(directions, rows, shape[2]), "r": drawn(directions, rows, hidden, seed=2) / hidden}
    if given:
        weights["b"] = drawn(directions, 2 * rows, seed=3)
    feeds = {name: drawn(*state, seed=4 + i) for i, name in enumerate(("h0", "c0")) if name in given}
    inputs = "".join(f", float[i{name}, j{name}, k{name}] {name}" for name in feeds)
    results = "y, h, c" if cell == "LSTM" else "y, h"
    text = f"g (float[s, n, d] x{inputs}) => ({', '.join(f'float {r}' for r in results.split(', '))}) {{"
    text += f"{results} = {cell}<{attributes}>(x, w, r{', ' + given if given else ''}) }}".replace("<>", "")
    compare(model_of(text, **weights), x=drawn(*shape, seed=9), **feeds)


@pytest.mark.parametrize(("attributes", "given"), [
    ("clip = 1.0", ""), ("input_forget = 1", ""), ("activations = [\"Relu\", \"Tanh\", \"Tanh\"]", ""), ("", ", , lengths"),
    ("", ", , , , , p"),
])  # fmt: skip
def test_recurrent_layers_of_the_reference(attributes: str, given: str) -> None:
    weights = {"w": drawn(1, 32, 5), "r": drawn(1, 32, 8, seed=2), "p": drawn(1, 24, seed=3)}
    text = f"g (float[s, n, d] x, int32[n] lengths) => (float y) {{ y = LSTM<{attributes}>(x, w, r{given}) }}".replace("<>", "")
    compare(model_of(text, **weights), {"LSTM"}, x=drawn(4, 2, 5), lengths=np.array([4, 2], np.int32))
