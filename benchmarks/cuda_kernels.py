"""CUDA kernels one by one on the GPU at hand: what each reaches of the copy's bandwidth, or of the measured matrix peak.

Times are the device's own (events around every launch), of the quickest of some runs; values are larger than the second cache.
Three tables: what a launch costs, kernels that memory bounds (bytes each value once), products by this package's kernels, by
cuBLASLt and by PyTorch. A peak is the fastest of the products of that kind, whoever computed it.
"""

from __future__ import annotations

import contextlib
import math
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from gpu_kernels import opened

from intarsia.codegen.clike import Cut, Dialect
from intarsia.codegen.clike.split_into_kernels import Job
from intarsia.device.gpu import Launch, Slice
from intarsia.device.libraries import NotOfferedError
from intarsia.device.streams import StreamDevice
from intarsia.graph.dtypes import DType
from intarsia.primitives import lang as k
from models import print_table

F, H = DType.FLOAT, DType.FLOAT16
Torch = Callable[[Any, Mapping[str, Any]], Any]


@dataclass(frozen=True)
class Case:
    """One kernel: `root` over inputs by these names, what memory bounds it by, and the same in PyTorch (module, tensors)."""

    name: str
    root: k.Tensor
    nbytes: int
    torch: Torch | None = None
    flop: int = 0


class Bench:
    """Values on a device, and plans that are run on them."""

    def __init__(self, device: StreamDevice, rounds: int) -> None:
        self.device, self.rounds = device, rounds
        self.rng = np.random.default_rng(0)
        self.numbers = self.rng.standard_normal(1 << 22, np.float32)
        self.memory: dict[str, Slice] = {}  # of the latest launches
        self.scratch: list[Slice] = []

    def inputs(self, root: k.Tensor) -> dict[str, np.ndarray]:
        made: dict[str, np.ndarray] = {}
        for t in k.walk([root]):
            if t.prim == "input" and t.attrs[0] not in made:
                shape = tuple(int(d) for d in t.shape)  # type: ignore[arg-type]
                if t.dtype.is_integer:
                    made[t.attrs[0]] = self.rng.integers(0, 1000, shape).astype(t.dtype.numpy)
                else:
                    made[t.attrs[0]] = np.resize(self.numbers.astype(t.dtype.numpy), shape)
        return made

    def bound(self, root: k.Tensor, dialect: Dialect, libraries: Any = None) -> tuple[list[Any], list[Job]]:
        """Launches on memory of their own, until the next are bound. Raises NotOfferedError where a library has nothing."""
        self.memory, self.scratch = {}, []
        cut = Cut(dialect, libraries=libraries)
        cut.store(cut.settle(root), "y")
        self.memory = memory = {n: self.device.write(a) for n, a in {**self.inputs(root), **cut.tables}.items()}
        for name, (dtype, shape) in cut.stored.items():
            if name not in memory:
                nbytes = math.prod(shape) * dtype.numpy.itemsize
                memory[name] = Slice(self.device.allocate(nbytes), 0, nbytes)
        launches = []
        for job in cut.jobs:
            program = libraries.prepared(job.kernel.call) if job.kernel.call is not None else self.device.program(job.kernel)
            places = [memory[n] for n in (*job.reads, *job.writes)]
            for nbytes in (n for n in (getattr(program, "workspace_nbytes", 0), 4 * job.kernel.checked) if n):
                self.scratch.append(Slice(self.device.allocate(nbytes), 0, nbytes))
                places.append(self.scratch[-1])
            launches.append(self.device.bind(Launch(job.kernel, program, tuple(places), job.schedule)))
        return launches, cut.jobs

    def seconds(self, launches: Sequence[Any]) -> float:
        """Of the quickest run, the first two not counted."""
        for _ in range(2):
            self.device.run(launches)
        return min(sum(self.device.timed(launches)) for _ in range(self.rounds)) / 1e9

    def copy_seconds(self, nbytes: int) -> float:
        """Of the driver's copy within the device: many in one go, since events cannot be put around them here."""
        source, target = (Slice(self.device.allocate(nbytes), 0, nbytes) for _ in range(2))
        best = math.inf
        for _ in range(3):
            self.device.read(target, 4)
            start = time.perf_counter()
            for _ in range(self.rounds):
                self.device.copy(source, target)
            self.device.read(target, 4)
            best = min(best, (time.perf_counter() - start) / self.rounds)
        return best


def torch_seconds(case: Case, inputs: Mapping[str, np.ndarray], rounds: int) -> float | None:
    """PyTorch's time by events; None where it is not here, finds no GPU, or has no such operation."""
    try:
        import torch
    except ImportError:
        return None
    if case.torch is None or not torch.cuda.is_available():
        return None
    given = {n: torch.from_numpy(a).cuda() for n, a in inputs.items()}
    best = math.inf
    with torch.inference_mode():
        for _ in range(rounds + 2):
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
            case.torch(torch, given)
            end.record()
            end.synchronize()
            best = min(best, begin.elapsed_time(end) / 1e3)
    return best


def softmax(x: k.Tensor) -> k.Tensor:
    powers = k.exp(x - k.reduce_max(x, [1], True))
    return powers / k.reduce_sum(powers, [1], True)


def memory_cases(megabytes: int) -> list[Case]:
    """What memory bounds, on values of so many MiB."""
    count = megabytes << 18
    rows = max(count // 1024, 1)
    x, n = k.input("x", F, (rows, 1024)), rows * 4096
    short, wide = k.input("x", F, (rows * 8, 128)), k.input("x", F, (max(rows // 16, 1), 16384))
    mean = k.reduce_sum(x, [1], True) / 1024.0
    spread = k.reduce_sum((x - mean) * (x - mean), [1], True) / 1024.0
    side = 56
    images = max(count // (64 * side * side), 1)
    image, w = k.input("x", F, (images, 64, side, side)), k.input("w", F, (64, 1, 9))
    windows = k.windows(k.pad(image, (0, 0, 1, 1), (0, 0, 1, 1), 0.0), (2, 3), (3, 3), (1, 1), (1, 1))
    columns = k.reshape(k.transpose(windows, (0, 1, 4, 5, 2, 3)), (images, 64, 9, side * side))
    pixels = images * 64 * side * side * 4
    table = k.input("x", F, (1000, 1024))
    return [
        Case("x + 1", x + 1.0, 2 * n, lambda t, v: v["x"] + 1),
        Case("x + y", x + k.input("y", F, (rows, 1024)), 3 * n, lambda t, v: v["x"] + v["y"]),
        Case("relu(x + row)", k.maximum(x + k.input("b", F, (1024,)), 0.0), 2 * n, lambda t, v: t.relu(v["x"] + v["b"])),
        Case("GELU", x * 0.5 * (k.erf(x * 0.70710678) + 1.0), 2 * n, lambda t, v: t.nn.functional.gelu(v["x"])),
        Case("float32 to float16", k.cast(x, H), n + n // 2, lambda t, v: v["x"].half()),
        Case("x + 1, float16", k.input("x", H, (rows, 2048)) + 1.0, 2 * n, lambda t, v: v["x"] + 1),
        Case("transpose", k.transpose(x, (1, 0)), 2 * n, lambda t, v: v["x"].t().contiguous()),
        Case("rows of a table", k.take(table, k.input("i", DType.INT64, (rows,)), 0), n, lambda t, v: v["x"][v["i"]]),
        Case("sum of rows of 1024", k.reduce_sum(x, [1]), n, lambda t, v: v["x"].sum(1)),
        Case("sum of rows of 16384", k.reduce_sum(wide, [1]), n, lambda t, v: v["x"].sum(1)),
        Case("sum of columns", k.reduce_sum(x, [0]), n, lambda t, v: v["x"].sum(0)),
        Case("softmax of rows of 128", softmax(short), 2 * n, lambda t, v: t.softmax(v["x"], 1)),
        Case("softmax of rows of 1024", softmax(x), 2 * n, lambda t, v: t.softmax(v["x"], 1)),
        Case("softmax of rows of 16384", softmax(wide), 2 * n, lambda t, v: t.softmax(v["x"], 1)),
        Case("layer normalisation, 1024", (x - mean) / k.sqrt(spread + 1e-5), 2 * n,
             lambda t, v: t.nn.functional.layer_norm(v["x"], (1024,))),
        Case("depthwise 3 x 3", k.reshape(k.dot(w, columns), (images, 64, side, side)), 2 * pixels,
             lambda t, v: t.nn.functional.conv2d(v["x"], v["w"].reshape(64, 1, 3, 3), padding=1, groups=64)),
        Case("largest of 3 x 3", k.reduce_max(windows, [4, 5]), 2 * pixels,
             lambda t, v: t.nn.functional.max_pool2d(v["x"], 3, 1, 1)),
        Case("cumulative sum of rows", k.scan(x, "sum", 1), 2 * n, lambda t, v: v["x"].cumsum(1)),
        Case("rows of 1024 sorted", k.sort(k.input("x", F, (max(rows // 16, 1), 1024)), 1)[0], n // 8,
             lambda t, v: v["x"].sort(1)[0]),
    ]  # fmt: skip


def product_cases(size: int) -> list[Case]:
    """Products of `size` and of the shapes of models; attention. TF32 is what the dialect and libraries are asked for."""
    found, batch = [], max(size // 512, 1)
    for dtype, name in ((F, ""), (H, "float16, ")):
        for m, depth, n in ((size, size, size), (128, 768, 3072), (64, 4 * size, 64), (1, size, size)):
            a, b = k.input("a", dtype, (m, depth)), k.input("b", dtype, (depth, n))
            root = k.cast(k.dot(a, b, F), dtype)
            nbytes = (m * depth + depth * n + m * n) * dtype.numpy.itemsize
            case = Case(f"{name}{m} x {depth} x {n}", root, nbytes, lambda t, v: v["a"] @ v["b"], 2 * m * n * depth)
            found.append(case)
        q, key, value = (k.input(i, dtype, (batch, 12, 1024, 64)) for i in "qkv")
        wide = [k.cast(t, F) for t in (q, key, value)]
        x = k.dot(wide[0], k.transpose(wide[1], (0, 1, 3, 2))) * 0.125
        powers = k.exp(x - k.reduce_max(x, [3], True))
        root = k.cast(k.dot(powers / k.reduce_sum(powers, [3], True), wide[2]), dtype)
        flop, nbytes = 4 * batch * 12 * 1024 * 1024 * 64, 4 * batch * 12 * 1024 * 64 * dtype.numpy.itemsize
        found.append(Case(
            f"{name}attention {batch} x 12 x 1024 x 64", root, nbytes,
            lambda t, v: t.nn.functional.scaled_dot_product_attention(v["q"], v["k"], v["v"]), flop,
        ))  # fmt: skip
    return found


def launch_table(device: StreamDevice) -> None:
    """What starting small kernels costs the host, and what a graph of them does."""
    from intarsia.device.graphs import Graphs, Stretches

    rows = []
    bench = Bench(device, 1)
    launches, _ = bench.bound(k.input("x", F, (64, 64)) + 1.0, device.dialect)
    many = launches * 200
    graphs, stretches = Graphs(device, requested=True), Stretches()
    ways: tuple[tuple[str, Callable[[], None]], ...] = (
        ("one by one", lambda: device.run(many)), ("a graph", lambda: graphs.run(stretches, 0, many, lambda: ())),
    )  # fmt: skip
    for name, run in ways:
        for _ in range(3):
            run()
        device.read(bench.memory["y"], 4)
        start = time.perf_counter()
        for _ in range(20):
            run()
        asked = time.perf_counter() - start
        device.read(bench.memory["y"], 4)
        done = time.perf_counter() - start
        rows.append([name, f"{asked / 4000 * 1e6:.2f}", f"{done / 4000 * 1e6:.2f}"])
    print_table(
        f"{device.device.description}: 200 small kernels at a time", ["started", "host, us each", "done, us each"], rows
    )


def memory_table(bench: Bench, megabytes: int) -> None:
    device = bench.device
    copy = 2 * (megabytes << 20) / bench.copy_seconds(megabytes << 20)
    rows = []
    for case in memory_cases(megabytes):
        with _explained(case.name):
            launches, jobs = bench.bound(case.root, device.dialect)
            spent = bench.seconds(launches)
            theirs = torch_seconds(case, bench.inputs(case.root), bench.rounds)
            rate = case.nbytes / spent
            schedules = "+".join(dict.fromkeys(job.schedule for job in jobs))
            ratio = f"{theirs / spent:.2f}" if theirs else "-"
            rows.append([case.name, schedules, f"{spent * 1e6:.1f}", f"{rate / 1e9:.0f}", f"{rate / copy:.2f}", ratio])
    title = f"{device.device.description}: kernels bound by memory, {megabytes} MiB; the copy moves {copy / 1e9:.0f} GB/s"
    print_table(title, ["kernel", "schedule", "us", "GB/s", "of the copy", "torch / intarsia"], rows)


def product_table(bench: Bench, size: int, tf32: bool) -> None:
    """This package's kernels, libraries and PyTorch."""
    from intarsia.device.cuda import LibraryOptions

    device: Any = bench.device
    with contextlib.suppress(ImportError):
        import torch

        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = tf32
    dialect = device.dialect if tf32 else device.exact
    found: list[tuple[Case, list[float | None]]] = []
    for case in product_cases(size):
        times: list[float | None] = []
        for libraries in (None, device.libraries(LibraryOptions(tf32=tf32))):
            times.append(None)
            with _explained(case.name):
                launches, jobs = bench.bound(case.root, dialect, libraries)
                if libraries is None or any(j.kernel.call is not None for j in jobs):
                    times[-1] = bench.seconds(launches)
        times.append(None)
        with _explained(f"{case.name}, torch"):
            times[-1] = torch_seconds(case, bench.inputs(case.root), bench.rounds)
        found.append((case, times))
    peaks = {half: max((c.flop / t for c, ts in found for t in ts if t and c.name.startswith("float16") == half), default=0.0)
             for half in (False, True)}  # fmt: skip
    rows = []
    for case, times in found:
        peak = peaks[case.name.startswith("float16")]
        rows.append([case.name, *(f"{t * 1e6:.1f}" if t else "-" for t in times),
                     *(f"{case.flop / t / peak:.2f}" if t else "-" for t in times)])  # fmt: skip
    names = ("own", "library", "torch")
    rates = f"peaks {peaks[False] / 1e12:.0f} and, float16, {peaks[True] / 1e12:.0f} TFLOP/s"
    title = f"products, {'TF32' if tf32 else 'float32'}; {rates}"
    columns = ["rows x terms x columns", *(f"{n}, us" for n in names), *(f"{n}, of the peak" for n in names)]
    print_table(f"{device.device.description}: {title}", columns, rows)


@contextlib.contextmanager
def _explained(name: str) -> Any:
    """A case that fails is a line on the error stream, and no row."""
    try:
        yield
    except NotOfferedError as error:
        print(f"{name}: no library: {error}", file=sys.stderr)
    except Exception as error:  # noqa: BLE001 - the other rows are worth having
        print(f"{name}: left out: {type(error).__name__}: {str(error).splitlines()[0]}", file=sys.stderr)


def tables(megabytes: int, size: int, rounds: int) -> None:
    """Print all tables of the first CUDA device."""
    device: Any = opened("cuda")
    bench = Bench(device, rounds)
    launch_table(device)
    memory_table(bench, megabytes)
    for tf32 in (False, True):
        product_table(bench, size, tf32)
