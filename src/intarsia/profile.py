"""What ran when, as a Chrome/Perfetto trace."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any


class Profile:
    """Collects events in memory; `save` writes them as trace events (times in microseconds since the start)."""

    def __init__(self) -> None:
        self.start_ns = time.perf_counter_ns()
        self.events: list[dict[str, Any]] = []

    def add(self, category: str, name: str, start_ns: int, args: dict[str, str] | None = None) -> None:
        """An event that began at `start_ns` (`time.perf_counter_ns`) and ends now."""
        self._span(category, name, start_ns, time.perf_counter_ns(), args or {})

    def add_kernel(self, name: str, nodes: Sequence[str], start_ns: int, end_ns: int) -> None:
        """A kernel that ran from `start_ns` to `end_ns` and computed `nodes`."""
        self._span("Kernel", name, start_ns, end_ns, {"nodes": ", ".join(nodes)})

    def _span(self, category: str, name: str, start_ns: int, end_ns: int, args: dict[str, str]) -> None:
        self.events.append({
            "cat": category, "name": name, "ph": "X", "pid": os.getpid(), "tid": threading.get_ident(),
            "ts": (start_ns - self.start_ns) / 1e3, "dur": (end_ns - start_ns) / 1e3, "args": args,
        })  # fmt: skip

    def save(self, prefix: str) -> str:
        """Write `<prefix>_<date>_<time>.json` and return its name."""
        path = Path(f"{prefix}_{time.strftime('%Y-%m-%d_%H-%M-%S')}.json")
        lines = ",\n".join(json.dumps(event) for event in self.events)
        path.write_text(f"[\n{lines}\n]\n")
        return str(path)
