"""Models in ORT format and LoRA adapters that are no proper FlatBuffers, or say what ONNX would not."""

from __future__ import annotations

import random
import struct
import sys
from functools import cache
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parents[1] / "graph"))

import damaged
import numpy as np
import onnx
from flat_tables import Scalar, Table, ort_model, shared_parts, written
from mutations import Case

OFFSETS = (0, 1, 3, 4, 8, 2**16, 2**31 - 1, 2**31, 2**32 - 4, 2**32 - 1)
MODELS = tuple(sorted(set(damaged.TEXTS) - {"functions"}))  # which the format does not have
SHARED = 10_000  # references to one thing


@cache
def _model(name: str) -> bytes:
    return ort_model(onnx.ModelProto.FromString(damaged.model_of(name)))


def case_of(rng: random.Random) -> Case:
    """A model in ORT format: a wrong one written properly, a right one damaged, or one that refers to one thing often."""
    how = rng.random()
    if how < 0.1:
        data = _empty(rng) if rng.random() < 0.4 else rng.choice(shared_parts(SHARED))
        return Case(data, {"x": np.ones(3, np.float32)}, "empty or shared parts")
    name = rng.choice(MODELS)
    if how < 0.55:
        made = damaged.case_of(name, rng.randrange(1, 2**31))
        try:
            model = onnx.ModelProto.FromString(made.model)
        except Exception:  # noqa: BLE001 (bytes that protobuf refuses in several ways)
            model = onnx.ModelProto.FromString(damaged.model_of(name))
        return Case(ort_model(model), made.feeds, made.told)
    return Case(_damaged(bytearray(_model(name)), rng), damaged.feeds_of(name), f"{name}, damaged")


def _damaged(data: bytearray, rng: random.Random) -> bytes:
    for _ in range(rng.choice((1, 1, 2, 5))):
        at = rng.randrange(len(data) // 4) * 4
        how = rng.choice(("offset", "offset", "other", "byte", "short"))
        if how == "offset":
            struct.pack_into("<I", data, at, rng.choice(OFFSETS))
        elif how == "other":  # refers to what another field refers to
            other = rng.randrange(len(data) // 4) * 4
            struct.pack_into("<I", data, at, max(other + struct.unpack_from("<I", data, other)[0] - at, 0) & 0xFFFFFFFF)
        elif how == "short":
            struct.pack_into("<H", data, at + rng.choice((0, 2)), rng.choice((0, 1, 4, 6, 0x7FFF, 0xFFFF)))
        else:
            data[rng.randrange(8, len(data))] = rng.randrange(256)
    if rng.random() < 0.1:
        del data[rng.randrange(8, len(data)) :]
    return bytes(data)


def _empty(rng: random.Random) -> bytes:
    """Little or nothing."""
    tree: Any = rng.choice(({}, {0: "5"}, {1: {}}, {1: {7: {}}}, {1: {7: {2: [{}]}}}, {1: {7: {0: [{}]}}}))
    return written(tree, b"ORTM")


def adapter(rng: random.Random) -> bytes:
    """A LoRA adapter that is wrong in some way, with a parameter "x" or many."""
    count = rng.choice((1, 1, 3, 1000))
    value = np.ones(rng.choice((0, 3, 4)), np.float32)
    dims = rng.choice(([3], [3], [3], [-1, -3], [2**62, 4], [0, 2**63 - 1], [1] * 70))
    kind = Scalar("i", rng.choice((1, 1, 1, 1, 7, 8, 16, 22, -1, 99)))
    parameter: Table = {0: rng.choice(("x", "", "\x1b[2J")), 1: np.array(dims), 2: kind, 3: value.view(np.uint8)}
    if rng.random() < 0.2:
        del parameter[rng.choice(sorted(parameter))]
    data = written(
        {0: Scalar("i", rng.choice((1, 1, 1, 2, -1))), 1: Scalar("i", 1), 2: Scalar("i", 1), 3: [parameter] * count}, b"TORT"
    )
    return _damaged(bytearray(data), rng) if rng.random() < 0.6 else data
