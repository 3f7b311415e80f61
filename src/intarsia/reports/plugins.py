"""Installed packages of plugin libraries, and what each library says of this machine."""

from __future__ import annotations

from intarsia.lazy_dataclass import dataclass
from intarsia.providers.plugin_answers import answer
from intarsia.providers.plugin_packages import PluginPackage, installed
from intarsia.providers.registry import BUILTIN, plugin_of


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
    """Every installed package of a plugin library. Loads the libraries that are not known yet."""
    return [_state(package, name) for package in installed().values() for name in package.names or (package.distribution,)]


def _state(package: PluginPackage, name: str) -> PluginState:
    said = answer(package, name)
    own = name in BUILTIN and plugin_of(name) is None
    serves = (package.distribution,) if own else tuple(dict.fromkeys((name, package.distribution)))
    devices = ", ".join(said.devices)
    return PluginState(
        package.distribution, name, package.version, str(package.library or ""), devices, said.missing, serves
    )
