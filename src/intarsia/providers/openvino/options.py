"""Options of OpenVINOExecutionProvider: onnxruntime's names, the older `device_type` forms, what OpenVINO gets from them."""

from __future__ import annotations

import json
import re
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from intarsia.errors import InvalidArgument, NotImplemented, nearest
from intarsia.lazy_dataclass import dataclass

_DEVICES = ("CPU", "GPU", "NPU")
_VIRTUAL = ("AUTO", "HETERO", "MULTI", "BATCH")
_REMOVED = ("MYRIAD", "VAD-M", "VAD-F", "HDDL", "GNA")
_ONE = re.compile(r"(CPU|GPU|NPU)(\.\d+)?")
_WITH_PRECISION = re.compile(r"((?:CPU|GPU|NPU)(?:\.\d+)?)_(FP32|FP16|BF16|U8)")
_HINTS = {"FP32": "f32", "FP16": "f16", "BF16": "bf16"}
_RESHAPE = re.compile(r"\s*([^\[\],]+)\[([^\]]*)\]\s*")


@dataclass(frozen=True)
class OpenVINOOptions:
    """onnxruntime's options for this provider, with its names.

    Attributes:
        device_type: "CPU", "GPU", "GPU.1", "NPU", or "AUTO:GPU,CPU" (likewise HETERO, MULTI, BATCH). The older forms with a
            precision, "CPU_FP32" or "GPU_FP16", set `precision` too.
        device_id: number of the device among those of its kind, where `device_type` has none.
        device_luid: Windows' identifier of a GPU; compared with the devices' own.
        precision: "FP32", "FP16", "BF16" or "ACCURACY" (the model's own); "": FP32. OpenVINO by itself takes bfloat16 on CPUs
            that have it.
        num_of_threads: threads of one inference on the CPU; 0: the session's `intra_op_num_threads`.
        num_streams: inferences that run side by side; more need more memory.
        cache_dir: folder of compiled models; "": none is cached.
        load_config: OpenVINO properties by device, as JSON, a file with JSON, or a dict: {"CPU": {"PERF_COUNT": true}}.
        disable_dynamic_shapes: compile for the exact shapes of each run (the last few are retained) instead of any shape.
        reshape_input: bounds for input shapes: "name[1,3,224..640,224],other[1..8]".
        layout: layouts of inputs, for preprocessing: "name[NCHW]".
        model_priority: "LOW", "MEDIUM", "HIGH" or "DEFAULT", between models on one device.
        enable_opencl_throttling: lets the driver's thread sleep while a GPU works.
        enable_qdq_optimizer, enable_causallm: not available; an error when set.
        context: address of an OpenCL context to compile in (GPU).
        exact_nan: NaN and infinities come out as ONNX says, except of Relu and Softmax (`repairs`, `refusals`). False is
            faster where Clip, HardSigmoid, Min or Max stand behind convolutions. Not an option of onnxruntime's.
    """

    device_type: str = "CPU"
    device_id: str = ""
    device_luid: str = ""
    precision: Literal["", "FP32", "FP16", "BF16", "ACCURACY"] = ""
    num_of_threads: int = 0
    num_streams: int = 1
    cache_dir: str = ""
    load_config: Any = ""
    disable_dynamic_shapes: bool = False
    reshape_input: str = ""
    layout: str = ""
    model_priority: Literal["DEFAULT", "LOW", "MEDIUM", "HIGH"] = "DEFAULT"
    enable_opencl_throttling: bool = False
    enable_qdq_optimizer: bool = False
    enable_causallm: bool = False
    context: int = 0
    exact_nan: bool = True

    def __post_init__(self) -> None:
        for name, low in (("num_of_threads", 0), ("num_streams", 1), ("context", 0)):
            if getattr(self, name) < low:
                raise InvalidArgument(
                    f"option {name!r} of OpenVINOExecutionProvider: expected at least {low}, got {getattr(self, name)}"
                )
        for name in ("enable_qdq_optimizer", "enable_causallm"):
            if getattr(self, name):
                raise NotImplemented(
                    f"option {name!r} of OpenVINOExecutionProvider is not available in Intarsia: leave it out, or False"
                )
        _ = self.device, self.properties, self.shapes, self.layouts
        if self.context and not self.device.startswith("GPU"):
            raise InvalidArgument(
                f"option 'context' is an OpenCL context: expected device_type 'GPU', got {self.device_type!r}"
            )
        if self.resolved_precision == "BF16" and self.device.startswith("GPU"):
            raise InvalidArgument("option 'precision': 'BF16' is for CPUs; a GPU takes 'FP32', 'FP16' or 'ACCURACY'")

    @cached_property
    def _device_and_precision(self) -> tuple[str, str]:
        text = self.device_type.strip()
        found = _WITH_PRECISION.fullmatch(text)
        if found:
            return found[1], found[2]
        head, _, rest = text.partition(":")
        if head in _VIRTUAL:
            members = [m.strip() for m in rest.split(",") if m.strip()]
            for member in members:
                if not _ONE.fullmatch(member.removeprefix("-").partition("(")[0]):
                    raise InvalidArgument(
                        f"option 'device_type' {text!r}: {member!r} is no device; valid: {', '.join(_DEVICES)}"
                    )
            if len(members) < 1 and head != "AUTO":
                raise InvalidArgument(f"option 'device_type' {text!r} needs devices after it, such as '{head}:GPU,CPU'")
            return f"{head}:{','.join(members)}" if members else head, ""
        if _ONE.fullmatch(text):
            return text, ""
        if text.partition("_")[0] in _REMOVED:
            raise InvalidArgument(f"option 'device_type' {text!r}: OpenVINO has dropped this hardware; valid: CPU, GPU, NPU")
        valid = [*_DEVICES, *_VIRTUAL, *(f"{d}_{p}" for d in _DEVICES for p in _HINTS)]
        raise InvalidArgument(
            f"option 'device_type' of OpenVINOExecutionProvider: {text!r} is no device; {nearest(text, valid)}"
        )

    @cached_property
    def device(self) -> str:
        """OpenVINO's name of the device."""
        device = self._device_and_precision[0]
        if not self.device_id:
            return device
        if self.device_id in (device, *_DEVICES) and device.startswith(self.device_id):
            return device
        number = self.device_id.rpartition(".")[2]
        if not number.isdigit() or device not in _DEVICES:
            raise InvalidArgument(
                f"option 'device_id' of OpenVINOExecutionProvider: expected a number for a single device, "
                f"got {self.device_id!r} with device_type {self.device_type!r}"
            )
        return device if device == "CPU" and number == "0" else f"{device}.{number}"

    @property
    def resolved_precision(self) -> str:
        """FP32 unless requested otherwise."""
        old = self._device_and_precision[1]
        if old and self.precision not in ("", old):
            raise InvalidArgument(
                f"options of OpenVINOExecutionProvider: device_type {self.device_type!r} and precision {self.precision!r} "
                "differ"
            )
        return self.precision or old or "FP32"

    @property
    def hint(self) -> str:
        """INFERENCE_PRECISION_HINT; "" where the model decides."""
        return _HINTS.get(self.resolved_precision, "")

    @cached_property
    def properties(self) -> dict[str, Any]:
        """Of `load_config`, those for this device."""
        given = self.load_config
        if given in ("", None):
            return {}
        if isinstance(given, str):
            given = _parsed(given)
        if not isinstance(given, dict) or not all(isinstance(v, dict) for v in given.values()):
            raise InvalidArgument(
                "option 'load_config' of OpenVINOExecutionProvider: expected properties by device, "
                f'such as {{"CPU": {{"PERF_COUNT": true}}}}, got {given!r}'
            )
        for device in given:
            if device.partition(":")[0].partition(".")[0] not in (*_DEVICES, *_VIRTUAL):
                raise InvalidArgument(
                    f"option 'load_config': {device!r} is no device; {nearest(device, (*_DEVICES, *_VIRTUAL))}"
                )
        own = {**given.get(self.device.partition(":")[0].partition(".")[0], {}), **given.get(self.device, {})}
        return {str(k): v for k, v in own.items()}

    @cached_property
    def shapes(self) -> dict[str, tuple[str, ...]]:
        """`reshape_input` by input name: a size, or "low..high", for each dimension."""
        found = {name: tuple(d.strip() for d in dims.split(",")) for name, dims in _named(self.reshape_input, "reshape_input")}
        for name, dims in found.items():
            for dim in dims:
                low, _, high = dim.partition("..")
                if not low.isdigit() or (".." in dim and (not high.isdigit() or int(high) < int(low))):
                    raise InvalidArgument(f"option 'reshape_input': {name}[...{dim}...]: expected a size or 'low..high'")
        return found

    @cached_property
    def layouts(self) -> dict[str, str]:
        """`layout` by input name."""
        return dict(_named(self.layout, "layout"))


def _parsed(text: str) -> Any:
    source = "the text"
    if not text.lstrip().startswith("{"):
        path = Path(text)
        if not path.is_file():
            raise InvalidArgument(f"option 'load_config' of OpenVINOExecutionProvider: no file {text!r}, and not JSON either")
        text, source = path.read_text(encoding="utf-8"), f"the file {path}"
    try:
        return json.loads(text)
    except ValueError as error:
        raise InvalidArgument(
            f"option 'load_config' of OpenVINOExecutionProvider: {source} is not valid JSON: {error}"
        ) from error


def _named(text: str, option: str) -> list[tuple[str, str]]:
    """ "name[a,b],other[c]" as pairs."""
    found, at = [], 0
    while at < len(text):
        match = _RESHAPE.match(text, at)
        if match is None or (match.end() < len(text) and text[match.end()] != ","):
            raise InvalidArgument(
                f"option {option!r} of OpenVINOExecutionProvider: expected 'name[...]' separated by commas, got {text!r}"
            )
        found.append((match[1].strip(), match[2].strip()))
        at = match.end() + 1
    return found
