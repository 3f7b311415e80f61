"""`SymbolicShapeInference.infer_shapes`: types and symbolic shapes of all values of a model, written into it.

On the command line: `python -m intarsia.tools.symbolic_shape_infer --input MODEL --output MODEL`.
"""

from __future__ import annotations

import argparse
import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

from intarsia.errors import Fail, IntarsiaError, InvalidArgument, WrongType
from intarsia.graph.formats.atomic_write import replace_file
from intarsia.printable import get_logger

if TYPE_CHECKING:
    import onnx

    from intarsia.graph.model import Node, ValueType

logger = get_logger("intarsia.tools")


class SymbolicShapeInference:
    """Shape inference by the definitions that Intarsia runs: sizes are integers, symbols, or expressions of symbols."""

    @staticmethod
    def infer_shapes(
        in_mp: onnx.ModelProto,
        int_max: int = 2**31 - 1,
        auto_merge: bool = False,
        guess_output_rank: bool = False,
        verbose: int = 0,
    ) -> onnx.ModelProto:
        """A copy of the model with `value_info` for every value whose type is known, and the outputs' shapes where they were
        not.

        Args:
            in_mp: the model; weights in other files are not looked at, and need not be there.
            int_max: no effect: what is not known has no bound.
            auto_merge: no effect: sizes that must agree and do not are an error of the node.
            guess_output_rank: True: what an operator that is not known makes is taken to be like its first input.
            verbose: from 1 on, what could not be inferred is logged at level INFO.

        Raises:
            WrongType: not a model.
            Fail: an output has no shape, and `guess_output_rank` is not set.
        """
        import onnx

        from intarsia.graph.load import load
        from intarsia.graph.model import TensorType
        from intarsia.ops import registry
        from intarsia.ops.framework.infer import infer

        if not isinstance(in_mp, onnx.ModelProto):
            raise WrongType(f"infer_shapes: expected an onnx.ModelProto, got {type(in_mp).__name__}; use onnx.load(path)")
        made = onnx.ModelProto()
        made.CopyFrom(in_mp)

        def failed(node: Node, error: IntarsiaError) -> None:
            logger.log(logging.INFO if verbose else logging.DEBUG, "shapes of %s are not known: %s", node.name, error)

        graph = load(_without_weights(made))
        types = infer(graph, registry(), strict=False, on_error=failed).types
        if guess_output_rank:
            for node in graph.nodes:
                guess = types.get(node.inputs[0]) if node.inputs else None
                types.update({n: guess for n in node.outputs if n and n not in types and guess is not None})
        taken = {value.name for value in (*made.graph.input, *made.graph.output, *made.graph.initializer)}
        del made.graph.value_info[:]
        for name, kind in types.items():
            if name not in taken and kind is not None and any(name in node.output for node in made.graph.node):
                made.graph.value_info.add(name=name, type=type_proto(kind))
        missing = []
        for output in made.graph.output:
            found = types.get(output.name)
            if found is not None:
                output.type.CopyFrom(type_proto(found))
            if found is None or (isinstance(found, TensorType) and found.shape is None):
                missing.append(output.name)
        if missing and not guess_output_rank:
            raise Fail(f"Incomplete symbolic shape inference: the outputs {', '.join(missing)} have no shape")
        return made


def type_proto(kind: ValueType) -> onnx.TypeProto:
    """One of Intarsia's types as ONNX writes it; sizes that have no name are left out."""
    import onnx

    from intarsia.graph.model import Graph, Value
    from intarsia.graph.save import to_model_proto

    holder = Graph("t", [Value("x", kind)], [], [], {}, opset_imports={"": 21})
    found = onnx.TypeProto()
    found.CopyFrom(to_model_proto(holder).graph.input[0].type)
    return found


def _without_weights(model: onnx.ModelProto) -> onnx.ModelProto:
    """A model whose weights that lie in other files are inputs: their types are all that is required."""
    import onnx

    if not any(t.data_location == onnx.TensorProto.EXTERNAL for t in model.graph.initializer):
        return model
    found = onnx.ModelProto()
    found.CopyFrom(model)
    inputs = {value.name for value in found.graph.input}
    tensors_left = []
    for tensor in found.graph.initializer:
        if tensor.data_location != onnx.TensorProto.EXTERNAL:
            tensors_left.append(tensor)
        elif tensor.name not in inputs:
            found.graph.input.append(onnx.helper.make_tensor_value_info(tensor.name, tensor.data_type, list(tensor.dims)))
    tensors = [onnx.TensorProto.FromString(tensor.SerializeToString()) for tensor in tensors_left]
    del found.graph.initializer[:]
    found.graph.initializer.extend(tensors)
    return found


def main(arguments: Sequence[str] | None = None) -> None:
    """The command."""
    import onnx

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--input", required=True, help="the model")
    parser.add_argument("--output", help="where the model with shapes is written; by default its place")
    for name in ("auto_merge", "guess_output_rank"):
        parser.add_argument(f"--{name}", action="store_true")
    parser.add_argument("--int_max", type=int, default=2**31 - 1)
    parser.add_argument("--verbose", type=int, default=0)
    given = parser.parse_args(arguments)
    try:
        model = onnx.load(given.input, load_external_data=False)
    except OSError as error:
        raise InvalidArgument(f"{given.input}: {error.strerror or error}") from error
    inferred = SymbolicShapeInference.infer_shapes(
        model, given.int_max, given.auto_merge, given.guess_output_rank, given.verbose
    )
    replace_file(given.output or given.input, lambda file: onnx.save(inferred, file))


if __name__ == "__main__":
    main()
