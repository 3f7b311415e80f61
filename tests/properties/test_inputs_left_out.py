"""Every operator without each of its inputs in turn: a result, or an error that names the input; never one of Python's."""

from __future__ import annotations

import pytest

pytest.importorskip("hypothesis", reason="its folder's tests need hypothesis")

import mutations


@pytest.mark.parametrize("part", range(8))  # a test for each operator would take longer to collect than to run
def test_each_input_left_out(part: int) -> None:
    wrong: list[str] = []
    for operator in mutations.operators()[part::8]:
        domain, name, operands, given, attributes, outputs = mutations.example_of(operator)
        for at in range(given):
            if operands[at] is None:
                continue
            left = [*operands[:at], None, *operands[at + 1 :]]
            case = mutations.built_case(domain, name, left, given, attributes, outputs, "static", f"input {at} left out")
            wrong += [f"{operator}, {case.told}: {what}" for what in mutations.run(case, [])]
    assert not wrong, "\n".join(wrong)
