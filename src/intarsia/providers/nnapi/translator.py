"""From graphs to NNAPI models: which nodes, in which form, for which feature level."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from intarsia.ep.capability import Support
from intarsia.errors import InvalidArgument
from intarsia.graph.dtypes import DType
from intarsia.graph.model import Graph, Node, TensorType
from intarsia.ops import registry
from intarsia.ops.framework.infer import infer
from intarsia.partition.decompose import FUSED, expanded, is_decomposable
from intarsia.passes import GraphOptimizationLevel, optimize
from intarsia.providers.nnapi.legalization_rules import RULES
from intarsia.providers.nnapi.lowerings import elementwise, movement, products, quantized, recurrent, windows
from intarsia.providers.nnapi.model import NnapiModel
from intarsia.providers.nnapi.operands import KIND_OF, Kind
from intarsia.providers.nnapi.quantization import operand_scales
from intarsia.providers.nnapi.writer import Target, Writer
from intarsia.providers.vendor import legalization_rules
from intarsia.providers.vendor.half_precision import HalfPrecision
from intarsia.providers.vendor.legalize import with_bodies
from intarsia.providers.vendor.narrow_integers import INDEX_INPUTS
from intarsia.providers.vendor.qoperator_rules import is_qoperator
from intarsia.providers.vendor.translator import Facts, Translator, Untranslatable

LOWERINGS: dict[str, elementwise.Lowering] = {
    **elementwise.LOWERINGS,
    **windows.LOWERINGS,
    **movement.LOWERINGS,
    **products.LOWERINGS,
    **quantized.LOWERINGS,
    **recurrent.LOWERINGS,
}
"""ONNX operator -> what writes it."""


class NnapiTranslator(Translator):
    """Writes NNAPI models.

    Args:
        target: the feature level and the options of the models.
        devices: names and versions of the devices that will run a model.
        devices_refuse: what these do not run of a model; "" where they run all. None: nobody asks them.
        half: which nodes are computed in float16; None: none.
    """

    vendor = "NNAPI"
    legalizations = (legalization_rules.RULES, RULES)

    def __init__(
        self,
        target: Target,
        devices: str = "",
        devices_refuse: Callable[[NnapiModel], str] | None = None,
        half: HalfPrecision | None = None,
    ) -> None:
        self.target, self._devices, self._devices_refuse, self.half = target, devices, devices_refuse, half

    def versions(self) -> Mapping[str, str]:
        return {"feature level": str(self.target.level)}

    def settings(self) -> Mapping[str, str]:
        return {
            **super().settings(),
            "layout": "NCHW" if self.target.nchw else "NHWC",
            "float32": "computed in float16" if self.target.relaxed else "as it is",
            "level": str(self.target.level),
            "queried": self._devices,
        }

    def refusal(self, node: Node, facts: Facts) -> Support | None:
        if node.domain and not is_qoperator(node):
            return Support.no(f"NNAPI has nothing for {node.qualified_op}", code="no-kernel")
        if node.attributes.get("broadcast", 0) and "axis" in node.attributes:
            return Support.no("NNAPI broadcasts trailing axes only", code="unsupported")
        index = INDEX_INPUTS.get(node.op_type, ())
        for i, name in enumerate((*node.inputs, *node.outputs)):
            kind = facts.graph.type_of(name) if name else None
            if not name or name in facts.graph.constants:
                continue
            if not isinstance(kind, TensorType) or kind.dtype not in KIND_OF:
                text = kind.dtype if isinstance(kind, TensorType) else kind
                return Support.no(f"NNAPI has no tensors of {text}, as {name!r} is", code="type")
            if kind.dtype is DType.INT64 and not (i < len(node.inputs) and i in index) and name not in facts.narrow:
                return Support.no(
                    f"NNAPI computes integers in 32 bits, and {name!r} is not known to fit into these", code="type"
                )
        return None

    def legalized(self, graph: Graph) -> Graph:
        graph = infer(graph, registry(), strict=False).graph
        fused = [n for n in graph.nodes if n.op_type in FUSED - LOWERINGS.keys() and not n.domain and is_decomposable(graph, n)]
        if fused:  # with sizes that are numbers, what is computed of them is constant
            try:
                graph = optimize(expanded(graph, fused)[0], GraphOptimizationLevel.ORT_ENABLE_BASIC).graph
            except ValueError as error:
                raise Untranslatable(f"{fused[0].op_type} of these sizes cannot be written out: {error}", "shape") from error
        written = with_bodies(graph, LOWERINGS, self.legalizations)
        if written is not graph:
            graph = optimize(written, GraphOptimizationLevel.ORT_ENABLE_BASIC).graph
        return super().legalized(graph)

    def translate(self, graph: Graph) -> NnapiModel:
        model = write(graph, self.target)
        if self._devices_refuse is not None and (why := self._devices_refuse(model)):
            raise Untranslatable(why, "no-kernel")
        return model


def half_precision(wanted: bool, level: int, option: str) -> HalfPrecision | None:
    """What `NnapiTranslator` takes as `half`.

    Raises:
        InvalidArgument: the feature level has no float16.
    """
    if wanted and level < (needed := Kind.TENSOR_FLOAT16.since):
        raise InvalidArgument(f"{option}: NNAPI has float16 from feature level {needed} on, and this is {level}")
    return HalfPrecision() if wanted else None


def write(graph: Graph, target: Target) -> NnapiModel:
    """The model of a legalised graph.

    Raises:
        Untranslatable: NNAPI has nothing for a node, or computes it otherwise.
    """
    writer = Writer(graph, target, operand_scales(graph))
    for node in graph.nodes:
        if id(node) in writer.done:
            continue
        lowering = LOWERINGS.get(node.op_type)
        if lowering is None or node.domain:
            raise Untranslatable(f"NNAPI has nothing for {node.qualified_op}", "no-kernel")
        unit = quantized.unit_of(writer, node)
        if unit is None or not quantized.write_unit(writer, unit):
            lowering(writer, node)
    return writer.finish()
