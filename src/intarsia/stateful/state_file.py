"""States in a file: an `.npz` of their bytes, with types and shapes beside them."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from intarsia.errors import InvalidArgument, NoSuchFile
from intarsia.graph.formats.atomic_write import replace_file
from intarsia.stateful.initial_state import element_dtype

if TYPE_CHECKING:
    import os

    from intarsia.stateful.state_pairs import State

_HEAD, _FORMAT = "intarsia_states", 1


def save_states(path: str | os.PathLike[str], states: Sequence[State], values: Mapping[str, np.ndarray], runs: int) -> None:
    """Write values of states by input, and how many runs made them. The file is replaced once all is written."""
    for state in states:
        if values[state.input].dtype == object:
            raise InvalidArgument(f"save: the state {state.input!r} holds texts, which such files do not")
    head = {"format": _FORMAT, "runs": runs, "states": [[s.input, s.type, list(values[s.input].shape)] for s in states]}
    arrays: dict[str, Any] = {_HEAD: np.frombuffer(json.dumps(head).encode(), np.uint8)}
    for i, state in enumerate(states):
        arrays[f"state{i}"] = np.ascontiguousarray(values[state.input]).reshape(-1).view(np.uint8)
    replace_file(path, lambda file: np.savez(file, **arrays))


def load_states(path: str | os.PathLike[str], states: Sequence[State]) -> tuple[dict[str, np.ndarray], int]:
    """The values by input, and how many runs made them. Raises as `StatefulSession.load`."""
    if not Path(path).exists():
        raise NoSuchFile(f"{path}: there is no such file of states")
    try:
        with Path(path).open("rb") as opened, np.load(opened, allow_pickle=False) as file:
            head = json.loads(bytes(file[_HEAD]))
            found = {name: (kind, tuple(shape), file[f"state{i}"]) for i, (name, kind, shape) in enumerate(head["states"])}
            runs, version = int(head["runs"]), head["format"]
            if runs < 0 or not all(isinstance(d, int) and 0 <= d < 1 << 48 for _, shape, _ in found.values() for d in shape):
                raise ValueError("a number of runs or a size that cannot be")
    except (ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile, OSError) as error:
        raise InvalidArgument(f"{path}: expected a file that StatefulSession.save wrote: {error}") from error
    if version != _FORMAT:
        raise InvalidArgument(f"{path}: expected version {_FORMAT} of such files, got {version!r}")
    if list(found) != [s.input for s in states]:
        raise InvalidArgument(f"{path}: expected the states {[s.input for s in states]}, got {list(found)}")
    return {s.input: _value(path, s, *found[s.input]) for s in states}, runs


def _value(path: Any, state: State, kind: str, shape: tuple[int, ...], data: np.ndarray) -> np.ndarray:
    dtype = element_dtype(state)
    count = 1
    for size in shape:
        count *= size
    if kind != state.type or data.nbytes != count * dtype.itemsize:
        raise InvalidArgument(
            f"{path}: the state {state.input!r} is {kind} of shape {list(shape)} in {data.nbytes} bytes; expected {state.type}"
        )
    return data.view(dtype).reshape(shape)
