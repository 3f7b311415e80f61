"""A vendor for tests: its form is the graph as bytes, its compiler copies these, its runtime is the reference provider."""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar

import numpy as np

from intarsia.ep.capability import Support
from intarsia.ep.provider import CompileContext
from intarsia.graph.dtypes import DType
from intarsia.graph.model import Graph, Node, TensorType
from intarsia.lazy_dataclass import dataclass
from intarsia.providers.reference import ReferenceExecutionProvider
from intarsia.providers.vendor import legalization_rules
from intarsia.providers.vendor.artifact_cache import ArtifactCache
from intarsia.providers.vendor.half_precision import HalfPrecision
from intarsia.providers.vendor.program import Executable, Interface, narrowed
from intarsia.providers.vendor.provider import VendorExecutionProvider
from intarsia.providers.vendor.shape_profile import ShapeProfile
from intarsia.providers.vendor.translator import Facts, Translator, Untranslatable

OPERATORS = frozenset("Abs Add Cast Conv Div Exp Identity MatMul Mul Relu Reshape Softmax Transpose".split())


class ToyTranslator(Translator):
    """Knows `OPERATORS`, of float32, float16 and small integers."""

    vendor = "Toy"
    legalizations = (legalization_rules.RULES,)

    def __init__(self, version: str = "1", half: HalfPrecision | None = None) -> None:
        self.version, self.half = version, half

    def versions(self) -> Mapping[str, str]:
        return {"toy": self.version}

    def refusal(self, node: Node, facts: Facts) -> Support | None:
        for name in filter(None, node.inputs):
            kind = facts.graph.type_of(name)
            if isinstance(kind, TensorType) and kind.dtype is DType.DOUBLE:
                return Support.no(f"{name!r} is of float64", code="type")
        return None

    def translate(self, graph: Graph) -> Graph:
        for node in graph.nodes:
            if node.op_type not in OPERATORS:
                raise Untranslatable(f"Toy has no {node.qualified_op}", "no-kernel")
            if node.op_type == "Softmax" and node.version < 13:
                raise Untranslatable("Toy knows Softmax of one axis only")
        return graph


@dataclass(frozen=True)
class ToyOptions:
    cache_directory: str = ""
    limit: int = 1 << 30
    level: str = "fast"
    profile: str = ""
    half: bool = False


class Behaviour:
    """What the toy's software does, for fault injection."""

    version = "1"
    fault = ""
    missing = ""


@contextmanager
def behaving(**values: str) -> Iterator[None]:
    before = {name: getattr(Behaviour, name) for name in values}
    try:
        for name, value in values.items():
            setattr(Behaviour, name, value)
        yield
    finally:
        for name, value in before.items():
            setattr(Behaviour, name, value)


class ToyExecutable(Executable):
    def __init__(self, data: bytes, interface: Interface) -> None:
        self._data, self.nbytes = data, len(data)
        graph = pickle.loads(data)
        self._program = ReferenceExecutionProvider().compile(graph, CompileContext())
        self._interface = interface

    def run(self, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        for value, array in zip(self._interface.inputs, inputs, strict=True):
            if array.dtype == np.int64:
                narrowed(array, value.name, ToyExecutionProvider.name)
        return self._program.run(inputs)

    def artifact(self) -> bytes:
        return self._data

    def describe(self) -> str:
        return f"  {self.nbytes} bytes"


class ToyExecutionProvider(VendorExecutionProvider):
    """As a vendor's provider is: `Behaviour` says what goes wrong."""

    name: ClassVar[str] = "ToyExecutionProvider"
    Options: ClassVar[type[Any]] = ToyOptions

    def __init__(self, options: Any = None) -> None:
        super().__init__(options)
        self.profile = ShapeProfile.parse(self.options.profile, "option 'profile'")

    @classmethod
    def unavailable(cls) -> str:
        return Behaviour.missing

    def make_translator(self) -> ToyTranslator:
        return ToyTranslator(Behaviour.version, HalfPrecision() if self.options.half else None)

    def device_settings(self) -> Mapping[str, str]:
        return {"level": self.options.level}

    def artifact_cache(self) -> ArtifactCache:
        return ArtifactCache(self.options.cache_directory, self.options.limit)

    def build(self, translated: Graph, context: CompileContext) -> bytes:
        if Behaviour.fault == "error":
            raise RuntimeError("the toy broke")
        if Behaviour.fault == "memory":
            raise MemoryError
        if Behaviour.fault == "nothing":
            return b""
        plain = translated.clone()
        for node in plain.nodes:
            node.traced = None
        for constant in plain.constants.values():
            constant.numpy()
        plain.constants = {name: constant.renamed(name) for name, constant in plain.constants.items()}
        return pickle.dumps(plain)

    def load(self, artifact: bytes, interface: Interface, context: CompileContext) -> ToyExecutable:
        if Behaviour.fault == "load":
            raise RuntimeError("the toy does not start")
        return ToyExecutable(artifact, interface)
