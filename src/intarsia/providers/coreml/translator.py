"""From a graph to a MIL program, node by node (`operators`), with Core ML's rules for what a part takes and gives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any

import numpy as np

from intarsia.ep.capability import Support
from intarsia.graph.dims import Dim, Expr
from intarsia.graph.dtypes import DType
from intarsia.graph.model import Graph, Node, TensorType, Value
from intarsia.lazy_dataclass import dataclass
from intarsia.partition.partition import label
from intarsia.providers.coreml import converter, states
from intarsia.providers.coreml.names import mapped
from intarsia.providers.coreml.node_builder import (
    CARRIERS,
    MIL_NAMES,
    MOST_AXES,
    NodeBuilder,
)
from intarsia.providers.coreml.operators import HANDLERS
from intarsia.providers.coreml.rules import RULES
from intarsia.providers.coreml.states import State
from intarsia.providers.vendor import legalization_rules
from intarsia.providers.vendor.half_precision import HalfPrecision
from intarsia.providers.vendor.legalize import with_bodies
from intarsia.providers.vendor.qoperator_rules import is_qoperator
from intarsia.providers.vendor.shape_profile import ShapeProfile, Sizes, bind, input_shapes, is_open
from intarsia.providers.vendor.translator import Facts, Translator, Untranslatable

TRANSLATION = "1"
"""Counts what changes packages without changing this package's sources."""

FUSED = frozenset(
    ("Gelu", "GroupNormalization", "HardSwish", "LayerNormalization", "Mish", "RMSNormalization", "Swish")
)  # fmt: skip
"""Of the operators that the optimizer makes of several nodes, those that are translated as they are."""

_COMPUTES = frozenset(
    "Abs Add Sub Mul Div Mod Neg Sign Pow Sum Mean ReduceSum ReduceProd ReduceSumSquare CumSum MatMul Gemm Einsum".split()
)
"""Operators whose results need more bits than their operands."""


@dataclass(frozen=True)
class Port:
    """One input or output of a package.

    Attributes:
        name: ONNX's.
        feature: Core ML's.
        dtype, shape: as ONNX has them; -1 is a size that varies.
        sizes: of those that vary, what each may be, by axis.
    """

    name: str
    feature: str
    dtype: DType
    shape: tuple[int, ...]
    sizes: Mapping[int, Sizes] = field(default_factory=dict, compare=False)

    @property
    def carrier(self) -> type:
        """The element type at the package's border, which is none of truth values."""
        return np.int32 if self.dtype is DType.BOOL else CARRIERS[self.dtype]

    @property
    def carried_shape(self) -> tuple[int, ...]:
        """The shape at the border, which has an axis at least."""
        return self.border(self.shape)

    @staticmethod
    def border(shape: tuple[int, ...]) -> tuple[int, ...]:
        """A shape of a run, at the border."""
        return shape or (1,)


@dataclass(frozen=True)
class TranslatedPart:
    """A MIL program, with what it takes and gives, and what it keeps from one prediction to the next."""

    program: Any
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    states: tuple[Port, ...] = ()


class CoreMLTranslator(Translator):
    """Takes graphs of known sizes, of operators that `operators.HANDLERS` has."""

    vendor = "Core ML"
    legalizations = (RULES, legalization_rules.RULES)
    symbolic = True

    def __init__(
        self,
        half: HalfPrecision | None = None,
        static_inputs: bool = False,
        profile: ShapeProfile | None = None,
        states: tuple[State, ...] = (),
    ) -> None:
        self.half, self.static_inputs, self.profile, self.states = half, static_inputs, profile or ShapeProfile(), states

    def versions(self) -> Mapping[str, str]:
        return {"coremltools": converter.SUPPORTED, "translation": TRANSLATION}

    def settings(self) -> Mapping[str, str]:
        return {**super().settings(), **({"static_inputs": "1"} if self.static_inputs else {})}

    def refusal(self, node: Node, facts: Facts) -> Support | None:
        if node.domain and not is_qoperator(node):
            return Support.no(f"Core ML has none of the operators of {node.domain}", code="no-kernel")
        for name in (*node.inputs, *node.outputs):
            kind = facts.graph.type_of(name) if name else None
            if name and (why := self._strange(name, kind)):
                return Support.no(why, code="type")
        if node.op_type in _COMPUTES and any(facts.narrow.is_wide(n) and n not in facts.narrow for n in node.outputs if n):
            return Support.no("Core ML computes in 32 bits what the model computes in 64", code="type")
        if node.op_type in ("Scatter", "ScatterElements") and (why := _fewer_rows(node, facts.graph)):
            return Support.no(why, code="shape")
        if node.op_type in ("Cast", "CastLike") and any(
            facts.narrow.is_wide(n) and n not in facts.narrow for n in node.outputs if n
        ):
            return Support.no("Core ML's integers have 32 bits, and floats may need more", code="type")
        return None

    def _strange(self, name: str, kind: Any) -> str:
        if kind is None:
            return ""
        if not isinstance(kind, TensorType):
            return f"{name!r} is no tensor"
        if kind.dtype not in CARRIERS:
            return f"Core ML has no {kind.dtype}, which {name!r} is of"
        if kind.rank is not None and kind.rank > MOST_AXES:
            return f"Core ML's tensors have at most {MOST_AXES} axes, and {name!r} has {kind.rank}"
        if any(isinstance(d, Expr) and not _is_size(d) for d in kind.shape or ()):
            return f"Core ML takes no sizes that only data decide, as {name!r} has"
        if self.static_inputs and kind.shape is not None and not all(isinstance(d, int) for d in kind.shape):
            return f"RequireStaticInputShapes is set, and sizes of {name!r} vary"
        return ""

    def legalized(self, graph: Graph) -> Graph:
        """What follows from known sizes is folded first: decompositions of attention compute with them."""
        graph = with_bodies(graph, HANDLERS, self.legalizations)
        shapes = [[d for d in shape or () if isinstance(d, int)] for shape in input_shapes(graph)]
        return super().legalized(graph if is_open(graph) else bind(graph, shapes))

    def translate(self, graph: Graph) -> TranslatedPart:
        ct = converter.tools()
        import coremltools.converters.mil as mil
        from coremltools.converters.mil.mil import Function, Program

        mb = mil.Builder

        features = mapped([*graph.input_names(), *graph.output_names()])
        states.check_states(self.states, graph)
        next_of = {s.input: s.output for s in self.states}
        ports = tuple(_port(v, graph, features, self.profile) for v in graph.inputs)
        inputs, held = (tuple(p for p in ports if (p.name in next_of) == is_held) for is_held in (False, True))
        outputs = tuple(_port(v, graph, features, None) for v in graph.outputs if v.name not in next_of.values())
        program = Program()
        with converter.quiet():
            symbols: dict[str, Any] = {}
            given = {
                p.feature: mb.placeholder(shape=_placeholder_shape(p, graph, symbols), dtype=_mil_type(p.carrier))
                for p in inputs
            }
            given |= {p.feature: states.placeholder(mb, p.carried_shape) for p in held}
            with Function(given, opset_version=ct.target.iOS18 if held else ct.target.iOS17) as function:
                values = {p.name: _entered(mb, function.inputs[p.feature], p) for p in inputs}
                for p in held:
                    read = states.read(mb, function.inputs[p.feature], MIL_NAMES[p.carrier])
                    values[p.name] = _entered(mb, read, p)
                for node in graph.nodes:
                    _translate_node(mb, node, graph, values)
                for p in held:
                    states.write(mb, function.inputs[p.feature], _at_border(mb, values, graph, p, next_of[p.name]))
                function.set_outputs([_left(mb, values, graph, p) for p in outputs])
            program.add_function("main", function)
        return TranslatedPart(program, inputs, outputs, held)


def _mil_type(carrier: type) -> Any:
    from coremltools.converters.mil.mil import types

    return getattr(types, MIL_NAMES[carrier])


def _placeholder_shape(port: Port, graph: Graph, symbols: dict[str, Any]) -> tuple[Any, ...]:
    """Sizes for MIL: one symbol of its own for each of ONNX's."""
    from coremltools.converters.mil.mil import get_new_symbol

    kind = graph.type_of(port.name)
    if not port.sizes or not isinstance(kind, TensorType):
        return port.carried_shape
    dims = enumerate(kind.shape or ())
    return tuple(d if i not in port.sizes else symbols.setdefault(str(d), get_new_symbol()) for i, d in dims)


def _port(value: Value, graph: Graph, features: Mapping[str, str], profile: ShapeProfile | None) -> Port:
    """`profile`: says what sizes of an input may be; None: of an output, which may vary as they will."""
    kind = graph.type_of(value.name) or value.type
    if not isinstance(kind, TensorType) or kind.dtype not in CARRIERS:
        raise Untranslatable(f"Core ML takes and gives no {kind}, which {value.name!r} is", "type")
    if kind.shape is None:
        raise Untranslatable(f"Core ML has to know how many dimensions {value.name!r} has", "shape")
    _check_shape(value.name, kind.shape)
    shape = tuple(d if isinstance(d, int) else -1 for d in kind.shape)
    sizes = {}
    for i, dim in enumerate(kind.shape):
        if profile is not None and not isinstance(dim, int):
            if str(dim) not in profile.sizes:
                raise Untranslatable(f"Core ML has to know what the size {str(dim)!r} of {value.name!r} may be", "shape")
            sizes[i] = profile.sizes[str(dim)]
    return Port(value.name, features[value.name], kind.dtype, shape, sizes)


def _check_shape(name: str, shape: Sequence[Dim]) -> None:
    if len(shape) > MOST_AXES:
        raise Untranslatable(f"Core ML's tensors have at most {MOST_AXES} axes, and {name!r} has {len(shape)}", "shape")
    if 0 in shape:
        raise Untranslatable(f"Core ML has no tensors without elements, and {name!r} is one", "shape")


def _entered(mb: Any, x: Any, port: Port) -> Any:
    """An input inside: truth values again, and rank 0."""
    if port.dtype is DType.BOOL:
        x = mb.cast(x=x, dtype="bool")
    return x if port.shape else mb.squeeze(x=x, axes=[0])


def _left(mb: Any, values: Mapping[str, Any], graph: Graph, port: Port) -> Any:
    """An output at the border, under its feature's name."""
    return mb.identity(x=_at_border(mb, values, graph, port, port.name), name=port.feature)


def _at_border(mb: Any, values: Mapping[str, Any], graph: Graph, port: Port, name: str) -> Any:
    """The value `name`, of a port's type and shape, as it is at the border."""
    x = values[name] if name in values else graph.constants[name].numpy().astype(CARRIERS[port.dtype])
    if port.dtype is DType.BOOL:
        x = mb.cast(x=x, dtype="int32")
    return x if port.shape else mb.expand_dims(x=x, axes=[0])


def _translate_node(mb: Any, node: Node, graph: Graph, values: dict[str, Any]) -> None:
    """Add a node's operations.

    Raises:
        Untranslatable: Core ML has nothing for it, or computes it otherwise.
    """
    handler = HANDLERS.get(node.op_type) if not node.domain else None
    if handler is None:
        raise Untranslatable(f"Core ML has nothing for {node.qualified_op}", "no-kernel")
    for name in (*node.inputs, *node.outputs):
        kind = graph.type_of(name) if name else None
        if isinstance(kind, TensorType) and kind.shape is not None:
            _check_shape(name, kind.shape)
    try:
        found = handler(NodeBuilder(mb, node, graph, values))
    except Untranslatable:
        raise
    except (ValueError, TypeError, NotImplementedError, IndexError, KeyError, AttributeError, AssertionError) as error:
        raise Untranslatable(f"coremltools does not take {label(node)!r} ({node.op_type}): {_short(error)}") from error
    made: list[Any] = list(found) if isinstance(found, (list, tuple)) else [found]
    for name, x in zip(node.outputs, made, strict=False):
        if not name:
            continue
        kind = graph.type_of(name)
        if isinstance(kind, TensorType) and kind.shape is not None and not _agree(x.shape, kind.shape):
            raise Untranslatable(f"Core ML gives {name!r} the shape {list(x.shape)}, ONNX {list(kind.shape)}")
        values[name] = x
    missing = [n for n in node.outputs if n and n not in values]
    if missing:
        raise Untranslatable(f"the output {missing[0]!r} of {node.op_type} is not translated")


def _fewer_rows(node: Node, graph: Graph) -> str:
    """Why a Scatter whose indices may have fewer rows than the data is left: sizes that vary are tried as one number."""
    data, indices = (graph.type_of(name) for name in node.inputs[:2])
    if not isinstance(data, TensorType) or not isinstance(indices, TensorType) or data.shape is None or indices.shape is None:
        return ""
    axis = int(node.attributes.get("axis", 0)) % max(len(data.shape), 1)
    same = all(n == m for i, (n, m) in enumerate(zip(data.shape, indices.shape, strict=False)) if i != axis)
    return "" if same else "Core ML's scatter_along_axis writes all rows of the data, and the indices may have fewer"


def _is_size(dim: Expr) -> bool:
    """Whether a size follows from sizes of the model's inputs, and not from their elements ("pads[0]")."""
    return not any("[" in symbol for symbol in dim.symbols)


def _agree(mil: Sequence[Any], onnx: Sequence[Dim]) -> bool:
    """Whether two shapes are one, as far as sizes are numbers."""
    return len(mil) == len(onnx) and all(
        int(m) == o for m, o in zip(mil, onnx, strict=True) if isinstance(m, (int, np.integer)) and isinstance(o, int)
    )


def _short(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0][:200] if lines else ''}"
