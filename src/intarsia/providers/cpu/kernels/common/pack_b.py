"""Packing: matrices as panels, images with borders, and constant weights in both layouts.

Packed B of a K x N product is a row of panels of `width` (NR) columns, each [K][width]; the last panel is as narrow as whole
vectors allow, its columns beyond N are zero. One panel follows the other, so panel j begins at element j * K * width.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np

from intarsia.codegen.builder.kernel_body import Body, Module, Value
from intarsia.codegen.llvm import ir_builder
from intarsia.codegen.llvm.jit import SYMBOL_PLACEHOLDER, KernelText
from intarsia.codegen.llvm.target import Target
from intarsia.graph.dtypes import DType
from intarsia.lazy_dataclass import dataclass
from intarsia.providers.cpu.kernels.common.microkernel import load_wide
from intarsia.providers.cpu.kernels.common.tiles import tile_of


def in_fewer_bits(weights: np.ndarray, stored: DType) -> np.ndarray | None:
    """Float32 numbers as one of `microkernel.STORED`; None where one does not fit, or is no integer."""
    if stored is not DType.INT8:
        return in_16_bits(weights, stored)
    with np.errstate(invalid="ignore"):
        bytes_: np.ndarray = weights.astype(np.int8)
    return bytes_ if np.array_equal(bytes_, weights) else None


_SURELY_FIT = {DType.FLOAT16: 65504.0, DType.BFLOAT16: 3.3895313892515355e38}  # the largest finite numbers


def in_16_bits(weights: np.ndarray, stored: DType) -> np.ndarray | None:
    """Float32 numbers rounded to FLOAT16 or BFLOAT16, as uint16 of the same shape; None where one does not fit."""
    if stored is DType.FLOAT16:
        with np.errstate(over="ignore"):
            halves = weights.astype(np.float16)
        fits = bool(np.all(np.isfinite(halves) | ~np.isfinite(weights)))
        return halves.view(np.uint16) if fits else None
    bits = np.ascontiguousarray(weights, np.float32).view(np.uint32)
    rounded = ((bits + (np.uint32(0x7FFF) + (bits >> 16 & 1))) >> 16).astype(np.uint16)
    fits = bool(np.all((rounded & 0x7F80 != 0x7F80) | ~np.isfinite(weights)))
    return np.where(np.isnan(weights), np.uint16(0x7FC0), rounded) if fits else None


def fits_16_bits(weights: np.ndarray, stored: DType) -> bool:
    """Whether `in_16_bits` finds that all numbers fit, mostly without rounding them."""
    if not weights.size or max(float(weights.max()), -float(weights.min())) <= _SURELY_FIT[stored]:
        return True
    return in_16_bits(weights, stored) is not None


# --- code that packs at run time ----------------------------------------------------------------------------------


PACK_PARAMETERS = ("p", "i", "i", "i", "p", "i")
WIDEN_PARAMETERS = ("p", "p", "i")


def emit_pack_rows(module: Module, dtype: DType) -> Body:
    """An internal function: pack one panel of row-major B.

    (ptr source, i64 ld, i64 k, i64 columns, ptr panel, i64 vectors): panel[p][j] = source[p * ld + j], zero for j >= columns.
    """
    body = module.function("pack_rows", PACK_PARAMETERS)
    _pack_rows(body, dtype)
    return body


def _pack_rows(body: Body, dtype: DType) -> None:
    lanes = body.module.lanes(dtype)
    vector_bytes = body.module.target.vector_bytes
    source, ld, k, columns, panel, vectors = body.args
    row_bytes = body.mul(vectors, vector_bytes)
    with body.loop(0, vectors) as j:
        mask = body.mask(body.sub(columns, body.mul(j, lanes)), lanes)
        offset = body.mul(j, vector_bytes)
        with body.loop(0, k) as p:
            value = body.load_masked(body.at(source, offset, body.mul(p, ld)), mask, dtype, lanes)
            body.store(value, body.at(panel, offset, body.mul(p, row_bytes)), dtype)
    body.b.ret_void()


def emit_pack_columns(module: Module, dtype: DType) -> Body:
    """An internal function: pack one panel of B given as its transpose, [N, K] with rows `ld` bytes apart.

    (ptr source, i64 ld, i64 k, i64 columns, ptr panel, i64 vectors): panel[p][j] = source[j * ld + p]; columns beyond
    `columns` repeat the last one.
    """
    body = module.function("pack_columns", PACK_PARAMETERS)
    _pack_columns(body, dtype)
    return body


def _pack_columns(body: Body, dtype: DType) -> None:
    lanes = body.module.lanes(dtype)
    itemsize = dtype.bits // 8
    vector_bytes = body.module.target.vector_bytes
    source, ld, k, columns, panel, vectors = body.args
    row_bytes = body.mul(vectors, vector_bytes)
    whole = body.b.and_(k, body.i(-lanes))
    with body.loop(0, vectors) as j:
        first = body.mul(j, lanes)
        rows = [body.at(source, body.mul(body.min(body.add(first, i), body.sub(columns, 1)), ld)) for i in range(lanes)]
        target = body.at(panel, body.mul(j, vector_bytes))
        with body.loop(0, whole, lanes) as p:
            offset = body.mul(p, itemsize)
            block = transposed(body, [body.load(body.at(row, offset), dtype, lanes) for row in rows])
            for i, value in enumerate(block):
                body.store(value, body.at(target, body.mul(body.add(p, i), row_bytes)), dtype)
        with body.loop(whole, k) as p:
            offset = body.mul(p, itemsize)
            out = body.at(target, body.mul(p, row_bytes))
            for i, row in enumerate(rows):
                body.store(body.load(body.at(row, offset), dtype, 1), body.at(out, i * itemsize), dtype)
    body.b.ret_void()


@functools.cache
def panel_text(dtype: DType, columns: bool, target: Target) -> KernelText:
    """The code of `emit_pack_rows` or `emit_pack_columns` as a module that several kernels call."""
    body = Module(target).function(SYMBOL_PLACEHOLDER, PACK_PARAMETERS, internal=False)
    (_pack_columns if columns else _pack_rows)(body, dtype)
    return body.module.text("pack_columns" if columns else "pack_rows")


@functools.cache
def widen_text(stored: DType, lanes: int, target: Target) -> KernelText:
    """A module: (ptr source, ptr out, i64 vectors) writes `vectors` vectors of one of `STORED` as float32."""
    body = Module(target).function(SYMBOL_PLACEHOLDER, WIDEN_PARAMETERS, internal=False)
    source, out, vectors = body.args

    def one(index: Value) -> None:
        value = load_wide(body, body.at(source, body.mul(index, stored.bits // 8 * lanes)), stored, lanes)
        body.store(value, body.at(out, body.mul(index, 4 * lanes)), DType.FLOAT)

    _each_vector(body, vectors, one)
    return body.module.text("widen")


@functools.cache
def widen_pairs_text(lanes: int, target: Target) -> KernelText:
    """A module: (ptr source, ptr out, i64 vectors) writes `vectors` vectors of pairs of int8 as pairs of int16."""
    body = Module(target).function(SYMBOL_PLACEHOLDER, WIDEN_PARAMETERS, internal=False)
    source, out, vectors = body.args
    wide = ir_builder.VectorType(ir_builder.IntType(16), 2 * lanes)

    def one(index: Value) -> None:
        value = body.load(body.at(source, body.mul(index, 2 * lanes)), DType.INT8, 2 * lanes)
        body.b.store(body.b.sext(value, wide), body.at(out, body.mul(index, 4 * lanes)))

    _each_vector(body, vectors, one)
    return body.module.text("widen_pairs")


def _each_vector(body: Body, vectors: Value, one: Callable[[Value], None]) -> None:
    """The function's loop over all vectors, by fours."""
    whole = body.b.and_(vectors, body.i(-4))
    with body.loop(0, whole, 4) as first:
        for i in range(4):
            one(body.add(first, i))
    with body.loop(whole, vectors) as last:
        one(last)
    body.b.ret_void()


def transposed(body: Body, rows: list[Value]) -> list[Value]:
    """Transpose a square of vectors in registers: log2(lanes) rounds that exchange halves, quarters, ..."""
    lanes = len(rows)
    distance = lanes // 2
    while distance:
        first = [x - distance + lanes if x & distance else x for x in range(lanes)]
        second = [x + lanes if x & distance else x + distance for x in range(lanes)]
        pairs = [(i, i + distance) for i in range(lanes) if not i & distance]
        exchanged = {i: body.shuffle(rows[i], rows[j], first) for i, j in pairs}
        exchanged |= {j: body.shuffle(rows[i], rows[j], second) for i, j in pairs}
        rows = [exchanged[i] for i in range(lanes)]
        distance //= 2
    return rows


# --- packing as a step --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class PackSpec:
    """Pack B at run time, for a product whose B is no constant. `transposed`: the source is [N, K], not [K, N]."""

    dtype: DType
    transposed: bool = False


@functools.cache
def pack_text(spec: PackSpec, target: Target) -> KernelText:
    """The step that packs; arguments: address and bytes between rows of the source, address of the packed, k, n, how many
    matrices, bytes between those."""
    module = Module(target)
    tile = tile_of(spec.dtype, target)
    pack = (emit_pack_columns if spec.transposed else emit_pack_rows)(module, spec.dtype)
    body = module.kernel()
    args, tid, nthreads = body.args
    source, ld, packed = body.load_pointer(args, 0), body.load_i64(args, 1), body.load_pointer(args, 2)
    k, n, batch, stride = (body.load_i64(args, i) for i in range(3, 7))
    panels = body.div(body.add(n, tile.width - 1), tile.width)
    matrix_nbytes = body.mul(body.mul(k, body.div(body.add(n, tile.lanes - 1), tile.lanes)), target.vector_bytes)
    first, last = body.share(body.mul(batch, panels), tid, nthreads)
    with body.loop(first, last) as unit:
        b, panel = body.div(unit, panels), body.rem(unit, panels)
        columns = body.min(body.sub(n, body.mul(panel, tile.width)), tile.width)
        vectors = body.div(body.add(columns, tile.lanes - 1), tile.lanes)
        step = ld if spec.transposed else tile.itemsize
        origin = body.at(source, body.mul(b, stride), body.mul(panel, body.mul(step, tile.width)))
        out = body.at(packed, body.mul(b, matrix_nbytes), body.mul(panel, body.mul(k, tile.width * tile.itemsize)))
        body.b.call(pack.function, [origin, ld, k, columns, out, vectors])
    body.b.ret_void()
    return module.text("pack")
