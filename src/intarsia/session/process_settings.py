"""What concerns the whole process: build information, seeds, thread counts, and settings that onnxruntime has and Intarsia
does not need."""

from __future__ import annotations

import platform
import sys
from typing import Any

from intarsia.errors import Fail, InvalidArgument, WrongType
from intarsia.machine.version import __version__

package_name = "intarsia"
version = __version__
cuda_version = ""


def get_build_info() -> str:
    """One line about this build: versions of the package, Python and the libraries it compiles with."""
    from importlib.metadata import PackageNotFoundError
    from importlib.metadata import version as installed

    found = []
    for name in ("numpy", "onnx", "ml_dtypes", "llvmlite"):
        try:
            found.append(f"{name}={installed(name)}")
        except PackageNotFoundError:
            found.append(f"{name}=none")
    python = f"python={platform.python_version()}"
    return f"ORT Build Info: intarsia={__version__}, {python}, {', '.join(found)}, machine={platform.machine()}"


def set_seed(seed: int) -> None:
    """Seed the random operators that have no seed of their own, in this process.

    Raises:
        WrongType: not an integer.
    """
    if isinstance(seed, bool) or not isinstance(seed, int):
        raise WrongType(f"set_seed: expected an integer, got {seed!r}")
    from intarsia.ops.tensor import random_tensors

    random_tensors.set_seed(seed % 2**64)


def enable_telemetry_events() -> None:
    """No effect: Intarsia has no telemetry and opens no connections."""


def disable_telemetry_events() -> None:
    """No effect: Intarsia has no telemetry and opens no connections."""


def has_collective_ops() -> bool:
    """False: no operators that communicate between processes."""
    return False


_pools_are_global = False


def set_global_thread_pool_sizes(intra_op_num_threads: int = 0, inter_op_num_threads: int = 0) -> None:
    """How many threads sessions use that set none themselves: pools are the process's in any case.

    Where Intarsia stands in for onnxruntime (`install_as`), sessions made later must say `use_per_session_threads = False`, as
    there.

    Args:
        intra_op_num_threads: threads of one run; 0: one per core this process may use.
        inter_op_num_threads: no effect: branches run on the threads of a run.

    Raises:
        InvalidArgument: a negative number.
        WrongType: no number.
    """
    for name, count in (("intra_op_num_threads", intra_op_num_threads), ("inter_op_num_threads", inter_op_num_threads)):
        if isinstance(count, bool) or not isinstance(count, int) or count < 0:
            wrong = InvalidArgument if isinstance(count, int) else WrongType
            raise wrong(f"set_global_thread_pool_sizes: expected {name} from 0, got {count!r}")
    from intarsia.runtime.executor import set_default_threads

    global _pools_are_global  # noqa: PLW0603 # it concerns the whole process
    _pools_are_global = True
    set_default_threads(intra_op_num_threads)


def check_threads(per_session: bool) -> None:
    """Raise Fail for a session that requests threads of its own after `set_global_thread_pool_sizes`."""
    if per_session and _pools_are_global:
        raise Fail(
            "set_global_thread_pool_sizes was called, and use_per_session_threads is True: expected a session that shares the "
            "process's threads; set SessionOptions.use_per_session_threads = False"
        )


def preload_dlls(cuda: bool = True, cudnn: bool = True, msvc: bool = True, directory: str | None = None) -> None:
    """No effect: providers load their libraries when they are first used."""


def print_debug_info() -> None:
    """Print versions and the providers of this machine."""
    from intarsia.providers.registry import get_available_providers

    print(get_build_info())  # printing is what it is for
    print(f"Python {sys.version}\n{platform.platform()}\nproviders: {', '.join(get_available_providers())}")


def is_dlpack_uint8_tensor(capsule: Any) -> bool:
    """Whether a DLPack capsule holds a uint8 tensor, which may stand for booleans."""
    from intarsia.values.dlpack import is_uint8_capsule

    return is_uint8_capsule(capsule)
