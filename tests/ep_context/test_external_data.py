"""Parts of a compiled model that the program keeps itself: functions that take them, and give them back."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import intarsia as ort
from intarsia.errors import ExternalDataError, Fail, InvalidArgument, InvalidProtobuf, WrongType

pytest.importorskip("llvmlite", reason="programs are compiled with llvmlite")

MLP = """g (float[batch, 3] x) => (float[batch, 2] y)
<float[3, 2] w = {1, 2, 3, 4, 5, 6}> { p = MatMul(x, w)  y = Relu(p) }"""
X = np.float32([[1, -2, 3], [0, 5, -6]])
EXPECTED = np.maximum(X @ np.float32([[1, 2], [3, 4], [5, 6]]), 0)
Kept = dict[str, bytes]


@pytest.fixture
def source(tmp_path: Path, make_model: Callable[..., onnx.ModelProto]) -> Path:
    path = tmp_path / "m.onnx"
    onnx.save(make_model(MLP), path)
    return path


def compiler(source: Path | bytes, kept: Kept, embed: bool = False) -> ort.ModelCompiler:
    made = ort.ModelCompiler(ort.SessionOptions(), source, embed)
    made.set_ep_context_data_write_func(lambda name, data: kept.update({name: scrambled(data.read())}))
    return made


def scrambled(data: bytes) -> bytes:
    return bytes(np.frombuffer(data, np.uint8) ^ 85)


def reading(read: Callable[[str, Any], object], *most: int) -> ort.SessionOptions:
    options = ort.SessionOptions()
    options.add_session_config_entry("session.disable_model_compile", "1")
    options.set_ep_context_data_read_func(read, *most)
    return options


def reader(kept: Kept) -> Callable[[str, Any], None]:
    def read(name: str, buffer: ort.OrtEpContextDataBuffer) -> None:
        data = scrambled(kept[name])
        buffer.allocate(len(data))
        for start in range(0, len(data), 1000):
            buffer.write(data[start : start + 1000], start)

    return read


def check(model: Any, options: ort.SessionOptions) -> None:
    np.testing.assert_allclose(ort.InferenceSession(model, options).run(None, {"x": X})[0], EXPECTED)


class TestRoundTrip:
    def test_bytes(self, source: Path) -> None:
        kept: Kept = {}
        model = compiler(source, kept).compile_to_bytes()
        assert list(kept) == ["m_ctx_part0.bin"]
        assert [n.op_type for n in onnx.load_from_string(model).graph.node] == ["EPContext"]
        assert [p.name for p in source.parent.iterdir()] == ["m.onnx"]
        for _ in range(2):  # nothing of it is kept in the cache
            asked: list[str] = []
            check(model, reading(lambda name, buffer, asked=asked: (asked.append(name), reader(kept)(name, buffer))))
            assert asked == ["m_ctx_part0.bin"]

    def test_a_model_of_bytes_and_a_stream(self, source: Path) -> None:
        kept: Kept = {}
        pieces: list[bytes] = []
        compiler(source.read_bytes(), kept).compile_to_stream(pieces.append)
        assert list(kept) == ["model_ctx_part0.bin"]
        check(b"".join(pieces), reading(reader(kept)))

    def test_a_file_without_files_beside_it(self, source: Path, tmp_path: Path) -> None:
        kept: Kept = {}
        compiler(source, kept).compile_to_file(tmp_path / "out.onnx")
        assert sorted(p.name for p in tmp_path.iterdir()) == ["m.onnx", "out.onnx"]
        assert list(kept) == ["out_part0.bin"]
        check(tmp_path / "out.onnx", reading(reader(kept)))

    def test_parts_inside_are_not_given(self, source: Path) -> None:
        kept: Kept = {}
        model = compiler(source, kept, embed=True).compile_to_bytes()
        assert not kept
        check(model, ort.SessionOptions())

    def test_cleared(self, source: Path, tmp_path: Path) -> None:
        kept: Kept = {}
        made = compiler(source, kept)
        made.clear_ep_context_data_write_func()
        made.compile_to_file(tmp_path / "out.onnx")
        assert not kept
        options = reading(reader(kept))
        options.clear_ep_context_data_read_func()
        check(tmp_path / "out.onnx", options)

    def test_options_pickle_with_a_function_of_a_module(self) -> None:
        options = reading(print, 5)
        assert pickle.loads(pickle.dumps(options)).context_reader.args == (print, 5)


class TestErrors:
    @pytest.fixture
    def kept(self) -> Kept:
        return {}

    @pytest.fixture
    def model(self, source: Path, kept: Kept) -> bytes:
        return compiler(source, kept).compile_to_bytes()

    def test_without_a_function(self, model: bytes) -> None:
        with pytest.raises(ExternalDataError, match=r"model was given as bytes: .* give it by set_ep_context_data_read_func"):
            ort.InferenceSession(model)

    def test_a_function_that_raises(self, source: Path, model: bytes) -> None:
        made = ort.ModelCompiler(ort.SessionOptions(), source)
        made.set_ep_context_data_write_func(lambda name, data: 1 / 0)
        message = r"part 'm_ctx_part0.bin': ZeroDivisionError: .* \(raised by the function given to set_ep_context_data_{}_func"
        with pytest.raises(Fail, match=message.format("write")):
            made.compile_to_bytes()
        with pytest.raises(Fail, match=message.format("read")):
            ort.InferenceSession(model, reading(lambda name, buffer: 1 / 0))

    def test_nothing_allocated(self, model: bytes) -> None:
        with pytest.raises(Fail, match=r"OrtEpContextDataBuffer: expected a call of allocate\(size\), got none"):
            ort.InferenceSession(model, reading(lambda name, buffer: None))

    def test_more_than_was_allowed(self, model: bytes, kept: Kept) -> None:
        with pytest.raises(Fail, match=r"allocate: once, and at most 100 bytes; got \d+"):
            ort.InferenceSession(model, reading(reader(kept), 100))

    def test_changed_data(self, model: bytes, kept: Kept) -> None:
        name, data = next(iter(kept.items()))
        kept[name] = data[:-1] + bytes([data[-1] ^ 1])
        with pytest.raises(InvalidProtobuf, match=r"data 'm_ctx_part0.bin', is damaged: its bytes are not those"):
            ort.InferenceSession(model, reading(reader(kept)))

    def test_arguments(self, source: Path) -> None:
        with pytest.raises(WrongType, match="set_ep_context_data_write_func: expected a function, got 3"):
            ort.ModelCompiler(ort.SessionOptions(), source).set_ep_context_data_write_func(3)  # type: ignore[arg-type]
        options = ort.SessionOptions()
        with pytest.raises(WrongType, match="set_ep_context_data_read_func: expected a function, got None"):
            options.set_ep_context_data_read_func(None)  # type: ignore[arg-type]
        with pytest.raises(InvalidArgument, match="max_data_size: expected a number of bytes, got -1"):
            options.set_ep_context_data_read_func(print, -1)


class TestBuffers:
    def test_data(self) -> None:
        for data in (ort.OrtEpContextData(b"abcdef"), ort.OrtEpContextData([b"ab", memoryview(b"cde"), b"", b"f"])):
            assert (data.size, data.read(), data.read(2), data.read(1, 3)) == (6, b"abcdef", b"cdef", b"bcd")
            assert (data.read(5), data.read(6), data.read(2, 0)) == (b"f", b"", b"")
            with pytest.raises(InvalidArgument, match="bytes 4 to 9 of 6"):
                data.read(4, 5)

    def test_buffer(self) -> None:
        buffer = ort.OrtEpContextDataBuffer()
        assert (buffer.is_allocated, buffer.size) == (False, 0)
        buffer.allocate(4)
        buffer.write(b"ab", 2)
        assert (buffer.is_allocated, buffer.size, bytes(buffer.content())) == (True, 4, b"\0\0ab")
        with pytest.raises(InvalidArgument, match="3 bytes at 2 do not fit 4"):
            buffer.write(b"abc", 2)
        with pytest.raises(InvalidArgument, match="allocate: once"):
            buffer.allocate(4)
