"""`dataclass` as `dataclasses` has it, whose methods are made when one of them is first used.

`dataclasses` writes the text of `__init__`, `__repr__`, `__eq__` and more for every class and compiles it, which takes half a
millisecond. A session that begins from the cache imports some seventy such classes and makes objects of few, since what it
reads from the cache is unpickled, which calls none of these methods.
"""

from __future__ import annotations

import dataclasses
import os
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass  # noqa: PLC0414 # others import it from here
else:

    def dataclass(cls: type | None = None, /, *, frozen: bool = False, eq: bool = True) -> Any:
        """As `dataclasses.dataclass`, with those of its arguments that this package uses."""
        if cls is None:
            return lambda decorated: _Later(decorated, frozen, eq).begun()
        return _Later(cls, frozen, eq).begun()


_lock = threading.RLock()
_OWN = ("__dict__", "__weakref__")  # attributes that every class gets anew
_KEPT = ("__setattr__", "__delattr__", "__doc__", "__module__", "__qualname__", "_abc_impl", *_OWN)  # not those of the model


def _release_in_child() -> None:
    global _lock  # noqa: PLW0603 # a lock held by another thread of the parent stays locked in the child
    _lock = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_release_in_child)


class _Later:
    """A class that has stand-ins for the methods of a dataclass. The first that is called has them made, for a class of the
    same body and bases, and puts them in their places."""

    def __init__(self, cls: type, frozen: bool, eq: bool) -> None:
        self.cls, self.frozen, self.eq = cls, frozen, eq
        self.body = dict(vars(cls))
        self.is_made = False

    def begun(self) -> type:
        """The class with stand-ins."""
        cls, body = self.cls, self.body
        for name, value in body.items():
            if isinstance(value, dataclasses.Field):
                if value.default is dataclasses.MISSING:
                    delattr(cls, name)
                else:
                    setattr(cls, name, value.default)
        stand_ins = ["__init__", "__repr__"]
        explicit_hash = body.get("__hash__") is not None or ("__hash__" in body and "__eq__" not in body)
        if self.eq:
            stand_ins.append("__eq__")
            if self.frozen and not explicit_hash:
                cls.__hash__ = self._stand_in("__hash__")  # type: ignore[method-assign]
            elif not explicit_hash:
                cls.__hash__ = None  # type: ignore[assignment]
        for name in stand_ins:
            if name not in body:
                setattr(cls, name, self._stand_in(name))
        if self.frozen:
            self._freeze()
        for name in ("__dataclass_fields__", "__dataclass_params__", "__match_args__", "__signature__"):
            if name not in body:
                setattr(cls, name, _Asked(self, name))
        return cls

    def _stand_in(self, name: str) -> Callable[..., Any]:
        def stand_in(self: Any, *args: Any, **kwargs: Any) -> Any:
            later.make()
            return vars(later.cls)[name](self, *args, **kwargs)

        later = self
        stand_in.__name__ = name
        stand_in.__qualname__ = f"{self.cls.__qualname__}.{name}"
        return stand_in

    def _freeze(self) -> None:
        cls: Any = self.cls

        def refused(self: Any, name: str) -> bool:
            return type(self) is cls or name in cls.__dataclass_fields__

        def set_attribute(self: Any, name: str, value: Any) -> None:
            if refused(self, name):
                raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")
            super(cls, self).__setattr__(name, value)

        def delete_attribute(self: Any, name: str) -> None:
            if refused(self, name):
                raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")
            super(cls, self).__delattr__(name)

        cls.__setattr__, cls.__delattr__ = set_attribute, delete_attribute

    def make(self) -> None:
        """Put the dataclass's own methods into the class. A thread that comes meanwhile waits in a stand-in, or finds the
        method in its place: each is replaced in one go."""
        with _lock:
            if self.is_made:
                return
            cls, body = self.cls, {name: value for name, value in self.body.items() if name not in _OWN}
            body.setdefault("__doc__", None)
            body["__qualname__"] = cls.__qualname__
            body["__doc__"] = body["__doc__"] or " "  # else one is made of the signature
            made: type = dataclasses.dataclass(frozen=self.frozen, eq=self.eq)(type(cls)(cls.__name__, cls.__bases__, body))
            if isinstance(vars(cls).get("__signature__"), _Asked):
                del cls.__signature__  # type: ignore[attr-defined]
            for name, value in vars(made).items():
                if name not in _KEPT and (name not in body or value is not body[name]):
                    setattr(cls, name, value)
            self.is_made = True


class _Asked:
    """An attribute of the class that is not there before the class is made."""

    def __init__(self, later: _Later, name: str) -> None:
        self.later, self.name = later, name

    def __get__(self, instance: object, owner: type) -> Any:
        self.later.make()
        if self.name == "__signature__":
            import inspect

            return inspect.signature(owner)
        return getattr(self.later.cls, self.name)
