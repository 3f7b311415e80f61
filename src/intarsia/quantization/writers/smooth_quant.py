"""SmoothQuant (Xiao et al., 2023): outliers in channels of activations are moved into weights, where they cost less.

A MatMul X W is X / s times s W. The factor of channel j, s = max|X_j|^alpha / max|W_j|^(1 - alpha), goes into the
LayerNormalization that computes X, or else into a Mul before the product.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from intarsia.errors import InvalidArgument
from intarsia.quantization.calibration.observed_runs import ObservedModel
from intarsia.quantization.description.model_editor import ModelEditor
from intarsia.quantization.description.model_files import with_shapes
from intarsia.quantization.description.tensor_marks import logger

_LEAST = 1e-5  # of a channel's magnitude: what is less than this counts as this


def smoothed_model(model: onnx.ModelProto, reader: Any, alpha: float = 0.5) -> onnx.ModelProto:
    """The model, in place, that computes the same with smoother activations.

    Args:
        reader: gives the inputs of runs.
        alpha: how much goes into the weights, between 0 (nothing) and 1 (all).

    Raises:
        InvalidArgument: another alpha; no data.
    """
    if not 0 <= alpha <= 1:
        raise InvalidArgument(f"SmoothQuantAlpha: expected a number from 0 to 1, got {alpha}")
    editor = ModelEditor(model)
    products = _products(editor)
    largest = _channel_magnitudes(model, products, reader)
    for source, nodes in products.items():
        if source in largest:
            _smooth(editor, source, nodes, _factors(editor, nodes, largest[source], alpha))
    return with_shapes(editor.finish())


def _products(editor: ModelEditor) -> dict[str, list[onnx.NodeProto]]:
    """Activations -> the MatMul nodes that multiply them by stored matrices of float32, which nothing else reads."""
    found: dict[str, list[onnx.NodeProto]] = {}
    for node in editor.nodes:
        if node.op_type != "MatMul" or node.input[0] in editor.initializers:
            continue
        stored = editor.initializers.get(node.input[1])
        if stored is not None and len(stored.dims) == 2 and stored.data_type == onnx.TensorProto.FLOAT:
            if len(editor.readers_of(node.input[1])) == 1:
                found.setdefault(node.input[0], []).append(node)
    return found


def _channel_magnitudes(
    model: onnx.ModelProto, products: dict[str, list[onnx.NodeProto]], reader: Any
) -> dict[str, np.ndarray]:
    """The largest magnitude of each index of the last axis."""
    found: dict[str, np.ndarray] = {}

    def observe(name: str, values: Any) -> None:
        largest = np.abs(values).reshape(-1, values.shape[-1]).max(axis=0)
        found[name] = np.maximum(found[name], largest) if name in found else largest

    observed, runs = ObservedModel(model, products), 0
    while feed := reader.get_next():
        observed.run(feed, observe)
        runs += 1
    if not runs:
        raise InvalidArgument("No data is collected: the calibration reader gave no inputs")
    return found


def _factors(editor: ModelEditor, nodes: list[onnx.NodeProto], largest: np.ndarray, alpha: float) -> np.ndarray:
    weights = np.max([np.abs(editor.array(node.input[1])).max(axis=1) for node in nodes], axis=0)
    found = np.maximum(largest, _LEAST) ** alpha / np.maximum(weights, _LEAST) ** (1 - alpha)
    return np.asarray(np.clip(found, _LEAST, 1 / _LEAST), np.float32)


def _smooth(editor: ModelEditor, source: str, nodes: list[onnx.NodeProto], factors: np.ndarray) -> None:
    for node in nodes:
        stored = editor.initializers[node.input[1]]
        values = editor.array(node.input[1]) * factors[:, None]
        stored.CopyFrom(numpy_helper.from_array(values, stored.name))
    if _folded(editor, source, nodes, factors):
        return
    result, name = f"{source}_smoothed", f"{source}_smooth_scale"
    editor.add_initializer(numpy_helper.from_array(1 / factors, name))
    for node in nodes:
        editor.redirect_read(node, source, result)
    editor.add_node(helper.make_node("Mul", [source, name], [result], f"{source}_smooth"))
    logger.info("SmoothQuant: %s is divided by a factor of each channel", source)


def _folded(editor: ModelEditor, source: str, nodes: list[onnx.NodeProto], factors: np.ndarray) -> bool:
    """Put the factors into the LayerNormalization that computes the activations, where nothing else reads them."""
    maker = editor.producers.get(source)
    readers = editor.readers_of(source)
    alone = len(readers) == len(nodes) and source not in editor.outputs
    if maker is None or maker.op_type != "LayerNormalization" or not alone or len(maker.output) > 1:
        return False
    names = [name for name in maker.input[1:3] if name]
    if not all(n in editor.initializers and len(editor.readers_of(n)) == 1 for n in names):
        return False
    if any(editor.array(n).shape != factors.shape for n in names):
        return False
    for name in names:
        editor.initializers[name].CopyFrom(numpy_helper.from_array(editor.array(name) / factors, name))
    return True
