"""Every operator on drawn types, sizes, attributes and values, with all its memory at pages without access.

Inputs, outputs, constants, packed weights, intermediate tensors and scratch memory each end (or begin) where the process may
not read or write (`guarded_memory`, `guarded_programs`). The CPU provider and the reference provider run the same models, with
types and sizes that fit together and others that do not (`drawn_models`): both give the same, or both say with an error of
Intarsia's what is wrong. A process that ends is a fault of the case it was in.

By default the same 10,000 runs every time. `--guard-cases 1000000 --guard-seed 1` makes a million others (with `-n 2` in two
processes); what was covered is printed at the end.
"""

from __future__ import annotations

from typing import Any

import pytest
from drawn_models import WITHOUT_CASES, operators
from guarded_cases import GRAPHS
from guarded_memory import AVAILABLE
from guarded_process import GuardedProcess

from intarsia.ops import builtin

pytestmark = pytest.mark.skipif(not AVAILABLE, reason="guard pages are mapped as on Linux with pages of 4 KiB")

RUNS_OF_A_MODEL = 6  # about
FEW = 4  # models of an operator, all of which may be refused
NEVER_COMPARED = {  # operators whose models of one node are refused in every run
    "com.microsoft::BeamSearch": "its decoder must keep a cache: see test_contributed_generation.py",
    "com.microsoft::GreedySearch": "its decoder must keep a cache: see test_contributed_generation.py",
    "com.microsoft::Sampling": "its decoder must keep a cache: see test_contributed_generation.py",
    "com.microsoft::WhisperBeamSearch": "its decoder must keep a cache: see test_contributed_encoder_decoder.py",
}
SHOWN = 5  # faults of one operator


def _models(config: pytest.Config) -> int:
    """How many models of each operator make the number of runs that was asked for."""
    return max(1, -(-config.getoption("--guard-cases") // (RUNS_OF_A_MODEL * len(operators()))))


@pytest.mark.parametrize("source", [*(name for name in operators() if name not in WITHOUT_CASES), *GRAPHS])
def test_models(source: str, guarded_process: GuardedProcess, request: pytest.FixtureRequest, record_property: Any) -> None:
    """`source`: an operator, or graphs of many."""
    models = _models(request.config)
    report = guarded_process.run(source, request.config.getoption("--guard-seed"), 0, models)
    record_property("guarded", {"source": source, **report.as_dict()})
    shown = "\n".join(f"{kind}: {case}\n    {text}" for kind, case, text in report.faults[:SHOWN])
    assert not report.faults, f"{len(report.faults)} faults, the first of which are:\n{shown}"
    ran = report.cases["compared"] or source in NEVER_COMPARED or models < FEW
    assert ran, f"no model of {source} ran on both providers: {dict(report.cases)}"


def test_operators_without_cases_exist(guarded_process: GuardedProcess, record_property: Any) -> None:
    records = builtin().records
    assert all(tuple(name.rpartition("::")[::2]) in records for name in WITHOUT_CASES)
    record_property("guarded", {"known": guarded_process.known()})
