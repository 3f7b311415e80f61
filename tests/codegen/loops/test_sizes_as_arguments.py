"""Kernels of loops that differ in known sizes alone are one: `codegen.loops.sizes_as_arguments`."""

from __future__ import annotations

import pytest

pytest.importorskip("llvmlite", reason="loops are compiled with llvmlite")

from loop_kernels import check_loops, compiled
from test_loop_nest import normal

from intarsia.codegen.loops.loop_nest import CHUNK
from intarsia.codegen.loops.sizes_as_arguments import LEAST
from intarsia.graph.dims import symbol
from intarsia.graph.dtypes import DType
from intarsia.primitives import lang as k

F = DType.FLOAT


def scaled(rows: int, channels: int) -> k.Tensor:
    x, scale, shift = k.input(0, F, (1, rows, channels)), k.input(1, F, (channels,)), k.input(2, F, (channels,))
    return k.binary("max", x * scale + shift, k.scalar(0.0, F))


def joined(*channels: int, rows: int = 70) -> k.Tensor:
    return k.concat([k.input(n, F, (rows, c)) for n, c in enumerate(channels)], 1)


@pytest.mark.parametrize(("rows", "channels"), [(3136, 128), (196, 160), (70, LEAST), (LEAST, LEAST + 1), (70, CHUNK), (2, 99)])
def test_scaled_channels(rows: int, channels: int) -> None:
    check_loops([scaled(rows, channels)], [normal(1, rows, channels), normal(channels), normal(channels)])


@pytest.mark.parametrize("channels", [CHUNK + 1, 2 * CHUNK + 77])
def test_lines_longer_than_a_chunk(channels: int) -> None:
    check_loops([scaled(65, channels)], [normal(1, 65, channels), normal(channels), normal(channels)])


@pytest.mark.parametrize("channels", [(128, 32), (160, 32), (100, 100), (64, 3, 65)])
def test_concatenated_channels(channels: tuple[int, ...]) -> None:
    check_loops([joined(*channels)], [normal(70, c) for c in channels])


def test_values_along_rows_and_columns() -> None:
    x, by_row, by_column = k.input(0, F, (80, 90)), k.input(1, F, (80, 1)), k.input(2, F, (90,))
    check_loops([x * by_row + by_column], [normal(80, 90), normal(80, 1), normal(90)])


def test_one_text_for_all_sizes() -> None:
    first, second = compiled([scaled(3136, 128)]), compiled([scaled(196, 1024)])
    assert first.text == second.text
    assert first.sizes != second.sizes
    assert all(isinstance(size, int) for size in first.sizes)
    assert compiled([joined(128, 32)]).text == compiled([joined(256, 32, rows=300)]).text


def test_short_loops_and_cut_ones_are_others() -> None:
    usual = compiled([scaled(100, 128)]).text
    assert compiled([scaled(100, LEAST - 1)]).text != usual
    assert compiled([scaled(100, CHUNK + 1)]).text != usual


def test_symbols_of_a_model_are_no_known_sizes() -> None:
    """A size that is open in the model may be any number, whatever its name is."""
    for number in range(2):
        few = symbol(f"few{number}")
        x, scale, shift = k.input(0, F, (1, 70, few)), k.input(1, F, (few,)), k.input(2, F, (few,))
        root = k.binary("max", x * scale + shift, k.scalar(0.0, F))
        compiled([scaled(70, 128)])
        for size in (5, CHUNK + 300):
            arrays = [normal(1, 70, size), normal(size), normal(size)]
            check_loops([root], arrays, {f"few{number}": size})
