"""What a user sets for single tensors: the entry TensorQuantOverrides of `extra_options`, checked."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from typing import Any

import onnx

from intarsia.errors import InvalidArgument
from intarsia.quantization.numerics.quant_types import QuantType, type_number

_OF_RANGES = ("symmetric", "reduce_range", "rmax", "rmin")
_SAME_IN_ALL_CHANNELS = ("quant_type", "symmetric", "reduce_range")

Entry = dict[str, Any]


@dataclass(eq=False)
class QuantTypeInfo:  # noqa: PLW1641 # None equals anything: no hash agrees with that
    """The type that a tensor is quantised to; None stands for the default, and equals anything.

    Attributes:
        axis: of channels; None for one scale.
    """

    quant_type: QuantType | None
    symmetric: bool | None = None
    reduce_range: bool | None = None
    axis: int | None = None

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, QuantTypeInfo):
            return NotImplemented

        def alike(mine: bool | None, others: bool | None) -> bool:
            return mine is None or others is None or mine == others

        return (
            self.quant_type == other.quant_type
            and self.axis == other.axis
            and alike(self.symmetric, other.symmetric)
            and alike(self.reduce_range, other.reduce_range)
        )

    @staticmethod
    def load_from_dict(
        raw_dict: Mapping[str, Any], default_qtype: QuantType | None = None, default_symmetric: bool | None = None,
        default_reduce_range: bool | None = None,
    ) -> QuantTypeInfo:  # fmt: skip
        """The type that an override names, with defaults for what it leaves open."""
        get = raw_dict.get
        return QuantTypeInfo(
            get("quant_type", default_qtype), get("symmetric", default_symmetric),
            get("reduce_range", default_reduce_range), get("axis"),
        )  # fmt: skip

    def save_to_dict(self, raw_dict: Entry) -> None:
        """Write the type, and what else is known, into an override."""
        raw_dict["quant_type"] = self.quant_type
        known = {"symmetric": self.symmetric, "reduce_range": self.reduce_range, "axis": self.axis}
        raw_dict.update({key: value for key, value in known.items() if value is not None})


class TensorQuantOverridesHelper(MutableMapping[str, list[Entry]]):
    """Overrides by tensor: a list with one dict, or one for each channel; the first has "axis" where there are channels.

    Keys of a dict: "quant_type", "scale" and "zero_point" (both or neither), "symmetric", "reduce_range", "rmin", "rmax",
    "axis", and "convert", a dict of the same kind for consumers ("recv_nodes", by default all) that get another type.
    """

    def __init__(self, raw_overrides: dict[str, list[Entry]]) -> None:
        self.overrides = raw_overrides

    def __getitem__(self, key: str) -> list[Entry]:
        return self.overrides[key]

    def __setitem__(self, key: str, value: list[Entry]) -> None:
        self.overrides[key] = value

    def __delitem__(self, key: str) -> None:
        del self.overrides[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self.overrides)

    def __len__(self) -> int:
        return len(self.overrides)

    def __repr__(self) -> str:
        return f"TensorQuantOverridesHelper({self.overrides})"

    def __str__(self) -> str:
        return str(self.overrides)

    def _first(self, tensor_name: str) -> Entry:
        entries = self.overrides.get(tensor_name) or [{}]
        return entries[0]

    def has_per_tensor_overrides(self, tensor_name: str) -> bool:
        """Whether the tensor has overrides with one scale."""
        return bool(self.overrides.get(tensor_name)) and "axis" not in self._first(tensor_name)

    def has_per_channel_overrides(self, tensor_name: str) -> bool:
        """Whether the tensor has overrides with an axis of channels."""
        return "axis" in self._first(tensor_name)

    def overrides_scale_zp(self, tensor_name: str) -> bool:
        """Whether scale and zero point are set."""
        return {"scale", "zero_point"} <= self._first(tensor_name).keys()

    def get_per_tensor_overrides(self, tensor_name: str, default_val: Entry | None = None) -> Entry | None:
        """The overrides of a tensor with one scale.

        Raises:
            InvalidArgument: they name an axis.
        """
        entries = self.overrides.get(tensor_name, [default_val] if default_val is not None else None)
        if entries and "axis" in entries[0]:
            raise InvalidArgument(
                f"Expected tensor '{tensor_name}' to use per-tensor quantization overrides, but found per-channel overrides."
            )
        return entries[0] if entries else default_val

    def get_per_channel_overrides(self, tensor_name: str, default_val: list[Entry] | None = None) -> list[Entry] | None:
        """The overrides of a tensor with an axis of channels.

        Raises:
            InvalidArgument: they name no axis.
        """
        entries = self.overrides.get(tensor_name, default_val)
        if entries and "axis" not in entries[0]:
            raise InvalidArgument(
                f"Expected tensor '{tensor_name}' to have per-channel quantization overrides (axis value is missing)."
            )
        return entries or None

    def get_quant_types(self) -> set[QuantType]:
        """All types that overrides name, of conversions too."""
        dicts = [d for entries in self.overrides.values() for e in entries for d in (e, e.get("convert", {}))]
        return {d["quant_type"] for d in dicts if "quant_type" in d}

    def is_valid(
        self, initializers: Mapping[str, onnx.TensorProto], activation_names: Collection[str], default_activation_qtype: Any
    ) -> tuple[bool, str | None]:
        """Whether all overrides are possible in this model; else what is wrong with the first that is not."""
        for name, entries in self.overrides.items():
            wrong = _wrong(name, entries, initializers, activation_names, default_activation_qtype)
            if wrong is not None:
                return False, wrong
        return True, None

    def update_tensor_overrides(
        self, tensor_name: str, new_vals: Entry, channels: Sequence[int] | None = None, overwrite: bool = True
    ) -> bool:
        """Set values for a tensor, in all channels or in those named; all or, where that would overwrite, none."""
        if not new_vals:
            return False
        entries = self.overrides.get(tensor_name) or []
        chosen = [e for i, e in enumerate(entries) if channels is None or i in channels]
        if not overwrite and any(new_vals.keys() & e.keys() for e in chosen):
            return False
        if not entries:
            chosen = self.overrides[tensor_name] = [{}]
        for entry in chosen:
            entry.update(new_vals)
        return True

    def get_node_output_qtype_info(
        self, output_name: str, default_qtype: QuantType | None, default_symmetric: bool | None = None
    ) -> QuantTypeInfo:
        """The type that a node's output has where it is computed."""
        first = self._first(output_name)
        return QuantTypeInfo(first.get("quant_type", default_qtype), first.get("symmetric", default_symmetric))

    def get_node_input_qtype_info(
        self, input_name: str, node_name: str, default_qtype: QuantType | None, default_symmetric: bool | None = None,
        default_reduce_range: bool | None = None,
    ) -> QuantTypeInfo:  # fmt: skip
        """The type that a node reads a tensor in."""
        first = self._first(input_name)
        found = QuantTypeInfo.load_from_dict(first, default_qtype, default_symmetric, default_reduce_range)
        if "convert" not in first:
            return found
        convert = first["convert"]
        read = "recv_nodes" not in convert or node_name in convert["recv_nodes"]
        kind = convert["quant_type"] if read else found.quant_type
        return QuantTypeInfo(kind, convert.get("symmetric", default_symmetric))

    def pprint_str(self, indent: int | None = None) -> str:
        """The overrides as JSON."""
        return json.dumps(self.overrides, default=str, indent=indent)

    def empty(self) -> bool:
        """Whether there are none."""
        return not self.overrides

    def get_dict(self) -> dict[str, list[Entry]]:
        """The overrides themselves."""
        return self.overrides


def _wrong(
    name: str, entries: Any, initializers: Mapping[str, onnx.TensorProto], values: Collection[str], default: Any
) -> str | None:
    """What is wrong with the overrides of a tensor."""
    if name not in initializers and name not in values:
        return f"Tensor '{name}' in TensorQuantOverrides is not present in the model"
    if not isinstance(entries, list):
        return f"Tensor quantization overrides for '{name}' are not in a list"
    for i, entry in enumerate(entries):
        if not isinstance(entry, dict):
            return f"Tensor quantization overrides at index {i} for '{name}' are not in a dict"
    if not entries or not entries[0]:
        return None
    if len(entries) > 1 or entries[0].get("axis") is not None:
        return _wrong_channels(name, entries, initializers)
    return _wrong_tensor(name, entries[0], name in initializers, default)


def _wrong_scale(entry: Entry, where: str = "") -> str | None:
    if ("scale" in entry) != ("zero_point" in entry):
        return f"Must provide both 'scale' and 'zero_point' if one of the overrides is provided{where}"
    clash = [key for key in _OF_RANGES if key in entry] if "scale" in entry else []
    if clash:
        return f"Tensor override option(s) [{', '.join(clash)}] are invalid with 'scale' and 'zero_point'{where}"
    return None


def _wrong_tensor(name: str, entry: Entry, stored: bool, default: Any) -> str | None:
    wrong = _wrong_scale(entry)
    if wrong is not None:
        return wrong
    reduced = f"Option 'reduce_range' is only supported for initializers, not for activation {name}"
    if "reduce_range" in entry and not stored:
        return reduced
    if "convert" not in entry:
        return None
    convert = entry["convert"]
    if stored:
        return f"Cannot use 'convert' override for initializers, such as {name}."
    if "quant_type" not in convert:
        return f"'convert' options (tensor '{name}') must specify a 'quant_type'"
    if "reduce_range" in convert:
        return reduced
    if default is not None and type_number(convert["quant_type"]) == type_number(entry.get("quant_type") or default):
        return f"'convert' quant_type must differ from original quant_type (tensor '{name}')"
    return _wrong_scale(convert, f" (tensor '{name}')")


def _wrong_channels(name: str, entries: list[Entry], initializers: Mapping[str, onnx.TensorProto]) -> str | None:
    first = entries[0]
    if name not in initializers:
        return f"Tensor '{name}' has per-channel overrides, but is not an initializer"
    axis, shape = first.get("axis"), list(initializers[name].dims)
    if axis is None:
        return f"Per-channel overrides for tensor {name} is missing an 'axis' value in the first channel dictionary."
    if not -len(shape) <= axis < len(shape):
        return f"Axis override value is out-of-bounds for tensor {name} (rank {len(shape)})"
    if len(entries) not in (1, shape[axis]):
        return (
            f"Incorrect number of channel overrides for tensor {name} (axis {axis}), expected {shape[axis]}, but found "
            f"{len(entries)}."
        )
    for i, entry in enumerate(entries):
        wrong = _wrong_channel(name, i, entry, first, len(shape))
        if wrong is not None:
            return wrong
    return None


def _wrong_channel(name: str, i: int, entry: Entry, first: Entry, rank: int) -> str | None:
    if "convert" in entry:
        return f"Cannot use 'convert' override for initializers, such as {name}."
    if ("rmin" in entry) != ("rmax" in entry):
        return "Must provide both 'rmin' and 'rmax' if one is provided"
    if "axis" in entry and entry["axis"] % rank != first["axis"] % rank:
        return f"Channel axis for tensor '{name}' does not match at index {i}."
    for key in _SAME_IN_ALL_CHANNELS:
        if key in entry and entry[key] != first.get(key):
            return f"Channel {key} value for tensor '{name}' does not match at index {i}."
    for keys in (("scale", "zero_point"), ("rmin", "rmax")):
        if first.keys() >= set(keys) and not entry.keys() >= set(keys):
            return (
                f"Per-channel overrides that specify {'/'.join(keys)} must do so for all channels, but tensor '{name}' is "
                f"missing them at index {i}."
            )
    return _wrong_scale(entry)
