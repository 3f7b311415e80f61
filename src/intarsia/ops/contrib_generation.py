"""com.microsoft: GreedySearch, Sampling and BeamSearch: a decoder-only model runs until every sequence has ended.

The subgraph takes input_ids, position_ids and attention_mask (int32, [rows, tokens]) and a past [2, rows, heads, tokens, size]
per layer, and returns logits [rows, tokens, vocabulary] and as many presents (the convention of onnxruntime's GPT-2 export).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from intarsia.graph.dims import fresh_symbol
from intarsia.graph.dtypes import DType
from intarsia.graph.model import Graph, TensorType
from intarsia.kernel import lang as k
from intarsia.ops.registry import NodeContext, host_op

DOMAIN = "com.microsoft"
Array = np.ndarray
_REASON = "runs a subgraph, as often as data says"
_LOWEST = np.finfo(np.float32).min
_NEVER = np.float32(-1e9)  # score of the beams that are equal to the first one when a search begins


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
        self.pasts = [np.asarray(x) for x in out[1:]]
        last = np.asarray(out[0])[:, -1]
        return last[:, : self.vocabulary if self.vocabulary > 0 else None].astype(np.float32)

    def append(self, tokens: Array) -> None:
        self.ids = tokens.astype(np.int32)[:, None]
        self.positions = self.positions[:, -1:] + np.int32(1)
        self.mask = np.concatenate([self.mask, np.ones((len(self.mask), 1), np.int32)], 1)

    def reorder(self, rows: Array) -> None:
        """Every row goes on with the state of row `rows[i]`."""
        self.pasts = [np.take(past, rows, axis=1) for past in self.pasts]


def decoder_of(
    node: NodeContext,
    graph: Graph,
    first: Graph | None,
    ids: Array,
    given: Array | None,
    pad: int,
    copies: int,
    vocabulary: int,
) -> Decoder:
    """The model before its first run; every row `copies` times in a row."""
    if node.run_graph is None:
        raise k.DefinitionError("a subgraph cannot be run here: no runner was given")
    names = [v.name for v in graph.inputs]
    pasts = graph.inputs[3:]
    if len(names) < 4 or len(graph.outputs) != len(pasts) + 1:
        raise k.DefinitionError(
            f"the decoder has inputs {names} and {len(graph.outputs)} outputs; expected input_ids, position_ids, "
            "attention_mask and pasts, and logits and as many presents"
        )
    own = (np.cumsum(ids != pad, axis=1) > 0).astype(np.int32)  # padding stands on the left
    positions = np.maximum(np.cumsum(own, axis=1) - 1, 0).astype(np.int32)
    mask = own if given is None else given.astype(np.int32)
    rows = [np.repeat(x, copies, axis=0) for x in (ids.astype(np.int32), mask, positions)]
    empty = [_empty_past(v.type, len(ids) * copies, v.name) for v in pasts]
    return Decoder(node.run_graph, graph, first or graph, rows[0], rows[1], rows[2], empty, vocabulary)


def _empty_past(kind: Any, rows: int, name: str) -> Array:
    if not isinstance(kind, TensorType) or kind.shape is None or len(kind.shape) != 5:
        raise k.DefinitionError(f"the decoder's past {name!r} is a {kind}; expected [2, rows, heads, tokens, size]")
    heads, size = kind.shape[2], kind.shape[4]
    if not isinstance(heads, int) or not isinstance(size, int):
        raise k.DefinitionError(f"the decoder's past {name!r} must have known numbers of heads and sizes, got {kind}")
    return np.zeros((2, rows, heads, 0, size), kind.dtype.numpy)


# --- scores ---------------------------------------------------------------------------------------------------------


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
    step: int = 0

    def apply(self, scores: Array, sequences: Array, copies: int = 1) -> Array:
        """Scores [rows, vocabulary] for `sequences` [rows, tokens], of which `copies` in a row belong to one prompt."""
        scores = scores.copy()
        for row, tokens in zip(scores, sequences, strict=True):
            if self.repetition_penalty != 1.0:
                seen = np.unique(tokens)
                row[seen] = np.where(row[seen] < 0, row[seen] * self.repetition_penalty, row[seen] / self.repetition_penalty)
            if self.ngram > 0:
                row[_repeats(tokens, self.ngram)] = _LOWEST
        if self.vocabulary is not None:
            scores[:, self.vocabulary.reshape(-1) == 0] = _LOWEST
        if self.first_vocabulary is not None and self.step == 0:
            scores[np.repeat(self.first_vocabulary, copies, axis=0) == 0] = _LOWEST
        if sequences.shape[1] < self.minimum:
            scores[:, self.eos] = _LOWEST
        if self.temperature not in (0.0, 1.0):
            scores /= np.float32(self.temperature)
        if self.presence_penalty and self.presence is not None:
            scores -= np.float32(self.presence_penalty) * self.presence.astype(np.float32)
        self.step += 1
        return scores


def _repeats(tokens: Array, n: int) -> list[int]:
    """The tokens that would end an n-gram which `tokens` already has."""
    if len(tokens) < n:
        return []
    tail = tokens[len(tokens) - n + 1 :]
    starts = range(len(tokens) - n + 1)
    return [int(tokens[i + n - 1]) for i in starts if np.array_equal(tokens[i : i + n - 1], tail)]


def _log_softmax(x: Array) -> Array:
    shifted = x - x.max(-1, keepdims=True)
    return np.asarray(shifted - np.log(np.exp(shifted).sum(-1, keepdims=True)))


def _one(x: Array | None, default: float) -> float:
    return default if x is None else float(np.asarray(x).reshape(-1)[0])


def _check(model_type: int, encoder: Graph | None, ids: Array, limit: int) -> None:
    if model_type != 0 or encoder is not None:
        raise k.DefinitionError(f"model_type is {model_type}; expected 0, a decoder without an encoder")
    if ids.ndim != 2 or not ids.size:
        raise k.DefinitionError(f"input_ids has shape {list(ids.shape)}; expected [batch, tokens]")
    if limit <= ids.shape[1]:
        raise k.DefinitionError(f"max_length is {limit}; expected more than the {ids.shape[1]} tokens of input_ids")


# --- one token at a time --------------------------------------------------------------------------------------------


def _sequences_type(input_ids: TensorType, *others: Any) -> TensorType:
    batch = fresh_symbol("batch") if input_ids.shape is None else input_ids.shape[0]
    return TensorType(DType.INT32, (batch, fresh_symbol("length")))


def _search(model: Decoder, rules: Rules, limit: int, pad: int, choose: Callable[[Array], Array]) -> Array:
    """Sequences [rows, limit] of the tokens that `choose` takes from the scores; the end and what follows it are padding."""
    sequences = model.ids.copy()
    ended = np.zeros(len(sequences), bool)
    while True:
        tokens = choose(rules.apply(model.logits(), sequences)).astype(np.int32)
        ended |= tokens == rules.eos
        tokens[ended] = pad
        sequences = np.concatenate([sequences, tokens[:, None]], 1)
        if ended.all() or sequences.shape[1] >= limit:
            break
        model.append(tokens)
    rest = np.full((len(sequences), limit - sequences.shape[1]), pad, np.int32)
    return np.concatenate([sequences, rest], 1)


@host_op("GreedySearch", 1, domain=DOMAIN, infer=_sequences_type, reason=_REASON)
def greedy_search(
    input_ids: Array, max_length: Array, min_length: Array | None = None, repetition_penalty: Array | None = None,
    vocab_mask: Array | None = None, prefix_vocab_mask: Array | None = None, attention_mask: Array | None = None, *,
    decoder: Graph, decoder_start_token_id: int = -1, encoder: Graph | None = None, eos_token_id: int,
    init_decoder: Graph | None = None, model_type: int = 0, no_repeat_ngram_size: int = 0, pad_token_id: int,
    vocab_size: int = -1, node: NodeContext,
) -> Array:  # fmt: skip
    """The most probable token at every step: sequences [batch, max_length]."""
    limit = int(_one(max_length, 0))
    _check(model_type, encoder, input_ids, limit)
    rules = Rules(
        eos_token_id,
        _one(repetition_penalty, 1.0),
        no_repeat_ngram_size,
        vocab_mask,
        prefix_vocab_mask,
        int(_one(min_length, 0)),
    )
    model = decoder_of(node, decoder, init_decoder, input_ids, attention_mask, pad_token_id, 1, vocab_size)
    return _search(model, rules, limit, pad_token_id, lambda scores: scores.argmax(1))


def _sampling_types(input_ids: TensorType, *others: Any) -> tuple[TensorType, TensorType]:
    sequences = _sequences_type(input_ids)
    assert sequences.shape is not None
    return sequences, TensorType(DType.FLOAT, (sequences.shape[0], fresh_symbol("vocabulary")))


@host_op("Sampling", 1, domain=DOMAIN, infer=_sampling_types, reason=_REASON, deterministic=False)
def sampling(
    input_ids: Array, max_length: Array, min_length: Array | None = None, repetition_penalty: Array | None = None,
    vocab_mask: Array | None = None, prefix_vocab_mask: Array | None = None, attention_mask: Array | None = None,
    presence_mask: Array | None = None, seed: Array | None = None, *, custom: int = 0, decoder: Graph,
    decoder_start_token_id: int = -1, encoder: Graph | None = None, eos_token_id: int, filter_value: float = -1e20,
    init_decoder: Graph | None = None, min_tokens_to_keep: int = 0, model_type: int = 0, no_repeat_ngram_size: int = 0,
    pad_token_id: int, presence_penalty: float = 0.0, temperature: float = 1.0, top_p: float = 0.0, vocab_size: int = -1,
    node: NodeContext,
) -> tuple[Array, Array]:  # fmt: skip
    """A token drawn at every step from the most probable ones, whose probabilities add up to `top_p`.

    Returns:
        sequences [batch, max_length], and the last step's logits with `filter_value` for tokens that could not be drawn.
    """
    limit = int(_one(max_length, 0))
    _check(model_type, encoder, input_ids, limit)
    rules = Rules(
        eos_token_id, _one(repetition_penalty, 1.0), no_repeat_ngram_size, vocab_mask, prefix_vocab_mask,
        int(_one(min_length, 0)), temperature, presence_penalty, presence_mask,
    )  # fmt: skip
    generator = np.random.default_rng(None if seed is None else int(_one(seed, 0)) & 0xFFFFFFFF)
    last: list[Array] = []

    def draw(scores: Array) -> Array:
        kept = filtered(scores, top_p, max(min_tokens_to_keep, 1), filter_value)
        last[:] = [kept]
        return np.asarray((_log_softmax(kept) + generator.gumbel(size=kept.shape)).argmax(1))

    model = decoder_of(node, decoder, init_decoder, input_ids, attention_mask, pad_token_id, 1, vocab_size)
    return _search(model, rules, limit, pad_token_id, draw), last[0]


def filtered(scores: Array, top_p: float, least: int, value: float) -> Array:
    """Scores, with `value` for all but the best ones, at least `least`, whose probabilities reach `top_p` together."""
    if not 0.0 < top_p < 1.0:
        return scores
    order = np.argsort(-scores, axis=1, kind="stable")
    probabilities = np.exp(_log_softmax(np.take_along_axis(scores, order, 1)))
    before = np.cumsum(probabilities, axis=1) - probabilities
    dropped = (before >= top_p) & (np.arange(scores.shape[1]) >= least)
    out = scores.copy()
    np.put_along_axis(out, order, np.where(dropped, np.float32(value), np.take_along_axis(scores, order, 1)), 1)
    return out


# --- beams ----------------------------------------------------------------------------------------------------------


@dataclass
class Hypotheses:
    """The best ended sequences of one prompt, with scores: the sum of log probabilities by length^penalty."""

    count: int
    penalty: float
    early: bool
    found: list[tuple[float, Array]] = field(default_factory=list)
    done: bool = False

    def add(self, total: float, tokens: Array) -> None:
        self.found.append((total / len(tokens) ** self.penalty, tokens))
        self.found.sort(key=lambda pair: -pair[0])
        del self.found[self.count :]

    def settle(self, best: float, length: int) -> None:
        """No more can be found once there are enough and the best open beam is not better than the worst of them."""
        if len(self.found) >= self.count:
            self.done = self.done or self.early or self.found[-1][0] >= best / length**self.penalty


def _beam_types(input_ids: TensorType, *others: Any) -> tuple[TensorType, ...]:
    batch = fresh_symbol("batch") if input_ids.shape is None else input_ids.shape[0]
    returned, beams, vocabulary = fresh_symbol("returned"), fresh_symbol("beams"), fresh_symbol("vocabulary")
    return (
        TensorType(DType.INT32, (batch, returned, fresh_symbol("length"))), TensorType(DType.FLOAT, (batch, returned)),
        TensorType(DType.FLOAT, (fresh_symbol("steps"), batch, beams, vocabulary)),
    )  # fmt: skip


@host_op("BeamSearch", 1, domain=DOMAIN, infer=_beam_types, reason=_REASON)
def beam_search(
    input_ids: Array, max_length: Array, min_length: Array | None = None, num_beams: Array | None = None,
    num_return_sequences: Array | None = None, length_penalty: Array | None = None, repetition_penalty: Array | None = None,
    vocab_mask: Array | None = None, prefix_vocab_mask: Array | None = None, attention_mask: Array | None = None,
    decoder_input_ids: Array | None = None, logits_processor: Array | None = None, *, decoder: Graph,
    decoder_start_token_id: int = -1, early_stopping: int = 0, encoder: Graph | None = None, eos_token_id: int,
    init_decoder: Graph | None = None, model_type: int = 0, no_repeat_ngram_size: int = 0, pad_token_id: int,
    vocab_size: int = -1, node: NodeContext,
) -> tuple[Array, Array, Array]:  # fmt: skip
    """The best sequences [batch, returned, max_length] of `num_beams` beams, their scores, and all steps' scores."""
    limit = int(_one(max_length, 0))
    _check(model_type, encoder, input_ids, limit)
    beams, returned = int(_one(num_beams, 1)), int(_one(num_return_sequences, 1))
    if beams < 1 or not 1 <= returned <= beams:
        raise k.DefinitionError(f"num_beams is {beams} and num_return_sequences {returned}; expected 1 <= returned <= beams")
    if decoder_input_ids is not None or _one(logits_processor, 0):
        raise k.DefinitionError("decoder_input_ids and logits_processor are for encoder-decoder models")
    rules = Rules(
        eos_token_id,
        _one(repetition_penalty, 1.0),
        no_repeat_ngram_size,
        vocab_mask,
        prefix_vocab_mask,
        int(_one(min_length, 0)),
    )
    model = decoder_of(node, decoder, init_decoder, input_ids, attention_mask, pad_token_id, beams, vocab_size)
    search = _Beams(model, rules, beams, pad_token_id, _one(length_penalty, 1.0), bool(early_stopping))
    steps = search.run(limit)
    sequences, scores = search.best(returned, limit)
    return sequences, scores, steps


class _Beams:
    def __init__(self, model: Decoder, rules: Rules, beams: int, pad: int, penalty: float, early: bool) -> None:
        self.model, self.rules, self.beams, self.pad = model, rules, beams, pad
        self.sequences = model.ids.copy()
        batch = len(self.sequences) // beams
        self.prompts = [Hypotheses(beams, penalty, early) for _ in range(batch)]
        self.scores = np.tile(np.where(np.arange(beams) == 0, np.float32(0), _NEVER), batch)

    def run(self, limit: int) -> Array:
        """All steps; their scores [limit - prompt, batch, beams, vocabulary], zeros for steps that were not needed."""
        shown: list[Array] = []
        count = limit - self.sequences.shape[1]
        while True:
            scores = self.rules.apply(_log_softmax(self.model.logits()), self.sequences, self.beams)
            scores = scores + self.scores[:, None]
            shown.append(scores.reshape(len(self.prompts), self.beams, -1))
            rows, tokens = self._advance(scores)
            self.sequences = np.concatenate([self.sequences[rows], tokens[:, None]], 1)
            if self.sequences.shape[1] >= limit or all(p.done for p in self.prompts):
                break
            self.model.reorder(rows)
            self.model.append(tokens)
        shown += [np.zeros_like(shown[0])] * (count - len(shown))
        return np.stack(shown)

    def _advance(self, scores: Array) -> tuple[Array, Array]:
        """Which rows go on, and with which tokens; ended sequences are kept as hypotheses."""
        vocabulary, rows, tokens = scores.shape[1], [], []
        for i, prompt in enumerate(self.prompts):
            first = i * self.beams
            if prompt.done:
                rows += [first] * self.beams
                tokens += [self.pad] * self.beams
                self.scores[first : first + self.beams] = 0
                continue
            flat = scores[first : first + self.beams].reshape(-1)
            best = np.argsort(-flat, kind="stable")[: 2 * self.beams]
            chosen: list[int] = []
            for rank, at in enumerate(best):
                if at % vocabulary != self.rules.eos:
                    chosen.append(int(at))
                elif rank < self.beams:
                    prompt.add(float(flat[at]), self.sequences[first + at // vocabulary])
                if len(chosen) == self.beams:
                    break
            prompt.settle(float(flat[best[0]]), self.sequences.shape[1])
            rows += [first + at // vocabulary for at in chosen]
            tokens += [at % vocabulary for at in chosen]
            self.scores[first : first + self.beams] = flat[chosen]
        return np.array(rows), np.array(tokens, np.int32)

    def best(self, returned: int, limit: int) -> tuple[Array, Array]:
        """Sequences [batch, returned, limit] with padding behind their ends, and scores [batch, returned]."""
        sequences = np.full((len(self.prompts), returned, limit), self.pad, np.int32)
        scores = np.zeros((len(self.prompts), returned), np.float32)
        for i, prompt in enumerate(self.prompts):
            if not prompt.done:
                for row in range(i * self.beams, (i + 1) * self.beams):
                    prompt.add(float(self.scores[row]), self.sequences[row])
            for j, (score, tokens) in enumerate(prompt.found[:returned]):
                sequences[i, j, : len(tokens)] = tokens
                scores[i, j] = score
        return sequences, scores
