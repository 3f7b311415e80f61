"""What onnxruntime calls: OrtEpFactory, which makes an OrtEp for a session, which takes nodes and compiles them.

Each function is a Python function behind one of the library's (`library`). It answers with a status; what it raises becomes
one. Objects that onnxruntime has the address of live in `_Objects` until it gives them back.
"""

from __future__ import annotations

import ctypes
import functools
import logging
import sys
from collections.abc import Callable, Mapping
from types import FrameType

from intarsia.errors import EPFail, UnknownOption, nearest
from intarsia.lazy_dataclass import dataclass
from intarsia.machine.version import __version__
from intarsia.ort_plugin import c_api
from intarsia.ort_plugin.c_api import OrtApi, structure
from intarsia.ort_plugin.fused_part import FusedPart, FusedParts
from intarsia.ort_plugin.loaded_library import Library
from intarsia.ort_plugin.selection import NAME
from intarsia.printable import get_logger
from intarsia.runtime.executor import thread_count

logger = get_logger("intarsia.plugin")

_CPU = 0  # of OrtHardwareDeviceType
_PREFIX = f"ep.{NAME.lower()}."
_PROVIDES = ("GetName", "GetCapability", "Compile", "ReleaseNodeComputeInfos", "IsConcurrentRunSupported")
_COMPUTES = ("CreateState", "Compute", "ReleaseState", "Settle")
_ARGUMENTS = {"CreateEpFactories": 6, "ReleaseEpFactory": 1, "GetSupportedDevices": 6, "CreateEp": 7, "ReleaseEp": 2,
              "GetCapability": 3, "Compile": 6, "ReleaseNodeComputeInfos": 3, "CreateState": 3, "Compute": 3,
              "Settle": 2}  # fmt: skip


@dataclass(frozen=True)
class PluginOptions:
    """Options of IntarsiaCPU (the second argument of `add_provider_for_devices`).

    Attributes:
        intra_op_num_threads: threads of a run; 0: as many as the session's own pool has.
        take_all: every node that can be compiled is taken, however little is to be gained.
    """

    intra_op_num_threads: int = 0
    take_all: bool = False

    @classmethod
    def of(cls, entries: Mapping[str, str]) -> PluginOptions:
        """From a session's configuration entries.

        Raises:
            UnknownOption: an option that does not exist, or a value that is no whole number of 0 or more.
        """
        given = {key.removeprefix(_PREFIX): value for key, value in entries.items() if key.startswith(_PREFIX)}
        for name, value in given.items():
            if name not in cls.__annotations__:
                raise UnknownOption(f"there is no option {name!r}; {nearest(name, cls.__annotations__)}")
            if not value.isdecimal():
                raise UnknownOption(f"option {name!r}: expected a whole number of 0 or more, got {value!r}")
        return cls(int(given.get("intra_op_num_threads", 0)), given.get("take_all", "0") != "0")


class _Factory:
    """An OrtEpFactory."""

    def __init__(self, library: Library, api: OrtApi) -> None:
        self.library, self.api = library, api
        self.words = structure("OrtEpFactory", library.functions)
        self.address = ctypes.addressof(self.words)


class _Provider:
    """An OrtEp: IntarsiaCPU in one session."""

    def __init__(self, factory: _Factory, entries: Mapping[str, str]) -> None:
        self.api = factory.api
        self.options = PluginOptions.of(entries)
        functions = {name: factory.library.functions[name] for name in _PROVIDES}
        self.words = structure("OrtEp", functions)
        self.address = ctypes.addressof(self.words)
        compute = {name: factory.library.functions[name] for name in _COMPUTES}
        self.parts = FusedParts(
            factory.api, compute, entries, self.options.intra_op_num_threads or requested_threads(), self.options.take_all
        )


class _Objects:
    """Objects by the addresses that onnxruntime knows them by."""

    def __init__(self) -> None:
        self.factories: dict[int, _Factory] = {}
        self.providers: dict[int, _Provider] = {}
        self.parts: dict[int, FusedPart] = {}


def callbacks(library: Library) -> dict[str, int]:
    """The words of the library's table."""
    functions = _Functions(library)
    words = {name: functions.address(name, count) for name, count in _ARGUMENTS.items()}
    for name, text in (("GetName", NAME), ("GetVendor", "Intarsia"), ("GetVersion", __version__)):
        words[name] = _lasting_text(text)
    return words


class _Functions:
    """The functions, which live as long as the process."""

    def __init__(self, library: Library) -> None:
        self.library, self.objects = library, _Objects()

    def address(self, name: str, count: int) -> int:
        """The address of a C function of so many words that calls the method of this name."""
        method: Callable[..., int | None] = getattr(self, _METHODS[name])
        kind = ctypes.CFUNCTYPE(ctypes.c_void_p, *[ctypes.c_void_p] * count)
        function = kind(functools.partial(self._answered, name, method))
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(function))
        return ctypes.cast(function, ctypes.c_void_p).value or 0

    def _answered(self, name: str, method: Callable[..., int | None], *words: int | None) -> int:
        """The status of a call: 0 where all is well."""
        try:
            return method(*[word or 0 for word in words]) or 0
        except BaseException as error:  # nothing may be thrown through onnxruntime
            level = logging.WARNING if name == "GetCapability" else logging.DEBUG  # onnxruntime goes on without us
            logger.log(level, "%s failed: %s", name, error, exc_info=True)
            return self._status(error, *words)

    def _status(self, error: BaseException, *words: int | None) -> int:
        factories = self.objects.factories.values()
        api = next((factory.api for factory in factories), None)
        return 0 if api is None else api.status(error)

    # --- the library ---

    def create_factories(self, _name: int, base: int, _log: int, made: int, most: int, count: int) -> int | None:
        """CreateEpFactories: one factory."""
        counted = ctypes.c_size_t.from_address(count)
        counted.value = 0
        try:
            api = OrtApi(base)
        except EPFail as error:
            return c_api.early_status(base, error)
        if most < 1:
            return api.status(EPFail("there is no room for a factory"))
        factory = _Factory(self.library, api)
        self.library.fill({"CreateStatus": api.places["CreateStatus"]})
        self.objects.factories[factory.address] = factory
        ctypes.c_uint64.from_address(made).value = factory.address
        counted.value = 1
        return None

    def release_factory(self, this: int) -> None:
        """ReleaseEpFactory."""
        self.objects.factories.pop(this, None)

    def supported_devices(self, this: int, devices: int, many: int, made: int, most: int, count: int) -> None:
        """GetSupportedDevices: the first CPU."""
        api = self.objects.factories[this].api
        counted = ctypes.c_size_t.from_address(count)
        counted.value = 0
        for device in (ctypes.c_uint64 * many).from_address(devices):
            if api.word("HardwareDevice_Type", device) & 0xFFFFFFFF == _CPU and most:
                ctypes.c_uint64.from_address(made).value = api.get("CreateEpDevice", this, device, None, None)
                counted.value = 1
                return

    def create_provider(
        self, this: int, _devices: int, _metadata: int, _many: int, options: int, _log: int, made: int
    ) -> None:  # fmt: skip
        """CreateEp."""
        factory = self.objects.factories[this]
        provider = _Provider(factory, _entries(factory.api, options))
        self.objects.providers[provider.address] = provider
        ctypes.c_uint64.from_address(made).value = provider.address

    def release_provider(self, _this: int, provider: int) -> None:
        """ReleaseEp."""
        self.objects.providers.pop(provider, None)

    # --- a session ---

    def capability(self, this: int, graph: int, support: int) -> None:
        """GetCapability: the parts that IntarsiaCPU takes, which are compiled now."""
        provider = self.objects.providers[this]
        api = provider.api
        if api.get("Graph_GetParentNode", graph):
            return  # bodies are compiled with the node that has them
        for handles in provider.parts.take(graph):
            nodes = (ctypes.c_uint64 * len(handles))(*handles)
            fusion = (ctypes.c_uint64 * 2)(c_api.VERSION, 1)  # weights need not be stored for us
            api.call("EpGraphSupportInfo_AddNodesToFuse", support, nodes, len(handles), fusion)

    def compile(self, this: int, graphs: int, fused: int, count: int, made: int, contexts: int) -> None:
        """Compile: what runs each part, and where the session wants them EPContext nodes that hold them."""
        provider = self.objects.providers[this]
        infos = (ctypes.c_uint64 * count).from_address(made)
        given, nodes = ((ctypes.c_uint64 * count).from_address(at) for at in (graphs, fused))
        parts = [provider.parts.part(graph, node) for graph, node in zip(given, nodes, strict=True)]
        if provider.parts.contexts.wanted:
            places = (ctypes.c_uint64 * count).from_address(contexts)
            for i, part in enumerate(parts):
                places[i] = provider.parts.context_node(part, given[i], nodes[i])
        for i, part in enumerate(parts):
            self.objects.parts[part.address] = part
            infos[i] = part.address

    def release_parts(self, _this: int, infos: int, count: int) -> None:
        """ReleaseNodeComputeInfos."""
        for address in (ctypes.c_uint64 * count).from_address(infos):
            part = self.objects.parts.pop(address, None)
            if part is not None:
                part.close()

    # --- a run ---

    def create_state(self, this: int, _context: int, state: int) -> None:
        """CreateState: a part needs none."""
        ctypes.c_uint64.from_address(state).value = this

    def compute(self, this: int, _state: int, context: int) -> None:
        """Compute, where native code does not know the sizes yet."""
        self.objects.parts[this].run(context)

    def settle(self, this: int, _call: int) -> None:
        """Say what a run on new sizes is, which native code has noted."""
        self.objects.parts[this].settle()


_METHODS = {
    "CreateEpFactories": "create_factories", "ReleaseEpFactory": "release_factory", "GetSupportedDevices": "supported_devices",
    "CreateEp": "create_provider", "ReleaseEp": "release_provider", "GetCapability": "capability", "Compile": "compile",
    "ReleaseNodeComputeInfos": "release_parts", "CreateState": "create_state", "Compute": "compute",
    "Settle": "settle",
}  # fmt: skip


def requested_threads() -> int:
    """How many threads the SessionOptions ask for of the session that onnxruntime is making: no function of OrtApi tells, but
    the Python that makes it has them. 0: there is none, or it has the process's threads."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if str(frame.f_globals.get("__name__", "")).startswith("onnxruntime."):
            for value in frame.f_locals.values():
                if type(value).__name__ == "SessionOptions":
                    return thread_count(value.intra_op_num_threads) if value.use_per_session_threads else 0
        frame = frame.f_back
    return 0


def _entries(api: OrtApi, options: int) -> dict[str, str]:
    """A session's configuration entries."""
    pairs = api.get("GetSessionOptionsConfigEntries", options)
    try:
        keys, values, count = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_size_t()
        api.word("GetKeyValuePairs", pairs, ctypes.byref(keys), ctypes.byref(values), ctypes.byref(count))
        if not count.value:
            return {}
        texts = [(ctypes.c_char_p * count.value).from_address(at.value or 0) for at in (keys, values)]
        return {(key or b"").decode(): (value or b"").decode() for key, value in zip(*texts, strict=True)}
    finally:
        api.word("ReleaseKeyValuePairs", pairs)


def _lasting_text(text: str) -> int:
    """The address of a text that lives as long as the process."""
    buffer = ctypes.create_string_buffer(text.encode())
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(buffer))
    return ctypes.addressof(buffer)
