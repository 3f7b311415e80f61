"""Branches that sizes or an input of one integer choose: no result changes, and nothing of the model runs node by node."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import intarsia as ort
from intarsia.model import shape_specialization
from intarsia.model.shape_specialization import hosted

FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64
node, value = helper.make_node, helper.make_tensor_value_info
WEIGHTS = np.arange(12, dtype=np.float32).reshape(4, 3) / 8


def squeeze(x: str, out: str) -> list[onnx.NodeProto]:
    """What PyTorch's exporter writes for x.squeeze(-1)."""
    then = helper.make_graph([node("Squeeze", [x, "axes"], [f"{out}_t"])], "then", [], [value(f"{out}_t", FLOAT, None)])
    other = helper.make_graph([node("Identity", [x], [f"{out}_e"])], "else", [], [value(f"{out}_e", FLOAT, None)])
    return [
        node("Shape", [x], [f"{out}_shape"]),
        node("Gather", [f"{out}_shape", "last"], [f"{out}_size"]),
        node("Equal", [f"{out}_size", "one"], [f"{out}_is"]),
        node("If", [f"{out}_is"], [out], then_branch=then, else_branch=other),
    ]


CONSTANTS = [
    numpy_helper.from_array(np.array([-1]), "axes"), numpy_helper.from_array(np.array(-1), "last"),
    numpy_helper.from_array(np.array(1), "one"), numpy_helper.from_array(WEIGHTS, "w"),
]  # fmt: skip


def session(nodes: list[onnx.NodeProto], inputs: list[Any], path: Path | None = None) -> ort.InferenceSession:
    graph = helper.make_graph(nodes, "g", inputs, [value("y", FLOAT, None)], CONSTANTS)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    if path is None:
        return ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    onnx.save(model, path)
    return ort.InferenceSession(path, providers=["CPUExecutionProvider"])


def squeezed(path: Path | None = None) -> ort.InferenceSession:
    nodes = [*squeeze("x", "s"), node("MatMul", ["s", "w"], ["p"]), node("Relu", ["p"], ["y"])]
    return session(nodes, [value("x", FLOAT, ["a", 4, "n"])], path)


def rows(*shape: int) -> np.ndarray:
    return np.arange(np.prod(shape), dtype=np.float32).reshape(shape) - 5


def expected(x: np.ndarray) -> np.ndarray:
    return np.maximum((x[..., 0] if x.shape[-1] == 1 else x) @ WEIGHTS, 0)


def chosen(made: ort.InferenceSession, *inputs: np.ndarray) -> Any:
    assert isinstance(made._engine.by_sizes.branches, shape_specialization.SizeBranches)
    return made._engine.by_sizes.branches.model(inputs)


@pytest.mark.parametrize("start", ["bytes", "cache"])
def test_the_rank_of_a_value_depends_on_a_size(start: str, tmp_path: Path) -> None:
    path = tmp_path / "m.onnx" if start == "cache" else None
    if path is not None:
        squeezed(path).run(None, {"x": rows(2, 4, 1)})  # a second session begins from what this one kept
    made = squeezed(path)
    for x in (rows(2, 4, 1), rows(3, 4, 4), rows(5, 4, 1), rows(2, 4, 4), rows(2, 4, 1)):
        for _ in range(2):
            np.testing.assert_allclose(made.run(None, {"x": x})[0], expected(x), rtol=1e-5)
    assert hosted(made._engine.settled_model())
    assert not hosted(chosen(made, rows(2, 4, 1))) and not hosted(chosen(made, rows(3, 4, 4)))
    assert chosen(made, rows(2, 4, 1)) is chosen(made, rows(7, 4, 1)) is not chosen(made, rows(2, 4, 4))


def test_branches_behind_branches() -> None:
    nodes = [*squeeze("x", "s"), *squeeze("s", "t"), node("Neg", ["t"], ["y"])]
    made = session(nodes, [value("x", FLOAT, ["a", "b", "n"])])
    for shape, left in (((3, 1, 1), (3,)), ((3, 2, 1), (3, 2)), ((3, 1, 2), (3, 1, 2))):
        x = rows(*shape)
        np.testing.assert_array_equal(made.run(None, {"x": x})[0], -x.reshape(left))
        assert not hosted(chosen(made, x))


def rated() -> ort.InferenceSession:
    """The branches are chosen by a number; each squeezes another input, as in voice detectors for two rates."""
    then = helper.make_graph([*squeeze("x", "u"), node("Exp", ["u"], ["v"])], "then", [], [value("v", FLOAT, None)])
    other = helper.make_graph([*squeeze("x", "r"), node("Neg", ["r"], ["q"])], "else", [], [value("q", FLOAT, None)])
    nodes = [node("Equal", ["rate", "one"], ["is"]), node("If", ["is"], ["y"], then_branch=then, else_branch=other)]
    return session(nodes, [value("x", FLOAT, ["a", "n"]), value("rate", INT64, [])])


def test_a_number_chooses() -> None:
    made = rated()
    for rate, n in ((1, 1), (8, 1), (1, 3), (8, 3), (1, 1), (5, 1)):
        x, number = rows(2, n), np.array(rate)
        wanted = np.exp(x) if rate == 1 else -x
        np.testing.assert_allclose(made.run(None, {"x": x, "rate": number})[0], wanted[:, 0] if n == 1 else wanted, rtol=1e-5)
        assert not hosted(chosen(made, x, number))


def test_more_choices_than_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shape_specialization, "CHOICES", 1)
    monkeypatch.setattr(shape_specialization, "_KNOWN", 2)
    made = squeezed()
    for x in (rows(2, 4, 1), rows(3, 4, 4), rows(5, 4, 1), rows(6, 4, 4)):
        np.testing.assert_allclose(made.run(None, {"x": x})[0], expected(x), rtol=1e-5)
    assert chosen(made, rows(2, 4, 1)) is not None and chosen(made, rows(2, 4, 4)) is None


def test_other_ways_to_run() -> None:
    made, x = squeezed(), rows(2, 4, 1)
    wanted = expected(x)
    np.testing.assert_allclose(made.run(["y"], {"x": x.tolist()}, ort.RunOptions())[0], wanted, rtol=1e-5)
    np.testing.assert_allclose(made.run(None, {"x": x}, timeout=60)[0], wanted, rtol=1e-5)
    assert made.run(None, {"x": x}, taps=["p"]).taps["p"].shape == (2, 3)  # type: ignore[attr-defined]
    binding = made.io_binding()
    binding.bind_cpu_input("x", x)
    binding.bind_output("y")
    for _ in range(3):
        made.run_with_iobinding(binding)
        np.testing.assert_allclose(binding.copy_outputs_to_cpu()[0], wanted, rtol=1e-5)


def test_conditions_that_sizes_do_not_decide() -> None:
    """A sum of elements chooses, or a size that data give: the graph stays whole."""
    branch = {
        name: helper.make_graph([node("Squeeze" if name == "t" else "Identity", ["x", "axes"][: 1 + (name == "t")], [name])],
                                name, [], [value(name, FLOAT, None)])
        for name in "te"
    }  # fmt: skip
    nodes = [
        node("ReduceSum", ["x"], ["sum"], keepdims=0), node("Cast", ["sum"], ["n"], to=INT64),
        node("Equal", ["n", "one"], ["is"]),
        node("If", ["is"], ["y"], then_branch=branch["t"], else_branch=branch["e"]),
    ]  # fmt: skip
    made = session(nodes, [value("x", FLOAT, ["a", 1])])
    for x, shape in ((np.array([[1]], np.float32), (1,)), (np.array([[2]], np.float32), (1, 1))):
        assert made.run(None, {"x": x})[0].shape == shape
    assert made._engine.by_sizes is None or chosen(made, rows(1, 1)) is None
