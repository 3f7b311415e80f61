"""Primitive graphs on a device, without a session around them."""

from __future__ import annotations

import importlib
from collections.abc import Sequence

import numpy as np

from intarsia.codegen.clike import Cut, Dialect
from intarsia.device.gpu import Gpu, GpuTransfer
from intarsia.graph.dtypes import DType
from intarsia.graph.model import Constant
from intarsia.primitives import lang as k
from intarsia.primitives.substitute import substitute
from intarsia.providers.gpu.plan import Constants, Plan

DEVICES = ("webgpu", "opencl")


def why_not(kind: str) -> str:
    """What is missing for a kind of device; "" where nothing is."""
    return str(importlib.import_module(f"intarsia.device.{kind}").missing())


def opened(kind: str) -> Gpu:
    device: Gpu = importlib.import_module(f"intarsia.device.{kind}").open_device()
    return device


def planned(
    gpu: Gpu, roots: Sequence[k.Tensor], operands: Sequence[np.ndarray], dialect: Dialect | None = None,
    weights: Sequence[int] = (),
) -> Plan:  # fmt: skip
    """A plan for roots over `input(i)`; in another dialect than the device's where one is given. `weights`: operands that
    are the same in every run."""
    names = [f"x{i}" for i in range(len(operands))]
    cut = Cut(dialect or gpu.dialect, weights={names[i] for i in weights})
    for name, array in zip(names, operands, strict=True):
        cut.stored[name] = (DType.of(array.dtype), array.shape)
    named = substitute(roots, lambda t: k.input(names[t.attrs[0]], t.dtype, t.shape))  # type: ignore[arg-type]
    outputs = []
    for i, root in enumerate(named):
        cut.store(cut.settle(root), f"y{i}")
        outputs.append((f"y{i}", *cut.stored[f"y{i}"]))
    tables = {n: gpu.write(a) for n, a in cut.tables.items()}
    sources = {names[i]: Constant.of(names[i], operands[i]) for i in weights}
    for name, how in cut.prepared.items():
        (source,) = (t.attrs[0] for t in k.walk([how]) if t.prim == "input")
        tables[name] = Constants(gpu).prepared(name, how, sources[source])
    return Plan(gpu, tuple(names), cut.jobs, cut.stored, tables, outputs)


def values_of(plan: Plan, operands: Sequence[np.ndarray]) -> list[np.ndarray]:
    """What a plan of `planned` computes."""
    transfer = GpuTransfer(plan.gpu)
    given = {n: transfer.copy_in(a, plan.gpu.device).handle for n, a in zip(plan.inputs, operands, strict=True)}
    return [transfer.copy_out(t) for t in plan.run(given)]
