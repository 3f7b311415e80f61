"""Text of tokens up to the first stop: what might be the beginning of one waits until it is known."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from intarsia.generation.tokenizer import Tokenizer


class StopTexts:
    """Tokens of one text, given in pieces that no stop is in.

    Args:
        tokenizer: None: tokens have no text.
        stops: texts that end it.
    """

    def __init__(self, tokenizer: Tokenizer | None, stops: Sequence[str]) -> None:
        self._stream = tokenizer.stream() if tokenizer is not None else None
        self._stops = stops
        self._waiting = ""

    def push(self, token: int, ends: bool) -> tuple[str, str]:
        """The text that can be given now, and why nothing comes behind it: "end", "stop", or "" where more may come."""
        if self._stream is None:
            return "", "end" if ends else ""
        if ends:
            return self.rest(), "end"
        self._waiting += self._stream.push(token)
        place = min((at for at in map(self._waiting.find, self._stops) if at >= 0), default=-1)
        if place >= 0:
            return self._waiting[:place], "stop"
        held = max((_overlap(self._waiting, stop) for stop in self._stops), default=0)
        given = self._waiting[: len(self._waiting) - held]
        self._waiting = self._waiting[len(given) :]
        return given, ""

    def rest(self) -> str:
        """What waits, at the end of the text."""
        text = self._waiting + (self._stream.rest() if self._stream is not None else "")
        self._waiting = ""
        return text


def _overlap(text: str, stop: str) -> int:
    """How many characters at the end of the text begin the stop."""
    return next((n for n in range(min(len(text), len(stop) - 1), 0, -1) if text.endswith(stop[:n])), 0)
