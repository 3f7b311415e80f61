"""A part that openvino runs on an ARM64 CPU: says of each node whether ACL's kernel or one of openvino's own runs it."""

from __future__ import annotations

from intarsia.providers.openvino.program import OpenVINOProgram


class ACLProgram(OpenVINOProgram):
    """As `OpenVINOProgram`, with the library of each layer's kernel before its name: "ACL FullyConnected:gemm_acl_f32"."""

    @classmethod
    def kernel_of(cls, layer: str) -> str:
        return f"{'ACL' if 'acl' in layer.partition(':')[2].split('_') else 'OpenVINO'} {layer}"
