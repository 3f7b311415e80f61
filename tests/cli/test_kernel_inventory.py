"""scripts/kernel_inventory.py: the same text in every process, another one for other kernels, sizes and weights."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest
from onnx import numpy_helper

pytest.importorskip("llvmlite", reason="the version of LLVM decides about a few instructions")

ROOT = Path(__file__).parents[2]
MODEL = ROOT / "examples" / "digits" / "digits.onnx"
RANDOM = """<ir_version: 10, opset_import: ["": 22]>
g (float[n, 8] x) => (float[n, 8] y) <float ratio = {0.5}, bool training = {1}> { y = Dropout(x, ratio, training) }"""


def inventory(*arguments: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
    call = [sys.executable, str(ROOT / "scripts" / "kernel_inventory.py"), *map(str, arguments)]
    return subprocess.run(call, capture_output=True, text=True, check=False, env={**os.environ, **environment})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (found := tmp_path / "models").mkdir()
    shutil.copy(MODEL, found)
    np.savez(found / "digits.npz", in_image=np.zeros((2, 1, 8, 8), np.float32))
    return found


def test_text_is_the_same_in_every_process(folder: Path, tmp_path: Path) -> None:
    """Of random numbers, too, whose state begins anywhere in other processes."""
    onnx.save(onnx.parser.parse_model(RANDOM), folder / "random.onnx")
    shutil.copytree(folder, other := tmp_path / "elsewhere")
    options = ("--what", "runtime,models", "--targets", "avx2,arm64", "--details")
    first = inventory(folder, *options, PYTHONHASHSEED="1")
    again = inventory(other, *options, PYTHONHASHSEED="2", INTARSIA_CPU_FEATURES="x86-64")
    assert first.returncode == 0, first.stderr
    assert first.stdout == again.stdout
    found = first.stdout.splitlines()
    told = [line.split("=")[0].split() for line in found if line[:1] != " "]
    assert [words[:2] for words in told[:2]] == [["runtime:", "avx2"], ["runtime:", "arm64"]]
    assert [words[:3] for words in told[3:5]] == [["models", "digits:", "avx2"], ["models", "digits:", "arm64"]]
    assert [words[1] for words in told[5:]] == ["random:"] * 3
    assert told[3][3] != told[4][3], "kernels of the two targets have other texts"
    for kind in ("segment in (image)", "arena ", "arguments 0 ", "constant ", "kernel ", "part 0: CPUExecutionProvider"):
        assert any(kind in line for line in found), kind


def test_text_follows_weights_and_sizes(folder: Path) -> None:
    options = ("--what", "models", "--targets", "avx2")
    before = inventory(folder, *options).stdout.splitlines()
    np.savez(folder / "digits.npz", in_image=np.zeros((64, 1, 8, 8), np.float32))
    larger = inventory(folder, *options).stdout.splitlines()
    model = onnx.load(folder / "digits.onnx")
    (weight,) = [w for w in model.graph.initializer if w.name == model.graph.node[0].input[1]]
    weight.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(weight) * 2, weight.name))
    onnx.save(model, folder / "digits.onnx")
    heavier = inventory(folder, *options).stdout.splitlines()
    assert len(before) == len(larger) == len(heavier) == 2
    assert before[0] == larger[0] == heavier[0], "the graph and its partition name no size and no weight"
    assert len({before[1], larger[1], heavier[1]}) == 3
    assert before[1].split()[4:6] == larger[1].split()[4:6], "as many kernels and steps for any size"


def test_examples_of_an_operator() -> None:
    done = inventory("--what", "examples", "--names", "Conv", "--targets", "avx2")
    assert done.returncode == 0, done.stderr
    found = [line.split() for line in done.stdout.splitlines()]
    assert {words[1] for words in found} == {"Conv"}
    assert {words[2] for words in found} == {"operator_examples", "larger_examples"}
    assert "refused" not in done.stdout


def test_unknown_target(folder: Path) -> None:
    done = inventory(folder, "--targets", "avx2,avx9")
    assert done.returncode == 2
    assert "--targets: unknown avx9; there are avx2, avx512, zen4, arm64" in done.stderr


def test_folder_that_is_not_there(tmp_path: Path) -> None:
    done = inventory(tmp_path / "nowhere")
    assert done.returncode == 2
    assert "nowhere is no folder; expected one of .onnx files" in done.stderr
