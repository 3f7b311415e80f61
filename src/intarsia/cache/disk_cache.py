"""A disk cache of generated code and plans: content-addressed, checked, safe among concurrent processes.

One file per entry, `<directory>/<last two characters of the key>/<key>`: a header (magic, checksum, payload length) and the
payload. Files are written beside their place and moved there atomically, so a reader sees a whole entry or none,
whatever process dies when. An entry whose checksum is wrong is removed and reported as absent. Entries are never
changed in place, and their files may only be read: a key is the hash of all that its payload depends on.

Directory: INTARSIA_CACHE_DIR, else the user's cache directory (XDG_CACHE_HOME/intarsia or ~/.cache/intarsia;
~/Library/Caches/intarsia on macOS; %LOCALAPPDATA%\\intarsia\\cache on Windows). INTARSIA_CACHE=0 turns it off.
A directory that cannot be written is reported once, and work goes on without it.

Entries hold machine code: who can write them can run code as this user. So the directory is made for its user alone, one that
another user has, or that others may write to, is not used, and neither is an entry of that kind, nor anything that is no
regular file; a warning says so once. INTARSIA_CACHE_READ_ONLY=1 is for a directory that somebody else fills for many: nothing
is written there, and what it holds is trusted. (Windows gives folders of a user to that user alone, and is not checked.)

What a machine needs before any model is there, `intarsia.cli.prebuild` makes when a checkout is set up: a folder of the package
(`PREBUILT`) that holds entries too, for `get` and `has` of keys that the directory does not have. It is trusted as the
package's code is.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import os
import stat
import struct
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, BinaryIO

from intarsia.errors import InvalidArgument
from intarsia.lazy_dataclass import dataclass
from intarsia.machine import fork_safety
from intarsia.printable import get_logger

try:
    from _blake2 import blake2b
except ImportError:  # hashlib loads OpenSSL besides, which takes longer than a session's start
    from hashlib import blake2b

if TYPE_CHECKING:
    from io import FileIO
    from pathlib import Path  # which takes milliseconds to import: a session's start works with texts

logger = get_logger("intarsia")

CACHE_VERSION = 1
PREBUILT = os.path.join(os.path.dirname(os.path.dirname(__file__)), ".prebuilt")
DEFAULT_MAX_BYTES = 4 << 30
_MAGIC = b"INTARS01"
_HEADER = struct.Struct("<8s16sQ")
_KEY_CHARACTERS = frozenset("0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_-.")
# A temporary file older than this was left by a process that died.
_STALE_SECONDS = 3600.0
# A process's first entry has the bound looked at where no process did for so long.
_PRUNE_SECONDS = 3600.0
# After an entry of this size it is looked at again.
_LARGE_NBYTES = 16 << 20
_PIECE_NBYTES = 1 << 20
# What is written of a large entry at once, and in how many pieces (systems take 1024).
_LARGE_PAGE, _SMALL_PAGES = 2 << 20, 1 << 16
_MOST_PIECES = 512
# An entry's time of use is renewed at most this often, to spare the disk.
_TOUCH_SECONDS = 3600.0
# An entry is opened so that links are not followed, and nothing waits for who writes to a pipe.
_GUARDED = sum(getattr(os, name, 0) for name in ("O_BINARY", "O_NOFOLLOW", "O_NONBLOCK", "O_CLOEXEC"))
_READ = os.O_RDONLY | _GUARDED
_OPEN_TO_OTHERS = stat.S_IWGRP | stat.S_IWOTH
_READ_ONLY = "INTARSIA_CACHE_READ_ONLY"
# Nobody changes an entry in place, and one that is cut would end the processes which have it mapped. Windows could not replace
# such a file.
_ENTRY_MODE = 0o600 if os.name == "nt" else 0o400


def cache_directory() -> Path:
    """Where the cache lies for this user, by environment and platform."""
    from pathlib import Path

    return Path(_directory())


def _directory() -> str:
    environment = os.environ
    if explicit := environment.get("INTARSIA_CACHE_DIR"):
        return os.path.expanduser(explicit)
    home = os.path.expanduser("~")
    if sys.platform == "win32":
        return os.path.join(environment.get("LOCALAPPDATA") or os.path.join(home, "AppData", "Local"), "intarsia", "cache")
    if xdg := environment.get("XDG_CACHE_HOME"):
        return os.path.join(xdg, "intarsia")
    if sys.platform == "darwin":
        return os.path.join(home, "Library", "Caches", "intarsia")
    return os.path.join(home, ".cache", "intarsia")


def cache_enabled() -> bool:
    """False where INTARSIA_CACHE says 0, off, false or no."""
    return _is_on(os.environ.get("INTARSIA_CACHE", "1"))


def _is_on(text: str) -> bool:
    return text.strip().lower() not in ("0", "off", "false", "no")


def content_key(*parts: str | bytes) -> str:
    """32 hex digits: the hash of the parts, which their lengths delimit."""
    digest = blake2b(digest_size=16)
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        digest.update(len(data).to_bytes(8, "little"))
        digest.update(data)
    return digest.hexdigest()


def file_key(path: str) -> str:
    """32 hex digits: the hash of a file's bytes, read in pieces (a mapping of it would count as this process's memory)."""
    piece = bytearray(_PIECE_NBYTES)
    with open(path, "rb", buffering=0) as file:
        return pieces_key(memoryview(piece)[:count] for count in iter(lambda: file.readinto(piece), 0))


def pieces_key(pieces: Iterable[bytes | memoryview]) -> str:
    """`file_key` of a file in pieces."""
    digest = blake2b(digest_size=16)
    for piece in pieces:
        digest.update(piece)
    return digest.hexdigest()


@dataclass(frozen=True)
class CacheEntry:
    """One file of the cache: its key, its size with header, and when it was last used (seconds since the epoch)."""

    key: str
    nbytes: int
    last_used: float


class DiskCache:
    """get and put of bytes by key. `directory` None is a cache that holds nothing.

    Args:
        shared: read-only: whoever filled the directory is trusted.
        behind: searched by `get` and `has` for what is not here.

    Attributes:
        refused: why the directory is not used; "" where it is.
    """

    def __init__(
        self, directory: str | Path | None, max_bytes: int = DEFAULT_MAX_BYTES, *, shared: bool = False,
        behind: DiskCache | None = None,
    ) -> None:  # fmt: skip
        self.behind = behind
        self._folder = None if directory is None else os.fspath(directory)
        self.max_bytes = max_bytes
        self._lock = fork_safety.lock()
        self.shared = shared
        self._writable = directory is not None and not shared
        self._pruned = self._warned = False
        self.refused = "" if self._folder is None or shared else unsafe_folder(self._folder)
        if self.refused:
            logger.warning(
                "the cache %s is not used: %s (it holds machine code); chmod go-w, or set INTARSIA_CACHE_DIR to another or to "
                "a new folder in it, or %s=1 where who fills it is to be trusted", directory, self.refused, _READ_ONLY,
            )  # fmt: skip
            self._folder, self._writable = None, False

    @property
    def place(self) -> str:
        """The directory as text; "" where there is none."""
        return self._folder or ""

    @property
    def directory(self) -> Path | None:
        if self._folder is None:
            return None
        from pathlib import Path

        return Path(self._folder)

    def get(self, key: str) -> bytes | None:
        """The payload stored under `key`, or None. A damaged entry is removed and counts as absent."""
        found = self._own(key)
        return self.behind.get(key) if found is None and self.behind is not None else found

    def load(self, key: str) -> Any:
        """The object stored under `key`, or None. One that cannot be read, since its classes are not where they were, is
        removed with a warning, and counts as absent."""
        data = self.get(key)
        if data is None:
            return None
        import pickle

        try:
            return pickle.loads(data)  # noqa: S301 # entries hold machine code: their folder is trusted
        except MemoryError:
            raise
        except Exception as error:  # noqa: BLE001 # whatever classes of another layout raise
            logger.warning(
                "the cache entry %s cannot be read (%s: %s), as of another version of Intarsia: it is removed and will be made "
                "anew", self._path(key), type(error).__name__, error,
            )  # fmt: skip
            self._remove(self._path(key))
            return None

    def store(self, key: str, value: Any) -> bool:
        """Store an object for `load`; False as in `put`."""
        if not self._writable:
            return False
        import pickle

        return self.put(key, pickle.dumps(value, 5))

    def _own(self, key: str) -> bytes | None:
        if self._folder is None:
            return None
        path = self._path(key)
        try:
            file, status = self._opened(path)
            with file:
                data = file.read()
        except OSError:
            return None
        payload = _payload(data)
        if payload is None:
            logger.warning("the cache entry %s is damaged: it is removed and will be made anew", path)
            self._remove(path)
            return None
        if time.time() - status.st_mtime > _TOUCH_SECONDS and self._writable:
            with contextlib.suppress(OSError):
                os.utime(path)
        return payload

    def _opened(self, path: str) -> tuple[FileIO, os.stat_result]:
        """An entry's file. Raises OSError where there is none that may be trusted."""
        try:
            handle = os.open(path, _READ)
        except OSError as error:
            if error.errno == errno.ELOOP:
                self._refuse(path, "it is a symbolic link")
            raise
        status = os.fstat(handle)
        why = "it is no regular file" if not stat.S_ISREG(status.st_mode) else "" if self.shared else _unsafe(status)
        if why:
            os.close(handle)
            self._refuse(path, why)
            raise PermissionError(errno.EACCES, why)
        return os.fdopen(handle, "rb", buffering=0), status

    def _refuse(self, path: str, why: str) -> None:
        with self._lock:
            first, self._warned = not self._warned, True
        if first:
            logger.warning(
                "the cache entry %s is not used: %s (entries hold machine code; %s=1 trusts those of others); no more is said "
                "of such entries", path, why, _READ_ONLY,
            )  # fmt: skip

    def has(self, key: str, *, own: bool = False) -> bool:
        """Whether there is an entry under `key` (`own`: in the directory itself); it may be damaged."""
        found = self._folder is not None and os.path.isfile(self._path(key))
        return found or not own and self.behind is not None and self.behind.has(key)

    def open(self, key: str) -> tuple[FileIO, int] | None:
        """A file at the beginning of the payload stored under `key`, to be closed by the caller, and the payload's length.

        Only the length is checked: for payloads that are too large to be read twice (`is_whole` and `verify` read them).
        """
        if self._folder is None:
            return None
        try:
            file, _ = self._opened(self._path(key))
        except OSError:
            return None
        head = file.read(_HEADER.size)
        magic, _, length = _HEADER.unpack(head) if len(head) == _HEADER.size else (b"", b"", 0)
        if magic != _MAGIC or os.fstat(file.fileno()).st_size != _HEADER.size + length:
            file.close()
            return None
        return file, length

    def is_whole(self, key: str, opened: tuple[FileIO, int]) -> bool:
        """Whether the payload of an entry that `open` gave is as it was stored. It is read once for each state of its file
        (device, inode, size, times of change); one that is not is removed, with a warning. The file stands at its beginning
        again."""
        file, length = opened
        if self.get(f"checked-{key}") == _state(file):
            return True
        start = file.tell()
        file.seek(0)
        _, checksum, _ = _HEADER.unpack(file.read(_HEADER.size))
        digest, piece, left = blake2b(digest_size=16), bytearray(_PIECE_NBYTES), length
        while left and (count := file.readinto(piece)):
            digest.update(memoryview(piece)[:count])
            left -= count
        file.seek(start)
        if left or digest.digest() != checksum:
            path = self._path(key)
            logger.warning("the cache entry %s is damaged: it is removed and will be made anew", path)
            self._remove(path)
            return False
        self.put(f"checked-{key}", _state(file))
        return True

    def note_whole(self, key: str) -> None:
        """Note that an entry, which was written or checked just now, need not be read to be checked."""
        opened = self.open(key)
        if opened is not None:
            with opened[0] as file:
                self.put(f"checked-{key}", _state(file))

    def map(self, key: str, alignment: int) -> memoryview | None:
        """The payload stored under `key` as pages of its file, which all processes that map it share; None where it is absent.

        It was stored with `leading(alignment)` before it, so that it begins at a multiple of `alignment` bytes. An entry
        that is removed stays readable while it is mapped.
        """
        opened = self.open(key)
        if opened is None:
            return None
        import mmap

        file, length = opened
        with file:
            if not self.is_whole(key, opened):
                return None
            try:
                memory = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            except (OSError, ValueError):
                return None
        return memoryview(memory)[_HEADER.size + len(leading(alignment)) : _HEADER.size + length]

    def put(
        self, key: str, payload: bytes | Sequence[bytes | memoryview], checksum: bytes = b"", scattered_nbytes: int = 0
    ) -> bool:
        """Store `payload` (or its parts) under `key`; False where the cache is off or cannot be written (reported once).

        Args:
            checksum: `checksum_of` the parts, where it is known already.
            scattered_nbytes: at the end, what those who map the entry read a few pages of.
        """
        if self._folder is None or not self._writable:
            return False
        path = self._path(key)
        parts = (payload,) if isinstance(payload, bytes) else payload
        nbytes = sum(memoryview(part).nbytes for part in parts)
        try:
            folder = os.path.dirname(path)
            make_folder(self._folder, folder)
            temporary = os.path.join(folder, f".tmp-{os.getpid()}-{os.urandom(8).hex()}")
            handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), _ENTRY_MODE)
            try:
                with os.fdopen(handle, "wb", buffering=0) as file:
                    head = _HEADER.pack(_MAGIC, checksum or checksum_of(parts), nbytes)
                    for block in _blocks((head, *parts), scattered_nbytes):
                        _write(file, block)
                        for piece in block:
                            _release(piece)
                os.replace(temporary, path)
            except BaseException as error:
                _remove(temporary)
                # Windows refuses to replace a file that another process reads: the same content is there already.
                if not (isinstance(error, PermissionError) and os.path.exists(path)):
                    raise
        except OSError as error:
            if os.path.isdir(path) and not os.path.islink(path):
                self._refuse(path, "it is a folder")
            else:
                self._give_up(error)
            return False
        self._prune_once()
        if nbytes > _LARGE_NBYTES:
            self.prune()
        return True

    @property
    def writable(self) -> bool:
        """Whether entries can be stored, as far as is known."""
        return self._writable

    def can_be_written(self) -> bool:
        """Whether the system lets this process write to the directory, or make it."""
        if self._folder is None or not self._writable:
            return False
        folder = self._existing_folder()
        return os.access(folder, os.W_OK | os.X_OK)

    def free_nbytes(self) -> int:
        """Free space of the disk that the cache lies on; a very large number where the system does not say."""
        if self._folder is None:
            return sys.maxsize
        try:
            if not hasattr(os, "statvfs"):
                import shutil

                return shutil.disk_usage(self._existing_folder()).free
            status = os.statvfs(self._existing_folder())
        except OSError:
            return sys.maxsize
        return status.f_bavail * status.f_frsize

    def _existing_folder(self) -> str:
        assert self._folder is not None
        folder = os.path.abspath(self._folder)
        while not os.path.exists(folder) and folder != os.path.dirname(folder):
            folder = os.path.dirname(folder)
        return folder

    def used(self, key: str) -> None:
        """Note that an entry was used, so that `prune` keeps it for longer."""
        if self._folder is not None and self._writable:
            with contextlib.suppress(OSError):
                os.utime(self._path(key))

    def entries(self) -> list[CacheEntry]:
        """All entries, least recently used first."""
        found = []
        for path in self._files():
            with contextlib.suppress(OSError):
                status = os.lstat(path)
                found.append(CacheEntry(os.path.basename(path), status.st_size, max(status.st_mtime, status.st_atime)))
        return sorted(found, key=lambda entry: (entry.last_used, entry.key))

    def size(self) -> int:
        """Bytes that the entries take."""
        return sum(entry.nbytes for entry in self.entries())

    def clear(self) -> int:
        """Remove every entry; returns how many were removed."""
        return sum(self._remove(path) for path in list(self._files()))

    def damaged(self, max_bytes: int | None = None) -> list[str]:
        """Keys of entries whose content is damaged; of those used last, up to `max_bytes` are read. Nothing is changed."""
        found, left = [], sys.maxsize if max_bytes is None else max_bytes
        for entry in reversed(self.entries()):
            left -= entry.nbytes
            if left < 0:
                break
            with contextlib.suppress(OSError):
                if _payload(_read_unnoticed(self._path(entry.key))) is None:
                    found.append(entry.key)
        return found

    def peek(self, key: str) -> bytes | None:
        """As `get`, but the entry does not count as used, and stays where it is damaged."""
        if self._folder is None:
            return None
        try:
            return _payload(_read_unnoticed(self._path(key)))
        except OSError:
            return None

    def verify(self) -> list[str]:
        """Read every entry, remove the damaged ones, and return their keys."""
        damaged = []
        for path in list(self._files()):
            try:
                data = _read_unnoticed(path)
            except OSError:
                continue
            if _payload(data) is None:
                damaged.append(os.path.basename(path))
                self._remove(path)
        return damaged

    def prune(self, max_bytes: int | None = None) -> int:
        """Remove least recently used entries until `max_bytes` are left, and what dead processes left; returns the number."""
        limit = self.max_bytes if max_bytes is None else max_bytes
        for path in self._files(temporary=True):
            with contextlib.suppress(OSError):
                if time.time() - os.lstat(path).st_mtime > _STALE_SECONDS:
                    self._remove(path)
        entries = self.entries()
        total, removed = sum(entry.nbytes for entry in entries), 0
        for entry in entries:
            if total <= limit:
                break
            total -= entry.nbytes
            removed += self._remove(self._path(entry.key))
        self._note_pruned()
        return removed

    def remove(self, key: str) -> bool:
        """Remove one entry; whether there was one."""
        return self._folder is not None and self._remove(self._path(key))

    def _remove(self, path: str) -> bool:
        return not self.shared and _remove(path)

    def _path(self, key: str) -> str:
        assert self._folder is not None
        if not key or key[0] == "." or not _KEY_CHARACTERS.issuperset(key):
            raise InvalidArgument(f"a cache key is letters, digits, '_', '-' and '.', and does not begin with '.'; got {key!r}")
        return os.path.join(self._folder, key[-2:], key)

    def _files(self, temporary: bool = False) -> Iterator[str]:
        if self._folder is None:
            return
        with contextlib.suppress(OSError):
            every = (entry for entry in os.scandir(self._folder) if len(entry.name) <= 2)
            folders = [entry.path for entry in every if entry.is_dir(follow_symlinks=False)]
            for folder in folders:
                yield from (entry.path for entry in os.scandir(folder) if entry.name.startswith(".tmp-") == temporary)

    def _give_up(self, error: OSError) -> None:
        with self._lock:
            first, self._writable = self._writable, False
        if first:
            logger.warning(
                "the code cache %s cannot be written (%s): compiled code is not cached; set INTARSIA_CACHE_DIR to a "
                "writable directory, or INTARSIA_CACHE=0 to silence this",
                self._folder,
                error,
            )

    def _prune_once(self) -> None:
        """At a process's first entry, unless it was done lately: a look at thousands of files takes longer than many runs."""
        with self._lock:
            first, self._pruned = not self._pruned, True
        if first and not self._pruned_lately():
            self.prune()

    def _pruned_lately(self) -> bool:
        try:
            return 0 <= time.time() - os.stat(self._mark()).st_mtime < _PRUNE_SECONDS
        except OSError:
            return False

    def _note_pruned(self) -> None:
        if not self._writable:
            return
        flags = os.O_WRONLY | os.O_CREAT | _GUARDED
        with contextlib.suppress(OSError), os.fdopen(os.open(self._mark(), flags, 0o600), "ab"):
            os.utime(self._mark())

    def _mark(self) -> str:
        """A file whose time is that of the last look at all entries."""
        return os.path.join(self._folder or "", ".pruned")


def _state(file: BinaryIO) -> bytes:
    """What changes whenever a file does."""
    status = os.fstat(file.fileno())
    return repr((status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)).encode()


def leading(alignment: int) -> bytes:
    """What is stored before a payload that is to begin at a multiple of `alignment` bytes in its file."""
    return bytes(-_HEADER.size % alignment)


def start_in_file(alignment: int) -> int:
    """Where such a payload begins."""
    return _HEADER.size + len(leading(alignment))


def get_cache() -> DiskCache:
    """The process's cache for the directory and the switches that the environment names now."""
    return _cache(_directory() if cache_enabled() else None, _is_on(os.environ.get(_READ_ONLY) or "0"))


def cached(key: str, make: Callable[[], bytes]) -> bytes:
    """What stands in the user's cache under `key`, from `make` where nothing does, and from then on."""
    cache = get_cache()
    found = cache.get(key)
    if found is None:
        found = make()
        cache.put(key, found)
    elif cache.behind is not None and not cache.has(key, own=True):
        cache.put(key, found)
    return found


@functools.cache
def _cache(directory: str | None, shared: bool) -> DiskCache:
    if directory is not None and not shared and not os.environ.get("INTARSIA_CACHE_DIR"):
        _close_folder(directory)
    prebuilt = DiskCache(PREBUILT, shared=True) if directory not in (None, PREBUILT) and os.path.isdir(PREBUILT) else None
    return DiskCache(directory, shared=shared, behind=prebuilt)


def _unsafe(status: os.stat_result) -> str:
    """Why what has this owner and mode may not be trusted; "" where it may. What root owns, root could do otherwise."""
    if os.name == "nt":
        return ""
    if status.st_uid not in (os.geteuid(), 0):
        return f"it belongs to another user ({status.st_uid})"
    return "others may write to it" if status.st_mode & _OPEN_TO_OTHERS else ""


def unsafe_folder(folder: str) -> str:
    """As `_unsafe`, of the cache's own folder. Where only who made an entry can replace it, entries are looked at alone."""
    try:
        status = os.stat(folder)
    except OSError:
        return ""  # it is not there yet, or cannot be read
    if os.name != "nt" and status.st_mode & stat.S_ISVTX and status.st_uid in (os.geteuid(), 0):
        return ""
    return _unsafe(status)


def _close_folder(folder: str) -> None:
    """Take away what others may do with the user's own folder in the usual place, which a wide umask has allowed."""
    with contextlib.suppress(OSError):
        status = os.stat(folder)
        if os.name != "nt" and status.st_uid == os.geteuid() and status.st_mode & _OPEN_TO_OTHERS:
            os.chmod(folder, 0o700)


def make_folder(cache: str, folder: str) -> None:
    """Make the cache's folder, for its user alone, and one in it."""
    if not os.path.isdir(folder):
        os.makedirs(os.path.dirname(cache) or ".", exist_ok=True)
        for each in (cache, folder):
            with contextlib.suppress(FileExistsError):
                os.mkdir(each, 0o700)


def _blocks(parts: Sequence[bytes | memoryview], scattered_nbytes: int) -> Iterator[list[memoryview]]:
    """A file's parts in blocks of large pages, and its end in small ones: Linux keeps what is written at once, where the file
    system lets it, in a page of that size, and maps it as a whole. A block is pieces of parts, of which none is copied."""
    at, large = 0, sum(memoryview(part).nbytes for part in parts) - scattered_nbytes
    block, missing = list[memoryview](), _LARGE_PAGE if large > 0 else _SMALL_PAGES
    for part in parts:
        view = memoryview(part).cast("B")
        while view:
            piece, view = view[:missing], view[missing:]
            block.append(piece)
            at, missing = at + len(piece), missing - len(piece)
            if not missing or len(block) == _MOST_PIECES:
                yield block
                block = []
            missing = missing or (_LARGE_PAGE if at < large else _SMALL_PAGES)
    yield block


def _write(file: BinaryIO, block: Sequence[memoryview]) -> None:
    """Write pieces at once where the system can."""
    rest = list(block)
    while rest:
        done = os.writev(file.fileno(), rest) if hasattr(os, "writev") else file.write(rest[0])
        while rest and done >= len(rest[0]):
            done -= len(rest.pop(0))
        if done:
            rest[0] = rest[0][done:]


def checksum_of(parts: Sequence[bytes | memoryview]) -> bytes:
    """What an entry's header says of its payload's parts, 16 bytes."""
    digest = blake2b(digest_size=16)
    for part in parts:
        if len(part) <= _SMALL_PAGES:
            digest.update(part)
            continue
        view = memoryview(part).cast("B")
        for start in range(0, view.nbytes, _LARGE_PAGE):
            piece = view[start : start + _LARGE_PAGE]
            digest.update(piece)
            _release(piece)
    return digest.digest()


def _release(piece: memoryview) -> None:
    """Let a piece of another file that was read go out of this process's memory again."""
    if piece.nbytes >= _SMALL_PAGES:
        from intarsia.graph.formats.mapped_arrays import release_bytes

        release_bytes(piece)


def _payload(data: bytes) -> bytes | None:
    if len(data) < _HEADER.size:
        return None
    magic, checksum, length = _HEADER.unpack_from(data)
    payload = data[_HEADER.size :]
    if magic != _MAGIC or length != len(payload) or checksum != checksum_of((payload,)):
        return None
    return payload


def _read_unnoticed(path: str) -> bytes:
    """A file's bytes; its time of access stays as it was, where the system can do that."""
    try:
        handle = os.open(path, _READ | getattr(os, "O_NOATIME", 0))
    except PermissionError:  # O_NOATIME is for the file's owner
        handle = os.open(path, _READ)
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise PermissionError(errno.EACCES, "no regular file")
    with os.fdopen(handle, "rb") as file:
        return file.read()


def _remove(path: str) -> bool:
    try:
        os.unlink(path)
    except OSError:
        return False
    return True
