"""`qnn_preprocess_model`: a model in operators that Qualcomm's QNN runs as one, with channels last on request."""

from __future__ import annotations

import os
from collections.abc import Collection
from dataclasses import dataclass

import onnx
from onnx import external_data_helper, helper

from intarsia.compat.declared_arguments import takes
from intarsia.errors import InvalidArgument
from intarsia.quantization.description.model_editor import rename
from intarsia.quantization.description.model_files import load_model, with_shapes
from intarsia.quantization.description.pattern_fusions import fuse_gelu, fuse_layer_normalization, fuse_lp_normalization
from intarsia.quantization.description.tensor_marks import logger, opset_of
from intarsia.quantization.onnx_model import ONNXModel
from intarsia.quantization.quantize import Source
from intarsia.tools.onnx_model_utils import fix_output_shapes, make_input_shape_fixed


@dataclass
class QnnPreprocessArguments:
    """Arguments of `qnn_preprocess_model`, as onnxruntime has them.

    Attributes:
        model_input: a path or a model, which stays as it is.
        model_output: written where anything changes.
        exclude_initializer_from_input: stored tensors are no inputs.
        fuse_layernorm: LayerNormalization, too, from opset 17 on.
        save_as_external_data and what follows it: as of `onnx.save_model`.
        inputs_to_make_channel_last, outputs_to_make_channel_last: names of those that are [N, C, ...] and become [N, ..., C].
        dynamic_input_shapes: inputs and their sizes, such as ("x", "1,3,224,224").
    """

    model_input: Source
    model_output: str | os.PathLike[str]
    exclude_initializer_from_input: bool = False
    fuse_layernorm: bool = False
    save_as_external_data: bool = False
    all_tensors_to_one_file: bool = False
    external_data_location: str | None = None
    external_data_size_threshold: int = 1024
    external_data_convert_attribute: bool = False
    inputs_to_make_channel_last: list[str] | None = None
    outputs_to_make_channel_last: list[str] | None = None
    dynamic_input_shapes: list[tuple[str, str]] | None = None


@takes(QnnPreprocessArguments)
def qnn_preprocess_model(given: QnnPreprocessArguments) -> bool:
    """Prepare a model; arguments as of `QnnPreprocessArguments`. Returns whether it changed, and was written.

    Raises:
        InvalidArgument: names that are no inputs or outputs, or such of fewer than three axes.
    """
    model = with_shapes(load_model(given.model_input))
    changed = False
    for name, sizes in given.dynamic_input_shapes or ():
        make_input_shape_fixed(model.graph, name, [int(size) for size in sizes.split(",")])
        changed = True
    if changed:
        fix_output_shapes(model)
    if given.exclude_initializer_from_input:
        changed |= _without_stored_inputs(model)
    changed |= fuse_gelu(model)
    changed |= fuse_lp_normalization(model)
    if given.fuse_layernorm and opset_of(model) < 17:
        logger.warning("opset %d has no LayerNormalization: convert the model to opset 17", opset_of(model))
    elif given.fuse_layernorm:
        changed |= fuse_layer_normalization(model)
    wanted = set(given.inputs_to_make_channel_last or ()), set(given.outputs_to_make_channel_last or ())
    if wanted[0] or wanted[1]:
        _channels_last(model, *wanted)
        changed = True
    changed |= _name_nodes(model)
    if changed:
        ONNXModel(model).topological_sort()
        _write(model, given)
    return changed


def _without_stored_inputs(model: onnx.ModelProto) -> bool:
    stored = {t.name for t in model.graph.initializer}
    both = [value for value in model.graph.input if value.name in stored]
    for value in both:
        model.graph.input.remove(value)
    return bool(both)


def _name_nodes(model: onnx.ModelProto) -> bool:
    prefix = "qnn_preproc_node_"
    number, found = ONNXModel(model).get_largest_node_name_suffix(prefix) + 1, False
    for node in model.graph.node:
        if not node.name and node.op_type != "Constant":
            node.name = f"{prefix}{number}"
            number, found = number + 1, True
    return found


def _channels_last(model: onnx.ModelProto, inputs: Collection[str], outputs: Collection[str]) -> None:
    """Turn inputs and outputs, with a Transpose behind each of those and before each of these."""
    graph = model.graph
    number = ONNXModel(model).get_largest_node_name_suffix("Transpose_channel_") + 1
    for names, values, kind in ((inputs, graph.input, "input"), (outputs, graph.output, "output")):
        known = {value.name: value for value in values}
        for name in sorted(names):
            if name not in known:
                raise InvalidArgument(f"{name} is not a graph {kind}: expected one of {', '.join(known)}")
            dims = known[name].type.tensor_type.shape.dim
            rank = len(dims)
            if rank < 3:
                raise InvalidArgument(f"Expected {kind} {name} to be of rank >= 3, got rank {rank}")
            inner = f"{name}_channel_first"
            for node in graph.node:
                rename(node.input, name, inner)
                rename(node.output, name, inner)
            moved = [dims[0], *dims[2:], dims[1]]
            turned = [onnx.TensorShapeProto.Dimension.FromString(d.SerializeToString()) for d in moved]
            del dims[:]
            dims.extend(turned)
            first, last = [0, rank - 1, *range(1, rank - 1)], [0, *range(2, rank), 1]
            reads, gives, order = (name, inner, first) if kind == "input" else (inner, name, last)
            graph.node.append(helper.make_node("Transpose", [reads], [gives], f"Transpose_channel_{number}", perm=order))
            number += 1
    del graph.value_info[:]


def _write(model: onnx.ModelProto, given: QnnPreprocessArguments) -> None:
    if given.save_as_external_data:
        external_data_helper.convert_model_to_external_data(
            model, given.all_tensors_to_one_file, given.external_data_location, given.external_data_size_threshold,
            given.external_data_convert_attribute,
        )  # fmt: skip
    onnx.save_model(model, os.fspath(given.model_output))
