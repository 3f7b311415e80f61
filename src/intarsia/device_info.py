"""What kind of machine this is, in onnxruntime's words."""

from __future__ import annotations

from intarsia.providers.registry import get_available_providers, load_provider


def get_device() -> str:
    """ "GPU" where an available provider has a device with its own memory, else "CPU"."""
    devices = [device for name in get_available_providers() for device in load_provider(name).devices()]
    return "GPU" if any(device.kind in ("cuda", "hip", "webgpu", "dml", "gpu") for device in devices) else "CPU"
