"""Policies and delegates that choose the providers of a session among devices."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from intarsia.errors import Fail
from intarsia.options.ep_devices import OrtEpDevice, get_ep_devices, provider_of
from intarsia.providers.registry import CPU, REFERENCE
from intarsia.values.ort_enums import OrtExecutionProviderDevicePolicy, OrtHardwareDeviceType

_RANK = {OrtHardwareDeviceType.NPU: 0, OrtHardwareDeviceType.GPU: 1, OrtHardwareDeviceType.CPU: 2}
_PREFERRED = {
    OrtExecutionProviderDevicePolicy.DEFAULT: OrtHardwareDeviceType.CPU,
    OrtExecutionProviderDevicePolicy.PREFER_CPU: OrtHardwareDeviceType.CPU,
    OrtExecutionProviderDevicePolicy.PREFER_NPU: OrtHardwareDeviceType.NPU,
    OrtExecutionProviderDevicePolicy.PREFER_GPU: OrtHardwareDeviceType.GPU,
    OrtExecutionProviderDevicePolicy.MAX_PERFORMANCE: OrtHardwareDeviceType.GPU,
    OrtExecutionProviderDevicePolicy.MAX_EFFICIENCY: OrtHardwareDeviceType.NPU,
    OrtExecutionProviderDevicePolicy.MIN_OVERALL_POWER: OrtHardwareDeviceType.NPU,
}
MAX_SELECTIONS = 8  # devices that a delegate may choose, as in onnxruntime


def selected(selection: Any, metadata: Mapping[str, str]) -> list[tuple[str, dict[str, Any]]]:
    """The providers (with options) that a policy or a delegate picks for a model with this metadata.

    A policy picks the first device of the kind it prefers in the order of `ordered`, and the CPU provider last; where CPUs
    are preferred, the CPU provider alone. The reference provider is never picked.

    Raises:
        Fail: the delegate raised, or returned something else than a list of the devices it was given.
    """
    devices = ordered([d for d in get_ep_devices() if d.ep_name != REFERENCE])
    if isinstance(selection, OrtExecutionProviderDevicePolicy):
        wanted = [d for d in devices if d.device.type is _PREFERRED[selection]]
        on_cpu = _PREFERRED[selection] is OrtHardwareDeviceType.CPU
        chosen = [_cpu_device(devices)] if on_cpu else wanted[:1]
    else:
        chosen = _delegated(selection, devices, metadata)
    named = dict.fromkeys([*(d.ep_name for d in chosen), CPU])
    return [(name, provider_of([d for d in chosen if d.ep_name == name] or [_cpu_device(devices)])[1]) for name in named]


def ordered(devices: Sequence[OrtEpDevice]) -> list[OrtEpDevice]:
    """NPUs before GPUs before CPUs; of GPUs those with memory of their own first; of one kind those whose maker made the
    provider, too; the CPU provider last; else in the order of the providers. Onnxruntime's order, whose last rule is the
    alphabet."""
    return sorted(devices, key=_order)


def _order(device: OrtEpDevice) -> tuple[int, bool, bool, bool]:
    hardware = device.device
    is_gpu = hardware.type is OrtHardwareDeviceType.GPU
    discrete = is_gpu and hardware.metadata.get("Discrete") == "1"
    own = bool(hardware.vendor) and hardware.vendor.lower() == device.ep_vendor.lower()
    return _RANK[hardware.type], not discrete, not own, device.ep_name == CPU


def _cpu_device(devices: Sequence[OrtEpDevice]) -> OrtEpDevice:
    return next(d for d in devices if d.ep_name == CPU)


def _delegated(delegate: Callable[..., Any], devices: Sequence[OrtEpDevice], metadata: Mapping[str, str]) -> list[OrtEpDevice]:
    try:
        chosen = list(delegate(list(devices), dict(metadata), {}, MAX_SELECTIONS))
    except Exception as error:
        raise Fail(f"the provider selection delegate failed: {type(error).__name__}: {error}") from error
    if not 0 < len(chosen) <= MAX_SELECTIONS or not all(any(c is d for d in devices) for c in chosen):
        raise Fail(
            f"the provider selection delegate returned {chosen!r}; expected one to {MAX_SELECTIONS} of the devices it was given"
        )
    return chosen
