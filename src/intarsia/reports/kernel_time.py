"""What one kernel did in a mean run."""

from __future__ import annotations

from intarsia.lazy_dataclass import dataclass

TRANSFER, BETWEEN, KERNEL = "transfer", "between kernels", "kernel"


@dataclass(frozen=True)
class KernelTime:
    """One kernel (or one part of a provider that does not tell its kernels apart) in a mean run.

    Attributes:
        name: what the kernel does, with the sizes of these runs.
        kind: "kernel", "transfer" (a copy between memories) or "between kernels" (a part's time outside its kernels).
        nodes: first outputs of the nodes it computes.
        op: the operator of the node with most of its arithmetic.
        layer: the name of that node in the original model, with the modules around it where torch's exporter wrote them.
        calls: of one run. milliseconds: of all of them. least_milliseconds: the same in the run in which they took least.
        flop, nbytes: arithmetic operations, and bytes read and written.
    """

    name: str
    kind: str
    provider: str
    nodes: tuple[str, ...]
    op: str
    layer: str
    calls: float
    milliseconds: float
    least_milliseconds: float
    flop: float
    nbytes: float
