"""The derivative of an operator, as an operator: domain `intarsia.gradient`, made from the operator's own definition.

`NameGradient` takes the inputs of `Name` (as many as its definition has, or as are given where it is variadic), then its
outputs, then their cotangents, and returns the cotangents of those inputs that `gradient_of` lists. The pass
`passes.graph.expand_gradients` writes such nodes; they are defined in primitives like any other, so every compiling provider
has them.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from intarsia.graph.model import Node, ValueType
from intarsia.ops.framework.registry import NodeContext, OpRecord, Registry, host_op, op
from intarsia.primitives import lang as k
from intarsia.primitives.autodiff import gradient
from intarsia.primitives.substitute import replaced

DOMAIN = "intarsia.gradient"
TRAINING = "ai.onnx.preview.training"
SEED, ZEROS = "OnesLike", "ZerosLike"
Tensor = k.Tensor


def _gradient_types(*inputs: ValueType | None, xs: Sequence[str] = ()) -> tuple[ValueType | None, ...]:
    return inputs[: len(xs)]


@host_op("Gradient", 1, domain=TRAINING, infer=_gradient_types, reason="written out in derivatives of operators at load")
def gradient_of_graph(*inputs: np.ndarray, xs: Sequence[str], y: str, zs: Sequence[str] | None = None) -> None:
    """The graph between `xs` and `y` is what is differentiated, so that a node alone has no value."""
    raise k.DefinitionError(
        f"the gradient of {y!r} is known only in the graph that computes it: `passes.graph.expand_gradients` writes it out"
    )


@op(SEED, 1, domain=DOMAIN)
def ones_like(x: Tensor) -> Tensor:
    """The cotangent of the differentiated tensor: the derivative of the sum of its elements."""
    return k.full(x.shape, 1, x.dtype)


@op(ZEROS, 1, domain=DOMAIN)
def zeros_like(x: Tensor) -> Tensor:
    """The derivative by a tensor that the differentiated one does not depend on."""
    return k.full(x.shape, 0, x.dtype)


def relu_gradient(X: Tensor, g: Tensor) -> Tensor:
    """0 at 0, as every framework has it; the definition's maximum would give one half."""
    return k.select(X > 0, g, 0)


CONVENTIONS: dict[tuple[str, str], Callable[[Tensor, Tensor], Tensor]] = {("", "Relu"): relu_gradient}


def gradient_node(
    forward: Node, record: OpRecord, of: Sequence[int], cotangents: Sequence[str], outputs: Sequence[str]
) -> Node:
    """The node that computes `outputs`, the cotangents of `forward`'s inputs `of`, from those of its outputs ("": zero)."""
    width = len(forward.inputs) if record.variadic else len(record.input_names)
    given = [*forward.inputs, *[""] * (width - len(forward.inputs))]
    attributes = {
        **forward.attributes,
        _own(record, "of"): list(of), _own(record, "inputs"): width, _own(record, "outputs"): len(forward.outputs),
    }  # fmt: skip
    return Node(
        gradient_name(record), [*given, *forward.outputs, *cotangents], list(outputs), attributes, DOMAIN,
        name=f"{forward.name or forward.op_type}/gradient/{outputs[0]}", version=record.since, origin=forward.origin,
    )  # fmt: skip


def gradient_name(record: OpRecord) -> str:
    prefix = f"{record.domain}." if record.domain not in ("", DOMAIN) else ""
    return f"{prefix}{record.name}Gradient"


def _own(record: OpRecord, what: str) -> str:
    """An attribute of the derivative itself; that of a derivative's derivative has another name."""
    return "_".join(["gradient"] * (record.name.count("Gradient") + 1 if record.domain == DOMAIN else 1)) + "_" + what


def add_gradient_record(registry: Registry, forward: OpRecord) -> None:
    """Make the derivative of `forward` known to `registry`, once."""
    name = gradient_name(forward)
    if any(r.since == forward.since for r in registry.of(DOMAIN, name)):
        return
    names = [p.name for p in inspect.signature(forward.function).parameters.values() if p.name in forward.input_names]
    parameters = [inspect.Parameter(n, inspect.Parameter.POSITIONAL_OR_KEYWORD, default=None) for n in names]
    parameters.append(inspect.Parameter("outputs_and_cotangents", inspect.Parameter.VAR_POSITIONAL))
    keywords: dict[str, Any] = dict(forward.attributes)
    keywords.update({_own(forward, what): 0 for what in ("of", "inputs", "outputs")}, node=inspect.Parameter.empty)
    for attribute, default in keywords.items():
        shown = inspect.Parameter.empty if repr(default) == "REQUIRED" else default
        parameters.append(inspect.Parameter(attribute, inspect.Parameter.KEYWORD_ONLY, default=shown))
    function = _Derivative(forward)
    function.__signature__ = inspect.Signature(parameters)
    registry.add(OpRecord(DOMAIN, name, forward.since, function, values=forward.values, deterministic=forward.deterministic))


class _Derivative:
    """The definition of an operator's derivative: the operator's definition, traced and differentiated."""

    __signature__: inspect.Signature

    def __init__(self, forward: OpRecord) -> None:
        self.forward = forward

    def __call__(self, *arguments: Any, node: NodeContext, **attributes: Any) -> tuple[Tensor, ...]:
        of, width, results = (attributes.pop(_own(self.forward, what)) for what in ("of", "inputs", "outputs"))
        tail = [*node.operands[width:], *[None] * (width + 2 * results - len(node.operands))]
        known, cotangents = tail[:results], tail[results : 2 * results]
        convention = CONVENTIONS.get((self.forward.domain, self.forward.name))
        if convention is not None:
            return (convention(arguments[0], cotangents[0]),)
        given = [*arguments[:width], *[None] * (width - len(arguments))]
        roots = self._forward(given, node, attributes, results)
        sources = [node.operands[i] for i in of]
        pairs = [
            (r, None if g is None else k.cast(g, r.dtype)) for r, g in zip(roots, cotangents, strict=True) if r is not None
        ]
        found = gradient([r for r, _ in pairs], [g for _, g in pairs], sources)
        parts = [k.full(s.shape, 0, s.dtype) if g is None else g for s, g in zip(sources, found, strict=True)]
        computed = {id(r): y for r, y in zip(roots, known, strict=True) if r is not None and y is not None and r.args}
        return tuple(replaced(parts, computed))

    def _forward(self, given: list[Any], node: NodeContext, attributes: dict[str, Any], results: int) -> list[Tensor | None]:
        while given and given[-1] is None and not self.forward.variadic:
            given.pop()
        if self.forward.wants_context:
            whole = replace(
                node,
                outputs=results,
                wanted=(True,) * results,
                version=self.forward.since,
                operands=node.operands[: len(given)],
            )
            attributes["node"] = whole
        out = self.forward.function(*given, **attributes)
        roots = list(out) if isinstance(out, (tuple, list)) else [out]
        if any(r is not None and not isinstance(r, Tensor) for r in roots):
            raise k.DefinitionError("it returns values that are no tensors; they have no derivative")
        return (roots + [None] * results)[:results]
