"""What a target of `intarsia convert` implements: which nodes it takes, and how a part is written as the vendor's file."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

from intarsia.ep.capability import ComputeCapability, KernelLookup, Support
from intarsia.ep.provider import ExecutionProvider, NoOptions
from intarsia.errors import Fail, IntarsiaError
from intarsia.graph.dims import Expr
from intarsia.graph.model import Graph, Node
from intarsia.providers.vendor.program import Interface
from intarsia.providers.vendor.shape_profile import ShapeProfile, input_shapes, is_open
from intarsia.providers.vendor.survey import Survey, unsized
from intarsia.providers.vendor.translator import Translator, Untranslatable


class ConversionTarget:
    """One vendor's form of models on disk. Needs no device.

    Attributes:
        name: as `--to` has it.
        suffix: of the file or folder that it writes.
        beside: suffixes of files that it writes beside.
        writes_folder: whether it is a folder.
        what: the form, in words.
        Options: a frozen dataclass of what `--option` may set, as a provider's.
    """

    name: ClassVar[str]
    suffix: ClassVar[str]
    what: ClassVar[str]
    beside: ClassVar[tuple[str, ...]] = ()
    writes_folder: ClassVar[bool] = False
    Options: ClassVar[type[Any]] = NoOptions

    def __init__(self, options: Any = None) -> None:
        self.options = options if options is not None else self.Options()

    @classmethod
    def missing(cls) -> str:
        """What is not installed here and is needed; "" where nothing is."""
        return ""

    def surveyor(self) -> ExecutionProvider:
        """Says of each node whether it is taken; compiles nothing."""
        raise NotImplementedError(f"{type(self).__name__}.surveyor")

    def write(self, graph: Graph, path: Path) -> None:
        """Write a part of which all nodes were taken.

        Raises:
            Fail: the part as a whole cannot be written; says why.
        """
        raise NotImplementedError(f"{type(self).__name__}.write")


class Surveyor(ExecutionProvider):
    """The answers of a translator, for machines on which the vendor's provider cannot start."""

    def __init__(self, name: str, translator: Translator, fused: frozenset[str] | None = None) -> None:
        super().__init__()
        vars(self).update(name=name, fused_operators=fused)  # of this instance: as the vendor's provider has them
        self.translator = translator
        self._survey: Survey | None = None

    def supports(self, node: Node, graph: Graph) -> Support:
        return self._of(graph).answer(node)

    def get_capability(self, graph: Graph, kernel_lookup: KernelLookup) -> list[ComputeCapability]:
        free = [i for i in range(len(graph.nodes)) if kernel_lookup.is_free(i)]
        return [ComputeCapability((i,)) for i in self._of(graph).taken(free)]

    def _of(self, graph: Graph) -> Survey:
        if self._survey is None or self._survey.graph is not graph:
            self._survey = self.make_survey(graph)
        return self._survey

    def make_survey(self, graph: Graph) -> Survey:
        """The answers about one graph."""
        return Survey(graph, self.translator)


def translated(graph: Graph, translator: Translator, profile: ShapeProfile) -> Any:
    """A part in the vendor's form, for vendors that are handed a translation (`Translator`).

    Raises:
        Fail: sizes vary that have to be known, or the translator has nothing for it.
    """
    vendor = translator.vendor
    if is_open(graph) and not (translator.symbolic and profile and profile.covers(graph)):
        sizes = sorted({str(d) for shape in input_shapes(graph) for d in shape or () if isinstance(d, Expr)})
        more = " or, for a range of them, --option profile='NAME=1..8'" if translator.symbolic else ""
        raise Fail(
            f"{vendor} is given models of known sizes, and {', '.join(map(repr, sizes)) or 'a rank'} varies: "
            f"give sizes by --dim NAME=SIZE{more}"
        )
    _, graph = Interface.of(graph)
    try:
        legal = translator.legalized(graph)
        if not translator.symbolic and (why := unsized(legal)):
            raise Untranslatable(f"{vendor} takes no sizes that only data decide: {why}", "shape")
        return translator.translate(legal)
    except Untranslatable as error:
        raise Fail(f"{vendor}: {error.reason}") from error
    except IntarsiaError as error:
        raise Fail(f"{vendor} cannot be given the model: {error}") from error
