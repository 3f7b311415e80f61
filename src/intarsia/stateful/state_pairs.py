"""Outputs that are the next value of an input: found by names, element types and shapes, or said by the caller."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from intarsia.errors import InvalidArgument, nearest
from intarsia.graph.size_expressions import is_expression
from intarsia.lazy_dataclass import dataclass
from intarsia.stateful.state_names import Likeness, likeness, stem_of

if TYPE_CHECKING:
    from intarsia.graph.model import Graph
    from intarsia.model.signature import NodeArg

Dim = int | str | None


@dataclass(frozen=True)
class State:
    """One output that is fed back into one input.

    Attributes:
        input, output: their names.
        type: the element type, as "tensor(float)".
        shape: of the input, as declared: numbers, names, None for what is not known.
        grows: the axis along which the output is longer than the input, or None.
        batch: the axis of independent rows, or None.
        reason: why it is a state.
    """

    input: str
    output: str
    type: str
    shape: tuple[Dim, ...]
    grows: int | None
    batch: int | None
    reason: str

    def __str__(self) -> str:
        dims = ", ".join("?" if d is None else str(d) for d in self.shape)
        grown = f", grows along axis {self.grows}" if self.grows is not None else ""
        element = self.type.removeprefix("tensor(").removesuffix(")")
        return f"{self.output} -> {self.input}: {element}[{dims}]{grown} ({self.reason})"


def find_states(
    inputs: Sequence[NodeArg],
    outputs: Sequence[NodeArg],
    graph: Callable[[], Graph] | None,
    given: Mapping[str, str] | None = None,
) -> tuple[State, ...]:
    """The states of a model, in the order of its inputs.

    Args:
        inputs, outputs: the model's.
        graph: gives the model's graph, which is read where shapes leave open along which axis a state grows; None: the
            first such axis counts as growing.
        given: by output the input that it is fed into, instead of what is found.

    Raises:
        InvalidArgument: `given` names what is not there, names an input twice, or joins values of different types or ranks.
    """
    if given is not None:
        pairs = _checked(inputs, outputs, given)
        reasons = {i.name: "said by the caller" for i, _ in pairs}
    else:
        pairs, reasons = _found(inputs, outputs)
    true = [a for a in inputs if a.name not in reasons]
    return tuple(_state(i, o, true, graph, reasons[i.name]) for i, o in pairs)


def told_states(inputs: Sequence[NodeArg], outputs: Sequence[NodeArg], graph: Callable[[], Graph]) -> list[str]:
    """What `explain` says of a model's states, in a few lines; [] where it has none."""
    states = find_states(inputs, outputs, graph)
    if not states:
        return []
    shown = [f"  {state}" for state in states[:4]]
    more = [f"  and {len(states) - 4} more"] if len(states) > 4 else []
    return [f"states that session.stateful() feeds back ({len(states)}):", *shown, *more]


def _found(inputs: Sequence[NodeArg], outputs: Sequence[NodeArg]) -> tuple[list[tuple[NodeArg, NodeArg]], dict[str, str]]:
    """Pairs by name, each input and output once, the surest first; and why each is one."""
    by_key: dict[Any, list[NodeArg]] = {}
    for o in outputs:
        by_key.setdefault(stem_of(o.name).key, []).append(o)
    found = ((likeness(o.name, i.name), i, o) for i in inputs for key in stem_of(i.name).keys for o in by_key.get(key, ()))
    taken: dict[str, tuple[Likeness, NodeArg]] = {}
    used: set[str] = set()
    for sure, i, o in sorted((c for c in found if c[0] and _fits(c[1], c[2])), key=lambda c: -c[0]):
        if i.name not in taken and o.name not in used:
            taken[i.name] = sure, o
            used.add(o.name)
    possible = [name for name, (sure, _) in taken.items() if sure == Likeness.POSSIBLE]
    if len(possible) < 2 or len(taken) == len(inputs) or len(taken) == len(outputs):
        for name in possible:  # an image in and an image out
            del taken[name]
    if len(taken) == len(outputs) and any(sure < Likeness.CERTAIN for sure, _ in taken.values()):
        taken = {}  # a layer of a model, which gives nothing but such
    pairs = [(i, taken[i.name][1]) for i in inputs if i.name in taken]
    return pairs, dict.fromkeys((i.name for i, _ in pairs), "by their names")


def _fits(given: NodeArg, output: NodeArg) -> bool:
    """Whether the output may be fed into the input: one element type, one rank, sizes that are not known to differ."""
    if given.type != output.type or not given.type.startswith("tensor("):
        return False
    if not given.shape or not output.shape:
        return given.shape == output.shape or not output.shape
    return len(given.shape) == len(output.shape) and all(
        not (isinstance(a, int) and isinstance(b, int)) or a == b for a, b in zip(given.shape, output.shape, strict=True)
    )


def _checked(inputs: Sequence[NodeArg], outputs: Sequence[NodeArg], given: Mapping[str, str]) -> list[tuple[NodeArg, NodeArg]]:
    by_input, by_output = {a.name: a for a in inputs}, {a.name: a for a in outputs}
    pairs: dict[str, NodeArg] = {}
    for output, name in given.items():
        if output not in by_output:
            raise InvalidArgument(f"states: {output!r} is no output of the model; {nearest(output, list(by_output))}")
        if name not in by_input:
            raise InvalidArgument(f"states: {name!r} is no input of the model; {nearest(name, list(by_input))}")
        if name in pairs:
            raise InvalidArgument(f"states: the input {name!r} is given twice, by {pairs[name].name!r} and {output!r}")
        if not _fits(by_input[name], by_output[output]):
            raise InvalidArgument(
                f"states: the output {by_output[output]} cannot be fed into the input {by_input[name]}: expected one element "
                "type, one rank and equal sizes where both are fixed"
            )
        pairs[name] = by_output[output]
    return [(by_input[name], output) for name, output in pairs.items()]


def _state(given: NodeArg, output: NodeArg, true: Sequence[NodeArg], graph: Callable[[], Graph] | None, reason: str) -> State:
    named = {d for a in true for d in a.shape if isinstance(d, str)}
    grows = _growing_axis(given, output, named, graph)
    batch = _batch_axis(given, named, grows)
    return State(given.name, output.name, given.type, tuple(given.shape), grows, batch, reason)


def _growing_axis(given: NodeArg, output: NodeArg, named: set[str], graph: Callable[[], Graph] | None) -> int | None:
    """The axis along which the output is longer: as its size's name says, as the graph shows, or as two names suggest."""
    doubtful: list[tuple[int, Dim]] = []
    for axis, before in enumerate(given.shape):
        after = output.shape[axis] if output.shape else None
        if isinstance(before, int) or (isinstance(before, str) and (before == after or before in named)):
            continue
        if isinstance(before, str) and isinstance(after, str) and is_expression(after):
            return axis
        doubtful.append((axis, after))
    if not doubtful or graph is None:
        return doubtful[0][0] if doubtful else None
    from intarsia.stateful.growing_axes import growing_axis

    found = growing_axis(graph(), given.name)
    if found is None:
        renamed = (axis for axis, after in doubtful if isinstance(given.shape[axis], str) and isinstance(after, str))
        found = next((axis for axis in renamed if "_dim_" not in str(output.shape[axis])), None)  # torch's name for no name
    return found


def _batch_axis(given: NodeArg, named: set[str], grows: int | None) -> int | None:
    """The axis whose size is the true inputs' too, else the first without a name, or called batch, or of size 1."""
    dims = [(axis, dim) for axis, dim in enumerate(given.shape) if axis != grows]
    orders: tuple[Callable[[Dim], bool], ...] = (
        lambda dim: isinstance(dim, str) and dim in named,
        lambda dim: dim is None or (isinstance(dim, str) and "batch" in dim.lower()),
        lambda dim: dim == 1,
    )
    return next((axis for fits in orders for axis, dim in dims if fits(dim)), None)
