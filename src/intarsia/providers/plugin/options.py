"""Options of plugins: any key is the plugin's own but for those that begin with "intarsia.", which are for what it is told."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any

from intarsia.errors import InvalidArgument, UnknownOption, nearest
from intarsia.lazy_dataclass import dataclass
from intarsia.providers.plugin.interface.hardware import KINDS, OrtEpDevice, OrtHardware

HOST_OPTIONS: Mapping[str, str] = {
    "intarsia.vendor_id": "the PCI vendor that the plugin is told of all devices, such as 0x8086: some take one vendor's only",
    "intarsia.device_type": "the type that the plugin is told of all devices: CPU, GPU or NPU",
    "intarsia.deviations": "allow: the plugin is offered nodes that it is known to compute otherwise than ONNX says; or refuse",
    "intarsia.ep_devices": "numbers of the devices to use, among those that the plugin takes, such as 0,2; all by default",
}
_DEFAULTS: Mapping[str, Mapping[str, str]] = {"WebGpuExecutionProvider": {"preferredLayout": "NCHW"}}
"""What is requested of a plugin unless the user says otherwise: nodes keep their data's layout here."""


@dataclass(frozen=True)
class PluginOptions:
    """Options as they were given, as texts."""

    values: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def from_mapping(cls, given: Mapping[str, Any], provider: str) -> PluginOptions:
        """The options of a dict.

        Raises:
            UnknownOption, InvalidArgument: one for the host does not exist, or has a wrong value.
        """
        values = {str(key): _text(value) for key, value in given.items() if value is not None}
        for key in values:
            if key.startswith("intarsia.") and key not in HOST_OPTIONS:
                raise UnknownOption(f"{provider} has no option {key!r}; {nearest(key, HOST_OPTIONS)}")
        options = cls(values)
        options._check(provider)
        return options

    def listed(self) -> Mapping[str, str]:
        """All of them."""
        return self.values

    def _check(self, provider: str) -> None:
        kind = self.values.get("intarsia.device_type")
        if kind is not None and kind.lower() not in KINDS:
            raise InvalidArgument(f"option 'intarsia.device_type' of {provider}: expected CPU, GPU or NPU, got {kind!r}")
        deviations = self.values.get("intarsia.deviations", "refuse")
        if deviations not in ("allow", "refuse"):
            raise InvalidArgument(f"option 'intarsia.deviations' of {provider}: expected allow or refuse, got {deviations!r}")
        self._numbers("intarsia.vendor_id", provider)
        self._numbers("intarsia.ep_devices", provider)

    def _numbers(self, key: str, provider: str = "") -> list[int] | None:
        value = self.values.get(key)
        if value is None:
            return None
        try:
            return [int(part, 0) for part in value.split(",")]
        except ValueError:
            raise InvalidArgument(f"option {key!r} of {provider}: expected whole numbers, got {value!r}") from None

    @property
    def allows_deviations(self) -> bool:
        """Whether results may differ from ONNX's where they are known to."""
        return self.values.get("intarsia.deviations", "refuse") == "allow"

    def told(self, device: OrtHardware) -> OrtHardware:
        """A device as the plugin is told of it."""
        kind, vendor = self.values.get("intarsia.device_type"), self._numbers("intarsia.vendor_id")
        if kind is None and vendor is None:
            return device
        return OrtHardware(
            KINDS.index(kind.lower()) if kind is not None else device.type,
            device.vendor_id if vendor is None else vendor[0],
            device.device_id, device.vendor, device.metadata.values,
        )  # fmt: skip

    def chosen(self, devices: Sequence[OrtEpDevice]) -> list[OrtEpDevice]:
        """The devices to use.

        Raises:
            InvalidArgument: there is none of that number.
        """
        numbers = self._numbers("intarsia.ep_devices")
        if numbers is None:
            return list(devices)
        for number in numbers:
            if not 0 <= number < len(devices):
                raise InvalidArgument(f"option 'intarsia.ep_devices' names device {number}; the plugin takes {len(devices)}")
        return [devices[number] for number in numbers]

    def entries(self, provider: str) -> dict[str, str]:
        """The plugin's own options as configuration entries of a session."""
        own = {key: value for key, value in self.values.items() if not key.startswith("intarsia.")}
        return {f"ep.{provider.lower()}.{key}": value for key, value in {**_DEFAULTS.get(provider, {}), **own}.items()}


def _text(value: Any) -> str:
    return ("1" if value else "0") if isinstance(value, bool) else str(value)
