"""A compiled model: the programs of a partition and the copies between them, run in order.

Values are in numbered slots per memory space; a slot is emptied after its last reader. Nothing of a run is retained, so
any number of threads may run one compiled model.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from intarsia import progress
from intarsia.device.memory import taken_from_device
from intarsia.ep.device import HOST, DeviceTensor, detached
from intarsia.ep.program import Awaits, BoundCall, FeedCall, Program, RunContext
from intarsia.ep.provider import CompileContext, ExecutionProvider
from intarsia.errors import EPFail, IntarsiaError, ModelRequiresCompilation, OutOfMemory, check_outputs, crashed
from intarsia.graph.model import Graph
from intarsia.lazy_dataclass import dataclass
from intarsia.ops.framework.registry import Registry
from intarsia.ops.framework.registry_scopes import using
from intarsia.partition.partition import Copy, Part, Partition, PartitionOptions, answering, label, partition
from intarsia.values.feeds import fast_calls

if TYPE_CHECKING:
    import logging

    from intarsia.model.runnable import RunCall
    from intarsia.model.trace_profile import Profile


@dataclass(frozen=True)
class _Step:
    """One call: its slots read and written, and the slots to empty after it."""

    name: str
    provider: str
    call: RunCall
    reads: tuple[int, ...]
    writes: tuple[int, ...]
    frees: tuple[int, ...] = ()
    copies: bool = False

    def event(self, results: Sequence[Any]) -> dict[str, Any]:
        """What a profile says of a call besides its time."""
        if not self.copies:
            return {"provider": self.provider}
        return {"provider": self.provider, "copied": sum(_nbytes(value) for value in results)}


def _nbytes(value: Any) -> int:
    if isinstance(value, list):
        return sum(map(_nbytes, value))
    return int(getattr(value, "nbytes", 0))


class CompiledModel:
    """A `Runnable`: a partition. `run(inputs, run=None)` takes and returns host values in the graph's order.

    Where one program in host memory is the whole model, `run` is that program's own method.
    """

    run: RunCall
    fast_calls: tuple[FeedCall, ...] = ()  # as `DirectModel.fast_calls`
    awaits: Awaits | None = None  # `Program.awaits`, where one program is the whole model

    def __init__(self, split: Partition, programs: Sequence[Program], profile: Profile | None = None) -> None:
        self.partition, self.programs, self.profile = split, tuple(programs), profile
        self.inputs = tuple(split.graph.input_names())
        self.outputs = tuple(split.graph.output_names())
        self._slots: dict[tuple[str, str], int] = {}
        for name in self.inputs:
            self._slot(name, str(HOST))
        self._constants = {n: split.graph.constants[n].numpy() for n in self.outputs if n in split.graph.constants}
        by_part = iter(self.programs)
        steps = [self._copy_step(s) if isinstance(s, Copy) else self._program_step(s, next(by_part)) for s in split.steps]
        self._steps = steps
        if profile is not None:
            from intarsia.model.trace_profile import ProfiledNode

            for part in split.parts:
                nodes = [split.graph.nodes[i] for i in part.nodes]
                found = {n.outputs[0]: ProfiledNode(label(n), n.op_type, part.provider.name) for n in nodes if n.outputs}
                profile.nodes.update(found)
        self._selected: dict[object, tuple[_Step, ...]] = {}
        self._on_host = {s for step in steps if not step.copies for s in step.reads}  # slots that steps read as they are
        self._homes = {c.value: self._slots[c.value, str(c.source)] for c in split.copies if c.target.host and c.writer}
        direct = profile is None and self._is_direct()
        self.run = self.programs[0].run if direct else self._run_all
        self._direct = self.programs[0] if direct else None
        self._copied = self.programs[0] if profile is None and not direct and self._is_copied() else None
        if self._direct is not None:
            self.awaits = self._direct.awaits

    def with_operators(self, operators: Registry | None) -> CompiledModel:
        """This model, with `operators` (None: no change) in force while it runs too, for providers that look one up then."""
        if operators is not None:
            run, run_some = self.run, self.run_some

            def scoped_run(inputs: Sequence[Any], context: RunContext | None = None) -> list[Any]:
                with using(operators):
                    return run(inputs, context)

            def scoped_run_some(
                wanted: tuple[str, ...], inputs: Sequence[Any], run: RunContext | None = None,
                stay: frozenset[str] = frozenset(),
            ) -> list[Any]:  # fmt: skip
                with using(operators):
                    return run_some(wanted, inputs, run, stay)

            self.run = scoped_run
            self.run_some = scoped_run_some  # type: ignore[method-assign]
        return self

    def _is_direct(self) -> bool:
        if len(self.programs) != 1 or len(self._steps) != 1:
            return False
        program = self.programs[0]
        return (program.inputs, program.outputs) == (self.inputs, self.outputs)

    def _is_copied(self) -> bool:
        """Whether one program is the whole model, with copies of its inputs and results around it."""
        programs = [step for step in self._steps if not step.copies]
        return len(programs) == 1 and (self.programs[0].inputs, self.programs[0].outputs) == (self.inputs, self.outputs)

    def _slot(self, name: str, space: str) -> int:
        return self._slots.setdefault((name, space), len(self._slots))

    def _program_step(self, part: Part, program: Program) -> _Step:
        space = str(part.provider.device)
        reads = tuple(self._slot(n, str(HOST) if n in part.host_inputs else space) for n in program.inputs)
        writes = tuple(self._slot(n, space) for n in program.outputs)
        return _Step(f"part {part.index}", part.provider.name, program.run, reads, writes)

    def _copy_step(self, copy: Copy) -> _Step:
        reads = (self._slot(copy.value, str(copy.source)),)
        writes = (self._slot(copy.value, str(copy.target)),)
        provider = copy.reader if copy.source.host else copy.writer
        assert provider is not None
        return _Step(str(copy), provider.name, _copy_call(copy), reads, writes, copies=not copy.shape_only)

    def run_into(self, inputs: Sequence[Any], targets: Mapping[str, np.ndarray | None]) -> list[Any] | None:
        """`Program.run_into` where one program in host memory is the whole model, else None."""
        direct = self._direct
        return direct.run_into(inputs, targets) if direct is not None and self.run == direct.run else None

    def bound(self, inputs: Sequence[np.ndarray], targets: Mapping[str, np.ndarray | None]) -> BoundCall | None:
        """`Program.bound` where one program in host memory is the whole model, else None."""
        return self._direct.bound(inputs, targets) if self._direct is not None else None

    def expect_feed(self, inputs: Sequence[Any]) -> None:
        """As `Runnable.expect_feed`, where one program is the whole model."""
        if self._direct is not None and self.run == self._direct.run:
            self.fast_calls = fast_calls(self._direct.feed_call(inputs) or self._direct.open_call())
        elif self._copied is not None and self.run == self._run_all:
            self.fast_calls = fast_calls(self._copied.feed_call(inputs))

    def expect_sizes(self) -> None:
        """As `Runnable.expect_sizes`."""
        if self._direct is not None and self.run == self._direct.run:
            self.fast_calls = fast_calls(self._direct.open_call())

    def finished(self, timeout: float | None = None) -> CompiledModel:
        """The model itself."""
        return self

    def steps_for(self, wanted: tuple[str, ...], stay: frozenset[str] = frozenset()) -> tuple[_Step, ...]:
        """The steps that the outputs `wanted` need, with what can be freed after each. Those of `stay` are not copied out."""
        found = self._selected.get((wanted, stay))
        if found is None:
            found = self._selected[wanted, stay] = tuple(self._select(wanted, stay))
        return found

    def _slot_of(self, name: str, stay: frozenset[str]) -> int | None:
        """Where an output is found after a run."""
        return self._homes[name] if name in stay and name in self._homes else self._slots.get((name, str(HOST)))

    def _select(self, wanted: tuple[str, ...], stay: frozenset[str]) -> list[_Step]:
        ends = {slot for n in wanted if (slot := self._slot_of(n, stay)) is not None}
        needed, chosen = set(ends), []
        for step in reversed(self._steps):
            if needed.isdisjoint(step.writes):
                continue
            frees = tuple(s for s in {*step.reads, *step.writes} if s not in needed)
            chosen.append(replace(step, frees=frees))
            needed.update(step.reads)
        return chosen[::-1]

    def _run_all(self, inputs: Sequence[Any], run: RunContext | None = None) -> list[Any]:
        return self.run_some(self.outputs, inputs, run)

    def run_some(
        self, wanted: tuple[str, ...], inputs: Sequence[Any], run: RunContext | None = None, stay: frozenset[str] = frozenset()
    ) -> list[Any]:
        """Run what the outputs `wanted` need and return them; those of `stay` as device tensors where a device made them.

        Raises:
            InvalidArgument: a name is not an output.
            Fail: the caller asked to stop.
        """
        check_outputs(wanted, self.outputs)
        values: list[Any] = [*inputs, *([None] * (len(self._slots) - len(inputs)))]
        for slot, value in enumerate(inputs):
            if isinstance(value, DeviceTensor) and slot in self._on_host:
                values[slot] = taken_from_device(value)
        for step in self.steps_for(wanted, stay):
            if run is not None:
                run.check()
            start = time.perf_counter_ns() if self.profile is not None else 0
            try:
                results = step.call([values[s] for s in step.reads], run)
            except EPFail as error:
                error.provider = error.provider or step.provider
                raise
            except (IntarsiaError, MemoryError):
                raise
            except Exception as error:
                raise crashed(step.provider, f"in {step.name}", error) from error
            if len(results) != len(step.writes):
                raise _miscounted(step, results)
            if self.profile is not None:
                self.profile.add("Node", step.name, start, step.event(results))
            for slot, result in zip(step.writes, results, strict=True):
                values[slot] = result
            for slot in step.frees:
                values[slot] = None
        results = []
        for name in wanted:
            place = self._slot_of(name, stay)
            assert place is not None or name in self._constants
            value = self._constants[name] if place is None or name in self._constants else values[place]
            results.append(_own(value, inputs, results, name in self._constants))
        return results


def _miscounted(step: _Step, results: Sequence[Any]) -> EPFail:
    """The error for a program that does not give what it was compiled for."""
    wanted = f"expected {len(step.writes)}, one for each output"
    error = EPFail(f"{step.provider}: {step.name} gave {len(results)} results; {wanted}")
    error.provider = step.provider
    return error


def _own(value: Any, inputs: Sequence[Any], results: Sequence[Any], constant: bool) -> Any:
    """Programs' results are the caller's already; a model output that is an input, a constant or listed twice is copied."""
    if constant or any(value is other for other in (*inputs, *results)):
        return detached(value, [value])
    return value


def _copy_call(copy: Copy) -> RunCall:
    def move(value: Any) -> Any:
        if value is None:
            return None
        if isinstance(value, list):
            return [move(element) for element in value]
        if isinstance(value, DeviceTensor) and copy.source.host:  # an input that the caller put on a device
            return value if value.device.shares_memory_with(copy.target) else move(taken_from_device(value))
        if copy.shape_only:
            return np.empty(value.shape, value.dtype.numpy)
        if copy.source.host:
            assert copy.reader is not None
            return copy.reader.get_data_transfer().copy_in(value, copy.target)
        return _leave(copy, value)

    def call(inputs: Sequence[Any], _run: RunContext | None = None) -> list[Any]:
        return [move(inputs[0])]

    return call


def _leave(copy: Copy, value: Any) -> Any:
    """A device tensor's way to the host or another device."""
    if not isinstance(value, DeviceTensor):
        raise EPFail(f"{copy}: expected a DeviceTensor from the provider that wrote it, got {type(value).__name__}")
    assert copy.writer is not None
    transfer = copy.writer.get_data_transfer()
    if copy.target.host:
        return transfer.copy_out(value)
    if copy.reader is None or copy.reader.name == copy.writer.name:
        return transfer.copy_across(value, copy.target)
    return copy.reader.get_data_transfer().copy_in(transfer.copy_out(value), copy.target)


def compile_model(
    graph: Graph,
    providers: Sequence[ExecutionProvider],
    context: CompileContext,
    options: PartitionOptions,
    log: logging.Logger,
    profile: Profile | None = None,
) -> CompiledModel:
    """Partition `graph` and compile its parts.

    A provider that fails to compile a part gives its nodes to the next one in the list, with a warning that says why.

    Raises:
        NotImplemented: no provider takes a node.
        EPFail: the last provider that could take a part failed to compile it, or crashed when it was asked what it takes.
    """
    if profile is not None:
        context = replace(context, on_step=profile.add_kernel, collect_from=profile.collect_from)
    failed: dict[tuple[str, str], str] = {}
    given_up: dict[str, str] = {}  # providers that crashed when they were asked, and how
    done: dict[tuple[str, tuple[int, ...]], Program] = {}
    cut = graph  # the graph whose parts are in `done`
    while True:
        try:
            split = _divided(graph, providers, options, failed, given_up)
        except EPFail as crash:
            if crash.provider in given_up or crash.provider not in [p.name for p in providers[:-1]]:
                raise
            log.warning("%s takes no node, the next provider gets them: %s", crash.provider, crash)
            given_up[crash.provider] = str(crash)
            continue
        if split.graph is not cut:
            cut, done = split.graph, {}
        try:
            return CompiledModel(split, list(_compiled(split.parts, context, done)), profile)
        except _CompileFailure as failure:
            part, error = failure.part, failure.error
            if part.provider.name == providers[-1].name:
                raise error from None
            log.warning(
                "%s could not compile %d nodes, the next provider gets them: %s", part.provider.name, len(part.nodes), error
            )
            failed |= dict.fromkeys(_keys(split.graph, part.provider.name, part.nodes), f"compilation failed: {error}")


def _keys(graph: Graph, provider: str, nodes: Iterable[int]) -> list[tuple[str, str]]:
    """Nodes that a provider does not get, as `partition` wants them named."""
    return [(provider, next((n for n in graph.nodes[i].outputs if n), "")) for i in nodes]


def _divided(
    graph: Graph, providers: Sequence[ExecutionProvider], options: PartitionOptions, failed: Mapping[tuple[str, str], str],
    given_up: Mapping[str, str],
) -> Partition:  # fmt: skip
    """The partition, which all providers were told of but those that `given_up` names, which get no node."""
    others = [p for p in providers if p.name not in given_up]
    if any(p.fused_operators is not None for p in others):
        from intarsia.partition.decompose import decomposed

        graph = decomposed(graph, others, failed, options.rules)
    refused = {key: why for name, why in given_up.items() for key in _keys(graph, name, range(len(graph.nodes)))}
    split = partition(graph, providers, options, {**failed, **refused})
    for provider in others:
        with answering(provider, "when it was told how the model is divided"):
            provider.on_partitioned(split)
    return split


class _CompileFailure(Exception):
    def __init__(self, part: Part, error: EPFail) -> None:
        self.part, self.error = part, error


def _program(part: Part, context: CompileContext) -> Program:
    """A part compiled, or restored where it was compiled ahead of time."""
    given = bool(part.graph.nodes) and part.graph.nodes[0].compiled_part
    if given and not part.provider.own_contexts:
        from intarsia.ep_context.format import restored

        return restored(part, context)
    saves = type(part.provider).save is not ExecutionProvider.save or part.provider.own_contexts
    if saves and not given and context.config.get("session.disable_model_compile", "0") == "1":
        raise ModelRequiresCompilation(
            f"{part.provider.name} has to compile {len(part.nodes)} nodes (first: {label(part.graph.nodes[0])!r}), and "
            "'session.disable_model_compile' is '1': give a compiled model (intarsia.ModelCompiler), or take the entry away"
        )
    return part.provider.compile(part.graph, context)


def _compiled(
    parts: Sequence[Part], context: CompileContext, done: dict[tuple[str, tuple[int, ...]], Program]
) -> Iterable[Program]:
    for part in parts:
        key = (part.provider.name, part.nodes)
        if key not in done:
            progress.begin_part(part.index)
            progress.step("lower", part.index, len(parts))
            try:
                done[key] = _program(part, context)
            except EPFail as error:
                raise _CompileFailure(part, error) from error
            except IntarsiaError:
                raise
            except Exception as error:
                from intarsia.ops.framework.evaluate import is_too_big

                if progress.stopped_by(error):
                    raise
                if isinstance(error, MemoryError) or is_too_big(error):
                    first = label(part.graph.nodes[0])
                    raise OutOfMemory(
                        f"{part.provider.name}: part {part.index} (first node {first!r}) cannot be compiled: {error}"
                    ) from error
                when = f"while it compiled part {part.index} (first node {label(part.graph.nodes[0])!r})"
                raise _CompileFailure(part, crashed(part.provider.name, when, error)) from error
        program = done[key]
        if set(program.inputs) - set(part.graph.input_names()) or set(part.graph.output_names()) - set(program.outputs):
            raise EPFail(
                f"{part.provider.name}: the program of part {part.index} (first node {label(part.graph.nodes[0])!r}) takes "
                f"{program.inputs} and gives {program.outputs}; "
                f"expected {part.graph.input_names()} and {part.graph.output_names()}"
            )
        yield program
