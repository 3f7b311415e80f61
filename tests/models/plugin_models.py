"""Twenty exported models through a vendor's plugin library: alone, and cut by name with the CPU and a provider in Python."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

import intarsia as ort
from intarsia.providers.reference import ReferenceExecutionProvider

CPU = "CPUExecutionProvider"
MODELS = [
    "bert_base", "convnext", "decoder", "deeplab", "densenet", "efficientnet", "gpt2", "lstm_text", "mlp_tabular",
    "mobilenet_v2", "mobilenet_v3", "resnet50", "resnext50", "shufflenet", "speech_encoder", "unet", "vgg16", "vit_base",
    "wave_encoder", "yolo",
]  # fmt: skip
CUT = ("Conv", "MatMul", "Gemm", "Relu", "Add", "Mul", "Softmax", "LSTM", "Sigmoid")


class PythonExecutionProvider(ReferenceExecutionProvider):
    """A provider in Python: NumPy, by the operators' definitions."""

    name = "PythonExecutionProvider"


def check(session: ort.InferenceSession, path: Path, bound: float) -> None:
    """Both calls that torch's outputs are kept of: the second has other sizes. `bound`: of torch's largest output."""
    session.disable_fallback()
    arrays = np.load(path.with_suffix(".npz"))
    for call in ("", "other_"):
        feed = {k.removeprefix(f"{call}in_"): arrays[k] for k in arrays.files if k.startswith(f"{call}in_")}
        for i, output in enumerate(session.run(None, feed) if feed else ()):
            expected = arrays[f"{call}out_{i}"]
            assert output.dtype == expected.dtype and output.shape == expected.shape
            error = np.abs(output.astype(np.float64) - expected).max() / np.abs(expected).max()
            assert error < bound, f"output {i} differs by {error:.2e} of torch's largest"


def share(session: ort.InferenceSession, provider: str) -> float:
    """Which part of the nodes that run at all a provider has."""
    counts = {k: n for k, n in session.explain().counts.items() if k != "folded"}
    return counts.get(provider, 0) / sum(counts.values())


def cut_by_name(path: Path, plugin: tuple[type[Any], dict[str, str]], name: str) -> ort.InferenceSession:
    """A session in which up to six nodes amid the plugin's are placed on the CPU and on a Python provider, in turn."""
    rows = ort.InferenceSession(path, providers=[plugin, CPU]).explain().nodes
    names = [row.name for row in rows if row.provider == name and row.op in CUT and row.name.startswith("node_")]
    count = min(6, len(names) // 2)
    chosen = [names[len(names) * i // (count + 1)] for i in range(1, count + 1)]
    places = {name: (CPU, PythonExecutionProvider.name)[i % 2] for i, name in enumerate(dict.fromkeys(chosen))}
    options = ort.SessionOptions()
    options.add_session_config_entry("partition.place", "; ".join(f"{name}={where}" for name, where in places.items()))
    options.add_session_config_entry("partition.keep_islands", "1")
    session = ort.InferenceSession(path, options, providers=[plugin, CPU, PythonExecutionProvider])
    found = {row.name: row.provider for row in session.explain().nodes}
    assert {name: found[name] for name in places} == places
    assert name in found.values()
    return session
