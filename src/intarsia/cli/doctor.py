"""`intarsia doctor`: what is installed here, what works, what is wrong."""

from __future__ import annotations

from rich.markup import escape

from intarsia.cli.show import print_json, screen, working
from intarsia.reports.doctor import doctor


def examine(as_json: bool) -> bool:
    """Print the diagnosis; False where something keeps models from running."""
    with working("looking around"):
        found = doctor()
    if as_json:
        print_json(found.to_json(indent=1))
    else:
        screen.print(escape(str(found)), highlight=False)
    return found.ok
