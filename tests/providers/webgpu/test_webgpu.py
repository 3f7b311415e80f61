"""WebGPU for real: on a software Vulkan driver where there is no GPU (Debian: mesa-vulkan-drivers)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from device_graphs import planned, values_of

import intarsia
from intarsia.codegen.clike import GPU, PROCESSOR, Dialect, Kernel, Limits, Tuning, Wgsl
from intarsia.device.webgpu import missing, open_device
from intarsia.ep.device import DeviceTensor
from intarsia.graph.dtypes import DType
from intarsia.primitives import lang as k
from intarsia.primitives.interpreter import interpret

pytestmark = pytest.mark.skipif(bool(missing()), reason=f"no WebGPU device: {missing()}")
ONLY = ["WebGpuExecutionProvider"]


def session(nodes: Sequence[object], inputs: dict[str, tuple[int, list[object]]], outputs: Sequence[str],
            constants: dict[str, np.ndarray] | None = None) -> intarsia.InferenceSession:  # fmt: skip
    """A model of these nodes, every node on the device."""
    from onnx import helper, numpy_helper

    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info(n, kind, shape) for n, (kind, shape) in inputs.items()],
        [helper.make_empty_tensor_value_info(n) for n in outputs],
        [numpy_helper.from_array(a, n) for n, a in (constants or {}).items()],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    options = intarsia.SessionOptions()
    options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
    return intarsia.InferenceSession(model.SerializeToString(), options, ONLY, enable_fallback=False)


def on_device(roots: Sequence[k.Tensor], operands: Sequence[np.ndarray], dialect: Dialect | None = None) -> list[np.ndarray]:
    """Values of primitive graphs over `input(i)`, by kernels in this dialect (None: the device's)."""
    return values_of(planned(open_device(), roots, operands, dialect), operands)


def check(roots: Sequence[k.Tensor], *operands: np.ndarray, tolerance: float = 1e-5) -> None:
    for found, wanted in zip(on_device(roots, operands), interpret(roots, operands), strict=True):
        assert found.dtype == wanted.dtype
        np.testing.assert_allclose(found.astype(np.float64), wanted.astype(np.float64), rtol=tolerance, atol=tolerance)


SPECIAL = np.array([0.0, -0.0, 1.0, -1.5, 2.5, 3.5, -7.25, 1e-3, 0.4, 88.0, np.nan, np.inf, -np.inf], np.float32)
FLOAT_UNARY = sorted(k.UNARY - {"not", "bitnot"})


def test_float_functions() -> None:
    """All in one submission: half a minute on a software driver otherwise."""
    roots = [k.unary(op, k.input(0, DType.FLOAT, SPECIAL.shape)) for op in FLOAT_UNARY]
    found = on_device(roots, [SPECIAL])
    for op, value, wanted in zip(FLOAT_UNARY, found, interpret(roots, [SPECIAL]), strict=True):
        np.testing.assert_allclose(value.astype(np.float64), wanted.astype(np.float64), rtol=1e-4, atol=1e-6, err_msg=op)


DOUBLES = np.array([
    0.0, -0.0, 1.0, -1.0, 0.5, -0.3, 1e-9, -1e-300, 5e-324, 2.5, -7.25, 30.0, 88.0, -300.5, 709.5, 745.0, -745.0, 1e6, 1e300,
    np.nan, np.inf, -np.inf, *np.linspace(-8, 8, 41), *np.linspace(-1, 1, 33),
])  # fmt: skip


def test_functions_of_doubles() -> None:
    """Written out, since WGSL has only their arithmetic; one kernel for all would be too large for the driver."""
    x = k.input(0, DType.DOUBLE, DOUBLES.shape)
    roots = [k.unary(op, x) for op in FLOAT_UNARY]
    for op, value, root in zip(FLOAT_UNARY, on_device(roots, [DOUBLES]), roots, strict=True):
        with np.errstate(all="ignore"):
            (wanted,) = interpret([root], [DOUBLES])
        huge = (np.abs(DOUBLES) > 1e7) & np.isfinite(DOUBLES) & (op in ("sin", "cos", "tan"))
        assert (np.abs(value[huge]) <= 1.6).all() or op == "tan"
        value, wanted = (a.astype(np.float64)[~huge] for a in (value, wanted))
        np.testing.assert_allclose(value, wanted, rtol=2e-14, atol=1e-15 if op in ("sin", "cos") else 1e-307, err_msg=op)


def test_powers_of_doubles() -> None:
    bases = np.array([2.0, 3.0, -2.0, 10.0, 0.5, 1.7, -0.0, 0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 7.0])
    exponents = np.array([0.0, 1.0, 3.0, -2.0, 15.0, 0.5, -1.5, 2000.0, np.inf, np.nan, -1.0, 22.0])
    x, y = (a.ravel() for a in np.meshgrid(bases, exponents))
    root = k.binary("pow", *(k.input(i, DType.DOUBLE, x.shape) for i in range(2)))
    (found,) = on_device([root], [x, y])
    with np.errstate(all="ignore"):
        wanted = np.power(x, y)
    whole = (y == np.floor(y)) & (np.abs(y) <= 22)
    np.testing.assert_allclose(found, wanted, rtol=1e-13)
    np.testing.assert_array_equal(found[whole & (y >= 0) & (x == np.floor(x))], wanted[whole & (y >= 0) & (x == np.floor(x))])


def test_bits_of_64() -> None:
    x = np.array([1.5, -2.0, np.inf])
    wide = k.bitcast(k.input(0, DType.DOUBLE, (3,)), DType.INT64)
    found = on_device([wide, k.bitcast(wide + 1, DType.DOUBLE)], [x])
    np.testing.assert_array_equal(found[0], x.view(np.int64))
    np.testing.assert_array_equal(found[1].view(np.int64), x.view(np.int64) + 1)


@pytest.mark.parametrize("dtype", [np.float32, np.int32, np.int64, np.uint8, np.int8], ids=lambda d: np.dtype(d).name)
def test_arithmetic(dtype: type) -> None:
    rng = np.random.default_rng(0)
    low = 0 if np.dtype(dtype).kind == "u" else -9
    a, b = (rng.integers(low, 9, (4, 5)).astype(dtype) for _ in range(2))
    ops = ["add", "sub", "mul", "div", "min", "max", "eq", "ne", "lt", "le"] + (
        [] if dtype is np.float32 else ["mod", "fmod", "bitand"]
    )
    if dtype is np.float32:
        a[0, 0] = np.nan
    else:
        b[b == 0] = 3
    x, y = (k.input(i, DType.of(dtype), (4, 5)) for i in range(2))
    check([k.binary(op, x, y) for op in ops], a, b)


@pytest.mark.parametrize("dtype", [np.int64, np.uint64], ids=lambda d: np.dtype(d).name)
def test_integers_of_two_words(dtype: type) -> None:
    """What a device without 64-bit integers computes, against numbers of all sizes."""
    rng, info = np.random.default_rng(0), np.iinfo(dtype)
    some = [0, 1, 2, 3, 7, 255, 2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**32 + 1, 2**53 + 1, info.max, info.max - 1, info.min]
    some += [-1, -2, -(2**31), -(2**32), -(2**40) - 5] if info.min else [2**63, 2**63 + 12345]
    many = [int(v) for v in rng.integers(info.min, info.max, 40, dtype=dtype)] + [int(v) for v in rng.integers(1, 99, 20)]
    values = np.array([*some, *many], dtype)
    a, b = values, rng.permutation(values)
    x, y = (k.input(i, DType.of(dtype), a.shape) for i in range(2))
    divisor = k.select(
        k.binary("bitand", k.equal(x, int(info.min)), k.equal(k.unary("bitnot", y), 0)), 1, k.binary("bitor", y, 1)
    )
    ops = ["add", "sub", "mul", "min", "max", "eq", "ne", "lt", "le", "bitand", "bitor", "bitxor"]
    roots = [k.binary(op, x, y) for op in ops] + [k.binary(op, x, divisor) for op in ("div", "mod", "fmod")]
    roots += [k.binary(op, x, k.binary("bitand", y, 63)) for op in ("shl", "shr")]
    roots += [k.unary(op, x) for op in ("neg", "abs", "sign", "bitnot")] + [k.binary("pow", x, k.binary("bitand", y, 7))]
    roots += [k.cast(x, to) for to in (DType.INT32, DType.UINT32, DType.UINT8, DType.BOOL, DType.UINT64, DType.INT64)]
    roots += [k.cast(k.cast(x, DType.INT32), DType.of(dtype)), k.sort(x, 0)[0], k.scan(x, "sum", 0), k.reduce_max(x, [0])]
    with np.errstate(all="ignore"):
        wanted = interpret(roots, [a, b])
    for i, found in enumerate(on_device(roots, [a, b], Wgsl(features=(), limits=Limits(32)))):
        np.testing.assert_array_equal(found, wanted[i], err_msg=repr(roots[i]))


def test_floats_and_integers_of_two_words() -> None:
    x = np.array([0.0, -0.5, 1.5, -7.9, 2.0**31, -(2.0**31), 2.0**40 + 2.0**20, -(2.0**62), 16777217.0], np.float32)
    whole = k.cast(k.input(0, DType.FLOAT, x.shape), DType.INT64)
    table = k.input(1, DType.FLOAT, (4,))
    rows = np.array([3, -1, 0], np.int64)
    picked = k.take(table, k.wrap_indices(k.input(2, DType.INT64, (3,)), 4), 0)
    found = on_device([whole, k.cast(whole, DType.FLOAT), picked], [x, np.arange(4, dtype=np.float32), rows],
                      Wgsl(features=(), limits=Limits(32)))  # fmt: skip
    np.testing.assert_array_equal(found[0], x.astype(np.int64))
    np.testing.assert_allclose(found[1], np.trunc(x), rtol=1e-7)
    np.testing.assert_array_equal(found[2], [3, 3, 0])


@pytest.mark.parametrize("to", [
    DType.FLOAT16, DType.BFLOAT16, DType.FLOAT8E4M3FN, DType.FLOAT8E5M2, DType.FLOAT8E4M3FNUZ, DType.FLOAT8E5M2FNUZ,
    DType.INT8, DType.UINT8, DType.INT64, DType.BOOL, DType.INT4,
], ids=lambda d: d.onnx_name)  # fmt: skip
def test_casts_and_back(to: DType) -> None:
    x = np.array([0.0, -0.0, 1.0, -2.5, 3.3, 0.06, 1e-6, -7.0, 6.0, 5e-8], np.float32)
    if to is DType.BOOL or to.is_floating:
        x = np.concatenate([x, [500.0, -70000.0, np.nan, np.inf, -np.inf]]).astype(np.float32)
    t = k.cast(k.input(0, DType.FLOAT, x.shape), to)
    (found,), (wanted,) = on_device([t], [x]), interpret([t], [x])
    np.testing.assert_array_equal(found.view(np.uint8), wanted.view(np.uint8))
    check([k.cast(k.input(0, to, x.shape), DType.FLOAT)], wanted)


def test_rows_products_and_convolutions() -> None:
    rng = np.random.default_rng(1)
    x = rng.standard_normal((7, 300)).astype(np.float32)
    t = k.input(0, DType.FLOAT, x.shape)
    e = k.exp(t - k.reduce_max(t, [1], True))
    check([e / k.reduce_sum(e, [1], True), k.reduce_mean(t, [0]), k.reduce(t, "prod", [0, 1])], x)
    a, b, c = (rng.standard_normal(s).astype(np.float32) for s in ((2, 70, 33), (33, 90), (90,)))
    ts = [k.input(i, DType.FLOAT, y.shape) for i, y in enumerate((a, b, c))]
    check([k.tanh(k.dot(ts[0], ts[1]) + ts[2])], a, b, c)
    image, w = (rng.standard_normal(s).astype(np.float32) for s in ((2, 3, 9, 8), (5, 27)))
    view = k.windows(
        k.pad(k.input(0, DType.FLOAT, image.shape), (0, 0, 1, 1), (0, 0, 1, 1), 0.0), (2, 3), (3, 3), (2, 1), (1, 1)
    )
    columns = k.reshape(k.transpose(view, (0, 1, 4, 5, 2, 3)), (2, 27, 40))
    check([k.dot(k.input(1, DType.FLOAT, w.shape), columns)], image, w)


def test_values_larger_than_a_binding() -> None:
    """Bound as several windows: read, gathered from, multiplied, packed, scattered into."""
    rng = np.random.default_rng(2)
    x, w = rng.standard_normal((40, 70)).astype(np.float32), rng.standard_normal((70, 65)).astype(np.float32)
    small = rng.integers(-128, 128, 5000).astype(np.int8)
    rows = np.array([39, 0, 7])
    tx, tw, ts, ti = (k.input(i, DType.of(a.dtype), a.shape) for i, a in enumerate((x, w, small, rows)))
    update = k.scatter(k.neg(tx), [ti, k.iota((3,), 0)], k.full((3,), 5.0, DType.FLOAT))
    roots = [k.take(tx, ti, 0), k.dot(tx, tw), k.neg(ts), k.reduce_sum(tx, [0]), update, k.sort(k.reshape(tx, (2800,)), 0)[0]]
    narrow = Wgsl(limits=Limits(32, 256, 16384, 65535, 4096))
    for found, wanted in zip(on_device(roots, (x, w, small, rows), narrow), interpret(roots, (x, w, small, rows)), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("tuning", [GPU, PROCESSOR], ids=["shared", "direct"])
def test_products_of_all_sizes(tuning: Tuning) -> None:
    """Whole and partial tiles, aligned rows and others, both operands from one matrix, other types, batches, transposed."""
    rng, dialect = np.random.default_rng(3), Wgsl(limits=Limits(32), tuning=tuning)
    sizes = ((1, 64, 64, 64), (2, 70, 33, 90), (1, 3, 40, 36), (1, 130, 132, 68), (1, 1, 64, 100))
    for batch, rows, terms, columns in sizes:
        shapes = ((batch, rows, terms), (terms, columns), (columns, terms), (columns,))
        arrays = [rng.standard_normal(s).astype(np.float32) for s in shapes]
        a, b, turned, c = (k.input(i, DType.FLOAT, s) for i, s in enumerate(shapes))
        roots = [k.tanh(k.dot(a, b) + c), k.dot(a, k.transpose(turned, (1, 0)))]
        roots += [k.dot(a, a) + a] if rows == terms else []
        for found, wanted in zip(on_device(roots, arrays, dialect), interpret(roots, arrays), strict=True):
            np.testing.assert_allclose(found, wanted, rtol=1e-3, atol=1e-3)
    whole = [rng.integers(-9, 9, s).astype(np.int32) for s in ((70, 20), (20, 80))]
    product = k.dot(*(k.input(i, DType.INT32, a.shape) for i, a in enumerate(whole)))
    np.testing.assert_array_equal(on_device([product], whole, dialect)[0], whole[0] @ whole[1])


@pytest.mark.parametrize(("heads", "groups", "rows", "keys", "size", "causal", "bias"), [
    (4, 4, 9, 9, 8, False, False), (4, 2, 7, 12, 16, True, True), (2, 2, 70, 66, 6, True, False),
    (3, 3, 33, 20, 32, False, True),
])  # fmt: skip
def test_attention_without_its_scores_in_memory(
    heads: int, groups: int, rows: int, keys: int, size: int, causal: bool, bias: bool
) -> None:
    from dataclasses import replace

    from intarsia.codegen.clike import Cut
    from intarsia.ops.nn.attention import Scores, attend, frontier

    rng = np.random.default_rng(4)
    shapes = ((2, heads, rows, size), (2, groups, keys, size), (2, groups, keys, 8), (rows, keys))
    arrays = [rng.standard_normal(s).astype(np.float32) for s in shapes]
    if bias:
        arrays[3][:, 3] = arrays[3][2] = -np.inf  # a key that nobody may see, and a row that may see none
    q, key, value, mask = (k.input(i, DType.FLOAT, s) for i, s in enumerate(shapes))
    allowed = tuple(frontier(rows, keys, k.scalar(0, DType.INT64), causal, -1, -1))
    root, _ = attend(q, key, value, Scores(0.3, 0.0, mask if bias else None, allowed, None, None))
    dialect = Wgsl(limits=Limits(32), tuning=replace(PROCESSOR, scores_nbytes=0))
    (found,), (wanted,) = on_device([root], arrays, dialect), interpret([root], arrays)
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)
    cut = Cut(dialect)
    cut.settle(root)
    assert [job.schedule for job in cut.jobs] == ["attend"]


def test_order() -> None:
    x = np.array([[3, 1, np.nan, 1, -2], [0, 0, 5, -np.inf, 2]], np.float32)
    t = k.input(0, DType.FLOAT, x.shape)
    roots = [
        *k.sort(t, 1),
        *k.sort(t, 1, True),
        k.arg_reduce(k.maximum(t, -9.0), "min", 1),
        k.scan(k.unary("floor", t), "sum", 0),
    ]
    check(roots, x)
    updates = k.scatter(t, [k.input(1, DType.INT64, (3,)), k.input(2, DType.INT64, (3,))], k.input(3, DType.FLOAT, (3,)), "add")
    check([updates], np.nan_to_num(x), np.array([0, 0, 1]), np.array([4, 4, 2]), np.array([1, 2, 4], np.float32))


def test_every_node_stays_on_the_device() -> None:
    from onnx import helper

    rng = np.random.default_rng(0)
    weights = {"w": rng.standard_normal((8, 16)).astype(np.float32), "b": rng.standard_normal(16).astype(np.float32)}
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["h"]), helper.make_node("Add", ["h", "b"], ["s"]),
        helper.make_node("Softmax", ["s"], ["p"]), helper.make_node("Transpose", ["p"], ["t"], perm=[1, 0]),
        helper.make_node("MatMul", ["t", "x"], ["y"]),
    ]  # fmt: skip
    made = session(nodes, {"x": (1, ["N", 8])}, ["y"], weights)
    gpu = open_device()
    for rows in (3, 5, 3):
        x = rng.standard_normal((rows, 8)).astype(np.float32)
        before = (gpu.counters.copies_in, gpu.counters.copies_out)
        (found,) = made.run(None, {"x": x})
        h = x @ weights["w"] + weights["b"]
        p = np.exp(h - h.max(1, keepdims=True))
        np.testing.assert_allclose(found, (p / p.sum(1, keepdims=True)).T @ x, rtol=1e-4, atol=1e-5)
    after = (gpu.counters.copies_in, gpu.counters.copies_out)
    assert (after[0] - before[0], after[1] - before[1]) == (1, 1)  # the input and the output, and nothing between
    assert made.explain().counts == {"WebGpuExecutionProvider": 5}


def test_values_stay_on_the_device() -> None:
    from onnx import helper

    made = session(
        [helper.make_node("Exp", ["x"], ["y"]), helper.make_node("Neg", ["y"], ["z"])], {"x": (1, [2, 3])}, ["y", "z"]
    )
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    value = intarsia.OrtValue.ortvalue_from_numpy(x, "webgpu", 0)
    assert (value.device_name(), value.shape(), value.data_type()) == ("webgpu", [2, 3], "tensor(float)")
    np.testing.assert_array_equal(value.numpy(), x)
    np.testing.assert_allclose(made.run(["z"], {"x": value})[0], -np.exp(x), rtol=1e-5)

    binding, gpu = made.io_binding(), open_device()
    room = intarsia.OrtValue.ortvalue_from_shape_and_type([2, 3], np.float32, "webgpu", 0)
    binding.bind_ortvalue_input("x", value)
    binding.bind_output("y", "webgpu", 0)
    binding.bind_ortvalue_output("z", room)
    before = (gpu.counters.copies_in, gpu.counters.copies_out)
    made.run_with_iobinding(binding)
    assert (gpu.counters.copies_in, gpu.counters.copies_out) == before
    first, second = binding.get_outputs()
    assert (first.device_name(), second.device_name()) == ("webgpu", "webgpu")
    np.testing.assert_allclose(binding.copy_outputs_to_cpu()[0], np.exp(x), rtol=1e-5)
    np.testing.assert_allclose(room.numpy(), -np.exp(x), rtol=1e-5)
    value.update_inplace(x + 1)
    made.run_with_iobinding(binding)
    np.testing.assert_allclose(room.numpy(), -np.exp(x + 1), rtol=1e-5)
    with pytest.raises(intarsia.InvalidArgument, match=r"a tensor on webgpu:0 is float \[2, 3\], got float \[3, 2\]"):
        value.update_inplace(x.reshape(3, 2))


def test_memory_is_reused() -> None:
    from onnx import helper

    nodes = [helper.make_node("Softmax", [f"x{i}" if i else "x"], [f"x{i + 1}"], axis=i % 2) for i in range(12)]
    made = session(nodes, {"x": (1, [64, 64])}, ["x12"])
    made.run(None, {"x": np.ones((64, 64), np.float32)})
    (plan,) = made._model.programs[0].plans
    assert plan.unshared_nbytes == 11 * 64 * 64 * 4
    assert plan.arena_nbytes == 2 * 64 * 64 * 4


def test_an_index_out_of_range_names_its_node() -> None:
    from onnx import helper

    made = session([helper.make_node("Gather", ["x", "i"], ["y"], name="look")], {"x": (1, [4]), "i": (7, [2])}, ["y"])
    feed = {"x": np.arange(4, dtype=np.float32), "i": np.array([3, -1])}
    np.testing.assert_array_equal(made.run(None, feed)[0], [3, 3])
    with pytest.raises(intarsia.InvalidArgument, match=r"node 'look' \(Gather\): an index is out of range"):
        made.run(None, {**feed, "i": np.array([4, 0])})


def test_a_division_by_zero_names_its_node() -> None:
    from onnx import helper

    made = session([helper.make_node("Div", ["x", "y"], ["z"], name="split")], {"x": (6, [3]), "y": (6, [3])}, ["z"])
    x = np.array([7, -7, 1], np.int32)
    np.testing.assert_array_equal(made.run(None, {"x": x, "y": np.array([2, 2, 1], np.int32)})[0], [3, -3, 1])
    with pytest.raises(intarsia.InvalidArgument, match=r"node 'split' \(Div\): an element of the integer divisor is 0"):
        made.run(None, {"x": x, "y": np.array([2, 0, 1], np.int32)})


def test_what_is_refused_says_why() -> None:
    from onnx import helper

    with pytest.raises(intarsia.NotImplemented, match="complex64 has no form in WGSL"):
        session([helper.make_node("Identity", ["x"], ["y"])], {"x": (14, [3])}, ["y"])


def test_a_limit_of_memory() -> None:
    gpu = open_device(memory_limit=1 << 20)
    with pytest.raises(intarsia.OutOfMemory, match="the limit is 1,048,576: raise the limit"):
        gpu.allocate(2 << 20)
    with pytest.raises(intarsia.OutOfMemory, match="this device allows"):
        gpu.allocate(gpu.limits.buffer_nbytes + 1)


def test_direct3d_elsewhere_is_refused() -> None:
    import sys

    if sys.platform == "win32":
        pytest.skip("Direct3D 12 is there")
    options = intarsia.SessionOptions()
    options.add_session_config_entry("session.provider_fallback", "error")
    with pytest.raises(intarsia.EPFail, match="wgpu finds no D3D12 adapter"):
        intarsia.InferenceSession(b"", options, ["DmlExecutionProvider"])


def test_device_tensors_do_not_pass_for_arrays() -> None:
    from intarsia.device.gpu import GpuTransfer

    gpu = open_device()
    tensor = GpuTransfer(gpu).copy_in(np.ones(3, np.float32), gpu.device)
    assert isinstance(tensor, DeviceTensor)
    with pytest.raises(intarsia.EPFail, match="was read as a NumPy array"):
        np.asarray(tensor)


@pytest.mark.parametrize(
    "where", ["before a run", "before a bound run", "before a copy", "before a kernel is compiled", "before a session is made"]
)
def test_a_device_that_is_lost_is_opened_again(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever notices first: the next session has a device of its own."""
    from intarsia.device import webgpu

    monkeypatch.setattr(webgpu._opened, "_devices", {})
    x = np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4)
    session = exponential()
    (wanted,) = session.run(None, {"x": x})
    value = intarsia.OrtValue.ortvalue_from_numpy(x, "webgpu", 0)
    device = webgpu.open_device()
    binding = session.io_binding()
    binding.bind_ortvalue_input("x", value)
    binding.bind_output("y", "webgpu", 0)
    for _ in range(3):  # what was bound is kept
        session.run_with_iobinding(binding)
    asked = {
        "before a run": lambda: session.run(None, {"x": x}),
        "before a bound run": lambda: session.run_with_iobinding(binding),
        "before a copy": lambda: device.copy(value._value.handle, value._value.handle),
        "before a kernel is compiled": lambda: other.run_with_ort_values(None, {"x": value}),
    }
    other = exponential("Sinh")
    device._device.destroy()
    if where in asked:
        with pytest.raises(intarsia.DeviceLost, match="what was in its memory is gone: make the session again"):
            asked[where]()
        assert device.lost
    else:
        assert not device.lost  # nobody has noticed
    (again,) = exponential().run(None, {"x": x})
    np.testing.assert_array_equal(again, wanted)
    assert webgpu.open_device() is not device


@pytest.mark.parametrize("what", ["a timed run", "a wait", "a write", "memory", "a loop"])
def test_a_lost_device_is_told_wherever_it_is_noticed(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is submitted to it: wgpu would end the process."""
    from intarsia.device import webgpu
    from intarsia.device.gpu import GpuTransfer, Launch

    monkeypatch.setattr(webgpu._opened, "_devices", {})
    x, device = np.ones((3, 4), np.float32), webgpu.open_device()
    tensor = GpuTransfer(device).copy_in(x, device.device)
    text = "@group(0) @binding(0) var<storage, read_write> x: array<f32>;\n"
    text += "@compute @workgroup_size(1) fn main_kernel() { x[0] = x[0] + 1.0; }"
    kernel = Kernel(text, (), 1, (), (1, 1, 1), 1, False, (1,), 0)
    bound = [device.bind(Launch(kernel, device.program(kernel), (tensor.handle,)))]
    device.run(bound)
    device._device.destroy()
    asked = {
        "a timed run": lambda: device.timed(bound), "a wait": device.finish, "a write": lambda: device.fill(tensor.handle, x),
        "memory": lambda: device.allocate(1 << 20), "a loop": lambda: device.run(bound * 600),
    }  # fmt: skip
    with pytest.raises(intarsia.DeviceLost, match="make the session again"):
        asked[what]()
    assert device.lost


def test_a_wait_that_fails_since_the_device_was_lost_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """wgpu's own thread has stopped then, which is all that its error tells."""
    from intarsia.device import webgpu

    monkeypatch.setattr(webgpu._opened, "_devices", {})
    device = webgpu.open_device()
    memory = device.allocate(256)

    def stopped(*_: object) -> None:
        device._device.destroy()
        raise RuntimeError("Cannot use PollThread because it has stopped.")

    monkeypatch.setattr(device._device.queue, "read_buffer", stopped)
    with pytest.raises(intarsia.DeviceLost, match="PollThread"):
        device._read(memory.buffer, 0, 256)


def exponential(op: str = "Exp") -> intarsia.InferenceSession:
    from onnx import helper

    given, made = (helper.make_tensor_value_info(n, 1, ["n", 4]) for n in "xy")
    graph = helper.make_graph([helper.make_node(op, ["x"], ["y"])], "g", [given], [made])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    options = intarsia.SessionOptions()
    options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
    return intarsia.InferenceSession(model.SerializeToString(), options, ["WebGpuExecutionProvider"], enable_fallback=False)
