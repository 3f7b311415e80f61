"""Arrays for all of a model's inputs: files, pictures, literals, random or constant arrays, alone or in batches."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Any

import numpy as np

from intarsia.cli.inputs.input_info import InputInfo, element_type
from intarsia.cli.inputs.pictures import SUFFIXES, preprocessing, read_picture, size_in_metadata
from intarsia.cli.inputs.signature import Signature
from intarsia.cli.inputs.sizes import Sizes, parse_shapes
from intarsia.errors import InvalidArgument, UnknownOption, nearest
from intarsia.graph.dtypes import DType
from intarsia.lazy_dataclass import dataclass

FORMS = "FILE.npy, FILE.npz[:KEY], a picture, @random[:LOW:HIGH], @zeros, @ones, or a JSON literal such as [[1, 2]]"
_NAMED = 3  # files that an origin names


@dataclass(frozen=True)
class FeedOptions:
    """How feeds are made.

    Attributes:
        dims: sizes by the dimension's name.
        seed: of random inputs.
        shapes: `NAME=1x3x640x640`.
        preset: normalisation of pictures by name; "" goes by the model's metadata.
        pictures: what is to be other than in the preset (see `pictures.Preprocessing`).
    """

    dims: Mapping[str, int] = field(default_factory=dict)
    seed: int = 0
    shapes: Sequence[str] = ()
    preset: str = ""
    pictures: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Feeds:
    """The arrays by input name, and how they came about.

    Attributes:
        arrays: by input name. Where more was given than the model takes at once, all of it: see `rounds`.
        origins: what each array was made from.
        guessed: sizes that nobody gave, by the dimension's name.
        notes: what a user should know: which sizes were guessed, arrays of files that were not used.
        rounds: how many runs it takes: the model's first dimension is fixed, and inputs were given several times.
        pictures: files of pictures by input, one for each row of its array; more rows repeat them.
        fit: how they got the input's size.
    """

    arrays: dict[str, np.ndarray]
    origins: dict[str, str]
    guessed: Mapping[str, int] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    rounds: int = 1
    parted: frozenset[str] = frozenset()
    pictures: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    fit: str = ""

    def at_once(self) -> dict[str, np.ndarray]:
        """The arrays of one run.

        Raises:
            InvalidArgument: it takes several.
        """
        if self.rounds > 1:
            name = min(self.parted)
            raise InvalidArgument(
                f"input {name!r} was given {len(self.arrays[name])} times, and the model takes "
                f"{len(self.arrays[name]) // self.rounds} at once; `intarsia run` runs as often as needed"
            )
        return self.arrays

    def each_round(self) -> Iterator[dict[str, np.ndarray]]:
        """The arrays of one run after the other."""
        parts = {name: np.split(self.arrays[name], self.rounds) for name in self.parted}
        for i in range(self.rounds):
            yield {**self.arrays, **{name: part[i] for name, part in parts.items()}}


def parse_assignments(texts: Sequence[str], option: str) -> dict[str, str]:
    """["batch=2"] -> {"batch": "2"}; a name may hold spaces and signs of its own, such as `past + 1=9`.

    Raises:
        InvalidArgument: a text has no '=', or a name comes twice.
    """
    pairs: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.rpartition("=")
        if not equals or not name:
            raise InvalidArgument(f"{option} expects NAME=VALUE; got {text!r}")
        if pairs.get(name, value) != value:
            raise InvalidArgument(f"{option} {name} was given twice, as {pairs[name]} and {value}")
        pairs[name] = value
    return pairs


def parse_dims(texts: Sequence[str]) -> dict[str, int]:
    """["batch=2"] -> {"batch": 2}.

    Raises:
        InvalidArgument: not NAME=NUMBER with a number of at least 0.
    """
    dims = {}
    for name, value in parse_assignments(texts, "--dim").items():
        if not value.isdecimal():
            raise InvalidArgument(f"--dim {name} expects a whole number of at least 0; got {value!r}")
        dims[name] = int(value)
    return dims


def build_feeds(model: Signature, specs: Sequence[str], options: FeedOptions) -> Feeds:
    """An array for every input: as its specs say, random where it has none.

    Args:
        model: the model's inputs, and what helps to guess.
        specs: `NAME=FORM`, or `FORM` alone when the model has one input, or `FILE.npz` alone with an array per input. Several
            for one input are a batch, and so are a folder and a pattern of files.

    Raises:
        UnknownOption: a name that is no input, or a dimension that no input has.
        InvalidArgument: a form that cannot be read or does not fit the input; sizes that contradict one another.
    """
    return _FeedBuilder(model, options).build(specs)


class _FeedBuilder:
    def __init__(self, model: Signature, options: FeedOptions) -> None:
        self.model, self.options = model, options
        self.sizes = Sizes(model.inputs, model.guesses())
        self.sizes.give_dims(options.dims)
        by_name = {info.name: info for info in model.inputs}
        for name, shape in parse_shapes(options.shapes, model.inputs).items():
            self.sizes.give_shape(by_name[name], shape, f"--shape {name}")
        self.preprocessing = preprocessing(options.preset, options.pictures, model.metadata)
        self.generator = np.random.default_rng(options.seed)
        self.notes: list[str] = []
        self.arrays: dict[str, np.ndarray] = {}
        self.origins: dict[str, str] = {}
        self.rounds: dict[str, int] = {}
        self.pictures: dict[str, tuple[str, ...]] = {}

    def build(self, specs: Sequence[str]) -> Feeds:
        """Arrays that have sizes of their own come first, then pictures, which are made to fit, then what is made up."""
        forms = {name: _expanded(given, self._info(name)) for name, given in self._forms(specs).items()}
        for name in sorted(forms, key=lambda name: any(_is_picture(form) for form in forms[name])):
            self._give(self._info(name), forms[name])
        for info in self.model.inputs:
            if info.name not in self.arrays:
                form = next((str(f) for f in forms.get(info.name, ())), "@random")
                self.origins[info.name] = form
                self.arrays[info.name] = self._generated(form, info)
        counts = set(self.rounds.values()) - {1} or {1}
        if len(counts) > 1:
            raise InvalidArgument(f"inputs were given for {sorted(counts)} runs; expected one number of runs")
        requested = self.options.preset or any(value is not None for value in self.options.pictures.values())
        if requested and not any(_is_picture(form) for given in forms.values() for form in given):
            self.notes.append("no input is a picture: what was said of pictures has no effect")
        guesses = self.sizes.told_guesses()
        arrays = {info.name: self.arrays[info.name] for info in self.model.inputs}
        parted = frozenset(name for name, count in self.rounds.items() if count > 1)
        notes = (*self.notes, *([guesses] if guesses else ()))
        files, fit = self.pictures, self.preprocessing.fit
        return Feeds(arrays, self.origins, self.sizes.guessed, notes, max(counts), parted, files, fit)

    def _info(self, name: str) -> InputInfo:
        return next(info for info in self.model.inputs if info.name == name)

    def _forms(self, specs: Sequence[str]) -> dict[str, list[str | np.ndarray]]:
        names = [info.name for info in self.model.inputs]
        forms: dict[str, list[str | np.ndarray]] = {}
        for spec in specs:
            name, equals, form = spec.partition("=")
            if equals and name in names:
                forms.setdefault(name, []).append(form)
            elif spec.endswith(".npz"):
                for key, array in self._archive(Path(spec), names).items():
                    forms.setdefault(key, []).append(array)
            elif len(names) == 1 and (not equals or spec.startswith(("@", "[", '"'))):
                forms.setdefault(names[0], []).append(spec)
            elif equals:
                raise UnknownOption(f"the model has no input {name!r}; {nearest(name, names)}")
            else:
                raise InvalidArgument(f"--input expects NAME=FORM for one of {', '.join(names)}; got {spec!r}")
        return forms

    def _archive(self, path: Path, names: Sequence[str]) -> dict[str, np.ndarray]:
        """The archive's arrays that are called like inputs, or `in_` and an input's name."""
        with _open(path) as archive:
            used = {n: key for n in names for key in (f"in_{n}", n) if key in archive}
            if not used:
                raise InvalidArgument(f"{path} has no array for {', '.join(names)}; it has {', '.join(archive) or 'none'}")
            others = [key for key in archive if key not in used.values()]
            if others:
                self.notes.append(f"{path}: not used, since no input is called so: {', '.join(others)}")
            return {name: archive[key] for name, key in used.items()}

    # --- what was given ---

    def _give(self, info: InputInfo, forms: list[str | np.ndarray]) -> None:
        if isinstance(forms[0], str) and forms[0].startswith("@"):
            if len(forms) > 1:
                raise InvalidArgument(f"input {info.name!r}: {forms[0]!r} and {forms[1]!r} exclude one another")
            return
        parts = [self._read(form, info) for form in forms]
        pictures = all(map(_is_picture, forms))
        array = parts[0] if len(parts) == 1 else _joined(parts, forms, info)
        array, times = self._repeated(array, info) if pictures else (array, 1)
        if pictures:
            self.pictures[info.name] = tuple(map(str, forms))
        self.arrays[info.name] = array
        self.origins[info.name] = _origin(forms, times)
        self.rounds[info.name] = self._rounds(array, info) if len(forms) > 1 else 1
        shape = array.shape if self.rounds[info.name] == 1 else (None, *array.shape[1:])
        self.sizes.follow_array(info, shape, self.origins[info.name])

    def _read(self, form: str | np.ndarray, info: InputInfo) -> np.ndarray:
        if isinstance(form, np.ndarray):
            return form
        if form.startswith("@"):
            raise InvalidArgument(f"input {info.name!r}: {form!r} cannot be a part of a batch of files")
        if _is_picture(form):
            given = self.sizes.given(info)
            array = read_picture(Path(form), info, self._picture_sizes(info, given), self.preprocessing)
            if array.ndim == 4:  # the next pictures of a batch are made to fit the first
                self.sizes.follow_array(info, [None, *array.shape[1:]], form)
            return array
        stem, colon, key = form.partition(".npz:")
        path = Path(f"{stem}.npz" if colon else form)
        if path.suffix == ".npy":
            loaded: np.ndarray = _open(path)
            return loaded
        return _member(path, key, info.name) if path.suffix == ".npz" else _literal(form, info)

    def _picture_sizes(self, info: InputInfo, given: list[int | None]) -> list[int | None]:
        """An open height and width are the picture's, unless the model's metadata names others."""
        named = size_in_metadata(self.model.metadata)
        return given if named is None else [*given[:-2], *(g or n for g, n in zip(given[-2:], named, strict=True))]

    def _repeated(self, array: np.ndarray, info: InputInfo) -> tuple[np.ndarray, int]:
        """One picture as often as an option wants the batch to be."""
        wanted = self.sizes.given(info)[0] if array.ndim == 4 else None
        if wanted is None or isinstance(info.shape[0], int) or array.shape[0] in (wanted, 0):
            return array, 1
        if wanted % array.shape[0]:
            raise InvalidArgument(f"input {info.name!r}: {array.shape[0]} pictures do not make up a batch of {wanted}")
        return np.concatenate([array] * (wanted // array.shape[0])), wanted // array.shape[0]

    def _rounds(self, array: np.ndarray, info: InputInfo) -> int:
        at_once = info.shape[0] if info.shape else None
        if not isinstance(at_once, int) or at_once == array.shape[0] or not at_once:
            return 1
        if array.shape[0] % at_once:
            raise InvalidArgument(f"input {info.name!r} takes {at_once} at once; {array.shape[0]} were given")
        return len(array) // at_once

    # --- what is made up ---

    def _generated(self, form: str, info: InputInfo) -> np.ndarray:
        kind, *limits = form[1:].split(":")
        dtype, shape = element_type(info), self.sizes.shape_of(info)
        if kind in ("zeros", "ones") and not limits and dtype is not DType.STRING:
            return np.full(shape, kind == "ones", dtype.numpy)
        if kind != "random" or len(limits) not in (0, 2):
            raise InvalidArgument(f"input {info.name!r}: unknown form {form!r}; expected {FORMS}")
        try:
            low, high = map(float, limits) if limits else (None, None)
        except ValueError:
            raise InvalidArgument(f"input {info.name!r}: {form!r} expects two numbers, @random:LOW:HIGH") from None
        if low is not None and high is not None and not -np.inf < low <= high < np.inf:
            raise InvalidArgument(f"input {info.name!r}: {form!r} expects a LOW that is not above HIGH, and both finite")
        if dtype is DType.STRING:
            raise InvalidArgument(f"input {info.name!r} holds strings: give it as a JSON literal")
        return self._random(info, dtype, shape, (low, high)).astype(dtype.numpy)

    def _random(
        self, info: InputInfo, dtype: DType, shape: tuple[int, ...], limits: tuple[float | None, float | None]
    ) -> np.ndarray:
        low, high = limits
        if dtype.is_floating or dtype.is_complex:
            if low is None or high is None:
                return np.asarray(self.generator.standard_normal(shape))
            return np.asarray(self.generator.uniform(low, high, shape))
        if "mask" in info.name.lower() and low is None:
            return np.ones(shape)
        # 0 and 1 are valid token ids, flags and indices of every model.
        first = int(low or 0)
        return np.asarray(self.generator.integers(first, max(first + 1, int(2 if high is None else high)), shape))


def _is_picture(form: str | np.ndarray) -> bool:
    return isinstance(form, str) and not form.startswith(("@", "[", '"')) and Path(form).suffix.lower() in SUFFIXES


def _expanded(forms: list[str | np.ndarray], info: InputInfo) -> list[str | np.ndarray]:
    """Folders and patterns become the files they hold, by name."""
    found: list[str | np.ndarray] = []
    for form in forms:
        if not isinstance(form, str) or form.startswith(("@", "[", '"', "{")) or info.type == "tensor(string)":
            found.append(form)
        elif any(c in form for c in "*?"):
            pattern = Path(form)
            parent = Path(pattern.anchor or ".")
            found += _files(sorted(parent.glob(str(pattern.relative_to(pattern.anchor)))), form, info)
        elif Path(form).is_dir():
            found += _files(sorted(Path(form).iterdir()), form, info)
        else:
            found.append(form)
    return found


def _files(paths: Sequence[Path], form: str, info: InputInfo) -> list[str]:
    kinds = SUFFIXES | {".npy"}
    found = [str(path) for path in paths if path.suffix.lower() in kinds and path.is_file()]
    if not found:
        raise InvalidArgument(f"input {info.name!r}: no pictures and no .npy files in {form!r}")
    return found


def _joined(parts: Sequence[np.ndarray], forms: Sequence[Any], info: InputInfo) -> np.ndarray:
    """The parts after one another along the first axis."""
    first = parts[0]
    for part, form in zip(parts, forms, strict=True):
        if part.ndim == 0 or part.shape[1:] != first.shape[1:] or part.dtype != first.dtype:
            which = "an array" if isinstance(form, np.ndarray) else repr(form)
            raise InvalidArgument(
                f"input {info.name!r}: {which} is {part.dtype} {list(part.shape)}, which does not make up a batch with "
                f"{first.dtype} {list(first.shape)}"
            )
    return np.concatenate(parts)


def _origin(forms: Sequence[str | np.ndarray], times: int) -> str:
    names = ["file" if isinstance(form, np.ndarray) else form for form in forms]
    text = ", ".join(names[:_NAMED]) + (f" and {len(names) - _NAMED} more" if len(names) > _NAMED else "")
    return f"{text}, {times} times" if times > 1 else text


def _open(path: Path) -> Any:
    try:
        return np.load(path, allow_pickle=False)
    except (OSError, ValueError) as error:
        raise InvalidArgument(f"cannot read {str(path)!r} as a NumPy file: {error}") from error


def _member(path: Path, key: str, name: str) -> np.ndarray:
    with _open(path) as archive:
        for candidate in [key] if key else [name, f"in_{name}", *(archive if len(archive) == 1 else ())]:
            if candidate in archive:
                array: np.ndarray = archive[candidate]
                return array
        raise InvalidArgument(f"{path} has no array {key or name!r}; {nearest(key or name, archive)}")


def _literal(form: str, info: InputInfo) -> np.ndarray:
    dtype = element_type(info)
    try:
        value = json.loads(form)
    except json.JSONDecodeError:
        if dtype is not DType.STRING:
            raise InvalidArgument(f"input {info.name!r}: cannot read {form!r}; expected {FORMS}") from None
        value = form
    try:
        array = np.asarray(value, dtype.numpy)
    except (TypeError, ValueError) as error:
        raise InvalidArgument(f"input {info.name!r}: {form!r} is no {info.type}: {error}") from error
    missing = len(info.shape) - array.ndim
    return array.reshape((1,) * missing + array.shape) if missing > 0 else array
