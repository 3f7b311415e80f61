"""`intarsia convert --to nnapi`: C source for Android's NDK that builds the model, on any system."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from intarsia.ep.provider import ExecutionProvider
from intarsia.graph.model import Graph, Value
from intarsia.lazy_dataclass import dataclass
from intarsia.printable import visible
from intarsia.providers.nnapi.c_source import Described, c_source, identifier
from intarsia.providers.nnapi.operands import check_level
from intarsia.providers.nnapi.translator import NnapiTranslator, half_precision
from intarsia.providers.nnapi.writer import Target
from intarsia.providers.vendor.conversion import ConversionTarget, Surveyor, translated
from intarsia.providers.vendor.shape_profile import ShapeProfile


@dataclass(frozen=True)
class NnapiTargetOptions:
    """What may be set.

    Attributes:
        feature_level: the least that devices have: 27 to 31, 1000006 to 1000008.
        relaxed: let devices compute float32 in float16.
        nchw: leave images as ONNX has them.
        half: write weights in float16 and compute in it, but for operators that lose too much by it; from feature level 29 on.
    """

    feature_level: int = 31
    relaxed: bool = False
    nchw: bool = False
    half: bool = False

    def __post_init__(self) -> None:
        check_level(self.feature_level)
        half_precision(self.half, self.feature_level, "--option half")


def _listed(values: Sequence[Value]) -> str:
    """For a comment of C, whatever the names are."""
    return visible(", ".join(map(str, values))).replace("*/", "* /")


class NnapiTarget(ConversionTarget):
    """A function NAME_build in NAME.c, which adds all to an `ANeuralNetworksModel`; constants in NAME.weights."""

    name: ClassVar[str] = "nnapi"
    suffix: ClassVar[str] = ".c"
    beside: ClassVar[tuple[str, ...]] = (".weights",)
    what: ClassVar[str] = "C source for Android's NNAPI"
    Options = NnapiTargetOptions

    def surveyor(self) -> ExecutionProvider:
        return Surveyor("NNAPI", self._translator())

    def write(self, graph: Graph, path: Path) -> None:
        model = translated(graph, self._translator(), ShapeProfile())
        weights = path.with_suffix(".weights")
        described = Described(*(_listed(values) for values in (graph.inputs, graph.outputs)))
        text, data = c_source(model, identifier(path.stem), weights.name, described)
        path.write_text(text, encoding="utf-8")
        weights.write_bytes(data)

    def _translator(self) -> NnapiTranslator:
        options = self.options
        half = half_precision(options.half, options.feature_level, "--option half")
        return NnapiTranslator(Target(options.feature_level, options.nchw, options.relaxed), half=half)
