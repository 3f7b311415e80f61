"""Looking into a model: intermediate tensors, the first node that differs or overflows, smaller models that still fail."""

from __future__ import annotations

from intarsia.debug.compare import Comparison, compare_providers
from intarsia.debug.compare_outputs import OutputComparison, compare_models, compare_outputs, saved_outputs
from intarsia.debug.nonfinite import first_nonfinite
from intarsia.debug.reduce import Reduced, reduce_model
from intarsia.reports.nonfinite import NonFinite
from intarsia.reports.taps import Tapped, tappable

__all__ = [
    "Comparison", "NonFinite", "OutputComparison", "Reduced", "Tapped", "compare_models", "compare_outputs",
    "compare_providers", "first_nonfinite", "reduce_model", "saved_outputs", "tappable",
]  # fmt: skip
