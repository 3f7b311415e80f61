"""A user's function as an operator's record: called with what it declares, and its results checked against that."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from intarsia.custom_ops.schema import UNTYPED, Schema
from intarsia.errors import Fail, IntarsiaError, InvalidArgument
from intarsia.graph.dims import Dim, Expr, format_shape, fresh_symbol
from intarsia.graph.dtypes import DType
from intarsia.graph.model import OptionalType, SequenceType, TensorType, ValueType
from intarsia.ops.framework.registry import NodeContext
from intarsia.ops.framework.registry_scopes import OwnRecord
from intarsia.primitives.lang import DefinitionError, Tensor

ShapeRule = str | Callable[..., Any] | None
Kind = ValueType | None


class _Unknown(Exception):
    """A shape rule requested elements that only a run knows."""


def definition(schema: Schema, function: Callable[..., Any]) -> Callable[..., Any]:
    """`function` over tensors, with its operands, attributes and results checked."""
    wants_node = "node" in inspect.signature(function).parameters

    def traced(*inputs: Any, node: NodeContext, **attributes: Any) -> tuple[Tensor | None, ...]:
        bound = schema.bind([_kind_of_operand(x) for x in (node.operands or inputs)])
        given = schema.read_attributes(attributes)
        if wants_node:
            given["node"] = node
        try:
            out = function(*inputs, **given)
        except DefinitionError:
            raise
        except Exception as error:
            raise DefinitionError(f"its definition {_where(function)} raised {type(error).__name__}: {error}") from error
        results = tuple(out) if isinstance(out, (tuple, list)) else (out,)
        for i, x in enumerate(results):
            _check_root(schema, i, x, bound, function)
        return results

    return _like(traced, function)


def _check_root(schema: Schema, i: int, x: Any, bound: Any, function: Callable[..., Any]) -> None:
    if x is None:
        return
    if not isinstance(x, Tensor):
        raise DefinitionError(
            f"its definition {_where(function)} returned a {type(x).__name__}; expected a Tensor, or a tuple of "
            "one for each output"
        )
    if schema.outputs is None:
        return
    if i >= len(schema.outputs):
        raise DefinitionError(f"its definition gave {i + 1} outputs or more; expected {len(schema.outputs)}")
    dtype = schema.element_type(i, (), bound)
    if dtype is not None and x.dtype != dtype:
        raise DefinitionError(
            f"its definition {_where(function)} gave {x.dtype.onnx_name} for {schema.output_name(i)!r}; expected "
            f"{dtype.onnx_name}: k.cast(..., DType.{dtype.name})"
        )


def _kind_of_operand(x: Any) -> Kind:
    if isinstance(x, Tensor):
        return TensorType(x.dtype, x.shape)
    if isinstance(x, (TensorType, SequenceType, OptionalType)):
        return x
    return _kind_of_value(x)


def _kind_of_value(x: Any) -> Kind:
    if isinstance(x, (np.ndarray, np.generic)):
        return TensorType(DType.of(x.dtype), x.shape) if x.dtype != object else TensorType(DType.STRING, x.shape)
    if isinstance(x, list):
        return SequenceType(_kind_of_value(x[0]) if x else None)
    return None


def _where(function: Callable[..., Any]) -> str:
    code = getattr(inspect.unwrap(function), "__code__", None)
    return f"{function.__qualname__} ({code.co_filename}:{code.co_firstlineno})" if code else function.__qualname__


def _like(wrapper: Callable[..., Any], function: Callable[..., Any]) -> Callable[..., Any]:
    """`wrapper` with the signature of `function`, and the keyword `node`."""
    functools.update_wrapper(wrapper, function)
    signature = inspect.signature(function)
    if "node" not in signature.parameters:
        node = inspect.Parameter("node", inspect.Parameter.KEYWORD_ONLY)
        signature = signature.replace(parameters=[*signature.parameters.values(), node])
    vars(wrapper).update(__signature__=signature)
    return wrapper


# --- host operators ---------------------------------------------------------------------------------------------------


class HostOperator:
    """A NumPy function with its rule for the types of results: as shape inference, and as a check of every run."""

    def __init__(
        self,
        schema: Schema,
        function: Callable[..., Any],
        shape: ShapeRule,
        infer: Callable[..., Any] | None,
    ) -> None:
        self.schema, self.function, self.shape, self.infer = schema, function, shape, infer
        self.wants_node = "node" in inspect.signature(function).parameters
        self.shape_takes = _rule_keywords(schema, shape, "shape") if callable(shape) else frozenset[str]()
        self.infer_takes = _rule_keywords(schema, infer, "infer") if infer is not None else frozenset[str]()
        if isinstance(shape, str) and shape not in [n for n, _ in schema.inputs]:
            named = ", ".join(repr(n) for n, _ in schema.inputs) or "none"
            raise InvalidArgument(
                f"operator {schema.name!r}: shape={shape!r} names no input (inputs: {named}); expected an input's name, a "
                "function of the inputs' shapes, or None where shapes are known only at run time"
            )

    # --- types ---

    def types(self, *inputs: Any, node: NodeContext, **attributes: Any) -> list[Kind]:
        """Types of the outputs. `inputs` are types; integers that are known stand in their place as arrays of sizes."""
        inputs = (*inputs, *[None] * (len(self.schema.inputs) - len(inputs)))
        kinds = [UNTYPED if isinstance(x, np.ndarray) else x for x in inputs]
        bound = self.schema.bind(kinds)
        given = self.schema.read_attributes(attributes)
        if self.infer is not None:
            return self._by_rule(inputs, given, node)
        shapes = self._shapes(inputs, kinds, given, node)
        return [self._type(i, shapes[i], kinds, bound) for i in range(self.schema.output_count)]

    def _type(self, i: int, shape: Sequence[Any] | None, kinds: Sequence[Kind], bound: Any) -> Kind:
        dtype = self.schema.element_type(i, kinds, bound)
        if dtype is None:
            return None
        sizes = None if shape is None else tuple(self._size(d, i) for d in shape)
        kind = TensorType(dtype, sizes)
        return SequenceType(kind) if self.schema.is_sequence(i) else kind

    def _size(self, d: Any, i: int) -> Dim:
        if d is None:
            return fresh_symbol(self.schema.output_name(i))
        if isinstance(d, Expr):
            return d
        if isinstance(d, (int, np.integer)) and not isinstance(d, bool) and d >= 0:
            return int(d)
        raise DefinitionError(
            f"the shape rule gave the size {d!r} for {self.schema.output_name(i)!r}; expected sizes from 0, or None "
            "where only a run knows"
        )

    def _shapes(
        self, inputs: Sequence[Any], kinds: Sequence[Kind], given: dict[str, Any], node: NodeContext
    ) -> list[Sequence[Any] | None]:
        count = self.schema.output_count
        if self.shape is None:
            return [None] * count
        shapes = [t.shape if isinstance(t, TensorType) else None for t in kinds]
        if isinstance(self.shape, str):
            i = [n for n, _ in self.schema.inputs].index(self.shape)
            return [shapes[i] if i < len(shapes) else None] * count
        arguments: list[Any] = list(shapes)
        for i in self.schema.values:
            if i < len(inputs) and inputs[i] is not None:
                if not isinstance(inputs[i], np.ndarray):
                    return [None] * count  # the integers are known only at run time
                arguments[i] = inputs[i].tolist() if inputs[i].dtype != object else [_plain(v) for v in inputs[i].flat]
        if any(s is None and t is not None for s, t in zip(arguments, kinds, strict=True)):
            return [None] * count  # so is the rank of an input
        keywords = {a: b for a, b in given.items() if a in self.shape_takes}
        if "node" in self.shape_takes:
            keywords["node"] = node
        try:
            out = self.shape(*arguments, **keywords)
        except DefinitionError:
            raise
        except Exception as error:
            raise DefinitionError(f"its shape rule {_where(self.shape)} raised {type(error).__name__}: {error}") from error
        found = [out] if count == 1 else out
        if not isinstance(found, (tuple, list)) or len(found) != count or any(not _is_shape(s) for s in found):
            wanted = "a shape" if count == 1 else f"{count} shapes"
            raise DefinitionError(f"its shape rule {_where(self.shape)} gave {out!r}; expected {wanted}, such as (n, 3)")
        return list(found)

    def _by_rule(self, inputs: Sequence[Any], given: dict[str, Any], node: NodeContext) -> list[Kind]:
        assert self.infer is not None
        keywords = {a: b for a, b in given.items() if a in self.infer_takes}
        if "node" in self.infer_takes:
            keywords["node"] = node
        try:
            out = self.infer(*inputs, **keywords)
        except DefinitionError:
            raise
        except Exception as error:
            raise DefinitionError(f"its infer rule {_where(self.infer)} raised {type(error).__name__}: {error}") from error
        found = list(out) if isinstance(out, (tuple, list)) else [out]
        for kind in found:
            if kind is not None and not isinstance(kind, ValueType):
                raise DefinitionError(f"its infer rule {_where(self.infer)} gave {kind!r}; expected types, such as TensorType")
        return found

    # --- running ---

    def run(self, *inputs: Any, node: NodeContext, **attributes: Any) -> tuple[Any, ...]:
        """The outputs as arrays (lists for sequences).

        Raises:
            Fail: the function raised an error, or its results are not what is declared.
        """
        given = self.schema.read_attributes(attributes)
        expected = self.types(*self._as_types(inputs), node=node, **attributes)
        if self.wants_node:
            given["node"] = node
        try:
            out = self.function(*inputs, **given)
        except IntarsiaError:
            raise
        except Exception as error:
            raise Fail(
                f"{self._label(node)}: its function {_where(self.function)} raised {type(error).__name__}: {error}"
            ) from error
        results = out if isinstance(out, tuple) else (out,)
        if len(results) < node.outputs or (self.infer is None and len(results) > self.schema.output_count):
            wanted = f"{node.outputs}" if len(results) < node.outputs else f"{self.schema.output_count}"
            raise Fail(
                f"{self._label(node)}: {_where(self.function)} gave {len(results)} outputs; expected {wanted} (as a tuple)"
            )
        wanted_types = [*expected, *[None] * (len(results) - len(expected))]
        return tuple(self._checked(i, x, wanted_types[i], node) for i, x in enumerate(results))

    def _as_types(self, inputs: Sequence[Any]) -> list[Any]:
        return [
            np.asarray(x).astype(object) if i in self.schema.values and x is not None else _kind_of_value(x)
            for i, x in enumerate(inputs)
        ]

    def _label(self, node: NodeContext) -> str:
        return f"node {node.name!r} ({self.schema.name})"

    def _checked(self, i: int, x: Any, kind: Kind, node: NodeContext) -> Any:
        name = f"{self._label(node)}: output {self.schema.output_name(i)!r}"
        if x is None or isinstance(x, dict):
            return x
        if isinstance(x, list):
            if isinstance(kind, TensorType):
                raise Fail(f"{name} is a list, which is a sequence of tensors; expected an array: numpy.array(...)")
            return [np.asarray(v) for v in x]
        array = np.asarray(x)
        if array.dtype.kind in "US":
            array = array.astype(object)
        try:
            dtype = DType.of(array.dtype) if array.dtype != object else DType.STRING
        except TypeError:
            raise Fail(f"{name} has the NumPy dtype {array.dtype}, which ONNX does not have") from None
        if isinstance(kind, SequenceType):
            raise Fail(f"{name} is an array; expected a list of arrays, which is a sequence")
        if not isinstance(kind, TensorType):
            return array
        if dtype != kind.dtype:
            raise Fail(
                f"{name} is {array.dtype.name}; expected {kind.dtype.numpy.name}, as the operator declares: convert it with "
                f".astype(numpy.{kind.dtype.numpy.name})"
            )
        if kind.shape is not None and not _fits(array.shape, kind.shape):
            raise Fail(
                f"{name} has shape {list(array.shape)}; expected {format_shape(kind.shape)} by the operator's shape rule"
            )
        return array


def _plain(v: Any) -> Any:
    return v if isinstance(v, Expr) else int(v) if isinstance(v, (int, np.integer)) else v


def _is_shape(s: Any) -> bool:
    return s is None or isinstance(s, (tuple, list))


def _fits(shape: Sequence[int], expected: Sequence[Dim]) -> bool:
    return len(shape) == len(expected) and all(isinstance(e, Expr) or d == e for d, e in zip(shape, expected, strict=True))


def _rule_keywords(schema: Schema, rule: Callable[..., Any], what: str) -> frozenset[str]:
    """Keywords that a rule takes of the operator's attributes (and `node`).

    Raises:
        InvalidArgument: it cannot be called with the operator's inputs, or takes what is no attribute.
    """
    parameters = inspect.signature(rule).parameters.values()
    known = {*schema.attributes, "node"}
    keywords = {p.name for p in parameters if p.kind is inspect.Parameter.KEYWORD_ONLY}
    takes_all = any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters)
    unknown = sorted(keywords - known)
    count = len(schema.inputs)
    try:
        inspect.signature(rule).bind(*[None] * count, **dict.fromkeys(keywords))
    except TypeError as error:
        raise InvalidArgument(
            f"operator {schema.name!r}: {what}={_where(rule)} cannot be called with the operator's {count} inputs: {error}; "
            f"expected the operator's own positional parameters ({', '.join(n for n, _ in schema.inputs) or 'none'})"
        ) from None
    if unknown:
        raise InvalidArgument(
            f"operator {schema.name!r}: {what}={_where(rule)} takes {unknown[0]!r}, which is no attribute of the operator"
        )
    return frozenset(known if takes_all else keywords)


def host_record(
    operator: HostOperator, domain: str, name: str, since: int, values: tuple[str, ...], *,
    reason: str, deterministic: bool, override: bool,
) -> OwnRecord:  # fmt: skip
    def run(*inputs: Any, node: NodeContext, **attributes: Any) -> tuple[Any, ...]:
        return operator.run(*inputs, node=node, **attributes)

    def infer(*inputs: Any, node: NodeContext, **attributes: Any) -> list[Kind]:
        return operator.types(*inputs, node=node, **attributes)

    return OwnRecord(
        domain, name, since, _like(run, operator.function), host=True, infer=infer, values=values, reason=reason,
        deterministic=deterministic, override=override,
    )  # fmt: skip
