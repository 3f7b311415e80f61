"""The k largest (or smallest) elements along an axis, in order, with their indices.

Elements become unsigned keys of 32 or 64 bits of which the larger one comes first, whatever the type and direction: NaN above
all numbers, zeros of both signs equal. Of equal keys the one with the lower index comes first. Two ways lead to the first k
of n keys:

- *insertion*, for small k: a sorted list of the k best so far; keys that beat its last one are found 4 vectors at a time. Where
  columns are no fewer than k, the list begins below the k-th of their largest keys, which few other keys beat;
- *radix*: the k-th key is found digit by digit from histograms, the keys above it are collected and sorted by digits.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

from intarsia.codegen.builder.kernel_body import Body, Cell, Module, Value
from intarsia.codegen.llvm import ir_builder
from intarsia.codegen.llvm.jit import KernelText
from intarsia.codegen.llvm.target import Target
from intarsia.graph.dtypes import DType
from intarsia.plan.step import Address, Argument

DTYPES = (
    DType.FLOAT, DType.DOUBLE, DType.FLOAT16, DType.BFLOAT16, DType.INT8, DType.INT16, DType.INT32, DType.INT64, DType.UINT8,
    DType.UINT16, DType.UINT32, DType.UINT64,
)  # fmt: skip
MAX_INSERTION = 128  # the longest list that keys are inserted into
_COLUMN_VECTORS = 2  # whose lanes are the columns of which largest keys are found first
_MOST_IN_COLUMNS = 1 << 14  # keys: of more, few are inserted for each in any case
_FIELDS = (
    "x values indices scratch units inner extent count stride list_keys list_indices other_keys other_indices tally radix"
).split()
_DIGITS = 256
_I32, _I64 = ir_builder.IntType(32), ir_builder.IntType(64)
_LINE = 64
_RAW = {8: DType.UINT8, 16: DType.UINT16, 32: DType.UINT32, 64: DType.UINT64}
_INFINITY = {DType.FLOAT16: 0x7C00, DType.BFLOAT16: 0x7F80}  # the bits of it


def _key_bits(dtype: DType) -> int:
    return max(32, dtype.bits)


def insertion_wins(n: int, k: int) -> bool:
    """Whether a sorted list is estimated to be faster than histograms, in nanoseconds, for keys in random order."""
    if k > MAX_INSERTION or not k:
        return False
    inserted = k * (1 + math.log(n / k))
    return inserted * (4 + k / 3) + n / 12 < 6 * n + 10 * k + 1500


def scratch_nbytes(dtype: DType, n: int, k: int) -> int:
    """Scratch memory of one thread."""
    return _offsets(dtype, n, k)[-1]


def _offsets(dtype: DType, n: int, k: int) -> list[int]:
    """Places in a thread's scratch: two arrays of keys and of indices, a histogram; behind them its end."""
    parts = [n * _key_bits(dtype) // 8, *[8 * (k + 2)] * 4, 8 * (_DIGITS + 1)]
    places = [0]
    for nbytes in parts:
        places.append(-(-(places[-1] + nbytes) // _LINE) * _LINE)
    return places[1:]


def topk_args(
    dtype: DType, *, outer: int, n: int, inner: int, k: int, x: Address, values: Address, indices: Address, scratch: Address,
    radix: bool | None = None,
) -> list[Argument]:  # fmt: skip
    """The kernel's arguments for x [outer, n, inner] -> values, indices [outer, k, inner] (0: not wanted), k <= n."""
    *places, stride = _offsets(dtype, n, k)
    chosen = not insertion_wins(n, k) if radix is None else radix
    return [x, values, indices, scratch, outer * inner if k else 0, inner, n, k, stride, *places, int(chosen)]


@functools.lru_cache(maxsize=16)
def kernel_text(dtype: DType, largest: bool, target: Target) -> KernelText:
    """The kernel for elements of one of DTYPES; its arguments are `topk_args`."""
    if dtype not in DTYPES:
        raise ValueError(f"elements are {', '.join(d.onnx_name for d in DTYPES)}; got {dtype.onnx_name}")
    return _TopK(dtype, largest, target).text()


class _TopK:
    def __init__(self, dtype: DType, largest: bool, target: Target) -> None:
        self.dtype, self.largest, self.itemsize = dtype, largest, dtype.bits // 8
        self.raw_dtype, self.key_dtype = _RAW[dtype.bits], _RAW[_key_bits(dtype)]
        self.key_nbytes = self.key_dtype.bits // 8
        self.module = Module(target)
        self.lanes = self.module.lanes(self.key_dtype)
        self.convert = self._convert()
        self.insert = self._insert()
        self.insertion = self._insertion()
        self.threshold = self._threshold()
        self.sort_pass = self._sort_pass()
        self.radix = self._radix()

    def text(self) -> KernelText:
        body = self.module.kernel()
        args, tid, nthreads = body.args
        v = {name: body.load_i64(args, i) for i, name in enumerate(_FIELDS)}
        keys = body.at(body.pointer(v["scratch"]), body.mul(v["stride"], tid))
        parts = [body.at(keys, v[n]) for n in ("list_keys", "list_indices", "other_keys", "other_indices", "tally")]
        first, last = body.share(v["units"], tid, nthreads)
        step = body.mul(v["inner"], self.itemsize)
        with body.loop(first, last) as unit:
            outer, column = body.div(unit, v["inner"]), body.rem(unit, v["inner"])
            start = body.add(body.mul(body.mul(outer, v["extent"]), v["inner"]), column)
            x = body.at(body.pointer(v["x"]), body.mul(start, self.itemsize))
            body.b.call(self.convert, [x, step, keys, v["extent"]])
            with body.either(body.equal(v["radix"], 0)) as (short, long):
                with short:
                    body.b.call(self.insertion, [keys, v["extent"], parts[0], parts[1], v["count"]])
                with long:
                    body.b.call(self.radix, [keys, v["extent"], *parts, v["count"]])
            target = body.add(body.mul(body.mul(outer, v["count"]), v["inner"]), column)
            self._write(body, v, x, step, parts[1], target)
        body.b.ret_void()
        return self.module.text("topk")

    def _write(self, body: Body, v: dict[str, Value], x: Value, step: Value, found: Value, start: Value) -> None:
        """The elements at the indices found, and the indices, from output element `start` on."""
        with body.when(body.b.not_(body.equal(v["values"], 0))), body.loop(0, v["count"]) as j:
            element = body.load(body.at(x, body.mul(body.load_i64(found, j), step)), self.raw_dtype, 1)
            place = body.mul(body.add(start, body.mul(j, v["inner"])), self.itemsize)
            body.store(element, body.at(body.pointer(v["values"]), place), self.raw_dtype)
        with body.when(body.b.not_(body.equal(v["indices"], 0))), body.loop(0, v["count"]) as j:
            place = body.mul(body.add(start, body.mul(j, v["inner"])), 8)
            body.store(body.load_i64(found, j), body.at(body.pointer(v["indices"]), place), DType.INT64)

    # --- keys ---

    def _convert(self) -> Any:
        """An internal function (ptr x, i64 step_bytes, ptr keys, i64 n): keys of elements that lie `step` apart."""
        body = self.module.function("convert", ("p", "i", "p", "i"))
        x, step, keys, n = body.args
        dense = body.equal(step, self.itemsize)
        whole = body.select(dense, body.mul(body.div(n, self.lanes), self.lanes), 0)
        with body.loop(0, whole, self.lanes) as i:
            elements = body.load(body.at(x, body.mul(i, self.itemsize)), self.raw_dtype, self.lanes)
            body.store(self._key(body, elements, self.lanes), body.at(keys, body.mul(i, self.key_nbytes)), self.key_dtype)
        with body.loop(whole, n) as i:
            element = body.load(body.at(x, body.mul(i, step)), self.raw_dtype, 1)
            body.store(self._key(body, element, 1), body.at(keys, body.mul(i, self.key_nbytes)), self.key_dtype)
        body.b.ret_void()
        return body.function

    def _key(self, body: Body, raw: Value, lanes: int) -> Value:
        """The key of an element that is given by its bits."""
        b, bits = body.b, self.key_dtype.bits

        def constant(value: int) -> Value:
            return body.constant(value, self.key_dtype, lanes)

        wide = body.vector_type(self.key_dtype, lanes)
        sign = constant(1 << (bits - 1))
        if self.dtype.is_floating:
            if self.dtype in _INFINITY:
                size = b.and_(b.zext(raw, wide), constant(0x7FFF))
                infinity = constant(_INFINITY[self.dtype])
                raw = b.shl(b.zext(raw, wide), constant(16))
            else:
                size = b.and_(raw, constant((1 << (bits - 1)) - 1))
                infinity = constant(0x7F800000 if bits == 32 else 0x7FF << 52)
            key = b.xor(raw, b.or_(b.ashr(raw, constant(bits - 1)), sign))
            key = b.select(b.icmp_unsigned("==", size, constant(0)), sign, key)
            key = b.select(b.icmp_unsigned(">", size, infinity), constant((1 << bits) - 1), key)
        elif self.dtype.is_signed_integer:
            key = b.xor(b.sext(raw, wide) if self.itemsize < 4 else raw, sign)
        else:
            key = b.zext(raw, wide) if self.itemsize < 4 else raw
        return key if self.largest else b.xor(key, constant((1 << bits) - 1))

    def _load_key(self, body: Body, keys: Value, index: Value) -> Value:
        """A key as 64 bits."""
        key = body.load(body.at(keys, body.mul(index, self.key_nbytes)), self.key_dtype, 1)
        return key if self.key_nbytes == 8 else body.b.zext(key, _I64)

    def _scan(
        self, body: Body, keys: Value, start: Value, n: Value, bound: Cell, found: Callable[[Value, Value], None]
    ) -> None:
        """`found(index, key)` for each key from `start` on that is larger than `bound` was when its block began."""
        b, lanes = body.b, self.lanes
        block = 4 * lanes
        whole = body.add(start, body.mul(body.div(body.sub(n, start), block), block))
        with body.loop(start, whole, block) as i:
            narrow = bound.get() if self.key_nbytes == 8 else b.trunc(bound.get(), _I32)
            limit = body.splat(narrow, lanes)
            mask = body.i(0)
            for part in range(4):
                at = body.mul(body.add(i, part * lanes), self.key_nbytes)
                above = b.icmp_unsigned(">", body.load(body.at(keys, at), self.key_dtype, lanes), limit)
                word = b.bitcast(above, ir_builder.IntType(lanes)) if lanes > 1 else above
                mask = b.or_(mask, b.shl(b.zext(word, _I64), body.i(part * lanes)))
            left = body.cell(mask)
            with body.repeat_while(lambda: b.not_(body.equal(left.get(), 0))):
                lane = b.cttz(left.get(), ir_builder.IntType(1)(1))
                left.set(b.and_(left.get(), body.sub(left.get(), 1)))
                index = body.add(i, lane)
                found(index, self._load_key(body, keys, index))
        with body.loop(whole, n) as i:
            key = self._load_key(body, keys, i)
            with body.when(b.icmp_unsigned(">", key, bound.get())):
                found(i, key)

    # --- insertion ---

    def _insert(self) -> Any:
        """An internal function (ptr keys, ptr indices, i64 length, i64 key, i64 index): into a descending list.

        keys[-1] is not less than any key; what stood at `length` is overwritten.
        """
        body = self.module.function("insert", ("p", "p", "i", "i", "i"))
        keys, indices, length, key, index = body.args
        place = body.cell(body.mul(length, 8))

        def before(array: Value) -> Value:
            return body.at(array, body.sub(place.get(), 8))

        with body.repeat_while(lambda: body.b.icmp_unsigned("<", body.load_i64(before(keys)), key)):
            for array in (keys, indices):
                body.store(body.load_i64(before(array)), body.at(array, place.get()), DType.INT64)
            place.add(-8)
        for array, value in ((keys, key), (indices, index)):
            body.store(value, body.at(array, place.get()), DType.INT64)
        body.b.ret_void()
        return body.function

    def _insertion(self) -> Any:
        """An internal function (ptr keys, i64 n, ptr list_keys, ptr list_indices, i64 k)."""
        body = self.module.function("insertion", ("p", "i", "p", "p", "i"))
        keys, n, memory, indices, k = body.args
        body.store(body.i(-1), memory, DType.INT64)
        best = body.at(memory, 8)
        last, start, floor = body.sub(k, 1), body.cell(k), body.cell(0)
        columns = _COLUMN_VECTORS * self.lanes
        few = body.b.and_(body.less(2 * columns - 1, n), body.less(n, _MOST_IN_COLUMNS))
        with body.when(body.b.and_(body.less(k, columns + 1), few)):
            floor.set(self._reached(body, keys, n, k))
        with body.either(body.equal(floor.get(), 0)) as (unknown, known):
            with unknown, body.loop(0, k) as i:
                body.b.call(self.insert, [best, indices, i, self._load_key(body, keys, i), i])
            with known:
                start.set(0)
                with body.loop(0, k) as i:
                    body.store(body.sub(floor.get(), 1), body.at(best, body.mul(i, 8)), DType.INT64)
        bound = body.cell(body.load_i64(best, last))

        def found(index: Value, key: Value) -> None:
            with body.when(body.b.icmp_unsigned(">", key, bound.get())):
                body.b.call(self.insert, [best, indices, last, key, index])
                bound.set(body.load_i64(best, last))

        self._scan(body, keys, start.get(), n, bound, found)
        body.b.ret_void()
        return body.function

    def _reached(self, body: Body, keys: Value, n: Value, k: Value) -> Value:
        """A key that at least k keys reach: the k-th of the largest keys of columns, which are lanes of vectors."""
        b, dtype, lanes = body.b, self.key_dtype, self.lanes
        block, sign = _COLUMN_VECTORS * lanes, body.constant(1 << (dtype.bits - 1), dtype, lanes)
        highest = [body.zero(dtype, lanes)] * _COLUMN_VECTORS
        with body.carry(0, body.mul(body.div(n, block), block), block, highest) as i:
            for part, top in enumerate(highest):
                here = body.load(body.at(keys, body.mul(body.add(i, part * lanes), self.key_nbytes)), dtype, lanes)
                highest[part] = b.select(b.icmp_unsigned(">", here, top), here, top)
        signed = [b.xor(top, sign) for top in highest]
        turned = [
            body.shuffle(top, top, [(lane + by) % lanes for lane in range(lanes)]) for top in signed for by in range(lanes)
        ]
        kind = body.vector_type(dtype, lanes)
        count = body.splat(k if dtype.bits == 64 else b.trunc(k, _I32), lanes)
        least = body.constant((1 << dtype.bits) - 1, dtype, lanes)
        for top, own in zip(highest, signed, strict=True):
            above = body.zero(dtype, lanes)
            for other in turned:
                above = b.sub(above, b.sext(b.icmp_signed(">", other, own), kind))
            among = b.select(b.icmp_signed("<", above, count), top, least)
            least = b.select(b.icmp_unsigned("<", among, least), among, least)
        reduce = body.intrinsic(f"llvm.vector.reduce.umin.v{lanes}i{dtype.bits}", ir_builder.IntType(dtype.bits), [kind])
        found = b.call(reduce, [least])
        return found if dtype.bits == 64 else b.zext(found, _I64)

    # --- radix ---

    def _threshold(self) -> Any:
        """An internal function (ptr keys, i64 n, i64 k, ptr tally, ptr out).

        out[0] is a key and out[1] how many equal to it are among the first k, together with all that are larger.
        """
        body = self.module.function("threshold", ("p", "i", "i", "p", "p"))
        keys, n, k, tally, out = body.args
        b = body.b
        prefix, mask, left, shift = body.cell(0), body.cell(0), body.cell(k), body.cell(self.key_dtype.bits - 8)
        with body.repeat_while(lambda: b.icmp_signed(">=", shift.get(), body.i(0))):
            body.fill(tally, body.i(8 * (_DIGITS + 1)))
            have, care, by = prefix.get(), mask.get(), shift.get()

            def count(index: Value, key: Value, have: Value = have, care: Value = care, by: Value = by) -> None:
                digit = b.and_(b.lshr(key, by), body.i(_DIGITS - 1))
                slot = body.at(tally, body.mul(body.select(body.equal(b.and_(key, care), have), digit, _DIGITS), 8))
                body.store(body.add(body.load_i64(slot), 1), slot, DType.INT64)

            bound = body.cell(body.sub(have, 1))
            with body.either(body.equal(have, 0)) as (every, some):
                with every, body.loop(0, n) as i:
                    count(i, self._load_key(body, keys, i))
                with some:  # keys below the prefix are passed over in vectors
                    self._scan(body, keys, body.i(0), n, bound, count)
            digit = body.cell(_DIGITS - 1)
            with body.repeat_while(lambda: body.less(body.load_i64(tally, digit.get()), left.get())):
                left.set(body.sub(left.get(), body.load_i64(tally, digit.get())))
                digit.add(-1)
            prefix.set(b.or_(have, b.shl(digit.get(), by)))
            mask.set(b.or_(care, b.shl(body.i(_DIGITS - 1), by)))
            exact = body.equal(body.load_i64(tally, digit.get()), left.get())
            shift.set(body.select(exact, -8, body.sub(by, 8)))
        for i, cell in enumerate((prefix, left)):
            body.store(cell.get(), body.at(out, 8 * i), DType.INT64)
        b.ret_void()
        return body.function

    def _collect(self, body: Body, keys: Value, n: Value, limit: Value, equal: Value, found: tuple[Value, Value]) -> None:
        """Keys above `limit` and the first `equal` ones that equal it, in order of index."""
        b = body.b
        count, left = body.cell(0), body.cell(equal)
        none_below = body.equal(limit, 0)
        bound = body.cell(body.select(none_below, 0, body.sub(limit, 1)))

        def take(index: Value, key: Value) -> None:
            same = body.equal(key, limit)
            wanted = b.or_(b.not_(same), body.less(0, left.get()))
            with body.when(wanted):
                for array, value in zip(found, (key, index), strict=True):
                    body.store(value, body.at(array, body.mul(count.get(), 8)), DType.INT64)
                count.add(1)
                left.set(body.sub(left.get(), b.zext(same, _I64)))

        with body.either(none_below) as (every, some):
            with every, body.loop(0, n) as i:
                take(i, self._load_key(body, keys, i))
            with some:
                self._scan(body, keys, body.i(0), n, bound, take)

    def _sort_pass(self) -> Any:
        """An internal function (ptr keys, ptr indices, ptr to_keys, ptr to_indices, ptr tally, i64 k, i64 shift).

        Stable, by one digit, largest first.
        """
        body = self.module.function("sort_pass", ("p", "p", "p", "p", "p", "i", "i"))
        keys, indices, to_keys, to_indices, tally, k, shift = body.args
        b = body.b

        def slot(key: Value) -> Value:
            return body.at(tally, body.mul(b.and_(b.lshr(key, shift), body.i(_DIGITS - 1)), 8))

        body.fill(tally, body.i(8 * _DIGITS))
        with body.loop(0, k) as i:
            place = slot(body.load_i64(keys, i))
            body.store(body.add(body.load_i64(place), 1), place, DType.INT64)
        before = [body.i(0)]
        with body.carry(0, _DIGITS, 1, before) as i:
            place = body.at(tally, body.mul(body.sub(_DIGITS - 1, i), 8))
            here = body.load_i64(place)
            body.store(before[0], place, DType.INT64)
            before[0] = body.add(before[0], here)
        with body.loop(0, k) as i:
            key = body.load_i64(keys, i)
            place = slot(key)
            target = body.load_i64(place)
            body.store(body.add(target, 1), place, DType.INT64)
            body.store(key, body.at(to_keys, body.mul(target, 8)), DType.INT64)
            body.store(body.load_i64(indices, i), body.at(to_indices, body.mul(target, 8)), DType.INT64)
        b.ret_void()
        return body.function

    def _radix(self) -> Any:
        """An internal function (ptr keys, i64 n, ptr keys1, ptr indices1, ptr keys2, ptr indices2, ptr tally, i64 k)."""
        body = self.module.function("radix", ("p", "i", "p", "p", "p", "p", "p", "i"))
        keys, n, keys1, indices1, keys2, indices2, tally, k = body.args
        limit, equal = body.cell(0), body.cell(n)
        with body.when(body.less(k, n)):
            body.b.call(self.threshold, [keys, n, k, tally, keys1])
            limit.set(body.load_i64(keys1, 0))
            equal.set(body.load_i64(keys1, 1))
        self._collect(body, keys, n, limit.get(), equal.get(), (keys1, indices1))
        with body.loop(
            0, self.key_dtype.bits, 16
        ) as shift:  # an even number of passes, so that the result is in the first arrays
            body.b.call(self.sort_pass, [keys1, indices1, keys2, indices2, tally, k, shift])
            body.b.call(self.sort_pass, [keys2, indices2, keys1, indices1, tally, k, body.add(shift, 8)])
        body.b.ret_void()
        return body.function
