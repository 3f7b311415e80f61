"""`IOBinding`: inputs and outputs tied to memory ahead of the run.

A binding whose inputs and outputs are all tensors in host memory is prepared once two runs had the same shapes (see
`Program.bound`): from then on a run is one call of the compiled code, which reads and writes the bound memory itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from intarsia.device.memory import put_on_device, taken_from_device, written_on_device
from intarsia.ep.device import DeviceTensor
from intarsia.errors import InvalidArgument, WrongType, nearest
from intarsia.graph.dtypes import DType
from intarsia.values.ort_device import OrtDevice
from intarsia.values.ort_value import OrtValue, OrtValueVector, array_at, check_device, device_of, element_dtype

if TYPE_CHECKING:
    from intarsia.ep.provider import BoundCall
    from intarsia.model.runnable import Runnable
    from intarsia.options.session_options import RunOptions
    from intarsia.session.inference_session import InferenceSession
    from intarsia.session.ort_methods import OrtMethods


class IOBinding:
    """Bound inputs and outputs of one session, for `InferenceSession.run_with_iobinding`.

    Inputs and outputs in host memory, and in that of a device whose provider is part of Intarsia ("webgpu"), can be bound.
    An output bound without a buffer is new memory in every run, unless its shape cannot change; bound to a device it stays
    there. Devices are given by name and number, or by an `OrtDevice`. One binding serves one run at a time.
    """

    def __init__(self, session: Any) -> None:
        self._session: InferenceSession = getattr(session, "_session", session)
        self._engine = self._session._engine
        self._engine.stop_watching_states()
        self._inputs: dict[str, Any] = {}
        self._outputs: dict[str, Any] = {}  # an array or device tensor to write into; None: new memory
        self._stay: dict[str, tuple[str, int]] = {}  # outputs bound to a device's memory: its kind and number
        self._results: list[Any] = []
        self._model: Runnable | None = None  # what `_call` and the places are for
        self._call: BoundCall | None = None
        self._ready: BoundCall | None = None  # the same, while a run by its `again` leaves results where they are
        self._input_places: dict[str, int] = {}
        self._output_places: dict[str, int] = {}
        self._shapes: list[object] = []  # of the inputs of the last run that was made by `_run`
        self._tried = False  # whether a call was requested with these

    @property
    def _iobinding(self) -> IOBinding:
        """What programs hand to `session._sess.run_with_iobinding`."""
        return self

    def _check(self, name: str, known: Sequence[str], what: str) -> None:
        if name not in known:
            raise InvalidArgument(
                f"Failed to find NodeArg with name: {name} in the def list; {what}: {nearest(str(name), known)}"
            )

    def _bind(self, name: str, value: Any) -> None:
        if name not in self._inputs and name not in self._engine.bindable:
            session = self._session
            known = [a.name for a in (*session.get_inputs(), *session.get_overridable_initializers())]
            self._check(name, known, "inputs")
        self._inputs[name] = value
        if self._call is None or not self._is_done(self._call.rebind, self._input_places.get(name, -1), value):
            self._forget()

    def _is_done(self, change: Callable[[int, Any], bool], place: int, value: Any) -> bool:
        """What `BoundCall.rebind` or `retarget` says; False where its provider crashed and others stand in."""
        try:
            return change(place, value)
        except Exception as error:
            if not self._engine.recovers(error, self._model):
                raise
            return False

    def _forget(self) -> None:
        self._call, self._ready, self._tried = None, None, False

    def __reduce__(self) -> NoReturn:
        raise TypeError("an IOBinding refers to this process's memory and cannot be pickled or copied: make one of the session")

    def bind_cpu_input(self, name: str, arr_on_cpu: Any) -> None:
        """Bind an array; later runs see what is written into it. Raises InvalidArgument for an unknown name."""
        value = arr_on_cpu.view() if type(arr_on_cpu) is np.ndarray else arr_on_cpu
        call = self._call
        if call is not None and name in self._input_places:
            try:
                if call.rebind(self._input_places[name], value):
                    self._inputs[name] = value
                    return
            except Exception as error:
                if not self._engine.recovers(error, self._model):
                    raise
        self._bind(name, value)

    def bind_input(self, name: str, *place: Any, **named: Any) -> None:
        """Bind memory by its address: `shape` elements of `element_type`, row-major, which the caller keeps alive.

        The arguments are `(name, device_type, device_id, element_type, shape, buffer_ptr)`, or an `OrtDevice` instead of
        `device_type` and `device_id`, or an array alone.

        Raises:
            InvalidArgument: an unknown name, element type or device.
        """
        if len(place) == 1 and not named:
            self.bind_cpu_input(name, place[0])
            return
        names = ["device_type", "device_id", "element_type", "shape", "buffer_ptr"]
        device, number, kind, shape, pointer = _arguments("bind_input", names, place, named)
        check_device(device, number)
        self._bind(name, array_at(pointer, element_dtype(kind), shape))

    def bind_ortvalue_input(self, name: str, ortvalue: OrtValue) -> None:
        """Bind a value; for a tensor in host memory later runs see what is written into it."""
        if not isinstance(ortvalue, OrtValue):
            raise WrongType(f"bind_ortvalue_input: expected an OrtValue for {name!r}, got {type(ortvalue).__name__}")
        self._bind(name, ortvalue._value)

    def bind_output(
        self,
        name: str,
        device_type: Any = "cpu",
        device_id: Any = 0,
        element_type: Any = None,
        shape: Any = None,
        buffer_ptr: int | None = None,
    ) -> None:
        """Bind an output to a device, or to memory there (then type and shape are needed too)."""
        if isinstance(device_type, OrtDevice) and shape is not None and buffer_ptr is None:
            device_id, element_type, shape, buffer_ptr = 0, device_id, element_type, shape
        kind, index = device_of(device_type, device_id)
        if buffer_ptr is None:
            self._bind_output(name, None)
            if kind != "cpu":
                self._stay[name] = kind, index
                self._forget()
            return
        check_device(device_type, device_id)
        if element_type is None or shape is None:
            raise InvalidArgument(
                f"output {name!r}: a buffer needs `element_type` and `shape`, got {element_type!r} and {shape!r}"
            )
        self._bind_output(name, array_at(buffer_ptr, element_dtype(element_type), shape))

    def _bind_output(self, name: str, target: Any) -> None:
        if self._stay.pop(name, None) is not None:
            self._forget()
        if name not in self._outputs:
            if name not in self._engine.output_names:
                self._check(name, self._engine.output_names, "outputs")
            self._outputs[name] = target
            self._forget()
            return
        if target is None and self._outputs[name] is None:
            return
        self._outputs[name], self._ready = target, None
        if self._call is None or not self._is_done(self._call.retarget, self._output_places.get(name, -1), target):
            self._forget()

    def bind_ortvalue_output(self, name: str, ortvalue: OrtValue) -> None:
        """Bind an output to the memory of a tensor."""
        if not isinstance(ortvalue, OrtValue):
            raise InvalidArgument(f"bind_ortvalue_output: expected an OrtValue for {name!r}, got {type(ortvalue).__name__}")
        if isinstance(ortvalue._value, DeviceTensor):
            self._bind_output(name, ortvalue._value)
            self._stay[name] = ortvalue._value.device.kind, ortvalue._value.device.index
            self._forget()
            return
        self._bind_output(name, ortvalue._array("bind_ortvalue_output"))

    def synchronize_inputs(self) -> None:
        """Wait until bound inputs are complete: host memory always is."""

    def synchronize_outputs(self) -> None:
        """Wait until outputs are complete: `run_with_iobinding` returns when they are."""

    def get_outputs(self) -> list[OrtValue]:
        """The outputs of the last run, in the order they were bound."""
        if self._call is not None:
            self._ready = None
            self._renew(self._call)
        return [OrtValue(v) for v in self._results]

    def _renew(self, call: BoundCall) -> None:
        try:
            call.renew()
        except Exception as error:
            if not self._engine.recovers(error, self._model):
                raise
            self._forget()

    def get_outputs_as_ortvaluevector(self) -> OrtValueVector:
        """The outputs of the last run, in one vector."""
        return OrtValueVector(self.get_outputs())

    def copy_outputs_to_cpu(self) -> list[Any]:
        """The outputs of the last run as arrays of their own."""
        return [
            v.copy() if type(v) is np.ndarray else taken_from_device(v) if isinstance(v, DeviceTensor) else v
            for v in self._results
        ]

    def clear_binding_inputs(self) -> None:
        """Forget all inputs that were bound."""
        self._inputs.clear()
        self._forget()

    def clear_binding_outputs(self) -> None:
        """Forget all outputs that were bound, and the last results."""
        self._outputs.clear()
        self._stay.clear()
        self._results = []
        self._forget()

    def run(self, run_options: RunOptions | None = None) -> None:
        """Run the session on what is bound; bound buffers receive their outputs.

        Raises:
            InvalidArgument: no output is bound, or a bound buffer is of another type or shape than the output.
            As `InferenceSession.run`.
        """
        call, engine = self._call, self._engine
        if call is not None and run_options is None and self._model is engine.model and not engine.watched:
            self._ready = None
            try:
                results = call()
            except BaseException as error:
                self._results = []  # the run may have written into them
                if not engine.recovers(error, self._model):
                    raise
                results = None
            if results is not None:
                self._results = results
                self._ready = call if call.again is not None else None
                return
        self._run(run_options)

    def _run(self, run_options: RunOptions | None) -> None:
        self._ready = None
        if not self._outputs:
            raise InvalidArgument("Error in execution: At least one output should be requested. Bind one with bind_output().")
        session = self._session
        if self._stay or any(isinstance(x, DeviceTensor) for x in self._inputs.values()):
            found = self._engine.run_on_devices(list(self._outputs), self._inputs, run_options, frozenset(self._stay))
            found = [
                put_on_device(value, *self._stay[name]) if name in self._stay and isinstance(value, np.ndarray) else value
                for name, value in zip(self._outputs, found, strict=True)
            ]
        else:
            into = run_options is None and any(target is not None for target in self._outputs.values())
            made = self._engine.run_into(self._inputs, self._outputs) if into else None
            found = session.run(list(self._outputs), self._inputs, run_options) if made is None else made
        self._results = [
            _delivered(name, value, target) for (name, target), value in zip(self._outputs.items(), found, strict=True)
        ]
        shapes = [getattr(x, "shape", None) for x in self._inputs.values()]
        if self._model is not self._engine.model or shapes != self._shapes:
            self._forget()
            self._model, self._shapes = self._engine.model, shapes
        elif not self._tried and not self._engine.watched:
            self._tried = True
            self._prepare(self._model)

    def _prepare(self, model: Runnable) -> None:
        """The call that later runs make, where the compiled model can be called on fixed memory: after the second run of the
        same shapes, since a cache that grows from run to run would be prepared for each."""
        self._call = None
        if self._stay or set(self._inputs) != set(model.inputs):
            return
        arrays = [self._inputs[name] for name in model.inputs]
        if all(type(a) is np.ndarray and _plain(a) for a in arrays):
            self._call = self._engine.bound(model, arrays, self._outputs)
            self._input_places = {name: i for i, name in enumerate(model.inputs)}
            self._output_places = {name: i for i, name in enumerate(self._outputs)}


def run_with_vectors(
    session: OrtMethods,
    run_options: RunOptions | None,
    feed_names: Sequence[str],
    feeds: Sequence[OrtValue],
    fetch_names: Sequence[str],
    fetches: OrtValueVector,
    fetch_devices: Sequence[OrtDevice],
) -> None:
    """As `InferenceSession.run_with_ortvaluevector`."""
    if len(feed_names) != len(feeds) or len(fetch_names) != len(fetch_devices):
        raise InvalidArgument(
            f"run_with_ortvaluevector: expected a value per feed and a device per fetch, got {len(feed_names)} feed names, "
            f"{len(feeds)} values, {len(fetch_names)} fetch names and {len(fetch_devices)} devices"
        )
    places = [device_of(device, 0) for device in fetch_devices]
    if any(kind != "cpu" for kind, _ in places):
        binding = IOBinding(session)
        for name, value in zip(feed_names, feeds, strict=True):
            binding.bind_ortvalue_input(name, value)
        for name, place in zip(fetch_names, places, strict=True):
            binding.bind_output(name, *place)
        binding.run(run_options)
        results = [value._value for value in binding.get_outputs()]
    else:
        results = session.run(list(fetch_names), dict(zip(feed_names, feeds, strict=True)), run_options)
    for i, result in enumerate(results):
        if i < len(fetches):
            fetches[i].update_inplace(result)
        else:
            fetches.push_back(OrtValue(result))


def _plain(array: np.ndarray) -> bool:
    return array.flags.c_contiguous and array.flags.aligned and array.dtype.isnative and not array.dtype.hasobject


def _arguments(call: str, names: Sequence[str], place: Sequence[Any], named: dict[str, Any]) -> list[Any]:
    """The arguments of a binding call: device, its number, element type, shape, address."""
    given = list(place)
    if given and isinstance(given[0], OrtDevice) and len(given) + len(named) == len(names) - 1:
        given.insert(1, 0)
    found = dict(zip(names, given, strict=False))
    for name, value in named.items():
        if name not in names or name in found:
            raise InvalidArgument(f"{call}: unexpected argument {name!r}; expected name, {', '.join(names)}")
        found[name] = value
    if len(given) > len(names) or len(found) != len(names):
        raise InvalidArgument(f"{call}: expected name, {', '.join(names)}; got {len(given) + len(named)} arguments")
    return [found[name] for name in names]


def _delivered(name: str, value: Any, target: Any) -> Any:
    if target is None or value is target:
        return value
    if isinstance(target, DeviceTensor):
        written_on_device(target, value)
        return target
    if not isinstance(value, np.ndarray) or value.dtype != target.dtype or value.shape != target.shape:
        given = _described(value) if isinstance(value, np.ndarray) else type(value).__name__
        raise InvalidArgument(
            f"Got invalid dimensions for output: {name}: output {name!r} is {given}, the bound buffer is {_described(target)}. "
            "Please fix either the inputs/outputs or the model."
        )
    np.copyto(target, value)
    return target


def _described(array: np.ndarray) -> str:
    name = "string" if array.dtype == object else DType.of(array.dtype).numpy.name
    return f"{name} {list(array.shape)}"
