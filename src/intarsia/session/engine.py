"""What a session runs its model by: here (`session.local_engine`), or in a separate process (`sandbox.remote_engine`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import numpy as np

    from intarsia.ep.provider import BoundCall, CompileContext
    from intarsia.graph.model import Graph
    from intarsia.model.compiled_model import CompiledModel
    from intarsia.model.runnable import Runnable
    from intarsia.model.signature import NodeArg
    from intarsia.model.trace_profile import Profile
    from intarsia.model.warm_start import Signature
    from intarsia.options.session_options import RunOptions, SessionOptions
    from intarsia.providers.registry import ProviderArgument
    from intarsia.reports.explain import Explanation
    from intarsia.session.inspection import Inspection
    from intarsia.session.session_builder import ModelSource
    from intarsia.session.session_reports import Reports


class Engine(Protocol):
    """Everything that `InferenceSession` forwards to.

    Attributes:
        source, options, profile: the session's model, its options in force, and what is told of times (or None).
        model: what runs.
        watched: whether a run is more than its results, so that neither its `fast_calls` nor what `bound` gave may be called.
        output_names: all outputs, in the model's order.
        providers: names in order of priority.
        may_fall_back: whether a provider that fails in a run may be left out.
    """

    source: ModelSource
    options: SessionOptions
    model: Runnable
    watched: bool
    output_names: list[str]
    signature: Signature
    providers: list[str]
    may_fall_back: bool

    @property
    def profile(self) -> Profile | None: ...
    @property
    def inputs_meta(self) -> list[NodeArg]: ...
    @property
    def outputs_meta(self) -> list[NodeArg]: ...
    @property
    def overridable_meta(self) -> list[NodeArg]: ...
    @property
    def bindable(self) -> frozenset[str]: ...
    @property
    def is_compiled(self) -> bool: ...
    @property
    def closed(self) -> bool: ...

    def create(
        self, providers: Sequence[ProviderArgument] | str | None, provider_options: Sequence[Mapping[str, Any]] | None
    ) -> None:
        """Make everything that depends on the providers; nothing changes before all of it has succeeded."""

    def run(
        self, output_names: Sequence[str] | None, input_feed: Any, run_options: RunOptions | None = None,
        timeout: float | None = None, framework: str | None = None, taps: Sequence[str] | None = None,
    ) -> list[Any]:  # fmt: skip
        """As `InferenceSession.run`."""

    def run_on_devices(
        self, output_names: Sequence[str], input_feed: Any, run_options: RunOptions | None, stay: frozenset[str]
    ) -> list[Any]:
        """`run`, whose outputs `stay` are device tensors where a device made them."""

    def run_into(self, feed: Mapping[str, Any], targets: Mapping[str, Any]) -> list[Any] | None:
        """All outputs, each written into its target; None where `run` has to make them."""

    def bound(self, model: Runnable, inputs: list[np.ndarray], targets: Mapping[str, Any]) -> BoundCall | None:
        """What runs `model` on fixed memory, or None, as where runs are watched."""

    def recovers(self, error: BaseException, model: Runnable) -> bool:
        """After an error in a run of `model`: whether the session was made anew without the provider that failed."""

    def graph(self) -> Graph: ...
    def whole_model(self) -> CompiledModel: ...
    def compile_context(self) -> CompileContext: ...
    def explain(self) -> Explanation: ...
    def inspection(self) -> Inspection: ...
    def reports(self) -> Reports: ...
    def option_texts(self) -> dict[str, dict[str, str]]: ...
    def wait_until_compiled(self, timeout: float | None) -> None: ...
    def set_efficient(self, efficient: bool | None) -> None: ...
    def set_dynamic_options(self, options: Mapping[str, str]) -> bool: ...
    def release_graphs(self) -> None: ...
    def end_profiling(self) -> str: ...
    def stop_watching_states(self) -> None: ...
    def close(self) -> None: ...
