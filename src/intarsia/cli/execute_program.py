"""`intarsia exec`: a program whose `import onnxruntime` is Intarsia."""

from __future__ import annotations

import runpy
import sys
from collections.abc import Sequence
from pathlib import Path

import intarsia
from intarsia.errors import InvalidArgument, NoSuchFile


def execute(arguments: Sequence[str]) -> None:
    """Run a Python file or module as Python would, after `install_as`. Its exit code and its errors are its own.

    Args:
        arguments: a file, or `-m` and a module; then the program's own.

    Raises:
        InvalidArgument: neither a file nor a module.
        NoSuchFile: the file does not exist.
    """
    program, *own = arguments
    if program == "-m":
        if not own:
            raise InvalidArgument("exec -m expects the name of a module")
        intarsia.install_as("onnxruntime")
        sys.argv = own
        sys.path.insert(0, "")
        runpy.run_module(own[0], run_name="__main__", alter_sys=True)
        return
    if program.startswith("-"):
        raise InvalidArgument(f"exec expects a Python file, or -m MODULE; got {program!r}")
    if not Path(program).exists():
        raise NoSuchFile(f"the program {program!r} does not exist (current folder: {str(Path.cwd())!r})")
    intarsia.install_as("onnxruntime")
    sys.argv = [program, *own]
    sys.path.insert(0, str(Path(program).resolve().parent))
    runpy.run_path(program, run_name="__main__")
