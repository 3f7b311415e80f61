"""EPContext nodes of IntarsiaCPU in onnxruntime's models: parts compiled ahead, as `ep_context.format` has them."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from pathlib import Path

from intarsia.ep.provider import CompileContext, NotSaved
from intarsia.ep_context.format import CheckedProgram, completed, packed, restored
from intarsia.errors import EPFail
from intarsia.graph.model import Graph
from intarsia.machine.version import __version__
from intarsia.ort_plugin.c_api import OrtApi
from intarsia.ort_plugin.selection import NAME
from intarsia.partition.partition import Part
from intarsia.providers.cpu import CPUExecutionProvider
from intarsia.providers.cpu.program.cpu_program import CpuProgram

_INT, _STRING = 1, 5  # of OrtOpAttrType


def is_context(graph: Graph) -> bool:
    """Whether a part is one that was compiled ahead."""
    return len(graph.nodes) == 1 and graph.nodes[0].compiled_part


def hide_others(graph: Graph) -> None:
    """Let parts that other providers compiled ahead be onnxruntime's to give out."""
    for node in graph.nodes:
        if node.compiled_part and node.attributes.get("source") != NAME:
            node.attributes["source"] = "onnxruntime"


def restored_program(graph: Graph, context: CompileContext) -> CheckedProgram:
    """The program of a part that was compiled ahead.

    Raises:
        IntarsiaError: as `ep_context.format.restored`.
    """
    attributes = graph.nodes[0].attributes
    content = attributes.get("ep_cache_context", "")
    if attributes.get("embed_mode", 1):
        attributes["ep_cache_context"] = completed(content.encode() if isinstance(content, str) else content)
    found = restored(Part(0, CPUExecutionProvider(), (0,), graph), context)
    assert isinstance(found, CheckedProgram)
    return found


class ContextNodes:
    """Makes the nodes, where a session wants them.

    Args:
        entries: the session's configuration entries, of which those that begin with "ep.context_" say what it wants.
    """

    def __init__(self, api: OrtApi, entries: Mapping[str, str]) -> None:
        self._api = api
        self.wanted = entries.get("ep.context_enable", "0") == "1"
        self._embed = entries.get("ep.context_embed_mode", "0") == "1"
        self._path = entries.get("ep.context_file_path", "")

    def node(self, program: CpuProgram, name: str, names: tuple[Sequence[str], Sequence[str]], model: str) -> int:
        """A new OrtNode that holds a program.

        Args:
            name: the fused node's, by which onnxruntime knows what it stands for.
            names: of the part's inputs and outputs.
            model: the path of the original model; "" where it has none.

        Raises:
            EPFail: the program cannot be kept, or there is no place for its file.
        """
        try:
            pieces = packed(CPUExecutionProvider(), program, [value.type for value in program.executable.inputs])
        except NotSaved as error:
            raise EPFail(f"part {name} cannot be kept in an EPContext node: {error}") from error
        content = b"".join(pieces)
        if not self._embed:
            content = self._written(content, name, model).encode()
        attributes: dict[str, int | bytes] = {
            "main_context": 1, "embed_mode": int(self._embed), "ep_cache_context": content, "source": NAME.encode(),
            "partition_name": name.encode(), "ep_sdk_version": __version__.encode(),
        }  # fmt: skip
        return self._made(name, names, attributes)

    def _written(self, content: bytes, name: str, model: str) -> str:
        """The name of a file beside the compiled model that has a part's bytes."""
        if not self._path and not model:
            raise EPFail("the model is given as bytes: set 'ep.context_file_path', or 'ep.context_embed_mode' to '1'")
        source = Path(model)
        target = Path(self._path) if self._path else source.with_name(f"{source.stem}_ctx.onnx")
        file = target.with_name(f"{target.stem}_{name}.bin")
        file.write_bytes(content)
        return file.name

    def _made(self, name: str, names: tuple[Sequence[str], Sequence[str]], attributes: Mapping[str, int | bytes]) -> int:
        """A node, which has its attributes from then on, and which is onnxruntime's."""
        api, handles = self._api, []
        for key, value in attributes.items():
            kind = _STRING if isinstance(value, bytes) else _INT
            data = value if isinstance(value, bytes) else ctypes.byref(ctypes.c_int64(value))
            length = len(value) if isinstance(value, bytes) else 1
            handles.append(api.get("CreateOpAttr", key.encode(), data, length, kind))
        inputs, outputs = ((ctypes.c_char_p * len(part))(*(n.encode() for n in part)) for part in names)
        given = (ctypes.c_uint64 * len(handles))(*handles)
        return api.get(
            "CreateNode", b"EPContext", b"com.microsoft", name.encode(), inputs, len(inputs), outputs, len(outputs), given,
            len(given),
        )  # fmt: skip
