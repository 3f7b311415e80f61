"""Registering operators: decorators, libraries of operators, and what sessions take as one."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any, TypeVar

from intarsia.custom_ops.function_records import HostOperator, ShapeRule, definition, host_record
from intarsia.custom_ops.op_run import is_op_run, op_run_records
from intarsia.custom_ops.schema import read_schema
from intarsia.errors import InvalidArgument, NoSuchFile, NotImplemented, WrongType
from intarsia.ops.framework.registry_scopes import PROCESS, STANDARD_DOMAINS, OwnOperators, OwnRecord, label

F = TypeVar("F", bound=Callable[..., Any])
Types = Mapping[str, str | Sequence[str]]

_NATIVE = (".so", ".dll", ".dylib", ".pyd")
_MARK = "__intarsia_records__"
_loading: ContextVar[OwnOperators | None] = ContextVar("intarsia_loading", default=None)


def op(
    name: str,
    *,
    since: int | Sequence[int] = 1,
    inputs: Mapping[str, str] | None = None,
    outputs: Mapping[str, str] | Sequence[str] | str | None = None,
    types: Types | None = None,
    values: Sequence[str] = (),
    deterministic: bool = True,
    override: bool = False,
) -> Callable[[F], F]:
    """Register an operator that is written in tensor primitives, for every session made from now on.

    The function's positional parameters are the operator's inputs (None where an optional one is omitted; `*xs` takes any
    number), its keyword-only ones the attributes. It gets `Tensor`s and returns one, or a tuple of one for each output; their
    element types and shapes are the operator's type inference, and every compiling provider compiles them, fused with their
    neighbours. A keyword-only parameter `node` receives a `NodeContext`.

    Args:
        name: domain and operator, as in "my.domain::Scale".
        since: the opset versions of the domain from which on this definition counts.
        inputs: element types by parameter: "float", "float | double", "any", a name declared in `types`, or "seq(...)".
        outputs: element types of the results, to be checked: a dict by name, a list, or one.
        types: type variables: {"T": "float | double"}.
        values: inputs that are needed as integers (a shape, axes): given as arrays of sizes, which may be symbolic.
        deterministic: False where equal inputs may give different results: nothing is then computed before the run.
        override: also in place of an operator of this name that exists already: a standard one, one that was registered
            before, or a function that the model brings along.

    Raises:
        InvalidArgument: the name is taken, or the function's signature does not fit.
    """

    def register(function: F) -> F:
        schema = read_schema(name, function, inputs, outputs, types, values)
        traced = definition(schema, function)
        domain, op_type = split_name(name)
        records = [
            OwnRecord(domain, op_type, version, traced, values=tuple(values), deterministic=deterministic, override=override)
            for version in _versions(name, since)
        ]
        return _registered(_loading.get(), function, records)

    return register


def host_op(
    name: str,
    *,
    shape: ShapeRule = None,
    infer: Callable[..., Any] | None = None,
    since: int | Sequence[int] = 1,
    inputs: Mapping[str, str] | None = None,
    outputs: Mapping[str, str] | Sequence[str] | str | None = None,
    types: Types | None = None,
    values: Sequence[str] = (),
    reason: str = "a Python function",
    deterministic: bool = True,
    override: bool = False,
) -> Callable[[F], F]:
    """Register an operator that is a function over NumPy arrays, for every session made from now on.

    Parameters are as for `op`, but inputs are arrays (lists of arrays for sequences) and so are results. Types and shapes of
    results are checked after every call.

    Args:
        shape: sizes of the results: the name of the input whose shape they have; or a function with the operator's
            parameters that gets shapes instead of arrays and returns a shape (a list of them for several outputs), None
            for a size that only a run knows; or None, where not even the rank is known.
        infer: instead of `shape` and `outputs`: a function with the operator's parameters that gets `TensorType`s and
            other types, and returns those of the outputs.
        outputs: element types of the results; by default there is one output, of the first input's element type.
        reason: why it is no `op`, for `explain`.

    Raises:
        InvalidArgument: as for `op`.
    """

    def register(function: F) -> F:
        if infer is not None and (shape is not None or outputs is not None):
            raise InvalidArgument(f"operator {name!r}: infer= stands instead of shape= and outputs=; expected either")
        schema = read_schema(name, function, inputs, outputs, types, values)
        operator = HostOperator(schema, function, shape, infer)
        domain, op_type = split_name(name)
        records = [
            host_record(
                operator, domain, op_type, version, tuple(values), reason=reason, deterministic=deterministic, override=override
            )
            for version in _versions(name, since)
        ]
        return _registered(_loading.get(), function, records)

    return register


class OperatorLibrary:
    """Operators for the sessions that ask for them: `InferenceSession(..., new_ops=[library])`.

    `library.op` and `library.host_op` are the decorators of those names; what they register is known to this library only.
    """

    def __init__(self, name: str = "") -> None:
        self.name = name
        self.operators = OwnOperators()

    def op(self, name: str, **options: Any) -> Callable[[F], F]:
        """As `intarsia.op`, for this library."""
        return self._register(op(name, **options))

    def host_op(self, name: str, **options: Any) -> Callable[[F], F]:
        """As `intarsia.host_op`, for this library."""
        return self._register(host_op(name, **options))

    def add(self, source: Any) -> None:
        """Take over operators: a decorated function, another library, a module or its name or file, or an `OpRun` class.

        Raises:
            InvalidArgument: it has no operators.
            NoSuchFile: there is no such file.
            NotImplemented: it is a native library.
        """
        self.operators.add(records_of(source))

    def _register(self, decorate: Callable[[F], F]) -> Callable[[F], F]:
        def register(function: F) -> F:
            with registering_into(self.operators):
                return decorate(function)

        return register

    def __repr__(self) -> str:
        names = ", ".join(dict.fromkeys(label(r.domain, r.name) for r in self.operators))
        return f"OperatorLibrary({self.name!r}: {names or 'empty'})"


@contextmanager
def registering_into(operators: OwnOperators) -> Iterator[None]:
    """Let the decorators register there instead of in the process."""
    token = _loading.set(operators)
    try:
        yield
    finally:
        _loading.reset(token)


def unregister_operator(name: str) -> None:
    """Forget an operator that `op` or `host_op` registered, in all versions. Sessions that use it are not affected.

    Raises:
        UnknownOption: no such operator was registered.
    """
    PROCESS.remove(split_name(name))


def split_name(name: str) -> tuple[str, str]:
    """(domain, operator) of "domain::Operator".

    Raises:
        InvalidArgument: it is not of this form.
    """
    domain, separator, op_type = name.rpartition("::") if isinstance(name, str) else ("", "", "")
    if not separator or not domain or not op_type or not op_type.replace("_", "a").isalnum():
        raise InvalidArgument(
            f"an operator's name is 'domain::Operator', such as 'my.domain::Scale' or 'ai.onnx::Relu'; got {name!r}"
        )
    return ("" if domain == "ai.onnx" else domain), op_type


def _versions(name: str, since: int | Sequence[int]) -> list[int]:
    versions = [since] if isinstance(since, int) else list(since)
    if not versions or any(isinstance(v, bool) or not isinstance(v, int) or v < 1 for v in versions):
        raise InvalidArgument(f"operator {name!r}: since={since!r}; expected an opset version from 1, or a list of them")
    return sorted(set(versions))


def _registered(target: OwnOperators | None, function: F, records: Sequence[OwnRecord]) -> F:
    _check_builtin(records)
    (PROCESS if target is None else target).add(records)
    setattr(function, _MARK, [*getattr(function, _MARK, ()), *records])
    return function


def _check_builtin(records: Sequence[OwnRecord]) -> None:
    """Refuse the name of an operator that Intarsia has, unless it is to be replaced."""
    for record in records:
        if record.override or record.domain not in STANDARD_DOMAINS:
            continue
        from intarsia.ops import builtin

        if builtin().find(record.domain, record.name, 1 << 30) is not None:
            raise InvalidArgument(
                f"operator {label(*record.key)} is one of Intarsia's own; pass override=True to replace it (an OpRun class: "
                "override = True), or give yours another domain"
            )


# --- what a session takes as operators --------------------------------------------------------------------------------


def records_of(source: Any) -> list[OwnRecord]:
    """The operators of a decorated function, a library, a module (or its name, or its file), or an `OpRun` class."""
    if isinstance(source, OperatorLibrary):
        return list(source.operators)
    if isinstance(source, types.ModuleType):
        return _of_module(source)
    if isinstance(source, type):
        if not is_op_run(source):
            raise InvalidArgument(
                f"new_ops: the class {source.__qualname__} is no operator; expected a class with op_domain and _run, as "
                "onnx.reference.op_run.OpRun has them"
            )
        records = op_run_records(source)
        _check_builtin(records)
        return records
    if isinstance(source, (str, os.PathLike)):
        return _of_name(os.fspath(source))
    found = getattr(source, _MARK, None)
    if found is None:
        raise WrongType(
            f"{source!r} has no operators; expected a function decorated by intarsia.op or intarsia.host_op, an "
            "OperatorLibrary, a module, its name or file, or an onnx OpRun class"
        )
    return list(found)


def _of_name(name: str) -> list[OwnRecord]:
    if name.lower().endswith(_NATIVE) or ".so." in Path(name).name:
        raise NotImplemented(
            f"{name!r} is a native library, made for onnxruntime's C API, which Intarsia does not have; write its operators in "
            "Python (docs/custom-operators.md) and give the module or its file"
        )
    is_file = name.endswith(".py") or os.sep in name or "/" in name
    collected = OwnOperators()
    with registering_into(collected):
        module = _from_file(Path(name)) if is_file else _imported(name)
    return [*collected, *_of_module(module, collected)]


def _of_module(module: types.ModuleType, known: OwnOperators | None = None) -> list[OwnRecord]:
    """Operators that a module defines; those in `known` are left out."""
    already = set(map(id, known or ()))
    found: dict[int, OwnRecord] = {}
    for value in vars(module).values():
        if isinstance(value, OperatorLibrary):
            found.update((id(r), r) for r in value.operators)
        elif isinstance(value, type):
            if value.__module__ == module.__name__ and is_op_run(value):
                found.update((id(r), r) for r in op_run_records(value))
        elif isinstance(value, types.FunctionType):
            found.update((id(r), r) for r in getattr(value, _MARK, ()))
    records = [r for i, r in found.items() if i not in already]
    if not records and not already:
        raise InvalidArgument(
            f"the module {module.__name__!r} ({getattr(module, '__file__', 'built in')}) has no operators; expected functions "
            "decorated by intarsia.op or intarsia.host_op, an OperatorLibrary, or OpRun classes"
        )
    return records


def _imported(name: str) -> types.ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name != name.partition(".")[0] and error.name != name:
            raise
        raise InvalidArgument(
            f"there is no module {name!r} with operators; expected a module that can be imported, or the path of a .py file"
        ) from error


def _from_file(path: Path) -> types.ModuleType:
    if not path.is_file():
        raise NoSuchFile(f"the operators' file {str(path)!r} does not exist (current folder: {str(Path.cwd())!r})")
    spec = importlib.util.spec_from_file_location(f"intarsia_operators_{path.stem}", path.resolve())
    if spec is None or spec.loader is None:
        raise InvalidArgument(f"{str(path)!r} is no Python file; expected a .py file with operators")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        sys.modules.pop(spec.name, None)
        raise
    return module


def session_operators(sources: Sequence[Any]) -> list[OwnOperators]:
    """The operators of one session: those of `sources`, later ones over earlier ones.

    Raises:
        InvalidArgument: one of them is no operator.
    """
    if isinstance(sources, (str, os.PathLike)) or not isinstance(sources, Sequence):
        raise InvalidArgument(f"new_ops: expected a list of operators, got {sources!r}; write [{sources!r}]")
    layers = []
    for source in sources:
        layer = OwnOperators()
        layer.add(records_of(source))
        layers.append(layer)
    return layers
