"""Tensors of another type than the rest: conversions where an operator's inputs and outputs would differ in type."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import onnx

from intarsia.errors import InvalidArgument
from intarsia.quantization.description.model_editor import ModelEditor
from intarsia.quantization.description.model_files import load_model, with_shapes
from intarsia.quantization.description.tensor_marks import logger
from intarsia.quantization.description.tensor_overrides import QuantTypeInfo, TensorQuantOverridesHelper
from intarsia.quantization.numerics.quant_types import QuantType


@dataclass
class TensorTypeRequest:
    """The types that nodes want of a tensor.

    Attributes:
        producer: of the node that computes it; None: it does not matter to that.
        readers: of nodes that read it; None: it does not matter to any.
        names: of those nodes.
    """

    producer: QuantTypeInfo | None = None
    readers: QuantTypeInfo | None = None
    names: set[str] = field(default_factory=set)


class MixedPrecisionTensorQuantOverridesFixer:
    """Completes overrides: all inputs and outputs of a node that reads or computes a tensor of another type get that type.

    Where other nodes read such a tensor, or compute one, it is converted.
    """

    def __init__(self, overrides: TensorQuantOverridesHelper, editor: ModelEditor) -> None:
        self.overrides, self._editor = overrides, editor
        self._values = {*editor.value_types}

    @staticmethod
    def create_from_model(
        overrides: TensorQuantOverridesHelper, model: onnx.ModelProto, default_activation_qtype: QuantType
    ) -> MixedPrecisionTensorQuantOverridesFixer:
        """For a model that is in memory.

        Raises:
            InvalidArgument: overrides that the model does not fit.
        """
        found = MixedPrecisionTensorQuantOverridesFixer(overrides, ModelEditor(with_shapes(load_model(model))))
        found._check(default_activation_qtype, "given")
        return found

    def _check(self, default: QuantType, which: str) -> None:
        valid, why = self.overrides.is_valid(self._editor.initializers, self._values, default)
        if not valid:
            logger.error("the overrides that were %s are not possible:\n%s", which, self.overrides.pprint_str(indent=4))
            raise InvalidArgument(why)

    def apply(self, default_activation_qtype: QuantType, default_activation_symmetric: bool) -> None:
        """Complete the overrides in place.

        Raises:
            InvalidArgument: nodes want different types of one tensor.
        """
        default = QuantTypeInfo(default_activation_qtype)
        wanted = self.get_desired_tensor_types(default_activation_qtype, default_activation_symmetric)
        for name, request in wanted.items():
            self._complete(name, request, default)
        self._check(default_activation_qtype, "made")

    def get_desired_tensor_types(self, default_qtype: QuantType, default_symmetric: bool) -> dict[str, TensorTypeRequest]:
        """What the nodes beside overridden tensors want of theirs."""
        usual, found = QuantTypeInfo(default_qtype, default_symmetric), dict[str, TensorTypeRequest]()
        for name, entries in self.overrides.items():
            if name in self._editor.initializers or not self._editor.is_float(name) or len(entries) != 1:
                continue
            own = QuantTypeInfo.load_from_dict(entries[0], default_qtype)
            if own == usual or "convert" in entries[0]:
                continue
            beside = [self._editor.producers.get(name), *self._editor.readers_of(name)]
            for node in beside:
                if node is not None:
                    self._request(found, own, node)
        return found

    def _request(self, found: dict[str, TensorTypeRequest], own: QuantTypeInfo, node: onnx.NodeProto) -> None:
        for name in filter(self._editor.is_float, node.output):
            entry = found.setdefault(name, TensorTypeRequest())
            if entry.producer is not None and entry.producer != own:
                raise InvalidArgument(f"Tensor {name} has multiple types.")
            entry.producer = own
        for name in node.input:
            if not name or name in self._editor.initializers or not self._editor.is_float(name):
                continue
            entry = found.setdefault(name, TensorTypeRequest())
            if entry.readers is not None and entry.readers != own:
                raise InvalidArgument(f"Tensor {name} has consumers requesting different types.")
            if not node.name:
                raise InvalidArgument(f"Node of type {node.op_type} with output 0 {node.output[0]} does not have a name!")
            entry.readers = own
            entry.names.add(node.name)

    def _complete(self, name: str, request: TensorTypeRequest, default: QuantTypeInfo) -> None:
        every = {node.name for node in self._editor.readers_of(name)}
        if request.readers is None:
            assert request.producer is not None
            self._convert(name, request.producer, default, every)
            return
        producer = request.producer or self.overrides.get_node_output_qtype_info(name, default.quant_type)
        if producer != request.readers:
            self._convert(name, producer, request.readers, request.names)
        elif request.producer is None:
            if self._converted_readers(name) & request.names:
                raise InvalidArgument(
                    f"Tensor override for '{name}' converts the type for consumers that need the original type."
                )
        elif every - request.names:
            self._convert(name, producer, default, every - request.names)
        elif name not in self.overrides:
            self.overrides[name] = [{}]
            producer.save_to_dict(self.overrides[name][0])

    def _converted_readers(self, name: str) -> set[str]:
        entries = self.overrides.get(name) or [{}]
        convert: Mapping[str, set[str]] = entries[0].get("convert", {"recv_nodes": set()})
        return set(convert.get("recv_nodes", {node.name for node in self._editor.readers_of(name)}))

    def _convert(self, name: str, producer: QuantTypeInfo, readers: QuantTypeInfo, names: set[str]) -> None:
        """Note that these nodes get another type than the tensor is computed in."""
        if not self.overrides.get(name):
            self.overrides[name] = [{}]
            producer.save_to_dict(self.overrides[name][0])
        own = self.overrides[name][0]
        if producer != QuantTypeInfo.load_from_dict(own):
            raise InvalidArgument(f"Desired producer quant_type for {name} doesn't match existing type.")
        if not names:
            return
        if "convert" not in own:
            own["convert"] = {}
            readers.save_to_dict(own["convert"])
        if readers != QuantTypeInfo.load_from_dict(own["convert"]):
            raise InvalidArgument(f"Desired consumer quant_type for {name} doesn't match existing type.")
        own["convert"].setdefault("recv_nodes", set()).update(names)
