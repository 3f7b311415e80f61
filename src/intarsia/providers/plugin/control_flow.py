"""Kernels of If, Loop and Scan that a plugin has the host make: OrtEpApi's CreateIfKernel, CreateLoopKernel, CreateScanKernel.

The plugin registers such a kernel, and its function that makes it asks the host for one (`OrtKernelImpl`), with helpers for
what its device has to do: joining what the trips of a Loop gave, and transposing a Scan's values. Its kernels run the bodies.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from intarsia.errors import EPFail, InvalidArgument, NotImplemented
from intarsia.graph.dtypes import DType
from intarsia.graph.model import Graph, TensorType
from intarsia.providers.plugin.bodies import body_graph
from intarsia.providers.plugin.interface.api_tables import NEWEST, structure, tables
from intarsia.providers.plugin.interface.handles import find, give, put
from intarsia.providers.plugin.interface.host_tables import entry
from intarsia.providers.plugin.interface.members import Members
from intarsia.providers.plugin.interface.status import Status
from intarsia.providers.plugin.interface.tensors import OrtValue, new_tensor
from intarsia.providers.plugin.kernel_context import KernelContext
from intarsia.providers.plugin.kernel_info import KernelInfo
from intarsia.providers.plugin.kernel_program import KernelProgram

IS_CONTROL_FLOW = 1
"""Of OrtKernelImpl's flags: a kernel that the host has made."""
_FOREVER = 1 << 63


class Body:
    """A subgraph of a node, run by the plugin's kernels."""

    def __init__(self, info: KernelInfo, attribute: str) -> None:
        node, around = info.view.node, info.view.graph.graph
        found = node.attributes.get(attribute)
        if not isinstance(found, Graph):
            raise InvalidArgument(f"{node.qualified_op} has no graph {attribute!r}")
        self.graph = body_graph(around, found)
        self._own = len(found.inputs)
        registry = info.ep.registry
        if registry is None:
            raise EPFail(f"{info.ep.name} made a kernel of {node.qualified_op}, and has no registry of kernels for its body")
        self._program = KernelProgram(info.ep, registry, self.graph, info.memory)

    def run(self, given: Sequence[OrtValue], context: KernelContext) -> list[OrtValue]:
        """The body's outputs for its inputs, where the node's call has the values that it captures."""
        names = self._program.inputs
        values = dict(zip(names, given, strict=False))
        values.update((name, context.captured[name]) for name in names[self._own :])
        return self._program.run_values(values, context.run)


class ControlKernel:
    """OrtKernelImpl of a node with bodies, which lives until its Release is called."""

    def __init__(self, info: KernelInfo, helper: Members | None = None) -> None:
        self.info, self._helper = info, helper
        self._impl = structure("OrtKernelImpl")(ort_version_supported=NEWEST, flags=IS_CONTROL_FLOW, **_functions())
        self.address = ctypes.addressof(self._impl)

    def compute(self, context: KernelContext) -> None:
        """One call of the node."""
        raise NotImplementedError

    @property
    def helper(self) -> Members:
        """The plugin's helpers. Raises EPFail where it gave none."""
        if self._helper is None:
            raise EPFail(f"{self.info.ep.name} gave no helper for {self.info.view.node.qualified_op}, which needs one here")
        return self._helper

    def released(self) -> None:
        """The plugin's helper is released."""
        helper, self._helper = self._helper, None
        if helper is not None:
            helper.call_if_there("Release")

    def stream(self) -> Any:
        """The device's own handle of the stream; None where there is none."""
        stream = self.info.ep.stream
        return stream.native if stream is not None else None

    def on_host(self, value: OrtValue) -> np.ndarray:
        """A tensor's elements in the host's memory."""
        memory = self.info.memory
        return value.array() if value.memory.on_host or memory is None else memory.to_host(value)

    def new_value(self, dtype: DType, shape: Sequence[int]) -> OrtValue:
        """A tensor where the plugin's kernels work."""
        memory = self.info.memory
        return memory.new_tensor(dtype, shape) if memory is not None else new_tensor(dtype, shape)

    def there(self, value: OrtValue) -> OrtValue:
        """A tensor where the plugin's kernels work, copied where it is elsewhere."""
        return self.copied(value) if self.info.memory is not None and value.memory.on_host else value

    def copied(self, value: OrtValue) -> OrtValue:
        """A tensor of the same elements where the plugin's kernels work."""
        made = self.new_value(value.dtype, value.shape)
        self.copy(value, made)
        return made

    def copy(self, source: OrtValue, target: OrtValue) -> None:
        """Copy a tensor's elements."""
        if self.info.memory is not None:
            self.info.memory.copy(source, target)
        elif source.dtype is DType.STRING:
            target.array()[...] = source.array()
        elif source.fields.nbytes:
            ctypes.memmove(target.fields.data, source.fields.data, source.fields.nbytes)

    def write(self, context: KernelContext, index: int, value: OrtValue) -> None:
        """Give the call an output, which is no input of it."""
        if any(value is given for given in (*context.inputs, *context.captured.values())):
            value = self.copied(value)
        context.set_output(index, value)


class IfKernel(ControlKernel):
    """If."""

    def __init__(self, info: KernelInfo) -> None:
        super().__init__(info)
        self._branches = {False: Body(info, "else_branch"), True: Body(info, "then_branch")}

    def compute(self, context: KernelContext) -> None:
        chosen = self._branches[_truth(self.on_host(_given(context, 0)), "the condition of If")]
        for i, value in enumerate(chosen.run((), context)):
            self.write(context, i, value)


class LoopKernel(ControlKernel):
    """Loop. Its helper joins what the trips gave."""

    def __init__(self, info: KernelInfo, helper: Members) -> None:
        super().__init__(info, helper)
        self._body = Body(info, "body")
        self._states = len(info.view.node.inputs) - 2

    def compute(self, context: KernelContext) -> None:
        trips = self._number(context, 0, _FOREVER)
        condition = context.inputs[1] if len(context.inputs) > 1 else None
        going = condition is None or _truth(self.on_host(condition), "the condition of Loop")
        states = [_given(context, i) for i in range(2, len(context.inputs))]
        scanned: list[list[OrtValue]] = [[] for _ in range(len(self._body.graph.outputs) - 1 - len(states))]
        trip = 0
        while going and trip < trips:
            if context.run is not None:
                context.run.check()
            counter = OrtValue.of_array(np.array(trip, np.int64))
            found = self._body.run([counter, OrtValue.of_array(np.array(True)), *states], context)
            going = _truth(self.on_host(found[0]), "the condition of Loop's body")
            states = found[1 : 1 + len(states)]
            for values, value in zip(scanned, found[1 + len(states) :], strict=True):
                values.append(self.there(value))
            trip += 1
        for i, value in enumerate(states):
            self.write(context, i, value)
        for i, values in enumerate(scanned, start=len(states)):
            self._join(context, i, values)

    def _number(self, context: KernelContext, index: int, default: int) -> int:
        value = context.inputs[index] if context.inputs else None
        return int(self.on_host(value).reshape(-1)[0]) if value is not None else default

    def _join(self, context: KernelContext, index: int, values: Sequence[OrtValue]) -> None:
        """The output of what the trips gave."""
        kind = self._body.graph.outputs[1 + index]
        if len({value.shape for value in values}) > 1:
            sizes = ", ".join(sorted({str(list(value.shape)) for value in values}))
            raise InvalidArgument(f"output {index} of Loop: its trips gave tensors of different sizes, {sizes}")
        dtype, shape = _of_trips(values, self._body.graph.type_of(kind.name))
        made = self.new_value(dtype, (len(values), *shape))
        context.set_output(index, made)
        if made.fields.nbytes:
            handles = (ctypes.c_void_p * len(values))(*(value.handle for value in values))
            self.helper.call(
                "ConcatOutput", self.stream(), ctypes.addressof(handles), len(values), made.fields.data, made.fields.nbytes
            )


class ScanKernel(ControlKernel):
    """Scan of version 9 and later. Its helper transposes what is scanned along other axes than the first."""

    def __init__(self, info: KernelInfo, helper: Members) -> None:
        super().__init__(info, helper)
        node = info.view.shown
        if node.version < 9:
            raise NotImplemented("kernels of Scan are made for version 9 and later; version 8 has batches")
        self._body = Body(info, "body")
        self._scanned = int(node.attributes["num_scan_inputs"])
        self._states = len(node.inputs) - self._scanned
        outputs = len(node.outputs) - self._states
        self._axes = _listed(node.attributes, "scan_input_axes", self._scanned)
        self._backward = _listed(node.attributes, "scan_input_directions", self._scanned)
        self._output_axes = _listed(node.attributes, "scan_output_axes", outputs)
        self._output_backward = _listed(node.attributes, "scan_output_directions", outputs)

    def compute(self, context: KernelContext) -> None:
        states = [_given(context, i) for i in range(self._states)]
        inputs = [self._along_first(self.there(_given(context, i + self._states)), axis) for i, axis in enumerate(self._axes)]
        lengths = {value.shape[0] for value in inputs}
        if len(lengths) != 1:
            counts = ", ".join(map(str, sorted(lengths)))
            raise InvalidArgument(f"Scan: its inputs have {counts} elements to scan, expected one number")
        (length,) = lengths
        scanned: list[list[OrtValue]] = [[] for _ in self._output_axes]
        for trip in range(length):
            if context.run is not None:
                context.run.check()
            places = (length - 1 - trip if back else trip for back in self._backward)
            parts = [_part(value, place) for value, place in zip(inputs, places, strict=True)]
            found = self._body.run([*states, *parts], context)
            states = found[: self._states]
            for values, value in zip(scanned, found[self._states :], strict=True):
                values.append(value)
        for i, value in enumerate(states):
            self.write(context, i, value)
        for i, values in enumerate(scanned):
            self._stack(context, i, values[::-1] if self._output_backward[i] else values)

    def _stack(self, context: KernelContext, number: int, values: Sequence[OrtValue]) -> None:
        """The output of what the trips gave, along its axis."""
        kind = self._body.graph.outputs[self._states + number]
        dtype, shape = _of_trips(values, self._body.graph.type_of(kind.name))
        made = self.new_value(dtype, (len(values), *shape))
        for i, value in enumerate(values):
            if value.shape != tuple(shape):
                sizes = f"{list(shape)} and {list(value.shape)}"
                raise InvalidArgument(f"output {number} of Scan: its trips gave tensors of different sizes, {sizes}")
            self.copy(value, _part(made, i))
        axis, rank = self._output_axes[number], len(shape) + 1
        context.set_output(self._states + number, self._transposed(made, _from_first(axis % rank, rank)) if axis else made)

    def _along_first(self, value: OrtValue, axis: int) -> OrtValue:
        rank = len(value.shape)
        if not rank or not -rank <= axis < rank:
            raise InvalidArgument(f"Scan: expected an axis of {list(value.shape)} to scan along, got {axis}")
        axis %= rank
        return self._transposed(value, [axis, *(i for i in range(rank) if i != axis)]) if axis else value

    def _transposed(self, value: OrtValue, order: Sequence[int]) -> OrtValue:
        made = self.new_value(value.dtype, [value.shape[i] for i in order])
        if made.fields.nbytes:
            numbers = (ctypes.c_size_t * len(order))(*order)
            stream = self.info.ep.stream
            self.helper.call(
                "Transpose", ctypes.addressof(numbers), len(order), value.handle, stream.handle if stream else None, made.handle
            )
        return made


def _from_first(axis: int, rank: int) -> list[int]:
    """The order of axes that puts the first one at `axis`."""
    rest: Iterator[int] = iter(range(1, rank))
    return [0 if i == axis else next(rest) for i in range(rank)]


def _listed(attributes: Mapping[str, Any], name: str, count: int) -> list[int]:
    return list(attributes.get(name) or [0] * count)


def _part(value: OrtValue, index: int) -> OrtValue:
    """Element `index` along the first axis of a tensor: a part of its memory."""
    if value.dtype.bits < 8 or value.dtype is DType.STRING:
        raise NotImplemented(f"kernels of Scan take no {value.dtype.onnx_name}, whose elements have no addresses of their own")
    nbytes = int(value.fields.nbytes) // max(1, value.shape[0])
    return OrtValue.at(value.dtype, value.shape[1:], (value.fields.data or 0) + index * nbytes, value, value.memory)


def _of_trips(values: Sequence[OrtValue], kind: Any) -> tuple[DType, tuple[int, ...]]:
    """Type and sizes of what each trip gave; what is not known of no trip is 0, as onnxruntime has it."""
    if values:
        return values[0].dtype, values[0].shape
    if not isinstance(kind, TensorType):
        raise EPFail(f"a body gives {kind}; plugins are given tensors")
    return kind.dtype, tuple(d if isinstance(d, int) else 0 for d in kind.shape or ())


def _given(context: KernelContext, index: int) -> OrtValue:
    value = context.inputs[index]
    if value is None:
        raise InvalidArgument(f"input {index} is left out, and has to be there")
    return value


def _truth(array: np.ndarray, what: str) -> bool:
    if array.size != 1:
        raise InvalidArgument(f"{what}: expected one element, got {list(array.shape)}")
    return bool(array.reshape(-1)[0])


# what the plugin, or the host, calls

_alive: dict[int, ControlKernel] = {}


def _compute(this: int, context: int) -> int | None:
    try:
        _alive[this].compute(find(context, KernelContext))
    except BaseException as error:  # noqa: BLE001 # what is not an Exception is raised behind the plugin's call
        return give(Status.of(error))
    return None


def _release(this: int) -> None:
    kernel = _alive.pop(this, None)
    if kernel is not None:
        kernel.released()


_callbacks: dict[str, Any] = {}


def _functions() -> dict[str, int]:
    """Addresses of the two functions, which serve all kernels."""
    if not _callbacks:
        prototypes = {one.name: one.prototype(callback=True) for one in tables()["OrtKernelImpl"] if one.is_function}
        _callbacks.update(Compute=prototypes["Compute"](_compute), Release=prototypes["Release"](_release))
    return {name: ctypes.cast(callback, ctypes.c_void_p).value or 0 for name, callback in _callbacks.items()}


def _put_kernel(kernel: ControlKernel, out: int) -> None:
    _alive[kernel.address] = kernel
    put(out, kernel.address)


def _helper(table: str, address: int | None, info: KernelInfo) -> Members:
    return Members(table, address or 0, info.ep.name)


@entry("OrtEpApi", "CreateIfKernel")
def _create_if(info: int, out: int) -> None:
    _put_kernel(IfKernel(find(info, KernelInfo)), out)


@entry("OrtEpApi", "CreateLoopKernel")
def _create_loop(info: int, helper: int, out: int) -> None:
    found = find(info, KernelInfo)
    _put_kernel(LoopKernel(found, _helper("OrtLoopKernelHelper", helper, found)), out)


@entry("OrtEpApi", "CreateScanKernel")
def _create_scan(info: int, helper: int, out: int) -> None:
    found = find(info, KernelInfo)
    _put_kernel(ScanKernel(found, _helper("OrtScanKernelHelper", helper, found)), out)


@entry("OrtEpApi", "ReleaseKernelImpl")
def _release_kernel(kernel: int | None) -> None:
    """Release a kernel of the host's or of the plugin's own."""
    if kernel:
        Members("OrtKernelImpl", kernel, "a plugin").call_if_there("Release")


def control_kernels() -> int:
    """How many such kernels plugins hold."""
    return len(_alive)


