"""Parts of a graph on the CPU provider whose inputs another provider computes."""

from __future__ import annotations

import numpy as np
import pytest
from cpu_models import CPU, HEADER, model_of

import intarsia as ort


@pytest.mark.parametrize("offset", [0, 1])
def test_sizes_in_symbols_of_another_part(example_plugin: str, offset: int) -> None:
    """The CPU gets t, of shape [n * repeats[0], 3 * repeats[1]], and never sees repeats."""
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.add_session_config_entry("partition.keep_islands", "1")
    text = "agent (float[n, 3] x, int64[2] repeats) => (float[p, q] y) { t = Tile(x, repeats)  y = Neg(t) }"
    data = model_of(text, header=HEADER).SerializeToString()
    session = ort.InferenceSession(data, options, [(example_plugin, {"stride": 2, "offset": offset}), CPU])
    assert len({node.provider for node in session.explain().nodes}) == 2
    for n, repeats in ((2, (2, 1)), (1, (1, 3)), (2, (3, 0))):
        x = np.arange(3 * n, dtype=np.float32).reshape(n, 3)
        (y,) = session.run(None, {"x": x, "repeats": np.array(repeats)})
        np.testing.assert_array_equal(y, -np.tile(x, repeats))
