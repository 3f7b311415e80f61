"""`SessionOptions` and `RunOptions`: declared properties with defaults; unknown names and values of other types are errors."""

from __future__ import annotations

import enum
import functools
import sys
from array import array
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn

import numpy as np

from intarsia.errors import InvalidArgument, ModelLoadCanceled, NotImplemented, UnknownOption, WrongType, nearest
from intarsia.lazy_dataclass import dataclass
from intarsia.options.config_keys import PROPERTY_KEYS, RUN_KEYS, SESSION_KEYS, check_entry
from intarsia.passes.level import GraphOptimizationLevel
from intarsia.run_status import new_flag
from intarsia.values.session_enums import ExecutionMode, ExecutionOrder, OrtExecutionProviderDevicePolicy

if TYPE_CHECKING:
    from intarsia.ep_context.external_data import OrtEpContextDataBuffer
    from intarsia.ops.framework.registry import Registry
    from intarsia.progress import LoadProgress


@dataclass(frozen=True)
class Property:
    """A declared setting: its type is its default's; `low` and `high` bound a number."""

    default: Any
    doc: str
    low: int | None = None
    high: int | None = None

    def check(self, owner: str, name: str, value: Any) -> Any:
        expected = type(self.default)
        if expected is int and isinstance(value, int) and not isinstance(value, bool):
            if (self.low is not None and value < self.low) or (self.high is not None and value > self.high):
                bounds = f"from {self.low}" + (f" to {self.high}" if self.high is not None else "")
                raise InvalidArgument(f"{owner}.{name}: expected an integer {bounds}, got {value}")
            return value
        if type(value) is not expected and expected is int and hasattr(value, "__index__") and not isinstance(value, bool):
            return self.check(owner, name, int(value))
        if expected is bool and isinstance(value, (int, np.bool_)) and value in (0, 1):
            return bool(value)
        if type(value) is not expected:
            wanted = expected.__name__
            if issubclass(expected, enum.Enum):
                wanted = ", ".join(f"{wanted}.{member}" for member in expected.__members__)
            raise WrongType(f"{owner}.{name}: expected {wanted}, got {value!r}")
        return value


class Settings:
    """Base: the class attribute `PROPERTIES` declares what can be set; anything else is an AttributeError."""

    PROPERTIES: ClassVar[Mapping[str, Property]] = {}

    def __init__(self) -> None:
        for name, declared in self.PROPERTIES.items():
            object.__setattr__(self, name, declared.default)

    def __setattr__(self, name: str, value: Any) -> None:
        declared = self.PROPERTIES.get(name)
        if declared is None:
            raise AttributeError(f"{type(self).__name__} has no property {name!r}; {nearest(name, self.PROPERTIES)}")
        object.__setattr__(self, name, declared.check(type(self).__name__, name, value))

    def __getattr__(self, name: str) -> NoReturn:
        shown = "" if name.startswith("_") else f"; {nearest(name, self.PROPERTIES)}"
        raise AttributeError(f"{type(self).__name__} has no attribute {name!r}{shown}")

    def __repr__(self) -> str:
        changed = {n: getattr(self, n) for n, p in self.PROPERTIES.items() if getattr(self, n) != p.default}
        return f"{type(self).__name__}({', '.join(f'{n}={v!r}' for n, v in changed.items())})"


class SessionOptions(Settings):
    """How a session is made. Every property has onnxruntime's name and default; `PROPERTIES` says what each one does here."""

    enable_cpu_mem_arena: bool
    enable_mem_pattern: bool
    enable_mem_reuse: bool
    enable_profiling: bool
    profile_file_prefix: str
    execution_mode: ExecutionMode
    execution_order: ExecutionOrder
    graph_optimization_level: GraphOptimizationLevel
    intra_op_num_threads: int
    inter_op_num_threads: int
    log_severity_level: int
    log_verbosity_level: int
    logid: str
    optimized_model_filepath: str
    untrusted: bool
    use_deterministic_compute: bool
    use_per_session_threads: bool
    whitelisted_data_folders: str

    PROPERTIES: ClassVar[Mapping[str, Property]] = {
        "enable_cpu_mem_arena": Property(True, "False: the memory of intermediate tensors is freed after each run"),
        "enable_mem_pattern": Property(True, "no effect: memory is planned before the run"),
        "enable_mem_reuse": Property(True, "no effect: memory is planned before the run"),
        "enable_profiling": Property(False, "record what runs when; end_profiling() writes the file"),
        "profile_file_prefix": Property("onnxruntime_profile_", "the profile's file name begins with this"),
        "execution_mode": Property(
            ExecutionMode.ORT_SEQUENTIAL, "ORT_PARALLEL: branches of small steps run side by side also where that spares little"
        ),
        "execution_order": Property(ExecutionOrder.DEFAULT, "no effect"),
        "graph_optimization_level": Property(GraphOptimizationLevel.ORT_ENABLE_ALL, "which rewrites the graph gets"),
        "intra_op_num_threads": Property(0, "threads of one run; 0: one per physical core this process may use", 0),
        "inter_op_num_threads": Property(0, "branches of small steps that run side by side; 0: as many as threads, 1: none", 0),
        "log_severity_level": Property(-1, "0 verbose, 1 info, 2 warning, 3 error, 4 fatal, -1: the default logger's", -1, 4),
        "log_verbosity_level": Property(0, "no effect: there is one level of verbose records"),
        "logid": Property("", "prefix of this session's log lines"),
        "optimized_model_filepath": Property("", "write the optimised model there"),
        "untrusted": Property(False, "the model is a stranger's: strict checks, no files or machine code of its, and limits"),
        "use_deterministic_compute": Property(False, "the same bits in every run, with any number of threads"),
        "use_per_session_threads": Property(True, "no effect: threads are shared by the process"),
        "whitelisted_data_folders": Property("", "further folders that external data may lie in, separated by semicolons"),
    }

    def __init__(self) -> None:
        super().__init__()
        self.__dict__.update(_config={}, _dims_by_name={}, _dims_by_denotation={}, _providers=[], _initializers={})
        self.__dict__.update(_external_files={}, _selection=None, _cancelled=False, _operators=[], _progress=None)
        self.__dict__.update(_context_reader=None, _contexts_collected=False)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_progress": None}  # who listens is in this process

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)

    def add_session_config_entry(self, key: str, value: str) -> None:
        """Set a configuration entry (see `options.config_keys.SESSION_KEYS`).

        Raises:
            UnknownOption: the key looks like one of Intarsia's or onnxruntime's but does not exist (onnxruntime ignores it).
                Keys of other kinds are others with a warning in the log: a library may read them.
            InvalidArgument: not text, or a value that does not fit the key.
        """
        if key in PROPERTY_KEYS and isinstance(value, str):
            setattr(self, PROPERTY_KEYS[key], _from_text(key, value, self.PROPERTIES[PROPERTY_KEYS[key]].default))
        else:
            check_entry(key, value, SESSION_KEYS, "session")
        self._config_entries[key] = value

    def get_session_config_entry(self, key: str) -> str:
        """The value set for `key`. Raises UnknownOption where it has not been set."""
        if key not in self._config_entries:
            raise UnknownOption(
                f"SessionOptions does not have configuration with key: {key}; set: {sorted(self._config_entries)}"
            )
        return self._config_entries[key]

    @property
    def _config_entries(self) -> dict[str, str]:
        entries: dict[str, str] = self.__dict__["_config"]
        return entries

    def config(self, key: str) -> str:
        """The value of a declared entry, its default where it is not set."""
        found = self._config_entries.get(key)
        return found if found is not None else SESSION_KEYS[key].default

    def config_entries(self) -> dict[str, str]:
        """All entries that were set."""
        return dict(self._config_entries)

    def add_free_dimension_override_by_name(self, name: str, size: int) -> None:
        """Fix the symbolic dimension `name` of the model to `size`."""
        self.__dict__["_dims_by_name"][name] = _checked_size(name, size)

    def add_free_dimension_override_by_denotation(self, denotation: str, size: int) -> None:
        """Fix every dimension with this denotation (such as DATA_BATCH) to `size`."""
        self.__dict__["_dims_by_denotation"][denotation] = _checked_size(denotation, size)

    @property
    def free_dimension_overrides(self) -> dict[str, int]:
        """Overrides by symbol name."""
        return dict(self.__dict__["_dims_by_name"])

    @property
    def denotation_overrides(self) -> dict[str, int]:
        """Overrides by denotation."""
        return dict(self.__dict__["_dims_by_denotation"])

    def add_provider(self, name: str, options: Mapping[str, Any] | None = None) -> None:
        """Append a provider, for sessions that are made without a `providers` argument.

        Raises:
            UnknownOption: no provider has this name.
        """
        from intarsia.providers.registry import check_name

        check_name(name)
        self.__dict__["_providers"].append((name, dict(options or {})))

    def add_provider_for_devices(self, ep_devices: Sequence[Any], options: Mapping[str, Any] | None = None) -> None:
        """Append the provider of these devices (see `get_ep_devices`), for sessions made without a `providers` argument.

        Raises:
            InvalidArgument: no devices, or devices of several providers.
        """
        from intarsia.options.ep_devices import provider_of

        name, own = provider_of(ep_devices)
        self.__dict__["_providers"].append((name, {**own, **(options or {})}))

    def set_provider_selection_policy(self, policy: OrtExecutionProviderDevicePolicy) -> None:
        """Let each session pick the providers of the devices that this policy prefers, where none are named."""
        if not isinstance(policy, OrtExecutionProviderDevicePolicy):
            raise WrongType(f"policy: expected OrtExecutionProviderDevicePolicy, got {policy!r}")
        self.__dict__["_selection"] = policy

    def set_provider_selection_policy_delegate(self, delegate: Callable[..., Sequence[Any]]) -> None:
        """Let `delegate(ep_devices, model_metadata, runtime_metadata, max_selections)` pick devices, where no providers are
        named; the two metadata are dicts of text."""
        if not callable(delegate):
            raise WrongType(f"delegate: expected a function, got {delegate!r}")
        self.__dict__["_selection"] = delegate

    def has_providers(self) -> bool:
        """Whether providers were added, or a policy picks them."""
        return bool(self.__dict__["_providers"]) or self.__dict__["_selection"] is not None

    def has_selection(self) -> bool:
        """Whether a policy or delegate picks the providers, which requires the model's metadata."""
        return not self.__dict__["_providers"] and self.__dict__["_selection"] is not None

    @property
    def providers(self) -> list[tuple[str, dict[str, Any]]]:
        """What `add_provider` and `add_provider_for_devices` were given, else what the selection policy picks."""
        return self.providers_for({})

    def providers_for(self, metadata: Mapping[str, str]) -> list[tuple[str, dict[str, Any]]]:
        """`providers`, for a model that says this of itself."""
        added = list(self.__dict__["_providers"])
        if added or self.__dict__["_selection"] is None:
            return added
        from intarsia.options.provider_selection import selected

        return selected(self.__dict__["_selection"], metadata)

    def set_load_cancellation_flag(self, value: bool) -> None:
        """True: sessions that are being made with these options, and later ones, stop with `ModelLoadCanceled`."""
        if not isinstance(value, bool):
            raise WrongType(f"set_load_cancellation_flag: expected a bool, got {value!r}")
        self.__dict__["_cancelled"] = value

    def set_progress_callback(self, callback: Callable[[LoadProgress], object] | None) -> None:
        """Call `callback(progress)` while a session is made with these options (None: no more), on the thread that makes it.

        `progress` has `stage` ("load", "optimize", "lower", "compile", "ready"), `done` and `total` within the stage, and
        `fraction` of the whole. A callback that returns False stops the making with `ModelLoadCanceled`; what it raises is
        raised to who makes the session. Kernels that were compiled until then are in the cache.

        Raises:
            WrongType: not a function.
        """
        if callback is not None and not callable(callback):
            raise WrongType(f"set_progress_callback: expected a function or None, got {callback!r}")
        self.__dict__["_progress"] = callback

    @property
    def progress_callback(self) -> Callable[[LoadProgress], object] | None:
        """What `set_progress_callback` was given."""
        found: Callable[[LoadProgress], object] | None = self.__dict__["_progress"]
        return found

    def check_cancelled(self) -> None:
        """Raise ModelLoadCanceled where `set_load_cancellation_flag(True)` was called."""
        if self.__dict__["_cancelled"]:
            raise ModelLoadCanceled("making the session was stopped: Session load was canceled due to user request")

    def set_ep_context_data_read_func(
        self, read_func: Callable[[str, OrtEpContextDataBuffer], object], max_data_size: int = 1 << 31
    ) -> None:
        """Ask `read_func(name, buffer)` for the compiled parts that a model keeps outside, instead of reading files.

        It calls `buffer.allocate(size)` once, with at most `max_data_size` bytes, and `buffer.write(data, offset)`. The
        names are those that `ModelCompiler.set_ep_context_data_write_func` was called with, or of files.

        Raises:
            WrongType: not a function.
            InvalidArgument: a negative size.
        """
        if not callable(read_func):
            raise WrongType(f"set_ep_context_data_read_func: expected a function, got {read_func!r}")
        if not isinstance(max_data_size, int) or max_data_size < 0:
            raise InvalidArgument(f"max_data_size: expected a number of bytes, got {max_data_size!r}")
        self.__dict__["_context_reader"] = (read_func, max_data_size)

    def clear_ep_context_data_read_func(self) -> None:
        """Read files again."""
        self.__dict__["_context_reader"] = None

    @property
    def context_reader(self) -> Callable[[str], memoryview] | None:
        """What gives the bytes of a compiled part by its name, where `set_ep_context_data_read_func` was called."""
        if self.__dict__["_context_reader"] is None:
            return None
        from intarsia.ep_context.external_data import taken

        read_func, most = self.__dict__["_context_reader"]
        return functools.partial(taken, read_func, most)

    def collect_contexts(self) -> None:
        """Let whoever makes the session (`ModelCompiler`) have compiled parts made as "ep.context_enable" asks, and write the
        model itself."""
        self.__dict__["_contexts_collected"] = True

    @property
    def writes_contexts(self) -> bool:
        """Whether the session is to write a compiled model."""
        return self.config("ep.context_enable") == "1" and not self.__dict__["_contexts_collected"]

    def add_initializer(self, name: str, value: Any) -> None:
        """Give the model's initializer `name` another value (an OrtValue or an array of its dtype and shape)."""
        self.__dict__["_initializers"][name] = value

    def add_external_initializers(self, names: Sequence[str], values: Sequence[Any]) -> None:
        """`add_initializer` for several."""
        if len(names) != len(values):
            raise InvalidArgument(
                f"add_external_initializers: expected as many values as names, got {len(names)} and {len(values)}"
            )
        self.__dict__["_initializers"].update(zip(names, values, strict=True))

    def add_external_initializers_from_files_in_memory(
        self, names: Sequence[str], buffers: Sequence[Any], lengths: Sequence[int]
    ) -> None:
        """Give the contents of external data files: `names` are the locations in the model.

        Raises:
            InvalidArgument: lists of different lengths, or a buffer shorter than its length.
        """
        if not len(names) == len(buffers) == len(lengths):
            raise InvalidArgument(
                "add_external_initializers_from_files_in_memory: expected lists of one length, "
                f"got {len(names)} names, {len(buffers)} buffers and {len(lengths)} lengths"
            )
        for name, buffer, length in zip(names, buffers, lengths, strict=True):
            view = memoryview(buffer).cast("B")
            if len(view) < length:
                raise InvalidArgument(f"external file {name!r}: expected {length} bytes, the buffer has {len(view)}")
            self.__dict__["_external_files"][name] = bytes(view[:length])

    @property
    def external_files(self) -> dict[str, bytes]:
        """Contents of external data files, by location."""
        return dict(self.__dict__["_external_files"])

    @property
    def initializers(self) -> dict[str, Any]:
        """What `add_initializer` was given."""
        return dict(self.__dict__["_initializers"])

    def register_custom_ops_library(self, library: Any) -> None:
        """Give sessions made with these options operators of your own (see docs/custom-operators.md).

        Args:
            library: a Python module, its name or the path of its file; an `OperatorLibrary`; a function decorated by
                `intarsia.op` or `intarsia.host_op`; or a class in the style of onnx's `OpRun`.

        Raises:
            NotImplemented: a native library (.so, .dll, .dylib): those are made for onnxruntime's C API.
            InvalidArgument, NoSuchFile: it has no operators, or does not exist.
        """
        from intarsia.custom_ops.library import session_operators

        self.__dict__["_operators"] += session_operators([library])

    def operators_in_force(self, new_ops: Sequence[Any] | None = None) -> Registry | None:
        """Operators of a session that has some of its own, by these options or `new_ops`; None: those of the process."""
        layers = list(self.__dict__["_operators"])
        if new_ops is not None:
            from intarsia.custom_ops.library import session_operators

            layers += session_operators(new_ops)
        if not layers and "intarsia.ops.framework.registry_scopes" not in sys.modules:  # nobody can have registered anything
            return None
        from intarsia.ops import builtin
        from intarsia.ops.framework.registry_scopes import PROCESS

        return PROCESS.over(builtin(), layers) if layers or PROCESS else None


def _checked_size(name: str, size: Any) -> int:
    if not isinstance(name, str) or isinstance(size, bool) or not isinstance(size, int) or size < 0:
        raise InvalidArgument(f"a dimension override takes a name and a size from 0, got {name!r} and {size!r}")
    return size


def _from_text(key: str, text: str, default: Any) -> Any:
    """A property's value from its text form in a configuration entry."""
    if isinstance(default, str):
        return text
    if isinstance(default, bool):
        if text not in ("0", "1"):
            raise InvalidArgument(f"configuration entry {key!r}: expected '0' or '1', got {text!r}")
        return text == "1"
    if isinstance(default, int):
        if not text.lstrip("-").isdigit():
            raise InvalidArgument(f"configuration entry {key!r}: expected an integer in text, got {text!r}")
        return int(text)
    members = {f"{m.name.removeprefix('ORT_').lower()}": m for m in type(default)}
    if text.lower() not in members:
        raise InvalidArgument(f"configuration entry {key!r}: {text!r} is not a value; {nearest(text, members)}")
    return members[text.lower()]


class RunOptions(Settings):
    """Settings of one `run`. Setting `terminate` from another thread stops runs that use this object within the step they
    are at."""

    log_severity_level: int
    log_verbosity_level: int
    logid: str
    only_execute_path_to_fetches: bool
    terminate: bool
    training_mode: bool
    synchronize_execution_providers: bool

    PROPERTIES: ClassVar[Mapping[str, Property]] = {
        "log_severity_level": Property(-1, "0 verbose to 4 fatal, for what is logged of this run; -1: the session's", -1, 4),
        "log_verbosity_level": Property(0, "no effect: there is one level of verbose records"),
        "logid": Property("", "the run's name (tag) in its log lines, behind the session's"),
        "only_execute_path_to_fetches": Property(False, "leave out parts that the wanted outputs do not need"),
        "terminate": Property(False, "stop the run with Fail"),
        "training_mode": Property(False, "True is an error: models run for inference"),
        "synchronize_execution_providers": Property(True, "no effect: a run returns when its results are complete"),
    }

    def __init__(self) -> None:
        self.__dict__.update(_config={}, _flag=new_flag(), _followers=[], _adapters=[])
        super().__init__()

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        if name == "terminate":
            self.__dict__["_flag"][0] = int(value)
            for flag in tuple(self.__dict__["_followers"]) if value else ():
                flag[0] = 1
        elif name == "training_mode" and value:
            self.__dict__[name] = False
            raise NotImplemented("RunOptions.training_mode: models run for inference; expected False, got True")

    @property
    def flag(self) -> array[int]:
        """Its first int64 is not 0 while `terminate` is set; compiled code may watch it."""
        found: array[int] = self.__dict__["_flag"]
        return found

    def follow(self, flag: array[int]) -> None:
        """Set `flag` too once `terminate` is set, until `unfollow`."""
        self.__dict__["_followers"].append(flag)
        if self.terminate:
            flag[0] = 1

    def unfollow(self, flag: array[int]) -> None:
        """Let a flag that followed `terminate` go its own way again."""
        others = [other for other in self.__dict__["_followers"] if other is not flag]
        self.__dict__["_followers"][:] = others

    def add_active_adapter(self, adapter: Any) -> None:
        """Run with the parameters of a `LoraAdapter`: they replace the model's initializers or inputs of their names."""
        from intarsia.values.lora import LoraAdapter

        if not isinstance(adapter, LoraAdapter):
            raise WrongType(f"add_active_adapter: expected a LoraAdapter, got {adapter!r}")
        self.__dict__["_adapters"].append(adapter)

    @property
    def adapters(self) -> tuple[Any, ...]:
        """What `add_active_adapter` was given."""
        return tuple(self.__dict__["_adapters"])

    def add_run_config_entry(self, key: str, value: str) -> None:
        """Set a run configuration entry (see `options.config_keys.RUN_KEYS`).

        Raises:
            UnknownOption: the key looks like a known one but does not exist; others are others with a warning in the log.
            InvalidArgument: not text, or a value that does not fit the key.
        """
        check_entry(key, value, RUN_KEYS, "run")
        self.__dict__["_config"][key] = value

    def get_run_config_entry(self, key: str) -> str:
        """The value set for `key`. Raises UnknownOption where it has not been set."""
        entries: dict[str, str] = self.__dict__["_config"]
        if key not in entries:
            raise UnknownOption(f"RunOptions does not have configuration with key: {key}; set: {sorted(entries)}")
        return entries[key]

    def config_entries(self) -> dict[str, str]:
        """All entries that were set."""
        return dict(self.__dict__["_config"])
