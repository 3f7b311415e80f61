"""From an ONNX model to NVIDIA's network: which nodes the parser takes, and whether it reads them as ONNX means them."""

from __future__ import annotations

from typing import Any

from intarsia.graph.dtypes import DType
from intarsia.graph.model import Graph, TensorType
from intarsia.lazy_dataclass import dataclass
from intarsia.providers.tensorrt.library import Library, told
from intarsia.providers.tensorrt.onnx_model import OnnxModel
from intarsia.providers.vendor.translator import Untranslatable

TYPES: dict[DType, str] = {
    DType.FLOAT: "FLOAT", DType.FLOAT16: "HALF", DType.BFLOAT16: "BF16", DType.INT8: "INT8", DType.INT32: "INT32",
    DType.INT64: "INT64", DType.BOOL: "BOOL", DType.UINT8: "UINT8", DType.FLOAT8E4M3FN: "FP8", DType.INT4: "INT4",
    DType.FLOAT4E2M1: "FP4",
}  # fmt: skip
"""ONNX's element types -> the names of NVIDIA's `DataType`."""


@dataclass(frozen=True)
class ParserOptions:
    """How networks are made.

    Attributes:
        strongly_typed: every tensor has the type that the model gives it; TensorRT 10 can also be allowed others.
        native_instance_norm: InstanceNormalization as a layer of TensorRT's own instead of a plugin.
    """

    strongly_typed: bool = True
    native_instance_norm: bool = True


class Network:
    """A network, with the builder that made it: both live as long as this.

    Attributes:
        handle: INetworkDefinition.
        builder: Builder.
    """

    def __init__(self, library: Library, options: ParserOptions) -> None:
        trt = library.module
        self.library = library
        self.builder = trt.Builder(library.logger)
        self.handle = self.builder.create_network(self._creation_flags(options))
        self.parser = trt.OnnxParser(self.handle, library.logger)
        if options.native_instance_norm:
            self.parser.set_flag(trt.OnnxParserFlag.NATIVE_INSTANCENORM)
        self._model: OnnxModel | None = None

    def _creation_flags(self, options: ParserOptions) -> int:
        known = self.library.module.NetworkDefinitionCreationFlag.__members__
        return 1 << int(known["STRONGLY_TYPED"]) if options.strongly_typed and "STRONGLY_TYPED" in known else 0

    def parse(self, model: OnnxModel) -> None:
        """Read a model into the network.

        Raises:
            Untranslatable: the parser has nothing for a node, or reads it otherwise.
        """
        self._model = model  # the parser refers to its weights
        with self.library.messages.collected() as lines:
            parsed = self.parser.parse(model.data, model.path) if model.path else self.parser.parse(model.data)
        if not parsed:
            raise Untranslatable(self._refusal(lines), "no-kernel")

    def _refusal(self, lines: list[str]) -> str:
        errors = [self.parser.get_error(i) for i in range(self.parser.num_errors)]
        if not errors:
            return f"{self.library.title} does not read it: {told(lines)}"
        error = errors[0]
        text = " ".join(str(error.desc()).split()).removeprefix("Assertion failed: ")
        if text.startswith("creator && "):  # it looked for a plugin, since it has nothing of the operator's name
            return f"{self.library.title} has no {error.node_operator()}"
        return f"{self.library.title} does not read {error.node_operator()}: {text.partition(': ')[2] or text}"

    def lists(self, model: OnnxModel) -> list[list[int]]:
        """The nodes that the parser takes, by the subgraphs that it would make of them.

        The lists count, not `is_subgraph_supported`, which is False of every part of a model that has a node it lacks.
        """
        with self.library.messages.collected():
            args = (model.data, model.path) if model.path else (model.data,)
            if not hasattr(self.parser, "supports_model_v2"):  # TensorRT 10.0
                return [list(nodes) for nodes, _ in self.parser.supports_model(*args)[1]]
            self.parser.supports_model_v2(*args)
        return [list(self.parser.get_subgraph_nodes(i)) for i in range(self.parser.num_subgraphs)]

    def mismatch(self, graph: Graph) -> str:
        """Where the network takes or gives another type, rank or size than the part it was made of; "" nowhere."""
        handle, module = self.handle, self.library.module
        found = {handle.get_input(i).name: handle.get_input(i) for i in range(handle.num_inputs)}
        found |= {handle.get_output(i).name: handle.get_output(i) for i in range(handle.num_outputs)}
        for value in (*graph.inputs, *graph.outputs):
            kind = value.type if value.type is not None else graph.type_of(value.name)
            tensor = found.get(value.name)
            if tensor is None:
                return f"{self.library.title} leaves out {value.name!r}"
            if not isinstance(kind, TensorType):
                continue
            expected = getattr(module.DataType, TYPES.get(kind.dtype, ""), None)
            if tensor.dtype != expected:
                return f"{self.library.title} has {value.name!r} as {tensor.dtype.name}, ONNX as {kind.dtype.onnx_name}"
            if why := _other_shape(tuple(tensor.shape), kind):
                return f"{self.library.title} gives {value.name!r} {why}"
        return ""

    def layers(self) -> list[tuple[str, str]]:
        """Name and kind of each layer."""
        layers = [self.handle.get_layer(i) for i in range(self.handle.num_layers)]
        return [(layer.name, layer.type.name) for layer in layers]


def _other_shape(found: tuple[int, ...], kind: TensorType) -> str:
    if kind.shape is None:
        return ""
    same = len(found) == len(kind.shape) and all(
        f in (-1, d) or not isinstance(d, int) for f, d in zip(found, kind.shape, strict=True)
    )
    return "" if same else f"the shape {list(found)}, ONNX {list(kind.shape)}"


def supported_lists(library: Library, options: ParserOptions, model: OnnxModel) -> list[list[int]]:
    """The nodes of a model that the parser takes, as `Network.lists`."""
    return Network(library, options).lists(model)


def parsed(library: Library, options: ParserOptions, model: OnnxModel, graph: Graph) -> Any:
    """The network of a part.

    Raises:
        Untranslatable: the parser has nothing for a node, or reads it otherwise.
    """
    network = Network(library, options)
    network.parse(model)
    if why := network.mismatch(graph):
        raise Untranslatable(why, "wrong")
    return network
