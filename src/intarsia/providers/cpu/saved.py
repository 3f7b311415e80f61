"""CPU programs as bytes: what runs them, without what they were made from.

The head holds the executable (steps with their arguments as data) and its machine code as one image; arrays (weights in the
form that kernels want) are kept beside it, to be read in one piece. Neither text of kernels nor a compiler is needed to start.
"""

from __future__ import annotations

import mmap
import pickle
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from intarsia.codegen import image
from intarsia.codegen.cache import content_key
from intarsia.partition.provider import CompileContext, NotSaved, SavedProgram
from intarsia.plan.arena import ALIGNMENT, align
from intarsia.providers.cpu.common_weights import LEAST_NBYTES, share
from intarsia.providers.cpu.executable import Executable, HostStep, LoopStep
from intarsia.records import dataclass

if TYPE_CHECKING:
    from intarsia.codegen.engine import KernelText
    from intarsia.codegen.target import Target
    from intarsia.providers.cpu.program import CpuProgram


_Key = tuple[int, str]  # number of the program among those of loops inside it, name of the array


@dataclass(frozen=True)
class _Place:
    """An array in the block of all arrays."""

    offset: int
    dtype: np.dtype[Any]
    shape: tuple[int, ...]


def save(program: CpuProgram) -> SavedProgram:
    """The program as bytes.

    Raises:
        NotSaved: it has parts that are not data (subgraphs run by Python, functions), or its code does not link.
    """
    executable = program.executable
    every = executable.nested()
    nested = [u.node for e in every for u in e.units if isinstance(u, HostStep) and any(True for _ in u.node.subgraphs)]
    if nested:
        first = f"node {nested[0].name!r} ({nested[0].qualified_op}) runs a subgraph from Python"
        raise NotSaved(first, (name for node in nested for name in node.outputs if name))
    arrays = {(i, n): a for i, e in enumerate(every) for n, a in e.constants.items() if not a.dtype.hasobject}
    small = {(i, n): a for i, e in enumerate(every) for n, a in e.constants.items() if a.dtype.hasobject}
    places, parts = _laid_out(arrays)
    kernels = executable.kernels()
    code = _linked(list(kernels.values()), program.target) if kernels else b""
    try:
        head = pickle.dumps((program.target, _without_constants(executable), places, small), 5)
    except (pickle.PicklingError, TypeError, AttributeError) as error:
        raise NotSaved(f"a step is not plain data: {error}") from error
    key = content_key(head, code)
    program.keep_bindings(key)
    return SavedProgram(pickle.dumps((head, code, key), 5), parts)


def _without_constants(executable: Executable) -> Executable:
    units = [replace(u, body=_without_constants(u.body)) if isinstance(u, LoopStep) else u for u in executable.units]
    return replace(executable, units=units, constants={})


def _linked(kernels: Sequence[KernelText], target: Target) -> bytes:
    from intarsia.codegen.engine import get_engine

    objects = get_engine(target).objects(kernels, anew=True)
    if objects is None:
        raise NotSaved("it was restored itself, and its kernels are not in the cache")
    code = image.link(objects, [k.symbol for k in kernels])
    if code is None:
        raise NotSaved("its kernels cannot be linked without LLVM on this system")
    return code


def _laid_out(arrays: dict[_Key, np.ndarray]) -> tuple[dict[_Key, _Place], list[memoryview | bytes]]:
    """Where each array goes, and all their bytes; an array that several programs have is there once. Large ones come last, and
    begin at pages, so that their pages can be another file's."""
    places: dict[_Key, _Place] = {}
    parts: list[memoryview | bytes] = []
    at, known = 0, dict[tuple[object, ...], _Place]()
    for name, array in sorted(arrays.items(), key=lambda entry: entry[1].nbytes >= LEAST_NBYTES):
        same = (array.ctypes.data, array.dtype, array.shape, array.strides)
        if same in known and array.nbytes:
            places[name] = known[same]
            continue
        dense = np.ascontiguousarray(array)
        if dense.nbytes >= LEAST_NBYTES:
            parts.append(bytes(-at % mmap.PAGESIZE))
            at += -at % mmap.PAGESIZE
        places[name] = known[same] = _Place(at, array.dtype, array.shape)
        if dense.nbytes:
            parts += [dense.reshape(-1).view(np.uint8).data, bytes(align(dense.nbytes) - dense.nbytes)]
        at += align(dense.nbytes)
    return places, parts


def restore(head: bytes, block: np.ndarray, context: CompileContext) -> CpuProgram | None:
    """The program that `save` made these bytes from; None where its code cannot be loaded here.

    Args:
        head: as saved.
        block: uint8 [nbytes], the saved parts one after the other; the program keeps it.
    """
    from intarsia.providers.cpu.program import CpuProgram

    inner, code, key = pickle.loads(head)  # noqa: S301 # as machine code, from the user's own cache
    target, executable, places, small = pickle.loads(inner)  # noqa: S301 # the same
    addresses = image.load_once(code) if code else {}
    if addresses is None or (block.size and block.ctypes.data % ALIGNMENT):
        return None
    arrays = _shared({key: _array(block, place) for key, place in places.items()}, block) | small
    for number, inner in enumerate(executable.nested()):
        inner.constants = {name: array for (i, name), array in arrays.items() if i == number}
        for segment in inner.segments():
            segment.constants = {name: inner.constants[name] for name in segment.constants}
    program = CpuProgram(executable, addresses, context, target)
    program.keep_bindings(key)
    return program


def _shared(own: dict[_Key, np.ndarray], block: np.ndarray) -> dict[_Key, np.ndarray]:
    """The arrays of a block, other programs' where those are equal; what they take the place of needs no memory then."""
    found = share(own)
    replaced = [own[key] for key, array in found.items() if array is not own[key]]
    if replaced:
        _leave(replaced, block)
        small = {key: _copy(array) for key, array in found.items() if array is own[key] and array.nbytes < LEAST_NBYTES}
        return {key: small.get(key, array) for key, array in found.items()}
    return found


def _copy(array: np.ndarray) -> np.ndarray:
    room = np.empty(array.nbytes + ALIGNMENT, np.uint8)
    start = -room.ctypes.data % ALIGNMENT
    copied = room[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    copied[...] = array
    return copied


def _leave(arrays: Sequence[np.ndarray], block: np.ndarray) -> None:
    """Give back pages of a mapped file; other blocks are freed with the last of their arrays."""
    root: Any = block
    while isinstance(root, np.ndarray):
        root = root.base
    root = root.obj if isinstance(root, memoryview) else root
    if not isinstance(root, mmap.mmap) or not hasattr(mmap, "MADV_DONTNEED"):
        return
    first = np.frombuffer(root, np.uint8).ctypes.data
    for array in arrays:
        start = array.ctypes.data - first
        end = (start + array.nbytes) // mmap.PAGESIZE * mmap.PAGESIZE
        start = -(-start // mmap.PAGESIZE) * mmap.PAGESIZE
        if end > start:
            root.madvise(mmap.MADV_DONTNEED, start, end - start)


def needs() -> str:
    """What programs of this process need of a machine: `triple +feature,...`, and the CPU they were compiled on."""
    from intarsia.codegen.fingerprint import cpu_key
    from intarsia.codegen.target import Target

    target = Target.host()
    return f"{target.triple} {','.join(sorted(target.enabled))} cpu:{cpu_key()}"


def fits(text: str) -> tuple[str, bool]:
    """As `ExecutionProvider.fits`: without some of the features the code cannot run, with more it could be better."""
    from intarsia.codegen.fingerprint import cpu_key

    triple, _, rest = text.partition(" ")
    features, _, key = rest.partition(" cpu:")
    if key == cpu_key():
        return "", True
    from intarsia.codegen.target import Target

    host = Target.host()
    if triple != host.triple:
        return f"it was compiled for {triple}; this is {host.triple}", False
    wanted = set(filter(None, features.split(",")))
    if missing := wanted - host.enabled:
        return f"it was compiled for a CPU with {', '.join(sorted(missing))}, which this one does not have", False
    if more := host.enabled - wanted:
        return f"it was compiled for a CPU without {', '.join(sorted(more))}", True
    return "", True


def _array(block: np.ndarray, place: _Place) -> np.ndarray:
    nbytes = place.dtype.itemsize
    for size in place.shape:
        nbytes *= size
    return block[place.offset : place.offset + nbytes].view(place.dtype).reshape(place.shape)
