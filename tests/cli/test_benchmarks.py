"""The scripts of benchmarks/ as a user runs them, on one small model each."""

from __future__ import annotations

import importlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]


def test_tables_of_one_model(tmp_path: Path) -> None:
    shutil.copy(ROOT / "examples" / "digits" / "digits.onnx", tmp_path)
    np.savez(tmp_path / "digits.npz", in_image=np.zeros((1, 1, 8, 8), np.float32), out_0=np.zeros((1, 10), np.float32))
    script = str(ROOT / "benchmarks" / "models.py")
    call = [sys.executable, script, str(tmp_path), "--what", "run,memory", "--compare", "", "--runs", "3"]
    done = subprocess.run(call, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "### One run, median, 2 threads" in done.stdout
    rows = [[cell.strip() for cell in line.split("|")] for line in done.stdout.splitlines() if line.startswith("| digits")]
    assert len(rows) == 3  # runs, memory of warm starts and of first ones
    assert all(float(row[2]) > 0 for row in rows)


def test_two_builds_in_turn(tmp_path: Path) -> None:
    shutil.copy(ROOT / "examples" / "digits" / "digits.onnx", tmp_path)
    np.savez(tmp_path / "digits.npz", in_image=np.zeros((1, 1, 8, 8), np.float32))
    call = [sys.executable, str(ROOT / "benchmarks" / "in_turn.py"), str(ROOT / "src"), str(tmp_path)]
    briefly = ["--rounds", "2", "--seconds", "0.001"]
    done = subprocess.run([*call, "--what", "run,start", *briefly], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    rows = [line for line in done.stdout.splitlines() if line.startswith("| digits")]
    runs, starts = ([cell.strip() for cell in row.split("|")] for row in rows)
    assert float(runs[2]) > 0 and float(runs[3]) > 0
    assert len(starts) == 10 and all(float(cell) > 0 for cell in starts[2:8])
    done = subprocess.run([*call, "Add of 10", "--what", "overhead", *briefly], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "| one Add of 10 floats | " in done.stdout
    done = subprocess.run([*call[:2], str(tmp_path), str(tmp_path)], capture_output=True, text=True, check=False)
    assert done.returncode == 2 and "has no intarsia: expected the src folder of a checkout" in done.stderr


def test_unknown_measure(tmp_path: Path) -> None:
    shutil.copy(ROOT / "examples" / "digits" / "digits.onnx", tmp_path)
    call = [sys.executable, str(ROOT / "benchmarks" / "models.py"), str(tmp_path), "--what", "speed"]
    done = subprocess.run(call, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "--what: unknown speed; there are run, create, import, memory" in done.stderr


def test_a_family_is_written_and_checked(tmp_path: Path) -> None:
    for package in ("torch", "transformers", "onnxruntime"):
        pytest.importorskip(package, reason="builds the families, or is what they are compared with")
    script = str(ROOT / "benchmarks" / "families.py")
    call = [sys.executable, script, str(tmp_path), "tensorflow_wh*", "--what", "export,check"]
    done = subprocess.run(call, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    wanted, checked = (line for line in done.stdout.splitlines() if line.startswith("tensorflow_while"))
    assert "10 nodes" in wanted and "differs by" in checked and "<<<" not in checked
    listed = subprocess.run([*call, "--list"], capture_output=True, text=True, check=False)
    assert "tensorflow_while A while loop" in listed.stdout


def test_torch_runs_the_exported_weights() -> None:
    pytest.importorskip("torch", reason="the peer")
    pytest.importorskip("transformers", reason="builds some of the models")
    code = f"""if True:
        import sys
        sys.path.insert(0, {str(ROOT / "benchmarks")!r})
        import numpy as np, tempfile, pathlib, torch_peer
        from intarsia import InferenceSession
        folder = pathlib.Path(tempfile.mkdtemp())
        torch_peer.families().export("mlp_tabular", folder, small=False)
        with np.load(folder / "mlp_tabular.npz") as kept:
            feeds = {{k[3:]: kept[k] for k in kept if k.startswith("in_")}}
        ours = InferenceSession(str(folder / "mlp_tabular.onnx")).run(None, feeds)
        (theirs,) = torch_peer.runner("mlp_tabular", feeds, 1, compiled=False).run()
        np.testing.assert_allclose(ours[0], theirs, rtol=1e-5, atol=1e-6)
        try:
            torch_peer.runner("other", feeds, 1, compiled=False)
        except LookupError as error:
            print(error)
    """
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "torch runs only what tests/models/export.py builds" in done.stdout


def test_unknown_peers_are_named(tmp_path: Path) -> None:
    (tmp_path / "a.onnx").touch()
    call = [sys.executable, str(ROOT / "benchmarks" / "models.py"), str(tmp_path), "--compare", "onyx"]
    done = subprocess.run(call, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    peers = "onnxruntime, openvino, opencv, emx-onnx-cgen, torch, torch.compile"
    assert f"--compare: unknown onyx; there are {peers}" in done.stderr


def test_errors_against_float64(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime", reason="the peer that is compared with")
    shutil.copy(ROOT / "examples" / "digits" / "digits.onnx", tmp_path)
    image = np.random.default_rng(0).random((1, 1, 8, 8), np.float32)
    np.savez(tmp_path / "digits.npz", in_image=image)
    call = [sys.executable, str(ROOT / "benchmarks" / "accuracy.py"), str(tmp_path)]
    done = subprocess.run(call, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (row,) = [line.split("|")[1:-1] for line in done.stdout.splitlines() if line.startswith("| digits")]
    ours, peer = float(row[1]), float(row[3])
    assert 1e-9 < ours < 1e-5  # float32 against float64: neither equal nor far
    assert 1e-9 < peer < 1e-5


def operators(*arguments: str) -> subprocess.CompletedProcess[str]:
    call = [sys.executable, str(ROOT / "benchmarks" / "operators.py"), *arguments]
    return subprocess.run(call, capture_output=True, text=True, check=False)


def test_cases_of_single_operators() -> None:
    pytest.importorskip("onnx", reason="the cases' labels use onnx's names of types")
    names = operators("--list").stdout.splitlines()
    assert len(names) > 600
    assert len(set(names)) > 600
    assert operators("--list", "Resize *cubic*").stdout.count("cubic") >= 6


def test_table_of_one_operator() -> None:
    pytest.importorskip("onnxruntime", reason="the peer that is compared with")
    done = operators("Relu float32 32x32", "--rounds", "1", "--seconds", "0.001", "--json")
    assert done.returncode == 0, done.stderr
    (row,) = json.loads(done.stdout)["results"]
    assert (row["op"], row["difference"], row["how"]) == ("Relu", 0, "compiled")
    assert row["ratio"] == pytest.approx(row["onnxruntime_ms"] / row["intarsia_ms"])


def test_unknown_operator() -> None:
    done = operators("NoSuchOperator")
    assert done.returncode == 2
    assert "no such cases: NoSuchOperator" in done.stderr


def test_tables_of_a_gpu_on_an_imitated_one(tmp_path: Path) -> None:
    """All batches and precisions of one model in one command, without a GPU: peers say what they miss, nothing is made up."""
    pytest.importorskip("onnx", reason="the model is written by it")
    from onnx import helper, numpy_helper, save

    weight = numpy_helper.from_array(np.eye(8, dtype=np.float32), "w")
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["h"]), helper.make_node("Softmax", ["h"], ["y"])], "g",
        [helper.make_tensor_value_info("x", 1, ["n", 8])], [helper.make_tensor_value_info("y", 1, ["n", 8])], [weight],
    )  # fmt: skip
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9), tmp_path / "free.onnx")
    np.savez(tmp_path / "free.npz", in_x=np.ones((1, 8), np.float32))
    peers = ["onnxruntime", "tensorrt", "torch"]
    program = (
        "import gpu, offline_kernels\n"
        "with offline_kernels.imitated('cuda') as texts:\n    gpu.main()\nprint(len(texts), 'kernels')"
    )
    environment = dict(os.environ, PYTHONPATH=os.pathsep.join(
        [*(str(ROOT / name) for name in ("src", "benchmarks", "tests/providers/imitations")), os.environ.get("PYTHONPATH", "")]
    ))  # fmt: skip
    call = [sys.executable, "-c", program, str(tmp_path), "--runs", "2", "--seconds", "0.1", "--peers", ",".join(peers)]
    done = subprocess.run(call, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    titles = [line for line in done.stdout.splitlines() if line.startswith("### ")]
    assert titles == [
        f"### CUDAExecutionProvider, batch {batch}, {how}, ms" for batch in (1, 32) for how in ("float32", "tf32", "float16")
    ]
    rows = [[c.strip() for c in line.split("|")[1:-1]] for line in done.stdout.splitlines() if line.startswith("| free")]
    assert len(rows) == 6
    for row in rows:
        assert float(row[1]) > 0 and float(row[2]) > 0  # with libraries and without
        assert row[3:6] == ["-"] * 3  # no peer has a GPU here
    assert done.stdout.count("free: no library") == 6  # a product of eight columns is not worth one
    for peer in peers:
        assert f"free, tf32: no {peer}: " in done.stderr


def test_a_model_of_a_fixed_batch_that_nobody_builds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    import gpu

    monkeypatch.setattr(gpu, "families", lambda: SimpleNamespace(FAMILIES={"resnet50": None}))
    with pytest.raises(LookupError, match=r"its batch is fixed, and tests/models/export.py does not build it: resnet50"):
        gpu.of_batch(tmp_path / "digits.onnx", 32, tmp_path)


def test_kernels_of_a_gpu_on_an_imitated_one(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Every row is there, and no case fails on the way."""
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    import cuda_kernels
    import offline_kernels

    with offline_kernels.imitated("cuda") as texts:
        cuda_kernels.tables(1, 64, 1)
    printed = capsys.readouterr()
    assert "left out" not in printed.err
    rows = [line.split("|")[1].strip() for line in printed.out.splitlines() if line.startswith("| ")]
    for name in ("a graph", "x + 1", "softmax of rows of 16384", "depthwise 3 x 3", "rows of 1024 sorted", "64 x 256 x 64",
                 "float16, attention 1 x 12 x 1024 x 64"):  # fmt: skip
        assert name in rows
    assert len(texts) > 30


def test_one_command_on_a_machine_with_a_gpu(tmp_path: Path) -> None:
    """Here, where there is none: it says so, and does nothing else. A share of the cases runs with any provider."""
    script = [sys.executable, str(ROOT / "benchmarks" / "on_gpu.py")]
    path = os.pathsep.join(filter(None, [str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]))
    environment = dict(os.environ, PYTHONPATH=path)

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([*script, *arguments], capture_output=True, text=True, check=False, env=environment)

    if not Path("/dev/nvidiactl").exists():
        done = run("--out", str(tmp_path))
        assert done.returncode == 1
        assert "the other steps are left out" in done.stdout
        assert "compiler: " in (tmp_path / "machine.txt").read_text(encoding="utf-8")
    done = run("conformance", "--provider", "ReferenceExecutionProvider", "--share", "3", "300")
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(found) >= 6
    assert {outcome for _, outcome, _ in found} <= {"right", "refused"}
    done = run("speed")
    assert done.returncode == 2
    assert "unknown speed; there are machine, suite, conformance, kernels, tensorrt, models" in done.stderr


def test_tensorrt_on_a_gpu(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """On an imitated one: a network of known result, some node cases, a table."""
    from intarsia.device import cuda, nvrtc
    from intarsia.providers.tensorrt import library

    if why := nvrtc.missing():
        pytest.skip(f"CUDA's device cannot be opened: {why}")
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    monkeypatch.syspath_prepend(str(ROOT / "tests" / "providers" / "imitations"))
    import tensorrt_on_gpu
    from fake_cuda import FakeCuda
    from fake_tensorrt import FakeTensorrt

    machine = FakeCuda()
    monkeypatch.setattr(cuda, "driver", lambda: machine)
    monkeypatch.setattr(cuda._opened, "_devices", {})
    monkeypatch.setitem(sys.modules, "tensorrt", None)
    monkeypatch.setitem(sys.modules, "tensorrt_rtx", trt := FakeTensorrt(machine))
    for cached in (cuda.missing, library.opened):
        cached.cache_clear()
    small = [("a product", tensorrt_on_gpu.model(tensorrt_on_gpu.HEAD + SMALL, w=(4, 4)), {"x": np.ones((4, 4), np.float32)})]
    monkeypatch.setattr(tensorrt_on_gpu, "works", lambda: small)
    try:
        assert tensorrt_on_gpu.known_answer()
        tensorrt_on_gpu.conformance(3)
        tensorrt_on_gpu.timed(0.6)
        trt.fault = "run"
        assert not tensorrt_on_gpu.known_answer()
    finally:
        for cached in (cuda.missing, library.opened):
            cached.cache_clear()
    printed = capsys.readouterr().out
    assert "built, loaded and run in" in printed and "it does not run here: EPFail" in printed
    assert "| a product | float16 |" in printed and " node cases: {" in printed


SMALL = "(float[4, 4] x) => (float[4, 4] y) { y = MatMul(x, w) }"


def test_a_step_that_does_not_end_is_ended_with_all_that_it_started(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process of its own that held the pipe would be waited for."""
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    on_gpu = importlib.import_module("on_gpu")
    sleeps = "import time; time.sleep(3600)"
    steps = on_gpu.Steps(3600, None)
    assert not steps.run("slow", ["-c", f"import subprocess, sys; subprocess.run([sys.executable, '-c', {sleeps!r}])"], 3)
    assert steps.wrong == {"slow": "did not end within 3 s"}
    assert steps.run("quick", ["-c", "print('done')"], 300)


@pytest.mark.parametrize("device", ["webgpu", "opencl"])
def test_kernels_of_a_device(device: str) -> None:
    """By ratios; products of this size are split along K, so that a kernel hands partial sums to the next."""
    if why := why_not(device):
        pytest.skip(f"no {device} device: {why}")
    script = str(ROOT / "benchmarks" / "gpu.py")
    call = [sys.executable, script, "--device", device, "--size", "512", "--megabytes", "1", "--runs", "1"]
    environment = dict(os.environ, PYTHONPATH=os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]))
    done = subprocess.run(call, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    assert "float32 product of 512 x 512, speed in naive ones" in done.stdout
    assert "softmax of rows of 1024" in done.stdout


def why_not(device: str) -> str:
    """What is missing for a kind of device; "" where nothing is."""
    return str(importlib.import_module(f"intarsia.device.{device}").missing())
