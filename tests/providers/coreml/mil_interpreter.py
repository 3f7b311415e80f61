"""Executes packages of Core ML without Core ML: reads the saved package and computes operation by operation with NumPy.

What `mil_kernels` has is computed by it, the rest by coremltools' own `value_inference`, which is Apple's word on what an
operation computes. `NumPyEngine` is an `Engine` of the provider.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from intarsia.providers.coreml import converter
from intarsia.providers.coreml.engine import Features, Loaded, LoadSettings

try:
    from mil_kernels import KERNELS, MilList
except ImportError:  # where the folder is not on the path
    from .mil_kernels import KERNELS, MilList  # type: ignore[no-redef]


class MilFunction:
    """The main function of a saved package."""

    def __init__(self, package: Path) -> None:
        ct = converter.tools()
        from coremltools.converters.mil.frontend.milproto.load import load

        with converter.quiet():
            spec = ct.utils.load_spec(str(package))
            weights = package / "Data" / "com.apple.CoreML" / "weights"
            program = load(spec, spec.specificationVersion, str(weights))
        self.function = program.functions["main"]
        self.input_names = [feature.name for feature in spec.description.input]
        self.output_names = [feature.name for feature in spec.description.output]
        self.features = {f.name: f.type.multiArrayType for f in (*spec.description.input, *spec.description.output)}
        self.kinds = [op.op_type for op in self.function.operations if op.op_type != "const"]
        self.ran: list[str] = []
        self.state_names = [feature.name for feature in spec.description.state]
        self.states: dict[str, np.ndarray] = {}

    def make_state(self) -> None:
        """What every state is before a first prediction."""
        for name in self.state_names:
            kind = self.function.inputs[name].sym_type.wrapped_type()
            self.states[name] = np.zeros(tuple(map(int, kind.get_shape())), np.float16)

    def run(self, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        values: dict[str, Any] = {}
        for name, array in inputs.items():
            self._check(name, array)
            values[name] = array
        with converter.quiet():
            self._execute(self.function, values)
        found = {variable.name: np.asarray(values[variable.name]) for variable in self.function.outputs}
        return {name: found[name] for name in self.output_names}

    def _execute(self, block: Any, values: dict[str, Any]) -> None:
        """Compute a block's variables; it sees those around it."""
        for op in block.operations:
            if op.op_type == "const":
                values[op.outputs[0].name] = op.outputs[0].val
                continue
            results = self._looped(op, values) if op.op_type == "while_loop" else self._computed(op, values)
            for variable, result in zip(op.outputs, results, strict=True):
                if not isinstance(result, MilList):
                    self._check_variable(op, variable, result)
                values[variable.name] = result

    def _looped(self, op: Any, values: dict[str, Any]) -> list[Any]:
        """As documented: while the first block says so, the second one makes the next loop variables of them."""
        condition, body = op.blocks
        self.ran.append(op.op_type)
        held = [values.get(v.name, v.val) for v in op.loop_vars]
        while True:
            results = []
            for block in (condition, body):
                inner = {**values, **{v.name: x for v, x in zip(block.inputs, held, strict=True)}}
                self._execute(block, inner)
                results = [inner.get(v.name, v.val) for v in block.outputs]
                if block is condition and not results[0]:
                    return held
            held = results

    def _check(self, name: str, array: np.ndarray) -> None:
        """As Core ML refuses arrays of another type or shape."""
        feature = self.features[name]
        types = {65568: np.float32, 65552: np.float16, 131104: np.int32}
        assert array.dtype == types[feature.dataType], (name, array.dtype)
        flexible = feature.WhichOneof("ShapeFlexibility")
        if flexible is None:
            assert list(array.shape) == list(feature.shape), (name, array.shape)
        elif flexible == "shapeRange":
            for size, limits in zip(array.shape, feature.shapeRange.sizeRanges, strict=True):
                assert limits.lowerBound <= size and (limits.upperBound < 0 or size <= limits.upperBound), (name, array.shape)
        else:
            assert list(array.shape) in [list(s.shape) for s in feature.enumeratedShapes.shapes], (name, array.shape)

    def _check_variable(self, op: Any, variable: Any, result: Any) -> None:
        """What MIL says of a variable is so: of a known shape, that one."""
        declared = tuple(d if isinstance(d, (int, np.integer)) else None for d in variable.shape)
        given = np.shape(result)
        fits = len(declared) == len(given) and all(d is None or d == g for d, g in zip(declared, given, strict=True))
        assert fits, (op.op_type, declared, given)

    def _computed(self, op: Any, values: Mapping[str, Any]) -> list[Any]:
        def value(v: Any) -> Any:
            if isinstance(v, (list, tuple)):
                return [value(each) for each in v]
            found = values.get(v.name, v.val)
            return bool(found) if isinstance(found, np.bool_) and v.rank == 0 and v.op and v.op.op_type == "const" else found

        self.ran.append(op.op_type)
        if op.op_type == "read_state":
            return [self.states[op.input.name].copy()]
        if op.op_type == "coreml_update_state":
            assert op.value.dtype == op.state.sym_type.wrapped_type().T[0], op.value.dtype
            self.states[op.state.name] = np.array(value(op.value), np.float16)
            return [self.states[op.state.name].copy()]
        given = {key: value(v) for key, v in op.inputs.items() if v is not None}
        kernel = KERNELS.get(op.op_type)
        if kernel is not None:
            result = kernel(**given)
        else:
            result = _inferred(op.op_type, given, self.function.opset_version)
        several = isinstance(result, (list, tuple)) and not isinstance(result, MilList)
        results = list(result) if several else [result]
        return [_typed(r, v) for r, v in zip(results, op.outputs, strict=True)]


def _typed(result: Any, variable: Any) -> Any:
    from coremltools.converters.mil.mil import types

    if isinstance(result, MilList):
        return result

    dtype = {types.fp32: np.float32, types.fp16: np.float16, types.int32: np.int32, types.bool: np.bool_}[variable.dtype]
    found = np.asarray(result)
    assert found.dtype == dtype or found.dtype.kind == np.dtype(dtype).kind, (variable.op.op_type, found.dtype, dtype)
    return found.astype(dtype)


def _inferred(op_type: str, given: Mapping[str, Any], opset: Any) -> Any:
    """By `value_inference`, of constants."""
    from coremltools.converters.mil import Builder as mb
    from coremltools.converters.mil.mil import Function

    plain = {k: (v[()] if isinstance(v, np.ndarray) and not v.ndim else v) for k, v in given.items()}
    with Function({"unused": mb.placeholder(shape=(1,))}, opset_version=opset):
        made = getattr(mb, op_type)(**plain)
    several = isinstance(made, (list, tuple))
    found = [v.val for v in made] if several else [made.val]
    if any(v is None for v in found):
        raise NotImplementedError(f"no kernel of {op_type}")
    return found


class _LoadedFunction(Loaded):
    def __init__(self, function: MilFunction, settings: LoadSettings, engine: NumPyEngine) -> None:
        self._function, self._settings, self._engine = function, settings, engine

    def predict(self, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        if self._engine.fault == "predict":
            raise RuntimeError("E5RT: the device was lost")
        names = self._function.input_names
        return list(self._function.run(dict(zip(names, inputs, strict=True))).values())

    def devices(self) -> Mapping[str, str]:
        if not self._settings.plan:
            return {}
        return {v.name: "CPU" for op in self._function.function.operations for v in op.outputs}


class NumPyEngine:
    """Core ML's place is taken by the interpreter. `fault`: what goes wrong: compile, nothing, load, predict."""

    name = "NumPy"

    def __init__(self) -> None:
        self.fault, self.version = "", "1"
        self.compiled = self.loaded = 0
        self.settings: list[LoadSettings] = []
        self.kinds: list[str] = []

    def versions(self) -> Mapping[str, str]:
        return {"engine": self.version}

    def compile(self, package: Path, folder: Path) -> Path:
        if self.fault == "compile":
            raise RuntimeError("Error compiling model: unable to parse ML Program")
        if self.fault == "memory":
            raise MemoryError
        self.compiled += 1
        target = folder / "model.mlmodelc"
        shutil.copytree(package, target)
        return target

    def load(self, compiled: Path, features: Features, settings: LoadSettings) -> Loaded:
        if self.fault == "load":
            raise RuntimeError("Error reading the model: Failed to build the execution plan")
        self.loaded += 1
        self.settings.append(settings)
        function = MilFunction(compiled)
        assert (tuple(function.input_names), tuple(function.output_names)) == (features.inputs, features.outputs)
        self.kinds += function.kinds
        return _LoadedFunction(function, settings, self)
