"""Models whose protobuf bytes are wrong: lengths, wire types, varints, order, depth and repetition of fields.

A model's bytes are taken apart into fields by the message types of onnx.proto, some are replaced, and the messages around them
are written again, so that what lies around a change is as it should be.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import damaged
import onnx
from mutations import Case

VARINT, FIXED64, BYTES, BEGIN, END, FIXED32 = range(6)
NUMBERS = (0, 1, 2, 5, 7, 15, 16, 100, 2047, 2048, 2**28, 2**29 - 1)  # of fields
HUGE_VARINTS = (b"\xff" * 9 + b"\x01", b"\xff" * 9 + b"\x7f", b"\x80" * 9 + b"\x01", b"\xff" * 10, b"\x80" * 12, b"\x80\x00")
LENGTHS = (0, 1, 2, 127, 128, 2**14, 2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**63 - 1, 2**64 - 1)
DEPTHS = (10, 99, 101, 1000, 5000)
NESTED = {"graph": (1, 5, 6), "sequence": (4, 1), "optional": (9, 1), "map": (5, 2)}  # numbers of fields, from outside


@dataclass
class Field:
    """A field as it is written: tag and payload, and the fields in it where it is a message."""

    number: int
    wire: int
    raw: bytes
    payload: bytes
    path: str
    inner: list[int] = field(default_factory=list)  # numbers in the list of all
    outer: int = -1


def varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def message(number: int, payload: bytes) -> bytes:
    """A field with a length."""
    return varint(number << 3 | BYTES) + varint(len(payload)) + payload


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        value |= (data[at] & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if data[at - 1] < 0x80:
            return value, at


@cache
def fields_of(name: str) -> list[Field]:
    """All fields of a model of `damaged`; the first is the model."""
    data = damaged.model_of(name)
    found = [Field(0, BYTES, data, data, "")]
    _take_apart(found, 0, onnx.ModelProto.DESCRIPTOR)
    return found


def _take_apart(found: list[Field], outer: int, kind: Any) -> None:
    data, at = found[outer].payload, 0
    while at < len(data):
        begin = at
        tag, at = _read_varint(data, at)
        number, wire = tag >> 3, tag & 7
        start = at
        if wire == VARINT:
            _, at = _read_varint(data, at)
        elif wire == BYTES:
            size, start = _read_varint(data, at)
            at = start + size
        else:
            at += 8 if wire == FIXED64 else 4
        known = kind.fields_by_number[number]
        found[outer].inner.append(len(found))
        found.append(Field(number, wire, data[begin:at], data[start:at], f"{found[outer].path}.{known.name}", outer=outer))
        if known.message_type is not None:
            _take_apart(found, len(found) - 1, known.message_type)


def written(fields: list[Field], changed: dict[int, bytes]) -> bytes:
    """The model with other bytes instead of some fields."""
    touched = {0}
    for i in changed:
        while i not in touched:
            touched.add(i)
            i = fields[i].outer

    def body(i: int) -> bytes:
        return b"".join(
            changed[j] if j in changed else message(fields[j].number, body(j)) if j in touched else fields[j].raw
            for j in fields[i].inner
        )

    return body(0)


def _changed(fields: list[Field], at: int, rng: random.Random) -> tuple[bytes, str]:
    """What is there in a field's place, and what was done, in words."""
    one = fields[at]
    how = rng.choice(
        ("length", "wire", "number", "varint", "twice", "many", "moved", "cut", "unknown", "nested", "group", "split")
    )
    if how == "length":
        length = rng.choice((*LENGTHS, len(one.payload) + 1, max(len(one.payload) - 1, 0)))
        return varint(one.number << 3 | BYTES) + varint(length) + one.payload, how
    if how == "wire":
        return varint(one.number << 3 | rng.randrange(8)) + one.payload, how
    if how == "number":
        return message(rng.choice(NUMBERS), one.payload), how
    if how == "varint":
        return varint(one.number << 3) + rng.choice(HUGE_VARINTS), how
    if how == "twice":
        return one.raw * 2, how
    if how == "many":
        return one.raw * rng.choice((10, 1000, 20_000) if len(one.raw) < 64 else (10,)), how
    if how == "moved":
        other = fields[rng.randrange(1, len(fields))]
        return other.raw, f"replaced by {other.path}"
    if how == "cut":
        return message(one.number, one.payload[: rng.randrange(len(one.payload) + 1)]), how
    if how == "unknown":
        tag = varint(rng.choice(NUMBERS) << 3 | rng.randrange(6))
        return one.raw + tag + rng.randbytes(rng.choice((1, 8, 200))), "something unknown behind it"
    if how == "nested":
        payload, depth = one.payload, rng.choice(DEPTHS)
        for _ in range(depth):
            payload = message(one.number, payload)
        return payload, f"{depth} times in itself"
    if how == "group":
        return varint(one.number << 3 | BEGIN) + one.payload + varint(one.number << 3 | END) * rng.randrange(2), how
    half = rng.randrange(len(one.inner) + 1)  # one message in two parts, which protobuf joins
    parts = [b"".join(fields[i].raw for i in part) for part in (one.inner[:half], one.inner[half:])]
    return b"".join(message(one.number, part) for part in parts) if one.inner else one.raw, how


def case_of(rng: random.Random) -> Case:
    """A model with one wrong field or more, or wrong as a whole."""
    name = rng.choice(sorted(damaged.TEXTS))
    whole = rng.random()
    if whole < 0.06:
        data = damaged.model_of(name)
        return Case(data[: rng.randrange(len(data))], damaged.feeds_of(name), "cut")
    if whole < 0.1:
        return _deep(rng)
    fields, changed, told = fields_of(name), dict[int, bytes](), []
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        at = rng.randrange(1, len(fields))
        changed[at], how = _changed(fields, at, rng)
        told.append(f"{fields[at].path}: {how}")
    return Case(written(fields, changed), damaged.feeds_of(name), "; ".join(told))


def _deep(rng: random.Random) -> Case:
    """Messages of one kind in each other: graphs, types of sequences, optionals and maps."""
    depth, kind = rng.choice(DEPTHS), rng.choice(sorted(NESTED))
    payload = b""
    for _ in range(depth):
        for number in reversed(NESTED[kind]):
            payload = message(number, payload)
    if kind != "graph":
        payload = message(11, message(1, b"x") + message(2, payload))
    return Case(b"\x08\x0a" + message(7, payload), {}, f"{kind}, {depth} deep")
