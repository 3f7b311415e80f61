"""Write src/intarsia/__init__.pyi: where each public name comes from, for type checkers and editors.

    python scripts/public_names.py            # writes it
    python scripts/public_names.py --check    # exit code 1 where it is not as it would be written

The package imports its names when they are first used (`_NAMES` of `intarsia/__init__.py`), which no checker can follow.
"""

from __future__ import annotations

import sys
from pathlib import Path

STUB = Path(__file__).parents[1] / "src" / "intarsia" / "__init__.pyi"
SUBMODULES = ("backend", "capi", "datasets", "quantization", "tools")


def text() -> str:
    import intarsia

    lines = ["# Written by scripts/public_names.py from intarsia/__init__.py.", "# ruff: noqa: I001", ""]
    lines += [f"from intarsia import {name} as {name}" for name in SUBMODULES]
    found = [(f"intarsia.{module}", name) for module, names in intarsia._NAMES.items() for name in names.split()]
    found += [("intarsia.machine.version", "__version__"), ("intarsia.session.inference_session", "InferenceSession")]
    lines += [f"from {module} import {name} as {name}" for module, name in sorted(found)]
    lines += ["", "__all__ = [", *(f'    "{name}",' for name in sorted(intarsia.__all__)), "]", ""]
    lines += ["SessionIOBinding = IOBinding", "", "def get_version_string() -> str: ..."]
    return "\n".join([*lines, ""])


def main(arguments: list[str]) -> int:
    if arguments == ["--check"]:
        if STUB.read_text(encoding="utf-8") == text():
            return 0
        print(f"{STUB} is not up to date: python scripts/public_names.py", file=sys.stderr)
        return 1
    STUB.write_text(text(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
