"""Texts that follow a JSON schema, a grammar or a regular expression, by the llguidance library."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np

from intarsia.errors import InvalidArgument
from intarsia.generation.tokenizer import needs

if TYPE_CHECKING:
    from intarsia.generation.search_options import SearchOptions
    from intarsia.generation.tokenizer import Tokenizer


_SPACE = r"(\n[ ]{0,12}|[ ]?)"
"""What may stand between the parts of JSON: models that may write any space write nothing else, now and then."""


class Constraint:
    """Which tokens may come next.

    Args:
        options: have one of json_schema, grammar and regex.
        tokenizer: of the model.
        end_tokens: what ends a text.

    Raises:
        NotImplemented: llguidance is not installed.
        InvalidArgument: the schema, grammar or expression is not valid.
    """

    def __init__(self, options: SearchOptions, tokenizer: Tokenizer, end_tokens: frozenset[int]) -> None:
        try:
            import llguidance
            from llguidance.numpy import allocate_token_bitmask, fill_next_token_bitmask
        except ImportError as error:
            raise needs("llguidance", "a text that follows a grammar") from error
        ends = [t for t in sorted(end_tokens) if 0 <= t < tokenizer.library.get_vocab_size()]
        known = llguidance.LLTokenizer(tokenizer.library.to_str(), eos_token=ends or None)
        self._fill, self._room = fill_next_token_bitmask, allocate_token_bitmask(1, known.vocab_size)
        self._end_tokens = end_tokens
        self._matcher: Any = llguidance.LLMatcher(known, _grammar(options, llguidance), log_level=0)
        if self._matcher.is_error():
            raise InvalidArgument(f"the text cannot follow this grammar: {self._matcher.get_error()}")

    def allowed(self, count: int) -> np.ndarray:
        """[count] of bool: the tokens that may come next. Where the text is complete, only its end."""
        self._fill(self._matcher, self._room, 0)
        self._check()
        bits = np.unpackbits(self._room[0].view(np.uint8), bitorder="little").astype(bool)
        found = np.zeros(count, bool)
        found[: min(count, bits.size)] = bits[:count]
        return found

    def took(self, token: int) -> None:
        """Go on with a token."""
        if token not in self._end_tokens:
            self._matcher.consume_token(token)
            self._check()

    def _check(self) -> None:
        if self._matcher.is_error():
            raise InvalidArgument(f"the text cannot follow this grammar: {self._matcher.get_error()}")


def _grammar(options: SearchOptions, library: Any) -> str:
    matcher = library.LLMatcher
    try:
        if options.json_schema is not None:
            schema = options.json_schema if isinstance(options.json_schema, str) else json.dumps(options.json_schema)
            return str(matcher.grammar_from_json_schema(schema, defaults={"whitespace_pattern": _SPACE}))
        if options.regex is not None:
            return str(matcher.grammar_from_regex(options.regex))
        return str(matcher.grammar_from_lark(options.grammar))
    except (ValueError, TypeError) as error:
        raise InvalidArgument(f"the text cannot follow this grammar: {error}") from error
