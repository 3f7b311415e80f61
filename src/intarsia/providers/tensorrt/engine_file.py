"""An engine as it is stored: a line that says what it is, and NVIDIA's bytes."""

from __future__ import annotations

import json

from intarsia.errors import EPFail
from intarsia.lazy_dataclass import dataclass

_MAGIC = b"intarsia engine "


@dataclass(frozen=True)
class EngineFile:
    """What is stored of a part.

    Attributes:
        engine: NVIDIA's bytes.
        stripped: it has no weights, and is refitted when it is loaded.
    """

    engine: bytes
    stripped: bool = False

    def to_bytes(self) -> bytes:
        return _MAGIC + json.dumps({"stripped": self.stripped}).encode() + b"\n" + self.engine

    @classmethod
    def of(cls, data: bytes) -> EngineFile:
        """Raises EPFail where it is something else."""
        head, found, engine = data.partition(b"\n")
        if not found or not head.startswith(_MAGIC):
            raise EPFail("what was stored of an engine is damaged: its first line is missing")
        try:
            said = json.loads(head.removeprefix(_MAGIC))
        except ValueError as error:
            raise EPFail("what was stored of an engine is damaged: its first line cannot be read") from error
        return cls(engine, bool(said.get("stripped")))
