"""Functions of one 8-bit tensor whose scales and zero points are constants: a table of 256 entries, made with the program."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from intarsia.codegen.llvm.target import Target
from intarsia.graph.dims import Shape, product
from intarsia.graph.dtypes import DType
from intarsia.graph.model import Constant, Node
from intarsia.lazy_dataclass import dataclass
from intarsia.ops.framework.infer import Inference
from intarsia.plan.step import Below, BuffersAndSizes, Step
from intarsia.primitives.interpreter import interpret
from intarsia.primitives.lang import BINARY, UNARY, Tensor, walk
from intarsia.providers.cpu.kernels.common.epilogue import Epilogue
from intarsia.providers.cpu.kernels.common.packing import Layout, Packing
from intarsia.providers.cpu.kernels.common.template import FusedOperand, Template, Workspace
from intarsia.providers.cpu.kernels.common.tensor_spec import operand_specs, result_spec
from intarsia.providers.cpu.kernels.quantize import byte_lookup_kernel as template

_SERIAL_ELEMENTS = 32768
_BYTES = frozenset((DType.UINT8, DType.INT8))


def lookup(node: Node, inference: Inference) -> Template | None:
    """QLinearSigmoid or QLinearLeakyRelu of int8 or uint8 by constants."""
    x, *_ = operand_specs(node, inference)
    out = result_spec(node, inference)
    if x is None or x.dtype not in _BYTES or out is None or out.dtype is not x.dtype:
        return None
    others = [n for n in node.inputs[1:] if n]
    if not others or any(n not in inference.graph.constants or inference.graph.constants[n].size != 1 for n in others):
        return None
    return Lookup(node, (node.inputs[0],), (x,), out, takes_epilogue=False)


def table_lookup(node: Node, inference: Inference) -> Template | None:
    """Bytes by a constant table."""
    (x, _), out = operand_specs(node, inference), result_spec(node, inference)
    return None if x is None or out is None else TableLookup(node, tuple(node.inputs), (x, None), out, takes_epilogue=False)


@dataclass(frozen=True)
class TableLookup(Template):
    def steps(
        self, target: Target, workspace: Workspace, epilogue: Epilogue | None, operands: Sequence[FusedOperand], out: str
    ) -> list[Step]:
        x, table = self.reads
        return [table_step(target, x, table, out, self.output.shape, "by a table")]


@dataclass(frozen=True)
class Lookup(Template):
    def steps(
        self, target: Target, workspace: Workspace, epilogue: Epilogue | None, operands: Sequence[FusedOperand], out: str
    ) -> list[Step]:
        scale = next(n for n in self.node.inputs[1:] if n)
        table = workspace.add(scale, Packing(Layout.TABLE, view=out), lambda: self._table(workspace))
        return [table_step(target, self.reads[0], table, out, self.output.shape, f"{self.node.op_type} by a table")]

    def _table(self, workspace: Workspace) -> np.ndarray:
        """The operator's results for all 256 elements."""
        from intarsia.ops import registry
        from intarsia.ops.framework.evaluate import evaluate_node

        every = np.arange(256, dtype=np.uint8).view(self.output.dtype.numpy)
        (found,) = evaluate_node(
            self.node, [every, *(workspace.array(n) if n else None for n in self.node.inputs[1:])], registry()
        )
        return np.ascontiguousarray(found).view(np.uint8)


# --- any chain of nodes that is such a function -------------------------------------------------------------------

_ELEMENTWISE = UNARY | BINARY | {"select", "cast", "bitcast", "scalar", "input", "broadcast", "reshape"}
_SLOW = frozenset(
    "div mod fmod pow exp log sqrt sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh erf sigmoid".split()
)


@dataclass(frozen=True)
class ByteFunction:
    """8 bits as a function of 8 bits, element by element; `numbers` are its other leaves, by name."""

    root: Tensor
    source: Tensor
    numbers: Mapping[str, np.ndarray]

    def worth_a_table(self, target: Target) -> bool:
        """Whether looking it up is faster: always where registers hold the table, else than computing what is slow."""
        return self.slow or (target.has("avx512vbmi") and any(t.prim in UNARY | BINARY for t in walk([self.root])))

    @property
    def slow(self) -> bool:
        """Whether it has primitives that take many instructions."""
        return any(t.prim in _SLOW for t in walk([self.root]))

    def table(self) -> np.ndarray:
        """uint8 [256]: the results for all bytes, by their unsigned values."""
        every = np.arange(256, dtype=np.uint8).view(self.source.dtype.numpy)
        made: dict[int, Tensor] = {}
        for t in walk([self.root]):
            if t.prim == "input":
                if t.attrs[0] == self.source.attrs[0]:
                    made[id(t)] = Tensor("input", (), (0,), t.dtype, (256,))
                else:
                    made[id(t)] = Tensor("scalar", (), (self.numbers[t.attrs[0]].item(),), t.dtype, ())
            elif t.prim in ("broadcast", "reshape"):
                made[id(t)] = made[id(t.args[0])]
            else:
                made[id(t)] = Tensor(t.prim, tuple(made[id(a)] for a in t.args), t.attrs, t.dtype, (256,))
        (found,) = interpret([made[id(self.root)]], [every])
        return np.ascontiguousarray(np.broadcast_to(found, (256,))).view(np.uint8)

    def step(self, target: Target, workspace: Workspace, out: str, label: str) -> Step:
        source = self.source.attrs[0]
        table = workspace.add("", Packing(Layout.TABLE, view=out), self.table)
        return table_step(target, source, table, out, self.root.shape, label)


def byte_function(root: Tensor, constants: Mapping[str, Constant]) -> ByteFunction | None:
    """The function of one byte at the same place that `root` computes, if it depends on nothing else."""
    if root.dtype not in _BYTES:
        return None
    order = walk([root])
    if any(t.prim not in _ELEMENTWISE for t in order):
        return None
    extent = _significant(root.shape)
    source, numbers = None, dict[str, np.ndarray]()
    for t in order:
        if t.prim != "input":
            if _significant(t.shape) not in ((), extent):
                return None
            continue
        constant = constants.get(t.attrs[0])
        if constant is not None and constant.size == 1:
            numbers[t.attrs[0]] = constant.numpy()
        elif source is None and t.dtype in _BYTES and _significant(t.shape) == extent and constant is None:
            source = t
        elif source is None or t.attrs[0] != source.attrs[0] or _significant(t.shape) != extent:
            return None
    return ByteFunction(root, source, numbers) if source is not None else None


def _significant(shape: Shape) -> Shape:
    return tuple(d for d in shape if d != 1)


def table_step(target: Target, x: str, table: str, out: str, shape: Shape, label: str) -> Step:
    """The step that looks up bytes."""
    serial = Below(product(shape), _SERIAL_ELEMENTS)
    call = BuffersAndSizes((x, table, out), (product(shape),))
    return Step(template.kernel_text(target), (x, table), (out,), call, serial=serial, label=label)
