"""States of a model that cannot carry anything from one run to the next."""

from __future__ import annotations

from typing import TYPE_CHECKING

from intarsia.stateful.state_pairs import State, find_states

if TYPE_CHECKING:
    from intarsia.graph.model import Graph, Node

_CONSTANT = ("encoder", "cross")  # words of caches that are made once, for all steps of a decoder


def states_of(graph: Graph) -> tuple[State, ...]:
    """The states of a graph."""
    from intarsia.model.signature import NodeArg

    inputs = [NodeArg.of(v) for v in graph.inputs]
    return find_states(inputs, [NodeArg.of(v) for v in graph.outputs], lambda: graph)


def dead_states(graph: Graph, states: tuple[State, ...]) -> list[str]:
    """What is wrong with states, a message each: inputs that nothing reads, outputs that are their inputs unchanged, and
    outputs that no input and no state has a part in."""
    read = {name for node in graph.nodes for name in node.used_names()}
    makers = graph.producers()
    found = []
    for state in states:
        if any(word in state.input.lower() for word in _CONSTANT):
            continue
        if state.input not in read and state.input != state.output:
            found.append(f"nothing reads the state input {state.input!r}: what {state.output!r} gives is lost")
        elif _source(state.output, makers) == state.input:
            found.append(f"the state output {state.output!r} is its input {state.input!r} unchanged: it carries nothing on")
        elif not _depends(state.output, makers, {v.name for v in graph.inputs}):
            found.append(f"the state output {state.output!r} depends on no input: it is the same after every run")
    return found


def _source(name: str, makers: dict[str, Node]) -> str:
    """The value that this one is a copy of."""
    seen: set[str] = set()
    while name in makers and name not in seen and makers[name].op_type == "Identity":
        seen.add(name)
        name = makers[name].inputs[0]
    return name


def _depends(name: str, makers: dict[str, Node], inputs: set[str]) -> bool:
    waiting, seen = [name], set[str]()
    while waiting:
        value = waiting.pop()
        if value in inputs:
            return True
        if value in seen or value not in makers:
            continue
        seen.add(value)
        waiting += makers[value].used_names()
    return False
