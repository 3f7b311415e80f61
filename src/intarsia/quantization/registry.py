"""The operators that each form of quantisation has, under onnxruntime's names: operator -> the rule for its nodes."""

from __future__ import annotations

from intarsia.quantization.description.marking_rules import MARKING_RULES
from intarsia.quantization.writers.dynamic_rules import DYNAMIC_RULES
from intarsia.quantization.writers.qlinear_rules import COMMON_RULES, QLINEAR_RULES

CommonOpsRegistry = COMMON_RULES
IntegerOpsRegistry = DYNAMIC_RULES
QLinearOpsRegistry = QLINEAR_RULES
QDQRegistry = MARKING_RULES
