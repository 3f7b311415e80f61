"""ONNX's node cases through Core ML's packages, with the CPU provider for what is refused: none may be wrong.

`whole_cases.txt` names those of which every node is translated: what leaves the list, or joins it, is noticed. A sample runs
always; the marker `conformance` has the rest.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from provider_cases import options, parameters, right

from intarsia.testing.cases import TRAINING, suite

if TYPE_CHECKING:
    from mil_interpreter import NumPyEngine

SAMPLE = 40  # every so many-th case belongs to the sample
NAME = "CoreMLExecutionProvider"
WHOLE = frozenset(Path(__file__).with_name("whole_cases.txt").read_text().split())


@pytest.mark.parametrize("name", parameters(sorted(suite("node").keys() - TRAINING), SAMPLE))
def test_case(engine: NumPyEngine, name: str) -> None:
    session = right(suite("node")[name], NAME, options({"session.cache_weights_mib": "0", "session.provider_fallback": "warn"}))
    nodes = [node for node in session.explain().nodes if node.provider and not node.body]
    left = [node for node in nodes if node.provider != NAME]
    for node in left:
        reason = node.refusals[NAME].reason
        assert reason
        assert "compilation failed" not in reason, "what the survey takes alone has to be translated in its part"
    assert (bool(nodes) and not left) == (name in WHOLE)


def test_most_cases_are_translated() -> None:
    assert len(WHOLE) >= 940
    assert set(suite("node")) >= WHOLE
