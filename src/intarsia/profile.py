"""What ran when, as a Chrome/Perfetto trace."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Span:
    """Something that ran on a thread from `start_ns` to `end_ns` (`time.perf_counter_ns`). `nodes`: those a kernel computed."""

    category: str
    name: str
    nodes: tuple[str, ...]
    start_ns: int
    end_ns: int
    thread: int
    args: dict[str, Any]


class Profile:
    """Collects events in memory; `save` writes them as trace events (times in microseconds since the start)."""

    def __init__(self, start_ns: int | None = None) -> None:
        """`start_ns`: when it began (`time.perf_counter_ns`), if that was not now."""
        self.start_ns = time.perf_counter_ns() if start_ns is None else start_ns
        self.spans: list[Span] = []

    def add(self, category: str, name: str, start_ns: int, args: dict[str, Any] | None = None) -> None:
        """An event that began at `start_ns` (`time.perf_counter_ns`) and ends now."""
        self._span(category, name, start_ns, time.perf_counter_ns(), args or {})

    def add_kernel(self, name: str, nodes: Sequence[str], start_ns: int, end_ns: int, nbytes: int = 0) -> None:
        """A kernel that ran from `start_ns` to `end_ns`, computed `nodes`, and read and wrote `nbytes` (0: not known)."""
        self._span("Kernel", name, start_ns, end_ns, {"nodes": ", ".join(nodes), "bytes": nbytes}, tuple(nodes))

    def _span(
        self, category: str, name: str, start_ns: int, end_ns: int, args: dict[str, Any], nodes: tuple[str, ...] = ()
    ) -> None:
        self.spans.append(Span(category, name, nodes, start_ns, end_ns, threading.get_ident(), args))

    @property
    def events(self) -> list[dict[str, Any]]:
        """The trace events."""
        return [
            {
                "cat": s.category, "name": s.name, "ph": "X", "pid": os.getpid(), "tid": s.thread,
                "ts": (s.start_ns - self.start_ns) / 1e3, "dur": (s.end_ns - s.start_ns) / 1e3, "args": s.args,
            }
            for s in tuple(self.spans)
        ]  # fmt: skip

    def save(self, prefix: str) -> str:
        """Write `<prefix>_<date>_<time>.json` and return its name."""
        path = Path(f"{prefix}_{time.strftime('%Y-%m-%d_%H-%M-%S')}.json")
        self.write(path)
        return str(path)

    def write(self, path: Path) -> None:
        """Write the trace to this file."""
        lines = ",\n".join(json.dumps(event) for event in self.events)
        path.write_text(f"[\n{lines}\n]\n", encoding="utf-8")
