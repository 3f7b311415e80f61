"""Which module of this package defines which operators. Written by scripts/operator_index.py; not to be edited."""

from __future__ import annotations

_OPERATORS = {
    "arithmetic.einsum": (
        "Einsum"
    ),
    "arithmetic.elementwise": (
        "Abs Acos Acosh Add Asin Asinh Atan Atanh BitShift BitwiseAnd BitwiseNot BitwiseOr BitwiseXor Ceil Clip Cos Cosh "
        "Div Dropout Erf Exp Floor Identity IsInf IsNaN Log Max Mean Min Mod Mul Neg Pow Reciprocal Round Sign Sin Sinh "
        "Sqrt Sub Sum Tan Tanh Where"
    ),
    "arithmetic.linalg": (
        "Det com.microsoft::Inverse"
    ),
    "arithmetic.logical": (
        "And Equal Greater GreaterOrEqual Less LessOrEqual Not Or Xor"
    ),
    "arithmetic.matmul": (
        "Gemm MatMul MatMulInteger QLinearMatMul com.microsoft::FusedMatMul com.microsoft::QLinearMatMul "
        "com.microsoft::SparseToDenseMatMul"
    ),
    "arithmetic.reduction": (
        "ArgMax ArgMin CumProd CumSum ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean ReduceMin "
        "ReduceProd ReduceSum ReduceSumSquare TopK"
    ),
    "arithmetic.signal": (
        "BlackmanWindow DFT HammingWindow HannWindow MelWeightMatrix STFT"
    ),
    "contrib.attention.attention": (
        "com.microsoft::Attention com.microsoft::DecoderMaskedSelfAttention com.microsoft::MultiHeadAttention "
        "com.microsoft::RotaryEmbedding"
    ),
    "contrib.attention.grouped_query_attention": (
        "com.microsoft::GroupQueryAttention"
    ),
    "contrib.attention.packed_attention": (
        "com.microsoft::DecoderMaskedMultiHeadAttention com.microsoft::LongformerAttention com.microsoft::PackedAttention "
        "com.microsoft::PackedMultiHeadAttention com.microsoft::RemovePadding com.microsoft::RestorePadding "
        "com.microsoft::SparseAttention"
    ),
    "contrib.attn_lstm": (
        "com.microsoft::AttnLSTM"
    ),
    "contrib.dynamic_quantize_lstm": (
        "com.microsoft::DynamicQuantizeLSTM"
    ),
    "contrib.embedding_and_blocks": (
        "com.microsoft::EmbedLayerNormalization com.microsoft::GatherBlockQuantized com.microsoft::MatMulNBits"
    ),
    "contrib.fused": (
        "com.microsoft::BiasAdd com.microsoft::BiasDropout com.microsoft::BiasSoftmax com.microsoft::BiasSplitGelu "
        "com.microsoft::BranchwiseRMSNorm com.microsoft::ConvTransposeWithDynamicPads com.microsoft::FusedConv "
        "com.microsoft::FusedGemm com.microsoft::FusedMatMulActivation com.microsoft::GatedAdd com.microsoft::GatedRMSNorm "
        "com.microsoft::GemmFastGelu com.microsoft::GemmFloat8 com.microsoft::GroupNorm com.microsoft::MaxpoolWithMask "
        "com.microsoft::NhwcConv com.microsoft::NhwcFusedConv com.microsoft::NhwcMaxPool com.microsoft::ScaledSiLU "
        "com.microsoft::SkipGroupNorm com.microsoft::SwiGLU com.microsoft::TransposeMatMul"
    ),
    "contrib.moe": (
        "com.microsoft::MoE com.microsoft::QMoE"
    ),
    "contrib.moe_router": (
        "com.microsoft::MoEGroupRouter"
    ),
    "contrib.ngram_hashes": (
        "com.microsoft::NGramHashMapping com.microsoft::VarlenNGramHashMapping"
    ),
    "contrib.packed_blocks": (
        "com.microsoft::GatherPacked com.microsoft::MatMulFpQ4"
    ),
    "contrib.positions_and_states": (
        "com.microsoft::CausalConvWithState com.microsoft::EngramGate com.microsoft::GatedRelativePositionBias "
        "com.microsoft::GemmaRotaryEmbedding com.microsoft::HyperConnectionPostMix com.microsoft::HyperConnectionPreMix "
        "com.microsoft::LinearAttention com.microsoft::LinearAttentionGate com.microsoft::MRotaryEmbedding "
        "com.microsoft::RelativePositionBias"
    ),
    "contrib.qoperator": (
        "com.microsoft::DynamicQuantizeMatMul com.microsoft::MatMulBnb4 com.microsoft::MatMulInteger16 "
        "com.microsoft::MatMulIntegerToFloat com.microsoft::MulInteger com.microsoft::QAttention "
        "com.microsoft::QEmbedLayerNormalization com.microsoft::QGemm com.microsoft::QLinearAdd "
        "com.microsoft::QLinearAveragePool com.microsoft::QLinearConcat com.microsoft::QLinearConv "
        "com.microsoft::QLinearGlobalAveragePool com.microsoft::QLinearLeakyRelu com.microsoft::QLinearMul "
        "com.microsoft::QLinearReduceMean com.microsoft::QLinearSigmoid com.microsoft::QLinearSoftmax "
        "com.microsoft::QLinearWhere com.microsoft::ReduceSumInteger"
    ),
    "contrib.ragged_sequences": (
        "com.microsoft::GatedDeltaNet com.microsoft::VarlenCausalConvWithState"
    ),
    "contrib.search.beam_search": (
        "com.microsoft::BeamSearch com.microsoft::WhisperBeamSearch"
    ),
    "contrib.search.greedy_search": (
        "com.microsoft::GreedySearch com.microsoft::Sampling"
    ),
    "contrib.tensors": (
        "com.microsoft::CDist com.microsoft::ComplexMul com.microsoft::ComplexMulConj com.microsoft::CropAndResize "
        "com.microsoft::DynamicTimeWarping com.microsoft::ExpandDims com.microsoft::GatherND com.microsoft::GridSample "
        "com.microsoft::Irfft com.microsoft::IsAllFinite com.microsoft::MurmurHash3 com.microsoft::Pad "
        "com.microsoft::Range com.microsoft::Rfft com.microsoft::SampleOp com.microsoft::TorchEmbedding "
        "com.microsoft::Trilu com.microsoft::UnfoldTensor com.microsoft::Unique"
    ),
    "contrib.text": (
        "com.microsoft::BifurcationDetector com.microsoft::NGramRepeatBlock com.microsoft::Tokenizer "
        "com.microsoft::WordConvEmbedding"
    ),
    "control": (
        "If Loop Scan SequenceMap"
    ),
    "internal.channels_last": (
        "intarsia.channels_last::AveragePool intarsia.channels_last::BentWindows intarsia.channels_last::Conv "
        "intarsia.channels_last::ConvInteger intarsia.channels_last::GlobalAveragePool "
        "intarsia.channels_last::GlobalMaxPool intarsia.channels_last::GridSample intarsia.channels_last::Interleave "
        "intarsia.channels_last::MaxPool intarsia.channels_last::Windows"
    ),
    "internal.gqa_steps": (
        "intarsia.grouped::GroupedAttention intarsia.grouped::GroupedCache intarsia.grouped::GroupedLengths "
        "intarsia.grouped::GroupedQuery intarsia.grouped::GroupedRows"
    ),
    "internal.gradient": (
        "ai.onnx.preview.training::Gradient intarsia.gradient::OnesLike intarsia.gradient::ZerosLike"
    ),
    "internal.integers": (
        "intarsia.integers::Lookup intarsia.integers::Requantize intarsia.integers::Rescale intarsia.integers::Snap"
    ),
    "internal.moe_steps": (
        "intarsia.experts::ExpertActivation intarsia.experts::ExpertOrder intarsia.experts::ExpertProducts "
        "intarsia.experts::ExpertRows intarsia.experts::ExpertSum intarsia.experts::ExpertWeights"
    ),
    "ml.categories": (
        "ai.onnx.ml::CategoryMapper ai.onnx.ml::LabelEncoder ai.onnx.ml::OneHotEncoder"
    ),
    "ml.features": (
        "ai.onnx.ml::ArrayFeatureExtractor ai.onnx.ml::Binarizer ai.onnx.ml::FeatureVectorizer ai.onnx.ml::Imputer "
        "ai.onnx.ml::Normalizer ai.onnx.ml::Scaler"
    ),
    "ml.linear": (
        "ai.onnx.ml::LinearClassifier ai.onnx.ml::LinearRegressor ai.onnx.ml::SVMClassifier ai.onnx.ml::SVMRegressor"
    ),
    "ml.maps": (
        "ai.onnx.ml::CastMap ai.onnx.ml::DictVectorizer ai.onnx.ml::ZipMap"
    ),
    "ml.native": (
        "intarsia.ml::Indicators intarsia.ml::Label intarsia.ml::Lookup intarsia.ml::PairLabels "
        "intarsia.ml::PairProbabilities intarsia.ml::PairScores intarsia.ml::Positions intarsia.ml::Sides "
        "intarsia.ml::SupportScores intarsia.ml::Table intarsia.ml::TreeClasses intarsia.ml::TreeScores "
        "intarsia.ml::TreeSums"
    ),
    "ml.trees": (
        "ai.onnx.ml::TreeEnsemble ai.onnx.ml::TreeEnsembleClassifier ai.onnx.ml::TreeEnsembleRegressor"
    ),
    "nn.activation": (
        "Celu Elu Gelu HardSigmoid HardSwish LeakyRelu Mish PRelu Relu Selu Shrink Sigmoid Softplus Softsign SwiGLU Swish "
        "ThresholdedRelu com.microsoft::BiasGelu com.microsoft::FastGelu com.microsoft::Gelu com.microsoft::QuickGelu"
    ),
    "nn.attention": (
        "Attention LinearAttention RotaryEmbedding"
    ),
    "nn.conv": (
        "CausalConvWithState Col2Im Conv ConvInteger ConvTranspose QLinearConv"
    ),
    "nn.detection": (
        "NonMaxSuppression RoiAlign"
    ),
    "nn.loss": (
        "NegativeLogLikelihoodLoss SoftmaxCrossEntropyLoss"
    ),
    "nn.normalization": (
        "BatchNormalization GroupNormalization InstanceNormalization LRN LayerNormalization LpNormalization "
        "MeanVarianceNormalization RMSNormalization SimplifiedLayerNormalization "
        "com.microsoft::SimplifiedLayerNormalization com.microsoft::SkipLayerNormalization "
        "com.microsoft::SkipSimplifiedLayerNormalization"
    ),
    "nn.optimizers": (
        "ai.onnx.preview.training::Adagrad ai.onnx.preview.training::Adam ai.onnx.preview.training::Momentum"
    ),
    "nn.pooling": (
        "AveragePool GlobalAveragePool GlobalLpPool GlobalMaxPool LpPool MaxPool MaxRoiPool MaxUnpool"
    ),
    "nn.recurrent": (
        "GRU LSTM RNN"
    ),
    "nn.resize": (
        "Resize Upsample"
    ),
    "nn.sampling": (
        "AffineGrid DeformConv GridSample"
    ),
    "nn.softmax": (
        "Hardmax LogSoftmax Softmax"
    ),
    "tensor.convert": (
        "BitCast Cast CastLike"
    ),
    "tensor.gather": (
        "Gather GatherElements GatherND OneHot Scatter ScatterElements ScatterND TensorScatter"
    ),
    "tensor.quantize": (
        "DequantizeLinear DynamicQuantizeLinear QuantizeLinear com.microsoft::DequantizeLinear "
        "com.microsoft::DynamicQuantizeLinear com.microsoft::QuantizeLinear"
    ),
    "tensor.random_tensors": (
        "Bernoulli Multinomial RandomNormal RandomNormalLike RandomUniform RandomUniformLike"
    ),
    "tensor.selection": (
        "Compress NonZero Unique"
    ),
    "tensor.sequence": (
        "ConcatFromSequence Optional OptionalGetElement OptionalHasElement SequenceAt SequenceConstruct SequenceEmpty "
        "SequenceErase SequenceInsert SequenceLength SplitToSequence"
    ),
    "tensor.shape": (
        "Concat Constant ConstantOfShape DepthToSpace Expand EyeLike Flatten Range Reshape Shape Size SpaceToDepth Split "
        "Squeeze Tile Transpose Trilu Unsqueeze"
    ),
    "tensor.slicing": (
        "CenterCropPad Pad ReverseSequence Slice"
    ),
    "text.strings": (
        "ImageDecoder RegexFullMatch StringConcat StringNormalizer StringSplit TfIdfVectorizer"
    ),
    "withdrawn": (
        "Affine Crop DynamicSlice ImageScaler ParametricSoftplus Scale ScaledTanh"
    ),
}


def families() -> dict[str, list[tuple[str, str]]]:
    """Module -> (domain, name) of its operators."""
    return {f"intarsia.ops.{module}": [_key(text) for text in names.split()] for module, names in _OPERATORS.items()}


def _key(text: str) -> tuple[str, str]:
    domain, _, name = text.rpartition("::")
    return domain, name
