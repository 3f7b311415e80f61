"""Names of onnxruntime's Python API that Intarsia does not have, with the reason and what to use instead."""

from __future__ import annotations

from intarsia.errors import NotImplemented

_DOCS = "it lists onnxruntime's own kernels for its documentation generator; see InferenceSession.explain"
_PACKED = "it packs weights for one of onnxruntime's kernels"

LEFT_OUT: dict[str, str] = {
    "get_all_opkernel_def": _DOCS,
    "get_all_operator_schema": _DOCS,
    "get_registered_ep_kernel_defs": _DOCS,
    "opkernel": _DOCS,
    "schemadef": _DOCS,
    "pack_fp4_weights_for_cuda_moe_gemm": _PACKED,
    "webgpu_context_id": "no provider here shares a WebGPU context",
}
"""Names of `onnxruntime` and `onnxruntime.capi._pybind_state` -> why they are left out."""

METHODS_LEFT_OUT: dict[str, str] = {
    "SparseTensor.to_cuda": "sparse tensors stay in host memory",
    "OrtEpDevice.create_sync_stream": "Intarsia's own providers give out no streams; plugins may",
}
"""Methods that exist and raise a typed error -> why."""

MODULES_LEFT_OUT: dict[str, str] = {
    "transformers": "its graph fusions are done by intarsia itself when a session is made",
}
"""Subpackages of onnxruntime that cannot be imported from intarsia -> why."""


def reason_for(name: str) -> str:
    """Why a name is left out; "" where it never existed."""
    return LEFT_OUT.get(name, "")


class ModuleLeftOut(NotImplemented, ImportError):
    """A subpackage of onnxruntime that Intarsia does not have."""


def module_message(name: str) -> str:
    """The message for a subpackage (or a module in it) that is left out."""
    return (
        f"intarsia.{name} does not exist: {MODULES_LEFT_OUT[name.split('.', maxsplit=1)[0]]}. With onnxruntime installed, "
        'intarsia.install_as("onnxruntime") lets these modules of it run over intarsia'
    )
