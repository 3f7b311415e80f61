"""Installed packages that bring a plugin library: `onnxruntime-ep-openvino` and its kind, found by their metadata.

Nothing of a package is imported to find it: its files are listed in its RECORD, and the names of its providers stand as
texts in its `__init__.py`, where onnxruntime's convention wants the functions `get_library_path` and `get_ep_names`. Only
where these say more than a text is the package imported, when a provider of an unknown name is requested.
"""

from __future__ import annotations

import importlib
import os
import re
import sys
from collections.abc import Mapping
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path  # with what it imports it takes milliseconds, and a start on the CPU looks at no package

_DISTRIBUTION = re.compile(r"onnxruntime[-_.](ep[-_.][a-z0-9][a-z0-9._-]*|qnn)", re.IGNORECASE)
_SUFFIX = {"win32": ".dll", "darwin": ".dylib"}.get(sys.platform, ".so")
_OF_ONNXRUNTIME = "onnxruntime"  # the folder of packages that are whole builds of it, whose libraries are no plugins


class PluginPackage:
    """An installed distribution that brings a plugin library.

    Attributes:
        distribution: its normal name, "onnxruntime-ep-openvino".
        version: its version.
        requires: what it says that it needs.
        module: the package to import for what its metadata does not say; "" where it has none.
        folder: of that package.
        files: paths of shared libraries that may be the plugin.
    """

    def __init__(self, distribution: Any) -> None:
        from pathlib import Path

        self.distribution = normal(distribution.metadata["Name"])
        self.version = str(distribution.version)
        self.requires = tuple(distribution.requires or ())
        listed = [Path(str(distribution.locate_file(f))) for f in distribution.files or ()]
        self.files = tuple(f for f in listed if _is_plugin(f))
        packages = [f.parent for f in listed if f.name == "__init__.py" and _name_of(distribution, f.parent)]
        homes = [f.parent for f in self.files if f.parent in packages] or sorted(packages, key=lambda p: len(p.parts))
        self.folder = homes[0] if homes else None
        self.module = _name_of(distribution, self.folder) if self.folder is not None else ""

    @cached_property
    def library(self) -> Path | None:
        """The plugin's file; None where there is none, or several and the package has to be queried."""
        return self.files[0] if len(self.files) == 1 else None

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Names of its providers, as its source says them; () where the package has to be queried."""
        if self.folder is None:
            return ()
        from intarsia.providers.literal_names import literal_names

        try:
            return literal_names((self.folder / "__init__.py").read_text(encoding="utf-8"))
        except OSError:
            return ()

    @property
    def is_plugin(self) -> bool:
        """Whether it brings a library, or may when it is queried. Some packages only require others."""
        return bool(self.files or (self.module and self.module != _OF_ONNXRUNTIME))

    def ask(self) -> tuple[Path, tuple[str, ...]]:
        """Its library and the names of its providers, by importing it where its metadata does not say them.

        Raises:
            ValueError: it names no provider.
            Exception: what the package raises.
        """
        from pathlib import Path

        if self.library is not None and self.names:
            return self.library, self.names
        module = importlib.import_module(self.module)
        names = self.names or tuple(module.get_ep_names() if hasattr(module, "get_ep_names") else [module.get_ep_name()])
        if not names:
            raise ValueError("get_ep_names() gives no name")
        return self.library or Path(module.get_library_path()), tuple(str(name) for name in names)


def normal(name: str) -> str:
    """A distribution's name as PEP 503 writes it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def is_plugin_name(name: str) -> bool:
    """Whether a name is that of a distribution, and not of a provider."""
    return _DISTRIBUTION.fullmatch(name) is not None


def _is_plugin(path: Path) -> bool:
    name = path.name.removeprefix("lib")
    return path.suffix == _SUFFIX and name.startswith("onnxruntime_") and _OF_ONNXRUNTIME not in path.parts[-3:-1]


def _name_of(distribution: Any, folder: Path) -> str:
    """The name to import a folder of a distribution by; "" for one of another place or of onnxruntime itself."""
    from pathlib import Path

    root = Path(str(distribution.locate_file("")))
    parts = folder.relative_to(root).parts if folder.is_relative_to(root) else ()
    fits = parts and all(part.isidentifier() for part in parts) and parts[0] != _OF_ONNXRUNTIME
    return ".".join(parts) if fits else ""


def installed() -> Mapping[str, PluginPackage]:
    """Packages by their normal names. What is on the path is looked at again when a folder on it has changed."""
    return _found_on(tuple((folder, _changed_at(folder)) for folder in sys.path))


def _changed_at(folder: str) -> int:
    try:
        return os.stat(folder or ".").st_mtime_ns  # noqa: PTH116 # for every folder on the path
    except OSError:
        return 0


@lru_cache(maxsize=1)
def _found_on(path: tuple[tuple[str, int], ...]) -> Mapping[str, PluginPackage]:
    found: dict[str, PluginPackage] = {}
    for folder, _ in path:
        for name in _metadata_folders(folder or "."):
            from importlib.metadata import Distribution
            from pathlib import Path

            package = PluginPackage(Distribution.at(Path(folder or ".") / name))
            if package.is_plugin:
                found.setdefault(package.distribution, package)
    return found


def _metadata_folders(folder: str) -> list[str]:
    try:
        names = os.listdir(folder)  # noqa: PTH208 # names alone, of a folder with thousands
    except OSError:
        return []
    return sorted(n for n in names if n.endswith(".dist-info") and _DISTRIBUTION.fullmatch(n.partition("-")[0]))


def of(provider: str) -> PluginPackage | None:
    """The package whose provider has this name, or which has this name itself; None where none has."""
    packages = installed()
    if is_plugin_name(provider):
        return packages.get(normal(provider))
    return next((package for package in packages.values() if provider in package.names), None)
