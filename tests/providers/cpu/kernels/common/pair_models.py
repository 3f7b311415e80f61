"""Models that the CPU computes by pairs of bfloat16, for tests of what is rounded, and where."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import intarsia as ort
from intarsia.codegen.llvm.target import Target
from intarsia.providers.cpu.kernels.common.lowering_options import LoweringOptions
from intarsia.providers.cpu.kernels.matmul.bfloat16_rows import reads_rows

CONFIG = {"session.arithmetic": "bfloat16", "session.matrix_unit": "avx512_bf16"}
needs_pairs = pytest.mark.skipif(
    not (Target.host().has_pairs and reads_rows(LoweringOptions.of(CONFIG), Target.host())),
    reason="this CPU does not multiply pairs of bfloat16 where they lie",
)


def rounded(x: np.ndarray) -> np.ndarray:
    return x.astype(np.float32).astype(ml_dtypes.bfloat16).astype(np.float64)


def session(
    nodes: list, inputs: dict[str, list], constants: dict[str, np.ndarray], outputs: tuple[str, ...] = ("y",),
    kind: int = TensorProto.FLOAT, config: dict[str, str] = CONFIG, opset: int = 21,
) -> ort.InferenceSession:  # fmt: skip
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info(n, kind, s) for n, s in inputs.items()],
        [helper.make_tensor_value_info(n, kind, None) for n in outputs],
        [numpy_helper.from_array(v, n) for n, v in constants.items()],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10).SerializeToString()
    options = ort.SessionOptions()
    for key, value in config.items():
        options.add_session_config_entry(key, value)
    return ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def plan(made: ort.InferenceSession) -> str:
    return "\n".join(p.describe("plan") for p in made._engine.whole_model().programs)  # type: ignore[attr-defined] # CPU programs only
