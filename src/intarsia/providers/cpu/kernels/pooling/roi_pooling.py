"""RoiAlign and MaxRoiPool of float32 by kernels."""

from __future__ import annotations

import struct
from collections.abc import Sequence

from intarsia.codegen.llvm.target import Target
from intarsia.graph.dims import Dim, product
from intarsia.graph.dtypes import DType
from intarsia.graph.model import Node
from intarsia.lazy_dataclass import dataclass
from intarsia.ops.framework.infer import Inference
from intarsia.plan.step import STATUS, Below, PlainCall, Ref, Step
from intarsia.providers.cpu.kernels.common.epilogue import Epilogue
from intarsia.providers.cpu.kernels.common.template import FusedOperand, Template, Workspace
from intarsia.providers.cpu.kernels.common.tensor_spec import operand_specs, result_spec
from intarsia.providers.cpu.kernels.pooling import roi_pooling_kernel as template

_SERIAL_ELEMENTS = 1024  # of the output: each is the work of many inputs


def regions(node: Node, inference: Inference) -> Template | None:
    """RoiAlign or MaxRoiPool of float32 images by float32 regions (and int64 indices)."""
    types = operand_specs(node, inference)
    out = result_spec(node, inference)
    expected = (DType.FLOAT, DType.FLOAT, DType.INT64)[: len(types)]
    if out is None or len(out.shape) != 4:
        return None
    if any(t is None or t.dtype is not dtype for t, dtype in zip(types, expected, strict=True)):
        return None
    if str(node.attributes.get("mode", "avg")) not in ("avg", "max"):
        return None
    return Regions(node, tuple(node.inputs), types, out, takes_epilogue=False)


@dataclass(frozen=True)
class Regions(Template):
    def steps(
        self, target: Target, workspace: Workspace, epilogue: Epilogue | None, operands: Sequence[FusedOperand], out: str
    ) -> list[Step]:
        kernel = template.pool_text(target) if self._pools else template.align_text(self._mode, self._aligned, target)
        work = product(self.output.shape)
        return [
            Step(
                kernel, self.reads, (out,), self._call(out), serial=Below(work, _SERIAL_ELEMENTS), label=self.node.op_type,
                checked=True,
            )
        ]  # fmt: skip

    @property
    def _pools(self) -> bool:
        return self.node.op_type == "MaxRoiPool"

    @property
    def _mode(self) -> str:
        return str(self.node.attributes.get("mode", "avg"))

    @property
    def _aligned(self) -> bool:
        version = self.node.version or 16
        how = "half_pixel" if version >= 16 else "output_half_pixel"
        return str(self.node.attributes.get("coordinate_transformation_mode", how)) == "half_pixel"

    def _call(self, out: str) -> PlainCall:
        x = self.operand(0)
        batches, channels, height, width = x.shape
        regions, _, high, wide = self.output.shape
        scale = struct.unpack("<i", struct.pack("<f", float(self.node.attributes.get("spatial_scale", 1.0))))[0]
        values: dict[str, Ref | Dim] = {
            "x": Ref(self.reads[0]), "rois": Ref(self.reads[1]), "indices": Ref(self.reads[-1]), "y": Ref(out),
            "status": Ref(STATUS), "regions": regions, "batches": batches, "channels": channels, "height": height,
            "width": width, "high": high, "wide": wide, "ratio": int(self.node.attributes.get("sampling_ratio", 0)),
            "scale": scale,
        }  # fmt: skip
        return PlainCall(tuple([values[f] for f in (template.POOL_FIELDS if self._pools else template.ALIGN_FIELDS)]))
