"""Hand-scheduled kernels beside the definitions: which nodes they take, and the steps they become."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import numpy as np

from intarsia.codegen.llvm.target import Target
from intarsia.graph.dims import Dim
from intarsia.graph.dtypes import DType
from intarsia.graph.model import Node
from intarsia.lazy_dataclass import dataclass
from intarsia.plan.step import Step
from intarsia.primitives.lang import Tensor
from intarsia.providers.cpu.kernels.common.epilogue import Epilogue
from intarsia.providers.cpu.kernels.common.lowering_options import LoweringOptions
from intarsia.providers.cpu.kernels.common.tensor_spec import TensorSpec, has_unknown_rank

if TYPE_CHECKING:
    from intarsia.ops.framework.infer import Inference
    from intarsia.providers.cpu.kernels.common.packing import Packing
    from intarsia.providers.cpu.kernels.common.schedule import Candidates, LoweringEnv, Schedule


class Workspace(Protocol):
    """Where templates put weights that they packed, find constant operands, and get buffers between their steps.

    Attributes:
        options: what the session's configuration entries say.
        choices: names of schedules that were chosen by timing, by `Template.schedule_key`.
    """

    options: LoweringOptions
    choices: Mapping[str, str]

    def original_type(self, name: str) -> DType | None:
        """The type of fewer bits in which the model gives the float32 constant `name`, if it does."""

    def is_constant(self, name: str) -> bool:
        """Whether `array` has something; reads nothing."""

    def array(self, name: str) -> np.ndarray | None:
        """The constant called `name`, or None if it is computed at run time."""

    def add(self, name: str, packing: Packing, make: Callable[[], np.ndarray]) -> str:
        """The name of the buffer of the constant `name` in this form, which `make` gives where no kernel had it so far."""

    def temporary(self, name: str, dtype: DType, shape: Sequence[Dim]) -> str:
        """A buffer called `name` (not a value of the graph) that steps of this template write and read."""


class Role(StrEnum):
    """What an operand of an epilogue is to its kernel; only products of bytes have others than `VALUE`."""

    VALUE = ""
    DEPTH = "depth"  # K, which is made when the plan is bound: it has no buffer
    COLUMN_SUMS = "column sums"  # of each matrix of B, by a step before
    ROW_SUMS = "row sums"  # of each matrix of A, by a step before


@dataclass(frozen=True)
class FusedOperand:
    """An operand of an epilogue: the buffer ("" if it has none), how it is indexed, its type, and its role."""

    name: str
    kind: str
    dtype: DType
    role: Role = Role.VALUE


def forms_of(operands: Sequence[FusedOperand]) -> tuple[tuple[str, DType], ...]:
    """Operands without the names of their buffers (`plan.step.form_of`)."""
    return tuple([(o.kind, o.dtype) for o in operands])


@dataclass(frozen=True)
class Template:
    """A node that a hand-scheduled kernel computes.

    Attributes:
        reads: buffers of the node's operands ("" where omitted).
        types: their types, None where omitted.
        attributes: what the kernel needs of the node.
        acc_dtype: element type of the result before the epilogue, where it is not the node's own.
        takes_epilogue: whether element-wise nodes behind it may be fused.
        integers: whether these may compute with integers, too.
        alone: the operator that the template computes exactly, of constants but its first operand: it can be timed alone.
    """

    alone: ClassVar[str] = ""
    node: Node
    reads: tuple[str, ...]
    types: tuple[TensorSpec | None, ...]
    output: TensorSpec
    acc_dtype: DType | None = None
    takes_epilogue: bool = True
    integers: bool = False

    def operand(self, index: int) -> TensorSpec:
        """The type of an operand that every node of this template has."""
        found = self.types[index]
        assert found is not None, f"{self.node.qualified_op} has no operand {index}"
        return found

    @property
    def outputs(self) -> tuple[str, ...]:
        """Values that the kernel writes; more than one only where it takes no epilogue."""
        return (self.node.outputs[0],)

    def equal_sizes(self) -> Sequence[tuple[Dim, Dim]]:
        """Sizes that must be equal for the kernel to be right; those that are symbols are checked when they are known."""
        return ()

    def broadcast_sizes(self) -> Sequence[tuple[Dim, Dim]]:
        """Pairs of an operand's size and the output's: the former must be the latter, or 1."""
        return ()

    def schedule_table(self) -> tuple[Schedule[Any], ...]:
        """The schedules that may compute the node, in the order of preference; none where there is nothing to choose."""
        return ()

    def schedule_key(self, env: LoweringEnv) -> str | None:
        """The key of nodes that take equally long, so that one of them is timed for all; None where none is, since
        sizes are not known or the template is no node by itself."""
        return None

    def candidates(self, env: LoweringEnv) -> Candidates | None:
        """The schedules that are worth timing; None where there is nothing to choose."""
        return None

    def rounds(self, target: Target, workspace: Workspace) -> tuple[str, ...]:
        """Buffers of float32 operands that are only read rounded to bfloat16, and may be stored so (`store_as_bfloat16`)."""
        return ()

    @property
    def sums_rounded(self) -> bool:
        """Whether tensors that are added to a result whose factors are rounded may be rounded, too."""
        return False

    def renamed(self, canonical: Callable[[str], str]) -> Template:
        return replace(self, reads=tuple(canonical(n) if n else "" for n in self.reads))

    def result(self, acc: Tensor) -> Tensor:
        """The node's output in terms of what the kernel accumulates, and of further operands as `input(value name)`."""
        return acc

    def steps(
        self, target: Target, workspace: Workspace, epilogue: Epilogue | None, operands: Sequence[FusedOperand], out: str
    ) -> list[Step]:
        """The kernel calls that compute `out` (and the further `outputs`)."""
        raise NotImplementedError


_TEMPLATES: Mapping[tuple[str, str], str] = {
    ("", "MatMul"): "intarsia.providers.cpu.kernels.matmul.matmul:matmul",
    ("", "Gemm"): "intarsia.providers.cpu.kernels.matmul.matmul:gemm",
    ("com.microsoft", "MatMulNBits"): "intarsia.providers.cpu.kernels.matmul_nbits.matmul_nbits:matmul_n_bits",
    ("com.microsoft", "MatMulBnb4"): "intarsia.providers.cpu.kernels.matmul_nbits.matmul_nbits:matmul_bnb4",
    ("", "LSTM"): "intarsia.providers.cpu.kernels.recurrent.rnn:recurrent_layer",
    ("com.microsoft", "DynamicQuantizeLSTM"): "intarsia.providers.cpu.kernels.recurrent.dynamic_quantize_lstm:quantized_layer",
    ("", "GRU"): "intarsia.providers.cpu.kernels.recurrent.rnn:recurrent_layer",
    ("", "RNN"): "intarsia.providers.cpu.kernels.recurrent.rnn:recurrent_layer",
    ("", "Transpose"): "intarsia.providers.cpu.kernels.movement.transpose:transpose",
    ("", "Einsum"): "intarsia.providers.cpu.kernels.movement.transpose:transpose",
    ("", "TopK"): "intarsia.providers.cpu.kernels.selection.topk:top_k",
    ("", "DynamicQuantizeLinear"): "intarsia.providers.cpu.kernels.quantize.dynamic_quantize:dynamic_quantize",
    ("com.microsoft", "CDist"): "intarsia.providers.cpu.kernels.linalg.cdist:cdist",
    ("com.microsoft", "QLinearSigmoid"): "intarsia.providers.cpu.kernels.quantize.byte_lookup:lookup",
    ("com.microsoft", "QLinearLeakyRelu"): "intarsia.providers.cpu.kernels.quantize.byte_lookup:lookup",
    ("intarsia.integers", "Lookup"): "intarsia.providers.cpu.kernels.quantize.byte_lookup:table_lookup",
    ("", "Det"): "intarsia.providers.cpu.kernels.linalg.determinant_and_inverse:det",
    ("com.microsoft", "Inverse"): "intarsia.providers.cpu.kernels.linalg.determinant_and_inverse:inverse",
    ("", "Col2Im"): "intarsia.providers.cpu.kernels.pooling.col2im:col2im",
    ("", "RoiAlign"): "intarsia.providers.cpu.kernels.pooling.roi_pooling:regions",
    ("", "MaxRoiPool"): "intarsia.providers.cpu.kernels.pooling.roi_pooling:regions",
    ("", "Softmax"): "intarsia.providers.cpu.kernels.attention.softmax:softmax",
    ("", "LogSoftmax"): "intarsia.providers.cpu.kernels.attention.softmax:softmax",
    ("intarsia.ml", "TreeSums"): "intarsia.providers.cpu.kernels.ml.trees:tree_sums",
    ("intarsia.ml", "PairProbabilities"): "intarsia.providers.cpu.kernels.ml.pairwise_coupling:pair_probabilities",
    ("intarsia.experts", "ExpertOrder"): "intarsia.providers.cpu.kernels.moe.expert_matmul:expert_order",
    ("intarsia.experts", "ExpertProducts"): "intarsia.providers.cpu.kernels.moe.expert_matmul:expert_products",
    ("", "LinearAttention"): "intarsia.providers.cpu.kernels.attention.linear_attention:linear_attention",
    ("com.microsoft", "LinearAttention"): "intarsia.providers.cpu.kernels.attention.linear_attention:linear_attention",
    ("", "RandomNormal"): "intarsia.providers.cpu.kernels.rng.random_draws:random",
    ("", "RandomNormalLike"): "intarsia.providers.cpu.kernels.rng.random_draws:random",
    ("", "RandomUniform"): "intarsia.providers.cpu.kernels.rng.random_draws:random",
    ("", "RandomUniformLike"): "intarsia.providers.cpu.kernels.rng.random_draws:random",
    ("", "Bernoulli"): "intarsia.providers.cpu.kernels.rng.random_draws:random",
    ("", "Dropout"): "intarsia.providers.cpu.kernels.rng.random_draws:dropout",
    ("", "Multinomial"): "intarsia.providers.cpu.kernels.rng.random_draws:multinomial",
    ("", "TfIdfVectorizer"): "intarsia.providers.cpu.kernels.text.ngrams:tf_idf",
    ("", "DFT"): "intarsia.providers.cpu.kernels.fourier.fft:dft",
    ("", "STFT"): "intarsia.providers.cpu.kernels.fourier.fft:stft",
    ("com.microsoft", "Rfft"): "intarsia.providers.cpu.kernels.fourier.fft:rfft",
    ("com.microsoft", "Irfft"): "intarsia.providers.cpu.kernels.fourier.fft:irfft",
    ("", "Attention"): "intarsia.providers.cpu.kernels.attention.match_attention:attention",
    ("com.microsoft", "MultiHeadAttention"): "intarsia.providers.cpu.kernels.attention.match_attention:multi_head_attention",
    ("intarsia.grouped", "GroupedCache"): "intarsia.providers.cpu.kernels.attention.kv_cache:cache_rows",
    ("intarsia.grouped", "GroupedAttention"): "intarsia.providers.cpu.kernels.attention.match_attention:grouped_attention",
    ("intarsia.channels_last", "Conv"): "intarsia.providers.cpu.kernels.conv.match_conv:convolution",
    ("intarsia.channels_last", "ConvInteger"): "intarsia.providers.cpu.kernels.conv.int8.conv_int8:convolution",
    ("intarsia.channels_last", "MaxPool"): "intarsia.providers.cpu.kernels.pooling.pooling:pool",
    ("intarsia.channels_last", "AveragePool"): "intarsia.providers.cpu.kernels.pooling.pooling:pool",
    ("intarsia.channels_last", "GlobalAveragePool"): "intarsia.providers.cpu.kernels.pooling.pooling:global_pool",
    ("intarsia.channels_last", "GlobalMaxPool"): "intarsia.providers.cpu.kernels.pooling.pooling:global_pool",
}


def template_for(node: Node, inference: Inference) -> Template | None:
    """The template that takes `node`, if one does."""
    where = _TEMPLATES.get((node.domain, node.op_type))
    if where is None or has_unknown_rank(node, inference):
        return None
    module, name = where.split(":")
    match: Callable[[Node, Inference], Template | None] = getattr(importlib.import_module(module), name)
    return match(node, inference)
