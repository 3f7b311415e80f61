"""A part that Core ML has loaded."""

from __future__ import annotations

import tempfile
import weakref
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from intarsia.ep.provider import CompileContext
from intarsia.errors import EPFail
from intarsia.graph.dtypes import DType
from intarsia.graph.model import Graph
from intarsia.providers.coreml.engine import Engine, Features, LoadSettings
from intarsia.providers.coreml.packages import ports_of, unpacked
from intarsia.providers.coreml.translator import Port
from intarsia.providers.reference import ReferenceExecutionProvider
from intarsia.providers.vendor.program import Executable, Interface, narrowed

NAME = "CoreMLExecutionProvider"


class CoreMLExecutable(Executable):
    """Runs one compiled package. Inputs and outputs go by their order: names may be those of another model's equal part."""

    def __init__(self, data: bytes, interface: Interface, engine: Engine, settings: LoadSettings) -> None:
        self._data, self.nbytes = data, len(data)
        folder = tempfile.mkdtemp(prefix="intarsia-coreml-")
        self._close = weakref.finalize(self, _remove, folder)
        try:
            self._load(Path(folder), engine, settings)
        except BaseException:
            self._close()
            raise
        self._names, self._results = ([value.name for value in values] for values in (interface.inputs, interface.outputs))
        self._devices = dict(self._loaded.devices())

    def _load(self, folder: Path, engine: Engine, settings: LoadSettings) -> None:
        compiled, note = unpacked(self._data, folder)
        self._inputs, self._outputs = ports_of(note)
        features = Features(*(tuple(p.feature for p in ports) for ports in (self._inputs, self._outputs)))
        self._loaded = engine.load(compiled, features, settings)

    def run(self, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        given = [_entering(a, port, name) for a, port, name in zip(inputs, self._inputs, self._names, strict=True)]
        try:
            found = self._loaded.predict(given)
        except (RuntimeError, OSError, ValueError) as error:
            raise EPFail(f"{NAME}: Core ML failed in a run: {error}") from error
        if len(found) != len(self._outputs):
            raise EPFail(f"{NAME}: Core ML gave {len(found)} results of {len(self._outputs)}")
        return [_leaving(a, port) for a, port in zip(found, self._outputs, strict=True)]

    def artifact(self) -> bytes | None:
        return self._data

    def kernels(self) -> dict[str, str]:
        """As `ProfileComputePlan` found them."""
        return {
            name: f"Core ML on {self._devices[port.feature]}"
            for name, port in zip(self._results, self._outputs, strict=True)
            if port.feature in self._devices
        }

    def describe(self) -> str:
        return f"  {self.nbytes} bytes, compiled"


class DefinitionsExecutable(Executable):
    """Computes a part by its operators' definitions."""

    def __init__(self, graph: Graph) -> None:
        self._program = ReferenceExecutionProvider().compile(graph, CompileContext())

    def run(self, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        return list(self._program.run(inputs))

    def describe(self) -> str:
        return "  by definitions: a tensor has no elements"


def _entering(array: np.ndarray, port: Port, name: str) -> np.ndarray:
    """An array at the package's border."""
    if port.dtype is DType.INT64:
        array = narrowed(array, name, NAME)
    return np.ascontiguousarray(array, port.carrier).reshape(port.border(array.shape))


def _leaving(array: np.ndarray, port: Port) -> np.ndarray:
    """A result in ONNX's element type and shape, in memory in order: Core ML may pad its rows."""
    found = np.ascontiguousarray(array, port.dtype.numpy)
    return found if port.shape else found.reshape(())


def _remove(folder: str) -> None:
    import shutil

    shutil.rmtree(folder, ignore_errors=True)
