"""Quantise a model, measure what it costs on data that calibration did not see, and leave layers as a bound needs."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from intarsia.errors import InvalidArgument
from intarsia.quantization.calibration.histogram import StreamingHistogram
from intarsia.quantization.calibration.observed_runs import ObservedModel
from intarsia.quantization.description import model_files
from intarsia.quantization.description.gemm_rewrite import gemm_as_matmul
from intarsia.quantization.description.marking_rules import MARKING_RULES
from intarsia.quantization.description.model_editor import store_constants
from intarsia.quantization.description.tensor_marks import logger
from intarsia.quantization.numerics.block_weights import BITS, Algorithm, BlockFormat, BlockWeights, nearest
from intarsia.quantization.numerics.gptq import GptqSettings, InputMoments
from intarsia.quantization.numerics.half_quadratic import half_quadratic
from intarsia.quantization.numerics.k_quants import least_squares
from intarsia.quantization.quantize import DynamicArguments, StaticArguments, calibrated_model, dynamic_model, static_model
from intarsia.quantization.quantized_models import Ranges
from intarsia.quantization.verdict.bounded_search import BoundedSearch
from intarsia.quantization.verdict.layers import Layer, floats_in_bodies, layers_of, name_nodes
from intarsia.quantization.verdict.measures import Agreement, Feed, Loss, Nearness, Results, agreement_of
from intarsia.quantization.verdict.report import Bins, LayerReport, Verdict
from intarsia.quantization.writers.dynamic_rules import DYNAMIC_RULES
from intarsia.quantization.writers.half_floats import float_values, to_half_floats
from intarsia.quantization.writers.weight_only import Compute, WeightOnlyPlan, gptq_compute, input_moments, quantize_weights
from intarsia.session.inference_session import InferenceSession

KINDS = ("static", "dynamic", "weights", "float16", "bfloat16")
ALGORITHMS: dict[str, Algorithm] = {"nearest": nearest, "hqq": half_quadratic, "k-quants": least_squares}
GPTQ = "gptq"  # which needs data
_BINS_SHOWN = 48
_HELD_AT_ONCE = 256 << 20  # bytes of a run's values that are held to be compared


@dataclass
class WeightSettings:
    """How weights are stored in blocks: bits, weights of a block, whether the middle code is 0, and the algorithm."""

    bits: int = 4
    block: int = 32
    symmetric: bool = False
    algorithm: str = "nearest"

    def plan(self, excluded: frozenset[str], moments: Mapping[str, InputMoments]) -> WeightOnlyPlan:
        """As a writer's plan; `moments`: of products' inputs, for GPTQ.

        Raises:
            InvalidArgument: no such algorithm.
        """
        algorithm = ALGORITHMS.get(self.algorithm)
        if (algorithm is None and self.algorithm != GPTQ) or self.bits not in BITS:
            raise InvalidArgument(
                f"weights: expected {', '.join(ALGORITHMS)}, {GPTQ} and 2, 4 or 8 bits, got {self.algorithm}, {self.bits}"
            )
        form = BlockFormat(self.bits, self.block, self.symmetric)
        compute: Compute = gptq_compute(moments, GptqSettings())
        if algorithm is not None:
            compute = partial(_separately, algorithm)
        return WeightOnlyPlan(form, compute, excluded=excluded)


def _separately(algorithm: Algorithm, node: onnx.NodeProto, weights: np.ndarray, form: BlockFormat) -> BlockWeights:
    """What an algorithm that needs no data makes of a node's weights."""
    return algorithm(weights, form)


@dataclass
class Request:
    """What to quantise, and what it may cost.

    Attributes:
        model, output: paths.
        kind: of `KINDS`.
        calibration: feeds that ranges are found on ("static").
        evaluation: feeds that layers are measured and searched on; none of them should be among the former.
        verification: feeds that the loss of the result is measured on, and a bound is held on; empty: those of `evaluation`.
        data_source: where they are from, for the report.
        random: whether they are random numbers.
        arguments: of `quantize_static` or `quantize_dynamic`, but for model, output and reader.
        alternatives: by name, further arguments that are tried; those that lose least on `evaluation` are taken ("static").
        weights: for "weights".
        excluded: names of nodes that stay as they are.
        loss: what is held against the bound.
        max_drop: the bound; None: none.
        seconds: for measuring layers one by one.
        providers: on which time is measured; the first is that of results.
    """

    model: Path
    output: Path
    kind: str = "dynamic"
    calibration: Sequence[Feed] = ()
    evaluation: Sequence[Feed] = ()
    verification: Sequence[Feed] = ()
    data_source: str = ""
    random: bool = False
    arguments: Mapping[str, Any] = field(default_factory=dict)
    alternatives: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    weights: WeightSettings = field(default_factory=WeightSettings)
    excluded: Sequence[str] = ()
    loss: Loss = field(default_factory=Loss)
    max_drop: float | None = None
    seconds: float = 60.0
    providers: Sequence[str] = ("CPUExecutionProvider",)


class _Feeds:
    """A reader of feeds, that can be copied and read again."""

    def __init__(self, feeds: Sequence[Feed]) -> None:
        self._left: Iterator[Feed] = iter(list(feeds))

    def get_next(self) -> Feed | None:
        return next(self._left, None)


def quantize_with_verdict(request: Request) -> Verdict:
    """Quantise a model, write it, and say what it cost.

    Raises:
        InvalidArgument: a kind that does not exist, or one that needs data without data; a bound without data.
        As `quantize_static` and `quantize_dynamic`.
    """
    if request.kind not in KINDS:
        raise InvalidArgument(f"kind of quantisation: expected one of {', '.join(KINDS)}, got {request.kind!r}")
    if request.kind == "static" and not request.calibration:
        raise InvalidArgument("static quantisation finds ranges on data: expected data, got none; dynamic needs none")
    if request.kind == "weights" and request.weights.algorithm == GPTQ and not request.calibration:
        raise InvalidArgument("gptq makes up for errors on data: expected data, got none; hqq needs none")
    if request.max_drop is not None and not request.evaluation:
        raise InvalidArgument("a bound of the loss needs data to measure it on: expected data, got none")
    return _Quantisation(request).done()


class _Quantisation:
    def __init__(self, request: Request) -> None:
        self.request = request
        self.floats = model_files.load_model(request.model)
        store_constants(self.floats)
        name_nodes(self.floats)
        self.layers = layers_of(self.floats, self._op_types())
        self._of = {layer.name: layer for layer in self.layers}
        self._calibrated: tuple[onnx.ModelProto, Ranges] | None = None
        self._largest: dict[str, float] | None = None
        self._float32: dict[str, str] = {}
        self._moments: dict[str, InputMoments] | None = None
        self._spreads: dict[str, _Spread] = {}
        self.exact = list(_results(self.floats, request.evaluation))
        self._last = request.verification or request.evaluation
        self._last_exact = list(_results(self.floats, self._last)) if self._last is not request.evaluation else self.exact

    def _op_types(self) -> Sequence[str]:
        chosen = self.request.arguments.get("op_types_to_quantize")
        if chosen:
            return list(chosen)
        if self.request.kind == "static":
            return [*MARKING_RULES, "Add", "Mul", "Concat", "Sigmoid", "Softmax", "GlobalAveragePool"]
        if self.request.kind == "dynamic":
            return [*DYNAMIC_RULES, "Gemm"]
        return ["MatMul", "Gemm"] if self.request.kind == "weights" else sorted({n.op_type for n in self.floats.graph.node})

    # Models

    def quantized(self, floats: frozenset[str]) -> onnx.ModelProto:
        """The quantised model with these layers in floats."""
        names = [*self.request.excluded, *(n for layer in floats for n in self._of[layer].nodes)]
        if self.request.kind == "static":
            return self._static(names)
        model = model_files.load_model(self.floats)
        if self.request.kind == "dynamic":
            also = [f"{name}_MatMul" for name in names]  # what a Gemm becomes
            return dynamic_model(DynamicArguments(model, "", nodes_to_exclude=[*names, *also], **self.request.arguments))
        if self.request.kind == "weights":
            gemm_as_matmul(model)
            excluded = frozenset([*names, *(f"{n}_MatMul" for n in names)])
            quantize_weights(model, self.request.weights.plan(excluded, self._input_moments(model)))
            return model
        found = to_half_floats(model, self.request.kind, names, self._magnitudes())
        self._float32 = found.in_float32
        return found.model

    def _static(self, excluded: list[str]) -> onnx.ModelProto:
        given = StaticArguments(self.floats, "", _Feeds(self.request.calibration), **self.request.arguments)
        if self._calibrated is None:
            self._calibrated = calibrated_model(given, whole=True)  # of other layers in each trial
        model, ranges = self._calibrated
        return static_model(replace(given, nodes_to_exclude=excluded), model_files.load_model(model), copy(ranges))

    def _input_moments(self, model: onnx.ModelProto) -> Mapping[str, InputMoments]:
        """Of the inputs of the model's products, on the data for calibration; none where the algorithm needs none."""
        if self.request.weights.algorithm != GPTQ:
            return {}
        if self._moments is None:
            self._moments = input_moments(model, model.graph, self.request.calibration)
        return self._moments

    def _magnitudes(self) -> dict[str, float]:
        """The largest magnitude of each inner value, on all data."""
        if self._largest is None:
            found: dict[str, float] = {}
            model = model_files.with_shapes(model_files.load_model(self.floats))
            feeds = [*self.request.calibration, *self.request.evaluation]
            observed = ObservedModel(self.floats, list(float_values(model)))

            def observe(name: str, values: Any) -> None:
                found[name] = max(found.get(name, 0.0), float(np.abs(values).max(initial=0.0)))

            for feed in feeds:
                observed.run(feed, observe)
            self._largest = found
        return self._largest

    # Measures

    def loss(self, floats: frozenset[str]) -> float:
        """What is lost with these layers in floats; with a bound, what other data would lose."""
        if len(floats) == len(self.layers) and not self._is_half():
            return 0.0
        found = list(_results(self.quantized(floats), self.request.evaluation))
        lost = self.request.loss.drop if self.request.max_drop is None else self.request.loss.drop_elsewhere
        return lost(self.exact, found, self.request.evaluation)

    def _is_half(self) -> bool:
        return self.request.kind in ("float16", "bfloat16")

    def done(self) -> Verdict:
        """Search, write and measure."""
        request = self.request
        verdict = Verdict(str(request.model), str(request.output), request.kind)
        verdict.data = {
            "source": request.data_source, "calibration_runs": len(request.calibration),
            "evaluation_runs": len(request.evaluation), "verification_runs": len(self._last), "random": request.random,
        }  # fmt: skip
        verdict.warnings = self._warnings()
        verdict.tried = self._choose_arguments()
        first = self.quantized(frozenset())
        errors = self._layer_errors(first)
        order = sorted(self.layers, key=lambda layer: errors.get(layer.name, 0.0))
        search = BoundedSearch(order, self.loss, request.seconds)
        floats: dict[str, str] = {}
        if request.max_drop is not None:
            floats = self._within_bound(search, request.max_drop)
        elif request.evaluation and request.kind in ("static", "dynamic", "weights"):
            search.measure_alone()
        model = self.quantized(frozenset(floats)) if floats else first
        model_files.save_model(model, request.output, external=model.ByteSize() >= model_files.LARGE)
        self._measure(verdict, model)
        verdict.warnings += self._warnings_of(verdict, model)
        alone = search.result.alone
        for layer in self.layers:
            why = floats.get(layer.name) or self._reason(layer)
            told = LayerReport(
                layer.name, layer.op_type, layer.weights, not why, why, errors.get(layer.name), alone.get(layer.name)
            )
            spread = self._spreads.get(layer.outputs[-1]) if layer.outputs else None
            if spread is not None:
                told.values, told.errors = _bins(spread.values), _bins(spread.errors)
            told.range = self._range(layer)
            verdict.layers.append(told)
        return verdict

    def _range(self, layer: Layer) -> tuple[float, float] | None:
        """The calibrated ends of a layer's last value, where it has one scale."""
        found = self._calibrated[1].get(layer.outputs[-1]) if self._calibrated is not None and layer.outputs else None
        if found is None or not hasattr(found, "lowest") or np.size(found.range_value[0]) != 1:
            return None
        low, high = (float(np.squeeze(end)) for end in found.range_value)
        return low, high

    def _choose_arguments(self) -> dict[str, float]:
        """Take the alternative that loses least; returns the losses of all, the least first."""
        request, losses = self.request, {}
        if not request.evaluation or request.kind != "static":
            return {}
        calibrated = {}
        for name, arguments in request.alternatives.items():
            self.request = replace(request, arguments=_merged(request.arguments, arguments))
            self._calibrated = None
            found = list(_results(self.quantized(frozenset()), request.evaluation))
            losses[name] = request.loss.drop(self.exact, found, request.evaluation)
            calibrated[name] = self.request, self._calibrated
        order = sorted(losses, key=lambda name: losses[name])
        if order:
            self.request, self._calibrated = calibrated[order[0]]
        return {name: losses[name] for name in order}

    def _within_bound(self, search: BoundedSearch, bound: float) -> dict[str, str]:
        """Layers to leave in floats so that the bound holds on data that the search did not see, too.

        Where it does not, the search goes on with half the bound, and at last with all layers that lose anything.
        """
        wanted = bound
        for wanted in (bound, bound / 2, bound / 4, bound / 8, 0.0):
            found = search.run(wanted).floats
            if self._last is self.request.evaluation or self._loss_at_last(frozenset(found)) <= bound:
                return found
            logger.info("the loss is above %g on data that was not searched on: the search goes on", bound)
        return {layer.name: "the bound does not hold on data that was not searched on" for layer in self.layers}

    def _loss_at_last(self, floats: frozenset[str]) -> float:
        found = list(_results(self.quantized(floats), self._last))
        return self.request.loss.drop_elsewhere(self._last_exact, found, self._last)

    def _reason(self, layer: Layer) -> str:
        if layer.name in self.request.excluded:
            return "left out by name"
        return self._float32.get(layer.name, "")

    def _warnings(self) -> list[str]:
        request, found = self.request, []
        if not request.evaluation:
            found.append("there is no data: what quantising costs in accuracy is not known")
        if request.random:
            found.append("the data are random numbers: ranges and errors say little about real inputs")
        if any(n.op_type in ("QuantizeLinear", "DequantizeLinear") for n in self.floats.graph.node):
            found.append("the model is quantised already: what is quantised stays, the rest is quantised beside it")
        return found

    def _warnings_of(self, verdict: Verdict, model: onnx.ModelProto) -> list[str]:
        """What the result says."""
        found = []
        if sorted(n.op_type for n in model.graph.node) == sorted(n.op_type for n in self.floats.graph.node):
            found.append("nothing was quantised: the model has no node of such an operator, or none may be lost")
        if verdict.bytes_after > verdict.bytes_before:
            found.append(
                f"the result is larger than the model, by {verdict.bytes_after - verdict.bytes_before:,} bytes: scales, zero "
                "points and nodes take more than its weights give"
            )
        if verdict.left_in_bodies:
            told = ", ".join(f"{count} {name}" for name, count in sorted(verdict.left_in_bodies.items()))
            how = ": EnableSubgraph of quantize_dynamic takes them" if self.request.kind == "dynamic" else ""
            found.append(f"nodes with weights in bodies of If, Loop and Scan stay as they were ({told}){how}")
        return found

    def _measure(self, verdict: Verdict, model: onnx.ModelProto) -> None:
        request = self.request
        verdict.bytes_before, verdict.bytes_after = self.floats.ByteSize(), model.ByteSize()
        if not self._is_half():
            verdict.left_in_bodies = floats_in_bodies(model)
        if not self._last:
            return
        sessions = {p: [InferenceSession(m, providers=[p]) for m in (self.floats, request.output)] for p in request.providers}
        found = [_named(sessions[request.providers[0]][1], feed) for feed in self._last]
        agreement: Agreement = agreement_of(self._last_exact, found)
        verdict.outputs = {name: nearness.to_dict() for name, nearness in agreement.outputs.items()}
        verdict.top_1 = agreement.top_1 if agreement.tops else None
        loss = request.loss.drop(self._last_exact, found, self._last)
        verdict.metric = {"name": request.loss.name, "loss": loss, "bound": request.max_drop}
        for provider, pair in sessions.items():
            verdict.milliseconds[provider] = [1e3 * seconds for seconds in _times(pair, self._last[0])]

    def _layer_errors(self, model: onnx.ModelProto) -> dict[str, float]:
        """Layer -> the least signal to noise of its values, in dB."""
        if not self.request.evaluation or self.request.kind == "bfloat16":
            return {}
        names = {out: layer.name for layer in self.layers for out in layer.outputs}
        self._spreads = {layer.outputs[-1]: _Spread() for layer in self.layers if layer.outputs}
        floats, options = self.floats, self.request.arguments.get("extra_options") or {}
        if self._calibrated is not None and (options.get("CrossLayerEqualization") or options.get("SmoothQuant")):
            floats = self._calibrated[0]  # whose channels are scaled as the quantised model's are
        nearness = _compare((floats, model), list(names), self.request.evaluation, self._spreads)
        found: dict[str, float] = {}
        for value, near in nearness.items():
            layer = names[value]
            found[layer] = min(found.get(layer, np.inf), near.signal_to_noise)
        return found


def _merged(arguments: Mapping[str, Any], more: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments with others, and the extra options of both."""
    options = {**(arguments.get("extra_options") or {}), **(more.get("extra_options") or {})}
    return {**arguments, **more, "extra_options": options}


def _named(session: InferenceSession, feed: Feed) -> Results:
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(None, dict(feed)), strict=True))


def _results(model: onnx.ModelProto, feeds: Sequence[Feed]) -> Iterator[Results]:
    """Outputs of runs, node by node: many models are measured once, so none of them is compiled."""
    outputs = [output.name for output in model.graph.output]
    observed = ObservedModel(model, outputs)
    for feed in feeds:
        found: dict[str, np.ndarray] = {}
        observed.run(feed, partial(_put, found))
        yield {name: found[name] for name in outputs if name in found}


def _put(found: dict[str, np.ndarray], name: str, value: Any) -> None:
    found[name] = np.array(value)  # a run may write over what it gave


class _Spread:
    """Histograms of a value and of what its quantised form differs by."""

    def __init__(self) -> None:
        self.values, self.errors = StreamingHistogram(), StreamingHistogram()

    def add(self, exact: np.ndarray, found: np.ndarray) -> None:
        self.values.add(exact.astype(np.float32))
        self.errors.add((found - exact).astype(np.float32))


def _bins(seen: StreamingHistogram) -> Bins | None:
    """Of all that was seen; None where that is nothing."""
    if seen.empty:
        return None
    counts, edges = seen.rebinned(_BINS_SHOWN, float(seen.least), float(seen.most))
    return Bins(counts.tolist(), float(edges[0]), float(edges[-1]))


def _compare(
    models: tuple[onnx.ModelProto, onnx.ModelProto], names: list[str], feeds: Sequence[Feed], spreads: Mapping[str, _Spread]
) -> dict[str, Nearness]:
    """Values of the model of floats and of the quantised one, as nodes read them; a run's values are held in groups."""
    floats, model = models
    computed = {name for node in model.graph.node for name in node.output}
    forms = ("_DequantizeLinear_Output", "", "_half")  # what readers get, where it is quantised; a folded Relu is in that
    inner = {name: next((name + form for form in forms if name + form in computed), name) for name in names}
    shared = [name for name in names if inner[name] in computed]
    found = {name: Nearness() for name in shared}
    for group in _groups(floats, shared, feeds[0]):
        exact, other = ObservedModel(floats, group), ObservedModel(model, [inner[name] for name in group])
        back = {inner[name]: name for name in group}
        for feed in feeds:
            held: dict[str, Any] = {}
            exact.run(feed, partial(_put, held))

            def observe(name: str, value: Any, held: dict[str, Any] = held, back: dict[str, str] = back) -> None:
                own = held.pop(back[name], None)
                if isinstance(own, np.ndarray) and own.dtype.kind == "f" and own.shape == np.shape(value):
                    found[back[name]].add(own, np.asarray(value, np.float64))
                    if back[name] in spreads:
                        spreads[back[name]].add(own, np.asarray(value))

            other.run(feed, observe)
    return {name: near for name, near in found.items() if near.count}


def _groups(model: onnx.ModelProto, names: list[str], feed: Feed) -> list[list[str]]:
    """Names whose values fit the memory that is held at once."""
    sizes: dict[str, int] = {}
    ObservedModel(model, names).run(feed, lambda name, value: sizes.__setitem__(name, int(getattr(value, "nbytes", 0))))
    groups: list[list[str]] = []
    room = 0
    for name in names:
        if sizes.get(name, 0) > room or not groups:
            groups.append([])
            room = _HELD_AT_ONCE
        groups[-1].append(name)
        room -= sizes.get(name, 0)
    return groups


def _times(pair: Sequence[InferenceSession], feed: Feed, seconds: float = 2.0) -> list[float]:
    """The median seconds of a run of each session, in turn."""
    found: list[list[float]] = [[], []]
    until = time.perf_counter() + seconds
    for session in pair:
        session.wait_until_compiled()
        session.run(None, dict(feed))
    while time.perf_counter() < until or len(found[1]) < 3:
        for session, times in zip(pair, found, strict=True):
            start = time.perf_counter()
            session.run(None, dict(feed))
            times.append(time.perf_counter() - start)
        if len(found[0]) >= 200:
            break
    return [statistics.median(times) for times in found]
