"""Models on a device with memory of its own, beside PyTorch and onnxruntime there: python benchmarks/gpu.py FOLDER [NAME ...]

FOLDER holds models as tests/models/export.py writes them (--size full); PyTorch's modules are built by the same functions, so
its weights are others of the same sizes. Inputs and outputs stay on the device; a run ends when its results are there. All
runtimes in one process, in turn (intarsia.cli.timing.interleave); tables have medians. A ratio above 1: Intarsia is ahead.

On CUDA, `intarsia` is with cuBLASLt and cuDNN where they are found, `own kernels` without them (option `use_libraries`); the
line under a table says how many nodes of each model a library computed.

One table per batch size (--batch) and precision (--precision): float32 without and with TF32 (`tf32`), and float16 (the model
rewritten: weights, constants, inputs and outputs). A peer that is not installed, or cannot run a model, has no figure, and a
line on the error stream says why. A model whose batch is fixed is exported anew for another one, by the functions that made it;
where that is not possible it is left out, with a line that says so.

--device webgpu (or opencl): instead, kernels of that device beside a naive one and the device's copy (gpu_kernels.py).
--device cuda: instead, what launches cost, and kernels beside the copy's bandwidth, the measured matrix peak, cuBLASLt and
PyTorch (cuda_kernels.py).
"""

from __future__ import annotations

import argparse
import datetime as dt
import importlib.metadata
import platform
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from half_models import write_half
from torch_peer import call_of, families

from intarsia.cli.peers import Runner
from intarsia.cli.timing import interleave
from models import feeds_of, geometric_mean, print_table

KINDS = {"CUDAExecutionProvider": "cuda", "WebGpuExecutionProvider": "webgpu"}
PRECISIONS = ("float32", "tf32", "float16")
OURS, OWN = "intarsia", "own kernels"
USED: dict[str, str] = {}
"""By model, which libraries computed how much of it in the table that is being made."""


@dataclass(frozen=True)
class Work:
    """What every runtime is to do.

    Attributes:
        model: the file, in `precision` already.
        feeds: inputs, of `batch` rows.
    """

    name: str
    model: Path
    feeds: Mapping[str, np.ndarray]
    provider: str
    precision: str
    batch: int


def bound(session: Any, name: str, work: Work, runtime: Any) -> Runner:
    """A session of intarsia or onnxruntime with inputs and outputs bound to the device, where the runtime has a name for it."""
    kind = KINDS.get(work.provider)
    if kind is None:
        feeds = dict(work.feeds)
        return Runner(name, lambda: session.run(None, feeds), 0.0)
    binding = session.io_binding()
    for key, array in work.feeds.items():
        binding.bind_ortvalue_input(key, runtime.OrtValue.ortvalue_from_numpy(array, kind, 0))
    for output in session.get_outputs():
        binding.bind_output(output.name, kind, 0)

    def run() -> Sequence[Any]:
        session.run_with_iobinding(binding)
        binding.synchronize_outputs()
        return ()

    return Runner(name, run, 0.0)


def _options(work: Work) -> dict[str, Any]:
    return {"use_tf32": work.precision == "tf32"} if work.provider == "CUDAExecutionProvider" else {}


def intarsia(work: Work, libraries: bool = True) -> Runner:
    import intarsia

    options = _options(work) | ({} if libraries else {"use_libraries": False})
    session = intarsia.InferenceSession(str(work.model), providers=[(work.provider, options)])
    runner = bound(session, OURS if libraries else OWN, work, intarsia)
    if libraries:
        runner.run()
        USED[work.name] = libraries_used(session)
    return runner


def libraries_used(session: Any) -> str:
    """How many of its nodes each library computes, and why a library is missing."""
    nodes = session.explain().nodes
    counts = {name: sum(n.kernel.startswith(f"{name}'s") for n in nodes) for name in ("cuBLASLt", "cuDNN")}
    gone = {name: no.reason for n in nodes for name, no in n.refusals.items() if no.code == "library-missing"}
    found = [f"{name} {count}" for name, count in counts.items() if count]
    return ", ".join([*found, *gone.values()]) or "no library"


def onnxruntime(work: Work, provider: str = "") -> Runner:
    import onnxruntime

    provider = provider or work.provider
    if provider not in onnxruntime.get_available_providers():
        raise LookupError(f"onnxruntime has no {provider} here")
    options = {key: str(int(value)) for key, value in _options(work).items()} if provider == work.provider else {}
    if provider.startswith("Tensorrt"):
        options = {"trt_fp16_enable": "1" if work.precision == "float16" else "0"}
    session = onnxruntime.InferenceSession(str(work.model), providers=[(provider, options)])
    return bound(session, "tensorrt" if options.keys() & {"trt_fp16_enable"} else "onnxruntime", work, onnxruntime)


def torch(work: Work, compiled: bool = False) -> Runner:
    import torch

    device = "cuda" if work.provider in ("CUDAExecutionProvider", "ROCMExecutionProvider") else "cpu"
    if device == "cuda" and not torch.cuda.is_available():
        raise LookupError(
            f"torch {torch.__version__} finds no GPU here: its own processor's times would not belong in this table"
        )
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = work.precision == "tf32"
    call = call_of(work.name, work.feeds, compiled, device, "float16" if work.precision == "float16" else "float32")
    allowed = work.precision == "tf32"

    def run() -> Sequence[Any]:
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = allowed
        call()
        if device == "cuda":
            torch.cuda.synchronize()
        return ()

    return Runner(f"torch{'.compile' if compiled else ''}", run, 0.0)


PEERS: dict[str, Callable[[Work], Runner]] = {
    "onnxruntime": onnxruntime, "tensorrt": lambda work: onnxruntime(work, "TensorrtExecutionProvider"),
    "torch": torch, "torch.compile": lambda work: torch(work, True),
}  # fmt: skip


def of_batch(model: Path, batch: int, scratch: Path) -> Path:
    """A model of a fixed batch, exported for another one.

    Raises:
        LookupError: it is none of the families, or cannot be exported here.
    """
    folder = scratch / f"batch{batch}"
    made = folder / model.name
    if made.exists():
        return made
    try:
        export = families()
        if model.stem not in export.FAMILIES:
            raise LookupError(f"its batch is fixed, and tests/models/export.py does not build it: {', '.join(export.FAMILIES)}")
        folder.mkdir(exist_ok=True)
        export.export(model.stem, folder, False, batch)
    except ImportError as error:
        raise LookupError(f"its batch is fixed, and it cannot be exported for another one: {error}") from error
    return made


def prepared(model: Path, provider: str, precision: str, batch: int, scratch: Path) -> Work:
    """The model and inputs of a batch.

    Raises:
        LookupError: its batch is another one, and cannot be changed.
    """
    from intarsia.graph.load import load

    feeds = feeds_of(model)
    rows = next(iter(feeds.values())).shape[0]
    if rows != batch and any(isinstance(v.type.shape[0], int) for v in load(str(model)).inputs):  # type: ignore[union-attr, index]
        model = of_batch(model, batch, scratch)
        feeds, rows = feeds_of(model), batch
    if rows != batch:
        feeds = {n: np.repeat(a, -(-batch // rows), 0)[:batch] for n, a in feeds.items()}
    if precision == "float16":
        half = scratch / f"{model.stem}.{batch}.float16.onnx"
        model = half if half.exists() else write_half(model, half)
        feeds = {n: a.astype(np.float16) if a.dtype == np.float32 else a for n, a in feeds.items()}
    return Work(model.name.split(".")[0], model, feeds, provider, precision, batch)


def compared(work: Work, peers: Sequence[str], runs: int, seconds: float) -> dict[str, float]:
    """Milliseconds by runtime; a runtime that cannot run is left out with a line on the error stream."""
    names: list[str] = []
    runners: list[Runner] = []
    ours: dict[str, Callable[[Work], Runner]] = {OURS: intarsia}
    if work.provider == "CUDAExecutionProvider":
        ours[OWN] = lambda given: intarsia(given, False)
    for name, make in {**ours, **{p: PEERS[p] for p in peers}}.items():
        try:
            runner = make(work)
            runner.run()
        except Exception as error:  # noqa: BLE001 - one that fails in whatever way is a missing column, not the end
            print(f"{work.name}, {work.precision}: no {name}: {str(error).splitlines()[0]}", file=sys.stderr)
            continue
        names.append(name)
        runners.append(runner)
    return {n: t.median for n, t in zip(names, interleave(runners, runs, seconds), strict=True)} if runners else {}


def table(models: Sequence[Path], precision: str, batch: int, scratch: Path, given: argparse.Namespace) -> None:
    peers = [p for p in given.peers.split(",") if p]
    own = [OWN] if given.provider == "CUDAExecutionProvider" else []
    compared_with = [*own, *peers]
    columns, rows = [OURS, *compared_with], []
    USED.clear()
    for model in models:
        try:
            work = prepared(model, given.provider, precision, batch, scratch)
        except LookupError as error:
            print(f"{model.stem}, batch {batch}: left out: {error}", file=sys.stderr)
            continue
        times = compared(work, peers, given.runs, given.seconds)
        ratios = [f"{times[p] / times[OURS]:.2f}" if {p, OURS} <= times.keys() else "-" for p in compared_with]
        best = min((times[p] for p in peers if p in times), default=0.0)
        ratios.append(f"{best / times['intarsia']:.2f}" if best and "intarsia" in times else "-")
        rows.append([model.stem, *(f"{times[c]:.3f}" if c in times else "-" for c in columns), *ratios])
    found = [[float(r[i]) for r in rows if r[i] != "-"] for i in range(1 + len(columns), 2 + len(columns) + len(compared_with))]
    rows.append(["geometric mean", *([""] * len(columns)), *(f"{geometric_mean(f):.2f}" if f else "-" for f in found)])
    names = ["model", *columns, *(f"{p} / intarsia" for p in compared_with), "best peer / intarsia"]
    print_table(f"{given.provider}, batch {batch}, {precision}, ms", names, rows)
    if own:
        print("\n" + "; ".join(f"{name}: {used}" for name, used in USED.items()))


def machine() -> str:
    """Date, hardware and versions, for the tables' heading."""
    parts = [dt.datetime.now(dt.UTC).date().isoformat(), platform.machine()]
    try:
        import torch

        if torch.cuda.is_available():
            parts.append(f"{torch.cuda.get_device_name()} (CUDA {torch.version.cuda})")
    except ImportError:
        pass
    for package in ("intarsia", "torch", "onnxruntime-gpu", "onnxruntime", "tensorrt",
                    "nvidia-cublas", "nvidia-cublas-cu12", "nvidia-cudnn-cu13", "nvidia-cudnn-cu12"):  # fmt: skip
        try:
            parts.append(f"{package} {importlib.metadata.version(package)}")
        except importlib.metadata.PackageNotFoundError:
            continue
    return ", ".join(parts)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, nargs="?")
    parser.add_argument("names", nargs="*")
    parser.add_argument("--provider", default="CUDAExecutionProvider")
    parser.add_argument("--peers", default=",".join(PEERS), help="which of " + ", ".join(PEERS))
    parser.add_argument("--batch", type=int, nargs="+", default=[1, 32])
    parser.add_argument("--precision", nargs="+", choices=PRECISIONS, default=list(PRECISIONS))
    parser.add_argument("--runs", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=10.0, help="at most so long for each model")
    parser.add_argument("--device", choices=("webgpu", "opencl", "cuda"), help="kernels of this device, by ratios")
    parser.add_argument("--size", type=int, help="of the matrices (--device): 4096 on CUDA, else 512")
    parser.add_argument("--megabytes", type=int, help="of the values that are copied (--device): 256 on CUDA, else 32")
    given = parser.parse_args()
    print(f"# {machine()}")
    if given.device == "cuda":
        from cuda_kernels import tables

        tables(given.megabytes or 256, given.size or 4096, min(given.runs, 20))
        return
    if given.device:
        from gpu_kernels import measured

        measured(given.device, given.size or 512, given.megabytes or 32, min(given.runs, 10))
        return
    if given.folder is None:
        parser.error("the folder of models is missing")
    models = [given.folder / f"{n}.onnx" for n in given.names] or sorted(given.folder.glob("*.onnx"))
    with tempfile.TemporaryDirectory() as scratch:
        for batch in given.batch:
            for precision in given.precision:
                table(models, precision, batch, Path(scratch), given)


if __name__ == "__main__":
    main()
