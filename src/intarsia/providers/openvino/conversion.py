"""`intarsia convert --to openvino`: OpenVINO's intermediate representation, an .xml file with a .bin file beside it."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from intarsia.ep.provider import ExecutionProvider
from intarsia.errors import Fail
from intarsia.graph.model import Graph
from intarsia.lazy_dataclass import dataclass
from intarsia.providers.openvino import OpenVINOExecutionProvider, runtime
from intarsia.providers.vendor.conversion import ConversionTarget


@dataclass(frozen=True)
class OpenVINOTargetOptions:
    """What may be set.

    Attributes:
        half: weights are written in float16.
        exact_nan: as the provider's option: NaN and infinities come out as ONNX says.
    """

    half: bool = False
    exact_nan: bool = True


class OpenVINOTarget(ConversionTarget):
    """Written by openvino's own converter, with what it computes otherwise than ONNX replaced or refused."""

    name: ClassVar[str] = "openvino"
    suffix: ClassVar[str] = ".xml"
    beside: ClassVar[tuple[str, ...]] = (".bin",)
    what: ClassVar[str] = "OpenVINO's intermediate representation"
    dynamic_sizes: ClassVar[bool] = True
    Options = OpenVINOTargetOptions

    @classmethod
    def missing(cls) -> str:
        return runtime.missing() or runtime.broken()

    def surveyor(self) -> ExecutionProvider:
        return OpenVINOExecutionProvider(OpenVINOExecutionProvider.Options(exact_nan=self.options.exact_nan))

    def write(self, graph: Graph, path: Path) -> None:
        import openvino

        from intarsia.providers.openvino.model import mismatch, read

        model = read(graph, exact_nan=self.options.exact_nan)
        if why := mismatch(model, graph):
            raise Fail(f"openvino: {why}")
        try:
            openvino.save_model(model, path, compress_to_fp16=self.options.half)
        except RuntimeError as error:  # of no other kind where the disk is full
            raise Fail(f"openvino cannot write {path.name!r}: {error}") from error
