"""Storage of experts' matrices of few bits: the layout that kernels read, and for which the graph is legalized."""

from __future__ import annotations


def block_size(depth: int, blocks: int, bits: int) -> int | None:
    """Numbers of a block of a matrix of this depth, as the kernel counts them; None where its words do not hold blocks."""
    if blocks == 1:
        return -(-depth // 8) * 8
    size, rest = divmod(depth, blocks)
    return None if rest or size % (32 // stored_bits(bits)) else size


def stored_bits(bits: int) -> int:
    """Numbers of 2 bits are stored in 4."""
    return max(bits, 4)
