"""Kinds of devices that are here, on drivers for the processor, and sessions with all nodes on one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import onnx
from onnx import helper

import intarsia
from intarsia.device import opencl, webgpu
from intarsia.device.gpu import Gpu


@dataclass(frozen=True)
class Kind:
    kind: str
    provider: str
    module: Any
    open: Callable[..., Gpu]

    def session(self, **given: object) -> intarsia.InferenceSession:
        nodes = [helper.make_node("MatMul", ["x", "x"], ["a"], name="product"), helper.make_node("Softmax", ["a"], ["y"])]
        return self.session_of(nodes, {"x": (1, ["n", "n"])}, **given)

    def session_of(
        self, nodes: Sequence[onnx.NodeProto], inputs: Mapping[str, tuple[int, list[Any]]], **given: object
    ) -> intarsia.InferenceSession:
        """Of nodes that compute `y`; `given`: options of the provider."""
        values = [helper.make_tensor_value_info(name, *kind) for name, kind in inputs.items()]
        graph = helper.make_graph(nodes, "g", values, [helper.make_empty_tensor_value_info("y")])
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
        options = intarsia.SessionOptions()
        options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
        return intarsia.InferenceSession(model.SerializeToString(), options, [(self.provider, dict(given))])


KINDS = {
    "webgpu": Kind("webgpu", "WebGpuExecutionProvider", webgpu, webgpu.open_device),
    "opencl": Kind("opencl", "OpenCLExecutionProvider", opencl, opencl.open_device),
}
