"""Models of one node, lowered for a CPU to see which schedules there are for it; and sessions by a given one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from onnx import NodeProto, helper, numpy_helper

import intarsia as ort
from intarsia.codegen.llvm.target import Target
from intarsia.graph.load import load
from intarsia.ops import registry
from intarsia.plan.step import Step
from intarsia.providers.cpu.kernels.common.schedule import Considered, Schedule
from intarsia.providers.cpu.lowering.lower import Lowered, lower_graph
from intarsia.providers.cpu.program.schedule_report import NodeSchedules, schedule_report

_V3 = "+avx,+avx2,+bmi,+bmi2,+f16c,+fma,+sse4.1,+sse4.2,+ssse3,+sse3"
_V4 = f"{_V3},+avx512bw,+avx512cd,+avx512dq,+avx512f,+avx512vl"
_AMX = f"{_V4},+amx-bf16,+amx-int8,+amx-tile,+avx512bf16,+avx512fp16,+avx512vnni"
AVX2 = Target.create("x86_64-unknown-linux-gnu", "x86-64-v3", _V3)
AVX512 = Target.create("x86_64-unknown-linux-gnu", "x86-64-v4", _V4)
VNNI = Target.create("x86_64-unknown-linux-gnu", "cascadelake", f"{_V4},+avx512vnni")
PAIRS = Target.create("x86_64-unknown-linux-gnu", "cooperlake", f"{_V4},+avx512bf16,+avx512vnni")
ZEN4 = Target.create("x86_64-unknown-linux-gnu", "znver4", f"{_V4},+avx512bf16,+avx512vnni")
AMX = Target.create("x86_64-unknown-linux-gnu", "sapphirerapids", _AMX)
ARM64 = Target.create("aarch64-unknown-linux-gnu", "neoverse-n1", "+neon,+dotprod,+fullfp16")
TARGETS = {"avx2": AVX2, "avx512": AVX512, "vnni": VNNI, "zen4": ZEN4, "amx": AMX, "arm64": ARM64}
BFLOAT16 = {"session.arithmetic": "bfloat16"}
EMULATED = {"session.matrix_unit": "amx_emulated"}
Inputs = Mapping[str, tuple[Any, Sequence[int | str]]]  # element type of NumPy, shape


def model_of(node: NodeProto, inputs: Inputs, constants: Mapping[str, np.ndarray], out: Any) -> bytes:
    """A model of a node whose output `y` has elements of type `out`."""

    def kind(dtype: Any) -> int:
        return int(helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))

    graph = helper.make_graph(
        [node], "g", [helper.make_tensor_value_info(name, kind(dtype), shape) for name, (dtype, shape) in inputs.items()],
        [helper.make_tensor_value_info("y", kind(out), None)],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )  # fmt: skip
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    return bytes(helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString())


def lowered(model: bytes, target: Target, config: Mapping[str, str] = {}) -> Lowered:
    """The model's program for a CPU; nothing is compiled."""
    return lower_graph(load(model), registry(), target, config)


def report(made: Lowered, op_type: str) -> NodeSchedules:
    """What is told of the one node of a type."""
    (found,) = (each for each in schedule_report(made) if each.op_type == op_type)
    return found


def said(found: NodeSchedules, name: str) -> Considered:
    return next(s for s in found.schedules if s.name == name)


def labels(made: Lowered) -> list[str]:
    return [s.label for segment in made.executable.segments() for s in segment.steps if isinstance(s, Step)]


def check_report(found: NodeSchedules, table: Sequence[Schedule[Any]]) -> None:
    """Every schedule of the table is told of, one is chosen, and a no has a reason."""
    assert [s.name for s in found.schedules] == [s.name for s in table]
    assert sum(s.chosen for s in found.schedules) == 1
    for s in found.schedules:
        assert s.applies or s.applies.reason
        assert s.pays or s.pays.reason
        assert (s.seconds < float("inf")) == bool(s.applies) and s.seconds > 0


def session_by(
    schedule: Schedule[Any], module: str, model: bytes, config: Mapping[str, str], monkeypatch: pytest.MonkeyPatch
) -> ort.InferenceSession:
    """A session whose node has this schedule, the only one of the table `SCHEDULES` of a module."""
    monkeypatch.setattr(f"{module}.SCHEDULES", (schedule,))
    options = ort.SessionOptions()
    options.intra_op_num_threads = 2
    for key, value in config.items():
        options.add_session_config_entry(key, value)
    return ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
