"""DmlExecutionProvider's options, which are onnxruntime's, over adapters that are described and not there."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

import intarsia
from intarsia.device import webgpu
from intarsia.providers.options import option_texts, parse_options
from intarsia.providers.webgpu import DmlExecutionProvider

NAME = "DmlExecutionProvider"


def adapter(device: str, kind: str, backend: str = "D3D12") -> Any:
    return SimpleNamespace(info={"device": device, "adapter_type": kind, "backend_type": backend, "vendor": "v"})


LAPTOP = [
    adapter("a discrete one", "DiscreteGPU", "Vulkan"), adapter("of the display", "IntegratedGPU"),
    adapter("a discrete one", "DiscreteGPU"), adapter("Microsoft Basic Render Driver", "CPU"),
]  # fmt: skip


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tuple[int, str]]]:
    """What is opened on a laptop, by number and backend."""
    wgpu = pytest.importorskip("wgpu", reason="needs wgpu (extra: webgpu)")
    monkeypatch.setattr(wgpu.gpu, "enumerate_adapters_sync", lambda: LAPTOP)
    found: list[tuple[int, str]] = []
    monkeypatch.setattr(webgpu, "open_device", lambda index, backend: found.append((index, backend)))
    webgpu.adapters.cache_clear()
    yield found
    webgpu.adapters.cache_clear()


def made(**given: object) -> DmlExecutionProvider:
    return DmlExecutionProvider(parse_options(DmlExecutionProvider, given))


@pytest.mark.parametrize(
    ("given", "index"),
    [
        ({}, 1), ({"performance_preference": "high_performance"}, 1), ({"performance_preference": "minimum_power"}, 0),
        ({"device_id": 0}, 0), ({"device_id": "2"}, 2), ({"device_filter": "any"}, 1),
        ({"device_id": 1, "performance_preference": "minimum_power"}, 1), ({"device_id": 0, "device_filter": "npu"}, 0),
    ],
)  # fmt: skip
def test_the_adapter_that_options_mean(opened: list[tuple[int, str]], given: dict[str, object], index: int) -> None:
    """Numbers are Windows' (DXGI's), and a number goes before a preference, as in onnxruntime."""
    provider = made(**given)
    assert opened == [(index, "DirectML")]
    assert option_texts(provider.options) == {
        "device_id": str(index), "performance_preference": given.get("performance_preference", "default"),
        "device_filter": given.get("device_filter", "gpu"), "disable_metacommands": "0",
    }  # fmt: skip


def test_webgpu_takes_hardware_first(opened: list[tuple[int, str]]) -> None:
    assert [a.info["adapter_type"] for a in webgpu.adapters("D3D12")] == ["DiscreteGPU", "IntegratedGPU", "CPU"]
    assert [d.description for d in DmlExecutionProvider.devices()] == [
        "of the display (D3D12)", "a discrete one (D3D12)", "Microsoft Basic Render Driver (D3D12)"
    ]  # fmt: skip


def test_what_has_no_effect_is_logged(opened: list[tuple[int, str]], caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "intarsia"):
        made(disable_metacommands="1", device_id=0, performance_preference="minimum_power")
    texts = " ".join(record.message for record in caplog.records)
    assert "disable_metacommands has no effect, since kernels are its own" in texts
    assert "device_id is given, so that performance_preference and device_filter have no effect" in texts


def test_no_npu_is_among_the_adapters(opened: list[tuple[int, str]]) -> None:
    with pytest.raises(intarsia.EPFail, match=rf"^{NAME} cannot be used .*device_filter is 'npu'; wgpu offers the graphics"):
        made(device_filter="npu")


def test_numbers_that_no_adapter_has(opened: list[tuple[int, str]]) -> None:
    with pytest.raises(intarsia.EPFail, match=r"device_id is 3; there are 3 devices \(0: of the display \(D3D12\), 1: a disc"):
        made(device_id=3)


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("device_id", -1, "expected the number of a device, an integer from 0 on, got -1"),
        ("performance_preference", "fast", "'fast' is not a valid value"),
        ("device_filter", "gpus", "'gpus' is not a valid value; did you mean 'gpu'"),
        ("disable_metacommands", "perhaps", "expected a boolean"),
    ],
)
def test_values_that_are_none(option: str, value: object, message: str) -> None:
    with pytest.raises(intarsia.InvalidArgument, match=f"option '{option}' of {NAME}: {message}"):
        parse_options(DmlExecutionProvider, {option: value})
