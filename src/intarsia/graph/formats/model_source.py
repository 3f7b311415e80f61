"""Where a model comes from: a path, bytes, an open file or a `ModelProto`, as one readable buffer."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, BinaryIO

from intarsia.errors import InvalidArgument, NoGraph, NoSuchFile, WrongType
from intarsia.graph.formats.file_bytes import file_bytes, open_file
from intarsia.graph.formats.protobuf_wire import Buffer
from intarsia.lazy_dataclass import dataclass

ModelSource = str | os.PathLike[str] | bytes | bytearray | memoryview | BinaryIO | Any  # Any: onnx.ModelProto


@dataclass(frozen=True)
class Source:
    """The bytes of a model, what to call them in messages, and the folder that external data is relative to."""

    buffer: Buffer
    label: str
    folder: Path | None = None
    path: str = ""


def is_model_proto(source: object) -> bool:
    """Whether this is an `onnx.ModelProto`, found out without importing onnx."""
    return type(source).__name__ == "ModelProto" and hasattr(source, "SerializeToString")


def is_ort_format(buffer: Buffer) -> bool:
    """Whether this is onnxruntime's own format, `ort_format`."""
    return buffer[4:8] == b"ORTM"


def open_source(source: ModelSource, base_dir: str | os.PathLike[str] | None = None) -> Source:
    """The bytes of a model file (read where they are requested), a bytes-like object or a binary file object.

    Raises:
        NoSuchFile: the path does not exist or is a folder.
        InvalidProtobuf: there are no bytes.
        WrongType: `source` is of another type.
    """
    folder = Path(base_dir) if base_dir is not None else None
    if isinstance(source, (str, os.PathLike)):
        path = os.fspath(source)
        found = Source(read_file(path), path, folder if folder is not None else Path(path).parent, str(Path(path).absolute()))
    elif isinstance(source, bytes):
        found = Source(source, "model bytes", folder)
    elif isinstance(source, (bytearray, memoryview)):
        # A copy: the caller could still write to the buffer, and the weights are viewed in place.
        found = Source(bytes(source), "model bytes", folder)
    elif callable(getattr(source, "read", None)):
        found = _read_stream(source, folder)
    else:
        raise WrongType(
            f"Unable to load from type '{type(source)}': a model is a path, bytes, a binary file object or an onnx.ModelProto, "
            f"not {type(source).__name__!r}"
        )
    if len(found.buffer) == 0:
        raise NoGraph(f"{found.label}: empty (0 bytes), expected an ONNX model")
    return found


def _read_stream(stream: BinaryIO, folder: Path | None) -> Source:
    data = stream.read()
    name = getattr(stream, "name", None)
    label = name if isinstance(name, str) else "model stream"
    if not isinstance(data, (bytes, bytearray, memoryview)):
        given = type(data).__name__
        raise InvalidArgument(f"{label}: the model's file object must be opened in binary mode ('rb'), it gave {given}")
    if folder is None and isinstance(name, str):
        folder = Path(name).parent
    return Source(bytes(data), label, folder)


def read_file(path: str) -> Buffer:
    """The file's bytes."""
    if not path:
        raise NoSuchFile("the path of the model is empty; expected the name of a file, or the model's bytes")
    try:
        return file_bytes(open_file(path), path, path=path)
    except FileNotFoundError:
        parent = Path(path).parent
        where = f"its folder {str(parent)!r} does not exist either" if not parent.is_dir() else "check the name"
        raise NoSuchFile(f"model file {path!r} does not exist: {where} (current folder: {str(Path.cwd())!r})") from None
    except NotADirectoryError:
        raise NoSuchFile(f"model file {path!r} does not exist: a part of its path is a file, not a folder") from None
    except OSError as error:
        if Path(path).is_dir():  # Windows refuses to open a folder with PermissionError
            package = (Path(path) / "manifest.json").is_file()
            hint = "open a model package by ModelPackageContext" if package else "give the path of the .onnx file in it"
            raise NoSuchFile(f"model file {path!r} is a folder: {hint}") from None
        raise InvalidArgument(f"model file {path!r} cannot be read: {error.strerror or error}") from error
    except ValueError:  # embedded null character
        raise NoSuchFile(f"model file {path!r} does not exist: the name is not valid") from None


_SIGNATURES: tuple[tuple[int, bytes, str], ...] = (
    (0, b"version https://git-lfs", "a Git LFS pointer, the model itself was not fetched: run `git lfs pull`"),
    (0, b"PK\x03\x04", "a zip archive (a PyTorch .pt/.pth file, a .npz or a packed model): unpack it, or export it to ONNX"),
    (0, b"\x1f\x8b", "gzip-compressed data: unpack it first"),
    (0, b"BZh", "bzip2-compressed data: unpack it first"),
    (0, b"\xfd7zXZ", "xz-compressed data: unpack it first"),
    (0, b"(\xb5/\xfd", "zstd-compressed data: unpack it first"),
    (0, b"\x89HDF", "an HDF5 file (Keras?): convert it to ONNX, for example with tf2onnx"),
    (0, b"GGUF", "a GGUF file (llama.cpp): export the original model to ONNX"),
    (0, b"\x93NUMPY", "a NumPy .npy array, not a model"),
    (0, b"\x7fELF", "an executable or shared library, not a model"),
    (4, b"TFL3", "a TensorFlow Lite model: convert it to ONNX, for example with tf2onnx"),
    (8, b'{"', "a safetensors file: it has weights only, export the model to ONNX"),
)


def recognise(head: bytes) -> str:
    """What a file that is not an ONNX model looks like, by its first bytes; empty where nothing is recognised."""
    for offset, magic, meaning in _SIGNATURES:
        if head[offset : offset + len(magic)] == magic:
            return meaning
    start = head[:512].lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    if start.startswith((b"<!doctype html", b"<html", b"<head")):
        return "an HTML page, probably a failed download: fetch the raw file"
    if start.startswith(b"<?xml"):
        return "an XML file (OpenVINO IR?): give the .onnx file"
    if len(head) >= 2 and head[0] == 0x80 and head[1] in (2, 3, 4, 5):
        return "a Python pickle (a PyTorch checkpoint?): export the model to ONNX"
    if not any(head):
        return "nothing but zero bytes: the file was not written completely"
    if start.startswith((b"{", b"[")) and _is_text(head):
        return "a JSON text, not a model"
    return "a text file, not a model" if _is_text(head) else ""


def _is_text(head: bytes) -> bool:
    cut = head[:256]
    if any(byte < 0x20 and byte not in b"\t\n\r\f" for byte in cut):
        return False
    try:
        cut.decode()
    except UnicodeDecodeError as error:
        return error.start > len(cut) - 4
    return True
