"""What executes Core ML's packages on this machine: macOS, or what a test puts in its place."""

from __future__ import annotations

import platform
from collections.abc import Iterator
from contextlib import contextmanager

from intarsia.errors import EPFail
from intarsia.providers.coreml.converter import missing_converter
from intarsia.providers.coreml.engine import Engine

_MACOS = (14, 0)  # of which on Core ML has the operations of iOS 17
_stand_in: list[Engine] = []


@contextmanager
def executed_by(engine: Engine) -> Iterator[None]:
    """Let `engine` execute packages instead of Core ML, in this process, as tests do on other systems."""
    _stand_in.append(engine)
    try:
        yield
    finally:
        _stand_in.remove(engine)


def missing() -> str:
    """Why packages cannot be executed here; "" where they can."""
    from intarsia.providers.missing_libraries import looked_for

    if not _stand_in and platform.system() != "Darwin":
        return f"Core ML is part of macOS. {looked_for('CoreMLExecutionProvider')}".rstrip(". ")
    if not _stand_in and _macos() < _MACOS:
        return f"Core ML of macOS {platform.mac_ver()[0]} lacks operations: macOS {_MACOS[0]} or later is needed"
    return missing_converter()


def _macos() -> tuple[int, ...]:
    return tuple(int(part) for part in platform.mac_ver()[0].split(".") if part.isdigit())


def engine() -> Engine:
    """What executes packages.

    Raises:
        EPFail: nothing does on this machine.
    """
    if _stand_in:
        return _stand_in[-1]
    if why := missing():
        raise EPFail(f"CoreMLExecutionProvider cannot be used on this machine: {why}")
    from intarsia.providers.coreml.apple_engine import AppleEngine

    return AppleEngine()
