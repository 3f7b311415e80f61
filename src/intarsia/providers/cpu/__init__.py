"""CPUExecutionProvider: operators compiled to SIMD machine code through LLVM, for any shape."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

import numpy as np

from intarsia.ep.provider import CompileContext, ExecutionProvider, Program, SavedProgram, Support
from intarsia.graph.model import Graph, Node
from intarsia.lazy_dataclass import dataclass


@dataclass(frozen=True)
class CpuOptions:
    """Options of the CPU provider.

    Attributes:
        arena_extend_strategy: how the memory of intermediate tensors grows where it has to: by powers of two, or by what is
            requested. By default the first; the second where "session.memory_limit_mib" is set.
    """

    arena_extend_strategy: Literal["kNextPowerOfTwo", "kSameAsRequested"] | None = None


class CPUExecutionProvider(ExecutionProvider):
    """Every operator that has a definition; those that are not regular run as host functions (see `explain`)."""

    name: ClassVar[str] = "CPUExecutionProvider"
    Options: ClassVar[type[Any]] = CpuOptions
    not_exact: ClassVar[Mapping[str, str]] = {
        **dict.fromkeys(("Conv", "ConvTranspose"), "NaN and infinities reach neighbours by sums that are shared"),
        "Det": "infinities may cancel to NaN in another order",
    }

    @classmethod
    def unavailable(cls) -> str:
        from importlib.util import find_spec

        return "" if find_spec("llvmlite") else "llvmlite is not installed: pip install llvmlite"

    def supports(self, node: Node, graph: Graph) -> Support:
        from intarsia.ops import registry

        if registry().find(node.domain, node.op_type, node.version or 10_000) is None:
            return Support.no(f"{node.qualified_op} version {node.version} has no definition", code="no-kernel")
        return Support.yes()

    def compile(self, graph: Graph, context: CompileContext) -> Program:
        from intarsia.ops import registry
        from intarsia.providers.cpu.program.cpu_program import CpuProgram

        return CpuProgram.compile(graph, registry(), context)

    def warm_up(self) -> None:
        from intarsia.codegen.llvm.target import is_known

        if not is_known():  # nothing was compiled here before
            from intarsia.codegen.llvm import compile_ahead
            from intarsia.codegen.llvm.compile_workers import compilers
            from intarsia.runtime.executor import missing_text

            if compilers().expect():
                compile_ahead.begin(missing_text)

    def share(self, program: Program, context: CompileContext) -> Program | None:
        from intarsia.providers.cpu.program.cpu_program import CpuProgram

        assert isinstance(program, CpuProgram)
        return program.share(context)

    def compatibility_info(self) -> str:
        from intarsia.providers.cpu.program import serialize

        return serialize.compatibility_info()

    def check_compatibility(self, info: str) -> tuple[str, bool]:
        from intarsia.providers.cpu.program import serialize

        return serialize.check_compatibility(info)

    def save(self, program: Program) -> SavedProgram:
        from intarsia.providers.cpu.program import serialize
        from intarsia.providers.cpu.program.cpu_program import CpuProgram

        assert isinstance(program, CpuProgram)
        return serialize.save(program)

    def restore(self, head: bytes, block: np.ndarray, context: CompileContext) -> Program | None:
        from intarsia.providers.cpu.program import serialize

        return serialize.restore(head, block, context)
