"""What was quantised and what it cost: as an object, as JSON, as text."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True)
class Bins:
    """How many values lie in equal parts of a range.

    Attributes:
        counts: by part.
        low, high: the ends of the range.
    """

    counts: list[int]
    low: float
    high: float


@dataclass
class LayerReport:
    """One layer.

    Attributes:
        weights: how many.
        quantized: whether it is; else `reason` says why not.
        signal_to_noise_db: the least of its values, against the model of floats; None where none could be compared.
        loss_without: the loss of the whole model if this layer stays in floats; None where there was no time for it.
        values: of its last node, in floats, on the data that were measured on.
        errors: what the quantised values differ by from them.
        range: the ends of what is quantised of them, where it was calibrated.
    """

    name: str
    op_type: str
    weights: int
    quantized: bool
    reason: str = ""
    signal_to_noise_db: float | None = None
    loss_without: float | None = None
    values: Bins | None = None
    errors: Bins | None = None
    range: tuple[float, float] | None = None


@dataclass
class Verdict:
    """What quantising a model cost.

    Attributes:
        kind: "static", "dynamic", "weights", "float16" or "bfloat16".
        data: how many runs were for calibration and how many for measuring, and where they are from.
        warnings: what to know before trusting the rest.
        bytes_before, bytes_after: of the models' files.
        outputs: by output: signal to noise in dB, relative error, cosine, largest difference.
        top_1: the share of largest elements at the same place; None without data.
        metric: name, loss and bound.
        milliseconds: median of a run on this machine, by provider: before and after.
        tried: by name of settings that were tried: the loss. The first are those of the result.
        left_in_bodies: operator -> how many nodes by stored floats are left in bodies of control flow.
        layers: in the order of the model.
    """

    model: str
    output: str
    kind: str
    data: dict[str, Any] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    bytes_before: int = 0
    bytes_after: int = 0
    outputs: dict[str, dict[str, float]] = field(default_factory=dict)
    top_1: float | None = None
    metric: dict[str, Any] = field(default_factory=dict)
    milliseconds: dict[str, list[float]] = field(default_factory=dict)
    tried: dict[str, float] = field(default_factory=dict)
    left_in_bodies: dict[str, int] = field(default_factory=dict)
    layers: list[LayerReport] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)

    def to_json(self, indent: int | None = 1) -> str:
        """As a JSON object."""
        return json.dumps(self.to_dict(), indent=indent)

    @property
    def within_bound(self) -> bool:
        """Whether the loss is within the bound that was requested; True without one."""
        bound = self.metric.get("bound")
        return bound is None or self.metric["loss"] <= bound

    def lines(self) -> list[str]:
        """The sentences of the report, without the layers."""
        found = [f"warning: {text}" for text in self.warnings]
        share = self.bytes_after / self.bytes_before if self.bytes_before else 1.0
        found.append(f"size: {_megabytes(self.bytes_before)} -> {_megabytes(self.bytes_after)} ({share:.2f} of it)")
        for provider, (before, after) in self.milliseconds.items():
            found.append(f"a run on {provider}: {before:.3g} ms -> {after:.3g} ms ({before / after:.2f} times as fast)")
        for name, entry in self.outputs.items():
            found.append(
                f"output {name}: {entry['signal_to_noise_db']:.1f} dB, relative error {entry['relative_error']:.3g}, cosine "
                f"{entry['cosine']:.6f}"
            )
        if self.tried:
            best, *others = self.tried
            told = ", ".join(f"{name} {self.tried[name]:.4g}" for name in others)
            found.append(f"settings: {best} loses least, {self.tried[best]:.4g}" + (f" ({told})" if told else ""))
        if self.top_1 is not None and self.outputs:
            found.append(f"largest element at the same place: {100 * self.top_1:.2f} %")
        if self.metric:
            bound = self.metric.get("bound")
            against = "" if bound is None else f" (at most {bound:g}: {'kept' if self.within_bound else 'NOT kept'})"
            found.append(f"loss by {self.metric['name']!r}: {self.metric['loss']:.4g}{against}")
        floats = [layer for layer in self.layers if not layer.quantized]
        if self.layers:
            found.append(f"layers: {len(self.layers) - len(floats)} quantised, {len(floats)} as they were")
        return found

    def __str__(self) -> str:
        return "\n".join(self.lines())


def _megabytes(count: int) -> str:
    return f"{count / 1e6:.3g} MB"
