"""Messages between a program and its separate process: a line of JSON, and the bytes of arrays behind it.

A message is two unsigned 64-bit numbers (bytes of the JSON text, number of arrays' buffers), the text, and for each buffer its
bytes, whose number the text says. Arrays are written from where they are and read to where they stay: a pipe copies them, and
nobody else. The reader trusts nothing: numbers, types and sizes are checked before memory is made for them.
"""

from __future__ import annotations

import io
import json
import math
import struct
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from intarsia.graph.dtypes import DType
from intarsia.values.sparse_tensor import SparseTensor

_HEAD = struct.Struct("<QQ")
_MOST_BUFFERS = 1 << 20
_PIECE = 1 << 26  # bytes of one system call: some systems take no more than 2^31 - 1

Wait = Callable[[], None]


class NotUnderstood(ValueError):
    """A message is none."""


class Ended(EOFError):
    """The other side is not there any more."""


class Channel:
    """One end of two pipes.

    Args:
        reader, writer: descriptors; owned.
        to_read, to_write: called where a descriptor that does not block has nothing or takes nothing: they come back when that
            may have changed, or raise.
        before: called before each reading, where descriptors cannot be made not to block.
    """

    def __init__(
        self, reader: int, writer: int, to_read: Wait | None = None, to_write: Wait | None = None, before: Wait | None = None
    ) -> None:
        self._reader, self._writer = io.FileIO(reader, "rb"), io.FileIO(writer, "wb")
        self._to_read, self._to_write, self._before = to_read, to_write, before

    def send(self, message: dict[str, Any], arrays: Sequence[np.ndarray] = ()) -> None:
        """Raises Ended where nobody reads any more."""
        views = [_bytes_of(np.ascontiguousarray(array).reshape(-1).view(np.uint8)) for array in arrays]
        text = json.dumps({**message, "nbytes": [view.nbytes for view in views]}).encode()
        self._write(memoryview(_HEAD.pack(len(text), len(views)) + text))
        for view in views:
            self._write(view)

    def receive(self, most_nbytes: int) -> tuple[dict[str, Any], list[np.ndarray]]:
        """A message and its buffers.

        Raises:
            NotUnderstood: it is none, or larger than `most_nbytes`.
            Ended: the other side is gone.
        """
        head = bytearray(_HEAD.size)
        self._read(memoryview(head))
        length, count = _HEAD.unpack(head)
        if length > most_nbytes or count > _MOST_BUFFERS:
            raise NotUnderstood(f"a message of {length:,} bytes and {count:,} buffers; at most {most_nbytes:,} bytes are taken")
        text = bytearray(length)
        self._read(memoryview(text))
        try:
            message = json.loads(text)
            sizes = [int(n) for n in message["nbytes"]]
        except (ValueError, TypeError, KeyError, RecursionError, OverflowError) as error:
            raise NotUnderstood(f"no message: {error}") from error
        if len(sizes) != count or min(sizes, default=0) < 0 or sum(sizes) > most_nbytes:
            raise NotUnderstood(f"buffers of {sum(sizes):,} bytes; at most {most_nbytes:,} are taken")
        buffers = [np.empty(n, np.uint8) for n in sizes]
        for buffer in buffers:
            self._read(_bytes_of(buffer))
        return message, buffers

    def _write(self, view: memoryview) -> None:
        while view.nbytes:
            try:
                done = self._writer.write(view[:_PIECE])
            except (OSError, ValueError) as error:  # ValueError: it is closed
                raise Ended(str(error)) from error
            if done is None:
                self._waits(self._to_write)
            else:
                view = view[done:]

    def _read(self, view: memoryview) -> None:
        while view.nbytes:
            if self._before is not None:
                self._before()
            try:
                done = self._reader.readinto(view[:_PIECE])
            except (OSError, ValueError) as error:
                raise Ended(str(error)) from error
            if done == 0:
                raise Ended("the pipe is closed")
            if done is None:
                self._waits(self._to_read)
            else:
                view = view[done:]

    def _waits(self, wait: Wait | None) -> None:
        if wait is None:
            raise NotUnderstood("a descriptor does not block, and nobody waits for it")
        wait()

    def close(self) -> None:
        """Close both descriptors."""
        for end in (self._reader, self._writer):
            try:
                end.close()
            except OSError:  # it is gone all the same
                continue


def _bytes_of(array: np.ndarray) -> memoryview:
    return memoryview(array.data)


def packed(value: Any, arrays: list[np.ndarray]) -> Any:
    """A value of a run as JSON; the arrays in it are appended to `arrays`.

    Raises:
        TypeError: there is no way to write it.
    """
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, SparseTensor):
        value = value.to_dense()
    if isinstance(value, np.ndarray):
        if value.dtype.kind in "OUS":
            return {"texts": [_text(each) for each in value.ravel().tolist()], "shape": list(value.shape)}
        arrays.append(value)
        return {"array": len(arrays) - 1, "type": int(DType.of(value.dtype)), "shape": list(value.shape)}
    if isinstance(value, np.generic):
        return {"scalar": packed(np.asarray(value), arrays)}
    if isinstance(value, (list, tuple)):
        return {"list": [packed(each, arrays) for each in value]}
    if isinstance(value, dict):
        return {"map": [[packed(k, arrays), packed(v, arrays)] for k, v in value.items()]}
    raise TypeError(f"a value of type {type(value).__name__} cannot be sent to another process")


def _text(value: Any) -> Any:
    return {"bytes": value.decode("latin-1")} if isinstance(value, bytes) else str(value)


def unpacked(found: Any, buffers: Sequence[np.ndarray]) -> Any:
    """The value that `packed` wrote.

    Raises:
        NotUnderstood: it wrote none such.
    """
    try:
        return _unpacked(found, buffers)
    except (ValueError, TypeError, KeyError, IndexError, RecursionError, OverflowError, AttributeError) as error:
        raise NotUnderstood(f"no value: {error}") from error


def _unpacked(found: Any, buffers: Sequence[np.ndarray]) -> Any:
    if found is None or isinstance(found, (bool, int, float, str)):
        return found
    if "texts" in found:
        texts = np.empty(len(found["texts"]), object)
        texts[:] = [each if isinstance(each, str) else each["bytes"].encode("latin-1") for each in found["texts"]]
        return texts.reshape(_shape(found))
    if "array" in found:
        shape, dtype = _shape(found), DType(found["type"]).numpy
        buffer = buffers[found["array"]]
        if dtype.hasobject or buffer.nbytes != math.prod(shape) * dtype.itemsize:
            raise NotUnderstood(f"an array of {dtype} {list(shape)} in {buffer.nbytes:,} bytes")
        if dtype == np.bool_ and buffer.max(initial=0) > 1:  # NumPy counts on 0 and 1
            raise NotUnderstood(f"an array of {dtype} with a byte that is neither 0 nor 1")
        return buffer.view(dtype).reshape(shape)
    if "scalar" in found:
        return _unpacked(found["scalar"], buffers)[()]
    if "list" in found:
        return [_unpacked(each, buffers) for each in found["list"]]
    return {_unpacked(k, buffers): _unpacked(v, buffers) for k, v in found["map"]}


def _shape(found: dict[str, Any]) -> tuple[int, ...]:
    shape = tuple(int(d) for d in found["shape"])
    if min(shape, default=0) < 0:
        raise NotUnderstood(f"an array of shape {list(shape)}")
    return shape
