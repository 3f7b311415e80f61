"""Combinations of attributes, types and shapes of single nodes: each is refused, or right (`testing.node_sweep`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from intarsia.testing.node_sweep import sweep
from intarsia.testing.provider import nodes_of

if TYPE_CHECKING:
    from mil_interpreter import NumPyEngine

NODES = "600"
IN_A_RUN = "computes integers in 32 bits, and the input"
"""64-bit integers that do not fit are an error of the run that has them, which another provider may run again."""


def test_refused_or_right(engine: NumPyEngine, request: pytest.FixtureRequest) -> None:
    found = sweep("CoreMLExecutionProvider", nodes_of(request.config.getoption("--sweep-nodes") or NODES))
    assert found.taken
    found.wrong = [(case, text) for case, text in found.wrong if IN_A_RUN not in text]
    assert not found.wrong, str(found)
