"""The known-answer test of a device: small kernels and copies whose results are known, run when it is first opened.

A driver can accept kernels, start them and return garbage without an error: Wine 8's Direct3D 12 writes nothing at all. So no
device is used before it has answered: copies there and back and within it, arithmetic of floats and of integers, sums by
groups of threads, a product of matrices, and launches of which each reads what the one before wrote. A device that is wrong
is refused with what it got wrong.

Answers that were right are remembered in the cache for the device, its driver and this package's version, so that a device
is run once on a machine. INTARSIA_DEVICE_TEST=always has every process run it, and 0 has none: for who knows that a device is
wrong and looks for the reason.
"""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from intarsia.cache.disk_cache import content_key, get_cache
from intarsia.codegen.clike import Cut
from intarsia.device.gpu import Counters, Gpu, Launch, Slice, aligned
from intarsia.errors import EPFail, InvalidArgument
from intarsia.graph.dtypes import DType
from intarsia.lazy_dataclass import dataclass
from intarsia.machine.version import __version__
from intarsia.primitives import lang as k
from intarsia.primitives.lang import Tensor
from intarsia.primitives.substitute import substitute
from intarsia.printable import get_logger

VARIABLE = "INTARSIA_DEVICE_TEST"
_MODES = ("", "always", "0")
_UNWRITTEN = 0x7FE5A5A5
"""Each word of a result before the device has written it: NaN as a float, near no answer as an integer."""
_WORD = np.dtype(np.uint32)
_PASSED = b"passed"
_logger = get_logger("intarsia")
_answered: dict[str, str] = {}
"""By `_key`: what a device of this process got wrong; "" where all was right."""


def require(gpu: Gpu, again: bool = False) -> None:
    """Refuse a device that computes wrong results.

    Args:
        again: it is run whatever it answered before (it was lost since).

    Raises:
        EPFail: with what it got wrong, or why it did not answer.
        InvalidArgument: the environment variable has another value.
    """
    mode = os.environ.get(VARIABLE, "")
    if mode not in _MODES:
        raise InvalidArgument(f"environment variable {VARIABLE}: expected 'always', '0' or nothing, got {mode!r}")
    if mode == "0":
        return
    key = _key(gpu)
    wrong = _answered.get(key)
    if wrong is None or again or mode == "always":
        remembered = not again and mode != "always" and get_cache().get(key) == _PASSED
        wrong = _answered[key] = "" if remembered else _answer(gpu)
        if not remembered and not wrong:
            get_cache().put(key, _PASSED)
    if wrong:
        raise EPFail(
            f"{gpu.device} ({gpu.device.description}) is refused, since it failed its known-answer test: {wrong}. "
            "Its driver is at fault: update it, or use another device or provider"
        )


def _key(gpu: Gpu) -> str:
    return "known-answers-" + content_key(__version__, *gpu.identity())


def _answer(gpu: Gpu) -> str:
    """What a device gets wrong; "": nothing. Its counters and its pool of memory are afterwards as they were."""
    start, limit = time.perf_counter(), gpu.memory_limit
    gpu.memory_limit = 0
    try:
        wrong = answered_wrong(gpu)
    except EPFail as error:
        raise EPFail(
            f"{gpu.device} ({gpu.device.description}) is refused, since it did not come through its known-answer test: {error}"
        ) from error
    finally:
        gpu.memory_limit = limit
    gpu.trim()
    gpu.counters = Counters()
    _logger.info("%s: known-answer test in %.1f ms: %s", gpu.device, 1e3 * (time.perf_counter() - start), wrong or "passed")
    return wrong


def answered_wrong(gpu: Gpu) -> str:
    """What a device gets wrong, one statement for each question, the first two of them; "": nothing.

    Raises:
        EPFail: it did not answer.
    """
    wrong = [found for ask in (_copies, *map(_of_question, questions()), _chain) if (found := ask(gpu))]
    return "; ".join(wrong[:2])


@dataclass(frozen=True)
class Question:
    """A kernel's worth of primitives over `input(i)`, and the result that it must have.

    Attributes:
        tolerance: relative, of functions that languages leave some units open; 0: every bit is known.
    """

    title: str
    root: Tensor
    operands: tuple[np.ndarray, ...]
    answer: np.ndarray
    tolerance: float = 0.0


@functools.cache
def questions() -> tuple[Question, ...]:
    """Those of kernels. Floats are small dyadic numbers, whose sums and products no order of computing rounds."""
    return _float_arithmetic(), _integer_arithmetic(), _sums_of_rows(), _matrix_product()


def _float_arithmetic() -> Question:
    n = np.arange(1000)
    a, b = (n % 64 - 32) / 4, (n % 7 - 3) / 2
    x, y = (k.input(i, DType.FLOAT, n.shape) for i in range(2))
    root = k.select(x < y, k.maximum(x * y + 2.5, y - x), k.sqrt(k.absolute(x)) / 3.0)
    answer = np.where(a < b, np.maximum(a * b + 2.5, b - a), np.sqrt(np.abs(a)) / 3).astype(np.float32)
    return Question("arithmetic of float32", root, (a.astype(np.float32), b.astype(np.float32)), answer, 1e-5)


def _integer_arithmetic() -> Question:
    n = np.arange(1000, dtype=np.int32)
    a, b = n * 7919 - 3_000_000, n % 13 + 1
    x, y = (k.input(i, DType.INT32, n.shape) for i in range(2))
    root = k.maximum(x, k.neg(x)) * 3 - k.binary("bitand", x, k.full(n.shape, 0x5A5A, DType.INT32)) + k.binary("bitxor", x, y)
    answer = np.maximum(a, -a) * 3 - (a & 0x5A5A) + (a ^ b)
    return Question("arithmetic of int32", root, (a, b), answer)


def _sums_of_rows() -> Question:
    a = (np.arange(5 * 1500).reshape(5, 1500) % 251 - 100).astype(np.float32)
    root = k.reduce_sum(k.input(0, DType.FLOAT, a.shape), [1])
    return Question("sums of rows", root, (a,), a.astype(np.int64).sum(1).astype(np.float32))


def _matrix_product() -> Question:
    a = (np.arange(33 * 40).reshape(33, 40) % 17 - 8).astype(np.float32)
    b = (np.arange(40 * 36).reshape(40, 36) % 11 - 5).astype(np.float32)
    root = k.dot(k.input(0, DType.FLOAT, a.shape), k.input(1, DType.FLOAT, b.shape))
    return Question("a product of matrices", root, (a, b), (a.astype(np.int64) @ b.astype(np.int64)).astype(np.float32))


# --- asking -----------------------------------------------------------------------------------------------------------


def _copies(gpu: Gpu) -> str:
    """Bytes to the device, within it to another place, and back."""
    given = np.arange(2048, dtype=np.uint32) * np.uint32(2654435761)  # Knuth's multiplicative hash: no two words are alike
    source, target = gpu.write(given), gpu.write(np.full(4096, _UNWRITTEN, np.uint32))
    if wrong := _difference(_words(gpu, source, _WORD), given, 0.0):
        return f"copies to the device and back: {wrong}"
    place = Slice(target.memory, 1024, given.nbytes)
    gpu.copy(source, place)
    expected = np.full(4096, _UNWRITTEN, np.uint32)
    expected[256 : 256 + given.size] = given
    wrong = _difference(_words(gpu, target, _WORD), expected, 0.0)
    return f"copies within the device: {wrong}" if wrong else ""


def _of_question(question: Question) -> Callable[[Gpu], str]:
    return lambda gpu: _wrong(gpu, question)


def _wrong(gpu: Gpu, question: Question) -> str:
    bound = _Bound(gpu, question)
    gpu.run(bound.launches)
    wrong = _difference(_words(gpu, bound.result, question.answer.dtype), question.answer.reshape(-1), question.tolerance)
    return f"{question.title}: {wrong}" if wrong else ""


def _chain(gpu: Gpu) -> str:
    """Launches in one go, of which each reads what the one before wrote: x becomes (5 x + 3) mod 65536, five times."""
    answer = np.arange(300, dtype=np.int32)
    x = k.input(0, DType.INT32, answer.shape)
    step = k.binary("bitand", x * 5 + 3, k.full(answer.shape, 0xFFFF, DType.INT32))
    bound = _Bound(gpu, Question("", step, (answer,), answer))
    to, back = bound.launches, bound.bound(bound.result, bound.given[0])
    gpu.run([*to, *back, *to, *back, *to])
    for _ in range(5):
        answer = (answer * 5 + 3) & 0xFFFF
    wrong = _difference(_words(gpu, bound.result, answer.dtype), answer, 0.0)
    return f"launches that read what those before them wrote: {wrong}" if wrong else ""


class _Bound:
    """A question's kernels on the device: operands are there, and each result is filled with `_UNWRITTEN`."""

    def __init__(self, gpu: Gpu, question: Question) -> None:
        self._gpu = gpu
        cut = Cut(gpu.dialect)
        self.given = [gpu.write(a) for a in question.operands]
        root = _named(question)
        for i, array in enumerate(question.operands):
            cut.stored[f"x{i}"] = (DType.of(array.dtype), array.shape)
        cut.store(cut.settle(root), "y")
        self._jobs = cut.jobs
        self._places = {f"x{i}": place for i, place in enumerate(self.given)}
        self._places |= {name: gpu.write(array) for name, array in cut.tables.items()}
        for name, (dtype, shape) in cut.stored.items():
            if name not in self._places:
                nbytes = dtype.numpy.itemsize * int(np.prod(shape))
                whole = gpu.write(np.full(aligned(nbytes) // 4, _UNWRITTEN, np.uint32))
                self._places[name] = Slice(whole.memory, 0, nbytes)
        self.result = self._places["y"]
        self.launches = [bound for i in range(len(self._jobs)) for bound in self._bound(i, self._places)]

    def bound(self, source: Slice, target: Slice) -> list[object]:
        """The launches with another operand and result."""
        places = {**self._places, "x0": source, "y": target}
        return [bound for i in range(len(self._jobs)) for bound in self._bound(i, places)]

    def _bound(self, i: int, places: dict[str, Slice]) -> list[object]:
        gpu, job = self._gpu, self._jobs[i]
        kernel = job.kernel
        bindings = [places[name] for name in (*job.reads, *job.writes)]
        if kernel.sizes and not gpu.dialect.sizes_are_arguments:
            bindings.append(gpu.write(np.array(kernel.sizes, np.int32)))
        if kernel.checked:
            bindings.append(gpu.write(np.zeros(1, np.uint32)))
        return [gpu.bind(Launch(kernel, gpu.program(kernel), tuple(bindings), "the known-answer test"))]


def _named(question: Question) -> Tensor:
    (root,) = substitute([question.root], lambda t: k.input(f"x{t.attrs[0]}", t.dtype, t.shape))
    return root


def _words(gpu: Gpu, place: Slice, dtype: np.dtype[Any]) -> np.ndarray:
    return np.frombuffer(bytes(gpu.read(place, place.nbytes)), dtype)


def _difference(found: np.ndarray, answer: np.ndarray, tolerance: float) -> str:
    """How a result is not the answer, both of one axis; "" where it is."""
    with np.errstate(all="ignore"):
        close = np.isclose(found, answer, rtol=tolerance, atol=tolerance) if tolerance else found == answer
    wrong = np.flatnonzero(~close)
    if not wrong.size:
        return ""
    i = int(wrong[0])
    count = f"{wrong.size:,} of {answer.size:,} elements are wrong"
    if (found.view(np.uint32)[wrong] == _UNWRITTEN).all():
        return f"{count}, which the device has not written"
    return f"{count}; element {i} is {found[i]!s} and should be {answer[i]!s}"
