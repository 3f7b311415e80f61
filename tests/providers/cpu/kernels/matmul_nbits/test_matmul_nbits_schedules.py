"""The table of schedules of MatMulNBits: what it chooses and why not the others, and that all compute the same."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from onnx import helper

pytest.importorskip("llvmlite", reason="the CPU provider compiles with llvmlite")

import schedule_models as t

from intarsia.codegen.llvm.target import Target
from intarsia.errors import InvalidArgument
from intarsia.providers.cpu.kernels.common.schedule import LoweringEnv
from intarsia.providers.cpu.kernels.matmul_nbits.matmul_nbits import SCHEDULES, BlockMatMul
from intarsia.providers.cpu.lowering.lower import Lowered


def weights_of(k: int, n: int, bits: int, size: int, seed: int) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Constants `b` and `s`, and what they stand for, float64 [K, N]."""
    rng, blocks = np.random.default_rng(seed), -(-k // size)
    q = rng.integers(0, 1 << bits, (n, blocks, size))
    scales = rng.uniform(0.01, 0.1, (n, blocks)).astype(np.float32)
    exact = ((q - (1 << (bits - 1))) * scales[..., None].astype(np.float64)).reshape(n, -1)[:, :k].T
    packed = q.astype(np.uint8) if bits == 8 else (q[..., ::2] | q[..., 1::2] << 4).astype(np.uint8)
    return {"b": packed, "s": scales.reshape(-1)}, exact


def model(
    rows: int | str, k: int = 256, n: int = 256, *, level: int = 0, bits: int = 4, size: int = 32, seed: int = 0
) -> tuple[bytes, np.ndarray]:
    """MatMulNBits, and the float64 weights that its constants stand for."""
    constants, exact = weights_of(k, n, bits, size, seed)
    attributes = {"K": k, "N": n, "bits": bits, "block_size": size, "accuracy_level": level}
    node = helper.make_node("MatMulNBits", ["a", "b", "s"], ["y"], domain="com.microsoft", **attributes)
    return t.model_of(node, {"a": (np.float32, (rows, k))}, constants, np.float32), exact


CASES: dict[str, tuple[dict[str, Any], Target, Mapping[str, str], str, int]] = {  # ...; the schedule, how many steps
    "bytes": ({"rows": 40, "level": 4}, t.VNNI, {}, "int8-rows", 2),
    "bytes, AVX2": ({"rows": "m", "level": 4}, t.AVX2, {}, "int8-rows", 2),
    "pairs by the level": ({"rows": 40, "level": 3}, t.ZEN4, {}, "bfloat16+constant-rows", 2),
    "pairs by the session": ({"rows": "m"}, t.ZEN4, t.BFLOAT16, "bfloat16+constant-rows", 3),
    "AVX2, many rows": ({"rows": 40}, t.AVX2, {}, "in-place+constant-rows", 1),
    "AVX2, open rows": ({"rows": "m"}, t.AVX2, {}, "in-place+constant-rows", 2),
    "Zen 4, open rows": ({"rows": "m"}, t.ZEN4, {}, "packed-a+constant-rows", 3),
    "AVX-512, many rows": ({"rows": 64}, t.AVX512, {}, "packed-a+gemm", 2),
    "AVX-512, open rows": ({"rows": "m"}, t.AVX512, {}, "packed-a+gemm", 3),
    "AVX2, few rows": ({"rows": 3}, t.AVX2, {}, "constant-rows", 1),
    "AVX-512, few rows": ({"rows": 3}, t.AVX512, {}, "gemm", 1),
    "few columns": ({"rows": 64, "n": 48}, t.AVX512, {}, "gemm", 1),
    "ARM64": ({"rows": 3, "level": 4}, t.ARM64, {}, "gemm", 1),
}


def lowered(name: str) -> Lowered:
    given, target, config, *_ = CASES[name]
    return t.lowered(model(**given)[0], target, config)


@pytest.mark.parametrize("name", CASES)
def test_the_choice_that_is_told_is_what_is_lowered(name: str) -> None:
    *_, chosen, count = CASES[name]
    made = lowered(name)
    found = t.report(made, "MatMulNBits")
    t.check_report(found, SCHEDULES)
    assert found.chosen == chosen
    assert len(t.labels(made)) == count, t.labels(made)


def test_every_schedule_is_chosen_somewhere() -> None:
    assert {s.name for s in SCHEDULES} == {chosen for *_, chosen, _ in CASES.values()}
    assert len({s.name for s in SCHEDULES}) == len(SCHEDULES)


REASONS = {  # a case; a schedule, and how what is told of it begins, which with "!" is why it does not pay
    "AVX2, few rows": {
        "int8-rows": "its accuracy_level is 0, and 4 lets rows be rounded to bytes",
        "bfloat16+constant-rows": "3 rows, fewer than 16, are multiplied as fast in float32",
        "in-place+constant-rows": "3 rows, fewer than 5, are not worth writing weights out",
        "packed-a+gemm": "packed rows gain nothing on this CPU",
    },
    "AVX-512, open rows": {
        "bfloat16+constant-rows": "products of pairs of bfloat16 are not requested, or the CPU is no faster with them",
        "in-place+constant-rows": "products of packed rows are faster on this CPU",
        "packed-a+constant-rows": "constant-rows cannot take few rows: loads cost as much as multiply-adds on this CPU",
        "constant-rows": "loads cost as much as multiply-adds on this CPU",
    },
    "few columns": {"packed-a+gemm!": "packing rows of 256 costs more than it spares for 48 columns"},
    "ARM64": {"int8-rows": "the CPU has neither VNNI nor AVX2 alone"},
}


@pytest.mark.parametrize("name", REASONS)
def test_reasons(name: str) -> None:
    found = t.report(lowered(name), "MatMulNBits")
    for schedule, reason in REASONS[name].items():
        each = t.said(found, schedule.rstrip("!"))
        assert (each.pays if schedule.endswith("!") else each.applies).reason.startswith(reason)


def test_reasons_of_blocks() -> None:
    def said(schedule: str, target: Target, **given: Any) -> Any:
        return t.said(t.report(t.lowered(model(64, **given)[0], target, t.BFLOAT16), "MatMulNBits"), schedule)

    assert said("bfloat16+constant-rows", t.ZEN4, k=255).applies.reason == "255 terms are no pairs"
    small = said("bfloat16+constant-rows", t.ZEN4, n=48)
    assert small.applies and small.pays.reason == "it has too few columns or terms to be worth rounding rows"
    large = said("packed-a+gemm", t.AVX512, k=2048, size=2048)
    assert large.applies.reason == "blocks of 2048 numbers do not divide the parts of K that stay in a cache"
    assert said("int8-rows", t.VNNI, k=1 << 16, n=8, size=1 << 16, level=4).applies.reason.startswith("its blocks are of 65536")


def test_codes() -> None:
    """MatMulBnb4 has the same table; none of its schedules rounds A."""
    k, n, size = 256, 256, 64
    rng = np.random.default_rng(0)
    constants = {"b": rng.integers(0, 256, k * n // 2).astype(np.uint8), "s": rng.random(k * n // size, np.float32)}
    node = helper.make_node(
        "MatMulBnb4", ["a", "b", "s"], ["y"], domain="com.microsoft", K=k, N=n, block_size=size, quant_type=1
    )
    made = t.lowered(t.model_of(node, {"a": (np.float32, (64, k))}, constants, np.float32), t.AVX512)
    found = t.report(made, "MatMulBnb4")
    t.check_report(found, SCHEDULES)
    assert found.chosen == "packed-a+gemm" and not t.said(found, "int8-rows").applies


def test_the_text() -> None:
    text = str(t.report(lowered("few columns"), "MatMulNBits")).splitlines()
    assert text[0] == "MatMulNBits -> y: float[64, 256], float[256, 48] -> float[64, 48]"
    assert [line.split()[0] for line in text[1:]] == [s.name for s in SCHEDULES]
    assert text[-1].endswith(" chosen") and "yes, but packing rows of 256 costs more" in text[5]
    assert text[1].split(maxsplit=2)[1:] == ["no", "its accuracy_level is 0, and 4 lets rows be rounded to bytes"]


@pytest.mark.parametrize(
    ("features", "level", "bits"), [("", 0, 4), ("", 3, 8), ("", 4, 4), ("avx2", 0, 8), ("avx2", 4, 4), ("avx2", 4, 8)]
)
def test_all_that_apply_compute_the_same(features: str, level: int, bits: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each alone in the table, on this CPU and as if it had AVX2 alone; few rows and many."""
    if features and Target.host().arch != "x86_64":
        pytest.skip("AVX2 is x86-64's")
    if features:
        monkeypatch.setenv("INTARSIA_CPU_FEATURES", features)
    target, seen, rng = Target.host(), set[str](), np.random.default_rng(level)
    for seed, (rows, k, n, size) in enumerate([("m", 256, 200, 32), (70, 320, 96, 16)]):
        source, weights = model(rows, k, n, level=level, bits=bits, size=size, seed=seed)
        made = t.lowered(source, target)
        (template,) = (g.template for g in made.grouping.groups if isinstance(g.template, BlockMatMul))
        for schedule in SCHEDULES:
            if not schedule.applies(template, made.env):
                continue
            seen.add(schedule.name)
            module = "intarsia.providers.cpu.kernels.matmul_nbits.matmul_nbits"
            with monkeypatch.context() as patch:
                session = t.session_by(schedule, module, source, {}, patch)
            for m in (1, 4, 5, 15, 16, 61) if rows == "m" else (70,):
                a = rng.standard_normal((m, k)).astype(np.float32)
                exact, terms = a.astype(np.float64) @ weights, np.abs(a.astype(np.float64)) @ np.abs(weights)
                (found,) = session.run(None, {"a": a})
                off = {"int8-rows": 1e-2, "bfloat16+constant-rows": 8e-3}.get(schedule.name, 1e-6)
                assert (np.abs(found - exact) <= off * terms).all(), (schedule.name, m)
    assert "gemm" in seen
    assert level != 4 or target.vector_bytes != 32 or "int8-rows" in seen
    assert target.vector_bytes != 32 or {"in-place+constant-rows", "constant-rows"} <= seen


def test_a_unit_that_is_not_there() -> None:
    """An error where it is wanted; where it is not, the report tells of it."""
    config = {**t.BFLOAT16, "session.matrix_unit": "amx"}
    with pytest.raises(InvalidArgument, match=r"session\.matrix_unit is 'amx', but this process cannot use AMX"):
        t.lowered(model(40)[0], t.ZEN4, config)
    found = t.report(t.lowered(model(3)[0], t.ZEN4, config), "MatMulNBits")
    assert found.chosen == "constant-rows"


def test_nothing_is_timed() -> None:
    made = lowered("bytes")
    (template,) = (g.template for g in made.grouping.groups if isinstance(g.template, BlockMatMul))
    assert template.candidates(LoweringEnv(t.VNNI, made.env.options, made.env.constants, {})) is None
