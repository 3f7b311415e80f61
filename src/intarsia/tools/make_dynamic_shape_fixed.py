"""Fix symbolic sizes of a model: `python -m intarsia.tools.make_dynamic_shape_fixed --dim_param batch --dim_value 1 IN OUT`,
or `--input_name x --input_shape 1,3,224,224`."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from intarsia.graph.formats.atomic_write import replace_file
from intarsia.tools.onnx_model_utils import fix_output_shapes, make_dim_param_fixed, make_input_shape_fixed


def make_dynamic_shape_fixed_helper(arguments: Sequence[str] | None = None) -> None:
    """The command."""
    import onnx

    parser = argparse.ArgumentParser(description="Fix symbolic sizes of a model, by their name or for one input.")
    parser.add_argument("--dim_param", help="name of the symbolic size")
    parser.add_argument("--dim_value", type=int, help="its value")
    parser.add_argument("--input_name", help="an input whose sizes are given by --input_shape")
    parser.add_argument("--input_shape", type=lambda text: [int(size) for size in text.split(",")], help="1,3,224,224")
    parser.add_argument("input_model")
    parser.add_argument("output_model")
    given = parser.parse_args(arguments)
    by_name = given.dim_param is not None and given.dim_value is not None
    by_input = given.input_name is not None and given.input_shape is not None
    if by_name == by_input:
        parser.error("give --dim_param and --dim_value, or --input_name and --input_shape")
    model = onnx.load(given.input_model)
    if by_name:
        make_dim_param_fixed(model.graph, given.dim_param, given.dim_value)
    else:
        make_input_shape_fixed(model.graph, given.input_name, given.input_shape)
    fix_output_shapes(model)
    replace_file(given.output_model, lambda file: onnx.save(model, file))


if __name__ == "__main__":
    make_dynamic_shape_fixed_helper()
