"""A model as C of emx-onnx-cgen, as a function in this process: its own backend starts a program for each run."""

from __future__ import annotations

import ctypes
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from intarsia.errors import UnknownOption

_TYPES = {
    "float": np.float32, "double": np.float64, "bool": np.bool_, "_Bool": np.bool_,
    **{f"{sign}int{bits}_t": np.dtype(f"{sign}int{bits}") for sign in ("", "u") for bits in (8, 16, 32, 64)},
}  # fmt: skip
_INLINE_NBYTES = 1 << 40  # weights stay in the C text


def _with_sizes(model: Path, feeds: Mapping[str, np.ndarray]) -> Any:
    """The model with the sizes of these inputs for its open ones."""
    import onnx

    from intarsia.tools.onnx_model_utils import make_dim_param_fixed

    proto = onnx.load(model)
    for value in proto.graph.input:
        sizes = feeds[value.name].shape if value.name in feeds else ()
        for dim, size in zip(value.type.tensor_type.shape.dim, sizes, strict=False):
            if dim.HasField("dim_param"):
                make_dim_param_fixed(proto.graph, dim.dim_param, size)
            else:
                dim.dim_value = size
    return proto


def _parameters(text: str) -> dict[str, tuple[Any, tuple[int, ...]]]:
    """Name -> element type and shape of the parameters of the last function, in order; outputs are those without `const`."""
    signature = re.findall(r"^void (\w+)\(([^{;]*)\) \{", text, re.MULTILINE)[-1]
    found = {}
    for parameter in re.split(r",\s*", signature[1]):
        parts = re.fullmatch(r"(const )?(\w+) (\w+)((?:\[[^\]]*\])*)", parameter.strip())
        if parts is None or parts[2] not in _TYPES:
            raise UnknownOption(f"comparing with emx-onnx-cgen: no way to call a function with {parameter.strip()!r}")
        sizes = tuple(int(size) for size in re.findall(r"(\d+)\]", parts[4]))
        found[("" if parts[1] else "=") + parts[3]] = (_TYPES[parts[2]], sizes)
    return {"(": (signature[0], ()), **found}


def compiled(model: Path, feeds: Mapping[str, np.ndarray]) -> Callable[[], list[np.ndarray]]:
    """A call of the model with these inputs, which gives the memory that every call writes.

    Raises:
        UnknownOption: the model cannot be written as C, or there is no C compiler or it failed.
    """
    from emx_onnx_cgen import Compiler
    from emx_onnx_cgen.compiler import CompilerOptions

    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        raise UnknownOption("comparing with emx-onnx-cgen needs a C compiler (cc, gcc or clang)")
    try:
        text = Compiler(CompilerOptions(large_weight_threshold=_INLINE_NBYTES)).compile(_with_sizes(model, feeds))
    except Exception as error:  # its errors have no common class
        raise UnknownOption(f"comparing with emx-onnx-cgen: it cannot write {model.name} as C: {error}") from error
    parameters = _parameters(text)
    name = parameters.pop("(")[0]
    with tempfile.TemporaryDirectory() as folder:
        source, library = Path(folder, "model.c"), Path(folder, "model.so")
        source.write_text(text, encoding="utf-8")
        command = [compiler, "-O3", "-march=native", "-shared", "-fPIC", "-o", str(library), str(source), "-lm"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise UnknownOption(f"comparing with emx-onnx-cgen: {compiler} failed on its text: {done.stderr[-500:]}")
        function = getattr(ctypes.CDLL(str(library)), name)
    function.restype = None
    outputs = [np.empty(shape, dtype) for key, (dtype, shape) in parameters.items() if key.startswith("=")]
    inputs = [np.ascontiguousarray(array) for array in feeds.values()]
    given = [(array.dtype, array.shape) for array in inputs]
    wanted = [(np.dtype(dtype), shape) for key, (dtype, shape) in parameters.items() if not key.startswith("=")]
    if given != wanted:
        raise UnknownOption(f"comparing with emx-onnx-cgen: its function takes {wanted}, and the inputs are {given}")
    addresses = [ctypes.c_void_p(array.ctypes.data) for array in (*inputs, *outputs)]

    def run() -> list[np.ndarray]:
        function(*addresses)
        assert len(inputs) == len(given)  # which the function reads
        return outputs

    return run
