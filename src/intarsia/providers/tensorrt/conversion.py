"""`intarsia convert --to tensorrt`: engines (.engine) for one or several chips, built ahead of time by TensorRT for RTX.

They run with TensorRT for RTX of the same version: NVIDIA's own tools and runtimes load the files as they are.
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import ClassVar, Literal

from intarsia.ep.provider import ExecutionProvider
from intarsia.errors import EPFail, Fail, OutOfMemory
from intarsia.graph.dims import symbols_of
from intarsia.graph.model import Graph
from intarsia.lazy_dataclass import dataclass
from intarsia.providers.options import NO_LIMIT, Nbytes
from intarsia.providers.tensorrt import TAKEN_WHOLE, library
from intarsia.providers.tensorrt.chips import CHIPS
from intarsia.providers.tensorrt.engine_builder import BuildRequest, build
from intarsia.providers.tensorrt.library import RTX, Library
from intarsia.providers.tensorrt.options import Settings, chips_of
from intarsia.providers.tensorrt.profiles import Profile, Shape3
from intarsia.providers.tensorrt.survey import TensorrtSurvey
from intarsia.providers.tensorrt.translator import TensorrtTranslator, TranslatedPart, made_translator
from intarsia.providers.vendor.conversion import ConversionTarget, Surveyor, translated
from intarsia.providers.vendor.shape_profile import ShapeProfile, input_shapes, is_open
from intarsia.providers.vendor.survey import Survey

_ALL = ",".join(name for name in CHIPS if name != "SM75")  # for which products of float32 matrices do not build


@dataclass(frozen=True)
class TensorrtTargetOptions:
    """What may be set.

    Attributes:
        chips: compute capabilities to build for, "SM80,SM89"; one engine serves all of them.
        precision: what float32 is computed in, where not in itself.
        profile: sizes that vary, such as "batch=1..8".
        workspace: bytes of scratch memory that kernels may have; 0: all.
    """

    chips: str = _ALL
    precision: Literal["", "float16", "bfloat16"] = ""
    profile: str = ""
    workspace: Nbytes = NO_LIMIT

    def __post_init__(self) -> None:
        chips_of(self.chips, "--option chips")
        ShapeProfile.parse(self.profile, "--option profile")


class TensorrtSurveyor(Surveyor):
    """Says what the parser takes."""

    def make_survey(self, graph: Graph) -> Survey:
        assert isinstance(self.translator, TensorrtTranslator)
        return TensorrtSurvey(graph, self.translator)


class TensorrtTarget(ConversionTarget):
    """An engine of TensorRT for RTX, which needs no GPU to be built."""

    name: ClassVar[str] = "tensorrt"
    suffix: ClassVar[str] = ".engine"
    what: ClassVar[str] = "an engine of TensorRT for RTX"
    Options = TensorrtTargetOptions

    @classmethod
    def missing(cls) -> str:
        return library.missing((RTX,))

    @property
    def library(self) -> Library:
        return library.opened(RTX)

    def profile(self) -> ShapeProfile:
        return ShapeProfile.parse(self.options.profile, "--option profile")

    def surveyor(self) -> ExecutionProvider:
        return TensorrtSurveyor("TensorRT", self._translator(), TAKEN_WHOLE, self.profile().sizes)

    def write(self, graph: Graph, path: Path) -> None:
        profile = self.profile()
        part = translated(graph, self._translator(), profile)
        path.write_bytes(self.engine_of(part, profile))

    def engine_of(self, part: TranslatedPart, profile: ShapeProfile) -> bytes:
        """The engine of a translated part.

        Raises:
            Fail: the builder makes none of it.
        """
        ranges = _ranges(part.source, profile)
        request = BuildRequest(self._settings(), (ranges,) if ranges else (), chips_of(self.options.chips, "--option chips"))
        try:
            with contextlib.closing(part):
                return build(part, request).engine
        except (EPFail, OutOfMemory) as error:
            raise Fail(str(error)) from error

    def _settings(self) -> Settings:
        options = self.options
        profiles = ("", "", options.profile)  # said otherwise, and said all the same
        return Settings(workspace_nbytes=options.workspace, half=options.precision, profiles=profiles)

    def _translator(self) -> TensorrtTranslator:
        chips = tuple(CHIPS[name] for name in chips_of(self.options.chips, "--option chips"))
        return made_translator(self.library, self._settings(), chips=chips)


def _ranges(graph: Graph, profile: ShapeProfile) -> dict[str, Shape3]:
    """The shapes of a part's inputs; {} where none varies."""
    if not is_open(graph):
        return {}
    names = {name for shape in input_shapes(graph) for dim in shape or () for name in symbols_of(dim)}
    sizes = {name: (profile.sizes[name].low, profile.sizes[name].high, profile.sizes[name].high) for name in names}
    return Profile({}, sizes).of_part(graph) or {}
