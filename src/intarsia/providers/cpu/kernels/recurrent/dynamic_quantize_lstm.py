"""DynamicQuantizeLSTM: X quantised and multiplied as bytes, then the walk of `recurrent` over R in bytes, which quantises the
state in every step (`kernels.recurrent.rnn_row_product_int8`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from intarsia.graph.dtypes import DType
from intarsia.graph.model import Constant, Node
from intarsia.lazy_dataclass import dataclass
from intarsia.ops.framework.infer import Inference
from intarsia.providers.cpu.kernels.common.packing import Packing
from intarsia.providers.cpu.kernels.common.template import Template, Workspace
from intarsia.providers.cpu.kernels.common.tensor_spec import TensorSpec, operand_specs
from intarsia.providers.cpu.kernels.common.tiles import Tile
from intarsia.providers.cpu.kernels.matmul_int8.byte_weights import LIFT
from intarsia.providers.cpu.kernels.recurrent import rnn_arguments
from intarsia.providers.cpu.kernels.recurrent.rnn import Recurrent, parts_of
from intarsia.providers.cpu.kernels.recurrent.rnn_arguments import GATES
from intarsia.providers.cpu.kernels.recurrent.rnn_inputs_int8 import by_column
from intarsia.providers.cpu.kernels.recurrent.rnn_row_product_int8 import pack_byte_weights

_INPUTS = 12
_X, _W, _R = range(3)
_FACTORS = ((_W, 8, 9), (_R, 10, 11))  # numbers, scales and zero points of W and of R


def quantized_layer(node: Node, inference: Inference) -> Template | None:
    """A layer of float32 whose bytes, scales and zero points are constants."""
    if len(node.inputs) != _INPUTS:
        return None
    constants = inference.graph.constants
    parts = [tuple(constants.get(node.inputs[i]) for i in which) for which in _FACTORS]
    types = list(operand_specs(node, inference)[:8])
    x = types[_X]
    if x is None or x.dtype is not DType.FLOAT or not all(map(_fits, parts)):
        return None
    for at, (numbers, *_) in zip((_W, _R), parts, strict=True):
        assert numbers is not None
        directions, rows, columns = numbers.shape
        types[at] = TensorSpec(DType.FLOAT, (directions, columns, rows))  # as an LSTM's
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
    """A layer whose weights are stored as bytes."""

    def _packing(self, tile: Tile) -> Packing:
        packing = super()._packing(tile)
        return replace(packing, view=(packing.view, *self.factors[2:]))

    def _packed(self, workspace: Workspace, tile: Tile) -> np.ndarray:
        """R for the kernel."""
        numbers = workspace.array(self.weights[1])
        assert numbers is not None
        lift = LIFT if numbers.dtype == np.uint8 else 0
        scales, zeros = (by_column(workspace, name, numbers) for name in self.factors[2:])
        signed = (numbers.astype(np.int16) - lift).astype(np.int8)
        lifted, gates = zeros.astype(np.float32) - np.float32(lift), GATES[self.spec.cell]
        numbers, scales, zeros = (rnn_arguments.arrange(part, gates, tile) for part in (signed, scales, lifted))
        return pack_byte_weights(numbers, scales, zeros, tile)
