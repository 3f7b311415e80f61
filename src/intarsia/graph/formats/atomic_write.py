"""The one way the package writes files: what is there already stays whole until all of the new one is written."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

from intarsia.errors import InvalidArgument, NotWritten

Write = Callable[[BinaryIO], Any]


def replace_file(target: str | os.PathLike[str], write: Write) -> None:
    """Write a file beside its place and move it there. See `replace_files`."""
    replace_files([(target, write)])


def replace_text(target: str | os.PathLike[str], text: str) -> None:
    """`replace_file` with a text in UTF-8."""
    replace_file(target, lambda file: file.write(text.encode("utf-8", "surrogateescape")))


def replace_files(files: Sequence[tuple[str | os.PathLike[str], Write]]) -> None:
    """Write files that belong together (a model and its weights): none is replaced before all are written.

    What a name that is a link points to is replaced, and keeps its permissions. Devices and pipes are written to.

    Raises:
        InvalidArgument: a folder does not exist.
        NotWritten: the name is a folder's, the disk is full, nothing may be written there, or another reason of the system.
        What `write` raises.
    """
    begun: list[tuple[Path, Path]] = []
    try:
        for target, write in files:
            path = _checked(Path(target))
            if _is_special(path):
                _written(path, path, "wb", write)
                continue
            beside = path.with_name(f".intarsia.tmp.{os.urandom(8).hex()}")
            begun.append((beside, path))
            _written(path, beside, "xb", write)
            with suppress(OSError):
                beside.chmod(stat.S_IMODE(path.stat().st_mode))
        for beside, path in begun:
            try:
                beside.replace(path)
            except OSError as error:
                raise not_written(path, error) from error
    except BaseException:
        for beside, _ in begun:
            with suppress(OSError):
                beside.unlink()
        raise


def _written(path: Path, place: Path, mode: str, write: Write) -> None:
    """Write to `place`, which is to be `path`. What goes wrong with other files is raised as it is."""
    try:
        file: Any = place.open(mode)
    except (OSError, ValueError) as error:  # a null character in the name
        raise not_written(path, error) from error
    try:
        with file:
            write(file)
    except OSError as error:
        if error.filename is not None or error.errno is None:
            raise
        raise not_written(path, error) from error


def not_written(path: str | os.PathLike[str], error: OSError | ValueError) -> NotWritten:
    """The error for a file that the system does not let be written."""
    number = getattr(error, "errno", None)
    why = (getattr(error, "strerror", None) or str(error)).removesuffix(".")
    name = errno.errorcode.get(number or 0)
    code = f" ({name})" if name else ""
    found = NotWritten(f"file {os.fspath(path)!r} cannot be written: {why}{code}; what was there before is unchanged")
    found.errno = number
    return found


def _checked(path: Path) -> Path:
    """The place that is to be written. Raises InvalidArgument, NotWritten."""
    try:
        place = path.resolve() if path.is_symlink() and not _is_special(path) else path
        if path.is_dir():
            raise not_written(path, IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR)))
        if not place.parent.is_dir():
            folder = str(place.parent)
            raise InvalidArgument(f"file {str(path)!r} cannot be written: there is no folder {folder!r}; make it first")
    except (InvalidArgument, NotWritten):
        raise
    except (OSError, ValueError, RuntimeError) as error:  # a loop of links is a RuntimeError before Python 3.13
        raise not_written(path, error if isinstance(error, (OSError, ValueError)) else ValueError(str(error))) from error
    return place


def _is_special(path: Path) -> bool:
    """Whether it is a pipe or device, which is not to be replaced."""
    try:
        return not stat.S_ISREG(path.stat().st_mode)
    except OSError:
        return False
