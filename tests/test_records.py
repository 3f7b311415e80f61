"""Dataclasses whose methods are made later: they are those of `dataclasses`, whenever they are asked for."""

from __future__ import annotations

import dataclasses
import inspect
import pickle
import threading
from dataclasses import field
from typing import Any, ClassVar

import pytest

from intarsia import lazy_dataclass
from intarsia.lazy_dataclass import dataclass, field_names


def made() -> tuple[Any, Any, Any, Any]:
    """New classes, of which no method was asked for: frozen, one that extends it, one that is not, one with a check."""

    @dataclass(frozen=True)
    class Point:
        x: int
        y: int = 2
        kind: ClassVar[str] = "point"
        notes: list[str] = field(default_factory=list, repr=False, compare=False)

        @property
        def total(self) -> int:
            return self.x + self.y

    @dataclass(frozen=True)
    class Named(Point):
        name: str = field(default="", kw_only=True)

    @dataclass
    class Counter:
        count: int = 0

        def __repr__(self) -> str:
            return f"counted {self.count}"

    @dataclass(frozen=True, eq=False)
    class Checked:
        size: int

        def __post_init__(self) -> None:
            if self.size < 0:
                raise ValueError("a size is negative")

    return Point, Named, Counter, Checked


@pytest.fixture(params=[0, 4], ids=["made at once", "a few before"])
def classes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> tuple[Any, Any, Any, Any]:
    monkeypatch.setattr(lazy_dataclass, "_FEW", request.param)
    return made()


def test_objects_are_made_as_ever(classes: tuple[Any, Any, Any, Any]) -> None:
    point, named, counter, checked = classes
    assert vars(point(1)) == {"x": 1, "y": 2, "notes": []}
    assert list(vars(named(y=5, name="a", x=1)).items()) == [("x", 1), ("y", 5), ("notes", []), ("name", "a")]
    assert point(1).notes is not point(1).notes
    assert (counter().count, counter(3).count, checked(2).size) == (0, 3, 2)
    with pytest.raises(ValueError, match="negative"):
        checked(-1)


@pytest.mark.parametrize(
    ("args", "kwargs", "says"),
    [((), {}, "missing 1 required"), ((1, 2, [], 3), {}, "positional arguments"), ((1,), {"x": 2}, "multiple values"),
     ((1,), {"z": 2}, "unexpected keyword")],
)  # fmt: skip
def test_wrong_arguments_are_errors(classes: tuple[Any, ...], args: tuple[int, ...], kwargs: dict[str, int], says: str) -> None:
    with pytest.raises(TypeError, match=says):
        classes[1](*args, **kwargs)


def test_comparing_hashing_and_printing(classes: tuple[Any, Any, Any, Any]) -> None:
    point, named, counter, checked = classes
    assert point(1) == point(1, 2, ["else"]) != point(2)
    assert hash(point(1)) == hash(point(1)) and len({named(1), named(1)}) == 1
    assert repr(point(1)).endswith("Point(x=1, y=2)") and repr(named(1, name="a")).endswith("Named(x=1, y=2, name='a')")
    assert repr(counter(3)) == "counted 3" and counter(3) == counter(3)
    with pytest.raises(TypeError, match="unhashable"):
        hash(counter())
    assert checked(1) != checked(1) and hash(checked(1))


def test_frozen_ones_stay_so_before_anything_is_made(classes: tuple[Any, Any, Any, Any]) -> None:
    point = classes[0]
    bare = point.__new__(point)
    with pytest.raises(dataclasses.FrozenInstanceError, match="cannot assign to field 'x'"):
        bare.x = 1
    with pytest.raises(dataclasses.FrozenInstanceError, match="cannot delete field 'x'"):
        del bare.x


def test_what_others_ask_of_the_class(classes: tuple[Any, Any, Any, Any]) -> None:
    point, named, _, _ = classes
    assert field_names(named) == [f.name for f in dataclasses.fields(named)] == ["x", "y", "notes", "name"]
    assert dataclasses.is_dataclass(point) and point.__match_args__ == ("x", "y", "notes")
    assert dataclasses.replace(named(1), x=4, name="b") == named(4, name="b")
    assert list(inspect.signature(named).parameters) == ["x", "y", "notes", "name"]
    match point(3, 4):
        case point(x, y):
            assert (x, y) == (3, 4)


def test_methods_are_those_of_dataclasses_in_the_end() -> None:
    point, *_ = made()
    stand_in = point.__init__
    for _ in range(10):
        point(1)
    assert point.__init__ is not stand_in and point(1) == point(1)
    assert point.__init__.__qualname__.endswith("Point.__init__")


def test_methods_that_are_made_alone() -> None:
    """Objects are made, compared and hashed before, and as, all of `dataclasses` is there; whatever the fields are called."""

    @dataclass(frozen=True)
    class Odd:
        values: tuple[int, ...]
        cls: str = "a"
        other: list[int] = field(default_factory=list, compare=False)
        name: int = field(default=3, kw_only=True)

    class Plain:
        pass

    def seen() -> tuple[Any, ...]:
        made = [Odd((1,)), Odd((1,), "a", [2]), Odd((1,), name=4), Odd(values=(2,), cls="b")]
        equal = [a == b for a in made for b in made]
        return [vars(x) for x in made], equal, [hash(x) == hash(made[0]) for x in made], made[0] == Plain()

    for _ in range(5):
        Odd((1,))
    assert not Odd.__later__.is_made  # type: ignore[attr-defined]
    before = seen()
    repr(Odd((1,)))
    assert Odd.__later__.is_made  # type: ignore[attr-defined]
    assert seen() == before and before[2] == [True, True, False, False] and before[3] is False
    assert before[0][0] == {"values": (1,), "cls": "a", "other": [], "name": 3}


@dataclass(frozen=True)
class Kept:
    x: int
    y: tuple[int, ...] = ()


def test_reading_a_pickle_makes_no_methods() -> None:
    data = pickle.dumps(Kept(1, (2, 3)))
    Kept.__later__.objects = 0  # type: ignore[attr-defined]
    assert vars(pickle.loads(data)) == {"x": 1, "y": (2, 3)}
    assert not Kept.__later__.objects and not Kept.__later__.is_made  # type: ignore[attr-defined]
    assert pickle.loads(data) == Kept(1, (2, 3))


def test_threads_that_come_at_once() -> None:
    for _ in range(20):
        point, named, *_ = made()
        wrong: list[object] = []
        start = threading.Barrier(4)

        def use(named: Any, point: Any, start: threading.Barrier, wrong: list[object]) -> None:
            start.wait()
            pairs = [(named(i, name="a"), named(i, 2, name="a")) for i in range(10)]
            wrong.extend(pair for pair in pairs if pair[0] != pair[1])
            wrong.extend(i for i in range(10) if hash(point(i)) != hash(point(i)))

        threads = [threading.Thread(target=use, args=(named, point, start, wrong)) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not wrong
