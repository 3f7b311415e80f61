"""Operations of AMX's tile registers, as instructions, or as plain code with the same results for CPUs that have none.

Eight tiles of 16 rows of 64 bytes. A product adds to tile `c` [16 rows][16 columns of 32 bits] what tile `a` [16 rows][16 words
along k] and tile `b` [16 words along k][16 columns] give, a word being two bfloat16 or four bytes (Intel SDM, volume 2,
TDPBF16PS and TDPBSSD/TDPBUSD; volume 1, chapter 18, "Programming with Intel AMX").

The plain code keeps the registers in `STATE_NBYTES` bytes of memory: 8 KiB of tiles, then the configuration. It takes rows and
their bytes from the configuration as the instructions do, so it computes the same for any that they accept.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from intarsia.codegen.builder.kernel_body import Body, Module, Value
from intarsia.codegen.llvm import ir_builder

TILES, ROWS, ROW_NBYTES = 8, 16, 64
TILE_NBYTES = ROWS * ROW_NBYTES
WORDS = ROW_NBYTES // 4  # 32-bit words of a row
STATE_NBYTES = TILES * TILE_NBYTES + 64
BFLOAT16, SIGNED, UNSIGNED = "tdpbf16ps", "tdpbssd", "tdpbusd"  # products; of bytes by a's signedness, b's are signed
WHOLE = ((ROWS, ROW_NBYTES),) * TILES

_I8, _I32, _I64, _F32 = ir_builder.IntType(8), ir_builder.IntType(32), ir_builder.IntType(64), ir_builder.FloatType()
_POINTER, _VOID = ir_builder.PointerType(), ir_builder.VoidType()
_CONFIGURATION = TILES * TILE_NBYTES  # where the state has it
_COLSB, _ROWS = 16, 48  # places in the configuration


def configuration(shapes: Sequence[tuple[int, int]] = WHOLE) -> bytes:
    """What LDTILECFG reads, for (rows, bytes of a row) of each tile: palette 1, no row to start at (SDM, LDTILECFG).

    Raises ValueError for what the instruction would refuse.
    """
    if len(shapes) > TILES or any(not (0 < r <= ROWS and 0 < n <= ROW_NBYTES) and (r, n) != (0, 0) for r, n in shapes):
        raise ValueError(f"palette 1 has {TILES} tiles of 1 to {ROWS} rows of 1 to {ROW_NBYTES} bytes; got {tuple(shapes)}")
    block = bytearray(64)
    block[0] = 1
    for tile, (rows, nbytes) in enumerate(shapes):
        block[_COLSB + 2 * tile : _COLSB + 2 * tile + 2] = nbytes.to_bytes(2, "little")
        block[_ROWS + tile] = rows
    return bytes(block)


class TileUnit:
    """Writes tile operations into a function. `state`: the address of the memory of the plain code; None: instructions."""

    def __init__(self, body: Body, state: Value | None = None) -> None:
        self.body, self.state = body, state

    def configure(self, block: bytes) -> None:
        """Sets the tiles' sizes and clears them."""
        body = self.body
        place = body.alloca(64)
        for at in range(0, 64, 8):
            body.b.store(body.i(int.from_bytes(block[at : at + 8], "little")), body.at(place, at), align=8)
        if self.state is None:
            self._instruction("ldtilecfg", [place])
        else:
            body.fill_zero(self.state, body.i(_CONFIGURATION))
            body.copy(place, body.at(self.state, _CONFIGURATION), body.i(64))

    def release(self) -> None:
        """Back to the initial state, which costs nothing when the system saves a thread's registers."""
        if self.state is None:
            self._instruction("tilerelease", [])
        else:
            self.body.fill_zero(self.state, self.body.i(STATE_NBYTES))

    def zero(self, tile: int) -> None:
        if self.state is None:
            self._instruction("tilezero", [ir_builder.Constant(_I8, tile)])
        else:
            self.body.fill_zero(self._tile(tile), self.body.i(TILE_NBYTES))

    def load(self, tile: int, place: Value, stride: Value | int) -> None:
        """Rows from memory, `stride` bytes apart."""
        if self.state is None:
            self._instruction("tileloadd64", [ir_builder.Constant(_I8, tile), place, self.body.i(stride)])
        else:
            self._plain("tile_load", ("p", "i", "p", "i"), _write_load, [self.body.i(tile), place, self.body.i(stride)])

    def store(self, tile: int, place: Value, stride: Value | int) -> None:
        """Rows to memory, `stride` bytes apart."""
        if self.state is None:
            self._instruction("tilestored64", [ir_builder.Constant(_I8, tile), place, self.body.i(stride)])
        else:
            self._plain("tile_store", ("p", "i", "p", "i"), _write_store, [self.body.i(tile), place, self.body.i(stride)])

    def multiply(self, kind: str, c: int, a: int, b: int) -> None:
        """c += a b, by `kind`: BFLOAT16, SIGNED or UNSIGNED."""
        if self.state is None:
            self._instruction(kind, [ir_builder.Constant(_I8, tile) for tile in (c, a, b)])
        else:
            write = _write_pairs if kind == BFLOAT16 else _write_signed if kind == SIGNED else _write_unsigned
            self._plain(kind, ("p", "i", "i", "i"), write, [self.body.i(tile) for tile in (c, a, b)])

    def _instruction(self, name: str, arguments: list[Value]) -> None:
        function = self.body.intrinsic(f"llvm.x86.{name}", _VOID, [a.type for a in arguments])
        self.body.b.call(function, arguments)

    def _plain(self, name: str, parameters: Sequence[str], write: Callable[[Body], None], arguments: list[Value]) -> None:
        module: Module = self.body.module
        function = module.ir.globals.get(name)
        if function is None:
            inner = module.function(name, parameters)
            write(inner)
            inner.b.ret_void()
            function = inner.function
        assert self.state is not None
        self.body.b.call(function, [self.state, *arguments])

    def _tile(self, tile: int) -> Value:
        return self.body.at(self.state, tile * TILE_NBYTES)


# --- plain code ---------------------------------------------------------------------------------------------------


class _Registers:
    """A tile of the state, and what the configuration says of it."""

    def __init__(self, body: Body, state: Value, tile: Value) -> None:
        self.body = body
        self.base = body.at(state, body.mul(tile, TILE_NBYTES))
        of = body.at(state, _CONFIGURATION)
        rows = body.b.load(body.at(of, _ROWS, tile), typ=_I8, align=1)
        nbytes = body.b.load(body.at(of, _COLSB, body.mul(tile, 2)), typ=ir_builder.IntType(16), align=2)
        self.rows, self.nbytes = body.b.zext(rows, _I64), body.b.zext(nbytes, _I64)
        self.words = body.div(self.nbytes, 4)

    def row(self, index: Value) -> Value:
        return self.body.at(self.base, self.body.mul(index, ROW_NBYTES))

    def clear_behind(self, row: Value) -> None:
        """write_row_and_zero: the bytes of a row that the tile does not have."""
        self.body.fill_zero(self.body.at(self.row(row), self.nbytes), self.body.sub(ROW_NBYTES, self.nbytes))

    def clear_below(self) -> None:
        """zero_upper_rows."""
        self.body.fill_zero(self.row(self.rows), self.body.mul(self.body.sub(ROWS, self.rows), ROW_NBYTES))


def _write_load(body: Body) -> None:
    state, tile, place, stride = body.args
    registers = _Registers(body, state, tile)
    with body.loop(0, registers.rows) as m:
        body.copy(body.at(place, body.mul(m, stride)), registers.row(m), registers.nbytes)
        registers.clear_behind(m)
    registers.clear_below()


def _write_store(body: Body) -> None:
    state, tile, place, stride = body.args
    registers = _Registers(body, state, tile)
    with body.loop(0, registers.rows) as m:
        body.copy(registers.row(m), body.at(place, body.mul(m, stride)), registers.nbytes)


def _write_pairs(body: Body) -> None:
    """TDPBF16PS: products of even and of odd elements are summed separately, each from 0, added at the end, and then to c.

    Every step rounds to the nearest even; numbers below the smallest normal one are zeros, before and after it.
    """
    state, c, a, b = body.args
    sums, left, right = (_Registers(body, state, t) for t in (c, a, b))
    floats = ir_builder.VectorType(_F32, WORDS)
    zero = ir_builder.Literal(floats, "zeroinitializer")
    with body.loop(0, sums.rows) as m:
        parts: list[Value] = [zero, zero]
        with body.carry(0, left.words, 1, parts) as k:
            word = body.splat(body.b.load(body.at(left.row(m), body.mul(k, 4)), typ=_I32, align=4), WORDS)
            column = body.b.load(right.row(k), typ=ir_builder.VectorType(_I32, WORDS), align=4)
            for half in range(2):
                x, y = _half(body, word, half), _half(body, column, half)
                parts[half] = _flushed(body, body.b.fma(x, y, parts[half]))
        product = _flushed(body, body.b.fadd(*parts))
        place = sums.row(m)
        old = _flushed(body, body.b.load(place, typ=floats, align=4))
        body.b.store(_flushed(body, body.b.fadd(old, product)), place, align=4)
        sums.clear_behind(m)
    sums.clear_below()


def _half(body: Body, words: Value, half: int) -> Value:
    """Element `half` of each pair of bfloat16, as float32."""
    b, kind = body.b, words.type
    if half:
        wide = b.and_(words, ir_builder.Constant(kind, [-(1 << 16)] * WORDS))
    else:
        wide = b.shl(words, ir_builder.Constant(kind, [16] * WORDS))
    return _flushed(body, b.bitcast(wide, ir_builder.VectorType(_F32, WORDS)))


def _flushed(body: Body, x: Value) -> Value:
    """Numbers below 2^-126 as zeros of their signs."""
    b, kind = body.b, ir_builder.VectorType(_I32, WORDS)
    bits = b.bitcast(x, kind)
    small = b.icmp_unsigned(
        "<", b.and_(bits, ir_builder.Constant(kind, [0x7FFFFFFF] * WORDS)), ir_builder.Constant(kind, [0x00800000] * WORDS)
    )
    sign = b.and_(bits, ir_builder.Constant(kind, [-(1 << 31)] * WORDS))
    return b.bitcast(b.select(small, sign, bits), x.type)


def _write_signed(body: Body) -> None:
    _write_bytes(body, signed=True)


def _write_unsigned(body: Body) -> None:
    _write_bytes(body, signed=False)


def _write_bytes(body: Body, signed: bool) -> None:
    """TDPBSSD and TDPBUSD: sums modulo 2^32."""
    state, c, a, b = body.args
    sums, left, right = (_Registers(body, state, t) for t in (c, a, b))
    kind = ir_builder.VectorType(_I32, WORDS)
    with body.loop(0, sums.rows) as m:
        place = sums.row(m)
        state_ = [body.b.load(place, typ=kind, align=4)]
        with body.carry(0, left.words, 1, state_) as k:
            word = body.splat(body.b.load(body.at(left.row(m), body.mul(k, 4)), typ=_I32, align=4), WORDS)
            column = body.b.load(right.row(k), typ=kind, align=4)
            for byte in range(4):
                product = body.b.mul(_byte(body, word, byte, signed), _byte(body, column, byte, True))
                state_[0] = body.b.add(state_[0], product)
        body.b.store(state_[0], place, align=4)
        sums.clear_behind(m)
    sums.clear_below()


def _byte(body: Body, words: Value, byte: int, signed: bool) -> Value:
    b, kind = body.b, words.type
    top = b.shl(words, ir_builder.Constant(kind, [24 - 8 * byte] * WORDS))
    return (b.ashr if signed else b.lshr)(top, ir_builder.Constant(kind, [24] * WORDS))
