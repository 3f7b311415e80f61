"""A part that a vendor compiled: one executable for all sizes, or one for each combination of input shapes."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from intarsia.ep.program import NodeReport, PlanMemory, Program, ProgramMemory, RunContext
from intarsia.errors import EPFail
from intarsia.graph.model import Graph, TensorType, Value
from intarsia.lazy_dataclass import dataclass
from intarsia.machine import fork_safety
from intarsia.providers.vendor.narrow_integers import NARROW_LIMIT

_RETAINED_SHAPES = 8
Shapes = tuple[tuple[int, ...], ...]


class Executable:
    """What a vendor's runtime has loaded. May be run by several threads at once."""

    nbytes: int = 0
    """Weights and code that it holds, as far as is known."""

    def run(self, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        """The outputs of the part that it was compiled from, in new memory.

        Raises:
            EPFail: the vendor's runtime failed.
        """
        raise NotImplementedError(f"{type(self).__name__}.run")

    def artifact(self) -> bytes | None:
        """What it was loaded from; None where that is not cached."""
        return None

    def kernels(self) -> dict[str, str]:
        """Node (by its first output) -> what the vendor runs it on, or by; as far as the vendor says."""
        return {}

    def describe(self) -> str:
        return ""


@dataclass(frozen=True)
class Interface:
    """What a part takes and gives, without its nodes.

    Attributes:
        inputs, outputs: of the compiled part.
        given: outputs of the whole part (by index) that are inputs (by index) as they are.
        fixed: outputs of the whole part (by index) that are constants.
    """

    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    given: dict[int, int]
    fixed: dict[int, np.ndarray]

    @classmethod
    def of(cls, graph: Graph) -> tuple[Interface, Graph]:
        """The interface, and the graph without the outputs that no node computes."""
        names = graph.input_names()
        given = {i: names.index(n) for i, n in enumerate(graph.output_names()) if n in names}
        fixed = {i: graph.constants[n].numpy() for i, n in enumerate(graph.output_names()) if n in graph.constants}
        outputs = tuple(
            Value(v.name, graph.type_of(v.name) or v.type)
            for i, v in enumerate(graph.outputs)
            if i not in given and i not in fixed
        )
        trimmed = graph
        if given or fixed:
            trimmed = graph.clone()
            trimmed.outputs = list(outputs)
        return cls(tuple(Value(v.name, graph.type_of(v.name)) for v in graph.inputs), outputs, given, fixed), trimmed

    def results(self, inputs: Sequence[Any], computed: Sequence[Any], own: Callable[[Any], Any] = np.array) -> list[Any]:
        """All outputs, in order. `own`: a copy of an input, or of a constant, where the vendor's tensors lie."""
        left = iter(computed)
        count = len(self.given) + len(self.fixed) + len(self.outputs)
        return [
            own(inputs[self.given[i]]) if i in self.given else own(self.fixed[i]) if i in self.fixed else next(left)
            for i in range(count)
        ]


class VendorProgram(Program):
    """Runs one part by executables.

    Args:
        graph: the part.
        provider: the provider's name, for messages.
        load: the executable for these input shapes (None: for all), with what it takes and gives.
        static: whether there is one for each combination of input shapes.
        remark: what people should know of how it came about.
        own: a copy of an input, or of a constant, in the memory where the vendor's tensors lie.
        admits: where there is one for many sizes, whether these input shapes are among them; others get one of their own.
    """

    def __init__(
        self,
        graph: Graph,
        provider: str,
        load: Callable[[Shapes | None], tuple[Executable | None, Interface]],
        *,
        static: bool = False,
        remark: Callable[[], str] = str,
        own: Callable[[Any], Any] = np.array,
        admits: Callable[[Shapes], bool] | None = None,
    ) -> None:
        self.inputs, self.outputs = tuple(graph.input_names()), tuple(graph.output_names())
        self.graph, self.provider, self.static = graph, provider, static
        self._load, self._remark, self._own, self._admits = load, remark, own, admits
        self._lock = fork_safety.lock()
        self._loaded: OrderedDict[Shapes | None, tuple[Executable | None, Interface]] = OrderedDict()
        if not static:
            self._loaded[None] = load(None)

    def run(self, inputs: Sequence[Any], run: RunContext | None = None) -> list[Any]:
        if run is not None:
            run.check()
        executable, interface = self._for(inputs)
        computed = executable.run(inputs) if executable is not None else []
        if run is not None:
            run.check()
        return interface.results(inputs, computed, self._own)

    def _for(self, inputs: Sequence[np.ndarray]) -> tuple[Executable | None, Interface]:
        shapes: Shapes | None = None
        if self.static or self._admits is not None:
            shapes = tuple(tuple(array.shape) for array in inputs)
            if self._admits is not None and self._admits(shapes):
                shapes = None
        with self._lock:
            found = self._loaded.get(shapes)
            if found is None:
                found = self._loaded[shapes] = self._load(shapes)
                if len(self._loaded) > _RETAINED_SHAPES:
                    del self._loaded[next(shapes for shapes in self._loaded if shapes is not None)]
            elif shapes is not None:
                self._loaded.move_to_end(shapes)
        return found

    @property
    def only(self) -> tuple[Executable | None, Interface] | None:
        """The executable for all sizes, with what it takes and gives; None where each combination of shapes has its own."""
        return self._loaded[None] if not self.static else None

    def memory(self) -> ProgramMemory:
        with self._lock:
            held = sum(executable.nbytes for executable, _ in self._loaded.values() if executable is not None)
        return ProgramMemory(0, 0, held)

    def predicted_memory(self, shapes: Sequence[Sequence[int] | None]) -> PlanMemory | None:
        """What the vendor needs while it runs, it does not say: results alone."""
        if self.static or any(shape is None for shape in shapes):
            return None
        found = self.only
        nbytes = 0
        for value in found[1].outputs if found is not None else ():
            if not isinstance(value.type, TensorType) or value.type.shape is None:
                return None
            sizes = [d for d in value.type.shape if isinstance(d, int)]
            if len(sizes) != len(value.type.shape):
                return None
            nbytes += int(np.prod(sizes, dtype=np.int64)) * value.type.dtype.numpy.itemsize
        return PlanMemory(", ".join(str(list(shape or ())) for shape in shapes), 0, 0, nbytes)

    def describe(self, stage: str = "program") -> str:
        if stage != "program":
            return ""
        lines = [f"{self.provider}, {len(self.graph.nodes)} nodes: {', '.join(self.inputs)} -> {', '.join(self.outputs)}"]
        for shapes, (executable, _) in self._loaded.items():
            if shapes is not None:
                lines.append(f"for input shapes {', '.join(str(list(s)) for s in shapes)}:")
            if executable is not None and (text := executable.describe()):
                lines.append(text)
        return "\n".join(lines)

    def nodes(self) -> list[NodeReport]:
        kernels: dict[str, str] = {}
        for executable, _ in self._loaded.values():
            if executable is not None:
                kernels.update(executable.kernels())
        firsts = [next((n for n in node.outputs if n), "") for node in self.graph.nodes]
        vendor = self.provider.removesuffix("ExecutionProvider")
        return [NodeReport(name, "compiled", kernels.get(name, vendor)) for name in firsts]

    def remarks(self) -> list[str]:
        return [text] if (text := self._remark()) else []


def narrowed(array: np.ndarray, name: str, provider: str) -> np.ndarray:
    """64-bit integers in 32 bits.

    Raises:
        EPFail: one does not fit.
    """
    if array.size and (array.min() < -NARROW_LIMIT or array.max() >= NARROW_LIMIT):
        raise EPFail(
            f"{provider} computes integers in 32 bits, and the input {name!r} has numbers from {array.min()} to {array.max()}; "
            "leave the model to a provider with 64 bits"
        )
    return array.astype(np.int32)
