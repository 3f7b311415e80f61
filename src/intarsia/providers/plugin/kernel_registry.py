"""Kernels that a plugin registers: OrtKernelDef, its builder, OrtKernelRegistry, and which of them fits a node."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Iterator
from typing import Any

from intarsia.graph.dtypes import DType
from intarsia.graph.model import Node, TensorType, ValueType
from intarsia.lazy_dataclass import dataclass
from intarsia.ops.framework.schemas import OperatorSchema, Parameter, schema_of
from intarsia.passes.node_forms import as_version
from intarsia.providers.plugin.capability import SupportInfo
from intarsia.providers.plugin.interface.element_types import element_type
from intarsia.providers.plugin.interface.graph_view import CHANNELS_LAST, NodeView
from intarsia.providers.plugin.interface.handles import HostObject, find, find_all, give, numbers, put
from intarsia.providers.plugin.interface.host_tables import entry

DEFAULT_MEMORY = 0
"""OrtMemType; those below are the host's, by whichever name a plugin says it (CPUInput -2, CPUOutput and CPU -1)."""
_OPEN_END = 2**31 - 1


class DataType(HostObject):
    """OrtDataType: a tensor of an element type."""

    def __init__(self, dtype: DType) -> None:
        super().__init__()
        self.dtype = dtype


@functools.cache
def data_type(dtype: DType) -> DataType:
    """The one of an element type, which lives as long as the process."""
    return DataType(dtype)


class KernelDef(HostObject):
    """OrtKernelDef, and OrtKernelDefBuilder while it is being written.

    Attributes:
        since, until: versions of the operator.
        types: name of a type variable, or of a parameter -> element types that it may have.
        input_memory, output_memory: OrtMemType by number, where it is not that of the device.
    """

    def __init__(self) -> None:
        super().__init__()
        self.op_type = self.domain = self.provider = ""
        self.since, self.until = 1, _OPEN_END
        self.types: dict[str, frozenset[DType]] = {}
        self.input_memory: dict[int, int] = {}
        self.output_memory: dict[int, int] = {}
        self.aliases: list[tuple[int, int]] = []

    def built(self) -> KernelDef:
        """What a builder has, as it is now."""
        made = KernelDef()
        made.op_type, made.domain, made.provider = self.op_type, self.domain, self.provider
        made.since, made.until, made.types = self.since, self.until, dict(self.types)
        made.input_memory, made.output_memory = dict(self.input_memory), dict(self.output_memory)
        made.aliases = list(self.aliases)
        return made

    def input_on_host(self, index: int) -> bool:
        """Whether the kernel reads an input in the host's memory."""
        return self.input_memory.get(index, DEFAULT_MEMORY) < 0

    def output_on_host(self, index: int) -> bool:
        """Whether the kernel writes an output to the host's memory."""
        return self.output_memory.get(index, DEFAULT_MEMORY) < 0

    def form_of(self, view: NodeView) -> Node | None:
        """A node of its operator as it may be given to it: in a version that it is for. None where there is no such form."""
        node, domain = view.node, _schema_domain(view)
        form = as_version(node if node.domain == domain else node.copy(domain=domain), self._nearest(view))
        if form is not None and form.domain != node.domain:
            form = node if form.version == node.version else form.copy(domain=node.domain)
        wants_picture = form is not None and form.op_type == "GridSample" and form.version < 20
        return None if wants_picture and not _is_picture(view) else form

    def _nearest(self, view: NodeView) -> int:
        """The version that it is for which is the next one to a node's."""
        version = view.node.version
        if version <= self.since or self.until == _OPEN_END:
            return self.since
        if version <= self.until:
            return version
        return _last_version(_schema_domain(view), view.node.op_type, self.until) or self.since

    def why_not(self, view: NodeView, version: int) -> str:
        """Why it is not for the types of a node of its operator, read as of this version; "" where it is."""
        schema = schema_of(_schema_domain(view), view.node.op_type, version)
        for name, allowed in self.types.items():
            for kind in _types_of(name, view, schema):
                if not isinstance(kind, TensorType) or kind.dtype not in allowed:
                    return f"{name} of {', '.join(sorted(d.onnx_name for d in allowed)) or 'nothing'}, not {kind}"
        return ""

    def why_not_version(self, view: NodeView) -> str:
        """What it is for, where that is another version than a node's; "" where it is for the version or not for the types."""
        if self.form_of(view) is not None or self.why_not(view, self._nearest(view)):
            return ""
        return f"versions {self.since} to {self.until}" if self.until != _OPEN_END else f"version {self.since}"


def _is_picture(view: NodeView) -> bool:
    """Whether a node's first input has four axes, as GridSample wants it before version 20."""
    kind = view.inputs[0].kind if view.inputs and view.inputs[0] is not None else None
    return isinstance(kind, TensorType) and kind.rank == 4


def _schema_domain(view: NodeView) -> str:
    return "" if view.domain == CHANNELS_LAST else view.domain


@functools.cache
def _last_version(domain: str, op_type: str, until: int) -> int | None:
    """The newest version of an operator up to a number."""
    import onnx.defs

    try:
        return int(onnx.defs.get_schema(op_type, until, domain).since_version)
    except onnx.defs.SchemaError:
        return None


def _types_of(name: str, view: NodeView, schema: OperatorSchema | None) -> Iterator[ValueType | None]:
    """The types that a node has for a type variable, or for a parameter, of its operator."""
    if schema is None:
        return
    for values, parameters in ((view.inputs, schema.inputs), (view.outputs, schema.outputs)):
        for i, value in enumerate(values):
            parameter = _parameter(parameters, i)
            if value is not None and parameter is not None and name in (parameter.variable, parameter.name):
                yield value.kind


def _parameter(parameters: tuple[Parameter, ...], i: int) -> Parameter | None:
    if i < len(parameters):
        return parameters[i]
    return parameters[-1] if parameters and parameters[-1].least is not None else None


class KernelEntry:
    """A kernel: its definition, and the function of the plugin that makes it."""

    def __init__(self, definition: KernelDef, create: int, state: int | None) -> None:
        self.definition, self.state = definition, state
        prototype = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)
        self.create: Any = prototype(create)


@dataclass(frozen=True)
class NoKernel:
    """Why a plugin has no kernel for a node.

    Attributes:
        code: "version" where it has one for these types in another version of the operator, else "no-kernel".
    """

    reason: str
    code: str = "no-kernel"

    def __str__(self) -> str:
        return self.reason


class KernelRegistry(HostObject):
    """OrtKernelRegistry."""

    def __init__(self) -> None:
        super().__init__()
        self.entries: dict[tuple[str, str], list[KernelEntry]] = {}

    def add(self, definition: KernelDef, create: int, state: int | None) -> None:
        """Register a kernel."""
        key = (definition.domain, definition.op_type)
        self.entries.setdefault(key, []).append(KernelEntry(definition, create, state))

    def find(self, view: NodeView) -> KernelEntry | NoKernel:
        """The kernel for a node, or why there is none. The view shows it in the kernel's version from now on."""
        name = f"{view.domain}::{view.node.op_type}" if view.domain else view.node.op_type
        found = self.entries.get((view.domain, view.node.op_type))
        if not found:
            return NoKernel(f"no kernel for {name}")
        forms = [(form, one) for one in found if (form := one.definition.form_of(view)) is not None]
        reasons = []
        for form, one in sorted(forms, key=lambda pair: abs(pair[0].version - view.node.version)):
            why = one.definition.why_not(view, form.version)
            if not why:
                view.show(form)
                return one
            reasons.append(why)
        versions = [why for one in found if (why := one.definition.why_not_version(view))]
        words = "; ".join(dict.fromkeys(reasons or versions)) or "other types, in other versions"
        fault = "version" if versions and not reasons else "no-kernel"
        return NoKernel(f"kernels of {name} for {words}; this node is of version {view.node.version}", fault)


def _text(value: bytes | None) -> str:
    return (value or b"").decode("utf-8", "replace")


@entry("OrtEpApi", "GetTensorDataType")
def _get_tensor_data_type(dtype: int, out: int) -> None:
    put(out, data_type(element_type(dtype)).handle)


@entry("OrtEpApi", "CreateKernelRegistry")
def _create_registry(out: int) -> None:
    put(out, give(KernelRegistry()))


@entry("OrtEpApi", "KernelRegistry_AddKernel")
def _add_kernel(registry: int, definition: int, create: int, state: int | None) -> None:
    find(registry, KernelRegistry).add(find(definition, KernelDef), create, state)


@entry("OrtEpApi", "CreateKernelDefBuilder")
def _create_builder(out: int) -> None:
    put(out, give(KernelDef()))


@entry("OrtEpApi", "KernelDefBuilder_SetOperatorType")
def _set_op_type(builder: int, name: bytes) -> None:
    find(builder, KernelDef).op_type = _text(name)


@entry("OrtEpApi", "KernelDefBuilder_SetDomain")
def _set_domain(builder: int, name: bytes) -> None:
    domain = _text(name)
    find(builder, KernelDef).domain = "" if domain == "ai.onnx" else domain


@entry("OrtEpApi", "KernelDefBuilder_SetSinceVersion")
def _set_since(builder: int, since: int, until: int) -> None:
    found = find(builder, KernelDef)
    found.since, found.until = since, until


@entry("OrtEpApi", "KernelDefBuilder_SetExecutionProvider")
def _set_provider(builder: int, name: bytes) -> None:
    find(builder, KernelDef).provider = _text(name)


@entry("OrtEpApi", "KernelDefBuilder_SetInputMemType")
def _set_input_memory(builder: int, index: int, kind: int) -> None:
    find(builder, KernelDef).input_memory[index] = kind


@entry("OrtEpApi", "KernelDefBuilder_SetOutputMemType")
def _set_output_memory(builder: int, index: int, kind: int) -> None:
    find(builder, KernelDef).output_memory[index] = kind


@entry("OrtEpApi", "KernelDefBuilder_AddTypeConstraint")
def _add_type_constraint(builder: int, name: bytes, types: int, count: int) -> None:
    allowed = frozenset(one.dtype for one in find_all(types, count, DataType))
    find(builder, KernelDef).types[_text(name)] = allowed


@entry("OrtEpApi", "KernelDefBuilder_AddInputOutputAliases", "KernelDefBuilder_AddInputOutputMutableAliases")
def _add_aliases(builder: int, inputs: int, outputs: int, count: int) -> None:
    """Noted: outputs have memory of their own here, which kernels have to allow."""
    pairs = zip(numbers(inputs, count, ctypes.c_int32), numbers(outputs, count, ctypes.c_int32), strict=True)
    find(builder, KernelDef).aliases += pairs


@entry("OrtEpApi", "KernelDefBuilder_Build")
def _build(builder: int, out: int) -> None:
    put(out, give(find(builder, KernelDef).built()))


@entry("OrtEpApi", "KernelDef_GetOperatorType")
def _get_op_type(handle: int) -> int:
    found = find(handle, KernelDef)
    return found.text(found.op_type)


@entry("OrtEpApi", "KernelDef_GetDomain")
def _get_domain(handle: int) -> int:
    found = find(handle, KernelDef)
    return found.text(found.domain)


@entry("OrtEpApi", "KernelDef_GetExecutionProvider")
def _get_provider(handle: int) -> int:
    found = find(handle, KernelDef)
    return found.text(found.provider)


@entry("OrtEpApi", "KernelDef_GetSinceVersion")
def _get_since(handle: int, since: int, until: int) -> None:
    found = find(handle, KernelDef)
    put(since, found.since, ctypes.c_int32)
    put(until, found.until, ctypes.c_int32)


@entry("OrtEpApi", "KernelDef_GetInputMemType")
def _get_input_memory(handle: int, index: int, out: int) -> None:
    put(out, find(handle, KernelDef).input_memory.get(index, DEFAULT_MEMORY), ctypes.c_int32)


@entry("OrtEpApi", "KernelDef_GetOutputMemType")
def _get_output_memory(handle: int, index: int, out: int) -> None:
    put(out, find(handle, KernelDef).output_memory.get(index, DEFAULT_MEMORY), ctypes.c_int32)


@entry("OrtEpApi", "EpGraphSupportInfo_LookUpKernel")
def _look_up_kernel(info: int, node: int, out: int) -> None:
    support, view = find(info, SupportInfo), find(node, NodeView)
    found = support.look_up(view)
    put(out, found.definition.handle if isinstance(found, KernelEntry) else None)
