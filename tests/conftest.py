"""Fixtures for all areas: golden texts; the example plugin, installed for one test by putting its folder on the path."""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import functools
import gc
import os
import re
import sys
import tomllib
import zlib
from collections.abc import Callable, Generator, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

# Sessions are built as a whole, whatever earlier runs of the tests left in the cache; tests of warm starts lift this.
os.environ["INTARSIA_PROGRAM_CACHE"] = "0"
# Nor do runs go by the first tier while kernels are compiled: tests look at kernels, plans and results as soon as a session is
# there. Tests of the first tier and of changing over set the entry "session.compile_in_background".
os.environ["INTARSIA_COMPILE_IN_BACKGROUND"] = "0"
# Nor are devices asked for known answers, but by the tests of that: imitated ones compute nothing.
os.environ.setdefault("INTARSIA_DEVICE_TEST", "0")

REFERENCE = "ReferenceExecutionProvider"
HEADER = '<ir_version: 8, opset_import: ["" : 17]>'
PLUGIN = Path(__file__).parent / "plugin_example"
# Modules that tests share stand beside them, and are imported by their names. Last, so that they hide no package.
_SHARING = {"test_contributed_peers", "test_matmul_int8", "test_microbatches", "test_qdq_to_integer", "test_transcendental"}
_SHARED = [f for f in Path(__file__).parent.rglob("*.py") if not f.name.startswith(("test_", "conftest")) or f.stem in _SHARING]
sys.path += sorted({str(f.parent) for f in _SHARED if PLUGIN not in f.parents})
_QUICK_ONE_IN = 40  # of the tests of a file; besides them its first one
_NOT_QUICK = {"models", "stress"}  # folders whose every test takes long


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="write golden texts anew instead of comparing with them")
    parser.addoption(
        "--property-examples", type=int, default=0, help="examples of each property of tests/properties, new ones in every run"
    )
    parser.addoption("--every-version", action="store_true", help="all types of all versions in tests/ops/test_every_type.py")
    parser.addoption("--hostile-cases", type=int, default=2000, help="cases of tests/properties/test_hostile.py")
    parser.addoption("--hostile-seed", type=int, default=0, help="the number of the first of them")
    parser.addoption("--quick", action="store_true", help="two minutes: of each file the first test and one in 40")
    parser.addoption("--nightly", action="store_true", help="also the tests marked nightly, which repeat what others show")
    parser.addoption("--passed-to", type=Path, metavar="FILE", help="write the names of tests that pass into this file (=FILE)")
    parser.addoption("--without", type=Path, metavar="FILE", help="leave out the tests that such a file names (=FILE)")
    parser.addoption("--guard-cases", type=int, default=10_000, help="runs in tests/guard (default: 10,000), about as many")
    parser.addoption("--guard-seed", type=int, default=0, help="what they are made of depends on this number (default: 0)")
    parser.addoption("--every-operand", action="store_true", help="all operands of tests/ops/test_wrong_operands.py")
    parser.addoption(
        "--sweep-nodes", default="", help="nodes of tests/providers/test_node_sweep.py: a number, 'all', or an operator"
    )
    parser.addoption("--first-tier", action="store_true", help="sessions of the CPU alone run on its first tier")
    parser.addoption("--stress-seconds", type=float, default=20.0, help="how long tests/stress goes on (default: 20)")
    parser.addoption("--stress-seed", type=int, default=0, help="what its threads choose depends on this number (default: 0)")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--property-examples"):  # read when the properties are imported
        os.environ["INTARSIA_PROPERTY_EXAMPLES"] = str(config.getoption("--property-examples"))
    else:
        _draw_the_same()
    if config.getoption("--first-tier"):
        _have_the_first_tier_alone()
    if _asks_for_nightly(config):
        os.environ["INTARSIA_NIGHTLY"] = "1"
    if (path := config.getoption("--passed-to")) and not hasattr(config, "workerinput"):
        config.pluginmanager.register(_Passed(path.absolute()))


def _have_the_first_tier_alone() -> None:
    """Sessions that do not say otherwise; its kernels are made if need be."""
    from intarsia.model.background_compile import FIRST_ONLY
    from intarsia.options.config_keys import SESSION_KEYS
    from intarsia.providers.cpu.first_tier import kernel_image

    SESSION_KEYS[FIRST_ONLY] = dataclasses.replace(SESSION_KEYS[FIRST_ONLY], default="1")
    if not kernel_image.is_made():
        kernel_image.make()


def _draw_the_same() -> None:
    """Properties outside tests/properties: the same examples in every run, however long they take."""
    with contextlib.suppress(ImportError):  # where a few files are run by the Python of another system
        from hypothesis import HealthCheck, settings

        slow = [HealthCheck.too_slow]
        settings.register_profile("same", derandomize=True, database=None, deadline=None, suppress_health_check=slow)
        settings.load_profile("same")


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection() -> Generator[None, object, object]:
    """Python looks for garbage neither while tests are collected nor, later, among the tens of thousands that stay."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.enable()


def pytest_runtest_setup(item: pytest.Item) -> None:
    marked = item.get_closest_marker("not_under_wine")
    if marked is not None and _is_wine():
        pytest.skip(f"Wine: {marked.args[0]}")


@functools.cache
def _is_wine() -> bool:
    return sys.platform == "win32" and hasattr(ctypes.WinDLL("ntdll"), "wine_get_version")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    known = config.getoption("--without")
    passed = set(known.read_text().splitlines()) if known else set()
    chosen = [item for item in items if item.nodeid not in passed]
    if not _asks_for_nightly(config):
        chosen = [item for item in chosen if item.get_closest_marker("nightly") is None]
    if config.getoption("--first-tier"):
        chosen = [item for item in chosen if item.get_closest_marker("tuned") is None]
    if config.getoption("--quick"):
        chosen = list(_sample(chosen))
    if len(chosen) < len(items):
        left = {id(item) for item in chosen}
        config.hook.pytest_deselected(items=[item for item in items if id(item) not in left])
        items[:] = chosen


def _asks_for_nightly(config: pytest.Config) -> bool:
    """By the option, by the mark, or by a test's name."""
    return config.getoption("--nightly") or "nightly" in config.option.markexpr or any("::" in given for given in config.args)


def _sample(items: Iterable[pytest.Item]) -> Iterator[pytest.Item]:
    """The same tests in every process and run: they are chosen by their names."""
    seen: set[Path] = set()
    for item in items:
        slow = item.path.parent.name in _NOT_QUICK or item.get_closest_marker("conformance") is not None
        if not slow and (item.path not in seen or zlib.crc32(item.nodeid.encode()) % _QUICK_ONE_IN == 0):
            seen.add(item.path)
            yield item


class _Passed:
    """Notes which tests pass. Where workers run them, the process that began these hears of all."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.failed: set[str] = set()
        self.passed: dict[str, None] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if not report.passed:
            self.failed.add(report.nodeid)
        elif report.when == "call":
            self.passed[report.nodeid] = None

    def pytest_sessionfinish(self) -> None:
        self.path.write_text("".join(f"{name}\n" for name in self.passed if name not in self.failed))


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """What tests/guard covered and what hostile models took, where they ran, in whatever process."""
    reports = [r for found in terminalreporter.stats.values() for r in found if getattr(r, "when", "") == "call"]
    for told in [value for report in reports for name, value in report.user_properties if name == "hostile models"]:
        terminalreporter.write_line(f"hostile models: {told}")
    found = [value for report in reports for name, value in report.user_properties if name == "guarded"]
    if found:
        from coverage_summary import lines

        terminalreporter.section("memory guarded by pages without access")
        for line in lines(found):
            terminalreporter.write_line(line)


@pytest.fixture
def check_golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """Compares a text with the file of that name in the folder `golden` beside the test, without hashes and serial numbers."""

    def check(name: str, text: str) -> None:
        path = request.path.parent / "golden" / name
        text = re.sub(r"_[0-9a-f]{32}\b", "_HASH", re.sub(r"#\d+", "#N", text))
        text = "".join(f"{line.rstrip()}\n" for line in text.splitlines())
        if request.config.getoption("--update-golden"):
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)
        assert text == path.read_text(), f"{path} differs; if the new text is right: pytest --update-golden"

    return check


def _installed(folder: Path, patch: pytest.MonkeyPatch) -> Iterator[str]:
    project = tomllib.loads((PLUGIN / "pyproject.toml").read_text())["project"]
    info = folder / "intarsia_example-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n")
    group, entries = next(iter(project["entry-points"].items()))
    lines = [f"[{group}]", *(f"{name} = {value}" for name, value in entries.items())]
    (info / "entry_points.txt").write_text("\n".join(lines) + "\n")
    patch.syspath_prepend(str(folder))
    patch.syspath_prepend(str(PLUGIN))
    yield next(iter(entries))
    sys.modules.pop("intarsia_example", None)


@pytest.fixture
def example_plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The name of the example plugin's provider, which is installed: its entry point is found as pip would leave it."""
    yield from _installed(tmp_path, monkeypatch)


@pytest.fixture(scope="module")
def installed_example(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """As `example_plugin`, for all tests of a module."""
    with pytest.MonkeyPatch.context() as patch:
        yield from _installed(tmp_path_factory.mktemp("plugin"), patch)


@pytest.fixture
def every_second_provider(example_plugin: str) -> Iterator[str]:
    """The name of a provider with its own memory that takes every second node."""
    from intarsia.providers.registry import load_provider, register_execution_provider, unregister_execution_provider

    base = load_provider(example_plugin)

    @dataclasses.dataclass(frozen=True)
    class EverySecond(base.Options):  # type: ignore[misc, name-defined]
        stride: int = 2

    class EverySecondExecutionProvider(base):  # type: ignore[misc, valid-type]
        name = "EverySecondExecutionProvider"
        Options = EverySecond

    register_execution_provider(EverySecondExecutionProvider, replace=True)
    yield EverySecondExecutionProvider.name
    unregister_execution_provider(EverySecondExecutionProvider.name)


def model_of(text: str, header: str = HEADER) -> Any:
    import onnx.parser

    return onnx.parser.parse_model(f"{header} {text}")


@pytest.fixture
def make_model() -> Callable[..., Any]:
    return model_of


@pytest.fixture
def make_session() -> Callable[..., Any]:
    """A session from the text of a graph; on the reference provider unless `providers` says otherwise."""

    def make(text: str, options: Any | None = None, header: str = HEADER, **kwargs: Any) -> Any:
        kwargs.setdefault("providers", [REFERENCE])
        import intarsia as ort

        return ort.InferenceSession(model_of(text, header).SerializeToString(), options, **kwargs)

    return make


@pytest.fixture(params=[REFERENCE, "CPUExecutionProvider"])
def any_session(request: pytest.FixtureRequest, make_session: Callable[..., Any]) -> Callable[..., Any]:
    """`make_session` once on each provider that runs everything."""

    def make(text: str, **kwargs: Any) -> Any:
        return make_session(text, providers=[request.param], **kwargs)

    return make
