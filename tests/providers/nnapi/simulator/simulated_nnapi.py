"""A simulated libneuralnetworks: NNAPI's C interface as ctypes callbacks, which validate and execute in NumPy.

It shares no code with the provider, and is itself checked against AOSP's numbers (`test_simulator.py`). What a caller does
wrong is an error code as NNAPI gives it, and a line in `log`.
"""

from __future__ import annotations

import ctypes
import mmap
import threading
from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import nnapi_operands as kinds
import numpy as np
from nnapi_execution import run
from nnapi_kernels import Failed
from nnapi_operands import Operand
from nnapi_operations import OPERATIONS, check, since

NO_ERROR, OUT_OF_MEMORY, INCOMPLETE, UNEXPECTED_NULL, BAD_DATA, OP_FAILED, BAD_STATE, UNMAPPABLE = range(8)
OUTPUT_INSUFFICIENT_SIZE, UNAVAILABLE_DEVICE = 8, 9
RESOURCE_EXHAUSTED, DEAD_OBJECT = 13, 14
_COPIED_NBYTES = 128

_ARGUMENTS: dict[str, Any] = {
    "p": ctypes.c_void_p, "i": ctypes.c_int32, "u": ctypes.c_uint32, "z": ctypes.c_size_t, "q": ctypes.c_int64,
    "b": ctypes.c_bool, "v": None,
}  # fmt: skip
_SYMBOLS = """
ANeuralNetworks_getRuntimeFeatureLevel                 31 q
ANeuralNetworks_getDeviceCount                         29 ip
ANeuralNetworks_getDevice                              29 iup
ANeuralNetworksDevice_getName                          29 ipp
ANeuralNetworksDevice_getType                          29 ipp
ANeuralNetworksDevice_getVersion                       29 ipp
ANeuralNetworksDevice_getFeatureLevel                  29 ipp
ANeuralNetworksModel_create                            27 ip
ANeuralNetworksModel_free                              27 vp
ANeuralNetworksModel_finish                            27 ip
ANeuralNetworksModel_addOperand                        27 ipp
ANeuralNetworksModel_setOperandValue                   27 ipipz
ANeuralNetworksModel_setOperandValueFromMemory         27 ipipzz
ANeuralNetworksModel_setOperandSymmPerChannelQuantParams 29 ipip
ANeuralNetworksModel_addOperation                      27 ipiupup
ANeuralNetworksModel_identifyInputsAndOutputs          27 ipupup
ANeuralNetworksModel_relaxComputationFloat32toFloat16  28 ipb
ANeuralNetworksModel_getSupportedOperationsForDevices  29 ippup
ANeuralNetworksCompilation_create                      27 ipp
ANeuralNetworksCompilation_createForDevices            29 ippup
ANeuralNetworksCompilation_setPreference               27 ipi
ANeuralNetworksCompilation_setPriority                 30 ipi
ANeuralNetworksCompilation_setCaching                  29 ippp
ANeuralNetworksCompilation_finish                      27 ip
ANeuralNetworksCompilation_free                        27 vp
ANeuralNetworksExecution_create                        27 ipp
ANeuralNetworksExecution_free                          27 vp
ANeuralNetworksExecution_setInput                      27 ipippz
ANeuralNetworksExecution_setOutput                     27 ipippz
ANeuralNetworksExecution_setInputFromMemory            27 ipippzz
ANeuralNetworksExecution_setOutputFromMemory           27 ipippzz
ANeuralNetworksExecution_setReusable                   31 ipb
ANeuralNetworksExecution_setMeasureTiming              29 ipb
ANeuralNetworksExecution_getDuration                   29 ipip
ANeuralNetworksExecution_compute                       29 ip
ANeuralNetworksExecution_startCompute                  27 ipp
ANeuralNetworksExecution_burstCompute                  29 ipp
ANeuralNetworksEvent_wait                              27 ip
ANeuralNetworksEvent_free                              27 vp
ANeuralNetworksBurst_create                            29 ipp
ANeuralNetworksBurst_free                              29 vp
ANeuralNetworksMemory_createFromFd                     27 iziizp
ANeuralNetworksMemory_createFromDesc                   30 ipp
ANeuralNetworksMemory_copy                             30 ipp
ANeuralNetworksMemory_free                             27 vp
ANeuralNetworksMemoryDesc_create                       30 ip
ANeuralNetworksMemoryDesc_addInputRole                 30 ipuuf
ANeuralNetworksMemoryDesc_addOutputRole                30 ipuuf
ANeuralNetworksMemoryDesc_finish                       30 ip
ANeuralNetworksMemoryDesc_free                         30 vp
"""
_ARGUMENTS["f"] = ctypes.c_float
SYMBOLS = {
    name: (int(level), letters[0], letters[1:]) for name, level, letters in map(str.split, _SYMBOLS.strip().splitlines())
}
"""Name -> the API level that has it, its result and its arguments by the letters of `_ARGUMENTS`."""


class OperandType(ctypes.Structure):
    _fields_ = (
        ("type", ctypes.c_int32), ("count", ctypes.c_uint32), ("dims", ctypes.POINTER(ctypes.c_uint32)),
        ("scale", ctypes.c_float), ("zero_point", ctypes.c_int32),
    )  # fmt: skip


class ChannelScales(ctypes.Structure):
    _fields_ = (("dim", ctypes.c_uint32), ("count", ctypes.c_uint32), ("scales", ctypes.POINTER(ctypes.c_float)))


@dataclass
class Device:
    """A device of the library: the feature level of its driver, and operations that it does not run."""

    name: str = "simulated-npu"
    type: int = 4
    level: int = 31
    refuses: Collection[str] = ()
    narrow: bool = True  # computes relaxed models in 16 bits
    text: Any = None


@dataclass
class Model:
    operands: list[Operand] = field(default_factory=list)
    operations: list[tuple[int, list[int], list[int]]] = field(default_factory=list)
    inputs: list[int] = field(default_factory=list)
    outputs: list[int] = field(default_factory=list)
    relaxed: bool = False
    finished: bool = False
    broken: bool = False
    users: int = 0


@dataclass
class Compilation:
    model: Model
    devices: list[Device]
    finished: bool = False
    cache: Path | None = None
    users: int = 0


@dataclass
class Execution:
    compilation: Compilation
    buffers: dict[tuple[str, int], Any] = field(default_factory=dict)
    reusable: bool = False
    ran: bool = False
    busy: Any = field(default_factory=threading.Lock)


@dataclass
class Burst:
    compilation: Compilation
    busy: Any = field(default_factory=threading.Lock)


@dataclass
class Memory:
    nbytes: int
    bytes: Any
    roles: frozenset[tuple[int, str, int]] | None = None  # of a memory domain
    written: bool = True


@dataclass
class Description:
    roles: set[tuple[int, str, int]] = field(default_factory=set)
    nbytes: int = 0
    finished: bool = False


@dataclass
class Fault:
    code: int
    after: int
    times: int


class BadCall(Exception):
    """A call that NNAPI answers with an error code."""

    def __init__(self, code: int, why: str) -> None:
        super().__init__(why)
        self.code = code


def _need(condition: Any, code: int, why: str) -> None:
    if not condition:
        raise BadCall(code, why)


class SimulatedLibrary:
    """What `libneuralnetworks.so` of a phone of this API level exports, as attributes.

    Args:
        level: API level of the phone, or a feature level of a newer runtime: which symbols there are.
        devices: those of the phone, its reference implementation on the CPU among them; by default an accelerator and that.
    """

    def __init__(self, level: int = 31, devices: list[Device] | None = None) -> None:
        self.level = level
        self.devices = (
            devices if devices is not None else [Device(level=level), Device("nnapi-reference", 2, level, narrow=False)]
        )
        self.log: list[str] = []
        self.calls: Counter[str] = Counter()
        self.operations_seen: Counter[str] = Counter()
        self.compiled = 0
        self.objects: dict[int, Any] = {}
        self._next = 0x1000
        self._lock = threading.Lock()
        self._faults: dict[str, Fault] = {}
        self._kept: list[Any] = []
        for device in self.devices:
            device.text = ctypes.create_string_buffer(device.name.encode())
        for name, (since_level, result, arguments) in SYMBOLS.items():
            if since_level <= level:
                prototype = ctypes.CFUNCTYPE(_ARGUMENTS[result], *(_ARGUMENTS[a] for a in arguments))
                setattr(self, name, prototype(self._called(name)))

    def fail(self, symbol: str, code: int, *, after: int = 0, times: int = 1 << 30) -> None:
        """Let calls of `symbol` give this error code, from the call number `after` on, so many times."""
        self._faults[symbol] = Fault(code, after, times)

    def recover(self) -> None:
        """No more faults."""
        self._faults.clear()

    @property
    def alive(self) -> Counter[str]:
        """How many objects of each kind were made and not freed."""
        return Counter(type(o).__name__ for o in self.objects.values())

    def _called(self, name: str) -> Callable[..., Any]:
        short = name.removeprefix("ANeuralNetworks").lstrip("_")
        method = getattr(self, f"_{short}")

        def call(*arguments: Any) -> Any:
            self.calls[name] += 1
            fault = self._faults.get(name)
            if fault is not None:
                fault.after -= 1
                if fault.after < 0 and fault.times > 0:
                    fault.times -= 1
                    self.log.append(f"{short}: fault {fault.code}")
                    return fault.code
            try:
                found = method(*arguments)
            except BadCall as error:
                self.log.append(f"{short}: {error}")
                return error.code
            except Failed as error:
                self.log.append(f"{short}: {error}")
                return OP_FAILED
            except Exception as error:  # noqa: BLE001 # nothing may leave a callback: it would only be printed
                self.log.append(f"{short}: {type(error).__name__}: {error}")
                return OP_FAILED
            return NO_ERROR if found is None else found

        return call

    def _new(self, made: Any, out: int) -> None:
        _need(out, UNEXPECTED_NULL, "no place for the result")
        with self._lock:
            self._next += 16
            self.objects[self._next] = made
            ctypes.c_void_p.from_address(out).value = self._next

    def _get(self, handle: int | None, kind: type[Any]) -> Any:
        _need(handle, UNEXPECTED_NULL, f"no {kind.__name__}")
        found = self.objects.get(handle or 0)
        _need(isinstance(found, kind), BAD_STATE, f"{handle} is no {kind.__name__}, or was freed")
        return found

    def _drop(self, handle: int | None, kind: type[Any]) -> Any:
        if not handle:
            return None
        found = self._get(handle, kind)
        with self._lock:
            del self.objects[handle]
        return found

    # devices

    def _getRuntimeFeatureLevel(self) -> int:
        return self.level

    def _getDeviceCount(self, out: int) -> None:
        ctypes.c_uint32.from_address(out).value = len(self.devices)

    def _getDevice(self, index: int, out: int) -> None:
        _need(index < len(self.devices), BAD_DATA, f"device {index} of {len(self.devices)}")
        ctypes.c_void_p.from_address(out).value = index + 1

    def _device(self, handle: int | None) -> Device:
        _need(handle and handle <= len(self.devices), BAD_DATA, f"no device {handle}")
        return self.devices[(handle or 1) - 1]

    def _Device_getName(self, device: int, out: int) -> None:
        ctypes.c_void_p.from_address(out).value = ctypes.addressof(self._device(device).text)

    def _Device_getVersion(self, device: int, out: int) -> None:
        self._Device_getName(device, out)

    def _Device_getType(self, device: int, out: int) -> None:
        ctypes.c_int32.from_address(out).value = self._device(device).type

    def _Device_getFeatureLevel(self, device: int, out: int) -> None:
        ctypes.c_int64.from_address(out).value = self._device(device).level

    def _devices_at(self, address: int, count: int) -> list[Device]:
        _need(address and count, BAD_DATA, "no devices")
        return [self._device(h) for h in (ctypes.c_void_p * count).from_address(address)]

    # models

    def _Model_create(self, out: int) -> None:
        self._new(Model(), out)

    def _Model_free(self, handle: int) -> None:
        model = self._drop(handle, Model)
        if model is not None and model.users:
            self.log.append("Model_free: freed before its compilations")

    def _open(self, handle: int) -> Model:
        model: Model = self._get(handle, Model)
        _need(not model.finished and not model.broken, BAD_STATE, "the model is finished")
        return model

    def _Model_addOperand(self, handle: int, address: int) -> None:
        model = self._open(handle)
        _need(address, UNEXPECTED_NULL, "no type")
        given = OperandType.from_address(address)
        dims = tuple(given.dims[i] for i in range(given.count))
        _need(given.type in kinds.SINCE, BAD_DATA, f"no operand type {given.type}")
        name = kinds.NAMES[given.type]
        _need(kinds.SINCE[given.type] <= self.level, BAD_DATA, f"{name} is not there at level {self.level}")
        operand = Operand(given.type, dims, given.scale, given.zero_point)
        if operand.scalar:
            _need(not dims and not given.scale, BAD_DATA, f"{name} with dimensions or a scale")
        else:
            _need(dims or self.level >= 29, BAD_DATA, f"{name} of unknown rank before level 29")
        self._check_scale(operand, name)
        model.operands.append(operand)

    @staticmethod
    def _check_scale(operand: Operand, name: str) -> None:
        ranges = {
            kinds.TENSOR_QUANT8_ASYMM: (0, 255), kinds.TENSOR_QUANT8_ASYMM_SIGNED: (-128, 127),
            kinds.TENSOR_QUANT16_ASYMM: (0, 65535), kinds.TENSOR_QUANT8_SYMM: (0, 0), kinds.TENSOR_QUANT16_SYMM: (0, 0),
        }  # fmt: skip
        if operand.type in ranges:
            low, high = ranges[operand.type]
            _need(operand.scale > 0 and np.isfinite(operand.scale), BAD_DATA, f"{name} with scale {operand.scale}")
            _need(low <= operand.zero_point <= high, BAD_DATA, f"{name} with zero point {operand.zero_point}")
        elif operand.type == kinds.TENSOR_INT32:
            _need(operand.scale >= 0 and not operand.zero_point, BAD_DATA, f"{name} with a negative scale or a zero point")
        else:
            _need(not operand.scale and not operand.zero_point, BAD_DATA, f"{name} with a scale or a zero point")

    def _operand(self, model: Model, index: int) -> Operand:
        _need(0 <= index < len(model.operands), BAD_DATA, f"operand {index} of {len(model.operands)}")
        return model.operands[index]

    def _Model_setOperandValue(self, handle: int, index: int, address: int | None, nbytes: int) -> None:
        operand = self._operand(self._open(handle), index)
        if not address:
            _need(not nbytes, BAD_DATA, "no bytes, but a length")
            operand.omitted = True
            return
        _need(0 not in operand.dims or not nbytes, BAD_DATA, f"operand {index} has unknown dimensions and a value")
        _need(nbytes == operand.nbytes(), BAD_DATA, f"operand {index}: {nbytes} bytes, {operand.nbytes()} expected")
        if nbytes <= _COPIED_NBYTES:
            data = np.frombuffer(ctypes.string_at(address, nbytes), kinds.NUMPY[operand.type])
            operand.value = data.reshape(operand.dims)
        else:
            operand.pointer = (address, nbytes)

    def _Model_setOperandValueFromMemory(self, handle: int, index: int, memory: int, offset: int, nbytes: int) -> None:
        operand, held = self._operand(self._open(handle), index), self._get(memory, Memory)
        _need(held.roles is None, BAD_DATA, "a memory domain holds no constants")
        _need(nbytes == operand.nbytes() and offset + nbytes <= held.nbytes, BAD_DATA, f"{nbytes} bytes at {offset}")
        data = np.frombuffer(held.bytes, np.uint8)[offset : offset + nbytes].tobytes()
        operand.value = np.frombuffer(data, kinds.NUMPY[operand.type]).reshape(operand.dims)

    def _Model_setOperandSymmPerChannelQuantParams(self, handle: int, index: int, address: int) -> None:
        operand, given = self._operand(self._open(handle), index), ChannelScales.from_address(address)
        _need(operand.type == kinds.TENSOR_QUANT8_SYMM_PER_CHANNEL, BAD_DATA, f"operand {index} has no channels' scales")
        _need(given.dim < len(operand.dims) and operand.dims[given.dim] == given.count, BAD_DATA, f"{given.count} scales")
        operand.channel_dim, operand.channel_scales = given.dim, [given.scales[i] for i in range(given.count)]
        _need(all(s > 0 for s in operand.channel_scales), BAD_DATA, "a scale that is not positive")

    def _Model_addOperation(self, handle: int, code: int, n: int, sources: int, m: int, targets: int) -> None:
        model = self._open(handle)
        _need(code in OPERATIONS, BAD_DATA, f"no operation {code}")
        op = OPERATIONS[code]
        read, written = (list((ctypes.c_uint32 * k).from_address(a)) for k, a in ((n, sources), (m, targets)))
        given = [self._operand(model, i) for i in read]
        why = check(op, given, [self._operand(model, i) for i in written], self.level)
        _need(not why, BAD_DATA, f"{op.name}: {why}")
        for operand in given:
            lacks = operand.type == kinds.TENSOR_QUANT8_SYMM_PER_CHANNEL and not operand.channel_scales
            _need(not lacks, BAD_DATA, f"{op.name}: a tensor without its channels' scales")
        model.operations.append((code, read, written))

    def _Model_identifyInputsAndOutputs(self, handle: int, n: int, sources: int, m: int, targets: int) -> None:
        model = self._open(handle)
        _need(n and m, BAD_DATA, "no inputs or no outputs")
        model.inputs, model.outputs = (list((ctypes.c_uint32 * k).from_address(a)) for k, a in ((n, sources), (m, targets)))
        for i in (*model.inputs, *model.outputs):
            operand = self._operand(model, i)
            _need(operand.value is None and operand.pointer is None, BAD_DATA, f"operand {i} is a constant")

    def _Model_relaxComputationFloat32toFloat16(self, handle: int, allow: bool) -> None:
        self._open(handle).relaxed = allow

    def _Model_finish(self, handle: int) -> None:
        model = self._open(handle)
        model.broken = True
        known = set(model.inputs)
        known |= {i for i, o in enumerate(model.operands) if o.value is not None or o.pointer is not None or o.omitted}
        for code, read, written in model.operations:
            name = OPERATIONS[code].name
            for i in read:
                _need(i in known, BAD_DATA, f"{name} reads operand {i}, which nothing before it wrote")
            for i in written:
                _need(i not in known, BAD_DATA, f"{name} writes operand {i}, which is written or has a value already")
                known.add(i)
        _need(model.inputs and model.outputs, BAD_DATA, "inputs and outputs were not identified")
        for i in model.outputs:
            _need(i in known and i not in model.inputs, BAD_DATA, f"output {i} is written by no operation")
        model.finished, model.broken = True, False

    def _lacking(self, model: Model, device: Device, at: int) -> str:
        """Why a device does not run an operation of a model."""
        code, read, written = model.operations[at]
        op = OPERATIONS[code]
        if op.name in device.refuses:
            return f"{device.name} does not run {op.name}"
        given = [model.operands[i] for i in read]
        needed = max(since(op, given) or 0, *(kinds.SINCE[model.operands[i].type] for i in (*read, *written)))
        return f"{device.name} has level {device.level}, {op.name} needs {needed}" if needed > device.level else ""

    def _Model_getSupportedOperationsForDevices(self, handle: int, devices: int, count: int, out: int) -> None:
        model: Model = self._get(handle, Model)
        _need(model.finished, BAD_STATE, "the model is not finished")
        chosen = self._devices_at(devices, count)
        answers = (ctypes.c_bool * len(model.operations)).from_address(out)
        for at in range(len(model.operations)):
            answers[at] = any(not self._lacking(model, device, at) for device in chosen)

    # compilations

    def _Compilation_create(self, model: int, out: int) -> None:
        self._compilation(self._get(model, Model), self.devices, out)

    def _Compilation_createForDevices(self, model: int, devices: int, count: int, out: int) -> None:
        self._compilation(self._get(model, Model), self._devices_at(devices, count), out)

    def _compilation(self, model: Model, devices: list[Device], out: int) -> None:
        _need(model.finished, BAD_STATE, "the model is not finished")
        self._new(Compilation(model, devices), out)
        model.users += 1

    def _unfinished(self, handle: int) -> Compilation:
        found: Compilation = self._get(handle, Compilation)
        _need(not found.finished, BAD_STATE, "the compilation is finished")
        return found

    def _Compilation_setPreference(self, handle: int, preference: int) -> None:
        self._unfinished(handle)
        _need(preference in (0, 1, 2), BAD_DATA, f"no preference {preference}")

    def _Compilation_setPriority(self, handle: int, priority: int) -> None:
        self._unfinished(handle)
        _need(priority in (90, 100, 110), BAD_DATA, f"no priority {priority}")

    def _Compilation_setCaching(self, handle: int, folder: int, token: int) -> None:
        name = ctypes.string_at(token, 32).hex()
        self._unfinished(handle).cache = Path(ctypes.string_at(folder).decode()) / name

    def _Compilation_finish(self, handle: int) -> None:
        found = self._unfinished(handle)
        for at in range(len(found.model.operations)):
            reasons = [self._lacking(found.model, device, at) for device in found.devices]
            _need("" in reasons, BAD_DATA, "; ".join(reasons))
        if found.cache is not None and found.cache.is_file():
            pass
        else:
            self.compiled += 1
            if found.cache is not None:
                found.cache.write_bytes(b"compiled")
        self.operations_seen.update(OPERATIONS[code].name for code, _, _ in found.model.operations)
        found.finished = True

    def _Compilation_free(self, handle: int) -> None:
        found = self._drop(handle, Compilation)
        if found is not None:
            found.model.users -= 1
            if found.users:
                self.log.append("Compilation_free: freed before its executions")

    # executions

    def _Execution_create(self, compilation: int, out: int) -> None:
        found = self._get(compilation, Compilation)
        _need(found.finished, BAD_STATE, "the compilation is not finished")
        self._new(Execution(found), out)
        found.users += 1

    def _Execution_free(self, handle: int) -> None:
        found = self._drop(handle, Execution)
        if found is not None:
            found.compilation.users -= 1

    def _settable(self, handle: int) -> Execution:
        found: Execution = self._get(handle, Execution)
        _need(not found.busy.locked(), BAD_STATE, "the execution is running")
        _need(found.reusable or not found.ran, BAD_STATE, "the execution has run")
        return found

    def _Execution_setReusable(self, handle: int, reusable: bool) -> None:
        self._settable(handle).reusable = reusable

    def _Execution_setMeasureTiming(self, handle: int, measure: bool) -> None:
        self._settable(handle)

    def _Execution_getDuration(self, handle: int, code: int, out: int) -> None:
        found = self._get(handle, Execution)
        _need(found.ran, BAD_STATE, "the execution has not run")
        ctypes.c_uint64.from_address(out).value = 1000

    def _shape(self, execution: Execution, role: str, index: int, override: int | None) -> tuple[Operand, tuple[int, ...]]:
        model = execution.compilation.model
        chosen = model.inputs if role == "in" else model.outputs
        _need(0 <= index < len(chosen), BAD_DATA, f"{role}put {index} of {len(chosen)}")
        operand = model.operands[chosen[index]]
        dims = operand.dims
        if override:
            given = OperandType.from_address(override)
            dims = tuple(given.dims[i] for i in range(given.count))
            fits = len(dims) == len(operand.dims) and all(k in (0, d) for k, d in zip(operand.dims, dims, strict=True))
            _need(given.type == operand.type and (not operand.dims or fits), BAD_DATA, f"{role}put {index} as {dims}")
        return operand, dims

    def _set(self, handle: int, role: str, index: int, override: int | None, address: int | None, nbytes: int) -> None:
        execution = self._settable(handle)
        operand, dims = self._shape(execution, role, index, override)
        if not address:
            _need(not nbytes, BAD_DATA, "no bytes, but a length")
            execution.buffers[role, index] = (operand, None, None)
            return
        exact = operand.nbytes(dims) if 0 not in dims and (dims or operand.scalar) else nbytes
        _need(nbytes == exact, BAD_DATA, f"{role}put {index}: {nbytes} bytes, {exact} expected")
        execution.buffers[role, index] = (operand, dims, (address, nbytes))

    def _Execution_setInput(self, handle: int, index: int, kind: int, address: int, nbytes: int) -> None:
        self._set(handle, "in", index, kind, address, nbytes)

    def _Execution_setOutput(self, handle: int, index: int, kind: int, address: int, nbytes: int) -> None:
        self._set(handle, "out", index, kind, address, nbytes)

    def _set_memory(self, handle: int, role: str, index: int, override: int | None, memory: int, offset: int, nbytes: int
                    ) -> None:  # fmt: skip
        execution, held = self._settable(handle), self._get(memory, Memory)
        operand, dims = self._shape(execution, role, index, override)
        if held.roles is not None:
            _need(not offset and not nbytes, BAD_DATA, "a memory domain is given whole, with offset and length 0")
            known = (id(execution.compilation), role, index) in held.roles
            _need(known, BAD_DATA, f"a memory that is not for {role}put {index}")
            _need(role == "out" or held.written, OP_FAILED, "a memory domain that nothing was written into")
            nbytes = held.nbytes
        _need(nbytes == operand.nbytes(dims), BAD_DATA, f"{role}put {index}: {nbytes} bytes, {operand.nbytes(dims)} expected")
        _need(offset + nbytes <= held.nbytes, BAD_DATA, f"{nbytes} bytes at {offset} of {held.nbytes}")
        execution.buffers[role, index] = (operand, dims, (held, offset, nbytes))

    def _Execution_setInputFromMemory(self, h: int, index: int, kind: int, memory: int, offset: int, nbytes: int) -> None:
        self._set_memory(h, "in", index, kind, memory, offset, nbytes)

    def _Execution_setOutputFromMemory(self, h: int, index: int, kind: int, memory: int, offset: int, nbytes: int) -> None:
        self._set_memory(h, "out", index, kind, memory, offset, nbytes)

    def _Execution_compute(self, handle: int) -> None:
        self._run(self._get(handle, Execution))

    def _Execution_burstCompute(self, handle: int, burst: int) -> None:
        execution, held = self._get(handle, Execution), self._get(burst, Burst)
        _need(held.compilation is execution.compilation, BAD_DATA, "the burst is another compilation's")
        _need(held.busy.acquire(blocking=False), BAD_STATE, "the burst is in use")
        try:
            self._run(execution)
        finally:
            held.busy.release()

    def _Execution_startCompute(self, handle: int, out: int) -> None:
        code = NO_ERROR
        try:
            self._run(self._get(handle, Execution))
        except Failed as error:
            self.log.append(f"startCompute: {error}")
            code = OP_FAILED
        self._new(Event(code), out)

    def _Event_wait(self, handle: int) -> int:
        return int(self._get(handle, Event).code)

    def _Event_free(self, handle: int) -> None:
        self._drop(handle, Event)

    def _Burst_create(self, compilation: int, out: int) -> None:
        found = self._get(compilation, Compilation)
        _need(found.finished, BAD_STATE, "the compilation is not finished")
        self._new(Burst(found), out)
        found.users += 1

    def _Burst_free(self, handle: int) -> None:
        found = self._drop(handle, Burst)
        if found is not None:
            found.compilation.users -= 1

    def _run(self, execution: Execution) -> None:
        _need(execution.busy.acquire(blocking=False), BAD_STATE, "the execution is running")
        try:
            _need(execution.reusable or not execution.ran, BAD_STATE, "the execution has run")
            execution.ran = True
            self._run_once(execution)
        finally:
            execution.busy.release()

    def _run_once(self, execution: Execution) -> None:
        compilation = execution.compilation
        model = compilation.model
        given: dict[int, Any] = {}
        for at, i in enumerate(model.inputs):
            _need(("in", at) in execution.buffers, BAD_DATA, f"input {at} was not set")
            operand, dims, place = execution.buffers["in", at]
            given[i] = None if place is None else np.frombuffer(_read(place), kinds.NUMPY[operand.type]).reshape(dims)
        targets = []
        for at in range(len(model.outputs)):
            _need(("out", at) in execution.buffers, BAD_DATA, f"output {at} was not set")
            targets.append(execution.buffers["out", at])
        narrow = model.relaxed and any(device.narrow for device in compilation.devices)
        results = run(model.operands, model.operations, given, model.outputs, narrow=narrow)
        for (_, _, place), result in zip(targets, results, strict=True):
            if place is None:
                continue
            if result.nbytes > place[-1]:
                raise BadCall(OUTPUT_INSUFFICIENT_SIZE, f"{result.nbytes} bytes for a buffer of {place[-1]}")
            _write(place, np.ascontiguousarray(result).tobytes())

    # memory

    def _Memory_createFromFd(self, nbytes: int, protection: int, fd: int, offset: int, out: int) -> None:
        _need(nbytes, BAD_DATA, "a memory of no bytes")
        try:
            mapped = mmap.mmap(fd, nbytes, offset=offset, prot=protection)
        except (OSError, ValueError) as error:
            raise BadCall(UNMAPPABLE, str(error)) from error
        self._new(Memory(nbytes, mapped), out)

    def _Memory_free(self, handle: int) -> None:
        self._drop(handle, Memory)

    def _Memory_copy(self, source: int, target: int) -> None:
        a, b = self._get(source, Memory), self._get(target, Memory)
        _need(a.nbytes == b.nbytes, BAD_DATA, f"{a.nbytes} bytes into {b.nbytes}")
        _need(a.written, BAD_DATA, "a memory domain that nothing was written into")
        _write((b, 0, b.nbytes), _read((a, 0, a.nbytes)))

    def _MemoryDesc_create(self, out: int) -> None:
        self._new(Description(), out)

    def _MemoryDesc_free(self, handle: int) -> None:
        self._drop(handle, Description)

    def _role(self, handle: int, compilation: int, role: str, index: int) -> None:
        found, compiled = self._get(handle, Description), self._get(compilation, Compilation)
        _need(not found.finished and compiled.finished, BAD_STATE, "a finished description, or an unfinished compilation")
        chosen = compiled.model.inputs if role == "in" else compiled.model.outputs
        _need(index < len(chosen), BAD_DATA, f"{role}put {index} of {len(chosen)}")
        nbytes = compiled.model.operands[chosen[index]].nbytes()
        _need(found.nbytes in (0, nbytes), BAD_DATA, "roles of different sizes")
        found.nbytes = nbytes
        found.roles.add((id(compiled), role, index))

    def _MemoryDesc_addInputRole(self, handle: int, compilation: int, index: int, frequency: float) -> None:
        self._role(handle, compilation, "in", index)

    def _MemoryDesc_addOutputRole(self, handle: int, compilation: int, index: int, frequency: float) -> None:
        self._role(handle, compilation, "out", index)

    def _MemoryDesc_finish(self, handle: int) -> None:
        found = self._get(handle, Description)
        _need(found.roles, BAD_DATA, "a description without roles")
        found.finished = True

    def _Memory_createFromDesc(self, handle: int, out: int) -> None:
        found = self._get(handle, Description)
        _need(found.finished, BAD_STATE, "the description is not finished")
        self._new(Memory(found.nbytes, bytearray(found.nbytes), frozenset(found.roles), written=False), out)


@dataclass
class Event:
    code: int


def _read(place: Any) -> bytes:
    if isinstance(place[0], Memory):
        held, offset, nbytes = place
        return bytes(memoryview(held.bytes)[offset : offset + nbytes])
    return ctypes.string_at(*place)


def _write(place: Any, data: bytes) -> None:
    if isinstance(place[0], Memory):
        held, offset, _ = place
        memoryview(held.bytes)[offset : offset + len(data)] = data
        held.written = True
    else:
        ctypes.memmove(place[0], data, len(data))
