"""Winograd's F(4x4, 3x3) of bytes, exactly: 36 products of 16-bit integers instead of 144 of bytes.

The usual points 0, 1, -1, 2, -2 and infinity make the transforms integers once denominators are left to the end (Lavin and
Gray, "Fast Algorithms for Convolutional Neural Networks", 2015):

- the input's: at most 10 x 10 times a byte less its zero point, 25,500;
- the filters', multiplied by 12, -6, -6, 24, 24 and 3 in both directions: at most 7 x 7 times 255, 12,495;
- sums of products of pairs of these (VPDPWSSD, or VPMADDWD and an addition), modulo 2^32;
- the outputs' transform gives 9 * 2^s times the sums that are wanted, s from 2 to 6. Modulo 2^32 a multiplication by the
  inverse of 9 and a shift undo that, where 2^6 times the result is a number of 32 bits (`is_exact`).

VPDPWSSD does half of VPDPBUSD's multiplications, so a quarter of them take half the time, beside the transforms; where direct
sums are of words, too, a quarter. An input less its zero point needs no correction behind the sums, nor does a weight of nine
bits.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Sequence

import numpy as np

from intarsia.codegen.builder.kernel_body import Body, Value
from intarsia.codegen.elementwise.emitter import Emitter
from intarsia.codegen.llvm import ir_builder
from intarsia.codegen.llvm.cached_kernel_text import cached_text
from intarsia.codegen.llvm.jit import KernelText
from intarsia.codegen.llvm.target import Target
from intarsia.codegen.winograd_transforms import both_ways
from intarsia.graph.dtypes import DType
from intarsia.lazy_dataclass import dataclass
from intarsia.providers.cpu.kernels.common.microkernel import dispatched
from intarsia.providers.cpu.kernels.common.panels import pack_matrix
from intarsia.providers.cpu.kernels.common.tiles import Tile
from intarsia.providers.cpu.kernels.conv.blocked_k_microkernel import Stepped, blocked_tile
from intarsia.providers.cpu.kernels.conv.window_products import ConvShape
from intarsia.providers.cpu.kernels.conv.winograd.cost_model import tile_count
from intarsia.providers.cpu.kernels.conv.winograd.kernel import Winograd
from intarsia.providers.cpu.kernels.conv.winograd.spec import WinogradSpec
from intarsia.providers.cpu.kernels.matmul_int8 import widened_int16
from intarsia.providers.cpu.kernels.matmul_int8.byte_groups import SUMS
from intarsia.providers.cpu.kernels.matmul_int8.microkernel_int8 import ByteDot

OUTPUTS = 4
_FILTER = np.array([(3, 0, 0), (1, 1, 1), (1, -1, 1), (1, 2, 4), (1, -2, 4), (0, 0, 3)], np.int64)
_SHIFTS = (3, 2, 1, 1)  # a line of outputs is 3 * 2^s times too large
_NINTH = pow(9, -1, 1 << 32)
_LARGEST = 1 << 25  # sums below it, times 2^6, have 32 bits
_LARGEST_BYTE = 255
_RANGES = {DType.UINT8: (0, 255), DType.INT8: (-128, 127)}


def is_exact(weights: np.ndarray, dtype: DType, zero: int | None) -> bool:
    """Whether sums of any bytes of a type less their zero point (None: any) by centred weights [M, C, 3, 3] come out right."""
    flat = weights.reshape(len(weights), -1).astype(np.int64)
    above, below = np.maximum(flat, 0).sum(1), np.maximum(-flat, 0).sum(1)
    least, most = (-_LARGEST_BYTE, _LARGEST_BYTE) if zero is None else (n - zero for n in _RANGES[dtype])
    largest = np.maximum(above * most - below * least, below * most - above * least)
    return bool((largest < _LARGEST).all())


def is_faster(shape: ConvShape, target: Target) -> bool:
    """Whether a convolution that `is_applicable` is estimated to be faster so than by direct sums, on a target that has
    `rates`; `is_exact` decides whether it may."""
    lanes, found = target.vector_bytes // 4, rates(target)
    if found is None:
        return False
    return _winograd_cycles(shape, lanes, target, found) < found.worth * _direct_cycles(shape, lanes, found)


def times_as_fast(shape: ConvShape, target: Target) -> float:
    """Estimated time of direct sums over that of Winograd's, on a target that has `rates`."""
    lanes, found = target.vector_bytes // 4, rates(target)
    assert found is not None
    return _direct_cycles(shape, lanes, found) / max(1.0, _winograd_cycles(shape, lanes, target, found))


def register_tile(filters: int, target: Target) -> Tile:
    """Of the products."""
    return widened_int16.word_tile(target) if widened_int16.takes(target) else blocked_tile(filters, None, SUMS, target)


@dataclass(frozen=True)
class Rates:
    """Costs of a core, in cycles.

    Attributes:
        fours: of a vector of words by a word of four bytes, in direct sums.
        pairs: of a vector of words by a word of two 16-bit integers.
        inputs, outputs: to transform one vector of channels of a tile.
        masked: how many times as many for one whose lanes are not all channels.
        call_steps: of a call of the micro-kernel, in steps along k.
        weight_nbytes: read in a cycle from the third-level cache.
        worth: the part of direct sums' time that is worth weights of eight times the size.
        overlap: of the shorter of multiplying and reading weights that the longer does not hide.
    """

    fours: float
    pairs: float
    inputs: int
    outputs: int
    masked: int = 3
    call_steps: int = 6
    weight_nbytes: int = 12
    worth: float = 0.88
    overlap: float = 0.5


_VNNI = Rates(1 / 0.96, 1, 240, 300)  # measured on a Zen 4, with registers of 64 bytes
_AVX2 = Rates(1.15, 0.6, 240, 200, weight_nbytes=4)  # VPMADDWD, measured on a Zen 3


def rates(target: Target) -> Rates | None:
    """Measured rates of a target; None: there are none, and direct sums are taken."""
    if ByteDot.kind_of(target, target.vector_bytes // 4) == "vpdpbusd":
        return _VNNI
    return _AVX2 if widened_int16.takes(target) else None


def _direct_cycles(shape: ConvShape, lanes: int, rate: Rates) -> float:
    pixels = shape.batch * math.prod(shape.output)
    return 9 * pixels * -(-shape.channels // 4) * -(-shape.filters // lanes) * rate.fours


def _winograd_cycles(shape: ConvShape, lanes: int, target: Target, rate: Rates) -> float:
    tiles, words, vectors = tile_count(shape, OUTPUTS), -(-shape.channels // 2), -(-shape.filters // lanes)
    products = 36 * tiles * (words + rate.call_steps) * vectors * rate.pairs
    nbytes = 36 * 4 * words * vectors * lanes
    reading = nbytes / rate.weight_nbytes if nbytes > target.l2_nbytes // 2 else 0
    inputs = shape.channels // (2 * lanes) + (rate.masked if shape.channels % (2 * lanes) else 0)
    transforms = tiles * (inputs * rate.inputs + vectors * rate.outputs)
    return max(products, reading) + rate.overlap * min(products, reading) + transforms


def pack_weights(weights: np.ndarray, tile: Tile) -> np.ndarray:
    """Centred weights [M, C, 3, 3] transformed and packed: [36, packed [words of two channels, M]]."""
    filters, channels = weights.shape[:2]
    transformed = np.einsum("ia,mcab,jb->ijcm", _FILTER, weights.astype(np.int64), _FILTER).astype(np.int16)
    pairs = np.zeros((36, -(-channels // 2) * 2, filters), np.int16)
    pairs[:, :channels] = transformed.reshape(36, channels, filters)
    words = np.ascontiguousarray(np.moveaxis(pairs.reshape(36, -1, 2, filters), 2, 3)).view("<i4")[..., 0]
    return pack_matrix(words.view(np.int32), tile)


@cached_text
def micro_text(target: Target, tile: Tile) -> KernelText:
    """As `blocked_k_microkernel.stepped_micro_text`, of words of two int16 and sums of int32."""

    def variant(body: Body, tile: Tile, rows: int, vectors: int) -> None:
        _SteppedPairs(body, SUMS, tile.lanes, rows, vectors).emit()

    return dispatched("micro_steps_words", tile, target, variant)


class _SteppedPairs(Stepped):
    def _sum(self, x: Value, y: Value) -> Value:
        return self.body.b.add(x, y)

    def _multiplied(self, scalar: Value, column: Value, sums: Value) -> Value:
        if widened_int16.takes(self.body.module.target):
            return widened_int16.added_products(self.body, sums, scalar, column)
        vector = ir_builder.VectorType(ir_builder.IntType(32), self.lanes)
        name = f"llvm.x86.avx512.vpdpwssd.{self.lanes * 32}"
        return self.body.b.call(self.body.intrinsic(name, vector, [vector] * 3), [sums, scalar, column])


@functools.lru_cache(maxsize=256)
def kernel_text(spec: WinogradSpec, target: Target) -> KernelText:
    """The kernel of a spec of INT32 sums; its arguments are `winograd_args`."""
    return ByteWinograd(spec, target).text()


class ByteWinograd(Winograd):
    """Writes one kernel."""

    light_primitives = 24
    transformed_nbytes = 2

    def __init__(self, spec: WinogradSpec, target: Target) -> None:
        super().__init__(spec, target)
        self.channels, self.x_nbytes = 2 * self.lanes, 1
        self.whole_alone = widened_int16.takes(target)  # AVX2 has no masks for bytes: they go one by one

    def _border_channels(
        self, first: Value, pixels: list[list[Value]], there: list[list[Value]], target: Value
    ) -> Value:  # fmt: skip
        body = self.body
        if not self.whole_alone:
            return first
        whole = body.b.and_(self.v["channels"], body.i(-self.channels))
        with body.loop(first, whole, self.channels) as c:
            values = [[self._guarded(p, c, there[i][j], None) for j, p in enumerate(line)] for i, line in enumerate(pixels)]
            self._transform_input(values, body.at(target, body.mul(c, self.transformed_nbytes)))
        return whole

    def _store_pixels(self, places: list[Value], to: Value, rows: Value, columns: Value, left: Value) -> None:
        if not self.whole_alone:
            super()._store_pixels(places, to, rows, columns, left)
            return
        with self.body.either(self.body.less(self.lanes - 1, left)) as (whole, rest):
            with whole:
                self._each_pixel(places, to, rows, columns, None)
            with rest:
                super()._store_pixels(places, to, rows, columns, left)

    def _set_neutral(self) -> None:
        body = self.body
        outside = body.broadcast(self.v["number"], self.spec.x_dtype, self.channels)
        body.store(outside, self.neutral, self.spec.x_dtype)
        self.zero = self._wide(outside)

    def _wide(self, values: Value) -> Value:
        return Emitter(self.body.b, self.channels).cast(values, self.spec.x_dtype, DType.INT16)

    def _read(self, pointer: Value, mask: Value | None = None) -> Value:
        body, dtype, count = self.body, self.spec.x_dtype, self.channels
        found = body.load(pointer, dtype, count) if mask is None else body.load_masked(pointer, mask, dtype, count)
        return body.b.sub(self._wide(found), self.zero)

    def add(self, a: Value, b: Value) -> Value:
        return self.body.b.add(a, b)

    def subtract(self, a: Value, b: Value) -> Value:
        return self.body.b.sub(a, b)

    def _times(self, a: Value, shift: int) -> Value:
        """a * 2^shift."""
        return self.body.b.shl(a, self._all(a, shift))

    @staticmethod
    def _all(like: Value, number: int) -> Value:
        return ir_builder.Constant(like.type, [number] * like.type.count)

    def _input_matrices(self, d: list[list[Value]]) -> Iterator[Value]:
        return both_ways(d, self._input_line)

    def _input_line(self, d: Sequence[Value]) -> list[Value]:
        add, subtract, times = self.add, self.subtract, self._times
        p, q = subtract(d[4], times(d[2], 2)), subtract(d[3], times(d[1], 2))
        r, s = subtract(d[4], d[2]), times(subtract(d[3], d[1]), 1)
        return [
            add(times(subtract(d[0], d[2]), 2), r), add(p, q), subtract(p, q), add(r, s), subtract(r, s),
            subtract(subtract(d[5], d[3]), times(s, 1)),
        ]  # fmt: skip

    def _outputs_of(self, sums: list[list[Value]]) -> list[Value]:
        b, found = self.body.b, []
        for index, value in enumerate(both_ways(sums, self._output_line)):
            y, x = divmod(index, OUTPUTS)
            whole = b.mul(value, self._all(value, _NINTH - (1 << 32) if _NINTH >> 31 else _NINTH))
            found.append(b.ashr(whole, self._all(value, _SHIFTS[y] + _SHIFTS[x])))
        return found

    def _output_line(self, s: Sequence[Value]) -> list[Value]:
        add, subtract, times = self.add, self.subtract, self._times
        p, q, r, t = add(s[1], s[2]), subtract(s[1], s[2]), add(s[3], s[4]), subtract(s[3], s[4])
        return [
            subtract(add(times(s[0], 1), r), times(p, 2)), subtract(t, times(q, 1)), subtract(r, p),
            subtract(times(add(t, s[5]), 1), q),
        ]  # fmt: skip
