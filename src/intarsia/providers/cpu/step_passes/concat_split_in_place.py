"""Concatenations and splits along the channels without copies, channels-last.

A convolution or pooling whose result is a part of a concatenation writes its channels where the concatenation has them, and
what else reads it reads it there; one that reads a part of a split reads it where the split image lies. Pixels are then further
apart than their channels. What other kernels compute is copied among its neighbours.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace

from intarsia.codegen.llvm.target import Target
from intarsia.graph.dims import Dim, Shape, product
from intarsia.lazy_dataclass import dataclass
from intarsia.plan.segment import Buffer
from intarsia.plan.step import Argument, Below, BuffersAndSizes, Jump, KernelCall, Ref, Sizes, Step
from intarsia.primitives.lang import Tensor
from intarsia.providers.cpu.kernels.conv import copy_channels
from intarsia.providers.cpu.kernels.conv.conv_arguments import ConvolutionCall, ImplicitGemmCall
from intarsia.providers.cpu.kernels.conv.window_geometry import DTYPES, Place
from intarsia.providers.cpu.kernels.pooling.pooling import PoolCall

_Call = ConvolutionCall | PoolCall
_LEAST_RANK = 3  # with one axis for pixels
_SERIAL_ELEMENTS = 8192
_MOST_COPIED = 0.5  # of a concatenation: what is left is copied in shorter pieces


@dataclass(frozen=True)
class Joined(BuffersAndSizes):
    """A concatenation of `parts` along the last axis."""

    parts: tuple[str, ...] = ()


@dataclass(frozen=True)
class Taken(BuffersAndSizes):
    """Neighbouring elements of the last axis of `source`, whose shape is `shape`, from `first` on."""

    source: str = ""
    shape: Shape = ()
    first: int = 0


def moving(root: Tensor, buffers: tuple[str, ...], sizes: tuple[Dim, ...]) -> BuffersAndSizes:
    """The arguments of a loop's kernel, which say where it only puts channels beside each other, or takes some."""
    parts, rank = root.args, len(root.shape)
    if rank < _LEAST_RANK or not all(t.prim == "input" and t.shape and isinstance(t.shape[-1], int) for t in parts):
        return BuffersAndSizes(buffers, sizes)
    if root.prim == "concat" and root.attrs[0] == rank - 1:
        return Joined(buffers, sizes, tuple(t.attrs[0] for t in parts))
    if root.prim == "slice" and parts[0].shape[:-1] == root.shape[:-1] and isinstance(root.shape[-1], int):
        starts, steps = root.attrs
        if all(s == 1 for s in steps) and not any(starts[:-1]) and isinstance(starts[-1], int):
            return Taken(buffers, sizes, parts[0].attrs[0], parts[0].shape, starts[-1])
    return BuffersAndSizes(buffers, sizes)


def in_place(
    steps: Sequence[Step | Jump], external: Collection[str], buffer: Callable[[str], Buffer], target: Target
) -> list[Step | Jump]:
    """The steps without the copies that can be spared; values in `external` are read elsewhere, too."""
    plain = [s for s in steps if isinstance(s, Step)]
    if len(plain) < len(steps) or not any(isinstance(s.call, Joined | Taken) for s in plain):
        return list(steps)
    return [*_Moves(plain, external, buffer, target).run()]


def _writer(step: Step) -> _Call | None:
    """The call of a convolution or pooling, which can write channels of a wider image."""
    return step.call if isinstance(step.call, _Call) else None


def _reader(step: Step) -> _Call | None:
    """The same, if it can also read channels of a wider image."""
    return None if isinstance(step.call, ImplicitGemmCall) else _writer(step)


def _with_call(step: Step, before: _Call, call: _Call) -> Step:
    """The step with another call of the same kernel."""
    reads = tuple(call.x if n == before.x else n for n in step.reads)
    writes = tuple(call.y if n == before.y else n for n in step.writes)
    return replace(step, reads=reads, writes=writes, call=call)


class _Moves:
    """The steps of a segment while copies are taken out."""

    def __init__(
        self, steps: Sequence[Step], external: Collection[str], buffer: Callable[[str], Buffer], target: Target
    ) -> None:  # fmt: skip
        self.external, self.buffer, self.target = external, buffer, target
        self.slots: list[list[Step]] = [[step] for step in steps]  # what became of each step
        self.readers: dict[str, list[int]] = {}
        self.writers: dict[str, list[int]] = {}
        for i, step in enumerate(steps):
            for name in dict.fromkeys(step.reads):
                self.readers.setdefault(name, []).append(i)
            for name in step.writes:
                self.writers.setdefault(name, []).append(i)

    def run(self) -> Iterator[Step]:
        for i, slot in enumerate(self.slots):
            call: KernelCall | None = slot[0].call
            if isinstance(call, Taken):
                self._take(i, call)
        for i, slot in enumerate(self.slots):
            call = slot[0].call if slot else None
            if isinstance(call, Joined):
                self._join(i, call)
        for slot in self.slots:
            yield from slot

    def _channels(self, name: str) -> int:
        last = self.buffer(name).shape[-1]
        assert isinstance(last, int)
        return last

    def _nbytes(self, name: str) -> int:
        """Bytes of a pixel."""
        return self._channels(name) * self.buffer(name).dtype.numpy.itemsize

    def _moved(self, name: str, other: tuple[int, ...] = ()) -> bool:
        """Whether all that reads a value, but for the steps `other`, could read it as channels of a wider image."""
        readers = self.readers.get(name, ())
        return name not in self.external and all(i in other or self._reads(i, name) is not None for i in readers)

    def _reads(self, index: int, name: str) -> _Call | None:
        """The call of the convolution or pooling whose image a value is, and nothing else."""
        (step, *more) = self.slots[index] or (None,)
        call = _reader(step) if step is not None and not more else None
        if call is None or step is None or call.x != name or step.reads.count(name) > 1:
            return None
        return call if call.geometry.x == self.buffer(name).shape or call.x_place.pixel_nbytes else None

    def _redirect(self, name: str, to: str, place: Place, other: tuple[int, ...] = ()) -> None:
        """Let what reads a value read it in `to`."""
        for i in self.readers.pop(name, []):
            if i in other:
                continue
            call = self._reads(i, name)
            assert call is not None
            self.slots[i] = [_with_call(self.slots[i][0], call, replace(call, x=to, x_place=call.x_place.within(place)))]
            self.readers.setdefault(to, []).append(i)

    def _take(self, index: int, taken: Taken) -> None:
        ((out,),) = (step.writes for step in self.slots[index])
        if self.buffer(taken.source).shape == taken.shape and self._moved(out):
            self._redirect(out, taken.source, self._place(taken))
            self._drop(index)

    def _place(self, taken: Taken) -> Place:
        return Place(taken.first * self.buffer(taken.source).dtype.numpy.itemsize, self._nbytes(taken.source))

    def _drop(self, index: int) -> None:
        for step in self.slots[index]:
            for name in step.reads:
                if index in self.readers.get(name, ()):
                    self.readers[name].remove(index)
        self.slots[index] = []

    def _join(self, index: int, joined: Joined) -> None:
        (step,) = self.slots[index]
        (out,) = step.writes
        shapes = [self.buffer(name).shape for name in (*joined.parts, out)]
        if len(set(joined.parts)) < len(joined.parts) or len({shape[:-1] for shape in shapes}) > 1:
            return
        if self.buffer(out).dtype not in DTYPES:
            return
        pixel, offset = self._nbytes(out), 0
        places: dict[str, Place] = {}
        for name in joined.parts:
            places[name] = Place(offset, pixel)
            offset += self._nbytes(name)
        if offset != pixel:
            return
        rest = [name for name in joined.parts if not self._is_made_in_place(name, index)]
        if sum(map(self._nbytes, rest)) > _MOST_COPIED * pixel:
            return
        for name in joined.parts:
            if name not in rest:
                self._write(name, out, places[name], index)
        self.slots[index] = [self._copy(step, name, out, places[name], index) for name in rest]

    def _is_made_in_place(self, name: str, index: int) -> bool:
        """Whether a part of the concatenation `index` is computed where the whole lies."""
        writers = self.writers.get(name, [])
        if len(writers) != 1 or len(self.slots[writers[0]]) != 1 or not self._moved(name, (index,)):
            return False
        call = _writer(self.slots[writers[0]][0])
        return call is not None and call.y == name and call.geometry.y == self.buffer(name).shape

    def _write(self, name: str, out: str, place: Place, index: int) -> None:
        (writer,) = self.writers.pop(name)
        (step,) = self.slots[writer]
        call = _writer(step)
        assert call is not None
        self.slots[writer] = [_with_call(step, call, replace(call, y=out, y_place=place))]
        self.writers.setdefault(out, []).append(writer)
        self._redirect(name, out, place, (index,))

    def _copy(self, step: Step, name: str, out: str, place: Place, index: int) -> Step:
        """The copy of one part, from where it was taken if nothing else reads it."""
        shape, source, begin = self.buffer(name).shape, name, Place(0, self._nbytes(name))
        writers = self.writers.get(name, [])
        owner = self.slots[writers[0]][0].call if len(writers) == 1 and self.slots[writers[0]] else None
        only = self.readers.get(name) == [index] and name not in self.external
        if isinstance(owner, Taken) and only and self.buffer(owner.source).shape == owner.shape:
            source, begin = owner.source, self._place(owner)
            self._drop(writers[0])
            self.readers.setdefault(source, []).append(index)
        pixels = product(shape[:-1])
        return replace(
            step, kernel=copy_channels.copy_text(self.buffer(name).dtype, self.target), reads=(source,), writes=(out,),
            calls=(), call=CopyCall(source, out, begin, place, pixels, self._channels(name)),
            label="channels of a concatenation", serial=Below(product(shape), _SERIAL_ELEMENTS), work=None,
        )  # fmt: skip


@dataclass(frozen=True)
class CopyCall(KernelCall):
    """Copies neighbouring channels of all pixels."""

    x: str
    y: str
    x_place: Place
    y_place: Place
    pixels: Dim
    channels: int

    @property
    def form(self) -> object:
        return self.x_place, self.y_place, self.pixels, self.channels

    def arguments(self, size: Sizes, threads: int) -> Sequence[Argument]:
        return copy_channels.copy_args(
            Ref(self.x, self.x_place.offset_nbytes), Ref(self.y, self.y_place.offset_nbytes), pixels=size(self.pixels),
            channels=self.channels, source_pixel=self.x_place.pixel_nbytes, out_pixel=self.y_place.pixel_nbytes,
        )  # fmt: skip
