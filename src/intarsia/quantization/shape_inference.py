"""`quant_pre_process`: shapes of all values, and what a session's first optimisations make of a model."""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnx
from onnx import external_data_helper

from intarsia.compat.declared_arguments import takes
from intarsia.errors import IntarsiaError, InvalidArgument
from intarsia.quantization.description import model_files
from intarsia.quantization.description.tensor_marks import logger, opset_of
from intarsia.quantization.description.upsample_rewrite import upsample_as_resize


@dataclass
class PreProcessArguments:
    """Arguments of `quant_pre_process`, as onnxruntime has them.

    Attributes:
        input_model: a path or a model, which stays as it is.
        output_model_path: where the model is written.
        skip_optimization: leave the graph as it is.
        skip_onnx_shape: without ONNX's shape inference.
        skip_symbolic_shape: without shapes in symbols.
        auto_merge, int_max, guess_output_rank, verbose: of `SymbolicShapeInference`.
        save_as_external_data: weights go into other files.
        all_tensors_to_one_file, external_data_location, external_data_size_threshold: which, and from how many bytes.
    """

    input_model: str | os.PathLike[str] | onnx.ModelProto | None = None
    output_model_path: str | os.PathLike[str] | None = None
    skip_optimization: bool = False
    skip_onnx_shape: bool = False
    skip_symbolic_shape: bool = False
    auto_merge: bool = False
    int_max: int = 2**31 - 1
    guess_output_rank: bool = False
    verbose: int = 0
    save_as_external_data: bool = False
    all_tensors_to_one_file: bool = False
    external_data_location: str | None = None
    external_data_size_threshold: int = 1024
    input_model_path: str | os.PathLike[str] | None = None


@takes(PreProcessArguments)
def quant_pre_process(given: PreProcessArguments) -> None:
    """Prepare a model for quantisation and write it; arguments as of `PreProcessArguments`.

    Raises:
        InvalidArgument: no input or no output.
        NoSuchFile: there is no such model.
    """
    source = given.input_model if given.input_model is not None else given.input_model_path
    if source is None or given.output_model_path is None:
        raise InvalidArgument("quant_pre_process: expected input_model and output_model_path, one is missing")
    model = model_files.load_model(source)
    if opset_of(model) <= 10:
        upsample_as_resize(model)
        model = onnx.version_converter.convert_version(model, 11)
    if not given.skip_symbolic_shape:
        model = _with_symbolic_shapes(model, given)
    if not given.skip_optimization:
        model = _optimised(model)
    if not given.skip_onnx_shape:
        model = model_files.with_shapes(model)
    model_files.mark_prepared(model)
    _write(model, given)


def _with_symbolic_shapes(model: onnx.ModelProto, given: PreProcessArguments) -> onnx.ModelProto:
    from intarsia.tools.symbolic_shape_infer import SymbolicShapeInference

    return SymbolicShapeInference.infer_shapes(model, given.int_max, given.auto_merge, given.guess_output_rank, given.verbose)


def _optimised(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model after a session's rewrites of the level "basic"; what a session cannot make stays as it is."""
    from intarsia.tools.onnx_model_utils import optimize_model

    with tempfile.TemporaryDirectory(prefix="intarsia.quantise.") as folder:
        before, after = Path(folder) / "model.onnx", Path(folder) / "optimised.onnx"
        model_files.save_model(_copied(model), before, external=model.ByteSize() >= model_files.LARGE)
        try:
            optimize_model(before, after, use_external_initializers=model.ByteSize() >= model_files.LARGE)
            return onnx.load(os.fspath(after))
        except IntarsiaError as error:
            logger.error("the model is not optimised before quantisation, and stays as it is: %s", error)
            return model


def _copied(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model itself, or a copy of one that is too large for a message: writing that one changes it."""
    return model_files.load_model(model) if model.ByteSize() >= model_files.LARGE else model


def _write(model: onnx.ModelProto, given: PreProcessArguments) -> None:
    assert given.output_model_path is not None
    path: Any = os.fspath(given.output_model_path)
    if not given.save_as_external_data:
        model_files.save_model(model, path)
        return
    external_data_helper.convert_model_to_external_data(
        model, all_tensors_to_one_file=given.all_tensors_to_one_file, location=given.external_data_location,
        size_threshold=given.external_data_size_threshold, convert_attribute=False,
    )  # fmt: skip
    onnx.save_model(model, path)
