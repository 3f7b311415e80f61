"""The table of schedules of convolutions of bytes: what it chooses and why not the others, that the steps are those of the
choice, and that each that applies gives the right numbers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from onnx import helper

pytest.importorskip("llvmlite", reason="the CPU provider compiles with llvmlite")

import schedule_models as t
from conv_int8_reference import convolved

from intarsia.codegen.llvm.target import Target
from intarsia.errors import InvalidArgument
from intarsia.providers.cpu.kernels.conv.int8.conv_int8 import SCHEDULES, ByteConvolution
from intarsia.providers.cpu.lowering.lower import Lowered

MODULE = "intarsia.providers.cpu.kernels.conv.int8.conv_int8"
PADS = {"pads": [1, 1, 1, 1]}
NO_WINOGRAD = {"session.disable_winograd": "1"}
Shape = tuple[int | str, ...]


def filters(shape: tuple[int, ...], kind: str) -> tuple[np.ndarray, np.ndarray]:
    """Filters and their zero point: "int8", "small" ones that never saturate, or of nine bits less a zero point ("nine")."""
    rng = np.random.default_rng(sum(shape))
    if kind == "nine":
        return rng.integers(0, 256, shape).astype(np.uint8), np.array(3, np.uint8)
    bound = 16 if kind == "small" else 128
    return rng.integers(-bound, bound, shape).astype(np.int8), np.array(0, np.int8)


def model(x: Shape, w: tuple[int, ...], kind: str = "int8", dtype: Any = np.uint8, **attributes: Any) -> bytes:
    weights, zero = filters(w, kind)
    node = helper.make_node("ConvInteger", ["x", "w", "xz", "wz"], ["y"], **attributes)
    return t.model_of(node, {"x": (dtype, x)}, {"w": weights, "wz": zero, "xz": np.array(7, dtype)}, np.int32)


def lowered(x: Shape, w: tuple[int, ...], kind: str, target: Target, config: Mapping[str, str], **attributes: Any) -> Lowered:
    return t.lowered(model(x, w, kind, **attributes), target, config)


IMAGE = (1, 64, 28, 28)
CASES: Mapping[str, tuple[Any, ...]] = {
    # sizes, filters, target, configuration, attributes; the schedule, and how the label of its last step begins
    "depthwise": ((1, 32, 9, 9), (32, 1, 3, 3), "int8", t.VNNI, {}, {"group": 32}, "depthwise-int8", "byte depthwise 3x3"),
    "depthwise of nine bits": (
        (1, 32, 9, 9), (32, 1, 3, 3), "nine", t.VNNI, {}, {"group": 32}, "depthwise-float32", "byte depthwise 3x3",
    ),
    "depthwise, no fours": (
        (1, 32, 9, 9), (32, 1, 3, 3), "int8", t.AVX2, {}, {"group": 32}, "depthwise-float32", "byte depthwise 3x3",
    ),
    "one line": ((1, 32, 9), (32, 1, 3), "int8", t.VNNI, {}, {"group": 32}, "depthwise-float32", "byte depthwise 3"),
    "small groups": ((1, 32, 9, 9), (32, 4, 3, 3), "int8", t.VNNI, {}, {"group": 8}, "small-groups-int8", "byte grouped 3x3"),
    "groups, words": ((1, 32, 9, 9), (32, 4, 3, 3), "int8", t.AVX2, {}, {"group": 8}, "widened-int16", "byte conv 3x3"),
    "groups of nine bits": ((1, 32, 9, 9), (32, 4, 3, 3), "nine", t.AVX2, {}, {"group": 8}, "added-parts", "byte conv 3x3"),
    "tiles": (IMAGE, (64, 64, 3, 3), "int8", t.AMX, {}, PADS, "matrix-unit", "byte gemm 784x64x576 by AMX"),
    "winograd": (IMAGE, (64, 64, 3, 3), "int8", t.VNNI, {}, PADS, "winograd4-int16", "byte winograd4"),
    "winograd, words": (IMAGE, (64, 64, 3, 3), "int8", t.AVX2, {}, PADS, "winograd4-int16", "byte winograd4"),
    "dynamic sizes": (("n", 64, "h", "w"), (64, 64, 3, 3), "int8", t.ZEN4, {}, PADS, "winograd4-int16", "byte winograd4"),
    "no winograd": (IMAGE, (64, 64, 3, 3), "int8", t.VNNI, NO_WINOGRAD, PADS, "added-parts", "byte conv 3x3"),
    "in order": (IMAGE, (128, 64, 1, 1), "small", t.AVX2, {}, {}, "saturation-free-order", "byte conv 1x1"),
    "widened": (IMAGE, (128, 64, 1, 1), "int8", t.AVX2, {}, {}, "widened-int16", "byte conv 1x1"),
    "moved": (IMAGE, (128, 64, 1, 1), "nine", t.VNNI, {}, {}, "moved-filters", "byte conv 1x1"),
    "few filters of nine bits": (IMAGE, (8, 64, 1, 1), "nine", t.VNNI, {}, {}, "added-parts", "byte conv 1x1"),
    "pointwise": (IMAGE, (128, 64, 1, 1), "int8", t.VNNI, {}, {}, "added-parts", "byte conv 1x1"),
    "three axes": ((1, 16, 5, 5, 5), (32, 16, 3, 3, 3), "int8", t.AMX, {}, {}, "added-parts", "byte conv 3x3x3"),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_the_choice_that_is_told_is_what_is_lowered(name: str) -> None:
    x, w, kind, target, config, attributes, chosen, label = CASES[name]
    made = lowered(x, w, kind, target, config, **attributes)
    found = t.report(made, "ConvInteger")
    assert found.chosen == chosen
    kernels = [line for line in t.labels(made) if not line.lower().startswith("transpose")]
    assert kernels[-1].startswith(label), kernels
    t.check_report(found, SCHEDULES)


def test_every_schedule_is_chosen_somewhere() -> None:
    assert {s.name for s in SCHEDULES} == {case[-2] for case in CASES.values()}
    assert len({s.name for s in SCHEDULES}) == len(SCHEDULES)


DEPTHWISE = ((1, 32, 9, 9), (32, 1, 3, 3), {"group": 32})
DENSE = (IMAGE, (64, 64, 3, 3), PADS)
NINE = "filters less their zero points need nine bits"
NO_FOURS = "the CPU does not multiply bytes by fours"
AVX2_ONLY = "the CPU multiplies bytes by fours, or its registers are not AVX2's"


@pytest.mark.parametrize(
    ("case", "kind", "target", "config", "schedule", "reason"),
    [
        (DENSE, "int8", t.VNNI, {}, "depthwise-int8", "64 filters see 64 channels each, not one channel of their own"),
        (DEPTHWISE, "int8", t.AVX2, {}, "depthwise-int8", NO_FOURS),
        (DEPTHWISE, "nine", t.VNNI, {}, "depthwise-int8", NINE),
        (((1, 4, 30, 30), (4, 1, 17, 17), {"group": 4}), "int8", t.VNNI, {}, "depthwise-int8", "sums of 289 products are not"),
        (((1, 4, 30, 30), (4, 1, 17, 17), {"group": 4}), "int8", t.VNNI, {}, "depthwise-float32", "sums of 289 products are"),
        (DENSE, "int8", t.VNNI, {}, "depthwise-float32", "64 filters see 64 channels each, not one channel of their own"),
        (DENSE, "int8", t.VNNI, {}, "small-groups-int8", "all channels are one group"),
        (((1, 32, 9, 9), (32, 4, 3, 3), {"group": 8}), "int8", t.AVX2, {}, "small-groups-int8", NO_FOURS),
        (((1, 32, 9, 9), (32, 4, 3, 3), {"group": 8}), "nine", t.VNNI, {}, "small-groups-int8", NINE),
        (((1, 64, 9, 9), (64, 32, 3, 3), {"group": 2}), "int8", t.VNNI, {}, "small-groups-int8", "2 groups of 32 channels, 32"),
        (DEPTHWISE, "int8", t.AMX, {}, "matrix-unit", "its channels are several groups"),
        ((IMAGE, (8, 64, 3, 3), PADS), "int8", t.AMX, {}, "matrix-unit", "it has too few pixels, filters or terms"),
        (DENSE, "nine", t.AMX, {}, "matrix-unit", NINE),
        (DENSE, "int8", t.VNNI, {}, "matrix-unit", "the CPU has no matrix unit for bytes"),
        (DENSE, "int8", t.AMX, {"session.matrix_unit": "none"}, "matrix-unit", "the CPU has no matrix unit for bytes"),
        ((IMAGE, (64, 64, 5, 5), {}), "int8", t.VNNI, {}, "winograd4-int16", "its kernel is 5x5, not 3x3"),
        (DENSE, "int8", t.VNNI, NO_WINOGRAD, "winograd4-int16", "session.disable_winograd is 1"),
        ((IMAGE, (64, 64, 3, 3), {"strides": [2, 2]}), "int8", t.VNNI, {}, "winograd4-int16", "it has strides, or its"),
        (DENSE, "int8", t.ARM64, {}, "winograd4-int16", "how fast this CPU is with 16-bit integers is not known"),
        (((1, 512, 28, 28), (8, 512, 3, 3), PADS), "int8", t.VNNI, {}, "winograd4-int16", "sums of transformed bytes"),
        (DENSE, "small", t.VNNI, {}, "saturation-free-order", AVX2_ONLY),
        (DENSE, "nine", t.AVX2, {}, "saturation-free-order", NINE),
        (DEPTHWISE, "small", t.AVX2, {}, "saturation-free-order", "its channels are several groups"),
        (DENSE, "int8", t.ZEN4, {}, "widened-int16", AVX2_ONLY),
        (DENSE, "nine", t.AVX2, {}, "widened-int16", NINE),
        (DENSE, "int8", t.VNNI, {}, "moved-filters", "filters less their zero points are int8"),
        (DEPTHWISE, "nine", t.VNNI, {}, "moved-filters", "its channels are several groups"),
    ],
)
def test_why_it_does_not_apply(
    case: tuple[Any, ...], kind: str, target: Target, config: Mapping[str, str], schedule: str, reason: str
) -> None:
    x, w, attributes = case
    found = t.said(t.report(lowered(x, w, kind, target, config, **attributes), "ConvInteger"), schedule)
    assert not found.applies and found.applies.reason.startswith(reason)
    assert str(found).split(None, 2)[:2] == [schedule, "no"]


@pytest.mark.parametrize(
    ("x", "w", "kind", "target", "attributes", "schedule", "reason"),
    [
        ((1, 3, 28, 28), (32, 3, 3, 3), "int8", t.VNNI, PADS, "winograd4-int16", "direct sums are expected to be as fast"),
        (IMAGE, (128, 64, 1, 1), "int8", t.AVX2, {}, "saturation-free-order", "few of its weights are so small that sums"),
        (IMAGE, (8, 64, 1, 1), "nine", t.VNNI, {}, "moved-filters", "8 filters, fewer than 32, are multiplied twice in the"),
    ],
)
def test_why_it_does_not_pay(
    x: Shape, w: tuple[int, ...], kind: str, target: Target, attributes: dict[str, Any], schedule: str, reason: str
) -> None:
    found = t.said(t.report(lowered(x, w, kind, target, {}, **attributes), "ConvInteger"), schedule)
    assert found.applies and not found.pays and found.pays.reason.startswith(reason)


def test_a_unit_that_is_not_there_is_an_error_where_it_is_wanted() -> None:
    absent = {"session.matrix_unit": "amx"}
    assert t.report(lowered(*DEPTHWISE[:2], "int8", t.VNNI, absent, group=32), "ConvInteger").chosen == "depthwise-int8"
    with pytest.raises(InvalidArgument, match=r"session\.matrix_unit is 'amx', but .*; give 'auto'"):
        lowered(*DENSE[:2], "int8", t.VNNI, absent, **PADS)


def test_the_faster_one_by_estimate_is_the_one_that_is_chosen() -> None:
    """Far from where they are equal: the estimates are not asked, but are told."""
    for name, slower in {
        "depthwise": "added-parts", "depthwise, no fours": "widened-int16", "tiles": "winograd4-int16",
        "winograd": "added-parts", "in order": "widened-int16", "widened": "added-parts", "moved": "added-parts",
    }.items():  # fmt: skip
        x, w, kind, target, config, attributes, chosen, _ = CASES[name]
        found = t.report(lowered(x, w, kind, target, config, **attributes), "ConvInteger")
        assert t.said(found, chosen).seconds < t.said(found, slower).seconds, name


def test_a_convolution_by_itself_has_the_table() -> None:
    made = lowered(*DENSE[:2], "int8", t.VNNI, {}, **PADS)
    (template,) = (g.template for g in made.grouping.groups if isinstance(g.template, ByteConvolution))
    assert template.schedule_table() is SCHEDULES
    assert template.schedule_key(made.env) is None, "none of it is timed"


# --- numbers -------------------------------------------------------------------------------------------------------

NUMBERS = {  # sizes of an image and of filters, attributes
    "depthwise": ((2, 20, 9, 8), (20, 1, 3, 3), {"group": 20, **PADS}),
    "groups": ((1, 24, 7, 9), (24, 4, 3, 3), {"group": 6, "strides": [2, 1]}),
    "dense": ((1, 35, 10, 9), (70, 35, 3, 3), PADS),
    "pointwise": ((2, 33, 5, 6), (65, 33, 1, 1), {}),
    "few filters": ((1, 18, 8, 8), (3, 18, 2, 3), {"dilations": [1, 2]}),
}


@pytest.mark.parametrize("features", ["", "avx2"])
@pytest.mark.parametrize("kind", ["int8", "small", "nine"])
@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
def test_whatever_applies_is_right(features: str, kind: str, dtype: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also those that do not pay: the same numbers as sums of int64. The matrix unit is imitated where there is none."""
    if features and Target.host().arch != "x86_64":
        pytest.skip("AVX2 is x86-64's")
    if features:
        monkeypatch.setenv("INTARSIA_CPU_FEATURES", features)
    rng, target, seen = np.random.default_rng(9), Target.host(), set[str]()
    low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
    for shape, w, attributes in NUMBERS.values():
        made, x = model(shape, w, kind, dtype, **attributes), rng.integers(low, high + 1, shape).astype(dtype)
        weights, zero = filters(w, kind)
        strides, dilations = (tuple(attributes.get(key, (1, 1))) for key in ("strides", "dilations"))
        expected = convolved(
            x.astype(np.int64) - 7, weights.astype(np.int64) - int(zero), strides, dilations,
            tuple(attributes.get("pads", (0,) * 4)), attributes.get("group", 1),
        )  # fmt: skip
        for config in ({}, t.EMULATED):
            found = t.lowered(made, target, config)
            (template,) = (g.template for g in found.grouping.groups if isinstance(g.template, ByteConvolution))
            for schedule in SCHEDULES:
                if schedule.applies(template, found.env) and (not config or schedule.name == "matrix-unit"):
                    with monkeypatch.context() as patch:
                        session = t.session_by(schedule, MODULE, made, config, patch)
                    np.testing.assert_array_equal(session.run(None, {"x": x})[0], expected, err_msg=schedule.name)
                    seen.add(schedule.name)
    assert {"depthwise-float32", "added-parts"} <= seen
    assert kind == "nine" or "matrix-unit" in seen
    assert (kind == "nine") == ("moved-filters" in seen)
    assert kind == "nine" or target.vector_bytes != 32 or {"saturation-free-order", "widened-int16"} <= seen
