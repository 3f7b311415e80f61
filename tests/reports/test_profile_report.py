"""`session.profile()`: what adds up, what is counted, what is kept apart."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx.numpy_helper
import onnx.parser
import pytest

import intarsia as ort
from intarsia.graph.load import load
from intarsia.model.trace_profile import Profile
from intarsia.partition.partition import Partition
from intarsia.providers.cpu.program.cpu_program import CpuProgram
from intarsia.reports.profile_report import KernelTime, ProfileReport, layer_of, measure
from intarsia.runtime.roofline import Roofline, roofline
from intarsia.testing.faults import FaultInjectingExecutionProvider, FaultOptions

CPU = "CPUExecutionProvider"
WEIGHTS = [", ".join(["0.1"] * count) for count in (512, 128)]
MLP = f"""g (float[n,16] x) => (float[n,4] y) <float[16,32] w = {{{WEIGHTS[0]}}}, float[32,4] v = {{{WEIGHTS[1]}}}>
    {{ a = MatMul(x, w)  b = Relu(a)  y = MatMul(b, v) }}"""
FEED = {"x": np.ones((5, 16), np.float32)}


@pytest.fixture(scope="module")
def mlp() -> ort.InferenceSession:
    text = f'<ir_version: 8, opset_import: ["" : 17]> {MLP}'
    model = onnx.parser.parse_model(text)
    for node, name in zip(model.graph.node, ("/net/first/MatMul", "/net/first/Relu", "/net/second/MatMul"), strict=True):
        node.name = name
    return ort.InferenceSession(model.SerializeToString(), providers=[CPU])


def test_operations_are_counted_once_with_the_sizes_of_the_feed(mlp: ort.InferenceSession) -> None:
    found = mlp.profile(FEED, 3, roofline=False)
    products = 2 * 5 * 16 * 32 + 2 * 5 * 32 * 4
    assert sum(row.flop for row in found.by_operator()) == products + 5 * 32  # and one operation for each element of Relu
    assert not found.estimated
    assert len(found.run_milliseconds) == 3
    weights = 4 * (16 * 32 + 32 * 4)
    assert sum(row.nbytes for row in found.by_kernel()) >= weights


def test_the_tables_add_up_to_the_run(mlp: ort.InferenceSession) -> None:
    found = mlp.profile(FEED, 4, roofline=False)
    providers = sum(row.milliseconds for row in found.by_provider())
    for rows in (found.by_kernel(), found.by_operator(), found.by_layer()):
        within = sum(row.milliseconds for row in rows) + sum(row.milliseconds for row in found.between())
        assert within == pytest.approx(providers, rel=1e-9)
    assert providers <= found.milliseconds * 1.001
    assert found.transfers() == []
    assert [row.name for row in found.by_provider()] == [CPU]


def test_there_are_no_other_runs_than_asked_for(mlp: ort.InferenceSession, monkeypatch: pytest.MonkeyPatch) -> None:
    counted, run = [0], CpuProgram.run

    def counting(self: CpuProgram, *arguments: Any) -> list[Any]:
        counted[0] += 1
        return run(self, *arguments)

    monkeypatch.setattr(CpuProgram, "run", counting)
    mlp.profile(FEED, 3, warmup=1, roofline=False)
    assert counted[0] == 4


def test_layers_are_the_original_names(mlp: ort.InferenceSession) -> None:
    found = mlp.profile(FEED, 1, roofline=False)
    assert {row.name for row in found.by_layer()} <= {"net/first", "net/second"}
    assert {row.name for row in found.by_layer(1)} == {"net"}


@pytest.mark.parametrize(
    ("name", "depth", "layer"),
    [("/a/b/Add", 0, "a/b"), ("/a/b/Add", 1, "a"), ("a.b.c", 0, "a.b"), ("Add_3", 0, "(top)"), ("", 0, "(top)")],
)
def test_layer_of(name: str, depth: int, layer: str) -> None:
    assert layer_of(name, depth) == layer


def test_it_prints_and_is_data(mlp: ort.InferenceSession, tmp_path: Path) -> None:
    found = mlp.profile(FEED, 2)
    text = str(found)
    assert text.startswith("2 runs: ")
    assert "GFLOP/s (float32)" in text
    data = json.loads(found.to_json())
    assert data["roofline"]["threads"] >= 1
    assert [k["name"] for k in data["kernels"]] == [k.name for k in found.kernels]
    assert data["by_operator"][0]["roofline"] > 0
    found.save_trace(tmp_path / "trace.json")
    events = json.loads((tmp_path / "trace.json").read_text(encoding="utf-8"))
    assert sum(event["name"] == "model_run" for event in events) == 2
    assert sum(event["cat"] == "Node" for event in events) >= 2


def test_copies_between_memories_stand_apart(make_session) -> None:
    session = make_session(
        "g (float[3] x) => (float[3] y) { y = Neg(x) }", providers=[FaultInjectingExecutionProvider(FaultOptions()), CPU]
    )
    found = session.profile({"x": np.ones(3, np.float32)}, 2, roofline=False)
    assert [row.nbytes for row in found.transfers()] == [12, 12]
    assert CPU not in {row.name for row in found.by_provider()}
    assert "transfers" in str(found)


def test_operators_of_python_are_kernels_too(make_session) -> None:
    text = "g (float[4] x, int64[1] k) => (float[m] y) { c = NonZero(x) d = Cast<to = 1>(c) y = Reshape(d, k) }"
    session = make_session(text, providers=[CPU])
    found = session.profile({"x": np.ones(4, np.float32), "k": np.array([-1])}, 2, roofline=False)
    ops = {row.name for row in found.by_operator()}
    assert "NonZero" in ops
    assert found.estimated


@pytest.mark.parametrize(("runs", "warmup"), [(0, 0), (1, -1)])
def test_numbers_of_runs_are_checked(mlp: ort.InferenceSession, runs: int, warmup: int) -> None:
    with pytest.raises(ort.InvalidArgument, match=f"runs >= 1 and warmup >= 0, got runs {runs} and warmup {warmup}"):
        mlp.profile(FEED, runs, warmup=warmup)


def test_a_wrong_feed_is_an_error(mlp: ort.InferenceSession) -> None:
    with pytest.raises(ort.InvalidArgument, match="x"):
        mlp.profile({})


def test_profiles_are_saved_and_compared(mlp: ort.InferenceSession, tmp_path: Path) -> None:
    first, second = mlp.profile(FEED, 2), mlp.profile(FEED, 2, roofline=False)
    first.save(tmp_path / "first.json")
    read = ProfileReport.load(tmp_path / "first.json")
    assert read.to_dict() == first.to_dict()
    assert read.by_operator() == first.by_operator(), "the roofline, too"
    found = second.compare(read)
    for title, rows in found.tables().items():
        before, after = (
            {row.name: row.milliseconds for row in report.tables()[title]} for report in (first, second)
        )
        assert {row.name: (row.before, row.after) for row in rows} == {
            name: (before.get(name), after.get(name)) for name in {**before, **after}
        }
        assert [abs(row.change) for row in rows] == sorted((abs(row.change) for row in rows), reverse=True)
    assert found.headline in str(found)
    assert found.to_dict()["after_milliseconds"] == second.milliseconds
    assert json.loads(found.to_json())["by_operator"]


def test_what_only_one_profile_has() -> None:
    roof = Roofline(100.0, 10.0, 2)
    before = ProfileReport((2.0,), (kernel(1.0, 5e7, 0),), roof)
    after = ProfileReport((1.0,), (replace(kernel(0.5, 5e7, 0), name="other"),), roof)
    rows = {row.name: row for row in after.compare(before).tables()["by kernel"]}
    assert (rows["k"].before, rows["k"].after, rows["k"].change, rows["k"].ratio) == (1.0, None, -1.0, None)
    assert (rows["other"].before, rows["other"].after, rows["other"].change) == (None, 0.5, 0.5)
    assert after.compare(before).headline == "before 2.000 ms, after 1.000 ms a run: -1.000 ms, x0.50"


@pytest.mark.parametrize(
    ("text", "message"),
    [("no JSON", "p.json'"), ("[]", "as `intarsia profile --json` prints it"), ('{"kernels": []}', "expected a profile")],
)
def test_what_is_no_profile(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "p.json").write_text(text)
    with pytest.raises(ort.InvalidArgument, match=message):
        ProfileReport.load(tmp_path / "p.json")
    with pytest.raises(ort.NoSuchFile, match=r"none\.json' cannot be read"):
        ProfileReport.load(tmp_path / "none.json")


def test_an_index_out_of_range_is_named(make_session) -> None:
    text = "g (float[a] x) => (float[1] y) <int64[1] s = {500}> { y = Gather(x, s) }"
    session = make_session(text, providers=[CPU])
    with pytest.raises(ort.InvalidArgument, match=r"500 at \[0\] of 's'; expected -3 to 2, since dimension 0 of 'x'"):
        session.profile({"x": np.ones(3, np.float32)})


def test_what_observing_costs_is_said(mlp: ort.InferenceSession) -> None:
    found = mlp.profile(FEED, 2, roofline=False)
    assert found.unobserved_milliseconds > 0
    assert found.overhead in str(found)
    made = ProfileReport((3.0,), (kernel(1.0, 0, 8),), unobserved_milliseconds=2.0)
    assert made.overhead.startswith("a run that nobody times takes 2.000 ms: timing 1 calls cost 1.000 ms, 1000.0 us each")
    assert ProfileReport((3.0,), (kernel(1.0, 0, 8),)).overhead == ""


def kernel(milliseconds: float, flop: float, nbytes: float, provider: str = CPU) -> KernelTime:
    return KernelTime("k", "kernel", provider, ("y",), "MatMul", "n", 1, milliseconds, milliseconds / 2, flop, nbytes)


def test_share_of_the_roofline() -> None:
    roof = Roofline(100.0, 10.0, 2)  # 1e11 operations, 1e10 bytes a second
    found = ProfileReport((2.0, 8.0), (kernel(1.0, 5e7, 0),), roof, False, Profile())
    assert found.milliseconds == 2.0
    assert found.by_kernel()[0].roofline == pytest.approx(0.5)
    assert found.by_kernel()[0].best_roofline == pytest.approx(1.0)
    assert found.by_kernel()[0].share == pytest.approx(0.5)
    assert ProfileReport((1.0,), (kernel(1.0, 0, 2e6),), roof).by_kernel()[0].roofline == pytest.approx(0.2)
    assert ProfileReport((1.0,), (kernel(1.0, 0, 2e6, "Other"),), roof).by_kernel()[0].roofline is None


class TwoRuns:
    """Stands for a compiled model: the second run is the faster one, though its kernel takes longer, in two calls."""

    def __init__(self, trace: Profile) -> None:
        text = '<ir_version: 8, opset_import: ["" : 17]> g (float[2] x) => (float[2] y) { y = Neg(x) }'
        self.partition = Partition(load(onnx.parser.parse_model(text).SerializeToString()), (), ())
        self.programs = ()
        self.trace, self.calls = trace, [[(0, 1)], [(2, 3), (3, 5)]]

    def run(self, inputs: object, options: object) -> None:
        calls = self.calls.pop(0)
        for start, end in calls:
            self.trace.add_kernel("neg", ("y",), start * 1_000_000, end * 1_000_000, 16)
        time.sleep(0.02 if self.calls else 0)


def test_a_kernels_fastest_run_stands_beside_its_mean() -> None:
    trace = Profile()
    (found,) = measure(TwoRuns(trace), [np.ones(2)], trace, 2, 0, None).kernels
    assert (found.calls, found.milliseconds, found.least_milliseconds, found.nbytes) == (2, 3.0, 1.0, 32)


def test_the_machine_is_measured_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from intarsia.runtime import roofline as module

    monkeypatch.setenv("INTARSIA_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(module, "_SECONDS", 0.01)
    first = roofline(1)
    assert first.gflop_per_s > 0.1
    assert first.gbyte_per_s > 0.1
    monkeypatch.setattr(module, "_multiply_adds", lambda _threads: 1e6)
    monkeypatch.setattr(module, "_bytes_read", lambda _threads: 1e-6)
    assert roofline(1) == first
    again = roofline(1, again=True)
    assert (again.gflop_per_s, again.gbyte_per_s) == (1e6, first.gbyte_per_s)
    assert roofline(1) == again


def test_arithmetic_of_less_than_float32_has_peaks_of_its_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from intarsia.codegen.llvm.target import Target
    from intarsia.runtime import roofline as module

    monkeypatch.setenv("INTARSIA_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(module, "_SECONDS", 0.01)
    names = [name for name in module._units(Target.host()) if name]
    plain = roofline(1)
    assert plain.less == {}
    monkeypatch.setattr(module, "_bytes_read", lambda _threads: 1e6)
    found = roofline(1, less=[*names, "of no kind"])
    assert list(found.less) == names and all(peak > 0.1 for peak in found.less.values())
    assert replace(found, less={}) == plain, "what was known is not measured again"
    assert roofline(1, less=names[:1]).less == {name: found.less[name] for name in names[:1]}
    assert roofline(1) == plain
    roof = Roofline(100.0, 10.0, 2, {"bfloat16 by AMX": 1000.0})
    assert "100 GFLOP/s (float32), 1,000 (bfloat16 by AMX), 10.0 GB/s" in str(roof)
    assert roof.seconds(1e9, 0, "MatMul+Relu (bfloat16 by AMX)") == pytest.approx(1e-3)
    assert roof.seconds(1e9, 0, "MatMul (bfloat16 weights)") == roof.seconds(1e9, 0) == pytest.approx(1e-2)


def test_a_profile_asks_for_the_peaks_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    from intarsia.runtime import roofline as module

    asked = []

    def measured(threads: int, *, less: list[str]) -> Roofline:
        asked.append(less)
        return Roofline(100.0, 10.0, 1, dict.fromkeys(less, 200.0))

    monkeypatch.setattr(module, "roofline", measured)
    model = onnx.parser.parse_model('<ir_version: 8, opset_import: ["" : 17]> g (float[9, 64] x) => (y) { y = MatMul(x, w) }')
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.ones((64, 128), np.float32), "w"))
    options = ort.SessionOptions()
    options.add_session_config_entry("session.arithmetic", "bfloat16")
    options.add_session_config_entry("session.matrix_unit", "amx_emulated")
    session = ort.InferenceSession(model.SerializeToString(), options, providers=[CPU])
    found = session.profile({"x": np.ones((9, 64), np.float32)}, 2)
    assert asked == [["bfloat16 by emulated AMX"]]
    assert found.roof is not None and "bfloat16 by emulated AMX" in str(found)


def test_a_closed_session_has_no_reports(make_session) -> None:
    session = make_session("g (float[3] x) => (float[3] y) { y = Neg(x) }", providers=[CPU])
    session.close()
    with pytest.raises(ort.Fail, match="the session is closed"):
        session.profile({"x": np.ones(3, np.float32)})
    with pytest.raises(ort.Fail, match="the session is closed"):
        session.memory_report()


def test_initializers_that_a_feed_overrides() -> None:
    text = "g (float[2,3] x) => (float[2,4] y) <float[3,4] w = {1,1,1,1,1,1,1,1,1,1,1,1}> { y = MatMul(x, w) }"
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]> {text}')
    model.graph.input.append(onnx.helper.make_tensor_value_info("w", 1, [3, 4]))
    session = ort.InferenceSession(model.SerializeToString(), providers=[CPU])
    given = {"x": np.ones((2, 3), np.float32), "w": np.zeros((3, 4), np.float32)}
    found = session.profile(given, 1, roofline=False)
    assert sum(row.flop for row in found.by_kernel()) == 2 * 2 * 3 * 4


def test_a_profile_has_the_operations_and_types_of_the_sizes_that_ran(make_session) -> None:
    text = "g (float[n, 64] x, float[64, 32] w) => (float[n, 32] y) { [product] y = MatMul(x, w) }"
    session = make_session(text)
    assert next(node for node in session.explain().nodes).estimated
    feed = {"x": np.ones((3, 64), np.float32), "w": np.ones((64, 32), np.float32)}
    report = session.profile(feed, 2)
    assert (report.costs["y"].flop, report.costs["y"].estimated) == (2 * 3 * 64 * 32, False)
    assert report.costs["y"].nbytes == 4 * (3 * 64 + 64 * 32 + 3 * 32)
    assert report.types["y"] == "float[3, 32]"
