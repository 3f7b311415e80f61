"""`intarsia convert`: the report, the parts, and the files, which the vendor's own software runs."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest

from intarsia.conversion.convert import ConversionRequest, convert
from intarsia.conversion.targets import TARGETS
from intarsia.errors import Fail, InvalidArgument, UnknownOption

X = np.float32([[-1.5, 0.25, 2.0]])


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """Three operators that every vendor has."""
    proto = onnx.parser.parse_model(
        """<ir_version: 8, opset_import: ["": 17]> net (float[1, 3] x) => (float[1, 3] y) {
            a = Sin(x)  b = Exp(a)  y = Add(b, x)
        }"""
    )
    onnx.save(proto, tmp_path / "net.onnx")
    return tmp_path / "net.onnx"


@pytest.fixture
def mixed(tmp_path: Path) -> Path:
    """A node whose size its data decide, which no vendor has, between operators that all have."""
    proto = onnx.parser.parse_model(
        """<ir_version: 8, opset_import: ["": 17]> net (float[1, 3] x, double[3] d) => (float[1, 3] y) {
            a = Sin(x)  u, i, j, k = Unique<sorted=1>(d)  n = Shape(u)  f = Cast<to=1>(n)  b = Mul(a, f)  y = Add(b, x)
        }"""
    )
    onnx.save(proto, tmp_path / "mixed.onnx")
    return tmp_path / "mixed.onnx"


class TestRequests:
    def test_no_such_target(self, model: Path) -> None:
        with pytest.raises(UnknownOption, match="models cannot be converted to 'coreal'"):
            convert(model, ConversionRequest("coreal"))

    def test_no_such_option(self, model: Path) -> None:
        pytest.importorskip("openvino", reason="needs openvino (extra: openvino)")
        with pytest.raises(UnknownOption, match=r"openvino has no option 'hlaf'.*half"):
            convert(model, ConversionRequest("openvino", options={"hlaf": "1"}))
        with pytest.raises(InvalidArgument, match="expected a boolean"):
            convert(model, ConversionRequest("openvino", options={"half": "both"}))

    @pytest.mark.parametrize("output", ["net.onnx", "net.bin", "folder", "folder.xml", "", "x"])
    def test_names_that_the_files_cannot_have(self, model: Path, output: str, monkeypatch: pytest.MonkeyPatch) -> None:
        pytest.importorskip("openvino", reason="needs openvino (extra: openvino)")
        monkeypatch.chdir(model.parent)
        for folder in ("folder", "folder.xml"):
            Path(folder).mkdir()
        before = model.read_bytes()
        with pytest.raises(InvalidArgument, match="--output: "):
            convert(model, ConversionRequest("openvino", Path(output)))
        assert model.read_bytes() == before
        assert sorted(p.name for p in model.parent.iterdir()) == ["folder", "folder.xml", "net.onnx"]

    def test_weights_of_the_model_are_not_written_over(self, tmp_path: Path) -> None:
        pytest.importorskip("openvino", reason="needs openvino (extra: openvino)")
        text = "g (float[4] x) => (float[4] y) { y = Add(x, w) }"
        proto = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": 17]> {text}')
        proto.graph.initializer.append(onnx.numpy_helper.from_array(np.ones(4, np.float32), "w"))
        path = tmp_path / "net.onnx"
        onnx.save(proto, path, save_as_external_data=True, location="net.bin", size_threshold=0)
        before = (tmp_path / "net.bin").read_bytes()
        with pytest.raises(InvalidArgument, match="a file of the model itself"):
            convert(path, ConversionRequest("openvino", tmp_path / "net.xml"))
        assert (tmp_path / "net.bin").read_bytes() == before

    def test_a_folder_that_cannot_be_written(self, model: Path) -> None:
        pytest.importorskip("openvino", reason="needs openvino (extra: openvino)")
        (model.parent / "file").write_text("")
        with pytest.raises(Fail, match="cannot be written"):
            convert(model, ConversionRequest("openvino", model.parent / "file" / "net.xml"))

    def test_every_target_says_what_it_is(self) -> None:
        import importlib

        for name, where in TARGETS.items():
            module, _, attribute = where.partition(":")
            found = getattr(importlib.import_module(module), attribute)
            assert found.name == name and found.suffix.startswith(".") and found.what


class TestOpenVINO:
    @pytest.fixture(autouse=True)
    def _needs(self) -> None:
        pytest.importorskip("openvino", reason="needs openvino (extra: openvino)")

    def run(self, path: Path, *inputs: np.ndarray) -> np.ndarray:
        import openvino

        return np.array(openvino.compile_model(path, "CPU")(list(inputs))[0])

    def test_a_whole_model(self, model: Path, tmp_path: Path) -> None:
        report = convert(model, ConversionRequest("openvino", tmp_path / "out" / "net.xml"))
        assert report.complete and len(report.parts) == 1 and report.parts[0].path == tmp_path / "out" / "net.xml"
        assert str(report).startswith("3 of 3 nodes translated to OpenVINO's")
        np.testing.assert_allclose(self.run(report.parts[0].path, X), np.exp(np.sin(X)) + X, rtol=1e-6)

    def test_beside_the_model(self, model: Path) -> None:
        convert(model, ConversionRequest("openvino", options={"half": "1"}))
        assert model.with_suffix(".xml").exists() and model.with_suffix(".bin").exists()

    def test_nodes_that_are_left(self, mixed: Path, tmp_path: Path) -> None:
        report = convert(mixed, ConversionRequest("openvino", tmp_path / "mixed.xml"))
        assert not report.complete and not report.parts and not (tmp_path / "mixed.xml").exists()
        assert {row.op for row in report.left} >= {"Unique"} and all(row.reason for row in report.left)
        assert "not translated:\n  Unique " in str(report)
        assert json.loads(json.dumps(report.to_dict()))["left"][0]["op"] == "Unique"

    def test_parts_one_after_the_other(self, mixed: Path, tmp_path: Path) -> None:
        """Run in their order, each by its own software, they compute what the model does."""
        import onnxruntime

        report = convert(mixed, ConversionRequest("openvino", tmp_path / "mixed.xml", parts=True))
        assert {part.translated for part in report.parts} == {True, False}
        d = np.float64([1, 2, 2])
        values: dict[str, np.ndarray] = {"x": X, "d": d}
        for part in report.parts:
            given = [values[name] for name in part.inputs]
            if part.translated:
                import openvino

                found = list(openvino.compile_model(part.path, "CPU")(given).values())
            else:
                session = onnxruntime.InferenceSession(part.path, providers=["CPUExecutionProvider"])
                found = session.run(None, dict(zip(part.inputs, given, strict=True)))
            # onnxruntime's int64 is C's long long, which openvino does not know where it is another type than long.
            values.update({n: a.astype(a.dtype.name) for n, a in zip(part.outputs, found, strict=True)})
        np.testing.assert_allclose(values["y"], np.sin(X) * 2 + X, rtol=1e-6)


class TestCommand:
    def test_report_and_exit_code(self, model: Path, mixed: Path, capsys: pytest.CaptureFixture[str]) -> None:
        pytest.importorskip("typer", reason="the command line needs the extra cli")
        pytest.importorskip("openvino", reason="needs openvino (extra: openvino)")
        from intarsia.cli import main

        assert main(["convert", str(model), "--to", "openvino", "-o", str(model.with_name("a.xml"))]) == 0
        assert "3 of 3 nodes translated" in capsys.readouterr().out
        assert main(["convert", str(mixed), "--to", "openvino", "--json"]) == 1
        assert json.loads(capsys.readouterr().out)["parts"] == []
        assert main(["convert", str(mixed), "--to", "openvino"]) == 1
        assert "--parts" in capsys.readouterr().err
        assert main(["convert", str(model), "--to", "openvino", "--option", "half"]) == 2


def test_failures_of_the_whole(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A vendor's converter that takes each node and not all together."""
    pytest.importorskip("openvino", reason="needs openvino (extra: openvino)")
    from intarsia.errors import EPFail
    from intarsia.providers.openvino.conversion import OpenVINOTarget

    def fail(self: object, graph: object, path: object) -> None:
        raise EPFail("too much at once")

    monkeypatch.setattr(OpenVINOTarget, "write", fail)
    with pytest.raises(Fail, match="too much at once"):
        convert(model, ConversionRequest("openvino"))
