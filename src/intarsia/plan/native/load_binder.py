"""The native code that binds sizes (`plan.native.bind_kernel`), loaded into this process.

It is compiled when a program meets other sizes for the first time on a machine, and cached from then on.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import TYPE_CHECKING

from intarsia.codegen.llvm.cached_image import CachedImage
from intarsia.errors import EPFail

if TYPE_CHECKING:
    from intarsia.codegen.llvm.jit import KernelText
    from intarsia.codegen.llvm.target import Target


@functools.cache
def address() -> int:
    """The function's address; 0 where it cannot be had."""
    try:
        return IMAGE.addresses()["bind"]
    except EPFail:
        return 0


def _texts(target: Target) -> Mapping[str, KernelText]:
    from intarsia.plan.native.bind_kernel import bind_text

    return {"bind": bind_text(target)}


IMAGE = CachedImage("binder", _texts)
