"""Machine code for ARM64, from any machine: multiply-adds by lanes of vectors. `scripts/arm64` runs it, emulated."""

from __future__ import annotations

import re

import pytest

pytest.importorskip("llvmlite", reason="the CPU provider compiles with llvmlite")

import template_kernels as t

from intarsia.codegen.llvm.target import Target
from intarsia.graph.dtypes import DType
from intarsia.providers.cpu.kernels.common.microkernel import micro_text, tiled_micro_text
from intarsia.providers.cpu.kernels.common.tiles import tile_of
from intarsia.providers.cpu.kernels.conv.blocked_k_microkernel import blocked_tile, stepped_micro_text
from intarsia.providers.cpu.kernels.matmul_int8.microkernel_int8 import byte_micro_text


def target(features: str = "") -> Target:
    return Target.create("aarch64-unknown-linux-gnu", "neoverse-n1", features)


def longest_loop(code: str, function: str) -> list[str]:
    """The instructions of a function's largest innermost loop."""
    lines = code[code.index(f"\n{function}:") :].splitlines()[1:]
    lines = lines[: next((i for i, line in enumerate(lines) if line.startswith(".Lfunc_end")), len(lines))]
    labels = {line.split(":")[0]: i for i, line in enumerate(lines) if re.match(r"\.LBB\w+:", line)}
    found: list[list[str]] = []
    for i, line in enumerate(lines):
        jump = re.match(r"\s+(?:b\.|cbn?z|tbn?z).*?(\.LBB\w+)$", line)
        if jump and labels.get(jump[1], i) < i:
            body = lines[labels[jump[1]] + 1 : i]
            if not any(re.match(r"\.LBB\w+:", inner) for inner in body):
                found.append([inner.split("//")[0].strip() for inner in body])
    return max(found, key=len)


@pytest.mark.parametrize(("dtype", "lanes"), [(DType.FLOAT, 4), (DType.DOUBLE, 2)])
@pytest.mark.parametrize("kind", ["rows", "tiles", "steps"])
def test_floats_by_lanes(kind: str, dtype: DType, lanes: int) -> None:
    given = target()
    tile = tile_of(dtype, given)
    text = {
        "rows": lambda: micro_text(dtype, given, tile), "tiles": lambda: tiled_micro_text(dtype, given, tile),
        "steps": lambda: stepped_micro_text(dtype, given, blocked_tile(64, None, dtype, given)),
    }[kind]()  # fmt: skip
    loop = longest_loop(t.assembly(text, given), f"tile_{tile.rows}x{tile.vectors}")
    products = [line for line in loop if line.startswith("fmla")]
    loads = [line for line in loop if line.startswith("ld")]
    steps = len(products) // (tile.rows * tile.vectors)
    assert steps >= (1 if kind == "tiles" else lanes)
    assert len(products) == steps * tile.rows * tile.vectors
    assert all(re.search(r"\.[sd]\[\d\]$", line) for line in products)
    assert not [line for line in loop if line.startswith(("mov\tv", "dup", "str", "stp", "ld1r"))]
    assert len(loads) <= steps * (tile.vectors + tile.rows / lanes) + 1


@pytest.mark.parametrize(("features", "instruction"), [("+dotprod", "sdot"), ("+dotprod,+i8mm", "sudot")])
@pytest.mark.parametrize("dtype", [DType.UINT8, DType.INT8])
def test_bytes_by_lanes(features: str, instruction: str, dtype: DType) -> None:
    given = target(features)
    tile = tile_of(DType.INT32, given)
    loop = longest_loop(t.assembly(byte_micro_text(dtype, given), given), f"tile_{tile.rows}x{tile.vectors}")
    by_lanes = [line for line in loop if re.match(rf"{instruction}\t.*\.4b\[\d\]$", line)]
    assert len(by_lanes) == tile.rows * tile.vectors * tile.lanes
    assert not [line for line in loop if line.startswith(("dup", "str", "stp", "ld1r"))]


def test_bytes_without_dot_products() -> None:
    given = target()
    assert "dot" not in t.assembly(byte_micro_text(DType.UINT8, given), given)
