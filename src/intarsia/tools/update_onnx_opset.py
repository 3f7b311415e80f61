"""A later version of ONNX's operators for a model: `python -m intarsia.tools.update_onnx_opset --opset 17 IN OUT`."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from intarsia.tools.onnx_model_utils import update_onnx_opset


def update_onnx_opset_helper(arguments: Sequence[str] | None = None) -> None:
    """The command."""
    parser = argparse.ArgumentParser(description="Convert a model to a later version of ONNX's operators.")
    parser.add_argument("--opset", type=int, default=15)
    parser.add_argument("input_model")
    parser.add_argument("output_model")
    given = parser.parse_args(arguments)
    update_onnx_opset(given.input_model, given.opset, given.output_model)


if __name__ == "__main__":
    update_onnx_opset_helper()
