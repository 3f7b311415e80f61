"""Nodes of a model that become several channels-last ones: blocks of pixels, shuffled channels, normalisations."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from intarsia.graph.dims import is_static, number_of, numbers_of, product
from intarsia.graph.dtypes import DType
from intarsia.graph.model import Node, TensorType
from intarsia.ops.framework.infer import Inference
from intarsia.ops.internal.channels_last import DOMAIN
from intarsia.providers.cpu.kernels.conv.dynamic_filters import suits
from intarsia.providers.cpu.legalize.channels_last.twins import ChannelsLastTwins

_PIXELS_FOR_FILTER = 4
_CHANNELS_TOGETHER = 8  # of a place that DeformConv or GridSample reads: with fewer, places are worth a vector
_PIXELS_FOR_PLACE = 4
_MOST_MOVED = 1 << 22  # elements of filters that are put in another order

_VERSIONS = {
    "ReduceMean": 13,
    "Sub": 14,
    "Mul": 14,
    "Add": 14,
    "Div": 14,
    "Sqrt": 13,
    "Reshape": 14,
    "Transpose": 13,
    "MatMul": 13,
    "Windows": 1,
    "BentWindows": 1,
}


def has_computed_filters(node: Node, inference: Inference) -> bool:
    """A convolution by filters that another node computes, few beside its pixels: it goes over channels-last images, or, where
    these have few channels, as a product whose rows are pixels."""
    if node.domain or node.op_type != "Conv" or node.inputs[1] in inference.graph.constants:
        return False
    if suits(node, inference):
        return True
    x, w, y = (inference.types.get(n) for n in (*node.inputs[:2], node.outputs[0]))
    if not all(isinstance(t, TensorType) and t.shape is not None for t in (x, w, y)):
        return False
    assert isinstance(x, TensorType) and isinstance(w, TensorType) and isinstance(y, TensorType)
    assert x.shape is not None and w.shape is not None and y.shape is not None
    if x.dtype is not DType.FLOAT or not is_static(w.shape) or not 3 <= len(x.shape) <= 5 or not isinstance(x.shape[1], int):
        return False
    if int(node.attributes.get("group", 1)) != 1 or node.attributes.get("auto_pad", "NOTSET") != "NOTSET":
        return False
    pixels = product(y.shape[2:])
    return not isinstance(pixels, int) or pixels >= _PIXELS_FOR_FILTER * number_of(w.shape[0])


def is_bent(node: Node, inference: Inference) -> bool:
    """A DeformConv whose places are read with all their channels beside each other, and are multiplied as rows of pixels."""
    if node.domain or node.op_type != "DeformConv" or int(node.attributes.get("group", 1)) != 1:
        return False
    x, w = (inference.types.get(n) for n in node.inputs[:2])
    if not isinstance(x, TensorType) or x.shape is None or x.dtype is not DType.FLOAT or not isinstance(x.shape[1], int):
        return False
    static = isinstance(w, TensorType) and w.shape is not None and is_static(w.shape)
    return static and x.shape[1] // int(node.attributes.get("offset_group", 1)) >= _CHANNELS_TOGETHER


def is_sampled(node: Node, inference: Inference) -> bool:
    """A GridSample that reads all channels of a place together, at so many places that the image is worth transposing."""
    if node.domain or node.op_type != "GridSample":
        return False
    x, grid = (inference.types.get(n) for n in node.inputs[:2])
    if not isinstance(x, TensorType) or x.shape is None or not isinstance(grid, TensorType) or grid.shape is None:
        return False
    if x.dtype is not DType.FLOAT or not isinstance(x.shape[1], int) or x.shape[1] < _CHANNELS_TOGETHER:
        return False
    pixels, places = product(x.shape[2:]), product(grid.shape[1:-1])
    return not (isinstance(pixels, int) and isinstance(places, int)) or places * _PIXELS_FOR_PLACE >= pixels


class Blocks(ChannelsLastTwins):
    """The rules; each answers whether the node was rewritten."""

    def _depth_to_space(self, node: Node) -> bool:
        """Blocks of a pixel's channels become pixels. Where a pixel of the block has every few channels (CRD), the filters of
        the convolution before are put in another order, so that they lie together."""
        if node.inputs[0] not in self.twin:
            return False
        size, channels = int(node.attributes["blocksize"]), self.shape(node.outputs[0])[1]
        crd = node.attributes.get("mode", "DCR") == "CRD" and not self._reorder_filters(node.inputs[0], size * size)
        if crd and not isinstance(channels, int):
            return False
        edges: dict[str, object] = {"blocks": (size, size), "begins": (0, 0), "ends": (0, 0), "group": channels if crd else 1}
        made = node.copy(op_type="Interleave", domain=DOMAIN, version=1)
        return self._emit(made, [self.twin[node.inputs[0]]], attributes=edges)

    def _reorder_filters(self, name: str, parts: int) -> bool:
        """Let the convolution that computes `name`, for one reader, give every `parts`-th channel first, then those behind."""
        if len(self.consumers.get(name, ())) != 1 or name in self.graph.output_names():
            return False
        maker = next((n for n in reversed(self.nodes) if self.twin[name] in n.outputs), None)
        if maker is None or (maker.op_type, maker.domain) != ("Conv", DOMAIN) or int(maker.attributes.get("group", 1)) != 1:
            return False
        constants = [self.graph.constants.get(n) for n in maker.inputs[1:] if n]
        if any(c is None or c.size > _MOST_MOVED for c in constants):
            return False
        arrays = [c.numpy() for c in constants if c is not None]
        moved = [a.reshape(-1, parts, *a.shape[1:]).swapaxes(0, 1).reshape(a.shape) for a in arrays]
        maker.inputs = [maker.inputs[0], *(self.constant(name, a) for a in moved)]
        return True

    def _space_to_depth(self, node: Node) -> bool:
        after = self.shape(node.outputs[0])
        if node.inputs[0] not in self.twin or not all(isinstance(d, int) for d in after[1:]):
            return False
        size, (output,) = int(node.attributes["blocksize"]), node.outputs
        parts, mixed, twin = (self.name(output) for _ in range(3))
        channels, height, width = numbers_of(after[1:])
        block = (0, height, size, width, size, channels // size**2)
        self._reshaped(node, self.twin[node.inputs[0]], parts, block)
        self._append("Transpose", [parts], mixed, perm=[0, 1, 3, 2, 4, 5])
        self._reshaped(node, mixed, twin, (0, height, width, channels))
        self.replace(output, twin)
        return True

    def _computed_filters(self, node: Node) -> bool:
        """A convolution, or a product of the windows' pixels and the filters."""
        if suits(node, self.inference):
            self.restore(node.inputs[1])
            return self._emit(node, [self._last(node.inputs[0]), *node.inputs[1:]], domain=DOMAIN)
        kernel = list(numbers_of(self.shape(node.inputs[1])[2:]))
        made, source, placed = _Chain(self, node), self._last(node.inputs[0]), _placed(node, kernel)
        if any(placed["pads"]) or any(n != 1 for n in (*kernel, *placed["strides"])):
            source = made("Windows", source, **placed)
        self._product(made, node, source, 2)
        return True

    def _bent(self, node: Node) -> bool:
        """A product of the filters and what lies at the places that offsets move the windows' pixels to."""
        kernel = list(numbers_of(self.shape(node.inputs[1])[2:]))
        others = [self._last(n) for n in (node.inputs[2], *node.inputs[4:]) if n]
        made, groups = _Chain(self, node), int(node.attributes.get("offset_group", 1))
        source = made("BentWindows", self._last(node.inputs[0]), *others, groups=groups, **_placed(node, kernel))
        self._product(made, node, source, 3)
        return True

    def _grid_sample(self, node: Node) -> bool:
        """An image read at places that a grid holds, all channels together."""
        self.restore(node.inputs[1])
        return self._emit(node, [self._last(node.inputs[0]), node.inputs[1]], domain=DOMAIN, version=1)

    def _product(self, made: _Chain, node: Node, rows: str, bias: int) -> None:
        """The node's result as the product of windows' pixels [N, out..., kernel... * C] and its filters, and its bias."""
        filters, channels, *kernel = numbers_of(self.shape(node.inputs[1]))
        (output,), perm, shape = node.outputs, (*range(2, len(kernel) + 2), 1, 0), (math.prod(kernel) * channels, filters)
        weights = self.graph.constants.get(node.inputs[1])
        if weights is not None:
            matrix = self._arranged(weights, shape, lambda w: np.ascontiguousarray(w.transpose(perm)).reshape(shape))
        else:
            self.restore(node.inputs[1])
            turned = made("Transpose", node.inputs[1], perm=perm)
            matrix = made("Reshape", turned, self.constant(output, np.array(shape, np.int64)))
        found = made("MatMul", rows, matrix)
        biased = len(node.inputs) > bias and node.inputs[bias]
        self.replace(output, made("Add", found, node.inputs[bias]) if biased else found)

    def _normalization(self, node: Node) -> bool:
        """By the mean and variance of every channel, or group of channels, of an image: averages over pixels and element-wise
        nodes. The variance is that of what is left without the mean, as in the operator's definition."""
        kind, shape = self.inference.types.get(node.inputs[0]), self.shape(node.inputs[0])
        rank, (output,) = len(shape), node.outputs
        groups = int(node.attributes.get("num_groups", 0))
        if node.inputs[0] not in self.twin or rank < 3 or not isinstance(kind, TensorType) or kind.dtype is not DType.FLOAT:
            return False
        if any(self.shape(n) != (shape[1],) for n in node.inputs[1:3]) or (groups and not isinstance(shape[1], int)):
            return False
        x, made = self.twin[node.inputs[0]], _Chain(self, node)
        axes = tuple(range(1, rank - 1))
        mean = made("ReduceMean", x, axes=axes)
        mean = made.over_groups(mean, groups, rank)
        centred = made("Sub", x, mean)
        variance = made.over_groups(made("ReduceMean", made("Mul", centred, centred), axes=axes), groups, rank)
        epsilon = self.constant(output, np.array([node.attributes.get("epsilon", 1e-5)], np.float32))
        deviation = made("Sqrt", made("Add", variance, epsilon))
        factor = made("Div", node.inputs[1], deviation)
        self.replace(output, made("Add", made("Mul", made("Sub", x, mean), factor), node.inputs[2]))
        return True


def _placed(node: Node, kernel: Sequence[int]) -> dict[str, tuple[int, ...]]:
    """Where a convolution's windows lie."""
    found = {name: tuple(node.attributes.get(name) or (1,) * len(kernel)) for name in ("strides", "dilations")}
    return {"kernel_shape": tuple(kernel), "pads": tuple(node.attributes.get("pads") or (0,) * (2 * len(kernel))), **found}


class _Chain:
    """Appends nodes that together stand for one of the model."""

    def __init__(self, rewrite: ChannelsLastTwins, node: Node) -> None:
        self.rewrite, self.node = rewrite, node
        (self.output,) = node.outputs

    def __call__(self, op_type: str, *inputs: str, **attributes: object) -> str:
        made, own = self.rewrite.name(self.output), DOMAIN if op_type in ("Windows", "BentWindows") else ""
        self.rewrite.nodes.append(
            Node(
                op_type, list(inputs), [made], dict(attributes), name=f"{self.node.name} ({op_type})",
                domain=own, version=_VERSIONS[op_type], origin=self.node.origin,
            )
        )  # fmt: skip
        return made

    def over_groups(self, values: str, groups: int, rank: int) -> str:
        """Averages [N, 1..., C] as those of their group of channels; 0 groups: as they are."""
        if not groups:
            return values
        constant = self.rewrite.constant
        parts = self("Reshape", values, constant(self.output, np.array([0, groups, -1], np.int64)))
        mean = self("ReduceMean", parts, axes=(2,))
        channels = number_of(self.rewrite.shape(self.node.inputs[0])[1])
        spread = constant(self.output, np.zeros((1, groups, channels // groups), np.float32))
        whole = constant(self.output, np.array([0, *[1] * (rank - 2), channels], np.int64))
        return self("Reshape", self("Add", mean, spread), whole)
