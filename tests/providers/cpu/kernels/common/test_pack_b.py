"""Matrices as panels: what lies where, whatever the pieces in which they are read, and mapped files that are let go."""

import numpy as np
import pytest

pytest.importorskip("llvmlite", reason="the templates are compiled with llvmlite")

import template_kernels as t

from intarsia.providers.cpu.kernels.common import panels
from intarsia.providers.cpu.kernels.common.panels import pack_matrix, padded_columns
from intarsia.providers.cpu.kernels.common.tiles import Tile


def _elements(b: np.ndarray, tile: Tile) -> np.ndarray:
    """Packed B of [K, N], by the definition: element [p][j] of the panel that begins at column c is b[p, c + j]."""
    (k, n), panels = b.shape, []
    for c in range(0, n, tile.width):
        panel = b[:, c : c + tile.width]
        width = padded_columns(panel.shape[1], tile)
        panels.append(np.pad(panel, ((0, 0), (0, width - panel.shape[1]))).reshape(k * width))
    return np.concatenate(panels) if panels else np.zeros(0, b.dtype)


@pytest.mark.parametrize("nbytes", [1, 500, 1 << 24])
@pytest.mark.parametrize(("k", "n"), [(1, 1), (7, 200), (40, 64), (3, 0), (0, 5)])
def test_pieces_make_the_same_panels(k: int, n: int, nbytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(panels, "_PIECE_NBYTES", nbytes)
    batch = t.random(np.random.default_rng(k + n), 3, k, n)
    for b in (batch, batch.swapaxes(1, 2).copy().swapaxes(1, 2), batch[:, ::-1], batch[..., ::-1]):
        packed = pack_matrix(b, t.tile())
        np.testing.assert_array_equal(packed, [_elements(matrix, t.tile()) for matrix in b])
