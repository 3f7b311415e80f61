"""LSTM, GRU and RNN on the CPU provider, against the operators' definitions and against PyTorch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("llvmlite", reason="the CPU provider compiles with llvmlite")
pytest.importorskip("onnx", reason="the models are built with onnx.helper")

from onnx import TensorProto, helper, numpy_helper

from intarsia.ep.provider import CompileContext
from intarsia.errors import InvalidArgument
from intarsia.graph.load import load
from intarsia.ops import registry
from intarsia.ops.framework.evaluate import evaluate_node
from intarsia.providers.cpu.program.cpu_program import CpuProgram

GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
NAMES = ("X", "W", "R", "B", "sequence_lens", "initial_h", "initial_c", "P")
CONSTANT = ("W", "R", "B", "P")


def layer(
    op: str, seq: int, batch: int, depth: int, hidden: int, directions: int, given: str, dtype: type = np.float32
) -> dict[str, np.ndarray]:
    """Operands of a layer; `given`: the optional ones, by name."""
    rng = np.random.default_rng(1)
    gates = GATES[op] * hidden
    shapes = {
        "X": (seq, batch, depth), "W": (directions, gates, depth), "R": (directions, gates, hidden),
        "B": (directions, 2 * gates),
        "initial_h": (directions, batch, hidden), "initial_c": (directions, batch, hidden), "P": (directions, 3 * hidden),
    }  # fmt: skip
    wanted = ["X", "W", "R", *given.split()]
    made = {n: (rng.standard_normal(s) / 2).astype(dtype) for n, s in shapes.items() if n in wanted}
    if "sequence_lens" in wanted:
        made["sequence_lens"] = rng.integers(0, seq + 1, batch).astype(np.int32)
    return made


def program(
    op: str, operands: dict[str, np.ndarray], outputs: list[str], attributes: dict[str, Any], opset: int = 14,
    free: bool = False,
    constants: tuple[str, ...] = CONSTANT,
) -> CpuProgram:  # fmt: skip
    """The compiled layer; with `free` all sizes of its inputs are symbols, but the last one of X."""
    names = [n if n in operands else "" for n in NAMES]
    node = helper.make_node(op, names, outputs, hidden_size=int(operands["R"].shape[2]), **attributes)
    inputs = []
    for name, array in operands.items():
        if name not in constants:
            shape = [f"{name}_{i}" if free and not (name == "X" and i == 2) else d for i, d in enumerate(array.shape)]
            inputs.append(helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), shape))
    graph = helper.make_graph(
        [node], "layer", inputs, [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in outputs if n],
        [numpy_helper.from_array(operands[n], n) for n in operands if n in constants],
    )  # fmt: skip
    for value in graph.output:
        value.type.tensor_type.elem_type = helper.np_dtype_to_tensor_dtype(operands["X"].dtype)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
    return CpuProgram.compile(load(model), registry(), CompileContext(intra_op_num_threads=2))


def defined(made: CpuProgram, operands: dict[str, np.ndarray]) -> list[np.ndarray]:
    (node,) = made.lowered.graph.nodes
    return [r for r in evaluate_node(node, [operands.get(n) for n in node.inputs], registry()) if r is not None]


def kinds(made: CpuProgram) -> set[str]:
    return {r.kind for r in made.nodes()}


def check(made: CpuProgram, operands: dict[str, np.ndarray], atol: float = 2e-6) -> None:
    assert kinds(made) == {"compiled"}
    found = made.run([operands[n] for n in made.inputs])
    expected = defined(made, operands)
    for name, f in zip(made.outputs, found, strict=True):
        (node,) = made.lowered.graph.nodes
        e = (
            expected[list(node.outputs).index(name)]
            if len(expected) == len(node.outputs)
            else expected[made.outputs.index(name)]
        )
        assert f.dtype == e.dtype
        np.testing.assert_allclose(f, e, atol=atol)


ALL = {"LSTM": "B sequence_lens initial_h initial_c P", "GRU": "B sequence_lens initial_h", "RNN": "B sequence_lens initial_h"}
OUTPUTS = {"LSTM": ["Y", "Y_h", "Y_c"], "GRU": ["Y", "Y_h"], "RNN": ["Y", "Y_h"]}


@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("op", list(GATES))
@pytest.mark.parametrize("layout", [0, 1])
def test_all_operands(op: str, direction: str, layout: int) -> None:
    operands = layer(op, 5, 4, 6, 20, 2 if direction == "bidirectional" else 1, ALL[op])
    if layout:
        for name in {"X", "initial_h", "initial_c"} & operands.keys():
            operands[name] = np.ascontiguousarray(operands[name].swapaxes(0, 1))
    check(program(op, operands, OUTPUTS[op], {"direction": direction, "layout": layout}), operands)


@pytest.mark.parametrize("given", ["", "B"])
@pytest.mark.parametrize("linear", [0, 1])
def test_gru_linear_before_reset(given: str, linear: int) -> None:
    operands = layer("GRU", 4, 1, 3, 33, 2, given)
    check(program("GRU", operands, ["Y", "Y_h"], {"direction": "bidirectional", "linear_before_reset": linear}), operands)


def test_lstm_clip_and_input_forget() -> None:
    operands = layer("LSTM", 4, 2, 3, 8, 1, "B")
    check(program("LSTM", operands, OUTPUTS["LSTM"], {"clip": 0.4, "input_forget": 1}), operands)


@pytest.mark.parametrize(
    "activation", "Relu Affine LeakyRelu ThresholdedRelu ScaledTanh HardSigmoid Elu Softsign Softplus sigmoid".split()
)
def test_activations(activation: str) -> None:
    operands = layer("RNN", 3, 2, 3, 8, 2, "B")
    check(program("RNN", operands, ["Y", "Y_h"], {"direction": "bidirectional", "activations": [activation] * 2}), operands)


@pytest.mark.parametrize("outputs", [["Y"], ["", "Y_h"], ["", "", "Y_c"], ["Y", "", "Y_c"]])
def test_some_outputs(outputs: list[str]) -> None:
    operands = layer("LSTM", 3, 2, 3, 8, 1, "B")
    made = program("LSTM", operands, outputs, {})
    assert kinds(made) == {"compiled"}
    whole = dict(zip(OUTPUTS["LSTM"], program("LSTM", operands, OUTPUTS["LSTM"], {}).run([operands["X"]]), strict=True))
    for name, found in zip(made.outputs, made.run([operands["X"]]), strict=True):
        np.testing.assert_array_equal(found, whole[name])


def test_double() -> None:
    operands = layer("LSTM", 3, 2, 3, 8, 1, "B", np.float64)
    check(program("LSTM", operands, OUTPUTS["LSTM"], {}), operands, atol=1e-13)


def test_sizes_are_bound_at_run_time() -> None:
    operands = layer("LSTM", 4, 3, 5, 12, 1, "B sequence_lens initial_h initial_c")
    made = program("LSTM", operands, OUTPUTS["LSTM"], {}, free=True)
    check(made, operands)
    check(made, layer("LSTM", 7, 1, 5, 12, 1, "sequence_lens initial_h initial_c") | {n: operands[n] for n in "WRB"})


@pytest.mark.parametrize("layout", [0, 1])
@pytest.mark.parametrize("op", list(GATES))
def test_one_row_and_several_of_a_larger_layer(op: str, layout: int) -> None:
    """One row alone may have its input products computed beside the steps; the same program takes others."""
    given = "B initial_h initial_c" if op == "LSTM" else "initial_h"
    weights = {n: a / np.float32(4) for n, a in layer(op, 1, 1, 90, 100, 1, given).items()}
    made = None
    for seq, batch in ((20, 1), (3, 1), (30, 2), (33, 1)):
        operands = layer(op, seq, batch, 90, 100, 1, given) | {n: weights[n] for n in "WRB" if n in weights}
        if layout:
            operands |= {n: np.ascontiguousarray(a.swapaxes(0, 1)) for n, a in operands.items() if n[0] in "Xi"}
        made = made or program(op, operands, OUTPUTS[op], {"layout": layout, "direction": "reverse"}, free=True)
        check(made, operands, atol=3e-6)
        check(program(op, operands, OUTPUTS[op], {"layout": layout, "direction": "reverse"}), operands, atol=3e-6)


@pytest.mark.parametrize("free", [False, True])
@pytest.mark.parametrize("op", ["LSTM", "GRU"])
def test_input_products_of_many_rows(op: str, free: bool) -> None:
    """Of so many that seven multiplications may stand instead of eight; of one row more, and of one alone."""
    operands = layer(op, 20, 16, 256, 130, 1, "B")
    operands = {n: a / np.float32(1 if n == "X" else 8) for n, a in operands.items()}
    made = program(op, operands, OUTPUTS[op], {}, free=free)
    check(made, operands, atol=3e-6)
    if free:
        for seq, batch in ((11, 17), (40, 1), (2, 3)):
            check(made, operands | {"X": layer(op, seq, batch, 256, 130, 1, "")["X"]}, atol=3e-6)


def test_a_state_of_another_batch_is_refused() -> None:
    operands = layer("LSTM", 4, 3, 5, 12, 1, "B initial_h")
    made = program("LSTM", operands, ["Y"], {}, free=True)
    operands["initial_h"] = operands["initial_h"][:, :2].copy()
    with pytest.raises(InvalidArgument, match=r"a dimension of size 2 \(initial_h_1\) must equal one of size 3 \(X_1\)"):
        made.run([operands[n] for n in made.inputs])


def test_what_stays_with_the_definition() -> None:
    operands = layer("LSTM", 3, 2, 3, 8, 1, "B")
    assert kinds(program("LSTM", operands, ["Y"], {}, constants=("W",))) == {"host"}
    both = layer("RNN", 3, 2, 3, 8, 2, "")
    made = program("RNN", both, ["Y"], {"direction": "bidirectional", "activations": ["Relu", "Tanh"]})
    assert kinds(made) == {"host"}


def onnx_order(weights: np.ndarray, op: str) -> np.ndarray:
    """PyTorch's gates (i f g o; r z n) in ONNX's order (i o f c; z r h)."""
    parts = np.split(weights, GATES[op])
    return np.concatenate([parts[i] for i in {"LSTM": (0, 3, 1, 2), "GRU": (1, 0, 2), "RNN": (0,)}[op]])


@pytest.mark.parametrize("op", list(GATES))
def test_against_torch(op: str) -> None:
    torch = pytest.importorskip("torch", reason="an independent reference for recurrent layers")
    torch.manual_seed(0)
    module = getattr(torch.nn, op)(7, 24, bidirectional=True)
    named = {n: p.detach().numpy() for n, p in module.named_parameters()}

    def both(kind: str) -> np.ndarray:
        return np.stack([onnx_order(named[f"{kind}_l0{end}"], op) for end in ("", "_reverse")])

    x = np.random.default_rng(0).standard_normal((6, 3, 7)).astype(np.float32)
    operands = {
        "X": x,
        "W": both("weight_ih"),
        "R": both("weight_hh"),
        "B": np.concatenate([both("bias_ih"), both("bias_hh")], 1),
    }
    attributes = {"direction": "bidirectional"} | ({"linear_before_reset": 1} if op == "GRU" else {})
    made = program(op, operands, OUTPUTS[op], attributes)
    assert kinds(made) == {"compiled"}
    y, *ends = made.run([x])
    expected, state = module(torch.from_numpy(x))
    np.testing.assert_allclose(y.transpose(0, 2, 1, 3).reshape(6, 3, -1), expected.detach().numpy(), atol=1e-6)
    for end, e in zip(ends, state if op == "LSTM" else (state,), strict=True):
        np.testing.assert_allclose(end, e.detach().numpy(), atol=1e-6)
