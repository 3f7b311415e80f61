"""What the cache holds: entries by kind, and the models that sessions start from it with. Listing counts as no use."""

from __future__ import annotations

import pickle
from collections.abc import Iterable

from intarsia.cache.disk_cache import CacheEntry, DiskCache
from intarsia.lazy_dataclass import dataclass

KINDS: dict[str, str] = {
    "obj": "kernels",
    "pack": "kernels of a model together",
    "cubin": "kernels for NVIDIA's GPUs",
    "hsaco": "kernels for AMD's GPUs",
    "opencl": "kernels of OpenCL devices",
    "launches": "plans of devices",
    "start": "warm starts",
    "weights": "weights of warm starts",
    "array": "places of large weights, which models share",
    "beside": "names of weight files",
    "checked": "states of files that were checked",
    "seen": "what warm starts depend on",
    "bound": "layouts for sizes of first runs",
    "frame": "what other sizes of a model take",
    "binder": "code that binds sizes",
    "file": "hashes of model files",
    "executor": "thread pool code",
    "roofline": "measured peaks of the machine",
    "text": "texts of micro-kernels",
    "compiler": "what LLVM says of the CPU",
    "sources": "hashes of this package's files",
}
"""What stands before the first "-" of a key -> what it is. A key that is a hash alone is a choice of providers="auto"."""

CHOICES, OTHERS = "choices of providers='auto'", "others"


@dataclass(frozen=True)
class Kind:
    """Entries of one kind: how many, their bytes, and when one of them was last used (seconds since the epoch)."""

    name: str
    entries: int
    nbytes: int
    last_used: float


@dataclass(frozen=True)
class StartEntry:
    """A model that sessions start from the cache with.

    Attributes:
        key: of the entry "start-<key>".
        model: the path it was loaded from, else its name; "" of an entry that this version cannot read.
        nbytes: all that is cached for it, weights that other models share included.
    """

    key: str
    model: str
    inputs: tuple[str, ...]
    nbytes: int
    last_used: float


def kind_of(key: str) -> str:
    """What an entry is, for people."""
    prefix, separator, _ = key.partition("-")
    return KINDS.get(prefix, OTHERS) if separator else CHOICES


def by_kind(entries: Iterable[CacheEntry]) -> list[Kind]:
    """Largest first."""
    groups: dict[str, list[CacheEntry]] = {}
    for entry in entries:
        groups.setdefault(kind_of(entry.key), []).append(entry)
    found = [Kind(n, len(g), sum(e.nbytes for e in g), max(e.last_used for e in g)) for n, g in groups.items()]
    return sorted(found, key=lambda kind: (-kind.nbytes, kind.name))


def warm_starts(store: DiskCache, limit: int = 0) -> list[StartEntry]:
    """The models that sessions start from the cache with, last used first; at most `limit` (0: all)."""
    entries = store.entries()
    starts = [e for e in reversed(entries) if e.key.startswith("start-")]
    found = []
    for entry in starts[:limit] if limit else starts:
        key = entry.key.removeprefix("start-")
        model, inputs, nbytes = _model(store.peek(entry.key))
        found.append(StartEntry(key, model, inputs, entry.nbytes + nbytes, entry.last_used))
    return found


def _model(head: bytes | None) -> tuple[str, tuple[str, ...], int]:
    if head is None:
        return "", (), 0
    try:
        signature, _, layout = pickle.loads(head)  # noqa: S301 # as sessions do: it comes with machine code
        name = str(signature.metadata.path or signature.name)
        return name, tuple(f"{value.name}: {value.type}" for value in signature.inputs), layout.nbytes
    except Exception:  # noqa: BLE001 # made by another version: any error of its classes
        return "", (), 0
