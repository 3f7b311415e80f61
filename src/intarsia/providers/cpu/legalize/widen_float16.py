"""Models of 16-bit floats, computed in float32.

Every value of float16 or bfloat16 gets a float32 twin; nodes that compute with numbers work on twins, and a value is rounded
to 16 bits only where the model ends or where a node takes nothing else. Weights stay as they are stored until they are
packed. So such a model has float32's kernels and at least its own accuracy: what it would round in between keeps its digits.
Nodes know what they were widened from, as a CPU may multiply the model's own numbers faster (`precision.options_at`).
"""

from __future__ import annotations

import numpy as np

from intarsia.graph.dtypes import DType
from intarsia.graph.model import Constant, Graph, Node, TensorType
from intarsia.ops.framework.infer import Inference
from intarsia.providers.cpu.legalize.graph_rewriter import TwinRewriter
from intarsia.providers.cpu.legalize.lowering_pass import LegalizeEnv

HALF = (DType.FLOAT16, DType.BFLOAT16)
OPERATORS = frozenset(
    "Conv ConvTranspose MatMul Gemm MaxPool AveragePool GlobalAveragePool GlobalMaxPool BatchNormalization LayerNormalization "
    "InstanceNormalization GroupNormalization RMSNormalization Softmax LogSoftmax LSTM GRU RNN Attention Einsum Resize "
    "SimplifiedLayerNormalization SkipLayerNormalization SkipSimplifiedLayerNormalization MultiHeadAttention FusedMatMul "
    "GroupQueryAttention RotaryEmbedding FusedConv FusedGemm FastGelu BiasGelu MoE QMoE DFT STFT Rfft Irfft "
    "LinearAttention Inverse".split()
)
_LIGHT = frozenset(
    "Abs Add Sub Mul Div Neg Sqrt Exp Log Erf Tanh Sigmoid Relu LeakyRelu PRelu Elu Selu Celu Gelu QuickGelu HardSigmoid "
    "HardSwish Mish Softplus Softsign Swish Clip Min Max Mean Sum Pow Reciprocal Floor Ceil Round Sin Cos Where Reshape "
    "Transpose Flatten Squeeze Unsqueeze Concat Slice Split Expand Pad Gather Identity ReduceMean ReduceSum ReduceMax "
    "ReduceMin ReduceL2 ReduceSumSquare Tile Dropout DepthToSpace SpaceToDepth Equal Greater Less GreaterOrEqual "
    "LessOrEqual IsNaN BiasAdd DequantizeLinear QuantizeLinear CumSum Upsample LRN".split()
)


def widen_float16(inference: Inference, _: LegalizeEnv) -> Graph | None:
    """The graph in float32, or None if no node of 16-bit floats would gain by it."""
    if not any(n.op_type in OPERATORS and _reads_half(n, inference) for n in inference.graph.nodes):
        return None
    return _Widening(inference).run()


def _reads_half(node: Node, inference: Inference) -> bool:
    kinds = [inference.types.get(n) for n in node.inputs if n]
    return any(isinstance(t, TensorType) and t.dtype in HALF for t in kinds)


class _Widening(TwinRewriter):
    mark = "w"

    def run(self) -> Graph:
        for node in self.inference.graph.nodes:
            if not (self._cast(node) or self._compute(node)):
                self.keep(node)
        for name in self.graph.output_names():
            self.restore(name)
        return self.finish()

    def from_twin(self, name: str) -> None:
        """Round a value to its own type."""
        dtype = self.dtype(name)
        assert dtype is not None
        self._append_cast(self.twin[name], name, dtype)

    def _append_cast(self, source: str, output: str, dtype: DType) -> None:
        self.nodes.append(Node("Cast", [source], [output], {"to": dtype.value}, name=f"{output} (Cast)", version=13))

    def _wide(self, name: str) -> str:
        """The float32 twin of a value of 16-bit floats; any other value is itself."""
        if not name or self.dtype(name) not in HALF:
            return name
        if name not in self.twin:
            made = self.twin[name] = self.name(name)
            constant = self.graph.constants.get(name)
            if constant is None:
                self._append_cast(name, made, DType.FLOAT)
            else:
                self.graph.constants[made] = Constant(made, DType.FLOAT, constant.shape, Widened(constant))
        return self.twin[name]

    # --- rules: whether the node was rewritten ---

    def _cast(self, node: Node) -> bool:
        """Casts between 16 and 32 bits are nothing; others start from, or end at, a twin."""
        if node.op_type != "Cast" or node.domain:
            return False
        (source,), (output,) = node.inputs, node.outputs
        have, want = self.dtype(source), self.dtype(output)
        if want in HALF and have is DType.FLOAT:
            self.replace(output, source)
            return True
        if want in HALF or have not in HALF or source not in self.twin:
            return False
        self.nodes.append(node.copy(inputs=[self.twin[source]], traced=None))
        return True

    def _compute(self, node: Node) -> bool:
        if node.op_type not in OPERATORS | _LIGHT or list(node.subgraphs) or not _reads_half(node, self.inference):
            return False
        if any(n and not isinstance(self.inference.types.get(n), TensorType) for n in node.outputs):
            return False
        if any(name in node.attributes for name in ("output_dtype", "stash_type", "softmax_precision", "precision")):
            attributes = {a: v for a, v in node.attributes.items() if a in ("stash_type", "softmax_precision")}
            if any(v != DType.FLOAT.value for v in attributes.values()) or len(attributes) == 0:
                return False
        outputs = []
        inputs = [self._wide(n) for n in node.inputs]
        for name in node.outputs:
            if name and self.dtype(name) in HALF:
                outputs.append(self.new_twin(name))
            else:
                outputs.append(name)
        kinds = {self.dtype(n) for n in node.inputs if n}.intersection(HALF)
        own = kinds.pop() if len(kinds) == 1 else None
        self.nodes.append(node.copy(inputs=inputs, outputs=outputs, widened_from=own, traced=None))
        return True


def original_type(constant: Constant) -> DType | None:
    """The type of a constant before it was widened to float32."""
    return constant.maker.constant.dtype if isinstance(constant.maker, Widened) else None


class Widened:
    """A constant's numbers as float32, made when they are requested."""

    def __init__(self, constant: Constant) -> None:
        self.constant = constant

    def __call__(self) -> np.ndarray:
        return self.constant.numpy().astype(np.float32)
