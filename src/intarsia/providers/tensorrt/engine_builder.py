"""From a network to an engine: what the options mean for a build, its progress, and why one fails."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

from intarsia import progress
from intarsia.errors import EPFail, OutOfMemory
from intarsia.lazy_dataclass import dataclass
from intarsia.printable import get_logger
from intarsia.providers.tensorrt.library import Library, told
from intarsia.providers.tensorrt.options import Settings
from intarsia.providers.tensorrt.profiles import Shape3
from intarsia.providers.tensorrt.translator import TranslatedPart

_logger = get_logger("intarsia.providers.tensorrt")
_BUILDING = threading.Lock()  # a build takes all cores and much memory: one at a time in a process
_NO_MEMORY = ("out of memory", "insufficient memory", "workspace", "memalloc")


@dataclass(frozen=True)
class BuildRequest:
    """What one engine is built for.

    Attributes:
        settings: of the options.
        profiles: shapes of the part's inputs, a dict for each profile; () where all sizes are numbers.
        chips: names of `CHIPS` to build for; (): the GPU that is there.
    """

    settings: Settings
    profiles: Sequence[dict[str, Shape3]] = ()
    chips: tuple[str, ...] = ()


@dataclass(frozen=True)
class Built:
    """An engine, and the measured times of kernels for later builds (b"": none)."""

    engine: bytes
    timing_cache: bytes = b""


def build(part: TranslatedPart, request: BuildRequest, timing_cache: bytes | None = None) -> Built:
    """The engine of a part. `timing_cache`: times of earlier builds (None: none are cached).

    Raises:
        OutOfMemory: kernels need more scratch memory than the options allow, or the builder more than there is.
        EPFail: the builder cannot make it; the message has what it said.
        ModelLoadCanceled: whoever watches the progress wanted to stop.
    """
    network, library = part.network, part.network.library
    config = network.builder.create_builder_config()
    monitor = _monitor(library)
    config.progress_monitor = monitor
    with library.messages.collected() as lines, _BUILDING:
        _configure(config, library, request)
        for profile in request.profiles:
            _add_profile(network.builder, config, profile, library)
        times = _timing_cache(config, library, timing_cache)
        made = network.builder.build_serialized_network(network.handle, config)
    if monitor.failure is not None:
        raise monitor.failure
    if made is None:
        raise _failure(library, request, lines)
    if request.settings.verbose:
        for line in lines:
            _logger.info("%s: %s", library.title, line)
    return Built(bytes(made), bytes(config.get_timing_cache().serialize()) if times else b"")


def _failure(library: Library, request: BuildRequest, lines: list[str]) -> EPFail | OutOfMemory:
    said = told(lines, "it gave no engine and no reason")
    if any(word in line.lower() for line in lines for word in _NO_MEMORY):
        limit = request.settings.workspace_nbytes
        allowed = f"the options allow {limit:,} bytes of scratch memory" if limit else "all of the device's memory was allowed"
        return OutOfMemory(
            f"{library.title} has too little memory to build it: {said} ({allowed}); raise the limit, or use a smaller model"
        )
    return EPFail(f"{library.title} builds no engine of it: {said}")


def _configure(config: Any, library: Library, request: BuildRequest) -> None:
    trt, settings = library.module, request.settings
    if settings.workspace_nbytes:
        config.set_memory_pool_limit(trt.MemoryPoolType.WORKSPACE, settings.workspace_nbytes)
    if settings.shared_nbytes:
        config.set_memory_pool_limit(trt.MemoryPoolType.TACTIC_SHARED_MEMORY, settings.shared_nbytes)
    config.profiling_verbosity = trt.ProfilingVerbosity.DETAILED
    if settings.stripped:
        config.set_flag(trt.BuilderFlag.REFIT)
        config.set_flag(trt.BuilderFlag.STRIP_PLAN)
    if settings.sparse:
        config.set_flag(trt.BuilderFlag.SPARSE_WEIGHTS)
    if library.rtx:
        _set_chips(config, library, request.chips)
        return
    if request.chips:
        raise EPFail(f"{library.title} builds for the GPU that is there; engines for other chips need TensorRT-RTX")
    config.builder_optimization_level = settings.level
    if settings.streams >= 0:
        config.max_aux_streams = settings.streams
    if settings.hardware_compatible:
        config.hardware_compatibility_level = trt.HardwareCompatibilityLevel.AMPERE_PLUS


def _set_chips(config: Any, library: Library, chips: tuple[str, ...]) -> None:
    kinds = library.module.ComputeCapability
    config.num_compute_capabilities = max(len(chips), 1)
    for i, name in enumerate(chips or ("CURRENT",)):
        if not config.set_compute_capability(getattr(kinds, name), i):
            raise EPFail(f"{library.title} does not build for {name}")


def _add_profile(builder: Any, config: Any, shapes: dict[str, Shape3], library: Library) -> None:
    profile = builder.create_optimization_profile()
    for name, (least, best, most) in shapes.items():
        profile.set_shape(name, least, best, most)
    if config.add_optimization_profile(profile) < 0:
        raise EPFail(f"{library.title} takes no profile with {shapes}")


def _timing_cache(config: Any, library: Library, data: bytes | None) -> bool:
    """Give the builder measured times; whether there will be some to keep. TensorRT-RTX measures none."""
    if data is None or library.rtx:
        return False
    cache = config.create_timing_cache(data) or config.create_timing_cache(b"")
    return bool(cache is not None and config.set_timing_cache(cache, False))


def _monitor(library: Library) -> Any:
    """Tells `progress` of the builder's outermost phase and lets it stop the build. It listens in this thread alone."""
    base, maker = library.module.IProgressMonitor, threading.get_ident()

    class Monitor(base):  # type: ignore[misc,valid-type] # the module is not known here
        """The builder calls it, from threads of its own as well."""

        failure: BaseException | None = None

        def __init__(self) -> None:
            base.__init__(self)
            self.phases: dict[str, int] = {}

        def phase_start(self, phase_name: str, parent_phase: str | None, num_steps: int) -> None:
            if not parent_phase:
                self.phases[phase_name] = num_steps

        def phase_finish(self, phase_name: str) -> None:
            self.phases.pop(phase_name, None)

        def step_complete(self, phase_name: str, step: int) -> bool:
            total = self.phases.get(phase_name)
            if total is not None and self.failure is None and threading.get_ident() == maker:
                try:
                    progress.step("compile", min(step, total), total)
                except BaseException as failure:  # noqa: BLE001 # raised where the build was requested
                    self.failure = failure
            return self.failure is None

    return Monitor()
