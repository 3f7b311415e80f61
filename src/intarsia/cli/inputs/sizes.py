"""The size of every dimension: given by an option or an array, following from others, or guessed and said so."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from intarsia.cli.inputs.guessed_sizes import Guesses
from intarsia.cli.inputs.input_info import InputInfo
from intarsia.errors import InvalidArgument, UnknownOption, nearest
from intarsia.graph.size_expressions import evaluate, is_expression, names_in, solve

_BATCH = "batch"


def dimension_name(info: InputInfo, axis: int) -> str | None:
    """The name by which a dimension is given a size: its symbol, or `input[axis]` where it has none; None where it is fixed."""
    size = info.shape[axis]
    return None if isinstance(size, int) else size or f"{info.name}[{axis}]"


class Sizes:
    """Sizes by name, where each came from, and what was guessed.

    A dimension that has no name in the model is called `input[axis]`, and `batch` too where it is an input's first of several
    and no input has a dimension of that name.
    """

    def __init__(self, inputs: Sequence[InputInfo], guesses: Guesses | None = None) -> None:
        self.inputs = inputs
        self.known: dict[str, int] = {}
        self.origins: dict[str, str] = {}
        self.guessed: dict[str, int] = {}
        self._guesses = guesses if guesses is not None else Guesses()
        self._symbols = {name for info in inputs for axis in range(len(info.shape)) if (name := dimension_name(info, axis))}
        self._base = {part for name in self._symbols for part in names_in(name)}

    # --- what is given ---

    def give_dims(self, dims: Mapping[str, int]) -> None:
        """Sizes of `--dim NAME=SIZE`.

        Raises:
            UnknownOption: no input has such a dimension.
        """
        for name, size in dims.items():
            if name in self._symbols or name in self._base:
                self._set(name, size, f"--dim {name}={size}")
            elif name == _BATCH and (unnamed := self._unnamed_batches()):
                for each in unnamed:
                    self._set(each, size, f"--dim {name}={size}")
            else:
                raise UnknownOption(self._no_such(name))

    def _unnamed_batches(self) -> list[str]:
        return [f"{info.name}[0]" for info in self.inputs if len(info.shape) > 1 and not info.shape[0] and info.shape[0] != 0]

    def _no_such(self, name: str) -> str:
        valid = sorted(self._base | self._symbols)
        unnamed = [n for n in valid if n.endswith("]")]
        hint = f"; unnamed ones take --shape, such as --shape {self._shape_example(unnamed[0])}" if unnamed else ""
        return f"--dim {name}: no input has a dimension {name!r}; {nearest(name, valid)}{hint}"

    def _shape_example(self, unnamed: str) -> str:
        info = next(info for info in self.inputs if unnamed.startswith(f"{info.name}["))
        return f"{info.name}={'x'.join(str(d) if isinstance(d, int) else '8' for d in info.shape)}"

    def give_shape(self, info: InputInfo, shape: Sequence[int | None], origin: str) -> None:
        """An input's sizes, by `--shape` or of an array that was given; None leaves one open.

        Raises:
            InvalidArgument: another rank, or another size than the model's or one that was given before.
        """
        if len(shape) != len(info.shape):
            raise InvalidArgument(
                f"{origin}: input {info.name!r} has {len(info.shape)} dimensions {list(info.shape)}, got {len(shape)}"
            )
        for axis, size in enumerate(shape):
            declared, name = info.shape[axis], dimension_name(info, axis)
            if size is None:
                continue
            if isinstance(declared, int) and declared != size:
                raise InvalidArgument(
                    f"{origin}: dimension {axis} of input {info.name!r} is {declared} in the model, got {size}"
                )
            if name is not None:
                self._set(name, size, origin)

    def follow_array(self, info: InputInfo, shape: Sequence[int | None], origin: str) -> None:
        """Sizes of an array that was given for this input; None leaves one open. Where arrays contradict one another, the
        session says what it thinks of it; an option that says otherwise is an error.

        Raises:
            InvalidArgument: an option has said another size.
        """
        if len(shape) != len(info.shape):
            return
        for axis, size in enumerate(shape):
            name = dimension_name(info, axis)
            if name is None or size is None:
                continue
            said = evaluate(name, self.known)
            if said is not None and said != size and self._by_option(name):
                raise InvalidArgument(
                    f"{self._by_option(name)}: {origin} has {size} in dimension {axis} of input {info.name!r}"
                )
            if said is None:
                self._set(name, size, origin)

    def _by_option(self, name: str) -> str:
        """The option that a size came from; "" where it did not."""
        found = (self.origins.get(part, "") for part in (name, *names_in(name)))
        return next((origin for origin in found if origin.startswith("--")), "")

    def _set(self, name: str, size: int, origin: str) -> None:
        before = evaluate(name, self.known)
        if before is not None and before != size:
            where = next((self.origins[part] for part in (name, *names_in(name)) if part in self.origins), "")
            raise InvalidArgument(f"{origin}: dimension {name!r} is {before} by {where}, got {size}")
        if not is_expression(name) or name not in self._symbols:
            self.known[name], self.origins[name] = size, origin
            return
        found = solve(name, size, self.known)
        at, value = found if found is not None else (name, size)
        self.known[at], self.origins[at] = value, origin

    # --- what follows ---

    def shape_of(self, info: InputInfo) -> tuple[int, ...]:
        """All sizes of an input; those that nothing says are guessed."""
        return tuple(self._size(info, axis) for axis in range(len(info.shape)))

    def given(self, info: InputInfo) -> list[int | None]:
        """Its sizes as far as the model or the user says them."""
        names = [dimension_name(info, axis) for axis in range(len(info.shape))]
        return [d if isinstance(d, int) else evaluate(n or "", self.known) for d, n in zip(info.shape, names, strict=True)]

    def _size(self, info: InputInfo, axis: int) -> int:
        declared, name = info.shape[axis], dimension_name(info, axis)
        if isinstance(declared, int) or name is None:
            return int(declared or 0)
        known = evaluate(name, self.known)
        if known is None and is_expression(name):
            for part in names_in(name):
                if part not in self.known:
                    self._guess(part, *self._place(part))
            known = evaluate(name, self.known)
        if known is None:
            known = self._guess(name, info, axis)
        return known

    def _place(self, name: str) -> tuple[InputInfo, int]:
        """An input whose dimension has just this name, else one whose dimension is made of it."""
        places = [(info, axis) for info in self.inputs for axis, d in enumerate(info.shape) if isinstance(d, str)]
        exact = [place for place in places if place[0].shape[place[1]] == name]
        return (exact or [(i, a) for i, a in places if name in names_in(str(i.shape[a]))])[0]

    def _guess(self, name: str, info: InputInfo, axis: int) -> int:
        size = self._guesses.size(info, axis, name, self._base)
        self.known[name], self.origins[name] = size, "a guess"
        self.guessed[name] = size
        return size

    def told_guesses(self) -> str:
        """A sentence about the sizes that were guessed; "" where none was."""
        if not self.guessed:
            return ""
        sizes = ", ".join(f"{name} = {size}" for name, size in self.guessed.items())
        option = _option_for(self.guessed, self.inputs)
        return f"sizes guessed: {sizes}; give them with {option}"


def _option_for(guessed: Iterable[str], inputs: Sequence[InputInfo]) -> str:
    named = [name for name in guessed if not re.search(r"\[\d+\]$", name)]
    if named:
        shown = named[0] if re.fullmatch(r"[\w.]+", named[0]) else repr(named[0])
        return f"--dim, such as --dim {shown}=N"
    first = next(iter(guessed)).rpartition("[")[0]
    info = next(info for info in inputs if info.name == first)
    return f"--shape {info.name}={'x'.join(str(d) if isinstance(d, int) else 'N' for d in info.shape)}"


def parse_shapes(texts: Sequence[str], inputs: Sequence[InputInfo]) -> dict[str, list[int | None]]:
    """["x=1x3x640x640"] -> {"x": [1, 3, 640, 640]}; `?` leaves a size open, and a model with one input needs no name.

    Raises:
        UnknownOption: no such input.
        InvalidArgument: no sizes.
    """
    shapes: dict[str, list[int | None]] = {}
    names = [info.name for info in inputs]
    for text in texts:
        name, equals, sizes = text.rpartition("=")
        if not equals:
            if len(names) != 1:
                raise InvalidArgument(f"--shape expects NAME=SIZES for one of {', '.join(names)}; got {text!r}")
            name = names[0]
        if name not in names:
            raise UnknownOption(f"--shape {text}: the model has no input {name!r}; {nearest(name, names)}")
        shapes[name] = [_one_size(part, text) for part in re.split(r"[x,]", sizes.strip("[]() ")) if part.strip() or sizes]
    return shapes


def _one_size(part: str, text: str) -> Any:
    part = part.strip()
    if part == "?":
        return None
    if not part.isdecimal():
        raise InvalidArgument(f"--shape {text}: expected sizes such as 1x3x640x640 (? leaves one open); got {part!r}")
    return int(part)
