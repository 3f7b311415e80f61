"""The trees kernel against the definition of what packed nodes mean, for every form, any number of rows, parts and threads."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from template_kernels import at_page_end, check_margin, guarded, host, run

from intarsia.graph.dtypes import DType
from intarsia.ops.framework.parameter_groups import flat
from intarsia.ops.ml.forest import TreeSplits, forest_of_splits
from intarsia.ops.ml.native import tree_sums
from intarsia.ops.ml.packed import Packed, pack
from intarsia.providers.cpu.kernels.ml import trees_kernel


def forest(count: int, targets: int, votes: str, dtype: type, aggregate: str) -> Packed:
    """Chains of comparisons, each tree one longer than the last (of 1 to 9), so that leaves are at all depths."""
    rng = np.random.default_rng(count)
    lengths = [1 + t % 9 for t in range(count)]
    inner, leaves = sum(lengths), sum(lengths) + count
    starts = np.cumsum([0, *lengths])
    true, true_leaf, false, false_leaf = [], [], [], []
    for t, length in enumerate(lengths):
        for i in range(length):
            last = i == length - 1
            true.append(starts[t] + t + i)
            true_leaf.append(1)
            false.append(starts[t] + t + length if last else starts[t] + i + 1)
            false_leaf.append(int(last))
    ids = rng.integers(0, targets, leaves)
    if votes == "node":
        ids = np.repeat(np.arange(count) % targets, [n + 1 for n in lengths])
    weights = rng.standard_normal(leaves).astype(np.float32)
    made = TreeSplits(
        tree_roots=starts[:-1].tolist(), nodes_featureids=rng.integers(0, 7, inner).tolist(),
        nodes_modes=rng.integers(0, 6, inner).astype(np.uint8), nodes_splits=rng.integers(-2, 3, inner).astype(dtype),
        nodes_truenodeids=true, nodes_trueleafs=true_leaf, nodes_falsenodeids=false, nodes_falseleafs=false_leaf,
        nodes_missing_value_tracks_true=rng.integers(0, 2, inner).tolist(), leaf_targetids=ids.tolist(), leaf_weights=weights,
    )  # fmt: skip
    packed = pack(forest_of_splits(made, targets), np.dtype(dtype), aggregate)
    assert packed.votes == votes
    return packed


def check(
    p: Packed, dtype: type, rows: int, targets: int, aggregate: str, parts: int = 1, nthreads: int = 1, block: int = 16
) -> Any:
    rng = np.random.default_rng(rows)
    x = rng.integers(-3, 4, (rows, 7)).astype(dtype)
    x[rng.random(x.shape) < 0.1] = np.nan
    x = at_page_end(x)
    form = trees_kernel.Form(DType.of(x.dtype), p.votes, DType.of(p.weights.dtype), aggregate)
    accumulators, stride = trees_kernel.scratch_places(form.dtype, len(p.columns), targets, block)
    scratch, around_scratch = guarded((nthreads * stride,), np.uint8)
    sums, around = guarded((parts, rows, targets), np.float64)
    arrays = {
        "x": x, "nodes": at_page_end(p.nodes), "trees": at_page_end(p.trees), "columns": at_page_end(p.columns),
        "weights": at_page_end(p.weights), "first": at_page_end(p.first), "targets": at_page_end(p.targets), "sums": sums,
        "scratch": scratch,
    }  # fmt: skip
    sizes = {
        "rows": rows, "pitch": x.strides[0], "ntrees": len(p.trees), "ntargets": targets, "ncolumns": len(p.columns),
        "block": block, "parts": parts, "stride": stride, "accumulators": accumulators,
    }  # fmt: skip
    run(
        trees_kernel.kernel_text(form, host()),
        [arrays[f].ctypes.data if f in arrays else sizes[f] for f in trees_kernel.FIELDS],
        nthreads,
    )
    check_margin(around)
    check_margin(around_scratch)
    total = sums[0].copy()
    if parts > 1:
        run(trees_kernel.combine_text(aggregate, host()), [sums.ctypes.data, total.ctypes.data, total.size, parts], nthreads)
    expected = flat(tree_sums)(
        x, p.nodes, p.trees, p.columns, p.weights, p.first, p.targets, votes=p.votes, aggregate=aggregate, scores=targets,
        features=7, steps=p.steps,
    )  # fmt: skip
    np.testing.assert_allclose(total, expected, rtol=1e-12, atol=1e-12)
    return total


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("aggregate", trees_kernel.AGGREGATES)
@pytest.mark.parametrize(("votes", "targets"), [("node", 1), ("node", 3), ("dense", 2), ("sparse", 400)])
def test_forms(votes: str, targets: int, aggregate: str, dtype: type) -> None:
    packed = forest(21, targets, votes, dtype, aggregate)
    for rows in (1, 3, 8, 13, 37):
        check(packed, dtype, rows, targets, aggregate)


@pytest.mark.parametrize("count", [1, 7, 64, 65, 200])
def test_sums_do_not_depend_on_parts_and_threads(count: int) -> None:
    packed = forest(count, 1, "node", np.float32, "SUM")
    chunks = -(-count // trees_kernel.CHUNK)
    for rows in (1, 5, 40):
        whole = check(packed, np.float32, rows, 1, "SUM")
        for nthreads in (2, 3):
            np.testing.assert_array_equal(check(packed, np.float32, rows, 1, "SUM", nthreads=nthreads), whole)
            np.testing.assert_array_equal(check(packed, np.float32, rows, 1, "SUM", parts=chunks, nthreads=nthreads), whole)


def test_no_rows() -> None:
    check(forest(9, 1, "node", np.float32, "SUM"), np.float32, 0, 1, "SUM")


def test_sums_do_not_depend_on_blocks() -> None:
    packed = forest(100, 1, "node", np.float32, "SUM")
    many = check(packed, np.float32, 50, 1, "SUM", block=32)
    assert many.shape == (50, 1)
    np.testing.assert_array_equal(many, check(packed, np.float32, 50, 1, "SUM", block=8))


def test_unknown_form() -> None:
    with pytest.raises(ValueError, match="no kernel for Form"):
        trees_kernel.kernel_text(trees_kernel.Form(DType.FLOAT, "node", DType.FLOAT, "AVERAGE"), host())
