"""`ONNXModel`: a model with the helpers that scripts on onnxruntime's quantiser use."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from intarsia.errors import InvalidArgument
from intarsia.quantization.description.gemm_rewrite import gemm_as_matmul
from intarsia.quantization.description.model_editor import attributes_of, keep_initializers, rename
from intarsia.quantization.description.model_files import save_model
from intarsia.quantization.description.node_order import in_order, names_read, subgraphs


class ONNXModel:
    """A model in memory; methods change it in place.

    Attributes:
        model: the `onnx.ModelProto`.
    """

    def __init__(self, model: onnx.ModelProto) -> None:
        self.model = model

    def nodes(self) -> Any:
        """The graph's nodes."""
        return self.model.graph.node

    def initializer(self) -> Any:
        """The graph's stored tensors."""
        return self.model.graph.initializer

    def initializer_extend(self, inits: Iterable[onnx.TensorProto]) -> None:
        """Store tensors.

        Raises:
            InvalidArgument: one without a name.
        """
        tensors = list(inits)
        if not all(t.name for t in tensors):
            raise InvalidArgument("initializer_extend: expected tensors with names, got one without")
        self.model.graph.initializer.extend(tensors)

    def graph(self) -> onnx.GraphProto:
        """The model's graph."""
        return self.model.graph

    def ir_version(self) -> int:
        """The version of ONNX's file format."""
        return int(self.model.ir_version)

    def opset_import(self) -> Any:
        """The operator sets that the model imports."""
        return self.model.opset_import

    def set_opset_import(self, domain: str, version: int) -> None:
        """Import a version of an operator set."""
        for entry in self.model.opset_import:
            if entry.domain == domain:
                entry.version = version
                return
        self.model.opset_import.append(helper.make_opsetid(domain, version))

    def remove_node(self, node: onnx.NodeProto) -> None:
        """Remove a node; one that is not there is no error."""
        if node in self.model.graph.node:
            self.model.graph.node.remove(node)

    def remove_nodes(self, nodes_to_remove: Iterable[onnx.NodeProto]) -> None:
        """Remove nodes."""
        for node in nodes_to_remove:
            self.remove_node(node)

    def add_node(self, node: onnx.NodeProto) -> None:
        """Add a node at the end."""
        self.model.graph.node.extend([node])

    def add_nodes(self, nodes_to_add: Iterable[onnx.NodeProto]) -> None:
        """Add nodes at the end."""
        self.model.graph.node.extend(nodes_to_add)

    def add_initializer(self, tensor: onnx.TensorProto) -> None:
        """Store a tensor, unless one has its name."""
        if self.get_initializer(tensor.name) is None:
            self.initializer_extend([tensor])

    def get_initializer(self, name: str) -> onnx.TensorProto | None:
        """The stored tensor of this name."""
        return next((t for t in self.model.graph.initializer if t.name == name), None)

    def find_graph_input(self, input_name: str) -> onnx.ValueInfoProto | None:
        """The input of this name."""
        return next((v for v in self.model.graph.input if v.name == input_name), None)

    def find_graph_output(self, output_name: str) -> onnx.ValueInfoProto | None:
        """The output of this name."""
        return next((v for v in self.model.graph.output if v.name == output_name), None)

    def get_tensor_type(self, tensor_name: str) -> Any:
        """The tensor type of a value, where the model states it."""
        graph = self.model.graph
        for value in (*graph.value_info, *graph.output, *graph.input):
            if value.name == tensor_name and value.type.HasField("tensor_type"):
                return value.type.tensor_type
        return None

    def get_constant_value(self, output_name: str) -> np.ndarray | None:
        """The array of a Constant's output or a stored tensor; None for what is computed."""
        for node in self.model.graph.node:
            if node.op_type == "Constant" and output_name in node.output:
                return _constant(node)
        stored = self.get_initializer(output_name)
        return None if stored is None else np.asarray(numpy_helper.to_array(stored))

    def get_initializer_name_set(self) -> set[str]:
        """The names of stored tensors."""
        return {t.name for t in self.model.graph.initializer}

    def remove_initializer(self, tensor: onnx.TensorProto) -> None:
        """Remove a stored tensor, and an input of its name."""
        if tensor in self.model.graph.initializer:
            name = tensor.name
            self.model.graph.initializer.remove(tensor)
            for value in [v for v in self.model.graph.input if v.name == name]:
                self.model.graph.input.remove(value)

    def remove_initializers(self, init_to_remove: Iterable[onnx.TensorProto]) -> None:
        """Remove stored tensors."""
        for tensor in init_to_remove:
            self.remove_initializer(tensor)

    def get_non_initializer_inputs(self) -> set[str]:
        """The names of inputs that callers give."""
        return {v.name for v in self.model.graph.input} - self.get_initializer_name_set()

    def input_name_to_nodes(self) -> dict[str, list[onnx.NodeProto]]:
        """Value -> the nodes that read it, once for each input."""
        found: dict[str, list[onnx.NodeProto]] = {}
        for node in self.model.graph.node:
            for name in node.input:
                if name:
                    found.setdefault(name, []).append(node)
        return found

    def output_name_to_node(self) -> dict[str, onnx.NodeProto]:
        """Value -> the node that computes it."""
        return {name: node for node in self.model.graph.node for name in node.output if name}

    def get_children(
        self, node: onnx.NodeProto, input_name_to_nodes: dict[str, list[onnx.NodeProto]] | None = None
    ) -> list[onnx.NodeProto]:
        """The nodes that read a node's outputs."""
        readers = self.input_name_to_nodes() if input_name_to_nodes is None else input_name_to_nodes
        return [reader for name in node.output for reader in readers.get(name, ())]

    def get_parents(
        self, node: onnx.NodeProto, output_name_to_node: dict[str, onnx.NodeProto] | None = None
    ) -> list[onnx.NodeProto]:
        """The nodes that compute a node's inputs."""
        makers = self.output_name_to_node() if output_name_to_node is None else output_name_to_node
        return [makers[name] for name in node.input if name in makers]

    def get_parent(
        self, node: onnx.NodeProto, idx: int, output_name_to_node: dict[str, onnx.NodeProto] | None = None
    ) -> onnx.NodeProto | None:
        """The node that computes input `idx`."""
        makers = self.output_name_to_node() if output_name_to_node is None else output_name_to_node
        return makers.get(node.input[idx]) if idx < len(node.input) else None

    def find_node_by_name(
        self, node_name: str, new_nodes_list: Iterable[onnx.NodeProto], graph: onnx.GraphProto
    ) -> onnx.NodeProto | None:
        """The node of this name in a graph, or else among new nodes."""
        return next((n for n in (*graph.node, *new_nodes_list) if n.name == node_name), None)

    def get_largest_node_name_suffix(self, node_name_prefix: str) -> int:
        """The largest number behind this prefix in names of nodes; -1 where there is none."""
        return _largest_suffix((n.name for n in self.model.graph.node), node_name_prefix)

    def get_largest_initializer_name_suffix(self, initializer_name_prefix: str) -> int:
        """The largest number behind this prefix in names of stored tensors; -1 where there is none."""
        return _largest_suffix((t.name for t in self.model.graph.initializer), initializer_name_prefix)

    def find_nodes_by_initializer(self, graph: onnx.GraphProto, initializer: onnx.TensorProto) -> list[onnx.NodeProto]:
        """The nodes of a graph that read a stored tensor, once for each input."""
        return [node for node in graph.node for name in node.input if name == initializer.name]

    def replace_gemm_with_matmul(self) -> dict[str, str]:
        """Write each Gemm without factors as MatMul and Add, graphs inside included.

        Returns:
            Transposed weights that were stored for it -> what they are the transposed of.
        """
        return gemm_as_matmul(self.model)

    def save_model_to_file(self, output_path: str | os.PathLike[str], use_external_data_format: bool = False) -> None:
        """Write the model, its nodes sorted.

        Args:
            use_external_data_format: weights go into a file `OUTPUT.data` beside it.
        """
        self.topological_sort()
        save_model(self.model, output_path, external=use_external_data_format)

    @staticmethod
    def replace_node_input(node: onnx.NodeProto, old_input_name: str, new_input_name: str) -> None:
        """Replace a name among a node's inputs."""
        rename(node.input, old_input_name, new_input_name)

    @staticmethod
    def replace_node_output(node: onnx.NodeProto, old_output_name: str, new_output_name: str) -> None:
        """Replace a name among a node's outputs."""
        rename(node.output, old_output_name, new_output_name)

    def replace_input_of_all_nodes(self, old_input_name: str, new_input_name: str) -> None:
        """Replace a name among the inputs of all nodes."""
        for node in self.model.graph.node:
            rename(node.input, old_input_name, new_input_name)

    def replace_input_of_nodes(self, old_input_name: str, new_input_name: str, node_names_set: Collection[str]) -> None:
        """Replace a name among the inputs of nodes with these names."""
        for node in self.model.graph.node:
            if node.name in node_names_set:
                rename(node.input, old_input_name, new_input_name)

    def replace_output_of_all_nodes(self, old_output_name: str, new_output_name: str) -> None:
        """Replace a name among the outputs of all nodes."""
        for node in self.model.graph.node:
            rename(node.output, old_output_name, new_output_name)

    def replace_output_of_nodes(self, old_output_name: str, new_output_name: str, node_names_set: Collection[str]) -> None:
        """Replace a name among the outputs of nodes with these names."""
        for node in self.model.graph.node:
            if node.name in node_names_set:
                rename(node.output, old_output_name, new_output_name)

    def remove_unused_constant(self) -> None:
        """Remove Constant nodes and stored tensors that nothing reads."""
        graph = self.model.graph
        read = {*names_read(graph), *(v.name for v in graph.output)}
        self.remove_nodes([n for n in graph.node if n.op_type == "Constant" and not read & set(n.output)])
        keep_initializers(graph, lambda t: t.name in read)

    def is_graph_output(self, output_name: str) -> bool:
        """Whether the model has an output of this name."""
        return self.find_graph_output(output_name) is not None

    def is_graph_input(self, tensor_name: str) -> bool:
        """Whether the model has an input of this name."""
        return self.find_graph_input(tensor_name) is not None

    def topological_sort(self) -> None:
        """Sort the nodes, so that each comes behind those whose outputs it reads.

        Raises:
            InvalidGraph: that cannot be.
        """
        graph = self.model.graph
        known = [*(t.name for t in graph.initializer), *(t.values.name for t in graph.sparse_initializer)]
        nodes = list(in_order(graph.node, [*known, *(v.name for v in graph.input)]))
        fresh = [onnx.NodeProto.FromString(n.SerializeToString()) for n in nodes]
        graph.ClearField("node")
        graph.node.extend(fresh)

    def clean_initializers(self) -> tuple[onnx.GraphProto, set[str]]:
        """Remove stored tensors that nothing reads, in bodies too.

        Returns:
            The graph, and names that are read and that nothing gives.
        """
        graph = self.model.graph
        _clean(graph, set())
        return graph, _unknown(graph, set())


def _constant(node: onnx.NodeProto) -> np.ndarray:
    name, value = next(iter(attributes_of(node).items()))
    if name == "value":
        return np.asarray(numpy_helper.to_array(value))
    kinds = {"value_float": np.float32, "value_floats": np.float32, "value_int": np.int64, "value_ints": np.int64}
    return np.asarray(value, kinds.get(name))


def _largest_suffix(names: Iterable[str], prefix: str) -> int:
    tails = (name[len(prefix) :] for name in names if name.startswith(prefix))
    return max((int(tail) for tail in tails if tail.isdigit()), default=-1)


def _clean(graph: onnx.GraphProto, outer: set[str]) -> None:
    """Remove what is stored and not read; names that only bodies read count."""
    read = {*names_read(graph), *(v.name for v in graph.output), *outer}
    keep_initializers(graph, lambda t: t.name in read)
    for node in graph.node:
        for sub in subgraphs(node):
            _clean(sub, set())


def _unknown(graph: onnx.GraphProto, outer: set[str]) -> set[str]:
    known = {*outer, *(v.name for v in graph.input), *(t.name for t in graph.initializer)}
    known |= {t.values.name for t in graph.sparse_initializer} | {n for node in graph.node for n in node.output}
    read = {n for node in graph.node for n in node.input if n}
    found = read - known
    for node in graph.node:
        for sub in subgraphs(node):
            found |= _unknown(sub, known)
    return found
