"""`IOBinding`: inputs and outputs tied to memory ahead of the run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from intarsia.errors import InvalidArgument, nearest
from intarsia.values import OrtValue, array_at, check_device, element_dtype

if TYPE_CHECKING:
    from intarsia.session import InferenceSession


class IOBinding:
    """Bound inputs and outputs of one session, for `InferenceSession.run_with_iobinding`.

    Inputs and outputs in host memory can be bound. An output bound without a buffer is allocated by the run.
    """

    def __init__(self, session: InferenceSession) -> None:
        self._session = session
        self._inputs: dict[str, Any] = {}
        self._outputs: dict[str, np.ndarray | None] = {}
        self._results: list[OrtValue] = []

    def _check(self, name: str, known: Sequence[str], what: str) -> None:
        if name not in known:
            raise InvalidArgument(
                f"Failed to find NodeArg with name: {name} in the def list; {what}: {nearest(str(name), known)}"
            )

    def _bind(self, name: str, value: Any) -> None:
        session = self._session
        known = [a.name for a in (*session.get_inputs(), *session.get_overridable_initializers())]
        self._check(name, known, "inputs")
        self._inputs[name] = value

    def bind_cpu_input(self, name: str, arr_on_cpu: np.ndarray) -> None:
        """Bind an array; later runs see what is written into it. Raises InvalidArgument for an unknown name."""
        self._bind(name, arr_on_cpu)

    def bind_input(
        self, name: str, device_type: str, device_id: int, element_type: Any, shape: Sequence[int], buffer_ptr: int
    ) -> None:
        """Bind memory by its address: `shape` elements of `element_type`, row-major."""
        check_device(device_type, device_id)
        self._bind(name, array_at(buffer_ptr, element_dtype(element_type), shape))

    def bind_ortvalue_input(self, name: str, ortvalue: OrtValue) -> None:
        self._bind(name, ortvalue)

    def bind_output(
        self,
        name: str,
        device_type: str = "cpu",
        device_id: int = 0,
        element_type: Any = None,
        shape: Sequence[int] | None = None,
        buffer_ptr: int | None = None,
    ) -> None:
        """Bind an output to a device, or to memory there (then type and shape are needed too)."""
        check_device(device_type, device_id)
        self._check(name, [a.name for a in self._session.get_outputs()], "outputs")
        if buffer_ptr is None:
            self._outputs[name] = None
            return
        if element_type is None or shape is None:
            raise InvalidArgument(
                f"output {name!r}: a buffer needs `element_type` and `shape`, got {element_type!r} and {shape!r}"
            )
        self._outputs[name] = array_at(buffer_ptr, element_dtype(element_type), shape)

    def bind_ortvalue_output(self, name: str, ortvalue: OrtValue) -> None:
        """Bind an output to the memory of a tensor."""
        self._check(name, [a.name for a in self._session.get_outputs()], "outputs")
        self._outputs[name] = ortvalue._array("bind_ortvalue_output")

    def synchronize_inputs(self) -> None:
        """Wait until bound inputs are complete: host memory always is."""

    def synchronize_outputs(self) -> None:
        """Wait until outputs are complete: `run_with_iobinding` returns when they are."""

    def get_outputs(self) -> list[OrtValue]:
        """The outputs of the last run, in the order they were bound."""
        return list(self._results)

    def get_outputs_as_ortvaluevector(self) -> list[OrtValue]:
        return self.get_outputs()

    def copy_outputs_to_cpu(self) -> list[Any]:
        """The outputs of the last run as arrays of their own."""
        return [v.copy() if isinstance(v, np.ndarray) else v for v in (r.numpy() for r in self._results)]

    def clear_binding_inputs(self) -> None:
        self._inputs.clear()

    def clear_binding_outputs(self) -> None:
        self._outputs.clear()
        self._results = []

    def run(self, run_options: Any) -> None:
        """Run the session on what is bound; bound buffers receive their outputs."""
        if not self._outputs:
            raise InvalidArgument("Error in execution: At least one output should be requested. Bind one with bind_output().")
        found = self._session.run(list(self._outputs), self._inputs, run_options)
        self._results = [
            OrtValue(_delivered(name, value, target))
            for (name, target), value in zip(self._outputs.items(), found, strict=True)
        ]


def _delivered(name: str, value: Any, target: np.ndarray | None) -> Any:
    if target is None:
        return value
    if not isinstance(value, np.ndarray) or value.dtype != target.dtype or value.shape != target.shape:
        given = f"{value.dtype.name} {list(value.shape)}" if isinstance(value, np.ndarray) else type(value).__name__
        raise InvalidArgument(f"output {name!r} is {given}, the bound buffer is {target.dtype.name} {list(target.shape)}")
    np.copyto(target, value)
    return target
