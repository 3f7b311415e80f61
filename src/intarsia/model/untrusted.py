"""Sessions on models of strangers (`SessionOptions.untrusted`): what is refused, and what a model may ask for at most.

docs/security.md says what is defended against and what is not.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from intarsia.errors import (
    ExternalDataError,
    InvalidArgument,
    InvalidGraph,
    InvalidModelError,
    NoSuchFile,
    OutOfMemory,
    WrongType,
)
from intarsia.graph.formats.external_data import ExternalFiles
from intarsia.graph.formats.protobuf_wire import Buffer
from intarsia.graph.model import Graph, Node
from intarsia.graph.verify import verify_calls, written_out_nodes
from intarsia.model.run_timeout import making
from intarsia.options.session_options import SessionOptions

MODEL, NODES, NESTING, MEMORY, OUTPUT, SECONDS, TRIPS = (
    f"untrusted.{name}" for name in ("model_mib", "nodes", "nesting", "memory_mib", "output_mib", "seconds", "trips")
)


PROCESS = "untrusted.process"


def limit(options: SessionOptions, key: str) -> int:
    """A limit of an untrusted session.

    Raises:
        InvalidArgument: it is below 1.
    """
    value = int(options.config(key))
    if value < 1:
        raise InvalidArgument(f"configuration entry {key!r}: expected at least 1, got {value}")
    return value


def checked_source(source: Any, options: SessionOptions) -> Any:
    """The model to read, whose size is known to be allowed; streams become bytes.

    Raises:
        InvalidArgument: options ask for what an untrusted session does not do.
        InvalidModelError: the model is too large, or its path is that of no regular file.
        NoSuchFile: the path does not exist.
    """
    if options.config("session.trust_compiled_model") == "1":
        raise InvalidArgument("'session.trust_compiled_model' is '1', but the session is untrusted: it loads no compiled parts")
    if options.config(PROCESS) == "1" and any(key.startswith("session.signature") for key in options.config_entries()):
        raise InvalidArgument(f"{PROCESS!r} is '1', and 'session.signature...' is set: a separate process reads no signatures")
    most = limit(options, MODEL) << 20
    if isinstance(source, (str, os.PathLike)):
        try:
            status = Path(source).stat()
        except FileNotFoundError:
            raise NoSuchFile(f"{os.fspath(source)}: there is no such file") from None
        except (OSError, ValueError) as error:
            raise InvalidModelError(f"{os.fspath(source)!r}: the file cannot be read: {error}") from error
        if not stat.S_ISREG(status.st_mode):
            raise InvalidModelError(f"{os.fspath(source)}: expected a regular file, as the session is untrusted")
        nbytes = status.st_size
    elif hasattr(source, "read"):
        source = _read(source, most + 1)
        nbytes = len(source)
    elif hasattr(source, "ByteSize"):
        nbytes = source.ByteSize()
    else:  # what is no model at all, loading says
        nbytes = memoryview(source).nbytes if isinstance(source, (bytes, bytearray, memoryview)) else 0
    if nbytes > most:
        raise InvalidModelError(f"the model has {_mib(nbytes)}, at most {_mib(most)} are allowed ({MODEL!r})")
    return source


def _read(stream: Any, most: int) -> bytes:
    """What a stream has, at most so many bytes: a raw one gives some at a time."""
    found = bytearray()
    while len(found) < most and (some := stream.read(most - len(found))):
        if not isinstance(some, bytes):
            raise WrongType(f"the model's stream gives {type(some).__name__}; expected bytes: open the file as 'rb'")
        found += some
    return bytes(found)


class NoFiles(ExternalFiles):
    """External data of an untrusted session: what the program gave in memory, and nothing that the model names. (Files that a
    signature covers are read: `model.signature_verification.SignedExternalFiles`.)"""

    def _open(self, where: str, location: str) -> Buffer:
        raise ExternalDataError(
            f"{where} is in the file {location!r}, which an untrusted session does not read: give its bytes by "
            "SessionOptions.add_external_initializers_from_files_in_memory"
        )


def check_graph(graph: Graph, options: SessionOptions) -> None:
    """Compare what a model has with the limits.

    Raises:
        InvalidGraph: it has too many nodes, subgraphs in too many others, or a part that was compiled elsewhere; its functions
            call each other in a circle.
    """
    deepest = limit(options, NESTING)
    for nodes in (graph.nodes, *(function.nodes for function in graph.functions.values())):
        _check_nodes(nodes, deepest, deepest)
    if graph.functions:
        verify_calls(graph)
    count, most = written_out_nodes(graph), limit(options, NODES)
    if count > most:
        raise InvalidGraph(f"the model has {count:,} nodes, at most {most:,} are allowed ({NODES!r})")


def _check_nodes(nodes: list[Node], left: int, deepest: int) -> None:
    for node in nodes:
        if node.compiled_part:
            raise InvalidGraph(f"node {node.name!r} (EPContext) holds machine code, which an untrusted session does not load")
        for inner in node.subgraphs:
            if not left:
                raise InvalidGraph(f"node {node.name!r}: subgraphs are nested over {deepest} deep ({NESTING!r})")
            _check_nodes(inner.nodes, left - 1, deepest)


def watch_of(options: SessionOptions) -> Callable[[], None]:
    """What is called now and then while the session is made: raises RunTimeout once its time is over."""
    return making(limit(options, SECONDS), SECONDS, options.check_cancelled)


def check_results(results: list[Any], options: SessionOptions) -> None:
    """Raises OutOfMemory where the results of a run are too large to be given to the program."""
    nbytes, most = sum(map(_nbytes, results)), limit(options, OUTPUT) << 20
    if nbytes > most:
        raise OutOfMemory(f"the results have {_mib(nbytes)}, at most {_mib(most)} are allowed ({OUTPUT!r})")


def _nbytes(value: Any) -> int:
    if isinstance(value, dict):
        return sum(map(_nbytes, value)) + sum(map(_nbytes, value.values()))
    if isinstance(value, (list, tuple)):
        return sum(map(_nbytes, value))
    if isinstance(value, np.ndarray) and value.dtype == object:
        return value.nbytes + sum(map(_nbytes, value.ravel().tolist()))
    if isinstance(value, str):
        return len(value)
    return int(getattr(value, "nbytes", 8))


def _mib(nbytes: int) -> str:
    return f"{nbytes / 2**20:,.1f} MiB"
