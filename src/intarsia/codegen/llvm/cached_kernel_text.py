"""Kernels' texts that take long to write, cached by the arguments they were written from."""

from __future__ import annotations

import functools
import pickle
from collections.abc import Callable
from typing import Any, ParamSpec, cast

from intarsia.cache.disk_cache import cached, content_key
from intarsia.cache.fingerprint import surroundings
from intarsia.codegen.llvm.jit import KernelText

_Arguments = ParamSpec("_Arguments")


def cached_text(write: Callable[_Arguments, KernelText]) -> Callable[_Arguments, KernelText]:
    """`write` for arguments whose `repr` says all of them: done once in a process, and once for all in a cache."""

    @functools.cache
    @functools.wraps(write)
    def found(*args: _Arguments.args, **kwargs: _Arguments.kwargs) -> KernelText:
        around = surroundings()
        key = content_key(
            around["Intarsia's files"], around["llvmlite"], write.__module__, write.__qualname__, repr(args), repr(kwargs)
        )  # fmt: skip
        return _text(pickle.loads(cached(f"text-{key}", lambda: pickle.dumps(_words(write(*args, **kwargs)), 5))))  # noqa: S301 # the cache is trusted

    return cast("Callable[_Arguments, KernelText]", found)


def _words(text: KernelText) -> tuple[Any, ...]:
    """What a text is made of, its parts' words included: pickled as itself it would lose its IR."""
    packed = text.packed()
    return packed.symbol, packed.text, packed.effort, tuple(_words(part) for part in packed.parts)


def _text(words: tuple[Any, ...]) -> KernelText:
    symbol, text, effort, parts = words
    return KernelText(symbol, text, effort, tuple(_text(part) for part in parts))
