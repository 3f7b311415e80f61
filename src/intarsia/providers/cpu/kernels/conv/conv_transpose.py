"""Transposed convolution as a convolution with stride 1.

Output pixel q s + r of a transposed convolution with stride s sums x[q - j] w[j s + r] over j. So the s pixels of a block are s
filters of an ordinary convolution over ceil(k / s) input pixels, computed together and then interleaved.

Computed together, all pixels of a block have the most taps, over one input pixel more than there are where a border is cut: a
window of 3 with stride 2 multiplies 16 numbers for 9, one of 4 over a map of 4 x 4 has 25 blocks for 16. Where that is much,
each pixel of the block is a convolution of its own (`EachPixel`).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from intarsia.ep.capability import Support
from intarsia.graph.dims import Dim, Expr, Shape, numbers_of
from intarsia.graph.dtypes import DType
from intarsia.graph.model import Node
from intarsia.lazy_dataclass import dataclass
from intarsia.ops.framework.infer import Inference
from intarsia.plan.step import Step
from intarsia.providers.cpu.kernels.common.schedule import KernelRequest, LoweringEnv, Schedule
from intarsia.providers.cpu.kernels.common.template import Template
from intarsia.providers.cpu.kernels.common.tensor_spec import operand_specs, result_spec, spec_of
from intarsia.providers.cpu.kernels.conv.conv_cost import BYTES_PER_SECOND
from intarsia.providers.cpu.kernels.conv.winograd.cost_model import rates

_MOST_BLOCK = 1 << 12  # pixels of a stride's block
_MOST_PHASES = 8
_WORTH = 1.1  # times fewer multiplications, from which on phases are convolutions of their own
_VECTOR = 16  # filters
_USUAL_LENGTH = 32  # of a map's axis that is not known


@dataclass(frozen=True)
class Parts:
    """Weights [group * blocks... * M / group, C / group, taps...] and the attributes of the two nodes."""

    weights: np.ndarray
    bias: np.ndarray | None
    convolution: dict[str, Any]
    interleave: dict[str, Any]


@dataclass(frozen=True)
class Phase:
    """One pixel of a stride's block: the window's elements that it takes, and its convolution's attributes."""

    taken: tuple[slice, ...]
    convolution: dict[str, Any]

    def weights(self, whole: np.ndarray) -> np.ndarray:
        """[M, C, taps...] of the node's [C, M, k...]."""
        part = whole[(slice(None), slice(None), *self.taken)]
        return np.ascontiguousarray(np.flip(part.swapaxes(0, 1), tuple(range(2, part.ndim))))


def is_transposed_convolution(node: Node, inference: Inference) -> bool:
    """Whether the node is a ConvTranspose of float by constant weights that `as_convolution` takes."""
    if node.domain or node.op_type != "ConvTranspose":
        return False
    x, constants = spec_of(inference.types.get(node.inputs[0])), inference.graph.constants
    if x is None or x.dtype is not DType.FLOAT or not 3 <= len(x.shape) <= 5:
        return False
    if any(n and n not in constants for n in node.inputs[1:]):
        return False
    return is_plain(node)


def is_plain(node: Node) -> bool:
    """Whether the border is given by `pads`, no taps are left out, and blocks are small: weights are padded to whole ones."""
    plain = node.attributes.get("auto_pad", "NOTSET") in ("NOTSET", "") and not node.attributes.get("output_shape")
    pixels = [*(node.attributes.get("strides") or ()), *(1 + e for e in node.attributes.get("output_padding") or ())]
    plain = plain and math.prod(pixels) <= _MOST_BLOCK
    return plain and all(d == 1 for d in node.attributes.get("dilations") or ())


def _spacing(node: Node, rank: int) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """Strides, pads and the output's padding."""
    attributes = node.attributes
    strides = tuple(attributes.get("strides") or (1,) * rank)
    pads = tuple(attributes.get("pads") or (0,) * (2 * rank))
    return strides, pads, tuple(attributes.get("output_padding") or (0,) * rank)


@dataclass(frozen=True)
class TransposedConvolution(Template):
    """A ConvTranspose of float by constant weights, which is written as convolutions where the graph gets its layout: its
    schedules are ways to write it."""

    @property
    def lengths(self) -> Shape:
        """Of the map, along its spatial axes."""
        return self.operand(0).shape[2:]

    @property
    def weight_shape(self) -> tuple[int, ...]:
        """[C, M / group, k...]."""
        return numbers_of(self.operand(1).shape)

    @property
    def strides(self) -> tuple[int, ...]:
        return _spacing(self.node, len(self.lengths))[0]

    @property
    def axes(self) -> list[tuple[int, int, int, int, int]]:
        """For each spatial axis its window, stride, pads before and behind, and the output's padding."""
        rank, kernel = len(self.lengths), self.weight_shape[2:]
        strides, pads, extra = _spacing(self.node, rank)
        return list(zip(kernel, strides, pads, pads[rank:], extra, strict=False))

    @property
    def sides(self) -> list[list[tuple[int, int, int, int]]]:
        """For each spatial axis what the places of a block see of the window (`_phase`)."""
        return [[_phase(k, s, p + low) for p in range(s)] for k, s, low, _, _ in self.axes]

    @property
    def terms_together(self) -> float:
        """Multiplications for each channel, filter and pixel of the map, if a block's pixels are filters of one convolution."""
        each = 1.0
        for (k, s, _, _, e), length in zip(self.axes, self.lengths, strict=True):
            taps = -(-(k + e) // s)
            each *= s * taps * (1.0 if isinstance(length, Expr) else (length + taps - 1) / max(length, 1))
        return each

    @property
    def terms_separate(self) -> float:
        """The same, if each pixel of a block is a convolution of its own."""
        return math.prod(sum(n for _, n, _, _ in side) for side in self.sides)

    def schedule_table(self) -> tuple[Schedule[TransposedConvolution], ...]:
        return SCHEDULES


def transposed_convolution(node: Node, inference: Inference) -> TransposedConvolution | None:
    """The node, if it `is_transposed_convolution`."""
    if not is_transposed_convolution(node, inference):
        return None
    out = result_spec(node, inference)
    return None if out is None else TransposedConvolution(node, tuple(node.inputs), operand_specs(node, inference), out)


@dataclass(frozen=True)
class WrittenSchedule(Schedule[TransposedConvolution]):
    """Base of ways to write a transposed convolution. The convolutions that it becomes have schedules of their own."""

    def steps(self, node: TransposedConvolution, request: KernelRequest) -> list[Step]:
        raise NotImplementedError(f"{self.name}: the convolutions that a transposed one becomes have steps, in the graph")

    @staticmethod
    def _seconds(node: TransposedConvolution, env: LoweringEnv, terms: float, copies: int) -> float:
        """An estimate on one core. `copies`: how often the result is written and read besides."""
        pixels = math.prod(d if isinstance(d, int) else _USUAL_LENGTH for d in node.lengths)
        channels, filters, *_ = node.weight_shape
        lanes = env.target.vector_bytes / 64 * 4 / (node.operand(0).dtype.bits / 8)
        moved = copies * 2 * pixels * math.prod(node.strides) * filters * 4
        products = pixels * terms * channels * filters
        return 2 * products / (rates(env.target.l2_nbytes).flops * lanes) + moved / BYTES_PER_SECOND


@dataclass(frozen=True)
class EachPixel(WrittenSchedule):
    """A convolution for each pixel of a stride's block, with the taps that it has, and their results beside each other."""

    def applies(self, node: TransposedConvolution, env: LoweringEnv) -> Support:
        filters, block = node.weight_shape[1], math.prod(node.strides)
        if not all(k + e - low - high == s for k, s, low, high, e in node.axes):
            return Support.no("its borders cut blocks of its strides, or leave some out")
        if node.node.attributes.get("group", 1) != 1:
            return Support.no("it has groups")
        if filters % _VECTOR:
            return Support.no(f"{filters} filters are no multiple of {_VECTOR}")
        if not 1 < block <= _MOST_PHASES:
            return Support.no(f"a block of its strides has {block} pixels; it takes 2 to {_MOST_PHASES}")
        if any(n < 1 or before < 0 for side in node.sides for _, n, before, _ in side):
            return Support.no("some pixels of a block see nothing of the map's pixel that they belong to")
        return Support.yes()

    def pays(self, node: TransposedConvolution, env: LoweringEnv) -> Support:
        together, separate = node.terms_together, node.terms_separate
        if together < _WORTH * separate:
            return Support.no(f"it saves {together / separate:.2f} times the products, less than {_WORTH}")
        return Support.yes()

    def cost(self, node: TransposedConvolution, env: LoweringEnv) -> float:
        return self._seconds(node, env, node.terms_separate, 2)

    def phases(self, node: TransposedConvolution) -> list[Phase]:
        """The block's pixels as convolutions, first axis outermost.

        Output pixel s q + p sums x[q + d - j] w[j s + r] over j, with d, r = divmod(p + pad, s).
        """
        return [
            Phase(
                tuple(slice(r, None, s) for (r, *_), s in zip(place, node.strides, strict=True)),
                {
                    "kernel_shape": [n for _, n, _, _ in place],
                    "pads": [before for _, _, before, _ in place] + [behind for *_, behind in place],
                    "strides": [1] * len(node.strides),
                    "group": 1,
                },
            )
            for place in itertools.product(*node.sides)
        ]


@dataclass(frozen=True)
class WholeBlocks(WrittenSchedule):
    """One convolution that computes all pixels of a stride's block as filters: takes every transposed convolution."""

    def applies(self, node: TransposedConvolution, env: LoweringEnv) -> Support:
        return Support.yes()

    def cost(self, node: TransposedConvolution, env: LoweringEnv) -> float:
        return self._seconds(node, env, node.terms_together, 1)


SCHEDULES: tuple[WrittenSchedule, ...] = (EachPixel("each-pixel"), WholeBlocks("whole-blocks"))


def _phase(kernel: int, stride: int, place: int) -> tuple[int, int, int, int]:
    """The first tap, how many there are, and how far they reach before and behind the map's pixel."""
    d, r = divmod(place, stride)
    taps = max(-(-(kernel - r) // stride), 0)
    return r, taps, taps - 1 - d, d


def as_convolution(node: Node, weights: np.ndarray, bias: np.ndarray | None, lengths: Sequence[Dim] = ()) -> Parts:
    """The node's weights [C, M / group, k...] for the convolution; see the module's text. `lengths`: the map's, where known."""
    rank = weights.ndim - 2
    kernel, (strides, pads, extra) = weights.shape[2:], _spacing(node, rank)
    if lengths:  # along an axis of one element there are no neighbours: all of the window is its block
        strides = tuple(k + e if d == 1 else s for k, e, s, d in zip(kernel, extra, strides, lengths, strict=True))
    group = int(node.attributes.get("group", 1))
    taps = tuple(-(-(k + e) // s) for k, e, s in zip(kernel, extra, strides, strict=True))
    channels, filters = weights.shape[0] // group, weights.shape[1]
    padded = np.zeros((*weights.shape[:2], *(t * s for t, s in zip(taps, strides, strict=True))), weights.dtype)
    padded[(slice(None), slice(None), *map(slice, kernel))] = weights
    split = padded.reshape(group, channels, filters, *itertools.chain(*zip(taps, strides, strict=True)))
    tap_axes, block_axes = range(3, 3 + 2 * rank, 2), range(4, 4 + 2 * rank, 2)
    made = np.flip(split.transpose(0, *block_axes, 2, 1, *tap_axes), tuple(range(3 + rank, 3 + 2 * rank)))
    borders = tuple(t - 1 for t in taps) * 2
    ends = [t * s - k - e + p for t, s, k, e, p in zip(taps, strides, kernel, extra, pads[rank:], strict=True)]
    return Parts(
        np.ascontiguousarray(made).reshape(group * math.prod(strides) * filters, channels, *taps),
        None if bias is None else np.tile(bias.reshape(group, 1, filters), (1, math.prod(strides), 1)).reshape(-1),
        {"kernel_shape": list(taps), "pads": list(borders), "strides": [1] * rank, "group": group},
        {"blocks": list(strides), "begins": list(pads[:rank]), "ends": ends, "group": group},
    )
