"""Models from ONNX's text form on the CPU provider, compared with the reference provider."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx
import onnx.parser

import intarsia as ort

CPU = "CPUExecutionProvider"
REFERENCE = "ReferenceExecutionProvider"
HEADER = '<ir_version: 8, opset_import: ["" : 17]>'
LEVELS = (ort.GraphOptimizationLevel.ORT_DISABLE_ALL, ort.GraphOptimizationLevel.ORT_ENABLE_ALL)
Feeds = Mapping[str, np.ndarray]


def model_of(text: str, constants: Feeds | None = None, header: str = HEADER) -> onnx.ModelProto:
    model = onnx.parser.parse_model(f"{header} {text}")
    for name, array in (constants or {}).items():
        model.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    return model


def session_of(
    text: str, constants: Feeds | None = None, provider: str = CPU,
    level: ort.GraphOptimizationLevel = LEVELS[0], threads: int = 2,
    header: str = HEADER,
) -> ort.InferenceSession:  # fmt: skip
    options = ort.SessionOptions()
    options.graph_optimization_level = level
    options.intra_op_num_threads = threads
    return ort.InferenceSession(model_of(text, constants, header).SerializeToString(), options, providers=[provider])


def check(
    text: str, *feeds: Feeds, constants: Feeds | None = None, rtol: float = 1e-5, header: str = HEADER
) -> ort.InferenceSession:
    """One session, plain and optimised, gives for all feeds what the reference does. Returns the plain session."""
    reference = session_of(text, constants, REFERENCE, header=header)
    plain, optimised = (session_of(text, constants, level=level, header=header) for level in LEVELS)
    for given in feeds:
        expected = reference.run(None, dict(given))
        for session in (plain, optimised):
            for name, found, wanted in zip(
                [o.name for o in plain.get_outputs()], session.run(None, dict(given)), expected, strict=True
            ):
                assert (found.dtype, found.shape) == (wanted.dtype, wanted.shape), name
                scale = np.abs(wanted.astype(np.float64)).max(initial=0) if wanted.dtype.kind in "fiu" else 0
                np.testing.assert_allclose(found, wanted, rtol=rtol, atol=rtol * scale, err_msg=name)
    return plain


def kernels(session: ort.InferenceSession) -> dict[str, str]:
    """For each node the kernel that computes it ("" for a view, or the name of its host function)."""
    return {n.name: n.kernel for n in session.explain().nodes}


def kinds(session: ort.InferenceSession) -> dict[str, str]:
    return {n.name: n.kind for n in session.explain().nodes}


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed + sum(shape)).standard_normal(shape).astype(np.float32)
