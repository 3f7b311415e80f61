"""Mixtures of experts: choices sorted by expert, and the GEMM kernel called once for the rows of each expert."""

from __future__ import annotations

import functools

from intarsia.codegen.builder.kernel_body import Body, Module, Value
from intarsia.codegen.llvm.jit import KernelText
from intarsia.codegen.llvm.target import Target
from intarsia.providers.cpu.kernels.common.tiles import tile_of
from intarsia.providers.cpu.kernels.matmul import gemm_arguments

HEAD = 5  # arguments of the step of products before the GEMM kernel's


@functools.cache
def order_text(target: Target) -> KernelText:
    """The serial step that sorts choices by expert, by counting.

    Arguments: chosen [tokens, k], starts [experts + 1], tokens of the rows, rows of the choices; tokens, k, experts.
    """
    module = Module(target)
    body = module.kernel()
    args, _, _ = body.args
    chosen, starts, tokens, places = (body.load_pointer(args, i) for i in range(4))
    rows, k, experts = (body.load_i64(args, i) for i in (4, 5, 6))
    body.fill_zero(starts, body.mul(body.add(experts, 1), 8))
    with body.loop(0, body.mul(rows, k)) as slot:
        count = body.at(starts, body.mul(body.load_i64(chosen, slot), 8))
        body.b.store(body.add(body.load_i64(count), 1), count)
    total = [body.i(0)]
    with body.carry(0, experts, 1, total) as e:
        place = body.at(starts, body.mul(e, 8))
        count = body.load_i64(place)
        body.b.store(total[0], place)
        total[0] = body.add(total[0], count)
    with body.loop(0, rows) as token, body.loop(0, k) as j:
        slot = body.mul(body.add(body.mul(token, k), j), 8)
        place = body.at(starts, body.mul(body.load_i64(body.at(chosen, slot)), 8))
        row = body.load_i64(place)
        body.b.store(token, body.at(tokens, body.mul(row, 8)))
        body.b.store(row, body.at(places, slot))
        body.b.store(body.add(row, 1), place)
    last = [body.i(0)]  # every start has moved on to the next one's
    with body.carry(0, body.add(experts, 1), 1, last) as e:
        place = body.at(starts, body.mul(e, 8))
        following = body.load_i64(place)
        body.b.store(last[0], place)
        last[0] = following
    body.b.ret_void()
    return module.text("expert_order")


@functools.cache
def products_text(spec: gemm_arguments.GemmSpec, target: Target) -> KernelText:
    """The step y[rows of e] = epilogue(x[rows of e] B[e]) for every expert e.

    Arguments: the GEMM kernel's address, starts [experts + 1], experts, bytes of a packed B and of an expert's bias; then the
    GEMM kernel's own arguments for the first expert. An operand of the epilogue, if there is one, is the bias.
    """
    return _Products(spec, target).text()


class _Products:
    def __init__(self, spec: gemm_arguments.GemmSpec, target: Target) -> None:
        self.spec, self.module, self.tile = spec, Module(target), tile_of(spec.dtype, target)
        self.body: Body = self.module.kernel()

    def text(self) -> KernelText:
        body = self.body
        args, self.tid, self.nthreads = body.args
        self.kernel, starts = body.load_pointer(args, 0), body.load_pointer(args, 1)
        experts, self.weights_nbytes, self.bias_nbytes = (body.load_i64(args, i) for i in (2, 3, 4))
        self.given = body.at(args, 8 * HEAD)
        operands = len(self.spec.epilogue.kinds) if self.spec.epilogue is not None else 0
        self.count = gemm_arguments.argument_count(operands)
        self.own = body.alloca(8 * self.count)
        with body.loop(0, experts) as e:
            start = body.load_i64(starts, e)
            rows = body.sub(body.load_i64(starts, body.add(e, 1)), start)
            with body.when(body.less(0, rows)):
                self._call(e, start, rows, bool(operands))
        body.b.ret_void()
        return self.module.text("experts")

    def _call(self, e: Value, start: Value, rows: Value, biased: bool) -> None:
        body, place = self.body, gemm_arguments.ARGUMENTS
        body.copy(self.given, self.own, body.i(8 * self.count))
        self._move(place["a"], body.mul(start, self._given("lda")))
        self._move(place["c"], body.mul(start, self._given("ldc")))
        self._move(place["b"], body.mul(e, self.weights_nbytes))
        if biased:
            self._move(gemm_arguments.argument_count(0), body.mul(e, self.bias_nbytes))
        tiles = body.div(body.add(rows, self.tile.rows - 1), self.tile.rows)
        chunks = body.div(
            body.add(body.mul(rows, self._given("lda")), gemm_arguments.A_RESIDENT_NBYTES - 1), gemm_arguments.A_RESIDENT_NBYTES
        )
        chunks = body.min(tiles, body.max(chunks, 1))
        sizes = {
            "m": rows, "tiles": tiles, "rows": body.div(rows, tiles), "extra": body.rem(rows, tiles),
            "chunk": body.div(body.add(tiles, body.sub(chunks, 1)), chunks),
        }  # fmt: skip
        for name, value in sizes.items():
            body.b.store(value, body.at(self.own, 8 * place[name]))
        body.call_pointer(self.kernel, ("p", "i", "i"), [self.own, self.tid, self.nthreads])

    def _given(self, name: str) -> Value:
        return self.body.load_i64(self.given, gemm_arguments.ARGUMENTS[name])

    def _move(self, index: int, nbytes: Value) -> None:
        """An address among the arguments, moved."""
        body = self.body
        body.b.store(body.add(body.load_i64(self.given, index), nbytes), body.at(self.own, 8 * index))
