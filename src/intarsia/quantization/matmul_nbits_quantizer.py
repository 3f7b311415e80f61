"""`MatMulNBitsQuantizer`: onnxruntime's class for weights of few bits, and its configurations."""

from __future__ import annotations

import os
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnx

from intarsia.compat.declared_arguments import takes_as_method
from intarsia.errors import InvalidArgument, NotImplemented
from intarsia.quantization.calibrate import feeds_of
from intarsia.quantization.description.model_files import existing
from intarsia.quantization.description.weights_in_file import load_left_weights, load_without_weights
from intarsia.quantization.numerics.block_weights import Algorithm, BlockFormat, nearest
from intarsia.quantization.numerics.gptq import GptqSettings, InputMoments
from intarsia.quantization.numerics.half_quadratic import half_quadratic
from intarsia.quantization.numerics.k_quants import least_squares
from intarsia.quantization.numerics.quant_types import QuantFormat
from intarsia.quantization.onnx_model import ONNXModel
from intarsia.quantization.writers.weight_only import Compute, WeightOnlyPlan, gptq_compute, input_moments, quantize_weights

Axes = tuple[tuple[str, int], ...] | dict[str, int]


class WeightOnlyQuantConfig:
    """How weights are quantised: an algorithm, and what it is applied to.

    Args:
        algorithm: "DEFAULT", "RTN", "k_quant", "GPTQ" or "HQQ".
        quant_format: MatMulNBits (QOperator), or DequantizeLinear in blocks before MatMul (QDQ).
        op_types_to_quantize: MatMul, Gather or both; by default MatMul.
        quant_axes: operator -> the axis of blocks; by default 0 of MatMul and 1 of Gather.
        customized_weight_config: node -> {"bits": ..., "group_size": ..., "scheme": "sym" or "asym"}.
    """

    def __init__(
        self, algorithm: str, quant_format: QuantFormat, op_types_to_quantize: tuple[str, ...] | None = None,
        quant_axes: Axes | None = None, customized_weight_config: dict[str, dict[str, Any]] | None = None,
    ) -> None:  # fmt: skip
        self.algorithm, self.quant_format = algorithm, quant_format
        self.op_types_to_quantize = set(op_types_to_quantize) if op_types_to_quantize else {"MatMul"}
        self.quant_axes = dict(quant_axes) if quant_axes else {"MatMul": 0, "Gather": 1}
        self.customized_weight_config = customized_weight_config


def _needs_operators(algorithm: str, quant_format: QuantFormat) -> None:
    if quant_format is not QuantFormat.QOperator:
        raise InvalidArgument(f"{algorithm}: expected QuantFormat.QOperator, got {quant_format}")


class RTNWeightOnlyQuantConfig(WeightOnlyQuantConfig):
    """Round to nearest, in blocks whose range may be clipped.

    Args:
        ratios: weight -> the share of its blocks' ranges that is kept.
    """

    def __init__(
        self, ratios: dict[str, float] | None = None, quant_format: QuantFormat = QuantFormat.QOperator,
        op_types_to_quantize: tuple[str, ...] | None = None, customized_weight_config: dict[str, dict[str, Any]] | None = None,
    ) -> None:  # fmt: skip
        _needs_operators("RTN", quant_format)
        super().__init__("RTN", quant_format, op_types_to_quantize, None, customized_weight_config)
        self.ratios = ratios or {}


class KQuantWeightOnlyQuantConfig(WeightOnlyQuantConfig):
    """Blocks with scales that are searched for by weighted least squares; arguments as of `RTNWeightOnlyQuantConfig`."""

    def __init__(
        self, ratios: dict[str, float] | None = None, quant_format: QuantFormat = QuantFormat.QOperator,
        op_types_to_quantize: tuple[str, ...] | None = None, customized_weight_config: dict[str, dict[str, Any]] | None = None,
    ) -> None:  # fmt: skip
        _needs_operators("k_quant", quant_format)
        super().__init__("k_quant", quant_format, op_types_to_quantize, None, customized_weight_config)
        self.ratios = ratios or {}


@dataclass
class GptqArguments:
    """Arguments of `GPTQWeightOnlyQuantConfig`, as onnxruntime has them.

    Attributes:
        calibration_data_reader: gives the inputs of runs.
        percdamp: damping, as a share of the mean moment.
        block_size: rows whose errors are applied together; it changes no result.
        actorder: rows in the order of falling moments.
        mse, perchannel: no effect: blocks have scales of their own.
    """

    calibration_data_reader: Any = None
    percdamp: float = 0.01
    block_size: int = 128
    actorder: bool = False
    mse: bool = False
    perchannel: bool = True
    quant_format: QuantFormat = QuantFormat.QOperator
    op_types_to_quantize: tuple[str, ...] | None = None


class GPTQWeightOnlyQuantConfig(WeightOnlyQuantConfig):
    """GPTQ: errors are made up for on a reader's inputs; attributes as of `GptqArguments`."""

    @takes_as_method(GptqArguments)
    def __init__(self, given: GptqArguments) -> None:
        _needs_operators("GPTQ", given.quant_format)
        super().__init__("GPTQ", given.quant_format, given.op_types_to_quantize)
        self.calibration_data_reader, self.percdamp = given.calibration_data_reader, given.percdamp
        self.block_size, self.actorder, self.mse = given.block_size, given.actorder, given.mse
        self.perchannel = given.perchannel


class HQQWeightOnlyQuantConfig(WeightOnlyQuantConfig):
    """Half-quadratic quantisation: zero points are fractions, and no data are needed.

    Args:
        block_size: weights of a block.
        bits: 2, 4 or 8.
        axis: 1, the axis of K of transposed weights; there are no others here.
    """

    def __init__(
        self, block_size: int = 128, bits: int = 4, axis: int = 1, quant_format: QuantFormat = QuantFormat.QOperator,
        op_types_to_quantize: tuple[str, ...] | None = None, quant_axes: Axes | None = None,
    ) -> None:  # fmt: skip
        _needs_operators("HQQ", quant_format)
        super().__init__("HQQ", quant_format, op_types_to_quantize, quant_axes)
        self.block_size, self.bits, self.axis = block_size, bits, axis


@dataclass
class DefaultArguments:
    """Arguments of `DefaultWeightOnlyQuantConfig`, as onnxruntime has them.

    Attributes:
        block_size: weights of a block.
        is_symmetric: the zero point is the middle of the codes.
        accuracy_level: of MatMulNBits.
        bits: 2, 4 or 8.
        channel_wised_quantize: one block for each column (QDQ).
    """

    block_size: int = 128
    is_symmetric: bool = False
    accuracy_level: int | None = None
    quant_format: QuantFormat = QuantFormat.QOperator
    op_types_to_quantize: tuple[str, ...] | None = None
    quant_axes: Axes | None = None
    bits: int = 4
    channel_wised_quantize: bool = False


class DefaultWeightOnlyQuantConfig(WeightOnlyQuantConfig):
    """Round to nearest; attributes as of `DefaultArguments`."""

    @takes_as_method(DefaultArguments)
    def __init__(self, given: DefaultArguments) -> None:
        super().__init__("DEFAULT", given.quant_format, given.op_types_to_quantize, given.quant_axes)
        self.block_size, self.is_symmetric, self.bits = given.block_size, given.is_symmetric, given.bits
        self.accuracy_level, self.channel_wised_quantize = given.accuracy_level, given.channel_wised_quantize
        if given.channel_wised_quantize and given.quant_format is QuantFormat.QOperator:
            raise NotImplemented("channel_wised_quantize: expected QuantFormat.QDQ, got QOperator, whose blocks are short")


@dataclass
class NBitsArguments:
    """Arguments of `MatMulNBitsQuantizer`, as onnxruntime has them.

    Attributes:
        model: a path or a model, which is changed in place.
        bits, block_size, is_symmetric, accuracy_level, quant_format, channel_wised_quantize: as `DefaultArguments`.
        nodes_to_exclude, nodes_to_include: names of nodes.
        algo_config: a configuration, before which the above count for nothing.
    """

    model: onnx.ModelProto | str | os.PathLike[str]
    bits: int = 4
    block_size: int = 128
    is_symmetric: bool = False
    accuracy_level: int | None = None
    nodes_to_exclude: list[str] | None = None
    nodes_to_include: list[str] | None = None
    quant_format: QuantFormat = QuantFormat.QOperator
    op_types_to_quantize: tuple[str, ...] | None = None
    quant_axes: Axes | None = None
    channel_wised_quantize: bool = False
    algo_config: WeightOnlyQuantConfig | None = None


class MatMulNBitsQuantizer:
    """Quantises the constant weights of a model's products and tables; arguments as of `NBitsArguments`.

    Attributes:
        model: an `ONNXModel`.

    Raises:
        InvalidArgument: other numbers of bits; an algorithm that does not exist.
    """

    @takes_as_method(NBitsArguments)
    def __init__(self, given: NBitsArguments) -> None:
        made = given.model if isinstance(given.model, onnx.ModelProto) else load_without_weights(existing(given.model))
        self.model = ONNXModel(made)
        self.model_path = None if isinstance(given.model, onnx.ModelProto) else os.fspath(given.model)
        self.bits, self.block_size, self.is_symmetric = given.bits, given.block_size, given.is_symmetric
        self.accuracy_level = given.accuracy_level
        self.nodes_to_exclude = set(given.nodes_to_exclude or ())
        self.nodes_to_include = set(given.nodes_to_include or ())
        self.algo_config = given.algo_config or DefaultWeightOnlyQuantConfig(
            given.block_size, given.is_symmetric, given.accuracy_level, given.quant_format, given.op_types_to_quantize,
            given.quant_axes, given.bits, given.channel_wised_quantize,
        )  # fmt: skip
        self._form()  # raises for what cannot be

    def _form(self) -> BlockFormat:
        config = self.algo_config
        own = config.algorithm in ("DEFAULT", "HQQ")
        block = getattr(config, "block_size", self.block_size) if own else self.block_size
        symmetric = bool(getattr(config, "is_symmetric", False if config.algorithm == "HQQ" else self.is_symmetric))
        return BlockFormat(int(getattr(config, "bits", self.bits if own else 4)), int(block), symmetric)

    def process(self) -> None:
        """Quantise the weights: `model` has the result."""
        config = self.algo_config
        level = getattr(config, "accuracy_level", self.accuracy_level)
        plan = WeightOnlyPlan(
            self._form(), self._compute(), config.quant_format is QuantFormat.QDQ, frozenset(config.op_types_to_quantize),
            frozenset(self.nodes_to_exclude), frozenset(self.nodes_to_include),
            bool(getattr(config, "channel_wised_quantize", False)), int(level or 0), config.quant_axes.get("Gather", 1),
            self._formats(), self._folder(),
        )  # fmt: skip
        quantize_weights(self.model.model, plan)
        if self.model_path is not None:
            load_left_weights(self.model.model, self._folder())

    def _folder(self) -> str:
        return str(Path(self.model_path).resolve().parent) if self.model_path is not None else ""

    def _formats(self) -> dict[str, BlockFormat]:
        form, found = self._form(), {}
        for node, own in (self.algo_config.customized_weight_config or {}).items():
            scheme = own.get("scheme", "sym" if form.symmetric else "asym")
            found[node] = BlockFormat(own.get("bits", form.bits), own.get("group_size", form.block), scheme == "sym")
        return found

    def _compute(self) -> Compute:
        config = self.algo_config
        if config.algorithm == "GPTQ":
            return self._gptq(config)
        if config.algorithm == "RTN":
            ratios = getattr(config, "ratios", {})
            return lambda node, weights, form: nearest(weights, form, ratios.get(node.input[1], 1.0))
        algorithms: dict[str, Algorithm] = {"DEFAULT": nearest, "HQQ": half_quadratic, "k_quant": least_squares}
        if config.algorithm not in algorithms:
            raise InvalidArgument(
                f"weight-only quantisation: expected {', '.join(algorithms)}, RTN or GPTQ, got {config.algorithm}"
            )
        algorithm = algorithms[config.algorithm]
        return lambda node, weights, form: algorithm(weights, form)

    def _gptq(self, config: Any) -> Compute:
        return gptq_compute(self._moments(config.calibration_data_reader), GptqSettings(config.percdamp, config.actorder))

    def _moments(self, reader: Any) -> dict[str, InputMoments]:
        """The moments of the inputs of all products, in one pass over the data."""
        if reader is None:
            raise InvalidArgument("GPTQ: expected a calibration_data_reader, got None; HQQ needs no data")
        return input_moments(self.model_path or self.model.model, self.model.graph(), feeds_of(deepcopy(reader)))
