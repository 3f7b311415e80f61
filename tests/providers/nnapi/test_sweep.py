"""Single nodes of every operator on a simulated phone, beside the reference provider: refused or right."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from intarsia.testing.node_sweep import sweep
from intarsia.testing.provider import nodes_of

NAME = "NnapiExecutionProvider"


@pytest.mark.parametrize(
    ("level", "nodes"), [(31, "150"), (1000008, "250"), pytest.param(29, "1500", marks=pytest.mark.nightly)]
)
def test_refused_or_right(level: int, nodes: str, phone: Callable[..., Any]) -> None:
    """`--sweep-nodes` of test_node_sweep.py is not for this one: a nightly run takes more at an old level."""
    phone(level)
    found = sweep(NAME, nodes_of(nodes))
    assert found.taken
    assert not found.wrong, str(found)
