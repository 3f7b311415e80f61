"""Run kernels of `codegen.loops.loop_nest` on NumPy arrays next to pages that must not be touched; compare with the
interpreter."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence

import numpy as np
from template_kernels import at_page_end, check_margin, host

from intarsia.codegen.llvm.jit import get_engine
from intarsia.codegen.loops.loop_nest import LoopKernel, lower
from intarsia.graph.dims import evaluate
from intarsia.primitives.interpreter import interpret
from intarsia.primitives.lang import Tensor

_SIGNATURE = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
_NARROW = {"float16": 2e-2, "bfloat16": 1e-1, "float32": 2e-5, "float64": 1e-12}


def compiled(roots: Sequence[Tensor]) -> LoopKernel:
    return lower(roots, host())


def run_kernel(
    kernel: LoopKernel, roots: Sequence[Tensor], arrays: Sequence[np.ndarray], env: Mapping[str, int], nthreads: int = 1
) -> tuple[list[np.ndarray], int]:
    """The outputs for the sizes in `env`, and the status that tells of indices out of range."""
    call = _SIGNATURE(get_engine(host()).load([kernel.text])[kernel.text.symbol])
    status = np.zeros(1, np.int64)
    given = [at_page_end(np.ascontiguousarray(arrays[i])) for i in kernel.operands]
    whole = []
    for root in roots:
        shape = tuple(evaluate(d, env) for d in root.shape)
        marked = np.full(int(np.prod(shape)) + 128, 77).astype(root.dtype.numpy)
        whole.append((marked, marked[64 : marked.size - 64].reshape(shape)))
    pointers = [*(a.ctypes.data for a in given), *(out.ctypes.data for _, out in whole)]
    block = np.array([*pointers, *([status.ctypes.data] if kernel.checked else []), *(evaluate(s, env) for s in kernel.sizes)])
    for tid in reversed(range(nthreads)):
        call(block.astype(np.int64).ctypes.data, tid, nthreads)
    for marked, _ in whole:
        if marked.dtype != bool:
            check_margin(marked)
    return [out for _, out in whole], int(status[0])


def run_loops(roots: Sequence[Tensor], *arrays: np.ndarray, nthreads: int = 1, **env: int) -> list[np.ndarray]:
    kernel = compiled(roots)
    out, status = run_kernel(kernel, roots, arrays, env, nthreads)
    assert status == 0
    return out


def check_loops(
    roots: Sequence[Tensor], arrays: Sequence[np.ndarray], env: Mapping[str, int] | None = None, rtol: float | None = None
) -> None:
    """The compiled kernel gives what the interpreter does, for any number of threads."""
    env = env or {}
    kernel = compiled(roots)
    expected = interpret(roots, arrays, env)
    for nthreads in (1, 2, 3):
        found, status = run_kernel(kernel, roots, arrays, env, nthreads)
        assert status == 0
        for root, a, b in zip(roots, found, expected, strict=True):
            assert_same(a, b, rtol, f"{root} with {nthreads} threads")


def assert_same(found: np.ndarray, expected: np.ndarray, rtol: float | None = None, what: str = "") -> None:
    """Equal for integers; floats within a tolerance relative to the largest finite value."""
    assert found.dtype == expected.dtype
    assert found.shape == expected.shape
    if found.dtype.name not in _NARROW:
        np.testing.assert_array_equal(found, expected, err_msg=what)
        return
    wide = expected.astype(np.float64)
    scale = np.abs(wide[np.isfinite(wide)]).max(initial=0)
    rtol = _NARROW[found.dtype.name] if rtol is None else rtol
    np.testing.assert_allclose(found.astype(np.float64), wide, rtol=rtol, atol=rtol * scale, err_msg=what)
