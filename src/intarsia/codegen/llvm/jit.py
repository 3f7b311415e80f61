"""LLVM IR text to machine code that this process can call, through an object-code cache.

A kernel is a `KernelText`: a self-contained LLVM module that defines `void @symbol(ptr args, i64 tid, i64 nthreads)`.
`Engine.load` gives the address of each: from this process, from the disk cache, or by compiling what is missing,
each kernel in a module and an LLVM context of its own, on all cores, in other processes where that can be (`compile_workers`).

The cache holds an entry per kernel, shared by all models that use it, and a pack per group of kernels loaded together,
so that a warm start reads one file. Loaded code lives as long as the process: an `Engine` is never unloaded.
"""

from __future__ import annotations

import ctypes
import functools
import heapq
import itertools
import re
import struct
import time
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self

from intarsia import progress
from intarsia.cache.disk_cache import CACHE_VERSION, DiskCache, checksum_of, content_key, get_cache
from intarsia.codegen.llvm import compile_ir, linked_image
from intarsia.codegen.llvm.compile_ir import Effort, Request
from intarsia.codegen.llvm.target import Target, host_facts, llvm
from intarsia.errors import EPFail, InvalidArgument
from intarsia.lazy_dataclass import dataclass
from intarsia.machine import fork_safety
from intarsia.printable import get_logger

if TYPE_CHECKING:
    from concurrent.futures import Future

logger = get_logger("intarsia")

SYMBOL_PLACEHOLDER = "__SYMBOL__"
_PACK_HEADER = struct.Struct("<I")
_PACK_ROW = struct.Struct("<HQ")
_PACKED = 6  # about, of a text's characters in a byte of what it is packed to
_CHECKED_SECONDS = 0.1  # after which who waits for a kernel looks whether it still is to


@dataclass(frozen=True)
class KernelText:
    """LLVM IR that defines `void @symbol(ptr args, i64 tid, i64 nthreads)` and needs nothing beyond libc, libm and its parts.

    Make it with `kernel_text`, so that the symbol is the content's hash.

    Attributes:
        text: the IR, or what zlib made of it: a long text is in memory as a whole, a megabyte or so, only while it is compiled.
        effort: what LLVM does for it.
        parts: texts of functions that it declares and calls by their symbols. Each is compiled once for all that call it, and
            linked into the block of each.
    """

    symbol: str
    text: str | bytes
    effort: str = Effort.ALL
    parts: tuple[KernelText, ...] = ()

    def __reduce__(self) -> tuple[type[KernelText], tuple[str, str, str, tuple[KernelText, ...]]]:
        """Without the text: a program in the cache has its machine code beside it."""
        return KernelText, (self.symbol, "", self.effort, self.parts)

    @property
    def key(self) -> str:
        """What identifies the content: the symbol if it is a content hash, else the symbol and the hash of the text."""
        if _HASHED.search(self.symbol):
            return self.symbol
        return f"{self.symbol}_{_digest(self.ir)}"

    @property
    def ir(self) -> str:
        """The text."""
        return self.text if isinstance(self.text, str) else zlib.decompress(self.text).decode()

    def packed(self) -> KernelText:
        """The same with a text that is packed."""
        return self if isinstance(self.text, bytes) else replace(self, text=zlib.compress(self.text.encode(), 1))

    @property
    def size(self) -> int:
        """Characters of the text, about, parts not counted."""
        return len(self.text) * (1 if isinstance(self.text, str) else _PACKED)


_HASHED = re.compile(r"_[0-9a-f]{32}$")


def kernel_symbol(prefix: str, ir_with_placeholder: str) -> str:
    """A symbol that follows from the content: `prefix`, "_" and 32 hex digits of the text's hash."""
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", prefix):
        raise InvalidArgument(f"the prefix of a kernel symbol is letters, digits and '_'; got {prefix!r}")
    if SYMBOL_PLACEHOLDER not in ir_with_placeholder:
        raise InvalidArgument(f"the text of kernel {prefix!r} does not contain {SYMBOL_PLACEHOLDER} where its symbol belongs")
    return f"{prefix}_{_digest(ir_with_placeholder)}"


def kernel_text(
    prefix: str, ir_with_placeholder: str, effort: str = Effort.ALL, parts: Iterable[KernelText] = ()
) -> KernelText:  # fmt: skip
    """A KernelText from IR that says `@__SYMBOL__` where the symbol belongs."""
    symbol = kernel_symbol(prefix, ir_with_placeholder)
    return KernelText(symbol, ir_with_placeholder.replace(SYMBOL_PLACEHOLDER, symbol), effort, tuple(parts))


def with_parts(kernels: Iterable[KernelText]) -> dict[str, KernelText]:
    """Kernels and all their parts by key, what takes longest to compile of each first."""
    found: dict[str, KernelText] = {}
    for kernel in kernels:
        for part in sorted(kernel.parts, key=lambda part: -part.size):
            found |= with_parts((part,))
        found[kernel.key] = kernel
    return found


class Engine:
    """Loads kernels for one target into this process. Thread-safe; see `get_engine`.

    `compiled` and `loaded_from_cache` count kernels since the process began.
    """

    def __init__(self, target: Target, cache: DiskCache) -> None:
        self.target = target
        self.cache = cache
        self.compiled = 0
        self.loaded_from_cache = 0
        self._addresses: dict[str, int] = {}
        self._trackers: list[Any] = []
        self._jit: Any = None
        self._serial = itertools.count()  # names of libraries: one that could not be linked keeps its own

    def has(self, kernel: KernelText, optimize: bool = True) -> bool:
        """Whether a kernel, its parts not counted, is in this process or the disk cache."""
        return kernel.key in self._addresses or self.cache.has(self._entry_key(kernel.key, optimize))

    def load(
        self, kernels: Sequence[KernelText], optimize: bool = True, compilation: Compilation | None = None
    ) -> dict[str, int]:
        """The address of every kernel, by symbol; some may have begun in a `compilation` with the same `optimize`.

        Raises:
            EPFail: LLVM rejects a text.
        """
        by_key = {kernel.key: kernel for kernel in kernels}
        if self._addresses.keys() >= by_key.keys():
            return {kernel.symbol: self._addresses[key] for key, kernel in by_key.items()}
        with _lock:
            every = with_parts(kernels)
            missing = with_parts(kernel for key, kernel in by_key.items() if key not in self._addresses)
            if missing:
                objects = self._from_cache(list(every), list(missing), optimize)
                self.loaded_from_cache += len(objects)
                absent = [kernel for key, kernel in missing.items() if key not in objects]
                if absent:
                    with compilation or Compilation(self, optimize) as running:
                        objects |= self._compile(absent, optimize, running)
                    if len(every) > 1:
                        self._write_pack(list(every), objects, optimize)
                self._add(objects, {key: kernel.symbol for key, kernel in missing.items()})
                if absent:
                    from intarsia.codegen.llvm import release_memory

                    release_memory.release()
            return {kernel.symbol: self._addresses[key] for key, kernel in by_key.items()}

    def objects(self, kernels: Sequence[KernelText], *, anew: bool = False) -> list[bytes] | None:
        """The object files of kernels and their parts, or None where the cache does not have them (any more).

        `anew`: compile those whose text is there; None only for others.
        """
        every = with_parts(kernels)
        found = {key: self.cache.get(self._entry_key(key, True)) for key in every}
        absent = [kernel for key, kernel in every.items() if found[key] is None]
        if absent and not (anew and all(kernel.size for kernel in absent)):
            return None
        made: dict[str, bytes] = {}
        if absent:
            with Compilation(self) as running:
                made = self._compile(absent, True, running)
        return [code for code in (found | made).values() if code is not None]

    def _from_cache(self, keys: list[str], missing: list[str], optimize: bool) -> dict[str, bytes]:
        pack: dict[str, bytes] = {}
        if len(keys) > 1 and (data := self.cache.get(self._pack_key(keys, optimize))) is not None:
            pack = _unpack(data)
        objects = {key: pack[key] for key in missing if key in pack}
        single = {}
        for key in missing:
            if key not in objects and (code := self.cache.get(self._entry_key(key, optimize))) is not None:
                single[key] = code
        objects |= single
        if single and len(keys) > 1 and len(objects) == len(missing):
            self._write_pack(keys, pack | objects, optimize)
        return objects

    def _write_pack(self, keys: list[str], objects: dict[str, bytes], optimize: bool) -> None:
        have = dict(objects)
        for key in keys:
            if key not in have and (code := self.cache.get(self._entry_key(key, optimize))) is not None:
                have[key] = code
        self.cache.put(self._pack_key(keys, optimize), _pack({key: have[key] for key in keys if key in have}))

    def _compile(self, kernels: list[KernelText], optimize: bool, running: Compilation) -> dict[str, bytes]:
        """Machine code by key; what is done goes into the cache at once, so that nothing is lost where the rest is stopped."""
        start = time.perf_counter()
        ordered = sorted(kernels, key=lambda kernel: -kernel.size)
        codes: dict[str, bytes] = {}
        progress.step("compile", 0, len(ordered))
        for kernel, code in running.results(ordered):
            codes[kernel.key] = code
            self.cache.put(self._entry_key(kernel.key, optimize), code)
            self.compiled += 1
            progress.step("compile", len(codes), len(ordered))
        logger.debug("compiled %d kernels in %.2f s", len(ordered), time.perf_counter() - start)
        return codes

    def _add(self, objects: dict[str, bytes], symbols: dict[str, str]) -> None:
        from intarsia.codegen.llvm.link_objects import link

        codes, names = [objects[key] for key in symbols], list(symbols.values())
        linked = link(codes, names)
        addresses = linked_image.load(linked) if linked is not None else None
        if addresses is None:
            if linked is not None and (unknown := linked_image.unknown_functions(linked)):
                raise EPFail(
                    f"kernels {sorted(names)} could not be linked into this process: they need {unknown}, which no library of "
                    "it defines. If they were compiled for another system, `intarsia cache clear` removes them"
                )
            addresses = self._linked_by_llvm(codes, names)
        self._addresses |= {key: addresses[symbol] for key, symbol in symbols.items()}

    def _linked_by_llvm(self, objects: list[bytes], symbols: list[str]) -> dict[str, int]:
        binding = llvm()
        builder = binding.JITLibraryBuilder().add_current_process()
        for code, symbol in zip(objects, symbols, strict=True):
            builder.add_object_img(code).export_symbol(symbol)
        try:
            if self._jit is None:  # llvmlite has it on all systems but Windows
                self._jit = binding.create_lljit_compiler(self.target.target_machine(), use_jit_link=True, suppress_errors=True)
            tracker = builder.link(self._jit, f"intarsia{next(self._serial)}")
        except RuntimeError as error:
            raise EPFail(f"kernels {sorted(symbols)} could not be linked into this process: {error}") from error
        for lasting in (self._jit, tracker):  # code is never unloaded: a thread may run it while the interpreter ends
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(lasting))
        self._trackers.append(tracker)
        return {symbol: int(tracker[symbol]) for symbol in symbols}

    def _entry_key(self, key: str, optimize: bool) -> str:
        return f"obj-{content_key(key, *_code_version(self.target, optimize))}"

    def _pack_key(self, keys: list[str], optimize: bool) -> str:
        return f"pack-{content_key(*sorted(keys), *_code_version(self.target, optimize))}"


# One lock for all engines: held across a fork, so that no child starts in the middle of a compilation.
_lock = fork_safety.held_lock(2)
fork_safety.go_first()

_engines: dict[tuple[Target, DiskCache], Engine] = {}


def get_engine(target: Target | None = None) -> Engine:
    """The process's engine for `target` (default: this machine) and the cache that the environment names now."""
    key = (target or Target.host(), get_cache())
    with _lock:
        if key not in _engines:
            _engines[key] = Engine(*key)
        return _engines[key]


def emit_assembly(ir: str, target: Target, optimize: bool = True) -> str:
    """The assembly text of an IR module for any target."""
    machine = target.target_machine()
    with _errors(), compile_ir.parsed("module", ir) as module:
        if optimize:
            compile_ir.optimized(module, machine)
        return str(machine.emit_assembly(module))


def emit_object(ir: str, target: Target, optimize: bool = True) -> bytes:
    """The object file of an IR module for any target."""
    machine = target.target_machine()
    with _errors(), compile_ir.parsed("module", ir) as module:
        if optimize:
            compile_ir.optimized(module, machine)
        return compile_ir.emitted(machine, module)


@contextmanager
def _errors() -> Iterator[None]:
    try:
        yield
    except compile_ir.CompileError as error:
        raise EPFail(str(error)) from error


@functools.cache
def _thread_pools() -> Any:
    """The standard library's, imported when something is compiled: it takes a lock before a fork, and what is done here before
    one goes first again."""
    import concurrent.futures.thread

    fork_safety.go_first()
    return concurrent.futures.thread


class Compilation:
    """Kernels being compiled, also while others are still being made: what is begun here is there sooner in `Engine.load`.

    A context manager: at its end what has not begun never does, and what is not done is stopped.
    """

    def __init__(self, engine: Engine, optimize: bool = True) -> None:
        from intarsia.codegen.llvm.compile_workers import at_once, compilers

        self.engine, self._optimize, self._compilers = engine, optimize, compilers()
        self._threads = _thread_pools().ThreadPoolExecutor(at_once(), thread_name_prefix="intarsia-compile")
        self._codes: dict[str, Future[bytes]] = {}
        self._waiting: list[tuple[float, int, KernelText, Future[bytes]]] = []  # a heap: what takes longest is first
        self._serial = itertools.count()

    def begin(self, kernel: KernelText) -> None:
        """Compile a kernel and its parts unless they are there."""
        for key, each in with_parts((kernel,)).items():
            if key not in self._codes and not self.engine.has(each, self._optimize):
                self._submit(each)

    def results(self, kernels: Iterable[KernelText]) -> Iterator[tuple[KernelText, bytes]]:
        """Each kernel with its machine code, as they are done.

        Raises:
            What `progress.check` raises, while one is being compiled.
        """
        from queue import Empty, SimpleQueue

        jobs = {self._codes.get(kernel.key) or self._submit(kernel): kernel for kernel in kernels}
        done: SimpleQueue[Future[bytes]] = SimpleQueue()
        for job in jobs:
            job.add_done_callback(done.put)
        left = len(jobs)
        while left:
            try:
                job = done.get(timeout=_CHECKED_SECONDS)
            except Empty:
                progress.check()
                continue
            left -= 1
            yield jobs[job], job.result()

    def _submit(self, kernel: KernelText) -> Future[bytes]:
        from concurrent.futures import Future

        self._codes[kernel.key] = job = Future[bytes]()
        heapq.heappush(self._waiting, (-_effort(kernel), next(self._serial), kernel, job))
        try:
            self._threads.submit(self._compile_longest)
        except RuntimeError:  # the interpreter is ending, and begins no threads any more
            self._compile_longest()
        return job

    def _compile_longest(self) -> None:
        """Compile what takes longest of the kernels that wait, so that the last ones to end are short."""
        _, _, kernel, job = heapq.heappop(self._waiting)  # one call, which other threads do not come between
        try:
            job.set_result(self._compiled(kernel))
        except BaseException as error:  # noqa: BLE001 # for who waits for it
            job.set_exception(error)

    def _compiled(self, kernel: KernelText) -> bytes:
        from intarsia.codegen.llvm.float16_libcalls import with_conversions

        target = self.engine.target
        ir = with_conversions(kernel.ir, target)
        effort = kernel.effort if self._optimize or kernel.effort not in (Effort.ALL, Effort.VECTORS) else Effort.CODE
        parts = tuple(part.symbol for part in kernel.parts)
        request = Request(kernel.symbol, ir, target.triple, target.cpu, target.features, effort, parts)
        return self._compilers.compiled(request, self)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)
        if not all(job.done() for job in self._codes.values()):
            self._compilers.stop(self)
        self._compilers.done()


_RELATIVE = {Effort.ALL: 14.0, Effort.VECTORS: 8.0, Effort.QUICK: 2.5, Effort.CODE: 1.0, Effort.CONTROL: 0.6}


def _effort(kernel: KernelText) -> float:
    """Roughly in proportion to the time that a kernel takes to compile: LLVM's passes take several times what the rest does,
    and what is selected from long blocks less for each character."""
    return kernel.size * _RELATIVE[kernel.effort]


def _digest(text: str) -> str:
    return checksum_of((text.encode(),)).hex()


@functools.cache
def _code_version(target: Target, optimize: bool) -> tuple[str, ...]:
    import llvmlite

    from intarsia.codegen.llvm import float16_libcalls

    versions = f"llvm {host_facts()[3]}, llvmlite {llvmlite.__version__}, cache {CACHE_VERSION}, O{3 * optimize}"
    if float16_libcalls.needs_conversions(target):
        versions = f"{versions}, {float16_libcalls.VERSION}"
    return (target.triple, target.cpu, target.features, versions)


def _pack(objects: dict[str, bytes]) -> bytes:
    head, body = [_PACK_HEADER.pack(len(objects))], []
    for key, code in objects.items():
        name = key.encode()
        head.append(_PACK_ROW.pack(len(name), len(code)) + name)
        body.append(code)
    return b"".join([*head, *body])


def _unpack(data: bytes) -> dict[str, bytes]:
    (count,) = _PACK_HEADER.unpack_from(data)
    position, rows = _PACK_HEADER.size, []
    for _ in range(count):
        name_length, length = _PACK_ROW.unpack_from(data, position)
        position += _PACK_ROW.size
        rows.append((data[position : position + name_length].decode(), length))
        position += name_length
    objects = {}
    for name, length in rows:
        objects[name] = data[position : position + length]
        position += length
    return objects
