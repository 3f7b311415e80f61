"""Warm starts: what a model became for a session's options is cached, and a later session begins there.

An entry is found by a hash of the model's bytes, of everything in the options that matters, of this package's code and of
the CPU. Reading a large file to hash it takes longer than starting from the cache, so the hash of a file is remembered for its
identity (device, inode, size, times of change); a file changed in the last seconds is always read, since its clock may
not have ticked between two changes.

Weights that are cached are mapped, not read (`intarsia.cache.weight_store`): sessions and processes that start from one entry
share its
pages. Sessions of one process that begin from the same entry also share code and weights with the one that was compiled.

Which other files a model's weights lie in is cached beside it, so that they are known, and hashed like it, before it is read.

Only models that one provider runs as a whole, and whose weights are at most `session.cache_weights_mib`, are cached. Large
ones are written by a thread of their own, after the session that made them has begun. The log (level DEBUG of
`intarsia.cache`) says why a model is not cached, or what has changed since it was.
"""

from __future__ import annotations

import os
import sys
import threading
import time
import weakref
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

from intarsia import progress
from intarsia.cache import weight_store
from intarsia.cache.disk_cache import DiskCache, content_key, file_key, get_cache, pieces_key
from intarsia.cache.fingerprint import surroundings
from intarsia.codegen.llvm import target  # noqa: F401 # what a start from the cache needs is imported before it
from intarsia.ep.provider import NotSaved
from intarsia.errors import EPFail, IntarsiaError, crashed
from intarsia.graph.model import Metadata, Value
from intarsia.lazy_dataclass import dataclass
from intarsia.machine import fork_safety
from intarsia.model.single_program_model import DirectModel
from intarsia.printable import DEBUG, get_logger
from intarsia.providers.cpu.program import cpu_program, serialize  # noqa: F401 # the same

if sys.platform == "win32":
    from intarsia.machine.windows_files import changed_ns

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from intarsia.ep.provider import CompileContext, ExecutionProvider, Program, SavedProgram
    from intarsia.graph.model import Graph
    from intarsia.model.runnable import Runnable
    from intarsia.options.session_options import SessionOptions

_Result = TypeVar("_Result")

logger = get_logger("intarsia.cache")

_SETTLED_SECONDS = 2.0  # file systems' clocks tick more often than this
_COARSE_SECONDS = 10.0
_MIB = 1 << 20
_LARGE_NBYTES = 32 << 20  # hashing and writing more is left to a thread
_FREE = 8  # of the disk's free space, at most one part in so many is taken for one model


@dataclass(frozen=True)
class Signature:
    """What a model takes and gives, and says of itself."""

    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    overridable: tuple[Value, ...]
    metadata: Metadata
    name: str

    @classmethod
    def of(cls, graph: Graph, inferred: Graph) -> Signature:
        """From a graph as loaded and as optimised, which knows more types."""
        outputs = (v if v.type is not None else Value(v.name, inferred.type_of(v.name)) for v in graph.outputs)
        overridable = (Value(n, graph.overridable_type(n)) for n in graph.overridable)
        return cls(tuple(graph.inputs), tuple(outputs), tuple(overridable), graph.metadata, graph.name)


@dataclass(frozen=True)
class Start:
    """A session's beginning from the cache."""

    signature: Signature
    model: Runnable


class WarmStart:
    """The cache entry of one model with one session's options; `find` it, or `keep` what was made instead.

    Args:
        source: a path or the model's bytes.
        settings: what of the options and the provider a program depends on, as text by what it is.
        folder: where weights in other files are.
    """

    def __init__(self, source: Any, settings: dict[str, str], cache: DiskCache, limit_nbytes: int, folder: str = "") -> None:
        self._source, self._cache, self._limit, self._folder = source, cache, limit_nbytes, folder
        self._parts = {**surroundings(), **settings}
        self._begun = time.time()
        self._identity = identity(source)
        self._model = _model_key(source, cache, limit_nbytes, read_up_to=_LARGE_NBYTES)
        self._locations: tuple[str, ...] = ()  # of weight files
        self._files: tuple[str, ...] = ()  # their hashes, as the session has them

    def is_of(self, source: Any) -> bool:
        """Whether `source` and its weight files still are the model that the entry was made for."""
        if not is_unchanged(source, self._identity, self._model or ""):
            return False
        files = self._hashes(self._locations) if self._files else ()
        return files is not None and [_hash_in(key) for key in files] == [_hash_in(key) for key in self._files]

    def find(self, provider: ExecutionProvider, context: CompileContext) -> Start | None:
        """The session's beginning, or None where it has to be made."""
        if self._model is None:
            return None
        locations = self._locations_of(self._model)
        files = self._hashes(locations, read_up_to=_LARGE_NBYTES)
        if files is None:
            return None
        self._locations = locations
        key = content_key(self._model, *files, *self._parts.values())
        live = _shared(self._place(key), provider, context)
        if live is not None:
            self._files = files
            return live
        head = self._cache.load(f"start-{key}")
        if head is None:
            self._explain_miss()
            return None
        signature, program_head, layout = head
        block = weight_store.block(self._cache, layout)
        if block is None:
            logger.debug("no warm start: some of the model's weights are not in the cache any more")
            return None
        restored = if_it_can(
            provider, "when it was to restore a program", lambda: provider.restore(program_head, block, context)
        )
        if restored is None:
            logger.debug("no warm start: %s cannot load here what was cached", provider.name)
            return None
        self._files = files
        _remember(self._place(key), signature, restored)
        return Start(signature, DirectModel(restored))

    def is_of_the_same(self) -> bool:
        """Whether the model is what it was when this was made; it is read now where it was too large before."""
        model = self._model or _model_key(self._source, self._cache, self._limit)
        now = identity(self._source)
        if model is None or (now != self._identity and not (self._model and is_unchanged(self._source, self._identity, model))):
            return False
        self._model = model
        return True

    def states(self, locations: Iterable[str]) -> tuple[tuple[int, ...] | None, ...]:
        """What changes whenever one of these weight files does."""
        return tuple(identity(os.path.join(self._folder, location)) for location in locations)

    def may_keep(self, weights_nbytes: int) -> bool:
        """Whether an entry of about this size can be written, as far as is known, and was not found to be impossible."""
        cache, wanted = self._cache, weights_nbytes + weights_nbytes // 4  # packed ones are larger
        fits = wanted <= min(self._limit, cache.free_nbytes() // _FREE)
        return fits and cache.can_be_written() and not (self._model and cache.has(self._unkept(self._model)))

    def note_unkept(self) -> None:
        """Another process could not keep the entry: later sessions need not have one try."""
        if self._model is not None:
            self._cache.put(self._unkept(self._model), b"")

    def _unkept(self, model: str) -> str:
        return f"unkept-{content_key(model, *self._parts.values())}"

    def _place(self, key: str) -> str:
        return f"{self._cache.place}\n{key}"

    def _explain_miss(self) -> None:
        seen = f"seen-{content_key(self._model or '')}"
        before: dict[str, str] | None = self._cache.load(seen) if logger.isEnabledFor(DEBUG) else None
        if before is not None:
            changed = [name for name, part in self._parts.items() if before.get(name) != part]
            why = f"since it was cached, {', '.join(changed)} changed" if changed else "the entry was removed, or was damaged"
            logger.debug("no warm start: %s", why)

    def _locations_of(self, model: str) -> tuple[str, ...]:
        """Where the files that hold weights of the model are in its folder; () where none are known."""
        saved = self._cache.get(f"beside-{content_key(model, self._folder)}")
        return tuple(saved.decode().split("\0")) if saved is not None else ()

    def _hashes(self, locations: tuple[str, ...], *, read_up_to: int | None = None) -> tuple[str, ...] | None:
        """Hashes of these files; None where one is missing, too large, or not as it was cached."""
        found = []
        for location in locations:
            path = os.path.join(self._folder, location)
            key = _model_key(path, self._cache, self._limit, read_up_to=read_up_to)
            if key is None:
                logger.debug("no warm start: the weight file %s is missing, too large, or has just changed", path)
                return None
            found.append(key)
        return tuple(found)

    def keep(self, signature: Signature, model: Runnable, provider: ExecutionProvider) -> None:
        """Write the entry, if the model is one program that can be cached."""
        if not self._cache.writable:
            return
        if len(model.programs) != 1 or model.run != model.programs[0].run:
            logger.debug("not cached for a warm start: the model is more than one program")
            return
        try:
            saved = if_it_can(provider, "when it was to save a program", lambda: provider.save(model.programs[0]))
        except NotSaved as reason:
            logger.debug("not cached for a warm start: %s", reason)
            return
        if saved is None:
            return
        nbytes = sum(memoryview(part).nbytes for part in saved.parts)
        if nbytes > self._limit or nbytes > self._cache.free_nbytes() // _FREE:
            logger.debug("not cached for a warm start: %d KiB are more than the limit or the disk allows", nbytes >> 10)
            return
        known = weakref.ref(model.programs[0])
        soon_read = self._model is not None or 0 < (self._identity or (0, 0, 0))[2] <= _LARGE_NBYTES
        if nbytes <= _LARGE_NBYTES and soon_read and not signature.metadata.external_files:
            self._write(saved, signature, known)
        else:
            threading.Thread(target=self._write, args=(saved, signature, known), name="intarsia-cache").start()

    def _write(self, saved: SavedProgram, signature: Signature, known: weakref.ref[Program]) -> None:
        if not self.is_of_the_same():
            return  # the program is of what was there before
        model = self._model
        assert model is not None
        locations = signature.metadata.external_files
        files = self._hashes(locations)
        if files is None or not all(self._settled(location) for location in locations):
            logger.debug("not cached for a warm start: a weight file is missing, or changed while the session was made")
            return
        self._files, self._locations = files, locations
        key = content_key(model, *files, *self._parts.values())
        made = known()
        if made is not None:
            _remember(self._place(key), signature, made)
        del made
        if locations and not self._cache.put(f"beside-{content_key(model, self._folder)}", "\0".join(locations).encode()):
            return
        layout = weight_store.keep(self._cache, saved.parts, saved.scattered_nbytes)
        if layout is not None:
            self._cache.store(f"start-{key}", (signature, saved.head, layout))
            self._note_place()
            self._cache.store(f"seen-{content_key(model)}", self._parts)

    def _note_place(self) -> None:
        """Have files that later lie there, and are as large, hashed to be found by their bytes."""
        if isinstance(self._source, (str, os.PathLike)):
            with suppress(OSError):
                path = os.path.realpath(os.fspath(self._source))
                self._cache.put(_cached_there(path, os.stat(path).st_size), b"")

    def _settled(self, location: str) -> bool:
        """Whether a weight file did not change from some time before the session began."""
        try:
            path = os.path.join(self._folder, location)
            changed_ns = max(_identity_of(path, os.stat(path))[3:])
        except OSError:
            return False
        return changed_ns / 1e9 < self._begun - _SETTLED_SECONDS


def if_it_can(provider: ExecutionProvider, when: str, call: Callable[[], _Result]) -> _Result | None:
    """What a method of a provider gives that only spares time; where it fails or crashes, None, and the log says so."""
    try:
        return call()
    except EPFail as error:
        failure = error
    except (IntarsiaError, MemoryError, NotSaved):
        raise
    except Exception as error:
        if progress.stopped_by(error):
            raise
        failure = crashed(provider.name, when, error)
    get_logger("intarsia.providers").warning("%s; the session goes on without that", failure)
    return None


_live: dict[str, tuple[Signature, weakref.ref[Program]]] = {}
_live_lock = fork_safety.lock()


def _remember(key: str, signature: Signature, made: Program) -> None:
    """Let later sessions of this process begin with `made` as long as somebody has it."""
    with _live_lock:
        _live[key] = (signature, weakref.ref(made))
        for old in [k for k, (_, found) in _live.items() if found() is None]:
            del _live[old]


def _shared(key: str, provider: ExecutionProvider, context: CompileContext) -> Start | None:
    """A session's beginning with the weights and code that another session of this process has."""
    with _live_lock:
        signature, found = _live.get(key, (None, None))
    shared = found() if found is not None else None
    made = None
    if shared is not None:
        made = if_it_can(provider, "when it was to share a program", lambda: provider.share(shared, context))
    if made is None or signature is None:
        return None
    _remember(key, signature, made)  # which may be there longer than the other one
    return Start(signature, DirectModel(made))


def warm_start(source: Any, options: SessionOptions, settings: dict[str, str]) -> WarmStart | None:
    """The cache entry for `source` and everything that a program is made from; None where nothing is cached."""
    cache = get_cache()
    limit = int(options.config("session.cache_weights_mib")) * _MIB
    if not cache.place or limit <= 0 or os.environ.get("INTARSIA_PROGRAM_CACHE") == "0":
        return None
    if not isinstance(source, (bytes, str, os.PathLike)):
        return None
    folder = options.config("session.model_external_initializers_file_folder_path")
    if not folder and not isinstance(source, bytes):
        folder = os.path.dirname(os.fspath(source)) or "."
    return WarmStart(source, settings, cache, limit, os.path.abspath(folder) if folder else "")


def model_key(source: Any) -> str | None:
    """A hash of the model's bytes, whatever its size; None for sources that are not a file or bytes."""
    return _model_key(source, get_cache(), 1 << 40)


def _hash_in(key: str) -> str:
    """Of a model's key, which may have its path too, what is of its bytes."""
    return key.partition(" ")[0]


def _model_key(source: Any, cache: DiskCache, limit: int, *, read_up_to: int | None = None) -> str | None:
    """A hash of the model's bytes; None for sources larger than `limit`, or than `read_up_to` and not known yet."""
    if isinstance(source, bytes):
        return content_key(source) if len(source) <= limit else None
    if not isinstance(source, (str, os.PathLike)):
        return None
    try:
        path = os.path.realpath(os.fspath(source))
        status = os.stat(path)
        if status.st_size > limit or not status.st_size:
            return None
        state = _identity_of(path, status)
        remembered, settled = _remembered(path, state), _is_settled(state)
        known = cache.get(remembered) if settled else None
        if known is not None:
            return known.decode()
        if read_up_to is not None and status.st_size > read_up_to:
            return None
        unasked = settled and read_up_to == _LARGE_NBYTES and status.st_size > _MIB
        if unasked and not cache.has(_cached_there(path, status.st_size)):
            return None
        key = f"{file_key(path)} {path}"
    except (OSError, ValueError):
        return None  # loading says what is wrong
    if settled:
        cache.put(remembered, key.encode())
    return key


def _cached_there(path: str, nbytes: int) -> str:
    """The cache's key for saying that a model of so many bytes was kept that lay there. Else a file need not be read to learn
    that it is not kept: no first start waits for a hash where nothing is cached."""
    return f"there-{content_key(path, str(nbytes))}"


def _remembered(path: str, state: tuple[int, ...]) -> str:
    """The cache's key for the hash of a file's bytes."""
    return f"file-{content_key(repr((path, *state)))}"


def known_content(path: str, status: os.stat_result) -> str | None:
    """The hash of a file's bytes when it had this status; None where nobody requested it then."""
    known = get_cache().get(_remembered(os.path.realpath(os.fspath(path)), _identity_of(path, status)))
    return _hash_in(known.decode()) if known is not None else None


def is_same_content(path: str, before: os.stat_result, pieces: Iterable[bytes]) -> bool:
    """Whether a file's bytes are those that it had with this status, as far as that is known."""
    known = known_content(path, before) if sys.platform != "win32" else None  # whose status does not say when it changed last
    return known is not None and pieces_key(pieces) == known


def small_model_key(source: Any, before: tuple[int, ...] | None) -> str:
    """`model_key` of a file that is small, or whose hash is known, if its `identity` is `before`; "" for others."""
    if not before:
        return ""
    key = _model_key(source, get_cache(), _LARGE_NBYTES, read_up_to=_MIB)
    return key if key is not None and identity(source) == before else ""


def identity(source: Any) -> tuple[int, ...] | None:
    """What changes whenever a file does; None where the source is no file, () where it cannot be read (loading says why)."""
    if not isinstance(source, (str, os.PathLike)):
        return None
    try:
        return _identity_of(source, os.stat(source))
    except (OSError, ValueError):
        return ()


def _identity_of(path: str | os.PathLike[str], status: os.stat_result) -> tuple[int, ...]:
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, _changed_ns(path, status)


def _changed_ns(path: str | os.PathLike[str], status: os.stat_result) -> int:
    if sys.platform == "win32":
        return changed_ns(path)
    return status.st_ctime_ns


def is_unchanged(source: Any, before: tuple[int, ...] | None, key: str = "") -> bool:
    """Whether a model is what it was when its `identity` was `before`.

    Permissions, links, a new name, a copy in its place and `touch` are no change. So where times, or the file, are others,
    or so near that a change might not show, its bytes are compared with what is known of them.

    Args:
        key: that `model_key` gave for it then; "" where it was not hashed. Only links, permissions and names may have changed
            then: all but the time of the last change of those is as it was.
    """
    now = identity(source)
    if not now or not before:
        return now == before
    if now == before and _is_settled(now):
        return True
    if now[2] != before[2]:
        return False
    if key:
        return _hash_in(model_key(source) or "") == _hash_in(key)
    return now[:4] == before[:4]


def _is_settled(state: tuple[int, ...]) -> bool:
    """Whether a file of this identity did not change just now: its clock may not tick between two changes. That of file
    systems which know whole seconds only may belong to another machine, besides, and differ from ours."""
    written, changed = state[3:]
    age = time.time() - max(written, changed) / 1e9
    return age > _COARSE_SECONDS or (age > _SETTLED_SECONDS and bool(written % 1_000_000_000 or changed % 1_000_000_000))
