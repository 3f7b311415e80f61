"""Feeds and results of other libraries: by position, by column, by DLPack; results as their tensors."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import pytest

import intarsia as ort
from intarsia.errors import InvalidArgument, WrongType
from intarsia.values.interop import host_array

X = np.float32([[1, -2, 3]])
TWO = "g (float[N,1] a, int64[N,1] b, string[N,1] s) => (float[N,1] y, int64[N,1] z, string[N,1] t) {"
TWO += " y = Neg(a)  z = Neg(b)  t = Identity(s) }"


class TestArrays:
    def test_by_position(self, make_session) -> None:
        np.testing.assert_array_equal(make_session().run(["y"], [X])[0], -X)
        np.testing.assert_array_equal(make_session().run(["y"], (X.tolist(),))[0], -X)

    def test_torch(self, make_session) -> None:
        torch = pytest.importorskip("torch", reason="the tensors are PyTorch's")
        session = make_session()
        tensor = torch.tensor(X)
        for given in (tensor, tensor.requires_grad_(), torch.tensor(X.T.copy()).T):
            np.testing.assert_array_equal(session.run(["y"], {"x": given})[0], -X)

    def test_torch_bfloat16(self, make_session) -> None:
        torch = pytest.importorskip("torch", reason="the tensors are PyTorch's")
        session = make_session("g (bfloat16[N] x) => (bfloat16[N] y) { y = Neg(x) }")
        (y,) = session.run(None, {"x": torch.tensor([1.0, -2.5], dtype=torch.bfloat16)}, framework="torch")
        assert y.dtype == torch.bfloat16
        assert y.tolist() == [-1, 2.5]

    def test_tensors_without_elements_of_their_own_or_without_dense_ones(self, make_session) -> None:
        torch = pytest.importorskip("torch", reason="the tensors are PyTorch's")
        for tensor in (torch.ones(1, 3, device="meta"), torch.ones(1, 3).to_sparse()):
            with pytest.raises(InvalidArgument, match="input 'x': Tensor cannot be read as an array: can't convert"):
                make_session().run(None, {"x": tensor})
        sparse = pytest.importorskip("scipy.sparse", reason="the matrix is SciPy's")
        with pytest.raises(InvalidArgument, match=r"input 'x': csr_matrix is sparse; give its dense form, .toarray\(\)"):
            make_session().run(None, {"x": sparse.csr_matrix(X)})

    def test_nothing_is_copied_that_need_not_be(self, make_session) -> None:
        torch = pytest.importorskip("torch", reason="the tensors are PyTorch's")
        tensor = torch.ones(4)
        assert host_array(tensor, "x").ctypes.data == tensor.data_ptr()
        assert host_array(X, "x") is X

    def test_array_interface(self, make_session) -> None:
        class Foreign:
            __array_interface__ = X.__array_interface__

        np.testing.assert_array_equal(make_session().run(["y"], {"x": Foreign()})[0], -X)

    @pytest.mark.parametrize("method", ["cpu", "get"])
    def test_device_tensors_are_fetched(self, make_session, method: str) -> None:
        class OnDevice:
            device = "cuda:0"

            def __dlpack_device__(self) -> tuple[int, int]:
                return 2, 0

            def __dlpack__(self, **_: Any) -> Any:
                raise AssertionError("it is not in host memory")

        tensor = OnDevice()
        with pytest.raises(InvalidArgument, match="input 'x': the OnDevice is in the memory of cuda:0 and has no method"):
            make_session().run(["y"], {"x": tensor})
        setattr(OnDevice, method, lambda self: X)
        np.testing.assert_array_equal(make_session().run(["y"], {"x": tensor})[0], -X)

    def test_cuda_array_interface(self, make_session) -> None:
        class Cuda:
            __cuda_array_interface__ = None

            def get(self) -> np.ndarray:
                return X

        np.testing.assert_array_equal(make_session().run(["y"], {"x": Cuda()})[0], -X)

    def test_dlpack_without_an_array_interface(self, make_session) -> None:
        class Foreign:
            def __dlpack__(self, **_: Any) -> Any:
                return X.__dlpack__()

            def __dlpack_device__(self) -> tuple[int, int]:
                return 1, 0

        np.testing.assert_array_equal(make_session().run(["y"], {"x": Foreign()})[0], -X)

    def test_what_is_no_tensor(self, make_session) -> None:
        with pytest.raises(InvalidArgument, match="input 'x': expected values for"):
            make_session().run(["y"], {"x": object()})


class TestTables:
    def check(self, results: list[np.ndarray]) -> None:
        assert [r.tolist() for r in results] == [[[-0.5], [1.5]], [[-1], [-2]], [["p"], ["q"]]]

    def test_pandas(self, make_session) -> None:
        pandas = pytest.importorskip("pandas", reason="the tables are pandas'")
        frame = pandas.DataFrame({"a": [0.5, -1.5], "b": [1, 2], "s": ["p", "q"], "unused": [0, 0]})
        self.check(make_session(TWO).run(None, frame))
        self.check(
            make_session(TWO).run(None, {name: frame[[name]].to_numpy(np.float32 if name == "a" else None) for name in "abs"})
        )

    def test_a_whole_frame_as_a_matrix(self, make_session) -> None:
        pandas = pytest.importorskip("pandas", reason="the tables are pandas'")
        frame = pandas.DataFrame({"p": [1.0], "q": [-2.0], "r": [3.0]})
        np.testing.assert_array_equal(make_session().run(["y"], frame)[0], -X)

    def test_arrow(self, make_session) -> None:
        arrow = pytest.importorskip("pyarrow", reason="the tables are Arrow's")
        table = arrow.table({"a": [0.5, -1.5], "b": [1, 2], "s": ["p", "q"]})
        self.check(make_session(TWO).run(None, table))
        self.check(make_session(TWO).run(None, table.to_batches()[0]))
        with pytest.raises(InvalidArgument, match="an Arrow column of double has 1 missing values; fill them first"):
            make_session(TWO).run(None, arrow.table({"a": [0.5, None], "b": [1, 2], "s": ["p", "q"]}))

    def test_a_column_of_arrow_tensors(self, make_session) -> None:
        arrow = pytest.importorskip("pyarrow", reason="the tensors are Arrow's")
        column = arrow.FixedShapeTensorArray.from_numpy_ndarray(X)
        for feed in ({"x": column}, arrow.table({"x": column})):
            np.testing.assert_array_equal(make_session().run(["y"], feed)[0], -X)

    def test_columns_by_name(self, make_session) -> None:
        pandas = pytest.importorskip("pandas", reason="the tables are pandas'")
        frame = pandas.DataFrame({"a": [0.5, -1.5], "b": [1, 2], "s": ["p", "q"]})
        self.check(make_session(TWO).run(None, {name: frame[name] for name in "abs"}))
        with pytest.raises(InvalidArgument, match=r"input 'b': the table's float64 column does not fit tensor\(int64\)"):
            make_session(TWO).run(None, {"a": frame["a"], "b": frame["a"], "s": frame["s"]})
        arrow = pytest.importorskip("pyarrow", reason="the tables are Arrow's")
        table = arrow.table({"a": [0.5, -1.5], "b": [1, 2], "s": ["p", "q"]})
        self.check(make_session(TWO).run(None, {name: table[name] for name in "abs"}))
        self.check(make_session(TWO).run(None, {name: table[name].chunk(0) for name in "abs"}))
        with pytest.raises(InvalidArgument, match="an Arrow column of double has 1 missing values; fill them first"):
            make_session(TWO).run(None, {"a": arrow.array([0.5, None]), "b": table["b"], "s": table["s"]})

    def test_any_table_with_columns(self, make_session) -> None:
        class Frame:
            columns = ("a", "b", "s")
            shape = (2, 3)
            data: ClassVar[dict[str, list[Any]]] = {"a": [0.5, -1.5], "b": [1, 2], "s": ["p", "q"]}

            def __getitem__(self, name: str) -> list[Any]:
                return self.data[name]

        self.check(make_session(TWO).run(None, Frame()))
        Frame.data = {**Frame.data, "b": [1.5, 2]}
        with pytest.raises(InvalidArgument, match=r"input 'b': the table's float64 column does not fit tensor\(int64\)"):
            make_session(TWO).run(None, Frame())
        Frame.columns = ("c",)  # type: ignore[assignment]
        with pytest.raises(
            InvalidArgument, match=r"the table has the columns \['c'\], the model's inputs are \['a', 'b', 's'\]"
        ):
            make_session(TWO).run(None, Frame())


class TestResults:
    def test_torch(self, make_session) -> None:
        torch = pytest.importorskip("torch", reason="results are PyTorch's")
        y, z = make_session().run(None, {"x": X}, framework="torch")
        assert isinstance(y, torch.Tensor)
        assert torch.equal(z, torch.tensor(np.abs(X)))

    def test_ort_values(self, make_session) -> None:
        assert [type(v) for v in make_session().run(None, {"x": X}, framework="ortvalue")] == [ort.OrtValue] * 2
        assert type(make_session().run(None, {"x": X}, framework="numpy")[0]) is np.ndarray

    def test_sequences_and_strings_stay(self, make_session) -> None:
        torch = pytest.importorskip("torch", reason="results are PyTorch's")
        session = make_session(
            "g (float[2] x, string[1] s) => (seq(float[2]) y, string[1] t) { y = SequenceConstruct(x, x)  t = Identity(s) }"
        )
        y, t = session.run(None, {"x": X[0, :2], "s": ["a"]}, framework="torch")
        assert [type(v) for v in y] == [torch.Tensor] * 2
        assert t.tolist() == ["a"]

    def test_errors(self, make_session) -> None:
        with pytest.raises(InvalidArgument, match="framework: 'pytorch' is not known; did you mean 'torch'"):
            make_session().run(None, {"x": X}, framework="pytorch")

    def test_a_library_that_is_missing(self, make_session, monkeypatch) -> None:
        import sys

        monkeypatch.setitem(sys.modules, "cupy", None)
        with pytest.raises(InvalidArgument, match=r"framework='cupy': .*install it or choose 'numpy'"):
            make_session().run(None, {"x": X}, framework="cupy")

    def test_outputs_belong_to_the_caller(self, make_session) -> None:
        session = make_session()
        kept = session.run(None, {"x": X})
        copies = [k.copy() for k in kept]
        for k in range(5):
            session.run(None, {"x": X * k})
        for one, two in zip(kept, copies, strict=True):
            np.testing.assert_array_equal(one, two)


class TestMaps:
    MODEL = "g (float[1,3] x) => (float[1,3] y) { y = Neg(x) }"

    def session(self) -> ort.InferenceSession:
        from onnx import TensorProto, helper

        kind = helper.make_map_type_proto(TensorProto.INT64, helper.make_tensor_type_proto(TensorProto.FLOAT, []))
        node = helper.make_node("DictVectorizer", ["m"], ["y"], domain="ai.onnx.ml", int64_vocabulary=[0, 1, 2])
        out = helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 3])
        graph = helper.make_graph([node], "g", [helper.make_value_info("m", kind)], [out])
        opsets = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 1)]
        return ort.InferenceSession(helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString())

    def test_values(self) -> None:
        session = self.session()
        assert session.get_inputs()[0].type == "map(int64,tensor(float))"
        for given in ({0: 25.0, 2: 1}, {np.int64(0): np.float32(25), 2: 1.0}):
            assert session.run(None, {"m": given})[0].tolist() == [[25, 0, 1]]

    @pytest.mark.parametrize(
        ("given", "message"),
        [
            ({"0": 25.0}, r"Unexpected key type  <class 'str'>, it cannot be linked to C type int64_t"),
            ({True: 25.0}, "Unexpected key type  <class 'bool'>"),
            ({0: "a"}, r"Unexpected value type  <class 'str'>, expected tensor\(float\), got 'a'"),
            ({0: [1.0, 2.0]}, "expected one number, got 2"),
            ([1], r"expected a dict for map\(int64,tensor\(float\)\), got list"),
        ],
    )
    def test_errors(self, given: Any, message: str) -> None:
        with pytest.raises(InvalidArgument, match=message):
            self.session().run(None, {"m": given})


def test_strings_of_every_kind(make_session) -> None:
    session = make_session("g (string[N] x) => (string[N] y) { y = Identity(x) }")
    expected = ["must", "have", "same", "size"]
    for given in (
        np.array(expected), np.array(expected, dtype=object), np.array([e.encode() for e in expected]), expected,
        np.array([e.encode() for e in expected], np.void), np.array([e.encode() for e in expected], "V4")[::1],
    ):  # fmt: skip
        assert session.run(None, {"x": given})[0].tolist() == expected
    value = ort.OrtValue.ortvalue_from_numpy(np.array(expected))
    assert value.data_type() == "tensor(string)"
    assert session.run(None, {"x": value})[0].tolist() == expected


def test_a_single_value_is_no_feed(make_session) -> None:
    with pytest.raises(WrongType, match=r"input_feed: expected a dict of input name to value, .* got str"):
        make_session().run(None, "x")


def test_an_optional_tensor_has_the_shape_of_the_tensor(make_session) -> None:
    session = make_session("g (optional(float[N,3]) x) => (bool y) { y = OptionalHasElement(x) }")
    (argument,) = session.get_inputs()
    assert (argument.type, argument.shape) == ("optional(tensor(float))", ["N", 3])
