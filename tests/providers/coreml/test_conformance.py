"""ONNX's node cases through Core ML's packages, with the CPU provider for what is refused: none may be wrong.

`whole_cases.txt` names those of which every node is translated: what leaves the list, or joins it, is noticed. A sample runs
always; the marker `conformance` has the rest.
"""

from __future__ import annotations

import warnings
import zlib
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import intarsia as ort
from intarsia.testing.cases import TRAINING, run_case, suite

if TYPE_CHECKING:
    from mil_interpreter import NumPyEngine

SAMPLE = 40  # every so many-th case belongs to the sample
NAME = "CoreMLExecutionProvider"
WHOLE = frozenset(Path(__file__).with_name("whole_cases.txt").read_text().split())


def parameters() -> list[object]:
    names = sorted(name for name in suite("node") if name not in TRAINING)
    sampled = {name: zlib.crc32(name.encode()) % SAMPLE == 1 for name in names}
    return [pytest.param(name, marks=[] if here else [pytest.mark.conformance], id=name) for name, here in sampled.items()]


def options() -> ort.SessionOptions:
    found = ort.SessionOptions()
    for key, value in {
        "partition.keep_islands": "1", "session.cache_weights_mib": "0", "session.provider_fallback": "warn"
    }.items():  # fmt: skip
        found.add_session_config_entry(key, value)
    found.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_BASIC  # so that it meets the operators themselves
    return found


@pytest.mark.parametrize("name", parameters())
def test_case(engine: NumPyEngine, name: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ort.ProviderWarning)  # it takes no node of many cases, each with its reason
        session, wrong = run_case(suite("node")[name], [NAME, "CPUExecutionProvider"], options())
    assert not wrong
    nodes = [node for node in session.explain().nodes if node.provider]
    left = [node for node in nodes if node.provider != NAME]
    for node in left:
        reason = node.refusals[NAME].reason
        assert reason
        assert "compilation failed" not in reason, "what the survey takes alone has to be translated in its part"
    assert (bool(nodes) and not left) == (name in WHOLE)


def test_most_cases_are_translated() -> None:
    assert len(WHOLE) >= 820
    assert set(suite("node")) >= WHOLE
