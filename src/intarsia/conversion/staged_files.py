"""Files and folders that belong together: made beside their places, and moved there when all of them are whole."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from intarsia.errors import NotWritten
from intarsia.graph.formats.atomic_write import not_written


@contextlib.contextmanager
def staged_files(target: Path) -> Iterator[Path]:
    """A new folder; what is in it when the block ends goes to the folder `target`, which is made. Nothing does after an error.

    Raises:
        NotWritten: the folder `target` cannot be made or written, or what is there cannot be replaced.
    """
    made = _missing_folders(target)
    try:
        target.mkdir(parents=True, exist_ok=True)
        staging = Path(tempfile.mkdtemp(prefix=".intarsia.tmp.", dir=target))
    except OSError as error:
        _remove_empty(made)
        raise NotWritten(f"nothing can be written in {str(target)!r}: {error.strerror}; give another --output") from error
    try:
        yield staging
        _move_all(staging, target)
    except BaseException:
        shutil.rmtree(staging, ignore_errors=True)
        _remove_empty(made)
        raise
    shutil.rmtree(staging, ignore_errors=True)


def _missing_folders(target: Path) -> list[Path]:
    """The folders that would have to be made, the innermost first."""
    return [folder for folder in (target, *target.parents) if not os.path.lexists(folder)]


def _remove_empty(folders: list[Path]) -> None:
    for folder in folders:
        with contextlib.suppress(OSError):
            folder.rmdir()


def _move_all(staging: Path, target: Path) -> None:
    """Everything is looked at before anything is replaced."""
    moves = [(found, _place(target / found.name)) for found in sorted(staging.iterdir())]
    for found, place in moves:
        if place.is_dir() != found.is_dir() and place.exists():
            kind = "folder" if place.is_dir() else "file"
            raise NotWritten(f"{str(place)!r} cannot be written: a {kind} of this name is there; give another --output")
    for found, place in moves:
        try:
            if place.is_dir():
                place.rename(staging / f"{found.name}.replaced")
            found.replace(place)
        except OSError as error:
            raise not_written(place, error) from error


def _place(path: Path) -> Path:
    """Where a link points to, which is replaced instead of the link."""
    return path.resolve() if path.is_symlink() else path
