"""Pre- and post-processing of the transform of a single long line: products by a table, and real lines of even length.

Real numbers x[0], x[1], ... of even length n are taken for n / 2 complex ones. With their transform Z and h = n / 2, that of x
is X[k] = E[k] + w^k O[k], where E[k] = (Z[k] + conj(Z[h - k])) / 2, O[k] = (Z[k] - conj(Z[h - k])) / 2i, w = exp(-2 pi i / n).
"""

from __future__ import annotations

import functools

import numpy as np

from intarsia.codegen.builder.kernel_body import Body, Index, Module, Value
from intarsia.codegen.llvm import ir_builder
from intarsia.codegen.llvm.jit import KernelText
from intarsia.codegen.llvm.target import Target
from intarsia.graph.dtypes import DType
from intarsia.lazy_dataclass import dataclass

KINDS = ("unfold", "fold", "multiply")
FIELDS = ("x", "y", "table", "scale", "lines", "x_pitch", "y_pitch", "have", "count")
_POINTERS = ("x", "y", "table", "scale")
_SHARE = 1024  # elements of a unit of work

Pair = tuple[Value, Value]


@dataclass(frozen=True)
class Form:
    """The operation on each line.

    "unfold": Z [count - 1] becomes X [count]; "fold": X [count + 1] becomes Z [count]; "multiply": element j < have is
    multiplied by table[j] and by the scale, zeros follow up to `count`. Sources and targets are "complex" or "real" (the real
    part) where products are made; "half" is the first half of a transform of `have` real numbers.
    """

    kind: str
    dtype: DType
    source: str = "complex"
    target: str = "complex"


@functools.lru_cache(maxsize=32)
def turns(count: int, order: int, inverse: bool, dtype: str) -> np.ndarray:
    """exp(-+2 pi i k / order) for k < count, as pairs."""
    found = np.exp((2j if inverse else -2j) * np.pi * np.arange(count) / order)
    return np.stack([found.real, found.imag], -1).astype(dtype)


@functools.lru_cache(maxsize=32)
def kernel_text(form: Form, target: Target) -> KernelText:
    """Arguments are FIELDS: addresses, lines, bytes from line to line, elements that there are and that are written."""
    return _Ends(form, target).text()


class _Ends:
    def __init__(self, form: Form, target: Target) -> None:
        self.form, self.dtype = form, form.dtype
        self.module = Module(target)
        self.itemsize = form.dtype.bits // 8
        self.lanes = self.module.lanes(form.dtype)
        self.body: Body = self.module.kernel()

    def text(self) -> KernelText:
        body = self.body
        args, tid, nthreads = body.args
        v = self.v = {n: (body.load_pointer if n in _POINTERS else body.load_i64)(args, i) for i, n in enumerate(FIELDS)}
        self.scale = body.broadcast(v["scale"], self.dtype, self.lanes)
        cuts = body.div(body.add(v["count"], _SHARE - 1), _SHARE)
        first, last = body.share(body.mul(v["lines"], cuts), tid, nthreads)
        with body.loop(first, last) as unit:
            line, start = body.div(unit, cuts), body.mul(body.rem(unit, cuts), _SHARE)
            self.x, self.y = (body.at(v[n], body.mul(line, v[f"{n}_pitch"])) for n in "xy")
            end = body.min(body.add(start, _SHARE), v["count"])
            if self.form.kind == "multiply":
                self._multiply(start, end)
            else:
                self._mix(start, end)
        body.b.ret_void()
        return self.module.text(f"fourier_{self.form.kind}")

    # --- complex numbers in memory ---

    def _masks(self, low: Index, high: Index, parts: int) -> list[Value]:
        """For each vector of `parts`, the elements from `low` on and before `high` of `lanes` numbers of so many parts."""
        body, lanes = self.body, self.lanes
        found = []
        for i in range(parts):
            upper = body.mask(body.sub(body.mul(high, parts), i * lanes), lanes)
            lower = body.mask(body.sub(body.mul(low, parts), i * lanes), lanes)
            found.append(body.b.and_(upper, body.b.not_(lower)))
        return found

    def _load(self, pointer: Value, index: Value, low: Index, high: Index, parts: int = 2) -> list[Value]:
        """Numbers index, index + 1, ... (zero outside `low` and `high`, which count from `index`): their parts."""
        body, lanes = self.body, self.lanes
        at = body.at(pointer, body.mul(index, parts * self.itemsize))
        vectors = [
            body.load_masked(body.at(at, i * lanes * self.itemsize), mask, self.dtype, lanes)
            for i, mask in enumerate(self._masks(low, high, parts))
        ]
        if parts == 1:
            return [vectors[0], body.zero(self.dtype, lanes)]
        return [body.shuffle(vectors[0], vectors[1], [2 * j + part for j in range(lanes)]) for part in range(2)]

    def _reversed(self, pointer: Value, index: Value, low: Index, high: Index) -> list[Value]:
        """Numbers index, index - 1, ...: `low` and `high` count from index - lanes + 1."""
        lanes = self.lanes
        found = self._load(pointer, self.body.sub(index, lanes - 1), low, high)
        return [self.body.shuffle(x, x, list(range(lanes))[::-1]) for x in found]

    def _store(self, value: list[Value], index: Value, low: Index, high: Index) -> None:
        body, lanes = self.body, self.lanes
        parts = 1 if self.form.target == "real" else 2
        at = body.at(self.y, body.mul(index, parts * self.itemsize))
        mixed = [i // 2 + lanes * (i % 2) for i in range(2 * lanes)]
        vectors = value[:1]
        if parts == 2:
            vectors = [body.shuffle(value[0], value[1], half) for half in (mixed[:lanes], mixed[lanes:])]
        for i, (vector, mask) in enumerate(zip(vectors, self._masks(low, high, parts), strict=True)):
            body.store_masked(vector, body.at(at, i * lanes * self.itemsize), mask, self.dtype)

    def _product(self, x: list[Value], w: list[Value]) -> list[Value]:
        b, (re, im), (wr, wi) = self.body.b, x, w
        fma = functools.partial(self.body.fma, dtype=self.dtype, lanes=self.lanes)
        return [fma(re, wr, b.fneg(b.fmul(im, wi))), fma(re, wi, b.fmul(im, wr))]

    # --- kinds ---

    def _multiply(self, start: Value, end: Value) -> None:
        body, v = self.body, self.v
        with body.loop(start, end, self.lanes) as j:
            left = body.sub(end, j)
            there = body.min(body.sub(v["have"], j), left)
            table = self._load(v["table"], j, 0, there)
            value = self._product(self._source(j, there), table)
            self._store([body.b.fmul(x, self.scale) for x in value], j, 0, left)

    def _source(self, j: Value, there: Value) -> list[Value]:
        body, v = self.body, self.v
        if self.form.source != "half":
            return self._load(self.x, j, 0, there, 1 if self.form.source == "real" else 2)
        # X[j] up to the middle, conj(X[n - j]) behind it; the numbers that are their own mirror images are real.
        n = v["have"]
        half = body.div(n, 2)
        near = self._load(self.x, j, 0, body.add(body.sub(half, j), 1))
        mirror = body.sub(n, j)
        first = body.sub(mirror, self.lanes - 1)
        upper = body.sub(body.sub(n, body.add(half, 1)), first)  # the mirror images of half + 1 and more
        far = self._reversed(self.x, mirror, body.max(body.sub(1, first), 0), body.add(upper, 1))
        value = [body.b.fadd(near[0], far[0]), body.b.fsub(near[1], far[1])]
        zero = body.zero(self.dtype, self.lanes)
        alone = self._is(j, 0)
        alone = body.b.or_(alone, body.b.and_(self._is(j, half), self._all(body.equal(body.mul(half, 2), n))))
        return [value[0], body.b.select(alone, zero, value[1])]

    def _is(self, j: Value, index: Index) -> Value:
        """Which lane holds `index`, if j is the first lane's."""
        body = self.body
        at = body.sub(index, j)
        return body.b.xor(body.mask(body.add(at, 1), self.lanes), body.mask(at, self.lanes))

    def _all(self, condition: Value) -> Value:
        return self.body.splat(condition, self.lanes)

    def _mix(self, start: Value, end: Value) -> None:
        """X of Z, or Z of X; the table has w^k, or its conjugate."""
        body, v, b = self.body, self.v, self.body.b
        unfolding = self.form.kind == "unfold"
        h = body.sub(v["count"], 1) if unfolding else v["count"]
        one = ir_builder.Constant(body.vector_type(self.dtype, self.lanes), [0.5] * self.lanes)
        factor = b.fmul(self.scale, one)
        with body.loop(body.max(start, 1), body.min(end, h), self.lanes) as k:
            left = body.min(body.sub(end, k), body.sub(h, k))
            value = self._load(self.x, k, 0, left)
            mirror = self._reversed(self.x, body.sub(h, k), body.sub(self.lanes, left), self.lanes)
            even = [b.fadd(value[0], mirror[0]), b.fsub(value[1], mirror[1])]
            odd = [b.fsub(value[0], mirror[0]), b.fadd(value[1], mirror[1])]
            turned = self._product(odd, self._load(v["table"], k, 0, left))
            if unfolding:  # divided by i
                value = [b.fadd(even[0], turned[1]), b.fsub(even[1], turned[0])]
            else:  # times i
                value = [b.fsub(even[0], turned[1]), b.fadd(even[1], turned[0])]
            self._store([b.fmul(x, factor) for x in value], k, 0, left)
        with body.when(body.equal(start, 0)):
            self._ends(h, unfolding)

    def _ends(self, h: Value, unfolding: bool) -> None:
        """X[0] and X[h], which are real, or Z[0] of them."""
        body, b, size = self.body, self.body.b, self.itemsize
        scale = body.load(self.v["scale"], self.dtype, 1)
        last = body.mul(h, 2 * size)
        x = body.load(self.x, self.dtype, 1)
        y = body.load(body.at(self.x, size if unfolding else last), self.dtype, 1)
        factor = scale if unfolding else b.fmul(scale, ir_builder.Constant(scale.type, 0.5))
        total, difference = (b.fmul(value, factor) for value in (b.fadd(x, y), b.fsub(x, y)))
        none = ir_builder.Constant(scale.type, 0.0)
        body.store(total, self.y, self.dtype)
        if not unfolding:
            body.store(difference, body.at(self.y, size), self.dtype)
            return
        body.store(none, body.at(self.y, size), self.dtype)
        body.store(difference, body.at(self.y, last), self.dtype)
        body.store(none, body.at(self.y, body.add(last, size)), self.dtype)
