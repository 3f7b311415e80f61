"""What ran when, as a Chrome/Perfetto trace."""

from __future__ import annotations

import json
import os
import threading
import time
from pathlib import Path
from typing import Any


class Profile:
    """Collects events in memory; `save` writes them as trace events (times in microseconds since the start)."""

    def __init__(self) -> None:
        self.start_ns = time.perf_counter_ns()
        self.events: list[dict[str, Any]] = []

    def add(self, category: str, name: str, start_ns: int, args: dict[str, str] | None = None) -> None:
        """An event that began at `start_ns` (`time.perf_counter_ns`) and ends now."""
        now = time.perf_counter_ns()
        self.events.append({
            "cat": category, "name": name, "ph": "X", "pid": os.getpid(), "tid": threading.get_ident(),
            "ts": (start_ns - self.start_ns) / 1e3, "dur": (now - start_ns) / 1e3, "args": args or {},
        })  # fmt: skip

    def save(self, prefix: str) -> str:
        """Write `<prefix>_<date>_<time>.json` and return its name."""
        path = Path(f"{prefix}_{time.strftime('%Y-%m-%d_%H-%M-%S')}.json")
        path.write_text(json.dumps(self.events, indent=1))
        return str(path)
