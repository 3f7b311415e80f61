"""An NNAPI model as C source: tables, and a function that builds it with the NDK's own calls; constants in a file beside it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

import numpy as np

from intarsia.lazy_dataclass import dataclass
from intarsia.providers.nnapi.model import NnapiModel
from intarsia.providers.nnapi.operations import OPERATIONS

_ALIGNMENT = 64
_NO_VALUE, _OMITTED = -1, -2

_TEXT = """/* {nodes} operations for NNAPI's feature level {level}, written by intarsia convert --to nnapi.

   Inputs: {inputs}.
   Outputs: {outputs}.
   64-bit integers of ONNX are 32-bit here. Map the {nbytes} bytes of {weights} at a multiple of {alignment} bytes, and keep
   them for as long as the model: ANeuralNetworksModel_create, {name}_build, then compile and run it as any model. */

#include <stddef.h>
#include <stdint.h>
#include <android/NeuralNetworks.h>

static const uint32_t {name}_numbers[] = {{{numbers}}};
static const float {name}_scales[] = {{{scales}}};

struct {name}_operand {{
  int32_t type; uint32_t rank, dims; float scale; int32_t zero_point; int64_t offset; size_t nbytes;
  uint32_t channel_dim, channels, channel_scales;
}};
static const struct {name}_operand {name}_operands[] = {{
{operands}
}};

struct {name}_call {{ int32_t code; uint32_t inputs, input, outputs, output; }};
static const struct {name}_call {name}_calls[] = {{
{calls}
}};

/* Adds everything to an empty model and finishes it. Gives the first error code that is not ANEURALNETWORKS_NO_ERROR. */
int {name}_build(ANeuralNetworksModel *model, const void *weights) {{
  int error = 0;
  for (int32_t i = 0; i < {operand_count}; i++) {{
    const struct {name}_operand *o = &{name}_operands[i];
    ANeuralNetworksOperandType type = {{o->type, o->rank, o->rank ? {name}_numbers + o->dims : NULL, o->scale, o->zero_point}};
    if ((error = ANeuralNetworksModel_addOperand(model, &type))) return error;
    if (o->channels) {{
      ANeuralNetworksSymmPerChannelQuantParams p = {{o->channel_dim, o->channels, {name}_scales + o->channel_scales}};
      if ((error = ANeuralNetworksModel_setOperandSymmPerChannelQuantParams(model, i, &p))) return error;
    }}
    if (o->offset == {omitted}) error = ANeuralNetworksModel_setOperandValue(model, i, NULL, 0);
    if (o->offset >= 0) error = ANeuralNetworksModel_setOperandValue(model, i, (const char *)weights + o->offset, o->nbytes);
    if (error) return error;
  }}
  for (uint32_t i = 0; i < {call_count}; i++) {{
    const struct {name}_call *c = &{name}_calls[i];
    error = ANeuralNetworksModel_addOperation(model, c->code, c->inputs, {name}_numbers + c->input, c->outputs,
                                              {name}_numbers + c->output);
    if (error) return error;
  }}
  error = ANeuralNetworksModel_identifyInputsAndOutputs(model, {input_count}, {name}_numbers + {input_at}, {output_count},
                                                        {name}_numbers + {output_at});
  if (error) return error;
{relaxed}  return ANeuralNetworksModel_finish(model);
}}
"""


@dataclass(frozen=True)
class Described:
    """Names and types of a model's inputs or outputs, for people."""

    inputs: str
    outputs: str


def identifier(text: str) -> str:
    """A name of C made of a file's name."""
    found = re.sub(r"\W", "_", text, flags=re.ASCII)
    return f"m_{found}" if not found or found[0].isdigit() else found


def c_source(model: NnapiModel, name: str, weights_file: str, described: Described) -> tuple[str, bytes]:
    """The source, and the bytes of the constants."""
    numbers, scales = _Table(), _Table()
    blocks: list[bytes] = []
    at, operands = 0, []
    for operand in model.operands:
        kind = operand.type
        offset, nbytes = _OMITTED if operand.omitted else _NO_VALUE, 0
        if operand.value is not None:
            data = np.ascontiguousarray(operand.value).tobytes()
            offset, nbytes = at, len(data)
            blocks.append(data + bytes(-len(data) % _ALIGNMENT))
            at += len(blocks[-1])
        fields = [
            int(kind.kind), len(kind.dims), numbers.place(kind.dims), _float(kind.scale), kind.zero_point, offset, nbytes,
            kind.channel_dim, len(kind.channel_scales), scales.place(map(_float, kind.channel_scales)),
        ]  # fmt: skip
        operands.append(f"  {{{', '.join(map(str, fields))}}},")
    calls = []
    for call in model.calls:
        fields = [
            OPERATIONS[call.name].code, len(call.inputs), numbers.place(call.inputs), len(call.outputs),
            numbers.place(call.outputs),
        ]  # fmt: skip
        calls.append(f"  {{{', '.join(map(str, fields))}}}, /* {call.name} */")
    relaxed = "  if ((error = ANeuralNetworksModel_relaxComputationFloat32toFloat16(model, 1))) return error;\n"
    places = {"input_at": numbers.place(model.inputs), "output_at": numbers.place(model.outputs)}
    text = _TEXT.format(
        name=name, nodes=len(model.calls), level=model.level, inputs=described.inputs, outputs=described.outputs, nbytes=at,
        weights=weights_file, alignment=_ALIGNMENT, numbers=numbers.text(), scales=scales.text(), operands="\n".join(operands),
        calls="\n".join(calls), operand_count=len(operands), call_count=len(calls), omitted=_OMITTED,
        input_count=len(model.inputs), output_count=len(model.outputs), relaxed=relaxed if model.relaxed else "", **places,
    )  # fmt: skip
    return text, b"".join(blocks)


def _float(value: float) -> str:
    return f"{float(np.float32(value)).hex()}f"


class _Table:
    """Rows of numbers, one behind the other, each once."""

    def __init__(self) -> None:
        self._items: list[str] = []
        self._known: dict[tuple[str, ...], int] = {}

    def place(self, row: Iterable[object]) -> int:
        key = tuple(map(str, row))
        if key not in self._known:
            self._known[key] = len(self._items)
            self._items += key
        return self._known[key]

    def text(self) -> str:
        """At least one number: C has no empty arrays."""
        items: Sequence[str] = self._items or ["0"]
        lines = [", ".join(items[i : i + 24]) for i in range(0, len(items), 24)]
        return ",\n  ".join(lines)
