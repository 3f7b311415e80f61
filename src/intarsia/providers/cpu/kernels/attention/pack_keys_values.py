"""Packing of keys and values for attention of many queries (`many_queries_kernel`): tiles of packed A of the micro-kernel.

Keys are multiplied by the scores' scale, once for all queries.
"""

from __future__ import annotations

import functools

from intarsia.codegen.builder.kernel_body import Body, Module, Value
from intarsia.codegen.llvm.compile_ir import Effort
from intarsia.codegen.llvm.jit import KernelText
from intarsia.codegen.llvm.target import Target
from intarsia.graph.dtypes import DType
from intarsia.providers.cpu.kernels.attention.attention_arguments import LANE_POINTERS, PACK_FIELDS, lane_tile
from intarsia.providers.cpu.kernels.attention.few_queries_kernel import entry_length
from intarsia.providers.cpu.kernels.common.pack_b import transposed
from intarsia.providers.cpu.kernels.matmul.vnni_layout import paired_words

_F32 = DType.FLOAT
_PACK_KEYS = 128  # keys that are packed by one unit of the packing step


@functools.cache
def pack_text(lengths: DType | None, target: Target, pairs: bool = False) -> KernelText:
    """The step that packs all keys and values, as words of two bfloat16 for `AttentionSpec.pairs`; it takes the arguments that
    `lane_pack_args` lists."""
    module = Module(target)
    keys, values = _emit_keys(module, target, pairs), (_emit_value_pairs if pairs else _emit_values)(module, target)
    body = module.kernel()
    args, tid, nthreads = body.args
    v: dict[str, Value] = {}
    for index, name in enumerate(PACK_FIELDS):
        pointer = name in LANE_POINTERS or name.endswith("_out")
        v[name] = body.load_pointer(args, index) if pointer else body.load_i64(args, index)
    chunks = body.div(body.add(v["keys"], _PACK_KEYS - 1), _PACK_KEYS)
    first, last = body.share(body.mul(body.mul(v["batch"], v["heads"]), chunks), tid, nthreads)
    with body.loop(first, last) as unit:
        number, chunk = body.div(unit, chunks), body.rem(unit, chunks)
        entry, head = body.div(number, v["heads"]), body.rem(number, v["heads"])
        count = v["keys"] if lengths is None else body.min(entry_length(body, v, lengths, entry), v["keys"])
        start = body.mul(chunk, _PACK_KEYS)
        stop = body.min(count, body.add(start, _PACK_KEYS))
        with body.when(body.less(start, stop)):
            k = body.at(v["k"], body.mul(entry, v["k_batch"]), body.mul(head, v["k_head"]))
            out = body.at(v["k_out"], body.mul(number, v["k_nbytes"]))
            body.b.call(keys, [k, v["k_row"], v["size"], start, stop, out, v["scale"]])
            values_at = body.at(v["v"], body.mul(entry, v["v_batch"]), body.mul(head, v["v_head"]))
            out = body.at(v["v_out"], body.mul(number, v["v_nbytes"]))
            body.b.call(values, [values_at, v["v_row"], v["vsize"], start, stop, out, v["keys"]])
    body.b.ret_void()
    return module.text("pack_attention", Effort.QUICK)


def _emit_keys(module: Module, target: Target, pairs: bool) -> object:
    """An internal function: (ptr k, i64 row, i64 size, i64 start, i64 stop, ptr out, i64 scale) packs keys [start, stop), times
    the float32 whose bits are `scale`, as tiles [size][rows of a tile], by `pairs` [size / 2][rows]; the last tile repeats the
    last key."""
    tile, each = lane_tile(target), 2 if pairs else 1
    lanes, group = tile.lanes, max(tile.lanes, tile.rows)
    body = module.function("pack_keys", ("p", "i", "i", "i", "i", "p", "i"))
    source, row, size, start, stop, out, scale = body.args
    factor = body.float_of_bits(scale)
    factors = body.splat(factor, lanes)
    tile_nbytes = body.mul(body.div(size, each), tile.rows * 4)
    with body.loop(start, stop, group) as key:
        lines = [
            body.at(source, body.mul(body.min(body.add(key, i), body.sub(stop, 1)), row)) for i in range(group)
        ]  # fmt: skip
        first = body.at(out, body.mul(body.div(key, tile.rows), tile_nbytes))

        def square(d: Value, lines: list[Value] = lines, first: Value = first) -> None:
            for low in range(0, group, lanes):
                block = [body.load(body.at(line, body.mul(d, 4)), _F32, lanes) for line in lines[low : low + lanes]]
                block, step = transposed(body, [body.b.fmul(value, factors) for value in block]), body.div(d, each)
                if pairs:
                    block = [_as_floats(body, paired_words(body, *block[i : i + 2])) for i in range(0, lanes, 2)]
                for i, value in enumerate(block):
                    _store_tiles(body, value, low, first, tile_nbytes, body.mul(body.add(step, i), tile.rows * 4), tile.rows)

        whole = body.b.and_(size, body.i(-lanes))
        with body.loop(0, whole, lanes) as d:
            square(d)
        with body.when(body.less(whole, size)), body.either(body.less(size, lanes)) as (few, many):
            with many:  # what is left, with some before it a second time
                square(body.sub(size, lanes))
            with few, body.loop(0, 0 if pairs else size) as d:  # pairs fill a vector
                for i, line in enumerate(lines):
                    place = body.at(first, body.mul(tile_nbytes, i // tile.rows), body.mul(d, tile.rows * 4), i % tile.rows * 4)
                    value = body.b.fmul(body.load(body.at(line, body.mul(d, 4)), _F32, 1), factor)
                    body.store(value, place, _F32)
    body.b.ret_void()
    return body.function


def _emit_values(module: Module, target: Target) -> object:
    """An internal function: (ptr v, i64 row, i64 vsize, i64 start, i64 stop, ptr out, i64 keys) packs values [start, stop) as
    tiles [keys][rows of a tile] of columns; columns that are not there are 0."""
    tile = lane_tile(target)
    lanes = tile.lanes
    body = module.function("pack_values", ("p", "i", "i", "i", "i", "p", "i"))
    source, row, size, start, stop, out, keys = body.args
    tile_nbytes = body.mul(keys, tile.rows * 4)
    with body.loop(0, size, lanes) as d:
        mask = body.mask(body.sub(size, d), lanes)
        first = body.at(out, body.mul(body.div(d, tile.rows), tile_nbytes), body.mul(body.rem(d, tile.rows), 4))
        with body.loop(start, stop) as key:
            value = body.load_masked(body.at(source, body.mul(key, row), body.mul(d, 4)), mask, _F32, lanes)
            _store_tiles(body, value, 0, first, tile_nbytes, body.mul(key, tile.rows * 4), tile.rows)
    body.b.ret_void()
    return body.function


def _emit_value_pairs(module: Module, target: Target) -> object:
    """As `_emit_values`, tiles [keys / 2][rows of a tile] of words; `start` is even, a last key alone is paired with zeros."""
    tile = lane_tile(target)
    lanes = tile.lanes
    body = module.function("pack_value_pairs", ("p", "i", "i", "i", "i", "p", "i"))
    source, row, size, start, stop, out, keys = body.args
    tile_nbytes = body.mul(body.div(body.add(keys, 1), 2), tile.rows * 4)
    with body.loop(0, size, lanes) as d:
        first = body.at(out, body.mul(body.div(d, tile.rows), tile_nbytes), body.mul(body.rem(d, tile.rows), 4))
        there = body.sub(size, d)
        with body.loop(start, stop, 2) as key:
            second = body.add(key, 1)
            counts = there, body.select(body.less(second, stop), there, 0)
            two = [
                body.load_masked(body.at(source, body.mul(at, row), body.mul(d, 4)), body.mask(count, lanes), _F32, lanes)
                for at, count in zip((key, second), counts, strict=True)
            ]
            words = _as_floats(body, paired_words(body, *two))
            _store_tiles(body, words, 0, first, tile_nbytes, body.mul(body.div(key, 2), tile.rows * 4), tile.rows)
    body.b.ret_void()
    return body.function


def _as_floats(body: Body, words: Value) -> Value:
    """The same bits."""
    return body.b.bitcast(words, body.vector_type(_F32, words.type.count))


def _store_tiles(body: Body, value: Value, low: int, first: Value, tile_nbytes: Value, offset: Value, rows: int) -> None:
    """Stores a vector whose lanes are rows `low` and on of the tiles of `rows` rows from `first` on."""
    lanes = value.type.count
    if rows >= lanes:
        place = body.at(first, body.mul(tile_nbytes, low // rows), offset, low % rows * 4)
        body.store(value, place, _F32)
        return
    for part in range(0, lanes, rows):
        piece = body.shuffle(value, value, range(part, part + rows))
        body.store(piece, body.at(first, body.mul(tile_nbytes, (low + part) // rows), offset), _F32)
