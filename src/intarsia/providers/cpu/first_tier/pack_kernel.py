"""Constant matrices as panels (`common.pack_b`), packed by all threads."""

from __future__ import annotations

from intarsia.codegen.builder.kernel_body import Module
from intarsia.codegen.llvm.jit import KernelText
from intarsia.codegen.llvm.target import Target
from intarsia.graph.dtypes import DType
from intarsia.providers.cpu.kernels.common.pack_b import emit_pack_columns
from intarsia.providers.cpu.kernels.common.tiles import tile_of

_FLOAT = DType.FLOAT


def kernel_text(target: Target) -> KernelText:
    """float32 B, given as its transpose [N, K], as `pack_b.pack_matrix` packs it, but that columns beyond N have any number;
    arguments: the transpose, panels (addresses), K, N, bytes between rows of the transpose."""
    module, tile = Module(target), tile_of(_FLOAT, target)
    pack = emit_pack_columns(module, _FLOAT).function
    body = module.kernel()
    args, tid, nthreads = body.args
    source, panels = (body.load_pointer(args, i) for i in range(2))
    k, n, ld = (body.load_i64(args, i) for i in range(2, 5))
    count = body.div(body.add(n, tile.width - 1), tile.width)
    first, last = body.share(count, tid, nthreads)
    with body.loop(first, last) as panel:
        column = body.mul(panel, tile.width)
        width = body.min(body.sub(n, column), tile.width)
        vectors = body.div(body.add(width, tile.lanes - 1), tile.lanes)
        place = body.at(panels, body.mul(body.mul(panel, k), tile.width * tile.itemsize))
        body.b.call(pack, [body.at(source, body.mul(column, ld)), ld, k, width, place, vectors])
    body.b.ret_void()
    return module.text("pack_columns_of_all")
