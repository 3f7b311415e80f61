"""A pointwise convolution and the depthwise one behind it, fused: a stripe of lines at a time, which stays in the cache.

A thread takes neighbouring stripes. For each it has the product's kernel compute the lines of the map between that the stripe
adds, into memory of its own, and the window's kernel read them there. Lines that the next stripe needs too are moved to the
front; a thread's first stripe computes them itself. The stripes are those of one image; a thread copies a stripe's arguments
behind its lines and moves the addresses there to the image that it is at.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

from intarsia.codegen.builder.kernel_body import Module
from intarsia.codegen.llvm.jit import KernelText
from intarsia.codegen.llvm.target import Target
from intarsia.lazy_dataclass import dataclass
from intarsia.providers.cpu.kernels.matmul.gemm_arguments import ARGUMENTS

_FIELDS = (
    "product", "window", "stripes", "images", "words", "product_words", "scratch", "scratch_nbytes", "lines_nbytes",
    "x_nbytes", "y_nbytes",
)  # fmt: skip
_X, _Y = 8 * ARGUMENTS["a"], 8  # where the product's arguments have its input, and the window's its result
_HEAD = ("fresh", "retained_nbytes", "retained_from")  # words of a stripe before its three blocks of arguments
_CALLED = ("p", "i", "i")
MOST_WORDS = 512  # of a stripe


@dataclass(frozen=True)
class Stripe:
    """Some lines.

    Attributes:
        out: first and last + 1 line of the result.
        inner: first and last + 1 line of the map between that these see.
        retained: how many of the first of these the stripe before it computed.
        retained_from: where they stood among its lines.
    """

    out: tuple[int, int]
    inner: tuple[int, int]
    retained: int
    retained_from: int


def cut(lines: int, inner_lines: int, window: tuple[int, int, int], most: int, threads: int) -> list[Stripe]:
    """The stripes of a map with `lines` lines, of which a window (extent, stride, border before) sees `inner_lines`.

    At most `most` lines between are in memory at once, or as few as one line of the result needs; threads get equal numbers.
    """
    extent, stride, pad = window
    least = max(1, -(-(extent - stride + pad) // stride))  # what is retained must not overlap with where it goes
    each = max(least, (most - extent) // stride + 1)
    count = -(-lines // each)
    each = max(least, -(-lines // (-(-count // threads) * threads)))
    found = []
    before = (0, 0)
    for first in range(0, lines, each):
        last = min(first + each, lines)
        low = min(max(0, first * stride - pad), inner_lines)
        high = max(low, min(inner_lines, (last - 1) * stride - pad + extent))
        retained = max(0, min(before[1], high) - low)
        found.append(Stripe((first, last), (low, high), retained, low - before[0] if retained else 0))
        before = (low, high)
    return found


@functools.cache
def kernel_text(target: Target) -> KernelText:
    """The step's kernel; its arguments are `stripe_args`."""
    module = Module(target)
    body = module.kernel()
    args, tid, nthreads = body.args
    pointers = ("product", "window", "scratch")
    v = {n: body.load_pointer(args, i) if n in pointers else body.load_i64(args, i) for i, n in enumerate(_FIELDS)}
    memory = body.at(v["scratch"], body.mul(tid, v["scratch_nbytes"]))
    stripe = body.at(memory, v["lines_nbytes"])
    first, last = body.share(body.mul(v["stripes"], v["images"]), tid, nthreads)
    with body.loop(first, last) as number:
        image = body.div(number, v["stripes"])
        index = body.sub(number, body.mul(image, v["stripes"]))
        stripe_nbytes = body.mul(v["words"], 8)
        body.copy(body.at(args, 8 * len(_FIELDS), body.mul(index, stripe_nbytes)), stripe, stripe_nbytes)
        fresh, retained_nbytes, retained_from = (body.load_i64(stripe, i) for i in range(len(_HEAD)))
        lacking = body.at(stripe, 8 * len(_HEAD))
        adding = body.at(lacking, body.mul(v["product_words"], 8))
        window = body.at(adding, body.mul(v["product_words"], 8))
        for place, nbytes in (
            (body.at(lacking, _X), "x_nbytes"),
            (body.at(adding, _X), "x_nbytes"),
            (body.at(window, 8), "y_nbytes"),
        ):
            body.b.store(body.at(body.load_pointer(place, 0), body.mul(image, v[nbytes])), place)
        with body.when(body.less(0, retained_nbytes)), body.either(body.equal(number, first)) as (begins, follows):
            with begins:
                body.b.store(memory, body.at(lacking, 8 * ARGUMENTS["c"]))
                body.call_pointer(v["product"], _CALLED, [lacking, 0, 1])
            with follows:
                body.copy(body.at(memory, retained_from), memory, retained_nbytes)
        with body.when(body.less(0, fresh)):
            body.b.store(body.at(memory, retained_nbytes), body.at(adding, 8 * ARGUMENTS["c"]))
            body.call_pointer(v["product"], _CALLED, [adding, 0, 1])
        body.b.store(memory, window)
        body.call_pointer(v["window"], _CALLED, [window, 0, 1])
    body.b.ret_void()
    return module.text("stripes")


def stripe_args(
    product: Any, window: Any, scratch: Any, nbytes: Mapping[str, int], images: int,
    stripes: Sequence[tuple[Stripe, Sequence[Any], Sequence[Any], Sequence[Any]]],
) -> list[Any]:  # fmt: skip
    """The kernel's arguments: of every stripe of the first image the product's for the lines that are retained and for the
    others (their `c` is set when it runs), and the window's (its `x` likewise, the first).

    Args:
        product, window: the kernels' addresses.
        nbytes: of "lines" of a thread between, of a "line" of these, of an image "x" and of its result "y".
    """
    words = len(_HEAD) + sum(len(a) for a in stripes[0][1:])
    assert words <= MOST_WORDS
    args: list[Any] = [
        product, window, len(stripes), images, words, len(stripes[0][1]), scratch, scratch_nbytes(nbytes["lines"]),
        nbytes["lines"], nbytes["x"], nbytes["y"],
    ]  # fmt: skip
    for stripe, lacking, adding, seen in stripes:
        low, high = stripe.inner
        retained = (stripe.retained * nbytes["line"], stripe.retained_from * nbytes["line"])
        args += [high - low - stripe.retained, *retained, *lacking, *adding, *seen]
    return args


def scratch_nbytes(lines_nbytes: int) -> int:
    """Bytes of a thread: the lines between, and a stripe's arguments."""
    return lines_nbytes + 8 * MOST_WORDS
