"""ACLExecutionProvider: what it needs anywhere, and what it runs on ARM64, where openvino's kernels are ACL's.

`scripts/arm64 -m pytest tests/providers/acl` runs the latter on other processors too, emulated.
"""

from __future__ import annotations

import platform
import warnings
import zlib
from importlib.util import find_spec

import numpy as np
import onnx.parser
import pytest
from onnx import numpy_helper
from provider_cases import right

import intarsia as ort
from intarsia.providers import registry
from intarsia.providers.acl import ACLExecutionProvider, ACLOptions
from intarsia.providers.acl.program import ACLProgram
from intarsia.testing.cases import cases
from intarsia.testing.node_sweep import sweep
from intarsia.testing.provider import nodes_of

ARM64 = platform.machine().lower() in ("aarch64", "arm64")
on_arm64 = pytest.mark.skipif(
    not ARM64 or find_spec("openvino") is None,
    reason="needs an ARM64 CPU (scripts/arm64 emulates one) and openvino (extra: openvino)",
)
PROVIDERS = ["AclExecutionProvider", "CPUExecutionProvider"]  # as the providers' documents spell it
BLOCK = """<ir_version: 8, opset_import: ["" : 17]>
g (float[n,3,12,12] x) => (float[n,5] y) {
    c = Conv<pads = [1, 1, 1, 1]>(x, filters)
    r = Relu(c)
    p = MaxPool<kernel_shape = [2, 2], strides = [2, 2]>(r)
    m = GlobalAveragePool(p)
    f = Flatten(m)
    z = Gemm<transB = 1>(f, weights)
    e = Erf(z)
    y = Softmax(e)
}"""


def block() -> tuple[bytes, dict[str, np.ndarray]]:
    """A model of products, convolutions, pools and element-wise operators, and its inputs."""
    model = onnx.parser.parse_model(BLOCK)
    draw = np.random.default_rng(5)
    for name, shape in (("filters", (8, 3, 3, 3)), ("weights", (5, 8))):
        model.graph.initializer.append(numpy_helper.from_array(draw.standard_normal(shape).astype(np.float32), name))
    return model.SerializeToString(), {"x": draw.standard_normal((2, 3, 12, 12)).astype(np.float32)}


# -- anywhere ------------------------------------------------------------------------------------------------------------------


@pytest.mark.skipif(ARM64, reason="this CPU is an ARM64 one")
def test_other_cpus_are_told_what_it_needs() -> None:
    assert "ACLExecutionProvider" not in ort.get_available_providers()
    said = rf"for ARM64 CPUs, and this one is {platform.machine()}.*needs an ARM64 CPU and pip install openvino"
    with pytest.raises(ort.EPFail, match=said):
        ort.InferenceSession(block()[0], providers=["AclExecutionProvider"])
    with pytest.warns(ort.ProviderWarning, match="goes on with CPUExecutionProvider"):
        session = ort.InferenceSession(block()[0], providers=PROVIDERS)
    assert session.get_providers() == ["CPUExecutionProvider"]


def test_it_comes_before_the_cpu_by_either_spelling() -> None:
    names = ort.get_all_providers()
    assert names.index("ACLExecutionProvider") < names.index("CPUExecutionProvider")
    assert registry.load_provider("AclExecutionProvider") is registry.load_provider("ACLExecutionProvider")


@pytest.mark.parametrize(
    ("options", "wrong"),
    [
        ({"enable_fast_maths": True}, "enable_fast_math"),
        ({"enable_fast_math": "perhaps"}, "enable_fast_math"),
        ({"num_of_threads": "two"}, "num_of_threads"),
        ({"device_type": "GPU"}, "device_type"),
    ],
)
def test_wrong_options(options: dict[str, object], wrong: str) -> None:
    from intarsia.providers.options import parse_options

    with pytest.raises((ort.InvalidArgument, ort.UnknownOption), match=wrong):
        parse_options(ACLExecutionProvider, options)


def test_fast_math_is_float16_where_the_cpu_computes_in_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for able, precision in ((True, "FP16"), (False, "FP32")):
        monkeypatch.setattr("intarsia.providers.acl._computes_in_float16", lambda able=able: able)
        assert ACLExecutionProvider.openvino_options(ACLOptions(enable_fast_math=True)).resolved_precision == precision
        plain = ACLExecutionProvider.openvino_options(ACLOptions(num_of_threads=3, cache_dir="here"))
        assert (plain.resolved_precision, plain.device, plain.num_of_threads, plain.cache_dir) == ("FP32", "CPU", 3, "here")


@pytest.mark.parametrize(
    ("layer", "text"),
    [
        ("Convolution:gemm_acl_f32", "ACL Convolution:gemm_acl_f32"),
        ("FullyConnected:acl_f16", "ACL FullyConnected:acl_f16"),
        ("Subgraph:jit_f32", "OpenVINO Subgraph:jit_f32"),
        ("Oracle:ref_any", "OpenVINO Oracle:ref_any"),
    ],
)
def test_reports_name_the_library_of_each_kernel(layer: str, text: str) -> None:
    assert ACLProgram.kernel_of(layer) == text


@pytest.mark.skipif(find_spec("openvino") is None, reason="needs openvino (extra: openvino)")
@pytest.mark.parametrize("op", ["Log", "Softplus"])
def test_logarithms_are_refused_on_arm64(op: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """openvino's code for ARM64 has a finite number for the logarithm of 0, of infinity and of what is negative."""
    text = f"g (float[3] x) => (float[3] y) {{ y = {op}(x) }}"
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]> {text}')
    options = ort.SessionOptions()
    options.add_session_config_entry("partition.keep_islands", "1")
    for on_arm64, provider in ((False, "OpenVINOExecutionProvider"), (True, "ReferenceExecutionProvider")):
        monkeypatch.setattr("intarsia.providers.openvino.refusals.ON_ARM64", on_arm64)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ort.ProviderWarning)
            session = ort.InferenceSession(
                model.SerializeToString(), options, providers=["OpenVINOExecutionProvider", "ReferenceExecutionProvider"]
            )
        assert set(session.explain().counts) == {provider}


# -- on ARM64 ------------------------------------------------------------------------------------------------------------------


@on_arm64
def test_the_documents_listing() -> None:
    """Right beside the reference, by ACL's kernels and openvino's own, whose library each node's report says."""
    model, feeds = block()
    session = ort.InferenceSession(model, providers=PROVIDERS)
    assert session.get_providers() == ["ACLExecutionProvider", "CPUExecutionProvider"]
    assert session.get_provider_options()["ACLExecutionProvider"]["enable_fast_math"] == "0"
    (found,) = session.run(None, feeds)
    (wanted,) = ort.InferenceSession(model, providers=["ReferenceExecutionProvider"]).run(None, feeds)
    np.testing.assert_allclose(found, wanted, rtol=2e-5, atol=2e-6)
    kernels = {node.op.rpartition("::")[2]: node.kernel for node in session.explain().nodes}
    assert set(session.explain().counts) == {"ACLExecutionProvider"}
    for operator in ("Conv", "Gemm"):
        assert kernels[operator].startswith("ACL "), kernels
    assert kernels["Erf"].startswith("OpenVINO "), kernels


@on_arm64
def test_fast_math_is_within_float16s_bounds() -> None:
    model, feeds = block()
    exact = ort.InferenceSession(model, providers=PROVIDERS).run(None, feeds)[0]
    fast = ort.InferenceSession(model, providers=[("ACLExecutionProvider", {"enable_fast_math": True})]).run(None, feeds)[0]
    assert 0 < np.abs(fast - exact).max() < 5e-3


@on_arm64
def test_a_sample_of_onnx_cases_is_right_or_refused() -> None:
    names = [name for name in cases() if zlib.crc32(name.encode()) % 6 == 1]
    assert len(names) > 300
    taken = 0
    for name in names:
        session = right(cases()[name], "ACLExecutionProvider", rest="ReferenceExecutionProvider")
        taken += "ACLExecutionProvider" in session.explain().counts
    assert taken > 100


@on_arm64
def test_single_nodes_are_right_or_refused() -> None:
    found = sweep("ACLExecutionProvider", nodes_of("200"))
    assert found.taken
    assert not found.wrong, str(found)
