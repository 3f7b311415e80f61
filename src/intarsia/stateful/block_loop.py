"""Many runs in one call: a model whose Scan has the session's model as its body, so that one native loop makes all of them."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from intarsia.errors import Fail, IntarsiaError, InvalidArgument
from intarsia.graph.dims import symbol
from intarsia.graph.model import Constant, Graph, Metadata, Node, TensorType, Value
from intarsia.lazy_dataclass import dataclass
from intarsia.log import logger
from intarsia.stateful.initial_state import element_dtype

if TYPE_CHECKING:
    from intarsia.model.signature import NodeArg
    from intarsia.stateful.state_pairs import State
    from intarsia.stateful.stateful_session import StatefulSession

_OLDEST = 9  # version of ai.onnx whose Scan has no batch axis of its own
_MOST_BYTES = 1 << 30  # of weights, which a model of its own has a copy of while it is made
_BAKED = 16  # elements of an input that is the same in every run and becomes a constant: what branches are chosen by
_RETAINED = 8  # loops of one session, one for each set of such constants


@dataclass(frozen=True)
class Blocks:
    """A feed of `run_many`, divided.

    Attributes:
        count: how many runs.
        scanned: inputs with a block for each run.
        fixed: inputs that are the same in every run.
        replaces: whether initializers are among them, which a loop has as constants.
    """

    count: int
    scanned: dict[str, np.ndarray]
    fixed: dict[str, np.ndarray]
    replaces: bool = False

    def feed(self, run: int) -> dict[str, np.ndarray]:
        """That of one run."""
        return {**{name: blocks[run] for name, blocks in self.scanned.items()}, **self.fixed}


def run_blocks(stream: StatefulSession, feed: Mapping[str, Any], output_names: Sequence[str] | None) -> list[np.ndarray]:
    """As `StatefulSession.run_many`."""
    if stream.session.closed:
        raise Fail("run_many: the session is closed")
    blocks = _divided(stream, feed)
    names = list(output_names) if output_names else [a.name for a in stream._outputs]
    stream._check_names(names)
    with stream._lock:
        before = stream._values or stream._first(blocks.feed(0))
        loop = _loop_of(stream, blocks, before, names) if not blocks.replaces else None
        if loop is None:
            return _run_by_run(stream, blocks, names)
        feeds = {_all(n): v for n, v in blocks.scanned.items()} | {_first(n): v for n, v in before.items()}
        feeds |= {name: value for name, value in blocks.fixed.items() if name in loop.fixed}
        results = dict(zip(loop.outputs, loop.session.run(None, feeds), strict=True))
        stream._advance(before, {s.output: results[_last(s.output)] for s in stream.states}, blocks.count)
    return [results[_all(name)] for name in names]


def _run_by_run(stream: StatefulSession, blocks: Blocks, names: Sequence[str]) -> list[np.ndarray]:
    """The same without a loop. After an error the states are as before."""
    before = {name: getattr(stream, name) for name in ("_values", "runs", "_windowed")}
    history = stream._history.copy()
    try:
        made = [stream.run(names, blocks.feed(run)) for run in range(blocks.count)]
        return [_stacked(name, [row[i] for row in made]) for i, name in enumerate(names)]
    except BaseException:
        stream.__dict__.update(before, _history=history)
        raise


@dataclass(frozen=True)
class Loop:
    """The session of a loop, the inputs without blocks that it takes, and its outputs in order."""

    session: Any
    fixed: frozenset[str]
    outputs: tuple[str, ...]


def _divided(stream: StatefulSession, feed: Mapping[str, Any]) -> Blocks:
    scanned: dict[str, np.ndarray] = {}
    fixed: dict[str, np.ndarray] = {}
    for given in stream._inputs:
        if given.name not in feed:
            raise InvalidArgument(f"run_many: the input {given.name!r} is missing")
        array = _array(given, feed[given.name])
        more = array.ndim - len(given.shape)
        if more not in (0, 1):
            raise InvalidArgument(
                f"run_many: the input {given.name!r} has the shape {list(array.shape)}; expected that of one run, "
                f"{given.shape}, or one axis more, of runs"
            )
        (scanned if more else fixed)[given.name] = array
    replaced = {a.name for a in stream.session.get_overridable_initializers()} & feed.keys()
    fixed |= {name: np.asarray(feed[name]) for name in replaced}
    unknown = [name for name in feed if name not in scanned and name not in fixed]
    if unknown:
        raise InvalidArgument(f"run_many: {unknown} are no inputs; expected {[a.name for a in stream._inputs]}")
    counts = {name: len(array) for name, array in scanned.items()}
    if len(set(counts.values())) != 1:
        raise InvalidArgument(
            f"run_many: expected inputs with one axis more than a run's, of equally many blocks, got {counts or 'none'}"
        )
    count = next(iter(counts.values()))
    if not count:
        raise InvalidArgument(f"run_many: there are no blocks in {list(scanned)}")
    return Blocks(count, scanned, fixed, bool(replaced))


def _array(given: NodeArg, value: Any) -> np.ndarray:
    """An input's blocks. Lists are converted, as in `run`."""
    dtype = element_dtype(given)
    try:
        array = np.asarray(value, dtype) if isinstance(value, (list, tuple, int, float)) else np.asarray(value)
    except (ValueError, TypeError) as error:
        raise InvalidArgument(f"run_many: the input {given.name!r} is no array of {dtype}: {error}") from error
    if array.dtype != dtype:
        raise InvalidArgument(f"run_many: the input {given.name!r} is {array.dtype}; expected {dtype}")
    return array


def _loop_of(stream: StatefulSession, blocks: Blocks, before: Mapping[str, np.ndarray], names: Sequence[str]) -> Loop | None:
    """The loop for blocks and states of such sizes, made once; None where runs are made one by one."""
    loops: dict[Any, Loop | None] = stream._loops
    shapes = {
        **{n: v.shape[1:] for n, v in blocks.scanned.items()},
        **{n: v.shape for n, v in (*before.items(), *blocks.fixed.items())},
    }
    baked = {name: value for name, value in blocks.fixed.items() if value.size <= _BAKED and value.dtype.kind in "biuf"}
    constants = tuple((n, v.dtype.str, v.tobytes()) for n, v in baked.items())
    key = (tuple(names), tuple(blocks.scanned), tuple(sorted(shapes.items())), constants)
    if key not in loops:
        while len(loops) >= _RETAINED:
            loops.pop(next(iter(loops)))
        loops[key] = _made_loop(stream, shapes, baked, (list(blocks.scanned), names))
    return loops[key]


def _made_loop(
    stream: StatefulSession, shapes: Mapping[str, tuple[int, ...]], baked: Mapping[str, np.ndarray],
    over: tuple[Sequence[str], Sequence[str]],
) -> Loop | None:  # fmt: skip
    session, graph = stream.session, stream.session._engine.graph()
    weights = sum(constant.nbytes for constant in graph.constants.values())
    if stream._growing is not None or graph.opset_imports.get("", 0) < _OLDEST or weights > _MOST_BYTES:
        return None
    made, outputs = scan_graph(_with_shapes(graph, shapes), stream.states, over, baked)
    from intarsia.graph.save import to_model_bytes

    try:
        options = copy.deepcopy(session._sess_options)
        options.optimized_model_filepath = ""
        loop = type(session)(to_model_bytes(made), options, *session._arguments[:2], **session._arguments[2])
    except IntarsiaError as error:
        logger.info("run_many goes run by run, as no loop could be made of the model: %s", error)
        return None
    return Loop(loop, frozenset(shapes) - set(baked) - set(over[0]) - {s.input for s in stream.states}, outputs)


def _with_shapes(graph: Graph, shapes: Mapping[str, tuple[int, ...]]) -> Graph:
    """A graph whose inputs have these sizes; all others are to be inferred."""
    sized = graph.clone()
    sized.inputs = [
        Value(
            v.name, TensorType(v.type.dtype, shapes[v.name]) if isinstance(v.type, TensorType) and v.name in shapes else v.type
        )
        for v in graph.inputs
    ]
    sized.outputs = [
        Value(v.name, TensorType(v.type.dtype) if isinstance(v.type, TensorType) else v.type) for v in graph.outputs
    ]
    sized.types = {}
    return sized


def scan_graph(
    graph: Graph, states: Sequence[State], over: tuple[Sequence[str], Sequence[str]], baked: Mapping[str, np.ndarray]
) -> tuple[Graph, tuple[str, ...]]:
    """A graph of one Scan over blocks, whose body is the model; and the names of its outputs.

    Args:
        over: inputs that have a block for each run, and outputs that are wanted of each.
        baked: inputs that are constants.
    """
    scanned, names = over
    taken, given = ({v.name: v.type for v in values} for values in (graph.inputs, graph.outputs))
    body = graph.clone()
    body.constants, body.functions, body.overridable, body.metadata = {}, {}, [], Metadata()
    body.inputs = [Value(n, taken[n]) for n in (*(s.input for s in states), *scanned)]
    body.outputs = [Value(n, given[n]) for n in (*(s.output for s in states), *names)]
    _name_outputs_once(body)
    outputs = (*(_last(s.output) for s in states), *map(_all, names))
    scan = Node(
        "Scan", [*(_first(s.input) for s in states), *map(_all, scanned)], list(outputs),
        {"body": body, "num_scan_inputs": len(scanned)}, name="every_block",
    )  # fmt: skip
    fed = {s.input for s in states} | set(scanned) | set(baked)
    made = Graph(f"{graph.name or 'model'} over blocks", nodes=[scan], functions=graph.functions)
    made.inputs = [Value(_first(s.input), taken[s.input]) for s in states]
    made.inputs += [Value(_all(n), _with_blocks(taken[n])) for n in scanned]
    made.inputs += [v for v in graph.inputs if v.name not in fed]
    made.outputs = [Value(_last(s.output), taken[s.input]) for s in states]
    made.outputs += [Value(_all(n), _with_blocks(given[n])) for n in names]
    made.constants = {**graph.constants, **{n: Constant.of(n, np.asarray(v)) for n, v in baked.items()}}
    made.opset_imports = dict(graph.opset_imports)
    made.metadata = Metadata(ir_version=graph.metadata.ir_version)
    return made, outputs


def _name_outputs_once(body: Graph) -> None:
    """Copy what a body gives twice: a state that is wanted of each run too."""
    seen: set[str] = set()
    for i, value in enumerate(body.outputs):
        if value.name in seen:
            copied = f"{value.name}%copy"
            body.nodes.append(Node("Identity", [value.name], [copied]))
            body.outputs[i] = Value(copied, value.type)
        seen.add(value.name)


def _with_blocks(kind: Any) -> Any:
    """The type of as many values of a type as there are blocks."""
    if not isinstance(kind, TensorType):
        return kind
    return TensorType(kind.dtype, (symbol("blocks"), *kind.shape) if kind.shape is not None else None)


def _all(name: str) -> str:
    return f"{name}%blocks"


def _first(name: str) -> str:
    return f"{name}%first"


def _last(name: str) -> str:
    return f"{name}%last"


def _stacked(name: str, values: list[Any]) -> np.ndarray:
    arrays = [np.asarray(v) for v in values]
    if len({a.shape for a in arrays}) > 1:
        raise InvalidArgument(
            f"run_many: the output {name!r} has another shape in each run ({list(arrays[0].shape)}, "
            f"{list(arrays[-1].shape)}): ask for other outputs, or call run"
        )
    return np.stack(arrays)
