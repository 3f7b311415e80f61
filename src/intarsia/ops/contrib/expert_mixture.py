"""Mixtures of experts: how tokens choose them, how their weights are stored, and the network of each.

All of it is written once, in primitives. What differs is the order: on the host tokens of one expert are multiplied together by
its matrices, so that each matrix that is used is read once; where which experts are used is not known before a kernel runs,
matrices are gathered for a few tokens, and many tokens go through every expert.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from intarsia.graph.dims import Dim, product
from intarsia.graph.dtypes import DType
from intarsia.lazy_dataclass import dataclass
from intarsia.ops.contrib.embedding_and_blocks import unpack
from intarsia.ops.nn.activation import gelu_tanh_of
from intarsia.primitives import lang as k
from intarsia.primitives.interpreter import Operands
from intarsia.primitives.lang import Tensor

Array = np.ndarray
_JITTER = 0.01  # of the sparse mixer, as the models that use it were trained with
_LOWEST = float(np.finfo(np.float32).min)


# --- routing --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Routing:
    """How tokens choose: number of experts, whether their weights are scaled to sum 1, Phi-3.5's sparse mixer."""

    count: int
    normalize: bool
    sparse_mixer: bool

    def choose(self, logits: Tensor, mixing: Tensor | None) -> tuple[Tensor, Tensor]:
        """Experts int64 [tokens, count] by descending logit, and their weights: softmax of the logits, or entries of
        `mixing`."""
        tokens, experts = logits.shape
        if not 1 <= self.count <= _number(experts):
            raise k.DefinitionError(f"k is {self.count}; expected 1 to {experts}, the number of experts")
        wide = k.cast(logits, DType.FLOAT)
        if self.sparse_mixer:
            return self._mix(wide)
        values, places = k.sort(wide, 1, True)
        best = (tokens, self.count)
        chosen = k.strided_slice(places, [0, 0], [1, 1], best)
        if mixing is None:
            powers = k.exp(values - k.strided_slice(values, [0, 0], [1, 1], (tokens, 1)))
            weights = k.strided_slice(powers / k.reduce_sum(powers, [1], True), [0, 0], [1, 1], best)
        else:
            weights = k.index(k.cast(mixing, DType.FLOAT), [k.iota(best, 0), chosen])
        return chosen, weights / k.reduce_sum(weights, [1], True) if self.normalize else weights

    def _mix(self, logits: Tensor) -> tuple[Tensor, Tensor]:
        """The best expert and the best of the others, each weighted by a softmax over those close enough to it."""
        if self.count != 2:
            raise k.DefinitionError(f"k is {self.count}; use_sparse_mixer chooses 2 experts")
        gone = k.full(logits.shape, False, DType.BOOL)
        chosen, weights = [], []
        for _ in range(2):
            left = k.select(gone, _LOWEST, logits)
            best = k.arg_reduce(left, "max", 1, keepdims=True)
            highest = k.reduce_max(left, [1], True)
            far = (highest - logits) / k.maximum(k.absolute(logits), highest) > 2 * _JITTER
            powers = k.select(k.binary("or", gone, far), 0.0, k.exp(logits - highest))
            chosen.append(best)
            weights.append(1.0 / k.reduce_sum(powers, [1], True))
            gone = k.binary("or", gone, k.equal(k.iota(logits.shape, 1), best))
        return k.concat(chosen, 1), k.concat(weights, 1)


def _number(d: Dim) -> int:
    if not isinstance(d, int):
        raise k.SymbolicValueError("how many tokens or experts there are is known only at run time")
    return d


# --- experts --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Activation:
    """What stands between an expert's two products; the two halves of SwiGLU and GeGLU may lie in one matrix (`fusion` 1:
    interleaved). SwiGLU's `limit` is for the gate before it is activated, or `after` that."""

    kind: str
    fusion: int = 0
    alpha: float = 1.0
    beta: float = 0.0
    limit: float | None = None
    after: bool = False

    def __post_init__(self) -> None:
        if self.kind not in (*_ACTIVATIONS, *_GATED):
            raise k.DefinitionError(f"activation_type is {self.kind!r}; expected {', '.join((*_ACTIVATIONS, *_GATED))}")
        if self.after and self.kind != "swiglu":
            raise k.DefinitionError(f"swiglu_limit_after_activation is for activation_type swiglu, not {self.kind}")
        if self.fusion not in (0, 1, 2):
            raise k.DefinitionError(f"swiglu_fusion is {self.fusion}; expected 0, 1 or 2")

    def apply(self, first: Tensor, third: Tensor | None) -> Tensor:
        """`first` [.., width] (twice as wide where it holds both halves) activated, times the third matrix' product."""
        if self.kind not in _GATED:
            active = _ACTIVATIONS[self.kind](first)
            return active if third is None else active * third
        gate, line = first, third
        if self.fusion:
            gate, line = (_half(first, which, self.fusion == 1) for which in range(2))
        if line is None:
            raise k.DefinitionError(f"{self.kind} with swiglu_fusion 0 needs fc3_experts_weights")
        if self.kind == "geglu":
            return gelu_tanh_of(gate) * line
        if self.limit is not None and not self.after:
            gate = k.minimum(gate, self.limit)
        active = gate * k.sigmoid(gate * self.alpha)
        if self.limit is None:
            return active * (line + self.beta)
        if self.after:
            active = k.minimum(active, self.limit)
        return active * (k.maximum(k.minimum(line, self.limit), -self.limit) + self.beta)


_ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": lambda x: k.maximum(x, 0.0), "gelu": gelu_tanh_of, "silu": lambda x: x * k.sigmoid(x), "identity": lambda x: x,
    "relu2": lambda x: k.maximum(x, 0.0) * k.maximum(x, 0.0),
}  # fmt: skip
_GATED = ("swiglu", "geglu")


def _half(x: Tensor, which: int, interleaved: bool) -> Tensor:
    """Every second element along the last axis, or half of them."""
    half = _number(x.shape[-1]) // 2
    starts = [0] * (x.rank - 1) + [which if interleaved else which * half]
    return k.strided_slice(x, starts, [1] * (x.rank - 1) + [2 if interleaved else 1], (*x.shape[:-1], half))


@dataclass(frozen=True)
class Storage:
    """How QMoE's weights are stored: in few bits.

    `kind` int: [.., out, in * bits / 8] low bits first, scales [.., out] or [.., out, blocks], zero points packed alike. fp8:
    [.., out, in] with scales of square blocks, or one `whole` scale. fp4, wfp4afp8, nvfp4: numbers of type float4e2m1, two to
    a byte, with a scale per block of 32 (nvfp4: 16) and one `whole`.
    """

    kind: str
    bits: int
    block: int = 0


@dataclass(frozen=True)
class Layer:
    """A matrix for each expert, [.., out, in] as floats or in `storage`; bias [.., out]. The leading axes, if any, are experts
    or what chose them; all parts have them. On the host the parts are arrays until `picked` makes tensors of them."""

    values: Any
    bias: Any = None
    storage: Storage | None = None
    scales: Any = None
    zeros: Any = None
    whole: Any = None

    def picked(self, pick: Callable[[Any], Tensor]) -> Layer:
        """The same with `pick` applied to every part."""
        parts = (self.values, self.bias, self.scales, self.zeros, self.whole)
        values, bias, scales, zeros, whole = (None if x is None else pick(x) for x in parts)
        return Layer(values, bias, self.storage, scales, zeros, whole)

    def matrices(self) -> Tensor:
        """[.., in, out] float32."""
        weights = k.cast(self.values if self.storage is None else self._numbers(self.storage), DType.FLOAT)
        return k.transpose(weights, (*range(weights.rank - 2), weights.rank - 1, weights.rank - 2))

    def through(self, x: Tensor) -> Tensor:
        """x [.., rows, in] times the matrices, and the biases."""
        y = k.dot(x, self.matrices())
        return y if self.bias is None else y + k.expand_dims(k.cast(self.bias, DType.FLOAT), [y.rank - 2])

    def _numbers(self, storage: Storage) -> Tensor:
        if storage.kind == "int":
            return self._integers(storage.bits)
        if storage.kind == "fp8":
            return self._float8(storage.block)
        numbers = k.take(k.constant(FLOAT4), k.cast(unpack(self.values, 4), DType.INT32), 0)
        scales = _repeated(_present(self.scales, "scales"), numbers, -1, 16 if storage.kind == "nvfp4" else 32)
        return numbers * scales * self._whole()

    def _integers(self, bits: int) -> Tensor:
        """(number - zero point) * scale."""
        numbers = k.cast(_unpacked(self.values, bits), DType.FLOAT)
        scales = k.cast(_present(self.scales, "scales"), DType.FLOAT)
        lead, depth = numbers.shape[:-1], numbers.shape[-1]
        blocks = 1 if scales.rank == len(lead) else scales.shape[-1]
        if not isinstance(blocks, int) or not isinstance(depth, int) or depth % blocks:
            raise k.DefinitionError(f"{depth} numbers in a row do not have {blocks} scales")
        parts = k.reshape(numbers, (*lead, blocks, depth // blocks))
        factors = k.reshape(scales, (*lead, blocks, 1))
        if self.zeros is None:
            return k.reshape((parts - float(1 << (bits - 1))) * factors, numbers.shape)
        points = k.cast(_unpacked(self.zeros, bits), DType.FLOAT)
        wanted = lead if points.rank == len(lead) else (*lead, blocks)
        points = k.strided_slice(points, [0] * points.rank, [1] * points.rank, wanted)
        return k.reshape((parts - k.reshape(points, (*lead, blocks, 1))) * factors, numbers.shape)

    def _float8(self, block: int) -> Tensor:
        values = k.cast(self.values, DType.FLOAT)
        if block <= 0:
            return values * self._whole()
        return values * _repeated(_repeated(_present(self.scales, "scales"), values, -2, block), values, -1, block)

    def _whole(self) -> Tensor:
        whole = k.cast(_present(self.whole, "global_scale"), DType.FLOAT)
        return k.expand_dims(whole, [whole.rank, whole.rank + 1])


def _present(x: Tensor | None, what: str) -> Tensor:
    if x is None:
        raise k.DefinitionError(f"QMoE of this quant_type needs the inputs fc*_{what}")
    return x


FLOAT4 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6], np.float32)


def _repeated(scales: Tensor, like: Tensor, axis: int, block: int) -> Tensor:
    """Scales as float32, each for `block` neighbours along an axis, which is as long as that of `like`."""
    at = axis + scales.rank
    places = np.arange(_number(like.shape[axis])) // block
    return k.take(k.cast(scales, DType.FLOAT), k.constant(places), at)


def _unpacked(x: Tensor, bits: int) -> Tensor:
    """Bytes -> numbers of so many bits, low bits first, along the last axis; bits that are left over at its end are dropped."""
    if bits != 3:
        return unpack(x, bits)
    nbytes = _number(x.shape[-1])
    at = np.arange(nbytes * 8 // 3) * 3
    low, high = (k.cast(k.take(x, k.constant(np.minimum(at // 8 + i, nbytes - 1)), x.rank - 1), DType.INT32) for i in range(2))
    word = k.binary("bitor", low, high * 256)
    return k.binary("bitand", k.binary("shr", word, k.constant((at % 8).astype(np.int32))), 7)


# --- both together --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Mixture:
    """A node with its operands: arrays on the host, tensors elsewhere."""

    x: Any
    logits: Any
    mixing: Any
    routing: Routing
    layers: tuple[Layer, Layer, Layer | None]
    activation: Activation

    def by_expert(self) -> Array:
        """The result, of arrays: the rows of each expert that is chosen go through its network."""
        rows = self.x.reshape(-1, self.x.shape[-1]).astype(np.float32)
        self._check(len(rows))
        given = Operands()
        mixing = None if self.mixing is None else given.leaf(self.mixing)
        chosen, weights = given.values(*self.routing.choose(given.leaf(self.logits), mixing))
        out = np.zeros_like(rows)
        for expert in np.unique(chosen):
            tokens, place = np.nonzero(chosen == expert)
            given = Operands()
            layers = self._picked(functools.partial(of_expert, given, int(expert)))
            (made,) = given.values(self._network(given.leaf(rows[tokens]), layers))
            out[tokens] += made * weights[tokens, place][:, None]
        return np.asarray(out.reshape(self.x.shape).astype(self.x.dtype))

    def in_primitives(self) -> Tensor:
        """The result, of tensors: matrices are gathered where that reads less than all experts' do."""
        x, (first, _, _) = self.x, self.layers
        tokens, experts, width = _number(self.logits.shape[0]), _number(first.values.shape[0]), x.shape[-1]
        self._check(product(x.shape[:-1]))
        chosen, weights = self.routing.choose(self.logits, self.mixing)
        count = self.routing.count
        gathers = tokens * count <= experts
        layers = self._picked((lambda part: k.take(part, chosen, 0)) if gathers else lambda part: part)
        rows = k.reshape(k.cast(x, DType.FLOAT), (tokens, 1, 1, width) if gathers else (1, tokens, width))
        made = self._network(rows, layers)
        if gathers:
            total = k.reduce_sum(made * k.expand_dims(weights, [2, 3]), [1])
        else:
            mine = k.equal(k.expand_dims(chosen, [0]), k.iota((experts, tokens, count), 0))
            shares = k.reduce_sum(k.select(mine, k.expand_dims(weights, [0]), 0.0), [2])
            total = k.reduce_sum(made * k.expand_dims(shares, [2]), [0])
        return k.cast(k.reshape(total, x.shape), x.dtype)

    def _check(self, rows: Dim) -> None:
        tokens = self.logits.shape[0]
        if tokens != rows:
            raise k.DefinitionError(f"router_probs has {tokens} rows; expected {rows}, one for each token")

    def _picked(self, pick: Callable[[Any], Tensor]) -> tuple[Layer, Layer, Layer | None]:
        first, second, third = self.layers
        return first.picked(pick), second.picked(pick), None if third is None else third.picked(pick)

    def _network(self, rows: Tensor, layers: tuple[Layer, Layer, Layer | None]) -> Tensor:
        first, second, third = layers
        return second.through(self.activation.apply(first.through(rows), None if third is None else third.through(rows)))


def of_expert(given: Operands, expert: int, part: Array) -> Tensor:
    """One expert's share of a part of a layer."""
    return given.leaf(part[expert])
