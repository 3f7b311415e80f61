"""From primitive graphs to kernels: which values are stored, and which are computed where they are read.

Nodes are given one after the other. An expression stays open - it is written into the kernel that reads it - while one
kernel can compute it without doing anything many times over: element-wise primitives and gathers behind one another,
behind reductions (as rows), behind one matrix product. Everything else is stored: results, what is read twice, operands
of products that are not mere gathers, what a sort or a scan makes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import field, replace

import numpy as np

from intarsia.codegen.clike import columns, element, flash_attention, schedules, sort, vectorized_elementwise
from intarsia.codegen.clike.dialects.dialect import Dialect
from intarsia.codegen.clike.loop_steps import Write, step_kernel
from intarsia.codegen.clike.products import int8_factors, int8_matmul, nbits_matmul, tensor_cores, winograd
from intarsia.codegen.clike.products import matmul as product_schedule
from intarsia.codegen.clike.products.sum_places import sum_indices
from intarsia.codegen.clike.schedules import Kernel
from intarsia.codegen.clike.storage_types import KINDS, Kind
from intarsia.codegen.clike.value_ranges import Range, range_of
from intarsia.codegen.clike.vendor_libraries import attention, select_calls
from intarsia.codegen.clike.vendor_libraries.calls import Choice, Libraries
from intarsia.codegen.clike.vendor_libraries.strided_views import view_of
from intarsia.codegen.loops.element_values import stripped
from intarsia.codegen.loops.index_expr import ELEMENTWISE
from intarsia.codegen.loops.split_argreduce import in_reductions
from intarsia.graph.dims import Dim, number_of, numbers_of, product
from intarsia.graph.dtypes import DType
from intarsia.lazy_dataclass import dataclass
from intarsia.primitives import lang as k
from intarsia.primitives.lang import Tensor, walk
from intarsia.primitives.substitute import replaced

MAX_PRIMITIVES = 96
_VIEWS = frozenset("input scalar iota broadcast reshape transpose slice pad concat windows take index row cast table".split())
_CHEAP = frozenset((*_VIEWS, *"add sub mul neg abs min max select eq ne lt le and or xor not".split()))
_BITS = frozenset("bitand bitor shl shr".split())
_PASSES = ELEMENTWISE | {"broadcast", "reshape", "transpose"}  # through which a reduction or product stays open
_LIGHT = 8  # cheap primitives that the operand of a matrix product may have besides views
_SMALL = 4096  # elements times terms: so much may be computed many times over
_THIN_ROWS, _THIN_TERMS = 2, 64
_LONG_LINE, _MANY_LINES = 2048, 4096  # of scans: where a line is more than one thread's
_SHORT = 32  # a reduction of fewer terms is no work for a group of threads
STRUCTURAL = frozenset((*_VIEWS, "reduce", "argreduce", "dot", "scan", "scatter", "sort", "argsort", "size", "stored"))


@dataclass(frozen=True)
class Job:
    """One launch: a kernel, the values it reads (constants included) in its operands' order, and those it writes.

    `node`: what it belongs to, for people. `choice`: of a product on a device with libraries: who computes it, and why.
    """

    kernel: Kernel
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    node: str
    schedule: str
    choice: Choice | None = None


@dataclass
class Cut:
    """Kernels in order, as they are found.

    Attributes:
        dialect: what they are printed in.
        jobs: the launches.
        stored: values that have buffers: name -> element type and shape.
        tables: constants that definitions brought along.
        node: name of the node that is being worked on.
        owners: ids of expressions -> name of the node whose result they are, where that is another.
        libraries: what computes products where kernels of ours need not; None: nothing.
        choice: of the job that is added next.
        declined: of attention that several jobs compute now: told with the first of them that has no choice of its own.
        weights: leaves that are the same in every run.
        prepared: values that are computed of weights alone, once for all runs: name -> how.
        ranges: between which numbers elements of stored values lie, where that is known (devices with libraries).
    """

    dialect: Dialect
    jobs: list[Job] = field(default_factory=list)
    stored: dict[str, tuple[DType, tuple[int, ...]]] = field(default_factory=dict)
    tables: dict[str, np.ndarray] = field(default_factory=dict)
    node: str = ""
    owners: dict[int, str] = field(default_factory=dict)
    libraries: Libraries | None = None
    choice: Choice | None = None
    declined: list[Choice] = field(default_factory=list)
    weights: Collection[str] = frozenset()
    prepared: dict[str, Tensor] = field(default_factory=dict)
    ranges: dict[object, Range] = field(default_factory=dict)
    _settled: dict[int, Tensor] = field(default_factory=dict)  # expressions that are made of settled parts only
    _leaves: dict[int, Tensor] = field(default_factory=dict)  # of expressions that have been stored
    _open: dict[int, bool] = field(default_factory=dict)
    _alive: list[Tensor] = field(default_factory=list)  # whose ids are in use
    _once: dict[tuple[object, ...], tuple[Tensor, Sequence[Tensor]]] = field(default_factory=dict)
    _pair: tuple[tuple[object, ...], Tensor, Tensor] | None = None  # what the latest sort made, and of what

    # --- expressions ---

    def settle(self, root: Tensor) -> Tensor:
        """`root` in a form that one kernel computes; what has to be stored before has been."""
        (root,) = int8_factors.rewritten(self, self._attended(in_reductions([root])))
        made: dict[int, Tensor] = {}
        for t in walk([root]):
            done = self._settled.get(id(t))
            if done is None:
                done = self._step(t, [self._leaves.get(id(made[id(a)]), made[id(a)]) for a in t.args])
                self._settled[id(done)] = done
                self._alive.append(t)
            made[id(t)] = done
        return made[id(root)]

    def _attended(self, roots: Sequence[Tensor]) -> list[Tensor]:
        """Attention whose scores would be too many for memory, as a primitive of its own."""
        limit = self.dialect.tuning.scores_nbytes
        products = [t for t in walk(roots) if t.prim == "dot"]
        made = attention.attentions(self, roots, products) if products and self.libraries is not None else {}
        made |= {id(t): own for t in products if (own := flash_attention.found(t, limit)) is not None}
        self._alive += roots
        return replaced(roots, made) if made else list(roots)

    def _step(self, t: Tensor, args: list[Tensor]) -> Tensor:
        if t.prim == "table":
            return self._table(t)
        if t.prim == "stored":
            return args[0] if args[0].prim == "input" else self.store(args[0])
        if t.prim in ("sort", "argsort"):
            return self._sorted(t, self._closed(args[0]))
        if t.prim in ("scan", "dot") and self.dialect.packed(t.dtype) > 1:
            return self._widened(t, args)
        if t.prim == "scan" and (runs := _in_runs(t, args[0])) is not None:
            return self.settle(runs)
        if t.prim in ("scan", "scatter"):
            return self._ordered(t, [self._closed(a) for a in args])
        if t.prim == "dot":
            if (flat := self._flat(t, args)) is not None:
                return self.settle(flat)
            return self._product(self._factored(t, args))
        if t.prim == "library":
            return attention.attend(self, t, args)
        if t.prim == "attend":
            x = args[0] if flash_attention.fits(args[0]) else self.store(args[0])
            t = self._rebuilt(t, [x, self._operand(args[1])])
            leaf = self._room(t.dtype, t.shape)
            self._add(flash_attention.attend_kernel(self.dialect, t), (leaf.attrs[0],), "attend")
            return leaf
        if t.prim == "windows":
            light = [_is_light(a) and not self.is_open(a) for a in args]
            return self._rebuilt(t, [a if ok else self.store(a, turned=True) for a, ok in zip(args, light, strict=True)])
        if (
            t.prim == "transpose"
            and args[0].prim == "transpose"
            and tuple(args[0].attrs[p] for p in t.attrs) == tuple(range(t.rank))
        ):
            return args[0].args[0]
        if t.prim == "broadcast" and not self.is_open(args[0]) and not is_cheap(args[0]) and not _is_light(args[0], _BITS):
            return self._rebuilt(t, [self.store(args[0])])
        if t.prim not in _PASSES and t.prim != "reduce":
            args = [self._closed(a) for a in args]
        made = self._rebuilt(t, args)
        if self._fits(made):
            return made
        return self._with_one_open(t, args) or self._rebuilt(t, [self._closed(a, large=True) for a in args])

    def _with_one_open(self, t: Tensor, args: list[Tensor]) -> Tensor | None:
        """Of several operands that are open the last one stays so, if the kernel that computes it can read the others."""
        opened = [a for a in args if self.is_open(a)]
        if len(opened) < 2 or all(a is opened[0] for a in opened):
            return None
        last = opened[-1]
        trial = [a if a is last or not self.is_open(a) else Tensor("input", (), (id(a),), a.dtype, a.shape) for a in args]
        if not self._fits(self._rebuilt(t, trial)):
            return None
        return self._rebuilt(t, [a if a is last else self._closed(a) for a in args])

    def _rebuilt(self, t: Tensor, args: list[Tensor]) -> Tensor:
        same = all(a is b for a, b in zip(args, t.args, strict=True))
        return t if same else Tensor(t.prim, tuple(args), t.attrs, t.dtype, t.shape)

    def _table(self, t: Tensor) -> Tensor:
        name = f"%table{len(self.tables)}"
        self.tables[name] = np.frombuffer(t.attrs[0], t.dtype.numpy).reshape(t.attrs[1])
        return Tensor("input", (), (name,), t.dtype, t.shape)

    def _widened(self, t: Tensor, args: list[Tensor]) -> Tensor:
        """The same in a type of 32 bits."""
        wide = wide_type(t.dtype)
        if t.prim == "dot":
            made = self._step(Tensor("dot", (), (), wide, t.shape), []) if not args else self._step(
                Tensor("dot", tuple(args), (), wide, t.shape), args
            )  # fmt: skip
        else:
            made = self._step(Tensor(t.prim, (k.cast(args[0], wide),), t.attrs, wide, t.shape), [k.cast(args[0], wide)])
        return k.cast(made, t.dtype)

    def _flat(self, t: Tensor, args: list[Tensor]) -> Tensor | None:
        """Products of several matrices with one, as one product; None where there are none."""
        a, b = args
        if a.rank < 3 or product(b.shape[:-2]) != 1 or product(a.shape[:-2]) == 1 or 0 in t.shape:
            return None
        rows, depth, columns = product(a.shape[:-1]), *b.shape[-2:]
        x = k.reshape(a, (rows, depth))
        if self.libraries is not None and view_of(a) is not None and view_of(x) is None:  # which would take a copy
            return None
        return k.reshape(Tensor("dot", (x, k.reshape(b, (depth, columns))), (), t.dtype, (rows, columns)), t.shape)

    def _factored(self, t: Tensor, args: list[Tensor]) -> Tensor:
        """A matrix product of what may stand in it: weights of few bits are unpacked where they are multiplied."""
        unpacked = [KINDS[t.dtype] is Kind.F32 and not self.is_open(a) and nbits_matmul.is_unpacked(a) for a in args]
        made = self._rebuilt(t, [a if stays else self._operand(a) for a, stays in zip(args, unpacked, strict=True)])
        if any(unpacked) and self._bindings(made) > self.dialect.limits.buffers - 3:
            made = self._rebuilt(t, [self._operand(a) for a in args])
        return made

    def _product(self, t: Tensor) -> Tensor:
        """A matrix product, left open; the sum of stored parts where it is of few elements and many terms."""
        if 0 not in t.shape and nbits_matmul.has_few_rows(self.dialect, t):
            return t
        count = 1 if 0 in t.shape else product_schedule.parts_of(self.dialect, t)
        if count == 1 or winograd.chosen(self, t) is not None:
            return t
        if (
            self.libraries is not None
            and not any(nbits_matmul.is_unpacked(a) for a in t.args)
            and select_calls.computes(self, t)
        ):
            return t
        wide = Tensor("dot", t.args, (), wide_type(t.dtype), t.shape)
        parts = self.store(product_schedule.in_parts(wide, count))
        return k.cast(k.reduce_sum(parts, [t.rank - 2]), t.dtype)

    def _closed(self, t: Tensor, large: bool = False) -> Tensor:
        """`t`, stored where it is open; with `large` also where it is an expression at all."""
        if t.prim == "input" or not (self.is_open(t) or large and len(walk([t])) > 4):
            return t
        return self.store(t, turned=True)

    def _operand(self, t: Tensor) -> Tensor:
        return self.store(t, turned=True) if self.is_open(t) or not _is_light(t) else t

    def is_open(self, t: Tensor) -> bool:
        """Whether a reduction or a product in it has not been stored."""
        found = self._open.get(id(t))
        if found is None:
            found = t.prim in ("reduce", "dot") or any(self.is_open(a) for a in t.args)
            self._open[id(t)] = found
            self._alive.append(t)
        return found

    # --- which kernel ---

    def _fits(self, t: Tensor) -> bool:
        """Whether one kernel computes `t`, without repeating much."""
        order = walk([t])
        if len(order) > MAX_PRIMITIVES or self._bindings(t) > self.dialect.limits.buffers - 4:
            return False
        if not self.is_open(t):
            return True
        dots = open_products(order)
        if dots:
            return len(dots) == 1 and not any(x.prim == "reduce" for x in order) and self._product_fits(t, dots[0])
        return _map_fits(t) or schedules.rows_of(t) is not None

    def _bindings(self, t: Tensor) -> int:
        """Bindings of what `t` reads, and of itself beyond the first."""
        sizes = {x.attrs[0]: (x.dtype, number_of(product(x.shape))) for x in walk([t]) if x.prim == "input"}
        many = self.dialect.windows
        return sum(many(*kind) for kind in sizes.values()) + many(t.dtype, number_of(product(t.shape))) - 1

    def _product_fits(self, t: Tensor, dot: Tensor) -> bool:
        batch = product(dot.shape[:-2])
        assert isinstance(batch, int)
        return (t is dot or sum_indices(t, dot) is not None) and batch <= self.dialect.limits.groups

    # --- storing ---

    def store(self, t: Tensor, name: str = "", turned: bool = False) -> Tensor:
        """`t` (settled) as a value in memory of its own; the leaf that reads it.

        `turned`: who reads it takes any view of memory, so that a library may leave axes in an order of its own.
        """
        root = stripped(t)
        if not name and (root.prim == "input" or id(t) in self._leaves):
            found = self._leaves.get(id(t), t)
            return found if turned or stripped(found).prim == "input" else self.store(found)
        turned = turned and not name
        name = name or f"%{len(self.stored)}"
        shape = numbers_of(t.shape)
        self.stored[name] = (t.dtype, shape)
        if self.libraries is not None and (between := range_of(root, self.ranges)) is not None:
            self.ranges[name] = between
        if 0 not in shape:
            before, self.node = self.node, self.owners.get(id(t), self.node)
            made = self._launch(root, name, turned)
            self.node = before
        else:
            made = None
        self._alive.append(t)
        self._leaves[id(t)] = Tensor("input", (), (name,), t.dtype, shape) if made is None else k.reshape(made, shape)
        return self._leaves[id(t)]

    def copy(self, t: Tensor, name: str) -> None:
        """Write `t` (settled) into the memory of a stored value that others write too."""
        if 0 not in t.shape:
            self._launch(stripped(t), name)
        self._alive.append(t)

    def launch_step(self, writes: Sequence[Write], names: Sequence[str]) -> None:
        """Compute settled roots of one shape into these values, which are stored already (see `steps`)."""
        self._alive += [w.root for w in writes]
        if 0 not in writes[0].root.shape:
            self._add(step_kernel(self.dialect, writes), tuple(names), "step")

    def rename(self, old: str, new: str) -> None:
        """Give a stored value another name."""
        for i, job in enumerate(self.jobs):
            reads, writes = (tuple(new if n == old else n for n in names) for names in (job.reads, job.writes))
            self.jobs[i] = replace(job, reads=reads, writes=writes)
        self.stored[new] = self.stored.pop(old)
        self.ranges |= {new: self.ranges.pop(old)} if old in self.ranges else {}
        for key, t in self._leaves.items():
            if t.attrs[0] == old:
                self._leaves[key] = Tensor("input", (), (new,), t.dtype, t.shape)

    def _launch(self, root: Tensor, name: str, turned: bool = False) -> Tensor | None:
        """Returns what reads the value where that is not its memory as it lies."""
        d, order = self.dialect, walk([root])
        dots = open_products(order)
        unpacked = bool(dots) and any(nbits_matmul.is_unpacked(a) for a in dots[0].args)
        if unpacked and self.libraries is not None:
            self.choice = Choice("cuBLASLt", "library-shape", nbits_matmul.NO_LIBRARY, node=self.node)
        elif dots and self.libraries is not None and self._product_fits(root, dots[0]):
            made = select_calls.launch(self, root, dots[0], name, turned)
            if made is not None:
                return made if made.prim != "input" else None
        rows = None if dots or not self.is_open(root) else schedules.rows_of(root)
        by_rows = rows is not None and (rows.length >= _SHORT or not _map_fits(root))
        if by_rows and d.tuning.fill and (down := columns.reduction_down(root, rows)) is not None:
            root, by_rows = self._down(root, down)
        by_tiles = bool(dots) and self._product_fits(root, dots[0]) and not _is_thin(dots[0])
        if (by_rows or by_tiles) and d.packed(root.dtype) > 1:
            wide = wide_type(root.dtype)
            inner = self.store(root.args[0] if root.prim == "cast" and root.args[0].dtype is wide else k.cast(root, wide))
            root, by_rows, by_tiles = k.cast(inner, root.dtype), False, False
        of_words = nbits_matmul.rows_kernel(d, root, dots[0]) if by_tiles and unpacked else None
        if of_words is not None:
            self._add(of_words, (name,), "few bits")
        elif by_tiles and (filtering := winograd.chosen(self, dots[0])) is not None:
            winograd.launch(self, root, dots[0], filtering, name)
        elif by_tiles:
            units = tensor_cores.factor_type(d, dots[0]) is not None
            of_bytes = not units and int8_matmul.is_of_bytes(dots[0])
            make = (
                tensor_cores.tensor_kernel
                if units
                else int8_matmul.byte_kernel
                if of_bytes
                else product_schedule.product_kernel
            )
            self._add(make(d, root, dots[0]), (name,), "tensor product" if units else "byte product" if of_bytes else "product")
        elif by_rows:
            assert rows is not None
            self._add(schedules.row_kernel(d, rows), (name,), "rows")
        else:
            by_lanes = vectorized_elementwise.lane_kernel(d, root)
            self._add(by_lanes or schedules.map_kernel(d, [root]), (name,), "lanes" if by_lanes else "map")
        return None

    def _down(self, root: Tensor, t: Tensor) -> tuple[Tensor, bool]:
        """`root` with its reduction `t` made of stored parts where columns are few; and whether its rows are groups' work all
        the same."""
        parts = columns.parts_down(t)
        if parts is None:
            return root, not columns.is_worth_it(t)
        stored = self.store(parts[0])
        total = Tensor("reduce", (stored,), (t.attrs[0], (parts[1],)), t.dtype, t.shape)
        (made,) = replaced([root], {id(t): total})
        return made, False

    def _ordered(self, t: Tensor, args: list[Tensor]) -> Tensor:
        """A primitive that works in an order of its own, stored."""
        t = self._rebuilt(t, args)
        if 0 in t.shape or t.prim == "scatter" and 0 in args[1].shape:
            return self.store(args[0] if t.prim == "scatter" else k.full(t.shape, 0, t.dtype))
        if t.prim == "scatter":
            name = f"%{len(self.stored)}"
            leaf = self.store(args[0], name)
            del self._leaves[id(args[0])]  # it is about to be something else
            self._add(schedules.scatter_kernel(self.dialect, t), (name,), "scatter")
            return leaf
        leaf = self._room(t.dtype, t.shape)
        self._add(schedules.scan_kernel(self.dialect, t), (leaf.attrs[0],), "scan")
        return leaf

    def _sorted(self, t: Tensor, x: Tensor) -> Tensor:
        """The values in order, or where they were: both are made at once."""
        if 0 in t.shape:
            return self.store(k.full(t.shape, 0, t.dtype))
        key = (self.node, x.attrs if x.prim == "input" else id(x), t.attrs, len(self.jobs))
        if self._pair is None or self._pair[0] != key:  # another launch may have written what is sorted
            self._alive.append(x)
            values, places = self._sort(x, sort.Order(*t.attrs))
            self._pair = ((*key[:3], len(self.jobs)), values, places)
        _, values, places = self._pair
        return places if t.prim == "argsort" else k.cast(values, t.dtype) if values.dtype is not t.dtype else values

    def _sort(self, x: Tensor, order: sort.Order) -> tuple[Tensor, Tensor]:
        if self.dialect.packed(x.dtype) > 1:
            x = k.cast(x, wide_type(x.dtype))
        x = x if is_cheap(x) else self.store(x)
        widths = order.widths(x)
        kinds = [DType.INT64 if i == len(widths) else DType.INT32 for i in range(len(widths) + 1)]
        values, places = self._room(x.dtype, x.shape), self._room(kinds[0], x.shape)
        self._add(sort.runs_kernel(self.dialect, x, order, kinds[0]), (values.attrs[0], places.attrs[0]), "sort")
        for width, kind in zip(widths, kinds[1:], strict=True):
            given = values, places
            values, places = self._room(x.dtype, x.shape), self._room(kind, x.shape)
            kernel = sort.merge_kernel(self.dialect, *given, order, width, kind)
            self._add(kernel, (values.attrs[0], places.attrs[0]), "sort")
        return values, places

    def once(self, key: tuple[object, ...], make: Callable[[], Tensor], sources: Sequence[Tensor]) -> Tensor:
        """What `make` gives, the same object for the same key, which names ids of `sources`."""
        if key not in self._once:
            self._once[key] = make(), sources
        return self._once[key][0]

    def prepare(self, t: Tensor, what: str) -> Tensor:
        """The leaf of what is computed of one weight alone, which the program computes once."""
        (source,) = {x.attrs[0] for x in walk([t]) if x.prim == "input"}
        name = f"{source}%{what}"
        self.prepared[name] = t
        self.stored[name] = (t.dtype, numbers_of(t.shape))
        return Tensor("input", (), (name,), t.dtype, t.shape)

    def _room(self, dtype: DType, shape: Sequence[Dim]) -> Tensor:
        """A value whose memory launches to come write."""
        name = f"%{len(self.stored)}"
        self.stored[name] = (dtype, numbers_of(shape))
        return Tensor("input", (), (name,), dtype, tuple(shape))

    def _add(self, kernel: Kernel, writes: tuple[str, ...], schedule: str) -> None:
        if self.choice is None and self.declined:
            self.choice = self.declined.pop(0)
        self.jobs.append(Job(kernel, tuple(str(n) for n in kernel.operands), writes, self.node, schedule, self.choice))
        self.choice = None


def _in_runs(t: Tensor, x: Tensor) -> Tensor | None:
    """A scan of long lines, of which there are few, as scans of runs and of their totals; None where a line is a thread's."""
    op, axis, exclusive, reverse = t.attrs
    sizes = numbers_of(t.shape)
    length = sizes[axis]
    if length < _LONG_LINE or int(np.prod(sizes)) // length >= _MANY_LINES or KINDS[t.dtype] is Kind.BOOL:
        return None
    run = 1 << (length.bit_length() + 1) // 2
    runs = -(-length // run)
    others = [i for i in range(t.rank) if i != axis]
    lines = k.transpose(x, [*others, axis])
    spare = [0] * (t.rank - 1) + [runs * run - length]
    front, back = (spare, [0] * t.rank) if reverse else ([0] * t.rank, spare)
    padded = k.pad(lines, front, back, 0 if op == "sum" else 1)
    split = k.reshape(padded, (*(sizes[i] for i in others), runs, run))
    inner = k.scan(split, op, t.rank, exclusive, reverse)
    before = k.scan(k.reduce(split, op, [t.rank]), op, t.rank - 1, True, reverse)
    whole = k.binary("add" if op == "sum" else "mul", inner, k.expand_dims(before, [t.rank]))
    flat = k.reshape(whole, (*(sizes[i] for i in others), runs * run))
    scanned = k.strided_slice(flat, front, [1] * t.rank, [*(sizes[i] for i in others), length])
    return k.transpose(scanned, [([*others, axis]).index(i) for i in range(t.rank)])


def wide_type(dtype: DType) -> DType:
    """A type of at least 32 bits that has all values of `dtype`."""
    return {Kind.F32: DType.FLOAT, Kind.I32: DType.INT32, Kind.U32: DType.UINT32, Kind.BOOL: DType.INT32}.get(
        KINDS[dtype], dtype
    )


def open_products(order: Sequence[Tensor]) -> list[Tensor]:
    return [t for t in order if t.prim == "dot"]


def unsupported(roots: Sequence[Tensor], dialect: Dialect) -> str:
    """Why kernels of these primitives cannot be printed; "" where they can. Sizes may be symbolic."""
    for t in walk(roots):
        if t.prim not in STRUCTURAL and t.prim not in ELEMENTWISE:
            return f"primitive {t.prim!r} has no kernel"
        if why := dialect.missing(t.dtype):
            return why
        if t.prim in ELEMENTWISE and (why := element.unsupported(t.prim, t.args[-1].dtype, dialect)):
            return why
        if t.prim in ("cast", "scalar") and t.dtype is DType.FLOAT8E8M0:
            return f"{t.prim} to {t.dtype.onnx_name} has no rounding of its own"
        if t.prim == "bitcast" and t.dtype.bits < 8:
            return f"bits of {t.dtype.onnx_name} have no form in {dialect.name}"
    return ""


def _is_light(t: Tensor, besides: frozenset[str] = frozenset()) -> bool:
    """Whether little is computed; `besides`: primitives that may be, other than the cheap ones."""
    order = walk([t])
    few = sum(x.prim not in _VIEWS for x in order) <= _LIGHT
    return few and (is_cheap(t) or all(x.prim in _CHEAP or x.prim in besides for x in order))


def is_cheap(t: Tensor) -> bool:
    return all(x.prim in _CHEAP for x in walk([t])) or product(t.shape) == 1


def _is_thin(dot: Tensor) -> bool:
    """A product whose tiles would be almost empty (a depthwise convolution): better by a thread for each element."""
    rows, terms = dot.shape[-2], dot.args[0].shape[-1]
    assert isinstance(rows, int) and isinstance(terms, int)
    return rows <= _THIN_ROWS and terms <= _THIN_TERMS


def _map_fits(t: Tensor) -> bool:
    """Whether threads that each reduce by themselves do little twice."""
    total = product(t.shape)
    assert isinstance(total, int)
    for reduction, deps, nested in schedules.reductions(t):
        if reduction.prim == "dot":
            return False
        terms = product(reduction.args[0].shape[a] for a in reduction.attrs[1])
        needed = product(t.shape[int(n[1:])] for n in deps)
        assert isinstance(terms, int) and isinstance(needed, int)
        if (nested or needed < total) and total * terms > _SMALL:
            return False
    return True
