"""NnapiExecutionProvider on simulated phones: options, devices, feature levels, memory, caches, faults."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from simulated_nnapi import Device, SimulatedLibrary

import intarsia as ort
from intarsia.providers.nnapi import library
from intarsia.providers.vendor.artifact_cache import vendor_compiles

NAME = "NnapiExecutionProvider"
Phone = Callable[..., SimulatedLibrary]
RNG = np.random.default_rng(7)
W = RNG.standard_normal((4, 3, 3, 3)).astype(np.float32)
V = RNG.standard_normal((4, 5)).astype(np.float32)
X = RNG.standard_normal((1, 3, 6, 6)).astype(np.float32)


def model(batch: int | str = 1) -> bytes:
    """A convolution, Relu, the mean of each channel, a product, Softmax."""
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node("GlobalAveragePool", ["r"], ["g"]),
        helper.make_node("Flatten", ["g"], ["f"]),
        helper.make_node("MatMul", ["f", "v"], ["m"]),
        helper.make_node("Softmax", ["m"], ["y"], axis=1),
    ]
    weights = [numpy_helper.from_array(W, "w"), numpy_helper.from_array(V, "v")]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [batch, 3, 6, 6])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [batch, 5])
    graph = helper.make_graph(nodes, "g", [x], [y], weights)
    return bytes(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString())


def expected(x: np.ndarray) -> np.ndarray:
    padded = np.pad(x.astype(np.float64), ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (2, 3))
    means = np.maximum(np.einsum("nchwij,ocij->nohw", windows, W), 0).mean((2, 3)) @ V
    powers = np.exp(means - means.max(1, keepdims=True))
    return powers / powers.sum(1, keepdims=True)


def options(**entries: str) -> ort.SessionOptions:
    """No session is taken from the cache: so the provider is asked every time."""
    found = ort.SessionOptions()
    for name, value in {"session.cache_weights_mib": "0", **entries}.items():
        found.add_session_config_entry(name.replace("__", "."), value)
    return found


def opened(given: dict[str, Any] | None = None, *, batch: int | str = 1, others: tuple[str, ...] = ()) -> ort.InferenceSession:
    entries = {} if others else {"session__disable_cpu_ep_fallback": "1"}
    return ort.InferenceSession(model(batch), options(**entries), providers=[(NAME, given or {}), *others])


def right(session: ort.InferenceSession, x: np.ndarray = X, tolerance: float = 1e-5) -> None:
    np.testing.assert_allclose(session.run(None, {"x": x})[0], expected(x), rtol=tolerance, atol=tolerance / 10)


def written(session: ort.InferenceSession) -> str:
    return "\n".join(program.describe() for program in session._engine.whole_model().programs)


# where it is, and where not


def test_without_the_library_it_says_what_was_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent() -> Any:
        raise OSError("libneuralnetworks.so: cannot open shared object file")

    monkeypatch.setattr(library, "_opened", [])
    monkeypatch.setattr(library, "open_functions", absent)
    assert NAME not in ort.get_available_providers()
    with pytest.raises(ort.EPFail, match=r"does not find libneuralnetworks.so .*On this machine: .*It needs Android 8.1"):
        ort.InferenceSession(model(), providers=[NAME], sess_options=options(session__provider_fallback="error"))
    with pytest.warns(ort.ProviderWarning, match="The session goes on with CPUExecutionProvider"):
        right(ort.InferenceSession(model(), providers=["NNAPIExecutionProvider", "CPUExecutionProvider"]))


def test_the_documents_listing(phone: Phone) -> None:
    phone()
    assert NAME in ort.get_available_providers()
    session = ort.InferenceSession(model(), options(), providers=[NAME, "CPUExecutionProvider"])
    assert session.explain().counts == {NAME: 6}
    assert session.get_provider_options()[NAME]["NNAPI_FLAG_USE_FP16"] == "0"
    right(session)


# feature levels, devices, flags


@pytest.mark.parametrize("level", [27, 28, 29, 30, 31, 1000006, 1000007, 1000008])
def test_each_feature_level(level: int, phone: Phone) -> None:
    simulated = phone(level)
    session = ort.InferenceSession(model(), options(partition__keep_islands="1"), providers=[NAME, "CPUExecutionProvider"])
    right(session)
    assert session.explain().counts[NAME] == (6 if level > 27 else 4)
    assert simulated.operations_seen["CONV_2D"] == (level > 27)  # without a TRANSPOSE, 27 has no images of ONNX's
    assert ("burst" in " ".join(simulated.calls)) == (level >= 29)
    assert (simulated.calls["ANeuralNetworksExecution_setReusable"] > 0) == (level >= 31)
    assert (simulated.calls["ANeuralNetworksExecution_startCompute"] > 0) == (level < 29)


def test_a_level_below_the_phones(phone: Phone) -> None:
    phone(31)
    session = opened({"feature_level": 28})
    assert "feature level 28" in written(session)
    right(session)
    with pytest.raises(ort.InvalidArgument, match="feature_level: expected 27 to 31 or 1000006 to 1000008, got 26"):
        opened({"feature_level": 26})


def test_nchw_moves_no_image(phone: Phone) -> None:
    phone(31)
    moved, still = opened(), opened({"NNAPI_FLAG_USE_NCHW": True})
    assert "TRANSPOSE" in written(moved) and "TRANSPOSE" not in written(still)
    right(still)


def test_fp16_is_what_the_device_makes_of_it(phone: Phone) -> None:
    phone(31)
    session = opened({"NNAPI_FLAG_USE_FP16": True})
    right(session, tolerance=5e-3)
    assert np.abs(session.run(None, {"x": X})[0] - expected(X)).max() > 1e-6
    right(opened({"NNAPI_FLAG_USE_FP16": True, "NNAPI_FLAG_CPU_ONLY": True}))  # which computes in float32 all the same


def test_float16_is_what_weights_become(phone: Phone) -> None:
    """The relaxed flag leaves weights as they are; `precision` halves them."""
    phone(31)
    single, half = opened(), opened({"precision": "float16"})
    right(half, tolerance=5e-3)
    assert np.abs(half.run(None, {"x": X})[0] - expected(X)).max() > 1e-6
    assert "TENSOR_FLOAT16" in written(half) and "TENSOR_FLOAT16" not in written(single)
    nbytes = [made._engine.whole_model().programs[0].memory().packed_nbytes for made in (single, half)]
    assert nbytes[1] < 0.6 * nbytes[0]
    assert half.get_outputs()[0].type == "tensor(float)"


def test_float16_before_it_was_there(phone: Phone) -> None:
    phone(28)
    with pytest.raises(ort.InvalidArgument, match="precision: NNAPI has float16 from feature level 29 on, and this is 28"):
        opened({"precision": "float16"})


@pytest.mark.parametrize(
    ("entry", "taken"), [(None, 6), ("Softmax", 5), ("GlobalAveragePool, Softmax", 2), ("", 6), ("Conv", 0)]
)
def test_operators_where_it_stops(entry: str | None, taken: int, phone: Phone) -> None:
    """onnxruntime's entry: those operators, and what depends on them, are the next provider's."""
    phone(31)
    entries = {"partition__keep_islands": "1"} | ({} if entry is None else {"ep__nnapi__partitioning_stop_ops": entry})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ort.ProviderWarning)
        session = ort.InferenceSession(model(), options(**entries), providers=[NAME, "CPUExecutionProvider"])
    assert session.explain().counts.get(NAME, 0) == taken
    right(session)
    if taken == 2:
        why = {row.op: row.refusals[NAME].reason for row in session.explain().nodes if NAME in row.refusals}
        assert why["GlobalAveragePool"] == f"GlobalAveragePool is among the operators where {NAME} stops"
        assert why["MatMul"] == f"{NAME} stops at GlobalAveragePool, and this depends on it"


def test_flags_choose_devices(phone: Phone) -> None:
    phone(31)
    assert "on simulated-npu, nnapi-reference" in written(opened())
    assert "on simulated-npu\n" in written(opened({"NNAPI_FLAG_CPU_DISABLED": True}))
    assert "on nnapi-reference\n" in written(opened({"NNAPI_FLAG_CPU_ONLY": "1"}))
    assert "on simulated-npu\n" in written(opened({"device": "simulated-npu"}))
    kernels = {row.kernel for row in opened({"NNAPI_FLAG_CPU_DISABLED": True}).explain().nodes}
    assert "NNAPI (simulated-npu)" in kernels


def test_flags_that_leave_nothing(phone: Phone) -> None:
    phone(31, [Device("nnapi-reference", 2)])
    strict = options(session__provider_fallback="error")
    with pytest.raises(ort.EPFail, match=r"NNAPI_FLAG_CPU_DISABLED leave no device; NNAPI lists nnapi-reference \(CPU\)"):
        ort.InferenceSession(model(), strict, providers=[(NAME, {"NNAPI_FLAG_CPU_DISABLED": True})])
    with pytest.raises(ort.InvalidArgument, match="leave no device; set one of them"):
        opened({"NNAPI_FLAG_CPU_DISABLED": True, "NNAPI_FLAG_CPU_ONLY": True})
    phone(28)
    flags = {"NNAPI_FLAG_CPU_ONLY": True, "NNAPI_FLAG_USE_NCHW": True}
    with pytest.raises(ort.EPFail, match="NNAPI_FLAG_CPU_ONLY, NNAPI_FLAG_USE_NCHW: NNAPI has this from feature level 29 on"):
        ort.InferenceSession(model(), strict, providers=[(NAME, flags)])


def test_a_device_says_which_operations_it_runs(phone: Phone) -> None:
    phone(31, [Device("no-softmax-npu", refuses=("SOFTMAX",))])
    session = ort.InferenceSession(model(), options(partition__keep_islands="1"), providers=[NAME, "CPUExecutionProvider"])
    right(session)
    (row,) = (row for row in session.explain().nodes if row.provider != NAME)
    assert row.op == "Softmax"
    assert row.refusals[NAME].reason == "none of the devices no-softmax-npu runs SOFTMAX of these types"


def test_an_old_driver_on_a_new_phone(phone: Phone) -> None:
    """The level is that of the devices: a product of two runs' results is written in other operations for each."""
    head = '<ir_version: 8, opset_import: ["": 17]> g (float[2, 3, 4] a, float[2, 4, 3] b) => (float[2, 3, 3] y)'
    text = head + "{y = MatMul(a, b)}"
    source = onnx.parser.parse_model(text).SerializeToString()
    a, b = RNG.standard_normal((2, 3, 4)).astype(np.float32), RNG.standard_normal((2, 4, 3)).astype(np.float32)
    for level, operation in ((30, "FULLY_CONNECTED"), (1000006, "BATCH_MATMUL")):
        phone(1000008, [Device(f"npu-{level}", level=level)])
        session = ort.InferenceSession(source, options(partition__keep_islands="1"), providers=[NAME])
        np.testing.assert_allclose(session.run(None, {"a": a, "b": b})[0], a @ b, rtol=1e-5, atol=1e-6)
        assert operation in written(session)


def test_refusals_have_reasons(phone: Phone) -> None:
    phone(31)
    text = """<ir_version: 8, opset_import: ["": 17]> g (double[2] d, int64[2] i, float[2, 3, 4, 5, 6] t, int32[2] n)
        => (double[2] a, int64[2] b, float[2, 3, 4, 5, 6] c, int32[2] e) {
        a = Relu(d)
        b = Add(i, i)
        c = Sigmoid(t)
        e = Div(n, n)
    }"""
    source = onnx.parser.parse_model(text).SerializeToString()
    with pytest.warns(ort.ProviderWarning, match="takes none of the model's 4 nodes"):
        session = ort.InferenceSession(source, options(partition__keep_islands="1"), providers=[NAME, "CPUExecutionProvider"])
    reasons = {row.op: row.refusals[NAME].reason for row in session.explain().nodes}
    assert reasons == {
        "Relu": "NNAPI has no tensors of float64, as 'd' is",
        "Add": "NNAPI computes integers in 32 bits, and 'i' is not known to fit into these",
        "Sigmoid": "NNAPI's LOGISTIC takes ranks 1 to 4, and this is 5",
        "Div": "NNAPI rounds quotients of integers down, ONNX towards zero",
    }


# memory


@pytest.mark.parametrize("memory", ["pointers", "shared", "domains"])
@pytest.mark.parametrize("level", [29, 30, 31])
def test_how_tensors_reach_a_device(memory: str, level: int, phone: Phone) -> None:
    simulated = phone(level)
    session = opened({"memory": memory}, others=("CPUExecutionProvider",))
    for k in range(3):
        right(session, X * (k + 1))
    calls = simulated.calls
    assert (calls["ANeuralNetworksExecution_setInput"] > 0) == (memory == "pointers")
    assert (calls["ANeuralNetworksExecution_setInputFromMemory"] > 0) == (memory != "pointers")
    assert calls["ANeuralNetworksMemory_copy"] == (6 if memory == "domains" and level >= 30 else 0)
    assert calls["ANeuralNetworksExecution_create"] == (1 if level >= 31 else 3)
    assert calls["ANeuralNetworksBurst_create"] == 1


def test_callers_at_the_same_time(phone: Phone) -> None:
    from concurrent.futures import ThreadPoolExecutor

    phone(31)
    session = opened()
    inputs = [RNG.standard_normal(X.shape).astype(np.float32) for _ in range(24)]
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda x: session.run(None, {"x": x})[0], inputs))
    for x, y in zip(inputs, found, strict=True):
        np.testing.assert_allclose(y, expected(x), rtol=1e-5, atol=1e-6)


def test_results_are_the_callers_own(phone: Phone) -> None:
    phone(31)
    session = opened()
    first = session.run(None, {"x": X})[0]
    kept = first.copy()
    session.run(None, {"x": -X})
    np.testing.assert_array_equal(first, kept)


def test_sizes_that_vary(phone: Phone) -> None:
    """A model for each size; for none at all, the CPU."""
    simulated = phone(31)
    session = opened(batch="n")
    for rows in (1, 3, 1):
        x = RNG.standard_normal((rows, 3, 6, 6)).astype(np.float32)
        right(session, x)
    assert simulated.compiled == 2
    assert session.run(None, {"x": np.zeros((0, 3, 6, 6), np.float32)})[0].shape == (0, 5)
    assert any("for some sizes computed on the CPU: NNAPI has no empty tensors" in p.remarks()[0]
               for p in session._engine.whole_model().programs)  # fmt: skip


# what is kept


def test_the_second_session_makes_no_vendor_compile(phone: Phone, tmp_path: Path) -> None:
    simulated = phone(31)
    kept = {"cache_dir": str(tmp_path / "kept")}
    before = vendor_compiles(NAME)
    right(opened(kept))
    assert (vendor_compiles(NAME) - before, simulated.compiled) == (1, 1)
    right(opened(kept))
    assert (vendor_compiles(NAME) - before, simulated.compiled) == (1, 1)
    again = phone(31)  # another process finds what the drivers wrote with the part
    right(opened(kept))
    assert (vendor_compiles(NAME) - before, again.compiled) == (1, 0)


def test_old_drivers_keep_nothing_and_are_counted(phone: Phone, tmp_path: Path) -> None:
    simulated = phone(28)
    kept = {"cache_dir": str(tmp_path / "kept")}
    before = vendor_compiles(NAME)
    opened(kept, others=("CPUExecutionProvider",))
    opened(kept, others=("CPUExecutionProvider",))
    assert (vendor_compiles(NAME) - before, simulated.compiled) == (2, 2)


def test_another_driver_compiles_anew(phone: Phone, tmp_path: Path) -> None:
    kept = {"cache_dir": str(tmp_path / "kept")}
    phone(31, [Device("npu-a")])
    opened(kept)
    other = phone(31, [Device("npu-a", level=30)])
    session = opened(kept)
    assert other.compiled == 1
    (program,) = session._engine.whole_model().programs
    assert "npu-a was 'npu-a, feature level 31' and is 'npu-a, feature level 30'" in program.remarks()[0]
    right(session)


def test_a_damaged_cache(phone: Phone, tmp_path: Path) -> None:
    simulated = phone(31)
    kept = {"cache_dir": str(tmp_path / "kept")}
    opened(kept)
    (file,) = (f for f in (tmp_path / "kept").rglob("artifact-*") if not f.name.startswith("artifact-note"))
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 0x55
    file.chmod(0o600)
    file.write_bytes(data)
    session = opened(kept)
    assert simulated.compiled == 2
    assert "its entry was damaged" in session._engine.whole_model().programs[0].remarks()[0]
    right(session)


def test_a_compiled_model(phone: Phone, tmp_path: Path) -> None:
    """EPContext: the part lies in a model file; no compile, and another driver refuses it."""
    simulated = phone(31)
    context = tmp_path / "context.onnx"
    given = options(ep__context_enable="1", ep__context_file_path=str(context))
    ort.InferenceSession(model(), given, providers=[NAME])
    assert simulated.compiled == 1
    right(ort.InferenceSession(str(context), options(), providers=[NAME]))
    assert simulated.compiled == 1
    phone(31, [Device("another-npu")])
    with pytest.raises(ort.ModelRequiresCompilation):
        ort.InferenceSession(str(context), options(), providers=[NAME])


# faults

FAULTS = {
    "ANeuralNetworksModel_create": (1, "OUT_OF_MEMORY"),
    "ANeuralNetworksModel_addOperand": (4, "BAD_DATA"),
    "ANeuralNetworksModel_addOperation": (4, "BAD_DATA"),
    "ANeuralNetworksModel_finish": (5, "OP_FAILED"),
    "ANeuralNetworksModel_getSupportedOperationsForDevices": (9, "UNAVAILABLE_DEVICE"),
    "ANeuralNetworksCompilation_createForDevices": (9, "UNAVAILABLE_DEVICE"),
    "ANeuralNetworksCompilation_setPreference": (6, "BAD_STATE"),
    "ANeuralNetworksCompilation_finish": (5, "OP_FAILED"),
}


@pytest.mark.parametrize("symbol", FAULTS)
def test_what_fails_before_a_run(symbol: str, phone: Phone) -> None:
    """The next provider gets the nodes where that is allowed, else it is an error; nothing stays allocated."""
    code, name = FAULTS[symbol]
    for after in (0, 4) if "Model_add" in symbol else (0,):
        simulated = phone(31, [Device(f"npu-{symbol[15:]}-{after}")])
        simulated.fail(symbol, code, after=after)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            session = opened(others=("CPUExecutionProvider",))
        right(session)
        told = " ".join(str(w.message) for w in caught) + str(session.explain())
        assert name in told, told
        del session
        gc.collect()
        assert not simulated.alive
        with pytest.raises((ort.EPFail, ort.IntarsiaError)):
            opened()
        simulated.recover()


def test_a_compiler_that_gives_nothing(phone: Phone, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SimulatedLibrary, "_Compilation_createForDevices", lambda *_: None)  # no error, and no compilation
    simulated = phone(31)
    with pytest.raises(ort.EPFail, match="gave no Compilation and no error"):
        opened()
    gc.collect()
    assert not simulated.alive


RUN_FAULTS = {
    "ANeuralNetworksExecution_create": (1, "OUT_OF_MEMORY"),
    "ANeuralNetworksBurst_create": (13, "RESOURCE_EXHAUSTED_PERSISTENT"),
    "ANeuralNetworksMemory_createFromFd": (7, "UNMAPPABLE"),
    "ANeuralNetworksExecution_setInputFromMemory": (4, "BAD_DATA"),
    "ANeuralNetworksExecution_burstCompute": (5, "OP_FAILED"),
}


@pytest.mark.parametrize("symbol", RUN_FAULTS)
def test_what_fails_in_a_run(symbol: str, phone: Phone) -> None:
    """An error, and the next run is right; nothing stays allocated."""
    code, name = RUN_FAULTS[symbol]
    simulated = phone(31)
    session = opened()
    session.disable_fallback()
    simulated.fail(symbol, code, times=1)
    with pytest.raises(ort.EPFail, match=f"failed in a run: ANeuralNetworks.* gave {name}"):
        session.run(None, {"x": X})
    right(session)
    del session
    gc.collect()
    assert not simulated.alive


def test_a_lost_device(phone: Phone) -> None:
    simulated = phone(31)
    session = opened(others=("CPUExecutionProvider",))
    right(session)
    simulated.fail("ANeuralNetworksExecution_burstCompute", 14)
    with pytest.warns(ort.ProviderWarning, match=r"DEAD_OBJECT \(14\) \(the device was lost; make a new session\)"):
        right(session)
    right(session)  # by the CPU from now on
    strict = opened()
    strict.disable_fallback()
    with pytest.raises(ort.EPFail, match="the device was lost"):
        strict.run(None, {"x": X})
    del session, strict
    gc.collect()
    assert not simulated.alive


def test_nothing_is_left_behind(phone: Phone) -> None:
    simulated = phone(31)
    for memory in ("pointers", "shared", "domains"):
        session = opened({"memory": memory}, batch="n")
        for rows in range(1, 12):  # more sizes than are kept
            right(session, RNG.standard_normal((rows, 3, 6, 6)).astype(np.float32))
        del session
        gc.collect()
        assert not simulated.alive
    assert not [line for line in simulated.log if "freed before" in line]
