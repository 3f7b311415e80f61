"""Operators that Core ML has not in terms of those that it has; `vendor.legalization_rules` has those that vendors share."""

from __future__ import annotations

from intarsia.passes.level import GraphOptimizationLevel
from intarsia.passes.rule import RuleSet
from intarsia.providers.vendor.legalization_rules import GLOBAL_POOLS_TO_REDUCTIONS
from intarsia.providers.vendor.qoperator_rules import QGEMM_TO_INTEGERS, QOPERATOR_RULES

RULES = RuleSet(GraphOptimizationLevel.ORT_ENABLE_BASIC, (*GLOBAL_POOLS_TO_REDUCTIONS, QGEMM_TO_INTEGERS, *QOPERATOR_RULES))
