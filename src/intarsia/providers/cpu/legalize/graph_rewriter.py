"""What passes have in common that write a graph anew, node by node, or several nodes for one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar

import numpy as np

from intarsia.graph.dims import Dim
from intarsia.graph.dtypes import DType
from intarsia.graph.model import Constant, Graph, Node, TensorType
from intarsia.ops.framework.infer import Inference
from intarsia.providers.cpu.value_names import derived_name


class GraphRewriter:
    """A copy of a graph, the nodes written so far, and what is known of its values.

    Attributes:
        graph: the copy; constants are added to it.
        nodes: those written so far, in order.
        mark: in the names of values made here, so that those of different passes differ.
    """

    mark: ClassVar[str] = ""

    def __init__(self, inference: Inference) -> None:
        self.inference, self.types = inference, inference.types
        self.graph = inference.graph.clone()
        self.nodes: list[Node] = []
        self.serial = 0

    def finish(self) -> Graph:
        """The graph of the nodes written; its types are to be inferred."""
        self.graph.nodes = self.nodes
        self.graph.types = {}
        return self.graph

    # --- what is known ---

    def dtype(self, name: str) -> DType | None:
        constant = self.graph.constants.get(name)
        if constant is not None:
            return constant.dtype
        kind = self.types.get(name)
        return kind.dtype if isinstance(kind, TensorType) else None

    def shape(self, name: str) -> tuple[Dim, ...]:
        """() where it is not known, too."""
        kind = self.types.get(name)
        return kind.shape if isinstance(kind, TensorType) and kind.shape is not None else ()

    def rank(self, name: str) -> int:
        """-1 where it is not known."""
        kind = self.types.get(name)
        return len(kind.shape) if isinstance(kind, TensorType) and kind.shape is not None else -1

    def array(self, name: str) -> np.ndarray | None:
        constant = self.graph.constants.get(name)
        return None if constant is None else constant.numpy()

    # --- new names and constants ---

    def name(self, name: str) -> str:
        """A name that no value has, for something made of `name`."""
        self.serial += 1
        return derived_name(name, f"{self.mark}{self.serial}")

    def constant(self, name: str, array: np.ndarray) -> str:
        """The name of a new constant, made of `name`."""
        made = self.name(name)
        self.graph.constants[made] = Constant.of(made, np.ascontiguousarray(array).reshape(array.shape))
        return made

    def lazy_constant(self, name: str, dtype: DType, shape: tuple[int, ...], make: Callable[[], np.ndarray]) -> str:
        """The name of a constant that is computed when it is packed."""
        made = self.name(name)
        self.graph.constants[made] = Constant(made, dtype, shape, make)
        return made


class TwinRewriter(GraphRewriter):
    """Values with twins: the same in another form (type, layout), in which the nodes that can work with them do.

    Attributes:
        twin: value -> its twin.
        missing: values that exist only as their twin so far.
    """

    def __init__(self, inference: Inference) -> None:
        super().__init__(inference)
        self.twin: dict[str, str] = {}
        self.missing: set[str] = set()

    def from_twin(self, name: str) -> None:
        """Append the node that makes a value of its twin."""
        raise NotImplementedError(f"{type(self).__name__}.from_twin")

    def restore(self, name: str) -> None:
        """Make sure that a value exists in its own form."""
        if name in self.missing:
            self.missing.discard(name)
            self.from_twin(name)

    def keep(self, node: Node) -> None:
        """Append a node as it is, which reads values in their own form."""
        for name in sorted(node.used_names()):
            self.restore(name)
        self.nodes.append(node.copy())

    def replace(self, name: str, twin: str) -> None:
        """From now on `twin` exists, and `name` does not."""
        self.twin[name] = twin
        self.missing.add(name)

    def new_twin(self, name: str) -> str:
        """The name of the twin of a value that a node is about to make in this form alone."""
        made = self.name(name)
        self.replace(name, made)
        return made


class NodeParts:
    """Nodes that together stand for one of the model, under its name; what they make on the way is named OUTPUT%what.

    Attributes:
        graph: the graph that they become part of; constants are added to it.
        made: those written so far, in order.
    """

    def __init__(self, graph: Graph, node: Node) -> None:
        self.graph, self.node = graph, node
        self.made: list[Node] = []

    def part(self, what: str) -> str:
        """The name of a value on the way."""
        return f"{self.node.outputs[0]}%{what}"

    def constant_part(self, what: str, array: np.ndarray) -> str:
        """The name of a new constant."""
        name = self.part(what)
        self.graph.constants[name] = Constant.of(name, array)
        return name

    def append(
        self, op_type: str, inputs: Sequence[str], outputs: Sequence[str], attributes: Mapping[str, object],
        domain: str, version: int,
    ) -> list[str]:  # fmt: skip
        """Append a node, without inputs at the end that have no name; returns the names of its outputs."""
        given, made, node = [*inputs], [*outputs], self.node
        while not given[-1]:
            given.pop()
        self.made.append(Node(op_type, given, made, dict(attributes), domain, node.name, version, origin=node.origin))
        return made
