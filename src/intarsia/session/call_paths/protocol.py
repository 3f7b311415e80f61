"""What a call path is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from intarsia.options.session_options import RunOptions
    from intarsia.session.local_engine import LocalEngine


class CallPath(Protocol):
    """One way of a run. A path holds nothing of an engine, which holds the paths, so that a session that is let go is freed."""

    def __call__(
        self, engine: LocalEngine, output_names: Sequence[str] | None, feed: Any, run_options: RunOptions | None,
        timeout: float | None, framework: str | None, taps: Sequence[str] | None, /,
    ) -> list[Any] | None:  # fmt: skip
        """The outputs; None where the path is not for such a run, or the provider failed and the session was made anew without
        it: then the next path goes on."""
