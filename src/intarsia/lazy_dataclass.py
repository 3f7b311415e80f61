"""`dataclass` as `dataclasses` has it, whose methods are made when one of them is first used.

`dataclasses` writes the text of `__init__`, `__repr__`, `__eq__` and more for every class and compiles it, which takes half a
millisecond. A session that begins from the cache imports some seventy such classes and makes objects of few, since what it
reads from the cache is unpickled, which calls none of these methods. A first session makes objects of thirty: what writes their
attributes is compiled by itself; comparing and hashing, which these do next, need no text.
"""

from __future__ import annotations

import dataclasses
import operator
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from intarsia.machine import fork_safety

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass  # noqa: PLC0414 # others import it from here
else:

    def dataclass(cls: type | None = None, /, *, frozen: bool = False, eq: bool = True) -> Any:
        """As `dataclasses.dataclass`, with those of its arguments that this package uses."""
        if cls is None:
            return lambda decorated: _Later(decorated, frozen, eq).begun()
        return _Later(cls, frozen, eq).begun()


_lock = fork_safety.recursive_lock()
_FEW = 4  # objects that are made of a class before its own `__init__` is
_READABLE = sys.version_info < (3, 14)  # whether a class's annotations are a dict in its body
_AS_TUPLES = sys.version_info < (3, 13)  # whether `dataclasses` compares all fields at once
_OWN = ("__dict__", "__weakref__")  # attributes that every class gets anew
_STAY = (
    "__setattr__",
    "__delattr__",
    "__later__",
    "__doc__",
    "__module__",
    "__qualname__",
    "_abc_impl",
    *_OWN,
)  # not those of the model


def field_names(cls: type) -> list[str]:
    """The names of a dataclass's fields, in order."""
    later = vars(cls).get("__later__")
    found = [] if later is None else [name for name, *_ in later.fields()]
    return found or [f.name for f in dataclasses.fields(cls)]


class _Field(NamedTuple):
    """A field of a simple dataclass; `by_name`: it is given by name only."""

    name: str
    default: Any
    factory: Any
    by_name: bool
    compared: bool


class _Later:
    """A class that has stand-ins for the methods of a dataclass. The first that is called has them made, for a class of the
    same body and bases, and puts them in their places. The stand-in of `__init__` makes a few objects itself before."""

    def __init__(self, cls: type, frozen: bool, eq: bool) -> None:
        self.cls, self.frozen, self.eq = cls, frozen, eq
        self.body = dict(vars(cls))
        self.is_made = False
        self.objects = 0
        self._fields: list[_Field] | None = None

    def begun(self) -> type:
        """The class with stand-ins."""
        cls, body = self.cls, self.body
        for name, value in body.items():
            if isinstance(value, dataclasses.Field):
                if value.default is dataclasses.MISSING:
                    delattr(cls, name)
                else:
                    setattr(cls, name, value.default)
        stand_ins = ["__repr__"]
        explicit_hash = body.get("__hash__") is not None or ("__hash__" in body and "__eq__" not in body)
        if self.eq:
            stand_ins.append("__eq__")
            if self.frozen and not explicit_hash:
                cls.__hash__ = self._stand_in("__hash__")  # type: ignore[method-assign]
            elif not explicit_hash:
                cls.__hash__ = None  # type: ignore[assignment]
        if "__init__" not in body:
            cls.__init__ = self._first_init()  # type: ignore[misc]
        cls.__later__ = self  # type: ignore[attr-defined]
        for name in stand_ins:
            if name not in body:
                setattr(cls, name, self._stand_in(name))
        if self.frozen:
            self._freeze()
        for name in ("__dataclass_fields__", "__dataclass_params__", "__match_args__", "__signature__"):
            if name not in body:
                setattr(cls, name, _Requested(self, name))
        return cls

    def _stand_in(self, name: str) -> Callable[..., Any]:
        def stand_in(self: Any, *args: Any, **kwargs: Any) -> Any:
            if not later.make_one(name):
                later.make()
            return vars(later.cls)[name](self, *args, **kwargs)

        later = self
        stand_in.__name__ = name
        stand_in.__qualname__ = f"{self.cls.__qualname__}.{name}"
        return stand_in

    def _first_init(self) -> Callable[..., None]:
        def __init__(self: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N807
            later.objects += 1
            values = later.values(args, kwargs) if later.objects <= _FEW else None
            if values is None:
                if not later.make_one("__init__"):
                    later.make()
                vars(later.cls)["__init__"](self, *args, **kwargs)
                return
            vars(self).update(values)
            if hasattr(later.cls, "__post_init__"):
                self.__post_init__()

        later = self
        __init__.__qualname__ = f"{self.cls.__qualname__}.__init__"
        return __init__

    def values(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any] | None:
        """The attributes of an object that is made of these arguments, in order; None where `dataclasses` has to say."""
        if self._fields is None:
            self._fields = self.fields()
        given, found = list(reversed(args)), dict[str, Any]()
        taken = 0
        for name, default, factory, by_name, _ in self._fields:
            if given and not by_name:
                found[name] = given.pop()
            elif name in kwargs:
                found[name] = kwargs[name]
                taken += 1
            elif default is not dataclasses.MISSING:
                found[name] = default
            elif factory is not dataclasses.MISSING:
                found[name] = factory()
            else:
                return None
        return found if found and not given and taken == len(kwargs) else None

    def make_one(self, name: str) -> bool:
        """Put one method into the class, which does what that of `dataclasses` does; False where only all can be made."""
        with _lock:
            if self.is_made:
                return True
            if self._fields is None:
                self._fields = self.fields()
            if not self._fields or name not in _ALONE or (name != "__init__" and not _AS_TUPLES):
                return False
            made = _ALONE[name](self.cls, self._fields)
            made.__name__, made.__module__, made.__qualname__ = name, self.cls.__module__, f"{self.cls.__qualname__}.{name}"
            setattr(self.cls, name, made)
            return True

    def fields(self) -> list[_Field]:
        """The fields in order; none where they are not as simple as that."""
        found: dict[str, _Field] = {}
        for base in reversed(self.cls.__mro__):
            later = vars(base).get("__later__")
            if later is None:
                if "__dataclass_fields__" in vars(base) or ("__setattr__" in vars(base) and base is not object):
                    return []
                continue
            if "__setattr__" in later.body:
                return []
            for name, annotation in later.body.get("__annotations__", {}).items() if _READABLE else ():
                if not isinstance(annotation, str):
                    return []
                if annotation.startswith(("ClassVar", "typing.ClassVar")):
                    continue
                value = later.body.get(name, dataclasses.MISSING)
                if not isinstance(value, dataclasses.Field):
                    found[name] = _Field(name, value, dataclasses.MISSING, False, True)
                elif value.init and value.hash is None:
                    found[name] = _Field(name, value.default, value.default_factory, value.kw_only is True, value.compare)
                else:
                    return []
        return list(found.values())

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
            if isinstance(vars(cls).get("__signature__"), _Requested):
                del cls.__signature__  # type: ignore[attr-defined]
            for name, value in vars(made).items():
                if name not in _STAY and (name not in body or value is not body[name]):
                    setattr(cls, name, value)
            self.is_made = True


def _init(cls: type, fields: list[_Field]) -> Callable[..., None]:
    """What writes the attributes of an object."""
    known: dict[str, Any] = {"_missing": dataclasses.MISSING}
    parameters, lines = [], ["_values = self.__dict__"]
    for given_by_name in (False, True):
        some = [field for field in fields if field.by_name is given_by_name]
        parameters += ["*"] * (given_by_name and bool(some))
        for field in some:
            name, written = field.name, field.name
            if field.default is not dataclasses.MISSING:
                known[f"_default_{name}"] = field.default
                written = f"{name}=_default_{name}"
            elif field.factory is not dataclasses.MISSING:
                known[f"_factory_{name}"] = field.factory
                written = f"{name}=_missing"
            parameters.append(written)
    for field in fields:
        made = f"_factory_{field.name}() if {field.name} is _missing else " if f"_factory_{field.name}" in known else ""
        lines.append(f"_values[{field.name!r}] = {made}{field.name}")
    lines += ["self.__post_init__()"] * hasattr(cls, "__post_init__")
    text = f"def __init__(self, {', '.join(parameters)}):\n " + "\n ".join(lines)
    exec(text, known)  # noqa: S102 # the names of a class's fields
    written_init: Callable[..., None] = known["__init__"]
    return written_init


def _compared(fields: list[_Field]) -> Callable[[Any], tuple[Any, ...]]:
    """What of an object is compared, and hashed."""
    names = [field.name for field in fields if field.compared]
    if len(names) > 1:
        return operator.attrgetter(*names)
    return lambda value: tuple(getattr(value, name) for name in names)


def _eq(cls: type, fields: list[_Field]) -> Callable[[Any, object], Any]:
    values = _compared(fields)

    def __eq__(self: Any, other: object) -> Any:  # noqa: N807
        return values(self) == values(other) if other.__class__ is self.__class__ else NotImplemented

    return __eq__


def _hash(cls: type, fields: list[_Field]) -> Callable[[Any], int]:
    values = _compared(fields)

    def __hash__(self: Any) -> int:  # noqa: N807
        return hash(values(self))

    return __hash__


_ALONE: dict[str, Callable[[type, list[_Field]], Callable[..., Any]]] = {"__init__": _init, "__eq__": _eq, "__hash__": _hash}


class _Requested:
    """An attribute of the class that is not there before the class is made."""

    def __init__(self, later: _Later, name: str) -> None:
        self.later, self.name = later, name

    def __get__(self, instance: object, owner: type) -> Any:
        self.later.make()
        if self.name == "__signature__":
            import inspect

            return inspect.signature(owner)
        return getattr(self.later.cls, self.name)
