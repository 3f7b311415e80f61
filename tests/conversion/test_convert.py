"""`intarsia convert`: the report, the parts, and the files, which the vendor's own software runs."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest

from intarsia.conversion.convert import ConversionRequest, convert
from intarsia.conversion.targets import TARGETS, load_target
from intarsia.errors import EPFail, Fail, InvalidArgument, NotWritten, UnknownOption

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

    def test_a_form_without_a_writer(self, model: Path) -> None:
        with pytest.raises(UnknownOption, match=r"converted to 'armnn': .*serializer.*ACLExecutionProvider.*--to openvino"):
            convert(model, ConversionRequest("armnn"))

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
        (model.parent / "file").write_text("")
        with pytest.raises(NotWritten, match=r"nothing can be written in '.*file'.*--output"):
            convert(model, ConversionRequest("nnapi", model.parent / "file" / "net.c"))

    def test_what_is_there_is_looked_at_before_anything_is_written(self, model: Path) -> None:
        """openvino's own error for a folder instead of its second file is a RuntimeError, after the first is written."""
        pytest.importorskip("openvino", reason="needs openvino (extra: openvino)")
        (model.parent / "a.bin").mkdir()
        with pytest.raises(NotWritten, match=r"'.*a\.bin' cannot be written: a folder of this name is there"):
            convert(model, ConversionRequest("openvino", model.parent / "a.xml"))
        assert sorted(p.name for p in model.parent.iterdir()) == ["a.bin", "net.onnx"]

    def test_links_are_written_through(self, model: Path) -> None:
        (model.parent / "b.c").symlink_to(model.parent / "real.c")
        (model.parent / "real.c").write_text("old")
        convert(model, ConversionRequest("nnapi", model.parent / "b.c"))
        assert (model.parent / "b.c").is_symlink() and "_build" in (model.parent / "real.c").read_text()

    def test_every_target_says_what_it_is(self) -> None:
        import importlib

        for name, where in TARGETS.items():
            module, _, attribute = where.partition(":")
            found = getattr(importlib.import_module(module), attribute)
            assert found.name == name and found.suffix.startswith(".") and found.what


class TestOpenSizes:
    """Models whose inputs have sizes that vary, in forms that have them as numbers."""

    @pytest.fixture
    def open_model(self, tmp_path: Path) -> Path:
        proto = onnx.parser.parse_model(
            """<ir_version: 8, opset_import: ["": 17]> net (float[batch, 3] x, float[z, seq] s)
            => (float[batch, 3] y, float[seq, z] t) { a = Sin(x)  y = Exp(a)  t = Transpose(s) }"""
        )
        proto.graph.input[1].type.tensor_type.shape.dim[0].Clear()  # a size without a name
        onnx.save(proto, tmp_path / "open.onnx")
        return tmp_path / "open.onnx"

    def test_each_is_named_with_what_to_type(self, open_model: Path) -> None:
        with pytest.raises(InvalidArgument, match=r"'batch', 's:0', 'seq' of the model's inputs vary") as found:
            convert(open_model, ConversionRequest("nnapi"))
        assert "give --dim batch=SIZE --dim s:0=SIZE --dim seq=SIZE" in str(found.value)
        assert "profile" not in str(found.value)  # which this form does not have
        assert list(open_model.parent.iterdir()) == [open_model]

    def test_sizes_are_given_by_name(self, open_model: Path) -> None:
        report = convert(open_model, ConversionRequest("nnapi", sizes={"batch": 2, "seq": 4, "s:0": 5}))
        assert report.complete

    def test_a_profile_that_leaves_some_out(self, open_model: Path) -> None:
        pytest.importorskip("coremltools", reason="needs coremltools (extra: coreml)")
        with pytest.raises(InvalidArgument, match=r"profile=.*seq=1\.\.8") as found:
            convert(open_model, ConversionRequest("coreml", options={"profile": "batch=1..4"}))
        assert "'batch'" not in str(found.value)

    def test_a_profile_that_is_none(self, model: Path) -> None:
        pytest.importorskip("coremltools", reason="needs coremltools (extra: coreml)")
        with pytest.raises(InvalidArgument, match="--option profile: expected entries such as"):
            convert(model, ConversionRequest("coreml", options={"profile": "batch"}))

    def test_sizes_that_data_decide_are_left(self, tmp_path: Path) -> None:
        """Behind Compress nobody knows the size when the file is written: no guess of one is compiled in."""
        proto = onnx.parser.parse_model(
            """<ir_version: 8, opset_import: ["": 17]> net (float[6] x, bool[6] keep) => (float[k] y, float[6] z)
            { c = Compress<axis=0>(x, keep)  y = Sin(c)  z = Sin(x) }"""
        )
        onnx.save(proto, tmp_path / "net.onnx")
        report = convert(tmp_path / "net.onnx", ConversionRequest("nnapi", parts=True))
        assert {row.op for row in report.left} == {"Compress", "Sin"} and report.nodes == 3
        assert "is decided by data" in next(row.reason for row in report.left if row.op == "Sin")
        assert [part.outputs for part in report.parts if part.translated] == [("z",)]


def test_nothing_is_left_of_parts_when_a_later_one_fails(mixed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from intarsia.providers.nnapi.conversion import NnapiTarget

    write, calls = NnapiTarget.write, []

    def fail_at_the_end(self: NnapiTarget, graph: object, path: Path) -> None:
        write(self, graph, path)  # type: ignore[arg-type] # of the graph that the command hands over
        calls.append(path)
        raise Fail("too much at once")

    monkeypatch.setattr(NnapiTarget, "write", fail_at_the_end)
    output = mixed.parent / "new" / "folders" / "net.c"
    with pytest.raises(Fail, match="too much at once"):
        convert(mixed, ConversionRequest("nnapi", output, parts=True))
    assert calls and list(mixed.parent.iterdir()) == [mixed]


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
    """0 the whole model; 1 it failed; 2 not understood; 4 nodes are left. The same for every target."""

    @pytest.fixture(params=["nnapi", "openvino", "coreml", "tensorrt"])
    def target(self, request: pytest.FixtureRequest) -> str:
        pytest.importorskip("typer", reason="the command line needs the extra cli")
        try:
            load_target(request.param)
        except EPFail as error:
            pytest.skip(str(error))
        return str(request.param)

    def test_exit_codes(self, target: str, model: Path, mixed: Path, capsys: pytest.CaptureFixture[str]) -> None:
        from intarsia.cli import main

        assert main(["convert", str(model), "--to", target]) == 0
        assert "3 of 3 nodes translated" in capsys.readouterr().out
        assert main(["convert", str(mixed), "--to", target, "--json"]) == 4
        assert json.loads(capsys.readouterr().out)["parts"] == []
        assert main(["convert", str(mixed), "--to", target]) == 4
        assert "--parts" in capsys.readouterr().err
        assert main(["convert", str(mixed), "--to", target, "--parts"]) == 4
        assert "(ONNX)" in capsys.readouterr().out
        assert main(["convert", str(model), "--to", target, "--option", "hlaf"]) == 2
        assert main(["convert", str(model), "--to", target, "-d", "nothing=1"]) == 2
        assert main(["convert", str(model.with_name("none.onnx")), "--to", target]) == 1
        (model.parent / "file").write_text("")
        suffix = load_target(target).suffix
        assert main(["convert", str(model), "--to", target, "-o", str(model.parent / "file" / f"net{suffix}")]) == 1

    @pytest.mark.parametrize(
        ("arguments", "kind", "code"),
        [
            (["none.onnx", "--to", "nnapi"], "NoSuchFile", 1),
            (["none.onnx", "--to", "coreal"], "UnknownOption", 2),
            (["none.onnx", "--to", "nnapi", "--frob"], "NoSuchOption", 2),
            (["none.onnx"], "MissingParameter", 2),
        ],
    )
    def test_errors_are_json_too(self, arguments: list[str], kind: str, code: int, capsys: pytest.CaptureFixture[str]) -> None:
        pytest.importorskip("typer", reason="the command line needs the extra cli")
        from intarsia.cli import main

        assert main(["convert", *arguments, "--json"]) == code
        printed = capsys.readouterr()
        error = json.loads(printed.out)["error"]
        assert error["type"] == kind and error["exit_code"] == code and error["message"] and not printed.err


def test_failures_of_the_whole(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A vendor's converter that takes each node and not all together."""
    pytest.importorskip("openvino", reason="needs openvino (extra: openvino)")
    from intarsia.providers.openvino.conversion import OpenVINOTarget

    def fail(self: object, graph: object, path: object) -> None:
        raise EPFail("too much at once")

    monkeypatch.setattr(OpenVINOTarget, "write", fail)
    with pytest.raises(Fail, match="too much at once"):
        convert(model, ConversionRequest("openvino"))
