"""Nothing opens a connection: not while a model is loaded, compiled, run and explained, nor in a command."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

MODEL = Path(__file__).parents[2] / "examples" / "digits" / "digits.onnx"
FORBID = """
import socket, sys

def forbid(event, arguments):
    network = event == "socket.__new__" and arguments[1] in (socket.AF_INET, socket.AF_INET6)
    if network or event in ("socket.connect", "socket.bind", "socket.getaddrinfo", "socket.gethostbyname", "urllib.Request"):
        raise PermissionError(f"{event} {arguments}")

sys.addaudithook(forbid)
"""
USED = """
import numpy as np, pickle
import intarsia as ort
options = ort.SessionOptions()
session = ort.InferenceSession(MODEL, options)
image = np.zeros((1, 1, 8, 8), np.float32)
session.run(None, {"image": image})
session.explain(), session.profile({"image": image}, runs=2), session.memory_report()
ort.InferenceSession(MODEL, providers=["ReferenceExecutionProvider"]).run(None, {"image": image})
pickle.loads(pickle.dumps(session)).run(None, {"image": image})
ort.get_available_providers()
"""
COMMANDS = ("run MODEL", "explain MODEL", "check MODEL", "doctor", "providers", "cache info", "bench MODEL --seconds 0.1")


def forbidden(code: str, tmp_path: Path) -> subprocess.CompletedProcess[str]:
    paths = {"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "PATH": os.environ["PATH"]}
    env = {"INTARSIA_CACHE_DIR": str(tmp_path / "cache"), **paths}
    return subprocess.run(
        [sys.executable, "-c", FORBID + code], capture_output=True, text=True, env=env, timeout=600, check=False, cwd=tmp_path
    )


def test_the_test_forbids(tmp_path: Path) -> None:
    done = forbidden("socket.socket(socket.AF_INET)", tmp_path)
    assert "PermissionError: socket.__new__" in done.stderr


def test_sessions(tmp_path: Path) -> None:
    done = forbidden(USED.replace("MODEL", repr(str(MODEL))) + "print('done')", tmp_path)
    assert done.stdout.endswith("done\n"), done.stderr


@pytest.mark.parametrize("command", COMMANDS)
def test_commands(command: str, tmp_path: Path) -> None:
    arguments = command.replace("MODEL", str(MODEL)).split()
    done = forbidden(f"from intarsia.cli import main; sys.argv[1:] = {arguments!r}; sys.exit(main())", tmp_path)
    assert "PermissionError" not in done.stderr and done.returncode == 0, done.stderr
