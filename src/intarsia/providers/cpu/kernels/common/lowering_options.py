"""A session's configuration entries that lowering reads, parsed once."""

from __future__ import annotations

from collections.abc import Mapping

from intarsia.lazy_dataclass import dataclass

ARITHMETIC = "session.arithmetic"
MATRIX_UNIT = "session.matrix_unit"
DISABLE_WINOGRAD = "session.disable_winograd"
DISABLE_STRASSEN = "session.disable_strassen"


@dataclass(frozen=True)
class LoweringOptions:
    """Entries that kernels are chosen by.

    Attributes:
        arithmetic: `session.arithmetic`; None by default, so that a model's own types decide.
        matrix_unit: `session.matrix_unit`.
        winograd: whether convolutions may be computed by Winograd's minimal filtering.
        strassen: whether products may be computed by seven multiplications instead of eight.
    """

    arithmetic: str | None = None
    matrix_unit: str = "auto"
    winograd: bool = True
    strassen: bool = True

    @classmethod
    def of(cls, config: Mapping[str, str]) -> LoweringOptions:
        """The options that these configuration entries give."""
        return cls(
            config.get(ARITHMETIC), config.get(MATRIX_UNIT, "auto"), config.get(DISABLE_WINOGRAD) != "1",
            config.get(DISABLE_STRASSEN) != "1",
        )  # fmt: skip
