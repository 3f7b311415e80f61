"""Small example models: `get_example("mul_1.onnx")`, "sigmoid.onnx" and "logreg_iris.onnx", the names of onnxruntime's."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from intarsia.errors import NoSuchFile, nearest
from intarsia.graph.formats.atomic_write import replace_file

if TYPE_CHECKING:
    import onnx

# A linear classifier of the three iris species from two numbers. These are the numbers that onnxruntime's example of this name
# computes with (the first six of its coefficients, for an input of two columns), so that published results are the same.
_COEFFICIENTS = [0.38574114, 1.3805406, -2.13145, -0.9928048, 0.6427745, -1.7489388]
_INTERCEPTS = [0.2496292, 0.5820278, -0.94161665]


def get_example(name: str) -> str:
    """The path of an example model, which is written to the cache when it is first requested.

    Raises:
        NoSuchFile: there is no such example.
    """
    if name not in _EXAMPLES:
        raise NoSuchFile(f"Unable to find example {name!r}; {nearest(str(name), _EXAMPLES)}")
    from intarsia.cache.disk_cache import cache_directory, make_folder

    data = _EXAMPLES[name]().SerializeToString()
    try:
        make_folder(str(cache_directory()), str(cache_directory() / "datasets"))
        return _written(cache_directory() / "datasets", name, data)
    except OSError:  # a cache that cannot be written
        return _written(Path(tempfile.mkdtemp(prefix="intarsia-")), name, data)


def _written(folder: Path, name: str, data: bytes) -> str:
    path = folder / name
    if not path.is_file() or path.read_bytes() != data:
        replace_file(path, lambda file: file.write(data))
    return str(path)


def _mul_1() -> onnx.ModelProto:
    """Y = X * [[1, 2], [3, 4], [5, 6]]."""
    from onnx import TensorProto, helper

    weights = helper.make_tensor("W", TensorProto.FLOAT, [3, 2], [1, 2, 3, 4, 5, 6])
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, [3, 2]) for n in "XY")
    node = helper.make_node("Mul", ["X", "W"], ["Y"], name="mul_1")
    return _model(helper.make_graph([node], "mul test", [x], [y], [weights]))


def _sigmoid() -> onnx.ModelProto:
    """y = sigmoid(x) of a tensor [3, 4, 5]."""
    from onnx import TensorProto, helper

    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, [3, 4, 5]) for n in "xy")
    return _model(helper.make_graph([helper.make_node("Sigmoid", ["x"], ["y"])], "test_sigmoid", [x], [y]))


def _logreg_iris() -> onnx.ModelProto:
    """The species of three irises, and a map of species to probability for each."""
    from onnx import TensorProto, helper

    nodes = [
        helper.make_node(
            "LinearClassifier", ["float_input"], ["label", "scores"], domain="ai.onnx.ml", classlabels_ints=[0, 1, 2],
            coefficients=_COEFFICIENTS, intercepts=_INTERCEPTS, post_transform="LOGISTIC", multi_class=0,
        ),
        helper.make_node("Normalizer", ["scores"], ["normalized"], domain="ai.onnx.ml", norm="L1"),
        helper.make_node("ZipMap", ["normalized"], ["probabilities"], domain="ai.onnx.ml", classlabels_int64s=[0, 1, 2]),
    ]  # fmt: skip
    map_type = helper.make_map_type_proto(TensorProto.INT64, helper.make_tensor_type_proto(TensorProto.FLOAT, []))
    outputs = [
        helper.make_tensor_value_info("label", TensorProto.INT64, [3]),
        helper.make_value_info("probabilities", helper.make_sequence_type_proto(map_type)),
    ]
    taken = helper.make_tensor_value_info("float_input", TensorProto.FLOAT, [3, 2])
    return _model(helper.make_graph(nodes, "logreg_iris", [taken], outputs), ("ai.onnx.ml", 1))


def _model(graph: onnx.GraphProto, *domains: tuple[str, int]) -> onnx.ModelProto:
    from onnx import helper

    opsets = [helper.make_opsetid(domain, version) for domain, version in (("", 13), *domains)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=7, producer_name="intarsia")


_EXAMPLES: dict[str, Callable[[], onnx.ModelProto]] = {
    "logreg_iris.onnx": _logreg_iris,
    "mul_1.onnx": _mul_1,
    "sigmoid.onnx": _sigmoid,
}
