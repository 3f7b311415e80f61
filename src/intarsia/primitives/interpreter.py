"""The NumPy interpreter of the kernel language: what every provider's result is compared with.

Element-wise arithmetic on types narrower than float32 is done in float32 and rounded once per primitive.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextvars import ContextVar
from functools import partial
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from intarsia.graph.dims import Dim, Expr, evaluate
from intarsia.graph.dtypes import DType
from intarsia.machine.resources import in_mib, memory_nbytes
from intarsia.primitives.lang import Tensor, is_limited, walk
from intarsia.run_status import CURRENT_RUN, DIVISOR_IS_ZERO

_NARROW_FLOATS = frozenset(
    (
        DType.FLOAT16, DType.BFLOAT16, DType.FLOAT8E4M3FN, DType.FLOAT8E4M3FNUZ, DType.FLOAT8E5M2, DType.FLOAT8E5M2FNUZ,
        DType.FLOAT4E2M1, DType.FLOAT8E8M0,
    )
)  # fmt: skip


_VIEWS = frozenset("input scalar size table broadcast reshape transpose slice windows stored".split())  # make no elements
_DOT_STEPS = 1 << 27  # multiplications between two looks at whether a run is to stop: less than a second without BLAS
MOST_NBYTES: ContextVar[int] = ContextVar("most bytes of one value", default=0)  # 0: what the machine has


def most_nbytes() -> int:
    """How many bytes one value may have."""
    return MOST_NBYTES.get() or memory_nbytes()


def require_memory(shape: Sequence[int], itemsize: int, most: int) -> None:
    """Raise MemoryError where a value of this shape has more than `most` bytes, before there is an array of it."""
    nbytes = itemsize
    for size in shape:
        nbytes *= int(size)  # Python's: there is no overflow
    if nbytes > most:
        raise MemoryError(f"a value of shape {list(shape)} needs {in_mib(nbytes)}, {in_mib(most)} are allowed")


def interpret(
    roots: Sequence[Tensor], operands: Sequence[np.ndarray | None], env: Mapping[str, int] | None = None
) -> list[np.ndarray]:
    """Values of `roots` when `input(i)` is `operands[i]` and symbolic sizes have the values in `env`.

    Raises:
        DivisionByZero: an element of an integer divisor is 0.
        MemoryError: a value has more bytes than `MOST_NBYTES`.
    """
    interpreter = _Interpreter(operands, env or {})
    values: dict[int, np.ndarray] = {}
    order = walk(roots)
    uses: dict[int, int] = {}
    for t in order:
        for a in t.args:
            uses[id(a)] = uses.get(id(a), 0) + 1
    for r in roots:
        uses[id(r)] = uses.get(id(r), 0) + 1
    run = CURRENT_RUN.get()
    with np.errstate(all="ignore"):
        for t in order:
            if run is not None:
                run.check()
            values[id(t)] = interpreter.apply(t, [values[id(a)] for a in t.args])
            for a in t.args:
                uses[id(a)] -= 1
                if not uses[id(a)]:
                    del values[id(a)]
    return [values[id(r)] for r in roots]


def _dot_into(a: np.ndarray, b: np.ndarray, out: np.ndarray) -> None:
    """`np.matmul`, in pieces between which a run can be stopped."""
    if out.size * a.shape[-1] <= _DOT_STEPS or out.size == 1:
        if run := CURRENT_RUN.get():
            run.check()
        np.matmul(a, b, out=out)
        return
    longest = max(range(-out.ndim, 0), key=lambda axis: out.shape[axis])
    half = out.shape[longest] // 2
    for piece in (slice(0, half), slice(half, None)):
        left = a if longest == -1 else _along(a, longest, piece)
        right = b if longest == -2 else _along(b, longest, piece)
        _dot_into(left, right, _along(out, longest, piece))


def _along(x: np.ndarray, axis: int, piece: slice) -> np.ndarray:
    """A piece of `x` along an axis, counted from the last; the whole where it has no such axis, or is broadcast along it."""
    if x.ndim < -axis or (axis < -2 and x.shape[axis] == 1):
        return x
    at: tuple[Any, ...] = (..., piece, *(slice(None),) * (-axis - 1))
    return np.asarray(x[at])


class Operands:
    """Arrays that become the leaves of primitives, in the order in which they are given."""

    def __init__(self) -> None:
        self._arrays: list[np.ndarray] = []

    def leaf(self, array: np.ndarray) -> Tensor:
        """The tensor that stands for an array."""
        array = np.asarray(array)
        self._arrays.append(array)
        return Tensor("input", (), (len(self._arrays) - 1,), DType.of(array.dtype), array.shape)

    def values(self, *roots: Tensor) -> list[np.ndarray]:
        """What primitives over these leaves give."""
        return interpret(roots, self._arrays)


_SILENT = frozenset(
    ("input", "scalar", "broadcast", "reshape", "transpose", "slice", "concat", "eq", "ne", "not", "and", "or", "xor")
)  # of which NumPy warns of nothing


class Recipe:
    """Roots whose sizes are all numbers, made ready to be interpreted any number of times."""

    def __init__(self, roots: Sequence[Tensor]) -> None:
        interpreter = _Interpreter((), {})
        order = walk(roots)
        places = {id(t): i for i, t in enumerate(order)}
        last = {id(a): i for i, t in enumerate(order) for a in t.args}
        self._values: list[Any] = [None] * len(order)
        self._inputs: list[tuple[int, int]] = []
        self._steps: list[tuple[int, Callable[[list[np.ndarray]], np.ndarray], tuple[int, ...], tuple[int, ...]]] = []
        self._roots = [(places[id(r)], interpreter.shape(r.shape)) for r in roots]
        results = {place for place, _ in self._roots}
        for i, t in enumerate(order):
            if t.prim == "input":
                self._inputs.append((i, t.attrs[0]))
            elif not t.args:
                self._values[i] = interpreter.apply(t, [])
            else:
                reads = tuple(places[id(a)] for a in t.args)
                frees = tuple({p for a, p in zip(t.args, reads, strict=True) if last[id(a)] == i and order[p].args} - results)
                self._steps.append((i, interpreter.prepared(t), reads, frees))
        self._constants = frozenset(id(v) for v in self._values if v is not None)
        self._silent = all(t.prim in _SILENT or t.dtype is DType.STRING for t in order)

    def run(self, operands: Sequence[np.ndarray]) -> list[np.ndarray]:
        """As `interpret`; the results are arrays that share no memory with the recipe, but may be operands as they are."""
        values = self._values.copy()
        for place, which in self._inputs:
            values[place] = operands[which]
        if self._silent:
            self._apply(values)
        else:
            with np.errstate(all="ignore"):
                self._apply(values)
        results = []
        for place, shape in self._roots:
            value = np.asarray(values[place])
            if value.base is not None or id(value) in self._constants or not value.flags.c_contiguous:
                value = value.copy()
            results.append(value if value.shape == shape else value.reshape(shape))
        return results

    def _apply(self, values: list[Any]) -> None:
        for place, function, reads, frees in self._steps:
            values[place] = function([values[i] for i in reads])
            for i in frees:
                values[i] = None


class _Interpreter:
    def __init__(self, operands: Sequence[np.ndarray | None], env: Mapping[str, int]) -> None:
        self.operands, self.env = operands, env
        self.most = most_nbytes()

    def numbers(self, dims: Sequence[Dim]) -> tuple[int, ...]:
        return tuple(evaluate(d, self.env) if isinstance(d, Expr) else int(d) for d in dims)

    def shape(self, dims: Sequence[Dim]) -> tuple[int, ...]:
        shape = self.numbers(dims)
        if min(shape, default=0) < 0:
            raise ValueError(f"a value would have shape {list(shape)}: a size is negative; check sizes and pads")
        return shape

    def check_size(self, t: Tensor) -> None:
        """Raise MemoryError where the elements of `t` are more than may be had, before there is an array of them."""
        if t.prim in _VIEWS:
            return
        shape = t.shape if t.prim != "iota" else (t.shape[t.attrs[0]],)
        require_memory(self.numbers(shape), t.dtype.numpy.itemsize, self.most)

    def apply(self, t: Tensor, args: list[np.ndarray]) -> np.ndarray:
        self.check_size(t)
        structural: Callable[[Tensor, list[np.ndarray]], np.ndarray] | None = getattr(self, "_" + t.prim, None)
        if structural is not None:
            return structural(t, args)
        if t.args[0].dtype in _NARROW_FLOATS and t.prim not in ("select", "isnan", "isinf"):
            wide = [a.astype(np.float32) if d.dtype in _NARROW_FLOATS else a for a, d in zip(args, t.args, strict=True)]
            out = ELEMENTWISE[t.prim](*wide)
            return out if t.dtype is DType.BOOL else out.astype(t.dtype.numpy)
        out = ELEMENTWISE[t.prim](*args)
        return out if out.dtype == t.dtype.numpy else np.asarray(out).astype(t.dtype.numpy)

    def prepared(self, t: Tensor) -> Callable[[list[np.ndarray]], np.ndarray]:
        """`apply` of `t` as a function of the arguments.

        Raises:
            MemoryError: as `check_size`; sizes are known now.
        """
        self.check_size(t)
        structural = getattr(self, "_" + t.prim, None)
        if structural is not None:
            return partial(structural, t)
        if t.args[0].dtype in _NARROW_FLOATS:
            return partial(self.apply, t)
        function, dtype = ELEMENTWISE[t.prim], t.dtype.numpy

        def applied(args: list[np.ndarray]) -> np.ndarray:
            out = function(*args)
            return out if out.dtype == dtype else np.asarray(out).astype(dtype)

        return applied

    def _input(self, t: Tensor, args: list[np.ndarray]) -> np.ndarray:
        value = self.operands[t.attrs[0]]
        assert value is not None, f"operand {t.attrs[0]} is used but was not given"
        return np.asarray(value)

    def _scalar(self, t: Tensor, args: list[np.ndarray]) -> np.ndarray:
        return np.array(t.attrs[0], t.dtype.numpy)

    def _size(self, t: Tensor, args: list[np.ndarray]) -> np.ndarray:
        return np.array(evaluate(t.attrs[0], self.env), t.dtype.numpy)

    def _table(self, t: Tensor, args: list[np.ndarray]) -> np.ndarray:
        return np.frombuffer(t.attrs[0], t.dtype.numpy).reshape(t.attrs[1])

    def _stored(self, t: Tensor, args: list[np.ndarray]) -> np.ndarray:
        return args[0]

    def _iota(self, t: Tensor, args: list[np.ndarray]) -> np.ndarray:
        shape, axis = self.shape(t.shape), t.attrs[0]
        column = np.arange(shape[axis]).astype(t.dtype.numpy).reshape([-1 if i == axis else 1 for i in range(len(shape))])
        return np.broadcast_to(column, shape)

    def _broadcast(self, t: Tensor, args: list[np.ndarray]) -> np.ndarray:
        return np.broadcast_to(args[0], self.shape(t.shape))

    def _reshape(self, t: Tensor, args: list[np.ndarray]) -> np.ndarray:
        return args[0].reshape(self.shape(t.shape))

    def _transpose(self, t: Tensor, args: list[np.ndarray]) -> np.ndarray:
        return args[0].transpose(t.attrs)

    def _slice(self, t: Tensor, args: list[np.ndarray]) -> np.ndarray:
        starts, steps = self.numbers(t.attrs[0]), t.attrs[1]  # of an empty axis -1, which nothing reads
        shape = self.shape(t.shape)
        out = args[0]
        for axis, (start, step, count) in enumerate(zip(starts, steps, shape, strict=True)):
            if count == 0:
                part = slice(0, 0)
            else:
                stop = start + step * count
                part = slice(start, stop if stop >= 0 else None, step)
            out = out[(slice(None),) * axis + (part,)]
        return out

    def _pad(self, t: Tensor, args: list[np.ndarray]) -> np.ndarray:
        low = self.shape(t.attrs[0])
        out = np.empty(self.shape(t.shape), t.dtype.numpy)
        out[...] = args[1]
        out[tuple(slice(a, a + d) for a, d in zip(low, args[0].shape, strict=True))] = args[0]
        return out

    def _concat(self, t: Tensor, args: list[np.ndarray]) -> np.ndarray:
        return np.concatenate(args, t.attrs[0])

    def _windows(self, t: Tensor, args: list[np.ndarray]) -> np.ndarray:
        axes, _, strides, dilations = t.attrs
        x, shape = args[0], self.shape(t.shape)
        steps = list(x.strides)
        extra = []
        for i, (axis, stride, dilation) in enumerate(zip(axes, strides, dilations, strict=True)):
            extra.append(steps[axis] * dilation if shape[x.ndim + i] > 1 else 0)
            steps[axis] = steps[axis] * stride if shape[axis] > 1 else 0  # of one window, a stride of any size
        return as_strided(x, shape, (*steps, *extra), writeable=False)

    def _take(self, t: Tensor, args: list[np.ndarray]) -> np.ndarray:
        _require_nonnegative(args[1:])
        return np.take(args[0], args[1], t.attrs[0])

    def _index(self, t: Tensor, args: list[np.ndarray]) -> np.ndarray:
        _require_nonnegative(args[1:])
        return args[0][tuple(args[1:])] if len(args) > 1 else args[0]

    def _scatter(self, t: Tensor, args: list[np.ndarray]) -> np.ndarray:
        out, updates, where = args[0].copy(), args[1], tuple(args[2:])
        _require_nonnegative(where)
        combine = {"add": np.add, "mul": np.multiply, "min": np.minimum, "max": np.maximum}.get(t.attrs[0])
        if combine is None:
            out[where] = updates
        elif t.dtype in _NARROW_FLOATS:
            wide = out.astype(np.float32)
            combine.at(wide, where, updates.astype(np.float32))
            out = wide.astype(out.dtype)
        elif t.dtype is DType.BOOL:
            (np.logical_or if t.attrs[0] in ("add", "max") else np.logical_and).at(out, where, updates)
        else:
            combine.at(out, where, updates)
        return out

    def _reduce(self, t: Tensor, args: list[np.ndarray]) -> np.ndarray:
        op, axes = t.attrs
        x = args[0]
        if op in ("any", "all"):
            return np.asarray((np.any if op == "any" else np.all)(x, axis=axes))
        if op in ("sum", "prod"):
            wide = np.float32 if t.dtype in _NARROW_FLOATS else t.dtype.numpy
            out = (np.sum if op == "sum" else np.prod)(x, axis=axes, dtype=wide)
            return np.asarray(out).astype(t.dtype.numpy)
        identity = lowest(t.dtype) if op == "max" else highest(t.dtype)
        if t.dtype in _NARROW_FLOATS:
            x = x.astype(np.float32)
        if 0 in (x.shape[a] for a in axes):
            return np.full(self.shape(t.shape), identity).astype(t.dtype.numpy)
        return np.asarray((np.max if op == "max" else np.min)(x, axis=axes)).astype(t.dtype.numpy)

    def _argreduce(self, t: Tensor, args: list[np.ndarray]) -> np.ndarray:
        op, axis, last = t.attrs
        x = args[0].astype(np.float32) if t.args[0].dtype in _NARROW_FLOATS else args[0]
        find = np.argmax if op == "max" else np.argmin
        if not last:
            return np.asarray(find(x, axis), np.int64)
        return np.asarray(x.shape[axis] - 1 - find(np.flip(x, axis), axis), np.int64)

    def _scan(self, t: Tensor, args: list[np.ndarray]) -> np.ndarray:
        op, axis, exclusive, reverse = t.attrs
        x = np.flip(args[0], axis) if reverse else args[0]
        wide = np.float32 if t.dtype in _NARROW_FLOATS else x.dtype
        out = (np.cumsum if op == "sum" else np.cumprod)(x, axis=axis, dtype=wide)
        if exclusive:
            first = np.full([1 if i == axis else d for i, d in enumerate(out.shape)], op == "prod", out.dtype)
            window = (slice(None),) * axis + (slice(0, out.shape[axis]),)
            out = np.concatenate([first, out], axis)[window]
        out = out.astype(t.dtype.numpy)
        return np.flip(out, axis) if reverse else out

    def _dot(self, t: Tensor, args: list[np.ndarray]) -> np.ndarray:
        a, b = args
        wide = np.float32 if t.dtype in _NARROW_FLOATS else t.dtype.numpy
        if 0 in (shape := self.shape(t.shape)):  # NumPy walks all matrices, though they are empty
            return np.empty(shape, t.dtype.numpy)
        a, b = a.astype(wide), b.astype(wide)
        steps = math.prod(shape) * a.shape[-1]
        if steps <= _DOT_STEPS:
            return np.asarray(np.matmul(a, b)).astype(t.dtype.numpy)
        out = np.empty(shape, wide)
        _dot_into(a, b, out)
        return out.astype(t.dtype.numpy)

    def _sort(self, t: Tensor, args: list[np.ndarray]) -> np.ndarray:
        return np.take_along_axis(args[0], self._argsort(t, args), t.attrs[0])

    def _argsort(self, t: Tensor, args: list[np.ndarray]) -> np.ndarray:
        axis, descending = t.attrs
        x = args[0].astype(np.float32) if t.args[0].dtype in _NARROW_FLOATS else args[0]
        if not descending:
            return np.argsort(x, axis, kind="stable")
        flipped = np.argsort(np.flip(x, axis), axis, kind="stable")
        return np.asarray(np.flip(x.shape[axis] - 1 - flipped, axis), np.int64)

    def _cast(self, t: Tensor, args: list[np.ndarray]) -> np.ndarray:
        x = np.where(np.isnan(args[0]), least(t.dtype), args[0]) if is_limited(t) else args[0]
        return cast_array(x, t.dtype, t.attrs[0])

    def _bitcast(self, t: Tensor, args: list[np.ndarray]) -> np.ndarray:
        return np.asarray(args[0], order="C").view(t.dtype.numpy)

    def _select(self, t: Tensor, args: list[np.ndarray]) -> np.ndarray:
        return np.where(*args)


def _require_nonnegative(indices: Sequence[np.ndarray]) -> None:
    """Definitions have resolved indices that count from the end: what is still negative would wrap around a second time."""
    if any(i.size and i.min() < 0 for i in indices):
        raise IndexError("an index is out of range: it is below -size of its axis")


def least(dtype: DType) -> int:
    """The lowest number of an integer type."""
    return -(1 << (dtype.bits - 1)) if dtype.is_signed_integer else 0


def lowest(dtype: DType) -> Any:
    """The identity of `max` in `dtype`: minus infinity, or the smallest value."""
    if dtype is DType.BOOL:
        return False
    return -np.inf if dtype.is_floating else np.iinfo(dtype.numpy).min


def highest(dtype: DType) -> Any:
    """The identity of `min` in `dtype`: infinity, or the largest value."""
    if dtype is DType.BOOL:
        return True
    return np.inf if dtype.is_floating else np.iinfo(dtype.numpy).max


# Largest finite value, and whether the type has an infinity: what Cast to float8 does out of range (ONNX Cast, table).
_FLOAT8 = {
    DType.FLOAT8E4M3FN: (448.0, False), DType.FLOAT8E4M3FNUZ: (240.0, False),
    DType.FLOAT8E5M2: (57344.0, True), DType.FLOAT8E5M2FNUZ: (57344.0, False),
}  # fmt: skip


def cast_array(x: np.ndarray, dtype: DType, saturate: bool = True) -> np.ndarray:
    """`x` converted as ONNX's Cast does."""
    source = DType.of(x.dtype)
    if DType.STRING in (source, dtype):
        if source == dtype:
            return x
        return _to_strings(x) if dtype is DType.STRING else cast_array(_from_strings(x, dtype), dtype, saturate)
    if dtype in _FLOAT8 and saturate:
        largest, has_infinity = _FLOAT8[dtype]
        wide = x.astype(np.float32)
        keep = ~np.isnan(wide) if not has_infinity else np.isfinite(wide) | np.isinf(wide)
        return np.where(keep, np.clip(wide, -largest, largest), wide).astype(np.float32).astype(dtype.numpy)
    if dtype is DType.BOOL:
        return np.asarray(np.not_equal(x.astype(np.float32) if source in _NARROW_FLOATS else x, 0))
    if source in _NARROW_FLOATS and not dtype.is_floating:
        x = x.astype(np.float32)
        source = DType.FLOAT
    if source.is_floating and dtype.is_integer:
        x = _to_integer(x, dtype)
    if dtype.bits < 8 and dtype.is_integer:
        return _to_narrow_integer(x, dtype)
    if source.bits < 8:
        x = x.astype(np.float32 if source.is_floating else np.int8)
    if dtype in _NARROW_FLOATS and x.dtype.kind != "f":
        x = x.astype(np.float32)
    return x.astype(dtype.numpy)


def _to_strings(x: np.ndarray) -> np.ndarray:
    """Numbers as onnxruntime prints them: integers (and bool) in decimal, others with up to 8 significant digits."""
    flat = x.reshape(-1)
    if flat.dtype.kind == "b":
        flat = flat.astype(np.int8)
    if flat.dtype.kind in "iu":
        return object_array(map(str, flat.tolist()), x.shape)
    texts: list[str] = list(map("{:.8g}".format, flat.astype(np.float64).tolist()))
    if not np.isfinite(flat.astype(np.float64)).all():
        texts = [_SPECIAL.get(t, t) for t in texts]
    return object_array(texts, x.shape)


_SPECIAL = {"nan": "NaN", "inf": "INF", "-inf": "-INF"}


def object_array(items: Iterable[Any], shape: tuple[int, ...]) -> np.ndarray:
    """An array of objects of this shape, of which `items` has as many as it needs."""
    made = np.fromiter(items, object, math.prod(shape))
    return made if len(shape) == 1 else made.reshape(shape)


def _from_strings(x: np.ndarray, dtype: DType) -> np.ndarray:
    """Texts as float64, or exactly as int64/uint64 where `dtype` is an integer type; fractions are cut off."""
    items = x.reshape(-1).tolist()
    if not dtype.is_integer:
        return np.fromiter(map(float, items), np.float64, len(items)).reshape(x.shape)
    whole = [int(t) if t.strip().lstrip("+-").isdigit() else int(float(t)) for t in items]
    return np.array(whole, np.uint64 if dtype is DType.UINT64 else np.int64).reshape(x.shape)


def _to_integer(x: np.ndarray, dtype: DType) -> np.ndarray:
    """Floats cut off towards zero. ONNX leaves open what becomes of NaN and of numbers out of range: here, as on x86 (and in
    onnxruntime there), they are the lowest signed integer of 32 bits, or of 64 for types of 64 bits. Narrower types take the
    low bits of that: 300 is 44 as int8, infinity 0. uint32 and uint64 take numbers from half their range on less that half.
    """
    bits = max(dtype.bits, 32)
    half = 2.0 ** (bits - 1)
    upper = (x >= half) & dtype.is_unsigned_integer & (dtype.bits >= 32)
    low = np.where(upper, x - half, x)
    inside = np.abs(low) < half
    signed = np.where(inside, low, 0).astype(f"int{bits}")
    lowest = np.iinfo(signed.dtype).min
    found = np.where(inside, signed, lowest) ^ np.where(upper, lowest, 0).astype(signed.dtype)
    if dtype.bits < 8:
        return np.asarray(found)
    return np.asarray(found.view(dtype.numpy) if dtype.bits >= 32 else found.astype(dtype.numpy))


def _to_narrow_integer(x: np.ndarray, dtype: DType) -> np.ndarray:
    bits = dtype.bits
    low = x.astype(np.int64) & ((1 << bits) - 1)
    if dtype.is_signed_integer:
        low = np.where(low >= 1 << (bits - 1), low - (1 << bits), low)
    return low.astype(np.int8).astype(dtype.numpy)


class DivisionByZero(ArithmeticError):
    """An integer was divided by 0."""


def _divide(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Integers are cut off towards zero; the smallest one divided by -1 stays what it is."""
    if a.dtype.kind not in "iu":
        return np.asarray(np.divide(a, b))
    _require_divisor(b)
    quotient = np.floor_divide(a, b)
    if a.dtype.kind == "i":
        quotient = quotient + ((quotient * b != a) & ((a < 0) != (b < 0)))
    return np.asarray(quotient)


def _remainder(op: Callable[[np.ndarray, np.ndarray], np.ndarray]) -> Callable[[np.ndarray, np.ndarray], np.ndarray]:
    def remainder(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        if a.dtype.kind in "iu":
            _require_divisor(b)
        return op(a, b)

    return remainder


def _require_divisor(b: np.ndarray) -> None:
    if not b.all():
        raise DivisionByZero(DIVISOR_IS_ZERO)


def _power(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    if a.dtype.kind not in "iu" or not (b < 0).any():
        # Exponents of stride 0 make NumPy take square roots and squares, and -inf ^ 0.5 is NaN then.
        return np.asarray(np.power(a, np.ascontiguousarray(np.broadcast_to(b, np.broadcast_shapes(a.shape, b.shape)))))
    inverse = np.where(abs(a) == 1, np.where(b & 1, a, 1), 0)  # 1 / a^-b, truncated
    return np.where(b < 0, inverse, np.power(a, np.maximum(b, 0))).astype(a.dtype)


def _extremum(
    compare: Callable[[np.ndarray, np.ndarray], np.ndarray], op: Callable[[np.ndarray, np.ndarray], np.ndarray]
) -> Callable[[np.ndarray, np.ndarray], np.ndarray]:
    """The first operand of two that are equal, which zeros of both signs are; NaN where either is."""

    def extremum(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        if a.dtype.kind in "iub":
            return op(a, b)
        return np.where(compare(b, a) | np.isnan(b), b, a)

    return extremum


def _shift(op: Callable[..., np.ndarray]) -> Callable[[np.ndarray, np.ndarray], np.ndarray]:
    """Shifts by less than 0, or by all bits or more, give 0."""

    def shifted(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        inside = (b >= 0) & (b < 8 * a.dtype.itemsize)
        return np.where(inside, op(a, np.where(inside, b, 0)), 0)

    return shifted


def _whole(op: Callable[[np.ndarray], np.ndarray]) -> Callable[[np.ndarray], np.ndarray]:
    """A rounding function that leaves integers as they are (NumPy takes some through float64)."""
    return lambda x: x if x.dtype.kind in "iu" else op(x)


def _erf(x: np.ndarray) -> np.ndarray:
    """erf to double precision by the C library, element by element: NumPy has none."""
    found = np.fromiter(map(math.erf, x.astype(np.float64).ravel().tolist()), np.float64, x.size)
    return np.asarray(found.reshape(x.shape)).astype(x.dtype)


ELEMENTWISE: dict[str, Callable[..., np.ndarray]] = {
    "neg": np.negative, "abs": np.abs, "sign": np.sign, "floor": _whole(np.floor), "ceil": _whole(np.ceil),
    "round": _whole(np.rint),
    "sqrt": np.sqrt, "exp": np.exp, "log": np.log, "sin": np.sin, "cos": np.cos, "tan": np.tan, "asin": np.arcsin,
    "acos": np.arccos, "atan": np.arctan, "sinh": np.sinh, "cosh": np.cosh, "tanh": np.tanh, "asinh": np.arcsinh,
    "acosh": np.arccosh, "atanh": np.arctanh, "erf": _erf, "not": np.logical_not, "bitnot": np.invert,
    "isnan": np.isnan, "isinf": np.isinf, "add": np.add, "sub": np.subtract, "mul": np.multiply, "div": _divide,
    "mod": _remainder(np.mod), "fmod": _remainder(np.fmod), "pow": _power,
    "min": _extremum(np.less, np.minimum), "max": _extremum(np.greater, np.maximum),
    "and": np.logical_and,
    "or": np.logical_or, "xor": np.logical_xor, "bitand": np.bitwise_and, "bitor": np.bitwise_or,
    "bitxor": np.bitwise_xor, "shl": _shift(np.left_shift), "shr": _shift(np.right_shift), "eq": np.equal,
    "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "atan2": np.arctan2,
}  # fmt: skip
