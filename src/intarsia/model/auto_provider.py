"""`providers="auto"`: the providers of this machine tried on the model itself; the fastest that is right is taken.

Candidates are the CPU alone and, for every other available provider, two cuts of the model: everything it takes, and without
the islands that the cost model would leave to the CPU. Each is compiled and timed on made-up inputs, and its results are
compared with the CPU's. The winner is remembered in the cache by model, providers, versions, machine and options.
"""

from __future__ import annotations

import json
import math
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from intarsia import progress
from intarsia.cache.disk_cache import content_key, get_cache
from intarsia.cache.fingerprint import fingerprint
from intarsia.errors import IntarsiaError, InvalidArgument, is_of_a_signal_handler
from intarsia.graph.dims import Dim, evaluate, symbols_of
from intarsia.graph.dtypes import DType
from intarsia.graph.model import Graph, TensorType, Value
from intarsia.lazy_dataclass import dataclass
from intarsia.partition.text_table import format_table
from intarsia.printable import get_logger
from intarsia.providers.registry import ACL, CPU, OPENVINO, REFERENCE, get_available_providers, load_provider

if TYPE_CHECKING:
    from intarsia.model.compiled_model import CompiledModel

SHAPES = "session.max_shape_override"
_SECONDS = 0.5  # of timed runs for each candidate
_MAX_RUNS = 50
_TOLERANCE = 1e-2  # of the largest element: a reduced precision is not chosen unasked
_WORTH = 0.97  # another candidate must take less than this share of the CPU's time
_SIZE = 16  # for sizes that the model leaves open, but for the first of an input
_OVERRIDE = re.compile(r"\s*([^\[\];]+):\s*\[([^\]]*)\]\s*")

_logger = get_logger("intarsia.providers")


@dataclass(frozen=True)
class Candidate:
    """One way to run the model: its providers, the cut, the best time of a run, or why it is out."""

    providers: tuple[str, ...]
    keep_islands: bool
    milliseconds: float = math.inf
    parts: int = 0
    copied_nbytes: int = 0
    problem: str = ""

    @property
    def cut(self) -> str:
        return "alone" if len(self.providers) == 1 else "all it takes" if self.keep_islands else "by cost"


@dataclass(frozen=True)
class Choice:
    """The candidates and the winner. Prints itself as a table."""

    winner: Candidate
    candidates: tuple[Candidate, ...]
    shapes: Mapping[str, Sequence[int]]
    remembered: bool = False

    def __str__(self) -> str:
        rows = []
        for c in self.candidates:
            took = c.problem or f"{c.milliseconds:.3f} ms, {c.parts} parts, {c.copied_nbytes:,} bytes copied"
            rows.append((", ".join(c.providers), c.cut, took, "chosen" if c == self.winner else ""))
        measured = ", ".join(f"{name} {list(shape)}" for name, shape in self.shapes.items())
        when = "remembered from an earlier session" if self.remembered else "measured now"
        return f"{format_table(('providers', 'cut', 'best run', ''), rows)}\n{when}, for {measured or 'no inputs'}"

    def to_dict(self) -> dict[str, Any]:
        """As data; `from_dict` reads it."""
        return {
            "winner": self.candidates.index(self.winner),
            "candidates": [asdict(c) | {"milliseconds": min(c.milliseconds, 1e300)} for c in self.candidates],
            "shapes": {name: list(shape) for name, shape in self.shapes.items()},
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Choice:
        candidates = tuple(Candidate(**{**c, "providers": tuple(c["providers"])}) for c in data["candidates"])
        return cls(candidates[data["winner"]], candidates, data["shapes"], remembered=True)


def choose(
    graph: Graph, make: Callable[[Sequence[str], bool], CompiledModel], model_key: str | None, settings: str, shapes: str = ""
) -> Choice:
    """Measure the candidates for `graph`, or remember what was measured.

    Args:
        make: the compiled model for providers in order, and whether islands stay.
        model_key: what identifies the model; None: nothing is remembered.
        settings: text that differs where another candidate might win.
        shapes: sizes to measure with, as in "session.max_shape_override": "x:[1,3,224,224];ids:[1,128]".

    Raises:
        InvalidArgument: `shapes` has another form or does not fit the inputs.
    """
    names = [n for n in get_available_providers() if n not in (CPU, REFERENCE)]
    if OPENVINO in names and ACL in names:
        names.remove(ACL)  # the same library, whose kernels are ACL's on ARM64 in either case
    names = [n for n in names if not all(device.software for device in load_provider(n).devices())]
    inputs = example_inputs(graph.inputs, shapes)
    sizes = {v.name: list(np.shape(x)) for v, x in zip(graph.inputs, inputs, strict=True)}
    cache, key = get_cache(), ""
    if model_key is not None:
        versions = [f"{n} {getattr(load_provider(n), '__module__', '')} {_version(n)}" for n in names]
        key = content_key("auto", model_key, settings, fingerprint(), json.dumps([versions, sizes]))
        if (data := cache.get(key)) is not None:
            return Choice.from_dict(json.loads(data))
    found = _measured(make, names, inputs)
    best = min(found, key=lambda c: c.milliseconds)
    cpu = found[0]
    winner = best if not math.isfinite(cpu.milliseconds) or best.milliseconds < _WORTH * cpu.milliseconds else cpu
    choice = Choice(winner, tuple(found), sizes)
    if key and math.isfinite(winner.milliseconds):
        cache.put(key, json.dumps(choice.to_dict()).encode())
    _logger.info("providers='auto' chose:\n%s", choice)
    return choice


def _version(name: str) -> str:
    """What the provider says of its devices, with its library's version where that has one."""
    provider = load_provider(name)
    return f"{provider.library_version()} {[d.description for d in provider.devices()]}"


def _measured(make: Callable[[Sequence[str], bool], CompiledModel], names: Sequence[str], inputs: list[Any]) -> list[Candidate]:
    first, wanted = _timed(make, Candidate((CPU,), False), inputs, None, set())
    found, seen = [first], set[tuple[str, ...]]()
    for name in names:
        for keep_islands in (True, False):
            candidate, _ = _timed(make, Candidate((name, CPU), keep_islands), inputs, wanted, seen)
            if candidate.problem != _SAME:
                found.append(candidate)
    return found


_SAME = "the same cut"


def _timed(
    make: Callable[[Sequence[str], bool], CompiledModel],
    candidate: Candidate,
    inputs: list[Any],
    wanted: list[Any] | None,
    seen: set[tuple[str, ...]],
) -> tuple[Candidate, list[Any] | None]:
    """The candidate with its time or its problem, and its results. `seen`: owners of all nodes, for each cut that was tried."""
    changes: dict[str, Any] = {}
    try:
        model = make(candidate.providers, candidate.keep_islands)
        split = model.partition
        changes = {"parts": len(split.parts), "copied_nbytes": split.copied_nbytes}
        owners = tuple(p.provider for p in split.placements)
        if owners in seen:
            return _with(candidate, problem=_SAME), None
        seen.add(owners)
        if candidate.providers[0] not in owners and owners:
            return _with(candidate, **changes, problem=f"{candidate.providers[0]} takes no node"), None
        results = model.run(inputs, None)
        if wanted is not None and (difference := _difference(results, wanted)):
            return _with(candidate, **changes, problem=f"its results differ from the CPU's: {difference}"), results
        return _with(candidate, **changes, milliseconds=_best_time(model, inputs)), results
    except Exception as error:
        own = isinstance(error, IntarsiaError | MemoryError)
        if not own and (progress.stopped_by(error) or is_of_a_signal_handler(error)):
            raise
        return _with(candidate, **changes, problem=f"{type(error).__name__}: {str(error).splitlines()[0][:200]}"), None


def _with(candidate: Candidate, **changes: Any) -> Candidate:
    return replace(candidate, **changes)


def _best_time(model: CompiledModel, inputs: list[Any]) -> float:
    """Milliseconds of the fastest run."""
    model.run(inputs, None)
    best, began = math.inf, time.perf_counter()
    for _ in range(_MAX_RUNS):
        start = time.perf_counter()
        model.run(inputs, None)
        now = time.perf_counter()
        best = min(best, now - start)
        if now - began > _SECONDS:
            break
    return best * 1e3


def _difference(found: Sequence[Any], wanted: Sequence[Any]) -> str:
    for i, (a, b) in enumerate(zip(found, wanted, strict=True)):
        if not isinstance(b, np.ndarray) or b.dtype.kind not in "fiub":
            continue
        if not isinstance(a, np.ndarray) or a.shape != b.shape or a.dtype != b.dtype:
            return f"output {i} is of another type or shape"
        if b.dtype.kind != "f":
            wrong = np.count_nonzero(a != b)
            if wrong > 0.01 * b.size:
                return f"output {i}: {wrong} of {b.size} elements"
            continue
        scale = np.max(np.abs(b), where=np.isfinite(b), initial=1e-6)
        worst = np.max(np.abs(a - b), where=np.isfinite(b), initial=0.0)
        if not worst <= _TOLERANCE * scale:
            return f"output {i} by {worst / scale:.2g} of its largest element"
    return ""


def example_inputs(values: Sequence[Value], shapes: str) -> list[Any]:
    """Made-up tensors for inputs: normal floats, zeros otherwise.

    Raises:
        InvalidArgument: an input is no tensor, or `shapes` does not fit.
    """
    given = _parsed(shapes)
    for name in given:
        if name not in {v.name for v in values}:
            raise InvalidArgument(
                f"configuration entry {SHAPES!r}: the model has no input {name!r}: {[v.name for v in values]}"
            )
    sizes: dict[str, int] = {}
    for value in values:
        declared = value.type.shape if isinstance(value.type, TensorType) else None
        if value.name in given and declared is not None:
            if len(declared) != len(given[value.name]):
                raise InvalidArgument(
                    f"configuration entry {SHAPES!r}: {value.name!r} has {len(declared)} dimensions, got {given[value.name]}"
                )
            sizes.update((str(d), n) for d, n in zip(declared, given[value.name], strict=True) if not isinstance(d, int))
    generator = np.random.default_rng(0)
    return [_example(value, given.get(value.name), sizes, generator) for value in values]


def _example(value: Value, given: Sequence[int] | None, sizes: dict[str, int], generator: np.random.Generator) -> np.ndarray:
    kind = value.type
    if not isinstance(kind, TensorType) or kind.shape is None or kind.dtype is DType.STRING:
        raise InvalidArgument(
            f"providers='auto' measures with tensors of known rank; input {value.name!r} is {kind}: name providers"
        )
    shape = tuple(given) if given is not None else tuple(_size(d, i, sizes) for i, d in enumerate(kind.shape))
    if kind.dtype.is_floating:
        return generator.standard_normal(shape).astype(kind.dtype.numpy)
    return np.zeros(shape, kind.dtype.numpy)


def _size(dim: Dim, axis: int, sizes: dict[str, int]) -> int:
    if isinstance(dim, int):
        return dim
    for name in symbols_of(dim):
        sizes.setdefault(name, 1 if axis == 0 else _SIZE)
    return max(evaluate(dim, sizes), 1)


def _parsed(text: str) -> dict[str, list[int]]:
    found = {}
    for part in filter(None, (p.strip() for p in text.split(";"))):
        match = _OVERRIDE.fullmatch(part)
        if match is None or not all(n.strip().isdigit() for n in match[2].split(",")):
            raise InvalidArgument(f"configuration entry {SHAPES!r}: expected 'name:[1,2];other:[3]', got {part!r}")
        found[match[1].strip()] = [int(n) for n in match[2].split(",")]
    return found
