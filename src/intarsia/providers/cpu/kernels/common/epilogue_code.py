"""Code of epilogues: applies one to vectors of accumulators, and stores them."""

from __future__ import annotations

from collections.abc import Sequence

from intarsia.codegen.builder.kernel_body import Body, Value
from intarsia.graph.dtypes import DType
from intarsia.providers.cpu.kernels.common.element_size import itemsize
from intarsia.providers.cpu.kernels.common.epilogue import Epilogue


class Finish:
    """Writes the epilogue's code for vectors of `lanes` accumulators of type `dtype`; no epilogue stores them as they are."""

    def __init__(self, body: Body, epilogue: Epilogue | None, dtype: DType, lanes: int) -> None:
        self.body, self.epilogue, self.lanes = body, epilogue, lanes
        self.dtype = epilogue.dtype if epilogue else dtype
        self.kinds = epilogue.kinds if epilogue else ()
        self.dtypes = epilogue.dtypes if epilogue else ()
        self.itemsize = itemsize(self.dtype)
        floats = [kind for d, kind in zip(self.dtypes, self.kinds, strict=True) if d.is_floating]
        tame = epilogue is None or epilogue.tame
        self.finite = dtype is DType.INT32 and "full" not in floats and tame

    def operand(self, index: int, pointer: Value, mask: Value | None = None) -> Value:
        """Operand `index` for one vector: from `pointer` on for "column" and "full", that one element for the others."""
        body, dtype = self.body, self.dtypes[index]
        if self.kinds[index] in ("row", "scalar"):
            one = body.emitter().load(pointer, dtype)
            return body.splat(one, self.lanes)
        if mask is None:
            stored = body.load(pointer, dtype, self.lanes)
        else:
            stored = body.load_masked(pointer, mask, dtype, self.lanes)
        return body.emitter(self.lanes).from_storage(stored, dtype)

    def store(self, accumulator: Value, operands: Sequence[Value], pointer: Value, mask: Value | None = None) -> None:
        """Store the finished vector at `pointer`, or those of its lanes that `mask` has."""
        from intarsia.codegen.builder.emitter_avx512 import emitter_for

        body = self.body
        emitter = emitter_for(body, self.lanes, self.finite)
        value = accumulator
        if self.epilogue:
            value = emitter.evaluate(self.epilogue.root, {0: accumulator, **{i + 1: v for i, v in enumerate(operands)}})
        stored = emitter.to_storage(value, self.dtype)
        if mask is None:
            body.store(stored, pointer, self.dtype)
        else:
            body.store_masked(stored, pointer, mask, self.dtype)


