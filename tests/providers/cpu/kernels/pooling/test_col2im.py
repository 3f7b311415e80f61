"""Col2Im by its kernel: every rank, strides, dilations, padding, and sizes that do not fit."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("llvmlite", reason="the CPU provider compiles with llvmlite")
pytest.importorskip("onnx", reason="the models are built with onnx.parser")

from cpu_models import check, kinds, normal, session_of

from intarsia.errors import InvalidArgument

HEADER = '<ir_version: 8, opset_import: ["" : 18]>'

# image, block, strides, pads, dilations
CASES = {
    "dense": ((6, 7), (3, 2), (1, 1), (0, 0, 0, 0), (1, 1)),
    "one axis": ((40,), (5,), (1,), (2, 2), (1,)),
    "wide rows": ((4, 70), (3, 3), (1, 1), (1, 1, 1, 1), (1, 1)),
    "strides": ((9, 11), (3, 3), (2, 3), (1, 0, 1, 1), (1, 1)),
    "dilations": ((9, 20), (2, 3), (1, 1), (1, 2, 0, 2), (2, 3)),
    "volume": ((4, 5, 6), (2, 3, 2), (1, 2, 1), (0, 1, 0, 1, 0, 1), (1, 1, 2)),
    "padding wider than the block": ((3, 3), (2, 2), (1, 1), (3, 3, 3, 3), (1, 1)),
}


def text(case: str, x: str) -> str:
    image, block, strides, pads, dilations = CASES[case]
    lists = {"strides": strides, "pads": pads, "dilations": dilations}
    attributes = ", ".join(f"{name} = {list(values)}" for name, values in lists.items())
    sizes = f"int64[{len(image)}] size = {{{', '.join(map(str, image))}}}"
    places = f"int64[{len(block)}] block = {{{', '.join(map(str, block))}}}"
    result = ", ".join(["n", "c", *map(str, image)])
    return f"g ({x}) => (float[{result}] y) <{sizes}, {places}> {{ y = Col2Im<{attributes}>(x, size, block) }}"


def shape(case: str, batch: int, channels: int) -> tuple[int, int, int]:
    image, block, strides, pads, dilations = CASES[case]
    rank = len(image)
    counts = [(image[i] + pads[i] + pads[rank + i] - (block[i] - 1) * dilations[i] - 1) // strides[i] + 1 for i in range(rank)]
    return batch, channels * int(np.prod(block)), int(np.prod(counts))


@pytest.mark.parametrize("case", CASES)
def test_against_the_definition(case: str) -> None:
    _, channels, windows = shape(case, 1, 3)
    feeds = [{"x": normal(*shape(case, batch, 3))} for batch in (1, 2, 5)]
    session = check(text(case, f"float[n, {channels}, {windows}] x"), *feeds, header=HEADER)
    assert list(kinds(session).values()) == ["compiled"]


def test_sizes_that_do_not_fit_name_the_node() -> None:
    session = session_of(text("dense", "float[n, k, l] x"), header=HEADER)
    batch, channels, windows = shape("dense", 1, 2)
    session.run(None, {"x": normal(batch, channels, windows)})
    with pytest.raises(InvalidArgument, match="Col2Im"):
        session.run(None, {"x": normal(batch, channels, windows + 1)})
    with pytest.raises(InvalidArgument, match="Col2Im"):
        session.run(None, {"x": normal(batch, channels + 1, windows)})
