"""JSON as packages hold it: UTF-8, objects in their order, no NaN, no surrogates, bounded in size and depth."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any, NoReturn

from intarsia.errors import InvalidArgument, NoSuchFile, WrongType

MAX_NBYTES = 64 << 20
"""The largest JSON file that is read: manifests are some kilobytes."""


def _refused(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _number(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise ValueError(f"{text} is too large")
    return value


def parsed(text: str, where: str) -> Any:
    """The value that `text` is. Raises InvalidArgument, which names `where`, for what is not JSON."""
    try:
        value = json.loads(text, parse_constant=_refused, parse_float=_number)
        json.dumps(value, ensure_ascii=False).encode()  # half a surrogate pair cannot be written
    except RecursionError:
        raise InvalidArgument(f"{where}: JSON parse error: nested too deeply") from None
    except ValueError as error:
        raise InvalidArgument(f"{where}: JSON parse error: {error}") from None
    return value


def parsed_argument(text: Any, where: str) -> Any:
    """As `parsed`, for what a caller gave as text."""
    if not isinstance(text, str):
        raise WrongType(f"{where}: expected JSON as text, got {text!r}")
    return parsed(text, where)


def read(path: Path) -> str:
    """The text of a JSON file.

    Raises:
        NoSuchFile: there is no such file.
        InvalidArgument: not UTF-8, or larger than `MAX_NBYTES`.
    """
    if not path.is_file():
        raise NoSuchFile(f"Cannot open file: '{path}': expected a file")
    with path.open("rb") as file:
        data = file.read(MAX_NBYTES + 1)
    if len(data) > MAX_NBYTES:
        raise InvalidArgument(f"'{path}' is larger than the {MAX_NBYTES >> 20} MiB that a JSON file of a package may have")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InvalidArgument(f"Failed to parse JSON at '{path}': not UTF-8: {error}") from None


def loaded(path: Path) -> Any:
    """The value in a JSON file. Raises as `read` and `parsed`."""
    return parsed(read(path), f"Failed to parse JSON at '{path}'")


def compact(value: Any) -> str:
    """JSON without spaces."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def pretty(value: Any) -> str:
    """JSON as it is written into files."""
    return json.dumps(value, ensure_ascii=False, indent=2) + "\n"
