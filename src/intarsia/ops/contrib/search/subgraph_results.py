"""What the subgraphs of a search give, looked at before it is relied on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from intarsia.primitives import lang as k

Array = np.ndarray


def last_logits(logits: Any, whose: str, rows: int, most: int = 0) -> Array:
    """Of the last token, float32 [rows, vocabulary]; of the first `most` tokens of the vocabulary, where `most` is not 0.

    Raises:
        DefinitionError: `logits` is not [rows, tokens, vocabulary], or has no elements.
    """
    if not isinstance(logits, np.ndarray) or logits.ndim != 3 or len(logits) != rows or not logits.size:
        raise k.DefinitionError(f"logits of {whose} are {_told(logits)}; expected [{rows}, tokens, vocabulary], none of them 0")
    return logits[:, -1, : most if most > 0 else None].astype(np.float32)


def check_states(states: Sequence[Any], whose: str, rows: int, axis: int = 0, rank: int = 0) -> list[Array]:
    """The states, which are reordered along `axis`.

    Raises:
        DefinitionError: one has no such axis of `rows`, or is not of `rank` where that is not 0.
    """
    for i, x in enumerate(states):
        fits = isinstance(x, np.ndarray) and x.ndim > axis and x.shape[axis] == rows
        if not fits or rank not in (0, x.ndim):
            axes = f", and {rank} axes" if rank else ""
            raise k.DefinitionError(f"state {i} of {whose} is {_told(x)}; expected {rows} rows on axis {axis}{axes}")
    return list(states)


def _told(x: Any) -> str:
    return f"{x.dtype}{list(x.shape)}" if isinstance(x, np.ndarray) else f"a {type(x).__name__}"
