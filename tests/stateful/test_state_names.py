"""Which names of outputs and inputs are taken for states: those that exporters write, and none that only look alike."""

from __future__ import annotations

import pytest

from intarsia.model.signature import NodeArg
from intarsia.stateful.state_names import Likeness, likeness
from intarsia.stateful.state_pairs import find_states

PAIRS = [
    ("present.0.key", "past_key_values.0.key"),  # optimum
    ("present.11.decoder.value", "past_key_values.11.decoder.value"),
    ("present_key_values.3.key", "past_key_values.3.key"),
    ("present_0", "past_0"),  # onnxruntime's GPT-2
    ("present_key_self_2", "past_key_self_2"),  # onnxruntime's T5 and Whisper
    ("present_conv.4", "past_conv.4"),  # hybrids
    ("stateN", "state"),
    ("hn", "h"),
    ("cn", "c0"),
    ("h_n", "h_0"),
    ("new_state", "state"),
    ("state_out", "state_in"),
    ("state0_out", "state0_in"),
    ("next_states_1", "states_1"),
    ("new_cached_key_0", "cached_key_0"),  # streaming Zipformers
    ("cache_last_channel_next", "cache_last_channel"),
    ("cache_last_channel_next_len", "cache_last_channel_len"),
    ("out_cache3", "in_cache3"),
    ("conv_cache_out", "conv_cache"),
    ("hidden_out", "hidden_in"),
    ("outHiddenState", "inHiddenState"),
    ("updated_memory", "memory"),
    ("Y_h", "initial_h"),  # ONNX's LSTM
    ("Y_c", "initial_c"),
]
OTHERS = [
    ("last_hidden_state", "hidden_states"),
    ("encoder_last_hidden_state", "encoder_hidden_states"),
    ("hidden_states_out", "hidden_states_in"),
    ("logits", "input_ids"),
    ("present.1.key", "past_key_values.0.key"),
    ("present.0.value", "past_key_values.0.key"),
    ("output", "input"),
    ("stateN", "sr"),
    ("hn", "c"),
    ("attention_mask_out", "position_ids"),
    ("new_price", "old_price"),
    ("left_out", "left_in"),
]


@pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: pair[0])
def test_names_of_states(pair: tuple[str, str]) -> None:
    assert likeness(*pair) >= Likeness.LIKELY


@pytest.mark.parametrize("pair", OTHERS, ids=lambda pair: pair[0])
def test_names_of_something_else(pair: tuple[str, str]) -> None:
    assert likeness(*pair) < Likeness.LIKELY


def args(**shapes: list[int | str | None]) -> list[NodeArg]:
    return [NodeArg(name, "tensor(float)", shape) for name, shape in shapes.items()]


def found(inputs: list[NodeArg], outputs: list[NodeArg]) -> dict[str, str]:
    return {s.output: s.input for s in find_states(inputs, outputs, None)}


def test_letters_for_in_and_out_are_states_where_there_are_several() -> None:
    """As in Robust Video Matting: r1i to r4i, and an image beside them."""
    inputs = args(src=[1, 3, "h", "w"], r1i=[1, 16, "a", "b"], r2i=[1, 20, "c", "d"])
    outputs = args(fgr=[1, 3, "h", "w"], r1o=[1, 16, "e", "f"], r2o=[1, 20, "g", "i"])
    assert found(inputs, outputs) == {"r1o": "r1i", "r2o": "r2i"}


def test_an_image_in_and_an_image_out_are_no_state() -> None:
    assert found(args(image_in=[1, 3, 8, 8], size=[2]), args(image_out=[1, 3, 8, 8], score=[1])) == {}


def test_two_pictures_in_and_out_are_no_states() -> None:
    inputs = args(left_in=[1, 3, 8, 8], right_in=[1, 3, 8, 8], scale=[1])
    assert found(inputs, args(left_out=[1, 3, 8, 8], right_out=[1, 3, 8, 8], disparity=[1])) == {}


def test_a_layer_that_gives_nothing_but_states_is_none() -> None:
    assert found(args(state_in=[1, 4], x=[1, 4]), args(state_out=[1, 4])) == {}
    assert found(args(x=[1, 4], past_state=[1, 4]), args(present_state=[1, 4])) == {"present_state": "past_state"}


def test_other_types_ranks_and_sizes_are_no_states() -> None:
    assert found(args(x=[1], state=[1, 4]), args(y=[1], stateN=[1, 5])) == {}
    assert found(args(x=[1], state=[1, 4]), args(y=[1], stateN=[1, 1, 4])) == {}
    integer = [NodeArg("y", "tensor(float)", [1]), NodeArg("stateN", "tensor(int64)", [1, 4])]
    assert found(args(x=[1], state=[1, 4]), integer) == {}


def test_an_output_of_unknown_rank_fits() -> None:
    assert found(args(x=[1], state=[2, None, 128]), args(y=[1], stateN=[])) == {"stateN": "state"}


@pytest.mark.parametrize(
    ("after", "grows"), [("past + 1", 2), ("past_sequence_length + sequence_length", 2), ("past_sequence_length", None)]
)
def test_an_axis_grows_where_the_output_is_longer(after: str, grows: int | None) -> None:
    inputs = [
        NodeArg("input_ids", "tensor(int64)", ["batch", "sequence_length"]),
        NodeArg("past_key_values.0.key", "tensor(float)", ["batch", 4, "past_sequence_length", 16]),
    ]
    outputs = [
        *args(logits=["batch", "sequence_length", 9]), NodeArg("present.0.key", "tensor(float)", ["batch", 4, after, 16])
    ]  # fmt: skip
    (state,) = find_states(inputs, outputs, None)
    assert (state.grows, state.batch) == (grows, 0)
