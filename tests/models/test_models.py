"""Whole models against torch: every provider, mixed providers, other sizes without a new compile."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import intarsia as ort

pytestmark = pytest.mark.models

VARIABLE = ["bert_base", "vit_base", "resnet50", "mobilenet_v2", "gpt2", "vgg16", "mlp_tabular"]
ARCHITECTURES = [
    "yolo", "unet", "deeplab", "speech_encoder", "wave_encoder", "efficientnet", "mobilenet_v3", "shufflenet", "convnext",
    "resnext50", "densenet", "decoder",
]  # fmt: skip
FAMILIES = [*VARIABLE, "lstm_text", *ARCHITECTURES]
TOLERANCE = 1e-4  # of torch's largest output


class Exported:
    """One exported model with the calls that torch answered."""

    def __init__(self, folder: Path, name: str) -> None:
        self.path = folder / f"{name}.onnx"
        if not self.path.exists():
            pytest.skip(f"{self.path.name} is not in the folder of models")
        with np.load(self.path.with_suffix(".npz")) as arrays:
            self.arrays = dict(arrays)

    def session(self, *providers: str, options: ort.SessionOptions | None = None) -> ort.InferenceSession:
        return ort.InferenceSession(self.path, options, providers=list(providers))

    def check(self, session: ort.InferenceSession, call: str = "", tolerance: float = TOLERANCE) -> None:
        """Run one call and compare with torch's answer."""
        feeds = {k.removeprefix(f"{call}in_"): v for k, v in self.arrays.items() if k.startswith(f"{call}in_")}
        outputs = session.run(None, feeds)
        for i, output in enumerate(outputs):
            expected = self.arrays[f"{call}out_{i}"]
            assert output.shape == expected.shape
            assert output.dtype == expected.dtype
            error = np.abs(output.astype(np.float64) - expected).max() / np.abs(expected).max()
            assert error < tolerance, f"output {i} differs by {error:.2e} of torch's largest"


@pytest.fixture
def exported(models: Path, request: pytest.FixtureRequest) -> Exported:
    return Exported(models, request.param)


@pytest.mark.parametrize("exported", FAMILIES, indirect=True)
@pytest.mark.parametrize("provider", ["CPUExecutionProvider", "ReferenceExecutionProvider"])
def test_provider_agrees_with_torch(exported: Exported, provider: str) -> None:
    session = exported.session(provider)
    assert session.get_providers()[0] == provider
    exported.check(session)


@pytest.mark.parametrize("exported", FAMILIES, indirect=True)
def test_equal_bits_for_any_number_of_threads(exported: Exported) -> None:
    feeds = {k.removeprefix("in_"): v for k, v in exported.arrays.items() if k.startswith("in_")}
    found = set()
    for threads in (1, 2, 3, 7):
        options = ort.SessionOptions()
        options.use_deterministic_compute, options.intra_op_num_threads = True, threads
        session = exported.session("CPUExecutionProvider", options=options)
        found |= {tuple(y.tobytes() for y in session.run(None, feeds)) for _ in range(2)}
    assert len(found) == 1


@pytest.mark.parametrize("kind", ["float16", "float16_weights", "bfloat16"])
@pytest.mark.parametrize("exported", ["bert_base", "decoder", "resnet50", "speech_encoder"], indirect=True)
def test_less_than_float32_on_request(exported: Exported, kind: str) -> None:
    options = ort.SessionOptions()
    options.add_session_config_entry("session.arithmetic", kind)
    exported.check(exported.session("CPUExecutionProvider", options=options), tolerance=3e-2)


@pytest.mark.parametrize("exported", FAMILIES, indirect=True)
def test_webgpu_agrees_with_torch(exported: Exported) -> None:
    """Every node on the device, nothing copied between; at full size too, with INTARSIA_MODELS_SIZE=full."""
    from intarsia.device.webgpu import missing, open_device

    if missing():
        pytest.skip(f"no WebGPU device: {missing()}")
    options = ort.SessionOptions()
    options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
    session = ort.InferenceSession(exported.path, options, providers=["WebGpuExecutionProvider"])
    assert set(session.explain().counts) <= {"WebGpuExecutionProvider", "folded"}
    exported.check(session)
    feeds = [k for k in exported.arrays if k.startswith("in_")]
    counters = open_device().counters
    before = counters.copies_in + counters.copies_out
    exported.check(session)
    status = 1  # whether an index was out of range is read with the outputs
    assert counters.copies_in + counters.copies_out - before <= len(feeds) + len(session.get_outputs()) + 2 * status
    (plan,) = session._model.programs[0].plans  # type: ignore[union-attr]
    print(f"{exported.path.stem}: {plan.arena_nbytes:,} bytes of scratch, {plan.unshared_nbytes:,} without sharing")
    assert plan.arena_nbytes < plan.unshared_nbytes / (2 if len(plan.jobs) > 30 else 1)


@pytest.mark.parametrize("exported", FAMILIES, indirect=True)
def test_openvino_agrees_with_torch(exported: Exported) -> None:
    pytest.importorskip("openvino", reason="needs openvino (extra: openvino)")
    session = exported.session("OpenVINOExecutionProvider")
    counts = session.explain().counts
    assert counts["OpenVINOExecutionProvider"] > 0.9 * sum(counts.get(p, 0) for p in session.get_providers())
    exported.check(session)


@pytest.mark.parametrize("exported", VARIABLE, indirect=True)
def test_other_sizes_compile_nothing(exported: Exported) -> None:
    from intarsia.codegen.llvm.jit import get_engine

    session = exported.session("CPUExecutionProvider")
    exported.check(session)
    if not any(k.startswith("other_in_") for k in exported.arrays):
        pytest.skip("this model was exported for one size only")
    engine = get_engine()
    before = engine.compiled
    exported.check(session, "other_")
    exported.check(session)
    assert engine.compiled == before, "a new input size compiled kernels"


@pytest.mark.parametrize("exported", FAMILIES, indirect=True)
def test_every_optimization_level_agrees(exported: Exported) -> None:
    for level in (ort.GraphOptimizationLevel.ORT_DISABLE_ALL, ort.GraphOptimizationLevel.ORT_ENABLE_BASIC):
        options = ort.SessionOptions()
        options.graph_optimization_level = level
        exported.check(ort.InferenceSession(exported.path, options, providers=["CPUExecutionProvider"]))


@pytest.mark.parametrize("exported", FAMILIES, indirect=True)
def test_plugin_with_every_second_node(exported: Exported, every_second_provider: str) -> None:
    session = exported.session(every_second_provider, "CPUExecutionProvider")
    assert every_second_provider in session.get_providers()
    exported.check(session)
