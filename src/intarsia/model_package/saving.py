"""What of a package goes to a place: checks before it is written, its manifest, and the package as a whole at a new place."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from intarsia.errors import Fail, InvalidArgument
from intarsia.model_package import assets, json_text, schema
from intarsia.model_package.paths import is_below
from intarsia.model_package.schema import Component, Contents


def check_variant(package: Contents, component: Component, name: str) -> None:
    """Raise what opening the package would raise; without a root, what can be told from the texts of paths."""
    body = component.variants[name]
    if component.folder is None:
        for path in (body.get("variant_directory", name), *body.get("executor_info", {}).values()):
            if isinstance(path, str):
                package.rules.resolved(path)
        return
    package.variant_folder(component, name)
    for key in body.get("executor_info", {}):
        package.executor_text(component, name, key)


def check_dense(component: Component) -> None:
    for name, body in component.variants.items():
        for key, info in body.get("executor_info", {}).items():
            if isinstance(info, str):
                raise Fail(
                    f"WRITE_DENSE: component {component.name!r} variant {name!r} has external executor_info {key!r} (a path). "
                    "Set it by set_variant_executor_info_inline before a dense commit."
                )


def manifest_of(package: Contents, components: list[Component]) -> dict[str, Any]:
    listed = {c.name: c.path or c.body for c in components}
    return {**package.manifest, "components": listed}


def live_folders(package: Contents) -> Iterator[Path]:
    for component in package.components.values():
        if component.file is not None:
            yield component.file
        for name in component.variants:
            folder = package.variant_folder(component, name)
            if folder is not None:
                yield folder


def inlined(package: Contents, component: Component, root: Path) -> Component:
    """A component that has a file of its own as one in the manifest: its variants' folders as seen from the root."""
    body = copy.deepcopy(component.body)
    for name, variant in body["variants"].items():
        folder = package.variant_folder(component, name)
        if folder is None and component.folder is not None:
            folder = component.folder / name if "variant_directory" in variant else None
        if folder is not None:
            variant["variant_directory"] = folder.relative_to(root).as_posix() if is_below(folder, root) else str(folder)
    return Component(component.name, body, folder=root)


def saved_as(package: Contents, dest: Path, dense: bool) -> Contents:
    """The package at a new place. Raises as `ModelPackage.commit`."""
    if dest.exists() and not dest.is_dir():
        raise Fail(f"Commit dest_root '{dest}' exists and is not a directory.")
    if dest.is_dir() and any(dest.iterdir()):
        raise Fail(f"Commit dest_root '{dest}' is not empty.")
    package.check()
    root = package.root
    components = [_moved(package, c, dense) for c in package.components.values()]
    manifest = manifest_of(package, components)
    manifest.pop("shared_assets", None)
    copies = dict(_copies(package))
    links = [path for path in copies.values() if path.is_symlink()]
    for path in links:
        package.rules.checked(path, must_exist=True)
    with assets.writing(dest), assets.appearing(dest) as beside:
        for uri, source in package.assets().items():
            assets.copy_asset(uri, source, beside / assets.FOLDER / assets.folder_name(uri))
        for name, path in copies.items():
            assets.copy_file(path, beside / name)
        for component in components:
            for body in component.variants.values() if root is None else ():
                if "variant_directory" in body:
                    (beside / body["variant_directory"]).mkdir(parents=True, exist_ok=True)
            if component.file is not None and component.path and root is not None and is_below(component.file, root):
                assets.replace_text(beside / component.file.relative_to(root), json_text.pretty(component.body))
        assets.replace_text(beside / schema.MANIFEST, json_text.pretty(manifest))
        options = {
            "allow_external": package.allow_external, "follow_symlinks": package.follow_symlinks, "strict": package.strict
        }  # fmt: skip
        schema.read(beside, **options)
    return schema.read(dest, **options)


def _moved(package: Contents, component: Component, dense: bool) -> Component:
    """A component for a new place: what lies outside the package is referred to by absolute paths."""
    root = package.root
    if root is None:
        return component
    if component.path and (dense or component.file is None or not is_below(component.file, root)):
        return inlined(package, component, root)
    body = copy.deepcopy(component.body)
    for name, variant in body["variants"].items():
        folder = package.variant_folder(component, name)
        if folder is not None and not is_below(folder, root):
            variant["variant_directory"] = str(folder)
    return Component(component.name, body, component.path, component.file, component.folder)


def _copies(package: Contents) -> Iterator[tuple[str, Path]]:
    """(path in the new place, file) of all files in the variants' folders."""
    root = package.root
    if root is None:
        return
    shared = root / assets.FOLDER
    for component in package.components.values():
        for name in component.variants:
            folder = package.variant_folder(component, name)
            if folder is None or not is_below(folder, root):
                continue
            for path in sorted(folder.rglob("*")):
                if path.is_symlink() and path.is_dir():
                    raise InvalidArgument(f"Commit: '{path}' is a link to a folder, which is not copied; put the folder there")
                if path.is_file() and not is_below(path, shared) and path != root / schema.MANIFEST:
                    yield path.relative_to(root).as_posix(), path
