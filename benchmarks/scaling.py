"""How time grows with threads, batch, length and depth, beside the peers: python benchmarks/scaling.py [PART ...]

Parts: threads, batch (models of FOLDER, as tests/models/export.py writes them), length, depth (encoders, a decoder's cache and
residual convolutions that are made here). benchmarks/README.md says how it measures.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from overheads import decoder, model

from intarsia.cli.peers import Runner, peer_runner
from intarsia.cli.timing import intarsia_runner, interleave
from models import feeds_of, print_table

Feeds = Mapping[str, np.ndarray]
LENGTHS = (16, 64, 256, 512, 1024, 2048)
DEPTHS = (1, 2, 4, 8, 16, 32)
BATCHES = (1, 2, 4, 8, 16, 32, 64)
THREADS = ("mlp_tabular", "lstm_text", "mobilenet_v2", "resnet50", "gpt2", "bert_base")
BATCHED = ("mlp_tabular", "mobilenet_v2", "bert_base")
WORDS = 32  # of a text in a batch


@dataclass(frozen=True)
class Point:
    """One row of a table: what it is called, how much work it is relative to the others, the model and what it is fed."""

    name: str
    amount: float
    model: Path
    feeds: Feeds


def runners(point: Point, peers: Sequence[str], threads: int) -> list[Runner]:
    return [
        intarsia_runner(point.model, point.feeds, threads),
        *(peer_runner(p, point.model, point.feeds, threads) for p in peers),
    ]


def medians(point: Point, threads: int, options: argparse.Namespace) -> list[float]:
    """Milliseconds of a run, Intarsia's first."""
    made = runners(point, options.compare, threads)
    return [t.median for t in interleave(made, options.runs, options.seconds)]


def table(title: str, per: str, points: Sequence[Point], options: argparse.Namespace) -> None:
    """Milliseconds of a run, of a unit of work, and the peers' time relative to Intarsia's (above 1: Intarsia is ahead)."""
    rows = []
    for point in points:
        times = medians(point, options.threads, options)
        ratios = [f"{t / times[0]:.2f}" for t in times[1:]]
        rows.append([point.name, *(f"{t:.3f}" for t in times), f"{times[0] / point.amount:.4f}", *ratios])
    peers = options.compare
    columns = ["", "intarsia ms", *(f"{p} ms" for p in peers), f"intarsia ms per {per}", *(f"{p} / intarsia" for p in peers)]
    print_table(f"{title}, {options.threads} threads", columns, rows)


# --- models that are made here ---


def weighted(text: str, weights: Mapping[str, np.ndarray], path: Path) -> Path:
    """The model of this text with further initializers, written to `path`."""
    import onnx
    from onnx import numpy_helper

    made = onnx.load_from_string(model(text))
    made.graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in weights.items())
    onnx.save(made, path)
    return path


def encoder(layers: int, width: int, heads: int, path: Path) -> Path:
    """Transformer layers over float[batch, length, width], norm first, as exporters spell them out."""
    r = np.random.default_rng(0)
    weights: dict[str, np.ndarray] = {
        "ones": np.ones(width, np.float32), "zeros": np.zeros(width, np.float32), "flat": np.array([0, 0, width]),
        "split": np.array([0, 0, heads, width // heads]), "scale": np.float32((width // heads) ** -0.5),
        "root": np.float32(2**0.5), "one": np.float32(1), "half": np.float32(0.5),
    }  # fmt: skip
    lines, last = [], "x"
    for i in range(layers):
        for name, shape in (("q", 1), ("k", 1), ("v", 1), ("o", 1), ("up", 4), ("down", 4)):
            size = (width * shape, width) if name == "down" else (width, width * shape)
            weights[f"{name}w{i}"] = r.standard_normal(size, np.float32) * np.float32(size[0] ** -0.5)
            weights[f"{name}b{i}"] = r.standard_normal(size[1], np.float32)
        lines.append(f"n{i} = LayerNormalization<axis=-1>({last}, ones, zeros)")
        for name, order in (("q", "0, 2, 1, 3"), ("k", "0, 2, 3, 1"), ("v", "0, 2, 1, 3")):
            lines += [
                f"{name}m{i} = MatMul(n{i}, {name}w{i})", f"{name}a{i} = Add({name}m{i}, {name}b{i})",
                f"{name}r{i} = Reshape({name}a{i}, split)", f"{name}{i} = Transpose<perm=[{order}]>({name}r{i})",
            ]  # fmt: skip
        lines += [
            f"s{i} = MatMul(q{i}, k{i})", f"t{i} = Mul(s{i}, scale)", f"p{i} = Softmax<axis=-1>(t{i})",
            f"c{i} = MatMul(p{i}, v{i})", f"d{i} = Transpose<perm=[0, 2, 1, 3]>(c{i})", f"e{i} = Reshape(d{i}, flat)",
            f"f{i} = MatMul(e{i}, ow{i})", f"g{i} = Add(f{i}, ob{i})", f"h{i} = Add(g{i}, {last})",
            f"l{i} = LayerNormalization<axis=-1>(h{i}, ones, zeros)", f"um{i} = MatMul(l{i}, upw{i})",
            f"u{i} = Add(um{i}, upb{i})", f"ud{i} = Div(u{i}, root)", f"ue{i} = Erf(ud{i})", f"ua{i} = Add(ue{i}, one)",
            f"ub{i} = Mul(u{i}, ua{i})", f"uc{i} = Mul(ub{i}, half)", f"w{i} = MatMul(uc{i}, downw{i})",
            f"y{i} = Add(w{i}, downb{i})", f"z{i} = Add(y{i}, h{i})",
        ]  # fmt: skip
        last = f"z{i}"
    kind = f"float[batch, length, {width}]"
    return weighted(f"g ({kind} x) => ({kind} y) {{ {' '.join(lines)} y = Identity({last}) }}", weights, path)


def residual(blocks: int, channels: int, path: Path) -> Path:
    """Blocks of two 3x3 convolutions with a Relu each, and a sum."""
    r, weights, lines, last = np.random.default_rng(0), {}, [], "x"
    for i in range(blocks):
        for name in ("a", "b"):
            weights[f"{name}w{i}"] = r.standard_normal((channels, channels, 3, 3), np.float32) * np.float32(
                (9 * channels) ** -0.5
            )
        lines += [
            f"a{i} = Conv<pads=[1, 1, 1, 1]>({last}, aw{i})", f"r{i} = Relu(a{i})",
            f"b{i} = Conv<pads=[1, 1, 1, 1]>(r{i}, bw{i})", f"s{i} = Add(b{i}, {last})", f"y{i} = Relu(s{i})",
        ]  # fmt: skip
        last = f"y{i}"
    kind = f"float[batch, {channels}, 28, 28]"
    return weighted(f"g ({kind} x) => ({kind} y) {{ {' '.join(lines)} y = Identity({last}) }}", weights, path)


# --- parts ---


def by_threads(options: argparse.Namespace, _: Path) -> None:
    rows = []
    for name in options.names or THREADS:
        path = options.models / f"{name}.onnx"
        point = Point(name, 1, path, feeds_of(path))
        made = [*runners(point, options.compare, 1), *runners(point, options.compare, 2)]  # in turn: noise hits both
        times = [t.median for t in interleave(made, options.runs, options.seconds)]
        one, two = times[: len(times) // 2], times[len(times) // 2 :]
        rows.append([name, *(f"{a:.3f}, {b:.3f}, {a / b:.2f}" for a, b in zip(one, two, strict=True))])
    columns = ["model", *(f"{r} ms: 1, 2 threads, ratio" for r in ("intarsia", *options.compare))]
    print_table("Threads", columns, rows)


def repeated(feeds: Feeds, batch: int) -> Feeds:
    """The first row of each input, cut to `WORDS` where it is text, `batch` times."""
    return {n: np.repeat(a[:1, :WORDS] if a.dtype.kind == "i" else a[:1], batch, axis=0) for n, a in feeds.items()}


def by_batch(options: argparse.Namespace, _: Path) -> None:
    for name in options.names or BATCHED:
        path = options.models / f"{name}.onnx"
        points = [Point(str(n), n, path, repeated(feeds_of(path), n)) for n in options.batches]
        text = any(a.dtype.kind == "i" for a in feeds_of(path).values())
        table(f"Batch: {name}{f', {WORDS} words' if text else ''}", "row", points, options)


def by_length(options: argparse.Namespace, folder: Path) -> None:
    path = encoder(4, 384, 6, folder / "encoder.onnx")
    x = np.random.default_rng(1).standard_normal((1, LENGTHS[-1], 384), np.float32)
    points = [Point(str(n), n / 16, path, {"x": x[:, :n].copy()}) for n in LENGTHS]
    table("Length: 4 layers of 384, 6 heads", "16 positions", points, options)
    path = folder / "decoder.onnx"
    case = decoder(12, 8, 64, grows=False)
    path.write_bytes(case.model)
    feeds = next(case.feeds())

    def past(n: int) -> Feeds:
        return {k: a if k == "x" else np.ones((1, 8, n, 64), np.float32) for k, a in feeds.items()}

    points = [Point(str(n), n / 16, path, past(n)) for n in LENGTHS]
    table("Length of a cache: a token, 12 blocks of 512, 8 heads", "16 positions", points, options)


def by_depth(options: argparse.Namespace, folder: Path) -> None:
    r = np.random.default_rng(1)
    words, picture = (r.standard_normal(shape, np.float32) for shape in ((1, 64, 256), (1, 64, 28, 28)))
    layers = [(n, encoder(n, 256, 4, folder / f"layers{n}.onnx")) for n in DEPTHS]
    blocks = [(n, residual(n, 64, folder / f"blocks{n}.onnx")) for n in DEPTHS]
    points = [Point(str(n), n, path, {"x": words}) for n, path in layers]
    table("Depth: layers of 256, 4 heads, 64 positions", "layer", points, options)
    points = [Point(str(n), n, path, {"x": picture}) for n, path in blocks]
    table("Depth: residual blocks of 64 channels, 28x28", "block", points, options)


PARTS: dict[str, Callable[[argparse.Namespace, Path], None]] = {
    "threads": by_threads, "batch": by_batch, "length": by_length, "depth": by_depth,
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description="Time models as threads, batch, length and depth grow.")
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"{', '.join(PARTS)}; all by default")
    parser.add_argument("--models", type=Path, default=Path("build/models"), help="for the parts threads and batch")
    parser.add_argument("--names", type=lambda s: s.split(","), default=[], help="of models, for the parts threads and batch")
    parser.add_argument(
        "--batches", type=lambda s: [int(n) for n in s.split(",")], default=list(BATCHES), help="for the part batch"
    )
    parser.add_argument("--compare", type=lambda s: [p for p in s.split(",") if p], default=["onnxruntime", "openvino"])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--runs", type=int, default=30, help="of each runtime for each point, at most")
    parser.add_argument("--seconds", type=float, default=2.0, help="for each point, unless three runs take longer")
    options = parser.parse_args()
    if unknown := set(options.parts) - set(PARTS):
        parser.error(f"unknown {', '.join(sorted(unknown))}; there are {', '.join(PARTS)}")
    with tempfile.TemporaryDirectory() as folder:
        for part in options.parts or PARTS:
            PARTS[part](options, Path(folder))


if __name__ == "__main__":
    main()
