"""What a session says about its runs: profiles and memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from intarsia.ep.arena import Arena
from intarsia.errors import InvalidArgument
from intarsia.model.background_compile import Underway

if TYPE_CHECKING:
    from intarsia.graph.model import Graph
    from intarsia.model.background_compile import AnyModel
    from intarsia.model.compiled_model import CompiledModel
    from intarsia.model.single_program_model import DirectModel
    from intarsia.model.trace_profile import Profile
    from intarsia.options.session_options import SessionOptions
    from intarsia.reports.memory_report import MemoryReport
    from intarsia.reports.profile_report import ProfileReport
    from intarsia.runtime.roofline import Roofline


MEMORY_LIMIT = "session.memory_limit_mib"
SHRINKAGE = "memory.enable_memory_arena_shrinkage"
SHARED_ARENA = "session.use_env_allocators"


def arena_of(options: SessionOptions, strategy: str | None) -> Arena:
    """The arena of a session: one of its own, or the process's where the session asks for that and one is registered.

    Raises:
        InvalidArgument: a negative limit; a limit or strategy for an arena that is shared.
    """
    key = MEMORY_LIMIT
    if options.untrusted and options.config(key) == "0":
        key = "untrusted.memory_mib"
    text = options.config(key)
    limit = int(text)
    if limit < 0:
        raise InvalidArgument(f"{key!r}: expected mebibytes, or 0 for no limit; got {text}")
    if options.config(SHARED_ARENA) == "1":
        from intarsia.values.ort_device import shared_arena

        shared = shared_arena()
        if shared is not None:
            if limit or strategy:
                what = f"{key!r} is {text!r}" if limit else f"'arena_extend_strategy' is {strategy!r}"
                raise InvalidArgument(
                    f"{what}, but {SHARED_ARENA!r} is '1': give it to create_and_register_allocator by an OrtArenaCfg"
                )
            return shared
    arena = Arena(limit << 20, f"{key!r} = {text!r}", strategy, keep=options.enable_cpu_mem_arena)
    if limit:
        from intarsia.runtime.counted_memory import account_of

        arena.account = account_of(arena.limit, arena.setting)
    return arena


class SessionReports:
    """Base of `InferenceSession`; see there."""

    _graph: Callable[[], Graph]
    _profiled: Callable[[Graph, Profile], CompiledModel]
    _signature: Any
    _reader: Any
    _sess_options: SessionOptions
    _model: AnyModel
    _settled_model: Callable[[], CompiledModel | DirectModel]
    _arena: Callable[[], Arena]
    _variants: dict[Any, Any]
    _providers: list[str]

    def profile(self, input_feed: Any, runs: int = 10, *, warmup: int = 2, roofline: bool = True) -> ProfileReport:
        """Where the time of a run goes: by kernel, operator, layer of the model and provider, with copies apart.

        The model is compiled once more for it (mostly from the cache); the session's own runs stay as they are.

        Args:
            input_feed: as for `run`.
            runs, warmup: how many runs are timed, and how many come before them.
            roofline: compare with what the machine can do at most, which takes a second where it was not measured before.

        Raises:
            InvalidArgument: the feed, or the number of runs.
            Fail, EPFail: a run.
        """
        from intarsia.model import load_and_optimize
        from intarsia.model.shape_specialization import pinned, with_any_elements, with_branches_apart, with_windows_apart
        from intarsia.model.trace_profile import Profile
        from intarsia.plan.size_constraints import BranchApart, SizesApart
        from intarsia.reports.profile_report import measure
        from intarsia.values.feeds import FeedReader

        given = [v.name for v in self._signature.overridable if isinstance(input_feed, dict) and v.name in input_feed]
        graph = load_and_optimize.with_inputs(self._graph(), given) if given else self._graph()
        reader = FeedReader(graph.inputs) if given else self._reader
        inputs = reader.read(input_feed)

        def measured(graph: Graph) -> ProfileReport:
            trace = Profile()
            model = self._profiled(graph, trace)
            return measure(model, inputs, trace, runs, warmup, self._roofline(model) if roofline else None)

        made = (make(graph) for make in (partial(pinned, inputs=inputs), with_any_elements, with_windows_apart))
        others, other = filter(None, made), graph
        while True:
            try:
                return measured(other)  # the first run says whether sizes ask for another model
            except BranchApart:
                return measured(with_branches_apart(other))
            except SizesApart:
                following = next(others, None)
                if following is None:
                    raise
                other = following

    def _roofline(self, model: CompiledModel) -> Roofline | None:
        """What the machine can do at most for the model's kernels; None where the CPU provider has no part of it."""
        from intarsia.providers.registry import CPU
        from intarsia.runtime.roofline import roofline

        if all(part.provider.name != CPU for part in model.partition.parts):
            return None
        titles = (n.kernel for p in model.programs for n in p.nodes())
        less = {title.rpartition("(")[2].removesuffix(")") for title in titles if title.endswith(")")}
        return roofline(self._sess_options.intra_op_num_threads, less=sorted(less))

    def memory_report(self, shapes: Mapping[str, Sequence[int]] | None = None) -> MemoryReport:
        """Who holds what: weights (mapped, in the model's bytes, packed), and for each shape of the inputs the memory of
        intermediate tensors, workspace and outputs, by provider.

        Args:
            shapes: by input: say what a run on inputs of these shapes would need too. Nothing is run.

        Raises:
            InvalidArgument: an input is not there, of another rank or size, or a size that is needed is missing.
        """
        from intarsia.reports.memory_report import MemoryReport

        models = [self._settled_model(), *(model for model, _ in tuple(self._variants.values()))]
        return MemoryReport.of(models, self._providers, self._signature.inputs, shapes, self._arena().statistics())

    def _shrink(self, model: AnyModel, devices: str) -> None:
        """Give back what no run uses on the devices that a run names: "cpu:0;gpu:0"."""
        from intarsia.reports.memory_report import shrink

        if not isinstance(model, Underway):  # what serves meanwhile keeps none
            shrink(model, devices)
