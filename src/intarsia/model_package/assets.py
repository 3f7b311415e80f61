"""Folders by their content, and files that are whole or not there: what is written lies beside its place and is moved there."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

from intarsia.errors import Fail, IntarsiaError, InvalidArgument, NoSuchFile
from intarsia.graph.formats.atomic_write import not_written, replace_file

FOLDER = "shared_assets"
GRACE_SECONDS = 60
"""What is left of a write is removed when it is older than this: a younger one may be another process's, under way."""


def files_in(folder: Path) -> list[tuple[str, Path]]:
    """(POSIX path in the folder, path) of all files below a folder, sorted by their names' bytes.

    Raises:
        InvalidArgument: a link, or what is neither file nor folder.
    """
    found: list[tuple[str, Path]] = []
    pending = [folder]
    while pending:
        with os.scandir(pending.pop()) as entries:
            for entry in entries:
                if entry.is_symlink():
                    raise InvalidArgument(f"ComputeDirectoryAssetUri: symlink not allowed: '{entry.path}'.")
                if entry.is_dir():
                    pending.append(Path(entry.path))
                elif entry.is_file():
                    path = Path(entry.path)
                    found.append((path.relative_to(folder).as_posix(), path))
                else:
                    raise InvalidArgument(
                        f"ComputeDirectoryAssetUri: unsupported file kind: '{entry.path}' "
                        "(only regular files and directories allowed)."
                    )
    return sorted(found, key=lambda item: os.fsencode(item[0]))


def directory_uri(folder: Path, caller: str = "ComputeDirectoryAssetUri") -> str:
    """ "sha256:<hex>" of the names and bytes of a folder's files: the hash of lines "<hash of the file>  <path>".

    Raises:
        NoSuchFile: not a folder.
        InvalidArgument: links or special files in it.
    """
    if not folder.is_dir():
        raise NoSuchFile(f"{caller}: '{folder}' is not a directory.")
    lines = hashlib.sha256()
    for name, path in files_in(folder):
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        lines.update(f"{digest}  ".encode() + os.fsencode(name) + b"\n")
    return f"sha256:{lines.hexdigest()}"


def folder_name(uri: str) -> str:
    """The name of an asset's folder in `shared_assets`."""
    return uri.replace(":", "-", 1)


def _temporary(path: Path) -> Path:
    return path.with_name(f"{path.name}.tmp.{os.urandom(8).hex()}")


def replace_text(path: Path, text: str) -> None:
    """Write a file that is the old one or the new one at any moment; not at all where it has this text."""
    data = text.encode()
    with contextlib.suppress(OSError):
        if path.read_bytes() == data:
            return

    def write(file: BinaryIO) -> None:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())

    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(path, write)
    sync_folder(path.parent)


@contextlib.contextmanager
def writing(path: Path) -> Iterator[None]:
    """Raises NotWritten for what goes wrong with files inside, of which the package at `path` is made."""
    try:
        yield
    except IntarsiaError:
        raise
    except OSError as error:
        raise not_written(error.filename or path, error) from error


def sync_folder(folder: Path) -> None:
    """Make what was moved into a folder last; where the system has no way to, nothing."""
    with contextlib.suppress(OSError):
        number = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(number)
        finally:
            os.close(number)


def copy_file(source: Path, target: Path) -> None:
    """Copy one file, to the disk."""
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, target)
    with target.open("rb+") as file:
        os.fsync(file.fileno())


def copy_asset(uri: str, source: Path, target: Path) -> None:
    """Put a copy of an asset's folder at `target`, if nothing is there; it appears whole.

    Raises:
        NoSuchFile: the source is gone.
        Fail: its content is no longer that of `uri`.
    """
    if target.is_dir():
        return
    if not source.is_dir():
        raise NoSuchFile(f"Commit: shared asset source '{source}' for {uri} is not a directory.")
    target.parent.mkdir(parents=True, exist_ok=True)
    beside = _temporary(target)
    try:
        beside.mkdir()
        for name, path in files_in(source):
            copy_file(path, beside / name)
        found = directory_uri(beside)
        if found != uri:
            raise Fail(f"Shared asset source mutated during commit: expected {uri}, staged {found}.")
        beside.rename(target)
    finally:
        shutil.rmtree(beside, ignore_errors=True)
    sync_folder(target.parent)


def remove_folder(folder: Path) -> None:
    """Remove a folder: gone under its name at once, its files afterwards."""
    aside = _temporary(folder)
    folder.rename(aside)
    shutil.rmtree(aside, ignore_errors=True)


def remove_leftovers(candidates: Iterable[Path]) -> None:
    """Remove what writes that were cut short have left: names with ".tmp.", older than `GRACE_SECONDS`."""
    for path in candidates:
        if ".tmp." not in path.name or path.is_symlink():
            continue
        with contextlib.suppress(OSError):
            if time.time() - path.stat().st_mtime < GRACE_SECONDS:
                continue
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink()


@contextlib.contextmanager
def appearing(target: Path) -> Iterator[Path]:
    """A new folder to be filled, which becomes `target` (nothing, or an empty folder, before) when all has gone well."""
    target.parent.mkdir(parents=True, exist_ok=True)
    beside = _temporary(target)
    beside.mkdir()
    try:
        yield beside
        if target.is_dir():
            target.rmdir()
        beside.rename(target)
    finally:
        shutil.rmtree(beside, ignore_errors=True)
    sync_folder(target.parent)
