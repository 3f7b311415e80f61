"""ONNX's backend cases, their data, and the comparison of results with it. Needs the package onnx."""

from __future__ import annotations

import functools
import pickle
import warnings
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from intarsia.cache.disk_cache import cached, content_key
from intarsia.graph.dtypes import DType

KINDS = ("node", "simple", "pytorch-converted", "pytorch-operator")
TOLERANCE = {DType.FLOAT16: 2.0**-9, DType.BFLOAT16: 2.0**-6}  # two units in the last place
RANDOM = frozenset(
    f"test_bernoulli{suffix}" for suffix in ("", "_double", "_double_expanded", "_expanded", "_seed", "_seed_expanded")
)
"""Drawn by another generator than the suite's: type, shape and range are compared."""

ZEROS = {"test_dft_inverse": 1e-6, "test_dft_inverse_opset19": 1e-6}
"""Cases whose expected zeros are another library's rounding errors, and the absolute tolerance that these need."""

TRAINING = frozenset(("test_gradient_of_add", "test_gradient_of_add_and_mul"))
"""ai.onnx.preview.training::Gradient differentiates the graph around it: no inference runtime has it."""


@functools.cache
def suite(kind: str) -> dict[str, Any]:
    """All cases of one of `KINDS`, by name.

    onnx computes the results of its node cases in Python when they are imported, which takes five seconds of a processor:
    they are stored in the user's cache, for this onnx and this NumPy.
    """
    if kind != "node":
        return _made(kind)
    import onnx

    key = content_key("cases of onnx", onnx.__version__, np.__version__)
    found: dict[str, Any] = pickle.loads(  # noqa: S301 # the cache holds code that runs, and is its user's alone
        zlib.decompress(cached(f"cases-{key}", lambda: zlib.compress(pickle.dumps(_made(kind)), 1)))
    )
    return found


def _made(kind: str) -> dict[str, Any]:
    from onnx.backend.test.loader import load_model_tests

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the suite divides by zero on purpose
        return {case.name: case for case in load_model_tests(kind=kind)}


@functools.cache
def cases() -> dict[str, Any]:
    """Every case that needs no download and no training, by name."""
    return {name: case for kind in KINDS for name, case in suite(kind).items() if name not in TRAINING}


def sample(every: int) -> list[str]:
    """Names of about one case in `every`, always the same ones."""
    return [name for name in cases() if zlib.crc32(name.encode()) % every == 0]


def model_and_data(case: Any) -> tuple[Any, list[tuple[list[Any], list[Any]]]]:
    """The case's ModelProto, and its sets of (inputs, expected outputs)."""
    import onnx

    if not case.model_dir:
        return case.model, [(plain(list(given)), plain(list(wanted))) for given, wanted in case.data_sets]
    folder = Path(case.model_dir)
    model = onnx.load(folder / "model.onnx")
    sets = []
    for part in sorted(folder.glob("test_data_set_*")):
        columns = []
        for what, values in (("input", model.graph.input), ("output", model.graph.output)):
            count = len(list(part.glob(f"{what}_*.pb")))
            columns.append([_read(part / f"{what}_{i}.pb", values[i].type) for i in range(count)])
        sets.append((columns[0], columns[1]))
    return model, sets


def _read(path: Path, kind: Any) -> Any:
    """A serialised tensor, sequence or optional value."""
    import onnx
    from onnx import numpy_helper

    data = path.read_bytes()
    if kind.HasField("sequence_type"):
        return numpy_helper.to_list(onnx.SequenceProto.FromString(data))
    if kind.HasField("optional_type"):
        return numpy_helper.to_optional(onnx.OptionalProto.FromString(data))
    return numpy_helper.to_array(onnx.TensorProto.FromString(data))


def plain(value: Any) -> Any:
    """Arrays in place of protos, in lists too."""
    import onnx
    from onnx import numpy_helper

    if isinstance(value, list):
        return [plain(v) for v in value]
    return numpy_helper.to_array(value) if isinstance(value, onnx.TensorProto) else value


def difference(case: Any, actual: Any, expected: Any) -> str:
    """What is wrong with `actual`; "" where it agrees within the case's tolerances."""
    if expected is None or isinstance(expected, list):
        if type(actual) is not type(expected) or len(actual or ()) != len(expected or ()):
            return f"expected {expected!r}, got {actual!r}"
        return "; ".join(filter(None, map(difference, [case] * len(expected or ()), actual or (), expected or ())))
    expected = np.asarray(expected)
    dtype = DType.of(expected.dtype)
    if not isinstance(actual, np.ndarray) or actual.shape != expected.shape or DType.of(actual.dtype) is not dtype:
        given = f"{actual.dtype} {list(actual.shape)}" if isinstance(actual, np.ndarray) else type(actual).__name__
        return f"expected {expected.dtype} {list(expected.shape)}, got {given}"
    if case.name in RANDOM:
        return "" if np.isin(actual.astype(np.float32), (0, 1)).all() else "values other than 0 and 1"
    if dtype is DType.STRING:
        return "" if actual.astype(str).tolist() == expected.astype(str).tolist() else f"expected {expected}, got {actual}"
    if dtype.is_integer or dtype is DType.BOOL:
        wrong = np.count_nonzero(actual != expected)
        return f"{wrong} of {expected.size} elements differ" if wrong else ""
    wide = np.complex128 if dtype.is_complex else np.float64
    rtol = max(case.rtol, TOLERANCE.get(dtype, 0.0))
    close = np.isclose(
        actual.astype(wide), expected.astype(wide), rtol=rtol, atol=ZEROS.get(case.name, case.atol), equal_nan=True
    )
    if close.all():
        return ""
    with np.errstate(invalid="ignore", over="ignore"):  # equal infinities
        distance = np.abs(actual.astype(wide) - expected.astype(wide))
    worst = np.max(distance, where=~close, initial=0.0)
    return f"{np.count_nonzero(~close)} of {expected.size} elements differ, the worst by {worst:.3g}"


def run_case(case: Any, providers: Sequence[Any], sess_options: Any = None) -> tuple[Any, str]:
    """The session of a case, and what is wrong with its results ("" where nothing is). A failing run is not run elsewhere."""
    from intarsia.session.inference_session import InferenceSession

    model, sets = model_and_data(case)
    session = InferenceSession(model.SerializeToString(), sess_options, providers=list(providers), enable_fallback=False)
    return session, "; ".join(filter(None, _differences(case, session, model, sets)))


def _differences(case: Any, session: Any, model: Any, sets: Sequence[tuple[list[Any], list[Any]]]) -> Iterator[str]:
    names = [value.name for value in model.graph.input]
    for given, wanted in sets:
        found = session.run(None, dict(zip(names, given, strict=False)))
        if len(found) != len(wanted):
            yield f"expected {len(wanted)} outputs, got {len(found)}"
        yield from (difference(case, a, e) for a, e in zip(found, wanted, strict=False))
