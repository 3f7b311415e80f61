"""Single nodes on a provider, beside the reference provider: a node is refused, or its numbers are ONNX's.

`sweep` takes nodes from `node_variants`, many to a model (one session costs more than its nodes), and those of a model that
fails once more alone. What the reference provider does not run is no node of ONNX and does not count.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import field, replace
from typing import Any

import ml_dtypes
import numpy as np

from intarsia.graph.dtypes import DType
from intarsia.lazy_dataclass import dataclass
from intarsia.testing.node_variants import NodeCase

REFERENCE = "ReferenceExecutionProvider"
_TOGETHER = 32  # nodes of a model
_UNITS = 100  # in the last place of float32: what vendors' functions are allowed
_UNITS_NARROW = 4  # of float16 and bfloat16


@dataclass
class Sweep:
    """What a sweep found.

    Attributes:
        taken: nodes that the provider took.
        refused: nodes that it left to the reference provider.
        known: nodes whose NaN, infinities or extremes differ, as the provider's `not_exact` says.
        wrong: (node, how its result differs, or the error), of those that it took.
    """

    taken: int = 0
    refused: int = 0
    known: int = 0
    wrong: list[tuple[NodeCase, str]] = field(default_factory=list)

    def __str__(self) -> str:
        known = f" ({self.known} of NaN and extremes otherwise than ONNX, as documented)" if self.known else ""
        lines = [f"{self.taken} nodes taken{known}, {self.refused} refused, {len(self.wrong)} wrong"]
        return "\n".join([*lines, *(f"{case}: {text}" for case, text in self.wrong)])


def sweep(provider: Any, nodes: Iterable[NodeCase]) -> Sweep:
    """Run nodes on `provider` (as an element of `providers=`) and compare.

    The reference provider is compared with itself in float64, where the node has that type.
    """
    found = Sweep()
    for batch in _batches(nodes):
        expected = _expected(batch)
        valid = [case for case, values in zip(batch, expected, strict=True) if values is not None]
        wanted = [values for values in expected if values is not None]
        given = _run(valid, provider) if valid and not _is_reference(provider) else [(True, values) for values in wanted]
        for case, values, (taken, results) in zip(valid, wanted, given, strict=True):
            found.taken += taken
            found.refused += not taken
            text = _judged(case, results, values, provider) if taken else ""
            if text and case.numbers != "plain" and _qualified(case) in _class_of(provider).not_exact:
                found.known += 1
            elif text:
                found.wrong.append((case, text))
    return found


def _judged(case: NodeCase, results: list[np.ndarray] | str, expected: list[np.ndarray], provider: Any) -> str:
    """What is wrong with the outputs of a node that the provider took."""
    if isinstance(results, str):
        return results
    if _is_reference(provider):
        with np.errstate(over="ignore", invalid="ignore"):
            wide = [w.astype(e.dtype) for w, e in zip(wider(case) or (), expected, strict=False)]
        text = difference(case, results, [wide]) if wide else ""
        return f"not as in float64: {text}" if text else ""
    text = difference(case, results, [expected])
    if text and case.operator.startswith("QLinear") and _within_steps(results, expected, _class_of(provider).quantized_steps):
        text = ""
    if text and case.numbers == "hard" and _class_of(provider).flushes_denormals:
        flushed = [_expected([_flushed(case, which)])[0] for which in (case.constants, range(len(case.inputs)))]
        text = difference(case, results, [expected, *filter(None, flushed)])
    return text


def _within_steps(results: list[np.ndarray], expected: list[np.ndarray], steps: int) -> bool:
    """Whether quantised results differ by at most so many steps."""
    return all(
        f.dtype == e.dtype and f.shape == e.shape and bool((np.abs(f.astype(np.int64) - e.astype(np.int64)) <= steps).all())
        for f, e in zip(results, expected, strict=True)
    )


def _flushed(case: NodeCase, which: Collection[int]) -> NodeCase:
    """The node with zeros for the denormal numbers of these inputs."""
    inputs = [_without_denormals(x) if i in which else x for i, x in enumerate(case.inputs)]
    return replace(case, inputs=tuple(inputs))


def _without_denormals(x: np.ndarray | None) -> np.ndarray | None:
    if x is None or not DType.of(x.dtype).is_floating:
        return x
    return np.where(np.abs(x.astype(np.float64)) < float(ml_dtypes.finfo(x.dtype).tiny), np.zeros_like(x), x)


def _qualified(case: NodeCase) -> str:
    return f"{case.domain}::{case.operator}" if case.domain else case.operator


def _class_of(provider: Any) -> Any:
    """The provider's class, of its name, an instance, or (name, options)."""
    from intarsia.providers.registry import load_provider

    given = provider[0] if isinstance(provider, tuple) else provider
    return load_provider(given) if isinstance(given, str) else given


def _is_reference(provider: Any) -> bool:
    return bool(_class_of(provider).name == REFERENCE)


def _batches(nodes: Iterable[NodeCase]) -> Iterator[list[NodeCase]]:
    """Nodes of one opset version side by side."""
    waiting: dict[tuple[str, int], list[NodeCase]] = {}
    for node in nodes:
        together = waiting.setdefault((node.domain, node.version), [])
        together.append(node)
        if len(together) == _TOGETHER:
            yield waiting.pop((node.domain, node.version))
    yield from waiting.values()


def _expected(batch: Sequence[NodeCase]) -> list[list[np.ndarray] | None]:
    return [None if isinstance(values, str) else values for _, values in _run(batch, REFERENCE)]


def _run(batch: Sequence[NodeCase], provider: Any) -> list[tuple[bool, list[np.ndarray] | str]]:
    """Of each node: whether the provider took it, and its outputs, or the error of that node alone."""
    try:
        return _run_together(batch, provider)
    except Exception as error:  # noqa: BLE001 # a provider under test may raise anything: that is the finding
        if len(batch) == 1:
            return [(True, f"{type(error).__name__}: {str(error)[:300]}")]
        half = len(batch) // 2
        return [*_run(batch[:half], provider), *_run(batch[half:], provider)]


class _OneSpoilsOthers(Exception):
    """A node could not be compiled: the others of its part were left to the reference provider with it."""


def _run_together(batch: Sequence[NodeCase], provider: Any) -> list[tuple[bool, list[np.ndarray] | str]]:
    import intarsia

    options = intarsia.SessionOptions()
    options.graph_optimization_level = intarsia.GraphOptimizationLevel.ORT_ENABLE_BASIC  # the operators themselves
    entries = {
        "session.compile_in_background": "0", "partition.keep_islands": "1", "partition.shapes_on_host": "0",
        "session.provider_fallback": "warn",
    }  # fmt: skip
    for key, value in entries.items():
        options.add_session_config_entry(key, value)
    source, feed = model(batch)
    providers = [provider] if _is_reference(provider) else [provider, REFERENCE]
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore", intarsia.ProviderWarning)
        session = intarsia.InferenceSession(source, options, providers, enable_fallback=False)
        results = iter(session.run(None, feed))
    name = _class_of(provider).name
    explained = session.explain().nodes
    if len(batch) > 1 and any("compilation failed" in r.reason for n in explained for r in n.refusals.values()):
        raise _OneSpoilsOthers
    owner: dict[str, bool] = {}
    for node in explained:
        number = node.name.partition("/")[0].partition("_")[0]
        owner[number] = owner.get(number, True) and node.provider == name
    return [(owner.get(f"n{i}", False), list(itertools.islice(results, case.outputs))) for i, case in enumerate(batch)]


def model(batch: Sequence[NodeCase]) -> tuple[bytes, dict[str, np.ndarray]]:
    """A model of the nodes side by side, named n0, n1, ..., and what it is fed."""
    from onnx import ValueInfoProto, helper, numpy_helper

    nodes, inputs, constants, outputs, feed = [], [], [], [], {}
    for n, case in enumerate(batch):
        names = ["" if x is None else f"n{n}x{i}" for i, x in enumerate(case.inputs)]
        for i, (name, x) in enumerate(zip(names, case.inputs, strict=True)):
            if x is None:
                continue
            if i in case.constants:
                constants.append(numpy_helper.from_array(x, name))
                continue
            feed[name] = x
            shape = [f"{name}d{d}" if case.symbolic else size for d, size in enumerate(x.shape)]
            inputs.append(helper.make_tensor_value_info(name, int(DType.of(x.dtype)), shape))
        while names and not names[-1]:
            names.pop()
        results = [f"n{n}y{i}" for i in range(case.outputs)]
        nodes.append(helper.make_node(case.operator, names, results, f"n{n}", domain=case.domain, **dict(case.attributes)))
        outputs += [ValueInfoProto(name=name) for name in results]
    opsets = [helper.make_opsetid(batch[0].domain, batch[0].version)]
    if batch[0].domain:
        opsets.append(helper.make_opsetid("", 21))
    graph = helper.make_graph(nodes, "nodes", inputs, outputs, constants)
    return bytes(helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString()), feed


def wider(case: NodeCase) -> list[np.ndarray] | None:
    """The node's outputs of its float32 inputs as float64; None where it does not have that type."""
    narrow = (np.float32, np.float16, ml_dtypes.bfloat16)
    if not any(x is not None and x.dtype in narrow for x in case.inputs):
        return None
    inputs = tuple(x.astype(np.float64) if x is not None and x.dtype in narrow else x for x in case.inputs)
    (_, values), = _run([replace(case, inputs=inputs)], REFERENCE)  # fmt: skip
    return None if isinstance(values, str) else values


def difference(case: NodeCase, found: Sequence[Any], expected: Sequence[Sequence[Any]]) -> str:
    """How outputs differ from each of several expected ones, element by element; "" where they agree.

    Floats may differ by rounding: relative to each element where the operator is element-wise (`dense`), to the output's
    largest element elsewhere. Signs of zeros are not compared.
    """
    for i, f in enumerate(found):
        e = expected[0][i]
        if f.dtype != e.dtype or f.shape != e.shape:
            return f"output {i}: expected {e.dtype}{list(e.shape)}, got {f.dtype}{list(f.shape)}"
        good = np.zeros(e.shape, np.bool_)
        for other in (values[i] for values in expected if values[i].shape == e.shape):
            good |= _close(f, other, dense=case.dense) if DType.of(e.dtype).is_floating else f == other
        if not good.all():
            at = tuple(int(a[0]) for a in np.nonzero(~good)) if good.ndim else ()
            of = _element_at(case, at, e.shape)
            count = int(np.count_nonzero(~good))
            return f"output {i}: {count} of {e.size} elements differ, at {list(at)} expected {e[at]!s}, got {f[at]!s}{of}"
    return ""


def _close(found: np.ndarray, expected: np.ndarray, *, dense: bool) -> np.ndarray:
    eps = float(ml_dtypes.finfo(expected.dtype).eps)
    units = _UNITS if eps < 1e-4 else _UNITS_NARROW
    limit = float(ml_dtypes.finfo(expected.dtype).max)
    f, e = found.astype(np.float64), expected.astype(np.float64)
    finite = np.isfinite(e)
    scale = np.abs(e) if dense or not finite.any() else np.max(np.abs(e), where=finite, initial=0.0)
    with np.errstate(invalid="ignore"):
        near = np.abs(f - e) <= units * eps * np.maximum(scale, 0.1)
        overflows = (np.isinf(f) | np.isinf(e)) & (np.minimum(np.abs(f), np.abs(e)) > 0.999 * limit) & ((f > 0) == (e > 0))
    return np.asarray((f == e) | (np.isnan(f) & np.isnan(e)) | near | overflows)


def _element_at(case: NodeCase, at: tuple[int, ...], shape: tuple[int, ...]) -> str:
    """What an element of an element-wise operator's result was made of."""
    tensors = [x for x in case.inputs if x is not None]
    try:
        values = [str(np.broadcast_to(x, shape)[at]) for x in tensors]
    except ValueError:
        return ""
    return f" of {', '.join(values)}" if case.dense else ""
