"""The tree of folders: imports point one way, no two modules import each other, and no folder holds too many."""

from __future__ import annotations

import ast
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import intarsia

ROOT = Path(intarsia.__file__).parent
ORDER = (
    "printable machine lazy_dataclass errors run_status progress log.handlers log graph primitives ops custom_ops passes ep "
    "partition cache datasets "
    "codegen.llvm codegen.elementwise codegen.builder codegen.loops codegen plan runtime device "
    "providers.options providers.foreign_names providers.missing_libraries providers.fallback "
    "providers.literal_names providers.plugin_packages "
    "providers.registry "
    "providers.reference "
    "providers.cpu.value_names providers.cpu.executable providers.cpu.kernels.common providers.cpu.kernels "
    "providers.cpu.legalize providers.cpu.step_passes providers.cpu.lowering providers.cpu.program providers "
    "values ep_context options model conversion "
    "stateful reports session sandbox session.inference_session session.model_compiler session.compile_worker sandbox.worker "
    "debug model_package capi compat backend tools testing "
    "quantization.numerics quantization.calibration quantization.description quantization.writers quantization "
    "quantization.verdict generation transformers cli"
).split()
"""Folders and modules from the bottom upwards; the longest that fits counts. docs/pipeline.md says what each is for.

A session holds an engine, that of a separate process too: what makes sessions comes behind `sandbox`, the rest before."""
OLD_NAMES = {"operators", "partition.provider"}  # of what is elsewhere now; they go with version 0.3
MODULES_IN_A_FOLDER, MODULES_AT_THE_ROOT = 25, 8


def name_of(file: Path) -> str:
    parts = file.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {name_of(file): file for file in sorted(ROOT.rglob("*.py"))}


def stage(module: str) -> int:
    """The number in ORDER of what holds this module; the package itself is the session's API, and its command comes last."""
    found = [i for i, entry in enumerate(ORDER) if module == entry or module.startswith(f"{entry}.")]
    return max(found, key=lambda i: len(ORDER[i]), default=len(ORDER) if module else ORDER.index("session.inference_session"))


def runs(tree: ast.Module) -> Iterator[ast.AST]:
    """Nodes that are no part of `if TYPE_CHECKING`."""
    waiting: list[ast.AST] = [tree]
    while waiting:
        node = waiting.pop()
        yield node
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
                waiting += child.orelse
            else:
                waiting.append(child)


@cache
def imported(module: str) -> frozenset[str]:
    """The package's modules that this one imports when it runs, in functions too."""
    found: set[str] = set()
    for node in runs(ast.parse(MODULES[module].read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name.removeprefix("intarsia").removeprefix(".") for alias in node.names if in_package(alias.name)}
        elif isinstance(node, ast.ImportFrom) and in_package(node.module or ""):
            base = (node.module or "").removeprefix("intarsia").removeprefix(".")
            for alias in node.names:
                inner = f"{base}.{alias.name}" if base else alias.name
                found.add(inner if inner in MODULES and not defines(base, alias.name) else base)
    return frozenset(found - {module})


def in_package(name: str) -> bool:
    return name.split(".")[0] == "intarsia"


@cache
def defines(package: str, name: str) -> bool:
    """Whether a package has something else of a module's name: `ops.registry` is a function."""
    tree = ast.parse(MODULES[package].read_text(encoding="utf-8"))
    return any(isinstance(node, ast.FunctionDef) and node.name == name for node in tree.body)


@pytest.mark.parametrize("module", [name for name in MODULES if name and name not in OLD_NAMES])
def test_imports_point_backwards(module: str) -> None:
    forward = [m for m in imported(module) if stage(m) > stage(module)]
    assert not forward, f"{module} imports {', '.join(forward)}; order: {' < '.join(ORDER)}"


def test_no_modules_import_each_other() -> None:
    found = [sorted(group) for group in cycles() if len(group) > 1]
    assert not found, "import each other: " + "; ".join(map(", ".join, found))


def cycles() -> list[frozenset[str]]:
    """Strongly connected modules, by Tarjan's algorithm."""
    number: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[frozenset[str]] = []

    def visit(module: str) -> None:
        number[module] = low[module] = len(number)
        stack.append(module)
        for other in sorted(imported(module) & MODULES.keys()):
            if other not in number:
                visit(other)
                low[module] = min(low[module], low[other])
            elif other in stack:
                low[module] = min(low[module], number[other])
        if low[module] == number[module]:
            at = stack.index(module)
            found.append(frozenset(stack[at:]))
            del stack[at:]

    for module in MODULES:
        if module not in number:
            visit(module)
    return found


def test_folders_hold_few_modules() -> None:
    held = Counter(file.parent.relative_to(ROOT).as_posix() for file in MODULES.values() if file.name != "__init__.py")
    at_root = held.pop(".") + 1  # with the package itself
    assert at_root <= MODULES_AT_THE_ROOT
    assert not {folder: n for folder, n in held.items() if n > MODULES_IN_A_FOLDER}


def test_names_say_where_they_are() -> None:
    """No module is called as one of the standard library, and no two of one provider have one name."""
    hides = [m for m in MODULES if m and "." not in m and m in sys.stdlib_module_names and m != "__main__"]
    assert not hides
    of_provider: dict[tuple[str, str], list[str]] = defaultdict(list)
    for module, file in MODULES.items():
        if module.startswith("providers.") and file.name != "__init__.py":
            of_provider[module.split(".")[1], file.stem].append(module)
    assert not {where: modules for where, modules in of_provider.items() if len(modules) > 1}


def test_folders_say_what_they_are_for() -> None:
    """Folders of ORDER, and those in them, are in the documents."""
    text = (ROOT.parents[1] / "docs" / "pipeline.md").read_text(encoding="utf-8")
    folders = {file.parent.relative_to(ROOT).as_posix() for file in MODULES.values()} - {"."}
    assert not [folder for folder in sorted(folders) if f"`{folder}/`" not in text and folder not in OLD_NAMES]
