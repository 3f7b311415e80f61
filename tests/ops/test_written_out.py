"""What host operators are in primitives, for kernels that call nobody, computes what the host computes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from intarsia.graph.dtypes import DType
from intarsia.ops import registry
from intarsia.ops.framework.registry import OpRecord
from intarsia.primitives import lang as k
from intarsia.primitives.interpreter import Operands

EXPERTS, WIDTH, INNER = 4, 6, 5
rng = np.random.default_rng(1)


def numbers(*shape: int) -> np.ndarray:
    return rng.standard_normal(shape).astype(np.float32)


def experts(tokens: int) -> list[Any]:
    weights = [numbers(EXPERTS, INNER, WIDTH), numbers(EXPERTS, INNER), numbers(EXPERTS, WIDTH, INNER), numbers(EXPERTS, WIDTH)]
    return [numbers(tokens, WIDTH), numbers(tokens, EXPERTS), *weights]


def bytes_of_experts(tokens: int) -> list[Any]:
    def layer(out: int, depth: int) -> list[Any]:
        return [rng.integers(0, 256, (EXPERTS, out, depth)).astype(np.uint8), numbers(EXPERTS, out), numbers(EXPERTS, out)]

    return [numbers(tokens, WIDTH), numbers(tokens, EXPERTS), *layer(INNER, WIDTH), *layer(WIDTH, INNER)]


CASES: dict[str, list[tuple[list[Any], dict[str, Any]]]] = {
    "Det": [([numbers(3, n, n)], {}) for n in (1, 2, 7)] + [([np.zeros((2, 3, 3))], {})],
    "Inverse": [([numbers(2, n, n) + 3 * np.eye(n, dtype=np.float32)], {}) for n in (1, 4, 9)] + [([np.eye(3)[::-1]], {})],
    "MoE": [(experts(n), {"k": 2, "activation_type": a}) for n in (1, 5) for a in ("relu", "gelu", "relu2")]
    + [(experts(5), {"k": 2, "use_sparse_mixer": 1}), (experts(0), {"k": 1})],
    "QMoE": [(bytes_of_experts(n), {"k": 2, "expert_weight_bits": 8, "normalize_routing_weights": 1}) for n in (1, 5)],
}
RECORDS = {record.name: record for record in registry() if record.primitives is not None}


def test_every_one_has_cases() -> None:
    assert set(RECORDS) == set(CASES)


@pytest.mark.parametrize(("name", "case"), [(n, i) for n, cases in CASES.items() for i in range(len(cases))])
def test_both_agree(name: str, case: int) -> None:
    record: OpRecord = RECORDS[name]
    inputs, attributes = CASES[name][case]
    given = Operands()
    assert record.primitives is not None
    (found,) = given.values(record.primitives(*map(given.leaf, inputs), **attributes))
    wanted = record.function(*inputs, **attributes)
    assert found.shape == np.shape(wanted) and found.dtype == wanted.dtype
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["Det", "Inverse"])
def test_sizes_of_eliminations(name: str) -> None:
    primitives = RECORDS[name].primitives
    assert primitives is not None
    with pytest.raises(k.DefinitionError, match="at most 64"):
        primitives(k.input(0, DType.FLOAT, (65, 65)))
