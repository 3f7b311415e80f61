"""Values of a model beside those of its quantised form, under onnxruntime's names; `intarsia quantize` reports them at once."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from intarsia.errors import Fail, InvalidArgument
from intarsia.options.session_options import SessionOptions
from intarsia.passes.level import GraphOptimizationLevel
from intarsia.quantization.calibrate import tensors_to_calibrate
from intarsia.quantization.description.model_editor import attributes_of
from intarsia.quantization.description.model_files import load_model, save_model, with_shapes
from intarsia.quantization.description.tensor_marks import logger
from intarsia.quantization.numerics.affine import AffineParameters, dequantized
from intarsia.session.inference_session import InferenceSession

Arrays = Sequence[np.ndarray] | np.ndarray
_SAVED = "_ReshapedSavedOutput"
QUANT_INPUT_SUFFIX, DEQUANT_OUTPUT_SUFFIX = "_QuantizeLinear_Input", "_DequantizeLinear_Output"


def modify_model_output_intermediate_tensors(
    input_model_path: str | Path, output_model_path: str | Path, op_types_for_saving: Sequence[str] | None = None,
    save_as_external_data: bool = False,
) -> None:  # fmt: skip
    """Write a model that also gives, as vectors, the float values that nodes of these operators (none: all) read and compute.

    `InferenceSession.run(..., taps=...)` gives such values without another model.
    """
    model = with_shapes(load_model(input_model_path))
    graph, shape = model.graph, "intarsia_saved_vector"
    tensors = tensors_to_calibrate(model, op_types_for_saving)
    graph.initializer.append(numpy_helper.from_array(np.array([-1], np.int64), shape))
    for name, value in tensors.items():
        result = f"{name}{_SAVED}"
        graph.node.append(helper.make_node("Reshape", [name, shape], [result], result))
        graph.output.append(helper.make_tensor_value_info(result, value.type.tensor_type.elem_type, [-1]))
    save_model(model, output_model_path, external=save_as_external_data)


def collect_activations(
    augmented_model: str | os.PathLike[str], input_reader: Iterable[Mapping[str, Any]],
    session_options: SessionOptions | None = None, execution_providers: Sequence[Any] | None = None,
) -> dict[str, list[np.ndarray]]:  # fmt: skip
    """What such a model gives for each feed of a reader, by value.

    Raises:
        Fail: the reader gives nothing.
    """
    options = session_options or SessionOptions()
    if session_options is None:
        options.graph_optimization_level = GraphOptimizationLevel.ORT_DISABLE_ALL
    providers = list(execution_providers or ["CPUExecutionProvider"])
    session = InferenceSession(augmented_model, options, providers=providers)
    names = [output.name for output in session.get_outputs() if output.name.endswith(_SAVED)]
    found: dict[str, list[np.ndarray]] = {}
    for feed in input_reader:
        for name, values in zip(names, session.run(names, feed), strict=True):
            found.setdefault(name.removesuffix(_SAVED), []).append(values)
    if not found:
        raise Fail("No data is collected while running augmented model!")
    return found


def create_activation_matching(
    qdq_activations: Mapping[str, Sequence[np.ndarray]], float_activations: Mapping[str, Sequence[np.ndarray]] | None = None
) -> dict[str, dict[str, Sequence[np.ndarray]]]:
    """Value -> its arrays before ("pre_qdq") and behind ("post_qdq") its pair, and in the model of floats ("float")."""
    found: dict[str, dict[str, Sequence[np.ndarray]]] = {}
    for name, arrays in qdq_activations.items():
        own, before, behind = _pair_of(name, arrays, qdq_activations)
        if own and before is not None and behind is not None:
            found[own] = {"pre_qdq": before, "post_qdq": behind}
    for name, entry in found.items():
        other = (float_activations or {}).get(name)
        if other is not None:
            entry["float"] = other
    return found


def _pair_of(name: str, arrays: Any, known: Mapping[str, Any]) -> tuple[str, Any, Any]:
    """The value that a pair is of, and what is before and behind the pair."""
    if name.endswith(QUANT_INPUT_SUFFIX):
        own = name.removesuffix(QUANT_INPUT_SUFFIX)
        return own, arrays, known.get(own)
    for tail in (DEQUANT_OUTPUT_SUFFIX, f"{DEQUANT_OUTPUT_SUFFIX}_1"):
        if name.endswith(tail):
            own = name.removesuffix(tail)
            return own, known.get(own), arrays
    return "", None, None


def create_weight_matching(float_model_path: str, qdq_model_path: str) -> dict[str, dict[str, np.ndarray]]:
    """Weight -> its array in the model of floats ("float") and what its quantised form stands for ("dequantized")."""
    floats = {t.name: t for t in load_model(float_model_path).graph.initializer}
    graph = load_model(qdq_model_path).graph
    stored = {t.name: t for t in graph.initializer}
    found = {}
    for node in graph.node:
        name = node.input[0].removesuffix("_quantized") if node.op_type == "DequantizeLinear" else ""
        if node.input[:1] and node.input[0] in stored and name in floats:
            found[name] = {"float": numpy_helper.to_array(floats[name]), "dequantized": _weight(node, stored)}
        elif name and node.input[0] in stored:
            logger.error("%s: weight '%s' is not found in %s", qdq_model_path, node.input[0], float_model_path)
    return found


def _weight(node: onnx.NodeProto, stored: Mapping[str, onnx.TensorProto]) -> np.ndarray:
    codes, scale = (numpy_helper.to_array(stored[name]) for name in node.input[:2])
    point = numpy_helper.to_array(stored[node.input[2]]) if len(node.input) > 2 else np.zeros(scale.shape, np.int32)
    given = attributes_of(node)
    axis = given.get("axis", 1) if scale.size > 1 else None
    one = scale.size == 1
    parameters = AffineParameters(
        scale.reshape(()) if one else scale, point.reshape(()) if one else point, stored[node.input[0]].data_type, axis,
        given.get("block_size", 0),
    )  # fmt: skip
    return dequantized(codes, parameters, scale.dtype)


def compute_signal_to_quantization_noice_ratio(x: Arrays, y: Arrays) -> float:
    """The ratio of the norms of `x` and of `x - y`, in decibels.

    Raises:
        InvalidArgument: another number of arrays.
    """
    first, second = ([a] if isinstance(a, np.ndarray) else list(a) for a in (x, y))
    if len(first) != len(second):
        raise InvalidArgument(f"Unequal number of tensors to compare: {len(first)} and {len(second)}")
    left, right = (np.concatenate([a.reshape(-1) for a in arrays]).astype(np.float64) for arrays in (first, second))
    least = float(np.finfo(np.float64).eps)
    return 20 * math.log10(max(float(np.linalg.norm(left)), least) / max(float(np.linalg.norm(left - right)), least))


def compute_weight_error(
    weights_match: Mapping[str, Mapping[str, np.ndarray]],
    err_func: Callable[[Any, Any], float] = compute_signal_to_quantization_noice_ratio,
) -> dict[str, float]:
    """The error of each weight."""
    return {name: err_func(match["float"], match["dequantized"]) for name, match in weights_match.items()}


def compute_activation_error(
    activations_match: Mapping[str, Mapping[str, Sequence[np.ndarray]]],
    err_func: Callable[[Any, Any], float] = compute_signal_to_quantization_noice_ratio,
) -> dict[str, dict[str, float]]:
    """The error of each value by its own pair ("qdq_err") and against the model of floats ("xmodel_err")."""
    found = {}
    for name, match in activations_match.items():
        found[name] = {"qdq_err": err_func(match["pre_qdq"], match["post_qdq"])}
        if match.get("float"):
            found[name]["xmodel_err"] = err_func(match["float"], match["post_qdq"])
    return found
