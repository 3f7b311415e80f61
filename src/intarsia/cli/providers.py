"""`intarsia providers`: what works on this machine, and what is missing for the rest."""

from __future__ import annotations

from intarsia.cli.show import note, table
from intarsia.providers.foreign_names import KNOWN_ELSEWHERE
from intarsia.providers.plugin_answers import answer
from intarsia.providers.registry import ENTRY_POINT_GROUP, get_all_providers, load_provider, plugin_of
from intarsia.reports.doctor import is_installed, obstacle
from intarsia.reports.plugins import plugin_states


def full_name(name: str) -> str:
    """A provider's name for a short one, whatever its case: `cpu` for CPUExecutionProvider. Others are left as they are."""
    known = {each.lower(): each for each in (*get_all_providers(), *KNOWN_ELSEWHERE)}
    low = name.lower()
    return known.get(low) or known.get(f"{low}executionprovider") or name


def list_providers() -> None:
    """Print every installed provider with its devices or what it lacks, then those that no installed package provides, and
    packages of plugin libraries with what each library says."""
    available, lacking, absent = [], [], []
    for name in get_all_providers():
        missing = obstacle(name)
        if not missing:
            available.append((name, ", ".join(_devices(name))))
        elif name in KNOWN_ELSEWHERE and not is_installed(name):
            absent.append((name, KNOWN_ELSEWHERE[name]))
        else:
            lacking.append((name, missing))
    table("available", ["provider", "devices"], available)
    if lacking:
        table("\ninstalled, but not working here", ["provider", "what is missing"], lacking)
    _list_plugins()
    if absent:
        table("\nnot part of this version, and no installed package provides them", ["provider", "for"], absent)
        note(f"a package provides one with an entry point in the group {ENTRY_POINT_GROUP!r}")


def _devices(name: str) -> list[str]:
    package = plugin_of(name)
    if package is not None:
        return [shown for _, shown in answer(package, name).spaces]
    return [str(device) for device in load_provider(name).devices()]


def _list_plugins() -> None:
    """Print packages of plugin libraries, what each library says of this machine, and by which names it is used."""
    plugins = plugin_states()
    if plugins:
        rows = [(f"{p.package} {p.version}", p.provider, p.devices or p.why) for p in plugins]
        table("\nplugin libraries", ["package", "provider", "devices, or why none"], rows)
    for plugin in plugins:
        note(f"{plugin.package}: {plugin.library or 'it says where its library is when it is imported'}")
        note(f"  in providers=[...]: {' or '.join(plugin.serves)}")
