"""What happens when a requested provider cannot start, takes no node, or fails in a run.

One setting decides, the session configuration entry "session.provider_fallback" (else the environment variable
INTARSIA_PROVIDER_FALLBACK, else what `set_provider_fallback` said):

- "listed", the default: another provider of the user's own list may stand in, with a `ProviderWarning`; where the list has no
  other that works, it is an error. So ["CUDAExecutionProvider", "CPUExecutionProvider"] runs anywhere, and
  ["CUDAExecutionProvider"] alone needs CUDA.
- "error": every provider that was named must start and take a node.
- "warn", as onnxruntime does: the session goes on with what works, at last with the CPU, whether it was named or not.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING

from intarsia.errors import EPFail, InvalidArgument, nearest
from intarsia.printable import get_logger, visible_lines

if TYPE_CHECKING:
    from intarsia.partition.partition import Partition

KEY = "session.provider_fallback"
VARIABLE = "INTARSIA_PROVIDER_FALLBACK"
MODES = ("listed", "error", "warn")

_logger = get_logger("intarsia.providers")
_default = "listed"


class ProviderWarning(UserWarning):
    """A requested provider is not used, and the session goes on with the others."""


def set_provider_fallback(mode: str) -> None:
    """Set this process's default for "session.provider_fallback": "listed", "error" or "warn".

    Raises:
        InvalidArgument: another word.
    """
    global _default  # noqa: PLW0603 # a process-wide default, as its documentation says
    _default = _checked(mode, "set_provider_fallback")


def fallback_mode(entry: str = "") -> str:
    """The mode in force: the session's `entry` where it is set, else the environment's, else the process's default."""
    if entry:
        return _checked(entry, f"configuration entry {KEY!r}")
    if found := os.environ.get(VARIABLE):
        return _checked(found, f"environment variable {VARIABLE}")
    return _default


def as_onnxruntime(entry: str = "") -> bool:
    """Whether a session with this entry (see `fallback_mode`) does as onnxruntime does where Intarsia would rather not.

    That is in mode "warn", which `install_as` sets.
    """
    return fallback_mode(entry) == "warn"


def _checked(mode: str, where: str) -> str:
    if mode not in MODES:
        raise InvalidArgument(f"{where}: {mode!r} is not a value; {nearest(str(mode), MODES)}")
    return mode


def warn(message: str) -> None:
    """A `ProviderWarning` at the line of the program that called into this package."""
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and str(frame.f_globals.get("__name__")).startswith("intarsia."):
        frame, level = frame.f_back, level + 1
    warnings.warn(message, ProviderWarning, stacklevel=level)


def report(message: str) -> None:
    """A `ProviderWarning`, and the same in the log, where the program has set one up: else stderr would have it twice."""
    message = visible_lines(message)
    warn(message)
    if _logger.hasHandlers():
        _logger.warning(message)


def check_taken(split: Partition, named: Sequence[str], mode: str) -> None:
    """Complain of providers in `named` (by the user, in priority order) that got no node of a model that has some.

    A provider that another one of higher priority left nothing to is no matter; nor is the CPU, which is a last resort.

    Raises:
        EPFail: where `mode` does not allow another provider in its place.
    """
    used = {placement.provider for placement in split.placements}
    for name in named:
        if not split.placements or name in used or name == "CPUExecutionProvider":
            continue
        counts: dict[str, int] = {}
        for placement in split.placements:
            refusal = placement.refusals.get(name)
            if refusal is not None and refusal.code != "taken":
                counts[refusal.reason] = counts.get(refusal.reason, 0) + 1
        if not counts:
            continue
        common = sorted(counts.items(), key=lambda entry: -entry[1])
        reasons = "".join(f"\n  {count} x {reason}" for reason, count in common[:5])
        more = f"\n  and {len(common) - 5} other reasons" if len(common) > 5 else ""
        message = f"{name} takes none of the model's {len(split.placements)} nodes:{reasons}{more}"
        others = [other for other in named if other in used]
        if mode == "error" or (mode == "listed" and not others):
            raise EPFail(
                f"{message}\nLeave it out, name a provider that may run them after it (CPUExecutionProvider), or set {KEY!r} "
                "to 'warn'"
            )
        report(f"{message}\nThey run on {', '.join(sorted(used))}.")
