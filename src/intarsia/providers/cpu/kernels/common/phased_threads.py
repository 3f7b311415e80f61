"""Barriered phases of a step: a phase reads what all tasks of the one before have written.

A phase has the same tasks as every other, at most `MOST_PARTS`. Each caller claims its own task first, then any that nobody
has begun: so a caller needs no other one to be there, shares of threads that sleep are computed by those that run, and the
data of a task stay in one core's cache where all are there.

One int64 says how far they are: the phase in its high half, then 16 bits that count finished tasks, and a bit for each task
that is claimed. Who finishes the last task of a phase puts the word to the next one. After the last phase the low half counts
the callers that leave; the last one puts the word back to 0. A caller in pieces (`plan.step.Step.pieces`) goes on to a phase
of its own in each and leaves in the last one.
"""

from __future__ import annotations

from collections.abc import Callable

from intarsia.codegen.builder.kernel_body import Body, Value
from intarsia.codegen.llvm import ir_builder
from intarsia.codegen.llvm.target import Target

_PAUSES = {"x86_64": "llvm.x86.sse2.pause", "i686": "llvm.x86.sse2.pause"}


def emit_lockstep(
    body: Body, target: Target, claims: Value, tasks: Value, phases: Value, until: Value, caller: tuple[Value, Value],
    task: Callable[[Value, Value], None],
) -> None:  # fmt: skip
    """Go on to the end of phase `until - 1`.

    Args:
        caller: the number of this caller, and how many there are.
        task: emits a task of a phase, from their numbers.
    """
    b, (number, callers) = body.b, caller
    own = body.b.shl(body.i(1), body.rem(number, tasks))
    every = body.sub(b.shl(body.i(1), tasks), 1)
    going = body.cell(1, "going")
    with body.repeat_while(lambda: body.equal(going.get(), 1)):
        word = b.load_atomic(claims, "acquire", 8, typ=own.type)
        phase = b.lshr(word, body.i(32))
        with body.either(body.less(phase, until)) as (inside, outside):
            with outside:
                going.set(0)
            with inside:
                free = b.and_(b.xor(word, body.i(-1)), every)
                with body.either(body.equal(free, 0)) as (wait, try_one):
                    with wait:
                        _pause(body, target)
                    with try_one:
                        lowest = b.and_(free, b.neg(free))
                        mine = body.select(body.equal(b.and_(free, own), 0), lowest, own)
                        pair = b.cmpxchg(claims, word, b.or_(word, mine), "acquire", "monotonic")
                        with body.when(b.extract_value(pair, 1)):
                            task(b.cttz(mine, ir_builder.Constant(ir_builder.IntType(1), 1)), phase)
                            before = b.atomic_rmw("add", claims, body.i(1 << 16), "acq_rel")
                            done = body.add(b.and_(b.lshr(before, body.i(16)), body.i(0xFFFF)), 1)
                            with body.when(body.equal(done, tasks)):
                                _store(body, b.shl(body.add(phase, 1), body.i(32)), claims)
    with body.when(body.equal(until, phases)):
        left = b.atomic_rmw("add", claims, body.i(1), "acq_rel")
        with body.when(body.equal(b.and_(left, body.i(0xFFFFFFFF)), body.sub(callers, 1))):
            _store(body, body.i(0), claims)


def _store(body: Body, value: Value, word: Value) -> None:
    """Release what was written before; an exchange, which all targets' memory models have in one form."""
    body.b.atomic_rmw("xchg", word, value, "release")


def _pause(body: Body, target: Target) -> None:
    """Tell the core that its thread waits."""
    if target.arch in _PAUSES:
        body.b.call(body.intrinsic(_PAUSES[target.arch], ir_builder.VoidType(), []), [])
    elif target.arch == "aarch64":
        body.b.call(body.intrinsic("llvm.aarch64.hint", ir_builder.VoidType(), [ir_builder.IntType(32)]), [body.const32(1)])
