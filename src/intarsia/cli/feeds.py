"""Model inputs from the command line: files, pictures, literals, random or constant arrays."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from intarsia.errors import InvalidArgument, UnknownOption, nearest
from intarsia.graph.dtypes import DType
from intarsia.lazy_dataclass import dataclass

PICTURES = frozenset((".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff"))
FORMS = "FILE.npy, FILE.npz[:KEY], a picture, @random[:LOW:HIGH], @zeros, @ones, or a JSON literal such as [[1, 2]]"


class InputInfo(Protocol):
    """What is asked of a session's `NodeArg`: name, type such as `tensor(float)`, shape of ints, symbols and None."""

    @property
    def name(self) -> str: ...
    @property
    def type(self) -> str: ...
    @property
    def shape(self) -> Sequence[int | str | None]: ...


@dataclass(frozen=True)
class FeedOptions:
    """How feeds are made.

    Attributes:
        dims: sizes for symbolic dimensions; those not named get 1.
        seed: of random inputs.
        mean, std: pictures become (pixel / 255 - mean) / std, by channel.
    """

    dims: Mapping[str, int] = field(default_factory=dict)
    seed: int = 0
    mean: tuple[float, ...] = (0.0,)
    std: tuple[float, ...] = (1.0,)


@dataclass(frozen=True)
class Feeds:
    """The arrays by input name, and for each how it came about."""

    arrays: dict[str, np.ndarray]
    origins: dict[str, str]


def parse_assignments(texts: Sequence[str], option: str) -> dict[str, str]:
    """["batch=2"] -> {"batch": "2"}.

    Raises:
        InvalidArgument: a text has no '='.
    """
    pairs = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise InvalidArgument(f"{option} expects NAME=VALUE; got {text!r}")
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


def build_feeds(inputs: Sequence[InputInfo], specs: Sequence[str], options: FeedOptions) -> Feeds:
    """An array for every input: as its spec says, random where it has none.

    Args:
        inputs: the model's inputs.
        specs: `NAME=FORM`, or `FORM` alone when the model has one input, or `FILE.npz` alone with an array per input.

    Raises:
        UnknownOption: a name that is no input, or a symbolic dimension that no input has.
        InvalidArgument: a form that cannot be read or does not fit the input.
    """
    symbols = {d for info in inputs for d in info.shape if isinstance(d, str)}
    for name in options.dims:
        if name not in symbols:
            raise UnknownOption(f"no input has a dimension {name!r}; {nearest(name, symbols)}")
    generator = np.random.default_rng(options.seed)
    forms = _forms(inputs, specs)
    arrays, origins = {}, {}
    for info in inputs:
        form = forms.get(info.name, "@random")
        arrays[info.name] = form if isinstance(form, np.ndarray) else _array(form, info, options, generator)
        origins[info.name] = "file" if isinstance(form, np.ndarray) else form
    return Feeds(arrays, origins)


def _forms(inputs: Sequence[InputInfo], specs: Sequence[str]) -> dict[str, str | np.ndarray]:
    names = [info.name for info in inputs]
    forms: dict[str, str | np.ndarray] = {}
    for spec in specs:
        name, equals, form = spec.partition("=")
        if equals and name in names:
            forms[name] = form
        elif spec.endswith(".npz"):
            forms |= _archive(Path(spec), names)
        elif len(names) == 1 and (not equals or spec.startswith(("@", "[", '"'))):
            forms[names[0]] = spec
        elif equals:
            raise UnknownOption(f"the model has no input {name!r}; {nearest(name, names)}")
        else:
            raise InvalidArgument(f"--input expects NAME=FORM for one of {', '.join(names)}; got {spec!r}")
    return forms


def _archive(path: Path, names: Sequence[str]) -> dict[str, str | np.ndarray]:
    """The archive's arrays that are called like inputs, or `in_` and an input's name."""
    with _open(path) as archive:
        found: dict[str, str | np.ndarray] = {n: archive[key] for n in names for key in (f"in_{n}", n) if key in archive}
        if not found:
            raise InvalidArgument(f"{path} has no array for {', '.join(names)}; it has {', '.join(archive) or 'none'}")
    return found


def _open(path: Path) -> Any:
    try:
        return np.load(path, allow_pickle=False)
    except (OSError, ValueError) as error:
        raise InvalidArgument(f"cannot read {str(path)!r} as a NumPy file: {error}") from error


def element_type(info: InputInfo) -> DType:
    """The element type of a tensor input.

    Raises:
        InvalidArgument: the input is no tensor.
    """
    inner = info.type.removeprefix("tensor(").removesuffix(")")
    if f"tensor({inner})" != info.type:
        raise InvalidArgument(f"input {info.name!r} is a {info.type}; the command line can make tensors only")
    return DType[inner.upper()]


def concrete_shape(info: InputInfo, dims: Mapping[str, int]) -> tuple[int, ...]:
    """The input's shape with symbolic sizes filled in, 1 where `dims` does not say."""
    return tuple(d if isinstance(d, int) else dims.get(d or "", 1) for d in info.shape)


def _array(form: str, info: InputInfo, options: FeedOptions, generator: np.random.Generator) -> np.ndarray:
    if form.startswith("@"):
        return _generated(form, info, options, generator)
    stem, colon, key = form.partition(".npz:")
    path = Path(f"{stem}.npz" if colon else form)
    if path.suffix == ".npy":
        loaded: np.ndarray = _open(path)
        return loaded
    if path.suffix == ".npz":
        return _member(path, key, info.name)
    if path.suffix.lower() in PICTURES:
        return read_picture(path, info, options)
    return _literal(form, info)


def _member(path: Path, key: str, name: str) -> np.ndarray:
    with _open(path) as archive:
        for candidate in [key] if key else [name, f"in_{name}", *(archive if len(archive) == 1 else ())]:
            if candidate in archive:
                array: np.ndarray = archive[candidate]
                return array
        raise InvalidArgument(f"{path} has no array {key or name!r}; {nearest(key or name, archive)}")


def _generated(form: str, info: InputInfo, options: FeedOptions, generator: np.random.Generator) -> np.ndarray:
    kind, *limits = form[1:].split(":")
    dtype, shape = element_type(info), concrete_shape(info, options.dims)
    if kind in ("zeros", "ones") and not limits and dtype is not DType.STRING:
        return np.full(shape, kind == "ones", dtype.numpy)
    if kind != "random" or len(limits) not in (0, 2):
        raise InvalidArgument(f"input {info.name!r}: unknown form {form!r}; expected {FORMS}")
    try:
        low, high = map(float, limits) if limits else (None, None)
    except ValueError:
        raise InvalidArgument(f"input {info.name!r}: {form!r} expects two numbers, @random:LOW:HIGH") from None
    if dtype is DType.STRING:
        raise InvalidArgument(f"input {info.name!r} holds strings: give it as a JSON literal")
    values: np.ndarray
    if dtype.is_floating or dtype.is_complex:
        values = generator.standard_normal(shape) if low is None or high is None else generator.uniform(low, high, shape)
    elif "mask" in info.name.lower() and low is None:
        values = np.ones(shape)
    else:
        # 0 and 1 are valid token ids, flags and indices of every model.
        values = generator.integers(int(low or 0), int(2 if high is None else high), shape)
    return values.astype(dtype.numpy)


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


def read_picture(path: Path, info: InputInfo, options: FeedOptions) -> np.ndarray:
    """A picture as the input wants it: [1, C, H, W] or [1, H, W, C], resized to fixed H and W.

    Float inputs get (pixel / 255 - mean) / std, integer inputs the pixels.

    Raises:
        InvalidArgument: the input is not of rank 4 (or 3, without batch) with 1, 3 or 4 channels, or the file is no picture.
    """
    try:
        from PIL import Image
    except ModuleNotFoundError as error:
        raise InvalidArgument("reading pictures needs Pillow: pip install 'intarsia[cli]'") from error
    shape = [d if isinstance(d, int) else options.dims.get(d or "") for d in info.shape][-3:]
    modes = {1: "L", 3: "RGB", 4: "RGBA"}
    first = len(shape) == 3 and shape[0] in modes
    if len(shape) != 3 or not (first or shape[2] in modes):
        raise InvalidArgument(f"input {info.name!r} of shape {list(info.shape)} is no picture: expected 1, 3 or 4 channels")
    channels, height, width = (shape[0], shape[1], shape[2]) if first else (shape[2], shape[0], shape[1])
    try:
        with Image.open(path) as file:
            picture = file.convert(modes[channels or 3])
    except OSError as error:
        raise InvalidArgument(f"input {info.name!r}: cannot read the picture {str(path)!r}: {error}") from error
    size = (width or picture.width, height or picture.height)
    pixels = np.asarray(picture.resize(size)).reshape(size[1], size[0], -1)
    dtype = element_type(info)
    if dtype.is_floating:
        pixels = (pixels / 255.0 - np.asarray(options.mean)) / np.asarray(options.std)
    array = pixels.transpose(2, 0, 1) if first else pixels
    return np.ascontiguousarray(array[None] if len(info.shape) == 4 else array).astype(dtype.numpy)
