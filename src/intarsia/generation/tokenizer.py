"""Text to tokens and back, by the tokenizers library, and conversations to text, by their model's template."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from intarsia.errors import InvalidArgument, NotImplemented


def needs(package: str, purpose: str) -> NotImplemented:
    """The error for a package of the extra that is not installed."""
    return NotImplemented(f"{purpose} needs the package {package!r}: pip install 'intarsia[generate]'")


_MOST_NUMBERS = 100_000  # of loops of a chat template


class Tokenizer:
    """The tokenizer of a `tokenizer.json`.

    Raises:
        NotImplemented: the library is not installed.
        InvalidArgument: the file cannot be read.
    """

    def __init__(self, path: Path) -> None:
        try:
            import tokenizers
        except ImportError as error:
            raise needs("tokenizers", "text generation") from error
        try:
            self.library: Any = tokenizers.Tokenizer.from_file(str(path))
        except Exception as error:  # the library raises Exception itself
            raise InvalidArgument(f"{path}: the tokenizers library cannot read it: {error}") from error
        self.library.no_padding()
        self.library.no_truncation()

    def encode(self, text: str, *, special: bool = True) -> list[int]:
        """The tokens of a text. `special`: with those that the tokenizer puts before and behind."""
        try:
            return list(self.library.encode(text, add_special_tokens=special).ids)
        except (UnicodeError, TypeError) as error:
            raise InvalidArgument(f"the prompt is no text in Unicode: {error}") from error

    def decode(self, tokens: Sequence[int]) -> str:
        """The text of tokens, without special ones."""
        return str(self.library.decode(list(tokens), skip_special_tokens=True))

    def stream(self) -> TokenStream:
        """Tokens one by one, to pieces of text."""
        return TokenStream(self.library)

    def token(self, number: int) -> str:
        """A token as the vocabulary has it."""
        return self.library.id_to_token(number) or ""


class TokenStream:
    """Text of tokens as they come. A piece is whole characters: bytes of a character wait for the rest."""

    def __init__(self, library: Any) -> None:
        from tokenizers.decoders import DecodeStream

        self._library, self._stream = library, DecodeStream(skip_special_tokens=True)
        self._tokens: list[int] = []
        self._given = 0  # characters

    def push(self, token: int) -> str:
        """The text that is complete with this token."""
        self._tokens.append(token)
        piece = self._stream.step(self._library, token) or ""
        self._given += len(piece)
        return piece

    def rest(self) -> str:
        """What is left at the end: characters that were never completed."""
        text = str(self._library.decode(self._tokens, skip_special_tokens=True))
        return text[self._given :]


def rendered_chat(
    template: str | None, messages: Sequence[Mapping[str, Any]], special_tokens: Mapping[str, str], **more: Any
) -> str:
    """The text that a model reads of a conversation, by its template in jinja's sandbox.

    Args:
        template: the model's.
        messages: dicts with "role" and "content".
        special_tokens: as "bos_token" and "eos_token", for the template.
        more: other variables of the template, such as tools.

    Raises:
        InvalidArgument: the model has no template, or its template refuses the messages.
        NotImplemented: jinja2 is not installed.
    """
    if isinstance(messages, (str, Mapping)) or not all(isinstance(m, Mapping) and "role" in m for m in messages):
        raise InvalidArgument(f"messages: expected a list of dicts with 'role' and 'content', got {messages!r}"[:300])
    fixed = [name for name in ("messages", "add_generation_prompt", *special_tokens) if name in more]
    if fixed:
        raise InvalidArgument(f"template: {fixed} are given by the conversation and the model")
    if template is None:
        raise InvalidArgument("the model has no chat template: give a prompt to generate instead, or chat_template=...")
    try:
        from jinja2.ext import loopcontrols
        from jinja2.sandbox import ImmutableSandboxedEnvironment
    except ImportError as error:
        raise needs("jinja2", "a chat template") from error

    def refuse(message: str) -> None:
        raise InvalidArgument(f"the model's chat template: {message}")

    def as_json(value: Any, ensure_ascii: bool = False, indent: int | None = None, **_: Any) -> str:
        return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent)

    def now(form: str) -> str:
        import datetime as dt

        return dt.datetime.now().astimezone().strftime(form)

    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols])
    environment.filters["tojson"] = as_json
    environment.globals.update(raise_exception=refuse, strftime_now=now, range=_counted_range())
    try:
        made = environment.from_string(template).render(
            messages=list(messages), add_generation_prompt=True, **{**special_tokens, **more}
        )
    except InvalidArgument:
        raise
    except Exception as error:  # a template is a program of the model's author: it may raise anything
        raise InvalidArgument(f"the model's chat template cannot be rendered: {error}") from error
    return str(made)


def _counted_range() -> Callable[..., range]:
    """`range` for one template, which gives so many numbers in all: loops in loops end, too."""
    left = _MOST_NUMBERS

    def counted(*bounds: int) -> range:
        nonlocal left
        found = range(*bounds)
        left -= len(found)
        if left < 0:
            raise InvalidArgument(f"the model's chat template counts to more than {_MOST_NUMBERS}")
        return found

    return counted


def special_tokens(config: Mapping[str, Any]) -> dict[str, str]:
    """Those of a `tokenizer_config.json` that templates name: bos_token, eos_token, pad_token, unk_token."""
    found = {}
    for name in ("bos_token", "eos_token", "pad_token", "unk_token"):
        value = config.get(name)
        if isinstance(value, Mapping):
            value = value.get("content")
        if isinstance(value, str):
            found[name] = value
    return found
