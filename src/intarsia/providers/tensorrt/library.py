"""NVIDIA's software: full TensorRT (the package tensorrt) or TensorRT for RTX (tensorrt-rtx), whichever a provider prefers.

Builders and parsers need neither a driver nor a GPU. What a library says goes to its logger, not into exceptions: a call
that failed returns None or False. `Messages` collects what was said, so that errors can tell it.
"""

from __future__ import annotations

import functools
import importlib
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import field
from typing import Any

from intarsia.lazy_dataclass import dataclass
from intarsia.printable import get_logger

FULL, RTX = "tensorrt", "tensorrt_rtx"
OLDEST = 10  # of full TensorRT: from here on networks are strongly typed
INSTALL = "pip install 'intarsia[tensorrt]'"
_TITLES = {FULL: "TensorRT", RTX: "TensorRT-RTX"}
_WARNING = 2  # of ILogger.Severity; errors are below, information above
_MOST_LINES = 200
_logger = get_logger("intarsia.providers.tensorrt")


class Messages:
    """What one library's logger was told, by the thread in whose name it was said.

    A library has one logger in a process: further ones are ignored by it, with a warning. Its own threads log too; what they
    say goes to all who collect.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._sinks: dict[int, list[list[str]]] = {}

    @contextmanager
    def collected(self) -> Iterator[list[str]]:
        """The warnings and errors that are logged within the block, in order."""
        lines: list[str] = []
        thread = threading.get_ident()
        with self._lock:
            self._sinks.setdefault(thread, []).append(lines)
        try:
            yield lines
        finally:
            with self._lock:
                sinks = self._sinks[thread]
                sinks.remove(lines)
                if not sinks:
                    del self._sinks[thread]

    def say(self, severity: int, text: str) -> None:
        """Called by the library, from any thread."""
        if severity > _WARNING:
            _logger.debug("%s", text)
            return
        thread = threading.get_ident()
        with self._lock:
            sinks = self._sinks.get(thread) or [sink for found in self._sinks.values() for sink in found]
            for sink in sinks:
                if len(sink) < _MOST_LINES:
                    sink.append(text)
        if not sinks:
            _logger.warning("%s", text)


def told(lines: list[str], otherwise: str = "it gave no reason") -> str:
    """Messages as one line: the last ones are closest to the cause."""
    distinct = list(dict.fromkeys(" ".join(line.split()) for line in lines))
    return "; ".join(text if len(text) < 300 else f"{text[:297]}..." for text in distinct[-3:]) or otherwise


@dataclass(frozen=True)
class Library:
    """One of NVIDIA's two libraries.

    Attributes:
        name: of its Python module.
        module: the module.
        version: as it says.
        messages: what its logger is told.
    """

    name: str
    module: Any = field(repr=False, compare=False)
    version: str
    messages: Messages = field(repr=False, compare=False)
    logger: Any = field(repr=False, compare=False)

    @property
    def title(self) -> str:
        return f"{_TITLES[self.name]} {self.version}"

    @property
    def rtx(self) -> bool:
        """Whether it is the one for RTX: kernels are made when an engine is loaded, chips are named when it is built."""
        return self.name == RTX

    @property
    def major(self) -> int:
        return int(self.version.partition(".")[0] or 0)


@functools.cache
def opened(name: str) -> Library:
    """The library, with its one logger of this process.

    Raises:
        ImportError: it is not installed, or its shared libraries are not, or it is too old.
    """
    module = importlib.import_module(name)
    version = str(module.__version__)
    if name == FULL and int(version.partition(".")[0]) < OLDEST:
        raise ImportError(f"it is version {version}, and {OLDEST} or later is needed")
    messages = Messages()

    class Collector(module.ILogger):  # type: ignore[name-defined,misc] # the module is not known here
        """Gives what the library says to `messages`."""

        def __init__(self) -> None:
            module.ILogger.__init__(self)

        def log(self, severity: Any, msg: str) -> None:
            messages.say(int(severity), msg)

    return Library(name, module, version, messages, Collector())


def find(names: tuple[str, ...]) -> Library | None:
    """The first of these libraries that can be imported."""
    for name in names:
        try:
            return opened(name)
        except (ImportError, OSError) as error:
            _logger.debug("%s is not used: %s", name, error)
    return None


def missing(names: tuple[str, ...]) -> str:
    """Why none of these libraries can be used; "" where one can."""
    if find(names) is not None:
        return ""
    reasons = []
    for name in names:
        try:
            opened(name)
        except ModuleNotFoundError as error:
            package = (error.name or name).replace("_", "-")
            reasons.append(f"the package {package} is not installed")
        except (ImportError, OSError) as error:
            reasons.append(f"the package {name.replace('_', '-')} cannot be loaded: {error}")
    return f"{'; '.join(reasons)}: {INSTALL}"
