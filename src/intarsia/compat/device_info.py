"""What kind of machine this is, in onnxruntime's words."""

from __future__ import annotations

from intarsia.providers.plugin_answers import answer
from intarsia.providers.registry import get_available_providers, load_provider, plugin_of

_KINDS = ("cuda", "hip", "webgpu", "dml", "gpu")


def get_device() -> str:
    """ "GPU" where an available provider has a device with its own memory, else "CPU"."""
    kinds = {kind for name in get_available_providers() for kind in _kinds(name)}
    return "GPU" if not kinds.isdisjoint(_KINDS) else "CPU"


def _kinds(name: str) -> list[str]:
    """The kinds of a provider's devices; the libraries of plugins need not be loaded for that."""
    package = plugin_of(name)
    if package is not None:
        return [kind for kind, _ in answer(package, name).spaces]
    return [device.kind for device in load_provider(name).devices() if not device.software]
