"""The native code that binds sizes (`plan.native.bind_kernel`), loaded into this process.

It is compiled when a program meets other sizes for the first time on a machine, and kept in the cache from then on.
"""

from __future__ import annotations

import functools

from intarsia.cache.disk_cache import get_cache
from intarsia.cache.fingerprint import fingerprint
from intarsia.codegen.llvm import linked_image
from intarsia.errors import EPFail


@functools.cache
def address() -> int:
    """The function's address; 0 where it cannot be had."""
    cache, key = get_cache(), f"binder-{fingerprint()}"
    linked = cache.get(key)
    found = linked_image.load(linked) if linked is not None else None
    if not found:
        from intarsia.codegen.llvm.jit import get_engine
        from intarsia.codegen.llvm.link_objects import link
        from intarsia.codegen.llvm.target import Target
        from intarsia.plan.native.bind_kernel import bind_text

        try:
            engine, kernel = get_engine(Target.host()), bind_text(Target.host())
            found = engine.load([kernel])
        except EPFail:
            return 0
        objects = engine.objects([kernel])
        linked = link(objects, [kernel.symbol]) if objects is not None else None
        if linked is not None:
            cache.put(key, linked)
    return next(iter(found.values()))
