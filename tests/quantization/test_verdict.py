"""What a verdict says against NumPy, and that a bound holds on data that was not searched on."""

from __future__ import annotations

import base64
import hashlib
import json
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper
from quantised_cases import convolutions, image_feeds, model, numbers, operators, products, saved, token_feeds

import intarsia
from intarsia.errors import InvalidArgument
from intarsia.quantization.verdict.bounded_search import BoundedSearch
from intarsia.quantization.verdict.layers import Layer, layers_of, name_nodes
from intarsia.quantization.verdict.measures import Loss, Nearness, agreement_of
from intarsia.quantization.verdict.quantise import Request, WeightSettings, quantize_with_verdict
from intarsia.quantization.verdict.report_page import page
from intarsia.quantization.writers.half_floats import to_half_floats


def test_measures() -> None:
    exact, found = numbers(1, 4, 9), numbers(1, 4, 9) + 0.01 * numbers(2, 4, 9)
    near = Nearness()
    for i in range(4):
        near.add(exact[i], found[i])
    noise = np.square(found - exact).sum(dtype=np.float64)
    assert np.isclose(near.signal_to_noise, 10 * np.log10(np.square(exact).sum() / noise), rtol=1e-5)
    assert np.isclose(near.relative_error, np.sqrt(noise / np.square(exact).sum()), rtol=1e-5)
    assert near.cosine > 0.9999
    assert np.isclose(near.largest, np.abs(found - exact).max())
    agreement = agreement_of([{"y": np.eye(3)}], [{"y": np.array([[1, 0, 0], [1, 0, 0], [0, 0, 1]])}])
    assert agreement.top_1 == pytest.approx(2 / 3)
    assert Loss("top1").drop([{"y": np.eye(3)}], [{"y": np.eye(3)[::-1]}], [{}]) == pytest.approx(2 / 3)
    assert (
        Loss("mine", lambda results, feeds: float(results[0]["y"][0])).drop([{"y": np.ones(1)}], [{"y": np.zeros(1)}], [{}])
        == 1
    )
    with pytest.raises(InvalidArgument, match=r"metric: expected one of top1, cosine, error, or FILE.py:FUNCTION; got 'f1'"):
        Loss("f1")


def test_layers_are_nodes_with_weights_and_what_follows() -> None:
    made = convolutions()
    for node in made.graph.node[:3]:
        node.name = ""
    name_nodes(made)
    found = layers_of(made, set(operators(made)))
    assert [layer.op_type for layer in found] == ["Conv", "Conv", "Gemm"]
    assert [len(layer.nodes) for layer in found] == [3, 4, 1]
    assert found[0].weights == 8 * 3 * 9 + 8
    assert len({node.name for node in made.graph.node}) == 8


def test_a_search_gives_back_few_layers() -> None:
    """Losses of layers add up here; the bound needs the two worst, and the second of them is large."""
    losses = {"a": 0.01, "b": 0.5, "c": 0.02, "d": 0.3, "e": 0.01}
    layers = [Layer(name, "MatMul", (name,), (name,), 100) for name in losses]
    search = BoundedSearch(layers, lambda floats: sum(v for n, v in losses.items() if n not in floats), 60.0)
    found = search.run(0.05)
    assert set(found.floats) == {"b", "d"}
    assert found.loss == pytest.approx(0.04)
    assert "without it the loss is" in found.floats["b"]
    assert BoundedSearch(layers, lambda floats: 0.0, 60.0).run(0.1).floats == {}
    hurried = BoundedSearch(layers, lambda floats: sum(v for n, v in losses.items() if n not in floats), 0.0).run(0.05)
    assert hurried.loss <= 0.05
    assert set(hurried.floats.values()) == {"its values differ most"}


KINDS = {"static": image_feeds, "dynamic": token_feeds, "weights": token_feeds, "float16": token_feeds, "bfloat16": token_feeds}


@pytest.mark.parametrize("kind", list(KINDS))
def test_every_kind_has_a_verdict(tmp_path: Path, kind: str) -> None:
    made = convolutions() if kind == "static" else products(21)
    path, feeds = saved(made, tmp_path), KINDS[kind](8)
    request = Request(path, tmp_path / "q.onnx", kind, feeds[:4], feeds[4:], weights=WeightSettings(block=16))
    verdict = quantize_with_verdict(request)
    onnx.checker.check_model(onnx.load(request.output))
    told = json.loads(verdict.to_json())
    exact, found = (
        np.concatenate([intarsia.InferenceSession(p).run(None, f)[0] for f in feeds[4:]]) for p in (path, request.output)
    )
    error = np.sqrt(np.square(found - exact).sum() / np.square(exact).sum())
    assert told["outputs"]["y"]["relative_error"] == pytest.approx(error, rel=0.05)
    assert error < 0.3
    assert told["bytes_before"] == path.stat().st_size or told["bytes_after"] == request.output.stat().st_size
    assert len(told["milliseconds"]["CPUExecutionProvider"]) == 2
    assert all(layer["quantized"] for layer in told["layers"])
    if kind != "bfloat16":
        assert all(layer["signal_to_noise_db"] > 5 for layer in told["layers"])
    assert "loss by 'error'" in str(verdict)


def test_a_bound_holds_on_data_that_was_not_searched_on(tmp_path: Path) -> None:
    """One layer of the model has an outlier that 8 bits cannot bear."""
    made = convolutions()
    weights = made.graph.initializer[2]
    values = numbers(3, 8, 8, 3, 3) / 8
    values[:, 0] *= 300
    weights.CopyFrom(onnx.numpy_helper.from_array(values, "w2"))
    path, feeds = saved(made, tmp_path), image_feeds(12)
    free = quantize_with_verdict(Request(path, tmp_path / "q.onnx", "static", feeds[:4], feeds[4:8], feeds[8:], seconds=20))
    bound = free.metric["loss"] / 4
    kept = quantize_with_verdict(
        Request(path, tmp_path / "b.onnx", "static", feeds[:4], feeds[4:8], feeds[8:], max_drop=bound, seconds=20)
    )
    assert kept.within_bound
    assert kept.metric["loss"] <= bound < free.metric["loss"]
    left = [layer for layer in kept.layers if not layer.quantized]
    assert 0 < len(left) < len(kept.layers)
    assert all(layer.reason for layer in left)


def test_what_is_left_in_bodies_is_counted(tmp_path: Path) -> None:
    inner = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["i"]), helper.make_node("Relu", ["i"], ["o"])], "inner", [],
        [onnx.ValueInfoProto(name="o")],
    )  # fmt: skip
    made = products(17)
    made.graph.node.append(helper.make_node("ReduceSum", ["x"], ["sum"], keepdims=0))
    made.graph.node.append(helper.make_node("Cast", ["sum"], ["which"], to=onnx.TensorProto.BOOL))
    made.graph.node.append(helper.make_node("If", ["which"], ["z"], "choice", then_branch=inner, else_branch=inner))
    made.graph.initializer.append(onnx.numpy_helper.from_array(numbers(4, 16, 32), "w"))
    made.graph.output.append(helper.make_tensor_value_info("z", onnx.TensorProto.FLOAT, ["n", 5, 32]))
    path, feeds = saved(made, tmp_path), token_feeds(4)
    dynamic = quantize_with_verdict(Request(path, tmp_path / "q.onnx", "dynamic", (), feeds))
    assert dynamic.left_in_bodies == {"MatMul": 2}
    said = [text for text in dynamic.warnings if "in bodies of If, Loop and Scan stay" in text]
    assert len(said) == 1
    assert "(2 MatMul): EnableSubgraph of quantize_dynamic takes them" in said[0]
    inside = Request(path, tmp_path / "i.onnx", "dynamic", (), feeds, arguments={"extra_options": {"EnableSubgraph": True}})
    assert quantize_with_verdict(inside).left_in_bodies == {}


def test_a_result_that_is_larger_is_said_to_be(tmp_path: Path) -> None:
    node = helper.make_node("Conv", ["x", "w"], ["y"], "c")
    made = model([node], {"w": numbers(1, 1, 1, 1, 1)}, {"x": [1, 1, 2, 2], "y": None})
    path, feeds = saved(made, tmp_path), [{"x": numbers(2, 1, 1, 2, 2)}]
    verdict = quantize_with_verdict(Request(path, tmp_path / "q.onnx", "static", feeds, feeds))
    assert verdict.bytes_after > verdict.bytes_before
    assert any(text.startswith("the result is larger than the model, by ") for text in verdict.warnings)


@pytest.mark.parametrize("options", [{"CrossLayerEqualization": True}, {"BiasCorrection": True}])
def test_layers_are_compared_as_they_were_transformed(tmp_path: Path, options: dict[str, bool]) -> None:
    path, feeds = saved(convolutions(), tmp_path), image_feeds(8)
    arguments = {"extra_options": options, "per_channel": True}
    verdict = quantize_with_verdict(Request(path, tmp_path / "q.onnx", "static", feeds[:4], feeds[4:], arguments=arguments))
    assert all(layer.signal_to_noise_db > 15 for layer in verdict.layers)


def test_gptq_needs_data_and_is_nearer(tmp_path: Path) -> None:
    path, feeds = saved(products(21), tmp_path), token_feeds(8)
    mixed = np.eye(16, dtype=np.float32) + np.ones((16, 16), np.float32)  # inputs that depend on each other
    feeds = [{"x": feed["x"] @ mixed} for feed in feeds]
    errors = []
    for algorithm in ("nearest", "gptq"):
        weights = WeightSettings(block=16, algorithm=algorithm)
        request = Request(path, tmp_path / "q.onnx", "weights", feeds[:4], feeds[4:], weights=weights)
        errors.append(quantize_with_verdict(request).outputs["y"]["relative_error"])
    assert errors[1] < errors[0]
    with pytest.raises(InvalidArgument, match=r"gptq makes up for errors on data: expected data, got none"):
        quantize_with_verdict(Request(path, tmp_path / "q.onnx", "weights", weights=WeightSettings(algorithm="gptq")))


class Outline(HTMLParser):
    """What a page has, by tag, and whether tags are closed."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.counts: Counter[str] = Counter()
        self.keys: list[list[str | None]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.counts[tag] += 1
        if tag == "tr":
            self.keys.append([])
        if tag == "td":
            self.keys[-1].append(dict(attrs).get("data-v"))
        if tag not in ("meta", "line", "path"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag or tag in ("line", "path"), tag

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.counts[tag] += 1


def test_the_page_has_a_chart_and_histograms(tmp_path: Path) -> None:
    made = convolutions()
    made.graph.node[0].name = "<script>alert(1)</script>"
    path, feeds = saved(made, tmp_path), image_feeds(8)
    request = Request(path, tmp_path / "q.onnx", "static", feeds[:4], feeds[4:], excluded=["classes"])
    verdict = quantize_with_verdict(request)
    shown = page(verdict)
    outline = Outline()
    outline.feed(shown)
    assert outline.open == []
    assert outline.counts["script"] == 1
    assert outline.counts["rect"] == len(verdict.layers) == 3
    assert outline.counts["path"] == 2 * len(verdict.layers)
    assert len(outline.keys) == 1 + len(verdict.layers)
    for layer, keys in zip(verdict.layers, outline.keys[1:], strict=True):
        assert float(keys[4] or "nan") == layer.signal_to_noise_db
        assert float(keys[3] or "nan") == pytest.approx(10 ** (-layer.signal_to_noise_db / 20))
        assert sum(layer.values.counts) == sum(layer.errors.counts) > 0
    script = shown[shown.index("<script>") + 8 : shown.index("</script>")]
    assert base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() in shown
    assert "left out by name" in shown
    assert "http" not in shown.replace("http-equiv", "")
    empty = page(quantize_with_verdict(Request(path, tmp_path / "q.onnx", "dynamic")))
    assert "No layer could be compared" in empty


def test_histograms_are_those_of_numpy(tmp_path: Path) -> None:
    path, feeds = saved(products(21), tmp_path), token_feeds(8)
    verdict = quantize_with_verdict(Request(path, tmp_path / "q.onnx", "static", feeds[:4], feeds[4:]))
    exact = np.concatenate([intarsia.InferenceSession(path).run(None, f)[0].ravel() for f in feeds[4:]])
    found = verdict.layers[-1].values
    assert (found.low, found.high) == pytest.approx((exact.min(), exact.max()), rel=1e-4)
    counts, _ = np.histogram(exact, len(found.counts), (found.low, found.high))
    assert sum(found.counts) == exact.size
    assert np.abs(counts - found.counts).sum() <= exact.size // 50
    assert verdict.layers[-1].range[0] < 0 < verdict.layers[-1].range[1]


def test_what_is_not_known_is_said(tmp_path: Path) -> None:
    path = saved(products(), tmp_path)
    verdict = quantize_with_verdict(Request(path, tmp_path / "q.onnx", "dynamic"))
    assert "there is no data: what quantising costs in accuracy is not known" in verdict.warnings
    assert verdict.outputs == {}
    feeds = token_feeds(2)
    verdict = quantize_with_verdict(Request(path, tmp_path / "q.onnx", "dynamic", (), feeds, random=True))
    assert any(text.startswith("the data are random numbers") for text in verdict.warnings)
    again = quantize_with_verdict(Request(tmp_path / "q.onnx", tmp_path / "r.onnx", "dynamic"))
    assert any("nothing was quantised" in text for text in again.warnings)
    with pytest.raises(InvalidArgument, match=r"static quantisation finds ranges on data: expected data, got none"):
        quantize_with_verdict(Request(path, tmp_path / "q.onnx", "static"))
    with pytest.raises(InvalidArgument, match=r"a bound of the loss needs data"):
        quantize_with_verdict(Request(path, tmp_path / "q.onnx", "dynamic", max_drop=0.1))
    with pytest.raises(InvalidArgument, match=r"kind of quantisation: expected one of static, .*, got 'int8'"):
        quantize_with_verdict(Request(path, tmp_path / "q.onnx", "int8"))


def test_nodes_with_large_values_stay_in_floats(tmp_path: Path) -> None:
    """Squares of 1000 are more than float16 has; the report says so."""
    nodes = [helper.make_node("Mul", ["x", "x"], ["s"], "square"), helper.make_node("Mul", ["s", "c"], ["y"], "small")]
    path = saved(model(nodes, {"c": np.float32([1e-6])}, {"x": [4], "y": [4]}), tmp_path)
    feeds = [{"x": np.array([1000, 2, 3, 4], np.float32)}]
    verdict = quantize_with_verdict(Request(path, tmp_path / "h.onnx", "float16", feeds, feeds))
    assert "values up to 1e+06" in {layer.reason for layer in verdict.layers}
    found = intarsia.InferenceSession(tmp_path / "h.onnx").run(None, feeds[0])[0]
    assert np.allclose(found, feeds[0]["x"] ** 2 * 1e-6, rtol=2e-3)


@pytest.mark.parametrize("kind", ["float16", "bfloat16"])
def test_half_floats_keep_inputs_outputs_and_named_nodes(tmp_path: Path, kind: str) -> None:
    made = products(21)
    done = to_half_floats(made, kind, ["softmax"])
    onnx.checker.check_model(made, full_check=True)
    assert done.in_float32 == {"softmax": "kept by name"}
    assert done.converted == 6
    assert {v.type.tensor_type.elem_type for v in (*made.graph.input, *made.graph.output)} == {onnx.TensorProto.FLOAT}
    exact = intarsia.InferenceSession(products(21).SerializeToString()).run(None, token_feeds(1)[0])[0]
    found = intarsia.InferenceSession(made.SerializeToString()).run(None, token_feeds(1)[0])[0]
    assert np.abs(found - exact).max() < (0.01 if kind == "float16" else 0.05) * np.abs(exact).max()
    with pytest.raises(InvalidArgument, match=r"expected float16 or bfloat16, got 'float8'"):
        to_half_floats(made, "float8")


def test_other_data_lose_at_most_so_much() -> None:
    """Of runs whose losses vary, the bound of the bootstrap holds for most further draws of the kind, the mean does not."""
    numbers_ = np.random.default_rng(3)

    def runs(count: int) -> tuple[list[dict[str, np.ndarray]], list[dict[str, np.ndarray]]]:
        exact = [{"y": numbers_.standard_normal(10)} for _ in range(count)]
        return exact, [{"y": e["y"] + numbers_.lognormal(-4, 1.5) * numbers_.standard_normal(10)} for e in exact]

    held = {"drop": 0, "drop_elsewhere": 0}
    for _ in range(30):
        seen, unseen = runs(24), runs(24)
        for name in held:
            bound = getattr(Loss("error"), name)(*seen, [{}] * 24)
            held[name] += Loss("error").drop(*unseen, [{}] * 24) <= bound
    assert held["drop_elsewhere"] >= 21 > held["drop"]
    function = Loss("mine", lambda results, feeds: float(np.mean([r["y"].sum() for r in results])))
    exact, found = runs(8)
    assert function.drop_elsewhere(exact, found, [{}] * 8) >= function.drop(exact, found, [{}] * 8)
    assert Loss("top1").drop_elsewhere(exact[:1], found[:1], [{}]) == Loss("top1").drop(exact[:1], found[:1], [{}])
