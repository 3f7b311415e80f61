"""Variants of a session's model, for feeds that it has no kernels for as it was compiled, and which of them a feed is for."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from intarsia.model import load_and_optimize
from intarsia.model.shape_specialization import pinned, with_any_elements, with_separate_branches, with_windows_on_host
from intarsia.plan.size_constraints import BranchNeedsVariant, ElementsNeedVariant, SizesNeedVariant
from intarsia.values.feeds import FeedReader, SizesDiffer

if TYPE_CHECKING:
    from intarsia.graph.model import Graph
    from intarsia.model.closed_model import ClosedModel
    from intarsia.model.compiled_model import CompiledModel
    from intarsia.model.runnable import Runnable
    from intarsia.session.local_engine import LocalEngine

_SEPARATE_BRANCHES = ("", "separate branches")
_WINDOWS_ON_HOST = ("", "windows on host")
_ANY_ELEMENTS = ("", "any elements")
_OWN_SIZES = ("", "own sizes")  # the key of a variant; others are names of initializers


def read(engine: LocalEngine, feed: Any) -> tuple[Runnable, list[Any]]:
    """The model for a feed and its inputs. Where these give one symbol two sizes, as onnxruntime allows, it is a model without
    that symbol."""
    model, reader = _model_for(engine, feed)
    differ = ""
    try:
        inputs = reader.read(feed)
    except SizesDiffer as error:
        if reader is not engine.reader:
            raise
        differ = str(error)
    if differ:
        model, reader = with_own_sizes(engine, differ)
        return model, reader.read(feed)
    if engine.by_sizes is not None and model is engine.model:
        model = engine.by_sizes.model(engine, inputs)
    return model, inputs


def _model_for(engine: LocalEngine, feed: Any) -> tuple[Runnable, FeedReader | ClosedModel]:
    """The compiled model for a feed: where it overrides initializers, one that takes those as inputs."""
    given = overridden(engine, feed)
    if not given:
        return engine.model, engine.reader
    return variant(engine, given, lambda: load_and_optimize.with_inputs(engine.graph(), given))


def overridden(engine: LocalEngine, feed: Any) -> tuple[str, ...]:
    """The initializers for which the feed has other values."""
    return tuple(v.name for v in engine.signature.overridable if v.name in feed) if isinstance(feed, Mapping) else ()


def variant(engine: LocalEngine, key: tuple[str, ...], make_graph: Callable[[], Graph]) -> tuple[CompiledModel, FeedReader]:
    """The variant `key` of the model; compiled from the graph that `make_graph` gives where it is not there."""
    with engine.variants_lock:
        engine.check_open()
        variants = engine.variants  # others, where the session is closed or made anew meanwhile
        if key not in variants:
            graph = make_graph()
            variants[key] = (engine.built.maker.compiled(graph), FeedReader(graph.inputs))
        return variants[key]


def other_variant(
    engine: LocalEngine, model: Runnable, inputs: Sequence[Any], error: BranchNeedsVariant | SizesNeedVariant
) -> CompiledModel | None:  # fmt: skip
    """The variant that runs what `model`, one of the engine's, could not; None where it is that already."""
    if isinstance(error, BranchNeedsVariant):
        return _with_separate_branches(engine, model)
    return _by_sizes(engine, model, inputs, error)


def with_own_sizes(engine: LocalEngine, why: str) -> tuple[CompiledModel, FeedReader]:
    """The variant whose inputs share no sizes, and the reader of its feeds."""

    def make_graph() -> Graph:
        engine.log.warning("%s; the model is compiled anew without shared sizes for such inputs", why)
        return load_and_optimize.with_own_sizes(engine.graph())

    return variant(engine, _OWN_SIZES, make_graph)


def _by_sizes(engine: LocalEngine, model: Runnable, inputs: Sequence[Any], error: SizesNeedVariant) -> CompiledModel | None:
    """With elements of sequences of any shape; with the sizes of inputs as numbers; and where the sizes are others, with pools
    in Python."""
    elements = isinstance(error, ElementsNeedVariant)
    numbers = pinned(engine.graph(), inputs) if model is engine.model and not elements else None
    if numbers is not None:
        return variant(engine, ("pinned", *(str(getattr(x, "shape", "")) for x in inputs)), lambda: numbers)[0]
    key, change = (_ANY_ELEMENTS, with_any_elements) if elements else (_WINDOWS_ON_HOST, with_windows_on_host)
    known = engine.variants.get(key)
    if known is not None:
        return None if known[0] is model else known[0]
    graph = change(engine.graph())
    return None if graph is None else variant(engine, key, lambda: graph)[0]


def _with_separate_branches(engine: LocalEngine, model: Runnable) -> CompiledModel | None:
    """With branches that are programs of their own."""
    key = next((key for key, (known, _) in list(engine.variants.items()) if known is model), ())
    if key[-1:] == _SEPARATE_BRANCHES[-1:]:
        return None
    if model is engine.model or model.partition is None:
        return variant(engine, _SEPARATE_BRANCHES, lambda: with_separate_branches(engine.graph()))[0]
    graph = model.partition.graph
    return variant(engine, (*key, *_SEPARATE_BRANCHES), lambda: with_separate_branches(graph))[0]
