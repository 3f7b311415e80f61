"""What executes Core ML's packages: the interface of `apple_engine`, and of what tests put in its place."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

import numpy as np

from intarsia.lazy_dataclass import dataclass


class Loaded(Protocol):
    """A package that is ready to run."""

    def predict(self, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Outputs in the order of the features, in new memory, of inputs in that order."""

    def devices(self) -> Mapping[str, str]:
        """Output of an operation, by MIL's name -> the compute device that runs it; empty where that is not known."""


@dataclass(frozen=True)
class LoadSettings:
    """How a package is to run.

    Attributes:
        compute_units: ALL, CPU_ONLY, CPU_AND_GPU or CPU_AND_NE.
        specialization: Default or FastPrediction.
        low_precision_sums: whether GPUs may add in float16.
        plan: whether to ask which device runs each operation.
    """

    compute_units: str = "ALL"
    specialization: str = "Default"
    low_precision_sums: bool = False
    plan: bool = False


@dataclass(frozen=True)
class Features:
    """Core ML's names of what a package takes and gives, in order."""

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


class Engine(Protocol):
    """Compiles and runs packages: Core ML itself, or a stand-in."""

    name: str

    def versions(self) -> Mapping[str, str]:
        """What a compiled package depends on."""

    def compile(self, package: Path, folder: Path) -> Path:
        """A compiled package, as a folder below `folder`.

        Raises:
            RuntimeError: it cannot be compiled.
        """

    def load(self, compiled: Path, features: Features, settings: LoadSettings) -> Loaded:
        """A compiled package, ready to run.

        Raises:
            RuntimeError: it cannot be loaded.
        """
