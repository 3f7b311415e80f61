"""Pooling, convolutions, regions."""

from __future__ import annotations

from intarsia.testing.node_row import Row

_AUTO_PAD: tuple[str | None, ...] = (None, "SAME_UPPER", "SAME_LOWER", "VALID")

WINDOWS: tuple[Row, ...] = (
    Row(
        "AveragePool",
        ("T[1,2,7,8]", "T[1,1,6,6]", "T[2,1,3,5]"),
        {
            "kernel_shape": ([3, 2], [2, 3]),
            "strides": (None, [2, 3], [2, 2]),
            "pads": (None, [1, 0, 1, 1], [2, 1, 1, 0]),
            "ceil_mode": (None, 1),
            "count_include_pad": (None, 1),
            "dilations": (None, [2, 1]),
            "auto_pad": _AUTO_PAD,
        },
    ),
    Row(
        "AveragePool",
        ("T[1,2,9]", "T[2,1,10]"),
        {
            "kernel_shape": ([3],),
            "strides": (None, [2], [4]),
            "pads": (None, [1, 1], [2, 0]),
            "ceil_mode": (None, 1),
            "count_include_pad": (None, 1),
            "auto_pad": (None, "SAME_LOWER"),
        },
    ),
    Row(
        "MaxPool",
        ("T[1,2,7,8]", "T[1,1,6,6]", "T[2,1,3,5]"),
        {
            "kernel_shape": ([3, 2], [2, 3]),
            "strides": (None, [2, 3]),
            "pads": (None, [1, 0, 1, 1]),
            "ceil_mode": (None, 1),
            "dilations": (None, [2, 1]),
            "auto_pad": _AUTO_PAD,
            "storage_order": (None,),
        },
    ),
    Row(
        "MaxPool",
        ("T[1,2,6,5]", "T[2,1,4,5]"),
        {
            "kernel_shape": ([3, 2],),
            "strides": (None, [2, 3]),
            "pads": (None, [1, 0, 1, 1]),
            "storage_order": (None, 1),
            "dilations": (None, [2, 1]),
        },
        outputs=2,
    ),
    Row(
        "MaxPool",
        ("T[1,2,9]",),
        {"kernel_shape": ([3],), "strides": (None, [2]), "pads": (None, [1, 1]), "ceil_mode": (None, 1)},
    ),
    Row(
        "MaxPool AveragePool",
        ("T[1,2,3,4,5]",),
        {
            "kernel_shape": ([2, 2, 3],),
            "strides": (None, [2, 1, 2]),
            "pads": (None, [1, 0, 1, 1, 1, 0]),
            "count_include_pad": (None, 1),
        },
    ),
    Row(
        "LpPool",
        ("T[1,2,7,8]",),
        {
            "kernel_shape": ([3, 2],),
            "strides": (None, [2, 3]),
            "pads": (None, [1, 0, 1, 1]),
            "ceil_mode": (None, 1),
            "dilations": (None, [2, 1]),
            "p": (None, 1, 3),
            "auto_pad": _AUTO_PAD,
        },
    ),
    Row("GlobalAveragePool GlobalMaxPool", ("T[2,3,4,5]", "T[2,3,4]", "T[1,1,2,3,4]", "T[2,3,1]")),
    Row("GlobalLpPool", ("T[2,3,4,5]", "T[2,3,4]"), {"p": (None, 1, 3)}),
    Row(
        "Conv",
        ("T[1,4,6,7]; T[4,2,3,2]", "T[2,4,5,5]; T[6,2,3,2]; T[6]", "T[1,2,5,6]; T[4,1,3,2]; T[4]", "T[2,2,1,5]; T[2,1,1,1]"),
        {
            "group": (None, 2),
            "strides": (None, [2, 3]),
            "pads": (None, [1, 0, 1, 2]),
            "dilations": (None, [2, 1]),
            "auto_pad": _AUTO_PAD,
            "kernel_shape": (None, [3, 2]),
        },
    ),
    Row(
        "Conv",
        ("T[1,4,6,7]; T[2,4,3,2]", "T[1,4,6,7]; T[2,4,3,2]; T[2]", "T[2,4,4,4]; T[3,4,1,1]"),
        {"strides": (None, [2, 3]), "pads": (None, [1, 0, 1, 2]), "dilations": (None, [2, 1]), "auto_pad": _AUTO_PAD},
    ),
    Row(
        "Conv",
        ("T[2,3,8]; T[4,3,3]; T[4]", "T[1,3,8]; T[3,1,3]"),
        {
            "group": (None, 3),
            "strides": (None, [2]),
            "pads": (None, [1, 2]),
            "dilations": (None, [2]),
            "auto_pad": (None, "SAME_LOWER"),
        },
    ),
    Row("Conv", ("T[1,2,4,5,3]; T[2,2,2,3,1]; T[2]",), {"strides": (None, [2, 1, 1]), "pads": (None, [1, 0, 0, 1, 1, 0])}),
    Row(
        "ConvTranspose",
        ("T[1,4,3,4]; T[4,2,3,2]", "T[2,4,3,3]; T[4,3,2,2]; T[3]"),
        {
            "strides": (None, [2, 3]),
            "pads": (None, [1, 0, 1, 1]),
            "dilations": (None, [2, 1]),
            "output_padding": (None, [1, 1]),
            "auto_pad": (None, "SAME_UPPER", "SAME_LOWER", "VALID"),
        },
    ),
    Row(
        "ConvTranspose",
        ("T[1,4,3,4]; T[4,2,3,2]; T[4]", "T[1,4,3,4]; T[4,1,3,2]"),
        {"group": (2,), "strides": (None, [2, 2]), "pads": (None, [0, 1, 1, 0])},
    ),
    Row(
        "ConvTranspose",
        ("T[1,2,3,4]; T[2,2,3,2]",),
        {"output_shape": ([7, 9], [8, 10], [6, 8]), "strides": ([2, 2],), "auto_pad": _AUTO_PAD},
    ),
    Row(
        "ConvTranspose",
        ("T[1,2,4]; T[2,3,3]; T[3]",),
        {"strides": (None, [2]), "pads": (None, [1, 0]), "output_padding": (None, [1])},
    ),
    Row(
        "ConvInteger",
        (
            "uint8[1,2,5,6]; uint8[3,2,3,2]",
            "uint8[1,2,5,6]; int8[3,2,3,2]; uint8 3",
            "uint8[1,2,5,6]; uint8[3,2,3,2]; uint8 3; uint8{1,2,3}",
        ),
        {"strides": (None, [2, 2]), "pads": (None, [1, 0, 1, 1])},
    ),
    Row(
        "DeformConv",
        ("float[1,2,4,4]; float[3,2,2,2]; float[1,8,3,3]",),
        {"pads": (None, [0, 0, 0, 0]), "offset_group": (None, 1)},
    ),
    Row("MaxUnpool", ("float[1,1,2,2]; int64{0,3,8,15}[1,1,2,2]",), {"kernel_shape": ([2, 2],), "strides": ([2, 2],)}),
    Row(
        "RoiAlign",
        ("float[1,2,6,6]; float{0,0,3,3,1,1,5,5}[2,4]; int64{0,0}",),
        {
            "mode": (None, "avg", "max"),
            "output_height": (None, 2),
            "output_width": (None, 3),
            "sampling_ratio": (None, 2),
            "spatial_scale": (None, 0.5),
            "coordinate_transformation_mode": (None, "output_half_pixel", "half_pixel"),
        },
        numbers=("plain", "hard"),
    ),
    Row(
        "MaxRoiPool",
        ("float[1,2,6,6]; float{0,0,0,3,3,0,1,1,5,5}[2,5]",),
        {"pooled_shape": ([2, 2],), "spatial_scale": (None, 0.5)},
    ),
    Row("Col2Im", ("float[1,6,4]; int64{3,4}; int64{2,3}",), {"strides": (None, [1, 1]), "pads": (None, [0, 0, 0, 0])}),
    Row(
        "GridSample",
        ("float[1,2,4,5]; float[1,3,2,2]",),
        {
            "mode": (None, "linear", "bilinear", "nearest", "cubic", "bicubic"),
            "padding_mode": (None, "zeros", "border", "reflection"),
            "align_corners": (None, 1),
        },
        numbers=("plain",),
    ),
    Row("AffineGrid", ("float[2,2,3]; int64{2,3,5,6}", "float[1,3,4]; int64{1,2,3,2,4}"), {"align_corners": (None, 1)}),
)
