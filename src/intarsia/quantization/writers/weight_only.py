"""Products by weights of few bits in blocks: MatMulNBits, or DequantizeLinear of blocks before a MatMul; tables likewise."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import ml_dtypes
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from intarsia.errors import InvalidArgument
from intarsia.quantization.calibration.observed_runs import ObservedModel
from intarsia.quantization.description.model_editor import attributes_of, copied, keep_initializers
from intarsia.quantization.description.node_order import names_read, subgraphs
from intarsia.quantization.description.tensor_marks import logger
from intarsia.quantization.description.weights_in_file import stored_array
from intarsia.quantization.numerics.block_weights import BlockFormat, BlockWeights, nearest, packed_bits
from intarsia.quantization.numerics.gptq import GptqSettings, InputMoments, gptq
from intarsia.quantization.numerics.shares import computed_ahead
from intarsia.quantization.writers.qdq import MICROSOFT, set_import

Compute = Callable[[onnx.NodeProto, np.ndarray, BlockFormat], BlockWeights]
"""A node, its weights [K, N] and a format -> the weights in blocks."""


@dataclass(frozen=True)
class WeightOnlyPlan:
    """What is quantised of a model's weights.

    Attributes:
        form: bits and blocks.
        compute: the algorithm.
        pairs: DequantizeLinear before float operators, else onnxruntime's operators on codes.
        op_types: MatMul, Gather or both.
        excluded, included: names of nodes to leave; of nodes that are taken whatever their operator.
        whole_columns: one block for each column (with `pairs`).
        accuracy_level: of MatMulNBits.
        table_axis: the axis of blocks of a Gather's table.
        formats: node -> another format than `form`.
        folder: of the model's file, where weights that were not read lie.
    """

    form: BlockFormat
    compute: Compute = lambda node, weights, form: nearest(weights, form)
    pairs: bool = False
    op_types: frozenset[str] = frozenset({"MatMul"})
    excluded: frozenset[str] = frozenset()
    included: frozenset[str] = frozenset()
    whole_columns: bool = False
    accuracy_level: int = 0
    table_axis: int = 1
    formats: dict[str, BlockFormat] = field(default_factory=dict)
    folder: str = ""

    def wants(self, node: onnx.NodeProto) -> bool:
        """Whether a node's weights are to be quantised."""
        if node.name in self.excluded or node.op_type not in ("MatMul", "Gather") or node.domain:
            return False
        return node.name in self.included or node.op_type in self.op_types


def quantize_weights(model: onnx.ModelProto, plan: WeightOnlyPlan) -> int:
    """Write the model, in place, with weights in blocks; bodies of control flow too. Returns how many nodes have them."""
    if plan.pairs or "Gather" in plan.op_types:
        _require(model, 25 if plan.form.bits == 2 and plan.pairs else 21)
    if not plan.pairs:
        set_import(model, MICROSOFT, 1)
    count = _graph(plan, [model.graph])
    read = {*names_read(model.graph), *(v.name for v in model.graph.output)}
    keep_initializers(model.graph, lambda t: t.name in read)
    return count


def _require(model: onnx.ModelProto, opset: int) -> None:
    """Let a model import the operator set that has such types, and the file format."""
    for entry in model.opset_import:
        if entry.domain in ("", "ai.onnx") and entry.version < opset:
            logger.warning("opset %d has no weights of this kind: the model imports opset %d from now on", entry.version, opset)
            entry.version = opset
    model.ir_version = max(model.ir_version, 10 if opset < 25 else 13)


def _graph(plan: WeightOnlyPlan, path: Sequence[onnx.GraphProto]) -> int:
    graph, nodes, count = path[-1], [], 0
    owned = [copied(node) for node in graph.node]
    matrices = {id(own): _matrix(plan, own, path) for own in owned if own.op_type == "MatMul" and plan.wants(own)}
    blocks = computed_ahead(
        (math.prod(matrix.tensor.dims) * 4, partial(_blocks, plan, matrix)) for matrix in matrices.values() if matrix
    )
    for own in owned:
        for sub in subgraphs(own):
            count += _graph(plan, [*path, sub])
        made = None
        if own.op_type == "MatMul":
            matrix = matrices.get(id(own))
            made = _product(plan, matrix, next(blocks), path) if matrix is not None else None
        elif plan.wants(own):
            made = _gather(plan, own, path)
        count += made is not None
        nodes += [own] if made is None else made
    graph.ClearField("node")
    graph.node.extend(nodes)
    return count


def _stored(name: str, path: Sequence[onnx.GraphProto]) -> tuple[TensorProto, onnx.GraphProto] | None:
    """A stored tensor of floats, and the graph that has it."""
    for graph in reversed(path):
        for tensor in graph.initializer:
            if tensor.name == name:
                kinds = (TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16)
                return (tensor, graph) if tensor.data_type in kinds else None
    return None


def _add(graph: onnx.GraphProto, tensors: Sequence[TensorProto]) -> None:
    there = {t.name for t in graph.initializer}
    graph.initializer.extend(t for t in tensors if t.name not in there)


def _in_type(values: np.ndarray, name: str, kind: int) -> TensorProto:
    dtype: Any = {TensorProto.FLOAT16: np.float16, TensorProto.BFLOAT16: ml_dtypes.bfloat16}.get(kind, np.float32)
    return TensorProto(
        name=name, data_type=kind, dims=values.shape, raw_data=np.ascontiguousarray(values.astype(dtype)).tobytes()
    )


@dataclass(frozen=True)
class _Matrix:
    """A MatMul's stored weights, and the graph that has them."""

    node: onnx.NodeProto
    tensor: TensorProto
    graph: onnx.GraphProto


def _matrix(plan: WeightOnlyPlan, node: onnx.NodeProto, path: Sequence[onnx.GraphProto]) -> _Matrix | None:
    """The weights that are to be in blocks; None where there are none."""
    found = _stored(node.input[1], path)
    if found is None:
        return None
    shape = list(found[0].dims)
    if len(shape) < 2 or any(size != 1 for size in shape[:-2]) or 0 in shape:
        logger.info("%s: its weights of shape %s are no matrix, and stay as they are", node.name, shape)
        return None
    return _Matrix(node, *found)


def _blocks(plan: WeightOnlyPlan, matrix: _Matrix) -> BlockWeights:
    """The weights in blocks; threads do this for several matrices at once."""
    node, tensor = matrix.node, matrix.tensor
    weights = stored_array(tensor, plan.folder)
    if tensor.data_type == TensorProto.BFLOAT16:
        weights = weights.astype(np.float32)
    weights = weights.reshape(list(tensor.dims)[-2:])
    form = plan.formats.get(node.name, plan.form)
    if plan.pairs and plan.whole_columns:
        form = BlockFormat(form.bits, -(-len(weights) // 8) * 8, form.symmetric)
    blocks = plan.compute(node, weights, form)
    if not plan.pairs:
        _ = blocks.packed_columns  # here, where other matrices are not waited for
    return blocks


def _product(
    plan: WeightOnlyPlan, matrix: _Matrix, blocks: BlockWeights, path: Sequence[onnx.GraphProto]
) -> list[onnx.NodeProto]:
    node, tensor, graph = matrix.node, matrix.tensor, matrix.graph
    shape, ranked = list(tensor.dims), _rank(node.input[0], path)
    lower = len(shape) > 2 and (ranked is None or ranked < len(shape))
    result = f"{node.output[0]}_pre_reshape" if lower else node.output[0]
    make = _pair_nodes if plan.pairs else _nbits_nodes
    nodes = make(plan, node, tensor, graph, blocks, result)
    if lower:
        nodes += _with_leading_axes(node, len(shape), int(shape[-1]), result, graph)
    return nodes


def _nbits_nodes(
    plan: WeightOnlyPlan, node: onnx.NodeProto, tensor: TensorProto, graph: onnx.GraphProto, blocks: BlockWeights, result: str
) -> list[onnx.NodeProto]:
    form, rows, columns = blocks.format, int(tensor.dims[-2]), int(tensor.dims[-1])
    codes = numpy_helper.from_array(blocks.packed_columns, f"{tensor.name}_Q{form.bits}")
    scales = _in_type(blocks.scales.T, f"{tensor.name}_scales", tensor.data_type)
    stored, points = [codes, scales], blocks.packed_points()
    if points is not None:
        name = f"{tensor.name}_zero_points"
        stored.append(
            numpy_helper.from_array(points, name) if points.dtype == np.uint8 else _in_type(points, name, tensor.data_type)
        )
    _add(graph, stored)
    extra = {"accuracy_level": plan.accuracy_level} if plan.accuracy_level else {}
    return [
        helper.make_node(
            "MatMulNBits", [node.input[0], *(t.name for t in stored)], [result],
            f"{node.name}_Q{form.bits}" if node.name else "", domain=MICROSOFT, K=rows, N=columns, bits=form.bits,
            block_size=form.block, **extra,
        )
    ]  # fmt: skip


def _pair_nodes(
    plan: WeightOnlyPlan, node: onnx.NodeProto, tensor: TensorProto, graph: onnx.GraphProto, blocks: BlockWeights, result: str
) -> list[onnx.NodeProto]:
    form, rows, columns = blocks.format, int(tensor.dims[-2]), int(tensor.dims[-1])
    kind = _code_type(form)
    codes = blocks.codes.reshape(-1, columns)[:rows]
    prefix = f"{tensor.name}_DQ"
    stored = [_codes(f"{prefix}_Q{form.bits}", codes, kind, form)]
    transposed = plan.whole_columns and form.symmetric  # rows of weights beside each other, as NPUs read them
    scales = blocks.scales
    if transposed:
        stored = [_codes(f"{prefix}_Q{form.bits}", np.ascontiguousarray(codes.T), kind, form)]
        scales = scales.T
    stored.append(_in_type(scales, f"{prefix}_scales", tensor.data_type))
    if blocks.points is not None:
        if blocks.points.dtype != np.uint8:
            raise InvalidArgument(
                "DequantizeLinear: expected whole zero points; half-quadratic ones need MatMulNBits (QOperator)"
            )
        stored.append(_codes(f"{prefix}_zero_points", blocks.points, kind, form))
    _add(graph, stored)
    weights = f"{stored[0].name}_output"
    nodes = [
        helper.make_node(
            "DequantizeLinear", [t.name for t in stored], [weights], f"{node.name}_DQ_Q{form.bits}" if node.name else "",
            axis=int(transposed), block_size=rows if plan.whole_columns else form.block,
        )
    ]  # fmt: skip
    if transposed:
        nodes.append(helper.make_node("Transpose", [weights], [f"{weights}_transposed"], perm=[1, 0]))
        weights = f"{weights}_transposed"
    name = f"{node.name}_matmul_Q{form.bits}" if node.name else ""
    return [*nodes, helper.make_node("MatMul", [node.input[0], weights], [result], name)]


def _code_type(form: BlockFormat) -> int:
    names = {2: ("UINT2", "INT2"), 4: ("UINT4", "INT4"), 8: ("UINT8", "INT8")}[form.bits]
    found: int = TensorProto.DataType.Value(names[form.symmetric])
    return found


def _codes(name: str, codes: np.ndarray, kind: int, form: BlockFormat) -> TensorProto:
    """Codes in their order; symmetric ones about 0."""
    flat = codes.reshape(-1)
    if form.symmetric:
        flat = flat ^ np.uint8(form.middle)  # code - middle in two's complement: only the top bit differs
    per = 8 // form.bits
    if flat.size % per:
        flat = np.append(flat, np.zeros(per - flat.size % per, np.uint8))
    return TensorProto(name=name, data_type=kind, dims=codes.shape, raw_data=packed_bits(flat, form.bits).tobytes())


def _rank(name: str, path: Sequence[onnx.GraphProto]) -> int | None:
    """The rank of a value, where a graph states it."""
    for graph in reversed(path):
        for value in (*graph.input, *graph.value_info, *graph.output):
            if value.name == name:
                tensor = value.type.tensor_type
                return len(tensor.shape.dim) if tensor.HasField("shape") else None
    return None


def _with_leading_axes(
    node: onnx.NodeProto, rank: int, columns: int, product: str, graph: onnx.GraphProto
) -> list[onnx.NodeProto]:
    """Nodes that give a product the leading axes of size 1 that weights of a higher rank than its input had."""
    prefix = f"{node.name or 'matmul'}_{node.output[0]}"

    def constant(tail: str, values: Any) -> str:
        _add(graph, [numpy_helper.from_array(np.array(values, np.int64), f"{prefix}_{tail}")])
        return f"{prefix}_{tail}"

    def do(op_type: str, reads: Sequence[str], tail: str, **extra: Any) -> str:
        nodes.append(helper.make_node(op_type, list(reads), [f"{prefix}_{tail}"], f"{prefix}_{tail}_node", **extra))
        return f"{prefix}_{tail}"

    nodes: list[onnx.NodeProto] = []
    vector = constant("vector", [1])
    shape = do("Shape", [node.input[0]], "shape")
    own_rank = do("Gather", [do("Shape", [shape], "ranks"), constant("none", 0)], "rank")
    of_product = do("Max", [own_rank, constant("two", 2)], "rank_of_product")  # a vector is a matrix of one row
    lacks = do("Sub", [constant("rank_of_weights", rank), of_product], "lacks")
    missing = do("Reshape", [do("Max", [lacks, constant("none", 0)], "missing"), vector], "missing_vector")
    ones = do("ConstantOfShape", [missing], "ones", value=helper.make_tensor("one", TensorProto.INT64, [1], [1]))
    last = do("Reshape", [do("Sub", [own_rank, constant("one", 1)], "last_axis"), vector], "last_axis_vector")
    first = constant("first", [0])
    rows = do("Slice", [shape, first, last, first], "rows")
    target = do("Concat", [ones, rows, constant("columns", [columns])], "target_shape", axis=0)
    nodes.append(helper.make_node("Reshape", [product, target], [node.output[0]], f"{prefix}_reshape"))
    return nodes


def _gather(plan: WeightOnlyPlan, node: onnx.NodeProto, path: Sequence[onnx.GraphProto]) -> list[onnx.NodeProto] | None:
    """GatherBlockQuantized: rows of a table in blocks of 4 bits."""
    found = _stored(node.input[0], path)
    form = plan.formats.get(node.name, plan.form)
    if found is None or form.bits not in (4, 8) or plan.pairs:
        logger.info("%s: its table is computed, or not wanted in 4 or 8 bits by QOperator; it stays as it is", node.name)
        return None
    tensor, graph = found
    values = stored_array(tensor, plan.folder).astype(np.float32)
    if form.block < 16 or form.block & (form.block - 1):
        raise InvalidArgument(
            f"Invalid block size for Gather node {node.name!r}: expected a power of two from 16 on, got {form.block}"
        )
    if not -values.ndim <= plan.table_axis < values.ndim:
        raise InvalidArgument(f"Invalid quantize axis for Gather node {node.name!r}: {plan.table_axis} of rank {values.ndim}")
    axis = plan.table_axis % values.ndim
    moved = np.moveaxis(values, axis, 0)
    blocks = nearest(moved.reshape(len(moved), -1), form)

    def back(rows: np.ndarray) -> np.ndarray:
        return np.ascontiguousarray(np.moveaxis(rows.reshape(-1, *moved.shape[1:]), 0, axis))

    kind = _code_type(form)
    codes = blocks.codes.reshape(len(blocks.scales) * form.block, -1)[: len(moved)]
    stored = [_codes(f"{tensor.name}_Q{form.bits}", back(codes), kind, form)]
    reads = [stored[0].name, node.input[1], f"{tensor.name}_scales"]
    stored.append(_in_type(back(blocks.scales), reads[2], tensor.data_type))
    if blocks.points is not None:
        stored.append(_codes(f"{tensor.name}_zero_points", back(blocks.points), kind, form))
        reads.append(stored[-1].name)
    _add(graph, stored)
    extra: dict[str, Any] = {"bits": form.bits} if form.bits != 4 else {}
    return [
        helper.make_node(
            "GatherBlockQuantized", reads, node.output, f"{node.name}_Q{form.bits}" if node.name else "", domain=MICROSOFT,
            gather_axis=attributes_of(node).get("axis", 0), quantize_axis=axis, block_size=form.block, **extra,
        )
    ]  # fmt: skip


def input_moments(source: Any, graph: onnx.GraphProto, feeds: Iterable[Mapping[str, Any]]) -> dict[str, InputMoments]:
    """The moments of the inputs of all products by stored weights, by name, in one pass over the data.

    Args:
        source: of the model, as of `ObservedModel`; `graph`: its graph.
    """
    found = {node.input[0]: InputMoments() for node in products_by_stored_weights(graph)}
    observed = ObservedModel(source, found)
    for feed in feeds:
        observed.run(feed, lambda name, values: found[name].add(values))
    return found


def gptq_compute(moments: Mapping[str, InputMoments], settings: GptqSettings) -> Compute:
    """GPTQ of each product by the moments of its input."""

    def compute(node: onnx.NodeProto, weights: np.ndarray, form: BlockFormat) -> BlockWeights:
        return gptq(weights, form, moments.get(node.input[0], InputMoments()), settings)

    return compute


def products_by_stored_weights(graph: onnx.GraphProto, names: Collection[str] = ()) -> list[onnx.NodeProto]:
    """The MatMul nodes of a graph (those of these names, if any are given) by stored matrices."""
    stored = {t.name for t in graph.initializer if len(t.dims) >= 2}
    return [
        n for n in graph.node
        if n.op_type == "MatMul" and n.input[1] in stored and n.input[0] not in stored and (not names or n.name in names)
    ]  # fmt: skip
