"""Operators as classes in the style of `onnx.reference.op_run.OpRun`, which `ReferenceEvaluator(new_ops=[...])` takes.

The class's name is the operator's, `op_domain` its domain, and `_run(self, *inputs, **attributes)` returns a tuple of arrays.
Beyond onnx's own conventions, three class attributes are read where they exist: `override = True` replaces an operator that
exists already; `infer_types(*types, **attributes)`, a static method, says what comes out; `deterministic = False`.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from intarsia.errors import Fail, IntarsiaError, InvalidArgument
from intarsia.graph.dtypes import DType
from intarsia.graph.model import Graph, Node, TensorType, ValueType
from intarsia.ops.framework.registry import NodeContext
from intarsia.ops.framework.registry_scopes import OwnRecord
from intarsia.primitives.lang import DefinitionError

Kind = ValueType | None
_RETAINED_INSTANCES = 256


def is_op_run(cls: type) -> bool:
    """Whether a class is an operator: it has a domain and says how to run."""
    return isinstance(getattr(cls, "op_domain", None), str) and callable(getattr(cls, "_run", None))


def op_run_records(cls: type[Any]) -> list[OwnRecord]:
    """The record of an `OpRun` class.

    Raises:
        InvalidArgument: it is abstract.
    """
    if inspect.isabstract(cls):
        raise InvalidArgument(f"new_ops: the class {cls.__qualname__} is abstract; expected one that defines _run")
    operator = _OpRunOperator(cls)

    def run(*inputs: Any, node: NodeContext, **attributes: Any) -> tuple[Any, ...]:
        return operator.run(inputs, node, attributes)

    def infer(*inputs: Kind, node: NodeContext, **attributes: Any) -> list[Kind]:
        return operator.types(inputs, node, attributes)

    signature = inspect.Signature(
        [
            inspect.Parameter("inputs", inspect.Parameter.VAR_POSITIONAL),
            inspect.Parameter("node", inspect.Parameter.KEYWORD_ONLY),
            inspect.Parameter("attributes", inspect.Parameter.VAR_KEYWORD),
        ]
    )
    vars(run).update(__wrapped__=cls._run, __signature__=signature)  # the former for messages: where the operator stands
    domain = "" if cls.op_domain == "ai.onnx" else cls.op_domain
    since = getattr(operator.schema, "since_version", 1)
    return [
        OwnRecord(
            domain, cls.__name__, since, run, host=True, infer=infer, reason="a Python class (OpRun)",
            deterministic=getattr(cls, "deterministic", True), override=getattr(cls, "override", False),
        )
    ]  # fmt: skip


class _OpRunOperator:
    def __init__(self, cls: type[Any]) -> None:
        self.cls = cls
        self.schema: Any = getattr(cls, "op_schema", None)
        self._instances: dict[Any, tuple[Any, Mapping[str, Any]]] = {}

    def run(self, inputs: Sequence[Any], node: NodeContext, attributes: Mapping[str, Any]) -> tuple[Any, ...]:
        where = f"node {node.name!r} ({self._name()})"
        try:
            results = self._instance(node, len(inputs), attributes).run(*inputs)
        except IntarsiaError:
            raise
        except Exception as error:
            cause = error.__cause__ or error  # OpRun.run reports a TypeError about its own call
            raise Fail(f"{where}: {self.cls.__qualname__}._run raised {type(cause).__name__}: {cause}") from error
        if not isinstance(results, tuple):
            raise Fail(f"{where}: {self.cls.__qualname__}._run returned a {type(results).__name__}; expected a tuple of arrays")
        if len(results) < node.outputs:
            raise Fail(f"{where}: {self.cls.__qualname__}._run gave {len(results)} outputs; expected {node.outputs}")
        return tuple(_value(x) for x in results)

    def _name(self) -> str:
        return f"{self.cls.op_domain or 'ai.onnx'}::{self.cls.__name__}"

    def _instance(self, node: NodeContext, count: int, attributes: Mapping[str, Any]) -> Any:
        """The class's instance for a node, retained for its next run."""
        key = (node.name, node.outputs, count, tuple((n, id(v)) for n, v in attributes.items()))
        found = self._instances.get(key)
        if found is None:
            if len(self._instances) >= _RETAINED_INSTANCES:
                self._instances.clear()
            found = (self._made(node, count, attributes), dict(attributes))  # held, so that no id is used again
            self._instances[key] = found
        return found[0]

    def _made(self, node: NodeContext, count: int, attributes: Mapping[str, Any]) -> Any:
        if "onnx" not in {c.__module__.partition(".")[0] for c in self.cls.__mro__}:
            return _Plain(self.cls, attributes)
        from onnx.reference import ReferenceEvaluator

        from intarsia.graph.save import to_model_proto

        if any(isinstance(v, Graph) for v in attributes.values()):
            raise DefinitionError("an OpRun class with a subgraph as its attribute cannot be used here; write it as a host_op")
        inner = Node(
            self.cls.__name__, [f"x{i}" for i in range(count)], [f"y{i}" for i in range(node.outputs)], dict(attributes),
            self.cls.op_domain, node.name,
        )  # fmt: skip
        opsets = {"": 1, self.cls.op_domain: node.version or 1}
        proto = to_model_proto(Graph(nodes=[inner], opset_imports=opsets)).graph.node[0]
        parameters = {
            "log": lambda *_: None, "opsets": opsets, "verbose": 0, "new_ops": None, "existing_functions": {},
            "evaluator_cls": ReferenceEvaluator,
        }  # fmt: skip
        return self.cls(proto, parameters)

    def types(self, inputs: Sequence[Kind], node: NodeContext, attributes: Mapping[str, Any]) -> list[Kind]:
        rule = getattr(self.cls, "infer_types", None)
        if rule is not None:
            try:
                out = rule(*inputs, **attributes)
            except Exception as error:
                raise DefinitionError(f"{self.cls.__qualname__}.infer_types raised {type(error).__name__}: {error}") from error
            return list(out) if isinstance(out, (tuple, list)) else [out]
        if self.schema is None:
            return [None] * node.outputs
        return [self._declared(p.type_str, inputs) for p in self.schema.outputs][: node.outputs]

    def _declared(self, type_str: str, inputs: Sequence[Kind]) -> Kind:
        """The type of an output by the class's onnx schema: its element type, as the inputs bind it."""
        for parameter, kind in zip(self.schema.inputs, inputs, strict=False):
            if parameter.type_str == type_str and kind is not None:
                return TensorType(kind.dtype) if isinstance(kind, TensorType) else kind
        word = type_str.removeprefix("tensor(").removesuffix(")")
        found = next((d for d in DType if d.onnx_name == word), None)
        return TensorType(found) if found is not None and word != type_str else None


class _Plain:
    """A class that follows OpRun's conventions without deriving from it."""

    def __init__(self, cls: type[Any], attributes: Mapping[str, Any]) -> None:
        self._operator, self._attributes = cls(), dict(attributes)

    def run(self, *inputs: Any) -> Any:
        return self._operator._run(*inputs, **self._attributes)


def _value(x: Any) -> Any:
    if isinstance(x, (list, dict)) or x is None:
        return x
    array = np.asarray(x)
    return array.astype(object) if array.dtype.kind in "US" else array
