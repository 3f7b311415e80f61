"""`python -m intarsia.quantization.static_quantize_runner`: onnxruntime's command for models with `test_data_set_*` folders.

`intarsia quantize` takes other data, and says what was lost.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

from intarsia.errors import InvalidArgument
from intarsia.quantization.calibrate import CalibrationDataReader, CalibrationMethod
from intarsia.quantization.description.model_files import load_model
from intarsia.quantization.numerics.quant_types import QuantFormat, QuantType
from intarsia.quantization.quantize import StaticQuantConfig, quantize

_METHODS = {method.name.lower(): method for method in CalibrationMethod}
_TYPES = {kind.name.lower(): kind for kind in QuantType}
_FLAGS = {
    "enable_subgraph": "EnableSubgraph",
    "force_quantize_no_input_check": "ForceQuantizeNoInputCheck",
    "matmul_const_b_only": "MatMulConstBOnly",
    "add_qdq_pair_to_weight": "AddQDQPairToWeight",
    "dedicated_qdq_pair": "DedicatedQDQPair",
    "calib_tensor_range_symmetric": "CalibTensorRangeSymmetric",
    "calib_moving_average": "CalibMovingAverage",
    "use_qdq_contrib_ops": "UseQDQContribOps",
    "qdq_keep_removable_activations": "QDQKeepRemovableActivations",
    "qdq_disable_weight_adjust_for_int32_bias": "QDQDisableWeightAdjustForInt32Bias",
}
"""Flag -> extra option."""


class OnnxModelCalibrationDataReader(CalibrationDataReader):
    """The inputs `input_N.pb` in folders `test_data_set_*` beside a model, as ONNX's models have them.

    Raises:
        InvalidArgument: there is no such folder, or an input is missing in one.
    """

    def __init__(self, model_path: str | Path) -> None:
        self.model_dir = Path(model_path).resolve().parent
        graph = load_model(model_path).graph
        stored = {t.name for t in graph.initializer}
        self._inputs = [v.name for v in graph.input if v.name not in stored]
        self._folders = sorted(f for f in self.model_dir.glob("test_data_set_*") if f.is_dir())
        if not self._folders:
            raise InvalidArgument(f"{self.model_dir}: expected folders test_data_set_0, ... with input_0.pb, ...; got none")
        self.calibration_data: Iterator[dict[str, Any]] = map(self._feed, self._folders)

    def _feed(self, folder: Path) -> dict[str, Any]:
        return {name: self.read_onnx_pb_data(folder / f"input_{i}.pb") for i, name in enumerate(self._inputs)}

    def get_next(self) -> dict[str, Any] | None:
        """The inputs of the next folder."""
        return next(self.calibration_data, None)

    def read_onnx_pb_data(self, file_pb: str | Path) -> np.ndarray:
        """The tensor in a file."""
        path = Path(file_pb)
        if not path.is_file():
            raise InvalidArgument(f"calibration data: no file {str(path)!r}")
        return np.asarray(numpy_helper.to_array(onnx.TensorProto.FromString(path.read_bytes())))


def parse_arguments(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The command's arguments."""
    parser = argparse.ArgumentParser(description="Quantise a model with calibrated ranges.")
    parser.add_argument("-i", "--input_model_path", required=True, help="the model; test_data_set_* folders lie beside it")
    parser.add_argument("-o", "--output_quantized_model_path", required=True, help="the quantised model")
    parser.add_argument("--activation_type", choices=list(_TYPES), default="quint8", help="the type of activations")
    parser.add_argument("--weight_type", choices=list(_TYPES), default="qint8", help="the type of weights")
    for flag, option in _FLAGS.items():
        parser.add_argument(f"--{flag}", action="store_true", help=f"the extra option {option}")
    parser.add_argument("--op_types_to_exclude_output_quantization", nargs="+", default=[], help="operators with float outputs")
    parser.add_argument("--calibration_method", default="minmax", choices=list(_METHODS), help="how ranges are found")
    parser.add_argument("--quant_format", default="qdq", choices=["qdq", "qoperator"], help="the form of the model")
    parser.add_argument("--disable_quantize_bias", action="store_true", help="biases stay floats")
    parser.add_argument("--minimum_real_range", type=float, default=0.0001, help="narrower ranges are widened to this")
    parser.add_argument("--per_channel", action="store_true", help="a scale for each channel of a weight")
    parser.add_argument("--nodes_to_quantize", nargs="+", help="names of the nodes to quantise")
    parser.add_argument("--nodes_to_exclude", nargs="+", help="names of nodes to leave")
    axis = ("OP_TYPE", "PER_CHANNEL_AXIS")
    parser.add_argument("--op_per_channel_axis", nargs=2, action="append", metavar=axis, default=[], help="an operator's axis")
    parser.add_argument("--tensor_quant_overrides", help="a JSON file with scales and zero points by tensor")
    return parser.parse_args(arguments)


def get_tensor_quant_overrides(file: str | Path | None) -> dict[str, list[dict[str, Any]]]:
    """Overrides of a JSON file: tensor -> a list of {"scale": ..., "zero_point": ...}."""
    if not file:
        return {}
    found: dict[str, list[dict[str, Any]]] = json.loads(Path(file).read_text(encoding="utf-8"))
    for entry in (entry for entries in found.values() for entry in entries):
        if "scale" in entry:
            entry.update(scale=np.array(entry["scale"], np.float32), zero_point=np.array(entry["zero_point"]))
        if isinstance(entry.get("quant_type"), str):
            entry["quant_type"] = QuantType.from_string(entry["quant_type"])
    return found


def main(arguments: Sequence[str] | None = None) -> None:
    """The command."""
    given = parse_arguments(arguments)
    options: dict[str, Any] = {option: getattr(given, flag) for flag, option in _FLAGS.items()}
    options.update(
        OpTypesToExcludeOutputQuantization=given.op_types_to_exclude_output_quantization,
        QDQOpTypePerChannelSupportToAxis={op_type: int(axis) for op_type, axis in given.op_per_channel_axis},
        QuantizeBias=not given.disable_quantize_bias,
        MinimumRealRange=given.minimum_real_range,
        TensorQuantOverrides=get_tensor_quant_overrides(given.tensor_quant_overrides),
    )
    config = StaticQuantConfig(
        OnnxModelCalibrationDataReader(given.input_model_path), _METHODS[given.calibration_method],
        QuantFormat.QDQ if given.quant_format == "qdq" else QuantFormat.QOperator, _TYPES[given.activation_type],
        _TYPES[given.weight_type], None, given.nodes_to_quantize, given.nodes_to_exclude, given.per_channel,
        extra_options=options,
    )  # fmt: skip
    quantize(given.input_model_path, given.output_quantized_model_path, config)


if __name__ == "__main__":
    main()
