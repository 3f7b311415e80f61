"""What the library of an installed plugin package says of this machine, remembered, so that it is not loaded only to be listed.

Loading a plugin's library takes up to seconds. Its answers are kept in the cache, for its file as it is (path, size, time of
change) and this machine's hardware. A library that cannot be loaded is tried anew each time: drivers come and go.
"""

from __future__ import annotations

import os
import pickle
from typing import TYPE_CHECKING

from intarsia.errors import IntarsiaError
from intarsia.lazy_dataclass import dataclass

if TYPE_CHECKING:
    from collections.abc import Sequence

    from intarsia.ep.device import Device
    from intarsia.ep.hardware import EpDevice
    from intarsia.providers.plugin_packages import PluginPackage

_ENVIRONMENT = ("LD_LIBRARY_PATH", "VK_DRIVER_FILES", "VK_ICD_FILENAMES", "VK_ADD_DRIVER_FILES", "CUDA_VISIBLE_DEVICES")
"""Variables by which the same library may find other devices."""


@dataclass(frozen=True)
class PluginAnswer:
    """What a plugin's provider says of this machine.

    Attributes:
        missing: why it does not work here with default options; "" where it does.
        devices: the hardware that it works on, as lists show it.
        spaces: the kinds of its devices and their names, as `ExecutionProvider.devices` has them.
        emulated: whether its devices are the processor behind a driver.
    """

    missing: str
    devices: tuple[str, ...] = ()
    spaces: tuple[tuple[str, str], ...] = ()
    emulated: bool = False


def answer(package: PluginPackage, name: str, *, anew: bool = False) -> PluginAnswer:
    """What the provider `name` of a package says of this machine; its library is loaded where that is not known, or `anew`.

    Raises:
        MemoryError: there is no memory to load it.
    """
    key = _key(package, name)
    known = _known(key) if key and not anew else None
    if known is not None:
        return known
    from intarsia.providers.provider_libraries import provider_of_package

    try:
        provider = provider_of_package(package, name)
        taken: Sequence[EpDevice] = provider.ep_devices() or ()
        missing = "" if taken else provider.unavailable()
        spaces: Sequence[Device] = provider.devices() if taken else ()
        found = PluginAnswer(missing, tuple(map(_shown, taken)), tuple((d.kind, str(d)) for d in spaces), provider.emulated())
    except IntarsiaError as error:
        return PluginAnswer(str(error))
    if key:
        _keep(key, found)
    return found


def _shown(device: EpDevice) -> str:
    hardware = device.hardware
    name = hardware.metadata.get("Description", "") or f"{hardware.vendor_id:04x}:{hardware.device_id:04x}"
    return f"{hardware.kind.upper()} ({name})"


def _key(package: PluginPackage, name: str) -> str:
    """What an answer is kept under; "" where it is not known which file it is of."""
    from intarsia.cache.disk_cache import content_key
    from intarsia.cache.fingerprint import sources
    from intarsia.device.hardware.discovery import hardware_devices

    if package.library is None or not package.names:
        return ""
    try:
        state = package.library.stat()
    except OSError:
        return ""
    file = (str(package.library), state.st_size, state.st_mtime_ns, state.st_ino, package.version)
    hardware = [(d.kind, d.vendor_id, d.device_id, d.vendor, sorted(d.metadata.items())) for d in hardware_devices()]
    environment = [os.environ.get(variable, "") for variable in _ENVIRONMENT]
    return "plugin-" + content_key(sources(), name, repr(file), repr(hardware), repr(environment))


def _known(key: str) -> PluginAnswer | None:
    from intarsia.cache.disk_cache import get_cache

    found = get_cache().load(key)
    return found if isinstance(found, PluginAnswer) else None


def _keep(key: str, found: PluginAnswer) -> None:
    from intarsia.cache.disk_cache import get_cache

    get_cache().put(key, pickle.dumps(found, 5))
