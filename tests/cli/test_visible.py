"""Names that a terminal would obey, hide or turn round, in everything that is printed, logged, raised or written."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import intarsia as ort
from intarsia.cli import main
from intarsia.graph.load import load
from intarsia.printable import get_logger, visible, visible_lines
from intarsia.reports.model_check import check_model

TITLE = "\x1b]0;title\x07"
NAMES = {
    "an escape sequence": f"{TITLE}\x1b[31mred",
    "C1": "\x9b31mred",
    "DEL and backspaces": "ab\x08\x08\x7fcd",
    "a carriage return": "good\rbad",
    "lines": "good\nerror: bad\u2028bad\x85bad",
    "a bidirectional override": "abc\u202edcba\u2066x\u2069",
    "no width": "a\u200bb\u200dc\ufeff\u00ad",
    "markup": "[red]x[/red] [/] [link=file:///]y :warning: <b>&amp;",
}
FORBIDDEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\u00ad]")


def shown(name: str) -> str:
    return repr(name)[1:-1].replace("\\\\", "\\").replace("\\'", "'")


def model_of(name: str, op: str = "Exp") -> onnx.ModelProto:
    nodes = [
        helper.make_node(op, [f"x{name}"], [f"t{name}"], name=f"node {name}", doc_string=name),
        helper.make_node("MatMul", [f"t{name}", f"w{name}"], [f"y{name}"], name=f"other {name}"),
    ]
    x, y = (helper.make_tensor_value_info(n, 1, [f"size {name}", 2]) for n in (f"x{name}", f"y{name}"))
    weights = [numpy_helper.from_array(np.eye(2, dtype=np.float32), f"w{name}")]
    graph = helper.make_graph(nodes, f"graph {name}", [x], [y], weights, doc_string=name)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10, producer_name=f"by {name}")
    made.metadata_props.add(key=f"key {name}", value=f"value {name}")
    return made


def check_text(text: str) -> None:
    assert not FORBIDDEN.search(text), repr(text)


@pytest.fixture(params=NAMES.values(), ids=NAMES)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def path(name: str, tmp_path: Path) -> str:
    made = tmp_path / f"m {name.replace('/', '_')}.onnx"
    made.write_bytes(model_of(name).SerializeToString())
    return str(made)


COMMANDS = [
    ["explain"], ["explain", "--json"], ["run"], ["check"], ["check", "--json"], ["profile"], ["profile", "--json"],
    *(["dump", "-s", stage] for stage in ("graph", "optimized", "partition", "schedules", "kernels", "source", "plan")),
    ["run", "-o", "/nowhere/at/all/x.npz"], ["run", "-i", "missing=1"],
]  # fmt: skip


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_the_command_line(command: list[str], name: str, path: str, capfd: pytest.CaptureFixture[str]) -> None:
    fails = len(command) == 3 and command[0] == "run"
    dims = ["-d", f"size {name}=3"] if command[0] in ("run", "profile") and "=" not in name else []
    code = main([command[0], path, *command[1:], *dims])
    captured = capfd.readouterr()
    assert (code != 0) == fails, captured.err
    for text in captured:
        check_text(text)
    if command == ["explain"]:
        assert shown(name) in re.sub(r"\s*\n\s*", "", captured.out) or "\n" in name
    if "--json" in command:
        json.loads(captured.out)


def test_the_command_line_on_a_model_that_is_wrong(name: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    bad = tmp_path / "bad.onnx"
    bad.write_bytes(model_of(name, op=f"Op{name}").SerializeToString())
    for command in ("run", "check", "explain", "profile"):
        assert main([command, str(bad)]) != 0
        for text in capfd.readouterr():
            check_text(text)
    assert main(["run", str(tmp_path / f"missing {name.replace('/', '_')}")]) != 0
    for text in capfd.readouterr():
        check_text(text)


def test_texts_of_a_session(name: str) -> None:
    model = model_of(name).SerializeToString()
    session = ort.InferenceSession(model)
    feed = {f"x{name}": np.ones((3, 2), np.float32)}
    session.run(None, feed)
    graph = load(model)
    texts = [
        str(session.explain()), str(graph), str(graph.nodes[0]), str(session._engine.whole_model().partition),
        str(check_model(model)), str(session.memory_report({f"x{name}": [3, 2]})), str(session.profile(feed, 5)),
    ]  # fmt: skip
    for text in texts:
        check_text(text)
        assert "good\nerror" not in text, "a name makes a line of its own"
    assert shown(name) in texts[0]
    assert f"%x{shown(name)}" in texts[1]


def test_errors_and_tracebacks(name: str) -> None:
    session = ort.InferenceSession(model_of(name).SerializeToString())
    calls = [
        lambda: session.run(None, {}), lambda: session.run(None, {f"x{name}": np.ones(2, np.float32)}),
        lambda: session.run([name], {f"x{name}": np.ones((3, 2), np.float32)}),
        lambda: ort.InferenceSession(f"/nowhere/{name}"),
        lambda: ort.InferenceSession(model_of(name, op=f"Op{name}").SerializeToString()),
    ]  # fmt: skip
    for call in calls:
        with pytest.raises(ort.IntarsiaError) as caught:
            call()
        check_text(str(caught.value))
    assert str(ort.Fail(TITLE)) == r"\x1b]0;title\x07"
    assert str(ort.NotFound("\udc80")) == r"\udc80"
    assert ort.Fail(TITLE).args == (TITLE,)


def test_what_is_logged(name: str, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]) -> None:
    ort.InferenceSession(model_of(name).SerializeToString())
    for logger in (get_logger("intarsia"), get_logger("intarsia.cache"), get_logger("intarsia.load")):
        logger.warning("the model %s has %d", name, 3)
    options = ort.SessionOptions()
    options.log_severity_level = 0
    options.logid = f"id {name}"
    ort.InferenceSession(model_of(name).SerializeToString(), options).run(None, {f"x{name}": np.ones((3, 2), np.float32)})
    assert len(caplog.records) > 3
    for record in caplog.records:
        check_text(record.getMessage())
    assert caplog.records[-1].name
    assert f"the model {shown(name)} has 3" in caplog.text or "\n" in name
    check_text(capfd.readouterr().err)


def test_pages(name: str, tmp_path: Path) -> None:
    session = ort.InferenceSession(model_of(name).SerializeToString())
    session.explain().save_html(tmp_path / "page.html", title=name)
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    check_text(page)
    assert "<b>" not in page.replace("<li><b>", "")
    assert page.count("<script>") == 1


def test_profiles_stay_json(name: str, tmp_path: Path) -> None:
    options = ort.SessionOptions()
    options.enable_profiling, options.profile_file_prefix = True, str(tmp_path / "trace")
    session = ort.InferenceSession(model_of(name).SerializeToString(), options)
    session.run(None, {f"x{name}": np.ones((3, 2), np.float32)})
    events = json.loads(Path(session.end_profiling()).read_text(encoding="utf-8"))
    assert any(name in str(event["name"]) for event in events)


def test_outputs_are_files_of_names_that_can_be_seen(tmp_path: Path) -> None:
    name = NAMES["an escape sequence"]
    path = tmp_path / "m.onnx"
    path.write_bytes(model_of(name).SerializeToString())
    assert main(["run", str(path), "-o", str(tmp_path / "outputs")]) == 0
    assert [file.name for file in (tmp_path / "outputs").iterdir()] == ["y_]0;title__[31mred.npy"]


def test_a_terminal() -> None:
    """Where standard output is one, rich writes its own sequences, and still none of a name's."""
    pty = pytest.importorskip("pty")
    name = NAMES["an escape sequence"]
    read, write = pty.openpty()
    code = f"from intarsia.cli.show import note, table; table({name!r}, ['a'], [[{name!r}]]); note({name!r})"
    subprocess.run([sys.executable, "-c", code], stdout=write, stderr=write, check=True, timeout=600,
                   env={**os.environ, "TERM": "xterm-256color"})  # fmt: skip
    os.close(write)
    said = os.read(read, 1 << 16).decode()
    os.close(read)
    assert "\x1b]0;" not in said
    assert "\x07" not in said
    assert "\x1b[31m" not in said
    assert r"\x1b]0;title\x07\x1b[31mred" in said


def test_visible() -> None:
    assert visible("a name, größer 名前 🙂") == "a name, größer 名前 🙂"
    assert visible("a\tb\nc") == r"a\tb\nc"
    assert visible_lines("a\tb\nc\x1b") == "a\tb\nc\\x1b"
    assert visible("\U000e0001\ud800") == r"\U000e0001\ud800"


@pytest.mark.parametrize("encoding", ["cp1252", "ascii", "utf-8"])
def test_names_that_the_output_cannot_encode(encoding: str, tmp_path: Path) -> None:
    """As in a pipe on Windows, or in the locale C."""
    path = tmp_path / "日本.onnx"
    onnx.save(model_of("日→"), path)
    env = {**os.environ, "PYTHONPATH": str(Path(ort.__file__).parents[1]), "PYTHONIOENCODING": encoding, "COLUMNS": "200"}
    for command in (["run", str(path), "-p", "ReferenceExecutionProvider"], ["check", str(path)], ["run", f"{path}.absent"]):
        done = subprocess.run([sys.executable, "-m", "intarsia", *command], capture_output=True, env=env, check=False)
        out, err = done.stdout.decode(encoding), done.stderr.decode(encoding)
        assert done.returncode == (1 if command[1].endswith("absent") else 0), err
        assert "Traceback" not in err
        assert ("日" if encoding == "utf-8" else "\\u65e5") in out + err
