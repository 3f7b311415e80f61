"""What `dir(intarsia)` lists can be had, and says what it does."""

import inspect
from collections.abc import Iterator
from typing import Any

import pytest

import intarsia

NAMES = [name for name in dir(intarsia) if not name.startswith("_")]


def own(value: Any) -> bool:
    return (getattr(value, "__module__", None) or "").startswith("intarsia")


def methods(kind: type) -> Iterator[tuple[str, Any]]:
    """Public functions and properties that the class or a base of it, here, defines."""
    for base in filter(own, kind.__mro__):
        for name, value in vars(base).items():
            found = value.fget if isinstance(value, property) else getattr(value, "__func__", value)
            if not name.startswith("_") and inspect.isfunction(found) and own(found) and found.__name__ != "<lambda>":
                yield f"{base.__name__}.{name}", found


@pytest.mark.parametrize("name", NAMES)
def test_a_name_that_is_listed_can_be_had_and_is_explained(name: str) -> None:
    value = getattr(intarsia, name)
    if inspect.isclass(value) and own(value):
        assert inspect.getdoc(value)
        assert [method for method, function in methods(value) if not inspect.getdoc(function)] == []
    elif inspect.isfunction(value):
        assert inspect.getdoc(value)


@pytest.mark.parametrize("name", ["transformers"])
def test_modules_that_are_left_out_are_not_listed(name: str) -> None:
    assert name not in NAMES
    with pytest.raises(AttributeError, match="does not exist"):
        getattr(intarsia, name)
