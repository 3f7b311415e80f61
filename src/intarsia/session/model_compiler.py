"""`ModelCompiler`: a model prepared ahead of time, written to a file, to bytes or to a stream.

Each part that a provider of the session options compiles and can save becomes an EPContext node; a session on the compiled
model restores it without compiling. It runs where it was compiled for: keep the original model. Nodes that no provider saves
stay as they are; a model without any compiled part is written as ONNX, after the rewrites of `graph_optimization_level`.
"""

from __future__ import annotations

import copy
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from intarsia.ep_context.external_data import WriteFunction, given
from intarsia.errors import Fail, InvalidArgument, NoSuchFile, WrongType
from intarsia.graph.formats.atomic_write import Write, replace_files
from intarsia.graph.model import Graph
from intarsia.lazy_dataclass import dataclass
from intarsia.options.session_options import SessionOptions
from intarsia.providers.fallback import as_onnxruntime
from intarsia.session.context_export import ContextModel, context_model
from intarsia.values.ort_enums import GraphOptimizationLevel, OrtCompileApiFlags, OrtCompiledModelCompatibility
from intarsia.values.ort_value import OrtValue

if TYPE_CHECKING:
    import onnx

    from intarsia.session.inference_session import InferenceSession

_EXTERNAL = 1  # TensorProto.EXTERNAL


@dataclass(frozen=True)
class OrtExternalInitializerInfo:
    """Where an initializer's data is: a file, and the bytes in it."""

    filepath: str
    file_offset: int
    byte_size: int


LocationFunction = Callable[[str, OrtValue, OrtExternalInitializerInfo | None], OrtExternalInitializerInfo | None]


class ModelCompiler:
    """Compiles one model as the module's text says.

    Args:
        sess_options: providers (`add_provider`; by default the CPU), optimiser settings and dimension overrides. Where Intarsia
            stands in for onnxruntime (`install_as`) and no provider is named, nothing is compiled, as there.
        input_model_path_or_bytes: a path or bytes.
        embed_compiled_data_into_model: put compiled parts into the model, not into files beside it. Bytes and streams always
            have them inside, unless `set_ep_context_data_write_func` says where they go.
        external_initializers_file_path: write constants that are left into this file (relative to the compiled model's folder).
        external_initializers_size_threshold: only those of at least this many bytes.
        flags: what to refuse (`OrtCompileApiFlags`).
        graph_optimization_level: which rewrites a model without compiled parts has got; parts are compiled at the level of
            `sess_options`.
        get_initializer_location_func: called with each constant's name, value and where the input model keeps its data outside
            (None: inside, or rewritten); may return where a program keeps its data, which is then not written.

    Raises:
        WrongType: options, a model, a level or a threshold of another type.
        InvalidArgument: the input file does not exist, or there are no bytes.
    """

    def __init__(
        self,
        sess_options: SessionOptions,
        input_model_path_or_bytes: str | os.PathLike[str] | bytes,
        embed_compiled_data_into_model: bool = False,
        external_initializers_file_path: str | os.PathLike[str] | None = None,
        external_initializers_size_threshold: int = 1024,
        flags: int = OrtCompileApiFlags.NONE,
        graph_optimization_level: GraphOptimizationLevel = GraphOptimizationLevel.ORT_DISABLE_ALL,
        get_initializer_location_func: LocationFunction | None = None,
    ) -> None:
        if not isinstance(sess_options, SessionOptions):
            raise WrongType(f"sess_options: expected SessionOptions, got {type(sess_options).__name__}")
        if not isinstance(input_model_path_or_bytes, (str, os.PathLike, bytes)):
            raise WrongType(f"Unable to load from type '{type(input_model_path_or_bytes)}'; expected a path or bytes")
        if external_initializers_file_path and get_initializer_location_func:
            raise InvalidArgument("give external_initializers_file_path or get_initializer_location_func, not both")
        self._source, self._embed = input_model_path_or_bytes, bool(embed_compiled_data_into_model)
        if self._source == b"":
            raise InvalidArgument("Input model bytes array is empty; expected an ONNX model")
        if not isinstance(graph_optimization_level, GraphOptimizationLevel):
            raise WrongType(f"graph_optimization_level: expected a GraphOptimizationLevel, got {graph_optimization_level!r}")
        threshold = external_initializers_size_threshold
        if not isinstance(threshold, int) or threshold < 0:
            raise WrongType(f"external_initializers_size_threshold: expected a number of bytes from 0, got {threshold!r}")
        if not isinstance(self._source, bytes) and not Path(self._source).is_file():
            raise InvalidArgument(f'Input model path does not exist: "{self._source}"')
        self._options, self._level, self._flags = sess_options, graph_optimization_level, OrtCompileApiFlags(int(flags))
        self._external = Path(external_initializers_file_path) if external_initializers_file_path else None
        self._threshold, self._locate = threshold, get_initializer_location_func
        self._write: WriteFunction | None = None
        self._place_of_files: tuple[Path, str] | None = None

    def compile_to_file(self, output_model_path: str | os.PathLike[str] | None = None) -> None:
        """Write the compiled model; by default beside the input as `<name>_ctx.onnx`.

        Raises:
            InvalidArgument: no path, and the input is bytes.
            Fail: the file exists, where `flags` forbid to replace it; no provider compiles parts, where they ask for that.
        """
        output_model_path = output_model_path or self._options.config("ep.context_file_path")
        if not output_model_path and isinstance(self._source, bytes):
            raise InvalidArgument("compile_to_file: expected output_model_path, since the input model is given as bytes")
        source = Path(os.fspath(self._source)) if not isinstance(self._source, bytes) else Path()
        path = Path(output_model_path) if output_model_path else source.with_name(f"{source.stem}_ctx.onnx")
        if os.path.isdir(path) or not path.name:  # noqa: PTH112 # False for names that are too long
            raise InvalidArgument(f"compile_to_file: expected the name of a file, got {str(output_model_path)!r}")
        fresh = OrtCompileApiFlags.ERROR_IF_OUTPUT_FILE_EXISTS in self._flags
        if fresh and os.path.exists(path):  # noqa: PTH110 # the same
            raise Fail(f"Output model file exists already: {path}; remove it, or leave out ERROR_IF_OUTPUT_FILE_EXISTS")
        data, beside = self._compiled(path.parent, path.stem)
        replace_files([*beside, (path, lambda file: file.write(data))])

    def compile_to_bytes(self) -> bytes:
        """The compiled model, with its compiled parts inside, given to the function of `set_ep_context_data_write_func`, or
        where `set_ep_context_binary_information` says.

        Raises:
            InvalidArgument: it would be over protobuf's limit of 2 GB.
            Fail: that function raised.
        """
        if self._place_of_files is not None and not self._embed:
            folder, name = self._place_of_files
            if self._write is None:
                folder.mkdir(parents=True, exist_ok=True)
            return self._with_files(folder, name)
        outside = self._write is not None and not self._embed
        stem = Path(os.fspath(self._source)).stem if not isinstance(self._source, bytes) else "model"
        return self._with_files(Path(), f"{stem}_ctx" if outside else None)

    def compile_to_stream(self, write_function: Callable[[bytes], None]) -> None:
        """Give the compiled model to `write_function`, which may be called several times.

        Raises:
            Fail: `write_function` raised.
        """
        if not callable(write_function):
            raise WrongType(f"compile_to_stream: expected a function, got {write_function!r}")
        data = self.compile_to_bytes()
        try:
            for start in range(0, len(data), 1 << 20):
                write_function(data[start : start + (1 << 20)])
        except Exception as error:
            raise Fail(f"{type(error).__name__}: {error} (raised by the function given to compile_to_stream)") from error

    def set_ep_context_data_write_func(self, write_func: WriteFunction) -> None:
        """Give compiled parts that are not inside the model to `write_func(name, data)` instead of writing files.

        `name` is what the model calls the part, `data` an `OrtEpContextData`. A session on the model gets them back through
        `SessionOptions.set_ep_context_data_read_func`, so that a program can keep them encrypted or anywhere else.

        Raises:
            WrongType: not a function.
        """
        if not callable(write_func):
            raise WrongType(f"set_ep_context_data_write_func: expected a function, got {write_func!r}")
        self._write = write_func

    def clear_ep_context_data_write_func(self) -> None:
        """Write files again."""
        self._write = None

    def set_ep_context_binary_information(self, output_directory: str | os.PathLike[str], model_name: str) -> None:
        """Let `compile_to_bytes` and `compile_to_stream` put compiled parts that are not inside the model into files
        `<model_name>_part<k>.bin` in this folder. A session on the bytes finds them by the entry "ep.context_file_path", set to
        a path in the folder.

        Raises:
            WrongType: not a path and a text.
            InvalidArgument: one is empty, the folder is a file, or the name is a path.
        """
        if not isinstance(output_directory, (str, os.PathLike)) or not isinstance(model_name, str):
            raise WrongType(
                "set_ep_context_binary_information: expected a path and the name of a model, "
                f"got {output_directory!r} and {model_name!r}"
            )
        if not os.fspath(output_directory) or not model_name:
            raise InvalidArgument("set_ep_context_binary_information: output_directory or model_name is empty.")
        folder = Path(output_directory)
        if folder.is_file():
            raise InvalidArgument(
                f"set_ep_context_binary_information: output_directory '{folder}' is a file, expected a folder"
            )
        if Path(model_name).name != model_name:
            raise InvalidArgument(f"set_ep_context_binary_information: model_name: expected a name, got {model_name!r}")
        self._place_of_files = (folder, model_name)

    def _with_files(self, folder: Path, stem: str | None) -> bytes:
        data, beside = self._compiled(folder, stem)
        replace_files(beside)
        return data

    def _compiled(self, folder: Path, stem: str | None) -> tuple[bytes, list[tuple[Path, Write]]]:
        """The compiled model's bytes, and what is to be written to files in `folder`; those of parts outside it `stem` begins
        (None: all inside)."""
        from intarsia.graph.save import to_model_proto

        if as_onnxruntime(self._options.config("session.provider_fallback")) and not self._options.has_providers():
            made = ContextModel(Graph(), refused=["no provider is named (SessionOptions.add_provider)"])
        else:
            session = self._session(folder, stem)
            prefix = self._options.config("ep.context_node_name_prefix")
            engine = session._engine
            made = context_model(engine.whole_model(), engine.compile_context(), self._embed, stem, prefix)
        if not made.compiled and OrtCompileApiFlags.ERROR_IF_NO_NODES_COMPILED in self._flags:
            raise Fail(
                "Unable to compile any nodes. Check that the session EPs support compilation and can execute at least one "
                f"subgraph in the model: {'; '.join(made.refused) or 'it has no nodes'}"
            )
        proto = to_model_proto(made.graph if made.compiled else self._rewritten())
        beside = [self._moved_out(proto, folder)] if self._external is not None else []
        if self._locate is not None:
            self._place(proto)
        data: bytes = proto.SerializeToString()
        if self._write is None:
            return data, [*made.writers(folder), *beside]
        for name, pieces in made.files.items():
            given(self._write, name, pieces)
        return data, beside

    def _session(self, folder: Path, stem: str | None) -> InferenceSession:
        """A session whose parts are compiled; `folder` and `stem` as for `_compiled`."""
        from intarsia.session.inference_session import InferenceSession

        inside = self._embed or stem is None or self._write is not None

        options = copy.deepcopy(self._options)
        options.add_session_config_entry("session.cache_weights_mib", "0")  # a model from the cache has no parts
        options.add_session_config_entry("ep.context_enable", "1")
        options.add_session_config_entry("ep.context_embed_mode", "1" if inside else "0")
        options.add_session_config_entry("ep.context_file_path", str(folder / f"{stem}.onnx") if stem is not None else "")
        options.collect_contexts()
        return InferenceSession(self._source, options)

    def _rewritten(self) -> Graph:
        from intarsia.model.load_and_optimize import load_model
        from intarsia.passes import optimize, standardize

        source = self._source if isinstance(self._source, bytes) else os.fspath(self._source)
        return standardize(optimize(load_model(source, self._options), self._level).graph)

    def _moved_out(self, proto: onnx.ModelProto, folder: Path) -> tuple[Path, Write]:
        """The external file of large initializers, and what goes into it."""
        assert self._external is not None
        pieces: list[bytes] = []
        at = 0
        for tensor in proto.graph.initializer:
            if len(tensor.raw_data) >= self._threshold:
                pieces += [bytes(-at % 4096), tensor.raw_data]
                at += -at % 4096
                _refer(tensor, OrtExternalInitializerInfo(self._external.name, at, len(pieces[-1])))
                at += len(pieces[-1])
        return folder / self._external, lambda file: file.writelines(pieces)

    def _place(self, proto: onnx.ModelProto) -> None:
        """Ask the program where the data of each initializer is."""
        import onnx.numpy_helper

        assert self._locate is not None
        outside = self._outside()
        for tensor in proto.graph.initializer:
            array = onnx.numpy_helper.to_array(tensor)
            known = outside.get(tensor.name)
            try:
                info = self._locate(tensor.name, OrtValue(array), known if known and self._same(known, array) else None)
            except Exception as error:
                raise Fail(f"get_initializer_location_func failed for {tensor.name!r}: {error}") from error
            if info is not None and not isinstance(info, OrtExternalInitializerInfo):
                raise WrongType(
                    f"get_initializer_location_func: expected OrtExternalInitializerInfo for {tensor.name!r}, got {info!r}"
                )
            if info is not None:
                _refer(tensor, info)

    def _outside(self) -> dict[str, OrtExternalInitializerInfo]:
        """Where the input model keeps its initializers in files, by name."""
        import onnx

        if isinstance(self._source, bytes):
            return {}
        found = {}
        for tensor in onnx.load(os.fspath(self._source), load_external_data=False).graph.initializer:
            entries = {entry.key: entry.value for entry in tensor.external_data}
            if tensor.data_location == _EXTERNAL and entries.get("length"):
                place = (entries["location"], int(entries.get("offset", 0)), int(entries["length"]))
                found[tensor.name] = OrtExternalInitializerInfo(*place)
        return found

    def _same(self, info: OrtExternalInitializerInfo, array: np.ndarray) -> bool:
        """Whether the bytes of an input model's file still are this array: a rewrite may have changed it."""
        assert not isinstance(self._source, bytes)
        folder = self._options.config("session.model_external_initializers_file_folder_path")
        path = Path(folder or Path(self._source).parent) / info.filepath
        if info.byte_size != array.nbytes or not path.is_file() or array.dtype.hasobject:
            return False
        stored = np.fromfile(path, np.uint8, info.byte_size, offset=info.file_offset)
        return bool(np.array_equal(stored, np.ascontiguousarray(array).reshape(-1).view(np.uint8)))


def _refer(tensor: onnx.TensorProto, info: OrtExternalInitializerInfo) -> None:
    """Let a tensor's data be in a file."""
    for name, _ in tensor.ListFields():
        if name.name.endswith("_data"):
            tensor.ClearField(name.name)
    tensor.data_location = _EXTERNAL
    for key, value in (("location", info.filepath), ("offset", info.file_offset), ("length", info.byte_size)):
        tensor.external_data.add(key=key, value=str(value))


class LowLevelModelCompiler(ModelCompiler):
    """onnxruntime's compiled class: the same with the arguments by position."""

    def __init__(
        self, options: SessionOptions, model: Any, is_path: bool, embed: bool, external: str, threshold: int, flags: int,
        level: GraphOptimizationLevel, locate: LocationFunction | None,
    ) -> None:  # fmt: skip
        super().__init__(options, model, embed, external or None, threshold, flags, level, locate)


def get_compatibility_info_from_model(model_path: str | os.PathLike[str], ep_type: str) -> str | None:
    """What the metadata of a compiled model says of a provider; None where it says nothing.

    Raises:
        NoSuchFile: the file does not exist.
    """
    path = Path(model_path)
    if not path.is_file():
        raise NoSuchFile(f"Load model {path} failed. File doesn't exist")
    return _compatibility(str(path), ep_type)


def get_compatibility_info_from_model_bytes(model_bytes: bytes, ep_type: str) -> str | None:
    """As `get_compatibility_info_from_model`, of a model's bytes."""
    return _compatibility(model_bytes, ep_type)


def _compatibility(source: str | bytes, ep_type: str) -> str | None:
    from intarsia.graph.load import load

    return load(source).metadata.properties.get(f"ep_compatibility_info.{ep_type}")


def get_model_compatibility_for_ep_devices(ep_devices: Any, compatibility_info: str) -> OrtCompiledModelCompatibility:
    """Whether a compiled model can be used on these devices. `compatibility_info` is what the model's metadata says
    (`get_compatibility_info_from_model`); plugins judge their own, other text that Intarsia did not write is not applicable.

    Raises:
        InvalidArgument: no devices.
    """
    from intarsia.ep_context.format import unsuitable
    from intarsia.options.ep_devices import provider_of
    from intarsia.providers.options import parse_options
    from intarsia.providers.registry import load_provider, resolve

    if not isinstance(compatibility_info, str):
        raise WrongType(f"compatibility_info: expected text, got {compatibility_info!r}")
    if not ep_devices:
        raise InvalidArgument("Invalid argument provided to GetModelCompatibilityForEpDevices: expected devices")
    name, chosen = provider_of(ep_devices)
    provider = load_provider(name)
    if provider.own_contexts:
        options = parse_options(provider, chosen)
        return OrtCompiledModelCompatibility(provider.model_compatibility(options, compatibility_info))
    try:
        made = json.loads(compatibility_info)
    except ValueError:
        return OrtCompiledModelCompatibility.EP_NOT_APPLICABLE
    if not isinstance(made, dict) or "intarsia" not in made:
        return OrtCompiledModelCompatibility.EP_NOT_APPLICABLE
    why, runs = unsuitable(made, resolve([(name, chosen)], cpu_fallback=False)[0].create())
    if not why:
        return OrtCompiledModelCompatibility.EP_SUPPORTED_OPTIMAL
    return (
        OrtCompiledModelCompatibility.EP_SUPPORTED_PREFER_RECOMPILATION
        if runs
        else OrtCompiledModelCompatibility.EP_UNSUPPORTED
    )
