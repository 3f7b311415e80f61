"""From a model and options to what a session runs: the cache's program, or the graph compiled for the session's providers."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from intarsia.ep.arena import Arena
from intarsia.ep.provider import CompileContext, ExecutionProvider
from intarsia.errors import Fail, InvalidArgument
from intarsia.lazy_dataclass import dataclass
from intarsia.log import session_logger
from intarsia.model import background_compile
from intarsia.model.background_compile import Underway
from intarsia.model.builder import Maker
from intarsia.model.single_program_model import DirectModel
from intarsia.model.warm_start import (
    Signature,
    Start,
    WarmStart,
    identity,
    if_it_can,
    is_unchanged,
    small_model_key,
    warm_start,
)
from intarsia.options.session_options import SessionOptions
from intarsia.printable import DEBUG
from intarsia.providers.fallback import check_taken, fallback_mode
from intarsia.providers.options import values_of
from intarsia.providers.registry import CPU, ProviderArgument, ProviderChoice, resolve, started

if TYPE_CHECKING:
    import logging

    from intarsia.graph.model import Graph
    from intarsia.model.auto_provider import Choice
    from intarsia.model.compiled_model import CompiledModel
    from intarsia.model.runnable import Runnable
    from intarsia.model.signature_verification import SignedFiles
    from intarsia.model.trace_profile import Profile
    from intarsia.ops.framework.registry import Registry

    Background: TypeAlias = tuple[Callable[[Underway], bool], Callable[[Underway, Runnable], None]]
    """Says whether a model under way still is the session's; is given it and what it was compiled to."""

CREATION_TIMEOUT = "session.creation_timeout_s"
MEMORY_LIMIT = "session.memory_limit_mib"
SHARED_ARENA = "session.use_env_allocators"
TRIPS = "session.loop_trips"


class ModelSource:
    """A session's model: where it comes from, whether it is as it was, and its graph, which is read when it is needed.

    Attributes:
        given: a path, the model's bytes, or a message (None once that was read).
        path: that of the model's file, or None.
        options: the session's.
        entry: the cache entry that the session was made from or stored as, or None.
        graph_read: the graph, where it was read.
        profile: what is told how long reading takes, or None.
    """

    def __init__(self, given: Any, options: SessionOptions) -> None:
        self.given, self.options = given, options
        self.path: str | None = os.fspath(given) if isinstance(given, (str, os.PathLike)) else None
        self.signed = _verified(given, options)
        self.entry: WarmStart | None = None
        self.graph_read: Graph | None = None
        self.profile: Profile | None = None
        self._identity, self._content = identity(given), ""

    def graph(self) -> Graph:
        """The model as a graph; a session that began from the cache loads it when somebody requests more than results."""
        if self.graph_read is None:
            from intarsia.model import load_and_optimize

            start = time.perf_counter_ns()
            self.check_unchanged()
            self.graph_read = load_and_optimize.load_model(self.given, self.options, self.signed)
            if self.signed is not None:
                self.signed.check(self.given, f"the model {os.fspath(self.given)!r}")
            if not self.can_be_read_again:
                self.given = None
            if self.profile is not None:
                kind = "model_loading_uri" if self.path is not None else "model_loading_array"
                self.profile.add("Session", kind, start)
        return self.graph_read

    @property
    def can_be_read_again(self) -> bool:
        return isinstance(self.given, (str, bytes, os.PathLike))

    def check_unchanged(self) -> None:
        """Raises Fail where the session's file is not what it was made from any more."""
        if self.entry is not None:
            same = self.entry.is_of(self.given)
        else:
            same = is_unchanged(self.given, self._identity, self._content)
        if not same:
            raise Fail(f"{self.given}: the file has changed since the session was made from it: make a new session")

    def use(self, entry: WarmStart | None) -> None:
        """A session was made: later questions whether the model has changed are about what it was made from."""
        self.entry = entry
        if entry is None:
            self._content = small_model_key(self.given, self._identity)


@dataclass(frozen=True)
class Built:
    """What a session holds of its model and providers.

    Attributes:
        choices: the providers that were requested or implied, and work here.
        mode: "session.provider_fallback": what a provider that fails does to the session.
        auto: how the providers were measured, where "auto" was requested.
        maker: compiles further graphs as the session's own was.
        signature: what the model takes and gives.
    """

    choices: tuple[ProviderChoice, ...]
    mode: str
    auto: Choice | None
    maker: Maker
    signature: Signature


class SessionBuilder:
    """Makes what a session holds, of its model and options, for some providers.

    Args:
        disabled: names of rewrite rules to leave out.
        operators: the session's own, or None.

    Attributes:
        efficient: one thread, and nothing spins ("ep.dynamic.workload_type").
    """

    def __init__(
        self, source: ModelSource, options: SessionOptions, disabled: frozenset[str], operators: Registry | None
    ) -> None:
        self.source, self.options, self.disabled, self.operators = source, options, disabled, operators
        self.profile = source.profile
        self.efficient = False

    def build(
        self,
        providers: Sequence[ProviderArgument] | str | None,
        provider_options: Sequence[Mapping[str, Any]] | None,
        background: Background,
        *,
        anew: bool,
    ) -> tuple[Built, Runnable]:
        """Everything of a session that depends on the providers; beside it the model, which its user can so let go.

        Args:
            background: who a model is for that is compiled while the session is used.
            anew: the session was made before, so that its file must not have changed since.
        """
        options, source = self.options, self.source
        if not providers and options.has_providers():
            metadata = model_metadata(source.graph()) if options.has_selection() else {}
            providers, provider_options = options.providers_for(metadata), None
        auto: Choice | None = None
        if providers in ("auto", ["auto"], ("auto",)):
            auto = self._measured(provider_options)
            providers = auto.winner.providers
        cpu_fallback = options.config("session.disable_cpu_ep_fallback") == "0"
        listed = providers if isinstance(providers, Sequence) else ()  # what else it may be `resolve` says
        named = [p if isinstance(p, str) else p[0] if isinstance(p, tuple) else p for p in listed]
        if not cpu_fallback and (not providers or CPU in named):
            raise InvalidArgument(
                f"'session.disable_cpu_ep_fallback' is '1', but {CPU} is among the providers (or none is named): name others"
            )
        mode = fallback_mode(options.config("session.provider_fallback"))
        if mode == "warn":
            from intarsia.session.process_settings import check_threads

            check_threads(options.use_per_session_threads)
        choices, instances = started(resolve(providers, provider_options, cpu_fallback=cpu_fallback, mode=mode), mode)
        if anew and source.graph_read is None:
            source.check_unchanged()
        maker = self._maker(instances, auto is not None and auto.winner.keep_islands, self.profile)
        for instance in instances:
            if type(instance).on_session is not ExecutionProvider.on_session:
                from intarsia.partition.partition import answering

                with answering(instance, "when it was told of a session"):
                    instance.on_session(maker.context)
        entry = self._warm_start(instances, maker.log)
        found = entry.find(instances[0], maker.context) if entry is not None else None
        if found is None:
            from intarsia.model.gc_pause import collection_paused

            with collection_paused():  # from loading on: each pause ends with a look at all that was made in it
                found = self._made_anew(maker, choices, mode, entry, background)
        source.use(entry)
        return Built(tuple(choices), mode, auto, maker, found.signature), found.model

    def _made_anew(
        self, maker: Maker, choices: Sequence[ProviderChoice], mode: str, entry: WarmStart | None, background: Background
    ) -> Start:
        """The model from its file, where the cache does not have it."""
        source, first = self.source, maker.providers[0]
        if first.device.host and self._is_one_program(choices):
            from intarsia.ep_context.format import program_of

            graph = source.graph()
            found = Start(Signature.of(graph, graph), DirectModel(program_of(graph, first, maker.context)))
            if source.can_be_read_again:
                source.graph_read = None  # its code is in the program; it is loaded again for `explain`
            return found
        return self._made(maker, choices, mode, entry, background)

    def _made(
        self, maker: Maker, choices: Sequence[ProviderChoice], mode: str, entry: WarmStart | None, background: Background
    ) -> Start:
        """The model compiled, or, where the first tier is to serve runs, that with what is to take its place."""
        from intarsia.model.tiers import Tiers
        from intarsia.session.tier_choice import TierChoice

        choice, first = TierChoice(self, choices, entry), maker.providers[0]
        if choice.tiers is Tiers.TUNED:  # else a first run comes before any compiler
            if_it_can(first, "when it was to get ready for a model", first.warm_up)
        graph = self.source.graph()
        ready = maker.optimised(graph)
        tiers = choice.for_graph(ready)
        if tiers is Tiers.TUNED:
            whole = self._compiled(maker, graph, ready, choices, mode, entry)
            return Start(Signature.of(graph, whole.partition.graph), whole)
        standin = maker.stand_in(ready)
        if tiers is Tiers.FIRST:
            return Start(Signature.of(graph, ready), standin)
        wanted, take = background

        def checked(model: Underway) -> bool:
            self.options.check_cancelled()
            return wanted(model)

        here = partial(self._compiled, maker, graph, ready, choices, mode, entry)
        compilation = choice.compilation(maker, here)
        return Start(Signature.of(graph, ready), Underway(standin, compilation, self.options.progress_callback, checked, take))

    def _compiled(
        self, maker: Maker, graph: Graph, ready: Graph, choices: Sequence[ProviderChoice], mode: str, entry: WarmStart | None
    ) -> CompiledModel:
        """An optimised graph compiled, and cached where that can be."""
        options, first = self.options, maker.providers[0]
        whole = maker.of_optimised(ready)
        check_taken(whole.partition, [c.name for c in choices if not c.implied], mode)
        if options.writes_contexts:
            from intarsia.session.context_export import write_context

            write_context(whole, maker.context, options, self.source.path or graph.metadata.path or None)
        precompiled = any(node.compiled_part for node in whole.partition.graph.nodes)
        if entry is not None and not precompiled and all(part.provider is first for part in whole.partition.parts):
            entry.keep(Signature.of(graph, whole.partition.graph), whole, first)
        return whole

    def _maker(self, instances: tuple[ExecutionProvider, ...], keep_islands: bool, profile: Profile | None) -> Maker:
        options = self.options
        log = session_logger(options.log_severity_level, options.logid)
        strategy = next((getattr(p.options, "arena_extend_strategy", None) for p in instances if p.device.host), None)
        entries = options.config_entries()
        if self.disabled:  # all names of rewrites to leave out in one place
            key = "optimization.disable_specified_optimizers"
            entries = {**entries, key: ";".join([entries.get(key, ""), *sorted(self.disabled)])}
        threads = options.intra_op_num_threads
        if self.efficient:
            threads, entries = 1, {**entries, "session.intra_op.allow_spinning": "0"}
        context = CompileContext(
            threads, options.use_deterministic_compute, entries,
            memory=arena_of(options, strategy), read_compiled=options.context_reader,
            inter_op_num_threads=options.inter_op_num_threads,
            parallel=options.execution_mode.name == "ORT_PARALLEL",
        )  # fmt: skip
        first_tier = options.config(background_compile.FIRST_ONLY) == "1" and [p.name for p in instances] == [CPU]
        return Maker(options, self.disabled, instances, context, log, profile, self.operators, keep_islands, first_tier)

    def _measured(self, provider_options: Sequence[Mapping[str, Any]] | None) -> Choice:
        """The providers that are fastest on this model."""
        from intarsia.model.auto_provider import SHAPES, choose
        from intarsia.model.warm_start import model_key

        if provider_options is not None:
            raise InvalidArgument("provider_options: providers='auto' takes every provider with its default options; name them")
        options, given = self.options, self.source.given
        key = model_key(given) if given is not None else None
        settings = repr((
            options.graph_optimization_level, sorted(self.disabled), options.intra_op_num_threads,
            options.use_deterministic_compute, sorted(options.free_dimension_overrides.items()),
            sorted(options.denotation_overrides.items()), sorted(options.config_entries().items()),
        ))  # fmt: skip

        def make(names: Sequence[str], keep_islands: bool) -> CompiledModel:
            instances = tuple(choice.create() for choice in resolve(list(names)))
            return self._maker(instances, keep_islands, None).compiled(self.source.graph())

        return choose(self.source.graph(), make, key, settings, options.config(SHAPES))

    def _warm_start(self, instances: tuple[ExecutionProvider, ...], log: logging.Logger) -> WarmStart | None:
        """Where this session may begin from the cache: the first provider may have the whole model and keeps programs, all work
        in host memory, and nothing changes or watches the model."""
        options = self.options
        told = options.log_severity_level == 0 or log.isEnabledFor(DEBUG)  # of the placement of every node
        watched = self.profile is not None or told or options.optimized_model_filepath
        changed = options.initializers or options.external_files or self.operators is not None
        keeps = type(instances[0]).save is not ExecutionProvider.save and all(p.device.host for p in instances)
        ahead = options.writes_contexts or options.config("session.disable_model_compile") == "1"
        ahead = ahead or options.config(background_compile.FIRST_ONLY) == "1"
        if not keeps or self.source.graph_read is not None or watched or changed or ahead:
            return None
        signed, tier_keys = self.source.signed, background_compile.KEYS
        settings = {
            "the provider": repr([(provider.name, values_of(provider.options)) for provider in instances]),
            "the optimisation": repr((options.graph_optimization_level, sorted(self.disabled))),
            "determinism": repr(options.use_deterministic_compute),
            "a dimension's name": repr(sorted(options.free_dimension_overrides.items())),
            "a dimension's denotation": repr(sorted(options.denotation_overrides.items())),
            "a configuration entry": repr(sorted(e for e in options.config_entries().items() if e[0] not in tier_keys)),
            "folders that may be read": options.whitelisted_data_folders,
            "trust": repr((options.untrusted, signed and signed.digest)),
        }
        return warm_start(self.source.given, options, settings)

    def _is_one_program(self, choices: Sequence[ProviderChoice]) -> bool:
        """Whether the model is one compiled part, for the only provider requested, and nothing changes or watches it."""
        graph, options = self.source.graph(), self.options
        if len(graph.nodes) != 1 or not graph.nodes[0].compiled_part:
            return False
        node = graph.nodes[0]
        source = node.attributes.get("source")
        requested = all(name == source for name in (choices[0].name, *(c.name for c in choices if not c.implied)))
        requested = requested and not choices[0].provider.own_contexts
        whole = node.inputs == graph.input_names() and node.outputs == graph.output_names() and not graph.overridable
        written = options.optimized_model_filepath or options.writes_contexts
        return requested and whole and not written and self.profile is None and self.operators is None


def arena_of(options: SessionOptions, strategy: str | None) -> Arena:
    """The arena of a session: one of its own, or the process's where the session requests that and one is registered.

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


def trips_of(options: SessionOptions) -> tuple[int, str] | None:
    """How many trips the loops of a run may have, and the setting that says so; None: any number.

    Raises:
        InvalidArgument: a number below 0, or none in an untrusted session.
    """
    key = TRIPS
    if options.untrusted and options.config(key) == "0":
        from intarsia.model import untrusted

        return untrusted.limit(options, untrusted.TRIPS), untrusted.TRIPS
    most = int(options.config(key))
    if most < 0:
        raise InvalidArgument(f"configuration entry {key!r}: expected a number of trips, or 0 for no limit; got {most}")
    return (most, key) if most else None


def model_metadata(graph: Graph) -> dict[str, str]:
    """What a provider selection delegate is told of a model: its fields by onnxruntime's names, and its own entries."""
    found = graph.metadata
    fields = {
        "producer_name": found.producer_name, "producer_version": found.producer_version, "domain": found.domain,
        "model_version": str(found.model_version), "doc_string": found.doc, "graph_name": graph.name,
        "graph_description": found.graph_doc,
    }  # fmt: skip
    return {**fields, **found.properties}


def limited_making(options: SessionOptions, check: Callable[[], None]) -> Callable[[], None]:
    """`check`, and the end of the time for making a session, where the options limit that.

    Raises:
        InvalidArgument: a time below 0.
    """
    text = options.config(CREATION_TIMEOUT)
    if text == "0":
        return check
    from intarsia.model.run_timeout import making

    seconds = int(text)
    if seconds < 0:
        raise InvalidArgument(f"configuration entry {CREATION_TIMEOUT!r}: expected seconds, or 0 for no limit; got {text}")
    return making(seconds, CREATION_TIMEOUT, check) if seconds else check


def reads_config(requested: Any, options: SessionOptions) -> bool:
    """Whether session options are to be read from the model: as requested, else as ORT_LOAD_CONFIG_FROM_MODEL says.

    Raises:
        InvalidArgument: it is requested, but the session is untrusted.
    """
    if options.untrusted:
        if requested:
            raise InvalidArgument("read_config_from_model: an untrusted session takes no options from the model")
        return False
    return bool(int(requested)) if requested is not None else os.environ.get("ORT_LOAD_CONFIG_FROM_MODEL") == "1"


def _verified(given: Any, options: SessionOptions) -> SignedFiles | None:
    """What the signature covers that the options ask for."""
    if not any(key.startswith("session.signature") for key in options.config_entries()):
        return None
    from intarsia.model.signature_verification import verified

    return verified(given, options)
