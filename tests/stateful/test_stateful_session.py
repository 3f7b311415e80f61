"""States from run to run: what they begin as, forks, ways back, files, streams together, and errors."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from state_models import RNG, growing, growing_in_numpy, parsed, recurrent, recurrent_in_numpy

import intarsia as ort

SCALE = np.float32(2.0)


def session(model: Any) -> ort.InferenceSession:
    return ort.InferenceSession(model.SerializeToString())


def blocks(count: int, batch: int = 1) -> np.ndarray:
    return RNG.standard_normal((count, batch, 3)).astype(np.float32)


@pytest.mark.parametrize("batch", [1, 3])
def test_states_are_fed_back(batch: int) -> None:
    stream, xs = session(recurrent()).stateful(), blocks(5, batch)
    expected, last = recurrent_in_numpy(xs, 2.0)
    for x, y in zip(xs, expected, strict=True):
        np.testing.assert_allclose(stream.run(None, {"x": x, "scale": SCALE})[0], y, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(stream.state["state"], last, rtol=1e-5, atol=1e-6)
    assert (stream.runs, stream.length, stream.nbytes) == (5, 5, batch * 16)
    assert [a.name for a in stream.get_inputs()] == ["x", "scale"]
    assert [a.name for a in stream.get_outputs()] == ["y"]


def test_a_call_takes_keywords_a_run_takes_lists_and_names() -> None:
    stream, (x,) = session(recurrent()).stateful(), blocks(1)
    expected, last = recurrent_in_numpy(x[None], 2.0)
    np.testing.assert_allclose(stream(x=x, scale=SCALE), expected[0], rtol=1e-5, atol=1e-6)
    stream.reset()
    state, y = stream.run(["stateN", "y"], [x, SCALE])
    np.testing.assert_allclose(y, expected[0], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(state, last, rtol=1e-5, atol=1e-6)


def test_growing_states_begin_empty() -> None:
    stream = session(growing()).stateful()
    xs = [RNG.standard_normal((2, n, 3)).astype(np.float32) for n in (3, 1, 1, 2)]
    for x, y in zip(xs, growing_in_numpy(xs), strict=True):
        np.testing.assert_allclose(stream.run(None, {"x": x})[0], y, rtol=1e-4, atol=1e-5)
    assert stream.length == 7
    assert stream.states[0].grows == 2
    assert stream.state["past_key_values.0.key"].shape == (2, 1, 7, 4)


def test_a_negative_axis_of_concat_and_sizes_without_names() -> None:
    model = growing("negative")
    for value in (*model.graph.input, *model.graph.output):
        for dim in value.type.tensor_type.shape.dim:
            if dim.HasField("dim_param"):
                dim.Clear()
    stream = session(model).stateful()
    assert [s.grows for s in stream.states] == [2, 2]
    xs = [RNG.standard_normal((2, n, 3)).astype(np.float32) for n in (2, 1)]
    for x, y in zip(xs, growing_in_numpy(xs), strict=True):
        np.testing.assert_allclose(stream.run(None, {"x": x})[0], y, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("make", [recurrent, growing])
def test_a_fork_goes_its_own_way(make: Any) -> None:
    stream = session(make()).stateful()
    more = {"scale": SCALE} if make is recurrent else {}
    first, left, right = (RNG.standard_normal((1, 1, 3)).astype(np.float32) for _ in range(3))
    if make is recurrent:
        first, left, right = first[0], left[0], right[0]
    stream.run(None, {"x": first, **more})
    other = stream.fork()
    found = stream.run(None, {"x": left, **more})[0], other.run(None, {"x": right, **more})[0]
    again = session(make()).stateful()
    again.run(None, {"x": first, **more})
    np.testing.assert_allclose(found[1], again.run(None, {"x": right, **more})[0], rtol=1e-6)
    assert not np.allclose(found[0], found[1])


def test_growing_states_go_back_any_number_of_places() -> None:
    stream = session(growing()).stateful()
    xs = [RNG.standard_normal((1, n, 3)).astype(np.float32) for n in (4, 1, 1)]
    for x in xs:
        stream.run(None, {"x": x})
    stream.rewind(3)
    expected = growing_in_numpy([xs[0][:, :3], xs[1]])
    np.testing.assert_allclose(stream.run(None, {"x": xs[1]})[0], expected[1], rtol=1e-4, atol=1e-5)
    with pytest.raises(ort.InvalidArgument, match="expected 0 to 4, got 9"):
        stream.rewind(9)


def test_other_states_go_back_as_far_as_history_reaches() -> None:
    stream, xs = session(recurrent()).stateful(history=2), blocks(4)
    given = [stream.run(None, {"x": x, "scale": SCALE})[0] for x in xs]
    stream.rewind(2)
    assert stream.runs == 2
    for x, y in zip(xs[2:], given[2:], strict=True):
        np.testing.assert_array_equal(stream.run(None, {"x": x, "scale": SCALE})[0], y)
    with pytest.raises(ort.InvalidArgument, match=r"3 runs ago is not kept \(kept: \[1, 2\]; history=2.*history="):
        stream.rewind(3)


def test_a_reset_of_rows_leaves_the_others() -> None:
    stream, xs = session(recurrent()).stateful(), blocks(2, 3)
    stream.run(None, {"x": xs[0], "scale": SCALE})
    kept = stream.state["state"].copy()
    stream.reset(rows=[1])
    np.testing.assert_array_equal(stream.state["state"], kept * np.array([[1], [0], [1]]))
    with pytest.raises(ort.InvalidArgument, match="expected rows 0 to 2, got \\[3\\]"):
        stream.reset(rows=[3])
    stream.reset()
    assert stream.state == {}
    assert stream.runs == 0


def test_first_values_of_the_caller() -> None:
    start = RNG.standard_normal((1, 4)).astype(np.float32)
    stream, xs = session(recurrent()).stateful(initial={"state": start}), blocks(2)
    expected, _ = recurrent_in_numpy(xs, 2.0, start)
    for _ in range(2):
        for x, y in zip(xs, expected, strict=True):
            np.testing.assert_allclose(stream.run(None, {"x": x, "scale": SCALE})[0], y, rtol=1e-5, atol=1e-6)
        stream.reset()


def test_states_in_a_file(tmp_path: Path) -> None:
    stream, xs = session(recurrent()).stateful(), blocks(3)
    with pytest.raises(ort.Fail, match="no states before the first run"):
        stream.save(tmp_path / "early")
    stream.run(None, {"x": xs[0], "scale": SCALE})
    stream.save(tmp_path / "states.npz")
    expected = stream.run(None, {"x": xs[1], "scale": SCALE})[0]
    other = session(recurrent()).stateful().load(tmp_path / "states.npz")
    assert other.runs == 1
    np.testing.assert_array_equal(other.run(None, {"x": xs[1], "scale": SCALE})[0], expected)
    with pytest.raises(ort.InvalidArgument, match=r"expected the states \['past_key_values.0.key'"):
        session(growing()).stateful().load(tmp_path / "states.npz")
    with pytest.raises(ort.NoSuchFile):
        other.load(tmp_path / "none.npz")
    for broken in (b"", b"PK\x03\x04 no archive", (tmp_path / "states.npz").read_bytes()[:200]):
        (tmp_path / "broken.npz").write_bytes(broken)
        with pytest.raises(ort.InvalidArgument, match=r"that StatefulSession\.save wrote"):
            other.load(tmp_path / "broken.npz")


@pytest.mark.parametrize("kind", ["float16", "bfloat16"])
def test_states_of_16_bits_in_a_file(kind: str, tmp_path: Path) -> None:
    model = parsed(
        f"g ({kind}[1, 3] x, {kind}[1, 3] state) => ({kind}[1, 3] y, {kind}[1, 3] stateN) "
        "{ stateN = Add(x, state) y = Neg(stateN) }"
    )
    stream = session(model).stateful()
    x = np.ones((1, 3), stream._given("state", np.zeros((1, 3), stream._first({})["state"].dtype)).dtype)
    for _ in range(3):
        stream.run(None, {"x": x})
    stream.save(tmp_path / "s.npz")
    again = session(model).stateful().load(tmp_path / "s.npz")
    assert again.run(None, {"x": x})[0].astype(np.float32).tolist() == [[-4, -4, -4]]


def test_a_stated_maximum_is_an_error_before_it_is_exceeded() -> None:
    stream = session(growing()).stateful(max_length=4)
    xs = [RNG.standard_normal((1, n, 3)).astype(np.float32) for n in (3, 1, 1)]
    for x in xs[:2]:
        stream.run(None, {"x": x})
    with pytest.raises(ort.InvalidArgument, match="would be 5 long after this run, at most 4 is allowed"):
        stream.run(None, {"x": xs[2]})
    assert stream.length == 4


def test_a_failed_run_leaves_the_states() -> None:
    stream, xs = session(recurrent()).stateful(), blocks(2)
    stream.run(None, {"x": xs[0], "scale": SCALE})
    before = stream.state["state"].copy()
    with pytest.raises(ort.InvalidArgument):
        stream.run(None, {"x": xs[1][:, :2], "scale": SCALE})
    np.testing.assert_array_equal(stream.state["state"], before)
    assert stream.runs == 1


def test_an_empty_output_of_a_merged_decoder_keeps_the_state() -> None:
    past, present = "past_key_values_0_encoder_key", "present_0_encoder_key"
    model = parsed(
        f"""g (float[1, 2] x, bool[1] again, float[1, 1, enc, 2] {past}) => (float[1, 2] y, float[1, 1, out, 2] {present}) {{
            flag = Squeeze(again)
            {present} = If(flag) <
                then_branch = t () => (float[1, 1, a, 2] none) {{ none = Identity(nothing) }},
                else_branch = e () => (float[1, 1, b, 2] made) {{ made = Identity(keys) }}>
            r = ReduceSum<keepdims = 0>({past}) y = Add(x, r) }}""",
        nothing=np.zeros((1, 1, 0, 2), np.float32),
        keys=np.ones((1, 1, 3, 2), np.float32),
    )
    stream = session(model).stateful()
    x = np.zeros((1, 2), np.float32)
    found = [stream.run(None, {"x": x, "again": np.array([again])})[0][0, 0] for again in (False, True, True)]
    assert found == [0, 6, 6]


def test_streams_in_one_run() -> None:
    one = session(recurrent())
    streams, xs = [one.stateful() for _ in range(3)], blocks(4, 3)
    expected, _ = recurrent_in_numpy(xs, 2.0)
    for step, x in enumerate(xs):
        found = ort.run_together(streams, [{"x": x[i : i + 1], "scale": SCALE} for i in range(3)])
        for i in range(3):
            np.testing.assert_allclose(found[i][0], expected[step, i : i + 1], rtol=1e-5, atol=1e-6)
    assert [s.runs for s in streams] == [4, 4, 4]
    alone = streams[1].fork().run(None, {"x": xs[0][1:2], "scale": SCALE})[0]
    together = ort.run_together(streams, [{"x": xs[0][i : i + 1], "scale": SCALE} for i in range(3)])[1][0]
    np.testing.assert_allclose(alone, together, rtol=1e-5, atol=1e-6)
    with pytest.raises(ort.InvalidArgument, match="'scale' has no axis of rows, and differs"):
        ort.run_together(streams[:2], [{"x": xs[0][:1], "scale": np.float32(i)} for i in range(2)])
    with pytest.raises(ort.InvalidArgument, match="streams of one session"):
        ort.run_together([streams[0], session(recurrent()).stateful()], [{}, {}])


def test_growing_streams_of_unequal_lengths_do_not_run_together() -> None:
    one = session(growing())
    streams = [one.stateful(), one.stateful()]
    streams[0].run(None, {"x": np.ones((1, 2, 3), np.float32)})
    with pytest.raises(ort.InvalidArgument, match="differ in other axes"):
        ort.run_together(streams, [{"x": np.ones((1, 1, 3), np.float32)}] * 2)


def test_threads_with_forks_of_their_own() -> None:
    stream, xs = session(recurrent()).stateful(), blocks(50)
    expected, _ = recurrent_in_numpy(xs, 2.0)
    found: list[Any] = [None] * 4

    def work(i: int) -> None:
        own = stream.fork()
        found[i] = [own.run(None, {"x": x, "scale": SCALE})[0] for x in xs]

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    for ys in found:
        np.testing.assert_allclose(np.stack(ys), expected, rtol=1e-5, atol=1e-6)


def test_states_that_the_caller_says() -> None:
    model = recurrent("first", "second")
    with pytest.raises(ort.InvalidArgument, match=r"no output looks like the next value.*states=\{'output': 'input'\}"):
        session(model).stateful()
    stream, xs = session(model).stateful({"second": "first"}), blocks(3)
    expected, _ = recurrent_in_numpy(xs, 2.0)
    found = [stream.run(None, {"x": x, "scale": SCALE})[0] for x in xs]
    np.testing.assert_allclose(np.stack(found), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"states": {"nothing": "state"}}, "'nothing' is no output"),
        ({"states": {"stateN": "nothing"}}, "'nothing' is no input"),
        ({"states": {"y": "state"}}, "cannot be fed into"),
        ({"initial": {"x": np.zeros(1)}}, "'x' is no state"),
        ({"initial": {"state": np.zeros((1, 4))}}, "expected float32 of rank 2, got float64"),
        ({"initial": {"state": np.zeros((1, 5), np.float32)}}, r"expected the shape \['batch', 4\], got \[1, 5\]"),
        ({"max_length": 0}, "max_length: expected at least 1, got 0"),
        ({"history": -1}, "history: expected at least 0"),
    ],
)
def test_arguments_that_do_not_fit(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ort.InvalidArgument, match=message):
        session(recurrent()).stateful(**arguments)


def test_a_size_that_nobody_says() -> None:
    model = parsed(
        "g (float[1, 3] x, float[1, room, 3] cache) => (float[1, 3] y, float[1, room, 3] cache_out) "
        "{ cache_out = Add(cache, x) y = ReduceMean<keepdims = 0>(cache_out, one) }",
        one=np.array([1]),
    )
    x = np.ones((1, 3), np.float32)
    with pytest.raises(ort.InvalidArgument, match=r"axis 1 \(room\).*give sizes=\{'room': ...\}"):
        session(model).stateful().run(None, {"x": x})
    stream = session(model).stateful(sizes={"room": 5})
    stream.run(None, {"x": x})
    assert stream.state["cache"].shape == (1, 5, 3)


def test_states_are_explained_and_checked() -> None:
    text = str(session(recurrent()).explain())
    assert "stateN -> state: float[batch, 4]" in text
    check = ort.check_model(recurrent().SerializeToString())
    assert check.states == ("stateN -> state: float[batch, 4] (by their names)",)
    assert not check.problems


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("y = Relu(x) stateN = Neg(x)", "nothing reads the state input 'state'"),
        ("y = Add(x, state) stateN = Identity(state)", "is its input 'state' unchanged"),
        ("y = Add(x, state) stateN = Identity(two)", "depends on no input"),
    ],
)
def test_dead_states_are_found_by_check(body: str, message: str) -> None:
    model = parsed(
        f"g (float[1, 2] x, float[1, 2] state) => (float[1, 2] y, float[1, 2] stateN) {{ {body} }}",
        two=np.ones((1, 2), np.float32),
    )
    (problem,) = ort.check_model(model.SerializeToString()).problems
    assert (problem.code, problem.severity) == ("state", "warning")
    assert message in problem.message


LEFT_OVER = """d (float[b, n] x, float[b, k] cache) => (float[b, q] y, float[b, r] cache_out)
    <int64[1] one = {1}, int64 four = {4}, int64[1] zero = {0}, int64[1] big = {99999}> {
    a = Concat<axis = 1>(cache, x) sh = Shape<start = 1, end = 2>(a) mo = Mod(sh, four) e = Sub(sh, mo)
    y = Slice(a, zero, e, one) cache_out = Slice(a, e, big, one) }"""
"""Gives what makes whole blocks of four, and keeps the rest."""


def test_a_state_may_become_empty() -> None:
    stream = session(parsed(LEFT_OVER)).stateful()
    given = [np.arange(a, b, dtype=np.float32)[None] for a, b in ((0, 3), (3, 8), (8, 12))]
    assert [stream.run(None, {"x": x})[0].ravel().tolist() for x in given] == [[], list(range(8)), [8, 9, 10, 11]]


def test_time_major_inputs_run_together() -> None:
    model = parsed(
        "c (float[steps, batch, 2] x, float[batch, 2] state) => (float[batch, 2] y, float[2] w, float[batch, 2] stateN) "
        "{ r = ReduceSum<keepdims = 0>(x, zero) stateN = Add(r, state) y = Identity(stateN) w = Identity(two) }",
        zero=np.array([0]), two=np.array([7, 9], np.float32),
    )  # fmt: skip
    one = session(model)
    streams, x = [one.stateful(), one.stateful()], np.ones((3, 1, 2), np.float32)
    found = ort.run_together(streams, [{"x": x}, {"x": 10 * x}])
    assert [y.tolist() for y, _ in found] == [[[3, 3]], [[30, 30]]]
    assert [w.tolist() for _, w in found] == [[7, 9], [7, 9]]
    assert [s.state["state"].tolist() for s in streams] == [[[3, 3]], [[30, 30]]]
    given = ort.run_together(streams, [{"x": x, "state": np.full((1, 2), 5, np.float32)}, {"x": x}])
    assert [y.tolist() for y, _ in given] == [[[8, 8]], [[33, 33]]]
    with pytest.raises(ort.InvalidArgument, match=r"\['z'\] of feed 1 are no inputs"):
        ort.run_together(streams, [{"x": x}, {"x": x, "z": x}])
    for wrong in ((None, None), ([one], [{}]), ([], [])):
        with pytest.raises(ort.WrongType, match="expected a list of stateful sessions"):
            ort.run_together(*wrong)


def test_the_maximum_of_each_stream_counts_where_they_run_together() -> None:
    one, x = session(growing()), np.ones((1, 2, 3), np.float32)
    streams = [one.stateful(), one.stateful(max_length=3)]
    ort.run_together(streams, [{"x": x}] * 2)
    with pytest.raises(ort.InvalidArgument, match="would be 4 long after this run, at most 3"):
        ort.run_together(streams, [{"x": x}] * 2)
    assert [s.length for s in streams] == [2, 2]


def test_what_is_given_belongs_to_the_caller() -> None:
    stream, xs = session(recurrent()).stateful(), blocks(2)
    (state,) = stream.run(["stateN"], {"x": xs[0], "scale": SCALE})
    state[...] = 1000
    expected, _ = recurrent_in_numpy(xs, 2.0)
    np.testing.assert_allclose(stream.run(None, {"x": xs[1], "scale": SCALE})[0], expected[1], rtol=1e-5, atol=1e-6)


def test_an_unknown_output_is_refused_before_anything_runs() -> None:
    stream, (x,) = session(recurrent()).stateful(), blocks(1)
    with pytest.raises(ort.InvalidArgument, match="'typo' is no output"):
        stream.run(["typo"], {"x": x, "scale": SCALE})
    assert stream.runs == 0


def test_caches_that_are_cut_or_unequal_do_not_go_back() -> None:
    window = parsed(
        "g (float[1, n, 2] x, float[1, past, 2] past_key) => (float[1, m, 2] y, float[1, kept, 2] present_key) "
        "{ all = Concat<axis = 1>(past_key, x) present_key = Slice(all, from, to, one) y = Identity(present_key) }",
        **{"from": np.array([-3]), "to": np.array([99]), "one": np.array([1])},
    )
    stream = session(window).stateful()
    for i in range(6):
        stream.run(None, {"x": np.full((1, 1, 2), i, np.float32)})
    assert stream.state["past_key"][0, :, 0].tolist() == [3, 4, 5]
    with pytest.raises(ort.InvalidArgument, match="cuts the state 'past_key' to its last places"):
        stream.rewind(1)
    initial = {"past_key_values.0.key": np.zeros((1, 1, 5, 4), np.float32)}
    unequal = session(growing()).stateful(initial=initial)
    unequal._values = {**unequal._first({"x": np.ones((1, 2, 3), np.float32)})}
    with pytest.raises(ort.InvalidArgument, match="expected 0 to 0, got 3"):
        unequal.rewind(3)


def test_states_of_texts_begin_as_empty_ones(tmp_path: Path) -> None:
    model = parsed(
        "g (string[1] x, string[1] state) => (string[1] y, string[1] stateN) "
        "{ stateN = StringConcat(state, x) y = Identity(stateN) }"
    )
    model.opset_import[0].version = 20
    stream = session(model).stateful()
    found = [stream.run(None, {"x": np.array([c], object)})[0][0] for c in "abc"]
    assert found == ["a", "ab", "abc"]
    with pytest.raises(ort.InvalidArgument, match="holds texts"):
        stream.save(tmp_path / "s.npz")


def test_a_closed_session() -> None:
    one = session(recurrent())
    stream = one.stateful()
    one.close()
    with pytest.raises(ort.Fail, match="closed"):
        stream.run(None, {"x": blocks(1)[0], "scale": SCALE})
    with pytest.raises(ort.Fail, match="closed"):
        stream.run_many({"x": blocks(2), "scale": SCALE})
    with pytest.raises(ort.Fail, match="closed"):
        one.stateful()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"states": ["stateN"]}, "states: expected a dict"),
        ({"initial": [1]}, "initial: expected a dict"),
        ({"sizes": {"typo": 3}}, "'typo' is no dimension"),
        ({"sizes": {"batch": -1}}, "expected at least 0"),
        ({"history": 1.5}, "history: expected a whole number"),
        ({"max_length": "5"}, "max_length: expected a whole number"),
        ({"max_length": 5}, "no state of the model grows"),
    ],
)
def test_arguments_of_other_types(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ort.InvalidArgument, match=message):
        session(recurrent()).stateful(**arguments)


def test_rows_begin_anew_with_the_first_value_of_one_row() -> None:
    start = np.full((1, 4), 0.5, np.float32)
    stream, xs = session(recurrent()).stateful(initial={"state": start}), blocks(1, 1)
    stream.run(None, {"x": xs[0], "scale": SCALE})
    stream.select_rows([0, 0])
    stream.reset(rows=[1])
    np.testing.assert_array_equal(stream.state["state"][1:], start)
