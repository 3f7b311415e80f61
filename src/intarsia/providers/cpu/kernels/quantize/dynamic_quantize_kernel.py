"""DynamicQuantizeLinear in two steps: extrema of parts of the tensor, then its scale, zero point and elements from them all."""

from __future__ import annotations

import functools
from collections.abc import Callable

from intarsia.codegen.builder.kernel_body import Body, Module, Value
from intarsia.codegen.elementwise.emitter import Emitter
from intarsia.codegen.llvm import ir_builder
from intarsia.codegen.llvm.jit import KernelText
from intarsia.codegen.llvm.target import Target
from intarsia.graph.dtypes import DType

PARTS = 64  # shared out among threads
_F32, _U8 = DType.FLOAT, DType.UINT8
_FLOAT = ir_builder.FloatType()
_UNROLL = 4
_LEAST, _MOST = 2.0**-100, 2.0**100  # scales for which quotients are found without dividing


@functools.cache
def range_text(target: Target) -> KernelText:
    """Arguments: x (float[n]), extrema (float[2, PARTS]: least, then largest elements), n."""
    module = Module(target)
    lanes = module.lanes(_F32)
    body = module.kernel()
    args, tid, nthreads = body.args
    x, extrema = (body.load_pointer(args, i) for i in range(2))
    n = body.load_i64(args, 2)
    first, last = body.share(body.i(PARTS), tid, nthreads)
    with body.loop(first, last) as part:
        start, end = (body.div(body.mul(n, body.add(part, i)), PARTS) for i in range(2))
        for row, found in enumerate(_extrema(body, x, start, end, "<>", lanes)):
            body.store(found, body.at(extrema, body.mul(body.add(part, row * PARTS), 4)), _F32)
    body.b.ret_void()
    return module.text("quantize_range")


def _extrema(body: Body, x: Value, start: Value, end: Value, orders: str, lanes: int) -> list[Value]:
    """The least ("<") and the largest (">") of elements start to end, and 0."""
    b = body.b

    def pick(order: str, value: Value, best: Value) -> Value:
        return b.select(b.fcmp_ordered(order, value, best), value, best)

    def at(i: Value, offset: int = 0) -> Value:
        return body.at(x, body.mul(i, 4), 4 * offset)

    zero = body.zero(_F32, lanes)
    best = [zero] * (_UNROLL * len(orders))
    block = _UNROLL * lanes
    whole = body.add(start, body.mul(body.div(body.sub(end, start), block), block))
    with body.carry(start, whole, block, best) as i:
        values = [body.load(at(i, u * lanes), _F32, lanes) for u in range(_UNROLL)]
        best[:] = [pick(o, v, best[n * _UNROLL + u]) for n, o in enumerate(orders) for u, v in enumerate(values)]
    rest = [functools.reduce(functools.partial(pick, o), best[n * _UNROLL :][:_UNROLL]) for n, o in enumerate(orders)]
    with body.carry(whole, end, lanes, rest) as i:
        value = body.load_masked(at(i), body.mask(body.sub(end, i), lanes), _F32, lanes)
        rest[:] = [pick(o, value, r) for o, r in zip(orders, rest, strict=True)]
    return [_across(body, r, functools.partial(pick, o), lanes) for o, r in zip(orders, rest, strict=True)]


def _across(body: Body, vector: Value, pick: Callable[[Value, Value], Value], lanes: int) -> Value:
    distance = lanes // 2
    while distance:
        vector = pick(vector, body.shuffle(vector, vector, [i ^ distance for i in range(lanes)]))
        distance //= 2
    return body.b.extract_element(vector, ir_builder.IntType(32)(0))


@functools.cache
def quantize_text(target: Target) -> KernelText:
    """Arguments: x, extrema (as `range_text` leaves them), y (uint8[n]), scale, zero point (one element each), n."""
    module = Module(target)
    lanes = module.lanes(_F32)
    body = module.kernel()
    args, tid, nthreads = body.args
    b, e = body.b, Emitter(body.b, lanes)
    x, extrema, y, scale_at, zero_at = (body.load_pointer(args, i) for i in range(5))
    n = body.load_i64(args, 5)
    (low,) = _extrema(body, extrema, body.i(0), body.i(PARTS), "<", lanes)
    (high,) = _extrema(body, extrema, body.i(PARTS), body.i(2 * PARTS), ">", lanes)
    scale = b.fdiv(b.fsub(high, low), ir_builder.Constant(_FLOAT, 255.0))
    safe = b.select(b.fcmp_ordered("==", scale, ir_builder.Constant(_FLOAT, 0.0)), ir_builder.Constant(_FLOAT, 1.0), scale)
    divisor = body.splat(safe, lanes)
    none = b.fdiv(b.fneg(body.splat(low, lanes)), divisor)
    zero = e.intrinsic("roundeven", [_within(e, none)])
    with body.when(body.equal(tid, 0)):
        body.store(scale, scale_at, _F32)
        first_lane = b.extract_element(zero, ir_builder.IntType(32)(0))
        body.store(b.trunc(b.fptosi(first_lane, ir_builder.IntType(32)), ir_builder.IntType(8)), zero_at, _U8)
    inverse = body.splat(b.fdiv(ir_builder.Constant(_FLOAT, 1.0), safe), lanes)

    def divided(values: Value) -> Value:
        return b.fdiv(values, divisor)

    def multiplied(values: Value) -> Value:
        """The correctly rounded quotient from that of the rounded inverse and what is left (Markstein, 1990)."""
        about = b.fmul(values, inverse)
        left = e.intrinsic("fma", [b.fneg(about), divisor, values])
        return e.intrinsic("fma", [left, inverse, about])

    least, most = (ir_builder.Constant(_FLOAT, value) for value in (_LEAST, _MOST))
    usual = b.and_(b.fcmp_ordered(">", safe, least), b.fcmp_ordered("<", safe, most))
    with body.either(usual) as (fast, exact):
        for branch, quotient in ((fast, multiplied), (exact, divided)):
            with branch:
                _quantize(body, e, (x, y, n), tid, nthreads, functools.partial(_level, e, quotient, zero))
    b.ret_void()
    return module.text("quantize_dynamically")


def _quantize(
    body: Body, e: Emitter, places: tuple[Value, Value, Value], tid: Value, nthreads: Value, quantized: Callable[[Value], Value]
) -> None:
    """A thread's share of the elements; `places`: the addresses of x and y, and how many elements there are."""
    (x, y, n), lanes = places, e.lanes
    first, last = body.share(body.div(body.add(n, lanes - 1), lanes), tid, nthreads)
    whole = body.min(last, body.div(n, lanes))
    with body.loop(first, whole) as i:
        place = body.mul(i, lanes)
        body.store(quantized(body.load(body.at(x, body.mul(place, 4)), _F32, lanes)), body.at(y, place), _U8)
    with body.loop(body.max(first, whole), last) as i:
        place = body.mul(i, lanes)
        mask = body.mask(body.sub(n, place), lanes)
        values = body.load_masked(body.at(x, body.mul(place, 4)), mask, _F32, lanes)
        body.store_masked(quantized(values), body.at(y, place), mask, _U8)


def _level(e: Emitter, quotient: Callable[[Value], Value], zero: Value, values: Value) -> Value:
    b = e.builder
    ratio = e.intrinsic("roundeven", [quotient(values)])
    return b.trunc(b.fptosi(_within(e, b.fadd(ratio, zero)), e.shaped(ir_builder.IntType(32))), e.shaped(ir_builder.IntType(8)))


def _within(e: Emitter, x: Value) -> Value:
    """0 to 255; 0 for NaN."""
    b, low, high = e.builder, e.constant(0.0, _FLOAT), e.constant(255.0, _FLOAT)
    x = b.select(b.fcmp_ordered(">", x, low), x, low)
    return b.select(b.fcmp_ordered("<", x, high), x, high)
