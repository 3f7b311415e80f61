"""cuBLASLt and cuDNN of one device: loaded when a product, a convolution or attention first requests them."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from intarsia.codegen.clike.vendor_libraries.calls import Attention, Call, Choice, MatrixProduct, text
from intarsia.codegen.clike.vendor_libraries.strided_views import View
from intarsia.device import cublaslt, cudnn, cudnn_calls
from intarsia.device.cublaslt import CublasLt
from intarsia.device.cudnn import Cudnn
from intarsia.device.libraries import LibraryProgram, NotOfferedError
from intarsia.device.nvidia_libraries import LibraryMissingError, located
from intarsia.errors import OutOfMemory
from intarsia.lazy_dataclass import dataclass
from intarsia.printable import get_logger

if TYPE_CHECKING:
    from intarsia.device.streams import StreamDevice

_logger = get_logger("intarsia")
PRODUCT_WORKSPACE = 32 << 20
"""Scratch of a matrix product, at most: what NVIDIA advises for Hopper."""
CLAMPED_WORKSPACE = 32 << 20
"""Scratch of a convolution without `cudnn_conv_use_max_workspace`, at most (onnxruntime's number)."""
_REPEATS = 3


@dataclass(frozen=True)
class LibraryOptions:
    """onnxruntime's options that choose among algorithms of libraries, and which libraries are used at all."""

    products: bool = True
    convolutions: bool = True
    tf32: bool = True
    search: Literal["EXHAUSTIVE", "HEURISTIC", "DEFAULT"] = "EXHAUSTIVE"
    max_workspace: bool = True
    channels_last: bool = False


class CudaLibraries:
    """What `codegen.clike.vendor_libraries.calls.Libraries` requires, for a device.

    Args:
        most: CUDA version of the driver.
        started: libraries that run on the device already, or why they do not, by their names.
    """

    def __init__(self, device: StreamDevice, options: LibraryOptions, most: int, started: dict[str, Any]) -> None:
        self.device, self.options, self._most, self._started = device, options, most, started
        self._prepared: dict[str, LibraryProgram | str] = {}

    # --- libraries ---

    def missing(self, library: str) -> Choice | None:
        found = self._library(library)
        return found if isinstance(found, Choice) else None

    def _library(self, name: str) -> Any:
        option = "enable_cudnn" if name == "cuDNN" and self.options.products else "use_libraries"
        if not (self.options.convolutions if name == "cuDNN" else self.options.products):
            return Choice(name, "library-missing", f"{name} is switched off by the option {option!r}", f"set {option!r} to 1")
        with self.device.lock:
            if name not in self._started:
                self._started[name] = self._start(name)
            return self._started[name]

    def _start(self, name: str) -> Any:
        start: Callable[[int], Any] = {"cuBLASLt": CublasLt, "cuDNN": Cudnn}[name]
        try:
            with self.device._current():
                return start(self._most)
        except LibraryMissingError as error:
            _logger.info("%s: kernels of its own instead of %s's: %s: %s", self.device.device, name, error, error.suggestion)
            return Choice(name, "library-missing", str(error), error.suggestion)

    @property
    def identity(self) -> str:
        """What plans with libraries depend on besides the model. Nothing is loaded to tell."""
        files = [located(wanted, self._most) for wanted in (cublaslt.WANTED, cudnn.WANTED)]
        return f"{self.device.device.description}; {self.options}; {self._most}; {'; '.join(files)}"

    # --- calls ---

    def declined(self, call: Call) -> str:
        try:
            self.prepared(call)
        except NotOfferedError as error:
            return str(error)
        return ""

    @property
    def channels_last(self) -> bool:
        return self.options.channels_last

    def prepared(self, call: Call) -> LibraryProgram:
        """The call's program, made once.

        Raises:
            NotOfferedError: the library has nothing for it, or is missing.
        """
        key = text(call)
        with self.device.lock:
            found = self._prepared.get(key)
            if found is None:
                try:
                    with self.device._current():
                        found = self._made(call)
                except NotOfferedError as error:
                    found = str(error)
                self._prepared[key] = found
        if isinstance(found, str):
            raise NotOfferedError(found)
        return found

    def _made(self, call: Call) -> LibraryProgram:
        library = self._library(call.library)
        if isinstance(library, Choice):
            raise NotOfferedError(library.reason)
        if isinstance(call, MatrixProduct):
            program: LibraryProgram = library.prepared(call, self.options.tf32, PRODUCT_WORKSPACE)
            return program
        if isinstance(call, Attention):
            return cudnn_calls.attention(library, call, self.workspace_nbytes)
        o = self.options
        return cudnn_calls.convolution(library, call, o.tf32, o.search, self.workspace_nbytes, self._fastest)

    @property
    def workspace_nbytes(self) -> int:
        """Scratch of a convolution, at most."""
        if not self.options.max_workspace:
            return CLAMPED_WORKSPACE
        return (self.device.memory_limit or self.device.limits.buffer_nbytes) // 4

    # --- the fastest ---

    def _fastest(self, programs: Sequence[LibraryProgram], views: Sequence[View]) -> LibraryProgram:
        """By running each on memory of its own; the first where there is no memory for that."""
        device = self.device
        workspace = max(p.workspace_nbytes for p in programs)
        try:
            sizes = [(v.offset + sum((n - 1) * s for n, s in zip(v.shape, v.strides, strict=True)) + 1, v) for v in views]
            lent = [device.allocate(count * v.dtype.numpy.itemsize, "a search for algorithms") for count, v in sizes]
            lent += [device.allocate(workspace, "a search for algorithms")] if workspace else []
        except OutOfMemory as error:
            _logger.info("%s: %s is not searched for by running it: %s", device.device, programs[0].title, error)
            return programs[0]
        addresses = np.array([m.buffer for m in lent], np.uint64)
        times = [self._time(p, addresses) for p in programs]
        best = min(range(len(programs)), key=times.__getitem__)
        return programs[best]

    def _time(self, program: LibraryProgram, addresses: np.ndarray) -> float:
        """Milliseconds of a run; infinite where it does not run."""
        device, driver, stream = self.device, self.device._driver, self.device._stream
        with contextlib.ExitStack() as stack:
            events = []
            for _ in range(_REPEATS + 2):
                events.append(device._ask(driver.event(True), "gives no event"))
                stack.callback(driver.drop_event, events[-1])
            for event in events:
                device._ask(driver.record(event, stream), "could not record an event")
                if event is not events[-1] and program.start(stream, addresses):
                    return float("inf")
            device._ask(driver.wait(events[-1]), "failed in a kernel")
            pairs = list(itertools.pairwise(events))[1:]
            return min(float(device._ask(driver.milliseconds(a, b), "could not tell a time")) for a, b in pairs)
