"""Quantised caches of keys and values: a scale for each tensor or channel, in 8 bits or in 4 (two numbers in a byte)."""

from __future__ import annotations

from intarsia.graph.dims import floordiv, product
from intarsia.graph.dtypes import DType
from intarsia.lazy_dataclass import dataclass
from intarsia.ops.contrib.embedding_and_blocks import unpack
from intarsia.ops.framework.operands import widened
from intarsia.primitives import lang as k

Tensor = k.Tensor
KINDS = ("NONE", "PER_TENSOR", "PER_CHANNEL")
_STORED = {8: DType.INT8, 4: DType.UINT8}


@dataclass(frozen=True)
class QuantisedCache:
    """How a cache [batch, heads, rows, size] is stored: numbers from -128 to 127, or from -8 to 7 as uint8, plus 8, the first
    of two in the low bits. `scale`: one number, or one for each head and channel."""

    bits: int
    scale: Tensor

    def stored(self, x: Tensor) -> Tensor:
        """New rows as they lie in the cache."""
        most = 1 << (self.bits - 1)
        rounded = k.unary("round", widened(x) / self._scale(x))
        codes = k.minimum(k.maximum(rounded, float(-most)), float(most - 1))
        if self.bits == 8:
            return k.cast(codes, DType.INT8)
        pairs = k.reshape(k.cast(codes + 8.0, DType.UINT8), (*x.shape[:3], floordiv(x.shape[3], 2), 2))
        low, high = (k.reshape(_part(pairs, i), pairs.shape[:4]) for i in (0, 1))
        return k.binary("bitor", low, k.binary("shl", high, k.full((), 4, DType.UINT8)))

    def values(self, stored: Tensor) -> Tensor:
        """The cache's rows as float32."""
        codes = k.cast(unpack(stored, self.bits), DType.FLOAT)
        return (codes - 8.0 if self.bits == 4 else codes) * self._scale(stored)

    def _scale(self, x: Tensor) -> Tensor:
        scale = k.cast(self.scale, DType.FLOAT)
        if all(d == 1 for d in scale.shape):
            return k.reshape(scale, ())
        return k.reshape(scale, (1, x.shape[1], 1, floordiv(product(scale.shape), x.shape[1])))


def quantised_cache(kind: str, bits: int, scale: Tensor | None, past: Tensor | None, what: str) -> QuantisedCache:
    """How the cache of `what` ("key" or "value") is stored. Raises DefinitionError where the operands do not say."""
    if kind not in KINDS:
        raise k.DefinitionError(f"{what[0]}_quant_type is {kind!r}; expected one of {', '.join(KINDS)}")
    if bits not in _STORED:
        raise k.DefinitionError(f"kv_cache_bit_width is {bits}; expected 8 or 4 for a quantised cache")
    if scale is None:
        raise k.DefinitionError(f"a quantised cache needs {what[0]}_scale")
    if past is not None and past.dtype is not _STORED[bits]:
        wanted = _STORED[bits].name.lower()
        raise k.DefinitionError(f"past_{what} is {past.dtype.name.lower()}; expected {wanted} with kv_cache_bit_width {bits}")
    return QuantisedCache(bits, scale)


def _part(pairs: Tensor, which: int) -> Tensor:
    return k.strided_slice(pairs, (0, 0, 0, 0, which), (1,) * 5, (*pairs.shape[:4], 1))
