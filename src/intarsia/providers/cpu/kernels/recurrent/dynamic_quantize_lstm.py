"""DynamicQuantizeLSTM: X quantised and multiplied as bytes, then the walk of `recurrent` over R in bytes, which quantises the
state in every step (`kernels.recurrent.rnn_row_product_int8`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from functools import cached_property

import numpy as np

from intarsia.codegen.llvm.target import Target
from intarsia.graph.dims import Dim
from intarsia.graph.dtypes import DType
from intarsia.graph.model import Constant, Node, TensorType
from intarsia.lazy_dataclass import dataclass
from intarsia.ops.framework.infer import Inference
from intarsia.plan.step import Step
from intarsia.primitives import lang as k
from intarsia.providers.cpu.kernels.common.epilogue import Epilogue
from intarsia.providers.cpu.kernels.common.microkernel import Tile, tile_of
from intarsia.providers.cpu.kernels.common.template import FusedOperand, Template, Workspace, tensor_types
from intarsia.providers.cpu.kernels.matmul_int8.byte_weights import LIFT
from intarsia.providers.cpu.kernels.matmul_int8.matmul_int8 import ByteMatMul, Zero
from intarsia.providers.cpu.kernels.quantize.dynamic_quantize import DynamicQuantize
from intarsia.providers.cpu.kernels.recurrent import rnn_arguments
from intarsia.providers.cpu.kernels.recurrent.rnn import Recurrent, _Layer, parts_of
from intarsia.providers.cpu.kernels.recurrent.rnn_arguments import GATES
from intarsia.providers.cpu.kernels.recurrent.rnn_row_product_int8 import pack_byte_weights

_INPUTS = 12
_X, _W, _R = range(3)
_FACTORS = ((_W, 8, 9), (_R, 10, 11))  # numbers, scales and zero points of W and of R
_DYNAMIC_VERSION = 11


def quantized_layer(node: Node, inference: Inference) -> Template | None:
    """A layer of float32 whose bytes, scales and zero points are constants."""
    if len(node.inputs) != _INPUTS:
        return None
    constants = inference.graph.constants
    parts = [tuple(constants.get(node.inputs[i]) for i in which) for which in _FACTORS]
    types = list(tensor_types(node, inference)[:8])
    x = types[_X]
    if x is None or x.dtype is not DType.FLOAT or not all(map(_fits, parts)):
        return None
    for at, (numbers, *_) in zip((_W, _R), parts, strict=True):
        assert numbers is not None
        directions, rows, columns = numbers.shape
        types[at] = TensorType(DType.FLOAT, (directions, columns, rows))  # as an LSTM's
    found = parts_of(node, node.inputs[:8], types, inference)
    if found is None:
        return None
    made = QuantizedRecurrent(
        node, found.reads, tuple(types), found.output, takes_epilogue=False, spec=replace(found.spec, stored=True),
        weights=found.weights, factors=tuple(node.inputs[8:]),
    )  # fmt: skip
    return made if made.fits() else None


def _fits(parts: Sequence[Constant | None]) -> bool:
    """Numbers [directions, n, 4 hidden], and a scale and a zero point per direction, or per direction and column."""
    numbers, *others = parts
    if numbers is None or len(numbers.shape) != 3 or numbers.dtype not in (DType.INT8, DType.UINT8):
        return False
    directions, _, columns = numbers.shape
    return all(o is not None and o.shape in ((directions,), (directions, columns)) for o in others)


@dataclass(frozen=True)
class QuantizedRecurrent(Recurrent):
    """`factors`: W's scale and zero point, and R's."""

    factors: tuple[str, ...] = field(kw_only=True)

    def _by_column(self, workspace: Workspace, name: str, numbers: np.ndarray) -> np.ndarray:
        """A scale or zero point of every column, [directions, columns], of `numbers` [directions, n, columns]."""
        found = workspace.array(name)
        assert found is not None
        return np.broadcast_to(found.reshape(len(numbers), -1), (len(numbers), numbers.shape[-1]))

    def _project(self, target: Target, workspace: Workspace, layer: _Layer, products: str, columns: int) -> list[Step]:
        """X as bytes by its own range, and their product with W: sums of bytes times both scales, and the bias."""
        tile = tile_of(self.spec.dtype, target)
        x = self.types[_X]
        assert x is not None and x.shape is not None
        levels = workspace.temporary(f"{products}%levels", DType.UINT8, x.shape)
        scale = workspace.temporary(f"{products}%scale", DType.FLOAT, ())
        zero = workspace.temporary(f"{products}%zero", DType.UINT8, ())
        dynamic = Node("DynamicQuantizeLinear", [self.reads[0]], [levels, scale, zero], version=_DYNAMIC_VERSION)
        bytes_type = TensorType(DType.UINT8, x.shape)
        before = DynamicQuantize(dynamic, (self.reads[0],), (x,), bytes_type, takes_epilogue=False)
        view = _InputWeights(self, workspace, tile)
        kinds, names, root = ["scalar", "column"], [scale, view.scales], k.cast(k.input(0, DType.INT32, ()), DType.FLOAT)
        root = root * (k.input(1, DType.FLOAT, ()) * k.input(2, DType.FLOAT, ()))
        bias = self._bias(workspace, tile)
        if bias:
            kinds, names, root = [*kinds, "column"], [*names, bias], root + k.input(3, DType.FLOAT, ())
        epilogue = Epilogue(root, tuple(kinds), (DType.FLOAT,) * len(kinds))
        operands = [FusedOperand(name, kind, DType.FLOAT) for name, kind in zip(names, kinds, strict=True)]
        product = ByteMatMul(
            self.node, (levels, view.numbers, zero, view.zeros), (bytes_type, TensorType(view.dtype, (layer.depth, columns))),
            TensorType(DType.FLOAT, (*x.shape[:2], columns)), a_zero=Zero(read=2, dtype=DType.UINT8),
            b_zero=Zero(read=3, kind="column", dtype=view.dtype),
        )  # fmt: skip
        return [
            *before.steps(target, workspace, None, (), levels),
            *product.steps(target, view, epilogue, operands, products),
        ]

    def _packed_key(self, tile: Tile) -> str:
        return f"{super()._packed_key(tile)}b{self.factors[2]} {self.factors[3]}"

    def _packed(self, workspace: Workspace, tile: Tile) -> np.ndarray:
        """R for the kernel."""
        numbers = workspace.array(self.weights[1])
        assert numbers is not None
        lift = LIFT if numbers.dtype == np.uint8 else 0
        scales, zeros = (self._by_column(workspace, name, numbers) for name in self.factors[2:])
        signed = (numbers.astype(np.int16) - lift).astype(np.int8)
        lifted, gates = zeros.astype(np.float32) - np.float32(lift), GATES[self.spec.cell]
        numbers, scales, zeros = (rnn_arguments.arrange(part, gates, tile) for part in (signed, scales, lifted))
        return pack_byte_weights(numbers, scales, zeros, tile)


class _InputWeights:
    """A workspace in which W, its scales and zero points have the columns that the walk reads, of all directions."""

    def __init__(self, made: QuantizedRecurrent, workspace: Workspace, tile: Tile) -> None:
        self._made, self._workspace, self._tile = made, workspace, tile
        w, (scale, zero, *_) = made.weights[0], made.factors
        key = f"{w}%arranged{tile.width} {scale} {zero}"
        self.numbers, self.zeros = f"{key}%numbers", f"{key}%zeros"
        self.scales = workspace.add(w, f"scales{tile.width} {scale}", lambda: self._arranged(scale))
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
        rows = self._made._by_column(self._workspace, name, self._given)
        return rnn_arguments.arrange(rows, GATES[self._made.spec.cell], self._tile).reshape(-1)

    def is_constant(self, name: str) -> bool:
        return name in self._arrays or self._workspace.is_constant(name)

    def array(self, name: str) -> np.ndarray | None:
        made = self._arrays.get(name)
        return made() if made is not None else self._workspace.array(name)

    def original_type(self, name: str) -> DType | None:
        return self._workspace.original_type(name)

    def add(self, name: str, key: str, make: Callable[[], np.ndarray]) -> str:
        return self._workspace.add(name, key, make)

    def temporary(self, name: str, dtype: DType, shape: Sequence[Dim]) -> str:
        return self._workspace.temporary(name, dtype, shape)
