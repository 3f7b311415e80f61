"""AMX's operations: their plain code against NumPy after the manual's pseudo-code, and the machine code of the real ones."""

from __future__ import annotations

import re

import ml_dtypes
import numpy as np
import pytest

pytest.importorskip("llvmlite", reason="the templates are compiled with llvmlite")

import template_kernels as t

from intarsia.codegen.builder.amx import BFLOAT16, SIGNED, STATE_NBYTES, UNSIGNED, TileUnit, configuration
from intarsia.codegen.builder.kernel_body import Module
from intarsia.codegen.llvm import compile_ir
from intarsia.codegen.llvm.jit import emit_assembly
from intarsia.codegen.llvm.target import Target
from intarsia.graph.dtypes import DType
from intarsia.providers.cpu.kernels.common.tiles import Tile
from intarsia.providers.cpu.kernels.common.units import TILES, VECTORS
from intarsia.providers.cpu.kernels.matmul.gemm_arguments import GemmSpec
from intarsia.providers.cpu.kernels.matmul.vnni_kernel import word_micro_text, word_text, word_tile
from intarsia.runtime import roofline

_AVX512 = "+avx2,+fma,+f16c,+avx512f,+avx512vl,+avx512bw,+avx512dq,+avx512vnni,+avx512bf16"
_INTEL = ("sapphirerapids", "graniterapids", "diamondrapids")


def intel(cpu: str) -> Target:
    return Target.create("x86_64-unknown-linux-gnu", cpu, f"{_AVX512},+amx-tile,+amx-bf16,+amx-int8")


# --- the configuration, and the plain code --------------------------------------------------------------------------


def test_configuration_block() -> None:
    """SDM, volume 2, LDTILECFG: byte 0 the palette, 1 the first row, 16 to 31 bytes of rows in 16 bits, 48 to 55 rows."""
    block = configuration([(16, 64), (3, 12), (0, 0), (1, 4)])
    assert len(block) == 64 and block[0] == 1 and block[1] == 0
    assert np.frombuffer(block, "<u2", 8, 16).tolist() == [64, 12, 0, 4, 0, 0, 0, 0]
    assert list(block[48:56]) == [16, 3, 0, 1, 0, 0, 0, 0]
    assert not any(block[2:16]) and not any(block[32:48]) and not any(block[56:])
    whole = configuration()
    assert np.frombuffer(whole, "<u2", 8, 16).tolist() == [64] * 8 and list(whole[48:56]) == [16] * 8


@pytest.mark.parametrize("shapes", [[(17, 64)], [(16, 65)], [(0, 4)], [(4, 0)], [(16, 64)] * 9])
def test_configurations_that_the_cpu_would_refuse(shapes: list[tuple[int, int]]) -> None:
    with pytest.raises(ValueError, match="palette 1 has 8 tiles of 1 to 16 rows of 1 to 64 bytes; got"):
        configuration(shapes)


def multiplied(kind: str, shapes: list[tuple[int, int]], c: np.ndarray, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """What the plain code leaves of tile 2 (of `shapes`), stored in rows of 80 bytes after c += a b."""
    module = Module(t.host())
    body = module.kernel()
    places = [body.load_pointer(body.args[0], i) for i in range(5)]
    unit = TileUnit(body, places[4])
    unit.configure(configuration(shapes))
    for tile, place in ((2, 0), (5, 1), (7, 2)):
        unit.load(tile, places[place], 80)
    unit.multiply(kind, 2, 5, 7)
    unit.store(2, places[3], 80)
    body.b.ret_void()
    state, out = np.full(STATE_NBYTES, 0xAB, np.uint8), np.full((16, 20), 77, np.uint32)
    blocks = [np.ascontiguousarray(x).view(np.uint32) for x in (c, a, b)]
    t.run(module.text("tiles"), [x.ctypes.data for x in (*blocks, out, state)])
    registers = state[: 8 * 1024].reshape(8, 16, 64)
    for tile, (rows, nbytes) in enumerate(shapes):
        assert not registers[tile, rows:].any() and not registers[tile, :, nbytes:].any(), (
            "bytes that a tile does not have are 0"
        )
    return out


def flushed(x: np.ndarray) -> np.ndarray:
    return np.where(np.abs(x) < np.float32(2.0**-126), np.copysign(np.float32(0), x), x).astype(np.float32)


@pytest.mark.parametrize("scale", [0, -62, -124])
@pytest.mark.parametrize(("rows", "columns", "words"), [(16, 16, 16), (5, 3, 7), (1, 16, 2)])
def test_plain_products_of_bfloat16(rows: int, columns: int, words: int, scale: int) -> None:
    """TDPBF16PS, bit for bit: sums of even and odd elements apart, each step rounded, small numbers as zeros."""
    rng = np.random.default_rng(rows + words)
    low, high = scale // 2, scale - scale // 2  # numbers whose products are below, at and above the smallest normal one
    a = (rng.standard_normal((16, 40)) * 2.0**low).astype(ml_dtypes.bfloat16)
    b = (rng.standard_normal((16, 40)) * 2.0**high).astype(ml_dtypes.bfloat16)
    c = (rng.standard_normal((16, 20)) * 2.0**scale).astype(np.float32)
    shapes = [(1, 4), (1, 4), (rows, 4 * columns), (0, 0), (0, 0), (rows, 4 * words), (0, 0), (words, 4 * columns)]
    found = multiplied(BFLOAT16, shapes, c, a, b).view(np.float32)
    left, right = flushed(a.astype(np.float32)), flushed(b.astype(np.float32))
    parts = np.zeros((2, rows, columns), np.float32)
    for k in range(words):
        for half in range(2):  # a product of two bfloat16 and its sum with a float32 of their size are exact in float64
            exact = left[:rows, None, 2 * k + half].astype(np.float64) * right[k, half : 2 * columns : 2]
            parts[half] = flushed((parts[half] + exact).astype(np.float32))
    sums = flushed(flushed(c[:rows, :columns]) + flushed(parts[0] + parts[1]))
    np.testing.assert_array_equal(found[:rows, :columns].view(np.uint32), sums.view(np.uint32))
    untouched = found.view(np.uint32).copy()
    untouched[:rows, :columns] = 77
    assert (untouched == 77).all(), "written beyond the tile"


@pytest.mark.parametrize("kind", [SIGNED, UNSIGNED])
@pytest.mark.parametrize(("rows", "columns", "words"), [(16, 16, 16), (5, 3, 7)])
def test_plain_products_of_bytes(rows: int, columns: int, words: int, kind: str) -> None:
    rng = np.random.default_rng(words)
    a, b = rng.integers(0, 256, (16, 80)).astype(np.uint8), rng.integers(0, 256, (16, 80)).astype(np.uint8)
    c = np.full((16, 20), 2**31 - 1000, np.uint32)  # sums wrap around
    shapes = [(0, 0), (0, 0), (rows, 4 * columns), (0, 0), (0, 0), (rows, 4 * words), (0, 0), (words, 4 * columns)]
    found = multiplied(kind, shapes, c, a, b)
    left = (a.view(np.int8) if kind == SIGNED else a)[:rows, : 4 * words].astype(np.int64).reshape(rows, words, 4)
    right = b.view(np.int8)[:words, : 4 * columns].astype(np.int64).reshape(words, columns, 4)
    sums = c[:rows, :columns].astype(np.int64) + np.einsum("mkj,knj->mn", left, right)
    np.testing.assert_array_equal(found[:rows, :columns], (sums % 2**32).astype(np.uint32))


# --- machine code ---------------------------------------------------------------------------------------------------


def loops(assembly: str, function: str) -> list[list[str]]:
    """The instructions of each innermost loop of a function."""
    text = assembly[assembly.index(f"\n{function}:") :]
    lines = [line.strip() for line in text[: text.index(".Lfunc_end")].splitlines()]
    starts = {line[:-1]: i for i, line in enumerate(lines) if re.fullmatch(r"\.L\w+:", line)}
    found = []
    for i, line in enumerate(lines):
        jump = re.match(r"j\w+\s+(\.L\w+)$", line)
        if jump and starts.get(jump[1], i) < i:
            found.append([x for x in lines[starts[jump[1]] + 1 : i + 1] if not x.startswith(".")])
    return [x for x in found if not any(y is not x and set(map(id, y)) < set(map(id, x)) for y in found)]


def spills(assembly: str) -> list[str]:
    return [x for x in assembly.splitlines() if re.search(r"\(%rsp|\(%rbp", x) and re.search(r"%[xyz]mm|%tmm", x)]


@pytest.mark.parametrize("cpu", _INTEL)
@pytest.mark.parametrize(
    ("source", "instruction"), [(DType.FLOAT, "tdpbf16ps"), (DType.INT8, "tdpbssd"), (DType.UINT8, "tdpbusd")]
)
def test_four_loads_serve_four_products(source: DType, instruction: str, cpu: str) -> None:
    target = intel(cpu)
    assert target.has_tiles
    text = word_micro_text(source, word_tile(768, TILES, target), TILES, target)
    assembly = t.assembly(text, target)
    for strips, vectors in ((1, 1), (1, 2), (2, 1), (2, 2)):
        (loop,) = loops(assembly, f"tile_{strips}x{vectors}")
        words = [x.split()[0] for x in loop]
        assert words.count(instruction) == strips * vectors and words.count("tileloadd") == strips + vectors
        assert not any(x.startswith(("tilestored", "tilezero", "call", "ldtilecfg")) for x in loop)
        products = [x.split(None, 1)[1].replace(" ", "") for x in loop if x.startswith(instruction)]
        cells = [(s, j) for s in range(strips) for j in range(vectors)]
        assert products == [f"%tmm{6 + j},%tmm{4 + s},%tmm{2 * s + j}" for s, j in cells]  # AT&T: b, a, c
    assert not spills(assembly)


def test_machine_code_of_a_product() -> None:
    """VEX.128.{F3,F2,NP}.0F38.W0 5C / 5E: SDM, volume 2; registers of 0 to 7 need no extension."""
    target = intel("sapphirerapids")
    for source, opcode, prefix in ((DType.FLOAT, 0x5C, 2), (DType.INT8, 0x5E, 3), (DType.UINT8, 0x5E, 1)):
        text = word_micro_text(source, word_tile(768, TILES, target), TILES, target)
        code = b"".join(
            compile_ir.compiled(compile_ir.Request(part.symbol, part.ir, target.triple, target.cpu, target.features))
            for part in text.parts
        )
        found = re.findall(rb"\xc4\xe2(.)" + re.escape(bytes([opcode])) + rb"(.)", code, re.DOTALL)
        registers = {
            (m[0] & 7, m[0] >> 3 & 7, ~(v[0] >> 3) & 7) for v, m in found if v[0] & 0x87 == prefix and m[0] >= 0xC0
        }  # c: modrm.reg is bits 3 to 5, a: modrm.rm, b: vvvv
        assert registers == {(a, c, b) for a in (4, 5) for b in (6, 7) for c in [2 * (a - 4) + b - 6]}


def test_tiles_are_configured_and_given_back() -> None:
    target = intel("sapphirerapids")
    spec = GemmSpec(DType.FLOAT, "packed", None, tile=word_tile(768, TILES, target), unit=TILES)
    assembly = emit_assembly(word_text(spec, target).ir, target)
    words = [line.split()[0] for line in assembly.splitlines() if line.startswith("\t") and not line.startswith("\t.")]
    assert words.count("ldtilecfg") == 1 and words.count("tilerelease") == words.count("retq") == 1
    assert words.index("ldtilecfg") < words.index("callq") if "callq" in words else True
    assert words.index("tilerelease") < words.index("retq")


def test_the_peak_of_tiles_is_measured_without_loads() -> None:
    target = intel("graniterapids")
    text = roofline._tiles_text(target)
    (loop,) = loops(emit_assembly(text.ir, target), text.symbol)
    assert sum(x.startswith("tdpbf16ps") for x in loop) == 4 and not any(x.startswith("tile") for x in loop)
    assert "bfloat16 by AMX" in roofline._units(target)


@pytest.mark.parametrize("cpu", ["znver4", "znver5"])
@pytest.mark.parametrize("tile", [Tile(14, 2, 16, 4), Tile(8, 3, 16, 4)], ids=str)
def test_vectors_of_pairs(tile: Tile, cpu: str) -> None:
    target = Target.create("x86_64-unknown-linux-gnu", cpu, _AVX512)
    assembly = t.assembly(word_micro_text(DType.FLOAT, tile, VECTORS, target), target)
    (loop,) = loops(assembly, f"tile_{tile.rows}x{tile.vectors}")
    assert sum(x.startswith("vdpbf16ps") for x in loop) == 4 * tile.rows * tile.vectors
    assert not any("vmovups" in x and x.endswith(")") for x in loop), "sums are stored in the loop"
    assert not spills(assembly)
