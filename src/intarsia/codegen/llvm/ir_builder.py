"""LLVM IR, written as text: a builder that appends lines to the blocks of functions.

The names are those of llvmlite.ir, whose objects refer to each other and are turned into text at the end; here an instruction
is a line as soon as it is made, and a value its type and its name. Nothing is folded, little is checked: LLVM reads the text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from intarsia.codegen.llvm.ir_module import (
    Argument,
    ArrayType,
    BFloatType,
    Block,
    Constant,
    DoubleType,
    FloatType,
    Function,
    FunctionType,
    GlobalVariable,
    HalfType,
    IntType,
    Literal,
    Module,
    Phi,
    PointerType,
    StructType,
    Switch,
    Type,
    Undefined,
    Value,
    VectorType,
    VoidType,
    overload,
)

__all__ = [
    "Argument",
    "ArrayType",
    "BFloatType",
    "Block",
    "Constant",
    "DoubleType",
    "FloatType",
    "Function",
    "FunctionType",
    "GlobalVariable",
    "HalfType",
    "IRBuilder",
    "IntType",
    "Literal",
    "Module",
    "Phi",
    "PointerType",
    "StructType",
    "Switch",
    "Type",
    "Undefined",
    "Value",
    "VectorType",
    "VoidType",
    "overload",
]

_VOID, _POINTER, _I1 = VoidType(), PointerType(), IntType(1)


def _flags(flags: Sequence[str]) -> str:
    return " ".join([*flags, ""]) if flags else ""


def _arithmetic(operation: str) -> Callable[..., Value]:
    def method(self: IRBuilder, lhs: Value, rhs: Value, *, flags: Sequence[str] = ()) -> Value:
        kind = lhs.type
        if kind is not rhs.type:
            raise TypeError(f"{operation} of {kind} and {rhs.type}")
        if flags:
            return self._value(kind, f"{operation} {' '.join(flags)} {kind.text} {lhs.ref}, {rhs.ref}")
        return self._value(kind, f"{operation} {kind.text} {lhs.ref}, {rhs.ref}")

    return method


def _conversion(operation: str) -> Callable[[IRBuilder, Value, Type], Value]:
    def method(self: IRBuilder, value: Value, kind: Type) -> Value:
        if value.type is kind:
            return value
        return self._value(kind, f"{operation} {value.type.text} {value.ref} to {kind.text}")

    return method


_COMPARED = {"<": "lt", "<=": "le", ">": "gt", ">=": "ge", "==": "eq", "!=": "ne"}


class IRBuilder:
    """Appends instructions to a block: at its end, or before its terminator where it has one.

    Integers are compared with C's operators; shifts, divisions and comparisons say whether they are signed.
    """

    def __init__(self, block: Block) -> None:
        self.position_at_end(block)

    # --- places ---

    @property
    def block(self) -> Block:
        return self._block

    @property
    def function(self) -> Function:
        return self._block.function

    @property
    def module(self) -> Module:
        return self._block.function.module

    def position_at_end(self, block: Block) -> None:
        self._block, self._function = block, block.function

    def append_basic_block(self, name: str = "") -> Block:
        return self._function.append_basic_block(name)

    @contextmanager
    def goto_entry_block(self) -> Iterator[None]:
        """What is written inside goes into the function's first block."""
        before = self._block
        self._block = self._function.blocks[0]
        try:
            yield
        finally:
            self._block = before

    def _append(self, line: str | Phi | Switch) -> None:
        block = self._block
        if block.terminated:
            block.lines.insert(-1, line)
        else:
            block.lines.append(line)

    def _end(self, line: str | Switch) -> None:
        if self._block.terminated:
            raise ValueError(f"block {self._block.name!r} has ended")
        self._block.lines.append(line)
        self._block.terminated = True

    def _value(self, kind: Type, text: str, name: str = "") -> Value:
        function, block = self._function, self._block
        function.count = number = function.count + 1
        ref = f"%{name}.{number}"
        if block.terminated:
            block.lines.insert(-1, f"  {ref} = {text}")
        else:
            block.lines.append(f"  {ref} = {text}")
        return Value(kind, ref)

    # --- arithmetic ---

    add, sub, mul = _arithmetic("add"), _arithmetic("sub"), _arithmetic("mul")
    sdiv, udiv, srem, urem = _arithmetic("sdiv"), _arithmetic("udiv"), _arithmetic("srem"), _arithmetic("urem")
    and_, or_, xor = _arithmetic("and"), _arithmetic("or"), _arithmetic("xor")
    shl, lshr, ashr = _arithmetic("shl"), _arithmetic("lshr"), _arithmetic("ashr")
    fadd, fsub, fmul = _arithmetic("fadd"), _arithmetic("fsub"), _arithmetic("fmul")
    fdiv, frem = _arithmetic("fdiv"), _arithmetic("frem")

    def neg(self, value: Value) -> Value:
        return self.sub(Literal(value.type, "zeroinitializer" if isinstance(value.type, VectorType) else "0"), value)

    def not_(self, value: Value) -> Value:
        kind = value.type
        return self.xor(value, Constant(kind, [-1] * kind.count if isinstance(kind, VectorType) else -1))

    def fneg(self, value: Value) -> Value:
        return self._value(value.type, f"fneg {value}")

    def fma(self, a: Value, b: Value, c: Value) -> Value:
        return self._intrinsic("llvm.fma", a.type, a, b, c)

    def cttz(self, value: Value, zero_is_poison: Value) -> Value:
        return self._intrinsic("llvm.cttz", value.type, value, zero_is_poison)

    def _intrinsic(self, name: str, result: Type, *args: Value) -> Value:
        full = f"{name}.{overload(result)}"
        known = self.module.globals.get(full)
        if known is None:
            known = Function(self.module, FunctionType(result, [a.type for a in args]), full)
        return self.call(known, args)

    # --- conversions ---

    trunc, zext, sext = _conversion("trunc"), _conversion("zext"), _conversion("sext")
    fptrunc, fpext = _conversion("fptrunc"), _conversion("fpext")
    fptosi, fptoui, sitofp, uitofp = (_conversion(name) for name in ("fptosi", "fptoui", "sitofp", "uitofp"))
    ptrtoint, inttoptr, bitcast = _conversion("ptrtoint"), _conversion("inttoptr"), _conversion("bitcast")

    # --- comparisons ---

    def _compare(self, operation: str, lhs: Value, rhs: Value) -> Value:
        kind = lhs.type
        if kind is not rhs.type:
            raise TypeError(f"comparing {kind} and {rhs.type}")
        result = VectorType(_I1, kind.count) if isinstance(kind, VectorType) else _I1
        return self._value(result, f"{operation} {kind.text} {lhs.ref}, {rhs.ref}")

    def icmp_signed(self, operation: str, lhs: Value, rhs: Value) -> Value:
        sign = "" if operation in ("==", "!=") else "s"
        return self._compare(f"icmp {sign}{_COMPARED[operation]}", lhs, rhs)

    def icmp_unsigned(self, operation: str, lhs: Value, rhs: Value) -> Value:
        sign = "" if operation in ("==", "!=") else "u"
        return self._compare(f"icmp {sign}{_COMPARED[operation]}", lhs, rhs)

    def fcmp_ordered(self, operation: str, lhs: Value, rhs: Value, *, flags: Sequence[str] = ()) -> Value:
        """False where a number is NaN."""
        name = "ord" if operation == "ord" else f"o{_COMPARED[operation]}"
        return self._compare(f"fcmp {_flags(flags)}{name}", lhs, rhs)

    def fcmp_unordered(self, operation: str, lhs: Value, rhs: Value, *, flags: Sequence[str] = ()) -> Value:
        """True where a number is NaN."""
        name = "uno" if operation == "uno" else f"u{_COMPARED[operation]}"
        return self._compare(f"fcmp {_flags(flags)}{name}", lhs, rhs)

    def select(self, condition: Value, lhs: Value, rhs: Value, *, flags: Sequence[str] = ()) -> Value:
        if lhs.type is not rhs.type:
            raise TypeError(f"select of {lhs.type} and {rhs.type}")
        return self._value(lhs.type, f"select {_flags(flags)}{condition}, {lhs}, {rhs}")

    # --- vectors and structures ---

    def extract_element(self, vector: Value, index: Value) -> Value:
        assert isinstance(vector.type, VectorType)
        return self._value(vector.type.element, f"extractelement {vector}, {index}")

    def insert_element(self, vector: Value, value: Value, index: Value) -> Value:
        return self._value(vector.type, f"insertelement {vector}, {value}, {index}")

    def shuffle_vector(self, a: Value, b: Value, mask: Constant) -> Value:
        assert isinstance(a.type, VectorType) and isinstance(mask.type, VectorType)
        return self._value(VectorType(a.type.element, mask.type.count), f"shufflevector {a}, {b}, {mask}")

    def extract_value(self, aggregate: Value, index: int) -> Value:
        assert isinstance(aggregate.type, StructType)
        return self._value(aggregate.type.elements[index], f"extractvalue {aggregate}, {index}")

    # --- memory ---

    def alloca(self, kind: Type, size: Value | None = None, align: int = 0, name: str = "") -> Value:
        """Memory on the stack for `size` values (default 1)."""
        many = f", {size}" if size is not None else ""
        return self._value(_POINTER, f"alloca {kind.text}{many}{f', align {align}' if align else ''}", name)

    def gep(self, pointer: Value, indices: Sequence[Value], source_etype: Type) -> Value:
        """The address `indices[0]` elements of `source_etype` behind `pointer` (or pointers)."""
        kind = pointer.type
        if not isinstance(kind, VectorType) and isinstance(indices[0].type, VectorType):
            kind = VectorType(kind, indices[0].type.count)
        (index,) = indices
        at = f"{pointer.type.text} {pointer.ref}, {index.type.text} {index.ref}"
        return self._value(kind, f"getelementptr {source_etype.text}, {at}")

    def load(self, pointer: Value, typ: Type, align: int = 0) -> Value:
        return self._value(typ, f"load {typ.text}, ptr {pointer.ref}{f', align {align}' if align else ''}")

    def store(self, value: Value, pointer: Value, align: int = 0, nontemporal: str = "") -> None:
        """`nontemporal`: the name of a metadata node; the store is marked as one that passes by the caches."""
        marks = f"{f', align {align}' if align else ''}{f', !nontemporal {nontemporal}' if nontemporal else ''}"
        self._append(f"  store {value.type.text} {value.ref}, ptr {pointer.ref}{marks}")

    def load_atomic(self, pointer: Value, ordering: str, align: int, typ: Type) -> Value:
        return self._value(typ, f"load atomic {typ.text}, ptr {pointer.ref} {ordering}, align {align}")

    def atomic_rmw(self, operation: str, pointer: Value, value: Value, ordering: str) -> Value:
        """What lay at `pointer` before `operation` with `value`."""
        return self._value(value.type, f"atomicrmw {operation} ptr {pointer.ref}, {value} {ordering}")

    def cmpxchg(self, pointer: Value, expected: Value, value: Value, ordering: str, failordering: str) -> Value:
        """A structure: what lay at `pointer`, and whether that was `expected` and is `value` now."""
        pair = StructType(value.type, _I1)
        return self._value(pair, f"cmpxchg ptr {pointer.ref}, {expected}, {value} {ordering} {failordering}")

    # --- calls ---

    def call(self, function: Any, args: Sequence[Value], tail: bool = False, flags: str = "") -> Value:
        """Call a `Function`, or anything with its `function_type` and `ref`."""
        result = function.function_type.return_type
        given = ", ".join([f"{a.type.text} {a.ref}" for a in args])
        text = f"{'tail ' if tail else ''}call {flags}{' ' if flags else ''}{result.text} {function.ref}({given})"
        if result is not _VOID:
            return self._value(result, text)
        self._append(f"  {text}")
        return Value(_VOID, "")

    def asm(self, function_type: FunctionType, code: str, constraint: str, args: Sequence[Value]) -> Value:
        """Inline assembly without side effects."""
        result, given = function_type.return_type, ", ".join(map(str, args))
        return self._value(result, f'call {result.text} asm "{code}", "{constraint}"({given})')

    # --- control flow ---

    def phi(self, kind: Type) -> Phi:
        function = self._function
        function.count += 1
        value = Phi(kind, f"%.{function.count}")
        self._append(value)
        return value

    def branch(self, target: Block, metadata: str = "") -> None:
        """`metadata`: ", !KIND !NODE", as for the others."""
        self._end(f"  br label {target.ref}{metadata}")

    def cbranch(self, condition: Value, then: Block, otherwise: Block, metadata: str = "") -> None:
        self._end(f"  br {condition}, label {then.ref}, label {otherwise.ref}{metadata}")

    def switch(self, value: Value, default: Block) -> Switch:
        switch = Switch(value, default)
        self._end(switch)
        return switch

    def ret_void(self) -> None:
        self._end("  ret void")

    def ret(self, value: Value) -> None:
        self._end(f"  ret {value}")

    @contextmanager
    def if_then(self, condition: Value, likely: bool | None = None) -> Iterator[None]:
        """What is written inside is done where the condition holds."""
        then, after = self.append_basic_block("if"), self.append_basic_block("endif")
        weights = ""
        if likely is not None:
            node = self.module.node(f'!{{!"branch_weights", i32 {99 if likely else 1}, i32 {1 if likely else 99}}}')
            weights = f", !prof {node}"
        self.cbranch(condition, then, after, weights)
        self.position_at_end(then)
        yield
        if not self._block.terminated:
            self.branch(after)
        self.position_at_end(after)

    @contextmanager
    def if_else(self, condition: Value) -> Iterator[tuple[Any, Any]]:
        """Two context managers: what is written in the first is done where the condition holds, in the second elsewhere."""
        then, otherwise, after = (self.append_basic_block(name) for name in ("if", "else", "endif"))
        self.cbranch(condition, then, otherwise)
        yield self._part(then, after), self._part(otherwise, after)
        self.position_at_end(after)

    @contextmanager
    def _part(self, block: Block, after: Block) -> Iterator[None]:
        self.position_at_end(block)
        yield
        if not self._block.terminated:
            self.branch(after)
