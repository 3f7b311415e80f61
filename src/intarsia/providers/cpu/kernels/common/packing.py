"""In what form a kernel reads a constant: a value by which its packed copy is found again."""

from __future__ import annotations

import enum
from collections.abc import Hashable

from intarsia.graph.dtypes import DType
from intarsia.lazy_dataclass import dataclass


class Layout(enum.StrEnum):
    """The order in which a kernel reads numbers. Each is made by one function."""

    # Of matrices and filters of floats.
    PANELS = "panels"  # as many columns of B as a tile has, for all K (`pack_b.pack_matrix`)
    ALIKE = "alike"  # which panels have equal halves (`strassen_kernel.alike_panels`)
    FLOAT16 = "float16"  # panels of float16 (`float16_kernel.pack_half_weights`)
    PAIRS = "pairs"  # panels of pairs of bfloat16, rows end with whole words (`vnni_layout.pack_words`)
    PAIRED_WINDOWS = "paired-windows"  # the same of a convolution's filters (`bfloat16_rows`)
    WORDS = "words"  # panels of VNNI words, rows end with whole lines (`vnni_layout.pack_words`)
    FILTERS = "filters"  # panels of an implicit GEMM (`implicit_gemm.pack_weights`)
    WINDOWS = "windows"  # panels of windows that lie in a line buffer (`line_buffer_kernel.pack_windows`)
    WINOGRAD = "winograd"  # transformed filters (`winograd.spec.pack_weights`)
    WINOGRAD_PAIRS = "winograd-pairs"  # the same as pairs of bfloat16 (`winograd.bfloat16.pack_weights`)
    DEPTHWISE = "depthwise"  # a vector of channels for each position (`depthwise_kernel.pack_weights`)
    GROUPS = "groups"  # of small groups (`small_groups_kernel.pack_weights`)
    PAIRED_GROUPS = "paired-groups"  # the same as pairs of bfloat16
    FEW_FILTERS = "few-filters"  # `few_output_channels_kernel.pack_weights`
    # Of bytes.
    INT8_PANELS = "int8-panels"  # fours of rows (`pack_int8.pack_bytes`, `implicit_gemm.pack_byte_weights`)
    INT8_PAIRS = "int8-pairs"  # pairs of rows, which become 16-bit numbers (`pack_int8.pack_byte_pairs`)
    INT8_ORDERED = "int8-ordered"  # in an order in which sums stay within 16 bits (`saturation_free_order.pack_ordered`)
    INT8_LINES = "int8-lines"  # of depthwise convolutions by fours (`depthwise_int8_kernel.pack_lines`)
    INT8_DEPTHWISE = "int8-depthwise"  # bytes less their zero point as float32, as `DEPTHWISE`
    INT8_GROUPS = "int8-groups"  # of small groups (`small_groups_int8_kernel.pack_groups`)
    INT8_WINOGRAD = "int8-winograd"  # transformed filters of 16 bits (`winograd.int8.pack_weights`)
    COLUMN_SUMS = "column-sums"  # int32, one for each column or filter
    # Of n-bits blocks and experts.
    BLOCKS = "blocks"  # panels of blocks with their scales (`block_quant_kernel.pack_blocks`)
    INT8_BLOCKS = "int8-blocks"  # for products of bytes (`block_quant_int8.pack_byte_blocks`)
    EXPERT_PANELS = "expert-panels"  # `PANELS` of each expert
    EXPERT_BLOCKS = "expert-blocks"  # `BLOCKS` of each expert
    EXPERT_BIAS = "expert-bias"  # as float32
    # Of recurrent layers (`rnn_arguments`): W, biases, peepholes, R, scales by columns.
    RNN_INPUTS = "rnn-inputs"
    RNN_BIAS = "rnn-bias"
    RNN_PEEPHOLES = "rnn-peepholes"
    RNN_INNER_BIAS = "rnn-inner-bias"
    RNN_RECURRENT = "rnn-recurrent"
    RNN_SCALES = "rnn-scales"
    # What no constant is packed for.
    ZEROS = "zeros"
    TAPS = "taps"  # displacements that a micro-kernel reads B's rows at
    BYTE = "byte"  # one uint8
    STRASSEN = "strassen"  # which blocks are added and multiplied (`strassen_kernel.TABLE`)
    TABLE = "table"  # what a byte becomes, for all of them
    NGRAMS = "n-grams"  # slots of a hash table
    PLACES = "places"  # of n-grams in the output
    WEIGHTS = "weights"  # of n-grams


@dataclass(frozen=True)
class Packing:
    """In what form a kernel reads a constant: equal packings of one constant have equal bytes.

    Attributes:
        layout: the order of its numbers.
        width: how many of them lie side by side: the columns of a panel; 0: as many as the layout says.
        dtype: their type, where the constant's own does not say it.
        view: what else the bytes follow from: the shape or the groups under which the constant is read, zero points that were
            subtracted, the value for which it was made.
    """

    layout: Layout
    width: int = 0
    dtype: DType | None = None
    view: Hashable = ()

    def __str__(self) -> str:
        """For names of buffers, in short: others may read alike."""
        return f"{self.layout}{self.width or ''}{self.view if isinstance(self.view, int) else ''}"


ZERO_TAP = Packing(Layout.TAPS)  # one int64 0, the only displacement of a plain product
