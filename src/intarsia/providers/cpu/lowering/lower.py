"""From a graph to the units a program runs: native segments, and host steps between them.

A segment ends where Python is needed: at a host operator, or where sizes of what follows depend on values that the
segment itself computes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from types import MappingProxyType

import numpy as np

from intarsia import progress
from intarsia.codegen.elementwise.emitter import UnsupportedPrimitive
from intarsia.codegen.llvm.jit import KernelText, with_parts
from intarsia.codegen.llvm.target import Target
from intarsia.codegen.loops.loop_nest import lower
from intarsia.errors import NotImplemented
from intarsia.graph.dims import Dim, Expr, Shape, product, symbols_of
from intarsia.graph.dtypes import DType
from intarsia.graph.model import Constant, Graph, TensorType, ValueType
from intarsia.lazy_dataclass import dataclass
from intarsia.ops.framework.infer import Inference, infer
from intarsia.ops.framework.registry import Registry
from intarsia.passes.disabled_rewrites import DISABLED_KEY, names_in
from intarsia.plan.output_aliasing import written_onto
from intarsia.plan.segment import Buffer, Segment
from intarsia.plan.size_constraints import Constraint
from intarsia.plan.step import STATUS, Below, Jump, Step
from intarsia.primitives.lang import Tensor, walk
from intarsia.primitives.substitute import inputs_of, substitute
from intarsia.providers.cpu.executable import Executable, HostStep, Result, Unit
from intarsia.providers.cpu.kernels.common.epilogue import Epilogue
from intarsia.providers.cpu.kernels.common.loop_cost import SERIAL_ELEMENTS, LoopWork
from intarsia.providers.cpu.kernels.common.lowering_options import LoweringOptions
from intarsia.providers.cpu.kernels.common.packing import Packing
from intarsia.providers.cpu.kernels.common.schedule import LoweringEnv, choose
from intarsia.providers.cpu.kernels.common.template import FusedOperand, Template
from intarsia.providers.cpu.kernels.movement.concat_output import joined_step
from intarsia.providers.cpu.kernels.quantize.byte_lookup import byte_function
from intarsia.providers.cpu.legalize.legalize import PassEntry, legalize
from intarsia.providers.cpu.legalize.lowering_pass import LegalizeEnv
from intarsia.providers.cpu.legalize.passes import pass_names
from intarsia.providers.cpu.legalize.widen_float16 import original_type
from intarsia.providers.cpu.lowering.batch_axis import BatchRows
from intarsia.providers.cpu.lowering.dynamic_loop import LOOPS, loop_step
from intarsia.providers.cpu.lowering.fuse import Group, Grouping, flat_dims, group, operand_kind
from intarsia.providers.cpu.lowering.size_constraints import place_of, size_requirements, unlike
from intarsia.providers.cpu.lowering.spilled_tables import set_aside
from intarsia.providers.cpu.lowering.splice_control_flow import CONTROL, spliced
from intarsia.providers.cpu.lowering.store_as_bfloat16 import narrow
from intarsia.providers.cpu.step_passes.concat_split_in_place import in_place, moving
from intarsia.providers.cpu.step_passes.fuse_pointwise_depthwise import depth_first

_TAME = 1e12  # products of three such numbers, and of integers of 32 bits, are finite as float32
_BROADCASTS = frozenset(("broadcast", "expand", "reshape"))
_FINITE = _BROADCASTS | frozenset(
    "input scalar cast neg abs sign floor ceil round tanh erf atan asinh add sub mul div min max select eq ne lt le not and or "
    "isnan isinf".split()
)  # primitives that make no NaN of such numbers, nor infinities, of which others might


@dataclass
class Lowered:
    """A program, and what it was made from."""

    graph: Graph
    grouping: Grouping
    executable: Executable
    types: dict[str, ValueType]
    values: dict[str, np.ndarray]  # elements (numbers or symbolic) of values that are known before the run
    passes: tuple[PassEntry, ...]  # which changed the graph, or bodies of it
    env: LoweringEnv  # what schedules were chosen for
    written: tuple[Template, ...] = ()  # nodes that passes wrote anew by schedules


def lower_graph(
    graph: Graph, registry: Registry, target: Target, config: Mapping[str, str] | None = None, known: Collection[str] = (),
    choices: Mapping[str, str] | Callable[[Grouping, Graph, LoweringEnv], Mapping[str, str]] = MappingProxyType({}),
    begin: Callable[[KernelText], None] | None = None,
) -> Lowered:  # fmt: skip
    """The graph as a program.

    `config`: the session's configuration entries; `known`: symbols whose values are given when it is bound, besides those of
    its inputs; `choices`: schedules by `Template.schedule_key`, or what finds them; `begin` is told of kernels as they
    are made.
    """
    config = config or {}
    disabled = names_in(config.get(DISABLED_KEY, "")).intersection(pass_names())
    given = LegalizeEnv(registry, target, config)
    legalized = legalize(graph, given, disabled=disabled)
    inference = legalized.inference
    grouping = group(inference, registry)
    options = LoweringOptions.of(config)
    env = LoweringEnv(target, options, _Workspace(inference.graph.constants, options, {}), MappingProxyType({}))
    env = replace(env, choices=choices(grouping, inference.graph, env) if callable(choices) else choices)
    required = [*unlike([*size_requirements(legalized.given)], size_requirements(inference))]
    lowered = _Lowerer(inference, grouping, env, registry, config, known, begin, required, legalized.log).run()
    return replace(lowered, written=tuple(given.written))


class _Workspace:
    """Arrays that kernels read, weights in the form that a kernel wants, and buffers between the steps of a template."""

    def __init__(self, constants: dict[str, Constant], options: LoweringOptions, choices: Mapping[str, str]) -> None:
        self.options, self.choices = options, choices
        self.known, self.used = constants, dict[str, np.ndarray]()
        self.packed: dict[tuple[str, Packing], str] = {}  # names in `used`
        self.temporaries: dict[str, Buffer] = {}

    def temporary(self, name: str, dtype: DType, shape: Sequence[Dim]) -> str:
        self.temporaries[name] = Buffer(dtype, tuple(shape))
        return name

    def original_type(self, name: str) -> DType | None:
        constant = self.known.get(name)
        return original_type(constant) if constant is not None else None

    def is_constant(self, name: str) -> bool:
        return name in self.known

    def array(self, name: str) -> np.ndarray | None:
        constant = self.known.get(name)
        return None if constant is None else constant.numpy()

    def add(self, name: str, packing: Packing, make: Callable[[], np.ndarray]) -> str:
        label = self.packed.get((name, packing))
        if label is None:
            label = f"{name}%{packing}"
            while label in self.used:  # another packing that reads alike
                label += "'"
            self.packed[name, packing], self.used[label] = label, make()
            if name in self.known:
                self.known[name].forget()
        return label

    def plain(self, name: str) -> bool:
        """Whether `name` is a constant; it is then stored for kernels to read as it is."""
        if name in self.used:
            return True
        constant = self.known.get(name)
        if constant is None:
            return False
        array = constant.numpy()
        if array.ctypes.data % array.dtype.itemsize and array.nbytes < 1 << 20:
            array = array.copy()  # large unaligned tables stay in the caller's bytes: x86 and 64-bit Arm read them as they are
        array = np.ascontiguousarray(array).reshape(array.shape)  # which makes a vector of a scalar
        self.used[name] = array if constant.retained else set_aside(array)
        return True


class _Lowerer:
    def __init__(
        self, inference: Inference, grouping: Grouping, env: LoweringEnv, registry: Registry, config: Mapping[str, str],
        known: Collection[str], begin: Callable[[KernelText], None] | None, required: Sequence[Constraint],
        passes: Sequence[PassEntry],
    ) -> None:  # fmt: skip
        """`required`: of sizes by nodes, those included that others were written for; `passes`: that changed the graph."""
        self.begin, self.passes = begin, [*passes]
        self.inference, self.grouping, self.env, self.target = inference, grouping, env, env.target
        self.registry, self.config = registry, config
        self.graph = inference.graph
        self.types = dict(inference.types)
        self.constants = _Workspace(self.graph.constants, env.options, env.choices)
        self.sources: dict[str, tuple[str, int]] = {}
        self.units: list[Unit] = []
        self.other_names: dict[str, list[str]] = {}
        for name in grouping.alias:
            self.other_names.setdefault(grouping.canonical(name), []).append(name)
        self.steps: list[Step | Jump] = []
        self.jumps = False  # whether one of them is a jump
        self.produced: set[str] = set()  # by the segment being built
        self.constraints: list[Constraint] = []
        self.of_sizes = [*required]  # not yet among a segment's constraints
        self.known_requirements = {(c.kind, c.left, c.right) for c in required}
        self.looked_at = -1  # how many symbols were known when `of_sizes` was looked through
        self.defined: set[str] = set(known)  # symbols that are known when the segment being built is bound

    def run(self) -> Lowered:
        for value in self.graph.inputs:  # before other names that views of them have
            self._define_one(value.name)
        for value in self.graph.inputs:
            self._define(value.name)
        for name in self.graph.constants:
            self._define(name)
        self._narrow()
        for number, g in enumerate(self.grouping.groups):
            progress.step("lower", number, len(self.grouping.groups))
            if not g.host and not self._symbols(g) <= self.defined:
                self._close()
                missing = self._symbols(g) - self.defined
                if missing:
                    g.host = f"its size {min(missing)!r} is known only at run time"
            if g.host:
                if not self._splice(g) and not self._repeat(g):
                    self._host(g)
            else:
                self._append(self._steps(g))
                self._constrain(g)
                self._constrain_sizes()
        self._close()
        self._cross()
        results = tuple(self._results())
        executable = Executable(
            tuple(self.graph.inputs), tuple(self.graph.output_names()), results, self.units, self.constants.used,
            *self._learned(), tuple(c for c in self.of_sizes if symbols_of(c.left) | symbols_of(c.right) <= self.defined),
        )  # fmt: skip
        return Lowered(self.graph, self.grouping, executable, self.types, self.inference.values, tuple(self.passes), self.env)

    def _narrow(self) -> None:
        """What only products of bfloat16 read is stored in bfloat16."""
        names = narrow(
            self.grouping, self.graph.output_names(), lambda g: self._symbols(g) <= self.defined, self.constants, self.target
        )
        for name in names:
            kind = self.types[name]
            assert isinstance(kind, TensorType)
            self.types[name] = replace(kind, dtype=DType.BFLOAT16)

    def _append(self, steps: Sequence[Step | Jump]) -> None:
        if not self.jumps:  # which may have led past what ran
            steps = [s for s in steps if not (isinstance(s, Step) and s.shared and set(s.writes) <= self.produced)]
        if self.begin is not None:
            for step in steps:
                every = with_parts(step.kernels).values()
                for kernel in sorted(every, key=lambda kernel: -kernel.size):  # what takes longest first
                    self.begin(kernel)
        self.steps += steps
        self.jumps = self.jumps or any(isinstance(s, Jump) for s in steps)
        self.produced.update(n for s in steps for n in s.writes)

    def _splice(self, g: Group) -> bool:
        """A control-flow operator whose bodies are native becomes steps of the segment."""
        if len(g.nodes) != 1 or g.nodes[0].op_type not in CONTROL:
            return False
        found, before = spliced(g.nodes[0], self), len(self.defined)
        if found is None and self.steps:
            self._close()
            found = spliced(g.nodes[0], self) if len(self.defined) > before else None
        if found is None:
            return False
        for step in found.steps:
            for name in step.reads:
                self.constants.plain(name)
        self._append(found.steps)
        self.constraints += found.constraints
        g.host = ""
        return True

    def _repeat(self, g: Group) -> bool:
        """A loop whose body is native, but for sizes that its trips change, becomes a unit of its own."""
        step = loop_step(g.nodes[0], self) if len(g.nodes) == 1 and g.nodes[0].op_type in LOOPS else None
        if step is None:
            return False
        self._close()
        self.units.append(step)
        for name in step.node.outputs:
            self._define(name)
        for name in step.reads:
            self.constants.plain(name)
        g.host = ""
        return True

    # --- what `control` and `dynamic_loop` ask ---

    def canonical(self, name: str) -> str:
        return self.grouping.canonical(name)

    def assumed(self, name: str) -> bool:
        return name in self.inference.assumed

    def known(self, name: str) -> np.ndarray | None:
        constant = self.graph.constants.get(name)
        return constant.numpy().astype(object) if constant is not None else self.inference.values.get(name)

    def keep(self, name: str, array: np.ndarray) -> None:
        self.constants.used[name] = array

    def temporary(self, name: str, dtype: DType, shape: Sequence[Dim]) -> str:
        return self.constants.temporary(name, dtype, shape)

    def lower(self, graph: Graph) -> tuple[Executable, dict[str, ValueType]]:
        lowered = lower_graph(graph, self.registry, self.target, self.config, self.defined)
        self.passes += lowered.passes
        return lowered.executable, lowered.types

    def lower_separately(self, graph: Graph) -> Lowered:
        """A body as a program of its own, which knows no sizes but those of its inputs."""
        lowered = lower_graph(graph, self.registry, self.target, self.config)
        self.passes += lowered.passes
        return lowered

    def types_of(self, graph: Graph) -> dict[str, ValueType]:
        """Types of a body's values."""
        return infer(graph, self.registry, self.types, self.inference.values).types

    def _results(self) -> Iterator[Result]:
        """Where each output lies; what the caller shares with nobody need not be copied."""
        seen: set[str] = {v.name for v in self.graph.inputs}
        for name in self.graph.output_names():
            buffer, kind = self.grouping.canonical(name), self.types.get(name)
            constant = self.constants.plain(buffer)
            view = kind.shape if name != buffer and isinstance(kind, TensorType) else None
            yield Result(buffer, constant or buffer in seen, view)
            seen.add(buffer)

    def _learned(self) -> tuple[dict[str, list[tuple[str, int]]], dict[str, int]]:
        """Which symbols each value gives, and the sizes that constants give."""
        learned: dict[str, list[tuple[str, int]]] = {}
        for symbol, (value, axis) in self.sources.items():
            for name in {value, self.grouping.canonical(value)} if axis < 0 else (value,):
                learned.setdefault(name, []).append((symbol, axis))
        sizes: dict[str, int] = {}
        for name in learned.keys() & self.graph.constants.keys():
            array = self.graph.constants[name].numpy()
            sizes |= {symbol: int(array.flat[-1 - axis]) if axis < 0 else array.shape[axis] for symbol, axis in learned[name]}
        return learned, sizes

    def _host(self, g: Group) -> None:
        """Each node of the group as a step in Python."""
        self._close()
        for node in g.nodes:
            captured = tuple(sorted(node.used_names() - set(node.inputs)))
            reads, views = self.read(*node.inputs, *captured)
            typed = not any(n and (n not in self.types or n in self.inference.declared) for n in node.inputs)
            self.units.append(HostStep(node, reads, captured, views, g.host, typed))
            for name in node.outputs:
                self._define(name)
            for name in reads:
                self.constants.plain(name)

    def read(self, *names: str) -> tuple[tuple[str, ...], tuple[Shape | None, ...]]:
        """The buffers of values ("": none), and their shapes where the buffers are known under other ones."""
        kinds = (self.types.get(n) if n in self.grouping.alias else None for n in names)
        views = tuple(kind.shape if isinstance(kind, TensorType) else None for kind in kinds)
        return tuple(self.grouping.canonical(n) if n else "" for n in names), views

    # --- symbols ---

    def _define(self, name: str) -> None:
        """A value that exists before the next segment is bound gives its sizes' symbols, and its elements' ones, values."""
        self._define_one(name)
        for other in self.other_names.get(name, ()):
            self._define_one(other)

    def _define_one(self, name: str) -> None:
        kind = self.types.get(name)
        if isinstance(kind, TensorType) and kind.shape is not None:
            for axis, d in enumerate(kind.shape):
                if isinstance(d, Expr) and len(d.symbols) == 1 and str(d) in d.symbols and str(d) not in self.defined:
                    self.sources[str(d)] = (name, axis)
                    self.defined.add(str(d))
        values = self.inference.values.get(name)
        if values is not None:
            for i, v in enumerate(values.flat):
                if isinstance(v, Expr) and str(v) == f"{name}[{i}]":
                    self.sources[str(v)] = (name, -1 - i)
                    self.defined.add(str(v))

    def _symbols(self, g: Group) -> set[str]:
        found: set[str] = set()
        shapes: list[Dim] = []
        for t in walk(list(g.roots.values())):
            shapes.extend(t.shape)
            shapes.extend(flat_dims(t.attrs))
        if g.template is not None:
            for kind in g.template.types:
                shapes.extend(kind.shape if kind is not None else ())
        for d in shapes:
            found |= symbols_of(d)
        return found

    # --- segments ---

    def _close(self) -> None:
        """End the segment being built: what it computes can be looked at from Python afterwards."""
        if self.steps:
            self.units.append(Segment(self.steps, (), (), {}, {}, self.constraints))
            for name in self.produced:
                self._define(name)
        self.steps, self.produced, self.constraints, self.jumps = [], set(), [], False

    def _cross(self) -> None:
        """Name each segment's inputs and outputs: what crosses its borders."""
        canonical = self.grouping.canonical
        later: set[str] = {canonical(n) for n in self.graph.output_names()}
        later |= {canonical(value) for value, axis in self.sources.values()}
        rows, outputs = BatchRows(self.inference), {n.outputs[0]: [o for o in n.outputs if o] for n in self.graph.nodes}
        for unit in reversed(self.units):
            if not isinstance(unit, Segment):
                later.update(n for n in unit.reads if n)
                continue
            unit.steps = depth_first(in_place(unit.steps, later, self._buffer, self.target), later, self.target)
            written = {n for s in unit.steps for n in s.writes}
            read = {n for s in unit.steps for n in s.reads if n}
            unit.outputs = tuple(sorted(written & later))
            unit.inputs = tuple(sorted(n for n in read - written if n not in self.constants.used))
            unit.constants = {n: self.constants.used[n] for n in read if n in self.constants.used}
            unit.onto = written_onto(unit.steps, unit.inputs, unit.outputs)
            unit.buffers = {n: self._buffer(n) for n in (written | set(unit.inputs))}
            unit.rows = rows.of(unit, lambda name: outputs.get(name, (name,)))
            later |= set(unit.inputs)

    def _buffer(self, name: str) -> Buffer:
        if name in self.constants.temporaries:
            return self.constants.temporaries[name]
        kind = self.types[name]
        assert isinstance(kind, TensorType) and kind.shape is not None, name
        return Buffer(kind.dtype, kind.shape)

    # --- steps ---

    def _steps(self, g: Group) -> list[Step]:
        chosen = self._chosen(g)
        if g.template is not None:
            steps = self._template_steps(g)
        else:
            steps = [self._table_step(g) or self._joined_step(g) or self._loop_step(g)]
        for step in steps:
            step.label += f", {chosen} by time" if chosen else ""
            step.nodes = tuple(n.outputs[0] for n in g.nodes)
            step.where = place_of(g.nodes[0])
            for name in step.reads:
                self.constants.plain(name)
        return steps

    def _chosen(self, g: Group) -> str:
        """The schedule that a group has because timing chose it; "" where it has another, as that one does not apply."""
        timed = self.env.timed(g.template) if g.template is not None else ""
        return timed if g.template is not None and timed and choose(g.template, self.env).name == timed else ""

    def _table_step(self, g: Group) -> Step | None:
        """A function of one byte, where a table is faster than computing it."""
        ((out, root),) = g.roots.items()
        found = byte_function(root, self.graph.constants)
        if found is None or not found.worth_a_table(self.target):
            return None
        return found.step(self.target, self.constants, out, f"{_prefix(g)} by a table")

    def _joined_step(self, g: Group) -> Step | None:
        """A Concat into an output of the program."""
        ((out, root),) = g.roots.items()
        given = self._given
        return joined_step(root, out, self.target, _prefix(g), len(given)) if out in given else None

    @cached_property
    def _given(self) -> frozenset[str]:
        """Buffers that are outputs of the program."""
        return frozenset(self.grouping.canonical(name) for name in self.graph.output_names())

    def _loop_step(self, g: Group) -> Step:
        (out,) = g.roots
        leaves = inputs_of([g.roots[out]])
        position = {t.attrs[0]: i for i, t in enumerate(leaves)}

        def numbered(t: Tensor) -> Tensor:
            return Tensor("input", (), (position[t.attrs[0]],), t.dtype, t.shape)

        try:
            kernel = lower(substitute([g.roots[out]], numbered), self.target, prefix=_prefix(g))
        except UnsupportedPrimitive as error:
            where = place_of(g.nodes[0])
            raise NotImplemented(f"{where}: the CPU provider has no code for {error}; cast its operands") from None
        names = [leaves[i].attrs[0] for i in kernel.operands]
        elements = product(g.roots[out].shape)
        buffers = (*names, out, STATUS) if kernel.checked else (*names, out)
        work = max([1, *(_constant_size(t) for t in leaves)])
        return Step(
            kernel.text, tuple(names), (out,), moving(g.roots[out], buffers, tuple(kernel.sizes)),
            serial=Below(elements + _reduced(g.roots[out]), SERIAL_ELEMENTS) if work < SERIAL_ELEMENTS else None,
            label=_prefix(g), checked=kernel.checked, divides=place_of(g.divides) if g.divides is not None else "",
            work=LoopWork(elements, len(walk([g.roots[out]])), _steps_inside(g.roots[out])),
            chosen=_chosen_by_data(g.roots[out]),
        )  # fmt: skip

    def _template_steps(self, g: Group) -> list[Step]:
        assert g.template is not None
        out, root = next(iter(g.roots.items()))
        epilogue, operands = None, []
        if root.prim != "input":
            leaves = [t for t in inputs_of([root]) if t.attrs[0] != g.acc]
            position = {t.attrs[0]: i + 1 for i, t in enumerate(leaves)}
            position[g.acc] = 0
            (numbered,) = substitute([root], lambda t: Tensor("input", (), (position[t.attrs[0]],), t.dtype, t.shape))
            kinds = [operand_kind(t, root.shape) or "full" for t in leaves]
            tame = self._is_tame(root, [t for t, kind in zip(leaves, kinds, strict=True) if kind != "full"])
            epilogue = Epilogue(numbered, tuple(kinds), tuple(t.dtype for t in leaves), tame)
            operands = [FusedOperand(t.attrs[0], kind, t.dtype) for t, kind in zip(leaves, kinds, strict=True)]
        return g.template.steps(self.target, self.constants, epilogue, operands, out)

    def _is_tame(self, root: Tensor, leaves: Sequence[Tensor]) -> bool:
        """Whether no number in an epilogue can make NaN of integers; see `Epilogue.tame`."""
        found = walk([root])
        numbers: dict[int, np.ndarray | None] = {id(t): np.array(t.attrs[0]) for t in found if t.prim == "scalar"}
        numbers |= {id(t): self.constants.array(t.attrs[0]) for t in leaves if t.dtype.is_floating}
        below = walk([t.args[1] for t in found if t.prim == "div"])
        divisors = {id(t) for t in below if not t.args}
        if any(t.args and t.prim not in _BROADCASTS for t in below) or not divisors <= numbers.keys():
            return False  # what is computed may be 0
        if any(t.prim not in _FINITE for t in found):
            return False
        return all(x is not None and _are_tame(x, i in divisors) for i, x in numbers.items())

    def _constrain(self, g: Group) -> None:
        where = place_of(g.nodes[0])
        for left, right in g.template.equal_sizes() if g.template is not None else ():
            if left != right:
                self._ask(Constraint("equal", left, right, where))
        for have, want in g.template.broadcast_sizes() if g.template is not None else ():
            self._constrain_broadcast(have, want, where)
        self._constrain_views(g, where)

    def _constrain_sizes(self) -> None:
        """What nodes ask of sizes that are known by now is looked at when this segment is bound."""
        if len(self.defined) == self.looked_at:
            return
        self.looked_at = len(self.defined)
        ready = [symbols_of(c.left) | symbols_of(c.right) <= self.defined for c in self.of_sizes]
        self.constraints += [c for c, now in zip(self.of_sizes, ready, strict=True) if now]
        self.of_sizes = [c for c, now in zip(self.of_sizes, ready, strict=True) if not now]

    def _constrain_broadcast(self, have: Dim, want: Dim, where: str) -> None:
        if have not in (1, want):
            self._ask(Constraint("broadcast", have, want, where))

    def _ask(self, constraint: Constraint) -> None:
        """What a kernel relies on beyond what definitions ask."""
        key = (constraint.kind, constraint.left, constraint.right)
        if key not in self.known_requirements:
            self.known_requirements.add(key)
            self.constraints.append(constraint)

    def _constrain_views(self, g: Group, where: str) -> None:
        """What a group reads under another shape (of a Reshape that is no kernel) has as many elements under its own."""
        read = set(g.reads())
        for name in dict.fromkeys(n for node in g.nodes for n in node.inputs):
            source = self.grouping.canonical(name)
            view, own = self.types.get(name), self.types.get(source)
            if source == name or source not in read or not isinstance(view, TensorType) or not isinstance(own, TensorType):
                continue
            have, want = product(own.shape or ()), product(view.shape or ())
            if have != want:
                self._ask(Constraint("equal", have, want, where))


def _prefix(g: Group) -> str:
    names = [n.op_type for n in g.nodes]
    shown = names if len(names) <= 4 else [*names[:3], f"and{len(names) - 3}"]
    return "_".join("".join(c if c.isalnum() else "_" for c in n) for n in shown)


def _chosen_by_data(root: Tensor) -> tuple[str, ...]:
    """Inputs of which data choose the elements that are read."""
    tables = [t.args[0] for t in walk([root]) if t.prim in ("take", "index")]
    return tuple(dict.fromkeys(leaf.attrs[0] for leaf in inputs_of(tables)))


_SORTED = 16  # comparisons of an element, roughly


def _reduced(root: Tensor) -> Dim:
    """How many elements the reductions of which only a run knows the sizes take."""
    taken = [t.args[0] for t in walk([root]) if t.prim in ("reduce", "argreduce")]
    sizes = [product((t.args[0] if t.prim == "windows" else t).shape) for t in taken]
    return sum((d for d in sizes if isinstance(d, Expr)), start=0)


def _are_tame(numbers: np.ndarray, divide: bool) -> bool:
    """Whether sums of a few products of these and integers of 32 bits are finite, and quotients where they `divide`."""
    sizes = np.abs(numbers.astype(np.float64))
    return bool((sizes <= _TAME).all() and (not divide or (sizes >= 1 / _TAME).all()))  # not so for NaN


def _steps_inside(root: Tensor) -> Dim:
    """How many elements reductions, scans, products and sorts take for all elements of a kernel's result."""
    total: Dim = 0
    for t in walk([root]):
        if t.prim in ("reduce", "argreduce", "scan"):
            total = total + product(t.args[0].shape)
        elif t.prim == "dot":
            total = total + product((*t.shape, t.args[0].shape[-1]))
        elif t.prim in ("sort", "argsort"):
            total = total + product(t.shape) * _SORTED
    return total


def _constant_size(t: Tensor) -> int:
    total = product(t.shape)
    return total if isinstance(total, int) else 0
