"""The program of one part: from the cache, or compiled and cached there for later sessions.

An entry is found by a hash of all that the program is made from: nodes, types, weights, settings, this package's code, the CPU.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from intarsia.cache.disk_cache import pieces_key
from intarsia.ep.provider import CompileContext
from intarsia.graph.dims import symbols_of, written_name
from intarsia.graph.model import Constant, Graph, TensorType, Value, ValueType
from intarsia.machine.resources import available_cores
from intarsia.model.single_program_model import DirectModel
from intarsia.model.warm_start import Signature, WarmStart, warm_start
from intarsia.options.session_options import SessionOptions
from intarsia.ort_plugin.graph_reader import Weight
from intarsia.providers.cpu import CPUExecutionProvider
from intarsia.providers.cpu.program.cpu_program import CpuProgram

_MOST_THREADS = 4  # that hash weights


def program_of(graph: Graph, context: CompileContext, *, anew: bool = False) -> CpuProgram:
    """The program of a part, whose inputs and outputs are the graph's; `anew`: not from the cache, so that it can be saved.

    Raises:
        IntarsiaError: it cannot be compiled.
    """
    provider, entry = CPUExecutionProvider(), None if anew else _entry(graph, context)
    start = None if entry is None else entry.find(provider, context)
    if start is not None and isinstance(start.model, DirectModel):
        program = start.model.program
    else:
        program = _compiled(graph, context, provider)
        if entry is not None:
            signature = Signature(tuple(graph.inputs), tuple(graph.outputs), (), graph.metadata, graph.name)
            entry.keep(signature, DirectModel(program), provider)
    assert isinstance(program, CpuProgram)
    return program


def _compiled(graph: Graph, context: CompileContext, provider: CPUExecutionProvider) -> CpuProgram:
    from intarsia.model.load_and_optimize import optimised, with_imports

    ready = optimised(with_imports(graph), SessionOptions(), frozenset())
    program = provider.compile(ready, context)
    assert isinstance(program, CpuProgram)
    return program


def _entry(graph: Graph, context: CompileContext) -> WarmStart | None:
    settings = {
        "threads": repr(context.intra_op_num_threads),
        "a configuration entry": repr(sorted(context.config.items())),
        "what calls it": "a plugin",
    }
    return warm_start(pieces_key(_pieces(graph)).encode(), SessionOptions(), settings)


def _pieces(graph: Graph) -> Iterator[bytes | memoryview]:
    """All that says what a graph computes, in order."""
    yield repr((sorted(graph.opset_imports.items()), *map(_described, (*graph.inputs, *graph.outputs)))).encode()
    yield repr(sorted((name, _type(kind)) for name, kind in graph.types.items())).encode()
    with ThreadPoolExecutor(min(_MOST_THREADS, available_cores())) as pool:
        digests = pool.map(_digest, graph.constants.values())
        for (name, constant), digest in zip(graph.constants.items(), digests, strict=True):
            yield repr((name, _type(constant.type), digest)).encode()
    for node in graph.nodes:
        yield repr((node.domain, node.op_type, node.version, node.inputs, node.outputs)).encode()
        for key, value in sorted(node.attributes.items()):
            yield repr(key).encode()
            yield from _attribute(value)


def _digest(constant: Constant) -> str:
    maker = constant.maker
    return pieces_key([_bytes(maker.in_place() if isinstance(maker, Weight) else constant.numpy())])


def _attribute(value: Any) -> Iterator[bytes | memoryview]:
    if isinstance(value, Graph):
        yield from _pieces(value)
    elif isinstance(value, np.ndarray):
        yield repr((value.dtype.name, value.shape)).encode()
        yield _bytes(value)
    else:
        yield repr(value).encode()


def _bytes(array: np.ndarray) -> memoryview:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data


def _described(value: Value) -> tuple[str, str]:
    return value.name, _type(value.type)


def _type(kind: ValueType | None) -> str:
    """A type as text; sizes without a name are all alike."""
    if not isinstance(kind, TensorType) or kind.shape is None:
        return str(kind)
    names = [str(d) if all(written_name(s) for s in symbols_of(d)) else "?" for d in kind.shape]
    return f"{kind.dtype}{names}"
