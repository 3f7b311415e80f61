"""Boxes: NonMaxSuppression, RoiAlign."""

from __future__ import annotations

from typing import Any

import numpy as np

from intarsia.graph.dims import fresh_symbol, product
from intarsia.graph.dtypes import DType
from intarsia.graph.model import TensorType
from intarsia.lazy_dataclass import dataclass
from intarsia.ops.framework.parameter_groups import ParameterGroup
from intarsia.ops.framework.registry import host_op
from intarsia.ops.nn.region_samples import MOST_SAMPLES
from intarsia.primitives import lang as k
from intarsia.run_status import SAMPLES_ARE_TOO_MANY


def _selection_type(*inputs: Any) -> TensorType:
    return TensorType(DType.INT64, (fresh_symbol("selected"), 3))


@host_op("NonMaxSuppression", since=(10, 11), infer=_selection_type, reason="the number of selected boxes depends on data")
def non_max_suppression(
    boxes: np.ndarray, scores: np.ndarray, max_output_boxes_per_class: np.ndarray | None = None,
    iou_threshold: np.ndarray | None = None, score_threshold: np.ndarray | None = None, *, center_point_box: int = 0,
) -> np.ndarray:  # fmt: skip
    """Boxes in descending order of score, without those that overlap a chosen one by more than `iou_threshold`.

    Returns:
        [selected, 3]: batch, class and box of each.
    """
    limit, overlap, least = suppression_limits(max_output_boxes_per_class, iou_threshold, score_threshold)
    chosen: list[tuple[int, int, int]] = []
    for batch in range(scores.shape[0] if limit > 0 else 0):
        corners = box_corners(boxes[batch].astype(np.float32), center_point_box)
        area = box_areas(corners)
        for label in range(scores.shape[1]):
            found = _suppress(corners, area, scores[batch, label], limit, overlap, least)
            chosen.extend((batch, label, box) for box in found)
    return np.array(chosen, np.int64).reshape(-1, 3)


def suppression_limits(
    max_output_boxes_per_class: np.ndarray | None = None, iou_threshold: np.ndarray | None = None,
    score_threshold: np.ndarray | None = None,
) -> tuple[int, np.float32, np.float32 | None]:  # fmt: skip
    """How many boxes a class may have, the largest overlap, and the score that must be exceeded, if any."""
    limit = 0 if max_output_boxes_per_class is None else int(np.asarray(max_output_boxes_per_class).reshape(-1)[0])
    overlap = np.float32(0 if iou_threshold is None else np.asarray(iou_threshold).reshape(-1)[0])
    return limit, overlap, None if score_threshold is None else np.float32(np.asarray(score_threshold).reshape(-1)[0])


def box_areas(corners: np.ndarray) -> np.ndarray:
    return np.asarray((corners[:, 2] - corners[:, 0]) * (corners[:, 3] - corners[:, 1]))


def box_corners(boxes: np.ndarray, center_point_box: int) -> np.ndarray:
    """[y1, x1, y2, x2] with y1 <= y2 and x1 <= x2."""
    if center_point_box:
        x, y, width, height = boxes.T
        return np.stack([y - height / 2, x - width / 2, y + height / 2, x + width / 2], 1)
    low, high = boxes[:, :2], boxes[:, 2:]
    return np.concatenate([np.minimum(low, high), np.maximum(low, high)], 1)


def _suppress(
    corners: np.ndarray, area: np.ndarray, score: np.ndarray, limit: int, overlap: np.floating, least: np.floating | None
) -> list[int]:
    order = np.argsort(-score, kind="stable")
    if least is not None:
        order = order[score[order] > least]
    chosen: list[int] = []
    while len(order) and len(chosen) < limit:
        best, order = int(order[0]), order[1:]
        chosen.append(best)
        sides = np.minimum(corners[order, 2:], corners[best, 2:]) - np.maximum(corners[order, :2], corners[best, :2])
        shared = np.maximum(sides, 0).prod(axis=1)
        union = area[order] + area[best] - shared
        ratio = np.divide(shared, union, out=np.zeros_like(shared), where=union > 0)
        order = order[ratio <= overlap]
    return chosen


def _bins_type(
    X: TensorType, rois: TensorType, batch_indices: TensorType, *, output_height: int = 1, output_width: int = 1,
    sampling_ratio: int = 0,
) -> TensorType:  # fmt: skip
    if sampling_ratio > MOST_SAMPLES:
        raise k.DefinitionError(f"sampling_ratio is {sampling_ratio}; expected at most {MOST_SAMPLES}")
    if min(output_height, output_width) < 0:
        raise k.DefinitionError(f"output_height is {output_height}, output_width {output_width}; expected at least 0")
    if X.shape is None or rois.shape is None:
        return TensorType(X.dtype)
    if len(X.shape) != 4 or len(rois.shape) != 2:
        raise k.DefinitionError(f"X is {X} and rois {rois}; expected [N, C, H, W] and [regions, 4]")
    k.require_equal(rois.shape[1], 4, "the numbers of a region in rois")
    k.require_least(X.shape[2], 1, "the height of X")
    k.require_least(X.shape[3], 1, "the width of X")
    if batch_indices.shape is not None:
        k.require_equal(product(batch_indices.shape), rois.shape[0], "the batch_indices, one for each region")
    return TensorType(X.dtype, (rois.shape[0], X.shape[1], output_height, output_width))


@dataclass(frozen=True)
class RegionBins(ParameterGroup):
    """How many bins a region is cut into, and what is computed of the samples in each."""

    mode: str = "avg"
    output_height: int = 1
    output_width: int = 1
    sampling_ratio: int = 0
    spatial_scale: float = 1.0


@host_op("RoiAlign", since=10, infer=_bins_type, reason="the number of samples in a bin depends on the region's size")
def roi_align_10(X: np.ndarray, rois: np.ndarray, batch_indices: np.ndarray, *, bins: RegionBins) -> np.ndarray:
    return roi_align(X, rois, batch_indices, coordinate_transformation_mode="output_half_pixel", bins=bins)


@host_op("RoiAlign", since=(16, 22), infer=_bins_type, reason="the number of samples in a bin depends on the region's size")
def roi_align(
    X: np.ndarray, rois: np.ndarray, batch_indices: np.ndarray, *, coordinate_transformation_mode: str = "half_pixel",
    bins: RegionBins,
) -> np.ndarray:  # fmt: skip
    """Mean (or largest weighted corner) of bilinear samples in each bin of each region [x1, y1, x2, y2]."""
    mode, output_height, output_width = bins.mode, bins.output_height, bins.output_width
    if mode not in ("avg", "max"):
        raise k.DefinitionError(f"mode is {mode!r}; expected avg or max")
    if rois.ndim != 2 or rois.shape[1] != 4:
        raise k.DefinitionError(f"rois has shape {list(rois.shape)}; expected [regions, 4]")
    aligned = coordinate_transformation_mode == "half_pixel"
    wide: Any = np.float64 if X.dtype == np.float64 else np.float32
    with np.errstate(invalid="ignore", over="ignore"):
        corners = rois.astype(wide) * wide(bins.spatial_scale) - wide(0.5 if aligned else 0)
    out = np.zeros((len(rois), X.shape[1], output_height, output_width), wide)
    if batch_indices.shape != (len(rois),) or ((batch_indices < 0) | (batch_indices >= len(X))).any():
        raise k.DefinitionError(f"batch_indices must be {len(rois)} numbers from 0 to {len(X) - 1}, the batch of X less one")
    for r, (x1, y1, x2, y2) in enumerate(corners):
        image = X[int(batch_indices[r])].astype(wide)
        with np.errstate(invalid="ignore", over="ignore"):
            height, width = (y2 - y1, x2 - x1) if aligned else (max(y2 - y1, wide(1)), max(x2 - x1, wide(1)))
            rows = _samples(y1, height, output_height, bins.sampling_ratio, image.shape[1])
            columns = _samples(x1, width, output_width, bins.sampling_ratio, image.shape[2])
        out[r] = _pool_samples(image, rows, columns, mode)
    return out.astype(X.dtype)


_Taps = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]


def _samples(start: Any, extent: Any, bins: int, ratio: int, length: int) -> _Taps:
    """Along one axis, [bins, samples] arrays: lower and upper neighbour of each sample, and their weights."""
    size = extent / bins
    wanted = ratio if ratio > 0 else np.ceil(size)
    if wanted > MOST_SAMPLES:
        raise k.DefinitionError(SAMPLES_ARE_TOO_MANY)
    count = int(wanted) if wanted > 0 else 0  # NaN: none
    place = start + np.arange(bins)[:, None] * size + (np.arange(count) + 0.5) * size / max(count, 1)
    outside = ~((place >= -1.0) & (place <= length))  # NaN is, too
    place = np.where(outside, 0, np.maximum(place, 0))
    low = np.minimum(place.astype(np.int64), length - 1)
    high = np.minimum(low + 1, length - 1)
    ratio_high = np.where(low >= length - 1, 0, place - low)
    return low, high, np.where(outside, 0, 1 - ratio_high), np.where(outside, 0, ratio_high)


def _pool_samples(image: np.ndarray, rows: _Taps, columns: _Taps, mode: str) -> np.ndarray:
    """[C, H, W] -> [C, bins down, bins across]."""
    if rows[0].shape[1] == 0 or columns[0].shape[1] == 0:
        return np.zeros((image.shape[0], len(rows[0]), len(columns[0])), image.dtype)
    corners = []
    for i, wi in ((rows[0], rows[2]), (rows[1], rows[3])):
        for j, wj in ((columns[0], columns[2]), (columns[1], columns[3])):
            values = image[:, i[:, :, None, None], j[None, None]]
            corners.append(values * (wi[:, :, None, None] * wj[None, None]).astype(image.dtype))
    if mode == "max":
        return np.asarray(np.max(np.maximum.reduce(corners), axis=(2, 4)))
    return np.asarray(np.mean(sum(corners), axis=(2, 4)))
