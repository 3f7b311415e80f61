"""Native code that comes with the package, for levels of CPUs: what `CachedImage` finds where a cache has nothing yet.

A wheel has a file for each level (`hatch_build.py` makes them when it is built): the first tier's kernels, the threads' code
and what binds sizes, linked. They are for Linux on x86-64; elsewhere, and in a checkout, there are none. A CPU takes the best
level that it has, by the flags that Linux tells of it, so that a first start on a new machine queries no compiler.

Layout of a file: magic, version of the package, a line feed, and a pickle: the target's triple, CPU and features, and for each
image by name the symbols of its functions and the linked bytes (`linked_image`).
"""

from __future__ import annotations

import functools
import os
import pickle
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from intarsia.cache.disk_cache import cache_enabled
from intarsia.codegen.llvm.target import FEATURES_VARIABLE, LEVELS, Target, second_level_nbytes
from intarsia.machine.version import __version__
from intarsia.printable import get_logger

logger = get_logger("intarsia")

FOLDER = os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(__file__))), ".levels")
CPUINFO = "/proc/cpuinfo"
TRIPLE = "x86_64-unknown-linux-gnu"
# Best first: by name, the name of the CPU that LLVM generates code for, and the level whose features it has.
MADE_FOR: Mapping[str, tuple[str, str]] = {
    "zen4": ("znver4", "x86-64-v4"),
    "x86-64-v4": ("x86-64-v4", "x86-64-v4"),
    "x86-64-v3": ("x86-64-v3", "x86-64-v3"),
}
_MAGIC = b"INTLEVELS1 "
_ZEN4_FAMILY = "25"  # Zen 3 as well, which has no AVX-512
_LINUX_NAMES = {"lzcnt": "abm", "sse3": "pni", "sse4.1": "sse4_1", "sse4.2": "sse4_2", "bmi": "bmi1", "sahf": "lahf_lm"}

Image = tuple[dict[str, str], bytes]  # symbols by names of the caller's, linked bytes


class LevelImages(NamedTuple):
    """The images of a level, and the target that their code was generated for."""

    target: Target
    images: Mapping[str, Image]


def of_this_cpu() -> LevelImages | None:
    """Those of the best level that this CPU has; None where the package brings none for it, where the cache is off, or where
    INTARSIA_CPU_FEATURES says what to generate code for."""
    if os.environ.get(FEATURES_VARIABLE) or not cache_enabled():
        return None
    return _found(FOLDER, CPUINFO)


def levels_of(cpuinfo: str) -> list[str]:
    """The levels that a CPU has, best first, by what /proc/cpuinfo says of it."""
    told = dict(line.split(":", 1) for line in cpuinfo.split("\n\n", 1)[0].splitlines() if ":" in line)
    told = {key.strip(): value.strip() for key, value in told.items()}
    flags = set(told.get("flags", "").split())
    is_zen4 = told.get("vendor_id") == "AuthenticAMD" and told.get("cpu family") == _ZEN4_FAMILY
    had = [name for name, (_, level) in MADE_FOR.items() if {_LINUX_NAMES.get(f, f) for f in LEVELS[level][1]} <= flags]
    return [name for name in had if name != "zen4" or is_zen4]


def target_of(name: str) -> Target:
    """The target that a level's code is generated for; its second-level cache is not known."""
    cpu, level = MADE_FOR[name]
    return Target.create(TRIPLE, cpu, ",".join(f"+{feature}" for feature in LEVELS[level][1]))


def write(name: str, images: Mapping[str, Image], folder: str) -> int:
    """Write a level's file; returns its bytes."""
    target = target_of(name)
    data = _head() + pickle.dumps(((target.triple, target.cpu, target.features), dict(images)), 5)
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, name), "wb") as file:
        return file.write(data)


def read(name: str, folder: str) -> LevelImages | None:
    """A level's file; None where there is none, or it is another version's."""
    try:
        with open(os.path.join(folder, name), "rb") as file:
            data = file.read()
    except OSError:
        return None
    head = _head()
    if not data.startswith(head):
        logger.warning("%s is not used: it is not of version %s", os.path.join(folder, name), __version__)
        return None
    (triple, cpu, features), images = pickle.loads(data[len(head) :])  # noqa: S301 # machine code, and the package's own
    return LevelImages(Target.create(triple, cpu, features), images)


@functools.cache
def _found(folder: str, cpuinfo: str) -> LevelImages | None:
    if sys.platform != "linux" or os.uname().machine != "x86_64" or not os.path.isdir(folder):
        return None
    try:
        with open(cpuinfo, encoding="utf-8", errors="replace") as file:
            names: Sequence[str] = levels_of(file.read(1 << 14))
    except OSError:
        return None
    for name in names:
        found = read(name, folder)
        if found is not None:
            return found._replace(target=replace(found.target, l2_nbytes=second_level_nbytes()))
    return None


def _head() -> bytes:
    return _MAGIC + __version__.encode() + b"\n"
