"""Operators are found where the index says, and a session imports those of its model alone."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import onnx.parser

ROOT = Path(__file__).parents[3]


def test_the_index_is_up_to_date() -> None:
    """In a process of its own, where no module of operators was imported yet."""
    done = subprocess.run(
        [sys.executable, ROOT / "scripts" / "operator_index.py", "--check"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_a_session_imports_its_models_operators(tmp_path: Path) -> None:
    text = '<ir_version: 8, opset_import: ["" : 17]> g (float[n, m] x) => (float[n, m] y) { a = Exp(x)  y = Softmax(a) }'
    path = tmp_path / "model.onnx"
    onnx.save(onnx.parser.parse_model(text), path)
    program = f"""
import sys
import intarsia as ort
session = ort.InferenceSession({str(path)!r}, providers=["ReferenceExecutionProvider"])
print(*(name for name in sys.modules if name.startswith("intarsia.ops.")))
from intarsia.ops import builtin
print(len(builtin().records), builtin().find("", "Conv", 11).since, builtin().find("com.microsoft", "Gelu", 1).since)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    imported, counts = done.stdout.splitlines()
    assert "intarsia.ops.nn.softmax" in imported.split()
    others = {"intarsia.ops.nn.conv", "intarsia.ops.ml.trees", "intarsia.ops.contrib.attention.attention"}
    assert not others & set(imported.split())
    every, conv, gelu = map(int, counts.split())
    assert every > 390
    assert (conv, gelu) == (11, 1)


def test_every_operator_is_in_the_index_once_for_each_module() -> None:
    from intarsia.ops.family_index import families

    for module, operators in families().items():
        assert importlib.util.find_spec(module) is not None
        assert operators
        assert len(set(operators)) == len(operators)
