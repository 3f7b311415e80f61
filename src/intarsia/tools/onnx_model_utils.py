"""Sizes of a model's inputs, its operator sets, and its optimised form."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from intarsia.errors import InvalidArgument, nearest
from intarsia.graph.formats.atomic_write import replace_file
from intarsia.values.ort_enums import GraphOptimizationLevel

if TYPE_CHECKING:
    import onnx

_LEVELS = {
    "disable": GraphOptimizationLevel.ORT_DISABLE_ALL,
    "basic": GraphOptimizationLevel.ORT_ENABLE_BASIC,
    "extended": GraphOptimizationLevel.ORT_ENABLE_EXTENDED,
    "layout": GraphOptimizationLevel.ORT_ENABLE_LAYOUT,
    "all": GraphOptimizationLevel.ORT_ENABLE_ALL,
}


def get_optimization_level(level: str) -> GraphOptimizationLevel:
    """The level by its short name: "disable", "basic", "extended", "layout" or "all".

    Raises:
        InvalidArgument: another word.
    """
    if level not in _LEVELS:
        raise InvalidArgument(f"Invalid optimization level of {level}: {nearest(str(level), _LEVELS)}")
    return _LEVELS[level]


def get_opsets_imported(model: onnx.ModelProto) -> dict[str, int]:
    """Versions of the operator sets that a model imports, by domain; ONNX's own is "ai.onnx"."""
    return {entry.domain or "ai.onnx": entry.version for entry in model.opset_import}


def iterate_graph_per_graph_func(graph: onnx.GraphProto, per_graph_func: Callable[..., Any], **func_args: Any) -> None:
    """Call `per_graph_func(graph, **func_args)` for a graph and then for all graphs inside it."""
    per_graph_func(graph, **func_args)
    for inner in _subgraphs(graph):
        iterate_graph_per_graph_func(inner, per_graph_func, **func_args)


def iterate_graph_per_node_func(graph: onnx.GraphProto, per_node_func: Callable[..., Any], **func_args: Any) -> None:
    """Call `per_node_func(node, **func_args)` for every node of a graph and of the graphs inside it."""
    for node in graph.node:
        per_node_func(node, **func_args)
    for inner in _subgraphs(graph):
        iterate_graph_per_node_func(inner, per_node_func, **func_args)


def _subgraphs(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield attribute.g
            yield from attribute.graphs


def is_fixed_size_tensor(value: onnx.ValueInfoProto) -> bool:
    """Whether it is a tensor of which all sizes are known, and none is 0."""
    tensor = value.type.tensor_type
    return value.type.HasField("tensor_type") and tensor.HasField("shape") and all(d.dim_value > 0 for d in tensor.shape.dim)


def make_dim_param_fixed(graph: onnx.GraphProto, param_name: str, value: int) -> None:
    """Set the symbolic size `param_name` to `value`, wherever the graph and those inside it name it."""
    iterate_graph_per_graph_func(graph, _fix_symbol, name=param_name, size=value)


def _fix_symbol(graph: onnx.GraphProto, name: str, size: int) -> None:
    for value in (*graph.input, *graph.output, *graph.value_info):
        for dim in value.type.tensor_type.shape.dim:
            if dim.dim_param == name:
                dim.ClearField("dim_param")
                dim.dim_value = size


def make_input_shape_fixed(graph: onnx.GraphProto, input_name: str, fixed_shape: Sequence[int]) -> None:
    """Give an input these sizes; a symbol among its sizes gets its value everywhere.

    Raises:
        InvalidArgument: no such input, it has another rank, or another fixed size.
    """
    found = next((value for value in graph.input if value.name == input_name), None)
    if found is None:
        valid = nearest(str(input_name), {value.name for value in graph.input})
        raise InvalidArgument(f"Input {input_name} was not found in graph inputs: {valid}")
    if not found.type.HasField("tensor_type"):
        raise InvalidArgument(f"Expecting tensor input: {input_name} is of another kind")
    tensor = found.type.tensor_type
    if not tensor.HasField("shape"):
        for size in fixed_shape:
            tensor.shape.dim.add(dim_value=size)
        return
    dims = tensor.shape.dim
    if len(dims) != len(fixed_shape):
        raise InvalidArgument(f"input {input_name}: Rank mismatch. Existing: {len(dims)} Replacement: {len(fixed_shape)}")
    for axis, (dim, size) in enumerate(zip(dims, fixed_shape, strict=True)):
        if dim.HasField("dim_value") and dim.dim_value != size:
            raise InvalidArgument(
                f"input {input_name}: Can't replace existing fixed size of {dim.dim_value} with {size} for dimension {axis + 1}"
            )
        if dim.dim_param:
            make_dim_param_fixed(graph, dim.dim_param, size)
        dim.dim_value = size


def fix_output_shapes(model: onnx.ModelProto) -> None:
    """Infer the shapes of outputs that are not fixed, and write those that are now."""
    from intarsia.tools.symbolic_shape_infer import SymbolicShapeInference

    inferred = SymbolicShapeInference.infer_shapes(model, guess_output_rank=True)
    shapes = {output.name: output for output in inferred.graph.output}
    for output in model.graph.output:
        if not is_fixed_size_tensor(output) and is_fixed_size_tensor(shapes[output.name]):
            output.type.CopyFrom(shapes[output.name].type)


def optimize_model(
    model_path: str | os.PathLike[str],
    output_path: str | os.PathLike[str],
    level: GraphOptimizationLevel = GraphOptimizationLevel.ORT_ENABLE_BASIC,
    log_level: int = 3,
    use_external_initializers: bool = False,
) -> None:
    """Write the model as a session on the CPU optimises it.

    Args:
        use_external_initializers: weights of 1 KiB and more go into a file beside it.
    """
    from intarsia import InferenceSession, SessionOptions

    options = SessionOptions()
    options.optimized_model_filepath = os.fspath(output_path)
    options.graph_optimization_level = level
    options.log_severity_level = log_level
    if use_external_initializers:
        options.add_session_config_entry(
            "session.optimized_model_external_initializers_file_name", f"{Path(output_path).name}.data"
        )
        options.add_session_config_entry("session.optimized_model_external_initializers_min_size_in_bytes", "1024")
    InferenceSession(model_path, options, providers=["CPUExecutionProvider"])


def update_onnx_opset(
    model_path: str | os.PathLike[str], opset: int, out_path: str | os.PathLike[str] | None = None, logger: Any = None
) -> onnx.ModelProto:
    """The model with a later version of ONNX's operators (`onnx.version_converter`), written to `out_path` where given.

    Raises:
        InvalidArgument: the version is earlier than the model's.
    """
    import onnx
    from onnx import version_converter

    model = onnx.load(os.fspath(model_path))
    present = get_opsets_imported(model).get("ai.onnx", 0)
    if present > opset:
        raise InvalidArgument(f"{model_path} has opset {present}: expected an opset from there on, got {opset}")
    if logger is not None:
        logger.info("Updating %s to opset %s", model_path, opset)
    updated: onnx.ModelProto = version_converter.convert_version(model, opset)
    if out_path is not None:
        replace_file(out_path, lambda file: onnx.save(updated, file))
    return updated
