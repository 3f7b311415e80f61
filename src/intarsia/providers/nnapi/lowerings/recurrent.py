"""LSTM and RNN by NNAPI's sequences of cells; GRU, of which it has none, step by step."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from intarsia.graph.model import Node
from intarsia.lazy_dataclass import dataclass
from intarsia.providers.nnapi.expressions import (
    added,
    binary,
    clipped,
    concatenated,
    gathered,
    part,
    plus,
    product,
    split,
    times,
    transposed,
    unary,
)
from intarsia.providers.nnapi.lowerings.elementwise import Lowering, need_real
from intarsia.providers.nnapi.operands import OperandType, Tensor
from intarsia.providers.nnapi.writer import Writer
from intarsia.providers.vendor.translator import Untranslatable

_ACTIVATIONS = {"relu": 1, "tanh": 4, "sigmoid": 6}
"""Activations of recurrent cells, as NNAPI numbers them."""
_MOST_STEPS = 128
"""Of a GRU that is written step by step."""


@dataclass(frozen=True)
class Direction:
    """One direction of a recurrent node, as operands; the first states are [batch, hidden].

    Attributes:
        x: [time, batch, size], reversed in time where the direction is.
        w: [gates * hidden, size].
        r: [gates * hidden, hidden].
        biases: of the input and of the state, [gates * hidden]; None: 0.
        peepholes: [3 * hidden], or None.
    """

    x: Tensor
    w: Tensor
    r: Tensor
    biases: tuple[Tensor, Tensor] | None
    h: Tensor
    c: Tensor | None
    peepholes: Tensor | None
    reverse: bool
    activations: tuple[str, ...]

    @property
    def hidden(self) -> int:
        return self.r.dims[1]

    def gate(self, w: Writer, x: Tensor, index: int) -> Tensor:
        """Rows of one gate."""
        return part(w, x, 0, index * self.hidden, self.hidden)

    def bias(self, w: Writer, index: int) -> Tensor:
        """The sum of both biases of one gate."""
        if self.biases is None:
            return w.constant(np.zeros(self.hidden, self.x.kind.numpy))
        return added(w, *(self.gate(w, b, index) for b in self.biases))


def _directions(w: Writer, node: Node, gates: int, activations: Sequence[str]) -> list[Direction]:
    need_real(w, node)
    weights, recurrent = (w.value(node.inputs[i]) for i in (1, 2))
    count, hidden = weights.dims[0], recurrent.dims[2]
    batch_first = bool(node.attributes.get("layout", 0))
    x = w.value(node.inputs[0])
    if batch_first:
        x = transposed(w, x, (1, 0, 2))
    steps, batch, size = x.dims
    _check_lengths(w, node, steps)
    names = _names(node, activations, count)
    way = node.attributes.get("direction", "forward")
    way = way.decode() if isinstance(way, bytes) else way

    def of(index: int, d: int, *dims: int) -> Tensor | None:
        return w.reshaped(part(w, w.value(node.inputs[index]), 0, d, 1), dims) if _given(node, index) else None

    found = []
    for d in range(count):
        reverse = way == "reverse" or d == 1
        states = [_state(w, node, i, d, batch_first, OperandType(x.kind, (batch, hidden))) for i in (5, 6)]
        bias = of(3, d, 2 * gates * hidden)
        biases = None
        if bias is not None:
            biases = part(w, bias, 0, 0, gates * hidden), part(w, bias, 0, gates * hidden, gates * hidden)
        own, again = of(1, d, gates * hidden, size), of(2, d, gates * hidden, hidden)
        assert own is not None and again is not None
        source = _reversed(w, x) if reverse else x
        cell = states[1] if node.op_type == "LSTM" else None
        found.append(Direction(source, own, again, biases, states[0], cell, of(7, d, 3 * hidden), reverse, names[d]))
    return found


def _given(node: Node, index: int) -> bool:
    return len(node.inputs) > index and node.inputs[index] != ""


def _check_lengths(w: Writer, node: Node, steps: int) -> None:
    if _given(node, 4) and any(n != steps for n in w.ints(node.inputs[4], "the lengths of sequences")):
        raise Untranslatable("NNAPI has no sequences of several lengths")
    if node.op_type == "LSTM" and node.attributes.get("input_forget", 0):
        raise Untranslatable("NNAPI couples no input and forget gates of separate weights")
    if node.attributes.get("activation_alpha") or node.attributes.get("activation_beta"):
        raise Untranslatable("NNAPI's recurrent cells have no activations with parameters")


def _names(node: Node, defaults: Sequence[str], count: int) -> list[tuple[str, ...]]:
    given = node.attributes.get("activations") or list(defaults) * count
    names = [(n.decode() if isinstance(n, bytes) else n).lower() for n in given]
    each = len(names) // count
    return [tuple(names[d * each : (d + 1) * each]) for d in range(count)]


def _state(w: Writer, node: Node, index: int, direction: int, batch_first: bool, kind: OperandType) -> Tensor:
    if not _given(node, index):
        return w.constant(np.zeros(kind.dims, kind.kind.numpy))
    x = w.value(node.inputs[index])
    axis = 1 if batch_first else 0
    if x.dims[axis] > 1:
        x = part(w, x, axis, direction, 1)
    return w.reshaped(x, kind.dims)


def _reversed(w: Writer, x: Tensor) -> Tensor:
    return gathered(w, x, 0, w.vector(list(range(x.dims[0]))[::-1]))


def _write(w: Writer, node: Node, found: Sequence[tuple[Direction, Tensor, Tensor | None]]) -> None:
    """The outputs, of each direction's results [time, batch, hidden] and last cell states [batch, hidden]."""
    batch_first = bool(node.attributes.get("layout", 0))
    names = [*node.outputs, "", ""][:3]
    if names[0]:
        rows = []
        for direction, y, _ in found:
            ordered = _reversed(w, y) if direction.reverse else y
            steps, batch, hidden = ordered.dims
            rows.append(w.reshaped(ordered, (steps, 1, batch, hidden)))
        whole = concatenated(w, rows, 1)
        w.set(names[0], transposed(w, whole, (2, 0, 1, 3)) if batch_first else whole)
    last = [_last(w, y) for _, y, _ in found] if names[1] else []
    for name, states in ((names[1], last), (names[2], [c for *_, c in found])):
        if not name:
            continue
        lifted = [w.reshaped(s, (1, *s.dims)) for s in states if s is not None]
        whole = concatenated(w, lifted, 0)
        w.set(name, transposed(w, whole, (1, 0, 2)) if batch_first else whole)


def _last(w: Writer, y: Tensor) -> Tensor:
    steps, batch, hidden = y.dims
    return w.reshaped(y if steps == 1 else part(w, y, 0, steps - 1, 1), (batch, hidden))


def _lstm(w: Writer, node: Node) -> None:
    """ONNX orders gates input, output, forget, cell; NNAPI input, forget, cell, output."""
    found = []
    for d in _directions(w, node, 4, ("Sigmoid", "Tanh", "Tanh")):
        if d.activations != ("sigmoid", "tanh", "tanh") or d.c is None:
            raise Untranslatable(f"NNAPI's LSTM has the activations sigmoid and tanh, not {', '.join(d.activations)}")
        if w.target.level < 30 and len(node.outputs) > 2 and node.outputs[2]:
            raise Untranslatable("NNAPI gives the last cell state from feature level 30 on", "no-kernel")
        steps, batch, _ = d.x.dims
        hidden = d.hidden
        order = (0, 2, 3, 1)
        kind = OperandType(d.x.kind, (hidden, hidden))
        peepholes = [w.omitted(kind.of((hidden,))) for _ in range(3)]
        if d.peepholes is not None:
            peepholes = [d.gate(w, d.peepholes, i) for i in (0, 2, 1)]
        given = [
            d.x,
            *(d.gate(w, d.w, g) for g in order),
            *(d.gate(w, d.r, g) for g in order),
            *peepholes,
            *(d.bias(w, g) for g in order),
            w.omitted(kind), w.omitted(kind.of((hidden,))),
            d.h, d.c, w.int32(_ACTIVATIONS["tanh"]),
            w.number(d.x, 0.0), w.number(d.x, 0.0), w.boolean(True),
            *(w.omitted(kind.of((hidden,))) for _ in range(4)),
        ]  # fmt: skip
        if node.attributes.get("clip"):
            raise Untranslatable("NNAPI clips cell states, ONNX what goes into activations")
        results = [OperandType(d.x.kind, (steps, batch, hidden))]
        if w.target.level >= 30:
            results += [OperandType(d.x.kind, (batch, hidden))] * 2
        made = w.calls("UNIDIRECTIONAL_SEQUENCE_LSTM", given, results)
        found.append((d, made[0], made[2] if len(made) > 2 else None))
    _write(w, node, found)


def _rnn(w: Writer, node: Node) -> None:
    found: list[tuple[Direction, Tensor, Tensor | None]] = []
    for d in _directions(w, node, 1, ("Tanh",)):
        if d.activations[0] not in _ACTIVATIONS or node.attributes.get("clip"):
            raise Untranslatable(f"NNAPI's RNN has no activation {d.activations[0]}, and does not clip")
        steps, batch, _ = d.x.dims
        given = [d.x, d.w, d.r, d.bias(w, 0), d.h, w.int32(_ACTIVATIONS[d.activations[0]]), w.int32(1)]
        made = w.call("UNIDIRECTIONAL_SEQUENCE_RNN", given, OperandType(d.x.kind, (steps, batch, d.hidden)))
        found.append((d, made, None))
    _write(w, node, found)


def _gru(w: Writer, node: Node) -> None:
    """Gates in the order update, reset, hidden."""
    found: list[tuple[Direction, Tensor, Tensor | None]] = []
    for d in _directions(w, node, 3, ("Sigmoid", "Tanh")):
        if d.activations != ("sigmoid", "tanh"):
            raise Untranslatable(f"GRU with the activations {', '.join(d.activations)}")
        steps = d.x.dims[0]
        if steps > _MOST_STEPS:
            raise Untranslatable(f"NNAPI has no GRU, and {steps} steps are too many to be written one by one")
        found.append((d, _gru_steps(w, node, d), None))
    _write(w, node, found)


def _gru_steps(w: Writer, node: Node, d: Direction) -> Tensor:
    """One state [1, batch, hidden] for each step."""
    steps, batch, _ = d.x.dims
    linear = bool(node.attributes.get("linear_before_reset", 0))
    limit = float(node.attributes.get("clip", 0.0))
    nothing = w.constant(np.zeros(d.hidden, d.x.kind.numpy))
    input_bias, state_bias = d.biases or (None, None)
    last = nothing if input_bias is None else d.gate(w, input_bias, 2)
    candidate_bias = nothing if state_bias is None else d.gate(w, state_bias, 2)
    biases = [d.bias(w, 0), d.bias(w, 1), last if linear else d.bias(w, 2)]

    def bounded(x: Tensor) -> Tensor:
        return clipped(w, x, -limit, limit) if limit else x

    inputs = [product(w, d.x, d.gate(w, d.w, g), biases[g]) for g in range(3)]
    pieces = [split(w, x, 0, steps) for x in inputs]
    recurrent = [d.gate(w, d.r, g) for g in range(3)]
    h, rows = d.h, []
    for update, reset, new in zip(*pieces, strict=True):
        z_again, r_again = (product(w, h, own, None) for own in recurrent[:2])
        z = unary(w, "LOGISTIC", bounded(binary(w, "ADD", update, z_again)))
        r = unary(w, "LOGISTIC", bounded(binary(w, "ADD", reset, r_again)))
        if linear:
            again = binary(w, "MUL", r, product(w, h, recurrent[2], candidate_bias))
        else:
            again = product(w, binary(w, "MUL", r, h), recurrent[2], None)
        n = unary(w, "TANH", bounded(binary(w, "ADD", new, again)))
        complement = plus(w, times(w, z, -1.0), 1.0)
        h = binary(w, "ADD", binary(w, "MUL", complement, n), binary(w, "MUL", z, h))
        rows.append(w.reshaped(h, (1, batch, d.hidden)))
    return concatenated(w, rows, 0)


LOWERINGS: dict[str, Lowering] = {"LSTM": _lstm, "RNN": _rnn, "GRU": _gru}
