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


def kept(write: Callable[_Arguments, KernelText]) -> Callable[_Arguments, KernelText]:
    """`write` for arguments whose `repr` says all of them: done once in a process, and once for all in a cache."""

    @functools.cache
    @functools.wraps(write)
    def found(*args: _Arguments.args, **kwargs: _Arguments.kwargs) -> KernelText:
        around = surroundings()
        key = content_key(
            around["Intarsia's files"], around["llvmlite"], write.__module__, write.__qualname__, repr(args), repr(kwargs)
        )  # fmt: skip
        symbol, kind, packed = cached(f"text-{key}", lambda: _packed(write(*args, **kwargs))).split(b"\n", 2)
        return KernelText(symbol.decode(), packed, bool(kind), kind == b"quick")

    return cast("Callable[_Arguments, KernelText]", found)


def _packed(text: KernelText) -> bytes:
    kind = "quick" if text.quick else "final" if text.final else ""
    head = f"{text.symbol}\n{kind}\n"
    return head.encode() + zlib.compress(text.ir.encode(), 1)
