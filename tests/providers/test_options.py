"""Options from users' dicts, by the fields of the provider's dataclass."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import pytest

from intarsia.ep.provider import ExecutionProvider
from intarsia.errors import InvalidArgument, UnknownOption
from intarsia.providers.options import option_texts, parse_options


@dataclass(frozen=True)
class Options:
    device_id: int = 0
    fast: bool = False
    scale: float = 1.0
    cache: str = ""
    strategy: Literal["kNextPowerOfTwo", "kSameAsRequested"] = "kNextPowerOfTwo"
    level: Literal[0, 1] = 0
    limit: int | None = None

    def __post_init__(self) -> None:
        if self.device_id < 0:
            raise ValueError(f"device_id: expected 0 or more, got {self.device_id}")


class Tunable(ExecutionProvider):
    name = "TunableExecutionProvider"
    Options = Options


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, Options()),
        ({"device_id": "1", "fast": "True", "scale": "0.5", "cache": "/tmp/x"}, Options(1, True, 0.5, "/tmp/x")),
        ({"device_id": 1.0, "fast": 1, "scale": 2, "cache": 7}, Options(1, True, 2.0, "7")),
        ({"fast": False, "cache": True}, Options(cache="1")),
        ({"fast": "0"}, Options()),
        ({"strategy": "kSameAsRequested", "level": "1"}, Options(strategy="kSameAsRequested", level=1)),
        ({"limit": 2 * 1024**3}, Options(limit=2 * 1024**3)),
        ({"limit": "5"}, Options(limit=5)),
        ({"limit": ""}, Options()),
        ({"limit": None}, Options()),
    ],
)
def test_values_and_their_text_forms(given: dict[str, object], expected: Options) -> None:
    assert parse_options(Tunable, given) == expected


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"device_id": "one"}, "option 'device_id' of TunableExecutionProvider: expected an integer, got 'one'"),
        ({"device_id": 1.5}, "expected an integer, got 1.5"),
        ({"device_id": True}, "expected an integer, got True"),
        ({"fast": "maybe"}, r"option 'fast' .*: expected a boolean \(True, False, '1' or '0'\), got 'maybe'"),
        ({"scale": "big"}, "option 'scale' .*: expected a number, got 'big'"),
        ({"scale": None}, "expected a number, got None"),
        ({"strategy": "kSameAsRequest"}, "'kSameAsRequest' is not a valid value; did you mean 'kSameAsRequested'"),
        ({"device_id": -1}, "options of TunableExecutionProvider: device_id: expected 0 or more, got -1"),
    ],
)
def test_values_that_do_not_fit(given: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        parse_options(Tunable, given)


def test_unknown_option_names_the_nearest() -> None:
    with pytest.raises(UnknownOption, match="TunableExecutionProvider has no option 'devise_id'; did you mean 'device_id'"):
        parse_options(Tunable, {"devise_id": 0})


def test_provider_without_options() -> None:
    class Plain(ExecutionProvider):
        name = "PlainExecutionProvider"

    with pytest.raises(UnknownOption, match="PlainExecutionProvider has no option 'x'; valid: none"):
        parse_options(Plain, {"x": 1})
    assert option_texts(parse_options(Plain, {})) == {}


def test_effective_values_as_text() -> None:
    assert option_texts(Options(fast=True)) == {
        "device_id": "0", "fast": "1", "scale": "1.0", "cache": "", "strategy": "kNextPowerOfTwo", "level": "0",
    }  # fmt: skip
