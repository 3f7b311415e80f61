"""Convolutions, pools, attention and resizing against PyTorch, where it is installed: an oracle that nobody here wrote."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from drawn_nodes import Drawn, array, check, drawn, seeds, structures, wide
from hypothesis import given
from hypothesis import strategies as st

torch: Any = pytest.importorskip("torch", reason="it is the oracle of these tests")
F = torch.nn.functional


def doubles(x: np.ndarray | None) -> Any:
    return None if x is None else torch.from_numpy(wide(x))


@drawn
@given(structures, st.sampled_from(["Conv", "ConvTranspose"]), seeds, st.data())
def test_convolutions(structure: int, op: str, seed: int, data: st.DataObject) -> None:
    rng = np.random.default_rng(structure)
    rank, dtype = int(rng.choice([1, 2, 3], p=(0.3, 0.5, 0.2))), (np.float32, np.float64)[rng.integers(2)]
    groups, per_in, per_out = ((1, 1, 1), (1, 3, 5), (2, 2, 2), (4, 1, 1), (1, 16, 8))[rng.integers(5)]
    kernel, strides, dilations = (
        [int(v) for v in rng.choice(values, rank)] for values in ([1, 2, 3, 5], [1, 1, 2, 3], [1, 1, 2])
    )
    pads = [int(rng.integers(0, (w + 1) // 2 + 1)) for w in kernel]
    extra = [int(rng.integers(0, max(s, d))) if op == "ConvTranspose" else 0 for s, d in zip(strides, dilations, strict=True)]
    spans = [(w - 1) * d + 1 for w, d in zip(kernel, dilations, strict=True)]
    space = [max(1, s - 2 * p) + data.draw(st.sampled_from([0, 1, 4])) for s, p in zip(spans, pads, strict=True)]
    if op == "ConvTranspose" and any(
        (n - 1) * t + s + e <= 2 * p for n, t, s, e, p in zip(space, strides, spans, extra, pads, strict=True)
    ):
        return  # nothing is left
    channels = groups * per_in
    weights = (groups * per_out, per_in) if op == "Conv" else (channels, per_out)
    x = array(seed, (data.draw(st.integers(1, 3)), channels, *space), dtype)
    w, b = array(seed + 1, (*weights, *kernel), dtype), array(seed + 2, (groups * per_out,), dtype) if rng.integers(2) else None
    attributes: dict[str, Any] = {"strides": strides, "pads": pads * 2, "dilations": dilations, "group": groups}
    if op == "Conv":
        expected = (F.conv1d, F.conv2d, F.conv3d)[rank - 1](
            doubles(x), doubles(w), doubles(b), strides, pads, dilations, groups
        )
    else:
        attributes["output_padding"] = extra
        transposed = (F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d)[rank - 1]
        expected = transposed(doubles(x), doubles(w), doubles(b), strides, pads, extra, groups, dilations)
    fixed = (1, 2) if rng.integers(2) else ()
    check(Drawn(op, [x, w, b], attributes, constant=fixed), expected.numpy(), 100, scale=16 * per_in)


@drawn
@given(structures, st.sampled_from(["MaxPool", "AveragePool"]), seeds, st.data())
def test_pools(structure: int, op: str, seed: int, data: st.DataObject) -> None:
    rng = np.random.default_rng(structure)
    rank, dtype = int(rng.choice([1, 2, 3], p=(0.3, 0.5, 0.2))), (np.float32, np.float64)[rng.integers(2)]
    kernel, strides = ([int(v) for v in rng.choice(values, rank)] for values in ([1, 2, 3], [1, 2, 3]))
    pads, ceil, counted = [int(rng.integers(0, w // 2 + 1)) for w in kernel], bool(rng.integers(2)), bool(rng.integers(2))
    space = [w + data.draw(st.sampled_from([0, 1, 2, 5])) for w in kernel]
    x = array(seed, (data.draw(st.integers(1, 2)), int(rng.choice([1, 3, 8])), *space), dtype)
    attributes: dict[str, Any] = {"kernel_shape": kernel, "strides": strides, "pads": pads * 2, "ceil_mode": int(ceil)}
    if op == "MaxPool":
        pool = (F.max_pool1d, F.max_pool2d, F.max_pool3d)[rank - 1]
        values, places = pool(doubles(x), kernel, strides, pads, 1, ceil, return_indices=True)
        size = int(np.prod(space))
        planes = np.arange(x.shape[0] * x.shape[1]).reshape(*x.shape[:2], *[1] * rank) * size
        check(Drawn(op, [x], attributes, outputs=2, opset=22), [values.numpy(), places.numpy() + planes])
    else:
        pool = (F.avg_pool1d, F.avg_pool2d, F.avg_pool3d)[rank - 1]
        expected = pool(doubles(x), kernel, strides, pads, ceil, counted).numpy()
        check(Drawn(op, [x], attributes | {"count_include_pad": int(counted)}, opset=22), expected, 20, scale=4)


@drawn
@given(structures, seeds, st.data())
def test_attention(structure: int, seed: int, data: st.DataObject) -> None:
    rng = np.random.default_rng(structure)
    size, kv, group = int(rng.choice([1, 4, 8, 16])), int(rng.choice([1, 2])), int(rng.choice([1, 1, 2]))
    causal, flat, masked = (bool(v) for v in rng.integers(0, 2, 3))
    heads = kv * group
    batch, queries, keys = (data.draw(st.sampled_from(v)) for v in ([1, 2], [1, 3, 17], [1, 4, 33]))
    q = array(seed, (batch, heads, queries, size), np.float32)
    k, v = (array(seed + i, (batch, kv, keys, size), np.float32) for i in (1, 2))
    mask = array(seed + 3, (batch, 1, queries, keys), np.float32) if masked and not causal else None
    wanted = F.scaled_dot_product_attention(
        doubles(q), doubles(np.repeat(k, group, 1)), doubles(np.repeat(v, group, 1)), doubles(mask), is_causal=causal
    )
    expected = wanted.numpy()
    operands, attributes = [q, k, v, mask], {"is_causal": int(causal)}
    if flat:  # [batch, tokens, heads * size]
        operands[:3] = [t.swapaxes(1, 2).reshape(batch, t.shape[2], -1) for t in (q, k, v)]
        expected = expected.swapaxes(1, 2).reshape(batch, queries, -1)
        attributes |= {"q_num_heads": heads, "kv_num_heads": kv}
    check(Drawn("Attention", operands, attributes, opset=24), expected, 80, scale=4)


@drawn
@given(structures, seeds, st.data())
def test_resizing(structure: int, seed: int, data: st.DataObject) -> None:
    rng = np.random.default_rng(structure)
    mode, corners, smooth = str(rng.choice(["linear", "cubic"])), bool(rng.integers(2)), bool(rng.integers(2))
    corners = corners and not smooth
    space, out = ([data.draw(st.sampled_from([2, 3, 5, 8])) for _ in range(2)] for _ in range(2))
    x = array(seed, (data.draw(st.integers(1, 2)), 3, *space), np.float32)
    expected = F.interpolate(
        doubles(x), out, mode={"linear": "bilinear", "cubic": "bicubic"}[mode], align_corners=corners, antialias=smooth
    )
    attributes: dict[str, Any] = {
        "mode": mode, "coordinate_transformation_mode": "align_corners" if corners else "half_pixel", "antialias": int(smooth),
    }  # fmt: skip
    if mode == "cubic":  # what is outside has no part in PyTorch's smoothed images
        attributes |= {"cubic_coeff_a": -0.5, "exclude_outside": 1} if smooth else {"cubic_coeff_a": -0.75}
    elif smooth:
        attributes["exclude_outside"] = 1
    sizes = np.array([x.shape[0], 3, *out])
    check(
        Drawn("Resize", [x, None, None, sizes], attributes, constant=(3,) if rng.integers(2) else ()),
        expected.numpy(),
        100,
        scale=8,
    )
