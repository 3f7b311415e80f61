"""Expressions cut for a device with libraries, and computed on the host: calls by imitated libraries, the rest by NumPy."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from fake_cublaslt import FakeCublasLt
from fake_cudnn import FakeCudnn

from intarsia.codegen.clike import Cuda, Cut
from intarsia.codegen.clike.vendor_libraries.calls import Call, Choice, Convolution, MatrixProduct
from intarsia.device.cublaslt import CublasLt
from intarsia.device.cuda_libraries import PRODUCT_WORKSPACE
from intarsia.device.cudnn import Cudnn
from intarsia.device.cudnn_calls import attention, convolution
from intarsia.device.libraries import LibraryProgram, NotOfferedError
from intarsia.graph.dtypes import DType
from intarsia.primitives import lang as k
from intarsia.primitives.interpreter import interpret
from intarsia.primitives.lang import Tensor, walk

ROUNDING = {DType.FLOAT: 2e-6, DType.FLOAT16: 2e-3, DType.BFLOAT16: 2e-2, DType.DOUBLE: 1e-14}


@dataclass
class Offered:
    """What `Libraries` asks, over imitations without a machine."""

    blas: FakeCublasLt = field(default_factory=FakeCublasLt)
    dnn: FakeCudnn = field(default_factory=FakeCudnn)
    tf32: bool = False
    last: bool = False
    absent: frozenset[str] = frozenset()
    identity: str = ""

    def __post_init__(self) -> None:
        if not self.tf32:  # engines by tensor cores are left out
            self.dnn.engines = [type(e)(frozenset(), e.workspace_nbytes, e.nanoseconds, e.modes) for e in self.dnn.engines]
        self._blas, self._dnn = CublasLt(13, self.blas.exported()), Cudnn(13, self.dnn.exported())

    def missing(self, library: str) -> Choice | None:
        return Choice(library, "library-missing", "not here") if library in self.absent else None

    def program(self, call: Call) -> LibraryProgram:
        if isinstance(call, MatrixProduct):
            return self._blas.prepared(call, self.tf32, PRODUCT_WORKSPACE)
        if isinstance(call, Convolution):
            return convolution(self._dnn, call, self.tf32, "HEURISTIC", 1 << 30, lambda programs, views: programs[0])
        return attention(self._dnn, call, 1 << 30)

    def prepared(self, call: Call) -> LibraryProgram:
        return self.program(call)

    def declined(self, call: Call) -> str:
        try:
            self.program(call)
        except NotOfferedError as error:
            return str(error)
        return ""

    @property
    def channels_last(self) -> bool:
        return self.last


class RecordingCut(Cut):
    """Remembers the expressions of its own kernels: job's place -> (root, value)."""

    def _launch(self, root: Tensor, name: str, turned: bool = False) -> Tensor | None:
        before = len(self.jobs)
        made = super()._launch(root, name, turned)
        new = range(before, len(self.jobs))
        if len(new) == 1 and self.jobs[new[0]].kernel.call is None:
            self.__dict__.setdefault("roots", {})[new[0]] = (root, name)
        return made


def aligned(array: np.ndarray) -> np.ndarray:
    """A copy that begins at a multiple of 256, as all memory of devices does."""
    room = np.empty(array.nbytes + 256, np.uint8)
    start = -room.ctypes.data % 256
    made = room[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    made[...] = array
    return made


def computed(
    root: Tensor | Callable[[Cut], Tensor], arrays: Mapping[str, np.ndarray], offered: Offered
) -> tuple[np.ndarray, list[Any]]:
    """The value of an expression (or of what a function makes, which may store values before), and its jobs."""
    cut = RecordingCut(Cuda(), libraries=offered)
    cut.store(cut.settle(root if isinstance(root, Tensor) else root(cut)), "result")
    values = {name: aligned(a) for name, a in {**arrays, **cut.tables}.items()}
    roots = cut.__dict__.get("roots", {})
    for i, job in enumerate(cut.jobs):
        if job.kernel.call is not None:
            _call(job, values, cut, offered)
        else:
            expression, name = roots[i]
            values[name] = aligned(_interpreted(expression, values).reshape(cut.stored[name][1]))
    dtype, shape = cut.stored["result"]
    assert not offered.blas.wrong + offered.dnn.wrong
    return values["result"].view(dtype.numpy).reshape(shape), cut.jobs


def _call(job: Any, values: dict[str, np.ndarray], cut: Cut, offered: Offered) -> None:
    program = offered.program(job.kernel.call)
    (target,) = job.writes
    dtype, shape = cut.stored[target]
    values[target] = aligned(np.zeros(shape, dtype.numpy))
    scratch = [aligned(np.zeros(program.workspace_nbytes, np.uint8))] if program.workspace_nbytes else []
    lent = [values[n] for n in job.reads] + [values[target]] + scratch
    assert program.start(0, np.array([a.ctypes.data for a in lent], np.uint64)) == "", (offered.blas.wrong, offered.dnn.wrong)


def _interpreted(root: Tensor, values: Mapping[str, np.ndarray]) -> np.ndarray:
    names = sorted({t.attrs[0] for t in walk([root]) if t.prim == "input"})
    numbered = {n: i for i, n in enumerate(names)}
    made: dict[int, Tensor] = {}
    for t in walk([root]):
        args = tuple(made[id(a)] for a in t.args)
        made[id(t)] = k.input(numbered[t.attrs[0]], t.dtype, t.shape) if t.prim == "input" else Tensor(
            t.prim, args, t.attrs, t.dtype, t.shape
        )  # fmt: skip
    (value,) = interpret([made[id(root)]], [values[n] for n in names])
    return np.asarray(value, root.dtype.numpy)


def drawn(shape: tuple[int, ...], dtype: DType, seed: int) -> np.ndarray:
    return (np.random.default_rng(seed).standard_normal(shape) / 2).astype(dtype.numpy)


def close(found: np.ndarray, expected: np.ndarray, dtype: DType, terms: int = 1) -> None:
    bound = ROUNDING[dtype] * max(1.0, float(np.abs(expected).max(initial=0))) * math.sqrt(terms)
    np.testing.assert_allclose(found.astype(np.float64), expected, rtol=ROUNDING[dtype] * 4, atol=bound)
