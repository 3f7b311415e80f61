"""Builds a model in the library, compiles it for devices, and packs both into one artifact with what the drivers cache."""

from __future__ import annotations

import ctypes
import hashlib
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from intarsia.errors import EPFail
from intarsia.lazy_dataclass import dataclass
from intarsia.providers.nnapi.library import (
    Handle,
    Library,
    NnapiDevice,
    channel_structure,
    numbers,
    operand_structure,
)
from intarsia.providers.nnapi.model import NnapiModel
from intarsia.providers.nnapi.operations import OPERATIONS

PREFERENCES = {"low_power": 0, "fast_single_answer": 1, "sustained_speed": 2}
PRIORITIES = {"low": 90, "medium": 100, "high": 110}
_TOKEN_NBYTES = 32


@dataclass(frozen=True)
class CompileSettings:
    """How models are compiled.

    Attributes:
        devices: those that a model is compiled for; none: the library chooses.
        preference, priority: keys of `PREFERENCES` and `PRIORITIES`.
    """

    devices: tuple[NnapiDevice, ...] = ()
    preference: str = "fast_single_answer"
    priority: str = "medium"


def build_model(library: Library, model: NnapiModel) -> Handle:
    """The finished model in the library. Its constants are read where they are: `model` has to outlive it.

    Raises:
        NnapiError: the library does not take it.
    """
    made = library.made("Model", needs=[model])
    try:
        _fill(library, made, model)
    except BaseException:
        made.close()  # whoever keeps the error keeps this frame
        raise
    return made


def _fill(library: Library, made: Handle, model: NnapiModel) -> None:
    empty = ctypes.c_char(b"\0")
    for i, operand in enumerate(model.operands):
        structure, _dims = operand_structure(operand.type)
        library.call("Model_addOperand", made.pointer, ctypes.addressof(structure))
        if operand.type.channel_scales:
            scales, _array = channel_structure(operand.type)
            library.call("Model_setOperandSymmPerChannelQuantParams", made.pointer, i, ctypes.addressof(scales))
        if operand.omitted:
            library.call("Model_setOperandValue", made.pointer, i, None, 0)
        elif operand.value is not None:
            address = operand.value.ctypes.data if operand.value.nbytes else ctypes.addressof(empty)
            library.call("Model_setOperandValue", made.pointer, i, address, operand.value.nbytes)
    for call in model.calls:
        read, written = numbers(call.inputs), numbers(call.outputs)
        library.call(
            "Model_addOperation", made.pointer, OPERATIONS[call.name].code, len(read), ctypes.addressof(read), len(written),
            ctypes.addressof(written),
        )  # fmt: skip
    inputs, outputs = numbers(model.inputs), numbers(model.outputs)
    library.call(
        "Model_identifyInputsAndOutputs", made.pointer, len(inputs), ctypes.addressof(inputs), len(outputs),
        ctypes.addressof(outputs),
    )  # fmt: skip
    if model.relaxed and library.has("Model_relaxComputationFloat32toFloat16"):
        library.call("Model_relaxComputationFloat32toFloat16", made.pointer, True)
    library.call("Model_finish", made.pointer)


def not_supported(library: Library, model: NnapiModel, devices: Sequence[NnapiDevice]) -> str:
    """The operations of a model that none of the devices runs; "" where there are none.

    Raises:
        NnapiError: the library does not take the model.
    """
    if not devices or not library.has("Model_getSupportedOperationsForDevices"):
        return ""
    made = build_model(library, model)
    try:
        handles = _handles(devices)
        answers = np.zeros(len(model.calls), np.bool_)
        library.call(
            "Model_getSupportedOperationsForDevices", made.pointer, ctypes.addressof(handles), len(devices), answers.ctypes.data
        )
    finally:
        made.close()
    refused = sorted({call.name for call, taken in zip(model.calls, answers, strict=True) if not taken})
    names = ", ".join(d.name for d in devices)
    return f"none of the devices {names} runs {', '.join(refused)} of these types" if refused else ""


def _handles(devices: Sequence[NnapiDevice]) -> ctypes.Array[ctypes.c_void_p]:
    return (ctypes.c_void_p * len(devices))(*(d.handle for d in devices))


def compiled(library: Library, model: NnapiModel, settings: CompileSettings, folder: str = "", token: bytes = b"") -> Handle:
    """The finished compilation of a model.

    Args:
        folder: where drivers read and write what they compiled; "": nowhere.
        token: of 32 bytes, which names that.

    Raises:
        NnapiError: the library, or a driver, cannot compile it.
    """
    made = build_model(library, model)
    found = None
    try:
        if settings.devices and library.has("Compilation_createForDevices"):
            handles = _handles(settings.devices)
            given = (made.pointer, ctypes.addressof(handles), len(settings.devices))
            found = library.made("Compilation", *given, needs=[made], function="createForDevices")
        else:
            found = library.made("Compilation", made.pointer, needs=[made])
        _finish(library, found, settings, folder, token)
    except BaseException:
        for handle in (found, made):
            if handle is not None:
                handle.close()
        raise
    return found


def _finish(library: Library, found: Handle, settings: CompileSettings, folder: str, token: bytes) -> None:
    library.call("Compilation_setPreference", found.pointer, PREFERENCES[settings.preference])
    if library.has("Compilation_setPriority"):
        library.call("Compilation_setPriority", found.pointer, PRIORITIES[settings.priority])
    if folder and library.has("Compilation_setCaching"):
        place, name = ctypes.create_string_buffer(folder.encode()), ctypes.create_string_buffer(token, len(token))
        library.call("Compilation_setCaching", found.pointer, ctypes.addressof(place), ctypes.addressof(name))
    library.call("Compilation_finish", found.pointer)


@dataclass(frozen=True)
class Artifact:
    """A model, and the files that drivers wrote when it was compiled, by their names."""

    model: bytes
    files: dict[str, bytes]

    def to_bytes(self) -> bytes:
        """Lengths and names first; what is aligned in the model stays so."""
        rows = [("", self.model), *sorted(self.files.items())]
        head = "\n".join(f"{len(data)} {name}" for name, data in rows).encode()
        head += b"\n" * (-(8 + len(head)) % 64)
        return b"".join([len(head).to_bytes(8, "little"), head, *(data for _, data in rows)])

    @classmethod
    def of(cls, data: bytes) -> Artifact:
        """Raises EPFail where these are no such bytes."""
        try:
            at = 8 + int.from_bytes(data[:8], "little")
            found: dict[str, bytes] = {}
            for line in data[8:at].decode().rstrip("\n").split("\n"):
                size, _, name = line.partition(" ")
                found[name] = data[at : at + int(size)]
                at += int(size)
            return cls(found.pop(""), found)
        except (ValueError, KeyError) as error:
            raise EPFail(f"a compiled part of NnapiExecutionProvider is damaged: {error}; compile the model anew") from error


@dataclass(frozen=True)
class CompiledModel:
    """What is run: the finished compilation, and its model, which it reads."""

    handle: Handle
    model: NnapiModel
    artifact: bytes


def compile_artifact(library: Library, model_bytes: bytes, settings: CompileSettings, files: dict[str, bytes]) -> CompiledModel:
    """Compile a model, by what drivers cached of it (`files`) where they did.

    Raises:
        NnapiError: the library, or a driver, cannot compile it.
        OSError: drivers have no folder to write to.
    """
    model = NnapiModel.from_bytes(model_bytes)
    if not library.has("Compilation_setCaching"):
        return CompiledModel(compiled(library, model, settings), model, Artifact(model_bytes, {}).to_bytes())
    token = hashlib.sha256(model_bytes).digest()[:_TOKEN_NBYTES]
    folder = Path(tempfile.mkdtemp(prefix="intarsia-nnapi-"))
    try:
        for name, data in files.items():
            (folder / Path(name).name).write_bytes(data)
        handle = compiled(library, model, settings, str(folder), token)
        written = {p.name: p.read_bytes() for p in sorted(folder.iterdir()) if p.is_file()}
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return CompiledModel(handle, model, Artifact(model_bytes, written).to_bytes())
