"""`intarsia quantize`: a smaller model, and what it costs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.markup import escape

from intarsia.cli.inputs.feeds import FeedOptions
from intarsia.cli.inputs.signature import Signature
from intarsia.cli.quantize_data import Samples, load_name, read_samples
from intarsia.cli.show import note, print_json, screen, table, working
from intarsia.errors import InvalidArgument
from intarsia.graph.formats.atomic_write import replace_text
from intarsia.quantization import CalibrationMethod, QuantFormat, QuantType
from intarsia.quantization.verdict.measures import Loss
from intarsia.quantization.verdict.quantise import KINDS, Request, WeightSettings, quantize_with_verdict
from intarsia.quantization.verdict.report import Verdict
from intarsia.quantization.verdict.report_page import page

TYPES = {kind.name.removeprefix("Q").lower(): kind for kind in QuantType}
METHODS: dict[str, tuple[CalibrationMethod, dict[str, Any]]] = {
    "minmax": (CalibrationMethod.MinMax, {}),
    "moving-average": (CalibrationMethod.MinMax, {"CalibMovingAverage": True}),
    "percentile": (CalibrationMethod.Percentile, {}),
    "entropy": (CalibrationMethod.Entropy, {}),
    "mse": (CalibrationMethod.MinMax, {"CalibSquaredError": True}),
    "distribution": (CalibrationMethod.Distribution, {}),
}
"""How ranges are found -> onnxruntime's method and extra options."""
AUTO = "auto"
TRIED = ("minmax", "percentile", "mse")  # by "auto"
WORST_SHOWN = 15


@dataclass(frozen=True)
class Arithmetic:
    """How numbers are made: types, ranges, form, and what is done to weights before they are rounded.

    Attributes:
        smooth: the alpha of SmoothQuant; None: without.
        equalize: channels are scaled between layers.
        correct_biases: biases make up for rounded weights.
    """

    activations: str = "uint8"
    weights: str = "int8"
    per_channel: bool = True
    method: str = "minmax"
    operators: bool = False
    smooth: float | None = None
    equalize: bool = False
    correct_biases: bool = False

    def calibration(self) -> tuple[CalibrationMethod, dict[str, Any]]:
        """The method, and its extra options."""
        if self.method == AUTO:
            return METHODS[TRIED[0]]
        found: tuple[CalibrationMethod, dict[str, Any]] = _chosen({**METHODS, AUTO: None}, self.method, "--method")
        return found

    def alternatives(self) -> dict[str, dict[str, Any]]:
        """What "auto" tries."""
        methods = TRIED if self.method == AUTO else ()
        return {name: {"calibrate_method": METHODS[name][0], "extra_options": METHODS[name][1]} for name in methods}

    def options(self) -> dict[str, Any]:
        """As extra options of `quantize_static`."""
        found = dict(self.calibration()[1])
        if self.smooth is not None:
            found |= {"SmoothQuant": True, "SmoothQuantAlpha": self.smooth}
        if self.equalize:
            found["CrossLayerEqualization"] = True
        if self.correct_biases:
            found["BiasCorrection"] = True
        return found


@dataclass(frozen=True)
class Blocks:
    """How weights are stored in blocks."""

    bits: int = 4
    block: int = 32
    symmetric: bool = False
    algorithm: str = "nearest"


@dataclass(frozen=True)
class Data:
    """What ranges and losses are found on.

    Attributes:
        sources: for calibration, and where `held_out` is empty the last third for measuring.
        held_out: for measuring alone.
        limit: samples at most.
    """

    sources: Sequence[str] = ()
    held_out: Sequence[str] = ()
    limit: int = 128
    options: FeedOptions = field(default_factory=FeedOptions)


@dataclass(frozen=True)
class Bound:
    """What may be lost: by which metric, how much, and how long layers are measured one by one."""

    metric: str = "error"
    max_drop: float | None = None
    seconds: float = 60.0


@dataclass(frozen=True)
class Shown:
    """What is told: JSON on the screen, or in a file; which providers are timed."""

    as_json: bool = False
    report: Path | None = None
    providers: Sequence[str] = ("CPUExecutionProvider",)


def quantize_model(
    model: Path, output: Path, kind: str, data: Data, how: tuple[Arithmetic, Blocks, Sequence[str]], bound: Bound, shown: Shown
) -> bool:
    """Quantise a model, print what it costs, and tell whether the bound holds.

    Args:
        kind: of `KINDS`; "": "static" with data, else "dynamic".
        how: numbers, blocks, and names of nodes to leave.

    Raises:
        InvalidArgument: what does not go together.
    """
    if output.exists() and output.samefile(model):
        raise InvalidArgument(f"--output: {str(output)!r} is the model itself, which would be lost; name another file")
    kind = kind or ("static" if data.sources else "dynamic")
    if kind not in KINDS:
        raise InvalidArgument(f"--kind: expected one of {', '.join(KINDS)}, got {kind!r}")
    with working(f"quantising {model.name}"):
        verdict = quantize_with_verdict(_request(model, output, kind, data, how, bound, shown))
    if shown.report is not None:
        html = shown.report.suffix.lower() in (".html", ".htm")
        replace_text(shown.report, page(verdict) if html else verdict.to_json())
    if shown.as_json:
        print_json(verdict.to_json())
    else:
        _show(verdict)
    return verdict.within_bound


def _request(
    model: Path, output: Path, kind: str, data: Data, how: tuple[Arithmetic, Blocks, Sequence[str]], bound: Bound, shown: Shown
) -> Request:
    arithmetic, blocks, excluded = how
    calibration, evaluation, verification = _split(model, data, bound.max_drop is not None)
    sources = [*data.sources, *data.held_out]
    calibrates = kind in ("static", "float16") or (kind == "weights" and blocks.algorithm == "gptq")
    return Request(
        model, output, kind, calibration if calibrates else (), evaluation, verification, ", ".join(sources),
        any(source.startswith("@random") for source in sources), _arguments(kind, arithmetic, shown.providers),
        arithmetic.alternatives() if kind == "static" else {},
        WeightSettings(blocks.bits, blocks.block, blocks.symmetric, blocks.algorithm), excluded, _loss(bound.metric),
        bound.max_drop, bound.seconds, shown.providers,
    )  # fmt: skip


def _arguments(kind: str, given: Arithmetic, providers: Sequence[str]) -> Mapping[str, Any]:
    static_only = {
        "--smooth-quant": given.smooth is not None, "--equalize": given.equalize, "--bias-correction": given.correct_biases,
    }  # fmt: skip
    wrong = [name for name, wanted in static_only.items() if wanted and kind != "static"]
    if wrong:
        raise InvalidArgument(f"{', '.join(wrong)}: expected --kind static, got {kind}")
    if kind not in ("static", "dynamic"):
        return {}
    found: dict[str, Any] = {"per_channel": given.per_channel, "weight_type": _chosen(TYPES, given.weights, "--weights")}
    if kind == "static":
        found["activation_type"] = _chosen(TYPES, given.activations, "--activations")
        found["calibrate_method"] = given.calibration()[0]
        found["extra_options"] = given.options()
        found["calibration_providers"] = [providers[0]]
        found["quant_format"] = QuantFormat.QOperator if given.operators else QuantFormat.QDQ
    return found


def _chosen(names: Mapping[str, Any], text: str, option: str) -> Any:
    if text.lower() not in names:
        raise InvalidArgument(f"{option}: expected one of {', '.join(names)}, got {text!r}")
    return names[text.lower()]


def _loss(metric: str) -> Loss:
    file, _, name = metric.partition(".py:")
    return Loss(metric, load_name(Path(f"{file}.py"), name)) if name else Loss(metric)


def _split(model: Path, data: Data, searches: bool) -> tuple[Samples, Samples, Samples]:
    """Samples for calibration, for measuring, and for a bound that must hold on what was not searched on."""
    if not data.sources and not data.held_out:
        return Samples([]), Samples([]), Samples([])
    signature = Signature.of_file(model)
    first = read_samples(data.sources, signature, data.options, data.limit)
    second = read_samples(data.held_out, signature, data.options, data.limit)
    if not len(second) and len(first) > 1:
        count = max(1, len(first) - max(1, len(first) // 3))
        first, second = first[:count], first[count:]
    elif not len(second):
        note("there is one sample: what is lost is measured on the one that ranges are found on")
        second = first
    if searches and len(second) > 1:
        half = (len(second) + 1) // 2
        return first, second[:half], second[half:]
    return first, second, Samples([])


def _show(verdict: Verdict) -> None:
    for line in verdict.lines():
        style = "yellow" if line.startswith("warning") else ""
        screen.print(escape(line), style=style or None, highlight=False, soft_wrap=True)
    rows = sorted(verdict.layers, key=lambda layer: 1e9 if layer.signal_to_noise_db is None else layer.signal_to_noise_db)
    told = [layer for layer in rows if layer.signal_to_noise_db is not None or layer.reason][:WORST_SHOWN]
    if told:
        screen.print()
        cells = [
            (
                layer.name, layer.op_type, f"{layer.weights:,}",
                "" if layer.signal_to_noise_db is None else f"{layer.signal_to_noise_db:.1f}",
                "" if layer.loss_without is None else f"{layer.loss_without:.4g}",
                "quantised" if layer.quantized else layer.reason,
            )
            for layer in told
        ]  # fmt: skip
        title = f"layers that differ most ({len(told)} of {len(verdict.layers)})"
        columns = ["layer", "operator", "weights", "dB", "loss without", ""]
        table(title, columns, cells, ["weights", "dB", "loss without"])
