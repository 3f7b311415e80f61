"""LSTM and GRU of constant weights: the products of all inputs, then the kernel that walks the sequence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from intarsia.graph.dtypes import DType
from intarsia.graph.model import Node
from intarsia.plan.argument_tables import Spread, Table
from intarsia.plan.array_address import address_of
from intarsia.providers.cpu.first_tier import kernel_specs
from intarsia.providers.cpu.first_tier.kernel_calls import Fast, KernelCalls, aligned, claims, is_float32, new
from intarsia.providers.cpu.first_tier.products import Product
from intarsia.providers.cpu.kernels.common.tiles import tile_of
from intarsia.providers.cpu.kernels.recurrent import rnn_arguments
from intarsia.providers.cpu.kernels.recurrent.rnn_arguments import GATES, RecurrentShape

_FLOAT = DType.FLOAT
_DIRECTIONS = {"forward": 1, "reverse": 1, "bidirectional": 2}
_LENGTHS, _PEEPHOLES = 4, 7  # places of inputs that are the reference's
# Attributes that are taken, and what others are where they say nothing.
_TAKEN = frozenset(("direction", "hidden_size", "layout", "linear_before_reset"))
_NEUTRAL = {"clip": 0.0, "input_forget": 0}


def recurrent(node: Node, constants: Mapping[str, np.ndarray], calls: KernelCalls) -> Fast | None:
    """With the usual activations, sequences of one length, and constant weights."""
    inputs = [*node.inputs, *[""] * 8][:8]
    if node.version < 7 or inputs[_LENGTHS] or inputs[_PEEPHOLES] or not _is_usual(node):
        return None
    w, r, b = (constants.get(name) if name else None for name in inputs[1:4])
    direction = node.attributes.get("direction", "forward")
    if w is None or r is None or (inputs[3] and b is None) or direction not in _DIRECTIONS or not is_float32(w, r):
        return None
    layer = _Layer(node, calls, w, r)
    if not layer.fits(w, r, b):
        return None
    return layer.function(w, r, b)


def _is_usual(node: Node) -> bool:
    """Whether its attributes are those of the kernel."""
    usual = kernel_specs.recurrent_activations(node.op_type)
    for name, value in node.attributes.items():
        if name == "activations":
            names = [n.decode() if isinstance(n, bytes) else n for n in value]
            if names != list(usual) * (len(names) // len(usual)):
                return False
        elif name not in _TAKEN and _NEUTRAL.get(name) != value:
            return False
    return node.attributes.get("layout", 0) in (0, 1)


class _Layer:
    def __init__(self, node: Node, calls: KernelCalls, w: np.ndarray, r: np.ndarray) -> None:
        found = node.attributes
        inner = node.op_type == "GRU" and bool(found.get("linear_before_reset", 0))
        self.calls, self.cell, self.size = calls, node.op_type, found.get("hidden_size")
        self.name = kernel_specs.recurrent_name(node.op_type, inner)
        self.spec = kernel_specs.recurrent_spec(self.name)
        self.tile = tile_of(_FLOAT, calls.target)
        self.reverse, self.batch_first = found.get("direction") == "reverse", bool(found.get("layout", 0))
        self.directions = _DIRECTIONS[found.get("direction", "forward")]
        self.hidden, self.depth = (x.shape[2] if x.ndim == 3 else 0 for x in (r, w))

    def fits(self, w: np.ndarray, r: np.ndarray, b: np.ndarray | None) -> bool:
        """Whether weights have the sizes that they must have."""
        rows = GATES[self.cell] * self.hidden
        shapes = w.shape == (self.directions, rows, self.depth) and r.shape == (self.directions, rows, self.hidden)
        biased = b is None or (is_float32(b) and b.shape == (self.directions, 2 * rows))
        return self.hidden > 0 and shapes and biased and self.size in (None, self.hidden)

    def function(self, w: np.ndarray, r: np.ndarray, b: np.ndarray | None) -> Fast:
        """Packs the weights."""
        matrix = rnn_arguments.input_matrix(w, GATES[self.cell], self.tile)
        product = Product(self.calls, matrix, self._bias(b, matrix.shape[1]), transposed=False)
        panels, extra = rnn_arguments.pack_recurrent(r, self.spec, self.tile), self._inner_bias(b)

        def run(operands: Sequence[Any]) -> list[np.ndarray] | None:
            x, states = operands[0], [*operands[5:7], None, None][:2]
            if not is_float32(x) or x.ndim != 3 or x.shape[2] != self.depth:
                return None
            batch, seq = x.shape[:2] if self.batch_first else (x.shape[1], x.shape[0])
            state = (batch, self.directions, self.hidden) if self.batch_first else (self.directions, batch, self.hidden)
            if any(s is not None and (not is_float32(s) or s.shape != state) for s in states):
                return None
            begins = [np.ascontiguousarray(s) if s is not None else None for s in states]
            inputs = product(np.ascontiguousarray(x), seq * batch)
            order = (batch, seq, self.directions) if self.batch_first else (seq, self.directions, batch)
            y, ends = new((*order, self.hidden)), [new(state) for _ in range(rnn_arguments.STATES[self.cell])]
            sizes = RecurrentShape(seq, batch, self.hidden, self.directions, self.reverse, self.batch_first)
            calls, shared = self.calls, claims()
            each = rnn_arguments.scratch_nbytes(self.spec, calls.target, sizes, calls.threads)
            scratch = aligned(calls.threads * each)
            arguments = rnn_arguments.recurrent_args(
                self.spec, calls.target, sizes, calls.threads, micro=calls.addresses["micro"], x=address_of(inputs),
                weights=address_of(panels), taps=Table((Spread(0, ()),)), claims=address_of(shared),
                scratch=address_of(scratch), extra=address_of(extra) if extra is not None else 0, y=address_of(y),
                initial=[address_of(s) if s is not None else 0 for s in begins], finals=[address_of(s) for s in ends],
            )  # fmt: skip
            calls(self.name, arguments)
            return [y, *ends]

        return run

    def _bias(self, b: np.ndarray | None, columns: int) -> np.ndarray:
        """What is added to the input products: both biases, but the one inside a GRU's reset gate."""
        if b is None:
            return np.zeros(columns, np.float32)
        half = b.shape[1] // 2
        total, both = b[:, :half].copy(), half - self.hidden * self.spec.linear_before_reset
        total[:, :both] += b[:, half : half + both]
        return rnn_arguments.arrange(total, GATES[self.cell], self.tile).reshape(-1)

    def _inner_bias(self, b: np.ndarray | None) -> np.ndarray | None:
        """The bias inside a GRU's reset gate."""
        if not self.spec.linear_before_reset:
            return None
        if b is None:
            return np.zeros((self.directions, rnn_arguments.columns_of(self.hidden, 1, self.tile)), np.float32)
        return rnn_arguments.arrange(b[:, 5 * self.hidden :], 1, self.tile)
