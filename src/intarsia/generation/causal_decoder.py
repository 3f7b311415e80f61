"""A decoder with its cache: tokens in, scores of the next ones out. What its other inputs are follows from their names."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from intarsia.errors import InvalidArgument
from intarsia.stateful.initial_state import element_dtype

if TYPE_CHECKING:
    from intarsia.model.signature import NodeArg
    from intarsia.stateful.stateful_session import StatefulSession

_TOKENS = ("input_ids", "decoder_input_ids", "tokens", "ids", "inputs")


class CausalDecoder:
    """One batch of texts on a decoder that keeps its own cache.

    Inputs are recognised by name: tokens ("input_ids"), "attention_mask", "position_ids", "cache_position",
    "use_cache_branch", "num_logits_to_keep" or "logits_to_keep", "token_type_ids", "seqlens_k", "total_sequence_length",
    "past_sequence_length". Everything else that is no state has to be given as `fixed`.

    Args:
        session: an `InferenceSession` of the decoder.
        max_length: how many tokens the cache may hold; None: any number.
        fixed: other inputs, the same in every step, such as an encoder's output.
        history: how many steps can be taken back where a state does not grow.

    Raises:
        InvalidArgument: the model has no states, no input of tokens, no output of scores, or an input that is not known.
    """

    def __init__(
        self, session: Any, *, max_length: int | None = None, fixed: dict[str, np.ndarray] | None = None, history: int = 0
    ) -> None:
        self.stream: StatefulSession = session.stateful(max_length=max_length, history=history)
        self.fixed = dict(fixed or {})
        inputs = {a.name: a for a in self.stream.get_inputs()}
        tokens = next((name for name in _TOKENS if name in inputs), None)
        if tokens is None:
            raise InvalidArgument(
                f"the decoder has no input of tokens: expected one of {list(_TOKENS)}, got {list(inputs)}"
                + (" (it takes embeddings, which another model of the folder makes)" if "inputs_embeds" in inputs else "")
            )
        self._tokens = inputs.pop(tokens)
        self._makers = [(a, _maker(a)) for a in inputs.values() if a.name not in self.fixed]
        self._mask = next((a for a, _ in self._makers if a.name == "attention_mask"), None)
        self._scores = _scores_name(self.stream.get_outputs())
        self.padding: np.ndarray | None = None  # places at the left of each row that are no tokens, [batch]

    @property
    def length(self) -> int:
        """How many tokens the cache has."""
        return self.stream.length

    @property
    def takes_padding(self) -> bool:
        """Whether rows may begin with places that are no tokens: GroupQueryAttention counts a row's tokens from the left."""
        graph = self.stream.session._engine.graph
        return self._mask is not None and all(node.op_type != "GroupQueryAttention" for node in graph().nodes)

    @property
    def can_rewind(self) -> bool:
        """Whether any number of tokens can be taken back."""
        return all(s.grows is not None for s in self.stream.states)

    def advance(self, tokens: np.ndarray, *, last: bool = True) -> np.ndarray:
        """Run on more tokens.

        Args:
            tokens: int64 [batch, count], behind those that the cache has.
            last: whether only the scores behind the last token are wanted.

        Returns:
            Scores of the next token: [batch, vocabulary], or [batch, count, vocabulary] where not only the last are wanted.
        """
        if tokens.shape[1] > 1 and self._tokens.shape[1:] == [1]:  # recurrent layers, exported for one token
            rows = [self.advance(tokens[:, i : i + 1]) for i in range(tokens.shape[1])]
            return rows[-1] if last else np.stack(rows, 1)
        step = Step(tokens.shape[0], tokens.shape[1], self.length, self.padding, last)
        feed = {a.name: make(step, a) for a, make in self._makers}
        feed[self._tokens.name] = tokens.astype(element_dtype(self._tokens), copy=False)
        scores: np.ndarray
        (scores,) = self.stream.run([self._scores], {**feed, **self.fixed})
        if scores.ndim == 2:
            return scores if last else scores[:, None]
        return scores[:, -1] if last else scores

    def begin(self, prompts: Sequence[Sequence[int]], *, fill: int = 0, last: bool = True) -> np.ndarray:
        """Begin anew with prompts, shorter ones padded at the left; the scores as of `advance`.

        Raises:
            InvalidArgument: a prompt is empty, or they are of unequal lengths and the model has no mask.
        """
        longest = max(map(len, prompts), default=0)
        if not prompts or min(map(len, prompts)) == 0:
            raise InvalidArgument("a prompt has no tokens: expected at least one")
        padding = np.array([longest - len(p) for p in prompts])
        if padding.any() and not self.takes_padding:
            raise InvalidArgument("prompts of unequal lengths: the decoder has no attention_mask; run them one by one")
        self.stream.reset()
        self.padding = padding if padding.any() else None
        return self.advance(np.array([[fill] * (longest - len(p)) + list(p) for p in prompts], np.int64), last=last)

    def reset(self) -> None:
        """Forget all tokens."""
        self.stream.reset()
        self.padding = None

    def rewind(self, count: int) -> None:
        """Forget the last tokens. Raises InvalidArgument as `StatefulSession.rewind`."""
        self.stream.rewind(count)

    def fork(self) -> Self:
        """Another text that goes on from here."""
        other = object.__new__(type(self))
        other.__dict__.update(self.__dict__)
        other.stream = self.stream.fork()
        return other

    def select_rows(self, rows: Sequence[int]) -> None:
        """Keep these rows of the batch, in this order; a row may be there several times."""
        self.stream.select_rows(rows)
        if self.padding is not None:
            self.padding = self.padding[list(rows)]


def common_length(left: Sequence[int], right: Sequence[int]) -> int:
    """How many tokens two lists begin with alike."""
    for i, (a, b) in enumerate(zip(left, right, strict=False)):
        if a != b:
            return i
    return min(len(left), len(right))


class Step:
    """What makers of inputs look at: rows, new tokens, tokens in the cache, padding at the left, and whether the scores
    behind the last token are enough."""

    def __init__(self, batch: int, count: int, past: int, padding: np.ndarray | None, last: bool) -> None:
        self.batch, self.count, self.past, self.padding, self.last = batch, count, past, padding, last

    @property
    def total(self) -> int:
        return self.past + self.count

    def mask(self) -> np.ndarray:
        """[batch, total] of bool."""
        places = np.arange(self.total)
        seen: np.ndarray = np.broadcast_to(places, (self.batch, self.total)) >= self._padding()
        return seen

    def positions(self) -> np.ndarray:
        """[batch, count] of int64: where a row's padding ends is 0."""
        places: np.ndarray = np.maximum(np.arange(self.past, self.total)[None] - self._padding(), 0)
        return places

    def _padding(self) -> np.ndarray:
        return np.zeros((self.batch, 1), np.int64) if self.padding is None else self.padding[:, None]


def _mask(step: Step, given: NodeArg) -> np.ndarray:
    mask = step.mask()
    if len(given.shape) == 2:
        return mask.astype(element_dtype(given))
    causal = np.arange(step.past, step.total)[:, None] >= np.arange(step.total)
    seen = causal[None, None] & mask[:, None, None]
    dtype = element_dtype(given)
    found: np.ndarray = seen if dtype == np.bool_ else np.where(seen, dtype.type(0), np.finfo(dtype).min.astype(dtype))
    return found


def _positions(step: Step, given: NodeArg) -> np.ndarray:
    found = step.positions().astype(element_dtype(given))
    return np.repeat(found[None], 3, 0) if len(given.shape) == 3 else found


def _lengths(step: Step, given: NodeArg) -> np.ndarray:
    found: np.ndarray = step.mask().sum(1) - 1
    return found.astype(element_dtype(given)).reshape((step.batch, 1) if len(given.shape) == 2 else (step.batch,))


def _number(given: NodeArg, value: int | bool) -> np.ndarray:
    return np.array(value, element_dtype(given)).reshape((1,) * len(given.shape))


_MAKERS: dict[str, Callable[[Step, NodeArg], np.ndarray]] = {
    "attention_mask": _mask,
    "position_ids": _positions,
    "cache_position": lambda step, given: np.arange(step.past, step.total, dtype=element_dtype(given)),
    "use_cache_branch": lambda step, given: _number(given, step.past > 0),
    "num_logits_to_keep": lambda step, given: _number(given, 1 if step.last else step.count),
    "logits_to_keep": lambda step, given: _number(given, 1 if step.last else step.count),
    "token_type_ids": lambda step, given: np.zeros((step.batch, step.count), element_dtype(given)),
    "seqlens_k": _lengths,
    "total_sequence_length": lambda step, given: _number(given, step.total),
    "past_sequence_length": lambda step, given: _number(given, step.past),
}
"""Inputs by name, from where a step is."""


def _maker(given: NodeArg) -> Callable[[Step, NodeArg], np.ndarray]:
    make = _MAKERS.get(given.name)
    if make is None:
        raise InvalidArgument(
            f"the decoder's input {given} is not known: expected tokens, states, and of {sorted(_MAKERS)}; give it by "
            f"fixed={{{given.name!r}: array}}"
        )
    return make


def _scores_name(outputs: Sequence[NodeArg]) -> str:
    names = [a.name for a in outputs]
    floats = [a.name for a in outputs if a.type in ("tensor(float)", "tensor(float16)", "tensor(bfloat16)")]
    for name in ("logits", "scores", "lm_logits"):
        if name in names:
            return name
    if not floats:
        raise InvalidArgument(f"the decoder has no output of scores: expected 'logits', got {names}")
    return floats[0]
