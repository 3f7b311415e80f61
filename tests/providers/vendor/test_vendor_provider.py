"""What providers of vendors' compilers share, on a vendor that is made for it."""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx.parser
import pytest

import intarsia as ort
from intarsia.graph.load import load
from intarsia.passes import optimize
from intarsia.providers.vendor.artifact_cache import vendor_compiles
from intarsia.providers.vendor.survey import Survey

sys.path.insert(0, str(Path(__file__).parent))
from toy_vendor import Behaviour, ToyExecutionProvider, ToyTranslator, behaving

NAME = ToyExecutionProvider.name
MODEL = """
    <ir_version: 8, opset_import: ["": 17]> g (float[2, 3] x) => (float[2, 3] y)
    <float[3, 3] w = {1, 2, 3, 4, 5, 6, 7, 8, 10}> {
        a = MatMul(x, w)
        b = Relu(a)
        c = Add(b, x)
        y = Softmax<axis = 1>(c)
    }"""


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INTARSIA_CACHE_DIR", str(tmp_path / "cache"))


def options(**entries: str) -> ort.SessionOptions:
    found = ort.SessionOptions()
    for name, value in {"partition.keep_islands": "1", "session.cache_weights_mib": "0"}.items():
        found.add_session_config_entry(name, value)
    for name, value in entries.items():
        found.add_session_config_entry(name.replace("__", "."), value)
    return found


def session(text: str = MODEL, other: tuple[str, ...] = (), **given: Any) -> ort.InferenceSession:
    model = onnx.parser.parse_model(text).SerializeToString()
    return ort.InferenceSession(model, options(), providers=[(ToyExecutionProvider, given), *other])


def expected(x: np.ndarray) -> np.ndarray:
    w = np.float64([[1, 2, 3], [4, 5, 6], [7, 8, 10]])
    c = np.maximum(x @ w, 0) + x
    e = np.exp(c - c.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)


X = np.float32([[0.1, -0.2, 0.3], [0.5, 0.1, -0.4]])


def test_a_whole_model_is_one_part() -> None:
    made = session()
    assert [row.provider for row in made.explain().nodes] == [NAME] * len(made.explain().nodes)
    np.testing.assert_allclose(made.run(None, {"x": X})[0], expected(X), rtol=1e-5)


def test_the_second_session_makes_no_vendor_compile() -> None:
    before = vendor_compiles(NAME)
    session().run(None, {"x": X})
    assert vendor_compiles(NAME) == before + 1
    again = session()
    assert vendor_compiles(NAME) == before + 1
    np.testing.assert_allclose(again.run(None, {"x": X})[0], expected(X), rtol=1e-5)


def test_names_do_not_count() -> None:
    session()
    before = vendor_compiles(NAME)
    renamed = session(MODEL.replace("3] x", "3] input").replace("(x, w)", "(input, w)").replace("(b, x)", "(b, input)"))
    assert vendor_compiles(NAME) == before
    np.testing.assert_allclose(renamed.run(None, {"input": X})[0], expected(X), rtol=1e-5)


def miss(caplog: pytest.LogCaptureFixture, **given: Any) -> str:
    """The reason of a session's miss."""
    caplog.clear()
    with caplog.at_level(logging.DEBUG, logger="intarsia.providers.vendor"):
        session(**given)
    return next((m for m in (record.getMessage() for record in caplog.records) if "a part anew" in m), "")


def test_each_miss_says_why(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    given = {"cache_directory": str(tmp_path / "kept")}
    assert "nothing was cached for this part" in miss(caplog, **given)
    assert not miss(caplog, **given)
    assert "level was 'fast' and is 'slow'" in miss(caplog, level="slow", **given)
    with behaving(version="2"):
        assert "toy was '1' and is '2'" in miss(caplog, **given)
    with behaving(version="3"):
        session(**given)
        for file in (tmp_path / "kept").rglob("artifact-*"):
            if not file.name.startswith("artifact-note"):
                file.unlink()
        assert "was removed" in miss(caplog, **given)
        for file in (tmp_path / "kept").rglob("artifact-*"):
            if not file.name.startswith("artifact-note"):
                data = bytearray(file.read_bytes())
                data[-1] ^= 1
                file.chmod(0o600)
                file.write_bytes(data)
        assert "was damaged" in miss(caplog, **given)
        assert not miss(caplog, **given)


def test_the_cache_is_bounded(tmp_path: Path) -> None:
    folder = tmp_path / "kept"
    for level in ("a", "b", "c", "d", "e"):
        session(cache_directory=str(folder), limit=4000, level=level)
    assert 0 < sum(file.stat().st_size for file in folder.rglob("artifact-*")) <= 4000


@pytest.mark.parametrize(
    ("fault", "match"),
    [("error", "cannot compile 4 nodes .*the toy broke"), ("nothing", "gave nothing and no error"), ("load", "does not start")],
)
def test_faults_of_the_compiler(fault: str, match: str) -> None:
    with behaving(fault=fault):
        with pytest.raises(ort.EPFail, match=match):
            session()
        with pytest.warns(ort.ProviderWarning, match=match):
            made = session(other=("CPUExecutionProvider",))
        np.testing.assert_allclose(made.run(None, {"x": X})[0], expected(X), rtol=1e-5)
    made = session()  # nothing of it was cached
    np.testing.assert_allclose(made.run(None, {"x": X})[0], expected(X), rtol=1e-5)


def test_out_of_memory() -> None:
    with behaving(fault="memory"), pytest.raises(ort.OutOfMemory, match="no memory to compile 4 nodes"):
        session()


def test_what_was_kept_does_not_load() -> None:
    """As after the vendor's software was exchanged without a new version."""
    session()
    before = vendor_compiles(NAME)
    calls = []

    class OnceBroken(ToyExecutionProvider):
        def load(self, *args: Any) -> Any:
            calls.append(1)
            if len(calls) == 1:
                raise RuntimeError("of another build")
            return super().load(*args)

    model = onnx.parser.parse_model(MODEL).SerializeToString()
    made = ort.InferenceSession(model, options(), providers=[OnceBroken])
    assert vendor_compiles(NAME) == before + 1 and len(calls) == 2
    np.testing.assert_allclose(made.run(None, {"x": X})[0], expected(X), rtol=1e-5)


def test_a_missing_vendor_is_named() -> None:
    with behaving(missing="install the toy"), pytest.raises(ort.EPFail, match="install the toy"):
        session()
    assert not Behaviour.missing


OPEN = MODEL.replace("float[2, 3] x", "float[n, 3] x").replace("float[2, 3] y", "float[n, 3] y")


def test_open_sizes_are_compiled_one_by_one() -> None:
    before = vendor_compiles(NAME)
    made = session(OPEN)
    assert vendor_compiles(NAME) == before
    for rows in (2, 1, 2, 5):
        x = np.linspace(-1, 1, rows * 3, dtype=np.float32).reshape(rows, 3)
        np.testing.assert_allclose(made.run(None, {"x": x})[0], expected(x), rtol=1e-5)
    assert vendor_compiles(NAME) == before + 3
    session(OPEN).run(None, {"x": X})
    assert vendor_compiles(NAME) == before + 3


def test_refusals_have_reasons() -> None:
    text = """
    <ir_version: 8, opset_import: ["": 17]> g (double[2] x, float[2] z) => (double[2] y, float[2] s) {
        y = Relu(x)
        a = Sin(z)
        s = Relu(a)
    }"""
    made = session(text, other=("CPUExecutionProvider",))
    reasons = {row.op: row.refusals[NAME].reason for row in made.explain().nodes if row.provider != NAME}
    assert reasons == {"Relu": "'x' is of float64", "Sin": "Toy has no Sin"}


def test_rules_bring_in_what_the_vendor_has_not() -> None:
    """Softmax of opset 11 over two axes; a sum of three."""
    text = """
    <ir_version: 7, opset_import: ["": 11]> g (float[2, 3, 4] x) => (float[2, 3, 4] y) {
        a = Sum(x, x, x)
        y = Softmax<axis = 1>(a)
    }"""
    made = session(text)
    x = np.linspace(-1, 1, 24, dtype=np.float32).reshape(2, 3, 4)
    e = np.exp(3 * x.astype(np.float64)).reshape(2, 12)
    np.testing.assert_allclose(made.run(None, {"x": x})[0], (e / e.sum(1, keepdims=True)).reshape(2, 3, 4), rtol=1e-5)


def test_half_precision_rounds_and_keeps_types() -> None:
    x = np.float32([[0.1, -0.2, 0.3], [0.5, 0.1, -0.4]])
    found = session(half=True).run(None, {"x": x})[0]
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, expected(x), rtol=5e-3)
    assert not np.allclose(found, expected(x), rtol=1e-6)


def test_constants_beyond_float16_stay() -> None:
    text = """
    <ir_version: 8, opset_import: ["": 17]> g (float[2] x) => (float[2] y) <float big = {1e20}> {
        a = Mul(x, big)
        y = Div(a, big)
    }"""
    x = np.float32([0.5, -3])
    np.testing.assert_allclose(session(text, half=True).run(None, {"x": x})[0], x, rtol=1e-6)


def test_saved_in_the_session_cache_and_in_a_compiled_model(tmp_path: Path) -> None:
    before = vendor_compiles(NAME)
    model = onnx.parser.parse_model(MODEL).SerializeToString()
    plain = ort.SessionOptions()
    ort.InferenceSession(model, plain, providers=[ToyExecutionProvider])
    assert vendor_compiles(NAME) == before + 1
    context = tmp_path / "context.onnx"
    given = options(ep__context_enable="1", ep__context_file_path=str(context))
    ort.InferenceSession(model, given, providers=[ToyExecutionProvider])
    assert context.exists()
    made = ort.InferenceSession(str(context), options(), providers=[ToyExecutionProvider])
    assert vendor_compiles(NAME) == before + 1
    np.testing.assert_allclose(made.run(None, {"x": X})[0], expected(X), rtol=1e-5)
    with behaving(version="2"), pytest.raises(ort.ModelRequiresCompilation, match="it needs"):
        ort.InferenceSession(str(context), options(), providers=[ToyExecutionProvider])


def test_outputs_that_nothing_computes() -> None:
    text = """
    <ir_version: 8, opset_import: ["": 17]> g (float[n, 3] x) => (int64[2] s, float[n, 3] y) {
        s = Shape(x)
        y = Relu(x)
    }"""
    made = session(text, other=("CPUExecutionProvider",))
    s, y = made.run(None, {"x": X})
    assert s.tolist() == [2, 3] and (y == np.maximum(X, 0)).all()


def test_memory_and_origin_are_told() -> None:
    (program,) = session()._engine.whole_model().programs
    assert program.remarks() == ["compiled, since nothing was cached for this part"]
    assert program.memory().packed_nbytes > 0
    assert "bytes" in program.describe()
    assert program.predicted_memory([[2, 3]]).output_nbytes == 24
    (again,) = session()._engine.whole_model().programs
    assert again.remarks() == ["compiled by an earlier session"]


def test_sizes_that_follow_from_sizes_are_known() -> None:
    """A Reshape to a target that Shape, Gather and Concat compute, as exporters write it."""
    text = """
    <ir_version: 8, opset_import: ["": 17]> g (float[n, 4] x) => (float[n, 2, 2] y)
    <int64[1] zero = {0}, int64[2] rest = {2, 2}> {
        s = Shape(x)
        n = Gather(s, zero)
        target = Concat<axis = 0>(n, rest)
        r = Reshape(x, target)
        y = Relu(r)
    }"""
    made = session(text)
    assert {row.provider for row in made.explain().nodes} <= {NAME, ""}  # "": folded
    for rows in (3, 1):
        x = np.linspace(-1, 1, rows * 4, dtype=np.float32).reshape(rows, 4)
        assert (made.run(None, {"x": x})[0] == np.maximum(x, 0).reshape(rows, 2, 2)).all()


@pytest.mark.parametrize("moved", ["Identity(target)", "Add(target, target)"])
def test_targets_that_data_decide_stay_with_others(moved: str) -> None:
    text = f"""
    <ir_version: 8, opset_import: ["": 17]> g (float[n, 4] x, int64[2] target) => (float[k, m] y)
    <int64[2] two = {{2, 2}}> {{
        a = Relu(x)
        twice = {moved}
        shape = Div(twice, two)
        y = Reshape(a, shape)
    }}"""
    made = session(text, other=("CPUExecutionProvider",))
    (row,) = (row for row in made.explain().nodes if row.op == "Reshape")
    assert "whose size only a run's data decide" in row.refusals[NAME].reason
    target = np.int64([8, 4] if "Id" in moved else [4, 2])
    assert made.run(None, {"x": np.ones((2, 4), np.float32), "target": target})[0].shape == (4, 2)


def test_an_empty_list_that_is_given_is_no_constant() -> None:
    """Axes of no elements: of an input's type alone follows what it holds, and a vendor that wants a constant has none."""
    text = """
    <ir_version: 8, opset_import: ["": 18]> g (float[2, 3] x, int64[0] axes) => (float[1, 1] s, float[2, 3] y) {
        s = ReduceSum(x, axes)
        y = Relu(x)
    }"""
    survey = Survey(optimize(load(onnx.parser.parse_model(text).SerializeToString())).graph, ToyTranslator())
    assert not survey._sizes_read_by(survey.graph.nodes[0])
