"""`intarsia convert --to coreml`: packages (.mlpackage) for Core ML's tools and apps, on any system."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from intarsia.ep.provider import ExecutionProvider
from intarsia.errors import Fail
from intarsia.graph.model import Graph
from intarsia.lazy_dataclass import dataclass
from intarsia.providers.coreml import converter
from intarsia.providers.coreml.packages import write_package
from intarsia.providers.coreml.states import parse_states
from intarsia.providers.coreml.translator import FUSED, CoreMLTranslator
from intarsia.providers.vendor.conversion import ConversionTarget, Surveyor, translated
from intarsia.providers.vendor.half_precision import HalfPrecision
from intarsia.providers.vendor.shape_profile import ShapeProfile


@dataclass(frozen=True)
class CoreMLTargetOptions:
    """What may be set.

    Attributes:
        half: compute in float16, but for operators that lose too much by it; what the model takes and gives stays as it is.
        profile: sizes that vary, such as "batch=1..8; tokens=16,32".
        state: inputs that get an output of the prediction before, "past=present; h=h_next": kept in float16 by Core ML.
    """

    half: bool = False
    profile: str = ""
    state: str = ""

    def __post_init__(self) -> None:
        ShapeProfile.parse(self.profile, "--option profile")
        parse_states(self.state, "--option state")


class CoreMLTarget(ConversionTarget):
    """An ML program of the operations of iOS 17. Features have the model's names as far as Core ML takes them."""

    name: ClassVar[str] = "coreml"
    suffix: ClassVar[str] = ".mlpackage"
    writes_folder: ClassVar[bool] = True
    what: ClassVar[str] = "a Core ML package"
    Options = CoreMLTargetOptions

    @classmethod
    def missing(cls) -> str:
        return converter.missing_converter()

    def profile(self) -> ShapeProfile:
        return ShapeProfile.parse(self.options.profile, "--option profile")

    def surveyor(self) -> ExecutionProvider:
        return Surveyor("Core ML", self._translator(), FUSED, self.profile().sizes)

    def write(self, graph: Graph, path: Path) -> None:
        translator = self._writer()
        part = translated(graph, translator, translator.profile)
        try:
            write_package(part, path)
        except (ValueError, RuntimeError, TypeError) as error:
            raise Fail(f"coremltools cannot write the package: {type(error).__name__}: {error}") from error

    def _translator(self) -> CoreMLTranslator:
        return CoreMLTranslator(HalfPrecision() if self.options.half else None, profile=self.profile())

    def _writer(self) -> CoreMLTranslator:
        """As `_translator`, of whole parts, which have states."""
        made = self._translator()
        made.states = parse_states(self.options.state, "--option state")
        return made
