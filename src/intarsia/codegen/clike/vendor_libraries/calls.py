"""Calls of a vendor's libraries as data: what stands in a kernel's place where a library computes a value.

Views are of operands in the order in which the call names them; the result comes last, packed. Nothing here knows a library's
interface: `device.cublaslt` and `device.cudnn` do.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields
from typing import Any, ClassVar, Protocol

from intarsia.codegen.clike.schedules import Kernel
from intarsia.codegen.clike.vendor_libraries.strided_views import View
from intarsia.lazy_dataclass import dataclass


@dataclass(frozen=True)
class MatrixProduct:
    """activation(alpha left @ right + addend + bias), rounded once to the result's type.

    Attributes:
        left, right: [batch, m, k] and [batch, k, n]; along one of the last two axes elements are neighbours.
        addend: [batch, m, n], rows packed, of the result's type; None: nothing is added.
        bias: [n], packed, of the result's type.
        result: [batch, m, n].
        activation: "", "relu" or "gelu_tanh".
    """

    library: ClassVar[str] = "cuBLASLt"
    kind: ClassVar[str] = "product"

    left: View
    right: View
    result: View
    addend: View | None = None
    bias: View | None = None
    alpha: float = 1.0
    activation: str = ""

    @property
    def flop(self) -> int:
        batch, m, n = self.result.shape
        return 2 * batch * m * n * self.left.shape[2]


@dataclass(frozen=True)
class Convolution:
    """activation(x convolved with w, + bias, + addend), rounded once to the result's type.

    Attributes:
        x, w: [n, groups * c, *spatial] and [m, c, *kernel].
        bias: [1, m, 1, ...].
        addend, result: [n, m, *out].
        low, high: padding before and behind each spatial axis.
        activation: "", or a key of `select_calls.ACTIVATIONS`.
        ceiling: results of "relu" are at most this.
    """

    library: ClassVar[str] = "cuDNN"
    kind: ClassVar[str] = "convolution"

    x: View
    w: View
    result: View
    low: tuple[int, ...]
    high: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    bias: View | None = None
    addend: View | None = None
    activation: str = ""
    ceiling: float | None = None

    @property
    def flop(self) -> int:
        count = 2
        for n in (*self.result.shape, *self.w.shape[1:]):
            count *= n
        return count


@dataclass(frozen=True)
class Attention:
    """softmax(scale q k' + bias, where masks hold) v.

    Attributes:
        q, k, v, result: [batch, heads, length, size]; k and v of fewer heads, each for as many consecutive ones of q; the
            result's heads are neighbours in memory.
        bias: [batch or 1, heads or 1, queries or 1, keys], float32 or of the type of q.
        lengths: [batch, 1, 1, 1] int32: how many keys of each text may be attended.
        places, rows: [batch, 1, 1, 1] int32: where each text's last query lies among the keys, plus one, and the number of
            queries: row r is at places - rows + r. None: at r.
        right: a row at place p may attend columns up to p + right. left: columns from p - left on. None: all.
    """

    library: ClassVar[str] = "cuDNN"
    kind: ClassVar[str] = "attention"

    q: View
    k: View
    v: View
    result: View
    scale: float = 1.0
    bias: View | None = None
    lengths: View | None = None
    places: View | None = None
    rows: View | None = None
    right: int | None = None
    left: int | None = None

    @property
    def flop(self) -> int:
        batch, heads, rows, size = self.result.shape
        return 2 * batch * heads * rows * self.k.shape[2] * (self.q.shape[3] + size)


Call = MatrixProduct | Convolution | Attention


def operands(call: Call) -> Iterator[tuple[str, View]]:
    """The views that a call reads, by their names, in the order of its operands."""
    for f in fields(call):
        value = getattr(call, f.name)
        if isinstance(value, View) and f.name != "result":
            yield f.name, value


def called(call: Call, leaves: Mapping[str, object]) -> Kernel:
    """A call as a job's kernel; `leaves`: by operand, the name of the value that it is a view of."""
    names = tuple(leaves[name] for name, _ in operands(call))
    return Kernel(
        text(call), names, 1, (), (0, 0, 0), 0, False, (1,) * (len(names) + 1), 1 << 62, False, call
    )  # fmt: skip


def text(call: Call) -> str:
    """All that a call is, in one line: equal for equal calls."""
    parts = []
    for f in fields(call):
        value = getattr(call, f.name)
        if isinstance(value, View):
            offset = f"+{value.offset}" if value.offset else ""
            parts.append(f"{f.name} {value.dtype.onnx_name}{list(value.shape)} by {list(value.strides)}{offset}")
        elif value != f.default:
            parts.append(f"{f.name} {value}")
    return f"// {call.library} {call.kind}: {', '.join(parts)}\n"


@dataclass(frozen=True)
class Choice:
    """Who computes a product, a convolution or attention, and why. `node`: whose it is, where a kernel does more. `code`:

    - "library": the library that is named;
    - "library-cost": kernels of ours, since the work is not bound by multiplications;
    - "library-shape": kernels of ours, since the operands' memory cannot be described to the library;
    - "library-declined": kernels of ours, since the library has none for it;
    - "library-missing": kernels of ours, since the library is not there.
    """

    library: str
    code: str
    reason: str
    suggestion: str = ""
    node: str = ""


class Libraries(Protocol):
    """What a device offers."""

    @property
    def identity(self) -> str:
        """What their answers depend on besides a call."""

    def missing(self, library: str) -> Choice | None:
        """Why the library is not there; None where it is."""

    def declined(self, call: Call) -> str:
        """Why the library does not compute this; "" where it does. It may be called again and again."""

    def prepared(self, call: Call) -> Any:
        """The call as a program, see `device.libraries.LibraryProgram`. Raises where it is declined."""

    @property
    def channels_last(self) -> bool:
        """Whether convolutions work on images whose channels are neighbours in memory."""
