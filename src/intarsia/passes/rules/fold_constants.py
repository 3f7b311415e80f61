"""Rules for any operator: what is known before the model runs is not computed, and nothing is computed twice."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from intarsia.errors import IntarsiaError
from intarsia.graph.dims import is_static
from intarsia.graph.dtypes import DType
from intarsia.graph.model import Constant, Graph, Node, TensorType, ValueType
from intarsia.lazy_dataclass import dataclass
from intarsia.machine.resources import memory_nbytes
from intarsia.ops.framework.evaluate import evaluate_node
from intarsia.ops.framework.registry import Registry
from intarsia.passes.level import GraphOptimizationLevel
from intarsia.passes.rewriter import Patch, Rewriter
from intarsia.passes.rule import ANY_OP, Match, Op, Rule, RuleSet
from intarsia.primitives.interpreter import MOST_NBYTES

GROWTH_LIMIT_NBYTES = 1 << 20  # a folded result may be this large, or as large as the constants that it is made from
TOTAL_NBYTES, TOTAL_TIMES = 64 << 20, 4  # all results of a model: so many bytes, and so many times those of its constants
WORK_NBYTES, WORK_TIMES = 64 << 20, 16  # of one value while a result is computed: so many, and so many times its constants
LAZY_NBYTES = 1 << 16  # larger results are computed when they are first read
RANDOM = frozenset(
    ("RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Multinomial", "Bernoulli", "Dropout")
)
_SHORT = 1 << 14  # numbers of a vector that stays in the wider type
_PRODUCTS = frozenset("Conv ConvTranspose Gemm MatMul".split())  # which take their bias, too, as integers
_NOT_FOLDED = frozenset(("DequantizeLinear", "Constant", "If", "Loop", "Scan", "SequenceMap"))
# Operators that cannot fail on operands whose shapes were inferred, so that their evaluation can wait.
_LAZY = frozenset(
    "Transpose Cast Slice Concat Reshape Squeeze Unsqueeze Flatten Identity Mul Add Sub Div Neg Split DequantizeLinear Expand "
    "Where".split()
)


def _random(rewriter: Rewriter, node: Node) -> bool:
    record = rewriter.record(node)
    return node.op_type in RANDOM and not node.domain or record is not None and not record.deterministic


def _dequantizes_little(rewriter: Rewriter, node: Node) -> bool:
    """Whether a number or a short vector is dequantised that no product reads: quantisers do that to the constants of formulas,
    sizes and normalisations, where no memory is saved, and what follows from them could not be known."""
    found = rewriter.constant(node.inputs[0]) if node.op_type == "DequantizeLinear" else None
    if found is None or len(found.shape) > 1 or found.size > _SHORT:
        return False
    return not found.shape or not any(r.op_type in _PRODUCTS for r in rewriter.readers.get(node.outputs[0], {}).values())


def _fold(m: Match, excluded: frozenset[str] = _NOT_FOLDED) -> Patch | None:
    rewriter, node = m.rewriter, m.root
    if node.op_type in excluded and not _dequantizes_little(rewriter, node):
        return None
    if _random(rewriter, node) or rewriter.record(node) is None:
        return None
    if node.op_type == "Identity" and node.outputs[0] in rewriter.outputs:
        return None
    if node.has_subgraphs:
        return None
    constants: list[Constant | None] = []
    for name in node.inputs:
        found = rewriter.constant(name) if name else None
        if name and found is None:
            return None
        constants.append(found)
    types = [rewriter.types.get(o) for o in node.outputs if o]
    nbytes = _result_nbytes([rewriter.types.get(o) for o in node.outputs if o and rewriter.reader_count(o)])
    given = sum({c.name: c.nbytes for c in constants if c is not None}.values())
    if nbytes is None or nbytes > max(GROWTH_LIMIT_NBYTES, given) or not _within_total(rewriter, nbytes):
        return None
    results = _lazily if nbytes > LAZY_NBYTES and node.op_type in _LAZY and not _may_fail(node, types) else _at_once
    arrays = results(rewriter.registry, node, constants, types)
    if arrays is None:
        return None
    patch = m.patch()
    for name, array, kind in zip([o for o in node.outputs if o], arrays, types, strict=True):
        if isinstance(array, np.ndarray):
            made = patch.constant(array, "folded")
        else:
            assert isinstance(kind, TensorType) and kind.shape is not None
            made = patch.lazy_constant(kind.dtype, [d for d in kind.shape if isinstance(d, int)], array, "folded")
        patch.result(made, name)
    return patch


def _within_total(rewriter: Rewriter, nbytes: int) -> bool:
    """Whether so many bytes more are no more than a model's constants may grow by; they are counted then."""
    while rewriter.outer is not None:
        rewriter = rewriter.outer
    total: Total | None = rewriter.notes.get(Total)
    if total is None:
        limit = TOTAL_NBYTES + TOTAL_TIMES * _constants_nbytes(rewriter.graph)
        total = rewriter.notes[Total] = Total(limit)
    if nbytes > total.left:
        return False
    total.left -= nbytes
    return True


def _constants_nbytes(graph: Graph) -> int:
    inner = (sub for node in graph.nodes for sub in node.subgraphs)
    return sum(c.nbytes for c in graph.constants.values()) + sum(map(_constants_nbytes, inner))


@dataclass
class Total:
    """What folded results of a model may still have, in bytes: a few nodes that double a constant would fill any memory."""

    left: int


def _result_nbytes(types: list[ValueType | None]) -> int | None:
    total = 0
    for kind in types:
        if not isinstance(kind, TensorType) or kind.shape is None or not is_static(kind.shape) or kind.dtype is DType.STRING:
            return None
        total += (math.prod(d for d in kind.shape if isinstance(d, int)) * kind.dtype.bits + 7) // 8
    return total


def _may_fail(node: Node, types: list[ValueType | None]) -> bool:
    """Whether integers are divided."""
    kind = types[0]
    return node.op_type == "Div" and (not isinstance(kind, TensorType) or not kind.dtype.is_floating)


Results = list[Any] | None


def _at_once(registry: Registry, node: Node, constants: list[Constant | None], types: list[ValueType | None]) -> Results:
    work = WORK_NBYTES + WORK_TIMES * sum(c.nbytes for c in constants if c is not None)
    token = MOST_NBYTES.set(min(work, memory_nbytes()))
    try:
        results = evaluate_node(node, [None if c is None else c.numpy() for c in constants], registry)
    except (IntarsiaError, MemoryError, FloatingPointError):
        return None  # the same error is raised, with its place, when the model is run
    finally:
        MOST_NBYTES.reset(token)
    found = [r for name, r in zip(node.outputs, results, strict=True) if name]
    for result, kind in zip(found, types, strict=True):
        if not isinstance(result, np.ndarray) or not isinstance(kind, TensorType) or result.dtype != kind.dtype.numpy:
            return None
    return found


def _lazily(registry: Registry, node: Node, constants: list[Constant | None], types: list[ValueType | None]) -> Results:
    cache: list[list[Any]] = []

    def compute(index: int) -> np.ndarray:
        if not cache:
            cache.append(evaluate_node(node, [None if c is None else c.numpy() for c in constants], registry))
        array: np.ndarray = cache[0][index]
        return array

    makers: list[Callable[[], np.ndarray]] = [partial(compute, i) for i, name in enumerate(node.outputs) if name]
    return makers


def _fold_known(m: Match) -> Patch | None:
    rewriter, node = m.rewriter, m.root
    if len(node.outputs) != 1 or node.op_type == "Identity" and node.outputs[0] in rewriter.outputs:
        return None
    name = node.outputs[0]
    value, dtype = rewriter.values.get(name), rewriter.dtype(name)
    if value is None or dtype is None or not (dtype.is_integer or dtype is DType.BOOL) or rewriter.ints(name) is None:
        return None
    if _random(rewriter, node):
        return None
    patch = m.patch()
    return patch.result(patch.constant(value.astype(dtype.numpy), "known"), name)


def _computed_before(rewriter: Rewriter, node: Node) -> bool:
    """Whether another node computes the same; the first of such nodes is noted."""
    first = _first_of(rewriter, node)
    return first is not None and first is not node


def _first_of(rewriter: Rewriter, node: Node) -> Node | None:
    """The node of this scan that was the first to compute what this one does; None where that cannot be told."""
    attributes: tuple[Any, ...] = ()
    if node.attributes:
        try:
            attributes = tuple(sorted((key, _attribute_key(value)) for key, value in node.attributes.items()))
            hash(attributes)
        except TypeError:
            return None
    if _random(rewriter, node):
        return None
    value_key = rewriter.value_key
    inputs = tuple([value_key(name) for name in node.inputs])
    key = (node.domain, node.op_type, node.version, node.overload, inputs, attributes, len(node.outputs))
    return rewriter.seen.setdefault(key, node)


def _reuse(m: Match) -> Patch | None:
    rewriter, node = m.rewriter, m.root
    first = _first_of(rewriter, node)
    if first is None or not rewriter.alive(first) or [bool(o) for o in first.outputs] != [bool(o) for o in node.outputs]:
        return None
    pairs = [(a, b) for a, b in zip(first.outputs, node.outputs, strict=True) if a]
    if any(b in rewriter.outputs for _, b in pairs):
        return None
    patch = m.patch()
    for a, b in pairs:
        patch.result(a, b)
    rewriter.stands_for(first, node)
    return patch


def _attribute_key(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return (value.dtype.str, value.shape, value.tobytes())
    if isinstance(value, (list, tuple)):
        if value and isinstance(value[0], (int, float, str)):  # all elements have one type; a tree ensemble has 100,000s
            return (type(value[0]).__name__, tuple(value))
        return tuple(_attribute_key(v) for v in value)
    if isinstance(value, Graph):
        raise TypeError("graphs are not compared")
    return (type(value).__name__, value)


def _unread(rewriter: Rewriter, node: Node) -> bool:
    return not any(o and (o in rewriter.readers or o in rewriter.outputs) for o in node.outputs)


def _valued(rewriter: Rewriter, node: Node) -> bool:
    return node.outputs[0] in rewriter.values


def _constant_inputs(rewriter: Rewriter, node: Node) -> bool:
    return not any(n in rewriter.producer or n in rewriter.inputs for n in node.inputs)


_ANY = Op(ANY_OP)

RULES = RuleSet(
    GraphOptimizationLevel.ORT_ENABLE_BASIC,
    (
        # f(x) with nobody reading it = nothing
        Rule("remove_dead_code", _ANY, lambda m: m.patch(), shared=True, quick=_unread),
        # integer tensors whose elements follow from known sizes
        Rule("fold_known_values", _ANY, _fold_known, shared=True, quick=_valued),
        # f(c1, c2, ...) = c
        Rule("fold_constants", _ANY, _fold, shared=True, quick=_constant_inputs),
        # f(x), f(x) = f(x)
        Rule("reuse_equal_nodes", _ANY, _reuse, shared=True, quick=_computed_before),
    ),
)

OPTIONAL_RULES = RuleSet(
    GraphOptimizationLevel.ORT_ENABLE_BASIC,
    (
        # dequantize(c) = c': takes the memory of the wider type, so only on request
        Rule("fold_dequantize", Op(("DequantizeLinear",)), partial(_fold, excluded=frozenset()), shared=True),
    ),
)
