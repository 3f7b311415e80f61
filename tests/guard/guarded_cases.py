"""Runs drawn models with everything at pages without access, and compares them with the reference provider.

As a program it serves `guarded_process`: it reads one request a line from its standard input, and says on its standard output
what it is about to run, so that whoever reads it knows which case ended the process. One model again, with tracebacks:

    python tests/guard/guarded_cases.py OPERATOR SEED NUMBER
"""

from __future__ import annotations

import faulthandler
import json
import os
import re
import sys
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

os.environ.setdefault("INTARSIA_PROGRAM_CACHE", "0")
sys.path[:0] = [str(Path(__file__).parent), *(str(Path(__file__).parents[1] / n) for n in ("ops", "properties"))]

import ml_dtypes  # noqa: E402
import numpy as np  # noqa: E402
from drawn_models import Run, draw_constants, draw_model, draw_run, generator, schemas  # noqa: E402
from guarded_memory import END, START, guarded  # noqa: E402
from guarded_programs import guarded_programs  # noqa: E402
from image_graphs import ImageGraph  # noqa: E402
from large_graphs import LargeGraph, SearchGraph  # noqa: E402
from token_graphs import TokenGraph  # noqa: E402
from typed_nodes import RANDOM  # noqa: E402

import intarsia  # noqa: E402
from intarsia.errors import IntarsiaError  # noqa: E402
from intarsia.graph.dtypes import DType  # noqa: E402
from intarsia.providers.cpu.program.cpu_program import CpuProgram  # noqa: E402

CPU, REFERENCE = "CPUExecutionProvider", "ReferenceExecutionProvider"
NAMES = ("kernels", "templates", "paths", "drawn")  # of `Seen`
EITHER_SIDE = {"com.microsoft::CropAndResize": 1 / 8}  # the part of elements that rounding may put on the other side of an edge
OFFICIAL = ("", "ai.onnx.ml")  # domains whose schemas are ONNX's
ILL_CONDITIONED = {"Det": 1e-3, "Inverse": 1e-3, "com.microsoft::Inverse": 1e-3}  # tolerances
GRAPHS: dict[str, Any] = {
    "graphs of images": ImageGraph, "graphs of tokens": TokenGraph, "large graphs": LargeGraph, "searches": SearchGraph,
}  # fmt: skip
RUNS, RUNS_OF_NUMBERS = 7, 3  # of a model whose sizes are symbols, or numbers
SECONDS = 300  # for one case: a hang is a failure, a slow machine is not
WRAPPED = " crashed "  # in errors whose cause was of another kind
UNITS = 64  # of a type's precision, of the largest magnitude of a result
NUMPY_TYPES = {d.numpy for d in DType if d is not DType.UNDEFINED}
LIKELY_ROUNDED = re.compile(  # neighbours at a tie
    "Quantize|QLinear|QGemm|QAttention|QEmbed|QMoE|Integer|Lookup|Float8|Resize|Upsample"
)


@dataclass(frozen=True)
class Error:
    """What a provider raised."""

    kind: str
    text: str
    own: bool

    @classmethod
    def of(cls, error: BaseException) -> Error:
        text = str(error).partition("\n")[0][:300]
        own = isinstance(error, IntarsiaError) and WRAPPED not in text
        frame = traceback.extract_tb(error.__traceback__)[-1]
        return cls(type(error).__name__, text if own else f"{text} ({Path(frame.filename).name}:{frame.lineno})", own)

    def __str__(self) -> str:
        return f"{self.kind}: {self.text}"


@dataclass
class Seen:
    """What was run: counts of cases, and names of what computed them."""

    cases: Counter[str] = field(default_factory=Counter)
    kernels: set[str] = field(default_factory=set)
    templates: set[str] = field(default_factory=set)
    paths: set[str] = field(default_factory=set)
    drawn: set[str] = field(default_factory=set)

    def program(self, program: CpuProgram) -> None:
        if program.lowered is None:
            return
        groups = program.lowered.grouping.groups
        self.templates |= {type(g.template).__name__ for g in groups if g.template is not None}
        self.paths |= {report.kind for report in program.nodes()}

    def taken(self) -> dict[str, Any]:
        """All of it, which is counted anew from now on."""
        found = {"cases": dict(self.cases), **{name: sorted(getattr(self, name)) for name in NAMES}}
        for counted in (self.cases, *(getattr(self, name) for name in NAMES)):
            counted.clear()
        return found


@dataclass(frozen=True)
class Fault:
    """`kind`: "error" (of another kind than Intarsia's), "value", "accepted" or "refused" (by the CPU provider alone), "wrong
    types" (taken by both); the process that reads adds "crash" and "hang"."""

    kind: str
    case: str
    text: str


def attempt(function: Callable[[], Any]) -> Any:
    try:
        return function()
    except Exception as error:  # noqa: BLE001 (which kind it is, is what is looked at)
        return Error.of(error)


def session_of(data: bytes, provider: str, threads: int = 1) -> intarsia.InferenceSession:
    options = intarsia.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = threads
    if provider == REFERENCE:
        options.graph_optimization_level = intarsia.GraphOptimizationLevel.ORT_DISABLE_ALL
    return intarsia.InferenceSession(data, options, providers=[provider])


@dataclass(frozen=True)
class Case:
    """A model, and what is done with it.

    Attributes:
        tolerance: of the largest magnitude of a result that is no integer; None: by its type.
        random: results are other ones in each run.
        part: of a result's elements, may differ.
        refused: types of operands are not those of ONNX's schema.
        near: integers may be neighbours.
        loose: one provider may refuse what the other runs: declarations of bodies that are wrong, and that not both look at.
        at: where inputs have a page without access.
        apart: tensors do not touch (`guarded_programs`).
    """

    where: str
    data: bytes
    runs: Sequence[Run]
    threads: int
    at: int
    apart: bool
    tolerance: float | None = None
    random: bool = False
    near: bool = False
    part: float = 0.0
    refused: bool = False
    loose: bool = False


def draw_case(source: str, seed: int, number: int, seen: Seen) -> Case:
    """`source`: an operator, or one of `GRAPHS`."""
    rng = generator(source, seed, number)
    threads, at, apart = int(rng.integers(1, 3)), int(rng.integers(2)), rng.random() < 0.75
    how = f"{threads} threads, guarded {'start' if at == START else 'end'}{'' if apart else ', one arena'}"
    if source in GRAPHS:
        graph = GRAPHS[source](rng, int(rng.integers(3, 16)))
        seen.cases["graphs"] += 1
        runs = [Run(graph.feeds(i), exact=getattr(graph, "exact", True)) for i in (0, 1, 2, 0)]
        data, loose = graph.model().SerializeToString(), source == "searches"
        return Case(f"#{number} {source}, {how}", data, runs, threads, at, apart, 2e-4, loose=loose)
    model = draw_model(source, number, rng)
    data = model.proto(draw_constants(model, rng)).SerializeToString()
    runs = [draw_run(model, rng, first=i == 0) for i in range(RUNS if model.sizes != "numbers" else RUNS_OF_NUMBERS)]
    seen.cases["right types" if model.right else "wrong types"] += 1
    seen.drawn |= {f"{model.operator} {o.dtype.onnx_name}" for o in model.operands if not o.other}
    name = model.key[1]
    near = bool(LIKELY_ROUNDED.search(name))
    tolerance, part = ILL_CONDITIONED.get(source), EITHER_SIDE.get(source, 0.0)
    refused = not model.right and model.key[0] in OFFICIAL and source in schemas()
    return Case(f"#{number} {model}, {how}", data, runs, threads, at, apart, tolerance, name in RANDOM, near, part, refused)


def run_case(case: Case, seen: Seen, begin: Callable[[str], None]) -> Iterator[Fault]:
    """All runs of one model."""
    begin(f"{case.where}: load")
    reference = attempt(lambda: session_of(case.data, REFERENCE))
    with guarded(END), guarded_programs(case.apart, seen.program):
        compiled = attempt(lambda: session_of(case.data, CPU, case.threads))
    for found in (compiled, reference):
        if isinstance(found, Error) and not found.own:
            yield Fault("error", case.where, f"{'CPU' if found is compiled else 'reference'}: {found}")
            return
    if isinstance(compiled, Error) or isinstance(reference, Error):
        one_sided = isinstance(compiled, Error) != isinstance(reference, Error) and not case.loose
        if one_sided and not _first_run_fails(reference, case.runs[0]):
            yield from _one_sided(case.where, compiled, reference, "to load")
        seen.cases["refused when loaded"] += 1
        return
    if case.refused:
        yield Fault("wrong types", case.where, "both providers take operands of types that the schema does not allow")
    for i, run in enumerate(case.runs):
        where = f"{case.where}: run {i}: {run}"
        begin(where)
        seen.cases["runs"] += 1
        yield from _run(case, compiled, reference, run, i, where, seen)


def _first_run_fails(reference: Any, run: Run) -> bool:
    """Whether the reference says in the run what the CPU said when the model was loaded."""
    return not isinstance(reference, Error) and isinstance(attempt(lambda: reference.run(None, run.feeds)), Error)


def _one_sided(case: str, compiled: Any, reference: Any, what: str) -> Iterator[Fault]:
    if isinstance(compiled, Error):
        yield Fault("refused", case, f"the CPU refuses {what}: {compiled}")
    else:
        yield Fault("accepted", case, f"the reference refuses {what}: {reference}")


def _run(case: Case, compiled: Any, reference: Any, run: Run, number: int, where: str, seen: Seen) -> Iterator[Fault]:
    expected = attempt(lambda: reference.run(None, run.feeds))
    with guarded(case.at if number % 2 else END):
        feeds = {name: _again(x, stepped=number % 4 == 2) for name, x in run.feeds.items()}
    bound = number % 3 == 2 and not isinstance(expected, Error) and _are_arrays([*feeds.values(), *expected])
    with guarded(END), guarded_programs(case.apart, seen.program):
        found = attempt(lambda: _bound_run(compiled, feeds, expected) if bound else compiled.run(None, feeds))
    for what in (found, expected):
        if isinstance(what, Error) and not what.own:
            yield Fault("error", where, f"{'CPU' if what is found else 'reference'}: {what}")
            return
    if isinstance(found, Error) or isinstance(expected, Error):
        if isinstance(found, Error) != isinstance(expected, Error) and not _is_empty(found) and not case.loose:
            yield from _one_sided(where, found, expected, "to run")
        seen.cases["refused when run"] += 1
        return
    seen.cases["compared" if run.exact else "only looked at"] += 1
    seen.cases["bound"] += bound
    for i, (f, e) in enumerate(zip(found, expected, strict=True)):
        text = difference(f, e, case, run.exact and not case.random)
        if text:
            yield Fault("value", where, f"output {i}: {text}")
            return
    for (name, given), kept in zip(feeds.items(), run.feeds.values(), strict=True):
        if isinstance(given, np.ndarray) and given.dtype != object and given.tobytes() != kept.tobytes():
            yield Fault("value", where, f"input {name} was changed")


def _again(value: Any, stepped: bool) -> Any:
    """An equal value in new memory. `blocked_k_microkernel`: every second element of an axis of twice the size."""
    if isinstance(value, list):
        return [_again(v, stepped) for v in value]
    if not isinstance(value, np.ndarray):
        return value
    if not stepped or not value.ndim:
        return value.copy()
    return np.repeat(value, 2, axis=-1)[..., ::2]


def _is_empty(results: Any) -> bool:
    """Whether results have no elements, for which no operand needs to be looked at."""
    return not isinstance(results, Error) and all(isinstance(x, np.ndarray) and not x.size for x in results)


def _are_arrays(values: Sequence[Any]) -> bool:
    return all(isinstance(x, np.ndarray) and x.dtype != object for x in values)


def _bound_run(session: Any, feeds: dict[str, Any], expected: Sequence[Any]) -> list[Any]:
    """Results in memory that the caller gives: the current handler's."""
    binding = session.io_binding()
    for name, x in feeds.items():
        binding.bind_cpu_input(name, np.ascontiguousarray(x).reshape(x.shape))
    targets = [np.empty(e.shape, e.dtype) for e in expected]
    for value, target in zip(session.get_outputs(), targets, strict=True):
        element = int(DType.of(target.dtype))
        binding.bind_output(value.name, "cpu", 0, element, list(target.shape), int(target.ctypes.data))
    session.run_with_iobinding(binding)
    return targets


# --- comparison ---


def difference(found: Any, expected: Any, case: Case, exact: bool) -> str:
    """What differs; "" where nothing does. `exact`: elements are compared, not types and shapes alone."""
    if isinstance(expected, (list, tuple)):
        if not isinstance(found, (list, tuple)) or len(found) != len(expected):
            return f"{found!r}, expected {expected!r}"[:300]
        return next((d for f, e in zip(found, expected, strict=True) if (d := difference(f, e, case, exact))), "")
    if not isinstance(expected, np.ndarray):
        return "" if not exact or repr(found) == repr(expected) else f"{found!r}, expected {expected!r}"[:300]
    if expected.dtype not in NUMPY_TYPES:
        return f"elements of {expected.dtype}, which is no type of ONNX"
    if not isinstance(found, np.ndarray) or found.dtype != expected.dtype or found.shape != expected.shape:
        return f"{getattr(found, 'dtype', found)}{getattr(found, 'shape', '')}, expected {expected.dtype}{expected.shape}"
    if not exact or not expected.size:
        return ""
    good = _good(found, expected, case)
    if (~good).sum() <= case.part * good.size:
        return ""
    at = tuple(int(i) for i in np.argwhere(~good)[0])
    return f"{int((~good).sum())} of {good.size} elements differ; at {list(at)} {found[at]!r}, expected {expected[at]!r}"


def _good(found: np.ndarray, expected: np.ndarray, case: Case) -> np.ndarray:
    if expected.dtype.kind in "OSUb":
        return np.asarray(found == expected)
    dtype = DType.of(expected.dtype)
    if dtype.is_integer:
        f, e = (x.astype(object) if dtype.bits == 64 else x.astype(np.int64) for x in (found, expected))
        return np.asarray(abs(f - e) <= int(case.near))
    with np.errstate(all="ignore"):
        wide: Any = np.complex128 if dtype.is_complex else np.float64
        f, e = found.astype(wide), expected.astype(wide)
        eps = {DType.COMPLEX64: 1e-7, DType.COMPLEX128: 1e-16}.get(dtype) or float(ml_dtypes.finfo(expected.dtype).eps)
        units = (UNITS if dtype.bits >= 32 else 8 if dtype.bits == 16 else 2) * (50 if case.near else 1)
        finite = np.abs(e[np.isfinite(e)])
        scale = max(float(finite.max(initial=0.0)), 1.0)
        bound = units * eps * scale if case.tolerance is None else case.tolerance * scale
        return np.asarray((f == e) | (np.isnan(f) & np.isnan(e)) | (np.abs(f - e) <= bound))


# --- serving ---


def watch_kernels(seen: Seen) -> list[str]:
    """Note in `seen` which modules of the CPU's kernels make some from now on; returns all that can."""
    import importlib
    import pkgutil

    import intarsia.providers.cpu.kernels as families

    found = []
    for info in pkgutil.walk_packages(families.__path__, f"{families.__name__}."):
        module = importlib.import_module(info.name)
        make = vars(module).get("kernel_text")
        if make is not None and getattr(make, "__module__", module.__name__) == module.__name__:
            name = info.name.removeprefix(f"{families.__name__}.")
            module.kernel_text = _noted(make, name, seen)  # type: ignore[attr-defined]
            found.append(name)
    return found


def _noted(make: Callable[..., Any], name: str, seen: Seen) -> Callable[..., Any]:
    def kernel_text(*given: Any, **named: Any) -> Any:
        seen.kernels.add(name)
        return make(*given, **named)

    return kernel_text


def templates() -> list[str]:
    """Classes of hand-scheduled kernels of the CPU provider."""
    import importlib
    import pkgutil

    import intarsia.providers.cpu.kernels as families
    from intarsia.providers.cpu.kernels.common.template import Template

    for info in pkgutil.walk_packages(families.__path__, f"{families.__name__}."):
        importlib.import_module(info.name)

    def below(kind: type) -> Iterator[type]:
        for inner in kind.__subclasses__():
            yield inner
            yield from below(inner)

    return sorted({kind.__name__ for kind in below(Template) if "steps" in vars(kind)})


def serve(requests: Any, answers: Any) -> None:
    """Each request is {"source", "seed", "first", "end" (numbers of models)}, or {"known": true}, which the names of all
    kernels and templates answer. Answers for each model: its {"number"}, {"begin": case} for each run, {"fault": [kind, case,
    text]}, {"seen": counts and names}; {"done": true} at the end."""
    seen = Seen()
    kernels = watch_kernels(seen)

    def say(**what: Any) -> None:
        answers.write(json.dumps(what) + "\n")
        answers.flush()

    def begin(case: str) -> None:
        faulthandler.dump_traceback_later(SECONDS, exit=True)
        say(begin=case)

    warnings.simplefilter("ignore")
    for line in requests:
        request = json.loads(line)
        if request.get("known"):
            say(known={"kernels": kernels, "templates": templates()})
            continue
        for number in range(request["first"], request["end"]):
            say(number=number)
            case = draw_case(request["source"], request["seed"], number, seen)
            for fault in run_case(case, seen, begin):
                say(fault=[fault.kind, fault.case, fault.text])
            say(seen=seen.taken())
        faulthandler.cancel_dump_traceback_later()
        say(done=True)


def again(source: str, seed: int, number: int) -> int:
    """Run one model, and say what is wrong with it; returns the number of faults."""
    count, seen = 0, Seen()
    for fault in run_case(draw_case(source, seed, number, seen), seen, lambda case: print(case, flush=True)):
        print(f"{fault.kind}: {fault.text}", flush=True)
        count += 1
    return count


def main(arguments: Sequence[str]) -> None:
    import resource

    faulthandler.enable()
    if arguments:
        source, seed, number = arguments
        sys.exit(again(source, int(seed), int(number)) > 0)
    resource.setrlimit(resource.RLIMIT_AS, (16 << 30, 16 << 30))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what else is printed is no answer
    serve(sys.stdin, answers)


if __name__ == "__main__":
    main(sys.argv[1:])
