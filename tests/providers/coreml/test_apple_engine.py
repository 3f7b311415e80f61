"""What coremltools is asked for on macOS, by a stand-in of its interface (coremltools 9.0's signatures)."""

from __future__ import annotations

import enum
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from intarsia.providers.coreml import apple_engine, converter, runtime
from intarsia.providers.coreml.engine import Features, LoadSettings


class ComputeUnit(enum.Enum):
    ALL, CPU_ONLY, CPU_AND_GPU, CPU_AND_NE = range(4)


class SpecializationStrategy(enum.Enum):
    Default, FastPrediction = range(2)


class MLNeuralEngineComputeDevice: ...


class CompiledMLModel:
    asked: dict[str, Any]

    def __init__(
        self, path: str, compute_units: ComputeUnit = ComputeUnit.ALL, function_name: str | None = None,
        optimization_hints: dict[str, Any] | None = None, asset: object = None,
    ) -> None:  # fmt: skip
        assert isinstance(path, str) and isinstance(compute_units, ComputeUnit) and function_name is asset is None
        CompiledMLModel.asked = {"path": path, "units": compute_units, "hints": optimization_hints}

    def predict(self, data: dict[str, np.ndarray], state: object = None) -> dict[str, np.ndarray]:
        assert state is None
        return {"later": data["b"] * 2, "first": data["a"] + 1}


class MLComputePlan:
    @classmethod
    def load_from_path(cls, path: str, compute_units: ComputeUnit = ComputeUnit.ALL) -> MLComputePlan:
        assert isinstance(path, str) and isinstance(compute_units, ComputeUnit)
        return cls()

    @property
    def model_structure(self) -> SimpleNamespace:
        operations = [SimpleNamespace(outputs=[SimpleNamespace(name=name)]) for name in ("first", "unknown")]
        return SimpleNamespace(
            program=SimpleNamespace(functions={"main": SimpleNamespace(block=SimpleNamespace(operations=operations))})
        )

    def get_compute_device_usage_for_mlprogram_operation(self, operation: SimpleNamespace) -> SimpleNamespace | None:
        if operation.outputs[0].name == "unknown":
            return None
        return SimpleNamespace(preferred_compute_device=MLNeuralEngineComputeDevice())


def compile_model(model: str, destination_path: str | None = None) -> str:
    assert isinstance(model, str) and destination_path is not None
    return destination_path


@pytest.fixture(autouse=True)
def _coremltools(monkeypatch: pytest.MonkeyPatch) -> None:
    tools = SimpleNamespace(
        ComputeUnit=ComputeUnit,
        SpecializationStrategy=SpecializationStrategy,
        models=SimpleNamespace(
            CompiledMLModel=CompiledMLModel,
            utils=SimpleNamespace(compile_model=compile_model),
            compute_plan=SimpleNamespace(MLComputePlan=MLComputePlan),
        ),
    )
    monkeypatch.setattr(converter, "tools", lambda: tools)


def test_compiling_and_predicting(tmp_path: Path) -> None:
    engine = apple_engine.AppleEngine()
    compiled = engine.compile(tmp_path / "part.mlpackage", tmp_path)
    assert compiled.suffix == ".mlmodelc" and compiled.parent == tmp_path
    settings = LoadSettings("CPU_AND_NE", "FastPrediction", low_precision_sums=True, plan=True)
    loaded = engine.load(compiled, Features(("a", "b"), ("first", "later")), settings)
    assert CompiledMLModel.asked == {
        "path": str(compiled),
        "units": ComputeUnit.CPU_AND_NE,
        "hints": {"specializationStrategy": SpecializationStrategy.FastPrediction, "allowLowPrecisionAccumulationOnGPU": True},
    }
    first, later = loaded.predict([np.float32([1, 2]), np.float32([3])])
    assert first.tolist() == [2, 3] and later.tolist() == [6]
    assert loaded.devices() == {"first": "NeuralEngine"}


def test_without_hints_none_are_given(tmp_path: Path) -> None:
    loaded = apple_engine.AppleEngine().load(tmp_path, Features((), ()), LoadSettings())
    assert CompiledMLModel.asked["hints"] is None and loaded.devices() == {}


def test_which_macos_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runtime.platform, "system", lambda: "Darwin")
    monkeypatch.setattr(runtime.platform, "mac_ver", lambda: ("13.6.1", ("", "", ""), "arm64"))
    assert "macOS 14 or later is needed" in runtime.missing()
    monkeypatch.setattr(runtime.platform, "mac_ver", lambda: ("15.1", ("", "", ""), "arm64"))
    assert "macOS" not in runtime.missing()
    if not runtime.missing():
        assert isinstance(runtime.engine(), apple_engine.AppleEngine)
