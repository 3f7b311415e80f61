"""Many runs in one call: the same numbers as one by one, as one loop where the model allows it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from state_models import RNG, growing, growing_in_numpy, parsed, recurrent, recurrent_in_numpy

import intarsia as ort

SCALE = np.float32(2.0)


def stream_of(model: Any, **arguments: Any) -> ort.StatefulSession:
    return ort.InferenceSession(model.SerializeToString()).stateful(**arguments)


def has_loop(stream: ort.StatefulSession) -> bool:
    return any(loop is not None for loop in stream._loops.values())


@pytest.mark.parametrize("batch", [1, 2])
def test_many_runs_are_one_loop(batch: int) -> None:
    stream = stream_of(recurrent())
    xs = RNG.standard_normal((9, batch, 3)).astype(np.float32)
    expected, last = recurrent_in_numpy(xs, 2.0)
    (first,) = stream.run_many({"x": xs[:4], "scale": SCALE})
    (second,) = stream.run_many({"x": xs[4:], "scale": SCALE})
    np.testing.assert_allclose(np.concatenate([first, second]), expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(stream.state["state"], last, rtol=1e-5, atol=1e-6)
    assert stream.runs == 9
    assert has_loop(stream)


def test_the_loop_goes_on_where_single_runs_ended_and_back() -> None:
    stream = stream_of(recurrent())
    xs = RNG.standard_normal((6, 1, 3)).astype(np.float32)
    expected, _ = recurrent_in_numpy(xs, 2.0)
    found = [stream.run(None, {"x": xs[0], "scale": SCALE})[0], *stream.run_many({"x": xs[1:5], "scale": SCALE})[0]]
    found.append(stream.run(None, {"x": xs[5], "scale": SCALE})[0])
    np.testing.assert_allclose(np.stack(found), expected, rtol=1e-5, atol=1e-6)


def test_states_of_each_run_are_outputs_too() -> None:
    stream = stream_of(recurrent())
    xs = RNG.standard_normal((3, 1, 3)).astype(np.float32)
    states, ys = stream.run_many({"x": xs, "scale": SCALE}, ["stateN", "y"])
    other = stream_of(recurrent())
    for x, state, y in zip(xs, states, ys, strict=True):
        one = other.run(["stateN", "y"], {"x": x, "scale": SCALE})
        np.testing.assert_allclose(state, one[0], rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(y, one[1], rtol=1e-5, atol=1e-6)


def test_numbers_that_change_from_run_to_run() -> None:
    stream = stream_of(recurrent())
    xs, scales = RNG.standard_normal((3, 1, 3)).astype(np.float32), np.array([1, 2, 3], np.float32)
    (found,) = stream.run_many({"x": xs, "scale": scales})
    expected, _ = recurrent_in_numpy(xs)
    np.testing.assert_allclose(found, expected * scales[:, None, None], rtol=1e-5, atol=1e-6)


def test_growing_states_run_one_by_one() -> None:
    stream = stream_of(growing())
    xs = RNG.standard_normal((4, 1, 2, 3)).astype(np.float32)
    (found,) = stream.run_many({"x": xs})
    np.testing.assert_allclose(found, np.stack(growing_in_numpy(list(xs))), rtol=1e-4, atol=1e-5)
    assert not has_loop(stream)


def test_an_output_whose_shape_changes_cannot_be_stacked() -> None:
    with pytest.raises(ort.InvalidArgument, match=r"'present.0.key' has another shape in each run"):
        stream_of(growing()).run_many({"x": np.ones((2, 1, 1, 3), np.float32)}, ["present.0.key"])


def test_branches_by_what_is_the_same_in_every_run() -> None:
    """As Silero's voice detector chooses by the sampling rate: the branch is chosen before the loop."""
    model = parsed(
        """g (float[batch, 4] x, float[batch, 4] state, int64 sr) => (float[batch, 4] y, float[batch, 4] stateN) {
            fast = Equal(sr, rate)
            stateN, y = If(fast) <
                then_branch = t () => (float[a, 4] s1, float[b, 4] y1) { s1 = Add(state, x) y1 = Neg(s1) },
                else_branch = e () => (float[c, 4] s2, float[d, 4] y2) { s2 = Sub(state, x) y2 = Abs(s2) }> }""",
        rate=np.array(16000),
    )
    xs = RNG.standard_normal((5, 2, 4)).astype(np.float32)
    for rate, expected in ((16000, -np.cumsum(xs, 0)), (8000, np.abs(np.cumsum(xs, 0)))):
        (found,) = stream_of(model).run_many({"x": xs, "sr": np.array(rate)})
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("feed", "message"),
    [
        ({"x": np.zeros((1, 3), np.float32), "scale": SCALE}, "equally many blocks, got none"),
        ({"x": np.zeros((2, 1, 3), np.float32), "scale": np.ones(3, np.float32)}, "equally many blocks, got"),
        ({"x": np.zeros(3, np.float32), "scale": SCALE}, r"'x' has the shape \[3\]; expected that of one run"),
        ({"x": np.zeros((2, 1, 3), np.float32)}, "the input 'scale' is missing"),
        ({"x": np.zeros((2, 1, 3), np.float32), "scale": SCALE, "z": 1}, r"\['z'\] are no inputs"),
        ({"x": np.zeros((0, 1, 3), np.float32), "scale": SCALE}, "there are no blocks"),
    ],
)
def test_feeds_that_are_no_blocks(feed: dict[str, Any], message: str) -> None:
    with pytest.raises(ort.InvalidArgument, match=message):
        stream_of(recurrent()).run_many(feed)


def test_a_wrong_type_leaves_the_states() -> None:
    stream = stream_of(recurrent())
    stream.run(None, {"x": np.ones((1, 3), np.float32), "scale": SCALE})
    before = stream.state["state"].copy()
    with pytest.raises(ort.InvalidArgument):
        stream.run_many({"x": np.ones((2, 1, 3)), "scale": SCALE})
    np.testing.assert_array_equal(stream.state["state"], before)


def test_lists_are_converted_and_ragged_ones_refused() -> None:
    stream = stream_of(recurrent())
    (found,) = stream.run_many({"x": [[[1.0, 2.0, 3.0]]] * 2, "scale": 2.0})
    expected, _ = recurrent_in_numpy(np.array([[[1.0, 2.0, 3.0]]] * 2, np.float32), 2.0)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
    with pytest.raises(ort.InvalidArgument, match="'x' is no array of float32"):
        stream.run_many({"x": [[[1.0, 2.0, 3.0]], [[1.0]]], "scale": 2.0})
    with pytest.raises(ort.InvalidArgument, match="'x' is float64; expected float32"):
        stream.run_many({"x": np.ones((2, 1, 3)), "scale": SCALE})


def test_runs_beyond_the_maximum_leave_the_states() -> None:
    stream = stream_of(growing(), max_length=3)
    with pytest.raises(ort.InvalidArgument, match="would be 4 long"):
        stream.run_many({"x": np.ones((5, 1, 1, 3), np.float32)})
    assert (stream.runs, stream.length, stream.state) == (0, 0, {})


def test_the_optimised_model_of_the_session_stays(tmp_path: Path) -> None:
    options = ort.SessionOptions()
    options.optimized_model_filepath = str(tmp_path / "optimised.onnx")
    stream = ort.InferenceSession(recurrent().SerializeToString(), options).stateful()
    before = (tmp_path / "optimised.onnx").read_bytes()
    stream.run_many({"x": np.ones((2, 1, 3), np.float32), "scale": SCALE})
    assert has_loop(stream)
    assert (tmp_path / "optimised.onnx").read_bytes() == before


def test_inputs_with_a_default() -> None:
    model = recurrent()
    model.graph.input.append(onnx.helper.make_tensor_value_info("wy", onnx.TensorProto.FLOAT, [4, 2]))
    stream = stream_of(model)
    xs, wy = RNG.standard_normal((3, 1, 3)).astype(np.float32), np.ones((4, 2), np.float32)
    (usual,) = stream.run_many({"x": xs, "scale": SCALE})
    np.testing.assert_allclose(usual, recurrent_in_numpy(xs, 2.0)[0], rtol=1e-5, atol=1e-6)
    other = stream_of(model)
    (found,) = other.run_many({"x": xs, "scale": SCALE, "wy": wy})
    other.reset()
    expected = [other.run(None, {"x": x, "scale": SCALE, "wy": wy})[0] for x in xs]
    np.testing.assert_array_equal(found, np.stack(expected))
    assert not np.allclose(found, usual)
