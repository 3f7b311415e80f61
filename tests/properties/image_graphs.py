"""Random graphs of the operators that image models are made of: branches that meet again, at several scales and sizes."""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
import onnx
from drawn_graph import DrawnGraph
from onnx import TensorProto, helper

CHANNELS = (1, 2, 3, 4, 8, 12, 16, 24, 32, 33, 48, 64)


@dataclass(frozen=True)
class Image:
    """A value [n, channels, ...]; two of the same `scale` have the same height and width at every size of the input."""

    name: str
    channels: int
    scale: tuple[Any, ...] = ()


class ImageGraph(DrawnGraph):
    """A model of one or two images: `steps` choices, each of which adds one or a few nodes behind values that are there."""

    STEPS = MappingProxyType({
        "conv": 9, "activation": 2, "batch_norm": 1, "transposed": 1, "resized": 1, "pooled": 2, "squeeze_excite": 1,
        "joined": 5, "split": 1, "shuffled": 1, "normalized": 1.5, "moved": 1.5,
    })  # fmt: skip
    GROWTH = (2, 5, 6)

    def __init__(self, rng: np.random.Generator, steps: int) -> None:
        super().__init__(rng)
        self.fixed = [bool(rng.integers(2)) for _ in range(3)]  # batch, height, width
        self.sizes = [int(rng.choice([1, 2, 3])), int(rng.choice([16, 24, 28, 33])), int(rng.choice([16, 20, 32, 35]))]
        self.values = [Image("x", int(rng.choice([1, 3, 4, 16, 32])))]
        if rng.integers(4) == 0:
            self.values.append(Image("y", int(rng.choice([1, 3, 8]))))
        self.inputs = list(self.values)
        self.walk(self.values, steps, 0.7)

    def conv(self, a: Image) -> Image:
        kernel = self.pick((1, 1), (1, 1), (3, 3), (3, 3), (3, 3), (5, 5), (7, 7), (1, 3), (3, 1), (2, 2))
        dilation = self.pick(1, 1, 1, 2) if kernel == (3, 3) else 1
        stride = self.pick(1, 1, 1, 2)
        out, group = int(self.rng.choice(CHANNELS)), 1
        kind = self.rng.integers(6)
        if kind < 2 and a.channels > 1:
            out = group = a.channels
        elif kind == 2 and a.channels % 4 == 0:
            out, group = a.channels * self.pick(1, 2), a.channels // 4
        spans = [(k - 1) * dilation for k in kernel]
        pads = [s // 2 for s in spans] + [s - s // 2 for s in spans] if self.rng.integers(4) else [0, 0, 0, 0]
        if kernel == (7, 7):
            pads = [3, 3, 3, 3]
        if sum(pads) == 0 and a.scale:
            pads = [s // 2 for s in spans] + [s - s // 2 for s in spans]  # nothing shrinks to nothing
        shape = (out, a.channels // group, *kernel)
        inputs = [a.name, self.filters(shape, np.prod(shape[1:]))] + ([self.weight((out,))] if self.rng.integers(2) else [])
        name = self.add(
            "Conv", *inputs, kernel_shape=kernel, strides=[stride] * 2, pads=pads, dilations=[dilation] * 2, group=group
        )
        same = stride == 1 and all(p + q == s for p, q, s in zip(pads[:2], pads[2:], spans, strict=True))
        made = Image(name, out, a.scale if same else (*a.scale, ("conv", kernel, stride, dilation, tuple(pads))))
        if self.rng.integers(3) == 0:
            made = self.batch_norm(made)
        return self.activation(made) if self.rng.integers(2) else made

    def batch_norm(self, a: Image) -> Image:
        c = (a.channels,)
        parts = [self.weight(c, 0.5, 1.5), self.weight(c), self.weight(c), self.weight(c, 0.5, 1.5)]
        return Image(self.add("BatchNormalization", a.name, *parts), a.channels, a.scale)

    def activation(self, a: Image) -> Image:
        kind = self.pick("Relu", "Relu", "Clip", "Sigmoid", "HardSwish", "LeakyRelu", "PRelu", "swish", "Elu", "Gelu", "Tanh")
        if kind == "Clip":
            low, high = self.weight((), 0, 0), self.weight((), 1, 1)
            return Image(self.add("Clip", a.name, low, high), a.channels, a.scale)
        if kind == "PRelu":
            return Image(self.add("PRelu", a.name, self.weight((a.channels, 1, 1), 0, 0.5)), a.channels, a.scale)
        if kind == "swish":
            return Image(self.add("Mul", a.name, self.add("Sigmoid", a.name)), a.channels, a.scale)
        return Image(self.add(kind, a.name), a.channels, a.scale)

    def transposed(self, a: Image) -> Image | None:
        if a.scale and a.scale[-1][0] == "up":
            return None
        out, kernel, pads = int(self.rng.choice(CHANNELS[:7])), *self.pick((2, 0), (4, 1))
        filters = self.filters((a.channels, out, kernel, kernel), a.channels * kernel)
        name = self.add(
            "ConvTranspose", a.name, filters, self.weight((out,)), kernel_shape=[kernel] * 2, strides=[2, 2], pads=[pads] * 4,
        )  # fmt: skip
        return Image(name, out, (*a.scale, ("up",)))

    def resized(self, a: Image) -> Image | None:
        if a.scale and a.scale[-1][0] == "up":
            return None
        mode, how = self.pick(
            ("nearest", "asymmetric"), ("linear", "half_pixel"), ("linear", "align_corners"), ("cubic", "half_pixel")
        )
        name = f"w{len(self.weights)}"
        self.weights[name] = np.array([1, 1, 2, 2], np.float32)
        more = {"nearest_mode": "floor"} if mode == "nearest" else {}
        made = self.add("Resize", a.name, "", name, mode=mode, coordinate_transformation_mode=how, **more)
        return Image(made, a.channels, (*a.scale, ("up",)))

    def pooled(self, a: Image) -> Image:
        op, kernel, stride = self.pick("MaxPool", "AveragePool"), self.pick(2, 3), self.pick(1, 2, 2)
        pads = [kernel // 2 if kernel == 3 else 0] * 4
        more = {"count_include_pad": self.pick(0, 1)} if op == "AveragePool" else {}
        name = self.add(op, a.name, kernel_shape=[kernel] * 2, strides=[stride] * 2, pads=pads, **more)
        same = stride == 1 and kernel == 3
        return Image(name, a.channels, a.scale if same else (*a.scale, ("conv", (kernel, kernel), stride, 1, tuple(pads))))

    def squeeze_excite(self, a: Image) -> Image:
        middle = max(1, a.channels // 4)
        mean = (
            self.add("GlobalAveragePool", a.name)
            if self.rng.integers(2)
            else self.add("ReduceMean", a.name, self.numbers(2, 3), keepdims=1)
        )
        down = self.add("Relu", self.add("Conv", mean, self.weight((middle, a.channels, 1, 1), -0.3, 0.3)))
        up = self.add("Sigmoid", self.add("Conv", down, self.weight((a.channels, middle, 1, 1)), self.weight((a.channels,))))
        return Image(self.add("Mul", *self.pick((a.name, up), (up, a.name))), a.channels, a.scale)

    def joined(self, a: Image) -> Image | None:
        others = [v for v in self.values if v.scale == a.scale and v.name != a.name]
        if not others:
            return None
        b = others[self.rng.integers(len(others))]
        if (b.channels == a.channels or 1 in (a.channels, b.channels)) and self.rng.integers(3):
            made = Image(
                self.add(self.pick("Add", "Add", "Mul", "Sub", "Max"), a.name, b.name), max(a.channels, b.channels), a.scale
            )
            return self.activation(made) if self.rng.integers(2) else made
        return Image(self.add("Concat", a.name, b.name, axis=1), a.channels + b.channels, a.scale)

    def split(self, a: Image) -> Image | None:
        if a.channels % 2 or a.channels < 4:
            return None
        half = a.channels // 2
        first, second = self.add("Split", a.name, outputs=2, axis=1, num_outputs=2)
        self.values.append(Image(first, half, a.scale))
        return Image(second, half, a.scale)

    def shuffled(self, a: Image) -> Image | None:
        if a.channels % 4 or True in self.fixed[1:] and False in self.fixed[1:]:
            return None
        shape = self.add("Shape", a.name)
        area = self.add("Slice", shape, self.numbers(2), self.numbers(4))
        spread = self.add("Concat", self.numbers(-1, 2, a.channels // 2), area, axis=0)
        turned = self.add("Transpose", self.add("Reshape", a.name, spread), perm=[0, 2, 1, 3, 4])
        return Image(self.add("Reshape", turned, shape), a.channels, a.scale)

    def normalized(self, a: Image) -> Image:
        kind = self.pick("instance", "group", "layer")
        if kind == "instance" or a.channels % 2:
            c = (a.channels,)
            return Image(self.add("InstanceNormalization", a.name, self.weight(c), self.weight(c)), a.channels, a.scale)
        c = (a.channels,)
        if kind == "group":
            name = self.add("GroupNormalization", a.name, self.weight(c), self.weight(c), num_groups=2)
            return Image(name, a.channels, a.scale)
        last = self.add("Transpose", a.name, perm=[0, 2, 3, 1])
        normal = self.add("LayerNormalization", last, self.weight(c), self.weight(c), axis=-1)
        if self.rng.integers(2):
            normal = self.add("Gelu", self.add("MatMul", normal, self.filters((a.channels, a.channels), a.channels)))
        return Image(self.add("Transpose", normal, perm=[0, 3, 1, 2]), a.channels, a.scale)

    def moved(self, a: Image) -> Image:
        kind = self.pick("depth", "pad", "crop", "softmax")
        if kind == "depth" and a.channels % 4 == 0 and not a.scale:
            return Image(
                self.add("DepthToSpace", a.name, blocksize=2, mode=self.pick("DCR", "CRD")),
                a.channels // 4,
                ("up",) * 0 or (("up",),),
            )
        if kind == "pad":
            mode = self.pick("constant", "reflect", "edge")
            pads = self.numbers(0, 0, 1, 2, 0, 0, 1, 0)
            return Image(self.add("Pad", a.name, pads, mode=mode), a.channels, (*a.scale, ("pad",)))
        if kind == "crop":
            parts = [self.numbers(*v) for v in ((1, 0), (2**31 - 1, -1), (2, 3))]
            return Image(self.add("Slice", a.name, *parts), a.channels, (*a.scale, ("crop",)))
        return Image(self.add("Softmax", a.name, axis=self.pick(1, 3)), a.channels, a.scale)

    def model(self) -> onnx.ModelProto:
        """The last value and some others are outputs, in front of them a mean or a classifier at times."""
        outputs = [self.values[-1].name]
        outputs += [v.name for v in self.values[len(self.inputs) : -1] if self.rng.random() < 0.08]
        if self.rng.integers(3) == 0 and len(self.values) > len(self.inputs):
            a = self.values[-1]
            flat = self.add("Flatten", self.add("GlobalAveragePool", a.name))
            outputs.append(self.add("Gemm", flat, self.weight((a.channels, 10)), self.weight((10,))))
        dims = self.dims("n", "h", "w")
        inputs = [
            helper.make_tensor_value_info(v.name, TensorProto.FLOAT, [dims[0], v.channels, *dims[1:]]) for v in self.inputs
        ]
        return self.made(inputs, outputs)

    def feeds(self, run: int) -> dict[str, np.ndarray]:
        """Inputs of the `run`-th call: sizes that are not fixed differ from call to call."""
        n, *area = self.sizes_of(run)
        rng = np.random.default_rng(run)
        return {v.name: rng.uniform(-1, 1, (n, v.channels, *area)).astype(np.float32) for v in self.inputs}
