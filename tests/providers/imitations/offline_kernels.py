"""Kernels of models as text, found by running the models on imitated machines, and compiled for real GPUs without one."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import cuda_emulation
import offline_hip
import pytest
from fake_cuda import FakeCuda
from fake_hip import FakeHip

from intarsia.codegen.clike.dialects.cuda import FUNCTIONS
from intarsia.codegen.clike.dialects.hip import DOT4_FUNCTIONS
from intarsia.device import cuda, hip, hiprtc, nvrtc, rocm_libraries

CODE = b"\x7fELF" + bytes(80) + b"main_kernel"
PROVIDERS = {"cuda": "CUDAExecutionProvider", "rocm": "ROCMExecutionProvider"}
Compiler = Callable[[str, Any], bytes]


@contextlib.contextmanager
def imitated(kind: str, computes: bool = False) -> Iterator[dict[str, None]]:
    """The provider of a kind works, on an imitated machine; the dict fills with the texts that it would compile.

    `computes`: CUDA's kernels do what their text says (cuda_emulation).
    """
    texts: dict[str, None] = {}

    def compiled(source: str, architecture: object) -> bytes:
        texts.setdefault(source)
        return CODE + b"\0" + source.encode()

    with pytest.MonkeyPatch.context() as patch:
        machine = FakeCuda() if kind == "cuda" else FakeHip()
        if computes:
            machine.compute = cuda_emulation.run
        module, compiler = (cuda, nvrtc) if kind == "cuda" else (hip, hiprtc)
        patch.setattr(module, "driver" if kind == "cuda" else "runtime", lambda: machine)
        patch.setattr(module._opened, "_devices", {})
        patch.setattr(compiler, "missing", lambda: "")
        patch.setattr(compiler, "version", lambda: "13.0")
        patch.setattr(compiler, "compiled", compiled)
        patch.setattr(nvrtc, "architectures", lambda: (90,))
        patch.setattr(rocm_libraries, "KERNEL_DRIVER", Path("/"))
        module.missing.cache_clear()
        try:
            yield texts
        finally:
            module.missing.cache_clear()


COMPILERS: dict[str, tuple[Compiler, Callable[[], str], tuple[Any, ...]]] = {
    "cuda": (nvrtc.compiled, nvrtc.missing, (80, 90, 120)),
    "rocm": (offline_hip.compiled, offline_hip.missing, ("gfx90a", "gfx942", "gfx1100")),
}
"""By kind of device: the compiler, what it is missing, and the architectures."""


def joined(texts: Iterable[str]) -> str:
    """Kernels as one text: the first is `main_kernel_0`, and what stands before several of them is there once."""
    given = list(texts)
    functions = [f for f in (*FUNCTIONS, *DOT4_FUNCTIONS) if any(f in text for text in given)]
    for function in functions:
        given = [text.replace(function, "") for text in given]
    return "\n".join([*functions, *(re.sub(r"\bmain_kernel\b", f"main_kernel_{i}", text) for i, text in enumerate(given))])


def compile_all(kind: str, texts: dict[str, None], architectures: tuple[Any, ...]) -> None:
    """All texts as one, which takes a fraction of the time; each has to be in the machine code."""
    compiler, _, _ = COMPILERS[kind]
    text = joined(sorted(texts))
    for architecture in architectures if texts else ():
        code = compiler(text, architecture)
        assert code[:4] == b"\x7fELF"
        missing = [i for i in range(len(texts)) if f"main_kernel_{i}\0".encode() not in code]
        assert not missing, f"{kind} {architecture}: {len(missing)} kernels are not in the code"


def skip_where_missing(kind: str) -> None:
    if why := COMPILERS[kind][1]():
        pytest.skip(f"kernels of {kind} cannot be compiled: {why}")
