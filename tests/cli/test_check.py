"""`intarsia check`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import onnx
import onnx.parser
import pytest

pytest.importorskip("typer", reason="the command line needs the extra cli")

from intarsia.cli import main
from intarsia.ops.framework.registry_scopes import PROCESS

DIGITS = Path(__file__).parents[2] / "examples" / "digits" / "digits.onnx"


@pytest.fixture(autouse=True)
def own_operators() -> Iterator[None]:
    yield
    PROCESS.__init__()  # type: ignore[misc] # what a command registered


@pytest.fixture
def broken(tmp_path: Path) -> str:
    model = onnx.parser.parse_model(
        """<ir_version: 10, opset_import: ["": 20, "my": 1]>
        g (float[2, 3] x) => (y) { [mine] a = my.Scale (x) [wrong] y = LeakyRelu <alhpa = 0.5> (a) }"""
    )
    onnx.save(model, tmp_path / "broken.onnx")
    return str(tmp_path / "broken.onnx")


def test_a_good_model(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", str(DIGITS)]) == 0
    assert capsys.readouterr().out.startswith("ok  ")


def test_problems_by_kind(broken: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", broken]) == 1
    shown = capsys.readouterr()
    text = " ".join(shown.out.split())  # a narrow terminal breaks lines
    assert "operators that do not exist" in text
    assert "my::Scale (version 1), node 'mine'" in text
    assert "attribute 'alhpa' is not known to version 16 (has: alpha)" in text
    assert shown.out.rstrip().endswith("2 nodes of 2 operators; 2 errors, 0 warnings")
    assert "@intarsia.op" in shown.err


def test_as_json(broken: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", broken, "--json"]) == 1
    data = json.loads(capsys.readouterr().out)
    assert [(p["code"], p["node"]) for p in data["problems"]] == [("operator", "mine"), ("attribute", "wrong")]
    assert data["opsets"] == {"ai.onnx": 20, "my": 1}


def test_operators_of_a_file(broken: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "mine.py").write_text("import intarsia\n\n@intarsia.op('my::Scale')\ndef scale(x):\n    return x * 2.0\n")
    assert main(["check", broken, "--operators", str(tmp_path / "mine.py")]) == 1
    assert "1 error, 0 warnings" in capsys.readouterr().out


@pytest.mark.parametrize("command", ["run", "explain", "dump", "bench"])
def test_operators_of_a_file_count_in_every_command(command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "mine.py").write_text("import intarsia\n\n@intarsia.op('my::Scale')\ndef scale(x):\n    return x * 2.0\n")
    model = onnx.parser.parse_model(
        """<ir_version: 10, opset_import: ["": 20, "my": 1]> g (float[2, 3] x) => (float[2, 3] y) { y = my.Scale (x) }"""
    )
    onnx.save(model, tmp_path / "mine.onnx")
    extra = ["--runs", "1"] if command == "bench" else []
    assert main([command, str(tmp_path / "mine.onnx"), "--operators", str(tmp_path / "mine.py"), *extra]) == 0
    assert "mine.onnx" if command == "bench" else "y" in capsys.readouterr().out


def test_no_such_file(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "nothing.onnx"]) == 1
    assert "'nothing.onnx' does not exist" in capsys.readouterr().err
    assert main(["check", str(DIGITS), "--operators", "nothing.py"]) == 1
    assert "the operators' file 'nothing.py' does not exist" in capsys.readouterr().err
