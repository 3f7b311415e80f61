"""Model packages opened: the variant for a program's providers, and sessions on it, by onnxruntime's classes."""

from __future__ import annotations

import copy
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from intarsia.errors import EPFail, Fail, InvalidArgument, NotFound, UnknownOption, WrongType, nearest
from intarsia.log import logger
from intarsia.model_package import json_text, schema
from intarsia.model_package.authoring import path_argument, text_argument
from intarsia.model_package.schema import Component, Contents
from intarsia.options.session_options import SessionOptions
from intarsia.values.ort_enums import OrtCompiledModelCompatibility

if TYPE_CHECKING:
    from intarsia.session.inference_session import InferenceSession
    from intarsia.session.low_level_session import LowLevelSession

_CPU = "CPUExecutionProvider"
_OWN_ENTRY = "ort"
_PATH_KEYS = ("session.model_external_initializers_file_folder_path", "ep.context_file_path")
_FORBIDDEN_KEYS = frozenset("""
session.debug_layout_transformation session.collect_node_memory_stats_to_file session.enable_profiling
session.optimized_model_filepath session.optimized_model_external_initializers_file_name session.trust_compiled_model
ep.context_enable ep.context_model_external_initializers_file_name
""".split())  # fmt: skip
"""What a package may not ask for: that files are written, and that machine code of others is trusted."""
_FORBIDDEN_OPTIONS = (
    "_dir",
    "_path",
    "_file",
    "_library",
    "_external_alloc",
    "_external_free",
    "_external_empty_cache",
    "_stream",
)
_SCORES = {
    OrtCompiledModelCompatibility.EP_SUPPORTED_OPTIMAL: 100,
    OrtCompiledModelCompatibility.EP_SUPPORTED_PREFER_RECOMPILATION: 50,
    OrtCompiledModelCompatibility.EP_NOT_APPLICABLE: 0,
}
_CANNOT_SET = "only the program's own session options may set it"


@dataclass(frozen=True)
class _Slot:
    """What a variant's `executor_info["ort"]` says, its paths resolved."""

    model_file: Path | None
    session_options: Mapping[str, str]
    provider_options: Mapping[str, str]


class ModelPackageOptions:
    """The providers of session options, as they are now: by these a variant is chosen.

    A policy or delegate of the options is asked now. Options without providers mean the CPU.

    Raises:
        WrongType: no SessionOptions.
    """

    def __init__(self, sess_options: SessionOptions) -> None:
        if not isinstance(sess_options, SessionOptions):
            raise WrongType(f"ModelPackageOptions: expected SessionOptions, got {type(sess_options).__name__}")
        self._providers = [(name, dict(options)) for name, options in sess_options.providers] or [(_CPU, {})]


class ModelPackageContext:
    """An existing model package, to look at and to run. Files and paths are checked as a whole when it is made.

    Args:
        package_root: the package's folder.

    Raises:
        NoSuchFile: the folder, its manifest, or what the manifest names does not exist.
        InvalidArgument: a file does not have the form that it should, a path leads out of the package, or a variant requests
            an option that only a program may set.
    """

    def __init__(self, package_root: str | os.PathLike[str]) -> None:
        root = path_argument(package_root, "ModelPackageContext: package_root")
        try:
            self._package = schema.read(root)
        except InvalidArgument as error:
            raise InvalidArgument(f"Failed to open model package at '{root}': {error}") from None
        self._slots = {
            (component.name, name): _slot(self._package, component, name)
            for component in self._package.components.values()
            for name in component.variants
        }

    def get_schema_version(self) -> int:
        """The major version of the package's format."""
        return schema.version_of(self._package.manifest)[0]

    def get_component_count(self) -> int:
        """How many components the package has."""
        return len(self._package.components)

    def get_component_names(self) -> list[str]:
        """The components in the manifest's order."""
        return list(self._package.components)

    def get_variant_count(self, component_name: str) -> int:
        """How many variants a component has. Raises NotFound where there is no such component."""
        return len(self._component(component_name).variants)

    def get_variant_names(self, component_name: str) -> list[str]:
        """A component's variants in their order. Raises NotFound where there is no such component."""
        return list(self._component(component_name).variants)

    def get_variant_ep_name(self, component_name: str, variant_name: str) -> str | None:
        """The provider that a variant is for; None where it names none. Raises NotFound where there is no such variant."""
        component = self._component(component_name)
        if text_argument(variant_name, "variant_name") not in component.variants:
            known = nearest(variant_name, component.variants)
            raise NotFound(f"Variant {variant_name!r} not found in component {component_name!r}; {known}")
        found: str | None = component.variants[variant_name].get("ep")
        return found

    def resolve_string_ref(self, string_ref: str, base_dir: str | None = None, must_exist: bool = False) -> str:
        """As `ModelPackage.resolve_string_ref`."""
        base = None if base_dir is None else path_argument(base_dir, "base_dir")
        return str(self._package.string_ref(text_argument(string_ref, "string_ref"), base, bool(must_exist)))

    def select_component(self, component_name: str, options: ModelPackageOptions) -> ModelPackageComponentContext:
        """The variant of a component for the first of these providers that one fits.

        A variant fits a provider whose name is its `ep`, on a machine that has a device of its kind (`device`), unless the
        provider cannot load what was compiled for its `compatibility_string`. Of several the one that needs no compilation is
        taken, then the first.

        Raises:
            NotFound: no such component.
            Fail: no variant fits; it says why.
        """
        if not isinstance(options, ModelPackageOptions):
            raise WrongType(f"select_component: options: expected ModelPackageOptions, got {type(options).__name__}")
        component = self._component(component_name)
        reasons: list[str] = []
        for name, given in options._providers:
            scored = _fitting(component, name, reasons)
            if scored:
                best = max(scored, key=lambda variant: scored[variant])
                logger.info("model package: component %r: variant %r for %s", component.name, best, name)
                slot = self._slots[component.name, best]
                return ModelPackageComponentContext._of(self._package, component, best, slot, (name, given))
        raise Fail(
            f"No suitable model variant found for the configured execution providers: component {component.name!r}: "
            f"{'; '.join(reasons) or 'it has no variants'}"
        )

    def _component(self, name: str) -> Component:
        if text_argument(name, "component_name") not in self._package.components:
            raise NotFound(f"Component model not found: {name!r}; {nearest(name, self._package.components)}")
        return self._package.components[name]


class ModelPackageComponentContext:
    """A component with the variant that `ModelPackageContext.select_component` chose."""

    _package: Contents
    _component: Component
    _variant: str
    _slot: _Slot
    _provider: tuple[str, dict[str, Any]]

    def __init__(self) -> None:
        raise WrongType("ModelPackageComponentContext: ModelPackageContext.select_component makes it")

    @classmethod
    def _of(
        cls, package: Contents, component: Component, variant: str, slot: _Slot, provider: tuple[str, dict[str, Any]]
    ) -> ModelPackageComponentContext:
        made = cls.__new__(cls)
        made._package, made._component, made._variant, made._slot, made._provider = package, component, variant, slot, provider
        return made

    def get_selected_variant_name(self) -> str:
        """The name of the variant that was selected."""
        return self._variant

    def get_selected_variant_folder_path(self) -> str:
        """The variant's folder; "" where it has none."""
        folder = self._package.variant_folder(self._component, self._variant)
        return "" if folder is None else str(folder)

    def create_session(self, sess_options: SessionOptions | None = None) -> InferenceSession:
        """A session on the chosen variant, with its provider.

        Args:
            sess_options: None: new options with those that the package sets, for the session and the provider. Else these
                alone, with their providers where they name some; from the package come only paths (of external weights, of
                compiled parts) that they do not set.

        Raises:
            Fail: the variant names no model file.
            As `InferenceSession`.
        """
        from intarsia.session.inference_session import InferenceSession

        if sess_options is not None and not isinstance(sess_options, SessionOptions):
            raise WrongType(f"sess_options: expected SessionOptions or None, got {type(sess_options).__name__}")
        if self._slot.model_file is None:
            raise Fail(
                f'Selected variant {self._variant!r} has no executor_info["{_OWN_ENTRY}"]["model_file"]. '
                f"Component: {self._component.name}"
            )
        name, given = self._provider
        if sess_options is None:
            options = self._with(SessionOptions(), self._slot.session_options)
            provider = (name, {**given, **self._slot.provider_options})
        else:
            paths = {k: v for k, v in self._slot.session_options.items() if k in _PATH_KEYS}
            unset = {k: v for k, v in paths.items() if k not in sess_options.config_entries()}
            options = self._with(_copied(sess_options), unset) if unset else sess_options
            provider = (name, given)
        providers = None if sess_options is not None and sess_options.has_providers() else [provider]
        return InferenceSession(str(self._slot.model_file), options, providers, enable_fallback=False)

    def _create_session(self, sess_options: SessionOptions | None = None) -> LowLevelSession:
        """As `create_session`, in the low level form."""
        return self.create_session(sess_options)._sess

    def _with(self, options: SessionOptions, entries: Mapping[str, str]) -> SessionOptions:
        where = f"session_options of variant {self._variant!r} of component {self._component.name!r}"
        for key, value in entries.items():
            try:
                options.add_session_config_entry(key, value)
            except UnknownOption:  # a package is not its user's to correct
                logger.warning("%s: the entry %r is not known and has no effect", where, key)
            except InvalidArgument as error:
                raise InvalidArgument(f"{where}: {error}") from None
        return options


def _copied(options: SessionOptions) -> SessionOptions:
    """Options with entries of their own; all else is shared."""
    made = copy.copy(options)
    made.__dict__["_config"] = options.config_entries()
    made.set_progress_callback(options.progress_callback)
    return made


def _slot(package: Contents, component: Component, name: str) -> _Slot:
    """A variant's entry for this executor. Raises InvalidArgument where it requests what it may not."""
    where = f"variant {name!r} in component {component.name!r}"
    if _OWN_ENTRY not in component.variants[name].get("executor_info", {}):
        return _Slot(None, {}, {})
    text = package.executor_text(component, name, _OWN_ENTRY)
    body = json_text.parsed(text, f"ORT variant configuration for {where}")
    if not isinstance(body, dict):
        raise InvalidArgument(f"ORT variant configuration must be a JSON object for {where}")
    folder = package.variant_folder(component, name)

    def resolved(key: str, value: str) -> Path:
        try:
            return package.string_ref(value, folder, must_exist=False)
        except (InvalidArgument, FileNotFoundError) as error:
            raise type(error)(f"Failed to resolve ORT variant {key!r} = {value!r} for {where}: {error}") from None

    model_file = body.get("model_file")
    if "model_file" in body and not isinstance(model_file, str):
        raise InvalidArgument(f"ORT variant configuration: model_file must be a string for {where}, got {model_file!r}")
    session_options = _texts(body, "session_options", where)
    for key in _FORBIDDEN_KEYS & session_options.keys():
        raise InvalidArgument(
            f"ORT variant configuration: {key!r} cannot be set in model package session options for {where}: {_CANNOT_SET}"
        )
    provider_options = _texts(body, "provider_options", where)
    for key in provider_options:
        if key.endswith(_FORBIDDEN_OPTIONS):
            raise InvalidArgument(
                f"ORT variant configuration: {key!r} cannot be set in model package provider options for {where}: {_CANNOT_SET}"
            )
    for key in _PATH_KEYS:
        if key in session_options:
            session_options[key] = str(resolved(key, session_options[key]))
    return _Slot(None if model_file is None else resolved("model_file", model_file), session_options, provider_options)


def _texts(body: Mapping[str, Any], key: str, where: str) -> dict[str, str]:
    given = body.get(key, {})
    if not isinstance(given, dict):
        raise InvalidArgument(f"ORT variant configuration: {key!r} must be a JSON object for {where}, got {given!r}")
    for name, value in given.items():
        if not isinstance(value, str):
            raise InvalidArgument(f"ORT variant configuration: {key!r} entries must be strings for {where}, got {value!r}")
        if "\0" in name or not name:
            raise InvalidArgument(f"ORT variant configuration: {key!r} has an entry named {name!r} for {where}")
    return dict(given)


def _fitting(component: Component, provider: str, reasons: list[str]) -> dict[str, int]:
    """The score of each variant that fits a provider; `reasons` gets why the others do not."""
    from intarsia.providers.foreign_names import ALIASES
    from intarsia.providers.registry import load_provider, why_unavailable

    named = {ALIASES.get(name, name): name for name in [provider]}
    scores: dict[str, int] = {}
    devices: Sequence[Any] | None = None
    for variant, body in component.variants.items():
        if ALIASES.get(body.get("ep", ""), body.get("ep")) not in named:
            reasons.append(f"variant {variant!r} is for {body.get('ep')!r}, not for {provider!r}")
            continue
        if devices is None:
            try:
                kind = load_provider(provider)
                missing = why_unavailable(kind)
            except EPFail as error:
                missing = str(error)
            if missing:
                reasons.append(f"{provider} does not work on this machine: {missing}")
                return {}
            from intarsia.options.ep_devices import devices_of

            devices = devices_of(kind)
        why, scores_here = _score(body, devices)
        if why:
            reasons.append(f"variant {variant!r} {why}")
        else:
            scores[variant] = scores_here
    return scores


def _score(body: Mapping[str, Any], devices: Sequence[Any]) -> tuple[str, int]:
    """(why a variant does not fit these devices, or its score). Without devices of which anything is known, all kinds fit."""
    wanted = str(body.get("device") or "").lower()
    fitting = [d for d in devices if not wanted or d.device.type.name.lower() == wanted]
    if devices and not fitting:
        kinds = sorted({d.device.type.name.lower() for d in devices})
        return f"is for a device {body['device']!r}; the provider's are {kinds}", 0
    text = body.get("compatibility_string")
    if not text or not fitting:
        return "", 0
    from intarsia.session.model_compiler import get_model_compatibility_for_ep_devices

    found = get_model_compatibility_for_ep_devices(fitting[:1], text)
    if found not in _SCORES:
        return "was compiled for a machine or version that the provider cannot serve", 0
    return "", _SCORES[found]
