"""LinearAttention of ONNX and com.microsoft by a kernel that loops over the steps of the sequence."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import field
from typing import TYPE_CHECKING

import numpy as np

from intarsia.codegen.llvm.target import Target
from intarsia.graph.dims import Dim, floordiv, product
from intarsia.graph.dtypes import DType
from intarsia.graph.model import Node
from intarsia.lazy_dataclass import dataclass
from intarsia.plan.step import SCRATCH, Argument, Below, Ref, ScratchCall, Sizes, Step
from intarsia.providers.cpu.kernels.attention import linear_attention_kernel as template
from intarsia.providers.cpu.kernels.attention.linear_attention_kernel import Form
from intarsia.providers.cpu.kernels.common.epilogue import Epilogue
from intarsia.providers.cpu.kernels.common.template import FusedOperand, Template, Workspace
from intarsia.providers.cpu.kernels.common.tensor_spec import operand_specs, spec_of

if TYPE_CHECKING:
    from intarsia.ops.framework.infer import Inference

_SERIAL_PRODUCTS = 32768
_RULES = ("linear", "gated", "delta", "gated_delta")
_FEWEST, _MOST = 3, 6  # inputs


def linear_attention(node: Node, inference: Inference) -> Template | None:
    """LinearAttention in float32, where the numbers of heads fit and what a rule needs is given."""
    found = (*operand_specs(node, inference), *(None,) * _MOST)[:_MOST]
    names = (*node.inputs, *("",) * _MOST)[:_MOST]
    out, present = (spec_of(inference.types.get(n)) if n else None for n in (*node.outputs, "")[:2])
    known = [t for t, n in zip(found, names, strict=True) if n]
    if any(t is None or t.dtype is not DType.FLOAT for t in known) or None in found[:_FEWEST]:
        return None
    attributes = node.attributes
    rule, window = attributes.get("update_rule", "gated_delta"), int(attributes.get("state_window", 0))
    queries, states = int(attributes["q_num_heads"]), int(attributes["kv_num_heads"])
    gated, delta = str(rule).startswith("gated"), str(rule).endswith("delta")
    fits = min(queries, states) > 0 and max(queries, states) % min(queries, states) == 0 and (node.domain or queries >= states)
    exact = node.domain or (gated == bool(names[4]) and delta == bool(names[5]))
    if rule not in _RULES or not fits or not exact or (gated and not names[4]) or (delta and not names[5]):
        return None
    shapes = [t.shape if t is not None else () for t in found]
    if any(len(s) != 3 for s, n in zip(shapes, names, strict=True) if n and s is not shapes[3]):
        return None
    width = shapes[4][2] if gated else states
    rates = shapes[5][2] if delta else states
    if not isinstance(width, int) or width % states or rates not in (1, states):
        return None
    wanted = len(node.outputs) > 1 and bool(node.outputs[1])
    if out is None or (wanted and present is None):
        return None
    sizes = (floordiv(shapes[0][2], queries), floordiv(shapes[2][2], states))
    made = LinearAttention(
        node, names, found, out, takes_epilogue=False, rule=(gated, delta), window=window, heads=(queries, states), sizes=sizes
    )
    wrong = any(a != b and isinstance(a, int) and isinstance(b, int) for a, b in made.equal_sizes())
    return None if wrong else made


@dataclass(frozen=True)
class LinearAttention(Template):
    rule: tuple[bool, bool] = field(kw_only=True)
    window: int = field(kw_only=True)
    heads: tuple[int, int] = field(kw_only=True)
    sizes: tuple[Dim, Dim] = field(kw_only=True)

    @property
    def outputs(self) -> tuple[str, ...]:
        return tuple(n for n in self.node.outputs if n)

    def _shape(self, i: int) -> tuple[Dim, ...]:
        kind = self.types[i]
        return kind.shape if kind is not None else ()

    def equal_sizes(self) -> Sequence[tuple[Dim, Dim]]:
        """Batch and steps agree, and so do the widths of heads."""
        (queries, states), (key, value) = self.heads, self.sizes
        q, k, v, past, decay, beta = (self._shape(i) for i in range(_MOST))
        pairs = [(q[2], key * queries), (k[2], key * states), (v[2], value * states)]
        used = [k, v, *([decay] if self.rule[0] else []), *([beta] if self.rule[1] else [])]
        pairs += [pair for x in used for pair in ((x[0], q[0]), (x[1], q[1]))]
        if self.rule[0] and decay[2] != states:
            pairs.append((decay[2], key * states))
        if past:
            wanted = ((self.window,) if self.window else ()) + (q[0], states, key, value)
            pairs += list(zip(past, wanted, strict=True)) if len(past) == len(wanted) else [(len(past), len(wanted))]
        return pairs

    def _form(self, target: Target) -> Form:
        lanes = target.vector_bytes // 4
        value = self.sizes[1]
        vectors = 2 if not isinstance(value, int) else max(1, min(template.MAX_VECTORS, -(-value // lanes)))
        return Form(vectors, *self.rule, windowed=self.window > 0)

    def steps(
        self, target: Target, workspace: Workspace, epilogue: Epilogue | None, operands: Sequence[FusedOperand], out: str
    ) -> list[Step]:
        form, (queries, states), q = self._form(target), self.heads, self._shape(0)
        used = [True, True, True, True, *self.rule]
        reads = tuple(n for n, use in zip(self.reads, used, strict=True) if n and use)
        call = LinearAttentionCall(
            tuple([n if use else "" for n, use in zip(self.reads, used, strict=True)]), (*self.node.outputs, "")[:2], form,
            target, self.heads, self.sizes, (q[0], q[1]), self._shape(4)[2] if self.rule[0] else states,
            self._shape(5)[2] if self.rule[1] else states, self.window, float(self.node.attributes.get("scale", 0.0)),
        )  # fmt: skip
        work = product((q[0], q[1], max(queries, states), *self.sizes))
        return [
            Step(
                template.kernel_text(form, target), reads, self.outputs, call,
                serial=Below(work, _SERIAL_PRODUCTS), label="linear attention",
            )
        ]  # fmt: skip


@dataclass(frozen=True)
class LinearAttentionCall(ScratchCall):
    """The steps of all heads.

    Attributes:
        reads: queries, keys, values, past state, decay, beta; "" where the rule uses none.
        writes: the result and the state, "" where it is not wanted.
        heads: of queries, and of states; `sizes`: of a key, and of a value.
        steps: the batch, and how many steps it takes.
        decays, rates: numbers of a step of `decay`, and of `beta`.
        window: see `LinearAttention`.
        scale: of queries; 0: one over the root of a key's size.
    """

    reads: tuple[str, ...]
    writes: tuple[str, ...]
    kernel: Form
    target: Target
    heads: tuple[int, int]
    sizes: tuple[Dim, Dim]
    steps: tuple[Dim, Dim]
    decays: Dim
    rates: Dim
    window: int
    scale: float

    @property
    def form(self) -> object:
        given = tuple(map(bool, self.reads)), tuple(map(bool, self.writes)), self.kernel, self.target, self.heads, self.sizes
        return (*given, self.steps, self.decays, self.rates, self.window, self.scale)

    def scratch_nbytes(self, size: Sizes, threads: int) -> int:
        return threads * template.scratch_nbytes(self.kernel, size(self.sizes[0]), self.target)

    def arguments(self, size: Sizes, threads: int) -> Sequence[Argument]:
        (queries, states), (key, value) = self.heads, map(size, self.sizes)
        scale = self.scale or 1.0 / math.sqrt(max(key, 1))
        buffers = [Ref(n) if n else 0 for n in (*self.reads, *self.writes)]
        blocks = -(-value // template.block_columns(self.kernel, self.target))
        return [
            *buffers, np.array([scale], np.float32), Ref(SCRATCH), *map(size, self.steps), states,
            max(queries, states) // states, key, value, queries, blocks, states, size(self.decays) // states,
            size(self.rates), self.window, template.scratch_nbytes(self.kernel, key, self.target),
        ]  # fmt: skip
