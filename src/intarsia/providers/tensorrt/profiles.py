"""Optimisation profiles: the ranges of input shapes that one engine is built for.

Options name the model's inputs ("images:1x3x224x224"). A part's own inputs lie inside the model, so their ranges follow from
the symbols of the model's inputs: where `images` is [batch, 3, h, w], such shapes say what batch, h and w may be.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import field

from intarsia.errors import InvalidArgument, nearest
from intarsia.graph.dims import Dim, Expr, evaluate, symbols_of
from intarsia.graph.model import Graph, TensorType
from intarsia.lazy_dataclass import dataclass
from intarsia.printable import get_logger
from intarsia.providers.vendor.shape_profile import input_shapes

_ENTRY = re.compile(r"\s*(.+?)\s*:\s*(\d+(?:x\d+)*)\s*")
_logger = get_logger("intarsia.providers.tensorrt")
_MOST_SYMBOLS = 4  # of one size that is computed from several
Shape3 = tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]
"""The least, the best and the largest shape of an input."""


@dataclass(frozen=True)
class Profile:
    """One profile as the options give it: model input -> its shapes; and what follows: symbol -> its sizes."""

    inputs: Mapping[str, Shape3]
    symbols: Mapping[str, tuple[int, int, int]] = field(default_factory=dict)

    def __str__(self) -> str:
        return ",".join(f"{name}:{'/'.join('x'.join(map(str, s)) for s in shapes)}" for name, shapes in self.inputs.items())

    def resolved(self, graph: Graph) -> Profile:
        """With the sizes of the symbols that values of the whole model `graph` have: its inputs, and what lies inside, as
        onnxruntime wants it where it cuts the model there."""
        found: dict[str, tuple[int, int, int]] = {}
        declared = {value.name: value.type for value in graph.inputs}
        for name, shapes in self.inputs.items():
            kind = declared.get(name) or graph.type_of(name)
            if kind is None:
                _logger.warning("a profile names %r; %s", name, nearest(name, declared))
            if not isinstance(kind, TensorType) or kind.shape is None:
                continue
            if len(kind.shape) != len(shapes[0]):
                raise InvalidArgument(f"the profile of {name!r} has {len(shapes[0])} dimensions; the model has it as {kind}")
            for dim, sizes in zip(kind.shape, zip(*shapes, strict=True), strict=True):
                if isinstance(dim, int):
                    if set(sizes) != {dim}:
                        raise InvalidArgument(f"the profile of {name!r} varies a size that is {dim} in the model: {sizes}")
                elif symbols_of(dim) == {str(dim)}:
                    found.setdefault(str(dim), sizes)
        return Profile(self.inputs, found)

    def of_part(self, graph: Graph) -> dict[str, Shape3] | None:
        """The shapes of a part's inputs; None where some size of them does not follow."""
        found: dict[str, Shape3] = {}
        for value, shape in zip(graph.inputs, input_shapes(graph), strict=True):
            if value.name in self.inputs:
                found[value.name] = self.inputs[value.name]
                continue
            if shape is None:
                return None
            ranges = [self._range(dim) for dim in shape]
            sizes = [r for r in ranges if r is not None]
            if len(sizes) != len(ranges):
                return None
            least, best, most = (tuple(r[i] for r in sizes) for i in range(3))
            found[value.name] = least, best, most
        return found

    def _range(self, dim: Dim) -> tuple[int, int, int] | None:
        if not isinstance(dim, Expr):
            return dim, dim, dim
        names = sorted(symbols_of(dim))
        if not names or len(names) > _MOST_SYMBOLS or any(name not in self.symbols for name in names):
            return None
        corners = [
            evaluate(dim, dict(zip(names, sizes, strict=True)))
            for sizes in itertools.product(*((self.symbols[n][0], self.symbols[n][2]) for n in names))
        ]
        best = evaluate(dim, {name: self.symbols[name][1] for name in names})
        return min(*corners, best), best, max(*corners, best)

    def admits(self, sizes: Mapping[str, int]) -> bool:
        """Whether symbols of these sizes lie in the profile."""
        return all(self.symbols[n][0] <= size <= self.symbols[n][2] for n, size in sizes.items() if n in self.symbols)


def parse(texts: Sequence[str], where: str) -> tuple[Profile, ...]:
    """The profiles that three options say: least, best and largest shapes. An input that is named several times has as many
    profiles. Best shapes may be left out: the largest ones.

    Raises:
        InvalidArgument: a text is no list of shapes, or they do not fit each other. `where` begins the message.
    """
    kinds = ("min", "opt", "max")
    least, best, most = (_shapes(text, f"{where}_{kind}_shapes") for text, kind in zip(texts, kinds, strict=True))
    if not least and not most:
        if best:
            raise InvalidArgument(f"{where}_opt_shapes: expected {where}_min_shapes and {where}_max_shapes, too")
        return ()
    best = best or most
    counted = [{name: len(shapes) for name, shapes in given.items()} for given in (least, best, most)]
    if any(count != counted[0] for count in counted):
        raise InvalidArgument(
            f"{where}_min_shapes, _opt_shapes, _max_shapes: expected the same inputs equally often, got "
            f"{sorted(least)}, {sorted(best)}, {sorted(most)}"
        )
    counts = set(counted[0].values())
    if len(counts) > 1:
        raise InvalidArgument(f"{where}_max_shapes: expected every input equally often, for as many profiles; got {counted[0]}")
    profiles = []
    for i in range(counts.pop()):
        inputs = {name: (least[name][i], best[name][i], most[name][i]) for name in most}
        for name, (low, middle, high) in inputs.items():
            ordered = len(low) == len(middle) == len(high) and all(
                1 <= a <= b <= c for a, b, c in zip(low, middle, high, strict=True)
            )
            if not ordered:
                raise InvalidArgument(
                    f"{where}: {name!r}: expected shapes of one rank, none larger than the next, got {low}, {middle}, {high}"
                )
        profiles.append(Profile(inputs))
    return tuple(profiles)


def _shapes(text: str, where: str) -> dict[str, list[tuple[int, ...]]]:
    found: dict[str, list[tuple[int, ...]]] = {}
    for entry in filter(str.strip, text.split(",")):
        match = _ENTRY.fullmatch(entry)
        if match is None:
            raise InvalidArgument(f"{where}: expected entries such as 'images:1x3x224x224', got {entry!r}")
        found.setdefault(match[1], []).append(tuple(int(n) for n in match[2].split("x")))
    return found
