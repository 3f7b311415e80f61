"""Weights for engines that are stored without them: they come from the part itself, read by NVIDIA's parser again."""

from __future__ import annotations

from typing import Any

from intarsia.errors import EPFail
from intarsia.graph.model import Graph
from intarsia.providers.tensorrt.library import Library, told
from intarsia.providers.tensorrt.onnx_model import prepared, written


def refit(library: Library, engine: Any, legal: Graph) -> None:
    """Give an engine the weights of a legalised part of the structure that it was built of.

    Raises:
        EPFail: the engine takes them not, or wants others.
    """
    trt = library.module
    with library.messages.collected() as lines, written(prepared(legal)) as model:
        refitter = trt.Refitter(engine, library.logger)
        parser = trt.OnnxParserRefitter(refitter, library.logger)
        read = parser.refit_from_file(model.path) if model.path else parser.refit_from_bytes(model.data)
        if not read:
            errors = [str(parser.get_error(i).desc()) for i in range(parser.num_errors)]
            raise EPFail(f"{library.title} takes no weights for an engine that was stored without: {told(errors or lines)}")
        missing = list(refitter.get_missing_weights())
        if missing:
            raise EPFail(f"{library.title} wants weights that the part does not have: {', '.join(missing[:5])}")
        if not refitter.refit_cuda_engine():
            raise EPFail(f"{library.title} could not put weights into an engine: {told(lines)}")
