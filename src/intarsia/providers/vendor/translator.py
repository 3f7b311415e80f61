"""What a vendor's translator implements: which nodes the vendor takes, and how a part is written for it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from intarsia.ep.capability import Support
from intarsia.graph.model import Graph, Node
from intarsia.lazy_dataclass import dataclass
from intarsia.passes.rule import RuleSet
from intarsia.providers.vendor.half_precision import HalfPrecision
from intarsia.providers.vendor.legalize import legalize
from intarsia.providers.vendor.narrow_integers import NarrowIntegers


class Untranslatable(Exception):
    """A graph cannot be written in the vendor's form; says why, with a code as `Support` has them."""

    def __init__(self, reason: str, code: str = "unsupported") -> None:
        super().__init__(reason)
        self.reason, self.code = reason, code


@dataclass(frozen=True)
class Facts:
    """Of one graph, what answers about its nodes rest on."""

    graph: Graph
    narrow: NarrowIntegers

    @classmethod
    def of(cls, graph: Graph) -> Facts:
        return cls(graph, NarrowIntegers.of(graph))


class Translator:
    """From graphs to a vendor's form. Needs no device: `intarsia convert` uses it on any machine.

    Attributes:
        vendor: the vendor's name in messages.
        legalizations: rules that write operators in terms of those that the vendor has, in order of preference.
        symbolic: whether it translates graphs whose sizes vary; else it is given one combination of sizes at a time.
        half: float32 is computed in float16, but for what this says; None: as the model has it.
    """

    vendor: ClassVar[str]
    legalizations: ClassVar[tuple[RuleSet, ...]] = ()
    symbolic: bool = False
    half: HalfPrecision | None = None

    def versions(self) -> Mapping[str, str]:
        """What a translated part depends on besides its nodes: the vendor's library, this translator; by name."""
        raise NotImplementedError(f"{type(self).__name__}.versions")

    def settings(self) -> Mapping[str, str]:
        """The options that a translated part depends on, as text."""
        return {} if self.half is None else {"half": str(self.half)}

    def refusal(self, node: Node, facts: Facts) -> Support | None:
        """Why the vendor is not given `node`, from what is known of it without translating; None where it may be tried."""
        return None

    def translate(self, graph: Graph) -> Any:
        """A legalised graph (types inferred; sizes are numbers unless `symbolic`) in the vendor's form.

        Raises:
            Untranslatable: the vendor has nothing for a node, or computes it otherwise.
        """
        raise NotImplementedError(f"{type(self).__name__}.translate")

    def legalized(self, graph: Graph) -> Graph:
        """The graph that `translate` gets: in the requested precision, in operators that the vendor has.

        Raises:
            InvalidGraph: sizes do not fit each other.
        """
        if self.half is not None:
            graph = self.half.convert(graph)
        return legalize(graph, self.legalizations).graph
