"""`ModelPackage`: model packages made and changed, by onnxruntime's class and methods."""

from __future__ import annotations

import copy
import dataclasses
import os
from pathlib import Path
from typing import Any, Self

from intarsia.errors import Fail, InvalidArgument, WrongType
from intarsia.model_package import assets, json_text, schema
from intarsia.model_package.paths import is_asset_uri, is_below
from intarsia.model_package.saving import check_dense, check_variant, inlined, live_folders, manifest_of, saved_as
from intarsia.model_package.schema import Component, Contents
from intarsia.values.ort_enums import ModelPackageWriteMode


def text_argument(value: Any, where: str) -> str:
    """A path or name that a caller gave, as text. Raises WrongType."""
    if isinstance(value, os.PathLike):
        value = os.fspath(value)
    if not isinstance(value, str):
        raise WrongType(f"{where}: expected text, got {value!r}")
    return value


def path_argument(value: Any, where: str) -> Path:
    """A path that a caller gave. Raises WrongType, or InvalidArgument where no file can have that name."""
    text = text_argument(value, where)
    if "\0" in text:
        raise InvalidArgument(f"{where}: a path has no NUL character, got {text!r}")
    return Path(text)


class ModelPackage:
    """A model package that is made or changed in memory, and written by `commit`. JSON arguments are text.

    A package is a folder of components (an encoder, a decoder), each with variants for providers, and assets that they share;
    `ModelPackageContext` opens it to run. Errors in arguments, files and paths are `InvalidArgument` (a ValueError), what does
    not exist is `NoSuchFile` (a FileNotFoundError), what cannot be done in this state is `Fail`. A context manager.
    """

    def __init__(self) -> None:
        manifest = {"schema_version": f"{schema.MAJOR}.{schema.MINOR}", "layout": schema.LAYOUTS[0], "components": {}}
        self._contents: Contents | None = Contents(None, manifest)
        self._orphans: list[Path] = []  # folders that nothing refers to any more
        self._orphans_on_disk: list[Path] = []  # those that the manifest on the disk still refers to
        self._prune_at_commit = False

    @staticmethod
    def open(
        package_root: str | os.PathLike[str],
        allow_external_paths: bool = False,
        follow_symlinks: bool = True,
        strict_unknown_fields: bool = True,
    ) -> ModelPackage:
        """An existing package.

        Args:
            allow_external_paths: also in a portable package, paths may be absolute or have `..`.
            follow_symlinks: False: links are errors. Links that leave a portable package always are.
            strict_unknown_fields: False: fields that are not known stay instead of being refused.

        Raises:
            NoSuchFile: the folder, its manifest, or what the manifest names does not exist.
            InvalidArgument: a file does not have the form that it should, or a path leads out of the package.
        """
        package = ModelPackage()
        package._contents = schema.read(
            path_argument(package_root, "package_root"), allow_external=bool(allow_external_paths),
            follow_symlinks=bool(follow_symlinks), strict=bool(strict_unknown_fields),
        )  # fmt: skip
        return package

    @staticmethod
    def compute_directory_hash(source_dir: str | os.PathLike[str]) -> str:
        """ "sha256:<hex>" of the names and bytes of a folder's files, by which a shared asset is known.

        Raises:
            NoSuchFile: not a folder.
            InvalidArgument: it has links or special files.
        """
        return assets.directory_uri(path_argument(source_dir, "source_dir"))

    def close(self) -> None:
        """Let the package go; what was not committed is lost."""
        self._contents = None

    def __enter__(self) -> Self:
        self._open()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _open(self) -> Contents:
        if self._contents is None:
            raise InvalidArgument("Model package is closed.")
        return self._contents

    # What is in it

    def get_info(self) -> dict[str, Any]:
        """Names, versions, components with their variants, and shared assets; paths are absolute."""
        package = dataclasses.replace(self._open(), allow_external=True)  # `commit` says what a portable layout forbids
        major, minor = schema.version_of(package.manifest)
        return {
            "schema_version_major": major,
            "schema_version_minor": minor,
            **{key: package.manifest.get(key) or None for key in ("package_name", "package_version", "description")},
            "layout": package.layout,
            "additional_metadata_json": _metadata(package.manifest),
            "components": [
                {
                    "name": component.name,
                    "additional_metadata_json": _metadata(component.body),
                    "variants": [_variant_info(package, component, name) for name in component.variants],
                }
                for component in package.components.values()
            ],
            "shared_assets": [{"uri": uri, "resolved_path": str(path)} for uri, path in package.assets().items()],
        }

    def get_component_json(self, component_name: str) -> str:
        """A component's JSON. Raises NoSuchFile where there is none of that name."""
        return json_text.compact(self._open().component(component_name).body)

    def get_variant_json(self, component_name: str, variant_name: str) -> str:
        """A variant's JSON. Raises NoSuchFile where there is none of that name."""
        return json_text.compact(self._open().component(component_name).variant(variant_name))

    def resolve_asset_uri(self, uri: str) -> str:
        """The folder of a shared asset. Raises NoSuchFile where the package has none of that URI."""
        return str(self._open().asset(text_argument(uri, "uri")))

    def resolve_string_ref(self, string_ref: str, base_dir: str | None = None, must_exist: bool = False) -> str:
        """The absolute path that a string in the package means: "sha256:<hex>", a path in such an asset, or a path from
        `base_dir` (default: the package's folder).

        Raises:
            InvalidArgument: it leads out of the package, or of the asset.
            NoSuchFile: no such asset; nothing is there, with `must_exist`.
        """
        base = None if base_dir is None else path_argument(base_dir, "base_dir")
        return str(self._open().string_ref(text_argument(string_ref, "string_ref"), base, bool(must_exist)))

    # Changes

    def set_metadata(self, name: str | None = None, version: str | None = None, description: str | None = None) -> None:
        """Set what the package says of itself; None leaves a text as it is, "" removes it."""
        package = self._open()
        given = {"package_name": name, "package_version": version, "description": description}
        for key, value in given.items():
            if value is not None and not isinstance(value, str):
                raise WrongType(f"set_metadata: {key}: expected text or None, got {value!r}")
        for key, value in given.items():
            if value:
                package.manifest[key] = value
            elif value == "":
                package.manifest.pop(key, None)

    def set_layout(self, layout: str) -> None:
        """ "portable": all paths are in the package. "installed": they may be absolute, or have `..`."""
        package = self._open()
        if layout not in schema.LAYOUTS:
            raise InvalidArgument(f"SetLayout: layout must be 'portable' or 'installed', got {layout!r}.")
        package.manifest["layout"] = layout

    def set_additional_metadata_json(
        self, scope: str, component_name: str | None = None, variant_name: str | None = None, json: str | None = None
    ) -> None:
        """Set free metadata of the package (scope "manifest"), a component or a variant; None removes it.

        Raises:
            InvalidArgument: another scope, names that it does not take, or no JSON.
            NoSuchFile: no such component or variant.
        """
        package = self._open()
        value = None if json is None else json_text.parsed_argument(json, "additional_metadata")
        names = (component_name, variant_name)
        if scope == "manifest":
            if names != (None, None):
                raise InvalidArgument("SetAdditionalMetadataJson: 'manifest' scope takes no component/variant.")
            body = package.manifest
        elif scope in ("component", "variant"):
            if component_name is None:
                raise InvalidArgument(f"SetAdditionalMetadataJson: {scope!r} scope: 'component_name' must not be None.")
            if (variant_name is None) != (scope == "component"):
                takes = "takes no variant" if scope == "component" else "'variant_name' must not be None"
                raise InvalidArgument(f"SetAdditionalMetadataJson: {scope!r} scope: {takes}.")
            component = package.component(component_name)
            body = component.body if variant_name is None else component.variant(variant_name)
        else:
            raise InvalidArgument(
                f"SetAdditionalMetadataJson: scope must be 'manifest', 'component', or 'variant', got {scope!r}."
            )
        if json is None:
            body.pop("additional_metadata", None)
        else:
            body["additional_metadata"] = value

    def set_component_inline(self, name: str, component_json: str) -> None:
        """Set a component that stands in the manifest.

        Raises:
            InvalidArgument: not a component's JSON, or a variant's folder is outside the package.
            NoSuchFile: a variant declares a folder that does not exist, in a package that has a root.
        """
        package = self._open()
        value = json_text.parsed_argument(component_json, f"component {name!r}")
        body = schema.check_component(text_argument(name, "name"), value, package.strict)
        component = Component(name, body, folder=package.root)
        for variant in component.variants:
            check_variant(package, component, variant)
        self._put(component)

    def set_component_external(self, name: str, path: str) -> None:
        """Set a component that has a file of its own: what the file holds, or an empty component where there is none yet.

        Args:
            path: in the package. A folder means its `component.json`; so does what does not exist, unless it ends in ".json".

        Raises:
            Fail: the package has no root yet.
            InvalidArgument: the path leads out of the package, or the file is no component.
        """
        package = self._open()
        if package.root is None:
            raise Fail("SetComponentExternal requires a package_root: open a package, or commit this one to a folder, first.")
        self._put(schema.external_component(package, text_argument(name, "name"), text_argument(path, "path")))

    def _put(self, component: Component) -> None:
        package = self._open()
        old = package.components.get(component.name)
        if old is not None:
            self._orphan_component(old)
        package.components[component.name] = component

    def remove_component(self, name: str) -> None:
        """Remove a component, if there is one of that name; its folders stay until `prune`."""
        component = self._open().components.pop(name, None)
        if component is not None:
            self._orphan_component(component)

    def set_variant(self, component_name: str, variant_name: str, variant_json: str) -> None:
        """Set a variant of a component.

        Raises:
            InvalidArgument: not a variant's JSON, or its folder is outside the package.
            NoSuchFile: no such component; it declares a folder that does not exist, in a package that has a root.
        """
        package = self._open()
        component = package.component(component_name, "SetVariant: ")
        value = json_text.parsed_argument(variant_json, f"variant {variant_name!r}")
        schema.check_variant(text_argument(variant_name, "variant_name"), value, package.strict)
        old = component.variants.get(variant_name)
        trial = Component(component.name, {"variants": {variant_name: value}}, folder=component.folder)
        check_variant(package, trial, variant_name)
        if old is not None:
            self._orphan_variant(component, variant_name)
        component.variants[variant_name] = value

    def remove_variant(self, component_name: str, variant_name: str) -> None:
        """Remove a variant, if there is one of that name; its folder stays until `prune`."""
        component = self._open().components.get(component_name)
        if component is not None and variant_name in component.variants:
            self._orphan_variant(component, variant_name)
            del component.variants[variant_name]

    def set_variant_executor_info_inline(
        self, component_name: str, variant_name: str, namespace_key: str, info_json: str
    ) -> None:
        """Set what one executor ("ort" is onnxruntime's and Intarsia's) needs to know of a variant, in the component's JSON.

        Raises:
            InvalidArgument: not a JSON object.
            NoSuchFile: no such component or variant.
        """
        value = json_text.parsed_argument(info_json, "executor_info")
        if not isinstance(value, dict):
            raise InvalidArgument(f"executor_info inline value: expected a JSON object, got {info_json[:100]!r}.")
        body = self._open().component(component_name).variant(variant_name)
        body.setdefault("executor_info", {})[text_argument(namespace_key, "namespace_key")] = value

    def set_variant_executor_info_external(self, component_name: str, variant_name: str, namespace_key: str, path: str) -> None:
        """As `set_variant_executor_info_inline`, from a JSON file in the variant's folder.

        Raises:
            InvalidArgument: the file is outside the package, or not JSON.
            NoSuchFile: no such component or variant; in a package that has a root, the file does not exist.
        """
        package = self._open()
        component = package.component(component_name)
        body = copy.deepcopy(component.variant(variant_name))
        body.setdefault("executor_info", {})[text_argument(namespace_key, "namespace_key")] = text_argument(path, "path")
        check_variant(
            package, Component(component.name, {"variants": {variant_name: body}}, folder=component.folder), variant_name
        )
        component.variants[variant_name] = body

    def remove_variant_executor_info(self, component_name: str, variant_name: str, namespace_key: str) -> None:
        """Remove an executor's entry, if there is one. Raises NoSuchFile where there is no such component or variant."""
        body = self._open().component(component_name).variant(variant_name)
        body.get("executor_info", {}).pop(namespace_key, None)

    # Shared assets

    def add_shared_asset(
        self, source_dir: str | os.PathLike[str], expected_uri: str | None = None, copy_in: bool = True
    ) -> str:
        """Add a folder that variants share, and return its URI, by which strings in the package refer to it.

        Args:
            expected_uri: the URI that the folder must have.
            copy_in: the folder is copied by the next `commit`, and has to stay until then. False: the package refers to it
                where it is, which an installed layout allows.

        Raises:
            NoSuchFile: no such folder.
            InvalidArgument: it has links or special files.
            Fail: it has another URI; `copy_in` is False in a portable package.
        """
        package = self._open()
        source = path_argument(source_dir, "source_dir")
        uri = assets.directory_uri(source, "AddSharedAsset")
        if expected_uri is not None and expected_uri != uri:
            raise Fail(f"AddSharedAsset: hash mismatch: computed {uri}, expected {expected_uri}.")
        if copy_in:
            package.pending[uri] = source.resolve()
            return uri
        if not package.rules.external:
            raise Fail("AddSharedAsset: copy_in=False rejected in portable layout (the path would point outside the package).")
        package.manifest.setdefault("shared_assets", {})[uri] = str(source.resolve())
        package.pending.pop(uri, None)
        return uri

    def remove_shared_asset(self, uri: str) -> None:
        """Remove a shared asset, if there is one: its folder in the package at once, folders elsewhere never.

        Nothing tells whether a variant refers to it.
        """
        package = self._open()
        uri = text_argument(uri, "uri")
        package.pending.pop(uri, None)
        places = package.manifest.get("shared_assets", {})
        if places.pop(uri, None) is not None and not places:
            del package.manifest["shared_assets"]
        folder = None if package.root is None else package.root / assets.FOLDER / assets.folder_name(uri)
        if folder is not None and is_asset_uri(uri) and folder.is_dir() and not folder.is_symlink():
            assets.remove_folder(folder)

    # Writing

    def commit(
        self, dest_root: str | os.PathLike[str] | None = None, mode: ModelPackageWriteMode = ModelPackageWriteMode.PRESERVE
    ) -> None:
        """Write the package: where it is, or, whole and with its variants' folders, to a new place, which is its own then.

        Files are written beside their place and moved there, the manifest last: a process that is killed leaves the package as
        it was, or as it became. A new place appears whole.

        Args:
            dest_root: a folder that is empty or does not exist.
            mode: DENSE: components that have files of their own move into the manifest.

        Raises:
            Fail: the package has no place yet and `dest_root` is None, or `dest_root` is not empty; DENSE, and an executor's
                entry is in a file of its own; an asset has changed since it was added.
            InvalidArgument, NoSuchFile: what is written could not be opened.
        """
        package = self._open()
        if not isinstance(mode, ModelPackageWriteMode):
            raise WrongType(f"commit: mode: expected ModelPackageWriteMode, got {mode!r}")
        dense = mode is ModelPackageWriteMode.DENSE
        for component in package.components.values() if dense else ():
            check_dense(component)
        if dest_root is not None:
            self._contents = saved_as(package, path_argument(dest_root, "dest_root"), dense)
            self._orphans.clear()
            self._orphans_on_disk.clear()
            return
        if package.root is None:
            raise Fail("Commit: package has no package_root. Give dest_root.")
        self._commit_in_place(package, package.root, dense)

    def _commit_in_place(self, package: Contents, root: Path, dense: bool) -> None:
        package.check()
        written = [inlined(package, c, root) if dense and c.path else c for c in package.components.values()]
        with assets.writing(root):
            for uri, source in package.pending.items():
                assets.copy_asset(uri, source, root / assets.FOLDER / assets.folder_name(uri))
        for component in written:
            if component.file is not None:
                assets.replace_text(component.file, json_text.pretty(component.body))
        assets.replace_text(root / schema.MANIFEST, json_text.pretty(manifest_of(package, written)))
        package.components = {c.name: c for c in written}
        package.pending.clear()
        self._orphans += self._orphans_on_disk
        self._orphans_on_disk.clear()
        if self._prune_at_commit:
            self.prune()

    def prune(self) -> None:
        """Remove folders of variants and components that were removed or replaced, and what writes that were cut short left.

        Only folders in the package that nothing refers to; shared assets never. What the manifest on the disk still refers to
        goes with the next `commit`.
        """
        package = self._open()
        if package.root is None:
            return
        for folder in (package.root, package.root / assets.FOLDER):
            assets.remove_leftovers(list(folder.glob("*.tmp.*")) if folder.is_dir() else ())
        alive = list(live_folders(package))
        for orphan in self._orphans:
            if orphan.is_dir() and not any(is_below(folder, orphan) for folder in alive):
                assets.remove_folder(orphan)
        self._orphans = [o for o in self._orphans if o.is_dir()]
        self._prune_at_commit = bool(self._orphans_on_disk)

    def _orphan_variant(self, component: Component, name: str) -> None:
        try:
            folder = self._open().variant_folder(component, name)
        except (FileNotFoundError, InvalidArgument):  # nothing there, or nothing of ours
            return
        self._orphan(folder)

    def _orphan_component(self, component: Component) -> None:
        for name in component.variants:
            self._orphan_variant(component, name)
        if component.file is not None and component.file.name == schema.COMPONENT:
            self._orphan(component.folder)

    def _orphan(self, folder: Path | None) -> None:
        root = self._open().root
        if folder is None or root is None or folder == root or not is_below(folder, root):
            return
        if not is_below(folder, root / assets.FOLDER):
            self._orphans_on_disk.append(folder)


def _metadata(body: dict[str, Any]) -> str | None:
    return json_text.compact(body["additional_metadata"]) if "additional_metadata" in body else None


def _variant_info(package: Contents, component: Component, name: str) -> dict[str, Any]:
    body = component.variants[name]
    folder = package.variant_folder(component, name)
    infos = body.get("executor_info", {})
    return {
        "name": name,
        "variant_directory": None if folder is None else str(folder),
        **{key: body.get(key) for key in ("ep", "device", "compatibility_string")},
        "additional_metadata_json": _metadata(body),
        "executor_info": {
            key: package.executor_text(component, name, key)
            for key, info in infos.items()
            if isinstance(info, dict) or component.folder is not None
        },
    }
