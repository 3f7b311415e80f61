"""Launches that come again, as one graph that is started at once.

A graph is made of nodes in a row. A kernel's node is added by itself; what a library starts is captured, in a stream that
nobody else uses, as a graph of its own inside. So nothing depends on where values lie: where a run has other inputs or outputs,
the nodes that read or write them are given the new addresses, and the graph is started as it is.
"""

from __future__ import annotations

import logging
import weakref
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any

from intarsia.device.libraries import LibraryProgram
from intarsia.errors import DeviceLost, EPFail, OutOfMemory
from intarsia.lazy_dataclass import dataclass
from intarsia.machine import fork_safety
from intarsia.printable import get_logger

if TYPE_CHECKING:
    from intarsia.device.streams import Call, StreamDevice

_logger = get_logger("intarsia")
LEAST_LAUNCHES = 4
"""Below, starting kernels one by one takes no longer than starting a graph."""
MOST_LAUNCHES = 1 << 16
MOST = 32
"""Graphs of a session."""
MET, MET_REQUESTED = 3, 2
"""In which run of the same launches they become a graph: by itself, and where the user requested it."""
USE = "graphs of launches"
_STRETCHES = 64  # of one state: different stretches of launches between looks of the host


class RecordingError(Exception):
    """Launches that cannot be a graph: `node` is whose launch prevents it ("": none by itself)."""

    def __init__(self, why: str, node: str = "") -> None:
        super().__init__(why)
        self.node = node


class Recording:
    """Launches as a graph of the device.

    Args:
        varying: places of the calls whose addresses change from run to run.

    Raises:
        RecordingError: the driver or a library takes no graph of them.
    """

    def __init__(self, gpu: StreamDevice, calls: Sequence[Call], varying: Sequence[int]) -> None:
        self.gpu, self.count = gpu, len(calls)
        driver = gpu._driver
        self._graph = _checked(gpu, driver.graph(), "no graph can be made")
        self._nodes: list[Any] = []
        try:
            before = None
            for call in calls:
                before = self._added(call, before)
                self._nodes.append(before)
            free = _checked(gpu, driver.memory_info(), "the device does not tell its memory")[0]
            executable = _checked(gpu, driver.instantiate(self._graph), "a graph cannot be instantiated")
        except BaseException:
            driver.drop_graph(self._graph)
            raise
        self._executable = executable
        self._dropped = weakref.finalize(self, _drop, gpu, executable, self._graph)
        self._dropped.atexit = False
        _checked(gpu, driver.upload(executable, gpu._stream), "a graph cannot be brought to the device")
        left = _checked(gpu, driver.memory_info(), "the device does not tell its memory")[0]
        self.nbytes = max(free - left, 0)
        self._calls = {i: calls[i] for i in varying}

    def _added(self, call: Call, before: Any) -> Any:
        driver = self.gpu._driver
        if isinstance(call.function, LibraryProgram):
            inner = captured(self.gpu, call)
            try:
                made = driver.add_graph(self._graph, before, inner)
                return _checked(self.gpu, made, "a library's call is refused", call.node)
            finally:
                driver.drop_graph(inner)
        made = driver.add_kernel(
            self._graph, before, call.function, call.groups, call.threads, call.address, call.shared_nbytes
        )  # fmt: skip
        return _checked(self.gpu, made, "a kernel is refused", call.node)

    def start(self, calls: Sequence[Call]) -> None:
        """Start these calls, which are the same but for the addresses of the varying ones.

        Raises:
            RecordingError: they could not be started; nothing has been.
            DeviceLost: as `StreamDevice.run`.
        """
        gpu, driver = self.gpu, self.gpu._driver
        for i, before in self._calls.items():
            call = calls[i]
            if call.key != before.key:
                self._change(i, call)
                self._calls[i] = call
        _checked(gpu, driver.start_graph(self._executable, gpu._stream), "a graph cannot be started")

    def _change(self, i: int, call: Call) -> None:
        driver, node = self.gpu._driver, self._nodes[i]
        if isinstance(call.function, LibraryProgram):
            inner = captured(self.gpu, call)
            try:
                _checked(
                    self.gpu, driver.change_graph(self._executable, node, inner), "a library's call cannot change", call.node
                )
            finally:
                driver.drop_graph(inner)
            return
        given = (call.function, call.groups, call.threads, call.address, call.shared_nbytes)
        made = driver.change_kernel(self._executable, node, *given)
        _checked(self.gpu, made, "a kernel's arguments cannot change", call.node)

    def drop(self) -> None:
        self._dropped()


def captured(gpu: StreamDevice, call: Call) -> Any:
    """What a library starts for a call, as a graph."""
    driver, stream = gpu._driver, gpu.capture_stream
    _checked(gpu, driver.begin_capture(stream), "capture cannot begin", call.node)
    try:
        wrong = call.function.start(stream, call.values)
    except BaseException:
        driver.end_capture(stream)
        raise
    error, *made = driver.end_capture(stream)
    if wrong:
        if not int(error) and made and made[0]:
            driver.drop_graph(made[0])
        raise RecordingError(f"{call.function.title} cannot be captured: {wrong}", call.node)
    return _checked(gpu, (error, *made), f"{call.function.title} cannot be captured", call.node)


def _checked(gpu: StreamDevice, answer: tuple[Any, ...], what: str, node: str = "") -> Any:
    try:
        return gpu._ask(answer, what)
    except DeviceLost:
        raise
    except (EPFail, OutOfMemory) as error:
        raise RecordingError(str(error), node) from error


def _drop(gpu: StreamDevice, executable: Any, graph: Any) -> None:
    if gpu.lost:
        return
    with gpu.lock, gpu._current():
        gpu._driver.drop_executable(executable)
        gpu._driver.drop_graph(graph)


@dataclass(eq=False)
class Stretch:
    """Launches that are started together, of one state of a plan.

    Attributes:
        met: how often they have been started without being a graph.
        refused: why they are none and will be none; "" where they may be.
    """

    met: int = 0
    recording: Recording | None = None
    refused: str = ""


@dataclass
class Stretches:
    """Of one state: by the numbers of their launches."""

    found: dict[object, Stretch] = field(default_factory=dict)

    def of(self, key: object) -> Stretch | None:
        stretch = self.found.get(key)
        if stretch is None and len(self.found) < _STRETCHES:
            stretch = self.found[key] = Stretch()
        return stretch


class Graphs:
    """The graphs of one session on one device.

    Args:
        requested: the user wants them: from the second run on, however few launches there are; what prevents them is a warning;
            else they are made where they pay, and what prevents them is in the log at level INFO.
    """

    def __init__(self, gpu: StreamDevice, requested: bool) -> None:
        self.gpu, self.requested = gpu, requested
        self._stretches: OrderedDict[int, weakref.ref[Stretch]] = OrderedDict()
        self._said: dict[tuple[str, str], None] = {}
        self._lock = fork_safety.lock()
        gpu.graph_keepers.add(self)

    @property
    def prevented(self) -> list[tuple[str, str]]:
        """What prevented a graph: the node, where one did, and why."""
        return list(self._said)

    def say(self, why: str, node: str = "") -> None:
        """Tell once what prevents a graph."""
        with self._lock:
            if (node, why) in self._said:
                return
            self._said[node, why] = None
        level = logging.WARNING if self.requested else logging.INFO
        text = f"{node}: {why}" if node else why
        _logger.log(level, "%s: launches are not captured as a graph: %s", self.gpu.device, text)

    def run(self, stretches: Stretches, key: object, calls: Sequence[Call], varying: Callable[[], Sequence[int]]) -> None:
        """Start launches, as a graph once they have come often enough. `varying`: see `Recording`."""
        gpu = self.gpu
        with gpu.lock:
            stretch = stretches.of(key)
            if stretch is not None and self._is_due(stretch, len(calls)):
                self._record(stretch, calls, varying())
            if stretch is None or stretch.recording is None or not self._replayed(stretch, calls):
                gpu.run(calls)

    def _is_due(self, stretch: Stretch, count: int) -> bool:
        if stretch.recording is not None or stretch.refused:
            return False
        stretch.met += 1
        if count > MOST_LAUNCHES or count < (1 if self.requested else LEAST_LAUNCHES):
            return False
        return stretch.met >= (MET_REQUESTED if self.requested else MET)

    def _record(self, stretch: Stretch, calls: Sequence[Call], varying: Sequence[int]) -> None:
        gpu = self.gpu
        try:
            with gpu._current():
                made = Recording(gpu, calls, varying)
            limit = gpu.memory_limit
            if limit and gpu.counters.allocated_nbytes + made.nbytes > limit:
                made.drop()
                raise RecordingError(f"it needs {made.nbytes:,} bytes, more than the limit of {limit:,} leaves")
        except RecordingError as error:
            self._refuse(stretch, error)
            return
        gpu.account(USE, made.nbytes)
        gpu.counters.graphs += 1
        stretch.recording = made
        weakref.finalize(made, gpu.forget, USE, made.nbytes).atexit = False
        key = id(stretch)
        self._stretches[key] = weakref.ref(stretch, lambda _: self._stretches.pop(key, None))
        while len(self._stretches) > MOST:
            self._forget(next(iter(self._stretches)))

    def _refuse(self, stretch: Stretch, error: RecordingError) -> None:
        stretch.refused, stretch.recording = str(error), None
        self._stretches.pop(id(stretch), None)
        self.say(str(error), error.node)

    def _replayed(self, stretch: Stretch, calls: Sequence[Call]) -> bool:
        """Whether the launches have been started as a graph."""
        assert stretch.recording is not None
        self._stretches.move_to_end(id(stretch))
        try:
            with self.gpu._current():
                stretch.recording.start(calls)
        except RecordingError as error:
            self._refuse(stretch, error)
            return False
        self.gpu.counters.launches += len(calls)
        self.gpu.counters.replays += 1
        return True

    def _forget(self, key: int) -> None:
        found = self._stretches.pop(key, None)
        stretch = found() if found is not None else None
        if stretch is not None:
            stretch.recording, stretch.met = None, 0

    def release(self) -> None:
        """Drop all graphs; launches that come again are captured anew."""
        with self.gpu.lock:
            while self._stretches:
                self._forget(next(iter(self._stretches)))

    def lines(self) -> list[str]:
        """For people."""
        with self.gpu.lock:
            made = [s.recording for ref in self._stretches.values() if (s := ref()) is not None and s.recording is not None]
        counts, nbytes, device = ", ".join(str(r.count) for r in made), sum(r.nbytes for r in made), self.gpu.device
        found = [f"{device}: graphs of {counts} launches, {nbytes:,} bytes"] if made else []
        whys = [f"{node}: {why}" if node else why for node, why in self.prevented]
        return [*found, *(f"{device}: not captured as a graph: {why}" for why in whys)]
