"""CPU programs as bytes: what runs them, without what they were made from.

The head holds the executable (steps with their arguments as data) and its machine code as one image; arrays (weights in the
form that kernels want) lie beside it, to be read in one piece. Neither text of kernels nor a compiler is needed to start.
"""

from __future__ import annotations

import math
import mmap
import pickle
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from intarsia.cache.disk_cache import content_key
from intarsia.codegen.llvm import linked_image
from intarsia.ep.provider import CompileContext, NotSaved, SavedProgram
from intarsia.graph.formats.mapped_arrays import release_pages
from intarsia.lazy_dataclass import dataclass
from intarsia.plan.memory_layout import ALIGNMENT, align
from intarsia.providers.cpu.executable import Executable, HostStep, LoopStep
from intarsia.providers.cpu.program.shared_weights import LEAST_NBYTES, share
from intarsia.runtime.read_ahead import KEY, Spans, begin, joined

if TYPE_CHECKING:
    from intarsia.codegen.llvm.jit import KernelText
    from intarsia.codegen.llvm.target import Target
    from intarsia.providers.cpu.program.cpu_program import CpuProgram


_Key = tuple[int, str]  # number of the program among those of loops inside it, name of the array


@dataclass(frozen=True)
class _Place:
    """An array in the block of all arrays."""

    offset: int
    dtype: np.dtype[Any]
    shape: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize


def save(program: CpuProgram) -> SavedProgram:
    """The program as bytes.

    Raises:
        NotSaved: it has parts that are not data (subgraphs run by Python, functions), or its code does not link.
    """
    executable = program.executable
    every = executable.nested()
    nested = [u.node for e in every for u in e.units if isinstance(u, HostStep) and u.node.has_subgraphs]
    if nested:
        first = f"node {nested[0].name!r} ({nested[0].qualified_op}) runs a subgraph from Python"
        raise NotSaved(first, (name for node in nested for name in node.outputs if name))
    arrays = {(i, n): a for i, e in enumerate(every) for n, a in e.constants.items() if not a.dtype.hasobject}
    small = {(i, n): a for i, e in enumerate(every) for n, a in e.constants.items() if a.dtype.hasobject}
    used = _used(executable)
    scattered = {(0, name) for name, whole in used.items() if not whole}
    places, parts, scattered_nbytes = _laid_out(arrays, scattered)
    kernels = executable.kernels()
    code = _linked(list(kernels.values()), program.target) if kernels else b""
    try:
        head = pickle.dumps((program.target, _without_constants(executable), places, small, _spans(used, places)), 5)
    except (pickle.PicklingError, TypeError, AttributeError) as error:
        raise NotSaved(f"a step is not plain data: {error}") from error
    key = content_key(head, code)
    program.keep_bindings(key)
    return SavedProgram(pickle.dumps((head, code, key), 5), parts, scattered_nbytes)


def _used(executable: Executable) -> dict[str, bool]:
    """Constants that every run reads: whether all of each, or parts that data choose."""
    found: dict[str, bool] = {}
    for segment in executable.segments():
        for name, whole in segment.used().items():
            found[name] = found.get(name, False) or whole
    return found


def _spans(used: Mapping[str, bool], places: Mapping[_Key, _Place]) -> Spans:
    """The same as bytes of the block."""
    found = [(places[0, name], whole) for name, whole in used.items() if (0, name) in places]
    whole, scattered = ([(p.offset, p.offset + p.nbytes) for p, kind in found if kind is wanted] for wanted in (True, False))
    return Spans(joined(whole), joined(scattered))


def _without_constants(executable: Executable) -> Executable:
    units = [replace(u, body=_without_constants(u.body)) if isinstance(u, LoopStep) else u for u in executable.units]
    return replace(executable, units=units, constants={})


def _linked(kernels: Sequence[KernelText], target: Target) -> bytes:
    from intarsia.codegen.llvm.jit import get_engine
    from intarsia.codegen.llvm.link_objects import link

    objects = get_engine(target).objects(kernels, anew=True)
    if objects is None:
        raise NotSaved("it was restored itself, and its kernels are not in the cache")
    code = link(objects, [k.symbol for k in kernels])
    if code is None:
        raise NotSaved("its kernels cannot be linked without LLVM on this system")
    return code


def _laid_out(
    arrays: dict[_Key, np.ndarray], scattered: Collection[_Key]
) -> tuple[dict[_Key, _Place], list[memoryview | bytes], int]:
    """Where each array goes, all their bytes, and how many at the end are of large arrays of which a run reads parts. An array
    that several programs have is there once. Large ones come last, and begin at pages, so that their pages can be another
    file's."""
    places: dict[_Key, _Place] = {}
    parts: list[memoryview | bytes] = []
    order = {name: (a.nbytes >= LEAST_NBYTES) * (1 + (name in scattered)) for name, a in arrays.items()}
    at, known, end = 0, dict[tuple[object, ...], _Place](), 0
    for name in sorted(arrays, key=order.__getitem__):
        array = arrays[name]
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
        end = at if order[name] < 2 else end
    return places, parts, at - end


def restore(head: bytes, block: np.ndarray, context: CompileContext) -> CpuProgram | None:
    """The program that `save` made these bytes from; None where its code cannot be loaded here.

    Args:
        head: as saved.
        block: uint8 [nbytes], the saved parts one after the other; the program keeps it.
    """
    from intarsia.providers.cpu.program.cpu_program import CpuProgram

    inner, code, key = pickle.loads(head)  # noqa: S301 # as machine code, from the user's own cache
    target, executable, places, small, spans = pickle.loads(inner)  # noqa: S301 # the same
    addresses = linked_image.load_once(code) if code else {}
    if addresses is None or (block.size and block.ctypes.data % ALIGNMENT):
        return None
    own = {key: _array(block, place) for key, place in places.items()}
    arrays = _shared(own) | small
    for number, inner in enumerate(executable.nested()):
        inner.constants = {name: array for (i, name), array in arrays.items() if i == number}
        for segment in inner.segments():
            segment.constants = {name: inner.constants[name] for name in segment.constants}
    program = CpuProgram(executable, addresses, context, target)
    program.keep_bindings(key)
    if all(arrays[key] is array for key, array in own.items()) and context.config.get(KEY, "1") == "1":
        begin(block, spans)
    return program


def _shared(own: dict[_Key, np.ndarray]) -> dict[_Key, np.ndarray]:
    """The arrays of a block, other programs' where those are equal; what they take the place of needs no memory then."""
    found = share(own)
    replaced = [own[key] for key, array in found.items() if array is not own[key]]
    if replaced:
        for array in replaced:
            release_pages(array)
        small = {key: _copy(array) for key, array in found.items() if array is own[key] and array.nbytes < LEAST_NBYTES}
        return {key: small.get(key, array) for key, array in found.items()}
    return found


def _copy(array: np.ndarray) -> np.ndarray:
    room = np.empty(array.nbytes + ALIGNMENT, np.uint8)
    start = -room.ctypes.data % ALIGNMENT
    copied = room[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    copied[...] = array
    return copied


def compatibility_info() -> str:
    """What programs of this process need of a machine: `triple +feature,...`, and the CPU they were compiled on."""
    from intarsia.cache.fingerprint import cpu_key
    from intarsia.codegen.llvm.target import Target

    target = Target.host()
    return f"{target.triple} {','.join(sorted(target.enabled))} cpu:{cpu_key()}"


def check_compatibility(info: str) -> tuple[str, bool]:
    """As `ExecutionProvider.check_compatibility`: the code cannot run without its features, and could be better with more."""
    from intarsia.cache.fingerprint import cpu_key

    triple, _, rest = info.partition(" ")
    features, _, key = rest.partition(" cpu:")
    if key == cpu_key():
        return "", True
    from intarsia.codegen.llvm.target import Target

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
    return block[place.offset : place.offset + place.nbytes].view(place.dtype).reshape(place.shape)
