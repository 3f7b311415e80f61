"""Native code that runs a tape (`graph.tape`) for given sizes and lays a segment out for them.

`plan.native.abi` has its arguments. Lists are of int32 and have a field with their length, unless it is said otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from intarsia.codegen.builder.kernel_body import Body, Module, Value
from intarsia.codegen.llvm import ir_builder
from intarsia.codegen.llvm.compile_ir import Effort
from intarsia.codegen.llvm.jit import KernelText
from intarsia.codegen.llvm.target import Target
from intarsia.graph.tape import OPERANDS, OPS, ROW
from intarsia.plan.native.abi import DISJOINT, FAILED, FIELDS, KINDS, NO_LAYOUT, NO_ROOM, OK, PLACES, SERIAL, SETTLING, USED
from intarsia.plan.native.update_kernel import index as _index
from intarsia.plan.native.update_kernel import write_settle

_I1, _I32, _I64, _DOUBLE = ir_builder.IntType(1), ir_builder.IntType(32), ir_builder.IntType(64), ir_builder.DoubleType()
_POINTER = ir_builder.PointerType()
_EXACT = 1 << 53


def bind_text(target: Target) -> KernelText:
    """Runs the code and looks for a layout that has room, and writes all words where that is wanted; or settles
    (`update_kernel`)."""
    module = Module(target)
    settle = module.function("settle", ("p",))
    write_settle(settle)
    body = module.kernel()
    with body.when(body.equal(body.args[1], SETTLING)):
        body.b.call(settle.function, [body.args[0]])
        body.b.ret_void()
        body.b.position_at_end(body.b.append_basic_block("never"))
    _Binder(body).write()
    return module.text("bind", Effort.CODE)  # optimizing gains nothing: what it reads and writes is in memory


class _Binder:
    def __init__(self, body: Body) -> None:
        self.body, self.b = body, body.b
        self.io = body.args[0]
        pointers = (
            "code registers words template block stores added sizes nbytes constraints serial serials works slowest jumps "
            "windows slots arena offsets layouts disjoint"
        ).split()
        self.v = {name: body.load_i64(self.io, i) for i, name in enumerate(FIELDS)}
        self.v |= {name: body.pointer(self.v[name]) for name in pointers}
        self.out = self.b.append_basic_block("out")
        self.status = body.cell(FAILED, "status")
        self.used = body.cell(self.v["count"], "used")

    def write(self) -> None:
        body, b, v = self.body, self.b, self.v
        self._run()
        self._check()
        self.whole = body.equal(self.body.load_i64(self.io, FIELDS.index("block")), 0)
        with body.when(self.whole):
            body.copy(v["template"], v["words"], body.mul(v["count"], 8))
            self._stores()
        self._serial()
        self._work()
        self._lay_out()
        self._set("used", self.used.get())
        with body.when(body.less(v["capacity"], self.used.get())):
            self._end(NO_ROOM)
        self._end(OK, going_on=False)
        b.branch(self.out)
        b.position_at_end(self.out)
        self._set("status", self.status.get())
        b.ret_void()

    # --- pieces ---

    def _end(self, status: int, going_on: bool = True) -> None:
        self.status.set(status)
        if going_on:
            self._leave()

    def _leave(self) -> None:
        """Go to the end; what is written behind is never reached."""
        self.b.branch(self.out)
        self.b.position_at_end(self.b.append_basic_block("never"))

    def _set(self, name: str, value: Value) -> None:
        self.b.store(value, self.body.at(self.io, 8 * FIELDS.index(name)))

    def _register(self, index: Value) -> Value:
        return self.body.at(self.v["registers"], self.body.mul(index, 8))

    @contextmanager
    def _rows(self, name: str, width: int) -> Iterator[tuple[Value, Value]]:
        """A loop over a list: the place of an entry, and its number."""
        with self.body.loop(0, self.v[f"n{name}"]) as i:
            yield self.body.at(self.v[name], self.body.mul(i, 4 * width)), i

    def _value_at(self, entry: Value, number: int = 0) -> Value:
        """The register that an entry of a list names."""
        return self.body.load_i64(self._register(_index(self.body, entry, number)))

    def _fail_if(self, condition: Value) -> None:
        with self.body.when(condition):
            self._end(FAILED)

    # --- after the code ---

    def _check(self) -> None:
        body, b, v = self.body, self.b, self.v
        with self._rows("sizes", 1) as (entry, _):
            self._fail_if(body.less(self._value_at(entry), 0))
        with self._rows("nbytes", 1) as (entry, _):
            self._fail_if(body.less(v["most"], self._value_at(entry)))
        with self._rows("constraints", 3) as (entry, _):
            kind, left, right = _index(body, entry, 0), self._value_at(entry, 1), self._value_at(entry, 2)
            same = body.equal(left, right)
            divides = b.or_(b.icmp_signed("!=", left, body.i(0)), body.equal(right, 0))
            holds = same
            for number, also in ((KINDS["broadcast"], body.equal(left, 1)), (KINDS["least"], body.less(right, left))):
                holds = b.or_(holds, b.and_(body.equal(kind, number), also))
            holds = b.select(body.equal(kind, KINDS["divisor"]), divides, holds)
            self._fail_if(b.not_(holds))

    def _stores(self) -> None:
        body = self.body
        with self._rows("stores", 2) as (entry, _):
            body.b.store(self._value_at(entry, 1), self._word(_index(body, entry, 0)))

    def _word(self, index: Value) -> Value:
        return self.body.at(self.v["words"], self.body.mul(index, 8))

    def _serial(self) -> None:
        body, b, v = self.body, self.b, self.v
        count = body.cell(0, "serial")
        with body.loop(0, v["nsteps"]) as i:
            found = self._value_at(body.at(v["serials"], body.mul(i, 4)))
            b.store(found, body.at(v["serial"], body.mul(i, 8)))
            count.add(found)
        alone = body.equal(count.get(), v["nsteps"])
        self._set("alone", b.zext(alone, _I64))
        with body.when(b.not_(alone)), self._rows("jumps", 1) as (entry, _):
            b.store(body.i(0), body.at(v["serial"], body.mul(_index(body, entry, 0), 8)))
        self.fits = body.cell(body.select(body.less(0, v["nwindows"]), 1, 0), "fits")
        with self._rows("windows", 2) as (entry, _), body.loop(_index(body, entry, 0), _index(body, entry, 1)) as i:
            self.fits.set(b.and_(self.fits.get(), body.load_i64(body.at(v["serial"], body.mul(i, 8)))))
        self._set("side_by_side", self.fits.get())

    def _work(self) -> None:
        body, b, v = self.body, self.b, self.v
        longest = b.sitofp(v["longest"], _DOUBLE)
        total, slow = body.cell(ir_builder.Constant(_DOUBLE, 0.0), "work"), body.cell(0, "slow")
        with body.loop(0, v["nsteps"]) as i:
            entry = body.at(v["works"], body.mul(i, 8))
            moved, counted = (b.bitcast(self._value_at(entry, k), _DOUBLE) for k in (0, 1))
            work = b.select(b.fcmp_ordered("<", moved, counted), counted, moved)
            total.set(b.fadd(total.get(), work))
            shared = body.equal(body.load_i64(body.at(v["serial"], body.mul(i, 8))), 0)
            with body.when(b.and_(shared, b.fcmp_ordered(">", work, longest))):
                b.store(i, body.at(v["slowest"], body.mul(slow.get(), 8)))
                slow.add(1)
        self._set("work", b.bitcast(total.get(), _I64))
        self._set("slow", slow.get())

    def _lay_out(self) -> None:
        body, b, v = self.body, self.b, self.v
        room, largest = body.cell(0, "room"), body.cell(0, "largest")
        with self._rows("slots", 1) as (entry, i):
            nbytes = self._value_at(entry)
            room.add(nbytes)
            largest.set(body.max(largest.get(), body.select(body.less(i, v["scratch"]), 0, nbytes)))
        self._set("workspace_nbytes", largest.get())
        most = body.add(b.ashr(body.mul(room.get(), 3), body.i(1)), v["room"])
        disjoint = body.equal(self.fits.get(), 1)
        layouts = b.select(disjoint, v["disjoint"], v["layouts"])
        number, found = body.cell(0, "layout"), body.cell(-1, "found")
        count = body.select(disjoint, v["ndisjoint"], v["nlayouts"])
        with body.repeat_while(lambda: b.and_(body.less(number.get(), count), body.less(found.get(), 0))):
            layout = body.at(layouts, body.mul(number.get(), 32))
            enough = body.cell(0, "enough")
            with body.when(b.icmp_signed("<=", body.load_i64(layout), most)):
                enough.set(1)
                rooms = body.load_pointer(layout, 2)
                with self._rows("slots", 1) as (entry, i):
                    lacks = body.less(body.load_i64(body.at(rooms, body.mul(i, 8))), self._value_at(entry))
                    enough.set(body.select(lacks, 0, enough.get()))
            found.set(body.select(body.equal(enough.get(), 1), number.get(), -1))
            number.add(1)
        with body.when(body.less(found.get(), 0)):
            self._end(NO_LAYOUT)
        layout = body.at(layouts, body.mul(found.get(), 32))
        self._set("arena_nbytes", body.load_i64(layout, 1))
        with body.either(self.whole) as (whole, alone):
            with whole:
                self._place(body.load_pointer(layout, 3))
            with alone:
                for place, value in ((USED, self.used.get()), (DISJOINT, self.fits.get()), (PLACES, body.load_i64(layout, 3))):
                    b.store(value, body.at(v["block"], 8 * place))
                registers = body.at(v["block"], 8 * SERIAL, body.mul(v["nsteps"], 8))
                body.copy(v["registers"], registers, body.mul(v["nregisters"], 8))

    def _place(self, places: Value) -> None:
        body, b, v = self.body, self.b, self.v
        with self._rows("arena", 2) as (entry, i):
            place = body.load_i64(body.at(places, body.mul(_index(body, entry, 1), 8)))
            offset = body.load_i64(body.at(v["offsets"], body.mul(i, 8)))
            b.store(body.add(place, offset), self._word(_index(body, entry, 0)))
        with self._rows("added", 2) as (entry, _):
            word = self._word(_index(body, entry, 0))
            b.store(body.add(body.load_i64(word), self._value_at(entry, 1)), word)

    # --- the code ---

    def _run(self) -> None:
        """The loop over rows; goes on behind it where the code halts."""
        body, b = self.body, self.b
        halted = b.append_basic_block("halted")
        head = b.append_basic_block("next")
        self.pc = body.cell(0, "pc")
        b.branch(head)
        b.position_at_end(head)
        self.row = body.at(self.v["code"], body.mul(self.pc.get(), 4 * ROW))
        operation = b.load(self.row, typ=_I32, align=4)
        self.result, self.a, self.c = (_index(body, self.row, i) for i in (1, 2, 3))
        never = b.append_basic_block("unknown")
        switch = b.switch(operation, never)
        b.position_at_end(never)
        b.branch(self.out)
        for name, number in OPS.items():
            block = b.append_basic_block(name)
            switch.add_case(number, block)
            b.position_at_end(block)
            if name == "halt":
                b.branch(halted)
                continue
            self._operation(name)
            b.branch(head)
        b.position_at_end(halted)

    def _operation(self, name: str) -> None:
        """Code of one operation, which moves on itself."""
        body, b = self.body, self.b
        if name == "jump":
            self.pc.set(self.result)
            return
        if name.startswith("if_"):
            self._guard(name[3:])
            return
        if name in OPERANDS:
            self._fill(name, self._operands(OPERANDS[name]))
            self.pc.add(-(-(OPERANDS[name] + 1) // ROW))
            return
        if name == "table":
            value = body.mul(self.used.get(), 8)
        elif name == "move":
            value = body.load_i64(self._register(self.a))
        elif name in ("fadd", "fsub", "fmul", "fdiv", "fmin", "fmax", "floor", "ceil", "round"):
            value = self._floating(name)
        else:
            value = self._whole(name)
        b.store(value, self._register(self.result))
        self.pc.add(1)

    def _operands(self, count: int) -> list[Value]:
        return [self.body.load_i64(self._register(_index(self.body, self.row, 1 + i))) for i in range(count)]

    def _pair(self) -> tuple[Value, Value]:
        return self.body.load_i64(self._register(self.a)), self.body.load_i64(self._register(self.c))

    def _floats(self) -> tuple[Value, Value]:
        x, y = self._pair()
        return self.b.bitcast(x, _DOUBLE), self.b.bitcast(y, _DOUBLE)

    def _guard(self, name: str) -> None:
        body, b = self.body, self.b
        operators = {"lt": "<", "le": "<=", "eq": "==", "ne": "!="}
        if name[0] == "f":
            holds = b.fcmp_ordered(operators[name[1:]], *self._floats())
        else:
            holds = b.icmp_signed(operators[name], *self._pair())
        with body.when(b.and_(b.not_(holds), body.less(self.result, 0))):
            self.status.set(self.result)
            self._leave()
        self.pc.set(body.select(holds, body.add(self.pc.get(), 1), self.result))

    def _whole(self, name: str) -> Value:
        body, b = self.body, self.b
        x, y = self._pair()
        zero = body.i(0)
        checked: dict[str, Callable[[], Value]] = {
            "add": lambda: self._exact("sadd", x, y),
            "sub": lambda: self._exact("ssub", x, y),
            "mul": lambda: self._exact("smul", x, y),
            "floordiv": lambda: self._divided(x, y)[0],
            "mod": lambda: self._divided(x, y)[1],
            "truncdiv": lambda: b.sdiv(x, self._divisor(x, y)),
            "quotient": lambda: self._quotient(x, y),
            "wrap": lambda: body.select(body.less(x, 0), self._exact("sadd", x, y), x),
            "broadcast": lambda: self._broadcast(x, y),
            "scaled": lambda: self._scaled(x, y),
            "min": lambda: body.min(x, y),
            "max": lambda: body.max(x, y),
            "abs": lambda: body.select(body.less(x, 0), self._exact("ssub", zero, x), x),
            "lshift": lambda: self._exact("smul", x, b.shl(body.i(1), y)),
            "rshift": lambda: b.ashr(x, y),
            "lt": lambda: b.zext(body.less(x, y), _I64),
            "le": lambda: b.zext(b.icmp_signed("<=", x, y), _I64),
            "eq": lambda: b.zext(body.equal(x, y), _I64),
            "ne": lambda: b.zext(b.icmp_signed("!=", x, y), _I64),
            "float": lambda: self._float(x),
        }
        return checked[name]()

    def _exact(self, name: str, x: Value, y: Value) -> Value:
        b = self.b
        kind = ir_builder.StructType(_I64, _I1)
        found = b.call(self.body.intrinsic(f"llvm.{name}.with.overflow.i64", kind, [_I64, _I64]), [x, y])
        self._fail_if(b.extract_value(found, 1))
        return b.extract_value(found, 0)

    def _divisor(self, x: Value, y: Value) -> Value:
        """`y`, which is neither 0 nor makes a quotient too large."""
        body, b = self.body, self.b
        large = b.and_(body.equal(y, -1), body.equal(x, -(1 << 63)))
        self._fail_if(b.or_(body.equal(y, 0), large))
        return y

    def _divided(self, x: Value, y: Value) -> tuple[Value, Value]:
        """Quotient and remainder, rounded down."""
        body, b = self.body, self.b
        y = self._divisor(x, y)
        quotient = b.sdiv(x, y)
        rest = body.sub(x, body.mul(quotient, y))
        below = b.and_(b.icmp_signed("!=", rest, body.i(0)), body.less(b.xor(rest, y), 0))
        less = b.zext(below, _I64)
        return body.sub(quotient, less), body.add(rest, body.select(below, y, 0))

    def _quotient(self, x: Value, y: Value) -> Value:
        body = self.body
        empty = body.equal(y, 0)
        return body.select(empty, 0, self._divided(x, body.select(empty, 1, y))[0])

    def _broadcast(self, x: Value, y: Value) -> Value:
        body, b = self.body, self.b
        first = b.or_(body.equal(x, y), body.equal(y, 1))
        self._fail_if(b.not_(b.or_(first, body.equal(x, 1))))
        return body.select(first, x, y)

    def _scaled(self, x: Value, factor: Value) -> Value:
        b = self.b
        rounded = b.fpext(b.sitofp(x, ir_builder.FloatType()), _DOUBLE)
        product = b.fpext(b.fptrunc(b.fmul(rounded, b.bitcast(factor, _DOUBLE)), ir_builder.FloatType()), _DOUBLE)
        return self._to_whole("floor", product)

    def _float(self, x: Value) -> Value:
        body, b = self.body, self.b
        self._fail_if(b.or_(body.less(x, -_EXACT), body.less(_EXACT, x)))
        return b.bitcast(b.sitofp(x, _DOUBLE), _I64)

    def _floating(self, name: str) -> Value:
        b = self.b
        x, y = self._floats()
        if name in ("floor", "ceil", "round"):
            return self._to_whole(name, x)
        if name == "fdiv":
            self._fail_if(b.fcmp_ordered("==", y, ir_builder.Constant(_DOUBLE, 0.0)))
        if name in ("fmin", "fmax"):  # as min and max of Python: the first where they are equal
            other = b.fcmp_ordered("<" if name == "fmin" else ">", y, x)
            found = b.select(other, y, x)
        else:
            found = getattr(b, name)(x, y)
        return b.bitcast(found, _I64)

    def _to_whole(self, name: str, x: Value) -> Value:
        b = self.b
        intrinsic = {"floor": "llvm.floor.f64", "ceil": "llvm.ceil.f64", "round": "llvm.roundeven.f64"}[name]
        found = b.call(self.body.intrinsic(intrinsic, _DOUBLE, [_DOUBLE]), [x])
        limit = ir_builder.Constant(_DOUBLE, float(_EXACT))
        small = b.and_(b.fcmp_ordered("<", found, limit), b.fcmp_ordered(">", found, b.fneg(limit)))
        self._fail_if(b.not_(small))
        return b.fptosi(found, _I64)

    # --- tables ---

    def _fill(self, name: str, given: list[Value]) -> None:
        """Write a part of a table, as far as there is room, and move on in any case."""
        body, b = self.body, self.b
        if name == "copy":
            count = given[1]
        elif name == "inside":
            count = body.mul(given[0], 2)
        else:
            count = body.mul(body.mul(given[1], given[3]), body.mul(given[5], given[7]))
        first = self.used.get()
        after = body.add(first, count)
        self.used.set(after)
        with body.when(b.icmp_signed("<=", after, self.v["capacity"])):
            target = body.at(self.v["words"], body.mul(first, 8))
            if name == "copy":
                body.copy(body.pointer(given[0]), target, body.mul(count, 8))
            elif name == "inside":
                self._inside(given, target)
            else:
                self._spread(given, target)

    def _spread(self, given: list[Value], target: Value) -> None:
        body = self.body
        start, (n0, s0, n1, s1, n2, s2, n3, s3) = given[0], given[1:]
        place = body.cell(0, "place")
        with body.loop(0, n0) as i, body.loop(0, n1) as j, body.loop(0, n2) as k, body.loop(0, n3) as m:
            at = body.add(body.add(body.add(body.mul(i, s0), body.mul(j, s1)), body.mul(k, s2)), body.mul(m, s3))
            body.b.store(body.add(start, at), body.at(target, place.get()))
            place.add(8)

    def _inside(self, given: list[Value], target: Value) -> None:
        body = self.body
        count, stride, pad, size, dilation, kernel = given
        with body.loop(0, count) as i:
            first = body.sub(body.mul(i, stride), pad)
            low = body.min(body.max(body.sub(0, self._divided(first, dilation)[0]), 0), kernel)
            past = self._divided(body.sub(first, size), dilation)[0]
            pair = body.at(target, body.mul(i, 16))
            body.b.store(low, pair)
            body.b.store(body.min(body.max(body.sub(0, past), low), kernel), body.at(pair, 8))
