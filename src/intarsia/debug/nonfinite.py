"""The first value in a session's model that is not finite."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from intarsia.reports import nonfinite
from intarsia.reports.nonfinite import NonFinite
from intarsia.session.inference_session import InferenceSession


def first_nonfinite(session: InferenceSession, feed: Mapping[str, Any]) -> NonFinite | None:
    """Run the model and name the first value in execution order that is not finite; None where all are.

    Raises:
        As `InferenceSession.run`.
    """
    inspection = session._engine.inspection()
    return nonfinite.first_nonfinite(session._engine.graph(), feed, lambda names: inspection.tapped(feed, names).taps)
