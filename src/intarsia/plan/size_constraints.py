"""What sizes must satisfy, checked when a segment is bound."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from intarsia.errors import NodeFailed, OutOfMemory
from intarsia.graph.dims import Dim, evaluate, symbols_of
from intarsia.graph.dtypes import DType
from intarsia.lazy_dataclass import dataclass
from intarsia.machine.resources import fits, in_mib, refused
from intarsia.run_status import DIVISOR_IS_ZERO

_SHOWN = 60  # characters of a size that a message writes out
_MOST_STRIDE = 1 << 63  # NumPy counts bytes in 63 bits, for empty arrays too


SEPARATE_BRANCHES = "_separate_branches"  # an attribute of an If whose branches are programs of their own


WINDOWS_ON_HOST = "_windows_on_host"  # an attribute of a pool that Python computes, whatever its sizes are


class SizesNeedVariant(NodeFailed):
    """Sizes for which a node computes something else than for most, which the kernels were made for: where they are those of
    inputs, the session has a graph made in which they are numbers; where a run computes them, one in which Python computes
    the node."""


class BranchNeedsVariant(SizesNeedVariant):
    """Sizes for which a branch that may not be taken has no result: the session has a graph made whose branches are programs of
    their own, each bound when it is taken."""


class ElementsNeedVariant(SizesNeedVariant):
    """A value of another shape than what follows was compiled for: where it comes from a sequence whose elements are not of
    their declared shape, the session has a graph made in which they may be of any."""


@dataclass(frozen=True)
class Constraint:
    """What sizes must satisfy for the kernels to be right.

    `kind` is "equal", "broadcast" (the first may be 1), "least" (the first is at least as large as the second) or "divisor"
    (the first, by which a node divides, is not 0; the second is how many quotients there are). `what`: whose sizes they are, in
    messages. `variant`: other sizes are no error, but require kernels of their own; `branch`: an error of a branch only.
    """

    kind: str
    left: Dim
    right: Dim
    where: str
    variant: bool = False
    what: str = ""
    branch: bool = False

    def __str__(self) -> str:
        left, right = _shown(self.left), _shown(self.right)
        text = {
            "equal": f"{left} = {right}", "broadcast": f"{left} is 1 or {right}", "least": f"{left} >= {right}",
            "divisor": f"{left} is not 0",
        }[self.kind]  # fmt: skip
        return f"{text} ({self.what})" if self.what else text

    def check(self, env: Mapping[str, int]) -> None:
        """Raises SizesNeedVariant for sizes that require other kernels, and NodeFailed for those that are an error."""
        kind = BranchNeedsVariant if self.branch else SizesNeedVariant if self.variant else NodeFailed
        try:
            left, right = evaluate(self.left, env), evaluate(self.right, env)
        except (ValueError, ZeroDivisionError) as error:
            raise kind(f"{self.where}: {error}") from None
        if not holds(self.kind, left, right):
            raise kind(f"{self.where}: {self._wrong(left, right, env)}")

    def _wrong(self, left: int, right: int, env: Mapping[str, int]) -> str:
        if self.kind == "divisor":
            return f"the size {self.left} is 0: {DIVISOR_IS_ZERO}"
        if self.variant:
            return f"its window spans {right} elements of an axis that has {left} with its pads"
        sizes = ", ".join(f"{n} = {env[n]}" for n in sorted(symbols_of(self.left) | symbols_of(self.right)))
        if self.what:
            verb = {"broadcast": "1 or ", "least": "at least ", "equal": ""}[self.kind]
            return f"{self.what}: got {left}, expected {verb}{right}, with {sizes}"
        if self.kind == "least":
            return f"a dimension of size {left} ({self.left}) must be at least {right}"
        verb = "broadcast to" if self.kind == "broadcast" else "equal"
        if max(len(str(self.left)), len(str(self.right))) <= _SHOWN:
            return f"a dimension of size {left} ({self.left}) must {verb} one of size {right} ({self.right})"
        return f"the shapes of its inputs do not fit together, with {sizes}: {left} must {verb} {right}"


def _shown(d: Dim) -> str:
    """A size in a list of what kernels rely on."""
    text = str(d)
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 3]}..."


def check_known(constraints: Iterable[Constraint], env: Mapping[str, int]) -> None:
    """Check those all of whose symbols have values. Raises NodeFailed for the first that does not hold."""
    for constraint in constraints:
        if symbols_of(constraint.left) | symbols_of(constraint.right) <= env.keys():
            constraint.check(env)


def holds(kind: str, left: int, right: int) -> bool:
    """Whether two sizes are as a constraint of this kind has them."""
    if kind == "divisor":
        return left != 0 or right == 0
    return left == right or (kind == "broadcast" and left == 1) or (kind == "least" and left > right)


def check_shape(name: str, shape: tuple[int, ...], dtype: DType) -> None:
    """Before anything is laid out: kernels compute offsets in 64 bits."""
    if shape and min(shape) < 0:
        raise NodeFailed(f"value {name!r} would have shape {list(shape)}: a size is negative; check sizes and pads")
    elements = math.prod(shape)
    if not fits(elements * dtype.numpy.itemsize):
        raise too_large(name, shape, elements * dtype.numpy.itemsize)
    if not elements:
        check_empty(name, shape, dtype.numpy.itemsize)


def check_empty(name: str, shape: tuple[int, ...], itemsize: int) -> None:
    """Of a value without elements: an array of its shape can be made. Raises OutOfMemory."""
    if math.prod(d or 1 for d in shape) * itemsize >= _MOST_STRIDE:
        raise OutOfMemory(
            f"value {name!r} of shape {list(shape)} has no elements, but sizes whose product is more than 63 bits count: "
            "use smaller sizes"
        )


def too_large(name: str, shape: tuple[int, ...], nbytes: int) -> OutOfMemory:
    """The error for a tensor that no memory can be had for."""
    return OutOfMemory(f"value {name!r} of shape {list(shape)} needs {in_mib(nbytes)}, {refused(nbytes)}")
