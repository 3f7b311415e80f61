"""What every first start on this machine needs, made when a checkout is set up: `python -m intarsia.cli.prebuild`.

The threads' native code, what binds plans, and the kernels of the first tier go into a folder of the package
(`cache.disk_cache.PREBUILT`), so that a session with an empty cache starts from them. They are for this CPU and these sources:
where either changes they are not used, and the command makes them anew.

`--levels FOLDER` writes the same for levels of CPUs instead (`codegen.llvm.level_images`), which a wheel brings.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

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


def prebuild_levels(folder: str) -> int:
    """Write the native code that needs no model for every level of CPUs; returns the bytes of all. The CPU that does so need
    not have these levels.

    Raises:
        EPFail: something cannot be compiled or linked.
    """
    from intarsia.codegen.llvm import level_images
    from intarsia.errors import EPFail
    from intarsia.plan.native import load_binder
    from intarsia.providers.cpu.first_tier import kernel_image
    from intarsia.runtime import executor

    nbytes = 0
    for level in level_images.MADE_FOR:
        images = {}
        for image in (executor.IMAGE, load_binder.IMAGE, kernel_image.IMAGE):
            found = image.compiled_for(level_images.target_of(level))
            if found is None:
                raise EPFail(f"the objects of {image.name!r} for {level} cannot be linked: expected ELF for x86-64")
            images[image.name] = found
        nbytes += level_images.write(level, images, folder)
    return nbytes


def main(arguments: Sequence[str]) -> None:
    match list(arguments):
        case []:
            prebuild()
        case ["--levels", folder]:
            print(f"{prebuild_levels(folder):,} bytes")
        case _:
            raise SystemExit("usage: python -m intarsia.cli.prebuild [--levels FOLDER]")


def _leave_linked_code() -> None:
    """Remove what only made the linked code: texts and object files."""
    from intarsia.cache.disk_cache import get_cache

    cache = get_cache()
    for entry in cache.entries():
        if entry.key.startswith(("obj-", "pack-", "text-")):
            cache.remove(entry.key)
    cache.prune(_MOST_NBYTES)


if __name__ == "__main__":
    main(sys.argv[1:])
