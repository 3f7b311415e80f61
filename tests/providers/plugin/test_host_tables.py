"""The tables that plugins get: their order, what is not written, versions, and what a call with wrong arguments ends in."""

from __future__ import annotations

import ctypes
import gc
import logging
from typing import Any

import numpy as np
import pytest

import intarsia as ort
from intarsia.graph.dtypes import DType
from intarsia.providers.plugin import entries
from intarsia.providers.plugin.interface.api_tables import NEWEST, OLDEST, SPARE, TYPES, structure, tables
from intarsia.providers.plugin.interface.handles import find, held_count
from intarsia.providers.plugin.interface.hardware import HOST_MEMORY, KeyValues
from intarsia.providers.plugin.interface.host_tables import SERVED, api_base, is_written, served_address
from intarsia.providers.plugin.interface.status import Status, exception_of, raise_for
from intarsia.providers.plugin.interface.tensors import OrtValue

entries.complete()


def function(table: str, name: str) -> Any:
    """An entry as a plugin calls it."""
    place = next(i for i, one in enumerate(tables()[table]) if one.name == name)
    address = ctypes.c_void_p.from_address(served_address(table) + 8 * place).value
    return tables()[table][place].prototype()(address)


def call(table: str, name: str, *arguments: Any) -> None:
    """An entry that gives a status, which has to be success."""
    raise_for(function(table, name)(*arguments), name, "test")


def test_known_places() -> None:
    """Places that programs built with older releases rely on, as in the headers of onnxruntime 1.30."""
    names = [one.name for one in tables()["OrtApi"]]
    known = {0: "CreateStatus", 9: "Run", 78: "GetAllocatorWithDefaultOptions", 92: "ReleaseEnv", 317: "GetEpApi",
             378: "GetTensorData", 425: "KernelContext_GetPreallocatedOutput"}  # fmt: skip
    assert {i: names[i] for i in known} == known
    assert len(names) == 426
    assert [one.name for one in tables()["OrtEpApi"]][73] == "SessionOptionsGetWeightlessSourceModelBuffer"
    assert len(tables()["OrtEpApi"]) == 74


def test_versions_never_go_back() -> None:
    """A table only grows at its end. (Releases up to 10 are not told apart.)"""
    for name, found in tables().items():
        later = [one.since for one in found if one.since > 22]
        assert later == sorted(later), name


@pytest.mark.parametrize("table", SERVED)
def test_no_entry_is_null(table: str) -> None:
    count = len(tables()[table]) + SPARE
    addresses = (ctypes.c_void_p * count).from_address(served_address(table))
    assert all(addresses)


@pytest.mark.parametrize("table", SERVED)
def test_unwritten_entries_name_themselves(table: str, caplog: pytest.LogCaptureFixture) -> None:
    """Each is called with nulls: a status says its name, or, where it gives none, a logged error."""
    for place, one in enumerate(tables()[table]):
        if is_written(table, one.name):
            continue
        nothing = [TYPES[letter]() for letter in one.arguments]
        caplog.clear()
        with caplog.at_level(logging.ERROR):
            result = one.prototype()(ctypes.c_void_p.from_address(served_address(table) + 8 * place).value)(*nothing)
        if one.result != "S":
            assert f"{table}::{one.name} is not among" in caplog.text
            assert not result
            continue
        with pytest.raises(ort.EPFail, match=f"{table}::{one.name} is not among the functions"):
            raise_for(result, one.name, "test")


def test_entries_newer_than_the_list_are_named_by_number() -> None:
    last = len(tables()["OrtApi"])
    address = ctypes.c_void_p.from_address(served_address("OrtApi") + 8 * last).value
    status = ctypes.CFUNCTYPE(ctypes.c_void_p, *[ctypes.c_void_p] * 7)(address)(*[None] * 7)
    with pytest.raises(ort.EPFail, match=f"OrtApi::entry {last} is not among"):
        raise_for(status, "newer", "test")


@pytest.mark.parametrize("version", [0, 1, OLDEST - 1, OLDEST, 29, NEWEST, NEWEST + 1, 2**32 - 1])
def test_versions_offered(version: int) -> None:
    get = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_uint32)(api_base().GetApi)
    assert bool(get(version)) is (OLDEST <= version <= NEWEST)


def test_version_text() -> None:
    assert ctypes.CFUNCTYPE(ctypes.c_char_p)(api_base().GetVersionString)() == b"1.32.0"


@pytest.mark.parametrize("code", range(1, 16))
def test_each_code_has_its_exception(code: int) -> None:
    """A status that a plugin makes comes out as the class of its code, with the plugin's words, and is released."""
    before = held_count()
    handle = function("OrtApi", "CreateStatus")(code, b"what it said")
    assert held_count() == before + 1
    assert function("OrtApi", "GetErrorCode")(handle) == code
    assert function("OrtApi", "GetErrorMessage")(handle) == b"what it said"
    with pytest.raises(type(exception_of(code, "")), match="plug: Compile: what it said"):
        raise_for(handle, "Compile", "plug")
    assert held_count() == before


@pytest.mark.parametrize(
    ("kind", "code"), [(ort.InvalidArgument, 2), (ort.EPFail, 11), (ort.DeviceLost, 15), (ort.OutOfMemory, 1), (ValueError, 1)]
)
def test_exceptions_have_codes(kind: type[Exception], code: int) -> None:
    assert Status.of(kind("x")).code == code


def test_interrupts_are_raised_behind_the_plugin() -> None:
    """What stops a callback is no status that the plugin may swallow."""
    status = Status.of(KeyboardInterrupt())
    assert status.cause is not None
    with pytest.raises(KeyboardInterrupt):
        raise_for(None, "Compute", "plug")
    raise_for(None, "Compute", "plug")


@pytest.mark.parametrize("handle", [0, 1, 0x1001, 2**63])
def test_foreign_handles_are_errors(handle: int) -> None:
    out = ctypes.c_size_t()
    with pytest.raises(ort.InvalidArgument, match="expected the handle of a GraphView"):
        call("OrtApi", "Graph_GetNumNodes", handle, ctypes.addressof(out))


def test_handles_of_another_kind_are_errors() -> None:
    pairs, out = KeyValues({}), ctypes.c_size_t()
    with pytest.raises(ort.InvalidArgument, match=r"expected the handle of a GraphView; .* is a KeyValues"):
        call("OrtApi", "Graph_GetNumNodes", pairs.handle, ctypes.addressof(out))


def test_released_handles_are_errors() -> None:
    out = ctypes.c_void_p()
    function("OrtApi", "CreateKeyValuePairs")(ctypes.addressof(out))
    function("OrtApi", "ReleaseKeyValuePairs")(out)
    gc.collect()
    with pytest.raises(ort.InvalidArgument, match="is none, or was released"):
        find(out.value, KeyValues)


def test_key_values() -> None:
    out = ctypes.c_void_p()
    function("OrtApi", "CreateKeyValuePairs")(ctypes.addressof(out))
    for key, value in ((b"a", b"1"), (b"b", "ä".encode()), (b"a", b"2"), (b"c", None), (None, b"x"), (b"", b"x")):
        function("OrtApi", "AddKeyValuePair")(out, key, value)
    keys, values, count = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_size_t()
    function("OrtApi", "GetKeyValuePairs")(out, *map(ctypes.addressof, (keys, values, count)))
    assert count.value == 3
    assert (ctypes.c_char_p * 3).from_address(keys.value or 0)[:] == [b"a", b"b", b"c"]
    assert (ctypes.c_char_p * 3).from_address(values.value or 0)[:] == [b"2", "ä".encode(), b""]
    assert function("OrtApi", "GetKeyValue")(out, b"b") == "ä".encode()
    assert function("OrtApi", "GetKeyValue")(out, b"z") is None
    function("OrtApi", "RemoveKeyValuePair")(out, b"a")
    assert function("OrtApi", "GetKeyValue")(out, b"a") is None
    function("OrtApi", "ReleaseKeyValuePairs")(out)


def test_default_allocator() -> None:
    """Aligned blocks, which can be written whole; freeing null is allowed, and no block that large exists."""
    allocator = ctypes.c_void_p()
    call("OrtApi", "GetAllocatorWithDefaultOptions", ctypes.addressof(allocator))
    blocks = []
    for nbytes in (0, 1, 63, 4097):
        block = ctypes.c_void_p()
        call("OrtApi", "AllocatorAlloc", allocator, nbytes, ctypes.addressof(block))
        assert block.value
        assert block.value % 64 == 0
        ctypes.memset(block.value, 255, nbytes)
        blocks.append(block)
    for block in blocks:
        call("OrtApi", "AllocatorFree", allocator, block)
    call("OrtApi", "AllocatorFree", allocator, None)
    with pytest.raises(ort.Fail, match="has no 9,223,372,036,854,775,808 bytes") as refused:
        call("OrtApi", "AllocatorAlloc", allocator, 2**63, ctypes.addressof(ctypes.c_void_p()))
    assert isinstance(refused.value.__cause__, ort.OutOfMemory)


def test_memory_infos() -> None:
    first, second, differs = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_int32()
    call("OrtApi", "CreateMemoryInfo_V2", b"Gpu", 1, 0x10DE, -1, 0, 256, 0, ctypes.addressof(first))
    call("OrtApi", "CreateCpuMemoryInfo", 0, 0, ctypes.addressof(second))
    call("OrtApi", "CompareMemoryInfo", first, second, ctypes.addressof(differs))
    assert differs.value == 1
    assert function("OrtApi", "MemoryInfoGetVendorId")(first) == 0x10DE
    same = function("OrtEpApi", "MemoryDevice_AreEqual")
    device = function("OrtEpApi", "MemoryInfo_GetMemoryDevice")
    assert same(device(second), HOST_MEMORY.handle)
    assert not same(device(first), device(second))
    for handle in (first, second):
        function("OrtApi", "ReleaseMemoryInfo")(handle)


@pytest.mark.parametrize(
    "array",
    [np.arange(6, dtype=np.float32).reshape(2, 3), np.array(3, np.int64), np.zeros((0, 4), np.uint8), np.ones((1, 2, 1), bool)],
)
def test_tensors(array: np.ndarray) -> None:
    value = OrtValue.of_array(array)
    data, dims, nbytes, rank = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_size_t(), ctypes.c_size_t()
    kind = ctypes.c_int32()
    call("OrtApi", "GetTensorMutableData", value.handle, ctypes.addressof(data))
    call("OrtApi", "GetTensorSizeInBytes", value.handle, ctypes.addressof(nbytes))
    call("OrtApi", "GetTensorElementTypeAndShapeDataReference", value.handle, *map(ctypes.addressof, (kind, dims, rank)))
    assert (nbytes.value, rank.value, kind.value) == (array.nbytes, array.ndim, DType.of(array.dtype))
    assert ctypes.string_at(data, nbytes.value) == array.tobytes()
    assert tuple((ctypes.c_int64 * rank.value).from_address(dims.value)) == array.shape if dims.value else not array.shape


def test_texts_are_read_by_their_own_entries() -> None:
    value = OrtValue.of_array(np.array(["ä", "", "bc"], object))
    data, length, nbytes = ctypes.c_void_p(1), ctypes.c_size_t(), ctypes.c_size_t()
    call("OrtApi", "GetTensorMutableData", value.handle, ctypes.addressof(data))
    assert data.value is None
    call("OrtApi", "GetStringTensorDataLength", value.handle, ctypes.addressof(length))
    call("OrtApi", "GetStringTensorElementLength", value.handle, 0, ctypes.addressof(nbytes))
    assert (length.value, nbytes.value) == (4, 2)
    buffer, offsets = ctypes.create_string_buffer(4), (ctypes.c_size_t * 3)()
    call("OrtApi", "GetStringTensorContent", value.handle, buffer, 4, offsets, 3)
    assert (buffer.raw, offsets[:]) == ("äbc".encode(), [0, 2, 2])
    with pytest.raises(ort.InvalidArgument, match="do not fit into 3"):
        call("OrtApi", "GetStringTensorContent", value.handle, buffer, 3, offsets, 3)


def test_a_struct_ends_where_its_version_ends() -> None:
    """Members that came later than the plugin's version are not read, whatever lies there."""
    from intarsia.providers.plugin.interface.members import Members

    ep: Any = structure("OrtEp")(ort_version_supported=23)
    ep.Sync = ep.GetWeightlessSupport = 0xDEAD
    assert not Members("OrtEp", ctypes.addressof(ep), "old").has("Sync")
    with pytest.raises(ort.EPFail, match=r"old's OrtEp \(version 23\) has no Sync"):
        Members("OrtEp", ctypes.addressof(ep), "old").call("Sync")
