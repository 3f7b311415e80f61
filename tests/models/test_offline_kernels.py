"""The kernels of all test models are compiled for NVIDIA's and AMD's GPUs without one
(see tests/providers/imitations/offline_kernels.py).

Each model for one architecture of each vendor, by turns; for all of them where INTARSIA_OFFLINE_KERNELS is "all".
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from offline_kernels import COMPILERS, PROVIDERS, compile_all, imitated, skip_where_missing

import intarsia

pytestmark = pytest.mark.models
FAMILIES = (
    "bert_base vit_base resnet50 mobilenet_v2 gpt2 vgg16 mlp_tabular lstm_text yolo unet deeplab speech_encoder wave_encoder "
    "efficientnet mobilenet_v3 shufflenet convnext resnext50 densenet decoder"
).split()
ALL = os.environ.get("INTARSIA_OFFLINE_KERNELS") == "all"


@pytest.mark.parametrize("kind", sorted(COMPILERS))
@pytest.mark.parametrize("name", FAMILIES)
def test_kernels_of_a_model(models: Path, name: str, kind: str) -> None:
    skip_where_missing(kind)
    options = intarsia.SessionOptions()
    options.add_session_config_entry("partition.keep_islands", "1")
    with np.load(models / f"{name}.npz") as arrays, imitated(kind) as texts:
        feeds = {k.removeprefix("in_"): v for k, v in arrays.items() if k.startswith("in_")}
        session = intarsia.InferenceSession(models / f"{name}.onnx", options, [PROVIDERS[kind], "CPUExecutionProvider"])
        session.run(None, feeds)  # what comes out is not looked at: nothing computes on an imitated machine
        assert PROVIDERS[kind] in session.explain().counts
    assert texts
    architectures = COMPILERS[kind][2]
    turn = FAMILIES.index(name) % len(architectures)
    compile_all(kind, texts, architectures if ALL else architectures[turn : turn + 1])
