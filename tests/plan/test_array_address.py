"""Addresses of arrays by both ways."""

from __future__ import annotations

import numpy as np
import pytest

from intarsia.plan import array_address


@pytest.mark.parametrize("make", [
    lambda: np.zeros(3), lambda: np.zeros((4, 6), np.float32)[1:, 2:], lambda: np.zeros(()), lambda: np.zeros((0, 3)),
    lambda: np.frombuffer(b"12345678", np.int64), lambda: np.arange(5)[::-1],
], ids=["whole", "slice", "scalar", "empty", "read-only", "backwards"])  # fmt: skip
def test_address(make: object) -> None:
    array = make()  # type: ignore[operator]
    assert array_address.address_of(array) == array.ctypes.data


def test_without_the_field(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.implementation.name", "other")
    assert array_address._chosen() is array_address._by_interface
    assert array_address._by_interface(array := np.zeros(2)) == array.ctypes.data
