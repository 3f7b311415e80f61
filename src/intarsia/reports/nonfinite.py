"""The first node that makes a NaN or an infinity of finite inputs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from intarsia.lazy_dataclass import dataclass
from intarsia.printable import visible
from intarsia.reports.taps import tappable

if TYPE_CHECKING:
    from intarsia.graph.model import Graph

    Tapping: TypeAlias = Callable[[Sequence[str]], Mapping[str, Any]]
    """Runs a model, and gives the values of these names."""

_AT_ONCE = 64  # values that are tapped together


@dataclass(frozen=True)
class NonFinite:
    """Where the first value that is not finite appears.

    Attributes:
        value: its name; node, op: what computes it ("" for an input of the model).
        nans, infinities: how many elements.
        index: where the first of them is.
        inputs: smallest and largest finite element of each of the node's inputs.
    """

    value: str
    node: str
    op: str
    nans: int
    infinities: int
    index: tuple[int, ...]
    inputs: Mapping[str, tuple[float, float]]

    def __str__(self) -> str:
        where = f"node {self.node!r} ({visible(self.op)})" if self.op else "the model's input"
        ranges = ", ".join(f"{name!r} from {low:.4g} to {high:.4g}" for name, (low, high) in self.inputs.items())
        counts = f"{self.nans} NaN and {self.infinities} infinite elements, the first at {list(self.index)}"
        return f"{where}: value {self.value!r} has {counts}" + (f"; its inputs: {ranges}" if ranges else "")


def nonfinite(array: Any) -> bool:
    """Whether a result has elements that are not finite."""
    if not isinstance(array, np.ndarray) or array.dtype.kind in "OUSbiu" or not array.size:
        return False
    return not bool(np.isfinite(array.astype(np.float32) if array.dtype.kind == "V" else array).all())


def first_nonfinite(graph: Graph, feed: Mapping[str, Any], tapped: Tapping) -> NonFinite | None:
    """Run a model on `feed` and name the first value in execution order that is not finite; None where all are.

    Values are looked at in groups, so that no more than a few dozen are retained at a time.

    Raises:
        As `InferenceSession.run`.
    """
    for name, value in feed.items():
        if nonfinite(np.asarray(value)):
            return _described(name, np.asarray(value), "", "", {})
    values = tappable(graph)
    names = list(values)
    for start in range(0, len(names), _AT_ONCE):
        group = names[start : start + _AT_ONCE]
        taps = tapped(group)
        wrong = next((name for name in group if nonfinite(taps[name])), None)
        if wrong is not None:
            node = values[wrong]
            given = [n for n in dict.fromkeys(node.inputs) if n in values]
            known: dict[str, Any] = dict(tapped(given)) if given else {}
            known.update((n, np.asarray(feed[n])) for n in node.inputs if n in feed)
            known.update((n, graph.constants[n].numpy()) for n in node.inputs if n in graph.constants)
            ranges = {n: _range(known[n]) for n in dict.fromkeys(node.inputs) if n in known and _numeric(known[n])}
            return _described(wrong, taps[wrong], node.name or wrong, node.qualified_op, ranges)
    return None


def _numeric(value: Any) -> bool:
    return isinstance(value, np.ndarray) and value.dtype.kind in "fiu" and value.size > 0


def _range(value: np.ndarray) -> tuple[float, float]:
    finite = value[np.isfinite(value)]
    return (float(finite.min()), float(finite.max())) if finite.size else (np.nan, np.nan)


def _described(name: str, array: np.ndarray, node: str, op: str, ranges: Mapping[str, tuple[float, float]]) -> NonFinite:
    wide = array.astype(np.float64) if array.dtype.kind != "c" else array
    bad = ~np.isfinite(wide)
    first: Sequence[Any] = np.unravel_index(int(bad.argmax()), bad.shape)
    nans = int(np.isnan(wide).sum())
    return NonFinite(name, node, op, nans, int(bad.sum()) - nans, tuple(int(i) for i in first), ranges)
