"""8-bit models in Intarsia beside onnxruntime and OpenVINO: python benchmarks/quantized.py FOLDER [MODEL ...] [--formats ...]

FOLDER holds float32 models NAME.onnx with NAME.npz, as tests/models/export.py writes them. They are quantised by
onnxruntime.quantization into a temporary folder:

- qdq: static, int8 activations, weights by channel, QuantizeLinear and DequantizeLinear around float operators;
- u8: the same with uint8 activations and weights by tensor;
- qoperator: static, uint8 activations, QLinearConv and friends;
- dynamic: MatMulInteger by ranges found in each run.

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

import numpy as np

from models import feeds_of, measure_run

MODELS = ("resnet50", "mobilenet_v2", "bert_base")
FORMATS = ("qdq", "u8", "qoperator", "dynamic")


class _OneSample:
    """What calibration reads: the model's example input, once."""

    def __init__(self, feeds: dict[str, np.ndarray]) -> None:
        self.feeds: dict[str, np.ndarray] | None = feeds

    def get_next(self) -> dict[str, np.ndarray] | None:
        found, self.feeds = self.feeds, None
        return found


def quantise(source: Path, target: Path, form: str) -> None:
    from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_dynamic, quantize_static

    if form == "dynamic":
        quantize_dynamic(_without_shapes(source, target.with_suffix(".source.onnx")), target)
        return
    reader: CalibrationDataReader = type("Reader", (_OneSample, CalibrationDataReader), {})(feeds_of(source))
    if form == "qdq":
        quantize_static(source, target, reader, per_channel=True)
    elif form == "u8":
        quantize_static(source, target, reader, activation_type=QuantType.QUInt8)
    else:
        quantize_static(
            source, target, reader, per_channel=True, quant_format=QuantFormat.QOperator, activation_type=QuantType.QUInt8
        )


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
