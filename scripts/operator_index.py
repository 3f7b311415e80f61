"""Write src/intarsia/ops/family_index.py: which module defines which operators, so that a session imports those of its model.

    python scripts/operator_index.py [--check]
"""

from __future__ import annotations

import importlib
import pkgutil
import sys
from collections.abc import Sequence
from pathlib import Path

import intarsia.ops
from intarsia.ops.framework import registry

ROOT = Path(__file__).parents[1]
INDEX = ROOT / "src" / "intarsia" / "ops" / "family_index.py"
COMMAND = "python scripts/operator_index.py"
HEAD = '''"""Which module of this package defines which operators. Written by scripts/operator_index.py; not to be edited."""

from __future__ import annotations

_OPERATORS = {
'''
TAIL = '''}


def families() -> dict[str, list[tuple[str, str]]]:
    """Module -> (domain, name) of its operators."""
    return {f"intarsia.ops.{module}": [_key(text) for text in names.split()] for module, names in _OPERATORS.items()}


def _key(text: str) -> tuple[str, str]:
    domain, _, name = text.rpartition("::")
    return domain, name
'''
WIDTH = 124


def defined() -> dict[str, list[str]]:
    """Module -> its operators, found by importing every module."""
    found: dict[str, dict[str, None]] = {}
    add = registry.IndexedRegistry.add

    def noted(self: registry.IndexedRegistry, record: registry.OpRecord) -> None:
        frame = sys._getframe(1)
        while frame.f_code.co_name != "<module>":
            assert frame.f_back is not None
            frame = frame.f_back
        module = str(frame.f_globals["__name__"]).removeprefix("intarsia.ops.")
        found.setdefault(module, {})[f"{record.domain}::{record.name}" if record.domain else record.name] = None
        add(self, record)

    registry.IndexedRegistry.add = noted  # type: ignore[method-assign]
    try:
        for module in pkgutil.walk_packages(intarsia.ops.__path__, "intarsia.ops."):
            importlib.import_module(module.name)
    finally:
        registry.IndexedRegistry.add = add  # type: ignore[method-assign]
    return {module: sorted(names) for module, names in sorted(found.items())}


def rendered() -> str:
    lines = []
    for module, names in defined().items():
        lines.append(f'    "{module}": (')
        line = ""
        for name in names:
            if len(line) + len(name) + 1 > WIDTH - 10:
                lines.append(f'        "{line}"')
                line = ""
            line += f"{name} "
        lines += [f'        "{line.rstrip()}"', "    ),"]
    return HEAD + "\n".join(lines) + "\n" + TAIL


def main(arguments: Sequence[str]) -> int:
    text = rendered()
    if "--check" in arguments:
        current = INDEX.read_text(encoding="utf-8") if INDEX.exists() else ""
        if current != text:
            print(f"{INDEX.relative_to(ROOT)} is not up to date; write it anew: {COMMAND}", file=sys.stderr)
        return int(current != text)
    INDEX.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
