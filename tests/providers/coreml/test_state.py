"""State (iOS 18): saved packages keep an input from one prediction to the next, and the interpreter computes as a loop."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest

import intarsia as ort
from intarsia.conversion.convert import ConversionRequest, convert

HEAD = '<ir_version: 8, opset_import: ["": 17]> g '
SUMS = HEAD + """(float[2, 3] x, float[2, 3] total, float k) => (float[2, 3] y, float[2, 3] next) {
    next = Add(total, x)  y = Mul(next, k) }"""
CACHE = HEAD + """(float[1, 4] x, float[8, 4] past) => (float[1, 4] y, float[8, 4] present)
    <int64[2] start = {1, 0}, int64[2] end = {8, 4}> {
        kept = Slice(past, start, end)  present = Concat<axis = 0>(kept, x)
        t = Transpose<perm = [1, 0]>(present)  s = MatMul(x, t)  p = Softmax<axis = -1>(s)  y = MatMul(p, present) }"""


def converted(text: str, folder: Path, state: str, **more: str) -> Path:
    onnx.save(onnx.parser.parse_model(text), folder / "model.onnx")
    report = convert(folder / "model.onnx", ConversionRequest("coreml", folder / "M.mlpackage", {"state": state, **more}))
    assert report.complete, str(report)
    return folder / "M.mlpackage"


@pytest.mark.parametrize(
    ("text", "state", "loose"), [(SUMS, "total=next", {"k": np.float32(0.5)}), (CACHE, " past = present ;", {})]
)
@pytest.mark.parametrize("half", ["0", "1"])
def test_it_is_kept(tmp_path: Path, text: str, state: str, loose: dict[str, np.ndarray], half: str) -> None:
    """Each prediction has what the one before wrote, in float16; a session that feeds it back says what is right."""
    from mil_interpreter import MilFunction

    function = MilFunction(converted(text, tmp_path, state, half=half))
    before, after = (name.strip(" ;") for name in state.split("="))
    assert function.state_names == [before] and before not in function.input_names and after not in function.output_names
    assert {"read_state", "coreml_update_state"} <= set(function.kinds)
    session = ort.InferenceSession(tmp_path / "model.onnx", providers=["ReferenceExecutionProvider"])
    function.make_state()
    kept = np.zeros(function.states[before].shape, np.float32)
    for seed in range(4):
        x = np.random.default_rng(seed).standard_normal(session.get_inputs()[0].shape).astype(np.float32)
        found = function.run({"x": x, **{n: a.reshape(1) for n, a in loose.items()}})["y"]
        wanted, kept = session.run(["y", after], {"x": x, before: kept, **loose})
        np.testing.assert_allclose(found, wanted, rtol=1e-2 if half == "1" else 3e-3, atol=3e-3)
    function.make_state()
    assert not function.states[before].any()


def test_without_states_packages_are_for_ios_17(tmp_path: Path) -> None:
    import coremltools

    versions = [
        coremltools.utils.load_spec(str(converted(SUMS, tmp_path, state))).specificationVersion for state in ("", "total=next")
    ]
    assert versions == [8, 9]


@pytest.mark.parametrize(
    ("state", "match"),
    [
        ("total", r'--option state: expected INPUT=OUTPUT, such as "past=present; h=h_next", and was given \'total\''),
        ("total=next; x=next", "names an input or output that another state has"),
        ("none=next", "the state 'none' needs 'none', which is no input of this part"),
        ("total=none", "the state 'total' needs 'none', which is no output of this part"),
        ("k=y", r"the state 'k' is .*, and 'y', its next value, "),
    ],
)
def test_states_that_do_not_fit(tmp_path: Path, state: str, match: str) -> None:
    with pytest.raises((ort.InvalidArgument, ort.Fail), match=match):
        converted(SUMS, tmp_path, state)


def test_floats_of_fixed_sizes_are_kept(tmp_path: Path) -> None:
    with pytest.raises(ort.Fail, match="Core ML keeps floats, and the state 'total' is of int32"):
        converted(SUMS.replace("float", "int32"), tmp_path, "total=next")
    text = CACHE.replace("float[1, 4]", "float[n, 4]").replace("float[8, 4] present", "float[m, 4] present")
    text = text.replace("(float[n, 4] x, float[8, 4] past)", "(float[n, 4] x, float[n, 4] past)").replace("{1, 0}", "{0, 0}")
    text = text.replace("present = Concat<axis = 0>(kept, x)", "present = Add(kept, x)").replace("float[m, 4]", "float[n, 4]")
    with pytest.raises(ort.Fail, match="Core ML keeps states of fixed sizes, and 'past' is"):
        converted(text, tmp_path, "past=present", profile="n=1..4")
