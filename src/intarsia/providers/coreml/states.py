"""State: inputs of a model that get the value of an output of the run before, kept by Core ML between predictions (iOS 18).

`read_state` gives the value at the beginning of a prediction, `coreml_update_state` sets the next one's. Core ML has states in
float16 only, of fixed shapes, zeros before the first prediction.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from intarsia.errors import InvalidArgument
from intarsia.graph.dtypes import DType
from intarsia.graph.model import Graph, TensorType
from intarsia.lazy_dataclass import dataclass
from intarsia.providers.vendor.translator import Untranslatable

_RETAINED = (DType.FLOAT, DType.FLOAT16)


@dataclass(frozen=True)
class State:
    """An input that a package keeps by itself.

    Attributes:
        input, output: names of the model: what a prediction reads, and what the next one reads.
    """

    input: str
    output: str


def parse_states(text: str, where: str) -> tuple[State, ...]:
    """States written "past=present; h=h_next".

    Raises:
        InvalidArgument: it is not written so, or a name comes twice; `where` begins the message.
    """
    found: list[State] = []
    for pair in filter(None, (part.strip() for part in text.split(";"))):
        before, mark, after = (piece.strip() for piece in pair.partition("="))
        if not (before and mark and after):
            raise InvalidArgument(f'{where}: expected INPUT=OUTPUT, such as "past=present; h=h_next", and was given {pair!r}')
        if any(before == s.input or after == s.output for s in found):
            raise InvalidArgument(f"{where}: {pair!r} names an input or output that another state has")
        found.append(State(before, after))
    return tuple(found)


def check_states(states: Sequence[State], graph: Graph) -> None:
    """Whether a part has all of what is kept, in one type and shape of numbers.

    Raises:
        Untranslatable: it has not; says which.
    """
    for state in states:
        for name, names, what in (
            (state.input, graph.input_names(), "input"), (state.output, graph.output_names(), "output"),
        ):  # fmt: skip
            if name not in names:
                raise Untranslatable(f"the state {state.input!r} needs {name!r}, which is no {what} of this part", "shape")
        before, after = (graph.type_of(name) for name in (state.input, state.output))
        if not isinstance(before, TensorType) or not isinstance(after, TensorType) or before != after:
            why = f"the state {state.input!r} is {before}, and {state.output!r}, its next value, {after}"
            raise Untranslatable(why, "type")
        if before.dtype not in _RETAINED:
            raise Untranslatable(f"Core ML keeps floats, and the state {state.input!r} is of {before.dtype.onnx_name}", "type")
        if before.shape is None or not all(isinstance(d, int) for d in before.shape):
            raise Untranslatable(f"Core ML keeps states of fixed sizes, and {state.input!r} is {before}", "shape")


def placeholder(mb: Any, shape: Sequence[int]) -> Any:
    """The state as what a function takes."""
    from coremltools.converters.mil.mil import types

    return mb.state_tensor_placeholder(shape=tuple(shape), dtype=types.fp16)


def read(mb: Any, state: Any, carrier: str) -> Any:
    """The value at the beginning of a prediction, in the model's type."""
    return mb.cast(x=mb.read_state(input=state), dtype=carrier)


def write(mb: Any, state: Any, value: Any) -> None:
    """Sets what the next prediction reads."""
    mb.coreml_update_state(state=state, value=mb.cast(x=value, dtype="fp16"))
