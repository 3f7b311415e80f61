"""An NNAPI model as data: operands, operations, weights; as bytes and back. What the provider hands to the library."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import field
from typing import Any

import numpy as np

from intarsia.errors import EPFail
from intarsia.lazy_dataclass import dataclass
from intarsia.providers.nnapi.operands import Kind, OperandType

_MAGIC = b"NNAPIMODEL1\n"
_ALIGNMENT = 64


@dataclass(frozen=True)
class Operand:
    """A type, and the value of a constant. `omitted`: an optional input that is not given."""

    type: OperandType
    value: np.ndarray | None = None
    omitted: bool = False


@dataclass(frozen=True)
class Call:
    """One operation on operands by their numbers."""

    name: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]


@dataclass
class NnapiModel:
    """A whole model.

    Attributes:
        inputs, outputs: operands, in the order of the part's inputs and outputs.
        relaxed: float32 may be computed in float16.
        level: the feature level that it was written for.
    """

    operands: list[Operand] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    inputs: list[int] = field(default_factory=list)
    outputs: list[int] = field(default_factory=list)
    relaxed: bool = False
    level: int = 27

    @property
    def nbytes(self) -> int:
        """Of its constants."""
        return sum(o.value.nbytes for o in self.operands if o.value is not None)

    def to_bytes(self) -> bytes:
        """Head (JSON) and constants, each at a multiple of 64 bytes."""
        blocks: list[bytes] = []
        at, operands = 0, []
        for operand in self.operands:
            kind = operand.type
            row: list[Any] = [
                int(kind.kind), list(kind.dims), kind.scale, kind.zero_point, kind.channel_dim, list(kind.channel_scales),
                -2 if operand.omitted else -1,
            ]  # fmt: skip
            if operand.value is not None:
                data = np.ascontiguousarray(operand.value).tobytes()
                row[-1] = at
                blocks.append(data + bytes(-len(data) % _ALIGNMENT))
                at += len(blocks[-1])
            operands.append(row)
        calls = [[c.name, list(c.inputs), list(c.outputs)] for c in self.calls]
        head = json.dumps([operands, calls, self.inputs, self.outputs, self.relaxed, self.level]).encode()
        head += b" " * (-(len(_MAGIC) + 16 + len(head)) % _ALIGNMENT)
        return b"".join([_MAGIC, len(head).to_bytes(16, "little"), head, *blocks])

    @classmethod
    def from_bytes(cls, data: bytes | memoryview) -> NnapiModel:
        """Constants are views of `data`.

        Raises:
            EPFail: these are not the bytes of a model.
        """
        start = len(_MAGIC) + 16
        if bytes(data[: len(_MAGIC)]) != _MAGIC:
            raise EPFail("this is no compiled part of NnapiExecutionProvider, or of another version; compile the model anew")
        size = int.from_bytes(data[len(_MAGIC) : start], "little")
        try:
            operands, calls, inputs, outputs, relaxed, level = json.loads(bytes(data[start : start + size]))
            body = memoryview(data)[start + size :]
            return cls(
                [_operand(row, body) for row in operands],
                [Call(name, tuple(read), tuple(written)) for name, read, written in calls],
                inputs,
                outputs,
                relaxed,
                level,
            )
        except (ValueError, TypeError, KeyError) as error:
            raise EPFail(f"a compiled part of NnapiExecutionProvider is damaged: {error}; compile the model anew") from error

    def describe(self) -> str:
        """A line for each operation."""

        def text(i: int) -> str:
            operand = self.operands[i]
            if operand.omitted:
                return "-"
            if operand.value is not None and operand.value.size == 1:
                return str(operand.value.reshape(()).item())
            return f"%{i}" if operand.value is None else f"#{i}"

        lines = []
        for call in self.calls:
            results = ", ".join(f"%{i} {self.operands[i].type}" for i in call.outputs)
            lines.append(f"  {call.name}({', '.join(map(text, call.inputs))}) -> {results}")
        return "\n".join(lines)


def _operand(row: Sequence[Any], body: memoryview) -> Operand:
    kind, dims, scale, zero_point, channel_dim, channel_scales, at = row
    found = OperandType(Kind(kind), tuple(dims), scale, zero_point, channel_dim, tuple(channel_scales))
    if at < 0:
        return Operand(found, None, at == -2)
    value = np.frombuffer(body[at : at + found.nbytes], found.kind.numpy).reshape(found.dims)
    return Operand(found, value)
