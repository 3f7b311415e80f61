"""Which model runs given inputs, where their sizes decide which branches run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any
from weakref import ref

from intarsia.model.shape_specialization import SizeBranches
from intarsia.session.call_paths.model_variants import variant

if TYPE_CHECKING:
    from intarsia.graph.model import Graph
    from intarsia.model.compiled_model import CompiledModel
    from intarsia.model.runnable import Runnable
    from intarsia.session.local_engine import LocalEngine


class ModelsBySize:
    """The models of one session.

    Attributes:
        branches: what finds them; once there was a run.
    """

    branches: SizeBranches | None = None

    def model(self, engine: LocalEngine, inputs: Sequence[Any]) -> Runnable:
        """The model for inputs of these sizes."""
        if self.branches is None:
            self.branches = _branches(engine)
        found = self.branches.model(inputs)
        return engine.model if found is None else found


def _branches(engine: LocalEngine) -> SizeBranches:
    from intarsia.ops import registry

    model = engine.settled_model()
    graph = engine.built.maker.optimised(engine.graph()) if model.partition is None else model.partition.graph
    operators = engine.builder.operators if engine.builder.operators is not None else registry()
    owner = ref(engine)

    def made(path: str, make_graph: Callable[[], Graph]) -> CompiledModel:
        engine = owner()
        assert engine is not None  # it looks for the model of a run
        return variant(engine, ("sizes", path), make_graph)[0]

    return SizeBranches(graph, model, operators, made)
