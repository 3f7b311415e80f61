"""Searches over encoder-decoder models (T5 in both of its forms, Whisper) against onnxruntime, with random weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from search_models import EOS, FLOAT, INT32, MODES, PAD, VOCABULARY, WIDTH, search

import intarsia
from intarsia.errors import Fail, InvalidGraph
from intarsia.ops.contrib.search.greedy_search import Timestamps

onnxruntime = pytest.importorskip("onnxruntime", reason="onnxruntime is the reference of its own operators")

IDS = np.array([[3, 1, 4, 1], [PAD, 5, 9, 2], [2, 7, PAD, PAD]], np.int32)
FEATURES = np.random.default_rng(5).standard_normal((3, WIDTH, 5)).astype(np.float32)
MASK = np.array([0 if t in (3, 7) else 1 for t in range(VOCABULARY)], np.int32)
FIRST = np.array([[t % (row + 2) != 0 for t in range(VOCABULARY)] for row in range(3)], np.int32)
WORDS = np.array([[1, 1, 1, 0], [0, 1, 1, 1], [1, 0, 1, 1]], np.int32)
BEGIN = np.array([[1, 2], [3, 4], [5, 6]], np.int32)
TIMESTAMPS = {
    "beginning_timestamp_token_id": 6, "no_timestamps_token_id": 5, "start_of_lm_token_id": 4, "translate_token_id": 3,
    "transcribe_token_id": 2, "decoder_start_token_id": 1, "eos_token_id": 0,
}  # fmt: skip


def i32(*values: int) -> np.ndarray:
    return np.array(values, np.int32)


def f32(*values: float) -> np.ndarray:
    return np.array(values, np.float32)


def operator(mode: str) -> str:
    return "WhisperBeamSearch" if mode == "whisper" else "BeamSearch"


def data(mode: str) -> np.ndarray:
    return FEATURES if mode == "whisper" else IDS


def compare(op: str, mode: str, inputs: list[Any], kinds: list[int], **attributes: Any) -> list[np.ndarray]:
    """All inputs at once against onnxruntime's results of each alone, which there may be others in a batch of three: its beams
    of one input sometimes end when those of another do."""
    proto, feeds = search(op, mode, inputs, kinds, **attributes)
    found = intarsia.InferenceSession(proto.SerializeToString()).run(None, feeds)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    alone = []
    for row in range(len(IDS)):
        one = [x[row : row + 1] if x is not None and x.ndim > 1 else x for x in inputs]
        proto, feeds = search(op, mode, one, kinds, **attributes)
        session = onnxruntime.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
        alone.append(session.run(None, feeds))
    for i, (a, parts) in enumerate(zip(found, zip(*alone, strict=True), strict=True)):
        b = np.concatenate(parts, axis=1 if i == 2 else 0)
        assert a.dtype == b.dtype and a.shape == b.shape
        if a.dtype == np.int32:
            np.testing.assert_array_equal(a, b)
        else:
            np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-3)
    return list(found)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("beams", "early", "penalty"), [(1, 0, 1.0), (3, 0, 1.4), (4, 1, 0.6)])
def test_beams(mode: str, beams: int, early: int, penalty: float) -> None:
    for seed in range(3):
        inputs = [data(mode), i32(10), i32(0), i32(beams), i32(min(beams, 2)), f32(penalty), f32(1.0)]
        compare(operator(mode), mode, inputs, [INT32, FLOAT], seed=seed, early_stopping=early)


OPTIONS: dict[str, tuple[dict[int, Any], dict[str, Any]]] = {
    "min_length": ({2: i32(7)}, {}), "penalty": ({6: f32(1.7)}, {}), "vocab_mask": ({7: MASK}, {}), "first": ({8: FIRST}, {}),
    "ngram": ({2: i32(9)}, {"no_repeat_ngram_size": 2}), "start": ({}, {"decoder_start_token_id": 2}),
    "vocab_size": ({}, {"vocab_size": VOCABULARY}),
}  # fmt: skip


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("option", OPTIONS)
def test_options(mode: str, option: str) -> None:
    given, attributes = OPTIONS[option]
    inputs: list[Any] = [data(mode), i32(10), i32(0), i32(3), i32(2), f32(1.0), f32(1.0), None, None]
    for at, value in given.items():
        inputs[at] = value
    compare(operator(mode), mode, inputs, [INT32, FLOAT], seed=1, **attributes)


@pytest.mark.parametrize("mode", ["t5 old", "t5 new"])
def test_attention_mask(mode: str) -> None:
    inputs = [IDS, i32(10), i32(0), i32(2), i32(1), f32(1.0), f32(1.0), None, None, WORDS]
    compare("BeamSearch", mode, inputs, [INT32, FLOAT])


@pytest.mark.parametrize("mode", MODES)
def test_scores_of_all_steps(mode: str) -> None:
    inputs = [data(mode), i32(6), i32(6), i32(2), i32(1), f32(1.0), f32(1.0)]
    (*_, steps) = compare(operator(mode), mode, inputs, [INT32, FLOAT, FLOAT])
    assert steps.shape == (5, 3, 2, VOCABULARY)


def test_whisper_begins_with_given_tokens() -> None:
    inputs = [FEATURES, i32(9), i32(0), i32(2), i32(1), f32(1.0), f32(1.0), None, None, None, BEGIN]
    sequences, _ = compare("WhisperBeamSearch", "whisper", inputs, [INT32, FLOAT])
    np.testing.assert_array_equal(sequences[:, 0, :2], BEGIN)


def test_whisper_by_beam_search() -> None:
    compare("BeamSearch", "whisper", [FEATURES, i32(9), i32(0), i32(3), i32(3), f32(1.0), f32(1.0)], [INT32, FLOAT])


def test_whisper_temperature() -> None:
    inputs = [FEATURES, i32(9), i32(0), i32(2), i32(1), f32(1.0), f32(1.0), *[None] * 7, f32(0.5)]
    compare("WhisperBeamSearch", "whisper", inputs, [INT32, FLOAT])


@pytest.mark.parametrize("seed", range(6))
def test_whisper_timestamps(seed: int) -> None:
    inputs = [FEATURES, i32(12), i32(0), i32(2), i32(1), f32(1.0), f32(1.0), None, None, None, None, i32(1)]
    compare("WhisperBeamSearch", "whisper", inputs, [INT32, FLOAT], seed=seed, **TIMESTAMPS)


def test_timestamps_come_in_pairs_and_never_go_back() -> None:
    rules = Timestamps(begin=6, never=(5, 4, 99, -1), later=(1, 2, 3), initial=1)

    def allowed(tokens: list[int], logits: list[float] | None = None) -> list[int]:
        scores = np.zeros(10, np.float32) if logits is None else np.array(logits, np.float32)
        scores[:6] += 5.0 * (logits is None)  # words are more probable than all timestamps
        rules.apply(scores, np.array(tokens), 0)
        return [t for t, s in enumerate(scores) if s > -1e30]

    assert allowed([1]) == [0, 1, 2, 3, 6, 7]  # the first timestamp is at most 1 behind the beginning
    assert allowed([1, 7]) == [0, 1, 2, 3]  # words after the first timestamp
    assert allowed([1, 7, 2]) == [0, 8, 9]  # and a later one: here 1, 2, 3 are no more drawn
    assert allowed([1, 7, 0, 8]) == [0, 8, 9]  # which another follows, or the end
    assert allowed([1, 7, 0, 8, 8]) == [0]
    assert allowed([1], [0.0] * 10) == [6, 7]  # two timestamps are more probable than any word


def test_whisper_says_how_probable_silence_is() -> None:
    """onnxruntime leaves this output as it is on CPUs."""
    proto, feeds = search(
        "WhisperBeamSearch", "whisper", [FEATURES, i32(6), i32(0), i32(2), i32(1), f32(1.0), f32(1.0)],
        [INT32, 0, FLOAT, 0, FLOAT], no_speech_token_id=4,
    )  # fmt: skip
    _, steps, silence = intarsia.InferenceSession(proto.SerializeToString()).run(None, feeds)
    np.testing.assert_allclose(silence, np.exp(steps[0, :, 0, 4]), rtol=1e-5)


@pytest.mark.parametrize("mode", MODES)
def test_one_beam_is_greedy(mode: str) -> None:
    """Where no sequence ends, as for decoders alone; onnxruntime has no greedy search of such models."""
    mask = np.array([token != EOS for token in range(VOCABULARY)], np.int32)
    beam, feeds = search(operator(mode), mode, [data(mode), i32(9), None, i32(1), i32(1), f32(1.0), None, mask], [INT32])
    greedy, others = search("GreedySearch", mode, [data(mode), i32(9), None, None, mask], [INT32])
    found = intarsia.InferenceSession(beam.SerializeToString()).run(None, feeds)[0]
    wanted = intarsia.InferenceSession(greedy.SerializeToString()).run(None, others)[0]
    np.testing.assert_array_equal(found[:, 0], wanted)
    drawn, others = search("Sampling", mode, [data(mode), i32(9), None, None, mask], [INT32], top_p=1e-6)
    np.testing.assert_array_equal(intarsia.InferenceSession(drawn.SerializeToString()).run(None, others)[0], wanted)


def test_a_decoder_that_takes_all_tokens() -> None:
    """The sequence axis of its input_ids is not 1: it gets the tokens so far, and here uses the last."""
    proto, feeds = search("GreedySearch", "t5 old", [IDS, i32(8)], [INT32])
    (wanted,) = intarsia.InferenceSession(proto.SerializeToString()).run(None, feeds)
    (decoder,) = (a.g for a in proto.graph.node[0].attribute if a.name == "decoder")
    decoder.input[0].type.tensor_type.shape.dim[1].dim_param = "so_far"
    decoder.node[0].input[1] = "last"
    ends = [
        onnx.numpy_helper.from_array(np.array([v]), n) for n, v in (("from_last", -1), ("to_end", 2**62), ("tokens_axis", 1))
    ]
    decoder.initializer.extend(ends)
    last = onnx.helper.make_node("Slice", ["input_ids", "from_last", "to_end", "tokens_axis"], ["last"])
    decoder.node.insert(0, last)
    np.testing.assert_array_equal(intarsia.InferenceSession(proto.SerializeToString()).run(None, feeds)[0], wanted)


@pytest.mark.parametrize("provider", ["CPUExecutionProvider", "ReferenceExecutionProvider"])
def test_a_decoder_that_takes_the_encoders_tokens(provider: str) -> None:
    """A pointer generator: words of the input are more probable the more often they are there."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    changed = []
    for row in IDS:
        inputs = [row[None], i32(10), i32(0), i32(3), i32(2), f32(1.0), f32(1.0)]
        proto, feeds = search("BeamSearch", "t5 old", inputs, [INT32, FLOAT])
        plain = intarsia.InferenceSession(proto.SerializeToString(), providers=[provider]).run(None, feeds)
        (decoder,) = (a.g for a in proto.graph.node[0].attribute if a.name == "decoder")
        (made,) = (node for node in decoder.node if decoder.output[0].name in node.output)
        made.output[list(made.output).index(decoder.output[0].name)] = "generated"
        taken = [*decoder.input]
        del decoder.input[:]
        source = onnx.helper.make_tensor_value_info("encoder_input_ids", INT32, ["rows", "source_words"])
        decoder.input.extend([taken[0], source, *taken[1:]])
        values = {"depth": f32(VOCABULARY), "off_on": f32(0, 30), "words_axis": np.array([1])}
        decoder.initializer.extend(onnx.numpy_helper.from_array(v, n) for n, v in values.items())
        for op, names, out in (
            ("OneHot", ["encoder_input_ids", "depth", "off_on"], "hot"),
            ("ReduceSum", ["hot", "words_axis"], "copied"),
            ("Add", ["generated", "copied"], decoder.output[0].name),
        ):
            decoder.node.append(onnx.helper.make_node(op, names, [out]))
        found = intarsia.InferenceSession(proto.SerializeToString(), providers=[provider]).run(None, feeds)
        session = onnxruntime.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
        expected = session.run(None, feeds)
        np.testing.assert_array_equal(found[0], expected[0])
        np.testing.assert_allclose(found[1], expected[1], rtol=1e-3, atol=1e-3)
        changed.append(found[0].tolist() != plain[0].tolist())
    assert any(changed)


def refused(match: str, mode: str, inputs: list[Any], op: str = "", change: Any = None, **attributes: Any) -> None:
    proto, feeds = search(op or operator(mode), mode, inputs, [INT32], **attributes)
    if change is not None:
        change({a.name: a.g for a in proto.graph.node[0].attribute if a.HasField("g")})
    with pytest.raises((Fail, InvalidGraph), match=match):
        intarsia.InferenceSession(proto.SerializeToString()).run(None, feeds)


def test_refusals() -> None:
    plain = [IDS, i32(8), None, i32(2), i32(1), f32(1.0)]
    features = [FEATURES, *plain[1:]]
    refused("model_type is 5; expected 0", "t5 old", plain, model_type=5)
    refused("model_type is 0, a decoder without an encoder", "t5 old", plain, model_type=0)
    refused("decoder_start_token_id is -1; expected a token", "t5 old", plain, decoder_start_token_id=-1)
    refused(r"decoder_input_ids is for models of type 2 \(Whisper\)", "t5 old", [*plain, *[None] * 4, BEGIN])
    refused(r"decoder_input_ids has shape \[2, 2\]; expected \[3, tokens\]", "whisper", [*features, *[None] * 4, BEGIN[:2]])
    refused("max_length is 2; expected more than the 2 tokens", "whisper", [FEATURES, i32(2), *plain[2:], *[None] * 4, BEGIN])
    refused(r"input_ids has shape \[3, 6, 5\]; expected \[batch, tokens\]", "whisper", features, op="BeamSearch", model_type=1)
    refused("logits_processor is not 0", "whisper", [*features, *[None] * 5, i32(1)], op="BeamSearch")
    refused("logits_processor is 1; expected the attribute beginning_timestamp", "whisper", [*features, *[None] * 5, i32(1)])
    refused("output cross_qk is not computed", "whisper", features, decoder_output_cross_qk=1)

    def renamed(graphs: Any) -> None:
        graphs["encoder"].input[0].name = graphs["encoder"].node[0].input[1] = "words_in"

    def fewer(graphs: Any) -> None:
        del graphs["encoder"].output[-1]

    def more(graphs: Any) -> None:
        graphs["decoder"].output.append(graphs["decoder"].output[1])

    refused(r"the encoder has inputs \['words_in'", "t5 new", plain, change=renamed)
    refused(
        "the encoder gives 5 outputs; expected logits, encoder_hidden_states, and 4 states per layer",
        "t5 old",
        plain,
        change=fewer,
    )
    refused("the encoder gives 1 outputs; expected 2 states per layer", "t5 new", plain, change=fewer)
    refused("the decoder has inputs .* and 4 outputs; expected input_ids", "t5 old", plain, change=more)


def test_no_encoder() -> None:
    proto, feeds = search("BeamSearch", "t5 old", [IDS, i32(8), None, i32(2), i32(1), f32(1.0)], [INT32])
    kept = [a for a in proto.graph.node[0].attribute if a.name != "encoder"]
    del proto.graph.node[0].attribute[:]
    proto.graph.node[0].attribute.extend(kept)
    with pytest.raises((Fail, InvalidGraph), match="model_type is 1, which has an encoder; expected the attribute encoder"):
        intarsia.InferenceSession(proto.SerializeToString()).run(None, feeds)


@pytest.mark.parametrize(("mode", "name"), [("t5 old", "encoder_input_ids"), ("t5 new", "input_ids"), ("whisper", "input_ids")])
def test_outer_names_that_the_subgraphs_have_too(mode: str, name: str, tmp_path: Path) -> None:
    """The subgraphs' inputs are known by their names, whatever the graph around calls its own; so is what is saved of them."""
    proto, feeds = search(operator(mode), mode, [data(mode), i32(8), None, i32(2), i32(1), f32(1.0), f32(1.0)], [INT32])
    (wanted,) = intarsia.InferenceSession(proto.SerializeToString()).run(None, feeds)
    outer = proto.graph.input[0].name
    feeds[name] = feeds.pop(outer)
    proto.graph.input[0].name = proto.graph.node[0].input[0] = name
    np.testing.assert_array_equal(intarsia.InferenceSession(proto.SerializeToString()).run(None, feeds)[0], wanted)
    options = intarsia.SessionOptions()
    options.optimized_model_filepath = str(tmp_path / "saved.onnx")
    intarsia.InferenceSession(proto.SerializeToString(), options)
    saved = onnx.load(options.optimized_model_filepath).graph.node[0]
    for before, after in zip(proto.graph.node[0].attribute, saved.attribute, strict=True):
        assert [v.name for v in before.g.input] == [v.name for v in after.g.input]
    np.testing.assert_array_equal(intarsia.InferenceSession(options.optimized_model_filepath).run(None, feeds)[0], wanted)
