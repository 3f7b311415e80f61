"""The page of all options: configuration entries and properties, with their defaults, from the code."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from typing import Any

KINDS = {"flag": "`0` or `1`", "int": "an integer", "text": "text"}


def _table(columns: str, rows: Iterable[tuple[str, ...]]) -> list[str]:
    names = columns.split(", ")
    cells = [[cell.replace("|", "\\|") for cell in row] for row in rows]
    return [f"| {' | '.join(names)} |", f"|{'---|' * len(names)}", *(f"| {' | '.join(row)} |" for row in cells), ""]


def _entries(keys: Mapping[str, Any], effect: bool) -> Iterable[tuple[str, ...]]:
    for name, key in sorted(keys.items()):
        if key.effect == effect:
            values = KINDS.get(key.kind) or ", ".join(f"`{word}`" for word in key.kind.split(","))
            yield f"`{name}`", values, f"`{key.default}`" if key.default else "", key.doc


def _properties(declared: Mapping[str, Any]) -> Iterable[tuple[str, ...]]:
    for name, item in declared.items():
        default = item.default
        yield f"`{name}`", f"`{default.name if isinstance(default, enum.Enum) else default!r}`", item.doc


def text() -> str:
    from intarsia.options.config_keys import RUN_KEYS, SESSION_KEYS
    from intarsia.options.session_options import RunOptions, SessionOptions

    lines = [
        "# Options", "",
        "This page is generated from the code.", "",
        "```text",
        'options.add_session_config_entry("session.intra_op.allow_spinning", "0")   # an entry of a session',
        'run_options.add_run_config_entry("...", "...")                             # an entry of one run',
        "options.intra_op_num_threads = 2                                           # a property",
        "intarsia run model.onnx --config session.intra_op.allow_spinning=0         # on the command line",
        "```", "",
        "## Configuration entries of a session", "",
        *_table("entry, value, default, meaning", _entries(SESSION_KEYS, True)),
        "## Configuration entries of a run", "",
        *_table("entry, value, default, meaning", _entries(RUN_KEYS, True)),
        "## Properties of SessionOptions", "",
        *_table("property, default, meaning", _properties(SessionOptions.PROPERTIES)),
        "## Properties of RunOptions", "",
        *_table("property, default, meaning", _properties(RunOptions.PROPERTIES)),
        "## Accepted, without effect", "",
        "These entries of onnxruntime steer a part that Intarsia does not have. Programs may set them.", "",
        *_table("entry, value, default, reason", (*_entries(SESSION_KEYS, False), *_entries(RUN_KEYS, False))),
    ]  # fmt: skip
    return "\n".join(lines)
