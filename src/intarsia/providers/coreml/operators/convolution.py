"""Convolutions, pools, products of matrices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

import numpy as np

from intarsia.graph.dtypes import DType
from intarsia.providers.coreml.node_builder import (
    BYTES,
    CARRIERS,
    FLOATS,
    Handler,
    NodeBuilder,
    Var,
    known_size,
    shape_of,
)


def interleaved(pads: Sequence[int]) -> list[int]:
    """ONNX's pads (all beginnings, all ends) as MIL's: beginning and end of each axis."""
    half = len(pads) // 2
    return [int(n) for i in range(half) for n in (pads[i], pads[half + i])]


def _spatial(b: NodeBuilder, name: str, count: int) -> list[int]:
    return [int(n) for n in b.attribute(name) or [1] * count]


def with_bias(b: NodeBuilder, y: Var, index: int) -> Var:
    """A bias that only a run knows, added to the channels."""
    if not b.has(index):
        return y
    return b.mb.add(x=y, y=b.reshape(b.x(index), (1, b.size(0, index), *(1,) * (b.rank - 2))))


def _conv(b: NodeBuilder) -> Var:
    b.only(*FLOATS)
    count = b.rank - 2
    if not 1 <= count <= 3:
        raise b.refuse(f"Core ML convolves along one to three axes, not {count}")
    _check_pads(b)
    dilations = _spatial(b, "dilations", count)
    weight = b.constant(1)
    if weight is None and set(dilations) != {1}:
        raise b.refuse("Core ML convolves by filters that only a run knows without dilations")
    given = {"bias": b.x(2)} if b.constant(2) is not None else {}
    y = b.mb.conv(
        x=b.x(), weight=b.x(1), strides=_spatial(b, "strides", count), dilations=dilations,
        groups=int(b.attribute("group", 1)), pad_type="custom", pad=interleaved(b.attribute("pads") or [0] * (2 * count)),
        **given,
    )  # fmt: skip
    return y if given else with_bias(b, y, 2)


def _check_pads(b: NodeBuilder) -> None:
    """`auto_pad` is written out by a rule where sizes are known."""
    if b.attribute("auto_pad", "NOTSET") not in ("NOTSET", "VALID"):
        raise b.refuse("pads that follow from sizes that vary", "shape")


def _conv_transpose(b: NodeBuilder) -> Var:
    """The whole result, cut or padded with zeros as `pads`, `output_padding` and `output_shape` say."""
    b.only(*FLOATS)
    count = b.rank - 2
    if not 1 <= count <= 3:
        raise b.refuse(f"Core ML convolves along one to three axes, not {count}")
    b.known(1, "the filters of a transposed convolution")
    strides, dilations = _spatial(b, "strides", count), _spatial(b, "dilations", count)
    y = b.mb.conv_transpose(
        x=b.x(), weight=b.x(1), strides=strides, dilations=dilations, groups=int(b.attribute("group", 1)), pad_type="valid"
    )
    whole, wanted = shape_of(y)[2:], b.out_shape()[2:]
    low = _transposed_pads(b, whole, wanted)
    short = [max(at + want - size, 0) for at, want, size in zip(low, wanted, whole, strict=True)]
    if any(short) or any(at < 0 for at in low):
        pads = [n for at, more in zip(low, short, strict=True) for n in (max(-at, 0), more)]
        y = b.mb.pad(x=y, pad=pads, mode="constant", constant_val=b.number(0))
        low = [max(at, 0) for at in low]
    if tuple(shape_of(y)) != b.out_shape():
        begin = [0, 0, *low]
        end = [*shape_of(y)[:2], *(at + want for at, want in zip(low, wanted, strict=True))]
        y = b.mb.slice_by_index(x=y, begin=begin, end=end)
    return with_bias(b, y, 2)


def _transposed_pads(b: NodeBuilder, whole: Sequence[int], wanted: Sequence[int]) -> list[int]:
    """How many elements of the whole result are cut off at the beginning of each axis."""
    mode, count = b.attribute("auto_pad", "NOTSET"), len(whole)
    extra = [int(n) for n in b.attribute("output_padding") or [0] * count]
    if b.attribute("output_shape") or mode in ("SAME_UPPER", "SAME_LOWER"):
        totals = [max(size + more - want, 0) for size, more, want in zip(whole, extra, wanted, strict=True)]
        if mode == "SAME_UPPER":
            return [total // 2 for total in totals]
        return [total - total // 2 for total in totals]
    if mode == "VALID":
        return [0] * count
    return [int(n) for n in (b.attribute("pads") or [0] * (2 * count))[:count]]


def _windows(b: NodeBuilder) -> tuple[list[int], list[int], list[int], list[int]]:
    """Kernel, strides, and pads at the beginning and end of each axis such that all windows of ONNX's output fit."""
    kernel = [int(n) for n in b.attribute("kernel_shape")]
    count = len(kernel)
    if not 1 <= count <= 3:
        raise b.refuse(f"Core ML's pools are along one to three axes, not {count}")
    if set(_spatial(b, "dilations", count)) != {1}:
        raise b.refuse("Core ML's pools have no dilations")
    strides = _spatial(b, "strides", count)
    pads = [int(n) for n in b.attribute("pads") or [0] * (2 * count)]
    low = pads[:count]
    if not all(isinstance(d, int) for d in b.dims()[2:]):
        _check_pads(b)
        if b.attribute("ceil_mode", 0):
            raise b.refuse("pools with ceil_mode along axes whose sizes vary", "shape")
        return kernel, strides, low, pads[count:]
    sizes, out = ([known_size(d, b.node.op_type) for d in dims[2:]] for dims in (b.dims(), b.out_dims()))
    high = [
        max((n - 1) * step + k - size - at, 0) for n, step, k, size, at in zip(out, strides, kernel, sizes, low, strict=True)
    ]
    return kernel, strides, low, high


def _paired(low: Sequence[int], high: Sequence[int]) -> list[int]:
    return [n for pair in zip(low, high, strict=True) for n in pair]


def _max_pool(b: NodeBuilder) -> Var:
    """Bytes are compared as floats, which hold them."""
    dtype = b.only(*FLOATS, *BYTES)
    if len(b.node.outputs) > 1 and b.node.outputs[1]:
        raise b.refuse("Core ML's max_pool does not say where a maximum was")
    kernel, strides, low, high = _windows(b)
    x = b.x() if dtype in FLOATS else b.mb.cast(x=b.x(), dtype="fp32")
    y = b.mb.max_pool(x=x, kernel_sizes=kernel, strides=strides, pad_type="custom", pad=_paired(low, high))
    return b.cast(y, CARRIERS[dtype])


def _average_pool(b: NodeBuilder) -> Var:
    """With padding counted, the elements of ONNX's pads count, and those that `ceil_mode` adds do not."""
    b.only(*FLOATS)
    kernel, strides, low, high = _windows(b)
    x, counted = b.x(), bool(b.attribute("count_include_pad", 0))
    count = len(kernel)
    if counted:
        own = [int(n) for n in (b.attribute("pads") or [0] * (2 * count))]
        if any(own):
            x = b.mb.pad(x=x, pad=interleaved(own), mode="constant", constant_val=b.number(0))
        low, high = [0] * count, [max(more - n, 0) for more, n in zip(high, own[count:], strict=True)]
    return b.mb.avg_pool(
        x=x, kernel_sizes=kernel, strides=strides, pad_type="custom", pad=_paired(low, high),
        exclude_padding_from_average=True,
    )  # fmt: skip


def _lp_pool(b: NodeBuilder) -> Var:
    """(sum |x|^p)^(1/p) of each window: the mean of |x|^p with padding counted, times the window's size."""
    dtype = b.only(*FLOATS)
    mb, p = b.mb, int(b.attribute("p", 2))
    kernel, strides, low, high = _windows(b)
    size = mb.abs(x=b.cast(b.x(), np.float32))  # powers leave float16
    power = size if p == 1 else mb.square(x=size) if p == 2 else mb.pow(x=size, y=np.float32(p))
    mean = mb.avg_pool(
        x=power, kernel_sizes=kernel, strides=strides, pad_type="custom", pad=_paired(low, high),
        exclude_padding_from_average=False,
    )  # fmt: skip
    total = mb.mul(x=mean, y=np.float32(prod(kernel)))
    root = total if p == 1 else mb.sqrt(x=total) if p == 2 else mb.pow(x=total, y=np.float32(1 / p))
    return b.cast(root, CARRIERS[dtype])


def matmul(b: NodeBuilder, x: Var, y: Var) -> Var:
    """NumPy's matmul: vectors are matrices of one row or column."""
    if len(x.shape) == 1:
        x = b.reshape(x, (1, *shape_of(x)))
    if len(y.shape) == 1:
        y = b.reshape(y, (*shape_of(y), 1))
    return b.mb.matmul(x=x, y=y)


def _matmul(b: NodeBuilder) -> Var:
    b.only(*FLOATS, DType.INT32)
    found = matmul(b, b.x(0), b.x(1))
    return b.reshape(found, b.out_shape()) if 1 in (len(b.dims(0)), len(b.dims(1))) else found


def _gemm(b: NodeBuilder) -> Var:
    """alpha A' B' + beta C."""
    b.only(*FLOATS)
    mb, c = b.mb, b.constant(2)
    alpha, beta = float(b.attribute("alpha", 1.0)), float(b.attribute("beta", 1.0))
    columns = known_size(b.out_dims()[1], b.node.outputs[0])
    plain = alpha == 1 and beta == 1 and not b.attribute("transA", 0) and b.constant(1) is not None
    if plain and (not b.has(2) or (c is not None and c.shape in ((columns,), (1, columns)))):
        weight = b.x(1)
        bias = {"bias": b.x(2).reshape(columns)} if b.has(2) else {}
        return mb.linear(x=b.x(0), weight=weight if b.attribute("transB", 0) else np.ascontiguousarray(weight.T), **bias)
    y = mb.matmul(
        x=b.x(0), y=b.x(1), transpose_x=bool(b.attribute("transA", 0)), transpose_y=bool(b.attribute("transB", 0))
    )
    y = y if alpha == 1 else mb.mul(x=y, y=b.number(alpha))
    if not b.has(2) or beta == 0:
        return y
    addend = b.x(2) if beta == 1 else mb.mul(x=b.x(2), y=b.number(beta))
    return mb.add(x=y, y=addend)


def _einsum(b: NodeBuilder) -> Var:
    """Two operands at most: batch labels in front, the summed ones between, as one product of matrices."""
    b.only(*FLOATS)
    equation = str(b.attribute("equation")).replace(" ", "")
    if "." in equation:
        raise b.refuse("Einsum with an ellipsis")
    left, arrow, out = equation.partition("->")
    terms = left.split(",")
    if not arrow:
        joined = left.replace(",", "")
        out = "".join(sorted({c for c in joined if joined.count(c) == 1}))
    if any(len(set(term)) != len(term) for term in terms):
        raise b.refuse("Einsum with a label twice in one operand")
    if len(terms) > 2:
        raise b.refuse("Einsum of more than two operands")
    sizes = {c: n for i, term in enumerate(terms) for c, n in zip(term, b.shape(i), strict=True)}
    others = ["".join(t for j, t in enumerate(terms) if j != i) for i in range(len(terms))]
    values = [_summed(b, b.x(i), term, {*out, *others[i]}) for i, term in enumerate(terms)]
    if len(values) == 1:
        x, labels = values[0]
        return _permuted(b, x, labels, out)
    (x, lx), (y, ly) = values
    batch = [c for c in lx if c in ly and c in out]
    inner = [c for c in lx if c in ly and c not in out]
    rows, columns = [c for c in lx if c not in ly], [c for c in ly if c not in lx]

    def size(labels: Sequence[str]) -> int:
        return prod(sizes[c] for c in labels)

    x = b.reshape(_permuted(b, x, lx, [*batch, *rows, *inner]), (size(batch), size(rows), size(inner)))
    y = b.reshape(_permuted(b, y, ly, [*batch, *inner, *columns]), (size(batch), size(inner), size(columns)))
    found = [*batch, *rows, *columns]
    if len(found) > 5:
        raise b.refuse("Einsum whose result has more than five axes")
    z = b.reshape(b.mb.matmul(x=x, y=y), tuple(sizes[c] for c in found))
    return _permuted(b, z, found, out)


def _summed(b: NodeBuilder, x: Var, term: Sequence[str], wanted: set[str]) -> tuple[Var, list[str]]:
    """An operand summed over the labels that nobody else has."""
    axes = [i for i, c in enumerate(term) if c not in wanted]
    if axes:
        x = b.mb.reduce_sum(x=x, axes=axes, keep_dims=False)
        return x, [c for c in term if c in wanted]
    return x, list(term)


def _permuted(b: NodeBuilder, x: Var, labels: Sequence[str], wanted: Sequence[str]) -> Var:
    perm = [list(labels).index(c) for c in wanted]
    return x if perm == list(range(len(perm))) else b.mb.transpose(x=x, perm=perm)


HANDLERS: Mapping[str, Handler] = {
    "AveragePool": _average_pool, "Conv": _conv, "ConvTranspose": _conv_transpose, "Einsum": _einsum, "Gemm": _gemm,
    "LpPool": _lp_pool, "MatMul": _matmul, "MaxPool": _max_pool,
}  # fmt: skip
