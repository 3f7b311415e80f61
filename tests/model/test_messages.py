"""Messages about what was given wrongly: one guess, no long lists, and where to look."""

from __future__ import annotations

import logging
from pathlib import Path

import numpy as np
import pytest
from onnx import helper

import intarsia as ort
from intarsia.compat.install_as import uninstall
from intarsia.errors import InvalidArgument, InvalidProtobuf, NoSuchFile, UnknownOption, nearest

FLOATS, Y = helper.make_tensor_value_info("image", 1, ["batch", 8]), helper.make_tensor_value_info("y", 1, None)
MODEL = helper.make_model(
    helper.make_graph([helper.make_node("Relu", ["image"], ["y"])], "g", [FLOATS], [Y]),
    opset_imports=[helper.make_opsetid("", 21)], ir_version=10,
).SerializeToString()  # fmt: skip
MANY = [f"session.name_{i}" for i in range(40)]


@pytest.mark.parametrize(("given", "meant"), [("provider", "providers"), ("session_options", "sess_options")])
def test_keywords(given: str, meant: str) -> None:
    with pytest.raises(TypeError, match=f"unexpected keyword argument '{given}'; did you mean '{meant}'"):
        ort.InferenceSession(MODEL, **{given: None})


@pytest.mark.parametrize(
    ("key", "end"),
    [
        ("session.disable_prepackin", "did you mean 'session.disable_prepacking'? All: docs/compatibility.md#"),
        ("session.some_future_key", "valid names is like it; all: docs/compatibility.md#"),
    ],
)
def test_configuration_entries(key: str, end: str) -> None:
    with pytest.raises(UnknownOption) as caught:
        ort.SessionOptions().add_session_config_entry(key, "1")
    assert end in str(caught.value)
    assert len(str(caught.value)) < 200


def test_configuration_entries_that_onnxruntime_would_ignore(caplog: pytest.LogCaptureFixture) -> None:
    ort.install_as("another_name_of_onnxruntime")
    try:
        with caplog.at_level(logging.WARNING, "intarsia"):
            ort.SessionOptions().add_session_config_entry("session.some_future_key", "1")
    finally:
        uninstall("another_name_of_onnxruntime")
    assert "'session.some_future_key' is not known" in caplog.text


def test_an_empty_path() -> None:
    with pytest.raises(NoSuchFile, match="the path of the model is empty"):
        ort.InferenceSession("")


@pytest.mark.parametrize("asynchronous", [False, True])
def test_inputs_of_other_names(asynchronous: bool) -> None:
    session, feed = ort.InferenceSession(MODEL), {"img": np.zeros((1, 8), np.float32)}
    with pytest.raises(InvalidArgument, match=r"has no input 'img'. Its inputs: image .*float.*batch"):
        session.run_async(None, feed, lambda *_: None, None) if asynchronous else session.run(None, feed)


def test_a_file_that_is_cut_short(tmp_path: Path) -> None:
    (tmp_path / "a.onnx").write_bytes(MODEL[:-20])
    with pytest.raises(InvalidProtobuf, match=rf"there are {len(MODEL) - 20} of at least \d+ bytes .*: fetch or copy it again"):
        ort.InferenceSession(str(tmp_path / "a.onnx"))


@pytest.mark.parametrize(
    ("name", "valid", "expected"),
    [
        ("imag", ["image", "mask"], "did you mean 'image'? (valid: 'image', 'mask')"),
        ("zzz", ["image", "mask"], "valid: 'image', 'mask'"),
        ("x", [], "valid: none"),
        ("session.name_07", MANY, "did you mean 'session.name_7'?"),
        ("session.other", MANY, "valid: " + ", ".join(repr(n) for n in sorted(MANY)[:12]) + " and 28 more"),
        ("cpu", ["CPUExecutionProvider", "CUDAExecutionProvider"],
         "did you mean 'CPUExecutionProvider'? (valid: 'CPUExecutionProvider', 'CUDAExecutionProvider')"),
    ],
)  # fmt: skip
def test_guesses(name: str, valid: list[str], expected: str) -> None:
    assert nearest(name, valid) == expected
