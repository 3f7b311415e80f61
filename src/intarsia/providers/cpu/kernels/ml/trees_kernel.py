"""Descent through the trees of an ensemble, eight at a time, and the sums of the leaves' votes.

What is compared says `ops.ml.descent`; a node has the interval of keys that lead to its second child:

    next = child + (1 where the key of the node's feature leads there, else 0)

A leaf's interval is empty and its child is itself: lanes that arrived early stay where they are.

Eight descents are in flight at once, because each waits for memory at every node: eight rows in one tree, or, where there are
few rows, eight trees for one row. Keys lie as [feature][row of eight], so one register addresses all of them.

Votes are added as doubles: those of CHUNK trees in order, then these sums in order. The order depends neither on the number of
rows nor on the number of threads, so neither does the result.
"""

from __future__ import annotations

import functools

from intarsia.codegen.builder.kernel_body import Body, Module, Value
from intarsia.codegen.elementwise.emitter import Emitter
from intarsia.codegen.llvm import ir_builder
from intarsia.codegen.llvm.jit import KernelText
from intarsia.codegen.llvm.target import Target
from intarsia.graph.dtypes import DType
from intarsia.lazy_dataclass import dataclass
from intarsia.ops.ml import descent
from intarsia.primitives import lang as k

LANES = 8
CHUNK = 64  # trees whose votes are added up before they are added to the others'
FEW = 4  # up to so many rows, and with as many left over, lanes are trees
NODE_BYTES = {DType.FLOAT: 16, DType.DOUBLE: 24}
TREE_WORDS = 4  # root's offset, steps before arrival is checked, whether it is checked, target of its votes

FIELDS = (
    "x nodes trees columns weights first targets sums scratch rows pitch ntrees ntargets ncolumns block parts stride "
    "accumulators"
).split()
COMBINE_FIELDS = ("partial", "sums", "count", "parts")
AGGREGATES = ("SUM", "MIN", "MAX")
VOTES = ("node", "dense", "sparse")

_F64 = DType.DOUBLE
_I32, _I64 = ir_builder.IntType(32), ir_builder.IntType(64)
_IDENTITY = {"SUM": 0.0, "MIN": float("inf"), "MAX": float("-inf")}


@dataclass(frozen=True)
class Form:
    """Compile-time parameters of the kernel.

    Attributes:
        dtype: FLOAT or DOUBLE, of the data.
        votes: "node": a leaf has one vote, whose weight stands in its node and whose target is its tree's; "dense": a row of
            `weights` per leaf, one for each target; "sparse": leaf i has the votes first[i] to first[i + 1] in `weights` and
            `targets`.
        weight: FLOAT or DOUBLE, of the votes ("node": the data's).
        aggregate: SUM, MIN or MAX.
    """

    dtype: DType
    votes: str
    weight: DType
    aggregate: str


@functools.lru_cache(maxsize=16)
def kernel_text(form: Form, target: Target) -> KernelText:
    """The kernel, whose arguments are FIELDS: addresses, then numbers.

    Read: x [rows, pitch bytes]; nodes (NODE_BYTES each: low, span, and as 32 bits the feature's offset in the keys and the
    child's in `nodes`, in bytes); trees int64 [ntrees, TREE_WORDS]; columns int64 [ncolumns], the columns of x that
    have keys; weights, first int64, targets int64 (see `Form`). Written: sums double [parts, rows, ntargets]; parts is 1,
    or the number of chunks, which are then shared out too. Scratch per thread, `stride` bytes: keys of `block` rows (a multiple
    of LANES), and at `accumulators` double [block, ntargets].
    """
    if form.dtype not in NODE_BYTES or form.votes not in VOTES or form.aggregate not in AGGREGATES:
        raise ValueError(f"no kernel for {form}")
    return _Trees(form, target).text()


def scratch_places(dtype: DType, columns: int, targets: int, block: int) -> tuple[int, int]:
    """Bytes of keys and of all scratch memory of a thread."""
    keys = -(-max(columns, 1) * block * (dtype.bits // 8) // 64) * 64
    return keys, keys + -(-block * targets * 8 // 64) * 64


class _Trees:
    def __init__(self, form: Form, target: Target) -> None:
        self.form, self.dtype, self.itemsize = form, form.dtype, form.dtype.bits // 8
        self.key = DType.UINT32 if self.itemsize == 4 else DType.UINT64
        self.leads = descent.leads(*(k.input(i, self.key, ()) for i in range(3)))
        self.key_type = ir_builder.IntType(form.dtype.bits)
        self.node_bytes = NODE_BYTES[form.dtype]
        self.module = Module(target)

    def text(self) -> KernelText:
        body = self.module.kernel()
        args, tid, nthreads = body.args
        self.v = v = {
            name: (body.load_pointer if i < FIELDS.index("rows") else body.load_i64)(args, i) for i, name in enumerate(FIELDS)
        }
        self.scratch = body.at(v["scratch"], body.mul(v["stride"], tid))
        self.sums = body.at(self.scratch, v["accumulators"])
        blocks = body.div(body.add(v["rows"], body.sub(v["block"], 1)), v["block"])
        first, last = body.share(body.mul(blocks, v["parts"]), tid, nthreads)
        with body.loop(first, last) as unit:
            part = body.rem(unit, v["parts"])
            row = body.mul(body.div(unit, v["parts"]), v["block"])
            self._block(body, row, body.min(v["block"], body.sub(v["rows"], row)), part)
        body.b.ret_void()
        return self.module.text("trees")

    def _block(self, body: Body, row: Value, count: Value, part: Value) -> None:
        v = self.v
        self._keys(body, row, count)
        out = body.at(v["sums"], body.mul(body.mul(body.add(body.mul(part, v["rows"]), row), v["ntargets"]), 8))
        cells = body.mul(count, v["ntargets"])
        whole = body.equal(v["parts"], 1)
        chunks = body.div(body.add(v["ntrees"], CHUNK - 1), CHUNK)
        first_chunk = body.select(whole, 0, part)
        self._fill(body, out, cells)
        left = body.rem(count, LANES)
        grouped = body.select(body.less(FEW, left), body.add(count, body.sub(LANES, left)), body.sub(count, left))
        with body.loop(first_chunk, body.select(whole, chunks, body.add(part, 1))) as chunk:
            start = body.mul(chunk, CHUNK)
            stop = body.min(body.add(start, CHUNK), v["ntrees"])
            self._fill(body, self.sums, body.mul(body.max(grouped, count), v["ntargets"]))
            with body.loop(start, stop) as tree, body.loop(0, grouped, LANES) as group:
                self._rows(body, tree, group)
            with body.loop(grouped, count) as single, body.loop(start, stop, LANES) as tree:
                self._trees(body, single, tree, stop)
            with body.loop(0, cells) as i:
                at = body.at(out, body.mul(i, 8))
                value = body.load(body.at(self.sums, body.mul(i, 8)), _F64, 1)
                body.store(_aggregated(body, self.form.aggregate, body.load(at, _F64, 1), value), at, _F64)

    def _fill(self, body: Body, memory: Value, count: Value) -> None:
        with body.loop(0, count) as i:
            body.store(body.constant(_IDENTITY[self.form.aggregate], _F64, 1), body.at(memory, body.mul(i, 8)), _F64)

    # --- keys ---

    def _keys(self, body: Body, row: Value, count: Value) -> None:
        """Keys of a block's rows; lanes behind the last row repeat it."""
        v = self.v
        last = body.sub(count, 1)
        column_bytes = LANES * self.itemsize
        with body.loop(0, count, LANES) as group:
            rows = [
                body.at(v["x"], body.mul(body.add(row, body.min(body.add(group, lane), last)), v["pitch"]))
                for lane in range(LANES)
            ]
            keys = self._group_keys(body, group)
            with body.loop(0, v["ncolumns"]) as column:
                offset = body.mul(body.load_i64(v["columns"], column), self.itemsize)
                vector = body.vector_type(self.dtype, LANES)
                values: Value = ir_builder.Constant(vector, ir_builder.Undefined)
                for lane, pointer in enumerate(rows):
                    value = body.load(body.at(pointer, offset), self.dtype, 1)
                    values = body.b.insert_element(values, value, ir_builder.Constant(_I32, lane))
                body.store(self._key(body, values), body.at(keys, body.mul(column, column_bytes)), self.key)

    def _key(self, body: Body, x: Value) -> Value:
        return Emitter(body.b, LANES).evaluate(descent.keys(k.input(0, self.dtype, (LANES,))), {0: x})

    def _group_keys(self, body: Body, group: Value) -> Value:
        return body.at(self.scratch, body.mul(body.mul(group, self.v["ncolumns"]), self.itemsize))

    # --- descent ---

    def _tree(self, body: Body, tree: Value, word: int) -> Value:
        return body.load_i64(body.at(self.v["trees"], body.mul(tree, 8 * TREE_WORDS)), word)

    def _rows(self, body: Body, tree: Value, group: Value) -> None:
        """Eight rows in one tree."""
        keys = self._group_keys(body, group)
        root = self._tree(body, tree, 0)
        lanes = [body.at(keys, lane * self.itemsize) for lane in range(LANES)]
        leaves = self._descend(body, [root] * LANES, lanes, self._tree(body, tree, 1), self._tree(body, tree, 2))
        target = self._tree(body, tree, 3)
        for lane, leaf in enumerate(leaves):
            self._vote(body, leaf, body.add(group, lane), target)

    def _trees(self, body: Body, row: Value, tree: Value, stop: Value) -> None:
        """One row in eight trees; behind the last tree, in that one once more."""
        lane_keys = body.at(self._group_keys(body, body.sub(row, body.rem(row, LANES))),
                            body.mul(body.rem(row, LANES), self.itemsize))  # fmt: skip
        last = body.sub(stop, 1)
        trees = [body.min(body.add(tree, lane), last) for lane in range(LANES)]
        roots = [self._tree(body, t, 0) for t in trees]
        leaves = self._descend(body, roots, [lane_keys] * LANES, body.i(0), body.i(1))
        for lane, leaf in enumerate(leaves):
            with body.when(body.less(body.add(tree, lane), stop)):
                self._vote(body, leaf, row, self._tree(body, trees[lane], 3))

    def _descend(self, body: Body, start: list[Value], keys: list[Value], steps: Value, checked: Value) -> list[Value]:
        """The leaves that eight descents end at, as offsets of nodes; after `steps` steps until none moves, if `checked`."""
        b = body.b
        at = list(start)
        with body.carry(0, steps, 1, at):
            at[:] = [self._step(body, n, k) for n, k in zip(at, keys, strict=True)]
        places = [body.cell(n) for n in at]
        moving = body.cell(checked)
        with body.repeat_while(lambda: b.not_(body.equal(moving.get(), 0))):
            before = [self._step(body, cell.get(), k) for cell, k in zip(places, keys, strict=True)]
            after = [self._step(body, n, k) for n, k in zip(before, keys, strict=True)]
            differs = [b.xor(m, n) for m, n in zip(before, after, strict=True)]
            moving.set(functools.reduce(b.or_, differs))
            for cell, n in zip(places, after, strict=True):
                cell.set(n)
        return [cell.get() for cell in places]

    def _step(self, body: Body, at: Value, keys: Value) -> Value:
        b, node = body.b, body.at(self.v["nodes"], at)
        feature = b.zext(b.load(body.at(node, 2 * self.itemsize), typ=_I32, align=4), _I64)
        child = b.zext(b.load(body.at(node, 2 * self.itemsize + 4), typ=_I32, align=4), _I64)
        key = body.load(body.at(keys, feature), self.key, 1)
        low, span = (body.load(body.at(node, i * self.itemsize), self.key, 1) for i in range(2))
        inside = Emitter(b).evaluate(self.leads, dict(enumerate((key, low, span))))
        # Sums: LLVM would make a branch of a select, which half of the time is predicted wrongly.
        return body.add(child, body.mul(b.zext(inside, _I64), self.node_bytes))

    # --- votes ---

    def _vote(self, body: Body, leaf: Value, row: Value, target: Value) -> None:
        v, node = self.v, body.at(self.v["nodes"], leaf)
        out = body.at(self.sums, body.mul(body.mul(row, v["ntargets"]), 8))
        if self.form.votes == "node":
            self._add(body, body.load(node, self.dtype, 1), self.dtype, body.at(out, body.mul(target, 8)))
            return
        number = body.load(node, self.key, 1)
        number = number if self.itemsize == 8 else body.b.zext(number, _I64)
        weight_bytes = self.form.weight.bits // 8
        if self.form.votes == "dense":
            weights = body.at(v["weights"], body.mul(body.mul(number, v["ntargets"]), weight_bytes))
            with body.loop(0, v["ntargets"]) as i:
                weight = body.load(body.at(weights, body.mul(i, weight_bytes)), self.form.weight, 1)
                self._add(body, weight, self.form.weight, body.at(out, body.mul(i, 8)))
            return
        with body.loop(body.load_i64(v["first"], number), body.load_i64(v["first"], body.add(number, 1))) as i:
            weight = body.load(body.at(v["weights"], body.mul(i, weight_bytes)), self.form.weight, 1)
            self._add(body, weight, self.form.weight, body.at(out, body.mul(body.load_i64(v["targets"], i), 8)))

    def _add(self, body: Body, weight: Value, dtype: DType, at: Value) -> None:
        wide = weight if dtype is _F64 else body.b.fpext(weight, ir_builder.DoubleType())
        body.store(_aggregated(body, self.form.aggregate, body.load(at, _F64, 1), wide), at, _F64)


def _aggregated(body: Body, aggregate: str, a: Value, b: Value) -> Value:
    if aggregate == "SUM":
        return body.b.fadd(a, b)
    return body.b.select(body.b.fcmp_ordered("<" if aggregate == "MIN" else ">", b, a), b, a)


@functools.lru_cache(maxsize=8)
def combine_text(aggregate: str, target: Target) -> KernelText:
    """The kernel that brings partial [parts, count] together in sums [count], both double, in order; not where parts is 1."""
    module = Module(target)
    body = module.kernel()
    args, tid, nthreads = body.args
    partial, sums = (body.load_pointer(args, i) for i in range(2))
    count, parts = (body.load_i64(args, i) for i in range(2, 4))
    first, last = body.share(body.select(body.equal(parts, 1), 0, count), tid, nthreads)
    with body.loop(first, last) as i:
        total = body.cell(body.constant(_IDENTITY[aggregate], _F64, 1))
        with body.loop(0, parts) as part:
            value = body.load(body.at(partial, body.mul(body.add(body.mul(part, count), i), 8)), _F64, 1)
            total.set(_aggregated(body, aggregate, total.get(), value))
        body.store(total.get(), body.at(sums, body.mul(i, 8)), _F64)
    body.b.ret_void()
    return module.text("trees_combine")
