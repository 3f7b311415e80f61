"""Attention kernels on NumPy arrays, and what they should give."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("llvmlite", reason="the templates are compiled with llvmlite")

import template_kernels as t

from intarsia.providers.cpu.kernels.attention import (
    attention_arguments,
    few_queries_kernel,
    many_queries_kernel,
    pack_keys_values,
)
from intarsia.providers.cpu.kernels.attention.attention_arguments import (
    AttentionShape,
    AttentionSpec,
    Heads,
    KeysAndValues,
    Operands,
    Resources,
    Scoring,
)
from intarsia.providers.cpu.kernels.attention.many_queries_microkernel import lane_micro_text
from intarsia.providers.cpu.kernels.common.panels import aligned_zeros
from intarsia.providers.cpu.kernels.matmul.vnni_kernel import tiled_pairs_text

TAPS = np.array(attention_arguments.taps(t.host()), np.int64)
PLAIN = AttentionSpec()


def reference(
    q: np.ndarray, k: np.ndarray, v: np.ndarray, scale: float, bias: object = 0.0, softcap: float = 0.0
) -> np.ndarray:
    """softmax(scale q k^T + bias) v in float64; rows of -infinity become zeros."""
    group = q.shape[1] // k.shape[1]
    k, v = (np.repeat(x.astype(np.float64), group, 1) for x in (k, v))
    scores = q.astype(np.float64) @ k.swapaxes(-1, -2) * scale
    if softcap:
        scores = np.tanh(scores / softcap) * softcap
    scores = scores + bias
    highest = scores.max(-1, keepdims=True)
    powers = np.exp(scores - np.where(np.isneginf(highest), 0, highest))
    total = powers.sum(-1, keepdims=True)
    return powers / np.where(total == 0, 1, total) @ v


def heads(x: np.ndarray) -> Heads:
    return Heads(x.ctypes.data, *(s if n > 1 else 0 for n, s in zip(x.shape[:3], x.strides, strict=False)))


def operands(size: tuple[int, ...], joined: bool = False) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Q, K and V [batch, heads, rows, size]; `joined`: views of [batch, rows, heads, size]."""
    batch, many, few, queries, keys, width, vwidth = size
    rng = np.random.default_rng(sum(size))
    shapes = ((many, queries, width), (few, keys, width), (few, keys, vwidth))
    if joined:
        q, k, v = (t.random(rng, batch, s, h, d).transpose(0, 2, 1, 3) for h, s, d in shapes)
    else:
        q, k, v = (t.random(rng, batch, h, s, d) for h, s, d in shapes)
    return q, k, v


def attend(
    q: np.ndarray, k: np.ndarray, v: np.ndarray, spec: AttentionSpec = PLAIN, *, nthreads: int = 1,
    joined: bool = False, mask: np.ndarray | None = None, kernel: str = "rows", offset: int = 0, step: int = 1,
    lengths: np.ndarray | None = None, more: int = 0, scale: float = 0.3, **scoring: Any,
) -> np.ndarray:  # fmt: skip
    """The result of the kernel for few queries ("rows") or for many ("lanes"), its scratch filled with NaN before, the memory
    around the output checked."""
    batch, many, queries, width = q.shape
    shape = AttentionShape(batch, many, k.shape[1], queries, k.shape[2], width, v.shape[3], offset, step)
    laid = (batch, queries, many, v.shape[3]) if joined else (batch, many, queries, v.shape[3])
    memory, whole = t.guarded(laid)
    out = memory.transpose(0, 2, 1, 3) if joined else memory
    stored = KeysAndValues(heads(k), heads(v), 0 if lengths is None else lengths.ctypes.data, more)
    given = Operands(heads(q), stored, heads(out), Heads(0) if mask is None else heads(mask))
    run = _by_lanes if kernel == "lanes" else _by_rows
    run(spec, shape, nthreads, given, Scoring(scale, **scoring))
    t.check_margin(whole)
    return out


def _scratch(nbytes: int) -> np.ndarray:
    scratch = aligned_zeros((nbytes + 64,), np.uint8)
    scratch[:] = 0xFF
    return scratch


def _by_rows(spec: AttentionSpec, shape: AttentionShape, nthreads: int, given: Operands, scoring: Scoring) -> None:
    scratch = _scratch(attention_arguments.scratch_nbytes(shape, t.host(), nthreads))
    pack = t.address(few_queries_kernel.pack_text(t.host()))
    uses = Resources(t.micro(), TAPS.ctypes.data, scratch.ctypes.data, pack)
    args = attention_arguments.attention_args(spec, t.host(), shape, nthreads, given, scoring, uses)
    t.run(few_queries_kernel.kernel_text(spec, t.host()), args, nthreads)
    assert (scratch[-64:] == 0xFF).all(), "written behind the scratch"


def _by_lanes(spec: AttentionSpec, shape: AttentionShape, nthreads: int, given: Operands, scoring: Scoring) -> None:
    target, tile = t.host(), attention_arguments.lane_tile(t.host())
    scratch = _scratch(attention_arguments.lane_scratch_nbytes(shape, target, nthreads))
    elements = [n * shape.batch * shape.kv_heads for n in attention_arguments.packed_elements(shape, target)]
    packed = keys, values = [_scratch(4 * n) for n in elements]
    places = keys.ctypes.data, values.ctypes.data
    args = attention_arguments.lane_pack_args(spec, target, shape, given.stored, places, scoring)
    t.run(pack_keys_values.pack_text(spec.lengths, target, spec.pairs), args, nthreads)
    claims = np.zeros(1, np.int64)
    micro = t.address(tiled_pairs_text(tile, target) if spec.pairs else lane_micro_text(tile, target))
    uses = Resources(micro, TAPS.ctypes.data, scratch.ctypes.data, claims=claims.ctypes.data)
    given = given._replace(stored=given.stored._replace(k=Heads(places[0]), v=Heads(places[1])))
    args = attention_arguments.lane_args(spec, target, shape, given, scoring, uses)
    t.run(many_queries_kernel.kernel_text(spec, target), args, nthreads)
    assert claims[0] == 0, "the count of claims is left for the next run"
    for memory in (scratch, *packed):
        assert (memory[-64:] == 0xFF).all(), "written behind the scratch"
