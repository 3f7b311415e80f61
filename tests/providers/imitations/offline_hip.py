"""HIP C compiled to code objects without ROCm: Debian's clang and ROCm's device libraries (packages clang-19, lld-19,
rocm-device-libs).

What hiprtc does besides: it brings the declarations of `PRELUDE` along, and device libraries of the architecture at hand.
"""

from __future__ import annotations

import functools
import shutil
import subprocess
import tempfile
from pathlib import Path

from intarsia.cache.disk_cache import cached, content_key

ISA = {"gfx90a": 9010, "gfx942": 9402, "gfx1100": 11000}
"""Architecture -> the number that ROCm's device libraries know it by."""

LIBRARIES = ("ocml", "ockl", "oclc_daz_opt_off", "oclc_finite_only_off", "oclc_unsafe_math_off",
             "oclc_correctly_rounded_sqrt_on", "oclc_abi_version_500")  # fmt: skip
PRELUDE = """
#define __launch_bounds__(n) __attribute__((amdgpu_flat_work_group_size(1, n)))
extern "C" __device__ size_t __ockl_get_num_groups(unsigned);
template <int what, int axis> struct coordinate {
  __device__ operator unsigned() const {
    if constexpr (what == 2) return (unsigned)__ockl_get_num_groups(axis);
    else if constexpr (what == 1) return axis == 0 ? __builtin_amdgcn_workgroup_id_x()
      : axis == 1 ? __builtin_amdgcn_workgroup_id_y() : __builtin_amdgcn_workgroup_id_z();
    else return axis == 0 ? __builtin_amdgcn_workitem_id_x()
      : axis == 1 ? __builtin_amdgcn_workitem_id_y() : __builtin_amdgcn_workitem_id_z();
  }
};
template <int what> struct coordinates { coordinate<what, 0> x; coordinate<what, 1> y; coordinate<what, 2> z; };
extern const __device__ __attribute__((weak)) coordinates<0> threadIdx;
extern const __device__ __attribute__((weak)) coordinates<1> blockIdx;
extern const __device__ __attribute__((weak)) coordinates<2> gridDim;
static inline __device__ void __syncthreads() {
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
  __builtin_amdgcn_s_barrier();
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
}
static inline __device__ float __uint_as_float(unsigned v) { return __builtin_bit_cast(float, v); }
static inline __device__ unsigned __float_as_uint(float v) { return __builtin_bit_cast(unsigned, v); }
static inline __device__ float __int_as_float(int v) { return __builtin_bit_cast(float, v); }
static inline __device__ int __float_as_int(float v) { return __builtin_bit_cast(int, v); }
static inline __device__ double __longlong_as_double(long long v) { return __builtin_bit_cast(double, v); }
static inline __device__ long long __double_as_longlong(double v) { return __builtin_bit_cast(long long, v); }
extern "C" { extern __constant__ const int __oclc_ISA_version; __constant__ const int __oclc_ISA_version = ISA; }
"""


def _device_libraries() -> Path | None:
    folders = (*Path("/usr/lib").glob("*/amdgcn/bitcode"), Path("/opt/rocm/amdgcn/bitcode"))
    return next((f for f in folders if (f / "ocml.bc").exists()), None)


def _compiler() -> str:
    """A clang of version 17 or later, which knows gfx942."""
    names = [f"clang-{version}" for version in range(25, 16, -1)]
    return next((found for name in (*names, "/opt/rocm/llvm/bin/clang") if (found := shutil.which(name))), "")


@functools.cache
def missing() -> str:
    """What is missing to compile; "" where nothing is."""
    if not _compiler():
        return "no clang from version 17 on (Debian: clang-19 and lld-19)"
    return "" if _device_libraries() else "no device libraries of ROCm (Debian: rocm-device-libs)"


def compiled(source: str, architecture: str) -> bytes:
    """The code object of a kernel's text."""
    return cached(
        "hsaco-offline-" + content_key(source, architecture, _compiler(), PRELUDE), lambda: _compiled(source, architecture)
    )


def _compiled(source: str, architecture: str) -> bytes:
    libraries = _device_libraries()
    assert libraries is not None
    wave = "off" if architecture.startswith("gfx1") else "on"
    names = (*LIBRARIES, f"oclc_wavefrontsize64_{wave}")
    links = [word for name in names for word in ("-Xclang", "-mlink-builtin-bitcode", "-Xclang", f"{libraries / name}.bc")]
    with tempfile.TemporaryDirectory() as folder:
        text, prelude, code = (Path(folder) / name for name in ("kernel.hip", "prelude.h", "kernel.hsaco"))
        text.write_text(source, encoding="utf-8")
        prelude.write_text(PRELUDE, encoding="utf-8")
        command = [
            _compiler(), "-x", "hip", "--cuda-device-only", "--no-gpu-bundle-output", f"--offload-arch={architecture}",
            "-nogpulib", "-nogpuinc", "-D__HIPCC_RTC__", f"-DISA={ISA[architecture]}", "-O3", "-std=c++17",
            "-Werror=implicit-function-declaration",
            "-include", "__clang_hip_runtime_wrapper.h", "-include", str(prelude), *links, str(text),
            "-o", str(code),
        ]  # fmt: skip
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{architecture}: {done.stderr[:4000]}\n{source}"
        return code.read_bytes()
