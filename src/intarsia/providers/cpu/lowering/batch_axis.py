"""Which steps of a segment may take the rows of a batch a few at a time, as the primitives of their nodes show."""

from __future__ import annotations

from collections.abc import Callable, Collection

from intarsia.graph.dims import Dim, Expr, symbols_of
from intarsia.graph.model import TensorType
from intarsia.ops.framework.infer import Inference
from intarsia.plan.microbatch_cost import Rows
from intarsia.plan.segment import Segment
from intarsia.plan.step import Step
from intarsia.primitives.batch_axis import ALIKE, Mixes, checked_axis, leading, row_axes
from intarsia.primitives.lang import Tensor


class BatchRows:
    """The rows of a graph's values.

    Attributes:
        symbol: the size that is their number: the first one of the first input that has a symbol there; "" if there is none.
        axes: the axis of each value that has the rows, or `ALIKE`; None: it depends on several of them, or on their number.
    """

    def __init__(self, inference: Inference) -> None:
        self.inference = inference
        self.symbol = next((s for v in inference.graph.inputs if (s := _name(self._shape(v.name)[:1]))), "")
        self.axes: dict[str, int | None] = {}
        if not self.symbol:
            return
        for value in inference.graph.inputs:
            shape = self._shape(value.name)
            self.axes[value.name] = self._axis(shape, 0 if _name(shape[:1]) == self.symbol else ALIKE)
        self.axes.update(dict.fromkeys(inference.graph.constants, ALIKE))
        for node in inference.graph.nodes:
            roots = inference.traces.get(node.outputs[0]) or [None] * len(node.outputs)
            for name, root in zip(node.outputs, roots, strict=True):
                if name:
                    self.axes[name] = None if root is None else self._of_root(root, node.inputs)

    def _shape(self, name: str) -> tuple[Dim, ...]:
        kind = self.inference.types.get(name)
        return kind.shape or () if isinstance(kind, TensorType) else ()

    def _axis(self, shape: tuple[Dim, ...], axis: int) -> int | None:
        try:
            return checked_axis(shape, self.symbol, axis)
        except Mixes:
            return None

    def _of_root(self, root: Tensor, inputs: Collection[str]) -> int | None:
        names = list(inputs)

        def axis_of(t: Tensor) -> int:
            axis = self.axes.get(names[t.attrs[0]])
            if axis is None:
                raise Mixes
            return axis

        try:
            return row_axes([root], self.symbol, axis_of)[0]
        except Mixes:
            return None

    def of(self, segment: Segment, node_outputs: Callable[[str], Collection[str]]) -> Rows | None:
        """What is known of a segment's rows; None where no step of it can take a few of them.

        `node_outputs`: all outputs of the node whose first output this is.
        """
        if not self.symbol or not all(isinstance(step, Step) for step in segment.steps):
            return None
        alike = frozenset(n for n in segment.buffers if self.axes.get(n) == ALIKE)
        led = frozenset(n for n in segment.buffers if n not in alike and self._is_led(n))
        fixed = {*segment.inputs, *segment.outputs} - led - alike
        steps = []
        for step in segment.steps:
            touched = [n for n in (*step.reads, *step.writes) if n in segment.buffers]
            values = [*(n for n in touched if n in self.axes), *(o for n in step.nodes for o in node_outputs(n))]
            steps.append(fixed.isdisjoint(touched) and all(self.axes.get(n) is not None for n in values))
        return Rows(self.symbol, tuple(steps), led, alike) if any(steps) and led else None

    def _is_led(self, name: str) -> bool:
        axis = self.axes.get(name)
        return axis is not None and leading(self._shape(name), axis)


def _name(shape: tuple[Dim, ...]) -> str:
    """The symbol that a shape of one size is; "" where it is something else."""
    (d,) = shape or (0,)
    return str(d) if isinstance(d, Expr) and symbols_of(d) == {str(d)} else ""
