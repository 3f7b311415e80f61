"""Protobuf's wire format."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from intarsia.errors import InvalidProtobuf
from intarsia.graph.formats import protobuf_wire

INT64 = st.integers(-(1 << 63), (1 << 63) - 1)


@given(INT64)
def test_varints_round_trip(value: int) -> None:
    encoded = protobuf_wire.encode_varint(value)
    found, end = protobuf_wire.varint(encoded, 0)
    assert (protobuf_wire.signed(found), end) == (value, len(encoded))
    assert len(encoded) == (10 if value < 0 else max(1, -(-value.bit_length() // 7)))


@given(st.lists(INT64, max_size=60))
def test_packed_integers_round_trip(values: list[int]) -> None:
    message = protobuf_wire.Message()
    message.packed_integers(1, values)
    data = message.join()
    ((tag, start, end),) = protobuf_wire.fields(data, 0, len(data))
    assert tag == 0x0A
    assert protobuf_wire.packed_ints(data, start, end) == values
    assert protobuf_wire.count_varints(data, start, end) == len(values)
    assert protobuf_wire.packed_varints(data, start, end).view(np.int64).tolist() == values


def test_fields_of_all_wire_types() -> None:
    message = protobuf_wire.Message()
    message.integer(1, 150)
    message.string(2, "testing")
    message.float32(3, 1.5)
    message.integer(20, -1)
    inner = protobuf_wire.Message()
    inner.raw(1, memoryview(bytes(200)))
    message.message(4, inner)
    data = message.join() + bytes([5 << 3 | 1]) + bytes(8)
    found = list(protobuf_wire.fields(data, 0, len(data)))
    assert [tag for tag, _, _ in found] == [8, 18, 29, 160, 34, 41]
    assert found[0][1] == 150
    assert data[found[1][1] : found[1][2]] == b"testing"
    assert protobuf_wire.float32(data, found[2][1]) == 1.5
    assert protobuf_wire.signed(found[3][1]) == -1
    assert found[4][2] - found[4][1] == 203


def test_known_encoding() -> None:
    # The example of protobuf's encoding guide: field 1 with 150 is 08 96 01.
    assert list(protobuf_wire.fields(b"\x08\x96\x01", 0, 3)) == [(8, 150, 0)]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"\x08", "cut short: it ends at byte 1 inside the field at byte 0"),
        (b"\x08\x80", "cut short"),
        (b"\x0a\x05abc", "cut short: there are 5 of at least 7 bytes .its field 1 at byte 0 needs 5, and 3 are left"),
        (b"\x0d\x00\x00", "there are 3 of at least 5 bytes"),
        (b"\x08" + b"\xff" * 11, "corrupt varint at byte 1: it is longer than 10 bytes"),
        (b"\x0b", "tag 0xb has wire type 3, expected 0, 1, 2 or 5"),
        (b"\x00\x01", "field number 0 is not allowed"),
        (b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", "claims 18446744073709551615 bytes"),
    ],
)
def test_corrupt_messages(data: bytes, message: str) -> None:
    with pytest.raises(InvalidProtobuf, match=message):
        list(protobuf_wire.fields(data, 0, len(data)))


def test_a_field_must_end_inside_its_message() -> None:
    with pytest.raises(InvalidProtobuf, match="claims 5 bytes, but the message ends after 2"):
        list(protobuf_wire.fields(b"\x0a\x05abcdefgh", 0, 4))
    with pytest.raises(InvalidProtobuf, match="claims 3 bytes, but the message ends after 2"):
        list(protobuf_wire.fields(b"\x08\x80\x01\x00", 0, 2))


@pytest.mark.parametrize("padding", [0, 100])
def test_packed_numbers_that_do_not_end(padding: int) -> None:
    data = b"\x01" * padding + b"\x80"
    with pytest.raises(InvalidProtobuf, match="the last varint does not end"):
        protobuf_wire.packed_varints(data, 0, len(data))


def test_packed_varint_of_eleven_bytes() -> None:
    data = b"\x01" * 60 + b"\xff" * 10 + b"\x01"
    with pytest.raises(InvalidProtobuf, match="longer than 10 bytes"):
        protobuf_wire.packed_varints(data, 0, len(data))


def test_strings_must_be_utf8() -> None:
    with pytest.raises(InvalidProtobuf, match="string of 2 bytes at byte 1 is not UTF-8"):
        protobuf_wire.text(b"a\xff\xfe", 1, 3)
    assert protobuf_wire.text_or_bytes(b"\xff\xfe", 0, 2) == b"\xff\xfe"


def test_packed_floats_of_a_broken_length() -> None:
    assert protobuf_wire.packed_floats(np.float32([1.5, -2]).tobytes(), 0, 8) == [1.5, -2.0]
    with pytest.raises(InvalidProtobuf, match="7 bytes are no multiple of 4"):
        protobuf_wire.packed_floats(bytes(7), 0, 7)
