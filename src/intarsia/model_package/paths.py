"""Where the paths in a package may lead: below its root in a portable package, anywhere in an installed one."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path, PurePosixPath, PureWindowsPath

from intarsia.errors import InvalidArgument, NoSuchFile

_URI = re.compile(r"sha256:[0-9a-f]{64}")


def is_asset_uri(text: str) -> bool:
    """Whether `text` names a shared asset: "sha256:" and 64 lowercase hexadecimal digits."""
    return _URI.fullmatch(text) is not None


def split_asset_uri(text: str) -> tuple[str, str] | None:
    """(URI, path in the asset) of "sha256:<hex>" and "sha256:<hex>/path"; None for other texts."""
    uri, slash, rest = text.partition("/")
    return (uri, rest if slash else "") if is_asset_uri(uri) else None


def is_below(path: Path, folder: Path) -> bool:
    """Whether `path` is `folder` or lies in it; both without links and dots."""
    return path == folder or folder in path.parents


@dataclass(frozen=True)
class Rules:
    """What the paths of one package may be."""

    root: Path | None
    external: bool
    """Absolute paths and `..` are allowed: an installed layout, or `allow_external_paths`."""
    follow_symlinks: bool = True

    def resolved(self, text: str, base: Path | None = None, *, must_exist: bool = False, inside: Path | None = None) -> Path:
        """The absolute path, without links, that `text` in a file of folder `base` (default: the root) means.

        Args:
            inside: the folder that it may not leave (default: the root); with it, absolute paths and `..` are never allowed.

        Raises:
            InvalidArgument: an empty path, or one that leads out of the package.
            NoSuchFile: it must exist and does not.
        """
        if not text:
            raise InvalidArgument("ResolvePath: input must not be empty.")
        if "\0" in text:
            raise InvalidArgument(f"ResolvePath: {text!r} has a NUL character")
        external = self.external and inside is None
        if not external:
            _check_portable(text)
        base = base if base is not None else self.root if self.root is not None else Path.cwd()
        return self.checked(base / text, must_exist=must_exist, inside=inside)

    def checked(self, path: Path, *, must_exist: bool = False, inside: Path | None = None) -> Path:
        """`path`, absolute and without links, where it may lie there. Raises as `resolved`."""
        folder = inside if inside is not None else None if self.external else self.root
        real = Path(os.path.realpath(path))
        if folder is not None and not is_below(real, Path(os.path.realpath(folder))):
            raise InvalidArgument(f"ResolvePath: '{real}' escapes package_root '{folder}'.")
        if not self.follow_symlinks and self.root is not None and is_below(path, self.root) and real != path:
            raise InvalidArgument(f"ResolvePath: '{path}' contains a link, and follow_symlinks is False.")
        if _is_missing(real) and must_exist:
            raise NoSuchFile(f"ResolvePath: '{path}' does not exist.")
        return real


def _is_missing(path: Path) -> bool:
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError as error:  # a name that is too long, a folder that may not be entered
        raise InvalidArgument(f"ResolvePath: '{str(path)[:200]}' cannot be looked at: {error.strerror}") from None
    return False


def _check_portable(text: str) -> None:
    windows = PureWindowsPath(text)
    if text.startswith(("/", "\\")) or Path(text).is_absolute() or (os.name == "nt" and windows.drive):
        raise InvalidArgument(f"ResolvePath: absolute or drive-rooted path {text!r} is not allowed in portable layout.")
    if ".." in PurePosixPath(text).parts or (os.name == "nt" and ".." in windows.parts):
        raise InvalidArgument(f"ResolvePath: '..' segments are not allowed in portable layout: {text!r}.")
