"""Tables that fit a terminal."""

from __future__ import annotations

from intarsia.partition.text_table import format_table

ROWS = [("encoder/layer.11/attention/output/dense", "MatMul", "1"), ("b", "Add", "22")]


def test_all_is_shown_without_a_width() -> None:
    assert format_table(("node", "op", "calls"), ROWS).splitlines() == [
        "node                                     op      calls",
        "------------------------------------------------------",
        "encoder/layer.11/attention/output/dense  MatMul  1",
        "b                                        Add     22",
    ]


def test_the_widest_column_is_shortened() -> None:
    lines = format_table(("node", "op", "calls"), ROWS, 40).splitlines()
    assert max(map(len, lines)) <= 40
    assert lines[2].startswith("encode…")
    assert "output/dense  MatMul" in lines[2]
    assert lines[3].split() == ["b", "Add", "22"]


def test_several_wide_columns_share_the_loss() -> None:
    (row,) = format_table(("a", "b", "c"), [("x" * 50, "y" * 60, "z" * 20)], 74).splitlines()[2:]
    assert [len(cell) for cell in row.split("  ")] == [25, 25, 20]


def test_narrow_columns_stay() -> None:
    lines = format_table(("a" * 12, "b" * 12), [("x" * 12, "y")], 10).splitlines()
    assert lines[0] == f"{'a' * 12}  {'b' * 12}"


def test_a_table_that_fits_is_as_without() -> None:
    assert format_table(("node", "op", "calls"), ROWS, 54) == format_table(("node", "op", "calls"), ROWS)
