"""Random tensors: shape, type, range and moments; a seed gives the same numbers on both providers, another seed others."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
from drawn_nodes import Drawn, check, compiled, drawn, seeds, shapes
from hypothesis import given
from hypothesis import strategies as st

from intarsia.graph.dtypes import DType

KINDS = st.sampled_from((np.float32, np.float64, np.float16, ml_dtypes.bfloat16))
LIMIT = 6.0  # standard deviations of a mean: one test in 10^9 is beyond


def close_to(values: np.ndarray, mean: float, deviation: float, what: str) -> None:
    if values.size:
        found = float(values.astype(np.float64).mean())
        bound = LIMIT * deviation / np.sqrt(values.size) + abs(mean) * 2.0**-7 + 0.01 * deviation  # bfloat16's rounding
        assert abs(found - mean) <= bound, f"{what}: mean {found}, expected {mean}"


@drawn
@given(
    st.sampled_from(["RandomNormal", "RandomUniform"]), KINDS, shapes(0, 4), st.booleans(), st.integers(-1000, 1000), st.data()
)
def test_drawn_numbers(op: str, dtype: Any, shape: tuple[int, ...], like: bool, seed: int, data: st.DataObject) -> None:
    first, second = data.draw(st.sampled_from([(0.0, 1.0), (-3.0, 0.5), (2.0, 4.0)]))
    attributes: dict[str, Any] = {"seed": float(seed), "dtype": int(DType.of(dtype))}
    attributes |= {"mean": first, "scale": second} if op == "RandomNormal" else {"low": first - second, "high": first + second}
    inputs = [np.zeros(shape, np.int32)] if like else []
    if not like:
        attributes["shape"] = list(shape)
    node = Drawn(f"{op}Like" if like else op, inputs, attributes, opset=22)
    (found,) = check(node, units=16, scale=2)
    assert found.shape == shape
    wide = found.astype(np.float64)
    if op == "RandomUniform":
        assert (wide >= first - second).all()
        assert (wide <= first + second).all()  # high itself where the type rounds to it
        assert (wide < first + second).all() or dtype not in (np.float32, np.float64)
    close_to(found, first, second if op == "RandomNormal" else second / np.sqrt(3), op)
    if found.size > 20:
        node.attributes = {**attributes, "seed": float(seed + 1)}
        assert (compiled(node, [dtype])[0] != found).any()


@drawn
@given(KINDS, shapes(0, 3), seeds, st.integers(0, 1000))
def test_bernoulli(dtype: Any, shape: tuple[int, ...], values: int, seed: int) -> None:
    p = np.random.default_rng(values).choice([0.0, 0.25, 0.5, 1.0], shape).astype(dtype)
    (found,) = check(Drawn("Bernoulli", [p], {"seed": float(seed), "dtype": 7}, opset=22))
    assert np.isin(found, (0, 1)).all()
    assert (found[p == 0] == 0).all()
    assert (found[p == 1] == 1).all()
    close_to(found[p == 0.25], 0.25, np.sqrt(3) / 4, "Bernoulli")


@drawn
@given(
    st.sampled_from((np.float32, np.float64)),
    st.integers(0, 3),
    st.integers(1, 9),
    st.sampled_from([0, 1, 7, 300]),
    st.integers(0, 999),
)
def test_multinomial(dtype: Any, batch: int, classes: int, count: int, seed: int) -> None:
    weights = np.random.default_rng(seed).integers(0, 4, (batch, classes))
    weights[:, seed % classes] += 1
    with np.errstate(divide="ignore"):
        x = np.log(weights).astype(dtype)
    node = Drawn("Multinomial", [x], {"sample_size": count, "seed": float(seed), "dtype": 7}, opset=22)
    if count == 0:
        node.attributes["sample_size"] = count = 1
    (found,) = check(node)
    assert found.shape == (batch, count)
    assert ((found >= 0) & (found < classes)).all()
    for row, drawn_classes in zip(weights, found, strict=True):
        assert (row[drawn_classes] > 0).all(), "a class of weight 0"
        share = row[seed % classes] / row.sum()
        close_to(drawn_classes == seed % classes, share, np.sqrt(share * (1 - share)) + 1e-9, "Multinomial")


@drawn
@given(
    st.sampled_from((np.float32, np.float64, np.float16)),
    shapes(0, 3),
    st.sampled_from([0.0, 0.25, 0.5, 0.9]),
    st.booleans(),
    st.integers(0, 99),
)
def test_dropout(dtype: Any, shape: tuple[int, ...], ratio: float, training: bool, seed: int) -> None:
    x = np.full(shape, 2, dtype)
    node = Drawn("Dropout", [x, np.array(ratio, np.float32), np.array(training)], {"seed": seed}, outputs=2, opset=22)
    y, mask = check(node)
    kept = ratio if training else 0.0
    np.testing.assert_allclose(y.astype(np.float64), np.where(mask, 2 / (1 - kept), 0), rtol=2e-3)
    close_to(mask, 1 - kept, np.sqrt(kept * (1 - kept)) + 1e-9, "Dropout")
