"""Data for `intarsia quantize`: files of arrays, folders of pictures, tables, Python iterables, random numbers."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, overload

import numpy as np

from intarsia.cli.inputs.feeds import FeedOptions, build_feeds
from intarsia.cli.inputs.input_info import InputInfo, element_type
from intarsia.cli.inputs.pictures import SUFFIXES as PICTURES
from intarsia.cli.inputs.signature import Signature
from intarsia.errors import InvalidArgument, NoSuchFile

Feed = dict[str, np.ndarray]
TABLES = (".csv", ".parquet", ".arrow", ".feather")
FORMS = (
    "a folder of pictures or .npz/.npy files, FILE.npz, FILE.npy, FILE.csv, FILE.parquet, FILE.arrow, FILE.py:NAME, "
    "@random:COUNT"
)


class Samples(Sequence[Feed]):
    """Feeds that are read when they are requested, so that a folder of pictures takes the memory of one."""

    def __init__(self, makers: Sequence[Callable[[], Feed]]) -> None:
        self._makers = list(makers)

    def __len__(self) -> int:
        return len(self._makers)

    @overload
    def __getitem__(self, place: int) -> Feed: ...
    @overload
    def __getitem__(self, place: slice) -> Samples: ...
    def __getitem__(self, place: int | slice) -> Feed | Samples:
        return Samples(self._makers[place]) if isinstance(place, slice) else self._makers[place]()

    def __iter__(self) -> Iterator[Feed]:
        return (make() for make in self._makers)

    def __add__(self, other: Samples) -> Samples:
        return Samples(self._makers + other._makers)


def read_samples(sources: Sequence[str], model: Signature, options: FeedOptions, limit: int = 0) -> Samples:
    """The samples of sources of the forms `FORMS`, at most `limit` of them (0: all), taken evenly.

    Raises:
        InvalidArgument: a form that is not known, or data that the model's inputs do not fit.
        NoSuchFile: there is no such file.
    """
    found = Samples([])
    for source in sources:
        found = found + _of(source, model, options)
    if limit and len(found) > limit:
        found = Samples([found._makers[i * len(found) // limit] for i in range(limit)])
    return found


def _of(source: str, model: Signature, options: FeedOptions) -> Samples:
    if source.startswith("@random"):
        return _random(source, model, options)
    file, _, name = source.partition(".py:")
    if name:
        return _iterable(Path(f"{file}.py"), name)
    path = Path(source)
    if not path.exists():
        raise NoSuchFile(f"--data: no file or folder {source!r}; forms: {FORMS}")
    if path.is_dir():
        files = sorted(f for f in path.rglob("*") if f.suffix.lower() in (*PICTURES, ".npz", ".npy"))
        if not files:
            raise InvalidArgument(f"--data {source}: expected pictures, .npz or .npy in the folder, got none")
        return sum((_file(file, model, options, alone=False) for file in files), Samples([]))
    return _file(path, model, options, alone=True)


def _file(path: Path, model: Signature, options: FeedOptions, *, alone: bool) -> Samples:
    """The samples of a file; one in a folder is one sample where its arrays are of the inputs' own sizes."""
    suffix, inputs = path.suffix.lower(), model.inputs
    if suffix in PICTURES:
        info = _only(inputs, path)
        return Samples([lambda: build_feeds(model, [f"{info.name}={path}"], options).at_once()])
    if suffix == ".npy":
        return _rows({_only(inputs, path).name: np.load(path, mmap_mode="r")}, inputs, path, alone)
    if suffix == ".npz":
        with np.load(path) as archive:
            return _rows({name: archive[name] for name in archive.files}, inputs, path, alone)
    if suffix in TABLES:
        return _rows(_table(path, inputs), inputs, path, alone=True)
    raise InvalidArgument(f"--data {path}: expected {FORMS}")


def _only(inputs: Sequence[InputInfo], path: Path) -> InputInfo:
    if len(inputs) != 1:
        names = ", ".join(i.name for i in inputs)
        raise InvalidArgument(f"--data {path}: the model has the inputs {names}; expected an .npz with an array for each")
    return inputs[0]


def _rows(arrays: Mapping[str, np.ndarray], inputs: Sequence[InputInfo], path: Path, alone: bool) -> Samples:
    """A sample for each index of the first axis: of arrays with one axis more than the input, or of a batch of it."""
    missing = [i.name for i in inputs if i.name not in arrays and f"in_{i.name}" not in arrays]
    if missing:
        raise InvalidArgument(f"--data {path}: no array for {', '.join(missing)}; it has {', '.join(arrays) or 'none'}")
    whole = {i.name: arrays[i.name if i.name in arrays else f"in_{i.name}"] for i in inputs}
    extra = {i.name: np.ndim(whole[i.name]) - len(i.shape) for i in inputs}
    wrong = [i for i in inputs if extra[i.name] not in (0, 1)]
    if wrong:
        shape = list(np.shape(whole[wrong[0].name]))
        raise InvalidArgument(f"--data {path}: {wrong[0].name} has the shape {shape}, the model's input {list(wrong[0].shape)}")
    batched = [
        i for i in inputs if extra[i.name] or (i.shape and not isinstance(i.shape[0], int)) or (i.shape and i.shape[0] == 1)
    ]
    if not batched or (not alone and not any(extra.values())):
        return Samples([lambda: {i.name: _typed(whole[i.name], i) for i in inputs}])
    counts = {len(whole[i.name]) for i in batched}
    if len(counts) != 1:
        raise InvalidArgument(
            f"--data {path}: arrays of different lengths: {sorted(counts)}; expected one sample for each index"
        )
    taken = {i.name for i in batched}

    def sample(row: int) -> Feed:
        return {
            i.name: _typed(_row(whole[i.name], row, bool(extra[i.name])) if i.name in taken else whole[i.name], i)
            for i in inputs
        }

    return Samples([partial(sample, row) for row in range(counts.pop())])


def _row(array: Any, row: int, extra: bool) -> np.ndarray:
    return np.asarray(array[row] if extra else array[row : row + 1])


def _typed(array: Any, info: InputInfo) -> np.ndarray:
    kind = element_type(info).numpy
    found = np.asarray(array)
    return np.ascontiguousarray(found if found.dtype == kind else found.astype(kind))


def _table(path: Path, inputs: Sequence[InputInfo]) -> dict[str, np.ndarray]:
    """Columns by input; all number columns side by side for a model with one matrix as input."""
    try:
        from pyarrow import csv, feather, parquet
    except ImportError as error:
        raise InvalidArgument("tables are read by pyarrow: pip install 'intarsia[tables]'") from error
    suffix = path.suffix.lower()
    read = csv.read_csv if suffix == ".csv" else parquet.read_table if suffix == ".parquet" else feather.read_table
    table = read(str(path))
    columns = {name: np.array(table.column(name).to_pylist()) for name in table.column_names}
    if len(inputs) == 1 and inputs[0].name not in columns and len(inputs[0].shape) == 2:
        numeric = [values for values in columns.values() if values.dtype.kind in "fiub" and values.ndim == 1]
        return {inputs[0].name: np.stack(numeric, axis=1)}
    return columns


def _iterable(path: Path, name: str) -> Samples:
    """Feeds that a Python file gives: a name of an iterable, or of a function that returns one."""
    found = load_name(path, name)
    feeds: Iterable[Any] = found() if callable(found) else found
    held = [dict(feed) for feed in feeds]
    return Samples([partial(dict, feed) for feed in held])


def load_name(path: Path, name: str) -> Any:
    """What a Python file calls `name`.

    Raises:
        NoSuchFile: there is no such file.
        InvalidArgument: there is no such name in it.
    """
    if not path.is_file():
        raise NoSuchFile(f"no file {str(path)!r}")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    if not hasattr(module, name):
        raise InvalidArgument(f"{path}: nothing in it is called {name!r}")
    return getattr(module, name)


def _random(source: str, model: Signature, options: FeedOptions) -> Samples:
    text = source.removeprefix("@random").removeprefix(":") or "16"
    if not text.isdigit() or text == "0":
        raise InvalidArgument(f"--data: expected @random:COUNT, got {source!r}")

    def sample(number: int) -> Feed:
        return dict(build_feeds(model, [], replace(options, seed=options.seed + number)).arrays)

    return Samples([partial(sample, i) for i in range(int(text))])
