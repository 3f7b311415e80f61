"""The call paths of a session in this process, in the order in which they are tried."""

from __future__ import annotations

from typing import TYPE_CHECKING

from intarsia.session.call_paths.checked_run import checked_run
from intarsia.session.call_paths.inspected_run import inspected_run
from intarsia.session.call_paths.plain_run import plain_run

if TYPE_CHECKING:
    from intarsia.session.call_paths.protocol import CallPath

PATHS: tuple[CallPath, ...] = (
    plain_run,  # all outputs of a dict that needs no conversion, and nothing else
    inspected_run,  # taps and hooks
    checked_run,  # everything else: conversions, options, limits, some outputs, results of other libraries
)
