"""Plans in the cache on disk: a later session finds its launches there, and prints no kernel.

A plan depends on the nodes of its part, the types of its inputs, the sizes of a run, the numbers that are read on the host, the
elements of small constants, the language, and this package's files. What is larger than `SMALL_NBYTES` is in no kernel's
text: it is a weight, which the plan names.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from intarsia.cache.disk_cache import content_key, get_cache
from intarsia.cache.fingerprint import fingerprint
from intarsia.codegen.clike import Dialect
from intarsia.codegen.clike.split_into_kernels import Job
from intarsia.codegen.clike.vendor_libraries.calls import Libraries
from intarsia.graph.dtypes import DType
from intarsia.graph.model import Constant, Graph, Node
from intarsia.lazy_dataclass import dataclass
from intarsia.ops.framework.infer import resolve_version
from intarsia.primitives.lang import Tensor
from intarsia.printable import get_logger
from intarsia.providers.gpu.decompositions import device_registry
from intarsia.providers.gpu.launch_ranges import Region

SMALL_NBYTES = 1 << 16
_logger = get_logger("intarsia")


@dataclass(frozen=True)
class CachedPlan:
    """What a plan is made of besides memory.

    Attributes:
        leaves: constants that kernels read -> the graph's constant by its name, or the elements.
        regions: control flow.
        prepared: values that are computed once of one of the graph's constants: how, and its name.
    """

    jobs: list[Job]
    stored: dict[str, tuple[DType, tuple[int, ...]]]
    outputs: list[tuple[str, DType, tuple[int, ...]]]
    leaves: dict[str, str | np.ndarray]
    regions: list[Region]
    prepared: dict[str, tuple[Tensor, str]]


class NotCachedError(Exception):
    """Plans of a graph cannot be cached; says why."""


class PlanStore:
    """The cache's plans of one part.

    Attributes:
        obstacle: why plans of this part are not cached; "" where they are.
    """

    def __init__(self, graph: Graph, dialect: Dialect, libraries: Libraries | None = None) -> None:
        self.obstacle, self._graph_key = "", ""
        try:
            offered = libraries.identity if libraries is not None else ""
            self._graph_key = content_key(repr(_language(dialect)), offered, *_described(graph))
        except NotCachedError as error:
            self.obstacle = str(error)

    def key(self, shapes: Mapping[str, tuple[int, ...]], numbers: Mapping[str, np.ndarray]) -> str:
        texts = [f"{n} {a.dtype} {a.shape}" for n, a in numbers.items()]
        found = content_key(
            fingerprint(), self._graph_key, repr(dict(shapes)), *texts, *(a.tobytes() for a in numbers.values())
        )
        return f"launches-{found}"

    def load(self, key: str) -> CachedPlan | None:
        """The plan; None where it has to be made, with the reason in the log."""
        found: CachedPlan | None = None if self.obstacle else get_cache().load(key)
        if found is None:
            why = self.obstacle or "no plan is cached for these nodes, sizes, numbers and this version"
            _logger.debug("launches are planned anew: %s", why)
        return found

    def keep(self, key: str, plan: CachedPlan) -> None:
        if not self.obstacle:
            get_cache().store(key, plan)


def _language(dialect: Dialect) -> tuple[Any, ...]:
    """What texts depend on besides primitives: an instance's own values, since classes are this package's files."""
    return type(dialect).__name__, *sorted((name, _ordered(value)) for name, value in vars(dialect).items())


def _ordered(value: Any) -> str:
    """Equal for equal values, in every process: sets are in no order of their own."""
    return repr(sorted(map(repr, value))) if isinstance(value, (set, frozenset)) else repr(value)


def _described(graph: Graph, body: bool = False) -> Iterator[str | bytes]:
    """All that a plan of the graph can depend on. The constants of a body are in the plan, whatever their size.

    Raises:
        NotCachedError: it depends on something that has no stable form.
    """
    yield repr(([(v.name, v.type) for v in graph.inputs], graph.output_names(), sorted(graph.opset_imports.items())))
    for node in graph.nodes:
        yield from _node(node, graph)
    for name, constant in graph.constants.items():
        yield f"{name} {constant.dtype.name} {constant.shape}"
        if body or constant.size * constant.dtype.numpy.itemsize <= SMALL_NBYTES:
            yield from _elements(constant.numpy())


def _node(node: Node, graph: Graph) -> Iterator[str | bytes]:
    record = resolve_version(graph, node, device_registry())
    if record is None or not record.function.__module__.startswith("intarsia."):
        raise NotCachedError(f"{node.qualified_op} is the program's own")
    yield repr((node.domain, node.op_type, node.version, node.overload, node.name, node.inputs, node.outputs))
    for name, value in sorted(node.attributes.items()):
        yield name
        if isinstance(value, Graph):
            inner = value.clone()
            inner.opset_imports = value.opset_imports or graph.opset_imports
            yield from _described(inner, body=True)
        elif isinstance(value, np.ndarray):
            yield from _elements(value)
        elif isinstance(value, Constant):
            yield from _elements(value.numpy())
        elif isinstance(value, (int, float, str, bytes)) or (
            isinstance(value, (list, tuple)) and all(isinstance(v, (int, float, str, bytes)) for v in value)
        ):
            yield repr(value)
        else:
            raise NotCachedError(f"{node.qualified_op} has an attribute {name!r} of type {type(value).__name__}")


def _elements(array: np.ndarray) -> Iterator[str | bytes]:
    if array.dtype == object:
        yield repr(array.tolist())
        return
    yield f"{array.dtype} {array.shape}"
    yield np.ascontiguousarray(array).tobytes()
