"""What all programs need is compiled while the first model is still read: `begin`, and `compilation`, which goes on with it.

In a thread, since the text depends on the machine, and the process that tells what that is loads LLVM first.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from intarsia.codegen.llvm.jit import Compilation, Engine, KernelText, get_engine

if TYPE_CHECKING:
    from concurrent.futures import Future

_begun: list[Future[Compilation | None]] = []  # one at most; appending to it and taking from it need no lock
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begun.clear)


def begin(text: Callable[[], KernelText | None]) -> None:
    """Compile what `text` returns for this machine, unless another such compilation waits for somebody to go on with it."""
    from concurrent.futures import ThreadPoolExecutor

    def started() -> Compilation | None:
        kernel = text()
        if kernel is None:
            return None
        found = Compilation(get_engine())
        found.begin(kernel)
        return found

    if not _begun:
        thread = ThreadPoolExecutor(1, thread_name_prefix="intarsia-early")
        with suppress(RuntimeError):  # the interpreter is ending, and begins no threads any more
            _begun.append(thread.submit(started))
        thread.shutdown(wait=False)


def compilation(engine: Engine) -> Compilation:
    """The one that has begun for this engine, else a new one. What kept it from beginning will be met again."""
    try:
        begun = _begun.pop()
    except IndexError:
        return Compilation(engine)
    found = begun.result() if begun.exception() is None else None
    if found is None or found.engine is engine:
        return found or Compilation(engine)
    with found:  # of another cache, or target: nobody waits for it
        return Compilation(engine)
