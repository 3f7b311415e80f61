"""Kernels of the kernel language as text in C-like languages: WGSL, CUDA C, HIP C, OpenCL C.

`split_into_kernels.Cut` divides a graph of primitives into kernels, `schedules` print each of them, `dialect.Dialect` says how
a language writes what they are made of. Sizes are numbers when kernels are printed, and parameters in the text, so that
kernels that differ in sizes only are one text.
"""

from intarsia.codegen.clike.dialects.cuda import Cuda
from intarsia.codegen.clike.dialects.dialect import GPU, PROCESSOR, Buffer, Dialect, KernelParts, Limits, Tile, Tuning
from intarsia.codegen.clike.dialects.hip import Hip
from intarsia.codegen.clike.dialects.opencl import OpenCl
from intarsia.codegen.clike.dialects.wgsl import Wgsl
from intarsia.codegen.clike.schedules import Kernel
from intarsia.codegen.clike.split_into_kernels import Cut, Job, unsupported
from intarsia.codegen.clike.storage_types import KINDS, Kind

__all__ = [
    "GPU",
    "KINDS",
    "PROCESSOR",
    "Buffer",
    "Cuda",
    "Cut",
    "Dialect",
    "Hip",
    "Job",
    "Kernel",
    "KernelParts",
    "Kind",
    "Limits",
    "OpenCl",
    "Tile",
    "Tuning",
    "Wgsl",
    "unsupported",
]  # fmt: skip
