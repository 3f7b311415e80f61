"""Values and their channels-last twins: what `providers.cpu.legalize.channels_last.rewrite` keeps while it goes through a
graph."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from intarsia.graph.dims import Dim
from intarsia.graph.model import Constant, Node, TensorType
from intarsia.ops.framework.infer import Inference

_TWIN = "%last"


def original_name(name: str) -> str:
    """The value that a name made here stands for."""
    return name.partition(_TWIN)[0]


def derived_name(name: str, what: str) -> str:
    """A new name for a part of what computes `name`."""
    return f"{name}{_TWIN}{what}"


class Twins:
    """The nodes made so far, and which values have a twin, or exist as their twin only."""

    def __init__(self, inference: Inference) -> None:
        self.inference = inference
        self.graph = inference.graph.clone()
        self.nodes: list[Node] = []
        self.twin: dict[str, str] = {}  # value -> its channels-last twin
        self.missing: set[str] = set()  # values that exist only as their twin so far
        self.same: dict[str, str] = {}  # value -> another that it equals, under whose name it is used
        self.stored: set[str] = set()  # those of `same` that exist under their own name, too
        self.done: set[str] = set()  # first outputs of nodes that are part of others already
        self.consumers = inference.graph.consumers()
        self.serial = 0

    def _rank(self, name: str) -> int:
        kind = self.inference.types.get(name)
        return len(kind.shape) if isinstance(kind, TensorType) and kind.shape is not None else -1

    def _last(self, name: str) -> str:
        """The channels-last twin of a value, made here if there is none."""
        if name not in self.twin:
            rank = self._rank(name)
            self._append("Transpose", [name], self._name(name), perm=[0, *range(2, rank), 1])
            self.twin[name] = self.nodes[-1].outputs[0]
        return self.twin[name]

    def _restore(self, name: str) -> None:
        """Make sure that a value exists in its own layout."""
        if name in self.missing:
            self.missing.discard(name)
            rank = self._rank(name)
            self._append("Transpose", [self.twin[name]], name, perm=[0, rank - 1, *range(1, rank - 1)])

    def _name(self, name: str) -> str:
        self.serial += 1
        return f"{name}{_TWIN}{self.serial}"

    def _append(self, op_type: str, inputs: list[str], output: str, **attributes: object) -> None:
        self.nodes.append(Node(op_type, inputs, [output], attributes, name=f"{output} ({op_type})", version=1))

    def _emit(self, node: Node, inputs: Sequence[str], **changes: object) -> bool:
        """Append `node` on other inputs, producing the twin of its output."""
        (output,) = [o for o in node.outputs if o]
        twin = self._name(output)
        self.nodes.append(node.copy(inputs=list(inputs), outputs=[twin], **changes))
        self.twin[output] = twin
        self.missing.add(output)
        return True

    def _constant(self, name: str, array: np.ndarray) -> str:
        made = self._name(name)
        self.graph.constants[made] = Constant.of(made, np.ascontiguousarray(array))
        return made

    def _arranged(self, weights: Constant, shape: tuple[int, ...], arrange: Callable[[np.ndarray], np.ndarray]) -> str:
        """Weights in another order, which are in memory only until they are packed."""
        made = self._name(weights.name)
        self.graph.constants[made] = Constant(made, weights.dtype, shape, lambda: arrange(weights.numpy()))
        return made

    def _shape(self, name: str) -> tuple[Dim, ...]:
        kind = self.inference.types.get(name)
        return kind.shape if isinstance(kind, TensorType) and kind.shape is not None else ()

    def _reshaped(self, node: Node, source: str, output: str, shape: Sequence[int] | str) -> None:
        """Append a Reshape to `shape`, whose first number is 0 (the batch stays), or which is a value in the model's order."""
        if isinstance(shape, str):
            rank = len(self._shape(node.outputs[0]))
            order = self._constant(shape, np.array([0, *range(2, rank), 1], np.int64))
            made = self._name(shape)
            self._append("Gather", [shape, order], made, axis=0)
        else:
            made = self._constant(node.outputs[0], np.array(shape, np.int64))
        common = {"name": f"{output} (Reshape)", "origin": node.origin}
        self.nodes.append(Node("Reshape", [source, made], [output], {}, version=14, **common))  # type: ignore[arg-type]

    def _ints(self, node: Node, index: int, attribute: str) -> list[int] | None:
        if attribute in node.attributes:
            return [int(a) for a in node.attributes[attribute]]
        constant = self.graph.constants.get(node.inputs[index]) if index < len(node.inputs) else None
        return None if constant is None else [int(a) for a in constant.numpy().reshape(-1)]
