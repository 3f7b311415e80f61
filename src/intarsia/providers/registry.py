"""Which providers there are: built in, installed as packages (entry points), or registered by the program itself."""

from __future__ import annotations

import dataclasses
import importlib
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeGuard, TypeVar

from intarsia.ep.provider import ExecutionProvider, honour_old_names
from intarsia.errors import EPFail, IntarsiaError, InvalidArgument, UnknownOption, WrongType, crashed, nearest
from intarsia.lazy_dataclass import dataclass
from intarsia.machine import fork_safety
from intarsia.printable import INFO, WARNING, get_logger
from intarsia.providers.fallback import ProviderWarning, fallback_mode, report
from intarsia.providers.foreign_names import ALIASES, KNOWN_ELSEWHERE
from intarsia.providers.options import parse_options, values_of

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint
    from types import ModuleType

    from intarsia.providers.plugin_packages import PluginPackage

__all__ = ["ProviderChoice", "ProviderWarning", "get_all_providers", "get_available_providers", "load_provider", "resolve"]

ENTRY_POINT_GROUP = "intarsia.execution_providers"
CPU = "CPUExecutionProvider"
TENSORRT = "TensorrtExecutionProvider"
TENSORRT_RTX = "NvTensorRTRTXExecutionProvider"
CUDA = "CUDAExecutionProvider"
ROCM = "ROCMExecutionProvider"
WEBGPU = "WebGpuExecutionProvider"
DML = "DmlExecutionProvider"
OPENCL = "OpenCLExecutionProvider"
OPENVINO = "OpenVINOExecutionProvider"
ACL = "ACLExecutionProvider"
NNAPI = "NnapiExecutionProvider"
COREML = "CoreMLExecutionProvider"
REFERENCE = "ReferenceExecutionProvider"

BUILTIN: dict[str, str] = {
    TENSORRT_RTX: "intarsia.providers.tensorrt:NvTensorRTRTXExecutionProvider",
    TENSORRT: "intarsia.providers.tensorrt:TensorrtExecutionProvider",
    CUDA: "intarsia.providers.cuda:CUDAExecutionProvider",
    ROCM: "intarsia.providers.rocm:ROCMExecutionProvider",
    WEBGPU: "intarsia.providers.webgpu:WebGpuExecutionProvider",
    DML: "intarsia.providers.webgpu:DmlExecutionProvider",
    OPENCL: "intarsia.providers.opencl:OpenCLExecutionProvider",
    OPENVINO: "intarsia.providers.openvino:OpenVINOExecutionProvider",
    ACL: "intarsia.providers.acl:ACLExecutionProvider",
    NNAPI: "intarsia.providers.nnapi:NnapiExecutionProvider",
    COREML: "intarsia.providers.coreml:CoreMLExecutionProvider",
    CPU: "intarsia.providers.cpu:CPUExecutionProvider",
    REFERENCE: "intarsia.providers.reference:ReferenceExecutionProvider",
}
"""Name -> "module:attribute", in order of priority."""

ProviderName = str | type[ExecutionProvider] | ExecutionProvider
ProviderArgument = ProviderName | tuple[ProviderName, Mapping[str, Any]]

_Answer = TypeVar("_Answer")

_logger = get_logger("intarsia.providers")
_lock = fork_safety.lock()
_registered: dict[str, type[ExecutionProvider] | str] = {}


@dataclass(frozen=True)
class ProviderChoice:
    """A provider class with its checked options, or an instance. `implied`: the last resort, which the user did not name."""

    provider: type[ExecutionProvider]
    options: Any
    instance: ExecutionProvider | None = None
    implied: bool = False

    @property
    def argument(self) -> ProviderArgument:
        """What names it in a list of providers."""
        if self.instance is not None:
            return self.instance
        return self.provider, dict(values_of(self.options))

    @property
    def name(self) -> str:
        return self.instance.name if self.instance is not None else self.provider.name

    def create(self) -> ExecutionProvider:
        """The provider.

        Raises:
            EPFail: it cannot be made, or crashed.
        """
        if self.instance is not None:
            return self.instance
        try:
            return self.provider(self.options)
        except EPFail as error:
            error.provider = error.provider or self.name
            raise
        except (IntarsiaError, MemoryError):
            raise
        except Exception as error:
            raise crashed(self.name, "when it was made", error) from error


def register_execution_provider(
    provider: type[ExecutionProvider] | str, location: str | None = None, *, replace: bool = False
) -> None:
    """Make a provider known to this process.

    Args:
        provider: the class, or its name together with `location`.
        location: "module:attribute" of the class, imported when the provider is first used.
        replace: allow a name that exists already.

    Raises:
        InvalidArgument: the name exists, or the arguments do not say where the class is.
    """
    entry: str | type[ExecutionProvider]
    if isinstance(provider, str):
        if not location or ":" not in location:
            raise InvalidArgument(f"where is {provider!r}? expected location='module:attribute', got {location!r}")
        name, entry = provider, location
    else:
        if not (isinstance(provider, type) and issubclass(provider, ExecutionProvider)):
            raise InvalidArgument(f"expected a subclass of ExecutionProvider or a name, got {provider!r}")
        name, entry = _declared_name(provider), provider
    with _lock:
        if not replace and (name in BUILTIN or name in _registered):
            raise InvalidArgument(
                f"an execution provider named {name!r} is registered already; pass replace=True to replace it"
            )
        _registered[name] = entry


def unregister_execution_provider(name: str) -> None:
    """Forget a provider that `register_execution_provider` added. Sessions that use it are not affected.

    Raises:
        UnknownOption: no such provider was registered.
    """
    with _lock:
        if name not in _registered:
            raise UnknownOption(f"no execution provider {name!r} was registered; {nearest(name, _registered)}")
        del _registered[name]


def _declared_name(provider: type[ExecutionProvider]) -> str:
    name = getattr(provider, "name", None)
    if not isinstance(name, str) or not name:
        raise InvalidArgument(f"{provider.__qualname__} has no name; expected a class attribute name = '...ExecutionProvider'")
    return name


def _installed() -> Mapping[str, EntryPoint]:
    """Providers of installed packages. The metadata of every package is read again when the path or a folder on it changes."""
    return _found_on(tuple((folder, _changed_at(folder)) for folder in sys.path))


def _changed_at(folder: str) -> int:
    try:
        return os.stat(folder).st_mtime_ns  # noqa: PTH116 # for every folder in every start
    except OSError:
        return 0


@lru_cache(maxsize=1)
def _found_on(path: tuple[tuple[str, int], ...]) -> Mapping[str, EntryPoint]:
    from importlib.metadata import entry_points

    return {entry.name: entry for entry in entry_points(group=ENTRY_POINT_GROUP)}


def _plugins() -> ModuleType:
    """What finds packages of plugins: a session on the CPU requests none."""
    from intarsia.providers import plugin_packages

    return plugin_packages


def _is_plugin_package(source: object) -> TypeGuard[PluginPackage]:
    return not isinstance(source, (str, type)) and isinstance(source, _plugins().PluginPackage)


def _names() -> list[str]:
    """Every provider that can be loaded, in order of priority: registered, installed, of plugins, built in."""
    plugins = (name for package in _plugins().installed().values() for name in package.names)
    return list(dict.fromkeys([*(n for n in (*_registered, *_installed(), *plugins) if n not in BUILTIN), *BUILTIN]))


def _source(name: str) -> type[ExecutionProvider] | str | EntryPoint | PluginPackage | None:
    """Where the provider is, without looking at installed packages when the name is registered, or is the CPU's.

    Where Intarsia and a plugin have providers of one name, Intarsia's is taken if it works on this machine. The name of a
    plugin's package stands for the plugin's in any case.
    """
    if name in _registered:
        return _registered[name]
    if name in BUILTIN and (name in (CPU, REFERENCE) or _plugins().of(name) is None or not _own_obstacle(name)):
        return BUILTIN[name]
    return _installed().get(name) or _plugins().of(name)


@lru_cache(maxsize=64)
def _own_obstacle(name: str) -> str:
    """Why Intarsia's own provider of this name does not work on this machine; "" where it does."""
    try:
        return why_unavailable(_import(BUILTIN[name]))
    except Exception as error:  # noqa: BLE001 # what is behind it may raise anything when it is imported
        return f"{type(error).__name__}: {error}"


def check_name(name: str) -> None:
    """Raise UnknownOption where no provider of this name is installed, registered or known elsewhere."""
    if not isinstance(name, str):
        raise WrongType(f"expected the name of an execution provider, got {name!r}")
    name = ALIASES.get(name, name)
    if name not in KNOWN_ELSEWHERE and _source(name) is None:
        raise UnknownOption(_unknown(name))


def _unknown(name: str) -> str:
    valid = nearest(name, {*_names(), *KNOWN_ELSEWHERE})
    return f"Unknown Provider Type: {name}: no execution provider is named {name!r}; {valid}"


def load_provider(name: str) -> type[ExecutionProvider]:
    """The class of an installed provider.

    Raises:
        UnknownOption: the name does not exist.
        EPFail: the provider is known but not installed, or its package cannot be imported.
    """
    name = ALIASES.get(name, name)
    source = _source(name)
    if source is None:
        names = _names()
        if name in KNOWN_ELSEWHERE:
            from intarsia.providers.missing_libraries import looked_for

            raise EPFail(
                f"{name} ({KNOWN_ELSEWHERE[name]}) is not part of this version of intarsia and no installed package has it: "
                f"install one with an entry point {name!r} in the group {ENTRY_POINT_GROUP!r}. {looked_for(name)}"
                f"Available: {', '.join(names)}"
            )
        raise UnknownOption(_unknown(name))
    try:
        found = _of_plugin(source, name) if _is_plugin_package(source) else _import(source)
    except Exception as error:
        raise EPFail(
            f"{name} cannot be loaded from {_where(source)}: {type(error).__name__}: {error}{_beside(name)}"
        ) from error
    if not (isinstance(found, type) and issubclass(found, ExecutionProvider)):
        raise EPFail(f"{name} cannot be loaded: expected a subclass of ExecutionProvider, got {found!r}")
    if _declared_name(found) != name and not _plugins().is_plugin_name(name):
        raise EPFail(f"the provider registered as {name!r} calls itself {found.name!r}: the names must agree")
    return found


def _where(source: Any) -> Any:
    if _is_plugin_package(source):
        return f"the package {source.distribution} {source.version}"
    return source if isinstance(source, str) else getattr(source, "value", source)


def _beside(name: str) -> str:
    """What Intarsia's own provider lacks, where a plugin's stands in for it."""
    if name not in BUILTIN or name in _registered or _plugins().of(name) is None or not (own := _own_obstacle(name)):
        return ""
    return f". Intarsia's own {name} does not work here either: {own}"


def _of_plugin(package: PluginPackage, name: str) -> Any:
    return importlib.import_module("intarsia.providers.provider_libraries").provider_of_package(package, name)


def _import(source: Any) -> Any:
    if isinstance(source, str):
        module, _, attribute = source.partition(":")
        return getattr(importlib.import_module(module), attribute)
    return source if isinstance(source, type) else source.load()


def get_available_providers() -> list[str]:
    """Names of the providers that work on this machine, in order of priority. One that is installed but cannot be loaded is
    left out with a warning in the log; one whose devices a driver emulates on the CPU comes after the CPU's own. The library of
    a plugin's package is loaded once on a machine: what it says is remembered."""
    return available_providers()


def available_providers(*, anew: bool = False) -> list[str]:
    """As `get_available_providers`; `anew`: libraries of plugins are queried again, and not what is remembered of them."""
    names: list[str] = []
    behind: list[str] = []
    for name in _names():
        missing, emulated = _state(name, anew)
        if missing:
            level = INFO if name in BUILTIN else WARNING  # what was installed for its own sake should work
            _logger.log(level, "%s is not available: %s", name, missing)
        else:
            (behind if emulated else names).append(name)
    after = names.index(CPU) + 1 if CPU in names else len(names)
    return names[:after] + behind + names[after:]


def _state(name: str, anew: bool) -> tuple[str, bool]:
    """Why a provider does not work on this machine ("" where it does), and whether a driver emulates its devices on the CPU."""
    source = _source(name)
    if _is_plugin_package(source):
        said = importlib.import_module("intarsia.providers.plugin_answers").answer(source, name, anew=anew)
        return said.missing, said.emulated
    try:
        provider = load_provider(name)
        missing = why_unavailable(provider)
        return missing, not missing and _answer(provider, provider.emulated)
    except EPFail as error:
        return str(error), False


def plugin_of(name: str) -> PluginPackage | None:
    """The package of a plugin library whose provider a name means; None where it means another provider."""
    source = _source(ALIASES.get(name, name))
    return source if _is_plugin_package(source) else None


def get_all_providers() -> list[str]:
    """Names of all providers that Intarsia or onnxruntime know, installed or not; the CPU is last."""
    installed, last = _names(), (REFERENCE, CPU)
    own = (n for n in BUILTIN if n not in last)
    return list(dict.fromkeys([*(n for n in installed if n not in BUILTIN), *KNOWN_ELSEWHERE, *own, *last]))


def resolve(
    providers: Sequence[ProviderArgument] | str | None,
    provider_options: Sequence[Mapping[str, Any]] | None = None,
    *,
    cpu_fallback: bool = True,
    mode: str = "",
) -> list[ProviderChoice]:
    """The providers of a session in priority order, each with its options checked.

    None or an empty list means the CPU. The CPU is appended where it is not named (the reference provider where the CPU
    provider cannot work), unless `cpu_fallback` is False. A name that does not exist is always an error. A provider that
    exists but cannot work here is an error or left out with a `ProviderWarning`, as `mode` says (see `providers.fallback`;
    "": the default in force).

    Raises:
        UnknownOption: a provider or option that does not exist.
        InvalidArgument: arguments of another form, or an option's value of another type.
        EPFail: a named provider cannot work on this machine and none may stand in; says what is missing for each.
    """
    requests = _requests(providers, provider_options)
    choices: list[ProviderChoice] = []
    failures: list[str] = []
    for name, options in requests:
        try:
            choice = _choose(name, options)
        except EPFail as error:
            failures.append(str(error))
            continue
        if any(c.name == choice.name for c in choices):
            report(f"provider {choice.name!r} is named twice; the first is used")
            continue
        choices.append(choice)
    mode = fallback_mode(mode)
    if failures and mode == "error":
        raise EPFail("a requested execution provider cannot be used:\n" + "\n".join(f"  {f}" for f in failures))
    if failures and not choices and (mode == "listed" or not cpu_fallback):
        raise EPFail("none of the requested execution providers can be used:\n" + "\n".join(f"  {f}" for f in failures))
    if cpu_fallback and not any(c.name == CPU for c in choices):
        choices += _last_resort(choices)
    for failure in failures:
        report(f"{failure.rstrip('.')}. The session goes on with {', '.join(c.name for c in choices)}.")
    return choices


def started(choices: list[ProviderChoice], mode: str) -> tuple[list[ProviderChoice], tuple[ExecutionProvider, ...]]:
    """The providers of a session, made. One that cannot be is an error or left out, as `mode` says (see `resolve`).

    Raises:
        EPFail: a provider cannot be made and none may stand in.
    """
    left: list[ProviderChoice] = []
    instances: list[ExecutionProvider] = []
    failures: list[EPFail] = []
    for choice in choices:
        try:
            instances.append(choice.create())
            left.append(choice)
        except EPFail as error:
            failures.append(error)
    if failures and (mode == "error" or not left or (mode == "listed" and all(c.implied for c in left))):
        raise failures[0]
    for failure in failures:
        report(f"{str(failure).rstrip('.')}. The session goes on with {', '.join(c.name for c in left)}.")
    return left, tuple(instances)


def why_unavailable(provider: type[ExecutionProvider], options: Any = None) -> str:
    """Why a provider cannot be used on this machine, with `options` where they are given; "" where it can.

    Raises:
        EPFail: it crashed when it was asked.
    """
    return _answer(provider, provider.unavailable if options is None else lambda: provider.missing_for(options))


def _answer(provider: type[ExecutionProvider], question: Callable[[], _Answer]) -> _Answer:
    try:
        return question()
    except (IntarsiaError, MemoryError):
        raise
    except Exception as error:
        raise crashed(provider.name, "when it was asked whether it works on this machine", error) from error


def _last_resort(choices: Sequence[ProviderChoice]) -> list[ProviderChoice]:
    try:
        return [dataclasses.replace(_choose(CPU, {}), implied=True)]
    except EPFail as error:
        if any(c.name == REFERENCE for c in choices):
            return []
        _logger.warning("%s; nodes that no other provider takes run on %s, which is slow", error, REFERENCE)
        return [dataclasses.replace(_choose(REFERENCE, {}), implied=True)]


def _requests(
    providers: Sequence[ProviderArgument] | str | None, provider_options: Sequence[Mapping[str, Any]] | None
) -> list[tuple[ProviderName, Mapping[str, Any]]]:
    if isinstance(providers, (str, bytes)) or not isinstance(providers, (Sequence, type(None))):
        raise InvalidArgument(
            f"providers: expected a list of names or of (name, options), got {providers!r}; write [{providers!r}]"
        )
    given = list(providers or [CPU])
    if provider_options is None:
        return [_request(entry) for entry in given]
    if isinstance(provider_options, (Mapping, str)) or not isinstance(provider_options, Sequence):
        raise InvalidArgument(f"provider_options: expected a list of dicts, one per provider, got {provider_options!r}")
    if len(provider_options) != len(given):
        raise InvalidArgument(f"provider_options: expected {len(given)} dicts, one per provider, got {len(provider_options)}")
    names = [entry for entry in given if not isinstance(entry, tuple)]
    if len(names) < len(given):
        raise InvalidArgument("give options either as (name, options) in providers or as provider_options, not both")
    return [_request((entry, options)) for entry, options in zip(names, provider_options, strict=True)]


def _request(entry: ProviderArgument) -> tuple[ProviderName, Mapping[str, Any]]:
    name, options = entry if isinstance(entry, tuple) and len(entry) == 2 else (entry, {})
    valid = isinstance(name, (str, ExecutionProvider)) or (isinstance(name, type) and issubclass(name, ExecutionProvider))
    if not valid:
        raise InvalidArgument(f"providers: expected a name or a pair (name, options), got {entry!r}")
    if not isinstance(options, Mapping):
        raise InvalidArgument(f"options of {name!r}: expected a dict, got {options!r}")
    return name, options


def _choose(name: ProviderName, options: Mapping[str, Any]) -> ProviderChoice:
    if isinstance(name, ExecutionProvider):
        _honour_added_names(type(name))
        if options:
            raise InvalidArgument(f"{name.name} is an instance and has its options already, got {dict(options)!r} too")
        return ProviderChoice(type(name), name.options, name)
    provider = load_provider(name) if isinstance(name, str) else name
    _honour_added_names(provider)
    missing = "" if provider.options_may_help else why_unavailable(provider)
    parsed = parse_options(provider, options)
    choice = ProviderChoice(provider, parsed)
    missing = missing or why_unavailable(provider, parsed)
    if missing:
        raise EPFail(f"{provider.name} cannot be used on this machine: {missing}{_beside(provider.name)}")
    return choice


def _honour_added_names(provider: type[ExecutionProvider]) -> None:
    """`honour_old_names` once more: a program may have added methods to its class since that was made."""
    if not provider.__module__.startswith("intarsia."):
        honour_old_names(provider)
