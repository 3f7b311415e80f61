"""How a session's graphs become compiled models: the stages from optimisation on, with the session's options in force."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING

from intarsia import progress
from intarsia.ep.provider import CompileContext, ExecutionProvider
from intarsia.lazy_dataclass import dataclass
from intarsia.options.session_options import SessionOptions

if TYPE_CHECKING:
    import logging

    from intarsia.graph.model import Graph
    from intarsia.model.compiled_model import CompiledModel
    from intarsia.model.trace_profile import Profile
    from intarsia.ops.framework.registry import Registry
    from intarsia.partition.partition import PartitionOptions


@dataclass(frozen=True)
class Maker:
    """`graph` in, compiled model out, with what one session has chosen; `first_tier`: the CPU's first tier, and no compiler."""

    options: SessionOptions
    disabled: frozenset[str]
    providers: tuple[ExecutionProvider, ...]
    context: CompileContext
    log: logging.Logger
    profile: Profile | None
    operators: Registry | None
    keep_islands: bool = False
    first_tier: bool = False

    def compiled(self, graph: Graph) -> CompiledModel:
        return self.of_optimised(self.optimised(graph))

    def optimised(self, graph: Graph) -> Graph:
        """A graph after the session's rewrites, with its types."""
        from intarsia.model import load_and_optimize

        with self._making():
            start = time.perf_counter_ns()
            ready = load_and_optimize.optimised(graph, self.options, self.disabled)
            if self.profile is not None:
                self.profile.add("Session", "graph_optimization", start)
            return ready

    def of_optimised(self, ready: Graph) -> CompiledModel:
        """An optimised graph, partitioned and compiled; where the first tier runs all graphs, as `stand_in`."""
        if self.first_tier:
            return self.stand_in(ready)
        from intarsia.partition.partition import PartitionOptions
        from intarsia.partition.placement_rules import parse_rules
        from intarsia.partition.stop_operators import parse_stop_operators

        entries = self.options.config_entries()
        islands, shapes = (self.options.config(f"partition.{key}") == "1" for key in ("keep_islands", "shapes_on_host"))
        stops = parse_stop_operators(entries)
        split = PartitionOptions(islands or self.keep_islands, shapes, parse_rules(entries), stops)
        return self._on(self.providers, ready, split, self.profile)

    def stand_in(self, ready: Graph) -> CompiledModel:
        """An optimised graph on what needs no compiler."""
        from intarsia.partition.partition import PartitionOptions
        from intarsia.providers.cpu.first_tier.program import FirstTierProvider

        return self._on((FirstTierProvider(),), ready, PartitionOptions(), None)

    def _on(
        self, providers: tuple[ExecutionProvider, ...], ready: Graph, split: PartitionOptions, profile: Profile | None
    ) -> CompiledModel:
        from intarsia.model.compiled_model import compile_model

        with self._making():
            model = compile_model(ready, providers, self.context, split, self.log, profile)
        return model.with_operators(self.operators)

    @contextmanager
    def _making(self) -> Iterator[None]:
        from intarsia.graph.formats.file_bytes import forget_recent
        from intarsia.model.gc_pause import collection_paused
        from intarsia.ops.framework.registry_scopes import using

        listened = progress.reported(self.options.progress_callback, self.options.check_cancelled)
        account = self.context.memory.account
        counted = account.counting() if account is not None else nullcontext()
        with listened, collection_paused(), using(self.operators), counted:
            try:
                yield
            finally:
                forget_recent()
