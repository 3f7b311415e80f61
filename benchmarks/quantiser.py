"""How long quantising takes and how much memory it needs, beside onnxruntime.quantization: in processes of their own, in turn.

    python benchmarks/quantiser.py MODEL.onnx [--samples 128] [--rounds 3]     static, on random inputs of the model's sizes
    python benchmarks/quantiser.py --weights 500                               weights of 4 bits of a model of so many MB

Prints seconds, those of processors (which other work leaves alone), the peak of resident memory above that of a process
which has imported the package, and their ratios.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

PACKAGES = {"intarsia": "intarsia.quantization", "onnxruntime": "onnxruntime.quantization"}

CHILD = """
import importlib, json, sys, time, threading
import numpy as np, onnx
package, job, source, target, samples = sys.argv[1:]
module = importlib.import_module(package)
nbits = importlib.import_module(package + ".matmul_nbits_quantizer") if job == "weights" else None
importlib.import_module(package.split(".")[0])

def resident(field):
    return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith(field)) / 1024

class Reader(module.CalibrationDataReader):
    def __init__(self):
        shapes = json.loads(open(source + ".json").read())
        numbers = np.random.default_rng(0)
        make = lambda s, t: numbers.random(s, np.float32) if t == 1 else numbers.integers(0, 100, s).astype(np.int64)
        self.feed = {name: make(shape, kind) for name, (shape, kind) in shapes.items()}
        self.left = int(samples)
    def get_next(self):
        self.left -= 1
        return self.feed if self.left >= 0 else None

before = resident("VmRSS")
start, worked = time.perf_counter(), time.process_time()
if job == "static":
    kinds = {"activation_type": module.QuantType.QUInt8, "weight_type": module.QuantType.QInt8}
    module.quantize_static(source, target, Reader(), per_channel=True, **kinds)
else:
    quantizer = nbits.MatMulNBitsQuantizer(source, block_size=32)
    quantizer.process()
    quantizer.model.save_model_to_file(target)
seconds, worked = time.perf_counter() - start, time.process_time() - worked
print(json.dumps([seconds, worked, resident("VmHWM") - before]))
"""


def measured(package: str, job: str, source: Path, target: Path, samples: int) -> list[float]:
    """Seconds, seconds of processors, and the peak of memory in MB."""
    command = [sys.executable, "-c", CHILD, PACKAGES[package], job, str(source), str(target), str(samples)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{package}: {done.stderr[-2000:]}")
    return [float(number) for number in json.loads(done.stdout.splitlines()[-1])]


def write_weights(folder: Path, megabytes: int) -> Path:
    """A chain of products by matrices of 4 MB, as of a language model."""
    import numpy as np
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    numbers, count = np.random.default_rng(0), max(1, megabytes // 4)
    weights = [numpy_helper.from_array(numbers.standard_normal((1024, 1024), np.float32) / 32, f"w{i}") for i in range(count)]
    nodes = [helper.make_node("MatMul", [f"x{i}", f"w{i}"], [f"x{i + 1}"], f"product{i}") for i in range(count)]
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", 1024]) for name in ("x0", f"x{count}")]
    model = helper.make_model(helper.make_graph(nodes, "g", values[:1], values[1:], weights), ir_version=10)
    path = folder / "weights.onnx"
    onnx.save(model, path)
    return path


def write_sizes(model: Path, folder: Path) -> Path:
    """The model beside a file of its inputs' sizes: 1 for what is not fixed, 224 for pixels, 32 for tokens."""
    import onnx

    graph = onnx.load(model).graph
    stored = {t.name for t in graph.initializer}
    sizes = {}
    for value in graph.input:
        if value.name not in stored:
            dims = value.type.tensor_type.shape.dim
            usual = [1, 3, 224, 224] if len(dims) == 4 else [1, 32]
            shape = [d.dim_value or (usual[i] if i < len(usual) else 1) for i, d in enumerate(dims)]
            sizes[value.name] = (shape, value.type.tensor_type.elem_type)
    path = folder / "model.onnx"
    path.write_bytes(model.read_bytes())
    Path(f"{path}.json").write_text(json.dumps(sizes), encoding="utf-8")
    return path


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?", type=Path, help="a model of floats")
    parser.add_argument("--weights", type=int, default=0, help="megabytes of weights")
    parser.add_argument("--samples", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        job = "weights" if given.weights else "static"
        source = write_weights(folder, given.weights) if given.weights else write_sizes(given.model, folder)
        best = {package: [float("inf")] * 3 for package in PACKAGES}
        for _ in range(given.rounds):
            for package, least in best.items():
                found = measured(package, job, source, folder / f"{package}.onnx", given.samples)
                least[:] = map(min, least, found)
        for package, (seconds, worked, peak) in best.items():
            size = (folder / f"{package}.onnx").stat().st_size / 1e6
            print(f"{package:12} {seconds:8.2f} s   {worked:8.2f} s of processors   {peak:8.0f} MB   {size:8.1f} MB written")
        ours, theirs = best["intarsia"], best["onnxruntime"]
        faster, worked, memory = theirs[0] / ours[0], ours[1] / theirs[1], ours[2] / theirs[2]
        print(f"{faster:.2f} times as fast, {worked:.2f} of the processors' time, {memory:.2f} of the memory")


if __name__ == "__main__":
    main()
