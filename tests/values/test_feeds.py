"""What callers may give as inputs, and what is said when it does not fit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx.parser
import pytest

import intarsia as ort
from intarsia.errors import InvalidArgument, OutOfMemory, WrongType
from intarsia.graph.dims import fresh_symbol, symbol
from intarsia.graph.dtypes import DType
from intarsia.graph.model import MapType, OptionalType, SequenceType, SparseTensorType, TensorType, Value
from intarsia.values.feeds import FeedReader, converted

N, M = symbol("N"), symbol("M")
FLOAT = TensorType(DType.FLOAT, (N, 3))
READER = [Value("a", FLOAT), Value("b", TensorType(DType.INT64, (N,)))]
A, B = np.ones((2, 3), np.float32), np.arange(2)


def read(feed: dict[str, Any], values: list[Value] | None = None) -> list[Any]:
    return FeedReader(values or READER).read(feed)


class TestNames:
    def test_in_the_models_order(self) -> None:
        assert read({"b": B, "a": A})[0] is A

    def test_missing(self) -> None:
        with pytest.raises(InvalidArgument, match=r"Required inputs \(\['b'\]\) are missing from input feed \(\['a'\]\)"):
            read({"a": A})

    def test_unknown(self) -> None:
        with pytest.raises(InvalidArgument, match="Invalid input name: c; valid: 'a', 'b'"):
            read({"a": A, "b": B, "c": A})

    @pytest.mark.parametrize("key", [0, b"a", None])
    def test_keys_that_are_no_text(self, key: Any) -> None:
        with pytest.raises(WrongType, match=rf"expected names of inputs as keys, got {key!r} \({type(key).__name__}\)"):
            read({key: A, "b": B})

    def test_outputs_that_are_no_text(self, make_session) -> None:
        with pytest.raises(WrongType, match=r"output_names: expected names, got 0 \(int\)"):
            make_session("g (float[1,3] x) => (float[1,3] y) { y = Neg(x) }").run([0], [np.ones((1, 3), np.float32)])

    def test_by_position(self) -> None:
        assert read([A, B])[0] is A  # type: ignore[arg-type]
        assert read((A, B))[1] is B  # type: ignore[arg-type]
        with pytest.raises(InvalidArgument, match=r"Required inputs \(\['b'\]\) are missing from input feed \(\['a'\]\)"):
            read([A])  # type: ignore[arg-type]
        with pytest.raises(InvalidArgument, match="the model has 2 inputs, got a list of 3 values"):
            read([A, B, B])  # type: ignore[arg-type]

    def test_not_a_feed(self) -> None:
        with pytest.raises(
            TypeError, match="expected a dict of input name to value, a list by position or a table by column, got int"
        ):
            read(5)  # type: ignore[arg-type]

    def test_none(self) -> None:
        with pytest.raises(InvalidArgument, match=r"input 'a': expected tensor\(float\), got None"):
            read({"a": None, "b": B})


class TestSizes:
    def test_rank(self) -> None:
        with pytest.raises(
            InvalidArgument, match=r"Invalid rank for input: a Got: 1 Expected: 2: .* \[3\], the model's is \[N, 3\]"
        ):
            read({"a": A[0], "b": B})

    def test_fixed_dimension(self) -> None:
        message = (
            r"Got invalid dimensions for input: a for the following indices\n index: 1 Got: 4 Expected: 3\n Please fix either "
            r"the inputs/outputs or the model: the shape is \[2, 4\], the model's is \[N, 3\]"
        )
        with pytest.raises(InvalidArgument, match=message):
            read({"a": np.ones((2, 4), np.float32), "b": B})

    def test_one_symbol_two_sizes(self) -> None:
        message = "the size 'N' is 2 in dimension 0 of input 'a' and 3 in dimension 0 of input 'b'; expected one size"
        with pytest.raises(InvalidArgument, match=message):
            read({"a": A, "b": np.arange(3)})

    def test_unnamed_dimensions_are_free(self) -> None:
        kind = TensorType(DType.FLOAT, (fresh_symbol(), fresh_symbol()))
        assert read({"a": A}, [Value("a", kind)])[0] is A

    def test_unknown_rank_is_free(self) -> None:
        assert read({"a": A}, [Value("a", TensorType(DType.FLOAT))])[0] is A


class TestQuick:
    """Arrays that need nothing, of sizes that fit, are taken as they are."""

    def test_of_any_shape_that_fits(self) -> None:
        n, m = symbol("n"), symbol("m")
        kinds = {"a": (n, m), "b": (n, m), "c": (n, 3), "d": (m,)}
        reader = FeedReader([Value(name, TensorType(DType.FLOAT, shape)) for name, shape in kinds.items()])

        def feed(*shapes: tuple[int, ...]) -> dict[str, np.ndarray]:
            return {name: np.ones(shape, np.float32) for name, shape in zip(kinds, shapes, strict=True)}

        for _ in range(2):
            for size in (1, 2, 5):
                fitting = feed((size, 7), (size, 7), (size, 3), (7,))
                found = reader.quick(fitting)
                assert found is not None
                assert all(x is y for x, y in zip(found, fitting.values(), strict=True))
            for shapes in (
                ((2, 7), (3, 7), (2, 3), (7,)), ((2, 7), (2, 7), (3, 3), (7,)), ((2, 7), (2, 7), (2, 4), (7,)),
                ((2, 7), (2, 7), (2, 3), (6,)), ((2, 7), (2, 7), (2, 3), (7, 1)), ((2, 7, 1), (2, 7, 1), (2, 3), (7,)),
            ):  # fmt: skip
                assert reader.quick(feed(*shapes)) is None
                with pytest.raises(InvalidArgument, match=r"expected one size|Invalid rank|invalid dimensions"):
                    reader.read(feed(*shapes))

    @pytest.mark.parametrize(
        "other",
        [
            {"a": A.astype(">f4"), "b": B},
            {"a": A.astype(np.float64), "b": B},
            {"a": np.asfortranarray(A), "b": B},
            {"a": A[:, ::-1], "b": B},
            {"a": A.tolist(), "b": B},
            {"a": A, "b": np.arange(3)},
            {"a": A},
            {"a": A, "c": B},
            {"a": None, "b": B},
        ],
    )
    def test_anything_else_is_looked_at(self, other: dict[str, Any]) -> None:
        reader = FeedReader(READER)
        reader.read({"a": A, "b": B})
        assert reader.quick(other) is None

    def test_read_only_arrays_are_taken(self) -> None:
        reader = FeedReader(READER)
        fixed = A.copy()
        fixed.flags.writeable = False
        reader.read({"a": A, "b": B})
        assert reader.quick({"a": fixed, "b": B}) is not None

    def test_strings(self) -> None:
        reader = FeedReader([Value("s", TensorType(DType.STRING, (2,)))])
        words = np.array(["a", "b"], dtype=object)
        reader.read({"s": words})
        found = reader.quick({"s": words})
        assert found is not None
        assert found[0] is words
        for other in (["a", b"b"], ["a", 1], ["a", None]):
            assert reader.quick({"s": np.array(other, dtype=object)}) is None
        for wrong in (np.array(["a", "b"]), ["a", "b"], np.array(["a", "b", "c"], dtype=object), np.array([1, 2])):
            assert reader.quick({"s": wrong}) is None

    def test_sequences(self) -> None:
        element = TensorType(DType.FLOAT, None)
        reader = FeedReader([Value("s", SequenceType(element)), Value("t", SequenceType(TensorType(DType.STRING, None)))])
        words = [np.array(["a"], dtype=object)]
        reader.read({"s": [A], "t": words})
        for given in ([A], [], [A, np.ones(7, np.float32)]):
            found = reader.quick({"s": given, "t": words})
            assert found is not None
            assert found[0] is not given
            assert all(x is y for x, y in zip(found[0], given, strict=True))
        for other in ([A, B], [A.tolist()], [A, None], (A,), A, [np.asfortranarray(A)]):
            assert reader.quick({"s": other, "t": words}) is None
        assert reader.quick({"s": [A], "t": [np.array([b"a"], dtype=object)]}) is None

    def test_optional_values_and_maps(self) -> None:
        reader = FeedReader([Value("o", OptionalType(FLOAT)), Value("m", MapType(DType.INT64, TensorType(DType.FLOAT)))])
        numbers = {1: 0.5, 2: 1}
        reader.read({"o": A, "m": numbers})
        reader.read({"m": numbers})
        found = reader.quick({"o": A, "m": numbers})
        assert found is not None
        assert found[0] is A
        assert found[1] == {1: np.float32(0.5), 2: np.float32(1)}
        assert all(type(v) is np.float32 for v in found[1].values())
        empty = reader.quick({"o": None, "m": numbers})
        assert empty is not None
        assert empty[0] is None
        assert reader.quick({"o": B, "m": numbers}) is None
        assert reader.quick({"other": A, "m": numbers}) is None
        assert reader.quick({"o": A, "m": {"one": 0.5}}) is None
        with pytest.raises(InvalidArgument, match="Unexpected key type"):
            reader.read({"o": A, "m": {"one": 0.5}})

    def test_what_is_remembered_is_bounded(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("intarsia.values.feeds._KNOWN_SHAPES", 4)
        reader = FeedReader([Value("a", FLOAT)])
        for size in range(20):
            reader.read({"a": np.ones((size, 3), np.float32)})
        assert len(reader._known) <= 4


class TestInputsAlike:
    """Inputs beside each other of which the same shape is expected are looked at together."""

    READER = FeedReader([
        Value("x", TensorType(DType.FLOAT, (symbol("n"),))),
        *(Value(name, TensorType(DType.FLOAT, (1, symbol("n"), symbol("m")))) for name in "abc"),
        Value("i", TensorType(DType.INT64, None)),
        Value("d", TensorType(DType.FLOAT, (1, symbol("n"), symbol("m")))),
    ])  # fmt: skip

    def feed(self, **others: tuple[int, ...]) -> dict[str, np.ndarray]:
        shapes = {"x": (2,), **dict.fromkeys("abcd", (1, 2, 3)), **others}
        return {**{name: np.zeros(shape, np.float32) for name, shape in shapes.items()}, "i": np.zeros(7, np.int64)}

    def test_fit(self) -> None:
        assert self.READER.quick(self.feed()) is not None
        assert self.READER.quick(self.feed(x=(0,), **dict.fromkeys("abcd", (1, 0, 9)))) is not None

    @pytest.mark.parametrize("name", ["x", "a", "b", "c", "d"])
    def test_one_has_another_size(self, name: str) -> None:
        other = {name: (3,) if name == "x" else (1, 2, 4)}
        assert self.READER.quick(self.feed(**other)) is None
        with pytest.raises(InvalidArgument, match=r"the size '[nm]' is"):
            self.READER.read(self.feed(**other))

    @pytest.mark.parametrize("shape", [(1, 2), (2, 2, 3), ()])
    def test_all_of_them_have_another_shape(self, shape: tuple[int, ...]) -> None:
        other = dict.fromkeys("abc", shape)
        assert self.READER.quick(self.feed(**other)) is None
        with pytest.raises(InvalidArgument, match=r"Invalid rank for input: a|Got invalid dimensions for input: a"):
            self.READER.read(self.feed(**other))

    def test_sizes_without_names_may_be_others(self) -> None:
        kind = TensorType(DType.FLOAT, (symbol("n") * 2, symbol("n")))
        reader = FeedReader([Value("a", kind), Value("b", kind)])
        for shapes in (((1, 4), (5, 4)), ((5, 4), (5, 4))):
            assert reader.quick({n: np.zeros(s, np.float32) for n, s in zip("ab", shapes, strict=True)}) is not None

    def test_what_the_model_awaits_fits(self) -> None:
        asked: list[object] = []
        feed = self.feed(x=(6,), **dict.fromkeys("abcd", (1, 6, 6)))
        assert self.READER.quick(feed, lambda shapes: asked.append(shapes) or True) is not None  # type: ignore[func-returns-value]
        assert asked == [((6,), *[(1, 6, 6)] * 3, (7,), (1, 6, 6))]


class TestArrays:
    def test_big_endian(self) -> None:
        found = converted(np.array([1, 2], ">f4"), TensorType(DType.FLOAT), "x")
        assert found.dtype is np.dtype(np.float32)
        assert found.tolist() == [1, 2]

    @pytest.mark.parametrize("view", [np.asfortranarray, lambda a: a[::-1], lambda a: a[:, 1:], np.transpose])
    def test_strided(self, view) -> None:
        given = view(np.arange(6, dtype=np.float32).reshape(2, 3))
        found = converted(given, TensorType(DType.FLOAT), "x")
        assert found.flags.c_contiguous
        np.testing.assert_array_equal(found, given)

    def test_unaligned(self) -> None:
        given = np.frombuffer(b"\0" + np.float32([1, 2]).tobytes(), np.uint8)[1:].view(np.float32)
        found = converted(given, TensorType(DType.FLOAT), "x")
        assert found.flags.aligned
        assert found.tolist() == [1, 2]

    def test_rank_0_stays_rank_0(self) -> None:
        assert converted(np.array(1, ">i8"), TensorType(DType.INT64), "x").shape == ()
        assert converted(5, TensorType(DType.INT64), "x").shape == ()

    def test_other_names_of_one_type(self) -> None:
        found = converted(np.zeros(2, np.longlong), TensorType(DType.INT64), "x")
        assert found.dtype is np.dtype(np.int64)

    def test_subclasses_become_plain(self) -> None:
        class Special(np.ndarray):
            pass

        assert type(converted(A.view(Special), TensorType(DType.FLOAT), "x")) is np.ndarray

    def test_mapped_files_are_not_read(self, tmp_path: Path) -> None:
        np.save(tmp_path / "a.npy", A)
        mapped = np.load(tmp_path / "a.npy", mmap_mode="r")
        found = converted(mapped, TensorType(DType.FLOAT), "x")
        assert type(found) is np.ndarray
        assert np.shares_memory(found, mapped)

    @pytest.mark.parametrize(
        ("given", "kind", "message"),
        [
            (
                A.astype(np.float64),
                DType.FLOAT,
                r"x: Unexpected input data type. Actual: \(tensor\(double\)\) , expected: \(tensor\(float\)\)",
            ),
            (B, DType.FLOAT, r"Actual: \(tensor\(int64\)\) .*; convert it with .astype\('float32'\)"),
            (np.zeros(1, np.uint16), DType.BFLOAT16, r"Actual: \(tensor\(uint16\)\) , expected: \(tensor\(bfloat16\)\)"),
            (np.zeros(1, "M8[s]"), DType.INT64, r"Actual: \(datetime64\[s\]\)"),
            (np.float32([1]), DType.STRING, r"x: expected strings for tensor\(string\), got float32"),
        ],
    )
    def test_other_element_types(self, given: np.ndarray, kind: DType, message: str) -> None:
        with pytest.raises(InvalidArgument, match=message):
            converted(given, TensorType(kind), "x")

    @pytest.mark.parametrize("name", ["bfloat16", "float8_e4m3fn", "float8_e5m2", "int4", "uint4"])
    def test_ml_dtypes(self, name: str) -> None:
        given = np.array([1, 2], getattr(ml_dtypes, name))
        assert converted(given, TensorType(DType.of(given.dtype)), "x") is given
        assert converted([1, 2], TensorType(DType.of(given.dtype)), "x").dtype == given.dtype

    def test_things_with_array_or_dlpack(self) -> None:
        class Array:
            def __array__(self, dtype=None, copy=None):
                return A

        class Exported:
            def __dlpack__(self, **arguments):
                return A.__dlpack__(**arguments)

            def __dlpack_device__(self):
                return A.__dlpack_device__()

        for given in (Array(), Exported(), ort.OrtValue.ortvalue_from_numpy(A)):
            np.testing.assert_array_equal(converted(given, FLOAT, "x"), A)

    def test_no_declared_type(self) -> None:
        assert converted([[1.5]], None, "x").shape == (1, 1)

    def test_masked(self) -> None:
        masked = np.ma.masked_array(A, mask=False)
        np.testing.assert_array_equal(read({"a": masked, "b": B})[0], A)
        masked[0, 1] = np.ma.masked
        with pytest.raises(InvalidArgument, match=r"input 'a': the array has 1 masked values.*\.filled\("):
            read({"a": masked, "b": B})

    def test_python_objects(self) -> None:
        with pytest.raises(InvalidArgument, match=r"Actual: \(Python objects such as float\) , expected: \(tensor\(float\)\)"):
            read({"a": A.astype(object), "b": B})
        with pytest.raises(InvalidArgument, match=r"Actual: \(tensor\(string\)\) "):
            read({"a": A.astype(str).astype(object), "b": B})


class TestPythonValues:
    @pytest.mark.parametrize(
        ("given", "kind", "expected"),
        [
            ([[1, 2], [3, 4]], DType.FLOAT, np.float32([[1, 2], [3, 4]])),
            ([1.5, True], DType.FLOAT, np.float32([1.5, 1])),
            (2, DType.INT32, np.int32(2)),
            (np.float64(0.5), DType.FLOAT, np.float32(0.5)),
            (np.int64(3), DType.INT32, np.int32(3)),
            ([], DType.INT64, np.zeros(0, np.int64)),
            ([True, False], DType.BOOL, np.array([True, False])),
            ((1, 2), DType.UINT8, np.uint8([1, 2])),
            ([1 + 2j], DType.COMPLEX64, np.complex64([1 + 2j])),
        ],
    )
    def test_are_converted(self, given: Any, kind: DType, expected: np.ndarray) -> None:
        found = converted(given, TensorType(kind), "x")
        assert found.dtype == expected.dtype
        np.testing.assert_array_equal(found, expected)

    @pytest.mark.parametrize(
        ("given", "kind", "message"),
        [
            ([1.5], DType.INT64, r"x: expected values for tensor\(int64\), got float64 \(tensor\(double\)\) values: \[1.5\]"),
            ([300], DType.UINT8, r"x: \[300\] does not fit tensor\(uint8\)"),
            (-1, DType.UINT64, r"x: -1 does not fit tensor\(uint64\)"),
            ([[1], [1, 2]], DType.FLOAT, r"x: expected an array for tensor\(float\), got a list that is none"),
            (["a"], DType.FLOAT, r"expected values for tensor\(float\), got <U1|str"),
            ([1j], DType.FLOAT, r"expected values for tensor\(float\), got complex128"),
            ([0.5] * 100, DType.INT64, r"values: \[0.5, 0.5, .*\.\.\.$"),
        ],
    )
    def test_unless_something_would_be_lost(self, given: Any, kind: DType, message: str) -> None:
        with pytest.raises(InvalidArgument, match=message):
            converted(given, TensorType(kind), "x")


class TestStrings:
    @pytest.mark.parametrize(
        "given",
        [
            np.array(["ab", "ü"]),
            np.array(["ab", "ü"], dtype=object),
            np.array(["ab", "ü".encode()], dtype=object),
            np.array([b"ab", "ü".encode()]),
            ["ab", "ü"],
            [b"ab", "ü".encode()],
        ],
    )
    def test_every_form(self, given: Any) -> None:
        found = converted(given, TensorType(DType.STRING), "x")
        assert found.dtype == object
        assert found.tolist() == ["ab", "ü"]

    def test_callers_array_is_not_kept(self) -> None:
        given = np.array(["a"], dtype=object)
        assert converted(given, TensorType(DType.STRING), "x") is not given

    def test_scalar(self) -> None:
        assert converted("text", TensorType(DType.STRING), "x").shape == ()

    def test_other_elements(self) -> None:
        with pytest.raises(InvalidArgument, match=r"x: expected strings for tensor\(string\), got int at element 1"):
            converted(["a", 1], TensorType(DType.STRING), "x")
        with pytest.raises(InvalidArgument, match="x: element 0 is not UTF-8: 'utf-8' codec can't decode"):
            converted(np.array([b"\xff"]), TensorType(DType.STRING), "x")


class TestOtherTypes:
    def test_sequences(self) -> None:
        found = converted([A, A.tolist()], SequenceType(TensorType(DType.FLOAT)), "s")
        assert [x.dtype for x in found] == [np.float32, np.float32]
        with pytest.raises(InvalidArgument, match=r"s\[1\]: Unexpected input data type"):
            converted([A, B], SequenceType(TensorType(DType.FLOAT)), "s")
        with pytest.raises(InvalidArgument, match=r"s: expected a list for seq\(tensor\(float\)\), got str"):
            converted("abc", SequenceType(TensorType(DType.FLOAT)), "s")

    def test_optionals(self) -> None:
        kind = OptionalType(TensorType(DType.FLOAT))
        assert converted(None, kind, "o") is None
        assert converted(A, kind, "o") is A
        assert read({}, [Value("o", kind)]) == [None]

    def test_maps(self) -> None:
        kind = MapType(DType.INT64, TensorType(DType.FLOAT))
        assert converted({1: 0.5}, kind, "m") == {1: 0.5}
        with pytest.raises(InvalidArgument, match=r"m: expected a dict for map\(int64,tensor\(float\)\), got list"):
            converted([1], kind, "m")

    def test_sparse_types_take_dense_arrays(self) -> None:
        assert converted(A, SparseTensorType(DType.FLOAT, (2, 3)), "x") is A


def test_inputs_of_float64_are_taken_as_they_are() -> None:
    reader = FeedReader([Value("x", TensorType(DType.DOUBLE, (2,)))])
    x = np.ones(2)
    found = reader.quick({"x": x})
    assert found is not None
    assert found[0] is x


@pytest.mark.parametrize("provider", ["CPUExecutionProvider", "ReferenceExecutionProvider"])
def test_views_that_repeat_their_elements(provider: str) -> None:
    """One element, said to be 2^40: kernels take what lies in one piece."""
    text = '<ir_version: 10, opset_import: ["": 20]> g (float[n,m] x) => (float[n,m] y) { y = Abs(x) }'
    session = ort.InferenceSession(onnx.parser.parse_model(text).SerializeToString(), providers=[provider])
    (y,) = session.run(None, {"x": np.broadcast_to(np.float32(-1), (2, 3))})
    np.testing.assert_array_equal(y, np.ones((2, 3)))
    for one in (np.float32(-1), np.array(-1, ">f4")):
        with pytest.raises(OutOfMemory, match=r"'x'.*a view that does not lie in one piece has to be copied: 67,108,864 MiB"):
            session.run(None, {"x": np.broadcast_to(one, (2**20, 2**24))})


@pytest.mark.parametrize(
    "one",
    [np.float32(1), np.array(1, ">f4"), np.array("a"), np.array("a", object)],
    ids=["native", "swapped", "U", "object"],
)
def test_views_that_repeat_their_elements_as_values(one: np.ndarray) -> None:
    with pytest.raises(OutOfMemory, match="ortvalue_from_numpy: a view that does not lie in one piece has to be copied"):
        ort.OrtValue.ortvalue_from_numpy(np.broadcast_to(one, (2**20, 2**24)))
    with pytest.raises(OutOfMemory, match="ortvalue_from_numpy_with_onnx_type: a view"):
        ort.OrtValue.ortvalue_from_numpy_with_onnx_type(np.broadcast_to(np.uint16(1), (2**20, 2**24)), 16)


@pytest.mark.parametrize("provider", ["CPUExecutionProvider", "ReferenceExecutionProvider"])
def test_an_input_without_a_type_is_an_array(provider: str) -> None:
    proto = onnx.parser.parse_model('<ir_version: 10, opset_import: ["": 20]> g (float[n] x) => (float[n] y) { y = Abs(x) }')
    proto.graph.input[0].type.Clear()
    session = ort.InferenceSession(proto.SerializeToString(), providers=[provider])
    np.testing.assert_array_equal(session.run(None, {"x": np.float32([-1, 2])})[0], [1, 2])
    with pytest.raises(InvalidArgument, match=r"'x'.*the model says no type, and list is no array"):
        session.run(None, {"x": [np.ones(2, np.float32), np.ones(3, np.float32)]})
