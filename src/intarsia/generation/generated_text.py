"""What a generation gives: the text, its tokens, and how long they took."""

from __future__ import annotations

from dataclasses import field

from intarsia.lazy_dataclass import dataclass


@dataclass
class Generation:
    """A text that was generated.

    Attributes:
        text: what was generated, without the prompt and what stopped it.
        tokens: its tokens, with the one that ended it.
        finish_reason: "end" (the model ended it), "stop" (a text of `stop`), "length" (max_new_tokens, or no room is left).
        prompt_tokens: how many tokens the prompt has.
        reused_tokens: how many of them were in the cache already.
        guessed_tokens, accepted_tokens: how many tokens were guessed, and how many of these were right.
        first_token_s: seconds until the first token.
        seconds: until the last.
    """

    text: str = ""
    tokens: list[int] = field(default_factory=list)
    finish_reason: str = ""
    prompt_tokens: int = 0
    reused_tokens: int = 0
    guessed_tokens: int = 0
    accepted_tokens: int = 0
    first_token_s: float = 0.0
    seconds: float = 0.0

    @property
    def tokens_per_second(self) -> float:
        """Tokens a second behind the first one; 0 where there is no other."""
        more = self.seconds - self.first_token_s
        return (len(self.tokens) - 1) / more if more > 0 and len(self.tokens) > 1 else 0.0

    def __str__(self) -> str:
        return self.text
