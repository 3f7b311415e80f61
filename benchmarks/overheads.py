"""What a session costs beside its kernels, in Intarsia and onnxruntime: python benchmarks/overheads.py [--threads 2]

Runs of models whose arithmetic is nothing, and of models that meet new input sizes in every run. Both runtimes in one
process, in turn; the table has microseconds of one run, at best and in the median.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from intarsia.cli.timing import settle

BURST_SECONDS = 0.05
Feeds = Iterator[dict[str, np.ndarray]]


@dataclass(frozen=True)
class Case:
    """A model and the feeds of its runs, one after the other; `endless`: each has sizes that were not seen before."""

    name: str
    model: bytes
    feeds: Callable[[], Feeds]
    endless: bool = False


def model(text: str) -> bytes:
    """A model in ONNX's textual form, opset 17."""
    import onnx.parser

    data: bytes = onnx.parser.parse_model('<ir_version: 8, opset_import: ["" : 17]> ' + text).SerializeToString()
    return data


def graph(kind: str, lines: list[str], last: str, weights: str = "") -> bytes:
    return model(f"g ({kind} x) => ({kind} y) {weights} {{ {' '.join(lines)} y = Identity({last}) }}")


def same(x: np.ndarray) -> Callable[[], Feeds]:
    return lambda: itertools.repeat({"x": x})


def chain(op: str, count: int, kind: str, attributes: str = "") -> bytes:
    """`count` nodes of one operator, each of which reads the one before."""
    lines = [f"v{i} = {op}{attributes}({f'v{i - 1}' if i else 'x'})" for i in range(count)]
    return graph(kind, lines, f"v{count - 1}")


def adds(count: int, kind: str) -> bytes:
    lines = [f"v{i} = Add({f'v{i - 1}' if i else 'x'}, x)" for i in range(count)]
    return graph(kind, lines, f"v{count - 1}")


def mixed(count: int) -> bytes:
    """Nodes that no two of which become one kernel: products, transposes, reductions."""
    lines = []
    for i in range(count):
        before = f"v{i - 1}" if i else "x"
        node = (f"MatMul({before}, w)", f"Transpose<perm=[1, 0]>({before})", f"Softmax<axis=0>({before})")[i % 3]
        lines.append(f"v{i} = {node}")
    values = ", ".join(f"{v:.3f}" for v in np.random.default_rng(3).standard_normal(16))
    return graph("float[4, 4]", lines, f"v{count - 1}", f"<float[4, 4] w = {{{values}}}>")


def layers(count: int, kind: str, width: int) -> bytes:
    """About `count` nodes on a dynamic first dimension: of eight, a product, a normalisation, a reshape and a slice."""
    values = ", ".join("0.01" for _ in range(width * width))
    lines, last = [], "x"
    for i in range(count // 8):
        lines += [
            f"a{i} = MatMul({last}, w)", f"b{i} = Softmax<axis=-1>(a{i})", f"s{i} = Shape(b{i})",
            f"c{i} = Reshape(b{i}, s{i})", f"d{i} = Transpose<perm=[1, 0]>(c{i})", f"e{i} = Relu(d{i})",
            f"f{i} = Transpose<perm=[1, 0]>(e{i})", f"h{i} = Add(f{i}, {last})",
        ]  # fmt: skip
        last = f"h{i}"
    return graph(kind, lines, last, f"<float[{width}, {width}] w = {{{values}}}>")


def growing(width: int) -> Callable[[], Feeds]:
    """One row more in each run, for ever."""
    return lambda: ({"x": np.ones((n, width), np.float32)} for n in itertools.count(1))


def decoder(blocks: int, heads: int, size: int, grows: bool) -> Case:
    """Steps of a decoder whose cache grows by one in each run, or stays as long as it was: the difference is binding."""
    kind = f"float[1, {heads}, p, {size}]"
    width = heads * size
    lines, last = [], "x"
    for i in range(blocks):
        lines += [
            f"q{i} = MatMul({last}, w)", f"r{i} = Reshape(q{i}, heads)", f"t{i} = Transpose<perm=[0, 2, 1, 3]>(r{i})",
            f"k{i} = Concat<axis=2>(past{i}, t{i})", f"g{i} = Transpose<perm=[0, 1, 3, 2]>(k{i})", f"s{i} = MatMul(t{i}, g{i})",
            f"p{i} = Softmax<axis=-1>(s{i})", f"o{i} = MatMul(p{i}, k{i})", f"u{i} = Transpose<perm=[0, 2, 1, 3]>(o{i})",
            f"m{i} = Reshape(u{i}, flat)", f"n{i} = MatMul(m{i}, w)", f"h{i} = Add(n{i}, {last})",
        ]  # fmt: skip
        last = f"h{i}"
    pasts = ", ".join(f"{kind} past{i}" for i in range(blocks))
    presents = ", ".join(f"float[1, {heads}, n, {size}] k{i}" for i in range(blocks))
    weights = f"<int64[4] heads = {{1, 1, {heads}, {size}}}, int64[3] flat = {{1, 1, {width}}}>"
    text = f"g (float[1, 1, {width}] x, {pasts}) => (float[1, 1, {width}] y, {presents}) {weights} {{ {' '.join(lines)} "
    import onnx
    from onnx import numpy_helper

    made = onnx.load_from_string(model(f"{text} y = Identity({last}) }}"))
    made.graph.initializer.append(numpy_helper.from_array(np.eye(width, dtype=np.float32), "w"))

    def feeds() -> Feeds:
        x = np.ones((1, 1, width), np.float32)
        room = np.ones((heads * 4096 * size,), np.float32)
        for n in itertools.count(256) if grows else itertools.repeat(512):
            past = room[: heads * n * size].reshape(1, heads, n, size)
            yield {"x": x, **{f"past{i}": past for i in range(blocks)}}

    name = f"decoder of {blocks} blocks, {'one longer each time' if grows else 'always 512 long'}"
    return Case(name, made.SerializeToString(), feeds, grows)


def cases() -> list[Case]:
    ten, square = np.ones(10, np.float32), np.ones((4, 4), np.float32)
    return [
        Case("one Add of 10 floats", adds(1, "float[10]"), same(ten)),
        Case("Identity of 10 floats", chain("Identity", 1, "float[10]"), same(ten)),
        Case("100 Adds of 10 floats", adds(100, "float[10]"), same(ten)),
        Case("100 Adds of n floats", adds(100, "float[n]"), same(ten)),
        Case("100 products, transposes and softmaxes of 4x4", mixed(100), same(square)),
        Case("100 CumSums of 10 floats", model(_cumsums(100)), same(ten)),
        Case("500 nodes, same sizes", layers(500, "float[n, 8]", 8), same(np.ones((32, 8), np.float32))),
        Case("500 nodes, new sizes", layers(500, "float[n, 8]", 8), growing(8), endless=True),
        decoder(12, 8, 64, grows=False),
        decoder(12, 8, 64, grows=True),
    ]


def _cumsums(count: int) -> str:
    lines = [f"v{i} = CumSum({f'v{i - 1}' if i else 'x'}, axis)" for i in range(count)]
    return f"g (float[10] x) => (float[10] y) <int64 axis = {{0}}> {{ {' '.join(lines)} y = Identity(v{count - 1}) }}"


def sessions(data: bytes, threads: int) -> dict[str, Any]:
    import onnxruntime

    import intarsia

    found = {}
    for name, module in (("intarsia", intarsia), ("onnxruntime", onnxruntime)):
        options = module.SessionOptions()
        options.intra_op_num_threads = threads
        found[name] = module.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    return found


def measure(case: Case, threads: int, seconds: float) -> dict[str, list[float]]:
    """Microseconds of single runs in both runtimes, in turn; feeds are made before the clock starts."""
    runtimes = sessions(case.model, threads)
    feeds = {name: case.feeds() for name in runtimes}
    times: dict[str, list[float]] = {name: [] for name in runtimes}
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        for name, session in runtimes.items():
            settle()
            session.run(None, next(feeds[name]))
            stop = time.perf_counter() + BURST_SECONDS
            while time.perf_counter() < stop:
                feed = next(feeds[name])
                start = time.perf_counter()
                session.run(None, feed)
                times[name].append((time.perf_counter() - start) * 1e6)
    return times


def main() -> None:
    parser = argparse.ArgumentParser(description="Time what a session costs beside its kernels.")
    parser.add_argument("names", nargs="*", help="parts of the names of cases; all by default")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=1.0, help="for each case")
    options = parser.parse_args()
    print("| case | intarsia µs at best | median | onnxruntime µs at best | median | ratio of medians |")
    print("| --- | ---: | ---: | ---: | ---: | ---: |")
    for case in cases():
        if options.names and not any(n in case.name for n in options.names):
            continue
        times = measure(case, options.threads, options.seconds)
        medians = {name: statistics.median(t) for name, t in times.items()}
        cells = " | ".join(f"{min(times[name]):.1f} | {medians[name]:.1f}" for name in times)
        print(f"| {case.name} | {cells} | {medians['onnxruntime'] / medians['intarsia']:.2f} |", flush=True)


if __name__ == "__main__":
    main()
