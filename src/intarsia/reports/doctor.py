"""What is installed here, what works, and what is wrong: `intarsia.doctor()` and `intarsia doctor`."""

from __future__ import annotations

import json
import os
import platform
import re
import sys
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from intarsia.cache.disk_cache import cache_directory, cache_enabled, get_cache, unsafe_folder
from intarsia.errors import IntarsiaError, nearest
from intarsia.lazy_dataclass import dataclass
from intarsia.machine.resources import available_cores, cpu_quota, memory_limit, physical_memory
from intarsia.machine.version import __version__
from intarsia.partition.text_table import format_table
from intarsia.providers import plugin_packages
from intarsia.providers.foreign_names import KNOWN_ELSEWHERE
from intarsia.providers.plugin_answers import answer
from intarsia.providers.registry import (
    BUILTIN,
    ENTRY_POINT_GROUP,
    get_all_providers,
    load_provider,
    plugin_of,
    why_unavailable,
)

if TYPE_CHECKING:
    from intarsia.codegen.llvm.target import Target

ERROR, WARNING = "error", "warning"

ENVIRONMENT: dict[str, str] = {
    "INTARSIA_CACHE": "0: nothing is cached on disk",
    "INTARSIA_CACHE_DIR": "where compiled code is cached",
    "INTARSIA_CACHE_READ_ONLY": "1: the cache is somebody else's, who is trusted, and nothing is written there",
    "INTARSIA_PROGRAM_CACHE": "0: sessions do not start from the cache",
    "INTARSIA_COMPILE_IN_BACKGROUND": "whether runs go by the first tier while kernels are compiled: auto, 0 or 1",
    "INTARSIA_COMPILER_PROCESSES": "the most processes that compile at once; 0: none, the session's own process does",
    "INTARSIA_CPU_FEATURES": "instructions of the CPU that are used",
    "INTARSIA_PROVIDER_FALLBACK": "what happens when a provider cannot start",
    "ALLOW_RELEASED_ONNX_OPSET_ONLY": "operator sets that are not released",
    "ORT_LOAD_CONFIG_FROM_MODEL": "1: session options from the model's metadata",
    "XDG_CACHE_HOME": "the user's cache directory",
    "CUDA_VISIBLE_DEVICES": "GPUs that CUDA shows",
    "LD_LIBRARY_PATH": "where shared libraries are looked for first",
    "PYTHONPATH": "where Python packages are looked for first",
}
"""Variables that change what happens."""

_REQUIRED = {"numpy": "1.26", "onnx": "1.17", "ml_dtypes": "0.5", "llvmlite": "0.45"}
_OPTIONAL = ("openvino", "onnxruntime", "torch", "typer", "rich", "pillow")
# Distributions that put their files into the same folder, of which the last one installed wins.
_SAME_FOLDER: dict[str, str] = {
    "onnxruntime": r"onnxruntime(-(gpu|directml|openvino|training|training-cpu|qnn|silicon|rocm|cann|migraphx|webgpu|azure))?"
    r"|ort-nightly.*|onnxruntime-gpu-.*",
    "openvino": r"openvino|openvino-nightly|openvino-dev",
    "onnx": r"onnx|onnx-weekly|onnx-nightly",
    "numpy": r"numpy",
    "llvmlite": r"llvmlite",
    "ml_dtypes": r"ml-dtypes",
    "intarsia": r"intarsia",
}
_FEATURES = (
    "sse4.2", "avx", "fma", "f16c", "avx2", "avxvnni", "avx512f", "avx512bw", "avx512vnni", "avx512bf16", "avx512fp16",
    "amx-tile", "amx-int8", "amx-bf16", "neon", "dotprod", "i8mm", "bf16", "fullfp16", "sve", "sve2",
)  # fmt: skip
_READ_NBYTES = 256 << 20  # entries of the cache that are read, the most recent ones


@dataclass(frozen=True)
class Problem:
    """Something that is wrong: a stable code, how bad ("error": models do not run; "warning"), what, and what to do."""

    code: str
    severity: str
    message: str
    suggestion: str = ""


@dataclass(frozen=True)
class ProviderState:
    """A provider: whether it works here, its library's version, its devices, or what it lacks."""

    name: str
    works: bool
    installed: bool
    version: str
    devices: tuple[str, ...]
    missing: str


@dataclass(frozen=True)
class Diagnosis:
    """Prints itself; `to_dict` gives the same as data. `ok`: no problem is an error."""

    system: Mapping[str, str]
    providers: tuple[ProviderState, ...]
    packages: Mapping[str, str]
    cpu: Mapping[str, Any]
    limits: Mapping[str, Any]
    cache: Mapping[str, Any]
    environment: Mapping[str, str]
    problems: tuple[Problem, ...]

    @property
    def ok(self) -> bool:
        """Whether nothing found is an error."""
        return not any(problem.severity == ERROR for problem in self.problems)

    def __str__(self) -> str:
        lines = []
        for title in ("system", "packages", "cpu", "limits", "cache", "environment"):
            values: Mapping[str, Any] = getattr(self, title)
            shown = [(name, _shown(value)) for name, value in values.items()]
            lines += [title, *(f"  {name}: {value}" for name, value in shown or [("none", "")])]
        rows = [(p.name, "works" if p.works else "missing", p.version, ", ".join(p.devices), p.missing) for p in self.providers
                if p.installed]  # fmt: skip
        lines += ["", format_table(("provider", "", "version", "devices", "what is missing"), rows), ""]
        for problem in self.problems:
            lines.append(f"{problem.severity}: {problem.message} [{problem.code}]")
            lines += [f"  {problem.suggestion}"] if problem.suggestion else []
        return "\n".join([*lines, *([] if self.problems else ["nothing is wrong"])])

    def to_dict(self) -> dict[str, Any]:
        """All of it in dicts, lists, strings and numbers."""
        return {**asdict(self), "ok": self.ok}

    def to_json(self, indent: int | None = None) -> str:
        """`to_dict` as JSON text, indented by so many spaces (None: in one line)."""
        return json.dumps(self.to_dict(), indent=indent)


def doctor() -> Diagnosis:
    """Look at providers, packages, CPU, limits, cache and environment. Changes nothing; raises nothing for what it finds."""
    system = {
        "intarsia": f"{__version__} in {Path(__file__).parents[1]}",
        "python": f"{platform.python_implementation()} {platform.python_version()} in {sys.executable}",
        "platform": platform.platform(),
        "global interpreter lock": "on" if getattr(sys, "_is_gil_enabled", lambda: True)() else "off",
    }
    problems: list[Problem] = []
    packages = _packages(problems)
    providers = tuple(_provider(name, problems) for name in get_all_providers())
    if not any(p.works for p in providers):
        problems.append(Problem("no-provider", ERROR, "no provider works here", "pip install llvmlite"))
    cpu = _cpu(problems)
    limits = _limits(problems)
    cache = _cache(problems)
    environment = _environment(os.environ, problems)
    problems.sort(key=lambda problem: problem.severity != ERROR)
    return Diagnosis(system, providers, packages, cpu, limits, cache, environment, tuple(problems))


def obstacle(name: str) -> str:
    """What is missing for the provider `name` to work here; "" where nothing is."""
    try:
        package = plugin_of(name)
        return answer(package, name).missing if package is not None else why_unavailable(load_provider(name))
    except IntarsiaError as error:
        return str(error)


def is_installed(name: str) -> bool:
    """Whether Intarsia or an installed package has the provider."""
    import importlib.metadata

    listed = importlib.metadata.entry_points(group=ENTRY_POINT_GROUP, name=name)
    return name in BUILTIN or bool(listed) or plugin_packages.of(name) is not None


def _provider(name: str, problems: list[Problem]) -> ProviderState:
    missing = obstacle(name)
    installed = is_installed(name) or name not in KNOWN_ELSEWHERE
    if missing:
        if installed and name not in BUILTIN:
            problems.append(Problem("provider", WARNING, f"{name} is installed and does not work: {missing}"))
        return ProviderState(name, False, installed, "", (), missing)
    try:
        kind = load_provider(name)
        return ProviderState(name, True, installed, kind.library_version(), tuple(map(_device, kind.devices())), "")
    except Exception as error:  # noqa: BLE001 # a library behind a provider may raise anything
        text = f"{type(error).__name__}: {error}"
        problems.append(Problem("provider", WARNING, f"{name} does not say which devices it has: {text}"))
        return ProviderState(name, False, installed, "", (), text)


def _device(device: Any) -> str:
    return f"{device} ({device.description})" if device.description else str(device)


def _packages(problems: list[Problem]) -> dict[str, str]:
    import importlib.metadata

    found: dict[str, list[tuple[str, str]]] = {}
    for distribution in importlib.metadata.distributions():
        name, version = distribution.metadata["Name"], distribution.version
        if name and version:
            where = str(Path(str(distribution.locate_file(""))).resolve())
            entries = found.setdefault(_normal(name), [])
            if (version, where) not in entries:
                entries.append((version, where))
    problems += _conflicts(found)
    shown = {}
    for name, least in _REQUIRED.items():
        entries = found.get(_normal(name), [])
        shown[name] = entries[0][0] if entries else "not installed"
        if not entries:
            problems.append(Problem("missing-package", ERROR, f"{name} is not installed", f"pip install '{name}>={least}'"))
        elif _numbers(entries[0][0]) < _numbers(least):
            message = f"{name} {entries[0][0]} is older than {least}, the oldest version that is tested"
            problems.append(Problem("old-package", WARNING, message, f"pip install '{name}>={least}'"))
    shown |= {name: found[_normal(name)][0][0] for name in _OPTIONAL if _normal(name) in found}
    return shown


def _conflicts(found: Mapping[str, list[tuple[str, str]]]) -> list[Problem]:
    """Distributions that overwrite or hide each other. `found`: versions and places by normal name."""
    problems = []
    for folder, pattern in _SAME_FOLDER.items():
        hits = {name: entries for name, entries in sorted(found.items()) if re.fullmatch(pattern, name)}
        if len(hits) > 1:
            names = ", ".join(f"{name} {entries[0][0]}" for name, entries in hits.items())
            remove = f"pip uninstall {' '.join(hits)}; pip install --force-reinstall the one that you want"
            message = f"{names} are installed together and share the folder {folder!r}: what is imported is a mixture"
            problems.append(Problem("conflicting-packages", WARNING, message, remove))
        for name, entries in hits.items():
            if len(entries) > 1:
                copies = "; ".join(f"{version} in {where}" for version, where in entries)
                message = f"{name} is installed more than once: {copies}. The first is imported"
                problems.append(Problem("several-copies", WARNING, message, "remove all but one"))
    return problems


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(n) for n in re.findall(r"\d+", version.partition("+")[0])[:2])


def _cpu(problems: list[Problem]) -> dict[str, Any]:
    found: dict[str, Any] = {"machine": platform.machine(), "name": cpu_name()}
    try:
        from intarsia.codegen.llvm.target import Target

        target = Target.host()
    except IntarsiaError as error:
        problems.append(Problem("compiler", ERROR, str(error)))
        return found
    features = [name for name in _FEATURES if target.has(name)]
    found |= {"compiled for": target.cpu, "vectors": f"{8 * target.vector_bytes} bits", "features": features}
    found["AMX"] = _tiles(target, problems)
    if target.arch == "x86_64" and target.vector_bytes < 32:
        message = "the CPU (or INTARSIA_CPU_FEATURES) has no AVX2: models run several times slower than they could on others"
        problems.append(Problem("old-cpu", WARNING, message))
    return found


def _tiles(target: Target, problems: list[Problem]) -> str:
    """Whether tile registers are used, and why not."""
    from intarsia.codegen.llvm.target import host_facts
    from intarsia.machine.amx_permission import refusal

    if target.has_tiles:
        return "used: the system gives this process the tile registers"
    if "+amx-tile" not in host_facts()[2].split(","):
        return "not on this CPU, or kept off by the system or a hypervisor"
    if not (why := refusal()):
        return "not used: INTARSIA_CPU_FEATURES leaves it out, or the CPU has no tiles of bfloat16 or of bytes"
    message = f"the CPU has AMX, which this process cannot use: {why}"
    problems.append(Problem("no-amx", WARNING, message, "let the process call arch_prctl (a sandbox's rules, a newer kernel)"))
    return f"not used: {why}"


def cpu_name() -> str:
    """What the CPU is called; "unknown" where the system does not say."""
    try:
        text = Path("/proc/cpuinfo").read_text(errors="replace")
    except OSError:
        return platform.processor() or "unknown"
    match = re.search(r"^model name\s*:\s*(.+)$", text, re.MULTILINE)
    return match[1].strip() if match else platform.processor() or "unknown"


def _limits(problems: list[Problem]) -> dict[str, Any]:
    cores, quota, memory = os.cpu_count() or 1, cpu_quota(), memory_limit()
    affinity = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else cores
    if quota is not None and quota < 1:
        message = f"the container's CPU quota is {quota:g} cores: every run is interrupted"
        problems.append(Problem("cpu-quota", WARNING, message, "give the container at least one core"))
    return {
        "cores": cores, "cores this process may use": affinity, "cgroup cpu quota": quota,
        "threads of a run": available_cores(), "cgroup memory limit": memory, "memory": physical_memory(),
    }  # fmt: skip


def _cache(problems: list[Problem]) -> dict[str, Any]:
    directory = cache_directory()
    if not cache_enabled():
        return {"directory": str(directory), "state": "off: INTARSIA_CACHE says so"}
    store = get_cache()
    why = "" if store.shared else unsafe_folder(str(directory))
    if why:
        message = f"the cache {directory} is not used: {why}, and it holds machine code that this user runs"
        problems.append(Problem("open-cache", WARNING, message, f"chmod go-w {directory}"))
        return {"directory": str(directory), "state": f"not used: {why}"}
    entries = store.entries()
    damaged = store.damaged(_READ_NBYTES)
    if damaged:
        message = f"{len(damaged)} entries of the cache are damaged: they are made anew when they are needed"
        problems.append(Problem("damaged-cache", WARNING, message, "intarsia cache verify"))
    usable, why = _writable(directory)
    if not usable:
        message = f"the cache {directory} cannot be written ({why}): every process compiles its models anew"
        problems.append(
            Problem("read-only-cache", WARNING, message, "set INTARSIA_CACHE_DIR to a directory that can be written")
        )
    free = store.free_nbytes()
    if free < (1 << 30):
        message = f"the disk of the cache has {free >> 20} MiB left: large models are not cached"
        problems.append(Problem("full-disk", WARNING, message, "free some space, or set INTARSIA_CACHE_DIR"))
    return {
        "directory": str(directory), "state": "on" if usable else "cannot be written", "entries": len(entries),
        "bytes": sum(entry.nbytes for entry in entries), "limit": store.max_bytes, "free on disk": free,
        "damaged": len(damaged),
    }  # fmt: skip


def _writable(directory: Path) -> tuple[bool, str]:
    """Whether entries can be written; looks at the nearest folder that exists, and makes none."""
    folder = directory
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    if not folder.is_dir():
        return False, f"{folder} is not a folder"
    return (True, "") if os.access(folder, os.W_OK | os.X_OK) else (False, f"no permission to write to {folder}")


def _environment(variables: Mapping[str, str], problems: list[Problem]) -> dict[str, str]:
    ours = [name for name in ENVIRONMENT if name.startswith("INTARSIA_")]
    unknown = (name for name in variables if name.startswith("INTARSIA_") and name not in ENVIRONMENT)
    problems += [Problem("unknown-variable", WARNING, f"{name} has no effect: {nearest(name, ours)}") for name in unknown]
    return {name: variables[name] for name in sorted(ENVIRONMENT) if name in variables}


def _shown(value: Any) -> str:
    if value is None:
        return "none"
    if isinstance(value, int) and value >= 1 << 20:
        return f"{value / 2**30:,.2f} GiB"
    return " ".join(map(str, value)) if isinstance(value, Iterable) and not isinstance(value, str) else str(value)
