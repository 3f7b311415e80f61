from __future__ import annotations

import ctypes
import math
import re
import struct

import numpy as np
import pytest

from intarsia.codegen.llvm import ir_builder

llvmlite_ir = pytest.importorskip("llvmlite.ir", reason="LLVM reads what is written here")

I32, I64, F32, F64 = ir_builder.IntType(32), ir_builder.IntType(64), ir_builder.FloatType(), ir_builder.DoubleType()
PTR = ir_builder.PointerType()


def function(
    *arguments: ir_builder.Type, module: ir_builder.Module | None = None
) -> tuple[ir_builder.Module, ir_builder.Function, ir_builder.IRBuilder]:
    module = module or ir_builder.Module()
    made = ir_builder.Function(module, ir_builder.FunctionType(ir_builder.VoidType(), arguments), "f")
    return module, made, ir_builder.IRBuilder(made.append_basic_block("entry"))


def read(module: ir_builder.Module) -> str:
    """The module as LLVM prints it after reading and verifying it."""
    from llvmlite import binding

    context = binding.create_context()
    parsed = binding.parse_assembly(str(module), context)
    parsed.verify()
    return str(parsed)


def test_types_are_one_object_each() -> None:
    assert ir_builder.IntType(32) is I32
    assert ir_builder.VectorType(F32, 4) is ir_builder.VectorType(F32, 4)
    assert ir_builder.VectorType(F32, 4) is not ir_builder.VectorType(F32, 8)
    assert ir_builder.VectorType(I32, 4) is not ir_builder.ArrayType(I32, 4)
    assert {ir_builder.VectorType(I64, 2): 1}[ir_builder.VectorType(I64, 2)] == 1
    assert str(ir_builder.StructType(I64, ir_builder.IntType(1))) == "{i64, i1}"


@pytest.mark.parametrize("value", [0.0, -0.0, 1.0, 0.1, -1e-40, 3e38, math.inf, -math.inf])
@pytest.mark.parametrize("kind", [ir_builder.HalfType(), F32, F64])
def test_floats_are_what_llvmlite_writes(kind: ir_builder.Type, value: float) -> None:
    theirs = {"half": llvmlite_ir.HalfType, "float": llvmlite_ir.FloatType, "double": llvmlite_ir.DoubleType}[kind.text]()
    if kind is ir_builder.HalfType() and abs(value) == 3e38:
        assert ir_builder.Constant(kind, value).ref == ir_builder.Constant(kind, math.inf).ref  # llvmlite refuses it
    else:
        expected = int(llvmlite_ir.Constant(theirs, value).get_reference(), 16)
        assert int(ir_builder.Constant(kind, value).ref, 16) == expected


def test_nan_is_a_nan() -> None:
    (number,) = struct.unpack(">d", bytes.fromhex(ir_builder.Constant(F32, math.nan).ref[2:]))
    assert math.isnan(number)


def test_constants_of_many_elements() -> None:
    assert str(ir_builder.Constant(ir_builder.VectorType(I32, 3), [0, 1, 2])) == "<3 x i32> <i32 0, i32 1, i32 2>"
    assert str(ir_builder.Constant(ir_builder.VectorType(I32, 3), [7] * 3)) == "<3 x i32> splat (i32 7)"
    assert str(ir_builder.Constant(ir_builder.VectorType(F64, 2), [0.0, -0.0])).count("0x8000000000000000") == 1
    assert str(ir_builder.Constant(ir_builder.VectorType(I32, 2), [I32(5), I32(6)])) == "<2 x i32> <i32 5, i32 6>"
    assert ir_builder.Constant(ir_builder.ArrayType(ir_builder.IntType(8), 3), b'a"\0').ref == 'c"\\61\\22\\00"'
    with pytest.raises(TypeError, match="a constant of type <3 x i32> needs 3 elements; got 2"):
        ir_builder.Constant(ir_builder.VectorType(I32, 3), [1, 2])
    with pytest.raises(TypeError, match="there is no constant 1 of type ptr"):
        PTR(1)


def test_operands_of_two_types_are_an_error_where_they_are_written() -> None:
    _, made, b = function(I32, I64, ir_builder.IntType(1))
    x, y, condition = made.args
    with pytest.raises(TypeError, match="add of i32 and i64"):
        b.add(x, y)
    with pytest.raises(TypeError, match="comparing i32 and i64"):
        b.icmp_signed("<", x, y)
    with pytest.raises(TypeError, match="select of i32 and i64"):
        b.select(condition, x, y)


def test_a_block_ends_once_and_what_comes_later_stands_before_its_end() -> None:
    module, _, b = function()
    later = b.append_basic_block("later")
    b.branch(later)
    with pytest.raises(ValueError, match="block 'entry' has ended"):
        b.ret_void()
    b.position_at_end(later)
    with b.goto_entry_block():
        memory = b.alloca(I64, align=64, name="kept")
    b.store(I64(1), memory)
    b.ret_void()
    assert re.search(r"%kept\.1 = alloca i64, align 64\s+br label %later\s+later:", read(module))


def test_branches_loops_and_switches() -> None:
    module, made, b = function(I64, PTR)
    n, place = made.args
    with b.if_then(b.icmp_unsigned("==", n, I64(0)), likely=False):
        b.ret_void()
    with b.if_else(b.icmp_signed("<", n, I64(5))) as (then, otherwise):
        with then:
            b.store(n, place)
        with otherwise:
            b.store(I64(5), place)
    before, body, after = b.block, b.append_basic_block("loop"), b.append_basic_block("after")
    b.branch(body)
    b.position_at_end(body)
    index = b.phi(I64)
    index.add_incoming(I64(0), before)
    following = b.add(index, I64(1), flags=("nuw",))
    index.add_incoming(following, body)
    properties = ('!{!"llvm.loop.unroll.disable"}',)
    assert module.loop(*properties) == module.loop(*properties)
    b.cbranch(b.icmp_unsigned("<", following, n), body, after, f", !llvm.loop {module.loop(*properties)}")
    b.position_at_end(after)
    done = b.append_basic_block("done")
    b.switch(n, done).add_case(3, done)
    b.position_at_end(done)
    b.ret_void()
    text = read(module)
    for line in (
        "br i1 %.1, label %if, label %endif, !prof !0", '!0 = !{!"branch_weights", i32 1, i32 99}',
        "phi i64 [ 0, %endif.1 ], [ %.4, %loop ]", "add nuw i64 %.3, 1", "!1 = distinct !{!1, !2}",
        '!2 = !{!"llvm.loop.unroll.disable"}', "switch i64 %a0, label %done [\n    i64 3, label %done\n  ]",
    ):  # fmt: skip
        assert line in text


def test_every_instruction_is_one_that_llvm_reads() -> None:
    vector = ir_builder.VectorType(F32, 4)
    module, made, b = function(vector, I64, PTR, F32, ir_builder.VectorType(I64, 4))
    v, n, p, x, indices = made.args
    byte = ir_builder.IntType(8)
    for operation in ("add", "sub", "mul", "sdiv", "udiv", "srem", "urem", "and_", "or_", "xor", "shl", "lshr", "ashr"):
        getattr(b, operation)(n, n)
    for operation in ("fadd", "fsub", "fmul", "fdiv", "frem"):
        getattr(b, operation)(v, v, flags=("contract", "nsz"))
    assert b.neg(indices).type is indices.type
    assert b.not_(indices).type is indices.type
    b.fneg(x)
    b.fma(v, v, v)
    b.cttz(n, ir_builder.IntType(1)(1))
    assert b.zext(b.trunc(n, byte), I64).type is I64
    assert b.bitcast(n, I64) is n
    b.sext(b.trunc(n, I32), I64)
    b.fptrunc(b.fpext(x, F64), F32)
    b.sitofp(b.fptosi(x, I64), F32)
    b.uitofp(b.fptoui(x, I64), F32)
    b.inttoptr(b.ptrtoint(p, I64), PTR)
    assert b.fcmp_ordered("<", v, v).type is ir_builder.VectorType(ir_builder.IntType(1), 4)
    b.fcmp_unordered("uno", x, x)
    b.fcmp_ordered("ord", x, x, flags=("nnan",))
    b.select(b.icmp_signed(">=", n, n), x, x, flags=("nsz",))
    assert b.extract_element(v, I32(1)).type is F32
    b.shuffle_vector(
        b.insert_element(v, x, I32(0)),
        ir_builder.Literal(vector, "poison"),
        ir_builder.Constant(ir_builder.VectorType(I32, 2), [0, 5]),
    )
    assert b.gep(p, [indices], source_etype=F32).type is ir_builder.VectorType(PTR, 4)
    b.load(b.gep(p, [n], source_etype=byte), F32, align=4)
    b.load_atomic(p, "monotonic", 8, typ=I64)
    b.atomic_rmw("add", p, n, "monotonic")
    assert b.extract_value(b.cmpxchg(p, n, n, "monotonic", "monotonic"), 1).type is ir_builder.IntType(1)
    b.asm(ir_builder.FunctionType(PTR, [PTR]), "", "=r,0", [p])
    table = ir_builder.GlobalVariable(module, ir_builder.ArrayType(I64, 2), "table")
    table.global_constant, table.linkage, table.align = True, "internal", 16
    table.initializer = ir_builder.Constant(ir_builder.ArrayType(I64, 2), [1, 2])
    b.load(table, I64)
    other = ir_builder.Function(module, ir_builder.FunctionType(I64, [PTR]), "other")
    other.attributes.add("nounwind")
    assert b.call(other, [p], tail=True).type is I64
    b.ret_void()
    text = read(module)
    assert "@table = internal constant [2 x i64] [i64 1, i64 2], align 16" in text
    assert text.count("declare") == 3


def test_a_printed_module_computes() -> None:
    """0 + 1 + ... + (n - 1), by LLVM in this process."""
    module, made, b = function(PTR, I64)
    place, n = made.args
    body, after = b.append_basic_block("loop"), b.append_basic_block("after")
    b.branch(body)
    entry = b.block
    b.position_at_end(body)
    i, total = b.phi(I64), b.phi(I64)
    for value, first, following in ((i, 0, b.add(i, I64(1))), (total, 0, b.add(total, i))):
        value.add_incoming(I64(first), entry)
        value.add_incoming(following, body)
    b.cbranch(b.icmp_unsigned("<", b.add(i, I64(1)), n), body, after)
    b.position_at_end(after)
    b.store(b.add(total, b.sub(n, I64(1))), place)
    b.ret_void()
    from intarsia.codegen.llvm.jit import get_engine, kernel_text

    text = module.printed().replace('@"f"', '@"__SYMBOL__"').replace("i64 %a1)", "i64 %a1, i64 %unused)")
    kernel = kernel_text("sum", text)
    out = np.zeros(1, np.int64)
    address = get_engine().load([kernel])[kernel.symbol]
    ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)(address)(out.ctypes.data, 10, 0)
    assert out[0] == sum(range(10))
    assert not module.globals
