"""Whether a session that is not in the cache starts on the first tier, and who compiles meanwhile."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

from intarsia.errors import InvalidArgument
from intarsia.model import compile_process
from intarsia.model.background_compile import FIRST_ONLY, Compilation, InProcess
from intarsia.model.single_program_model import DirectModel
from intarsia.model.tiers import Tiers, draws_numbers, tiers_of
from intarsia.ops import registry
from intarsia.providers.cpu import CPUExecutionProvider
from intarsia.providers.registry import CPU
from intarsia.runtime.read_ahead import KEY as READ_AHEAD

if TYPE_CHECKING:
    from intarsia.graph.model import Graph
    from intarsia.model.builder import Maker
    from intarsia.model.compiled_model import CompiledModel
    from intarsia.model.warm_start import WarmStart
    from intarsia.providers.registry import ProviderChoice
    from intarsia.session.session_builder import SessionBuilder


class TierChoice:
    """The tiers of one session.

    Args:
        entry: its place in the cache, or None.

    Attributes:
        tiers: what the options and this machine allow, before the model is read.

    Raises:
        InvalidArgument: the first tier alone is requested, and not for the CPU alone.
    """

    def __init__(self, builder: SessionBuilder, choices: Sequence[ProviderChoice], entry: WarmStart | None) -> None:
        self._builder, self._choices, self._entry = builder, choices, entry
        self.tiers = tiers_of(builder.options)
        names = [choice.name for choice in choices]
        written = builder.options.writes_contexts
        if self.tiers is Tiers.FIRST and (names != [CPU] or written):
            if FIRST_ONLY in builder.options.config_entries():
                why = "'ep.context_enable' requires kernels" if written else f"the providers are {', '.join(names)}"
                raise InvalidArgument(f"{FIRST_ONLY!r} is '1', which compiles nothing and is the CPU's alone, but {why}")
            self.tiers = Tiers.TUNED
        if self.tiers is Tiers.CHANGING_BY_PROCESS and not (self._can_be_in_process() and _has_kernels()):
            self.tiers = Tiers.TUNED

    def _can_be_in_process(self) -> bool:
        """Whether another process can make the same session: of the package's own CPU provider, through the cache."""
        own = all(choice.instance is None and choice.provider is CPUExecutionProvider for choice in self._choices)
        trusted = not self._builder.options.untrusted
        return own and trusted and self._entry is not None and compile_process.can_be_started()

    def for_graph(self, ready: Graph) -> Tiers:
        """The same, now that the model is there and optimised."""
        tiers, entry = self.tiers, self._entry
        if any(node.compiled_part for node in ready.nodes):
            return Tiers.TUNED  # there is nothing to compile
        if tiers is not Tiers.CHANGING_BY_PROCESS:
            return tiers
        nbytes = sum(constant.nbytes for constant in ready.constants.values())
        suits = entry is not None and entry.may_keep(nbytes) and self._request is not None
        return tiers if suits and not draws_numbers(ready, registry()) else Tiers.TUNED

    def compilation(self, maker: Maker, here: Callable[[], CompiledModel]) -> Compilation:
        """How the model is compiled while the session is used; `here`: by this process."""
        entry, request = self._entry, self._request if self._can_be_in_process() else None
        if request is None or entry is None:
            return Compilation(here)
        files = self._builder.source.graph().metadata.external_files
        in_process: InProcess = partial(compile_process.queue().ask, request)
        return Compilation(here, in_process, partial(_found, entry, maker, files, entry.states(files)))

    @cached_property
    def _request(self) -> bytes | None:
        """What another process makes the session of; None where it cannot have that."""
        builder = self._builder
        given = builder.source.given
        if isinstance(given, (str, os.PathLike)):
            given = os.path.abspath(os.fspath(given))  # noqa: PTH100 # as text, whatever it is
        if not isinstance(given, (str, bytes)):
            return None
        providers = tuple((choice.provider, _options_of(choice)) for choice in self._choices)
        return compile_process.packed(compile_process.Request(given, builder.options, providers, tuple(builder.disabled)))


def _options_of(choice: ProviderChoice) -> dict[str, Any]:
    return {field.name: getattr(choice.options, field.name) for field in dataclasses.fields(choice.options)}


def _has_kernels() -> bool:
    """Whether the first tier has kernels here: NumPy alone is too slow to begin with."""
    from intarsia.providers.cpu.first_tier import kernel_image

    return kernel_image.load() is not None


def _found(
    entry: WarmStart, maker: Maker, files: Sequence[str], states: Sequence[tuple[int, ...] | None]
) -> DirectModel | None:
    """What a process left in the cache; None where it could not, or something has changed since the session was made."""
    if not entry.is_of_the_same() or tuple(entry.states(files)) != tuple(states):
        return None
    # Its weights are fetched by the first run, when those of the first tier are gone: never are both in memory.
    context = replace(maker.context, config={**maker.context.config, READ_AHEAD: "0"})
    found = entry.find(maker.providers[0], context)
    if found is None:
        if not files:  # weights of their own are not cached as long as they are new
            entry.note_unkept()
        return None
    assert isinstance(found.model, DirectModel)
    return found.model
