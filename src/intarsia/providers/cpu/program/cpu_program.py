"""The CPU provider's program: native segments and host steps, bound to input shapes and run."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from intarsia.ep.program import BoundCall, FeedCall, NodeReport, PlanMemory, Program, ProgramMemory, RunContext
from intarsia.ep.provider import CompileContext
from intarsia.errors import InvalidArgument
from intarsia.graph.dims import evaluate, symbols_of
from intarsia.graph.model import Graph, TensorType, Value
from intarsia.machine import fork_safety
from intarsia.plan.array_address import address_of
from intarsia.plan.binding_cache import BindingCache
from intarsia.plan.bound_segment import BoundSegment
from intarsia.plan.executor_abi import SLICED
from intarsia.plan.microbatch_cost import is_large
from intarsia.plan.parallel_branches import WHOLE, SideBySide
from intarsia.plan.result_pool import memory
from intarsia.plan.segment import Segment
from intarsia.plan.shape_constants import MOST_NBYTES
from intarsia.plan.size_constraints import check_known, too_large
from intarsia.plan.state import State
from intarsia.providers.cpu.executable import Executable, HostStep, Unit
from intarsia.providers.cpu.program.bound_plan import Plan, plan_of
from intarsia.providers.cpu.program.calls.call_list import owned, roots
from intarsia.providers.cpu.program.calls.host_kernels import host_call
from intarsia.providers.cpu.program.calls.speculative_binding import Ahead
from intarsia.providers.cpu.program.shared_weights import share_constants
from intarsia.runtime.executor import (
    TERMINATED,
    Pool,
    get_pool,
    missing_text,
    sliced_step,
    thread_count,
    whole_step,
)
from intarsia.runtime.threads import PoolSettings

if TYPE_CHECKING:
    from intarsia.codegen.llvm.target import Target
    from intarsia.ops.framework.evaluate import Evaluate
    from intarsia.ops.framework.registry import Registry
    from intarsia.providers.cpu.lowering.lower import Lowered
    from intarsia.providers.cpu.program.loops.dynamic_loop_run import LoopProgram
    from intarsia.providers.cpu.program.loops.sequence_map import MappedBody
    from intarsia.providers.cpu.program.loops.subgraph_programs import Recent

PLAN_LIMIT = 64  # input shapes whose plans are retained
_LARGER = 4  # of a batch that was looked at: by which part of it others may be larger to go like it
ORDERED_THREADS = 4  # for which parts of a batch are chosen where results must not depend on the number of threads


class CpuProgram(Program):
    """Compiled code of one part of a graph; `run` may be called from several threads at once.

    Attributes:
        lowered: what it was made from; a program that comes from the cache does not have it.
        inputs, outputs: names of the graph's inputs and outputs; `read`: the buffers of the inputs.
    """

    def __init__(
        self, executable: Executable, addresses: dict[str, int], context: CompileContext, target: Target,
        lowered: Lowered | None = None,
    ) -> None:  # fmt: skip
        self.executable, self.context, self.target, self.lowered = executable, context, target, lowered
        self.read = tuple(v.name for v in executable.inputs)
        self.inputs, self.outputs = executable.interface or (self.read, executable.outputs)
        threads = thread_count(context.intra_op_num_threads)
        self.pool: Pool = get_pool(threads, PoolSettings.of(context.config, threads))
        addresses = self._addresses = {**addresses, SLICED: sliced_step(), WHOLE: whole_step()}
        awake = self.pool.settings.spin_microseconds > 0  # to wake threads takes longer than small steps do
        allowed = SideBySide(context.inter_op_num_threads if awake else 1, context.parallel)
        with_sized = sum(segment.sized is not None for segment in executable.segments())
        most = MOST_NBYTES // max(1, with_sized) if context.memory.keep and not context.memory.limit else 0
        for segment in executable.segments():
            segment.addresses, segment.arena = addresses, context.memory
            segment.allow(allowed)
            segment.keep_values(most)
        self._plans: OrderedDict[tuple[object, ...], Plan] = OrderedDict()
        self._first: Plan | None = None  # of plans whose inputs are all arrays
        self._ahead = Ahead()
        self._dynamic_call: tuple[FeedCall | None] | None = None  # once a session has looked for it
        # By segment and rows, bytes of the arena of the last one that has no parts.
        self._whole: dict[tuple[int, int], int] = {}
        self._lock = fork_safety.lock()
        self.loops = self._loop_programs()
        self._bodies: dict[object, tuple[Graph, CpuProgram]] = {}
        self._recent: dict[int, Recent] = {}  # by a body's id, the program that it had last
        self._captured: dict[int, tuple[Graph, list[str]]] = {}  # by a body's id, what it reads from around it
        sized = [i for i, name in enumerate(self.read) if any(axis < 0 for _, axis in executable.learned.get(name, ()))]
        self._sized_inputs = sized  # those whose elements are sizes
        self._calls: dict[int, Evaluate] | None = None
        self.inner = False  # whether it is the body of another program, which goes on with its results

    def _loop_programs(self) -> dict[int, LoopProgram]:
        steps = self.executable.loops()
        if not steps:
            return {}
        from intarsia.providers.cpu.program.loops.dynamic_loop_run import LoopProgram

        return {id(step): LoopProgram(self, step) for step in steps}

    @classmethod
    def compile(
        cls, graph: Graph, registry: Registry, context: CompileContext, target: Target | None = None, body: bool = False
    ) -> CpuProgram:  # fmt: skip
        """Lower `graph` and compile its kernels. `body`: it is part of another program, which may run it for
        many inputs at once.

        Raises:
            EPFail: LLVM is missing or rejects a kernel.
        """
        from intarsia.codegen.llvm import compile_ahead
        from intarsia.codegen.llvm.jit import get_engine
        from intarsia.codegen.llvm.target import Target
        from intarsia.providers.cpu.lowering.lower import lower_graph
        from intarsia.providers.cpu.lowering.symbolic_batch import with_symbolic_batch
        from intarsia.providers.cpu.program import autotune
        from intarsia.providers.cpu.value_names import without_mark

        target = replace(target or Target.host(), ordered=context.deterministic)
        interface, plain = (graph.input_names(), graph.output_names()), graph if body else without_mark(graph)
        renamed, graph = plain is not graph, plain
        choices: Any = {}
        if autotune.budget_ms(context):
            choices = autotune.Chooser(registry, context, target, cls)
        else:
            graph = with_symbolic_batch(graph, registry) or graph
        engine = get_engine(target)
        native = missing_text() if target == Target.host() else None
        with compile_ahead.compilation(engine) as compilation:
            if native is not None:
                compilation.begin(native)
            lowered = lower_graph(graph, registry, target, context.config, choices=choices, begin=compilation.begin)
            share_constants(lowered.executable)
            if renamed:
                lowered.executable.interface = (tuple(interface[0]), tuple(interface[1]))
            for segment in () if body else lowered.executable.segments():
                segment.find_sized()
            kernels = [*lowered.executable.kernels().values()]
            if native is not None and kernels:
                kernels.append(native)
            addresses = engine.load(kernels, compilation=compilation) if kernels else {}
        return cls(lowered.executable, addresses, context, target, lowered)

    def compile_body(self, graph: Graph) -> CpuProgram:
        """A body of control flow as a program that goes on with its results in this one."""
        program = CpuProgram.compile(graph, self.registry, self.context, self.target, body=True)
        program.inner = True
        return program

    def inner_program(self, executable: Executable) -> CpuProgram:
        """What was lowered and compiled with this program, as a program of its own."""
        return CpuProgram(executable, self._addresses, self.context, self.target)

    def share(self, context: CompileContext) -> CpuProgram | None:
        """A program for another session that shares code and weights with this one, and nothing of its runs."""
        if any(isinstance(u, HostStep) and u.node.has_subgraphs for u in self.executable.units):
            return None
        return CpuProgram(self.executable.fresh(), self._addresses, context, self.target)

    def keep_bindings(self, key: str) -> None:
        """Begin with bindings that earlier processes cached under `key`, and cache one of each segment."""
        segments = [segment for executable in self.executable.nested() for segment in executable.segments()]
        for number, segment in enumerate(segments):
            segment.cached = BindingCache(f"{key}-{number}")

    @cached_property
    def registry(self) -> Registry:
        from intarsia.ops import registry

        return registry()

    def functions(self) -> dict[int, Evaluate]:
        """Host operators without bodies as functions, by the step's id. (A cached property would slow all attributes.)"""
        if self._calls is None:
            steps = [u for u in self.executable.units if isinstance(u, HostStep)]
            plain = [s for s in steps if not s.captured and not s.node.has_subgraphs]
            self._calls = {id(s): host_call(s.node, lambda: self.registry, self.target, s.typed) for s in plain}
        return self._calls

    # --- running ---

    def run(self, inputs: Sequence[Any], run: RunContext | None = None) -> list[Any]:
        return self._plan_for(inputs).run(self, inputs, run)

    def _plan_for(self, inputs: Sequence[Any]) -> Plan:
        key: tuple[object, ...] = tuple([x.shape if type(x) is np.ndarray else None for x in inputs])
        if self._sized_inputs:
            key += tuple(inputs[i].tobytes() for i in self._sized_inputs)
        plan = self._plans.get(key)
        if plan is None:
            return self._ahead.plans.get(key) or self._bind(key, inputs)
        if len(self._plans) > PLAN_LIMIT // 2:
            self._touch(key)
        return plan

    def run_into(self, inputs: Sequence[Any], targets: Mapping[str, np.ndarray | None]) -> list[Any] | None:
        from intarsia.plan.output_aliasing import fits
        from intarsia.providers.cpu.program.calls.io_bound_call import may_be

        if self.context.on_step is not None or not all(type(x) is np.ndarray for x in inputs):
            return None
        plan = self._plan_for(inputs)
        bound, made = plan.single, plan.made
        if bound is None or made is None or plan.reshaped:
            return None
        given = {bound.segment.outputs[i]: targets[name] for i, name in zip(made, self.outputs, strict=True)}
        specs = dict(zip(bound.segment.outputs, bound.outputs, strict=True))
        if len(given) != len(made) or not all(t is None or fits(t, specs[name]) for name, t in given.items()):
            return None
        if not may_be(given, self, inputs, bound):
            return None
        picked = inputs if plan.picks is None else [inputs[i] for i in plan.picks]
        results = self.run_segment(bound, picked, targets=[given.get(name) for name in bound.segment.outputs])
        return [results[i] for i in made]

    def bound(self, inputs: Sequence[np.ndarray], targets: Mapping[str, np.ndarray | None]) -> BoundCall | None:
        from intarsia.providers.cpu.program.calls.io_bound_call import bound_call

        results = zip(self.outputs, self.executable.results, strict=True)
        moved = any(name != r.buffer or r.shared or r.view is not None for name, r in results)
        if moved or self._sized_inputs or self.context.on_step is not None:
            return None
        key: tuple[object, ...] = tuple([x.shape for x in inputs])
        plan = self._plans.get(key) or self._ahead.plans.get(key) or self._bind(key, inputs)
        return None if plan.single is None else bound_call(self, plan.single, inputs, targets)

    def awaits(self, shapes: tuple[tuple[int, ...] | None, ...]) -> bool:
        return shapes in self._ahead.plans

    def feed_call(self, inputs: Sequence[Any]) -> FeedCall | None:
        if self._sized_inputs:
            return None
        plan = self._plans.get(tuple([x.shape if type(x) is np.ndarray else None for x in inputs]))
        if plan is None:
            return None
        if plan.feed is None:
            from intarsia.providers.cpu.program.calls.fast_call import feed_call_of

            plan.feed = (feed_call_of(self, plan, inputs),)
        return plan.feed[0]

    def open_call(self) -> FeedCall | None:
        plan = None if self._sized_inputs else self._first
        if plan is None:
            return None
        if self._dynamic_call is None:
            from intarsia.providers.cpu.program.calls.dynamic_fast_call import dynamic_call_of

            self._dynamic_call = (dynamic_call_of(self, plan),)
        return self._dynamic_call[0]

    def plan_of(self, inputs: Sequence[Any]) -> Plan:
        """The plan for inputs of these shapes.

        Raises:
            NodeFailed: they do not fit together.
        """
        return self._plan_for(inputs)

    @property
    def reads_sizes(self) -> bool:
        """Whether elements of an input are sizes, so that shapes alone do not say how a run goes."""
        return bool(self._sized_inputs)

    def known_plan(self, shapes: tuple[tuple[int, ...], ...]) -> Plan | None:
        """The plan for inputs of these shapes, if it was made before, or ahead."""
        plan = self._plans.get(shapes)
        if plan is None:
            return self._ahead.plans.get(shapes)
        if len(self._plans) > PLAN_LIMIT // 2:
            self._touch(shapes)
        return plan

    def run_segment(
        self, bound: BoundSegment, inputs: Sequence[np.ndarray], run: RunContext | None = None,
        targets: Sequence[np.ndarray | None] | None = None,
    ) -> list[Any]:  # fmt: skip
        """The results of one call of a segment; each in its target, where there are targets, or in new memory (None).

        Raises:
            NodeFailed: a step found something wrong with its data.
            OutOfMemory: a result is too large.
            Fail: the caller asked to stop.
        """
        on_step = self.context.on_step
        state = bound.acquire(on_step is not None)
        externals = state.externals
        i = 0
        for x in inputs:
            externals[i] = address_of(x)
            i += 1
        results: list[Any] = []
        for shape, dtype in bound.outputs:
            try:
                y = None if targets is None else targets[len(results)]
                y = memory.empty(shape, dtype) if y is None else y
            except (MemoryError, ValueError):  # "array is too big", even where another size is 0
                bound.release(state)
                name = bound.segment.outputs[len(results)]
                raise too_large(name, shape, math.prod(shape) * np.dtype(dtype).itemsize) from None
            externals[i] = address_of(y)
            results.append(y)
            i += 1
        if run is not None:
            self._run_watched(bound, state, run)
        elif bound.parted:
            state.run(self.pool.run_block)
        else:
            self.pool.run_block(state.block_address)
        if on_step is not None:
            from intarsia.providers.cpu.program.call_reports import report_times

            report_times(on_step, bound, state)
        if bound.checked and state.status.tobytes() != bound.unset:
            self.report_status(bound.segment, state.status)
        if state.sized is not None:
            state.end(bound)
        bound.release(state)
        return results

    def _run_watched(self, bound: BoundSegment, state: State, run: RunContext) -> None:
        """Run a segment that leaves between two steps once the caller's flag is set."""
        state.watch(run.flag_address)
        try:
            status = state.run(self.pool.run_block)
        finally:
            state.watch(0)
        if status == TERMINATED:
            state.cut_short()
            bound.release(state)
            raise run.stopped()

    def report_status(self, segment: Segment, status: np.ndarray) -> None:
        """Raise NodeFailed for the first step that found something wrong with its data."""
        from intarsia.providers.cpu.program.call_reports import step_failed

        raise step_failed(segment, status)

    def own(self, results: list[Any], inputs: Sequence[Any]) -> list[Any]:
        """The program's results as the caller's own; as they are, where they are those of a body, which go on in another
        program."""
        return results if self.inner else owned(results, inputs, self._constant_roots())

    @cached_property
    def lends(self) -> bool:
        """Whether an output may lie in other memory than its own: one that no segment makes."""
        made = {name for segment in self.executable.segments() for name in segment.outputs}
        return any(result.buffer not in made for result in self.executable.results)

    @cached_property
    def _own_roots(self) -> frozenset[int]:
        return roots(self.executable.constants.values())

    def _constant_roots(self) -> frozenset[int]:
        """In what memory the constants lie, those of bodies included."""
        return self._own_roots.union(*[body._constant_roots() for _, body in tuple(self._bodies.values())])

    # --- binding ---

    def _bind(self, key: tuple[object, ...], inputs: Sequence[Any]) -> Plan:
        env = self._env(inputs)
        plan = self._ahead.plan(self, key, env)
        if plan is None:
            first = self._first  # once: another thread may set it at any time
            units = self._bound_units(env, first)
            if first is None or None in key:
                plan = self._planned(env, units, inputs)
                self._first = None if None in key else plan
            else:
                plan = first.again(units, env, self.executable, key)  # type: ignore[arg-type] # there is no None in it
            self._ahead.note(plan)
            self._keep({key: plan})
            if plan.single is not None and memory.wants_lender(plan.single.outputs):
                import intarsia.runtime.feed_call  # noqa: F401 # it sets one
        return plan

    def _planned(self, env: dict[str, int], units: list[BoundSegment | Unit], inputs: Sequence[Any]) -> Plan:
        """The plan of these sizes: the first kind that can run its units."""
        plan = plan_of(self, env, units, inputs)
        if plan is None:
            from intarsia.providers.cpu.program.calls.dynamic_plans import dynamic_plan

            plan = dynamic_plan(self, env, units)
        return plan

    def _keep(self, plans: Mapping[tuple[object, ...], Plan]) -> None:
        """Retain plans for later runs, instead of those that were used longest ago where they are too many."""
        with self._lock:
            self._plans.update(plans)
            while len(self._plans) > PLAN_LIMIT:
                self._plans.popitem(last=False)

    def _env(self, inputs: Sequence[Any]) -> dict[str, int]:
        """The sizes that these inputs give.

        Raises:
            NodeFailed: they do not fit together.
        """
        env = dict(self.executable.sizes)
        for value, x in zip(self.executable.inputs, inputs, strict=True):
            _check_rank(value, x)
            self.executable.learn(value.name, x, env)
        for value, x in zip(self.executable.inputs, inputs, strict=True):
            _check_sizes(value, x, env)
        check_known(self.executable.constraints, env)
        return env

    def _bound_units(self, env: dict[str, int], first: Plan | None) -> list[BoundSegment | Unit]:
        """The units with their segments bound, but for those that the plan `first` could not bind either."""
        units: list[BoundSegment | Unit] = []
        before = self.executable.units if first is None else first.units
        for unit, was in zip(self.executable.units, before, strict=True):
            if isinstance(unit, Segment) and (first is None or was is not unit):
                try:
                    units.append(self.in_parts(unit.bind(env, self.pool.num_threads), env))
                except KeyError:
                    units.append(unit)  # its sizes depend on data: it is bound in each run
            else:
                units.append(unit)
        return units

    def in_parts(self, bound: BoundSegment, env: Mapping[str, int]) -> BoundSegment:
        """The same in parts of its batch, where these stay in the caches and all of it does not."""
        rows, threads = bound.segment.rows, self.pool.num_threads
        if rows is None or not self.may_be_parted(bound, env):
            return bound
        from intarsia.plan.microbatch import bound_parts

        parts = bound_parts(bound, rows, env, threads, ORDERED_THREADS if self.context.deterministic else threads)
        if parts is not None:
            return parts
        bound.whole = True
        self._whole[id(bound.segment), env[rows.symbol]] = bound.arena_nbytes
        bound.segment.keep(bound, env, threads)
        return bound

    def may_be_parted(self, bound: BoundSegment, env: Mapping[str, int]) -> bool:
        """Whether it has to be looked at if parts of the batch were faster. To look takes longer than to bind, so a batch that
        goes as a whole does so too when it is a little larger, as where a decoder's cache grows."""
        rows = bound.segment.rows
        if rows is None or bound.whole or not is_large(bound, env, self.pool.num_threads):
            return False
        looked_at = 0 if self.context.deterministic else self._whole.get((id(bound.segment), env[rows.symbol]), 0)
        return bound.arena_nbytes > looked_at + looked_at // _LARGER

    def _touch(self, key: tuple[object, ...]) -> None:
        """Note that a plan was used, once plans are so many that one may soon be dropped."""
        with self._lock:
            if key in self._plans:
                self._plans.move_to_end(key)

    # --- bodies ---

    def run_plainly(self, inputs: Sequence[Any], run: RunContext | None) -> list[Any]:
        """As `run`, quicker where it is one segment that takes and gives what the program does, as small bodies are."""
        single = self.plain_segment(inputs)
        return self.run(inputs, run) if single is None else self.run_segment(single, inputs, run)

    @cached_property
    def mapped(self) -> MappedBody | None:
        """What runs it for many inputs in one call, where it is one segment that takes and gives what the program does."""
        from intarsia.providers.cpu.program.loops.sequence_map import MappedBody

        outputs = self.executable.segments()[0].outputs if self._plain else ()
        return MappedBody(self) if self._plain and len(set(outputs)) == len(self.outputs) else None

    def plain_segment(self, inputs: Sequence[Any]) -> BoundSegment | None:
        """The segment bound to these sizes before, where it is all that a run does, with the program's inputs and outputs."""
        if not self._plain:
            return None
        plan = self._plans.get(tuple([x.shape if type(x) is np.ndarray else None for x in inputs]))
        return None if plan is None else plan.single

    @cached_property
    def _plain(self) -> bool:
        """Whether a run is that of one segment and no more."""
        segments = self.executable.segments()
        if self._sized_inputs or len(segments) != 1 or any(r.view is not None or r.shared for r in self.executable.results):
            return False
        buffers = tuple(r.buffer for r in self.executable.results)
        return segments[0].inputs == self.read and segments[0].outputs == buffers

    # --- what it is ---

    def nodes(self) -> list[NodeReport]:
        if self.lowered is None:
            return []
        from intarsia.providers.cpu.program.node_reports import node_reports

        return node_reports(self.lowered, self.executable)

    def memory(self) -> ProgramMemory:
        from intarsia.providers.cpu.program.memory_use import memory_of

        return memory_of(self)

    def predicted_memory(self, shapes: Sequence[Sequence[int] | None]) -> PlanMemory:
        from intarsia.providers.cpu.program.memory_use import predicted

        return predicted(self, shapes)

    def trim(self) -> int:
        with self._lock:
            plans = (*self._plans.values(), *self._ahead.plans.values())
        self._dynamic_call = None
        for plan in plans:
            plan.feed = None
        units = [unit for plan in plans for unit in plan.units]
        freed = sum(unit.trim() for unit in units if isinstance(unit, BoundSegment))
        cut = {id(unit): unit for unit in units if isinstance(unit, Segment)}.values()
        freed += sum(bound.trim() for segment in cut for bound in tuple(segment._bound.values()))
        freed += sum(values.trim() for x in self.executable.segments() for values in x.values_of_sizes())
        freed += memory.clear()
        freed += sum(body.trim() for _, body in tuple(self._bodies.values())) + sum(x.trim() for x in self.loops.values())
        mapped = self.__dict__.get("mapped")
        freed += mapped.trim() if mapped is not None else 0
        self.context.memory.trim()
        return freed

    def describe(self, stage: str = "program") -> str:
        from intarsia.providers.cpu.program.describe import describe

        return describe(self, stage)


def _check_rank(value: Value, x: Any) -> None:
    kind = value.type
    if not isinstance(kind, TensorType) or kind.shape is None or not isinstance(x, np.ndarray):
        return
    if x.ndim != len(kind.shape):
        given = f"rank {x.ndim} (shape {list(x.shape)})"
        raise InvalidArgument(f"input {value.name!r} has {given}; expected rank {len(kind.shape)}: {kind}")


def _check_sizes(value: Value, x: Any, env: Mapping[str, int]) -> None:
    """That sizes are those that the input's type says, of which other inputs may give the symbols."""
    kind = value.type
    if not isinstance(kind, TensorType) or kind.shape is None or not isinstance(x, np.ndarray):
        return
    for axis, (given, d) in enumerate(zip(x.shape, kind.shape, strict=True)):
        wanted = d if isinstance(d, int) else evaluate(d, env) if symbols_of(d) <= env.keys() else given
        if given != wanted:
            raise InvalidArgument(
                f"input {value.name!r} has shape {list(x.shape)}; expected {wanted} in dimension {axis}: {kind}, where others "
                f"have given {', '.join(f'{n} = {env[n]}' for n in sorted(symbols_of(d))) or 'no sizes'}"
            )
