"""How the next token is chosen: settings, under the names that transformers, onnxruntime-genai and OpenAI's interface use."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, Self

import numpy as np

from intarsia.errors import InvalidArgument, WrongType, nearest
from intarsia.lazy_dataclass import dataclass

_THE_CALLER_S = frozenset({"stop", "max_new_tokens", "min_new_tokens", "num_beams", "guesses", "seed"})
"""Settings that a model's configuration does not decide: a beam search has no pieces of text, for one."""

_WHOLE = frozenset({"max_new_tokens", "min_new_tokens", "top_k", "num_beams", "guesses", "seed"})
_TEXTS = frozenset({"grammar", "regex"})


def _check_type(name: str, value: Any) -> None:
    """Raises WrongType for a setting of another type, InvalidArgument for a number that is none."""
    if name in _WHOLE:
        fits, expected = isinstance(value, (int, np.integer)) and not isinstance(value, bool), "a whole number"
    elif name in _TEXTS:
        fits, expected = isinstance(value, str), "a text"
    elif name == "json_schema":
        fits, expected = isinstance(value, (str, dict, bool)), "a JSON schema, as a dict or a text"
    elif name == "stop":
        fits, expected = isinstance(value, tuple), "a text or a list of texts"
    else:
        fits, expected = isinstance(value, (int, float, np.number)) and not isinstance(value, bool), "a number"
    if not fits:
        raise WrongType(f"{name}: expected {expected}, got {value!r}")
    if isinstance(value, (float, np.floating)) and not np.isfinite(value):
        raise InvalidArgument(f"{name}: expected a finite number, got {value!r}")


@dataclass(frozen=True)
class SearchOptions:
    """Settings of one generation.

    Attributes:
        max_new_tokens: how many tokens at most.
        min_new_tokens: how many tokens before an end is allowed.
        temperature: divides the scores; 0 takes the likeliest token always.
        top_k: only so many of the likeliest tokens; 0: all.
        top_p: only the likeliest tokens whose probabilities sum to this; 1: all.
        min_p: only tokens at least this times as likely as the likeliest; 0: all.
        repetition_penalty: divides positive scores (and multiplies negative ones) of tokens that the text has; 1: none.
        presence_penalty: is taken from the scores of tokens that were generated.
        frequency_penalty: is taken from them once for each time.
        num_beams: how many texts a beam search follows; 1: none. It takes the likeliest, and draws nothing.
        length_penalty: a beam search divides the logarithm of a text's probability by its length to this power.
        guesses: how many tokens are guessed in a step from what the text has already, or by the draft model; 0: none.
            What is generated stays the same.
        seed: of the random choice; None: another in every call.
        stop: texts that end the generation, and are not given.
        json_schema: a JSON schema (dict or text) that the text has to follow.
        grammar: a grammar in Lark's notation that the text has to follow.
        regex: a regular expression that the text has to follow.
    """

    max_new_tokens: int = 256
    min_new_tokens: int = 0
    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    num_beams: int = 1
    length_penalty: float = 1.0
    guesses: int = 0
    seed: int | None = None
    stop: tuple[str, ...] = ()
    json_schema: Any = None
    grammar: str | None = None
    regex: str | None = None

    @classmethod
    def of(cls, defaults: Mapping[str, Any], given: Mapping[str, Any]) -> Self:
        """Those of a model's configuration, with what a caller gives.

        Args:
            defaults: `generation_config.json`, of which what is not known here is passed over.
            given: by name; `do_sample=False` is a temperature of 0.

        Raises:
            InvalidArgument: a name that does not exist, or a value that makes no sense.
        """
        names = {f.name for f in fields(cls)}
        unknown = [name for name in given if name not in names and name != "do_sample"]
        if unknown:
            raise InvalidArgument(f"{unknown[0]!r} is no setting of a generation; {nearest(unknown[0], sorted(names))}")
        values = {n: v for n, v in defaults.items() if n in names - _THE_CALLER_S and v is not None}
        samples = given.get("do_sample", defaults.get("do_sample", False))
        if not samples:
            values["temperature"] = 0.0
        elif values.get("temperature") is None:
            values["temperature"] = 1.0
        values |= {n: v for n, v in given.items() if n != "do_sample" and v is not None}
        if given.get("do_sample") is False:
            values["temperature"] = 0.0
        if isinstance(values.get("stop"), str):
            values["stop"] = (values["stop"],)
        if "stop" in values:
            values["stop"] = tuple(values["stop"]) if isinstance(values["stop"], (list, tuple)) else values["stop"]
        for name, value in values.items():
            _check_type(name, value)
        made = cls(**values)
        made.check()
        return made

    def check(self) -> None:
        """Raises InvalidArgument for values that make no sense."""
        bounds = {
            "max_new_tokens": (self.max_new_tokens >= 1, "at least 1"),
            "min_new_tokens": (0 <= self.min_new_tokens <= self.max_new_tokens, "0 to max_new_tokens"),
            "temperature": (self.temperature >= 0, "at least 0"),
            "top_k": (self.top_k >= 0, "at least 0"),
            "top_p": (0 < self.top_p <= 1, "above 0, at most 1"),
            "min_p": (0 <= self.min_p <= 1, "0 to 1"),
            "repetition_penalty": (self.repetition_penalty > 0, "above 0"),
            "num_beams": (self.num_beams >= 1, "at least 1"),
            "guesses": (self.guesses >= 0, "at least 0"),
            "stop": (all(isinstance(s, str) and s for s in self.stop), "texts that are not empty"),
            "seed": (self.seed is None or self.seed >= 0, "at least 0"),
        }
        for name, (fits, expected) in bounds.items():
            if not fits:
                raise InvalidArgument(f"{name}: expected {expected}, got {getattr(self, name)!r}")
        if sum(x is not None for x in (self.json_schema, self.grammar, self.regex)) > 1:
            raise InvalidArgument("expected one of json_schema, grammar and regex, got several")
        if self.num_beams > 1 and (self.constrained or self.stop or self.guesses or self.temperature):
            raise InvalidArgument("num_beams: a beam search takes no grammar, stop, guesses or temperature: use num_beams=1")

    @property
    def constrained(self) -> bool:
        """Whether the text has to follow a schema, a grammar or an expression."""
        return self.json_schema is not None or self.grammar is not None or self.regex is not None
