"""Precision by `session.arithmetic`: the type in which weights are stored, and in which products are computed.

Only products by constants change: MatMul, Gemm and convolutions, and attention of many queries where vectors multiply pairs of
bfloat16. Everything else stays in float32. Where the model itself has these factors in bfloat16, that is a request of its own.
"""

from __future__ import annotations

from dataclasses import replace

from intarsia.codegen.llvm.float16_libcalls import needs_conversions
from intarsia.codegen.llvm.target import Target
from intarsia.errors import InvalidArgument
from intarsia.graph.dtypes import DType
from intarsia.graph.model import Node
from intarsia.machine.amx_permission import refusal
from intarsia.providers.cpu.kernels.common.lowering_options import MATRIX_UNIT, LoweringOptions
from intarsia.providers.cpu.kernels.common.units import EMULATED, TILE_UNITS, TILES, VECTORS

UNIT_NAMES = {TILES: "AMX", EMULATED: "emulated AMX", VECTORS: "AVX512-BF16"}
_PRODUCTS = frozenset("Conv MatMul Gemm FusedMatMul FusedConv FusedGemm Attention MultiHeadAttention".split())
_STORED = {"float16": DType.FLOAT16, "float16_weights": DType.FLOAT16, "bfloat16": DType.BFLOAT16}


def options_at(options: LoweringOptions, node: Node) -> LoweringOptions:
    """The options at a node: unless the options say it, products of pairs where its tensors are of bfloat16.

    They are the model's own numbers, rounded where it has them rounded, and sums stay in float32.
    """
    own = options.arithmetic is None and node.op_type in _PRODUCTS and node.widened_from is DType.BFLOAT16
    return replace(options, arithmetic="bfloat16") if own else options


def stored_type(options: LoweringOptions, target: Target, own: DType | None = None) -> DType | None:
    """The type of fewer bits in which float32 weights are stored, or None.

    Args:
        own: the type that the model gives them, where they were widened: storing it loses nothing, so that needs no option.
    """
    found = own if own is DType.INT8 else _STORED.get(options.arithmetic or "", own)
    return None if found is DType.FLOAT16 and needs_conversions(target) else found


def in_halves(options: LoweringOptions, target: Target) -> bool:
    """Whether products are computed in float16: it is requested, and the CPU has instructions for it (AVX512-FP16)."""
    wide = target.arch == "x86_64" and target.has("avx512fp16") and target.vector_bytes == 64
    return options.arithmetic == "float16" and wide


def pair_unit(options: LoweringOptions, target: Target) -> str:
    """The unit that multiplies pairs of bfloat16 (`kernels.matmul.vnni_kernel`) where bfloat16 is requested; "" where float32
    is as fast.

    VDPBF16PS does as many multiplications of pairs in a cycle as there are float32 multiply-adds on AMD's Zen 4 and later, half
    of them on Intel's CPUs.

    Raises:
        InvalidArgument: the unit that the options name is not there.
    """
    if options.arithmetic != "bfloat16":
        return ""
    if named := _named_unit(options, target):
        return "" if named == "none" else named
    return TILES if target.has_tiles else VECTORS if target.cpu.startswith("znver") and target.has_pairs else ""


def byte_unit(options: LoweringOptions, target: Target) -> str:
    """The matrix unit that multiplies bytes, where there is one: AMX's tiles, with the same results; else "".

    Raises:
        InvalidArgument: the unit that the options name is not there.
    """
    named = _named_unit(options, target)
    return named if named in TILE_UNITS else TILES if not named and target.has_tiles else ""


def may_try_pairs(options: LoweringOptions, target: Target) -> bool:
    """Whether VDPBF16PS is there and allowed, though not known to be fast: measuring decides."""
    requested = options.arithmetic == "bfloat16" and not _named_unit(options, target)
    return requested and target.has_pairs and not pair_unit(options, target)


def timed_for(dtype: DType, options: LoweringOptions, target: Target) -> tuple[str, ...]:
    """The part of a timed schedule's key that follows from a product's type and options.

    One key stands for a product before and after its first operand, of float32, is stored as bfloat16 (`store_as_bfloat16`):
    that is done for the schedule chosen. The unit is named, since schedules of pairs have one name for all units. One that the
    options name, but that is not there, is no error here: the product may have no use for it.

    Args:
        dtype: of the first operand.
    """
    kind, unit = DType.FLOAT if dtype is DType.BFLOAT16 else dtype, options.matrix_unit
    if options.arithmetic != "bfloat16":
        unit = "none"
    elif unit == "auto":
        unit = pair_unit(options, target) or (VECTORS if may_try_pairs(options, target) else "none")
    return kind.name, options.arithmetic or "float32", unit


def _named_unit(options: LoweringOptions, target: Target) -> str:
    """The unit that the options name; "" where it leaves the choice."""
    named, why = options.matrix_unit, ""
    if named == TILES and not target.has_tiles:
        why = f"this process cannot use AMX: {refusal() or 'the CPU (or INTARSIA_CPU_FEATURES) has none'}"
    elif named == VECTORS and not target.has_pairs:
        why = "the CPU (or INTARSIA_CPU_FEATURES) has no avx512bf16"
    if why:
        raise InvalidArgument(f"{MATRIX_UNIT} is {named!r}, but {why}; give 'auto', which takes what is there")
    return "" if named == "auto" else named


def described_unit(unit: str, source: DType) -> str:
    """The reduced precision of a unit's step, for people."""
    return f"bfloat16 by {UNIT_NAMES[unit]}" if source is DType.FLOAT else ""


def described(stored: DType | None) -> str:
    """The reduced precision of a step, for people."""
    return "" if stored is None else f"{stored.name.lower()} weights"
