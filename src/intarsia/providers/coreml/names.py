"""Names that Core ML takes, for names that ONNX has."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

_RESERVED = frozenset(("state", "tensor", "program", "func", "main"))


def mapped(names: Iterable[str]) -> Mapping[str, str]:
    """Name -> an identifier of its own, as like it as can be: Core ML takes letters, digits and underscores only.

    coremltools would rename names by itself, where two may become one: "a.b" and "a_b".
    """
    found: dict[str, str] = {}
    taken: set[str] = set()
    for name in dict.fromkeys(names):
        plain = re.sub(r"[^A-Za-z0-9_]", "_", name) or "value"
        if not plain[0].isalpha() or plain.lower() in _RESERVED:
            plain = f"v_{plain}"
        unique, count = plain, 1
        while unique in taken:
            count += 1
            unique = f"{plain}_{count}"
        taken.add(unique)
        found[name] = unique
    return found
