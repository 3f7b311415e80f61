"""`intarsia generate` and `intarsia chat`: text of a language model, as it is generated."""

from __future__ import annotations

import functools
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from intarsia.cli.command_help import Command
from intarsia.cli.providers import full_name
from intarsia.cli.show import note, print_json
from intarsia.errors import InvalidArgument

if TYPE_CHECKING:
    from intarsia.generation import Generation

app = typer.Typer()
command = functools.partial(app.command, cls=Command)

Folder = Annotated[
    Path, typer.Argument(help="A folder of an exported language model, or its decoder's file.", show_default=False)
]
Tokens = Annotated[int, typer.Option("--max-new-tokens", "-n", min=1, help="Tokens at most.")]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set", "-s", metavar="NAME=VALUE",
        help="How tokens are chosen: temperature, top_k, top_p, min_p, repetition_penalty, presence_penalty, "
        "frequency_penalty, seed, stop, regex, grammar, json_schema (text or a file). Default: as the model's folder says.",
    ),
]  # fmt: skip
Provider = Annotated[list[str] | None, typer.Option("--provider", "-p", metavar="NAME", help="Execution provider; repeated.")]
_FILES = ("json_schema", "grammar")


@command("generate")
def generate_text(
    folder: Folder,
    prompt: Annotated[str, typer.Argument(help="The text to go on with; - reads it from standard input.")] = "-",
    max_new_tokens: Tokens = 256,
    setting: Settings = None,
    provider: Provider = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON: text, tokens, why it ended, times.")] = False,
) -> None:
    """Go on with a text, and say how fast; by the tokenizer and settings in the model's folder.

    Examples:

    `intarsia generate folder/ "Once upon a time"`

    `intarsia generate folder/ "Name three fruits as JSON: " -s temperature=0.7 -s json_schema=fruits.json`
    """
    from intarsia.generation import Generation, load

    model, made = load(folder, providers=_names(provider)), Generation()
    text = _said() if prompt == "-" else prompt
    pieces = model.stream(text, into=made, max_new_tokens=max_new_tokens, **_settings(setting))
    if as_json:
        for _ in pieces:
            pass
        print_json(json.dumps({**vars(made), "tokens_per_second": made.tokens_per_second}))
        return
    _print(pieces)
    _say(made)


@command("chat")
def chat(
    folder: Folder,
    system: Annotated[str, typer.Option(help="What the model is told first.")] = "",
    max_new_tokens: Tokens = 512,
    setting: Settings = None,
    provider: Provider = None,
) -> None:
    """Talk with a model. /reset begins anew, /exit ends; lines also come from standard input.

    Examples:

    `intarsia chat folder/ --system "You answer in one sentence."`
    """
    from intarsia.generation import Generation, load

    model, settings = load(folder, providers=_names(provider)), _settings(setting)
    if model.folder is None or model.folder.chat_template is None:
        raise InvalidArgument(f"{folder}: the model has no chat template: use `intarsia generate`")
    messages = _opening(system)
    for line in _lines():
        if line == "/reset":
            messages = _opening(system)
            continue
        made = Generation()
        messages.append({"role": "user", "content": line})
        _print(model.chat_stream(messages, into=made, max_new_tokens=max_new_tokens, **settings))
        messages.append({"role": "assistant", "content": made.text})
        _say(made)


def _said() -> str:
    """Standard input. Raises InvalidArgument where it is no text."""
    try:
        return sys.stdin.read()
    except UnicodeError as error:
        raise InvalidArgument(f"standard input: expected a text in UTF-8: {error}") from error


def _opening(system: str) -> list[dict[str, str]]:
    return [{"role": "system", "content": system}] if system else []


def _lines() -> Iterator[str]:
    """What the user says, until /exit or the end of the input."""
    interactive = sys.stdin.isatty()
    while True:
        try:
            line = input("> " if interactive else "").strip()
        except EOFError:
            return
        except UnicodeError as error:
            raise InvalidArgument(f"standard input: expected a text in UTF-8: {error}") from error
        if line in ("/exit", "/quit"):
            return
        if line:
            yield line


def _print(pieces: Iterator[str]) -> None:
    for piece in pieces:
        sys.stdout.write(piece)
        sys.stdout.flush()
    sys.stdout.write("\n")


def _say(made: Generation) -> None:
    reused = f", {made.reused_tokens} of them in the cache" if made.reused_tokens else ""
    note(
        f"{made.prompt_tokens} tokens before{reused}; first token after {made.first_token_s:.3f} s; {len(made.tokens)} tokens, "
        f"{made.tokens_per_second:.1f} a second; ended by {made.finish_reason}"
    )


def _names(given: list[str] | None) -> list[str] | None:
    return [full_name(name) for item in given or [] for name in item.replace(",", " ").split()] or None


def _settings(given: list[str] | None) -> dict[str, Any]:
    """NAME=VALUE: numbers, true and false, JSON lists and objects, the text of a file, or text."""
    found: dict[str, Any] = {}
    for item in given or []:
        name, equals, text = item.partition("=")
        if not equals or not name:
            raise InvalidArgument(f"--set {item}: expected NAME=VALUE, such as temperature=0.7")
        if name == "max_new_tokens":
            raise InvalidArgument("--set max_new_tokens: use --max-new-tokens (-n)")
        if name in _FILES and Path(text).is_file():
            found[name] = Path(text).read_text(encoding="utf-8")
        elif name in ("stop", "regex", "grammar"):
            found[name] = [*found.get(name, []), text] if name == "stop" else text
        else:
            found[name] = _value(text)
    return found


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text
