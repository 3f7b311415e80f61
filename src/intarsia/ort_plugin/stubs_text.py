"""The text of the library: functions that go on at addresses which Python wrote into the library's table.

Structures that onnxruntime keeps (OrtEpFactory, OrtEp, OrtNodeComputeInfo) point to these functions, never to Python's own
callbacks: onnxruntime may call them when the interpreter has ended, or in a program without one. Then the table's words are 0,
and each function answers by itself: one that returns a status with an error, where there is something to say, else with 0.
A run of a thread that is still there while the process ends waits for that.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from typing import NamedTuple

from intarsia.codegen.llvm.target import Target

TABLE = "intarsia_plugin_table"

_GONE = "IntarsiaCPU: Python has ended in this process, and with it what compiles and binds models"
_NO_PYTHON = (
    "IntarsiaCPU: this library works in the Python process that made it: import intarsia there, and register what "
    "intarsia.plugin_library() returns"
)


class Answer(Enum):
    """What a function gives where Python is gone."""

    FAILS = "an error"
    NOTHING = "0"
    FAILS_LATE = "an error; to other threads than the main one after a while, in which the process ends"


class Stub(NamedTuple):
    """A function of the library: how many arguments it takes, and what it gives without Python."""

    name: str
    arguments: int
    answer: Answer = Answer.FAILS


STUBS = (
    Stub("GetSupportedDevices", 6),
    Stub("CreateEp", 7),
    Stub("ReleaseEp", 2, Answer.NOTHING),
    Stub("GetCapability", 3),
    Stub("Compile", 6),
    Stub("ReleaseNodeComputeInfos", 3, Answer.NOTHING),
    Stub("CreateState", 3),
    Stub("Compute", 3, Answer.FAILS_LATE),
    Stub("Settle", 2, Answer.FAILS_LATE),
)
CONSTANTS = ("GetName", "GetVendor", "GetVersion", "GetVendorId")
"""Functions that give their word of the table."""
ZEROS = {"ReleaseState": -1, "ReleaseAllocator": -1, "IsStreamAware": -1, "IsConcurrentRunSupported": 1, "CreateAllocator": 3,
         "CreateDataTransfer": 1, "CreateSyncStreamForDevice": 3}  # fmt: skip
"""Functions that do nothing, and which argument says where they put what they have not."""
ENTRIES = ("CreateEpFactories", "ReleaseEpFactory")
EXPORTS = (TABLE, *ENTRIES, *(stub.name for stub in STUBS), *CONSTANTS, *ZEROS)


def words() -> dict[str, int]:
    """The table's words by what they are for."""
    names = ("CreateStatus", *ENTRIES, *(stub.name for stub in STUBS), *CONSTANTS)
    return {name: i for i, name in enumerate(names)}


def library_text(target: Target) -> str:
    """The library as LLVM IR for `target`."""
    return "\n".join([f'target triple = "{target.triple}"', *_parts()])


def _parts() -> Iterator[str]:
    places = words()
    yield f"@{TABLE} = hidden global [{len(places)} x ptr] zeroinitializer, align 16"
    yield _text("gone", _GONE)
    yield _text("no_python", _NO_PYTHON)
    yield _FAIL
    yield _LINGER
    yield _CREATE_FACTORIES.replace("$WORD$", str(places["CreateEpFactories"]))
    yield _stub(Stub("ReleaseEpFactory", 1, Answer.NOTHING), places)
    for stub in STUBS:
        yield _stub(stub, places)
    for name in CONSTANTS:
        yield f"define ptr @{name}(ptr %this) nounwind {{\n{_load(places[name])}  ret ptr %f\n}}"
    for name, argument in ZEROS.items():
        arguments = ", ".join(f"ptr %a{i}" for i in range(max(argument, 0) + 1))
        store = f"  store i64 0, ptr %a{argument}\n" if argument >= 0 else ""
        if name == "IsConcurrentRunSupported":
            store = f"  store i8 1, ptr %a{argument}\n"
        yield f"define ptr @{name}({arguments}) nounwind {{\n{store}  ret ptr null\n}}"


def _text(name: str, text: str) -> str:
    data = "".join(f"\\{b:02X}" for b in text.encode() + b"\0")
    return f'@{name} = internal constant [{len(text.encode()) + 1} x i8] c"{data}"'


def _load(word: int) -> str:
    return f"  %p = getelementptr ptr, ptr @{TABLE}, i64 {word}\n  %f = load ptr, ptr %p\n"


def _stub(stub: Stub, places: dict[str, int]) -> str:
    """A function that goes on at its word of the table."""
    arguments = ", ".join(f"ptr %a{i}" for i in range(stub.arguments))
    gone = "  ret ptr null\n" if stub.answer is Answer.NOTHING else "  %r = call ptr @fail(ptr @gone)\n  ret ptr %r\n"
    gone = ("  call void @linger()\n" if stub.answer is Answer.FAILS_LATE else "") + gone
    return (
        f"define ptr @{stub.name}({arguments}) nounwind {{\n{_load(places[stub.name])}"
        "  %none = icmp eq ptr %f, null\n  br i1 %none, label %gone, label %go\n"
        f"go:\n  %answer = tail call ptr %f({arguments})\n  ret ptr %answer\ngone:\n{gone}}}"
    )


# A status with the text, by the function that the table's first word is the address of.
_FAIL = f"""
define internal ptr @fail(ptr %text) nounwind {{
  %create = load ptr, ptr @{TABLE}
  %none = icmp eq ptr %create, null
  br i1 %none, label %out, label %make
make:
  %status = call ptr %create(i32 1, ptr %text)
  ret ptr %status
out:
  ret ptr null
}}"""

# A daemon thread's run would print the error while the process ends, so it waits for that end, for two seconds. The main thread
# does not: a function that runs at exit may call us. There is no C library to link with, so the kernel is called (x86-64 Linux:
# getpid 39, gettid 186, nanosleep 35).
_LINGER = """
@two_seconds = internal constant [2 x i64] [i64 2, i64 0]
define internal i64 @kernel(i64 %what, i64 %a) nounwind noinline {
  %r = call i64 asm sideeffect "syscall", "={rax},{rax},{rdi},{rsi},~{rcx},~{r11},~{memory}"(i64 %what, i64 %a, i64 0)
  ret i64 %r
}
define internal void @linger() nounwind {
  %process = call i64 @kernel(i64 39, i64 0)
  %thread = call i64 @kernel(i64 186, i64 0)
  %main = icmp eq i64 %process, %thread
  br i1 %main, label %out, label %wait
wait:
  %time = ptrtoint ptr @two_seconds to i64
  %slept = call i64 @kernel(i64 35, i64 %time)
  br label %out
out:
  ret void
}"""

# Without Python the error is made by the first function of OrtApi, which every version has.
_CREATE_FACTORIES = f"""
define ptr @CreateEpFactories(ptr %name, ptr %base, ptr %log, ptr %factories, i64 %most, ptr %count) nounwind {{
  %p = getelementptr ptr, ptr @{TABLE}, i64 $WORD$
  %f = load ptr, ptr %p
  %none = icmp eq ptr %f, null
  br i1 %none, label %alone, label %go
go:
  %answer = tail call ptr %f(ptr %name, ptr %base, ptr %log, ptr %factories, i64 %most, ptr %count)
  ret ptr %answer
alone:
  store i64 0, ptr %count
  %get = load ptr, ptr %base
  %api = call ptr %get(i32 1)
  %create = load ptr, ptr %api
  %status = call ptr %create(i32 1, ptr @no_python)
  ret ptr %status
}}"""
