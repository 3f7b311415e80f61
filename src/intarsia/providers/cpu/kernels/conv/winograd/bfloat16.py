"""Winograd's F(2x2, 3x3) with products of bfloat16 by VDPBF16PS: transforms in float32, rounded where they are stored.

Only F(2x2): its input's transform adds four numbers, where F(4x4) multiplies by up to 25 and would lose three bits more.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np

from intarsia.codegen.builder.kernel_body import Body, Value
from intarsia.codegen.llvm.cached_kernel_text import cached_text
from intarsia.codegen.llvm.jit import KernelText
from intarsia.codegen.llvm.target import Target
from intarsia.codegen.winograd_transforms import filter_matrix
from intarsia.graph.dtypes import DType
from intarsia.providers.cpu.kernels.common.microkernel import EVERY, Met, dispatched
from intarsia.providers.cpu.kernels.common.tiles import Tile
from intarsia.providers.cpu.kernels.conv.blocked_k_microkernel import Stepped
from intarsia.providers.cpu.kernels.conv.winograd.kernel import Winograd
from intarsia.providers.cpu.kernels.conv.winograd.spec import WinogradSpec
from intarsia.providers.cpu.kernels.matmul import vnni_layout
from intarsia.providers.cpu.kernels.matmul.vnni_kernel import pair_products
from intarsia.providers.cpu.kernels.matmul.vnni_layout import LINE_WORDS, rounded_pairs

OUTPUTS = 2


def pack_weights(weights: np.ndarray, tile: Tile, in_pairs: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
    """ONNX weights [M, C, 3, 3] transformed (in float64), rounded by `in_pairs` and packed: [16, words of C / 2 by M]."""
    filters, channels = weights.shape[:2]
    flat = weights.reshape(filters * channels, 9).astype(np.float64)
    found = []
    for line in filter_matrix(OUTPUTS):
        matrix = (flat @ line).astype(np.float32).reshape(filters, channels).T
        found.append(vnni_layout.pack_words(in_pairs(matrix)[None], tile, False))
    return np.stack(found)


@cached_text
def micro_text(target: Target, tile: Tile, met: Met = EVERY) -> KernelText:
    """As `blocked_k_microkernel.stepped_micro_text` of FLOAT, by VDPBF16PS: elements of A and B are words of two bfloat16."""

    def variant(body: Body, tile: Tile, rows: int, vectors: int) -> None:
        _SteppedPairs(body, DType.FLOAT, tile.lanes, rows, vectors).emit()

    return dispatched("micro_steps_pairs", tile, target, variant, met=met)


class _SteppedPairs(Stepped):
    def _multiplied(self, scalar: Value, column: Value, sums: Value) -> Value:
        return pair_products(self.body, sums, column, scalar)


@functools.lru_cache(maxsize=256)
def kernel_text(spec: WinogradSpec, target: Target) -> KernelText:
    """The kernel of a spec of `pairs`; its arguments are `winograd_args`."""
    return PairWinograd(spec, target).text()


class PairWinograd(Winograd):
    """Writes one kernel."""

    transformed_nbytes = 2

    def _transform_input(self, d: list[list[Value]], target: Value) -> None:
        body = self.body
        for matrix, value in enumerate(self._input_matrices(d)):
            both = rounded_pairs(body, value, value)
            place = body.at(target, body.mul(self.v["plane_nbytes"], matrix))
            body.store(body.shuffle(both, both, range(LINE_WORDS)), place, DType.BFLOAT16)
