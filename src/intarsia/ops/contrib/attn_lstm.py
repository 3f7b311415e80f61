"""AttnLSTM of com.microsoft: an LSTM whose input is joined by what its last output attends to in a memory (Bahdanau et al.,
arXiv 1409.0473), TensorFlow's AttentionWrapper."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from intarsia.lazy_dataclass import dataclass
from intarsia.ops.contrib.embedding_and_blocks import DOMAIN
from intarsia.ops.framework.parameter_groups import ParameterGroup
from intarsia.ops.framework.registry import host_op
from intarsia.ops.nn.recurrent import (
    LSTM_ACTIVATIONS,
    Array,
    Layer,
    LSTMOperands,
    RecurrentAttributes,
    Step,
    check_sizes,
    layer_of,
    layer_types,
    lstm_steps,
    run_steps,
)
from intarsia.primitives import lang as k


@dataclass(frozen=True)
class Memory:
    """What one direction attends to.

    Attributes:
        values: [batch, steps, depth].
        keys: values times MW, [batch, steps, size].
        seen: [batch, steps], whether a step is one of the sequence's.
        query, score: QW [hidden, size] and V [size].
        joined: AW [hidden + depth, attention], or None: the context is the attention.
    """

    values: Array
    keys: Array
    seen: Array
    query: Array
    score: Array
    joined: Array | None

    def attention(self, hidden: Array) -> Array:
        """Of an LSTM's output [batch, hidden]: [batch, attention]."""
        scores = np.tanh(self.keys + (hidden @ self.query)[:, None]) @ self.score
        scores = np.where(self.seen, scores, -np.inf)
        weights = np.exp(scores - scores.max(axis=1, keepdims=True))
        weights /= weights.sum(axis=1, keepdims=True)
        context: Array = np.einsum("bs,bsd->bd", weights, self.values)
        return context if self.joined is None else np.concatenate([hidden, context], axis=1) @ self.joined


@dataclass(frozen=True)
class AttentionOperands(ParameterGroup):
    """Weights of the attention, the memory that it attends to, and how much of that counts."""

    QW: Array | None = None
    MW: Array | None = None
    V: Array | None = None
    M: Array | None = None
    memory_seq_lens: Array | None = None
    AW: Array | None = None


@dataclass(frozen=True)
class ForgettingAttributes(RecurrentAttributes):
    """Those of com.microsoft's LSTMs."""

    input_forget: int = 0


@host_op("AttnLSTM", 1, domain=DOMAIN, infer=layer_types(2), reason="a loop over steps whose state feeds back")
def attn_lstm(operands: LSTMOperands, attention: AttentionOperands, *, attributes: ForgettingAttributes) -> tuple[Array, ...]:
    """Y, Y_h and Y_c of an LSTM over [X, attention], where the attention of the step before is 0 at first.

    W [directions, 4 hidden, input + attention]; the memory M is [batch, steps, depth], of which `memory_seq_lens` counts.
    """
    M, AW, X, W = attention.M, attention.AW, operands.X, operands.W
    if attention.QW is None or attention.MW is None or attention.V is None or M is None:
        raise k.DefinitionError("QW, MW, V and M are needed: the weights of the attention, and what it attends to")
    width = X.shape[-1]
    layer = layer_of(replace(operands, W=W[..., :width]), attributes, 4, LSTM_ACTIVATIONS)
    memories = _memories(layer, attention)
    size = M.shape[2] if AW is None else AW.shape[2]
    check_sizes("W", W, (*W.shape[:2], width + size))
    inner = lstm_steps(layer, operands.P, attributes.input_forget)
    nothing = np.zeros((len(W), X.shape[1], size), layer.X.dtype)
    added = np.ascontiguousarray(W[:, :, width:].transpose(0, 2, 1)).astype(layer.X.dtype, copy=False)
    Y, (hidden, cell, _) = run_steps(
        replace(layer, initial=(*layer.initial, nothing)), lambda d: _joined(inner(d), added[d], memories[d].attention)
    )
    return Y.astype(X.dtype, copy=False), hidden.astype(X.dtype, copy=False), cell.astype(X.dtype, copy=False)


def _joined(inner: tuple[Array, Step], added: Array, attention: Callable[[Array], Array]) -> tuple[Array, Step]:
    """The step of an LSTM, with the attention as its third state."""
    bias, lstm_step = inner

    def step(gates: Array, states: tuple[Array, ...]) -> tuple[Array, ...]:
        hidden, cell = lstm_step(gates + states[2] @ added, states[:2])
        return hidden, cell, attention(hidden)

    return bias, step


def _memories(layer: Layer, attention: AttentionOperands) -> list[Memory]:
    """One for each direction. Raises DefinitionError where sizes do not fit together."""
    QW, MW, V, M, AW = attention.QW, attention.MW, attention.V, attention.M, attention.AW
    assert QW is not None and MW is not None and V is not None and M is not None
    memory_seq_lens = attention.memory_seq_lens
    wide, directions, batch = layer.X.dtype, len(layer.W), layer.X.shape[1]
    if M.ndim != 3 or MW.ndim != 3 or (AW is not None and AW.ndim != 3):
        raise k.DefinitionError(f"M is {list(M.shape)} and MW {list(MW.shape)}; expected three axes of these and of AW")
    steps, depth, size = M.shape[1], M.shape[2], MW.shape[2]
    check_sizes("M", M, (batch, steps, depth))
    check_sizes("MW", MW, (directions, depth, size))
    check_sizes("QW", QW, (directions, layer.hidden, size))
    check_sizes("V", V, (directions, size))
    check_sizes("memory_seq_lens", memory_seq_lens, (batch,))
    if AW is not None:
        check_sizes("AW", AW, (directions, layer.hidden + depth, AW.shape[2]))
    lengths = np.full(batch, steps) if memory_seq_lens is None else memory_seq_lens
    if ((lengths < 1) | (lengths > steps)).any():
        raise k.DefinitionError(f"memory_seq_lens is {lengths.tolist()}; expected 1 to {steps}, the steps of M")
    seen = np.arange(steps) < lengths[:, None]
    values, query, keys, score = (x.astype(wide, copy=False) for x in (M, QW, MW, V))
    return [
        Memory(values, values @ keys[d], seen, query[d], score[d], None if AW is None else AW[d].astype(wide, copy=False))
        for d in range(directions)
    ]
