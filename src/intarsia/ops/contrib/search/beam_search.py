"""com.microsoft: BeamSearch and WhisperBeamSearch, over the models of `greedy_search`."""

from __future__ import annotations

from dataclasses import field
from typing import Any

import numpy as np

from intarsia.graph.dims import fresh_symbol
from intarsia.graph.dtypes import DType
from intarsia.graph.model import TensorType
from intarsia.lazy_dataclass import dataclass
from intarsia.ops.contrib.search.encoder_decoder import WHISPER, Prompt, SearchAttributes
from intarsia.ops.contrib.search.greedy_search import (
    DOMAIN,
    REASON,
    Model,
    Restrictions,
    Rules,
    SearchLengths,
    Timestamps,
    log_softmax,
    model_of,
    one,
)
from intarsia.ops.framework.parameter_groups import ParameterGroup
from intarsia.ops.framework.registry import NodeContext, host_op
from intarsia.primitives import lang as k
from intarsia.run_status import next_trip

Array = np.ndarray
_NEVER = np.float32(-1e9)  # score of the beams that are equal to the first one when a search begins
_TIMESTAMPS = 1  # value of logits_processor


@dataclass
class Hypotheses:
    """The best ended sequences of one prompt, with scores: the sum of log probabilities by length^penalty."""

    count: int
    penalty: float
    early: bool
    found: list[tuple[float, Array]] = field(default_factory=list)
    done: bool = False

    def add(self, total: float, tokens: Array) -> None:
        self.found.append((_penalised(total, len(tokens), self.penalty), tokens))
        self.found.sort(key=lambda pair: -pair[0])
        del self.found[self.count :]

    def settle(self, best: float, length: int) -> None:
        """No more can be found once there are enough and the best open beam is not better than the worst of them."""
        if len(self.found) >= self.count:
            self.done = self.done or self.early or self.found[-1][0] >= _penalised(best, length, self.penalty)


def _penalised(total: float, length: int, penalty: float) -> float:
    """total / length^penalty, which any penalty may make infinite or NaN."""
    with np.errstate(all="ignore"):
        return float(np.float64(total) / np.float64(length) ** penalty)


def _beam_types(input_ids: TensorType, *others: Any) -> tuple[TensorType, ...]:
    batch = fresh_symbol("batch") if input_ids.shape is None else input_ids.shape[0]
    returned, beams, vocabulary = fresh_symbol("returned"), fresh_symbol("beams"), fresh_symbol("vocabulary")
    return (
        TensorType(DType.INT32, (batch, returned, fresh_symbol("length"))), TensorType(DType.FLOAT, (batch, returned)),
        TensorType(DType.FLOAT, (fresh_symbol("steps"), batch, beams, vocabulary)),
    )  # fmt: skip


@dataclass(frozen=True)
class BeamNumbers(ParameterGroup):
    """How many sequences are searched and returned for each prompt, and by which power of its length a score is divided."""

    num_beams: Array | None = None
    num_return_sequences: Array | None = None
    length_penalty: Array | None = None

    @property
    def returned(self) -> int:
        return int(one(self.num_return_sequences, 1))

    @property
    def count(self) -> int:
        """The number of beams. Raises DefinitionError where there are fewer than are returned."""
        beams, returned = int(one(self.num_beams, 1)), self.returned
        if beams < 1 or not 1 <= returned <= beams:
            raise k.DefinitionError(
                f"num_beams is {beams} and num_return_sequences {returned}; expected 1 <= returned <= beams"
            )
        return beams


@dataclass(frozen=True)
class DecoderInputs(ParameterGroup):
    """Which tokens of the prompt count, what the decoder begins with, and whether the scores go through more rules."""

    attention_mask: Array | None = None
    decoder_input_ids: Array | None = None
    logits_processor: Array | None = None

    def prompt(self, input_ids: Array, copies: int) -> Prompt:
        return Prompt(input_ids, self.attention_mask, self.decoder_input_ids, copies)


@dataclass(frozen=True)
class BeamAttributes(SearchAttributes):
    """Those of a search; `early_stopping` ends it when enough sequences have ended."""

    early_stopping: int = 0


@host_op("BeamSearch", 1, domain=DOMAIN, infer=_beam_types, reason=REASON)
def beam_search(
    input_ids: Array, lengths: SearchLengths, beams: BeamNumbers, restrictions: Restrictions, begun: DecoderInputs, *,
    attributes: BeamAttributes, node: NodeContext,
) -> tuple[Array, Array, Array]:  # fmt: skip
    """The best sequences [batch, returned, max_length] of `num_beams` beams, their scores, and all steps' scores."""
    rules, model_type = restrictions.rules(attributes, lengths), attributes.model_type
    if one(begun.logits_processor, 0):
        raise k.DefinitionError("logits_processor is not 0; expected it of WhisperBeamSearch, which knows its tokens")
    if model_type != WHISPER and begun.decoder_input_ids is not None:
        raise k.DefinitionError(f"decoder_input_ids is for models of type {WHISPER} (Whisper); model_type is {model_type}")
    model = model_of(node, attributes, begun.prompt(input_ids, beams.count), lengths.most)
    search = _Beams(model, rules, beams, attributes)
    steps = search.run(lengths.most)
    sequences, scores = search.best(beams.returned, lengths.most)
    return sequences, scores, steps


def _whisper_types(input_ids: TensorType, *others: Any) -> tuple[TensorType | None, ...]:
    batch = fresh_symbol("batch") if input_ids.shape is None else input_ids.shape[0]
    return (*_beam_types(input_ids), None, TensorType(DType.FLOAT, (batch,)))


@dataclass(frozen=True)
class WhisperInputs(DecoderInputs):
    """Those of a decoder, and what WhisperBeamSearch has besides."""

    cross_qk_layer_head: Array | None = None
    extra_decoding_ids: Array | None = None
    temperature: Array | None = None


@dataclass(frozen=True)
class WhisperAttributes(BeamAttributes):
    """Those of a search by beams, and Whisper's tokens."""

    model_type: int = WHISPER
    beginning_timestamp_token_id: int = -1
    decoder_output_cross_qk: int = 0
    no_speech_token_id: int = -1
    no_timestamps_token_id: int = -1
    start_of_lm_token_id: int = -1
    transcribe_token_id: int = -1
    translate_token_id: int = -1

    @property
    def timestamps(self) -> Timestamps:
        """The rules of timestamps. Raises DefinitionError without the token that they begin with."""
        if self.beginning_timestamp_token_id < 0:
            raise k.DefinitionError("logits_processor is 1; expected the attribute beginning_timestamp_token_id")
        return Timestamps(
            self.beginning_timestamp_token_id, (self.no_timestamps_token_id, self.start_of_lm_token_id),
            (self.decoder_start_token_id, self.translate_token_id, self.transcribe_token_id),
        )  # fmt: skip


@host_op("WhisperBeamSearch", 1, domain=DOMAIN, infer=_whisper_types, reason=REASON)
def whisper_beam_search(
    input_ids: Array, lengths: SearchLengths, beams: BeamNumbers, restrictions: Restrictions, begun: WhisperInputs, *,
    attributes: WhisperAttributes, node: NodeContext,
) -> tuple[Array | None, ...]:  # fmt: skip
    """As BeamSearch, of features [batch, size, frames]; logits_processor 1 requests Whisper's rules of timestamps.

    Returns:
        sequences, their scores, all steps' scores, no cross_qk, and the probability of `no_speech_token_id` at first [batch].
    """
    if attributes.decoder_output_cross_qk or (len(node.wanted) > 3 and node.wanted[3]):
        raise k.DefinitionError("output cross_qk is not computed; leave it out, and decoder_output_cross_qk 0")
    rules = restrictions.rules(attributes, lengths)
    rules.temperature = one(begun.temperature, 1.0)
    if one(begun.logits_processor, 0) == _TIMESTAMPS:
        rules.timestamps = attributes.timestamps
    model = model_of(node, attributes, begun.prompt(input_ids, beams.count), lengths.most)
    search = _Beams(model, rules, beams, attributes)
    steps = search.run(lengths.most)
    sequences, scores = search.best(beams.returned, lengths.most)
    return sequences, scores, steps, None, search.silence(attributes.no_speech_token_id)


class _Beams:
    def __init__(self, model: Model, rules: Rules, numbers: BeamNumbers, attributes: BeamAttributes) -> None:
        beams, penalty, early = numbers.count, one(numbers.length_penalty, 1.0), bool(attributes.early_stopping)
        self.model, self.rules, self.beams, self.pad = model, rules, beams, attributes.pad_token_id
        self.sequences = model.ids.copy()
        self.first = np.zeros((0, 0), np.float32)  # log probabilities of the first step
        batch = len(self.sequences) // beams
        self.prompts = [Hypotheses(beams, penalty, early) for _ in range(batch)]
        self.scores = np.tile(np.where(np.arange(beams) == 0, np.float32(0), _NEVER), batch)

    def run(self, limit: int) -> Array:
        """All steps; their scores [limit - prompt, batch, beams, vocabulary], zeros for steps that were not needed."""
        shown: list[Array] = []
        count = limit - self.sequences.shape[1]
        while True:
            next_trip()
            probabilities = log_softmax(self.model.logits())
            if not shown:
                self.first = probabilities[:: self.beams]
            scores = self.rules.apply(probabilities, self.sequences, self.beams)
            with np.errstate(over="ignore"):  # of what must not be: -inf is as good
                scores = scores + self.scores[:, None]
            shown.append(scores.reshape(len(self.prompts), self.beams, -1))
            rows, tokens = self._advance(scores)
            self.sequences = np.concatenate([self.sequences[rows], tokens[:, None]], 1)
            if self.sequences.shape[1] >= limit or all(p.done for p in self.prompts):
                break
            self.model.reorder(rows)
            self.model.append(tokens)
        steps = np.zeros((count, *shown[0].shape), np.float32)
        steps[: len(shown)] = shown
        return steps

    def silence(self, token: int) -> Array:
        """The probability of a token at the first step [batch]; 0 where it is none."""
        known = 0 <= token < self.first.shape[1]
        return np.exp(self.first[:, token]) if known else np.zeros(len(self.first), np.float32)

    def _advance(self, scores: Array) -> tuple[Array, Array]:
        """Which rows go on, and with which tokens; ended sequences are stored as hypotheses."""
        vocabulary, rows, tokens = scores.shape[1], [], []
        if vocabulary < 2:  # each beam has at most one that ends it, and then as many others as there are beams
            raise k.DefinitionError(f"the vocabulary has {vocabulary} tokens; expected at least 2")
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
