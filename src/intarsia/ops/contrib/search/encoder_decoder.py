"""com.microsoft: models with an encoder, as T5 and Whisper are exported for onnxruntime's searches.

The encoder takes encoder_input_ids (Whisper: features), encoder_attention_mask (T5) and decoder_input_ids, by name, and returns
logits, encoder_hidden_states, a key and a value of self-attention per layer, then those of cross-attention per layer; or the
latter alone, if it does not take decoder_input_ids. The decoder takes input_ids, then encoder_input_ids (of which a pointer
generator copies), encoder_attention_mask and encoder_hidden_states if it names them, and the same keys and values; it returns
logits, and those of self-attention. All states are [rows, heads, tokens, size].
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import Any

import numpy as np

from intarsia.graph.model import Graph, TensorType
from intarsia.lazy_dataclass import dataclass
from intarsia.ops.contrib.search.subgraph_results import check_states, last_logits
from intarsia.ops.framework.parameter_groups import ParameterGroup
from intarsia.ops.framework.registry import NodeContext
from intarsia.primitives import lang as k

Array = np.ndarray
T5, WHISPER = 1, 2
_STATES = 2  # a key and a value
_SOURCE = "encoder_input_ids"


@dataclass
class EncoderDecoder:
    """The model with its state, for rows of which `copies` in a row belong to one input; see `greedy_search.Decoder`.

    Attributes:
        ids: the tokens that the decoder begins with [rows, tokens], then those that it has not seen yet.
        own, cross: keys and values of self-attention, and of attention to the encoder.
    """

    run: Callable[[Graph, Sequence[Any]], list[Any]]
    encoder: Graph
    decoder: Graph
    given: Mapping[str, Array]
    ids: Array
    copies: int
    vocabulary: int
    whole: bool  # the decoder takes all tokens each time
    seen: Array = field(init=False)
    own: list[Array] = field(default_factory=list)
    cross: list[Array] = field(default_factory=list)
    hidden: Array | None = None
    mask: Array | None = None
    source: Array | None = None  # the encoder's input, for a decoder that names it
    started: bool = False

    def __post_init__(self) -> None:
        self.seen = self.ids

    def logits(self) -> Array:
        """Of the token after the last one, [rows, vocabulary] float32."""
        found = None
        if not self.started:
            found = self._encode()
            self.started = True
        if found is None:
            out = self.run(self.decoder, self._operands())
            found, self.own = out[0], check_states(out[1:], "the decoder", len(self.ids))
        return last_logits(found, "the model", len(self.ids), self.vocabulary)

    def append(self, tokens: Array) -> None:
        self.ids = tokens.astype(np.int32)[:, None]
        self.seen = np.concatenate([self.seen, self.ids], 1)

    def reorder(self, rows: Array) -> None:
        """Every row goes on with the state of row `rows[i]`, which belongs to the same input."""
        self.own = [np.take(state, rows, axis=0) for state in self.own]
        self.seen = self.seen[rows]

    def _encode(self) -> Any:
        """Run the encoder, once for each input; the decoder's first logits, where it gives these."""
        begins = "decoder_input_ids" in self.encoder.declared_inputs()
        found = self.run(self.encoder, [self.given[name] for name in self.encoder.declared_inputs()])
        rows = len(self.given[_SOURCE])
        check_states(found[: 2 * begins], "the encoder", rows)
        check_states(found[2 * begins :], "the encoder", rows, rank=4)
        out = [np.repeat(x, self.copies, axis=0) for x in found]
        if "encoder_attention_mask" in self.given:
            self.mask = np.repeat(self.given["encoder_attention_mask"], self.copies, axis=0)
        if _SOURCE in self.decoder.declared_inputs():
            self.source = np.repeat(self.given[_SOURCE], self.copies, axis=0)
        if not begins:
            self.cross = out
            self.own = [self._none(i, x) for i, x in enumerate(out)]
            return None
        self.hidden = out[1]
        states = out[2:]
        self.own, self.cross = states[: len(states) // 2], states[len(states) // 2 :]
        return out[0]

    def _none(self, number: int, cross: Array) -> Array:
        """The state of self-attention before the first token."""
        first = len(self.decoder.inputs) - 2 * len(self.decoder.outputs[1:])
        kind = self.decoder.inputs[first + number].type
        shape = kind.shape if isinstance(kind, TensorType) and kind.shape is not None else (None,) * 4
        heads, size = (
            own if isinstance(own, int) else other for own, other in zip(shape[1::2], cross.shape[1::2], strict=True)
        )
        return np.zeros((len(cross), heads, 0, size), cross.dtype)

    def _operands(self) -> list[Any]:
        named = {
            "input_ids": self.seen if self.whole else self.ids, "encoder_attention_mask": self.mask,
            "encoder_hidden_states": self.hidden, _SOURCE: self.source,
        }  # fmt: skip
        states = iter([*self.own, *self.cross])
        return [named[name] if name in named else next(states) for name in self.decoder.declared_inputs()]


@dataclass(frozen=True)
class SearchAttributes(ParameterGroup):
    """Attributes of a search: the model's subgraphs and kind, and the tokens that it knows."""

    decoder: Graph
    eos_token_id: int
    pad_token_id: int
    decoder_start_token_id: int = -1
    encoder: Graph | None = None
    init_decoder: Graph | None = None
    model_type: int = 0
    no_repeat_ngram_size: int = 0
    vocab_size: int = -1


@dataclass(frozen=True)
class Prompt:
    """What a search begins with.

    Attributes:
        inputs: tokens [batch, tokens] int32; features [batch, size, frames] of Whisper.
        mask: which tokens count [batch, tokens]; None: all but padding at the left.
        begins: tokens that the decoder of an encoder begins with [batch, tokens]; None: `decoder_start_token_id`.
        copies: how many sequences are searched for each of the batch.
    """

    inputs: Array
    mask: Array | None
    begins: Array | None = None
    copies: int = 1


def encoder_decoder_of(node: NodeContext, attributes: SearchAttributes, prompt: Prompt) -> EncoderDecoder:
    """The model before its first run.

    Raises:
        DefinitionError: the graphs do not take and give what such a model does.
    """
    model_type, encoder, decoder = attributes.model_type, attributes.encoder, attributes.decoder
    inputs, mask, begins, start = prompt.inputs, prompt.mask, prompt.begins, attributes.decoder_start_token_id
    if node.run_graph is None:
        raise k.DefinitionError("a subgraph cannot be run here: no runner was given")
    if encoder is None:
        raise k.DefinitionError(f"model_type is {model_type}, which has an encoder; expected the attribute encoder")
    if begins is None:
        if start < 0:
            raise k.DefinitionError(f"decoder_start_token_id is {start}; expected a token, which the decoder begins with")
        begins = np.full((len(inputs), 1), start, np.int32)
    if begins.ndim != 2 or len(begins) != len(inputs) or not begins.size:
        raise k.DefinitionError(f"decoder_input_ids has shape {list(begins.shape)}; expected [{len(inputs)}, tokens]")
    given: dict[str, Array] = {_SOURCE: inputs, "decoder_input_ids": begins.astype(np.int32)}
    if model_type != WHISPER:
        if mask is not None and mask.shape != inputs.shape:
            raise k.DefinitionError(f"attention_mask has shape {list(mask.shape)}; expected {list(inputs.shape)}, as input_ids")
        counted = (np.cumsum(inputs != attributes.pad_token_id, axis=1) > 0) if mask is None else mask
        given["encoder_attention_mask"] = counted.astype(np.int32)
    _check_graphs(encoder, decoder, given)
    kind = decoder.inputs[0].type
    whole = not (isinstance(kind, TensorType) and kind.shape is not None and len(kind.shape) == 2 and kind.shape[1] == 1)
    rows = np.repeat(given["decoder_input_ids"], prompt.copies, axis=0)
    return EncoderDecoder(node.run_graph, encoder, decoder, given, rows, prompt.copies, attributes.vocab_size, whole)


def _check_graphs(encoder: Graph, decoder: Graph, given: Mapping[str, Array]) -> None:
    names, made = encoder.declared_inputs(), len(encoder.outputs)
    if names[:1] != [_SOURCE] or not set(names) <= given.keys():
        raise k.DefinitionError(
            f"the encoder has inputs {names}; expected {', '.join(given)}, the last of which may be left out"
        )
    begins = "decoder_input_ids" in names
    states = made - 2 if begins else made
    layers, rest = divmod(states, 2 * _STATES if begins else _STATES)
    if layers < 1 or rest:
        shown = "logits, encoder_hidden_states, and 4 states" if begins else "2 states"
        raise k.DefinitionError(f"the encoder gives {made} outputs; expected {shown} per layer")
    taken = decoder.declared_inputs()
    named = {"input_ids", _SOURCE, "encoder_attention_mask", "encoder_hidden_states"} & set(taken)
    hidden = "encoder_hidden_states" in named
    unmasked = "encoder_attention_mask" in named and "encoder_attention_mask" not in given
    wrong = taken[:1] != ["input_ids"] or unmasked or (hidden and not begins)
    if wrong or len(taken) - len(named) != 2 * _STATES * layers or len(decoder.outputs) != 1 + _STATES * layers:
        raise k.DefinitionError(
            f"the decoder has inputs {taken} and {len(decoder.outputs)} outputs; expected input_ids, what it takes of the "
            f"encoder's, and {4 * layers} states, and logits and {2 * layers} states"
        )
