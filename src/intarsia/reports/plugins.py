"""Installed packages of plugin libraries, and what each library says of this machine."""

from __future__ import annotations

from intarsia.ep.hardware import EpDevice
from intarsia.errors import IntarsiaError
from intarsia.lazy_dataclass import dataclass
from intarsia.providers.plugin_packages import PluginPackage, installed
from intarsia.providers.provider_libraries import provider_of_package
from intarsia.providers.registry import BUILTIN, load_provider


@dataclass(frozen=True)
class PluginState:
    """A provider of an installed package of a plugin library.

    Attributes:
        package: the package's name, which stands for its provider in `providers=[...]`.
        provider: the name that the provider has itself; the package's where that does not say it.
        version: the package's version.
        library: the plugin's file.
        devices: the hardware that it works on here; "" for none.
        why: why it works on none; "" where it does.
        serves: the names by which a session gets it.
    """

    package: str
    provider: str
    version: str
    library: str
    devices: str
    why: str
    serves: tuple[str, ...]


def plugin_states() -> list[PluginState]:
    """Every installed package of a plugin library. Loads the libraries."""
    return [_state(package, name) for package in installed().values() for name in package.names or (package.distribution,)]


def _state(package: PluginPackage, name: str) -> PluginState:
    devices, why = "", ""
    try:
        provider = provider_of_package(package, name)
        devices = ", ".join(map(_shown, provider.ep_devices() or ()))
        why = "" if devices else str(getattr(provider, "why_no_devices", provider.unavailable)())
    except IntarsiaError as error:
        why = str(error)
    own = name in BUILTIN and not _is_plugins(name)
    serves = (package.distribution,) if own else tuple(dict.fromkeys((name, package.distribution)))
    return PluginState(package.distribution, name, package.version, str(package.library or ""), devices, why, serves)


def _is_plugins(name: str) -> bool:
    """Whether a provider's name means a plugin's here, and not Intarsia's own."""
    try:
        return hasattr(load_provider(name), "library_path")
    except IntarsiaError:
        return False


def _shown(device: EpDevice) -> str:
    hardware = device.hardware
    name = hardware.metadata.get("Description", "") or f"{hardware.vendor_id:04x}:{hardware.device_id:04x}"
    return f"{hardware.kind.upper()} ({name})"
