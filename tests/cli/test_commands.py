"""Whole commands, as a user types them."""

from __future__ import annotations

import dataclasses
import json
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

pytest.importorskip("typer", reason="the command line needs the extra cli")

import intarsia
from intarsia.cli import main
from intarsia.cli.dump import STAGES
from intarsia.cli.show import screen

DIGITS = Path(__file__).parents[2] / "examples" / "digits"
MODEL = str(DIGITS / "digits.onnx")
REFERENCE = ["-p", "ReferenceExecutionProvider"]


def test_run_shows_the_best_classes(capsys: pytest.CaptureFixture[str]) -> None:
    labels = json.loads((DIGITS / "images" / "labels.json").read_text())
    assert main(["run", MODEL, "-i", str(DIGITS / "images" / "0.png"), "--top", "2", *REFERENCE]) == 0
    shown = capsys.readouterr()
    lines = shown.out.splitlines()
    assert lines[0] == "probabilities  float32 [1, 10]"
    assert lines[1].split()[0] == str(labels["0.png"])
    assert len(lines) == 3
    assert "input image: float32 [1, 1, 8, 8] from" in shown.err


def test_run_with_labels_and_several_rows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "names.json").write_text(json.dumps([f"digit {i}" for i in range(10)]))
    assert main(["run", MODEL, "-d", "batch=2", "--top", "1", "--labels", str(tmp_path / "names.json"), *REFERENCE]) == 0
    out = capsys.readouterr().out
    assert "[0] digit " in out
    assert "[1] digit " in out


def test_run_writes_outputs(tmp_path: Path) -> None:
    for output in ("out.npz", "folder"):
        assert main(["run", MODEL, "--seed", "3", "-o", str(tmp_path / output), *REFERENCE]) == 0
    with np.load(tmp_path / "out.npz") as archive:
        written = archive["probabilities"]
    np.testing.assert_allclose(written.sum(), 1, rtol=1e-5)
    np.testing.assert_array_equal(written, np.load(tmp_path / "folder" / "probabilities.npy"))


def test_explain(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", MODEL, *REFERENCE]) == 0
    assert "ReferenceExecutionProvider" in capsys.readouterr().out
    assert main(["explain", MODEL, "--json", *REFERENCE]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["providers"][0] == "ReferenceExecutionProvider"
    assert {node["op"] for node in data["nodes"]} >= {"Conv", "Softmax"}


def test_explain_as_a_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", MODEL, "--html", str(tmp_path / "page.html"), *REFERENCE]) == 0
    shown = capsys.readouterr()
    assert (shown.out, f"written to {tmp_path / 'page.html'}" in shown.err) == ("", True)
    text = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert text.startswith("<!doctype html>")
    assert "Placement of digits.onnx" in text


@pytest.mark.parametrize("stage", STAGES)
def test_dump_every_stage(stage: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["dump", MODEL, "--stage", stage]) == 0
    text = capsys.readouterr().out
    assert len(text.splitlines()) > 5, text
    assert "has nothing to show" not in text
    assert main(["dump", MODEL, "--stage", stage, "-o", str(tmp_path / "text")]) == 0
    assert (tmp_path / "text").stat().st_size > 0


def test_dump_names_passes(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["dump", MODEL, "-s", "legalized"]) == 0
    first, *_ = capsys.readouterr().out.splitlines()
    assert re.fullmatch(r"# assign_channels_last  1 time   \d+ -> \d+ nodes  \d+\.\d ms", first)
    entry = "optimization.disable_specified_optimizers=assign_channels_last"
    assert main(["dump", MODEL, "-s", "legalized", "--config", entry]) == 0
    assert "assign_channels_last" not in capsys.readouterr().out


def test_bench_beside_onnxruntime(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("onnxruntime", reason="a peer to compare with")
    assert main(["bench", MODEL, "--runs", "3", "--compare", "onnxruntime", "-t", "1", "-c", "2", "--seconds", "0.1"]) == 0
    shown = capsys.readouterr()
    assert re.search(r"intarsia \S+, onnxruntime \S+; 1 thread; ", shown.err)
    assert "sizes guessed: batch = 1" in shown.err
    rows = [line.split() for line in shown.out.splitlines()]
    found = {row[0]: row for row in rows if row and row[0] in ("intarsia", "onnxruntime")}
    assert found["intarsia"][5] == found["onnxruntime"][5] == "3"
    assert float(found["onnxruntime"][-1]) < 1e-5


def test_bench_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", MODEL, "--runs", "3", "--json", "--shape", "2x1x8x8", *REFERENCE]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["inputs"] == {"image": {"dtype": "float32", "shape": [2, 1, 8, 8]}}
    assert found["guessed"] == {}
    (row,) = found["runtimes"]
    assert row["runs"] == 3
    assert row["runs_a_second"] == pytest.approx(1e3 / row["median_ms"])
    assert (row["difference"], row["concurrent_runs_a_second"]) == (None, None)
    assert main(["bench", MODEL, "--json", "--roofline"]) == 2
    assert "leave out one of --roofline and --json" in capsys.readouterr().out


def test_run_on_several_pictures(capsys: pytest.CaptureFixture[str]) -> None:
    labels = json.loads((DIGITS / "images" / "labels.json").read_text())
    assert main(["run", MODEL, "-i", str(DIGITS / "images"), "--top", "1", *REFERENCE]) == 0
    shown = capsys.readouterr()
    found = [line.split()[1] for line in shown.out.splitlines()[1:]]
    assert found == [str(labels[name]) for name in sorted(labels)]
    assert f"image: float32 [{len(labels)}, 1, 8, 8] from" in shown.err


class TestCompareWithAnother:
    @pytest.fixture
    def model(self, tmp_path: Path) -> Path:
        """The digits with other weights."""
        model = onnx.load(MODEL)
        for weight in [t for t in model.graph.initializer if t.data_type == TensorProto.FLOAT and len(t.dims) > 1]:
            weight.CopyFrom(onnx.numpy_helper.from_array(-onnx.numpy_helper.to_array(weight), weight.name))
        onnx.save(model, tmp_path / "other.onnx")
        return tmp_path / "other.onnx"

    def test_models(self, model: Path, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["compare", MODEL, MODEL]) == 0
        assert "agree in 1 output\n" in capsys.readouterr().out
        assert main(["compare", str(model), MODEL]) == 1
        assert re.search(r"part:\n  output 'probabilities' differs by", capsys.readouterr().out)
        assert main(["compare", str(model), MODEL, "--atol", "2"]) == 0

    @pytest.mark.parametrize("saved", ["out.npz", "folder"])
    def test_saved_outputs(self, saved: str, tmp_path: Path, model: Path, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["run", MODEL, "-o", str(tmp_path / saved)]) == 0
        assert main(["compare", MODEL, str(tmp_path / saved)]) == 0
        assert main(["compare", str(model), str(tmp_path / saved)]) == 1
        capsys.readouterr()

    def test_test_data_of_onnx(self, tmp_path: Path) -> None:
        assert main(["run", MODEL, "-o", str(tmp_path / "out.npz")]) == 0
        with np.load(tmp_path / "out.npz") as archive:
            onnx.save_tensor(onnx.numpy_helper.from_array(archive["probabilities"]), tmp_path / "output_0.pb")
        assert main(["compare", MODEL, str(tmp_path)]) == 0

    def test_what_is_not_there(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        np.savez(tmp_path / "a.npz", other=np.ones(1))
        (tmp_path / "output_0.pb").write_bytes(b"no tensor")
        for given, message in (("a.npz", "has no array for an output of the model: probabilities"), ("b.npz", "does not exist"),
                               ("", "is no TensorProto"), ("c.onnx", "does not exist")):  # fmt: skip
            assert main(["compare", MODEL, str(tmp_path / given)]) in (1, 2)
            assert message in capsys.readouterr().err


class TestExec:
    PROGRAM = """
import sys
import numpy as np
import onnxruntime
session = onnxruntime.InferenceSession(sys.argv[1])
results = session.run(None, {"image": np.zeros((1, 1, 8, 8), np.float32)})
print(type(session).__module__.partition(".")[0], len(results), sys.argv[2:])
sys.exit(5)
"""

    def run(self, *arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "intarsia", "exec", *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder)

    @pytest.mark.parametrize("how", [["program.py"], ["-m", "program"]])
    def test_a_program_of_onnxruntime(self, how: list[str], tmp_path: Path) -> None:
        (tmp_path / "program.py").write_text(self.PROGRAM)
        done = self.run(*how, MODEL, "--help", "-x", folder=tmp_path)
        assert done.stdout.strip() == "intarsia 1 ['--help', '-x']", done.stderr
        assert done.returncode == 5

    def test_errors_of_the_program_are_its_own(self, tmp_path: Path) -> None:
        (tmp_path / "program.py").write_text("raise LookupError('mine')")
        done = self.run("program.py", folder=tmp_path)
        assert "LookupError: mine" in done.stderr
        assert done.returncode == 1

    @pytest.mark.parametrize(
        ("arguments", "message", "code"),
        [(["none.py"], "the program 'none.py' does not exist", 1), (["-m"], "expects the name of a module", 2),
         (["-x"], "expects a Python file, or -m MODULE; got '-x'", 2)],
    )  # fmt: skip
    def test_wrong_calls(self, arguments: list[str], message: str, code: int, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["exec", *arguments]) == code
        assert message in capsys.readouterr().err


def test_help_shows_what_options_take(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "160")
    for command in ("bench", "run", "exec"):
        assert main([command, "--help"]) == 0
        text = capsys.readouterr().out
        assert "bool" not in text
    assert main(["bench", "--help"]) == 0
    text = capsys.readouterr().out
    assert all(word in text for word in ("NAME=SIZE", "KEY=VALUE", "NAME=FORM"))


@pytest.mark.parametrize("name", ["cpu", "CPU", "cpuexecutionprovider"])
def test_short_names_of_providers(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", MODEL, "--json", "-p", name]) == 0
    assert json.loads(capsys.readouterr().out)["providers"] == ["CPUExecutionProvider"]


def test_profile(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = ["--trace", str(tmp_path / "trace.json"), "--html", str(tmp_path / "page.html")]
    assert main(["profile", MODEL, "-n", "2", *files]) == 0
    out = capsys.readouterr().out
    assert all(title in out for title in ("by provider", "by operator", "by layer", "by kernel", "roofline: "))
    assert {event["ph"] for event in json.loads((tmp_path / "trace.json").read_text())} == {"X"}
    assert '"runs":2' in (tmp_path / "page.html").read_text(encoding="utf-8")
    assert main(["profile", MODEL, "-n", "2", "--json", *REFERENCE]) == 0
    data = json.loads(capsys.readouterr().out)
    assert len(data["run_milliseconds"]) == 2
    assert data["by_provider"][0]["name"] == "ReferenceExecutionProvider"


def test_profiles_are_saved_and_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first, second, page = (str(tmp_path / name) for name in ("first.json", "second.json", "page.html"))
    assert main(["profile", MODEL, "-n", "2", "--save", first]) == 0
    assert main(["profile", MODEL, "-n", "2", "--save", second, "--compare", first, "--html", page]) == 0
    assert re.search(r"before [\d.]+ ms, after [\d.]+ ms a run", capsys.readouterr().out)
    assert '"picture":false' not in Path(page).read_text(encoding="utf-8")
    assert main(["profile", second, "--compare", first, "--html", page, "--top", "1"]) == 0
    out = capsys.readouterr().out
    assert "by operator" in out and "the largest 1 of" in out
    assert '"picture":false' in Path(page).read_text(encoding="utf-8")
    assert main(["profile", second, "--compare", first, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["by_kernel"]
    assert main(["profile", second]) == 0
    assert "2 runs: " in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["profile", "p.json", "-i", "x=@ones"], "a saved profile is not run again: --input"),
        (["profile", "p.json", "--html", "page.html"], "a saved profile has no graph"),
        (["profile", MODEL, "--compare", "p.json"], "expected a profile as"),
    ],
)
def test_saved_profiles_that_do_not_fit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "p.json").write_text("{}")
    assert main(arguments) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("provider", ["CPUExecutionProvider", "ReferenceExecutionProvider"])
@pytest.mark.parametrize(
    ("text", "dims"),
    [
        ("(float[a, b] x, float[c, d] w) => (float[a, d] y) { y = MatMul(x, w) }", ["a=2", "b=3", "c=4", "d=2"]),
        ("(float[a] x, float[b] w) => (float[q] y) { y = Add(x, w) }", ["a=2", "b=3"]),
        ("(float[a, 7] x) => (float[q, 3] y) <int64[2] s = {-1, 3}> { y = Reshape(x, s) }", ["a=2"]),
        ("(float[a] x) => (float[1] y) <int64[1] s = {500}> { y = Gather(x, s) }", ["a=3"]),
    ],
)
def test_a_run_that_fails_for_its_sizes_is_no_wrong_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], provider: str, text: str, dims: list[str]
) -> None:
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]> g {text}')
    onnx.save(model, tmp_path / "m.onnx")
    given = [word for dim in dims for word in ("-d", dim)]
    assert main(["run", str(tmp_path / "m.onnx"), "-p", provider, *given]) == 1
    assert "error: node " in capsys.readouterr().err
    assert main(["run", str(tmp_path / "m.onnx"), "-p", provider, *given, "-d", "none=1"]) == 2


def test_bench_with_the_roofline(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", MODEL, "--runs", "2", "--roofline", "-t", "1"]) == 0
    out = capsys.readouterr().out
    assert "GFLOP/s (float32)" in out
    assert "% of the median" in out
    assert "the heaviest steps" in out


def test_configuration_entries(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(screen, "width", 120)  # long names of steps in one line
    rng = np.random.default_rng(0)
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"])], "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [9, 64])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [onnx.numpy_helper.from_array(rng.standard_normal((64, 128)).astype(np.float32), "w")],
    )  # fmt: skip
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    path = str(tmp_path / "product.onnx")
    onnx.save(made, path)
    config = ["--config", "session.arithmetic=bfloat16", "--config", "session.matrix_unit=amx_emulated"]
    for command in (["dump", path, "-s", "plan"], ["explain", path], ["profile", path, "-n", "1"],
                    ["bench", path, "-n", "2", "--roofline", "-t", "1"]):  # fmt: skip
        assert main([*command, *config]) == 0
        assert "(bfloat16 by emulated AMX)" in capsys.readouterr().out, command
    assert main(["explain", path, "--config", "session.arithmetic"]) != 0
    assert "--config: expected KEY=VALUE, such as session.arithmetic=bfloat16; got" in capsys.readouterr().err


def test_providers(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["providers"]) == 0
    out = capsys.readouterr().out
    assert out.index("CPUExecutionProvider") < out.index("not part of this version")
    assert "NVIDIA" in out


def test_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    from intarsia.cache.disk_cache import get_cache

    own_cache = tmp_path / "cache"
    monkeypatch.setenv("INTARSIA_CACHE_DIR", str(own_cache))
    assert get_cache().put("abc", b"x" * 1000)
    assert main(["cache", "info"]) == 0
    assert f"{own_cache}: 1 entries, 0.0 MB" in capsys.readouterr().out
    broken = next(own_cache.rglob("abc"))
    broken.chmod(0o600)
    broken.write_bytes(b"damaged")
    assert main(["cache", "verify"]) == 0
    assert "1 damaged entries removed" in capsys.readouterr().out
    assert get_cache().put("abc", b"x" * 1000)
    assert main(["cache", "prune", "--max-mb", "1"]) == 0
    assert "0 entries removed" in capsys.readouterr().out
    assert main(["cache", "clear"]) == 0
    assert "1 entries removed" in capsys.readouterr().out


def test_cache_ls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("INTARSIA_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("INTARSIA_PROGRAM_CACHE", "1")
    assert main(["cache", "ls"]) == 0
    capsys.readouterr()
    intarsia.InferenceSession(MODEL)
    assert main(["cache", "ls"]) == 0
    out = capsys.readouterr().out
    assert "warm starts" in out
    assert "digits.onnx" in out
    assert main(["cache", "ls", "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    (start,) = data["warm_starts"]
    assert Path(start["model"]).name == "digits.onnx"
    assert start["inputs"][0].startswith("image: ")
    assert {kind["name"] for kind in data["kinds"]} >= {"warm starts", "weights of warm starts", "hashes of model files"}


def test_doctor(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor"]) == 0
    assert "CPUExecutionProvider" in capsys.readouterr().out
    assert main(["doctor", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["ok"] is True
    found = dataclasses.replace(intarsia.doctor(), problems=(intarsia.reports.doctor.Problem("x", "error", "all is lost"),))
    monkeypatch.setattr("intarsia.cli.doctor.doctor", lambda: found)
    assert main(["doctor"]) == 1
    assert "error: all is lost [x]" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["run", "nothing.onnx"], 1, "'nothing.onnx' does not exist"),
        (["run", MODEL, "-p", "CPUExecutionProvder"], 2, "did you mean 'CPUExecutionProvider'"),
        (["run", MODEL, "-i", "picture=@zeros", *REFERENCE], 2, "the model has no input 'picture'"),
        (["run", MODEL, "--mean", "a,b"], 2, "--mean expects numbers separated by commas; got 'a,b'"),
        (["run", MODEL, "--labels", "none.txt", *REFERENCE], 2, "--labels: cannot read 'none.txt'"),
        (["dump", MODEL, "--stage", "sorce"], 2, "--stage: no stage 'sorce'; did you mean 'source'"),
        (["bench", MODEL, "--compare", "onnxruntme"], 2, "--compare: no runtime 'onnxruntme'; did you mean 'onnxruntime'"),
        (["frobnicate"], 2, "No such command 'frobnicate'"),
    ],
)
def test_errors_are_one_message(arguments: list[str], code: int, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == code
    shown = capsys.readouterr()
    assert message in shown.err
    assert "Traceback" not in shown.err


def test_labels_must_be_a_list(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "labels.json").write_text("{}")
    assert main(["run", MODEL, "--labels", str(tmp_path / "labels.json"), *REFERENCE]) == 2
    assert "expected a JSON list in" in capsys.readouterr().err


def test_version_and_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"intarsia {intarsia.__version__}\n"
    for command in ("run", "explain", "check", "bench", "profile", "doctor", "dump", "providers", "cache"):
        assert main([command, "--help"]) == 0
        assert command in capsys.readouterr().out


def test_python_m() -> None:
    done = subprocess.run([sys.executable, "-m", "intarsia", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout == f"intarsia {intarsia.__version__}\n"


def test_a_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.delitem(sys.modules, "intarsia.cli.app", raising=False)
    monkeypatch.setitem(sys.modules, "typer", None)
    assert main(["providers"]) == 3
    assert "the command line needs typer: pip install 'intarsia[cli]'" in capsys.readouterr().err


def test_labels_that_are_no_labels(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "names.json").write_text("[1")
    (tmp_path / "names.txt").write_bytes(b"\xff\xfe\xfa")
    for name, kind in (("names.json", "JSON list"), ("names.txt", "text file in UTF-8")):
        assert main(["run", MODEL, "--labels", str(tmp_path / name), *REFERENCE]) == 2
        assert f"--labels: expected a {kind} in" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["run", "dump"])
def test_output_that_cannot_be_written(command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "missing" / "out.npz"
    assert main([command, MODEL, "-o", str(path), *REFERENCE]) == 2
    assert f"error: file {str(path)!r} cannot be written: there is no folder" in capsys.readouterr().err


def test_a_provider_that_is_not_there_is_named_once() -> None:
    command = [sys.executable, "-m", "intarsia", "run", MODEL, "-p", "MIGraphXExecutionProvider,ReferenceExecutionProvider"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stderr.count("The session goes on with ReferenceExecutionProvider") == 1
    assert "ProviderWarning" not in done.stderr


@pytest.mark.skipif(sys.platform == "win32", reason="signals cannot be sent so on Windows")
def test_interrupt_ends_a_run_in_native_code(tmp_path: Path) -> None:
    def one(name: str, kind: int) -> onnx.ValueInfoProto:
        return helper.make_tensor_value_info(name, kind, [])

    four = [4]
    body = helper.make_graph(
        [helper.make_node("Identity", ["going"], ["on"]), helper.make_node("Sin", ["x"], ["y"])], "body",
        [one("i", TensorProto.INT64), one("going", TensorProto.BOOL),
         helper.make_tensor_value_info("x", TensorProto.FLOAT, four)],
        [one("on", TensorProto.BOOL), helper.make_tensor_value_info("y", TensorProto.FLOAT, four)],
    )  # fmt: skip
    graph = helper.make_graph(
        [helper.make_node("Loop", ["trips", "", "start"], ["end"], body=body)], "long",
        [one("trips", TensorProto.INT64), helper.make_tensor_value_info("start", TensorProto.FLOAT, four)],
        [helper.make_tensor_value_info("end", TensorProto.FLOAT, four)],
    )  # fmt: skip
    opsets = [helper.make_opsetid("", 20)]
    (tmp_path / "long.onnx").write_bytes(helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString())
    # Where the tests themselves run in the background, SIGINT is ignored, and children inherit that.
    heed = "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler)"
    code = f"{heed}; from intarsia.cli import main; sys.exit(main())"
    command = [sys.executable, "-c", code, "run", str(tmp_path / "long.onnx"), "-i", "trips=1000000000000", "-i", "start=@ones"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            for line in process.stderr:
                if line.startswith("input start"):
                    break
            time.sleep(0.3)  # the loop is under way then; before, the interrupt would end it just the same
            process.send_signal(signal.SIGINT)
            assert process.wait(300) == 130
        finally:
            process.kill()
