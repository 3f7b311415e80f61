"""LSTM, GRU and RNN: Core ML's lstm where it computes the same, else the steps, written one after the other or as a loop."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from intarsia.lazy_dataclass import dataclass
from intarsia.providers.coreml.node_builder import CARRIERS, FLOATS, MIL_NAMES, Handler, NodeBuilder, Var, shape_of

MOST_STEPS = 64
"""Longer sequences are a loop of the program: written out step by step it would be as long."""

Activation = Callable[[NodeBuilder, Var], Var]


@dataclass(frozen=True)
class Direction:
    """One direction of a recurrence: its number and whether it reads from the end."""

    index: int
    reverse: bool


def _directions(b: NodeBuilder) -> list[Direction]:
    return {
        "forward": [Direction(0, False)],
        "reverse": [Direction(0, True)],
        "bidirectional": [Direction(0, False), Direction(1, True)],
    }[b.attribute("direction", "forward")]


def _input(b: NodeBuilder) -> Var:
    """The data as [steps, batch, features]."""
    return b.mb.transpose(x=b.x(), perm=[1, 0, 2]) if b.attribute("layout", 0) else b.x()


def _checked(b: NodeBuilder) -> None:
    b.only(*FLOATS)
    if b.has(4):
        raise b.refuse("Core ML's recurrences take sequences of one length")


def _rows(b: NodeBuilder, index: int, direction: int) -> Var:
    """Row `direction` of an input's first axis (initial states with layout 1: of the second one)."""
    x = b.x(index)
    if isinstance(x, np.ndarray):
        return x[direction]
    shape = shape_of(x)
    begin = [direction, *(0,) * (len(shape) - 1)]
    piece = x if shape[0] == 1 else b.mb.slice_by_index(x=x, begin=begin, end=[direction + 1, *shape[1:]])
    return b.reshape(piece, shape[1:])


def _state(b: NodeBuilder, index: int, direction: int, hidden: int) -> Var:
    """The initial state [batch, hidden] of a direction; zeros where none is given."""
    layout = b.attribute("layout", 0)
    batch = b.shape()[0 if layout else 1]
    if not b.has(index):
        return np.zeros((batch, hidden), CARRIERS[b.dtype()])
    if layout:
        x = b.x(index)
        x = b.mb.transpose(x=x, perm=[1, 0, 2]) if not isinstance(x, np.ndarray) else x.transpose(1, 0, 2)
        if isinstance(x, np.ndarray):
            return x[direction]
        shape = shape_of(x)
        piece = b.mb.slice_by_index(x=x, begin=[direction, 0, 0], end=[direction + 1, *shape[1:]])
        return b.reshape(piece, shape[1:])
    return _rows(b, index, direction)


def _results(b: NodeBuilder, outputs: Sequence[Var], finals: Sequence[Sequence[Var]]) -> list[Var]:
    """Y of each direction ([steps, batch, hidden]) and final states ([batch, hidden]) as ONNX has them."""
    mb, layout = b.mb, b.attribute("layout", 0)
    y = mb.stack(values=list(outputs), axis=1)  # [steps, directions, batch, hidden]
    if layout:
        y = mb.transpose(x=y, perm=[2, 0, 1, 3])
    found = [y, *(mb.stack(values=list(states), axis=1 if layout else 0) for states in finals)]
    return found[: len(b.node.outputs)]


def _activations(b: NodeBuilder, default: Sequence[str], directions: int) -> list[list[Activation]]:
    """For each direction, its functions."""
    names = [n.decode() if isinstance(n, bytes) else n for n in b.attribute("activations") or [*default] * directions]
    alphas, betas = list(b.attribute("activation_alpha") or []), list(b.attribute("activation_beta") or [])
    made: list[Activation] = []
    for name in names:
        takes_alpha, takes_beta = _PARAMETERS.get(name, (None, None))
        alpha = takes_alpha if takes_alpha is None or not alphas else alphas.pop(0)
        beta = takes_beta if takes_beta is None or not betas else betas.pop(0)
        made.append(_activation(b, name, alpha, beta))
    each = len(default)
    return [made[i * each : (i + 1) * each] for i in range(directions)]


_PARAMETERS: Mapping[str, tuple[float | None, float | None]] = {
    "LeakyRelu": (0.01, None), "ThresholdedRelu": (1.0, None), "HardSigmoid": (0.2, 0.5), "Elu": (1.0, None),
    "ScaledTanh": (1.0, 1.0), "Affine": (1.0, 0.0),
}  # fmt: skip
"""Functions with parameters, and these' defaults."""


def _activation(b: NodeBuilder, name: str, alpha: float | None, beta: float | None) -> Activation:
    def number(value: float | None) -> Any:
        return b.number(value if value is not None else 0)

    table: Mapping[str, Activation] = {
        "Relu": lambda b, x: b.mb.relu(x=x),
        "Tanh": lambda b, x: b.mb.tanh(x=x),
        "Sigmoid": lambda b, x: b.mb.sigmoid(x=x),
        "LeakyRelu": lambda b, x: b.mb.leaky_relu(x=x, alpha=number(alpha)),
        "Elu": lambda b, x: b.mb.elu(x=x, alpha=number(alpha)),
        "Softsign": lambda b, x: b.mb.softsign(x=x),
        "Softplus": lambda b, x: b.mb.softplus(x=x),
        "HardSigmoid": lambda b, x: b.mb.minimum(
            x=b.mb.maximum(x=b.mb.add(x=b.mb.mul(x=x, y=number(alpha)), y=number(beta)), y=b.number(0)), y=b.number(1)
        ),
        "ScaledTanh": lambda b, x: b.mb.mul(x=b.mb.tanh(x=b.mb.mul(x=x, y=number(beta))), y=number(alpha)),
        "Affine": lambda b, x: b.mb.add(x=b.mb.mul(x=x, y=number(alpha)), y=number(beta)),
        "ThresholdedRelu": lambda b, x: b.mb.select(
            cond=b.mb.greater(x=x, y=number(alpha)), a=x, b=np.zeros(shape_of(x), CARRIERS[b.dtype()])
        ),
    }
    if name not in table:
        raise b.refuse(f"the activation {name!r} of recurrences is not translated")
    return table[name]


def _clipped(b: NodeBuilder, x: Var) -> Var:
    """Within [-clip, clip], where the attribute is given."""
    clip = float(b.attribute("clip", 0.0) or 0.0)
    if not clip:
        return x
    return b.mb.minimum(x=b.mb.maximum(x=x, y=b.number(-clip)), y=b.number(clip))


Step = Callable[[Var, Sequence[Var]], Sequence[Var]]
"""Products of the step's input ([batch, gates * hidden]) and the states so far -> the new states, the output first."""


def _recurrence(b: NodeBuilder, gates: int, states: Sequence[int], make: Callable[[NodeBuilder, Direction], Step]) -> list[Var]:
    """All directions, written out or as loops; `states` are the indices of the inputs with initial states."""
    mb, hidden = b.mb, int(b.attribute("hidden_size") or b.shape(2)[-1])
    x = _input(b)
    outputs, finals = [], []
    for direction in _directions(b):
        i = direction.index
        products = mb.matmul(x=x, y=_rows(b, 1, i), transpose_y=True)
        if b.has(3):
            bias = _rows(b, 3, i)
            first = bias[: gates * hidden] if isinstance(bias, np.ndarray) else _part(b, bias, 0, gates * hidden)
            products = mb.add(x=products, y=first)
        held = [_state(b, index, i, hidden) for index in states]
        run = _looped if shape_of(x)[0] > MOST_STEPS else _unrolled
        y, last = run(b, products, direction, held, make(b, direction))
        outputs.append(y)
        finals.append(last)
    return _results(b, outputs, [[held[k] for held in finals] for k in range(len(states))])


Run = tuple[Var, Sequence[Var]]
"""What a direction gives: its output at each step ([steps, batch, hidden]), and the last states."""


def _unrolled(b: NodeBuilder, products: Var, direction: Direction, held: Sequence[Var], step: Step) -> Run:
    """Step after step."""
    steps, batch, width = shape_of(products)
    rows = []
    for t in range(steps)[::-1] if direction.reverse else range(steps):
        row = b.mb.slice_by_index(x=products, begin=[t, 0, 0], end=[t + 1, batch, width])
        held = step(b.reshape(row, (batch, width)), held)
        rows.append(held[0])
    return b.mb.stack(values=rows[::-1] if direction.reverse else rows, axis=0), held


def _looped(b: NodeBuilder, products: Var, direction: Direction, held: Sequence[Var], step: Step) -> Run:
    """A loop that carries the step's number, a list of the outputs so far, and the states."""
    mb, carrier = b.mb, CARRIERS[b.dtype()]
    steps, batch, width = shape_of(products)
    hidden = shape_of(held[0])[-1]
    rows = mb.make_list(init_length=steps, dynamic_length=False, elem_shape=(batch, hidden), dtype=MIL_NAMES[carrier])

    def body(t: Var, rows: Var, *held: Var) -> list[Var]:
        at = mb.sub(x=np.int32(steps - 1), y=t) if direction.reverse else t
        row = mb.gather(x=products, indices=mb.expand_dims(x=at, axes=[0]), axis=0)
        found = step(b.reshape(row, (batch, width)), held)
        return [mb.add(x=t, y=np.int32(1)), mb.list_write(ls=rows, index=at, value=found[0]), *found]

    started = [mb.const(val=state) if isinstance(state, np.ndarray) else state for state in held]
    loop_vars = (mb.const(val=np.int32(0)), rows, *started)
    found = mb.while_loop(_cond=lambda t, *_: mb.less(x=t, y=np.int32(steps)), _body=body, loop_vars=loop_vars)
    y = mb.list_gather(ls=found[1], indices=np.arange(steps, dtype=np.int32))
    return y, list(found[2:])


def _part(b: NodeBuilder, x: Var, index: int, size: int, axis: int = 0) -> Var:
    """Piece `index` of a variable's axis that is cut into pieces of `size`."""
    if isinstance(x, np.ndarray):
        return np.take(x, range(index * size, (index + 1) * size), axis=axis)
    shape = list(shape_of(x))
    begin, end = [0] * len(shape), list(shape)
    begin[axis], end[axis] = index * size, (index + 1) * size
    return b.mb.slice_by_index(x=x, begin=begin, end=end)


def _recurrent_bias(b: NodeBuilder, direction: int, gates: int, hidden: int) -> Var | None:
    return _part(b, _rows(b, 3, direction), 1, gates * hidden) if b.has(3) else None


def _rnn(b: NodeBuilder) -> list[Var]:
    """h = f(x W' + h R' + Wb + Rb)."""
    _checked(b)
    functions = _activations(b, ("Tanh",), len(_directions(b)))

    def make(b: NodeBuilder, direction: Direction) -> Step:
        mb, (f,) = b.mb, functions[direction.index]
        recurrent = _rows(b, 2, direction.index)
        bias = _recurrent_bias(b, direction.index, 1, int(b.attribute("hidden_size") or b.shape(2)[-1]))

        def step(row: Var, held: Sequence[Var]) -> Sequence[Var]:
            total = mb.add(x=row, y=mb.matmul(x=held[0], y=recurrent, transpose_y=True))
            return [f(b, _clipped(b, mb.add(x=total, y=bias) if bias is not None else total))]

        return step

    return _recurrence(b, 1, (5,), make)


def _gru(b: NodeBuilder) -> list[Var]:
    """Gates z, r, h. h' = g(x Wh' + (r . h) Rh' + biases), or r . (h Rh' + Rbh) with `linear_before_reset`."""
    _checked(b)
    functions = _activations(b, ("Sigmoid", "Tanh"), len(_directions(b)))
    before = bool(b.attribute("linear_before_reset", 0))

    def make(b: NodeBuilder, direction: Direction) -> Step:
        mb, (f, g) = b.mb, functions[direction.index]
        hidden = int(b.attribute("hidden_size") or b.shape(2)[-1])
        weights = [_part(b, _rows(b, 2, direction.index), k, hidden) for k in range(3)]
        bias = _recurrent_bias(b, direction.index, 3, hidden)
        biases = [_part(b, bias, k, hidden) if bias is not None else None for k in range(3)]

        def product(h: Var, k: int) -> Var:
            found = mb.matmul(x=h, y=weights[k], transpose_y=True)
            return mb.add(x=found, y=biases[k]) if biases[k] is not None else found

        def step(row: Var, held: Sequence[Var]) -> Sequence[Var]:
            (h,) = held
            parts = [_part(b, row, k, hidden, axis=1) for k in range(3)]
            z = f(b, _clipped(b, mb.add(x=parts[0], y=product(h, 0))))
            r = f(b, _clipped(b, mb.add(x=parts[1], y=product(h, 1))))
            inner = mb.mul(x=r, y=product(h, 2)) if before else product(mb.mul(x=r, y=h), 2)
            new = g(b, _clipped(b, mb.add(x=parts[2], y=inner)))
            complement = mb.sub(x=b.number(1), y=z)
            return [mb.add(x=mb.mul(x=complement, y=new), y=mb.mul(x=z, y=h))]

        return step

    return _recurrence(b, 3, (5,), make)


def _lstm(b: NodeBuilder) -> list[Var]:
    _checked(b)
    if _is_plain_lstm(b):
        return _native_lstm(b)
    functions = _activations(b, ("Sigmoid", "Tanh", "Tanh"), len(_directions(b)))
    coupled = bool(b.attribute("input_forget", 0))

    def make(b: NodeBuilder, direction: Direction) -> Step:
        mb, (f, g, h) = b.mb, functions[direction.index]
        hidden = int(b.attribute("hidden_size") or b.shape(2)[-1])
        recurrent = _rows(b, 2, direction.index)
        bias = _recurrent_bias(b, direction.index, 4, hidden)
        peepholes = _rows(b, 7, direction.index) if b.has(7) else None

        def seen(gate: Var, cell: Var, k: int) -> Var:
            return gate if peepholes is None else mb.add(x=gate, y=mb.mul(x=cell, y=_part(b, peepholes, k, hidden)))

        def step(row: Var, held: Sequence[Var]) -> Sequence[Var]:
            state, cell = held
            total = mb.add(x=row, y=mb.matmul(x=state, y=recurrent, transpose_y=True))
            total = mb.add(x=total, y=bias) if bias is not None else total
            i, o, forget, c = (_part(b, total, k, hidden, axis=1) for k in range(4))
            i = f(b, _clipped(b, seen(i, cell, 0)))
            forget = mb.sub(x=b.number(1), y=i) if coupled else f(b, _clipped(b, seen(forget, cell, 2)))
            new = mb.add(x=mb.mul(x=forget, y=cell), y=mb.mul(x=i, y=g(b, _clipped(b, c))))
            o = f(b, _clipped(b, seen(o, new, 1)))
            return [mb.mul(x=o, y=h(b, new)), new]

        return step

    return _recurrence(b, 4, (5, 6), make)


def _is_plain_lstm(b: NodeBuilder) -> bool:
    """Whether Core ML's lstm computes the node: of known weights, with the usual functions."""
    known = all(b.constant(i) is not None for i in (1, 2, 3) if b.has(i))
    return (
        known
        and not b.has(7)
        and not b.attribute("clip", 0)
        and not b.attribute("input_forget", 0)
        and [n.decode() if isinstance(n, bytes) else n for n in b.attribute("activations") or []]
        in ([], ["Sigmoid", "Tanh", "Tanh"] * len(_directions(b)))
    )


def _native_lstm(b: NodeBuilder) -> list[Var]:
    """In float32, as Core ML has it. Its gates are i, f, o, z; ONNX's i, o, f, c."""
    mb, directions = b.mb, _directions(b)
    hidden = int(b.attribute("hidden_size") or b.shape(2)[-1])
    carrier = CARRIERS[b.dtype()]

    def ordered(array: np.ndarray) -> np.ndarray:
        i, o, f, c = np.split(array.astype(np.float32), 4)
        return np.concatenate([i, f, o, c])

    given: dict[str, Any] = {}
    for direction, suffix in zip(directions, ("", "_back"), strict=False):
        k = direction.index
        given[f"weight_ih{suffix}"] = ordered(b.x(1)[k])
        given[f"weight_hh{suffix}"] = ordered(b.x(2)[k])
        if b.has(3):
            both = b.x(3)[k].astype(np.float32)
            given[f"bias{suffix}"] = ordered(both[: 4 * hidden] + both[4 * hidden :])
    states = [[b.cast(_state(b, index, d.index, hidden), np.float32) for d in directions] for index in (5, 6)]
    h, c = (s[0] if len(s) == 1 else _joined(b, s) for s in states)
    mode = "bidirectional" if len(directions) == 2 else "reverse" if directions[0].reverse else "forward"
    x = b.cast(_input(b), np.float32)
    y, last, cell = mb.lstm(x=x, initial_h=h, initial_c=c, direction=mode, output_sequence=True, **given)
    found = [[b.cast(_part(b, v, d.index, hidden, axis=v.rank - 1), carrier) for d in directions] for v in (y, last, cell)]
    return _results(b, found[0], found[1:])


def _joined(b: NodeBuilder, states: Sequence[Var]) -> Var:
    if all(isinstance(s, np.ndarray) for s in states):
        return np.concatenate(states, axis=1)
    return b.mb.concat(values=list(states), axis=1)


HANDLERS: Mapping[str, Handler] = {"GRU": _gru, "LSTM": _lstm, "RNN": _rnn}
