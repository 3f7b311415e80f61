"""ONNX's `Backend` over sessions."""

from __future__ import annotations

import os
from typing import Any

from onnx.backend.base import Backend, namedtupledict

from intarsia.backend.backend_rep import RUN_OPTIONS, IntarsiaBackendRep
from intarsia.compat.device_info import get_device
from intarsia.errors import EPFail, InvalidArgument
from intarsia.options.session_options import RunOptions, SessionOptions
from intarsia.providers.registry import CPU, get_available_providers, load_provider
from intarsia.session.inference_session import InferenceSession

SESSION_OPTIONS = frozenset(SessionOptions.PROPERTIES) - {
    "enable_profiling",
    "optimized_model_filepath",
    "profile_file_prefix",
}
"""Properties of `SessionOptions` that may be given as keywords: those that write no files."""


class IntarsiaBackend(Backend):  # type: ignore[misc] # onnx has no types
    """Implements ONNX's backend interface."""

    @classmethod
    def is_compatible(cls, model: Any, device: str | None = None, **kwargs: Any) -> bool:
        """Whether models run on `device` (None: the default one)."""
        return device is None or cls.supports_device(device)

    @classmethod
    def is_opset_supported(cls, model: Any) -> tuple[bool, str]:
        """(True, "") for models of released operator sets, and of newer ones where ALLOW_RELEASED_ONNX_OPSET_ONLY is "0"."""
        from onnx import helper

        if os.environ.get("ALLOW_RELEASED_ONNX_OPSET_ONLY", "1") != "1":
            return True, ""
        for opset in model.opset_import:
            key = (opset.domain or "ai.onnx", opset.version)
            if key[0].startswith("ai.onnx") and key not in helper.OP_SET_ID_VERSION_MAP:
                return False, (
                    "Skipping this test as only released onnx opsets are supported. To run it set the environment variable "
                    f"ALLOW_RELEASED_ONNX_OPSET_ONLY to 0. Got Domain '{key[0]}' version '{key[1]}'."
                )
        return True, ""

    @classmethod
    def supports_device(cls, device: str) -> bool:
        """Whether "CPU", "GPU" or "CUDA" can be requested on this machine."""
        kind = str(device).split(":")[0].upper()
        return kind == "CPU" or ("GPU" if kind == "CUDA" else kind) == get_device()

    @classmethod
    def prepare(cls, model: Any, device: str | None = None, **kwargs: Any) -> IntarsiaBackendRep:
        """A model ready to run.

        Args:
            model: a path, bytes, an `onnx.ModelProto`, a session, or what this returned before.
            device: "CPU" or another that `supports_device`; None: the default.
            kwargs: properties of `SessionOptions` among `SESSION_OPTIONS`.

        Raises:
            EPFail: the device is not supported.
            InvalidArgument: an option that is not permitted; as `InferenceSession`.
        """
        if isinstance(model, IntarsiaBackendRep):
            return model
        if device is not None and not cls.supports_device(device):
            raise EPFail(f"Incompatible device expected '{device}', got '{get_device()}'")
        if isinstance(model, InferenceSession):
            return IntarsiaBackendRep(model)
        options = SessionOptions()
        for name, value in kwargs.items():
            if name in SESSION_OPTIONS:
                setattr(options, name, value)
            elif name in SessionOptions.PROPERTIES or (name in RunOptions.PROPERTIES and name not in RUN_OPTIONS):
                raise InvalidArgument(
                    f"SessionOptions attribute '{name}' is not permitted via the backend API. "
                    f"Allowed attributes: {', '.join(sorted(SESSION_OPTIONS))}"
                )
        if hasattr(model, "opset_import"):
            import unittest

            from onnx.checker import check_model

            check_model(model.SerializeToString())
            supported, message = cls.is_opset_supported(model)
            if not supported:
                raise unittest.SkipTest(message)
        providers = [CPU] if device is None or device.split(":")[0].upper() == "CPU" else _with_devices()
        return IntarsiaBackendRep(InferenceSession(model, options, providers))

    @classmethod
    def run_model(cls, model: Any, inputs: Any, device: str | None = None, **kwargs: Any) -> list[Any]:
        """`prepare` and run once."""
        return cls.prepare(model, device, **kwargs).run(inputs, **{k: v for k, v in kwargs.items() if k not in SESSION_OPTIONS})

    @classmethod
    def run_node(cls, node: Any, inputs: Any, device: str = "CPU", outputs_info: Any = None, **kwargs: Any) -> Any:
        """One node on arrays, as a model of its own; a named tuple of its outputs.

        Raises:
            InvalidArgument: fewer inputs than the node takes.
        """
        import numpy as np
        from onnx import helper

        names = [n for n in node.input if n]
        if len(inputs) < len(names):
            raise InvalidArgument(f"{node.op_type} takes {len(names)} inputs ({names}), got {len(inputs)}")
        arrays = [np.asarray(x) for x in inputs[: len(names)]]
        taken = [
            helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
            for n, a in zip(names, arrays, strict=True)
        ]
        given = [helper.make_empty_tensor_value_info(n) for n in node.output if n]
        graph = helper.make_graph([node], "node", taken, given)
        results = cls.run_model(helper.make_model(graph, **kwargs).SerializeToString(), arrays, device)
        return namedtupledict("Outputs", [v.name for v in given])(*results)


def _with_devices() -> list[str]:
    """The providers of this machine that have memory of their own, then the CPU."""
    names = [p for p in get_available_providers() if any(not device.host for device in load_provider(p).devices())]
    return [*names, CPU]


OnnxRuntimeBackend = IntarsiaBackend

is_compatible = IntarsiaBackend.is_compatible
is_opset_supported = IntarsiaBackend.is_opset_supported
prepare = IntarsiaBackend.prepare
run = run_model = IntarsiaBackend.run_model
run_node = IntarsiaBackend.run_node
supports_device = IntarsiaBackend.supports_device
