"""Values and their channels-last twins: what `rewrite` keeps while it goes through a graph."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from intarsia.graph.model import Constant, Node
from intarsia.ops.framework.infer import Inference
from intarsia.providers.cpu.legalize.graph_rewriter import TwinRewriter


class ChannelsLastTwins(TwinRewriter):
    """A graph that is written anew with channels-last twins of its values.

    Attributes:
        same: value -> another that it equals, under whose name it is used.
        stored: those of `same` that exist under their own name, too.
        done: first outputs of nodes that are part of others already.
    """

    def __init__(self, inference: Inference) -> None:
        super().__init__(inference)
        self.same: dict[str, str] = {}
        self.stored: set[str] = set()
        self.done: set[str] = set()
        self.consumers = inference.graph.consumers()

    def _last(self, name: str) -> str:
        """The channels-last twin of a value, made here if there is none."""
        if name not in self.twin:
            rank = self.rank(name)
            self._append("Transpose", [name], self.name(name), perm=[0, *range(2, rank), 1])
            self.twin[name] = self.nodes[-1].outputs[0]
        return self.twin[name]

    def from_twin(self, name: str) -> None:
        """Transpose a value to its own layout."""
        rank = self.rank(name)
        self._append("Transpose", [self.twin[name]], name, perm=[0, rank - 1, *range(1, rank - 1)])

    def _append(self, op_type: str, inputs: list[str], output: str, **attributes: object) -> None:
        self.nodes.append(Node(op_type, inputs, [output], attributes, name=f"{output} ({op_type})", version=1))

    def _emit(self, node: Node, inputs: Sequence[str], **changes: object) -> bool:
        """Append `node` on other inputs, producing the twin of its output."""
        (output,) = [o for o in node.outputs if o]
        self.nodes.append(node.copy(inputs=list(inputs), outputs=[self.new_twin(output)], **changes))
        return True

    def _arranged(self, weights: Constant, shape: tuple[int, ...], arrange: Callable[[np.ndarray], np.ndarray]) -> str:
        """Weights in another order, which are in memory only until they are packed."""
        return self.lazy_constant(weights.name, weights.dtype, shape, lambda: arrange(weights.numpy()))

    def _reshaped(self, node: Node, source: str, output: str, shape: Sequence[int] | str) -> None:
        """Append a Reshape to `shape`, whose first number is 0 (the batch stays), or which is a value in the model's order."""
        if isinstance(shape, str):
            rank = len(self.shape(node.outputs[0]))
            order = self.constant(shape, np.array([0, *range(2, rank), 1], np.int64))
            made = self.name(shape)
            self._append("Gather", [shape, order], made, axis=0)
        else:
            made = self.constant(node.outputs[0], np.array(shape, np.int64))
        self.nodes.append(
            Node("Reshape", [source, made], [output], {}, version=14, name=f"{output} (Reshape)", origin=node.origin)
        )

    def _ints(self, node: Node, index: int, attribute: str) -> list[int] | None:
        if attribute in node.attributes:
            return [int(a) for a in node.attributes[attribute]]
        constant = self.graph.constants.get(node.inputs[index]) if index < len(node.inputs) else None
        return None if constant is None else [int(a) for a in constant.numpy().reshape(-1)]
