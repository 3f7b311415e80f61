"""What a target of `intarsia convert` implements: which nodes it takes, and how a part is written as the vendor's file."""

from __future__ import annotations

import shlex
from collections.abc import Collection
from pathlib import Path
from typing import Any, ClassVar

from intarsia.ep.capability import ComputeCapability, KernelLookup, Support
from intarsia.ep.provider import ExecutionProvider, NoOptions
from intarsia.errors import Fail, IntarsiaError, InvalidArgument
from intarsia.graph.dims import Expr, symbols_of, written_name
from intarsia.graph.model import Graph, Node, TensorType
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
        dynamic_sizes: whether its files have sizes that vary, without a list of what they may be.
        Options: a frozen dataclass of what `--option` may set, as a provider's.
    """

    name: ClassVar[str]
    suffix: ClassVar[str]
    what: ClassVar[str]
    beside: ClassVar[tuple[str, ...]] = ()
    writes_folder: ClassVar[bool] = False
    dynamic_sizes: ClassVar[bool] = False
    Options: ClassVar[type[Any]] = NoOptions

    def __init__(self, options: Any = None) -> None:
        self.options = options if options is not None else self.Options()

    @classmethod
    def missing(cls) -> str:
        """What is not installed here and is needed; "" where nothing is."""
        return ""

    def profile(self) -> ShapeProfile | None:
        """What sizes that vary may be; None where the form has numbers alone."""
        return None

    def check_sizes(self, graph: Graph) -> None:
        """Raises InvalidArgument where sizes of a model's inputs vary that the files have as numbers, or in a profile."""
        if self.dynamic_sizes:
            return
        profile = self.profile()
        known = profile.sizes if profile is not None else {}
        missing = {symbol: name for symbol, name in dynamic_sizes(graph).items() if symbol not in known}
        if not missing:
            return
        names = list(missing.values())
        dims = " ".join(f"--dim {shlex.quote(f'{name}=SIZE')}" for name in names)
        ranges = "; ".join(f"{name}=1..8" for symbol, name in missing.items() if name == written_name(symbol))
        more = (
            f", or what they may be, such as --option {shlex.quote(f'profile={ranges}')}"
            if ranges and profile is not None
            else ""
        )
        raise InvalidArgument(
            f"{self.what} has sizes as numbers, and {', '.join(map(repr, names))} of the model's inputs vary: give {dims}{more}"
        )

    def surveyor(self) -> ExecutionProvider:
        """Says of each node whether it is taken; compiles nothing."""
        raise NotImplementedError(f"{type(self).__name__}.surveyor")

    def write(self, graph: Graph, path: Path) -> None:
        """Write a part of which all nodes were taken.

        Raises:
            Fail: the part as a whole cannot be written; says why.
        """
        raise NotImplementedError(f"{type(self).__name__}.write")


def dynamic_sizes(graph: Graph) -> dict[str, str]:
    """Symbol -> name, of the sizes of a model's inputs that vary; one that the model does not name is INPUT:AXIS."""
    found: dict[str, str] = {}
    for value, shape in zip(graph.inputs, input_shapes(graph), strict=True):
        for axis, dim in enumerate(shape or ()):
            for symbol in sorted(symbols_of(dim)):
                found.setdefault(symbol, written_name(symbol) or f"{value.name}:{axis}")
    return found


class Surveyor(ExecutionProvider):
    """The answers of a translator, for machines on which the vendor's provider cannot start.

    Args:
        name: of the vendor.
        translator: what answers.
        fused: operators that are taken whole (`ExecutionProvider.fused_operators`).
        symbols: those of sizes that a file may leave open; nodes with others are refused, since no run will be there to compile
            for their sizes.
    """

    def __init__(
        self, name: str, translator: Translator, fused: frozenset[str] | None = None, symbols: Collection[str] = ()
    ) -> None:
        super().__init__()
        vars(self).update(name=name, fused_operators=fused)  # of this instance: as the vendor's provider has them
        self.translator, self._symbols = translator, frozenset(symbols)
        self._survey: Survey | None = None

    def supports(self, node: Node, graph: Graph) -> Support:
        refused = self._unknown_size(node, graph)
        return refused if refused is not None else self._of(graph).answer(node)

    def get_capability(self, graph: Graph, kernel_lookup: KernelLookup) -> list[ComputeCapability]:
        free = [i for i in range(len(graph.nodes)) if kernel_lookup.is_free(i)]
        sized = [i for i in free if self._unknown_size(graph.nodes[i], graph) is None]
        return [ComputeCapability((i,)) for i in self._of(graph).taken(sized)]

    def _unknown_size(self, node: Node, graph: Graph) -> Support | None:
        """A refusal where a size of the node's tensors follows from data."""
        for name in filter(None, (*node.inputs, *node.outputs)):
            kind = graph.type_of(name)
            dims = kind.shape if isinstance(kind, TensorType) and kind.shape is not None else ()
            for symbol in sorted(s for dim in dims for s in symbols_of(dim)):
                if symbol not in self._symbols:
                    why = f"the size {symbol!r} of {name!r} is decided by data, and a file for {self.name} has sizes as numbers"
                    return Support.no(why, code="shape")
        return None

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
        Fail: a part begins with a size that no profile describes, or the translator has nothing for it.
    """
    vendor = translator.vendor
    if is_open(graph) and not (translator.symbolic and profile.covers(graph)):
        sizes = sorted({str(d) for shape in input_shapes(graph) for d in shape or () if isinstance(d, Expr)})
        raise Fail(
            f"{vendor} is given models of known sizes, or of sizes that a profile names, and a part of this one begins with "
            f"{', '.join(map(repr, sizes)) or 'a tensor of any rank'}: give sizes by --dim"
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
