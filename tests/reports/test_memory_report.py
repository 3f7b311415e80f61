"""`session.memory_report()`, the limit of intermediate tensors, and giving them back after a run."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest

import intarsia as ort
from intarsia.providers.cpu.lowering import spilled_tables
from intarsia.testing.faults import FaultInjectingExecutionProvider, FaultOptions

CPU = "CPUExecutionProvider"
REFERENCE = "ReferenceExecutionProvider"
# The softmax's result is needed twice, so that it lies in the arena: 4 n m bytes, and as much for what follows.
TEXT = """g (float[n,m] x) => (float[n,1] y)
    { a = Softmax<axis = 1>(x)  b = CumSum(a, k)  c = Mul(a, b)  d = CumSum(c, k)  y = ReduceMax<axes = [1]>(d) }"""
K = "<int64 k = {1}>"


def model_of(text: str) -> bytes:
    made = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]> {text}')
    return made.SerializeToString()


MODEL = model_of(TEXT.replace("(float[n,1] y)", f"(float[n,1] y) {K}"))


def session_of(limit_mib: int = 0, model: bytes = MODEL) -> ort.InferenceSession:
    options = ort.SessionOptions()
    options.add_session_config_entry("session.memory_limit_mib", str(limit_mib))
    return ort.InferenceSession(model, options, providers=[CPU])


def feed(n: int, m: int) -> dict[str, np.ndarray]:
    return {"x": np.random.default_rng(0).random((n, m), np.float32)}


def test_prediction_is_what_a_run_then_holds() -> None:
    session = session_of()
    expected = session.memory_report({"x": [64, 512]}).prediction
    assert expected is not None
    (before,) = session.memory_report().providers
    assert (before.provider, before.arena_nbytes, before.plans) == (CPU, 0, ())
    session.run(None, feed(64, 512))
    (after,) = session.memory_report().providers
    (plan,) = after.plans
    assert plan.shapes == "x [64, 512]"
    assert after.arena_nbytes == after.idle_nbytes == expected.by_provider[CPU].arena_nbytes
    assert plan.arena_nbytes >= 64 * 512 * 4
    assert plan.output_nbytes == 64 * 4
    assert expected.nbytes == plan.arena_nbytes + plan.output_nbytes
    assert expected.unknown == 0


def test_every_shape_has_a_line_and_sizes_scale() -> None:
    session = session_of()
    small, large = (session.memory_report({"x": [n, 256]}).prediction for n in (8, 80))
    assert small is not None
    assert large is not None
    assert large.nbytes > 5 * small.nbytes
    for n in (8, 80):
        session.run(None, feed(n, 256))
    (held,) = session.memory_report().providers
    assert [plan.shapes for plan in held.plans] == ["x [8, 256]", "x [80, 256]"]
    assert held.arena_nbytes == sum(plan.arena_nbytes for plan in held.plans)


def test_weights_are_told_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table, matrix = np.ones((1_000_000, 8), np.float32), np.ones((8, 64), np.float32)
    value, make = onnx.helper.make_tensor_value_info, onnx.helper.make_node
    nodes = [make("Gather", ["table", "i"], ["e"]), make("MatMul", ["e", "matrix"], ["y"])]
    weights = [onnx.numpy_helper.from_array(a, n) for a, n in ((table, "table"), (matrix, "matrix"))]
    graph = onnx.helper.make_graph(nodes, "g", [value("i", 7, ["n"])], [value("y", 1, ["n", 64])], weights)
    onnx.save(
        onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8), tmp_path / "m.onnx"
    )
    options = ort.SessionOptions()
    options.add_session_config_entry("session.cache_weights_mib", "0")
    model = tmp_path / "m.onnx"
    monkeypatch.setattr(spilled_tables, "LEAST_NBYTES", table.nbytes + 1)
    (own,) = ort.InferenceSession(model, options).memory_report().providers
    (shared,) = ort.InferenceSession(model.read_bytes(), options).memory_report().providers
    monkeypatch.setattr(spilled_tables, "LEAST_NBYTES", 0)
    (aside,) = ort.InferenceSession(model, options).memory_report().providers
    elsewhere = aside.packed_nbytes if os.name == "nt" else aside.mapped_nbytes
    for held, kind in ((own, own.packed_nbytes), (shared, shared.shared_nbytes), (aside, elsewhere)):
        assert kind >= table.nbytes
        assert held.packed_nbytes >= matrix.nbytes
        assert held.mapped_nbytes + held.shared_nbytes + held.packed_nbytes < 2 * (table.nbytes + matrix.nbytes)
    assert (own.mapped_nbytes, own.shared_nbytes, shared.mapped_nbytes, aside.shared_nbytes) == (0, 0, 0, 0)


def test_it_prints_and_is_data() -> None:
    session = session_of()
    session.run(None, feed(4, 16))
    found = session.memory_report({"x": [4, 16]})
    text = str(found)
    assert CPU in text
    assert "a run on x [4, 16] needs" in text
    data = json.loads(found.to_json())
    assert data["providers"][0]["plans"][0]["blocks"] == 1
    assert data["prediction"]["nbytes"] == found.prediction.nbytes  # type: ignore[union-attr]


def test_a_provider_that_says_nothing_is_named(make_session) -> None:
    found = make_session("g (float[3] x) => (float[3] y) { y = Neg(x) }", providers=[REFERENCE]).memory_report({"x": [3]})
    assert [(p.provider, p.unreported) for p in found.providers] == [(REFERENCE, 1)]
    assert found.prediction is not None
    assert found.prediction.unknown == 1
    assert "not reported" in str(found)


def test_sizes_that_data_gives_are_not_guessed() -> None:
    text = "g (float[n] x) => (float[k] y) { i = NonZero(x) c = Cast<to = 1>(i) s = Squeeze(c) y = Softmax(s) }"
    session = session_of(model=model_of(text))
    found = session.memory_report({"x": [10]}).prediction
    assert found is not None
    assert found.unknown >= 1
    assert "whose sizes are known in a run only" in str(session.memory_report({"x": [10]}))


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        ({"X": [1, 2]}, "the model has no input 'X'"),
        ({"x": [1, 2, 3]}, r"expected 2 sizes, got \[1, 2, 3\]"),
        ({"x": [-1, 3]}, "expected size 0 of axis 0, got -1"),
        ({}, "the size of n is not known: give a shape for 'x' too"),
    ],
)
def test_shapes_are_checked(shapes: dict[str, list[int]], message: str) -> None:
    with pytest.raises(ort.InvalidArgument, match=message):
        session_of().memory_report(shapes)


def test_the_limit_names_what_is_needed() -> None:
    session = session_of(limit_mib=1)
    session.run(None, feed(16, 256))
    with pytest.raises(ort.OutOfMemory, match=r"for x \[1024, 4096\] need .* 'session.memory_limit_mib' = '1' allows 1.00 MiB"):
        session.run(None, feed(1024, 4096))
    (result,) = session.run(None, feed(16, 256))  # the session goes on
    assert result.shape == (16, 1)


def test_idle_memory_makes_room() -> None:
    session = session_of()
    need = session.memory_report({"x": [256, 512]}).prediction
    assert need is not None
    limited = session_of(limit_mib=int(1.5 * need.nbytes / 2**20) + 1)
    shapes = [(256, 512), (250, 512), (240, 512), (256, 510)]
    for n, m in shapes:
        limited.run(None, feed(n, m))
    (held,) = limited.memory_report().providers
    assert len(held.plans) == len(shapes)
    assert held.arena_nbytes <= limited._engine.arena().limit


def test_runs_at_the_same_time_keep_to_the_limit() -> None:
    need = session_of().memory_report({"x": [128, 1024]}).prediction
    assert need is not None
    session = session_of(limit_mib=int(need.nbytes / 2**20) + 1)  # room for one run
    given = feed(128, 1024)
    (expected,) = session.run(None, given)
    failures: list[Exception] = []

    def work() -> None:
        for _ in range(20):
            try:
                np.testing.assert_array_equal(session.run(None, given)[0], expected)
            except ort.OutOfMemory:
                pass
            except Exception as error:  # noqa: BLE001 # any other is what the test looks for
                failures.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert session._engine.arena().held() <= session._engine.arena().limit


def test_bindings_share_limited_memory() -> None:
    need = session_of().memory_report({"x": [256, 1024]}).prediction
    assert need is not None
    session = session_of(limit_mib=int(need.nbytes / 2**20) + 1)
    one, two = feed(256, 1024), {"x": feed(256, 1024)["x"] + 1}
    bindings = []
    for given in (one, two):
        binding = session.io_binding()
        binding.bind_cpu_input("x", given["x"])
        binding.bind_output("y")
        bindings.append(binding)
    for _ in range(3):
        for binding in bindings:
            session.run_with_iobinding(binding)
    for binding, given in zip(bindings, (one, two), strict=True):
        np.testing.assert_array_equal(binding.copy_outputs_to_cpu()[0], session_of().run(None, given)[0])
    session.run(None, one)
    assert session._engine.arena().held() <= session._engine.arena().limit


def test_a_negative_limit_is_an_error() -> None:
    with pytest.raises(ort.InvalidArgument, match=r"'session.memory_limit_mib': expected mebibytes, .* got -1"):
        session_of(limit_mib=-1)


@pytest.mark.parametrize("strategy", ["kNextPowerOfTwo", "kSameAsRequested"])
def test_the_strategy_of_the_provider_is_seen_in_the_report(strategy: str) -> None:
    session = ort.InferenceSession(MODEL, providers=[(CPU, {"arena_extend_strategy": strategy})])
    session.run(None, feed(300, 1024))
    found = session.memory_report()
    assert found.arena is not None
    (plan,) = found.providers[0].plans
    assert found.arena.strategy == strategy
    assert (found.arena.in_use_nbytes, found.arena.extensions) == (plan.arena_nbytes, 1)
    reserved = found.arena.reserved_nbytes
    if strategy == "kSameAsRequested":
        assert reserved == plan.arena_nbytes
    else:
        assert reserved == 1 << (plan.arena_nbytes - 1).bit_length() > plan.arena_nbytes
    assert f"reserved (at most {reserved / 2**20:.3f}), {strategy}, extended 1 times" in str(found)


def test_without_an_arena_a_run_keeps_nothing() -> None:
    options = ort.SessionOptions()
    options.enable_cpu_mem_arena = False
    session = ort.InferenceSession(MODEL, options)
    expected = session_of().run(None, feed(300, 1024))[0]
    for _ in range(3):
        np.testing.assert_array_equal(session.run(None, feed(300, 1024))[0], expected)
        found = session.memory_report().arena
        assert found is not None
        assert (found.in_use_nbytes, found.reserved_nbytes) == (0, 0)
    assert found.extensions == found.shrinkages == 3


def test_shapes_share_memory_above_what_is_kept() -> None:
    session = session_of()
    sizes = [2048 * n for n in range(1, 6)]  # 16 MiB and more each
    for _ in range(2):
        for n in sizes:
            x = feed(n, 1024)
            (y,) = session.run(None, x)
            np.testing.assert_allclose(y[:2], ort.InferenceSession(MODEL).run(None, {"x": x["x"][:2]})[0], rtol=1e-5)
    found = session.memory_report()
    assert found.arena is not None
    largest = max(plan.arena_nbytes for plan in found.providers[0].plans)
    assert found.arena.largest_nbytes == largest
    assert found.arena.reserved_nbytes <= max(64 << 20, 2 * largest)
    assert sum(plan.arena_nbytes for plan in found.providers[0].plans) > 2 * largest


def test_sessions_share_an_arena() -> None:
    info = ort.OrtMemoryInfo("Cpu", ort.OrtAllocatorType.ORT_ARENA_ALLOCATOR, 0, ort.OrtMemType.DEFAULT)
    need = session_of().memory_report({"x": [256, 1024]}).prediction
    assert need is not None
    limit = need.nbytes + (1 << 16)
    ort.create_and_register_allocator(info, ort.OrtArenaCfg({"max_mem": limit, "arena_extend_strategy": 1}))
    try:
        options = ort.SessionOptions()
        options.add_session_config_entry("session.use_env_allocators", "1")
        one, two = (ort.InferenceSession(MODEL, options) for _ in range(2))
        expected = session_of().run(None, feed(256, 1024))[0]
        for session in (one, two, one):
            np.testing.assert_array_equal(session.run(None, feed(256, 1024))[0], expected)
        assert one.memory_report().arena == two.memory_report().arena
        assert one.memory_report().arena.reserved_nbytes <= limit  # type: ignore[union-attr]
        with pytest.raises(ort.OutOfMemory, match=rf"OrtArenaCfg.max_mem = {limit} allows"):
            two.run(None, feed(2560, 1024))
        options.add_session_config_entry("session.memory_limit_mib", "5")
        with pytest.raises(
            ort.InvalidArgument, match=r"'session.memory_limit_mib' is '5', but 'session.use_env_allocators' is '1'"
        ):
            ort.InferenceSession(MODEL, options)
    finally:
        ort.create_and_register_allocator(info, None)


def run_options(devices: str) -> ort.RunOptions:
    options = ort.RunOptions()
    options.add_run_config_entry("memory.enable_memory_arena_shrinkage", devices)
    return options


def test_a_run_gives_memory_back() -> None:
    session = session_of()
    session.run(None, feed(32, 64))
    assert session.memory_report().providers[0].idle_nbytes > 0
    session.run(None, feed(16, 64), run_options("cpu:0"))
    assert session.memory_report().providers[0].arena_nbytes == 0
    session.run(None, feed(16, 64))


def test_control_flow_bodies_are_part_of_it() -> None:
    body = "body (int64 i, bool c, float[k] s) => (bool d, float[j] t) { d = Identity(c) t = Concat<axis = 0>(s, s) }"
    text = f"g (float[1] x, int64 n, bool go) => (float[m] y) {{ y = Loop<body = {body}>(n, go, x) }}"
    session = session_of(model=model_of(text))
    given = {"x": np.ones(1, np.float32), "n": np.array(3), "go": np.array(True)}
    assert session.run(None, given, run_options("cpu:0"))[0].shape == (8,)
    assert session.memory_report().providers[0].idle_nbytes == 0


@pytest.mark.parametrize(
    ("devices", "message"),
    [("everything", "expected devices as in 'cpu:0;gpu:0', got 'everything'"), ("cpu:0;gpu:0", "in the memory of 'gpu:0'")],
)
def test_devices_are_checked(devices: str, message: str) -> None:
    with pytest.raises(ort.InvalidArgument, match=message):
        session_of().run(None, feed(2, 2), run_options(devices))


def test_a_device_of_the_session_is_known(make_session) -> None:
    provider = FaultInjectingExecutionProvider(FaultOptions())
    session = make_session("g (float[3] x) => (float[3] y) { y = Neg(x) }", providers=[provider, CPU])
    device = f"{provider.device.kind}:{provider.device.index}"
    (found,) = session.run(None, {"x": np.ones(3, np.float32)}, run_options(device))
    np.testing.assert_array_equal(found, -np.ones(3))
