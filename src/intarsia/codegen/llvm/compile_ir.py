"""LLVM IR text to object code, in this process or, run as a program, in one of its own.

This file needs only llvmlite and the standard library: a process that runs it imports nothing else of the package, and as
little of these as can be, since a first start waits for it. It first writes what `facts` returns to its standard output, then
an answer for each request on its standard input (by marshal both; `codegen/llvm/compile_workers.py` is the other side), until
that is closed.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import marshal
import os
import sys
from collections import namedtuple
from contextlib import contextmanager
from types import ModuleType

TYPE_CHECKING = False  # typing takes milliseconds
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from typing import Any, Self

# Passes of LLVM's code generator for x86 that take a quarter of its time and make no kernel faster: texts say which addresses
# are unused; these CPUs put instructions in order themselves. A process has them or not, so only those of our own do without.
_LEFT_OUT = ("-disable-lsr", "-disable-post-ra")
_OPTIONS = (*_LEFT_OUT, "-optimize-regalloc=true")  # registers as at level 3 at all levels: code is a quarter shorter
_LENGTH_NBYTES = 8
_MOST_NBYTES = 1 << 32  # of one value: letters instead of a length are more


class Effort:
    """What LLVM does for a module, by what its time goes into.

    Instructions are chosen quickly on x86, in processes that compile alone: the options for that are a process's.
    """

    ALL = "all"  # loops that may be unrolled and made of vectors
    VECTORS = "vectors"  # loops of vectors: of LLVM's passes only simplifications of functions, half of the time
    CODE = "code"  # instructions that are good as they are: no passes
    QUICK = "quick"  # kernels that it calls: no passes, and instructions are chosen quickly
    CONTROL = "control"  # what others do: functions are inlined where they say so, and instructions chosen most quickly


_LEVELS = {Effort.QUICK: 1, Effort.CONTROL: 0}  # of the code generator


class CompileError(Exception):
    """LLVM or a check refuses a text; the message names the kernel."""


class Request(namedtuple("Request", "symbol ir triple cpu features effort parts", defaults=[Effort.ALL, ()])):  # noqa: PYI024
    """One module to compile, for a machine by LLVM's names.

    Attributes:
        symbol: the function that the module has to define.
        ir: its text.
        effort: one of `Effort`.
        parts: functions that it may call and other modules define.
    """

    __slots__ = ()


class _Place(str):
    """A path instead of those of importlib.resources."""

    __slots__ = ()

    def __truediv__(self, name: str) -> _Place:
        return _Place(os.path.join(self, name))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass


class _Unused(ModuleType):
    """Instead of a module of which names are listed, but none is used here."""

    def __getattr__(self, name: str) -> None:
        if name.startswith("__"):
            raise AttributeError(name)


class _Resources(_Unused):
    """Instead of importlib.resources: a package's files lie in its folder."""

    @staticmethod
    def files(package: str) -> _Place:
        return _Place(sys.modules[package].__path__[0])

    @staticmethod
    def as_file(place: _Place) -> _Place:
        return place


def _import_quickly() -> None:
    """Import llvmlite without what takes half of that time: what says where its library lies, what writes texts, and what
    distinguishes systems."""
    resources = _Resources("importlib.resources")
    names = ["importlib.resources", "llvmlite.ir", "platform"]
    sys.modules |= {"importlib.resources": resources, "llvmlite.ir": _Unused("llvmlite.ir"), "platform": _Unused("platform")}
    try:
        import llvmlite.binding  # noqa: F401
    except (ImportError, AttributeError, TypeError, OSError, RecursionError):  # another version: `llvm` imports all of it
        names += [name for name in sys.modules if name.split(".")[0] == "llvmlite"]
    finally:
        for name in dict.fromkeys(names):
            del sys.modules[name]


@functools.cache
def llvm() -> Any:
    """llvmlite.binding with the host's code generator initialised; ImportError or OSError where llvmlite is missing."""
    from llvmlite import binding

    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    binding.initialize_native_asmparser()
    return binding


def facts() -> tuple[str, str, str, str]:
    """This machine as LLVM sees it: triple, CPU, features; and LLVM's version."""
    binding = llvm()
    version = ".".join(map(str, binding.llvm_version_info))
    return native_triple(), binding.get_host_cpu_name(), binding.get_host_cpu_features().flatten(), version


@functools.cache
def native_triple() -> str:
    """What code for this process is compiled for.

    On Windows objects are ELF, with Windows' calling convention: LLVM's linker for its own format (COFF) places the sections
    of a library too far from each other and ends the process, and `linked_image.py` links ELF everywhere.
    """
    triple = str(llvm().get_process_triple())
    return f"{triple.split('-', 1)[0]}-pc-windows-msvc-elf" if "-windows-" in triple else triple


def compiled(
    request: Request, machine_of: Callable[[Request], Any] | None = None, has: Callable[[str], bool] | None = None
) -> bytes:
    """The object file of a kernel.

    Args:
        machine_of: what gives the target machine of a request, instead of a new one.
        has: whether the process that is to run it has a function; by default, whether this one, started by that, has it.

    Raises:
        CompileError: LLVM rejects the text, it does not define its symbol, or calls what nobody defines.
    """
    with parsed(request.symbol, request.ir) as module:
        _check_symbols(request.symbol, module, request.parts, has or _in_process)
        machine = machine_of(request) if machine_of else target_machine(request.triple, request.cpu, request.features)
        if request.effort == Effort.ALL:
            optimized(module, machine)
        elif request.effort == Effort.VECTORS:
            simplified(module, machine)
        elif request.effort == Effort.CONTROL:
            inlined(module, machine)
        return emitted(machine, module)


def target_machine(triple: str, cpu: str, features: str, opt: int = 3) -> Any:
    """A new llvmlite TargetMachine: position-independent code (but for WebAssembly), small code model.

    RuntimeError where this LLVM has no code generator for the triple.
    """
    binding = llvm()
    if triple != native_triple():
        _all_targets()
    reloc = "static" if triple.startswith("wasm") else "pic"
    target = binding.Target.from_triple(triple)
    return target.create_target_machine(cpu=cpu, features=features, opt=opt, reloc=reloc, codemodel="small")


@functools.cache
def _all_targets() -> None:
    llvm().initialize_all_targets()
    llvm().initialize_all_asmprinters()


@contextmanager
def parsed(name: str, ir: str) -> Iterator[Any]:
    """The text as a module in a context of its own.

    Both are freed here, in this order: an error keeps the frames that hold them, and a garbage collector would free them in
    any order, which crashes.
    """
    context = llvm().create_context()
    module = None
    try:
        try:
            module = llvm().parse_assembly(ir, context)
            module.verify()
        except RuntimeError as error:
            raise CompileError(f"LLVM rejects the text of kernel {name!r}: {str(error).strip()}") from error
        yield module
    finally:
        if module is not None:
            module.close()
        context.close()


def _check_symbols(symbol: str, module: Any, parts: Sequence[str], has: Callable[[str], bool]) -> None:
    defined = {function.name: not function.is_declaration for function in module.functions}
    if not defined.get(symbol):
        raise CompileError(f"the text of kernel {symbol!r} defines no function of that name; it defines {sorted(defined)}")
    for name, has_body in defined.items():
        if not has_body and name not in parts and not name.startswith("llvm.") and not has(name):
            raise CompileError(f"kernel {symbol!r} calls {name!r}, which neither it nor this process's libraries define")


@functools.cache
def _in_process(name: str) -> bool:
    return bool(llvm().address_of_symbol(name)) or hasattr(ctypes.CDLL(None), name)


@functools.cache
def _unlocked() -> tuple[Any, Any]:
    """The two long calls into LLVM (to run passes, to emit to memory) without llvmlite's process-wide lock around them.

    They are safe to run at once because every compilation has its own context, target machine and pass manager.
    """
    from llvmlite.binding import ffi

    llvm()
    locked = (ffi.lib.LLVMPY_RunNewModulePassManager, ffi.lib.LLVMPY_TargetMachineEmitToMemory)
    library = ctypes.CDLL(ffi.lib._name)
    functions = (library.LLVMPY_RunNewModulePassManager, library.LLVMPY_TargetMachineEmitToMemory)
    for function, model in zip(functions, locked, strict=True):
        function.argtypes, function.restype = model.argtypes, model.restype
    return functions


def optimized(module: Any, machine: Any) -> None:
    """Run LLVM's passes of level 3 over a module."""
    binding = llvm()
    options = binding.create_pipeline_tuning_options(speed_level=3)
    options.loop_vectorization = options.slp_vectorization = options.loop_unrolling = options.loop_interleaving = True
    builder = binding.create_pass_builder(machine, options)
    run_passes, _ = _unlocked()
    run_passes(builder.getModulePassManager(), module, builder)


def simplified(module: Any, machine: Any) -> None:
    """Run the passes of level 1 that look at functions alone: half of level 3's time."""
    options = llvm().create_pipeline_tuning_options(speed_level=1)
    options.loop_unrolling = True
    builder = llvm().create_pass_builder(machine, options)
    passes = builder.getFunctionPassManager()
    for function in module.functions:
        if not function.is_declaration:
            passes.run(function, builder)


def inlined(module: Any, machine: Any) -> None:
    """Inline the functions that say `alwaysinline`."""
    passes = llvm().create_new_module_pass_manager()
    passes.add_always_inliner_pass()
    passes.run(module, llvm().create_pass_builder(machine, llvm().create_pipeline_tuning_options()))


def emitted(machine: Any, module: Any) -> bytes:
    """The object file of a module."""
    from llvmlite.binding import ffi

    _, emit_to_memory = _unlocked()
    with ffi.OutputString() as message:
        buffer = emit_to_memory(machine, module, 1, message)
        if not buffer:
            raise CompileError(f"LLVM could not emit an object file: {message}")
    try:
        return ctypes.string_at(ffi.lib.LLVMPY_GetBufferStart(buffer), ffi.lib.LLVMPY_GetBufferSize(buffer))
    finally:
        ffi.lib.LLVMPY_DisposeMemoryBuffer(buffer)


def packed(value: Any) -> bytes:
    """What goes through a pipe for a value: its length in bytes, and what marshal makes of it."""
    data = marshal.dumps(value)
    return len(data).to_bytes(_LENGTH_NBYTES, "little") + data


def received(read: Callable[[int], bytes]) -> Any:
    """A value from a pipe, by a function that gives so many bytes.

    Raises:
        EOFError, ValueError, TypeError: it ended, or somebody else wrote to it.
    """
    head = read(_LENGTH_NBYTES)
    if len(head) < _LENGTH_NBYTES:
        raise EOFError
    nbytes = int.from_bytes(head, "little")
    if nbytes > _MOST_NBYTES:
        raise ValueError("no length")
    return marshal.loads(read(nbytes))  # noqa: S302 # both processes are one program's


def _serve() -> None:
    """Answer requests, each a Request's values, by an object file or an error's message."""
    _import_quickly()
    has_options = llvm().get_process_triple().startswith("x86_64")
    made = functools.cache(target_machine)  # to make one takes as long as a small kernel

    def machine_of(request: Request) -> Any:
        level = _LEVELS.get(request.effort, 3) if has_options else 3
        return made(request.triple, request.cpu, request.features, level)

    for option in _OPTIONS if has_options else ():
        llvm().set_option("", option)
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a library prints is no answer
    answers.write(packed(facts()))
    answers.flush()
    while True:
        try:
            request = Request(*received(sys.stdin.buffer.read))
        except EOFError:
            return
        answer: bytes | str
        if has_options:
            llvm().set_option("", f"-fast-isel={str(request.effort in _LEVELS).lower()}")
        try:
            answer = compiled(request, machine_of)
        except CompileError as error:
            answer = str(error)
        answers.write(packed(answer))
        answers.flush()


if __name__ == "__main__":
    sys.path.extend(sys.argv[1:])
    with contextlib.suppress(BrokenPipeError):  # who requested it has ended
        _serve()
    os._exit(0)  # nothing is left to do, and LLVM takes its time to end
