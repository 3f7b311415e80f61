"""Reductions, Softmax, normalisations, losses."""

from __future__ import annotations

from intarsia.testing.node_row import Row

_REDUCED = ("T[2,3,4]", "T[3]", "T[]", "T[2,0,3]", "T[1,40]")

REDUCTIONS: tuple[Row, ...] = (
    Row(
        "ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum ReduceSumSquare",
        _REDUCED,
        {"axes": (None, [0], [-1], [0, 2], [1, -3]), "keepdims": (None, 0), "noop_with_empty_axes": (None, 1)},
    ),
    Row(
        "ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum ReduceSumSquare",
        (
            "T[2,3,4]; int64{0}",
            "T[2,3,4]; int64{-1}",
            "T[2,3,4]; int64{2,0}",
            "T[2,3,4]; int64{}",
            "T[2,0,3]; int64{1}",
            "T[]; int64{}",
            "T[2,0,3]; int64{0}",
        ),
        {"keepdims": (None, 0), "noop_with_empty_axes": (None, 1)},
    ),
    Row(
        "ArgMax ArgMin",
        ("T[2,3,4]", "T[3]", "T[5,1]"),
        {"axis": (None, 1, -1, -3), "keepdims": (None, 0), "select_last_index": (None, 1)},
    ),
    Row("TopK", ("T[2,5]",), {"k": (2, 5), "axis": (None, 0, 1)}, outputs=2),
    Row(
        "TopK",
        ("T[2,5]; int64{2}", "T[5]; int64{5}", "T[4,3,2]; int64{1}", "T[2,5]; int64{0}"),
        {"axis": (None, 0, 1, -2), "largest": (None, 0), "sorted": (None,)},
        outputs=2,
    ),
    Row(
        "CumSum CumProd",
        ("T[2,3,4]; int64 0", "T[2,3,4]; int64 -1", "T[3]; int32 0", "T[2,0]; int64 1"),
        {"exclusive": (None, 1), "reverse": (None, 1)},
    ),
    Row(
        "Softmax LogSoftmax Hardmax",
        ("T[2,3,4]", "T[1,3,2,2]", "T[5]", "T[3,1]", "T[2,0,3]", "T[2,40]"),
        {"axis": (None, 0, 1, 2, -1, -2)},
    ),
    Row("LpNormalization", ("T[2,3,4]", "T[3]"), {"axis": (None, 0, 1, -2), "p": (None, 1, 2)}),
    Row("MeanVarianceNormalization", ("T[2,3,4,5]",), {"axes": (None, [1], [0, 2], [-1])}),
    Row(
        "LayerNormalization",
        (
            "T[2,3,4]; T[4]; T[4]",
            "T[2,3,4]; T[4]",
            "T[2,3,4]; T[3,4]; T[3,4]",
            "T[2,3,4]; T[2,3,4]",
            "T[2,3,4]; T[1]",
            "T[2,3,4]; T[1,4]; T[]",
        ),
        {"axis": (None, 1, -2, 0), "epsilon": (None, 0.1)},
    ),
    Row("LayerNormalization", ("T[2,3,4]; T[4]; T[4]",), {"axis": (None, -1)}, outputs=3),
    Row(
        "RMSNormalization",
        ("T[2,3,4]; T[4]", "T[2,3,4]; T[3,4]", "T[2,3,4]; T[1]"),
        {"axis": (None, 1, -2), "epsilon": (None, 0.1)},
    ),
    Row(
        "GroupNormalization",
        ("T[2,4,3]; T[2]; T[2]", "T[2,4,3]; T[4]; T[4]", "T[1,4,2,2]; T[4]; T[4]"),
        {"num_groups": (1, 2, 4), "epsilon": (None, 0.1)},
    ),
    Row(
        "InstanceNormalization",
        ("T[2,3,4]; T[3]; T[3]", "T[1,3,2,2]; T[3]; T[3]", "T[2,3,1]; T[3]; T[3]"),
        {"epsilon": (None, 0.1)},
    ),
    Row(
        "BatchNormalization",
        ("T[2,3,4]; T[3]; T[3]; T[3]; T[3]", "T[2,3]; T[3]; T[3]; T[3]; T[3]", "T[1,3,2,2]; T[3]; T[3]; T[3]; T[3]"),
        {"epsilon": (None, 0.1), "is_test": (None, 1), "spatial": (None, 1)},
    ),
    Row(
        "LRN",
        ("T[1,7,2,2]", "T[2,3,4]", "T[2,4,1,3]", "T[2,5]"),
        {"size": (1, 2, 3, 4, 5), "alpha": (None, 1.0), "beta": (None, 0.5), "bias": (None, 2.0)},
    ),
    Row(
        "NegativeLogLikelihoodLoss",
        ("float[3,4]; int64{0,3,1}", "float[3,4]; int64{0,3,1}; float[4]", "float[1,4,2]; int64{0,3}[1,2]"),
        {"reduction": (None, "none", "sum"), "ignore_index": (None, 3)},
    ),
    Row(
        "SoftmaxCrossEntropyLoss",
        ("float[3,4]; int64{0,3,1}", "float[3,4]; int64{0,3,1}; float[4]", "float[1,4,2]; int64{0,3}[1,2]"),
        {"reduction": (None, "none", "sum"), "ignore_index": (None, 3)},
        outputs=2,
    ),
)
