"""How a language writes what every C-like language has, and which types, functions and memory it has.

The printer (`values`, `schedules`) knows no language; it queries a `Dialect`. The base class writes C as CUDA and HIP have it,
so a new dialect is a subclass that overrides what is different:

- `name`, `kinds` (compute types; one that is missing here is refused with a reason), `storage` (types that buffers may have as
  elements; narrower ones are then packed into words of 32 bits), `functions` (what is called for a primitive; one that
  is missing is written out in arithmetic, or refused);
- `group`, `local`, `barrier`, and the statements `let`, `variable`, `loop`, `shared`, `source`;
- for a device without some types (no 64-bit integers, say), an instance with fewer `kinds`: see `Wgsl.for_features`.

Then: a golden test per schedule (tests/codegen/clike), and a compile test where the compiler can be had.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping, Sequence
from typing import ClassVar

import numpy as np

from intarsia.codegen.clike.storage_types import KINDS, Kind, is_narrow, stored_bits
from intarsia.graph.dtypes import DType
from intarsia.lazy_dataclass import dataclass


@dataclass(frozen=True)
class Tile:
    """Threads of a group and elements of a thread, along rows and columns of a matrix product; terms of the sum at a time."""

    threads: tuple[int, int]
    each: tuple[int, int]
    depth: int

    @property
    def rows(self) -> int:
        return self.threads[0] * self.each[0]

    @property
    def columns(self) -> int:
        return self.threads[1] * self.each[1]


@dataclass(frozen=True)
class Rates:
    """What a choice between schedules of a convolution is made by, in multiply-adds of the device.

    Attributes:
        gather: in the time of finding the place of one element of a window.
        element: in the time of one element's way from or to memory.
        launch: in the time that a launch takes besides its work.
    """

    gather: float
    element: float
    launch: float


@dataclass(frozen=True)
class Tuning:
    """What schedules take for granted of a device; results do not depend on it, but for rounding.

    Attributes:
        large, small, flat: tiles of matrix products; `flat` for no more rows than it has.
        direct: matrices are read straight from memory where they can be, not through memory that a group shares.
        fill: groups that keep the device busy: products of fewer are made in parts, each of some of the terms; 0: never.
        scores_nbytes: attention scores of more bytes than this are never in memory as a whole.
        filtering: what decides whether 3 x 3 convolutions are computed by minimal filtering (Winograd); None: never.
    """

    large: Tile = Tile((8, 16), (8, 4), 16)
    small: Tile = Tile((8, 8), (2, 4), 16)
    flat: Tile = Tile((2, 32), (2, 4), 32)
    direct: bool = False
    fill: int = 128
    scores_nbytes: int = 1 << 25
    filtering: Rates | None = Rates(gather=16, element=20, launch=1e7)


GPU = Tuning()
PROCESSOR = Tuning(
    large=Tile((8, 8), (8, 4), 16), small=Tile((4, 8), (4, 4), 16), direct=True, fill=0,
    filtering=Rates(gather=64, element=12, launch=1e5),
)  # fmt: skip
"""For drivers that run kernels on the host's processor: barriers cost much, caches serve as shared memory."""


@dataclass(frozen=True)
class Buffer:
    """One operand or output of a kernel: `windows` bindings of elements, or of vectors of four of them."""

    name: str
    dtype: DType
    windows: int = 1
    vectors: bool = False


@dataclass(frozen=True)
class Limits:
    """What one kernel may use.

    Attributes:
        buffers: bound at once, those of sizes and of the status included.
        threads: of one group.
        shared_nbytes: memory that a group shares.
        groups: along one dimension of the grid.
        binding_nbytes: of one buffer as a kernel sees it; a larger value is bound as several windows.
        group_nbytes: memory that a group shares, at most, where its size is said when a kernel is started; 0: it cannot be.
        unit_nbytes: memory that all groups of a multiprocessor have together.
    """

    buffers: int = 8
    threads: int = 256
    shared_nbytes: int = 16384
    groups: int = 65535
    binding_nbytes: int = 1 << 62
    group_nbytes: int = 0
    unit_nbytes: int = 0

    @property
    def window_nbytes(self) -> int:
        """Of every window of a larger value but the last: the next one begins where a binding may."""
        return self.binding_nbytes // 256 * 256


class Dialect:
    """C for CUDA and HIP, but for the names of threads. Immutable; equal texts come from equal dialects."""

    name: ClassVar[str] = "C"
    kinds: Mapping[Kind, str] = {
        Kind.BOOL: "bool", Kind.I32: "int", Kind.U32: "unsigned int", Kind.I64: "long long", Kind.U64: "unsigned long long",
        Kind.F32: "float", Kind.F64: "double",
    }  # fmt: skip
    storage: Mapping[DType, str] = {
        DType.FLOAT: "float", DType.DOUBLE: "double", DType.INT32: "int", DType.UINT32: "unsigned int",
        DType.INT64: "long long",
        DType.UINT64: "unsigned long long", DType.INT16: "short", DType.UINT16: "unsigned short", DType.INT8: "signed char",
        DType.UINT8: "unsigned char", DType.BOOL: "unsigned char", DType.FLOAT16: "unsigned short",
        DType.BFLOAT16: "unsigned short", DType.FLOAT8E4M3FN: "unsigned char", DType.FLOAT8E4M3FNUZ: "unsigned char",
        DType.FLOAT8E5M2: "unsigned char", DType.FLOAT8E5M2FNUZ: "unsigned char",
        DType.FLOAT8E8M0: "unsigned char",
    }  # fmt: skip
    functions: Mapping[tuple[str, Kind], str] = {
        **{(op, Kind.F32): f"{name}f" for op, name in [
            *((n, n) for n in "floor ceil sqrt exp log sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh".split()),
            ("erf", "erf"), ("abs", "fabs"), ("round", "rint"), ("trunc", "trunc"), ("pow", "pow"), ("fmod", "fmod"),
            ("atan2", "atan2"),
        ]},
        **{(op, Kind.F64): name for op, name in [
            *((n, n) for n in "floor ceil sqrt exp log sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh".split()),
            ("erf", "erf"), ("abs", "fabs"), ("round", "rint"), ("trunc", "trunc"), ("pow", "pow"), ("fmod", "fmod"),
            ("atan2", "atan2"),
        ]},
    }  # fmt: skip
    group: ClassVar[tuple[str, str, str]] = ("(int)blockIdx.x", "(int)blockIdx.y", "(int)blockIdx.z")
    groups_across: ClassVar[str] = "(int)gridDim.x"
    local: ClassVar[str] = "(int)threadIdx.x"
    barrier: ClassVar[str] = "__syncthreads();"
    limits: Limits = Limits(buffers=64, threads=1024, shared_nbytes=49152, groups=65535)
    tuning: Tuning = GPU
    matrix_units: frozenset[DType] = frozenset()  # types of factors that `tensor` has products of
    typed_buffers: ClassVar[bool] = False  # a buffer that is read by vectors has them as its elements
    guards: ClassVar[bool] = False  # `select` evaluates what it takes and nothing else: a read may stand in it
    bytes_for_floats: bool = True  # products of dequantised tensors are faster as products of bytes
    mixes_signs: ClassVar[bool] = True  # `dot4` takes signed bytes on one side and unsigned ones on the other
    warp: ClassVar[int] = 0  # threads that run in step and exchange values by `exchanged`; 0: as many as the device likes
    emulates_doubles: bool = False  # by integers: what needs many operations is refused, as kernels would take long to compile
    sizes_are_arguments: ClassVar[bool] = False  # each size is an argument of its own: no kernel begins by waiting for memory

    # --- what is there ---

    def missing(self, dtype: DType) -> str:
        """Why elements of `dtype` cannot be computed with; "" where they can."""
        kind = KINDS.get(dtype)
        if kind is None:
            return f"{dtype.onnx_name} has no form in {self.name}"
        return "" if kind in self.kinds else f"{dtype.onnx_name} is not a type of {self.name} on this device"

    def packed(self, dtype: DType) -> int:
        """How many elements of a buffer share one word of 32 bits; 1 where each has its own place."""
        return 1 if dtype in self.storage or not is_narrow(dtype) else 32 // stored_bits(dtype)

    def window(self, dtype: DType) -> int:
        """How many places of a buffer (elements, or words where elements are packed) one binding has."""
        width = 4 if self.packed(dtype) > 1 else stored_bits(dtype) // 8
        return self.limits.window_nbytes // width

    def windows(self, dtype: DType, count: int) -> int:
        """How many bindings a value of so many elements needs."""
        places = -(-count // self.packed(dtype))
        return max(-(-places // self.window(dtype)), 1)

    # --- expressions ---

    def literal(self, value: float | int | bool, kind: Kind) -> str:
        if kind is Kind.BOOL:
            return "true" if value else "false"
        if kind.is_float:
            return self._float(float(value), kind)
        return self._integer(int(value), kind)

    def _float(self, value: float, kind: Kind) -> str:
        if kind is Kind.F32:
            value = rounded_to_float32(value)
        if math.isnan(value) or math.isinf(value):
            return self.special(value, kind)
        text = repr(value) if kind is Kind.F64 else _short_float32(value)
        return (text if "." in text or "e" in text else text + ".0") + ("f" if kind is Kind.F32 else "")

    def special(self, value: float, kind: Kind) -> str:
        """A NaN or an infinity."""
        if kind is Kind.F32:
            (bits,) = struct.unpack("<I", struct.pack("<f", value))
            return self.bitcast(f"0x{bits:08x}u", Kind.U32, kind)
        (bits,) = struct.unpack("<Q", struct.pack("<d", value))
        return self.bitcast(f"0x{bits:016x}{self._suffix[Kind.U64]}", Kind.U64, kind)

    _suffix: ClassVar[Mapping[Kind, str]] = {Kind.I32: "", Kind.U32: "u", Kind.I64: "ll", Kind.U64: "ull"}

    def _integer(self, value: int, kind: Kind) -> str:
        suffix = self._suffix[kind]
        if kind.is_signed and value == -(1 << (kind.bits - 1)):
            return f"(-{-value - 1}{suffix} - 1{suffix})"  # the number without its sign is too large
        if not kind.is_signed:
            value &= (1 << kind.bits) - 1
        return f"({value}{suffix})" if value < 0 else f"{value}{suffix}"

    def select(self, condition: str, yes: str, no: str) -> str:
        return f"({condition} ? {yes} : {no})"

    def convert(self, value: str, source: Kind, target: Kind) -> str:
        """A number of one kind as another, both other than BOOL: towards zero, modulo 2^bits between integers."""
        return f"({self.kinds[target]})({value})"

    def arithmetic(self, op: str, a: str, b: str, kind: Kind) -> str:
        """a op b of integers: + - * / % & | ^, and shifts by what `shift` gives."""
        return f"({a} {op} {b})"

    def comparison(self, op: str, a: str, b: str, kind: Kind) -> str:
        """a op b, of numbers: < > <= >= == !="""
        return f"({a} {op} {b})"

    def bitcast(self, value: str, source: Kind, target: Kind) -> str:
        """The same bits, of two kinds of one size."""
        named = {
            (Kind.F32, Kind.U32): "__float_as_uint", (Kind.F32, Kind.I32): "__float_as_int",
            (Kind.U32, Kind.F32): "__uint_as_float", (Kind.I32, Kind.F32): "__int_as_float",
            (Kind.F64, Kind.I64): "__double_as_longlong", (Kind.I64, Kind.F64): "__longlong_as_double",
        }  # fmt: skip
        if (source, target) in named:
            return f"{named[source, target]}({value})"
        if Kind.F64 in (source, target):  # by way of signed integers
            return self.bitcast(self.bitcast(value, source, Kind.I64), Kind.I64, target)
        return self.convert(value, source, target)

    def shift(self, amount: str, kind: Kind) -> str:
        """The right operand of a shift, from a number of `kind`."""
        return amount

    def decode_half(self, bits: str) -> str | None:
        """float32 of the lower 16 bits of a U32, where the language has that; None: by arithmetic."""
        return None

    def encode_half(self, value: str) -> str | None:
        """The bits, a U32, of a float32 rounded to float16, where the language has that; None: by arithmetic."""
        return None

    def extremum(self, op: str, a: str, b: str) -> str | None:
        """min or max of two float32, NaN where either is, where the language has that; None: by comparisons."""
        return None

    def exchanged(self, value: str, mask: str) -> str:
        """The value that the thread of the warp has whose number differs in the bit `mask`."""
        raise NotImplementedError

    def dot4(self, total: str, a: str, b: str, left_signed: bool, right_signed: bool) -> str:
        """The statement that adds four products of bytes, of two words (U32), to an I32. Signs are the same where the
        dialect does not mix them."""
        return f"{total} = dot4_{_sign(left_signed)}{_sign(right_signed)}({total}, {a}, {b});"

    def parameter(self, position: int) -> str:
        """A size of the kernel's, an I32; "" where it is an argument, `p<position>`."""
        return f"P[{position}]" if not self.sizes_are_arguments else ""

    # --- vectors of four ---

    vector_type: ClassVar[str] = "float4"  # of four float32
    vectors: ClassVar[Mapping[str, str]] = {
        "float": "float4", "int": "int4", "unsigned int": "uint4", "short": "short4", "unsigned short": "ushort4",
        "signed char": "char4", "unsigned char": "uchar4",
    }  # fmt: skip
    """By types of elements in memory."""

    def vector_of(self, dtype: DType) -> str:
        """The type of four neighbours in memory; "" where there is none."""
        return self.vectors.get(self.storage.get(dtype, ""), "")

    def vector(self, parts: Sequence[str], dtype: DType = DType.FLOAT) -> str:
        return f"make_{self.vector_of(dtype)}({', '.join(parts)})"

    def let_vector(self, name: str, value: str, kind: str = "") -> str:
        return f"const {kind or self.vector_type} {name} = {value};"

    def variable_vector(self, name: str, value: str) -> str:
        return f"{self.vector_type} {name} = {value};"

    def add_scaled(self, total: str, factor: str, vector: str) -> str:
        """total += factor * vector"""
        return " ".join(f"{total}.{c} += {factor} * {vector}.{c};" for c in "xyzw")

    def scale_vector(self, total: str, factor: str) -> str:
        """total *= factor"""
        return " ".join(f"{total}.{c} *= {factor};" for c in "xyzw")

    def read_vector(self, buffer: str, at: str, dtype: DType = DType.FLOAT) -> str:
        """Four elements from place `at`, a multiple of 4, of a buffer on."""
        return f"((const {self.vector_of(dtype)}*){buffer})[{at} >> 2]"

    def read_word(self, buffer: str, at: str) -> str:
        """A word (U32) of bytes that are not packed in words, from place `at`, a multiple of 4, on."""
        return f"((const unsigned int*){buffer})[{at} >> 2]"

    def write_vector(self, buffer: str, at: str, parts: Sequence[str], dtype: DType) -> str:
        """The statement that makes vector number `at` of a buffer one of these elements, as they are stored."""
        return f"(({self.vector_of(dtype)}*){buffer})[{at}] = {self.vector(parts, dtype)};"

    def part(self, array: str, at: str) -> str:
        """Element number `at` of an array of vectors that a group shares."""
        return f"((float*){array})[{at}]"

    # --- statements ---

    def let(self, name: str, kind: Kind, value: str) -> str:
        return f"const {self.kinds[kind]} {name} = {value};"

    def variable(self, name: str, kind: Kind, value: str) -> str:
        return f"{self.kinds[kind]} {name} = {value};"

    def loop(self, name: str, start: str, stop: str, step: str = "1") -> str:
        """The head of a loop whose variable is an I32."""
        return f"for (int {name} = {start}; {name} < {stop}; {name} += {step}) {{"

    # --- memory ---

    def element(self, dtype: DType) -> str:
        """The type of a buffer's elements."""
        return self.storage.get(dtype, self.kinds[Kind.U32])

    def held(self, kind: Kind, width: int) -> str:
        """The type of what an array holds: values, or vectors of four."""
        return self.kinds[kind] if width == 1 else self.vector_type

    def preamble(self, kernel: KernelParts) -> list[str]:
        """Lines before the kernel."""
        return []

    def source(self, kernel: KernelParts) -> str:
        """The whole text, with one entry point "main_kernel"."""
        arguments = [f"const {self.element(b.dtype)}* __restrict__ {b.name}" for b in kernel.operands]
        arguments += [f"{self.element(b.dtype)}* __restrict__ {b.name}" for b in kernel.outputs]
        arguments += [f"const int p{i}" for i in range(kernel.parameters)]
        arguments += ["unsigned int* __restrict__ S"] if kernel.checked else []
        lines = self.preamble(kernel)
        lines += [f'extern "C" __global__ void __launch_bounds__({kernel.threads}) main_kernel({", ".join(arguments)}) {{']
        lines += self.shared(kernel)
        return "\n".join([*lines, *("  " + line for line in kernel.body), "}"]) + "\n"

    def shared(self, kernel: KernelParts) -> list[str]:
        """The memory that a group shares; what is more than the text may declare comes in one piece."""
        if not kernel.dynamic_nbytes(self.limits):
            return [f"  __shared__ {self.held(k, w)} {n}[{c}];" for n, k, c, w in kernel.shared]
        lines, at = ["  extern __shared__ float4 dynamic_memory[];"], 0
        for name, kind, count, width in kernel.shared:
            held = self.held(kind, width)
            lines.append(f"  {held}* const {name} = ({held}*)(dynamic_memory + {at});")
            at += vectors_of(kind, count, width)
        return lines


def vectors_of(kind: Kind, count: int, width: int) -> int:
    """Vectors of 16 bytes that an array in shared memory takes."""
    return -(-count * width * kind.bits // 128)


@dataclass(frozen=True)
class KernelParts:
    """What `Dialect.source` puts together.

    Attributes:
        operands, outputs: in the order in which they are bound.
        parameters: how many sizes follow, as one buffer or as arguments.
        checked: whether the status word follows.
        shared: (name, kind, count, width) of arrays that a group shares.
        threads: of one group, along x.
        body: lines.
    """

    operands: Sequence[Buffer]
    outputs: Sequence[Buffer]
    parameters: int
    checked: bool
    shared: Sequence[tuple[str, Kind, int, int]]
    threads: int
    body: Sequence[str]

    def dynamic_nbytes(self, limits: Limits) -> int:
        """Bytes of shared memory that are said when the kernel is started; 0: its text declares them."""
        nbytes = 16 * sum(vectors_of(kind, count, width) for _, kind, count, width in self.shared)
        return nbytes if limits.group_nbytes and nbytes > limits.shared_nbytes else 0


def _sign(signed: bool) -> str:
    return "s8" if signed else "u8"


def rounded_to_float32(value: float) -> float:
    try:
        return float(struct.unpack("<f", struct.pack("<f", value))[0])
    except OverflowError:
        return math.copysign(math.inf, value)


def _short_float32(value: float) -> str:
    """The shortest decimal that is this float32."""
    return str(np.float32(value))
