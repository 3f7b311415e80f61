"""`install_as("onnxruntime")`: programs and packages that import onnxruntime get Intarsia."""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Iterable, Sequence
from importlib.metadata import Distribution, DistributionFinder
from pathlib import Path
from types import ModuleType
from typing import Any

from intarsia.compat.not_provided import MODULES_LEFT_OUT, ModuleLeftOut, module_message
from intarsia.errors import Fail, InvalidArgument
from intarsia.providers.fallback import set_provider_fallback

API_VERSION = "1.32.0"
"""The version of onnxruntime whose Python API Intarsia follows: what packages see that ask for the alias's version."""


class _Alias(ModuleType):
    """The package under its other name: everything but its name and version is Intarsia's."""

    def __getattr__(self, name: str) -> Any:
        if name in MODULES_LEFT_OUT:  # onnxruntime's own, where that is installed
            return _submodule(self.__name__, name)
        return getattr(importlib.import_module("intarsia"), name)

    def __dir__(self) -> list[str]:
        return dir(importlib.import_module("intarsia"))


def _submodule(package: str, name: str) -> ModuleType:
    """A subpackage as an attribute; `hasattr` and `from PACKAGE import NAME` expect an AttributeError where there is none."""
    try:
        return importlib.import_module(f"{package}.{name}")
    except ModuleLeftOut as error:
        raise AttributeError(str(error)) from error


class _Loader(importlib.abc.Loader):
    """Gives an alias the module of its own name; loads nothing twice."""

    def __init__(self, own: str, alias: str) -> None:
        self.own, self.alias = own, alias

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        if spec.name == self.alias:
            module: ModuleType = _Alias(self.alias, importlib.import_module("intarsia").__doc__)
            module.__dict__.update(__version__=API_VERSION, get_version_string=lambda: API_VERSION)
            module.__dict__["__all__"] = list(importlib.import_module("intarsia").__all__)
            return module
        self.found = importlib.import_module(self.own)
        self.spec = self.found.__spec__
        return self.found

    def exec_module(self, module: ModuleType) -> None:
        if hasattr(self, "spec"):
            module.__spec__ = self.spec  # the import system has put the alias's there


class _Finder(DistributionFinder):
    """Finds an alias and its submodules, and the metadata of a package of that name."""

    def __init__(self, alias: str, tools: str | None) -> None:
        self.alias, self.tools = alias, tools

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != self.alias and not fullname.startswith(f"{self.alias}."):
            return None
        tail = fullname[len(self.alias) + 1 :]
        top = tail.split(".")[0]
        if top in MODULES_LEFT_OUT or (top == "tools" and self.tools is not None):
            return self._borrowed(fullname, tail, path)
        own = f"intarsia.{tail}" if tail else "intarsia"
        try:
            found = importlib.util.find_spec(own)
        except ModuleNotFoundError:
            found = None
        if found is None:
            return None
        spec = importlib.machinery.ModuleSpec(fullname, _Loader(own, self.alias), origin=found.origin)
        if found.submodule_search_locations is not None:
            spec.submodule_search_locations = []
        return spec

    def _borrowed(self, fullname: str, tail: str, path: Sequence[str] | None) -> importlib.machinery.ModuleSpec:
        """onnxruntime's tools in pure Python, from its own package where that is installed: they run over Intarsia."""
        if self.tools is None:
            raise ModuleLeftOut(module_message(tail))
        places = [self.tools] if "." not in tail else list(path or [])
        spec = importlib.machinery.PathFinder.find_spec(fullname, places)
        if spec is None:
            raise ModuleNotFoundError(f"No module named {fullname!r} in {places}", name=fullname)
        return spec

    def find_distributions(self, context: DistributionFinder.Context = DistributionFinder.Context()) -> Iterable[Distribution]:  # noqa: B008 # as in the base class
        if context.name is not None and context.name.lower().replace("_", "-") == self.alias:
            return [_Metadata(self.alias)]
        return []


class _Metadata(Distribution):
    """What `importlib.metadata` says of the alias."""

    def __init__(self, name: str) -> None:
        self._name = name

    def read_text(self, filename: str) -> str | None:
        if filename == "METADATA":
            return f"Metadata-Version: 2.1\nName: {self._name}\nVersion: {API_VERSION}\nSummary: intarsia under this name\n"
        return "" if filename == "RECORD" else None

    def locate_file(self, path: Any) -> Any:
        return Path(__file__).parents[1] / path


def install_as(name: str = "onnxruntime") -> None:
    """Let `import NAME` and its submodules give Intarsia from now on, in this process.

    The alias has the version of onnxruntime whose API it follows (`API_VERSION`), also for `importlib.metadata`. The
    subpackages `transformers` and `tools` are onnxruntime's own pure Python where its package is installed beside Intarsia,
    and run over Intarsia; else `tools` is Intarsia's, and importing `transformers` raises `ModuleLeftOut`.
    Calling this twice changes nothing.

    A provider that is named and not usable is a warning from now on, as in onnxruntime, and no error: the process's default for
    "session.provider_fallback" becomes "warn".

    Raises:
        InvalidArgument: not the name of a top-level module.
        Fail: another module of this name has been imported already.
    """
    if not isinstance(name, str) or not name.isidentifier() or name == "intarsia":
        raise InvalidArgument(f"install_as: expected the name of a top-level module such as 'onnxruntime', got {name!r}")
    if any(isinstance(f, _Finder) and f.alias == name for f in sys.meta_path):
        return
    if name in sys.modules:
        place = getattr(sys.modules[name], "__file__", "unknown")
        raise Fail(f"install_as({name!r}): {name} has been imported already, from {place}; call install_as before that")
    sys.meta_path.insert(0, _Finder(name, _folder_of(name)))
    set_provider_fallback("warn")


def uninstall(name: str = "onnxruntime") -> None:
    """Undo `install_as`: modules that have been imported keep what they hold.

    Raises:
        InvalidArgument: `install_as` was not called for this name.
    """
    found = [f for f in sys.meta_path if isinstance(f, _Finder) and f.alias == name]
    if not found:
        raise InvalidArgument(f"uninstall: install_as({name!r}) was not called")
    sys.meta_path[:] = [f for f in sys.meta_path if f not in found]
    if not any(isinstance(f, _Finder) for f in sys.meta_path):
        set_provider_fallback("listed")
    for module in [m for m in sys.modules if m == name or m.startswith(f"{name}.")]:
        del sys.modules[module]


def _folder_of(name: str) -> str | None:
    """The folder of the installed package of this name; it is not imported."""
    spec = importlib.machinery.PathFinder.find_spec(name)
    places = list(spec.submodule_search_locations or ()) if spec is not None else []
    return places[0] if places else None
