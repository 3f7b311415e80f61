"""com.microsoft: GreedySearch and Sampling (BeamSearch: `beam_search`): a model runs until every sequence has ended.

A decoder alone takes input_ids, position_ids and attention_mask (int32, [rows, tokens]) and a past
[2, rows, heads, tokens, size] per layer, and returns logits [rows, tokens, vocabulary] and as many presents, as GPT-2 is
exported for onnxruntime.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from intarsia.graph.dims import fresh_symbol
from intarsia.graph.dtypes import DType
from intarsia.graph.model import Graph, TensorType
from intarsia.lazy_dataclass import dataclass
from intarsia.ops.contrib.search.encoder_decoder import (
    T5,
    WHISPER,
    EncoderDecoder,
    Prompt,
    SearchAttributes,
    encoder_decoder_of,
)
from intarsia.ops.contrib.search.subgraph_results import check_states, last_logits
from intarsia.ops.framework.parameter_groups import ParameterGroup
from intarsia.ops.framework.registry import NodeContext, host_op
from intarsia.primitives import lang as k
from intarsia.run_status import next_trip

DOMAIN = "com.microsoft"
Array = np.ndarray
REASON = "runs a subgraph, as often as data says"
_LOWEST = np.finfo(np.float32).min


# --- the model ------------------------------------------------------------------------------------------------------


@dataclass
class Decoder:
    """The model with its state: what it has seen of every row."""

    run: Callable[[Graph, Sequence[Any]], list[Any]]
    graph: Graph
    first: Graph
    ids: Array
    mask: Array
    positions: Array
    pasts: list[Array]
    vocabulary: int
    started: bool = False

    def logits(self) -> Array:
        """Of the token after the last one, [rows, vocabulary] float32."""
        graph = self.graph if self.started else self.first
        out = self.run(graph, [self.ids, self.positions, self.mask, *self.pasts])
        self.started = True
        self.pasts = check_states(out[1:], "the decoder", len(self.ids), axis=1)
        return last_logits(out[0], "the decoder", len(self.ids), self.vocabulary)

    def append(self, tokens: Array) -> None:
        self.ids = tokens.astype(np.int32)[:, None]
        self.positions = self.positions[:, -1:] + np.int32(1)
        self.mask = np.concatenate([self.mask, np.ones((len(self.mask), 1), np.int32)], 1)

    def reorder(self, rows: Array) -> None:
        """Every row goes on with the state of row `rows[i]`."""
        self.pasts = [np.take(past, rows, axis=1) for past in self.pasts]


def decoder_of(node: NodeContext, attributes: SearchAttributes, prompt: Prompt) -> Decoder:
    """The model before its first run; every row `prompt.copies` times in a row."""
    graph, ids, given, copies = attributes.decoder, prompt.inputs, prompt.mask, prompt.copies
    if node.run_graph is None:
        raise k.DefinitionError("a subgraph cannot be run here: no runner was given")
    names = graph.declared_inputs()
    pasts = graph.inputs[3:]
    if len(names) < 4 or len(graph.outputs) != len(pasts) + 1:
        raise k.DefinitionError(
            f"the decoder has inputs {names} and {len(graph.outputs)} outputs; expected input_ids, position_ids, "
            "attention_mask and pasts, and logits and as many presents"
        )
    if given is not None and given.shape != ids.shape:
        raise k.DefinitionError(f"attention_mask has shape {list(given.shape)}; expected {list(ids.shape)}, as input_ids")
    own = (np.cumsum(ids != attributes.pad_token_id, axis=1) > 0).astype(np.int32)  # padding stands on the left
    positions = np.maximum(np.cumsum(own, axis=1) - 1, 0).astype(np.int32)
    mask = own if given is None else given.astype(np.int32)
    rows = [np.repeat(x, copies, axis=0) for x in (ids.astype(np.int32), mask, positions)]
    empty = [_empty_past(v.type, len(ids) * copies, v.name) for v in pasts]
    first = attributes.init_decoder or graph
    return Decoder(node.run_graph, graph, first, rows[0], rows[1], rows[2], empty, attributes.vocab_size)


def _empty_past(kind: Any, rows: int, name: str) -> Array:
    if not isinstance(kind, TensorType) or kind.shape is None or len(kind.shape) != 5:
        raise k.DefinitionError(f"the decoder's past {name!r} is a {kind}; expected [2, rows, heads, tokens, size]")
    heads, size = kind.shape[2], kind.shape[4]
    if not isinstance(heads, int) or not isinstance(size, int):
        raise k.DefinitionError(f"the decoder's past {name!r} must have known numbers of heads and sizes, got {kind}")
    return np.zeros((2, rows, heads, 0, size), kind.dtype.numpy)


# --- scores ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Timestamps:
    """Whisper's rules: timestamps come in pairs, but for the first, and never go back. Tokens from `begin` on are timestamps.

    Attributes:
        never: tokens that are not drawn; later: tokens that are not once there is a timestamp and something behind it.
        initial: how far the first timestamp may be from `begin`.
    """

    begin: int
    never: tuple[int, ...]
    later: tuple[int, ...]
    initial: int = 50

    def apply(self, scores: Array, tokens: Array, eos: int) -> None:
        """Scores [vocabulary] of the token behind `tokens`, changed in place."""
        stamps = tokens[tokens >= self.begin]
        begun = int(np.argmax(tokens >= self.begin)) + 1 if len(stamps) else len(tokens)  # tokens up to the first timestamp
        _forbid(scores, self.never)
        if len(tokens) > begun:
            _forbid(scores, self.later)
        last = bool(tokens[-1] >= self.begin)
        before = len(tokens) <= begun or bool(tokens[-2] >= self.begin)
        if last and before:
            scores[self.begin :] = _LOWEST
        elif last:
            scores[:eos] = _LOWEST
        if len(stamps):
            scores[self.begin : int(stamps[-1]) + (not last or before)] = _LOWEST
        if len(tokens) == begun:
            scores[self.begin + self.initial + 1 :] = _LOWEST
        if self.begin < len(scores) and np.logaddexp.reduce(scores[self.begin :]) > scores[: self.begin].max(initial=-np.inf):
            scores[: self.begin] = _LOWEST  # some timestamp is more probable than any word


def _forbid(scores: Array, tokens: Sequence[int]) -> None:
    scores[_known(tokens, len(scores))] = _LOWEST


def _known(tokens: Array | Sequence[int], vocabulary: int) -> Array:
    """Those of tokens that the vocabulary has."""
    given = np.asarray(tokens, np.int64)
    return given[(given >= 0) & (given < vocabulary)]


@dataclass
class Rules:
    """What is done to the scores of the next token, in this order; each only where its option is given."""

    eos: int
    repetition_penalty: float = 1.0
    ngram: int = 0
    vocabulary: Array | None = None
    first_vocabulary: Array | None = None
    minimum: int = 0
    temperature: float = 1.0
    presence_penalty: float = 0.0
    presence: Array | None = None
    timestamps: Timestamps | None = None
    step: int = 0
    width: int = 0  # of the vocabulary, once it is known

    @np.errstate(all="ignore")  # a model may ask for penalties, and give scores, that are no numbers
    def apply(self, scores: Array, sequences: Array, copies: int = 1) -> Array:
        """Scores [rows, vocabulary] for `sequences` [rows, tokens], of which `copies` in a row belong to one prompt.

        Raises:
            DefinitionError: a mask is not of as many tokens, or not of as many prompts; the vocabulary is another than before.
        """
        scores = scores.copy()
        rows, vocabulary = scores.shape
        self._check_sizes(rows, vocabulary, copies)
        for row, tokens in zip(scores, sequences, strict=True):
            if self.repetition_penalty != 1.0:
                seen = np.unique(_known(tokens, len(row)))
                row[seen] = np.where(row[seen] < 0, row[seen] * self.repetition_penalty, row[seen] / self.repetition_penalty)
            if self.ngram > 0:
                row[_known(_repeats(tokens, self.ngram), len(row))] = _LOWEST
        if self.vocabulary is not None:
            scores[:, self.vocabulary.reshape(-1) == 0] = _LOWEST
        if self.first_vocabulary is not None and self.step == 0:
            scores[np.repeat(self.first_vocabulary, copies, axis=0) == 0] = _LOWEST
        if sequences.shape[1] < self.minimum:
            scores[:, _known([self.eos], scores.shape[1])] = _LOWEST
        if self.temperature not in (0.0, 1.0):
            scores /= np.float32(self.temperature)
        if self.presence_penalty and self.presence is not None:
            scores -= np.float32(self.presence_penalty) * self.presence.astype(np.float32)
        if self.timestamps is not None:
            for row, tokens in zip(scores, sequences, strict=True):
                self.timestamps.apply(row, tokens, self.eos)
        self.step += 1
        return scores

    def _check_sizes(self, rows: int, vocabulary: int, copies: int) -> None:
        if self.width not in (0, vocabulary):
            raise k.DefinitionError(f"step {self.step}: logits are of {vocabulary} tokens; expected {self.width}, as before")
        self.width, prompts = vocabulary, rows // copies
        for name, mask, shape in (
            ("vocab_mask", self.vocabulary, (vocabulary,)), ("presence_mask", self.presence, (rows, vocabulary)),
            ("prefix_vocab_mask", self.first_vocabulary, (prompts, vocabulary)),
        ):  # fmt: skip
            if mask is not None and mask.shape != shape and not (name == "vocab_mask" and mask.size == vocabulary):
                raise k.DefinitionError(f"{name} has shape {list(mask.shape)}; expected {list(shape)}: [prompts, vocabulary]")


def _repeats(tokens: Array, n: int) -> list[int]:
    """The tokens that would end an n-gram which `tokens` already has."""
    if len(tokens) < n:
        return []
    tail = tokens[len(tokens) - n + 1 :]
    starts = range(len(tokens) - n + 1)
    return [int(tokens[i + n - 1]) for i in starts if np.array_equal(tokens[i : i + n - 1], tail)]


@np.errstate(all="ignore")  # of scores that are no numbers
def log_softmax(x: Array) -> Array:
    shifted = x - x.max(-1, keepdims=True)
    return np.asarray(shifted - np.log(np.exp(shifted).sum(-1, keepdims=True)))


def one(x: Array | None, default: float) -> float:
    """The number that an operand of one element is."""
    if x is None:
        return default
    if not x.size:
        raise k.DefinitionError(f"an operand of one number has shape {list(x.shape)}; expected [1]")
    return float(x.reshape(-1)[0])


Model = Decoder | EncoderDecoder


def model_of(node: NodeContext, attributes: SearchAttributes, prompt: Prompt, limit: int) -> Model:
    """The model before its first run, for sequences of at most `limit` tokens; see `decoder_of` and `encoder_decoder_of`.

    Raises:
        DefinitionError: its kind is none that is known, or the inputs do not fit it.
    """
    model_type, inputs = attributes.model_type, prompt.inputs
    if model_type not in (0, T5, WHISPER):
        raise k.DefinitionError(f"model_type is {model_type}; expected 0 (a decoder), 1 (T5) or 2 (Whisper)")
    rank = 3 if model_type == WHISPER else 2
    if inputs.ndim != rank or not inputs.size:
        expected = "[batch, size, frames]" if model_type == WHISPER else "[batch, tokens]"
        raise k.DefinitionError(f"input_ids has shape {list(inputs.shape)}; expected {expected}")
    model: Model
    if model_type == 0:
        if attributes.encoder is not None:
            raise k.DefinitionError("model_type is 0, a decoder without an encoder; expected no attribute encoder")
        model = decoder_of(node, attributes, prompt)
    else:
        model = encoder_decoder_of(node, attributes, prompt)
    if limit <= model.ids.shape[1]:
        raise k.DefinitionError(
            f"max_length is {limit}; expected more than the {model.ids.shape[1]} tokens that it begins with"
        )
    return model


# --- one token at a time --------------------------------------------------------------------------------------------


def _sequences_type(input_ids: TensorType, *others: Any) -> TensorType:
    batch = fresh_symbol("batch") if input_ids.shape is None else input_ids.shape[0]
    return TensorType(DType.INT32, (batch, fresh_symbol("length")))


def _search(model: Model, rules: Rules, limit: int, pad: int, choose: Callable[[Array], Array]) -> Array:
    """Sequences [rows, limit] of the tokens that `choose` takes from the scores; the end and what follows it are padding."""
    sequences = model.ids.copy()
    ended = np.zeros(len(sequences), bool)
    while True:
        next_trip()
        tokens = choose(rules.apply(model.logits(), sequences)).astype(np.int32)
        ended |= tokens == rules.eos
        tokens[ended] = pad
        sequences = np.concatenate([sequences, tokens[:, None]], 1)
        if ended.all() or sequences.shape[1] >= limit:
            break
        model.append(tokens)
    rest = np.full((len(sequences), limit - sequences.shape[1]), pad, np.int32)
    return np.concatenate([sequences, rest], 1)


@dataclass(frozen=True)
class SearchLengths(ParameterGroup):
    """How many tokens a sequence has at most, and at least before it may end."""

    max_length: Array
    min_length: Array | None = None

    @property
    def most(self) -> int:
        return int(one(self.max_length, 0))


@dataclass(frozen=True)
class Restrictions(ParameterGroup):
    """What makes tokens less probable, or forbids them: [vocabulary], and [prompts, vocabulary] of the first token."""

    repetition_penalty: Array | None = None
    vocab_mask: Array | None = None
    prefix_vocab_mask: Array | None = None

    def rules(self, attributes: SearchAttributes, lengths: SearchLengths) -> Rules:
        """What is done to the scores by these, and by the attributes."""
        return Rules(
            attributes.eos_token_id, one(self.repetition_penalty, 1.0), attributes.no_repeat_ngram_size, self.vocab_mask,
            self.prefix_vocab_mask, int(one(lengths.min_length, 0)),
        )  # fmt: skip


@host_op("GreedySearch", 1, domain=DOMAIN, infer=_sequences_type, reason=REASON)
def greedy_search(
    input_ids: Array, lengths: SearchLengths, restrictions: Restrictions, attention_mask: Array | None = None, *,
    attributes: SearchAttributes, node: NodeContext,
) -> Array:  # fmt: skip
    """The most probable token at every step: sequences [batch, max_length]."""
    rules = restrictions.rules(attributes, lengths)
    model = model_of(node, attributes, Prompt(input_ids, attention_mask), lengths.most)
    return _search(model, rules, lengths.most, attributes.pad_token_id, lambda scores: scores.argmax(1))


def _sampling_types(input_ids: TensorType, *others: Any) -> tuple[TensorType, TensorType]:
    sequences = _sequences_type(input_ids)
    assert sequences.shape is not None
    return sequences, TensorType(DType.FLOAT, (sequences.shape[0], fresh_symbol("vocabulary")))


@dataclass(frozen=True)
class Draws(ParameterGroup):
    """Which tokens are made less probable, [rows, vocabulary], and where random numbers start."""

    presence_mask: Array | None = None
    seed: Array | None = None


@dataclass(frozen=True)
class SamplingAttributes(SearchAttributes):
    """Those of a search, and which tokens may be drawn."""

    custom: int = 0
    filter_value: float = -1e20
    min_tokens_to_keep: int = 0
    presence_penalty: float = 0.0
    temperature: float = 1.0
    top_p: float = 0.0


@host_op("Sampling", 1, domain=DOMAIN, infer=_sampling_types, reason=REASON, deterministic=False)
def sampling(
    input_ids: Array, lengths: SearchLengths, restrictions: Restrictions, attention_mask: Array | None, draws: Draws, *,
    attributes: SamplingAttributes, node: NodeContext,
) -> tuple[Array, Array]:  # fmt: skip
    """A token drawn at every step from the most probable ones, whose probabilities add up to `top_p`.

    Returns:
        sequences [batch, max_length], and the last step's logits with `filter_value` for tokens that could not be drawn.
    """
    rules = restrictions.rules(attributes, lengths)
    rules.temperature = attributes.temperature
    rules.presence_penalty, rules.presence = attributes.presence_penalty, draws.presence_mask
    generator = np.random.default_rng(None if draws.seed is None else int(one(draws.seed, 0)) & 0xFFFFFFFF)
    last: list[Array] = []

    def draw(scores: Array) -> Array:
        filtered_scores = filtered(scores, attributes.top_p, max(attributes.min_tokens_to_keep, 1), attributes.filter_value)
        last[:] = [filtered_scores]
        return np.asarray((log_softmax(filtered_scores) + generator.gumbel(size=filtered_scores.shape)).argmax(1))

    model = model_of(node, attributes, Prompt(input_ids, attention_mask), lengths.most)
    return _search(model, rules, lengths.most, attributes.pad_token_id, draw), last[0]


def filtered(scores: Array, top_p: float, least: int, value: float) -> Array:
    """Scores, with `value` for all but the best ones, at least `least`, whose probabilities reach `top_p` together."""
    if not 0.0 < top_p < 1.0:
        return scores
    order = np.argsort(-scores, axis=1, kind="stable")
    probabilities = np.exp(log_softmax(np.take_along_axis(scores, order, 1)))
    before = np.cumsum(probabilities, axis=1) - probabilities
    dropped = (before >= top_p) & (np.arange(scores.shape[1]) >= least)
    out = scores.copy()
    np.put_along_axis(out, order, np.where(dropped, np.float32(value), np.take_along_axis(scores, order, 1)), 1)
    return out
