"""Decoders whose caches grow by one in each run, in the shapes in which programs export them."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import onnx
import onnx.parser
from onnx import numpy_helper

Feeds = Iterator[dict[str, np.ndarray]]
FIRST, MOST = 256, 2048  # lengths of the cache


@dataclass(frozen=True)
class Decoder:
    """`blocks` of a transformer as GPT-2 has them, or with attention to an encoder's `source` positions, or to the last
    `window` ones alone; batch, length of the cache and source are symbols. `batch` is what runs have."""

    blocks: int = 12
    heads: int = 8
    size: int = 64
    batch: int = 1
    source: int = 0
    window: int = 0

    @property
    def name(self) -> str:
        also = f", to {self.source} others too" if self.source else f", the last {self.window}" if self.window else ""
        return f"decoder of {self.blocks} blocks as GPT-2, batch {self.batch} and length open{also}"

    @property
    def width(self) -> int:
        return self.heads * self.size

    def model(self) -> bytes:
        rank = f"float[b, {self.heads}"
        lines = ["one = Constant<value_float=1.0>()", "far = Constant<value_float=-10000.0>()", "m0 = Sub(one, mask)"]
        lines += ["m1 = Unsqueeze(m0, middle)", "bias = Mul(m1, far)"]
        if self.window:
            lines[-1:] = ["m2 = Mul(m1, far)", "bias = Slice(m2, last, end, along_mask)"]
        last = "x"
        for i in range(self.blocks):
            lines += self._block(i, last)
            last = f"out{i}"
        caches = [f"{kind}{i}" for i in range(self.blocks) for kind in ("keys", "values")]
        inputs = [f"float[b, 1, {self.width}] x", "float[b, t] mask", *(f"{rank}, p, {self.size}] past_{n}" for n in caches)]
        if self.source:
            inputs += [f"{rank}, s, {self.size}] other_{n}" for n in caches]
        outputs = [f"float[b, 1, {self.width}] y", *(f"{rank}, t, {self.size}] {n}" for n in caches)]
        text = f"g ({', '.join(inputs)}) => ({', '.join(outputs)}) {{ {' '.join(lines)} y = Identity({last}) }}"
        made = onnx.parser.parse_model(f'<ir_version: 9, opset_import: ["" : 20]> {text}')
        made.graph.initializer.extend(numpy_helper.from_array(v, n) for n, v in self._weights().items())
        data: bytes = made.SerializeToString()
        return data

    def feeds(self) -> Feeds:
        x = np.full((self.batch, 1, self.width), 0.1, np.float32)
        room = np.random.default_rng(0).standard_normal(self.batch * self.width * MOST).astype(np.float32)
        names = [f"{kind}{i}" for i in range(self.blocks) for kind in ("keys", "values")]
        others = self._cache(room, self.source)
        for n in itertools.chain.from_iterable(itertools.repeat(range(FIRST, MOST))):
            past = self._cache(room, n)
            feed = {"x": x, "mask": np.ones((self.batch, n + 1), np.float32), **{f"past_{name}": past for name in names}}
            yield feed if not self.source else {**feed, **{f"other_{name}": others for name in names}}

    def _cache(self, room: np.ndarray, length: int) -> np.ndarray:
        return room[: self.batch * self.width * length].reshape(self.batch, self.heads, length, self.size)

    def _block(self, i: int, x: str) -> list[str]:
        lines = [f"n{i} = LayerNormalization({x}, g, g)"]
        for part in ("q", "k", "v"):
            lines += self._split(f"{part}{i}", f"n{i}")
        lines += [f"keys{i} = Concat<axis=2>(past_keys{i}, k{i})", f"values{i} = Concat<axis=2>(past_values{i}, v{i})"]
        keys, values = f"keys{i}", f"values{i}"
        if self.window:
            lines += [f"{kind}w{i} = Slice({kind}{i}, last, end, along)" for kind in ("keys", "values")]
            keys, values = f"keysw{i}", f"valuesw{i}"
        lines += [*self._attention(f"a{i}", f"q{i}", keys, values, "bias"), f"h{i} = Add(a{i}, {x})"]
        hidden = f"h{i}"
        if self.source:
            lines += [f"on{i} = LayerNormalization({hidden}, g, g)", *self._split(f"oq{i}", f"on{i}")]
            lines += [
                *self._attention(f"oa{i}", f"oq{i}", f"other_keys{i}", f"other_values{i}", ""),
                f"oh{i} = Add(oa{i}, {hidden})",
            ]
            hidden = f"oh{i}"
        return [
            *lines, f"f{i} = LayerNormalization({hidden}, g, g)", f"u{i} = MatMul(f{i}, up)", f"e{i} = Gelu(u{i})",
            f"d{i} = MatMul(e{i}, down)", f"out{i} = Add(d{i}, {hidden})",
        ]  # fmt: skip

    def _split(self, name: str, x: str) -> list[str]:
        """A product of `x`, in heads."""
        made = [f"{name}p = MatMul({x}, w)", f"{name}r = Reshape({name}p, heads)"]
        return [*made, f"{name} = Transpose<perm=[0, 2, 1, 3]>({name}r)"]

    def _attention(self, name: str, q: str, keys: str, values: str, bias: str) -> list[str]:
        lines = [f"{name}t = Transpose<perm=[0, 1, 3, 2]>({keys})", f"{name}s = MatMul({q}, {name}t)"]
        scores = f"{name}s"
        if bias:
            lines.append(f"{name}b = Add({scores}, {bias})")
            scores = f"{name}b"
        lines += [f"{name}m = Softmax<axis=-1>({scores})", f"{name}o = MatMul({name}m, {values})"]
        lines += [f"{name}u = Transpose<perm=[0, 2, 1, 3]>({name}o)", f"{name}f = Reshape({name}u, flat)"]
        return [*lines, f"{name} = MatMul({name}f, w)"]

    def _weights(self) -> dict[str, np.ndarray]:
        rng, width = np.random.default_rng(1), self.width
        found: dict[str, np.ndarray] = {
            "g": np.ones(width, np.float32), "heads": np.array([0, 0, self.heads, self.size]), "flat": np.array([0, 0, width]),
            "middle": np.array([1, 2]),
        }  # fmt: skip
        if self.window:
            found |= {"last": np.array([-self.window]), "end": np.array([2**40]), "along": np.array([2])}
            found["along_mask"] = np.array([3])
        for name, shape in {"w": (width, width), "up": (width, 4 * width), "down": (4 * width, width)}.items():
            found[name] = (rng.standard_normal(shape) / shape[0] ** 0.5).astype(np.float32)
        return found


def decoders() -> list[tuple[str, bytes, Callable[[], Feeds]]]:
    """Names, models and feeds."""
    made = [Decoder(), Decoder(batch=2), Decoder(blocks=6, source=100), Decoder(window=128)]
    return [(d.name, d.model(), d.feeds) for d in made]
