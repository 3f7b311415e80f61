"""TfIdfVectorizer of integers by a kernel; strings become integers first (LabelEncoder), which only Python can look up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from intarsia.codegen.llvm.target import Target
from intarsia.graph.dims import product
from intarsia.graph.model import Node
from intarsia.lazy_dataclass import dataclass
from intarsia.ops.text.strings import ngrams_of
from intarsia.plan.step import Below, BuffersAndSizes, Step
from intarsia.providers.cpu.kernels.common.epilogue import Epilogue
from intarsia.providers.cpu.kernels.common.packing import Layout, Packing
from intarsia.providers.cpu.kernels.common.template import FusedOperand, Template, Workspace
from intarsia.providers.cpu.kernels.common.tensor_spec import operand_specs, result_spec
from intarsia.providers.cpu.kernels.text import ngrams_kernel as template

if TYPE_CHECKING:
    from intarsia.ops.framework.infer import Inference

_SERIAL_ELEMENTS = 4096


def tf_idf(node: Node, inference: Inference) -> Template | None:
    x, out = operand_specs(node, inference)[0], result_spec(node, inference)
    if x is None or not x.shape or x.dtype not in template.SOURCES or out is None:
        return None
    a = node.attributes
    pool, indexes = a.get("pool_int64s"), list(a["ngram_indexes"])
    if not pool or (a["mode"] == "IDF" and len(set(indexes)) < len(indexes)):
        return None
    grams = ngrams_of(pool, a["ngram_counts"])  # all have a place and a weight: `ops.text.strings.checked_ngrams`
    weights = (a.get("weights") or ()) if a["mode"] != "TF" else ()
    counted = np.array(weights or [1.0] * len(indexes), np.float32)
    return TfIdf(
        node,
        (node.inputs[0],),
        (x,),
        out,
        takes_epilogue=False,
        grams=grams,
        places=np.array(indexes, np.int64),
        weights=counted,
    )


@dataclass(frozen=True)
class TfIdf(Template):
    grams: dict[tuple[int, ...], int] = field(kw_only=True)
    places: np.ndarray = field(kw_only=True)
    weights: np.ndarray = field(kw_only=True)

    def steps(
        self, target: Target, workspace: Workspace, epilogue: Epilogue | None, operands: Sequence[FusedOperand], out: str
    ) -> list[Step]:
        x, shape = self.operand(0), self.output.shape
        slots = template.slots_of(self.grams)
        arrays = {Layout.NGRAMS: slots, Layout.PLACES: self.places, Layout.WEIGHTS: self.weights}
        tables = tuple([workspace.add("", Packing(layout, view=out), partial(arrays.__getitem__, layout)) for layout in arrays])
        a = self.node.attributes
        longest, skips = min(int(a["max_gram_length"]), len(a["ngram_counts"])), int(a["max_skip_count"])
        if isinstance(x.shape[-1], int):  # a row has no longer ones
            longest, skips = min(longest, x.shape[-1]), min(skips, x.shape[-1])
        settings = (int(a["min_gram_length"]), longest, skips, int(a["mode"] == "IDF"))
        sizes = (product(x.shape[:-1]), x.shape[-1], shape[-1])
        call = BuffersAndSizes((self.reads[0], out, *tables), (*sizes, len(slots) - 1, *settings))
        return [
            Step(
                template.kernel_text(x.dtype, target), (self.reads[0], *tables), (out,), call,
                serial=Below(product(x.shape), _SERIAL_ELEMENTS), label="TfIdfVectorizer",
            )
        ]  # fmt: skip
