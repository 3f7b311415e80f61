"""Functions whose many arguments are one dataclass: calls look as onnxruntime's, and the function gets one object."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from inspect import Parameter, signature
from typing import Any


def takes(kind: type) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """The function takes the arguments of a dataclass, by position or by name, and is called with one object of it.

    Its signature is that of the dataclass, so `help` and editors show onnxruntime's arguments.
    """

    def decorated(function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        def call(*given: Any, **named: Any) -> Any:
            return function(kind(*given, **named))

        vars(call)["__signature__"] = signature(kind)  # inspect looks for it
        return call

    return decorated


def takes_as_method(kind: type) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """`takes` for methods."""

    def decorated(function: Callable[..., None]) -> Callable[..., None]:
        @wraps(function)
        def call(self: Any, *given: Any, **named: Any) -> None:
            function(self, kind(*given, **named))

        own = signature(kind)
        first = Parameter("self", Parameter.POSITIONAL_OR_KEYWORD)
        vars(call)["__signature__"] = own.replace(parameters=[first, *own.parameters.values()])
        return call

    return decorated
