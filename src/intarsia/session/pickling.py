"""A pickled session's file: the session that is made from the pickle must be of the same model."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from intarsia.errors import Fail
from intarsia.model.warm_start import identity, known_content, model_key

if TYPE_CHECKING:
    from intarsia.options.session_options import SessionOptions
    from intarsia.session.session_builder import ModelSource

FileState = tuple[int, int, str]  # size, time of the last change in ns, hash of the bytes ("" where nothing would remember it)


def file_state(source: Any) -> FileState | None:
    """What another process can know a model's file by; None for what is no file, or is not there."""
    state = identity(source)
    return (state[2], state[3], _hash(source)) if state else None


def check_file(source: Any, before: FileState | None) -> None:
    """Raises Fail where a file is another one than that of the session that was pickled. A copy of it will do."""
    state = identity(source) if before is not None else None
    if before is None or not state:
        return
    if (state[2], state[3]) == before[:2]:
        known = known_content(source, Path(source).stat()) if before[2] else None
        if known is None or known == before[2]:
            return
    if state[2] == before[0] and before[2] and _hash(source) == before[2]:
        return
    raise Fail(
        f"{os.fspath(source)}: the file has changed since the session that was pickled was made from it ({before[0]:,} bytes "
        f"then, {state[2]:,} now): make a new session from the file"
    )


def reduced(
    kind: type[Any], source: ModelSource, options: SessionOptions, arguments: tuple[Any, Any, dict[str, Any]]
) -> tuple[Any, ...]:
    """What `__reduce__` of a session gives: its class is called again with what the session was made from."""
    given = source.given
    if isinstance(given, (bytearray, memoryview)):
        given = bytes(given)
    if not isinstance(given, (str, bytes, os.PathLike)):
        from intarsia.graph.save import to_model_bytes

        given = to_model_bytes(source.graph())
    elif isinstance(given, (str, os.PathLike)):
        source.check_unchanged()
    return _made, (kind, given, options, *arguments, file_state(given))


def _made(
    kind: type[Any], source: Any, options: SessionOptions, providers: Any, provider_options: Any, keywords: dict[str, Any],
    before: FileState | None = None,
) -> Any:  # fmt: skip
    check_file(source, before)
    return kind(source, options, providers, provider_options, **keywords)


def _hash(source: Any) -> str:
    from intarsia.cache.disk_cache import get_cache

    key = model_key(source) if get_cache().place else None
    return key.partition(" ")[0] if key else ""
