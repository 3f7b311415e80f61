"""What kind of machine this is, in onnxruntime's words."""

from __future__ import annotations

from intarsia.providers.registry import get_available_providers, load_provider


def get_device() -> str:
    """ "GPU" where an available provider has a device with its own memory, else "CPU"."""
    devices = [device for name in get_available_providers() for device in load_provider(name).devices()]
    kinds = ("cuda", "hip", "webgpu", "dml", "gpu")
    return "GPU" if any(device.kind in kinds and not device.software for device in devices) else "CPU"
