"""Pooling in channels-last layout: MaxPool and AveragePool by windows, GlobalMaxPool and GlobalAveragePool over whole maps."""

from __future__ import annotations

import functools

from intarsia.codegen.builder.kernel_body import Body, Module, Value
from intarsia.codegen.llvm.jit import KernelText
from intarsia.codegen.llvm.target import Target
from intarsia.providers.cpu.kernels.common.element_size import itemsize
from intarsia.providers.cpu.kernels.common.epilogue_code import Finish
from intarsia.providers.cpu.kernels.conv.grouped.sliding_window import Window
from intarsia.providers.cpu.kernels.conv.grouped.window_arguments import WindowSpec
from intarsia.providers.cpu.kernels.pooling.pooling_arguments import GlobalPoolSpec


@functools.lru_cache(maxsize=256)
def kernel_text(spec: WindowSpec, target: Target) -> KernelText:
    """The kernel of a pooling window ("max" or "average"); its arguments are `window_args`.

    With `count_include_pad` an average counts the positions inside the border (not those that ceil_mode adds beyond it).
    """
    return Window(spec, target).text()


# --- whole maps ---------------------------------------------------------------------------------------------------

_VECTORS = 4
_PARALLEL = 2


@functools.lru_cache(maxsize=64)
def global_pool_text(spec: GlobalPoolSpec, target: Target) -> KernelText:
    """The kernel of a global pooling; its arguments are `global_pool_args`."""
    module = Module(target)
    return _GlobalPool(module.kernel(), spec, module.lanes(spec.dtype)).text()


class _GlobalPool:
    """A thread takes blocks of four vectors of channels and runs over the pixels, with two sums for each vector."""

    def __init__(self, body: Body, spec: GlobalPoolSpec, lanes: int) -> None:
        self.body, self.spec, self.lanes = body, spec, lanes
        self.finish = Finish(body, spec.epilogue, spec.dtype, lanes)
        self.size = itemsize(spec.dtype)

    def text(self) -> KernelText:
        body = self.body
        args, tid, nthreads = body.args
        x, y = body.load_pointer(args, 0), body.load_pointer(args, 1)
        batch, self.pixels, self.channels, self.pixel_nbytes = (body.load_i64(args, i) for i in range(2, 6))
        self.operands = [body.load_pointer(args, 6 + i) for i in range(len(self.finish.kinds))]
        width = _VECTORS * self.lanes
        blocks = body.div(body.add(self.channels, width - 1), width)
        first, last = body.share(body.mul(batch, blocks), tid, nthreads)
        with body.loop(first, last) as unit:
            image, channel = body.div(unit, blocks), body.mul(body.rem(unit, blocks), width)
            source = body.at(x, body.mul(body.mul(image, self.pixels), self.pixel_nbytes))
            index = body.mul(image, self.channels)
            with body.either(body.less(body.add(channel, width - 1), self.channels)) as (whole, partial):
                with whole:
                    self._block(source, y, index, channel, _VECTORS, None)
                with partial, body.loop(channel, self.channels, self.lanes) as c:
                    self._block(source, y, index, c, 1, body.mask(body.sub(self.channels, c), self.lanes))
        body.b.ret_void()
        return body.module.text(f"global_{self.spec.operation}")

    def _block(self, source: Value, y: Value, index: Value, channel: Value, vectors: int, mask: Value | None) -> None:
        body, dtype, lanes = self.body, self.spec.dtype, self.lanes
        neutral = body.constant(float("-inf") if self.spec.operation == "max" else 0.0, dtype, lanes)
        state = [neutral] * vectors * _PARALLEL
        origin = body.at(source, body.mul(channel, self.size))
        even = body.b.and_(self.pixels, body.i(-_PARALLEL))
        for start, stop, count in ((0, even, _PARALLEL), (even, self.pixels, 1)):
            with body.carry(start, stop, count, state) as pixel:
                for p in range(count):
                    line = body.at(origin, body.mul(body.add(pixel, p), self.pixel_nbytes))
                    for j in range(vectors):
                        at = body.at(line, j * lanes * self.size)
                        value = body.load(at, dtype, lanes) if mask is None else body.load_masked(at, mask, dtype, lanes)
                        state[p * vectors + j] = self._combine(state[p * vectors + j], value)
        one = body.zero(dtype, 1)
        count_vector = body.splat(body.b.sitofp(self.pixels, one.type), lanes)
        for j in range(vectors):
            total = self._combine(state[j], state[vectors + j])
            if self.spec.operation == "average":
                total = body.b.fdiv(total, count_vector)
            self._store(total, y, index, body.add(channel, j * lanes), mask)

    def _combine(self, a: Value, b: Value) -> Value:
        builder = self.body.b
        if self.spec.operation == "average":
            return builder.fadd(a, b)
        picked = builder.select(builder.fcmp_ordered(">", b, a), b, a)  # NaN of a stays
        return builder.select(builder.fcmp_unordered("uno", b, b), b, picked)

    def _store(self, value: Value, y: Value, index: Value, channel: Value, mask: Value | None) -> None:
        body, finish = self.body, self.finish
        places = {"column": channel, "full": body.add(index, channel)}
        values = []
        for i, (kind, dtype, pointer) in enumerate(zip(finish.kinds, finish.dtypes, self.operands, strict=True)):
            at = body.at(pointer, body.mul(places[kind], itemsize(dtype))) if kind in places else pointer
            values.append(finish.operand(i, at, mask if kind in places else None))
        finish.store(value, values, body.at(y, body.mul(places["full"], finish.itemsize)), mask)
