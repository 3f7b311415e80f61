"""Functions of one 8-bit tensor whose scales and zero points are constants: a table of 256 entries, made with the program."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from intarsia.codegen import lookup as template
from intarsia.codegen.epilogue import Epilogue
from intarsia.codegen.target import Target
from intarsia.graph.dims import product
from intarsia.graph.dtypes import DType
from intarsia.graph.model import Node, TensorType
from intarsia.ops.infer import Inference
from intarsia.plan.step import Argument, Below, Ref, Sizes, Step
from intarsia.providers.cpu.template import FusedOperand, Template, Workspace, tensor_types

_SERIAL_ELEMENTS = 32768
_BYTES = frozenset((DType.UINT8, DType.INT8))


def lookup(node: Node, inference: Inference) -> Template | None:
    """QLinearSigmoid or QLinearLeakyRelu of int8 or uint8 by constants."""
    x, *_ = tensor_types(node, inference)
    out = inference.types.get(node.outputs[0])
    if x is None or x.shape is None or x.dtype not in _BYTES or not isinstance(out, TensorType) or out.dtype is not x.dtype:
        return None
    others = [n for n in node.inputs[1:] if n]
    if not others or any(n not in inference.graph.constants or inference.graph.constants[n].size != 1 for n in others):
        return None
    return Lookup(node, (node.inputs[0],), (x,), out, takes_epilogue=False)


@dataclass(frozen=True)
class Lookup(Template):
    def steps(
        self, target: Target, workspace: Workspace, epilogue: Epilogue | None, operands: Sequence[FusedOperand], out: str
    ) -> list[Step]:
        scale = next(n for n in self.node.inputs[1:] if n)
        table = workspace.add(scale, f"table of {out}", lambda: self._table(workspace))
        serial = Below(product(self.output.shape or ()), _SERIAL_ELEMENTS)
        return [
            Step(
                template.kernel_text(target), (*self.reads, table), (out,), _Arguments(self.reads[0], table, out, self.output),
                serial=serial, label=f"{self.node.op_type} by a table",
            )
        ]  # fmt: skip

    def _table(self, workspace: Workspace) -> np.ndarray:
        """The operator's results for all 256 elements."""
        from intarsia.ops import registry
        from intarsia.ops.evaluate import evaluate_node

        every = np.arange(256, dtype=np.uint8).view(self.output.dtype.numpy)
        (found,) = evaluate_node(
            self.node, [every, *(workspace.array(n) if n else None for n in self.node.inputs[1:])], registry()
        )
        return np.ascontiguousarray(found).view(np.uint8)


@dataclass(frozen=True)
class _Arguments:
    x: str
    table: str
    y: str
    kind: TensorType

    def __call__(self, size: Sizes, threads: int) -> Sequence[Argument]:
        return [Ref(self.x), Ref(self.table), Ref(self.y), size(product(self.kind.shape or ()))]
