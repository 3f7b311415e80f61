"""Concat of tensors into a program output, such as a decoder's growing cache."""

from __future__ import annotations

from intarsia.codegen.llvm.target import Target, streamed_nbytes
from intarsia.codegen.loops.collapse_axes import collapse
from intarsia.codegen.loops.element_values import stripped
from intarsia.graph.dims import product
from intarsia.plan.step import Below, BuffersAndSizes, Shares, Step
from intarsia.primitives.lang import Tensor
from intarsia.providers.cpu.kernels.common.nontemporal_copy import joined_text, passes_caches

_SERIAL_ELEMENTS = 8192  # below this many elements it is not worth waking other threads for
_MOST_PARTS = 4


def joined_step(root: Tensor, out: str, target: Target, label: str, results: int) -> Step | None:
    """The step that computes `root` into `out`, one of so many results of the program; None where it is no Concat of inputs."""
    root = stripped(root)
    if root.prim != "concat" or len(root.args) > _MOST_PARTS or any(a.prim != "input" for a in root.args):
        return None
    if not passes_caches(target) or root.dtype.bits < 8 or root.dtype.numpy.hasobject:
        return None
    if root.attrs[0] == root.rank - 1 and all(isinstance(a.shape[-1], int) for a in root.args):
        return None  # channels, which may be computed where they lie (`concat_split_in_place`)
    (flat,) = collapse([root])
    if flat.prim != "concat" or flat.attrs[0] != flat.rank - 1 or any(a.prim != "input" for a in flat.args):
        return None
    itemsize, elements = root.dtype.numpy.itemsize, product(root.shape)
    names = tuple(a.attrs[0] for a in flat.args)
    widths = tuple(a.shape[-1] * itemsize for a in flat.args)
    sizes = (product(flat.shape[:-1]), elements * itemsize, streamed_nbytes(results), *widths)
    return Step(
        joined_text(target, len(names)), names, (out,), BuffersAndSizes((*names, out), sizes),
        serial=Below(elements, _SERIAL_ELEMENTS), label=label, work=Shares(elements, _SERIAL_ELEMENTS // 2),
    )  # fmt: skip
