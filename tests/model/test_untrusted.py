"""Sessions on models of strangers: what they refuse, and that their limits hold."""

from __future__ import annotations

import io
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest
from onnx import TensorProto, helper, numpy_helper

import intarsia as ort
from intarsia.errors import (
    ExternalDataError,
    InvalidArgument,
    InvalidGraph,
    InvalidModelError,
    NoSuchFile,
    OutOfMemory,
    RunTimeout,
    WrongType,
)

ADD = '<ir_version: 10, opset_import: ["": 20]> g (float[n] x) => (float[n] y) { y = Add(x, x) }'


def untrusted(**limits: int) -> ort.SessionOptions:
    options = ort.SessionOptions()
    options.untrusted = True
    for name, value in limits.items():
        options.add_session_config_entry(f"untrusted.{name}", str(value))
    return options


def model(text: str = ADD) -> bytes:
    data: bytes = onnx.parser.parse_model(text).SerializeToString()
    return data


def add(options: ort.SessionOptions, source: Any) -> list[float]:
    (y,) = ort.InferenceSession(source, options).run(None, {"x": np.array([1, 2], np.float32)})
    found: list[float] = y.tolist()
    return found


def test_a_harmless_model_runs(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(model())
    for source in (model(), path, str(path), io.BytesIO(model()), onnx.load(path), bytearray(model())):
        assert add(untrusted(), source) == [2, 4]


class Raw(io.RawIOBase):
    """A stream that gives seven bytes at a time, as pipes and sockets may."""

    def __init__(self, data: bytes) -> None:
        self.left = data

    def read(self, size: int = -1) -> bytes:
        given, self.left = self.left[:7], self.left[7:]
        return given


def test_other_sources() -> None:
    assert add(untrusted(), Raw(model())) == [2, 4]
    with pytest.raises(WrongType, match="stream gives str; expected bytes"):
        ort.InferenceSession(io.StringIO("text"), untrusted())
    with pytest.raises(WrongType):
        ort.InferenceSession(123, untrusted())


def test_every_way_to_run() -> None:
    session = ort.InferenceSession(model(), untrusted())
    x = np.array([1, 2], np.float32)
    binding = session.io_binding()
    binding.bind_cpu_input("x", x)
    binding.bind_output("y")
    for _ in range(4):  # prepared bindings and native calls are for sessions that nothing watches
        session.run_with_iobinding(binding)
        assert binding.copy_outputs_to_cpu()[0].tolist() == [2, 4]
        assert session.run(["y"], {"x": x}, ort.RunOptions())[0].tolist() == [2, 4]
        assert session.run(None, {"x": x}, timeout=60)[0].tolist() == [2, 4]


@pytest.mark.parametrize("source", ["path", "bytes", "stream", "proto"])
def test_the_size_of_the_model(source: str, tmp_path: Path) -> None:
    weights = numpy_helper.from_array(np.ones(300_000, np.float32), "w")
    graph = onnx.parser.parse_graph("g (float[300000] x) => (float[300000] y) { y = Add(x, w) }")
    graph.initializer.append(weights)
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    path = tmp_path / "m.onnx"
    onnx.save(proto, path)
    given: Any = {"path": path, "bytes": path.read_bytes(), "stream": io.BytesIO(path.read_bytes()), "proto": proto}[source]
    message = r"the model has 1\.\d MiB, at most 1\.0 MiB are allowed \('untrusted\.model_mib'\)"
    with pytest.raises(InvalidModelError, match=message):
        ort.InferenceSession(given, untrusted(model_mib=1))


def test_what_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(NoSuchFile, match="there is no such file"):
        ort.InferenceSession(tmp_path / "none.onnx", untrusted())
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", tmp_path, "/dev/zero"):
        with pytest.raises(InvalidModelError, match="expected a regular file, as the session is untrusted"):
            ort.InferenceSession(path, untrusted())


def test_external_data(tmp_path: Path) -> None:
    graph = onnx.parser.parse_graph("g (float[2] x) => (float[2] y) { y = Add(x, w) }")
    graph.initializer.append(numpy_helper.from_array(np.ones(2, np.float32), "w"))
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    path = tmp_path / "m.onnx"
    onnx.save(proto, path, save_as_external_data=True, location="w.bin", size_threshold=0)
    assert add(ort.SessionOptions(), path) == [2, 3]
    with pytest.raises(ExternalDataError, match=r"'w'.* is in the file 'w\.bin', which an untrusted session does not read"):
        add(untrusted(), path)
    options = untrusted()
    data = (tmp_path / "w.bin").read_bytes()
    options.add_external_initializers_from_files_in_memory(["w.bin"], [data], [len(data)])
    assert add(options, path) == [2, 3]


def test_compiled_parts(tmp_path: Path) -> None:
    target = tmp_path / "compiled.onnx"
    ort.ModelCompiler(ort.SessionOptions(), model(), embed_compiled_data_into_model=True).compile_to_file(str(target))
    assert add(ort.SessionOptions(), target) == [2, 4]
    with pytest.raises(InvalidGraph, match=r"\(EPContext\) holds machine code, which an untrusted session does not load"):
        add(untrusted(), target)
    options = untrusted()
    options.add_session_config_entry("session.trust_compiled_model", "1")
    with pytest.raises(InvalidArgument, match="the session is untrusted: it loads no compiled parts"):
        add(options, target)


def test_options_of_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    proto = onnx.parser.parse_model(ADD)
    config = {"session_options": {"intra_op_num_threads": 7, "enable_profiling": 1}}
    proto.metadata_props.add(key="ort_config", value=json.dumps(config))
    data = proto.SerializeToString()
    monkeypatch.setenv("ORT_LOAD_CONFIG_FROM_MODEL", "1")
    session = ort.InferenceSession(data, untrusted())
    assert session.get_session_options().intra_op_num_threads == 0
    with pytest.raises(InvalidArgument, match="an untrusted session takes no options from the model"):
        ort.InferenceSession(data, untrusted(), read_config_from_model=1)


def test_what_others_overlook() -> None:
    proto = onnx.parser.parse_model(ADD.replace("Add(x, x)", "Add(x, w)"))
    for number in (1, 2):
        proto.graph.initializer.append(numpy_helper.from_array(np.float32(number), "w"))
    assert add(ort.SessionOptions(), proto.SerializeToString()) == [3, 4]
    with pytest.raises(InvalidGraph, match=r"'w' is defined twice.* \(an error, as the session is untrusted\)"):
        add(untrusted(), proto.SerializeToString())
    imports = onnx.parser.parse_model(ADD.replace("Add(x, x)", "com.microsoft.FusedGelu(x)").replace("FusedGelu", "Gelu"))
    del imports.opset_import[:]
    imports.opset_import.extend([helper.make_opsetid("", 20)])
    with pytest.raises(InvalidGraph, match=r"does not import operator sets that it uses: com\.microsoft"):
        ort.InferenceSession(imports.SerializeToString(), untrusted())


def test_nodes() -> None:
    text = " ".join(f"x{i + 1} = Abs(x{i})" for i in range(20))
    data = model(f'<ir_version: 10, opset_import: ["": 20]> g (float[n] x0) => (float[n] x20) {{ {text} }}')
    ort.InferenceSession(data, untrusted(nodes=20))
    with pytest.raises(InvalidGraph, match=r"the model has 20 nodes, at most 19 are allowed \('untrusted\.nodes'\)"):
        ort.InferenceSession(data, untrusted(nodes=19))


def test_nodes_of_functions() -> None:
    """Each calls the next twice."""
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid("f", 1)]
    functions = []
    for i in range(8):
        called, domain = (f"F{i + 1}", "f") if i < 7 else ("Neg", "")
        calls = [helper.make_node(called, [a], [b], domain=domain) for a, b in ("am", "mb")]
        functions.append(helper.make_function("f", f"F{i}", ["a"], ["b"], calls, opsets))
    values = [helper.make_tensor_value_info(n, TensorProto.FLOAT, ["n"]) for n in "xy"]
    graph = helper.make_graph([helper.make_node("F0", ["x"], ["y"], domain="f")], "g", values[:1], values[1:])
    data = helper.make_model(graph, opset_imports=opsets, ir_version=10, functions=functions).SerializeToString()
    ort.InferenceSession(data, untrusted(nodes=256))
    with pytest.raises(InvalidGraph, match="the model has 256 nodes, at most 255"):
        ort.InferenceSession(data, untrusted(nodes=255))


def test_nesting() -> None:
    value = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n"])
    inner = [helper.make_node("Abs", ["x"], ["y"])]
    for _ in range(4):
        branch = helper.make_graph(inner, "b", [], [value])
        inner = [helper.make_node("If", ["c"], ["y"], then_branch=branch, else_branch=branch)]
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n"])]
    inputs.append(helper.make_tensor_value_info("c", TensorProto.BOOL, []))
    graph = helper.make_graph(inner, "g", inputs, [value])
    data = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10).SerializeToString()
    ort.InferenceSession(data, untrusted(nesting=4))
    with pytest.raises(InvalidGraph, match=r"subgraphs are nested over 3 deep \('untrusted\.nesting'\)"):
        ort.InferenceSession(data, untrusted(nesting=3))


def test_memory() -> None:
    body = "one = Constant<value_ints=[1]>() b = CumSum(x, k) c = Sin(b) d, i = TopK(c, one) y = ReduceSum<keepdims=0>(d)"
    data = model(f'<ir_version: 10, opset_import: ["": 20]> g (float[n] x, int64 k) => (float y) {{ {body} }}')
    session = ort.InferenceSession(data, untrusted(memory_mib=8))
    assert session.run(None, {"x": np.zeros(1000, np.float32), "k": np.int64(0)})[0] == 0
    with pytest.raises(OutOfMemory, match=r"'untrusted\.memory_mib' = '8'"):
        session.run(None, {"x": np.zeros(4_000_000, np.float32), "k": np.int64(0)})


def test_results(monkeypatch: pytest.MonkeyPatch) -> None:
    session = ort.InferenceSession(model(), untrusted(output_mib=1))
    session.run(None, {"x": np.zeros(1 << 18, np.float32)})
    message = r"the results have 1\.\d MiB, at most 1\.0 MiB are allowed \('untrusted\.output_mib'\)"
    runs: list[int] = []
    run = session._engine.run_model
    monkeypatch.setattr(session._engine, "run_model", lambda *given: runs.append(1) or run(*given))
    with pytest.raises(OutOfMemory, match=message):
        session.run(None, {"x": np.zeros(300_000, np.float32)})
    assert len(runs) == 1  # what is refused is not tried again


def endless() -> bytes:
    whole, truth, number = TensorProto.INT64, TensorProto.BOOL, TensorProto.FLOAT
    kinds = {"i": whole, "go": truth, "s": number, "on": truth, "t": number}
    scalars = [helper.make_tensor_value_info(name, kind, []) for name, kind in kinds.items()]
    nodes = [helper.make_node("Identity", ["go"], ["on"]), helper.make_node("Sin", ["s"], ["t"])]
    body = helper.make_graph(nodes, "body", scalars[:3], scalars[3:])
    values = [helper.make_tensor_value_info(n, TensorProto.FLOAT, []) for n in "xy"]
    graph = helper.make_graph([helper.make_node("Loop", ["", "", "x"], ["y"], body=body)], "g", values[:1], values[1:])
    data: bytes = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10).SerializeToString()
    return data


def test_seconds_of_a_run() -> None:
    options = untrusted(trips=1 << 60)
    session = ort.InferenceSession(endless(), options)
    options.add_session_config_entry("untrusted.seconds", "1")  # of runs: a busy machine may take longer to make the session
    with pytest.raises(RunTimeout, match="1 s"):
        session.run(None, {"x": np.float32(1)})
    binding = session.io_binding()
    binding.bind_cpu_input("x", np.float32(1))
    binding.bind_output("y")
    with pytest.raises(RunTimeout, match="1 s"):
        session.run_with_iobinding(binding)


def test_seconds_of_the_making(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr("intarsia.model.run_timeout.time.monotonic", lambda: now.__setitem__(0, now[0] + 40) or now[0])
    with pytest.raises(RunTimeout, match=r"making the session takes over 60 s \('untrusted\.seconds'\)"):
        ort.InferenceSession(model(), untrusted())


def test_a_session_from_the_cache_was_checked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """What a trusted session kept, which may overlook what is wrong, is nothing to begin an untrusted one from."""
    monkeypatch.setenv("INTARSIA_PROGRAM_CACHE", "1")
    monkeypatch.setenv("INTARSIA_CACHE_DIR", str(tmp_path / "cache"))
    proto = onnx.parser.parse_model(ADD.replace("Add(x, x)", "Add(x, w)"))
    for number in (1, 2):
        proto.graph.initializer.append(numpy_helper.from_array(np.float32(number), "w"))
    path = tmp_path / "m.onnx"
    path.write_bytes(proto.SerializeToString())
    os.utime(path, (1, 1))
    for _ in range(2):
        assert add(ort.SessionOptions(), path) == [3, 4]
    with pytest.raises(InvalidGraph, match="'w' is defined twice"):
        add(untrusted(), path)


@pytest.mark.parametrize("key", ["model_mib", "nodes", "nesting", "memory_mib", "output_mib", "seconds", "trips"])
def test_limits_are_positive(key: str) -> None:
    with pytest.raises(InvalidArgument, match=f"untrusted.{key}.*(at least 1|mebibytes)"):
        ort.InferenceSession(model(), untrusted(**{key: -1})).run(None, {"x": np.zeros(1, np.float32)})


def test_functions_in_a_circle() -> None:
    """Nodes are counted as if calls were written out: circles are found before."""
    text = """<ir_version: 10, opset_import: ["": 20, "own": 1]> g (float[n] x) => (float[n] y) { y = own.f(x) }
        <opset_import: ["": 20, "own": 1], domain: "own"> f (i) => (o) { o = own.h(i) }
        <opset_import: ["": 20, "own": 1], domain: "own"> h (i) => (o) { t = Abs(i) o = own.f(t) }"""
    with pytest.raises(InvalidGraph, match="functions call each other in a circle: 'own::f' -> 'own::h' -> 'own::f'"):
        ort.InferenceSession(model(text), untrusted())


@pytest.mark.parametrize("version", [2**31, 2**63 - 1, -(2**63)])
@pytest.mark.parametrize("where", ["model", "function"])
def test_versions_of_operator_sets(where: str, version: int) -> None:
    """Operators that do not exist are looked for among onnx's functions, whose versions are of 32 bits."""
    text = """<ir_version: 10, opset_import: ["": 20, "own": 1]> g (float[n] x) => (float[n] y) { y = own.f(x) }
        <opset_import: ["": 20], domain: "own"> f (i) => (o) { o = Unknown(i) }"""
    proto = onnx.parser.parse_model(text)
    (proto if where == "model" else proto.functions[0]).opset_import[0].version = version
    with pytest.raises(InvalidModelError, match=f"imports version {version} of operator set ''; expected 1 to 2147483647"):
        ort.InferenceSession(proto.SerializeToString(), untrusted())
