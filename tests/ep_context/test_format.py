"""Compiled models: written as EPContext nodes, restored without compiling, refused where they do not belong."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.helper
import pytest

import intarsia as ort
from intarsia.capi import onnxruntime_pybind11_state as state
from intarsia.ep_context import format as ep_context
from intarsia.errors import (
    ExternalDataError,
    Fail,
    InvalidArgument,
    InvalidGraph,
    InvalidProtobuf,
    ModelRequiresCompilation,
    NotImplemented,
)
from intarsia.session import context_export

pytest.importorskip("llvmlite", reason="programs are compiled with llvmlite")

CPU = "CPUExecutionProvider"
EXAMPLES = Path(__file__).parents[2] / "examples"
MLP = """g (float[batch, 3] x) => (float[batch, 2] y)
<float[3, 2] w = {1, 2, 3, 4, 5, 6}, float[2] b = {-1, 1}> { p = MatMul(x, w)  q = Add(p, b)  y = Relu(q) }"""
X = np.float32([[1, -2, 3], [0, 5, -6]])
EXPECTED = np.maximum(X @ np.float32([[1, 2], [3, 4], [5, 6]]) + np.float32([-1, 1]), 0)
IF = """g (bool c, float[n] x) => (float[n] y) {
    y = If (c) <then_branch = a () => (float[n] s) { s = Add(x, x) }, else_branch = b () => (float[n] t) { t = Neg(x) }> }"""

SEQUENCE = """g (float[n, 3] x, int64 k) => (float[m, 3] y) <float[3] w = {1, 2, 3}> {
    a = Mul(x, w)  b = Relu(a)  t = Constant<value_int = 1>()  c = Cast<to = 9>(t)  s = SequenceEmpty<dtype = 1>()
    q = Loop(k, c, s) <body = body (int64 i, bool ci, seq(float[n, 3]) si) => (bool co, seq(float[n, 3]) so) {
        one = Constant<value = int64[1] {1}>()  zero = Constant<value = int64[1] {0}>()  at = Reshape(i, one)
        end = Add(at, one)  part = Slice(b, zero, end)  co = Identity(ci)  so = SequenceInsert(si, part) }>
    d = ConcatFromSequence<axis = 0>(q)  y = Neg(d) }"""


def options(**entries: str) -> ort.SessionOptions:
    made = ort.SessionOptions()
    for key, value in entries.items():
        made.add_session_config_entry(key.replace("__", "."), value)
    return made


COMPILED_ONLY = {"session__disable_model_compile": "1"}


@pytest.fixture
def source(tmp_path: Path, make_model: Callable[..., onnx.ModelProto]) -> Path:
    path = tmp_path / "m.onnx"
    onnx.save(make_model(MLP), path)
    return path


@pytest.fixture
def compiled(source: Path) -> Path:
    ort.ModelCompiler(ort.SessionOptions(), source, True).compile_to_file()
    return source.with_name("m_ctx.onnx")


def check(model: Any, **entries: str) -> ort.InferenceSession:
    session = ort.InferenceSession(model, options(**COMPILED_ONLY, **entries))
    np.testing.assert_allclose(session.run(None, {"x": X})[0], EXPECTED)
    return session


def attributes(path: Path) -> dict[str, Any]:
    nodes = [n for n in onnx.load(path).graph.node if n.op_type == "EPContext"]
    return {a.name: onnx.helper.get_attribute_value(a) for a in nodes[0].attribute}


def edit(path: Path, change: Callable[[onnx.GraphProto], object]) -> Path:
    """A copy of a compiled model beside it, changed."""
    model = onnx.load(path)
    change(model.graph)
    changed = path.with_name("changed.onnx")
    onnx.save(model, changed)
    return changed


def set_attribute(name: str, value: Any) -> Callable[[onnx.GraphProto], None]:
    def change(graph: onnx.GraphProto) -> None:
        node = graph.node[0]
        kept = [a for a in node.attribute if a.name != name]
        del node.attribute[:]
        node.attribute.extend([*kept, onnx.helper.make_attribute(name, value)])

    return change


class TestRoundTrip:
    def test_what_is_written(self, source: Path, compiled: Path) -> None:
        model = onnx.load(compiled)
        assert [(n.domain, n.op_type, list(n.input), list(n.output)) for n in model.graph.node] == [
            ("com.microsoft", "EPContext", ["x"], ["y"])
        ]
        assert not model.graph.initializer
        found = attributes(compiled)
        assert (found["main_context"], found["embed_mode"], found["source"]) == (1, 1, CPU.encode())
        assert found["partition_name"] == f"{CPU}_part0".encode()
        assert found["ep_sdk_version"] == ort.__version__.encode()
        assert found["hardware_architecture"]
        session, original = check(compiled), ort.InferenceSession(source)
        assert [str(v) for v in session.get_inputs()] == [str(v) for v in original.get_inputs()]
        assert [str(v) for v in session.get_outputs()] == [str(v) for v in original.get_outputs()]
        assert [(n.op, n.provider, n.kind) for n in session.explain().nodes] == [("com.microsoft::EPContext", CPU, "compiled")]

    @pytest.mark.parametrize("embed", [True, False], ids=["inside", "beside"])
    def test_a_new_process_needs_no_compiler(self, source: Path, embed: bool) -> None:
        ort.ModelCompiler(ort.SessionOptions(), source, embed).compile_to_file()
        code = f"""
import sys, numpy, intarsia
session = intarsia.InferenceSession({str(source.with_name("m_ctx.onnx"))!r})
loaded = {{"llvmlite.binding", "onnx", "intarsia.ops", "intarsia.model.compiled_model"}} & sys.modules.keys()
assert session.run(None, {{"x": numpy.float32([[1, -2, 3]])}})[0].tolist() == {EXPECTED[:1].tolist()}
assert not loaded, loaded
assert "EPContext" in str(session.explain())
"""
        env = {**os.environ, "PYTHONPATH": str(Path(ort.__file__).parents[1])}
        for _ in range(2):  # what all programs share, like threads, is compiled once on a machine
            done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr

    def test_beside_the_model(self, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        target = tmp_path / "out.onnx"
        ort.ModelCompiler(ort.SessionOptions(), source).compile_to_file(target)
        assert attributes(target)["ep_cache_context"] == b"out_part0.bin"
        monkeypatch.chdir("/")
        check(target)
        with pytest.raises(ExternalDataError, match=r"given as bytes: set the session's entry 'ep.context_file_path'"):
            check(target.read_bytes())
        check(target.read_bytes(), ep__context_file_path=str(target))
        (tmp_path / "out_part0.bin").rename(tmp_path / "elsewhere.bin")
        with pytest.raises(ExternalDataError, match=r"its file 'out_part0.bin' is missing in .*: copy it there with the model"):
            check(target)

    def test_bytes_and_streams_have_everything_inside(self, source: Path) -> None:
        compiler = ort.ModelCompiler(ort.SessionOptions(), source.read_bytes())
        check(compiler.compile_to_bytes())
        pieces: list[bytes] = []
        compiler.compile_to_stream(pieces.append)
        check(b"".join(pieces))

    @pytest.mark.parametrize("embed", [True, False], ids=["inside", "beside"])
    @pytest.mark.parametrize("name", ["digits/digits", "text/dates"])
    def test_the_example_models(self, name: str, embed: bool, tmp_path: Path) -> None:
        source, target = EXAMPLES / f"{name}.onnx", tmp_path / "c.onnx"
        ort.ModelCompiler(ort.SessionOptions(), source, embed).compile_to_file(target)
        original, session = ort.InferenceSession(source), ort.InferenceSession(target, options(**COMPILED_ONLY))
        rng = np.random.default_rng(0)
        feed: dict[str, Any] = {}
        for value in original.get_inputs():
            shape = [d if isinstance(d, int) else 3 for d in value.shape]
            feed[value.name] = rng.integers(0, 5, shape) if "int" in value.type else rng.random(shape, np.float32)
            feed[value.name] = feed[value.name].astype({"tensor(int32)": "i4", "tensor(int64)": "i8"}.get(value.type, "f4"))
        for found, expected in zip(session.run(None, feed), original.run(None, feed), strict=True):
            np.testing.assert_array_equal(found, expected)
        assert [str(v) for v in session.get_outputs()] == [str(v) for v in original.get_outputs()]

    def test_control_flow(self, tmp_path: Path, make_model: Callable[..., onnx.ModelProto]) -> None:
        source = tmp_path / "if.onnx"
        onnx.save(make_model(IF), source)
        ort.ModelCompiler(ort.SessionOptions(), source, True, flags=1).compile_to_file()
        session = ort.InferenceSession(tmp_path / "if_ctx.onnx", options(**COMPILED_ONLY))
        x = np.float32([1, -2])
        np.testing.assert_array_equal(session.run(None, {"c": np.array(True), "x": x})[0], x + x)
        np.testing.assert_array_equal(session.run(None, {"c": np.array(False), "x": x})[0], -x)

    def test_inside_a_larger_model_under_other_names(self, compiled: Path) -> None:
        def surround(graph: onnx.GraphProto) -> None:
            graph.node[0].input[0], graph.node[0].output[0] = "twice", "inner"
            graph.node.insert(0, onnx.helper.make_node("Add", ["x", "x"], ["twice"]))
            graph.node.append(onnx.helper.make_node("Neg", ["inner"], ["y"]))

        session = ort.InferenceSession(edit(compiled, surround))
        np.testing.assert_allclose(session.run(None, {"x": X / 2})[0], -EXPECTED)
        assert {n.op for n in session.explain().nodes} == {"Add", "com.microsoft::EPContext", "Neg"}
        with pytest.raises(ModelRequiresCompilation, match=r"has to compile 1 nodes .*'session.disable_model_compile' is '1'"):
            check(edit(compiled, surround))

    def test_parts_that_cannot_be_saved_stay(self, source: Path, tmp_path: Path) -> None:
        made = ort.SessionOptions()
        made.add_provider("ReferenceExecutionProvider", {})
        target = tmp_path / "out.onnx"
        ort.ModelCompiler(made, source).compile_to_file(target)
        assert [n.op_type for n in onnx.load(target).graph.node] == ["MatMul", "Add", "Relu"]
        with pytest.raises(Fail, match=r"Unable to compile any nodes.*ReferenceExecutionProvider does not keep programs"):
            ort.ModelCompiler(made, source, flags=1).compile_to_bytes()

    def test_some_nodes_stay(self, source: Path, tmp_path: Path) -> None:
        made = options(partition__place="*Relu*=ReferenceExecutionProvider")
        made.add_provider(CPU, {})
        made.add_provider("ReferenceExecutionProvider", {})
        model = onnx.load(source)
        model.graph.node[2].name = "Relu0"
        target = tmp_path / "out.onnx"
        ort.ModelCompiler(made, model.SerializeToString(), True).compile_to_file(target)
        assert [n.op_type for n in onnx.load(target).graph.node] == ["EPContext", "Relu"]
        np.testing.assert_allclose(ort.InferenceSession(target).run(None, {"x": X})[0], EXPECTED)

    def test_sizes_that_the_code_does_not_expect(self, make_model: Callable[..., onnx.ModelProto]) -> None:
        source = make_model("g (float[n, 3] x, float[n, 3] z) => (float[n, 3] y) { y = Add(x, z) }")
        data = ort.ModelCompiler(ort.SessionOptions(), source.SerializeToString()).compile_to_bytes()
        six, one = np.ones((6, 3), np.float32), np.ones((1, 3), np.float32)
        session = ort.InferenceSession(data)
        np.testing.assert_array_equal(session.run(None, {"x": six, "z": six})[0], six + six)
        with pytest.raises(
            InvalidArgument, match=r"was compiled for its input 'z' as .*; got shape \[1, 3\], where other sizes"
        ):
            session.run(None, {"x": six, "z": one})

        def given(kind: int, shape: list[Any], value: np.ndarray) -> None:
            changed = onnx.load_from_string(data)
            changed.graph.input[1].CopyFrom(onnx.helper.make_tensor_value_info("z", kind, shape))
            ort.InferenceSession(changed.SerializeToString()).run(None, {"x": six, "z": value})

        given(1, ["n", 3], six)
        with pytest.raises(InvalidArgument, match=r"input 'z' as .*; got shape \[6\]"):
            given(1, ["k"], six[:, 0])
        with pytest.raises(InvalidArgument, match=r"input 'z' as .*; got shape \[6, 2\]"):
            given(1, ["n", 2], six[:, :2])
        with pytest.raises(InvalidArgument, match=r"input 'z' as .*; got float16"):
            given(10, ["n", 3], six.astype(np.float16))

    def test_what_runs_a_subgraph_from_python_stays_alone(
        self, tmp_path: Path, make_model: Callable[..., onnx.ModelProto]
    ) -> None:
        source = tmp_path / "s.onnx"
        onnx.save(make_model(SEQUENCE), source)
        ort.ModelCompiler(ort.SessionOptions(), source).compile_to_file()
        made = onnx.load(tmp_path / "s_ctx.onnx")
        assert [n.op_type for n in made.graph.node] == ["EPContext", "Loop", "EPContext"]
        feed = {"x": X, "k": np.array(2)}
        expected = ort.InferenceSession(source).run(None, feed)[0]
        assert expected.shape == (3, 3)
        np.testing.assert_array_equal(ort.InferenceSession(tmp_path / "s_ctx.onnx").run(None, feed)[0], expected)

    def test_over_the_limit_of_protobuf(
        self, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        monkeypatch.setattr(context_export, "MAX_EMBEDDED_NBYTES", 100)
        compiler = ort.ModelCompiler(ort.SessionOptions(), source, True)
        with pytest.raises(InvalidArgument, match=r"over protobuf's limit of 2 GB: write files with compile_to_file"):
            compiler.compile_to_bytes()
        with caplog.at_level(logging.WARNING, "intarsia"):
            compiler.compile_to_file(tmp_path / "out.onnx")
        assert "over protobuf's limit of 2 GB: they are written beside the model" in caplog.text
        check(tmp_path / "out.onnx")

    def test_without_a_cache(self, source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("INTARSIA_CACHE", "0")
        data = ort.ModelCompiler(ort.SessionOptions(), source, flags=1).compile_to_bytes()
        with pytest.raises(Fail, match="not compiled by this user on this machine"):
            check(data)
        check(data, session__trust_compiled_model="1")

    def test_a_compiled_model_is_not_compiled_again(self, compiled: Path) -> None:
        with pytest.raises(InvalidArgument, match="has EPContext nodes: it is compiled already"):
            ort.ModelCompiler(ort.SessionOptions(), compiled).compile_to_bytes()


class TestEntries:
    def test_written_when_a_session_is_made(self, source: Path, tmp_path: Path) -> None:
        ort.InferenceSession(source, options(ep__context_enable="1", ep__context_node_name_prefix="one_"))
        made = tmp_path / "m_ctx.onnx"
        assert (attributes(made)["embed_mode"], onnx.load(made).graph.node[0].name) == (0, f"one_{CPU}_part0")
        check(made)
        with pytest.raises(Fail, match=r"Failed to generate EP context model since the file .*m_ctx.onnx' exist already"):
            ort.InferenceSession(source, options(ep__context_enable="1"))

    def test_where_and_how(self, source: Path, tmp_path: Path) -> None:
        target = str(tmp_path / "x.onnx")
        entries = {"ep__context_enable": "1", "ep__context_embed_mode": "1"}
        ort.InferenceSession(source.read_bytes(), options(**entries, ep__context_file_path=target))
        assert attributes(Path(target))["embed_mode"] == 1
        check(target)
        with pytest.raises(InvalidArgument, match=r"given as bytes: set 'ep.context_file_path'"):
            ort.InferenceSession(source.read_bytes(), options(**entries))
        with pytest.raises(InvalidArgument, match="should not point to a folder"):
            ort.InferenceSession(source, options(**entries, ep__context_file_path=str(tmp_path)))

    def test_nothing_to_write(self, source: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
        with caplog.at_level(logging.WARNING, "intarsia"):
            ort.InferenceSession(source, options(ep__context_enable="1"), providers=["ReferenceExecutionProvider"])
        assert "does not keep programs" in caplog.text
        assert not (tmp_path / "m_ctx.onnx").exists()

    def test_models_that_are_not_compiled_are_refused(self, source: Path) -> None:
        with pytest.raises(ModelRequiresCompilation, match=rf"{CPU} has to compile .* nodes"):
            ort.InferenceSession(source, options(**COMPILED_ONLY))


class TestRefusals:
    def test_code_of_others(self, compiled: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("INTARSIA_CACHE_DIR", str(tmp_path / "another user's"))
        with pytest.raises(Fail, match=r"not compiled by this user on this machine .*'session.trust_compiled_model' to '1'"):
            check(compiled)
        check(compiled, session__trust_compiled_model="1")
        monkeypatch.setenv("INTARSIA_CACHE", "0")
        with pytest.raises(Fail, match="loading it runs that code"):
            check(compiled)

    def test_a_cpu_without_a_feature(self, compiled: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("INTARSIA_CPU_FEATURES", "x86-64")
        with pytest.raises(ModelRequiresCompilation, match=r"compiled for a CPU with .*avx.*, which this one does not have"):
            check(compiled)

    def test_a_cpu_with_more_features(
        self, source: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        monkeypatch.setenv("INTARSIA_CPU_FEATURES", "x86-64")
        data = ort.ModelCompiler(ort.SessionOptions(), source).compile_to_bytes()
        monkeypatch.delenv("INTARSIA_CPU_FEATURES")
        with caplog.at_level(logging.WARNING, "intarsia"):
            check(data)
        assert "runs slower than it could: it was compiled for a CPU without" in caplog.text
        with pytest.raises(ModelRequiresCompilation, match=r"would run slower .*'session.fail_on_suboptimal_compiled_model'"):
            check(data, session__fail_on_suboptimal_compiled_model="1")

    def test_another_version(self, compiled: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        with monkeypatch.context() as patch:
            patch.setattr("intarsia.machine.version.__version__", "9.9.9")
            with pytest.raises(ModelRequiresCompilation, match=r"compiled by Intarsia 0.* this is 9.9.9; compile again"):
                check(compiled)
        monkeypatch.setattr("intarsia.cache.fingerprint.sources", lambda: "changed")
        with pytest.raises(ModelRequiresCompilation, match="compiled by another build of Intarsia"):
            check(compiled)

    def test_another_provider(self, compiled: Path) -> None:
        changed = edit(compiled, set_attribute("source", "QNNExecutionProvider"))
        with pytest.raises(NotImplemented, match=r"compiled for 'QNNExecutionProvider', which is not among .*providers \(CPU"):
            check(changed)

    def test_another_runtime(self, compiled: Path) -> None:
        with pytest.raises(NotImplemented, match="is not in Intarsia's format, or damaged"):
            check(edit(compiled, set_attribute("ep_cache_context", b"blob of another runtime" * 9)))
        with pytest.raises(NotImplemented, match="main_context 0"):
            check(edit(compiled, set_attribute("main_context", 0)))

    @pytest.mark.parametrize("place", [20, 70, -1000, -1], ids=["checksum", "header", "head", "weights"])
    def test_damage(self, compiled: Path, place: int) -> None:
        data = bytearray(attributes(compiled)["ep_cache_context"])
        data[place] ^= 1
        with pytest.raises(InvalidProtobuf, match=r"is damaged: .*; copy the compiled model anew"):
            check(edit(compiled, set_attribute("ep_cache_context", bytes(data))))

    @pytest.mark.parametrize("header", [b"[]", b"{}", b"\xff", b'{"head": -1, "weights": 1, "checksum": "", "provider": "x"}'])
    def test_headers_that_nobody_wrote(self, compiled: Path, header: bytes) -> None:
        data = ep_context._PREFIX.pack(ep_context._MAGIC, len(header), ep_context._checksum(header), bytes(32)) + header
        with pytest.raises(InvalidProtobuf, match="its header does not say what follows"):
            check(edit(compiled, set_attribute("ep_cache_context", data)))

    @pytest.mark.parametrize("kept", [65, 0.5, 0.99])
    def test_cut_short(self, source: Path, tmp_path: Path, kept: float) -> None:
        ort.ModelCompiler(ort.SessionOptions(), source).compile_to_file(tmp_path / "c.onnx")
        part = tmp_path / "c_part0.bin"
        data = part.read_bytes()
        part.write_bytes(data[: int(kept if kept > 1 else kept * len(data))])
        with pytest.raises(ExternalDataError, match=r"'c_part0.bin', is damaged: it ends after"):
            check(tmp_path / "c.onnx")
        part.write_bytes(data + b"\0")
        with pytest.raises(ExternalDataError, match="its bytes are not those that were written"):
            check(tmp_path / "c.onnx")

    def test_a_file_outside_of_the_folder(self, source: Path, tmp_path: Path) -> None:
        ort.ModelCompiler(ort.SessionOptions(), source).compile_to_file(tmp_path / "c.onnx")
        changed = edit(tmp_path / "c.onnx", set_attribute("ep_cache_context", os.fspath(tmp_path.parent / "x.bin")))
        with pytest.raises(ExternalDataError, match="leads out of the model's folder"):
            check(changed)

    def test_a_node_that_does_not_fit_its_part(self, compiled: Path) -> None:
        with pytest.raises(InvalidGraph, match=r"takes 1 inputs and gives 1 outputs; the node has 2 and 1"):
            check(edit(compiled, lambda graph: graph.node[0].input.append("x")))

        def constant(graph: onnx.GraphProto) -> None:
            graph.initializer.append(onnx.numpy_helper.from_array(X, "k"))
            graph.node[0].input[0] = "k"

        with pytest.raises(InvalidGraph, match="its input 'k' is an initializer or left out"):
            check(edit(compiled, constant))

    @pytest.mark.parametrize(
        ("name", "value", "kind", "expected"),
        [
            ("ep_cache_context", 2, InvalidGraph, "attribute 'ep_cache_context' is '2'; expected text or bytes"),
            ("ep_cache_context", ["a"], InvalidGraph, "expected text or bytes"),
            ("embed_mode", "x", InvalidGraph, "attribute 'embed_mode' is 'x'; expected an integer"),
            ("main_context", 0.5, InvalidGraph, "attribute 'main_context' is '0.5'; expected an integer"),
            ("source", ["a"], NotImplemented, "is not among the session's providers"),
            ("source", 1, NotImplemented, "is not among the session's providers"),
        ],
    )
    @pytest.mark.parametrize("trusted", ["0", "1"])
    def test_attributes_of_other_types(
        self, trusted: str, name: str, value: Any, kind: type[Exception], expected: str, compiled: Path
    ) -> None:
        model = onnx.load(compiled)
        node = model.graph.node[0]
        node.attribute.remove(next(a for a in node.attribute if a.name == name))
        node.attribute.append(onnx.helper.make_attribute(name, value))
        with pytest.raises(kind, match=expected):
            ort.InferenceSession(model.SerializeToString(), options(session__trust_compiled_model=trusted))

    def test_a_program_that_cannot_be_restored(self, compiled: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("intarsia.providers.cpu.CPUExecutionProvider.restore", lambda *_: None)
        with pytest.raises(ModelRequiresCompilation, match="cannot be restored on this machine"):
            check(compiled)
        monkeypatch.setattr("intarsia.providers.cpu.CPUExecutionProvider.restore", lambda *_: 1 / 0)
        with pytest.raises(ModelRequiresCompilation, match="cannot be restored: ZeroDivisionError"):
            check(compiled)


def test_compatibility_of_devices(source: Path, compiled: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    info = state.get_compatibility_info_from_model(compiled, CPU)
    assert info is not None
    devices = [d for d in ort.get_ep_devices() if d.ep_name == CPU]
    kinds = ort.OrtCompiledModelCompatibility
    assert state.get_model_compatibility_for_ep_devices(devices, info) is kinds.EP_SUPPORTED_OPTIMAL
    monkeypatch.setenv("INTARSIA_CPU_FEATURES", "x86-64")
    assert state.get_model_compatibility_for_ep_devices(devices, info) is kinds.EP_UNSUPPORTED
    older = ort.ModelCompiler(ort.SessionOptions(), source).compile_to_bytes()
    info = state.get_compatibility_info_from_model_bytes(older, CPU)
    assert info is not None
    monkeypatch.delenv("INTARSIA_CPU_FEATURES")
    assert state.get_model_compatibility_for_ep_devices(devices, info) is kinds.EP_SUPPORTED_PREFER_RECOMPILATION
    assert state.get_model_compatibility_for_ep_devices(devices, "[]") is kinds.EP_NOT_APPLICABLE


class TestOpenVINO:
    def test_round_trip(self, tmp_path: Path) -> None:
        pytest.importorskip("openvino", reason="compiles with OpenVINO")
        name = "OpenVINOExecutionProvider"
        made = options(partition__keep_islands="1")
        made.add_provider(name, {})
        source = EXAMPLES / "digits" / "digits.onnx"
        data = ort.ModelCompiler(made, source, True, flags=1).compile_to_bytes()
        nodes = onnx.load_from_string(data).graph.node
        assert name.encode() in [a.s for n in nodes for a in n.attribute if a.name == "source"]
        with pytest.raises(NotImplemented, match=rf"compiled for '{name}', which is not among the session's providers"):
            ort.InferenceSession(data)
        session = ort.InferenceSession(data, options(**COMPILED_ONLY), providers=[name, CPU])
        x = np.random.default_rng(0).random((2, 1, 8, 8), np.float32)
        expected = ort.InferenceSession(source).run(None, {"image": x})[0]
        np.testing.assert_allclose(session.run(None, {"image": x})[0], expected, rtol=1e-5, atol=1e-6)
