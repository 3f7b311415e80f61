"""A vendor's plugin library, opened: its factories, what each says of itself, and the devices that it can use."""

from __future__ import annotations

import ctypes
import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from intarsia.errors import EPFail, Fail, IntarsiaError, NoSuchFile
from intarsia.machine import fork_safety
from intarsia.providers.plugin.interface.api_tables import NEWEST, OLDEST
from intarsia.providers.plugin.interface.general_entries import Incompatibility
from intarsia.providers.plugin.interface.handles import find, take_back
from intarsia.providers.plugin.interface.hardware import OrtEpDevice, OrtHardware
from intarsia.providers.plugin.interface.host_tables import api_base, refused
from intarsia.providers.plugin.interface.members import Members
from intarsia.providers.plugin.interface.session_state import Logger
from intarsia.providers.plugin.interface.status import raise_for

_MOST_FACTORIES, _MOST_DEVICES = 8, 64
_unserved = (
    f"it requested version {{}} of onnxruntime's interface, and Intarsia has {OLDEST} to {NEWEST}; install a release of it for "
    "one of these"
)


class OpenLibrary:
    """A shared library that was opened; it stays so until the process ends, as its threads may be in it.

    Raises:
        NoSuchFile: there is no such file.
        Fail: it cannot be loaded, or is no plugin.
        EPFail: another host has it in this process.
    """

    def __init__(self, path: Path, registered_name: str) -> None:
        self.path, self.registered_name = path, registered_name
        self.logger = Logger(registered_name)
        self._library = _open(path)
        self._release = _function(self._library, "ReleaseEpFactory", self.path)
        self._release.restype, self._release.argtypes = ctypes.c_void_p, [ctypes.c_void_p]

    def make_factories(self) -> list[Factory]:
        """Its factories, made anew.

        Raises:
            Fail: it makes none.
            IntarsiaError: it refuses; of the kind that it says, with its words.
        """
        create = _function(self._library, "CreateEpFactories", self.path)
        create.restype = ctypes.c_void_p
        create.argtypes = [ctypes.c_char_p, *[ctypes.c_void_p] * 3, ctypes.c_size_t, ctypes.c_void_p]
        before = len(refused)
        found, count = (ctypes.c_void_p * _MOST_FACTORIES)(), ctypes.c_size_t(0)
        status = create(
            self.registered_name.encode(), ctypes.addressof(api_base()), self.logger.handle, ctypes.addressof(found),
            _MOST_FACTORIES, ctypes.addressof(count),
        )  # fmt: skip
        unserved = ", ".join(map(str, dict.fromkeys(refused[before:])))
        why = _unserved.format(unserved) if unserved else ""
        try:
            raise_for(status, "CreateEpFactories", self.path.name)
        except IntarsiaError as error:
            if not why:
                raise
            raise type(error)(f"{error}: {why}") from error
        made = [address for address in found[: min(count.value, _MOST_FACTORIES)] if address]
        if not made:
            raise Fail(f"{self.path.name} has no execution provider: CreateEpFactories made none{f': {why}' if why else ''}")
        return [Factory(self, address) for address in made]

    def release_factory(self, address: int) -> None:
        """Give a factory back."""
        raise_for(self._release(address), "ReleaseEpFactory", self.path.name)


class Factory:
    """OrtEpFactory: a kind of providers that a library makes."""

    def __init__(self, library: OpenLibrary, address: int) -> None:
        self.library = library
        self.members = Members("OrtEpFactory", address, library.path.name)
        self.name = self.members.text("GetName")
        if not self.name:
            version = self.members.version
            library.release_factory(address)
            raise Fail(
                f"{library.path.name} made a factory without a name, for version {version} of onnxruntime's interface; "
                f"expected a version from {OLDEST} to {NEWEST}"
            )
        self.members.provider = self.name
        self.vendor = self.members.text("GetVendor")
        self.version = self.members.text("GetVersion")
        vendor_id = self.members.call_if_there("GetVendorId")
        self.vendor_id = int(vendor_id or 0)
        self.released = False
        self._lock = fork_safety.recursive_lock()
        self._devices: dict[tuple[Any, ...], tuple[tuple[OrtHardware, ...], list[OrtEpDevice]]] = {}
        self._nusers = 0

    def used(self) -> None:
        """Note a provider that it made: it is not released before this is gone."""
        self._nusers += 1

    def left(self) -> None:
        """A provider that it made is gone. They are counted and not referred to: the garbage collector, which may call this,
        ends weak references in an order of its own."""
        self._nusers -= 1
        if self.released:
            self._give_back()

    def release(self) -> None:
        """Give it back to its library, as soon as no provider of it is left; it makes no others from now on."""
        self.released = True
        self._give_back()

    def _give_back(self) -> None:
        if not self._nusers and self.members.address:
            address, self.members.address = self.members.address, 0
            self.library.release_factory(address)

    @property
    def interface_version(self) -> int:
        """The version of onnxruntime's interface that it was built for."""
        return self.members.version

    def devices(self, hardware: Sequence[OrtHardware]) -> list[OrtEpDevice]:
        """The devices among `hardware` on which it makes providers, each with what it says of it; it is asked once about the
        same, since plugins keep what they make for the answer."""
        key = tuple(device.fields for device in hardware)
        with self._lock:
            if key not in self._devices:
                self._devices[key] = (tuple(hardware), self._ask_for_devices(hardware))
            return self._devices[key][1]

    def incompatibility(self, hardware: OrtHardware) -> Incompatibility | None:
        """Why it does not work on a device, in its own words; None where it does not say."""
        if not self.members.has("GetHardwareDeviceIncompatibilityDetails"):
            return None
        found = Incompatibility()
        self.members.call("GetHardwareDeviceIncompatibilityDetails", hardware.handle, found.handle)
        return found if found.reasons or found.notes else None

    def _ask_for_devices(self, hardware: Sequence[OrtHardware]) -> list[OrtEpDevice]:
        given = (ctypes.c_void_p * max(1, len(hardware)))(*(device.handle for device in hardware))
        found = (ctypes.c_void_p * _MOST_DEVICES)()
        count = ctypes.c_size_t(0)
        self.members.call(
            "GetSupportedDevices", ctypes.addressof(given), len(hardware), ctypes.addressof(found), _MOST_DEVICES,
            ctypes.addressof(count),
        )  # fmt: skip
        devices = [find(found[i], OrtEpDevice) for i in range(min(count.value, _MOST_DEVICES))]
        for device in devices:
            take_back(device.handle)
        return devices


def _function(library: Any, name: str, path: Path) -> Any:
    try:
        return getattr(library, name)
    except AttributeError:
        raise Fail(
            f"Failed to load library {path}: it has no function {name!r}, so it is no plugin for onnxruntime's interface"
        ) from None


def _open(path: Path) -> Any:
    """The library, its own folder searched for what it needs."""
    if not path.is_file():
        raise NoSuchFile(f"Failed to load library {path}: there is no such file")
    if _is_onnxruntimes(path):
        raise EPFail(
            f"onnxruntime has registered {path} in this process: a plugin keeps the functions of the first host that it was "
            "given, and would call them with this one's objects; use one host for it in a process"
        )
    try:
        return ctypes.CDLL(str(path), winmode=0x1100) if os.name == "nt" else ctypes.CDLL(str(path), mode=os.RTLD_LOCAL)
    except OSError as error:
        raise Fail(f"Failed to load library {path}: {_missing(str(error))}") from error


def _is_onnxruntimes(path: Path) -> bool:
    """Whether onnxruntime, where the program has imported it, has registered the library."""
    host = sys.modules.get("onnxruntime")
    if host is None or sys.modules.get("intarsia") is host or not hasattr(host, "get_ep_devices"):
        return False
    try:
        paths = {device.ep_metadata.get("library_path") for device in host.get_ep_devices()}
    except Exception:  # noqa: BLE001 # another program's: whatever it says, it is not asked twice
        return False
    return any(known and os.path.realpath(known) == str(path) for known in paths)


def _missing(message: str) -> str:
    """What a loader's message says, and what to do about a library that is missing."""
    found = re.match(r"(?P<name>[^:\s]+\.so[.\d]*): cannot open shared object file", message)
    if found is None:
        return message
    return f"it needs {found['name']!r}, which is not installed or not where the loader looks: {message}"
