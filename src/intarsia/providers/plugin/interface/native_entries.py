"""Entries of OrtApi that a run calls for each tensor, as native code: no Python, no GIL.

They read the structs behind handles of values, contexts and descriptions of tensors (`native_structs`), each of which begins
with a mark of its kind. What is null, has another mark, or wants more than a struct says goes to the function that Python has
for the entry, which also makes the errors.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Mapping

from intarsia.codegen.llvm.jit import get_engine, kernel_text
from intarsia.codegen.llvm.target import Target
from intarsia.errors import EPFail
from intarsia.printable import get_logger
from intarsia.providers.plugin.interface.native_structs import (
    CONTEXT_MARK,
    INFO_MARK,
    MEMORY_MARK,
    VALUE_MARK,
    ContextFields,
    InfoFields,
    MarkedMemoryInfo,
    MemoryInfoFields,
    ValueFields,
)

_logger = get_logger("intarsia.providers.plugin")
_TENSOR = 1  # ONNXType

_LLVM = {"p": "ptr", "z": "i64", "S": "ptr", "v": "void", "i": "i32", "I": "i32"}


def _offset(struct: type[ctypes.Structure], name: str) -> int:
    return int(getattr(struct, name).offset)


def _field(struct: type[ctypes.Structure], name: str, result: str, kind: str = "i64") -> str:
    """Text that loads a field of the struct at %handle."""
    at = _offset(struct, name)
    return f"  %{result}.p = getelementptr i8, ptr %handle, i64 {at}\n  %{result} = load {kind}, ptr %{result}.p\n"


def _value(body: str) -> tuple[int, str]:
    return VALUE_MARK, body


def _tensor(body: str) -> tuple[int, str]:
    """As `_value`, for tensors alone."""
    check = f"""{_field(ValueFields, "kind", "kind")}  %is.tensor = icmp eq i64 %kind, {_TENSOR}
  br i1 %is.tensor, label %tensor, label %slow
tensor:
"""
    return VALUE_MARK, check + body


def _put(struct: type[ctypes.Structure], name: str, kind: str = "ptr") -> str:
    """Text that stores a field where the second argument says; as 32 bits where `kind` is "i32"."""
    if kind != "i32":
        return f"{_field(struct, name, 'found', kind)}  store {kind} %found, ptr %a1\n  ret ptr null\n"
    narrow = "  %narrow = trunc i64 %found to i32\n  store i32 %narrow, ptr %a1\n  ret ptr null\n"
    return _field(struct, name, "found") + narrow


def _memory(name: str, kind: str, result: str = "S") -> tuple[str, int, str]:
    """An entry that tells a field of a memory's description as 32 bits, or as an address: where its second argument says, or,
    where `result` is a number's letter, as what it gives."""
    wide = "" if kind in ("i32", "ptr") else f"  %wide = sext {kind} %found to i32\n"
    value = f"i32 {'%wide' if wide else '%found'}" if kind != "ptr" else "ptr %found"
    ends = {"S": f"  store {value}, ptr %a1\n  ret ptr null\n", "v": f"  store {value}, ptr %a1\n  ret void\n"}
    types = f"{result}:pp" if result in ends else f"{result}:p"
    return types, MEMORY_MARK, _field(MemoryInfoFields, name, "found", kind) + wide + ends.get(result, f"  ret {value}\n")


def _handle_of(array: str, count: str) -> str:
    """Text that loads handle number %a1 of an array of a context, as %found."""
    return f"""{_field(ContextFields, count, "count")}  %inside = icmp ult i64 %a1, %count
  br i1 %inside, label %known, label %slow
known:
{_field(ContextFields, array, "array", "ptr")}  %place = getelementptr ptr, ptr %array, i64 %a1
  %found = load ptr, ptr %place
"""


_PUT_HANDLE = "  store ptr %found, ptr %a2\n  ret ptr null\n"
_GET_OUTPUT = f"""{_handle_of("outputs", "output_count")}  %absent = icmp eq ptr %found, null
  br i1 %absent, label %slow, label %made
made:
  %rank.p = getelementptr i8, ptr %found, i64 {_offset(ValueFields, "rank")}
  %rank = load i64, ptr %rank.p
  %dims.p = getelementptr i8, ptr %found, i64 {_offset(ValueFields, "dims")}
  %dims = load ptr, ptr %dims.p
  %same.rank = icmp eq i64 %rank, %a3
  br i1 %same.rank, label %sizes, label %slow
sizes:
  %i = phi i64 [ 0, %made ], [ %next, %equal ]
  %end = icmp eq i64 %i, %rank
  br i1 %end, label %fits, label %size
size:
  %asked.p = getelementptr i64, ptr %a2, i64 %i
  %asked = load i64, ptr %asked.p
  %ready.p = getelementptr i64, ptr %dims, i64 %i
  %ready = load i64, ptr %ready.p
  %same = icmp eq i64 %asked, %ready
  br i1 %same, label %equal, label %slow
equal:
  %next = add i64 %i, 1
  br label %sizes
fits:
  store ptr %found, ptr %a4
  ret ptr null
"""
_REFERENCE = f"""{_field(ValueFields, "dtype", "dtype")}  %narrow = trunc i64 %dtype to i32
  store i32 %narrow, ptr %a1
{_field(ValueFields, "rank", "rank")}  store i64 %rank, ptr %a3
{_field(ValueFields, "dims", "dims", "ptr")}  %scalar = icmp eq i64 %rank, 0
  %shown = select i1 %scalar, ptr null, ptr %dims
  store ptr %shown, ptr %a2
  ret ptr null
"""
_DESCRIBE = f"""{_field(ValueFields, "rank", "rank")}{_field(ValueFields, "dims", "dims", "ptr")}\
{_field(ValueFields, "dtype", "dtype")}{_field(ValueFields, "count", "count")}  %bytes = shl i64 %rank, 3
  %all = add i64 %bytes, {ctypes.sizeof(InfoFields)}
  %info = call ptr @malloc(i64 %all)
  %none = icmp eq ptr %info, null
  br i1 %none, label %slow, label %made
made:
  %copy = getelementptr i8, ptr %info, i64 {ctypes.sizeof(InfoFields)}
  call void @llvm.memcpy.p0.p0.i64(ptr %copy, ptr %dims, i64 %bytes, i1 false)
  store i64 {INFO_MARK}, ptr %info
  %dtype.p2 = getelementptr i8, ptr %info, i64 {_offset(InfoFields, "dtype")}
  store i64 %dtype, ptr %dtype.p2
  %rank.p2 = getelementptr i8, ptr %info, i64 {_offset(InfoFields, "rank")}
  store i64 %rank, ptr %rank.p2
  %dims.p2 = getelementptr i8, ptr %info, i64 {_offset(InfoFields, "dims")}
  store ptr %copy, ptr %dims.p2
  %count.p2 = getelementptr i8, ptr %info, i64 {_offset(InfoFields, "count")}
  store i64 %count, ptr %count.p2
  %native.p2 = getelementptr i8, ptr %info, i64 {_offset(InfoFields, "native")}
  store i64 1, ptr %native.p2
  store ptr %info, ptr %a1
  ret ptr null
"""
_COPY_SIZES = f"""{_field(InfoFields, "rank", "rank")}{_field(InfoFields, "dims", "dims", "ptr")}\
  %few = icmp ult i64 %a2, %rank
  %count = select i1 %few, i64 %a2, i64 %rank
  %bytes = shl i64 %count, 3
  call void @llvm.memcpy.p0.p0.i64(ptr %a1, ptr %dims, i64 %bytes, i1 false)
  ret ptr null
"""
_NO_SYMBOLS = f"""{_field(InfoFields, "native", "native")}  %ours = icmp eq i64 %native, 1
  br i1 %ours, label %unnamed, label %slow
unnamed:
  %none = icmp eq i64 %a2, 0
  br i1 %none, label %out, label %name
name:
  %i = phi i64 [ 0, %unnamed ], [ %next, %name ]
  %place = getelementptr ptr, ptr %a1, i64 %i
  store ptr @empty, ptr %place
  %next = add i64 %i, 1
  %end = icmp eq i64 %next, %a2
  br i1 %end, label %out, label %name
out:
  ret ptr null
"""
_FREE = f"""{_field(InfoFields, "native", "native")}  %ours = icmp eq i64 %native, 1
  br i1 %ours, label %free, label %slow
free:
  store i64 0, ptr %handle
  call void @free(ptr %handle)
  ret void
"""

# Entry -> letters of its types, the mark of what it takes first, and what it does where the mark is there. %handle is the first
# argument, %a1 and so on are the others; the block %slow calls Python's function.
_ENTRIES: Mapping[str, tuple[str, int, str]] = {
    "KernelContext_GetInputCount": ("S:pp", CONTEXT_MARK, _put(ContextFields, "input_count", "i64")),
    "KernelContext_GetOutputCount": ("S:pp", CONTEXT_MARK, _put(ContextFields, "output_count", "i64")),
    "KernelContext_GetInput": ("S:pzp", CONTEXT_MARK, _handle_of("inputs", "input_count") + _PUT_HANDLE),
    "KernelContext_GetPreallocatedOutput": (
        "S:pzp", CONTEXT_MARK, _handle_of("preallocated", "output_count") + _PUT_HANDLE,
    ),
    "KernelContext_GetOutput": ("S:pzpzp", CONTEXT_MARK, _GET_OUTPUT),
    "IsTensor": ("S:pp", *_tensor("  store i32 1, ptr %a1\n  ret ptr null\n")),
    "GetValueType": ("S:pp", *_value(_put(ValueFields, "kind", "i32"))),
    "GetTensorMutableData": ("S:pp", *_tensor(_put(ValueFields, "data"))),
    "GetTensorData": ("S:pp", *_tensor(_put(ValueFields, "data"))),
    "GetTensorSizeInBytes": ("S:pp", *_tensor(_put(ValueFields, "nbytes", "i64"))),
    "GetTensorMemoryInfo": ("S:pp", *_value(_put(ValueFields, "memory"))),
    "GetTensorElementTypeAndShapeDataReference": ("S:pppp", *_tensor(_REFERENCE)),
    "GetTensorTypeAndShape": ("S:pp", *_tensor(_DESCRIBE)),
    "GetTensorElementType": ("S:pp", INFO_MARK, _put(InfoFields, "dtype", "i32")),
    "GetDimensionsCount": ("S:pp", INFO_MARK, _put(InfoFields, "rank", "i64")),
    "GetTensorShapeElementCount": ("S:pp", INFO_MARK, _put(InfoFields, "count", "i64")),
    "GetDimensions": ("S:ppz", INFO_MARK, _COPY_SIZES),
    "GetSymbolicDimensions": ("S:ppz", INFO_MARK, _NO_SYMBOLS),
    "ReleaseTensorTypeAndShapeInfo": ("v:p", INFO_MARK, _FREE),
    "MemoryInfoGetName": _memory("name", "ptr"),
    "MemoryInfoGetId": _memory("device_id", "i16"),
    "MemoryInfoGetMemType": _memory("mem_type", "i32"),
    "MemoryInfoGetType": _memory("allocator", "i32"),
    "MemoryInfoGetDeviceType": _memory("kind", "i8", "v"),
    "MemoryInfoGetDeviceMemType": _memory("memory", "i8", "i"),
    "MemoryInfoGetVendorId": _memory("vendor_id", "i32", "I"),
}  # fmt: skip
NAMES = tuple(_ENTRIES)
_nothing: list[int] = []


def _function(place: int, name: str) -> str:
    """The text of one entry."""
    types, mark, body = _ENTRIES[name]
    result, _, letters = types.partition(":")
    arguments = ", ".join(f"{_LLVM[letter]} %{f'a{i}' if i else 'handle'}" for i, letter in enumerate(letters))
    kind, before = _LLVM[result], MarkedMemoryInfo.fields.offset if mark == MEMORY_MARK else 0
    answer = "  call void %python(" if result == "v" else f"  %answer = call {kind} %python("
    end = "  ret void\n" if result == "v" else f"  ret {kind} %answer\n"
    return f"""define internal {_LLVM[result]} @e{place}({arguments}) nounwind {{
entry:
  %address = ptrtoint ptr %handle to i64
  %low = and i64 %address, 7
  %odd = icmp ne i64 %low, 0
  %null = icmp eq i64 %address, 0
  %foreign = or i1 %odd, %null
  br i1 %foreign, label %slow, label %look
look:
  %mark.p = getelementptr i8, ptr %handle, i64 {-before}
  %mark = load i64, ptr %mark.p
  %mine = icmp eq i64 %mark, {mark}
  br i1 %mine, label %fast, label %slow
fast:
{body}slow:
  %python.p = getelementptr ptr, ptr @python_functions, i64 {place}
  %python = load ptr, ptr %python.p
{answer}{arguments})
{end}}}
"""


def _text() -> str:
    functions = "\n".join(_function(place, name) for place, name in enumerate(_ENTRIES))
    stores = "\n".join(
        f"""  %in{i} = getelementptr ptr, ptr %table, i64 {i}
  %python{i} = load ptr, ptr %in{i}
  %to{i} = getelementptr ptr, ptr @python_functions, i64 {i}
  store ptr %python{i}, ptr %to{i}
  store ptr @e{i}, ptr %in{i}"""
        for i in range(len(_ENTRIES))
    )
    return f"""
@python_functions = internal global [{len(_ENTRIES)} x ptr] zeroinitializer
@empty = internal constant [1 x i8] zeroinitializer
define internal ptr @nothing() nounwind {{
  ret ptr null
}}
define internal ptr @ep_api() nounwind {{
  %table = load ptr, ptr @ep_table
  ret ptr %table
}}
@ep_table = internal global ptr null
declare ptr @malloc(i64)
declare void @free(ptr)
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
{functions}
; takes Python's functions and the table of OrtEpApi, and puts native functions in their places; before the last, which gives
; that table, one that does nothing
define void @__SYMBOL__(ptr %table, i64 %unused, i64 %unused1) {{
{stores}
  %last = getelementptr ptr, ptr %table, i64 {len(_ENTRIES)}
  store ptr @nothing, ptr %last
  %end = getelementptr ptr, ptr %table, i64 {len(_ENTRIES) + 1}
  %ep.table = load ptr, ptr %end
  store ptr %ep.table, ptr @ep_table
  store ptr @ep_api, ptr %end
  ret void
}}
"""


@functools.cache
def _loaded() -> int | None:
    """Where the code is that exchanges addresses; None where there is no compiler for this machine."""
    try:
        (address,) = get_engine(Target.host()).load([kernel_text("plugin_entries", _text())]).values()
    except EPFail as error:
        _logger.warning("callbacks of plugins are Python's, which is slow: %s", error)
        return None
    return address


def native_for(python: Mapping[str, int], ep_api: int) -> dict[str, int]:
    """The native entries that stand before Python's (their addresses by name); Python's where there is no native code.

    Args:
        ep_api: the table that GetEpApi gives, which plugins ask for in their destructors, too.
    """
    address = _loaded()
    if address is None:
        return dict(python)
    table = (ctypes.c_void_p * (len(NAMES) + 2))(*(python[name] for name in NAMES), None, ep_api)
    ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)(address)(ctypes.addressof(table), 0, 1)
    _nothing.append(table[len(NAMES)] or 0)
    return {**{name: table[i] or 0 for i, name in enumerate(NAMES)}, "GetEpApi": table[len(NAMES) + 1] or 0}


def nothing() -> int:
    """A native function that does nothing and gives null; 0 where there is none."""
    return _nothing[0] if _nothing else 0
