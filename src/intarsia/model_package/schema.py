"""What the manifest, components and variants of a package may hold, and packages read by these rules."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from intarsia.errors import InvalidArgument, NoSuchFile, WrongType, nearest
from intarsia.model_package import assets, json_text
from intarsia.model_package.paths import Rules, is_asset_uri, split_asset_uri

MAJOR, MINOR = 1, 0
"""The version of the schema that is written; later minor versions are read too, with fields that are not known here."""
MANIFEST = "manifest.json"
COMPONENT = "component.json"
LAYOUTS = ("portable", "installed")

_TEXTS = ("package_name", "package_version", "description", "layout")
_MANIFEST_FIELDS = ("schema_version", *_TEXTS, "components", "shared_assets", "additional_metadata")
_COMPONENT_FIELDS = ("component_name", "variants", "additional_metadata")
_VARIANT_TEXTS = ("ep", "device", "compatibility_string")
_VARIANT_FIELDS = ("variant_directory", *_VARIANT_TEXTS, "executor_info", "additional_metadata")


def check_fields(value: Any, known: tuple[str, ...], where: str, strict: bool) -> dict[str, Any]:
    """`value` as a JSON object whose fields are known. Raises InvalidArgument."""
    if not isinstance(value, dict):
        raise InvalidArgument(f"{where}: expected a JSON object, got {_kind(value)}.")
    for name in value if strict else ():
        if name not in known:
            raise InvalidArgument(f"{where}: unknown field {name!r}. {nearest(name, known)}")
    return value


def _kind(value: Any) -> str:
    names = {dict: "an object", list: "an array", str: "text", bool: "true or false", int: "a number", float: "a number"}
    return names.get(type(value), "null")


def check_text(value: Any, where: str) -> None:
    """Raise InvalidArgument where `value` is no text."""
    if not isinstance(value, str):
        raise InvalidArgument(f"{where} must be a string, got {_kind(value)}.")


def version_of(manifest: Mapping[str, Any]) -> tuple[int, int]:
    """(major, minor) of a manifest. Raises InvalidArgument for others than this module reads."""
    if "schema_version" not in manifest:
        raise InvalidArgument("manifest: missing required 'schema_version'.")
    given = manifest["schema_version"]
    if isinstance(given, int) and not isinstance(given, bool):
        given = f"{given}.0"
    found = re.fullmatch(r"(-?\d{1,9})(?:\.(\d{1,9}))?", given, re.ASCII) if isinstance(given, str) else None
    if found is None:
        raise InvalidArgument(f"manifest: 'schema_version' must be a \"<major>.<minor>\" string, got {given!r}.")
    major, minor = int(found[1]), int(found[2] or 0)
    if major != MAJOR:
        raise InvalidArgument(f"manifest: schema_version major {major} is not supported (this build supports major {MAJOR}).")
    return major, minor


def check_variant(name: str, value: Any, strict: bool = True) -> None:
    """Raise InvalidArgument where `value` is no variant."""
    where = f"variant {name!r}"
    body = check_fields(value, _VARIANT_FIELDS, where, strict)
    for text in ("variant_directory", *_VARIANT_TEXTS):
        if text in body:
            check_text(body[text], f"{where}: {text!r}")
    infos = body.get("executor_info", {})
    if not isinstance(infos, dict):
        raise InvalidArgument(f"{where}: executor_info must be an object, got {_kind(infos)}.")
    for key, info in infos.items():
        if not isinstance(info, (str, dict)):
            raise InvalidArgument(
                f"{where}: executor_info[{key!r}] must be a string (path) or object (inline), got {_kind(info)}."
            )


def check_component(name: str, value: Any, strict: bool = True) -> dict[str, Any]:
    """`value` as a component. Raises InvalidArgument."""
    where = f"component {name!r}"
    body = check_fields(value, _COMPONENT_FIELDS, where, strict)
    if "component_name" in body:
        check_text(body["component_name"], f"{where}: component_name")
    if "variants" not in body:
        raise InvalidArgument(f"{where}: missing required 'variants' object.")
    if not isinstance(body["variants"], dict):
        raise InvalidArgument(f"{where}: 'variants' must be an object, got {_kind(body['variants'])}.")
    for variant, inner in body["variants"].items():
        check_variant(variant, inner, strict)
    return body


@dataclass
class Component:
    """A component: inside the manifest, or in a file of its own."""

    name: str
    body: dict[str, Any]
    path: str = ""
    """What the manifest says of it; "" where it is inside."""
    file: Path | None = None
    folder: Path | None = None
    """What its variants' folders are relative to; None in a package that has no root yet."""

    @property
    def variants(self) -> dict[str, Any]:
        found: dict[str, Any] = self.body["variants"]
        return found

    def variant(self, name: str) -> dict[str, Any]:
        """One variant's body. Raises NoSuchFile, as onnxruntime's FileNotFoundError, where there is none."""
        if not isinstance(name, str):
            raise WrongType(f"variant_name: expected text, got {name!r}")
        if name not in self.variants:
            raise NoSuchFile(f"variant {name!r} not found in component {self.name!r}; {nearest(str(name), self.variants)}")
        found: dict[str, Any] = self.variants[name]
        return found


@dataclass
class Contents:
    """A package as it is in memory."""

    root: Path | None
    manifest: dict[str, Any]
    """As in the file, but for the components."""
    components: dict[str, Component] = field(default_factory=dict)
    pending: dict[str, Path] = field(default_factory=dict)
    """Shared assets that the next commit copies: their source folders by URI."""
    allow_external: bool = False
    follow_symlinks: bool = True
    strict: bool = True

    @property
    def layout(self) -> str:
        return str(self.manifest.get("layout", LAYOUTS[0]))

    @property
    def rules(self) -> Rules:
        return Rules(self.root, self.allow_external or self.layout != LAYOUTS[0], self.follow_symlinks)

    def component(self, name: str, caller: str = "") -> Component:
        """One component. Raises NoSuchFile, as onnxruntime's FileNotFoundError, where there is none."""
        if not isinstance(name, str):
            raise WrongType(f"component_name: expected text, got {name!r}")
        if name not in self.components:
            raise NoSuchFile(f"{caller}component {name!r} not found; {nearest(str(name), self.components)}")
        return self.components[name]

    def variant_folder(self, component: Component, name: str) -> Path | None:
        """The folder of a variant: the one it declares, else that of its name if there is one.

        Raises:
            InvalidArgument: it leads out of the package.
            NoSuchFile: it is declared and does not exist.
        """
        if component.folder is None:
            return None
        declared = component.variants[name].get("variant_directory")
        found = self.rules.resolved(name if declared is None else declared, component.folder, must_exist=declared is not None)
        return found if found.exists() else None

    def executor_text(self, component: Component, name: str, key: str) -> str:
        """The JSON of one entry of a variant's `executor_info`, read from its file where it has one.

        Raises:
            NoSuchFile: the file, or the variant's folder, does not exist.
            InvalidArgument: the file is outside the package, or no JSON.
        """
        info = component.variants[name]["executor_info"][key]
        if isinstance(info, dict):
            return json_text.compact(info)
        text = json_text.read(self.executor_file(component, name, key, info))
        json_text.parsed(text, f"executor_info[{key!r}] of variant {name!r} in '{info}'")
        return text

    def executor_file(self, component: Component, name: str, key: str, path: str) -> Path:
        """Where the file of an entry of `executor_info` is. Raises as `executor_text`."""
        folder = self.variant_folder(component, name)
        if folder is None:
            raise NoSuchFile(
                f"variant {name!r}: executor_info[{key!r}] points at an external file but the variant has no resolved "
                "variant_directory to anchor it."
            )
        return self.rules.resolved(path, folder, must_exist=True)

    def assets(self) -> dict[str, Path]:
        """Where each shared asset is: what waits to be copied, the manifest's own places, then `shared_assets`."""
        found = {uri: self.asset_override(path) for uri, path in self.manifest.get("shared_assets", {}).items()}
        if self.root is not None:
            found |= {uri: path for uri, path in _discovered(self.root) if uri not in found}
        return found | self.pending

    def asset_override(self, path: str) -> Path:
        """The place of an asset that the manifest names. Raises InvalidArgument where that is outside the package."""
        return self.rules.resolved(path)

    def string_ref(self, text: str, base: Path | None, must_exist: bool) -> Path:
        """What a string in a package means: a path from `base` or the root, a shared asset, or a path in one.

        Raises:
            InvalidArgument: it leads out of the package, or of the asset.
            NoSuchFile: no such asset, or nothing there and it must exist.
        """
        parts = split_asset_uri(text)
        if parts is None:
            return self.rules.resolved(text, base, must_exist=must_exist)
        folder = self.asset(parts[0])
        return self.rules.resolved(parts[1], folder, must_exist=must_exist, inside=folder) if parts[1] else folder

    def asset(self, uri: str) -> Path:
        """The folder of a shared asset. Raises NoSuchFile where the package has none of that URI."""
        found = self.assets()
        if uri not in found:
            raise NoSuchFile(f"Asset URI not declared in this package: {uri!r}; the package has {sorted(found) or 'none'}.")
        return found[uri]

    def check(self) -> None:
        """Raise what `read` would raise for this package."""
        for component in self.components.values():
            if component.file is not None:
                self.rules.checked(component.file)
            for name, body in component.variants.items():
                self.variant_folder(component, name)
                for key in body.get("executor_info", {}) if component.folder is not None else ():
                    self.executor_text(component, name, key)
        self.assets()


def _discovered(root: Path) -> Iterator[tuple[str, Path]]:
    folder = root / assets.FOLDER
    for path in sorted(folder.iterdir()) if folder.is_dir() and not folder.is_symlink() else ():
        uri = path.name.replace("-", ":", 1)
        if is_asset_uri(uri) and path.is_dir() and not path.is_symlink():
            yield uri, path


def read(root: Path, *, allow_external: bool = False, follow_symlinks: bool = True, strict: bool = True) -> Contents:
    """The package in a folder.

    Raises:
        NoSuchFile: the folder, its manifest, or what the manifest names does not exist.
        InvalidArgument: a file is not JSON of the form that a package has, or a path leads out of the package.
    """
    if not root.is_dir():
        raise NoSuchFile(f"package_root '{root}' is not a directory.")
    root = root.resolve()
    Rules(root, False, follow_symlinks).checked(root / MANIFEST)
    manifest = json_text.loaded(root / MANIFEST)
    check_fields(manifest, (), "manifest", strict=False)
    _, minor = version_of(manifest)
    strict = strict and minor <= MINOR
    _check_manifest(manifest, strict)
    package = Contents(root, manifest, {}, {}, allow_external, follow_symlinks, strict)
    for name, value in manifest["components"].items():
        package.components[name] = _component(package, name, value)
    package.check()
    return package


def _check_manifest(manifest: dict[str, Any], strict: bool) -> None:
    check_fields(manifest, _MANIFEST_FIELDS, "manifest", strict)
    for name in _TEXTS:
        if name in manifest:
            check_text(manifest[name], f"manifest: {name!r}")
    if manifest.get("layout", LAYOUTS[0]) not in LAYOUTS:
        raise InvalidArgument(f"manifest: 'layout' must be 'portable' or 'installed', got {manifest['layout']!r}.")
    if "components" not in manifest:
        raise InvalidArgument("manifest: missing required 'components' object.")
    if not isinstance(manifest["components"], dict):
        raise InvalidArgument(f"manifest: 'components' must be an object, got {_kind(manifest['components'])}.")
    places = manifest.get("shared_assets", {})
    if not isinstance(places, dict):
        raise InvalidArgument(f"manifest: shared_assets must be an object, got {_kind(places)}.")
    for uri, path in places.items():
        if not is_asset_uri(uri):
            raise InvalidArgument(f"manifest: shared_assets key {uri!r} is not a valid sha256:<hex> URI.")
        if not isinstance(path, str):
            raise InvalidArgument(f"manifest: shared_assets[{uri!r}] must be a string path, got {_kind(path)}.")


def _component(package: Contents, name: str, value: Any) -> Component:
    if isinstance(value, dict):
        return Component(name, check_component(name, value, package.strict), folder=package.root)
    if not isinstance(value, str):
        raise InvalidArgument(f"component {name!r}: value must be a string (path) or object (inline), got {_kind(value)}.")
    file = package.rules.resolved(value, must_exist=True)
    if file.is_dir():
        if not (file / COMPONENT).is_file():
            raise NoSuchFile(f"component {name!r}: directory has no '{COMPONENT}'.")
        file = package.rules.checked(file / COMPONENT)
    body = check_component(name, json_text.loaded(file), package.strict)
    return Component(name, body, value, file, file.parent)


def external_component(package: Contents, name: str, path: str) -> Component:
    """A component in a file of its own: what the file holds, or an empty one where it does not exist yet.

    A path that does not exist is a file if it ends in ".json", else a folder for `component.json`.

    Raises:
        InvalidArgument: the path leads out of the package, or the file is no component.
    """
    if package.rules.resolved(path).exists():
        return _component(package, name, path)
    file = package.rules.resolved(path if path.endswith(".json") else f"{path}/{COMPONENT}")
    return Component(name, {"variants": {}}, path, file, file.parent)
