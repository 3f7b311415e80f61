"""`InferenceSession`: what it takes, what it says of the model, and runs."""

from __future__ import annotations

import copy
import inspect
import io
import json
import pickle
import threading
from pathlib import Path
from typing import ClassVar

import numpy as np
import onnx
import pytest

import intarsia as ort
from intarsia import session as session_package
from intarsia.ep.device import DataTransfer, Device
from intarsia.ep.provider import CompileContext, ExecutionProvider, Program, Support
from intarsia.errors import EPFail, Fail, InvalidArgument, InvalidProtobuf, NoSuchFile, UnknownOption

REFERENCE = "ReferenceExecutionProvider"
AFFINE = "g (float[N,3] x) => (float[N,3] y) <float[3] w = {1, 2, 3}> { a = Mul(x, w)  y = Neg(a) }"
X = np.float32([[1, 1, 1], [2, 2, 2]])
Y = [[-1, -2, -3], [-2, -4, -6]]


class TestModels:
    def test_path_bytes_file_and_proto(self, make_model, tmp_path: Path) -> None:
        model = make_model(AFFINE)
        path = tmp_path / "model.onnx"
        path.write_bytes(model.SerializeToString())
        for source in (path, str(path), path.read_bytes(), io.BytesIO(path.read_bytes()), model):
            session = ort.InferenceSession(source, providers=[REFERENCE])
            assert session.run(None, {"x": X})[0].tolist() == Y
        assert ort.InferenceSession(path, providers=[REFERENCE])._model_path == str(path)

    def test_what_a_session_says_of_itself(self, make_model, tmp_path: Path) -> None:
        path = tmp_path / "model.onnx"
        path.write_bytes(make_model(AFFINE).SerializeToString())
        with ort.InferenceSession(path, providers=[REFERENCE]) as session:
            assert repr(session) == f"<InferenceSession of {str(path)!r}: {', '.join(session.get_providers())}>"
        assert repr(session) == f"<InferenceSession of {str(path)!r}: closed>"
        assert repr(ort.InferenceSession(path.read_bytes())).startswith("<InferenceSession of a model in memory: ")

    def test_missing_file(self) -> None:
        with pytest.raises(NoSuchFile, match=r"no_such_model.onnx"):
            ort.InferenceSession("no_such_model.onnx")

    def test_other_bytes(self) -> None:
        with pytest.raises(InvalidProtobuf):
            ort.InferenceSession(b"\x89PNG\r\n\x1a\n")

    def test_other_types(self) -> None:
        with pytest.raises(InvalidArgument):
            ort.InferenceSession(5)

    def test_unknown_keyword(self, make_model) -> None:
        with pytest.raises(
            TypeError, match="unexpected keyword argument 'disabled_optimisers'; did you mean 'disabled_optimizers'"
        ):
            ort.InferenceSession(make_model(AFFINE), disabled_optimisers=["x"])

    def test_further_keywords_are_parameters(self) -> None:
        parameters = inspect.signature(ort.InferenceSession).parameters.values()
        found = {p.name: p.default for p in parameters if p.kind is p.KEYWORD_ONLY}
        assert found == {
            "disabled_optimizers": None, "enable_fallback": True, "new_ops": None, "read_config_from_model": None,
        }  # fmt: skip

    def test_options_of_another_type(self, make_model) -> None:
        with pytest.raises(InvalidArgument, match="sess_options: expected SessionOptions, got dict"):
            ort.InferenceSession(make_model(AFFINE), {})  # type: ignore[arg-type]

    def test_operator_without_definition(self, make_session) -> None:
        header = '<ir_version: 8, opset_import: ["" : 17, "my.domain" : 3]>'
        with pytest.raises(ort.NotImplemented, match=r"my.domain::Frobnicate"):
            make_session("g (float[3] x) => (float[3] y) { y = my.domain.Frobnicate(x) }", header=header)


class TestSignature:
    TEXT = """g (float[N,3,?] x, int64 n, string[2] s) => (float[N,3,?] y, string[2] t) {
        y = Neg(x)  t = Identity(s)  m = Neg(n) }"""

    def test_inputs_and_outputs(self, make_session) -> None:
        session = make_session(self.TEXT)
        x, n, s = session.get_inputs()
        assert (x.name, x.type, x.shape) == ("x", "tensor(float)", ["N", 3, None])
        assert (n.type, n.shape, s.type, s.shape) == ("tensor(int64)", [], "tensor(string)", [2])
        assert str(x) == "NodeArg(name='x', type='tensor(float)', shape=['N', 3, None])"
        assert [o.name for o in session.get_outputs()] == ["y", "t"]
        assert session.get_overridable_initializers() == []

    def test_metadata(self, make_model) -> None:
        model = make_model(AFFINE)
        model.producer_name, model.model_version, model.domain, model.doc_string = "maker", 7, "org", "what it does"
        model.graph.doc_string = "the graph"
        model.metadata_props.add(key="author", value="me")
        meta = ort.InferenceSession(model, providers=[REFERENCE]).get_modelmeta()
        assert (meta.producer_name, meta.version, meta.domain, meta.description) == ("maker", 7, "org", "what it does")
        assert (meta.graph_name, meta.graph_description, meta.custom_metadata_map) == ("g", "the graph", {"author": "me"})

    def test_output_types_that_the_model_does_not_declare(self, make_model) -> None:
        model = make_model(AFFINE)
        model.graph.output[0].ClearField("type")
        assert ort.InferenceSession(model, providers=[REFERENCE]).get_outputs()[0].shape == ["N", 3]


class TestRun:
    TWO = "g (float[3] x, float[3] z) => (float[3] y, float[3] u) { y = Neg(x)  u = Abs(z) }"
    FEED: ClassVar = {"x": np.float32([1, 2, 3]), "z": np.float32([-1, 0, 1])}

    def test_selected_outputs_in_any_order(self, any_session) -> None:
        session = any_session(self.TWO)
        assert [v.tolist() for v in session.run(["u", "y"], self.FEED)] == [[1, 0, 1], [-1, -2, -3]]
        assert session.run(["u"], self.FEED)[0].tolist() == [1, 0, 1]
        assert len(session.run([], self.FEED)) == len(session.run(None, self.FEED)) == 2

    def test_unknown_output(self, any_session) -> None:
        with pytest.raises(InvalidArgument, match="Invalid output name:w; valid: 'u', 'y'"):
            any_session(self.TWO).run(["w"], self.FEED)
        with pytest.raises(InvalidArgument, match=r"output_names: expected a list of names, got 'y'; write \['y'\]"):
            any_session(self.TWO).run("y", self.FEED)

    def test_repeated_shapes_are_checked_once_and_others_still_checked(self, any_session) -> None:
        session = any_session(AFFINE)
        for size in (1, 2, 1, 2, 3):
            assert session.run(None, {"x": np.ones((size, 3), np.float32)})[0].shape == (size, 3)
        with pytest.raises(InvalidArgument, match="index: 1 Got: 4 Expected: 3"):
            session.run(None, {"x": np.ones((1, 4), np.float32)})

    def test_outputs_belong_to_the_caller(self, any_session) -> None:
        session = any_session(
            "g (float[3] x) => (float[3] x2, float[3] w2, float[3] x3) <float[3] w2 = {1, 2, 3}> { "
            "x2 = Identity(x)  x3 = Identity(x2) }"
        )
        x = np.float32([7, 8, 9])
        first = session.run(None, {"x": x})
        for value in first:
            value[:] = 0
        assert x.tolist() == [7, 8, 9]
        assert [v.tolist() for v in session.run(None, {"x": x})] == [[7, 8, 9], [1, 2, 3], [7, 8, 9]]

    def test_an_input_that_is_an_output(self, any_session) -> None:
        session = any_session("g (float[3] x) => (float[3] x, float[3] y) { y = Neg(x) }")
        x = np.float32([1, 2, 3])
        same, _ = session.run(None, {"x": x})
        same[:] = 0
        assert x.tolist() == [1, 2, 3]

    def test_one_program_is_called_directly(self, any_session) -> None:
        """Nothing stands between a session whose model is one program in host memory and that program."""
        model = any_session(AFFINE)._model
        assert model.run == model.programs[0].run

    def test_many_threads_on_one_session(self, any_session) -> None:
        session = any_session(AFFINE)
        wrong: list[object] = []

        def work(seed: int) -> None:
            rng = np.random.default_rng(seed)
            for _ in range(20):
                x = rng.standard_normal((int(rng.integers(1, 5)), 3)).astype(np.float32)
                if not np.array_equal(session.run(None, {"x": x})[0], -(x * np.float32([1, 2, 3]))):
                    wrong.append(x)

        threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not wrong

    def test_with_ort_values(self, any_session) -> None:
        session = any_session(AFFINE)
        (y,) = session.run_with_ort_values(None, {"x": ort.OrtValue.ortvalue_from_numpy(X)})
        assert y.numpy().tolist() == Y


class TestDegenerateGraphs:
    def test_outputs_that_are_inputs_or_constants_only(self, any_session) -> None:
        session = any_session("g (float[3] x) => (float[3] x, float[2] w) <float[2] w = {1, 2}> { }")
        x = np.float32([1, 2, 3])
        for _ in range(2):
            found = session.run(None, {"x": x})
            assert [v.tolist() for v in found] == [[1, 2, 3], [1, 2]]
            for value in found:
                value[:] = 0
        assert str(session.explain()).startswith("node")

    def test_an_input_that_nothing_reads(self, any_session) -> None:
        session = any_session("g (float[3] x, float[3] unused) => (float[3] y) { y = Neg(x) }")
        feed = {"x": np.float32([1, 2, 3]), "unused": np.zeros(3, np.float32)}
        assert session.run(None, feed)[0].tolist() == [-1, -2, -3]
        with pytest.raises(InvalidArgument, match=r"Required inputs \(\['unused'\]\) are missing"):
            session.run(None, {"x": feed["x"]})

    def test_identity(self, any_session) -> None:
        session = any_session("g (float[3] x) => (float[3] y) { y = Identity(x) }")
        x = np.float32([1, 2, 3])
        session.run(None, {"x": x})[0][:] = 0
        assert x.tolist() == [1, 2, 3]


class TestRunOptions:
    def test_terminate(self, make_session) -> None:
        options = ort.RunOptions()
        session = make_session(AFFINE)
        assert session.run(None, {"x": X}, options)[0].tolist() == Y
        options.terminate = True
        with pytest.raises(Fail, match="Exiting due to terminate flag being set to true"):
            session.run(None, {"x": X}, options)

    def test_of_another_type(self, make_session) -> None:
        with pytest.raises(InvalidArgument, match="run_options: expected RunOptions, got dict"):
            make_session(AFFINE).run(None, {"x": X}, {})

    def test_terminate_between_parts(self, make_model) -> None:
        options = ort.RunOptions()

        class Stopping(ExecutionProvider):
            name = "StoppingExecutionProvider"

            def supports(self, node, graph) -> Support:
                return Support.yes() if node.op_type == "Mul" else Support.no("only Mul")

            def compile(self, graph, context: CompileContext) -> Program:
                class Stop(Program):
                    inputs, outputs = tuple(graph.input_names()), tuple(graph.output_names())

                    def run(self, inputs, run=None):
                        options.terminate = True
                        return [x + 1 for x in inputs]

                return Stop()

        session = ort.InferenceSession(make_model(AFFINE), _no_rewrites(ort.SessionOptions()), [Stopping, REFERENCE])
        with pytest.raises(Fail, match="the run was stopped"):
            session.run(None, {"x": X}, options)

    def test_only_what_the_outputs_need_is_run(self, make_model) -> None:
        ran: list[str] = []

        class Watched(ExecutionProvider):
            name = "WatchedExecutionProvider"
            device = Device("watched", host=True)  # type: ignore[assignment]

            def supports(self, node, graph) -> Support:
                return Support.yes() if node.op_type == "Abs" else Support.no("only Abs")

            def compile(self, graph, context: CompileContext) -> Program:
                class Absolute(Program):
                    inputs, outputs = tuple(graph.input_names()), tuple(graph.output_names())

                    def run(self, inputs, run=None):
                        ran.append("Abs")
                        return [np.abs(x) for x in inputs]

                return Absolute()

        session = ort.InferenceSession(make_model(TestRun.TWO), providers=[Watched, REFERENCE])
        session.run(["y"], TestRun.FEED)
        assert ran == []
        session.run(["u"], TestRun.FEED)
        session.run(None, TestRun.FEED)
        assert ran == ["Abs", "Abs"]


class TestOverridableInitializers:
    TEXT = "g (float[3] x, float[3] w = {1, 2, 3}) => (float[3] y) { y = Mul(x, w) }"

    def model(self, make_model, ir_version: int = 8):
        model = make_model("g (float[3] x, float[3] w) => (float[3] y) <float[3] u = {1, 2, 3}> { y = Mul(x, w) }")
        model.ir_version = ir_version
        model.graph.initializer[0].name = "w"
        return model

    def test_default_and_override(self, make_model) -> None:
        session = ort.InferenceSession(self.model(make_model), providers=[REFERENCE])
        assert [a.name for a in session.get_inputs()] == ["x"]
        assert [(a.name, a.shape) for a in session.get_overridable_initializers()] == [("w", [3])]
        x = np.ones(3, np.float32)
        assert session.run(None, {"x": x})[0].tolist() == [1, 2, 3]
        assert session.run(None, {"x": x, "w": np.float32([5, 6, 7])})[0].tolist() == [5, 6, 7]
        assert session.run(None, {"x": x})[0].tolist() == [1, 2, 3]
        with pytest.raises(InvalidArgument, match=r"Got invalid dimensions for input: w [^$]*index: 0 Got: 2 Expected: 3"):
            session.run(None, {"x": x, "w": np.float32([5, 6])})

    def test_are_folded_like_any_constant_until_overridden(self, make_model) -> None:
        model = make_model("g (float[3] x, float[3] w) => (float[3] y) <float[3] u = {1, 2, 3}> { v = Neg(w)  y = Mul(x, v) }")
        model.graph.initializer[0].name = "w"
        session = ort.InferenceSession(model, providers=[REFERENCE])
        assert [n.kind for n in session.explain().nodes if n.name == "Neg_0"] == ["folded"]
        x = np.ones(3, np.float32)
        assert session.run(None, {"x": x})[0].tolist() == [-1, -2, -3]
        assert session.run(None, {"x": x, "w": x})[0].tolist() == [-1, -1, -1]

    def test_before_ir_version_4_there_are_none(self, make_model) -> None:
        session = ort.InferenceSession(self.model(make_model, 3), providers=[REFERENCE])
        assert session.get_overridable_initializers() == []
        with pytest.raises(InvalidArgument, match="Invalid input name: w"):
            session.run(None, {"x": np.ones(3, np.float32), "w": np.ones(3, np.float32)})


class TestFreeDimensions:
    TEXT = "g (float[N,M] x) => (float[N,M] y) { y = Neg(x) }"

    def test_by_name(self, make_session) -> None:
        options = ort.SessionOptions()
        options.add_free_dimension_override_by_name("N", 2)
        session = make_session(self.TEXT, options)
        assert session.get_inputs()[0].shape == session.get_outputs()[0].shape == [2, "M"]
        with pytest.raises(InvalidArgument, match="index: 0 Got: 3 Expected: 2"):
            session.run(None, {"x": np.ones((3, 1), np.float32)})

    def test_by_denotation(self, make_model, tmp_path: Path) -> None:
        model = make_model(self.TEXT)
        model.graph.input[0].type.tensor_type.shape.dim[0].denotation = "DATA_BATCH"
        (tmp_path / "m.onnx").write_bytes(model.SerializeToString())
        options = ort.SessionOptions()
        options.add_free_dimension_override_by_denotation("DATA_BATCH", 4)
        for source in (model, model.SerializeToString(), tmp_path / "m.onnx", io.BytesIO(model.SerializeToString())):
            assert ort.InferenceSession(source, options, [REFERENCE]).get_inputs()[0].shape == [4, "M"]

    def test_names_that_the_model_does_not_have(self, make_session) -> None:
        options = ort.SessionOptions()
        options.add_free_dimension_override_by_name("batch", 2)
        with pytest.raises(InvalidArgument, match="free dimension override: no input has a dimension 'batch'; valid: 'M', 'N'"):
            make_session(self.TEXT, options)
        options = ort.SessionOptions()
        options.add_free_dimension_override_by_denotation("DATA_BATCH", 2)
        with pytest.raises(InvalidArgument, match="no input has the denotation 'DATA_BATCH'; valid: none"):
            make_session(self.TEXT, options)


class TestInitializers:
    def options(self, value: object, name: str = "w") -> ort.SessionOptions:
        options = ort.SessionOptions()
        options.add_initializer(name, value)
        return options

    def test_replaced(self, make_session) -> None:
        session = make_session(AFFINE, self.options(ort.OrtValue.ortvalue_from_numpy(np.float32([2, 2, 2]))))
        assert session.run(None, {"x": X[:1]})[0].tolist() == [[-2, -2, -2]]

    def test_must_fit(self, make_session) -> None:
        with pytest.raises(InvalidArgument, match="add_initializer: the model has no initializer 'v'; valid: 'w'"):
            make_session(AFFINE, self.options(np.float32([1]), "v"))
        with pytest.raises(InvalidArgument, match=r"initializer 'w': expected shape \[3\], got \[2\]"):
            make_session(AFFINE, self.options(np.float32([1, 2])))
        with pytest.raises(InvalidArgument, match="initializer 'w': Unexpected input data type"):
            make_session(AFFINE, self.options(np.zeros(3)))


class TestProviders:
    def test_names_and_options(self, make_model, example_plugin: str) -> None:
        session = ort.InferenceSession(
            make_model(AFFINE),
            providers=[
                (example_plugin, {"stride": "2"}),
                REFERENCE,
            ],
        )
        assert session.get_providers()[:2] == [example_plugin, REFERENCE]
        assert session.get_provider_options()[example_plugin] == {"stride": "2", "offset": "0"}

    def test_the_documents_lists_run_as_they_are(self, make_model) -> None:
        """Where neither TensorRT nor CUDA is installed, both are said to be left out, and the CPU runs the model."""
        cuda = ("CUDAExecutionProvider", {"device_id": 0, "arena_extend_strategy": "kNextPowerOfTwo", "gpu_mem_limit": 2 << 30})
        with pytest.warns(ort.ProviderWarning) as caught:
            session = ort.InferenceSession(
                make_model(AFFINE), providers=["TensorrtExecutionProvider", cuda, "CPUExecutionProvider"]
            )
        assert [str(w.message).split()[0] for w in caught] == ["TensorrtExecutionProvider", "CUDAExecutionProvider"]
        assert caught[0].filename == __file__
        assert session.get_providers() == ["CPUExecutionProvider"]
        with pytest.raises(EPFail, match="none of the requested execution providers can be used"):
            ort.InferenceSession(make_model(AFFINE), providers=["CUDAExecutionProvider"])

    def test_set_providers(self, make_session, example_plugin: str) -> None:
        session = make_session(AFFINE)
        session.set_providers([example_plugin, REFERENCE], [{"offset": 0}, {}])
        assert session.get_providers()[0] == example_plugin
        assert session.run(None, {"x": X})[0].tolist() == Y
        with pytest.raises(UnknownOption, match="no execution provider is named 'Nope'"):
            session.set_providers(["Nope"])
        assert session.get_providers()[0] == example_plugin
        assert session.run(None, {"x": X})[0].tolist() == Y

    def test_from_the_session_options(self, make_model) -> None:
        options = ort.SessionOptions()
        options.add_provider(REFERENCE, {})
        assert ort.InferenceSession(make_model(AFFINE), options).get_providers()[0] == REFERENCE

    def test_no_cpu_fallback(self, make_model, example_plugin: str) -> None:
        options = ort.SessionOptions()
        options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
        session = ort.InferenceSession(make_model(AFFINE), options, [example_plugin])
        assert session.get_providers() == [example_plugin]
        with pytest.raises(
            ort.NotImplemented, match=r"no provider takes 1 of the graph's 2 nodes[^$]*takes only every 2. node"
        ):
            ort.InferenceSession(make_model(AFFINE), _no_rewrites(options), [(example_plugin, {"stride": 2})])
        with pytest.raises(
            InvalidArgument, match=r"'session.disable_cpu_ep_fallback' is '1', but CPUExecutionProvider is among"
        ):
            ort.InferenceSession(make_model(AFFINE), options, [example_plugin, "CPUExecutionProvider"])
        with pytest.raises(InvalidArgument, match="or none is named"):
            ort.InferenceSession(make_model(AFFINE), options)


def _no_rewrites(options: ort.SessionOptions) -> ort.SessionOptions:
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    return options


class Refusing(ExecutionProvider):
    """Says yes to everything and then cannot compile it."""

    name = "RefusingExecutionProvider"

    def supports(self, node, graph) -> Support:
        return Support.yes()

    def compile(self, graph, context: CompileContext) -> Program:
        raise EPFail("the vendor's compiler found no engine")


class TestCompileFailure:
    def test_nodes_go_to_the_next_provider_and_that_is_said(self, make_model, caplog: pytest.LogCaptureFixture) -> None:
        with pytest.warns(ort.ProviderWarning, match="RefusingExecutionProvider takes none of the model's 2 nodes"):
            session = ort.InferenceSession(make_model(AFFINE), providers=[Refusing, REFERENCE])
        assert session.run(None, {"x": X})[0].tolist() == Y
        assert "RefusingExecutionProvider could not compile" in caplog.text
        refusal = session.explain().nodes[0].refusals["RefusingExecutionProvider"]
        assert (refusal.code, refusal.reason) == ("compile", "compilation failed: the vendor's compiler found no engine")

    def test_is_an_error_when_there_is_no_next(self, make_model) -> None:
        options = ort.SessionOptions()
        options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
        with pytest.raises(EPFail, match="the vendor's compiler found no engine"):
            ort.InferenceSession(make_model(AFFINE), options, [Refusing])

    def test_program_with_other_names(self, make_model) -> None:
        class Confused(Refusing):
            name = "ConfusedExecutionProvider"

            def compile(self, graph, context: CompileContext) -> Program:
                program = Program()
                program.inputs, program.outputs = ("nothing",), ()
                return program

        with pytest.raises(
            EPFail, match=r"ConfusedExecutionProvider: the program of part 0 .* takes \('nothing',\) and gives \(\)"
        ):
            ort.InferenceSession(make_model(AFFINE), providers=[Confused])

    def test_device_that_gives_host_arrays(self, make_model) -> None:
        class Leaky(Refusing):
            name = "LeakyExecutionProvider"
            device = Device("leaky")  # type: ignore[assignment]

            def get_data_transfer(self) -> DataTransfer:
                class Nothing(DataTransfer):
                    def copy_in(self, array, device):
                        return array

                return Nothing()

            def compile(self, graph, context: CompileContext) -> Program:
                class Same(Program):
                    inputs, outputs = tuple(graph.input_names()), tuple(graph.output_names())

                    def run(self, inputs, run=None):
                        return list(inputs)

                return Same()

        session = ort.InferenceSession(make_model(AFFINE), providers=[Leaky])
        with pytest.raises(
            EPFail, match=r"copy y: leaky:0 -> host .*: expected a DeviceTensor from the provider that wrote it, got ndarray"
        ):
            session.run(None, {"x": X})


class TestPlugin:
    TEXT = """g (float[N,4] x, int64[K] ids) => (float[N,4] y, float[K,4] rows, int64[2] s) <float[4] w = {1, 2, 3, 4}> {
        a = Mul(x, w)  b = Tanh(a)  c = Add(b, x)  rows = Gather(c, ids)  y = Sub(c, w)  s = Shape(y) }"""

    @pytest.mark.parametrize("options", [{}, {"stride": 2}, {"stride": 2, "offset": 1}, {"stride": 3}])
    def test_a_model_cut_at_every_second_node(self, make_session, example_plugin: str, options: dict[str, int]) -> None:
        feed = {"x": np.random.default_rng(0).standard_normal((3, 4)).astype(np.float32), "ids": np.array([2, 0])}
        expected = make_session(self.TEXT).run(None, feed)
        session = make_session(self.TEXT, providers=[(example_plugin, options), REFERENCE])
        assert session.explain().counts.get(example_plugin)
        for a, b in zip(session.run(None, feed), expected, strict=True):
            np.testing.assert_array_equal(a, b)
        np.testing.assert_array_equal(session.run(["rows"], feed)[0], expected[1])

    def test_values_that_a_subgraph_captures_are_copied_for_it(self, make_session, example_plugin: str) -> None:
        text = """g (bool c, float[3] x) => (float[3] y) {
            a = Abs(x)
            y = If (c) <
                then_branch = t () => (float[3] p) { p = Neg(a) },
                else_branch = e () => (float[3] q) { q = Mul(a, x) }
            >
        }"""
        session = make_session(text, providers=[example_plugin, REFERENCE])
        assert session.explain().counts == {example_plugin: 1, REFERENCE: 1}
        x = np.float32([-1, 2, 3])
        assert session.run(None, {"c": np.array(True), "x": x})[0].tolist() == [-1, -2, -3]
        assert session.run(None, {"c": False, "x": x})[0].tolist() == [-1, 4, 9]

    def test_strings_and_sequences_cross_too(self, make_session, example_plugin: str) -> None:
        text = "g (string[2] s) => (string[2] t) { a = Identity(s)  t = Identity(a) }"
        session = make_session(text, _no_rewrites(ort.SessionOptions()), providers=[(example_plugin, {"stride": 2}), REFERENCE])
        assert session.run(None, {"s": ["one", "two"]})[0].tolist() == ["one", "two"]


def test_session_options_are_the_same_object(make_session) -> None:
    options = ort.SessionOptions()
    assert make_session(AFFINE, options).get_session_options() is options


def test_sessions_pickle_as_what_they_were_made_from(make_model, tmp_path: Path) -> None:
    model = make_model(AFFINE)
    (tmp_path / "m.onnx").write_bytes(model.SerializeToString())
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    x = np.ones((1, 3), np.float32)
    data = model.SerializeToString()
    for source in (tmp_path / "m.onnx", str(tmp_path / "m.onnx"), data, model, io.BytesIO(data), bytearray(data)):
        session = ort.InferenceSession(source, options, [REFERENCE])
        for other in (pickle.loads(pickle.dumps(session)), copy.deepcopy(session)):
            assert other is not session
            assert other.get_providers() == session.get_providers()
            assert other.get_session_options().intra_op_num_threads == 1
            np.testing.assert_array_equal(other.run(None, {"x": x})[0], session.run(None, {"x": x})[0])


def test_the_module_that_had_the_class_before() -> None:
    from intarsia.session import InferenceSession

    assert InferenceSession is ort.InferenceSession
    with pytest.raises(AttributeError, match=r"module 'intarsia\.session' has no attribute 'InferenceSessions'"):
        session_package.InferenceSessions  # noqa: B018


def test_profile(make_session, tmp_path: Path) -> None:
    options = ort.SessionOptions()
    options.enable_profiling = True
    options.profile_file_prefix = str(tmp_path / "trace")
    session = make_session(AFFINE, options)
    session.run(None, {"x": X})
    events = json.loads(Path(session.end_profiling()).read_text())
    assert {"model_loading_array", "session_initialization", "model_run", "part 0"} <= {e["name"] for e in events}
    assert all(e["ph"] == "X" and e["dur"] >= 0 for e in events)
    assert make_session(AFFINE).end_profiling() == ""


def test_optimised_model_is_written(make_session, tmp_path: Path) -> None:
    options = ort.SessionOptions()
    options.optimized_model_filepath = str(tmp_path / "optimised.onnx")
    make_session(AFFINE, options)
    again = ort.InferenceSession(tmp_path / "optimised.onnx", providers=[REFERENCE])
    assert again.run(None, {"x": X})[0].tolist() == Y


def test_fallback_switches_exist(make_session) -> None:
    session = make_session(AFFINE, enable_fallback=1, disabled_optimizers=[])
    session.enable_fallback()
    session.disable_fallback()


def test_functions_are_expanded_without_optimisation(make_session) -> None:
    """Model-local functions, and operators that only ONNX's function body defines."""
    if not onnx.defs.has("FlexAttention", "ai.onnx.preview"):
        pytest.skip("this onnx has no FlexAttention")
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    header = '<ir_version: 10, opset_import: ["" : 26, "local" : 1, "ai.onnx.preview" : 1]>'
    q = np.random.default_rng(0).standard_normal((1, 2, 3, 4)).astype(np.float32)
    text = """agent (float[1,2,3,4] q) => (float[1,2,3,4] y) { t = local.twice(q)  y = ai.onnx.preview.FlexAttention(t, q, q) }
        <domain: "local", opset_import: ["" : 21]> twice (a) => (b) { b = Add(a, a) }"""
    (y,) = make_session(text, options, header).run(None, {"q": q})
    weights = np.exp(2 * q.astype(np.float64) @ q.swapaxes(-1, -2) / 2)
    np.testing.assert_allclose(y, weights / weights.sum(axis=-1, keepdims=True) @ q, rtol=1e-5)
