"""What segments read of values that Python makes: found in time by what a segment reads, not by how many units there are."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

from intarsia.graph.dtypes import DType
from intarsia.graph.model import Node
from intarsia.providers.cpu.executable import Executable, HostStep
from intarsia.providers.cpu.program.boundary_checks import wanted


class Seen(list[Any]):
    """Units that count how many of them were looked at."""

    count = 0

    def __iter__(self) -> Iterator[Any]:
        for each in super().__iter__():
            self.count += 1
            yield each


def test_each_unit_is_looked_at_once() -> None:
    units = Seen(HostStep(Node("Where", ["x"], [f"v{i}"], name=f"n{i}"), ("x",), (), (None,), "a test") for i in range(300))
    executable = Executable((), (), (), units, {}, {}, {})
    for i in range(300):
        segment: Any = SimpleNamespace(inputs=("x", f"v{i}"), buffers={f"v{i}": SimpleNamespace(dtype=DType.FLOAT, shape=(2,))})
        (found,) = wanted(executable, segment)
        assert (found.place, found.name, found.node, found.dims) == (1, f"v{i}", f"node 'n{i}' (Where)", (2,))
    assert units.count == 300
    assert wanted(executable.fresh(), segment) == (found,)
