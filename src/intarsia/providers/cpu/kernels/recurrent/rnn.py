"""LSTM, GRU and RNN: a matrix product for all inputs and a kernel that walks the sequence, and the schedules of both."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from intarsia.codegen.llvm.target import Target
from intarsia.graph.dims import Dim, Expr, number_of
from intarsia.graph.dtypes import DType
from intarsia.graph.model import Node
from intarsia.lazy_dataclass import dataclass
from intarsia.ops.nn.recurrent import resolve_activations
from intarsia.plan.step import Step
from intarsia.primitives import lang as k
from intarsia.primitives.activations import ACTIVATIONS
from intarsia.providers.cpu.kernels.common.epilogue import Epilogue
from intarsia.providers.cpu.kernels.common.packing import Layout, Packing
from intarsia.providers.cpu.kernels.common.panels import aligned_zeros, pack_matrix
from intarsia.providers.cpu.kernels.common.schedule import KernelRequest, Schedule, choose
from intarsia.providers.cpu.kernels.common.template import FusedOperand, Template, Workspace
from intarsia.providers.cpu.kernels.common.tensor_spec import TensorSpec, operand_specs, spec_of
from intarsia.providers.cpu.kernels.common.tiles import Tile, tile_of
from intarsia.providers.cpu.kernels.recurrent import rnn_arguments
from intarsia.providers.cpu.kernels.recurrent.rnn_arguments import GATES, RecurrentSpec
from intarsia.providers.cpu.kernels.recurrent.rnn_inputs_int8 import ByteInputsBefore
from intarsia.providers.cpu.kernels.recurrent.rnn_layer import InputProducts, Layer
from intarsia.providers.cpu.kernels.recurrent.rnn_schedules import InputsBefore, InputsBeside

if TYPE_CHECKING:
    from intarsia.ops.framework.infer import Inference

SCHEDULES: tuple[Schedule[Recurrent], ...] = (
    InputsBeside("inputs-beside"),
    InputsBefore("inputs-dynamic-strassen", dynamic=True, strassen=True),
    InputsBefore("inputs-dynamic", dynamic=True),
    InputsBefore("inputs-before-strassen", strassen=True),
    InputsBefore("inputs-before"),
    ByteInputsBefore("inputs-before-int8"),
)  # in the order of preference; of the last two, one takes every layer

_DTYPES = (DType.FLOAT, DType.DOUBLE)
_DEFAULT = {"LSTM": ("Sigmoid", "Tanh", "Tanh"), "GRU": ("Sigmoid", "Tanh"), "RNN": ("Tanh",)}
_X, _W, _R, _B, _LENGTHS, _INITIAL_H, _INITIAL_C, _P = range(8)


def recurrent_layer(node: Node, inference: Inference) -> Template | None:
    """A layer of float or double whose weights are constants and whose directions have the same activations."""
    types = (*operand_specs(node, inference), *[None] * 8)[:8]
    names = (*node.inputs, *[""] * 8)[:8]
    constants = inference.graph.constants
    if any(name and name not in constants for name in (names[_W], names[_R])):
        return None
    found = parts_of(node, names, types, inference)
    if found is None:
        return None
    made = Recurrent(node, found.reads, types, found.output, takes_epilogue=False, spec=found.spec, weights=found.weights)
    return made if made.fits() else None


class Parts(NamedTuple):
    """Operands of a layer's template: buffers of X, sequence_lens, initial_h, initial_c; constants W, R, B, P."""

    spec: RecurrentSpec
    reads: tuple[str, ...]
    weights: tuple[str, ...]
    output: TensorSpec


def parts_of(
    node: Node, names: Sequence[str], types: Sequence[TensorSpec | None], inference: Inference
) -> Parts | None:  # fmt: skip
    """Of a node whose eight inputs, in LSTM's order, have these types; None where the kernel does not take them."""
    x = types[_X]
    out = spec_of(inference.types.get(next(n for n in node.outputs if n)))
    if x is None or len(x.shape) != 3 or x.dtype not in _DTYPES or out is None:
        return None
    if any(name and name not in inference.graph.constants for name in (names[_B], names[_P])):
        return None
    if any(name and kind is None for name, kind in zip(names, types, strict=False)):
        return None
    spec = _spec(node, x.dtype, bool(names[_P]))
    if spec is None or any(spec_of(inference.types.get(n)) is None for n in node.outputs if n):
        return None
    reads = tuple(names[i] for i in (_X, _LENGTHS, _INITIAL_H, _INITIAL_C))
    return Parts(spec, reads, tuple(names[i] for i in (_W, _R, _B, _P)), out)


def _spec(node: Node, dtype: DType, peepholes: bool) -> RecurrentSpec | None:
    """Compile-time parameters of the kernel; None for attributes that only the definition has."""
    a = node.attributes
    if a.get("direction", "forward") not in ("forward", "reverse", "bidirectional"):
        return None
    cell = node.op_type.removeprefix("DynamicQuantize")
    directions = 2 if a.get("direction") == "bidirectional" else 1
    try:
        chosen = resolve_activations(
            a.get("activations"),
            a.get("activation_alpha"),
            a.get("activation_beta"),
            _DEFAULT[cell],
            directions,
        )
    except k.DefinitionError:
        return None
    if any(row != chosen[0] for row in chosen) or any(name.lower() not in ACTIVATIONS for name, _, _ in chosen[0]):
        return None
    lstm = cell == "LSTM"
    return RecurrentSpec(
        cell, tuple(chosen[0]), dtype, a.get("clip") or None, peepholes and lstm,
        bool(a.get("input_forget", 0)) and lstm, bool(a.get("linear_before_reset", 0)) and node.op_type == "GRU",
    )  # fmt: skip


@dataclass(frozen=True)
class Recurrent(Template):
    """A layer; `reads` are X, sequence_lens, initial_h, initial_c and `weights` W, R, B, P ("" where omitted).

    Attributes:
        factors: of weights that are stored as bytes, W's scale and zero point, and R's.
    """

    spec: RecurrentSpec = field(kw_only=True)
    weights: tuple[str, ...] = field(kw_only=True)
    factors: tuple[str, ...] = field(default=(), kw_only=True)

    @property
    def outputs(self) -> tuple[str, ...]:
        return tuple(n for n in self.node.outputs if n)

    def equal_sizes(self) -> Sequence[tuple[Dim, Dim]]:
        """Pairs of the operands' sizes as ONNX has them."""
        shapes = [t.shape if t is not None else None for t in self.types]
        x, r = self.operand(_X).shape, self.operand(_R).shape
        batch_first = bool(self.node.attributes.get("layout", 0))
        batch = x[0] if batch_first else x[1]
        gates, hidden = GATES[self.spec.cell], r[2]
        directions = 2 if self.node.attributes.get("direction") == "bidirectional" else 1
        state: tuple[Dim, ...] = (batch, directions, hidden) if batch_first else (directions, batch, hidden)
        expected: dict[int, tuple[Dim, ...]] = {
            _W: (directions, gates * hidden, x[2]), _R: (directions, gates * hidden, hidden),
            _B: (directions, 2 * gates * hidden), _LENGTHS: (batch,), _INITIAL_H: state, _INITIAL_C: state,
            _P: (directions, 3 * hidden),
        }  # fmt: skip
        pairs: list[tuple[Dim, Dim]] = [(hidden, int(self.node.attributes.get("hidden_size", r[2])))]
        for index, wanted in expected.items():
            have = shapes[index]
            if have is not None:
                pairs += zip(have, wanted, strict=True)
        return pairs

    def fits(self) -> bool:
        """Whether ranks, and sizes where they are numbers, are as they must be."""
        a = self.node.attributes
        if a.get("layout", 0) not in (0, 1) or not (a.get("clip") or 0.0) >= 0:
            return False
        ranks = {_W: 3, _R: 3, _B: 2, _LENGTHS: 1, _INITIAL_H: 3, _INITIAL_C: 3, _P: 2}
        shapes = [t.shape if t is not None else None for t in self.types]
        if any(shape is not None and len(shape) != ranks.get(i, len(shape)) for i, shape in enumerate(shapes)):
            return False
        return all(a == b or isinstance(a, Expr) or isinstance(b, Expr) for a, b in self.equal_sizes())

    @property
    def _batch_first(self) -> bool:
        return bool(self.node.attributes.get("layout", 0))

    @property
    def extents(self) -> tuple[Dim, Dim]:
        """Steps of the sequence, and rows of the batch."""
        first, second, _ = self.operand(_X).shape
        return (second, first) if self._batch_first else (first, second)

    @property
    def directions(self) -> int:
        return number_of(self.operand(_R).shape[0])

    @property
    def hidden(self) -> int:
        return number_of(self.operand(_R).shape[2])

    @property
    def depth(self) -> int:
        """Columns of X."""
        return number_of(self.operand(_W).shape[2])

    def columns(self, target: Target) -> int:
        """Columns of the input products of all directions."""
        return self.directions * rnn_arguments.columns_of(self.hidden, GATES[self.spec.cell], tile_of(self.spec.dtype, target))

    def layer(self, target: Target, inputs: InputProducts) -> Layer:
        """Sizes and options by which its work is divided; `inputs`: when input products are computed."""
        reverse = self.node.attributes.get("direction") == "reverse"
        return Layer(
            self.spec, target, self.extents, self.depth, self.hidden, self.directions, reverse, self._batch_first, inputs
        )

    def schedule_table(self) -> tuple[Schedule[Recurrent], ...]:
        return SCHEDULES

    def steps(
        self, target: Target, workspace: Workspace, epilogue: Epilogue | None, operands: Sequence[FusedOperand], out: str
    ) -> list[Step]:
        request = KernelRequest(target, workspace, epilogue, tuple(operands), out)
        return choose(self, request.env).steps(self, request)

    def input_panels(self, workspace: Workspace, tile: Tile, panel: Tile | None = None) -> str:
        """W for the product of all inputs, in panels of a tile (default: those that R has)."""
        panel = panel or tile
        packing = Packing(Layout.RNN_INPUTS, panel.width, view=self.arranged(tile))
        return workspace.add(self.weights[0], packing, lambda: pack_matrix(self.input_matrix(workspace, tile), panel))

    def arranged(self, tile: Tile) -> tuple[int, int]:
        """What the order of the columns of W and R follows from: the gates, and the columns of a tile."""
        return GATES[self.spec.cell], tile.width

    def input_matrix(self, workspace: Workspace, tile: Tile) -> np.ndarray:
        """W as the matrix of the product of all inputs."""
        w = workspace.array(self.weights[0])
        assert w is not None
        return rnn_arguments.input_matrix(w, GATES[self.spec.cell], tile)

    def bias(self, workspace: Workspace, tile: Tile) -> str:
        """The bias of the input products, "" where there is none: both biases, but the one inside a GRU's reset gate."""
        b = workspace.array(self.weights[2]) if self.weights[2] else None
        if b is None:
            return ""
        gates, inner = GATES[self.spec.cell], self.spec.linear_before_reset

        def make() -> np.ndarray:
            half = b.shape[1] // 2
            hidden = half // gates
            total = b[:, :half].copy()
            both = half - hidden if inner else half
            total[:, :both] += b[:, half : half + both]
            return rnn_arguments.arrange(total, gates, tile).reshape(-1)

        return workspace.add(self.weights[2], Packing(Layout.RNN_BIAS, tile.lanes, view=(gates, inner)), make)

    def gate_terms(self, workspace: Workspace, tile: Tile) -> str:
        """Peepholes, or the bias inside a GRU's reset gate; "" where there is neither."""
        spec, hidden = self.spec, self.hidden
        if spec.peepholes:
            p = workspace.array(self.weights[3])
            assert p is not None
            packing = Packing(Layout.RNN_PEEPHOLES, tile.lanes)
            return workspace.add(self.weights[3], packing, lambda: rnn_arguments.arrange(p, 3, tile))
        if not spec.linear_before_reset:
            return ""
        b = workspace.array(self.weights[2]) if self.weights[2] else None
        width = rnn_arguments.columns_of(hidden, 1, tile)
        if b is None:
            packing = Packing(Layout.ZEROS, width, spec.dtype, view=self.directions)
            return workspace.add("", packing, lambda: aligned_zeros((self.directions, width), spec.dtype.numpy))
        packing = Packing(Layout.RNN_INNER_BIAS, tile.lanes)
        return workspace.add(self.weights[2], packing, lambda: rnn_arguments.arrange(b[:, 5 * hidden :], 1, tile))

    def recurrent_panels(self, workspace: Workspace, tile: Tile) -> str:
        """R for the kernel."""
        return workspace.add(self.weights[1], self._packing(tile), lambda: self._packed(workspace, tile))

    def _packed(self, workspace: Workspace, tile: Tile) -> np.ndarray:
        """R for the kernel."""
        r = workspace.array(self.weights[1])
        assert r is not None
        return rnn_arguments.pack_recurrent(r, self.spec, tile)

    def _packing(self, tile: Tile) -> Packing:
        return Packing(Layout.RNN_RECURRENT, tile.width, view=(GATES[self.spec.cell], self.spec.reset_first))

    def no_bias(self, workspace: Workspace, target: Target) -> str:
        """Zeros instead of the biases of the input products."""
        columns = self.columns(target)
        packing = Packing(Layout.ZEROS, columns, self.spec.dtype)
        return workspace.add("", packing, lambda: aligned_zeros((columns,), self.spec.dtype.numpy))
