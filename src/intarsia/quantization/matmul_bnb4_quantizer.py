"""`MatMulBnb4Quantizer`: weights of products in bitsandbytes' FP4 and NF4."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from intarsia.compat.weight_packing import quantize_matmul_bnb4
from intarsia.errors import InvalidArgument
from intarsia.quantization.description.model_editor import copied, keep_initializers
from intarsia.quantization.description.node_order import names_read, subgraphs
from intarsia.quantization.onnx_model import ONNXModel
from intarsia.quantization.writers.qdq import MICROSOFT


class MatMulBnb4Quantizer:
    """Writes MatMul by constant matrices as MatMulBnb4.

    Args:
        model: changed in place.
        quant_type: FP4 (0) or NF4 (1).
        block_size: weights that share a largest magnitude.
        nodes_to_exclude: names of nodes.

    Raises:
        InvalidArgument: another type.
    """

    FP4, NF4 = 0, 1

    def __init__(
        self, model: onnx.ModelProto, quant_type: int, block_size: int, nodes_to_exclude: Sequence[str] | None = None
    ) -> None:
        if quant_type not in (self.FP4, self.NF4):
            raise InvalidArgument(f"MatMulBnb4Quantizer: expected the type 0 (FP4) or 1 (NF4), got {quant_type!r}")
        self.model = ONNXModel(model)
        self.quant_type, self.block_size = quant_type, block_size
        self.nodes_to_exclude = set(nodes_to_exclude or ())

    def process(self) -> None:
        """Quantise the weights: `model` has the result."""
        model = self.model.model
        self.model.set_opset_import(MICROSOFT, 1)
        self._graph([model.graph])
        read = {*names_read(model.graph), *(v.name for v in model.graph.output)}
        keep_initializers(model.graph, lambda t: t.name in read)

    def _graph(self, path: Sequence[onnx.GraphProto]) -> None:
        graph, nodes = path[-1], []
        for node in graph.node:
            own = copied(node)
            for sub in subgraphs(own):
                self._graph([*path, sub])
            nodes.append(self._replaced(own, path))
        graph.ClearField("node")
        graph.node.extend(nodes)

    def _replaced(self, node: onnx.NodeProto, path: Sequence[onnx.GraphProto]) -> onnx.NodeProto:
        if node.op_type != "MatMul" or node.domain or node.name in self.nodes_to_exclude:
            return node
        found = next(((t, g) for g in reversed(path) for t in g.initializer if t.name == node.input[1]), None)
        if found is None or len(found[0].dims) != 2 or found[0].data_type not in (TensorProto.FLOAT, TensorProto.FLOAT16):
            return node
        tensor, graph = found
        rows, columns = tensor.dims
        weights = np.ascontiguousarray(numpy_helper.to_array(tensor).T)  # in the order of bitsandbytes' linear layers
        codes = np.zeros((weights.size + 1) // 2, np.uint8)
        largest = np.zeros(-(-weights.size // self.block_size), weights.dtype)
        quantize_matmul_bnb4(codes, weights, largest, self.block_size, self.quant_type, columns, rows)
        names = [f"{tensor.name}_Bnb4", f"{tensor.name}_absmax"]
        if all(t.name != names[0] for t in graph.initializer):
            graph.initializer.extend(numpy_helper.from_array(a, n) for a, n in zip((codes, largest), names, strict=True))
        return helper.make_node(
            "MatMulBnb4", [node.input[0], *names], node.output, f"{node.name}_Bnb4" if node.name else "", domain=MICROSOFT,
            K=rows, N=columns, block_size=self.block_size, quant_type=self.quant_type,
        )  # fmt: skip
