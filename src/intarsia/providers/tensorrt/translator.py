"""From a part to NVIDIA's network, by way of ONNX and the parser of the library that is installed."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from typing import ClassVar

from intarsia.ep.capability import Support
from intarsia.errors import IntarsiaError
from intarsia.graph.dtypes import DType
from intarsia.graph.model import Graph, Node
from intarsia.passes.rule import RuleSet
from intarsia.providers.tensorrt import refusals, rules
from intarsia.providers.tensorrt.library import Library
from intarsia.providers.tensorrt.network import Network, ParserOptions, parsed
from intarsia.providers.tensorrt.onnx_model import prepared, written
from intarsia.providers.tensorrt.options import Settings
from intarsia.providers.vendor.half_precision import IN_FLOAT32, HalfPrecision
from intarsia.providers.vendor.translator import Facts, Translator, Untranslatable


class TranslatedPart:
    """A part as a network, with the file of its weights for as long as the network needs it.

    Attributes:
        source: the legalised part.
        graph: the same as the parser was given it.
        network: what the parser made of it.
    """

    def __init__(self, source: Graph, graph: Graph, library: Library, options: ParserOptions) -> None:
        self.source, self.graph = source, graph
        self._files = ExitStack()
        try:
            self.model = self._files.enter_context(written(graph))
            self.network: Network = parsed(library, options, self.model, graph)
        except BaseException:
            self._files.close()
            raise

    def close(self) -> None:
        """Remove the files; the network is not used any more."""
        self._files.close()


class TensorrtTranslator(Translator):
    """Knows what the parser of the installed library knows, but for `refusals`."""

    vendor: ClassVar[str] = "TensorRT"
    legalizations: ClassVar[tuple[RuleSet, ...]] = rules.RULES

    def __init__(
        self,
        library: Library,
        options: ParserOptions | None = None,
        half: HalfPrecision | None = None,
        *,
        int8: bool = True,
        excluded: frozenset[str] = frozenset(),
        symbolic: bool = False,
        chips: tuple[int, ...] = (),
    ) -> None:
        """`int8`: quantised nodes are taken. `excluded`: operators that the user leaves to others. `symbolic`: sizes may vary,
        within profiles. `chips`: 10 times the compute capabilities that engines are for."""
        self.library, self.options, self.half = library, options or ParserOptions(), half
        self.int8, self.excluded, self.symbolic = int8, excluded, symbolic
        self.chips = chips

    def versions(self) -> Mapping[str, str]:
        return {self.library.name: self.library.version}

    def settings(self) -> Mapping[str, str]:
        own = {"parser": f"{self.library.title} {self.options}", "int8": str(self.int8), "excluded": str(sorted(self.excluded))}
        return {**super().settings(), **own, "chips": str(self.chips)}

    def refusal(self, node: Node, facts: Facts) -> Support | None:
        if node.op_type in self.excluded:
            return Support.no(f"the options exclude {node.op_type}", code="placed")
        return refusals.refusal(node, facts, self.library, self.chips, int8=self.int8)

    def translate(self, graph: Graph) -> TranslatedPart:
        try:
            part = prepared(graph)
        except IntarsiaError as error:
            raise Untranslatable(f"it cannot be written as an ONNX model for {self.library.title}: {error}") from error
        return TranslatedPart(graph, part, self.library, self.options)


def made_translator(
    library: Library, settings: Settings, spared: tuple[str, ...] = (), chips: tuple[int, ...] = ()
) -> TensorrtTranslator:
    """The translator that options request.

    Args:
        library: what reads the model.
        settings: the options.
        spared: operators that float16 spares besides the usual ones.
        chips: 10 times the compute capabilities that engines are for.
    """
    float32 = (*IN_FLOAT32, *spared)
    half = {"float16": HalfPrecision(float32), "bfloat16": HalfPrecision(float32, DType.BFLOAT16), "": None}[settings.half]
    symbolic = any(settings.profiles)
    return TensorrtTranslator(
        library, None, half, int8=settings.int8, excluded=settings.excluded, symbolic=symbolic, chips=chips
    )
