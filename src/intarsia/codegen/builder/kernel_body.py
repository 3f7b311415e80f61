"""Structured code in LLVM IR: loops, branches, mutable cells and masked vectors over `ir_builder.IRBuilder`.

A template builds one module: `Module(target)`, in it functions (`module.function(...)`), each with a `Body` to write
into. Addresses are opaque pointers moved by bytes; all integers are i64. The text that comes out is `KernelText`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from intarsia.codegen.elementwise.element_types import storage_type
from intarsia.codegen.llvm import ir_builder
from intarsia.codegen.llvm.compile_ir import Effort
from intarsia.codegen.llvm.jit import SYMBOL_PLACEHOLDER, KernelText, kernel_text
from intarsia.codegen.llvm.target import Target
from intarsia.graph.dtypes import DType

if TYPE_CHECKING:
    from intarsia.codegen.elementwise.emitter import Emitter

Value = Any
Index = int | Any

_I8, _I32, _I64 = ir_builder.IntType(8), ir_builder.IntType(32), ir_builder.IntType(64)
_POINTER = ir_builder.PointerType()
_KINDS = {"p": _POINTER, "i": _I64}  # of parameters

# Loops are scheduled by hand and small code compiles fast: no unrolling, no vectorizing.
_LOOP_PROPERTIES = ('!{!"llvm.loop.unroll.disable"}', '!{!"llvm.loop.vectorize.enable", i1 false}')


class Module:
    """One LLVM module that becomes one kernel; `lanes(dtype)` elements fill a vector of the target."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self.ir = ir_builder.Module("kernel")
        self.ir.triple = target.triple
        self.attributes = target.function_attributes
        self._parts: dict[str, KernelText] = {}

    def lanes(self, dtype: DType) -> int:
        return self.target.vector_bytes * 8 // dtype.bits

    def kernel(self) -> Body:
        """The entry `void @symbol(ptr args, i64 tid, i64 nthreads)`."""
        return self.function(SYMBOL_PLACEHOLDER, ("p", "i", "i"), internal=False)

    def function(self, name: str, parameters: Sequence[str], internal: bool = True) -> Body:
        """A void function of pointers ("p") and 64-bit integers ("i")."""
        function = ir_builder.Function(
            self.ir, ir_builder.FunctionType(ir_builder.VoidType(), [_KINDS[p] for p in parameters]), name
        )
        if internal:
            function.linkage = "internal"
            function.attributes.add("noinline")
        return Body(self, function)

    def part(self, text: KernelText, parameters: Sequence[str]) -> Any:
        """A function of another module, to be called."""
        self._parts[text.symbol] = text
        return ir_builder.Function(
            self.ir, ir_builder.FunctionType(ir_builder.VoidType(), [_KINDS[p] for p in parameters]), text.symbol
        )

    def text(self, prefix: str, effort: str = Effort.ALL) -> KernelText:
        """The kernel."""
        marked = self.ir.printed().replace("\n{\n", f" {self.attributes}\n{{\n")
        return kernel_text(prefix, marked, effort, self._parts.values())


class _Callee:
    """A function at a run-time address."""

    def __init__(self, address: Value, function_type: Any) -> None:
        self.ref, self.function_type = address.ref, function_type


class Cell:
    """A mutable local variable (promoted to a register by LLVM)."""

    def __init__(self, body: Body, typ: Any, name: str) -> None:
        self._body, self._type = body, typ
        with body.b.goto_entry_block():
            self.address = body.b.alloca(typ, name=name)

    def get(self) -> Value:
        return self._body.b.load(self.address, typ=self._type)

    def set(self, value: Index) -> None:
        self._body.b.store(self._body.i(value) if isinstance(value, int) else value, self.address)

    def add(self, value: Index) -> None:
        self.set(self._body.add(self.get(), value))


class Part(NamedTuple):
    """The first lanes of a vector, and whether that is all of them (None where masked stores are as fast)."""

    mask: Value
    whole: Value | None


class Body:
    """Writes one function. `b` is the IRBuilder, always positioned at the end of the current block."""

    def __init__(self, module: Module, function: Any) -> None:
        self.module, self.function = module, function
        self.args = function.args
        self.b = ir_builder.IRBuilder(function.append_basic_block("entry"))

    def emitter(self, lanes: int = 1) -> Emitter:
        """Element-wise primitives at the end of the current block, for elements or for vectors of them."""
        from intarsia.codegen.elementwise.emitter import Emitter  # not for those who list arguments alone

        return Emitter(self.b, lanes)

    # --- integers and addresses -----------------------------------------------------------------------------------

    def i(self, value: Index) -> Value:
        return ir_builder.Constant(_I64, value) if isinstance(value, int) else value

    def add(self, a: Index, b: Index) -> Value:
        if isinstance(a, int) and a == 0:
            return self.i(b)
        return self.i(a) if isinstance(b, int) and b == 0 else self.b.add(self.i(a), self.i(b))

    def sub(self, a: Index, b: Index) -> Value:
        return self.i(a) if isinstance(b, int) and b == 0 else self.b.sub(self.i(a), self.i(b))

    def mul(self, a: Index, b: Index) -> Value:
        if isinstance(b, int) and b == 1:
            return self.i(a)
        return self.b.mul(self.i(a), self.i(b))

    def div(self, a: Index, b: Index) -> Value:
        """Quotient of non-negative integers."""
        return self.b.udiv(self.i(a), self.i(b))

    def rem(self, a: Index, b: Index) -> Value:
        return self.b.urem(self.i(a), self.i(b))

    def less(self, a: Index, b: Index) -> Value:
        return self.b.icmp_signed("<", self.i(a), self.i(b))

    def equal(self, a: Index, b: Index) -> Value:
        return self.b.icmp_signed("==", self.i(a), self.i(b))

    def select(self, condition: Value, a: Index, b: Index) -> Value:
        return self.b.select(condition, self.i(a), self.i(b))

    def min(self, a: Index, b: Index) -> Value:
        return self.select(self.less(a, b), a, b)

    def max(self, a: Index, b: Index) -> Value:
        return self.select(self.less(a, b), b, a)

    def at(self, pointer: Value, *offset_bytes: Index) -> Value:
        """The address `offset_bytes` (summed) behind `pointer`."""
        for offset in offset_bytes:
            if not (isinstance(offset, int) and offset == 0):
                pointer = self.b.gep(pointer, [self.i(offset)], source_etype=_I8)
        return pointer

    def opaque(self, value: Value) -> Value:
        """A pointer or a vector as something that the compiler knows nothing of: it is not computed anew behind it."""
        register = "x" if isinstance(value.type, ir_builder.VectorType) else "r"
        return self.b.asm(ir_builder.FunctionType(value.type, [value.type]), "", f"={register},0", [value])

    def pointer(self, address: Value) -> Value:
        return self.b.inttoptr(address, _POINTER)

    def alloca(self, nbytes: int) -> Value:
        """Memory on the stack for the whole function, aligned to 64 bytes."""
        with self.b.goto_entry_block():
            return self.b.alloca(ir_builder.ArrayType(_I8, nbytes), align=64)

    def call_pointer(self, function: Value, parameters: Sequence[str], arguments: Sequence[Index]) -> None:
        """Call the void function at an address; `parameters` as in `Module.function`."""
        kinds = {"p": _POINTER, "i": _I64}
        typ = ir_builder.FunctionType(ir_builder.VoidType(), [kinds[p] for p in parameters])
        self.b.call(_Callee(function, typ), [self.i(a) for a in arguments])

    def copy(self, source: Value, target: Value, nbytes: Value) -> None:
        f = self.intrinsic("llvm.memcpy.p0.p0.i64", ir_builder.VoidType(), [_POINTER, _POINTER, _I64, ir_builder.IntType(1)])
        self.b.call(f, [target, source, nbytes, ir_builder.Constant(ir_builder.IntType(1), 0)])

    def fill(self, target: Value, nbytes: Value, byte: Value | None = None) -> None:
        """Set memory to a byte, 0 by default."""
        f = self.intrinsic("llvm.memset.p0.i64", ir_builder.VoidType(), [_POINTER, _I8, _I64, ir_builder.IntType(1)])
        self.b.call(
            f,
            [
                target,
                ir_builder.Constant(_I8, 0) if byte is None else byte,
                nbytes,
                ir_builder.Constant(ir_builder.IntType(1), 0),
            ],
        )

    def fill_zero(self, target: Value, nbytes: Value) -> None:
        f = self.intrinsic("llvm.memset.p0.i64", ir_builder.VoidType(), [_POINTER, _I8, _I64, ir_builder.IntType(1)])
        self.b.call(f, [target, ir_builder.Constant(_I8, 0), nbytes, ir_builder.Constant(ir_builder.IntType(1), 0)])

    def load_i64(self, pointer: Value, index: Index = 0) -> Value:
        return self.b.load(self.at(pointer, self.mul(index, 8) if not isinstance(index, int) else index * 8), typ=_I64)

    def load_pointer(self, pointer: Value, index: int) -> Value:
        return self.pointer(self.load_i64(pointer, index))

    # --- control flow ---------------------------------------------------------------------------------------------

    @contextmanager
    def loop(self, start: Index, stop: Index, step: Index = 1) -> Iterator[Value]:
        """for index in range(start, stop, step), step > 0."""
        first, stop = self.i(start), self.i(stop)
        before = self.b.block
        body = self.b.append_basic_block("loop")
        after = self.b.append_basic_block("after")
        self.b.cbranch(self.less(first, stop), body, after)
        self.b.position_at_end(body)
        index = self.b.phi(_I64)
        index.add_incoming(first, before)
        yield index
        following = self.add(index, step)
        index.add_incoming(following, self.b.block)
        self.b.cbranch(self.less(following, stop), body, after, self._loop_metadata())
        self.b.position_at_end(after)

    @contextmanager
    def carry(self, start: Index, stop: Index, step: Index, values: list[Value]) -> Iterator[Value]:
        """As `loop`, with values carried in registers: the list holds a round's, and after the loop the last ones.

        The block replaces the list's elements by the next round's. (Cells do the same but take longer to compile.)
        """
        first, stop = self.i(start), self.i(stop)
        before = self.b.block
        body = self.b.append_basic_block("loop")
        after = self.b.append_basic_block("after")
        self.b.cbranch(self.less(first, stop), body, after)
        self.b.position_at_end(body)
        index = self.b.phi(_I64)
        index.add_incoming(first, before)
        initial = list(values)
        phis = [self.b.phi(value.type) for value in values]
        values[:] = phis
        yield index
        following = self.add(index, step)
        index.add_incoming(following, self.b.block)
        end = self.b.block
        for phi, before_value, value in zip(phis, initial, values, strict=True):
            phi.add_incoming(before_value, before)
            phi.add_incoming(value, end)
        self.b.cbranch(self.less(following, stop), body, after, self._loop_metadata())
        self.b.position_at_end(after)
        last = list(values)
        values[:] = [self.b.phi(value.type) for value in last]
        for phi, before_value, value in zip(values, initial, last, strict=True):
            phi.add_incoming(before_value, before)
            phi.add_incoming(value, end)

    @contextmanager
    def when(self, condition: Value) -> Iterator[None]:
        then = self.b.append_basic_block("then")
        after = self.b.append_basic_block("endif")
        self.b.cbranch(condition, then, after)
        self.b.position_at_end(then)
        yield
        self.b.branch(after)
        self.b.position_at_end(after)

    @contextmanager
    def carry_if(self, flag: Value, values: list[Value]) -> Iterator[None]:
        """One round of `carry` where `flag` is 1, none where it is 0.

        A branch where there are 16 vector registers: LLVM moves loads before a loop, and would spill them there.
        """
        if self.module.target.vector_bytes == 64:
            with self.carry(0, flag, 1, values):
                yield
            return
        before, initial = self.b.block, list(values)
        taken, after = self.b.append_basic_block("taken"), self.b.append_basic_block("after")
        self.b.cbranch(self.less(0, flag), taken, after)
        self.b.position_at_end(taken)
        yield
        end, last = self.b.block, list(values)
        self.b.branch(after)
        self.b.position_at_end(after)
        values[:] = [self.b.phi(value.type) for value in last]
        for phi, without, value in zip(values, initial, last, strict=True):
            phi.add_incoming(without, before)
            phi.add_incoming(value, end)

    @contextmanager
    def either(self, condition: Value) -> Iterator[tuple[Any, Any]]:
        """with body.either(c) as (then, otherwise): with then: ...; with otherwise: ..."""
        with self.b.if_else(condition) as branches:
            yield branches

    @contextmanager
    def repeat_while(self, condition: Any) -> Iterator[None]:
        """while condition(): ..., where `condition` emits the test."""
        head = self.b.append_basic_block("while")
        body = self.b.append_basic_block("do")
        after = self.b.append_basic_block("done")
        self.b.branch(head)
        self.b.position_at_end(head)
        self.b.cbranch(condition(), body, after)
        self.b.position_at_end(body)
        yield
        self.b.branch(head, self._loop_metadata())
        self.b.position_at_end(after)

    def cell(self, value: Index, name: str = "") -> Cell:
        cell = Cell(self, _I64 if isinstance(value, int) else value.type, name)
        cell.set(value)
        return cell

    def share(self, total: Value, tid: Value, nthreads: Value) -> tuple[Value, Value]:
        """This thread's part [first, last) of `total` units, even to one unit."""
        return self.div(self.mul(total, tid), nthreads), self.div(self.mul(total, self.add(tid, 1)), nthreads)

    def _loop_metadata(self) -> str:
        return f", !llvm.loop {self.module.ir.loop(*_LOOP_PROPERTIES)}"

    # --- vectors --------------------------------------------------------------------------------------------------

    def vector_type(self, dtype: DType, lanes: int) -> Any:
        return ir_builder.VectorType(storage_type(dtype), lanes) if lanes > 1 else storage_type(dtype)

    def zero(self, dtype: DType, lanes: int) -> Value:
        typ = self.vector_type(dtype, lanes)
        return ir_builder.Literal(typ, "zeroinitializer") if lanes > 1 else ir_builder.Constant(typ, 0)

    def constant(self, value: float, dtype: DType, lanes: int) -> Value:
        typ = self.vector_type(dtype, lanes)
        return ir_builder.Constant(typ, [value] * lanes if lanes > 1 else value)

    def load(self, pointer: Value, dtype: DType, lanes: int) -> Value:
        """Element-aligned load of `lanes` contiguous elements."""
        return self.b.load(pointer, typ=self.vector_type(dtype, lanes), align=dtype.bits // 8)

    def store(self, value: Value, pointer: Value, dtype: DType) -> None:
        self.b.store(value, pointer, align=dtype.bits // 8)

    def float_of_bits(self, bits: Value) -> Value:
        """The float32 whose bits are the low half of an int64, as arguments have it."""
        return self.b.bitcast(self.b.trunc(bits, _I32), ir_builder.FloatType())

    def splat(self, value: Value, lanes: int) -> Value:
        if lanes == 1:
            return value
        vector = ir_builder.VectorType(value.type, lanes)
        poison = ir_builder.Literal(vector, "poison")
        zeros = ir_builder.Literal(ir_builder.VectorType(_I32, lanes), "zeroinitializer")
        first = self.b.insert_element(poison, value, ir_builder.Constant(ir_builder.IntType(32), 0))
        return self.b.shuffle_vector(first, poison, zeros)

    def broadcast(self, pointer: Value, dtype: DType, lanes: int) -> Value:
        """One element in all lanes."""
        return self.splat(self.b.load(pointer, typ=storage_type(dtype), align=dtype.bits // 8), lanes)

    def mask(self, count: Value, lanes: int) -> Value:
        """The mask of the lanes below `count` (which may be larger than `lanes` or negative)."""
        i32 = ir_builder.IntType(32)
        narrow = self.b.trunc(self.min(self.max(count, 0), lanes), i32)
        iota = ir_builder.Constant(ir_builder.VectorType(i32, lanes), list(range(lanes)))
        return self.b.icmp_signed("<", iota, self.splat(narrow, lanes))

    def load_masked(self, pointer: Value, mask: Value, dtype: DType, lanes: int) -> Value:
        """`lanes` elements, zero (and memory not touched) where the mask is off."""
        vector = self.vector_type(dtype, lanes)
        f = self.intrinsic(f"llvm.masked.load.{_suffix(dtype, lanes)}.p0", vector, [pointer.type, _I32, mask.type, vector])
        return self.b.call(f, [pointer, self.const32(dtype.bits // 8), mask, self.zero(dtype, lanes)])

    def store_masked(self, value: Value, pointer: Value, mask: Value, dtype: DType) -> None:
        lanes = value.type.count
        name = f"llvm.masked.store.{_suffix(dtype, lanes)}.p0"
        f = self.intrinsic(name, ir_builder.VoidType(), [value.type, pointer.type, _I32, mask.type])
        self.b.call(f, [value, pointer, self.const32(dtype.bits // 8), mask])

    def store_chosen(self, value: Value, pointer: Value, chosen: Value, dtype: DType) -> Value:
        """Store the lanes that are chosen one behind the other; returns how many they are.

        With AVX-512 they move together within a register: Zen 4 takes some 140 cycles where the store does it.
        """
        b, lanes = self.b, value.type.count
        bits = b.bitcast(chosen, ir_builder.IntType(lanes))
        count = b.call(self.intrinsic("llvm.ctpop.i64", _I64, [_I64]), [bits if lanes == 64 else b.zext(bits, _I64)])
        if self.module.target.arch != "x86_64" or self.module.target.vector_bytes < 64:
            name = f"llvm.masked.compressstore.{_suffix(dtype, lanes)}"
            b.call(
                self.intrinsic(name, ir_builder.VoidType(), [value.type, pointer.type, chosen.type]), [value, pointer, chosen]
            )
            return count
        wide = max(dtype.bits, 32)
        vector = ir_builder.VectorType(ir_builder.IntType(wide), lanes)
        together = self.intrinsic(f"llvm.x86.avx512.mask.compress.v{lanes}i{wide}", vector, [vector, vector, chosen.type])
        moved = b.call(
            together,
            [b.zext(value, vector) if dtype.bits < wide else value, ir_builder.Literal(vector, "zeroinitializer"), chosen],
        )
        self.store_masked(b.trunc(moved, value.type) if dtype.bits < wide else moved, pointer, self.mask(count, lanes), dtype)
        return count

    def part(self, count: Value, lanes: int) -> Part:
        """The lanes below `count`."""
        slow = self.module.target.vector_bytes < 64
        return Part(self.mask(count, lanes), self.less(lanes - 1, count) if slow else None)

    def store_part(self, value: Value, pointer: Value, part: Part, dtype: DType) -> None:
        """Store some lanes: at once where they are all, and masks are no registers (AVX2's masked stores take 18 cycles)."""
        if part.whole is None:
            self.store_masked(value, pointer, part.mask, dtype)
            return
        with self.either(part.whole) as (whole, some):
            with whole:
                self.store(value, pointer, dtype)
            with some:
                self.store_masked(value, pointer, part.mask, dtype)

    def fma(self, a: Value, b: Value, c: Value, dtype: DType, lanes: int) -> Value:
        """a * b + c: one rounding where the target has it, else multiply and add."""
        vector = self.vector_type(dtype, lanes)
        f = self.intrinsic(f"llvm.fmuladd.{_suffix(dtype, lanes)}", vector, [vector] * 3)
        return self.b.call(f, [a, b, c])

    def shuffle(self, a: Value, b: Value, lanes: Sequence[int]) -> Value:
        return self.b.shuffle_vector(
            a, b, ir_builder.Constant(ir_builder.VectorType(ir_builder.IntType(32), len(lanes)), list(lanes))
        )

    def prefetch(self, pointer: Value, locality: int = 3, write: bool = False) -> None:
        """Fetch a line, for reading or for a `write`; locality 3: into all caches, 2: from the second level on."""
        f = self.intrinsic("llvm.prefetch.p0", ir_builder.VoidType(), [pointer.type, _I32, _I32, _I32])
        self.b.call(f, [pointer, self.const32(int(write)), self.const32(locality), self.const32(1)])

    def const32(self, value: int) -> Value:
        return ir_builder.Constant(ir_builder.IntType(32), value)

    def intrinsic(self, name: str, result: Any, parameters: list[Any]) -> Any:
        """The function of that name, declared once."""
        module = self.module.ir
        if name in module.globals:
            return module.globals[name]
        return ir_builder.Function(module, ir_builder.FunctionType(result, parameters), name)


def _suffix(dtype: DType, lanes: int) -> str:
    letter = {DType.FLOAT: "f32", DType.DOUBLE: "f64", DType.FLOAT16: "f16"}.get(dtype, f"i{dtype.bits}")
    return f"v{lanes}{letter}" if lanes > 1 else letter
