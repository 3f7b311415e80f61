"""The table of schedules of attention: what it chooses and why not the others, that the steps are those of the choice, and that
each that applies gives the right numbers."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

pytest.importorskip("llvmlite", reason="the CPU provider compiles with llvmlite")

from schedule_models import AMX, AVX2, AVX512, BFLOAT16, PAIRS, ZEN4, check_report

from intarsia.codegen.llvm.target import Target
from intarsia.ep.provider import CompileContext
from intarsia.errors import InvalidArgument
from intarsia.graph.load import load
from intarsia.graph.model import Graph
from intarsia.ops import registry
from intarsia.ops.framework.evaluate import evaluate_node
from intarsia.plan.step import Step
from intarsia.providers.cpu.kernels.attention import attention
from intarsia.providers.cpu.kernels.attention.attention import SCHEDULES, Attention
from intarsia.providers.cpu.kernels.attention.attention_arguments import least_in_lanes
from intarsia.providers.cpu.kernels.common.schedule import Considered
from intarsia.providers.cpu.lowering.lower import Lowered, lower_graph
from intarsia.providers.cpu.program.cpu_program import CpuProgram
from intarsia.providers.cpu.program.schedule_report import NodeSchedules, schedule_report

Shape = tuple[int | str, ...]


def graph_of(op: str, shapes: Mapping[str, Shape], domain: str = "", outputs: int = 1, **attributes: Any) -> Graph:
    """One node of float32 operands ("": one that is left out), of int32 where they count keys."""
    counts = {"lengths", "total"}
    inputs = [
        helper.make_tensor_value_info(name, TensorProto.INT32 if name in counts else TensorProto.FLOAT, shape)
        for name, shape in shapes.items() if name.strip()
    ]  # fmt: skip
    names = [name.strip() for name in shapes]
    results = [f"y{i}" for i in range(outputs)]
    node = helper.make_node(op, names, results, domain=domain, **attributes)
    graph = helper.make_graph(
        [node], "g", inputs, [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in results]
    )
    opsets = [helper.make_opsetid("", 23), helper.make_opsetid("com.microsoft", 1)]
    return load(helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString())


def four_d(queries: int | str, width: int = 64) -> Graph:
    """Attention of 12 heads of `width` numbers to 256 keys."""
    stored = (1, 12, 256, width)
    return graph_of("Attention", {"q": (1, 12, queries, width), "k": stored, "v": stored})


def lowered(graph: Graph, target: Target, config: Mapping[str, str] = {}) -> Lowered:
    """What is made of it; nothing is compiled."""
    return lower_graph(graph, registry(), target, config)


def of_node(made: Lowered) -> NodeSchedules:
    (found,) = schedule_report(made)
    return found


def said(made: Lowered, name: str) -> Considered:
    return next(s for s in of_node(made).schedules if s.name == name)


def steps(made: Lowered) -> list[Step]:
    return [s for segment in made.executable.segments() for s in segment.steps if isinstance(s, Step)]


CASES = {  # queries, size of a head, target, configuration; the schedule, how many steps it has, the last one's arithmetic
    "one": (1, 64, AVX512, {}, "few-queries", 1, ""),
    "few": (31, 64, AVX512, {}, "few-queries", 1, ""),
    "many": (32, 64, AVX512, {}, "many-queries", 2, ""),
    "few, AVX2": (23, 64, AVX2, {}, "few-queries", 1, ""),
    "many, AVX2": (24, 64, AVX2, {}, "many-queries", 2, ""),
    "dynamic": ("n", 64, AVX512, {}, "dynamic-queries", 3, ""),
    "many of pairs": (128, 64, ZEN4, BFLOAT16, "many-queries-bfloat16", 2, "bfloat16 by AVX512-BF16"),
    "few where pairs are asked for": (4, 64, ZEN4, BFLOAT16, "few-queries", 1, ""),
    "dynamic of pairs": ("n", 64, ZEN4, BFLOAT16, "dynamic-queries-bfloat16", 3, ""),
    "narrow heads": (128, 8, ZEN4, BFLOAT16, "many-queries", 2, ""),
    "odd heads": (128, 65, ZEN4, BFLOAT16, "many-queries", 2, ""),
    "tiles": (128, 64, AMX, BFLOAT16, "many-queries", 2, ""),
    "slow pairs": (128, 64, PAIRS, BFLOAT16, "many-queries", 2, ""),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_the_choice_that_is_told_is_what_is_lowered(name: str) -> None:
    queries, width, target, config, schedule, count, arithmetic = CASES[name]
    made = lowered(four_d(queries, width), target, config)
    found = steps(made)
    assert of_node(made).chosen == schedule
    assert len(found) == count, [s.title for s in found]
    assert found[-1].arithmetic == arithmetic
    assert any(s.arithmetic == "bfloat16" for s in found) == schedule.endswith("bfloat16")
    check_report(of_node(made), SCHEDULES)


def test_every_schedule_is_chosen_somewhere() -> None:
    assert {s.name for s in SCHEDULES} == {case[4] for case in CASES.values()}
    assert len({s.name for s in SCHEDULES}) == len(SCHEDULES)


def test_for_each_kernel_there_is_one_schedule_at_most_of_which_sizes_decide() -> None:
    """Schedules for known numbers of queries never pay for others, nor those for others at known ones."""
    for graph, dynamic in ((four_d(8), False), (four_d(400), False), (four_d("n"), True)):
        for target in (AVX2, AVX512, ZEN4):
            for config in ({}, BFLOAT16):
                found = of_node(lowered(graph, target, config)).schedules
                assert {s.name.startswith("dynamic") for s in found if s.applies and s.pays} == {dynamic}


@pytest.mark.parametrize(
    ("queries", "width", "target", "config", "schedule", "reason"),
    [
        (8, 64, ZEN4, BFLOAT16, "many-queries-bfloat16", "8 queries, fewer than 32, are not worth packing keys for"),
        ("n", 64, ZEN4, BFLOAT16, "many-queries-bfloat16", "how many queries there are is known only in a run"),
        (64, 64, ZEN4, {}, "many-queries-bfloat16", "session.arithmetic is not bfloat16, nor are the model's tensors"),
        (64, 12, ZEN4, BFLOAT16, "many-queries-bfloat16", "heads of 12 numbers are no pairs, or fewer than a vector of 16"),
        (64, 65, ZEN4, BFLOAT16, "many-queries-bfloat16", "heads of 65 numbers are no pairs, or fewer than a vector of 16"),
        (64, 64, PAIRS, BFLOAT16, "many-queries-bfloat16", "vectors of this CPU do not multiply pairs of bfloat16, or no fast"),
        (64, 64, AMX, BFLOAT16, "many-queries-bfloat16", "vectors of this CPU do not multiply pairs of bfloat16, or no fast"),
        (64, 64, ZEN4, {}, "dynamic-queries", "there are 64 queries in every run"),
        (64, 64, ZEN4, BFLOAT16, "dynamic-queries-bfloat16", "there are 64 queries in every run"),
        ("n", 64, ZEN4, {}, "dynamic-queries-bfloat16", "session.arithmetic is not bfloat16, nor are the model's tensors"),
        ("n", 65, ZEN4, BFLOAT16, "dynamic-queries-bfloat16", "heads of 65 numbers are no pairs, or fewer than a vector"),
    ],
)
def test_why_it_does_not_apply(
    queries: int | str, width: int, target: Target, config: Mapping[str, str], schedule: str, reason: str
) -> None:
    found = said(lowered(four_d(queries, width), target, config), schedule)
    assert not found.applies and found.applies.reason.startswith(reason)
    assert str(found).split(None, 2)[:2] == [schedule, "no"]


@pytest.mark.parametrize(
    ("queries", "schedule", "reason"),
    [
        (8, "many-queries", "8 queries, fewer than 32, are not worth packing keys for"),
        ("n", "many-queries", "how many queries there are is known only in a run"),
        (64, "few-queries", "64 queries are worth packing keys and values for"),
        ("n", "few-queries", "how many queries there are is known only in a run"),
    ],
)
def test_why_it_does_not_pay(queries: int | str, schedule: str, reason: str) -> None:
    found = said(lowered(four_d(queries), AVX512), schedule)
    assert found.applies and not found.pays and found.pays.reason == reason
    assert str(found).endswith(f"yes, but {reason}")


def test_a_unit_that_is_not_there_is_an_error_where_it_is_wanted() -> None:
    absent = {**BFLOAT16, "session.matrix_unit": "avx512_bf16"}
    assert of_node(lowered(four_d(8), AVX512, absent)).chosen == "few-queries"
    assert of_node(lowered(four_d(64, 65), AVX512, absent)).chosen == "many-queries"
    for queries in (64, "n"):
        with pytest.raises(InvalidArgument, match=r"session\.matrix_unit is 'avx512_bf16', but .*; give 'auto'"):
            lowered(four_d(queries), AVX512, absent)


def test_a_unit_that_the_options_name_takes_the_place_of_the_fastest() -> None:
    named = {**BFLOAT16, "session.matrix_unit": "avx512_bf16"}
    assert of_node(lowered(four_d(64), AMX, named)).chosen == "many-queries-bfloat16"
    assert of_node(lowered(four_d(64), ZEN4, {**BFLOAT16, "session.matrix_unit": "none"})).chosen == "many-queries"


def test_the_faster_one_by_estimate_is_the_one_that_is_chosen() -> None:
    """Far from where they are equal: the estimates are not asked, but are told."""
    for target in (AVX2, AVX512, ZEN4):
        for queries, faster, slower in ((1, "few-queries", "many-queries"), (512, "many-queries", "few-queries")):
            made = lowered(four_d(queries), target)
            assert said(made, faster).seconds < said(made, slower).seconds
            assert of_node(made).chosen == faster
    made = lowered(four_d(512), ZEN4, BFLOAT16)
    assert said(made, "many-queries-bfloat16").seconds < said(made, "many-queries").seconds


# --- the operators -------------------------------------------------------------------------------------------------

OPERATORS = {
    "Attention": four_d(128),
    "Attention with a past": graph_of(
        "Attention",
        {
            "q": (1, 4, 3, 16), "k": (1, 2, 3, 16), "v": (1, 2, 3, 16), " ": (), "past_k": (1, 2, 9, 16),
            "past_v": (1, 2, 9, 16),
        },
        outputs=3,
    ),
    "MultiHeadAttention": graph_of(
        "MultiHeadAttention", {"q": (2, "n", 64), "k": (2, "m", 64), "v": (2, "m", 64)}, "com.microsoft", num_heads=4
    ),
    "GroupQueryAttention": graph_of(
        "GroupQueryAttention",
        {
            "q": (1, 40, 64), "k": (1, 40, 32), "v": (1, 40, 32), "past_k": (1, 2, 48, 16), "past_v": (1, 2, 48, 16),
            "lengths": (1,), "total": (1,),
        },
        "com.microsoft", outputs=3, num_heads=4, kv_num_heads=2,
    ),
}  # fmt: skip
TOLD = {  # the node, and what is chosen
    "Attention": ("Attention -> y0: float[1, 12, 128, 64], float[1, 12, 256, 64] -> float[1, 12, 128, 64]", "many-queries"),
    "Attention with a past": ("Attention -> y0: float[1, 4, 3, 16], float[1, 2, 3, 16] -> float[1, 4, 3, 16]", "few-queries"),
    "MultiHeadAttention": (
        "MultiHeadAttention -> y0: float[2, n, 64], float[2, m, 64] -> float[2, n, 64]", "dynamic-queries",
    ),
    "GroupQueryAttention": (  # as what it is decomposed into
        "GroupedAttention -> y0: float[1, 40, 64], float[1, 2, max(total[0], 48), 16] -> float[1, 40, 64]", "many-queries",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", OPERATORS)
def test_a_program_tells_them_of_each_operator(name: str) -> None:
    program = CpuProgram.compile(OPERATORS[name], registry(), CompileContext(intra_op_num_threads=1))
    title, *lines = program.describe("schedules").splitlines()
    head, chosen = TOLD[name]
    assert title == head
    assert [line.split()[0] for line in lines] == [s.name for s in SCHEDULES]
    assert [line.split()[0] for line in lines if line.endswith(" chosen")] == [chosen]
    for line in lines:  # the name, then no or an estimate, then why or how far
        _, verdict, *rest = line.split(None, 2)
        assert (verdict == "no" and rest) or rest[0].split()[0] in ("us", "ms"), line


def test_the_command_line_tells_them(tmp_path: Path) -> None:
    pytest.importorskip("typer", reason="the command line needs the extra cli")
    from intarsia.cli import main

    names, shape = "qkv", (1, 2, 40, 16)
    graph = helper.make_graph(
        [helper.make_node("Attention", [*names], ["y"])], "g",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in names],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, shape)],
    )  # fmt: skip
    path = tmp_path / "attention.onnx"
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=10)
    path.write_bytes(model.SerializeToString())
    assert main(["dump", str(path), "-s", "schedules", "-o", str(tmp_path / "text")]) == 0
    text = (tmp_path / "text").read_text()
    assert "Attention -> y: " in text and "yes, but 40 queries are worth packing keys and values for" in text
    assert "dynamic-queries            no        there are 40 queries in every run" in text


# --- numbers -------------------------------------------------------------------------------------------------------


def forced(graph: Graph, schedule: str, monkeypatch: pytest.MonkeyPatch, config: Mapping[str, str]) -> CpuProgram | None:
    """The graph by this schedule, where it applies on this machine."""
    monkeypatch.setattr(attention, "SCHEDULES", tuple(s for s in SCHEDULES if s.name == schedule))
    try:
        return CpuProgram.compile(graph, registry(), CompileContext(intra_op_num_threads=2, config=dict(config)))
    except LookupError:
        return None


QUERIES = (1, 7, 31, 33, 130)


@pytest.mark.parametrize("schedule", [s.name for s in SCHEDULES])
@pytest.mark.parametrize("known", [True, False])
def test_whatever_applies_is_right_for_every_number_of_queries(
    schedule: str, known: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also those that do not pay: against the definition in float64."""
    pairs, stored = schedule.endswith("bfloat16"), (2, 2, 70, 16)
    config = BFLOAT16 if pairs else {}
    shapes: list[Shape] = [(2, 4, queries, 16) for queries in QUERIES] if known else [(2, 4, "n", 16)]
    graphs = [graph_of("Attention", {"q": shape, "k": stored, "v": stored}, is_causal=1) for shape in shapes]
    programs = [forced(graph, schedule, monkeypatch, config) for graph in graphs] * (1 if known else len(QUERIES))
    rng = np.random.default_rng(5)
    for queries, program in zip(QUERIES, programs, strict=True):
        if program is None:
            continue
        given = [rng.standard_normal(s).astype(np.float32) for s in ((2, 4, queries, 16), stored, stored)]
        (expected,) = evaluate_node(graphs[0].nodes[0], [x.astype(np.float64) for x in given], registry())
        tolerance = {"rtol": 2e-2, "atol": 4e-2} if pairs else {"rtol": 2e-5, "atol": 2e-6}
        np.testing.assert_allclose(program.run(given)[0], expected, err_msg=f"{queries} queries", **tolerance)
    if schedule.startswith("dynamic") and known:
        assert programs == [None] * len(QUERIES)
    elif not pairs:
        assert None not in programs


def test_what_is_told_of_a_model_of_bfloat16() -> None:
    """Its own tensors ask for pairs; that is seen once they are widened."""
    shape = (1, 2, 40, 16)
    graph = helper.make_graph(
        [helper.make_node("Attention", [*"qkv"], ["y"])], "g",
        [helper.make_tensor_value_info(name, TensorProto.BFLOAT16, shape) for name in "qkv"],
        [helper.make_tensor_value_info("y", TensorProto.BFLOAT16, shape)],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=10)
    made = lowered(load(model.SerializeToString()), ZEN4)
    assert of_node(made).chosen == "many-queries-bfloat16"
    assert of_node(lowered(load(model.SerializeToString()), AVX512)).chosen == "many-queries"


def test_templates_alone_have_the_table() -> None:
    made = lowered(OPERATORS["Attention with a past"], AVX512)
    (template,) = (g.template for g in made.grouping.groups if isinstance(g.template, Attention))
    assert template.schedule_table() is SCHEDULES
    assert [s.label for s in steps(made)] == ["append keys", "append values", "attention 4x3x3"]
    assert template.schedule_key(made.env) is None, "none of it is timed"
    assert least_in_lanes(made.env.target) == 32
