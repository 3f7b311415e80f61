"""`intarsia check`: everything that keeps a model from running, at once."""

from __future__ import annotations

from pathlib import Path

from rich.markup import escape

from intarsia.cli.show import note, print_json, screen, table
from intarsia.ops.framework.missing_operators import HOW_TO_ADD
from intarsia.reports.model_check import ERROR, check_model

_WORDS = {
    "model": "the model cannot be read",
    "graph": "the graph is not valid",
    "external-data": "external files",
    "opset": "operator set versions",
    "operator": "operators that do not exist",
    "attribute": "attributes",
    "type": "types",
    "state": "states from run to run",
}


def check_file(model: Path, as_json: bool) -> bool:
    """Print what is wrong with the model, as tables or JSON. True where it can run.

    Raises:
        NoSuchFile: the file does not exist.
    """
    found = check_model(str(model))
    if as_json:
        print_json(found.to_json(indent=1))
        return found.ok
    for code, words in _WORDS.items():
        rows = [(p.severity, p.message) for p in found.problems if p.code == code]
        if rows:
            table(words, ["", "what"], rows)
            screen.print()
    if any(p.code == "operator" and p.severity == ERROR for p in found.problems):
        note(HOW_TO_ADD)
    if found.states:
        table("states, which session.stateful() feeds back", ["output -> input"], [(state,) for state in found.states])
        screen.print()
    colour = "green" if found.ok else "bold red"
    screen.print(f"[{colour}]{'ok' if found.ok else 'not ok'}[/]  {escape(found.summary)}", highlight=False)
    return found.ok
