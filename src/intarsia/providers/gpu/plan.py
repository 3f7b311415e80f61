"""A part bound to the sizes of its inputs: launches as data, where every value lies, and what a run has to fill in."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import field
from typing import Any

import numpy as np

from intarsia.codegen.clike.schedules import Kernel
from intarsia.codegen.clike.split_into_kernels import Cut, Job
from intarsia.codegen.clike.storage_types import stored_nbytes
from intarsia.codegen.clike.vendor_libraries.calls import Libraries
from intarsia.device.gpu import Gpu, Launch, Slice, aligned
from intarsia.device.graphs import Graphs, Stretches
from intarsia.device.libraries import NotOfferedError
from intarsia.ep.device import DeviceTensor
from intarsia.ep.provider import RunContext
from intarsia.errors import InvalidArgument, OutOfMemory
from intarsia.graph.dtypes import DType
from intarsia.graph.model import Constant, Node
from intarsia.lazy_dataclass import dataclass
from intarsia.machine import fork_safety
from intarsia.partition.partition import label
from intarsia.plan.memory_layout import place
from intarsia.primitives.lang import Tensor, walk
from intarsia.providers.gpu.launch_ranges import NO_LIMIT, Region, nested, parts
from intarsia.run_status import MESSAGES

JobObserver = Callable[[Job, int, int, int], None]
"""Is told of a launch: when it began and ended (`time.perf_counter_ns`), and the bytes it reads and writes."""


def described(node: Node) -> str:
    return f"node {label(node)!r} ({node.metadata.get('written for') or node.qualified_op})"


def _lives(
    jobs: Sequence[Job], outside: Collection[str], regions: Sequence[Region]
) -> tuple[dict[str, int], dict[str, int]]:  # fmt: skip
    """First and last launch that uses each value but those `outside`. What a loop finds lives until its end, what it leaves
    from its beginning on, what the host looks at until then."""
    first: dict[str, int] = {}
    last: dict[str, int] = {}
    for i, job in enumerate(jobs):
        for name in (*job.reads, *job.writes):
            if name not in outside:
                first.setdefault(name, i)
                last[name] = i
    for region in regions:
        for name, at in region.reads:
            if name in last:
                last[name] = max(last[name], at)
        if region.middle is not None:
            continue
        for job in jobs[region.start : region.stop]:
            for name in (*job.reads, *job.writes):
                if name in last and first[name] < region.start:
                    last[name] = max(last[name], region.stop - 1)
                elif name in last and last[name] >= region.stop:
                    first[name] = region.start
    return first, last


def values_nbytes(
    jobs: Sequence[Job], stored: Mapping[str, tuple[DType, tuple[int, ...]]], outside: Collection[str],
    regions: Sequence[Region],
) -> int:  # fmt: skip
    """What the values between launches will take, but for the scratch of libraries' calls."""
    first, last = _lives(jobs, outside, regions)
    sizes = [aligned(stored_nbytes(stored[n][0], math.prod(stored[n][1]))) for n in first]
    return place(list(zip(sizes, first.values(), (last[n] for n in first), strict=True)))[1]


_SCRATCH = "%scratch of "  # before the number of a launch
_FEWEST, _MOST = 128, 1024  # launches of a loop that are started at once
_RETAINED_BOUND = 4  # of a launch on inputs and outputs
_PATIENCE_S = 0.05  # how long whoever stops a run may have to wait for launches on their way


def leaf_of(how: Tensor) -> str:
    """The one leaf that an expression reads."""
    (leaf,) = {t.attrs[0] for t in walk([how]) if t.prim == "input"}
    return str(leaf)


class Constants:
    """Constants on the device, copied when a plan first needs them."""

    def __init__(self, gpu: Gpu) -> None:
        self.gpu = gpu
        self._slices: dict[str, Slice] = {}
        self._lock = fork_safety.lock()

    def slice(self, name: str, constant: Constant) -> Slice:
        return self.made(name, lambda: self._written(constant))

    def _written(self, constant: Constant) -> Slice:
        found = self.gpu.write(constant.numpy(), "weights")
        constant.forget()
        return found

    def made(self, name: str, make: Callable[[], Slice]) -> Slice:
        """What is on the device by a name; made where it is not there yet."""
        with self._lock:
            found = self._slices.get(name)
            if found is None:
                found = self._slices[name] = make()
            return found

    def prepared(self, name: str, how: Tensor, source: Constant) -> Slice:
        """What is computed of a constant (the leaf `=` and its name), by the device."""
        return self.made(name, lambda: self._computed(how, source))

    def _computed(self, how: Tensor, source: Constant) -> Slice:
        leaf = leaf_of(how)
        cut = Cut(self.gpu.dialect)
        cut.stored[leaf] = (source.dtype, source.shape)
        cut.store(cut.settle(how), "made")
        given = {n: self.gpu.write(a, "weights") for n, a in cut.tables.items()}
        plan = Plan(self.gpu, (leaf,), cut.jobs, cut.stored, given, [("made", how.dtype, cut.stored["made"][1])])
        (made,) = plan.run({leaf: self._slices.get(leaf) or self._written(source)}, use="weights")
        handle: Slice = made.handle
        return handle

    def has(self, name: str) -> bool:
        """Whether it is on the device."""
        return name in self._slices

    @property
    def nbytes(self) -> int:
        return sum(s.nbytes for s in self._slices.values())


@dataclass
class State:
    """One caller's scratch: the arena, launches that are tied to it, and the graphs that they have become.

    Attributes:
        bound: None for launches on inputs and outputs, which are tied to each run's memory.
        latest: of those, what they were tied to lately, and what came of it: memory of the pool is often the same again.
    """

    arena: Slice
    status: Slice | None
    bound: list[Any]
    stretches: Stretches = field(default_factory=Stretches)
    latest: dict[int, list[tuple[list[tuple[Any, int, int]], Any]]] = field(default_factory=dict)


@dataclass
class Plan:
    """What `bind` makes. Any number of threads may run one plan.

    Attributes:
        jobs: the launches, in order.
        offsets: values in the arena.
        arena_nbytes: size of the arena: values whose lives do not overlap share memory.
        unshared_nbytes: what the values in the arena would take side by side.
        outputs: name, element type and shape of each.
        regions: control flow, in the order in which regions begin, the outer one first.
        libraries: who prepares jobs that are calls of a library.
        graphs: where launches that come again become graphs; None: they do not.
    """

    gpu: Gpu
    inputs: tuple[str, ...]
    jobs: list[Job]
    stored: Mapping[str, tuple[DType, tuple[int, ...]]]
    constants: Mapping[str, Slice]
    outputs: list[tuple[str, DType, tuple[int, ...]]]
    regions: list[Region] = field(default_factory=list)
    libraries: Libraries | None = None
    graphs: Graphs | None = None
    offsets: dict[str, int] = field(default_factory=dict)
    arena_nbytes: int = 0
    unshared_nbytes: int = 0

    def __post_init__(self) -> None:
        self._fit()
        self.gpu.prepare([job.kernel for job in self.jobs if job.kernel.call is None])
        self._programs = [self._program(job.kernel) for job in self.jobs]
        self._scratch = {i: n for i, p in enumerate(self._programs) if (n := getattr(p, "workspace_nbytes", 0))}
        self._place()
        self._sizes, self._sizes_at = self._upload_sizes()
        self._checked = [i for i, job in enumerate(self.jobs) if job.kernel.checked]
        self._outermost = nested(self.regions)
        self._external = {*self.inputs, *(n for n, _, _ in self.outputs)}
        self._free: list[State] = []

    def _program(self, kernel: Kernel) -> Any:
        if kernel.call is None:
            return self.gpu.program(kernel)
        if self.libraries is None:
            raise NotOfferedError(f"{self.gpu.device} has no {kernel.call.library}")
        return self.libraries.prepared(kernel.call)

    def _fit(self) -> None:
        """Refuse values that the device cannot hold or bind, before any kernel is compiled."""
        gpu = self.gpu
        for name in dict.fromkeys(n for job in self.jobs for n in (*job.writes, *job.reads) if n in self.stored):
            dtype, shape = self.stored[name]
            nbytes, most = stored_nbytes(dtype, math.prod(shape)), gpu.limits.buffer_nbytes
            if nbytes > most:
                raise OutOfMemory(
                    f"{gpu.device}: a value {dtype.onnx_name}{list(shape)} has {nbytes:,} bytes; a buffer of this device "
                    f"has at most {most:,}: use a smaller batch or a shorter input"
                )
        bindings = gpu.dialect.limits.buffers
        for job in self.jobs:
            if sum(job.kernel.windows) > bindings:
                raise OutOfMemory(
                    f"{gpu.device}: {job.node} works on values that take {sum(job.kernel.windows)} bindings of "
                    f"{gpu.limits.binding_nbytes:,} bytes; this device has {bindings}: use a smaller batch or a shorter input"
                )

    def _place(self) -> None:
        """Offsets in the arena by first and last use."""
        outside = {*self.inputs, *self.constants, *(n for n, _, _ in self.outputs)}
        first, last = _lives(self.jobs, outside, self.regions)
        for i in self._scratch:
            first[_scratch_of(i)] = last[_scratch_of(i)] = i
        sizes = {n: aligned(self.nbytes_of(n)) for n in first}
        places, self.arena_nbytes = place([(sizes[n], first[n], last[n]) for n in first])
        self.offsets = dict(zip(first, places, strict=True))
        self.unshared_nbytes = sum(sizes.values())

    def nbytes_of(self, name: str) -> int:
        if name not in self.stored and name in self.constants:  # a table
            return self.constants[name].nbytes
        if name not in self.stored:
            return self._scratch[int(name.removeprefix(_SCRATCH))]
        dtype, shape = self.stored[name]
        return stored_nbytes(dtype, int(np.prod(shape, dtype=np.int64)))

    def _upload_sizes(self) -> tuple[Slice | None, list[int]]:
        """The sizes of all kernels as one constant, and where each kernel's begin; nothing where they are arguments."""
        if self.gpu.dialect.sizes_are_arguments:
            return None, []
        rows: list[np.ndarray] = []
        at: list[int] = []
        total = 0
        for job in self.jobs:
            row = np.zeros(aligned(4 * len(job.kernel.sizes)) // 4 if job.kernel.sizes else 0, np.int32)
            row[: len(job.kernel.sizes)] = job.kernel.sizes
            at.append(total)
            rows.append(row)
            total += row.nbytes
        return (self.gpu.write(np.concatenate(rows), "sizes of kernels") if total else None), at

    # --- running ---

    def run(
        self, inputs: Mapping[str, Slice], run: RunContext | None = None, observer: JobObserver | None = None,
        use: str = "results",
    ) -> list[DeviceTensor]:  # fmt: skip
        """One run; `observer`: wait for every launch, and tell of it. `use`: of the outputs' memory, as for `Gpu.allocate`."""
        gpu = self.gpu
        sizes = {n: self.nbytes_of(n) for n, _, _ in self.outputs}
        made = {n: Slice(gpu.allocate(nbytes, use), 0, nbytes) for n, nbytes in sizes.items()}
        state = self._acquire()
        outside = {**inputs, **made}
        if state.status is not None:
            gpu.fill(state.status, np.zeros(state.status.nbytes, np.uint8))
        if run is not None:
            run.check()
        bound = [b if b is not None else self._bound(i, outside, state) for i, b in enumerate(state.bound)]
        if self.regions:
            _Walk(self, bound, outside, state, run, observer).all()
        else:
            self._start(range(len(bound)), bound, state, run, observer)
        if state.status is not None:
            self._check(np.frombuffer(gpu.read(state.status, state.status.nbytes), np.uint32))
        self._free.append(state)
        if run is not None:
            run.check()
        return [DeviceTensor(dtype, shape, gpu.device, made[n]) for n, dtype, shape in self.outputs]

    def _start(
        self, which: Sequence[int], bound: Sequence[Any], state: State, run: RunContext | None, observer: JobObserver | None
    ) -> None:
        """Launches by their numbers. An observer is told when each began and ended: the device's times, from now on."""
        launches = [bound[i] for i in which]
        if observer is None:
            if self.graphs is None or not launches or run is not None and run.config.get("gpu_graph_id") == "-1":
                self.gpu.run(launches)
                return
            key = which if isinstance(which, range) else tuple(which)
            varying = lambda: [at for at, i in enumerate(which) if state.bound[i] is None]  # noqa: E731
            self.graphs.run(state.stretches, key, launches, varying)
            return
        start = time.perf_counter_ns()
        for i, nanoseconds in zip(which, self.gpu.timed(launches), strict=False):
            job, end = self.jobs[i], start + round(nanoseconds)
            observer(job, start, end, sum(self.nbytes_of(name) for name in (*job.reads, *job.writes)))
            start = end

    def _acquire(self) -> State:
        try:
            return self._free.pop()
        except IndexError:
            pass
        arena = Slice(self.gpu.allocate(self.arena_nbytes, "intermediate values"), 0, self.arena_nbytes)
        nbytes = 256 * len(self._checked)
        status = Slice(self.gpu.allocate(nbytes), 0, nbytes) if nbytes else None
        state = State(arena, status, [])
        for i, job in enumerate(self.jobs):
            fixed = self._external.isdisjoint((*job.reads, *job.writes))
            state.bound.append(self.gpu.bind(self._launch(i, {}, state)) if fixed else None)
        return state

    def _bound(self, i: int, outside: Mapping[str, Slice], state: State) -> Any:
        """A launch on inputs and outputs."""
        launch = self._launch(i, outside, state)
        places = [(s.memory.buffer, s.offset, s.nbytes) for s in launch.bindings]
        retained = state.latest.setdefault(i, [])
        for before, bound in retained:
            if all(a[0] is b[0] and a[1:] == b[1:] for a, b in zip(before, places, strict=True)):
                return bound
        made = self.gpu.bind(launch) if len(retained) < _RETAINED_BOUND else self.gpu.bound_again(retained.pop(0)[1], launch)
        retained.append((places, made))
        return made

    def _launch(self, i: int, outside: Mapping[str, Slice], state: State) -> Launch:
        job = self.jobs[i]
        bindings = []
        for name, windows in zip((*job.reads, *job.writes), job.kernel.windows, strict=True):
            bindings += _windows(self._where(name, outside, state), windows, job.kernel.window_nbytes)
        if job.kernel.sizes and self._sizes is not None:
            bindings.append(Slice(self._sizes.memory, self._sizes_at[i], 4 * len(job.kernel.sizes)))
        if i in self._scratch:
            bindings.append(self._where(_scratch_of(i), outside, state))
        if job.kernel.checked:
            assert state.status is not None
            bindings.append(Slice(state.status.memory, 256 * self._checked.index(i), 4))
        return Launch(job.kernel, self._programs[i], tuple(bindings), job.node)

    def _where(self, name: str, outside: Mapping[str, Slice], state: State) -> Slice:
        if name in outside:
            return outside[name]
        if name in self.constants:
            return self.constants[name]
        return Slice(state.arena.memory, self.offsets[name], self.nbytes_of(name))

    def _check(self, status: np.ndarray) -> None:
        wrong = np.flatnonzero(status[::64])
        if wrong.size:
            first = int(wrong[0])
            raise InvalidArgument(f"{self.jobs[self._checked[first]].node}: {MESSAGES[int(status[64 * first])]}")

    def looks(self) -> list[tuple[str, str]]:
        """Where the host has to read a value before it knows what to launch: the node, and what of it."""
        return [(r.node, what) for r in self.regions if (what := _looked_at(r))]

    def lines(self) -> Iterator[str]:
        """For people: the launches, and where their results lie."""
        shared = f"{self.arena_nbytes:,} bytes of scratch ({self.unshared_nbytes:,} without sharing)"
        yield f"{len(self.jobs)} launches, {len({j.kernel.source for j in self.jobs})} kernels, {shared}"
        for i, job in enumerate(self.jobs):
            places = [f"{n} @{self.offsets[n]}" if n in self.offsets else n for n in job.writes]
            how = job.kernel.groups if job.kernel.call is None else job.kernel.call.library
            line = f"{i}. {job.schedule} {how} {', '.join(job.reads)} -> {', '.join(places)}  {job.node}"
            scratch = f" (scratch {self._scratch[i]:,} bytes)" if i in self._scratch else ""
            yield line + scratch + (f"  [{job.choice.code}: {job.choice.reason}]" if job.choice is not None else "")


def _looked_at(region: Region) -> str:
    if region.middle is not None:
        return "which branch runs"
    return "how often its body runs" if region.limit or region.first or region.condition else ""


def _scratch_of(i: int) -> str:
    return f"{_SCRATCH}{i}"


class _Walk:
    """One run of a plan with control flow: launches are collected until the host has to look at a value."""

    def __init__(
        self, plan: Plan, bound: Sequence[Any], outside: Mapping[str, Slice], state: State, run: RunContext | None,
        observer: JobObserver | None,
    ) -> None:  # fmt: skip
        self.plan, self.bound, self.outside, self.state, self.context = plan, bound, outside, state, run
        self.observer = observer
        self.waiting: list[int] = []
        self.started_at_once = _FEWEST

    def all(self) -> None:
        self._range(0, len(self.bound), self.plan._outermost)
        self._flush()

    def _range(self, start: int, stop: int, regions: Sequence[Region]) -> None:
        for part in parts(start, stop, regions):
            if isinstance(part, tuple):
                self.waiting += range(*part)
            elif part.middle is None:
                self._loop(part)
            elif self._holds(part.condition):
                self._range(part.start, part.middle, part.inner)
            else:
                self._range(part.middle, part.stop, part.inner)

    def _loop(self, region: Region) -> None:
        count = int(self._look(region.limit)) if region.limit else region.count
        if region.first and not self._holds(region.first):
            return
        done = 0
        while count == NO_LIMIT and not region.limit or done < count:
            if self.context is not None:
                self.context.count_trips()
            self._range(region.start, region.stop, region.inner)
            done += 1
            if len(self.waiting) >= self.started_at_once:
                self._flush()
                self._wait()
            if region.condition and not self._holds(region.condition):
                return

    def _flush(self) -> None:
        if self.context is not None:
            self.context.check()
        self.plan._start(self.waiting, self.bound, self.state, self.context, self.observer)
        self.waiting = []

    def _wait(self) -> None:
        """For what was started: a queue of thousands of launches would keep the device from all others, and this run from
        being stopped. What takes long is started in smaller numbers."""
        start = time.perf_counter()
        self.plan.gpu.finish()
        wanted = 2 * self.started_at_once if time.perf_counter() - start < _PATIENCE_S else self.started_at_once // 2
        self.started_at_once = min(max(wanted, 1), _MOST)

    def _holds(self, name: str) -> bool:
        return bool(self._look(name))

    def _look(self, name: str) -> int:
        """The one number that a value is, once everything before it has run."""
        self._flush()
        dtype, _ = self.plan.stored[name]
        data = self.plan.gpu.read(self.plan._where(name, self.outside, self.state), dtype.numpy.itemsize)
        return int(np.frombuffer(bytes(data), dtype.numpy)[0])


def _windows(whole: Slice, count: int, nbytes: int) -> list[Slice]:
    """A value as the device binds it: whole, or in pieces."""
    if count == 1:
        return [whole]
    starts = range(0, count * nbytes, nbytes)
    return [Slice(whole.memory, whole.offset + s, min(nbytes, whole.nbytes - s)) for s in starts]
