"""What ran when, as a Chrome/Perfetto trace."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from intarsia.ep.provider import DeviceEvent
from intarsia.graph.formats.atomic_write import replace_text
from intarsia.lazy_dataclass import dataclass


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


@dataclass(frozen=True)
class ProfiledNode:
    """A node of the model that is profiled, by its first output in `Profile.nodes`."""

    name: str
    op_type: str
    provider: str


class Profile:
    """Collects events in memory; `save` writes them as trace events (times in microseconds since the start).

    In the file they have onnxruntime's form, so that its tools read them: a kernel is an event of category "Node" whose name is
    its first node's with "_kernel_time" behind, and whose arguments are `op_name` (its nodes' operators), `provider`, and of
    Intarsia's own `kernel`, `nodes` and `bytes`. A call of a provider, which encloses kernels, has the category "Part".
    """

    def __init__(self, start_ns: int | None = None) -> None:
        """`start_ns`: when it began (`time.perf_counter_ns`), if that was not now."""
        self.start_ns = time.perf_counter_ns() if start_ns is None else start_ns
        self.spans: list[Span] = []
        self.nodes: dict[str, ProfiledNode] = {}
        self._sources: list[Callable[[], Iterable[DeviceEvent]]] = []
        self._of_devices: list[DeviceEvent] = []

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

    def collect_from(self, source: Callable[[], Iterable[DeviceEvent]]) -> int:
        """Ask `source` for what a device measured since the last time, whenever the profile is read. Gives `start_ns`."""
        self._sources.append(source)
        return self.start_ns

    @property
    def events(self) -> list[dict[str, Any]]:
        """The trace events."""
        for source in tuple(self._sources):
            self._of_devices += source()
        own = [self._event(span) for span in tuple(self.spans)]
        return own + [
            self._complete(e.category, e.name, (e.start_ns, e.end_ns), e.thread, dict(e.arguments)) for e in self._of_devices
        ]

    def _event(self, s: Span) -> dict[str, Any]:
        category, name, args = s.category, s.name, s.args
        if category == "Kernel":
            category, known = "Node", [self.nodes[n] for n in s.nodes if n in self.nodes]
            first = known[0].name if known else next(iter(s.nodes), s.name)
            operators = "+".join(dict.fromkeys(node.op_type for node in known)) or s.name
            name = f"{first}_kernel_time"
            args = {"op_name": operators, "provider": known[0].provider if known else "", "kernel": s.name, **args}
        elif category == "Node":
            category = "Part"
        return self._complete(category, name, (s.start_ns, s.end_ns), s.thread, args)

    def _complete(
        self, category: str, name: str, times_ns: tuple[int, int], thread: int, args: dict[str, Any]
    ) -> dict[str, Any]:
        start, end = times_ns
        return {
            "cat": category, "name": name, "ph": "X", "pid": os.getpid(), "tid": thread,
            "ts": (start - self.start_ns) / 1e3, "dur": (end - start) / 1e3, "args": args,
        }  # fmt: skip

    def save(self, prefix: str) -> str:
        """Write `<prefix>_<date>_<time>_<milliseconds>.json` and return its name."""
        now = time.time()
        stamp = f"{time.strftime('%Y-%m-%d_%H-%M-%S', time.localtime(now))}_{int(now % 1 * 1000):03}"
        path = Path(f"{prefix}_{stamp}.json")
        self.write(path)
        return str(path)

    def write(self, path: Path) -> None:
        """Write the trace to this file."""
        import json

        lines = ",\n".join(json.dumps(event) for event in self.events)
        replace_text(path, f"[\n{lines}\n]\n")
