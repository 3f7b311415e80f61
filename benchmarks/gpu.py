"""Models on a device with memory of its own, beside PyTorch and onnxruntime there: python benchmarks/gpu.py FOLDER [NAME ...]

FOLDER holds models as tests/models/export.py writes them; PyTorch's modules are built by the same functions, so its weights
are others of the same sizes. Inputs and outputs stay on the device; a run ends when its results are there. All runtimes in one
process, in turn (intarsia.cli.timing.interleave); the table has medians. A ratio above 1 means that Intarsia is ahead.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from intarsia.cli.timing import Runner, interleave
from models import feeds_of, geometric_mean, print_table

KINDS = {"CUDAExecutionProvider": "cuda", "WebGpuExecutionProvider": "webgpu"}


def bound(runtime: Any, name: str, model: Path, provider: str) -> Runner:
    """A session of intarsia or onnxruntime with inputs and outputs bound to the device, where the runtime has a name for it."""
    feeds = feeds_of(model)
    session = runtime.InferenceSession(str(model), providers=[provider])
    kind = KINDS.get(provider)
    if kind is None:
        return Runner(name, lambda: session.run(None, feeds), 0.0)
    binding = session.io_binding()
    for key, array in feeds.items():
        binding.bind_ortvalue_input(key, runtime.OrtValue.ortvalue_from_numpy(array, kind, 0))
    for output in session.get_outputs():
        binding.bind_output(output.name, kind, 0)

    def run() -> Sequence[Any]:
        session.run_with_iobinding(binding)
        binding.synchronize_outputs()
        return ()

    return Runner(name, run, 0.0)


def intarsia(model: Path, provider: str) -> Runner:
    import intarsia

    return bound(intarsia, "intarsia", model, provider)


def onnxruntime(model: Path, provider: str) -> Runner:
    import onnxruntime

    if provider not in onnxruntime.get_available_providers():
        raise LookupError(f"onnxruntime has no {provider} here")
    return bound(onnxruntime, "onnxruntime", model, provider)


def torch(model: Path, provider: str, compiled: bool = False) -> Runner:
    import torch

    sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "models"))
    from export import FAMILIES

    device = "cuda" if torch.cuda.is_available() else "cpu"
    module = FAMILIES[model.stem](False).model.eval().to(device)
    if compiled:
        module = torch.compile(module)
    inputs = [torch.from_numpy(np.ascontiguousarray(a)).to(device) for a in feeds_of(model).values()]

    def run() -> Sequence[Any]:
        with torch.inference_mode():
            module(*inputs)
        if device == "cuda":
            torch.cuda.synchronize()
        return ()

    return Runner(f"torch{'.compile' if compiled else ''}", run, 0.0)


PEERS: dict[str, Callable[[Path, str], Runner]] = {
    "onnxruntime": onnxruntime, "torch": torch, "torch.compile": lambda model, provider: torch(model, provider, True),
}  # fmt: skip


def compared(model: Path, provider: str, peers: Sequence[str], runs: int, seconds: float) -> dict[str, float]:
    """Milliseconds by runtime; a peer that cannot run is left out with a line on the error stream."""
    runners = [intarsia(model, provider)]
    for peer in peers:
        try:
            runners.append(PEERS[peer](model, provider))
        except Exception as error:  # noqa: BLE001 - a peer that fails in whatever way is a missing column, not the end
            print(f"{model.stem}: no {peer}: {str(error).splitlines()[0]}", file=sys.stderr)
    return {r.name: t.median for r, t in zip(runners, interleave(runners, runs, seconds), strict=True)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--provider", default="CUDAExecutionProvider")
    parser.add_argument("--peers", default="onnxruntime,torch,torch.compile", help="which of " + ", ".join(PEERS))
    parser.add_argument("--runs", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=10.0, help="at most so long for each model")
    given = parser.parse_args()
    names = given.names or sorted(p.stem for p in given.folder.glob("*.onnx"))
    peers = [p for p in given.peers.split(",") if p]
    columns = ["intarsia", *peers]
    rows = []
    for name in names:
        times = compared(given.folder / f"{name}.onnx", given.provider, peers, given.runs, given.seconds)
        ratios = [f"{times[p] / times['intarsia']:.2f}" if p in times else "-" for p in peers]
        rows.append([name, *(f"{times[c]:.2f}" if c in times else "-" for c in columns), *ratios])
    found = [[float(r[i]) for r in rows if r[i] != "-"] for i in range(1 + len(columns), 1 + len(columns) + len(peers))]
    rows.append(["geometric mean", *([""] * len(columns)), *(f"{geometric_mean(f):.2f}" if f else "-" for f in found)])
    print_table(f"{given.provider}, ms", ["model", *columns, *(f"{p} / intarsia" for p in peers)], rows)


if __name__ == "__main__":
    main()
