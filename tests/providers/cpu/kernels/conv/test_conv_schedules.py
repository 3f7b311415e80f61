"""The table of schedules of convolutions: what it says of each, what it chooses, and that the steps are those of the choice."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

pytest.importorskip("llvmlite", reason="the CPU provider compiles with llvmlite")

from schedule_models import AMX, AVX2, AVX512, BFLOAT16, ZEN4, check_report

import intarsia as ort
from intarsia.codegen.llvm.target import Target
from intarsia.errors import InvalidArgument
from intarsia.graph.dtypes import DType
from intarsia.graph.load import load
from intarsia.graph.model import Graph
from intarsia.ops import registry
from intarsia.plan.step import Step
from intarsia.providers.cpu.kernels.common.schedule import (
    Candidates,
    Considered,
    KernelRequest,
    LoweringEnv,
    candidates,
    choose,
    considered,
    first_of,
)
from intarsia.providers.cpu.kernels.conv.conv import SCHEDULES, Convolution
from intarsia.providers.cpu.lowering.fuse import Grouping
from intarsia.providers.cpu.lowering.lower import Lowered, lower_graph
from intarsia.providers.cpu.program.schedule_report import NodeSchedules, schedule_report

FLOAT16 = {"session.arithmetic": "float16"}


def lowered(
    x: tuple[int | str, ...], w: tuple[int, ...], target: Target, config: Mapping[str, str] = {},
    choices: Mapping[str, str] = {}, weights: np.ndarray | None = None, **attributes: Any,
) -> Lowered:  # fmt: skip
    """One convolution, lowered; nothing is compiled."""
    if weights is None:
        weights = np.random.default_rng(0).standard_normal(w).astype(np.float32)
    graph = helper.make_graph(
        [helper.make_node("Conv", ["x", "w"], ["y"], **attributes)], "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, x)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)], [numpy_helper.from_array(weights, "w")],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    return lower_graph(load(model.SerializeToString()), registry(), target, config, choices=choices)


def of_node(made: Lowered) -> NodeSchedules:
    (found,) = (each for each in schedule_report(made) if each.op_type == "Conv")
    return found


def said(made: Lowered, name: str) -> Considered:
    return next(s for s in of_node(made).schedules if s.name == name)


PADS = {"pads": [1, 1, 1, 1]}
CASES = {  # sizes, target, configuration, attributes; the schedule, and how the label of its last step begins
    "small groups": ((1, 32, 9, 9), (32, 4, 3, 3), AVX2, {}, {"group": 8}, "small-groups", "grouped 3x3"),
    "depthwise": ((1, 32, 9, 9), (32, 1, 3, 3), AVX512, {}, {"group": 32}, "depthwise", "depthwise 3x3"),
    "few filters": ((1, 64, 30, 30), (2, 64, 5, 5), AVX2, {}, {}, "few-output-channels", "few filters 5x5"),
    "winograd": ((1, 64, 28, 28), (64, 64, 3, 3), AVX512, {}, PADS, "winograd4", "winograd4"),
    "winograd of open sizes": (("n", 64, "h", "w"), (64, 64, 3, 3), AVX512, {}, PADS, "winograd4", "winograd4"),
    "no winograd": (
        (1, 64, 28, 28), (64, 64, 3, 3), AVX512, {"session.disable_winograd": "1"}, PADS, "line-buffer", "conv 3x3",
    ),
    "strides": ((1, 64, 28, 28), (64, 64, 3, 3), AVX512, {}, {"strides": [2, 2]}, "line-buffer", "conv 3x3"),
    "pointwise": ((1, 64, 28, 28), (64, 64, 1, 1), AVX512, {}, {}, "pointwise", "conv 1x1"),
    "picked": ((1, 64, 28, 28), (128, 64, 1, 1), AVX2, {}, {"strides": [2, 2]}, "picked-pixels", "conv 1x1"),
    "picked, Strassen": (
        (1, 1024, 64, 64), (1024, 1024, 1, 1), ZEN4, {}, {"strides": [2, 2]}, "picked-pixels-strassen", "conv 1x1",
    ),
    "three channels": ((1, 3, 28, 28), (32, 3, 3, 3), AVX2, {}, {"strides": [2, 2]}, "implicit-gemm", "conv 3x3"),
    "few pixels": ((1, 64, 3, 3), (64, 64, 1, 1), AVX2, {}, {}, "implicit-gemm", "conv 1x1"),
    "rows of pairs": ((1, 64, 28, 28), (64, 64, 1, 1), ZEN4, BFLOAT16, {}, "bfloat16-rows", "gemm"),
    "windows of pairs": ((1, 64, 28, 28), (64, 64, 5, 5), ZEN4, BFLOAT16, {}, "bfloat16-windows", "conv 5x5"),
    "winograd of pairs": ((1, 256, 28, 28), (256, 256, 3, 3), ZEN4, BFLOAT16, PADS, "winograd2-bfloat16", "winograd2"),
    "rows in tiles": ((1, 64, 28, 28), (64, 64, 1, 1), AMX, BFLOAT16, {}, "bfloat16-packed-rows", "gemm"),
    "windows in tiles": ((1, 64, 28, 28), (64, 64, 3, 3), AMX, BFLOAT16, PADS, "bfloat16-packed-windows", "gemm"),
    "float16": ((1, 256, 28, 28), (256, 256, 1, 1), AMX, FLOAT16, {}, "float16-rows", "gemm"),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_the_choice_that_is_told_is_what_is_lowered(name: str) -> None:
    x, w, target, config, attributes, chosen, label = CASES[name]
    made = lowered(x, w, target, config, **attributes)
    assert of_node(made).chosen == chosen
    (segment,) = made.executable.segments()
    assert any(s.label.startswith(label) for s in segment.steps if isinstance(s, Step)), [s.title for s in segment.steps]
    assert set(kernels_of_choice(made)) <= {kernel.symbol for s in segment.steps for kernel in s.kernels}


def kernels_of_choice(made: Lowered) -> list[str]:
    """Symbols of the kernels that the schedule chosen makes when it is asked again."""
    (template,) = (g.template for g in made.grouping.groups if isinstance(g.template, Convolution))
    request = KernelRequest(made.env.target, Scratch(made), None, (), "out")
    return [kernel.symbol for step in choose(template, made.env).steps(template, request) for kernel in step.kernels]


class Scratch:
    """A workspace that keeps nothing."""

    def __init__(self, made: Lowered) -> None:
        self.options, self.choices, self._constants = made.env.options, made.env.choices, made.env.constants

    def array(self, name: str) -> np.ndarray | None:
        return self._constants.array(name)

    def original_type(self, name: str) -> DType | None:
        return None

    def add(self, name: str, packing: object, make: object) -> str:
        return f"{name}%{packing}"

    def temporary(self, name: str, dtype: DType, shape: object) -> str:
        return name


def test_every_schedule_is_chosen_somewhere() -> None:
    """But F(2 x 2) of float32, which the estimate takes for few sizes, and Strassen's products, which depend on the CPU."""
    assert {s.name for s in SCHEDULES} - {case[5] for case in CASES.values()} == {"winograd2", "pointwise-strassen"}
    assert len({s.name for s in SCHEDULES}) == len(SCHEDULES)


def test_exactly_one_is_chosen_and_a_no_has_a_reason() -> None:
    for x, w, target, config, attributes, *_ in CASES.values():
        check_report(of_node(lowered(x, w, target, config, **attributes)), SCHEDULES)


def test_winograd_says_why_not() -> None:
    shape = (1, 64, 28, 28), (64, 64, 3, 3)
    off = lowered(*shape, AVX512, {"session.disable_winograd": "1"}, **PADS)
    for name in ("winograd4", "winograd2"):
        assert said(off, name).applies.reason == "session.disable_winograd is 1"
    assert said(lowered(*shape, AVX512, strides=[2, 2]), "winograd4").applies.reason.startswith("it has strides")
    assert said(lowered((1, 64, 28, 28), (64, 64, 5, 5), AVX512), "winograd4").applies.reason == "its kernel is 5x5, not 3x3"
    other = said(lowered(*shape, AVX512, **PADS), "winograd2")
    assert other.applies and "winograd4 at" in other.pays.reason


def test_why_pixels_are_not_picked() -> None:
    shape, strides = ((1, 64, 28, 28), (128, 64, 1, 1)), {"strides": [2, 2]}
    for name in ("picked-pixels", "picked-pixels-strassen"):
        assert said(lowered(*shape, AVX2), name).applies.reason == "it has no strides"
        assert said(lowered(*shape, AVX2, pads=[1, 1, 1, 1], **strides), name).applies.reason.startswith("its windows are of")
    assert said(lowered(*shape, AVX512, **strides), "picked-pixels").pays.reason.startswith("products of windows are as fast")
    few = lowered((1, 64, 28, 28), (32, 64, 1, 1), AVX2, **strides)
    assert said(few, "picked-pixels").pays.reason == "32 filters, fewer than 64, are not worth the copy"
    assert said(lowered(*shape, AVX2, **strides), "picked-pixels-strassen").applies.reason.startswith("the CPU is no faster so")
    small = said(lowered(*shape, ZEN4, **strides), "picked-pixels-strassen")
    assert small.applies and small.pays.reason.startswith("adding blocks is expected to take as long")


def test_a_weight_that_bfloat16_does_not_hold() -> None:
    weights = np.ones((64, 64, 1, 1), np.float32)
    weights[3, 5] = 3.4e38
    made = lowered((1, 64, 28, 28), (64, 64, 1, 1), AMX, BFLOAT16, weights=weights)
    assert said(made, "bfloat16-packed-rows").applies.reason == "a weight is too large for bfloat16"
    assert of_node(made).chosen == "pointwise"


def test_a_schedule_that_timing_chose_comes_first() -> None:
    shape = (1, 64, 28, 28), (64, 64, 3, 3)
    made = lowered(*shape, AVX512, **PADS)
    (template,) = (g.template for g in made.grouping.groups if isinstance(g.template, Convolution))
    timed = candidates(template, made.env)
    assert timed is not None and timed.names[0] == "winograd4" and {"winograd2", "line-buffer"} <= {*timed.names}
    for name in timed.names:
        forced = lowered(*shape, AVX512, choices={timed.key: name}, **PADS)
        assert of_node(forced).chosen == name
        assert said(forced, name).timed and "chosen by time" in str(of_node(forced))
        (segment,) = forced.executable.segments()
        assert any(f", {name} by time" in s.label for s in segment.steps if isinstance(s, Step))


FEW = {  # sizes and attributes at which estimates advise against what applies
    "strides, few pixels": ((1, 64, 8, 8), (64, 64, 1, 1), {"strides": [2, 2]}),
    "strides, few filters": ((1, 64, 28, 28), (32, 64, 1, 1), {"strides": [2, 2]}),
    "few pixels": ((1, 64, 4, 5), (64, 64, 1, 1), {}),
    "few filters": ((1, 64, 28, 28), (32, 64, 1, 1), {}),
    "few filters of windows": ((1, 64, 14, 14), (32, 64, 3, 3), PADS),
    "few filters of large windows": ((1, 64, 14, 14), (48, 64, 5, 5), {}),
    "an odd channel": ((1, 63, 14, 14), (64, 63, 1, 1), {}),
    "two groups": ((1, 64, 14, 14), (64, 32, 3, 3), {"group": 2}),
}  # fmt: skip
TARGETS = {"avx2": AVX2, "avx512": AVX512, "zen4": ZEN4, "amx": AMX}
CONFIGS: dict[str, dict[str, str]] = {
    "float32": {}, "bfloat16": BFLOAT16, "float16": FLOAT16, "emulated": {**BFLOAT16, "session.matrix_unit": "amx_emulated"},
}  # fmt: skip


def behind_a_producer(x: tuple[int | str, ...], w: tuple[int, ...], attributes: Mapping[str, Any]) -> Graph:
    """A 1x1 convolution, whose result is rectified and read by a convolution: it may be stored as bfloat16."""
    rng, channels = np.random.default_rng(0), x[1]
    first, second = rng.standard_normal((channels, 16, 1, 1)), rng.standard_normal(w)
    graph = helper.make_graph(
        [
            helper.make_node("Conv", ["x", "v"], ["c"]), helper.make_node("Relu", ["c"], ["r"]),
            helper.make_node("Conv", ["r", "w"], ["y"], **attributes),
        ],
        "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, (x[0], 16, *x[2:]))],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(a.astype(np.float32), name) for a, name in ((first, "v"), (second, "w"))],
    )  # fmt: skip
    return load(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10).SerializeToString())


def timed_last(graph: Graph, target: Target, config: Mapping[str, str]) -> Candidates | None:
    """The candidates of the last convolution, as timing is asked of them: before values are stored as bfloat16."""
    found: list[Candidates | None] = []

    def asked(grouping: Grouping, _: Graph, env: LoweringEnv) -> Mapping[str, str]:
        found.extend(g.template.candidates(env) for g in grouping.groups if isinstance(g.template, Convolution))
        return {}

    lower_graph(graph, registry(), target, config, choices=asked)
    return found[-1]


IN_FLOATS = {"winograd4", "winograd2", "line-buffer", "implicit-gemm", "pointwise", "picked-pixels"}
FORCED = {  # which schedules are forced at least, beside those of floats
    ("zen4", "float32"): {"pointwise-strassen"},
    ("zen4", "bfloat16"): {"pointwise-strassen", "bfloat16-rows", "bfloat16-windows", "winograd2-bfloat16"},
    ("amx", "bfloat16"): {"bfloat16-packed-rows", "bfloat16-packed-windows"},
    ("amx", "float16"): {"float16-rows"},
    ("avx2", "emulated"): {"bfloat16-packed-rows", "bfloat16-packed-windows"},
}


@pytest.mark.parametrize("config", CONFIGS)
@pytest.mark.parametrize("target", TARGETS)
def test_all_that_may_be_timed_can_be_forced(target: str, config: str) -> None:
    """Each alone, and behind a step that may store what it reads as bfloat16."""
    asked: set[str] = set()
    for name in (*CASES, *FEW):
        x, w, attributes = FEW[name] if name in FEW else (*CASES[name][:2], CASES[name][4])
        x = tuple(28 if isinstance(size, str) else size for size in x)
        graph = behind_a_producer(x, w, attributes)
        found = timed_last(graph, TARGETS[target], CONFIGS[config])
        if found is None:
            continue
        asked.update(found.names)
        for schedule in found.names:
            forced = lowered(x, w, TARGETS[target], CONFIGS[config], {found.key: schedule}, **attributes)
            assert of_node(forced).chosen == schedule, name
            assert any(f", {schedule} by time" in step for step in labels(forced)), name
            behind = lower_graph(graph, registry(), TARGETS[target], CONFIGS[config], choices={found.key: schedule})
            assert [e for e in schedule_report(behind) if e.op_type == "Conv"][-1].chosen == schedule, name
            assert any(f", {schedule} by time" in step for step in labels(behind)), name
    assert IN_FLOATS | FORCED.get((target, config), set()) <= asked


def labels(made: Lowered) -> list[str]:
    return [s.label for segment in made.executable.segments() for s in segment.steps if isinstance(s, Step)]


def test_a_forced_schedule_of_rows_has_its_input_stored_as_bfloat16() -> None:
    """Though the convolution has fewer filters than the estimate asks for. What is stored does not change what was chosen."""
    graph = behind_a_producer((1, 64, 28, 28), (32, 64, 1, 1), {})
    found = timed_last(graph, ZEN4, BFLOAT16)
    assert found is not None and "bfloat16-rows" in found.names[1:]
    stored = {}
    for schedule in found.names:
        made = lower_graph(graph, registry(), ZEN4, BFLOAT16, choices={found.key: schedule})
        *_, last = (g.template for g in made.grouping.groups if isinstance(g.template, Convolution))
        stored[schedule] = last.data.dtype
    assert {name for name, dtype in stored.items() if dtype is DType.BFLOAT16} == {"bfloat16-rows"}


def test_where_none_pays_the_last_that_applies_is_taken() -> None:
    made = lowered((1, 64, 4, 4), (64, 64, 1, 1), AVX2)
    (template,) = (g.template for g in made.grouping.groups if isinstance(g.template, Convolution))
    strassen, plain = (next(s for s in SCHEDULES if s.name == name) for name in ("pointwise-strassen", "pointwise"))
    assert plain.applies(template, made.env) and not plain.pays(template, made.env)
    assert first_of((strassen, plain), template, made.env) is plain
    with pytest.raises(LookupError, match="none of the schedules pointwise-strassen applies"):
        first_of((strassen,), template, made.env)


def test_a_choice_that_does_not_apply_is_not_told_of() -> None:
    shape = (1, 64, 28, 28), (64, 64, 3, 3)
    made = lowered(*shape, AVX512, **PADS)
    (template,) = (g.template for g in made.grouping.groups if isinstance(g.template, Convolution))
    key = template.schedule_key(made.env)
    assert key is not None
    forced = lowered(*shape, AVX512, {"session.disable_winograd": "1"}, {key: "winograd4"}, **PADS)
    assert of_node(forced).chosen == "line-buffer"
    assert not any("by time" in label for label in labels(forced))


def test_choices_are_of_a_unit() -> None:
    """`bfloat16-packed-rows` names products in tiles, in emulated tiles and in vectors."""

    def key(target: Target, **config: str) -> str:
        made = lowered((1, 64, 28, 28), (64, 64, 1, 1), target, {f"session.{name}": value for name, value in config.items()})
        (template,) = (g.template for g in made.grouping.groups if isinstance(g.template, Convolution))
        found = template.schedule_key(made.env)
        assert found is not None
        return found

    units = ("amx", "amx_emulated", "avx512_bf16", "none")
    assert len({key(AMX, arithmetic="bfloat16", matrix_unit=unit) for unit in units}) == len(units)
    assert key(AMX, arithmetic="bfloat16") == key(AMX, arithmetic="bfloat16", matrix_unit="amx")
    assert key(ZEN4, arithmetic="bfloat16") == key(AMX, arithmetic="bfloat16", matrix_unit="avx512_bf16")
    assert key(ZEN4) == key(ZEN4, matrix_unit="none") != key(ZEN4, arithmetic="bfloat16", matrix_unit="none")


def test_a_unit_that_is_not_there_is_an_error_where_it_is_wanted() -> None:
    absent = {**BFLOAT16, "session.matrix_unit": "amx"}
    assert of_node(lowered((1, 64, 28, 28), (64, 32, 3, 3), AVX512, absent, group=2)).chosen == "winograd4"
    few = lowered((1, 64, 30, 30), (2, 64, 5, 5), AVX2, absent)  # which none of the unit's schedules is reached for
    check_report(of_node(few), SCHEDULES)
    assert of_node(few).chosen == "few-output-channels"
    assert "session.matrix_unit is 'amx', but" in said(few, "bfloat16-packed-windows").applies.reason
    with pytest.raises(InvalidArgument, match=r"session\.matrix_unit is 'amx', but this process cannot use AMX"):
        lowered((1, 64, 28, 28), (64, 64, 3, 3), AVX512, absent)


def test_sizes_that_are_not_known_are_not_timed() -> None:
    made = lowered(("n", 64, "h", "w"), (64, 64, 3, 3), AVX512, **PADS)
    (template,) = (g.template for g in made.grouping.groups if isinstance(g.template, Convolution))
    assert candidates(template, made.env) is None


def test_far_slower_ones_are_not_timed() -> None:
    """A depthwise convolution as products of windows of one channel multiplies zeros."""
    made = lowered((1, 64, 28, 28), (64, 1, 3, 3), AVX512, group=64)
    (template,) = (g.template for g in made.grouping.groups if isinstance(g.template, Convolution))
    assert {s.name for s in considered(template, made.env) if s.applies} == {"depthwise", "implicit-gemm"}
    assert candidates(template, made.env) is None


def test_programs_tell_it() -> None:
    weights = np.ones((8, 8, 3, 3), np.float32)
    graph = helper.make_graph(
        [helper.make_node("Conv", ["x", "w"], ["y"])], "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, (1, 8, 9, 9))],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)], [numpy_helper.from_array(weights, "w")],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10).SerializeToString()
    options = ort.SessionOptions()
    options.add_session_config_entry("session.disable_winograd", "1")
    session = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    (program,) = session._engine.whole_model().programs
    text = program.describe("schedules")
    assert text.startswith("Conv -> y: float") and "winograd4" in text and "session.disable_winograd is 1" in text
    assert text.count("chosen") == 1
