"""The command line: `intarsia` and `python -m intarsia`.

Exit codes: 0 done; 1 the model, a provider or a run failed; 2 the command was not understood; 3 the extra `cli` is missing;
4 `convert` left nodes that its target has no form for; 130 Ctrl-C.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Sequence

MISSING_EXTRA = 3
_EXTRA = frozenset(("typer", "rich"))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; `arguments` default to the process's own. Returns the exit code."""
    try:
        from intarsia.cli.app import run_command
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in _EXTRA:
            raise
        print(f"intarsia: the command line needs {error.name}: pip install 'intarsia[cli]'", file=sys.stderr)
        return MISSING_EXTRA
    for stream in (sys.stdout, sys.stderr):  # names of models in what a pipe on Windows, or another locale, cannot write
        if isinstance(stream, io.TextIOWrapper) and stream.errors == "strict":
            stream.reconfigure(errors="backslashreplace")
    return run_command(arguments)
