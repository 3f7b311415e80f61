"""LLVM IR text to object code, in this process or, run as a program, in one of its own.

This file needs only llvmlite and the standard library: a process that runs it imports nothing else of the package. It first
writes what `facts` returns to its standard output, then an answer for each request on its standard input (pickles both;
`codegen/compilers.py` is the other side), until that is closed.
"""

from __future__ import annotations

import ctypes
import functools
import os
import pickle
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

# Passes of LLVM's code generator for x86 that take a quarter of its time and make no kernel faster: texts say which addresses
# are kept, and these CPUs put instructions in order themselves. A process has them or not, so only those of our own do without.
_LEFT_OUT = ("-disable-lsr", "-disable-post-ra")
_QUICK_LEVEL = 1  # of the code generator, with "fast" selection of instructions: two thirds of level 3's time


class CompileError(Exception):
    """LLVM or a check refuses a text; the message names the kernel."""


class Request(NamedTuple):
    """One module to compile, for a machine by LLVM's names.

    Attributes:
        symbol: the function that the module has to define.
        optimize: whether LLVM's passes run over it.
        quick: whether instructions are chosen quickly.
    """

    symbol: str
    ir: str
    triple: str
    cpu: str
    features: str
    optimize: bool
    quick: bool = False


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
    return binding.get_process_triple(), binding.get_host_cpu_name(), binding.get_host_cpu_features().flatten(), version


def compiled(request: Request) -> bytes:
    """The object file of a kernel.

    Raises:
        CompileError: LLVM rejects the text, it does not define its symbol, or calls what nobody defines.
    """
    with parsed(request.symbol, request.ir) as module:
        _check_symbols(request.symbol, module)
        machine = target_machine(request.triple, request.cpu, request.features, opt=_QUICK_LEVEL if request.quick else 3)
        if request.optimize:
            optimized(module, machine)
        return emitted(machine, module)


def target_machine(triple: str, cpu: str, features: str, opt: int = 3) -> Any:
    """A new llvmlite TargetMachine: position-independent code (but for WebAssembly), small code model.

    RuntimeError where this LLVM has no code generator for the triple.
    """
    binding = llvm()
    if triple != binding.get_process_triple():
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


def _check_symbols(symbol: str, module: Any) -> None:
    defined = {function.name: not function.is_declaration for function in module.functions}
    if not defined.get(symbol):
        raise CompileError(f"the text of kernel {symbol!r} defines no function of that name; it defines {sorted(defined)}")
    for name, has_body in defined.items():
        if not has_body and not name.startswith("llvm.") and not _in_process(name):
            raise CompileError(f"kernel {symbol!r} calls {name!r}, which neither it nor this process's libraries define")


@functools.cache
def _in_process(name: str) -> bool:
    return bool(llvm().address_of_symbol(name)) or (os.name != "nt" and hasattr(ctypes.CDLL(None), name))


class _Unlocked(NamedTuple):
    """The two long calls into LLVM, without llvmlite's process-wide lock around them.

    They are safe to run at once because every compilation has its own context, target machine and pass manager.
    """

    run_passes: Any
    emit_to_memory: Any


@functools.cache
def _unlocked() -> _Unlocked:
    from llvmlite.binding import ffi

    llvm()
    locked = (ffi.lib.LLVMPY_RunNewModulePassManager, ffi.lib.LLVMPY_TargetMachineEmitToMemory)
    library = ctypes.CDLL(ffi.lib._name)
    functions = (library.LLVMPY_RunNewModulePassManager, library.LLVMPY_TargetMachineEmitToMemory)
    for function, model in zip(functions, locked, strict=True):
        function.argtypes, function.restype = model.argtypes, model.restype
    return _Unlocked(*functions)


def optimized(module: Any, machine: Any) -> None:
    """Run LLVM's passes of level 3 over a module."""
    binding = llvm()
    options = binding.create_pipeline_tuning_options(speed_level=3)
    options.loop_vectorization = options.slp_vectorization = options.loop_unrolling = options.loop_interleaving = True
    builder = binding.create_pass_builder(machine, options)
    _unlocked().run_passes(builder.getModulePassManager(), module, builder)


def emitted(machine: Any, module: Any) -> bytes:
    """The object file of a module."""
    from llvmlite.binding import ffi

    with ffi.OutputString() as message:
        buffer = _unlocked().emit_to_memory(machine, module, 1, message)
        if not buffer:
            raise CompileError(f"LLVM could not emit an object file: {message}")
    try:
        return ctypes.string_at(ffi.lib.LLVMPY_GetBufferStart(buffer), ffi.lib.LLVMPY_GetBufferSize(buffer))
    finally:
        ffi.lib.LLVMPY_DisposeMemoryBuffer(buffer)


def _serve() -> None:
    """Answer requests, each a Request's values, by an object file or an error's message."""
    has_options = llvm().get_process_triple().startswith("x86_64")
    for option in _LEFT_OUT if has_options else ():
        llvm().set_option("", option)
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a library prints is no answer
    pickle.dump(facts(), answers)
    answers.flush()
    while True:
        try:
            request = Request(*pickle.load(sys.stdin.buffer))  # noqa: S301 # from the process that started this one
        except EOFError:
            return
        answer: bytes | str
        request = request._replace(quick=request.quick and has_options)
        if has_options:
            llvm().set_option("", f"-fast-isel={str(request.quick).lower()}")
        try:
            answer = compiled(request)
        except CompileError as error:
            answer = str(error)
        pickle.dump(answer, answers)
        answers.flush()


if __name__ == "__main__":
    sys.path.extend(sys.argv[1:])
    _serve()
    os._exit(0)  # nothing is left to do, and LLVM takes its time to end
