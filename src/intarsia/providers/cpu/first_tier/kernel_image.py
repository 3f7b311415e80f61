"""The kernels of `kernel_set` as one block of linked code: made once for a CPU, loaded in a fraction of a millisecond."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from intarsia.codegen.llvm.cached_image import CachedImage

if TYPE_CHECKING:
    from intarsia.codegen.llvm.jit import KernelText
    from intarsia.codegen.llvm.target import Target


def load() -> dict[str, int] | None:
    """The address of each kernel by its name; None where they were not made, or cannot be loaded into this process."""
    return IMAGE.load()


def target() -> Target:
    """The CPU, or the level of CPUs, that they were made for."""
    return IMAGE.target()


def is_made() -> bool:
    """Whether `load` finds them."""
    return IMAGE.is_made()


def make() -> int:
    """Compile what `kernel_set` names, and cache it; returns how many kernels there are, 0 where they cannot be linked on this
    system."""
    made = IMAGE.make()
    return len(made) if IMAGE.is_made() else 0


def _texts(target: Target) -> Mapping[str, KernelText]:
    from intarsia.providers.cpu.first_tier.kernel_set import kernels

    return {name: write(target) for name, write in kernels()}


IMAGE = CachedImage("first-tier", _texts)
