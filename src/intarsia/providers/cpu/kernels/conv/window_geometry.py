"""Geometry of channels-last convolution and pooling: sizes, the border, and which nodes are matched."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import numpy as np

from intarsia.codegen.llvm.target import Target
from intarsia.graph.dims import Dim, Expr, Shape, numbers_of, product
from intarsia.graph.dtypes import DType
from intarsia.graph.model import Node
from intarsia.graph.trace import most
from intarsia.lazy_dataclass import dataclass
from intarsia.ops.nn.sliding_windows import WindowAttributes, place_windows
from intarsia.plan.step import Argument, KernelCall, Ref, Sizes, Step, Work
from intarsia.providers.cpu.kernels.common.packing import Layout, Packing
from intarsia.providers.cpu.kernels.common.template import Template, Workspace
from intarsia.providers.cpu.kernels.common.tensor_spec import TensorSpec, operand_specs, result_spec
from intarsia.providers.cpu.kernels.common.tiles import Tile
from intarsia.providers.cpu.kernels.conv import implicit_gemm, window_products
from intarsia.providers.cpu.kernels.matmul_int8.byte_groups import BYTES

if TYPE_CHECKING:
    from intarsia.ops.framework.infer import Inference
    from intarsia.providers.cpu.kernels.common.schedule import Constants

DTYPES = (DType.FLOAT, DType.DOUBLE)
_EACH_AXIS = ("kernel_shape", "strides", "dilations")  # attributes with a number for each spatial axis
_USUAL_PIXELS = 224  # along an image whose size is not known
SHARE_PRODUCTS = 100_000  # multiplications that are just worth another thread


Made = TypeVar("Made", bound="Windowed")


def windowed(node: Node, inference: Inference, kind: type[Windowed]) -> Windowed | None:
    """The node as a template of this kind; None where its types are not known, or have no kernel."""
    types = operand_specs(node, inference)
    out = result_spec(node, inference)
    x = types[0]
    if x is None or out is None:
        return None
    if x.dtype not in DTYPES and not (node.op_type == "MaxPool" and x.dtype in BYTES):
        return None
    pads = explicit_pads(node, x.shape, types)
    return with_fewer_axes(kind(node, tuple(node.inputs[: kind.operands]), types, out, pads=pads))


def with_fewer_axes(made: Made) -> Made:
    """The same computation over fewer spatial axes, where a window is one pixel of some: those of one pixel drop out, and
    neighbouring ones are one axis, since memory is the same. So k x 1 over a column is a window of one axis.

    What is pointwise stays as it is: its pixels are rows already.
    """
    groups = _joined_axes(made)
    if all(len(axes) == 1 for axes in groups):
        return made
    node, rank = made.node, len(made.pads) // 2
    last_axes = [axes[-1] for axes in groups]  # of collapsed axes all have the same window
    attributes = {n: [v[i] for i in last_axes] if n in _EACH_AXIS and v else v for n, v in node.attributes.items()}
    pads = tuple(made.pads[i + end] for end in (0, rank) for i in last_axes)
    if node.attributes.get("pads"):
        attributes["pads"] = [node.attributes["pads"][i + end] for end in (0, rank) for i in last_axes]
    types = list(made.types)
    types[0] = _over(made.data, groups)
    if len(types) > 1 and made.operands > 1:
        weights = made.operand(1)
        types[1] = replace(weights, shape=(*weights.shape[:2], *(weights.shape[2 + i] for i in last_axes)))
    return replace(
        made, node=node.copy(attributes=attributes), types=tuple(types), output=_over(made.output, groups), pads=pads
    )


def _joined_axes(made: Windowed) -> list[list[int]]:
    """The spatial axes in groups that are one axis each; an axis of one pixel is in the group of a neighbour."""
    x, y = made.data.shape, made.output.shape
    rank = len(x) - 2
    kernel = kernel_shape(made.node, made.types)
    strides, _ = strides_and_dilations(made.node, rank)
    plain = [n == 1 and made.pads[i] == made.pads[rank + i] == 0 for i, n in enumerate(kernel)]
    single = [plain[i] and x[1 + i] == y[1 + i] == 1 for i in range(rank)]
    even = [plain[i] and strides[i] == 1 for i in range(rank)]
    if math.prod(kernel) == 1:
        return [[i] for i in range(rank)]
    groups: list[list[int]] = []
    ones = [i for i in range(rank) if single[i]]
    for axis in (i for i in range(rank) if not single[i]):
        if groups and even[axis] and even[groups[-1][-1]]:
            groups[-1].append(axis)
        else:
            groups.append([axis])
    groups[0] = [*ones, *groups[0]]
    return groups


def _over(kind: TensorSpec, groups: Sequence[Sequence[int]]) -> TensorSpec:
    """A tensor [N, spatial..., C] with an axis for each group of spatial axes."""
    batch, *spatial, channels = kind.shape
    return replace(kind, shape=(batch, *(product([spatial[i] for i in axes]) for axes in groups), channels))


def kernel_shape(node: Node, types: Sequence[TensorSpec | None]) -> tuple[int, ...]:
    """The window's sizes."""
    given: Any = node.attributes.get("kernel_shape")
    if not given:
        weights = types[1]
        assert weights is not None, "the schema requires kernel_shape of an operator without weights"
        given = weights.shape[2:]
    return tuple(int(n) for n in given)


def strides_and_dilations(node: Node, rank: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Strides and dilations."""
    ones = (1,) * rank
    return tuple(node.attributes.get("strides") or ones), tuple(node.attributes.get("dilations") or ones)


def explicit_pads(node: Node, x: tuple[Dim, ...], types: Sequence[TensorSpec | None]) -> tuple[Dim, ...]:
    """The border as ONNX's `pads` (begins, then ends); sizes that vary may decide it (auto_pad with strides)."""
    strides, dilations = strides_and_dilations(node, len(x) - 2)
    given = node.attributes
    auto_pad, pads = given.get("auto_pad") or "NOTSET", given.get("pads") or None
    attributes = WindowAttributes(auto_pad, dilations, pads=pads, strides=strides)
    rounded_up, clipped = given.get("ceil_mode", 0), node.op_type.endswith("Pool")
    windows = place_windows(x[1:-1], kernel_shape(node, types), attributes, ceil_mode=rounded_up, clipped=clipped)
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

    def at(self, size: Sizes) -> window_products.ConvShape:
        x, pads = tuple(size(d) for d in self.x), tuple(size(p) for p in self.pads)
        return window_products.ConvShape(
            x[0], x[1:-1], x[-1], size(self.y[-1]), self.kernel, self.strides, self.dilations, pads, size(self.group)
        )

    def usual(self) -> window_products.ConvShape:
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

    def products(self, size: Sizes) -> float:
        """Multiplications of a convolution."""
        shape = self.at(size)
        depth = math.prod(self.kernel) * shape.channels / most(1, shape.group)
        found: float = shape.batch * math.prod(shape.output) * shape.filters * depth
        return found


@dataclass(frozen=True)
class ConvWork(Work):
    """The work of a convolution, of which `each` multiplications are just worth another thread."""

    geometry: Geometry
    each: int = SHARE_PRODUCTS

    def __call__(self, size: Sizes) -> float:
        return self.geometry.products(size) / self.each


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
    """Base of convolution and pooling. The data input and the output are [N, spatial..., C]."""

    operands: ClassVar[int] = 1  # inputs that the kernel reads
    pads: tuple[Dim, ...] = field(default=())

    @property
    def data(self) -> TensorSpec:
        return self.operand(0)

    def geometry(self, kernel: tuple[int, ...]) -> Geometry:
        x, out = self.data.shape, self.output.shape
        group = int(self.node.attributes.get("group", 1)) if self.node.op_type in ("Conv", "ConvInteger") else x[-1]
        return Geometry(x, out, kernel, *strides_and_dilations(self.node, len(x) - 2), self.pads, group)

    def bordered(self, target: Target, workspace: Workspace, out: str, kernel: tuple[int, ...]) -> tuple[list[Step], str]:
        """The step that surrounds the input, and what it writes; the input itself if it has no border."""
        x, dtype, rank = self.data.shape, self.data.dtype, len(kernel)
        if not any(self.pads):
            return [], self.reads[0]
        padded = [d + self.pads[i] + self.pads[rank + i] for i, d in enumerate(x[1:-1])]
        source, number = workspace.temporary(f"{out}%border", dtype, (x[0], *padded, x[-1])), self.border_number(workspace)
        step = Step(
            implicit_gemm.border_text(implicit_gemm.BorderSpec(dtype), target), tuple(filter(None, (self.reads[0], number))),
            (source,),
            BorderCall(self.geometry(kernel), self.reads[0], source, number), label="border",
        )  # fmt: skip
        return [step], source

    def border_number(self, workspace: Workspace) -> str:
        """The padding value of the input: the buffer of a number, "" for zeros."""
        return ""


@dataclass(frozen=True)
class BorderCall(KernelCall):
    """Surrounds an image by a number, or by zeros."""

    geometry: Geometry
    x: str
    y: str
    number: str

    @property
    def form(self) -> object:
        return self.geometry, bool(self.number)

    def arguments(self, size: Sizes, threads: int) -> Sequence[Argument]:
        number = [Ref(self.number)] if self.number else []
        return implicit_gemm.border_args(self.geometry.at(size), Ref(self.x), Ref(self.y), *number)


class Filtered(Windowed):
    """Base of convolutions of floats and of bytes: the second input has the filters."""

    operands = 2

    @cached_property
    def filter_shape(self) -> tuple[int, ...]:
        """[filters, channels of a group, *kernel]."""
        return numbers_of(self.operand(1).shape)

    @property
    def kernel(self) -> tuple[int, ...]:
        return self.filter_shape[2:]

    @property
    def group(self) -> int:
        return int(self.node.attributes.get("group", 1))

    @property
    def view(self) -> tuple[Hashable, ...]:
        """How the constant of the filters is read: their shape, and in how many groups."""
        return self.filter_shape, self.group

    def packing(self, layout: Layout, tile: Tile | None = None, view: Hashable = ()) -> Packing:
        """The form of the filters, in panels of the tile. Other convolutions may read the same ones in other groups."""
        return Packing(layout, 0 if tile is None else tile.width, view=(*self.view, view))

    def constant_filters(self, constants: Constants) -> np.ndarray:
        """The filters, over as many axes as the windows are."""
        array = constants.array(self.reads[1])
        assert array is not None, self.reads[1]
        return array.reshape(self.filter_shape)

    def equal_sizes(self) -> Sequence[tuple[Dim, Dim]]:
        return [(self.data.shape[-1], self.operand(1).shape[1] * self.group)]
