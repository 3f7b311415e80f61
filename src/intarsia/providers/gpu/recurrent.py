"""LSTM, GRU, RNN and LinearAttention on a device: one product over the whole sequence, then a loop of few launches a step.

The state stays in the device's memory, and is overwritten where it lies by the kernel that also writes the step's output. Both
directions go through the loop together, the second one on a sequence that was turned round. Two counters take turns: the
kernel that ends a step reads one and sets the other, so that counting takes no launch of its own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from intarsia.codegen.clike.loop_steps import Write, row
from intarsia.codegen.clike.split_into_kernels import Cut
from intarsia.graph.dims import number_of, numbers_of
from intarsia.graph.dtypes import DType
from intarsia.graph.model import Node
from intarsia.lazy_dataclass import dataclass
from intarsia.ops.nn.recurrent import check_attributes, resolve_activations
from intarsia.primitives import lang as k
from intarsia.primitives.activations import ACTIVATIONS
from intarsia.primitives.lang import DefinitionError, Tensor

if TYPE_CHECKING:
    from intarsia.providers.gpu.binder import Scope, Work

Activation = Callable[[Tensor], Tensor]


def activation(name: str, alpha: float, beta: float) -> Activation:
    """As `ops.nn.recurrent` has them, in primitives."""
    key = name.lower()
    if key not in ACTIVATIONS:
        raise DefinitionError(f"activation {name!r} is not known; expected one of {', '.join(ACTIVATIONS)}")
    if key == "sigmoid":  # without an infinity, which WGSL need not have
        return lambda x: k.tanh(x * 0.5) * 0.5 + 0.5
    return lambda x: ACTIVATIONS[key](x, alpha, beta)


@dataclass(frozen=True)
class Layer:
    """A layer's operands, computed in float32 (float64 as it is), sequence first: x [seq, batch, input]."""

    x: Tensor
    weights: Tensor  # [directions, gates * hidden, input]
    recurrent: Tensor  # [directions, gates * hidden, hidden]
    bias: Tensor  # [directions, 2 * gates * hidden]
    lengths: Tensor | None  # [batch]
    initial: tuple[Tensor, ...]  # per state, [directions, batch, hidden]
    activations: list[list[Activation]]
    direction: str
    clip: float | None
    alike: bool  # all directions have the same activations

    @property
    def hidden(self) -> int:
        return number_of(self.recurrent.shape[2])

    @property
    def batch(self) -> int:
        return number_of(self.x.shape[1])

    def bounded(self, x: Tensor) -> Tensor:
        return x if not self.clip else k.minimum(k.maximum(x, -self.clip), self.clip)


def part(x: Tensor, axis: int, start: int, count: int) -> Tensor:
    starts = [start if i == axis else 0 for i in range(x.rank)]
    shape = [count if i == axis else d for i, d in enumerate(x.shape)]
    return k.strided_slice(x, starts, [1] * x.rank, shape)


def _layer(scope: Scope, node: Node, gates: int, default: Sequence[str]) -> Layer:
    a: dict[str, Any] = {"hidden_size": None, "layout": 0, "clip": None, "direction": "forward", **node.attributes}
    names = [*node.inputs, *[""] * (7 - len(node.inputs))]
    x, weights, recurrent, bias, lengths, *states = (scope.value(n) if n else None for n in names[:7])
    assert x is not None and weights is not None and recurrent is not None
    wide = DType.DOUBLE if x.dtype is DType.DOUBLE else DType.FLOAT
    if a["direction"] not in ("forward", "reverse", "bidirectional"):
        raise DefinitionError(f"direction is {a['direction']!r}; expected forward, reverse or bidirectional")
    directions = 2 if a["direction"] == "bidirectional" else 1
    x = k.cast(k.transpose(x, (1, 0, 2)) if a["layout"] else x, wide)
    hidden, batch = number_of(recurrent.shape[2]), number_of(x.shape[1])
    check_attributes(hidden, a["hidden_size"], a["layout"], a["clip"])
    wanted = {"W": (directions, gates * hidden, x.shape[2]), "R": (directions, gates * hidden, hidden),
              "B": (directions, 2 * gates * hidden), "sequence_lens": (batch,)}  # fmt: skip
    for (what, shape), given in zip(wanted.items(), (weights, recurrent, bias, lengths), strict=True):
        _check_shape(what, given, shape)
    initial = []
    for what, state in zip(("initial_h", "initial_c"), states[: 2 if gates == 4 else 1], strict=False):
        _check_shape(what, state, (batch, directions, hidden) if a["layout"] else (directions, batch, hidden))
        if state is None:
            initial.append(k.full((directions, batch, hidden), 0.0, wide))
        else:
            initial.append(k.cast(k.transpose(state, (1, 0, 2)) if a["layout"] else state, wide))
    resolved = resolve_activations(
        a.get("activations"), a.get("activation_alpha"), a.get("activation_beta"), default, directions
    )
    functions = [[activation(*given) for given in line] for line in resolved]
    bias = k.full((directions, 2 * gates * hidden), 0.0, wide) if bias is None else k.cast(bias, wide)
    return Layer(
        x, k.cast(weights, wide), k.cast(recurrent, wide), bias, lengths, tuple(initial), functions, a["direction"], a["clip"],
        all(line == resolved[0] for line in resolved),
    )  # fmt: skip


def _check_shape(name: str, x: Tensor | None, expected: Sequence[Any]) -> None:
    if x is not None and x.shape != tuple(expected):
        raise DefinitionError(f"{name} has shape {list(x.shape)}; expected {list(expected)}")


Step = Callable[[Tensor, Sequence[Tensor]], Sequence[Tensor]]
"""(inputs of the gates, states), [directions, batch, ..] -> states, h first"""


def some(x: Tensor, which: Sequence[int]) -> Tensor:
    """Neighbours along the first axis."""
    return part(x, 0, which[0], len(which))


def turned(cut: Cut, x: Tensor) -> Tensor:
    """Matrices [directions, out, in] as [directions, in, out], in memory: once for all runs where they are weights."""
    made = k.transpose(x, (0, 2, 1))
    leaves = {t.attrs[0] for t in k.walk([made]) if t.prim == "input"}
    if len(leaves) != 1 or not leaves <= set(cut.weights):
        return cut.store(cut.settle(made))
    starts = "".join(str(t.attrs[0]) for t in k.walk([made]) if t.prim == "slice")
    return cut.prepare(made, f"turned{starts}")


def _run(
    scope: Scope, node: Node, layer: Layer, step_of: Callable[[Sequence[int]], tuple[Tensor, Step]]
) -> None:  # fmt: skip
    """All steps of all directions. `step_of(which)` gives the directions' biases of the input product [directions, gates], and
    their step."""
    directions = number_of(layer.weights.shape[0])
    groups = [list(range(directions))] if layer.alike else [[d] for d in range(directions)]
    made, finals = zip(*(_loop(scope, layer, which, *step_of(which)) for which in groups), strict=True)
    dtype = _operand_type(scope, node)
    layout = node.attributes.get("layout", 0)
    outputs = k.concat([out for parts in made for out in parts], 1) if directions > 1 else made[0][0]
    results = [k.transpose(outputs, (2, 0, 1, 3)) if layout else outputs]
    for states in zip(*finals, strict=True):
        final = k.concat(list(states), 0) if len(states) > 1 else states[0]
        results.append(k.transpose(final, (1, 0, 2)) if layout else final)
    for name, value in zip(node.outputs, results, strict=False):
        if name:
            scope.give(name, k.cast(value, dtype))


def _loop(
    scope: Scope, layer: Layer, which: Sequence[int], bias: Tensor, step: Step
) -> tuple[list[Tensor], list[Tensor]]:  # fmt: skip
    """The steps of some directions: their outputs [steps, 1, batch, hidden], and their last states."""
    work, cut = scope.work, scope.cut
    steps, batch, hidden, count_of = number_of(layer.x.shape[0]), layer.batch, layer.hidden, len(which)
    backwards = [layer.direction == "reverse" or d == 1 for d in which]
    gates = _input_gates(cut, layer, which, backwards, bias)
    states = [work.filled(some(s, which)) for s in layer.initial]
    counters = [work.counter(), work.room(DType.INT32, ())]
    made = work.room(layer.x.dtype, (steps, count_of, batch, hidden))
    names = [s.attrs[0] for s in states]

    def body(counter: Tensor, following: Tensor) -> None:
        new = list(step(cut.settle(row(gates, counter)), states))
        output = new[0]
        if layer.lengths is not None:  # a sequence's state stands still beyond its end, and its output is zero
            at = k.select(k.constant(np.array(backwards)), steps - 1 - counter, counter)
            live = k.cast(k.expand_dims(at, [1]), layer.lengths.dtype) < k.expand_dims(layer.lengths, [0])
            live = k.expand_dims(live, [2])
            output = k.select(live, output, 0.0)
            new = [k.select(live, a, b) for a, b in zip(new, states, strict=True)]
        size = count_of * batch * hidden
        writes = [Write(cut.settle(v), size, in_place=name) for v, name in zip(new, names, strict=True)]
        writes.append(Write(cut.settle(output), steps * size, counter, size))
        writes.append(Write(k.broadcast(counter + 1, new[0].shape), 1, once=True))
        cut.launch_step(writes, [*names, made.attrs[0], following.attrs[0]])

    if steps > 1:
        region = work.region(count=steps // 2)
        body(*counters)
        body(*reversed(counters))
        region.stop = len(cut.jobs)
    if steps % 2:
        body(*counters)
    parts = [part(made, 1, i, 1) for i in range(count_of)]
    if layer.lengths is not None:  # of no steps there is no last state
        some_steps = k.expand_dims(k.expand_dims(layer.lengths, [0]) > 0, [2])
        states = [k.select(some_steps, s, 0.0) for s in states]
    return [_backwards(p) if back else p for p, back in zip(parts, backwards, strict=True)], states


def _backwards(x: Tensor) -> Tensor:
    """x from the last entry of the first axis to the first."""
    last = number_of(x.shape[0]) - 1
    return k.strided_slice(x, [last, *[0] * (x.rank - 1)], [-1, *[1] * (x.rank - 1)], x.shape)


def _input_gates(cut: Cut, layer: Layer, which: Sequence[int], backwards: Sequence[bool], bias: Tensor) -> Tensor:
    """What the inputs give to the gates of each step, in the order in which the steps are made: [steps, directions, batch,
    gates], in memory."""
    steps, batch, size = numbers_of(layer.x.shape)
    turns = [_backwards(layer.x) if back else layer.x for back in backwards]
    xs = cut.store(cut.settle(k.concat([k.reshape(x, (1, steps * batch, size)) for x in turns], 0)))
    gates = k.dot(xs, k.transpose(some(layer.weights, which), (0, 2, 1))) + k.expand_dims(bias, [1])
    gates = k.reshape(gates, (len(which), steps, batch, gates.shape[2]))
    return cut.store(cut.settle(k.transpose(gates, (1, 0, 2, 3))))


def count(work: Work, counter: Tensor) -> None:
    """One more."""
    work.cut.launch_step([Write(counter + 1, 1, in_place=counter.attrs[0])], [counter.attrs[0]])


def _operand_type(scope: Scope, node: Node) -> DType:
    kind = scope.value(node.inputs[0])
    return kind.dtype


def lower_lstm(scope: Scope, node: Node) -> None:
    layer, cut = _layer(scope, node, 4, ("Sigmoid", "Tanh", "Tanh")), scope.cut
    n = layer.hidden
    given = node.inputs[7] if len(node.inputs) > 7 else ""
    peepholes = k.cast(scope.value(given), layer.x.dtype) if given else None
    _check_shape("P", peepholes, (layer.weights.shape[0], 3 * n))
    together = node.attributes.get("input_forget", 0)

    def step_of(which: Sequence[int]) -> tuple[Tensor, Step]:
        f, g, h = layer.activations[which[0]]
        matrix = turned(cut, some(layer.recurrent, which))
        peeps: list[Tensor | None] = [None] * 3
        if peepholes is not None:
            peeps = [k.expand_dims(part(some(peepholes, which), 1, i * n, n), [1]) for i in range(3)]

        def step(gates: Tensor, states: Sequence[Tensor]) -> Sequence[Tensor]:
            hidden, cell = states
            z = cut.store(cut.settle(k.dot(hidden, matrix) + gates))

            def gate(i: int, peep: Tensor | None, state: Tensor) -> Tensor:
                mine = part(z, 2, i * n, n)
                return layer.bounded(mine if peep is None else mine + peep * state)

            i = f(gate(0, peeps[0], cell))
            forget = 1.0 - i if together else f(gate(2, peeps[2], cell))
            new = forget * cell + i * g(gate(3, None, cell))
            return f(gate(1, peeps[1], new)) * h(new), new

        bias = some(layer.bias, which)
        return part(bias, 1, 0, 4 * n) + part(bias, 1, 4 * n, 4 * n), step

    _run(scope, node, layer, step_of)


def lower_gru(scope: Scope, node: Node) -> None:
    layer, cut = _layer(scope, node, 3, ("Sigmoid", "Tanh")), scope.cut
    n = layer.hidden
    linear = node.attributes.get("linear_before_reset", 0)

    def step_of(which: Sequence[int]) -> tuple[Tensor, Step]:
        f, g = layer.activations[which[0]]
        matrix = turned(cut, some(layer.recurrent, which))
        bias = some(layer.bias, which)
        ours, theirs = part(bias, 1, 0, 3 * n), part(bias, 1, 3 * n, 3 * n)
        inner = k.expand_dims(part(theirs, 1, 2 * n, n), [1])

        def step(gates: Tensor, states: Sequence[Tensor]) -> Sequence[Tensor]:
            (hidden,) = states
            if linear:
                product = cut.store(cut.settle(k.dot(hidden, matrix)))
                zr = f(layer.bounded(part(gates, 2, 0, 2 * n) + part(product, 2, 0, 2 * n)))
                z, r = part(zr, 2, 0, n), part(zr, 2, n, n)
                candidate = r * (part(product, 2, 2 * n, n) + inner)
            else:
                both = k.dot(hidden, part(matrix, 2, 0, 2 * n)) + part(gates, 2, 0, 2 * n)
                zr = cut.store(cut.settle(f(layer.bounded(both))))
                z, r = part(zr, 2, 0, n), part(zr, 2, n, n)
                reset = cut.store(cut.settle(r * hidden))
                candidate = cut.store(cut.settle(k.dot(reset, part(matrix, 2, 2 * n, n))))
            new = g(layer.bounded(part(gates, 2, 2 * n, n) + candidate))
            return ((1.0 - z) * new + z * hidden,)

        zeros = k.full((len(which), n), 0.0, layer.x.dtype)
        return ours + k.concat([part(theirs, 1, 0, 2 * n), zeros if linear else part(theirs, 1, 2 * n, n)], 1), step

    _run(scope, node, layer, step_of)


def lower_rnn(scope: Scope, node: Node) -> None:
    layer, cut = _layer(scope, node, 1, ("Tanh",)), scope.cut
    n = layer.hidden

    def step_of(which: Sequence[int]) -> tuple[Tensor, Step]:
        (f,) = layer.activations[which[0]]
        matrix = turned(cut, some(layer.recurrent, which))
        bias = some(layer.bias, which)

        def step(gates: Tensor, states: Sequence[Tensor]) -> Sequence[Tensor]:
            product = cut.store(cut.settle(k.dot(states[0], matrix) + gates))
            return (f(layer.bounded(product)),)

        return part(bias, 1, 0, n) + part(bias, 1, n, n), step

    _run(scope, node, layer, step_of)


# --- LinearAttention --------------------------------------------------------------------------------------------------


def lower_linear_attention(scope: Scope, node: Node) -> None:
    """S [batch, kv heads, dk, dv] = exp(g) S + k (x) u, where u is v, or beta (v - S^T k) by a delta rule; o = scale q^T S."""
    work, cut, a = scope.work, scope.cut, node.attributes
    query, key, value, past, decay, beta = (
        scope.value(n) if n else None for n in [*node.inputs, *[""] * (6 - len(node.inputs))]
    )
    assert query is not None and key is not None and value is not None
    rule, heads, all_heads = a.get("update_rule", "gated_delta"), int(a["kv_num_heads"]), int(a["q_num_heads"])
    _check_rule(rule, decay is not None, beta is not None)
    q, keys, values = _steps_first(query, all_heads), _steps_first(key, heads), _steps_first(value, heads)
    steps, batch, _, size = numbers_of(q.shape)
    each, width = all_heads // heads, number_of(values.shape[3])
    groups = k.reshape(q, (steps, batch, heads, each, size))
    sources = [groups, keys, values]
    sources += [k.exp(_steps_first(decay, heads))] if decay is not None else []
    sources += [_steps_first(beta, number_of(beta.shape[2]))] if beta is not None else []
    sources = [cut.store(cut.settle(x)) for x in sources]
    shape = (batch, heads, size, width)
    state = work.filled(k.full(shape, 0.0, DType.FLOAT) if past is None else k.cast(past, DType.FLOAT))
    out = work.room(DType.FLOAT, (steps, batch, heads, each, width))
    counter = work.counter()
    region = work.region(count=steps)
    ours, key_row, update, *gates = (cut.settle(row(x, counter)) for x in sources)
    decayed = state
    if decay is not None:
        decayed = state * k.expand_dims(gates[0], [3])
    if beta is not None:
        seen = k.reduce_sum(decayed * k.expand_dims(key_row, [3]), [2])
        update = cut.store(cut.settle(k.broadcast(gates[-1], update.shape) * (update - seen)))
    new = decayed + k.expand_dims(key_row, [3]) * k.expand_dims(update, [2])
    cut.launch_step([Write(cut.settle(new), batch * heads * size * width, in_place=state.attrs[0])], [state.attrs[0]])
    factor = a.get("scale", 0.0) or 1.0 / math.sqrt(size)
    answer = cut.store(cut.settle(k.dot(ours, state) * factor))
    count_of = batch * heads * each * width
    cut.launch_step([Write(answer, steps * count_of, counter, count_of)], [out.attrs[0]])
    count(work, counter)
    region.stop = len(cut.jobs)
    flat = k.transpose(k.reshape(out, (steps, batch, all_heads, width)), (1, 0, 2, 3))
    flat = k.reshape(flat, (batch, steps, all_heads * width))
    results = [k.cast(flat, query.dtype), k.cast(state, query.dtype if past is None else past.dtype)]
    for name, result in zip(node.outputs, results, strict=False):
        if name:
            scope.give(name, result)


def _check_rule(rule: str, decay: bool, beta: bool) -> None:
    if rule not in ("linear", "gated", "delta", "gated_delta"):
        raise DefinitionError(f"update_rule is {rule!r}; expected linear, gated, delta or gated_delta")
    gated, delta = rule.startswith("gated"), rule.endswith("delta")
    if gated != decay or delta != beta:
        raise DefinitionError(f"update_rule {rule} takes decay: {gated}, beta: {delta}; the inputs given do not fit")


def _steps_first(x: Tensor, heads: int) -> Tensor:
    """[batch, steps, heads * size] as float32 [steps, batch, heads, size]."""
    batch, steps, width = numbers_of(x.shape)
    return k.transpose(k.reshape(k.cast(x, DType.FLOAT), (batch, steps, heads, width // heads)), (1, 0, 2, 3))


RECURRENT: Mapping[str, Callable[[Scope, Node], None]] = {
    "LSTM": lower_lstm, "GRU": lower_gru, "RNN": lower_rnn, "LinearAttention": lower_linear_attention,
}  # fmt: skip
