"""The page of all commands and options, from the parser of the command line."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any


def _shown(param: Any) -> str:
    """What stands for the value of a parameter; nothing for a flag."""
    if getattr(param, "is_flag", False) or getattr(param, "count", False):
        return ""
    return str(param.metavar or param.name.upper())


def _flags(option: Any) -> str:
    names = ", ".join(f"`{name}`" for name in [*option.opts, *option.secondary_opts])
    value = _shown(option)
    return f"{names} `{value}`" if value else names


def _cell(words: str | None) -> str:
    return " ".join((words or "").split()).replace("|", "\\|")


def _command(name: str, command: Any) -> Iterator[str]:
    given = [param for param in command.params if not getattr(param, "hidden", False)]
    arguments = [param for param in given if param.param_type_name == "argument"]
    options = [param for param in given if param.param_type_name == "option" and "--help" not in param.opts]
    usage = [f"intarsia {name}", *(["[OPTIONS]"] if options else [])]
    usage += [f"{_shown(argument)}{'...' if argument.nargs == -1 else ''}" for argument in arguments]
    yield from (f"## intarsia {name}", "", _cell(command.help), "", "```text", " ".join(usage), "```", "")
    yield from (f"- `{_shown(argument)}`: {_cell(argument.help)}" for argument in arguments if argument.help)
    yield ""
    if options:
        yield from ("| option | meaning |", "|---|---|")
        yield from (f"| {_flags(option)} | {_cell(option.help)} |" for option in options)
        yield ""


def _commands(group: Any, before: str = "") -> Iterator[tuple[str, Any]]:
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from _commands(command, f"{before}{name} ")
        elif not command.hidden:
            yield f"{before}{name}", command


def text() -> str:
    import typer.main

    from intarsia.cli.app import EPILOG, app

    group = typer.main.get_command(app)
    lines = [
        "# Every command and option", "",
        "This page is generated from the command line's own parser. [The command line](../cli.md) shows how to use it.", "",
        _cell(EPILOG), "",
    ]  # fmt: skip
    for name, command in sorted(_commands(group)):
        lines += _command(name, command)
    return "\n".join(lines)
