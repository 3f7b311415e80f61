"""Types of all values of a graph, and the small integer tensors (shapes, axes) whose elements are known as dimensions.

Inference is tracing: a node's definition is called on symbolic tensors, and the result's shape and dtype are the answer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import field
from typing import Any, NamedTuple

import numpy as np

from intarsia import progress
from intarsia.errors import IntarsiaError, InvalidGraph, NotImplemented, OutOfMemory
from intarsia.graph.dims import Expr, Shape, fresh_symbol, is_static, latest_fresh, product, symbol
from intarsia.graph.dtypes import DType
from intarsia.graph.model import Graph, Node, OptionalType, SequenceType, TensorType, Value, ValueType
from intarsia.lazy_dataclass import dataclass
from intarsia.ops.framework.attributes import check_attributes, unknown_attribute
from intarsia.ops.framework.parameter_groups import keyword_names, takes_any_keyword
from intarsia.ops.framework.registry import REQUIRED, NodeContext, OpRecord, Registry
from intarsia.ops.framework.schema_check import check_bodies, check_operands
from intarsia.ops.framework.size_quotients import FOLLOWED, Ratio, divided, follow
from intarsia.ops.framework.symbolic import Unknown, evaluate_symbolic
from intarsia.primitives import lang as k
from intarsia.primitives.interpreter import DivisionByZero, interpret
from intarsia.primitives.requirements import Requirement, collected

VALUE_LIMIT = 256  # integer tensors of at most this many elements are followed symbolically
FLOAT_LIMIT = 16  # the same for float constants (Resize's scales)
_MOST_SIZE = 1 << 63
_OF_NUMBERS = FOLLOWED | {"QuantizeLinear", "DequantizeLinear"}
_INTEGERS = (DType.INT64, DType.INT32, DType.BOOL, DType.UINT8)
_FLOATS = (DType.FLOAT, DType.DOUBLE)
MALFORMED = (
    TypeError,
    ValueError,
    LookupError,
    AttributeError,
    ArithmeticError,
)  # of definitions given what they do not expect
_MOVES = frozenset(("Concat", "Gather", "Reshape", "Slice", "Squeeze", "Unsqueeze"))  # of vectors in floating point
_SAME_RANK = frozenset(("Resize", "Upsample", "Pad", "Slice", "Tile", "CenterCropPad"))  # as their first input


@dataclass
class Inference:
    """What is known of each value by name.

    Attributes:
        types: type of every value that could be inferred.
        values: object arrays of `Dim`s for small integer tensors whose elements are known before the model runs.
        ratios: floating-point scalars that are quotients of a size.
        traces: per node (by its first output's name), its primitives: one root per output.
        requirements: per node, what its definition requires of sizes that are not known.
        unknown: per node, why it could not be traced (its definition needs a value that only a run gives).
        alike: what was traced, for other nodes of the same operator, attributes and operands' types.
        assumed: values whose type the model declares and nothing else tells: a run may make others.
        declared: the same, and those whose types follow from such.
    """

    graph: Graph
    types: dict[str, ValueType] = field(default_factory=dict)
    values: dict[str, np.ndarray] = field(default_factory=dict)
    ratios: dict[str, Ratio] = field(default_factory=dict)
    traces: dict[str, list[k.Tensor | None]] = field(default_factory=dict)
    requirements: dict[str, tuple[Requirement, ...]] = field(default_factory=dict)
    unknown: dict[str, str] = field(default_factory=dict)
    declared: set[str] = field(default_factory=set)
    assumed: set[str] = field(default_factory=set)
    alike: dict[tuple[Any, ...], Traced] = field(default_factory=dict)
    _made: tuple[list[Node], int, dict[str, Node]] | None = None

    def producer(self, name: str) -> Node | None:
        """The node that computes a value. What finds that is memoized while the graph has as many nodes as it had."""
        made, nodes = self._made, self.graph.nodes
        if made is None or made[0] is not nodes or made[1] != len(nodes):
            made = self._made = nodes, len(nodes), self.graph.producers()
        return made[2].get(name)


def resolve_version(graph: Graph, node: Node, registry: Registry) -> OpRecord | None:
    """The record that `node` means: by its own version where it has one, else by the graph's opset import."""
    version = node.version or graph.opset_imports.get(node.domain, 0 if node.domain else graph.opset_imports.get("ai.onnx", 1))
    return registry.find(node.domain, node.op_type, version or 1)


def infer(
    graph: Graph,
    registry: Registry,
    outer_types: Mapping[str, ValueType] | None = None,
    outer_values: Mapping[str, np.ndarray] | None = None,
    strict: bool = True,
    on_error: Callable[[Node, IntarsiaError], None] | None = None,
) -> Inference:
    """Infer types through `graph`. The result's graph is a clone whose nodes have their versions resolved.

    Args:
        outer_types, outer_values: what is known of names that a subgraph captures.
        strict: raise for operators without a record; otherwise their outputs stay unknown.
        on_error: is told what is wrong with a node, instead of an error; its outputs have the types declared.

    Raises:
        NotImplemented: an operator has no record (names domain, operator, version, node).
        InvalidGraph: a node's inputs do not fit its definition.
    """
    result = Inference(graph.clone())
    result.types.update(outer_types or {})
    result.values.update(outer_values or {})
    for value in graph.inputs:
        kind = _known_part(value.type)
        if kind is not None:
            result.types[value.name] = kind
        if value.name in graph.followed:
            _named_elements(value.name, value.type, result)
    for name, constant in graph.constants.items():
        result.types[name] = constant.type
        limit = VALUE_LIMIT if constant.dtype in _INTEGERS else FLOAT_LIMIT if constant.dtype in _FLOATS else -1
        if constant.size <= limit:
            result.values[name] = constant.numpy().astype(object)
    for node in result.graph.nodes:
        progress.check()
        try:
            infer_node(result, node, registry, strict)
        except IntarsiaError as error:
            if on_error is None:
                raise
            on_error(node, error)
            _declare(result, node)
    result.graph.types = {**result.types}
    return result


def _known_part(kind: ValueType | None) -> ValueType | None:
    """A type without what it leaves open: a tensor whose element type the model does not say is of no type."""
    if isinstance(kind, TensorType):
        return None if kind.dtype is DType.UNDEFINED else kind
    if isinstance(kind, (SequenceType, OptionalType)):
        element = _known_part(kind.element)
        return kind if element is kind.element else type(kind)(element)
    return kind


def infer_node(result: Inference, node: Node, registry: Registry, strict: bool = True) -> None:
    record = resolve_version(result.graph, node, registry)
    if record is None and node.compiled_part:
        types = node.attributes.get("output_types") or ()
        result.types.update((n, t) for n, t in zip(node.outputs, types, strict=False) if n and t is not None)
        _declare(result, node)
        return
    if record is None:
        if strict:
            version = result.graph.opset_imports.get(node.domain, 0)
            operator = f"{node.domain or 'ai.onnx'}::{node.op_type} (opset {version})"
            raise NotImplemented(f"operator {operator} of node {node.name!r} is not implemented")
        _declare(result, node)
        return
    node.version = record.since
    try:
        outputs = _outputs_of(result, node, record, registry)
    except k.SymbolicValueError as error:
        result.unknown[node.outputs[0]] = str(error)
        outputs = _types_of_known_rank(result, node)
    except k.DefinitionError as error:
        raise InvalidGraph(f"node {node.name!r} ({node.qualified_op}): {error}") from error
    except MALFORMED as error:
        problem = f"its inputs and attributes do not fit together: {type(error).__name__}: {error}"
        raise InvalidGraph(f"node {node.name!r} ({node.qualified_op}): {problem}") from error
    except MemoryError as error:
        where = f"node {node.name!r} ({node.qualified_op})"
        raise OutOfMemory(f"{where}: {error}: its sizes are larger than this machine can compute with") from error
    if outputs is None:
        _declare(result, node)
        return
    if result.declared and not result.declared.isdisjoint(node.inputs):
        result.declared.update(filter(None, node.outputs))
    for name, found in zip(node.outputs, outputs, strict=False):
        if name and found is not None:
            result.types[name] = found
        elif name:
            _declare_one(result, name)


def _check_shapes(node: Node, types: Sequence[ValueType | None]) -> None:
    for name, kind in zip(node.outputs, types, strict=False):
        if name and isinstance(kind, TensorType) and kind.shape:
            _check_shape(node, name, kind.shape)


def _check_shape(node: Node, name: str, shape: Shape) -> None:
    where = f"node {node.name!r} ({node.qualified_op})"
    if any(isinstance(d, int) and d >= _MOST_SIZE for d in shape):
        raise InvalidGraph(f"{where}: {name!r} would have 2^63 elements or more along an axis: sizes are int64")
    if len(shape) > k.MOST_AXES:
        raise InvalidGraph(f"{where}: {name!r} would have {len(shape)} axes; expected at most {k.MOST_AXES}")


def _types_of_known_rank(result: Inference, node: Node) -> list[ValueType | None] | None:
    """Sizes are symbols that a run gives numbers, where only sizes depend on values that are known at run time."""
    first = result.types.get(node.inputs[0]) if node.inputs else None
    if node.domain or not isinstance(first, TensorType) or first.shape is None:
        return None
    if node.op_type == "Dropout":
        found: list[ValueType | None] = [first, TensorType(DType.BOOL, first.shape)]
        return found[: len(node.outputs)]
    if node.op_type != "Range" and node.op_type not in _SAME_RANK:
        return None
    rank = 1 if node.op_type == "Range" else len(first.shape)
    return [TensorType(first.dtype, fresh_shape(rank, node.outputs[0]))]


def _declare(result: Inference, node: Node) -> None:
    """Fall back on the types the model declares; sizes become fresh symbols where they are not known."""
    for name in node.outputs:
        if name:
            _declare_one(result, name)


def _declare_one(result: Inference, name: str) -> None:
    declared = _known_part(result.graph.type_of(name))
    if declared is not None and name not in result.types:
        result.types[name] = declared
        result.declared.add(name)
        result.assumed.add(name)


def _outputs_of(result: Inference, node: Node, record: OpRecord, registry: Registry) -> Sequence[ValueType | None] | None:
    types, inputs, missing, ranked = result.types, [], None, True
    for name in node.inputs:
        kind = types.get(name) if name else None
        inputs.append(kind)
        if kind is None:
            if name and missing is None:
                missing = name
        elif kind.__class__ is TensorType and kind.shape is None:
            ranked = False
    if record.host or missing is not None or not ranked:  # else when it is traced
        _check(record, node, inputs)
    if missing is not None:
        result.unknown[node.outputs[0]] = f"the type of its input {missing!r} is known only at run time"
        return None
    if record.host:
        with collected() as required:
            found = _infer_host(result, node, record, inputs, registry)
        result.requirements[node.outputs[0]] = tuple(required)
        _check_shapes(node, found)
        return found
    if not ranked:
        result.unknown[node.outputs[0]] = "the rank of an input is known only at run time"
        return None
    known = result.values
    values = {i: known.get(n) for i, n in enumerate(node.inputs) if n} if record.value_indices else {}
    bound = _data_symbols(record, node, inputs, values, result) if values else values
    traced = _traced(result, record, node, inputs, bound)
    result.requirements[node.outputs[0]] = traced.requirements
    if traced.whole:
        result.traces[node.outputs[0]] = list(traced.roots)
        if traced.followed:
            values = values or {i: known.get(n) for i, n in enumerate(node.inputs) if n}
            _follow_values(result, node, traced.roots, values)
    return traced.types


class Traced(NamedTuple):
    """What tracing found for a node.

    Attributes:
        key: what that depends on.
        roots: its primitives, one for each output.
        requirements: what they ask of sizes.
        types: those of the outputs.
        whole: whether all outputs are tensors (Identity of a sequence is not: its type passes through).
        followed: whether `_follow_values` may learn something.
        attributes: the node's, held so that no id in the key is used again.
    """

    key: tuple[Any, ...]
    roots: tuple[k.Tensor | None, ...]
    requirements: tuple[Requirement, ...]
    types: tuple[ValueType | None, ...]
    whole: bool
    followed: bool
    attributes: tuple[Any, ...]


def _traced(
    result: Inference, record: OpRecord, node: Node, inputs: Sequence[ValueType | None],
    values: Mapping[int, np.ndarray | None],
) -> Traced:  # fmt: skip
    """What is found by tracing the node; last time, where nothing that it depends on has changed, or for a node alike."""
    indices, outputs = record.value_indices, tuple(map(bool, node.outputs))
    elements = tuple(None if v is None else tuple(v.flat) for v in map(values.get, sorted(indices))) if indices else ()
    attributes = node.attributes
    ids = tuple([(name, id(value)) for name, value in attributes.items()]) if attributes else ()
    key = (record, tuple(inputs), elements, outputs, ids)
    if node.traced is not None and node.traced.key == key:
        found: Traced = node.traced
        return found
    shared = _shared_key(record, key, attributes)
    alike = result.alike.get(shared) if shared is not None else None
    if alike is None:
        latest = latest_fresh()
        alike = _traced_anew(record, node, inputs, values)
        if shared is not None and latest_fresh() == latest:  # no size has a name of its own
            result.alike[shared] = alike
    node.traced = alike._replace(key=key, attributes=tuple(attributes.values()))
    return alike


def _traced_anew(
    record: OpRecord, node: Node, inputs: Sequence[ValueType | None], values: Mapping[int, np.ndarray | None]
) -> Traced:
    _check(record, node, inputs)
    operands = [k.input(i, t.dtype, t.shape or ()) if isinstance(t, TensorType) else t for i, t in enumerate(inputs)]
    with collected() as required:
        roots = trace(record, node, operands, values)
    types = tuple(TensorType(r.dtype, r.shape) if isinstance(r, k.Tensor) else r for r in roots)
    _check_shapes(node, types)
    whole = all(r is None or isinstance(r, k.Tensor) for r in roots)
    followed = whole and any(r is not None and (r.dtype in _INTEGERS or len(r.shape) <= 1) for r in roots)
    return Traced((), tuple(roots), tuple(required), types, whole, followed, ())


_VALUES = (int, str, bytes, bool, DType)


def _shared_key(record: OpRecord, key: tuple[Any, ...], attributes: Mapping[str, Any]) -> tuple[Any, ...] | None:
    """Equal for nodes for which tracing finds the same; None where that cannot be told."""
    _, inputs, elements, outputs, _ = key
    if not record.own or record.wants_context or any(e is not None and any(type(x) is float for x in e) for e in elements):
        return None
    given = []
    for name, value in attributes.items():
        kind = type(value)
        if kind in _VALUES:
            given.append((name, kind, value))
        elif kind is float:
            given.append((name, kind, value.hex()))  # 0.0 is not -0.0
        elif kind is list and all(type(x) in _VALUES for x in value):
            given.append((name, kind, *value))
        else:
            return None
    return id(record), inputs, elements, outputs, tuple(given)  # the registry has the record


def _data_symbols(
    record: OpRecord, node: Node, inputs: Sequence[ValueType | None], values: dict[int, np.ndarray | None], result: Inference
) -> dict[int, np.ndarray | None]:
    """Give the elements of an integer input that only a run knows names, so that shapes can be written in terms of them."""
    for i in record.value_indices:
        if i < len(node.inputs) and values.get(i) is None:
            named = _named_elements(node.inputs[i], inputs[i], result)
            if named is not None:
                values[i] = named
    return values


def _named_elements(name: str, kind: ValueType | None, result: Inference) -> np.ndarray | None:
    """The elements of an integer value as symbols, None where there are too many or their number is not known."""
    if not isinstance(kind, TensorType) or kind.shape is None or kind.dtype not in (DType.INT64, DType.INT32):
        return None
    count = product(kind.shape)
    if not isinstance(count, int) or count > 16:
        return None
    named = np.array([symbol(f"{name}[{j}]") for j in range(count)], object)
    result.values[name] = named.reshape([d for d in kind.shape if isinstance(d, int)])
    return result.values[name]


def trace(
    record: OpRecord, node: Node, operands: Sequence[Any], values: Mapping[int, np.ndarray | None]
) -> list[k.Tensor | None]:
    """The node's primitive graph: its definition called on `operands` (tensors; None: omitted).

    `values` has, by input position, the elements of integer inputs; the definition's `values` inputs receive them.

    Raises:
        SymbolicValueError: an input is needed as integers and is not known.
        DefinitionError: the operands do not fit.
    """
    arguments: list[Any] = list(operands)
    for i in record.value_indices:
        if i < len(arguments) and arguments[i] is not None:
            known = values.get(i)
            if known is None:
                where = f"{record.input_names[i]!r} ({node.inputs[i]!r})"
                raise k.SymbolicValueError(f"its input {where} is known only at run time")
            arguments[i] = known.astype(np.int64).astype(object) if operands[i].dtype is DType.BOOL else known
    out = call(record, node, arguments, operands=tuple(operands))
    roots = list(out) if isinstance(out, (tuple, list)) else [out]
    return roots[: len(node.outputs)] + [None] * (len(node.outputs) - len(roots))


def call(
    record: OpRecord, node: Node, arguments: Sequence[Any], function: Callable[..., Any] | None = None,
    checked: Mapping[str, Any] | None = None, **context: Any,
) -> Any:  # fmt: skip
    """Call a record's function (or `function`, of the same parameters) with the node's inputs and attributes (`checked`:
    what `keywords` gave before).

    Raises:
        DefinitionError: a required input or attribute is missing, or one is unknown.
    """
    args = list(arguments)
    while not record.variadic and args and args[-1] is None:
        args.pop()
    check_inputs(record, [x is not None for x in args])
    return (function or record.function)(*args, **(keywords(record, node, **context) if checked is None else checked))


def keywords(record: OpRecord, node: Node, **context: Any) -> dict[str, Any]:
    """A node's attributes as its record's function takes them. Raises DefinitionError as `call` does."""
    attributes = dict(node.attributes)
    attributes.pop("consumed_inputs", None)  # opset 1's hint for in-place execution
    for name, default in record.attributes.items():
        if default is REQUIRED and name not in attributes:
            raise k.DefinitionError(f"required attribute {name!r} is missing")
    extra = set() if record.takes_any_attribute else set(attributes) - set(record.attributes)
    for name in extra:
        if not name.startswith("_"):
            raise unknown_attribute(record, node.op_type, name)
        del attributes[name]
    if record.wants_context:
        wanted = tuple(bool(o) for o in node.outputs)
        attributes["node"] = NodeContext(len(node.outputs), wanted, record.since, node.name, **context)
    return attributes


def _check(record: OpRecord, node: Node, inputs: Sequence[ValueType | None]) -> None:
    """Raise DefinitionError where the node is not what its operator's schema says, whatever its definition makes of it."""
    check_attributes(record, node)
    check_inputs(record, node.inputs)
    _check_variadic(record, node)
    check_operands(record, node, inputs)
    check_bodies(record, node)


def check_inputs(record: OpRecord, given: Sequence[object]) -> None:
    """Raise DefinitionError where inputs are too many, or a required one is missing; what is false is left out."""
    count = max((i + 1 for i, x in enumerate(given) if x), default=0)
    if not record.variadic and count > len(record.input_names):
        raise k.DefinitionError(f"takes at most {len(record.input_names)} inputs, got {count}")
    for i in record.required_inputs:
        if i >= count or not given[i]:
            raise k.DefinitionError(f"required input {record.input_names[i]!r} is missing")


def _check_variadic(record: OpRecord, node: Node) -> None:
    """Inputs of which an operator takes any number are all there (derivatives leave out those that they do not need)."""
    own = getattr(record.function, "__module__", "").startswith("intarsia.ops.")
    if record.variadic and own and record.domain != "intarsia.gradient":
        names = node.inputs[len(record.input_names) :]
        if "" in names:
            raise k.DefinitionError(f"input {len(record.input_names) + names.index('')} is left out; expected a value")


def _infer_host(
    result: Inference, node: Node, record: OpRecord, inputs: list[ValueType | None], registry: Registry
) -> list[ValueType | None]:
    assert record.infer is not None

    def infer_graph(graph: Graph, types: Sequence[ValueType | None]) -> list[ValueType | None]:
        inner = graph.clone()
        inner.opset_imports = graph.opset_imports or result.graph.opset_imports
        inner.inputs = [Value(v.name, t if t is not None else v.type) for v, t in zip(graph.inputs, types, strict=True)]
        found = infer(inner, registry, result.types, result.values)
        return [found.types.get(v.name, v.type) for v in graph.outputs]

    def elements(i: int) -> np.ndarray | None:
        known = result.values.get(node.inputs[i])
        return known if known is not None else _named_elements(node.inputs[i], inputs[i], result)

    attributes = {a: b for a, b in node.attributes.items() if not a.startswith("_")}
    if "node" in keyword_names(record.infer):
        wanted = tuple(bool(o) for o in node.outputs)
        attributes["node"] = NodeContext(
            len(node.outputs), wanted, record.since, node.name, infer_graph=infer_graph, elements=elements
        )
    args: list[Any] = list(inputs)
    for i in record.value_indices:
        if i < len(args) and args[i] is not None:
            args[i] = result.values.get(node.inputs[i], args[i])  # the type stays where the elements are not known
    accepted = set(attributes) if takes_any_keyword(record.infer) else keyword_names(record.infer)
    out = record.infer(*args, **{a: b for a, b in attributes.items() if a in accepted})
    roots = list(out) if isinstance(out, (tuple, list)) else [out]
    return roots[: len(node.outputs)]


def _follow_values(
    result: Inference, node: Node, roots: Sequence[k.Tensor | None], values: Mapping[int, np.ndarray | None]
) -> None:
    """Evaluate integer outputs on dimensions, where all that they depend on is known; so are sizes cast to floating point."""
    for name, root in zip(node.outputs, roots, strict=True):
        if node.op_type == "Cast" and root is not None and root.dtype in _FLOATS and root.rank == 0:
            known = values.get(0)
            if known is not None and not isinstance(known.item(), (bool, float)):
                result.values[name] = known
        if root is not None and root.rank == 0 and not node.domain and node.op_type in FOLLOWED and name not in result.values:
            _follow_ratio(result, node, name, root.dtype in _INTEGERS)
        if root is not None and root.dtype in _FLOATS and root.rank == 1 and not node.domain:
            _follow_vector(result, node, name, root, values)
        if root is not None and root.shape == () and node.op_type in _OF_NUMBERS:
            _follow_numbers(result, node, name, root)
        if not name or root is None or root.dtype not in _INTEGERS:
            continue
        count = product(root.shape)
        if isinstance(count, int) and count <= VALUE_LIMIT and is_static(root.shape):
            with suppress(Unknown):
                result.values[name] = evaluate_symbolic(root, values)


def _follow_ratio(result: Inference, node: Node, name: str, whole: bool) -> None:
    """A number that is computed from a size in floating point, and what is cut off or rounded of one."""
    found = follow(node, whole, result.values, result.ratios)
    if isinstance(found, Ratio) and found.denominator == 1:
        found = found.numerator
    if isinstance(found, Ratio):
        result.ratios[name] = found
    elif found is not None:
        result.values[name] = np.array(found, object)


def _follow_vector(result: Inference, node: Node, name: str, root: k.Tensor, values: Mapping[int, np.ndarray | None]) -> None:
    """Sizes, and quotients of sizes, in a vector in floating point: what Resize takes as its scales."""
    given = [values.get(i) for i in range(len(node.inputs))]
    known = [x for x in given if x is not None]
    count = product(root.shape)
    if len(known) < len(given) or not isinstance(count, int) or count > FLOAT_LIMIT:
        return
    found = None
    if node.op_type == "Cast":
        found = known[0]
    elif node.op_type == "Div":
        found = divided(*known)
    elif node.op_type in _MOVES:
        with suppress(Unknown):
            found = evaluate_symbolic(root, values)
    if found is not None:
        result.values[name] = found


def _follow_numbers(result: Inference, node: Node, name: str, root: k.Tensor) -> None:
    """A number that is computed from numbers alone, as it is rounded in a run: quantisers do that to sizes, too."""
    if name in result.values or name in result.ratios:
        return
    operands = [_number(result, n) if n else None for n in node.inputs]
    if not any(n and x is None for n, x in zip(node.inputs, operands, strict=True)):
        with suppress(DivisionByZero):
            result.values[name] = np.asarray(interpret([root], operands)[0]).astype(object).reshape(())


def _number(result: Inference, name: str) -> np.ndarray | None:
    """What is known of a tensor without axes, if it is one of numbers."""
    kind, known, ratio = result.types.get(name), result.values.get(name), result.ratios.get(name)
    if not isinstance(kind, TensorType) or kind.shape != ():
        return None
    if ratio is not None and isinstance(ratio.numerator, int):
        return np.array(ratio.numerator / ratio.denominator, kind.dtype.numpy)
    if known is not None and not isinstance(known.item(), Expr):
        return known.astype(kind.dtype.numpy)
    constant = result.graph.constants.get(name)
    if constant is None or name in result.graph.overridable or constant.dtype is DType.STRING:
        return None
    return constant.numpy()


def fresh_shape(rank: int, hint: str) -> tuple[Expr, ...]:
    """A shape of `rank` sizes that only a run knows."""
    return tuple(fresh_symbol(f"{hint}_d{i}") for i in range(rank))
