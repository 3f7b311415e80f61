"""Provider options: dictionaries from users, checked against the provider's frozen options dataclass."""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Mapping
from typing import Any, ClassVar, Protocol

from intarsia.errors import InvalidArgument, UnknownOption, nearest
from intarsia.lazy_dataclass import field_names

DeviceId = typing.NewType("DeviceId", int)
"""The type of an option that is the number of a device."""
FIRST_DEVICE = DeviceId(0)
Nbytes = typing.NewType("Nbytes", int)
"""The type of an option that is a number of bytes."""
NO_LIMIT = Nbytes(0)

_TRUE, _FALSE = ("1", "true", "yes", "on"), ("0", "false", "no", "off")


class HasOptions(Protocol):
    """A kind of provider, or of what else has declared options."""

    name: ClassVar[str]
    Options: ClassVar[type[Any]]


def parse_options(provider: type[HasOptions], given: Mapping[str, Any]) -> Any:
    """An instance of `provider.Options` from a dict of values or of their text forms.

    Raises:
        UnknownOption: a key is not an option of this provider (names the nearest).
        InvalidArgument: a value does not fit the option's type.
    """
    if (from_mapping := getattr(provider.Options, "from_mapping", None)) is not None:
        return from_mapping(given, provider.name)
    values: dict[str, Any] = {}
    fields = {f.name: f for f in dataclasses.fields(provider.Options)} if given else {}
    hints = typing.get_type_hints(provider.Options) if given else {}
    for key, value in given.items():
        if key not in fields:
            raise UnknownOption(f"{provider.name} has no option {key!r}; {nearest(str(key), fields)}")
        values[key] = _parse(value, hints[key], f"option {key!r} of {provider.name}")
    try:
        return provider.Options(**values)
    except ValueError as error:
        if isinstance(error, InvalidArgument):
            raise
        raise InvalidArgument(f"options of {provider.name}: {error}") from error


def values_of(options: Any) -> list[tuple[str, Any]]:
    """All options with their values, in order."""
    if (listed := getattr(options, "listed", None)) is not None:
        return list(listed().items())
    return [(name, getattr(options, name)) for name in field_names(type(options))]


def option_texts(options: Any) -> dict[str, str]:
    """All options with their effective values as text, as `InferenceSession.get_provider_options` returns them; those whose
    default is None only where they are set."""
    return {name: _text(value) for name, value in values_of(options) if value is not None}


def _text(value: Any) -> str:
    if value is None:
        return ""
    return ("1" if value else "0") if isinstance(value, bool) else str(value)


def _parse(value: Any, expected: Any, where: str) -> Any:
    origin = typing.get_origin(expected)
    if origin is typing.Literal:
        return _choice(value, typing.get_args(expected), where)
    if origin in (typing.Union, types.UnionType):
        members = [a for a in typing.get_args(expected) if a is not type(None)]
        if value is None or (value == "" and str not in members):
            return None
        return _parse(value, members[0], where)
    if expected is DeviceId:
        return device_id(value, where)
    if expected is Nbytes:
        return _nbytes(value, where)
    if expected is bool:
        return _bool(value, where)
    if expected in (int, float):
        return _number(value, expected, where)
    if expected is str:
        return str(value) if isinstance(value, (str, int, float)) and not isinstance(value, bool) else _text(value)
    return value


def _choice(value: Any, choices: tuple[Any, ...], where: str) -> Any:
    for choice in choices:
        if value == choice or str(value) == str(choice):
            return choice
    raise InvalidArgument(f"{where}: {value!r} is not a valid value; {nearest(str(value), map(str, choices))}")


def device_id(value: Any, where: str) -> DeviceId:
    """The number of a device, or its text; `where` begins the message of the error.

    Raises:
        InvalidArgument: it is no whole number, or is below 0.
    """
    return DeviceId(_from_zero(value, "the number of a device", where))


def _nbytes(value: Any, where: str) -> Nbytes:
    return Nbytes(_from_zero(value, "a number of bytes", where))


def _from_zero(value: Any, what: str, where: str) -> int:
    try:
        number = _number(value, int, where)
    except InvalidArgument:
        number = -1
    if number < 0:
        raise InvalidArgument(f"{where}: expected {what}, an integer from 0 on, got {value!r}")
    return int(number)


def _bool(value: Any, where: str) -> bool:
    if isinstance(value, bool):
        return value
    text = str(value).strip().lower()
    if text in _TRUE or text in _FALSE:
        return text in _TRUE
    raise InvalidArgument(f"{where}: expected a boolean (True, False, '1' or '0'), got {value!r}")


def _number(value: Any, expected: type, where: str) -> Any:
    if isinstance(value, (int, float, str)) and not isinstance(value, bool):
        try:
            number = expected(value)
        except ValueError:
            number = None
        if number is not None and (expected is float or isinstance(value, str) or number == value):
            return number
    raise InvalidArgument(f"{where}: expected {'an integer' if expected is int else 'a number'}, got {value!r}")
