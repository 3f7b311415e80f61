"""K blocks of a convolution by windows (`line_buffer_kernel`)."""

from __future__ import annotations

import functools
import math

import numpy as np

from intarsia.codegen.llvm.target import Target
from intarsia.providers.cpu.kernels.conv.blocked_k_microkernel import STEPS
from intarsia.providers.cpu.kernels.conv.pointwise_kernel import BLOCK_TAPS, has_long_blocks

_BLOCK_FIELDS = ("tap", "taps", "plane", "line", "lines", "line_taps", "pixel_taps")
_PART_FIELDS = ("parts", "part_taps")  # of long blocks: those of neighbouring blocks of channels in one
_LONG_TAPS = 54  # of a long block, at most


def block_fields(target: Target) -> tuple[str, ...]:
    return _BLOCK_FIELDS + _PART_FIELDS if has_long_blocks(target) else _BLOCK_FIELDS


@functools.lru_cache(maxsize=256)
def blocks_of(kernel: tuple[int, ...], padded: int, each: int, long: bool) -> tuple[np.ndarray, bool]:
    """The blocks (`block_fields`) of a sum, and whether one has parts outside the image multiplied."""
    blocks = []
    for number, at in enumerate(range(0, padded, each)):
        tap, halves = number * math.prod(kernel) * (each // STEPS), -(-min(each, padded - at) // STEPS)
        blocks += _channel_blocks(kernel, halves, tap, _LONG_TAPS if long else 2 * BLOCK_TAPS)
    found = _in_parts(blocks) if long else _joined(blocks)
    return np.array(found, np.int64), any(not block[6] for block in found)


def _channel_blocks(kernel: tuple[int, ...], halves: int, tap: int, most: int) -> list[tuple[int, ...]]:
    """The blocks of one block of channels, from `tap` on, of `most` taps at most; `pixel_taps` is 0 where nothing of it can be
    left out."""
    depth, height, width = kernel
    line_taps = width * halves
    if line_taps > most:
        pieces = round(2 * line_taps / most)
        ends = [line_taps * (i + 1) // pieces for i in range(pieces)]
        parts = list(zip([0, *ends[:-1]], ends, strict=True))
        cuts = [(tap + line * line_taps + a, b - a) for line in range(depth * height) for a, b in parts]
        return [(at, count, 0, 0, 1, count, 0) for at, count in cuts]
    if line_taps * height * depth <= 2 * BLOCK_TAPS and depth > 1:
        return [(tap, line_taps * height * depth, 0, 0, 1, line_taps * height * depth, 0)]
    together = height if line_taps * height <= most else max(1, round(most / 2 / line_taps))
    made: list[tuple[int, ...]] = []
    for plane in range(depth):
        for line in range(0, height, together):
            lines = min(together, height - line)
            at = tap + (plane * height + line) * line_taps
            made.append((at, lines * line_taps, plane, line, lines, line_taps, halves))
    return made


def _joined(blocks: list[tuple[int, ...]]) -> list[tuple[int, ...]]:
    """Small blocks of neighbouring channels together, as many as fit."""
    size = max((block[1] for block in blocks), default=0)
    count = BLOCK_TAPS // size if size and len(blocks) > 1 else 1
    if count < 2:
        return blocks
    parts = [blocks[i : i + count] for i in range(0, len(blocks), count)]
    sizes = [sum(block[1] for block in part) for part in parts]
    return [(part[0][0], n, 0, 0, 1, n, 0) for part, n in zip(parts, sizes, strict=True)]


def _in_parts(blocks: list[tuple[int, ...]]) -> list[tuple[int, ...]]:
    """Blocks that neighbouring channels have alike together, as many as fit, as parts of one."""
    made: list[list[int]] = []
    for tap, taps, *where in blocks:
        last = made[-1] if made else None
        alike = last is not None and last[-1] == taps and last[2:-2] == where and last[0] + last[1] == tap
        if last is not None and alike and last[1] + taps <= _LONG_TAPS:
            last[1], last[-2] = last[1] + taps, last[-2] + 1
        else:
            made.append([tap, taps, *where, 1, taps])
    return [tuple(block) for block in made]
