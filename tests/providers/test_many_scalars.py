"""Models of hundreds of different scalars: beyond a number of them they are operands, so that nodes that differ by them alone
share kernels. Models of fewer have them in their kernels' texts."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("llvmlite", reason="the CPU provider compiles with llvmlite")

from cpu_models import session_of

import intarsia as ort
from intarsia.providers.cpu.lowering.fuse import _MANY_SCALARS

CPU, REFERENCE = "CPUExecutionProvider", "ReferenceExecutionProvider"
X = np.linspace(-1, 1, 37, dtype=np.float32)


def _session(scalars: np.ndarray, shared: bool, provider: str = CPU) -> ort.InferenceSession:
    """x goes through one operator for each scalar; `shared`: every value has a second reader, so that nothing is fused."""
    lines, last = [], "x"
    for i in range(len(scalars)):
        lines.append(f"a{i} = {('Add', 'Mul', 'Sub', 'Div')[i % 4]}({last}, c{i})")
        last = f"a{i}"
        if shared:
            lines.append(f"b{i} = Cos(a{i})  d{i} = Mul(b{i}, a{i})")
            last = f"d{i}"
    text = f"g (float[N] x) => (float[N] y) {{ {' '.join(lines)} y = Neg({last}) }}"
    return session_of(text, {f"c{i}": c for i, c in enumerate(scalars)}, provider, threads=1)


def _kernels(session: ort.InferenceSession) -> tuple[int, int]:
    """Steps, and different kernels among them."""
    (program,) = session._model.programs
    steps = [s for segment in program.executable.segments() for s in segment.steps]
    return len(steps), len({s.kernel.symbol for s in steps})


@pytest.mark.parametrize("shared", [False, True])
def test_kernels_are_shared(shared: bool) -> None:
    scalars = np.linspace(0.9, 1.1, _MANY_SCALARS + 30, dtype=np.float32)
    session = _session(scalars, shared)
    steps, kernels = _kernels(session)
    assert kernels <= 6
    assert steps > 30
    found, wanted = (s.run(None, {"x": X})[0] for s in (session, _session(scalars, shared, REFERENCE)))
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)


def test_few_scalars_stay_in_the_texts() -> None:
    scalars = np.linspace(0.9, 1.1, 60, dtype=np.float32)
    steps, kernels = _kernels(_session(scalars, shared=False))
    assert kernels == steps <= 3


def test_one_scalar_used_often_stays_in_the_text() -> None:
    scalars = np.tile(np.linspace(0.9, 1.1, 6, dtype=np.float32), (_MANY_SCALARS + 60) // 6)
    (program,) = _session(scalars, shared=False)._model.programs
    assert {len(s.reads) for segment in program.executable.segments() for s in segment.steps} == {1}
