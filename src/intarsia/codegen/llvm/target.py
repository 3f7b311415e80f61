"""What code is generated for: triple, CPU, features, vector width.

A `Target` is always passed explicitly, so the same generator serves this machine (`Target.host()`) and a cross
compilation (`Target.create("aarch64-unknown-linux-gnu", "cortex-a76", "+neon,+dotprod")`).

The environment variable INTARSIA_CPU_FEATURES replaces what the host reports, for tests and for comparing code paths:

- a level (`x86-64`, `x86-64-v2`, `x86-64-v3` or `avx2`, `x86-64-v4` or `avx512`), optionally followed by changes
  (`avx2,+avxvnni`), or
- changes alone (`-avx512f`): the host's features with these added or removed. Removing a feature removes all that
  rest on it.
"""

from __future__ import annotations

import functools
import os
from dataclasses import replace
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from intarsia.cache.disk_cache import cached, get_cache
from intarsia.cache.fingerprint import compiler_key
from intarsia.errors import EPFail, InvalidArgument, nearest
from intarsia.lazy_dataclass import dataclass
from intarsia.machine.amx_permission import refusal

if TYPE_CHECKING:
    from pathlib import Path  # which takes milliseconds to import, and a start from the cache requires no sizes

FEATURES_VARIABLE = "INTARSIA_CPU_FEATURES"
L2_NBYTES = 2 << 20  # of a core whose cache is not known
L3_NBYTES = 32 << 20
_MANY = 8  # results that share the third-level cache, at most
CACHES = "/sys/devices/system/cpu/cpu0/cache"

_V1 = ("cmov", "cx8", "fxsr", "mmx", "sse", "sse2")
_V2 = (*_V1, "cx16", "popcnt", "sahf", "sse3", "sse4.1", "sse4.2", "ssse3")
_V3 = (*_V2, "avx", "avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe", "xsave")
_V4 = (*_V3, "avx512bw", "avx512cd", "avx512dq", "avx512f", "avx512vl")
# x86-64 psABI, table 3.1 "Micro-Architecture Levels"; the short names are aliases.
LEVELS: dict[str, tuple[str, tuple[str, ...]]] = {
    "x86-64": ("x86-64", _V1),
    "x86-64-v2": ("x86-64-v2", _V2),
    "x86-64-v3": ("x86-64-v3", _V3),
    "x86-64-v4": ("x86-64-v4", _V4),
    "sse2": ("x86-64", _V1),
    "avx2": ("x86-64-v3", _V3),
    "avx512": ("x86-64-v4", _V4),
}
# Microarchitectures, by LLVM's names, whose units take registers of 512 bits in two halves: one multiply-add a cycle, beside
# which two numbers can be broadcast from memory, or one vector loaded.
_HALVING = frozenset({"znver4"})
# Features whose names begin so rest on the key; LLVM knows the same implications, `has` must agree with it.
_DEPENDENTS: dict[str, tuple[str, ...]] = {
    "avx512f": ("avx512", "avx10"),
    "avx2": ("avx512", "avx10", "avxvnni", "avxifma", "avxneconvert"),
    "avx": ("avx", "fma", "f16c", "vaes", "vpclmulqdq"),
    "amx-tile": ("amx-",),
}


@functools.cache
def llvm() -> Any:
    """llvmlite.binding with the host's code generator initialised; raises EPFail where llvmlite is missing."""
    from intarsia.codegen.llvm import compile_ir

    try:
        return compile_ir.llvm()
    except (ImportError, OSError) as error:
        raise EPFail(
            f"the CPU provider compiles with llvmlite, which cannot be imported here ({error}): "
            "`pip install llvmlite`, or use the NumPy provider, which needs no compiler"
        ) from error


def is_known() -> bool:
    """Whether the cache itself has `host_facts`: something was compiled into it on this machine before."""
    return get_cache().has(_facts_key(), own=True)


def _facts_key() -> str:
    return f"facts-{compiler_key()}"


@functools.cache
def host_facts() -> tuple[str, str, str, str]:
    """This machine as LLVM sees it: triple, CPU, features; and LLVM's version. Known from the cache without LLVM."""

    def query() -> bytes:
        from intarsia.codegen.llvm.compile_workers import compilers

        if find_spec("llvmlite") is None:
            llvm()
        return "\n".join(compilers().facts()).encode()

    triple, cpu, features, version = cached(_facts_key(), query).decode().split("\n")
    return triple, cpu, features, version


def second_level_nbytes(caches: str | Path = CACHES) -> int:
    """Bytes of a core's second-level cache, as Linux tells; 2 MiB where nothing does."""
    return _cache_nbytes(2, caches) or L2_NBYTES


@functools.cache
def streamed_nbytes(results: int = _MANY, caches: str | Path = CACHES) -> int:
    """From how many bytes on what is given to the caller is written past the caches of this machine, where a model has so many
    results: it reads others as large for each."""
    return (_cache_nbytes(3, caches) or L3_NBYTES) // (2 * min(max(results, 1), _MANY))


def _cache_nbytes(level: int, caches: str | Path) -> int:
    """Bytes of a cache of this machine, 0 where nothing tells."""
    from pathlib import Path

    for folder in sorted(Path(caches).glob("index*")):
        try:
            found, kind, size = ((folder / name).read_text().strip() for name in ("level", "type", "size"))
        except OSError:
            continue
        if found == str(level) and kind in ("Unified", "Data") and size[-1:] == "K" and size[:-1].isdigit():
            return int(size[:-1]) << 10
    return 0


@dataclass(frozen=True)
class Target:
    """A machine to generate code for, and how.

    Attributes:
        features: LLVM's list, `+name` or `-name`, comma separated.
        ordered: whether results must have the same bits however work is shared among threads: sums are then in an order that
            does not depend on how many rows are computed at once.
        l2_nbytes: of a core's second-level cache; for a machine that cannot be queried, 2 MiB.
    """

    triple: str
    cpu: str
    features: str
    vector_bytes: int
    ordered: bool = False
    l2_nbytes: int = L2_NBYTES

    @classmethod
    def create(cls, triple: str, cpu: str = "", features: str = "") -> Target:
        """A target whose vector width follows from its architecture and features."""
        enabled = _enabled(features)
        if "avx512f" in enabled and "avx512vl" in enabled:
            vector_bytes = 64
        elif "avx2" in enabled:
            vector_bytes = 32
        else:
            vector_bytes = 16
        return cls(triple, cpu, features, vector_bytes)

    @classmethod
    def host(cls) -> Target:
        """This machine, as LLVM sees it, or as INTARSIA_CPU_FEATURES says."""
        return _host(os.environ.get(FEATURES_VARIABLE, "").strip())

    @property
    def arch(self) -> str:
        """The architecture by LLVM's name: "x86_64", "aarch64", "arm", "wasm32", ..."""
        arch = self.triple.split("-", 1)[0]
        if arch.startswith(("armv", "thumb")):
            return "arm"
        return {"arm64": "aarch64", "amd64": "x86_64"}.get(arch, arch)

    def has(self, feature: str) -> bool:
        """Whether `feature` (LLVM's name, such as "avx512bf16") is switched on explicitly."""
        return feature in _enabled(self.features)

    @property
    def enabled(self) -> frozenset[str]:
        """The features that are switched on explicitly."""
        return _enabled(self.features)

    @property
    def halves_vectors(self) -> bool:
        """Whether the CPU computes a vector in two halves, so that a product's loads pass beside its multiply-adds unseen."""
        return self.vector_bytes == 64 and self.cpu in _HALVING

    @property
    def vector_registers(self) -> int:
        """How many vector registers there are."""
        return 32 if self.vector_bytes == 64 or self.arch == "aarch64" else 16

    @property
    def is_avx2(self) -> bool:
        """Whether there are x86's vectors of 32 bytes, no longer ones, and 16 registers of them."""
        return self.arch == "x86_64" and self.vector_bytes == 32

    @property
    def reads_rows(self) -> bool:
        """Whether loads pass beside multiply-adds, so that products need no packed rows: of two halves, or of 6 x 2 vectors,
        whose 12 multiply-adds on two units take 6 cycles, and their 8 loads 4."""
        return self.halves_vectors or self.is_avx2

    @property
    def has_tiles(self) -> bool:
        """Whether there are AMX's tiles, and products of bfloat16 and of bytes in them."""
        wide = self.arch == "x86_64" and self.vector_bytes == 64
        return wide and self.enabled >= {"amx-tile", "amx-bf16", "amx-int8"}

    @property
    def has_pairs(self) -> bool:
        """Whether there are products of pairs of bfloat16 in vectors (VDPBF16PS)."""
        return self.arch == "x86_64" and self.vector_bytes == 64 and self.has("avx512bf16")

    @property
    def scales_floats(self) -> bool:
        """Whether LLVM makes one instruction of a multiplication by 2^n (VSCALEFPS of `llvm.ldexp`; a call before LLVM 22)."""
        return self.arch == "x86_64" and self.vector_bytes == 64 and int(host_facts()[3].split(".")[0]) >= 22

    @property
    def has_extrema(self) -> bool:
        """Whether LLVM's minimum and maximum, which keep NaN, are the shortest way: of ARM64 an instruction, of x86 one and a
        choice by a comparison, where LLVM would join two choices to one that waits for two comparisons."""
        return self.arch in ("aarch64", "x86_64")

    @property
    def function_attributes(self) -> str:
        """Attributes that every generated function carries: no unwind tables, and the full vector width.

        LLVM's tuning for some AVX-512 CPUs prefers 256-bit vectors in loops; the attribute overrides that.
        """
        if self.arch == "x86_64":
            return f'nounwind "prefer-vector-width"="{self.vector_bytes * 8}"'
        return "nounwind"

    def target_machine(self, opt: int = 3) -> Any:
        """A new llvmlite TargetMachine: position-independent code, small code model, at level `opt` (0 to 3).

        Raises InvalidArgument where this LLVM has no code generator for the triple.
        """
        from intarsia.codegen.llvm import compile_ir

        llvm()
        try:
            return compile_ir.target_machine(self.triple, self.cpu, self.features, opt)
        except RuntimeError as error:
            raise InvalidArgument(
                f"no code generator for the target triple {self.triple!r}: {error}; "
                "give a triple such as 'x86_64-unknown-linux-gnu', 'aarch64-unknown-linux-gnu' or 'wasm32-unknown-unknown'"
            ) from error


@functools.cache
def _enabled(features: str) -> frozenset[str]:
    enabled: set[str] = set()
    for item in filter(None, features.split(",")):
        if item[0] == "+":
            enabled.add(item[1:])
        else:
            prefixes = _DEPENDENTS.get(item[1:], ())
            enabled = {name for name in enabled if name != item[1:] and not (prefixes and name.startswith(prefixes))}
    return frozenset(enabled)


@functools.cache
def _host(override: str) -> Target:
    triple, cpu, features, _ = host_facts()
    l2_nbytes = second_level_nbytes()
    if not override:
        return replace(_permitted(Target.create(triple, cpu, features)), l2_nbytes=l2_nbytes)
    first, *changes = [item.strip() for item in override.split(",")]
    if first[0] in "+-":
        changes = [first, *changes]
    elif first in LEVELS:
        cpu, names = LEVELS[first]
        features = ",".join(f"+{name}" for name in names)
    else:
        raise InvalidArgument(f"{FEATURES_VARIABLE} begins with {first!r}, which is no known level; {nearest(first, LEVELS)}")
    for change in changes:
        if len(change) < 2 or change[0] not in "+-":
            raise InvalidArgument(f"{FEATURES_VARIABLE} holds {change!r}; expected '+feature' or '-feature', comma separated")
    return replace(_permitted(Target.create(triple, cpu, ",".join([features, *changes]))), l2_nbytes=l2_nbytes)


def _permitted(target: Target) -> Target:
    """Without AMX where the system does not let this process use it."""
    if target.has("amx-tile") and refusal():
        return Target.create(target.triple, target.cpu, f"{target.features},-amx-tile")
    return target
