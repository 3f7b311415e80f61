"""`intarsia convert`: a model in a vendor's form, and what was translated."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from intarsia.cli.show import note, plain, print_json, working
from intarsia.conversion.targets import TARGETS as TARGETS  # noqa: PLC0414 # the command lists them
from intarsia.errors import InvalidArgument


def convert_model(
    model: Path, to: str, output: Path | None, options: Sequence[str], sizes: Mapping[str, int], parts: bool, as_json: bool
) -> bool:
    """Write the model's files and print the report, as text or JSON. True where every node was translated.

    Raises:
        IntarsiaError: the model, the target, or an option.
    """
    from intarsia.conversion.convert import ConversionRequest, convert

    with working(f"converting {model.name}"):
        report = convert(model, ConversionRequest(to, output, dict(map(_entry, options)), sizes, parts))
    if as_json:
        print_json(json.dumps(report.to_dict(), indent=1))
    else:
        plain(str(report))
        if not report.parts:
            note("nothing was written; --parts writes what was translated, and the rest as ONNX")
    return report.complete


def _entry(text: str) -> tuple[str, str]:
    key, found, value = text.partition("=")
    if not found or not key:
        raise InvalidArgument(f"--option expects KEY=VALUE; got {text!r}")
    return key, value
