"""Random tensors by kernels: a node's own seed is a constant, one without takes a stream of the process's state in each run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from typing import TYPE_CHECKING

import numpy as np

from intarsia.codegen.elementwise.element_types import SUPPORTED_DTYPES
from intarsia.codegen.llvm.target import Target
from intarsia.graph.dims import Dim, product
from intarsia.graph.dtypes import DType
from intarsia.graph.model import Node
from intarsia.lazy_dataclass import dataclass
from intarsia.ops.tensor import philox
from intarsia.plan.step import ALWAYS, SCRATCH, Argument, Below, KernelCall, Ref, ScratchCall, Sizes, Step
from intarsia.providers.cpu.kernels.common.epilogue import Epilogue
from intarsia.providers.cpu.kernels.common.template import FusedOperand, Template, Workspace
from intarsia.providers.cpu.kernels.common.tensor_spec import TensorSpec, operand_specs, result_spec
from intarsia.providers.cpu.kernels.rng import multinomial_kernel as picking
from intarsia.providers.cpu.kernels.rng import random_kernel as template
from intarsia.providers.cpu.kernels.rng.random_kernel import Form

if TYPE_CHECKING:
    from intarsia.ops.framework.infer import Inference

_SERIAL_ELEMENTS = 8192
_FLOATS = frozenset((DType.FLOAT16, DType.BFLOAT16, DType.FLOAT, DType.DOUBLE))
_KINDS = {
    "RandomNormal": ("normal", ("mean", 0.0), ("scale", 1.0)),
    "RandomUniform": ("uniform", ("low", 0.0), ("high", 1.0)),
    "Bernoulli": ("below", ("", 0.0), ("", 0.0)),
}


def random(node: Node, inference: Inference) -> Template | None:
    """RandomNormal, RandomUniform, what is like a tensor, Bernoulli."""
    out = result_spec(node, inference)
    kind, *bounds = _KINDS[node.op_type.removesuffix("Like")]
    low, high = (float(node.attributes.get(name, default)) for name, default in bounds)
    reads: tuple[str, ...] = ()
    types: tuple[TensorSpec | None, ...] = ()
    source = DType.FLOAT
    if kind == "below":
        x = operand_specs(node, inference)[0]
        if x is None or x.dtype not in _FLOATS:
            return None
        reads, types, source = (node.inputs[0],), (x,), x.dtype
    if out is None or out.dtype not in (SUPPORTED_DTYPES if kind == "below" else _FLOATS):
        return None
    seed = node.attributes.get("seed")
    form = Form(kind, out.dtype, source)
    return Random(node, reads, types, out, takes_epilogue=False, form=form, bounds=(low, high), seed=seed)


def dropout(node: Node, inference: Inference) -> Template | None:
    """Dropout in training mode, of a known ratio. By a seed it draws as ONNX's reference does, on the host."""
    x, out = operand_specs(node, inference)[0], result_spec(node, inference)
    if node.version < 12 or x is None or out is None or x.dtype not in _FLOATS or node.attributes.get("seed") is not None:
        return None
    mode = inference.values.get(node.inputs[2]) if len(node.inputs) > 2 and node.inputs[2] else None
    ratio: object = 0.5
    if len(node.inputs) > 1 and node.inputs[1]:
        constant = inference.graph.constants.get(node.inputs[1])
        ratio = float(constant.numpy().reshape(())) if constant is not None and constant.size == 1 else None
    if mode is None or not any(mode.reshape(-1)) or not isinstance(ratio, float) or not 0 <= ratio < 1:
        return None
    form = Form("drop", x.dtype, x.dtype)
    return Random(node, (node.inputs[0],), (x,), out, takes_epilogue=False, form=form, bounds=(ratio, 0.0), seed=None)


def multinomial(node: Node, inference: Inference) -> Template | None:
    x, out = operand_specs(node, inference)[0], result_spec(node, inference)
    if x is None or out is None or len(x.shape) != 2 or x.shape[1] == 0:
        return None
    if x.dtype not in picking.SOURCES or out.dtype not in picking.TARGETS:
        return None
    return Multinomial(node, (node.inputs[0],), (x,), out, takes_epilogue=False)


@dataclass(frozen=True)
class _Key:
    """Where a tensor's key and stream are: a constant by a node's seed, or a buffer that a step before fills."""

    seed: float | None
    buffer: str

    def step(self, target: Target) -> list[Step]:
        if self.seed is not None:
            return []
        return [
            Step(
                template.draw_text(target), (), (self.buffer,), _StreamCall(self.buffer), serial=ALWAYS,
                label="a stream of numbers", varies=True,
            )
        ]  # fmt: skip

    @property
    def reads(self) -> tuple[str, ...]:
        return () if self.seed is not None else (self.buffer,)

    def argument(self) -> Argument:
        return Ref(self.buffer) if self.seed is None else philox.state_of(self.seed)


def _key_of(node: Node, seed: float | None, workspace: Workspace) -> _Key:
    name = f"{next(n for n in node.outputs if n)}%key"
    return _Key(seed, name if seed is not None else workspace.temporary(name, DType.INT64, (2,)))


@dataclass(frozen=True)
class _StreamCall(KernelCall):
    """Takes a stream of the process's generator."""

    buffer: str

    def arguments(self, size: Sizes, threads: int) -> Sequence[Argument]:
        return [philox.shared_state(), Ref(self.buffer)]


@dataclass(frozen=True)
class _Drawn(KernelCall):
    """Arguments of a kernel that draws."""

    kernel: Form
    bounds: tuple[float, float]
    key: _Key
    count: Dim
    target: str
    source: str = ""
    mask: str = ""

    def step(self, target: Target, label: str) -> Step:
        reads = (*self.key.reads, *((self.source,) if self.source else ()))
        writes = tuple(n for n in (self.target, self.mask) if n)
        serial = Below(self.count, _SERIAL_ELEMENTS)
        return Step(template.kernel_text(self.kernel, target), reads, writes, self, serial=serial, label=label, varies=True)

    def arguments(self, size: Sizes, threads: int) -> Sequence[Argument]:
        bounds: np.ndarray = np.array(self.bounds, self.kernel.bounds)
        others = [Ref(name) if name else 0 for name in (self.source, self.mask)]
        return [Ref(self.target), size(self.count), self.key.argument(), bounds, *others]


@dataclass(frozen=True)
class Random(Template):
    form: Form = field(kw_only=True)
    bounds: tuple[float, float] = field(kw_only=True)
    seed: float | None = field(kw_only=True)

    @property
    def outputs(self) -> tuple[str, ...]:
        return tuple(n for n in self.node.outputs if n)

    def steps(
        self, target: Target, workspace: Workspace, epilogue: Epilogue | None, operands: Sequence[FusedOperand], out: str
    ) -> list[Step]:
        key, count = _key_of(self.node, self.seed, workspace), product(self.output.shape)
        mask = ""
        if self.form.kind == "drop":
            named = (*self.node.outputs, "")[1]
            mask = named or workspace.temporary(f"{out}%mask", DType.BOOL, self.output.shape)
        source = self.reads[0] if self.reads else ""
        drawn = _Drawn(self.form, self.bounds, key, count, self.node.outputs[0], source, mask)
        return [*key.step(target), drawn.step(target, self.node.op_type)]


@dataclass(frozen=True)
class Multinomial(Template):
    def steps(
        self, target: Target, workspace: Workspace, epilogue: Epilogue | None, operands: Sequence[FusedOperand], out: str
    ) -> list[Step]:
        x, shape = self.operand(0), self.output.shape
        key = _key_of(self.node, self.node.attributes.get("seed"), workspace)
        units = workspace.temporary(f"{out}%units", DType.DOUBLE, shape)
        drawn = _Drawn(Form("uniform", DType.DOUBLE), (0.0, 1.0), key, product(shape), units)
        text = picking.kernel_text(x.dtype, self.output.dtype, target)
        pick = Step(
            text, (self.reads[0], units), (out,), _PickCall(self.reads[0], units, out, (x.shape[0], x.shape[1], shape[1])),
            serial=Below(product(x.shape), _SERIAL_ELEMENTS), label="Multinomial",
        )  # fmt: skip
        return [*key.step(target), drawn.step(target, "Multinomial's numbers"), pick]


@dataclass(frozen=True)
class _PickCall(ScratchCall):
    """Picks classes by numbers of 0 to 1. `sizes`: rows, classes, numbers of a row."""

    x: str
    units: str
    y: str
    sizes: tuple[Dim, Dim, Dim]

    @property
    def form(self) -> object:
        return self.sizes

    def arguments(self, size: Sizes, threads: int) -> Sequence[Argument]:
        return [Ref(self.x), Ref(self.units), Ref(self.y), *map(size, self.sizes), Ref(SCRATCH)]

    def scratch_nbytes(self, size: Sizes, threads: int) -> int:
        return threads * picking.scratch_nbytes(size(self.sizes[1]))
