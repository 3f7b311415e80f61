"""What a user requests of a quantiser: types, nodes, and the entries of onnxruntime's `extra_options`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import onnx

from intarsia.quantization.description.tensor_overrides import TensorQuantOverridesHelper
from intarsia.quantization.numerics.quant_types import FLOAT8, INTEGER_TYPES, type_number


@dataclass
class QdqArguments:
    """Arguments of `QDQQuantizer`, as onnxruntime has them."""

    model: onnx.ModelProto
    per_channel: bool
    reduce_range: bool
    weight_qType: Any  # noqa: N815 # onnxruntime's name
    activation_qType: Any  # noqa: N815 # onnxruntime's name
    tensors_range: Any
    nodes_to_quantize: Sequence[str] | None
    nodes_to_exclude: Sequence[str] | None
    op_types_to_quantize: Sequence[str]
    extra_options: dict[str, Any] | None = None


@dataclass
class OperatorArguments:
    """Arguments of `ONNXQuantizer`, as onnxruntime has them."""

    model: onnx.ModelProto
    per_channel: bool
    reduce_range: bool
    mode: Any
    static: bool
    weight_qType: Any  # noqa: N815 # onnxruntime's name
    activation_qType: Any  # noqa: N815 # onnxruntime's name
    tensors_range: Any
    nodes_to_quantize: Sequence[str] | None
    nodes_to_exclude: Sequence[str] | None
    op_types_to_quantize: Sequence[str]
    extra_options: dict[str, Any] | None = None


@dataclass(frozen=True)
class QuantizerSettings:
    """How a model is quantised, whatever form it is written in.

    Attributes:
        weight_type, activation_type: ONNX's numbers.
        per_channel: one scale for each channel of a weight.
        reduce_range: one bit less for weights.
        nodes: names of the nodes to quantise; empty: all.
        excluded: names of nodes to leave.
        op_types: the operators to quantise.
        options: onnxruntime's extra options.
    """

    weight_type: int
    activation_type: int
    per_channel: bool
    reduce_range: bool
    nodes: frozenset[str]
    excluded: frozenset[str]
    op_types: frozenset[str]
    options: Mapping[str, Any] = field(default_factory=dict)
    overrides: TensorQuantOverridesHelper = field(default_factory=lambda: TensorQuantOverridesHelper({}))

    @classmethod
    def of(cls, given: QdqArguments | OperatorArguments) -> QuantizerSettings:
        """The settings that a quantiser's arguments make."""
        options = given.extra_options or {}
        return cls(
            type_number(given.weight_qType), type_number(given.activation_qType), bool(given.per_channel),
            bool(given.reduce_range), frozenset(given.nodes_to_quantize or ()), frozenset(given.nodes_to_exclude or ()),
            frozenset(given.op_types_to_quantize), options,
            TensorQuantOverridesHelper(options.get("TensorQuantOverrides") or {}),
        )  # fmt: skip

    def option(self, name: str, default: Any = False) -> Any:
        """An extra option."""
        return self.options.get(name, default)

    @property
    def symmetric_activations(self) -> bool:
        return bool(self.option("ActivationSymmetric"))

    @property
    def least_width(self) -> float | None:
        found: float | None = self.option("MinimumRealRange", None)
        return found

    @property
    def forced(self) -> bool:
        """Whether operators that only move values are quantised where their input is not."""
        return bool(self.option("ForceQuantizeNoInputCheck"))

    def symmetric_weights(self, kind: int) -> bool:
        """Whether weights of this type are quantised about 0: by default signed ones."""
        chosen = self.option("WeightSymmetric", None)
        if chosen is not None:
            return bool(chosen)
        return kind == FLOAT8 or (kind in INTEGER_TYPES and INTEGER_TYPES[kind].signed)

    def wants(self, node: onnx.NodeProto) -> bool:
        """Whether a node is to be quantised."""
        return (
            (not self.nodes or node.name in self.nodes)
            and node.op_type in self.op_types
            and node.op_type not in ("QuantizeLinear", "DequantizeLinear")
            and node.name not in self.excluded
        )
