"""Attention of float32 without a cache: products of heads where they lie, with softmax between them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from intarsia.graph.dtypes import DType
from intarsia.graph.model import Node
from intarsia.plan.argument_tables import Spread, Table
from intarsia.plan.array_address import address_of
from intarsia.providers.cpu.first_tier import kernel_specs
from intarsia.providers.cpu.first_tier.kernel_calls import Fast, KernelCalls, aligned, claims, is_float32, new
from intarsia.providers.cpu.kernels.matmul.gemm_arguments import matrix_args, scratch_nbytes

_FLOAT = DType.FLOAT
# Attributes that are taken, and what others are where they say nothing; those that say more are the reference's.
_TAKEN = frozenset(("scale", "is_causal", "q_num_heads", "kv_num_heads"))
_NEUTRAL = {"softcap": 0.0, "qk_matmul_output_mode": 0, "left_window_size": -1, "right_window_size": -1}


class _Heads(NamedTuple):
    """Queries, keys and values as [batch, heads, steps, size], elements of a step side by side."""

    queries: np.ndarray
    keys: np.ndarray
    values: np.ndarray


def attention(node: Node, constants: Mapping[str, np.ndarray], calls: KernelCalls) -> Fast | None:
    """Of Attention: queries, keys, values and a mask, one result."""
    found = node.attributes
    neutral = all(name in _TAKEN or _NEUTRAL.get(name) == value for name, value in found.items())
    plain = neutral and not any(node.inputs[4:]) and not any(node.outputs[1:])
    if not plain or len(node.inputs) < 3:
        return None
    numbers = int(found.get("q_num_heads", 0)), int(found.get("kv_num_heads", 0))
    causal, scale = bool(found.get("is_causal")), found.get("scale")

    def run(operands: Sequence[Any]) -> list[np.ndarray] | None:
        q, k, v = operands[:3]
        heads = _heads(q, k, v, *numbers)
        if heads is None:
            return None
        (batch, count, length, size), keys = heads.queries.shape, heads.keys.shape[2]
        mask = _mask(operands[3] if len(operands) > 3 else None, causal, (batch, count, length, keys))
        if mask is None:
            return None
        factor = np.float32(1 / math.sqrt(size) if scale is None else scale)
        y = new((batch, length, count, heads.values.shape[3]) if q.ndim == 3 else (batch, count, length, heads.values.shape[3]))
        places = y.transpose(0, 2, 1, 3) if q.ndim == 3 else y
        for i in range(batch):
            scores = new((count, length, keys))
            _product(calls, heads.queries[i] * factor, heads.keys[i].swapaxes(1, 2), scores, "columns")
            blind = mask.apply(scores, i)
            calls("softmax False", [address_of(scores), address_of(scores), count * length, keys])
            if blind is not None:
                scores[blind] = 0
            _product(calls, scores, heads.values[i], places[i], "rows")
        return [y.reshape(batch, length, -1) if q.ndim == 3 else y]

    return run


def _heads(q: Any, k: Any, v: Any, queries: int, keys: int) -> _Heads | None:
    """The three with an axis of heads; None where they do not fit each other."""
    if not is_float32(q, k, v) or not q.ndim == k.ndim == v.ndim or q.ndim not in (3, 4):
        return None
    given = []
    for x, count in ((q, queries), (k, keys), (v, keys)):
        if x.ndim == 3:
            if count < 1 or x.shape[2] % count:
                return None
            x = np.ascontiguousarray(x).reshape(*x.shape[:2], count, -1).transpose(0, 2, 1, 3)
        given.append(x if x.strides[-1] == 4 and min(x.strides) > 0 else np.ascontiguousarray(x))
    found = _Heads(*given)
    q, k, v = found
    fits = q.shape[0] == k.shape[0] == v.shape[0] and k.shape[1:3] == v.shape[1:3] and q.shape[3] == k.shape[3]
    return found if fits and q.shape[1] % k.shape[1] == 0 else None


class _Mask(NamedTuple):
    """What is added to scores, and which of them are hidden, both as [batch, heads, queries, keys]; None: nothing."""

    bias: np.ndarray | None
    hidden: np.ndarray | None

    def apply(self, scores: np.ndarray, i: int) -> np.ndarray | None:
        """Mask the scores of one batch; returns which rows see no key: they give zeros. None: all see one."""
        if self.bias is None and self.hidden is None:
            return None
        if self.bias is not None:
            scores += self.bias[i]
        if self.hidden is not None:  # whatever they are: NaN and infinities too
            scores[self.hidden[i]] = -np.inf
        return np.asarray(np.isneginf(scores).all(-1))


def _mask(mask: Any, causal: bool, shape: tuple[int, int, int, int]) -> _Mask | None:
    """What hides scores of this shape; None where the reference has to look."""
    bias: np.ndarray | None = None
    hidden: np.ndarray | None = None
    if mask is not None:
        if not isinstance(mask, np.ndarray) or not 2 <= mask.ndim <= 4 or mask.shape[-1] != shape[3]:
            return None
        if mask.dtype == np.bool_:
            hidden = ~mask
        elif mask.dtype == np.float32:
            bias = mask
        else:
            return None
    if causal:
        later = ~np.tri(shape[2], shape[3], dtype=np.bool_)
        hidden = later if hidden is None else hidden | later
    try:
        return _Mask(*(None if part is None else np.broadcast_to(part, shape) for part in (bias, hidden)))
    except ValueError:
        return None


def _product(calls: KernelCalls, a: np.ndarray, b: np.ndarray, c: np.ndarray, layout: str) -> None:
    """c[h] = a[h] b[h // (heads / groups)] of [heads, m, k], [groups, k, n] and [heads, m, n], whose last axes are contiguous,
    or b's other one ("columns")."""
    heads, m, k = a.shape
    groups, _, n = b.shape
    each = heads // groups
    spec = kernel_specs.gemm_spec(layout, bias=False)
    scratch, shared = aligned(calls.threads * scratch_nbytes(spec, calls.target, k)), claims()
    arguments = matrix_args(
        spec, calls.target, micro=calls.addresses["micro"], a=address_of(a), b=address_of(b), c=address_of(c), m=m, n=n, k=k,
        lda=a.strides[1], ldb=b.strides[2] if layout == "columns" else b.strides[1], ldc=c.strides[1],
        batch=(groups, each), a_batch=(a.strides[0] * each, a.strides[0]), b_batch=(b.strides[0], 0),
        c_batch=(c.strides[0] * each, c.strides[0]), scratch=address_of(scratch), taps=Table((Spread(0, ()),)),
        claims=address_of(shared), threads=calls.threads,
    )  # fmt: skip
    calls(f"gemm {layout} False", arguments)
