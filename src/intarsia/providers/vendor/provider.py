"""The base class of providers that hand whole parts to a vendor's compiler: survey, artifact cache, saving, loading."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from intarsia import progress
from intarsia.ep.provider import (
    CompileContext,
    ComputeCapability,
    ExecutionProvider,
    KernelLookup,
    NotSaved,
    Program,
    SavedProgram,
    Support,
)
from intarsia.errors import EPFail, IntarsiaError, OutOfMemory
from intarsia.graph.model import Graph, Node
from intarsia.machine import fork_safety
from intarsia.partition.partition import label
from intarsia.printable import get_logger
from intarsia.providers.vendor.artifact_cache import ArtifactCache, ArtifactKey, count_compile, part_key
from intarsia.providers.vendor.program import Executable, Interface, Shapes, VendorProgram
from intarsia.providers.vendor.shape_profile import ShapeProfile, bind, is_open, sizes_of
from intarsia.providers.vendor.survey import Survey, unsized
from intarsia.providers.vendor.translator import Translator, Untranslatable

_logger = get_logger("intarsia.providers.vendor")


class VendorExecutionProvider(ExecutionProvider):
    """Surveys by a `Translator`, compiles by the vendor's software on this machine, and keeps what was compiled.

    A subclass has `make_translator`, `build` and `load`; `unavailable` and `device_versions` say what is there.

    Attributes:
        translator: from graphs to the vendor's form.
        profile: sizes that an executable is compiled for where they vary; else there is one for each combination.
    """

    part_microseconds = 100.0
    profile: ShapeProfile = ShapeProfile()
    vendor_errors: ClassVar[tuple[type[Exception], ...]] = (RuntimeError, OSError, ValueError, TypeError)

    def __init__(self, options: Any = None) -> None:
        super().__init__(options)
        if why := self.unavailable() or self.missing_for(self.options):
            raise EPFail(f"{self.name} cannot be used on this machine: {why}")
        self.translator = self.make_translator()
        self._lock = fork_safety.recursive_lock()
        self._survey: Survey | None = None
        self._artifacts: ArtifactCache | None = None

    # what a vendor has

    def make_translator(self) -> Translator:
        """The translator for this provider's options."""
        raise NotImplementedError(f"{type(self).__name__}.make_translator")

    def device_versions(self) -> Mapping[str, str]:
        """What a compiled part depends on besides what its translation does: the system, the driver, the device; by name."""
        return {}

    def device_settings(self) -> Mapping[str, str]:
        """The options that a compiled part depends on besides those of its translation, as text."""
        return {}

    def build(self, translated: Any, context: CompileContext) -> bytes:
        """What the vendor's compiler makes of a translated part. Errors of `vendor_errors` become EPFail."""
        raise NotImplementedError(f"{type(self).__name__}.build")

    def load(self, artifact: bytes, interface: Interface, context: CompileContext) -> Executable:
        """An executable of what `build` made. Errors of `vendor_errors` become EPFail."""
        raise NotImplementedError(f"{type(self).__name__}.load")

    def load_part(self, artifact: bytes, interface: Interface, graph: Graph, context: CompileContext) -> Executable:
        """As `load`, for vendors that need the part again, such as its weights; of a saved program only names and types are
        there."""
        return self.load(artifact, interface, context)

    def part_key(self, graph: Graph) -> str:
        """What a part computes, as a hash."""
        return part_key(graph)

    def own(self, value: Any) -> Any:
        """A copy of an input of a part, or of a constant (an array), in the memory where this provider's tensors lie."""
        return np.array(value)

    def make_survey(self, graph: Graph) -> Survey:
        """Answers about a graph's nodes; by default each is translated by itself."""
        return Survey(graph, self.translator)

    def artifact_cache(self) -> ArtifactCache:
        """Where compiled parts are cached."""
        return ArtifactCache()

    # what a session requires

    def supports(self, node: Node, graph: Graph) -> Support:
        with self._lock:
            return self._survey_of(graph).answer(node)

    def get_capability(self, graph: Graph, kernel_lookup: KernelLookup) -> list[ComputeCapability]:
        free = [i for i in range(len(graph.nodes)) if kernel_lookup.is_free(i)]
        with self._lock:
            return [ComputeCapability((i,)) for i in self._survey_of(graph).taken(free)]

    def _survey_of(self, graph: Graph) -> Survey:
        if self._survey is None or self._survey.graph is not graph:
            self._survey = self.make_survey(graph)
        return self._survey

    def compile(self, graph: Graph, context: CompileContext) -> Program:
        varies = is_open(graph)
        covered = varies and self.translator.symbolic and self.profile and self.profile.covers(graph)
        if not covered:
            return self.program(graph, context, static=varies)
        try:
            return self.program(graph, context, static=False, admits=self._admits(graph))
        except EPFail as error:
            reason = f"compiled for the sizes of each run, and not for all of the profile: {error}"
            return self.program(graph, context, static=True, told=(reason,))

    def program(
        self,
        graph: Graph,
        context: CompileContext,
        *,
        static: bool,
        admits: Callable[[Shapes], bool] | None = None,
        told: Sequence[str] = (),
    ) -> VendorProgram:
        """A part's program; `static` and `admits` as `VendorProgram` has them. `told`: what people should know of it."""
        reasons = list(told)

        def load(shapes: Shapes | None) -> tuple[Executable | None, Interface]:
            if shapes is None:
                return self.executable(graph, context, reasons.append)
            return self.executable_for(bind(graph, shapes), context, reasons.append)

        return VendorProgram(
            graph,
            self.name,
            load,
            static=static,
            remark=lambda: "; ".join(dict.fromkeys(reasons)),
            own=self.own,
            admits=admits,
        )

    def _admits(self, graph: Graph) -> Callable[[Shapes], bool] | None:
        """Whether the profile has the sizes of a run; None where no size varies."""
        if not is_open(graph):
            return None
        return lambda shapes: self.profile.admits(sizes_of(graph, shapes))

    def executable(
        self, graph: Graph, context: CompileContext, tell: Callable[[str], None]
    ) -> tuple[Executable | None, Interface]:
        """A part's executable (None: nothing is left to compute), from the cache or compiled; `tell` is told which and why.

        Raises:
            EPFail: the vendor cannot compile or load it.
        """
        interface, graph = Interface.of(graph)
        if not interface.outputs:
            return None, interface
        cache = self._cache()
        key = ArtifactKey(self.name, self.part_key(graph), self._settings(), self._versions())
        found = cache.find(key)
        if found.artifact is not None:
            try:
                loaded = self._loaded(found.artifact, interface, graph, context)
            except EPFail as error:
                cache.drop(key)
                _logger.warning("%s: what was cached of a part does not load and is compiled anew: %s", self.name, error)
                tell(f"compiled, since what was cached does not load: {error}")
            else:
                tell("compiled by an earlier session")
                return loaded, interface
        else:
            tell(f"compiled, since {found.reason}")
        artifact = self._built(graph, context)
        loaded = self._loaded(artifact, interface, graph, context)
        cache.store(key, artifact)
        return loaded, interface

    def executable_for(
        self, graph: Graph, context: CompileContext, tell: Callable[[str], None]
    ) -> tuple[Executable | None, Interface]:
        """A part's executable for the sizes of a run (`graph` has them), where these vary. By default as any other.

        Raises:
            EPFail: the vendor cannot compile or load it.
        """
        return self.executable(graph, context, tell)

    def _built(self, graph: Graph, context: CompileContext) -> bytes:
        progress.step("compile", 0, 1)
        try:
            legal = self.translator.legalized(graph)
            if not self.translator.symbolic and (why := unsized(legal)):
                raise Untranslatable(f"{self.translator.vendor} takes no sizes that only data decide: {why}", "shape")
            translated = self.translator.translate(legal)
        except Untranslatable as error:
            raise self._failed("cannot translate", graph, error.reason) from error
        count_compile(self.name)
        try:
            artifact = self.build(translated, context)
        except IntarsiaError:
            raise
        except MemoryError as error:
            raise OutOfMemory(f"{self.name}: no memory to compile {len(graph.nodes)} nodes; use a smaller model") from error
        except self.vendor_errors as error:
            raise self._failed("cannot compile", graph, f"{type(error).__name__}: {error}") from error
        if not artifact:
            raise self._failed("cannot compile", graph, f"{self.translator.vendor}'s compiler gave nothing and no error")
        progress.step("compile", 1, 1)
        return artifact

    def _loaded(self, artifact: bytes, interface: Interface, graph: Graph, context: CompileContext) -> Executable:
        try:
            return self.load_part(artifact, interface, graph, context)
        except IntarsiaError:
            raise
        except self.vendor_errors as error:
            raise self._failed("cannot load", graph, f"{type(error).__name__}: {error}") from error

    def _failed(self, what: str, graph: Graph, why: str) -> EPFail:
        nodes = graph.nodes
        return EPFail(f"{self.name} {what} {len(nodes)} nodes from {label(nodes[0])!r} to {label(nodes[-1])!r}: {why}")

    def _cache(self) -> ArtifactCache:
        if self._artifacts is None:
            self._artifacts = self.artifact_cache()
        return self._artifacts

    def _settings(self) -> dict[str, str]:
        return {**self.translator.settings(), **self.device_settings(), "profile": str(self.profile)}

    def _versions(self) -> dict[str, str]:
        from intarsia.cache.fingerprint import sources

        return {**self.translator.versions(), **self.device_versions(), "intarsia": sources()}

    # programs that outlive their process, and compiled models (EPContext)

    def save(self, program: Program) -> SavedProgram:
        found = program.only if isinstance(program, VendorProgram) else None
        if found is None:
            raise NotSaved(f"{self.name} compiles it for each combination of input shapes")
        executable, interface = found
        artifact = executable.artifact() if executable is not None else b""
        if artifact is None:
            raise NotSaved(f"{self.name} does not have what it was compiled to any more")
        assert isinstance(program, VendorProgram)
        return SavedProgram(pickle.dumps((self._stamp(), _skeleton(program.graph), interface)), [artifact])

    def restore(self, head: bytes, block: np.ndarray, context: CompileContext) -> Program | None:
        stamp, graph, interface = pickle.loads(head)  # noqa: S301 # it comes with machine code
        if stamp != self._stamp():
            _logger.debug("not from the cache: made with %s, this is %s", stamp, self._stamp())
            return None
        try:
            executable = self._loaded(block.tobytes(), interface, graph, context) if interface.outputs else None
        except EPFail as error:
            _logger.debug("not from the cache: %s", error)
            return None

        def load(shapes: Shapes | None) -> tuple[Executable | None, Interface]:
            if shapes is not None:
                given = ", ".join(str(list(shape)) for shape in shapes)
                raise EPFail(f"{self.name}: sizes {given} are beyond the profile ({self.profile}) of a program from the cache")
            return executable, interface

        admits = self._admits(graph)
        return VendorProgram(
            graph, self.name, load, remark=lambda: "compiled by an earlier session", own=self.own, admits=admits
        )

    def compatibility_info(self) -> str:
        return self._stamp()

    def _stamp(self) -> str:
        """What a compiled part depends on, as text."""
        return json.dumps([self._settings(), self._versions()], sort_keys=True)


def _skeleton(graph: Graph) -> Graph:
    """Names and types of a part, with neither weights nor attributes."""
    nodes = [Node(n.op_type, [], [o for o in n.outputs if o][:1], domain=n.domain, name=n.name) for n in graph.nodes]
    names = (*graph.input_names(), *graph.output_names())
    types = {n: graph.types[n] for n in names if n in graph.types}
    return Graph(name=graph.name, inputs=list(graph.inputs), outputs=list(graph.outputs), nodes=nodes, types=types)
