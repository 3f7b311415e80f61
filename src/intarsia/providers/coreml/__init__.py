"""CoreMLExecutionProvider: whole subgraphs as ML programs, which Apple's Core ML compiles and runs on macOS."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from intarsia.ep.provider import CompileContext
from intarsia.printable import get_logger
from intarsia.providers.coreml import converter, runtime
from intarsia.providers.coreml.engine import LoadSettings
from intarsia.providers.coreml.executable import NAME, CoreMLExecutable
from intarsia.providers.coreml.options import UNITS, CoreMLOptions
from intarsia.providers.coreml.packages import note_of, packed, write_package
from intarsia.providers.coreml.translator import CoreMLTranslator, TranslatedPart
from intarsia.providers.vendor.artifact_cache import ArtifactCache
from intarsia.providers.vendor.half_precision import HalfPrecision
from intarsia.providers.vendor.program import Interface
from intarsia.providers.vendor.provider import VendorExecutionProvider
from intarsia.providers.vendor.shape_profile import ShapeProfile

_logger = get_logger("intarsia.providers.coreml")


class CoreMLExecutionProvider(VendorExecutionProvider):
    """Takes what is translated to Core ML's operations of iOS 17 without another result."""

    name: ClassVar[str] = NAME
    Options: ClassVar[type[Any]] = CoreMLOptions

    def __init__(self, options: Any = None) -> None:
        super().__init__(options)
        self.profile = ShapeProfile.parse(self.options.ShapeProfile, f"option 'ShapeProfile' of {self.name}")
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
        return CoreMLTranslator(half, self.options.RequireStaticInputShapes)

    def device_versions(self) -> Mapping[str, str]:
        return runtime.engine().versions()

    def artifact_cache(self) -> ArtifactCache:
        return ArtifactCache(self.options.ModelCacheDirectory)

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
