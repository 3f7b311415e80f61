"""Write the optimised form of a model: `python -m intarsia.tools.optimize_onnx_model --opt_level basic IN OUT`."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from intarsia.tools.onnx_model_utils import get_optimization_level, optimize_model


def optimize_model_helper(arguments: Sequence[str] | None = None) -> None:
    """The command."""
    parser = argparse.ArgumentParser(description="Write a model as a session optimises it.")
    parser.add_argument("--opt_level", default="basic", choices=("disable", "basic", "extended", "layout", "all"))
    parser.add_argument("--log_level", type=int, default=3, choices=range(5))
    parser.add_argument("--use_external_initializers", action="store_true", help="weights in a file beside the model")
    parser.add_argument("input_model")
    parser.add_argument("output_model")
    given = parser.parse_args(arguments)
    level = get_optimization_level(given.opt_level)
    optimize_model(given.input_model, given.output_model, level, given.log_level, given.use_external_initializers)


if __name__ == "__main__":
    optimize_model_helper()
