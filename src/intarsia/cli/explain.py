"""`intarsia explain`: where each node runs, and why not elsewhere."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from rich.markup import escape

from intarsia.cli.run import open_session
from intarsia.cli.show import note, print_json, screen


def explain_model(
    model: Path, providers: Sequence[str], as_json: bool, html: Path | None = None, config: Sequence[str] = (), *,
    wide: bool = False, top: int = 0,
) -> None:  # fmt: skip
    """Print the placement of every node as a table, or as JSON, or write a page.

    Raises:
        IntarsiaError: the model or a provider.
    """
    explanation = open_session(model, providers, config=config).explain()
    if html is not None:
        explanation.save_html(html, title=model.name)
        note(f"written to {html}")
    if as_json:
        print_json(json.dumps(explanation.to_dict(), indent=1))
    elif html is None:
        screen.print(escape(explanation.format(0 if wide else screen.width, top)), highlight=False)
