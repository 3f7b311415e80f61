"""Packed B where NumPy packs it, and how large it is.

Packed B of a K x N product is a row of panels of `width` (NR) columns, each [K][width]; the last panel is as narrow as whole
vectors allow, its columns beyond N are zero. One panel follows the other, so panel j begins at element j * K * width.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from intarsia.providers.cpu.kernels.common.tiles import Tile

_PIECE_NBYTES = 16 << 20  # of a matrix that is packed


def padded_columns(n: int, tile: Tile) -> int:
    """N rounded up to whole vectors: the columns of packed B."""
    return -(-n // tile.lanes) * tile.lanes


def packed_nbytes(k: int, n: int, tile: Tile) -> int:
    """Bytes of one packed [K, N] matrix."""
    return k * padded_columns(n, tile) * tile.itemsize


def pack_matrix(b: np.ndarray, tile: Tile) -> np.ndarray:
    """Pack [..., K, N] (any strides) into panels: [..., K * padded N] of the same dtype, contiguous and 64-byte aligned.

    A large matrix is read piece by piece, of bytes that lie close together.
    """
    *batch, k, n = b.shape
    out = aligned_zeros((*batch, k * padded_columns(n, tile)), b.dtype)
    full, rest = divmod(n, tile.width)
    head = out[..., : full * k * tile.width].reshape(*batch, full, k, tile.width)
    tail = out[..., full * k * tile.width :].reshape(*batch, k, padded_columns(rest, tile))
    for rows, panels in _pieces(b, full):
        piece = b[..., rows, panels.start * tile.width : panels.stop * tile.width]
        split = piece.reshape(*batch, piece.shape[-2], panels.stop - panels.start, tile.width)
        head[..., panels, rows, :] = np.moveaxis(split, -3, -2)
    if rest:
        tail[..., :rest] = b[..., full * tile.width :]
    return out


def _pieces(b: np.ndarray, panels: int) -> Iterator[tuple[slice, slice]]:
    """Rows and panels of [..., K, N] by parts that lie close together in memory and take up to `_PIECE_NBYTES`."""
    k = b.shape[-2]
    if abs(b.strides[-1]) > abs(b.strides[-2]):  # a transposed view: one column after the other
        step = max(1, _PIECE_NBYTES * panels // max(1, b.nbytes))
        yield from ((slice(0, k), slice(i, min(i + step, panels))) for i in range(0, panels, step))
    else:
        step = max(1, _PIECE_NBYTES * k // max(1, b.nbytes))
        yield from ((slice(i, min(i + step, k)), slice(0, panels)) for i in range(0, k, step))


def aligned_zeros(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """A zeroed C-contiguous array whose data begins at a multiple of 64 bytes."""
    dtype = np.dtype(dtype)
    nbytes = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    raw = np.zeros(nbytes + 64, np.uint8)
    start = -raw.ctypes.data % 64
    return raw[start : start + nbytes].view(dtype).reshape(shape)
