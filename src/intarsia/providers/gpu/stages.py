"""Where a part is cut because a size, or another number that a definition needs, is computed on the device.

A stage is planned when the numbers before it have been read, which waits for all that was launched. Nodes that compute
small integers from shapes are in every stage that needs them, so that these are read from nowhere.
"""

from __future__ import annotations

from collections.abc import Iterable

from intarsia.codegen.clike import Dialect
from intarsia.device.gpu import DeviceLimits
from intarsia.graph.model import Graph, Node, Value
from intarsia.providers.gpu.node_support import Survey, numbers_behind


def stages(graph: Graph, dialect: Dialect, limits: DeviceLimits) -> list[Graph]:
    """The part as graphs, written out, that are planned and run one after the other."""
    survey = Survey(graph, dialect, limits)
    for node in graph.nodes:
        survey.answer(node)  # which finds what control flow reads
    whole = survey.graph
    levels = _levels(whole, survey)
    last = max(levels.values(), default=0)
    if not last:
        return [whole]
    makers = whole.producers()
    plain = {n for n in makers if _is_free(whole, makers[n], survey)}
    return [_stage(whole, level, levels, makers, plain, survey) for level in range(last + 1)]


def _levels(graph: Graph, survey: Survey) -> dict[str, int]:
    """By values, in which stage they are made."""
    levels: dict[str, int] = {}
    for node in graph.nodes:
        level = max((levels.get(n, 0) for n in node.used_names()), default=0)
        for name in survey.reads(node):
            if name in levels:
                level = max(level, levels[name] + 1)
        levels.update((out, level) for out in node.outputs if out)
    return levels


def _is_free(graph: Graph, node: Node, survey: Survey) -> bool:
    """Whether a node computes numbers that are known before a run."""
    if node.has_subgraphs:
        return False
    return all(n in survey.inference.values and numbers_behind(graph, n) is not None for n in node.outputs if n)


def _stage(graph: Graph, level: int, levels: dict[str, int], makers: dict[str, Node], free: set[str], survey: Survey) -> Graph:
    chosen = {id(n) for n in graph.nodes if any(levels.get(o) == level for o in n.outputs)}
    waiting = [name for node in graph.nodes if id(node) in chosen for name in node.used_names()]
    while waiting:
        name = waiting.pop()
        maker = makers.get(name)
        if maker is not None and name in free and id(maker) not in chosen:
            chosen.add(id(maker))
            waiting += maker.used_names()
    nodes = [n for n in graph.nodes if id(n) in chosen]
    made = {o for n in nodes for o in n.outputs if o}
    used = dict.fromkeys(name for node in nodes for name in sorted(node.used_names()))
    later = {n for node in graph.nodes if max(levels.get(o, 0) for o in node.outputs if o) > level for n in node.used_names()}
    given = [n for n in used if n not in made and n not in graph.constants]
    results = [n for n in dict.fromkeys(_ordered(nodes)) if levels[n] == level and n in later | set(graph.output_names())]
    types = survey.inference.types
    return Graph(
        f"{graph.name}/stage{level}",
        inputs=[Value(n, types.get(n)) for n in given],
        outputs=[Value(n, types.get(n)) for n in results],
        nodes=nodes,
        constants={n: graph.constants[n] for n in used if n in graph.constants},
        opset_imports=graph.opset_imports,
        functions=graph.functions,
        metadata=graph.metadata,
    )


def _ordered(nodes: Iterable[Node]) -> list[str]:
    return [o for n in nodes for o in n.outputs if o]
