"""How differences are told."""

from __future__ import annotations

import numpy as np

from intarsia.debug.compare import difference


def test_other_shapes_and_nan_are_told_as_such() -> None:
    one, two = np.ones((2, 3), np.float32), np.ones((3, 3), np.float32)
    assert str(difference("y", one, two, 0, 0)) == "'y' is float32[2, 3] and float32[3, 3]"
    missing = one.copy()
    missing[1, 2] = np.nan
    assert str(difference("y", missing, one, 0, 0)) == "'y' differs at [1, 2]: nan and 1.0"
