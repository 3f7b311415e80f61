"""The table of schedules of matrix products: what it chooses and why not the others, and that the steps are those of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

pytest.importorskip("llvmlite", reason="the CPU provider compiles with llvmlite")

from intarsia.codegen.llvm.target import Target
from intarsia.graph.load import load
from intarsia.ops import registry
from intarsia.plan.step import Step
from intarsia.providers.cpu.kernels.common.schedule import Considered, candidates
from intarsia.providers.cpu.kernels.matmul.matmul import SCHEDULES, MatMul
from intarsia.providers.cpu.lowering.lower import Lowered, lower_graph
from intarsia.providers.cpu.program.schedule_report import schedule_report

_V3 = "+avx,+avx2,+bmi,+bmi2,+f16c,+fma,+sse4.1,+sse4.2,+ssse3,+sse3"
_V4 = f"{_V3},+avx512bw,+avx512cd,+avx512dq,+avx512f,+avx512vl"
_AMX = f"{_V4},+amx-bf16,+amx-int8,+amx-tile,+avx512bf16,+avx512fp16,+avx512vnni"
AVX2 = Target.create("x86_64-unknown-linux-gnu", "x86-64-v3", _V3)
AVX512 = Target.create("x86_64-unknown-linux-gnu", "x86-64-v4", _V4)
PAIRS = Target.create("x86_64-unknown-linux-gnu", "cooperlake", f"{_V4},+avx512bf16,+avx512vnni")
ZEN4 = Target.create("x86_64-unknown-linux-gnu", "znver4", f"{_V4},+avx512bf16,+avx512vnni")
AMX = Target.create("x86_64-unknown-linux-gnu", "sapphirerapids", _AMX)
BFLOAT16 = {"session.arithmetic": "bfloat16"}


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
    """But tiles of packed A that the columns do not ask for, which only timing takes."""
    assert {s.name for s in SCHEDULES} - {case[4] for case in CASES.values()} == {"packed-a-14x2", "packed-a-8x3"}
    assert len({s.name for s in SCHEDULES}) == len(SCHEDULES)


def test_exactly_one_is_chosen_and_a_no_has_a_reason() -> None:
    for a, b, target, config, *_ in CASES.values():
        (found,) = schedule_report(lowered(a, b, target, config))
        assert sum(s.chosen for s in found.schedules) == 1
        for s in found.schedules:
            assert s.applies or s.applies.reason
            assert s.pays or s.pays.reason
            assert (s.seconds < float("inf")) == bool(s.applies) and s.seconds > 0


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


def test_a_transposed_constant_of_gemm() -> None:
    made = lowered((256, 128), weights(384, 128), AVX512, op="Gemm", transB=1)
    assert chosen(made) == "packed-a" and steps(made)[-1].label == "gemm 256x384x128"


@pytest.mark.parametrize("target", [AVX512, ZEN4, PAIRS, AMX], ids=["avx512", "zen4", "pairs", "amx"])
@pytest.mark.parametrize("config", [{}, BFLOAT16], ids=["float32", "bfloat16"])
def test_all_that_may_be_timed_can_be_forced(target: Target, config: Mapping[str, str]) -> None:
    shape = (256, 256), weights(256, 256)
    made = lowered(*shape, target, config)
    (template,) = (g.template for g in made.grouping.groups if isinstance(g.template, MatMul))
    found = candidates(template, made.env)
    assert found is not None and found.names[0] == chosen(made)
    for name in found.names:
        forced = lowered(*shape, target, config, {found.key: name})
        assert chosen(forced) == name
        assert any(f", {name} by time" in s.label for s in steps(forced))


def test_pairs_are_timed_where_they_are_not_known_to_be_fast() -> None:
    made = lowered((256, 256), weights(256, 256), PAIRS, BFLOAT16)
    assert chosen(made) == "packed-a"
    assert said(made, "bfloat16-packed").pays.reason.endswith("timing decides")
