"""Kernels' texts that take long to write, kept in the user's cache by the arguments they were written from."""

from __future__ import annotations

import functools
import zlib
from collections.abc import Callable
from typing import ParamSpec, cast

from intarsia.codegen.cache import cached, content_key
from intarsia.codegen.engine import KernelText
from intarsia.codegen.fingerprint import surroundings

_Arguments = ParamSpec("_Arguments")
_RATIO = 6  # about, of a text and what it is packed to


class PackedText(KernelText):
    """A text that is in memory as a whole, a megabyte or so, only while it is compiled. Its symbol is a content hash."""

    def __init__(self, symbol: str, packed: bytes, final: bool) -> None:
        for name, value in (("symbol", symbol), ("packed", packed), ("final", final)):
            object.__setattr__(self, name, value)

    @property
    def ir(self) -> str:
        packed: bytes = self.packed  # type: ignore[attr-defined]
        return zlib.decompress(packed).decode()

    @property
    def size(self) -> int:
        return _RATIO * len(self.packed)  # type: ignore[attr-defined]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, KernelText) and (self.symbol, self.final) == (other.symbol, other.final)

    def __hash__(self) -> int:
        return hash(self.symbol)


def kept(write: Callable[_Arguments, KernelText]) -> Callable[_Arguments, KernelText]:
    """`write` for arguments whose `repr` says all of them: done once in a process, and once for all in a cache."""

    @functools.cache
    @functools.wraps(write)
    def found(*args: _Arguments.args, **kwargs: _Arguments.kwargs) -> KernelText:
        around = surroundings()
        key = content_key(
            around["Intarsia's files"], around["llvmlite"], write.__module__, write.__qualname__, repr(args), repr(kwargs)
        )  # fmt: skip
        symbol, final, packed = cached(f"text-{key}", lambda: _packed(write(*args, **kwargs))).split(b"\n", 2)
        return PackedText(symbol.decode(), packed, final == b"final")

    return cast("Callable[_Arguments, KernelText]", found)


def _packed(text: KernelText) -> bytes:
    head = f"{text.symbol}\n{'final' if text.final else ''}\n"
    return head.encode() + zlib.compress(text.ir.encode(), 1)
