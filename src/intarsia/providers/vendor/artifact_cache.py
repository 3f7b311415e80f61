"""What vendors' compilers made, by the content of what they were given: found again by later sessions, parts of models too.

An entry's key is a hash of the part (operators, attributes, types, weights; not names), the settings and the versions of all
that had a say. Beside it, under a hash of the part alone, lies a note of how the last one was made, so that a miss can say what
has changed since. Entries are those of `cache.disk_cache`: whole or absent, checked, and bounded by what was used last.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from typing import Any

from intarsia.cache.disk_cache import DiskCache, content_key, get_cache
from intarsia.graph.model import Graph
from intarsia.lazy_dataclass import dataclass
from intarsia.machine import fork_safety
from intarsia.printable import get_logger

_logger = get_logger("intarsia.providers.vendor")
_lock = fork_safety.lock()
_compiles: Counter[str] = Counter()


def count_compile(provider: str) -> None:
    """Note that a vendor's compiler was called."""
    with _lock:
        _compiles[provider] += 1


def vendor_compiles(provider: str) -> int:
    """How often this process called the compiler of the vendor behind `provider`."""
    with _lock:
        return _compiles[provider]


@dataclass(frozen=True)
class ArtifactKey:
    """What an artifact depends on.

    Attributes:
        provider: the provider's name.
        part: hash of the part (`part_key`).
        settings: options that change what is compiled, as text.
        versions: of the vendor's library, the translator, the system, the device, as text.
    """

    provider: str
    part: str
    settings: Mapping[str, str]
    versions: Mapping[str, str]

    @property
    def entry(self) -> str:
        made = json.dumps([dict(self.settings), dict(self.versions)], sort_keys=True)
        return f"artifact-{content_key(self.provider, self.part, made)}"

    @property
    def note(self) -> str:
        return f"artifact-note-{content_key(self.provider, self.part)}"


@dataclass(frozen=True)
class Lookup:
    """An artifact, or why there is none."""

    artifact: bytes | None
    reason: str = ""


class ArtifactCache:
    """Artifacts in a folder of the user's choice, or in Intarsia's own cache.

    Args:
        directory: "": Intarsia's cache.
        max_bytes: what all entries of `directory` may take; the least recently used ones go.
    """

    def __init__(self, directory: str = "", max_bytes: int | None = None) -> None:
        self._own = directory != ""
        self._cache = (
            get_cache() if not directory else DiskCache(directory) if max_bytes is None else DiskCache(directory, max_bytes)
        )

    def find(self, key: ArtifactKey) -> Lookup:
        """The artifact of this key; where there is none, the reason, which is also logged."""
        known = self._cache.has(key.entry)
        artifact = self._cache.get(key.entry)
        if artifact is not None:
            self._cache.used(key.entry)
            return Lookup(artifact)
        reason = "its entry was damaged" if known else self._why(key)
        _logger.debug("%s compiles a part anew: %s", key.provider, reason)
        return Lookup(None, reason)

    def _why(self, key: ArtifactKey) -> str:
        if self._cache.directory is None:
            return f"the cache is not used{': ' + self._cache.refused if self._cache.refused else ''}"
        note = _read(self._cache.get(key.note))
        if note is None:
            return "nothing was cached for this part"
        for what in ("versions", "settings"):
            before, now = note.get(what, {}), dict(getattr(key, what))
            changed = [
                f"{name} was {before.get(name, 'not there')!r} and is {now.get(name, 'not there')!r}"
                for name in sorted({*before, *now})
                if before.get(name) != now.get(name)
            ]
            if changed:
                return f"what was cached was made otherwise: {'; '.join(changed)}"
        return "its entry was removed, to keep the cache below its bound or by hand"

    def store(self, key: ArtifactKey, artifact: bytes) -> bool:
        """Keep it; False where the cache is off or cannot be written."""
        made = {"versions": dict(key.versions), "settings": dict(key.settings)}
        stored = self._cache.put(key.entry, artifact)
        if stored:
            self._cache.put(key.note, json.dumps(made).encode())
            if self._own:
                self._cache.prune()
        return stored

    def drop(self, key: ArtifactKey) -> None:
        """Forget an artifact that the vendor does not load."""
        self._cache.remove(key.entry)


def _read(data: bytes | None) -> dict[str, Any] | None:
    if data is None:
        return None
    try:
        found = json.loads(data)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


_FEW = 16
"""Elements of a constant that says how to compute, such as a scale, and is no weight."""


def part_key(graph: Graph, *, weights: bool = True) -> str:
    """The hash of what a part computes: its nodes, types and weights. Values count by their order, not by their names.

    `weights`: False where an artifact gets them later: only their types count.
    """
    numbers: dict[str, int] = {}

    def number(name: str) -> int:
        return numbers.setdefault(name, len(numbers)) if name else -1

    pieces: list[str | bytes] = [f"input {number(value.name)} {value.type}" for value in graph.inputs]
    for node in graph.nodes:
        read = [number(n) for n in node.inputs]
        for name in node.inputs:
            constant = graph.constants.get(name)
            if constant is not None:
                pieces.append(f"constant {number(name)} {constant.type}")
                if weights or constant.size <= _FEW or constant.dtype.is_integer:
                    pieces.append(constant.numpy().tobytes())
        attributes = sorted((k, _text(v)) for k, v in node.attributes.items())
        version = node.version or graph.opset_imports.get(node.domain, 0)
        pieces.append(f"{node.qualified_op} {version} {read} -> {[number(n) for n in node.outputs]} {attributes}")
    for value in graph.outputs:
        kind = value.type if value.type is not None else graph.type_of(value.name)
        pieces.append(f"output {number(value.name)} {kind}")
    return content_key(*pieces)


def _text(value: Any) -> str:
    data = getattr(value, "tobytes", None)
    return f"{value.dtype}{value.shape}{content_key(data())}" if data is not None else repr(value)
