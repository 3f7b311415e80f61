"""Methods of `ExecutionProvider` by the names they had in 0.1: they work, and a warning names the new ones."""

from __future__ import annotations

import re
import types
import warnings
from typing import Any

import numpy as np
import onnx.parser
import pytest

import intarsia
from intarsia.ep.provider import _OLD_NAMES, CompileContext
from intarsia.providers.cpu import CPUExecutionProvider

RELU = onnx.parser.parse_model('<ir_version: 8, opset_import: ["" : 17]> g (float[N] x) => (float[N] y) { y = Relu(x) }')


def relu(node: Any, inputs: Any) -> list[Any]:
    return [np.maximum(inputs[0], 0)]


class Kernels(intarsia.ExecutionProvider):
    """Runs Relu, and notes what it is told in `told`."""

    name = "OldNamesExecutionProvider"

    def __init__(self, options: Any = None) -> None:
        super().__init__(options)
        self.told: list[str] = []

    def get_kernel_registry(self) -> intarsia.KernelRegistry:
        registry = intarsia.KernelRegistry()
        registry.register("Relu", relu)
        return registry


def old_provider() -> Any:
    """A provider as it was written for 0.1."""

    class Old(Kernels):
        def expect(self) -> None:
            self.told.append("expect")

        def divided(self, split: Any) -> None:
            self.told.append(f"divided {len(split.parts)}")

    return Old


def test_old_names_of_a_provider_are_called_in_a_session() -> None:
    with pytest.warns(DeprecationWarning, match="rename them: expect -> warm_up, divided -> on_partitioned") as seen:
        provider = old_provider()()
    assert len(seen) == 1
    assert str(seen[0].message).startswith("old_provider.<locals>.Old defines methods")
    assert seen[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        session = intarsia.InferenceSession(RELU.SerializeToString(), providers=[provider])
    assert provider.told == ["expect", "divided 1"]
    assert session.run(None, {"x": np.float32([-1, 2])})[0].tolist() == [0, 2]


def test_old_names_of_what_is_saved() -> None:
    with pytest.warns(DeprecationWarning, match="saved_for -> compatibility_info, fits -> check_compatibility") as seen:

        class Old(Kernels):
            def again(self, program: Any, context: Any) -> Any:
                return program

            def saved_for(self) -> str:
                return "driver 7"

            def fits(self, needs: str) -> tuple[str, bool]:
                return f"{needs}, not {self.saved_for()}", False

    assert len(seen) == 1
    provider: Any = Old()
    program = object()
    assert provider.share(program, CompileContext()) is program
    assert provider.compatibility_info() == "driver 7"
    assert provider.check_compatibility("driver 6") == ("driver 6, not driver 7", False)


@pytest.mark.parametrize(("new", "old"), _OLD_NAMES.items())
def test_a_caller_of_an_old_name_is_warned(new: str, old: str) -> None:
    class Own(Kernels):
        pass

    arguments: dict[str, tuple[Any, ...]] = {"share": (None, None), "on_partitioned": (None,), "check_compatibility": ("",)}
    provider = Own()
    with pytest.warns(DeprecationWarning, match=f"ExecutionProvider.{old} is now called {new}") as seen:
        found = getattr(provider, old)(*arguments.get(new, ()))
    assert len(seen) == 1
    assert seen[0].filename == __file__
    assert found == getattr(provider, new)(*arguments.get(new, ()))


def test_old_names_of_the_cpu_provider_lead_to_its_own_methods() -> None:
    provider: Any = CPUExecutionProvider()
    with pytest.warns(DeprecationWarning, match="saved_for is now called compatibility_info"):
        assert provider.saved_for() == provider.compatibility_info() != ""
    with pytest.warns(DeprecationWarning, match="fits is now called check_compatibility"):
        assert provider.fits(provider.compatibility_info()) == ("", True)


def test_super_leads_to_the_same_place_by_either_name() -> None:
    class New(Kernels):
        def compatibility_info(self) -> str:
            return "a"

    with pytest.warns(DeprecationWarning, match="saved_for -> compatibility_info"):

        class Old(New):
            def saved_for(self) -> str:
                return f"{super().saved_for()}b"  # type: ignore[misc]

    class Newer(Old):
        def compatibility_info(self) -> str:
            return f"{super().compatibility_info()}c"

    with pytest.warns(DeprecationWarning, match="saved_for is now called compatibility_info"):
        assert Newer().compatibility_info() == "abc"
    with pytest.warns(DeprecationWarning, match="saved_for is now called compatibility_info"):
        assert Newer().saved_for() == "abc"  # type: ignore[attr-defined]


def test_old_names_from_a_class_that_is_no_provider() -> None:
    class Mixed:
        def saved_for(self) -> str:
            return "mixed in"

    with pytest.warns(DeprecationWarning, match="saved_for -> compatibility_info") as seen:

        class Old(Mixed, Kernels):
            pass

    assert len(seen) == 1
    assert Old().compatibility_info() == "mixed in"


def test_an_old_name_that_is_added_to_a_class_is_honoured_in_a_session() -> None:
    class Own(Kernels):
        pass

    Own.expect = lambda self: self.told.append("expect")  # type: ignore[attr-defined]
    provider = Own()
    with pytest.warns(DeprecationWarning, match="expect -> warm_up"):
        intarsia.InferenceSession(RELU.SerializeToString(), providers=[provider])
    assert provider.told == ["expect"]


def test_a_provider_for_both_versions_gives_no_warning() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")

        class Both(Kernels):
            def compatibility_info(self) -> str:
                return "new"

            def saved_for(self) -> str:
                return "old"

    assert (Both().compatibility_info(), Both().saved_for()) == ("new", "old")


def test_the_table_of_the_class_has_each_method_once() -> None:
    rows = re.findall(r"^ +\| (must|may|lifetime) \| (.*?) \|", intarsia.ExecutionProvider.__doc__ or "", re.MULTILINE)
    groups = {group: re.findall(r"`(\w+)`", text) for group, text in rows}
    kinds = (types.FunctionType, classmethod, property)
    methods = [n for n, member in vars(intarsia.ExecutionProvider).items() if isinstance(member, kinds) and n[0] != "_"]
    assert [name for names in groups.values() for name in names] == [n for n in methods if n not in _OLD_NAMES.values()]
    assert {group: len(names) for group, names in groups.items()} == {"must": 2, "may": 8, "lifetime": 16}
