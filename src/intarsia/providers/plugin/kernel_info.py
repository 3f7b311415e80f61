"""OrtKernelInfo: what a plugin's kernel may ask about the node that it is made for."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from typing import Any

import numpy as np

from intarsia.errors import Fail, InvalidArgument
from intarsia.graph.dtypes import DType
from intarsia.providers.plugin.interface.allocators import allocate, duplicate, host_allocator
from intarsia.providers.plugin.interface.graph_view import (
    FLOAT,
    FLOATS,
    INT,
    INTS,
    STRING,
    STRINGS,
    TENSOR,
    NodeView,
    ValueInfo,
)
from intarsia.providers.plugin.interface.handles import HostObject, checked, find, give, put, put_array
from intarsia.providers.plugin.interface.hardware import KeyValues
from intarsia.providers.plugin.interface.host_tables import entry
from intarsia.providers.plugin.interface.session_state import put_text
from intarsia.providers.plugin.interface.tensors import OrtValue, TypeInfo, packed_tensor
from intarsia.providers.plugin.memory import PluginMemory
from intarsia.providers.plugin.plugin_ep import PluginEp

_SIZE = ctypes.c_size_t
_KINDS = {INT: "an integer", INTS: "integers", FLOAT: "a number", FLOATS: "numbers", STRING: "a text", STRINGS: "texts",
          TENSOR: "a tensor"}  # fmt: skip


class KernelInfo(HostObject):
    """OrtKernelInfo.

    Args:
        constants: constant inputs by number, where the kernel reads them.
        memory: the provider's; None where that is the host's.
    """

    def __init__(self, ep: PluginEp, view: NodeView, constants: Mapping[int, OrtValue], memory: PluginMemory | None) -> None:
        super().__init__()
        self.ep, self.view, self.constants, self.memory = ep, view, constants, memory

    def attribute(self, name: bytes, kind: int) -> Any:
        """An attribute's value.

        Raises:
            Fail: the node has none of this name (onnxruntime's code for that), or of another type.
        """
        wanted = name.decode("utf-8", "replace")
        found = self.view.attributes.get(wanted)
        if found is None or found.kind != kind:
            has = "has none of that name" if found is None else f"has one of type {_KINDS.get(found.kind, 'unknown')}"
            raise Fail(f"No attribute with name: '{wanted}' that is {_KINDS[kind]}: {self.view.node.qualified_op} {has}")
        return found.value

    def value(self, index: int, which: str) -> ValueInfo | None:
        """Input or output number `index`; None where it is omitted."""
        values: list[ValueInfo | None] = getattr(self.view, which)
        if not 0 <= index < len(values):
            raise InvalidArgument(f"{self.view.node.qualified_op} has {len(values)} {which}, and no number {index}")
        return values[index]


@entry("OrtApi", "KernelInfo_GetInputCount")
def _get_input_count(handle: int, out: int) -> None:
    put(out, len(find(handle, KernelInfo).view.inputs), _SIZE)


@entry("OrtApi", "KernelInfo_GetOutputCount")
def _get_output_count(handle: int, out: int) -> None:
    put(out, len(find(handle, KernelInfo).view.outputs), _SIZE)


@entry("OrtApi", "KernelInfo_GetInputName")
def _get_input_name(handle: int, index: int, out: int | None, size: int) -> None:
    value = find(handle, KernelInfo).value(index, "inputs")
    put_text(value.name if value is not None else "", out, size)


@entry("OrtApi", "KernelInfo_GetOutputName")
def _get_output_name(handle: int, index: int, out: int | None, size: int) -> None:
    value = find(handle, KernelInfo).value(index, "outputs")
    put_text(value.name if value is not None else "", out, size)


@entry("OrtApi", "KernelInfo_GetInputTypeInfo")
def _get_input_type(handle: int, index: int, out: int) -> None:
    value = find(handle, KernelInfo).value(index, "inputs")
    put(out, give(TypeInfo(value.kind if value is not None else None)))


@entry("OrtApi", "KernelInfo_GetOutputTypeInfo")
def _get_output_type(handle: int, index: int, out: int) -> None:
    value = find(handle, KernelInfo).value(index, "outputs")
    put(out, give(TypeInfo(value.kind if value is not None else None)))


@entry("OrtApi", "KernelInfo_GetNodeName")
def _get_node_name(handle: int, out: int | None, size: int) -> None:
    put_text(find(handle, KernelInfo).view.node.name, out, size)


@entry("OrtApi", "KernelInfo_GetOperatorType")
def _get_operator_type(handle: int, out: int | None, size: int) -> None:
    put_text(find(handle, KernelInfo).view.node.op_type, out, size)


@entry("OrtApi", "KernelInfo_GetOperatorDomain")
def _get_operator_domain(handle: int, out: int | None, size: int) -> None:
    put_text(find(handle, KernelInfo).view.domain, out, size)


@entry("OrtApi", "KernelInfo_GetOperatorSinceVersion")
def _get_since(handle: int, out: int) -> None:
    put(out, find(handle, KernelInfo).view.shown.version, ctypes.c_int32)


@entry("OrtApi", "KernelInfo_GetLogger")
def _get_logger(handle: int, out: int) -> None:
    put(out, find(handle, KernelInfo).ep.logger.handle)


@entry("OrtApi", "KernelInfo_GetConfigEntries")
def _get_config_entries(handle: int, out: int) -> None:
    put(out, give(KeyValues(find(handle, KernelInfo).ep.options.entries.values)))


@entry("OrtEpApi", "KernelInfo_GetEp")
def _get_ep(handle: int, out: int) -> None:
    put(out, find(handle, KernelInfo).ep.members.address)


@entry("OrtApi", "KernelInfoGetAllocator")
def _get_allocator(handle: int, mem_type: int, out: int) -> None:
    memory = find(handle, KernelInfo).memory
    on_host = memory is None or mem_type < 0
    put(out, ctypes.addressof(host_allocator()) if on_host or memory is None else memory.allocator.address)


@entry("OrtApi", "CopyKernelInfo")
def _copy(handle: int, out: int) -> None:
    info = find(handle, KernelInfo)
    put(out, give(KernelInfo(info.ep, info.view, info.constants, info.memory)))


@entry("OrtApi", "KernelInfoGetConstantInput_tensor")
def _get_constant(handle: int, index: int, is_constant: int, out: int) -> None:
    info = find(handle, KernelInfo)
    info.value(index, "inputs")
    found = info.constants.get(index)
    put(is_constant, int(found is not None), ctypes.c_int32)
    put(out, found.handle if found is not None else None)


# attributes


@entry("OrtApi", "KernelInfoGetAttribute_float")
def _get_float(handle: int, name: bytes, out: int) -> None:
    put(out, float(find(handle, KernelInfo).attribute(name, FLOAT)), ctypes.c_float)


@entry("OrtApi", "KernelInfoGetAttribute_int64")
def _get_int(handle: int, name: bytes, out: int) -> None:
    put(out, int(find(handle, KernelInfo).attribute(name, INT)), ctypes.c_int64)


@entry("OrtApi", "KernelInfoGetAttribute_string")
def _get_string(handle: int, name: bytes, out: int | None, size: int) -> None:
    put_text(_decoded(find(handle, KernelInfo).attribute(name, STRING)), out, size)


@entry("OrtApi", "KernelInfoGetAttribute_tensor")
def _get_tensor(handle: int, name: bytes, allocator: int, out: int) -> None:
    array: np.ndarray = find(handle, KernelInfo).attribute(name, TENSOR)
    put(out, give(packed_tensor(array, DType.of(array.dtype))))


@entry("OrtApi", "KernelInfoGetAttributeArray_float")
def _get_floats(handle: int, name: bytes, out: int | None, size: int) -> None:
    _put_numbers(find(handle, KernelInfo).attribute(name, FLOATS), out, size, ctypes.c_float)


@entry("OrtApi", "KernelInfoGetAttributeArray_int64")
def _get_ints(handle: int, name: bytes, out: int | None, size: int) -> None:
    _put_numbers(find(handle, KernelInfo).attribute(name, INTS), out, size, ctypes.c_int64)


def _put_numbers(values: list[Any], out: int | None, size: int, kind: Any) -> None:
    """Write numbers where there is room, and how many there are."""
    room = _SIZE.from_address(checked(size)).value
    put(size, len(values), _SIZE)
    if out:
        put_array(out, values, room, "numbers", kind)


@entry("OrtApi", "KernelInfoGetAttributeArray_string")
def _get_strings(handle: int, name: bytes, allocator: int, out: int, size: int) -> None:
    found = find(handle, KernelInfo).attribute(name, STRINGS)
    put(size, len(found), _SIZE)
    array = allocate(allocator, ctypes.sizeof(ctypes.c_void_p) * len(found)) if found else None
    if array is not None:
        put_array(array, [duplicate(allocator, _decoded(text)) for text in found], len(found), "texts")
    put(out, array)


def _decoded(text: str | bytes) -> str:
    return text.decode("utf-8", "replace") if isinstance(text, bytes) else text
