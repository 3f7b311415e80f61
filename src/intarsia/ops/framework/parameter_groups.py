"""Parameters of a definition that stand for several inputs or attributes of its operator which belong together.

A group is a dataclass whose fields have ONNX's names. As a keyword-only parameter it holds attributes, as another one inputs:

    @dataclass(frozen=True)
    class Window(ParameterGroup):
        kernel_shape: Sequence[int]
        strides: Sequence[int] | None = None

    @op("LpPool", since=18)
    def lp_pool(X, *, window: Window, p=2): ...

The operator has the attributes `kernel_shape`, `strides` and `p`: `flat` makes of such a definition the function of one
parameter for each that the registry holds, so that schemas, inference, derivatives and tables know nothing of groups. Other
definitions call the function itself, and hand whole groups on. An input before a group that is annotated `| None` may be left
out: Python has no defaults before parameters without one.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any, ClassVar

from intarsia.ops.framework.operands import OMITTED

_NO_DEFAULT = inspect.Parameter.empty
_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


class ParameterGroup:
    """Base of dataclasses whose fields are inputs or attributes of an operator."""

    __dataclass_fields__: ClassVar[dict[str, dataclasses.Field[Any]]]

    @classmethod
    def onnx_names(cls, parameter: str) -> list[str]:
        """ONNX's names of what the fields hold, in their order, where the group is the parameter of this name."""
        return [f.name for f in dataclasses.fields(cls)]

    @classmethod
    def parameters(cls, parameter: inspect.Parameter) -> list[inspect.Parameter]:
        """A parameter of this group's type as one for each field."""
        found = zip(cls.onnx_names(parameter.name), dataclasses.fields(cls), strict=True)
        return [inspect.Parameter(name, parameter.kind, default=_default(f), annotation=f.type) for name, f in found]


def _default(field: dataclasses.Field[Any]) -> Any:
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return _NO_DEFAULT if field.default is dataclasses.MISSING else field.default


def _optional(p: inspect.Parameter) -> inspect.Parameter:
    """An input that may be None, with that as its default."""
    may_be_none = p.kind in _POSITIONAL and p.default is _NO_DEFAULT and str(p.annotation).endswith("| None")
    return p.replace(default=None) if may_be_none else p


def flat(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function` with a parameter for each field of its groups; itself where it has none."""
    groups = dict(_groups(function))
    return FlatDefinition(function, groups) if groups else function


def _groups(function: Callable[..., Any]) -> Iterator[tuple[str, type[ParameterGroup]]]:
    """Parameters that are annotated as a group. Annotations are text (`from __future__ import annotations`)."""
    known = getattr(inspect.unwrap(function), "__globals__", {})
    for name, annotation in getattr(function, "__annotations__", {}).items():
        found = known.get(annotation) if isinstance(annotation, str) else annotation
        if isinstance(found, type) and issubclass(found, ParameterGroup) and name != "return":
            yield name, found


class FlatDefinition:
    """A definition whose groups are filled from inputs in their order, and from attributes by name."""

    __wrapped__: Callable[..., Any]

    def __init__(self, function: Callable[..., Any], groups: dict[str, type[ParameterGroup]]) -> None:
        functools.update_wrapper(self, function)
        self.function, self.groups = function, groups

    @cached_property
    def _parameters(self) -> list[inspect.Parameter]:
        return list(inspect.signature(self.function).parameters.values())

    @cached_property
    def __signature__(self) -> inspect.Signature:
        found: list[inspect.Parameter] = []
        for p in self._parameters:
            found += self.groups[p.name].parameters(p) if p.name in self.groups else [_optional(p)]
        optional = False
        for i, p in enumerate(found):
            optional = optional or p.default is not _NO_DEFAULT
            if p.kind in _POSITIONAL and optional and p.default is _NO_DEFAULT:
                found[i] = p.replace(default=OMITTED)
        return inspect.Signature(found)

    @cached_property
    def keyword_names(self) -> set[str]:
        """The attributes, and `node` where the definition wants it."""
        return {name for name, p in self.__signature__.parameters.items() if p.kind is inspect.Parameter.KEYWORD_ONLY}

    @cached_property
    def takes_any_keyword(self) -> bool:
        return any(p.kind is inspect.Parameter.VAR_KEYWORD for p in self._parameters)

    @cached_property
    def _inputs(self) -> list[tuple[type[ParameterGroup] | None, int, Any]]:
        """Of each parameter that is no attribute: its group, how many inputs it takes, and its default."""
        found: list[tuple[type[ParameterGroup] | None, int, Any]] = []
        for p in self._parameters:
            if p.kind in _POSITIONAL:
                group = self.groups.get(p.name)
                default = None if p.default is _NO_DEFAULT else p.default
                found.append((group, 1 if group is None else len(group.parameters(p)), default))
        return found

    @cached_property
    def _attributes(self) -> list[tuple[str, type[ParameterGroup], dict[str, str]]]:
        """Of each group of attributes: its parameter, its type, and its fields by attribute."""
        found = []
        for p in self._parameters:
            if p.kind is inspect.Parameter.KEYWORD_ONLY and p.name in self.groups:
                group = self.groups[p.name]
                fields = [f.name for f in dataclasses.fields(group)]
                found.append((p.name, group, dict(zip(group.onnx_names(p.name), fields, strict=True))))
        return found

    def __call__(self, *inputs: Any, **attributes: Any) -> Any:
        arguments: list[Any] = []
        place = 0
        for group, count, default in self._inputs:
            given = inputs[place : place + count]
            if group is not None:
                arguments.append(group(*given))
            else:
                arguments.append(given[0] if given else default)
            place += count
        for parameter, group, fields in self._attributes:
            attributes[parameter] = group(**{f: attributes.pop(name) for name, f in fields.items() if name in attributes})
        return self.function(*arguments, *inputs[place:], **attributes)


def keyword_names(function: Any) -> set[str]:
    """The names of a function's keyword-only parameters."""
    if isinstance(function, FlatDefinition):
        return function.keyword_names
    code = function.__code__
    return set(code.co_varnames[code.co_argcount : code.co_argcount + code.co_kwonlyargcount])


def takes_any_keyword(function: Any) -> bool:
    """Whether a function has `**attributes`."""
    return function.takes_any_keyword if isinstance(function, FlatDefinition) else bool(function.__code__.co_flags & 0x08)
