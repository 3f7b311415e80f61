"""Element-wise primitives on whole vectors of float32 of a CPU with AVX-512: scaling by a power of two, and reciprocals, in an
instruction each.

Results stay within two units of the last place of what `emitter.Emitter` computes (sigmoids of -40 and less within five): only
how exp is put together and how sigmoid divides differ. Where a CPU computes vectors in halves, multiply-adds are what is
scarce, and the divider is a unit of its own: sigmoid divides there, and x sigmoid(x) is one division. Elsewhere VRCP14PS and
Newton's method take its place, and a sigmoid below the smallest normal number is 0, and so is x times it. (tanh and erf keep
their division: it runs beside the polynomials, which have the ports that Newton's method would need.)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from intarsia.codegen.builder.kernel_body import Body
from intarsia.codegen.elementwise.element_types import F32
from intarsia.codegen.elementwise.emitter import Emitter
from intarsia.codegen.elementwise.exponential import LN2_PARTS, LN2_ROUNDED, POLYNOMIAL, plain, sigmoid_exponent
from intarsia.codegen.llvm import ir_builder
from intarsia.graph.dtypes import DType
from intarsia.primitives.lang import Tensor, is_factor

_I8, _I16, _I32 = ir_builder.IntType(8), ir_builder.IntType(16), ir_builder.IntType(32)
_CURRENT_ROUNDING = 4
_ALL = _I16(-1)
_HALF = 8  # lanes of the vectors of half the width


def emitter_for(body: Body, lanes: int, finite: bool = False) -> Emitter:
    """The emitter for vectors of `lanes` numbers in `body`."""
    target = body.module.target
    if target.vector_bytes == 64 and target.has("avx512f") and (lanes == 16 or lanes == _HALF and target.halves_vectors):
        return WideEmitter(body.b, lanes, finite, divides=target.halves_vectors, rounds=target.has_pairs and lanes != _HALF)
    return Emitter(body.b, lanes, finite)


class WideEmitter(Emitter):
    """Sixteen float32 at once, or half of that; `divides`: sigmoids are quotients; `rounds`: VCVTNEPS2BF16 is there."""

    def __init__(self, builder: ir_builder.IRBuilder, lanes: int, finite: bool, *, divides: bool, rounds: bool = False) -> None:
        super().__init__(builder, lanes, finite)
        self.divides, self.rounds = divides, rounds

    def _exp(self, x: ir_builder.Value) -> ir_builder.Value:
        return self._exponential(x, LN2_PARTS)

    def _exponential(self, x: ir_builder.Value, halvings: tuple[float, ...]) -> ir_builder.Value:
        """exp(x) = 2^n exp(r), r = x + n (sum of `halvings`), -ln 2 in parts; VSCALEFPS multiplies by 2^n, also where that
        over- or underflows."""
        b = self.builder
        x = self.clamp(x, -105.0, 89.0)
        magic = self.constant(12582912.0, F32)
        n = b.fsub(self._fma(x, self.constant(1.4426950408889634, F32), magic), magic)
        for part in halvings:
            x = self._fma(n, self.constant(part, F32), x)
        return self._scaled(self.polynomial(x, POLYNOMIAL), n)

    def _scaled(self, p: ir_builder.Value, n: ir_builder.Value) -> ir_builder.Value:
        """p 2^n."""
        if self.lanes == _HALF:
            function = self._declare("llvm.x86.avx512.mask.scalef.ps.256", p.type, [p.type, p.type, p.type, _I8])
            return self.builder.call(function, [p, n, p, _I8(-1)])
        function = self._declare("llvm.x86.avx512.mask.scalef.ps.512", p.type, [p.type, p.type, p.type, _I16, _I32])
        return self.builder.call(function, [p, n, p, _ALL, _I32(_CURRENT_ROUNDING)])

    def _inverse(self, x: ir_builder.Value) -> ir_builder.Value:
        """1 / x of x >= 1, 0 where that is no normal number: VRCP14PS and one step of Newton's method."""
        b = self.builder
        function = self._declare("llvm.x86.avx512.rcp14.ps.512", x.type, [x.type, x.type, _I16])
        about = b.call(function, [x, x, _ALL])
        inverse = self._fma(self._fma(b.fneg(x), about, self.constant(1.0, F32)), about, about)
        return b.select(b.fcmp_ordered(">", x, self.constant(2.0**126, F32)), self.constant(0.0, F32), inverse)

    def _element(
        self, t: Tensor, value: Callable[[Tensor], ir_builder.Value], leaves: Mapping[int, ir_builder.Value]
    ) -> ir_builder.Value:
        if self.rounds and is_factor(t):
            return self._factor(value(t.args[0]))
        if t.dtype is not DType.FLOAT:
            return super()._element(t, value, leaves)
        exponent = sigmoid_exponent(t)
        if exponent is not None:
            denominator = self._denominator(exponent, value)
            return self.builder.fdiv(self.constant(1.0, F32), denominator) if self.divides else self._inverse(denominator)
        if t.prim == "mul" and self.divides:
            for x, gate in (t.args, t.args[::-1]):
                exponent = sigmoid_exponent(plain(gate))
                if exponent is not None:
                    return self.builder.fdiv(value(x), self._denominator(exponent, value))
        return super()._element(t, value, leaves)

    def _factor(self, x: ir_builder.Value) -> ir_builder.Value:
        """VCVTNEPS2BF16, instead of nine instructions: what is below the smallest normal number becomes zero, as VDPBF16PS
        takes it."""
        b, halves = self.builder, ir_builder.VectorType(ir_builder.BFloatType(), self.lanes)
        stored = b.bitcast(
            b.call(self._declare("llvm.x86.avx512bf16.cvtneps2bf16.512", halves, [x.type]), [x]), self.shaped(_I16)
        )
        return self.from_storage(stored, DType.BFLOAT16)

    def _denominator(self, exponent: Tensor, value: Callable[[Tensor], ir_builder.Value]) -> ir_builder.Value:
        """1 + exp(x), for which -ln 2 in one part will do: what that is off by grows with |n|, where a sigmoid is nearly 0 or
        exp(x) beside 1 is."""
        return self.builder.fadd(self._exponential(value(exponent), LN2_ROUNDED), self.constant(1.0, F32))
