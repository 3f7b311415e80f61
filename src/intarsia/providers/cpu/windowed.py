"""What convolution and pooling in channels-last layout share: sizes, the border, and when a node is taken."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import field
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from intarsia.codegen import conv
from intarsia.codegen.byte_kernel import BYTES
from intarsia.codegen.target import Target
from intarsia.graph.dims import Dim, Expr, Shape
from intarsia.graph.dtypes import DType
from intarsia.graph.model import Node, TensorType
from intarsia.graph.trace import most
from intarsia.ops.spatial import place_windows
from intarsia.plan.step import Argument, Ref, Sizes, Step
from intarsia.providers.cpu.template import Template, Workspace, tensor_types
from intarsia.records import dataclass

if TYPE_CHECKING:
    from intarsia.ops.infer import Inference

DTYPES = (DType.FLOAT, DType.DOUBLE)
_USUAL_PIXELS = 224  # along an image whose size is not known
_SHARE_PRODUCTS = 100_000  # multiplications that are just worth another thread


def windowed(node: Node, inference: Inference, kind: type[Windowed]) -> Windowed | None:
    """The node as a template of this kind; None where its types are not known, or have no kernel."""
    types = tensor_types(node, inference)
    out = inference.types.get(node.outputs[0])
    x = types[0]
    if x is None or x.shape is None or not isinstance(out, TensorType) or out.shape is None:
        return None
    if x.dtype not in DTYPES and not (node.op_type == "MaxPool" and x.dtype in BYTES):
        return None
    pads = explicit_pads(node, x.shape, types)
    return kind(node, tuple(node.inputs[: kind.operands]), types, out, pads=pads)


def kernel_shape(node: Node, types: Sequence[TensorType | None]) -> tuple[int, ...]:
    """The window's sizes."""
    given: Any = node.attributes.get("kernel_shape")
    if given is None:
        weights = types[1]
        assert weights is not None and weights.shape is not None
        given = weights.shape[2:]
    return tuple(int(n) for n in given)


def strides_and_dilations(node: Node, rank: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Strides and dilations."""
    ones = (1,) * rank
    return tuple(node.attributes.get("strides") or ones), tuple(node.attributes.get("dilations") or ones)


def explicit_pads(node: Node, x: tuple[Dim, ...], types: Sequence[TensorType | None]) -> tuple[Dim, ...]:
    """The border as ONNX's `pads` (begins, then ends); sizes that vary may decide it (auto_pad with strides)."""
    strides, dilations = strides_and_dilations(node, len(x) - 2)
    given = node.attributes
    windows = place_windows(
        x[1:-1], kernel_shape(node, types), strides, given.get("pads") or None, dilations,
        given.get("auto_pad") or "NOTSET", given.get("ceil_mode", 0),
    )  # fmt: skip
    return (*windows.low, *windows.high)


@dataclass(frozen=True)
class Geometry:
    """The sizes of a convolution or pooling; `x` and `y` are [N, spatial..., C]."""

    x: Shape
    y: Shape
    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    pads: tuple[Dim, ...]
    group: Dim

    def at(self, size: Sizes) -> conv.ConvShape:
        x, pads = tuple(size(d) for d in self.x), tuple(size(p) for p in self.pads)
        return conv.ConvShape(
            x[0], x[1:-1], x[-1], size(self.y[-1]), self.kernel, self.strides, self.dilations, pads, size(self.group)
        )

    def usual(self) -> conv.ConvShape:
        """The sizes of one image, with usual ones where they are not known."""
        many = self.x[0].symbols if isinstance(self.x[0], Expr) else frozenset()

        def usual(size: Dim) -> int:
            if isinstance(size, int):
                return size
            try:
                return size.evaluate({name: 1 if name in many else _USUAL_PIXELS for name in size.symbols})
            except (ValueError, ZeroDivisionError):  # these do not fit together
                return _USUAL_PIXELS

        return self.at(usual)

    def shares(self, size: Sizes) -> float:
        """The work of a convolution, in times what is worth sharing."""
        shape = self.at(size)
        depth = math.prod(self.kernel) * shape.channels / most(1, shape.group)
        found: float = shape.batch * math.prod(shape.output) * shape.filters * depth / _SHARE_PRODUCTS
        return found


@dataclass(frozen=True)
class Place:
    """Where an image's channels lie, if among those of a wider one: bytes to the first, and from pixel to pixel (0: it is an
    image of its own)."""

    offset_nbytes: int = 0
    pixel_nbytes: int = 0

    def within(self, outer: Place) -> Place:
        """The same channels, if the image that they lie in lies at `outer` itself."""
        return Place(self.offset_nbytes + outer.offset_nbytes, outer.pixel_nbytes or self.pixel_nbytes)


WHOLE = Place()


@dataclass(frozen=True)
class Windowed(Template):
    """What convolution and pooling share. The data input and the output are [N, spatial..., C]."""

    operands: ClassVar[int] = 1  # inputs that the kernel reads
    pads: tuple[Dim, ...] = field(default=())

    @property
    def data(self) -> TensorType:
        x = self.types[0]
        assert x is not None
        return x

    def geometry(self, kernel: tuple[int, ...]) -> Geometry:
        x, out = self.data.shape, self.output.shape
        assert x is not None and out is not None
        group = int(self.node.attributes.get("group", 1)) if self.node.op_type in ("Conv", "ConvInteger") else x[-1]
        return Geometry(x, out, kernel, *strides_and_dilations(self.node, len(x) - 2), self.pads, group)

    def bordered(self, target: Target, workspace: Workspace, out: str, kernel: tuple[int, ...]) -> tuple[list[Step], str]:
        """The step that surrounds the input, and what it writes; the input itself if it has no border."""
        x, dtype, rank = self.data.shape, self.data.dtype, len(kernel)
        if not any(self.pads):
            return [], self.reads[0]
        assert x is not None
        padded = [d + self.pads[i] + self.pads[rank + i] for i, d in enumerate(x[1:-1])]
        source, number = workspace.temporary(f"{out}%border", dtype, (x[0], *padded, x[-1])), self.border_number(workspace)
        step = Step(
            conv.border_text(conv.BorderSpec(dtype), target), tuple(filter(None, (self.reads[0], number))), (source,),
            partial(_border, self.geometry(kernel), self.reads[0], source, number), label="border",
        )  # fmt: skip
        return [step], source

    def border_number(self, workspace: Workspace) -> str:
        """What the input is surrounded by: the name of a number, "" for zeros."""
        return ""


def _border(geometry: Geometry, x: str, y: str, number: str, size: Sizes, threads: int) -> Sequence[Argument]:
    return conv.border_args(geometry.at(size), Ref(x), Ref(y), *([Ref(number)] if number else []))  # type: ignore[arg-type]


class Filtered(Windowed):
    """What convolutions of floats and of bytes share: the second input has the filters."""

    operands = 2

    def equal_sizes(self) -> Sequence[tuple[Dim, Dim]]:
        weights = self.types[1]
        assert self.data.shape is not None and weights is not None and weights.shape is not None
        return [(self.data.shape[-1], weights.shape[1] * int(self.node.attributes.get("group", 1)))]
