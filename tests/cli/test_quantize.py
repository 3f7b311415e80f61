"""`intarsia quantize`: every form of data, what it prints, and its exit code."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest

pytest.importorskip("typer", reason="the command line needs the extra cli")

from intarsia.cli import main
from intarsia.cli.inputs.feeds import FeedOptions
from intarsia.cli.inputs.signature import Signature
from intarsia.cli.quantize_data import read_samples
from intarsia.errors import InvalidArgument, NoSuchFile

DIGITS = Path(__file__).parents[2] / "examples" / "digits"
MODEL = DIGITS / "digits.onnx"


@pytest.fixture
def images(tmp_path: Path) -> Path:
    path = tmp_path / "images.npz"
    np.savez(path, image=np.random.default_rng(0).random((12, 1, 8, 8), np.float32))
    return path


def run(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str]:
    code = main([str(a) for a in arguments])
    shown = capsys.readouterr()
    return code, shown.out + shown.err


def test_a_model_and_its_verdict(tmp_path: Path, images: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out, report = tmp_path / "q.onnx", tmp_path / "r.json"
    code, shown = run(capsys, "quantize", MODEL, "-o", out, "--data", images, "--report", report)
    assert code == 0
    for text in (
        "size: ",
        "a run on CPUExecutionProvider",
        "largest element at the same place",
        "layers that differ most",
        "quantised",
    ):
        assert text in shown
    onnx.checker.check_model(onnx.load(out))
    told = json.loads(report.read_text(encoding="utf-8"))
    assert told["kind"] == "static"
    assert told["data"]["calibration_runs"] == 8
    assert told["data"]["verification_runs"] == 4
    assert told["bytes_after"] < told["bytes_before"]


def test_kinds_and_bounds(tmp_path: Path, images: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "q.onnx"
    code, shown = run(capsys, "quantize", MODEL, "-o", out)
    assert code == 0
    assert "warning: there is no data: what quantising costs in accuracy is not known" in shown
    code, shown = run(capsys, "quantize", MODEL, "-o", out, "--data", images, "--max-drop", "0.5", "--metric", "top1", "--json")
    assert code == 0
    assert json.loads(shown)["metric"]["bound"] == 0.5
    code, shown = run(
        capsys, "quantize", MODEL, "-o", out, "--kind", "weights", "--held-out", images, "--bits", "8", "--block", 16
    )
    assert code == 0
    assert "MatMulNBits" in [n.op_type for n in onnx.load(out).graph.node]
    code, shown = run(capsys, "quantize", MODEL, "-o", out, "--kind", "float16", "--data", "@random:4")
    assert code == 0
    assert "the data are random numbers" in shown


def test_what_is_done_before_rounding(tmp_path: Path, images: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out, report = tmp_path / "q.onnx", tmp_path / "r.html"
    for options in (
        ["--equalize", "--bias-correction", "--smooth-quant", "0.5", "--method", "mse"], ["--method", "moving-average"],
        ["--provider", "ReferenceExecutionProvider"], ["--kind", "weights", "--algorithm", "gptq", "--block", "16"],
    ):  # fmt: skip
        code, shown = run(capsys, "quantize", MODEL, "-o", out, "--data", images, "--report", report, *options)
        assert code == 0, shown
        onnx.checker.check_model(onnx.load(out))
        assert report.read_text(encoding="utf-8").startswith("<!doctype html>")
    code, shown = run(capsys, "quantize", MODEL, "-o", out, "--kind", "dynamic", "--equalize")
    assert code == 2
    assert "--equalize: expected --kind static, got dynamic" in shown
    code, shown = run(capsys, "quantize", MODEL, "-o", out, "--data", images, "--method", "median")
    assert code == 2
    assert "--method: expected one of minmax, moving-average, percentile, entropy, mse, distribution, auto, got" in shown


def test_the_ranges_that_lose_least_are_taken(tmp_path: Path, images: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, shown = run(capsys, "quantize", MODEL, "-o", tmp_path / "q.onnx", "--data", images, "--method", "auto", "--json")
    assert code == 0
    told = json.loads(shown)
    assert sorted(told["tried"]) == ["minmax", "mse", "percentile"]
    assert list(told["tried"].values()) == sorted(told["tried"].values())
    best = next(iter(told["tried"]))
    run(capsys, "quantize", MODEL, "-o", tmp_path / "b.onnx", "--data", images, "--method", best)
    assert (tmp_path / "q.onnx").read_bytes() == (tmp_path / "b.onnx").read_bytes()
    code, shown = run(capsys, "quantize", MODEL, "-o", tmp_path / "q.onnx", "--data", images, "--method", "auto")
    assert f"settings: {best} loses least" in shown


def test_a_metric_of_ones_own(tmp_path: Path, images: Path, capsys: pytest.CaptureFixture[str]) -> None:
    mine = tmp_path / "mine.py"
    mine.write_text(
        "import numpy as np\n"
        "def score(results, feeds):\n"
        "    return float(np.mean([r['probabilities'].max() for r in results]))\n"
        "def feeds():\n"
        "    return [{'image': np.zeros((1, 1, 8, 8), np.float32)}] * 3\n",
        encoding="utf-8",
    )
    arguments = ["quantize", MODEL, "-o", tmp_path / "q.onnx", "--data", images, "--held-out", f"{mine}:feeds"]
    code, shown = run(capsys, *arguments, "--metric", f"{mine}:score", "--json")
    assert code == 0
    assert json.loads(shown)["metric"]["name"] == f"{mine}:score"
    code, shown = run(capsys, *arguments, "--metric", f"{mine}:nothing")
    assert code == 2
    assert "nothing in it is called 'nothing'" in shown


def test_forms_of_data(tmp_path: Path, images: Path) -> None:
    inputs = Signature.of_file(MODEL)
    every = np.load(images)["image"]
    np.save(tmp_path / "x.npy", every)
    folder = tmp_path / "folder"
    folder.mkdir()
    for i in range(3):
        np.savez(folder / f"{i}.npz", image=every[i : i + 1])
    for source, count in {images: 12, tmp_path / "x.npy": 12, folder: 3, DIGITS / "images": 10, "@random:5": 5}.items():
        found = read_samples([str(source)], inputs, FeedOptions())
        assert len(found) == count or (source == DIGITS / "images" and len(found) > 1)
        assert found[0]["image"].shape == (1, 1, 8, 8)
        assert found[0]["image"].dtype == np.float32
    assert np.array_equal(read_samples([str(images)], inputs, FeedOptions())[7]["image"], every[7:8])
    assert np.array_equal(read_samples([str(folder)], inputs, FeedOptions())[2]["image"], every[2:3])
    assert len(read_samples([str(images)], inputs, FeedOptions(), limit=5)) == 5


def test_tables(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow", reason="tables need the extra tables")
    from onnx import TensorProto, helper

    node = helper.make_node("Relu", ["x"], ["y"])
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", 3]) for name in ("x", "y")]
    model = helper.make_model(helper.make_graph([node], "g", values[:1], values[1:]), ir_version=8)
    onnx.save(model, tmp_path / "m.onnx")
    inputs = Signature.of_file(tmp_path / "m.onnx")
    (tmp_path / "t.csv").write_text("a,b,c,name\n1,2,3,u\n4,5,6,v\n", encoding="utf-8")
    found = read_samples([str(tmp_path / "t.csv")], inputs, FeedOptions())
    assert [f["x"].tolist() for f in found] == [[[1, 2, 3]], [[4, 5, 6]]]


@pytest.mark.parametrize(("source", "kind", "why"), [
    ("none.npz", NoSuchFile, r"--data: no file or folder 'none.npz'; forms: a folder of pictures"),
    ("@random:x", InvalidArgument, r"expected @random:COUNT, got '@random:x'"),
    ("empty", InvalidArgument, r"expected pictures, .npz or .npy in the folder, got none"),
    ("wrong.npz", InvalidArgument, r"no array for image; it has other"),
    ("rank.npy", InvalidArgument, r"image has the shape \[3\], the model's input"),
    ("x.txt", InvalidArgument, r"expected a folder of pictures"),
])  # fmt: skip
def test_wrong_data(tmp_path: Path, source: str, kind: type[Exception], why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("empty").mkdir()
    np.savez("wrong.npz", other=np.zeros(3))
    np.save("rank.npy", np.zeros(3, np.float32))
    Path("x.txt").write_text("", encoding="utf-8")
    with pytest.raises(kind, match=why):
        read_samples([source], Signature.of_file(MODEL), FeedOptions())


def test_wrong_options(tmp_path: Path, images: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "q.onnx"
    for arguments, why in (
        (["--kind", "int8"], "--kind: expected one of static, dynamic, weights, float16, bfloat16, got 'int8'"),
        (["--data", images, "--weights", "int5"], "--weights: expected one of int8, uint8"),
        (["--data", images, "--method", "median"], "--method: expected one of minmax, moving-average, percentile"),
        (["--max-drop", "0.1"], "a bound of the loss needs data"),
    ):
        code, shown = run(capsys, "quantize", MODEL, "-o", out, *arguments)
        assert code == 2
        assert why in shown.replace("\n", " ")


def test_the_model_itself_is_not_written_over(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(Path(MODEL).read_bytes())
    assert main(["quantize", str(path), "-o", str(path)]) == 2
    assert "is the model itself, which would be lost" in capsys.readouterr().err
    assert path.read_bytes() == Path(MODEL).read_bytes()
