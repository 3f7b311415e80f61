"""Kernels of one device beside each other, by ratios: what schedules gain, whatever the device's absolute speed.

The generated matrix product beside a naive one (a thread per element), generated kernels' bytes per second beside the
device's own copy. Runs on any device of Intarsia: the software Vulkan driver, a processor's OpenCL, a GPU.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from intarsia.codegen.clike import GPU, PROCESSOR, Cut
from intarsia.codegen.clike.schedules import map_kernel
from intarsia.codegen.clike.split_into_kernels import Job
from intarsia.codegen.clike.storage_types import stored_nbytes
from intarsia.device.gpu import Gpu, Launch, Slice
from intarsia.graph.dtypes import DType
from intarsia.primitives import lang as k
from models import print_table


def opened(kind: str) -> Gpu:
    """A device by its kind: webgpu, opencl or cuda."""
    import importlib

    module: Any = importlib.import_module(f"intarsia.device.{kind}")
    device: Gpu = module.open_device()
    return device


def fastest(run: Callable[[], None], rounds: int) -> float:
    """Seconds of the quickest of some runs, after one that is not counted."""
    run()
    best = float("inf")
    for _ in range(rounds):
        start = time.perf_counter()
        run()
        best = min(best, time.perf_counter() - start)
    return best


class Bench:
    """Values on a device, and kernels that are run on them until the last one's result is there."""

    def __init__(self, gpu: Gpu, rounds: int) -> None:
        self.gpu, self.rounds = gpu, rounds

    def jobs(self, root: k.Tensor) -> list[Job]:
        cut = Cut(self.gpu.dialect)
        cut.store(cut.settle(root), "y")
        self.cut = cut
        return cut.jobs

    def seconds(self, jobs: Sequence[Job], memory: dict[str, Slice], nbytes: int) -> float:
        memory.setdefault("y", Slice(self.gpu.allocate(nbytes), 0, nbytes))
        launches = []  # kept while they run: their memory goes back to the device with them
        for job in jobs:
            places = [memory[n] if n in memory else self._between(n, memory) for n in (*job.reads, *job.writes)]
            if job.kernel.sizes and not self.gpu.dialect.sizes_are_arguments:
                sizes = np.zeros(-(-len(job.kernel.sizes) // 4) * 4, np.int32)
                sizes[: len(job.kernel.sizes)] = job.kernel.sizes
                places.append(self.gpu.write(sizes))
            launches.append(Launch(job.kernel, self.gpu.program(job.kernel), tuple(places)))
        bound = [self.gpu.bind(launch) for launch in launches]

        def run() -> None:
            self.gpu.run(bound)
            self.gpu.read(memory["y"], 4)

        found = fastest(run, self.rounds)
        del launches[:]
        return found

    def _between(self, name: str, memory: dict[str, Slice]) -> Slice:
        """Room for what one kernel hands to the next (partial sums of a product, say), or a table."""
        if name in self.cut.tables:
            found = self.gpu.write(self.cut.tables[name])
        else:
            dtype, shape = self.cut.stored[name]
            nbytes = stored_nbytes(dtype, math.prod(shape))
            found = Slice(self.gpu.allocate(nbytes), 0, nbytes)
        return memory.setdefault(name, found)

    def copy_seconds(self, nbytes: int) -> float:
        """Of the device's own copy."""
        source, target = (Slice(self.gpu.allocate(nbytes), 0, nbytes) for _ in range(2))

        def run() -> None:
            self.gpu.copy(source, target)
            self.gpu.read(target, 4)

        return fastest(run, self.rounds)


def measured(kind: str, size: int, megabytes: int, rounds: int) -> None:
    """Print the tables of a device."""
    gpu = opened(kind)
    bench = Bench(gpu, rounds)
    rng = np.random.default_rng(0)
    shapes = {"a": (size, size), "b": (size, size)}
    memory = {n: gpu.write(rng.standard_normal(s).astype(np.float32)) for n, s in shapes.items()}
    product = k.dot(*(k.input(n, DType.FLOAT, s) for n, s in shapes.items()))
    naive = Job(map_kernel(gpu.dialect, [product]), ("a", "b"), ("y",), "", "naive")
    kept = gpu.dialect.tuning
    times = {"naive": bench.seconds([naive], memory, size * size * 4)}
    for name, tuning in (("tiles in shared memory", GPU), ("straight from memory", PROCESSOR)):
        gpu.dialect.tuning = tuning
        times[name] = bench.seconds(bench.jobs(product), dict(memory), size * size * 4)
    gpu.dialect.tuning = kept
    rows = [[n, f"{times['naive'] / t:.1f}"] for n, t in times.items()]
    chosen = "straight from memory" if kept.direct else "tiles in shared memory"
    print_table(f"{gpu.device.description}: float32 product of {size} x {size}, speed in naive ones (taken: {chosen})",
                ["schedule", "speed"], rows)  # fmt: skip
    count = megabytes << 18
    copy = bench.copy_seconds(count * 4)
    x = k.input("x", DType.FLOAT, (count // 1024, 1024))
    place = {"x": gpu.write(rng.standard_normal(count).astype(np.float32))}
    powers = k.exp(x - k.reduce_max(x, [1], True))
    kernels = {
        "x + 1": (x + 1.0, 2 * count), "sum of rows": (k.reduce_sum(x, [1]), count),
        "softmax of rows of 1024": (powers / k.reduce_sum(powers, [1], True), 2 * count),
        "transpose": (k.transpose(x, (1, 0)), 2 * count),
    }  # fmt: skip
    rows = []
    for name, (root, touched) in kernels.items():
        spent = bench.seconds(bench.jobs(root), dict(place), count * 4)
        rows.append([name, f"{touched / spent / (2 * count / copy):.2f}"])
    print_table(f"{gpu.device.description}: bytes per second, in those of the device's copy ({megabytes} MiB)",
                ["kernel", "of the copy"], rows)  # fmt: skip
