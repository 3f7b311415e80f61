"""What a session costs beside its kernels, in Intarsia and onnxruntime: python benchmarks/overheads.py [--threads 2]

Runs of models whose arithmetic is nothing, and of models that meet new input sizes in every run. Both runtimes in one
process, in turn; the table has microseconds of one run, at best and in the median. `--what binding` says what a new size costs:
Intarsia's runs at sizes that a session meets for the first time beside those that know them, in processor time outside of
kernels, and by the clock.
"""

from __future__ import annotations

import argparse
import itertools
import os
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from cases.growing_cases import decoders

from intarsia.cli.timing import settle

os.environ.setdefault("INTARSIA_COMPILE_IN_BACKGROUND", "0")  # what is timed are kernels compiled for the model

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


def far_apart(fewest: int, most: int, make: Callable[[int], np.ndarray]) -> Callable[[], Feeds]:
    """Every number of rows from `fewest` to `most`, in an order that jumps; the same numbers for each runtime."""

    def feeds() -> Feeds:
        for n in itertools.cycle(np.random.default_rng(0).permutation(np.arange(fewest, most))):
            yield {"x": make(int(n))}

    return feeds


def sound_encoder(blocks: int, width: int) -> Case:
    """Strided convolutions over samples and layers of attention behind them, as of wav2vec 2.0; each length is new."""
    from onnx import load_from_string, numpy_helper

    lines, last = [], "x"
    for i, (kernel, stride) in enumerate(((10, 5), (3, 2), (3, 2), (3, 2), (2, 2))):
        lines += [f"c{i} = Conv<kernel_shape=[{kernel}], strides=[{stride}]>({last}, f{i})", f"a{i} = Relu(c{i})"]
        last = f"a{i}"
    lines.append(f"h0 = Transpose<perm=[0, 2, 1]>({last})")
    for i in range(blocks):
        for part in "qkv":
            lines += [f"{part}{i} = MatMul(h{i}, w)", f"{part}r{i} = Reshape({part}{i}, heads)"]
            lines.append(f"{part}t{i} = Transpose<perm=[0, 2, {'3, 1' if part == 'k' else '1, 3'}]>({part}r{i})")
        lines += [
            f"s{i} = MatMul(qt{i}, kt{i})", f"p{i} = Softmax<axis=-1>(s{i})", f"o{i} = MatMul(p{i}, vt{i})",
            f"u{i} = Transpose<perm=[0, 2, 1, 3]>(o{i})", f"m{i} = Reshape(u{i}, flat)", f"n{i} = MatMul(m{i}, w)",
            f"d{i} = Add(n{i}, h{i})", f"h{i + 1} = LayerNormalization(d{i}, g, g)",
        ]  # fmt: skip
    weights = f"<int64[4] heads = {{0, 0, 4, {width // 4}}}, int64[3] flat = {{0, 0, {width}}}>"
    text = f"g (float[1, 1, t] x) => (float[1, s, {width}] y) {weights} {{ {' '.join(lines)} y = Identity(h{blocks}) }}"
    made, rng = load_from_string(model(text)), np.random.default_rng(0)
    shapes = {"f0": (width, 1, 10), **{f"f{i}": (width, width, k) for i, k in ((1, 3), (2, 3), (3, 3), (4, 2))}}
    for name, shape in {**shapes, "w": (width, width), "g": (width,)}.items():
        array = (rng.standard_normal(shape) / np.prod(shape[1:]) ** 0.5).astype(np.float32)
        made.graph.initializer.append(numpy_helper.from_array(array, name))
    feeds = far_apart(8_000, 16_000, lambda n: np.ones((1, 1, n), np.float32))
    return Case("sound encoder, 8,000 to 16,000 samples, far apart", made.SerializeToString(), feeds, endless=True)


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
        Case(
            "500 nodes, new sizes, far apart",
            layers(500, "float[n, 8]", 8),
            far_apart(8, 4_000, lambda n: np.ones((n, 8), np.float32)),
            endless=True,
        ),
        sound_encoder(6, 128),
        decoder(12, 8, 64, grows=False),
        decoder(12, 8, 64, grows=True),
        *(Case(name, data, feeds, endless=True) for name, data, feeds in decoders()),
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


FIRST = 20  # sizes of a session, whose notes cost more than those of later ones


@dataclass(frozen=True)
class Timed:
    """Of one run, in microseconds: its time, and the processor time of the calling thread outside of native runs."""

    whole: float
    outside: float


@dataclass(frozen=True)
class Size:
    """Runs of one size: the first one of a session; one of another session that has met the size, behind it; then the first
    session's again."""

    new: Timed
    known: Timed
    again: Timed

    @property
    def binding(self) -> float:
        """What the first run had more to do outside of native runs than those of a size that was met."""
        return self.new.outside - (self.known.outside + self.again.outside) / 2


@dataclass(frozen=True)
class Binding:
    """Runs of the first sizes of a session and of later ones."""

    nodes: int
    first: list[Size]
    later: list[Size]

    def row(self, name: str) -> str:
        known = [(size.known.whole + size.again.whole) / 2 for size in self.later]
        run, each = statistics.median(known), [size.binding for size in self.later]
        more = statistics.median(s.new.whole - k for s, k in zip(self.later, known, strict=True))
        median, mean = statistics.median(each), statistics.fmean(each)
        begun = [s.new.whole - s.again.whole for s in self.first[1:]]  # the very first size is bound whole
        parts = (run, statistics.median(s.known.outside for s in self.later), median, mean, mean / self.nodes * 500, begun[0])
        cells = " | ".join(f"{p:.0f}" for p in (*parts, max(begun[1:])))
        return f"| {name} | {self.nodes} | {cells} | {median / run:.1%} | {mean / run:.1%} | {more / run:.1%} |"


class Watched:
    """A session whose runs are timed, by `run`, `run_with_ort_values` or an IO binding."""

    def __init__(self, case: Case, threads: int, by: str) -> None:
        import intarsia

        options = intarsia.SessionOptions()
        options.intra_op_num_threads = threads
        self.session = intarsia.InferenceSession(case.model, options, providers=["CPUExecutionProvider"])
        self._by, self._value = by, intarsia.OrtValue.ortvalue_from_numpy
        self._names = [a.name for a in self.session.get_outputs()]

    def timed(self, feed: dict[str, np.ndarray]) -> Timed:
        """The time of a run with what the caller has to say before it; values are made before the clock starts."""
        given: Any = feed if self._by == "run" else {name: self._value(array) for name, array in feed.items()}
        run = {"run": self._run, "ort_values": self._run_values, "iobinding": self._run_bound}[self._by]
        NATIVE[0] = 0
        begun, start = time.thread_time_ns(), time.perf_counter_ns()
        result = run(given)
        del result  # to give its memory back is a part of a step
        whole, busy = time.perf_counter_ns() - start, time.thread_time_ns() - begun
        outside = busy - NATIVE[0] if NATIVE[0] else whole - took(self.session)
        return Timed(whole / 1e3, outside / 1e3)

    def _run(self, feed: dict[str, np.ndarray]) -> object:
        return self.session.run(None, feed)

    def _run_values(self, values: dict[str, Any]) -> object:
        return self.session.run_with_ort_values(self._names, values)

    def _run_bound(self, values: dict[str, Any]) -> object:
        binding = self.session.io_binding()
        for name, value in values.items():
            binding.bind_ortvalue_input(name, value)
        for name in self._names:
            binding.bind_output(name)
        self.session.run_with_iobinding(binding)
        return binding.get_outputs()


NATIVE = [0]  # nanoseconds of processor time that this thread spent in native runs


def took(session: Any) -> int:
    """Nanoseconds of the last run that a function of the feed made, by the clock."""
    from intarsia.runtime import spmd_state as word

    return int(session._model.fast_calls[0].__self__[word.FEED_TOOK])


def watch_native_runs() -> None:
    from intarsia.runtime.executor import Pool

    real = Pool.run_block

    def run_block(self: Pool, block: int) -> int:
        start = time.thread_time_ns()
        status = real(self, block)
        NATIVE[0] += time.thread_time_ns() - start
        return status

    Pool.run_block = run_block  # type: ignore[method-assign]


def binding(case: Case, threads: int, seconds: float, by: str = "run") -> Binding:
    """Each size in a session that has not met it, in another that has, and in the first one again.

    The sessions change their parts from size to size, so that it does not matter where the memory of either lies; and the
    other one meets the size before, so that all are as long away from the caches when they are timed. What is compared is
    processor time outside of native runs: that of the kernels differs by more than a binding takes, from run to run and with
    what else the machine does.
    """
    import onnx

    one, other, found = Watched(case, threads, by), Watched(case, threads, by), list[Size]()
    end = None
    for feed in case.feeds():
        other.timed(feed)
        found.append(Size(one.timed(feed), other.timed(feed), one.timed(feed)))
        one, other = other, one
        if len(found) == FIRST:
            end = time.perf_counter() + seconds
        if end is not None and time.perf_counter() > end:
            break
    return Binding(len(onnx.load_from_string(case.model).graph.node), found[:FIRST], found[FIRST:])


BINDING_HEAD = (
    "case | nodes | a run, µs | outside its kernels | binding, median | mean | per 500 nodes | second size | dearest of 20 "
    "| of a run, median | mean | by the clock"
)


def main() -> None:
    parser = argparse.ArgumentParser(description="Time what a session costs beside its kernels.")
    parser.add_argument("names", nargs="*", help="parts of the names of cases; all by default")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=1.0, help="for each case")
    parser.add_argument("--what", choices=("run", "binding"), default="run")
    parser.add_argument("--by", choices=("run", "ort_values", "iobinding"), default="run", help="how to run, for bindings")
    options = parser.parse_args()
    chosen = [c for c in cases() if not options.names or any(n in c.name for n in options.names)]
    if options.what == "binding":
        watch_native_runs()
        print(f"| {BINDING_HEAD} |\n| --- |{' ---: |' * BINDING_HEAD.count('|')}")
        for case in chosen:
            if case.endless:
                print(binding(case, options.threads, options.seconds, options.by).row(case.name), flush=True)
        return
    print("| case | intarsia µs at best | median | onnxruntime µs at best | median | ratio of medians |")
    print("| --- | ---: | ---: | ---: | ---: | ---: |")
    for case in chosen:
        times = measure(case, options.threads, options.seconds)
        medians = {name: statistics.median(t) for name, t in times.items()}
        cells = " | ".join(f"{min(times[name]):.1f} | {medians[name]:.1f}" for name in times)
        print(f"| {case.name} | {cells} | {medians['onnxruntime'] / medians['intarsia']:.2f} |", flush=True)


if __name__ == "__main__":
    main()
