"""Variants of a session's model, for feeds that it has no kernels for as it was compiled."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from intarsia.model import load_and_optimize
from intarsia.model.shape_specialization import pinned, with_any_elements, with_branches_apart, with_windows_apart
from intarsia.plan.size_constraints import BranchApart, ElementsApart, SizesApart

if TYPE_CHECKING:
    from intarsia.graph.model import Graph
    from intarsia.model.compiled_model import CompiledModel
    from intarsia.model.runnable import Runnable
    from intarsia.session.local_engine import LocalEngine
    from intarsia.values.feeds import FeedReader

_BRANCHES_APART = ("", "branches apart")
_WINDOWS_APART = ("", "windows apart")
_ELEMENTS_APART = ("", "elements apart")
_OWN_SIZES = ("", "own sizes")  # the key of a variant; others are names of initializers


def apart(engine: LocalEngine, model: Runnable, inputs: Sequence[Any], error: BranchApart | SizesApart) -> CompiledModel | None:
    """The variant that runs what `model`, one of the engine's, could not; None where it is that already."""
    if isinstance(error, BranchApart):
        return _branches_apart(engine, model)
    return _sizes_apart(engine, model, inputs, error)


def with_own_sizes(engine: LocalEngine, why: str) -> tuple[CompiledModel, FeedReader]:
    """The variant whose inputs share no sizes, and the reader of its feeds."""

    def opened() -> Graph:
        engine.log.warning("%s; the model is compiled anew without shared sizes for such inputs", why)
        return load_and_optimize.with_own_sizes(engine.graph())

    return engine.variant(_OWN_SIZES, opened)


def _sizes_apart(engine: LocalEngine, model: Runnable, inputs: Sequence[Any], error: SizesApart) -> CompiledModel | None:
    """With elements of sequences of any shape; with the sizes of inputs as numbers; and where the sizes are others, with pools
    in Python."""
    elements = isinstance(error, ElementsApart)
    numbers = pinned(engine.graph(), inputs) if model is engine.model and not elements else None
    if numbers is not None:
        return engine.variant(("pinned", *(str(getattr(x, "shape", "")) for x in inputs)), lambda: numbers)[0]
    key, change = (_ELEMENTS_APART, with_any_elements) if elements else (_WINDOWS_APART, with_windows_apart)
    known = engine.variants.get(key)
    if known is not None:
        return None if known[0] is model else known[0]
    graph = change(engine.graph())
    return None if graph is None else engine.variant(key, lambda: graph)[0]


def _branches_apart(engine: LocalEngine, model: Runnable) -> CompiledModel | None:
    """With branches that are programs of their own."""
    key = next((key for key, (known, _) in list(engine.variants.items()) if known is model), ())
    if key[-1:] == _BRANCHES_APART[-1:]:
        return None
    if model is engine.model or model.partition is None:
        return engine.variant(_BRANCHES_APART, lambda: with_branches_apart(engine.graph()))[0]
    graph = model.partition.graph
    return engine.variant((*key, *_BRANCHES_APART), lambda: with_branches_apart(graph))[0]
