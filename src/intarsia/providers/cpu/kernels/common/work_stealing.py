"""Work stealing among the threads of a step: each has a range of units, then claims pieces of the tails.

Cores are not equally fast: a neighbour may use the other half of one. Threads are two halves, each with its part of the units.
The first of these are even ranges of its threads; the last ones, its tail, are pieces. Its own threads claim them from the
front, where they left off, and the other half's, once their own tail is gone, from the end: so most units are computed where
the layer before computed the same ones, and what is taken over lies together. A claim takes a part of what is left, by the
number of threads: few claims where all are equally fast, and single pieces at the end.

One int64 counts the claims, in 16 bits each: those from the front and from the end of either tail. Every caller ends with a
claim on each tail that finds nothing left; who sees all of these counted puts the word back to 0.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from intarsia.codegen.builder.kernel_body import Body, Value

FIELDS = ("claims", "tail", "piece")


def emit_shares(
    body: Body, units: Value, given: Mapping[str, Value], work: Callable[[Value, Value, Value], Value]
) -> None:  # fmt: skip
    """Compute this thread's share of `units`.

    Args:
        given: the arguments that `FIELDS` names.
        work: emits units from the first on, up to the second argument, and gives how many it did; the third is 1 for pieces
            of the other half, else 0.
    """
    b, (_, tid, count) = body.b, body.args
    claims, tail, piece = (given[name] for name in FIELDS)
    middle = body.div(body.add(count, 1), 2)
    border = body.div(body.mul(units, middle), count)
    second = body.select(body.less(tid, middle), 0, 1)

    def part(half: Value) -> tuple[Value, Value, Value, Value, Value]:
        """Of a half: its first unit, where its tail begins and ends, its pieces and its threads."""
        is_first = body.equal(half, 0)
        low, high = body.select(is_first, 0, border), body.select(is_first, border, units)
        members = body.select(is_first, middle, body.sub(count, middle))
        claimed = body.min(body.div(body.mul(tail, members), count), body.sub(high, low))
        pieces = body.div(body.add(claimed, body.sub(piece, 1)), piece)
        return low, body.sub(high, claimed), high, pieces, members

    low, begin, _, _, members = part(second)
    index, own = body.sub(tid, body.select(body.equal(second, 0), 0, middle)), body.sub(begin, low)
    unit = body.cell(body.add(low, body.div(body.mul(own, index), members)), "unit")
    end = body.cell(body.add(low, body.div(body.mul(own, body.add(index, 1)), members)), "end")
    stage, word = body.cell(0, "stage"), body.cell(0, "word")
    shared = body.less(0, tail)
    with body.repeat_while(lambda: body.less(stage.get(), 2)):
        with body.repeat_while(lambda: body.less(unit.get(), end.get())):
            unit.add(work(unit.get(), end.get(), stage.get()))
        with body.either(shared) as (claim, over):
            with claim:
                half = b.xor(second, stage.get())
                _, begin, high, pieces, _ = part(half)
                shift = body.add(body.mul(half, 32), body.mul(stage.get(), 16))
                word.set(b.load_atomic(claims, "monotonic", 8, typ=body.i(0).type))
                failed, taken = body.cell(1, "failed"), body.cell(0, "taken")
                with body.repeat_while(lambda: body.equal(failed.get(), 1)):
                    front, back = _counts(body, word.get(), half)
                    left = body.max(body.sub(pieces, body.add(front, back)), 0)
                    taken.set(body.max(body.div(left, count), 1))
                    after = body.add(word.get(), b.shl(taken.get(), shift))
                    pair = b.cmpxchg(claims, word.get(), after, "monotonic", "monotonic")
                    failed.set(b.zext(b.not_(b.extract_value(pair, 1)), after.type))
                    word.set(b.extract_value(pair, 0))
                front, back = _counts(body, word.get(), half)
                there = body.less(body.add(front, back), pieces)
                number = body.select(body.equal(stage.get(), 0), front, body.sub(body.sub(pieces, back), taken.get()))
                start = body.add(begin, body.mul(number, piece))
                unit.set(body.select(there, start, 0))
                end.set(body.select(there, body.min(high, body.add(start, body.mul(taken.get(), piece))), 0))
                word.set(body.add(word.get(), b.shl(taken.get(), shift)))
                stage.add(body.select(there, 0, 1))
            with over:
                stage.set(2)
    with body.when(shared):
        done = [
            body.equal(body.add(*_counts(body, word.get(), body.i(half))), body.add(part(body.i(half))[3], count))
            for half in (0, 1)
        ]
        with body.when(b.and_(*done)):
            b.store(body.i(0), claims, align=8)


def _counts(body: Body, word: Value, half: Value) -> tuple[Value, Value]:
    """Claims from the front and from the end of a half's tail."""
    field = body.b.lshr(word, body.mul(half, 32))
    return body.b.and_(field, body.i(0xFFFF)), body.b.and_(body.b.lshr(field, body.i(16)), body.i(0xFFFF))
