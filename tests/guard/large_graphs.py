"""Graphs for kernels that only large tensors or several nodes reach, and searches over small decoders, for guarded runs.

A graph has `model()` and `feeds(number)`, as those of `image_graphs` and `token_graphs`.
"""

from __future__ import annotations

import random
from typing import Any

import hostile_searches
import numpy as np
import onnx
from onnx import numpy_helper

HEAD = '<ir_version: 10, opset_import: ["" : 20, "com.microsoft" : 1]>\n'
KINDS = ("stripes", "transform", "product", "bytes", "compressed")


class LargeGraph:
    """One of `KINDS`: a pointwise and a depthwise convolution, a transform of one long line, a product for Strassen's way, a
    convolution of bytes in groups, elements that are compressed."""

    def __init__(self, rng: np.random.Generator, count: int) -> None:
        self.kind, self.seed = KINDS[int(rng.integers(len(KINDS)))], int(rng.integers(1 << 30))
        self.constants: dict[str, np.ndarray] = {}
        self.batches = [int(n) for n in rng.integers(1, 4, 3)]
        self.text, self.inputs = getattr(self, f"_{self.kind}")(rng)

    def _weights(self, rng: np.random.Generator, **shapes: tuple[int, ...]) -> None:
        for name, shape in shapes.items():
            self.constants[name] = (rng.standard_normal(shape) / 8).astype(np.float32)

    def _stripes(self, rng: np.random.Generator) -> tuple[str, dict[str, Any]]:
        channels, filters, side = int(rng.integers(3, 33)), 16 * int(rng.integers(2, 5)), int(rng.integers(92, 120))
        kernel, stride = int(rng.choice([3, 5])), int(rng.choice([1, 2]))
        self._weights(rng, w=(filters, channels, 1, 1), b=(filters,), d=(filters, 1, kernel, kernel))
        pads = [kernel // 2] * 4
        text = f"""g (float[n,{channels},{side},{side}] x) => (float[n,{filters},p,q] y) {{ a = Conv(x, w, b) r = Relu(a)
            y = Conv<group={filters}, pads={pads}, strides={[stride] * 2}>(r, d) }}"""
        return text, {"x": (channels, side, side)}

    def _transform(self, rng: np.random.Generator) -> tuple[str, dict[str, Any]]:
        n = int(rng.choice([512, 1000, 1026, 4097, 8192, 9002, 16384, 17001]))
        width, inverse = int(rng.choice([1, 2])), int(rng.integers(2))
        onesided = int(width == 1 and not inverse and rng.random() < 0.7)
        text = f"""g (float[1,{n},{width}] x) => (float[1,m,2] y) <int64 axis = {{1}}> {{
            y = DFT<onesided={onesided}, inverse={inverse}>(x, , axis) }}"""
        return text, {"x": (n, width)}

    def _product(self, rng: np.random.Generator) -> tuple[str, dict[str, Any]]:
        k, n = (int(rng.choice([768, 1000, 1024])) for _ in range(2))
        self._weights(rng, w=(k, n), b=(n,))
        rows = int(rng.integers(500, 700))
        return f"g (float[n,{k}] x) => (float[n,{n}] y) {{ a = MatMul(x, w) c = Add(a, b) y = Relu(c) }}", {"x": (rows, k)}

    def _bytes(self, rng: np.random.Generator) -> tuple[str, dict[str, Any]]:
        each, groups, side = int(rng.choice([2, 4, 8])), int(rng.choice([4, 8, 16])), int(rng.integers(3, 20))
        channels = each * groups
        stride = int(rng.choice([1, 2]))
        self.constants["f"] = rng.integers(-90, 90, (channels, each, 3, 3)).astype(np.int8)
        text = f"""g (uint8[n,{channels},{side},{side}] x) => (uint8[n,{channels},p,q] y)
            <float s = {{0.05}}, uint8 z = {{120}}, float ws = {{0.01}}, int8 wz = {{0}}, float ys = {{0.2}}> {{
            y = QLinearConv<group={groups}, pads=[1,1,1,1], strides={[stride, stride]}>(x, s, z, f, ws, wz, ys, z) }}"""
        return text, {"x": (channels, side, side)}

    def _compressed(self, rng: np.random.Generator) -> tuple[str, dict[str, Any]]:
        columns, axis = int(rng.integers(20, 60)), int(rng.integers(2))
        extents = (30 * self.batches[0], columns)
        text = f"g (float[n,{columns}] x, bool[m] c) => (float[p,q] y) {{ y = Compress<axis={axis}>(x, c) }}"
        return text, {"x": (30, columns), "c": (extents[axis],)}

    def model(self) -> onnx.ModelProto:
        proto = onnx.parser.parse_model(HEAD + self.text)
        proto.graph.initializer.extend(numpy_helper.from_array(x, name) for name, x in self.constants.items())
        return proto

    def feeds(self, number: int) -> dict[str, np.ndarray]:
        rng, batch = np.random.default_rng([self.seed, number]), self.batches[number % 3]
        if self.kind == "transform":
            return {"x": rng.standard_normal((1, *self.inputs["x"])).astype(np.float32)}
        if self.kind == "product":
            rows, k = self.inputs["x"]
            return {"x": rng.standard_normal((rows - 90 * (number % 3), k)).astype(np.float32)}
        if self.kind == "compressed":
            rows, columns = self.inputs["x"]
            x = rng.standard_normal((rows * batch, columns)).astype(np.float32)
            return {"x": x, "c": rng.random(self.inputs["c"][0]) < 0.5}
        if self.kind == "bytes":
            return {"x": rng.integers(0, 256, (batch, *self.inputs["x"])).astype(np.uint8)}
        return {"x": rng.standard_normal((1, *self.inputs["x"])).astype(np.float32)}


class SearchGraph:
    """A search of `hostile_searches`, with other prompts in each run: decoders and beams of other sizes than are relied on."""

    def __init__(self, rng: np.random.Generator, count: int) -> None:
        self.case = hostile_searches.case_of(random.Random(int(rng.integers(1 << 30))), drawn=False)
        numbers = [x for x in self.case.feeds.values() if x.dtype == np.float32 and x.ndim == 1]
        numbers += [numpy_helper.to_array(t) for t in self.model().graph.initializer if t.data_type == onnx.TensorProto.FLOAT]
        self.exact = all(((x >= 0.1) & (x <= 10)).all() for x in numbers)  # other penalties make scores equal, or NaN

    def model(self) -> onnx.ModelProto:
        return onnx.ModelProto.FromString(self.case.model)

    def feeds(self, number: int) -> dict[str, np.ndarray]:
        def again(name: str, x: np.ndarray) -> np.ndarray:
            if x.ndim < 2 or not number % 3:
                return x
            return np.resize(x, (x.shape[0] + number % 3 - 1, *x.shape[1:-1], x.shape[-1] + number))

        return {name: again(name, x) for name, x in self.case.feeds.items()}
