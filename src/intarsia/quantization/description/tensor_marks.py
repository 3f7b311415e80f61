"""Which tensors are quantised, and as what: the first half of the description, found by rules of operators."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import onnx

from intarsia.printable import get_logger
from intarsia.quantization.description.model_editor import ModelEditor
from intarsia.quantization.description.settings import QuantizerSettings
from intarsia.quantization.numerics.quant_types import FLOAT_TYPES

logger = get_logger("intarsia.quantization")


@dataclass(frozen=True)
class TensorMark:
    """A tensor that is to be quantised.

    Attributes:
        weight: a stored tensor that is quantised in the weights' type, else in that of activations.
        axis: of channels, counted from the front; None: one scale.
        shares: the tensor whose scale and zero point it has, and the node that computes this of that; None: its own.
    """

    weight: bool = False
    axis: int | None = None
    shares: tuple[str, str] | None = None


@dataclass(frozen=True)
class BiasMark:
    """A stored tensor that is added to products of two quantised ones: its scale is theirs multiplied, and `beta`.

    Attributes:
        node: the name of the node that reads all three.
        input, weight: the tensors that are multiplied.
    """

    node: str
    input: str
    weight: str
    beta: float = 1.0


class Marker:
    """Marks tensors of a model; rules of operators call its methods.

    Args:
        editor: the model; nodes that quantisation makes superfluous are taken out of it.
        ranged: tensors whose range is known.
        converted: tensors that have another type for some readers.
    """

    def __init__(
        self, editor: ModelEditor, settings: QuantizerSettings, ranged: Collection[str], converted: Collection[str]
    ) -> None:
        self.editor, self.settings = editor, settings
        self.ranged, self.converted = ranged, converted
        self.tensors: dict[str, TensorMark] = {}
        self.biases: dict[str, BiasMark] = {}
        self.opset = opset_of(editor.model)
        self._bare = frozenset(settings.option("OpTypesToExcludeOutputQuantization", None) or ())

    def quantizes_outputs(self, node: onnx.NodeProto) -> bool:
        """Whether outputs of this operator are quantised."""
        return node.op_type not in self._bare

    def is_marked(self, name: str) -> bool:
        """Whether a tensor is to be quantised, as far as is known."""
        return name in self.tensors or name in self.biases

    def _can_be(self, name: str) -> bool:
        if not name:
            return False
        kind = self.editor.element_type(name)
        if kind is None:
            logger.warning("failed to infer the type of tensor: %s: it is not quantised; run quant_pre_process first", name)
        return kind in FLOAT_TYPES

    def activation(self, name: str) -> None:
        """Quantise a tensor by its range."""
        if self._can_be(name):
            self.tensors.setdefault(name, TensorMark())

    def same_as(self, output: str, source: str, node: str) -> None:
        """Quantise what a node makes of `source` by moving its elements as that is."""
        if self._can_be(output):
            self.tensors[output] = TensorMark(shares=(source, node))

    def weight(self, name: str, axis: int | None = None) -> None:
        """Quantise a stored tensor in the weights' type."""
        if axis is None:
            if self._can_be(name):
                self.tensors.setdefault(name, TensorMark(weight=True))
        elif name in self.editor.initializers and self._can_be(name):
            self.tensors[name] = TensorMark(weight=True, axis=axis)

    def weight_by_channels(self, name: str, axis: int, op_type: str = "") -> None:
        """Quantise a weight: by channels along `axis`, where that is wanted and the tensor is stored."""
        self.weight(name, self.channel_axis(name, axis, op_type))

    def channel_axis(self, name: str, default: int, op_type: str = "") -> int | None:
        """The axis by whose channels a stored tensor is quantised; None: it has one scale."""
        stored, overrides = self.editor.initializers.get(name), self.settings.overrides
        if stored is None or overrides.has_per_tensor_overrides(name):
            return None
        if overrides.has_per_channel_overrides(name):
            axis = overrides[name][0]["axis"]
        elif self.settings.per_channel:
            chosen = self.settings.option("QDQOpTypePerChannelSupportToAxis", None) or {}
            axis = chosen.get(op_type, default) if op_type else default
        else:
            return None
        rank = len(stored.dims)
        if not -rank <= axis < rank:
            logger.warning("Axis %d is out-of-range for weight '%s' with rank %d: it gets one scale", axis, name, rank)
            return None
        return int(axis % rank)

    def bias(self, name: str, mark: BiasMark) -> None:
        """Quantise a stored bias in 32-bit integers; one that several nodes read is copied, since scales differ."""
        if self.settings.overrides.get(name):
            self.weight_by_channels(name, 0)
            return
        stored = self.editor.initializers.get(name)
        if stored is None or stored.data_type not in FLOAT_TYPES:
            logger.warning("Expected bias '%s' to be an initializer of floats: it is not quantised", name)
            return
        if name in self.biases:
            name = self._copied(stored, mark.node)
        self.biases[name] = mark

    def _copied(self, stored: onnx.TensorProto, node: str) -> str:
        twin = onnx.TensorProto()
        twin.CopyFrom(stored)
        twin.name = self.editor.free_name(stored.name)
        self.editor.add_initializer(twin)
        self.editor.redirect_reads(stored.name, twin.name, {node})
        return str(twin.name)

    def fold_into_producer(self, node: onnx.NodeProto) -> bool:
        """Take out a Relu or Clip: the range of its output, quantised without a sign of its own, clips as it does.

        Only where nothing else reads its input, and both ranges are known.
        """
        source, result = node.input[0], node.output[0]
        alone = self.editor.readers_of(source) == [node] and source in self.editor.producers
        outer = source in self.editor.outputs or source in self.editor.inputs
        known = result in self.ranged and not {source, result} & set(self.converted)
        if not (alone and known and not outer):
            return False
        self.editor.remove_node(node)
        self.editor.producers.pop(result, None)
        self.editor.rename_output(source, result)
        self.tensors.pop(source, None)
        return True


def opset_of(model: onnx.ModelProto) -> int:
    """The version of ONNX's own operator set that a model imports; 1 where it names none."""
    return next((int(e.version) for e in model.opset_import if e.domain in ("", "ai.onnx")), 1)
