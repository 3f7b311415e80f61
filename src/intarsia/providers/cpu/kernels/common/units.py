"""Units that multiply words of two bfloat16 or four bytes (`matmul.vnni_kernel`), by their names in "session.matrix_unit"."""

from __future__ import annotations

VECTORS, TILES, EMULATED = "avx512_bf16", "amx", "amx_emulated"
TILE_UNITS = (TILES, EMULATED)
# Words that a unit multiplies in the time of a float32 multiply-add: a product of tiles is 16^3 in 16 cycles, in which two
# units of AVX-512 do 512; VDPBF16PS does 16 instead of 16, where it is used.
WORDS_IN_TIME = {"": 1, VECTORS: 1, TILES: 8, EMULATED: 8}
