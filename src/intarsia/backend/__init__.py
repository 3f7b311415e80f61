"""ONNX's backend interface (`onnx.backend.base`): `prepare`, `run_model`, `supports_device`, `is_compatible`."""

from intarsia.backend.backend import (
    IntarsiaBackend,
    is_compatible,
    is_opset_supported,
    prepare,
    run,
    run_model,
    run_node,
    supports_device,
)
from intarsia.backend.backend_rep import IntarsiaBackendRep

__all__ = [
    "IntarsiaBackend",
    "IntarsiaBackendRep",
    "is_compatible",
    "is_opset_supported",
    "prepare",
    "run",
    "run_model",
    "run_node",
    "supports_device",
]
