"""Options of CoreMLExecutionProvider: onnxruntime's, in its spelling and the documents', and two of Intarsia's."""

from __future__ import annotations

from typing import Literal

from intarsia.lazy_dataclass import dataclass

UNITS = {
    "ALL": "ALL",
    "CPU_AND_GPU": "CPU_AND_GPU",
    "CPU_ONLY": "CPU_ONLY",
    "CPU_AND_NE": "CPU_AND_NE",
    "CPUAndGPU": "CPU_AND_GPU",
    "CPUOnly": "CPU_ONLY",
    "CPUAndNeuralEngine": "CPU_AND_NE",
}
"""Spellings of `MLComputeUnits` -> coremltools' word."""


@dataclass(frozen=True)
class CoreMLOptions:
    """What a user may set.

    Attributes:
        MLComputeUnits: which processors Core ML may use.
        ModelFormat: ML programs are written, whichever is named: `NeuralNetwork` has fewer operators.
        RequireStaticInputShapes: take no node of which sizes vary; else a part is compiled for the sizes of each run.
        EnableOnSubgraphs: taken, without effect: bodies of If, Loop and Scan stay with the provider that runs these.
        SpecializationStrategy: `FastPrediction` compiles longer for faster runs.
        ProfileComputePlan: ask which device runs each operation; `session.explain()` has it (macOS 14.4).
        AllowLowPrecisionAccumulationOnGPU: GPUs may add in float16.
        ModelCacheDirectory: folder of compiled parts; "": Intarsia's own cache.
        Precision: `FP16` computes in float16 but for operators that lose too much by it. Not an option of onnxruntime's.
        ShapeProfile: sizes that vary, such as "batch=1..8; tokens=16,32": one package for all of them, instead of one for
            each combination that a run has. Not an option of onnxruntime's.
    """

    MLComputeUnits: Literal[
        "ALL", "CPU_AND_GPU", "CPU_ONLY", "CPU_AND_NE", "CPUAndGPU", "CPUOnly", "CPUAndNeuralEngine"
    ] = "ALL"
    ModelFormat: Literal["MLProgram", "NeuralNetwork"] = "MLProgram"
    RequireStaticInputShapes: bool = False
    EnableOnSubgraphs: bool = False
    SpecializationStrategy: Literal["Default", "FastPrediction"] = "Default"
    ProfileComputePlan: bool = False
    AllowLowPrecisionAccumulationOnGPU: bool = False
    ModelCacheDirectory: str = ""
    Precision: Literal["FP32", "FP16"] = "FP32"
    ShapeProfile: str = ""
