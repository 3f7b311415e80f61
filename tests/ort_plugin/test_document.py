"""The listing of docs/onnxruntime-plugin.md, run as it stands."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def test_listing() -> None:
    pytest.importorskip("onnxruntime", minversion="1.24", reason="its plugin interface")
    text = (ROOT / "docs/onnxruntime-plugin.md").read_text(encoding="utf-8")
    (listing,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    program = f"{listing}\nprint(session.get_providers()[0])"
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["IntarsiaCPU"], done.stderr
