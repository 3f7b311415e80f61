"""Where guards of a tape (`graph.tape`) lead, as native code says it."""

from __future__ import annotations

MISSED = -1  # to an answer that was never met: MISSED - the section's number
ELSEWHERE = -(1 << 30)  # to one that wants other addresses
MOST_WAYS = 48  # through one function
