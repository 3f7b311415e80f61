"""At which operators the rules of each set begin. Written by scripts/operator_index.py; not to be edited."""

from __future__ import annotations

_OPERATORS = {
    "rules.standardize_contrib.RULES": (
        "com.microsoft::FusedConv com.microsoft::NhwcConv com.microsoft::NhwcFusedConv com.microsoft::QLinearConcat "
        "com.microsoft::QLinearConv"
    ),
    "rules.fold_constants.RULES": (
        "*"
    ),
    "graph.inline.RULES": (
        "If"
    ),
    "rules.loop_to_gather.RULES": (
        "ConcatFromSequence"
    ),
    "rules.hoist_loop_invariants.RULES": (
        "Loop"
    ),
    "rules.loop_to_scan_outputs.RULES": (
        "ConcatFromSequence Loop"
    ),
    "rules.eliminate_sequences.RULES": (
        "ConcatFromSequence Loop SequenceAt SequenceLength"
    ),
    "rules.simplify_shapes.RULES": (
        "Add And Cast CastLike Concat Div Dropout Expand Flatten Identity Max Mean Min Mul Or Pad Pow Reshape Slice Split "
        "Squeeze Sub Sum Transpose Unsqueeze"
    ),
    "rules.simplify_shapes.EXTENDED_RULES": (
        "Add And Cast Div Expand Flatten Mul Neg Not Or Pow Reshape Squeeze Sub Unsqueeze Where"
    ),
    "rules.einsum_to_matmul.RULES": (
        "Einsum"
    ),
    "rules.simplify_indexing.RULES": (
        "GatherND NonZero ScatterND"
    ),
    "rules.simplify_indexing.EXTENDED_RULES": (
        "And Or"
    ),
    "rules.hoist_through_concat.RULES": (
        "Add BatchNormalization Div Mul Sub"
    ),
    "rules.fold_affine.RULES": (
        "Add BatchNormalization Div Gemm Mul Sub"
    ),
    "rules.fold_padding.RULES": (
        "AveragePool Conv ConvInteger ConvTranspose LpPool MaxPool QLinearConv"
    ),
    "rules.fuse_activations.RULES": (
        "Clip Div Log Max Min Mul Relu"
    ),
    "rules.fuse_norms.RULES": (
        "Add AveragePool Cast Div MaxPool Mul ReduceMean Reshape"
    ),
    "rules.hoist_through_concat.EXTENDED_RULES": (
        "Celu Clip Elu Gelu HardSigmoid HardSwish LeakyRelu Mish PRelu Relu Selu Sigmoid Softplus Softsign Swish Tanh "
        "ThresholdedRelu"
    ),
    "rules.fold_affine.EXTENDED_RULES": (
        "Reshape"
    ),
    "rules.merge_parallel_convs.RULES": (
        "Add"
    ),
    "rules.separable_max_pool.RULES": (
        "MaxPool"
    ),
    "rules.fuse_rotary.RULES": (
        "Add"
    ),
    "rules.fuse_attention.RULES": (
        "Attention Gather MatMul Squeeze"
    ),
    "rules.fuse_attention.HEAD_RULES": (
        "Reshape"
    ),
    "rules.simplify_shapes.LATE_RULES": (
        "Transpose"
    ),
    "rules.fold_constants.OPTIONAL_RULES": (
        "DequantizeLinear"
    ),
}
OPERATORS = {name: frozenset(operators.split()) for name, operators in _OPERATORS.items()}
