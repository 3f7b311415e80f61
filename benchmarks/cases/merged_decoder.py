"""Two exports of one decoder, without and with its caches, in one model of an If: optimum's decoder_model_merged.onnx."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import onnx
import torch
from onnx import TensorProto, helper
from torch import nn

from cases.family import Family, Run, exported

BRANCH = "use_cache_branch"


def _renamed(graph: onnx.GraphProto, prefix: str, kept: set[str]) -> None:
    """Give every name of the graph and of those inside a prefix, but for what lies outside of both branches."""

    def new(name: str) -> str:
        return name if not name or name in kept else prefix + name

    for node in graph.node:
        node.name = prefix + node.name
        node.input[:] = [new(x) for x in node.input]
        node.output[:] = [new(x) for x in node.output]
        for attribute in node.attribute:
            if attribute.HasField("g"):
                _renamed(attribute.g, prefix, kept)
    for value in [*graph.input, *graph.output, *graph.initializer]:
        value.name = new(value.name)
    del graph.value_info[:]


def _branch(model: onnx.ModelProto, prefix: str, inputs: set[str], outputs: Sequence[str], shared: dict[bytes, str]) -> Any:
    """The model's graph as a branch; equal weights of both branches are one initializer outside, named by content."""
    graph = onnx.GraphProto()
    graph.CopyFrom(model.graph)
    outer, names = [], {}
    for tensor in graph.initializer:
        content = tensor.raw_data + bytes(str((tensor.data_type, tuple(tensor.dims))), "ascii")
        if content not in shared:
            shared[content] = f"{prefix}{tensor.name}"
            outer.append(helper.make_tensor(shared[content], tensor.data_type, tensor.dims, tensor.raw_data, raw=True))
        names[tensor.name] = shared[content]
    del graph.initializer[:], graph.input[:]
    for node in graph.node:
        node.input[:] = [names.get(x, x) for x in node.input]
    _renamed(graph, prefix, inputs | set(shared.values()))
    have = {value.name: value for value in graph.output}
    del graph.output[:]
    for name in outputs:
        value = have.get(prefix + name)
        if value is None:  # the encoder's keys come out as they went in
            graph.node.append(helper.make_node("Identity", [name.replace("present", "past")], [prefix + name]))
            value = helper.make_tensor_value_info(prefix + name, TensorProto.FLOAT, None)
        graph.output.append(value)
    return graph, outer


def merged(
    first: nn.Module, later: nn.Module, runs: Sequence[Run], axes: Mapping[str, Mapping[int, str]], outputs: Any
) -> Family:
    """A family of one model with the input `use_cache_branch`; the last run has caches, the second has none."""
    with_cache, without = runs[-1], {k: v for k, v in runs[1].items() if not k.startswith("past")}

    class Either(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.later = first, later

        def forward(self, *inputs: torch.Tensor) -> Any:
            given = dict(zip([*with_cache, BRANCH], inputs, strict=True))
            if given.pop(BRANCH):
                return self.later(*given.values())
            return self.first(*(given[name] for name in without))

    def build(dynamo: bool, opset: int) -> onnx.ModelProto:
        cross = [name for name in outputs if "encoder" in name]
        some = tuple(name for name in outputs if name not in cross)

        def chosen(module: nn.Module, names: Sequence[str]) -> nn.Module:
            class Chosen(nn.Module):
                def __init__(self) -> None:
                    super().__init__()
                    self.module = module

                def forward(self, *inputs: torch.Tensor) -> Any:
                    return tuple(x for name, x in zip(outputs, self.module(*inputs), strict=True) if name in names)

            return Chosen()

        parts = [
            exported(Family(chosen(later, some), [with_cache], axes, some), dynamo, opset),
            exported(Family(chosen(first, outputs), [without], axes, tuple(outputs)), dynamo, opset),
        ]
        shared: dict[bytes, str] = {}
        branches = [_branch(part, p, set(with_cache), outputs, shared) for part, p in zip(parts, ("with_", "no_"), strict=True)]
        node = helper.make_node("If", [BRANCH], list(outputs), then_branch=branches[0][0], else_branch=branches[1][0])
        inputs = {value.name: value for part in parts for value in part.graph.input}
        flag = helper.make_tensor_value_info(BRANCH, TensorProto.BOOL, [1])
        for name, tensor in with_cache.items():  # a branch may read fewer
            sizes = [axes.get(name, {}).get(i, n) for i, n in enumerate(tensor.shape)]
            kind = TensorProto.FLOAT if tensor.is_floating_point() else TensorProto.INT64
            inputs[name] = helper.make_tensor_value_info(name, kind, sizes)
        results = []
        for name in outputs:
            past = axes.get(name.replace("present", "past"))
            shape = (
                ["batch", "length", "vocabulary"]
                if past is None
                else ["batch", *with_cache[name.replace("present", "past")].shape[1:]]
            )
            if past is not None:
                shape[2] = "total" if ".decoder." in name else "frames_out"
            results.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, shape))
        graph = helper.make_graph([node], "merged", [*inputs.values(), flag], results, [*branches[0][1], *branches[1][1]])
        return helper.make_model(graph, opset_imports=[*parts[0].opset_import], ir_version=parts[0].ir_version)

    given = [run | {BRANCH: torch.tensor([run[next(k for k in run if k.startswith("past"))].shape[2] > 0])} for run in runs]
    return Family(Either(), given, axes, tuple(outputs), build=build)
