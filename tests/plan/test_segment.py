"""Binding a segment to sizes: constraints, memory, argument blocks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pytest

from intarsia.codegen.llvm.jit import KernelText
from intarsia.errors import InvalidArgument, OutOfMemory
from intarsia.graph.broadcasting import broadcast_dim
from intarsia.graph.dims import symbol
from intarsia.graph.dtypes import DType
from intarsia.machine import resources
from intarsia.plan.segment import Buffer, Segment
from intarsia.plan.size_constraints import Constraint
from intarsia.plan.step import SCRATCH, STATUS, Argument, Below, Jump, KernelCall, PlainCall, Ref, ScratchCall, Sizes, Step

N, M = symbol("n"), symbol("m")


@pytest.mark.parametrize(("kind", "left", "right", "fits"), [
    ("equal", 3, 3, True), ("equal", 1, 3, False), ("broadcast", 1, 3, True), ("broadcast", 3, 3, True),
    ("broadcast", 3, 1, False),
])  # fmt: skip
def test_constraints(kind: str, left: int, right: int, fits: bool) -> None:
    constraint = Constraint(kind, N, M + 1, "node 'add'")
    env = {"n": left, "m": right - 1}
    if fits:
        constraint.check(env)
        return
    verb = "equal" if kind == "equal" else "broadcast to"
    with pytest.raises(
        InvalidArgument, match=rf"node 'add': a dimension of size {left} \(n\) must {verb} one of size {right} \(m \+ 1\)"
    ):
        constraint.check(env)


def test_constraints_on_sizes_that_do_not_broadcast() -> None:
    with pytest.raises(InvalidArgument, match="node 'add': dimensions 2 and 3 do not broadcast"):
        Constraint("broadcast", N, broadcast_dim(N, M), "node 'add'").check({"n": 2, "m": 3})


@dataclass(frozen=True)
class FirstCall(ScratchCall):
    def arguments(self, size: Sizes, threads: int) -> Sequence[Argument]:
        return [Ref("x", 8), Ref("c"), Ref("t"), Ref(SCRATCH), size(N), threads]

    def scratch_nbytes(self, size: Sizes, threads: int) -> int:
        return 100 * threads


@dataclass(frozen=True)
class SecondCall(KernelCall):
    def arguments(self, size: Sizes, threads: int) -> Sequence[Argument]:
        return [Ref("t", 4), Ref("y"), Ref(STATUS), table]


def two_steps(constraints: list[Constraint] | None = None) -> Segment:
    """x -> t -> y; the first step reads a constant and has scratch memory, the second reports."""
    first = Step(
        KernelText("first", ""), ("x", "c"), ("t",),
        FirstCall(), serial=Below(N, 10),
    )  # fmt: skip
    second = Step(
        KernelText("second", ""),
        ("t",),
        ("y",),
        SecondCall(),
        checked=True,
    )
    buffers = {"x": Buffer(DType.FLOAT, (N,)), "t": Buffer(DType.FLOAT, (N, M)), "y": Buffer(DType.DOUBLE, (M,))}
    return Segment(
        [first, second], ("x",), ("y",), buffers, {"c": np.ones(3)}, constraints or [], {"first": 111, "second": 222}
    )


table = np.arange(4)


def test_arguments_are_addresses_and_sizes() -> None:
    segment = two_steps()
    bound = segment.bind({"n": 20, "m": 3}, threads=2)
    assert bound.outputs == (((3,), np.dtype(np.float64)),)
    assert (bound.serial, bound.checked) == ([False, False], True)
    assert bound.arena_nbytes >= 240 + 200
    state = bound.acquire()
    base = state.args[2] - bound.offsets["t"]
    assert base % 64 == 0
    assert list(state.args[3:6]) == [base + bound.offsets[f"{SCRATCH}0"], 20, 2]
    assert state.args[1] == segment.constants["c"].ctypes.data
    assert list(state.args[6:]) == [state.args[2] + 4, 0, state.status.ctypes.data + 8, table.ctypes.data]
    assert [row[1:].tolist() for row in state.patches] == [[0, 8], [1, 0]]
    assert state.table[:, 0].tolist() == [111, 222]


def test_states_are_used_again() -> None:
    bound = two_steps().bind({"n": 2, "m": 3}, threads=1)
    assert bound.serial == [True, False]
    first, second = bound.acquire(), bound.acquire()
    assert first is not second
    bound.release(first)
    assert bound.acquire() is first
    bound.release(first)
    bound.release(second)
    assert bound.trim() == 2 * bound.arena_nbytes
    assert bound.trim() == 0


def test_binding_checks_the_constraints() -> None:
    with pytest.raises(InvalidArgument, match="where: a dimension of size 2"):
        two_steps([Constraint("equal", N, M, "where")]).bind({"n": 2, "m": 3}, threads=1)


def test_binding_needs_every_size() -> None:
    with pytest.raises(KeyError, match="m"):
        two_steps().bind({"n": 2}, threads=1)


def test_no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resources, "memory_nbytes", lambda: 1 << 40)
    bound = two_steps().bind({"n": 2**16, "m": 2**16}, threads=1)
    monkeypatch.setattr(resources, "memory_nbytes", lambda: 1 << 31)
    with pytest.raises(
        OutOfMemory,
        match=r"the intermediate tensors of a run need .* MiB, which the system does not give: it has 2,048 MiB; use a smaller",
    ):
        bound.acquire()
    with pytest.raises(OutOfMemory, match=r"value '.*' of shape \[65536, 65536\] needs .* MiB, which the system"):
        two_steps().bind({"n": 2**16, "m": 2**16}, threads=1)


def test_negative_sizes() -> None:
    with pytest.raises(InvalidArgument, match=r"would have shape \[-1\]: a size is negative; check sizes and pads"):
        two_steps().bind({"n": -1, "m": 3}, threads=1)


def test_a_least_size() -> None:
    Constraint("least", N, 1, "node 'm' (ArgMax)").check({"n": 1})
    with pytest.raises(InvalidArgument, match=r"node 'm' \(ArgMax\): a dimension of size 0 \(n\) must be at least 1"):
        Constraint("least", N, 1, "node 'm' (ArgMax)").check({"n": 0})


def test_what_iterations_wrote_is_not_overwritten_by_the_next() -> None:
    """x -> a -> stacked, again and again, then stacked -> y: `a` is dead when `stacked` is written first, but alive later."""

    def step(source: str, target: str) -> Step:
        return Step(KernelText(f"{source}{target}", ""), (source,), (target,), PlainCall((Ref(source), Ref(target))))

    steps = [step("x", "a"), step("a", "b"), step("b", "stacked"), Jump(-3, "go"), step("stacked", "y")]
    sizes = {"x": 4, "a": 4, "b": 4, "stacked": 64, "y": 64, "go": 1}
    buffers = {name: Buffer(DType.FLOAT, (count,)) for name, count in sizes.items()}
    bound = Segment(steps, ("x", "go"), ("y",), buffers, {}).bind({}, 1)
    first, *others = (range(bound.offsets[n], bound.offsets[n] + 4 * sizes[n]) for n in ("stacked", "a", "b"))
    assert not any(set(first) & set(other) for other in others)
