"""Gates and state update of a recurrent cell, for one vector of hidden units (`rnn_kernel`)."""

from __future__ import annotations

from intarsia.codegen.builder.kernel_body import Body, Value
from intarsia.codegen.elementwise.emitter import Emitter
from intarsia.codegen.llvm.target import Target
from intarsia.primitives import lang as k
from intarsia.primitives.activations import ACTIVATIONS
from intarsia.providers.cpu.kernels.common.tiles import tile_of
from intarsia.providers.cpu.kernels.recurrent.rnn_arguments import GATES, RecurrentSpec


class CellWriter:
    """Writes the equations of a cell for block `block` of a row whose input products are at `x`, in panels that are `x_area`
    bytes apart, recurrent ones at `line`, in panels of `sum_gates` gates, `sum_area` bytes each, and constants at `extra`.
    States are addresses of their first row."""

    body: Body
    emitter: Emitter
    block: Value
    x: Value
    x_area: Value
    line: Value
    sum_area: Value
    sum_gates: int
    extra: Value
    hidden: Value
    new: Value
    reset: Value
    update: Value
    cell: Value | None

    def __init__(self, spec: RecurrentSpec, target: Target) -> None:
        self.spec, self.tile = spec, tile_of(spec.dtype, target)
        self.vector_bytes = self.tile.lanes * self.tile.itemsize
        self.gates = GATES[spec.cell]

    # --- one vector of hidden units ---

    def _load(self, base: Value, offset: Value) -> Value:
        return self.body.load(self.body.at(base, offset), self.spec.dtype, self.tile.lanes)

    def _store(self, value: Value, base: Value, offset: Value) -> None:
        self.body.store(value, self.body.at(base, offset), self.spec.dtype)

    def _input(self, gate: int) -> Value:
        """The gate's input product, bias included."""
        index = self.body.add(self.body.mul(self.block, self.gates), gate)
        return self._load_of_panels(self.x, index, self.x_area)

    def _sum(self, gate: int) -> Value:
        """The gate's recurrent product: vector `block * gates + gate` of panels of `vectors` vectors."""
        index = self.body.add(self.body.mul(self.block, self.sum_gates), gate)
        return self._load_of_panels(self.line, index, self.sum_area)

    def _load_of_panels(self, base: Value, index: Value, area: Value) -> Value:
        """Vector `index` of panels that are `area` bytes apart."""
        body, n = self.body, self.tile.vectors
        inside = body.mul(body.rem(index, n), self.vector_bytes)
        return self._load(base, body.add(body.mul(body.div(index, n), area), inside))

    def _constant(self, index: int, count: int) -> Value:
        """Vector `index` of the `count` that `extra` holds for a block."""
        body = self.body
        return self._load(self.extra, body.mul(body.add(body.mul(self.block, count), index), self.vector_bytes))

    def _activate(self, which: int, value: Value) -> Value:
        """Activation f, g or h (0, 1, 2) of a value, clipped before."""
        name, alpha, beta = self.spec.activations[which]
        x = k.input(0, self.spec.dtype, ())
        if self.spec.clip is not None:
            x = k.minimum(k.maximum(x, -self.spec.clip), self.spec.clip)
        return self.emitter.evaluate(ACTIVATIONS[name.lower()](x, alpha, beta), {0: value})

    def _fma(self, a: Value, b: Value, c: Value) -> Value:
        return self.body.fma(a, b, c, self.spec.dtype, self.tile.lanes)

    def _one_minus(self, x: Value) -> Value:
        return self.body.b.fsub(self.body.constant(1.0, self.spec.dtype, self.tile.lanes), x)

    def _lstm_block(self, offset: Value) -> None:
        """c' = f c + i g(z_c), h' = o h(c'); gates in the order i, o, f, c, peepholes in the order i, o, f."""
        b, spec = self.body.b, self.spec
        assert self.cell is not None
        cell = self._load(self.cell, offset)

        def gate(index: int, state: Value) -> Value:
            total = b.fadd(self._input(index), self._sum(index))
            return self._fma(self._constant(index, 3), state, total) if spec.peepholes else total

        i = self._activate(0, gate(0, cell))
        forget = self._one_minus(i) if spec.input_forget else self._activate(0, gate(2, cell))
        candidate = self._activate(1, b.fadd(self._input(3), self._sum(3)))
        cell = self._fma(forget, cell, b.fmul(i, candidate))
        o = self._activate(0, gate(1, cell))
        name, alpha, beta = spec.activations[2]
        x = k.input(0, spec.dtype, ())
        squashed = self.emitter.evaluate(ACTIVATIONS[name.lower()](x, alpha, beta), {0: cell})
        self._store(cell, self.cell, offset)
        self._store(b.fmul(o, squashed), self.new, offset)

    def _gru_block(self, offset: Value) -> None:
        """h' = (1 - z) g(x_h + r (R_h h + b)) + z h; gates in the order z, r, h."""
        b = self.body.b
        z = self._activate(0, b.fadd(self._input(0), self._sum(0)))
        r = self._activate(0, b.fadd(self._input(1), self._sum(1)))
        inner = b.fadd(self._sum(2), self._constant(0, 1))
        self._mix(z, self._activate(1, self._fma(r, inner, self._input(2))), offset)

    def _reset_block(self, offset: Value) -> None:
        """The first half of a GRU that resets first: z, and r h, which the candidate's product takes."""
        b = self.body.b
        self._store(self._activate(0, b.fadd(self._input(0), self._sum(0))), self.update, offset)
        r = self._activate(0, b.fadd(self._input(1), self._sum(1)))
        self._store(b.fmul(r, self._load(self.hidden, offset)), self.reset, offset)

    def _candidate_block(self, offset: Value) -> None:
        """h' = (1 - z) g(x_h + R_h (r h)) + z h."""
        candidate = self._activate(1, self.body.b.fadd(self._input(2), self._sum(0)))
        self._mix(self._load(self.update, offset), candidate, offset)

    def _mix(self, z: Value, candidate: Value, offset: Value) -> None:
        hidden = self._load(self.hidden, offset)
        self._store(self._fma(z, hidden, self.body.b.fmul(self._one_minus(z), candidate)), self.new, offset)

    def _rnn_block(self, offset: Value) -> None:
        """h' = f(x + R h)."""
        self._store(self._activate(0, self.body.b.fadd(self._input(0), self._sum(0))), self.new, offset)
