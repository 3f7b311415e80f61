"""The benchmark models in torch, eager and by torch.compile: peers of `models.py` and `gpu.py`.

Models are built by tests/models/export.py, by their names; the packages torch and transformers are needed (the extra `train`).
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from intarsia.cli.peers import Runner


def families() -> Any:
    """tests/models/export.py, which builds the models. Raises ImportError without torch and transformers."""
    folder = str(Path(__file__).parents[1] / "tests" / "models")
    if folder not in sys.path:
        sys.path.insert(0, folder)
    import export

    return export


def call_of(name: str, feeds: Mapping[str, np.ndarray], compiled: bool, device: str, dtype: str) -> Callable[[], Any]:
    """A call of the model `name` with the inputs `feeds` on `device`, weights as torch's `dtype`.

    Raises:
        LookupError: no model of that name is built there.
    """
    import torch

    export = families()
    if name not in export.FAMILIES:
        raise LookupError(f"torch runs only what tests/models/export.py builds ({', '.join(export.FAMILIES)}), not {name!r}")
    torch.manual_seed(0)  # the weights of the exported model
    module = export.FAMILIES[name](False).model.eval()
    with torch.no_grad():
        export.unsettle_norms(module)
    module = module.to(device, getattr(torch, dtype))
    inputs = [torch.from_numpy(np.ascontiguousarray(array)).to(device) for array in feeds.values()]
    if compiled:
        module = torch.compile(module)

    def call() -> Any:
        with torch.inference_mode():
            return module(*inputs)

    return call


def runner(name: str, feeds: Mapping[str, np.ndarray], threads: int, compiled: bool) -> Runner:
    """The model in torch on the CPU in float32; the first call, in which torch.compile compiles, counts as creation."""
    import torch

    start = time.perf_counter()
    if threads:
        torch.set_num_threads(threads)
    call = call_of(name, feeds, compiled, "cpu", "float32")
    call()
    created = time.perf_counter() - start

    def run() -> Sequence[Any]:
        output = call()
        return [tensor.numpy() for tensor in (output if isinstance(output, tuple) else (output,))]

    return Runner("torch.compile" if compiled else "torch", run, created)
