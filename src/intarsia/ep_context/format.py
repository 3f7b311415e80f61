"""A compiled part inside an ONNX model: what an EPContext node holds, and the way back to a program.

Layout of the bytes, embedded in the attribute `ep_cache_context` or in the file that it names: magic, length and checksum of
the header, a seal; the header (JSON: who made it, for what, and the checksum of what follows); the program's head; its weights.

A program is machine code and Python objects, so loading one runs what its author wrote. The seal is a hash of the header under
a secret that lies in the user's cache: parts that this user compiled are restored as they are, others only where
`TRUST` is "1".
"""

from __future__ import annotations

import hmac
import json
import pickle
import secrets
import struct
from collections.abc import Mapping, Sequence
from hashlib import blake2b, sha256
from pathlib import Path
from typing import Any

import numpy as np

from intarsia.ep.device import DeviceTensor, HostAllocator
from intarsia.ep.provider import BoundCall, CompileContext, ExecutionProvider, Program, RunContext
from intarsia.errors import (
    ExternalDataError,
    Fail,
    InvalidArgument,
    InvalidGraph,
    InvalidProtobuf,
    ModelRequiresCompilation,
    NotImplemented,
)
from intarsia.graph.dims import Expr
from intarsia.graph.formats.external_data import ExternalFiles
from intarsia.graph.model import Graph, Node, TensorType, ValueType
from intarsia.lazy_dataclass import dataclass
from intarsia.log import logger
from intarsia.partition.partition import Part, label

TRUST = "session.trust_compiled_model"
_MAGIC = b"\x89INTCTX1"  # not UTF-8, so that the attribute is read as bytes
_PREFIX = struct.Struct("<8sI16s32s")  # magic, length of the header, its checksum, its seal
_SEAL_ENTRY = "context-seal"
_ATTRIBUTES: dict[str, type | tuple[type, ...]] = {"main_context": int, "embed_mode": int, "ep_cache_context": (str, bytes)}
_AGAIN = "compile again from the original model (intarsia.ModelCompiler)"


def built_by() -> dict[str, str]:
    """The version of this package and a hash of its sources: programs are restored by the code that saved them."""
    from intarsia.cache.fingerprint import sources
    from intarsia.machine.version import __version__

    return {"intarsia": __version__, "sources": sources()}


def compatibility_info(provider: ExecutionProvider) -> str:
    """What a model's metadata says of a compiled part: JSON, read by `unsuitable`; of a provider's own format, its words."""
    if provider.own_contexts:
        return provider.compatibility_info()
    return json.dumps({**built_by(), "needs": provider.compatibility_info()})


def unsuitable(made: Mapping[str, Any], provider: ExecutionProvider) -> tuple[str, bool]:
    """Why a part that was made so does not do here ("": it does), and whether it runs all the same, only not at its best."""
    mine = built_by()
    if {key: made.get(key) for key in mine} != mine:
        build = "another build of " if made.get("intarsia") == mine["intarsia"] else ""
        return f"it was compiled by {build}Intarsia {made.get('intarsia')}; this is {mine['intarsia']}", False
    return provider.check_compatibility(str(made.get("needs", "")))


def packed(provider: ExecutionProvider, program: Program, types: Sequence[ValueType | None]) -> list[bytes | memoryview]:
    """The bytes of a compiled part, in pieces. `types`: of its inputs, as its code takes them for granted.

    Raises:
        NotSaved: the provider cannot save it.
    """
    saved = provider.save(program)
    head = pickle.dumps((list(types), saved.head), 5)
    weights = [memoryview(part).cast("B") for part in saved.parts]
    digest = sha256(head)
    for part in weights:
        digest.update(part)
    made = {
        **built_by(), "needs": provider.compatibility_info(), "provider": provider.name, "head": len(head),
        "weights": sum(part.nbytes for part in weights), "checksum": digest.hexdigest(),
    }  # fmt: skip
    header = json.dumps(made).encode()
    secret = _secret(create=True)
    seal = _sealed(header, secret) if secret else bytes(32)
    return [_PREFIX.pack(_MAGIC, len(header), _checksum(header), seal), header, head, *weights]


def _checksum(data: bytes) -> bytes:
    return blake2b(data, digest_size=16).digest()


def _sealed(header: bytes, secret: bytes) -> bytes:
    return blake2b(header, key=secret, digest_size=32).digest()


def _secret(*, create: bool = False) -> bytes:
    """The user's own; b"" where there is none, or the cache is off."""
    from intarsia.cache.disk_cache import get_cache

    cache = get_cache()
    found = cache.get(_SEAL_ENTRY)
    if found is None and create and cache.put(_SEAL_ENTRY, secrets.token_bytes(32)):
        found = cache.get(_SEAL_ENTRY)  # another process may have been faster
    return found or b""


@dataclass
class _Reader:
    """The bytes of one part, in memory or in a file."""

    where: str
    data: memoryview | None
    file: Any
    nbytes: int
    at: int = 0

    def take(self, count: int) -> bytes:
        return self.fill(np.empty(min(count, self.nbytes - self.at), np.uint8), count).tobytes()

    def fill(self, block: np.ndarray, count: int) -> np.ndarray:
        """Read `count` bytes into `block`."""
        if self.at + count > self.nbytes:
            raise self.damaged(f"it ends after {self.nbytes:,} of at least {self.at + count:,} bytes")
        view = block.data.cast("B")
        if self.data is not None:
            view[:] = self.data[self.at : self.at + count]
        elif self.file.readinto(view) != count:
            raise self.damaged("it is cut short")
        self.at += count
        return block

    def damaged(self, why: str) -> InvalidProtobuf | ExternalDataError:
        kind = InvalidProtobuf if self.data is not None else ExternalDataError
        return kind(f"{self.where} is damaged: {why}; copy the compiled model anew, or {_AGAIN}")


def completed(data: bytes) -> bytes:
    """The bytes of a compiled part from somebody who reads texts, and so dropped zeros at their end."""
    if len(data) < _PREFIX.size or (prefix := _PREFIX.unpack_from(data))[0] != _MAGIC:
        return data
    header = data[_PREFIX.size : _PREFIX.size + prefix[1]]
    try:
        made = json.loads(header)
        return data.ljust(_PREFIX.size + prefix[1] + int(made["head"]) + int(made["weights"]), b"\0")
    except (ValueError, LookupError, TypeError, OverflowError, MemoryError):
        return data  # it is damaged, which is found when it is read


def program_of(graph: Graph, provider: ExecutionProvider, context: CompileContext) -> Program:
    """The program of a model that is one EPContext node and whose feeds are checked. Raises as `restored`."""
    found = restored(Part(0, provider, (0,), graph), context)
    if not isinstance(found, CheckedProgram) or found.inputs != found.program.inputs or found.outputs != found.program.outputs:
        return found
    declared = [graph.type_of(n) for n in found.inputs]
    return found.program if _constraints(declared) == _constraints(found.types) else found


def restored(part: Part, context: CompileContext) -> Program:
    """The program of a part that is one EPContext node.

    Raises:
        NotImplemented: the node is in another runtime's format.
        ModelRequiresCompilation: it was compiled by another version of Intarsia or for another machine.
        InvalidProtobuf, ExternalDataError: it is damaged, or its file is missing or outside the model's folder.
        InvalidGraph: the node does not say what it must.
        Fail: it is somebody else's, and was not said to be trusted; the program's own function did not give its data.
    """
    node = part.graph.nodes[0]
    where = f"the compiled part {label(node)!r} for {part.provider.name}"
    for name, kinds in _ATTRIBUTES.items():
        if not isinstance(value := node.attributes.get(name, 1 if kinds is int else ""), kinds):
            expected = "an integer" if kinds is int else "text or bytes"
            raise InvalidGraph(f"{where}: attribute {name!r} is {str(value)[:80]!r}; expected {expected}; {_AGAIN}")
    if not node.attributes.get("main_context", 1):
        raise NotImplemented(f"{where} refers to another node's data (main_context 0), which Intarsia does not write; {_AGAIN}")
    content: Any = node.attributes.get("ep_cache_context", b"")
    if node.attributes.get("embed_mode", 1):
        data = memoryview(content.encode() if isinstance(content, str) else content)
        return _restored(_Reader(where, data, None, data.nbytes), part, context)
    if context.read_compiled is not None:
        data = context.read_compiled(str(content))
        return _restored(_Reader(f"{where}, data {str(content)!r},", data, None, data.nbytes), part, context)
    path = _beside(where, str(content), part, context)
    with path.open("rb") as file:
        return _restored(_Reader(f"{where}, file {path.name!r},", None, file, path.stat().st_size), part, context)


def _beside(where: str, name: str, part: Part, context: CompileContext) -> Path:
    """The file of a part, which must lie in the model's folder."""
    model = part.graph.metadata.path
    given = context.config.get("ep.context_file_path", "") if not model else ""
    folder = Path(model).parent if model else Path(given).parent if given else None
    if folder is None:
        raise ExternalDataError(
            f"{where} is in the file {name!r}, but the model was given as bytes: set the session's entry "
            "'ep.context_file_path' to the model's path, give it by set_ep_context_data_read_func, or compile the "
            "model with the parts embedded"
        )
    path = ExternalFiles(folder, model).resolved(where, name)
    if not path.is_file():
        raise ExternalDataError(f"{where}: its file {name!r} is missing in {str(folder)!r}: copy it there with the model")
    return path


def _restored(reader: _Reader, part: Part, context: CompileContext) -> Program:
    provider = part.provider
    if reader.nbytes < _PREFIX.size or (prefix := _PREFIX.unpack(reader.take(_PREFIX.size)))[0] != _MAGIC:
        raise NotImplemented(f"{reader.where} is not in Intarsia's format, or damaged: another runtime compiled it; {_AGAIN}")
    _, length, checksum, seal = prefix
    header = reader.take(length)
    if _checksum(header) != checksum:
        raise reader.damaged("its header has changed")
    made = _parsed(reader, header)
    _check_suitable(reader.where, made, provider, context)
    head_nbytes, nbytes = made["head"], made["weights"]
    if reader.nbytes < (needed := reader.at + head_nbytes + nbytes):
        raise reader.damaged(f"it ends after {reader.nbytes:,} of {needed:,} bytes")
    head = reader.take(head_nbytes)
    block = reader.fill(HostAllocator().allocate(nbytes), nbytes)
    digest = sha256(head)
    digest.update(block.data)
    if digest.hexdigest() != made["checksum"] or made["provider"] != provider.name or reader.at != reader.nbytes:
        raise reader.damaged("its bytes are not those that were written")
    secret = _secret()
    own = bool(secret) and hmac.compare_digest(seal, _sealed(header, secret))
    if not own and context.config.get(TRUST, "0") != "1":
        raise Fail(
            f"{reader.where} holds machine code that was not compiled by this user on this machine (or the cache was emptied "
            f"since): loading it runs that code. If you trust whoever made it, set the session's entry {TRUST!r} to '1'; "
            f"else {_AGAIN}"
        )
    try:
        types, head = pickle.loads(head)  # noqa: S301 # it comes with machine code, which the user trusts
        program = provider.restore(head, block, context)
    except Exception as error:
        raise ModelRequiresCompilation(
            f"{reader.where} cannot be restored: {type(error).__name__}: {error}; {_AGAIN}"
        ) from error
    if program is None:
        raise ModelRequiresCompilation(f"{reader.where} cannot be restored on this machine; {_AGAIN}")
    return _checked(program, types, part, reader.where)


def _parsed(reader: _Reader, header: bytes) -> dict[str, Any]:
    try:
        made = json.loads(header)
        sizes = made["head"], made["weights"]
        if all(type(n) is int and n >= 0 for n in sizes) and isinstance(made["checksum"], str) and made["provider"]:
            return dict(made)
    except (ValueError, LookupError, TypeError):
        pass
    raise reader.damaged("its header does not say what follows")


def _check_suitable(where: str, made: Mapping[str, Any], provider: ExecutionProvider, context: CompileContext) -> None:
    why, runs = unsuitable(made, provider)
    if not why:
        return
    if not runs:
        raise ModelRequiresCompilation(f"{where} cannot run here: {why}; {_AGAIN}")
    if context.config.get("session.fail_on_suboptimal_compiled_model", "0") == "1":
        raise ModelRequiresCompilation(
            f"{where} would run slower than it could: {why}; {_AGAIN}, or allow it: "
            "'session.fail_on_suboptimal_compiled_model' is '1'"
        )
    logger.warning("%s runs slower than it could: %s; %s", where, why, _AGAIN)


def _checked(program: Program, types: Sequence[ValueType | None], part: Part, where: str) -> Program:
    """The program under the node's names, which a tool may have changed since, and with a look at its inputs in each run."""
    node = part.graph.nodes[0]
    if len(node.inputs) != len(program.inputs) or len(node.outputs) != len(program.outputs):
        raise InvalidGraph(
            f"{where} takes {len(program.inputs)} inputs and gives {len(program.outputs)} outputs; the node has "
            f"{len(node.inputs)} and {len(node.outputs)}"
        )
    for name in node.inputs:
        if name not in part.graph.input_names():
            raise InvalidGraph(f"{where}: its input {name!r} is an initializer or left out, expected a value of each run")
    return CheckedProgram(program, types, node, where)


def _constraints(types: Sequence[ValueType | None]) -> list[Any]:
    """What types ask of values: equal lists ask the same. Symbols are numbered in their order."""
    seen: dict[str, int] = {}
    found: list[Any] = []
    for kind in types:
        if not isinstance(kind, TensorType) or kind.shape is None:
            found.append(str(kind))
            continue
        dims = [d if isinstance(d, int) else f"#{seen.setdefault(str(d), len(seen))}" for d in kind.shape]
        found.append((kind.dtype, dims))
    return found


class CheckedProgram(Program):
    """A program whose inputs are checked before each run: its code relies on their types and sizes."""

    def __init__(self, program: Program, types: Sequence[ValueType | None], node: Node, where: str) -> None:
        self.inputs, self.outputs = tuple(node.inputs), tuple(node.outputs)
        self.program, self.types, self._where = program, types, where
        self._own = dict(zip(node.outputs, program.outputs, strict=True))

    def run(self, inputs: Sequence[Any], run: RunContext | None = None) -> list[Any]:
        self.check(inputs)
        return self.program.run(inputs, run)

    def bound(self, inputs: Sequence[np.ndarray], targets: Mapping[str, np.ndarray | None]) -> BoundCall | None:
        self.check(inputs)
        return self.program.bound(inputs, {self._own[name]: target for name, target in targets.items()})

    def describe(self, stage: str = "program") -> str:
        return self.program.describe(stage)

    def check(self, inputs: Sequence[Any]) -> None:
        """Raises InvalidArgument for inputs of types or sizes that the program was not compiled for."""
        sizes: dict[str, int] = {}
        later: list[tuple[str, Expr, int]] = []
        for name, kind, value in zip(self.inputs, self.types, inputs, strict=True):
            if not isinstance(kind, TensorType):
                continue
            given = value.dtype.numpy if isinstance(value, DeviceTensor) else getattr(value, "dtype", type(value).__name__)
            if not isinstance(value, (np.ndarray, DeviceTensor)) or given != kind.dtype.numpy:
                raise self._misfit(name, kind, given)
            if kind.shape is None:
                continue
            if len(value.shape) != len(kind.shape):
                raise self._misfit(name, kind, f"shape {list(value.shape)}")
            for dim, size in zip(kind.shape, value.shape, strict=True):
                if isinstance(dim, Expr) and dim.symbols != {str(dim)}:
                    later.append((name, dim, size))
                elif (dim if isinstance(dim, int) else sizes.setdefault(str(dim), size)) != size:
                    raise self._misfit(name, kind, f"shape {list(value.shape)}, where other sizes are {sizes}")
        for name, dim, size in later:
            if dim.symbols <= sizes.keys() and dim.evaluate(sizes) != size:
                raise self._misfit(name, dim, f"{size}, where other sizes are {sizes}")

    def _misfit(self, name: str, expected: Any, given: Any) -> InvalidArgument:
        return InvalidArgument(f"{self._where} was compiled for its input {name!r} as {expected}; got {given}; {_AGAIN}")
