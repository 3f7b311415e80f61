"""Constants whose data is made on demand."""

from __future__ import annotations

import numpy as np

from intarsia.graph.dtypes import DType
from intarsia.graph.model import Constant


def test_data_is_made_once_and_again_after_it_was_forgotten() -> None:
    calls = []
    constant = Constant("w", DType.FLOAT, (2,), lambda: calls.append(1) or np.ones(2, np.float32))
    assert constant.numpy() is constant.numpy()
    assert len(calls) == 1
    constant.forget()
    assert constant.numpy().tolist() == [1.0, 1.0]
    assert len(calls) == 2


def test_data_that_was_given_is_never_forgotten() -> None:
    constant = Constant.of("w", np.arange(3))
    constant.forget()
    assert constant.numpy().tolist() == [0, 1, 2]
