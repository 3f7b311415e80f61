"""The schedule of recurrent layers whose weights are stored as bytes: X is quantised by its own range, and multiplied so."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from intarsia.ep.capability import Support
from intarsia.graph.dims import Dim
from intarsia.graph.dtypes import DType
from intarsia.graph.model import Node
from intarsia.lazy_dataclass import dataclass
from intarsia.plan.step import Step
from intarsia.primitives import lang as k
from intarsia.providers.cpu.kernels.common.epilogue import Epilogue
from intarsia.providers.cpu.kernels.common.packing import Layout, Packing
from intarsia.providers.cpu.kernels.common.schedule import KernelRequest, LoweringEnv
from intarsia.providers.cpu.kernels.common.template import FusedOperand, Workspace
from intarsia.providers.cpu.kernels.common.tensor_spec import TensorSpec
from intarsia.providers.cpu.kernels.common.tiles import Tile, tile_of
from intarsia.providers.cpu.kernels.matmul_int8.byte_rates import rate_of
from intarsia.providers.cpu.kernels.matmul_int8.matmul_int8 import ByteMatMul, Zero
from intarsia.providers.cpu.kernels.quantize.dynamic_quantize import DynamicQuantize
from intarsia.providers.cpu.kernels.recurrent import rnn_arguments
from intarsia.providers.cpu.kernels.recurrent.rnn_arguments import GATES
from intarsia.providers.cpu.kernels.recurrent.rnn_layer import InputProducts, Layer
from intarsia.providers.cpu.kernels.recurrent.rnn_schedules import RecurrentSchedule, bytes_seconds

if TYPE_CHECKING:
    from intarsia.providers.cpu.kernels.recurrent.rnn import Recurrent

_DYNAMIC_VERSION = 11


@dataclass(frozen=True)
class ByteInputsBefore(RecurrentSchedule):
    """A product of bytes for all inputs, then the kernel that walks the sequence over R in bytes."""

    @property
    def when(self) -> InputProducts:
        return InputProducts.BEFORE

    def applies(self, node: Recurrent, env: LoweringEnv) -> Support:
        return Support.yes() if node.spec.stored else Support.no("its weights are floats")

    def cost(self, node: Recurrent, env: LoweringEnv) -> float:
        return bytes_seconds(node, env, rate_of(env.target) * 4)

    def input_steps(self, node: Recurrent, layer: Layer, request: KernelRequest, products: str) -> list[Step]:
        """X as bytes by its own range, and their product with W: sums of bytes times both scales, and the bias."""
        target, workspace, tile = request.target, request.workspace, tile_of(node.spec.dtype, request.target)
        shape, columns = node.operand(0).shape, node.columns(target)
        levels = workspace.temporary(f"{products}%levels", DType.UINT8, shape)
        scale = workspace.temporary(f"{products}%scale", DType.FLOAT, ())
        zero = workspace.temporary(f"{products}%zero", DType.UINT8, ())
        dynamic = Node("DynamicQuantizeLinear", [node.reads[0]], [levels, scale, zero], version=_DYNAMIC_VERSION)
        bytes_type = TensorSpec(DType.UINT8, shape)
        before = DynamicQuantize(dynamic, (node.reads[0],), (TensorSpec(DType.FLOAT, shape),), bytes_type, takes_epilogue=False)
        view = _InputWeights(node, workspace, tile)
        kinds, names, root = ["scalar", "column"], [scale, view.scales], k.cast(k.input(0, DType.INT32, ()), DType.FLOAT)
        root = root * (k.input(1, DType.FLOAT, ()) * k.input(2, DType.FLOAT, ()))
        bias = node.bias(workspace, tile)
        if bias:
            kinds, names, root = [*kinds, "column"], [*names, bias], root + k.input(3, DType.FLOAT, ())
        epilogue = Epilogue(root, tuple(kinds), (DType.FLOAT,) * len(kinds))
        operands = [FusedOperand(name, kind, DType.FLOAT) for name, kind in zip(names, kinds, strict=True)]
        product = ByteMatMul(
            node.node, (levels, view.numbers, zero, view.zeros), (bytes_type, TensorSpec(view.dtype, (layer.depth, columns))),
            TensorSpec(DType.FLOAT, (*shape[:2], columns)), a_zero=Zero(read=2, dtype=DType.UINT8),
            b_zero=Zero(read=3, kind="column", dtype=view.dtype),
        )  # fmt: skip
        return [
            *before.steps(target, workspace, None, (), levels),
            *product.steps(target, view, epilogue, operands, products),
        ]


def by_column(workspace: Workspace, name: str, numbers: np.ndarray) -> np.ndarray:
    """A scale or zero point of every column, [directions, columns], of `numbers` [directions, n, columns]."""
    found = workspace.array(name)
    assert found is not None
    return np.broadcast_to(found.reshape(len(numbers), -1), (len(numbers), numbers.shape[-1]))


class _InputWeights:
    """A workspace in which W, its scales and zero points have the columns that the walk reads, of all directions."""

    def __init__(self, made: Recurrent, workspace: Workspace, tile: Tile) -> None:
        self._made, self._workspace, self._tile = made, workspace, tile
        w, (scale, zero, *_) = made.weights[0], made.factors
        key = f"{w}%arranged{tile.width} {scale} {zero}"
        self.numbers, self.zeros = f"{key}%numbers", f"{key}%zeros"
        self.scales = workspace.add(w, Packing(Layout.RNN_SCALES, tile.width, view=scale), lambda: self._arranged(scale))
        self._arrays: Mapping[str, Callable[[], np.ndarray]] = {
            self.numbers: self._matrix, self.zeros: lambda: self._arranged(zero),
        }  # fmt: skip
        self.options, self.choices = workspace.options, workspace.choices

    @cached_property
    def _given(self) -> np.ndarray:
        found = self._workspace.array(self._made.weights[0])
        assert found is not None
        return found

    @property
    def dtype(self) -> DType:
        return DType.of(self._given.dtype)

    def _matrix(self) -> np.ndarray:
        return rnn_arguments.input_matrix(np.moveaxis(self._given, 1, 2), GATES[self._made.spec.cell], self._tile)

    def _arranged(self, name: str) -> np.ndarray:
        rows = by_column(self._workspace, name, self._given)
        return rnn_arguments.arrange(rows, GATES[self._made.spec.cell], self._tile).reshape(-1)

    def is_constant(self, name: str) -> bool:
        return name in self._arrays or self._workspace.is_constant(name)

    def array(self, name: str) -> np.ndarray | None:
        made = self._arrays.get(name)
        return made() if made is not None else self._workspace.array(name)

    def original_type(self, name: str) -> DType | None:
        return self._workspace.original_type(name)

    def add(self, name: str, packing: Packing, make: Callable[[], np.ndarray]) -> str:
        return self._workspace.add(name, packing, make)

    def temporary(self, name: str, dtype: DType, shape: Sequence[Dim]) -> str:
        return self._workspace.temporary(name, dtype, shape)
