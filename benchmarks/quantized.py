"""8-bit models in Intarsia beside onnxruntime and OpenVINO: python benchmarks/quantized.py FOLDER [MODEL ...] [--formats ...]

FOLDER holds float32 models NAME.onnx with NAME.npz, as tests/models/export.py writes them. They are quantised by
onnxruntime.quantization into a temporary folder:

- qdq: static, int8 activations, weights by channel, QuantizeLinear and DequantizeLinear around float operators;
- u8: the same with uint8 activations and weights by tensor;
- reduced: uint8 activations, weights by channel in 7 bits, of the model as `quant_pre_process` prepares it;
- a16: uint16 activations, weights by channel;
- qoperator: static, uint8 activations, QLinearConv and friends;
- dynamic: MatMulInteger by ranges found in each run;
- four, four_128, eight: MatMulNBits of 4 bits in blocks of 32 and 128, of 8 bits in blocks of 128;
- four_level: as four, with leave to round rows to bytes; four_qdq: the same weights read by DequantizeLinear;
- normal: MatMulBnb4 of 4 bits (NF4) in blocks of 64.

benchmarks/README.md says how it measures. A ratio above 1 means that Intarsia is ahead.
"""

from __future__ import annotations

import argparse
import logging
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from models import feeds_of, measure_run

MODELS = ("resnet50", "mobilenet_v2", "bert_base")
STATIC: dict[str, dict[str, Any]] = {
    "qdq": {"per_channel": True},
    "u8": {"activations": "QUInt8"},
    "reduced": {"activations": "QUInt8", "per_channel": True, "reduce_range": True},
    "a16": {"activations": "QUInt16", "per_channel": True},
    "qoperator": {"activations": "QUInt8", "per_channel": True, "layout": "QOperator"},
}
BLOCKS: dict[str, dict[str, Any]] = {
    "four": {"bits": 4, "block_size": 32},
    "four_128": {"bits": 4, "block_size": 128},
    "four_level": {"bits": 4, "block_size": 32, "accuracy_level": 4},
    "eight": {"bits": 8, "block_size": 128},
    "four_qdq": {"bits": 4, "block_size": 32, "layout": "QDQ"},
}
FLOATS = {"DefaultTensorType": 1}  # what results are whose type the quantiser cannot infer: those of com.microsoft's operators
FORMATS = (*STATIC, "dynamic", *BLOCKS, "normal")


class _OneSample:
    """What calibration reads: the model's example input, once."""

    def __init__(self, feeds: dict[str, np.ndarray]) -> None:
        self.feeds: dict[str, np.ndarray] | None = feeds

    def get_next(self) -> dict[str, np.ndarray] | None:
        found, self.feeds = self.feeds, None
        return found


def quantise(source: Path, target: Path, form: str) -> None:
    """Write `source` in one of FORMATS to `target`."""
    from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_dynamic, quantize_static

    if form == "dynamic":
        quantize_dynamic(_without_shapes(source, target.with_suffix(".source.onnx")), target, extra_options=FLOATS)
        target.with_suffix(".source.onnx").unlink()
        return
    if form in BLOCKS:
        _in_blocks(source, target, **BLOCKS[form])
        return
    if form == "normal":
        _in_quantiles(source, target)
        return
    given = dict(STATIC[form])
    kinds = {"activation_type": getattr(QuantType, given.pop("activations", "QInt8"))}
    kinds["quant_format"] = getattr(QuantFormat, given.pop("layout", "QDQ"))
    prepared = _prepared(source, target.with_suffix(".prepared.onnx")) if form == "reduced" else source
    reader: CalibrationDataReader = type("Reader", (_OneSample, CalibrationDataReader), {})(feeds_of(source))
    quantize_static(prepared, target, reader, extra_options=FLOATS, **kinds, **given)
    if prepared != source:
        prepared.unlink()


def _prepared(source: Path, target: Path) -> Path:
    """The model with shapes inferred and onnxruntime's own optimisations, as its quantiser asks for."""
    from onnxruntime.quantization import quant_pre_process

    quant_pre_process(source, target, skip_symbolic_shape=True)  # symbols need the sizes of transformers' masks to be told
    return target


def _in_blocks(source: Path, target: Path, layout: str = "QOperator", **how: int) -> None:
    """Weights of MatMul as integers of few bits in blocks."""
    import onnx
    from onnxruntime.quantization import QuantFormat
    from onnxruntime.quantization.matmul_nbits_quantizer import DefaultWeightOnlyQuantConfig, MatMulNBitsQuantizer

    config = DefaultWeightOnlyQuantConfig(quant_format=getattr(QuantFormat, layout), **how)
    quantiser = MatMulNBitsQuantizer(onnx.load(source), algo_config=config)
    quantiser.process()
    onnx.save(quantiser.model.model, target)


def _in_quantiles(source: Path, target: Path) -> None:
    """Weights of MatMul as quantiles of a normal distribution (NF4) in blocks of 64."""
    import onnx
    from onnxruntime.quantization.matmul_bnb4_quantizer import MatMulBnb4Quantizer

    quantiser = MatMulBnb4Quantizer(onnx.load(source), MatMulBnb4Quantizer.NF4, 64)
    quantiser.process()
    onnx.save(quantiser.model.model, target)


def _without_shapes(source: Path, target: Path) -> Path:
    """The model without the shapes noted in it, which the quantiser may contradict: it turns weights of Gemm around."""
    import onnx

    model = onnx.load(source)
    del model.graph.value_info[:]
    onnx.save(model, target)
    return target


def takes(runtime: str, model: Path) -> bool:
    """Whether a runtime can run the model at all: OpenVINO has no QOperator models, for one."""
    if runtime != "openvino":
        return True
    import openvino

    try:
        openvino.Core().read_model(model)
    except RuntimeError as error:
        print(f"# {model.stem}: {runtime} refuses it: {str(error).strip().splitlines()[0]}", file=sys.stderr)
        return False
    return True


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure quantised models in several runtimes.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*", default=list(MODELS), help=f"models (default: {', '.join(MODELS)})")
    parser.add_argument("--formats", default="qdq,dynamic", help=f"separated by commas: {', '.join(FORMATS)}")
    parser.add_argument("--compare", default="onnxruntime,openvino", help="peers, separated by commas; '' for none")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--runs", type=int, default=100, help="timed runs of each")
    parser.add_argument("--seconds", type=float, default=30.0, help="per model, about")
    parser.add_argument("--keep", type=Path, help="a folder for the quantised models, to be used again")
    parser.add_argument("--config", action="append", default=[], help="a configuration entry of intarsia's session, KEY=VALUE")
    options = parser.parse_args()
    if unknown := set(options.formats.split(",")) - set(FORMATS):
        parser.error(f"--formats: unknown {', '.join(sorted(unknown))}; there are {', '.join(FORMATS)}")
    logging.disable(logging.WARNING)
    with tempfile.TemporaryDirectory() as temporary:
        _measure(options, options.keep or Path(temporary))


def _measure(options: argparse.Namespace, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    peers = [p for p in options.compare.split(",") if p]
    groups: dict[tuple[str, ...], list[Path]] = {}
    for name in options.names:
        for form in options.formats.split(","):
            target = folder / f"{name}_{form}.onnx"
            if not target.exists():
                quantise(options.folder / f"{name}.onnx", target, form)
                shutil.copy(options.folder / f"{name}.npz", target.with_suffix(".npz"))
            runtimes = ("intarsia", *(p for p in peers if takes(p, target)))
            groups.setdefault(runtimes, []).append(target)
    run: Callable[..., None] = measure_run
    for runtimes, models in groups.items():
        run(models, runtimes, options)


if __name__ == "__main__":
    main()
