"""Where the values of a loop lie in each trip: what a trip gives is read by the next one where it was written.

A carried value goes round in buffers of its own, two for each as a rule: a trip writes into one that none of its inputs lies
in. Rows of stacked outputs are written where they belong, and rows of a Scan's inputs are read where they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field

import numpy as np

from intarsia.lazy_dataclass import dataclass
from intarsia.plan.memory_layout import align
from intarsia.plan.trip_table import Places
from intarsia.providers.cpu.executable import Executable

_LEASED_NBYTES = 1 << 20  # of buffers that only the trips of one batch see, and that lie beside its other tensors

Slot = tuple[str, int]  # what lies there, and which of these
Place = tuple[int, int, int]  # slot, offset in bytes, what is added to that for each trip


@dataclass(frozen=True)
class Form:
    """A loop's body by positions: of its inputs and outputs, what they are.

    Attributes:
        inputs: the slot of each of the body's inputs: ("trip", 0), ("true", 0), ("carried", j), ("source", r), ("captured", c).
        condition: whether the first output is looked at.
        first: number of the first carried output.
        states: how many values are carried.
    """

    inputs: tuple[Slot, ...]
    condition: bool
    first: int
    states: int


@dataclass
class Layout:
    """Places for a batch of trips.

    Attributes:
        slots: what each slot is; ("buffer", b) is a buffer of `buffers[b]` bytes, ("leased", n) begins at byte n of
            `leased_nbytes` that only the trips of the batch see, ("rows", s) is the first row of a batch.
        carried: int64 [trips + 1, states, 2]: slot and offset before each trip, and after the last.
    """

    places: Places
    slots: list[Slot]
    carried: np.ndarray
    buffers: list[int] = field(default_factory=list)
    leased_nbytes: int = 0


class _Trips:
    def __init__(self, executable: Executable, form: Form, row_steps: Sequence[int], source_steps: Sequence[int]) -> None:
        (segment,) = executable.segments()
        self.executable, self.form = executable, form
        self.outputs = segment.outputs
        self.externals = (*segment.inputs, *segment.outputs)
        self.results = [r.buffer for r in executable.results]
        self.row_steps, self.source_steps = row_steps, source_steps
        self.slots: dict[Slot, int] = {}
        self.pools: dict[str, list[int]] = {name: [] for name in self.outputs}  # slots of each output's buffers
        self.buffers: list[str] = []  # whose output each buffer is
        rows = self.results[form.first + form.states :]
        others = {*self.results[: form.first + form.states]}
        self.direct = {
            name: s for s, name in enumerate(rows) if name in self.outputs and name not in others and rows.count(name) == 1
        }

    def slot(self, kind: str, number: int) -> int:
        return self.slots.setdefault((kind, number), len(self.slots))

    def begin(self) -> tuple[Place, ...]:
        return tuple((self.slot("carried", j), 0, 0) for j in range(self.form.states))

    def trip(self, carried: Sequence[Place]) -> dict[str, Place]:
        """Places of all that a trip reads and writes, by name."""
        found: dict[str, Place] = {}
        for value, (kind, number) in zip(self.executable.inputs, self.form.inputs, strict=True):
            if kind == "carried":
                found[value.name] = carried[number]
            else:
                step = 8 if kind == "trip" else self.source_steps[number] if kind == "source" else 0
                found[value.name] = (self.slot(kind, number), 0, step)
        for number, name in enumerate(self.executable.constants):
            if name in self.results:
                found[name] = (self.slot("constant", number), 0, 0)
        live = {place[0] for place in carried}
        for name in self.outputs:
            if name in self.direct:
                s = self.direct[name]
                found[name] = (self.slot("rows", s), 0, self.row_steps[s])
            else:
                found[name] = (self._buffer(name, live), 0, 0)
        return found

    def _buffer(self, name: str, live: set[int]) -> int:
        """The slot of a buffer of the output's that no input lies in."""
        free = [s for s in self.pools[name] if s not in live]
        if not free:
            self.buffers.append(name)
            free = [self.slot("buffer", len(self.buffers) - 1)]
            self.pools[name] += free
        return free[0]

    def after(self, found: dict[str, Place], trip: int) -> tuple[Place, ...]:
        """Where the carried values are then."""
        names = self.results[self.form.first :][: self.form.states]
        return tuple((slot, offset + trip * step, 0) for slot, offset, step in (found[n] for n in names))

    def copies(self, found: dict[str, Place]) -> list[tuple[Place, Place]]:
        """Rows that do not come to be where they belong: target and source."""
        rows = self.results[self.form.first + self.form.states :]
        return [
            ((self.slot("rows", s), 0, self.row_steps[s]), found[name])
            for s, name in enumerate(rows)
            if name not in self.direct
        ]


def laid_out(
    executable: Executable, form: Form, trips: int, output_nbytes: np.ndarray, row_nbytes: Sequence[int],
    row_steps: Sequence[int], source_steps: Sequence[int],
) -> Layout:  # fmt: skip
    """Places for so many trips.

    Args:
        executable: the body, one segment.
        output_nbytes: int64 [trips, outputs], of each output of the segment what each trip needs.
        row_nbytes, row_steps: of each stacked output, bytes of a row, and from one trip's row to the next one's.
        source_steps: the same of a Scan's inputs.
    """
    walk = _Trips(executable, form, row_steps, source_steps)
    state = walk.begin()
    seen: dict[tuple[Place, ...], int] = {}
    states: list[tuple[Place, ...]] = []
    found: list[dict[str, Place]] = []
    while len(found) < trips and state not in seen:  # from where it was before on, everything repeats itself
        seen[state] = len(found)
        states.append(state)
        found.append(walk.trip(state))
        state = walk.after(found[-1], len(found) - 1)
    start = seen.get(state, len(found))
    states.append(state)
    index = np.arange(trips + 1)
    period = max(1, len(found) - start)
    repeated = np.where(index < len(found), index, start + (index - start) % period) if start < len(found) else index
    moment = np.arange(trips)
    trip_of = repeated[:trips]

    def table(rows: list[list[Place]]) -> np.ndarray:
        """int64 [trips, places, 2] of rows of the trips that were walked."""
        all_rows = np.array(rows, np.int64).reshape(len(rows), -1, 3)[trip_of]
        all_rows[:, :, 1] += moment[:, None] * all_rows[:, :, 2]
        return all_rows[:, :, :2]

    copied = [walk.copies(f) for f in found]
    externals = table([[f[n] for n in walk.externals] for f in found])
    copies = table([[place for pair in pairs for place in pair] for pairs in copied]).reshape(trips, -1, 2, 2)
    condition = None
    if form.condition:
        condition = table([[f[walk.results[0]]] for f in found])[:, 0]
    rows = walk.results[form.first + form.states :]
    nbytes = [row_nbytes[s] for s, name in enumerate(rows) if name not in walk.direct]
    carried = np.array(states, np.int64).reshape(len(states), -1, 3)[repeated][:, :, :2]
    places = Places(externals, copies, nbytes, condition, len(walk.slots))
    made = Layout(places, list(walk.slots), carried)
    number = {slot: i for i, slot in enumerate(made.slots)}
    last = set() if form.condition else {int(slot) for slot in carried[-1, :, 0]}
    written = externals[:, len(walk.externals) - len(walk.outputs) :, 0]  # the slot of each trip's outputs
    for b in range(len(walk.buffers)):
        at = number["buffer", b]
        most = int(output_nbytes[written == at].max(initial=0))
        if form.condition or at in last or made.leased_nbytes + most > _LEASED_NBYTES:
            made.slots[at] = ("buffer", len(made.buffers))
            made.buffers.append(most)
        else:
            made.slots[at] = ("leased", made.leased_nbytes)
            made.leased_nbytes = align(made.leased_nbytes + most)
    return made
