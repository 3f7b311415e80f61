"""The table of schedules of products of bytes: what it chooses and why not the others, and that all compute the same."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from onnx import helper

pytest.importorskip("llvmlite", reason="the CPU provider compiles with llvmlite")

import schedule_models as t

from intarsia.codegen.llvm.target import Target
from intarsia.errors import InvalidArgument
from intarsia.providers.cpu.kernels.common.schedule import LoweringEnv
from intarsia.providers.cpu.kernels.matmul_int8.matmul_int8 import SCHEDULES, ByteMatMul
from intarsia.providers.cpu.lowering.lower import Lowered

U8, I8 = np.uint8, np.int8
Product = tuple[bytes, dict[str, np.ndarray], np.ndarray]  # a model, its inputs, its output


def product(
    a: tuple[int | str, ...], b: tuple[int, ...], *, types: tuple[Any, Any] = (U8, I8), zeros: str = "", small: bool = False,
    computed: bool = False, seed: int = 0,
) -> Product:  # fmt: skip
    """MatMulInteger; a size that only a run knows is 9 in it.

    Args:
        zeros: letters of zero points: "a" and "b" constant ones, "A" one that is an input, "r" one for each row.
        small: whether weights less their zero point need few bits.
        computed: whether B is an input.
    """
    rng = np.random.default_rng(seed)

    def values(shape: tuple[int, ...], dtype: Any) -> np.ndarray:
        return rng.integers(np.iinfo(dtype).min, np.iinfo(dtype).max + 1, shape).astype(dtype)

    shape = tuple(9 if isinstance(size, str) else size for size in a)
    x, w = values(shape, types[0]), values(b, types[1])
    if small:
        w = rng.integers(-4, 5, b).astype(types[1]) if types[1] is I8 else rng.integers(124, 132, b).astype(U8)
    feeds, constants = {"a": x}, dict[str, np.ndarray]()
    (feeds if computed else constants)["b"] = w
    za: Any = np.array(5 * ("a" in zeros or "A" in zeros), types[0])
    if "r" in zeros:
        za = values((shape[-2],), types[0])[:, None]
    zb = np.array(128 * ("b" in zeros), types[1]) if types[1] is U8 else np.array(100 * ("b" in zeros), I8)
    (feeds if "A" in zeros else constants)["za"] = za[:, 0] if "r" in zeros else za
    constants["zb"] = zb
    inputs = {name: (array.dtype, a if name == "a" else array.shape) for name, array in feeds.items()}
    node = helper.make_node("MatMulInteger", ["a", "b", "za", "zb"], ["y"])
    expected = (x.astype(np.int64) - za.astype(np.int64)) @ (w.astype(np.int64) - zb.astype(np.int64))
    return t.model_of(node, inputs, constants, np.int32), feeds, expected


LARGE = (64, 256), (256, 256)
CASES: dict[str, tuple[Product, Target, Mapping[str, str], str, str]] = {  # ...; the schedule, the label of its last step
    "VNNI": (product(*LARGE), t.VNNI, {}, "packed-once", "byte gemm 64x256x256"),
    "ARM64": (product(*LARGE), t.ARM64, {}, "packed-once", "byte gemm"),
    "tiles": (product(*LARGE), t.AMX, {}, "matrix-unit", "byte gemm 64x256x256 by AMX"),
    "emulated": (product(*LARGE), t.AVX2, t.EMULATED, "matrix-unit", "byte gemm 64x256x256 by emulated AMX"),
    "no unit": (product(*LARGE), t.AMX, {"session.matrix_unit": "none"}, "packed-once", "byte gemm 64x256x256"),
    "small weights": (product(*LARGE, small=True), t.AVX2, {}, "saturation-free-order", "byte gemm"),
    "large weights": (product(*LARGE), t.AVX2, {}, "widened-int16", "byte gemm"),
    "few rows": (product((2, 256), (256, 256)), t.AVX2, {}, "packed-once", "byte gemm"),
    "nine bits": (product(*LARGE, zeros="b"), t.AVX2, {}, "packed-once", "byte gemm"),
    "computed": (product(*LARGE, computed=True), t.AMX, {}, "packed-in-run", "byte gemm"),
    "batches of constants": (product((2, 16, 64), (2, 64, 32)), t.AVX2, {}, "packed-in-run", "byte gemm"),
    "open rows": (product(("n", 64), (64, 96)), t.AVX2, {}, "widened-int16", "byte gemm"),
}


def lowered(name: str) -> Lowered:
    (model, *_), target, config, *_ = CASES[name]
    return t.lowered(model, target, config)


@pytest.mark.parametrize("name", CASES)
def test_the_choice_that_is_told_is_what_is_lowered(name: str) -> None:
    *_, chosen, label = CASES[name]
    made = lowered(name)
    found = t.report(made, "MatMulInteger")
    t.check_report(found, SCHEDULES)
    assert found.chosen == chosen
    assert t.labels(made)[-1].startswith(label), t.labels(made)


def test_every_schedule_is_chosen_somewhere() -> None:
    assert {s.name for s in SCHEDULES} == {chosen for *_, chosen, _ in CASES.values()}
    assert len({s.name for s in SCHEDULES}) == len(SCHEDULES)


REASONS = {  # a case; a schedule, and why it does not apply or, with "!", does not pay
    "VNNI": {
        "matrix-unit": "the CPU has no matrix unit for bytes, or session.matrix_unit names another",
        "saturation-free-order": "the CPU multiplies bytes by fours, or its registers are not AVX2's",
        "widened-int16": "the CPU multiplies bytes by fours, or its registers are not AVX2's",
    },
    "large weights": {
        "saturation-free-order!": "few of its weights are so small that sums of their products stay within 16 bits",
    },
    "nine bits": {"widened-int16": "weights less their zero point need nine bits"},
    "few rows": {"widened-int16!": "2 rows wait for the weights, whatever multiplies them"},
    "computed": dict.fromkeys(("matrix-unit", "widened-int16", "packed-once"), "its second operand is computed in the run"),
    "batches of constants": {"packed-once": "it has batch axes of its own in both operands"},
}  # fmt: skip


@pytest.mark.parametrize("name", REASONS)
def test_reasons(name: str) -> None:
    found = t.report(lowered(name), "MatMulInteger")
    for schedule, reason in REASONS[name].items():
        each = t.said(found, schedule.rstrip("!"))
        assert each.pays.reason == reason if schedule.endswith("!") else each.applies.reason == reason


def reason(made: Product, target: Target, schedule: str) -> str:
    return t.said(t.report(t.lowered(made[0], target), "MatMulInteger"), schedule).applies.reason


def test_reasons_of_operands() -> None:
    few = product((2, 256), (256, 256))
    assert reason(few, t.AMX, "matrix-unit") == "it has too few rows, columns or terms to be worth packing rows"
    rows = product(*LARGE, zeros="r")
    assert reason(rows, t.AMX, "matrix-unit") == "rows of its first operand have zero points of their own"
    assert reason(rows, t.AVX2, "widened-int16").startswith("rows of its first operand have zero points of their own, or")
    assert reason(product(*LARGE, zeros="b"), t.AMX, "matrix-unit") == "weights less their zero point need nine bits"
    assert reason(product((8, 3), (3, 64)), t.AVX2, "saturation-free-order") == "3 terms, fewer than 4, are no row of weights"


def test_a_zero_point_of_weights_that_a_run_computes() -> None:
    node = helper.make_node("MatMulInteger", ["a", "b", "za", "zb"], ["y"])
    constants = {"b": np.ones((64, 64), I8), "za": np.array(0, U8)}
    model = t.model_of(node, {"a": (U8, (64, 64)), "zb": (I8, ())}, constants, np.int32)
    found = t.report(t.lowered(model, t.VNNI), "MatMulInteger")
    assert found.chosen == "packed-in-run"
    assert t.said(found, "packed-once").applies.reason == "the zero point of its second operand is computed in the run"


@pytest.mark.parametrize("op", ["QLinearMatMul", "DynamicQuantizeMatMul", "MatMulIntegerToFloat"])
def test_operators_that_hold_such_a_product(op: str) -> None:
    """The report names the node as it is lowered."""
    scale, zero = np.array(0.02, np.float32), np.array(3, U8)
    weights = np.random.default_rng(0).integers(0, 256, (256, 64)).astype(U8)
    if op == "QLinearMatMul":
        node = helper.make_node(op, ["a", "s", "z", "b", "s", "z", "s", "z"], ["y"])
        inputs, out = {"a": (U8, (64, 256))}, U8
    elif op == "DynamicQuantizeMatMul":
        node = helper.make_node(op, ["a", "b", "s", "z"], ["y"], domain="com.microsoft")
        inputs, out = {"a": (np.float32, (64, 256))}, np.float32
    else:
        node = helper.make_node(op, ["a", "b", "s", "s", "z", "z"], ["y"], domain="com.microsoft")
        inputs, out = {"a": (U8, (64, 256))}, np.float32
    made = t.lowered(t.model_of(node, inputs, {"b": weights, "s": scale, "z": zero}, out), t.VNNI)
    (template,) = (g.template for g in made.grouping.groups if isinstance(g.template, ByteMatMul))
    found = t.report(made, template.node.op_type)
    t.check_report(found, SCHEDULES)
    assert found.chosen == "packed-once"


def test_the_text() -> None:
    text = str(t.report(lowered("large weights"), "MatMulInteger")).splitlines()
    assert text[0] == "MatMulInteger -> y: uint8[64, 256], int8[256, 256] -> int32[64, 256]"
    assert [line.split()[0] for line in text[1:]] == [s.name for s in SCHEDULES]
    assert text[1].split(maxsplit=2)[1:] == ["no", "the CPU has no matrix unit for bytes, or session.matrix_unit names another"]
    assert text[3].endswith("us chosen") and text[4].endswith("us yes") and "yes, but few of its weights" in text[2]


TYPES = [(a, b) for a in (U8, I8) for b in (U8, I8)]


@pytest.mark.parametrize("case", [{"zeros": zeros, "types": types} for zeros in ("", "a", "A", "b", "r") for types in TYPES])
@pytest.mark.parametrize("features", ["", "avx2"])
def test_all_that_apply_compute_the_same(features: str, case: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Each alone in the table, on this CPU and as if it had AVX2 alone; a matrix unit is emulated."""
    if features and Target.host().arch != "x86_64":
        pytest.skip("AVX2 is x86-64's")
    if features:
        monkeypatch.setenv("INTARSIA_CPU_FEATURES", features)
    target, seen = Target.host(), set[str]()
    rows: int | str = 9 if case["zeros"] == "r" else "n"
    for seed, (a, b, small) in enumerate([((17, 70), (70, 67), False), ((rows, 70), (70, 67), True), ((3, 5), (5, 9), True)]):
        model, feeds, expected = product(a, b, small=small, seed=seed, **case)
        made = t.lowered(model, target, t.EMULATED)
        (template,) = (g.template for g in made.grouping.groups if isinstance(g.template, ByteMatMul))
        for schedule in SCHEDULES:
            if schedule.applies(template, made.env):
                module = "intarsia.providers.cpu.kernels.matmul_int8.matmul_int8"
                with monkeypatch.context() as patch:
                    session = t.session_by(schedule, module, model, t.EMULATED, patch)
                np.testing.assert_array_equal(session.run(None, feeds)[0], expected, err_msg=schedule.name)
                seen.add(schedule.name)
    assert {"packed-once", "packed-in-run"} <= seen
    assert "matrix-unit" in seen or case["zeros"] in ("b", "r") or case["types"][1] is U8
    assert target.vector_bytes != 32 or "saturation-free-order" in seen


def test_a_unit_that_is_not_there() -> None:
    """An error where it is wanted; where it is not, the report tells of it."""
    config = {"session.matrix_unit": "amx"}
    with pytest.raises(InvalidArgument, match=r"session\.matrix_unit is 'amx', but this process cannot use AMX"):
        t.lowered(product(*LARGE)[0], t.AVX512, config)
    made = t.lowered(product(*LARGE, computed=True)[0], t.AVX512, config)
    assert t.report(made, "MatMulInteger").chosen == "packed-in-run"


def test_nothing_is_timed() -> None:
    made = lowered("VNNI")
    (template,) = (g.template for g in made.grouping.groups if isinstance(g.template, ByteMatMul))
    assert template.candidates(LoweringEnv(t.VNNI, made.env.options, made.env.constants, {})) is None
