"""Whether a node is what its operator's schema says: number and types of its operands, number of its results, its bodies.

Where types are inferred every node is looked at once (`infer`), and where only a run knows them before it is computed
(`evaluate`). A kernel reads its operands as what they were when it was made: two of one type variable (T) that differ would be
read one as the other.

More is taken than the schemas say where nothing can be misread: an element type that another version of the operator allows, an
integer where a number is meant, a type that is newer than an operator of all types, fewer outputs than there are, and what
`_ALSO` lists.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from intarsia.graph.dtypes import DType
from intarsia.graph.model import Graph, MapType, Node, OptionalType, SequenceType, SparseTensorType, TensorType, ValueType
from intarsia.ops.framework.registry import OpRecord
from intarsia.ops.framework.schemas import OperatorSchema
from intarsia.primitives.lang import DefinitionError

UNKNOWN = "?"
_SAMPLES = frozenset(("float", "float16"))
_ALSO: Mapping[tuple[str, str, int], frozenset[str]] = {  # by operator and input: types beyond the schema's
    ("com.microsoft", "GreedySearch", 0): _SAMPLES,  # an encoder's input, as BeamSearch has it
    ("com.microsoft", "Sampling", 0): _SAMPLES,
    ("com.microsoft", "GatherBlockQuantized", 0): frozenset(("int2", "uint2")),  # which ONNX has had since
    ("com.microsoft", "GatherBlockQuantized", 3): frozenset(("int2", "uint2")),
    ("", "Tile", 1): frozenset(("int64",)),  # numbers of repetitions and axes, which version 1 has in the type of its input
    ("", "Tile", 2): frozenset(("int64",)),
}
# What takes all of these moves elements and reads no numbers: it takes the types that ONNX has had since, too.
EVERY = frozenset(
    "bool complex128 complex64 double float float16 int16 int32 int64 int8 string uint16 uint32 uint64 uint8".split()
)
_ANY = {("", "Identity")}  # hands on what bodies may carry, of which its schema has not all
_BODIES = {"If": ("then_branch", "else_branch"), "Loop": ("body",), "Scan": ("body",), "SequenceMap": ("body",)}


def check_operands(record: OpRecord, node: Node, kinds: Sequence[ValueType | None]) -> None:
    """Check the types of a node's inputs, None where one is left out or not known, and how many outputs it names.

    Raises:
        DefinitionError: an operand is of a type that the operator does not take, two of one type variable differ, a variadic
            parameter has too few, the first is missing, or the node names no output, or more than there are.
    """
    if not node.outputs:
        raise DefinitionError("the node has no outputs")
    schema = record.schema
    if schema is None:
        return
    first = schema.inputs[0] if schema.inputs else None
    if first is not None and not first.optional and first.least is None and not any(node.inputs[:1]):
        raise DefinitionError(f"required input {first.name!r} is missing")  # a definition may take None: an empty optional
    key = (len(node.outputs), *[t.dtype if type(t) is TensorType else None if t is None else t.onnx_name for t in kinds])
    if key not in schema.fitting:
        _check_counts(schema, node, kinds)
        _check_types(schema, node, kinds)
        schema.fitting.add(key)


def check_bodies(record: OpRecord, node: Node) -> None:
    """Check how many values the bodies of an If, Loop, Scan or SequenceMap take and give, whatever is known of types.

    Raises:
        DefinitionError: a body is no graph, takes another number of values than it is given, or gives too few; the branches
            of an If do not give as many.
    """
    names = _BODIES.get(record.name)
    if names is None or record.domain or not record.own:
        return
    takes, gives = _counts_of_body(record, node)
    counts = {}
    for what in names:
        body = node.attributes.get(what)
        if not isinstance(body, Graph):
            raise DefinitionError(f"attribute {what} is a {type(body).__name__}; expected a graph")
        if len(body.inputs) != takes:
            raise DefinitionError(f"{what} takes {len(body.inputs)} inputs; expected {takes}")
        if len(body.outputs) < gives:
            raise DefinitionError(f"{what} gives {len(body.outputs)} outputs; expected {gives}")
        counts[what] = len(body.outputs)
    if len(set(counts.values())) > 1:
        (first, count), (second, other) = counts.items()
        raise DefinitionError(f"{first} gives {count} outputs, {second} {other}; expected as many")


def _counts_of_body(record: OpRecord, node: Node) -> tuple[int, int]:
    """How many inputs the node's body must have, and at least how many outputs."""
    inputs, outputs = len(node.inputs), len(node.outputs)
    if record.name == "If":
        return 0, outputs
    if record.name == "Loop":  # M and cond are the loop's own; the number of the trip and the condition come in their place
        return max(inputs, 2), 1 + max(inputs - 2, outputs)
    if record.name == "SequenceMap":
        return inputs, outputs
    inputs -= record.since == 8  # sequence_lens
    scanned = node.attributes["num_scan_inputs"]
    if not 1 <= scanned <= inputs:
        raise DefinitionError(f"num_scan_inputs is {scanned}; expected 1 to {inputs}, the number of inputs")
    return inputs, max(inputs - scanned, outputs)


def check_given(record: OpRecord, node: Node, operands: Sequence[Any]) -> None:
    """Check what a run gives to an operator that is computed by its definition: kinds, and one type for each variable.

    Element types are not compared with the schema's: the definition reads each as what it is.

    Raises:
        DefinitionError: a sequence or map stands where a tensor belongs or the reverse, or two of one type variable differ.
    """
    schema = record.schema
    if schema is None:
        return
    key = tuple([x.dtype if type(x) is np.ndarray else type(x) for x in operands])
    if key not in schema.fitting:
        _check_types(schema, node, list(map(value_type, operands)), of_run=True)
        if list not in key and dict not in key:  # whose elements may be others
            schema.fitting.add(key)


def _check_counts(schema: OperatorSchema, node: Node, kinds: Sequence[ValueType | None]) -> None:
    most, last = schema.most_outputs, schema.inputs[-1] if schema.inputs else None
    if most is not None and len(node.outputs) > most:
        raise DefinitionError(f"gives at most {most} outputs, the node names {len(node.outputs)}")
    if last is not None and last.least and len(kinds) - len(schema.inputs) + 1 < last.least:
        raise DefinitionError(f"takes at least {last.least + len(schema.inputs) - 1} inputs, got {len(kinds)}")


def _check_types(schema: OperatorSchema, node: Node, kinds: Sequence[ValueType | None], of_run: bool = False) -> None:
    bound: dict[str, tuple[int, str]] = {}
    for i, kind in enumerate(kinds):
        parameter, word = schema.input(i), type_word(kind)
        if parameter is None or word == UNKNOWN or word in _ALSO.get((schema.domain, schema.name, i), ()):
            continue  # `check_inputs` counts them
        if word not in parameter.types and not _is_taken(schema, i, word, of_run or UNKNOWN in word):
            said = f"{_label(node, i)} is {_shown(word)}; expected {_expected(schema, i, word)}"
            raise DefinitionError(f"{said} ({_onnxruntime_sentence(node, i, kind)})")
        if parameter.variable and parameter.alike and UNKNOWN not in word:
            first, other = bound.setdefault(parameter.variable, (i, word))
            if other != word:
                raise DefinitionError(
                    f"{_label(node, i)} is {word} where {_label(node, first)} is {other}: {parameter.variable} must be one type"
                )


def _is_taken(schema: OperatorSchema, i: int, word: str, kind_alone: bool) -> bool:
    """Whether input `i` may be of this type, or of its kind where elements are not compared."""
    if (schema.domain, schema.name) in _ANY:
        return True
    allowed = schema.allowed(i)
    if f"sparse_tensor({word})" in allowed:  # which runs have as a tensor with its zeros
        return True
    if not _outer(word) and allowed >= EVERY:
        return True
    return word in allowed or (kind_alone and _outer(word) in {_outer(w) for w in allowed})


def _outer(word: str) -> str:
    """The kind of a type: "" of tensors, else "seq", "optional", "map" or "sparse_tensor"."""
    return word.partition("(")[0] if "(" in word else ""


def type_word(kind: ValueType | None) -> str:
    """A type as the table of schemas writes it; with a `?` where part of it is not known."""
    if isinstance(kind, SparseTensorType):
        return f"sparse_tensor({kind.dtype.onnx_name})"
    if isinstance(kind, TensorType):
        return UNKNOWN if kind.dtype is DType.UNDEFINED else kind.dtype.onnx_name
    if isinstance(kind, SequenceType):
        return f"seq({type_word(kind.element)})"
    if isinstance(kind, OptionalType):
        return f"optional({type_word(kind.element)})"
    if isinstance(kind, MapType):
        return f"map({kind.key.onnx_name},{type_word(kind.value)})"
    return UNKNOWN


def value_type(x: Any) -> ValueType | None:
    """The type of what a run gives; None of what is left out."""
    if isinstance(x, (np.ndarray, np.generic)):
        return TensorType(DType.of(x.dtype))
    if isinstance(x, list):
        return SequenceType(value_type(x[0]) if x else None)
    if isinstance(x, dict):
        key, value = next(iter(x.items()), (None, None))
        return MapType(DType.STRING if isinstance(key, str) else DType.INT64, value_type(value)) if x else None
    return None


def _label(node: Node, i: int) -> str:
    return f"input {i} {node.inputs[i]!r}"


def _onnxruntime_sentence(node: Node, i: int, kind: ValueType | None) -> str:
    """What onnxruntime says of a wrong type: its own tests and other programs look for this sentence."""
    word = kind.onnx_name if kind is not None else UNKNOWN
    return f"Type '{word}' of input parameter ({node.inputs[i]}) of operator ({node.op_type}) in node ({node.name}) is invalid."


_WORDS = {"seq": "a sequence", "optional": "an optional", "map": "a map", "sparse_tensor": "a sparse tensor"}
_MANY = 8  # types; what takes more takes any of the kind


def _shown(word: str) -> str:
    return f"{_WORDS[_outer(word)]}, {word}" if _outer(word) else word


def _expected(schema: OperatorSchema, i: int, word: str) -> str:
    """What an input may be: of another kind than it is, or of one of these types."""
    allowed = sorted(schema.allowed(i))
    kinds, own = sorted(set(map(_outer, allowed))), _outer(word)
    if own in kinds:
        return _either([w for w in allowed if _outer(w) == own])
    if len(allowed) > _MANY:
        return _either([_WORDS.get(kind, "a tensor") for kind in kinds])
    return f"a tensor of {_either(allowed)}" if kinds == [""] else _either(allowed)


def _either(words: Sequence[str]) -> str:
    return f"{', '.join(words[:-1])} or {words[-1]}" if len(words) > 1 else words[0]
