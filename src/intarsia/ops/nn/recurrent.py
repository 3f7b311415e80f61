"""LSTM, GRU, RNN: one matrix product over the whole sequence, then a loop over its steps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from intarsia.graph.dims import Dim, format_shape
from intarsia.graph.model import TensorType
from intarsia.lazy_dataclass import dataclass
from intarsia.ops.framework.parameter_groups import ParameterGroup
from intarsia.ops.framework.registry import host_op
from intarsia.primitives import lang as k
from intarsia.run_status import CURRENT_RUN, LENGTH_IS_OUT_OF_RANGE

Array = np.ndarray
Activation = Callable[[Array], Array]
_REASON = "a loop over steps whose state feeds back"
LSTM_ACTIVATIONS = ("Sigmoid", "Tanh", "Tanh")
_DEFAULT_ALPHA = {"LeakyRelu": 0.01, "ThresholdedRelu": 1.0, "ScaledTanh": 1.0, "HardSigmoid": 0.2, "Elu": 1.0, "Affine": 1.0}
_DEFAULT_BETA = {"ScaledTanh": 1.0, "HardSigmoid": 0.5, "Affine": 0.0}
_TAKES_ALPHA = frozenset(_DEFAULT_ALPHA)
_TAKES_BETA = frozenset(_DEFAULT_BETA)


def sigmoid(x: Array) -> Array:
    """1 / (1 + exp(-x)) without overflow: (1 + tanh(x / 2)) / 2."""
    return np.asarray(np.tanh(x * x.dtype.type(0.5)) * x.dtype.type(0.5) + x.dtype.type(0.5))


def _activation(name: str, alpha: float, beta: float) -> Activation:
    table: dict[str, Activation] = {
        "Sigmoid": sigmoid,
        "Tanh": np.tanh,
        "Relu": lambda x: np.maximum(x, 0),
        "Affine": lambda x: alpha * x + beta,
        "LeakyRelu": lambda x: np.where(x >= 0, x, alpha * x),
        "ThresholdedRelu": lambda x: np.where(x >= alpha, x, 0),
        "ScaledTanh": lambda x: alpha * np.tanh(beta * x),
        "HardSigmoid": lambda x: np.clip(alpha * x + beta, 0, 1),
        "Elu": lambda x: np.where(x >= 0, x, alpha * np.expm1(np.minimum(x, 0))),
        "Softsign": lambda x: x / (1 + np.abs(x)),
        "Softplus": lambda x: np.logaddexp(x, 0),
    }
    by_lower = {n.lower(): f for n, f in table.items()}
    if name.lower() not in by_lower:
        raise k.DefinitionError(f"activation {name!r} is not known; expected one of {', '.join(table)}")
    return by_lower[name.lower()]


def resolve_activations(
    names: Sequence[str] | None,
    alphas: Sequence[float] | None,
    betas: Sequence[float] | None,
    default: Sequence[str],
    directions: int,
) -> list[list[tuple[str, float, float]]]:
    """Per direction, (name, alpha, beta) of each activation; alphas and betas are consumed by those that have them.

    Raises:
        DefinitionError: the number of names does not fit.
    """
    wanted = list(names) if names else list(default) * directions
    if len(wanted) != len(default) * directions:
        raise k.DefinitionError(f"activations has {len(wanted)} names; expected {len(default) * directions}")
    spare_alpha, spare_beta = list(alphas or ()), list(betas or ())
    found = []
    for name in wanted:
        proper = next((n for n in _TAKES_ALPHA | _TAKES_BETA if n.lower() == name.lower()), name)
        alpha = spare_alpha.pop(0) if proper in _TAKES_ALPHA and spare_alpha else _DEFAULT_ALPHA.get(proper, 0.0)
        beta = spare_beta.pop(0) if proper in _TAKES_BETA and spare_beta else _DEFAULT_BETA.get(proper, 0.0)
        found.append((name, alpha, beta))
    return [found[i : i + len(default)] for i in range(0, len(found), len(default))]


@dataclass(frozen=True)
class Layer:
    """A layer's operands in float32 or float64, sequence first: X [seq, batch, input]."""

    X: Array
    W: Array  # [directions, gates * hidden, input]
    R: Array  # [directions, gates * hidden, hidden]
    bias: Array  # [directions, 2 * gates * hidden]
    lengths: Array  # [batch]
    initial: tuple[Array, ...]  # per state, [directions, batch, hidden]
    activations: list[list[Activation]]
    direction: str
    clip: float | None

    @property
    def hidden(self) -> int:
        return int(self.R.shape[2])

    def bounded(self, x: Array) -> Array:
        return x if not self.clip else np.clip(x, -self.clip, self.clip)

    def inputs(self, d: int) -> Array:
        """X W^T of a direction, [seq * batch, gates * hidden]."""
        return np.asarray(self.X.reshape(-1, self.X.shape[2]) @ self.W[d].T)

    def recurrence(self, d: int) -> Activation:
        """The function h -> h R^T of a direction."""
        recurrent = np.ascontiguousarray(self.R[d].T)
        return lambda hidden: np.asarray(hidden @ recurrent)


Step = Callable[[Array, tuple[Array, ...]], tuple[Array, ...]]  # (gate inputs, states) -> states, h first


@np.errstate(all="ignore")
def run_steps(layer: Layer, step_of: Callable[[int], tuple[Array, Step]]) -> tuple[Array, tuple[Array, ...]]:
    """All steps of all directions: Y [seq, directions, batch, hidden] and final states [directions, batch, hidden].

    `step_of(d)` gives the direction's bias of the input product, and its step. A sequence without steps has no last state:
    its final states are 0, as onnxruntime and OpenVINO have it.
    """
    seq, batch, _ = layer.X.shape
    directions = len(layer.W)
    Y = np.zeros((seq, directions, batch, layer.hidden), layer.X.dtype)
    finals = tuple(s.copy() for s in layer.initial)
    ragged, rows = bool((layer.lengths != seq).any()), np.arange(batch)
    run = CURRENT_RUN.get()
    for d in range(directions):
        backward = layer.direction == "reverse" or d == 1
        bias, step = step_of(d)
        gates = (layer.inputs(d) + bias).reshape(seq, batch, layer.W.shape[1])
        states = tuple(s[d] for s in layer.initial)
        for number in range(seq):
            if run is not None:
                run.check()
            t = seq - 1 - number if backward else number
            if ragged:  # all begin together, each at its own end; a state stands still beyond, and its output is zero
                live = (number < layer.lengths)[:, None]
                places = np.where(live[:, 0], layer.lengths - 1 - number, number) if backward else np.full(batch, number)
                new = step(gates[places, rows], (np.where((number <= layer.lengths)[:, None], states[0], 0), *states[1:]))
                states = tuple(np.where(live, a, b) for a, b in zip(new, states, strict=True))
                Y[places, d, rows] = np.where(live, new[0], 0)
            else:
                new = step(gates[t], states)
                states = new
                Y[t, d] = new[0]
        for final, state in zip(finals, states, strict=True):
            final[d] = np.where((layer.lengths > 0)[:, None], state, 0)
    return Y, finals


@dataclass(frozen=True)
class LayerOperands(ParameterGroup):
    """Inputs of a recurrent layer."""

    X: Array
    W: Array
    R: Array
    B: Array | None = None
    sequence_lens: Array | None = None
    initial_h: Array | None = None

    @property
    def initial(self) -> tuple[Array | None, ...]:
        """The first state of each kind."""
        return (self.initial_h,)

    @property
    def peepholes(self) -> Array | None:
        return None


@dataclass(frozen=True)
class LSTMOperands(LayerOperands):
    """Inputs of an LSTM."""

    initial_c: Array | None = None
    P: Array | None = None

    @property
    def initial(self) -> tuple[Array | None, ...]:
        return self.initial_h, self.initial_c

    @property
    def peepholes(self) -> Array | None:
        return self.P


@dataclass(frozen=True)
class RecurrentAttributes(ParameterGroup):
    """Attributes of every recurrent layer."""

    activation_alpha: Sequence[float] | None = None
    activation_beta: Sequence[float] | None = None
    activations: Sequence[str] | None = None
    clip: float | None = None
    direction: str = "forward"
    hidden_size: int | None = None


@dataclass(frozen=True)
class LaidOutAttributes(RecurrentAttributes):
    """Those of ONNX's layers: with layout 1 the batch comes first."""

    layout: int = 0
    output_sequence: int = 0


@dataclass(frozen=True)
class LSTMAttributes(LaidOutAttributes):
    """Those of LSTM; with input_forget 1 the forget gate is 1 less the input gate."""

    input_forget: int = 0


@dataclass(frozen=True)
class GRUAttributes(LaidOutAttributes):
    """Those of GRU; linear_before_reset says what the reset gate is applied to."""

    linear_before_reset: int = 0


def layer_of(
    operands: LayerOperands, attributes: RecurrentAttributes, gates: int, default: Sequence[str], layout: int = 0
) -> Layer:
    """A layer of so many gates, whose activations are `default` unless its attributes name others.

    Raises:
        DefinitionError: its sizes or attributes do not fit, or a sequence is longer than X.
    """
    X, W, R, B, sequence_lens = operands.X, operands.W, operands.R, operands.B, operands.sequence_lens
    direction = attributes.direction
    if direction not in ("forward", "reverse", "bidirectional"):
        raise k.DefinitionError(f"direction is {direction!r}; expected forward, reverse or bidirectional")
    _check_axes(X.shape, W.shape, R.shape)
    directions = 2 if direction == "bidirectional" else 1
    hidden = R.shape[2]
    if len(W) != directions or len(R) != directions or W.shape[1] != gates * hidden or R.shape[1] != gates * hidden:
        raise k.DefinitionError(
            f"W is {list(W.shape)} and R is {list(R.shape)}; expected [{directions}, {gates * hidden}, ...] "
            f"for direction {direction}"
        )
    check_attributes(hidden, attributes.hidden_size, layout, attributes.clip)
    wide = np.float64 if X.dtype == np.float64 else np.float32
    x = X.astype(wide, copy=False)
    if layout:
        x = x.transpose(1, 0, 2)
    seq, batch, _ = x.shape
    check_sizes("W", W, (directions, gates * hidden, x.shape[2]))
    check_sizes("B", B, (directions, 2 * gates * hidden))
    check_sizes("sequence_lens", sequence_lens, (batch,))
    check_sizes("P", operands.peepholes, (directions, 3 * hidden))
    states = []
    for name, state in zip(("initial_h", "initial_c"), operands.initial, strict=False):
        check_sizes(name, state, (batch, directions, hidden) if layout else (directions, batch, hidden))
        if state is None:
            states.append(np.zeros((directions, batch, hidden), wide))
        else:
            states.append((state.transpose(1, 0, 2) if layout else state).astype(wide, copy=False))
    bias = np.zeros((directions, 2 * gates * hidden), wide) if B is None else B.astype(wide, copy=False)
    lengths = np.full(batch, seq) if sequence_lens is None else np.asarray(sequence_lens)
    if ((lengths < 0) | (lengths > seq)).any():
        raise k.DefinitionError(LENGTH_IS_OUT_OF_RANGE)
    resolved = resolve_activations(
        attributes.activations, attributes.activation_alpha, attributes.activation_beta, default, directions
    )
    functions = [[_activation(*spec) for spec in row] for row in resolved]
    return Layer(
        np.ascontiguousarray(x), W.astype(wide, copy=False), R.astype(wide, copy=False), bias, lengths, tuple(states),
        functions, direction, attributes.clip,
    )  # fmt: skip


def check_attributes(hidden: int, size: int | None, layout: int, clip: float | None) -> None:
    """Raise DefinitionError where the attributes hidden_size (`size`), layout or clip cannot be, of so many hidden units."""
    if size is not None and size != hidden:
        raise k.DefinitionError(f"hidden_size is {size}; R has {hidden} hidden units")
    if layout not in (0, 1):
        raise k.DefinitionError(f"layout is {layout}; expected 0 or 1")
    if clip is not None and not clip >= 0:
        raise k.DefinitionError(f"clip is {clip}; expected a number that is not negative")


def check_sizes(name: str, x: Array | None, expected: tuple[int, ...]) -> None:
    if x is not None and x.shape != expected:
        raise k.DefinitionError(f"{name} has shape {list(x.shape)}; expected {list(expected)}")


def _results(Y: Array, finals: Sequence[Array], layout: int, dtype: np.dtype) -> tuple[Array, ...]:
    if layout:
        Y = Y.transpose(2, 0, 1, 3)
        finals = [f.transpose(1, 0, 2) for f in finals]
    return tuple(np.ascontiguousarray(a).astype(dtype, copy=False) for a in (Y, *finals))


def _check_axes(*shapes: Sequence[Dim]) -> None:
    if any(len(shape) != 3 for shape in shapes):
        x, w, r = map(format_shape, shapes)
        raise k.DefinitionError(f"X has shape {x}, W {w} and R {r}; expected three axes each")


def layer_types(states: int) -> Callable[..., tuple[TensorType, ...]]:
    """Types of Y and so many final states."""

    def infer(X: TensorType, W: TensorType, R: TensorType, *rest: Any, layout: int = 0) -> tuple[TensorType, ...]:
        if X.shape is None or W.shape is None or R.shape is None:
            return (TensorType(X.dtype),) * (states + 1)
        _check_axes(X.shape, W.shape, R.shape)
        seq, batch, _ = X.shape if not layout else (X.shape[1], X.shape[0], X.shape[2])
        directions, hidden = W.shape[0], R.shape[2]
        out: tuple[Dim, ...] = (seq, directions, batch, hidden)
        final: tuple[Dim, ...] = (directions, batch, hidden)
        if layout:
            out, final = (batch, seq, directions, hidden), (batch, directions, hidden)
        return (TensorType(X.dtype, out), *(TensorType(X.dtype, final),) * states)

    return infer


@host_op("LSTM", since=(1, 7, 14, 22), infer=layer_types(2), reason=_REASON)
def lstm(operands: LSTMOperands, *, attributes: LSTMAttributes) -> tuple[Array, ...]:
    """Gates in the order i, o, f, c; returns Y, Y_h, Y_c."""
    layer = layer_of(operands, attributes, 4, LSTM_ACTIVATIONS, attributes.layout)
    Y, finals = run_lstm(layer, operands.P, attributes.input_forget)
    return _results(Y, finals, attributes.layout, operands.X.dtype)


def run_lstm(layer: Layer, P: Array | None, input_forget: int) -> tuple[Array, tuple[Array, ...]]:
    """Y and the final states h and c, sequence first."""
    return run_steps(layer, lstm_steps(layer, P, input_forget))


def lstm_steps(layer: Layer, P: Array | None, input_forget: int) -> Callable[[int], tuple[Array, Step]]:
    """Of each direction, the bias of the input product, and the step of an LSTM."""
    n = layer.hidden
    peepholes = np.zeros((len(layer.W), 3 * n), layer.X.dtype) if P is None else P.astype(layer.X.dtype, copy=False)

    def step_of(d: int) -> tuple[Array, Step]:
        f, g, h = layer.activations[d]
        recurrent = layer.recurrence(d)
        pi, po, pf = peepholes[d, :n], peepholes[d, n : 2 * n], peepholes[d, 2 * n :]

        def step(gates: Array, states: tuple[Array, ...]) -> tuple[Array, ...]:
            hidden, cell = states
            z = gates + recurrent(hidden)
            i = f(layer.bounded(z[:, :n] + pi * cell))
            forget = 1 - i if input_forget else f(layer.bounded(z[:, 2 * n : 3 * n] + pf * cell))
            cell = forget * cell + i * g(layer.bounded(z[:, 3 * n :]))
            o = f(layer.bounded(z[:, n : 2 * n] + po * cell))
            return o * h(cell), cell

        return layer.bias[d, : 4 * n] + layer.bias[d, 4 * n :], step

    return step_of


@host_op("GRU", since=(1, 3, 7, 14, 22), infer=layer_types(1), reason=_REASON)
def gru(operands: LayerOperands, *, attributes: GRUAttributes) -> tuple[Array, ...]:
    """Gates in the order z, r, h; returns Y, Y_h."""
    layer = layer_of(operands, attributes, 3, ("Sigmoid", "Tanh"), attributes.layout)
    n, linear_before_reset = layer.hidden, attributes.linear_before_reset

    def step_of(d: int) -> tuple[Array, Step]:
        f, g = layer.activations[d]
        both, candidate = np.ascontiguousarray(layer.R[d, : 2 * n].T), np.ascontiguousarray(layer.R[d, 2 * n :].T)
        bias = layer.bias[d, : 3 * n].copy()
        bias[: 2 * n] += layer.bias[d, 3 * n : 5 * n]
        inner = layer.bias[d, 5 * n :]
        if not linear_before_reset:
            bias[2 * n :] += inner

        def step(gates: Array, states: tuple[Array, ...]) -> tuple[Array, ...]:
            (hidden,) = states
            zr = f(layer.bounded(gates[:, : 2 * n] + hidden @ both))
            z, r = zr[:, :n], zr[:, n:]
            if linear_before_reset:
                recurrent = r * (hidden @ candidate + inner)
            else:
                recurrent = (r * hidden) @ candidate
            new = g(layer.bounded(gates[:, 2 * n :] + recurrent))
            return ((1 - z) * new + z * hidden,)

        return bias, step

    Y, finals = run_steps(layer, step_of)
    return _results(Y, finals, attributes.layout, operands.X.dtype)


@host_op("RNN", since=(1, 7, 14, 22), infer=layer_types(1), reason=_REASON)
def rnn(operands: LayerOperands, *, attributes: LaidOutAttributes) -> tuple[Array, ...]:
    """Ht = f(Xt W^T + Ht-1 R^T + bias); returns Y, Y_h."""
    layer = layer_of(operands, attributes, 1, ("Tanh",), attributes.layout)
    n = layer.hidden

    def step_of(d: int) -> tuple[Array, Step]:
        (f,) = layer.activations[d]
        recurrent = np.ascontiguousarray(layer.R[d].T)

        def step(gates: Array, states: tuple[Array, ...]) -> tuple[Array, ...]:
            return (f(layer.bounded(gates + states[0] @ recurrent)),)

        return layer.bias[d, :n] + layer.bias[d, n:], step

    Y, finals = run_steps(layer, step_of)
    return _results(Y, finals, attributes.layout, operands.X.dtype)
