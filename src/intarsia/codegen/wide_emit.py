"""Element-wise primitives on AVX-512 vectors of float32: scaling by a power of two, and reciprocals, in an instruction each.

Results stay within two units of the last place of what `emit.Emitter` computes: only how exp is put together and how sigmoid
divides differ. A sigmoid below the smallest normal number is 0. (tanh and erf keep their division: it runs beside the
polynomials, which have the ports that Newton's method would need.)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from intarsia.codegen import ir
from intarsia.codegen.body import Body
from intarsia.codegen.emit import EXP, F32, Emitter
from intarsia.graph.dtypes import DType
from intarsia.kernel.lang import Tensor

_I16, _I32 = ir.IntType(16), ir.IntType(32)
_CURRENT_ROUNDING = 4
_ALL = _I16(-1)


def emitter_for(body: Body, lanes: int, finite: bool = False) -> Emitter:
    """The emitter for vectors of `lanes` numbers in `body`."""
    target = body.module.target
    wide = lanes == 16 and target.vector_bytes == 64 and target.has("avx512f")
    return (WideEmitter if wide else Emitter)(body.b, lanes, finite)


class WideEmitter(Emitter):
    """Sixteen float32 at once."""

    def _exp(self, x: ir.Value) -> ir.Value:
        """exp(x) = 2^n exp(r) as in `Emitter`; VSCALEFPS multiplies by 2^n, also where that over- or underflows."""
        b = self.builder
        x = self._clamp(x, -105.0, 89.0)
        magic = self.constant(12582912.0, F32)
        n = b.fsub(self._fma(x, self.constant(1.4426950408889634, F32), magic), magic)
        r = self._fma(n, self.constant(-0.693145751953125, F32), x)
        r = self._fma(n, self.constant(-1.428606765330187e-06, F32), r)
        p = self._fma(b.fmul(r, r), self._polynomial(r, EXP), b.fadd(r, self.constant(1.0, F32)))
        function = self._declare("llvm.x86.avx512.mask.scalef.ps.512", x.type, [x.type, x.type, x.type, _I16, _I32])
        return b.call(function, [p, n, p, _ALL, _I32(_CURRENT_ROUNDING)])

    def _inverse(self, x: ir.Value) -> ir.Value:
        """1 / x of finite normal x, whose inverse is normal: VRCP14PS and one step of Newton's method."""
        function = self._declare("llvm.x86.avx512.rcp14.ps.512", x.type, [x.type, x.type, _I16])
        about = self.builder.call(function, [x, x, _ALL])
        return self._fma(self._fma(self.builder.fneg(x), about, self.constant(1.0, F32)), about, about)

    def _element(self, t: Tensor, value: Callable[[Tensor], ir.Value], leaves: Mapping[int, ir.Value]) -> ir.Value:
        if t.prim == "div" and t.dtype is DType.FLOAT and _is_one(t.args[0]) and _is_one_and_exp(t.args[1]):
            x, b = value(t.args[1]), self.builder
            inverse = self._inverse(x)
            return b.select(b.fcmp_ordered(">", x, self.constant(2.0**126, F32)), self.constant(0.0, F32), inverse)
        return super()._element(t, value, leaves)


def _is_one(t: Tensor) -> bool:
    t = _plain(t)
    return t.prim == "scalar" and bool(t.attrs[0] == 1)


def _is_one_and_exp(t: Tensor) -> bool:
    """1 + exp(x), the denominator of a sigmoid."""
    t = _plain(t)
    return t.prim == "add" and any(map(_is_one, t.args)) and any(_plain(a).prim == "exp" for a in t.args)


def _plain(t: Tensor) -> Tensor:
    while t.prim in ("broadcast", "reshape"):
        (t,) = t.args
    return t
