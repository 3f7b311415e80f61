"""Inputs and attributes that operators of attention share, as parameters of their definitions."""

from __future__ import annotations

from typing import Any

from intarsia.lazy_dataclass import dataclass
from intarsia.ops.framework.parameter_groups import ParameterGroup
from intarsia.primitives.lang import Tensor


@dataclass(frozen=True)
class QueryKeyValue(ParameterGroup):
    """Queries, keys and values; a query alone may hold all three."""

    query: Tensor
    key: Tensor | None = None
    value: Tensor | None = None


@dataclass(frozen=True)
class PastKeyValue(ParameterGroup):
    """Keys and values of earlier calls, [batch, heads, tokens, size]."""

    past_key: Tensor | None = None
    past_value: Tensor | None = None

    @property
    def pair(self) -> tuple[Tensor, Tensor] | tuple[None, None]:
        """Both, or neither where one is left out."""
        return (None, None) if self.past_key is None or self.past_value is None else (self.past_key, self.past_value)


@dataclass(frozen=True)
class RotaryTables(ParameterGroup):
    """Cosines and sines of the angles by which queries and keys are turned, [positions, size / 2]."""

    cos_cache: Tensor | None = None
    sin_cache: Tensor | None = None


@dataclass(frozen=True)
class PlacedRotaryTables(RotaryTables):
    """With the position of each token."""

    position_ids: Tensor | None = None


@dataclass(frozen=True)
class SequenceLengths(ParameterGroup):
    """How many tokens each row of a batch has, less one, and how many the longest one has, or will have."""

    seqlens_k: Tensor | None = None
    total_sequence_length: Any = None  # a `values` input: an array of a Dim


@dataclass(frozen=True)
class AttentionAttributes(ParameterGroup):
    """Attributes of com.microsoft's attention; a scale of 0 is 1 / sqrt(head size)."""

    num_heads: int
    mask_filter_value: float = -10000.0
    scale: float = 0.0
