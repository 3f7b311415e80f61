"""OrtCompileApi: models that a plugin has compiled by Intarsia's own providers, of a file, of bytes, or made by itself."""

from __future__ import annotations

import ctypes
import importlib
from collections.abc import Callable, Mapping
from typing import Any

from intarsia.errors import InvalidArgument
from intarsia.providers.plugin.interface.allocators import allocate
from intarsia.providers.plugin.interface.handles import HostObject, checked, find, give, put, take_back
from intarsia.providers.plugin.interface.host_tables import entry
from intarsia.providers.plugin.interface.model_editor import MadeModel
from intarsia.providers.plugin.interface.session_state import SessionOptions
from intarsia.providers.plugin.interface.status import raise_for

_COMPILER = "intarsia.session.model_compiler"
_OPTIONS = "intarsia.options.session_options"


class Environment(HostObject):
    """OrtEnv of a plugin's own: nothing depends on it here."""


class CompilationOptions(HostObject):
    """OrtModelCompilationOptions.

    Attributes:
        source: path, bytes, or a model that the plugin made.
        given: further arguments of `ModelCompiler`.
        deliver: what is done with the bytes of the compiled model; None: it is a file.
    """

    def __init__(self, entries: Mapping[str, str]) -> None:
        super().__init__()
        self.entries = dict(entries)
        self.source: str | bytes | MadeModel = b""
        self.given: dict[str, Any] = {}
        self.path = ""
        self.places: tuple[str, str] | None = None
        self.deliver: Callable[[bytes], None] | None = None

    def compile(self) -> None:
        """Compile the model.

        Raises:
            InvalidArgument: no model was given.
            IntarsiaError: as `ModelCompiler`.
        """
        source = self.source
        if isinstance(source, MadeModel):
            source = importlib.import_module("intarsia.graph.save").to_model_proto(source.graph()).SerializeToString()
        if not source:
            raise InvalidArgument("CompileModel: expected an input model (SetInputModelPath, ...FromBuffer, SetInputModel)")
        options = importlib.import_module(_OPTIONS).SessionOptions()
        for key, value in self.entries.items():
            options.add_session_config_entry(key, value)
        compiler = importlib.import_module(_COMPILER).ModelCompiler(options, source, **self.given)
        if self.places is not None:
            compiler.set_ep_context_binary_information(*self.places)
        if self.deliver is not None:
            self.deliver(compiler.compile_to_bytes())
        else:
            compiler.compile_to_file(self.path or None)


def _text(path: bytes | str | None) -> str:
    return path if isinstance(path, str) else (path or b"").decode("utf-8", "surrogateescape")


@entry("OrtApi", "CreateEnv")
def _create_environment(level: int, name: bytes | None, out: int) -> None:
    put(out, give(Environment()))


@entry("OrtApi", "CreateSessionOptions")
def _create_session_options(out: int) -> None:
    put(out, give(SessionOptions({})))


@entry("OrtApi", "CloneSessionOptions")
def _clone_session_options(handle: int, out: int) -> None:
    put(out, give(SessionOptions(dict(find(handle, SessionOptions).entries.values))))


@entry("OrtApi", "AddSessionConfigEntry")
def _add_config_entry(handle: int, key: bytes, value: bytes) -> None:
    find(handle, SessionOptions).entries.values[_text(key)] = _text(value)


@entry("OrtCompileApi", "CreateModelCompilationOptionsFromSessionOptions")
def _create_options(environment: int, options: int, out: int) -> None:
    find(environment, Environment)
    given = find(options, SessionOptions).entries.values
    own = {key: value for key, value in given.items() if not key.startswith("ep.")}  # those of the plugin are its own
    put(out, give(CompilationOptions(own)))


@entry("OrtCompileApi", "ReleaseModelCompilationOptions")
def _release_options(handle: int | None) -> None:
    take_back(handle)


@entry("OrtCompileApi", "ModelCompilationOptions_SetInputModelPath")
def _set_input_path(handle: int, path: bytes | str) -> None:
    find(handle, CompilationOptions).source = _text(path)


@entry("OrtCompileApi", "ModelCompilationOptions_SetInputModelFromBuffer")
def _set_input_bytes(handle: int, data: int, nbytes: int) -> None:
    find(handle, CompilationOptions).source = ctypes.string_at(checked(data), nbytes)


@entry("OrtCompileApi", "ModelCompilationOptions_SetInputModel")
def _set_input_model(handle: int, model: int) -> None:
    find(handle, CompilationOptions).source = find(model, MadeModel)


@entry("OrtCompileApi", "ModelCompilationOptions_SetOutputModelPath")
def _set_output_path(handle: int, path: bytes | str) -> None:
    options = find(handle, CompilationOptions)
    options.path, options.deliver = _text(path), None


@entry("OrtCompileApi", "ModelCompilationOptions_SetOutputModelBuffer")
def _set_output_buffer(handle: int, allocator: int, data: int, nbytes: int) -> None:
    def deliver(content: bytes) -> None:
        address = allocate(allocator, len(content))
        ctypes.memmove(address, content, len(content))
        put(data, address)
        put(nbytes, len(content), ctypes.c_size_t)

    find(handle, CompilationOptions).deliver = deliver


@entry("OrtCompileApi", "ModelCompilationOptions_SetOutputModelWriteFunc")
def _set_write_function(handle: int, function: int, state: int | None) -> None:
    prototype = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t)
    write = prototype(checked(function))

    def deliver(content: bytes) -> None:
        raise_for(write(state, content, len(content)), "its function to write a model", "a plugin")

    find(handle, CompilationOptions).deliver = deliver


@entry("OrtCompileApi", "ModelCompilationOptions_SetOutputModelExternalInitializersFile")
def _set_external_file(handle: int, path: bytes | str, threshold: int) -> None:
    given = find(handle, CompilationOptions).given
    given.update(external_initializers_file_path=_text(path), external_initializers_size_threshold=threshold)


@entry("OrtCompileApi", "ModelCompilationOptions_SetEpContextEmbedMode")
def _set_embed_mode(handle: int, embed: bool) -> None:
    find(handle, CompilationOptions).given["embed_compiled_data_into_model"] = embed


@entry("OrtCompileApi", "ModelCompilationOptions_SetFlags")
def _set_flags(handle: int, flags: int) -> None:
    find(handle, CompilationOptions).given["flags"] = flags


@entry("OrtCompileApi", "ModelCompilationOptions_SetGraphOptimizationLevel")
def _set_level(handle: int, level: int) -> None:
    kind = importlib.import_module("intarsia.values.ort_enums").GraphOptimizationLevel
    find(handle, CompilationOptions).given["graph_optimization_level"] = kind(level)


@entry("OrtCompileApi", "ModelCompilationOptions_SetEpContextBinaryInformation")
def _set_places(handle: int, folder: bytes | str, name: bytes | str) -> None:
    find(handle, CompilationOptions).places = (_text(folder), _text(name))


@entry("OrtCompileApi", "ModelCompilationOptions_SetWeightlessEnabled")
def _set_weightless(handle: int, enabled: bool) -> None:
    find(handle, CompilationOptions).entries["ep.enable_weightless"] = "1" if enabled else "0"


@entry("OrtCompileApi", "CompileModel")
def _compile_model(environment: int, options: int) -> None:
    find(environment, Environment)
    find(options, CompilationOptions).compile()
