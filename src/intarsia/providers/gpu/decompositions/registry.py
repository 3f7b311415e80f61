"""The operators' definitions with those of the domain `intarsia.device` beside them: what host operators are in primitives
(`OpRecord.primitives`), and what is written for devices alone."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from typing import Any, TypeVar

from intarsia.ops import builtin, registry
from intarsia.ops.framework.parameter_groups import flat
from intarsia.ops.framework.registry import OpRecord, Registry

DOMAIN = "intarsia.device"
_FAMILIES = (
    "categories", "counted", "ngrams", "optionals", "random", "regions", "signals", "suppression",
    "trees",
)  # fmt: skip
_OWN = Registry()
F = TypeVar("F", bound=Callable[..., Any])


def device_op(name: str, values: tuple[str, ...] = ()) -> Callable[[F], F]:
    """Register a definition in primitives, as `ops.framework.registry.op` does."""

    def register(function: F) -> F:
        _OWN.add(OpRecord(DOMAIN, name, 1, flat(function), values=values))
        return function

    return register


def add(record: OpRecord) -> None:
    """Register what is no definition in primitives: its node is lowered (`control.lowering`)."""
    _OWN.add(record)


class DeviceRegistry(Registry):
    """ONNX's and the contributed operators as everywhere, and those of `DOMAIN`."""

    def find(self, domain: str, name: str, version: int) -> OpRecord | None:
        return (_OWN if domain == DOMAIN else registry()).find(domain, name, version)


@functools.cache
def device_registry() -> Registry:
    for family in _FAMILIES:
        importlib.import_module(f"intarsia.providers.gpu.decompositions.{family}")
    for record in builtin():
        if record.primitives is not None and (DOMAIN, record.name) not in _OWN.records:
            _OWN.add(OpRecord(DOMAIN, record.name, 1, record.primitives))
    return DeviceRegistry()
