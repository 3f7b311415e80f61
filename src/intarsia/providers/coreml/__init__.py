"""CoreMLExecutionProvider: whole subgraphs as ML programs, which Apple's Core ML compiles and runs on macOS."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar

from intarsia.ep.provider import CompileContext
from intarsia.errors import EPFail
from intarsia.graph.model import Graph
from intarsia.printable import get_logger
from intarsia.providers.coreml import converter, runtime
from intarsia.providers.coreml.engine import LoadSettings
from intarsia.providers.coreml.executable import NAME, CoreMLExecutable, DefinitionsExecutable
from intarsia.providers.coreml.options import UNITS, CoreMLOptions
from intarsia.providers.coreml.packages import note_of, packed, write_package
from intarsia.providers.coreml.translator import FUSED, CoreMLTranslator, TranslatedPart
from intarsia.providers.vendor.artifact_cache import ArtifactCache
from intarsia.providers.vendor.half_precision import HalfPrecision
from intarsia.providers.vendor.program import Executable, Interface
from intarsia.providers.vendor.provider import VendorExecutionProvider
from intarsia.providers.vendor.shape_profile import ShapeProfile
from intarsia.providers.vendor.translator import Untranslatable

_logger = get_logger("intarsia.providers.coreml")


class CoreMLExecutionProvider(VendorExecutionProvider):
    """Takes what is translated to Core ML's operations of iOS 17 without another result."""

    name: ClassVar[str] = NAME
    translator: CoreMLTranslator
    fused_operators = FUSED
    not_exact: ClassVar[Mapping[str, str]] = {
        "TopK": "NaN is not the largest",
        "DynamicQuantizeLinear": "a tensor with NaN has another scale",
        **dict.fromkeys(("Resize", "Upsample"), "a pixel that is NaN or infinite spreads along its axes"),
    }
    Options: ClassVar[type[Any]] = CoreMLOptions

    def __init__(self, options: Any = None) -> None:
        super().__init__(options)
        self.profile = self.translator.profile
        if self.options.ModelFormat == "NeuralNetwork":
            _logger.info("option 'ModelFormat' of %s: ML programs are written, which have more operators", self.name)

    @classmethod
    def unavailable(cls) -> str:
        return runtime.missing()

    @classmethod
    def library_version(cls) -> str:
        return f"coremltools {converter.SUPPORTED}"

    def make_translator(self) -> CoreMLTranslator:
        half = HalfPrecision() if self.options.Precision == "FP16" else None
        profile = ShapeProfile.parse(self.options.ShapeProfile, f"option 'ShapeProfile' of {self.name}")
        return CoreMLTranslator(half, self.options.RequireStaticInputShapes, profile)

    def device_versions(self) -> Mapping[str, str]:
        return runtime.engine().versions()

    def artifact_cache(self) -> ArtifactCache:
        return ArtifactCache(self.options.ModelCacheDirectory)

    def executable_for(
        self, graph: Graph, context: CompileContext, tell: Callable[[str], None]
    ) -> tuple[Executable | None, Interface]:
        """Of sizes that are not translated (of no elements, among others), by the operators' definitions."""
        try:
            return self.executable(graph, context, tell)
        except EPFail as error:
            if not isinstance(error.__cause__, Untranslatable):
                raise
            tell(f"for some sizes computed by definitions: {error.__cause__.reason}")
        interface, left = Interface.of(graph)
        return DefinitionsExecutable(left), interface

    def build(self, translated: TranslatedPart, context: CompileContext) -> bytes:
        with tempfile.TemporaryDirectory(prefix="intarsia-coreml-") as folder:
            package = Path(folder) / "part.mlpackage"
            write_package(translated, package)
            compiled = runtime.engine().compile(package, Path(folder))
            return packed(compiled, note_of(translated))

    def load(self, artifact: bytes, interface: Interface, context: CompileContext) -> CoreMLExecutable:
        settings = LoadSettings(
            UNITS[self.options.MLComputeUnits],
            self.options.SpecializationStrategy,
            self.options.AllowLowPrecisionAccumulationOnGPU,
            self.options.ProfileComputePlan,
        )
        return CoreMLExecutable(artifact, interface, runtime.engine(), settings)
