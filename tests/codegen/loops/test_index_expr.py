"""Indices of reshaped tensors: axes that have as many elements on both sides are told apart, also where sizes are open."""

from __future__ import annotations

import pytest

from intarsia.codegen.loops.index_expr import regroup
from intarsia.graph.dims import Dim, symbol

H, W = symbol("h"), symbol("w")


def read(have: list[Dim], want: list[Dim]) -> list[set[int]]:
    """For each axis of `want`, the axes of `have` whose index it depends on."""

    def used(index: object) -> set[int]:
        if not isinstance(index, tuple):
            return set()
        return {index[1]} if index[0] == "axis" else set().union(*map(used, index[1:]))

    return [used(index) for index in regroup([("axis", i) for i in range(len(have))], have, want)]  # type: ignore[misc]


@pytest.mark.parametrize(
    ("have", "want", "axes"),
    [
        ([2 * H, 2 * W, 24], [H, 2, W, 2, 24], [{0}, {0}, {1}, {1}, {2}]),
        ([H, 2, W, 2, 24], [H * 2, W * 2, 24], [{0, 1}, {2, 3}, {4}]),
        ([H, 768], [H, 12, 64], [{0}, {1}, {1}]),
        ([1, H * W, 6], [H, W, 1, 2, 3], [{1}, {1}, set(), {2}, {2}]),
        ([H, W, 3], [W, H, 3], [{0, 1}, {0, 1}, {2}]),
        ([H, 3], [3, H], [{0, 1}, {0, 1}]),
        ([6, 4], [3, 2, 4], [{0}, {0}, {1}]),
        ([6, 4], [8, 3], [{0, 1}, {0, 1}]),
    ],
)
def test_axes_that_correspond(have: list[Dim], want: list[Dim], axes: list[set[int]]) -> None:
    assert read(have, want) == axes
