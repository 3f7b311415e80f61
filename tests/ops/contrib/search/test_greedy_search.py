"""GreedySearch, Sampling and BeamSearch against onnxruntime, with a small decoder of random weights."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnx.helper as oh
import pytest

import intarsia
from intarsia.errors import Fail, InvalidGraph

onnxruntime = pytest.importorskip("onnxruntime", reason="onnxruntime is the reference of its own operators")

VOCABULARY, HEADS, SIZE = 12, 2, 3
WIDTH = HEADS * SIZE
EOS, PAD = 10, 11
FLOAT, INT32 = onnx.TensorProto.FLOAT, onnx.TensorProto.INT32


def decoder(seed: int) -> onnx.GraphProto:
    """Logits of a token, its position, and the mean of all keys and values that are not masked; the past keeps these."""
    rng = np.random.default_rng(seed)
    weights = {
        "tokens": rng.standard_normal((VOCABULARY, WIDTH)), "places": rng.standard_normal((32, WIDTH)) * 0.3,
        "out": rng.standard_normal((WIDTH, VOCABULARY)) * 1.5, "back": rng.standard_normal((WIDTH, VOCABULARY)) * 2.0,
    }  # fmt: skip
    constants = [onnx.numpy_helper.from_array(v.astype(np.float32), n) for n, v in weights.items()]
    for name, value in (("heads", [0, 0, HEADS, SIZE]), ("flat", [0, 1, WIDTH])):
        constants.append(onnx.numpy_helper.from_array(np.array(value, np.int64), name))
    for name, value in (("both", [0]), ("around", [0, 2, 4])):
        constants.append(onnx.numpy_helper.from_array(np.array(value, np.int64), name))
    nodes = [
        oh.make_node("Gather", ["tokens", "input_ids"], ["a"]),
        oh.make_node("Gather", ["places", "position_ids"], ["b"]),
        oh.make_node("Add", ["a", "b"], ["x"]),
        oh.make_node("Reshape", ["x", "heads"], ["r"]),
        oh.make_node("Transpose", ["r"], ["t"], perm=[0, 2, 1, 3]),
        oh.make_node("Unsqueeze", ["t", "both"], ["u"]),
        oh.make_node("Concat", ["u", "u"], ["kv"], axis=0),
        oh.make_node("Concat", ["past_0", "kv"], ["present_0"], axis=3),
        oh.make_node("Cast", ["attention_mask"], ["m"], to=FLOAT),
        oh.make_node("Unsqueeze", ["m", "around"], ["mask"]),
        oh.make_node("Mul", ["present_0", "mask"], ["seen"]),
        oh.make_node("ReduceMean", ["seen"], ["mean"], axes=[0, 3], keepdims=0),
        oh.make_node("Reshape", ["mean", "flat"], ["c"]),
        oh.make_node("MatMul", ["c", "back"], ["back_logits"]),
        oh.make_node("MatMul", ["x", "out"], ["own"]),
        oh.make_node("Add", ["own", "back_logits"], ["logits"]),
    ]
    inputs = [oh.make_tensor_value_info(n, INT32, ["rows", "tokens"]) for n in ("input_ids", "position_ids")]
    inputs.append(oh.make_tensor_value_info("attention_mask", INT32, ["rows", "all"]))
    inputs.append(oh.make_tensor_value_info("past_0", FLOAT, [2, "rows", HEADS, "past", SIZE]))
    outputs = [
        oh.make_tensor_value_info("logits", FLOAT, ["rows", "tokens", VOCABULARY]),
        oh.make_tensor_value_info("present_0", FLOAT, [2, "rows", HEADS, "all", SIZE]),
    ]
    return oh.make_graph(nodes, "decoder", inputs, outputs, constants)


def model(
    op: str, inputs: list[Any], kinds: list[int], seed: int = 0, **attributes: Any
) -> tuple[bytes, dict[str, np.ndarray]]:
    names = [f"x{i}" if x is not None else "" for i, x in enumerate(inputs)]
    feeds = {n: x for n, x in zip(names, inputs, strict=True) if n}
    attributes = {"eos_token_id": EOS, "pad_token_id": PAD, "decoder": decoder(seed), **attributes}
    node = oh.make_node(op, names, [f"y{i}" for i in range(len(kinds))], domain="com.microsoft", name="search", **attributes)
    graph = oh.make_graph(
        [node], "g", [oh.make_tensor_value_info(n, oh.np_dtype_to_tensor_dtype(x.dtype), x.shape) for n, x in feeds.items()],
        [oh.make_tensor_value_info(f"y{i}", t, None) for i, t in enumerate(kinds)],
    )  # fmt: skip
    imports = [oh.make_opsetid("", 14), oh.make_opsetid("com.microsoft", 1)]
    return oh.make_model(graph, opset_imports=imports, ir_version=8).SerializeToString(), feeds


def compare(op: str, inputs: list[Any], kinds: list[int], **attributes: Any) -> list[np.ndarray]:
    proto, feeds = model(op, inputs, kinds, **attributes)
    wanted = onnxruntime.InferenceSession(proto, providers=["CPUExecutionProvider"]).run(None, feeds)
    found = intarsia.InferenceSession(proto).run(None, feeds)
    for a, b in zip(found, wanted, strict=True):
        assert a.dtype == b.dtype and a.shape == b.shape
        if a.dtype == np.int32:
            np.testing.assert_array_equal(a, b)
        else:
            np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-3)
    return list(found)


def i32(*values: int) -> np.ndarray:
    return np.array(values, np.int32)


PROMPTS = np.array([[3, 1, 4], [1, 5, 9], [PAD, 2, 6]], np.int32)
MASK = np.array([0 if t in (3, 7) else 1 for t in range(VOCABULARY)], np.int32)
FIRST = np.array([[t % (row + 2) != 0 for t in range(VOCABULARY)] for row in range(3)], np.int32)
PENALTY = np.array([1.7], np.float32)
OPTIONS: dict[str, tuple[list[Any], dict[str, Any]]] = {
    "plain": ([], {}), "min_length": ([i32(8)], {}), "penalty": ([None, PENALTY], {}), "vocab_mask": ([i32(1), None, MASK], {}),
    "first": ([i32(5), None, None, FIRST], {}), "ngram": ([i32(9)], {"no_repeat_ngram_size": 2}),
    "mask": ([None, None, None, None, np.array([[1, 1, 1], [0, 1, 1], [0, 0, 1]], np.int32)], {}),
}  # fmt: skip


@pytest.mark.parametrize("option", OPTIONS)
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_greedy_search(option: str, seed: int) -> None:
    more, attributes = OPTIONS[option]
    compare("GreedySearch", [PROMPTS, i32(12), *more], [INT32], seed=seed, **attributes)


@pytest.mark.parametrize("option", OPTIONS)
@pytest.mark.parametrize(("beams", "early"), [(2, 0), (3, 0), (4, 1)])
def test_beam_search(option: str, beams: int, early: int) -> None:
    (shortest, *more), attributes = (OPTIONS[option][0] or [None]), OPTIONS[option][1]
    lengths = np.array([1.4 if beams == 3 else 1.0], np.float32)
    least = i32(1) if shortest is None else shortest
    inputs = [PROMPTS, i32(12), least, i32(beams), i32(min(beams, 2)), lengths, *more]
    for seed in range(3):
        compare("BeamSearch", inputs, [INT32, FLOAT], seed=seed, early_stopping=early, **attributes)


def test_one_beam_is_greedy() -> None:
    """Where no sequence ends: an end is scored as a hypothesis, and the beam goes on with the next best token."""
    mask = np.array([token != EOS for token in range(VOCABULARY)], np.int32)
    beam, feeds = model("BeamSearch", [PROMPTS, i32(12), None, i32(1), i32(1), None, None, mask], [INT32])
    greedy, others = model("GreedySearch", [PROMPTS, i32(12), None, None, mask], [INT32])
    found = intarsia.InferenceSession(beam).run(None, feeds)[0]
    np.testing.assert_array_equal(found[:, 0], intarsia.InferenceSession(greedy).run(None, others)[0])


@pytest.mark.parametrize("op", ["GreedySearch", "Sampling", "BeamSearch"])
@pytest.mark.parametrize("provider", ["CPUExecutionProvider", "ReferenceExecutionProvider"])
def test_steps_are_trips(op: str, provider: str) -> None:
    """Nine tokens behind prompts of three, where no sequence ends."""
    mask = np.array([token != EOS for token in range(VOCABULARY)], np.int32)
    own = [None, None, mask] if op != "BeamSearch" else [None, i32(2), i32(1), None, None, mask]
    proto, feeds = model(op, [PROMPTS, i32(12), *own], [INT32])
    for limit in (9, 8):
        options = intarsia.SessionOptions()
        options.add_session_config_entry("session.loop_trips", str(limit))
        session = intarsia.InferenceSession(proto, options, [provider])
        if limit == 9:
            assert session.run(None, feeds)[0].shape[-1] == 12
        else:
            with pytest.raises(Fail, match=r"steps of searches\) would have more than 8 trips together"):
                session.run(None, feeds)


def test_scores_of_all_steps() -> None:
    compare("BeamSearch", [PROMPTS, i32(5), i32(5), i32(2), i32(1), PENALTY], [INT32, FLOAT, FLOAT])


def test_sampling_of_the_only_token() -> None:
    """With a tiny top_p only the best token can be drawn."""
    proto, feeds = model("Sampling", [PROMPTS, i32(12)], [INT32, FLOAT], top_p=1e-6, temperature=0.7)
    greedy, _ = model("GreedySearch", [PROMPTS, i32(12)], [INT32])
    found, kept = intarsia.InferenceSession(proto).run(None, feeds)
    np.testing.assert_array_equal(found, intarsia.InferenceSession(greedy).run(None, feeds)[0])
    assert ((kept > -1e20).sum(1) == 1).all()


def test_sampling_follows_probabilities() -> None:
    rows = 3000
    prompts = np.tile(PROMPTS[:1], (rows, 1))
    seed = i32(7)
    proto, feeds = model("Sampling", [prompts, i32(4), *[None] * 6, seed], [INT32, FLOAT], top_p=0.9)
    session = intarsia.InferenceSession(proto)
    sequences, kept = session.run(None, feeds)
    np.testing.assert_array_equal(sequences, session.run(None, feeds)[0])
    logits = kept[0].astype(np.float64)
    wanted = np.exp(logits - logits.max())
    wanted /= wanted.sum()
    counts = np.bincount(sequences[:, 3], minlength=VOCABULARY) / rows
    np.testing.assert_allclose(counts, wanted, atol=4 * np.sqrt(0.25 / rows))


def test_refusals() -> None:
    def run(op: str, inputs: list[Any], kinds: list[int], **attributes: Any) -> None:
        proto, feeds = model(op, inputs, kinds, **attributes)
        intarsia.InferenceSession(proto).run(None, feeds)

    with pytest.raises((Fail, InvalidGraph), match="max_length is 3; expected more than the 3 tokens"):
        run("GreedySearch", [PROMPTS, i32(3)], [INT32])
    with pytest.raises((Fail, InvalidGraph), match="model_type is 1, which has an encoder; expected the attribute encoder"):
        run("GreedySearch", [PROMPTS, i32(9)], [INT32], model_type=1)
    with pytest.raises((Fail, InvalidGraph), match="num_beams is 2 and num_return_sequences 3"):
        run("BeamSearch", [PROMPTS, i32(9), None, i32(2), i32(3)], [INT32])
    with pytest.raises((Fail, InvalidGraph), match="decoder_input_ids is for models of type 2"):
        run("BeamSearch", [PROMPTS, i32(9), None, i32(2), i32(1), *[None] * 5, PROMPTS], [INT32])
    short = decoder(0)
    del short.output[1]
    with pytest.raises((Fail, InvalidGraph), match="expected input_ids, position_ids, attention_mask and pasts"):
        run("GreedySearch", [PROMPTS, i32(9)], [INT32], decoder=short)


def _with_output(name: str, *nodes: onnx.NodeProto) -> onnx.GraphProto:
    """The decoder with other nodes behind one of its outputs, which they call "before"."""
    graph = decoder(0)
    for node in graph.node:
        node.output[:] = ["before" if n == name else n for n in node.output]
        node.input[:] = ["before" if n == name else n for n in node.input]
    graph.node.extend(nodes)
    (value,) = (v for v in graph.output if v.name == name)
    value.type.tensor_type.ClearField("shape")
    return graph


WRONG_RESULTS = {
    "logits without tokens": (
        _with_output("logits", oh.make_node("Reshape", ["before", "flat_1"], ["logits"])),
        r"logits of the decoder are float32\[\d+\]; expected \[\d, tokens, vocabulary\]",
    ),
    "a state of more rows": (
        _with_output("present_0", oh.make_node("Concat", ["before", "before"], ["present_0"], axis=1)),
        r"state 0 of the decoder is float32\[2, \d+, 2, 3, 3\]; expected \d rows on axis 1",
    ),
    "a vocabulary that shrinks": (
        _with_output(
            "logits", oh.make_node("Shape", ["attention_mask"], ["all"]), oh.make_node("Gather", ["all", "one"], ["s"]),
            oh.make_node("Sub", ["most", "s"], ["n"]), oh.make_node("Slice", ["before", "none", "n", "axis"], ["logits"]),
        ),
        "step 1: logits are of 11 tokens; expected 12, as before",
    ),
}  # fmt: skip


@pytest.mark.parametrize("provider", ["CPUExecutionProvider", "ReferenceExecutionProvider"])
@pytest.mark.parametrize("op", ["GreedySearch", "Sampling", "BeamSearch"])
@pytest.mark.parametrize("what", WRONG_RESULTS)
def test_results_of_the_decoder_are_looked_at(provider: str, op: str, what: str) -> None:
    graph, match = WRONG_RESULTS[what]
    for name, value in (("flat_1", [-1]), ("most", [15]), ("none", [0]), ("axis", [2]), ("one", [1])):
        if name not in {t.name for t in graph.initializer}:
            graph.initializer.append(onnx.numpy_helper.from_array(np.array(value, np.int64), name))
    more = [None, i32(2), i32(2)] if op == "BeamSearch" else []
    proto, feeds = model(op, [PROMPTS, i32(9), *more], [INT32], decoder=graph)
    with pytest.raises(Fail, match=match):
        intarsia.InferenceSession(proto, providers=[provider]).run(None, feeds)


WRONG_INPUTS: dict[str, tuple[list[Any], str]] = {
    "vocab_mask": ([None, None, MASK[:5]], r"vocab_mask has shape \[5\]; expected \[12\]"),
    "prefix": ([None, None, None, FIRST[:2]], r"prefix_vocab_mask has shape \[2, 12\]; expected \[3, 12\]"),
    "mask": ([None, None, None, None, np.ones((3, 4), np.int32)], r"attention_mask has shape \[3, 4\]; expected \[3, 3\]"),
    "nothing": ([None, np.zeros(0, np.float32)], r"an operand of one number has shape \[0\]; expected \[1\]"),
}  # fmt: skip


@pytest.mark.parametrize("what", WRONG_INPUTS)
def test_operands_that_do_not_fit(what: str) -> None:
    more, match = WRONG_INPUTS[what]
    proto, feeds = model("GreedySearch", [PROMPTS, i32(9), *more], [INT32])
    with pytest.raises(Fail, match=match):
        intarsia.InferenceSession(proto).run(None, feeds)


def test_tokens_that_the_vocabulary_lacks() -> None:
    """An end that is no token, and padding that is none, change nothing and are not looked for."""
    inputs = [PROMPTS, i32(9), i32(9), np.array([1.7], np.float32)]
    for eos in (VOCABULARY, 2**31 - 1, -1):
        proto, feeds = model("GreedySearch", inputs, [INT32], eos_token_id=eos, no_repeat_ngram_size=2)
        (found,) = intarsia.InferenceSession(proto).run(None, feeds)
        assert found.shape == (3, 9)
        assert ((found >= 0) & (found < VOCABULARY)).all()


@pytest.mark.parametrize("penalty", [np.nan, np.inf, -np.inf, 1e30, -1e30, 0.0])
def test_penalties_that_are_no_numbers(penalty: float) -> None:
    """They make scores infinite or NaN: the search ends."""
    number = np.array([penalty], np.float32)
    proto, feeds = model("BeamSearch", [PROMPTS, i32(9), None, i32(3), i32(2), number, number], [INT32, FLOAT])
    sequences, scores = intarsia.InferenceSession(proto).run(None, feeds)
    assert (sequences.shape, scores.shape) == ((3, 2, 9), (3, 2))


@pytest.mark.parametrize("provider", ["CPUExecutionProvider", "ReferenceExecutionProvider"])
def test_without_optimisation(provider: str) -> None:
    """Nothing infers the decoder then: its nodes are still of the versions that the model imports."""
    proto, feeds = model("GreedySearch", [PROMPTS, i32(9)], [INT32])
    options = intarsia.SessionOptions()
    options.graph_optimization_level = intarsia.GraphOptimizationLevel.ORT_DISABLE_ALL
    (found,) = intarsia.InferenceSession(proto, options, providers=[provider]).run(None, feeds)
    np.testing.assert_array_equal(found, intarsia.InferenceSession(proto).run(None, feeds)[0])


@pytest.mark.parametrize("level", ["ORT_DISABLE_ALL", "ORT_ENABLE_ALL"])
@pytest.mark.parametrize("provider", ["CPUExecutionProvider", "ReferenceExecutionProvider"])
def test_a_result_that_nothing_computes(provider: str, level: str) -> None:
    graph = decoder(0)
    graph.output[1].name = "nothing"
    proto, _ = model("GreedySearch", [PROMPTS, i32(9)], [INT32], decoder=graph)
    options = intarsia.SessionOptions()
    options.graph_optimization_level = getattr(intarsia.GraphOptimizationLevel, level)
    with pytest.raises(InvalidGraph, match="nothing computes the graph output 'nothing'"):
        intarsia.InferenceSession(proto, options, providers=[provider])
