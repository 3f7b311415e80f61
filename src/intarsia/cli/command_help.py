"""Commands whose help shows what each option takes: nothing, for a flag."""

from __future__ import annotations

from typing import Any

from typer.core import TyperCommand, TyperGroup


def _told(params: list[Any]) -> list[Any]:
    """Typer (0.29) names the type of a flag as it does that of an option with a value."""
    for param in params:
        if getattr(param, "is_flag", False) or getattr(param, "count", False):
            param.metavar = ""
    return params


class Command(TyperCommand):
    """A command."""

    def get_params(self, ctx: Any) -> list[Any]:
        return _told(super().get_params(ctx))


class Group(TyperGroup):
    """Commands with options before their names."""

    def get_params(self, ctx: Any) -> list[Any]:
        return _told(super().get_params(ctx))


class ProgramCommand(Command):
    """A command that leaves all it is given to a program: `--help` is the command's own where it comes first."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if not args or args[0] in ("-h", "--help"):
            return super().parse_args(ctx, ["--help"])
        ctx.args = list(args)
        return []
