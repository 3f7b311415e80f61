"""`python -m intarsia.testing.provider`: passes for providers that are right, finds what is wrong with others."""

from __future__ import annotations

import dataclasses
import importlib.util
from typing import Any

import numpy as np
import pytest

from intarsia.device import opencl, webgpu
from intarsia.ep.provider import DataTransfer, Device, DeviceTensor, ExecutionProvider, Program, Support
from intarsia.errors import InvalidArgument
from intarsia.providers.reference import ReferenceExecutionProvider
from intarsia.testing.cases import cases, difference, sample
from intarsia.testing.faults import FaultInjectingExecutionProvider, FaultTransfer, Memory
from intarsia.testing.provider import Suite, find_provider, main

FEW = ["test_add", "test_matmul_2d", "test_reduce_sum_keepdims_random", "test_sequence_insert_at_back"]


def failed(provider: type[ExecutionProvider], areas: list[str], options: dict[str, Any] | None = None) -> dict[str, str]:
    report = Suite(provider, options or {}, FEW).run(areas)
    return {check.name: check.detail for check in report.failures}


class TestPasses:
    @pytest.mark.parametrize(
        "name",
        [
            "CPUExecutionProvider",
            "ReferenceExecutionProvider",
            pytest.param(
                "OpenVINOExecutionProvider",
                marks=pytest.mark.skipif(
                    importlib.util.find_spec("openvino") is None, reason="needs openvino (extra: openvino)"
                ),
            ),
            pytest.param("WebGpuExecutionProvider", marks=pytest.mark.skipif(bool(webgpu.missing()), reason=webgpu.missing())),
            pytest.param("OpenCLExecutionProvider", marks=pytest.mark.skipif(bool(opencl.missing()), reason=opencl.missing())),
            "intarsia.testing.faults",
        ],
    )
    def test_for(self, name: str, capsys: pytest.CaptureFixture[str]) -> None:
        assert main([name, "--cases", "test_relu", "--nodes", "8"]) == 0
        shown = capsys.readouterr().out
        assert "FAILED" not in shown
        assert "ran, " in shown

    def test_for_the_example_plugin(self, example_plugin: str, capsys: pytest.CaptureFixture[str]) -> None:
        assert main([example_plugin, "--cases", "test_clip", "--nodes", "3", "--options", '{"stride": 2}']) == 0
        assert "copies in and out" in capsys.readouterr().out

    def test_that_cannot_be_here_says_why(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["ROCMExecutionProvider", "--area", "contract", "--options", '{"device_id": 99}']) == 1
        shown = capsys.readouterr().out
        assert "ROCMExecutionProvider cannot be used on this machine: " in shown


class TestFinds:
    def test_wrong_results(self) -> None:
        found = failed(FaultInjectingExecutionProvider, ["conformance"], {"wrong_at": 1})
        assert found["test_add"] == "1 of 60 elements differ, the worst by 1"

    def test_devices_that_fail(self) -> None:
        found = failed(FaultInjectingExecutionProvider, ["conformance", "concurrency"], {"lost_at": 1})
        assert "was lost in kernel 1" in found["test_add"]
        assert "DeviceLost" in found["runs"]

    def test_transfers_that_change_or_share(self) -> None:
        class Sharing(FaultTransfer):
            def copy_in(self, array: np.ndarray, device: Device) -> DeviceTensor:
                return dataclasses.replace(super().copy_in(array, device), handle=array)

            def copy_out(self, tensor: DeviceTensor) -> np.ndarray:
                return tensor.handle.T  # type: ignore[no-any-return]

        class SharingExecutionProvider(FaultInjectingExecutionProvider):
            name = "SharingExecutionProvider"

            def get_data_transfer(self) -> DataTransfer:
                return Sharing(Memory(self.options))

        found = failed(SharingExecutionProvider, ["memory"])
        assert found["copies in and out"].startswith("changed: float32 [2, 3, 4], ")
        assert found["copies are copies"] == "the tensor changed with the array it was made from"
        assert found["copies out are new"] == "two copies out share memory"

    def test_a_careless_class(self) -> None:
        class Careless(ExecutionProvider):
            name = "Careless"

            def supports(self, node, graph) -> Support:  # type: ignore[no-untyped-def]
                return Support.yes()

            @classmethod
            def unavailable(cls) -> str:
                return None  # type: ignore[return-value]

            @classmethod
            def devices(cls) -> list[Device]:
                return [Device("elsewhere")]

        found = failed(Careless, ["contract"])
        assert found == {
            "name": "'Careless' does not end in 'ExecutionProvider'",
            "available": "unavailable() returned None, not a text",
            "devices": "devices() returned elsewhere:0, and not the provider's own device host",
            "refusals have reasons": "it says yes to an operator that does not exist",
        }

    def test_programs_that_keep_their_results(self) -> None:
        class Keeping(Program):
            def __init__(self, inner: Program) -> None:
                self.inner, self.inputs, self.outputs = inner, inner.inputs, inner.outputs
                self.kept: list[np.ndarray] = []

            def run(self, inputs, run=None) -> list[Any]:  # type: ignore[no-untyped-def]
                found = self.inner.run(inputs, run)
                if [a.shape for a in found] != [a.shape for a in self.kept]:
                    self.kept = found
                for old, new in zip(self.kept, found, strict=True):
                    np.copyto(old, new)
                return list(self.kept)

        class KeepingExecutionProvider(ReferenceExecutionProvider):
            name = "KeepingExecutionProvider"

            def compile(self, graph, context) -> Program:  # type: ignore[no-untyped-def]
                return Keeping(super().compile(graph, context))

        found = failed(KeepingExecutionProvider, ["memory"])
        assert set(found) == {"results are the caller's own", "results stay"}

    def test_a_provider_that_takes_nothing(self) -> None:
        found = failed(FaultInjectingExecutionProvider, ["conformance"], {"takes": "NoSuchOperator"})
        assert found == {"cases": "the provider took no node of any case"}


class TestNames:
    def test_classes(self) -> None:
        assert find_provider("intarsia.testing.faults:FaultInjectingExecutionProvider") is FaultInjectingExecutionProvider
        assert find_provider("ReferenceExecutionProvider") is ReferenceExecutionProvider

    @pytest.mark.parametrize(
        ("name", "message"),
        [
            ("no_such_module", "'no_such_module' is neither a provider's name nor a module that can be imported"),
            ("intarsia.errors", r"expected one subclass of ExecutionProvider, found \[\]; write 'module:Class'"),
            ("intarsia.errors:Fail", r"expected one subclass of ExecutionProvider, found \['Fail'\]"),
        ],
    )
    def test_that_are_none(self, name: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
        with pytest.raises(InvalidArgument, match=message):
            find_provider(name)
        assert main([name]) == 2
        assert "error: " in capsys.readouterr().err


class TestCases:
    def test_sample_is_always_the_same(self) -> None:
        assert sample(50) == sample(50)
        assert 10 < len(sample(50)) < len(cases()) / 25

    @pytest.mark.parametrize(
        ("actual", "expected", "said"),
        [
            (np.float32([1, 2]), np.float32([1, 2]), ""),
            (np.float32([1, 3]), np.float32([1, 2]), "1 of 2 elements differ, the worst by 1"),
            (np.float32([np.nan]), np.float32([np.nan]), ""),
            (np.float32([np.inf, 3]), np.float32([np.inf, 2]), "1 of 2 elements differ, the worst by 1"),
            (np.float64([1]), np.float32([1]), "expected float32 [1], got float64 [1]"),
            (np.int64([1, 3]), np.int64([1, 2]), "1 of 2 elements differ"),
            ([np.float32([1])], [np.float32([1])], ""),
            ([], [np.float32([1])], "expected [array([1.], dtype=float32)], got []"),
            (None, None, ""),
            (np.array(["a"], object), np.array(["b"], object), "expected ['b'], got ['a']"),
            ("text", np.float32([1]), "expected float32 [1], got str"),
        ],
    )
    def test_difference(self, actual: Any, expected: Any, said: str) -> None:
        assert difference(cases()["test_add"], actual, expected) == said
