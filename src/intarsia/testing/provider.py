"""A test suite for any execution provider: `python -m intarsia.testing.provider PACKAGE`.

PACKAGE is the name of a provider, "module:Class", or an importable module with one provider class (its entry points count).
The suite checks the contract of the class, conformance with ONNX's backend cases, single nodes in all combinations of
attributes and with numbers that are hard (`node_sweep`), memory and transfers, behaviour on faults, and many threads at once.
What the provider refuses is run by the reference provider, so every case runs; a refusal is no failure, a wrong answer is. The
exit status is 0 where every check passed.
"""

from __future__ import annotations

import argparse
import dataclasses
import gc
import importlib
import inspect
import itertools
import json
import logging
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from intarsia.ep.capability import Support
from intarsia.ep.provider import Device, DeviceTensor, ExecutionProvider
from intarsia.errors import IntarsiaError, InvalidArgument
from intarsia.lazy_dataclass import dataclass
from intarsia.partition.text_table import format_table
from intarsia.testing.cases import cases, run_case, sample
from intarsia.testing.node_sweep import sweep
from intarsia.testing.node_table import operators
from intarsia.testing.node_variants import NodeCase
from intarsia.testing.node_variants import cases as node_cases

SAMPLE = 12
NODES = 400  # of the sweep, where no other number is requested: twice as many as there are operators
REFERENCE = "ReferenceExecutionProvider"


@dataclass(frozen=True)
class Check:
    """One check's result. `detail` says what was seen; of a failed one, what is wrong."""

    area: str
    name: str
    ok: bool
    detail: str = ""


@dataclass(frozen=True)
class Report:
    """All checks of a run. Prints itself as a table."""

    provider: str
    checks: tuple[Check, ...]

    @property
    def failures(self) -> list[Check]:
        return [check for check in self.checks if not check.ok]

    def __str__(self) -> str:
        rows = [(c.area, c.name, "ok" if c.ok else "FAILED", c.detail) for c in self.checks]
        passed = len(self.checks) - len(self.failures)
        table = format_table(("area", "check", "result", "detail"), rows)
        return f"{self.provider}\n\n{table}\n\n{passed} of {len(self.checks)} checks passed"


def find_provider(package: str) -> type[ExecutionProvider]:
    """The provider class that `package` means.

    Raises:
        InvalidArgument: nothing of that name, or a module with no provider class, or with several.
    """
    from intarsia.providers.registry import get_all_providers, load_provider

    if package in get_all_providers():
        return load_provider(package)
    name, _, attribute = package.partition(":")
    try:
        module = importlib.import_module(name)
    except ImportError as error:
        raise InvalidArgument(f"{package!r} is neither a provider's name nor a module that can be imported: {error}") from error
    if attribute:
        found = [getattr(module, attribute, None)]
    else:
        members = vars(module).values()
        found = [m for m in members if inspect.isclass(m) and issubclass(m, ExecutionProvider) and "name" in vars(m)]
        found = [m for m in found if m.__module__.split(".")[0] == name.split(".")[0]]
    if len(found) != 1 or not (inspect.isclass(found[0]) and issubclass(found[0], ExecutionProvider)):
        names = [getattr(m, "__name__", repr(m)) for m in found]
        raise InvalidArgument(f"{package!r}: expected one subclass of ExecutionProvider, found {names}; write 'module:Class'")
    return found[0]


class Suite:
    """The checks for one provider with one set of options.

    Args:
        provider: the class.
        options: its options, as in `providers=[(name, options)]`.
        names: the conformance cases to run.
        nodes: the nodes of the sweep, as `nodes_of` has them.
    """

    def __init__(
        self, provider: type[ExecutionProvider], options: dict[str, Any], names: Sequence[str], nodes: str = "sample"
    ) -> None:
        from intarsia.providers.options import parse_options

        self.provider, self.names, self.nodes = provider, names, nodes
        self.options = parse_options(provider, options)

    def run(self, areas: Sequence[str] = ()) -> Report:
        """Run the checks of `areas` (all: empty)."""
        everything: dict[str, Callable[[], Iterator[tuple[str, str, str]]]] = {
            "contract": self.contract, "conformance": self.conformance, "sweep": self.sweep, "memory": self.memory,
            "faults": self.faults, "concurrency": self.concurrency,
        }  # fmt: skip
        found = []
        for area, checks in everything.items():
            if areas and area not in areas:
                continue
            try:
                for name, wrong, seen in checks():
                    found.append(Check(area, name, not wrong, wrong or seen))  # recorded even when a later check raises
            except Exception as error:  # noqa: BLE001 # a provider under test may raise anything: that is the finding
                found.append(Check(area, "runs", False, f"{type(error).__name__}: {error}"))
        return Report(self.provider.name, tuple(found))

    def make(self) -> ExecutionProvider:
        return self.provider(self.options)

    def _providers(self) -> list[Any]:
        return [self.make()] if self.provider.name == REFERENCE else [self.make(), REFERENCE]

    def contract(self) -> Iterator[tuple[str, str, str]]:
        """(name of the check, what is wrong, what was seen), as all of these methods give."""
        provider = self.provider
        name = provider.name
        yield "name", "" if name.endswith("ExecutionProvider") else f"{name!r} does not end in 'ExecutionProvider'", name
        frozen = dataclasses.is_dataclass(provider.Options) and provider.Options.__dataclass_params__.frozen  # type: ignore[attr-defined]
        yield "options", "" if frozen else "Options is no frozen dataclass", _fields(provider.Options)
        missing = provider.unavailable()
        yield "available", missing if isinstance(missing, str) else f"unavailable() returned {missing!r}, not a text", "yes"
        devices = provider.devices()
        wrong = "" if devices and all(isinstance(d, Device) for d in devices) else f"devices() returned {devices!r}"
        own = self.make().device
        if not wrong and not any(own.shares_memory_with(d) for d in devices):
            wrong = f"devices() returned {', '.join(map(str, devices))}, and not the provider's own device {own}"
        yield "devices", wrong, ", ".join(map(str, devices))
        yield "refusals have reasons", *self._refusals()

    def _refusals(self) -> tuple[str, str]:
        """Asked about nodes that no provider has."""
        from intarsia.graph.model import Graph, Node

        node = Node("NoSuchOperator", ["x"], ["y"], domain="no.such.domain")
        answer = self.make().supports(node, Graph(name="g", nodes=[node]))
        if not isinstance(answer, Support):
            return f"supports() returned {answer!r}, not a Support", ""
        return ("it says yes to an operator that does not exist", "") if answer else ("", answer.reason)

    def conformance(self) -> Iterator[tuple[str, str, str]]:
        """ONNX's cases; each wrong one is a finding."""
        taken = ran = 0
        for name in self.names:
            try:
                session, wrong = self._case(name)
            except IntarsiaError as error:
                yield name, f"{type(error).__name__}: {error}", ""
                continue
            ran += 1
            taken += self.provider.name in session.explain().counts
            if wrong:
                yield name, wrong, ""
        wrong = "" if taken or not self.names else "the provider took no node of any case"
        yield "cases", wrong, f"{ran} ran, {taken} of them with nodes on this provider"

    def _case(self, name: str) -> tuple[Any, str]:
        import intarsia

        options = intarsia.SessionOptions()
        options.add_session_config_entry("partition.keep_islands", "1")
        options.add_session_config_entry("session.provider_fallback", "warn")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", intarsia.ProviderWarning)
            return run_case(cases()[name], self._providers(), options)

    def sweep(self) -> Iterator[tuple[str, str, str]]:
        """Single nodes; each wrong one is a finding."""
        found = sweep(self.make(), nodes_of(self.nodes))
        for case, text in found.wrong:
            yield str(case), text, ""
        known = f", {found.known} of them otherwise than ONNX as documented" if found.known else ""
        yield "nodes", "", f"{found.taken} ran on this provider{known}, {found.refused} were refused"

    def memory(self) -> Iterator[tuple[str, str, str]]:
        instance = self.make()
        if not instance.device.host:
            yield from _transfers(instance)
        session, feed = self._model(), _feed(3)
        first = session.run(None, feed)
        copies = [np.array(value) for value in first]
        second = session.run(None, _feed(3, seed=1))
        shared = any(np.shares_memory(a, b) for a in first for b in (*second, *feed.values()))
        yield "results are the caller's own", "an output shares memory with an input or another run" if shared else "", ""
        changed = any(not np.array_equal(a, b) for a, b in zip(first, copies, strict=True))
        yield "results stay", "an output was changed by a later run" if changed else "", ""
        yield "nothing is left behind", *self._growth(session)

    def _growth(self, session: Any) -> tuple[str, str]:
        """By how much the process grows, in the best of three rounds: what runs lose is lost in each, and what others in
        the process do (a compilation in the background) is not."""
        feed = _feed(2048)
        for _ in range(20):
            session.run(None, feed)
        size, grown = sum(a.nbytes for a in feed.values()), 0
        for _ in range(3):
            gc.collect()
            before = _resident_nbytes()
            for _ in range(200):
                session.run(None, feed)
            gc.collect()
            grown = _resident_nbytes() - before
            if grown <= 50 * size:
                return "", f"{grown:,} bytes more after 200 runs"
        return f"{grown:,} bytes more after 200 runs with {size:,} bytes of inputs each", ""

    def faults(self) -> Iterator[tuple[str, str, str]]:
        import intarsia

        session = self._model()
        wanted = session.run(None, _feed(2))
        for what, feed in {"a missing input": {}, "another type": {"x": np.zeros((2, 8), np.int64)}}.items():
            yield what, _raises(session, feed, (IntarsiaError,)), ""
        stopped = intarsia.RunOptions()
        stopped.terminate = True
        yield "a run that is stopped", _raises(session, _feed(2), (intarsia.Fail,), stopped), ""
        again = session.run(None, _feed(2))
        same = all(np.array_equal(a, b) for a, b in zip(again, wanted, strict=True))
        yield "the session works afterwards", "" if same else "other results than before", ""
        many = [self._model() for _ in range(3)]
        same = all(np.array_equal(other.run(None, _feed(2))[0], wanted[0]) for other in many)
        yield "several sessions, made and dropped", "" if same else "other results than the first one's", ""

    def concurrency(self) -> Iterator[tuple[str, str, str]]:
        """Eight threads with inputs of different sizes in one session."""
        session = self._model()
        wanted = {n: session.run(None, _feed(n)) for n in range(1, 9)}
        wrong: list[str] = []

        def work(n: int) -> None:
            for _ in range(20):
                try:
                    found = session.run(None, _feed(n))
                except Exception as error:  # noqa: BLE001 # reported by the main thread
                    wrong.append(f"{type(error).__name__}: {error}")
                    return
                if not all(np.allclose(a, b, rtol=1e-5, atol=1e-6) for a, b in zip(found, wanted[n], strict=True)):
                    wrong.append(f"other results with {n} rows than alone")

        start = time.perf_counter()
        threads = [threading.Thread(target=work, args=(n,)) for n in wanted]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        seconds = time.perf_counter() - start
        yield "8 threads, 8 shapes, one session", "; ".join(wrong[:3]), f"160 runs in {seconds:.2f} s"

    def _model(self) -> Any:
        import intarsia

        options = intarsia.SessionOptions()
        options.add_session_config_entry("partition.keep_islands", "1")
        options.add_session_config_entry("session.provider_fallback", "warn")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", intarsia.ProviderWarning)
            return intarsia.InferenceSession(_network(), options, self._providers(), enable_fallback=False)


def nodes_of(text: str) -> Iterator[NodeCase]:
    """The sweep's nodes: "sample", "all", how many, or a part of the operators' names.

    Raises:
        InvalidArgument: no operator's name has that part.
    """
    if text == "all":
        return node_cases()
    if text == "sample" or text.isdigit():
        return itertools.islice(node_cases(), NODES if text == "sample" else int(text))
    if not any(text in name for _, name in operators()):
        raise InvalidArgument(f"--nodes: expected 'sample', 'all', a number or a part of an operator's name, got {text!r}")
    return node_cases(text)


def _network() -> bytes:
    """[N, 8] float32 -> two outputs, by a few of the most common operators."""
    from onnx import TensorProto, helper, numpy_helper

    rng = np.random.default_rng(0)
    weights = {"w": (8, 16), "b": (16,), "v": (16, 4)}
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["h"]), helper.make_node("Add", ["h", "b"], ["s"]),
        helper.make_node("Relu", ["s"], ["r"]), helper.make_node("MatMul", ["r", "v"], ["z"]),
        helper.make_node("Softmax", ["z"], ["p"]),
    ]  # fmt: skip
    graph = helper.make_graph(
        nodes, "network", [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 8])],
        [helper.make_tensor_value_info("p", TensorProto.FLOAT, ["N", 4]), helper.make_tensor_value_info("r", 1, ["N", 16])],
        [numpy_helper.from_array(rng.standard_normal(s).astype(np.float32), n) for n, s in weights.items()],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return bytes(model.SerializeToString())


def _feed(rows: int, seed: int = 0) -> dict[str, np.ndarray]:
    return {"x": np.random.default_rng(seed).standard_normal((rows, 8)).astype(np.float32)}


def _transfers(provider: ExecutionProvider) -> Iterator[tuple[str, str, str]]:
    """Copies in and out of the provider's memory, for types and shapes of all kinds."""
    transfer, device = provider.get_data_transfer(), provider.device
    arrays: list[np.ndarray] = [
        np.arange(24, dtype=dtype).reshape(2, 3, 4) for dtype in (np.float32, np.int32, np.int64, np.uint8, np.float16)
    ] + [np.array(3.5, np.float32), np.zeros((2, 0, 3), np.float32), np.array([True, False])]  # fmt: skip
    wrong = []
    for array in arrays:
        tensor = transfer.copy_in(array, device)
        back = transfer.copy_out(tensor)
        if not isinstance(tensor, DeviceTensor) or back.dtype != array.dtype or not np.array_equal(back, array):
            wrong.append(f"{array.dtype} {list(array.shape)}")
    yield "copies in and out", f"changed: {', '.join(wrong)}" if wrong else "", f"{len(arrays)} arrays"
    source = np.ones(4, np.float32)
    tensor = transfer.copy_in(source, device)
    source[:] = 2
    own = np.array_equal(transfer.copy_out(tensor), np.ones(4, np.float32))
    yield "copies are copies", "" if own else "the tensor changed with the array it was made from", ""
    first, second = transfer.copy_out(tensor), transfer.copy_out(tensor)
    yield "copies out are new", "two copies out share memory" if np.shares_memory(first, second) else "", ""


def _raises(session: Any, feed: dict[str, Any], kinds: tuple[type[Exception], ...], options: Any = None) -> str:
    try:
        session.run(None, feed, options)
    except kinds:
        return ""
    except Exception as error:  # noqa: BLE001 # the kind of error is what is checked
        return f"expected {' or '.join(k.__name__ for k in kinds)}, got {type(error).__name__}: {error}"
    return f"expected {' or '.join(k.__name__ for k in kinds)}, got no error"


def _fields(options: Any) -> str:
    return ", ".join(f.name for f in dataclasses.fields(options)) if dataclasses.is_dataclass(options) else ""


def _resident_nbytes() -> int:
    """Memory of this process now; 0 where the system does not say."""
    try:
        with open("/proc/self/statm", encoding="ascii") as file:  # noqa: PTH123 # a file of the kernel
            return int(file.read().split()[1]) * 4096
    except OSError:
        return 0


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line. Returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m intarsia.testing.provider", description="Test an execution provider.")
    parser.add_argument("package", help="a provider's name, 'module:Class', or a module with one provider class")
    parser.add_argument("--options", default="{}", help="the provider's options as JSON")
    parser.add_argument("--cases", default="sample", help="'sample', 'all', or a part of the names of ONNX's cases")
    parser.add_argument(
        "--nodes", default="sample", help="of the sweep: 'sample', 'all' (days), how many, or a part of the operators' names"
    )
    parser.add_argument("--area", action="append", default=[], help="only this area; may be repeated")
    given = parser.parse_args(arguments)
    logging.getLogger("intarsia.providers").setLevel(logging.ERROR)  # a provider that takes nothing of a case is no news here
    try:
        provider = find_provider(given.package)
        names = sample(SAMPLE) if given.cases == "sample" else list(cases())
        names = names if given.cases in ("sample", "all") else [n for n in names if given.cases in n]
        report = Suite(provider, json.loads(given.options), names, given.nodes).run(given.area)
    except (IntarsiaError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(report)
    return 1 if report.failures else 0


if __name__ == "__main__":
    sys.exit(main())
