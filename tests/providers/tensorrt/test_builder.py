"""NVIDIA's own parser and builder, TensorRT-RTX from PyPI, without a GPU: what is taken builds, what is refused has a reason.

A sample of ONNX's node cases runs always; the marker `conformance` has the rest. On 28 November 2026, with 1.7.1.116 and for
three chips, 814 of 1,884 were built, 1,069 refused, and one had nothing left to compute.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx.parser
import pytest
from fake_cuda import FakeCuda

pytest.importorskip("tensorrt_rtx", reason="needs tensorrt-rtx (extra: tensorrt)")

import fake_tensorrt
from node_cases import outcome
from provider_cases import parameters

import intarsia as ort
from intarsia.conversion.convert import ConversionRequest, convert
from intarsia.errors import Fail, InvalidArgument
from intarsia.providers.tensorrt.chips import CHIPS
from intarsia.providers.tensorrt.library import RTX, Messages, find, missing, opened, told
from intarsia.testing.cases import suite

SAMPLE = 48  # every so many-th case belongs to the sample
THREE_CHIPS = "SM80,SM89,SM120"
EXAMPLES = Path(__file__).parents[3] / "examples"


@pytest.mark.parametrize("name", parameters(suite("node"), SAMPLE))
def test_case(name: str) -> None:
    """Built for three chips, or refused; nothing that was taken fails."""
    kind, why = outcome(suite("node")[name], THREE_CHIPS)
    assert kind in ("built", "refused", "nothing"), why


@pytest.mark.parametrize(
    "name",
    [
        "test_conv_with_strides_padding", "test_matmul_3d", "test_rms_normalization_4d_axis1", "test_lstm_defaults",
        "test_gelu_default_1", "test_softmax_axis_1", "test_batchnorm_example", "test_attention_4d", "test_gather_1",
        "test_where_example", "test_averagepool_2d_pads", "test_rotary_embedding", "test_logsoftmax_axis_1",
    ],
)  # fmt: skip
def test_most_operators_that_it_should_take_are_taken(name: str) -> None:
    """So that a rule which refuses too much is noticed."""
    assert outcome(suite("node")[name]) == ("built", "")


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("test_add_uint8", "knows unsigned bytes at the borders of a model only"),
        ("test_max_float64", "reads 64-bit floats as 32-bit ones"),
        ("test_add_int8", "as quantised numbers only"),
        ("test_nonzero_example", "is decided by data, and a file for TensorRT has sizes as numbers"),
        ("test_roialign_aligned_true", "it needs a plugin that is not there"),
        ("test_nonmaxsuppression_suppress_by_IOU", "is decided by data"),
        ("test_layer_normalization_4d_axis0", "its other outputs are not there"),
        ("test_lstm_batchwise", "'layout' has no effect there"),
        ("test_onehot_negative_indices", "negative indices give rows of zeros"),
        ("test_mod_mixed_sign_float32", "off by the quotient's rounding"),
        ("test_pow_types_float32_int64", "floats of one type"),
        ("test_cast_FLOAT_to_FLOAT8E4M3FN", "does not compute with float8e4m3fn on all its chips"),
        ("test_maxpool_2d_ceil_output_size_reduce_by_one", "the shape"),
        ("test_lppool_2d_same_upper", "come out as a mean"),
        ("test_reduce_sum_do_not_keepdims_example", "is decided by data"),
        ("test_dequantizelinear", "scales are constants there"),
        ("test_tensorscatter", "in the memory of an input"),
    ],
)
def test_refusals_have_their_reason(name: str, reason: str) -> None:
    kind, why = outcome(suite("node")[name])
    assert kind == "refused" and reason in why, (kind, why)


def test_the_imitation_has_the_real_names() -> None:
    """And the real library has no chip that the table lacks: a new one is to be added."""
    real = opened(RTX).module
    for kind in (
        "DataType", "BuilderFlag", "MemoryPoolType", "ProfilingVerbosity", "NetworkDefinitionCreationFlag", "OnnxParserFlag",
        "HardwareCompatibilityLevel", "CudaGraphStrategy", "EngineValidity", "EngineInvalidityDiagnostics",
        "LayerInformationFormat", "ComputeCapability",
    ):  # fmt: skip
        ours, theirs = getattr(fake_tensorrt, kind).__members__, getattr(real, kind).__members__
        assert set(ours) <= set(theirs), kind
    assert set(real.ComputeCapability.__members__) == {"NONE", "CURRENT", *CHIPS}
    imitation = fake_tensorrt.FakeTensorrt(FakeCuda())
    pairs = {
        "Builder": fake_tensorrt.Builder, "OnnxParser": fake_tensorrt.OnnxParser, "Runtime": fake_tensorrt.Runtime,
        "IBuilderConfig": fake_tensorrt.BuilderConfig, "ICudaEngine": fake_tensorrt.Engine, "Refitter": fake_tensorrt.Refitter,
        "IExecutionContext": fake_tensorrt.Context, "IRuntimeConfig": fake_tensorrt.RuntimeConfig,
        "IRuntimeCache": fake_tensorrt.RuntimeCache, "OnnxParserRefitter": fake_tensorrt.OnnxParserRefitter,
        "IOptimizationProfile": fake_tensorrt.Profile, "EngineInspector": fake_tensorrt.Inspector,
        "ITimingCache": fake_tensorrt.TimingCache, "INetworkDefinition": fake_tensorrt.Network,
    }  # fmt: skip
    own = {"model", "inputs", "outputs", "graph", "real", "data", "types"}
    for name, imitated in pairs.items():
        methods = {m for m in vars(imitated) if not m.startswith("_")} - own
        assert methods <= set(dir(getattr(real, name))), name
    assert imitation.__version__.count(".") == 3


CONV = """
    <ir_version: 8, opset_import: ["": 17]> g (float[n, 3, 8, 8] x) => (float[n, 4] y) {
        c = Conv<pads = [1, 1, 1, 1]>(x, w)
        r = Relu(c)
        p = GlobalAveragePool(r)
        y = Flatten(p)
    }"""


def model(folder: Path, text: str = CONV) -> Path:
    proto = onnx.parser.parse_model(text)
    proto.graph.initializer.append(onnx.numpy_helper.from_array(np.ones((4, 3, 3, 3), np.float32), "w"))
    onnx.save(proto, folder / "model.onnx")
    return folder / "model.onnx"


class TestConvert:
    def test_an_engine_for_three_chips(self, tmp_path: Path) -> None:
        """The same bytes in length as for one: kernels are made when it is loaded."""
        source = model(tmp_path)
        sizes = []
        for chips in ("SM80", THREE_CHIPS):
            options = {"chips": chips, "profile": "n=1..8"}
            report = convert(source, ConversionRequest("tensorrt", tmp_path / f"{len(chips)}.engine", options))
            assert report.complete and "4 of 4 nodes translated to an engine of TensorRT for RTX" in str(report)
            sizes.append(report.parts[0].path.stat().st_size)
        assert sizes[0] > 10_000 and abs(sizes[1] - sizes[0]) < 1000

    @pytest.mark.parametrize("precision", ["float16", "bfloat16"])
    def test_precision(self, tmp_path: Path, precision: str) -> None:
        options = {"precision": precision, "profile": "n=1..8"}
        assert convert(model(tmp_path), ConversionRequest("tensorrt", None, options)).complete
        assert (tmp_path / "model.engine").exists()

    def test_sizes_have_to_be_known(self, tmp_path: Path) -> None:
        with pytest.raises(InvalidArgument, match=r"TensorRT for RTX has sizes as numbers, and 'n' .* vary: give --dim n=SIZE"):
            convert(model(tmp_path), ConversionRequest("tensorrt"))
        assert convert(model(tmp_path), ConversionRequest("tensorrt", sizes={"n": 2})).complete

    def test_what_is_left(self, tmp_path: Path) -> None:
        source = model(tmp_path, CONV.replace("y = Flatten(p)", "f = Flatten(p)  m = Mod<fmod = 1>(f, f)  y = Relu(m)"))
        report = convert(source, ConversionRequest("tensorrt", sizes={"n": 2}, parts=True))
        assert [part.translated for part in report.parts] == [True, False, True]
        assert [row.op for row in report.left] == ["Mod"]

    def test_a_chip_that_it_does_not_build_for(self, tmp_path: Path) -> None:
        with pytest.raises(Fail, match=r"builds no engine of it: .*"):
            convert(matmul(tmp_path), ConversionRequest("tensorrt", None, {"chips": "SM75"}))
        with pytest.raises(ort.InvalidArgument, match=r"'SM90' is no chip"):
            convert(matmul(tmp_path), ConversionRequest("tensorrt", None, {"chips": "SM90"}))


@pytest.mark.parametrize("precision", ["", "float16"])
@pytest.mark.parametrize("name", ["digits", "light_squeezenet"])
def test_whole_models_are_one_engine(name: str, precision: str, tmp_path: Path) -> None:
    folder = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"
    source = EXAMPLES / "digits" / "digits.onnx" if name == "digits" else folder / f"{name}.onnx"
    options = {"chips": THREE_CHIPS, "precision": precision}
    sizes = {"batch": 4} if name == "digits" else {}
    report = convert(source, ConversionRequest("tensorrt", tmp_path / "whole.engine", options, sizes))
    assert report.complete and len(report.parts) == 1 and report.parts[0].path.stat().st_size > 100_000


def matmul(folder: Path) -> Path:
    text = """<ir_version: 8, opset_import: ["": 17]> g (float[2, 64] x) => (float[2, 64] y) { y = MatMul(x, k) }"""
    proto = onnx.parser.parse_model(text)
    proto.graph.initializer.append(onnx.numpy_helper.from_array(np.ones((64, 64), np.float32), "k"))
    onnx.save(proto, folder / "matmul.onnx")
    return folder / "matmul.onnx"


def test_the_lists_count_and_not_the_flag() -> None:
    """As seen: of a model with an operator it lacks in the middle, both ends are listed, and both flags are False."""
    from intarsia.providers.tensorrt.network import Network, ParserOptions
    from intarsia.providers.tensorrt.onnx_model import OnnxModel

    text = """<ir_version: 8, opset_import: ["": 17, "mine": 1]> g (float[4] x) => (float[4] y) {
        a = Relu(x)  b = mine.Foo(a)  y = Relu(b) }"""
    network = Network(opened(RTX), ParserOptions())
    assert network.lists(OnnxModel(onnx.parser.parse_model(text).SerializeToString())) == [[0], [2]]
    assert not any(network.parser.is_subgraph_supported(i) for i in range(2))


def test_what_is_built_without_a_gpu_and_what_not() -> None:
    """Building for the GPU that is there needs one: None, and a message that the error has."""
    from intarsia.graph.load import load
    from intarsia.providers.tensorrt.engine_builder import BuildRequest, build
    from intarsia.providers.tensorrt.options import Settings
    from intarsia.providers.tensorrt.translator import TensorrtTranslator

    library = opened(RTX)
    text = """<ir_version: 8, opset_import: ["": 17]> g (float[4] x) => (float[4] y) { y = Relu(x) }"""
    graph = load(onnx.parser.parse_model(text).SerializeToString())
    translator = TensorrtTranslator(library)
    part = translator.translate(translator.legalized(graph))
    assert len(build(part, BuildRequest(Settings(), chips=("SM89",))).engine) > 1000
    with pytest.raises(ort.EPFail, match=r"TensorRT-RTX [\d.]+ builds no engine of it: .*CUDA"):
        build(part, BuildRequest(Settings()))
    part.close()


def test_messages() -> None:
    found = Messages()
    with found.collected() as outer, found.collected() as inner:
        found.say(1, "an  error\nin two lines")
        found.say(4, "a detail")
    assert outer == inner == ["an  error\nin two lines"]
    assert told(inner) == "an error in two lines" and told([]) == "it gave no reason"
    assert told(["x" * 400]).endswith("...") and len(told(["x" * 400])) == 300
    assert find((RTX,)) is not None and not missing(("tensorrt", RTX))
