"""Calibrated ranges as files for TensorRT's provider of onnxruntime: JSON, FlatBuffers and text."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from intarsia.quantization.calibration.tensor_ranges import CalibrationCacheEncoder, TensorData


def write_calibration_table(calibration_cache: Mapping[str, TensorData], dir: str = ".") -> None:
    """Write `calibration.json`, `calibration.flatbuffers` and `calibration.cache` into a folder.

    The latter two have one number for each tensor: the greater of its range's ends.
    """
    folder = Path(dir)
    data: Any = calibration_cache
    text = json.dumps(data if hasattr(data, "to_dict") else dict(data), cls=CalibrationCacheEncoder)
    folder.joinpath("calibration.json").write_text(text, encoding="utf-8")
    entries = {name: str(_largest(calibration_cache[name])) for name in sorted(calibration_cache.keys())}
    folder.joinpath("calibration.flatbuffers").write_bytes(_table(entries))
    lines = "".join(f"{name} {value}\n" for name, value in entries.items())
    folder.joinpath("calibration.cache").write_text(lines, encoding="utf-8")


def _largest(found: TensorData) -> float:
    values = found.to_dict()
    return max(float(np.asarray(values.get(end, 0.0)).max()) for end in ("highest", "lowest"))


def _table(entries: Mapping[str, str]) -> bytes:
    """A FlatBuffers message: table TrtTable { dict: [KeyValue]; }, table KeyValue { key: string; value: string; }."""
    out = bytearray(4)  # the root's offset

    def at(position: int, offset: int) -> None:
        struct.pack_into("<I", out, position, offset - position)

    def table(fields: int) -> int:
        """A table of offsets, its layout in front of it; returns its position."""
        while (len(out) + 4 + 2 * fields) % 4:
            out.append(0)
        layout = len(out)
        out.extend(struct.pack(f"<{2 + fields}H", 4 + 2 * fields, 4 + 4 * fields, *(4 + 4 * i for i in range(fields))))
        position = len(out)
        out.extend(struct.pack("<i", position - layout) + bytes(4 * fields))
        return position

    root = table(1)
    at(0, root)
    vector = len(out)
    at(root + 4, vector)
    out.extend(struct.pack("<I", len(entries)) + bytes(4 * len(entries)))
    for i, pair in enumerate(reversed(list(entries.items()))):
        position = table(2)
        at(vector + 4 + 4 * i, position)
        for field, text in enumerate(pair):
            while len(out) % 4:
                out.append(0)
            at(position + 4 + 4 * field, len(out))
            encoded = text.encode("utf-8")
            out.extend(struct.pack("<I", len(encoded)) + encoded + b"\0")
    return bytes(out)
