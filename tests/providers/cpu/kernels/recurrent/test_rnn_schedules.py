"""The table of schedules of recurrent layers: what it chooses and why not the others, that the steps are those of the choice,
and that each that applies gives the right numbers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from onnx import helper

pytest.importorskip("llvmlite", reason="the CPU provider compiles with llvmlite")

import schedule_models as t

from intarsia.codegen.llvm import target as targets
from intarsia.codegen.llvm.target import Target
from intarsia.ep.provider import CompileContext
from intarsia.graph.dtypes import DType
from intarsia.graph.load import load
from intarsia.ops import registry
from intarsia.ops.framework.evaluate import evaluate_node
from intarsia.providers.cpu.kernels.common.tiles import tile_of
from intarsia.providers.cpu.kernels.recurrent import rnn_arguments
from intarsia.providers.cpu.kernels.recurrent.rnn import SCHEDULES, Recurrent
from intarsia.providers.cpu.kernels.recurrent.rnn_arguments import RecurrentSpec
from intarsia.providers.cpu.kernels.recurrent.rnn_row_product import TILE_ROWS
from intarsia.providers.cpu.lowering.lower import Lowered
from intarsia.providers.cpu.program.cpu_program import CpuProgram

GATES = {"LSTM": 4, "GRU": 3, "RNN": 1, "DynamicQuantizeLSTM": 4}
Rows = tuple[int | str, int | str]  # steps of the sequence, and the batch


def layer(
    op: str, rows: Rows, depth: int, hidden: int, dtype: Any = np.float32, directions: int = 1, **attributes: Any
) -> bytes:
    """A layer with a bias; a quantised one has weights of int8 with a scale and zero point for each direction."""
    rng, width = np.random.default_rng(3), GATES[op] * hidden
    if directions == 2:
        attributes["direction"] = "bidirectional"
    shapes = {"W": (directions, width, depth), "R": (directions, width, hidden), "B": (directions, 2 * width)}
    constants = {name: (rng.standard_normal(shape) / 4).astype(dtype) for name, shape in shapes.items()}
    names, domain = ["X", "W", "R", "B"], ""
    if op == "DynamicQuantizeLSTM":
        domain, names = "com.microsoft", [*names, *[""] * 4, "sW", "zW", "sR", "zR"]
        for name in "WR":
            constants[name] = rng.integers(-128, 128, (directions, shapes[name][2], width)).astype(np.int8)
            constants |= {f"s{name}": np.full(directions, 0.003, np.float32), f"z{name}": np.zeros(directions, np.int8)}
    node = helper.make_node(op, names, ["y"], domain=domain, hidden_size=hidden, **attributes)
    return t.model_of(node, {"X": (dtype, (*rows, depth))}, constants, dtype)


def lowered(case: tuple[Any, ...], target: Target, config: Mapping[str, str] = {}) -> Lowered:
    return t.lowered(layer(*case), target, config)


ONE = ("LSTM", (50, 1), 64, 256)
MANY = ("LSTM", (20, 16), 1024, 256)
CASES: Mapping[str, tuple[tuple[Any, ...], Target, Mapping[str, str], str, list[str]]] = {
    # a layer, target and configuration; the schedule, and the labels of its steps
    "one row": (ONE, t.AVX512, {}, "inputs-beside", ["LSTM 256"]),
    "one row of double": ((*ONE, np.float64), t.AVX512, {}, "inputs-beside", ["LSTM 256"]),
    "one row, few registers": (ONE, t.AVX2, {}, "inputs-before", ["LSTM inputs 64x1024", "LSTM 256"]),
    "one step": (("LSTM", (1, 1), 64, 256), t.AVX512, {}, "inputs-dynamic", ["LSTM inputs 64x1024", "LSTM 256"]),
    "dynamic steps": (("GRU", ("n", 1), 64, 256), t.AVX512, {}, "inputs-dynamic", ["GRU inputs 64x768", "GRU 256"]),
    "dynamic rows": (
        ("LSTM", ("n", "b"), 512, 256), t.ZEN4, {}, "inputs-dynamic-strassen",
        ["gemm b*nx1024x512 (Strassen where rows are many)", "LSTM 256"],
    ),
    "many rows": (MANY, t.ZEN4, {}, "inputs-dynamic-strassen", ["gemm 320x1024x1024 (Strassen)", "LSTM 256"]),
    "no Strassen": (
        MANY, t.ZEN4, {"session.disable_strassen": "1"}, "inputs-dynamic", ["LSTM inputs 1024x1024", "LSTM 256"],
    ),
    "W and R that no cache holds": (
        ("LSTM", (40, 16), 2048, 1024), t.ZEN4, {}, "inputs-before-strassen", ["gemm 640x4096x2048 (Strassen)", "LSTM 1024"],
    ),
    "a small R": (("RNN", (20, 1), 32, 16), t.AVX512, {}, "inputs-before", ["RNN inputs 32x32", "RNN 16"]),
    "bytes": (
        ("DynamicQuantizeLSTM", (20, 1), 32, 64), t.VNNI, {}, "inputs-before-int8",
        ["least and largest", "quantize dynamically", "byte gemm 20x256x32", "LSTM 64"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_the_choice_that_is_told_is_what_is_lowered(name: str) -> None:
    case, target, config, chosen, labels = CASES[name]
    made = lowered(case, target, config)
    found = t.report(made, case[0])
    assert found.chosen == chosen
    assert t.labels(made) == labels
    t.check_report(found, SCHEDULES)


def test_every_schedule_is_chosen_somewhere() -> None:
    assert {s.name for s in SCHEDULES} == {chosen for *_, chosen, _ in CASES.values()}
    assert len({s.name for s in SCHEDULES}) == len(SCHEDULES)


NOT_TWO_ROWS = "a batch of 2 is not one row"
NO_REGISTERS = "registers have no room for input products beside the steps"
OF_BYTES = "its weights are stored as bytes"
BYTES = ("DynamicQuantizeLSTM", (20, 1), 32, 64)


@pytest.mark.parametrize(
    ("case", "target", "config", "schedule", "reason"),
    [
        (("LSTM", (50, 2), 64, 256), t.AVX512, {}, "inputs-beside", NOT_TWO_ROWS),
        (("LSTM", (50, "b"), 64, 256), t.AVX512, {}, "inputs-beside", "a batch of b is not one row"),
        (ONE, t.AVX2, {}, "inputs-beside", NO_REGISTERS),
        (ONE, t.ARM64, {}, "inputs-dynamic", NO_REGISTERS),
        (ONE, t.AVX2, {}, "inputs-dynamic-strassen", NO_REGISTERS),
        (ONE, t.AVX512, {}, "inputs-before-strassen", "the CPU is no faster so, or sums have to be in one order"),
        (ONE, t.ZEN4, {"session.disable_strassen": "1"}, "inputs-before-strassen", "session.disable_strassen is 1"),
        ((*MANY, np.float64), t.ZEN4, {}, "inputs-before-strassen", "it is of double, not float32"),
        ((*MANY, np.float64), t.ZEN4, {}, "inputs-dynamic-strassen", "it is of double, not float32"),
        (ONE, t.ZEN4, {}, "inputs-before-int8", "its weights are floats"),
        *((BYTES, t.ZEN4, {}, s.name, OF_BYTES) for s in SCHEDULES[:-1]),
    ],
)
def test_why_it_does_not_apply(
    case: tuple[Any, ...], target: Target, config: Mapping[str, str], schedule: str, reason: str
) -> None:
    found = t.said(t.report(lowered(case, target, config), case[0]), schedule)
    assert not found.applies and found.applies.reason.startswith(reason)
    assert str(found).split(None, 2)[:2] == [schedule, "no"]


@pytest.mark.parametrize(
    ("case", "schedule", "reason"),
    [
        (("LSTM", ("n", 1), 64, 256), "inputs-beside", "how many steps there are is known only in a run"),
        (("LSTM", (TILE_ROWS, 1), 64, 256), "inputs-beside", f"{TILE_ROWS} steps have no later ones"),
        (("RNN", (20, 1), 32, 16), "inputs-beside", "reading R of 1024 bytes leaves steps no time for input products"),
        (("RNN", (20, 1), 32, 16), "inputs-dynamic", "reading R of 1024 bytes leaves steps no time for input products"),
        (("LSTM", (20, 1), 1024, 1024), "inputs-dynamic", "W and R are larger than what caches keep from step to step"),
        (("GRU", (20, 1), 64, 256), "inputs-beside", "of some numbers of threads, all together compute input products faster"),
        (ONE, "inputs-dynamic-strassen", "adding blocks is expected to take as long as the products that it saves"),
        (ONE, "inputs-before-strassen", "adding blocks is expected to take as long as the products that it saves"),
    ],
)
def test_why_it_does_not_pay(case: tuple[Any, ...], schedule: str, reason: str) -> None:
    found = t.said(t.report(lowered(case, t.ZEN4), case[0]), schedule)
    assert found.applies and not found.pays and found.pays.reason.startswith(reason)
    assert f"yes, but {reason}" in str(found)


def test_the_faster_one_by_estimate_is_the_one_that_is_chosen() -> None:
    """Far from where they are equal: the estimates are not asked, but are told."""
    for case, faster, slower in (
        (ONE, "inputs-beside", "inputs-before"), (MANY, "inputs-dynamic-strassen", "inputs-before"),
    ):  # fmt: skip
        found = t.report(lowered(case, t.ZEN4), case[0])
        assert t.said(found, faster).seconds < t.said(found, slower).seconds
        assert found.chosen == faster
    floats = t.report(lowered(("LSTM", (20, 1), 32, 64), t.VNNI), "LSTM")
    of_bytes = t.report(lowered(BYTES, t.VNNI), BYTES[0])
    assert t.said(of_bytes, "inputs-before-int8").seconds < t.said(floats, "inputs-before").seconds


def test_a_program_tells_them() -> None:
    program = CpuProgram.compile(load(layer(*ONE)), registry(), CompileContext(intra_op_num_threads=1))
    title, *lines = program.describe("schedules").splitlines()
    assert title.startswith("LSTM -> y: float[50, 1, 64], float[1, 1024, 64] -> ")
    assert [line.split()[0] for line in lines] == [s.name for s in SCHEDULES]
    assert sum(line.endswith(" chosen") for line in lines) == 1


def test_a_layer_by_itself_has_the_table() -> None:
    made = lowered(ONE, t.AVX512)
    (template,) = (g.template for g in made.grouping.groups if isinstance(g.template, Recurrent))
    assert template.schedule_table() is SCHEDULES
    assert template.schedule_key(made.env) is None, "none of it is timed"


# --- numbers -------------------------------------------------------------------------------------------------------


def forced(model: bytes, schedule: str, threads: int, monkeypatch: pytest.MonkeyPatch) -> CpuProgram | None:
    """The layer by this schedule, where it applies on this machine, taken for one that gains by Strassen's products."""
    module = "intarsia.providers.cpu.kernels.recurrent.rnn"
    with monkeypatch.context() as patch:
        patch.setattr(targets, "_HALVING", frozenset({Target.host().cpu}))
        patch.setattr(f"{module}.SCHEDULES", tuple(s for s in SCHEDULES if s.name == schedule))
        try:
            return CpuProgram.compile(load(model), registry(), CompileContext(intra_op_num_threads=threads))
        except LookupError:
            return None


FLOATS = [s.name for s in SCHEDULES[:-1]]
LAYERS = {
    "LSTM": ("LSTM", 1, 5, 20, {}),
    "LSTM both ways": ("LSTM", 1, 40, 33, {"directions": 2}),
    "GRU that resets first": ("GRU", 1, 7, 40, {}),
    "GRU that resets last": ("GRU", 1, 7, 40, {"linear_before_reset": 1}),
    "RNN of rows": ("RNN", 3, 9, 50, {}),
    "LSTM of rows": ("LSTM", 6, 9, 50, {"directions": 2}),
}


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("schedule", FLOATS)
@pytest.mark.parametrize("name", LAYERS)
def test_whatever_applies_is_right_for_every_number_of_steps(
    name: str, schedule: str, threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also those that do not pay: against the definition in float64."""
    op, batch, depth, hidden, attributes = LAYERS[name]
    rng = np.random.default_rng(7)
    model = layer(op, ("n", batch), depth, hidden, **attributes)
    program = forced(model, schedule, threads, monkeypatch)
    spec = RecurrentSpec(op, (("Tanh", 0.0, 0.0),))
    beside, target = schedule == "inputs-beside", Target.host()
    if program is None:
        registers = rnn_arguments.has_registers(spec, tile_of(DType.FLOAT, target))
        narrow = "strassen" in schedule and target.vector_bytes < 64
        assert (beside and batch > 1) or narrow or ("before" not in schedule and not registers)
        pytest.skip(f"{schedule} does not apply to it on this CPU")
    graph = load(model)
    constants = [graph.constants[n].numpy().astype(np.float64) for n in "WRB"]
    for seq in (1, TILE_ROWS, TILE_ROWS + 1, 3 * TILE_ROWS + 2, 40):
        x = rng.standard_normal((seq, batch, depth)).astype(np.float32)
        (expected, *_) = evaluate_node(graph.nodes[0], [x.astype(np.float64), *constants], registry())
        np.testing.assert_allclose(program.run([x])[0], expected, atol=1e-5, err_msg=f"{seq} steps")


def test_strassen_multiplies_the_inputs_of_many_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    model = layer("LSTM", (96, 4), 256, 64)
    program = forced(model, "inputs-before-strassen", 2, monkeypatch)
    if program is None:
        pytest.skip("this CPU's vectors have no halves")
    assert any("(Strassen)" in label for label in t.labels(program.lowered)), "many rows are worth it"
    graph, rng = load(model), np.random.default_rng(11)
    x = rng.standard_normal((96, 4, 256)).astype(np.float32)
    constants = [graph.constants[n].numpy().astype(np.float64) for n in "WRB"]
    (expected, *_) = evaluate_node(graph.nodes[0], [x.astype(np.float64), *constants], registry())
    np.testing.assert_allclose(program.run([x])[0], expected, atol=2e-5)
