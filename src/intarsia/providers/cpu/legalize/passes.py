"""The CPU provider's passes over a graph, in their order."""

from __future__ import annotations

from intarsia.errors import InvalidArgument, UnknownOption, nearest
from intarsia.providers.cpu.legalize import (
    decompose_gqa,
    decompose_moe,
    dequantize_weights,
    gather_matmul_to_moe,
    number_ngram_words,
    qdq_to_integer,
    sink_dequantize,
    unpack_tables,
    widen_float16,
)
from intarsia.providers.cpu.legalize.channels_last.rewrite import assign_channels_last
from intarsia.providers.cpu.legalize.decompose_classical import decompose_classical
from intarsia.providers.cpu.legalize.fold_byte_chains import fold_byte_chains
from intarsia.providers.cpu.legalize.lowering_pass import LoweringPass
from intarsia.providers.cpu.legalize.rename_foreign_symbols import rename_foreign_symbols

PASSES: tuple[LoweringPass, ...] = (
    LoweringPass(
        "rename_foreign_symbols", rename_foreign_symbols, reads_declared_types=True,
        required="sizes of its inputs that another part computes would have no value",
    ),
    LoweringPass("widen_float16", widen_float16.widen_float16, widen_float16.OPERATORS),
    LoweringPass("unpack_tables", unpack_tables.unpack_tables, unpack_tables.OPERATORS),
    LoweringPass("number_ngram_words", number_ngram_words.number_ngram_words, number_ngram_words.OPERATORS),
    LoweringPass("requantize_weights", dequantize_weights.requantize_weights, dequantize_weights.QUANTIZERS),
    LoweringPass("convert_qdq_to_integer", qdq_to_integer.convert_qdq_to_integer, qdq_to_integer.OPERATORS),
    LoweringPass("sink_dequantize", sink_dequantize.sink_dequantize, sink_dequantize.OPERATORS),
    LoweringPass("fold_byte_chains", fold_byte_chains),
    LoweringPass("dequantize_weights", dequantize_weights.dequantize_weights, dequantize_weights.DEQUANTIZERS),
    LoweringPass("decompose_classical", decompose_classical),
    LoweringPass("decompose_moe", decompose_moe.decompose_moe, decompose_moe.OPERATORS),
    LoweringPass(
        "convert_gather_matmul_to_moe", gather_matmul_to_moe.convert_gather_matmul_to_moe, gather_matmul_to_moe.OPERATORS
    ),
    LoweringPass("decompose_gqa", decompose_gqa.decompose_gqa, decompose_gqa.OPERATORS),
    LoweringPass("assign_channels_last", assign_channels_last),
)  # fmt: skip


def pass_names() -> tuple[str, ...]:
    """All passes in the order in which they run."""
    return tuple(each.name for each in PASSES)


def check_disabled(disabled: frozenset[str]) -> None:
    """That passes of these names exist, and can be left out.

    Raises:
        UnknownOption: there is no such pass.
        InvalidArgument: results would be wrong without it.
    """
    by_name = {each.name: each for each in PASSES}
    for name in sorted(disabled):
        if name not in by_name:
            raise UnknownOption(f"no pass of the CPU provider is called {name!r}: {nearest(name, by_name)}")
        if by_name[name].required:
            raise InvalidArgument(
                f"the CPU provider's pass {name!r} cannot be disabled: {by_name[name].required}; leave its name out of "
                'disabled_optimizers and "optimization.disable_specified_optimizers"'
            )
