"""What a family of models is: a module with random weights, the inputs of some runs, and the axes that vary."""

from __future__ import annotations

import contextlib
import inspect
import io
import logging
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import onnx
import torch
from torch import Tensor, nn

Axes = Mapping[str, Mapping[int, str]]
Run = dict[str, Tensor]


@dataclass(frozen=True)
class Family:
    """One model to export.

    Attributes:
        module: called with the inputs of a run in their order; none where onnxruntime alone is the reference.
        runs: named inputs; the first run is timed, all of them are compared in one session, in turn.
        axes: by input, names of the axes that vary.
        outputs: names, where a program reads outputs by name.
        traced: which run is traced; one whose sizes are 1 may be taken for one that never varies.
        build: makes the model, for a dynamo export or not and an opset, where no exporter does.
    """

    module: nn.Module | None
    runs: Sequence[Run]
    axes: Axes
    outputs: tuple[str, ...] = ()
    traced: int = 0
    build: Callable[[bool, int], onnx.ModelProto] | None = None


class Calling(nn.Module):
    """A module whose forward is a function of its parts and inputs."""

    def __init__(self, function: Callable[..., Any], **parts: nn.Module) -> None:
        super().__init__()
        self.function = function
        for name, part in parts.items():
            self.add_module(name, part)

    def forward(self, *inputs: Tensor) -> Any:
        return self.function(self, *inputs)


def images(name: str, *shapes: tuple[int, ...], axes: Mapping[int, str] | None = None) -> tuple[list[Run], Axes]:
    """Runs of one image-like input of these shapes, whose batch, height and width vary."""
    named = {0: "batch", 2: "height", 3: "width"} if axes is None else axes
    return [{name: torch.randn(shape)} for shape in shapes], {name: named}


def results(module: nn.Module, run: Run) -> list[Tensor]:
    """The module's outputs in a list, as the exporters flatten them."""
    with torch.no_grad():
        flat, _ = torch.utils._pytree.tree_flatten(module(*(x.clone() for x in run.values())))
    return [x for x in flat if isinstance(x, Tensor)]


def exported(family: Family, dynamo: bool, opset: int) -> onnx.ModelProto:
    """The family's model, written by torch.export (`dynamo`) or by TorchScript's tracer."""
    if family.build:
        return family.build(dynamo, opset)
    module = family.module
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    torch.backends.mha.set_fastpath_enabled(False)  # one operator that no exporter knows
    file = io.BytesIO()
    example, names = tuple(family.runs[family.traced].values()), list(family.runs[0])
    how: dict[str, Any] = {"input_names": names, "opset_version": opset, "dynamo": dynamo}
    if family.outputs:
        how["output_names"] = list(family.outputs)
    if dynamo:
        axes = tuple({**family.axes.get(name, {})} for name in names)
        kinds = [p.kind for p in inspect.signature(module.forward).parameters.values()] if module else []
        how["dynamic_shapes"] = (axes,) if inspect.Parameter.VAR_POSITIONAL in kinds else axes
    else:
        how["dynamic_axes"] = {name: dict(family.axes[name]) for name in names if family.axes.get(name)}
    with warnings.catch_warnings(), torch.no_grad(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        program = torch.onnx.export(module, example, None if dynamo else file, **how)
    return program.model_proto if dynamo else onnx.load_from_string(file.getvalue())


def by_export(family: Family, opset: int) -> Family:
    """The family of fixed sizes as torch.export alone can write it, from this opset on."""
    plain = replace(family, axes={})
    return replace(family, build=lambda _, asked: exported(plain, True, max(asked, opset)))
