"""The table of schedules of matrix products: what it chooses and why not the others, and that the steps are those of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

pytest.importorskip("llvmlite", reason="the CPU provider compiles with llvmlite")

from schedule_models import AMX, AVX2, AVX512, BFLOAT16, PAIRS, ZEN4, check_report

from intarsia.codegen.llvm.target import Target
from intarsia.errors import InvalidArgument
from intarsia.graph.load import load
from intarsia.graph.model import Graph
from intarsia.ops import registry
from intarsia.plan.step import Step
from intarsia.providers.cpu.kernels.common.schedule import Candidates, Considered, LoweringEnv, candidates
from intarsia.providers.cpu.kernels.matmul.matmul import SCHEDULES, MatMul
from intarsia.providers.cpu.lowering.fuse import Grouping
from intarsia.providers.cpu.lowering.lower import Lowered, lower_graph
from intarsia.providers.cpu.program.schedule_report import schedule_report


def lowered(
    a: tuple[int | str, ...], b: np.ndarray | tuple[int, ...], target: Target, config: Mapping[str, str] = {},
    choices: Mapping[str, str] = {}, op: str = "MatMul", **attributes: Any,
) -> Lowered:  # fmt: skip
    """One product by a constant, or by another input of a shape; nothing is compiled."""
    inputs = [helper.make_tensor_value_info("a", TensorProto.FLOAT, a)]
    constants = [numpy_helper.from_array(b, "b")] if isinstance(b, np.ndarray) else []
    if not constants:
        inputs.append(helper.make_tensor_value_info("b", TensorProto.FLOAT, b))
    graph = helper.make_graph(
        [helper.make_node(op, ["a", "b"], ["y"], **attributes)], "g", inputs,
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)], constants,
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    return lower_graph(load(model.SerializeToString()), registry(), target, config, choices=choices)


def weights(k: int, n: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal((k, n)).astype(np.float32)


def chosen(made: Lowered) -> str:
    (found,) = schedule_report(made)
    return found.chosen


def said(made: Lowered, name: str) -> Considered:
    (found,) = schedule_report(made)
    return next(s for s in found.schedules if s.name == name)


def steps(made: Lowered) -> list[Step]:
    return [s for segment in made.executable.segments() for s in segment.steps if isinstance(s, Step)]


CASES = {  # A, B, target, configuration; the schedule, how many steps it has, the arithmetic of its last
    "large": ((256, 256), weights(256, 256), AVX512, {}, "packed-a", 2, ""),
    "few rows": ((4, 256), weights(256, 256), AVX512, {}, "gemm", 1, ""),
    "computed": ((256, 256), (256, 256), AVX512, {}, "gemm", 1, ""),
    "batches of both": ((8, 64, 64), (8, 64, 64), AVX512, {}, "gemm", 1, ""),
    "AVX2": ((256, 256), weights(256, 256), AVX2, {}, "constant-rows", 1, ""),
    "Zen 4, open rows": (("n", 64), weights(64, 64), ZEN4, {}, "constant-rows", 1, ""),
    "Zen 4, large": ((4096, 2048), weights(2048, 2048), ZEN4, {}, "strassen", 1, ""),
    "rows of pairs": ((256, 256), weights(256, 256), ZEN4, BFLOAT16, "bfloat16-rows", 2, "bfloat16 by AVX512-BF16"),
    "tiles": ((256, 256), weights(256, 256), AMX, BFLOAT16, "bfloat16-packed", 2, "bfloat16 by AMX"),
    "float16": ((256, 256), weights(256, 256), AMX, {"session.arithmetic": "float16"}, "float16", 2, "float16"),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_the_choice_that_is_told_is_what_is_lowered(name: str) -> None:
    a, b, target, config, schedule, count, arithmetic = CASES[name]
    made = lowered(a, b, target, config)
    found = steps(made)
    assert chosen(made) == schedule
    assert len(found) == count, [s.title for s in found]
    assert found[-1].arithmetic.startswith(arithmetic)
    assert ("Strassen" in found[-1].label) == (schedule == "strassen")


def test_every_schedule_is_chosen_somewhere() -> None:
    """But the other tile of packed A, which only timing takes."""
    assert {s.name for s in SCHEDULES} - {case[4] for case in CASES.values()} == {"packed-a-14x2"}
    assert len({s.name for s in SCHEDULES}) == len(SCHEDULES)


def test_exactly_one_is_chosen_and_a_no_has_a_reason() -> None:
    for a, b, target, config, *_ in CASES.values():
        (found,) = schedule_report(lowered(a, b, target, config))
        check_report(found, SCHEDULES)


def test_reasons() -> None:
    large = (4096, 2048), weights(2048, 2048)
    off = lowered(*large, ZEN4, {"session.disable_strassen": "1"})
    assert said(off, "strassen").applies.reason == "session.disable_strassen is 1"
    assert chosen(off) == "constant-rows"
    assert said(lowered((4, 256), weights(256, 256), AVX512), "packed-a").applies.reason.startswith("4 rows are too few")
    computed = lowered((256, 256), (256, 256), AVX512)
    assert said(computed, "packed-a").applies.reason == "its second operand is computed in the run"
    too_large = weights(256, 256)
    too_large[3, 5] = 3.4e38
    made = lowered((256, 256), too_large, AMX, BFLOAT16)
    assert said(made, "bfloat16-packed").applies.reason == "a weight is too large for bfloat16"
    assert chosen(made) == "packed-a"


def test_the_other_tile_of_packed_a() -> None:
    """It is for timing to take: by estimate it is never faster where A is packed."""
    for columns in (192, 208, 256, 1000, 4096):
        made = lowered((256, 256), weights(256, columns), AVX512)
        default, other = said(made, "packed-a"), said(made, "packed-a-14x2")
        assert default.chosen and other.applies and default.seconds <= other.seconds
        assert other.pays.reason == "the other tile suits the columns better by estimate"
    assert said(lowered((256, 256), weights(256, 256), AVX2), "packed-a-14x2").applies.reason == (
        "the CPU has no registers for its tile"
    )
    assert said(lowered((256, 256), (256, 256), AVX512), "packed-a-14x2").applies.reason.endswith("is computed in the run")


def test_a_transposed_constant_of_gemm() -> None:
    made = lowered((256, 128), weights(384, 128), AVX512, op="Gemm", transB=1)
    assert chosen(made) == "packed-a" and steps(made)[-1].label == "gemm 256x384x128"


SHAPES = {  # A and B, some of which estimates advise against what applies for
    "square": ((256, 256), (256, 256)), "few rows": ((4, 256), (256, 256)), "one row": ((1, 300), (300, 200)),
    "few columns": ((256, 256), (256, 40)), "an odd K": ((64, 255), (255, 128)), "batches": ((2, 32, 128), (128, 512)),
    "large": ((1024, 2048), (2048, 1024)),
}  # fmt: skip
TARGETS = {"avx2": AVX2, "avx512": AVX512, "zen4": ZEN4, "pairs": PAIRS, "amx": AMX}
CONFIGS: dict[str, dict[str, str]] = {
    "float32": {}, "bfloat16": BFLOAT16, "float16": {"session.arithmetic": "float16"},
    "emulated": {**BFLOAT16, "session.matrix_unit": "amx_emulated"},
}  # fmt: skip
FORCED = {  # which schedules are forced at least
    ("avx2", "float32"): {"packed-a", "constant-rows", "gemm"},
    ("avx512", "float32"): {"packed-a", "packed-a-14x2", "gemm"},
    ("zen4", "float32"): {"strassen", "constant-rows", "packed-a", "packed-a-14x2", "gemm"},
    ("zen4", "bfloat16"): {"bfloat16-rows", "bfloat16-packed", "strassen", "constant-rows", "gemm"},
    ("pairs", "bfloat16"): {"bfloat16-packed", "packed-a", "gemm"},
    ("amx", "bfloat16"): {"bfloat16-packed"},
    ("amx", "float16"): {"float16", "packed-a", "gemm"},
    ("avx2", "emulated"): {"bfloat16-packed"},
}


def behind_a_producer(a: tuple[int, ...], b: tuple[int, ...]) -> Graph:
    """A product by a constant, whose result is rectified and multiplied by another: it may be stored as bfloat16."""
    rng = np.random.default_rng(0)
    constants = {"v": rng.standard_normal((16, a[-1]), np.float32), "b": rng.standard_normal(b, np.float32)}
    nodes = [
        helper.make_node("MatMul", ["a", "v"], ["c"]), helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node("MatMul", ["r", "b"], ["y"]),
    ]  # fmt: skip
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info("a", TensorProto.FLOAT, (*a[:-1], 16))],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )  # fmt: skip
    return load(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10).SerializeToString())


def timed_last(graph: Graph, target: Target, config: Mapping[str, str]) -> Candidates | None:
    """The candidates of the last product, as timing is asked of them: before values are stored as bfloat16."""
    found: list[Candidates | None] = []

    def asked(grouping: Grouping, _: Graph, env: LoweringEnv) -> Mapping[str, str]:
        found.extend(g.template.candidates(env) for g in grouping.groups if isinstance(g.template, MatMul))
        return {}

    lower_graph(graph, registry(), target, config, choices=asked)
    return found[-1]


@pytest.mark.parametrize("config", CONFIGS)
@pytest.mark.parametrize("target", TARGETS)
def test_all_that_may_be_timed_can_be_forced(target: str, config: str) -> None:
    """Each alone, and behind a step that may store what it reads as bfloat16."""
    asked: set[str] = set()
    for name, (a, b) in SHAPES.items():
        graph = behind_a_producer(a, b)
        found = timed_last(graph, TARGETS[target], CONFIGS[config])
        if found is None:
            continue
        asked.update(found.names)
        for schedule in found.names:
            forced = lowered(a, weights(*b), TARGETS[target], CONFIGS[config], {found.key: schedule})
            assert chosen(forced) == schedule, name
            assert any(f", {schedule} by time" in s.label for s in steps(forced)), name
            behind = lower_graph(graph, registry(), TARGETS[target], CONFIGS[config], choices={found.key: schedule})
            assert schedule_report(behind)[-1].chosen == schedule, name
            assert any(f", {schedule} by time" in s.label for s in steps(behind)), name
    assert FORCED.get((target, config), {"gemm"}) <= asked


@pytest.mark.parametrize("name", CASES)
def test_what_is_taken_untimed_is_the_first_that_is_timed(name: str) -> None:
    a, b, target, config, schedule, *_ = CASES[name]
    made = lowered(a, b, target, config)
    (template,) = (g.template for g in made.grouping.groups if isinstance(g.template, MatMul))
    found = candidates(template, made.env)
    if name in ("few rows", "computed", "batches of both", "Zen 4, open rows"):
        assert found is None
        return
    assert found is not None and found.names[0] == schedule
    for each in found.names:
        assert chosen(lowered(a, b, target, config, {found.key: each})) == each


def test_choices_are_of_a_unit() -> None:
    """`bfloat16-packed` names products in tiles, in emulated tiles and in vectors."""

    def key(target: Target, **config: str) -> str:
        given = {f"session.{name}": value for name, value in config.items()}
        made = lowered((256, 256), weights(256, 256), target, given)
        (template,) = (g.template for g in made.grouping.groups if isinstance(g.template, MatMul))
        found = template.schedule_key(made.env)
        assert found is not None
        return found

    units = ("amx", "amx_emulated", "avx512_bf16", "none")
    assert len({key(AMX, arithmetic="bfloat16", matrix_unit=unit) for unit in units}) == len(units)
    assert key(AMX, arithmetic="bfloat16") == key(AMX, arithmetic="bfloat16", matrix_unit="amx")
    assert key(PAIRS, arithmetic="bfloat16") == key(PAIRS, arithmetic="bfloat16", matrix_unit="avx512_bf16")
    assert key(AVX512, arithmetic="bfloat16") == key(AVX512, arithmetic="bfloat16", matrix_unit="none")
    assert key(ZEN4) == key(ZEN4, matrix_unit="none") != key(ZEN4, arithmetic="bfloat16", matrix_unit="none")


@pytest.mark.parametrize("unit", ["amx", "avx512_bf16"])
def test_a_unit_that_is_not_there_is_an_error_where_it_is_wanted(unit: str) -> None:
    """Products of what a run computes are of float32 whatever is asked for."""
    absent = {**BFLOAT16, "session.matrix_unit": unit}
    computed = lowered((256, 256), (256, 256), AVX512, absent)
    check_report(schedule_report(computed)[0], SCHEDULES)
    assert chosen(computed) == "gemm"
    with pytest.raises(InvalidArgument, match=rf"session\.matrix_unit is '{unit}', but .*; give 'auto'"):
        lowered((256, 256), weights(256, 256), AVX512, absent)


def test_pairs_are_timed_where_they_are_not_known_to_be_fast() -> None:
    made = lowered((256, 256), weights(256, 256), PAIRS, BFLOAT16)
    assert chosen(made) == "packed-a"
    assert said(made, "bfloat16-packed").pays.reason.endswith("timing decides")
