"""`session.explain()`: a line for every node of the model."""

from __future__ import annotations

import json
import logging

import numpy as np
import pytest

import intarsia as ort

REFERENCE = "ReferenceExecutionProvider"
TEXT = """g (float[3] x) => (float[3] y) <float[3] u = {1, 1, 1}, float[3] v = {2, 2, 2}> {
    w = Add(u, v)  a = Mul(x, w)  y = Neg(a) }"""


@pytest.fixture
def options() -> ort.SessionOptions:
    """No rewriting, so that the graph's nodes are the model's."""
    made = ort.SessionOptions()
    made.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    return made


def test_every_node_with_its_provider_and_the_others_reasons(make_session, options, example_plugin: str) -> None:
    found = make_session(TEXT, options, providers=[(example_plugin, {"stride": 2}), REFERENCE]).explain()
    rows = [(n.name, n.op, n.provider, n.kind, n.kernel) for n in found.nodes]
    assert rows == [
        ("Add_0", "Add", example_plugin, "host", "Add"),
        ("Mul_1", "Mul", REFERENCE, "host", "Mul"),
        ("Neg_2", "Neg", example_plugin, "host", "Neg"),
    ]
    assert found.nodes[1].refusals[example_plugin].code == "stride"
    assert found.nodes[0].refusals[REFERENCE].reason == f"taken by {example_plugin}, which has higher priority"
    assert found.counts == {example_plugin: 2, REFERENCE: 1}


def test_as_text(make_session, options) -> None:
    lines = str(make_session(TEXT, options).explain()).splitlines()
    assert lines[0].split() == ["node", "op", "from", "provider", "kind", "kernel", "remarks"]
    assert lines[2].split()[:4] == ["Add_0", "Add", REFERENCE, "host"]
    assert f"nodes by provider: {REFERENCE}: 3" in lines
    assert lines[-1] == f"1. part 0: {REFERENCE}, 3 nodes (x) -> (y)"


def test_as_data(make_session, options) -> None:
    found = make_session(TEXT, options).explain()
    data = json.loads(found.to_json(indent=1))
    assert data == json.loads(json.dumps(found.to_dict()))
    assert data["providers"][0] == REFERENCE
    assert data["nodes"][0]["origin"] == ["Add_0"]


def test_folded_nodes_are_listed(make_session) -> None:
    found = make_session(TEXT).explain()
    assert found.counts.get("folded") == 1
    (folded,) = (n for n in found.nodes if n.kind == "folded")
    assert (folded.name, folded.provider) == ("Add_0", "")


def test_verbose_sessions_log_the_same_text(make_session, options, caplog: pytest.LogCaptureFixture) -> None:
    options.log_severity_level = 0
    options.logid = "mine"
    session = make_session(TEXT, options)
    (record,) = (r for r in caplog.records if "placement of the model" in r.message)
    assert str(session.explain()) in record.message
    assert (record.name, record.levelno) == ("intarsia.session.mine", logging.DEBUG)


def test_quiet_sessions_log_nothing(make_session, options, caplog: pytest.LogCaptureFixture) -> None:
    make_session(TEXT, options).run(None, {"x": np.ones(3, np.float32)})
    assert not [r for r in caplog.records if r.name.startswith("intarsia.session")]
