"""LSTM, GRU and RNN: one matrix product for all inputs, then one kernel that walks the sequence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from intarsia.codegen.llvm.target import Target
from intarsia.graph.dims import Dim, Expr, number_of, numbers_of
from intarsia.graph.dtypes import DType
from intarsia.graph.model import Node, TensorType
from intarsia.lazy_dataclass import dataclass
from intarsia.ops.nn.recurrent import resolve_activations
from intarsia.plan.executor_abi import SHARE_NBYTES
from intarsia.plan.step import CLAIMS, SCRATCH, STATUS, Address, Argument, Below, Code, Ref, Sizes, Step
from intarsia.primitives import lang as k
from intarsia.primitives.activations import ACTIVATIONS
from intarsia.providers.cpu.kernels.common.epilogue import Epilogue
from intarsia.providers.cpu.kernels.common.microkernel import Tile, micro_text, product_tile, tile_of
from intarsia.providers.cpu.kernels.common.pack_b import aligned_zeros, pack_matrix
from intarsia.providers.cpu.kernels.common.phased_threads import MOST_PARTS
from intarsia.providers.cpu.kernels.common.template import FusedOperand, Template, Workspace, tensor_types
from intarsia.providers.cpu.kernels.matmul import gemm_kernel
from intarsia.providers.cpu.kernels.matmul.strassen import may_pay, strassen_step
from intarsia.providers.cpu.kernels.recurrent import rnn_arguments
from intarsia.providers.cpu.kernels.recurrent.rnn_arguments import GATES, STATES, RecurrentShape, RecurrentSpec
from intarsia.providers.cpu.kernels.recurrent.rnn_kernel import kernel_text

if TYPE_CHECKING:
    from intarsia.ops.framework.infer import Inference

_DTYPES = (DType.FLOAT, DType.DOUBLE)
_DEFAULT = {"LSTM": ("Sigmoid", "Tanh", "Tanh"), "GRU": ("Sigmoid", "Tanh"), "RNN": ("Tanh",)}
_X, _W, _R, _B, _LENGTHS, _INITIAL_H, _INITIAL_C, _P = range(8)


def recurrent_layer(node: Node, inference: Inference) -> Template | None:
    """A layer of float or double whose weights are constants and whose directions have the same activations."""
    types = (*tensor_types(node, inference), *[None] * 8)[:8]
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
    """What a layer's template is made of: buffers of X, sequence_lens, initial_h, initial_c; constants W, R, B, P."""

    spec: RecurrentSpec
    reads: tuple[str, ...]
    weights: tuple[str, ...]
    output: TensorType


def parts_of(
    node: Node, names: Sequence[str], types: Sequence[TensorType | None], inference: Inference
) -> Parts | None:  # fmt: skip
    """Of a node whose eight inputs, in LSTM's order, have these types; None where the kernel does not take them."""
    x = types[_X]
    out = inference.types.get(next(n for n in node.outputs if n))
    if x is None or x.shape is None or len(x.shape) != 3 or x.dtype not in _DTYPES:
        return None
    if not isinstance(out, TensorType) or out.shape is None:
        return None
    if any(name and name not in inference.graph.constants for name in (names[_B], names[_P])):
        return None
    if any(name and (kind is None or kind.shape is None) for name, kind in zip(names, types, strict=False)):
        return None
    spec = _spec(node, x.dtype, bool(names[_P]))
    known = all(isinstance(n, TensorType) and n.shape is not None for n in map(inference.types.get, filter(None, node.outputs)))
    if spec is None or not known:
        return None
    reads = tuple(names[i] for i in (_X, _LENGTHS, _INITIAL_H, _INITIAL_C))
    return Parts(spec, reads, tuple(names[i] for i in (_W, _R, _B, _P)), out)


def _spec(node: Node, dtype: DType, peepholes: bool) -> RecurrentSpec | None:
    """What is compiled in, or None for attributes that only the definition has."""
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
    """A layer; `reads` are X, sequence_lens, initial_h, initial_c and `weights` W, R, B, P ("" where omitted)."""

    spec: RecurrentSpec = field(kw_only=True)
    weights: tuple[str, ...] = field(kw_only=True)

    @property
    def outputs(self) -> tuple[str, ...]:
        return tuple(n for n in self.node.outputs if n)

    def equal_sizes(self) -> Sequence[tuple[Dim, Dim]]:
        """Pairs of the operands' sizes as ONNX has them."""
        shapes = [t.shape if t is not None else None for t in self.types]
        x, w, r = shapes[_X], shapes[_W], shapes[_R]
        assert x is not None and w is not None and r is not None
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

    def steps(
        self, target: Target, workspace: Workspace, epilogue: Epilogue | None, operands: Sequence[FusedOperand], out: str
    ) -> list[Step]:
        spec, tile = self.spec, tile_of(self.spec.dtype, target)
        x, r = self.types[_X], self.types[_R]
        assert x is not None and x.shape is not None and r is not None and r.shape is not None
        directions, hidden = number_of(r.shape[0]), number_of(r.shape[2])
        columns = directions * rnn_arguments.columns_of(hidden, GATES[spec.cell], tile)
        layer = self._layer(target)
        if layer.always_computes():
            return [self._walk(target, workspace, layer, "")]
        products = workspace.temporary(f"{out}%products", spec.dtype, (x.shape[0], x.shape[1], columns))
        return [
            *self._project(target, workspace, layer, products, columns),
            self._walk(target, workspace, layer, products),
        ]

    def _input_panels(self, workspace: Workspace, tile: Tile, panel: Tile | None = None) -> str:
        """W for the product of all inputs, in panels of a tile (default: those that R has)."""
        key = f"recurrent{tile.width}x{GATES[self.spec.cell]}" + (f"by{panel.width}" if panel not in (None, tile) else "")
        return workspace.add(self.weights[0], key, lambda: pack_matrix(self._input_matrix(workspace, tile), panel or tile))

    def _input_matrix(self, workspace: Workspace, tile: Tile) -> np.ndarray:
        w = workspace.array(self.weights[0])
        assert w is not None
        return rnn_arguments.input_matrix(w, GATES[self.spec.cell], tile)

    def _project(self, target: Target, workspace: Workspace, layer: _Layer, products: str, columns: int) -> list[Step]:
        """X W^T + bias for all steps and directions."""
        spec, tile = self.spec, tile_of(self.spec.dtype, target)
        x = self.types[_X]
        assert x is not None and x.shape is not None
        zero = workspace.add("", "taps", lambda: np.zeros(1, np.int64))
        bias = self._bias(workspace, tile)
        accumulator = k.input(0, spec.dtype, ())
        epilogue = Epilogue(accumulator + k.input(1, spec.dtype, ()), ("column",), (spec.dtype,)) if bias else None
        seq, batch, depth = x.shape
        wide = tile if layer.may_compute() else product_tile(columns, spec.dtype, target)
        if spec.dtype is DType.FLOAT and may_pay(seq * batch, columns, layer.depth, target, workspace.options, wide):
            step = strassen_step(
                gemm_kernel.GemmSpec(spec.dtype, "packed", epilogue, tile=wide), target, workspace,
                [FusedOperand(bias, "column", spec.dtype)] if bias else [], products, source=self.reads[0],
                packed=self._input_panels(workspace, tile, wide), always=False,
                weights=(self.weights[0], f"recurrent{tile.width}", lambda: self._input_matrix(workspace, tile)),
                sizes=(seq * batch, columns, layer.depth), skipped=layer.computes if layer.may_compute() else None,
            )  # fmt: skip
            return [step]
        product, panels = gemm_kernel.GemmSpec(spec.dtype, "packed", epilogue), self._input_panels(workspace, tile)
        micro = micro_text(spec.dtype, target)
        names = (self.reads[0], panels, products, zero, bias)
        step = Step(
            gemm_kernel.kernel_text(product, target), (self.reads[0], panels, zero, *([bias] if bias else [])), (products,),
            partial(_input_products, product, layer, micro.symbol, names, (seq * batch, columns, depth)),
            serial=Below(seq * batch * depth * columns, 20_000), label=f"{spec.cell} inputs {depth}x{columns}", calls=(micro,),
        )  # fmt: skip
        return [step]

    def _bias(self, workspace: Workspace, tile: Tile) -> str:
        """The bias of the input products, "" where there is none: both biases, but the one inside a GRU's reset gate."""
        b = workspace.array(self.weights[2]) if self.weights[2] else None
        if b is None:
            return ""
        gates, inner = GATES[self.spec.cell], self.spec.linear_before_reset

        def make() -> np.ndarray:
            half = b.shape[1] // 2
            hidden = half // gates
            total = b[:, :half].copy()
            kept = half - hidden if inner else half
            total[:, :kept] += b[:, half : half + kept]
            return rnn_arguments.arrange(total, gates, tile).reshape(-1)

        return workspace.add(self.weights[2], f"recurrent{tile.lanes}x{gates}{'r' * inner}", make)

    def _extra(self, workspace: Workspace, tile: Tile, directions: int, hidden: int) -> str:
        """Peepholes, or the bias inside a GRU's reset gate."""
        spec = self.spec
        if spec.peepholes:
            p = workspace.array(self.weights[3])
            assert p is not None
            return workspace.add(self.weights[3], f"peepholes{tile.lanes}", lambda: rnn_arguments.arrange(p, 3, tile))
        if not spec.linear_before_reset:
            return ""
        b = workspace.array(self.weights[2]) if self.weights[2] else None
        width = rnn_arguments.columns_of(hidden, 1, tile)
        if b is None:
            key = f"zeros{directions}x{width}{spec.dtype.name}"
            return workspace.add("", key, lambda: aligned_zeros((directions, width), spec.dtype.numpy))
        return workspace.add(self.weights[2], f"inner{tile.lanes}", lambda: rnn_arguments.arrange(b[:, 5 * hidden :], 1, tile))

    def _packed(self, workspace: Workspace, tile: Tile) -> np.ndarray:
        """R for the kernel."""
        r = workspace.array(self.weights[1])
        assert r is not None
        return rnn_arguments.pack_recurrent(r, self.spec, tile)

    def _packed_key(self, tile: Tile) -> str:
        return f"recurrent{tile.width}x{GATES[self.spec.cell]}{'i' * self.spec.reset_first}"

    def _layer(self, target: Target) -> _Layer:
        (x, w, r), a = self.types[: _R + 1], self.node.attributes
        assert x is not None and x.shape is not None and w is not None and w.shape is not None
        assert r is not None and r.shape is not None
        batch_first = bool(a.get("layout", 0))
        seq, batch = (x.shape[1], x.shape[0]) if batch_first else x.shape[:2]
        directions, depth, hidden = numbers_of((r.shape[0], w.shape[2], r.shape[2]))
        reverse = a.get("direction") == "reverse"
        return _Layer(self.spec, target, (seq, batch), depth, hidden, directions, reverse, batch_first)

    def _walk(self, target: Target, workspace: Workspace, layer: _Layer, products: str) -> Step:
        """The kernel that walks the sequence; `products` is "" where it always computes them."""
        spec, tile = self.spec, tile_of(self.spec.dtype, target)
        packed = workspace.add(self.weights[1], self._packed_key(tile), lambda: self._packed(workspace, tile))
        zero = workspace.add("", "taps", lambda: np.zeros(1, np.int64))
        extra = self._extra(workspace, tile, layer.directions, layer.hidden)
        y, *finals = (*self.node.outputs, "", "", "")[: 1 + STATES[spec.cell]]
        x, lengths, *initial = self.reads
        inputs: tuple[str, ...] = ()
        if layer.may_compute():
            inputs = (x, self._input_panels(workspace, tile), self._bias(workspace, tile) or self._zeros(workspace, layer))
        micro = micro_text(spec.dtype, target)
        names = (products, packed, zero, extra, lengths, y)
        walk = _Walk(layer, micro.symbol, names, tuple(initial), tuple(finals), inputs)
        reads = (packed, zero, *(n for n in (products, extra, lengths, *initial, *inputs) if n))
        return Step(
            kernel_text(spec, target), reads, self.outputs, walk.arguments, scratch_nbytes=layer.scratch_nbytes,
            label=f"{spec.cell} {layer.hidden}", calls=(micro,), work=layer.work, pieces=rnn_arguments.PIECES,
            checked=bool(lengths),
        )  # fmt: skip

    def _zeros(self, workspace: Workspace, layer: _Layer) -> str:
        """In the place of biases."""
        tile = tile_of(self.spec.dtype, layer.target)
        columns = layer.directions * rnn_arguments.columns_of(layer.hidden, GATES[self.spec.cell], tile)
        key = f"zeros{columns}{self.spec.dtype.name}"
        return workspace.add("", key, lambda: aligned_zeros((columns,), self.spec.dtype.numpy))


@dataclass(frozen=True)
class _Layer:
    """What decides how a layer's work is cut: `extents` are steps and rows, `depth` the columns of X."""

    spec: RecurrentSpec
    target: Target
    extents: tuple[Dim, Dim]
    depth: int
    hidden: int
    directions: int
    reverse: bool
    batch_first: bool

    def shape(self, size: Sizes) -> RecurrentShape:
        seq, batch = self.extents
        return RecurrentShape(size(seq), size(batch), self.hidden, self.directions, self.reverse, self.batch_first)

    def may_compute(self) -> bool:
        """Whether `computes` is true for some sizes."""
        return rnn_arguments.may_compute_inputs(self.spec, self.target, self.hidden, self.depth, self.directions)

    def always_computes(self) -> bool:
        """Whether `computes` is true whatever the sizes, and however many threads there are."""
        seq, batch = self.extents
        if not (isinstance(seq, int) and batch == 1 and self.may_compute()):
            return False
        shape = RecurrentShape(seq, 1, self.hidden, self.directions, self.reverse, self.batch_first)
        return all(rnn_arguments.computes_inputs(self.spec, self.target, shape, n) for n in range(1, MOST_PARTS + 1))

    def computes(self, size: Sizes, threads: int) -> bool:
        """Whether input products are computed beside the steps, not before."""
        if self.always_computes():
            return True
        return self.may_compute() and rnn_arguments.computes_inputs(self.spec, self.target, self.shape(size), threads)

    def work(self, size: Sizes) -> float:
        """Each step reads R once for as many rows as a register tile has."""
        seq, batch = self.extents
        tile = tile_of(self.spec.dtype, self.target)
        weights_nbytes = GATES[self.spec.cell] * self.hidden**2 * tile.itemsize
        return size(seq) * self.directions * -(-size(batch) // tile.rows) * weights_nbytes / SHARE_NBYTES

    def scratch_nbytes(self, size: Sizes, threads: int) -> int:
        computes = self.computes(size, threads)
        return threads * rnn_arguments.scratch_nbytes(self.spec, self.target, self.shape(size), threads, computes=computes)


def _input_products(
    spec: gemm_kernel.GemmSpec, layer: _Layer, micro: str, names: tuple[str, ...], mnk: tuple[Dim, int, Dim],
    size: Sizes, threads: int,
) -> Sequence[Argument]:  # fmt: skip
    a, b, c, taps, bias = names
    m = 0 if layer.computes(size, threads) else size(mnk[0])
    return gemm_kernel.matrix_args(
        spec, layer.target, micro=Code(micro), a=Ref(a), b=Ref(b), c=Ref(c), m=m, n=mnk[1], k=size(mnk[2]),
        taps=Ref(taps), operands=[gemm_kernel.Operand(Ref(bias))] if bias else [],
    )  # fmt: skip


@dataclass(frozen=True)
class _Walk:
    """The arguments of the kernel that walks the sequence.

    Attributes:
        names: products, weights, taps, extra, lengths, Y.
        inputs: X, its weights and biases, where input products may be computed beside the steps; none where they never are.
    """

    layer: _Layer
    micro: str
    names: tuple[str, ...]
    initial: tuple[str, ...]
    finals: tuple[str, ...]
    inputs: tuple[str, ...]

    def arguments(self, size: Sizes, threads: int) -> Sequence[Argument]:
        layer, shape = self.layer, self.layer.shape(size)
        products, packed, taps, extra, lengths, y = (_place(n) for n in self.names)
        inputs = None
        if layer.computes(size, threads):
            x, weights, bias = (_place(n) for n in self.inputs)
            inputs = rnn_arguments.Inputs(x, weights, bias, layer.depth)
        return rnn_arguments.recurrent_args(
            layer.spec, layer.target, shape, threads, micro=Code(self.micro), x=products, weights=packed,
            taps=taps, scratch=Ref(SCRATCH), claims=Ref(CLAIMS), extra=extra, lengths=lengths,
            status=Ref(STATUS) if lengths else 0,
            initial=[_place(n) for n in self.initial], y=y, finals=[_place(n) for n in self.finals],
            inputs=inputs,
        )  # fmt: skip


def _place(name: str) -> Address:
    return Ref(name) if name else 0
