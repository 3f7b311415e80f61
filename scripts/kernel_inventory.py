"""What the CPU provider makes of models and operators for several targets, as text that a restructuring must not change.

    python scripts/kernel_inventory.py MODELS_FOLDER --out before.txt
    # move, rename, restructure
    python scripts/kernel_inventory.py MODELS_FOLDER --out after.txt
    diff before.txt after.txt                                                   # must be empty
    python scripts/kernel_inventory.py MODELS_FOLDER --details --names resnet50  # what a line stands for

Every model of the folder (MODEL.onnx; sizes of its inputs from MODEL.npz beside it, arrays `in_<name>`), every case of
benchmarks/operators.py and every line of operator_examples.txt and of the guard's examples is optimised, partitioned, lowered
and bound to sizes for each target. Nothing is compiled by LLVM, and nothing runs. A line has the digest of all that `--details`
prints: the partition table, the steps with labels, operands and arguments, the bytes of the arena, digests of packed weights,
and the symbols of the kernels, which are hashes of their IR. Packed weights have the digests of their bytes as names: what they
are called is no part of what is made.

The text depends on models, targets and the version of LLVM, not on modules' names, paths, the machine, threads or time.
"""

from __future__ import annotations

import argparse
import fnmatch
import hashlib
import itertools
import os
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO

import numpy as np

# All of the package that is named here; a script that moves modules finds it in these lines.
from intarsia import SessionOptions, set_seed
from intarsia.codegen.llvm.jit import KernelText, with_parts
from intarsia.codegen.llvm.target import Target
from intarsia.errors import IntarsiaError
from intarsia.graph.dims import fresh_symbol
from intarsia.graph.model import Graph
from intarsia.model.load_and_optimize import load_model, optimised
from intarsia.ops import registry
from intarsia.partition.partition import Partition, partition
from intarsia.plan.argument_tables import Table
from intarsia.plan.executor_abi import SLICED
from intarsia.plan.native.bind_kernel import bind_text
from intarsia.plan.parallel_branches import WHOLE, SideBySide
from intarsia.plan.segment import Segment
from intarsia.plan.step import Code, Jump, Ref, Step
from intarsia.providers.cpu import CPUExecutionProvider
from intarsia.providers.cpu.executable import Executable, HostStep, LoopStep
from intarsia.providers.cpu.lowering.lower import lower_graph
from intarsia.providers.cpu.lowering.symbolic_batch import with_symbolic_batch
from intarsia.runtime.spmd_text import executor_text

ROOT = Path(__file__).parents[1]
THREADS = 2  # that steps are bound for
UNKNOWN = 3  # every size that only a run knows
_NEWEST = 10_000  # a version of an operator set that no operator is newer than
_V3 = "avx avx2 bmi bmi2 cmov cx16 cx8 f16c fma fxsr lzcnt mmx movbe popcnt sahf sse sse2 sse3 sse4.1 sse4.2 ssse3".split()
_V4 = [*_V3, *"avx512bw avx512cd avx512dq avx512f avx512vl".split()]
_ZEN4 = [*_V4, *"avx512bf16 avx512bitalg avx512ifma avx512vbmi avx512vbmi2 avx512vnni avx512vpopcntdq gfni".split()]
_AMX = [*_V4, *"amx-bf16 amx-int8 amx-tile avx512bf16 avx512fp16 avx512vbmi avx512vnni".split()]


@dataclass(frozen=True)
class Machine:
    """A target by name, and the session's configuration entries that go with it."""

    target: Target
    config: Mapping[str, str] = field(default_factory=dict)


def _x86(cpu: str, features: Iterable[str]) -> Target:
    return Target.create("x86_64-unknown-linux-gnu", cpu, ",".join(f"+{name}" for name in features))


def _arm(features: str) -> Target:
    return Target.create("aarch64-unknown-linux-gnu", "neoverse-n1", features)


MACHINES = {
    "avx2": Machine(_x86("x86-64-v3", _V3)),
    "avx512": Machine(_x86("x86-64-v4", _V4)),
    "zen4": Machine(_x86("znver4", _ZEN4)),
    "arm64": Machine(_arm("+neon,+dotprod,+fullfp16")),
    # Schedules that no other reaches.
    "sse2": Machine(_x86("x86-64", ["sse2"])),
    "i8mm": Machine(_arm("+neon,+dotprod,+fullfp16,+i8mm")),
    "zen4-bfloat16": Machine(_x86("znver4", _ZEN4), {"session.arithmetic": "bfloat16"}),
    "amx-bfloat16": Machine(_x86("sapphirerapids", _AMX), {"session.arithmetic": "bfloat16"}),
    "amx-float16": Machine(_x86("sapphirerapids", _AMX), {"session.arithmetic": "float16"}),
}
KINDS = ("runtime", "examples", "models", "operators", "open-operators")
EXAMPLES = (ROOT / "scripts" / "operator_examples.txt", ROOT / "tests" / "guard" / "larger_examples.txt")


@dataclass(frozen=True)
class Item:
    """A model (path, ModelProto or Graph), and what it is fed with: arrays by name, of which sizes and integers are read."""

    kind: str
    name: str
    model: Any
    feeds: Mapping[str, Any]


def models(folder: Path, names: Sequence[str]) -> Iterator[Item]:
    for path in sorted(folder.glob("*.onnx")):
        if _is_chosen(path.stem, names):
            feeds: dict[str, Any] = {}
            arrays = path.with_suffix(".npz")
            if arrays.exists():
                with np.load(arrays) as found:
                    feeds = {key.removeprefix("in_"): found[key] for key in found.files if key.startswith("in_")}
            yield Item("models", path.stem, path, feeds)


def examples(names: Sequence[str]) -> Iterator[Item]:
    """One node each: every operator with its forms and types, and sizes that kernels of their own are for."""
    from operator_table import Example, graph_of

    for path in EXAMPLES:
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            if not line.strip() or line.startswith("#"):
                continue
            name, example = Example.parse(line)
            domain, _, operator = name.rpartition("::")
            record = registry().find(domain, operator, _NEWEST)
            title = f"{name} {path.stem} {number}"
            if record is not None and (_is_chosen(title, names) or operator in names):
                yield Item("examples", title, graph_of(record, example), {})


def operators(names: Sequence[str], is_open: bool) -> Iterator[Item]:
    """Cases of benchmarks/operators.py, with numbers that do not depend on which of them are asked for."""
    from cases.operator_cases import Case, cases

    def wanted(case: Case) -> bool:
        return _is_chosen(case.name, names) or case.op in names

    seen: dict[str, int] = {}
    for case in cases(wanted):
        seen[case.name] = number = seen.get(case.name, 0) + 1
        name = case.name if number == 1 else f"{case.name} ({number})"
        yield Item("open-operators" if is_open else "operators", name, case.model(is_open), case.feeds())


def _is_chosen(name: str, names: Sequence[str]) -> bool:
    return not names or any(fnmatch.fnmatch(name, pattern) for pattern in names)


# --- what is made of one model ---


class Prepared:
    """A model after the stages that know no target."""

    def __init__(self, item: Item) -> None:
        self.item = item
        number_symbols_from(0)
        options = SessionOptions()
        graph = item.model
        if not isinstance(graph, Graph):
            graph = load_model(graph if isinstance(graph, Path) else graph.SerializeToString(), options)
        graph = optimised(graph, options, frozenset())
        self.partition: Partition = partition(graph, [CPUExecutionProvider()])

    def lines(self) -> Iterator[str]:
        yield "partition"
        yield from (f"  {line}".rstrip() for line in str(self.partition).splitlines())
        for part in self.partition.parts:
            yield f"graph {digest(str(part.graph))}"

    def lowered(self, machine: Machine) -> list[Executable]:
        return [self._lowered(part.graph, machine) for part in self.partition.parts]

    def _lowered(self, graph: Graph, machine: Machine) -> Executable:
        """As `CpuProgram.compile` does it."""
        number_symbols_from(1_000_000)  # apart from those that the graph has, and the same whatever was lowered before
        graph = with_symbolic_batch(graph, registry()) or graph
        executable = lower_graph(graph, registry(), machine.target, machine.config).executable
        for segment in executable.segments():
            segment.find_sized()
        return executable


def number_symbols_from(first: int) -> None:
    _replace(fresh_symbol, "_fresh", itertools.count(first))


def forget_machine() -> None:
    """Let the sizes of caches be those that are assumed where a system tells none."""
    _replace(Target, "_cache_nbytes", lambda *_: 0)


def _replace(beside: Any, name: str, value: Any) -> None:
    """Set a private name of the module in which a public one is defined."""
    module = sys.modules[beside.__module__]
    if not hasattr(module, name):
        raise SystemExit(f"{__file__}: {module.__name__} has no {name!r} any more: say here what it is now")
    setattr(module, name, value)


class Sizes(dict[str, int]):
    """Sizes by symbol; all that are not known are `UNKNOWN`."""

    def __missing__(self, name: str) -> int:
        return UNKNOWN


@dataclass
class Found:
    """What a model is for one target: lines of text, and sums of them."""

    lines: list[str] = field(default_factory=list)
    kernels: dict[str, KernelText] = field(default_factory=dict)
    steps: int = 0
    host: int = 0
    arena_nbytes: int = 0
    constant_nbytes: int = 0
    packed: dict[str, str] = field(default_factory=dict)  # names of arrays that kernels read, by their bytes

    @property
    def summary(self) -> str:
        return (f"{digest(self.lines)} kernels={len(self.kernels)} steps={self.steps} host={self.host} "
                f"arena={self.arena_nbytes} constants={self.constant_nbytes}")  # fmt: skip

    def add(self, executable: Executable, feeds: Mapping[str, Any]) -> None:
        env = Sizes(executable.sizes)
        for name, value in feeds.items():
            executable.learn(name, value, env)
        self._add_units(executable, env, "")
        self.add_kernels(executable.kernels().values())

    def add_kernels(self, kernels: Iterable[KernelText]) -> None:
        """All kernels and their parts; a symbol without the hash of its text is told with it."""
        self.kernels |= with_parts(kernels)
        for key, kernel in sorted(self.kernels.items()):
            parts = ", ".join(sorted(part.key for part in kernel.parts))
            self.lines.append(f"kernel {key} {kernel.effort} {digest(kernel.ir)}{f' calls {parts}' if parts else ''}")

    def _add_units(self, executable: Executable, env: Sizes, indent: str) -> None:
        add = self.lines.append
        self.packed |= {name: f"%{digest(array)}" for name, array in executable.constants.items() if "%" in name}
        for unit in executable.units:
            if isinstance(unit, Segment):
                self._add_segment(unit, env, indent)
                continue
            self.host += 1
            kind = "loop" if isinstance(unit, LoopStep) else "host"
            reads = _names(map(self._name, unit.reads))
            add(f"{indent}{kind} {unit.node.op_type} {reads} -> {_names(unit.node.outputs)}: {unit.reason}")
            add(f"{indent}  captured {_names(unit.captured)}; views {_texts(unit.views)}")
            if isinstance(unit, HostStep):
                add(f"{indent}  typed {unit.typed}")
            else:
                carried = [(carried.shape, carried.elements) for carried in unit.carried]
                add(f"{indent}  carried {_texts(carried)}; rows {_texts(unit.rows)}")
                for segment in unit.body.segments():
                    segment.find_sized()
                self._add_units(unit.body, Sizes(env), f"{indent}  ")
        for result in executable.results:
            add(f"{indent}result {result.buffer} shared={result.shared} view={result.view}")
        for name, entries in sorted(executable.learned.items()):
            add(f"{indent}learned {name} {entries}")
        add(f"{indent}sizes {sorted(executable.sizes.items())}")
        for constraint in executable.constraints:
            add(f"{indent}relies on {constraint} at {constraint.where}")
        constants = {self.packed.get(name, name): array for name, array in executable.constants.items()}
        for name, array in sorted(constants.items()):
            self.constant_nbytes += array.nbytes
            add(f"{indent}constant {name} {array.dtype} {list(array.shape)} {digest(array)}")

    def _add_segment(self, segment: Segment, env: Sizes, indent: str) -> None:
        add = self.lines.append
        add(f"{indent}segment in {_names(segment.inputs)} out {_names(segment.outputs)} onto {sorted(segment.onto.items())}")
        for constraint in segment.constraints:
            add(f"{indent}  relies on {constraint} at {constraint.where}")
        rows, once = segment.rows, segment.sized
        if rows is not None:
            add(f"{indent}  rows {rows.symbol} {list(map(int, rows.steps))} {sorted(rows.led)} {sorted(rows.alike)}")
        if once is not None:
            add(f"{indent}  once for sizes: steps {sorted(once.steps)}, values {_names(once.names)}")
        for number, step in enumerate(segment.steps):
            self.steps += 1
            self._add_step(number, step, f"{indent}  ")
        self._add_binding(segment, env, f"{indent}  ")

    def _add_step(self, number: int, step: Step | Jump, indent: str) -> None:
        operands = f"{_names(map(self._name, step.reads))} -> {_names(step.writes)}"
        if isinstance(step, Jump):
            self.lines.append(f"{indent}{number} {step.title} {step.offset:+d} {step.value} {operands}")
            return
        flags = [name for name in ("checked", "shared", "varies", "ahead") if getattr(step, name)]
        noted = {name: value for name in ("chosen", "divides", "onto") if (value := getattr(step, name))}
        noted |= {"chosen": tuple(map(self._name, step.chosen))} if step.chosen else {}
        noted |= {"pieces": step.pieces} if step.pieces >= 0 else {}
        symbols = " ".join(kernel.symbol for kernel in step.kernels)
        self.lines.append(f"{indent}{number} {step.title} {operands} [{symbols}]")
        self.lines.append(f"{indent}  nodes {_names(step.nodes)} where {step.where} {' '.join(flags)} {noted or ''}".rstrip())

    def _add_binding(self, segment: Segment, env: Sizes, indent: str) -> None:
        """The segment bound to sizes, as a session binds it that nothing limits."""
        segment.addresses = dict.fromkeys((WHOLE, SLICED, *(k.symbol for s in segment.steps for k in s.kernels)), 1)
        segment.allow(SideBySide())
        try:
            bound = segment.bind_exactly(env, THREADS)
        except (IntarsiaError, ValueError, OverflowError, MemoryError) as error:  # sizes that a run would not have
            self.lines.append(f"{indent}cannot be bound to the sizes assumed: {type(error).__name__}: {error}")
            return
        self.arena_nbytes += bound.arena_nbytes
        self.lines.append(f"{indent}arena {bound.arena_nbytes} scratch {bound.workspace_nbytes} long {bound.long}")
        self.lines.append(f"{indent}windows {list(map(tuple, bound.windows))} sliced {sorted(bound.sliced.items())}")
        places = {name: (bound.offsets.get(name), list(bound.shapes[name])) for name in sorted(segment.buffers)}
        self.lines += [f"{indent}buffer {n} {segment.buffers[n].dtype.name} {s} at {at}" for n, (at, s) in places.items()]
        for number, (given, serial) in enumerate(zip(bound.arguments, bound.serial, strict=True)):
            words = " ".join(self._argument_text(argument) for argument in given)
            self.lines.append(f"{indent}arguments {number} {'serial' if serial else 'parallel'} {words}")

    def _name(self, name: str) -> str:
        return self.packed.get(name, name)

    def _argument_text(self, argument: Any) -> str:
        if isinstance(argument, Ref):
            return f"&{self._name(argument.name)}+{argument.offset_bytes}"
        if isinstance(argument, Code):
            return f"@{argument.symbol}"
        if isinstance(argument, Table):
            return f"table:{digest(argument.array)}"
        if isinstance(argument, np.ndarray):
            return f"array:{digest(argument)}"
        return str(int(argument))


def _names(names: Iterable[str]) -> str:
    return f"({', '.join(names)})"


def _texts(values: Iterable[Any]) -> str:
    return f"[{', '.join('-' if value is None else str(value) for value in values)}]"


def digest(content: str | Iterable[str] | np.ndarray) -> str:
    if isinstance(content, np.ndarray):
        head = f"{content.dtype} {content.shape} ".encode()
        return hashlib.sha256(head + np.ascontiguousarray(content).tobytes()).hexdigest()[:16]
    text = content if isinstance(content, str) else "\n".join(content)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


# --- the whole ---


Section = tuple[str, list[str]]  # a line, and what it stands for


def sections(item: Item, machines: Mapping[str, Machine]) -> Iterator[Section]:
    """A line for the model and one for each target. One that is refused is refused after a restructuring, too."""
    try:
        prepared = Prepared(item)
    except IntarsiaError as error:
        yield refusal(error), []
        return
    lines = [*prepared.lines()]
    yield digest(lines), lines
    for name, machine in machines.items():
        found = Found()
        try:
            for executable in prepared.lowered(machine):
                found.add(executable, item.feeds)
        except IntarsiaError as error:
            yield f"{name:14} {refusal(error)}", []
        else:
            yield f"{name:14} {found.summary}", found.lines


def refusal(error: IntarsiaError) -> str:
    return f"refused: {type(error).__name__}: {' '.join(str(error).split())}"


def runtime(machines: Mapping[str, Machine]) -> Iterator[Section]:
    """The executor and what binds sizes, which are no model's."""
    for name, machine in machines.items():
        found = Found()
        found.add_kernels([executor_text(machine.target), bind_text(machine.target)])
        yield f"{name:14} {found.summary}", found.lines


def items(options: argparse.Namespace) -> Iterator[Item]:
    if "examples" in options.what:
        yield from examples(options.names)
    if "models" in options.what and options.models is not None:
        yield from models(options.models, options.names)
    if "operators" in options.what:
        yield from operators(options.names, is_open=False)
    if "open-operators" in options.what:
        yield from operators(options.names, is_open=True)


def write(options: argparse.Namespace, out: TextIO) -> None:
    machines = {name: MACHINES[name] for name in options.targets}

    def tell(title: str, found: Iterable[Section]) -> None:
        print(f"{title}:", file=sys.stderr, flush=True)
        for line, details in found:
            print(f"{title}: {line}", file=out)
            if options.details:
                out.writelines(f"    {detail}\n" for detail in details)
        out.flush()

    if "runtime" in options.what and not options.names:
        tell("runtime", runtime(machines))
    for item in items(options):
        tell(f"{item.kind} {item.name}", sections(item, machines))


def _parser() -> argparse.ArgumentParser:
    known, kinds = ",".join(MACHINES), ",".join(KINDS)
    parser = argparse.ArgumentParser(description="What the CPU provider makes of models and operators, as text to compare.")
    parser.add_argument("models", nargs="?", type=Path, help="folder of MODEL.onnx (and MODEL.npz); left out: no models")
    parser.add_argument("--out", type=Path, help="file to write (default: standard output)")
    parser.add_argument("--what", default=kinds, help=f"parts, by commas (default: {kinds})")
    parser.add_argument("--targets", default=known, help=f"by commas (default: {known})")
    parser.add_argument("--names", nargs="+", default=[], help="only these models, cases and operators, or patterns of them")
    parser.add_argument("--details", action="store_true", help="print also what every digest was made of")
    return parser


def parsed(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = _parser()
    options = parser.parse_args(arguments)
    for name, known in (("what", KINDS), ("targets", tuple(MACHINES))):
        found = [text.strip() for text in getattr(options, name).split(",")]
        if unknown := [text for text in found if text not in known]:
            parser.error(f"--{name}: unknown {', '.join(unknown)}; there are {', '.join(known)}")
        setattr(options, name, found)
    if options.models is not None and not options.models.is_dir():
        parser.error(f"{options.models} is no folder; expected one of .onnx files")
    return options


def main(arguments: Sequence[str] | None = None) -> None:
    options = parsed(arguments)
    np.seterr(all="ignore")
    sys.path.append(str(ROOT / "benchmarks"))
    for name in [name for name in os.environ if name.startswith("INTARSIA_")]:  # settings of the user's
        del os.environ[name]
    forget_machine()
    set_seed(0)  # kernels of random numbers have the process's state among their arguments
    with tempfile.TemporaryDirectory(prefix="intarsia-inventory-") as cache_folder:
        os.environ["INTARSIA_CACHE_DIR"] = cache_folder  # texts that are kept by names of their modules are written anew
        if options.out is None:
            write(options, sys.stdout)
            return
        with options.out.open("w", encoding="utf-8") as out:
            write(options, out)


if __name__ == "__main__":
    main()
