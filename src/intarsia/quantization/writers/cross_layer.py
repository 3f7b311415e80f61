"""Cross-layer equalisation (Nagel et al., "Data-free quantization through weight equalization and bias correction", 2019).

Between two layers with a positively homogeneous f between them, f(s x) = s f(x), a channel can be scaled: W2 f(W1 x + b1) is
(W2 S) f(W1 x / S + b1 / S). S makes the ranges of a channel's weights in both layers equal, so that one scale fits all.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper

from intarsia.quantization.description.model_editor import ModelEditor, attributes_of
from intarsia.quantization.description.tensor_marks import logger

_LAYERS = ("Conv", "Gemm")
_HOMOGENEOUS = frozenset(("Relu", "LeakyRelu", "MaxPool", "AveragePool", "GlobalAveragePool", "GlobalMaxPool", "Identity"))
_FLATTENED = "Flatten"  # of maps of one pixel, each channel stays one
_ROUNDS = 20
_DONE = 1e-3  # factors that change no more than this


@dataclass
class _Layer:
    """A layer's weights while they change.

    Attributes:
        weights: float64; Conv: [O, C / group, ...], Gemm: [O, C].
        bias: float64 [O]; None: there is none.
        group: of Conv.
    """

    node: onnx.NodeProto
    weights: np.ndarray
    bias: np.ndarray | None
    group: int = 1

    @property
    def by_output(self) -> np.ndarray:
        """The largest magnitude of each output channel's weights."""
        found: np.ndarray = np.abs(self.weights).reshape(len(self.weights), -1).max(axis=1)
        return found

    @property
    def by_input(self) -> np.ndarray:
        """The largest magnitude of the weights that read each input channel."""
        found: np.ndarray = np.abs(self._by_group()).max(axis=(1, 3)).reshape(-1)
        return found

    def _by_group(self) -> np.ndarray:
        """[group, outputs, channels, taps], in the weights' own memory."""
        outputs, channels = self.weights.shape[:2]
        return self.weights.reshape(self.group, outputs // self.group, channels, -1)

    def divide_outputs(self, factors: np.ndarray) -> None:
        self.weights /= factors.reshape(-1, *[1] * (self.weights.ndim - 1))
        if self.bias is not None:
            self.bias /= factors

    def multiply_inputs(self, factors: np.ndarray) -> None:
        by_group = self._by_group()
        by_group *= factors.reshape(self.group, 1, -1, 1)


def equalize_layers(model: onnx.ModelProto) -> int:
    """Scale channels between layers of the model, in place: it computes the same. Returns how many pairs of layers there are.

    Pairs are Conv and Gemm with stored weights of float32 that nothing else reads, one behind the other, with Relu, LeakyRelu
    or pools between them, whose values nothing else reads.
    """
    editor = ModelEditor(model)
    layers = {id(node): layer for node in editor.nodes if (layer := _layer(editor, node)) is not None}
    pairs = [(layers[id(a)], layers[id(b)]) for a, b in _pairs(editor, layers) if _fit(layers[id(a)], layers[id(b)])]
    for _ in range(_ROUNDS):
        if max((_equalize(*pair) for pair in pairs), default=0.0) < _DONE:
            break
    for layer in {id(one): one for pair in pairs for one in pair}.values():
        _store(editor, layer)
    logger.info("cross-layer equalisation: %d pairs of layers", len(pairs))
    return len(pairs)


def _layer(editor: ModelEditor, node: onnx.NodeProto) -> _Layer | None:
    if node.op_type not in _LAYERS or node.domain or node.input[0] in editor.initializers:
        return None
    given, stored = attributes_of(node), editor.initializers.get(node.input[1])
    if stored is None or stored.data_type != TensorProto.FLOAT or len(editor.readers_of(node.input[1])) > 1:
        return None
    biased = len(node.input) > 2 and bool(node.input[2])
    if node.op_type == "Gemm" and (given.get("transA", 0) or (biased and given.get("beta", 1.0) == 0)):
        return None
    weights = editor.array(node.input[1]).astype(np.float64)
    if node.op_type == "Gemm" and not given.get("transB", 0):
        weights = np.ascontiguousarray(weights.T)
    bias = None
    if biased:
        found = editor.initializers.get(node.input[2])
        if found is None or found.data_type != TensorProto.FLOAT or len(editor.readers_of(node.input[2])) > 1:
            return None
        if math.prod(found.dims) != len(weights):
            return None
        bias = editor.array(node.input[2]).astype(np.float64).reshape(-1)
    return _Layer(node, weights, bias, int(given.get("group", 1)) if node.op_type == "Conv" else 1)


def _pairs(editor: ModelEditor, layers: dict[int, _Layer]) -> Iterator[tuple[onnx.NodeProto, onnx.NodeProto]]:
    for node in editor.nodes:
        if id(node) not in layers:
            continue
        behind: onnx.NodeProto | None = node
        while behind is not None:
            behind = _only_reader(editor, behind.output[0])
            if behind is None or id(behind) in layers:
                break
            if behind.op_type not in _HOMOGENEOUS and not _keeps_channels(editor, behind):
                behind = None
        if behind is not None and behind.input[0] not in editor.initializers:
            yield node, behind


def _only_reader(editor: ModelEditor, name: str) -> onnx.NodeProto | None:
    """The node that alone reads a value, as its first input."""
    readers = editor.readers_of(name)
    if len(readers) != 1 or name in editor.outputs or list(readers[0].input).count(name) != 1:
        return None
    return readers[0] if readers[0].input[0] == name and not readers[0].domain else None


def _keeps_channels(editor: ModelEditor, node: onnx.NodeProto) -> bool:
    """Whether a Flatten has a column for each channel: of maps of one pixel."""
    shape = editor.shapes.get(node.input[0])
    if node.op_type != _FLATTENED or attributes_of(node).get("axis", 1) != 1 or shape is None:
        return False
    return len(shape) > 2 and all(size == 1 for size in shape[2:])


def _fit(first: _Layer, second: _Layer) -> bool:
    return bool(len(first.weights) == second.weights.shape[1] * second.group)


def _equalize(first: _Layer, second: _Layer) -> float:
    """Scale the channels between two layers; returns by how much, at most."""
    before, behind = first.by_output, second.by_input
    used = (before > 0) & (behind > 0)
    factors = np.where(used, np.sqrt(np.where(used, before, 1) / np.where(used, behind, 1)), 1.0)
    first.divide_outputs(factors)
    second.multiply_inputs(factors)
    return float(np.abs(factors - 1).max(initial=0.0))


def _store(editor: ModelEditor, layer: _Layer) -> None:
    node = layer.node
    transposed = node.op_type == "Gemm" and not attributes_of(node).get("transB", 0)
    weights = layer.weights.T if transposed else layer.weights
    stored = [(node.input[1], weights)] + ([(node.input[2], layer.bias)] if layer.bias is not None else [])
    for name, values in stored:
        tensor = editor.initializers[name]
        tensor.CopyFrom(numpy_helper.from_array(values.astype(np.float32).reshape(list(tensor.dims)), name))
