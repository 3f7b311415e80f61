"""A pass of the CPU provider over a graph, as a value with a name, and what it may ask."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Any

from intarsia.codegen.llvm.target import Target
from intarsia.graph.model import Graph
from intarsia.lazy_dataclass import dataclass
from intarsia.ops.framework.infer import Inference
from intarsia.ops.framework.registry import Registry
from intarsia.providers.cpu.kernels.common.lowering_options import LoweringOptions
from intarsia.providers.cpu.kernels.common.schedule import LoweringEnv, Schedule, first_of
from intarsia.providers.cpu.kernels.common.template import Template


class _NoConstants:
    """No operand is known."""

    def is_constant(self, name: str) -> bool:
        return False

    def array(self, name: str) -> None:
        return None

    def original_type(self, name: str) -> None:
        return None


@dataclass(frozen=True)
class LegalizeEnv:
    """What passes depend on besides the graph: operators, the machine, and the session's configuration entries.

    Attributes:
        written: nodes that were written anew by a schedule, for the report of schedules.
    """

    registry: Registry
    target: Target
    config: Mapping[str, str]
    written: list[Template] = field(default_factory=list)

    def choose(self, template: Template) -> Schedule[Any]:
        """The schedule by which a node is written anew. It does not depend on elements of constants."""
        self.written.append(template)
        env = LoweringEnv(self.target, LoweringOptions.of(self.config), _NoConstants(), {})
        return first_of(template.schedule_table(), template, env)

    @property
    def keeps_qdq(self) -> bool:
        """Whether tensors that are dequantised stay as the model has them ("session.disable_quant_qdq")."""
        return self.config.get("session.disable_quant_qdq", "0") == "1"


@dataclass(frozen=True)
class LoweringPass:
    """One rewrite of a whole graph into operators, types and a layout that the CPU has kernels for.

    Attributes:
        name: a verb phrase, by which a session leaves it out (`disabled_optimizers`).
        run: the graph after it, or None where nothing changes; it changes nothing of what it is given.
        operators: types of nodes without one of which it is not run; none: it looks for itself.
        required: why no session can do without it; "" where the graph computes the same without it, only slower.
        reads_declared_types: it runs before types are inferred.
    """

    name: str
    run: Callable[[Inference, LegalizeEnv], Graph | None]
    operators: frozenset[str] = frozenset()
    required: str = ""
    reads_declared_types: bool = False

    def applies(self, graph: Graph) -> bool:
        """Whether it is worth running: cheap, and never False where the pass would change something."""
        return not self.operators or any(node.op_type in self.operators for node in graph.nodes)
