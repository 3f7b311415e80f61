"""Nodes to kernels: which nodes run together, and which need no kernel at all.

Every node is traced to primitives. Neighbours whose primitives fit one loop nest become one `Group`; element-wise nodes
behind a contraction become its epilogue. Reshape-like nodes are other names of the same buffer; integer chains that only
feed shapes are not computed at all.
"""

from __future__ import annotations

from dataclasses import field
from functools import cached_property

import numpy as np

from intarsia.codegen.elementwise.element_types import SUPPORTED_DTYPES
from intarsia.codegen.loops.loop_nest import unsupported
from intarsia.graph.dims import Dim, Expr, symbols_of
from intarsia.graph.dtypes import DType
from intarsia.graph.model import Graph, Node, TensorType
from intarsia.lazy_dataclass import dataclass
from intarsia.ops.framework.infer import Inference, resolve_version
from intarsia.ops.framework.registry import Registry
from intarsia.ops.internal.integers import DOMAIN as INTEGERS
from intarsia.plan.size_constraints import WINDOWS_ON_HOST
from intarsia.primitives.divisors import divides, with_known_divisors
from intarsia.primitives.lang import BINARY, UNARY, Tensor, walk
from intarsia.primitives.substitute import as_scalar, inputs_of, substitute
from intarsia.providers.cpu.kernels.common.template import Template, template_for
from intarsia.providers.cpu.lowering.outline_products import split_definition

_ELEMENTWISE = UNARY | BINARY | {"select", "cast", "bitcast", "scalar", "size", "input", "broadcast", "iota"}
_CHEAP = frozenset(
    "add sub mul neg abs min max select cast eq ne lt le and or xor not scalar size input broadcast reshape iota sign".split()
)
_MOVES = frozenset(("input", "transpose", "slice", "reshape"))
_EPILOGUE_DTYPES = frozenset((DType.FLOAT, DType.BOOL, DType.FLOAT16, DType.BFLOAT16))
_INTEGER_DTYPES = frozenset((DType.INT32, DType.UINT8, DType.INT8))
_QUANTIZERS = frozenset(
    "QuantizeLinear DequantizeLinear MatMulInteger ConvInteger QLinearMatMul MatMulIntegerToFloat DynamicQuantizeMatMul QGemm "
    "QLinearAdd QLinearMul QLinearSigmoid QLinearLeakyRelu QLinearAveragePool QLinearGlobalAveragePool QLinearConcat".split()
)
_MANY_SCALARS = 512  # different ones of a model: a chain of so many would have a kernel for each few of them
_ARITHMETIC = frozenset("Add Sub Mul Div Min Max".split())
_MANY_OPERANDS = 10  # of an epilogue: scales and zero points, most of them scalars
_MOST_OPERANDS = 16  # where sums are floats: rounding to steps of 16 bits takes four scalars each time
MAX_PRIMITIVES = 96
_SMALL = 1 << 16  # elements of a constant that are looked at
MAX_OPERANDS = 16


@dataclass(eq=False)
class Group:
    """Nodes computed by one kernel.

    Attributes:
        roots: output value -> primitives over `input(value name)` leaves. With a template, `input(acc)` is its result.
        nodes: members, in order.
        template: the hand-scheduled kernel that computes `acc`, with the rest as its epilogue.
        host: why the group's single node runs as a host function ("" if it is compiled).
        divides: the member whose integer divisions may be by 0: there is one at most, so that an error can name it.
        dequantized: of a kernel whose bytes were made floats by what was merged into it last: it without that, and that.
    """

    roots: dict[str, Tensor]
    nodes: list[Node]
    template: Template | None = None
    acc: str = ""
    host: str = ""
    divides: Node | None = None
    dequantized: tuple[Group, Group] | None = None

    @property
    def outputs(self) -> list[str]:
        return list(self.roots) if self.roots else [n for n in self.nodes[-1].outputs if n]

    def leaves(self) -> list[Tensor]:
        return [t for t in inputs_of(list(self.roots.values())) if t.attrs[0] != self.acc]

    def reads(self) -> list[str]:
        names = dict.fromkeys(self.template.reads if self.template else ())
        names.update(dict.fromkeys(t.attrs[0] for t in self.leaves()))
        return list(names)


@dataclass
class Grouping:
    """What grouping decided.

    Attributes:
        groups: in execution order.
        alias: value -> the value whose buffer it shares.
        folded: nodes (by first output) that need no kernel, and why.
    """

    groups: list[Group]
    alias: dict[str, str]
    folded: dict[str, str] = field(default_factory=dict)

    def canonical(self, name: str) -> str:
        while name in self.alias:
            name = self.alias[name]
        return name


def group(inference: Inference, registry: Registry) -> Grouping:
    return _Grouper(inference, registry).run()


class _Grouper:
    def __init__(self, inference: Inference, registry: Registry) -> None:
        self.inference, self.registry = inference, registry
        self.graph: Graph = inference.graph
        self.result = Grouping([], {})
        self.by_output: dict[str, Group] = {}
        self.uses: dict[str, int] = {}

    def run(self) -> Grouping:
        prepared = [self._prepare(node) for node in self.graph.nodes]
        needed = self._needed(prepared)
        groups: list[Group] = []
        for node, group in zip(self.graph.nodes, prepared, strict=True):
            first = next((n for n in node.outputs if n), "")
            if not any(n in needed for n in node.outputs):
                self.result.folded[first] = "only its shape is used" if first in self.inference.values else "not used"
            elif group is None:
                source = self._aliased(node)
                assert source is not None
                self.result.alias[node.outputs[0]] = source
                self.result.folded[first] = "same memory as its input"
            else:
                groups.append(group)
        split = [part for g in groups for part in self._split(g, needed)]
        self._count_uses(split)
        for g in split:
            self._place(g)
        self.result.groups = [g for g in self.result.groups if g is not None]
        return self.result

    # --- one node ---

    def _prepare(self, node: Node) -> Group | None:
        """The node by itself; None where its output is its input's buffer."""
        key = node.outputs[0]
        record = resolve_version(self.graph, node, self.registry)
        if record is not None and record.host:
            return self._templated(node) or Group({}, [node], host=record.reason)
        if WINDOWS_ON_HOST in node.attributes:
            return Group({}, [node], host="its window may be larger than a map whose size only a run computes")
        if key in self.inference.unknown or key not in self.inference.traces:
            drawn = self._templated(node) if node.op_type == "Dropout" else None
            return drawn or Group(
                {}, [node], host=self.inference.unknown.get(key, "its input types are known only at run time")
            )
        roots = {n: r for n, r in zip(node.outputs, self.inference.traces[key], strict=True) if n and r is not None}
        if self._aliased(node) is not None:
            return None
        templated = self._templated(node)
        if templated is not None:
            return templated
        parts = substitute(list(roots.values()), lambda t: self._leaf(t, node))
        named = dict(zip(roots, with_known_divisors(parts, self._small), strict=True))
        for root in named.values():
            reason = unsupported([root], nested=True)
            if reason is not None:
                return Group({}, [node], host=reason)
        return Group(named, [node], divides=node if divides(list(named.values())) else None)

    def _small(self, t: Tensor) -> np.ndarray | None:
        """A constant's elements, where these are few."""
        constant = self.graph.constants.get(t.attrs[0])
        return constant.numpy() if constant is not None and constant.size <= _SMALL else None

    def _templated(self, node: Node) -> Group | None:
        """The node as a template; None where it has none, or where an operand does not fit an epilogue."""
        template = template_for(node, self.inference)
        if template is None:
            return None
        first, *others = template.outputs
        acc = f"%{first}"
        kind = self.inference.types[first]
        assert isinstance(kind, TensorType) and kind.shape is not None
        result = template.result(Tensor("input", (), (acc,), template.acc_dtype or kind.dtype, kind.shape))
        (result,) = substitute([result], lambda t: t if t.attrs[0] == acc else self._named_leaf(t))
        if any(operand_kind(t, result.shape) is None for t in inputs_of([result]) if t.attrs[0] != acc):
            return None
        roots = {first: result}
        for name in others:
            kind = self.inference.types[name]
            assert isinstance(kind, TensorType) and kind.shape is not None
            roots[name] = Tensor("input", (), (acc,), kind.dtype, kind.shape)
        return Group(roots, [node], template, acc)

    def _leaf(self, t: Tensor, node: Node) -> Tensor:
        named = Tensor("input", (), (node.inputs[t.attrs[0]],), t.dtype, t.shape)
        # Scales and zero points differ from layer to layer: as operands they leave the layers one kernel.
        varies = t.attrs[0] > 0 and (node.domain == INTEGERS or node.op_type in _QUANTIZERS)
        if t.dtype is DType.FLOAT:
            varies = varies or self._one_number(node) or (node.op_type in _ARITHMETIC and self._has_many_scalars)
        return named if varies else self._named_leaf(named)

    @cached_property
    def _has_many_scalars(self) -> bool:
        """Whether arithmetic on so many different numbers is done that they are operands, too."""
        constants = self.graph.constants
        if len(constants) <= _MANY_SCALARS:
            return False
        taken = {n for node in self.graph.nodes if node.op_type in _ARITHMETIC for n in node.inputs if n in constants}
        scalars = (c for n in taken if (c := constants[n]).size == 1 and c.dtype is DType.FLOAT)
        return len({c.numpy().tobytes() for c in scalars}) > _MANY_SCALARS

    def _one_number(self, node: Node) -> bool:
        """Whether all that the node computes is a number: scales that are multiplied differ from layer to layer, too."""
        return all(self._shape(name) in ((), (1,)) for name in node.outputs if name)

    def _named_leaf(self, t: Tensor) -> Tensor:
        name = t.attrs[0]
        constant = self.graph.constants.get(name)
        if constant is not None and constant.size == 1 and constant.dtype in SUPPORTED_DTYPES:
            plain = np.float32 if constant.dtype in (DType.FLOAT16, DType.BFLOAT16) else constant.dtype.numpy
            value = constant.numpy().reshape(()).astype(plain).item()
            return as_scalar(value, t.dtype, t.shape)
        return t

    def _aliased(self, node: Node) -> str | None:
        """The input whose buffer the node's only output is, for reshapes and identities."""
        roots = self.inference.traces.get(node.outputs[0])
        if not roots or sum(bool(n) for n in node.outputs) != 1 or roots[0] is None:
            return None
        t = roots[0]
        while t.prim == "reshape":
            t = t.args[0]
        return node.inputs[t.attrs[0]] if t.prim == "input" else None

    def _needed(self, prepared: list[Group | None]) -> set[str]:
        """Values whose elements something computes with; the others only lend their shapes."""
        needed = set(self.graph.output_names())
        named = self._born_sizes()
        for node, g in zip(reversed(self.graph.nodes), reversed(prepared), strict=True):
            if not any(n in needed for n in node.outputs):
                continue
            if g is None:
                needed.add(self._aliased(node) or "")
            elif g.host:
                needed |= node.used_names()
            else:
                roots = [r for n, r in g.roots.items() if n in needed]
                needed.update(t.attrs[0] for t in inputs_of(roots))
                needed.update(g.template.reads if g.template else ())
            if named:
                needed.update(named[s] for name in node.outputs if name for s in self._sizes_of(node) if s in named)
        return needed

    def _born_sizes(self) -> dict[str, str]:
        """Sizes that are elements of a value, or of the shape of what a node makes: it has to be computed to know them."""
        found: dict[str, str] = {}
        known: set[str] = set()
        for value in self.graph.inputs:
            known.update(s for d in self._shape(value.name) for s in symbols_of(d))
        for node in self.graph.nodes:
            for name in node.outputs:
                for d in self._shape(name):
                    if str(d) in symbols_of(d) - known:
                        found[str(d)] = name
                    known |= symbols_of(d)
        for name, values in self.inference.values.items():
            for i, v in enumerate(values.flat):
                if isinstance(v, Expr) and str(v) == f"{name}[{i}]":
                    found[str(v)] = name
        return found

    def _shape(self, name: str) -> tuple[Dim, ...]:
        kind = self.inference.types.get(name)
        return kind.shape or () if isinstance(kind, TensorType) else ()

    def _sizes_of(self, node: Node) -> set[str]:
        """Symbols in the shapes of what a node reads and writes, in its primitives, and in what it requires of sizes."""
        found: set[str] = set()
        for name in (*node.inputs, *node.outputs):
            found.update(s for d in self._shape(name) for s in symbols_of(d))
        for root in self.inference.traces.get(node.outputs[0]) or ():
            for t in walk([root]) if root is not None else ():
                found.update(s for d in flat_dims(t.attrs) for s in symbols_of(d))
        for requirement in self.inference.requirements.get(node.outputs[0], ()):
            found |= symbols_of(requirement.left) | symbols_of(requirement.right)
        return found

    def _split(self, g: Group, needed: set[str]) -> list[Group]:
        """One group per needed output; leaves refer to buffers, not to their other names."""
        if g.host:
            return [g]
        if g.template is not None:
            g.template = g.template.renamed(self.result.canonical)
            roots = substitute(list(g.roots.values()), self._canonical_leaf)
            g.roots = dict(zip(g.roots, roots, strict=True))
            return [g]
        parts = []
        for name, root in g.roots.items():
            if name in needed:
                (canonical,) = substitute([root], self._canonical_leaf)
                parts.extend(self._pieces(name, canonical, g.nodes, g.divides))
        return parts

    def _pieces(self, name: str, root: Tensor, nodes: list[Node], dividing: Node | None) -> list[Group]:
        """Groups that compute one output: matrix products by the template, and what is around them."""
        made = []
        for piece in split_definition(name, root, nodes[0], self.graph, self.inference.types):
            source = self._stripped_input(piece.root)
            if piece.product is not None:
                acc = f"%{piece.name}"
                value = Tensor("input", (), (acc,), piece.root.dtype, piece.root.shape)
                made.append(Group({piece.name: value}, nodes, piece.product, acc))
            elif made and source == made[-1].outputs[0]:
                self.result.alias[piece.name] = source  # a product under another shape
            else:
                made.append(Group({piece.name: piece.root}, nodes, divides=dividing))
        return made

    def _stripped_input(self, t: Tensor) -> str:
        while t.prim == "reshape":
            t = t.args[0]
        return t.attrs[0] if t.prim == "input" else ""

    def _canonical_leaf(self, t: Tensor) -> Tensor:
        name = self.result.canonical(t.attrs[0])
        return t if name == t.attrs[0] else Tensor("input", (), (name,), t.dtype, t.shape)

    # --- fusion ---

    def _count_uses(self, groups: list[Group]) -> None:
        for name in self.graph.output_names():
            self._use(name, 2)  # a graph output has to be stored under its own name
        for g in groups:
            names = g.nodes[0].used_names() if g.host else g.reads()
            for name in names:
                self._use(name, 1)
        for node in self.graph.nodes:
            for name in node.used_names():
                if any("[" in s for s in self._symbols(name)):
                    self._use(name, 2)

    def _use(self, name: str, count: int) -> None:
        name = self.result.canonical(name)
        self.uses[name] = self.uses.get(name, 0) + count

    def _symbols(self, name: str) -> list[str]:
        """Data symbols that stand for the value's own elements."""
        values = self.inference.values.get(name)
        if values is None:
            return []
        return [s for v in values.flat if isinstance(v, Expr) for s in v.symbols if s.startswith(f"{name}[")]

    def _place(self, g: Group) -> None:
        if not g.host and g.template is None:
            for leaf in g.leaves():
                merged = self._merge(self.by_output.get(leaf.attrs[0]), g, leaf.attrs[0])
                if merged is not None:
                    g = merged
        self.result.groups.append(g)
        for name in g.outputs:
            self.by_output[name] = g

    def _merge(self, producer: Group | None, consumer: Group, name: str) -> Group | None:
        if producer is None or producer.host:
            return None
        if consumer.template is not None and producer.dequantized is not None:
            return self._take_bytes(producer, consumer)
        if consumer.template is not None and not self._fits_in_epilogue(producer, consumer):
            return None
        if producer.divides is not None and consumer.divides is not None:
            return None
        if len(producer.roots) != 1 or self.uses.get(name) != 1:
            return None
        if consumer.template is not None:
            pass
        elif producer.template is not None:
            if not self._fits_as_epilogue(producer, consumer, name):
                return None
        elif not _fits_one_nest(producer, consumer, name):
            return None
        value = producer.roots[name]

        def leaf(t: Tensor) -> Tensor:
            if t.attrs[0] != name:
                return t
            return value if t.shape == value.shape else Tensor("reshape", (value,), (), t.dtype, t.shape)

        (output,) = consumer.roots
        (root,) = substitute([consumer.roots[output]], leaf)
        self.result.groups.remove(producer)
        nodes, divides = [*producer.nodes, *consumer.nodes], producer.divides or consumer.divides
        template, acc = (
            (consumer.template, consumer.acc) if consumer.template is not None else (producer.template, producer.acc)
        )
        narrow = consumer.template is None and producer.template is not None and value.dtype.bits == 8 and root.dtype.bits > 8
        return Group(
            {output: root}, nodes, template, acc, divides=divides, dequantized=(producer, consumer) if narrow else None
        )  # fmt: skip

    def _take_bytes(self, producer: Group, consumer: Group) -> Group | None:
        """`consumer`, a kernel too, with the floats of `producer` made of its bytes where they are added; None if it cannot."""
        assert producer.dequantized is not None
        (name,) = producer.roots
        before, made = producer.dequantized
        if len(consumer.roots) != 1 or self.uses.get(name) != 1:
            return None
        self.result.groups[self.result.groups.index(producer)] = before
        self.by_output.update(dict.fromkeys(before.outputs, before))
        self.result.groups.append(made)
        merged = self._merge(made, consumer, name)
        if merged is None:
            self.result.groups.remove(made)
            self.result.groups[self.result.groups.index(before)] = producer
        return merged

    def _fits_in_epilogue(self, producer: Group, consumer: Group) -> bool:
        """Whether an operand of a product of bytes is dequantised where it is added: it is then read as bytes."""
        template = consumer.template
        if template is None or not (template.integers and template.takes_epilogue) or producer.template is not None:
            return False
        if producer.divides is not None or len(producer.roots) != 1 or len(consumer.roots) != 1:
            return False
        (value,), (root,) = producer.roots.values(), consumer.roots.values()
        order, leaves = walk([value]), producer.leaves()
        if not {t.prim for t in order} <= (_ELEMENTWISE | {"reshape"}) - {"iota", "size"}:
            return False
        dtypes = _EPILOGUE_DTYPES | _INTEGER_DTYPES
        if any(t.dtype not in dtypes for t in order) or not all(_by_column_or_full(t, root.shape) for t in order):
            return False
        full = [t for t in leaves if operand_kind(t, root.shape) == "full"]
        if len(full) != 1 or full[0].dtype.bits >= value.dtype.bits or _significant(value.shape) != _significant(root.shape):
            return False
        operands = {t.attrs[0] for t in (*leaves, *consumer.leaves())}
        fits = all(operand_kind(t, root.shape) is not None and t.dtype is not DType.BOOL for t in leaves)
        return fits and len(operands) - 1 <= _MANY_OPERANDS and len(order) + len(walk([root])) <= MAX_PRIMITIVES

    def _fits_as_epilogue(self, producer: Group, consumer: Group, name: str) -> bool:
        assert producer.template is not None
        (root,) = consumer.roots.values()
        (value,) = producer.roots.values()
        if consumer.divides is not None:  # a template has no place to report it
            return False
        if not producer.template.takes_epilogue or _significant(root.shape) != _significant(value.shape):
            return False
        order = walk([root])
        if not {t.prim for t in order} <= (_ELEMENTWISE | {"reshape"}) - {"iota", "size"}:
            return False
        integers = producer.template.integers
        dtypes = _EPILOGUE_DTYPES | _INTEGER_DTYPES if integers else _EPILOGUE_DTYPES
        if any(t.dtype not in dtypes for t in order) or not all(_by_column_or_full(t, root.shape) for t in order):
            return False
        others = [t for t in [*producer.leaves(), *consumer.leaves()] if t.attrs[0] != name]
        arrays = {t.attrs[0] for t in others if integers or operand_kind(t, root.shape) != "scalar"}
        if (
            len(arrays) > (_MANY_OPERANDS if integers else 4)
            or len({t.attrs[0] for t in others}) > (_MANY_OPERANDS if integers else _MOST_OPERANDS)
            or len(order) + len(walk([value])) > MAX_PRIMITIVES
        ):
            return False
        taken = dtypes - {DType.BOOL}
        return all(operand_kind(t, root.shape) is not None and t.dtype in taken for t in others)


def flat_dims(attrs: object) -> list[Expr]:
    """Symbolic dimensions anywhere in a primitive's attributes."""
    if isinstance(attrs, tuple):
        return [x for a in attrs for x in flat_dims(a)]
    return [attrs] if isinstance(attrs, Expr) else []


def operand_kind(t: Tensor, output: tuple[Dim, ...]) -> str | None:
    """How an epilogue's operand is indexed by the output's (row, column), or None where it is in neither simple way."""
    shape = _significant(t.shape)
    if not shape:
        return "scalar"
    if shape == _significant(output):
        return "full"
    if len(shape) == 1 and t.shape[-1] == shape[0] and shape[0] == output[-1]:
        return "column"
    return None


def _by_column_or_full(t: Tensor, output: tuple[Dim, ...]) -> bool:
    """Whether a tensor of an epilogue has the output's elements, one, or one per column; not one per row or channel, say."""
    shape = _significant(t.shape)
    return not shape or shape == _significant(output) or (len(shape) == 1 and t.shape[-1] == shape[0] == output[-1])


def _significant(shape: tuple[Dim, ...]) -> tuple[Dim, ...]:
    return tuple(d for d in shape if d != 1)


def _fits_one_nest(producer: Group, consumer: Group, name: str) -> bool:
    (inner,) = producer.roots.values()
    (root,) = consumer.roots.values()
    inner_order, order = walk([inner]), walk([root])
    if len(inner_order) + len(order) > MAX_PRIMITIVES:
        return False
    if len({t.attrs[0] for t in (*inner_order, *order) if t.prim == "input"}) > MAX_OPERANDS:
        return False
    if any(t.prim in ("concat", "scan", "scatter", "dot", "argreduce") for t in inner_order):
        return False
    reading = [t for t in order if t.prim == "input" and t.attrs[0] == name]
    if any(_significant(t.shape) != _significant(inner.shape) for t in reading):
        return False
    cheap = all(t.prim in _CHEAP for t in inner_order)
    kinds = {t.prim for t in order}
    if kinds <= _ELEMENTWISE | {"reshape"}:
        expanded = any(t.prim == "broadcast" and t.args[0] in reading and t.shape != t.args[0].shape for t in order)
        moved = any(t.prim in ("transpose", "slice", "pad", "take", "index", "windows") for t in inner_order)
        return not expanded and _significant(root.shape) == _significant(inner.shape) and (not moved or len(order) < 24)
    if kinds <= _ELEMENTWISE | {"reduce", "reshape"}:
        return cheap and all(_significant(t.shape) == _significant(inner.shape) for t in reading)
    return cheap and kinds <= _MOVES
