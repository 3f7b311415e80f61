"""WebGPU by the package wgpu: Vulkan, Metal or Direct3D 12 under it. Imported when a provider requests a device."""

from __future__ import annotations

import functools
import importlib.util
import os
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from intarsia.codegen.clike import GPU, PROCESSOR, Kernel, Limits, Wgsl
from intarsia.device import forking
from intarsia.device.gpu import ALIGNMENT, DeviceLimits, Gpu, Launch, Slice, no_such_device
from intarsia.device.opened import OpenDevices
from intarsia.ep.device import Device
from intarsia.errors import DeviceLost, EPFail, OutOfMemory

_FEATURES = ("shader-int64", "shader-f64", "timestamp-query")
_LIMITS = (
    "max-storage-buffers-per-shader-stage", "max-storage-buffer-binding-size", "max-buffer-size",
    "max-compute-invocations-per-workgroup", "max-compute-workgroup-size-x", "max-compute-workgroup-storage-size",
    "max-compute-workgroups-per-dimension",
)  # fmt: skip
_PASS_LAUNCHES = 256  # of one submission: a driver may watch how long one takes
INSTALL = "install the package wgpu: pip install 'intarsia[webgpu]'"


DIRECTML = "DirectML"
"""A backend's name beside wgpu's own: Direct3D 12's adapters in the order in which Windows numbers them."""
_RANKS = {"DiscreteGPU": 0, "IntegratedGPU": 1, "VirtualGPU": 2, "CPU": 4}
_SAVING_RANKS = {**_RANKS, "IntegratedGPU": -1}
_OTHER_RANK = 3


@functools.cache
def adapters(backend: str = "") -> tuple[Any, ...]:
    """Adapters (wgpu.GPUAdapter) with compute shaders, of one backend ("Vulkan", "D3D12", "Metal") where it is given.

    Hardware comes before software, but for `DIRECTML`; OpenGL is not among them.
    """
    if importlib.util.find_spec("wgpu") is None:
        return ()
    os.environ.setdefault("XDG_RUNTIME_DIR", "/tmp")  # noqa: S108 # wgpu looks for displays there, and complains
    import wgpu

    found = [a for a in wgpu.gpu.enumerate_adapters_sync() if a.info["backend_type"] != "OpenGL"]
    wanted = "D3D12" if backend == DIRECTML else backend
    found = [a for a in found if not wanted or a.info["backend_type"] == wanted]
    return tuple(found) if backend == DIRECTML else tuple(sorted(found, key=_rank))


def _rank(adapter: Any, ranks: Mapping[str, int] = _RANKS) -> int:
    return ranks.get(adapter.info["adapter_type"], _OTHER_RANK)


def preferred(backend: str, saves_power: bool = False) -> int:
    """The number of the adapter that a program is given which names none: a discrete one, or an integrated one where it is to
    save power."""
    found, ranks = adapters(backend), _SAVING_RANKS if saves_power else _RANKS
    return min(range(len(found)), key=lambda i: _rank(found[i], ranks), default=0)


def missing(backend: str = "") -> str:
    """What is missing for a device; "" where nothing is."""
    if why := forking.unusable("webgpu"):
        return why
    if importlib.util.find_spec("wgpu") is None:
        return f"the package wgpu is not installed: {INSTALL}"
    if not adapters(backend):
        if backend in ("D3D12", DIRECTML):
            return (
                "wgpu finds no D3D12 adapter: that is for Windows with a driver for Direct3D 12; elsewhere use WebGPU's Vulkan"
            )
        driver = "a Vulkan driver (Debian: mesa-vulkan-drivers has one that needs no GPU)"
        return f"wgpu finds no {backend or 'Vulkan, Metal or Direct3D 12'} adapter: install {driver}"
    return ""


def described(index: int, adapter: Any) -> Device:
    info = adapter.info
    name, software = f"{info['device']} ({info['backend_type']})", info["adapter_type"] == "CPU"
    vendor, model = (int(info.get(key) or 0) for key in ("vendor_id", "device_id"))
    title = info["vendor"] or ""
    return Device("webgpu", index, vendor=title, description=name, software=software, vendor_id=vendor, device_id=model)


_opened: OpenDevices[tuple[str, int, int], WebGpu] = OpenDevices("webgpu", "WebGPU", lambda device: not device.answers())


def open_device(index: int = 0, backend: str = "", memory_limit: int = 0) -> WebGpu:
    """The device of an adapter: one for all sessions of the process, opened again where it was lost.

    Raises:
        EPFail: there is no such adapter, or it gives no device.
    """
    forking.use("webgpu")
    return _opened.get(
        (backend, index, memory_limit),
        lambda: missing(backend) or no_such_device(index, [described(i, a) for i, a in enumerate(adapters(backend))]),
        lambda: WebGpu(index, adapters(backend)[index], memory_limit),
    )


class Bound(NamedTuple):
    """A launch, without the memory that its group of bindings stands for, which may go back to the pool."""

    program: Any
    group: Any
    groups: tuple[int, int, int]


class WebGpu(Gpu):
    """One logical device of wgpu."""

    def __init__(self, index: int, adapter: Any, memory_limit: int = 0) -> None:
        import wgpu

        self._wgpu = wgpu
        features = [f for f in _FEATURES if f in adapter.features]
        try:
            self._device = adapter.request_device_sync(
                required_features=features, required_limits={n: adapter.limits[n] for n in _LIMITS}
            )
        except Exception as error:
            raise EPFail(f"WebGPU: {described(index, adapter).description} gives no device: {error}") from error
        limits = adapter.limits
        dialect = Wgsl(
            features,
            Limits(
                min(limits["max-storage-buffers-per-shader-stage"], 32),
                min(limits["max-compute-invocations-per-workgroup"], 256),
                limits["max-compute-workgroup-storage-size"], limits["max-compute-workgroups-per-dimension"],
                limits["max-storage-buffer-binding-size"],
            ),
            PROCESSOR if adapter.info["adapter_type"] == "CPU" else GPU,
        )  # fmt: skip
        self.binding_alignment = max(
            limits["min-storage-buffer-offset-alignment"], limits["min-uniform-buffer-offset-alignment"]
        )
        assert ALIGNMENT % self.binding_alignment == 0, self.binding_alignment
        sizes = DeviceLimits(limits["max-buffer-size"] // ALIGNMENT * ALIGNMENT, limits["max-storage-buffer-binding-size"])
        self._identity = "webgpu", wgpu.__version__, *(f"{name}={value}" for name, value in sorted(adapter.info.items()))
        self._last: Any = None  # a buffer that is read to wait for everything
        super().__init__(described(index, adapter), dialect, sizes, memory_limit)

    def identity(self) -> tuple[str, ...]:
        """As the adapter describes itself: Vulkan drivers with their versions."""
        return self._identity

    def answers(self) -> bool:
        """Whether the device is still there, which wgpu tells only where something is done with it."""
        try:
            self._device.create_buffer(size=4, usage=self._wgpu.BufferUsage.COPY_DST).destroy()
        except self._wgpu.GPUError as error:
            if _is_lost(error):
                self.lost = str(error)
        return not self.lost

    def finish(self) -> None:
        """By a read, which comes behind everything: `on_submitted_work_done` fails in wgpu 0.32."""
        with self.lock:
            if self._last is None:
                self._last = self._create(4)
            self._read(self._last, 0, 4)

    def _create(self, nbytes: int) -> Any:
        usage = self._wgpu.BufferUsage
        flags = usage.STORAGE | usage.UNIFORM | usage.COPY_SRC | usage.COPY_DST
        try:
            return self._device.create_buffer(size=nbytes, usage=flags)
        except self._wgpu.GPUOutOfMemoryError as error:
            raise OutOfMemory(f"{self.device}: {nbytes:,} bytes could not be had: {error}") from error
        except self._wgpu.GPUError as error:
            raise self._failure("could not make a buffer", error) from error

    def _destroy(self, buffer: Any) -> None:
        buffer.destroy()

    def _write(self, buffer: Any, offset: int, data: memoryview) -> None:
        try:
            self._device.queue.write_buffer(buffer, offset, data)  # copies to memory of its own, and does not wait
        except self._wgpu.GPUError as error:
            raise self._failure("could not write a buffer", error) from error
        self.counters.staged_in_nbytes += data.nbytes

    def _read(self, buffer: Any, offset: int, nbytes: int) -> memoryview:
        try:
            found: memoryview = self._device.queue.read_buffer(buffer, offset, nbytes)
        except (self._wgpu.GPUError, RuntimeError) as error:
            raise self._failure("could not read a buffer", error) from error
        return found

    def _copy(self, source: Slice, target: Slice, nbytes: int) -> None:
        try:
            encoder = self._device.create_command_encoder()
            encoder.copy_buffer_to_buffer(source.memory.buffer, source.offset, target.memory.buffer, target.offset, nbytes)
            self._device.queue.submit([encoder.finish()])
        except self._wgpu.GPUError as error:
            raise self._failure("could not copy a buffer", error) from error

    def _compile(self, kernel: Kernel) -> Any:
        try:
            module = self._device.create_shader_module(code=kernel.source)
            return self._device.create_compute_pipeline(layout="auto", compute={"module": module, "entry_point": "main_kernel"})
        except self._wgpu.GPUError as error:
            if _is_lost(error):
                raise self._failure("could not compile a kernel", error) from error
            raise EPFail(f"{self.device}: a kernel was not accepted: {_first_lines(error)}\n{kernel.source}") from error

    def bind(self, launch: Launch) -> Bound:
        entries = [
            {"binding": i, "resource": {"buffer": s.memory.buffer, "offset": s.offset, "size": _bound_nbytes(s)}}
            for i, s in enumerate(launch.bindings)
        ]
        try:
            group = self._device.create_bind_group(layout=launch.program.get_bind_group_layout(0), entries=entries)
            return Bound(launch.program, group, launch.kernel.groups)
        except self._wgpu.GPUError as error:
            raise self._failure("could not bind buffers", error) from error

    def run(self, bound: Sequence[Bound]) -> None:
        with self.lock:
            try:
                for start in range(0, len(bound), _PASS_LAUNCHES):
                    encoder = self._device.create_command_encoder()
                    compute = encoder.begin_compute_pass()
                    self._record(compute, bound[start : start + _PASS_LAUNCHES])
                    compute.end()
                    self._device.queue.submit([encoder.finish()])
            except self._wgpu.GPUError as error:
                raise self._failure("could not start kernels", error) from error
            self.counters.launches += len(bound)

    def _record(self, compute: Any, bound: Sequence[Bound]) -> None:
        latest = None
        for program, group, groups in bound:
            if program is not latest:
                compute.set_pipeline(program)
                latest = program
            compute.set_bind_group(0, group)
            compute.dispatch_workgroups(*groups)

    def timed(self, bound: Sequence[Bound]) -> list[float]:
        """Each launch in a pass of its own, between two timestamps of the device."""
        if "timestamp-query" not in self._device.features:
            return super().timed(bound)
        found: list[float] = []
        with self.lock:
            try:
                for start in range(0, len(bound), _PASS_LAUNCHES):
                    found += self._timed_passes(bound[start : start + _PASS_LAUNCHES])
            except (self._wgpu.GPUError, RuntimeError) as error:
                raise self._failure("could not start kernels", error) from error
            self.counters.launches += len(bound)
        return found

    def _timed_passes(self, bound: Sequence[Bound]) -> list[float]:
        count, usage = 2 * len(bound), self._wgpu.BufferUsage
        times = self._device.create_query_set(type="timestamp", count=count)
        target = self._device.create_buffer(size=8 * count, usage=usage.QUERY_RESOLVE | usage.COPY_SRC)
        encoder = self._device.create_command_encoder()
        for i, one in enumerate(bound):
            at = {"query_set": times, "beginning_of_pass_write_index": 2 * i, "end_of_pass_write_index": 2 * i + 1}
            compute = encoder.begin_compute_pass(timestamp_writes=at)
            self._record(compute, (one,))
            compute.end()
        encoder.resolve_query_set(times, 0, count, target, 0)
        self._device.queue.submit([encoder.finish()])
        ticks = np.frombuffer(self._device.queue.read_buffer(target), np.uint64).astype(np.int64)
        target.destroy()
        return [float(t) * self._period() for t in ticks[1::2] - ticks[::2]]

    def _period(self) -> float:
        """Nanoseconds of a tick, which wgpu tells through its library only."""
        from wgpu.backends.wgpu_native import lib

        return float(lib.wgpuQueueGetTimestampPeriod(self._device.queue._internal))

    def _failure(self, what: str, error: Exception) -> EPFail | OutOfMemory:
        """An error of wgpu as one of ours. What waits while the device is lost fails in ways that do not say so."""
        text = f"{self.device} {what}: {_first_lines(error)}"
        if _is_lost(error) or self.lost or not self.answers():
            self.lost = self.lost or str(error)
            return DeviceLost(f"{text}; what was in its memory is gone: make the session again")
        if isinstance(error, self._wgpu.GPUOutOfMemoryError) or "memory" in str(error).lower() and "out" in str(error).lower():
            return OutOfMemory(f"{text}: use a smaller batch or a shorter input")
        return EPFail(text)


def _bound_nbytes(place: Slice) -> int:
    """Bytes to bind: whole groups of 16, as arrays of vectors need."""
    return max(-(-place.nbytes // 16) * 16, 16)


def _is_lost(error: Exception) -> bool:
    return "is lost" in str(error).lower() or "device lost" in str(error).lower()


def _first_lines(error: Exception) -> str:
    return " ".join(str(error).split()[:60])
