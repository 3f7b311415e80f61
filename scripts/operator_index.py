"""Write which modules a model's operators need, so that a session imports those alone: src/intarsia/ops/family_index.py, which
module defines which operators, and src/intarsia/passes/rule_index.py, at which operators the rules of a set begin.

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
RULE_INDEX = ROOT / "src" / "intarsia" / "passes" / "rule_index.py"
RULE_HEAD = '''"""At which operators the rules of each set begin. Written by scripts/operator_index.py; not to be edited."""

from __future__ import annotations

_OPERATORS = {
'''
RULE_TAIL = '''}
OPERATORS = {name: frozenset(operators.split()) for name, operators in _OPERATORS.items()}
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


def begun_at() -> dict[str, list[str]]:
    """Rule set -> the operators at which its rules begin."""
    from intarsia.passes.optimizer import OPTIONAL, PHASES, rule_set

    names = [name for phase in (*PHASES, OPTIONAL) for name in phase]
    return {name: sorted({root for rule in rule_set(name) for root in rule.roots}) for name in names}


def rendered(found: dict[str, list[str]]) -> str:
    """The lines of a table."""
    lines = []
    for key, names in found.items():
        lines.append(f'    "{key}": (')
        line = ""
        for name in names:
            if len(line) + len(name) + 1 > WIDTH - 10:
                lines.append(f'        "{line}"')
                line = ""
            line += f"{name} "
        lines += [f'        "{line.rstrip()}"', "    ),"]
    return "\n".join(lines) + "\n"


def main(arguments: Sequence[str]) -> int:
    texts = {INDEX: HEAD + rendered(defined()) + TAIL, RULE_INDEX: RULE_HEAD + rendered(begun_at()) + RULE_TAIL}
    stale = [path for path, text in texts.items() if not path.exists() or path.read_text(encoding="utf-8") != text]
    for path in stale:
        if "--check" in arguments:
            print(f"{path.relative_to(ROOT)} is not up to date; write it anew: {COMMAND}", file=sys.stderr)
        else:
            path.write_text(texts[path], encoding="utf-8")
    return int("--check" in arguments and bool(stale))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
