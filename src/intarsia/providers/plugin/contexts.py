"""EPContext nodes of plugins: parts compiled ahead, in the plugin's own format, and what is checked before it gets them."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from intarsia.ep.provider import CompileContext
from intarsia.errors import EPFail, ExternalDataError, InvalidArgument, InvalidGraph, ModelRequiresCompilation
from intarsia.graph.formats.external_data import ExternalFiles
from intarsia.graph.model import Graph, Node
from intarsia.log import logger
from intarsia.providers.plugin.compiled_part import Made
from intarsia.providers.plugin.factory import Factory
from intarsia.providers.plugin.interface.hardware import OrtEpDevice
from intarsia.providers.plugin.plugin_ep import PluginEp

NOT_APPLICABLE, OPTIMAL, PREFER_RECOMPILATION, UNSUPPORTED = range(4)
"""OrtCompiledModelCompatibility."""
_ALL_OR_EXTERNAL = 3  # of OrtWeightlessSupport
_AGAIN = "compile the original model again (intarsia.ModelCompiler)"


def is_context(graph: Graph) -> bool:
    """Whether a part is one that was compiled ahead."""
    return len(graph.nodes) == 1 and graph.nodes[0].compiled_part


class TogetherCompiled:
    """Parts that a plugin is given in one call, since their compiled forms may share data: those that become EPContext nodes,
    or are such nodes."""

    def __init__(self) -> None:
        self._expected: list[Graph] = []
        self._made: dict[int, tuple[Graph, Made]] = {}

    def expect(self, graphs: Sequence[Graph]) -> None:
        """The parts of a session from now on."""
        self._expected, self._made = list(graphs), {}

    def made(self, graph: Graph, compiled: Callable[[Sequence[Graph]], list[Made]]) -> Made:
        """What the plugin makes of a part, with the others where it is one of several.

        Raises:
            EPFail: it cannot compile this one.
        """
        if any(graph is other for other in self._expected) and len(self._expected) > 1:
            try:
                together = compiled(self._expected)
            except EPFail as error:  # of which of them is not known: each is tried alone
                logger.debug("%d parts are not compiled together: %s", len(self._expected), error)
            else:
                self._made = {id(one): (one, made) for one, made in zip(self._expected, together, strict=True)}
            self._expected = []
        found = self._made.pop(id(graph), None)
        return found[1] if found is not None else compiled([graph])[0]


def checked(graph: Graph, context: CompileContext) -> Graph:
    """A part that was compiled ahead as the plugin may have it: its file lies beside the model, or its data is in the node.

    Raises:
        InvalidGraph: the node does not say what it must.
        ExternalDataError: its file is missing, or outside the model's folder.
    """
    node = graph.nodes[0]
    where = f"the compiled part {node.name or node.outputs[0]!r}"
    content = node.attributes.get("ep_cache_context", "")
    if not isinstance(content, (str, bytes)) or not isinstance(node.attributes.get("embed_mode", 1), int):
        raise InvalidGraph(f"{where}: expected a text 'ep_cache_context' and an integer 'embed_mode'; {_AGAIN}")
    if node.attributes.get("embed_mode", 1) or not content:
        return graph
    name = content if isinstance(content, str) else content.decode("utf-8", "replace")
    if context.read_compiled is not None:
        inside = {**node.attributes, "embed_mode": 1, "ep_cache_context": bytes(context.read_compiled(name))}
        return _with_node(graph, replace(node, attributes=inside))
    model = graph.metadata.path or context.config.get("ep.context_file_path", "")
    if not model:
        raise ExternalDataError(
            f"{where} is in the file {name!r}, but the model was given as bytes: set the session's entry "
            "'ep.context_file_path' to the model's path"
        )
    if not ExternalFiles(Path(model).parent, model).resolved(where, name).exists():
        raise ExternalDataError(f"{where}: its file {name!r} is missing in {str(Path(model).parent)!r}: copy it there")
    return graph


def _with_node(graph: Graph, node: Node) -> Graph:
    found = graph.clone()
    found.nodes = [node]
    return found


def compatibility(factory: Factory, devices: Sequence[OrtEpDevice], info: str) -> int:
    """What a plugin says of a compiled model, by what the model's metadata has of it (OrtCompiledModelCompatibility).

    Raises:
        EPFail: it cannot say.
    """
    if not factory.members.has("ValidateCompiledModelCompatibilityInfo"):
        return NOT_APPLICABLE
    hardware = (ctypes.c_void_p * max(1, len(devices)))(*(device.hardware.handle for device in devices))
    found = ctypes.c_int32(NOT_APPLICABLE)
    factory.members.call(
        "ValidateCompiledModelCompatibilityInfo", ctypes.addressof(hardware), len(devices), info.encode(),
        ctypes.addressof(found),
    )  # fmt: skip
    return found.value


def check_weightless(ep: PluginEp, entries: Mapping[str, str]) -> None:
    """Refuse to compile without weights where the plugin needs them in what it compiles.

    Raises:
        InvalidArgument: a mode that there is not.
        EPFail: the plugin does not do so on its devices.
    """
    mode = entries.get("ep.enable_weightless_mode", "") or entries.get("ep.enable_weightless", "0")
    if mode not in ("0", "1", "2"):
        raise InvalidArgument(
            f"'ep.enable_weightless_mode' is {mode!r}; expected 0 (all weights inside), 1 (not those in files) or 2 (none)"
        )
    if mode == "0":
        return
    found = ctypes.c_int32(0)
    ep.members.call_if_there("GetWeightlessSupport", ctypes.addressof(found))
    if found.value not in (int(mode), _ALL_OR_EXTERNAL):
        supports = {0: "none", 1: "external_only", 2: "all"}.get(found.value, str(found.value))
        raise EPFail(
            f"{ep.name} does not compile without weights in mode {mode} on its devices (it supports: {supports}); leave out "
            "'ep.enable_weightless' and 'ep.enable_weightless_mode'"
        )


def check_compatibility(
    factory: Factory, devices: Sequence[OrtEpDevice], properties: Mapping[str, str], config: Mapping[str, Any]
) -> None:
    """Refuse a compiled model that its plugin does not take here.

    Raises:
        ModelRequiresCompilation: the plugin says so, or that it had better be compiled again, where the session refuses that.
    """
    info = properties.get(f"ep_compatibility_info.{factory.name}", "")
    found = compatibility(factory, devices, info) if info else NOT_APPLICABLE
    where = f"the model was compiled for {factory.name} with {info!r}, which {factory.name} {factory.version}"
    if found == UNSUPPORTED:
        raise ModelRequiresCompilation(f"{where} does not take on this machine; {_AGAIN}")
    if found == PREFER_RECOMPILATION:
        if config.get("session.fail_on_suboptimal_compiled_model", "0") == "1":
            raise ModelRequiresCompilation(
                f"{where} would run faster if it were compiled again, and 'session.fail_on_suboptimal_compiled_model' is "
                f"'1'; {_AGAIN}"
            )
        logger.warning("%s would run faster if it were compiled again; %s", where, _AGAIN)
