"""What a session says about its runs: profiles and memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from intarsia.compiled import CompiledModel
    from intarsia.graph.model import Graph
    from intarsia.options import SessionOptions
    from intarsia.profile import Profile
    from intarsia.profile_report import ProfileReport


class SessionReports:
    """Base of `InferenceSession`; see there."""

    _graph: Callable[[], Graph]
    _profiled: Callable[[Graph, Profile], CompiledModel]
    _signature: Any
    _sess_options: SessionOptions

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
        from intarsia import prepare
        from intarsia.feeds import FeedReader
        from intarsia.profile import Profile
        from intarsia.profile_report import measure
        from intarsia.providers.registry import CPU

        given = [v.name for v in self._signature.overridable if isinstance(input_feed, dict) and v.name in input_feed]
        graph = prepare.with_inputs(self._graph(), given) if given else self._graph()
        inputs = FeedReader(graph.inputs).read(input_feed)
        trace = Profile()
        model = self._profiled(graph, trace)
        roof = None
        if roofline and any(part.provider.name == CPU for part in model.partition.parts):
            from intarsia.runtime.roofline import roofline as measured

            roof = measured(self._sess_options.intra_op_num_threads)
        return measure(model, inputs, trace, runs, warmup, roof)
