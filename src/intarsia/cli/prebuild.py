"""What every first start on this machine needs, made when a checkout is set up: `python -m intarsia.cli.prebuild`.

The threads' native code, what binds plans, and the kernels of the first tier go into a folder of the package
(`cache.disk_cache.PREBUILT`), so that a session with an empty cache starts from them. They are for this CPU and these sources:
where either changes they are not used, and the command makes them anew.
"""

from __future__ import annotations

import os

from intarsia.cache.disk_cache import PREBUILT

_MOST_NBYTES = 8 << 20  # of the folder: one set takes 0.4 MB


def prebuild(folder: str = PREBUILT) -> int:
    """Fill the folder, in a process that has run nothing yet; returns how many kernels of the first tier it holds. What was
    made for other environments stays, the oldest of it goes."""
    os.environ["INTARSIA_CACHE_DIR"] = folder
    os.environ.pop("INTARSIA_CACHE_READ_ONLY", None)
    from intarsia.plan.native import load_binder
    from intarsia.providers.cpu.first_tier import kernel_image
    from intarsia.runtime.executor import whole_step

    whole_step()
    load_binder.address()
    count = kernel_image.make()
    _leave_linked_code()
    return count


def _leave_linked_code() -> None:
    """Remove what only made the linked code: texts and object files."""
    from intarsia.cache.disk_cache import get_cache

    cache = get_cache()
    for entry in cache.entries():
        if entry.key.startswith(("obj-", "pack-", "text-")):
            cache.remove(entry.key)
    cache.prune(_MOST_NBYTES)


if __name__ == "__main__":
    prebuild()
