"""Broadcasts elements of A into all lanes, to multiply vectors of B by them."""

from __future__ import annotations

from collections.abc import Callable

from intarsia.codegen.builder.kernel_body import Body, Value
from intarsia.codegen.llvm.target import Target
from intarsia.graph.dtypes import DType
from intarsia.providers.cpu.kernels.common.tiles import multiplies_by_lanes


def steps_at_once(target: Target, lanes: int) -> int:
    """Steps of a loop whose numbers one load brings."""
    return lanes if multiplies_by_lanes(target) else 1


class Numbers:
    """Numbers of lines of `count` of them, side by side in memory, requested in order: as many as a vector has lanes are loaded
    at once (`load`) where these can be multiplied by, else each is broadcast."""

    def __init__(
        self, body: Body, lanes: int, count: int, load: Callable[[Value], Value], broadcast: Callable[[Value], Value]
    ) -> None:  # fmt: skip
        self.body, self.lanes, self.load, self.broadcast = body, lanes, load, broadcast
        self.in_vectors = count // lanes * lanes if multiplies_by_lanes(body.module.target) else 0
        self._held: dict[int, Value] = {}

    @classmethod
    def of_type(cls, body: Body, dtype: DType, lanes: int, count: int) -> Numbers:
        return cls(
            body, lanes, count, lambda place: body.load(place, dtype, lanes), lambda place: body.broadcast(place, dtype, lanes)
        )

    def of(self, line: int, index: int, place: Value) -> Value:
        """A line's number `index`, which lies at `place`, in all lanes."""
        if index >= self.in_vectors:
            return self.broadcast(place)
        lane = index % self.lanes
        if lane == 0:
            self._held[line] = self.load(place)
        return self.body.shuffle(self._held[line], self._held[line], [lane] * self.lanes)
