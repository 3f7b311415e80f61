"""The first node where two providers part.

Both run the model; where outputs differ, the cause is found by bisection over the nodes in execution order, one value tapped
at a time, so that everything else stays fused as it was. Then the search goes up from there: the node that is named has inputs
that agree and an output that does not.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from intarsia.errors import InvalidArgument
from intarsia.lazy_dataclass import dataclass
from intarsia.model import background_compile
from intarsia.options.session_options import SessionOptions
from intarsia.printable import visible
from intarsia.reports.taps import tappable
from intarsia.session.inference_session import InferenceSession

Providers = str | Sequence[Any]


@dataclass(frozen=True)
class Difference:
    """How two arrays part: the largest absolute difference, relative to the largest magnitude, and where it is."""

    value: str
    absolute: float
    relative: float
    index: tuple[int, ...]
    left: Any
    right: Any

    def __str__(self) -> str:
        if not self.index and not np.isfinite(self.absolute):
            return f"{self.value!r} is {visible(str(self.left))} and {visible(str(self.right))}"
        at = f"at {list(self.index)}: {visible(str(self.left))} and {visible(str(self.right))}"
        if not np.isfinite(self.absolute):
            return f"{self.value!r} differs {at}"
        return f"{self.value!r} differs by {self.absolute:.3g} ({self.relative:.3g} of the largest value), {at}"


@dataclass(frozen=True)
class Comparison:
    """What two providers make of one feed.

    Attributes:
        outputs: differences of the model's outputs beyond the tolerance.
        node, op: the first node whose inputs agree and whose output does not ("" where the outputs agree).
        difference: of that node's output.
        fused_only: the outputs agree once that value is looked at: the difference arises where it is fused with others.
        sessions_run: sessions that were made to find it.
    """

    providers: tuple[str, str]
    outputs: tuple[Difference, ...]
    node: str = ""
    op: str = ""
    difference: Difference | None = None
    fused_only: bool = False
    sessions_run: int = 0

    @property
    def equal(self) -> bool:
        return not self.outputs

    def __str__(self) -> str:
        left, right = self.providers
        if self.equal:
            return f"{left} and {right} agree"
        lines = [f"{left} and {right} part:", *(f"  output {d}" for d in self.outputs)]
        if self.difference is not None:
            lines.append(f"first at node {self.node!r} ({visible(self.op)}): {self.difference}")
        if self.fused_only:
            lines.append(f"the outputs agree once this value is kept: a kernel that fuses {self.node!r} is the cause")
        return "\n".join(lines)


def difference(name: str, left: Any, right: Any, rtol: float, atol: float) -> Difference | None:
    """How two results differ beyond `atol + rtol * largest magnitude`; None where they do not. NaN equals NaN."""
    if not isinstance(left, np.ndarray) or not isinstance(right, np.ndarray):
        same = repr(left) == repr(right)
        return None if same else Difference(name, np.inf, np.inf, (), left, right)
    if left.shape != right.shape or left.dtype != right.dtype:
        given = (f"{a.dtype.name}{list(a.shape)}" for a in (left, right))
        return Difference(name, np.inf, np.inf, (), *given)
    if left.dtype.kind in "OUSb" or not left.size:
        return None if np.array_equal(left, right) else _at(name, left, right, (left != right).astype(np.float64), 1.0)
    wide = np.complex128 if left.dtype.kind == "c" else np.float64
    a, b = left.astype(wide), right.astype(wide)
    with np.errstate(invalid="ignore"):
        distance = np.where((a == b) | (np.isnan(a) & np.isnan(b)), 0.0, np.abs(a - b))
    distance = np.nan_to_num(distance, nan=np.inf, posinf=np.inf)
    magnitudes = np.abs(b[np.isfinite(b)])
    scale = float(magnitudes.max()) if magnitudes.size else 0.0
    return None if distance.max() <= atol + rtol * scale else _at(name, left, right, distance, scale)


def _at(name: str, left: np.ndarray, right: np.ndarray, distance: np.ndarray, scale: float) -> Difference:
    index = np.unravel_index(int(distance.argmax()), distance.shape)
    place = tuple(int(i) for i in index)
    worst = float(distance[index])
    return Difference(name, worst, worst / scale if scale else np.inf, place, left[index], right[index])


def session_on(providers: Providers, model: Any, sess_options: SessionOptions | None = None) -> InferenceSession:
    """A session whose runs are all of one tier, that of kernels compiled for the model."""
    options = copy.deepcopy(sess_options) if sess_options is not None else SessionOptions()
    options.add_session_config_entry(background_compile.KEY, "0")
    return InferenceSession(model, options, [providers] if isinstance(providers, str) else list(providers))


class _Search:
    def __init__(self, sessions: Sequence[InferenceSession], feed: Mapping[str, Any], rtol: float, atol: float) -> None:
        self.feed, self.rtol, self.atol, self.sessions = feed, rtol, atol, sessions
        self.graph = self.sessions[0]._engine.graph()
        self.values = tappable(self.graph)
        self.order = {name: i for i, name in enumerate(self.values)}
        self.known: dict[str, tuple[Difference | None, bool]] = {}

    def outputs(self) -> tuple[Difference, ...]:
        left, right = (s.run(None, self.feed) for s in self.sessions)
        names = self.graph.output_names()
        found = (difference(n, a, b, self.rtol, self.atol) for n, a, b in zip(names, left, right, strict=True))
        return tuple(d for d in found if d is not None)

    def at(self, name: str) -> Difference | None:
        """How the value `name` differs when it is tapped."""
        if name not in self.known:
            left, right = (s._engine.inspection().tapped(self.feed, [name]) for s in self.sessions)
            outputs_agree = all(difference("", a, b, self.rtol, self.atol) is None for a, b in zip(left, right, strict=True))
            self.known[name] = (difference(name, left.taps[name], right.taps[name], self.rtol, self.atol), outputs_agree)
        return self.known[name][0]

    def first(self, output: str) -> tuple[str, Difference | None, bool]:
        """The value that differs though what it is computed from does not."""
        names = list(self.values)
        low, high = -1, self.order[output]
        while high - low > 1:
            middle = (low + high) // 2
            if self.at(names[middle]) is not None:
                high = middle
            else:
                low = middle
        name = names[high]
        while True:
            wrong = [n for n in self.values[name].used_names() if n in self.order and self.at(n) is not None]
            if not wrong:
                found = self.at(name)
                return name, found, found is None or self.known[name][1]
            name = min(wrong, key=self.order.__getitem__)


def _label(providers: Providers) -> str:
    return providers if isinstance(providers, str) else ",".join(str(p[0] if isinstance(p, tuple) else p) for p in providers)


def compare_providers(
    model: Any, providers: Sequence[Providers], feed: Mapping[str, Any], *, rtol: float = 1e-4, atol: float = 1e-6,
    sess_options: SessionOptions | None = None,
) -> Comparison:  # fmt: skip
    """Run `model` on two providers (names, or lists as a session takes them) and find the first node where they part.

    Args:
        model: as `InferenceSession` takes it.
        providers: two of them; the second is taken to be right.
        feed: inputs as `run` takes them.
        rtol, atol: values differ where |a - b| is more than atol + rtol * the tensor's largest magnitude.
        sess_options: of both sessions.

    Raises:
        InvalidArgument: not two providers.
        As `InferenceSession` and `run`.
    """
    if isinstance(providers, str) or len(providers) != 2:
        raise InvalidArgument(f"compare_providers: expected two providers, got {providers!r}")
    search = _Search([session_on(each, model, sess_options) for each in providers], feed, rtol, atol)
    labels = _label(providers[0]), _label(providers[1])
    outputs = search.outputs()
    computed = [d for d in outputs if d.value in search.order]
    if not computed:
        return Comparison(labels, outputs)
    name, found, fused = search.first(min(computed, key=lambda d: search.order[d.value]).value)
    node = search.values[name]
    count = 2 + 2 * len(search.known)
    return Comparison(labels, outputs, node.name or name, node.qualified_op, found, fused, count)
