"""One-node models whose sizes only a run knows, fed with operands that do not fit each other.

A case is an operator's example in which every size has a name of its own ("named"), or in which no operand has a declared
shape ("unknown"). Its operands end at a page that nothing may read. One after the other each axis of each operand gets
another size, or the operand another rank. Run as a program it reads a line `OPERATOR SEED` for each case (the operator's
`variants` are numbered by the seed) and writes a line of JSON.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import mmap
import os
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import chain, zip_longest
from typing import Any

import numpy as np
from mutations import ELEMENTS, EXAMPLES, PROVIDERS, Operand, built_case, read_attributes, read_operand, told_of

import intarsia as ort
from intarsia.errors import IntarsiaError, OutOfMemory

WEIGHTS = frozenset("float16 float32 float64 int8 uint8".split())  # element types; others are of axes and shapes
NUMBERED = frozenset(("int32", "int64"))
NUMBERS = (-1, -2, -9, 2, 9, 100, -(2**63))
RANDOM = frozenset("RandomNormalLike RandomUniformLike Multinomial Bernoulli".split())  # each run gives other numbers


@dataclass(frozen=True)
class Variant:
    """An example, how its operands are declared, and whether its weights are operands of the run."""

    line: str
    declared: str
    weights: str

    def __str__(self) -> str:
        return f"{self.declared} sizes, weights {self.weights}"


def variants(operator: str) -> list[Variant]:
    """What is tried of an operator: each of its examples with names for sizes, the first with unknown ranks."""
    lines = [text for text in EXAMPLES.read_text(encoding="utf-8").splitlines() if text.partition("|")[0].strip() == operator]
    forms = dict.fromkeys(_shape_of_line(text) for text in lines)
    firsts = [next(text for text in lines if _shape_of_line(text) == form) for form in forms]
    found = []
    for i, text in enumerate(firsts):
        constants = re.findall(r"=(\w+)", text.split("|")[1])
        weights = ["given"] + (["constant"] if constants else []) + (["and numbers given"] if {*constants} & NUMBERED else [])
        found += [Variant(text, "dynamic", w) for w in weights]
        found += [Variant(text, "none", "given")] if i == 0 else []
    return found


def _shape_of_line(text: str) -> str:
    """An example without its element types: of those that differ in these alone one is enough."""
    fields = [part.strip() for part in text.split("|")]
    shapes = [operand.partition("[")[2] for operand in fields[1].split(";")] if len(fields) > 1 else []
    return f"{shapes} {fields[2:] if 'to=' not in text else ''}"


def operators() -> list[str]:
    """Operators whose examples have operands of some size."""
    names = {}
    for text in EXAMPLES.read_text(encoding="utf-8").splitlines():
        if text.strip() and not text.startswith("#"):
            name, _, rest = text.partition("|")
            names.setdefault(name.strip(), []).append(rest)
    return sorted(n for n, rests in names.items() if any("[" in rest.partition("|")[0] for rest in rests))


def guarded(x: np.ndarray) -> np.ndarray:
    """A copy of the array behind which there is a page that must not be read or written."""
    page = mmap.PAGESIZE
    room = -(-max(x.nbytes, 1) // page) * page
    memory = mmap.mmap(-1, room + page)
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mprotect(ctypes.c_void_p(address + room), ctypes.c_size_t(page), 0):
        raise OSError(ctypes.get_errno(), "mprotect")
    copy = np.frombuffer(memory, x.dtype, x.size, room - x.nbytes).reshape(x.shape)
    copy[...] = x
    return copy


def changes(x: np.ndarray, ranks: bool) -> Iterator[tuple[str, np.ndarray]]:
    """The operand with another size of one axis, or another rank."""
    for axis, size in enumerate(x.shape):
        for other in dict.fromkeys((1, 0, max(size - 1, 0), size + 1, 2 * size)):
            if other != size and size:
                yield f"axis {axis} of size {other}, not {size}", np.take(x, np.arange(other) % size, axis)
    if ranks:
        yield "one more axis", x[None]
        if x.ndim:
            yield "one axis less", x.reshape(-1) if x.ndim != 1 else x[:1].reshape(())


def other_elements(x: np.ndarray) -> Iterator[tuple[str, np.ndarray]]:
    """The operand with elements that are no indices, lengths or counts of what the others are."""
    if x.dtype.kind != "i" or x.dtype.itemsize < 4 or not x.size:
        return
    for value in NUMBERS:
        number = max(value, int(np.iinfo(x.dtype).min))
        yield f"all {number}", np.full_like(x, number)
        if x.size > 1:
            last = x.copy()
            last.reshape(-1)[-1] = number
            yield f"its last element {number}", last


def problems(operator: str, variant: Variant, ran: list[bool]) -> Iterator[str]:
    """What was neither the definition's result nor an error of Intarsia's; `ran` gets an entry if there was anything to run."""
    fields = [*(part.strip() for part in variant.line.split("|")), "", "", ""]
    domain, _, name = operator.rpartition("::")
    texts = [t.strip() for t in fields[1].split(";") if t.strip()]
    captured = int(fields[3].removeprefix("captures ")) if fields[3].startswith("captures ") else 0
    operands = [read_operand(t, i) for i, t in enumerate(texts)]
    for i, value in ELEMENTS.get(operator, {}).items():
        operands[i] = Operand(np.array(value, operands[i].value.dtype), False)  # type: ignore[union-attr]
    if variant.weights != "constant":
        operands = [o and _given(o, "numbers" in variant.weights) for o in operands]
    outputs = int(fields[3]) if fields[3].isdecimal() else 1
    count = len(operands) - captured
    case = built_case(domain, name, operands, count, read_attributes(fields[2]), outputs, variant.declared, str(variant))
    if name in RANDOM:
        return
    try:
        sessions = [session_on(provider, case.model) for provider in PROVIDERS]
    except IntarsiaError:  # the definition needs a size or a value, which no model can leave open
        return
    ran.append(True)
    yield from tried(sessions, case.feeds, variant.declared == "none", case.timeout)


def session_on(provider: str, model: bytes) -> ort.InferenceSession:
    options = ort.SessionOptions()
    options.intra_op_num_threads = 2
    options.log_severity_level = 4
    return ort.InferenceSession(model, options, providers=[provider])


def tried(sessions: list[Any], given: dict[str, Any], ranks: bool, timeout: float | None = None) -> Iterator[str]:
    """What differs between sessions of one model, for the operands that are given and for others instead of each."""
    arrays = {n: guarded(x) if isinstance(x, np.ndarray) and not x.dtype.hasobject else x for n, x in given.items()}
    yield from _compared(sessions, arrays, timeout, "as the example is")
    for label, value in given.items():
        if not isinstance(value, np.ndarray):
            continue
        for told, changed in chain(changes(value, ranks), other_elements(value)):
            other = np.ascontiguousarray(changed)
            feeds = {**arrays, label: other if other.dtype.hasobject else guarded(other)}
            yield from _compared(sessions, feeds, timeout, f"{label}: {told}")


def _given(operand: Operand, numbers: bool) -> Operand:
    """A weight as an operand of the run; so are axes, shapes and the like, if `numbers`."""
    constant = operand.constant and not numbers and str(getattr(operand.value, "dtype", "")) not in WEIGHTS
    return replace(operand, constant=constant)


def _compared(sessions: list[Any], feeds: dict[str, Any], timeout: float | None, told: str) -> Iterator[str]:
    results = []
    for provider, session in zip(PROVIDERS, sessions, strict=True):
        try:
            results.append(session.run(None, feeds, timeout=timeout))
        except IntarsiaError as error:
            results.append(error)
        except BaseException as error:  # noqa: BLE001 (that is what is looked for)
            yield f"{told}: {provider}: {told_of(error)}"
            return
    found, expected = results
    if isinstance(found, IntarsiaError):
        return
    if isinstance(expected, OutOfMemory):  # of what NumPy makes besides the result
        return
    if isinstance(expected, IntarsiaError):
        shapes = [list(np.shape(y)) for y in found]
        yield f"{told}: a result of shapes {shapes}; the reference: {type(expected).__name__}: {str(expected)[:200]}"
        return
    for i, (a, b) in enumerate(zip(found, expected, strict=True)):
        if what := _difference(a, b):
            yield f"{told}: output {i}: {what}"


def _difference(a: Any, b: Any) -> str:
    if isinstance(b, list):
        return next((d for x, y in zip_longest(a, b) if (d := _difference(x, y))), "")
    if not isinstance(b, np.ndarray):
        return ""
    if a.dtype != b.dtype or a.shape != b.shape:
        return f"{a.dtype}{list(a.shape)}, of the reference {b.dtype}{list(b.shape)}"
    if b.dtype.hasobject or b.dtype.kind == "b":
        return "" if np.array_equal(a, b) else "other elements than the reference's"
    a, b = (x.astype(np.complex128 if x.dtype.kind == "c" else np.float64) for x in (a, b))
    unit = 0.02 * (1 + np.abs(b))
    with np.errstate(all="ignore"):
        near = (np.abs(a - b) <= unit) | (a == b) | (np.isnan(a) & np.isnan(b))
    return "" if near.all() else f"{int((~near).sum())} of {near.size} elements are not the reference's"


def answer(tell: Callable[[str, int], tuple[str, list[str], bool]]) -> None:
    """Reads a line `NAME NUMBER` for each case, and writes what `tell` says of it as JSON: what it is, what is wrong with it,
    and whether it ran.
    """
    with contextlib.suppress(ImportError):
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (5 << 30, resource.getrlimit(resource.RLIMIT_AS)[1]))
    ort.set_default_logger_severity(4)
    answers: Callable[[str], Any] = os.fdopen(os.dup(1), "w").write
    os.dup2(2, 1)
    for line in sys.stdin:
        name, number = line.split()
        told, found, ran = tell(name, int(number))
        answers(json.dumps({"told": told, "found": found, "ran": ran}) + "\n")
        answers.__self__.flush()  # type: ignore[attr-defined]


def _variant(operator: str, number: int) -> tuple[str, list[str], bool]:
    variant, ran = variants(operator)[number], list[bool]()
    found = list(problems(operator, variant, ran))
    return str(variant), found, bool(ran)


if __name__ == "__main__":
    answer(_variant)
