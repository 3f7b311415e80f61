"""Core ML itself, through coremltools on macOS."""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from intarsia.providers.coreml import converter
from intarsia.providers.coreml.engine import Features, Loaded, LoadSettings


class AppleEngine:
    """Compiles packages to .mlmodelc folders and predicts by `CompiledMLModel`."""

    name = "Core ML"

    def versions(self) -> Mapping[str, str]:
        return {"macOS": platform.mac_ver()[0], "machine": platform.machine()}

    def compile(self, package: Path, folder: Path) -> Path:
        made = converter.tools().models.utils.compile_model(str(package), str(folder / "part.mlmodelc"))
        return Path(made)

    def load(self, compiled: Path, features: Features, settings: LoadSettings) -> Loaded:
        return _AppleModel(compiled, features, settings)


class _AppleModel(Loaded):
    def __init__(self, compiled: Path, features: Features, settings: LoadSettings) -> None:
        ct = converter.tools()
        units = getattr(ct.ComputeUnit, settings.compute_units)
        hints: dict[str, Any] = {}
        if settings.specialization != "Default":
            hints["specializationStrategy"] = getattr(ct.SpecializationStrategy, settings.specialization)
        if settings.low_precision_sums:
            hints["allowLowPrecisionAccumulationOnGPU"] = True
        self._features = features
        self._model = ct.models.CompiledMLModel(str(compiled), compute_units=units, optimization_hints=hints or None)
        self._plan = _compute_plan(ct, compiled, units) if settings.plan else {}

    def predict(self, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        found = self._model.predict(dict(zip(self._features.inputs, inputs, strict=True)))
        return [np.array(found[name]) for name in self._features.outputs]

    def devices(self) -> Mapping[str, str]:
        return self._plan


def _compute_plan(ct: Any, compiled: Path, units: Any) -> dict[str, str]:
    """Output of an operation -> the device that Core ML prefers for it."""
    plan = ct.models.compute_plan.MLComputePlan.load_from_path(str(compiled), compute_units=units)
    found = {}
    for function in plan.model_structure.program.functions.values():
        for operation in function.block.operations:
            usage = plan.get_compute_device_usage_for_mlprogram_operation(operation)
            if usage is not None:
                device = type(usage.preferred_compute_device).__name__
                found.update({out.name: device.removeprefix("ML").removesuffix("ComputeDevice") for out in operation.outputs})
    return found
